"""A large array passes from operator to operator with one copy in memory."""

import gc
import tracemalloc

import numpy as np
import pytest

from marin_dsl import evaluate, op
from marin_dsl.store import Store

SIZE = 32 << 20


@op(version="1")
def make(value: float) -> dict:
    return {"weights": np.full(SIZE // 8, value), "loss": 0.5}


@op(version="1")
def total(array) -> float:
    return float(array.sum())


@pytest.fixture
def traced():
    gc.collect()
    tracemalloc.start()
    yield tracemalloc.get_traced_memory
    tracemalloc.stop()


def test_an_array_passes_between_two_operators_with_one_copy_in_memory(tmp_path, traced):
    assert evaluate(total(make(2.0)["weights"]), store=tmp_path, debug=True).value == SIZE / 4
    assert SIZE <= traced()[1] < 1.5 * SIZE  # the rest is code that is loaded and parsed


def test_storing_and_reading_an_array_copies_nothing_of_it(tmp_path, traced):
    store, array = Store(tmp_path), np.arange(SIZE / 8)
    tracemalloc.reset_peak()
    before = traced()[0]
    got = store.get(store.put(array))
    assert got[5] == 5
    assert traced()[1] - before < SIZE / 8
