import attrs
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from plain_transformer import plain_logits
from tiny_models import TINY, random_model, tiny_model

from marin_models import MixtureOfExpertsConfig, TransformerConfig, stack

SHAPE = {"vocabulary": 17, "width": 8, "layers": 2, "heads": 4, "key_value_heads": 2, "feed_forward": 12}

MIXTURE = MixtureOfExpertsConfig(experts=4, top_k=2, inner=3)


def tokens(seed=0, batch=2, length=7):
    return jax.random.randint(jax.random.key(seed), (batch, length), 0, TINY.vocabulary)


@jax.jit
def logits(model, tokens, segment_ids=None):
    return model(tokens, segment_ids)


@pytest.mark.parametrize("tied", [False, True])
def test_logits_equal_the_architecture_written_out(tied):
    model = random_model(attrs.evolve(TINY, tied_head=tied))
    found = logits(model, tokens())
    assert found.dtype == jnp.float32
    for row, wanted in zip(found, tokens(), strict=True):
        np.testing.assert_allclose(row, plain_logits(model, np.asarray(wanted), np.zeros(7)), rtol=1e-4, atol=1e-5)


def test_the_reference_attention_gives_the_same_logits():
    model = random_model(TINY)
    plain = random_model(attrs.evolve(TINY, attention="reference"))
    np.testing.assert_allclose(logits(model, tokens()), logits(plain, tokens()), rtol=1e-5, atol=1e-5)


def test_logits_do_not_depend_on_later_tokens():
    changed = tokens().at[:, 4:].set(0)
    np.testing.assert_array_equal(logits(tiny_model(), tokens())[:, :4], logits(tiny_model(), changed)[:, :4])


def test_packed_documents_do_not_see_each_other():
    model, row = random_model(TINY), tokens(batch=1, length=8)
    segments = jnp.array([[0, 0, 0, 1, 1, 1, 1, 1]])
    packed = logits(model, row, segments)
    changed = logits(model, row.at[:, :3].set(0), segments)
    np.testing.assert_array_equal(packed[:, 3:], changed[:, 3:])
    # Rotary positions are relative, so a packed document reads as it would alone.
    np.testing.assert_allclose(packed[:, 3:], logits(model, row[:, 3:]), rtol=1e-4, atol=1e-4)


def test_scanned_layers_give_the_same_logits_as_unrolled_ones(monkeypatch):
    model = random_model(TINY)
    unrolled = logits(model, tokens())
    monkeypatch.setattr(stack, "UNROLLED_LAYERS", 0)
    scanned = jax.jit(lambda model, tokens: model(tokens))(model, tokens())
    np.testing.assert_allclose(scanned, unrolled, rtol=1e-5, atol=1e-5)


def test_bfloat16_activations_stay_near_float32():
    model = random_model(TINY)
    low = random_model(attrs.evolve(TINY, dtype="bfloat16"))
    assert low.hidden(tokens()).dtype == jnp.bfloat16
    assert low.embedding.dtype == jnp.float32
    exact = logits(model, tokens())
    np.testing.assert_allclose(logits(low, tokens()), exact, atol=3e-2 * float(jnp.abs(exact).max()))


def test_a_fresh_model_knows_nothing():
    config = TransformerConfig(512, width=32, layers=2, heads=2, key_value_heads=1, feed_forward=64)
    model = tiny_model(config=config)
    row = jax.random.randint(jax.random.key(1), (4, 32), 0, 512)
    chosen = jnp.take_along_axis(jax.nn.log_softmax(logits(model, row)), row[..., None], axis=-1)
    assert abs(-float(chosen.mean()) - np.log(512)) < 0.3


def test_layers_start_different_and_equal_keys_start_equal():
    query = tiny_model().blocks.attention.query
    assert np.abs(query[0] - query[1]).max() > 0.01
    np.testing.assert_array_equal(query, tiny_model().blocks.attention.query)
    assert np.abs(query - tiny_model(seed=1).blocks.attention.query).max() > 0.01


