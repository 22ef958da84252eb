"""Laws L16 to L18 over operators that do everything an operator should not, each in a process of its own."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import attrs
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from marin_dsl import Failed, Ok, Skipped, evaluate, provenance
from marin_dsl.evaluation import retries
from tests.marin_dsl.isolated_operators import doing, stumbling

FEW = settings(
    max_examples=3, deadline=None, phases=[Phase.explicit, Phase.reuse, Phase.generate],
    suppress_health_check=list(HealthCheck),
)  # fmt: skip
MANY = settings(FEW, max_examples=50)


@pytest.fixture(scope="module", autouse=True)
def _quick():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(provenance, "environment", lambda project: {"python": "3"})
        patch.setattr(retries, "RETRIES", 0)
        patch.setattr(retries, "FIRST_PAUSE", 0.01)
        yield


WAYS = ("return", "raise", "hang", "kill", "unstorable", "unpicklable")
KINDS = {
    "raise": "raised", "hang": "timeout", "kill": "killed", "unstorable": "unstorable", "unpicklable": "raised",
}  # fmt: skip


@attrs.frozen
class Step:
    way: str
    inputs: tuple[int, ...]


@st.composite
def mishaps(draw: st.DrawFn, steps: int = 5) -> list[Step]:
    found: list[Step] = []
    for position in range(draw(st.integers(2, steps))):
        inputs = draw(st.lists(st.integers(0, position - 1), max_size=2, unique=True)) if position else []
        # A step that waits for others mostly has to come off, or nothing would be learned of those behind it.
        ways = (*WAYS, *("return",) * (4 if position == 0 else 2))
        found.append(Step(draw(st.sampled_from(ways)), tuple(inputs)))
    return found


def built(program: list[Step]) -> list[Any]:
    made: list[Any] = []
    for number, step in enumerate(program):
        node = doing(number, step.way, [made[position] for position in step.inputs])
        made.append(node.with_(timeout=0.5, title=str(number)) if step.way == "hang" else node.with_(title=str(number)))
    return made


def expected(program: list[Step]) -> list[Any]:
    """For each step the kind of its failure, how many kinds of failed ancestors it has, or None when it has a value."""
    causes: list[set[int]] = []
    found: list[Any] = []
    for number, step in enumerate(program):
        blamed = set().union(*(causes[position] for position in step.inputs))
        causes.append(blamed or ({number} if step.way != "return" else set()))
        found.append(len({program[cause].way for cause in blamed}) if blamed else KINDS.get(step.way))
    return found


def told(outcome: Ok[Any] | Failed | Skipped) -> Any:
    if isinstance(outcome, Skipped):
        return len({(blame.kind, blame.exception) for blame in outcome.because})
    return outcome.kind if isinstance(outcome, Failed) else None


def check_totality(program: list[Step], **how: Any) -> None:
    events: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as folder:
        outcomes = evaluate(*built(program), store=folder, watch=events.append, **how)
        assert [told(outcome) for outcome in outcomes] == expected(program)
        counts = next(event for event in events if event["event"] == "finished")["counts"]
        skipped = sum(isinstance(outcome, Skipped) for outcome in outcomes)
        assert (counts["run"], counts["skipped"], counts["open"]) == (len(program) - skipped, skipped, 0)
        assert not any(Path(folder).glob("scratch/*"))


@FEW
@given(mishaps())
def test_l16_every_root_has_an_outcome_whatever_operators_do(program):
    check_totality(program, debug=True)


@pytest.mark.long
@MANY
@given(mishaps(steps=8))
def test_l16_in_threads_and_in_larger_programs(program):
    check_totality(program)


@FEW
@given(st.lists(st.sampled_from(["raise", "kill", "hang", "unpicklable"]), max_size=3), st.booleans())
def test_l18_nothing_of_a_failed_attempt_is_seen_by_a_later_one(ways, in_one_run):
    with tempfile.TemporaryDirectory() as folder:
        memory = Path(folder, "memory")
        memory.write_text(" ".join(ways))
        made = stumbling(str(memory)).with_(isolate=True, timeout=0.5, transient=Exception)
        made = made.with_(retries=len(ways) if in_one_run else 0)
        for attempt in range(len(ways) + 1):
            outcome = evaluate(made, store=Path(folder, "store"), debug=True)
            assert list(Path(folder, "store", "scratch").iterdir()) == []
            if outcome.ok:
                break
            assert outcome.kind == KINDS[ways[attempt]]
        assert outcome.value == 1
        assert attempt == (0 if in_one_run else len(ways))
