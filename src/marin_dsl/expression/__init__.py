"""The immutable graph of an experiment: expressions, how they are put together, and what is said of them."""

from marin_dsl.expression.expression import (
    Expression,
    NoValueYet,
    arguments_of,
    caller,
    encode_arguments,
    walk,
)

__all__ = [
    "Expression",
    "NoValueYet",
    "arguments_of",
    "caller",
    "encode_arguments",
    "walk",
]
