import attrs
import jax
import numpy as np
import pytest
from tiny_models import TINY, tiny_model

from marin_models import flatten, unflatten


def test_unflatten_inverts_flatten():
    model = tiny_model(seed=4)
    back = unflatten(TINY, flatten(model))
    assert jax.tree.structure(back) == jax.tree.structure(model)
    for found, wanted in zip(jax.tree.leaves(back), jax.tree.leaves(model), strict=True):
        np.testing.assert_array_equal(found, wanted)


def test_the_order_of_names_does_not_matter():
    flat = flatten(tiny_model())
    back = flatten(unflatten(TINY, dict(reversed(flat.items()))))
    assert list(back) == list(flat)
    for name, value in flat.items():
        np.testing.assert_array_equal(back[name], value)


def test_layers_are_stacked_on_the_first_axis():
    assert flatten(tiny_model())["blocks.feed_forward.gate"].shape == (2, 8, 12)


def test_a_tied_model_has_no_head_of_its_own():
    assert "separate_head" not in flatten(tiny_model(config=attrs.evolve(TINY, tied_head=True)))


def test_foreign_parameters_are_refused_with_a_list_of_what_differs():
    flat = flatten(tiny_model())
    del flat["embedding"]
    flat["blocks.router"] = np.zeros(3)
    flat["final_norm.scale"] = np.zeros(9)
    with pytest.raises(ValueError) as error:
        unflatten(TINY, flat)
    message = str(error.value)
    assert "use the config they were trained with" in message
    assert "missing: embedding (17, 8)" in message
    assert "unknown: blocks.router (3,)" in message
    assert "shape of final_norm.scale: (9,) given, (8,) expected" in message
