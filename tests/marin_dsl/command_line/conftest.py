"""A small project in the working directory."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from marin_dsl import provenance
from tests.marin_dsl.command_line.project import MODULE, environment, marin, write_module


@contextlib.contextmanager
def forgotten(*names: str) -> Iterator[None]:
    """Modules of these names are imported anew from the working directory; afterwards they are what they were."""
    before = {name: sys.modules.pop(name) for name in names if name in sys.modules}
    yield
    for name in names:
        sys.modules.pop(name, None)
    sys.modules.update(before)


@pytest.fixture(autouse=True)
def project(tmp_path, monkeypatch) -> Iterator[Path]:
    """A folder with a small module, which is the working directory."""
    monkeypatch.setattr(provenance, "environment", environment)
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "pyproject.toml").touch()
    write_module("experiment", MODULE)
    with forgotten("experiment", "gallery", "gallery.first_model", "wrong"):
        yield tmp_path


@pytest.fixture
def evaluated(project) -> Path:
    """The project's page has been evaluated."""
    assert marin("run", "experiment:page", "--debug").exit_code == 0
    return project
