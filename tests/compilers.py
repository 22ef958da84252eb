"""Tests that compile for TPUs and GPUs which are not here: they run in one process whose environment allows it.

They carry the markers `compilers` and `long`: only `make test-all` runs them, and leaves them out loudly where the
compilers' wheels are missing.
"""

from collections.abc import Callable

import pytest
from simulated_devices import on_devices

from marin_kernels.topologies import ENVIRONMENT

TPUS = ("v4:2x2x1", "v5e:2x2", "v5p:2x2x1", "v6e:2x2", "tpu7x:2x2x1")
"""One small topology of each generation, of at least four devices."""
GPUS = ("h200:4",)
"""One host of sm90 GPUs."""
LIFETIME = 8
"""Programs compiled in one process: compilers keep most of a gigabyte of each large one."""


def on_compilers(function: Callable) -> Callable:
    """Run a test function where `marin_kernels.topologies.absent_devices` works; rules as of `on_devices`."""
    return pytest.mark.long(pytest.mark.compilers(on_devices(1, lifetime=LIFETIME, **ENVIRONMENT)(function)))
