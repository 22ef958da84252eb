"""What is there, what will run, and why: the descent from the roots through what a store already has.

`Resolution` holds what is known of each expression and is moved on by outcomes; it reads a store and never writes one.
`plan` is the resolution as far as it goes without running anything.
"""

from __future__ import annotations

import functools
import hashlib
from collections import deque
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Literal

import attrs

from marin_dsl.encoding import Encoded, Leaf, LeafMissing, RawValue, decode, encode, encode_with_leaves
from marin_dsl.expression import Expression, walk
from marin_dsl.inline import InlineOperator
from marin_dsl.keys import recipe_key, splice
from marin_dsl.outcome import Blame, Failed, Ok, Skipped, blame
from marin_dsl.performance import exception_name, exception_text
from marin_dsl.recipe import call_text, structure
from marin_dsl.store import ContentDamaged, Store, StoredValue
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
        digest: digest of its value, once it has one.
        failed: its failure, if it failed.
        because: failed ancestors, if it was skipped.
        culprits: the nodes that stand behind `because`.
        call: its call key, once its inputs are known.
        over_failure: whether its value was made from the outcome of something that failed (see `attempt`).
    """

    expression: Expression[Any]
    waiting: int = 0
    dependents: list[Node] = attrs.field(factory=list)
    how: How | None = None
    value: StoredValue | None = None
    encoded: Encoded | None = None
    digest: bytes | None = None
    failed: Failed | None = None
    because: tuple[Blame, ...] = ()
    culprits: tuple[Node, ...] = ()
    call: bytes | None = None
    over_failure: bool = False

    @functools.cached_property
    def record(self) -> dict[str, Any]:
        """The structure of the expression, as a store records it."""
        return structure(self.expression)

    @property
    def title(self) -> str:
        """What people call it."""
        return str(self.record["title"])

    @property
    def done(self) -> bool:
        """Whether it has an outcome."""
        return self.digest is not None or self.failed is not None or bool(self.because)

    @property
    def inline(self) -> bool:
        """Whether it is evaluated by whoever needs it, and never scheduled."""
        return isinstance(self.expression.operator, InlineOperator)

    def stored(self, value: StoredValue) -> None:
        """It has a value, in the store."""
        self.value, self.digest = value, value.digest

    def computed(self, encoded: Encoded) -> None:
        """It has a value, in no store."""
        self.encoded, self.digest = encoded, encoded.digest

    def blamed(self) -> tuple[Blame, ...]:
        """What its dependents are skipped because of: part of a value for those that attempt one, so without titles."""
        if self.failed is None:
            return self.because
        return blame(attrs.evolve(self.failed, operator=call_text(self.expression)))

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
        self._failures: dict[bytes, Failed] = {}
        self._opened: dict[bytes, Any] = {}
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
        if record is None or (record["over_failure"] and not self.keep_failures):
            return False  # what failed under it is tried again; if it fails alike, its dependents are cut off
        node.how, node.call, node.over_failure = "hit", call, record["over_failure"]
        node.stored(StoredValue.from_record(record["value"]))
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
        node.over_failure = any(found.over_failure or found.outcome() is not None for found in inputs)
        if isinstance(operator, InlineOperator) and operator.of_outcome:
            node.how = "inline"
            node.computed(_outcome_value(inputs[0], self.store))
            return
        because = {found: None for item in inputs for found in item.blamed()}
        if because:
            node.how, node.because = "skipped", tuple(because)
            culprits = [culprit for item in inputs for culprit in ((item,) if item.failed else item.culprits)]
            node.culprits = tuple({culprit.expression.key: culprit for culprit in culprits}.values())
        elif isinstance(operator, InlineOperator):
            node.how = "inline"
            self._evaluate_inline(node, operator, inputs)
        else:
            self._decide_call(node, inputs)

    def _decide_call(self, node: Node, inputs: list[Node]) -> None:
        digests = [found.digest or b"" for found in inputs]
        node.call = recipe_key(node.expression.identity, node.expression.payload, digests)
        record = self.store.result(node.call)
        if record is not None:
            node.how = "cutoff"
            node.stored(StoredValue.from_record(record["value"]))
            return
        failure = self.store.last_failure(node.call) if self.keep_failures else None
        if failure is not None:
            node.how, node.failed = "kept", failure_of(failure)
            return
        node.how = "run"
        node.failed = self._failures.get(node.call)  # another recipe has come to the same call in this run
        if node.failed is None:
            self.ready.append(node)

    def _evaluate_inline(self, node: Node, operator: InlineOperator, inputs: list[Node]) -> None:
        """The value of an inline node: a part of a value is passed on with its large leaves unread."""
        try:
            node.computed(self._part(node, operator, inputs) or self._applied(node, operator, inputs))
        except Exception as error:
            kind: Any = "lost" if isinstance(error, LeafMissing) else "raised"
            node.failed = Failed(kind, exception_name(error), exception_text(error), operator=node.title)

    def _applied(self, node: Node, operator: InlineOperator, inputs: list[Node]) -> Encoded:
        arguments = self._inline_arguments(node, inputs, self.load)
        return encode_with_leaves(operator.function(**arguments))

    def _part(self, node: Node, operator: InlineOperator, inputs: list[Node]) -> Encoded | None:
        """The value of a projection without reading leaves; None where that is not possible."""
        if operator.part is None:
            return None
        try:
            arguments = self._inline_arguments(node, inputs, self._open)
            found = encode_with_leaves(operator.part(**arguments))
        except Exception:
            return None  # whatever is wrong shows when it is tried on the whole value
        at_hand = {digest: leaf for item in inputs if item.encoded for digest, leaf in item.encoded.leaves.items()}
        return Encoded(found.data, {digest: at_hand.get(digest, leaf) for digest, leaf in found.leaves.items()})

    def _inline_arguments(self, node: Node, inputs: list[Node], load: Callable[[Node], Any]) -> dict[str, Any]:
        by_digest = {found.digest: found for found in inputs}
        found: dict[str, Any] = decode(
            splice(node.expression.payload, (item.digest or b"" for item in inputs)),
            read_leaf=self._leaf_reader(node.expression.leaves),
            reference=lambda digest: load(by_digest[digest]),
        )
        return found

    def _open(self, node: Node) -> Any:
        """The value of a node with its large leaves unread, to be looked at only.

        Raises:
            LookupError: its class makes something of the leaves when it is built, so that they cannot be left unread.
        """
        assert node.digest is not None
        if node.digest not in self._opened:
            manifest = node.encoded.data if node.encoded else self.store.manifest(_located(node))
            value = decode(manifest, read_leaf=self.store.read_leaf, lazy=True)
            if encode(value) != manifest:
                raise LookupError("the value is another one when its leaves are unread")
            while len(self._opened) >= _OPENED:
                del self._opened[next(iter(self._opened))]
            self._opened[node.digest] = value
        return self._opened[node.digest]

    def load(self, node: Node) -> Any:
        """The value of a node that has one."""
        if node.encoded is not None:
            return decode(node.encoded.data, read_leaf=self._leaf_reader(node.encoded.leaves))
        return self.store.get(_located(node))

    def _leaf_reader(self, leaves: Mapping[bytes, Leaf]) -> Callable[[bytes, int], Any]:
        def read(digest: bytes, size: int) -> Any:
            leaf = leaves.get(digest)
            return self.store.read_leaf(digest, size) if leaf is None or leaf.content is None else _content(leaf)

        return read

    def finish(self, node: Node, outcome: StoredValue | Failed) -> None:
        """Tell what became of a node that ran; others become ready or get their outcomes by that."""
        if isinstance(outcome, Failed):
            node.failed = outcome
            if node.call is not None:
                self._failures[node.call] = outcome
        else:
            node.stored(outcome)
        self._settle(self._released(node))

    def counts(self) -> dict[str, int]:
        """How many nodes (inline ones aside) are where: served, to run or run, kept failures, skipped, open."""
        found = {"served": 0, "run": 0, "kept": 0, "skipped": 0, "open": 0}
        names = {"hit": "served", "cutoff": "served", "run": "run", "kept": "kept", "skipped": "skipped", None: "open"}
        for node in self.nodes.values():
            if not node.inline:
                found[names[node.how]] += 1
        return found


_OPENED = 8
"""Values that are kept open for projections: those of one value mostly come one after the other."""


def _located(node: Node) -> StoredValue:
    assert node.value is not None
    return node.value


def _content(leaf: Leaf) -> Any:
    """The content of a literal or of a computed array, if it still is what it was when its digest was taken."""
    if isinstance(leaf.content, Path):
        found: Any = leaf.content
        digest = Leaf.of_file(leaf.content).digest
    else:
        found = b"".join(leaf.chunks())
        digest = hashlib.sha256(found).digest()
    if digest != leaf.digest:
        raise ContentDamaged(
            f"a large value ({leaf.size} bytes) changed after it became part of an expression; pass a copy, and leave "
            "files that a value refers to as they are"
        )
    return found


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
        runs: expressions that would run, inputs first: recipe key, title, and whether a cut-off may still spare them.
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
        return "\n".join([self.counts, *(self._line(*run) for run in self.runs)])

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
    known = (resolution.nodes.get(expression.key) for expression in walk(*resolution.roots))
    nodes = [node for node in known if node is not None and not node.inline]

    def titles(*hows: How) -> tuple[str, ...]:
        return tuple(node.title for node in nodes if node.how in hows)

    runs = tuple((node.expression.key, node.title, node.how is None) for node in nodes if node.how in ("run", None))
    return Plan(titles("hit", "cutoff"), runs, titles("kept"), titles("skipped"), reasons)
