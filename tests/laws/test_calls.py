"""The quick answers about a call are those of `inspect` and of the type checker."""

from __future__ import annotations

import enum
import inspect
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping, Sequence, Set
from typing import Any, Literal, NamedTuple, NewType, Optional, Protocol, TypedDict, TypeVar, Union

import attrs
import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from marin_dsl import attempt, encodable, grid, op, secret
from marin_dsl.grids import Cell
from marin_dsl.operator.binding import Placement
from marin_dsl.operator.fitting import Fit
from marin_dsl.operator.signature import Signature, WrongCall, mismatch

NAMES = ("a", "b", "c", "d")
PARAMETER = inspect.Parameter
KINDS = [*[PARAMETER.POSITIONAL_OR_KEYWORD, PARAMETER.KEYWORD_ONLY] * 3, *type(PARAMETER.POSITIONAL_ONLY)]


class Point(NamedTuple):
    x: int


class Shaped(Protocol):
    def shape(self) -> tuple: ...


class Row(TypedDict):
    loss: float


@encodable
@attrs.frozen
class Sizes:
    width: Any = 1


class Wide(Sizes):
    pass


class Named(list):
    pass


class Color(enum.Enum):
    RED = 1


UserId = NewType("UserId", int)


@op(version="1")
def number() -> int:
    return 1


@op(version="1")
def text() -> str:
    return "a"


@st.composite
def signatures(draw) -> inspect.Signature:
    kinds = sorted(draw(st.lists(st.sampled_from(KINDS), max_size=4)))
    parameters, defaults_began = [], False
    for name, kind in zip(NAMES, kinds, strict=False):
        if kind in (PARAMETER.VAR_POSITIONAL, PARAMETER.VAR_KEYWORD):
            if any(each.kind is kind for each in parameters):
                continue
            parameters.append(PARAMETER(name, kind))
            continue
        optional = draw(st.booleans()) or (defaults_began and kind is not PARAMETER.KEYWORD_ONLY)
        defaults_began = defaults_began or optional
        parameters.append(PARAMETER(name, kind, default=f"default {name}" if optional else PARAMETER.empty))
    return inspect.Signature(parameters)


@settings(deadline=None, max_examples=500)
@example(inspect.Signature([PARAMETER("a", PARAMETER.POSITIONAL_OR_KEYWORD)]), [1], {"a": 2})
@given(
    signatures(),
    st.lists(st.integers(), max_size=4),
    st.dictionaries(st.sampled_from((*NAMES, "unknown")), st.integers(), max_size=4),
)
def test_a_call_is_bound_as_inspect_binds_it(parameters, args, kwargs):
    try:
        bound = parameters.bind(*args, **kwargs)
    except TypeError:
        with pytest.raises(WrongCall):
            signature_of(parameters).bind(tuple(args), kwargs, ("file", 1))
        return
    bound.apply_defaults()
    found = signature_of(parameters).bind(tuple(args), kwargs, ("file", 1))
    assert list(found.items()) == list(bound.arguments.items())
    placed = Placement.of(parameters).place(tuple(args), kwargs)
    by_position_only = {each.name for each in parameters.parameters.values() if each.kind is each.POSITIONAL_ONLY}
    assert placed == found or (placed is None and by_position_only & {*kwargs}), "a right call is always placed"


def signature_of(parameters: inspect.Signature) -> Signature:
    def function(*args, **kwargs): ...

    function.__signature__ = parameters
    return Signature.of(function, "function")


