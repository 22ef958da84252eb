"""What a page says: pure values that a page operator returns, with no trace of how they will be drawn.

Every class here is frozen and encodable, so a page is stored and identified like any other result. Nothing in a page
tells where it comes from: that is evidence (`marin_dsl.pages.evidence`), read from records when the page is rendered.
"""

from __future__ import annotations

from typing import Literal, TypeAlias

import attrs
import numpy as np

from marin_dsl.encoding import encodable


def _vector(values: object) -> np.ndarray:
    """Values as a one-dimensional array of numbers; text and objects are refused."""
    array = np.asarray(values)
    if array.ndim != 1 or array.dtype.kind not in "biuf":
        raise ValueError(f"a curve needs a one-dimensional array of numbers, not {array.dtype} of shape {array.shape}")
    return array


def _array() -> np.ndarray:
    return attrs.field(converter=_vector, eq=attrs.cmp_using(eq=np.array_equal))


@encodable
@attrs.frozen
class Interval:
    """An estimate with its uncertainty.

    Attributes:
        point: the estimate.
        low: lower end of the interval.
        high: upper end of the interval.
    """

    point: float
    low: float
    high: float

    def __attrs_post_init__(self) -> None:
        if self.low > self.high:
            raise ValueError(f"an interval runs from low to high, not from {self.low} to {self.high}: swap them")


@encodable
@attrs.frozen
class Missing:
    """A cell without a value, shown with its reason instead of being left empty.

    Attributes:
        reason: why there is no value, in a few words ("loss 9.3e4 at step 40").
        kind: what happened: the node failed, was skipped because another failed, or was never asked for.
    """

    reason: str
    kind: Literal["failed", "skipped", "absent"] = "failed"


Cell: TypeAlias = str | int | float | bool | None | Interval | Missing


@encodable
@attrs.frozen
class Column:
    """A column of a table.

    Attributes:
        name: heading of the column.
        unit: unit of its numbers, shown under the name.
        digits: decimals of its floats and intervals.
        best: which of its numbers is marked as the best, if any.
    """

    name: str
    unit: str = ""
    digits: int = 3
    best: Literal["lowest", "highest"] | None = None


@encodable
@attrs.frozen
class Prose:
    """Paragraphs of text, separated by blank lines; `code` in backticks and *emphasis* between asterisks."""

    heading: str
    text: str


@encodable
@attrs.frozen
class Table:
    """Rows of values under named columns; the first cell of a row names the row.

    Attributes:
        heading: title of the section.
        caption: what the numbers are, how intervals were computed.
        columns: the columns, left to right.
        rows: one tuple of cells for each row, as many as there are columns.
    """

    heading: str
    caption: str
    columns: tuple[Column, ...] = attrs.field(converter=lambda items: tuple(items))
    rows: tuple[tuple[Cell, ...], ...] = attrs.field(converter=lambda rows: tuple(tuple(row) for row in rows))

    def __attrs_post_init__(self) -> None:
        for index, row in enumerate(self.rows):
            if len(row) != len(self.columns):
                raise ValueError(
                    f"row {index} of table {self.heading!r} has {len(row)} cells for {len(self.columns)} columns: "
                    "give every row one cell for each column (Missing(reason) where there is no value)"
                )


@encodable
@attrs.frozen
class Series:
    """One measured curve.

    Attributes:
        name: what tells this curve from all others ("muon, lr 0.02, seed 1").
        group: what it shares its colour and its legend entry with ("muon, lr 0.02").
        tokens: tokens seen at each point, (points,).
        steps: optimizer steps taken at each point, (points,).
        values: what is plotted, (points,); NaN where there is no value.
        source: path of the page operator's argument whose node observed "seconds" at the same points, for instance
            `("runs", 3, "value")`; None leaves the curve out of the seconds axis.
    """

    name: str
    group: str
    tokens: np.ndarray = _array()
    steps: np.ndarray = _array()
    values: np.ndarray = _array()
    source: tuple[str | int, ...] | None = attrs.field(
        default=None, converter=lambda path: None if path is None else tuple(path)
    )

    def __attrs_post_init__(self) -> None:
        lengths = {name: len(getattr(self, name)) for name in ("tokens", "steps", "values")}
        if len(set(lengths.values())) != 1:
            raise ValueError(f"series {self.name!r} needs arrays of one length, not {lengths}")


@encodable
@attrs.frozen
class Curves:
    """Curves over one another, against tokens, steps or seconds.

    Attributes:
        heading: title of the section.
        caption: what is plotted.
        series: the curves, in the order of the legend.
        y_label: name and unit of the vertical axis.
    """

    heading: str
    caption: str
    series: tuple[Series, ...] = attrs.field(converter=lambda items: tuple(items))
    y_label: str = "value"


@encodable
@attrs.frozen
class Differences:
    """Configurations of several arms, of which only what differs is shown.

    Attributes:
        heading: title of the section.
        caption: what the arms are.
        configurations: name and nested configuration of each arm, in the order to show them; a dict is taken too.
    """

    heading: str
    caption: str
    configurations: tuple[tuple[str, dict], ...] = attrs.field(
        converter=lambda arms: tuple(arms.items() if isinstance(arms, dict) else arms)
    )


@encodable
@attrs.frozen
class Sample:
    """A text that a model wrote.

    Attributes:
        name: which model, sampled how.
        prompt: the text it was given.
        text: the text it continued with, without the prompt.
    """

    name: str
    prompt: str
    text: str


@encodable
@attrs.frozen
class Samples:
    """Texts side by side, printed exactly as they are."""

    heading: str
    caption: str
    samples: tuple[Sample, ...] = attrs.field(converter=lambda items: tuple(items))


@encodable
@attrs.frozen
class Listing:
    """Lines printed exactly as they are: code, output; lines of a unified difference are coloured.

    Attributes:
        heading: title of the section.
        caption: what the lines are.
        text: the lines.
    """

    heading: str
    caption: str
    text: str


Section: TypeAlias = Prose | Table | Curves | Differences | Samples | Listing


@encodable
@attrs.frozen
class Page:
    """An experiment as a reader meets it.

    Attributes:
        title: name of the experiment.
        question: what it asks, one sentence.
        answer: what was found, with numbers computed from the results; prose with the markup of `Prose`.
        verdict: the answer in one short line.
        sections: the rest, in reading order: the key table first, then curves, differences, samples.
        summary: what was done, a paragraph or two; may be empty.
    """

    title: str
    question: str
    answer: str
    verdict: str
    sections: tuple[Section, ...] = attrs.field(converter=lambda items: tuple(items))
    summary: str = ""

    def __attrs_post_init__(self) -> None:
        for section in self.sections:
            if not isinstance(section, Section):
                raise TypeError(
                    f"a section of page {self.title!r} is a {type(section).__name__}: "
                    "use Prose, Table, Curves, Differences, Samples or Listing"
                )
