"""What a person names when asking: a target, a label, or a digest or the beginning of one."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator

import attrs

from marin_dsl import labels
from marin_dsl.encoding import format_digest, parse_digest
from marin_dsl.expression import Expression
from marin_dsl.expression.annotations import Label
from marin_dsl.grids import contents
from marin_dsl.store import Store
from marin_dsl.target import TargetMissing, resolve

SHORTEST = 4
"""Digits that the beginning of a digest has at least."""


class SubjectMissing(LookupError):
    """A name leads to nothing that a store knows of."""


@attrs.frozen
class Subject:
    """Something that a person named.

    Attributes:
        name: how it was named.
        recipe: recipe key, if it is an expression.
        call: call key, if it is a call whose expression is not known.
        value: digest, if it is a stored value or a part of one.
        expression: the expression itself, if its code was imported.
        label: the label by which it was named.
        run: id of the run by which it was named.
    """

    name: str
    recipe: bytes | None = None
    call: bytes | None = None
    value: bytes | None = None
    expression: Expression[object] | None = attrs.field(default=None, repr=False)
    label: Label | None = None
    run: str | None = None


def subjects(store: Store, name: str) -> tuple[Subject, ...]:
    """What a name stands for: one thing, or the cells of a grid.

    Args:
        store: where labels and digests are looked up.
        name: `package.module:name` or `file.py:name`, `name@version`, `sha256:...` (its first digits are enough), or
            the id of a run, which stands for its roots.

    Raises:
        SubjectMissing: a label or digest is in no record; the message says what there is instead.
        TargetMissing: a target names no expression.
    """
    digits = re.fullmatch(r"(?:sha256:)?([0-9a-f]+)", name)
    if digits is not None:
        return (_of_digits(store, name, digits[1]),)
    if name.startswith("sha256:"):
        raise TargetMissing(f"`{name}` is no digest: after sha256: come 4 to 64 of the digits 0-9 and a-f")
    if _RUN.fullmatch(name):
        return _of_run(store, name)
    if "@" in name and ":" not in name:
        return (_of_label(store, name),)
    if ":" not in name:
        raise TargetMissing(
            f"`{name}` is neither a target (package.module:name or file.py:name), nor a label (name@version), nor a "
            f"digest (sha256:...), nor a run{_labels_like(store, name)}"
        )
    found = contents(resolve(name))
    return tuple(
        Subject(name, recipe=expression.key, expression=expression, label=expression.label) for expression in found
    )


_RUN = re.compile(r"\d{8}T\d{6}Z-[0-9a-f]+")


def _of_run(store: Store, run: str) -> tuple[Subject, ...]:
    start = store.last(f"runs/{run}/start")
    if start is None:
        raise SubjectMissing(f"store {store.url} has no run {run}; marin log lists them")
    return tuple(
        Subject(
            root["label"] or run,
            recipe=parse_digest(root["recipe"]),
            label=Label(*root["label"].rsplit("@", 1)) if root["label"] else None,
            run=run,
        )
        for root in start["roots"]
    )


def _of_label(store: Store, name: str) -> Subject:
    try:
        label = labels.check_label(*name.rsplit("@", 1))
    except ValueError as error:
        raise SubjectMissing(str(error)) from None
    entry = labels.current(store, label)
    recipe = labels.last_run(store, label) if entry is None else entry.recipe
    if recipe is None:
        raise SubjectMissing(f"store {store.url} has no label {label}{_labels_like(store, name)}")
    return Subject(name, recipe=recipe, label=label)


def _labels_like(store: Store, name: str) -> str:
    known = [str(label) for label in known_labels(store)]
    close = difflib.get_close_matches(name, known, 3, 0.5) or known[:5]
    return f"; there is {', '.join(close)}" if close else ""


def known_labels(store: Store) -> Iterator[Label]:
    """Every label of a store, by name and version."""
    pending = [""]
    while pending:
        above = pending.pop()
        for part in store.files.names(f"labels/{above}".rstrip("/")):
            if part.startswith("@"):
                yield Label(above, part[1:])
            elif not part.startswith("."):  # no part of a label does
                pending.append(f"{above}/{part}".lstrip("/"))


_KINDS = {"recipes": ".json", "results": ".json", "failures": "", "blobs": ""}
"""Where digests are looked for, and how the names of files end there; the first kind that has one counts."""


def _of_digits(store: Store, name: str, digits: str) -> Subject:
    if not SHORTEST <= len(digits) <= 64:
        raise SubjectMissing(f"{name!r} cannot be found by {len(digits)} digits: give {SHORTEST} to 64 of them")
    found: dict[str, str] = {}
    for kind in _KINDS:
        for digest in _beginning_with(store, kind, digits):
            found.setdefault(digest, kind)
    if not found:
        raise SubjectMissing(f"store {store.url} has no recipe, call or large value whose digest begins with {digits}")
    if len(found) > 1:
        shown = ", ".join(f"{digest[: len(digits) + 6]}… ({kind})" for digest, kind in list(found.items())[:5])
        more = f" and {len(found) - 5} more" if len(found) > 5 else ""
        raise SubjectMissing(f"{len(found)} digests begin with {digits}: {shown}{more}; give more digits")
    ((digest, kind),) = found.items()
    key = bytes.fromhex(digest)
    if kind == "recipes":
        return Subject(format_digest(key), recipe=key)
    return Subject(format_digest(key), value=key) if kind == "blobs" else Subject(format_digest(key), call=key)


def _beginning_with(store: Store, kind: str, digits: str) -> Iterator[str]:
    suffix, shard = _KINDS[kind], "" if kind == "failures" else digits[:2]
    for name in store.files.names(f"{kind}/{shard}".rstrip("/")):
        digest = shard + name.removesuffix(suffix)
        if name.endswith(suffix) and digest.startswith(digits) and re.fullmatch("[0-9a-f]{64}", digest):
            yield digest
