"""What a compiled program costs: memory, operations, and what devices send each other."""

import re
from collections.abc import Mapping
from typing import NamedTuple

import attrs
import jax
import numpy as np

COLLECTIVES = (
    "all-gather",
    "all-reduce",
    "reduce-scatter",
    "all-to-all",
    "ragged-all-to-all",
    "collective-permute",
    "collective-broadcast",
)
"""XLA's operations that move data between devices."""

_OPERATION = re.compile(rf"= (?P<result>\S+|\(.*?\)) (?P<kind>{'|'.join(COLLECTIVES)})(?P<start>-start)?\(")
_ARRAY = re.compile(r"\b(pred|[a-z]+[0-9]+[a-z0-9]*)\[([0-9,]*)\]")


class Collective(NamedTuple):
    """All operations of one kind in a program.

    Attributes:
        count: how many there are; one in a loop counts once.
        size: bytes of their results, on one device.
    """

    count: int
    size: int


@attrs.frozen
class Costs:
    """Costs of a compiled program, on one device.

    Attributes:
        arguments: bytes of what goes in.
        outputs: bytes of what comes out.
        temporary: bytes held in between.
        operations: floating-point operations that the compiler counts; those of hand-written kernels are missing.
        collectives: what devices send each other, by kind; what kernels send by remote copies is missing.
    """

    arguments: int
    outputs: int
    temporary: int
    operations: float
    collectives: Mapping[str, Collective]

    @property
    def received(self) -> int:
        """Bytes of the results of all collectives."""
        return sum(collective.size for collective in self.collectives.values())


def costs_of(compiled: jax.stages.Compiled) -> Costs:
    """What a compiled program costs, as its compiler says."""
    memory, counted = compiled.memory_analysis(), compiled.cost_analysis() or {}
    return Costs(
        memory.argument_size_in_bytes,
        memory.output_size_in_bytes,
        memory.temp_size_in_bytes,
        float(counted.get("flops", 0.0)),
        collectives_in(compiled.as_text()),
    )


def collectives_in(text: str) -> dict[str, Collective]:
    """The collectives of a program, from its compiled text (HLO)."""
    found: dict[str, Collective] = {}
    for match in _OPERATION.finditer(text):
        sizes = [_bytes(*array) for array in _ARRAY.findall(match["result"])]
        # What starts and ends apart returns its operand beside its result.
        size = max(sizes) if match["start"] and match["kind"] != "all-reduce" else sum(sizes)
        before = found.get(match["kind"], Collective(0, 0))
        found[match["kind"]] = Collective(before.count + 1, before.size + size)
    return found


def arrays_in(text: str) -> set[tuple[str, tuple[int, ...]]]:
    """Every dtype and shape that occurs in a program's compiled text, such as ``("bf16", (4, 128))``."""
    return {(dtype, _shape(shape)) for dtype, shape in _ARRAY.findall(text)}


def _shape(shape: str) -> tuple[int, ...]:
    return tuple(int(size) for size in shape.split(",") if size)


def _bytes(dtype: str, shape: str) -> int:
    bits = 8 if dtype == "pred" else int(re.sub(r"\D.*", "", dtype.lstrip("abcdefghijklmnopqrstuvwxyz")))
    return int(np.prod(_shape(shape), dtype=np.int64)) * bits // 8
