"""The log of a run replays to the state that the run ended with; any prefix of it replays too."""

from __future__ import annotations

import json
import uuid
from collections import Counter
from typing import Any

import attrs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from marin_dsl import Store, evaluate, provenance
from marin_dsl.encoding import format_digest
from marin_dsl.evaluation import event_log, events
from marin_dsl.evaluation.events import event_of
from marin_dsl.evaluation.state import State, replay
from tests.marin_dsl.programs import Step, build, programs

EXAMPLES = settings(max_examples=settings.default.max_examples // 2, deadline=None)
SHARE = st.floats(0, 1)  # of a log, whose length differs from run to run by the digits of its times


@pytest.fixture(scope="module", autouse=True)
def _quick_environment():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(provenance, "environment", lambda project: {"python": "3"})
        yield


def run(program: list[Step], store: Store, **options: Any) -> tuple[list[dict], State]:
    """Evaluate all steps of a program; its events, and the state that they lead a watcher to."""
    seen: list[dict] = []
    evaluate(*build(program), store=store, debug=True, watch=seen.append, **options)
    watched = State()
    for record in seen:
        event = event_of(record)
        watched = watched if event is None else watched.after(event)
    return seen, watched


def fresh() -> Store:
    return Store(f"memory://events-{uuid.uuid4().hex}")


@EXAMPLES
@given(programs(), st.data())
def test_the_log_of_a_run_replays_to_its_end(program, data):
    store = fresh()
    for _ in range(2):  # the second run serves, keeps failures or tries them again
        seen, watched = run(program, store, keep_failures=data.draw(st.booleans()))
        found = event_log.state(store, seen[0]["run"])
        end = store.last(f"runs/{seen[0]['run']}/end")
        assert watched.counts == seen[-1]["counts"]
        assert watched.ending.outcomes == seen[-1]["outcomes"]
        assert watched.running == {}
        if end is None:
            assert found.settled == {}, "nothing ran, and nothing was written"
            continue
        assert found.counts == end["counts"]
        assert (found.ending.outcomes, found.ending.ran) == (end["outcomes"], end["ran"])
        assert found == watched


@EXAMPLES
@given(programs())
def test_each_node_that_got_an_outcome_is_told_once_and_as_the_roots_say(program):
    store = fresh()
    seen, _ = run(program, store)
    told = Counter(record["recipe"] for record in seen if record["event"] in ("ok", "failed", "skipped"))
    assert set(told.values()) <= {1}
    found = event_log.state(store, seen[0]["run"])
    names = {"ok": "Ok", "failed": "Failed", "skipped": "Skipped"}
    for root in build(program):
        key = format_digest(root.key)
        if key in found.settled:
            assert found.ending.outcomes[key] == names[found.settled[key].event]


@EXAMPLES
@given(programs(), st.data())
def test_a_kill_at_any_byte_leaves_a_log_that_replays(program, data):
    store = fresh()
    seen, whole = run(program, store)
    log = b"".join(line + b"\n" for line in event_log.lines(store, seen[0]["run"]))
    torn = log[: round(data.draw(SHARE) * len(log))]
    found = replay(torn.splitlines())
    assert set(found.settled) <= set(whole.settled)
    assert all(found.counts[how] <= whole.counts[how] for how in ("served", "run", "kept", "skipped"))
    assert len(found.running) <= 1, "one call after the other"


@EXAMPLES
@given(programs(), st.data())
def test_damage_to_a_log_is_passed_over(program, data):
    store = fresh()
    seen, whole = run(program, store)
    log = bytearray(b"".join(line + b"\n" for line in event_log.lines(store, seen[0]["run"])))
    for _ in range(data.draw(st.integers(1, 5))):
        log[round(data.draw(SHARE) * (len(log) - 1))] = data.draw(st.integers(0, 255))
    found = replay(bytes(log).splitlines())
    assert len(found.settled) <= len(whole.settled) + 5


ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=2), inner, max_size=2),
    max_leaves=3,
)
FIELDS = sorted({field.name for kind in events._TYPES.values() for field in attrs.fields(kind)})
LINES = st.fixed_dictionaries({"event": st.sampled_from([*events._TYPES, None]) | ANYTHING}).flatmap(
    lambda event: st.dictionaries(st.sampled_from(FIELDS), ANYTHING).map(lambda rest: {**rest, **event})
)


@given(st.lists(LINES | ANYTHING, max_size=5))
def test_lines_that_no_run_writes_are_passed_over_or_read_but_never_in_the_way(lines):
    found = replay(json.dumps(line) for line in lines)
    assert set(found.counts) == {"served", "run", "kept", "skipped", "open"}
    assert len(found.failed) <= len(lines)
