"""What has no encoding is refused with its place in the value and the way out."""

import collections
import datetime
import enum
import functools
import io
import pathlib
import zoneinfo

import pytest

from marin_dsl.encoding import Unencodable, encode, format_digest, parse_digest
from tests.marin_dsl.encoding import examples
from tests.marin_dsl.encoding.examples import Pair, Point


def refusal(value):
    with pytest.raises(Unencodable) as caught:
        encode(value)
    return str(caught.value)


class Text(str):
    pass


class Numbers(list):
    pass


class Local(enum.Enum):
    A = 1


SUBCLASS = "is a subclass of {0} and would come back as another type; pass a plain {0}(...)"
FUNCTION = (
    "the function `{}` cannot be imported, so that nobody could read it from a store; define it at the top of a module"
)
PRETENDING = functools.wraps(refusal)(lambda: 1)
OTHER = "a {} has no encoding; pass plain data, or register the class with `register_codec`"
ADVICE = {
    "OrderedDict": (collections.OrderedDict(a=1), "a collections.OrderedDict " + SUBCLASS.format("dict")),
    "Counter": (collections.Counter("a"), "a collections.Counter " + SUBCLASS.format("dict")),
    "defaultdict": (collections.defaultdict(list), "a collections.defaultdict " + SUBCLASS.format("dict")),
    "str subclass": (Text("a"), f"a {__name__}.Text " + SUBCLASS.format("str")),
    "list subclass": (Numbers([1]), f"a {__name__}.Numbers " + SUBCLASS.format("list")),
    "plain named tuple": (
        examples.PlainPair(1),
        "a tests.marin_dsl.encoding.examples.PlainPair has no encoding yet; put `@encodable` above the class PlainPair",
    ),
    "namedtuple": (
        examples.Untyped(1),
        "a tests.marin_dsl.encoding.examples.Untyped has no encoding yet; put `@encodable` above the class Untyped",
    ),
    "lambda": (lambda: 1, FUNCTION.format("<lambda>")),
    "partial": (functools.partial(len), FUNCTION.format("partial")),
    "function that does as if it could be imported": (PRETENDING, FUNCTION.format("refusal")),
    "method": (Text("a").upper, FUNCTION.format("Text.upper")),
    "generator": ((x for x in ()), "a generator can be read only once; pass list(...) of it"),
    "iterator": (iter([1]), "a list_iterator can be read only once; pass list(...) of it"),
    "path": (
        pathlib.PurePosixPath("x"),
        (
            "a pathlib.PurePosixPath names a place, not data; pass `File.of(path)` or `Directory.of(path)`, or its "
            "text with str(...)"
        ),
    ),
    "stream": (io.BytesIO(), "a _io.BytesIO can be read only once; pass its content, or `File.of(path)`"),
    "bytearray": (bytearray(1), OTHER.format("bytearray")),
    "object": (object(), OTHER.format("object")),
    "dict view": ({}.keys(), OTHER.format("dict_keys")),
    "ellipsis": (..., OTHER.format("ellipsis")),
    "time": (datetime.time(1), OTHER.format("datetime.time")),
    "naive moment": (
        datetime.datetime(2024, 1, 2),
        (
            "datetime.datetime(2024, 1, 2, 0, 0) has no time zone that can be written; give it one, e.g. "
            "tzinfo=datetime.timezone.utc"
        ),
    ),
}


@pytest.mark.parametrize("kind", ADVICE)
def test_the_message_tells_what_to_do(kind):
    value, message = ADVICE[kind]
    assert refusal(value) == message


def test_a_zone_without_a_name_cannot_be_written():
    import importlib.resources

    with (importlib.resources.files("tzdata.zoneinfo") / "UTC").open("rb") as stream:
        nameless = zoneinfo.ZoneInfo.from_file(stream)
    assert "has no time zone that can be written" in refusal(datetime.datetime(2024, 1, 1, tzinfo=nameless))


def test_the_path_to_the_part_is_written_as_a_user_would_write_it():
    bad = object()
    assert refusal([1, {"a": (2, bad)}]).startswith("at `[1]['a'][1]`: a object has no encoding")
    assert refusal({3: Point(1, [bad])}).startswith("at `[3].y[0]`: a object")
    assert refusal(Pair(Point(bad))).startswith("at `.left.x`: a object")
    assert refusal({(1, "k"): bad}).startswith("at `[(1, 'k')]`: a object")


def test_a_bad_key_or_member_is_shown_itself():
    assert refusal({Text("k"): 1}).startswith("at `['k']`: a ")
    assert refusal([{Text("m")}]).startswith("at `[0]{'m'}`: a ")
    assert refusal({(1, PRETENDING)}).startswith("at `{(1, <function refusal at 0x")


def test_a_long_key_is_cut_short_in_the_path():
    assert refusal({"k" * 1000: object()}).startswith("at `['" + "k" * 59 + "]`: a object")


def test_a_key_whose_repr_fails_is_shown_by_its_type():
    assert refusal({10**5000: object()}).startswith("at `[<int>]`: a object")


def test_a_broken_repr_is_nobodys_business_while_all_goes_well():
    class Broken(enum.Enum):
        A = 1

        def __repr__(self):
            raise RuntimeError("no")

    Broken.__qualname__ = "Broken"
    globals()["Broken"] = Broken
    assert encode({Broken.A: {Broken.A}})
    assert encode({10**5000: {10**5000}})


def test_a_cyclic_value_is_refused():
    cycle = [1]
    cycle.append({"again": cycle})
    assert refusal(cycle) == "the list contains itself, or is nested too deeply to be data; break the cycle"
    loop = {}
    loop["self"] = [loop]
    assert refusal(loop) == "the dict contains itself, or is nested too deeply to be data; break the cycle"


def test_a_very_deep_value_is_refused_and_a_deep_one_is_not():
    def nested(depth):
        value = []
        for _ in range(depth):
            value = [value]
        return value

    assert "nested too deeply to be data" in refusal(nested(100_000))
    assert encode(nested(150)).startswith(b"\x81")


def test_whatever_can_be_written_can_be_read_at_the_same_depth():
    from marin_dsl.encoding import decode

    value, depth = Point(1), 0
    while True:
        value, depth = {"a": Point((value,))}, depth + 1
        try:
            data = encode(value)
        except Unencodable:
            break
        assert decode(data) == value
        if depth % 7:
            continue
        decode(data, nameless=True)
    assert depth > 40


def test_a_local_enumeration_is_refused_for_nobody_could_read_it():
    class Inner(enum.Enum):
        A = 1

    assert refusal(Inner.A) == (
        f"the enumeration {__name__}:test_a_local_enumeration_is_refused_for_nobody_could_read_it.<locals>.Inner "
        "cannot be imported by that name; define it at the top of a module"
    )


def test_a_digest_is_written_in_full():
    digest = bytes(range(32))
    assert parse_digest(format_digest(digest)) == digest
    right = "sha256:" + "0" * 64
    wrong = ("", "sha256:", right[:-1], right + "0", right[7:], "md5:" + "0" * 64, right.upper(), right + "\n")
    for text in (*wrong, right[:-2] + "  ", right[:-1] + "g", right[:-1] + "A", "sha256:" + "٠" * 64):
        with pytest.raises(ValueError) as caught:
            parse_digest(text)
        assert str(caught.value) == f"{text!r} is no digest: expected `sha256:` and 64 hexadecimal digits"
