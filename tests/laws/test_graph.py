"""Laws of identity over expressions: L1 stability, L3 closed, L5 Merkle, L6 roles, L9 sharing at depth."""

from __future__ import annotations

import base64
import copy
import json
import os
import pickle
import subprocess
import sys
import textwrap
import time
import tracemalloc
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from marin_dsl import Store, attempt, digest, evaluate, grid, op, plan, tagged
from marin_dsl.encoding import format_digest, parse_digest
from marin_dsl.expression import walk
from marin_dsl.expression.keys import recipe_key, tagged_identity
from marin_dsl.expression.recipe import arguments, references, structure
from tests.marin_dsl.programs import Step, build, leaf, pair, programs, total

EXAMPLES = settings(deadline=None)

MANY = """
    import enum
    import numpy as np
    from marin_dsl import attempt, digest, grid, op

    class Color(enum.Enum):
        RED = 1

    @op(version="1")
    def f(*args, **kwargs): ...

    @op
    def g(x, scale=2.0):
        return {word for word in ("a", "b", x)}

    inner = g("x")
    found = [
        f(1, 1.0, True, None, "é", b"x", -0.0, float("nan"), 2**70, 1j),
        f({"b": 1, "a": 2}, {"x", "y", "z"}, frozenset({1, "1"}), (1, [2]), Color.RED),
        f(np.arange(6).reshape(2, 3), np.float32(0.5), inner, [inner, {"k": inner}]),
        f(b=1, a=2), inner, inner["k"], inner.field("k"), 0.3 * inner + 0.7 * inner, attempt(inner), inner.eq(3),
        f(grid(a=[1, 2], b="xy".split())(lambda a, b: f(a, b))),
    ]
"""


def keys_in_another_process(folder: Path, seed: str) -> list[str]:
    (folder / "many.py").write_text(textwrap.dedent(MANY))
    done = subprocess.run(
        [
            sys.executable,
            "-c",
            "import json, many; from marin_dsl import digest; print(json.dumps(list(map(digest, many.found))))",
        ],
        cwd=folder,
        env=os.environ | {"PYTHONHASHSEED": seed, "PYTHONPATH": f"{Path('src').absolute()}"},
        capture_output=True,
        text=True,
        check=True,
    )
    return json.loads(done.stdout)


def test_keys_are_equal_in_every_process_and_under_every_hash_seed(tmp_path):
    first, second, third = (keys_in_another_process(tmp_path, seed) for seed in ("0", "1", "4242"))
    assert first == second == third
    assert len(set(first)) == len(first)


@EXAMPLES
@given(programs())
def test_copies_and_pickles_are_equal(program):
    for expression in build(program):
        assert copy.copy(expression) == expression
        assert copy.deepcopy(expression) == expression
        again = pickle.loads(pickle.dumps(expression))
        assert again == expression
        assert [found.key for found in walk(again)] == [found.key for found in walk(expression)]
        assert again.origin == expression.origin


@EXAMPLES
@given(st.dictionaries(st.text(max_size=4), st.integers(), max_size=5), st.randoms(use_true_random=False))
def test_the_order_of_a_dict_changes_no_key(items, chance):
    shuffled = list(items.items())
    chance.shuffle(shuffled)
    assert total([items]) == total([dict(shuffled)])


@EXAMPLES
@given(programs())
def test_an_expression_is_a_record_and_its_key_can_be_computed_from_it(program):
    for expression in (found for root in build(program) for found in walk(root)):
        record = json.loads(json.dumps(structure(expression)))
        payload = tuple(base64.b64decode(piece) for piece in record["payload"])
        identity = tagged_identity(
            parse_digest(record["operator"]["identity"]), base64.b64decode(record.get("facts", ""))
        )
        key = recipe_key(identity, payload, references(record))
        assert format_digest(key) == digest(expression)
        assert {found.key for found in expression.references} == set(references(record))
        assert isinstance(arguments(record), dict)


@EXAMPLES
@given(programs(), st.data())
def test_changing_a_leaf_changes_exactly_its_ancestors(program, data):
    leaves = [position for position, step in enumerate(program) if step.kind == "leaf"]
    changed = data.draw(st.sampled_from(leaves))
    # A constant that no other leaf has, before as after, so that the changed leaf is shared with nobody.
    before = [*program]
    before[changed] = Step("leaf", (), 1000)
    after = [*program]
    after[changed] = Step("leaf", (), 2000)
    for position, (old, new) in enumerate(zip(build(before), build(after), strict=True)):
        assert (old.key != new.key) == (changed in _below(program, position))


@EXAMPLES
@given(programs(), st.integers())
def test_a_tag_changes_keys_and_no_arguments(program, fact):
    for expression in build(program):
        found = tagged(expression, fact=fact)
        assert found.key != expression.key
        assert (found.payload, found.references) == (expression.payload, expression.references)
        assert found == tagged(tagged(expression, fact="other"), fact=fact)
        assert pickle.loads(pickle.dumps(found)) == found


