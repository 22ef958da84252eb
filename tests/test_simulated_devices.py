"""Tests on simulated devices do run, there, and can fail."""

import os

import jax
import numpy as np
import pytest
from simulated_devices import on_devices


@on_devices(8)
def eight(pid, expected):
    assert os.getpid() != pid
    assert jax.device_count() == 8
    values = jax.pmap(lambda x: jax.lax.psum(x, "devices"), axis_name="devices")(np.arange(8.0))
    np.testing.assert_array_equal(values, expected)


@on_devices(2, MARIN_TEST_WORD="yes")
def word():
    assert (jax.device_count(), os.environ["MARIN_TEST_WORD"]) == (2, "yes")


@on_devices(8)
def breaks_a_shape():
    from marin_kernels import causal_attention

    causal_attention(np.zeros(3), np.zeros(3), np.zeros(3))


def test_a_test_runs_where_there_are_that_many_devices():
    eight(os.getpid(), [28.0] * 8)
    word()


def test_what_fails_there_fails_here_and_shapes_are_checked_there():
    with pytest.raises(AssertionError):
        eight(os.getpid(), [0.0] * 8)
    with pytest.raises(Exception, match="query"):
        breaks_a_shape()


@on_devices(1, lifetime=2)
def written(place):
    with place.open("a") as file:
        file.write(f"{os.getpid()}\n")


def test_a_process_ends_after_as_many_calls_as_it_was_made_for(tmp_path):
    for _ in range(5):
        written(tmp_path / "pids")
    first, again, second, once_more, third = (tmp_path / "pids").read_text().split()
    assert (first, second) == (again, once_more)
    assert len({first, second, third}) == 3
    for gone in (first, second):
        with pytest.raises(ProcessLookupError):
            os.kill(int(gone), 0)
