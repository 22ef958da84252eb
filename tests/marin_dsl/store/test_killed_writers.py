"""L13, L19 with real processes: killed at any moment, they leave whole values, and the next one goes on from there."""

import os
import random
import signal
import subprocess
import sys

import numpy as np
import pytest

from marin_dsl import evaluate, op
from marin_dsl.store import Store
from marin_dsl.store.verify import verify


@op(version="1")
def part(number: int) -> dict:
    return {"weights": np.full(30_000, float(number)), "text": "t" * 2000, "number": number}


@op(version="1")
def total(parts: list) -> float:
    return float(sum(found["weights"].sum() for found in parts))


def experiment():
    return total([part(number) for number in range(60)]).named("killed", "1.0")


PROGRAM = """
import sys
from marin_dsl import evaluate
from test_killed_writers import experiment
evaluate(experiment(), store=sys.argv[1], debug=True, watch=lambda event: print(event["event"], flush=True))
"""


def killed(url, count):
    """Whether a process that evaluates was killed after so many events, or ended before."""
    path = os.pathsep.join([os.path.dirname(__file__), *filter(None, sys.path)])
    process = subprocess.Popen(
        [sys.executable, "-c", PROGRAM, url],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": path},
    )
    for _ in range(count):
        process.stdout.readline()
    process.kill()
    process.communicate()
    assert process.returncode in (0, -signal.SIGKILL)
    return process.returncode != 0


@pytest.mark.long
@pytest.mark.parametrize(("kind", "rounds"), [("local", 8), ("google", 8), ("s3", 3)])
def test_l13_l19_whatever_is_killed_leaves_whole_values_and_nothing_to_clean(kind, rounds, new_url):
    url = new_url(kind)
    moments, kills = random.Random(0), 0
    for _ in range(rounds):
        kills += killed(url, moments.randint(1, 30))
        assert not [found for found in verify(Store(url)).findings if found.kind == "damaged"]
    assert kills > rounds / 2
    assert evaluate(experiment(), store=url, debug=True).value == 60 * 59 / 2 * 30_000
    found = verify(Store(url))
    assert found.sound, found
    assert Store(url).files.names("conflicts") == []
