"""Garbage is collected less often while a graph is evaluated, and as before afterwards."""

from __future__ import annotations

import gc

import pytest

from marin_dsl import evaluate, op, plan
from marin_dsl.evaluation.garbage import fewer_collections


@pytest.fixture(autouse=True)
def _thresholds():
    before = gc.get_threshold()
    gc.set_threshold(700, 10, 10)
    yield
    gc.set_threshold(*before)


@op(version="1", impure=True)
def threshold() -> int:
    return gc.get_threshold()[0]


def test_collections_are_rarer_while_operators_run_and_as_before_afterwards(tmp_path):
    assert evaluate(threshold(), store=str(tmp_path), debug=True).value > 700
    plan(threshold(), store=str(tmp_path))
    assert gc.get_threshold() == (700, 10, 10)


def test_what_the_block_raises_passes_and_collections_are_as_before():
    with pytest.raises(KeyError), fewer_collections():
        raise KeyError
    assert gc.get_threshold() == (700, 10, 10)


def test_blocks_in_blocks_end_with_the_outer_one():
    with fewer_collections():
        within = gc.get_threshold()
        with fewer_collections():
            assert gc.get_threshold() == within
        assert gc.get_threshold() == within
    assert gc.get_threshold() == (700, 10, 10)


@pytest.mark.parametrize("chosen", [(0, 10, 10), (1_000_000, 5, 5)])
def test_who_made_collections_rarer_or_switched_them_off_keeps_that(chosen):
    gc.set_threshold(*chosen)
    with fewer_collections():
        assert gc.get_threshold() == chosen
    assert gc.get_threshold() == chosen


def test_what_is_set_meanwhile_stays():
    with fewer_collections():
        gc.set_threshold(123, 4, 5)
    assert gc.get_threshold() == (123, 4, 5)
