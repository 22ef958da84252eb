"""The evaluator beside its peers: many nodes that do nothing, cold, warm and with one change, and a large array.

Peers are `redun`, `joblib.Memory`, `prefect` and `pydra` (`pip install marin-dsl[bench]`); one that is not installed is
named and left out. Those that take milliseconds a node get fewer nodes; figures are per node, and the number is shown.
joblib keeps results of single calls: nothing is planned, and every call is looked up again.

The sides of a row run in turns, each in a fresh folder; a row gives the medians, and the median of the paired ratios.
"""

from __future__ import annotations

import argparse
import atexit
import contextlib
import functools
import importlib
import importlib.util
import logging
import os
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import attrs
import numpy as np
from language import installed, row, seconds

from marin_dsl import evaluate, op, plan

REPEATS = 3
BENCHMARKS = Path(__file__).resolve().parent


@op(version="1")
def nothing(number: int) -> int:
    return number


@op(version="1")
def total(numbers: list[int]) -> int:
    return sum(numbers)


@op(version="1")
def ones(size: int) -> np.ndarray:
    return np.ones(size, np.uint8)


@op(version="1")
def sampled(array: np.ndarray) -> int:
    return int(array[::4096].sum())


@attrs.frozen
class Evaluator:
    """A way to evaluate graphs and to keep results.

    Attributes:
        name: what people call it.
        each: evaluates one node for each number, keeping the results in a folder.
        gathered: evaluates a node over one node for each number.
        most: nodes of the largest graph that it is measured with.
        apart: the function that makes it, when it is measured in a process of its own.
    """

    name: str
    each: Callable[[Path, Iterable[int]], Any]
    gathered: Callable[[Path, Iterable[int]], Any]
    most: int = sys.maxsize
    apart: str = ""


def ours() -> Evaluator:
    return _ours("marin_dsl", debug=True)


def ours_in_dask() -> Evaluator:
    return _ours("  through Dask")


def _ours(name: str, **settings: Any) -> Evaluator:
    return Evaluator(
        name,
        lambda folder, numbers: evaluate(*map(nothing, numbers), store=str(folder), **settings),
        lambda folder, numbers: evaluate(total([nothing(number) for number in numbers]), store=str(folder), **settings),
    )


def joblib_memory() -> Evaluator:
    from joblib import Memory

    def each(folder: Path, numbers: Iterable[int]) -> list[int]:
        kept = Memory(folder, verbose=0).cache(nothing.function)
        return [kept(number) for number in numbers]

    def gathered(folder: Path, numbers: Iterable[int]) -> int:
        return Memory(folder, verbose=0).cache(total.function)(each(folder, numbers))

    return Evaluator("joblib.Memory", each, gathered)


def redun() -> Evaluator:
    from redun import Scheduler, task
    from redun.config import Config

    logging.getLogger("redun").setLevel(logging.ERROR)
    node = task(name="nothing", namespace="bench", version="1")(nothing.function)
    collect = task(name="total", namespace="bench", version="1")(total.function)

    def run(folder: Path, expression: Any) -> Any:
        scheduler = Scheduler(config=Config({"backend": {"db_uri": f"sqlite:///{folder}/redun.db"}}))
        scheduler.load()
        return scheduler.run(expression)

    return Evaluator(
        "redun",
        lambda folder, numbers: run(folder, [node(number) for number in numbers]),
        lambda folder, numbers: run(folder, collect([node(number) for number in numbers])),
        most=500,
    )


def pydra() -> Evaluator:
    os.environ["NO_ET"] = "1"  # it would report its use over the network
    mark = importlib.import_module("pydra.mark")

    @mark.task
    def node(number):  # it takes no annotations that are text
        return number

    @mark.task
    def collect(numbers):
        return sum(numbers)

    def each(folder: Path, numbers: Iterable[int]) -> list[Any]:
        return [node(name="node", number=number, cache_dir=folder)().output.out for number in numbers]

    return Evaluator(
        "pydra",
        each,
        lambda folder, numbers: collect(name="collect", numbers=each(folder, numbers), cache_dir=folder)(),
        most=100,
    )


def prefect() -> Evaluator:
    """It starts a server and takes over all logging, so that it would slow others down."""
    if importlib.util.find_spec("prefect") is None:
        raise ModuleNotFoundError("No module named 'prefect'")
    return Evaluator("prefect", missing, missing, most=50, apart="prefect_itself")


