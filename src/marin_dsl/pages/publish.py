"""From an evaluated page to files that a browser opens."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import attrs

from marin_dsl.expression import Expression
from marin_dsl.lineage.comparison import compare, recorded_value
from marin_dsl.lineage.subject import Subject
from marin_dsl.pages.collect import collect
from marin_dsl.pages.compared import difference_evidence, difference_page
from marin_dsl.pages.content import Page
from marin_dsl.pages.render import write_site
from marin_dsl.pages.summary import page_of
from marin_dsl.store import Store


class NotAPage(TypeError):
    """The value of an expression that is to be rendered is no page."""


def publish(
    expressions: Sequence[Expression[Any]],
    pages: Sequence[Page],
    site: Path,
    store: Store,
    recipes: Mapping[bytes, bytes] | None = None,
) -> list[Path]:
    """Render evaluated pages with their evidence into a folder, with an index; the files of the pages.

    Args:
        expressions: the expressions of the pages; the label names the file, else the title.
        pages: their values.
        site: folder of the pages, made if need be.
        store: where they were evaluated.
        recipes: recipe keys of expressions whose value is that of another one, and of which.

    Raises:
        NotAPage: a value is no page.
        LookupError: the store has no record of an expression.
    """
    rendered: dict[str, Any] = {}
    for expression, page in zip(expressions, pages, strict=True):
        if not isinstance(page, Page):
            raise NotAPage(f"the value of {expression!r} is a {type(page).__name__}: a page operator returns a Page")
        evidence = collect(store, page, (recipes or {}).get(expression.key, expression.key))
        if expression.label is not None:
            evidence = attrs.evolve(evidence, label=str(expression.label))
        rendered[_free(_slug(expression, page), expression, rendered)] = (page, evidence)
    write_site(rendered, site)
    return [(site / f"{slug}.html").absolute() for slug in rendered]


def publish_recorded(subjects: Sequence[Subject], site: Path, store: Store) -> list[Path]:
    """Render what is recorded: the page that it is, or else one about it; the files.

    Raises:
        SubjectMissing: something is not recorded, or is no expression.
    """
    rendered: dict[str, Any] = {}
    for subject in subjects:
        key, stored = recorded_value(store, subject)
        page = page_of(store, subject, stored)
        evidence = collect(store, page, key)
        named = str(subject.label) if subject.label is not None else evidence.label
        slug = _fitting(_plain(named.lower()) or f"{_plain(page.title.lower())[:40]}-{key.hex()[:8]}".strip("-"))
        if slug in rendered and rendered[slug][1].root != evidence.root:
            slug = f"{slug}-{key.hex()[:8]}"  # a.b and a-b are two labels
        rendered[slug] = (page, attrs.evolve(evidence, label=named))
    write_site(rendered, site)
    return [(site / f"{slug}.html").absolute() for slug in rendered]


def publish_difference(old: Subject, new: Subject, site: Path, store: Store) -> Path:
    """Render how two recorded experiments differ; the file.

    Raises:
        SubjectMissing: one of them is not recorded, or is no expression.
    """
    key, _ = recorded_value(store, new)
    found = compare(store, old, new)
    page = difference_page(found)
    evidence = difference_evidence(found, collect(store, page, key))
    slug = _fitting(_plain(f"{old.name}-and-{new.name}".lower()) or "difference")
    write_site({slug: (page, evidence)}, site)
    return (site / f"{slug}.html").absolute()


def _free(slug: str, expression: Expression[Any], taken: Mapping[str, Any]) -> str:
    """A name that no other page of the site has: with the version, or else with the beginning of the key."""
    version = _plain(expression.label.version) if expression.label else ""
    names = (slug, f"{slug}-{version}" if version else slug, f"{slug}-{expression.key.hex()[:8]}")
    return next((name for name in names if name not in taken), names[-1])


def _slug(expression: Expression[Any], page: Page) -> str:
    name = expression.label.name if expression.label else page.title.lower()
    return _fitting(_plain(name) or "page")


def _fitting(slug: str) -> str:
    """A name for a file that every file system takes; of a long one the beginning, and a digest that tells it apart."""
    if len(slug) <= _LONGEST:
        return slug
    return f"{slug[:_LONGEST].strip('-')}-{hashlib.sha256(slug.encode()).hexdigest()[:8]}"


_LONGEST = 120


def _plain(text: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", text).strip("-")
