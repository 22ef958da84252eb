"""The quick answers about a call are those of `inspect` and of the type checker."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from typing import Any, Literal, NamedTuple, Optional, Protocol, TypedDict

import attrs
import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from marin_dsl import encodable, grid, op
from marin_dsl.binding import Placement, surely_fits
from marin_dsl.signature import Signature, WrongCall, mismatch

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
    placement = Placement.of(parameters)
    assert placement is None or placement.place(tuple(args), kwargs) == found, "a right call is always placed"


def signature_of(parameters: inspect.Signature) -> Signature:
    def function(*args, **kwargs): ...

    function.__signature__ = parameters
    return Signature.of(function, "function")


SCALARS = st.one_of(
    st.none(), st.booleans(), st.integers(-2, 2), st.floats(allow_nan=False, width=16), st.text(max_size=2),
    st.sampled_from([
        1j, b"x", (), (1, "a"), Point(1), Point("a"), Sizes(), Wide(), np.float64(0.5), np.arange(2), {1}, range(2),
        number(), text(), Sizes(text()), grid(a=[1])(lambda a: number()),
    ]),
)  # fmt: skip
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=1) | st.integers(0, 1), inner),
    max_leaves=6,
)
PLAIN = (
    int, float, complex, bool, str, bytes, type(None), list, dict, tuple, object, Any, Sizes, Wide, Point, Shaped, Row,
    np.ndarray, Literal[1], Sequence[int], Mapping[str, int], tuple[int, str],
)  # fmt: skip
HINTS = st.recursive(
    st.sampled_from(PLAIN),
    lambda inner: st.one_of(
        inner.map(lambda kind: list[kind]),
        inner.map(lambda kind: Optional[kind]),  # noqa: UP045 - a literal has no `|` with every other type
        st.tuples(inner, inner).map(lambda pair: dict[pair]),
    ),
    max_leaves=3,
)


@settings(deadline=None, max_examples=500)
@given(VALUES, HINTS)
@example(Point("a"), Point)
@example([number(), "a"], list[int])
@example({number(): 1}, dict[int, int])
def test_what_surely_fits_a_type_fits_it(value, hint):
    if surely_fits(hint)(value):
        assert mismatch(value, hint) is None


@pytest.mark.parametrize(
    ("value", "hint"),
    [
        (1, int), (True, int), (1, float), (0.5, float), (1, complex), ("a", str), (None, str | None), (1, int | str),
        ([1], list), ([1, 0.5], list[float]), (["a"], list[str] | None), ({"a": 1}, dict[str, float]), (Sizes(), Sizes),
        ([number()], list), ([Sizes()], list[Sizes]), ({"a": number(), "b": [1]}, dict[str, Any]),
    ],
)  # fmt: skip
def test_what_is_common_is_answered_quickly(value, hint):
    assert surely_fits(hint)(value)


@pytest.mark.parametrize(
    ("value", "hint"),
    [("a", int), (1, bool), (1.0, int), (["a"], list[int]), ({1: 1}, dict[str, int]), (Point("a"), Point), ((), list)],
)
def test_what_may_not_fit_is_left_to_the_type_checker(value, hint):
    assert not surely_fits(hint)(value)
