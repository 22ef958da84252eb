import json
import subprocess
import sys

import jax
import jax.numpy as jnp
import pytest
from compilers import on_compilers
from jax.sharding import PartitionSpec
from simulated_devices import on_devices

from marin_models.mesh import make_mesh
from marin_models.pod_plan import CHIPS, Collective, Plan, Request, chip, collectives, plan

PROGRAM = """HloModule jit_step, is_scheduled=true

%body.1 (p: (s32[], bf16[8,16])) -> (s32[], bf16[8,16]) {
  %p = (s32[], bf16[8,16]{1,0}) parameter(0)
  %x = bf16[8,16]{1,0} get-tuple-element(%p), index=1
  %g = bf16[8,64]{1,0} all-gather(%x), channel_id=1, replica_groups=[16,4]<=[64], dimensions={1}
  ROOT %t = (s32[], bf16[8,16]{1,0}) tuple(%i, %x)
}

%cond.1 (p: (s32[], bf16[8,16])) -> pred[] {
  ROOT %c = pred[] compare(%i, %n), direction=LT
}

%counted.1 (p: (s32[], f32[4])) -> (s32[], f32[4]) {
  %a2a = f32[4]{0} all-to-all(%y), replica_groups={{0,1}}, dimensions={0}
  ROOT %t = (s32[], f32[4]{0}) tuple(%i, %a2a)
}

%below.1 (p: (s32[], f32[4])) -> pred[] {
  %six = s32[]{:T(128)} constant(6)
  ROOT %lt = pred[]{:T(512)} compare(%i, %six), direction=LT
}

%mystery.1 (p: (s32[], f32[4])) -> (s32[], f32[4]) {
  %e = f32[4]{0} collective-permute(%y), source_target_pairs={{0,1},{1,0}}
  ROOT %t = (s32[], f32[4]{0}) tuple(%i, %e)
}

%unused (p: f32[4]) -> f32[4] {
  ROOT %never = f32[4]{0} all-reduce(%p), replica_groups={{0,1}}, to_apply=%add
}

ENTRY %main.1 (a: bf16[8,16], b: f32[4]) -> f32[100] {
  %a = bf16[8,16]{1,0} parameter(0)
  %w = (s32[], bf16[8,16]) while(%init), condition=%cond.1, body=%body.1, backend_config={"known_trip_count":{"n":"40"}}
  %l = (s32[], f32[4]{0}) while(%third), condition=%below.1, body=%counted.1
  %v = (s32[], f32[4]{0}) while(%other), condition=%cond.1, body=%mystery.1
  %r = (f32[100]{0}, f32[50]{0}) all-reduce(%s, %t), replica_groups={{0,1,2,3},{4,5,6,7}}, to_apply=%add
  %h = (bf16[10]{0}, bf16[80]{0}) all-gather-start(%z), replica_groups=mesh['a'=8,'b'=2] {'a'}, dimensions={0}
  %hd = bf16[80]{0} all-gather-done(%h)
  %q = f32[32]{0} reduce-scatter(%k), replica_groups=mesh['a'=8,'b'=2] {'a':(1)4, 'b'}, to_apply=%add
  ROOT %o = f32[100]{0} get-tuple-element(%r), index=0
}
"""


