"""Curves as an interactive figure and as a table of numbers.

The figure is a Bokeh document, as JSON; a script on the page (`templates/curves.js`) draws it, in the reader's colour
scheme, and switches its horizontal axis. Bokeh is imported when a figure is built, not before.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import attrs
import numpy as np

from marin_dsl import quantities
from marin_dsl.pages.content import Curves, Series

AXES = ("tokens", "steps", "seconds")
PALETTE = 10
DASHES = ("solid", "dashed", "dotted", "dashdot")
BUCKETS = 200
GLANCES = 8
HEIGHT = 420


@attrs.frozen
class Axis:
    """A choice of horizontal axis.

    Attributes:
        name: tokens, steps or seconds.
        label: name and unit, as printed.
        divisor: what raw values are divided by.
        low: smallest value, after division.
        positive: smallest value above 0, where a logarithmic axis starts.
        high: largest value.
    """

    name: str
    label: str
    divisor: float
    low: float
    positive: float
    high: float


@attrs.frozen
class Legend:
    """An entry of the legend.

    Attributes:
        group: its text.
        colour: index into the palette of the style sheet.
        dash: pattern of its lines.
    """

    group: str
    colour: int
    dash: str


@attrs.frozen
class Glance:
    """The curves as a table.

    Attributes:
        unit: unit of the tokens ("millions"), may be empty.
        columns: tokens at which they are read, as text.
        rows: name of a series and its smoothed value at each of these.
    """

    unit: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, tuple[str, ...]], ...]


@attrs.frozen
class Figure:
    """What the page needs to show curves.

    Attributes:
        item: the Bokeh document, as JSON.
        axes: the choices of horizontal axis that there are data for.
        legend: groups in order of appearance.
        glance: the same curves as numbers.
        notes: what the reader must know about what is not drawn.
    """

    item: dict[str, Any]
    axes: tuple[Axis, ...]
    legend: tuple[Legend, ...]
    glance: Glance
    notes: tuple[str, ...]


def smooth(values: np.ndarray) -> np.ndarray:
    """Exponential moving mean, free of the bias towards its start.

    Its half-life is 2 % of all points, but never more than a tenth of those seen: it keeps up with a steep start.

    Args:
        values: (points,); NaN leaves the mean as it was.

    Returns:
        (points,), NaN before the first number.
    """
    result, total, weight = np.full(len(values), np.nan), 0.0, 0.0
    for index, value in enumerate(values.astype(float)):
        if math.isfinite(value):
            decay = 0.5 ** (1 / max(1.0, min(0.02 * len(values), 0.1 * index)))
            total, weight = decay * total + (1 - decay) * value, decay * weight + (1 - decay)
        if weight:
            result[index] = total / weight
    return result


def thin(values: np.ndarray, buckets: int = BUCKETS) -> np.ndarray:
    """Indices of the lowest and the highest point of each of `buckets` stretches, and of both ends.

    A spike survives, however long the curve is.
    """
    if len(values) <= 2 * buckets:
        return np.arange(len(values))
    kept = {0, len(values) - 1}
    finite = values[np.isfinite(values)]
    filled = np.where(np.isfinite(values), values, finite.mean() if finite.size else 0.0)
    for stretch in np.array_split(np.arange(len(values)), buckets):
        kept.update((int(stretch[filled[stretch].argmin()]), int(stretch[filled[stretch].argmax()])))
    return np.array(sorted(kept))


def seconds_of(series: Series, seconds: Mapping[tuple, np.ndarray]) -> np.ndarray | None:
    """Seconds at each point of a series, if its source observed them, one for each point."""
    found = seconds.get(series.source) if series.source is not None else None
    return np.asarray(found, float) if found is not None and np.shape(found) == series.values.shape else None


def _raw(series: Series, axis: str, seconds: Mapping[tuple, np.ndarray]) -> np.ndarray | None:
    return seconds_of(series, seconds) if axis == "seconds" else getattr(series, axis).astype(float)


def _time_scale(longest: float) -> tuple[float, str]:
    return (3600.0, "hours") if longest > 10800 else (60.0, "minutes") if longest > 600 else (1.0, "seconds")


def axis_of(name: str, columns: list[np.ndarray]) -> Axis | None:
    """The axis that fits the values of all series; None if there are none."""
    values = np.concatenate([column[np.isfinite(column)] for column in columns]) if columns else np.array([])
    if not values.size:
        return None
    high = float(values.max())
    divisor, unit = _time_scale(high) if name == "seconds" else quantities.scale(high)
    label = f"time ({unit})" if name == "seconds" else f"{name} ({unit})" if unit else name
    positive = values[values > 0]
    start = float(positive.min()) if positive.size else 1.0
    return Axis(name, label, divisor, float(values.min()) / divisor, start / divisor, max(high, start) / divisor)


def legend_of(series: tuple[Series, ...]) -> tuple[Legend, ...]:
    """One entry a group: colours first, then other dashes."""
    groups = dict.fromkeys(one.group for one in series)
    return tuple(
        Legend(group, index % PALETTE, DASHES[(index // PALETTE) % len(DASHES)]) for index, group in enumerate(groups)
    )


def glance(series: tuple[Series, ...]) -> Glance:
    """Smoothed values at eight token counts, evenly spaced up to the longest series."""
    longest = max((float(one.tokens[-1]) for one in series if len(one.tokens)), default=0.0)
    marks = [longest * (i + 1) / GLANCES for i in range(GLANCES)]
    rows = []
    for one in series:
        smoothed, tokens = smooth(one.values), one.tokens.astype(float)
        at = [int(np.searchsorted(tokens, mark * (1 + 1e-9), side="right")) - 1 for mark in marks]
        step = marks[0] / 2
        texts = tuple(
            quantities.number(float(smoothed[i]), 3)
            if i >= 0 and mark - tokens[i] <= step and math.isfinite(smoothed[i])
            else quantities.ABSENT
            for i, mark in zip(at, marks, strict=True)
        )
        rows.append((one.name, texts))
    divisor, unit = quantities.scale(longest)
    digits = 0 if divisor == 1 else 2
    return Glance(unit, tuple(f"{mark / divisor:,.{digits}f}" for mark in marks), tuple(rows))


def vertical(series: tuple[Series, ...]) -> tuple[float, float, int]:
    """Range of the vertical axis and how many points lie beyond it.

    A diverged curve must not flatten all others: the range ends a little above the highest start of a curve.
    """
    values = [one.values[np.isfinite(one.values)].astype(float) for one in series]
    values = [v for v in values if v.size]
    if not values:
        return 0.0, 1.0, 0
    flat = np.concatenate(values)
    low, top = float(flat.min()), max(float(v[: max(1, len(v) // 50)].max()) for v in values)
    high = float(flat.max()) if flat.max() <= top + 0.5 * (top - low) else top
    margin = 0.04 * (high - low) or 0.5
    return low - margin, high + margin, int((flat > high).sum())


def _columns(series: Series, axes: tuple[Axis, ...], seconds: Mapping[tuple, np.ndarray]) -> dict[str, np.ndarray]:
    kept = thin(series.values)
    columns = {"raw": series.values[kept], "smooth": smooth(series.values)[kept]}
    for axis in axes:
        raw = _raw(series, axis.name, seconds)
        columns[axis.name] = raw[kept] / axis.divisor if raw is not None else np.full(len(kept), np.nan)
    return {name: column.astype(np.float32) for name, column in columns.items()}


def _figure(section: Curves, axes: tuple[Axis, ...]) -> Any:
    """An empty Bokeh figure with linear and logarithmic axes, of which the page shows one."""
    from bokeh.models import (
        BoxZoomTool,
        LogAxis,
        NumeralTickFormatter,
        PanTool,
        Range1d,
        ResetTool,
        SaveTool,
        WheelZoomTool,
    )
    from bokeh.plotting import figure

    low, high, _ = vertical(section.series)
    zoom = BoxZoomTool()
    plot = figure(
        height=HEIGHT,
        sizing_mode="stretch_width",
        tools=[zoom, PanTool(), WheelZoomTool(), ResetTool(), SaveTool(filename="curves")],
        active_drag=zoom,
        active_scroll=None,
        x_range=Range1d(start=axes[0].low, end=axes[0].high),
        y_range=Range1d(start=low, end=high),
        y_axis_label=section.y_label,
        x_axis_label=axes[0].label,
        background_fill_color=None,
        border_fill_color=None,
        outline_line_color=None,
        min_border_right=12,
    )
    plot.toolbar.logo = None
    plot.add_layout(LogAxis(axis_label=axes[0].label, visible=False), "below")
    for axis in plot.xaxis:
        axis.formatter = NumeralTickFormatter(format="0,0.[0000]")
    return plot


def _draw(plot: Any, one: Series, entry: Legend, columns: dict[str, np.ndarray], x: str) -> Any:
    """The raw and the smoothed line of a series; returns the smoothed one."""
    from bokeh.models import ColumnDataSource

    source = ColumnDataSource(columns)
    look = {"source": source, "name": one.name, "line_join": "round"}
    raw = plot.line(x, "raw", line_width=1, line_alpha=0.22, muted_alpha=0.0, **look)
    smoothed = plot.line(x, "smooth", line_width=2, line_dash=entry.dash, muted_alpha=0.12, **look)
    raw.tags = smoothed.tags = [entry.group, entry.colour]
    return smoothed


def _hover(lines: list[Any]) -> Any:
    """A hover tool without text; the script on the page writes it, as text and never as HTML."""
    from bokeh.models import HoverTool

    return HoverTool(renderers=lines, tooltips=None, limit=1, line_policy="nearest", muted_policy="ignore")


def _renamed(item: Any, names: dict[str, str]) -> Any:
    """A Bokeh document with its identifiers counted from 1, so that equal curves give equal pages."""
    if isinstance(item, dict):
        return {
            k: _renamed(names.setdefault(v, f"m{len(names)}") if k in ("id", "root_id") else v, names)
            for k, v in item.items()
        }
    return [_renamed(one, names) for one in item] if isinstance(item, list) else item


def _item(section: Curves, axes: tuple[Axis, ...], legend: tuple[Legend, ...], seconds: Mapping, target: str) -> dict:
    from bokeh.core.types import ID
    from bokeh.embed import json_item

    plot = _figure(section, axes)
    entries = {entry.group: entry for entry in legend}
    lines = [_draw(plot, one, entries[one.group], _columns(one, axes, seconds), axes[0].name) for one in section.series]
    plot.add_tools(_hover(lines))
    return _renamed(json_item(plot, ID(target)), {})


def _notes(section: Curves, seconds: Mapping[tuple, np.ndarray]) -> tuple[str, ...]:
    notes = []
    _, _, beyond = vertical(section.series)
    if beyond:
        notes.append(f"{beyond} points of diverging curves lie above the range shown.")
    untimed = [s.name for s in section.series if s.source is not None and seconds_of(s, seconds) is None]
    if untimed and len(untimed) < len(section.series):
        notes.append(f"No times on record for {', '.join(untimed)}: missing from the axis of seconds.")
    return tuple(notes)


def build(section: Curves, seconds: Mapping[tuple, np.ndarray], target: str) -> Figure | None:
    """The figure of a section; None if there is not a single point to draw.

    Args:
        section: the curves.
        seconds: for each `Series.source`, seconds at each of its points.
        target: id of the element on the page that the figure is drawn into.
    """
    choices = []
    for name in AXES:
        columns = [raw for one in section.series if (raw := _raw(one, name, seconds)) is not None]
        if (axis := axis_of(name, columns)) is not None:
            choices.append(axis)
    if not choices:
        return None
    axes, legend = tuple(choices), legend_of(section.series)
    item = _item(section, axes, legend, seconds, target)
    return Figure(item, axes, legend, glance(section.series), _notes(section, seconds))


def library() -> str:
    """Bokeh's own script, minified, to be put into the page."""
    from bokeh.resources import Resources

    return Resources(mode="inline", minified=True, components=["bokeh"]).js_raw[0]
