"""Adoption: data that exists already becomes what a label stands for."""

from __future__ import annotations

import fsspec
import pytest

from marin_dsl import Directory, File, Store, evaluate, external, op, provenance, recall
from marin_dsl.expression.annotations import Label
from marin_dsl.labels import CannotAdopt, LabelFixed, adopt, current, entries
from marin_dsl.lineage import origins
from marin_dsl.store.copy import copy
from marin_dsl.store.verify import verify


@pytest.fixture(autouse=True)
def _quick_environment(monkeypatch):
    monkeypatch.setattr(provenance, "environment", lambda project: {"python": "3"})


@pytest.fixture
def store(tmp_path):
    return Store(tmp_path / "store")


@pytest.fixture
def data(tmp_path):
    place = tmp_path / "data.txt"
    place.write_text("to be")
    return place


@op(version="1")
def text_of(file: File) -> str:
    return file.read_text()


@op(version="1")
def made() -> str:
    return "made"


def run(root, store, **settings):
    told = []
    outcome = evaluate(root, store=store, debug=True, watch=told.append, **settings)
    return outcome, [event for event in told if event["event"] == "drift"]


def test_a_file_is_kept_and_recalled_after_it_is_gone(store, data):
    entry = adopt(store, "corpus", "1.0", str(data), why="from the archive")
    assert (entry.adopted, entry.why, entry.number) == (str(data), "from the archive", 1)
    data.unlink()
    found = evaluate(recall("corpus@1.0"), store=store, debug=True).value
    assert (type(found), found.read_text()) == (File, "to be")
    assert evaluate(text_of(recall("corpus@1.0")), store=store, debug=True).value == "to be"


def test_a_folder_is_a_directory_and_stays_as_it_is(store, tmp_path):
    folder = tmp_path / "folder"
    (folder / "inner").mkdir(parents=True)
    (folder / "inner" / "a.txt").write_text("a")
    entry = adopt(store, "folder", "1.0", str(folder))
    assert store.get(entry.value) == Directory.of(folder)
    assert [path.name for path in folder.rglob("*") if path.is_file()] == ["a.txt"]


def test_the_prefix_of_a_bucket_is_a_directory(store):
    files = fsspec.filesystem("memory")
    files.pipe({"/bucket/set/one": b"1", "/bucket/set/inner/two": b"22"})
    found = store.get(adopt(store, "set", "1", "memory://bucket/set").value)
    assert {name: file.read_bytes() for name, file in found.files.items()} == {"one": b"1", "inner/two": b"22"}


def test_the_same_bytes_again_change_nothing_wherever_they_are(store, data, tmp_path):
    first = adopt(store, "corpus", "1.0", str(data))
    elsewhere = tmp_path / "elsewhere"
    elsewhere.write_text("to be")
    assert adopt(store, "corpus", "1.0", str(data)) == first
    assert adopt(store, "corpus", "1.0", str(elsewhere)) == first
    assert len(entries(store, Label("corpus", "1.0"))) == 1


def test_changed_bytes_are_an_error_that_names_both_digests(store, data):
    adopt(store, "corpus", "1.0", str(data))
    data.write_text("not to be")
    with pytest.raises(
        LabelFixed,
        match=r"corpus@1.0 stands for sha256:\w+ \(adopted from .*data.txt, .*\), and .*data.txt has the content "
        r"sha256:\w+: it has changed since; adopt it under another version, or under one that ends in dev, which moves",
    ):
        adopt(store, "corpus", "1.0", str(data))
    assert len(entries(store, Label("corpus", "1.0"))) == 1


def test_a_label_of_something_evaluated_is_not_taken(store, data):
    evaluate(made().named("corpus", "1.0"), store=store, debug=True)
    with pytest.raises(LabelFixed, match=r"\(evaluated, .*\).*: that is something else; adopt it under another"):
        adopt(store, "corpus", "1.0", str(data))


def test_a_version_that_moves_follows_the_bytes(store, data):
    adopt(store, "corpus", "dev", str(data))
    data.write_text("not to be")
    assert adopt(store, "corpus", "dev", str(data)).number == 2
    assert evaluate(text_of(recall("corpus@dev")), store=store, debug=True).value == "not to be"


@pytest.mark.parametrize("uri", ["/nowhere/at-all", "memory://nowhere", "nothing://x"])
def test_what_is_not_there_cannot_be_adopted(store, uri):
    with pytest.raises(CannotAdopt, match=f"{uri} cannot be adopted: "):
        adopt(store, "corpus", "1.0", uri)
    assert current(store, Label("corpus", "1.0")) is None


def test_an_empty_uri_is_not_the_working_directory(store):
    for uri in ("", "  "):
        with pytest.raises(CannotAdopt, match="an empty uri cannot be adopted"):
            adopt(store, "corpus", "1.0", uri)
    assert current(store, Label("corpus", "1.0")) is None


def test_an_adopted_label_drifts_and_says_that_it_was_adopted(store, data):
    adopt(store, "corpus", "1.0", str(data))
    outcome, (told,) = run(made().named("corpus", "1.0"), store)
    assert outcome.value == "made"
    assert told["headline"].startswith(f"corpus@1.0 was adopted from {data} (")
    assert told["lines"] == ["made: operator marin.external-by-digest → test_adoption.made"]
    outcome, _ = run(made().named("corpus", "1.0"), store, drift="use-recorded")
    assert outcome.value.read_text() == "to be"
    run(made().named("corpus", "1.0"), store, drift="accept")
    assert current(store, Label("corpus", "1.0")).adopted is None


def test_the_data_itself_under_the_label_is_no_drift(store, data):
    adopt(store, "corpus", "1.0", str(data))
    digest = File.of(data).digest
    data.unlink()
    outcome, told = run(external(str(data), digest=digest).named("corpus", "1.0"), store, drift="strict")
    assert (outcome.value.read_text(), told) == ("to be", [])


def test_what_was_adopted_is_sound_has_an_origin_and_can_be_copied(store, data, tmp_path):
    entry = adopt(store, "corpus", "1.0", str(data))
    assert verify(store).sound
    assert origins(store, entry.recipe).recipe["title"] == "external(data.txt)"
    there = Store(tmp_path / "there")
    copy(store, there)
    assert current(there, Label("corpus", "1.0")) == entry
    assert evaluate(recall("corpus@1.0"), store=there, debug=True).value.read_text() == "to be"
