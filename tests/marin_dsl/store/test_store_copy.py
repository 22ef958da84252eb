"""Copies of labels between stores: complete, incremental, safe when interrupted, and honest about what is missing."""

import contextlib

import pytest
from experiments import evaluated, experiment, new_store
from made_up_records import result_record

from marin_dsl import evaluate, labels, op, plan, provenance, recall
from marin_dsl.encoding import format_digest
from marin_dsl.expression.annotations import Label
from marin_dsl.lineage import ancestors
from marin_dsl.store import Store, StoreUnavailable
from marin_dsl.store.copy import Copied, LabelDiverged, LabelUnknown, copy
from marin_dsl.store.records import SCHEMA, write_record
from marin_dsl.store.verify import verify


@pytest.fixture(autouse=True)
def _quick_environment(monkeypatch):
    monkeypatch.setattr(provenance, "environment", lambda project: {"python": "3" * 2000})


def all_files(store):
    """Every file of a store in memory."""
    root = store.files.root
    return {path.removeprefix(f"{root}/"): store.files.fs.cat_file(path) for path in store.files.fs.find(root)}


KINDS = [
    ("local", "google"),
    ("google", "local"),
    ("memory", "google"),
    ("local", "memory"),
    ("memory", "memory"),
    pytest.param("google", "s3", marks=pytest.mark.long),
    pytest.param("s3", "local", marks=pytest.mark.long),
]


@pytest.mark.parametrize(("one", "other"), KINDS)
def test_a_label_is_copied_with_all_that_it_stands_for(one, other, new_url):
    source, target = Store(new_url(one)), Store(new_url(other))
    root = evaluated(source)
    moved = copy(source, target, ["experiment@1.0"])
    assert moved.labels == ("experiment@1.0",)
    assert moved.missing == ()
    assert moved.blobs >= 5
    seen = []
    outcome = evaluate(root, store=target, debug=True, keep_failures=True, watch=seen.append)
    assert outcome.value == evaluate(root, store=source, debug=True, keep_failures=True).value
    assert seen[-1]["ran"] == 0
    assert verify(target).sound
    there, here = ancestors(target, root.key), ancestors(source, root.key)
    assert set(there) == set(here)
    for key, found in here.items():
        assert (there[key].recipe, there[key].record) == (found.recipe, found.record)


@pytest.mark.parametrize(("one", "other"), [("local", "google"), ("memory", "memory")])
def test_a_second_copy_moves_nothing(one, other, new_url):
    source, target = Store(new_url(one)), Store(new_url(other))
    evaluated(source)
    copy(source, target)
    assert copy(source, target) == Copied(("experiment@1.0",), 0, 0, 0, ())
    assert str(copy(source, target)) == "experiment@1.0: 0 records and 0 blobs (0 bytes) moved"


def test_a_copy_of_everything_in_memory_is_the_same_files():
    source, target = new_store("memory"), new_store("memory")
    evaluated(source)
    evaluate(experiment(), store=source, debug=True)
    copy(source, target)
    assert all_files(target) == all_files(source)


def test_there_and_back_is_the_same():
    source, middle, target = (new_store("memory") for _ in range(3))
    evaluated(source)
    copy(source, middle)
    copy(middle, target)
    assert copy(target, source).records == 0
    assert all_files(target) == all_files(source)


def test_only_what_is_new_is_moved_when_a_label_moved_on():
    source, target = new_store("memory"), new_store("memory")
    evaluated(source, version="dev")
    first = copy(source, target)
    root = evaluated(source, version="dev", scale=2.0)
    second = copy(source, target)
    assert 0 < second.blobs < first.blobs
    assert 0 < second.records < first.records
    assert str(plan(root, store=target, keep_failures=True)).startswith("0 to run")
    assert copy(source, target).records == 0


