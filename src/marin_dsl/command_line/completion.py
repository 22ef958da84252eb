"""Completion by the tab key: commands and options by click, targets and labels from what is cheap to see."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import click
from click.shell_completion import CompletionItem, get_completion_class

from marin_dsl.lineage.subject import known_labels
from marin_dsl.settings import Settings
from marin_dsl.store import Store, StoreUnavailable

_VARIABLE = "_MARIN_COMPLETE"
_MOST = 200


@click.command(short_help="the script that teaches a shell to complete")
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion(shell: str) -> None:
    """Print the script that teaches a shell to complete `marin` commands, targets and labels.

    Put `eval "$(marin completion bash)"` into ~/.bashrc, or the like for zsh; fish reads scripts from
    ~/.config/fish/completions.

    Example: marin completion bash
    """
    from marin_dsl.command_line import main

    found = get_completion_class(shell)
    assert found is not None
    click.echo(found(main, {}, "marin", _VARIABLE).source())
    if shell == "bash":
        # A target holds a colon, at which bash would cut it in two.
        click.echo("COMP_WORDBREAKS=${COMP_WORDBREAKS//:}")


def complete_targets(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Modules and files here, and after a colon the names in them; nothing is imported."""
    return _items(_targets(incomplete))


def complete_subjects(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Targets, and the labels of the store."""
    return _items([*_labels(context, incomplete), *_targets(incomplete)])


def complete_labels(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """The labels of the store, or of the one that is copied from."""
    return _items(_labels(context, incomplete))


def _items(values: Iterator[str] | list[str]) -> list[CompletionItem]:
    return [CompletionItem(value) for value, _ in zip(values, range(_MOST), strict=False)]


def _labels(context: click.Context, incomplete: str) -> list[str]:
    url = context.params.get("store") or context.params.get("source") or Settings.read().store
    if "://" in url:
        return []  # a listing over the network is too slow for a key
    try:
        return [str(label) for label in known_labels(Store(url)) if str(label).startswith(incomplete)]
    except StoreUnavailable:
        return []


def _targets(incomplete: str) -> Iterator[str]:
    place, colon, name = incomplete.rpartition(":")
    if colon:
        path = Path(place) if place.endswith(".py") else Path(f"{place.replace('.', '/')}.py")
        yield from (f"{place}:{found}" for found in _names(path) if found.startswith(name))
    elif "/" in incomplete or incomplete.endswith(".py"):
        folder = Path(incomplete).parent
        yield from (f"{path}:" for path in sorted(folder.glob("*.py")) if str(path).startswith(incomplete))
    else:
        yield from _modules(incomplete)


def _modules(incomplete: str) -> Iterator[str]:
    """Modules and packages below the working directory, one level at a time as dots are typed."""
    package, _, _ = incomplete.rpartition(".")
    prefix = f"{package}." if package else ""
    for path in sorted(Path(*package.split(".")).glob("*")) if package else sorted(Path().glob("*")):
        name = f"{prefix}{path.stem}"
        if not path.stem.isidentifier() or not name.startswith(incomplete):
            continue
        if path.suffix == ".py" and path.stem != "__init__":
            yield f"{name}:"
        elif path.is_dir() and any(path.glob("*.py")):
            yield f"{name}."


def _names(path: Path) -> list[str]:
    """Names that a module assigns at its top level, as far as they may be expressions."""
    try:
        found = ast.parse(path.read_text())
    except (OSError, SyntaxError, ValueError):
        return []
    targets = [node.targets for node in found.body if isinstance(node, ast.Assign)]
    names = [name.id for group in targets for name in group if isinstance(name, ast.Name)]
    return [name for name in dict.fromkeys(names) if not name.startswith("_") and not name.isupper()]
