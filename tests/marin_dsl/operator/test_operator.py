"""Operators: settings, names, identity, and how they travel."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
import textwrap
from pathlib import Path

import cloudpickle
import pytest

import marin_dsl
from marin_dsl import op
from marin_dsl.operator import Operator, installed_version


@op
def plain(n: int, scale: float = 2.0) -> float:
    """What it does."""
    return n * scale


@op(version="1", resources={"CPU": 1}, priority=3)
def versioned(n: int) -> int:
    return n


def test_an_operator_wears_the_name_and_text_of_its_function():
    assert plain.__doc__ == "What it does."
    assert plain.name == f"{__name__}.plain"
    assert plain.short_name == "plain"
    assert plain.function(3) == 6.0
    assert repr(versioned) == f"<operator {__name__}.versioned version 1>"
    assert versioned(1).annotations.priority == 3
    assert versioned(1).annotations.resources == {"CPU": 1}


async def _coroutine():
    return 1


async def _stream():
    yield 1


def _numbers():
    yield 1


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda: op("name"), r"@op stands above a function, and got 'name'; settings are named: @op\(version='1'\)"),
        (lambda: op(int), "@op stands above a function, and got <class 'int'>"),
        (
            lambda: op(_coroutine),
            "@op above `async def _coroutine`: a coroutine is no result that could be stored; write ",
        ),
        (lambda: op(_stream), "@op above `async def _stream`: a coroutine is no result"),
        (lambda: op(_numbers), "@op above _numbers, which yields: a generator can be read only once; collect what it"),
        (lambda: op(version=1)(plain.function), r"@op\(version=1\): a version is text; write version='1'"),
        (
            lambda: op(pin="jax")(plain.function),
            r"@op\(pin='jax'\): pin takes a list of distributions; write pin=\['jax'\]",
        ),
        (lambda: op(retry=3)(plain.function), "unexpected keyword argument 'retry'"),
    ],
)
def test_settings_that_make_no_sense_are_refused(make, text):
    with pytest.raises(TypeError, match=text):
        make()


def test_settings_beside_a_function_are_not_lost():
    assert op(plain.function, version="7").version == "7"


def test_identity_is_name_and_version_or_code_and_pinned_versions(monkeypatch):
    def body(n):
        return n

    def other(n):
        return n + 1

    same = {op(version="1", name="a")(function).identity for function in (body, other)}
    assert len(same) == 1, "for a declared version the code is advice"
    different = [
        op(version="1", name="a")(body), op(version="2", name="a")(body), op(version="1", name="b")(body),
        op(name="a")(body), op(name="a")(other), op(version="1", name="a", pin=["python"])(body),
        op(version="1", name="a", pin=["no-such-thing"])(body),
    ]  # fmt: skip
    assert len({found.identity for found in different}) == len(different)
    assert different[-1].pinned == {"no-such-thing": "missing"}
    assert op(pin=["python", "attrs"])(body).identity == op(pin=["attrs", "python"])(body).identity
    assert installed_version("python") == sys.version.split()[0]


def test_annotations_are_no_part_of_identity():
    assert versioned.identity == op(version="1", name=versioned.name)(versioned.function).identity


def test_an_operator_of_a_module_travels_by_reference():
    data = pickle.dumps(plain)
    assert pickle.loads(data) is plain
    assert len(data) < 300


def test_an_operator_that_is_in_no_module_travels_by_value():
    def local(n):
        return n + 1

    made = op(version="1", name="x.local", resources={"GPU": 1}, priority=2)(local)
    again = cloudpickle.loads(cloudpickle.dumps(made))
    assert isinstance(again, Operator)
    assert again.identity == made.identity
    assert again.annotations == made.annotations
    assert again.function(1) == 2


def test_a_reference_to_nothing_says_so(monkeypatch):
    data = pickle.dumps(plain)
    monkeypatch.delitem(globals(), "plain")
    with pytest.raises(
        LookupError, match=r"there is no operator .*test_operator\.plain here; is the project's code on"
    ):
        pickle.loads(data)


SCRIPT = """
    from marin_dsl import digest, evaluate, op

    def helper(n):
        return n + 1

    @op
    def f(n: int) -> int:
        return helper(n)

    x = f(f(1))

    if __name__ == "__main__":
        print(f.name, digest(x))
        print(evaluate(x, store="store", workers=1).value)
"""


@pytest.mark.long
def test_a_script_has_the_identity_of_its_module_and_its_operators_run_in_processes(tmp_path):
    (tmp_path / "package").mkdir()
    (tmp_path / "package" / "__init__.py").touch()
    (tmp_path / "package" / "script.py").write_text(textwrap.dedent(SCRIPT))
    environment = os.environ | {"PYTHONPATH": f"{Path(marin_dsl.__file__).parents[1]}:."}

    def python(*words: str) -> list[str]:
        done = subprocess.run(
            [sys.executable, *words], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
        return done.stdout.split()

    imported = python("-c", "from package.script import f, x; from marin_dsl import digest; print(f.name, digest(x))")
    assert imported[0] == "package.script.f"
    assert python("package/script.py") == [*imported, "3"]
    assert python("-m", "package.script") == [*imported, "3"]
