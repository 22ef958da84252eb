"""How long a run will still take, from what its kinds of calls took so far and in earlier runs."""

from __future__ import annotations

import statistics
from collections import Counter, defaultdict

from marin_dsl.evaluation.state import State


def remaining(state: State, now: float) -> float | None:
    """Seconds until everything that is planned has run; None while something is open of which nothing is known.

    What is open takes as long as the same operator took on average, with as many calls at once as are running now.

    Args:
        state: the run so far.
        now: seconds since the epoch.
    """
    left, seconds = Counter(state.operators), defaultdict[str, list[float]](list)
    for node in state.settled.values():
        left[node.operator] -= 1
        if node.how == "run" and node.seconds is not None:
            seconds[node.operator].append(node.seconds)
    known = {**state.planned.durations, **{operator: statistics.fmean(taken) for operator, taken in seconds.items()}}
    open_ = {operator: count for operator, count in left.items() if count > 0}
    if not open_ or any(operator not in known for operator in open_):
        return None
    longest = max(known[operator] for operator in open_)
    done = sum(min(max(0.0, now - call.since), longest) for call in list(state.running.values()))
    work = sum(count * known[operator] for operator, count in open_.items())
    return max(0.0, work - done) / max(1, len(state.running))
