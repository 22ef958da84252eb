"""Hypothesis strategies for values: whatever can be an argument or a result of an operator."""

from __future__ import annotations

import datetime
import decimal
import functools
import math
import operator
from typing import Any

import numpy as np
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp


@functools.cache
def values(*, max_leaves: int = 15) -> st.SearchStrategy[Any]:
    """Any value that can be an argument or a result of an operator, users' classes and files apart.

    Args:
        max_leaves: about how many parts without parts a value has at most.
    """
    return st.recursive(scalars() | arrays(), _containers, max_leaves=max_leaves)


@functools.cache
def scalars() -> st.SearchStrategy[Any]:
    """Values without parts: NaN, negative zeros, lone surrogates, integers of any size, moments in time zones."""
    return st.one_of(
        hashable_scalars(),
        st.floats(),
        st.complex_numbers(),
        st.decimals(),
        st.sampled_from([decimal.Decimal(text) for text in ("sNaN", "-sNaN12", "NaN7", "-0E+5", "Infinity")]),
        array_scalars(),
    )


@functools.cache
def hashable_scalars() -> st.SearchStrategy[Any]:
    """Values without parts that can be dict keys and members of sets (NaN cannot: it does not equal itself)."""
    return st.one_of(
        st.none(),
        st.booleans(),
        st.integers(),
        st.integers(min_value=-(1 << 200), max_value=1 << 200),
        st.floats(allow_nan=False),
        st.complex_numbers(allow_nan=False),
        st.text(),
        st.text(st.characters()),
        st.binary(),
        st.fractions(),
        st.decimals(allow_nan=False),
        st.uuids(),
        st.dates(),
        st.timedeltas(),
        moments(),
        ranges(),
        st.sampled_from([len, sorted, int, dict, operator.add, math.sin, np.add, np.mean, np.float32]),
    )


@functools.cache
def moments() -> st.SearchStrategy[datetime.datetime]:
    """Moments in named zones and at fixed offsets, ambiguous and skipped ones included."""
    day = datetime.timedelta(days=1)
    offsets = st.timedeltas(min_value=-day, max_value=day).filter(lambda offset: -day < offset < day)
    return st.datetimes(timezones=st.timezones() | st.builds(datetime.timezone, offsets))


def ranges() -> st.SearchStrategy[range]:
    """Ranges, empty and downward ones included."""
    end = st.integers(min_value=-(1 << 70), max_value=1 << 70)
    return st.builds(range, end, end, end.filter(bool))


@functools.cache
def array_scalars() -> st.SearchStrategy[Any]:
    """Scalars of NumPy."""
    return dtypes().flatmap(lambda dtype: hnp.arrays(dtype, ())).map(lambda array: array[()])


@functools.cache
def dtypes() -> st.SearchStrategy[np.dtype[Any]]:
    """Dtypes that have an encoding, of both byte orders."""
    return st.one_of(
        hnp.boolean_dtypes(),
        hnp.integer_dtypes(),
        hnp.unsigned_integer_dtypes(),
        hnp.floating_dtypes(sizes=(16, 32, 64)),
        hnp.complex_number_dtypes(sizes=(64, 128)),
        hnp.datetime64_dtypes(),
        hnp.timedelta64_dtypes(),
        hnp.unicode_string_dtypes(max_len=4),
        hnp.byte_string_dtypes(max_len=4),
    )


@functools.cache
def arrays() -> st.SearchStrategy[np.ndarray[Any, Any]]:
    """Arrays of any encodable dtype, without elements, without dimensions, transposed and strided ones included."""
    shapes = hnp.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=4)
    views = st.sampled_from([lambda a: a, lambda a: a.T, lambda a: a[..., ::-1] if a.ndim else a, np.asfortranarray])
    return st.builds(lambda view, array: view(array), views, hnp.arrays(dtypes(), shapes))


def _containers(parts: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    keys = _keys()
    return st.one_of(
        st.lists(parts, max_size=5),
        st.lists(parts, max_size=5).map(tuple),
        st.dictionaries(keys, parts, max_size=5),
        st.sets(keys, max_size=5),
        st.frozensets(keys, max_size=5),
    )


@functools.cache
def _keys() -> st.SearchStrategy[Any]:
    single = hashable_scalars()
    return single | st.tuples(single, single) | st.frozensets(single, max_size=3)
