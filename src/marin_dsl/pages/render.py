"""From content and evidence to HTML files that need nothing else.

One page is one file: style, scripts, figures and graph are inside. A content security policy names the scripts by
their digest, so a script that came in with a value would not run even if it were not escaped.
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import os
import re
import tempfile
from collections import defaultdict
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from marin_dsl import quantities
from marin_dsl.pages import curves, differences, freshness, graph, nodes, prose, tables
from marin_dsl.pages.content import Curves, Differences, Listing, Page, Prose, Samples, Section, Table
from marin_dsl.pages.evidence import Cost, Evidence

if TYPE_CHECKING:
    from jinja2 import Environment
    from markupsafe import Markup

_SLUG = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*")
_KEY = "“best” marks the best number of a column"
_TIED = "≈ an interval that overlaps the best one’s, so that only a paired comparison can tell them apart"


_LINE = {"+": "added", "-": "removed", "@": "place"}
"""Looks of the lines of a unified difference."""


def _told(link: Any, drawing: graph.Drawing) -> str:
    """A link in words."""
    source, target = (drawing.boxes[i].cluster for i in (link.source, link.target))
    verb = "went on with" if link.continued else "did not need" if link.untaken else "reads"
    if link.count == 1:
        return f"{target.name} {verb} {source.name}"
    each = "each its own" if link.pairwise else f"{link.count} edges"
    return f"{target.name} (× {target.count}) {verb} {source.name} (× {source.count}), {each}"


def _dotted(name: str) -> Markup:
    """A dotted name that may be broken after a dot."""
    from markupsafe import Markup, escape

    return Markup(".<wbr>").join(escape(part) for part in name.split("."))


@cache
def _environment() -> Environment:
    from jinja2 import Environment, PackageLoader, StrictUndefined
    from markupsafe import Markup

    environment = Environment(
        loader=PackageLoader("marin_dsl.pages", "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.policies["json.dumps_kwargs"] = {"separators": (",", ":"), "ensure_ascii": False}
    environment.filters |= {
        "duration": quantities.duration,
        "memory": quantities.memory,
        "operations": quantities.operations,
        "inline": lambda text: Markup(prose.inline(text)),
        "paragraphs": lambda text: Markup(prose.paragraphs(text)),
        "px": lambda value: f"{value:.1f}".removesuffix(".0"),
        "told": _told,
        "dotted": _dotted,
    }
    return environment


def _template_text(name: str) -> str:
    return (Path(__file__).parent / "templates" / name).read_text(encoding="utf-8")


def _digest(script: str) -> str:
    """A script as the content security policy names it."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()}'"


def _table_view(section: Table) -> dict[str, Any]:
    rows = tables.cells(section)
    marks = {cell.mark for row in rows for cell in row}
    key = ". ".join(text for mark, text in (("best", _KEY), ("tied", _TIED)) if mark in marks)
    kinds = zip(*rows, strict=True) if rows else [()] * len(section.columns)
    numeric = [any(cell.kind in ("number", "interval") for cell in column) for column in kinds]
    return {"rows": rows, "numeric": numeric, "key": f"{key}." if key else ""}


def _curves_view(section: Curves, evidence: Evidence, place: str) -> dict[str, Any]:
    figure = curves.build(section, evidence.seconds, f"{place}-plot")
    if figure is None:
        return {"figure": None}
    axes = [
        {"name": a.name, "label": a.label, "low": a.low, "positive": a.positive, "high": a.high} for a in figure.axes
    ]
    return {"figure": figure, "data": {"item": figure.item, "axes": axes}}


def _section_view(section: Section, evidence: Evidence, place: str) -> dict[str, Any]:
    """What the template needs for one section."""
    from markupsafe import Markup

    view: dict[str, Any] = {"section": section, "id": place, "kind": type(section).__name__.lower()}
    if not isinstance(section, Prose):
        view["caption"] = Markup(prose.inline(section.caption))
    match section:
        case Prose():
            view["html"] = Markup(prose.paragraphs(section.text))
        case Table():
            view |= _table_view(section)
        case Curves():
            view |= _curves_view(section, evidence, place)
        case Differences():
            view["comparison"] = differences.compare(section)
        case Listing():
            view["lines"] = [(_LINE.get(line[:1], ""), line) for line in section.text.splitlines()]
        case Samples():
            pass
    return view


