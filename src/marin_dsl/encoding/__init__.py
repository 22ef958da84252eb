"""A value is its canonical bytes: one deterministic encoding serves identity and storage.

The encoding is deterministic CBOR (RFC 8949, section 4.2) with a small closed set of tags. The digest of a value is the
SHA-256 of its encoding, and the bytes in a store *are* the encoding. Whatever has no encoding is refused, with the
path to the part that has none.
"""

from marin_dsl.encoding.functions import NO_FUNCTIONS, Functions
from marin_dsl.encoding.leaves import LEAF_THRESHOLD, BoundLeaf, Leaf, LeafMissing, ReadLeaf
from marin_dsl.encoding.reader import Named, NamedFunction, Undecodable, decode, leaves_of
from marin_dsl.encoding.registry import Unencodable, encodable, register_codec
from marin_dsl.encoding.writer import (
    Encoded,
    Encoder,
    RawValue,
    encode,
    encode_with_leaves,
    format_digest,
    parse_digest,
)

__all__ = [
    "LEAF_THRESHOLD",
    "NO_FUNCTIONS",
    "BoundLeaf",
    "Encoded",
    "Encoder",
    "Functions",
    "Leaf",
    "LeafMissing",
    "Named",
    "NamedFunction",
    "RawValue",
    "ReadLeaf",
    "Undecodable",
    "Unencodable",
    "decode",
    "encodable",
    "encode",
    "encode_with_leaves",
    "format_digest",
    "leaves_of",
    "parse_digest",
    "register_codec",
]
