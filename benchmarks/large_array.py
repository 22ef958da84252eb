"""Memory while a large array passes between two operators of one process, on a local store.

Anonymous memory is what is measured: pages of mapped files are the disk's, and go when others need the room.
"""

from __future__ import annotations

import argparse
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from marin_dsl import evaluate, op

MB = 1 << 20


@op(version="1")
def make(megabytes: int) -> np.ndarray:
    """An array of the wanted size."""
    return np.ones(megabytes * MB // 8)


@op(version="1")
def make_nested(megabytes: int) -> dict:
    """The same inside a dict, to be projected."""
    return {"weights": np.full(megabytes * MB // 8, 2.0), "loss": 0.5}


@op(version="1")
def total(array: np.ndarray) -> float:
    """Reads all of it."""
    return float(array.sum())


def anonymous() -> int:
    """Anonymous memory of this process, in MB."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) // 1024 for line in lines if line.startswith("RssAnon"))


@contextmanager
def peak() -> Iterator[dict[str, int]]:
    """The most anonymous memory while the context lasts, beyond what there was before."""
    before, done, found = anonymous(), threading.Event(), {"peak": 0}

    def watch() -> None:
        while not done.wait(0.002):
            found["peak"] = max(found["peak"], anonymous() - before)

    thread = threading.Thread(target=watch)
    thread.start()
    try:
        yield found
    finally:
        done.set()
        thread.join()


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--megabytes", type=int, default=512)
    size = parser.parse_args().megabytes
    print(f"{'':<28}{'peak, MB':>10}{'copies':>8}")
    for name, make_array in (("array", make(size)), ("part of a dict", make_nested(size)["weights"])):
        for how, settings in (("one thread", {"debug": True}), ("Dask threads", {"debug": False})):
            with tempfile.TemporaryDirectory() as folder:
                evaluate(total(make(1)), store=folder, **settings)
                with peak() as found:
                    outcome = evaluate(total(make_array), store=folder, **settings)
                assert outcome.ok, outcome
            print(f"{name + ', ' + how:<28}{found['peak']:>10}{found['peak'] / size:>8.2f}")


if __name__ == "__main__":
    main()
