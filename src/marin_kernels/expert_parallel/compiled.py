"""An expert-parallel layer, compiled for devices that are not here: does it fit, and what do its shards send?"""

import attrs
import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec

from marin_kernels.expert_parallel.dispatch import TOKEN_AXES, moe
from marin_kernels.expert_parallel.routing import ExpertParallelImplementation, Experts, Routing
from marin_kernels.topologies import absent_devices


@attrs.frozen
class Layer:
    """The sizes of a layer; by default those of a model of tens of billions of parameters.

    Attributes:
        shards: size of the expert axis.
        tokens: tokens of one shard.
        top_k: experts of a token.
        experts: experts over all shards.
        width: model width.
        inner: an expert's inner width.
        dtype: of tokens and matrices.
        capacity_factor: as `moe` takes it.
    """

    shards: int = 4
    tokens: int = 8192
    top_k: int = 4
    experts: int = 64
    width: int = 2048
    inner: int = 1024
    dtype: str = "bfloat16"
    capacity_factor: float | None = 1.25

    @property
    def payload(self) -> int:
        """Bytes of rows that a shard must send on one leg when its experts are used evenly: the planner's own count."""
        rows = self.tokens * self.top_k * (self.shards - 1) // self.shards
        return rows * self.width * jnp.dtype(self.dtype).itemsize


def compile_layer(
    topology: str, implementation: ExpertParallelImplementation, layer: Layer, *, gradients: bool = True
) -> jax.stages.Compiled:
    """Compile a layer for the first devices of a topology; nothing is run.

    Args:
        topology: as `marin_kernels.topologies.absent_devices` takes it.
        implementation: as `moe` takes it.
        layer: its sizes.
        gradients: also compile the reverse pass, for gradients of tokens, combine weights and matrices.

    Raises:
        ValueError: as of `absent_devices` and `moe`; or the topology has fewer devices than the layer has shards.
        jax.errors.JaxRuntimeError: the compiler refuses the program.
    """
    devices = absent_devices(topology)
    if len(devices) < layer.shards:
        raise ValueError(f"{topology} has {len(devices)} devices, too few for an expert axis of {layer.shards}")
    places = np.array(devices[: layer.shards]).reshape(1, 1, layer.shards, 1)
    mesh = Mesh(places, ("replica", "data", "expert", "model"), axis_types=(AxisType.Explicit,) * 4)
    options: dict = {"implementation": implementation, "capacity_factor": layer.capacity_factor}
    if implementation == "hierarchical":
        options["shards_per_host"] = layer.shards // 2

    def forward(x, weights, matrices, chosen):
        return moe(x, Routing(chosen, weights), matrices, **options)[0]

    def loss(*arguments):
        return jnp.sum(forward(*arguments).astype(jnp.float32) ** 2)

    with jax.set_mesh(mesh):
        function = jax.jit(jax.value_and_grad(loss, (0, 1, 2)) if gradients else forward)
        return function.lower(*_arguments(layer, mesh)).compile()


def _arguments(layer: Layer, mesh: Mesh) -> tuple:
    def array(axes, dtype, *shape: int) -> jax.ShapeDtypeStruct:
        return jax.ShapeDtypeStruct(shape, jnp.dtype(dtype), sharding=NamedSharding(mesh, PartitionSpec(axes)))

    tokens = layer.shards * layer.tokens
    down = array("expert", layer.dtype, layer.experts, layer.inner, layer.width)
    up = array("expert", layer.dtype, layer.experts, layer.width, layer.inner)
    weights = array(TOKEN_AXES, "float32", tokens, layer.top_k)
    chosen = array(TOKEN_AXES, "int32", tokens, layer.top_k)
    return array(TOKEN_AXES, layer.dtype, tokens, layer.width), weights, Experts(up, up, down), chosen
