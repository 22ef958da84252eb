"""Where and by what a run was made: interpreter, packages, machine, commit and command."""

from __future__ import annotations

import functools
import importlib.metadata
import json
import os
import platform
import re
import shlex
import sys
from pathlib import Path
from typing import Any

from marin_dsl.sources import imported_sources
from marin_dsl.uncommitted import uncommitted, without_secrets


def environment(project: Path) -> dict[str, Any]:
    """The environment of this process as a value: the same for all runs until something in it changes.

    Args:
        project: folder whose commit is recorded with what is not committed (see `uncommitted`), if it is under git.
    """
    packages, elsewhere = _packages()
    return {
        "python": platform.python_version(),
        "implementation": platform.python_implementation(),
        "platform": platform.platform(),
        "processor": _processor(),
        "cores": os.cpu_count() or 1,
        "memory": _memory(),
        "accelerators": accelerators(),
        "packages": packages,
        "elsewhere": elsewhere,
        **uncommitted(project),
    }


def command() -> str:
    """The command line of this process, as a person would type it."""
    script = Path(sys.argv[0]) if sys.argv and sys.argv[0] else Path("python")
    program = [script.name]
    if script.suffix == ".py":
        program = ["python", "-m", script.parent.name] if script.name == "__main__.py" else ["python", script.name]
    return shlex.join([*program, *sys.argv[1:]])


def _packages() -> tuple[dict[str, str], dict[str, str]]:
    """Versions by distribution, and where those came from that did not come from an index of packages.

    Of one that is installed twice the first on the path counts, which is what is imported.
    """
    packages, elsewhere = dict[str, str](), dict[str, str]()
    for found in importlib.metadata.distributions():
        try:
            text = found.read_text("METADATA") or found.read_text("PKG-INFO") or ""
        except OSError:
            continue
        # `found.metadata` parses the whole file as an e-mail, which takes most of the time of a small run.
        head = dict(_FIELD.findall(text.partition("\n\n")[0]))
        # Else these are the remains of an interrupted installation, or it is there twice.
        if {"Name", "Version"} <= head.keys() and head["Name"] not in packages:
            packages[head["Name"]] = head["Version"]
            origin = _origin(found)
            if origin is not None:
                elsewhere[head["Name"]] = origin
    return dict(sorted(packages.items())), dict(sorted(elsewhere.items()))


def _origin(found: importlib.metadata.Distribution) -> str | None:
    """Where a distribution was installed from, if from no index, as pip writes it: of a repository the URL and commit.

    Source: PEP 610.
    """
    try:
        text = found.read_text("direct_url.json")
        record = json.loads(text) if text else None
    except (OSError, ValueError):
        return None
    if not isinstance(record, dict) or not isinstance(record.get("url"), str):
        return None
    url, repository = without_secrets(record["url"]), record.get("vcs_info")
    if isinstance(repository, dict) and {"vcs", "commit_id"} <= repository.keys():
        return f"{repository['vcs']}+{url}@{repository['commit_id']}"
    return "a folder of that machine" if url.startswith("file:") else url


_FIELD = re.compile(r"^(Name|Version):[ \t]*(\S+)[ \t]*\r?$", re.MULTILINE)


def _processor() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()


def _memory() -> int | None:
    """Bytes of physical memory, where the system tells."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (ValueError, OSError, AttributeError):
        return None


@functools.cache
def accelerators(
    devices: Path = Path("/proc/driver/nvidia/gpus"), buses: Path = Path("/sys/bus/pci/devices")
) -> list[str]:
    """Accelerators of this machine, as far as the system shows them without a driver being loaded.

    Args:
        devices: where the driver of NVIDIA describes its devices.
        buses: where the kernel lists what is plugged in.
    """
    models = [_field(_text(path), "Model") for path in sorted(devices.glob("*/information"))]
    kinds = (_text(path / "vendor").strip() + _text(path / "class").strip()[:6] for path in sorted(buses.glob("*")))
    others = [_PLUGGED[kind] for kind in kinds if kind in _PLUGGED]
    return [model for model in models if model] + others


_PLUGGED = {"0x1ae00xff00": "Google TPU", "0x1ae00x1200": "Google TPU", "0x10020x1200": "AMD Instinct"}
"""Accelerators by the vendor and the class of a PCI device."""


def _text(path: Path) -> str:
    try:
        return path.read_text(errors="replace")
    except OSError:
        return ""


def _field(text: str, name: str) -> str:
    found = re.search(rf"^{name}:[ \t]*(.+?)[ \t]*$", text, re.MULTILINE)
    return found[1] if found else ""


__all__ = ["accelerators", "command", "environment", "imported_sources"]
