"""`marin label`, `marin adopt` and `marin same`."""

from __future__ import annotations

import re

import pytest

from marin_dsl import labels
from tests.marin_dsl.command_line.project import MODULE, document, marin, told, write_module


@pytest.fixture(autouse=True)
def _evaluated(evaluated):
    """The page has been evaluated."""


def test_labels_are_listed_by_name_or_pattern():
    marin("run", "experiment:again", "--debug")
    assert [line.split()[0] for line in told("label", "list")] == ["a-page@1.0", "a-page@2.0"]
    assert len(told("label", "list", "*@2.0")) == 1
    assert len(told("label", "list", "a-*")) == 2
    assert told("label", "list", "b*")[0].endswith("has no label like b*")
    assert told("label", "list", "--store", "empty")[0].endswith("has no labels")


def test_what_a_label_stands_for_is_shown():
    shown = "\n".join(told("label", "show", "a-page@1.0"))
    assert re.search(r"a-page@1.0\n  recipe +sha256:\w{64}\n  value +sha256:\w{64}\n  since +\S+\n  by ", shown)
    assert document("label", "show", "a-page@1.0", command="label show")["moves"] is False


@pytest.mark.parametrize("command", ["show", "log"])
def test_a_label_that_is_not_there_is_said_so_with_those_there_are(command):
    done = marin("label", command, "b-page@1.0")
    assert done.exit_code == 2
    assert "has no label b-page@1.0; there is a-page@1.0" in done.stderr
    done = marin("label", command, "b-page")
    assert (done.exit_code, "'b-page' is no label: write name@version" in done.stderr) == (2, True)


def test_a_version_that_moves_is_moved_without_a_reason_and_others_with_one():
    marin("run", "experiment:again", "--debug")
    assert told("label", "move", "a-page@dev", "experiment:page")[0] == "a-page@dev  moves by itself"
    assert told("label", "move", "a-page@dev", "a-page@2.0")[-1].split() == ["entry", "2"]
    refused = marin("label", "move", "a-page@1.0", "experiment:again")
    assert refused.exit_code == 2
    assert re.search(r"a-page@1.0 stands for sha256:\w+ since \S+ and does not move by itself: say why", refused.stderr)
    moved = document("label", "move", "a-page@1.0", "experiment:again", "--why", "better", command="label move")
    assert (moved["why"], moved["number"]) == ("better", 2)
    assert moved["recipe"] == document("label", "show", "a-page@2.0", command="label show")["recipe"]
    assert document("label", "move", "a-page@1.0", "a-page@2.0", command="label move")["number"] == 2, "as it is"
    shown = told("label", "log", "a-page@1.0")
    assert [line.split()[2] for line in shown[1:]].count("stands") == 2
    assert "better" in "\n".join(shown)
    assert told("log", "a-page@1.0") == shown


def test_a_label_can_stand_for_a_part_of_a_value_and_for_a_recipe_by_its_key():
    write_module("parts", "from experiment import good\npart = good + 1\nwhole = good\n")
    assert marin("label", "move", "part@1", "parts:part").exit_code == 0
    key = document("show", "parts:whole")["things"][0]["recipe"]
    assert document("label", "move", "whole@1", key[7:20], command="label move")["recipe"] == key
    assert marin("verify").exit_code == 0
    assert marin("store", "copy", ".marin", "elsewhere").exit_code == 0


@pytest.mark.parametrize(
    ("subject", "message"),
    [
        ("experiment:long", "experiment:long has no value in store .*; evaluate it first"),
        ("experiment:sweep", "experiment:sweep stands for 3 expressions; name one of them"),
        ("b-page@1.0", "has no label b-page@1.0"),
        ("experiment:nothing", "nothing"),
    ],
)
def test_what_a_label_cannot_stand_for_is_said_so(subject, message):
    done = marin("label", "move", "x@dev", subject)
    assert done.exit_code == 2
    assert re.search(message, done.stderr), done.stderr


def test_a_mover_that_was_overtaken_ends_with_1(monkeypatch):
    def overtaken(*arguments, **settings):
        raise labels.LabelMoved("a@1 was moved meanwhile")

    monkeypatch.setattr("marin_dsl.labels.pointing.move", overtaken)
    done = marin("label", "move", "x@dev", "experiment:page")
    assert (done.exit_code, done.stderr) == (1, "marin: a@1 was moved meanwhile\n")


def test_data_is_adopted_and_changed_bytes_are_refused(project):
    (project / "data.txt").write_text("to be")
    adopted = document("adopt", "data@1.0", "data.txt", "--why", "archive")
    assert (adopted["adopted"], adopted["why"]) == (str(project / "data.txt"), "archive")
    (project / "data.txt").write_text("not to be")
    done = marin("adopt", "data@1.0", "data.txt")
    assert (done.exit_code, "it has changed since; adopt it under another version" in done.stderr) == (2, True)
    assert "adopted from" in told("label", "list", "data")[0]
    assert "to be" not in told("show", "data@1.0")[0]
    done = marin("adopt", "data@2.0", "nowhere.txt")
    assert (done.exit_code, "nowhere.txt cannot be adopted: " in done.stderr) == (2, True)


def test_a_recipe_written_anew_stands_for_an_old_result_until_that_is_taken_back():
    write_module("experiment", MODULE.replace('"A page"', '"The same page"'))
    done = marin("same", "a-page@1.0", "experiment:page", "--why", "only the title")
    assert done.exit_code == 0, done.output
    assert done.output.startswith("experiment:page  stands for a-page@1.0  value ")
    ran = marin("run", "experiment:page", "--debug", "--strict").output
    assert "≡ write(title=.The same page.) stands for a-page@1.0" in ran.replace(chr(39), ".")
    assert "only the title" in ran
    assert "0 nodes run" in ran
    assert document("same", "--undo", "experiment:page")["undone"]
    assert "2 nodes run" in marin("run", "experiment:page", "--debug").output
    done = marin("same", "--undo", "experiment:page")
    assert (done.exit_code, "there is nothing to undo" in done.stderr) == (2, True)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("a-page@1.0",), "1 names were given; write marin same OLD NEW --why TEXT, or --undo NEW"),
        (("a-page@1.0", "experiment:page"), "say why the new recipe stands for the old result (--why TEXT)"),
        (("a-page@1.0", "experiment:sweep", "--why", "x"), "stands for 3 expressions"),
    ],
)
def test_what_cannot_be_said_ends_with_2(words, message):
    done = marin("same", *words)
    assert done.exit_code == 2
    assert message in done.stderr
