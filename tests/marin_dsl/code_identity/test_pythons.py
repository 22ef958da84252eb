"""One digest on every supported Python, under every hash seed, in every working directory, today and later."""

import json
import os
import shutil
import subprocess
import sys
import warnings
from pathlib import Path

import attrs
import pytest

import marin_dsl
from tests.marin_dsl.code_identity import golden_digests

HERE = Path(__file__).parent
STORED = json.loads((HERE / "golden.json").read_text())
SOURCE = str(Path(marin_dsl.__file__).parents[1])


def _interpreter(version: str) -> str | None:
    """A Python of this version: the one that runs, one on the path, or one that pyenv keeps."""
    if sys.version.startswith(f"{version}."):
        return sys.executable
    kept = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    candidates = [shutil.which(f"python{version}"), *sorted(kept.glob(f"{version}.*/bin/python"))]
    for candidate in candidates:
        if candidate and subprocess.run([candidate, "--version"], capture_output=True, check=False).returncode == 0:
            return str(candidate)
    return None


def _digests(interpreter: str, folder_with_attrs: Path, cwd: Path, seed: str) -> dict[str, str]:
    """What another process answers; it sees attrs, which is pure Python, and nothing else that is installed here."""
    folder_with_attrs.mkdir(exist_ok=True)
    for package in ("attr", "attrs"):
        if not (folder_with_attrs / package).exists():
            (folder_with_attrs / package).symlink_to(Path(attrs.__file__).parents[1] / package)
    command = [interpreter, str(HERE / "golden_digests.py"), SOURCE, str(folder_with_attrs)]
    environment = {"PYTHONHASHSEED": seed, "PYTHONDONTWRITEBYTECODE": "1", "PATH": os.environ.get("PATH", "")}
    done = subprocess.run(command, capture_output=True, text=True, cwd=cwd, env=environment, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_the_digests_of_the_golden_functions_are_those_that_were_stored():
    assert golden_digests.digests(SOURCE, []) == STORED
    assert len(STORED) >= 20


@pytest.mark.parametrize("version", ["3.11", "3.12", "3.13"])
def test_every_supported_python_gives_the_stored_digests(version, tmp_path):
    interpreter = _interpreter(version)
    if interpreter is None:
        warnings.warn(f"LEFT OUT: there is no Python {version} here, its code digests were not compared", stacklevel=1)
        pytest.skip(f"LEFT OUT: no Python {version} on this machine")
    assert _digests(interpreter, tmp_path / "attrs_only", tmp_path, "0") == STORED


@pytest.mark.parametrize("seed", ["1", "4242"])
def test_another_hash_seed_and_working_directory_give_the_stored_digests(seed, tmp_path):
    assert _digests(sys.executable, tmp_path / "attrs_only", Path("/"), seed) == STORED
