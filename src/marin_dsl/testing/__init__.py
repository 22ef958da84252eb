"""Property-based tests of your own operators and graphs, with Hypothesis.

>>> from hypothesis import given
>>> from marin_dsl import op
>>> from marin_dsl.testing import assert_pure, same, values
>>> @op
... def twice(value: object) -> list:
...     return [value, value]
>>> @given(values())
... def test_it_is_pure_and_changes_nothing(value):
...     assert_pure(twice, value)
...     assert same(twice.function(value)[0], value)
>>> test_it_is_pure_and_changes_nothing()
"""

from marin_dsl.testing.graphs import expressions
from marin_dsl.testing.purity import Impure, assert_pure
from marin_dsl.testing.sameness import same
from marin_dsl.testing.strategies import (
    array_scalars,
    arrays,
    dtypes,
    hashable_scalars,
    moments,
    ranges,
    scalars,
    values,
)

__all__ = [
    "Impure",
    "array_scalars",
    "arrays",
    "assert_pure",
    "dtypes",
    "expressions",
    "hashable_scalars",
    "moments",
    "ranges",
    "same",
    "scalars",
    "values",
]
