"""Collective operations of a compiled program, and what they move."""

import math
import re
from collections import Counter, defaultdict
from collections.abc import Iterator

import attrs

KINDS = (
    "ragged-all-to-all",
    "all-to-all",
    "all-gather",
    "all-reduce",
    "reduce-scatter",
    "collective-permute",
    "collective-broadcast",
)

_COMPUTATION = re.compile(r"^(ENTRY )?%?([\w.\-]+) \(.*\{\s*$", re.M)
_OPERATION = re.compile(
    rf"^\s*(?:ROOT )?%?[\w.\-]+ = (?P<type>\(.*?\)|\S+) (?P<kind>{'|'.join(KINDS)})(?P<start>-start)?\((?P<rest>.*)$",
    re.M,
)
_ARRAY = re.compile(r"\b(pred|[suf]\d+\w*|bf16|c64|c128)\[([\d,]*)\]")
_CALLED = re.compile(
    r"(?:body|condition|calls|to_apply|called_computations|branch_computations)=(?:\{([^}]*)\}|(%?[\w.\-]+))"
)
_BOUND = re.compile(r"= s32\[\]\S* constant\((\d+)\)")
_TRIPS = re.compile(r'known_trip_count"?:\s*\{"?n"?:\s*"?(\d+)')
_EXPLICIT_GROUPS = re.compile(r"replica_groups=\{\{([\d,]*)\}")
_IOTA_GROUPS = re.compile(r"replica_groups=\[(\d+),(\d+)\]")
_MESH_GROUPS = re.compile(r"replica_groups=mesh\[([^\]]*)\][^{]*\{([^}]*)\}")
_MESH_AXIS = re.compile(r"'([^']+)'(?:=(\d+)|:\(\d+\)(\d+))?")


@attrs.frozen
class Collective:
    """All operations of one kind in a program, each counted as often as it runs.

    Attributes:
        kind: its name in HLO, such as ``"all-gather"``.
        count: how often the kind runs.
        bytes: of the results, on one device.
        wire_bytes: that one device sends, if groups of n pass arrays on in rings: (n - 1) / n of what is gathered or
            exchanged, twice that of what is reduced everywhere.
    """

    kind: str
    count: int
    bytes: int
    wire_bytes: int


def collectives(hlo: str) -> tuple[tuple[Collective, ...], int]:
    """The collectives of a compiled program, the largest first, and the number of loops whose length is not known.

    Args:
        hlo: its text (``compiled.as_text()``). Operations in loops of known length count as often as they run; those of
            unknown length are taken to run once.
    """
    bodies, entry = _computations(hlo)
    times, unknown = _times(bodies, entry)
    found: dict[str, list[int]] = defaultdict(lambda: [0, 0, 0])
    for name, body in bodies.items():
        for kind, size, wire in _operations(body) if times[name] else ():
            for index, amount in enumerate((1, size, wire)):
                found[kind][index] += times[name] * amount
    listed = [Collective(kind, *numbers) for kind, numbers in found.items()]
    return tuple(sorted(listed, key=lambda one: -one.wire_bytes)), unknown


def _computations(hlo: str) -> tuple[dict[str, str], str]:
    heads = list(_COMPUTATION.finditer(hlo))
    ends = [head.start() for head in heads[1:]] + [len(hlo)]
    bodies = {head[2]: hlo[head.end() : end] for head, end in zip(heads, ends, strict=True)}
    return bodies, next((head[2] for head in heads if head[1]), "")


def _times(bodies: dict[str, str], entry: str) -> tuple[Counter[str], int]:
    """How often each computation runs, and how many loops have no known length."""
    times: Counter[str] = Counter()
    unknown, waiting = 0, [(entry, 1)]
    while waiting:
        name, often = waiting.pop()
        times[name] += often
        for line in bodies.get(name, "").splitlines():
            trips = _trips(line, bodies) if " while(" in line else 1
            unknown += trips is None
            waiting += [(one, often * (trips or 1)) for one in _called(line) if one in bodies]
    return times, unknown


def _called(line: str) -> list[str]:
    return [one.strip(" %") for many, single in _CALLED.findall(line) for one in (many or single).split(",")]


def _trips(line: str, bodies: dict[str, str]) -> int | None:
    """How often a loop runs: as the compiler states it, or the bound that its condition counts up to from 0."""
    if stated := _TRIPS.search(line):
        return int(stated[1])
    condition = bodies.get(next(iter(re.findall(r"condition=%?([\w.\-]+)", line)), ""), "")
    text = condition + "".join(bodies.get(one, "") for one in _called(condition))
    bounds = set(_BOUND.findall(text))
    return int(bounds.pop()) if len(bounds) == 1 and "direction=LT" in text else None


def _operations(body: str) -> Iterator[tuple[str, int, int]]:
    """Kind, bytes of the result and bytes on the wire of each collective in a computation."""
    for match in _OPERATION.finditer(body):
        arrays = [_bytes(*found) for found in _ARRAY.findall(match["type"])]
        arrays = [size for size in arrays if size > 8] or arrays  # leave the semaphores of asynchronous ones out
        if match["start"] and match["kind"] != "all-reduce" and len(arrays) > 1:
            arrays = arrays[len(arrays) // 2 :]  # operands first, then results
        yield match["kind"], sum(arrays), _wire(match["kind"], sum(arrays), _group(match["rest"]))


def _bytes(dtype: str, shape: str) -> int:
    digits = re.search(r"\d+", dtype)
    bits = 8 if dtype == "pred" or digits is None else int(digits[0])
    size = 1
    for length in filter(None, shape.split(",")):
        size *= int(length)
    return size * bits // 8


def _group(rest: str) -> int:
    if named := _MESH_GROUPS.search(rest):
        sizes = {name: int(size) for name, size, _ in _MESH_AXIS.findall(named[1])}
        return math.prod(int(part) if part else sizes[name] for name, _, part in _MESH_AXIS.findall(named[2]))
    if iota := _IOTA_GROUPS.search(rest):
        return int(iota[2])
    if explicit := _EXPLICIT_GROUPS.search(rest):
        return explicit[1].count(",") + 1
    return 2


def _wire(kind: str, size: int, group: int) -> int:
    if kind == "collective-permute":
        return size
    if kind == "reduce-scatter":
        return size * (group - 1)
    return size * (group - 1) // group * (2 if kind == "all-reduce" else 1)