def missing(folder: Path, numbers: Iterable[int]) -> None:
    raise NotImplementedError("it is measured in a process of its own")


def prefect_itself() -> Evaluator:
    os.environ |= {
        "PREFECT_HOME": tempfile.mkdtemp(prefix="prefect-"),
        "PREFECT_LOGGING_LEVEL": "CRITICAL",
        "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
        "PREFECT_SERVER_EPHEMERAL_STARTUP_TIMEOUT_SECONDS": "120",
        "DO_NOT_TRACK": "1",
    }
    from prefect import flow, task
    from prefect.cache_policies import INPUTS

    node = task(cache_policy=INPUTS, persist_result=True)(nothing.function)
    collect = task(cache_policy=INPUTS, persist_result=True)(total.function)

    def nodes(folder: Path, numbers: Iterable[int]) -> list[int]:
        # It keeps its results in one place for all folders: what is to be cold has to be new to it.
        return [node(number + hash(str(folder))) for number in numbers]

    return Evaluator(
        "prefect",
        lambda folder, numbers: flow(lambda: nodes(folder, numbers))(),
        lambda folder, numbers: flow(lambda: collect(nodes(folder, numbers)))(),
    )


@functools.cache
def _folders() -> Path:
    place = tempfile.mkdtemp(prefix="evaluator-")
    atexit.register(shutil.rmtree, place, ignore_errors=True)
    return Path(place)


@contextlib.contextmanager
def folder() -> Iterator[Path]:
    """A fresh folder, which stays until the end.

    What is removed between two measurements costs the next one: ext4 passes over all files that were removed in the
    last minutes, one by one, when it looks for room for new ones.
    """
    yield Path(tempfile.mkdtemp(dir=_folders()))


def works(side: Evaluator) -> bool:
    """Whether a side comes to its end here; it has also imported then what it imports late."""
    try:
        if side.apart:
            elsewhere(f"apart({side.apart!r}, 'cold', 1)")
        else:
            warmed(side)
    except Exception as error:
        print(f"{side.name} is left out, it does not work here: {type(error).__name__}: {error}")
        return False
    return True


def warmed(side: Evaluator) -> Evaluator:
    with folder() as place:
        side.gathered(place, range(3))
    return side


def apart(side: str, measure: str, count: int) -> float:
    """In a process of its own: one measurement of a side."""
    made: Evaluator = globals()[side]()
    return float(globals()[measure](warmed(made), count))


def cold(side: Evaluator, count: int) -> float:
    """µs a node when nothing is there."""
    with folder() as place:
        return seconds(lambda: side.each(place, range(count))) / count * 1e6


def warm(side: Evaluator, count: int) -> float:
    """µs a node when everything is there."""
    with folder() as place:
        side.each(place, range(count))
        return seconds(lambda: side.each(place, range(count))) / count * 1e6


def whole(side: Evaluator, count: int) -> float:
    """µs a node when everything is there and one value is wanted: with building the graph and all its keys."""
    with folder() as place:
        side.gathered(place, range(count))
        return seconds(lambda: side.gathered(place, range(count))) / count * 1e6


def changed(side: Evaluator, count: int) -> float:
    """µs a node when one of many below a node has changed."""
    with folder() as place:
        side.gathered(place, range(count))
        return seconds(lambda: side.gathered(place, [-1, *range(1, count)])) / count * 1e6


def compared(title: str, sides: list[Evaluator], measure: Callable[[Evaluator, int], float], count: int) -> None:
    def measured(side: Evaluator) -> tuple[str, Callable[[], float]]:
        few = min(count, side.most)
        name = side.name if few == count else f"{side.name}, {few}"
        if side.apart:
            return name, lambda: elsewhere(f"apart({side.apart!r}, {measure.__name__!r}, {few})")
        return name, lambda: measure(side, few)

    row(f"{title}, {count:,} nodes", [measured(side) for side in sides], "µs/node", REPEATS)


def alone(title: str, values: list[float], unit: str, remark: str = "") -> None:
    """A row without peers."""
    print(f"{title:<36}{'marin_dsl':<14}{statistics.median(values):>12.2f} {unit:<8}{remark}", flush=True)


def planned(count: int) -> None:
    """A plan of nodes that are all there, with building and hashing them."""
    with folder() as place:
        evaluate(*map(nothing, range(count)), store=str(place), debug=True)
        took = [seconds(lambda: plan(*map(nothing, range(count)), store=str(place))) for _ in range(REPEATS)]
    alone(f"plan, {count:,} warm nodes", took, "s")


