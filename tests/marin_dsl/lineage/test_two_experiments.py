"""Two experiments side by side: recipe, code, environment, result."""

import functools

import numpy as np
import pytest
from hypothesis import given, settings

from marin_dsl import evaluate, op, provenance
from marin_dsl.encoding import Named, decode, encode
from marin_dsl.lineage.comparison import compare, environment_changes, paired
from marin_dsl.lineage.results import value_changes
from marin_dsl.lineage.subject import SubjectMissing, subjects
from marin_dsl.store import Store, StoredValue
from marin_dsl.store.files import place
from marin_dsl.testing import values


def operators(bias: float = 0.0):
    """The same two operators, with one constant in the code of one."""

    @op(name="tests.train", version="1")
    def train(rate: float, seed: int) -> dict:
        return {"loss": rate * 2 + bias, "seed": seed}

    @op(name="tests.report", version="1")
    def report(runs: list, title: str) -> dict:
        return {"title": title, "losses": [run["loss"] for run in runs]}

    return train, report


def experiment(rate: float = 0.5, bias: float = 0.0):
    train, report = operators(bias)
    return report([train(rate, 0), train(1.0, 1)], "losses")


@pytest.fixture
def store(monkeypatch) -> Store:
    monkeypatch.setattr(provenance, "environment", lambda project: {"python": "3.11"})
    return Store(f"memory://comparison-{np.random.default_rng().integers(1 << 60)}")


@pytest.fixture
def compared(store):
    def compare_named(old, new):
        for root, label in ((old, "1.0"), (new, "2.0")):
            evaluate(root.named("report", label), store=store, debug=True)
        ((one, other),) = paired(subjects(store, "report@1.0"), subjects(store, "report@2.0"))
        return compare(store, one, other)

    return compare_named


def test_a_changed_setting_is_one_change_of_the_recipe_and_shows_in_the_numbers(compared):
    found = compared(experiment(0.5), experiment(0.25))
    assert [str(change) for change in found.recipe if not change.inherited] == ["rate 0.5 → 0.25"]
    assert [str(change) for change in found.result] == ["losses[0]  1.0 → 0.5  (-0.5, -50 %)"]
    assert (found.code, found.environment, found.unread) == ((), (), "")


def test_equal_experiments_do_not_differ(compared):
    found = compared(experiment(), experiment())
    assert (found.recipe, found.code, found.environment, found.result) == ((), (), (), ())
    assert found.old.digest == found.new.digest


def test_code_that_a_version_hides_from_the_recipe_is_told_all_the_same(compared):
    found = compared(experiment(0.5), experiment(0.25, bias=1.0))
    assert [str(change) for change in found.recipe if not change.inherited] == ["rate 0.5 → 0.25"]
    assert found.code[0].operator == "tests.train"
    assert found.code[0].version == "1"


def test_the_code_of_operators_is_compared_line_by_line(compared):
    @op(name="tests.step")
    def first(n: int) -> int:
        return n + 1

    @op(name="tests.step")
    def second(n: int) -> int:
        return n + 2

    found = compared(first(1), second(1))
    assert "-    return n + 1\n" in found.code[0].patch
    assert "+    return n + 2\n" in found.code[0].patch
    assert found.code[0].version is None
    assert [str(change) for change in found.result] == ["2 → 3  (+1, +50 %)"]


def test_what_a_run_stands_for_is_its_roots(store):
    for rate in (0.5, 0.25):
        evaluate(experiment(rate), experiment(rate + 1), store=store, debug=True)
    old, new = (name for name in store.files.names("runs"))
    pairs = paired(subjects(store, old), subjects(store, new))
    assert len(pairs) == 2
    assert compare(store, *pairs[1]).old.run == old


def test_an_expression_that_was_never_evaluated_is_compared_by_its_recipe(store, compared):
    compared(experiment(), experiment())
    from marin_dsl.lineage.subject import Subject

    new = experiment(0.75)
    (one,) = subjects(store, "report@1.0")
    found = compare(store, one, Subject("module:new", recipe=new.key, expression=new))
    assert [str(change) for change in found.recipe if not change.inherited] == ["rate 0.5 → 0.75"]
    assert found.unread == "module:new has no stored value"


def test_what_cannot_be_paired_is_a_complaint_that_says_what_to_name(store):
    evaluate(experiment(0.5), experiment(0.25), store=store, debug=True)
    evaluate(experiment(0.1), store=store, debug=True)
    several, one = (subjects(store, run) for run in store.files.names("runs"))
    with pytest.raises(SubjectMissing, match=r"stands for 2 expressions and .* for 1: name one of each"):
        paired(several, one)


