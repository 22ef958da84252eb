"""Digests of definitions that may refer to each other in circles.

Definitions form a graph with ordered edges. Outside circles a definition's digest covers the digests of what it names.
A circle (a strongly connected component) is one unit: its members are told apart by refining their digests round by
round until no round tells more of them apart (Moore's partition refinement, with digests as the names of classes). What
comes out depends on the graph alone, not on the member that was asked first.
"""

import hashlib
from collections.abc import Iterable, Iterator, Sequence

import attrs

from .normal_form import framed


@attrs.define(eq=False)
class Node:
    """One definition or value: its own content and, in order, what it refers to."""

    shape: bytes = b""
    edges: list["Node"] = attrs.field(factory=list)
    unordered: bool = False
    digest: bytes | None = None

    def fill(self, parts: "Iterable[str | bytes | Node]") -> "Node":
        """Set the content: texts are framed, nodes leave a mark."""
        shape = []
        for part in parts:
            if isinstance(part, Node):
                self.edges.append(part)
                shape.append(b"*")
            else:
                shape.append(framed(part))
        self.shape = b"".join(shape)
        return self


def digest_of(root: Node) -> bytes:
    """The 32-byte digest of a node, covering everything that can be reached from it."""
    for component in _components(root):
        if len(component) == 1 and component[0] not in component[0].edges:
            component[0].digest = _sha256(b"one", component[0].shape, _over(component[0], {}))
        else:
            _digest_circle(component)
    assert root.digest is not None
    return root.digest


def _digest_circle(members: Sequence[Node]) -> None:
    names = {member: _sha256(b"circle", member.shape) for member in members}
    classes = 0
    while len(set(names.values())) > classes:
        classes = len(set(names.values()))
        names = {member: hashlib.sha256(name + _over(member, names)).digest() for member, name in names.items()}
    unit = _sha256(b"unit", *sorted(set(names.values())))
    for member, name in names.items():
        member.digest = _sha256(b"member", unit, name)


def _over(node: Node, names: dict[Node, bytes]) -> bytes:
    parts = [names.get(edge) or edge.digest or b"" for edge in node.edges]
    return b"".join(sorted(parts) if node.unordered else parts)


def _sha256(*parts: bytes) -> bytes:
    return hashlib.sha256(b"".join(map(framed, parts))).digest()


def _components(root: Node) -> Iterator[list[Node]]:
    """Strongly connected components, what is referred to before what refers (Tarjan 1972, with an explicit stack)."""
    index: dict[Node, int] = {root: 0}
    low = {root: 0}
    path, on_path = [root], {root}
    work = [(root, iter(root.edges))]
    while work:
        node, edges = work[-1]
        for edge in edges:
            if edge.digest is None and edge not in index:
                index[edge] = low[edge] = len(index)
                path.append(edge)
                on_path.add(edge)
                work.append((edge, iter(edge.edges)))
                break
            if edge in on_path:
                low[node] = min(low[node], index[edge])
        else:
            work.pop()
            if work:
                low[work[-1][0]] = min(low[work[-1][0]], low[node])
            if low[node] == index[node]:
                yield _popped(path, node, on_path)


def _popped(path: list[Node], until: Node, on_path: set[Node]) -> list[Node]:
    component: list[Node] = []
    while not component or component[-1] is not until:
        component.append(path.pop())
    on_path.difference_update(component)
    return component
