"""An expression as a record: what a store keeps of its structure, readable without the project's code."""

from __future__ import annotations

import base64
import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import attrs

from marin_dsl.encoding import BoundLeaf, Named, NamedFunction, decode, format_digest, leaves_of, parse_digest
from marin_dsl.encoding.leaves import LazyContent
from marin_dsl.encoding.plain import PLAIN
from marin_dsl.expression import Expression
from marin_dsl.expression.keys import splice
from marin_dsl.operator import Operator

_TOLD = (str, int, float, NamedFunction)
"""What a title tells of a call's arguments."""

Lookup = Callable[[bytes], dict[str, Any] | None]
"""From a recipe key to the recorded structure, or None when it is not known."""


@attrs.frozen
class Reference:
    """The place of an expression among decoded arguments."""

    key: bytes


def structure(expression: Expression[Any]) -> dict[str, Any]:
    """The record of an expression; those it refers to are recorded on their own.

    The place of its operator's source text (`listing`) is left open. Most have neither facts nor a label, and say
    nothing of them.
    """
    record: dict[str, Any] = {
        "operator": _operator_record(expression.operator),
        "payload": [base64.b64encode(piece).decode() for piece in expression.payload],
        "references": [format_digest(reference.key) for reference in expression.references],
        "title": title(expression),
    }
    if expression.facts:
        record["facts"] = base64.b64encode(expression.facts).decode()
    if expression.label:
        record["label"] = str(expression.label)
    return record


@functools.lru_cache(1024)
def _operator_record(operator: Any) -> dict[str, Any]:
    """What is recorded of an operator: one dict for all of its calls, which nobody changes."""
    record: dict[str, Any] = {"name": operator.name, "identity": format_digest(operator.identity)}
    if isinstance(operator, Operator):
        record |= {
            "inline": False,
            "version": operator.version,
            "code": format_digest(operator.code.digest),
            "pinned": operator.pinned,
            "listing": None,
        }
        if operator.code.opaque:
            record["unseen"] = unseen(operator.code.opaque)
    else:
        record["inline"] = True
    return record


def unseen(opaque: Sequence[str]) -> list[str]:
    """What the identity of an operator's code could not see, in a few short sentences; of many, how many more.

    >>> unseen([f"f: getattr() number {number}" for number in range(9)])[-2:]
    ['f: getattr() number 4', 'and 4 more']
    """
    told = [shortened(sentence, _SENTENCE) for sentence in opaque[:_SENTENCES]]
    return told + ([f"and {len(opaque) - _SENTENCES} more"] if len(opaque) > _SENTENCES else [])


_SENTENCES, _SENTENCE = 5, 200


def references(record: Mapping[str, Any]) -> list[bytes]:
    """Recipe keys of the expressions that a recorded one refers to, in the order of its arguments."""
    return [parse_digest(key) for key in record["references"]]