def test_only_the_labels_that_are_named_are_copied():
    source, target = new_store("memory"), new_store("memory")
    evaluated(source, name="group/one")
    evaluated(source, name="group/two", scale=2.0)
    moved = copy(source, target, ["group/two@1.0", "group/two@1.0"])
    assert moved.labels == ("group/two@1.0",)
    assert target.files.names("labels/group") == ["two"]
    assert copy(source, target).labels == ("group/one@1.0", "group/two@1.0")
    assert target.files.names("labels/group") == ["one", "two"]


@op(version="1")
def length(value) -> int:
    return len(value)


def test_a_label_that_is_recalled_comes_along():
    source, target = new_store("memory"), new_store("memory")
    evaluated(source, name="inner")
    evaluated(source, name="aside", scale=2.0)
    root = length(recall("inner@1.0")).named("outer", "1.0")
    assert evaluate(root, store=source, debug=True).value == 5
    assert copy(source, target, ["outer@1.0"]).labels == ("inner@1.0", "outer@1.0")
    assert evaluate(recall("inner@1.0")[0], store=target, debug=True).ok
    assert copy(source, target, ["outer@1.0"]).records == 0
    assert verify(target).sound


def test_the_value_that_a_label_stands_for_comes_along_when_the_result_is_another_one_by_now():
    source, target = new_store("memory"), new_store("memory")
    root = evaluated(source)
    labels.move(source, Label("experiment", "1.0"), root.key, source.put("z" * 5000), "another run")
    copy(source, target)
    assert evaluate(length(recall("experiment@1.0")), store=target, debug=True).value == 5000
    assert verify(target).sound


def test_a_label_that_is_not_there_is_named_with_those_that_are():
    source, target = new_store("memory"), new_store("memory")
    with pytest.raises(LabelUnknown) as caught:
        copy(source, target, ["experiment@2.0"])
    assert str(caught.value) == f"store {source.url} has no label experiment@2.0; it has none"
    evaluated(source)
    with pytest.raises(LabelUnknown) as caught:
        copy(source, target, ["experiment@2.0"])
    assert str(caught.value) == f"store {source.url} has no label experiment@2.0; it has experiment@1.0"


@pytest.mark.parametrize("labels", [["experiment@2.0"], [], None])
def test_where_there_is_nothing_to_copy_no_store_is_made(labels, tmp_path):
    source, target = Store(tmp_path / "source"), Store(tmp_path / "target")
    with contextlib.suppress(LabelUnknown):
        assert copy(source, target, labels) == Copied((), 0, 0, 0, ())
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("kind", ["labels", "history", "failures", "runs"])
@pytest.mark.parametrize("newer", ["source", "target"])
def test_a_record_of_a_later_version_is_no_label_and_stops_the_copy(kind, newer):
    stores = {"source": new_store("memory"), "target": new_store("memory")}
    evaluated(stores["source"])
    copy(stores["source"], stores["target"])
    path = next(path for path in all_files(stores[newer]) if path.startswith(f"{kind}/") and path.endswith(".json"))
    stores[newer].files.replace(path, [write_record(path, {"unheard": "of"}, schema=SCHEMA + 1)])
    with pytest.raises(
        StoreUnavailable, match=f"^store {stores[newer].url}: {path}: a record has schema {SCHEMA + 1}, .*upgrade it"
    ):
        copy(stores["source"], stores["target"])


def test_what_lies_in_the_trash_of_the_source_is_copied_as_it_is_served():
    source, target = new_store("memory"), new_store("memory")
    root = evaluated(source)
    for path in all_files(source):
        if path.startswith(("blobs/", "recipes/", "results/")):
            source.files.move(path, f"trash/{path}")
    source.look_again()
    assert copy(source, target).missing == ()
    assert evaluate(root, store=target, debug=True, keep_failures=True).ok
    assert verify(target).sound


