"""Collectives in compiled programs, against the planner's own count."""

import math
import re
from collections import Counter
from fractions import Fraction

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from equations import equations
from routed_cases import TRANSPORTS, layer, mesh_of, program, special_cases
from simulated_devices import on_devices

from marin_kernels.expert_parallel import moe
from marin_kernels.expert_parallel.extent import Extent
from marin_kernels.expert_parallel.traffic import collective_bytes

ITEM = {"f32": 4, "s32": 4, "u32": 4, "bf16": 2, "pred": 1}
COLLECTIVE = re.compile(r"= (.+?) (all-gather|all-to-all|reduce-scatter|ragged-all-to-all)(?:-start)?\((.*)")


def carried(text):
    """Bytes of the collectives of a program: results, and for reduce-scatters as many times as there are shards."""
    total = Counter()
    for result, kind, rest in COLLECTIVE.findall(text):
        sizes = [
            ITEM[item] * int(np.prod([int(n) for n in shape.split(",") if n]))
            for item, shape in re.findall(r"(\w+)\[([\d,]*)\]", result)
        ]
        total[kind] += sum(sizes) * (members(rest) if kind == "reduce-scatter" else 1)
    return dict(total)


def members(text):
    """How many shards a group has: of groups as lists, as their shape, or as axes of a mesh and parts of axes."""
    lists, shape, axes, named = re.search(
        r"replica_groups=(?:\{\{([\d,]+)\}|\[\d+,(\d+)\]|mesh\[(.*?)\] \{(.*?)\})", text
    ).groups()
    if named:
        sizes = dict(re.findall(r"'(\w+)'=(\d+)", axes))
        return math.prod(int(part or sizes[axis]) for axis, part in re.findall(r"'(\w+)'(?::\(\d+\)(\d+))?", named))
    return int(shape) if shape else len(lists.split(","))


@pytest.mark.parametrize(
    "text", ["{{0,1,2,3},{4,5,6,7}}", "[2,4]<=[8]", "mesh['a'=2,'b'=4] {'b'}", "mesh['a'=2,'b'=8] {'a','b':(4)2}"]
)
def test_groups_are_read_as_every_version_of_jax_writes_them(text):
    assert members(f"%x), replica_groups={text}, use_global_device_ids=true") == 4


@on_devices(8)
def as_counted(implementation, lanes):
    case = special_cases()["skewed"]
    options = {"shards_per_host": lanes} if implementation == "hierarchical" else {}
    mesh = mesh_of(data=2, expert=4)
    text = program(case, mesh, implementation=implementation, capacity_factor=1.0, **options).as_text()
    extent = Extent(tokens=8, top_k=2, experts=8, shards=4, capacity_factor=Fraction(1), lanes=lanes)
    assert carried(text) == collective_bytes(implementation, extent, width=4, dtype=np.float32, gradient=True)


@pytest.mark.parametrize("implementation", [name for name in TRANSPORTS if name != "ragged"])
def test_compiled_collectives_carry_what_the_planner_counts_and_no_matrices(implementation):
    as_counted(implementation, 2)


@on_devices(8)
def ragged_buffers():
    x, routing, experts = jax.tree.map(jnp.asarray, layer(tokens=8 * 16, top_k=2))
    with jax.set_mesh(mesh_of(expert=8)):
        traced = jax.make_jaxpr(
            lambda x, weights, experts: jax.grad(
                lambda *a: moe(
                    a[0], routing._replace(weights=a[1]), a[2], implementation="ragged", capacity_factor=1.0
                )[0].sum(),
                (0, 1, 2),
            )(x, weights, experts)
        )(x, routing.weights, experts)
    found = [equation for equation in equations(traced.jaxpr) if equation.primitive.name == "ragged_all_to_all"]
    extent = Extent(tokens=16, top_k=2, experts=8, shards=8, capacity_factor=Fraction(1))
    carried = sum(equation.outvars[0].aval.size * 4 for equation in found)
    assert len(found) == 4
    counted = collective_bytes("ragged", extent, width=4, dtype=np.float32, gradient=True)
    assert carried == counted["ragged-all-to-all"]
    largest = max(var.aval.shape[0] for equation in found for var in equation.outvars)
    assert largest == 32 < 8 * 16  # no buffer of the tokens of all shards


@on_devices(8)
def in_bfloat16(implementation):
    x, routing, experts = jax.tree.map(jnp.asarray, layer(dtype=jnp.bfloat16))

    def loss(x, experts):
        y, _ = moe(x, routing, experts, implementation=implementation, shards_per_host=2)
        return jnp.sum(y.astype(jnp.float32))

    with jax.set_mesh(mesh_of(data=2, expert=4)):
        traced = jax.make_jaxpr(jax.grad(loss, (0, 1)))(x, experts)
    found = {"sent": set(), "summed": set()}
    for equation in equations(traced.jaxpr):
        name, value = equation.primitive.name, equation.invars[0].aval if equation.invars else None
        if name in ("all_gather", "all_to_all", "ragged_all_to_all") and value.shape[-1:] == x.shape[1:]:
            found["sent"].add(value.dtype.name)
        if name == "reduce_scatter":
            found["summed"].add(value.dtype.name)
    assert found["sent"] == {"bfloat16"}
    assert found["summed"] == ({"float32"} if implementation in ("ring", "hierarchical") else set())


@pytest.mark.parametrize("implementation", TRANSPORTS)
def test_tokens_and_gradients_travel_in_their_own_dtype_and_are_summed_in_float32(implementation):
    in_bfloat16(implementation)


def test_the_ragged_transport_has_buffers_of_its_own_rows_alone():
    ragged_buffers()


def test_tokens_that_travel_once_are_two_fifths_of_those_of_the_ring():
    extent = Extent(tokens=1000, top_k=4, experts=256, shards=8, capacity_factor=Fraction(1))
    assert extent.copies(8) / extent.tokens == pytest.approx(0.415, abs=2e-3)


def test_one_shard_needs_no_collectives_and_unknown_transports_are_refused():
    extent = Extent(tokens=8, top_k=2, experts=8)
    assert all(collective_bytes(name, extent, width=4, dtype=np.float32) == {} for name in TRANSPORTS)
    with pytest.raises(ValueError, match="nothing is known of 'magic'; choose one of 'fixed', 'hierarchical', 'local'"):
        collective_bytes("magic", extent, width=4, dtype=np.float32)
