"""The one place where the environment is read."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

import attrs


@attrs.frozen
class Settings:
    """What a process was told from outside.

    Attributes:
        store: where results are kept: a folder or an fsspec URL.
        project: the folder of the project's `pyproject.toml`, else the working directory.
    """

    store: str
    project: Path

    @classmethod
    def read(cls, *, environment: Mapping[str, str] | None = None, folder: Path | None = None) -> Settings:
        """Settings from the environment: `MARIN_STORE`, else `.marin/` beside the project's `pyproject.toml`."""
        environment = os.environ if environment is None else environment
        folder = Path.cwd() if folder is None else folder
        project = next((place for place in (folder, *folder.parents) if (place / "pyproject.toml").is_file()), folder)
        return cls(environment.get("MARIN_STORE") or str(project / ".marin"), project)
