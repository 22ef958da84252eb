"""What an exported experiment says of itself."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

_HOLDS = {
    "all": "all results",
    "root": "the results of the roots; the others are computed again when they are wanted",
    "none": "no results; they are computed again",
}


def readme(listed: Mapping[str, Any], start: Mapping[str, Any], environment: Mapping[str, Any], nodes: int) -> str:
    """The README of an export, in Markdown.

    Args:
        listed: what was exported.
        start: the record of the run that computed it.
        environment: where that run was.
        nodes: how many expressions there are.
    """
    return "\n".join(_lines(listed, start, environment, nodes)) + "\n"


def _lines(
    listed: Mapping[str, Any], start: Mapping[str, Any], environment: Mapping[str, Any], nodes: int
) -> Iterator[str]:
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
    yield "marin import . --store records"
    for root in listed["roots"]:
        named = root["label"] if root["label"] in listed["labels"] else root["recipe"]
        yield f"marin show {named} --store records"
        yield f"marin page {named} --store records"
    yield "```\n\nThe project's code is not needed for that; `code/` has the source of each operator as recorded."
    yield "\n## Run it again\n"
    yield from _again(start, environment)
    yield "\nEqual calls have equal keys: what is computed again is compared with what is here by"
    yield "`marin diff` and by the digests under `expected` in `experiment.json`, which also lists every file."


def _again(start: Mapping[str, Any], environment: Mapping[str, Any]) -> Iterator[str]:
    yield f"It was run{' on ' + start['started'] if start.get('started') else ''} by\n"
    yield f"```\n{start.get('command') or '(the command was not recorded)'}\n```\n"
    if environment.get("python"):
        yield f"with Python {environment['python']} and the packages of `environment/packages.txt`"
        yield f"({environment.get('platform', 'platform unknown')})."
    yield "\n```"
    if environment.get("commit"):
        yield f"git checkout {environment['commit']}"
    if environment.get("patch"):
        yield "git apply environment/uncommitted.patch"
    if environment.get("contents"):
        yield "cp -r environment/untracked/. ."
    yield "pip install -r environment/packages.txt"
    yield f"marin run {start['target'] if start.get('target') else 'TARGET'} --store records"
    yield "```"
    kept = [name for name in environment.get("untracked", ()) if name not in environment.get("contents", {})]
    if kept:
        yield f"\nNot in here, though untracked then: {', '.join(f'`{name}`' for name in kept[:20])}"
        yield f"{f'and {len(kept) - 20} more ' if len(kept) > 20 else ''}(too large, or they looked like secrets)."


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")
