"""An experiment for processes that are killed in the middle of it."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

from marin_dsl import evaluate, op, provenance, when

STEPS = 24


def note(ledger: str, what: str) -> None:
    """Append a line to what the store knows nothing of."""
    descriptor = os.open(ledger, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    os.write(descriptor, f"{what}\n".encode())
    os.close(descriptor)


@op(version="1")
def step(n: int, ledger: str, before: int | None = None) -> int:
    note(ledger, f"step {n}")
    time.sleep(0.005)
    return n


@op(version="1")
def total(parts: list, ledger: str) -> int:
    note(ledger, f"total of {len(parts)}")
    return sum(parts)


@op(version="1")
def unfolded(n: int, ledger: str):
    note(ledger, f"unfolded {n}")
    return total([step(n + 1, ledger), n], ledger)


def experiment(ledger: str):
    """Chains, a fan, a choice, and an operator that returns an expression."""
    chain = None
    parts = []
    for n in range(STEPS):
        chain = step(n, ledger, chain if n % 4 else None)
        parts.append(chain)
    return total([*parts, when(parts[1] > 0, unfolded(100, ledger), 0)], ledger)


EACH = {*(f"step {n}" for n in (*range(STEPS), 101)), "total of 2", f"total of {STEPS + 1}", "unfolded 100"}
"""What the ledger says of each call."""

VALUE = sum(range(STEPS)) + 201


if __name__ == "__main__":
    provenance.environment = lambda project: {"python": "3"}  # it takes longer than the work
    store, ledger = sys.argv[1:3]
    workers = int(sys.argv[3]) if len(sys.argv) > 3 else None
    settings = {"workers": workers} if workers else {"debug": True}
    value = evaluate(experiment(ledger), store=Path(store), **settings).value
    note(ledger, f"value {value}")
