"""What a store keeps of expressions: their structure, and which calls and which other expressions they led to."""

from __future__ import annotations

from typing import Any

from marin_dsl.expression import Expression, walk
from marin_dsl.expression.inline import Choice
from marin_dsl.expression.recipe import structure
from marin_dsl.operator import Operator
from marin_dsl.planning.node import Node
from marin_dsl.store import Store
from marin_dsl.store.heartbeat import SHORT
from marin_dsl.worker.task import Answer


class Recorder:
    """Records the expressions of one evaluation.

    A call without inputs is known by its recipe key, so that one record can say what it is and what came of it: that
    halves the work of a store for a short call. Of such calls the expression is recorded with the result, or else as
    soon as it is known that this may take a while: when it begins and calls of the kind were not short so far, when it
    has begun and nothing happens for a moment, and when the evaluation stops.

    Args:
        store: where they are recorded.
    """

    def __init__(self, store: Store) -> None:
        self.store = store
        self._operators: dict[bytes, dict[str, Any]] = {}
        self._recorded: set[bytes] = set()
        self._waiting: dict[bytes, Node] = {}
        self._handed_out: set[bytes] = set()
        self._begun: set[bytes] = set()
        self._lasted: dict[bytes, float] = {}

    def found(self, node: Node, *, unless_known: bool) -> None:
        """Record the structure of an expression that was demanded, and of what it chooses from.

        Args:
            node: the expression.
            unless_known: look first whether it is recorded.
        """
        if node.how == "hit":
            return
        if node.how == "run" and node.call == node.expression.key and node.led is None:
            self._waiting[node.call] = node
            return
        self._recipe(node.expression, node.record, unless_known)
        if isinstance(node.expression.operator, Choice):
            # What is not chosen is never demanded, and part of the recipe all the same.
            for expression in walk(*node.expression.references):
                if expression.key not in self._recorded:
                    self._recipe(expression, structure(expression), True)

    def handed_out(self, node: Node) -> dict[str, Any] | None:
        """The structure that is to be recorded with the result of a call, now that it is given to a worker."""
        if node.call not in self._waiting:
            return None
        self._handed_out.add(node.call)
        return self._structure(node.expression, node.record)

    def running(self, call: bytes) -> None:
        """A worker has begun with a call."""
        node = self._waiting.get(call)
        if node is None:
            return
        if self._lasted.get(node.expression.operator.identity, SHORT) >= SHORT:
            self._record(call)
        else:
            self._begun.add(call)

    def answered(self, node: Node, answer: Answer) -> None:
        """A worker has said what became of a call."""
        operator = node.expression.operator.identity
        self._lasted[operator] = max(answer.seconds, self._lasted.get(operator, 0.0) / 2)
        key = node.expression.key
        if key in self._handed_out and answer.ran and answer.stored is not None:
            self._waiting.pop(key, None)
        elif key in self._waiting:
            self._record(key)
        self._handed_out.discard(key)
        self._begun.discard(key)

    def idle(self) -> None:
        """No result has come for a moment: calls that have begun are not short."""
        for call in self._begun:
            if call in self._waiting:
                self._record(call)
        self._begun.clear()

    def catch_up(self) -> None:
        """Record whatever waits for its result."""
        for call in list(self._waiting):
            self._record(call)

    def _record(self, call: bytes) -> None:
        node = self._waiting.pop(call)
        self._recipe(node.expression, node.record, False)

    def decided(self, node: Node) -> None:
        """Record what an expression led to."""
        if node.continuation is not None:
            self.store.put_continuation(node.expression.key, node.continuation.expression.key)
        self.call(node)

    def call(self, node: Node) -> None:
        """Record the call that an expression led to."""
        if node.call is not None and node.how != "hit" and node.led != (node.call, node.volatile, node.made_by):
            node.led = node.call, node.volatile, node.made_by
            if node.call == node.expression.key and not node.reaches:
                return  # a call without inputs is known by its recipe key
            self.store.put_call(node.expression.key, node.call, volatile=node.volatile, made_by=node.made_by)

    def _recipe(self, expression: Expression[Any], record: dict[str, Any], unless_known: bool) -> None:
        self._recorded.add(expression.key)
        if unless_known and self.store.recipe(expression.key) is not None:
            return
        self.store.put_recipe(expression.key, self._structure(expression, record))

    def _structure(self, expression: Expression[Any], record: dict[str, Any]) -> dict[str, Any]:
        """A record of an expression, with the source text of its operator."""
        operator = expression.operator
        if not isinstance(operator, Operator):
            return record
        if operator.identity not in self._operators:
            listing = self.store.put(operator.code.listing).as_record()
            self._operators[operator.identity] = {**record["operator"], "listing": listing}
        return {**record, "operator": self._operators[operator.identity]}
