"""Values of inline nodes, made from values that are stored or were made in the same way.

A part of a value is passed on with its large leaves unread, and so is a value that becomes part of another one.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from marin_dsl.encoding import Encoded, Leaf, RawValue, decode, encode_with_leaves
from marin_dsl.expression.inline import InlineFunction
from marin_dsl.expression.keys import splice
from marin_dsl.outcome import Ok
from marin_dsl.planning.node import Node
from marin_dsl.store import ContentDamaged, Store, StoredValue

_OPENED = 8
"""Values that are kept open for projections: those of one value mostly come one after the other."""


class InlineValues:
    """Reads values of nodes, and computes those of inline nodes.

    Args:
        store: where values are read.
    """

    def __init__(self, store: Store) -> None:
        self.store = store
        self._opened: dict[bytes, Any] = {}

    def load(self, node: Node) -> Any:
        """The value of a node that has one."""
        if node.encoded is not None:
            return decode(node.encoded.data, read_leaf=self._leaf_reader(node.encoded.leaves))
        return self.store.get(_located(node))

    def open(self, node: Node) -> Any:
        """The value of a node with its large leaves unread, to be looked at only.

        Raises:
            LookupError: its class makes something of the leaves when it is built, so that they cannot be left unread.
        """
        assert node.digest is not None
        if node.digest not in self._opened:
            manifest = node.encoded.data if node.encoded else self.store.manifest(_located(node))
            value = decode(manifest, read_leaf=self.store.read_leaf, lazy=True)
            if _encoded(value).data != manifest:
                raise LookupError("the value is another one when its leaves are unread")
            while len(self._opened) >= _OPENED:
                del self._opened[next(iter(self._opened))]
            self._opened[node.digest] = value
        return self._opened[node.digest]

    def peek(self, node: Node) -> Any:
        """The value of a node, with its large leaves unread if it can be had so."""
        try:
            return self.open(node)
        except LookupError:
            return self.load(node)

    def encoded(self, node: Node) -> Encoded:
        """The value of a node that has one, as it is encoded; large leaves that are stored stay there."""
        if node.encoded is not None:
            return node.encoded
        value = _located(node)
        return Encoded(self.store.manifest(value), {digest: Leaf(digest, size, None) for digest, size in value.leaves})

    def of_outcomes(self, node: Node, inputs: Sequence[Node]) -> Encoded:
        """The value that an inline operator makes of the outcomes of its inputs; values among them are not read."""
        return _encoded(_inline(node).function(**self._decoded(node, inputs, self._outcome)))

    def of_values(self, node: Node, inputs: Sequence[Node]) -> Encoded:
        """The value that an inline operator makes of the values of its inputs."""
        found = self._part(node, inputs)
        if found is None:
            found = _encoded(_inline(node).function(**self._decoded(node, inputs, self.load)))
        return found

    def _outcome(self, node: Node) -> Any:
        return node.outcome() or Ok(RawValue(self.encoded(node)))

    def _part(self, node: Node, inputs: Sequence[Node]) -> Encoded | None:
        """The value of a projection without reading leaves; None where that is not possible."""
        part = _inline(node).part
        if part is None:
            return None
        try:
            found = _encoded(part(**self._decoded(node, inputs, self.open)))
        except Exception:
            return None  # whatever is wrong shows when it is tried on the whole value
        at_hand = dict(node.expression.leaves)
        for item in inputs:
            at_hand |= item.encoded.leaves if item.encoded else {}
        return Encoded(found.data, {digest: at_hand.get(digest, leaf) for digest, leaf in found.leaves.items()})

    def _decoded(self, node: Node, inputs: Sequence[Node], load: Callable[[Node], Any]) -> dict[str, Any]:
        """The arguments of a node, with what `load` gives for each input."""
        by_key = {found.expression.key: found for found in inputs}
        found: dict[str, Any] = decode(
            splice(node.expression.payload, (item.key for item in node.expression.references)),
            read_leaf=self._leaf_reader(node.expression.leaves),
            reference=lambda key: load(by_key[key]),
        )
        return found

    def _leaf_reader(self, leaves: Mapping[bytes, Leaf]) -> Callable[[bytes, int], Any]:
        def read(digest: bytes, size: int) -> Any:
            leaf = leaves.get(digest)
            return self.store.read_leaf(digest, size) if leaf is None or leaf.content is None else _content(leaf)

        return read


def _encoded(value: Any) -> Encoded:
    """A value on its way to whoever needs it, functions that stand only in memory included."""
    return encode_with_leaves(value, functions="any")


def _inline(node: Node) -> InlineFunction:
    assert isinstance(node.expression.operator, InlineFunction)
    return node.expression.operator


def _located(node: Node) -> StoredValue:
    assert node.value is not None
    return node.value


def _content(leaf: Leaf) -> Any:
    """The content of a literal or of a computed array, if it still is what it was when its digest was taken."""
    if isinstance(leaf.content, Path):
        found: Any = leaf.content
        digest = Leaf.of_file(leaf.content).digest
    else:
        found = b"".join(leaf.chunks())
        digest = hashlib.sha256(found).digest()
    if digest != leaf.digest:
        raise ContentDamaged(
            f"a large value ({leaf.size} bytes) changed after it became part of an expression; pass a copy, and leave "
            "files that a value refers to as they are"
        )
    return found
