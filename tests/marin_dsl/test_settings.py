"""What is read from outside: the place of the store and of the project."""

import subprocess
import sys
from pathlib import Path

import pytest

import marin_dsl
from marin_dsl.settings import Settings, SettingWrong
from marin_dsl.store import Store, StoreUnavailable


def test_the_store_is_beside_the_pyproject_of_the_project(tmp_path):
    (tmp_path / "pyproject.toml").write_text("")
    deep = tmp_path / "a" / "b"
    deep.mkdir(parents=True)
    for folder in (tmp_path, deep):
        settings = Settings.read(environment={}, folder=folder)
        assert settings.project == tmp_path
        assert settings.store == str(tmp_path / ".marin")


def test_the_nearest_pyproject_counts(tmp_path):
    (tmp_path / "pyproject.toml").write_text("")
    (tmp_path / "inner").mkdir()
    (tmp_path / "inner" / "pyproject.toml").write_text("")
    assert Settings.read(environment={}, folder=tmp_path / "inner").project == tmp_path / "inner"


def test_without_a_project_the_store_is_in_the_working_directory(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert Settings.read(environment={}) == Settings(str(tmp_path / ".marin"), tmp_path)


def test_the_environment_names_another_store(tmp_path, monkeypatch):
    assert Settings.read(environment={"MARIN_STORE": "memory://x"}, folder=tmp_path).store == "memory://x"
    assert Settings.read(environment={"MARIN_STORE": ""}, folder=tmp_path).store == str(tmp_path / ".marin")
    monkeypatch.setenv("MARIN_STORE", "elsewhere")
    assert Settings.read().store == "elsewhere"


def test_a_folder_named_pyproject_is_no_project(tmp_path):
    (tmp_path / "inner" / "pyproject.toml").mkdir(parents=True)
    assert Settings.read(environment={}, folder=tmp_path / "inner").project != tmp_path / "inner" / "pyproject.toml"
    assert Settings.read(environment={}, folder=tmp_path / "inner").store == str(tmp_path / "inner" / ".marin")


def test_nothing_else_of_the_language_reads_the_environment():
    root = Path(marin_dsl.__file__).parent
    readers = {p.name for p in root.rglob("*.py") if "environ" in p.read_text().replace("environment", "")}
    # What a user names, what the processes of a call and of git are given, and what the check of purity changes.
    handed_on = {"secret.py", "isolation.py", "isolated.py", "purity.py", "git.py"}
    assert readers - handed_on <= {"settings.py", "command_line.py"}


def test_importing_the_language_loads_nothing_heavy():
    program = (
        "import sys, marin_dsl; print([m for m in ('jax', 'dask', 'bokeh', 'numpy', 'hypothesis') if m in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, env=_environment(), check=True
    )
    assert done.stdout.strip() == "[]"


def _environment():
    import os

    return {**os.environ, "PYTHONPATH": os.pathsep.join(os.path.abspath(place) for place in sys.path)}


def test_the_time_after_which_work_is_taken_over_is_read_from_the_environment(tmp_path):
    assert Settings.read(environment={}, folder=tmp_path).lease == 60
    assert Settings.read(environment={"MARIN_LEASE_SECONDS": "1.5"}, folder=tmp_path).lease == 1.5
    assert Settings.read(environment={"MARIN_LEASE_SECONDS": "0"}, folder=tmp_path).lease == 0


@pytest.mark.parametrize("text", ["soon", "-1", "nan", "inf"])
def test_a_time_that_is_none_is_refused(tmp_path, text):
    with pytest.raises(ValueError, match=f"MARIN_LEASE_SECONDS is '{text}'; write a number of seconds, such as 60"):
        Settings.read(environment={"MARIN_LEASE_SECONDS": text}, folder=tmp_path)


def test_a_working_directory_that_is_gone_is_said(tmp_path, monkeypatch):
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    with pytest.raises(SettingWrong, match=r"^the working directory is gone \(it was removed, or moved\): go to"):
        Settings.read()
    with pytest.raises(StoreUnavailable, match=r"^store here: the working directory is gone, and the path begins"):
        Store("here")
    assert Settings.read(folder=tmp_path).project == tmp_path
    assert Store(tmp_path / "here").url == str(tmp_path / "here")


def test_a_home_that_is_not_known_is_said():
    with pytest.raises(StoreUnavailable, match=r"^store ~no-such-user/x: .*home directory.* begins with / or \./"):
        Store("~no-such-user/x")
