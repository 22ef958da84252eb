"""What is known of one expression while it is planned or evaluated."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any, Literal

import attrs

from marin_dsl.encoding import Encoded
from marin_dsl.expression import Expression
from marin_dsl.expression.inline import InlineOperator
from marin_dsl.expression.recipe import call_text, structure
from marin_dsl.operator import Operator
from marin_dsl.outcome import Blame, Failed, Skipped, blame
from marin_dsl.store import StoredValue

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
        led: the call that it led to when it was evaluated last, whether that was volatile, and what code made it; None
            if it never was.
        made_by: what stands for the code of the versioned operators that its value is made by (see `plan.code_drift`);
            None where that was not recorded.
        stands_for: why its value is that of another expression, if somebody said so (see `labels.same`).
        missed: whether it was found out just now that its call has no result.
        volatile: whether its value was made from something that is asked for anew in each run.
        verifies: whether it has a result, and runs anew to be compared with that.
        continuation: the node whose outcome is its own, for one that goes on with another expression.
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
    led: tuple[bytes, bool, bytes | None] | None = None
    made_by: bytes | None = None
    stands_for: dict[str, str] | None = None
    missed: bool = False
    volatile: bool = False
    reaches: bool = False
    verifies: bool = False
    continuation: Node | None = None

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

    @property
    def impure(self) -> bool:
        """Whether its operator is called anew in each run."""
        operator = self.expression.operator
        return isinstance(operator, Operator) and operator.impure

    @property
    def went_on_over_failure(self) -> bool:
        """Whether what it went on with was made from the outcome of something that failed."""
        other = self.continuation
        return other is not None and (other.over_failure or other.outcome() is not None)

    def stored(self, value: StoredValue) -> None:
        """It has a value, in the store."""
        self.value, self.digest = value, value.digest

    def skipped(self, inputs: Sequence[Node]) -> None:
        """It has no value, because inputs of it have none."""
        self.how = "skipped"
        self.because = tuple({found: None for item in inputs for found in item.blamed()})
        culprits = [culprit for item in inputs for culprit in ((item,) if item.failed else item.culprits)]
        self.culprits = tuple({culprit.expression.key: culprit for culprit in culprits}.values())

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
