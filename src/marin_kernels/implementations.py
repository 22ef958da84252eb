"""Which implementation of a kernel runs: one named explicitly runs or raises; the default falls back, and says why."""

import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
from jaxtyping import Array

Obstacle = Callable[..., str | None]
"""Why an implementation cannot take these arguments here; None where it can."""


class FallbackWarning(UserWarning):
    """The implementation that is usual on this kind of device cannot run here; another one does."""


def platform(array: Array) -> str:
    """The kind of device that an array is on, or that a program traced with it is meant for.

    Returns:
        ``"cpu"``, ``"gpu"``, ``"tpu"``: of the array's explicit mesh, else of the mesh in force, else JAX's default.
    """
    device = target_device(array)
    name = jax.default_backend() if device is None else device.platform
    return "gpu" if name in ("cuda", "rocm") else name


def target_device(array: Array) -> jax.sharding.AbstractDevice | None:
    """What is known of the devices that a program traced with an array is meant for; None: JAX's default devices."""
    for mesh in (jax.typeof(array).sharding.mesh, jax.sharding.get_abstract_mesh()):
        if not mesh.empty and mesh.abstract_device is not None:
            return mesh.abstract_device
    return None


def choose(
    function: str,
    requested: str,
    obstacles: Mapping[str, Obstacle],
    order: Mapping[str, Sequence[str]],
    *arguments: Any,
) -> str:
    """The name of the implementation that runs.

    Args:
        function: the function's name, for messages.
        requested: a name among ``obstacles``, or ``"default"``.
        obstacles: for each implementation, what tells why it cannot run.
        order: for each platform (``"cpu"``, ``"gpu"``, ``"tpu"``), the usual implementation and what follows it when
            it cannot run; the last one always can.
        arguments: what the obstacles are told; the first is an array, which tells the platform.

    Raises:
        ValueError: the name is unknown, or the implementation named cannot run here.
    """
    here = platform(arguments[0])
    if requested == "default":
        return _first(function, obstacles, order.get(here, order["cpu"]), here, arguments)
    if requested not in obstacles:
        raise ValueError(
            f"{function}: unknown implementation {requested!r}; choose one of 'default', "
            f"{', '.join(map(repr, obstacles))}"
        )
    if reason := obstacles[requested](*arguments):
        raise ValueError(
            f"{function}: implementation {requested!r} cannot run here: {reason}; choose another, or 'default', "
            f"which takes the first that can of {', '.join(map(repr, order.get(here, order['cpu'])))}"
        )
    return requested


def _first(function, obstacles, order, here, arguments):
    reasons = []
    for name in order:
        reason = obstacles[name](*arguments)
        if reason is None:
            break
        reasons.append(f"{name!r} cannot run: {reason}")
    else:
        raise ValueError(f"{function}: no implementation can run on {here}: {'; '.join(reasons)}")
    if reasons:
        message = f"{function}: {name!r} runs instead of {order[0]!r}, which is usual on {here}: {'; '.join(reasons)}"
        warnings.warn(message, FallbackWarning, stacklevel=4)
    return name
