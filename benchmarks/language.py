"""The language beside its peers: importing it, building and hashing graphs, their depth and memory, a large array.

Peers are `dask.delayed`, `redun` and `pydra` (`pip install marin-dsl[bench]`); one that is not installed is named and
left out. `mandala` is not among them: it runs each call when it is written and has no graph to build.

The sides of a row run in turns; a row gives the medians, and the median of the ratios of the runs that were paired.
"""

from __future__ import annotations

import functools
import gc
import hashlib
import importlib
import os
import pickle
import statistics
import subprocess
import sys
import time
import tracemalloc
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

import attrs
import cloudpickle
import numpy as np

from marin_dsl import digest, encodable, op
from marin_dsl.encoding import encode_with_leaves

REPEATS = 5
DEPTHS = (100, 1_000, 10_000, 100_000)


@op(version="1")
def increase(value: Any, step: int = 1) -> Any:
    return value


@op(version="1")
def pair(left: Any, right: Any) -> Any:
    return left


@op(version="1")
def total(values: list) -> Any:
    return values


@encodable
@attrs.frozen
class Config:
    """An argument with fields."""

    width: int
    rate: float = 0.1


@op(version="1")
def typed(number: int, kind: Literal["a", "b"] = "a") -> int:
    return number


@op(version="1")
def listed(several: Sequence[float]) -> float:
    return sum(several)


@op(version="1")
def named(numbers: Mapping[str, int] | None) -> int:
    return sum((numbers or {}).values())


@op(version="1")
def configured(config: Config) -> int:
    return config.width


@op(version="1")
def collected(*numbers: int, **more: float) -> float:
    return sum(numbers) + sum(more.values())


@attrs.frozen
class Language:
    """A way to write graphs.

    Attributes:
        name: what people call it.
        increase: the node that applies a function to a value, or to another node.
        total: the node that applies a function to a list of nodes.
        hashed: the identity of a node.
        most: nodes of the largest graph that it is measured with.
    """

    name: str
    increase: Callable[[Any], Any]
    total: Callable[[list[Any]], Any]
    hashed: Callable[[Any], str]
    most: int = 100_000

    def flat(self, count: int) -> str:
        """Build and hash nodes under one."""
        return self.hashed(self.total([self.increase(number) for number in range(count)]))

    def chain(self, count: int) -> str:
        """Build and hash nodes, each on top of the one before."""
        found: Any = 0
        for _ in range(count):
            found = self.increase(found)
        return self.hashed(found)


def ours() -> Language:
    return Language("marin_dsl", increase, total, digest)


def dask_delayed() -> Language:
    import dask

    plus = dask.delayed(lambda value, step=1: value, pure=True)
    collect = dask.delayed(lambda values: values, pure=True)
    return Language("dask.delayed", plus, collect, lambda node: str(node.key), most=1_000)


def redun() -> Language:
    from redun import task

    plus = task(name="increase", namespace="bench", version="1")(lambda value, step=1: value)
    collect = task(name="total", namespace="bench", version="1")(lambda values: values)
    return Language("redun", plus, collect, lambda node: str(node.get_hash()))


def pydra() -> Language:
    os.environ["NO_ET"] = "1"  # it would report its use over the network
    mark = importlib.import_module("pydra.mark")

    @mark.task
    def plus(value, step=1):  # it takes no annotations that are text
        return value

    @mark.task
    def collect(values):
        return values

    def checksum(node: Any) -> str:
        return str(node.checksum)

    # A node of its kind takes values: what stands for a node in another one is its checksum.
    return Language(
        "pydra",
        lambda value: plus(name="plus", value=value if isinstance(value, int) else checksum(value)),
        lambda values: collect(name="collect", values=[checksum(value) for value in values]),
        checksum,
        most=100,
    )


def installed(*sides: Callable[[], Language]) -> list[Language]:
    found = []
    for side in sides:
        try:
            found.append(side())
        except ImportError as error:
            print(f"{side.__name__} is left out, it is not installed here ({error}): pip install 'marin-dsl[bench]'")
    return found


def seconds(action: Callable[[], Any]) -> float:
    gc.collect()
    began = time.perf_counter()
    action()
    return time.perf_counter() - began


def imported(module: str) -> float:
    """Seconds that a fresh process needs for an import, without the start of Python."""
    script = f"import time; began = time.perf_counter(); import {module}; print(time.perf_counter() - began)"
    return float(subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout)


def row(title: str, sides: Sequence[tuple[str, Callable[[], float]]], unit: str, repeats: int = REPEATS) -> None:
    """Run the sides in turns and print a line for each; the first one is ours."""
    rounds = [[measure() for _, measure in sides] for _ in range(repeats)]
    for position, (name, _) in enumerate(sides):
        median = statistics.median(each[position] for each in rounds)
        ratio = statistics.median(each[position] / each[0] for each in rounds)
        print(f"{title if not position else '':<36}{name:<14}{median:>12.2f} {unit:<8}{ratio:>9.2f}×", flush=True)


