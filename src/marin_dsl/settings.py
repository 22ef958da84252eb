"""The one place where the environment is read."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

import attrs


class SettingWrong(ValueError):
    """What a process was told from outside makes no sense; the message says what to write."""


def working_folder() -> Path:
    """The working directory.

    Raises:
        SettingWrong: it is gone.
    """
    try:
        return Path.cwd()
    except FileNotFoundError:
        raise SettingWrong("the working directory is gone (it was removed, or moved): go to another one") from None


@attrs.frozen
class Settings:
    """What a process was told from outside.

    Attributes:
        store: where results are kept: a folder or an fsspec URL.
        project: the folder of the project's `pyproject.toml`, else the working directory.
        lease: seconds without a sign of life after which work that another run began is taken over; 0 to share none.
    """

    store: str
    project: Path
    lease: float = 60.0

    @classmethod
    def read(cls, *, environment: Mapping[str, str] | None = None, folder: Path | None = None) -> Settings:
        """Settings from the environment: `MARIN_STORE`, else `.marin/` beside the project's `pyproject.toml`.

        Raises:
            SettingWrong: a setting cannot be read, or the working directory is gone.
        """
        environment = os.environ if environment is None else environment
        folder = working_folder() if folder is None else folder
        project = next((place for place in (folder, *folder.parents) if (place / "pyproject.toml").is_file()), folder)
        store = environment.get("MARIN_STORE") or str(project / ".marin")
        return cls(store, project, _seconds(environment, "MARIN_LEASE_SECONDS", 60.0))


def _seconds(environment: Mapping[str, str], name: str, otherwise: float) -> float:
    text = environment.get(name)
    if not text:
        return otherwise
    try:
        found = float(text)
    except ValueError:
        found = -1.0
    if not 0 <= found < float("inf"):
        raise SettingWrong(f"{name} is {text!r}; write a number of seconds, such as 60, or 0 for none")
    return found