def test_a_label_that_stands_for_something_else_in_the_target_is_refused_before_anything_is_moved():
    source, target = new_store("memory"), new_store("memory")
    evaluated(source)
    evaluated(target, scale=2.0)
    before = all_files(target)
    with pytest.raises(LabelDiverged) as caught:
        copy(source, target)
    assert str(caught.value) == (
        f"experiment@1.0 has another history in {target.url} than in {source.url} (entry 1); copy it the other way, or "
        "give one of them another version"
    )
    assert all_files(target) == before


def test_a_result_that_the_target_has_otherwise_stays_and_the_other_one_is_a_conflict():
    source, target = new_store("memory"), new_store("memory")
    root = evaluated(source)
    call = source.call_of(root.key)
    target.check(writing=True)
    target.commit(call, result_record(target.put("another")))
    copy(source, target)
    copy(source, target)
    assert target.result(call)["value"] == target.put("another").as_record()
    assert len(target.files.names(f"conflicts/{call.hex()}")) == 1


def test_failures_of_both_stores_are_kept():
    source, target = new_store("memory"), new_store("memory")
    evaluated(source)
    evaluated(target, name="mine")
    copy(source, target)
    copy(source, target)
    (call,) = target.files.names("failures")
    assert len(target.files.names(f"failures/{call}")) == 2


class Stopped(BaseException):
    """The process was killed here."""


def test_a_copy_that_is_interrupted_leaves_only_whole_results_and_goes_on(monkeypatch):
    source = new_store("memory")
    root = evaluated(source)
    at, done = 0, False
    while not done:
        target = new_store("memory")
        target.check(writing=True)
        with monkeypatch.context() as patch:
            stop_after(patch, target, at)
            try:
                copy(source, target)
                done = True
            except Stopped:
                pass
        kinds = {
            finding.kind for finding in verify(target).findings if "of which there is no record" not in finding.message
        }
        assert kinds <= {"open"}
        if target.files.names("labels"):
            assert str(plan(root, store=target, keep_failures=True)).startswith("0 to run")
        copy(source, target)
        assert str(plan(root, store=target, keep_failures=True)).startswith("0 to run")
        at += 7
    assert at > 40


def stop_after(patch, store, count):
    """From the `count`-th write on, nothing is written to a store any more."""
    state = {"count": 0}
    for name in ("create", "replace"):
        operation = getattr(store.files, name)

        def stopped(*given, operation=operation, **named):
            state["count"] += 1
            if state["count"] > count:
                raise Stopped
            return operation(*given, **named)

        patch.setattr(store.files, name, stopped)


def test_what_is_gone_or_damaged_in_the_source_is_said_and_not_copied():
    source, target = new_store("memory"), new_store("memory")
    evaluated(source)
    paths = [path for path in all_files(source) if path.startswith("blobs/")]
    content = source.files.read(paths[0])
    source.files.replace(paths[0], [content[:-1] + bytes([content[-1] ^ 1])])
    source.files.remove(paths[1])
    moved = copy(source, target)
    damaged, gone = (format_digest(bytes.fromhex(path[6:].replace("/", ""))) for path in paths[:2])
    assert any(what.startswith(f"blob {damaged} of ") and what.endswith(" is damaged") for what in moved.missing)
    assert target.files.read(paths[0]) is None
    assert any(gone in what or what.endswith("its value is gone, or its record is damaged") for what in moved.missing)
    assert "missing: blob" in str(moved)
    assert not [finding for finding in verify(target).findings if finding.kind == "damaged"]


def test_an_expression_without_a_record_is_said():
    source, target = new_store("memory"), new_store("memory")
    root = evaluated(source)
    inner = root.references[0].key
    source.files.remove(f"recipes/{inner.hex()[:2]}/{inner.hex()[2:]}.json")
    assert copy(source, target).missing == (f"expression {format_digest(inner)}: there is no record of it",)


def test_a_target_that_cannot_be_written_is_said_before_anything_is_read(bucket):
    source = new_store("memory")
    with pytest.raises(StoreUnavailable, match="there is no bucket `absent`"):
        copy(source, Store("gs://absent/x"))