def test_collectives_in_loops_count_as_often_as_they_run():
    found, unknown = collectives(PROGRAM)
    assert unknown == 1
    by_kind = {one.kind: one for one in found}
    gathered = 40 * 8 * 64 * 2
    assert by_kind["all-gather"] == Collective("all-gather", 41, gathered + 160, gathered * 3 // 4 + 160 * 7 // 8)
    assert by_kind["all-reduce"] == Collective("all-reduce", 1, 600, 2 * 450)
    assert by_kind["reduce-scatter"] == Collective("reduce-scatter", 1, 128, 128 * 7)
    assert by_kind["all-to-all"] == Collective("all-to-all", 6, 6 * 16, 6 * 8)
    assert by_kind["collective-permute"] == Collective("collective-permute", 1, 16, 16)
    assert [one.wire_bytes for one in found] == sorted((one.wire_bytes for one in found), reverse=True)


def test_a_program_without_collectives_has_none():
    compiled = jax.jit(lambda x: x + 1).lower(jnp.ones(3)).compile()
    assert collectives(compiled.as_text()) == ((), 0)


@on_devices(8)
def test_what_a_compiled_program_sends_is_found():
    mesh = make_mesh(data=8)
    with jax.set_mesh(mesh):

        def shard(x):
            def body(carry, _):
                return carry + jax.lax.pmean(carry, "data"), None

            return jax.lax.scan(body, x, None, length=5)[0]

        spec = PartitionSpec("data", None)
        program = jax.jit(jax.shard_map(shard, in_specs=spec, out_specs=spec, check_vma=False))
        compiled = program.lower(
            jax.ShapeDtypeStruct((8, 32), jnp.float32, sharding=jax.NamedSharding(mesh, spec))
        ).compile()
    found, unknown = collectives(compiled.as_text())
    assert unknown == 0
    assert found == (Collective("all-reduce", 5, 5 * 128, 5 * 2 * 112),)


def test_every_kind_of_topology_has_its_chip():
    for kind, made in CHIPS.items():
        assert chip(f"{kind}:2x2") is made
        assert made.flops / made.memory_bandwidth > 100
    with pytest.raises(ValueError, match="no numbers of chip 'v2'; choose one of v4, v5e"):
        chip("v2:2x2")


def example(**changes):
    numbers = {
        "devices": 4, "arguments": 10, "temporary": 20, "memory": 31, "capacity": 40, "flops": 4e9, "model_flops": 3e9,
        "collectives": (), "unknown_loops": 0, "seconds": {"compute": 2.0, "memory": 3.0, "network": 1.0},
        "tokens": 100, "compile_seconds": 1.5,
    }  # fmt: skip
    return Plan(**{**numbers, **changes})


def test_a_plan_is_bound_by_what_takes_longest_and_fits_what_it_needs():
    assert example().bound == "memory"
    assert example().least_seconds == 3.0
    assert example().fits
    assert not example(memory=41).fits
    assert not example(error="out of memory").fits


def test_a_request_that_cannot_be_met_ends_with_its_reason():
    request = json.dumps({"topology": "v9:2", "model": "dense-100k", "batch": 8, "length": 16})
    command = [sys.executable, "-m", "marin_models.pod_plan"]
    done = subprocess.run(command, input=request, capture_output=True, text=True)
    assert done.returncode == 2
    assert "ValueError: no topology is named 'v9:2'" in done.stderr


@on_compilers
def test_a_step_is_compiled_for_a_pod():
    found = plan(Request("v5p:2x2x1", "moe-300k-a170k", 8, 64, {"data": 2, "expert": 2}))
    assert found.fits
    assert found.devices == 4
    assert found.temporary > 0
    assert found.flops == found.model_flops > 0
    assert {"all-gather", "all-reduce"} <= {one.kind for one in found.collectives}
    assert found.tokens == 512


@on_compilers
def test_a_step_that_is_too_large_is_said_not_to_fit():
    found = plan(Request("v5e:2x2", "dense-3b", 64, 2048, {"data": 4}))
    assert not found.fits
    assert found.capacity == 16 * 2**30


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"model": "dense-2b"}, "there is no size 'dense-2b'; choose one of dense-100k"),
        ({"optimizer": "sgd"}, "kind must be one of 'adamw', 'muon', 'muonh', 'adamh', not 'sgd'"),
        ({"micro_batches": 3}, "a batch of 8 rows cannot be cut into 3 micro_batches of one size"),
        ({"remat": "half"}, "remat must be one of 'none', 'full', 'save_moe', not 'half'"),
        (
            {"expert_parallel": "ring"},
            "expert_parallel 'ring' is for mixtures of experts, and dense-1m has none; leave",
        ),
        ({"capacity_factor": 1.5}, r"capacity_factor 1\.5 is for mixtures of experts, and dense-1m has none; leave it"),
        ({"topology": "v3:2x2"}, "no topology is named 'v3:2x2'; write kind:shape with kind v4"),
    ],
)
def test_what_cannot_be_planned_is_told_before_the_compilers_are_asked_for(changes, message):
    given = {"topology": "v5p:2x2x1", "model": "dense-1m", "batch": 8, "length": 16}
    with pytest.raises(ValueError, match=message):
        plan(Request(**{**given, **changes}))
