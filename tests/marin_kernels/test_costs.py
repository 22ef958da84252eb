"""Costs of compiled programs: read from text, and of a program whose costs are known."""

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from simulated_devices import on_devices

from marin_kernels.costs import Collective, arrays_in, collectives_in, costs_of

TEXT = """
  %all-gather.3 = bf16[4,8192,2048]{2,1,0:T(8,128)(2,1)} all-gather(%x), channel_id=1, dimensions={0}
  %ag-start = (f32[8,4]{1,0}, f32[32,4]{1,0}) all-gather-start(%y), channel_id=2
  %ag-done = f32[32,4]{1,0} all-gather-done(%ag-start)
  %all-to-all.1 = (s32[1,16]{1,0}, s32[1,16]{1,0}) all-to-all(%a, %b), channel_id=3
  ROOT %ragged-all-to-all.7 = bf16[128,64]{1,0} ragged-all-to-all(%r, %o, %i, %s, %u, %v), channel_id=4
  %all-reduce-start = (f32[], f32[16]{0}) all-reduce-start(%p, %q), channel_id=5
  %fusion = pred[3,3]{1,0} fusion(%all-gather.3), kind=kLoop
"""


def test_collectives_are_counted_once_and_sized_by_what_they_return():
    assert collectives_in(TEXT) == {
        "all-gather": Collective(2, 4 * 8192 * 2048 * 2 + 32 * 4 * 4),
        "all-to-all": Collective(1, 2 * 16 * 4),
        "ragged-all-to-all": Collective(1, 128 * 64 * 2),
        "all-reduce": Collective(1, 4 + 64),
    }


def test_truth_values_take_a_byte_each():
    assert collectives_in("%a = pred[8,4]{1,0} all-to-all(%x)") == {"all-to-all": Collective(1, 32)}


def test_arrays_are_told_by_dtype_and_shape():
    assert {("bf16", (128, 64)), ("pred", (3, 3)), ("f32", ())} <= arrays_in(TEXT)


@on_devices(4, NPROC="32")
def test_costs_of_a_program_that_gathers():
    mesh = Mesh(np.array(jax.devices()), ("x",))
    rows = jax.ShapeDtypeStruct((64, 32), jnp.float32, sharding=NamedSharding(mesh, PartitionSpec("x")))
    whole = NamedSharding(mesh, PartitionSpec())
    costs = costs_of(jax.jit(lambda rows: rows * 2, out_shardings=whole).lower(rows).compile())
    assert costs.arguments == 64 * 32 * 4 / 4
    assert costs.outputs == 64 * 32 * 4
    assert costs.collectives == {"all-gather": Collective(1, 64 * 32 * 4)}
    assert costs.received == 64 * 32 * 4
    assert costs.operations > 0
