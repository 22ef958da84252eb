"""What of an experiment was needed: the branches that were decided for, and what these were made from."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from marin_dsl.expression.inline import INLINE, Choice
from marin_dsl.expression.recipe import Reference, arguments
from marin_dsl.lineage.lineage import Ancestor

Found = Mapping[bytes, Ancestor]


def needed(ancestor: Ancestor) -> list[bytes]:
    """What an expression needed: all that it refers to, or of a choice what it decided by and went on with."""
    operator = INLINE.get(ancestor.recipe["operator"]["name"]) if ancestor.inline else None
    if not isinstance(operator, Choice):
        return ancestor.references
    first = arguments(ancestor.recipe).get(operator.first)
    decided_by = [first.key] if isinstance(first, Reference) else []
    return list(dict.fromkeys([*decided_by, *([ancestor.continued] if ancestor.continued is not None else [])]))


def passed_over(ancestor: Ancestor) -> list[bytes]:
    """The branches of a choice that it did not go on with; the template of a map is none."""
    if ancestor.recipe["operator"]["name"] in _TEMPLATED and ancestor.inline:
        return []
    taken = set(needed(ancestor))
    return [key for key in ancestor.references if key not in taken]


_TEMPLATED = ("map", "element")


def demanded(found: Found, root: bytes) -> set[bytes]:
    """The expressions whose outcomes another one needed."""
    return _reached(found, root, needed)


def shown(found: Found, root: bytes) -> set[bytes]:
    """The same with the branches that were not taken, and all below them; templates of maps are in neither."""
    return _reached(found, root, lambda ancestor: [*needed(ancestor), *passed_over(ancestor)])


def _reached(found: Found, root: bytes, steps: Callable[[Ancestor], list[bytes]]) -> set[bytes]:
    seen, stack = {root}, [root]
    while stack:
        for key in steps(found[stack.pop()]):
            if key not in seen and key in found:
                seen.add(key)
                stack.append(key)
    return seen
