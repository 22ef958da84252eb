"""Where the project ends: the standard library, site folders, this package, installed projects."""

import importlib
import json
import sys

import pytest

import marin_dsl.code_identity
from marin_dsl.code_identity import code_identity
from marin_dsl.code_identity.territory import Territory, importable, is_installed, public_name
from tests.marin_dsl.code_identity.projects import imported


@pytest.mark.parametrize(
    "name", ["json", "os.path", "builtins", "attrs", "numpy.linalg", "marin_dsl", "marin_dsl.encoding"]
)
def test_installed_modules_and_this_package_are_not_the_project(name):
    assert not Territory().holds_module(name)


def test_scripts_and_modules_from_no_file_are_the_project():
    assert Territory().holds_module("__main__")
    assert Territory().holds_module("a_module_that_nobody_imported")


@pytest.mark.parametrize("folder", ["site-packages", "dist-packages"])
def test_any_site_folder_is_installed_code(tmp_path, folder):
    assert is_installed(str(tmp_path / "environment" / folder / "package" / "module.py"))
    assert not is_installed(str(tmp_path / "package" / "module.py"))


def test_third_party_code_counts_by_its_public_name():
    assert public_name("pathlib._local", "Path") == "pathlib.Path"
    assert public_name("_functools", "reduce") == "functools.reduce"
    assert importable(json.dumps) == "json.dumps"
    assert importable(lambda: None) is None


def _installed(folder, files, package="installed_project"):
    """Import a package from a folder that looks like an environment's site folder."""
    home = folder / "site-packages"
    for name, text in {"__init__.py": "", **files}.items():
        place = home / package / name
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(text)
    return home


def test_an_installed_project_counts_in_its_own_operators_and_not_in_those_of_others(tmp_path, monkeypatch):
    inside, outside = [], []
    for amount in (1, 2):
        text = f"def helper(x): return x + {amount}\ndef target(x): return helper(x)\n"
        monkeypatch.syspath_prepend(str(_installed(tmp_path / str(amount), {"main.py": text})))
        installed = importlib.import_module("installed_project.main")
        inside.append(code_identity(installed.target))
        user = "from installed_project.main import target as t\ndef target(x): return t(x)\n"
        with imported(tmp_path, {"main.py": user}) as package:
            outside.append(code_identity(importlib.import_module(f"{package.__name__}.main").target))
        for name in ("installed_project.main", "installed_project"):
            del sys.modules[name]
    assert inside[0].digest != inside[1].digest
    assert list(inside[0].listing) == ["installed_project.main.helper", "installed_project.main.target"]
    assert outside[0].digest == outside[1].digest
    assert [name.rpartition(".")[2] for name in outside[0].listing] == ["target"]


def test_other_packages_of_the_same_distribution_count_too(tmp_path, monkeypatch):
    digests = []
    for amount in (1, 2):
        home = _installed(tmp_path / str(amount), {"m.py": f"def helper(): return {amount}\n"}, "second_part")
        _installed(
            tmp_path / str(amount),
            {"m.py": "from second_part.m import helper\ndef f(): return helper()\n"},
            "first_part",
        )
        info = home / "both_parts-1.0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text("Metadata-Version: 2.1\nName: both-parts\nVersion: 1.0\n")
        (info / "top_level.txt").write_text("first_part\nsecond_part\n")
        monkeypatch.syspath_prepend(str(home))
        marin_dsl.code_identity.territory._packages_installed_with.cache_clear()
        digests.append(code_identity(importlib.import_module("first_part.m").f).digest)
        for name in ("first_part.m", "first_part", "second_part.m", "second_part"):
            del sys.modules[name]
    assert digests[0] != digests[1]


def test_a_standard_function_as_an_operator_counts_by_name():
    assert code_identity(json.dumps).listing == {}
    assert code_identity(json.dumps).digest != code_identity(json.loads).digest


def test_this_package_counts_by_name():
    assert code_identity(code_identity).listing == {}


def test_a_third_party_module_that_is_not_installed_is_not_imported_to_be_hashed(tmp_path):
    text = (
        "def target():\n    import tkinter.colorchooser as c\n    from turtledemo import chaos\n    return c.x, chaos\n"
    )
    with imported(tmp_path, {"main.py": text}) as package:
        identity = code_identity(importlib.import_module(f"{package.__name__}.main").target)
    assert identity.opaque == ()
    assert "tkinter.colorchooser" not in sys.modules
    assert "turtledemo" not in sys.modules
