"""Devices that are not here, to compile for: TPU pods and GPU hosts, by their makers' real compilers.

The compilers come as wheels (``pip install marin-dsl[compilers]``) and need no device. What they return is not run
here, but tells what a program costs there: memory, collectives, operations.
"""

import os
import re
from collections.abc import Sequence
from importlib.util import find_spec
from types import MappingProxyType

import jax
from jax.experimental import topologies

ENVIRONMENT = MappingProxyType(
    {
        "TPU_SKIP_MDS_QUERY": "1",
        "TPU_ACCELERATOR_TYPE": "v5litepod-4",
        "TPU_WORKER_HOSTNAMES": "localhost",
        "ALLOW_MULTIPLE_LIBTPU_LOAD": "1",
        "JAX_PLATFORMS": "cpu",
    }
)
"""What the environment of a process must say before it asks for TPUs; else libtpu looks for them on the network."""

_TPU_WHEELS = {"libtpu": "libtpu"}
_GPU_WHEELS = {"jax-cuda13-plugin": "jax_plugins.xla_cuda13", "jax-cuda13-pjrt": "jax_plugins"}
_NAME = re.compile(r"(?P<kind>v4|v5e|v5p|v6e|tpu7x|h100|h200):(?P<shape>\d+(x\d+){0,2})")

_GPU = """
gpu_device_info {{
  threads_per_block_limit: 1024
  threads_per_warp: 32
  shared_memory_per_block: 49152
  shared_memory_per_core: 233472
  shared_memory_per_block_optin: 232448
  threads_per_core_limit: 2048
  core_count: 132
  fpus_per_core: 128
  block_dim_limit_x: 2147483647
  block_dim_limit_y: 65535
  block_dim_limit_z: 65535
  registers_per_core_limit: 65536
  registers_per_block_limit: 65536
  l2_cache_size: 52428800
  clock_rate_ghz: 1.98
  memory_bandwidth: {bandwidth}
  device_memory_size: {memory}
  cuda_compute_capability {{ major: 9 minor: 0 }}
}}
platform_name: "CUDA"
dnn_version_info {{ major: 9 minor: 12 }}
runtime_version {{ major: 13 minor: 0 }}
device_description_str: "NVIDIA {name}"
"""
_GPUS = {
    "h100": _GPU.format(name="H100 80GB HBM3", bandwidth=3_350_000_000_000, memory=85_000_000_000),
    "h200": _GPU.format(name="H200", bandwidth=4_800_000_000_000, memory=150_000_000_000),
}


def missing_compilers(kind: str | None = None) -> tuple[str, ...]:
    """The names of the wheels that are not installed, to compile for a kind of device; None: for every kind.

    Empty when everything asked for can be compiled for.
    """
    tpus = {} if kind in _GPUS else _TPU_WHEELS
    gpus = _GPU_WHEELS if kind is None or kind in _GPUS else {}
    return tuple(wheel for wheel, module in (tpus | gpus).items() if not _found(module))


def _found(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:  # a parent package is missing
        return False


def absent_devices(name: str) -> Sequence[jax.Device]:
    """The devices of a topology, to build a mesh of and compile for; nothing can be run on them.

    Args:
        name: ``kind:shape``: ``v4:2x2x1``, ``v5e:2x2``, ``v5p:4x4x4``, ``v6e:16x16``, ``tpu7x:2x2x1`` (chips along each
            axis), or ``h100:8``, ``h200:2x8`` (GPUs of a host; hosts, GPUs of each).

    Returns:
        The devices in the topology's order.

    Raises:
        ValueError: the name is none of a topology, or its compiler refuses it.
        RuntimeError: a wheel is missing, or the environment lacks what `ENVIRONMENT` says.
    """
    match = _NAME.fullmatch(name)
    if match is None:
        raise ValueError(
            f"no topology is named {name!r}; write kind:shape with kind v4, v5e, v5p, v6e, tpu7x, h100 or h200, "
            "such as 'v5p:4x4x4' or 'h200:8'"
        )
    if wheels := missing_compilers(match["kind"]):
        raise RuntimeError(
            f"to compile for {name}, install the compilers: pip install 'marin-dsl[compilers]' "
            f"(missing: {', '.join(wheels)})"
        )
    return _gpus(match) if match["kind"] in _GPUS else _tpus(name)


def _gpus(match: re.Match) -> Sequence[jax.Device]:
    hosts, _, each = match["shape"].rpartition("x")
    return topologies.get_topology_desc(
        platform="cuda",
        topology_name=match[0],
        topology=f"1x{hosts or 1}x{each}",
        target_config=_GPUS[match["kind"]],
    ).devices


def _tpus(name: str) -> Sequence[jax.Device]:
    lacking = [f"{key}={value}" for key, value in ENVIRONMENT.items() if key not in os.environ]
    if lacking:
        raise RuntimeError(f"to compile for {name}, start the process with {' '.join(lacking)} in its environment")
    try:
        return topologies.get_topology_desc(platform="tpu", topology_name=name).devices
    except jax.errors.JaxRuntimeError as error:
        raise ValueError(f"the TPU compiler knows no topology {name!r}: {error}") from error
