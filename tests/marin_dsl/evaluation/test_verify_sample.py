"""`verify_sample`: what has a result is run anew all the same, and compared."""

from __future__ import annotations

import itertools
import math
import re

import pytest
from click.testing import CliRunner

from marin_dsl import Store, evaluate, op
from marin_dsl.command_line import main
from tests.marin_dsl.runs import Watcher

_values = itertools.count()


@op(version="1")
def steady(n: int) -> int:
    return n


@op(version="1")
def drifting(n: int) -> int:
    return next(_values)


@op(version="1")
def breaking(path: str) -> str:
    return open(path).read()


@op(version="1")
def returning(n: int):
    return {"inside": drifting(n)}


@op(version="1")
def pair(a, b) -> list:
    return [a, b]


def run(expression, store, **settings):
    watcher = Watcher()
    return evaluate(expression, store=store, debug=True, watch=watcher, **settings), watcher


def test_everything_below_is_run_anew_and_equal_values_are_no_news(tmp_path):
    wanted = pair(steady(1), pair(steady(2), steady(3)))
    run(wanted, tmp_path)
    outcome, watcher = run(wanted, tmp_path, verify_sample=1.0)
    assert outcome.value == [1, [2, 3]]
    assert len(watcher.of("running")) == 5
    assert watcher.of("conflict") == []


@pytest.mark.parametrize("part", [-0.1, 1.1, math.nan, math.inf, True, "all"])
def test_what_is_no_part_is_refused(part, tmp_path):
    with pytest.raises(ValueError, match=f"verify_sample={part!r}: expected a part from 0 to 1, such as"):
        evaluate(steady(1), store=tmp_path, debug=True, verify_sample=part)
    assert list(tmp_path.iterdir()) == []


def test_a_part_that_is_not_a_number_is_refused_by_the_command(tmp_path):
    for command in ("run --verify-sample nan somewhere:target", "gc --grace nan"):
        told = CliRunner().invoke(main, [*command.split(), "--store", str(tmp_path / "store")])
        assert told.exit_code == 2
        assert "'nan' is not a number" in told.output


def test_a_part_is_run_anew(tmp_path):
    members = [steady(n) for n in range(200)]
    evaluate(*members, store=tmp_path, debug=True)
    watcher = Watcher()
    evaluate(*members, store=tmp_path, debug=True, verify_sample=0.25, watch=watcher)
    assert 20 < len(watcher.of("running")) < 80


def test_another_value_is_a_conflict_that_is_told_and_recorded_and_the_first_stays(tmp_path):
    first, _ = run(drifting(1), tmp_path)
    outcome, watcher = run(drifting(1), tmp_path, verify_sample=1.0)
    assert outcome.value == first.value
    (conflict,) = watcher.of("conflict")
    assert conflict["title"] == "drifting(n=1)"
    assert conflict["kept"] == outcome.digest
    assert len(list((tmp_path / "conflicts").iterdir())) == 1
    again, _ = run(drifting(1), tmp_path)
    assert again.value == first.value


def test_a_conflict_in_what_an_operator_returned_is_told(tmp_path):
    run(returning(1), tmp_path)
    _, watcher = run(returning(1), tmp_path, verify_sample=1.0)
    assert [found["title"] for found in watcher.of("conflict")] == ["drifting(n=1)"]


def test_what_fails_now_keeps_its_value_and_is_a_conflict(tmp_path):
    text = tmp_path / "text"
    text.write_text("here")
    wanted = pair(breaking(str(text)), 1)
    run(wanted, tmp_path / "store")
    text.unlink()
    outcome, watcher = run(wanted, tmp_path / "store", verify_sample=1.0)
    assert outcome.value == ["here", 1]
    assert watcher.of("conflict")[0]["found"].startswith("a failure (FileNotFoundError")


def test_the_command_prints_conflicts_and_ends_with_1(tmp_path, monkeypatch):
    (tmp_path / "dice.py").write_text(
        "import os\nfrom marin_dsl import op\n\n"
        "@op(version='1')\ndef roll() -> bytes:\n    return os.urandom(8)\n\nx = roll()\n"
    )
    monkeypatch.chdir(tmp_path)
    command = ["run", "dice.py:x", "--store", "store", "--debug"]
    assert CliRunner().invoke(main, command).exit_code == 0
    found = CliRunner().invoke(main, [*command, "--verify-sample", "1"])
    assert found.exit_code == 1
    assert re.search(r"≠ roll  came to the value [0-9a-f]{12}…; kept is [0-9a-f]{12}… \(marin doctor\)", found.output)
    assert Store(tmp_path / "store").url in CliRunner().invoke(main, ["doctor", "--store", "store"]).output
