"""What a target names, and that it does not matter how."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

import pytest

from marin_dsl import Expression
from marin_dsl.grids import Grid
from marin_dsl.target import TargetMissing, resolve

TEXT = """
from marin_dsl import op, grid
@op
def f(n):
    return n + 1
x = f(1)
class group:
    inner = f(2)
sweep = grid(n=[1, 2])(lambda n: f(n))
"""


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    known, path = set(sys.modules), list(sys.path)
    monkeypatch.chdir(tmp_path)
    yield tmp_path
    for name in set(sys.modules) - known:
        del sys.modules[name]
    sys.path[:] = path
    importlib.invalidate_caches()


def test_a_file_and_its_module_give_equal_keys(folder):
    (folder / "outer" / "inner").mkdir(parents=True)
    (folder / "outer" / "__init__.py").touch()
    (folder / "outer" / "inner" / "__init__.py").touch()
    (folder / "outer" / "inner" / "part.py").write_text(TEXT)
    by_module, by_file = resolve("outer.inner.part:x"), resolve("outer/inner/part.py:x")
    absolute = resolve(f"{folder / 'outer' / 'inner' / 'part.py'}:x")
    assert by_module is by_file is absolute
    assert by_module.operator.name == "outer.inner.part.f"


def test_a_file_outside_of_a_package_is_a_module_of_its_folder(folder, monkeypatch):
    (folder / "scripts").mkdir()
    (folder / "scripts" / "alone.py").write_text(TEXT)
    assert resolve("scripts/alone.py:x").operator.name == "alone.f"
    assert isinstance(resolve("scripts/alone.py:sweep"), Grid)
    assert isinstance(resolve("scripts/alone.py:group.inner"), Expression)


def test_a_file_never_stands_for_another_module_of_its_name(folder):
    for name in ("one", "two"):
        (folder / name).mkdir()
        (folder / name / "same_name.py").write_text(TEXT)
    (folder / "json.py").write_text(TEXT)
    resolve("one/same_name.py:x")
    with pytest.raises(
        TargetMissing, match=r"two/same_name.py would be imported as `same_name`, and that is .*one/same_name"
    ):
        resolve("two/same_name.py:x")
    with pytest.raises(
        TargetMissing, match=r"would be imported as `json`, and that is .* rename the file, or put it into"
    ):
        resolve("json.py:x")


def test_a_file_whose_name_is_no_module_name_is_refused(folder):
    (folder / "my-experiment.py").write_text(TEXT)
    with pytest.raises(TargetMissing, match="`my-experiment` is no module name; rename the file"):
        resolve("my-experiment.py:x")


def test_a_file_that_was_written_a_moment_ago_is_found(folder):
    for number in range(3):
        (folder / f"new_{number}.py").write_text(TEXT)
        assert isinstance(resolve(f"new_{number}:x"), Expression)


def test_a_name_that_is_not_there_suggests_those_that_are(folder):
    (folder / "empty_one.py").write_text("y = 1\n")
    (folder / "full_one.py").write_text(TEXT)
    with pytest.raises(TargetMissing, match=r"empty_one has no `x`; it has no expressions"):
        resolve("empty_one:x")
    with pytest.raises(TargetMissing, match=r"full_one has no `sweeep`; it has the expressions sweep$"):
        resolve("full_one:sweeep")
    with pytest.raises(TargetMissing, match=r"full_one has no `nothing`; it has the expressions x, sweep$"):
        resolve("full_one:nothing")
    with pytest.raises(TargetMissing, match=r"full_one:f is an operator, not an expression"):
        resolve("full_one:f")


def test_what_the_module_itself_raises_goes_through(folder):
    (folder / "broken_one.py").write_text("import missing_dependency\n")
    with pytest.raises(ModuleNotFoundError, match="missing_dependency"):
        resolve("broken_one:x")
    with pytest.raises(ModuleNotFoundError, match="missing_dependency"):
        resolve("broken_one.py:x")
    with pytest.raises(TargetMissing, match=r"there is no module `no.such.module` here"):
        resolve("no.such.module:x")
    assert Path.cwd() == folder


@pytest.mark.parametrize("name", ["x.y", "x.operator.y", "sweep.y.z", "group.inner.y", "f.y"])
def test_what_is_in_no_expression_is_one_sentence(folder, name):
    Path("slotted.py").write_text(TEXT)
    with pytest.raises(TargetMissing, match=r"^slotted has no `[yz]`; it has "):
        resolve(f"slotted:{name}")
