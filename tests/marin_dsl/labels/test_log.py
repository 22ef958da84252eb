"""The log of a label: what it stood for, and who wins when two move it."""

from __future__ import annotations

import datetime
import getpass
import threading

import pytest

from marin_dsl import Store, evaluate, op
from marin_dsl.encoding import format_digest
from marin_dsl.expression.annotations import Label
from marin_dsl.labels import LabelMoved, current, entries, known, log, move, remember
from marin_dsl.store import StoredValue


@op(version="1")
def f(*parts):
    return parts


def test_a_log_is_appended_to_and_its_last_line_counts(tmp_path):
    store, label = Store(tmp_path), Label("a/b", "1.0")
    assert current(store, label) is None
    first = move(store, label, f(1).key, store.put(1), "run-1")
    assert first.number == 1
    second = move(store, label, f(2).key, store.put(2), "run-2")
    assert current(store, label) == second
    assert second.number == 2
    assert second.recipe == f(2).key
    assert store.get(second.value) == 2
    assert datetime.datetime.fromisoformat(second.since).tzinfo is not None
    assert store.read("labels/a/b/@1.0/000001.json")["run"] == "run-1"
    assert current(store, Label("a", "b")) is None, "a@b is not a folder of a/b"


def test_a_user_without_a_name_can_move_a_label(tmp_path, monkeypatch):
    def nobody():
        raise KeyError("getpwuid(): uid not found: 1234")

    monkeypatch.setattr(getpass, "getuser", nobody)
    store = Store(tmp_path)
    move(store, Label("a", "1"), f(1).key, store.put(1), "run")
    assert Store(tmp_path).read("labels/a/@1/000001.json")["by"] == "unknown"


def test_whoever_has_seen_the_newest_entry_may_move_a_label_and_nobody_else(tmp_path):
    store, label = Store(tmp_path), Label("a", "1dev")
    assert move(store, label, f(1).key, store.put(1), after=0).number == 1
    with pytest.raises(
        LabelMoved,
        match=r"a@1dev was moved meanwhile by \S+ \(.*\); it stands for sha256:.* now; nothing was changed: look",
    ):
        move(store, label, f(2).key, store.put(2), after=0)
    assert move(store, label, f(2).key, store.put(2), after=1, why="better").number == 2
    assert [(found.recipe, found.why) for found in entries(store, label)] == [(f(1).key, ""), (f(2).key, "better")]


def test_of_several_movers_at_once_one_wins_and_the_others_are_told(tmp_path):
    label, barrier, moved, refused = Label("a", "1"), threading.Barrier(8), [], []
    start = move(Store(tmp_path), label, f(0).key, Store(tmp_path).put(0))

    def mover(number: int) -> None:
        store = Store(tmp_path)
        value = store.put(number)
        barrier.wait()
        try:
            moved.append(move(store, label, f(number).key, value, after=start.number))
        except LabelMoved as error:
            refused.append(error)

    threads = [threading.Thread(target=mover, args=(number,)) for number in range(1, 9)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    (winner,) = moved
    assert len(refused) == 7
    assert current(Store(tmp_path), label) == winner


def test_movers_that_do_not_ask_are_all_in_the_log(tmp_path):
    label, barrier = Label("a", "1dev"), threading.Barrier(6)

    def mover(number: int) -> None:
        store = Store(tmp_path)
        value = store.put(number)
        barrier.wait()
        move(store, label, f(number).key, value)

    threads = [threading.Thread(target=mover, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    found = entries(Store(tmp_path), label)
    assert [entry.number for entry in found] == [1, 2, 3, 4, 5, 6]
    assert {entry.recipe for entry in found} == {f(number).key for number in range(6)}


def test_a_damaged_newest_entry_does_not_keep_a_label_from_moving(tmp_path):
    store, label = Store(tmp_path), Label("a", "1")
    for number in (1, 2):
        move(store, label, f(number).key, store.put(number))
    (tmp_path / "labels/a/@1/000002.json").write_bytes(b"torn")
    seen = current(store, label)
    assert seen.recipe == f(1).key
    assert move(store, label, f(3).key, store.put(3), after=seen.number).number == 3
    assert current(store, label).recipe == f(3).key


def test_the_labels_of_a_store_and_what_happened_to_one(tmp_path):
    store = Store(tmp_path)
    for name, version in (("b", "1"), ("a/c", "2"), ("a", "1")):
        move(store, Label(name, version), f(1).key, store.put(1), why="so", adopted="/data")
    assert list(map(str, known(store))) == ["a/c@2", "a@1", "b@1"]
    remember(store, Label("a", "1"), f(2).key, "20200101T000000Z-000aaaaaa", "x:y")
    kinds = [(found.kind, found.why, found.adopted) for found in log(store, Label("a", "1"))]
    assert kinds == [("stands for", "so", "/data"), ("evaluated", "", None)]


def test_an_entry_from_before_entries_named_values_stands_for_the_result_of_its_recipe(tmp_path):
    store, label = Store(tmp_path), Label("old", "1.0")
    evaluate(f(1), store=store, debug=True)
    store.add("labels/old/@1.0", {"recipe": format_digest(f(1).key), "since": "2026-01-01T00:00:00+00:00", "run": "r"})
    assert store.get(current(store, label).value) == store.get(store_value(store, f(1)))
    store.add("labels/old/@1.0", {"recipe": format_digest(f(2).key), "since": "2026-01-01T00:00:00+00:00", "run": "r"})
    assert not store.complete(current(store, label).value)


def store_value(store: Store, expression) -> StoredValue:
    return StoredValue.from_record(store.result(store.call_of(expression.key))["value"])
