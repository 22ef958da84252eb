"""Small random programs: as expressions for the evaluator, and as plain Python for what must come out."""

from __future__ import annotations

from typing import Any

import attrs
from hypothesis import strategies as st

from marin_dsl import Expression, Failed, Ok, Skipped, after, at_least, attempt, op, tagged, when


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


@op(version="1")
def listed(parts: list) -> list:
    return [number(part) for part in parts]


@op(version="1")
def bump(n: int, by: int) -> int:
    if n < 0:
        raise ValueError("negative")
    return n + by


@op(version="1")
def unfold(parts: list, depth: int):
    """Goes on with another call of itself, which may fail on the way."""
    n = sum(map(number, parts))
    if depth == 0:
        return n
    return {"unfolded": unfold([leaf(n + 1)] if n % 3 else [fail([], "third", "value")], depth - 1)}


@op(version="1")
def ordered(parts: list, place: int) -> int:
    return place + sum(map(number, parts))


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
    if isinstance(value, list | dict):
        return sum(map(number, value.values() if isinstance(value, dict) else value))
    return -1 if isinstance(value, Skipped) else value


@attrs.frozen
class Step:
    """One node of a program: what it applies, to which earlier nodes, with what constant."""

    kind: str
    inputs: tuple[int, ...] = ()
    constant: Any = None


STATIC = ("leaf", "total", "total", "pair", "item", "missing", "add", "attempt", "fail", "tagged")
DYNAMIC = ("when", "recover", "at_least", "map", "unfold", "after")


@st.composite
def programs(draw: st.DrawFn, steps: int = 12, *, dynamic: bool = True) -> list[Step]:
    """Random graphs of pure, failing and inline nodes, sharing and diamonds included.

    Args:
        draw: how hypothesis draws.
        steps: how many nodes at most.
        dynamic: whether there are nodes that decide while they are evaluated what to go on with.
    """
    kinds = (*STATIC, *DYNAMIC) if dynamic else STATIC
    found = [Step("leaf", (), draw(st.integers(-3, 3)))]
    for position in range(1, draw(st.integers(1, steps))):
        earlier = st.integers(0, position - 1)
        kind = draw(st.sampled_from(kinds))
        inputs = {
            "leaf": st.just(()),
            "total": st.lists(earlier, max_size=3).map(tuple),
            "tagged": st.lists(earlier, max_size=2).map(tuple),
            "fail": st.lists(earlier, max_size=2).map(tuple),
            "attempt": st.tuples(earlier),
            "when": st.tuples(earlier, earlier, earlier),
            "at_least": st.lists(earlier, min_size=2, max_size=4).map(tuple),
            "map": st.lists(earlier, max_size=3).map(tuple),
            "unfold": st.lists(earlier, max_size=2).map(tuple),
        }.get(kind, st.tuples(earlier, earlier))
        constant = (
            st.tuples(st.text(max_size=3), st.sampled_from(sorted(FAULTS))) if kind == "fail" else st.integers(0, 2)
        )
        found.append(Step(kind, draw(inputs), position if kind == "after" else draw(constant)))
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
        case "when":
            return when(inputs[0], inputs[1], [inputs[2], 7])
        case "recover":
            return inputs[0].recover(inputs[1])
        case "at_least":
            return at_least(step.constant, inputs)
        case "map":
            return bump.map(listed(inputs), by=step.constant)
        case "unfold":
            return unfold(inputs, step.constant)
        case "after":
            return after(ordered(inputs[:1], step.constant), inputs[1])
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
        if step.kind == "at_least":
            return _at_least(step.constant, inputs)
        if step.kind == "recover":
            return inputs[0] if inputs[0][0] == "ok" else _passed_on(inputs[1])
        if step.kind == "when":
            return _chosen(*inputs)
        blamed = frozenset(cause for found in inputs if found[0] != "ok" for cause in _causes(found))
        if blamed:
            return ("skipped", blamed)
        return self._applied(step, [found[1] for found in inputs])

    def _applied(self, step: Step, values: list[Any]) -> Any:
        numbers = [_number(value) for value in values]
        if step.kind == "map":
            return self._mapped(values, numbers, step.constant)
        if step.kind == "unfold":
            return self._unfolded(values, numbers, step.constant)
        if step.kind == "after":
            values, numbers = values[:1], numbers[:1]
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
            case "after":
                return ("ok", step.constant + sum(numbers))
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

    def _mapped(self, values: list[Any], numbers: list[int], by: int) -> Any:
        self.calls.add(("listed", tuple(map(repr, values)), None))
        self.calls |= {("bump", (repr(element),), by) for element in numbers}
        if any(element < 0 for element in numbers):
            return ("skipped", frozenset({("ValueError", "negative")}))
        return ("ok", [element + by for element in numbers])

    def _unfolded(self, values: list[Any], numbers: list[int], depth: int) -> Any:
        self.calls.add(("unfold", tuple(map(repr, values)), depth))
        n = sum(numbers)
        if depth == 0:
            return ("ok", n)
        if n % 3 == 0:
            self.calls.add(("fail", (), ("third", "value")))
            return ("skipped", frozenset({("ValueError", "third")}))
        self.calls.add(("leaf", (), n + 1))
        inner = self._unfolded([n + 1], [n + 1], depth - 1)
        return ("ok", {"unfolded": inner[1]}) if inner[0] == "ok" else inner