def _costs(evidence: Evidence) -> list[tuple[str, Cost, float]]:
    """Cost and share of the time of each operator, dearest first."""
    by_operator = defaultdict(list)
    for node in evidence.nodes:
        if node.status != "inline":
            by_operator[node.operator].append(node)
    costs = [(name, Cost.of(tuple(those))) for name, those in by_operator.items()]
    total = evidence.whole.seconds or 1.0
    costs.sort(key=lambda pair: (-pair[1].seconds, pair[0]))
    return [(name, cost, round(100 * cost.seconds / total, 1)) for name, cost in costs]


def _contents(sections: list[dict[str, Any]]) -> list[tuple[str, str]]:
    own = [("failures", "Failures"), ("graph", "How it was made"), ("nodes", "Nodes"), ("cost", "Cost")]
    return [(view["id"], view["section"].heading) for view in sections] + own + [("reproduce", "Make it again")]


def render(page: Page, evidence: Evidence) -> str:
    """A page as one HTML file that fetches nothing.

    Args:
        page: what the page operator returned.
        evidence: what the records say about how it was computed.

    Returns:
        The text of the file. Equal content and evidence give equal text.
    """
    from markupsafe import Markup

    sections = [_section_view(section, evidence, f"section-{i + 1}") for i, section in enumerate(page.sections)]
    drawn = any(view.get("figure") is not None for view in sections)
    scripts = [curves.library(), _template_text("curves.js")] if drawn else []
    views = nodes.views(evidence)
    drawing = graph.layout(evidence.nodes, evidence.root)
    return freshness.sealed(
        _environment()
        .get_template("page.html.j2")
        .render(
            page=page,
            evidence=evidence,
            mark=freshness.mark(page, evidence),
            sections=sections,
            contents=_contents(sections),
            counts=nodes.counts(evidence.nodes),
            views=views,
            nodes=[view for view in views.values() if view.look != "inline"],
            inline_nodes=[view for view in views.values() if view.look == "inline"],
            failed=[view for view in views.values() if view.look == "failed"],
            skipped=[view for view in views.values() if view.look == "skipped"],
            drawing=drawing,
            continued=any(route.link.continued for route in drawing.routes),
            grouped=any(not box.cluster.single for box in drawing.boxes),
            label=f"Graph of {len(evidence.nodes)} nodes",
            costs=_costs(evidence),
            style=Markup(_template_text("page.css")),
            scripts=[Markup(script) for script in scripts],
            policy=Markup(" ".join(map(_digest, scripts)) or "'none'"),
        )
    )


def _write(path: Path, text: str) -> None:
    """Write a file whole or not at all."""
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=".part")
    try:
        with open(handle, "w", encoding="utf-8", errors="backslashreplace") as file:
            file.write(text)
        os.chmod(temporary, 0o644)
        os.replace(temporary, path)
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(temporary)
        raise


def _index(pages: Mapping[str, tuple[Page, Evidence]], title: str) -> str:
    from markupsafe import Markup

    entries = [
        {"file": f"{slug}.html", "page": page, "evidence": evidence, "counts": nodes.counts(evidence.nodes)}
        for slug, (page, evidence) in pages.items()
    ]
    style = Markup(_template_text("page.css"))
    return _environment().get_template("index.html.j2").render(entries=entries, title=title, style=style)


def write_site(
    pages: Mapping[str, tuple[Page, Evidence]], destination: str | os.PathLike[str], *, title: str = "Experiments"
) -> Path:
    """Write pages and an index of them into a folder.

    Each file replaces its predecessor at once: a reader never meets half a page, and a failure leaves the old one. A
    page that is there already, made from equal content and evidence, is left as it is.

    Args:
        pages: name of each file (without its ending) to content and evidence.
        destination: the folder; made if it is not there.
        title: heading of the index.

    Returns:
        Path of the index.

    Raises:
        ValueError: if a name is not made of lower-case letters, digits and single hyphens, or is "index".
        OSError: if the folder cannot be written.
    """
    for slug in pages:
        if not _SLUG.fullmatch(slug) or slug == "index":
            raise ValueError(
                f"{slug!r} cannot name a page: use lower-case letters, digits and single hyphens, and not 'index'"
            )
    folder = Path(destination)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for slug, (page, evidence) in pages.items():
            if not freshness.is_fresh(folder / f"{slug}.html", freshness.mark(page, evidence)):
                _write(folder / f"{slug}.html", render(page, evidence))
        _write(folder / "index.html", _index(pages, title))
    except OSError as error:
        message = (
            f"the site cannot be written to {folder}: {error.strerror or error}. Name a folder that can be written"
        )
        raise type(error)(error.errno, message) from error
    return folder / "index.html"
