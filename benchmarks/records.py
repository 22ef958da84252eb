"""How long questions to a store take: a lineage of 10,000 ancestors, a log of events, the list of runs.

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

from marin_dsl import Store, evaluate, op, provenance
from marin_dsl.evaluation import event_log
from marin_dsl.expression.display import tree
from marin_dsl.lineage import became, every, folded, origins, uses
from marin_dsl.lineage.history import runs

NODES, REPEATS = 10_000, 5


@op(version="1")
def leaf(n: int) -> int:
    return n


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


def main() -> int:
    """Make a store with a graph of 10,000 nodes, and ask."""
    provenance.environment = lambda project: {"python": "3"}  # type: ignore[assignment]  # not what is measured
    with tempfile.TemporaryDirectory() as folder:
        store = Store(Path(folder))
        root = total([total([leaf(100 * row + column) for column in range(100)]) for row in range(NODES // 100)])
        evaluate(root, store=store, debug=True)
        run, one = event_log.runs(store)[-1], leaf(0).key
        questions: list[tuple[str, Callable[[], Any], float]] = [
            ("lineage up, as a tree", lambda: tree(folded(origins(store, root.key)), lambda found: found.title), 1.0),
            (
                "lineage up, all with outcomes",
                lambda: [became(store, it) for it in every(origins(store, root.key))],
                2.0,
            ),
            ("lineage down", lambda: list(every(uses(store, one))), 1.0),
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
