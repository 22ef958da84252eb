"""Recorded expressions: what a store keeps, and what people read."""

from __future__ import annotations

import enum
import json

import attrs
import numpy as np
import pytest

from marin_dsl import attempt, encodable, op
from marin_dsl.encoding import Named
from marin_dsl.expression.recipe import Reference, arguments, call_text, references, short, structure, title


class Color(enum.Enum):
    RED = 1


@encodable
@attrs.frozen
class Settings:
    rate: float
    layers: tuple = ()


@op(version="1")
def f(*parts, **named):
    return parts


@op(version="1")
def train(corpus, settings=None, *, lr: float = 0.1, name: str = ""):
    return corpus


def test_a_record_is_plain_json_with_everything_needed_to_read_it():
    inner = f(1)
    made = train([inner, {"k": inner}], Settings(0.1, (1, 2)), lr=0.5)
    record = json.loads(json.dumps(structure(made)))
    assert record["operator"]["name"] == train.name
    assert record["operator"]["version"] == "1"
    assert record["operator"]["inline"] is False
    assert "label" not in record
    assert set(references(record)) == {inner.key}
    found = arguments(record)
    assert found["corpus"] == [Reference(inner.key), {"k": Reference(inner.key)}]
    assert found["settings"] == Named(found["settings"].name, {"rate": 0.1, "layers": (1, 2)})
    assert found["lr"] == 0.5
    assert structure(made.named("a", "1"))["label"] == "a@1"
    assert structure(inner["k"])["operator"]["inline"] is True


@pytest.mark.parametrize(
    "value",
    [{Color.RED: 1}, {Color.RED}, {Settings(0.1): 2}, frozenset({Settings(0.2)}), np.arange(100_000), "x" * 100_000],
)
def test_any_argument_can_be_recorded_read_and_titled(value):
    made = f(value, k=value)
    assert set(arguments(structure(made))) == {"parts", "named"}
    assert len(title(made)) < 100


@pytest.mark.parametrize(
    ("made", "text"),
    [
        (lambda: train("c", lr=0.5), "train(corpus='c', lr=0.5, name='')"),
        (lambda: f(), "f"),
        (lambda: train(f(1)), "train(lr=0.1, name='')"),
        (lambda: f(1)["loss"], "f['loss']"),
        (lambda: f(1)["loss"][3], "getitem(f)[3]"),
        (lambda: f(1).field("loss"), "f.loss"),
        (lambda: attempt(f(1)), "attempt(f)"),
        (lambda: f(1).with_(title="my arm"), "my arm"),
    ],
)
def test_titles_tell_calls_apart(made, text):
    assert title(made()) == text


def test_a_title_is_one_short_line_and_the_call_is_the_same_whatever_it_is():
    made = train("a\nb" * 100, lr=0.5, name="y" * 100)
    assert len(title(made)) <= 70
    assert "\n" not in title(made)
    assert call_text(made.with_(title="t")) == call_text(made)
    deep = f(1)
    for _ in range(2_000):
        deep = deep["k"]
    assert len(title(deep)) < 80


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ([1, 2.5, "three"], "[1, 2.5, 'three']"),
        ({"a": (1,)}, "{'a': (1,)}"),
        ({"b", "a"}, "{'a', 'b'}"),
        (set(), "set()"),
        (frozenset({2, 1}), "{1, 2}"),
        (np.zeros((2, 3)), "<array float64 2×3>"),
        (np.zeros(()), "<array float64 scalar>"),
        (Named("library.models:Model", {"n": 1}), "Model(n=1)"),
        (Reference(bytes(32)), "<00000000>"),
        ("x" * 100, "'" + "x" * 58 + "…"),
    ],
)
def test_values_are_one_short_line(value, text):
    assert short(value) == text