def _at_least(n: int, inputs: list[Any]) -> Any:
    found = [outcome[1] for outcome in inputs if outcome[0] == "ok"]
    if len(found) >= n:
        return ("ok", found)
    message = f"{len(found)} of {len(inputs)} expressions have a value, and at_least asks for {n}"
    return ("failed", "marin_dsl.expression.inline.TooFew", message)


def _chosen(condition: Any, then: Any, otherwise: Any) -> Any:
    if condition[0] != "ok":
        return _passed_on(condition)
    if condition[1]:
        return _passed_on(then)
    return ("ok", [otherwise[1], 7]) if otherwise[0] == "ok" else _passed_on(otherwise)


def _passed_on(outcome: Any) -> Any:
    """The outcome of what goes on with something of this outcome."""
    return outcome if outcome[0] == "ok" else ("skipped", frozenset(_causes(outcome)))


def _causes(found: Any) -> Any:
    return found[1] if found[0] == "skipped" else (found[1:],)


def _number(value: Any) -> int:
    if isinstance(value, list | dict):
        return sum(map(_number, value.values() if isinstance(value, dict) else value))
    if isinstance(value, tuple):
        return {"ok": lambda: _number(value[1]) + 1, "failed": lambda: len(value[2]), "skipped": lambda: -1}[value[0]]()
    return value


def _doubled(found: Any) -> Any:
    """The product in `left + right * 2` is a node of its own."""
    if found[0] != "ok":
        return ("skipped", frozenset(_causes(found)))
    return _arithmetic(found[1], 2, lambda left, right: left * right)


def _added(left: Any, right: Any) -> Any:
    return _arithmetic(left, right, lambda left, right: left + right)


def _arithmetic(left: Any, right: Any, apply: Any) -> Any:
    try:
        return ("ok", apply(*(_OPERANDS[value[0]] if isinstance(value, tuple) else value for value in (left, right))))
    except TypeError as error:
        return ("failed", "TypeError", str(error))


_OPERANDS = {"ok": Ok(), "failed": Failed("raised", "", ""), "skipped": Skipped(())}
"""What stands for an outcome in arithmetic, which takes none of them."""


def _fault(message: str, kind: str) -> tuple[str, str]:
    if kind == "odd":
        return f"{Odd.__module__}.Odd", "(its message cannot be shown: RuntimeError in __str__)"
    return FAULTS[kind].__name__, message


def plain(outcome: Any) -> Any:
    """An outcome in the form in which the oracle says it."""
    if isinstance(outcome, Ok):
        return ("ok", _plain_value(outcome.value))
    if isinstance(outcome, Failed):
        return ("failed", outcome.exception, _message(outcome.message))
    return ("skipped", frozenset((cause.exception, _message(cause.message)) for cause in outcome.because))


def _plain_value(value: Any) -> Any:
    if isinstance(value, list):
        return [_plain_value(item) for item in value]
    if isinstance(value, dict):
        return {name: _plain_value(item) for name, item in value.items()}
    return plain(value) if isinstance(value, Ok | Failed | Skipped) else value


def _message(text: str) -> str:
    """A message without the example of what failed."""
    return text.partition("; without one: ")[0]
