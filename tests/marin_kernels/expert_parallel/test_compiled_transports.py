"""Every transport, compiled by the real compilers of every device at real sizes; what is in the compiled programs."""

import functools
import itertools

import pytest
from compilers import GPUS, TPUS, on_compilers

from marin_kernels.costs import arrays_in, costs_of
from marin_kernels.expert_parallel.compiled import Layer, compile_layer
from marin_kernels.expert_parallel.dispatch import TRANSPORTS

SHARDED = sorted(set(TRANSPORTS) - {"local", "reference"})
REFUSED = {("fused_tpu", topology): "'fused_tpu' runs on TPUs, and these devices are gpu" for topology in GPUS} | {
    ("grouped_gpu", topology): "'grouped_gpu' runs on GPUs, and these devices are tpu" for topology in TPUS
}
"""What a compiler, or the transport before it, refuses, and its words."""
GIB = 2**30


def compiled(topology, implementation, layer=Layer(), gradients=False):  # noqa: B008
    return compile_layer(topology, implementation, layer, gradients=gradients)


LAYERS = {
    "bfloat16": Layer(),
    "float32": Layer(dtype="float32", tokens=1024),  # TPUs' compiler takes half a minute for a sort of 32,768 keys
}


@pytest.mark.parametrize("dtype", LAYERS)
@pytest.mark.parametrize("topology", [*TPUS, *GPUS])
@pytest.mark.parametrize("implementation", SHARDED)
@on_compilers
def test_forward_and_reverse_compile_at_real_sizes(implementation, topology, dtype):
    layer = LAYERS[dtype]
    if words := REFUSED.get((implementation, topology)):
        with pytest.raises(Exception, match=words):
            compiled(topology, implementation, layer, gradients=True)
        return
    costs = costs_of(compiled(topology, implementation, layer, gradients=True))
    assert 0 < costs.temporary < 16 * GIB


@pytest.mark.parametrize(
    ("implementation", "topology"), sorted(set(itertools.product(SHARDED, ("v5p:2x2x1", *GPUS))) - set(REFUSED))
)
@on_compilers
def test_no_matrices_of_experts_are_gathered_in_the_forward_pass(implementation, topology):
    layer = Layer(tokens=1024, dtype="float32")
    text = compiled(topology, implementation, layer).as_text()
    matrices = layer.experts * layer.width * layer.inner
    gathered = [line for line in text.splitlines() if " all-gather" in line]
    assert all(elements(shape) < matrices for line in gathered for _, shape in arrays_in(line))


def elements(shape):
    return functools.reduce(lambda product, size: product * size, shape, 1)


@pytest.mark.parametrize("implementation", ["ragged", "fused_tpu"])
@on_compilers
def test_no_shard_holds_the_tokens_of_all_shards_where_rows_travel_one_by_one(implementation):
    layer = Layer(tokens=1024, top_k=2)
    shapes = {shape for _, shape in arrays_in(compiled("v5p:2x2x1", implementation, layer).as_text())}
    all_tokens = layer.shards * layer.tokens * layer.width
    assert not [shape for shape in shapes if shape[-1:] == (layer.width,) and elements(shape) == all_tokens]


@on_compilers
def test_an_axis_larger_than_the_topology_is_refused():
    with pytest.raises(ValueError, match="v5e:2x2 has 4 devices, too few for an expert axis of 8"):
        compile_layer("v5e:2x2", "ring", Layer(shards=8))


def test_the_planners_count_is_what_leaves_a_shard():
    layer = Layer(shards=4, tokens=10, top_k=2, width=8, dtype="bfloat16")
    assert layer.payload == 10 * 2 * 3 // 4 * 8 * 2
