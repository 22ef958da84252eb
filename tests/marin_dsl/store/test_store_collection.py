"""Garbage collection of stores of every kind: what is kept and why, what goes, and what comes back."""

import errno
import os
import shutil
import time

import attrs
import numpy as np
import pytest

from marin_dsl import Failed, Ok, evaluate, labels, op, provenance
from marin_dsl.encoding import format_digest
from marin_dsl.expression.annotations import Label
from marin_dsl.lineage import ancestors
from marin_dsl.store import Store, StoreUnavailable
from marin_dsl.store import collection as module
from marin_dsl.store.collection import GRACE, collect, pin, unpin
from marin_dsl.store.files import Entry, temporary_name
from marin_dsl.store.leases import acquire
from marin_dsl.store.owner import Owner

DAY = 86400.0


@op(version="1")
def drawn(literal: np.ndarray, seed: int) -> dict:
    return {"seed": seed, "sum": literal.sum() + np.full(20_000, float(seed))}


@op(version="1")
def mean(found: dict) -> float:
    if found["seed"] < 0:
        raise ValueError("negative")
    return float(found["sum"].mean())


def experiment(seed):
    return mean(drawn(np.arange(10_000.0), seed))


@pytest.fixture(autouse=True)
def _quick_environment(monkeypatch):
    monkeypatch.setattr(provenance, "environment", lambda project: {"python": "3"})
    # The modules that are imported here are a blob or not, depending on what ran before.
    monkeypatch.setattr(provenance, "imported_sources", bytes)


def run(store, *seeds, label=None):
    found = [experiment(seed) if label is None else experiment(seed).named(label, "1.0") for seed in seeds]
    return [evaluate(expression, store=store, debug=True) for expression in found]


def paths(store):
    return {entry.path for entry in store.files.entries()}


def sweep(store):
    """Collect whatever nobody wants, however young it is."""
    # Clocks of file systems are coarse: what is written now is as old as a collection that begins now.
    time.sleep(1.01 if store.url.startswith("s3://") else 0.02)
    return collect(store, grace=0, dry=False)


def collected(store):
    """Collect twice, so that it leaves the trash."""
    first = sweep(store)
    sweep(store)
    assert store.files.names("trash") == []
    return first


def ran(store, expression):
    events = []
    outcome = evaluate(expression, store=store, debug=True, watch=events.append)
    return outcome, next(event["ran"] for event in events if event["event"] == "finished")


def test_the_files_of_a_store_are_listed_with_sizes_and_times(store):
    before = time.time() - 2
    store.files.create("runs/a/start/000001.json", b"12345")
    store.files.replace("blobs/ab/cd", [b"67"])
    found = {entry.path: entry for entry in store.files.entries()}
    assert {path: entry.size for path, entry in found.items()} == {"runs/a/start/000001.json": 5, "blobs/ab/cd": 2}
    for path, entry in found.items():
        assert before <= entry.modified <= time.time() + 2
        assert store.files.modified(path) == entry.modified
    assert store.files.modified("blobs/ab/none") is None


def test_a_file_that_is_moved_counts_as_written_now_and_replaces_what_is_there(store):
    store.files.create("blobs/ab/cd", b"new")
    store.files.create("trash/blobs/ab/cd", b"an old one")
    before = store.files.modified("blobs/ab/cd")
    assert store.files.move("blobs/ab/cd", "trash/blobs/ab/cd")
    assert store.files.read("blobs/ab/cd") is None
    assert store.files.read("trash/blobs/ab/cd") == b"new"
    assert store.files.modified("trash/blobs/ab/cd") >= before
    assert not store.files.move("blobs/ab/cd", "trash/blobs/ab/cd")
    assert store.files.read("trash/blobs/ab/cd") == b"new"


def test_nothing_young_is_collected_and_the_report_says_why_each_thing_stays(store):
    run(store, 1, 2)
    run(store, 3, label="kept")
    before = paths(store)
    report = collect(store, dry=False)
    assert paths(store) == before
    assert (report.swept, report.emptied, report.restored) == ((), (), ())
    assert list(report.kept) == ["labels and their history", "other files", "young"]
    assert sum(tally.files for tally in report.kept.values()) == len(before)


def test_a_dry_collection_writes_nothing_and_tells_what_the_real_one_does(store):
    run(store, 1)
    run(store, 2, label="kept")
    before = {path: store.files.read(path) for path in paths(store)}
    told = collect(store, clock=lambda: time.time() + 8 * DAY)
    assert {path: store.files.read(path) for path in paths(store)} == before
    assert told.dry
    done = sweep(store)
    assert {entry.path for entry in told.swept} == {entry.path for entry in done.swept}
    assert told.kept == done.kept
    assert str(told).startswith(f"would move to the trash: {len(told.swept)} files, ")
    assert str(done).startswith(f"moved to the trash: {len(told.swept)} files, ")
    assert "\n  blobs: 1 file, 156.2 KiB\n" in str(done)
    assert "\nkept:\n  labels and their history: " in str(done)


