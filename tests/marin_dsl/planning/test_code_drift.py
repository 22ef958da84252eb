"""Code drift: edits to operators whose identity is their version."""

from __future__ import annotations

import tempfile
from typing import NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from marin_dsl import Store, at_least, evaluate, op, plan, provenance, when
from marin_dsl.labels import DriftRefused
from marin_dsl.planning import code_drift
from marin_dsl.planning.code_drift import composed
from marin_dsl.planning.resolution import Resolution


@pytest.fixture(autouse=True)
def _quick_environment(monkeypatch):
    monkeypatch.setattr(provenance, "environment", lambda project: {"python": "3"})


@pytest.fixture
def store(tmp_path):
    return Store(tmp_path / "store")


def leaf_of(edition: int):
    if edition == 1:

        @op(name="test.leaf", version="1")
        def leaf(n: int) -> int:
            return n
    else:

        @op(name="test.leaf", version="1")
        def leaf(n: int) -> int:
            return n + 0 * 1

    return leaf


def twice_of(edition: int):
    if edition == 1:

        @op(name="test.twice", version="1")
        def twice(n: int) -> int:
            return 2 * n
    else:

        @op(name="test.twice", version="1")
        def twice(n: int) -> int:
            return n + n

    return twice


@op(version="1")
def plus(n: int, m: int = 1) -> int:
    return n + m


@op(name="test.unversioned")
def unversioned(n: int) -> int:
    return n


def run(root, store, **settings):
    told = []
    outcome = evaluate(root, store=store, debug=True, watch=told.append, **settings)
    ran = next(event["ran"] for event in told if event["event"] == "finished")
    return outcome.value, ran, [event for event in told if event["event"] == "code drift"]


def looks_at(store):
    found: list[str] = []
    read = store.files.read
    store.files.read = lambda path: found.append(path) or read(path)
    return found


@pytest.mark.parametrize(
    "graph",
    [
        lambda edition: twice_of(edition)(1),
        lambda edition: twice_of(edition)(plus(1)),
        lambda edition: plus(twice_of(edition)(plus(1))),
        lambda edition: unversioned(plus(twice_of(edition)(1) + 1)),
        lambda edition: plus(plus(plus(twice_of(edition)(unversioned(1))))) * 2,
    ],
)
def test_an_edit_at_any_depth_is_reported_with_a_diff_and_the_value_is_served(graph, store):
    value, _, told = run(graph(1), store)
    assert told == []
    for _ in range(2):
        again, ran, (told,) = run(graph(2), store)
        assert (again, ran) == (value, 0)
        assert told["headline"] == "the code of test.twice changed and its version 1 did not"
        assert told["title"].startswith("twice")
        assert any(line.startswith("-") and "2 * n" in line for line in told["code"])
        assert any(line.startswith("+") and "n + n" in line for line in told["code"])
    assert run(graph(1), store)[2] == [], "what is edited back is no drift"


def test_code_that_is_what_it_was_costs_no_look_up_more(store):
    root = plus(plus(twice_of(1)(plus(1))))
    run(root, store)
    looks = looks_at(store)
    plan(root, store=store)
    assert sum(path.startswith("recipes/") for path in looks) == 1
    assert sum(path.startswith("results/") for path in looks) == 1


def test_a_strict_run_fails_before_anything_runs(store):
    run(twice_of(1)(1), store)
    expected = (
        r"(?s)drift, so nothing was run:\nthe code of test.twice changed and its version 1 did not; served: "
        r"twice\(n=1\).*another version of the operator runs it anew, accept takes the values as made by this code"
    )
    for ask in (plan, evaluate):
        with pytest.raises(DriftRefused, match=expected):
            ask(plus(twice_of(2)(1)), store=store, drift="strict")
    assert store.recipe(plus(twice_of(2)(1)).key) is None


