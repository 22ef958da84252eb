import inspect

import equinox as eqx
import jax
import jax.numpy as jnp
import pytest
from jaxtyping import Array
from tiny_models import tiny_model

from marin_models import flatten, parameter, parameter_groups
from marin_models.parameters import parameter_name


def named_groups(model):
    leaves, _ = jax.tree_util.tree_flatten_with_path(parameter_groups(model))
    return {parameter_name(path): group for path, group in leaves}


def test_every_parameter_of_the_transformer_has_its_group():
    groups = named_groups(tiny_model())
    matrices = {f"blocks.attention.{name}" for name in ("query", "key", "value", "output")}
    matrices |= {f"blocks.feed_forward.{name}" for name in ("gate", "up", "down")}
    assert {name for name, group in groups.items() if group == "matrix"} == matrices
    assert groups["embedding"] == "embedding"
    assert groups["separate_head"] == "head"
    assert {name for name, group in groups.items() if group == "norm"} == {
        "blocks.attention_norm.scale",
        "blocks.attention.query_norm.scale",
        "blocks.attention.key_norm.scale",
        "blocks.feed_forward_norm.scale",
        "final_norm.scale",
    }
    assert set(groups) == set(flatten(tiny_model()))


def test_a_parameter_without_a_group_is_an_error_that_names_it():
    class Gate(eqx.Module):
        weight: Array

    class Model(eqx.Module):
        experts: list[Gate]
        head: Array = parameter("head")

    model = Model([Gate(jnp.ones(3))], jnp.ones(2))
    with pytest.raises(TypeError, match=r"parameter Gate.weight has no optimizer group; declare.*'matrix', 'emb"):
        parameter_groups(model)


def test_a_group_holds_for_everything_inside_its_field():
    class Model(eqx.Module):
        tables: dict[str, Array] = parameter("embedding")

    assert named_groups(Model({"a": jnp.ones(3), "b": jnp.ones(2)})) == {
        "tables.a": "embedding",
        "tables.b": "embedding",
    }


def test_an_unknown_group_is_refused_where_it_is_written():
    unchecked = inspect.unwrap(parameter)  # without the run-time type checker of these tests
    with pytest.raises(ValueError, match=r"unknown optimizer group .gate.; choose one of .matrix., .*'router', 'bias'"):
        unchecked("gate")


def test_routers_and_biases_have_groups_of_their_own():
    class Router(eqx.Module):
        matrix: Array = parameter("router")
        bias: Array = parameter("bias")

    assert named_groups(Router(jnp.ones((2, 3)), jnp.ones(3))) == {"matrix": "router", "bias": "bias"}
