"""Labels: what can be one, and what their log says."""

from __future__ import annotations

import datetime
import getpass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from marin_dsl import Store, op
from marin_dsl.expression.annotations import Label
from marin_dsl.labels import LabelConflict, check_label, check_unique, current, move


@op(version="1")
def f(*parts):
    return parts


@pytest.mark.parametrize(
    ("name", "version"), [("first-model", "1.0"), ("a", "1"), ("scaling/muon/300m", "2.0dev"), ("x.y_z-1", "1-rc_1")]
)
def test_labels_of_the_usual_kinds(name, version):
    assert f(1).named(name, version).label == Label(name, version)


@pytest.mark.parametrize(
    ("name", "version", "what"),
    [
        ("First", "1", "name"), ("", "1", "name"), ("a b", "1", "name"), ("/a", "1", "name"), ("a/", "1", "name"),
        ("a//b", "1", "name"), ("a/../b", "1", "name"), ("..", "1", "name"), ("a" * 201, "1", "name"),
        ("ä", "1", "name"),
        ("a@b", "1", "name"), (3, "1", "name"), ("a\n", "1", "name"),
        ("a", "", "version"), ("a", "1/2", "version"), ("a", "1..2", "version"), ("a", 1.0, "version"),
        ("a", "V1", "version"),
    ],
)  # fmt: skip
def test_what_cannot_be_a_label_says_what_is_allowed(name, version, what):
    with pytest.raises(
        ValueError, match=rf"cannot be the {what} of a label: use lower-case letters.*such as first-model and 1.0"
    ):
        f(1).named(name, version)


@given(st.text(alphabet="ab./-_@ A\\", max_size=6), st.text(alphabet="1./-_@ A\\", max_size=4))
def test_a_label_never_leaves_its_folder(name, version):
    try:
        label = check_label(name, version)
    except ValueError:
        return
    parts = f"labels/{label.name}/@{label.version}".split("/")
    assert all(part not in ("", ".", "..") and "\\" not in part for part in parts)


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


def test_one_label_may_stand_twice_for_one_recipe_and_never_for_two():
    check_unique([f(1).named("a", "1"), f(f(1).named("a", "1"))])
    check_unique([f(1).named("a", "1"), f(2).named("a", "2")])
    with pytest.raises(
        LabelConflict, match=r"a@1 names two different recipes in one run: .*; give one of them another version"
    ):
        check_unique([f(1).named("a", "1"), f(f(2).named("a", "1"))])


def test_a_conflict_is_seen_behind_an_unlabelled_mention_of_the_same_recipe():
    with pytest.raises(LabelConflict):
        check_unique([f(f(1), f(1).named("a", "1"), f(2).named("a", "1"))])