def test_an_environment_differs_by_its_facts_and_packages():
    old = {"python": "3.11.7", "packages": {"attrs": "25.1", "gone": "1"}, "commit": "a", "patch": "", "untracked": []}
    new = old | {"python": "3.12.1", "packages": {"attrs": "25.2"}, "patch": "diff --git a/x.py b/x.py\n+1\n"}
    assert [(fact.name, fact.old, fact.new) for fact in environment_changes(old, new)] == [
        ("python", "3.11.7", "3.12.1"),
        ("uncommitted changes", "none", "2 lines in x.py"),
        ("package attrs", "25.1", "25.2"),
        ("package gone", "1", "(absent)"),
    ]
    assert list(environment_changes(old, old)) == []
    assert list(environment_changes(old, old | {"accelerators": []})) == []  # an older record says nothing of them


told = functools.partial(map, str)


@pytest.mark.parametrize(
    ("old", "new", "lines"),
    [
        (1, 1.0, ["1 → 1.0"]),
        (0.0, -0.0, ["0.0 → -0.0"]),
        (float("nan"), float("nan"), []),
        (True, 1, ["True → 1"]),
        (10**400, 10**400 + 1, None),
        ({"a": [1, {"b": 2.0}]}, {"a": [1, {"b": 3.0}]}, ["a[1].b  2.0 → 3.0  (+1, +50 %)"]),
        ([1, 2], [1, 2, 3], ["[2]  (absent) → 3"]),
        ([1], (1,), ["[1] → (1,)"]),
        ({1: "a"}, {True: "a"}, ["{1: 'a'} → {True: 'a'}"]),
        ({"a": 1}, {"b": 1}, ["a  1 → (absent)", "b  (absent) → 1"]),
        (Named("m:C", {"x": 1}), Named("m:C", {"x": 2}), ["x  1 → 2  (+1, +100 %)"]),
        (Named("m:C", {"x": 1}), Named("m:D", {"x": 1}), ["C(x=1) → D(x=1)"]),
        (1e-6, 1.0, ["1e-06 → 1.0  (+0.999999, +1e+06×)"]),
        (float("inf"), 1.0, ["inf → 1.0"]),
    ],
)
def test_values_are_compared_by_their_encoding_place_by_place(old, new, lines):
    found = list(told(value_changes(old, new)))
    if lines is None:
        assert len(found) == 1
        assert len(found[0]) < 200
    else:
        assert found == lines


def test_arrays_of_one_shape_are_told_by_their_largest_difference():
    (found,) = value_changes({"w": np.array([1.0, 2.0])}, {"w": np.array([1.0, 2.5])})
    assert (found.path, found.absolute, found.relative) == ("w", 0.5, 0.25)


def test_long_values_are_shortened_and_told_apart_by_their_digests():
    (found,) = value_changes("x" * 500 + "a", "x" * 500 + "b")
    assert found.old != found.new
    assert len(found.old) < 90


def plainly(value):
    """A value as results are compared: decoded without its classes."""
    return decode(encode(value), lazy=True, nameless=True)


@settings(max_examples=100)
@given(values(), values())
def test_values_differ_in_some_place_exactly_when_their_encodings_do(one, other):
    assert bool(list(value_changes(plainly(one), plainly(other)))) == (encode(one) != encode(other))
    assert list(value_changes(plainly(one), plainly(one))) == []


@pytest.mark.parametrize("data", ["+x\n" * 40_000, b"\xff\n+x\n" * 40_000])
def test_large_patches_are_compared_by_their_bytes_and_told_by_their_files(store, monkeypatch, data):
    head = "diff --git a/x.py b/x.py\n"
    found = {"python": "3.11", "patch": head + data if isinstance(data, str) else head.encode() + data}
    for number, environment in enumerate((found, found | {"python": "3.12"}, {"python": "3.11", "patch": ""})):
        monkeypatch.setattr(provenance, "environment", lambda project, environment=environment: environment)
        evaluate(experiment(number / 2).named("large", f"{number}.0"), store=store, debug=True)
    one, same, none = (subjects(store, f"large@{number}.0")[0] for number in range(3))
    assert [fact.name for fact in compare(store, one, same).environment] == ["python"]
    (fact,) = compare(store, one, none).environment
    assert (fact.name, fact.new) == ("uncommitted changes", "none")
    assert fact.old.endswith("lines in x.py")
    start = store.last(f"runs/{compare(store, one, none).old.run}/start")
    for digest, _ in StoredValue.from_record(start["environment"]).leaves:
        store.files.remove(place("blobs", digest))
    assert [(fact.name, fact.old) for fact in compare(store, one, none).environment] == [
        ("uncommitted changes", "a patch that is gone")
    ]
