"""What makes a folder of files a complete checkpoint: a list of all of them, written last."""

import hashlib
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

FORMAT = 1
MANIFEST = "checkpoint.json"
_KEYS = {"format", "step", "run", "arrays", "files", "sha256"}
_SMALL = "zarr.json"  # the checksums of the other files are inside them


class CheckpointDamaged(Exception):
    """A complete checkpoint is no longer what was written; the message names the file and says what to do."""


class CheckpointMismatch(ValueError):
    """A checkpoint belongs to another run, or to a state of another structure."""


def damaged(path: Path, found: str, checkpoint: Path) -> CheckpointDamaged:
    """The error that names a file and what was found there."""
    return CheckpointDamaged(
        f"{path}: {found}; the checkpoint was changed or cut after it was written. Remove {checkpoint} to go on from "
        f"the one before it, or all of {checkpoint.parent} to begin anew"
    )


def seal(folder: Path, *, step: int, run: Mapping[str, Any], arrays: Mapping[str, Any]) -> int:
    """Write the manifest of all that is in a folder.

    Args:
        folder: holds the files of all arrays, written to the disk.
        step: of the state in it.
        run: what tells the run from others; JSON.
        arrays: shape and dtype by name; JSON.

    Returns:
        Bytes of all files.
    """
    paths = sorted(path for path in folder.rglob("*") if path.is_file())
    files = {str(path.relative_to(folder)): _entry(path) for path in paths}
    body = {"format": FORMAT, "step": step, "run": dict(run), "arrays": dict(arrays), "files": files}
    with (folder / MANIFEST).open("xb") as file:
        file.write(_sealed(body))
        file.flush()
        os.fsync(file.fileno())
    sync_folder(folder)
    return sum(entry["size"] for entry in files.values())


def sync_folder(folder: Path) -> None:
    """Have the names in a folder on the disk."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def read_manifest(folder: Path) -> dict[str, Any]:
    """The manifest of a checkpoint whose files are all there, in their sizes.

    Raises:
        CheckpointDamaged: a file is missing or has another size, or a description another content.
        CheckpointMismatch: a newer version wrote it.
    """
    path = folder / MANIFEST
    try:
        data = path.read_bytes()
        manifest = json.loads(data)
    except FileNotFoundError:
        raise damaged(path, "no such file", folder) from None
    except (IsADirectoryError, NotADirectoryError) as error:
        raise damaged(path, str(error.strerror), folder) from None
    except ValueError:
        raise damaged(path, "no JSON", folder) from None
    if isinstance(manifest, dict) and isinstance(manifest.get("format"), int) and manifest["format"] > FORMAT:
        raise CheckpointMismatch(
            f"{path}: format {manifest['format']}, known up to {FORMAT}: a newer version of marin_models wrote this "
            "checkpoint; go on with that version"
        )
    if not isinstance(manifest, dict) or manifest.keys() != _KEYS or _sealed(manifest) != data:
        raise damaged(path, "contents that differ from the checksum in it", folder)
    for name, entry in manifest["files"].items():
        _check(folder / name, entry, folder)
    return manifest


def check_run(manifest: Mapping[str, Any], run: Mapping[str, Any], folder: Path) -> None:
    """Raise `CheckpointMismatch` naming what of ``run`` is not as in the run that wrote the checkpoint."""
    written = manifest["run"]
    differ = [
        f"{name}: {written.get(name)!r} when it was written, {run.get(name)!r} now"
        for name in sorted({*written, *run})
        if written.get(name) != run.get(name)
    ]
    if differ:
        raise CheckpointMismatch(
            f"{folder} was written by another run; give this one a folder of its own:\n  " + "\n  ".join(differ)
        )


def _check(path: Path, entry: Mapping[str, Any], folder: Path) -> None:
    if not path.is_file():
        raise damaged(path, f"no such file, expected {entry['size']} bytes", folder)
    found = _entry(path)
    if found["size"] != entry["size"]:
        raise damaged(path, f"{found['size']} bytes, expected {entry['size']}", folder)
    if found != entry:
        raise damaged(path, f"SHA-256 {found['sha256']}, expected {entry['sha256']}", folder)


def _entry(path: Path) -> dict[str, Any]:
    entry: dict[str, Any] = {"size": path.stat().st_size}
    return entry | {"sha256": hashlib.sha256(path.read_bytes()).hexdigest()} if path.name == _SMALL else entry


def _sealed(body: Mapping[str, Any]) -> bytes:
    plain = {name: value for name, value in body.items() if name != "sha256"}
    text = json.dumps(plain, sort_keys=True)
    return json.dumps({**plain, "sha256": hashlib.sha256(text.encode()).hexdigest()}, sort_keys=True, indent=1).encode()