@pytest.mark.parametrize("deep", [False, True])
def test_code_that_is_accepted_is_not_told_again(deep, store):
    def graph(edition):
        return plus(plus(twice_of(edition)(plus(1) if deep else 1)))

    run(graph(1), store)
    assert run(graph(2), store, drift="accept")[1:] == (0, [])
    assert run(graph(2), store, drift="strict")[1:] == (0, [])
    above = plus(graph(2), 5)
    assert run(above, store, drift="strict")[1:] == (1, [])
    assert run(above, store, drift="strict")[1:] == (0, [])
    assert run(graph(1), store)[2] == [], "and the code that really made it is none either"


def test_code_that_was_accepted_for_one_root_is_not_told_for_another(store):
    def roots(edition):
        below = twice_of(edition)(plus(1))
        return plus(below), plus(below, 7)

    for root in roots(1):
        run(root, store)
    run(roots(2)[0], store, drift="accept")
    assert run(roots(2)[1], store)[2] == []
    looks = looks_at(store)
    run(roots(2)[1], store)
    assert sum(path.endswith(".call") for path in looks) == 1, "and then it costs nothing any more"


def test_a_value_made_over_an_old_one_is_made_by_the_old_code_too(store):
    run(plus(twice_of(1)(1)), store)
    _, ran, told = run(plus(twice_of(2)(1), 5), store)
    assert (ran, len(told)) == (1, 1)
    _, ran, told = run(plus(twice_of(2)(1), 5), store)
    assert (ran, len(told)) == (0, 1), "the value of twice is still that of the earlier code"


def test_what_is_run_anew_by_the_new_code_has_no_drift(store):
    root = plus(twice_of(1)(plus(1)))
    run(root, store)
    for path in list(_files(store, "results")):
        store.files.remove(path)
    assert run(plus(twice_of(2)(plus(1))), store, drift="strict")[1] == 3
    assert run(plus(twice_of(2)(plus(1))), store, drift="strict")[1:] == (0, [])


def _files(store, kind):
    for folder in store.files.names(kind):
        yield from (f"{kind}/{folder}/{name}" for name in store.files.names(f"{kind}/{folder}"))


def test_two_operators_that_changed_are_told_once_each(store):
    def graph(edition):
        return plus(twice_of(edition)(leaf_of(edition)(1)), twice_of(edition)(leaf_of(edition)(2)))

    run(graph(1), store)
    told = run(graph(2), store)[2]
    assert sorted(event["operator"] for event in told) == ["test.leaf", "test.twice"]


def test_source_that_was_not_recorded_is_said_so(store):
    root = twice_of(1)(plus(1))
    run(root, store)
    place = f"recipes/{root.key.hex()[:2]}/{root.key.hex()[2:]}.json"
    store.files.remove(place)
    (told,) = run(twice_of(2)(plus(1)), store)[2]
    assert told["headline"].endswith("did not; its earlier source was not recorded")


def test_records_of_before_say_nothing_and_are_no_drift(store):
    root = plus(twice_of(1)(plus(1)))
    run(root, store)
    store.put_call(root.key, store.call_of(root.key))
    assert run(plus(twice_of(2)(plus(1))), store)[1:] == (0, [])


@op(name="test.fails")
def fails(n: int) -> int:
    raise ArithmeticError(n)


class Untrue(NamedTuple):
    """A value that is neither true nor false."""

    n: int

    def __bool__(self):
        raise TypeError("neither")


@op(name="test.pair", version="1")
def pair(n: int) -> Untrue:
    return Untrue(n)


CHOICES = {
    "then": lambda edition: when(plus(1) > 0, twice_of(edition)(1), 0),
    "otherwise": lambda edition: when(plus(1) < 0, 0, twice_of(edition)(plus(1))),
    "condition": lambda edition: when(twice_of(edition)(1) > 0, plus(1), plus(2)),
    "value": lambda edition: twice_of(edition)(1).recover(plus(1)),
    "recovered": lambda edition: fails(1).recover(twice_of(edition)(plus(1))),
    "nested": lambda edition: when(plus(1) > 0, when(plus(2) < 0, 0, fails(1).recover(twice_of(edition)(1))), 0),
    "undecided": lambda edition: at_least(1, [when(fails(1) > 0, 0, plus(1)), twice_of(edition)(1)])[0],
    "untrue": lambda edition: at_least(1, [when(pair(1), 0, plus(1)), twice_of(edition)(1)])[0],
    "several": lambda edition: at_least(1, [fails(1), twice_of(edition)(1)])[0],
}


