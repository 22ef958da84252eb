"""Functions, classes and operators as values: what tells them apart, how they travel, and what is never kept."""

from __future__ import annotations

import copy
import functools
import gc
import importlib
import operator
import pickle
import re
import subprocess
import sys
import weakref
from collections.abc import Callable
from typing import Any

import attrs
import cloudpickle
import jax
import numpy as np
import pytest

from marin_dsl import Failed, Ok, Skipped, Store, encodable, evaluate, grid, op, when
from marin_dsl.encoding import Undecodable, decode, encode
from marin_dsl.expression import arguments_of
from marin_dsl.expression.recipe import structure
from marin_dsl.lineage.difference import differences
from marin_dsl.operator.current import by_current_code
from marin_dsl.operator.signature import WrongCall
from marin_dsl.testing import assert_pure
from tests.marin_dsl.code_identity.projects import imported


@op
def apply(f: Any, x: Any) -> Any:
    return f(x)


@op
def double(x: int) -> int:
    return 2 * x


@op
def made(n: int) -> list[Any]:
    return [triple, np.add, Times, n]


@op
def making_what_cannot_be_kept(inside: bool) -> Any:
    return [lambda: 1, double(1)] if inside else {"f": [lambda: 1]}


@op
def going_on(by: int) -> Any:
    return apply(lambda x: x * by, double(by))


def triple(x):
    return 3 * x


@jax.jit
def compiled(x):
    return x + 1


@functools.lru_cache
def remembered(x):
    return x


@encodable
@attrs.frozen
class Times:
    by: int

    def of(self, x):
        return self.by * x

    @staticmethod
    def same(x):
        return x

    @classmethod
    def one(cls, x):
        return cls(1).of(x)


IMPORTABLE = [
    len, int, operator.add, np.add, np.mean, np.float32, functools.partial, jax.nn.relu, jax.numpy.sin, triple,
    compiled, remembered, Times, Times.same, Times.of, apply, double,
]  # fmt: skip


@pytest.mark.parametrize("value", IMPORTABLE, ids=range(len(IMPORTABLE)))
def test_what_can_be_imported_comes_back_itself(value):
    assert decode(encode([value])) == [value]
    assert decode(encode([value]))[0] is value


def test_functions_are_told_apart():
    values = [*IMPORTABLE, double.function]
    assert len({apply(value, 1).key for value in values}) == len(values)


def _scaled(by):
    return lambda x: by * x


IN_MEMORY = {
    "lambda": (lambda: lambda x: x + 1, lambda: lambda x: x + 2, 3, 4),
    "closure": (lambda: _scaled(2), lambda: _scaled(3), 4, 6),
    "default": (lambda: lambda x, by=5: x * by, lambda: lambda x, by=6: x * by, 10, 12),
    "partial": (lambda: functools.partial(operator.mul, 5), lambda: functools.partial(operator.mul, 6), 10, 12),
    "partial of ours": (lambda: functools.partial(_scaled(2)), lambda: functools.partial(triple), 4, 6),
    "method": (lambda: Times(5).of, lambda: Times(6).of, 10, 12),
    "method of a class": (lambda: Times.one, lambda: Times.same, 2, 2),
    "function of an operator": (lambda: double.function, lambda: triple, 4, 6),
    "getter": (lambda: operator.attrgetter("real"), lambda: operator.attrgetter("imag"), 2, 0),
    "method that is built in": (lambda: [5, 6, 7].__getitem__, lambda: [5, 6, 8].__getitem__, 7, 8),
    "operator of a number": (lambda: (5).__add__, lambda: (6).__add__, 7, 8),
    "wrapper": (lambda: functools.lru_cache(_scaled(2)), lambda: functools.lru_cache(_scaled(3)), 4, 6),
    "compiled": (lambda: jax.jit(_scaled(2)), lambda: jax.jit(_scaled(3)), 4, 6),
    "local class": (lambda: _local_class(1), lambda: _local_class(2), None, None),
    "local operator": (lambda: _local_operator(1), lambda: _local_operator(2), None, None),
}


def _local_class(size):
    class Local:
        def __init__(self, x):
            self.size = size

    return Local


def _local_operator(size):
    @op
    def local(x):
        return x + size

    return local


@pytest.mark.parametrize("kind", IN_MEMORY)
def test_what_cannot_be_imported_is_told_by_its_code(kind):
    one, other, *_ = IN_MEMORY[kind]
    assert apply(one(), 1).key == apply(one(), 1).key != apply(other(), 1).key


