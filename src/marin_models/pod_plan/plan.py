"""Compile the training step of a model for a topology, and say what it costs there."""

import functools
import math
import re
import time
from collections.abc import Mapping
from typing import Any

import attrs
import jax
import jax.numpy as jnp
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from jaxtyping import PyTree

from marin_kernels.topologies import absent_devices
from marin_models.counting import flops_per_token, forward_flops_per_token
from marin_models.mesh import BATCH, make_mesh
from marin_models.optimizers import OptimizerConfig
from marin_models.pod_plan.chips import chip
from marin_models.pod_plan.collectives import Collective, collectives
from marin_models.sizes import size
from marin_models.training import TrainingConfig
from marin_models.training.state import initial_state
from marin_models.training.step import Batch, Program, Run, train_step
from marin_models.transformer_config import TransformerConfig

_USED = re.compile(r"(?:[Uu]sed |temporaries \()(\d+(?:\.\d+)?)([KMGT]?)")
_UNITS = {"": 1, "K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}


@attrs.frozen
class Request:
    """What is planned.

    Attributes:
        topology: see `marin_kernels.topologies.absent_devices`.
        model: a name of `marin_models.SIZES`.
        batch: rows per step, on all devices together.
        length: tokens of a row.
        mesh: sizes of the axes by name; those left out are 1.
        optimizer: a kind of `marin_models.OptimizerConfig`.
        micro_batches: parts in which the batch goes through the model.
        expert_parallel: the implementation of mixtures of experts; None: the model's own on one device, ``"ring"``
            where the mesh splits experts.
        capacity_factor: of mixtures of experts; None: none is dropped, and room is kept for the worst case.
        remat: what a layer computes again; None: as the model has it.
    """

    topology: str
    model: str
    batch: int
    length: int
    mesh: Mapping[str, int] = attrs.field(factory=dict)
    optimizer: str = "muon"
    micro_batches: int = 1
    expert_parallel: str | None = None
    capacity_factor: float | None = None
    remat: str | None = None


@attrs.frozen
class Plan:
    """What the compiler says of one training step.

    Attributes:
        devices: of the topology.
        arguments: bytes of parameters, optimizer and batch on each device.
        temporary: bytes that the step needs beside them on each device, at its worst moment.
        memory: bytes that it needs in all on each device, code included.
        capacity: bytes of a device's memory.
        flops: operations of the matrix products on each device, those that are done again for the backward pass
            included.
        model_flops: the same without those (what MFU counts).
        collectives: what is sent between devices.
        unknown_loops: loops of unknown length, whose collectives are counted once.
        seconds: least time by ``"compute"``, ``"memory"`` and ``"network"``, at the documented rates.
        tokens: predicted in a step, on all devices together.
        compile_seconds: that the compiler took.
        error: what the compiler refused; its numbers are 0 then.
    """

    devices: int
    arguments: int
    temporary: int
    memory: int
    capacity: int
    flops: float
    model_flops: float
    collectives: tuple[Collective, ...]
    unknown_loops: int
    seconds: Mapping[str, float]
    tokens: int
    compile_seconds: float
    error: str = ""

    @property
    def fits(self) -> bool:
        """Whether the memory suffices."""
        return not self.error and self.memory <= self.capacity

    @property
    def bound(self) -> str:
        """Which of compute, memory and network takes the longest at the documented rates."""
        return max(self.seconds, key=lambda name: self.seconds[name])

    @property
    def least_seconds(self) -> float:
        """The least time of a step, if the three overlap perfectly."""
        return self.seconds[self.bound]


def plan(request: Request) -> Plan:
    """Compile the step and read what it costs; runs where `marin_kernels.topologies.absent_devices` does.

    Raises:
        ValueError: there is no such size or topology, or the mesh does not fit the devices, the model or the batch.
        RuntimeError: the compilers are not installed.
    """
    config = _config(request)
    _training(request)  # what cannot be is told before the compilers are asked for
    devices = absent_devices(request.topology)
    mesh = make_mesh(devices, **request.mesh)
    began = time.perf_counter()
    try:
        with jax.set_mesh(mesh):
            step, arguments = _step(request, config, mesh)
            compiled = step.lower(*arguments).compile()
    except jax.errors.JaxRuntimeError as error:
        if "RESOURCE_EXHAUSTED" not in str(error) and "memory" not in str(error):
            raise
        return _plan(request, config, len(devices), None, time.perf_counter() - began, str(error))
    return _plan(request, config, len(devices), compiled, time.perf_counter() - began, "")


def _config(request: Request) -> TransformerConfig:
    config = size(request.model)
    config = attrs.evolve(config, remat=request.remat or config.remat)
    if config.mixture is None:
        for name in ("expert_parallel", "capacity_factor"):
            if (value := getattr(request, name)) is not None:
                raise ValueError(
                    f"plan: {name} {value!r} is for mixtures of experts, and {request.model} has none; leave it out, "
                    "or choose another model"
                )
        return config
    split = request.mesh.get("expert", 1) > 1
    implementation = request.expert_parallel or ("ring" if split else config.mixture.implementation)
    changes = {"implementation": implementation, "capacity_factor": request.capacity_factor}
    return attrs.evolve(config, mixture=attrs.evolve(config.mixture, **changes))


def _training(request: Request) -> tuple[OptimizerConfig, TrainingConfig]:
    optimizer: Any = request.optimizer
    training = TrainingConfig(
        steps=1000, batch=request.batch, length=request.length, micro_batches=request.micro_batches
    )
    return OptimizerConfig(optimizer, 0.01), training


def _step(request: Request, config: TransformerConfig, mesh: Mesh) -> tuple[Any, tuple]:
    """The jitted step, and its arguments as shapes that lie on the mesh."""
    optimizer, training = _training(request)
    run = jax.eval_shape(lambda: Run.of(optimizer, training))
    make = functools.partial(initial_state, config=config, rule=optimizer.rule)
    state = jax.eval_shape(make, jax.ShapeDtypeStruct((), jnp.int32), run.hyperparameters)
    rows = NamedSharding(mesh, PartitionSpec(BATCH, None))
    batch = Batch(jax.ShapeDtypeStruct((request.batch, request.length + 1), jnp.int32, sharding=rows))
    program = Program.of(optimizer, training)
    step = jax.jit(functools.partial(train_step, program=program), donate_argnums=0)
    return step, (_placed(state, mesh), batch, _placed(run, mesh))


def _placed(tree: PyTree, mesh: Mesh) -> PyTree:
    def one(leaf: jax.ShapeDtypeStruct) -> jax.ShapeDtypeStruct:
        spec = PartitionSpec() if leaf.sharding is None else leaf.sharding.spec
        return jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=NamedSharding(mesh, spec))

    return jax.tree.map(one, tree)