def test_what_a_label_ever_stood_for_stays_whole_and_all_else_goes(store):
    run(store, 1, 4)
    [outcome] = run(store, 2, label="kept")
    labels.remember(store, Label("kept", "1.0"), experiment(4).key, "some run", "")
    collected(store)
    for seed, runs in ((2, 0), (4, 0), (1, 2)):
        known = store.recipe(experiment(seed).key)
        assert (known is not None) == (runs == 0)
        found, executed = ran(store, experiment(seed))
        assert (found.value, executed) == (49995000.0 + seed, runs)
    for found in ancestors(store, experiment(2).key).values():
        assert found.result is not None
        assert store.read(f"runs/{found.result['provenance']['run']}/start/000001.json") is not None
    assert outcome.value == 49995002.0


def test_large_literals_of_what_is_kept_stay_and_others_go(store):
    run(store, 1, label="kept")
    evaluate(drawn(np.ones(30_000), 5), store=store, debug=True)
    collected(store)
    literal, gone = (np.ascontiguousarray(array) for array in (np.arange(10_000.0), np.ones(30_000)))
    sizes = {entry.size for entry in store.files.entries() if entry.path.startswith("blobs/")}
    assert {literal.nbytes, 160_000} <= sizes
    assert gone.nbytes not in sizes


def test_failures_are_kept_with_the_recipe_that_failed(store):
    [kept] = run(store, -1, label="kept")
    [_] = run(store, -2)
    assert isinstance(kept, Failed)
    collected(store)
    assert len(store.files.names("failures")) == 1
    assert ran(store, experiment(-1))[0] == kept


def test_a_pinned_run_keeps_what_it_was_asked_for_until_it_is_unpinned(store):
    run(store, 1)
    name = store.files.names("runs")[0]
    pin(store, name)
    report = collected(store)
    assert report.kept["pinned runs"].files > 8
    assert ran(store, experiment(1))[1] == 0
    unpin(store, name)
    collected(store)
    assert ran(store, experiment(1))[1] == 2


def test_pinning_a_run_that_is_not_there_is_refused(store):
    with pytest.raises(LookupError, match="has no run 2026; its runs are named in `runs/`"):
        pin(store, "2026")


def test_a_grace_time_that_is_none_is_refused(store):
    with pytest.raises(ValueError, match="a grace time of -1 seconds: give a number from 0 up"):
        collect(store, grace=-1)


def test_what_was_swept_is_served_from_the_trash_and_comes_back_when_it_is_wanted(store):
    [outcome] = run(store, 1)
    swept = sweep(store).swept
    assert len(swept) > 8
    assert not any(path.startswith("blobs/") for path in paths(store))
    assert outcome.value == 49995001.0
    assert ran(store, experiment(1))[1] == 0, "it is served from the trash"
    assert ran(store, experiment(1).named("again", "1.0"))[1] == 0
    report = sweep(store)
    assert {"blobs", "results", "recipes"} <= {path.partition("/")[0] for path in report.restored}
    assert "brought back from the trash: " in str(report)
    sweep(store)
    assert ran(store, experiment(1))[1] == 0
    assert all(found.result is not None for found in ancestors(store, experiment(1).key).values())


def test_what_cannot_be_brought_back_now_is_not_removed_either(local, monkeypatch):
    run(local, 1)
    swept = sweep(local).swept
    assert ran(local, experiment(1).named("again", "1.0"))[1] == 0
    age(local, 30 * DAY, "trash")
    with monkeypatch.context() as patch:
        patch.setattr(type(local), "restore", lambda store, path: False)
        emptied = {entry.path for entry in collect(local, dry=False).emptied}
    assert not any(f"trash/{entry.path}" in emptied for entry in swept if not entry.path.startswith("runs/"))
    assert len(collect(local, dry=False).restored) >= 8


def test_a_plan_restores_nothing(local):
    from marin_dsl import plan

    run(local, 1)
    sweep(local)
    before = paths(local)
    assert len(plan(experiment(1), store=local).hits) == 1
    assert paths(local) == before


def test_the_trash_is_emptied_after_the_grace_time_and_not_before(local):
    run(local, 1)
    sweep(local)
    assert collect(local, dry=False).emptied == ()
    told = collect(local, clock=lambda: time.time() + 8 * DAY)
    assert len(told.emptied) > 8
    for place in (local.files.root / "trash").rglob("*"):
        os.utime(place, (1, 1))
    report = collect(local, dry=False)
    assert {entry.path for entry in report.emptied} == {entry.path for entry in told.emptied}
    assert local.files.names("trash") == []


