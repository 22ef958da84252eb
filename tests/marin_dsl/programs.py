"""Small random programs: as expressions for the evaluator, and as plain Python for what must come out."""

from __future__ import annotations

from typing import Any

import attrs
from hypothesis import strategies as st

from marin_dsl import Expression, Failed, Ok, Skipped, attempt, op, tagged


@op(version="1")
def leaf(n: int) -> int:
    return n


@op(version="1")
def total(parts: list, bias: int = 0) -> int:
    return bias + sum(map(number, parts))


@op(version="1")
def pair(left, right) -> dict:
    return {"left": number(left), "right": number(right)}


@op(version="1")
def fail(parts: list, message: str, kind: str) -> int:
    raise FAULTS[kind](message)


class Odd(Exception):
    """Neither its text nor its payload is of any use to anybody."""

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.payload = lambda: message

    def __str__(self) -> str:
        raise RuntimeError("no text")


FAULTS: dict[str, Any] = {"value": ValueError, "exit": SystemExit, "memory": MemoryError, "odd": Odd}


def number(value: Any) -> int:
    """What an operator of these programs makes of its input: outcomes are data like any other."""
    if isinstance(value, Ok):
        return number(value.value) + 1
    if isinstance(value, Failed):
        return len(value.message)
    return -1 if isinstance(value, Skipped) else value


@attrs.frozen
class Step:
    """One node of a program: what it applies, to which earlier nodes, with what constant."""

    kind: str
    inputs: tuple[int, ...] = ()
    constant: Any = None


@st.composite
def programs(draw: st.DrawFn, steps: int = 12) -> list[Step]:
    """Random graphs of pure, failing and inline nodes, sharing and diamonds included."""
    found = [Step("leaf", (), draw(st.integers(-3, 3)))]
    for position in range(1, draw(st.integers(1, steps))):
        earlier = st.integers(0, position - 1)
        kind = draw(
            st.sampled_from(("leaf", "total", "total", "pair", "item", "missing", "add", "attempt", "fail", "tagged"))
        )
        inputs = {
            "leaf": st.just(()),
            "total": st.lists(earlier, max_size=3).map(tuple),
            "tagged": st.lists(earlier, max_size=2).map(tuple),
            "fail": st.lists(earlier, max_size=2).map(tuple),
            "attempt": st.tuples(earlier),
        }.get(kind, st.tuples(earlier, earlier))
        constant = (
            st.tuples(st.text(max_size=3), st.sampled_from(sorted(FAULTS))) if kind == "fail" else st.integers(0, 2)
        )
        found.append(Step(kind, draw(inputs), draw(constant)))
    return found


def build(program: list[Step]) -> list[Expression[Any]]:
    """The expressions of a program, one for each of its steps."""
    made: list[Any] = []
    for step in program:
        made.append(_built(step, [made[position] for position in step.inputs]))
    return made


def _built(step: Step, inputs: list[Expression[Any]]) -> Expression[Any]:
    match step.kind:
        case "leaf":
            return leaf(step.constant)
        case "total":
            return total(inputs, step.constant)
        case "pair":
            return pair(*inputs)["left"]
        case "item":
            return pair(*inputs)["right"]
        case "missing":
            return pair(*inputs)["middle"]
        case "add":
            return inputs[0] + inputs[1] * 2
        case "attempt":
            return attempt(inputs[0])
        case "tagged":
            return tagged(total(inputs), again=step.constant)
        case _:
            return fail(inputs, *step.constant)


@attrs.define
class Oracle:
    """Evaluates a program without any of the language: the outcome of each step, and which distinct calls that takes.

    Attributes:
        outcomes: for each step: `("ok", value)`, `("failed", exception, message)` or `("skipped", failed steps)`.
        calls: operators with their values, and inputs at the same place.
    """

    program: list[Step]
    outcomes: list[Any] = attrs.field(factory=list)
    calls: set[Any] = attrs.field(factory=set)

    @classmethod
    def of(cls, program: list[Step]) -> Oracle:
        oracle = cls(program)
        for step in program:
            oracle.outcomes.append(oracle._outcome(step))
        return oracle

    def _outcome(self, step: Step) -> Any:
        inputs = [self.outcomes[position] for position in step.inputs]
        if step.kind == "add":
            inputs[1] = _doubled(inputs[1])
        if step.kind == "attempt":
            return ("ok", inputs[0])
        blamed = frozenset(cause for found in inputs if found[0] != "ok" for cause in _causes(found))
        if blamed:
            return ("skipped", blamed)
        return self._applied(step, [found[1] for found in inputs])

    def _applied(self, step: Step, values: list[Any]) -> Any:
        numbers = [_number(value) for value in values]
        if step.kind != "add":
            name = {"item": "pair", "missing": "pair"}.get(step.kind, step.kind)
            self.calls.add((name, tuple(map(repr, values)), None if name == "pair" else step.constant))
        match step.kind:
            case "leaf":
                return ("ok", step.constant)
            case "total":
                return ("ok", step.constant + sum(numbers))
            case "tagged":
                return ("ok", sum(numbers))
            case "pair":
                return ("ok", numbers[0])
            case "item":
                return ("ok", numbers[1])
            case "missing":
                return ("failed", "KeyError", "'middle'")
            case "add":
                return _added(*values)
            case _:
                return ("failed", *_fault(*step.constant))


def _causes(found: Any) -> Any:
    return found[1] if found[0] == "skipped" else (found[1:],)


def _number(value: Any) -> int:
    if isinstance(value, tuple):
        return {"ok": lambda: _number(value[1]) + 1, "failed": lambda: len(value[2]), "skipped": lambda: -1}[value[0]]()
    return value


def _doubled(found: Any) -> Any:
    """The product in `left + right * 2` is a node of its own."""
    if found[0] != "ok":
        return ("skipped", frozenset(_causes(found)))
    return _arithmetic("*", found[1], 2, lambda left, right: left * right)


def _added(left: Any, right: Any) -> Any:
    return _arithmetic("+", left, right, lambda left, right: left + right)


def _arithmetic(sign: str, left: Any, right: Any, apply: Any) -> Any:
    names = {"ok": "Ok", "failed": "Failed", "skipped": "Skipped"}
    kinds = [names[value[0]] if isinstance(value, tuple) else "int" for value in (left, right)]
    if kinds != ["int", "int"]:
        return ("failed", "TypeError", f"unsupported operand type(s) for {sign}: '{kinds[0]}' and '{kinds[1]}'")
    return ("ok", apply(left, right))


def _fault(message: str, kind: str) -> tuple[str, str]:
    if kind == "odd":
        return f"{Odd.__module__}.Odd", "(its message cannot be shown: RuntimeError in __str__)"
    return FAULTS[kind].__name__, message


def plain(outcome: Any) -> Any:
    """An outcome in the form in which the oracle says it."""
    if isinstance(outcome, Ok):
        value = outcome.value
        return ("ok", plain(value) if isinstance(value, Ok | Failed | Skipped) else value)
    if isinstance(outcome, Failed):
        return ("failed", outcome.exception, outcome.message)
    return ("skipped", frozenset((cause.exception, cause.message) for cause in outcome.because))
