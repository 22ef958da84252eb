"""What something in a store is, and what became of it: read from records alone."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import attrs

from marin_dsl import lineage
from marin_dsl.encoding import LeafMissing, Named, Undecodable, decode, format_digest
from marin_dsl.expression.recipe import Reference, arguments, facts, short, shortened, title
from marin_dsl.lineage import Ancestor, NotRecorded
from marin_dsl.lineage.environment import environment_of, start_of
from marin_dsl.lineage.failures import Attempt, failed_call
from marin_dsl.lineage.subject import Subject
from marin_dsl.store import Store, StoredValue
from marin_dsl.uncommitted import is_dirty

Status = Literal["ok", "failed", "skipped", "inline", "not evaluated"]


@attrs.frozen
class Operator:
    """What computes something.

    Attributes:
        name: its name.
        version: its version, if it has one.
        code: digest of its code.
        inline: it is a part of the language, and its values are in no store.
        unseen: what the identity of its code could not see, in short sentences.
    """

    name: str
    version: str | None
    code: str | None
    inline: bool
    unseen: tuple[str, ...] = ()


@attrs.frozen
class Argument:
    """One argument, shortened.

    Attributes:
        name: name of the parameter.
        text: its value, or the title of the expression.
        recipe: recipe key, if it is an expression.
    """

    name: str
    text: str
    recipe: str | None = None


@attrs.frozen
class Value:
    """A stored value.

    Attributes:
        digest: its digest.
        size: bytes of its encoding and of its large leaves.
        leaves: how many large leaves it has.
        lines: the value itself, shortened.
    """

    digest: str
    size: int
    leaves: int
    lines: tuple[str, ...]


@attrs.frozen
class Computed:
    """When, where and by what something was computed.

    Attributes:
        run: id of the run.
        target: what was asked for.
        command: the command line.
        note: what the user noted about the run.
        started: time with zone, ISO 8601.
        ended: likewise.
        seconds: how long it took.
        host: where.
        pid: the process.
        peak_memory: most bytes that this process had resident.
        python: the version of the interpreter.
        commit: the commit of the project.
        dirty: there were changes that are in no commit.
    """

    run: str
    target: str
    command: str
    note: str
    started: str
    ended: str
    seconds: float
    host: str
    pid: int
    peak_memory: int | None
    python: str
    commit: str
    dirty: bool


@attrs.frozen
class Input:
    """What an expression refers to.

    Attributes:
        recipe: recipe key.
        title: what people call it.
        status: what became of it.
        digest: digest of its value, if that is stored.
    """

    recipe: str
    title: str
    status: Status
    digest: str | None


@attrs.frozen
class Inspection:
    """All that is known of one thing.

    Attributes:
        name: how it was named.
        title: what people call it.
        status: what became of it.
        recipe: recipe key, if it is an expression.
        call: call key, if its inputs are known.
        label: a label that it was recorded under.
        operator: what computes it.
        arguments: of its call.
        facts: that it was tagged with.
        value: what it came to.
        failed: the attempts that failed.
        computed: when, where and by what.
        inputs: the calls that it refers to, through projections and the like.
        observations: what its operator measured, shortened.
        output: the last lines that its operator logged.
        because: titles of the failed calls because of which it was skipped.
    """

    name: str
    title: str
    status: Status
    recipe: str | None = None
    call: str | None = None
    label: str | None = None
    operator: Operator | None = None
    arguments: tuple[Argument, ...] = ()
    facts: tuple[Argument, ...] = ()
    value: Value | None = None
    failed: tuple[Attempt, ...] = ()
    computed: Computed | None = None
    inputs: tuple[Input, ...] = ()
    observations: Mapping[str, str] = attrs.field(factory=dict)
    output: tuple[str, ...] = ()
    because: tuple[str, ...] = ()


def inspect(store: Store, subject: Subject) -> Inspection:
    """What something is and what became of it.

    Args:
        store: where it is recorded.
        subject: what was named.

    Raises:
        NotRecorded: the store has no record of it.
    """
    if subject.value is not None:
        return _of_value(store, subject)
    if subject.recipe is None:
        assert subject.call is not None
        return _of_call(store, subject, subject.call)
    if subject.expression is not None and store.recipe(subject.recipe) is None:
        return Inspection(subject.name, title(subject.expression), "not evaluated", format_digest(subject.recipe))
    return _of_expression(store, subject, subject.recipe)


def _of_value(store: Store, subject: Subject) -> Inspection:
    assert subject.value is not None
    return Inspection(subject.name, "a value", "ok", value=_value(store, StoredValue(subject.value, None, ())))


_READABLE = 4 << 20
"""Bytes up to which the encoding of a value is looked into: it is for eyes."""


def _of_call(store: Store, subject: Subject, call: bytes) -> Inspection:
    record = store.result(call)
    failed = failed_call(store, call)
    known = record or store.last_failure(call)
    if known is None:
        raise NotRecorded(f"store {store.url}: the record of the call {format_digest(call)} is damaged")
    operator = Operator(known["operator"]["name"], known["operator"]["version"], known["operator"]["code"], False)
    return Inspection(
        subject.name,
        known["title"],
        "ok" if record is not None else "failed",
        call=format_digest(call),
        operator=operator,
        inputs=tuple(Input("", "a value", "ok", digest) for digest in known.get("inputs", ())),
        failed=failed.attempts if failed is not None else (),
        **_evidence(store, record, known),
    )


def _of_expression(store: Store, subject: Subject, key: bytes) -> Inspection:
    root = lineage.recorded(store, key)
    inputs = {found: known for found in root.references if (known := _known(store, found)) is not None}
    behind = [_behind(store, found) for found in inputs.values()]
    call = None if root.inline else store.call_of(key)
    failed = failed_call(store, call) if call is not None else None
    status = status_of(root)
    because = _blamed(store, key) if status == "not evaluated" and not root.inline else ()
    name = root.recipe["operator"]
    return Inspection(
        subject.name,
        root.recipe["title"],
        "skipped" if because else status,
        recipe=format_digest(key),
        call=format_digest(call) if call is not None else None,
        label=str(subject.label) if subject.label is not None else root.recipe.get("label"),
        operator=Operator(
            name["name"], name.get("version"), name.get("code"), name["inline"], tuple(name.get("unseen", ()))
        ),
        arguments=tuple(_argument(item, value, inputs) for item, value in arguments(root.recipe).items()),
        facts=tuple(_argument(item, value, inputs) for item, value in facts(root.recipe).items()),
        failed=failed.attempts if failed is not None else (),
        inputs=tuple(map(_input, {found.key: found for found in behind}.values())),
        because=because,
        **_evidence(store, root.result, root.record),
    )


def status_of(ancestor: Ancestor) -> Status:
    """What became of a recorded expression, as far as it and its record say."""
    if ancestor.inline:
        return "inline"
    if ancestor.result is not None:
        return "ok"
    return "failed" if ancestor.failed is not None else "not evaluated"


def _blamed(store: Store, key: bytes) -> tuple[str, ...]:
    found = lineage.ancestors(store, key)
    return tuple(found[culprit].recipe["title"] for culprit in lineage.blamed(found, key))


def _argument(name: str, value: Any, inputs: Mapping[bytes, Ancestor]) -> Argument:
    if isinstance(value, Reference):
        known = inputs.get(value.key)
        return Argument(name, called(known.recipe) if known else "(not recorded)", format_digest(value.key))
    titles = {format_digest(key)[7:15]: found.recipe["title"] for key, found in inputs.items()}
    return Argument(name, _sized(value, titles))


def called(recipe: Mapping[str, Any]) -> str:
    """What to call a recorded expression: its title, or of a nest how much is in it."""
    if not recipe["operator"]["inline"] or recipe["operator"]["name"] != "nest":
        return str(recipe["title"])
    value = arguments(recipe).get("value")
    return f"a {type(value).__name__} of {len(value)}" if isinstance(value, list | tuple | dict) else recipe["title"]


def _sized(value: Any, titles: Mapping[str, str]) -> str:
    """A value on one line, expressions by their titles; of a collection that does not fit, how much there is of it."""
    spelled = re.sub(r"<([0-9a-f]{8})>", lambda found: titles.get(found[1], found[0]), short(value, _SPELLED))
    text = shortened(spelled, _LONG)
    return f"{len(value)} × {text}" if text.endswith("…") and isinstance(value, list | tuple | dict) else text


def _behind(store: Store, found: Ancestor) -> Ancestor:
    """What an input is made from by projections, arithmetic and the like: the first call, if there is one."""
    seen = found
    while seen.inline and seen.references:
        deeper = _known(store, seen.continued or seen.references[0])
        if deeper is None:
            break
        seen = deeper
    return seen


def _known(store: Store, key: bytes) -> Ancestor | None:
    try:
        return lineage.recorded(store, key)
    except NotRecorded:  # its record was deleted, or is damaged
        return None


def _input(found: Ancestor) -> Input:
    digest = found.result["value"]["digest"] if found.result is not None else None
    return Input(format_digest(found.key), found.recipe["title"], status_of(found), digest)


def _evidence(store: Store, result: Mapping[str, Any] | None, record: Mapping[str, Any] | None) -> dict[str, Any]:
    """What the record of a result, or else of a failure, says."""
    if record is None:
        return {}
    seen = (result or {}).get("observations", {})
    return {
        "value": _value(store, StoredValue.from_record(result["value"])) if result is not None else None,
        "computed": _computed(store, record["provenance"]),
        "observations": {name: _shortly(store, StoredValue.from_record(found)) for name, found in seen.items()},
        "output": tuple(record["output"]),
    }


def _shortly(store: Store, stored: StoredValue) -> str:
    found = _decoded(store, stored)
    return found if isinstance(found, _Unreadable) else short(found, _LONG)


_SPELLED = 4096
"""Characters of a value that are looked at, to show fewer."""


class _Unreadable(str):
    """Why a value cannot be shown."""

    __slots__ = ()


def _decoded(store: Store, stored: StoredValue) -> Any:
    try:
        return decode(store.manifest(stored), lazy=True, nameless=True)
    except (LeafMissing, Undecodable) as error:
        return _Unreadable(f"({error})")


def _value(store: Store, stored: StoredValue) -> Value:
    own = len(stored.inline) if stored.inline is not None else store.files.size(_blob(stored.digest)) or 0
    found = _decoded(store, stored) if own <= _READABLE else _Unreadable("(too large to be shown)")
    size = own + sum(size for _, size in stored.leaves)
    return Value(format_digest(stored.digest), size, len(stored.leaves), tuple(outline(found)))


def _blob(digest: bytes) -> str:
    return f"blobs/{digest.hex()[:2]}/{digest.hex()[2:]}"


def _computed(store: Store, provenance: Mapping[str, Any]) -> Computed:
    start = start_of(store, provenance["run"])
    environment = environment_of(store, start)
    return Computed(
        run=provenance["run"],
        target=start.get("target", ""),
        command=start.get("command", ""),
        note=start.get("note", ""),
        started=provenance["started"],
        ended=provenance["ended"],
        seconds=provenance["seconds"],
        host=provenance["host"],
        pid=provenance["pid"],
        peak_memory=provenance["peak_memory"],
        python=environment.get("python", ""),
        commit=environment.get("commit") or "",
        dirty=is_dirty(environment),
    )


_LONG, _LINES = 88, 24


def outline(value: Any) -> Sequence[str]:
    r"""A value for eyes: on one line if it fits, else its members one by one; what is left out is counted.

    >>> print("\n".join(outline({"loss": 0.5, "text": "x" * 90})))
    loss  0.5
    text  'xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx…
    """
    if isinstance(value, _Unreadable):
        return [str(value)]
    whole = short(value, _LONG + 1)
    members = _members(value)
    if len(whole) <= _LONG or not members:
        return [shortened(whole, _LONG)]
    width = max(len(name) for name, _ in members[:_LINES])
    lines = [f"{name:<{width}}  {short(item, max(20, _LONG - width))}" for name, item in members[:_LINES]]
    more = [f"… and {len(members) - _LINES:,} more"] if len(members) > _LINES else []
    return [*lines, *more]


def _members(value: Any) -> list[tuple[str, Any]]:
    if isinstance(value, Named):
        return list(value.fields.items())
    if isinstance(value, dict):
        return [(key if isinstance(key, str) else short(key, 24), item) for key, item in value.items()]
    if isinstance(value, list | tuple):
        return [(f"[{position}]", item) for position, item in enumerate(value)]
    return []
