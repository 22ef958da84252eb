"""From an evaluated page to files that a browser opens."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from marin_dsl.expression import Expression
from marin_dsl.pages.collect import collect
from marin_dsl.pages.content import Page
from marin_dsl.pages.render import write_site
from marin_dsl.store import Store


def publish(expressions: Sequence[Expression[Any]], pages: Sequence[Page], site: Path, store: Store) -> list[Path]:
    """Render evaluated pages with their evidence into a folder, with an index; the files of the pages.

    Args:
        expressions: the expressions of the pages; the label names the file, else the title.
        pages: their values.
        site: folder of the pages, made if need be.
        store: where they were evaluated.

    Raises:
        TypeError: a value is no page.
        LookupError: the store has no record of an expression.
    """
    rendered = {}
    for expression, page in zip(expressions, pages, strict=True):
        if not isinstance(page, Page):
            raise TypeError(f"the value of {expression!r} is a {type(page).__name__}: a page operator returns a Page")
        rendered[_slug(expression, page)] = (page, collect(store, page, expression.key))
    write_site(rendered, site)
    return [(site / f"{slug}.html").absolute() for slug in rendered]


def _slug(expression: Expression[Any], page: Page) -> str:
    name = expression.label.name if expression.label else page.title.lower()
    return re.sub(r"[^a-z0-9]+", "-", name).strip("-") or "page"
