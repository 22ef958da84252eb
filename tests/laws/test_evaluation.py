"""Laws L8 to L17 over random small programs of pure, failing and inline nodes."""

from __future__ import annotations

import contextlib
import random
import shutil
import subprocess
import sys
import tempfile
import uuid
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import Phase, event, given, settings
from hypothesis import strategies as st

from marin_dsl import Failed, Ok, Skipped, Store, attempt, evaluate, op, plan, provenance
from tests.marin_dsl.programs import Oracle, Step, build, fail, leaf, pair, plain, programs, total
from tests.marin_dsl.runs import Watcher

SHARE = st.floats(0, 1, exclude_max=True)
"""What is drawn must not depend on what was written: times in records differ in length from run to run."""
EXAMPLES = settings(max_examples=settings.default.max_examples // 2, deadline=None)
FEW = settings(
    EXAMPLES, max_examples=settings.default.max_examples // 6, phases=[Phase.explicit, Phase.reuse, Phase.generate]
)


@pytest.fixture(scope="module", autouse=True)
def _quick_environment():
    """The snapshot of the environment takes longer than these programs."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(provenance, "environment", lambda project: {"python": "3"})
        yield


@contextlib.contextmanager
def cluster(**settings):
    """The address of a cluster in a process of its own.

    In this one its threads would use `random` while Hypothesis draws, which takes that for a strategy's doing.
    """
    script = (
        "import sys, distributed\n"
        f"with distributed.LocalCluster(dashboard_address=':0', **{settings!r}) as cluster:\n"
        "    print(cluster.scheduler_address, flush=True)\n"
        "    sys.stdin.read()\n"
    )
    command = [sys.executable, "-c", script]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as running:
        yield running.stdout.readline().strip()
        running.stdin.close()


@pytest.fixture(scope="module")
def threads():
    with cluster(n_workers=1, threads_per_worker=4, processes=False, protocol="tcp") as address:
        yield address


@pytest.fixture(scope="module")
def processes():
    with cluster(n_workers=2, threads_per_worker=1, processes=True) as address:
        yield address


class Folder:
    """A store in a fresh folder, or a copy of one."""

    def __init__(self, source: Path | None = None) -> None:
        self.path = Path(tempfile.gettempdir()) / f"store-{uuid.uuid4().hex}"
        self.path.mkdir()
        if source is not None:
            shutil.copytree(source, self.path, dirs_exist_ok=True)

    def __enter__(self) -> Folder:
        return self

    def __exit__(self, *_: object) -> None:
        shutil.rmtree(self.path)

    @property
    def store(self) -> Store:
        return Store(self.path)

    def files(self) -> dict[str, bytes]:
        return {str(p.relative_to(self.path)): p.read_bytes() for p in sorted(self.path.rglob("*")) if p.is_file()}


def evaluated(program: list[Step], store: Store, **settings) -> tuple[list, Watcher]:
    watcher = Watcher()
    settings = settings or {"debug": True}
    outcomes = evaluate(*build(program), store=store, watch=watcher, **settings)
    return [plain(outcome) for outcome in (outcomes if isinstance(outcomes, tuple) else (outcomes,))], watcher


@EXAMPLES
@given(programs())
def test_every_root_gets_the_outcome_that_plain_python_gives(program):
    with Folder() as folder:
        outcomes, _ = evaluated(program, folder.store)
        assert outcomes == Oracle.of(program).outcomes


@FEW
@given(program=programs())
def test_threads_give_the_same_outcomes(threads, program):
    with Folder() as folder:
        assert evaluated(program, folder.store, scheduler=threads)[0] == Oracle.of(program).outcomes


@FEW
@given(program=programs())
def test_processes_give_the_same_outcomes(processes, program):
    with Folder() as folder:
        assert evaluated(program, folder.store, scheduler=processes)[0] == Oracle.of(program).outcomes


@EXAMPLES
@given(programs())
def test_each_distinct_call_runs_once(program):
    oracle = Oracle.of(program)
    with Folder() as folder:
        _, watcher = evaluated(program, folder.store)
        calls = Counter(found["call"] for found in watcher.of("running"))
        assert set(calls.values()) <= {1}
        assert watcher.ran == len(calls)
        if not any("skipped" in repr(value) for call in oracle.calls for value in call[1]):
            assert len(calls) == len(oracle.calls)


@EXAMPLES
@given(programs(), st.integers(0, 2**32))
def test_any_part_of_a_store_may_be_deleted(program, seed: int):
    chance = random.Random(seed)
    with Folder() as folder:
        evaluated(program, folder.store)
        for path in sorted(folder.path.rglob("*")):
            if path.is_file() and chance.random() < 0.4:
                path.unlink()
        assert evaluated(program, folder.store)[0] == Oracle.of(program).outcomes


@EXAMPLES
@given(programs(), SHARE, SHARE, st.integers(0, 7))
def test_any_flipped_byte_in_a_store_is_harmless(program, which: float, where: float, bit: int):
    with Folder() as folder:
        evaluated(program, folder.store)
        files = [path for path in sorted(folder.path.rglob("*")) if path.is_file() and path.name != "format.json"]
        damaged = files[int(which * len(files))]
        content = bytearray(damaged.read_bytes())
        if content:
            content[int(where * len(content))] ^= 1 << bit
            damaged.chmod(0o600)
            damaged.write_bytes(content)
        assert evaluated(program, folder.store)[0] == Oracle.of(program).outcomes


@EXAMPLES
@given(programs())
def test_a_second_evaluation_runs_only_what_failed(program):
    with Folder() as folder:
        _, first = evaluated(program, folder.store)
        outcomes, second = evaluated(program, folder.store)
        assert outcomes == Oracle.of(program).outcomes
        failed = {found["call"] for found in first.of("failed") if found["how"] == "run"}
        # What went on with something that failed has no value either.
        failed |= {found["call"] for found in first.of("continued")} - {found["call"] for found in first.of("ok")}
        assert {found["call"] for found in second.of("running")} <= failed


@EXAMPLES
@given(programs())
def test_kept_failures_are_served_and_nothing_runs_or_is_written(program):
    with Folder() as folder:
        evaluated(program, folder.store)
        before = folder.files()
        outcomes, watcher = evaluated(program, folder.store, debug=True, keep_failures=True)
        assert outcomes == Oracle.of(program).outcomes
        assert watcher.ran == 0
        assert folder.files() == before


@EXAMPLES
@given(programs(dynamic=False), st.booleans())
def test_what_runs_is_what_was_planned_without_what_failures_leave_out(program, again):
    with Folder() as folder:
        roots = build(program)
        if again:
            evaluate(*roots[: len(roots) // 2], store=folder.store, debug=True)
        before = folder.files()
        planned = {key for key, _, _ in plan(*roots, store=folder.store).runs}
        assert folder.files() == before, "planning writes nothing"
        _, watcher = evaluated(program, folder.store)
        executed = {bytes.fromhex(f["recipe"][7:]) for f in watcher.of("ok", "failed") if f["how"] == "run"}
        left_out = {bytes.fromhex(f["recipe"][7:]) for f in watcher.of("skipped") if f["how"] == "skipped"}
        served = {bytes.fromhex(f["recipe"][7:]) for f in watcher.of("ok") if f["how"] == "cutoff"}
        assert executed == planned - left_out - served
        event(f"{len(executed)} of {len(planned)} planned")


@EXAMPLES
@given(programs())
def test_every_skipped_node_names_failed_ancestors_and_nothing_is_without_an_outcome(program):
    with Folder() as folder:
        roots = build(program)
        outcomes = evaluate(*roots, store=folder.store, debug=True)
        outcomes = outcomes if isinstance(outcomes, tuple) else (outcomes,)
        kinds = Counter(type(outcome) for outcome in outcomes)
        assert kinds[Ok] + kinds[Failed] + kinds[Skipped] == len(roots)
        for step, outcome in zip(program, outcomes, strict=True):
            if isinstance(outcome, Skipped):
                assert outcome.because
                below = _failures_below(program, step, outcomes)
                assert {(c.exception, c.message) for c in outcome.because} <= below


def _failures_below(program: list[Step], step: Step, outcomes) -> set:
    found, stack = set(), list(step.inputs)
    while stack:
        position = stack.pop()
        outcome = outcomes[position]
        if isinstance(outcome, Failed):
            found.add((outcome.exception, outcome.message))
        elif isinstance(outcome, Skipped):
            found |= {(cause.exception, cause.message) for cause in outcome.because}
        stack += program[position].inputs
    found |= {"map": {("ValueError", "negative")}, "unfold": {("ValueError", "third")}}.get(step.kind, set())
    if step.kind == "add":  # the product inside may itself be what failed
        found |= {
            ("TypeError", f"unsupported operand type(s) for *: '{k}' and 'int'") for k in ("Ok", "Failed", "Skipped")
        }
    return found


# L11, L12 by examples


def test_a_served_root_costs_no_look_at_what_is_below(tmp_path):
    found = leaf(0)
    for step in range(30):
        found = total([found, leaf(step)])
    store = Store(tmp_path)
    evaluate(found, store=store, debug=True)
    looks: list[str] = []
    read, size = store.files.read, store.files.size
    store.files.read = lambda path: looks.append(path) or read(path)
    store.files.size = lambda path: looks.append(path) or size(path)
    assert evaluate(found, store=store, debug=True).value == sum(range(30))
    assert len(looks) <= 4, looks


@op(version="1")
def parity(n: int) -> int:
    return n % 2


def test_an_ancestor_that_comes_out_equal_runs_nothing_below(tmp_path):
    def program(n):
        return total([parity(n)], bias=3)

    watcher = Watcher()
    evaluate(program(3), store=tmp_path, debug=True)
    assert evaluate(program(5), store=tmp_path, debug=True, watch=watcher).value == 4
    assert watcher.ran == 1
    assert [(found["how"], found["title"]) for found in watcher.of("ok")] == [
        ("run", "parity(n=5)"),
        ("cutoff", "total(bias=3)"),
    ]


def test_two_recipes_that_come_to_one_failing_call_run_once(tmp_path):
    early, late = fail([parity(3)], "no", "value"), fail([parity(total([leaf(2), leaf(3)]))], "no", "value")
    watcher = Watcher()
    outcomes = evaluate(early, late, store=tmp_path, debug=True, watch=watcher)
    assert [outcome.message for outcome in outcomes] == ["no", "no"]
    assert len([found for found in watcher.of("running") if found["title"].startswith("fail")]) == 1


def test_mutating_what_was_received_or_returned_changes_no_later_result(tmp_path):
    source = shared(3)
    a, b = spoil(source), keep(source)
    outcomes = evaluate(a, b, keep([source, source]), store=tmp_path, debug=True)
    assert [outcome.value for outcome in outcomes] == [["spoilt"], [[0, 1, 2]], [[[0, 1, 2], [0, 1, 2]]]]
    held = outcomes[1].value
    held[0].append("spoilt")
    assert evaluate(b, store=tmp_path, debug=True).value == [[0, 1, 2]]


@op(version="1")
def shared(n: int) -> list:
    return list(range(n))


@op(version="1")
def spoil(values: list) -> list:
    values[:] = ["spoilt"]
    return values


@op(version="1")
def keep(values: list) -> list:
    return [values]


def test_siblings_of_a_failure_go_on_and_an_attempt_sees_it(tmp_path):
    broken = fail([], "broken", "value")
    wanted = [pair(broken, leaf(1))["left"], attempt(broken), attempt(pair(broken, 1)), total([leaf(1), leaf(2)])]
    first, second, third, fourth = evaluate(*wanted, store=tmp_path, debug=True)
    assert isinstance(first, Skipped)
    assert second.value == Failed("raised", "ValueError", "broken")
    assert third.value.because[0].message == "broken"
    assert fourth.value == 3
