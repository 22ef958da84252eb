"""What an expression consists of, before it is one: `Expression` itself refuses to be changed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from marin_dsl.encoding import Functions, Leaf
    from marin_dsl.expression.annotations import Annotations, Label
    from marin_dsl.expression.expression import Expression
    from marin_dsl.expression.inline import InlineOperator
    from marin_dsl.operator import Operator


class Fields:
    """The fields of an expression that is being built; turning its class makes it one that nobody can change.

    Graphs have many nodes: to go around the refusal for each field would take four times as long.

    Attributes:
        operator: what is applied.
        payload: the encoded arguments, cut at each reference to an expression (one piece more than references).
        references: the expressions among the arguments, in the order of the encoding.
        leaves: large literals among the arguments, by digest.
        functions: functions and classes that it needs in memory, by place and code: those among its arguments and
            those that inline nodes among them need.
        key: the recipe key, 32 bytes.
        annotations: how to evaluate it.
        label: the name that a person gave it, if any.
        origin: file and line where it was built.
        facts: encoded facts that are part of its identity and no argument (see `tagged`); empty without any.
        waits: what has to be evaluated before it, and is no part of its identity (see `after`).
        ordered: whether it, or anything below it, waits for something.
        labelled: whether it, or anything below it, has a label.
    """

    __slots__ = (
        "__weakref__",
        "annotations",
        "facts",
        "functions",
        "key",
        "label",
        "labelled",
        "leaves",
        "operator",
        "ordered",
        "origin",
        "payload",
        "references",
        "waits",
    )

    def __init__(
        self,
        operator: Operator[Any, Any] | InlineOperator,
        payload: tuple[bytes, ...],
        references: tuple[Expression[Any], ...],
        leaves: Mapping[bytes, Leaf],
        functions: Functions,
        key: bytes,
        annotations: Annotations,
        label: Label | None,
        origin: tuple[str, int] | None,
        facts: bytes,
        waits: tuple[Expression[Any], ...],
        ordered: bool,
        labelled: bool,
    ) -> None:
        self.operator = operator
        self.payload = payload
        self.references = references
        self.leaves = leaves
        self.functions = functions
        self.key = key
        self.annotations = annotations
        self.label = label
        self.origin = origin
        self.facts = facts
        self.waits = waits
        self.ordered = ordered
        self.labelled = labelled


NAMES = Fields.__slots__[1:]
"""The names of the fields."""