SCALARS = st.one_of(
    st.none(), st.booleans(), st.integers(-2, 2), st.floats(allow_nan=False, width=16), st.text(max_size=2),
    st.sampled_from([
        1j, b"x", (), (1, "a"), Point(1), Point("a"), Sizes(), Wide(), np.float64(0.5), np.arange(2), {1}, range(2),
        number(), text(), Sizes(text()), secret("env://TOKEN"), [secret("env://TOKEN")],
        grid(a=[1])(lambda a: number()),
    ]),
)  # fmt: skip
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.lists(inner, max_size=3).map(tuple),
        st.dictionaries(st.text(max_size=1) | st.integers(0, 1) | st.just(number()), inner, max_size=3),
        st.sets(st.integers(0, 2) | st.sampled_from(["a", True, number(), (1, "a")])),
        inner.map(Sizes),
    ),
    max_leaves=6,
)
PLAIN = (
    int, float, complex, bool, str, bytes, type(None), list, dict, tuple, set, range, object, Any, Sizes, Wide, Point,
    Shaped, Row, Named, Color, np.ndarray, np.ndarray[Any, np.dtype[np.int64]], Sequence, Mapping, Hashable, Cell[int],
    Literal[1], Literal["a", 1, None], Literal[True, Color.RED], TypeVar("T"), TypeVar("N", int, str), UserId,
    Iterator[int], tuple[()], Callable[[int], int], type[int],
)  # fmt: skip
COLLECTIONS = (list, set, frozenset, Sequence, Set, Collection, Iterable)
HINTS = st.recursive(
    st.sampled_from(PLAIN),
    lambda inner: st.one_of(
        st.tuples(st.sampled_from(COLLECTIONS), inner).map(lambda pair: pair[0][pair[1]]),
        inner.map(lambda kind: Optional[kind]),  # noqa: UP045 - a literal has no `|` with every other type
        st.tuples(inner, inner).map(lambda pair: Union[pair]),  # noqa: UP007
        st.tuples(inner, inner).map(lambda pair: dict[pair]),
        st.tuples(inner, inner).map(lambda pair: Mapping[pair]),
        st.tuples(inner, inner).map(lambda pair: tuple[pair]),
        inner.map(lambda kind: tuple[kind, ...]),
    ),
    max_leaves=4,
)


@settings(deadline=None, max_examples=10 * settings.default.max_examples)
@given(st.lists(VALUES, min_size=1, max_size=4), HINTS)
@example([Point("a")], Point)
@example([[number(), "a"]], list[int])
@example([{number(): 1}], dict[int, int])
@example([1, True], Literal[True, 2])
@example([{number()}], set[int])
@example([Named(["a"]), Named([number()])], Named)
def test_what_surely_fits_a_type_fits_it(values, hint):
    fits = Fit(hint)
    for value in [*values, *values]:  # what it has learnt of one value counts for the next
        if fits(value):
            assert mismatch(value, hint) is None


@pytest.mark.parametrize(
    ("value", "hint"),
    [
        (1, int), (True, int), (1, float), (0.5, float), (1, complex), ("a", str), (None, str | None), (1, int | str),
        ([1], list), ([1, 0.5], list[float]), (["a"], list[str] | None), ({"a": 1}, dict[str, float]), (Sizes(), Sizes),
        ([number()], list), ([Sizes()], list[Sizes]), ({"a": number(), "b": [1]}, dict[str, Any]), (Wide(), Sizes),
        (number(), int), (number(), float | None), (number(), Sequence[str]), (attempt(number()), int),
        ([number(), 1], Sequence[int]), ((1, "a"), tuple[int, str]), ((1, number()), tuple[int, ...]),
        ({"a": [number()]}, Mapping[str, Sequence[float]]), ({1, 2}, set[int]), (range(9), Sequence[int]),
        ("adam", Literal["adam", "muon"]), (1, Literal[1] | None), ([1, "a"], list[TypeVar("T")]), (1, object),
        (Sizes(number()), Sizes | None), (np.float64(1), float), (np.arange(2), np.ndarray[Any, np.dtype[np.int64]]),
        (Cell({}, number()), Cell[int]), ({"a": number()}, dict[Literal["a"], int]), ([], Sequence), (Color.RED, Color),
    ],
)  # fmt: skip
def test_what_is_common_is_answered_quickly(value, hint):
    assert Fit(hint)(value)


@pytest.mark.parametrize(
    ("value", "hint"),
    [
        ("a", int), (1, bool), (1.0, int), (["a"], list[int]), ({1: 1}, dict[str, int]), (Point("a"), Point),
        ((), list), (text(), int), ([text()], list[int]), ({number(): 1}, dict[int, int]), ({number()}, set[int]),
        ((1,), tuple[()]), (1, Literal[True]), ("sgd", Literal["adam"]), ([[]], list[Literal["a"]]),
        ((1, 2, 3), tuple[int, int]),
        (Sizes(), Wide), (grid(a=[1])(lambda a: number()), Hashable), ([{}], Sequence[Hashable]),
    ],
)  # fmt: skip
def test_what_may_not_fit_is_left_to_the_type_checker(value, hint):
    assert not Fit(hint)(value)
