"""From nodes of an expression to the boxes that are drawn: alike nodes side by side share one box.

A sweep of nine runs is one box with nine cells; of very many, those that failed or were skipped have cells, and others
as far as there is room. Inline nodes with a single argument (a projection, an attempt) are folded into their edge. What
is left is a graph that a reader can take in.
"""

from __future__ import annotations

from collections import defaultdict
from graphlib import TopologicalSorter
from itertools import takewhile

import attrs

from marin_dsl.pages.evidence import NodeEvidence

COLLAPSE_FROM = 4
MOST = 60
"""Cells of one box; of more nodes the rest is counted, and is in the table."""
SHORT = 14


@attrs.frozen
class Cell:
    """One node in a box.

    Attributes:
        node: the node.
        label: what tells it from the others in its box; its title if it is alone.
    """

    node: NodeEvidence
    label: str


@attrs.frozen
class Cluster:
    """Nodes drawn as one box: one node, or at least `COLLAPSE_FROM` of one operator at one depth.

    Attributes:
        cells: its nodes, in the order of the evidence; of more than `MOST` those without a value first.
        depth: longest path from a node that depends on nothing.
        count: how many nodes it stands for.
    """

    cells: tuple[Cell, ...]
    depth: int
    count: int

    @property
    def single(self) -> bool:
        """Whether the box holds one node only."""
        return self.count == 1

    @property
    def counted(self) -> str:
        """How many nodes it stands for, and how many have cells if that are fewer."""
        return f"× {self.count:,}" + (f", {len(self.cells)} shown" if self.count > len(self.cells) else "")

    @property
    def name(self) -> str:
        """Short name of the operator of its nodes."""
        return short_name(self.cells[0].node.operator)


@attrs.frozen
class Link:
    """All edges from one box to another.

    Attributes:
        source: index of the box that is read.
        target: index of the box that reads.
        count: how many edges it stands for.
        pairwise: every node of the target reads one node of the source of its own.
        broken: every one of these edges leaves a node that failed or was skipped.
        continued: the target went on with the source: its outcome is the source's.
        untaken: the target is a choice that did not go on with the source, or was never asked itself.
    """

    source: int
    target: int
    count: int
    pairwise: bool
    broken: bool
    continued: bool = False
    untaken: bool = False


@attrs.frozen
class Clusters:
    """A graph of boxes.

    Attributes:
        boxes: the boxes, shallowest first.
        links: between boxes, by index.
        folded: how many inline nodes are drawn as part of an edge.
    """

    boxes: tuple[Cluster, ...]
    links: tuple[Link, ...]
    folded: int


def short_name(operator: str) -> str:
    """Last part of a dotted name.

    >>> short_name("library.training.train")
    'train'
    """
    return operator.rpartition(".")[2] or operator


def topological(nodes: tuple[NodeEvidence, ...]) -> list[NodeEvidence]:
    """The nodes with every node after those it depends on; keys that are not among them are left out."""
    by_key = {node.key: node for node in nodes}
    sorter = TopologicalSorter({n.key: [k for k in n.depends_on if k in by_key] for n in nodes})
    return [by_key[key] for key in sorter.static_order()]


@attrs.frozen
class _Folded:
    """Dependencies of the nodes that get a cell, and which of them are of a kind of their own."""

    dependencies: dict[str, tuple[str, ...]]
    continued: frozenset[tuple[str, str]]
    untaken: frozenset[tuple[str, str]]


def _fold(nodes: list[NodeEvidence], root: str) -> _Folded:
    """The nodes that get a cell, seen through inline nodes with one dependency."""
    stands_for: dict[str, str] = {}
    dependencies: dict[str, tuple[str, ...]] = {}
    known = {node.key for node in nodes}
    for node in nodes:
        reads = tuple(dict.fromkeys(stands_for.get(k, k) for k in node.depends_on if k in known))
        if node.status == "inline" and len(reads) == 1 and node.key != root:
            stands_for[node.key] = reads[0]
        else:
            dependencies[node.key] = reads
    continued, untaken = set(), set()
    for node in nodes:
        if node.key in dependencies:
            continued |= {(stands_for.get(node.continued, node.continued), node.key)}
            untaken |= {(stands_for.get(key, key), node.key) for key in node.passed_over}
            if node.status == "untaken":
                untaken |= {(read, node.key) for read in dependencies[node.key]}
    return _Folded(dependencies, frozenset(continued), frozenset(untaken - continued))


def _depths(dependencies: dict[str, tuple[str, ...]]) -> dict[str, int]:
    """Longest path from the sources; a source itself is moved down to just above its first reader."""
    depths: dict[str, int] = {}
    readers: dict[str, list[str]] = defaultdict(list)
    for key, reads in dependencies.items():
        depths[key] = 1 + max((depths[k] for k in reads), default=-1)
        for read in reads:
            readers[read].append(key)
    for key, reads in dependencies.items():
        if not reads and readers[key]:
            depths[key] = min(depths[k] for k in readers[key]) - 1
    return depths


