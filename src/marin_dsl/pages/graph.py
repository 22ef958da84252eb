"""A layered drawing of boxes and links, in the manner of Sugiyama: rows, few crossings, long links routed around.

Rows come from depth, wide rows are wrapped; links that pass a row get a place of their own in it (a bend); barycenter
sweeps choose the order within rows, and least squares under that order choose the coordinates. Equal input gives
equal output, to the last digit.

Source: K. Sugiyama, S. Tagawa, M. Toda, Methods for visual understanding of hierarchical system structures (1981).
"""

from __future__ import annotations

import math
from collections import defaultdict
from itertools import pairwise

import attrs

from marin_dsl.pages.clusters import Cluster, Clusters, Link, cluster
from marin_dsl.pages.evidence import NodeEvidence

WIDTH = 1000.0
GAP, BEND, ROW_GAP, MARGIN = 26.0, 18.0, 46.0, 14.0
SINGLE_HEIGHT, HEADER, CELL_HEIGHT, CELL_GAP = 44.0, 26.0, 38.0, 6.0
GLYPH, CELL_GLYPH = 7.3, 7.0
SWEEPS = 10


@attrs.frozen
class Place:
    """Where a cell lies, in pixels.

    Attributes:
        x: left edge.
        y: top edge.
        width: its width.
        height: its height.
    """

    x: float
    y: float
    width: float
    height: float


@attrs.frozen
class Box:
    """A cluster with its place and the places of its cells."""

    cluster: Cluster
    place: Place
    cells: tuple[Place, ...]


@attrs.frozen
class Route:
    """A link with the path it takes, as data of an SVG path."""

    link: Link
    path: str


@attrs.frozen
class Drawing:
    """Everything that is drawn.

    Attributes:
        width: in pixels.
        height: in pixels.
        boxes: in the order of the clusters.
        routes: in the order of the links.
        folded: how many inline nodes are drawn as part of an edge.
    """

    width: float
    height: float
    boxes: tuple[Box, ...]
    routes: tuple[Route, ...]
    folded: int


@attrs.frozen
class _Shape:
    columns: int
    cell_width: float
    width: float
    height: float


def _clamp(value: float, low: float, high: float) -> float:
    return max(low, min(high, value))


