"""Digests that must never change: every store in the world is addressed by them.

`python -m tests.marin_dsl.encoding.test_golden_vectors` prints the file anew; a line that changes breaks all stores.
"""

import functools
import hashlib
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import attrs
import pytest

from marin_dsl import digest
from tests.marin_dsl.encoding import examples

GOLDEN = Path(__file__).with_name("golden_vectors.json")
PROGRAM = """
import hashlib, json
from marin_dsl.encoding import encode
from tests.marin_dsl.encoding import examples
print(json.dumps({name: hashlib.sha256(encode(value)).hexdigest() for name, value in examples.plain().items()}))
"""


@functools.cache
def golden():
    return json.loads(GOLDEN.read_text())


@pytest.mark.parametrize("name", examples.all_values())
def test_the_digest_of_an_example_is_what_it_always_was(name):
    assert digest(examples.all_values()[name]) == "sha256:" + golden()[name]


def test_no_golden_vector_was_dropped():
    assert golden().keys() == examples.all_values().keys()


def _digests(interpreter, seed):
    places = [*(place for place in sys.path if place), os.getcwd()]
    return _run(interpreter, {**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": os.pathsep.join(places)})


def _run(interpreter, environment):
    done = subprocess.run([interpreter, "-c", PROGRAM], capture_output=True, env=environment, text=True)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.parametrize("seed", ["0", "20240229"])
def test_another_process_and_hash_seed_give_the_golden_digests(seed):
    found = _digests(sys.executable, seed)
    assert found == {name: golden()[name] for name in examples.plain()}


def _interpreter(version):
    """An interpreter of a version, on the path or where pyenv keeps them."""
    kept = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv") / "versions"
    candidates = sorted(map(str, kept.glob(f"{version}*/bin/python")))
    found = shutil.which(f"python{version}")
    for candidate in [*candidates, *([found] if found else [])]:
        told = subprocess.run(
            [candidate, "-c", "import sys; print(*sys.version_info[:2], sep='.')"], capture_output=True, text=True
        )
        if told.stdout.strip() == version:
            return candidate
    return None


@pytest.mark.parametrize("version", ["3.11", "3.12", "3.13"])
def test_every_supported_python_gives_the_golden_digests(version, tmp_path):
    interpreter = _interpreter(version)
    if interpreter is None:
        pytest.skip(f"LEFT OUT: golden digests in Python {version}, for there is no such interpreter here")
    # What the encoding needs (attrs, and what `import marin_dsl` needs) is pure Python: it is lent to that interpreter.
    packages = Path(attrs.__file__).parents[1]
    root = Path(__file__).parents[3]
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "VIRTUAL"))}
    environment["PYTHONPATH"] = os.pathsep.join(map(str, (root / "src", root, packages)))
    environment["PYTHONPYCACHEPREFIX"] = str(tmp_path)
    found = _run(interpreter, environment)
    assert found == {name: golden()[name] for name in examples.plain()}


if __name__ == "__main__":
    from marin_dsl.encoding import encode

    digests = {name: hashlib.sha256(encode(value)).hexdigest() for name, value in examples.all_values().items()}
    print(json.dumps(digests, indent=1))