def _grouped(dependencies: dict[str, tuple[str, ...]], by_key: dict[str, NodeEvidence]) -> list[tuple[int, list[str]]]:
    depths = _depths(dependencies)
    alike: dict[tuple[int, str], list[str]] = defaultdict(list)
    for key in dependencies:
        alike[depths[key], by_key[key].operator].append(key)
    groups: list[tuple[int, list[str]]] = []
    for (depth, _), keys in alike.items():
        groups += [(depth, keys)] if len(keys) >= COLLAPSE_FROM else [(depth, [key]) for key in keys]
    return sorted(groups, key=lambda group: group[0])


def _own_label(node: NodeEvidence, varying: list[str]) -> str:
    """The varying arguments of a node that can be read as values: short, and no reference to another node."""
    values = {name: text for name, text in node.arguments if len(text) < SHORT and not text.startswith("<")}
    return " · ".join(values[name] for name in varying if name in values)


def told_apart(titles: list[str]) -> list[str] | None:
    """Titles without the words that all of them begin or end with; None if they share none, or nothing would be left.

    >>> told_apart(["train small, seed 0", "train large, seed 0"])
    ['small', 'large']
    """
    words = [title.split() for title in titles]
    front = _shared(words)
    back = _shared([list(reversed(one[front:])) for one in words])
    own = [one[front : len(one) - back] for one in words]
    return [" ".join(one).strip(",;:") for one in own] if (front or back) and all(own) else None


def _shared(texts: list[list[str]]) -> int:
    """How many words all texts begin with."""
    return sum(1 for _ in takewhile(lambda words: len(set(words)) == 1, zip(*texts, strict=False)))


def _labels(
    nodes: list[NodeEvidence], dependencies: dict[str, tuple[str, ...]], known: dict[str, str]
) -> dict[str, str]:
    """What tells the nodes of one box apart.

    Their titles without the words that they share, if people gave such titles; else their varying arguments; else the
    label of what only they read.
    """
    if len(nodes) == 1:
        return {nodes[0].key: nodes[0].title}
    short_titles = told_apart([node.title for node in nodes])
    if short_titles and len(set(short_titles)) == len(nodes):
        return {node.key: title for node, title in zip(nodes, short_titles, strict=True)}
    names = dict.fromkeys(name for node in nodes for name, _ in node.arguments)
    varying = [name for name in names if len({dict(node.arguments).get(name) for node in nodes}) > 1]
    shared = set.intersection(*(set(dependencies[node.key]) for node in nodes))
    labels = {}
    for node in nodes:
        inherited = [known[k] for k in dependencies[node.key] if k not in shared and k in known]
        labels[node.key] = _own_label(node, varying) or (inherited[0] if len(inherited) == 1 else node.title)
    return labels if len(set(labels.values())) == len(nodes) else {node.key: node.title for node in nodes}


def _shown(nodes: list[NodeEvidence]) -> list[NodeEvidence]:
    """The nodes of one box that have cells: those without a value first, and then those that ran."""
    if len(nodes) <= MOST:
        return nodes

    def rank(place: int) -> tuple[bool, bool]:
        return nodes[place].status not in ("failed", "skipped"), nodes[place].served

    return [nodes[place] for place in sorted(sorted(range(len(nodes)), key=rank)[:MOST])]


def _links(groups: list[list[NodeEvidence]], folded: _Folded) -> list[Link]:
    box_of = {node.key: index for index, nodes in enumerate(groups) for node in nodes}
    status = {node.key: node.status for nodes in groups for node in nodes}
    edges: dict[tuple[int, int], list[tuple[str, str]]] = defaultdict(list)
    for key, reads in folded.dependencies.items():
        for read in reads:
            edges[box_of[read], box_of[key]].append((read, key))
    links = []
    for (source, target), pairs in sorted(edges.items()):
        one_each = len({a for a, _ in pairs}) == len({b for _, b in pairs}) == len(pairs)
        broken = all(status[a] in ("failed", "skipped") for a, _ in pairs)
        kinds = folded.continued.issuperset(pairs), folded.untaken.issuperset(pairs)
        links.append(Link(source, target, len(pairs), one_each and len(pairs) > 1, broken, *kinds))
    return links


def cluster(nodes: tuple[NodeEvidence, ...], root: str) -> Clusters:
    """The boxes and links that show `nodes`.

    Raises:
        graphlib.CycleError: if the nodes depend on one another in a circle, which records of expressions cannot.
    """
    ordered = topological(nodes)
    by_key = {node.key: node for node in ordered}
    folded = _fold(ordered, root)
    dependencies = folded.dependencies
    boxes: list[Cluster] = []
    groups: list[list[NodeEvidence]] = []
    labels: dict[str, str] = {}
    for depth, keys in _grouped(dependencies, by_key):
        members = [by_key[key] for key in keys]
        here = _labels(members, dependencies, labels)
        labels.update(here if len(members) > 1 else {})
        cells = tuple(Cell(node, here[node.key]) for node in _shown(members))
        boxes.append(Cluster(cells, depth, len(members)))
        groups.append(members)
    return Clusters(tuple(boxes), tuple(_links(groups, folded)), len(nodes) - len(dependencies))
