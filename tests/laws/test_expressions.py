"""Laws L3, L5, L6 and L25 of identity over graphs of every construct, choices, maps and order included."""

from __future__ import annotations

import base64
import json
import pickle
from typing import Any

from hypothesis import assume, event, given, settings
from hypothesis import strategies as st

from marin_dsl import Expression, after, digest, tagged
from marin_dsl.encoding import format_digest, parse_digest
from marin_dsl.expression import arguments_of, encode_arguments, walk
from marin_dsl.expression.keys import recipe_key, tagged_identity
from marin_dsl.expression.recipe import references, structure
from marin_dsl.operator import Operator
from marin_dsl.testing import expressions

EXAMPLES = settings(max_examples=settings.default.max_examples // 2, deadline=None)


@EXAMPLES
@given(expressions())
def test_l3_a_recipe_says_all_that_its_key_is_made_of(graph):
    for found in walk(graph):
        record = json.loads(json.dumps(structure(found)))
        payload = tuple(base64.b64decode(piece) for piece in record["payload"])
        facts = base64.b64decode(record.get("facts", ""))
        identity = tagged_identity(parse_digest(record["operator"]["identity"]), facts)
        assert format_digest(recipe_key(identity, payload, references(record))) == digest(found)


@EXAMPLES
@given(expressions())
def test_l3_what_is_read_from_an_expression_makes_it_again(graph):
    for found in walk(graph):
        made = applied(found, arguments_of(found))
        assert made == found
        assert made.payload == found.payload
    again = pickle.loads(pickle.dumps(graph))
    assert [found.key for found in walk(again)] == [found.key for found in walk(graph)]
    assert [found.waits for found in walk(again)] == [found.waits for found in walk(graph)]


@EXAMPLES
@given(expressions(), st.data())
def test_l5_another_node_in_the_place_of_one_changes_exactly_what_is_above_it(graph, data):
    nodes = list(walk(graph))
    changed = data.draw(st.sampled_from(nodes))
    new: dict[bytes, Expression[Any]] = {changed.key: tagged(changed, another="one")}
    above = {changed.key}
    for found in nodes:
        if found.key not in new:
            new[found.key] = applied(found, substituted(arguments_of(found), new))
        if any(reference.key in above for reference in found.references):
            above.add(found.key)
    event(f"{len(above)} of {len(nodes)} changed")
    assert {key for key, made in new.items() if made.key != key} == above


@EXAMPLES
@given(expressions(), expressions(max_nodes=3))
def test_what_is_no_part_of_an_expression_changes_no_key(graph, other):
    assert graph.named("a/graph", "1.0") == graph == graph.with_(priority=2, title="a graph", resources={"CPU": 2})
    for found in walk(graph):
        assert after(found, other) == found, "what is waited for (L5)"
        assert applied(found, dict(reversed(arguments_of(found).items()))) == found, "the order of keywords (L6)"
        if isinstance(found.operator, Operator) and not collects(found.operator):
            assert tagged_as(found, found.operator(**arguments_of(found))) == found, "by position or by name (L6)"


@EXAMPLES
@given(expressions(), st.data())
def test_l6_swapping_two_arguments_changes_the_key_unless_they_are_equal(graph, data):
    several = [found for found in walk(graph) if len(arguments_of(found)) > 1]
    assume(several)
    found = data.draw(st.sampled_from(several))
    given = arguments_of(found)
    one, other = data.draw(st.permutations(sorted(given)))[:2]
    swapped = {**given, one: given[other], other: given[one]}
    assert (applied(found, swapped) == found) == (bytes_of(given[one]) == bytes_of(given[other]))


def collects(operator: Operator[..., Any]) -> bool:
    parameters = operator.signature.parameters.parameters.values()
    return any(each.kind in (each.VAR_POSITIONAL, each.VAR_KEYWORD) for each in parameters)


def applied(like: Expression[Any], arguments: dict[str, Any]) -> Expression[Any]:
    return tagged_as(like, Expression.apply(like.operator, arguments))


def tagged_as(like: Expression[Any], made: Expression[Any]) -> Expression[Any]:
    identity = tagged_identity(like.operator.identity, like.facts)
    key = recipe_key(identity, made.payload, [reference.key for reference in made.references])
    return made._replace(facts=like.facts, key=key)


def substituted(value: Any, new: dict[bytes, Expression[Any]]) -> Any:
    if isinstance(value, Expression):
        return new[value.key]
    if isinstance(value, list | tuple):
        return type(value)(substituted(part, new) for part in value)
    return {key: substituted(part, new) for key, part in value.items()} if isinstance(value, dict) else value


def bytes_of(value: Any) -> Any:
    payload, found, _, _ = encode_arguments({"": value})
    return payload, [reference.key for reference in found]