@pytest.mark.parametrize("kind", [kind for kind, case in IN_MEMORY.items() if case[2] is not None])
def test_it_is_called_with_what_is_given(tmp_path, kind):
    one, other, first, second = IN_MEMORY[kind]
    store = Store(tmp_path)
    results = evaluate(apply(one(), double(1)), apply(other(), double(1)), store=store)
    assert [result.value for result in results] == [first, second]


def test_processes_receive_functions_too(tmp_path):
    store = Store(tmp_path)
    travelling = [case for kind, case in IN_MEMORY.items() if case[2] is not None and kind != "wrapper"]
    calls = [apply(case[0](), double(1)) for case in travelling]
    calls += [apply(f, double(1)) for f in (triple, np.negative, compiled)]
    expected = [*(case[2] for case in travelling), 6, -2, 3]
    isolated = apply(_scaled(9), double(1)).with_(isolate=True)
    outcomes = evaluate(*calls, isolated, going_on(5), store=store, workers=2)
    assert [int(outcome.value) for outcome in outcomes] == [*expected, 18, 50]


def test_one_that_cannot_travel_says_so(tmp_path):
    outcome = evaluate(apply(functools.lru_cache(_scaled(2)), 1), store=Store(tmp_path), workers=1)
    assert isinstance(outcome, Failed)
    assert "apply cannot be sent to another process" in outcome.message


def test_they_are_parts_of_arguments_and_of_grids(tmp_path):
    store = Store(tmp_path)
    by = {"f": [triple, lambda x: x + 1], "model": Times(3), "of": (Times, {"g": np.negative})}

    @op
    def use(parts: dict[str, Any], x: int) -> list[Any]:
        f, g = parts["f"]
        cls, more = parts["of"]
        return [f(x), g(x), cls(2).of(x), int(more["g"](x))]

    assert evaluate(use(by, double(1)), store=store).value == [6, 3, 4, -2]
    cells = grid(f=[triple, _scaled(4)], x=[1, 2])(lambda f, x: apply(f, x)).cells
    outcomes = evaluate(*(cell.value for cell in cells), store=store)
    assert [outcome.value for outcome in outcomes] == [3, 6, 4, 8]


def test_inline_nodes_pass_them_on(tmp_path):
    store = Store(tmp_path)
    chosen = when(double(1), _scaled(7), triple)
    listed = [apply(chosen, 1), apply(made(1)[0], 1)]
    assert [outcome.value for outcome in evaluate(*listed, store=store)] == [7, 3]


def test_a_map_over_a_list_that_is_an_expression_takes_one_along(tmp_path):
    @op
    def numbers(n: int) -> list[int]:
        return list(range(n))

    @op
    def with_(x: int, f: Any) -> Any:
        return f(x)

    store = Store(tmp_path)
    assert evaluate(with_.map(numbers(3), f=_scaled(2)), store=store).value == [0, 2, 4]


def test_one_that_can_be_imported_may_be_a_result(tmp_path):
    store = Store(tmp_path)
    outcome = evaluate(made(1), store=store)
    assert outcome.value == [triple, np.add, Times, 1]


@pytest.mark.parametrize("inside", [False, True], ids=["a value", "beside an expression"])
def test_one_that_cannot_is_never_kept(tmp_path, inside):
    outcome = evaluate(making_what_cannot_be_kept(inside), store=Store(tmp_path))
    assert isinstance(outcome, Failed)
    assert outcome.kind == "unstorable"
    assert "the function `making_what_cannot_be_kept.<locals>.<lambda>` cannot be imported" in outcome.message


def test_nothing_of_a_function_in_memory_is_written(tmp_path):
    secret_name = "_".join(["a", "name", "that", "is", "nowhere", "else"])  # records hold the text of this file
    local: dict[str, Any] = {}
    exec(f"def {secret_name}(x):\n    return 'a text that is nowhere else'\n", local)
    evaluate(apply(local[secret_name], 1), store=Store(tmp_path))
    written = b"".join(path.read_bytes() for path in tmp_path.rglob("*") if path.is_file())
    assert secret_name.encode() not in written


def _reading(stream):
    return lambda x: stream.read()


@pytest.mark.parametrize(
    ("function", "text"),
    [
        (lambda file: _reading(file), r"holds a io.TextIOWrapper \(.*_reading.<locals>.<lambda>.<closure>.stream\)"),
        (lambda file: file.read, r"holds a io.TextIOWrapper \(TextIOWrapper.read: self\)"),
        (lambda file: functools.partial(triple, file), "holds a io.TextIOWrapper"),
        (lambda file: lambda x, stream=file: stream.read(), "holds a io.TextIOWrapper .*: default 0"),
        (lambda file: _reading(iter([1, 2])), "holds a list_iterator"),
    ],
)
def test_one_that_holds_what_it_cannot_be_told_by_is_refused(function, text):
    with open(__file__) as file, pytest.raises(WrongCall, match=f"at `f`: the function .* {text}"):
        apply(function(file), 1)


