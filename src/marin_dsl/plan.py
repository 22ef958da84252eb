"""What is there, what will run, and why: the descent from the roots through what a store already has.

`Resolution` holds what is known of each expression and is moved on by outcomes; it reads a store and never writes one.
`plan` is the resolution as far as it goes without running anything.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import Any, Literal

import attrs

from marin_dsl.encoding import Encoded, Leaf, LeafMissing, RawValue, decode, encode_with_leaves
from marin_dsl.expression import Expression, recipe_key, splice
from marin_dsl.inline import InlineOperator
from marin_dsl.outcome import Blame, Failed, Ok, Skipped, blame
from marin_dsl.recipe import title
from marin_dsl.store import Store, StoredValue
from marin_dsl.worker import failure_of

How = Literal["hit", "cutoff", "kept", "inline", "run", "skipped"]


@attrs.define(eq=False)
class Node:
    """What is known of one expression during an evaluation.

    Attributes:
        expression: the expression.
        waiting: how many of its references have no outcome yet.
        dependents: nodes that wait for this one.
        how: where its outcome comes from; None while that is open.
        value: where its value is stored, once it has one.
        encoded: the value of an inline node, which is in no store.
        failed: its failure, if it failed.
        because: failed ancestors, if it was skipped.
        call: its call key, once its inputs are known.
    """

    expression: Expression[Any]
    waiting: int = 0
    dependents: list[Node] = attrs.field(factory=list)
    how: How | None = None
    value: StoredValue | None = None
    encoded: Encoded | None = None
    failed: Failed | None = None
    because: tuple[Blame, ...] = ()
    call: bytes | None = None

    @property
    def done(self) -> bool:
        """Whether it has an outcome."""
        return self.digest is not None or self.failed is not None or bool(self.because)

    @property
    def digest(self) -> bytes | None:
        """Digest of its value, if it has one."""
        if self.value is not None:
            return self.value.digest
        return self.encoded.digest if self.encoded is not None else None

    @property
    def inline(self) -> bool:
        """Whether it is evaluated by whoever needs it, and never scheduled."""
        return isinstance(self.expression.operator, InlineOperator)

    def outcome(self) -> Failed | Skipped | None:
        """Its failure or what it was skipped because of; None when it has a value or is open."""
        return self.failed or (Skipped(self.because) if self.because else None)


class Resolution:
    """The state of an evaluation: nodes by recipe key, and the queue of those that must run.

    Whoever drives it takes nodes from `ready`, and may take from `decided` what got its outcome without running.

    Args:
        roots: the expressions that are wanted.
        store: where results are looked up.
        keep_failures: serve recorded failures instead of trying again.
    """

    def __init__(self, roots: tuple[Expression[Any], ...], store: Store, *, keep_failures: bool = False) -> None:
        self.roots = roots
        self.store = store
        self.keep_failures = keep_failures
        self.nodes: dict[bytes, Node] = {}
        self.ready: deque[Node] = deque()
        self.decided: deque[Node] = deque()
        self._descend()

    def _descend(self) -> None:
        """Look up what is wanted, and go on to the inputs of what is not there."""
        stack = list(reversed(self.roots))
        settled = []
        while stack:
            expression = stack.pop()
            if expression.key in self.nodes:
                continue
            node = self.nodes[expression.key] = Node(expression)
            if self._look_up(node):
                continue
            stack.extend(reversed(expression.references))
            settled.append(node)
        for node in settled:
            inputs = {reference.key: self.nodes[reference.key] for reference in node.expression.references}
            for found in inputs.values():
                if not found.done:
                    node.waiting += 1
                    found.dependents.append(node)
        self._settle([node for node in settled if node.waiting == 0])

    def _look_up(self, node: Node) -> bool:
        """Whether the store has the recipe's value: then nothing under it is looked at."""
        if node.inline:
            return False
        call = self.store.call_of(node.expression.key)
        record = None if call is None else self.store.result(call)
        if record is None:
            return False
        node.how, node.call, node.value = "hit", call, StoredValue.from_record(record["value"])
        return True

    def _settle(self, nodes: list[Node]) -> None:
        """Decide on nodes whose inputs all have outcomes, and on whatever that decides in turn."""
        queue = deque(nodes)
        while queue:
            node = queue.popleft()
            self._decide(node)
            if node.done:
                self.decided.append(node)
                queue.extend(self._released(node))

    def _released(self, node: Node) -> list[Node]:
        free = []
        for dependent in node.dependents:
            dependent.waiting -= 1
            if dependent.waiting == 0:
                free.append(dependent)
        return free

    def _decide(self, node: Node) -> None:
        inputs = [self.nodes[reference.key] for reference in node.expression.references]
        operator = node.expression.operator
        if isinstance(operator, InlineOperator) and operator.of_outcome:
            node.how, node.encoded = "inline", _outcome_value(inputs[0], self.store)
            return
        because = {found: None for item in inputs if (outcome := item.outcome()) for found in blame(outcome)}
        if because:
            node.how, node.because = "skipped", tuple(because)
        elif isinstance(operator, InlineOperator):
            node.how = "inline"
            self._evaluate_inline(node, operator, inputs)
        else:
            self._decide_call(node, inputs)

    def _decide_call(self, node: Node, inputs: list[Node]) -> None:
        digests = [found.digest or b"" for found in inputs]
        node.call = recipe_key(node.expression.operator.identity, node.expression.payload, digests)
        record = self.store.result(node.call)
        if record is not None:
            node.how, node.value = "cutoff", StoredValue.from_record(record["value"])
            return
        failure = self.store.last_failure(node.call) if self.keep_failures else None
        if failure is not None:
            node.how, node.failed = "kept", failure_of(failure)
            return
        node.how = "run"
        self.ready.append(node)

    def _evaluate_inline(self, node: Node, operator: InlineOperator, inputs: list[Node]) -> None:
        """The value of an inline node: lazily, so that large parts are passed on unread, else with all loaded."""
        by_digest = {found.digest: found for found in inputs}
        digests = [found.digest or b"" for found in inputs]
        data = splice(node.expression.payload, digests)
        leaves = node.expression.leaves
        problem: Exception | None = None
        for lazy in (True, False):
            try:
                arguments = decode(
                    data,
                    read_leaf=lambda digest, size: _literal(leaves, digest) or self.store.read_leaf(digest, size),
                    reference=lambda digest, lazy=lazy: self.load(by_digest[digest], lazy=lazy),
                    lazy=lazy,
                )
                node.encoded = encode_with_leaves(operator.function(**arguments))
                return
            except Exception as error:
                problem = error
        assert problem is not None
        kind: Any = "lost" if isinstance(problem, LeafMissing) else "raised"
        name = title(node.expression)
        node.failed = Failed(kind, type(problem).__qualname__, str(problem), operator=name)

    def load(self, node: Node, *, lazy: bool = False) -> Any:
        """The value of a node that has one."""
        if node.encoded is not None:
            return decode(node.encoded.data, read_leaf=self.store.read_leaf, lazy=lazy)
        assert node.value is not None
        return self.store.get(node.value, lazy=lazy)

    def finish(self, node: Node, outcome: StoredValue | Failed) -> None:
        """Tell what became of a node that ran; others become ready or get their outcomes by that."""
        if isinstance(outcome, Failed):
            node.failed = outcome
        else:
            node.value = outcome
        self._settle(self._released(node))

    def counts(self) -> dict[str, int]:
        """How many nodes (inline ones aside) are where: served, to run or run, kept failures, skipped, open."""
        found = {"served": 0, "run": 0, "kept": 0, "skipped": 0, "open": 0}
        names = {"hit": "served", "cutoff": "served", "run": "run", "kept": "kept", "skipped": "skipped", None: "open"}
        for node in self.nodes.values():
            if not node.inline:
                found[names[node.how]] += 1
        return found


