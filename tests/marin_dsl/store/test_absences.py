"""What a store does not have is found out by listing where many are looked for, and nothing that it has is missed."""

from __future__ import annotations

import hashlib
import uuid
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from marin_dsl import Store, evaluate, op, plan
from marin_dsl.store import StoreUnavailable
from marin_dsl.store.absences import Absences
from marin_dsl.store.files import place


def key(number: int, folder: int = 7) -> bytes:
    return bytes([folder]) + hashlib.sha256(b"%d" % number).digest()[1:]


class Counted:
    """Looks for recipes, and counts how often."""

    def __init__(self, store: Store) -> None:
        self.store, self.looks = store, 0

    def __call__(self, digest: bytes) -> dict[str, Any] | None:
        self.looks += 1
        return self.store.continuation(digest)


def written(store: Store, *keys: bytes) -> None:
    for each in keys:
        store.put_continuation(each, each)


@given(st.lists(st.tuples(st.integers(0, 40), st.integers(0, 2))), st.sets(st.integers(0, 40)))
def test_what_is_there_is_found_and_nothing_else_however_it_is_asked_for(asked, there):
    store = Store(f"memory://{uuid.uuid4().hex}")
    written(store, *(key(number, folder) for number in there for folder in range(3)))
    absences = Absences(store)
    for number, folder in asked:
        digest = key(number, folder)
        found = absences.look("recipes", digest, store.continuation)
        assert found == (digest if number in there else None)


def test_many_of_one_folder_are_looked_for_a_few_times_only(tmp_path):
    look = Counted(Store(tmp_path))
    written(look.store, key(0))
    absences = Absences(look.store)
    assert [absences.look("recipes", key(number), look) for number in range(1, 100)] == [None] * 99
    assert look.looks < 5
    assert absences.look("recipes", key(0), look) == key(0)


def test_a_full_folder_is_not_listed_for_a_few_that_are_missed(tmp_path):
    look = Counted(Store(tmp_path))
    written(look.store, *(key(number, folder) for number in range(1000) for folder in (1, 2)))
    absences = Absences(look.store)
    for number in range(1000, 1005):  # now it is known how much there is
        absences.look("recipes", key(number, 1), look)
    look.looks = 0
    for number in range(1000, 1050):
        absences.look("recipes", key(number, 2), look)
    assert look.looks == 50


def test_what_was_collected_and_is_in_the_trash_is_found(tmp_path):
    store = Store(tmp_path)
    written(store, *map(key, range(5)))
    for number in range(5):
        path = place("recipes", key(number), ".next")
        store.files.move(path, f"trash/{path}")
    store.look_again()
    absences = Absences(store)
    for number in range(100, 110):
        assert absences.look("recipes", key(number), store.continuation) is None
    assert absences.look("recipes", key(3), store.continuation) == key(3)


def test_who_may_read_and_not_list_gets_what_is_there(tmp_path, monkeypatch):
    store = Store(tmp_path)
    written(store, key(0))

    def names(folder: str) -> list[str]:
        if folder.startswith("recipes"):
            raise StoreUnavailable("listing is not allowed", store.url)
        return []

    monkeypatch.setattr(store.files, "names", names)
    absences = Absences(store)
    for number in range(1, 20):
        assert absences.look("recipes", key(number), store.continuation) is None
    assert absences.look("recipes", key(0), store.continuation) == key(0)


@op(version="1")
def leaf(number: int) -> int:
    return number


@op(version="1")
def double(number: int) -> int:
    return 2 * number


@pytest.mark.parametrize("collected", [False, True])
def test_a_plan_serves_whatever_of_a_large_graph_is_there(tmp_path, collected):
    old = [double(leaf(number)) for number in range(0, 1200, 2)]
    evaluate(*old, store=str(tmp_path), debug=True)
    if collected:  # what was collected stays in the trash for a while, and is served from there
        files = Store(tmp_path).files
        for entry in list(files.entries()):
            if entry.path.startswith(("recipes/", "results/")):
                files.move(entry.path, f"trash/{entry.path}")
    found = plan(*(double(leaf(number)) for number in range(1200)), store=str(tmp_path))
    assert len(found.hits) == 600
    assert len(found.runs) == 1200