def test_a_second_run_is_served(tmp_path):
    store, calls = Store(tmp_path), []
    events: list[dict[str, Any]] = []
    for _ in range(2):
        evaluate(apply(_scaled(3), double(4)), store=store, watch=events.append)
        calls.append(sum(event["event"] == "running" for event in events))
        events.clear()
    assert calls == [2, 0]


HELPED = """
from marin_dsl import op

RATE = {rate}

def helper(x):
    return x * RATE

def given(x):
    return helper(x)

class Given:
    def of(self, x):
        return helper(x)

@op(version="1")
def kept():
    return [given]

@op(version="1")
def call(f, x):
    return f(x)
"""


def test_an_edit_of_what_it_reaches_makes_it_another_value(tmp_path):
    keys = []
    for rate in (1, 1, 2):
        with imported(tmp_path, {"__init__.py": HELPED.format(rate=rate)}, package="edited") as package:
            keys.append([package.call(f, 1).key for f in (package.given, package.Given, lambda x: package.given(x))])
    assert keys[0] == keys[1]
    assert not set(keys[0]) & set(keys[2])


def test_an_installed_project_counts_with_its_code(tmp_path):
    keys = []
    for rate in (1, 2):
        home = tmp_path / str(rate) / "site-packages"
        with imported(home, {"__init__.py": HELPED.format(rate=rate)}, package="installed_project") as package:
            keys.append(package.call(package.given, 1).key)
    assert keys[0] != keys[1]


def test_what_is_stored_is_not_served_as_other_code(tmp_path):
    store = Store(tmp_path / "store")
    for rate, expected in ((11, Ok), (12, Skipped)):
        with imported(tmp_path, {"__init__.py": HELPED.format(rate=rate)}, package="stored") as package:
            outcome = evaluate(package.call(package.kept()[0], rate), store=store)
            assert isinstance(outcome, expected)
    assert "`stored:given` is not what it was when the value was made" in outcome.because[0].message
    assert outcome.because[0].message.count("are no value") == 1


def test_two_of_one_code_are_two(tmp_path):
    text = "def f(x):\n    return x\ndef g(x):\n    return x\n"
    with imported(tmp_path, {"__init__.py": text}) as package:
        call = apply([package.f, package.g, package.f], 1)
        f, g, again = arguments_of(call)["f"]
        assert (f, g, again) == (package.f, package.g, package.f)
        package.f.__code__ = (lambda x: x + 1).__code__
        (now,) = by_current_code([call])
        assert now.key != call.key
        assert now.key == apply([package.f, package.g, package.f], 1).key


def test_what_changes_in_the_process_is_seen_by_the_next_evaluation(tmp_path):
    store = Store(tmp_path / "store")
    with imported(tmp_path, {"__init__.py": HELPED.format(rate=1)}) as package:
        in_memory = lambda x: package.helper(x)  # noqa: E731
        calls = [package.call(package.given, 5), package.call(in_memory, 5), package.call([in_memory][0], double(5))]
        assert [each.value for each in evaluate(*calls, store=store)] == [5, 5, 10]
        package.RATE = 3
        assert [each.value for each in evaluate(*calls, store=store)] == [15, 15, 30]
        package.RATE = 1
        assert [each.value for each in evaluate(*calls, store=store)] == [5, 5, 10]


def test_one_that_changed_in_the_process_is_not_taken_for_what_it_was(tmp_path):
    with imported(tmp_path, {"__init__.py": HELPED.format(rate=21)}) as package:
        held = package.call(package.given, 1)
        data = encode([package.given])
        assert decode(data) == [package.given]
        package.RATE = 22
        with pytest.raises(Undecodable, match="is not what it was when the value was made"):
            decode(data)
        assert held.functions


def test_a_process_that_has_loaded_other_code_says_so(tmp_path):
    with imported(tmp_path, {"__init__.py": HELPED.format(rate=1)}) as package:
        package.RATE = 3  # no other process sees that
        outcome = evaluate(package.call(package.given, 5).with_(isolate=True), store=Store(tmp_path / "store"))
    assert isinstance(outcome, Failed)
    assert "is not that which this run began with" in outcome.message


def test_expressions_that_hold_one_are_copied_and_travel():
    call = apply(_scaled(2), double(1))
    assert copy.deepcopy(call) is call
    arrived = pickle.loads(cloudpickle.dumps(call))
    assert arrived == call
    assert arguments_of(arrived)["f"](4) == 8
    importable = apply(triple, 1)
    assert arguments_of(pickle.loads(pickle.dumps(importable)))["f"] is triple


