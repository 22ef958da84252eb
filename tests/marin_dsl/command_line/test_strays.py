"""Files of others in a store's folders: what file managers, backups and synchronization leave behind."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from tests.marin_dsl.command_line.project import marin


def named(name: str | bytes):
    def put(folder: Path) -> None:
        with open(os.path.join(os.fsencode(folder), os.fsencode(name)), "wb") as file:
            file.write(b"not ours")

    return put


def copied(name: str):
    """A copy of one of the files that are there, under another name."""

    def put(folder: Path) -> None:
        original = next((path for path in sorted(folder.iterdir()) if path.is_file()), None)
        if original is not None:
            shutil.copy(original, folder / name)

    return put


STRAYS = {
    "a mark of a file manager": named(".DS_Store"),
    "a copy by hand": copied("000001 (copy).json"),
    "a backup": copied("000001.json~"),
    "a name that no store gives": named("a\\b"),
    "a name in another encoding": named(b"\xff"),
    "a folder": lambda folder: (folder / "lost+found").mkdir(),
    "a link to a folder": lambda folder: (folder / "link").symlink_to("/"),
    "a link to itself": lambda folder: (folder / "link").symlink_to("link"),
    "a link to above": lambda folder: (folder / "link").symlink_to(".."),
    "a pipe": lambda folder: os.mkfifo(folder / "pipe"),
}

COMMANDS = (
    "plan experiment:page", "show a-page@1.0", "why experiment:page", "why a-page@1.0", "lineage a-page@1.0",
    "lineage a-page@1.0 --down", "failures", "failures experiment:bad", "log", "log a-page@1.0", "label list",
    "label log a-page@1.0", "verify", "gc --grace 0", "run experiment:page --debug", "run experiment:bad --debug",
    "label move a-page@1.0 experiment:again --why reason", "store copy .marin elsewhere", "gc --grace 0 --apply",
    "plan experiment:page",
)  # fmt: skip


@pytest.mark.parametrize("stray", STRAYS.values(), ids=STRAYS)
def test_files_of_others_in_any_folder_of_a_store_disturb_no_command(evaluated, stray):
    for folder in [Path(".marin"), *(path for path in Path(".marin").rglob("*") if path.is_dir())]:
        stray(folder)
    marin("run", "experiment:again", "--debug")
    for command in COMMANDS:
        done = marin(*command.split())
        assert done.exit_code in (0, 1), (command, done.output)
        assert isinstance(done.exception, SystemExit | None), (command, done.exception)
    assert marin("show", "a-page@2.0").exit_code == 0


def test_they_are_told_as_strays(evaluated):
    for folder in [path for path in Path(".marin").rglob("*") if path.is_dir()]:
        named(".DS_Store")(folder)
    told = marin("verify").output
    for kind in ("blobs", "results", "recipes", "failures", "failures/*", "labels/*/*", "history/*/*", "runs/*/start"):
        found = next(Path(".marin").glob(f"{kind}/.DS_Store"))
        assert f"stray   {found.relative_to('.marin')}\n" in told
