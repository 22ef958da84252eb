"""The first model in small: the same experiment with small numbers, evaluated through the command line."""

import os
import re
import subprocess
import sys
from pathlib import Path

import attrs
import pytest

import gallery.first_model

SMALLER = {
    "VOCABULARY = 2048": "VOCABULARY = 300",
    "width=64": "width=16",
    "feed_forward=176": "feed_forward=16",
    "layers=2": "layers=1",
    "steps=": "steps=20 or ",
    "length=128": "length=32",
    "batch=16": "batch=4",
    "limit_bytes=4_000_000": "limit_bytes=900_000",
    "bytes_per_document=4096": "bytes_per_document=256",
    "tokens=80": "tokens=4",
}


@attrs.frozen
class Experiment:
    """A copy of the experiment in a folder of its own, with its own store and site."""

    folder: Path

    @property
    def script(self) -> Path:
        return self.folder / "small_model.py"

    def edit(self, old: str, new: str) -> None:
        text = self.script.read_text()
        assert text.count(old) == 1, f"{old!r} occurs {text.count(old)} times"
        self.script.write_text(text.replace(old, new))

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, "-m", "marin_dsl", *arguments],
            cwd=self.folder,
            env=os.environ | {"MARIN_STORE": str(self.folder / "store"), "PYTHONUNBUFFERED": "1"},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def marin(self, *arguments: str) -> "Printed":
        process = self.start(*arguments)
        output, _ = process.communicate(timeout=300)
        return Printed(process.returncode, output)

    def page(self) -> "Printed":
        return self.marin("page", "small_model.py:page", "--site", "site", "--keep-failures")


@attrs.frozen
class Printed:
    """What a command printed, and how it ended."""

    code: int
    text: str

    def titles(self, sign: str) -> set[str]:
        """Titles of the lines that begin with a sign: `✓` ran, `✗` failed, `–` skipped, `=` served by a cut-off."""
        found = re.findall(rf"^  {sign} (.*?)(?:  .*)?$", self.text, re.MULTILINE)
        return set(found)


def small_experiment(folder: Path) -> Experiment:
    text = Path(gallery.first_model.__file__).read_text()
    for old, new in SMALLER.items():
        assert old in text, f"the experiment no longer says {old!r}"
        text = text.replace(old, new)
    (folder / "small_model.py").write_text(text)
    return Experiment(folder)


@pytest.fixture(scope="session")
def evaluated(tmp_path_factory) -> tuple[Experiment, Printed]:
    """The small experiment after its first evaluation, and what that printed."""
    experiment = small_experiment(tmp_path_factory.mktemp("first-model"))
    return experiment, experiment.page()
