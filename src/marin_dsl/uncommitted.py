"""What of a project is in no commit: the patch of tracked files, and untracked files with their contents.

A patch can be applied again by `git apply` in a checkout of the commit: it holds binary files too, keeps every byte,
and is the same whatever a person likes to see. What git does not tell, or what is too large, is said to be unknown.
"""

from __future__ import annotations

import fnmatch
import hashlib
import os
import stat
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit, urlunsplit

import attrs

from marin_dsl.git import git

CONTENTS_LIMIT = 1 << 20
"""Bytes of untracked files that are kept, all together; what is more is named with its digest."""

_HASHED_LIMIT = 64 << 20
"""Bytes of untracked files that are read at all; what is more is named."""

PATCH_LIMIT = 8 << 20
"""Bytes of a patch that are kept; of a larger one, what it has of binary files is left out first."""

NAMES_LIMIT = 10_000
"""Untracked files that are named; of more, how many there are is told."""

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
        `commit`; `remote`, where the repository came from; the `folder` of the project in it; `patch` of the tracked
        files, also of those of submodules, as bytes where it is no text; names of the `untracked` files; `contents` of
        these by name, the smallest first and together at most `CONTENTS_LIMIT` bytes; `digests` of those that were
        read; and `unread`, what could not be told, in sentences. What looks as if it held secrets is named and never
        read, and is in no patch.
    """
    prefix = git(project, "rev-parse", "--show-prefix")
    if prefix is None:
        unread = ["git could not read the repository"] if _in_repository(project) else []
        return _told(_Differing(unread=unread), "", None, "", project)
    folder = os.fsdecode(prefix).removesuffix("\n")
    commit, found = _line(project, "rev-parse", "--verify", "HEAD"), _Differing()
    _differing(project, folder, "", found)
    return _told(found, folder, commit, without_secrets(_line(project, "config", "remote.origin.url") or ""), project)


def is_dirty(environment: Mapping[str, Any]) -> bool:
    """Whether a recorded project differed from its commit, as far as that could be told."""
    return any(environment.get(name) for name in ("patch", "untracked", "unread"))


@attrs.define
class _Differing:
    """What differs from commits: of a repository, and of its submodules."""

    patches: list[bytes] = attrs.field(factory=list)
    names: list[str] = attrs.field(factory=list)
    unread: list[str] = attrs.field(factory=list)


def _told(found: _Differing, folder: str, commit: str | None, remote: str, project: Path) -> dict[str, Any]:
    names = _without_stores(project, sorted(found.names))
    if len(names) > NAMES_LIMIT:
        found.unread.append(f"{len(names) - NAMES_LIMIT:,} more untracked files are not named")
    contents, digests = _contents(project, names[:NAMES_LIMIT])
    return {
        "commit": commit,
        "remote": remote,
        "folder": folder.removesuffix("/"),
        "patch": _text(b"".join(found.patches)),
        "untracked": [_spelled(name) for name in names[:NAMES_LIMIT]],
        "contents": contents,
        "digests": digests,
        "unread": found.unread,
    }


def _in_repository(project: Path) -> bool:
    return any((folder / ".git").exists() for folder in (project, *project.absolute().parents))


def _line(project: Path, *arguments: str) -> str | None:
    found = git(project, *arguments)
    return None if found is None else found.decode("utf-8", "replace").strip()


def without_secrets(url: str) -> str:
    """A URL without a password or a token in it.

    >>> without_secrets("https://name:word@example.org/team/project.git?token=word")
    'https://example.org/team/project.git'
    >>> without_secrets("git@example.org:team/project.git")
    'git@example.org:team/project.git'
    """
    if "://" not in url:
        return url
    try:
        found = urlsplit(url)
        port = f":{found.port}" if found.port else ""
    except ValueError:
        return ""
    return urlunsplit((found.scheme, f"{found.hostname or ''}{port}", found.path, "", ""))


def _differing(project: Path, folder: str, place: str, found: _Differing) -> None:
    """Gather what differs in a repository.

    Args:
        project: a folder in it.
        folder: where that is in the outermost repository, with `/` at its end.
        place: where it is in the project; not empty for a submodule.
        found: where it is gathered.
    """
    names = git(project, "ls-files", "-z", "--others", "--exclude-standard")
    if names is None:
        found.unread.append("git did not tell the untracked files")
    else:
        found.names += [place + os.fsdecode(name) for name in names.split(b"\0")[:-1]]
    patch, missing = _patch(project, folder if place else "")
    found.patches.append(patch)
    found.unread += [missing] if missing else []
    for submodule in _submodules(project, folder):
        _differing(project / submodule, f"{folder}{submodule}/", f"{place}{submodule}/", found)


def _submodules(project: Path, folder: str) -> list[str]:
    """Submodules below a folder of a repository that are checked out."""
    depth = 0 if (project / ".gitmodules").exists() else folder.count("/")
    if not project.joinpath(*[".."] * depth, ".gitmodules").exists():
        return []
    listed = (git(project, "ls-files", "-z", "--stage") or b"").split(b"\0")[:-1]
    names = [os.fsdecode(line.partition(b"\t")[2]) for line in listed if line.startswith(b"160000 ")]
    return [name for name in names if (project / name / ".git").exists()]


def _without_stores(project: Path, names: list[str]) -> list[str]:
    """Names of files that are in no store: what a run writes is not what it was made from."""
    stores = {name.removesuffix("format.json") for name in names if name.endswith("/format.json")}
    stores = {folder for folder in stores if (project / folder / "runs").is_dir()}
    return [name for name in names if not name.startswith(tuple(stores))] if stores else names


def _patch(project: Path, place: str) -> tuple[bytes, str]:
    """What differs from the commit in tracked files, and what of it is missing; what may hold secrets is left out."""
    base = "HEAD"
    if git(project, "rev-parse", "--verify", "HEAD") is None:  # there is no commit yet: all that was added differs
        base = _line(project, "hash-object", "-t", "tree", os.devnull) or base
    public = [f":(top,exclude,glob,icase)**/{pattern}{end}" for pattern in SECRET_LIKE for end in ("", "/**")]
    said = ""
    for binary in (["--binary"], []):
        shown = [*_SHOWN, f"--src-prefix=a/{place}", f"--dst-prefix=b/{place}", *binary]
        patch = git(project, "diff", *shown, base, "--", ":/", *public, most=PATCH_LIMIT)
        if patch is not None and len(patch) <= PATCH_LIMIT:
            return patch, said
        what = "the patch of binary files" if binary else "the patch"
        said = f"git did not tell {what}" if patch is None else f"{what} is larger than {PATCH_LIMIT:,} bytes"
    return b"", said


# Each says how changes are shown that a person's settings could have shown otherwise.
_SHOWN = (
    "--no-color",
    "--no-ext-diff",
    "--no-textconv",
    "--no-relative",
    "--find-renames",
    "--unified=3",
    "--inter-hunk-context=0",
    "--diff-algorithm=myers",
    "--submodule=short",
    "--ignore-submodules=dirty",
)


def _text(data: bytes) -> str | bytes:
    """A patch as a text, or else as it is: what cannot be told as a text must not be changed for it."""
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        return data


def _spelled(name: str) -> str:
    r"""A name of a file as a text; one that is none has its bytes spelled.

    >>> _spelled("caf\udce9.txt")
    'caf\\xe9.txt'
    """
    return os.fsencode(name).decode("utf-8", "backslashreplace")


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
        digests[_spelled(name)] = f"sha256:{hashlib.sha256(data).hexdigest()}"
        if len(data) <= left and _spelled(name) == name:  # no other file system may have a name that is no text
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