def test_initial_deviations_are_the_documented_ones():
    config = TransformerConfig(64, width=64, layers=2, heads=2, key_value_heads=2, feed_forward=256, initial_scale=0.4)
    model = tiny_model(config=config)
    np.testing.assert_allclose(np.std(model.blocks.feed_forward.gate), 0.4 / 8, rtol=0.05)
    np.testing.assert_allclose(np.std(model.blocks.feed_forward.down), 0.4 / 16 / 2, rtol=0.05)
    np.testing.assert_allclose(np.std(model.embedding), 0.4 / 8, rtol=0.05)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"vocabulary": 1}, "vocabulary must be an integer of at least 2, not 1"),
        ({"layers": 0}, "layers must be an integer of at least 1, not 0"),
        ({"layers": 2.0}, r"layers must be an integer of at least 1, not 2\.0"),
        ({"heads": True}, "heads must be an integer of at least 1, not True"),
        ({"heads": 3}, "width 8 is not a multiple of 3 heads; change one of them or give head_size"),
        ({"key_value_heads": 3}, "4 heads cannot share 3 key_value_heads equally; make heads a multiple"),
        ({"head_size": 3}, "head_size 3 is odd"),
        ({"rope_theta": 0.0}, r"rope_theta must be a finite number above 0, not 0\.0"),
        ({"norm_epsilon": float("nan")}, "norm_epsilon must be a finite number above 0, not nan"),
        ({"dtype": "float16"}, "dtype must be one of 'float32', 'bfloat16', not 'float16'"),
        ({"attention": "flash"}, "attention must be one of 'default', 'reference', 'folded', 'blockwise'"),
        ({"qk_norm": "layer"}, "qk_norm must be one of 'head', 'projection', 'none', not 'layer'"),
        ({"attention_bias": 1.5}, r"attention_bias must be one of False, True, not 1\.5"),
        ({"attention_gate": "on"}, "attention_gate must be one of False, True, not 'on'"),
        ({"norm_gate": -1}, "norm_gate must be an integer of at least 0, not -1"),
        ({"window": 0}, "window must be an integer of at least 1, not 0"),
        ({"local_to_global": (0, 1)}, r"local_to_global must be two integers, .* such as \(3, 1\), not \(0, 1\)"),
        ({"rotary_fraction": 1.5}, r"rotary_fraction must be a number from 0 to 1, not 1\.5"),
        ({"head_size": 6, "rotary_fraction": 0.5}, "rotary_fraction 0.5 of head_size 6 is 3; rotary positions turn"),
        ({"remat": "some"}, "remat must be one of 'none', 'full', 'save_moe', not 'some'"),
        ({"mixture": attrs.evolve(MIXTURE, latent=9)}, "mixture.latent 9 is above width 8; lower it, or give 0 for"),
        ({"remat": "save_moe"}, "remat 'save_moe' without mixture has nothing to save; choose 'none' or 'full'"),
        ({"mixture": 8}, "mixture must be a MixtureOfExpertsConfig, not 8"),
        ({"dense_layers": 1}, "dense_layers 1 without mixture; every layer is dense already, give a mixture or"),
        ({"dense_layers": 2, "mixture": MIXTURE}, "dense_layers 2 of 2 layers leaves none to the mixture; lower it"),
        ({"tied_head": "no"}, "tied_head must be one of False, True, not 'no'"),
    ],
)
def test_an_impossible_shape_is_refused_with_what_is_possible(change, message):
    with pytest.raises(ValueError, match=message):
        TransformerConfig(**{**SHAPE, **change})


def test_the_head_size_follows_from_width_and_heads_unless_given():
    assert TransformerConfig(**SHAPE).head_size == 2
    assert TransformerConfig(**SHAPE, head_size=16).head_size == 16
    assert TransformerConfig(**SHAPE) == TransformerConfig(**SHAPE, head_size=2)


def test_configs_of_equal_fields_are_one_compilation_key():
    assert hash(TransformerConfig(**SHAPE)) == hash(TransformerConfig(**SHAPE))
