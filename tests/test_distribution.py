"""What `pip install .` brings."""

import re
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest
from packaging.requirements import Requirement

ROOT = Path(__file__).resolve().parent.parent


@pytest.mark.long
def test_the_wheel_holds_every_package_and_the_templates_of_pages(tmp_path):
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", str(tmp_path), str(ROOT)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    (wheel,) = tmp_path.glob("marin_dsl-*.whl")
    names = zipfile.ZipFile(wheel).namelist()
    for package in ("marin_dsl", "marin_models", "marin_kernels", "library", "gallery"):
        assert f"{package}/__init__.py" in names
    for file in ("page.html.j2", "page.css"):
        assert f"marin_dsl/pages/templates/{file}" in names
    assert "marin_dsl/py.typed" in names
    assert "marin_command.py" in names
    assert not [name for name in names if name.startswith(("tests/", "benchmarks/"))]


def test_importing_the_language_loads_nothing_heavy():
    script = "import sys, marin_dsl; print(*(name.partition('.')[0] for name in sys.modules))"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    loaded = set(done.stdout.split())
    heavy = {
        "jax",
        "dask",
        "distributed",
        "bokeh",
        "numpy",
        "fsspec",
        "gcsfs",
        "tensorstore",
        "jinja2",
        "rich",
        "click",
        "typeguard",
        "tokenizers",
    }
    assert not loaded & heavy


def test_versions_are_pinned_by_name_alone():
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    assert all(line.count("==") == 1 and "://" not in line for line in lines)


def test_later_versions_of_jax_are_allowed_and_those_of_its_compilers_are_left_to_it():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    (jax,) = (one for one in map(Requirement, project["dependencies"]) if one.name == "jax")
    versions = ("0.9.2", "0.10.2", "0.11.0", "0.11.1", "0.12.0.1", "1.0")
    assert [one for one in versions if one in jax.specifier] == ["0.10.2", "0.11.1", "0.12.0.1", "1.0"]
    compilers = [Requirement(one) for one in project["optional-dependencies"]["compilers"]]
    assert {one.name for one in compilers} == {"jax"}
    assert not any(str(one.specifier) for one in compilers)


def test_only_jax_is_newer_in_the_environment_of_the_newest_jax():
    makefile = (ROOT / "Makefile").read_text()
    pattern = re.search(r"grep -Ev '(.*)' constraints.txt", makefile)[1].replace("$$", "$")
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    freed = {line.partition("==")[0] for line in lines if re.search(pattern, line)}
    assert freed == {"jax", "jaxlib", "jax-cuda13-plugin", "jax-cuda13-pjrt"}
