"""The language beside `dask.delayed`: importing it, and building and hashing graphs.

Both sides run in one go, in turns; medians and their ratio are printed.
"""

from __future__ import annotations

import gc
import statistics
import subprocess
import sys
import time
import tracemalloc
from collections.abc import Callable
from typing import Any

import dask
from dask.base import tokenize

from marin_dsl import digest, op

REPEATS = 5


@op(version="1")
def increase(value: Any, step: int = 1) -> Any:
    return value


@op(version="1")
def total(values: list) -> Any:
    return values


delayed_increase = dask.delayed(lambda value, step=1: value, pure=True)
delayed_total = dask.delayed(lambda values: values, pure=True)


def flat(count: int) -> str:
    return digest(total([increase(number) for number in range(count)]))


def flat_delayed(count: int) -> str:
    return str(tokenize(delayed_total([delayed_increase(number) for number in range(count)])))


def chain(count: int) -> str:
    found: Any = 0
    for _ in range(count):
        found = increase(found)
    return digest(found)


def chain_delayed(count: int) -> str:
    found: Any = 0
    for _ in range(count):
        found = delayed_increase(found)
    return str(found.key)


def seconds(action: Callable[[], Any]) -> float:
    gc.collect()
    began = time.perf_counter()
    action()
    return time.perf_counter() - began


def imported(module: str) -> float:
    """Seconds that a fresh process needs for an import, without the start of Python."""
    script = f"import time; began = time.perf_counter(); import {module}; print(time.perf_counter() - began)"
    return float(subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout)


def measure(name: str, ours: Callable[[], float], theirs: Callable[[], float], unit: float, label: str) -> None:
    pairs = [(ours(), theirs()) for _ in range(REPEATS)]
    left, right = (statistics.median(side) for side in zip(*pairs, strict=True))
    print(f"{name:<38}{left * unit:>12.1f} {label:<8}{right * unit:>12.1f} {label:<8}{right / left:>8.1f}×")


def memory(count: int) -> float:
    tracemalloc.start()
    kept = total([increase(number) for number in range(count)])
    size, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    del kept
    return size


def main() -> None:
    print(f"{'':<38}{'marin_dsl':>12}{'':<9}{'dask.delayed':>12}{'':<9}{'ratio':>8}")
    measure("import", lambda: imported("marin_dsl"), lambda: imported("dask.delayed"), 1e3, "ms")
    flat(100), chain(100)
    for count in (1_000, 10_000):
        measure(
            f"build and hash {count:,} under one",
            lambda n=count: seconds(lambda: flat(n)) / n,
            lambda n=count: seconds(lambda: flat_delayed(n)) / n,
            1e6,
            "µs/node",
        )
    measure(
        "build and hash a chain of 1,000",
        lambda: seconds(lambda: chain(1_000)) / 1_000,
        lambda: seconds(lambda: chain_delayed(1_000)) / 1_000,
        1e6,
        "µs/node",
    )
    large = statistics.median(seconds(lambda: flat(100_000)) for _ in range(3))
    print(f"{'build and hash 100,000 under one':<38}{large:>12.2f} s")
    print(f"{'memory of 100,000 nodes':<38}{memory(100_000) / 2**20:>12.0f} MiB")


if __name__ == "__main__":
    main()
