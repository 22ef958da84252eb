"""What of a project is in no commit: the patch of tracked files, and untracked files with their contents."""

from __future__ import annotations

import fnmatch
import hashlib
import os
import stat
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

CONTENTS_LIMIT = 1 << 20
"""Bytes of untracked files that are kept, all together; what is more is named with its digest."""

_HASHED_LIMIT = 64 << 20
"""Bytes of untracked files that are read at all; what is more is named."""

SECRET_LIKE = (
    ".env*",
    "*.env",
    "*.pem",
    "*.key",
    "*.p12",
    "*.pfx",
    "*.keystore",
    "*.kdbx",
    "id_rsa*",
    "id_dsa*",
    "id_ecdsa*",
    "id_ed25519*",
    ".netrc",
    ".npmrc",
    ".pypirc",
    ".htpasswd",
    "token",
    *("secret", "secrets", "credentials", "passwords"),
    *(
        f"*{word}.{ending}"
        for word in ("secret", "secrets", "credential", "credentials", "password", "passwords", "token")
        for ending in ("json", "yaml", "yml", "toml", "ini", "cfg", "txt")
    ),
)
"""Names of files (or of folders above them) whose contents are never read, in whatever case: they may hold secrets."""


def uncommitted(project: Path) -> dict[str, Any]:
    """The commit of a project, and what differs from it.

    Args:
        project: a folder; one that is not under git has no commit.

    Returns:
        `commit`; `patch` of the tracked files; names of the `untracked` files; `contents` of these by name, the
        smallest first and together at most `CONTENTS_LIMIT` bytes; and `digests` of those that were read. What looks as
        if it held secrets is named and never read, and is in no patch.
    """
    commit = _git(project, "rev-parse", "HEAD")
    names = _without_stores(
        project, (_git(project, "ls-files", "-z", "--others", "--exclude-standard") or "").split("\0")[:-1]
    )
    contents, digests = _contents(project, names)
    return {
        "commit": None if commit is None else commit.strip(),
        "patch": "" if commit is None else _patch(project),
        "untracked": names,
        "contents": contents,
        "digests": digests,
    }


def _without_stores(project: Path, names: list[str]) -> list[str]:
    """Names of files that are in no store: what a run writes is not what it was made from."""
    stores = {name.removesuffix("format.json") for name in names if name.endswith("/format.json")}
    stores = {folder for folder in stores if (project / folder / "runs").is_dir()}
    return [name for name in names if not name.startswith(tuple(stores))] if stores else names


def _patch(project: Path) -> str:
    """What differs from the commit in tracked files, those left out that may hold secrets."""
    public = (f":(top,exclude,glob,icase)**/{pattern}{end}" for pattern in SECRET_LIKE for end in ("", "/**"))
    return _git(project, "diff", "--no-color", "--no-ext-diff", "--unified=3", "HEAD", "--", ":/", *public) or ""


def looks_secret(name: str) -> bool:
    """Whether a file may hold secrets, by its name and those of the folders above it.

    >>> looks_secret("deploy/.env.production"), looks_secret("operator/secret.py")
    (True, False)
    """
    parts = name.lower().split("/")
    return any(fnmatch.fnmatchcase(part, pattern) for part in parts for pattern in SECRET_LIKE)


def _contents(project: Path, names: list[str]) -> tuple[dict[str, bytes], dict[str, str]]:
    """Contents and digests of files, the smallest first, as far as there is room."""
    contents, digests = dict[str, bytes](), dict[str, str]()
    left, readable = CONTENTS_LIMIT, _HASHED_LIMIT
    for size, name in sorted(_sizes(project, names)):
        if size > readable:
            break
        readable -= size
        try:
            data = (project / name).read_bytes()
        except OSError:
            continue
        digests[name] = f"sha256:{hashlib.sha256(data).hexdigest()}"
        if len(data) <= left:
            left -= len(data)
            contents[name] = data
    return dict(sorted(contents.items())), dict(sorted(digests.items()))


def _sizes(project: Path, names: list[str]) -> Iterator[tuple[int, str]]:
    """The regular files among names, links and what looks secret left out, with their sizes."""
    for name in names:
        if looks_secret(name):
            continue
        try:
            found = os.lstat(project / name)
        except OSError:
            continue
        if stat.S_ISREG(found.st_mode):
            yield found.st_size, name


# How a person likes to see changes is no part of them.
_PLAIN = ("-c", "core.quotePath=false", "-c", "diff.noprefix=false", "-c", "diff.mnemonicPrefix=false")


def _git(folder: Path, *arguments: str) -> str | None:
    try:
        done = subprocess.run(
            ["git", *_PLAIN, *arguments],
            cwd=folder,
            capture_output=True,
            encoding="utf-8",
            errors="replace",
            timeout=20,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout if done.returncode == 0 else None
