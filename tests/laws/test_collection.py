"""Garbage collection beside evaluations: nothing that is reachable is lost, nothing wrong is served."""

from __future__ import annotations

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, rule

from marin_dsl import Ok, Store, evaluate, op, provenance
from marin_dsl.expression import walk
from marin_dsl.lineage import ancestors
from marin_dsl.store.collection import collect
from tests.laws.interleaving import Action, InMemory, Stepped

LARGE = 1500  # a blob: more than what is kept in a record
LEAF = "y" * 66_000  # a blob of its own, beside the manifest
GRACE = 1000.0


@op(version="1")
def text(n: int) -> str:
    """Two neighbours give the same, so that a blob is often there already."""
    return str(n // 2) * LARGE


@op(version="1")
def joined(left: str, right: str) -> dict:
    return {"length": len(left) + len(right), "text": LEAF + left[:1] + right[:1]}


@op(version="1")
def counted(found: dict, times: int) -> int:
    return found["length"] * times


def expected(left, right, times):
    return (len(str(left // 2)) + len(str(right // 2))) * LARGE * times


@pytest.fixture(scope="module", autouse=True)
def _quick():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(provenance, "environment", lambda project: {"python": "3"})
        patch.setenv("MARIN_LEASE_SECONDS", "0")
        yield


class Machine(RuleBasedStateMachine):
    """Two evaluations and a collection at a time, stopped before any of their file operations."""

    def __init__(self):
        super().__init__()
        self.now = 1e9
        self.files = InMemory(lambda: self.now)
        self.evaluations = [None, None]
        self.collection = None
        self.labelled = {}

    def store(self, files=None):
        store = Store("unused")
        store.files = files or Stepped(self.files)
        return store

    @property
    def busy(self):
        return any(self.evaluations) or self.collection is not None

    @rule(slot=st.integers(0, 1), root=st.tuples(*[st.integers(0, 3)] * 2, st.integers(1, 2)), labelled=st.booleans())
    def begin_evaluation(self, slot, root, labelled):
        if self.evaluations[slot] is None:
            expression = counted(joined(text(root[0]), text(root[1])), root[2])
            if labelled:
                expression = expression.named(f"root-{'-'.join(map(str, root))}", "1.0")
            action = Action(lambda: self.value(expression))
            self.evaluations[slot] = (action, root, expression if labelled else None)

    def value(self, expression):
        outcome = evaluate(expression, store=self.store(), debug=True)
        return outcome.value if isinstance(outcome, Ok) else outcome

    @rule(slot=st.integers(0, 1), steps=st.integers(1, 40))
    def go_on_evaluating(self, slot, steps):
        for _ in range(steps):
            if self.evaluations[slot] is not None:
                self.evaluations[slot][0].step()
                self.settle(slot)

    @rule(slot=st.integers(0, 1))
    def finish_evaluating(self, slot):
        if self.evaluations[slot] is not None:
            self.evaluations[slot][0].finish()
            self.settle(slot)

    def settle(self, slot):
        action, root, expression = self.evaluations[slot]
        if action.over:
            assert action.result == expected(*root)
            if expression is not None:
                self.labelled[root] = expression
            self.evaluations[slot] = None

    @rule(slot=st.integers(0, 1))
    def kill_an_evaluation(self, slot):
        self.evaluations[slot] = None

    @rule(grace=st.sampled_from([GRACE, 2 * GRACE]))
    def begin_collecting(self, grace):
        if self.collection is None:
            self.collection = Action(lambda: collect(self.store(), grace=grace, dry=False))

    @rule(steps=st.integers(1, 40))
    def go_on_collecting(self, steps):
        for _ in range(steps):
            if self.collection is not None:
                self.collection.step()
                if self.collection.over:
                    self.collection = None

    @rule()
    def finish_collecting(self):
        if self.collection is not None:
            self.collection.finish()
            self.collection = None

    @rule()
    def kill_the_collection(self):
        self.collection = None

    @rule(seconds=st.sampled_from([1.0, 10.0, GRACE / 2, GRACE, 10 * GRACE]))
    def time_passes(self, seconds):
        # Evaluations that stand still for longer than the grace time may have to be done anew.
        self.now += min(seconds, 5.0) if self.busy else seconds

    @rule()
    def collect_at_once(self):
        if not self.busy:
            collect(self.store(self.files), grace=GRACE, dry=False)
            self.whatever_is_labelled_is_served()

    def whatever_is_labelled_is_served(self):
        for root, expression in self.labelled.items():
            events = []
            outcome = evaluate(expression, store=self.store(self.files), debug=True, watch=events.append)
            assert outcome.value == expected(*root)
            assert next(event["ran"] for event in events if event["event"] == "finished") == 0
            known = ancestors(self.store(self.files), expression.key)
            assert len(known) == len(set(walk(expression)))
            assert all(found.inline or found.result is not None for found in known.values())

    def teardown(self):
        for slot in range(2):
            self.finish_evaluating(slot)
        self.finish_collecting()
        self.whatever_is_labelled_is_served()
        for _ in range(3):
            self.now += 10 * GRACE
            collect(self.store(self.files), grace=GRACE, dry=False)
            self.whatever_is_labelled_is_served()
        kept = collect(self.store(self.files), grace=GRACE, dry=True)
        assert not any(path.startswith("trash/") for path in self.files.files), "in the end the trash is empty"
        assert kept.swept == ()
        for root in [(0, 1, 1), (0, 2, 2), (3, 3, 1)]:
            outcome = evaluate(
                counted(joined(text(root[0]), text(root[1])), root[2]), store=self.store(self.files), debug=True
            )
            assert outcome.value == expected(*root)


class Aged:
    """A store with an old unlabelled result, and somebody who begins to need it."""

    def __init__(self):
        self.now = 1e9
        self.files = InMemory(lambda: self.now)
        evaluate(joined(text(0), text(2)), store=self.store(), debug=True)
        self.now += 10 * GRACE
        self.root = counted(joined(text(0), text(2)), 2).named("late", "1.0")

    def store(self, files=None):
        store = Store("unused")
        store.files = files or self.files
        return store

    def evaluation(self):
        return Action(lambda: evaluate(self.root, store=self.store(Stepped(self.files)), debug=True))

    def collection(self):
        return Action(lambda: collect(self.store(Stepped(self.files)), grace=GRACE, dry=False))

    def check(self, outcome):
        """It has the right value, and everything that it is made from stays, whatever is collected later."""
        assert isinstance(outcome, Ok)
        assert outcome.value == expected(0, 2, 2)
        for _ in range(3):
            collect(self.store(), grace=GRACE, dry=False)
            known = ancestors(self.store(), self.root.key)
            assert len(known) == len(set(walk(self.root)))
            assert all(found.inline or self.in_place(found.record["call"]) for found in known.values())
            self.now += 10 * GRACE

    def in_place(self, call):
        return f"results/{call[7:9]}/{call[9:]}.json" in self.files.files


@pytest.mark.parametrize("first", ["evaluation", "collection"])
def test_one_of_both_may_pause_before_any_operation_while_the_other_one_does_all_it_has_to(first):
    steps, over = 0, False
    while not over:
        world = Aged()
        paused = getattr(world, first)()
        for _ in range(steps):
            if not paused.over:
                paused.step()
        over = paused.over
        other = (world.collection if first == "evaluation" else world.evaluation)().finish()
        mine = paused.finish()
        world.check(mine if first == "evaluation" else other)
        steps += 1
    assert steps > 30


TestCollection = Machine.TestCase
TestCollection.settings = settings(
    max_examples=settings.default.max_examples // 2, stateful_step_count=25, deadline=None
)
