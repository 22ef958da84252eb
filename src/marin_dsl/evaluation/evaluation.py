"""One run: a resolution is driven to its end, and what happens is recorded and told."""

from __future__ import annotations

import contextlib
import datetime
import functools
import os
import time
from collections.abc import Callable
from typing import Any

import attrs

from marin_dsl import labels, provenance
from marin_dsl.encoding import LeafMissing, format_digest, parse_digest
from marin_dsl.evaluation import announcements
from marin_dsl.evaluation.drifting import Drifting
from marin_dsl.evaluation.elsewhere import Elsewhere
from marin_dsl.evaluation.evaluation_settings import Policy, Watch
from marin_dsl.evaluation.event_log import EventLog
from marin_dsl.evaluation.executors import Executor
from marin_dsl.evaluation.recording import Recorder
from marin_dsl.evaluation.retries import Retries
from marin_dsl.expression import Expression
from marin_dsl.expression.keys import volatile_key
from marin_dsl.expression.pickling import rebuilt
from marin_dsl.operator import Operator
from marin_dsl.outcome import FailureKind, Ok, Outcome
from marin_dsl.planning.explanation import baseline, explain
from marin_dsl.planning.node import Node
from marin_dsl.planning.resolution import Resolution
from marin_dsl.quantities import short_digest
from marin_dsl.settings import Settings
from marin_dsl.store import ContentDamaged, Store, StoredValue, StoreUnavailable
from marin_dsl.store.owner import Owner
from marin_dsl.worker import refuse
from marin_dsl.worker.task import Answer, CannotRun, Emit, Task


class Interrupted(KeyboardInterrupt):
    """The evaluation was stopped by the user; everything that was committed stays."""


