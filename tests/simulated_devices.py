"""Tests on several simulated devices: they run in processes of their own, whose JAX was told so before it began.

Each kind of process (number of devices, environment) is started once for a session and shared by its tests. A test that
cannot get its devices fails; it is never left out.
"""

import atexit
import functools
import importlib
import multiprocessing
import os
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor

import checked_shapes

Kind = tuple[int, int | None, tuple[tuple[str, str], ...]]
_CALLS: Counter[Kind] = Counter()


def on_devices(count: int = 8, *, lifetime: int | None = None, **environment: str) -> Callable[[Callable], Callable]:
    """Run a test function in a process with simulated CPU devices, and with more in its environment.

    After as many calls as its lifetime, a process ends and another one takes its place. The function must stand at the
    top of its module, and its arguments must be picklable; innermost of decorators.
    """

    def decorate(function: Callable) -> Callable:
        @functools.wraps(function)
        def remote(*arguments, **named):
            pool = _next_process((count, lifetime, tuple(sorted(environment.items()))))
            return pool.submit(_call, function.__module__, function.__name__, arguments, named).result()

        return remote

    return decorate


def _next_process(kind: Kind) -> ProcessPoolExecutor:
    _, lifetime, _ = kind
    turn, begun = divmod(_CALLS[kind], lifetime) if lifetime else (0, 1)
    _CALLS[kind] += 1
    if turn and not begun:
        _process(kind, turn - 1).shutdown()
    return _process(kind, turn)


@functools.cache
def _process(kind: Kind, turn: int) -> ProcessPoolExecutor:
    count, _, environment = kind
    pool = ProcessPoolExecutor(1, multiprocessing.get_context("spawn"), _prepare, (count, environment))
    atexit.register(pool.shutdown)
    return pool


def _prepare(count: int, environment: tuple[tuple[str, str], ...]) -> None:
    os.environ |= {
        "JAX_PLATFORMS": "cpu",
        "XLA_FLAGS": f"--xla_force_host_platform_device_count={count}",
        **dict(environment),
    }
    import jax

    checked_shapes.install()
    assert jax.device_count() == count, f"{count} devices were asked for, JAX has {jax.device_count()}"


def _call(module: str, name: str, arguments: tuple, named: dict) -> None:
    getattr(importlib.import_module(module), name).__wrapped__(*arguments, **named)
