"""An experiment for several processes on one store: who runs what is told in a file outside of it."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

from marin_dsl import evaluate, op, provenance


def _tell(place: str, text: str) -> None:
    with open(place, "a") as stream:
        stream.write(f"{text}\n")


@op(version="1")
def leaf(n: int, seconds: float, log: str) -> int:
    _tell(log, f"{n} {os.getpid()}")
    time.sleep(seconds)
    return n


@op(version="1")
def total(parts: list, seconds: float, log: str) -> int:
    _tell(log, f"total {len(parts)} {os.getpid()}")
    time.sleep(seconds)
    return sum(parts)


@op(version="1")
def until(log: str, release: str) -> int:
    """Works until a file is there, and says which process it was."""
    _tell(log, f"begun {os.getpid()}")
    while not Path(release).exists():
        time.sleep(0.02)
    return 7


def graph(seconds: float, log: str):
    leaves = [leaf(n, seconds, log) for n in range(16)]
    return total([total(leaves[start : start + 4], seconds, log) for start in range(0, 16, 4)], seconds, log)


def main(what: str, store: str, log: str, *more: str) -> None:
    provenance.environment = lambda project: {"python": "3"}
    Path(f"{log}.{os.getpid()}.ready").touch()
    while not Path(f"{log}.go").exists():
        time.sleep(0.01)
    expression = graph(float(more[0]), log) if what == "graph" else until(log, more[0])
    events = []
    value = evaluate(expression, store=store, debug=True, watch=events.append).value
    seen = sum(event["event"] == "elsewhere" for event in events)
    print(value, next(event["ran"] for event in events if event["event"] == "finished"), seen)


if __name__ == "__main__":
    main(*sys.argv[1:])