def nodes(languages: list[Language], shape: str, count: int, repeats: int = REPEATS) -> None:
    """Build and hash a graph; a language is left out of graphs that are too large for it."""

    def measured(language: Language) -> Callable[[], float]:
        build = getattr(language, shape)
        return lambda: seconds(lambda: build(count)) / count * 1e6

    sides = [(language.name, measured(language)) for language in languages if count <= language.most]
    row(f"build and hash, {shape}, {count:,} nodes", sides, "µs/node", repeats)


def shapes() -> None:
    """A call that is checked against types, by the shape of its argument."""
    inner, count = typed(1), 2_000
    calls: dict[str, Callable[[int], Any]] = {
        "a number": lambda n: typed(n),
        "an expression": lambda n: typed(inner, kind="b"),
        "a list with an expression": lambda n: listed([n, inner]),
        "a dict with an expression": lambda n: named({"a": n, "b": inner}),
        "an object": lambda n: configured(Config(n)),
        "*args": lambda n: collected(n, inner),
        "**kwargs": lambda n: collected(a=n),
        "expr + n, inline": lambda n: inner + n,
        'expr["loss"], inline': lambda n: inner["loss"],
    }
    for name, call in calls.items():
        measured = functools.partial(seconds, lambda call=call: [call(number) for number in range(count)])
        row(f"  {name}", [("marin_dsl", lambda measured=measured: measured() / count * 1e6)], "µs/node")


def deepest(language: Language) -> str:
    """The longest chain, of those that are tried, that can be built and hashed."""
    deep = 0
    for count in DEPTHS:
        if count > language.most:
            return f"{deep:,} (more was not tried)"
        try:
            language.chain(count)
        except RecursionError:
            return f"{deep:,}, then RecursionError at {count:,}"
        deep = count
    return f"{deep:,} (more was not tried)"


def memory(count: int) -> float:
    """MiB that a graph of our nodes holds; resident memory would hide what earlier graphs have left free."""
    tracemalloc.start()
    kept = total([increase(number) for number in range(count)])
    held = tracemalloc.get_traced_memory()[0] / 2**20
    tracemalloc.stop()
    del kept
    return held


def deep(levels: int) -> None:
    """A diamond ladder and a chain: built, hashed, printed and pickled."""
    left, right = increase(1), increase(2)
    for _ in range(levels):
        left, right = pair(left, right), pair(right, left)
    chained: Any = 0
    for _ in range(10 * levels):
        chained = increase(chained)
    for name, made in (("diamond ladder", left), ("chain", chained)):
        took = seconds(lambda made=made: pickle.loads(cloudpickle.dumps(made)))
        print(f"{name + ': print, and pickle both ways':<50}{took:>12.2f} s   {made!r}")


def array(size: int) -> None:
    content = np.frombuffer(np.random.default_rng(0).bytes(size), np.uint8)
    row(
        f"an array of {size / 1e9:.0f} GB",
        [
            ("encode", lambda: seconds(lambda: encode_with_leaves(content))),
            ("SHA-256 alone", lambda: seconds(lambda: hashlib.sha256(content).digest())),
        ],
        "s",
    )
    tracemalloc.start()  # NumPy reports to it too
    encode_with_leaves(content)
    print(f"{'  peak memory beyond the array':<50}{tracemalloc.get_traced_memory()[1] / 2**20:>12.2f} MiB")
    tracemalloc.stop()


def main() -> None:
    print(f"load of the machine: {' '.join(f'{load:.1f}' for load in os.getloadavg())} on {os.cpu_count()} cores")
    languages = installed(ours, dask_delayed, redun, pydra)
    print(f"{'':<50}{'median':>12} {'':<8}{'to ours':>10}")
    modules = {"pydra": "pydra", "redun": "redun", "dask.delayed": "dask.delayed", "marin_dsl": "marin_dsl"}
    row("import", [(each.name, lambda m=modules[each.name]: imported(m) * 1e3) for each in languages], "ms")
    for language in languages:
        language.flat(10)
    for count in (100, 1_000, 10_000):
        nodes(languages, "flat", count)
    nodes(languages, "chain", 100)
    shapes()
    nodes(languages, "flat", 100_000, repeats=3)
    for language in languages:
        print(f"{'longest chain':<36}{language.name:<14}{deepest(language)}")
    print(f"{'memory of 100,000 nodes':<36}{'marin_dsl':<14}{memory(100_000):>12.0f} MiB")
    deep(10_000)
    array(1_000_000_000)
    print(f"load of the machine: {' '.join(f'{load:.1f}' for load in os.getloadavg())} on {os.cpu_count()} cores")


if __name__ == "__main__":
    main()
