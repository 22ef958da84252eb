"""An export is run again as its README says, in a fresh folder, with the project and its repository gone."""

import os
import re
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

import marin_dsl
from marin_dsl.store.records import read_record

FILES = {
    "pyproject.toml": "",
    "team/__init__.py": "",
    "team/settings.py": "SCALE = 3\n",
    "team/helpers.py": "from team.settings import SCALE\n\ndef scaled(n):\n    return SCALE * n\n",
    "team/experiments/__init__.py": "",
    "team/experiments/first.py": """
        import numpy as np
        from marin_dsl import op, recall, secret, grid
        from marin_dsl.artifact import Directory, File
        from marin_dsl.array_tree import ArrayTree
        from marin_dsl import context
        from .parts import weights

        @op(version="1")
        def size(data: File | Directory) -> int:
            return len(data.read_bytes()) if isinstance(data, File) else len(data.files)

        @op
        def later(n: int) -> int:
            from team.helpers import scaled
            return scaled(n)

        @op
        def collect(parts: list, w, key: str = "") -> dict:
            return {"parts": parts, "mean": float(np.mean(w)), "w": w}

        sizes = [size(recall("file@1.0")), size(recall("folder@1.0"))]
        page = collect([*sizes, later(2), later.map(recall("list@1.0"))], weights(40_000)).named("ours", "1.0")
        """,
    "team/experiments/parts.py": """
        import numpy as np
        from marin_dsl import op

        @op
        def weights(n: int):
            return np.arange(float(n))

        @op
        def several() -> list:
            return [1, 2]

        listed = several().named("list", "1.0")
        """,
    "plain.py": """
        import untracked_helper
        from marin_dsl import op

        @op
        def plus(n: int) -> int:
            return n + untracked_helper.ONE

        three = plus(2).named("three", "1.0")
        """,
    "script.py": """
        import sys
        from marin_dsl import evaluate, op

        @op
        def times(n: int) -> int:
            return n * int(5)

        if __name__ == "__main__":
            print(evaluate(times(int(sys.argv[1])).named("script", "1.0"), debug=True).value)
        """,
}


def run(folder, *words, shell=False, **environment):
    """What a command prints, run where nothing but this package is on the path."""
    known = {name: value for name, value in os.environ.items() if name != "MARIN_STORE"}
    known |= {"PYTHONPATH": str(Path(marin_dsl.__file__).parents[1]), "NO_COLOR": "1", **environment}
    command = ["sh", "-c", words[0]] if shell else words
    done = subprocess.run(command, cwd=folder, env=known, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def marin(folder, *words):
    return run(folder, sys.executable, "-m", "marin_dsl", *words)


@pytest.fixture
def project(tmp_path):
    folder = tmp_path / "project"
    for name, text in FILES.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(textwrap.dedent(text))
    identity = ["-c", "user.name=n", "-c", "user.email=e@example.org", "-c", "commit.gpgsign=false"]
    for words in (["init", "-q"], ["add", "."], ["commit", "-q", "-m", "first"]):
        run(folder, "git", *identity, *words)
    (folder / "untracked_helper.py").write_text("ONE = 1\n")
    (folder / "team" / "settings.py").write_text("SCALE = 5\n")  # not committed
    (folder / "secrets").mkdir()
    (folder / "secrets" / "token.txt").write_text("hunter2\n")
    (folder / ".env").write_text("KEY=hunter2\n")
    data = tmp_path / "data"
    data.mkdir()
    for name in ("a", "b", "c"):
        (data / name).write_text(name)
    marin(folder, "adopt", "file@1.0", str(data / "a"))
    marin(folder, "adopt", "folder@1.0", str(data))
    marin(folder, "run", "team/experiments/parts.py:listed", "--debug")
    return folder


def given_away(project, label, *options):
    """An export, with everything that it was made from gone."""
    folder = project.parent / "given"
    marin(project, "export", label, str(folder), *options)
    for gone in (project, project.parent / "data"):
        shutil.rmtree(gone)
    assert not [path for path in folder.rglob("*") if path.is_file() and b"hunter2" in path.read_bytes()]
    return folder


def as_the_readme_says(folder):
    """What the commands under `Run it again` print; a package index is not asked."""
    part = (folder / "README.md").read_text().partition("## Run it again")[2]
    script = re.findall(r"```sh\n(.*?)```", part, re.DOTALL)[0]
    lines = [line for line in script.splitlines() if not line.startswith("pip install")]
    programs = folder.parent / "bin"
    programs.mkdir()
    for name, words in (("marin", f"{sys.executable} -m marin_dsl"), ("python", sys.executable)):
        (programs / name).write_text(f'#!/bin/sh\nexec {words} "$@"\n')
        (programs / name).chmod(0o755)
    path = f"{programs}{os.pathsep}{os.environ['PATH']}"
    told = run(folder, "set -e\n" + "\n".join(lines), shell=True, PATH=path)
    marin(folder, "import", ".", "--store", "../third")  # following the README leaves the folder what it was
    return told


@pytest.mark.parametrize("values", ["all", "none"])
def test_a_package_with_adopted_data_is_run_again_without_the_project(project, values):
    marin(project, "run", "team/experiments/first.py:page", "--debug")
    folder = given_away(project, "ours@1.0", "--values", values)
    as_the_readme_says(folder)
    expected = read_record("experiment.json", (folder / "experiment.json").read_bytes())
    (root,) = expected["roots"]
    shown = marin(folder, "show", "ours@1.0", "--store", "../records", "--json")
    assert expected["expected"][root["recipe"]] in shown
    assert "[1, 3, 10, [5, 10]]" in marin(folder, "show", "ours@1.0", "--store", "../records")
    assert "no call came to two different values" in marin(folder, "doctor", "--store", "../records")


def test_flat_files_of_which_one_is_untracked_are_run_again(project):
    marin(project, "run", "plain:three", "--debug")
    folder = given_away(project, "three@1.0", "--values", "none")
    as_the_readme_says(folder)
    assert "value" in marin(folder, "show", "three@1.0", "--store", "../records")
    assert not (folder / "sources" / "script.py").exists()  # what was not imported is not given away


def test_a_script_is_run_again(project):
    run(project, sys.executable, "script.py", "4")
    folder = given_away(project, "script@1.0", "--values", "none")
    assert "20" in as_the_readme_says(folder)


def test_the_whole_project_is_put_back_as_the_readme_says(project):
    inner = project / "inner folder"
    inner.mkdir()
    for name in ("plain.py", "untracked_helper.py", "pyproject.toml"):
        shutil.copy(project / name, inner / name)
    run(project, "git", "add", "inner folder/plain.py")
    marin(inner, "run", "plain:three", "--debug")
    before = {path.relative_to(project): path.read_bytes() for path in project.rglob("*.py")}
    marin(inner, "export", "three@1.0", str(project.parent / "given"))
    moved = project.rename(project.parent / "moved")
    readme = (project.parent / "given" / "README.md").read_text()
    script = re.findall(r"```\n(git clone.*?)```", readme, re.DOTALL)[0].replace("REPOSITORY", str(moved))
    run(project.parent / "given", f"set -e\n{script}", shell=True)
    assert (project / "inner folder" / "plain.py").read_bytes() == before[Path("inner folder/plain.py")]
    assert (project / "inner folder" / "untracked_helper.py").is_file()
    assert (project / "team" / "settings.py").read_text() == "SCALE = 5\n"