class Evaluation:
    """One run, from the look-ups to the record of its end."""

    def __init__(
        self,
        roots: tuple[Expression[Any], ...],
        store: Store,
        settings: Settings,
        watch: Watch,
        *,
        keep_failures: bool,
        drift: Policy,
        target: str,
        note: str = "",
        verify_sample: float = 0.0,
    ) -> None:
        self.store, self.settings, self.watch, self.target, self.note = store, settings, watch, target, note
        self.started, self._began = datetime.datetime.now().astimezone(), time.monotonic()
        at = self.started.astimezone(datetime.UTC)
        self.id = f"{at:%Y%m%dT%H%M%SZ}-{at.microsecond // 1000:03d}{os.urandom(3).hex()}"  # in the order of time
        self.log = EventLog(store, self.id)
        self.environment = ""
        self.ran = 0
        self._continued: dict[bytes, Answer] = {}
        self._told = 0
        self.recorder = Recorder(store)
        self.elsewhere = Elsewhere(store, self.id, settings.lease)
        store.check()
        self.drift = Drifting(store, roots, drift)
        self.roots = self.drift.wanted
        self.resolution = Resolution(self.roots, store, keep_failures=keep_failures, run=self.id, sample=verify_sample)
        self.drift.look(self.resolution)
        self.planned = explain(self.resolution)

    def run(self, start: Callable[[Emit], Executor]) -> None:
        """Run what is missing, then record labels and the end of the run."""
        try:
            self._run(start)
        finally:
            self.log.close()

    def _run(self, start: Callable[[Emit], Executor]) -> None:
        self._told = len(self.resolution.found)
        self.emit(announcements.planned(self.id, self.resolution, self.planned))
        for event in (*self.drift.events(), *announcements.stand_ins(self.resolution)):
            self.emit(event)
        if self.resolution.ready:
            self._run_missing(start)
            for event in self.drift.look_again(self.resolution):
                self.emit(event)
            self._record_end()
        else:
            self._note_served()
            self._record_served()
        counts, outcomes = self.resolution.counts(), self._told_outcomes
        self.emit({"event": "finished", "run": self.id, "ran": self.ran, "counts": counts, "outcomes": outcomes})

    def _record_served(self) -> None:
        """Nothing ran; which labels were given or moved, and what was done about drift, is a run all the same."""
        if not all(map(self._recorded, self.roots)):
            self._record_start()
            self._record_end()
        elif self.drift.found:
            with contextlib.suppress(StoreUnavailable):  # a store that can only be read still serves
                self._record_start()
                self._record_end(remembered=True)

    def _recorded(self, root: Expression[Any]) -> bool:
        """Whether a root was the last one of its label, if it has one, and leaves that where it is."""
        if root.label is None:
            return True
        digest = self.resolution.nodes[root.key].digest
        moves = digest is not None and self.drift.moves(root, digest)
        return baseline(self.store, root) == root.key and not moves

    def _note_served(self) -> None:
        """Nothing has to run; of what was served below the recipe of the root, the records are completed."""
        with contextlib.suppress(StoreUnavailable):  # a store that can only be read still serves
            self._note_decided(unless_known=True)

    def _run_missing(self, start: Callable[[Emit], Executor]) -> None:
        executor: Executor | None = None
        try:
            self._record_start()
            self.log.begin()
            self._note_decided()
            executor = start(self.emit)
            self.emit({"event": "started", "place": executor.place, "dashboard": getattr(executor, "dashboard", "")})
            self._drive(executor)
        except KeyboardInterrupt as interrupt:
            try:
                with contextlib.suppress(StoreUnavailable):
                    self.store.files.create(f"runs/{self.id}/cancelled", b"")
                self.emit({"event": "interrupted"})
            finally:  # whoever watches may interrupt again
                if executor is not None:  # workers may still have been starting
                    executor.close(grace=5.0)
            raise Interrupted(str(interrupt)) from None
        except BaseException:
            if executor is not None:
                executor.close(grace=1.0)
            raise
        finally:
            with contextlib.suppress(StoreUnavailable):
                self.recorder.catch_up()
        executor.close(grace=5.0)

    def _drive(self, executor: Executor) -> None:
        by_call: dict[bytes, list[Node]] = {}
        retries = Retries(self.emit)
        while self.resolution.ready or by_call or self.resolution.fail_circle():
            self._note_decided()
            while self.resolution.ready:
                node = self.resolution.ready.popleft()
                assert node.call is not None
                waiting = by_call.setdefault(node.call, [])
                waiting.append(node)
                self.recorder.call(node)
                # Two recipes that come to the same call run once.
                refused = self._submit(executor, node) if len(waiting) == 1 else None
                if refused is not None:
                    self._answered(by_call.pop(node.call), refused)
            for task in (*self.elsewhere.due(), *retries.due()):
                refused = self._submit(executor, by_call[task.call][0], task)
                if refused is not None:
                    self._answered(by_call.pop(task.call), refused)
            settled = executor.next(self.elsewhere.patience(retries.pause(0.25))) if by_call else None
            if settled is None:
                self.recorder.idle()
                self.emit({"event": "tick"})
                continue
            task, answer = settled
            if isinstance(answer, BaseException):
                answer = self._lost(task, answer)
            if answer.elsewhere is not None:
                if self.elsewhere.add(task, answer.elsewhere):
                    self.emit(announcements.elsewhere(by_call[task.call][0], answer.elsewhere.described))
            elif not retries.takes(task, answer):
                self._answered(by_call.pop(task.call), answer)

    def _submit(self, executor: Executor, node: Node, again: Task | None = None) -> Answer | None:
        """Hand a call to the executor; a failure when its arguments are gone, or when nobody can ever run it."""
        annotations = node.expression.annotations
        try:
            for leaf in node.expression.leaves.values():
                self.store.put_leaf(leaf)
            inputs = tuple(self._input(self.resolution.nodes[found.key]) for found in node.expression.references)
        except LeafMissing as error:
            kind: FailureKind = "unstorable" if isinstance(error, ContentDamaged) else "lost"
            return refuse(again or self._task(node, ()), kind, error)
        task = self._task(node, inputs) if again is None else attrs.evolve(again, inputs=inputs)
        try:
            executor.submit(task, resources=dict(annotations.resources), priority=annotations.priority)
        except CannotRun as error:
            return refuse(task, "lost", error)
        return None

    def _lost(self, task: Task, error: BaseException) -> Answer:
        """A worker raised instead of answering: the store's trouble stops the run, a lost worker is a failure."""
        if isinstance(error, StoreUnavailable | KeyboardInterrupt):
            raise error
        return attrs.evolve(refuse(task, "lost", error), ran=True)

    def _answered(self, nodes: list[Node], answer: Answer) -> None:
        self.ran += answer.ran
        for node in nodes:
            self._finish(node, answer)

    def _finish(self, node: Node, answer: Answer) -> None:
        self.recorder.answered(node, answer)
        if answer.continued is not None:
            self._continued[node.expression.key] = answer
            self.emit(announcements.continued(node))
            self.resolution.finish(node, rebuilt(answer.continued))
        else:
            outcome = answer.stored or answer.failed
            assert outcome is not None
            self.resolution.finish(node, outcome)
            self.emit(announcements.settled(node, answer))
            if answer.conflict is not None:
                self.emit(announcements.conflict(node, answer.conflict))
        self._note_decided()

    def _note_decided(self, *, unless_known: bool = False) -> None:
        """Record what was demanded meanwhile; record and tell what got its outcome without running (or long after)."""
        found = list(self.resolution.found)
        self.resolution.found.clear()
        for node in found:
            self.recorder.found(node, unless_known=unless_known)
        fresh = found[self._told :]
        self._told = max(0, self._told - len(found))
        if fresh:
            self.emit(announcements.found(fresh))
        while self.resolution.decided:
            node = self.resolution.decided.popleft()
            answer = self._continued.pop(node.expression.key, None)
            if answer is not None:
                self._conclude(node, answer)
            self.recorder.decided(node)
            if not node.inline:
                self.emit(announcements.settled(node, answer))

    def _conclude(self, node: Node, answer: Answer) -> None:
        """Record what became of a call whose operator returned an expression, now that this is known."""
        assert node.call is not None
        record = answer.record
        assert record is not None
        if node.failed is not None:
            self.store.fail(node.call, {**record, "failure": node.failed.record})
            return
        if node.digest is None:
            self.store.skip(node.call, [attrs.asdict(found) for found in node.because])
            return
        if (node.volatile and not node.impure) or node.went_on_over_failure:
            # What it went on with is made anew, or tried again, in each run, and may come to something else then.
            node.call = volatile_key(node.call, self.resolution.run)
        over_failure = node.over_failure or record["over_failure"]
        value = self._input(node).as_record()
        visible = self.store.commit(node.call, {**record, "value": value, "over_failure": over_failure})
        if visible["value"]["digest"] != value["digest"]:
            self.emit(announcements.conflict(node, f"the value {short_digest(value['digest'])}"))
        node.stored(StoredValue.from_record(visible["value"]))

    def _task(self, node: Node, inputs: tuple[StoredValue, ...]) -> Task:
        operator, call = node.expression.operator, node.call
        assert isinstance(operator, Operator)
        assert call is not None
        return Task(
            self.store,
            operator,
            node.expression.payload,
            inputs,
            call,
            node.title,
            self.id,
            self.environment,
            format_digest(operator.code.digest),
            node.over_failure,
            node.expression.annotations,
            lease=self.settings.lease,
            verifies=node.verifies,
            functions=node.expression.functions,
            structure=self.recorder.handed_out(node),
        )

    def _input(self, node: Node) -> StoredValue:
        if node.value is not None:
            return node.value
        assert node.encoded is not None
        return self.store.put_encoded(node.encoded)

    def emit(self, event: dict[str, Any]) -> None:
        """Tell the log and the watcher."""
        event.setdefault("at", time.time())
        if event["event"] == "running":
            self.recorder.running(parse_digest(event["call"]))
        self.log.append(event)
        self.watch(event)

    # Records

    def _record_start(self) -> None:
        self.store.check(writing=True)
        environment = self.store.put(provenance.environment(self.settings.project))
        self.environment = format_digest(environment.digest)
        record = {
            "run": self.id,
            "target": self.target,
            "command": provenance.command(),
            "note": self.note,
            "started": self.started.isoformat(timespec="seconds"),
            "environment": environment.as_record(),
            "sources": self.store.put(provenance.imported_sources()).as_record(),
            "roots": [_root_record(root) for root in self.roots],
            "keep_failures": self.resolution.keep_failures,
            "drift": self.drift.policy,
            "owner": attrs.asdict(Owner.here(self.id)),
            "reasons": {format_digest(key): reason for key, reason in self.planned.items()},
        }
        self.store.add(f"runs/{self.id}/start", record)

    def _record_end(self, *, remembered: bool = False) -> None:
        """Record the end of the run, and what it did to labels; of `remembered` ones nothing is new."""
        self.store.check(writing=True)
        self._move_labels()
        for root in () if remembered else self.roots:
            if root.label is not None:
                labels.remember(self.store, root.label, root.key, self.id, self.target)
        took = time.monotonic() - self._began
        counts, outcomes = self.resolution.counts(), self._told_outcomes
        self.store.add(
            f"runs/{self.id}/end", {"outcomes": outcomes, "counts": counts, "ran": self.ran, "seconds": took}
        )

    @functools.cached_property
    def _told_outcomes(self) -> dict[str, str]:
        told = zip(self.roots, self.outcomes, strict=True)
        return {format_digest(root.key): type(outcome).__name__ for root, outcome in told}

    def _move_labels(self) -> None:
        """Record what labels stand for; where somebody else came first, drift is told."""
        for root in self.roots:
            node = self.resolution.nodes[root.key]
            if root.label is None or node.digest is None or not self.drift.moves(root, node.digest):
                continue
            drift = self.drift.move(root, self._input(node), self.id)
            if drift is not None:
                self.emit(announcements.drifted(drift, self.drift.policy))

    @functools.cached_property
    def outcomes(self) -> tuple[Outcome, ...]:
        """What became of each root; to be asked when the run is over."""
        return tuple(map(self._outcome, self.roots))

    def _outcome(self, root: Expression[Any]) -> Outcome:
        node = self.resolution.nodes[root.key]
        found = node.outcome()
        if found is not None:
            return found
        digest = node.digest
        assert digest is not None
        return Ok(digest=format_digest(digest), load=lambda: self.resolution.load(node))


def _root_record(root: Expression[Any]) -> dict[str, Any]:
    return {"recipe": format_digest(root.key), "label": str(root.label) if root.label else None}
