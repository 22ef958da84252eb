"""Every pair of some two hundred and fifty values of all kinds, and the way back of each."""

import collections
import itertools

import pytest

from marin_dsl.encoding import decode, encode, encode_with_leaves
from marin_dsl.testing import same
from tests.marin_dsl.encoding import examples

VALUES = {**examples.all_values(), **examples.functions()}


def read_back(value):
    encoded = encode_with_leaves(value)
    return decode(encoded.data, read_leaf=lambda digest, size: b"".join(encoded.leaves[digest].chunks()))


def test_no_two_values_of_different_type_or_content_share_an_encoding():
    by_encoding = collections.defaultdict(list)
    for name, value in VALUES.items():
        by_encoding[encode(value)].append(name)
    assert [names for names in by_encoding.values() if len(names) > 1] == []
    assert len(VALUES) > 240


def test_the_oracle_of_the_other_tests_tells_all_pairs_apart():
    pairs = itertools.combinations(VALUES.items(), 2)
    assert [(one, other) for (one, a), (other, b) in pairs if same(a, b)] == []


@pytest.mark.parametrize("name", VALUES)
def test_a_value_comes_back_with_its_type_and_every_bit(name):
    value = VALUES[name]
    back = read_back(value)
    assert same(back, value)
    assert encode(back) == encode(value)


def test_values_in_containers_come_back_as_well():
    nested = [(name, value, {name: (value, [value])}) for name, value in VALUES.items()]
    assert same(read_back(nested), nested)


def test_hashable_values_can_be_keys_and_members():
    hashable = [value for value in VALUES.values() if _has_hash(value)]
    assert len(hashable) > 160
    for value in hashable:
        assert same(read_back({value: 1}), {value: 1})
        assert same(read_back({value}), {value})
        assert same(read_back(frozenset({value})), frozenset({value}))


def _has_hash(value):
    try:
        hash(value)
    except (TypeError, ValueError):
        return False
    return True


def test_values_read_lazily_encode_as_themselves():
    data = encode(VALUES)
    assert encode(decode(data, lazy=True)) == data


def test_all_nans_are_one_value_whatever_their_payload():
    import struct

    other = struct.unpack(">d", bytes.fromhex("fff8000000000123"))[0]
    assert encode(other) == encode(float("nan")) == bytes.fromhex("f97e00")


def test_two_nans_as_keys_or_members_are_refused_for_they_are_one_value():
    from marin_dsl.encoding import Unencodable

    with pytest.raises(Unencodable, match=r"^two keys of the dict are the same value, although Python tells"):
        encode({float("nan"): 1, float("nan"): 2})
    with pytest.raises(Unencodable, match=r"^two members of the set are the same value, although Python tells"):
        encode({float("nan"), float("nan")})


def test_an_alias_of_an_enumeration_member_is_the_member():
    assert encode(examples.Colour.CRIMSON) == encode(examples.Colour.RED)


def test_a_parametrised_class_is_the_class():
    assert encode(examples.Box[int](1)) == encode(examples.Box(1))


def test_the_name_of_a_fixed_offset_is_no_part_of_a_moment():
    import datetime

    hour = datetime.timedelta(hours=1)
    named = datetime.datetime(2024, 1, 1, tzinfo=datetime.timezone(hour, "CET"))
    assert encode(named) == encode(named.replace(tzinfo=datetime.timezone(hour)))