@pytest.mark.parametrize("choice", CHOICES.values(), ids=CHOICES)
def test_drift_is_found_through_choices_in_what_was_chosen(choice, store):
    def graph(edition):
        return plus(plus(choice(edition)))

    keep = {"keep_failures": True}  # what failed below is tried again otherwise, and is served after that
    value, _, told = run(graph(1), store, **keep)
    assert told == []
    assert run(graph(1), store, **keep)[1:] == (0, [])
    again, ran, (told,) = run(graph(2), store, **keep)
    assert (again, ran) == (value, 0)
    assert told["headline"] == "the code of test.twice changed and its version 1 did not"
    assert any(line.startswith("+") and "n + n" in line for line in told["code"])
    assert run(graph(1), store, **keep)[2] == []
    assert run(graph(2), store, drift="accept", **keep)[1:] == (0, [])
    assert run(graph(2), store, drift="strict", **keep)[1:] == (0, [])


UNCHOSEN = {
    "then": lambda edition: when(plus(1) < 0, twice_of(edition)(1), 0),
    "otherwise": lambda edition: when(plus(1) > 0, 0, twice_of(edition)(plus(1))),
    "other": lambda edition: plus(1).recover(twice_of(edition)(1)),
    "below": lambda edition: when(plus(1) > 0, 0, when(plus(1) > 0, 0, plus(twice_of(edition)(1)))),
}


@pytest.mark.parametrize("evaluated", [False, True])
@pytest.mark.parametrize("choice", UNCHOSEN.values(), ids=UNCHOSEN)
def test_what_was_not_chosen_has_no_drift_and_is_not_demanded(choice, evaluated, store):
    root = plus(choice(1))
    assert run(root, store)[2] == []
    if evaluated:  # for somebody else, by the earlier code
        run(twice_of(1)(1), store)
        run(plus(twice_of(1)(plus(1))), store)
    else:
        assert store.call_of(twice_of(1)(plus(1)).key) is None
    assert run(plus(choice(2)), store, drift="strict")[1:] == (0, [])
    looks = looks_at(store)
    assert run(plus(choice(2)), store, drift="strict")[1:] == (0, [])
    assert sum(path.startswith("recipes/") and path.endswith(".next") for path in looks) == 0, (
        "it is known from then on"
    )


def test_choices_whose_code_is_what_it_was_cost_no_look_up(store):
    root = plus(when(plus(1) > 0, when(plus(2) > 0, twice_of(1)(1), 0), fails(1)))
    run(root, store)
    looks = looks_at(store)
    plan(root, store=store)
    assert sum(path.startswith(("recipes/", "results/")) for path in looks) == 2


def test_a_choice_that_runs_anew_over_an_old_value_is_made_by_the_old_code(store):
    def graph(edition, more):
        return plus(when(plus(1) > 0, twice_of(edition)(1), 0), more)

    run(graph(1, 1), store)
    for ran in (1, 0):
        _, found, told = run(graph(2, 2), store)
        assert (found, len(told)) == (ran, 1)


def test_each_branch_that_is_not_chosen_is_gone_through_once(store, monkeypatch):
    made = []
    monkeypatch.setattr(code_drift, "composed", lambda *given: made.append(given) or composed(*given))
    shared = plus(7)
    for _ in range(30):
        shared = plus(shared)
    run(plus(at_least(0, [when(plus(n) > 0, n, shared) for n in range(30)])[0]), store)
    assert 30 < len(made) < 200, "and not 30 times 30"


