"""The equations of traced programs: which operations there are, and how."""

from collections.abc import Iterator
from typing import Any

import jax


def equations(jaxpr: Any) -> Iterator[Any]:
    """All equations, those of inner programs too."""
    for equation in jaxpr.eqns:
        yield equation
        for inner in jax.tree.leaves(list(equation.params.values()), is_leaf=lambda leaf: hasattr(leaf, "eqns")):
            inner = getattr(inner, "jaxpr", inner)
            if hasattr(inner, "eqns"):
                yield from equations(inner)


def products(function, *arguments) -> set[tuple]:
    """The precision and the dtype of sums, of each matrix product of a function."""
    found = _products(function, *arguments)
    return {(_precision(one.params["precision"]), one.outvars[0].aval.dtype.name) for one in found}


def factors(function, *arguments) -> set[tuple]:
    """The precision and the dtypes of both factors, of each matrix product of a function."""
    found = _products(function, *arguments)
    return {(_precision(one.params["precision"]), *(x.aval.dtype.name for x in one.invars[:2])) for one in found}


def _products(function, *arguments) -> list[Any]:
    traced = jax.make_jaxpr(function)(*arguments)
    found = [one for one in equations(traced.jaxpr) if one.primitive.name in ("dot_general", "ragged_dot_general")]
    assert found, "no product is computed"
    return found


def _precision(given) -> str:
    """JAX names it for both factors, or once."""
    each = {
        jax.lax.Precision.DEFAULT if one is None else one for one in (given if isinstance(given, tuple) else (given,))
    }
    return "/".join(sorted(one.name for one in each))
