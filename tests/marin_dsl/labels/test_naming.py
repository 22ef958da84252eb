"""What can be a label, and what one label stands for in one run."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from marin_dsl import op
from marin_dsl.expression.annotations import Label
from marin_dsl.labels import LabelConflict, check_label, check_unique, read_label


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
        ("a", "V1", "version"), ("a.", "1", "name"), ("a./b", "1", "name"), ("a", "1.", "version"),
    ],
)  # fmt: skip
def test_what_cannot_be_a_label_says_what_is_allowed(name, version, what):
    with pytest.raises(
        ValueError, match=rf"cannot be the {what} of a label: use lower-case letters.*such as first-model and 1.0"
    ):
        f(1).named(name, version)


@pytest.mark.parametrize("name", ["con", "runs/aux", "nul.txt/a", "com1"])
def test_a_name_that_is_a_device_somewhere_is_refused(name):
    with pytest.raises(ValueError, match=r"cannot be the name of a label: `.*` is the name of a device on"):
        f(1).named(name, "1.0")


@given(st.text(alphabet="ab./-_@ A\\", max_size=6), st.text(alphabet="1./-_@ A\\", max_size=4))
def test_a_label_never_leaves_its_folder(name, version):
    try:
        label = check_label(name, version)
    except ValueError:
        return
    assert label.name.casefold() == label.name, "two labels are two folders on a disk that folds case"
    parts = f"labels/{label.name}/@{label.version}".split("/")
    assert all(part not in ("", ".", "..") and "\\" not in part and not part.endswith(".") for part in parts)
    assert [part for part in parts if part.startswith("@")] == parts[-1:], "no version is a folder of another name"
    assert read_label(str(label)) == label


@pytest.mark.parametrize("text", ["a", "", 3, None])
def test_what_is_no_label_says_how_one_is_written(text):
    with pytest.raises(ValueError, match=r"is no label: write name@version, such as first-model@1.0"):
        read_label(text)


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
