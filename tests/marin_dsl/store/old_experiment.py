"""What the stores of earlier schemas were made with."""

import attrs
import numpy as np

from marin_dsl import attempt, encodable, op


@encodable(name="fixture:Summary")
@attrs.frozen
class Conclusion:
    mean: float
    words: tuple[str, ...]


@op(version="1", name="fixture.ramp")
def ramp(size: int) -> np.ndarray:
    return np.arange(size, dtype=np.float32)


@op(version="1", name="fixture.summarize")
def summarize(values: np.ndarray, words: list[str]) -> Conclusion:
    return Conclusion(float(values.mean()), tuple(words))


@op(version="1", name="fixture.broken")
def broken(number: int) -> int:
    raise ValueError(f"no {number}")


@op(version="1", name="fixture.collect")
def collect(summary: Conclusion, outcome: object) -> dict:
    return {"summary": summary, "kind": type(outcome).__name__}


experiment = collect(summarize(ramp(20_000), ["a", "ü"]), attempt(broken(3))).named("fixture", "1.0")