def arguments(record: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments of a recorded expression: plain data, `Named` objects, and `Reference`s."""
    found: dict[str, Any] = decode(_encoded_arguments(record), reference=Reference, lazy=True, nameless=True)
    return found


def literal_leaves(record: Mapping[str, Any]) -> dict[bytes, int]:
    """Digests and sizes of the large literals among the arguments of a recorded expression."""
    return leaves_of(_encoded_arguments(record))


def _encoded_arguments(record: Mapping[str, Any]) -> bytes:
    return splice(tuple(map(base64.b64decode, record["payload"])), references(record))


def facts(record: Mapping[str, Any]) -> dict[str, Any]:
    """The facts that a recorded expression was tagged with."""
    encoded = record.get("facts")
    return _decoded_facts(base64.b64decode(encoded)) if encoded else {}


def _decoded_facts(encoded: bytes) -> dict[str, Any]:
    found: dict[str, Any] = decode(encoded, lazy=True, nameless=True)
    return found


def title(expression: Expression[Any]) -> str:
    """A short text for people: the title it was given, or else its call."""
    return expression.annotations.title or call_text(expression)


def call_text(expression: Expression[Any]) -> str:
    """The operator of an expression and the arguments that tell it from others; the same whatever its annotations.

    Scalars are shown with their names; an expression stands by the name of its operator when it is the only argument of
    its kind; facts that it was tagged with follow in brackets.
    """
    text = _untagged_text(expression)
    if not expression.facts:
        return text
    return f"{text} [{shortened(_spelled_items(_decoded_facts(expression.facts)), 60)}]"


def _untagged_text(expression: Expression[Any]) -> str:
    operator = expression.operator
    found = decode(
        splice(expression.payload, (reference.key for reference in expression.references)),
        reference=Reference,
        lazy=True,
        nameless=True,
    )
    by_key = {reference.key: reference for reference in expression.references}
    if not isinstance(operator, Operator):
        return _inline_title(operator.name, found, by_key)
    found = {name: found[name] for name in operator.signature.parameters.parameters if name in found}
    scalars = [f"{name}={short(value)}" for name, value in found.items() if isinstance(value, _TOLD)]
    inner = [_short_title(by_key[value.key]) for value in found.values() if isinstance(value, Reference)]
    shown = ", ".join(scalars or inner[:1])
    return f"{operator.short_name}({shortened(shown, 60)})" if shown else operator.short_name


def _inline_title(name: str, found: Mapping[str, Any], by_key: Mapping[bytes, Expression[Any]]) -> str:
    parts = {
        role: _short_title(by_key[value.key]) if isinstance(value, Reference) else short(value)
        for role, value in found.items()
    }
    match name:
        case "getitem":
            return f"{parts['value']}[{parts['key']}]"
        case "field":
            return f"{parts['value']}.{found['name']}"
        case "when":
            return f"when({parts['condition']}, {parts['then']}, {parts['otherwise']})"
        case "recover":
            return f"{parts['value']}.recover({parts['other']})"
        case "map":
            return f"{parts['each']}.map({parts['items']})"
        case "at_least":
            return f"at_least({found['n']}, {len(found['outcomes'])} expressions)"
        case "nest":
            return parts["value"]
    return f"{name}({', '.join(parts.values())})"


def _short_title(expression: Expression[Any]) -> str:
    """The title of an inner expression, cut short; a chain of inline nodes is followed a few steps only."""
    name = expression.operator.name.rpartition(".")[2]
    if isinstance(expression.operator, Operator):
        return name
    inner = next(iter(expression.references), None)
    return name if inner is None else f"{name}({inner.operator.name.rpartition('.')[2]})"


def short(value: Any, limit: int = 60) -> str:
    """A value as one short line.

    >>> short([1, 2.5, "three"])
    "[1, 2.5, 'three']"
    """
    return shortened(_spelled(value), limit)


def shortened(text: str, limit: int) -> str:
    """A text of at most `limit` characters; what is cut off is marked.

    >>> shortened("a long text", 7)
    'a long…'
    """
    return text if len(text) <= limit else f"{text[: limit - 1]}…"


def _spelled(value: Any) -> str:
    if type(value) in PLAIN:
        return repr(value)
    if isinstance(value, Reference):
        return f"<{format_digest(value.key)[7:15]}>"
    if isinstance(value, NamedFunction):
        return value.place.rpartition(":")[2] or f"<function {str(value.code)[7:15]}>"
    if isinstance(value, Named):
        return f"{value.name.rpartition(':')[2].rpartition('.')[2]}({_spelled_items(value.fields)})"
    if isinstance(value, set | frozenset):
        return "{" + ", ".join(sorted(map(_spelled, value))) + "}" if value else f"{type(value).__name__}()"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{_spelled(key)}: {_spelled(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list):
        return f"[{', '.join(map(_spelled, value))}]"
    if isinstance(value, tuple):
        return f"({', '.join(map(_spelled, value))}{',' if len(value) == 1 else ''})"
    if isinstance(value, BoundLeaf):
        return f"<{value.size} bytes {value.digest.hex()[:8]}>"
    if isinstance(value, LazyContent):
        return f"<{value.leaf.size} bytes {value.leaf.digest.hex()[:8]}>"
    if hasattr(value, "dtype") and hasattr(value, "shape"):
        return f"<array {value.dtype} {'×'.join(map(str, value.shape)) or 'scalar'}>"
    return repr(value)


def _spelled_items(fields: Mapping[str, Any]) -> str:
    return ", ".join(f"{name}={_spelled(value)}" for name, value in fields.items())
