"""The digest of anything that has one."""

from __future__ import annotations

from typing import Any

from marin_dsl.encoding import encode_with_leaves, format_digest
from marin_dsl.expression import Expression
from marin_dsl.operator.current import by_current_code


def digest(value: Any) -> str:
    """The identity of a value (the digest of its encoding) or of an expression (its recipe key).

    >>> digest(1) == digest(1.0)
    False

    Raises:
        Unencodable: it is no value.
    """
    if isinstance(value, Expression):
        return format_digest(by_current_code([value])[0].key)
    return format_digest(encode_with_leaves(value).digest)
