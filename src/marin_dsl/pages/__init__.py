"""Experiments as static pages: what a page says, what it is made from, and HTML that needs nothing else."""

from marin_dsl.pages.content import (
    Column,
    Curves,
    Differences,
    Interval,
    Listing,
    Missing,
    Page,
    Prose,
    Sample,
    Samples,
    Series,
    Table,
)
from marin_dsl.pages.evidence import ErrorEvidence, Evidence, NodeEvidence
from marin_dsl.pages.render import render, write_site

__all__ = [
    "Column",
    "Curves",
    "Differences",
    "ErrorEvidence",
    "Evidence",
    "Interval",
    "Listing",
    "Missing",
    "NodeEvidence",
    "Page",
    "Prose",
    "Sample",
    "Samples",
    "Series",
    "Table",
    "render",
    "write_site",
]