def _below(program: list[Step], position: int) -> set[int]:
    seen, stack = set(), [position]
    while stack:
        current = stack.pop()
        if current not in seen:
            seen.add(current)
            step = program[current]
            # What a step only waits for (its second input) is no part of what it is.
            stack += step.inputs[:1] if step.kind == "after" else step.inputs
    return seen


@op(version="1")
def subtract(left, right=0, *more, scale=1.0, **others):
    return left - right


def test_roles_count_and_the_order_of_keywords_does_not():
    assert subtract(1, 2) != subtract(2, 1)
    assert subtract(left=1, right=2) == subtract(right=2, left=1) == subtract(1, 2)
    assert subtract(1, scale=2.0, a=1, b=2) == subtract(1, b=2, a=1, scale=2.0)
    assert subtract(1) == subtract(1, 0), "a default that is written out is the same call"
    assert subtract(1, 2, 3, 4) != subtract(1, 2, 4, 3)
    assert leaf(1) - leaf(2) != leaf(2) - leaf(1)
    assert subtract(1) != subtract(1.0) != subtract(True)


def test_annotations_labels_and_places_change_no_key(monkeypatch, tmp_path):
    plain = total([leaf(1)])
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MARIN_STORE", str(tmp_path / "elsewhere"))
    for other in (
        plain.named("a/label", "1.0"),
        plain.with_(priority=5, resources={"GPU": 1}),
        total([leaf(1).named("inner", "2dev")]),
        total([leaf(1).with_(resources={"CPU": 2})]),
    ):
        assert other == plain
        assert hash(other) == hash(plain)
    assert list(tmp_path.iterdir()) == [], "building does no I/O"


def test_arguments_that_are_mutated_after_the_call_do_not_change_the_expression():
    values, inner, array = [1, 2], {"a": [1]}, np.arange(4)
    made = subtract(values, inner, array)
    key = made.key
    values.append(3)
    inner["a"].append(2)
    array[0] = 9
    assert made.key == key == subtract([1, 2], {"a": [1]}, np.arange(4)).key
    assert subtract(values, inner, array) != made


# Depth and breadth


def ladder(levels: int):
    left, right = leaf(1), leaf(2)
    for _ in range(levels):
        left, right = pair(left, right), pair(right, left)
    return pair(left, right)


def chain(length: int):
    made = leaf(0)
    for _ in range(length):
        made = total([made], 1)
    return made


def test_a_ladder_of_10000_diamonds_builds_prints_plans_pickles_and_is_dropped():
    made = ladder(10_000)
    assert "pair" in repr(made)
    assert sum(1 for _ in walk(made)) == 20_003
    assert len(plan(made, store="memory://ladder").runs) == 20_003
    assert pickle.loads(pickle.dumps(made)) == made
    assert copy.deepcopy(made) == made


@pytest.mark.long
def test_a_chain_of_100000_builds_prints_plans_pickles_and_is_dropped():
    made = chain(100_000)
    assert "total" in repr(made)
    assert pickle.loads(pickle.dumps(made)) == made
    assert len(plan(made, store="memory://chain").runs) == 100_001
    del made


def test_a_node_takes_less_than_1500_bytes():
    leaf(0)
    tracemalloc.start()
    kept = [leaf(number) for number in range(10_000)]
    assert tracemalloc.get_traced_memory()[0] / len(kept) < 1_500
    tracemalloc.stop()


def test_a_chain_of_inline_nodes_is_evaluated_at_any_depth():
    made = leaf(0)
    for _ in range(3_000):
        made = made + 1
    assert evaluate(made, store="memory://inline", debug=True).value == 3_000
    made = leaf(0)
    for _ in range(40):
        made = attempt(made)
    found = evaluate(made, store="memory://inline", debug=True).value
    for _ in range(39):
        found = found.value
    assert found.value == 0


def test_a_failure_under_a_ladder_is_named_once_at_the_top():
    from tests.marin_dsl.programs import fail

    left = right = fail([], "broken", "value")
    for _ in range(300):
        left, right = pair(left, right), pair(right, left)
    assert [cause.message for cause in evaluate(left, store="memory://blame", debug=True).because] == ["broken"]


def test_the_cost_of_an_evaluation_grows_with_the_number_of_nodes(tmp_path):
    def seconds(nodes: int) -> float:
        made = total([total([leaf(index)], index) for index in range(nodes)])
        began = time.process_time()
        assert evaluate(made, store=Store(tmp_path / str(nodes)), debug=True).value == nodes * (nodes - 1)
        return time.process_time() - began

    seconds(10)
    small, large = seconds(200), seconds(800)
    assert large < 10 * small, f"4 times the nodes took {large / small:.1f} times as long"


def test_a_grid_is_the_list_of_its_cells_for_an_operator():
    runs = grid(rate=[0.1, 0.2], seed=range(2))(lambda rate, seed: subtract(rate, seed))
    assert len({digest(cell.value) for cell in runs}) == 4
    assert total(runs) == total(runs.map(lambda found: found))
