"""What an exported experiment says of itself."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

_HOLDS = {
    "all": "all results",
    "root": "the results of the roots; the others are computed again when they are wanted",
    "none": "no results; they are computed again",
}


def readme(
    listed: Mapping[str, Any],
    start: Mapping[str, Any],
    environment: Mapping[str, Any],
    nodes: int,
    sources: Sequence[str],
    untracked: Sequence[str],
) -> str:
    """The README of an export, in Markdown.

    Args:
        listed: what was exported.
        start: the record of the run that computed it.
        environment: where that run was.
        nodes: how many expressions there are.
        sources: paths of the modules below `sources/`.
        untracked: names of the files below `environment/untracked/`.
    """
    about = _about(listed, start, nodes)
    return "\n".join([*about, *_again(start, environment, sources), *_whole(environment, untracked), *_END]) + "\n"


def _about(listed: Mapping[str, Any], start: Mapping[str, Any], nodes: int) -> Iterator[str]:
    names = [root["label"] or root["title"] for root in listed["roots"]]
    yield f"# {', '.join(names)}"
    yield ""
    yield f"A Marin experiment: {nodes:,} expressions, with {_HOLDS[listed['values']]}."
    if start.get("note"):
        yield f"\n> {start['note']}"
    yield "\n| root | recipe |\n|---|---|"
    for root in listed["roots"]:
        yield f"| {_cell(root['label'] or root['title'])} | `{root['recipe']}` |"
    yield "\n## Look at it\n\n```"
    yield "pip install marin-dsl"
    yield "marin import . --store ../records"
    for root in listed["roots"]:
        named = root["label"] if root["label"] in listed["labels"] else root["recipe"]
        yield f"marin show {named} --store ../records"
        yield f"marin page {named} --store ../records"
    yield "```\n\nThe project's code is not needed for that; `code/` has the source of each operator as recorded."


_END = (
    "\nEqual calls have equal keys: `marin run` with `--verify-sample 1` runs what has results anew and says what",
    "comes out otherwise, and `experiment.json` has the digests of all values under `expected`, and lists every file.",
)


def _again(start: Mapping[str, Any], environment: Mapping[str, Any], sources: Sequence[str]) -> Iterator[str]:
    yield "\n## Run it again\n"
    yield f"It was run{' on ' + start['started'] if start.get('started') else ''} by\n"
    yield f"```\n{start.get('command') or '(the command was not recorded)'}\n```\n"
    if environment.get("python"):
        yield f"with Python {environment['python']} and the packages of `environment/packages.txt`"
        yield f"({environment.get('platform', 'platform unknown')})."
    if not sources:
        yield "The modules of the project were not recorded, so that its repository is needed:"
        return
    yield "`sources/` has the modules of the project that it had imported, as they were:\n\n```sh"
    yield "pip install marin-dsl"
    yield "pip install -r environment/packages.txt"
    yield "marin import . --store ../records"
    yield "cp -r sources ../again && cd ../again"
    yield _command(start, sources)
    yield "```"


def _command(start: Mapping[str, Any], sources: Sequence[str]) -> str:
    """What runs it again among the sources, into the store beside them."""
    if start.get("target"):
        targets = (shlex.quote(_among(target, sources)) for target in start["target"].split(" "))
        return f"marin run {' '.join(targets)} --store ../records"
    command = str(start.get("command", ""))
    if command.startswith("python ") and command.split()[1] in sources:
        return f"MARIN_STORE=../records {command}"
    return "# it was run by a program that is not among them: import from there what you need"


def _among(target: str, sources: Sequence[str]) -> str:
    """A target as it is named among the sources, where a folder above a package is none.

    >>> _among("deep/team/first.py:page", ["team/__init__.py", "team/first.py"])
    'team/first.py:page'
    """
    place, separator, name = target.rpartition(":")
    ends = (place.replace("\\", "/").split("/")[start:] for start in range(place.count("/") + 1))
    found = next((path for path in map("/".join, ends) if path in sources), place)
    return f"{found}{separator}{name}"


def _whole(environment: Mapping[str, Any], untracked: Sequence[str]) -> Iterator[str]:
    """How to get the whole project as it was, with what was committed and is not here."""
    if environment.get("commit"):
        yield "\nThe whole project, with what else was committed, is in its repository; beside this folder:\n"
        yield "```"
        yield f"git clone {shlex.quote(environment.get('remote') or 'REPOSITORY')} ../project"
        yield f"git -C ../project checkout {environment['commit']}"
        if environment.get("patch"):
            yield "git -C ../project apply < environment/uncommitted.patch"
        if untracked:
            yield f"cp -r environment/untracked/. {shlex.quote('../project/' + environment.get('folder', ''))}"
        yield "```"
    kept = [name for name in environment.get("untracked", ()) if name not in untracked]
    if kept:
        yield f"\nNot in here, though untracked then: {', '.join(map(_quoted, kept[:20]))}"
        yield f"{f'and {len(kept) - 20:,} more ' if len(kept) > 20 else ''}(too large, or they looked like secrets)."
    if environment.get("unread"):
        yield f"\nWhat could not be told of the repository: {'; '.join(environment['unread'])}."


def _quoted(name: str) -> str:
    """The name of a file on one line of Markdown."""
    shown = "".join(letter if letter.isprintable() else repr(letter)[1:-1] for letter in name)
    return f"`{shown}`" if "`" not in shown else f"`` {shown} ``"


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")
