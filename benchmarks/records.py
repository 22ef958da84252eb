"""How long questions to a store take: lineages and differences of 10,000 nodes, a log of events, the list of runs.

Prints a table beside the budgets; exits with 1 when one is exceeded.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from marin_dsl import Expression, Store, evaluate, op, provenance
from marin_dsl.evaluation import event_log
from marin_dsl.expression.display import tree
from marin_dsl.lineage import every, folded, origins, outcomes, uses
from marin_dsl.lineage.comparison import Comparison, compare, paired
from marin_dsl.lineage.history import runs
from marin_dsl.lineage.subject import subjects

NODES, REPEATS = 10_000, 5


@op(version="1")
def leaf(n: int) -> int:
    return n


@op(version="1")
def step(n: int) -> int:
    return n + 1


@op(version="1")
def total(parts: list) -> int:
    return sum(parts)


def seconds(question: Callable[[], Any]) -> float:
    """The median time of a few askings."""
    times = []
    for _ in range(REPEATS):
        began = time.perf_counter()
        question()
        times.append(time.perf_counter() - began)
    return statistics.median(times)


def wide(first: int) -> Expression[int]:
    """A graph of 10,000 leaves, of which the first may differ."""
    rows = [[100 * row + column for column in range(100)] for row in range(NODES // 100)]
    rows[0][0] = first
    return total([total([leaf(n) for n in row]) for row in rows])


def deep(first: int) -> Expression[int]:
    """A chain of 10,000 calls over a leaf."""
    found = leaf(first)
    for _ in range(NODES):
        found = step(found)
    return found


def compared(store: Store, name: str) -> Comparison:
    """How the two experiments of a name differ."""
    (pair,) = paired(subjects(store, f"{name}@1.0"), subjects(store, f"{name}@2.0"))
    return compare(store, *pair)


def main() -> int:
    """Make a store with graphs of 10,000 nodes, and ask."""
    provenance.environment = lambda project: {"python": "3"}  # type: ignore[assignment]  # not what is measured
    with tempfile.TemporaryDirectory() as folder:
        store, several = Store(Path(folder, "one")), Store(Path(folder, "several"))
        root = wide(0)
        evaluate(root, store=store, debug=True)
        for make in (deep, wide):
            for first, version in ((-1, "2.0"), (0, "1.0")):
                evaluate(make(first).named(make.__name__, version), store=several, debug=True)
        run, one = event_log.runs(store)[-1], leaf(0).key
        questions: list[tuple[str, Callable[[], Any], float]] = [
            ("lineage up, as a tree", lambda: tree(folded(origins(store, root.key)), lambda found: found.title), 1.0),
            (
                "lineage up, all with outcomes",
                lambda: list(outcomes(store, origins(store, root.key))),
                1.0,
            ),
            ("lineage down", lambda: list(every(uses(store, one))), 1.0),
            ("difference in one leaf, wide", lambda: compared(several, "wide"), 1.0),
            ("difference in one leaf, deep", lambda: compared(several, "deep"), 1.0),
            ("replay of the log", lambda: event_log.state(store, run), 1.0),
            ("list of runs", lambda: list(runs(store)), 0.5),
        ]
        rows = [(name, seconds(question), budget) for name, question, budget in questions]
    print(f"{NODES:,} nodes, local disk, medians of {REPEATS}")
    for name, took, budget in rows:
        print(f"{name:<32}{took:7.3f} s   ≤ {budget:g}")
    return int(any(took > budget for _, took, budget in rows))


if __name__ == "__main__":
    sys.exit(main())
