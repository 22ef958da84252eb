"""From an evaluated page to files that a browser opens."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from marin_dsl.expression import Expression
from marin_dsl.pages.collect import collect
from marin_dsl.pages.content import Page
from marin_dsl.pages.render import write_site
from marin_dsl.settings import Settings
from marin_dsl.store import Store


def publish(expression: Expression[Any], page: Page, site: Path, *, store: Store | str | None = None) -> Path:
    """Render an evaluated page with its evidence into a folder; the file of the page.

    Args:
        expression: the expression of the page; its label names the file.
        page: its value.
        site: folder of the pages, made if need be.
        store: where it was evaluated.

    Raises:
        TypeError: the value is no page.
        LookupError: the store has no record of the expression.
    """
    if not isinstance(page, Page):
        raise TypeError(f"the target's value is a {type(page).__name__}, not a Page: return one from its operator")
    opened = store if isinstance(store, Store) else Store(store or Settings.read().store)
    name = str(expression.label) if expression.label else page.title.lower()
    slug = re.sub(r"[^a-z0-9.]+", "-", name).strip("-") or "page"
    write_site({slug: (page, collect(opened, page, expression.key))}, site)
    return (site / f"{slug}.html").absolute()