def age(store, seconds, *folders):
    """Make the files in folders of a local store as old as each other, and older than they are."""
    then = time.time() - seconds
    for folder in folders:
        for place in (store.files.root / folder).rglob("*"):
            if place.is_file():
                os.utime(place, (then, then))


KINDS = ("blobs", "results", "recipes", "runs", "failures", "leases", "scratch", "skips", "conflicts")


def test_a_run_at_work_keeps_what_it_wants_and_all_that_was_written_since_it_began(local):
    run(local, 1)
    record = {"run": "busy", "roots": [{"recipe": format_digest(experiment(1).key)}], "environment": None}
    age(local, 30 * DAY, *KINDS)
    local.add("runs/busy/start", record)
    age(local, 20 * DAY, "runs/busy")
    run(local, 2)  # an unwanted one that was written after the run began
    age(local, 15 * DAY, "results", "recipes", "blobs")
    assert len(collect(local).swept) > 5, "a run of which nothing was heard for weeks is dead"
    acquire(local.files, bytes(32), attrs.evolve(Owner.here("busy")))
    report = collect(local, dry=False)
    assert report.kept["runs at work"].files == 10  # its start, 2 results, 2 recipes, 1 call, a blob, its maker's 3
    assert [entry.path for entry in report.swept if not entry.path.startswith("runs/")] == []
    local.add("runs/busy/end", {})
    age(local, 15 * DAY, "runs")
    local.files.remove(f"leases/{bytes(32).hex()}")
    assert len(collect(local).swept) > 10


def test_a_run_that_was_killed_at_its_beginning_leaves_nothing_for_ever(local):
    local.add("runs/killed/start", {"run": "killed", "roots": [], "environment": None})
    for _ in range(3):
        age(local, 30 * DAY, "runs", "trash")
        collect(local, dry=False)
    assert paths(local) == {"format.json"}


def test_leases_and_leftovers_of_crashes_are_removed_when_they_are_old(local):
    run(local, 1, label="kept")
    acquire(local.files, bytes(32), Owner.here("dead"))
    local.files.replace(f"runs/{temporary_name()}", [b"12"])
    local.files.replace(f"blobs/ab/{temporary_name()}", [b"34"])
    assert collect(local, dry=False).swept == ()
    age(local, 8 * DAY, *KINDS)
    report = collect(local, dry=False)
    assert {kind: tally.files for kind, tally in report.by_kind.items()} == {"leases": 1, "leftovers": 2}
    assert local.files.names("trash") == []
    assert not any("leases" in path or "temporary" in path for path in paths(local))


def test_scratch_is_kept_while_the_call_that_left_it_has_no_result(local):
    run(local, 1, label="kept")
    run(local, -1, label="failed")
    calls = {seed: local.call_of(experiment(seed).key) for seed in (1, -1)}
    for call in (*calls.values(), bytes(32)):
        (local.files.root / "scratch" / call.hex() / "deep").mkdir(parents=True)
        (local.files.root / "scratch" / call.hex() / "deep" / "odd \\ name").write_text("x")
        (local.files.root / "scratch" / call.hex() / "checkpoint").write_text("x")
    age(local, 8 * DAY, *KINDS)
    report = collect(local, dry=False)
    assert {entry.path.split("/")[1] for entry in report.swept} == {calls[1].hex(), bytes(32).hex()}
    assert (local.files.root / "scratch" / calls[-1].hex() / "checkpoint").exists()


def test_files_of_unknown_kinds_stay_and_keep_what_they_mention(local):
    run(local, 1)
    run(local, 2)
    local.files.create("same/ab.json", f'{{"old": "{format_digest(experiment(1).key)}"}}'.encode())
    collected(local)
    assert local.files.read("same/ab.json") is not None
    assert [ran(local, experiment(seed))[1] for seed in (1, 2)] == [0, 2]


def test_damaged_records_are_no_obstacle(local):
    run(local, 1, label="kept")
    run(local, 2)
    for place in (local.files.root / "recipes").rglob("*.json"):
        place.write_bytes(b"\xff" + place.read_bytes()[3:])
    collected(local)
    assert ran(local, experiment(1))[0].value == 49995001.0