def test_functions_are_held_by_expressions_alone():
    functions = [_scaled(n) for n in range(20)]
    calls = [apply(f, 1) for f in functions]
    held = [weakref.ref(f) for f in functions]
    del functions
    gc.collect()
    assert all(each() is not None for each in held)
    del calls
    gc.collect()
    assert not any(each() is not None for each in held)


def test_one_whose_expression_is_gone_is_not_guessed():
    data = apply(_scaled(77), 1).payload[0]
    gc.collect()
    with pytest.raises(Undecodable, match="a function that cannot be imported, which is kept in no store"):
        decode(data)


@pytest.mark.parametrize(
    ("payload", "text"),
    [
        (["nowhere:f", None], "`nowhere:f` cannot be imported here"),
        ([f"{__name__}:HELPED", None], "is no function or class"),
        ([f"{__name__}:triple", None], "is not what it was"),
        ([f"{__name__}:triple", bytes(32)], "is not what it was"),
        (["builtins:len", bytes(32)], "is not what it was"),
        (["", bytes(31)], "a digest of 32 bytes"),
        ([3, None], "a int stands where a str belongs"),
        (["", None], "cannot be imported"),
        (["builtins:len"], "not enough values"),
    ],
)
def test_garbage_is_no_function(payload, text):
    with pytest.raises(Undecodable, match=text):
        decode(b"\xd9\x9e\x40" + encode(payload))


def test_titles_tell_which_function_it_is():
    assert str(apply(triple, 1)) == "apply(f=triple, x=1)"
    assert str(apply(np.add, 1)) == "apply(f=add, x=1)"
    assert str(apply(_scaled(2), 1)).startswith("apply(f=<function ")


def test_a_pure_operator_may_take_one():
    assert_pure(apply, _scaled(2), 4)
    assert_pure(apply, triple, 4)


@op
def typed(f: Callable[[int], Any], kind: type[Times]) -> Any:
    return f(kind(2).by)


def test_the_types_of_parameters_are_checked(tmp_path):
    assert evaluate(typed(triple, Times), store=Store(tmp_path)).value == 6
    for arguments, text in (
        ((3, Times), "argument `f` is 3"),
        ((operator.add, Times), "argument `f` is <built-in function add>"),
        ((triple, Any), "argument `kind` is"),
        ((triple, int), "argument `kind` is <class 'int'>"),
    ):
        with pytest.raises(WrongCall, match=text):
            typed(*arguments)


def test_a_failure_within_one_is_told_as_any_other(tmp_path):
    outcome = evaluate(apply(lambda x: x.nothing, 1), store=Store(tmp_path))
    assert isinstance(outcome, Failed)
    assert outcome.exception == "AttributeError"


SCRIPT = """
import sys
from marin_dsl import Store, evaluate, op

@op
def apply(f, x):
    return f(x)

def given(x):
    return x + {amount}

if __name__ == "__main__":
    store = Store(sys.argv[1])
    calls = [apply(given, 1), apply(lambda x: given(x) * 10, 1), apply(given, 1).with_(isolate=True)]
    outcomes = evaluate(*calls, store=store, **({{"workers": 1}} if "workers" in sys.argv else {{}}))
    print([outcome.value for outcome in outcomes], [call.key.hex() for call in calls])
"""


def test_functions_of_a_script_are_what_they_would_be_if_it_were_imported(tmp_path):
    script = tmp_path / "a_script.py"
    script.write_text(SCRIPT.format(amount=1))
    printed = [
        subprocess.run(
            [sys.executable, str(script), str(tmp_path / "store"), *more], capture_output=True, text=True, check=True
        ).stdout
        for more in ([], ["workers"])
    ]
    assert printed[0] == printed[1]
    assert printed[0].startswith("[2, 20, 2]")
    sys.path.insert(0, str(tmp_path))
    try:
        module = importlib.import_module("a_script")
        assert module.apply(module.given, 1).key.hex() in printed[0]
    finally:
        sys.path.remove(str(tmp_path))
        del sys.modules["a_script"]


def test_a_difference_tells_functions_by_name_and_code():
    calls = [apply(f, 1) for f in (triple, Times.same, _scaled(2), _scaled(3))]
    records = {call.key: structure(call) for call in calls}
    texts = [
        differences(old.key, new.key, records.get, records.get)[0].text
        for old, new in (calls[:2], calls[1:3], calls[2:])
    ]
    patterns = (r"triple {} → Times\.same {}", "Times\\.same {} → <function> {}", "<function> {} → <function> {}")
    for text, pattern in zip(texts, patterns, strict=True):
        assert re.fullmatch(pattern.replace("{}", r"\(code [0-9a-f]{12}\)"), text)