def test_drift_is_not_taken_as_accepted_where_it_is_not_known_what_was_chosen(store):
    def graph(edition):
        return plus(when(plus(1) > 0, twice_of(edition)(1), 0))

    run(graph(1), store)
    place = next(path for path in _files(store, "recipes") if path.endswith(".next"))
    kept = store.files.read(place)
    store.files.remove(place)
    assert run(graph(2), store)[1:] == (0, [])
    store.files.replace(place, (kept,))
    assert len(run(graph(2), store)[2]) == 1


PLANS = st.recursive(
    st.tuples(st.sampled_from(["plus", "fails"]), st.integers(0, 2)),
    lambda below: st.tuples(st.sampled_from(["plus", "when", "recover", "at_least", "map"]), below, below, below),
    max_leaves=12,
)


def planned(kind, *parts):
    """The graph of calls and choices that a plan describes."""
    if len(parts) == 1:
        return {"plus": plus, "fails": fails}[kind](*parts)
    one, then, other = (planned(*part) for part in parts)
    return {
        "plus": lambda: plus(one, then),
        "when": lambda: when(one > 1, then, other),
        "recover": lambda: one.recover(other),
        "at_least": lambda: at_least(1, [one, then])[0],
        "map": lambda: nested_sum(plus.map(wrapped(one), m=then)),
    }[kind]()


@given(plan=PLANS)
@settings(max_examples=40, deadline=None)
def test_what_was_made_by_this_code_has_the_digest_of_this_code(plan):
    root = plus(planned(*plan))
    with tempfile.TemporaryDirectory() as folder:
        store = Store(folder)
        evaluate(root, store=store, debug=True)
        resolution = Resolution((root,), store, keep_failures=True)
        for node in resolution.nodes.values():
            if node.how is not None:
                assert node.made_by == resolution.codes.of(node.expression)[node.expression.key] is not None


MAPS = {
    "called": lambda edition: twice_of(edition).map(numbers(3)),
    "in a part": lambda edition: plus.map(numbers(3), m=twice_of(edition)(1)),
    "in the list": lambda edition: plus.map(wrapped(twice_of(edition)(1))),
    "of a map": lambda edition: plus.map(twice_of(edition).map(numbers(3))),
    "chosen": lambda edition: when(plus(1) > 0, twice_of(edition).map(numbers(2)), []),
}


@pytest.mark.parametrize("made", MAPS.values(), ids=MAPS)
def test_drift_is_found_in_calls_that_were_made_for_elements(made, store):
    def graph(edition):
        return plus(nested_sum(made(edition)))

    value, _, told = run(graph(1), store)
    assert told == []
    looks = looks_at(store)
    assert run(graph(1), store)[1:] == (0, [])
    assert sum(path.startswith(("recipes/", "results/")) for path in looks) == 2
    again, ran, (told,) = run(graph(2), store)
    assert (again, ran) == (value, 0)
    assert told["title"].startswith("twice(n=")
    assert any(line.startswith("+") and "n + n" in line for line in told["code"])
    with pytest.raises(DriftRefused):
        evaluate(graph(2), store=store, debug=True, drift="strict")
    assert run(graph(2), store, drift="accept")[1:] == (0, [])
    assert run(graph(2), store, drift="strict")[1:] == (0, [])


def test_a_map_that_runs_anew_over_old_calls_is_made_by_the_old_code(store):
    def graph(edition, count):
        return plus(nested_sum(twice_of(edition).map(numbers(count))))

    run(graph(1, 2), store)
    for _ in range(2):
        value, _, told = run(graph(2, 3), store)  # one more call, by the new code
        assert (value, len(told)) == (7, 1)


def test_a_map_over_nothing_has_no_drift(store):
    run(nested_sum(twice_of(1).map(numbers(0))), store)
    assert run(nested_sum(twice_of(2).map(numbers(0))), store, drift="strict")[1:] == (0, [])
    assert run(nested_sum(twice_of(2).map(numbers(0))), store, drift="strict")[1:] == (0, [])