def _literal(leaves: Mapping[bytes, Leaf], digest: bytes) -> Any:
    leaf = leaves.get(digest)
    return b"".join(leaf.chunks()) if leaf is not None else None


def _outcome_value(node: Node, store: Store) -> Encoded:
    """The outcome of a node as an encoded value; a value is embedded as it is, without being read."""
    outcome = node.outcome()
    if outcome is not None:
        return encode_with_leaves(outcome)
    encoded = node.encoded
    if encoded is None:
        assert node.value is not None
        leaves = {digest: Leaf(digest, size, None) for digest, size in node.value.leaves}
        encoded = Encoded(store.manifest(node.value), leaves)
    return encode_with_leaves(Ok(RawValue(encoded)))


@attrs.frozen
class Plan:
    """What an evaluation of some roots would do now, as data; printing it tells a person.

    Attributes:
        hits: titles of expressions whose values are there.
        runs: expressions that would run, by recipe key: title, and whether a cut-off may still spare them.
        kept: titles of those whose recorded failure would be served.
        skipped: titles of those that would be skipped.
        reasons: why each of the `runs` would run.
    """

    hits: tuple[str, ...]
    runs: tuple[tuple[bytes, str, bool], ...]
    kept: tuple[str, ...]
    skipped: tuple[str, ...]
    reasons: Mapping[bytes, str]

    def __str__(self) -> str:
        return "\n".join([self.counts, *(self._line(*run) for run in reversed(self.runs))])

    @property
    def counts(self) -> str:
        """How many nodes would run, be served, keep their failures and be skipped, in words."""
        parts = [f"{len(self.runs)} to run", f"{len(self.hits)} served"]
        others = {"failures kept": len(self.kept), "skipped": len(self.skipped)}
        return ", ".join(parts + [f"{number} {what}" for what, number in others.items() if number])

    def _line(self, key: bytes, name: str, undecided: bool) -> str:
        spared = "; spared if its inputs come out equal" if undecided and key in self.reasons else ""
        return f"  run {name}  ({self.reasons.get(key, 'not evaluated before')}{spared})"


def plan_of(resolution: Resolution, reasons: Mapping[bytes, str]) -> Plan:
    """The plan that a resolution stands for before anything has run."""
    nodes = [node for node in resolution.nodes.values() if not node.inline]

    def titles(*hows: How) -> tuple[str, ...]:
        return tuple(title(node.expression) for node in nodes if node.how in hows)

    runs = tuple(
        (node.expression.key, title(node.expression), node.how is None) for node in nodes if node.how in ("run", None)
    )
    return Plan(titles("hit", "cutoff"), runs, titles("kept"), titles("skipped"), reasons)