def one_change(count: int) -> None:
    """What runs when one leaf of a fan-in has changed."""
    events: list[dict[str, Any]] = []
    with folder() as place:
        evaluate(total(list(map(nothing, range(count)))), store=str(place), debug=True)
        leaves = list(map(nothing, [-1, *range(1, count)]))
        took = seconds(lambda: evaluate(total(leaves), store=str(place), debug=True, watch=events.append))
    ran = next(event["ran"] for event in events if event["event"] == "finished")
    alone(f"one changed leaf of {count:,}", [took], "s", f"{ran} nodes ran")


def grown(action: Callable[..., Any], *args: Any) -> float:
    """MiB that this process has more at most while something is done, files that are mapped into it apart."""
    done, seen = threading.Event(), [_resident()]

    def watch() -> None:
        while not done.wait(0.002):
            seen.append(_resident())

    watcher = threading.Thread(target=watch)
    watcher.start()
    action(*args)
    done.set()
    watcher.join()
    return max(*seen, _resident()) - seen[0]


def _resident() -> float:
    try:
        status = Path("/proc/self/status").read_text()
    except OSError:  # not Linux: the most that there ever was, mapped files included
        most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return most / (2**20 if sys.platform == "darwin" else 2**10)
    return int(status.partition("RssAnon:")[2].split()[0]) / 2**10


def many(place: str, count: int) -> None:
    evaluate(*map(nothing, range(count)), store=place, debug=True)


def array_of_ours(place: str, size: int) -> None:
    assert evaluate(sampled(ones(size)), store=place, debug=True).value


def array_of_joblib(place: str, size: int) -> None:
    from joblib import Memory

    kept = Memory(place, verbose=0, mmap_mode="r")
    assert kept.cache(sampled.function)(kept.cache(ones.function)(size))


def grown_elsewhere(action: Callable[..., Any], size: int) -> float:
    """What `grown` says in a fresh process."""
    with folder() as place:
        return elsewhere(f"grown(evaluator.{action.__name__}, {str(place)!r}, {size})")


def elsewhere(call: str) -> float:
    """What a function of this module returns in a fresh process."""
    path = os.pathsep.join([str(BENCHMARKS), *filter(None, sys.path)])
    done = subprocess.run(
        [sys.executable, "-c", f"import evaluator; print(); print(evaluator.{call})"],
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise RuntimeError(done.stderr.strip().rpartition("\n")[2])
    return float(done.stdout.split()[-1])


def load() -> str:
    return f"load of the machine: {' '.join(f'{each:.1f}' for each in os.getloadavg())} on {os.cpu_count()} cores"


def main() -> None:
    parser = argparse.ArgumentParser(description="The evaluator beside its peers.")
    parser.add_argument("--nodes", type=int, default=10_000, help="nodes of most rows; the others grow with it")
    parser.add_argument("--array", type=float, default=2.0, help="size of the array in GB")
    parser.add_argument(
        "--without", nargs="*", default=[], help="peers to leave out, such as prefect (it starts slowly)"
    )
    chosen = parser.parse_args()
    count, size = chosen.nodes, int(chosen.array * 1e9)
    print(load())
    sides = installed(ours, ours_in_dask, joblib_memory, redun, pydra, prefect)
    print(f"{'':<50}{'median':>12} {'':<8}{'to ours':>10}")
    sides = [side for side in sides if side.name not in chosen.without and works(side)]
    compared("cold", sides, cold, count)
    compared("all again", sides, warm, count)
    compared("the same graph again", sides, whole, count)
    compared("one changed leaf of", sides, changed, count)
    one_change(count)
    planned(int(6.6 * count))
    alone(f"memory, {10 * count:,} nodes", [grown_elsewhere(many, 10 * count)], "MiB")
    arrays = [("marin_dsl", lambda: grown_elsewhere(array_of_ours, size))]
    if any(side.name == "joblib.Memory" for side in sides):
        arrays.append(("joblib.Memory", lambda: grown_elsewhere(array_of_joblib, size)))
    row(f"memory, an array of {chosen.array:g} GB", arrays, "MiB", 1)
    print(load())


if __name__ == "__main__":
    began = time.perf_counter()
    main()
    print(f"{time.perf_counter() - began:.0f} seconds in all")
