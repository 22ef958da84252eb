"""No folder is read into a store, or written from one, that holds the store or lies in it."""

import os

import pytest

from marin_dsl import Store, evaluate, external, labels, op
from marin_dsl.lineage.export import ExportRefused, export, import_experiment
from marin_dsl.lineage.subject import subjects
from marin_dsl.places import holds


@op(version="1")
def f(n: int) -> int:
    return n


@pytest.mark.parametrize(
    ("outer", "inner", "expected"),
    [
        ("/a", "/a", True), ("/a/", "/a/b/c", True), ("/a/b", "/a", False), ("/a", "/ab", False), ("/", "/a", True),
        ("/a/../b", "/b/c", True), ("file:///a", "/a/b", True), ("gs://b", "gs://b/c", True),
        ("gs://b", "gs://bc", False),
        ("gcs://b/", "gs://b/c", True), ("s3://b", "gs://b/c", False), ("memory://x", "memory://x/y", True),
        ("/b", "gs://b", False),
    ],
)  # fmt: skip
def test_what_lies_where(outer, inner, expected):
    assert holds(outer, inner) is expected


def test_a_link_lies_where_it_leads(tmp_path):
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    assert holds(str(tmp_path / "link"), str(tmp_path / "real" / "store"))
    assert holds(str(tmp_path / "real"), str(tmp_path / "link" / "store"))


@pytest.mark.parametrize("where", [".", "data", "data/link", "data/.marin", "data/.marin/blobs"])
def test_a_folder_with_the_store_in_it_or_of_the_store_is_not_adopted(tmp_path, where):
    store = Store(tmp_path / "data" / ".marin")
    store.check(writing=True)
    (tmp_path / "data" / "numbers").write_text("1 2 3")
    (tmp_path / "data" / "link").symlink_to(tmp_path / "data")
    files = sorted(store.files.root.rglob("*"))
    what = "is a part of" if where == "data/.marin/blobs" else "holds"
    with pytest.raises(labels.CannotAdopt, match=f"{what} the store {store.url}, which changes whenever"):
        labels.adopt(store, "data", "1.0", str(tmp_path / where))
    assert sorted(store.files.root.rglob("*")) == files
    assert labels.adopt(store, "data", "1.0", str(tmp_path / "data" / "numbers")).value is not None


def test_an_external_folder_with_the_store_in_it_is_a_failure_that_says_so(tmp_path):
    (tmp_path / "data").mkdir()
    outcome = evaluate(external(str(tmp_path / "data")), store=tmp_path / "data" / ".marin", debug=True)
    assert outcome.message.startswith(f"{tmp_path / 'data'} holds {tmp_path / 'data' / '.marin' / 'scratch'}{os.sep}")
    assert outcome.message.endswith("name a folder that holds the data alone")


def test_nothing_is_exported_into_the_store_or_imported_into_a_store_within_the_export(tmp_path):
    store = Store(tmp_path / "store")
    evaluate(f(1).named("one", "1.0"), store=store, debug=True)
    with pytest.raises(ExportRefused, match="is a part of the store"):
        export(store, subjects(store, "one@1.0"), tmp_path / "store" / "exported")
    export(store, subjects(store, "one@1.0"), tmp_path / "exported")
    before = sorted((tmp_path / "exported").rglob("*"))
    for place in ("store", "another", "code/store"):
        with pytest.raises(ExportRefused, match="which would be no export any more"):
            import_experiment(tmp_path / "exported", Store(tmp_path / "exported" / place))
    assert sorted((tmp_path / "exported").rglob("*")) == before
    assert import_experiment(tmp_path / "exported", Store(tmp_path / "another")).labels == ("one@1.0",)