def _plan(request: Request, config: TransformerConfig, devices: int, compiled: Any, seconds: float, error: str) -> Plan:
    made, tokens = chip(request.topology), request.batch * request.length
    parts = devices / math.prod(int(n) for n in request.topology.partition(":")[2].split("x"))  # devices of a chip
    model_flops = flops_per_token(config, request.length) * tokens / devices
    again = 0.0 if config.remat == "none" else forward_flops_per_token(config, request.length) * tokens / devices
    flops = model_flops + again
    if compiled is None:
        used = _USED.search(error)
        needed = int(float(used[1]) * _UNITS[used[2]]) if used else 0
        least = {"compute": flops / (made.flops / parts), "memory": 0.0, "network": 0.0}
        capacity, first = int(made.memory / parts), error.strip().splitlines()[0]
        return Plan(devices, 0, 0, needed, capacity, flops, model_flops, (), 0, least, tokens, seconds, first)
    sizes = compiled.memory_analysis()
    found, unknown = collectives(compiled.as_text())
    arguments, temporary = sizes.argument_size_in_bytes, sizes.temp_size_in_bytes
    outputs = sizes.output_size_in_bytes - sizes.alias_size_in_bytes
    least = {
        "compute": flops / (made.flops / parts),
        "memory": (arguments + sizes.output_size_in_bytes + 2 * temporary) / (made.memory_bandwidth / parts),
        "network": sum(one.wire_bytes for one in found) / (made.network / parts),
    }
    return Plan(
        devices,
        arguments,
        temporary,
        arguments + temporary + outputs + sizes.generated_code_size_in_bytes,
        int(made.memory / parts),
        flops,
        model_flops,
        found,
        unknown,
        least,
        tokens,
        seconds,
    )
