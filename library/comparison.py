"""Arms of an experiment beside one another: averaged over seeds, on the same held-out documents."""

import textwrap
from collections.abc import Mapping, Sequence
from typing import Any

import attrs
import numpy as np

from library.intervals import Interval, macro_interval, ratio_interval
from library.training import Run
from marin_dsl import Failed, Ok, Skipped, encodable, op
from marin_dsl.grids import Cell

SEED = "seed"


@encodable
@attrs.frozen(eq=False)
class Arm:
    """One setting of an experiment and what its runs measured.

    Attributes:
        coordinates: the setting: what the runs share.
        seeds: of the runs that have a value.
        bits: by domain: bits per held-out document of each run, float64 of shape [runs, documents].
        failures: why the other runs have no value, by seed.
    """

    coordinates: dict[str, Any]
    seeds: tuple[int, ...]
    bits: dict[str, np.ndarray]
    failures: dict[int, str]

    @property
    def mean_bits(self) -> dict[str, np.ndarray]:
        """By domain: bits per document, averaged over the runs."""
        return {domain: bits.mean(axis=0) for domain, bits in self.bits.items()}


def arms(cells: Sequence[Cell[Any]]) -> list[Arm]:
    """The arms of a grid whose cells hold outcomes of `held_out_bits`, in the order in which they first appear.

    Raises:
        ValueError: the grid has no axis of seeds.
    """
    without = next((cell for cell in cells if SEED not in cell.coordinates), None)
    if without is not None:
        raise ValueError(
            f"the cell at {dict(without.coordinates)} has no {SEED!r}; give the grid an axis of seeds, such as "
            f"{SEED}=range(1)"
        )
    groups: dict[tuple[tuple[str, Any], ...], list[Cell[Any]]] = {}
    for cell in cells:
        setting = tuple((axis, at) for axis, at in cell.coordinates.items() if axis != SEED)
        groups.setdefault(setting, []).append(cell)
    return [_arm(dict(setting), members) for setting, members in groups.items()]


def _arm(setting: dict[str, Any], members: list[Cell[Any]]) -> Arm:
    measured = [cell for cell in members if isinstance(cell.value, Ok)]
    domains = measured[0].value.value if measured else {}
    return Arm(
        setting,
        tuple(cell.coordinates[SEED] for cell in measured),
        {domain: np.stack([cell.value.value[domain] for cell in measured]) for domain in domains},
        {cell.coordinates[SEED]: why(cell.value) for cell in members if not isinstance(cell.value, Ok)},
    )


def why(outcome: Failed | Skipped) -> str:
    """The exception behind a failure or a skip, in a few words."""
    if isinstance(outcome, Failed):
        return outcome.summary
    first = outcome.because[0]
    return f"{first.exception.rpartition('.')[2]}: {textwrap.shorten(first.message, 48, placeholder='…')}"


def macro_bits_per_byte(bits: Mapping[str, np.ndarray], lengths: Mapping[str, np.ndarray]) -> Interval:
    """Bits per byte, averaged over domains, with a 95 % interval over documents."""
    return macro_interval(bits, {domain: lengths[domain] for domain in bits}, seed=0)


def domain_bits_per_byte(bits: np.ndarray, lengths: np.ndarray) -> Interval:
    """Bits per byte of one domain, with a 95 % interval over documents."""
    return ratio_interval(bits, lengths, seed=0)


def difference(arm: Arm, reference: Arm, lengths: Mapping[str, np.ndarray]) -> Interval:
    """Macro bits per byte of one arm minus those of another on the same documents; below zero: the arm is better."""
    before = reference.mean_bits
    return macro_bits_per_byte({domain: bits - before[domain] for domain, bits in arm.mean_bits.items()}, lengths)


def best(candidates: Sequence[Arm], lengths: Mapping[str, np.ndarray]) -> Arm:
    """The arm with the fewest macro bits per byte among those that have a value.

    Raises:
        ValueError: none has.
    """
    measured = [arm for arm in candidates if arm.seeds]
    if not measured:
        why = "; ".join(reason for arm in candidates for reason in arm.failures.values())
        raise ValueError(f"none of {len(candidates)} arms has a value to choose from: {why or 'there are none'}")
    return min(measured, key=lambda arm: macro_bits_per_byte(arm.mean_bits, lengths).point)


@op
def best_run(runs: Sequence[Cell[Any]], bits: Sequence[Cell[Any]], lengths: Mapping[str, np.ndarray]) -> Run:
    """A run of the best arm: the one with its first seed.

    Args:
        runs: outcomes of `train` by coordinates.
        bits: outcomes of `held_out_bits` at the same coordinates.
        lengths: bytes of each held-out document, by domain.

    Raises:
        ValueError: no arm has a value.
    """
    chosen = best(arms(bits), lengths)
    wanted = {**chosen.coordinates, SEED: chosen.seeds[0]}
    found: Run = next(cell.value.value for cell in runs if dict(cell.coordinates) == wanted)
    return found


def smoothed(values: np.ndarray, window: int) -> np.ndarray:
    """The mean of each value and those up to `window - 1` before it: shape [points], like the values.

    Values that are not finite, as those of steps that were skipped, are left out; where no others are, there is none.

    Raises:
        ValueError: `window` is below 1.
    """
    if window < 1:
        raise ValueError(f"window={window}; expected at least 1, the value itself")
    values = np.asarray(values, np.float64)
    finite = np.isfinite(values)
    sums, counts = (np.cumsum(np.insert(each, 0, 0.0)) for each in (np.where(finite, values, 0.0), finite))
    ends = np.arange(1, len(sums))
    starts = np.maximum(0, ends - window)
    with np.errstate(invalid="ignore"):
        return (sums[ends] - sums[starts]) / (counts[ends] - counts[starts])


def share_to_reach(curve: np.ndarray, target: float) -> float | None:
    """The share of a curve's points after which it is at or below a target for good; None when it never is.

    A point that is no number is not below anything.
    """
    if not len(curve):
        return None
    above = np.flatnonzero(~(curve <= target))
    if not len(above):
        return 1 / len(curve)
    first = int(above[-1]) + 1
    return None if first == len(curve) else (first + 1) / len(curve)
