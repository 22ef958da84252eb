"""Graphs that are drawn: what is in them, what they are made of, and what is refused."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple, TypedDict

import attrs
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from marin_dsl import Expression, encodable, evaluate, op
from marin_dsl.expression import arguments_of, walk
from marin_dsl.inline import InlineOperator
from marin_dsl.testing import expressions
from marin_dsl.testing.typed import stands_for

SEARCH = settings(
    deadline=None, suppress_health_check=list(HealthCheck), derandomize=True, phases=[Phase.generate], database=None
)


@encodable
@attrs.frozen
class Corpus:
    name: str
    size: int


class Row(TypedDict):
    loss: float


class Point(NamedTuple):
    x: int


class Handle:
    def __init__(self, opened) -> None:
        self.opened = opened


@op(version="1")
def corpus(name: str) -> Corpus:
    return Corpus(name, len(name))


@op(version="1")
def train(data: Corpus, /, rate: float, *sizes: int, seeds: tuple[int, ...] = (), **more: Corpus) -> Row:
    return {"loss": rate}


@op(version="1")
def table(rows: list[Row], labels: Mapping[str, int] | None = None) -> list[float]:
    return [row["loss"] for row in rows]


@op(version="1")
def handled(handle: Handle) -> int:
    return 1


def has(graph: Expression[Any], *names: str) -> bool:
    return {*names} <= {found.operator.name.rpartition(".")[2] for found in walk(graph)}


def drawn_of(made: st.SearchStrategy, count: int) -> list[Expression[Any]]:
    found = []

    @settings(SEARCH, max_examples=count)
    @given(made)
    def draw(graph):
        found.append(graph)

    draw()
    return found


@pytest.fixture(scope="module")
def drawn():
    return drawn_of(expressions(), 150)


@pytest.mark.parametrize(
    "name", ["attempt", "when", "recover", "at_least", "map", "field", "add", "total", "widths", "described"]
)
def test_every_construct_is_drawn(drawn, name):
    assert any(has(graph, name) for graph in drawn)


@pytest.mark.parametrize(
    "wanted",
    [
        lambda graph: any(found.facts for found in walk(graph)),
        lambda graph: any(found.waits for found in walk(graph)),
        lambda graph: any(len(found.references) > len(set(found.references)) for found in walk(graph)),
        lambda graph: len(list(walk(graph))) > 6,
    ],
    ids=["facts", "waits", "one input twice", "large ones"],
)
def test_every_shape_is_drawn(drawn, wanted):
    assert any(map(wanted, drawn))


@settings(max_examples=6)
@given(expressions(max_nodes=6))
def test_the_small_operators_always_come_to_a_value(graph):
    assert evaluate(graph, store="memory://graphs", debug=True).ok


@settings(max_examples=20)
@given(expressions([corpus, train, table], max_nodes=8))
def test_graphs_of_other_operators_are_typed_by_their_annotations(graph):
    used = {found.operator for found in walk(graph) if not isinstance(found.operator, InlineOperator)}
    assert used <= {corpus, train, table}


def test_parts_of_typed_results_are_drawn():
    found = drawn_of(expressions([corpus, train, table]), 100)
    assert any(has(graph, "train", "getitem") for graph in found)
    assert any(has(graph, "table", "train", "corpus") for graph in found)


@given(expressions({corpus: {"name": st.sampled_from(["a", "b"])}}, max_nodes=3))
def test_strategies_for_arguments_stand_for_their_annotations(graph):
    for found in walk(graph):
        if found.operator is corpus and isinstance(name := arguments_of(found)["name"], str):
            assert name in ("a", "b")


@given(expressions([corpus], max_nodes=1))
def test_one_node_is_one_call(graph):
    assert graph.operator is corpus


def test_what_no_values_are_known_of_is_named():
    with pytest.raises(TypeError, match=r"no values are known for `handle` of handled, a .*; give a str"):
        drawn_of(expressions([handled]), 1)


@pytest.mark.parametrize(
    ("operators", "text"),
    [
        ([], r"takes one operator or more, and got none"),
        ([len], r"takes operators \(@op\), and got <built-in function len>"),
        ({corpus: {"nam": st.text()}}, r"corpus has no parameter `nam`; it has name"),
        ({corpus: {"name": "a"}}, r"the strategy for `name` of corpus is 'a', not a Hypothesis strategy"),
    ],
)
def test_wrong_operators_are_refused(operators, text):
    with pytest.raises(TypeError, match=text):
        expressions(operators)


@pytest.mark.parametrize(
    ("given", "wanted"),
    [
        (int, int), (int, float), (bool, int), (int, int | None), (int, Any), (list[int], list),
        (list[int], list[float]), (Row, Row), (Point, tuple), (int | str, str | int | None), (None, None),
        (dict[str, int], Mapping[str, float]),
    ],
)  # fmt: skip
def test_a_type_stands_for_what_it_is_a_kind_of(given, wanted):
    assert stands_for(given, wanted)


@pytest.mark.parametrize(
    ("given", "wanted"),
    [
        (float, int), (None, int), (Any, int), (int | None, int), (list, list[int]), (list[str], list[int]),
        (dict, Row), (tuple[int, int], tuple[int, ...]), (str, int),
    ],
)  # fmt: skip
def test_a_type_stands_for_nothing_else(given, wanted):
    assert not stands_for(given, wanted)