def test_what_is_wanted_while_a_collection_is_at_it_goes_back_to_its_place(local, monkeypatch):
    run(local, 1)
    moved = []

    def swept(files, entry):
        if len(moved) == 3:
            labels.remember(local, Label("late", "1.0"), experiment(1).key, "some run", "")
        moved.append(entry)
        return original(files, entry)

    original = module._sweep
    monkeypatch.setattr(module, "_sweep", swept)
    report = sweep(local)
    wanted = {path for path in report.restored if not path.startswith("runs/")}
    assert wanted == {entry.path for entry in moved if not entry.path.startswith("runs/")}
    assert wanted <= paths(local)


def test_folders_that_become_empty_go_too(local):
    run(local, 1, -1)
    collected(local)
    assert local.files.names("runs") == []
    assert local.files.names("failures") == []


def test_what_changed_since_it_was_found_to_be_garbage_stays(local):
    run(local, 1)
    [blob] = [entry for entry in local.files.entries() if entry.path.startswith("blobs/") and entry.size == 80_000]
    local.files.replace(blob.path, [local.files.read(blob.path)])
    assert not module._sweep(local.files, blob)
    assert not module._removed(local.files, blob)
    assert not module._sweep(local.files, Entry("blobs/ab/" + "0" * 62, 1, 1.0))
    assert local.files.size(blob.path) == 80_000


def test_a_store_that_can_only_be_read_still_serves_from_the_trash(local, monkeypatch):
    def refused(*given, **named):
        raise StoreUnavailable("read-only")

    [outcome] = run(local, 1)
    drawn_call = drawn(np.arange(10_000.0), 1)
    sweep(local)
    for name in ("create", "replace", "move", "remove"):
        monkeypatch.setattr(local.files, name, refused)
    assert outcome.value == 49995001.0
    assert isinstance(evaluate(drawn_call, store=local, debug=True), Ok)
    assert GRACE == 7 * DAY


@pytest.mark.parametrize("kind", ["blobs", "recipes", "results", "labels"])
def test_a_kind_that_was_moved_to_another_disk_is_marked_and_swept_like_the_others(tmp_path, kind):
    store = Store(tmp_path / "store")
    run(store, 1, label="kept")
    run(store, 2)
    before = collect(store, grace=0)
    assert before.swept
    shutil.move(tmp_path / "store" / kind, tmp_path / "elsewhere")
    (tmp_path / "store" / kind).symlink_to(tmp_path / "elsewhere")
    after = collect(store, grace=0)
    assert {entry.path for entry in after.swept} == {entry.path for entry in before.swept}
    assert after.kept.keys() == before.kept.keys()


def test_a_full_disk_can_be_collected(tmp_path, monkeypatch):
    store = Store(tmp_path / "store")
    run(store, 1)

    def full(descriptor, data):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr("marin_dsl.store.local.os.write", full)
    assert collected(store).swept
    assert not [entry for entry in store.files.entries() if entry.path.startswith("blobs/")]


def test_where_there_is_no_store_none_is_made(tmp_path):
    found = collect(Store(tmp_path / "absent"), dry=False)
    assert (found.swept, found.emptied, found.restored, found.kept) == ((), (), (), {})
    assert list(tmp_path.iterdir()) == []


def test_records_go_to_the_trash_before_the_blobs_that_they_name(tmp_path):
    store = Store(tmp_path / "store")
    run(store, 1, -1)
    swept = [entry.path.partition("/")[0] for entry in sweep(store).swept]
    assert {"results", "recipes", "failures", "runs", "blobs"} <= set(swept)
    assert swept[-swept.count("blobs") :] == ["blobs"] * swept.count("blobs")
    assert swept.index("results") < swept.index("recipes"), "a result is served by its recipe"


def test_what_was_written_anew_does_not_stay_in_the_trash_as_well(local):
    run(local, 1, label="wanted")
    old = []
    for path in [path for path in paths(local) if path.startswith(("blobs/", "results/"))]:
        old.append(f"trash/{path}")
        local.files.replace(old[-1], [local.files.read(path)])
    age(local, 30 * DAY, "trash")
    done = collect(local, dry=False)
    assert ({entry.path for entry in done.emptied}, done.restored) == (set(old), ())
    assert ran(local, experiment(1))[1] == 0


@pytest.mark.parametrize("end", ["end/000001.json", "cancelled"])
def test_a_run_that_has_ended_or_was_interrupted_holds_nothing_back(local, end):
    run(local, 1)
    age(local, 30 * DAY, *KINDS)
    local.add("runs/over/start", {"run": "over", "roots": [], "environment": None})
    age(local, 40 * DAY, "runs/over")
    assert collect(local).swept
    acquire(local.files, bytes(32), attrs.evolve(Owner.here("over")))
    assert not collect(local).swept, "it is at work, and began before all that is there"
    local.files.create(f"runs/over/{end}", b"{}")
    assert collect(local).swept
