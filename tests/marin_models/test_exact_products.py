"""What is computed in fp32 is multiplied in fp32 on every device: TPUs round the factors to bf16 unless told not to."""

import attrs
import jax
import jax.numpy as jnp
import pytest
from equations import factors
from tiny_models import ADAMW, MUON, ROUTED, SHORT, TINY

from marin_models.key_value_cache import empty_caches, extend
from marin_models.parameters import abstract_model
from marin_models.training import Batch, Program, Run, initial_state, train_step

GATED = attrs.evolve(TINY, norm_gate=3, attention_gate=True)
PLAIN = attrs.evolve(ROUTED, qk_norm="none")
CLIPPED = attrs.evolve(MUON, query_key_clip=100.0, orthogonalization="float32")
NARROW = ("DEFAULT", "bfloat16", "bfloat16")
EXACT = ("HIGHEST", "float32", "float32")


@pytest.mark.parametrize(
    ("config", "optimizer", "wanted"),
    [
        (TINY, ADAMW, {"float32": {EXACT}, "bfloat16": {NARROW}}),
        # Newton-Schulz multiplies in the dtype that is told, whatever the model does; so does the router, in fp32.
        (GATED, MUON, {"float32": {EXACT, NARROW}, "bfloat16": {NARROW}}),
        (ROUTED, ADAMW, {"float32": {EXACT}, "bfloat16": {EXACT, NARROW}}),
        (PLAIN, CLIPPED, {"float32": {EXACT}, "bfloat16": {EXACT, NARROW}}),
    ],
    ids=["dense", "gated", "routed", "clipped"],
)
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_products_of_a_training_step(config, optimizer, wanted, dtype):
    run, config = Run.of(optimizer, SHORT), attrs.evolve(config, dtype=dtype)
    state = jax.eval_shape(lambda: initial_state(0, run.hyperparameters, config=config, rule=optimizer.rule))
    batch = Batch(jnp.zeros((2, 7), jnp.int32), jnp.zeros((2, 7), jnp.int32))
    program = Program(optimizer.rule)
    assert factors(lambda state: train_step(state, batch, run, program=program), state) == wanted[dtype]


@pytest.mark.parametrize(("dtype", "wanted"), [("float32", {EXACT}), ("bfloat16", {EXACT, NARROW})])
def test_products_of_generation(dtype, wanted):
    model = abstract_model(attrs.evolve(ROUTED, dtype=dtype))

    def logits(model):
        hidden, _ = extend(model, empty_caches(model, 2, 8), jnp.zeros((2, 3), jnp.int32), jnp.zeros(2, jnp.int32))
        return model.logits(hidden)

    assert factors(logits, model) == wanted
