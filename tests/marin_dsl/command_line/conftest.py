"""A small project in the working directory."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from marin_dsl import provenance
from tests.marin_dsl.command_line.project import MODULE, environment, marin, write_module


@pytest.fixture(autouse=True)
def project(tmp_path, monkeypatch) -> Iterator[Path]:
    """A folder with a small module, which is the working directory."""
    monkeypatch.setattr(provenance, "environment", environment)
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "pyproject.toml").touch()
    write_module("experiment", MODULE)
    yield tmp_path
    for name in ("experiment", "gallery", "gallery.first_model", "wrong"):
        sys.modules.pop(name, None)


@pytest.fixture
def evaluated(project) -> Path:
    """The project's page has been evaluated."""
    assert marin("run", "experiment:page", "--debug").exit_code == 0
    return project