@op(name="test.wrapped", version="1")
def wrapped(n: int) -> list[int]:
    return [n]


@op(name="test.numbers", version="1")
def numbers(n: int) -> list[int]:
    return list(range(n))


@op(name="test.nested_sum", version="1")
def nested_sum(of: list[int]) -> int:
    return sum(of)


def returning(edition: int, *, version: str | None, kind: str = "plain"):
    """An operator that returns an expression of one whose code has editions."""
    twice = twice_of(edition)
    shapes = {
        "plain": lambda n: twice(n),
        "deeper": lambda n: plus(plus(twice(plus(n)))),
        "in a list": lambda n: [twice(k) for k in range(n)],
        "mapped": lambda n: nested_sum(twice.map(numbers(n))),
        "chosen": lambda n: when(plus(n) > 0, twice(n), plus(n)),
    }
    shape = shapes.get(kind)

    @op(name="test.recursive", version=version)
    def recursive(n: int):
        return plus(recursive(n - 1)) if n else twice(7)

    if shape is None:
        return recursive

    @op(name="test.returning", version=version)
    def returning(n: int):
        return shape(n)

    return returning


@pytest.mark.parametrize("version", [None, "1"])
@pytest.mark.parametrize("below", [False, True])
@pytest.mark.parametrize("kind", ["plain", "deeper", "in a list", "mapped", "chosen"])
def test_drift_is_found_in_what_an_operator_returned(store, kind, version, below):
    def graph(edition):
        made = returning(edition, version=version, kind=kind)
        return counted(made(plus(1) if below else 2))

    value, _, told = run(graph(1), store)
    assert told == []
    looks = looks_at(store)
    assert run(graph(1), store)[1:] == (0, [])
    assert sum(path.startswith(("recipes/", "results/")) for path in looks) == 2
    for _ in range(2):
        again, ran, (told,) = run(graph(2), store)
        assert (again, ran) == (value, 0)
        assert told["title"].startswith("twice(")
        assert any(line.startswith("+") and "n + n" in line for line in told["code"])
    with pytest.raises(DriftRefused):
        evaluate(graph(2), store=store, debug=True, drift="strict")
    assert run(graph(2), store, drift="accept")[1:] == (0, [])
    assert run(graph(2), store, drift="strict")[1:] == (0, [])


def test_drift_is_found_in_what_an_operator_returned_that_is_a_root(store):
    for made in (returning(1, version="1"), returning(1, version="1", kind="recursive")):
        run(made(2), store)
        run(made(2), store)
    for kind in ("plain", "recursive"):
        ((told,), (again,)) = (run(returning(2, version="1", kind=kind)(2), store)[2] for _ in range(2))
        assert told["operator"] == again["operator"] == "test.twice"
        assert run(returning(2, version="1", kind=kind)(2), store, drift="accept")[1:] == (0, [])
        assert run(returning(2, version="1", kind=kind)(2), store, drift="strict")[1:] == (0, [])


def test_what_was_not_returned_has_no_drift_though_the_code_reaches_it(store):
    def made(edition):
        twice = twice_of(edition)

        @op(name="test.sometimes", version="1")
        def sometimes(n: int):
            return twice(n) if n > 5 else plus(n)

        return sometimes

    run(made(1)(1), store)
    for _ in range(2):
        assert run(made(2)(1), store, drift="strict")[1:] == (0, [])
    run(made(1)(7), store)
    assert len(run(made(2)(7), store)[2]) == 1


def test_what_is_returned_anew_and_served_by_old_code_is_told_from_then_on(store):
    run(twice_of(1)(2), store)
    for ran in (2, 0):  # the operator is new, and what it returns is not
        _, found, told = run(counted(returning(2, version="1")(2)), store)
        assert (found, len(told)) == (ran, 1)


@op(name="test.counted", version="1")
def counted(value: object) -> str:
    return str(value)
