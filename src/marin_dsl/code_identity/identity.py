"""The code identity of an operator, and the difference between two for people."""

import difflib
import functools
import types
from collections.abc import Callable, Container, Mapping

import attrs

from .exploration import Excluded, Exploration
from .graph import Node, digest_of
from .territory import Territory
from .values import describe, state_of
from .witness import Witness


@attrs.frozen
class CodeIdentity:
    """What an operator's code is.

    Attributes:
        digest: 32 bytes, SHA-256.
        listing: source text (dedented, as written) by qualified name of every definition of the project that counts.
        opaque: what could not be seen, in sentences for people.
        witness: what it was read from.
        standing: what it reaches that counts by an identity of its own, such as operators with a version.
        by_type: types by place of values of which nothing else counts.
    """

    digest: bytes
    listing: dict[str, str]
    opaque: tuple[str, ...]
    witness: Witness = attrs.field(factory=Witness, eq=False, repr=False)
    standing: tuple[object, ...] = attrs.field(default=(), eq=False, repr=False)
    by_type: dict[str, str] = attrs.field(factory=dict, eq=False, repr=False)

    @property
    def is_current(self) -> bool:
        """Whether everything that it was read from is as it was: what functions and names are, and mean, now."""
        return self.witness.holds()


def code_identity(
    function: object,
    *,
    includes: tuple[object, ...] = (),
    excludes: tuple[object, ...] = (),
    encode: Callable[[object], bytes] | None = None,
) -> CodeIdentity:
    """What a function's code is, with everything of the user's project that it reaches.

    Args:
        function: a function, class or any callable.
        includes: functions, classes, modules or values that count although they are not named in the code.
        excludes: functions, classes or modules that do not count, nor what only they reach; a string excludes what
            is called so (`package.module.NAME`).
        encode: canonical bytes of a plain value; raises TypeError for what has none. Default:
            `marin_dsl.encoding.encode`.

    Returns:
        An identity whose digest is the same for the same code in any process, on any supported Python, anywhere.
    """
    if encode is None:
        from marin_dsl.encoding import encode as canonical

        encode = functools.partial(canonical, functions="none")  # they are followed, not named
    witness = Witness(functools.partial(state_of, encode))
    walk = Exploration(Territory.of(function), encode, describe, Excluded.of(excludes), witness=witness)
    root = walk.node(function, getattr(function, "__qualname__", type(function).__name__))
    included = [walk.node(part, f"included: {position}") for position, part in enumerate(includes)]
    only_annotated = walk.walk()
    brought = [Node(unordered=True).fill(only_annotated)] if only_annotated else []
    root = Node().fill([b"marin code identity 1", root, *included, *brought])
    listing = dict(sorted(walk.listing.items()))
    return CodeIdentity(
        digest_of(root), listing, tuple(walk.opaque), witness, tuple(walk.standing.values()), walk.by_type
    )


def is_of_project(value: object, installed: Container[str] = ()) -> bool:
    """Whether the code of a function, class or other callable belongs to the project.

    Args:
        value: the callable.
        installed: packages that are the project's although they are installed, by their first names.
    """
    module = getattr(value, "__module__", None) or "builtins"
    territory = Territory.of(value) if module.partition(".")[0] in installed else Territory()
    if isinstance(value, types.FunctionType):
        return territory.holds_function(value)
    if isinstance(value, type):
        return territory.holds_class(value)
    return territory.holds_module(module)


def diff(old: Mapping[str, str], new: Mapping[str, str]) -> str:
    """The difference between two listings as a unified diff, definition by definition; empty when there is none."""
    parts: list[str] = []
    for name in sorted({*old, *new}):
        before, after = (listing.get(name, "").splitlines(keepends=True) for listing in (old, new))
        parts += difflib.unified_diff(before, after, f"{name} (before)", f"{name} (after)")
    return "".join(line if line.endswith("\n") else line + "\n" for line in parts)