def _shape(box: Cluster) -> _Shape:
    """Size of a box: a single node by its title, several in a grid about as many wide as high."""
    if box.single:
        width = _clamp(38 + GLYPH * len(box.cells[0].label), 128, 196)
        return _Shape(1, width, width, SINGLE_HEIGHT)
    count = len(box.cells)
    cell = _clamp(32 + CELL_GLYPH * max(len(c.label) for c in box.cells), 112, 164)
    columns = min(6, math.ceil(math.sqrt(count)))
    rows = -(-count // columns)
    width = columns * (cell + CELL_GAP) + CELL_GAP
    return _Shape(columns, cell, width, HEADER + rows * (CELL_HEIGHT + CELL_GAP))


def _rows(boxes: tuple[Cluster, ...], shapes: list[_Shape]) -> list[int]:
    """Row of each box: its depth, with rows too wide for the page broken into several."""
    rows, row, used, depth = [], -1, 0.0, -1
    for box, shape in zip(boxes, shapes, strict=True):
        if box.depth != depth or used + shape.width > WIDTH:
            row, used, depth = row + 1, 0.0, box.depth
        used += shape.width + GAP
        rows.append(row)
    return rows


@attrs.define
class _Layers:
    """Boxes and bends row by row; a point is the index of a box, or a number past the last box for a bend."""

    order: list[list[int]]
    above: dict[int, list[int]]
    below: dict[int, list[int]]
    chains: list[list[int]]


def _layers(rows: list[int], links: tuple[Link, ...]) -> _Layers:
    order: list[list[int]] = [[] for _ in range(max(rows, default=-1) + 1)]
    for point, row in enumerate(rows):
        order[row].append(point)
    above, below, chains = defaultdict(list), defaultdict(list), []
    fresh = len(rows)
    for link in links:
        chain = [link.source]
        for row in range(rows[link.source] + 1, rows[link.target]):
            order[row].append(fresh)
            chain.append(fresh)
            fresh += 1
        chain.append(link.target)
        chains.append(chain)
        for upper, lower in pairwise(chain):
            below[upper].append(lower)
            above[lower].append(upper)
    return _Layers(order, above, below, chains)


def crossings(upper: list[int], lower: list[int], below: dict[int, list[int]]) -> int:
    """How many links between two neighbouring rows cross."""
    place = {point: i for i, point in enumerate(lower)}
    ends = [sorted(place[p] for p in below.get(point, ())) for point in upper]
    flat = [end for group in ends for end in group]
    return sum(flat[i] > flat[j] for i in range(len(flat)) for j in range(i + 1, len(flat)))


def _total(layers: _Layers, order: list[list[int]]) -> int:
    return sum(crossings(upper, lower, layers.below) for upper, lower in pairwise(order))


def _sorted_by(row: list[int], fixed: list[int], neighbours: dict[int, list[int]]) -> list[int]:
    """A row by the mean place of its neighbours in the fixed row; points without any stay where they are."""
    place = {point: i / max(len(fixed) - 1, 1) for i, point in enumerate(fixed)}
    own = {point: i / max(len(row) - 1, 1) for i, point in enumerate(row)}

    def centre(point: int) -> float:
        near = [place[p] for p in neighbours.get(point, ())]
        return sum(near) / len(near) if near else own[point]

    return sorted(row, key=centre)


def _ordered(layers: _Layers) -> list[list[int]]:
    """Rows in the order with the fewest crossings that the sweeps met."""
    order = [list(row) for row in layers.order]
    best, fewest = [list(row) for row in order], _total(layers, order)
    for sweep in range(SWEEPS):
        if sweep % 2 == 0:
            for i in range(1, len(order)):
                order[i] = _sorted_by(order[i], order[i - 1], layers.above)
        else:
            for i in range(len(order) - 2, -1, -1):
                order[i] = _sorted_by(order[i], order[i + 1], layers.below)
        if (now := _total(layers, order)) < fewest:
            best, fewest = [list(row) for row in order], now
    return best


def spread(wanted: list[float], widths: list[float], weights: list[float], room: float) -> list[float]:
    """Centres closest to the wanted ones (weighted squares) that keep their order, do not overlap and stay inside.

    Pooling adjacent violators solves this exactly, and cutting at the bounds keeps it exact.

    Args:
        wanted: wished centre of each item.
        widths: width of each item, its gap included.
        weights: how much each wish counts.
        room: width that the items have together, centred on 0; at least the sum of their widths.
    """
    offsets = [0.0]
    for left, right in pairwise(widths):
        offsets.append(offsets[-1] + (left + right) / 2)
    blocks: list[list[float]] = []
    for want, offset, weight in zip(wanted, offsets, weights, strict=False):
        blocks.append([want - offset, weight, 1])
        while len(blocks) > 1 and blocks[-2][0] > blocks[-1][0]:
            (a, wa, na), (b, wb, nb) = blocks[-2:]
            blocks[-2:] = [[(a * wa + b * wb) / (wa + wb), wa + wb, na + nb]]
    shifts = [value for value, _, count in blocks for _ in range(int(count))]
    first, last = (widths[0] - room) / 2, (room - widths[-1]) / 2 - offsets[-1]
    return [_clamp(shift, first, last) + offset for shift, offset in zip(shifts, offsets, strict=True)]


def _centres(layers: _Layers, order: list[list[int]], widths: dict[int, float], boxes: int) -> dict[int, float]:
    """Horizontal centre of every point: near its neighbours, bends straighter than boxes."""
    centre: dict[int, float] = {}
    room = max((sum(widths[p] for p in row) for row in order), default=0.0)
    for row in order:
        left = -sum(widths[p] for p in row) / 2
        for point in row:
            centre[point] = left + widths[point] / 2
            left += widths[point]
    for sweep in range(2 * SWEEPS):
        for row in order if sweep % 2 == 0 else reversed(order):
            wanted, weights = [], []
            for point in row:
                near = layers.above.get(point, []) + layers.below.get(point, [])
                wanted.append(sum(centre[p] for p in near) / len(near) if near else centre[point])
                weights.append(3.0 if point >= boxes else 1.0)
            centre.update(zip(row, spread(wanted, [widths[p] for p in row], weights, room), strict=True))
    return centre


def _ports(layers: _Layers, centre: dict[int, float], shapes: list[_Shape]) -> dict[tuple[int, int, bool], float]:
    """Where each link touches its boxes: side by side, in the order of the other ends."""
    ports: dict[tuple[int, int, bool], float] = {}
    for box, shape in enumerate(shapes):
        for leaving in (True, False):
            neighbour = 1 if leaving else -2
            mine = [(i, c) for i, c in enumerate(layers.chains) if c[0 if leaving else -1] == box]
            mine.sort(key=lambda pair: (centre[pair[1][neighbour]], pair[0]))
            step = min(18.0, (shape.width - 24) / max(len(mine) - 1, 1))
            for index, (chain, _) in enumerate(mine):
                ports[chain, box, leaving] = centre[box] + step * (index - (len(mine) - 1) / 2)
    return ports


def _number(value: float) -> str:
    return f"{value:.1f}".removesuffix(".0")


def _path(points: list[tuple[float, float, float]]) -> str:
    """A smooth line down through (x, top, bottom) of every row it touches."""
    x, _, y = points[0]
    parts = [f"M{_number(x)} {_number(y)}"]
    for (x0, _, y0), (x1, y1, bottom) in pairwise(points):
        half = (y1 - y0) / 2
        curve = [x0, y0 + half, x1, y1 - half, x1, y1]
        parts.append("C" + " ".join(map(_number, curve)))
        if bottom > y1:
            parts.append(f"V{_number(bottom)}")
    return "".join(parts)


def _places(cluster_: Cluster, shape: _Shape, x: float, y: float) -> Box:
    if cluster_.single:
        place = Place(x, y, shape.width, shape.height)
        return Box(cluster_, place, (place,))
    cells = []
    for index in range(len(cluster_.cells)):
        row, column = divmod(index, shape.columns)
        left = x + CELL_GAP + column * (shape.cell_width + CELL_GAP)
        cells.append(Place(left, y + HEADER + row * (CELL_HEIGHT + CELL_GAP), shape.cell_width, CELL_HEIGHT))
    return Box(cluster_, Place(x, y, shape.width, shape.height), tuple(cells))


def _tops(order: list[list[int]], shapes: list[_Shape]) -> list[tuple[float, float]]:
    """Top and height of every row."""
    tops, y = [], MARGIN
    for row in order:
        height = max(shapes[p].height for p in row if p < len(shapes))
        tops.append((y, height))
        y += height + ROW_GAP
    return tops


def draw(clusters: Clusters) -> Drawing:
    """Places for all boxes and paths for all links."""
    shapes = [_shape(box) for box in clusters.boxes]
    rows = _rows(clusters.boxes, shapes)
    layers = _layers(rows, clusters.links)
    order = _ordered(layers)
    widths = defaultdict(lambda: BEND, {i: shape.width + GAP for i, shape in enumerate(shapes)})
    centre = _centres(layers, order, widths, len(shapes))
    left = min((centre[p] - widths[p] / 2 for row in order for p in row), default=0.0) + GAP / 2 - MARGIN
    centre = {point: round(x - left, 1) for point, x in centre.items()}
    tops = _tops(order, shapes)
    row_of = {point: index for index, row in enumerate(order) for point in row}
    boxes = []
    for i, (box, shape) in enumerate(zip(clusters.boxes, shapes, strict=True)):
        boxes.append(_places(box, shape, centre[i] - shape.width / 2, tops[rows[i]][0]))
    ports = _ports(layers, centre, shapes)
    routes = []
    for index, (link, chain) in enumerate(zip(clusters.links, layers.chains, strict=True)):
        points = [(ports[index, link.source, True], 0.0, boxes[link.source].place.y + shapes[link.source].height)]
        for bend in chain[1:-1]:
            top, height = tops[row_of[bend]]
            points.append((centre[bend], top, top + height))
        points.append((ports[index, link.target, False], boxes[link.target].place.y - 5, 0.0))
        routes.append(Route(link, _path(points)))
    width = max((centre[p] + widths[p] / 2 for row in order for p in row), default=0.0) - GAP / 2 + MARGIN
    height = tops[-1][0] + tops[-1][1] + MARGIN if tops else 2 * MARGIN
    return Drawing(round(width, 1), round(height, 1), tuple(boxes), tuple(routes), clusters.folded)


def layout(nodes: tuple[NodeEvidence, ...], root: str) -> Drawing:
    """The drawing of an expression.

    Args:
        nodes: what became of each node.
        root: key of the node that is the page itself; it is drawn even if it is inline.
    """
    return draw(cluster(nodes, root))
