"""L1, L2, L10 of values: stable, injective, exact, and nobody's mutation is seen by another."""

import copy
import os
import pickle
import subprocess
import sys
import tempfile

import attrs
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from marin_dsl import digest
from marin_dsl.encoding import decode, encode, encode_with_leaves
from marin_dsl.testing import same, values


@given(values())
def test_l2_a_decoded_value_is_the_encoded_one_with_its_types_and_bits(value):
    encoded = encode_with_leaves(value)
    leaves = encoded.leaves
    back = decode(encoded.data, read_leaf=lambda name, size: b"".join(leaves[name].chunks()))
    assert same(back, value)
    assert encode(back) == encoded.data


@given(values(max_leaves=6), values(max_leaves=6))
def test_l2_two_values_have_one_encoding_exactly_when_they_are_one_typed_value(one, other):
    assert (encode(one) == encode(other)) == same(one, other)


@given(st.data())
def test_l2_changing_one_part_changes_the_encoding(data):
    parts = data.draw(st.lists(values(max_leaves=3), min_size=1, max_size=4))
    place = data.draw(st.integers(0, len(parts) - 1))
    changed = [*parts[:place], data.draw(values(max_leaves=3)), *parts[place + 1 :]]
    assert (encode(changed) == encode(parts)) == same(changed[place], parts[place])


@given(values())
def test_l1_copies_and_pickles_have_the_same_encoding(value):
    data = encode(value)
    assert encode(copy.deepcopy(value)) == data
    assert encode(pickle.loads(pickle.dumps(value))) == data


@given(st.dictionaries(st.text() | st.integers(), values(max_leaves=2), max_size=6), st.randoms())
def test_l1_the_order_of_a_dict_is_no_part_of_it(value, random):
    items = list(value.items())
    random.shuffle(items)
    assert encode(dict(items)) == encode(value)


@given(st.sets(st.text() | st.integers() | st.binary(), max_size=20), st.randoms())
def test_l1_the_order_in_which_a_set_was_built_is_no_part_of_it(members, random):
    shuffled = list(members)
    random.shuffle(shuffled)
    assert encode(set(shuffled)) == encode(members)
    assert encode(frozenset(shuffled)) == encode(frozenset(members))


_PROGRAM = """
import pickle, sys
from marin_dsl.encoding import encode
for value in pickle.load(sys.stdin.buffer):
    print(encode(value).hex())
"""


def _encodings_in(values, seed, folder):
    environment = {**os.environ, "PYTHONHASHSEED": seed, "TZ": "Asia/Kathmandu", "LC_ALL": "C", "HOME": str(folder)}
    environment["PYTHONPATH"] = os.pathsep.join(os.path.abspath(place) for place in sys.path if place)
    command = [sys.executable, "-c", _PROGRAM]
    done = subprocess.run(command, input=pickle.dumps(values), capture_output=True, env=environment, cwd=folder)
    assert done.returncode == 0, done.stderr.decode()
    return done.stdout.decode().split()


@settings(max_examples=3)
@given(st.lists(values(), min_size=30, max_size=60))
def test_l1_l4_another_process_hash_seed_zone_locale_and_folder_give_the_same_encodings(drawn):
    with tempfile.TemporaryDirectory() as folder:
        assert _encodings_in(drawn, "4242", folder) == [encode(value).hex() for value in drawn]


@given(values())
def test_l10_what_is_done_to_one_decoded_value_is_not_seen_in_the_next(value):
    data = encode(value)
    _spoil(decode(data))
    assert same(decode(data), value)
    assert encode(value) == data


def _spoil(value):
    """Change all that can be changed in a value."""
    if isinstance(value, list):
        for part in value:
            _spoil(part)
        value.append("spoilt")
    elif isinstance(value, tuple):
        for part in value:
            _spoil(part)
    elif isinstance(value, dict):
        for part in value.values():
            _spoil(part)
        value.clear()
    elif isinstance(value, set):
        value.add("spoilt")
    elif isinstance(value, np.ndarray):
        with pytest.raises(ValueError, match="read-only"):
            value[...] = value
        with pytest.raises(ValueError, match="WRITEABLE"):
            value.flags.writeable = True


def test_l10_the_arrays_of_two_readers_cannot_be_changed_by_either():
    encoded = encode_with_leaves({"weights": np.arange(100_000.0)})
    content = {name: b"".join(leaf.chunks()) for name, leaf in encoded.leaves.items()}
    one = decode(encoded.data, read_leaf=lambda name, size: content[name])
    with pytest.raises(ValueError, match="read-only"):
        one["weights"][0] = 7


def test_digest_is_the_sha256_of_the_encoding():
    import hashlib

    assert digest([1, "two"]) == "sha256:" + hashlib.sha256(encode([1, "two"])).hexdigest()


def test_same_tells_apart_what_the_encoding_must_tell_apart():
    @attrs.frozen
    class Point:
        x: object

    assert not same(Point(1), Point(True))
    assert same(Point(float("nan")), Point(float("nan")))
    assert not same({1: "a"}, {True: "a"})
    assert not same({1}, {1, 2})
    assert not same([0.0], [-0.0])
