"""What a store keeps of expressions: their structure, and which calls and which other expressions they led to."""

from __future__ import annotations

from typing import Any

from marin_dsl.expression import Expression, walk
from marin_dsl.expression.inline import Choice
from marin_dsl.expression.recipe import structure
from marin_dsl.operator import Operator
from marin_dsl.planning.node import Node
from marin_dsl.store import Store


class Recorder:
    """Records the expressions of one evaluation.

    Args:
        store: where they are recorded.
    """

    def __init__(self, store: Store) -> None:
        self.store = store
        self._listings: dict[bytes, dict[str, Any]] = {}
        self._recorded: set[bytes] = set()

    def found(self, node: Node, *, unless_known: bool) -> None:
        """Record the structure of an expression that was demanded, and of what it chooses from.

        Args:
            node: the expression.
            unless_known: look first whether it is recorded.
        """
        if node.how == "hit":
            return
        self._recipe(node.expression, node.record, unless_known)
        if isinstance(node.expression.operator, Choice):
            # What is not chosen is never demanded, and part of the recipe all the same.
            for expression in walk(*node.expression.references):
                if expression.key not in self._recorded:
                    self._recipe(expression, structure(expression), True)

    def decided(self, node: Node) -> None:
        """Record what an expression led to."""
        if node.continuation is not None:
            self.store.put_continuation(node.expression.key, node.continuation.expression.key)
        self.call(node)

    def call(self, node: Node) -> None:
        """Record the call that an expression led to."""
        if node.call is not None and node.how != "hit" and node.led != (node.call, node.volatile, node.made_by):
            node.led = node.call, node.volatile, node.made_by
            if node.call == node.expression.key:
                return  # a call without inputs is known by its recipe key
            self.store.put_call(node.expression.key, node.call, volatile=node.volatile, made_by=node.made_by)

    def _recipe(self, expression: Expression[Any], record: dict[str, Any], unless_known: bool) -> None:
        self._recorded.add(expression.key)
        if unless_known and self.store.recipe(expression.key) is not None:
            return
        operator = expression.operator
        if isinstance(operator, Operator):
            if operator.identity not in self._listings:
                self._listings[operator.identity] = self.store.put(operator.code.listing).as_record()
            record = {**record, "operator": {**record["operator"], "listing": self._listings[operator.identity]}}
        self.store.put_recipe(expression.key, record)
