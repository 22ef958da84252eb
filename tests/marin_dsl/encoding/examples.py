"""Values of every kind and the classes that they need; imported by tests here and in other processes."""

import collections
import dataclasses
import datetime
import decimal
import enum
import fractions
import functools
import math
import typing
import uuid
import zoneinfo
from typing import Generic, NamedTuple, TypeVar

import attrs

from marin_dsl.encoding import encodable

T = TypeVar("T")


@encodable
@attrs.frozen
class Point:
    x: object
    y: object = 0


@encodable
@attrs.frozen
class Position:
    x: object
    y: object = 0


@encodable
@attrs.define(slots=False)
class Loose:
    x: object


@encodable
@attrs.frozen
class Wider(Point):
    z: object = 0


class Unregistered(Point):
    pass


@encodable(name="tests:Schedule", schema=3)
@attrs.frozen
class Schedule:
    rate: float
    warmup: int = attrs.field(default=0, metadata={"neutral": True})
    names: list = attrs.field(factory=list, metadata={"neutral": True})
    decay: float = 0.0


@encodable
@attrs.frozen
class Private:
    _secret: int
    __deeper: int = 2


@encodable
@attrs.frozen
class Split:
    """Its converter does not give back what it is given."""

    words: list = attrs.field(converter=str.split)


@encodable
@attrs.define
class Derived:
    side: int
    area: int = attrs.field(init=False)
    cache: dict = attrs.field(init=False, eq=False, factory=dict)

    def __attrs_post_init__(self):
        self.area = self.side**2


@encodable
@attrs.frozen(cache_hash=True)
class Hashed:
    x: int


@encodable
@attrs.frozen(slots=False, cache_hash=True)
class HashedLoose:
    x: int


@encodable
@dataclasses.dataclass(frozen=True, slots=True)
class Data:
    x: object
    y: list = dataclasses.field(default_factory=list)


@encodable
@dataclasses.dataclass
class Started:
    """It sets an attribute that is no field."""

    seed: int

    def __post_init__(self):
        self.state = self.seed * 7


@encodable
@dataclasses.dataclass(init=False)
class OwnInit:
    total: int

    def __init__(self, *parts):
        self.total = sum(parts)


@encodable
class Pair(NamedTuple):
    left: object
    right: object = None


class PlainPair(NamedTuple):
    left: object


Untyped = collections.namedtuple("Untyped", ["left"])


@encodable
@attrs.frozen
class Box(Generic[T]):
    content: T


class Colour(enum.Enum):
    RED = 1
    GREEN = 2
    CRIMSON = 1  # noqa: PIE796 - an alias is meant


class Shade(enum.Enum):
    RED = 1


class Level(enum.IntEnum):
    LOW = 1


class Word(enum.StrEnum):
    LOW = "low"


class Access(enum.Flag):
    READ = 1
    WRITE = 2


class Mode(enum.IntFlag):
    READ = 1
    WRITE = 2


UTC = datetime.UTC
ZONE = zoneinfo.ZoneInfo("Europe/Zurich")
AMBIGUOUS = datetime.datetime(2023, 10, 29, 2, 30)
NAN = float("nan")


def plain() -> dict[str, object]:
    """Values that need only the standard library, by name; no two are the same typed value."""
    return {
        "none": None,
        "true": True,
        "false": False,
        **{f"int {n}": n for n in (0, 1, -1, 23, 24, 255, 256, 65535, 65536, 1023, 1024, 2**32, 2**53, 2**63)},
        **{f"int {n}": n for n in (-24, -25, -(2**63), 2**64 - 1, 2**64, -(2**64), -(2**64) - 1, 10**50, -(10**50))},
        **{f"float {x}": x for x in (0.0, -0.0, 1.0, -1.0, 1.5, 0.1, 65504.0, 65505.0, 1e300, 5e-324, 2.0**-24)},
        **{f"float {x}": x for x in (float("inf"), float("-inf"), NAN, float(2**53), 3.4028234663852886e38)},
        **{f"complex {z}": z for z in (0j, complex(-0.0, 0.0), complex(0.0, -0.0), complex(-0.0, -0.0), 1 + 0j)},
        "complex nan": complex(NAN, 1.0),
        **{f"str {s!r}": s for s in ("", "1", "1.0", "a", "A", "é", "e\u0301", "\0", "a\0", "𝒳", "None", "true")},
        **{f"surrogate {s!r}": s for s in ("\ud800", "\udc80", "\ud83d\ude00", "\U0001f600", "a\udcff")},
        **{f"bytes {b!r}": b for b in (b"", b"1", b"a", b"\0", b"\xed\xa0\x80", bytes(100))},
        "empty list": [],
        "empty tuple": (),
        "empty dict": {},
        "empty set": set(),
        "empty frozenset": frozenset(),
        "list of 1": [1],
        "list of 1.0": [1.0],
        "list of True": [True],
        "tuple of 1": (1,),
        "set of 1": {1},
        "frozenset of 1": frozenset({1}),
        "set of True": {True},
        "list of an empty list": [[]],
        "list of an empty tuple": [()],
        "nested list": [[1], [2]],
        "nested otherwise": [[1, 2]],
        "nested flat": [1, 2],
        "reversed": [2, 1],
        "dict of 1": {1: "a"},
        "dict of 1.0": {1.0: "a"},
        "dict of True": {True: "a"},
        "dict of '1'": {"1": "a"},
        "dict of b'1'": {b"1": "a"},
        "dict as pairs": [(1, "a")],
        "dict to none": {1: None},
        "dict of a tuple": {(1, 2): "a"},
        "dict of a frozenset": {frozenset({1, 2}): "a"},
        "dict of two": {"b": 1, "aa": 2},
        "set of a tuple": {(1,)},
        "set of two": {1, "1"},
        "set of frozensets": {frozenset(), frozenset({1})},
        **{f"decimal {d}": decimal.Decimal(d) for d in ("1", "1.0", "1.00", "0", "-0", "0E+3", "1E+5", "100000")},
        **{f"decimal {d}": decimal.Decimal(d) for d in ("NaN", "-NaN", "NaN12", "sNaN", "Infinity", "-Infinity")},
        "fraction 1": fractions.Fraction(1),
        "fraction 1/3": fractions.Fraction(1, 3),
        "fraction -1/3": fractions.Fraction(-1, 3),
        **{f"{r}": r for r in (range(0), range(1, 1), range(3), range(0, 3, 2), range(0, 4, 2), range(3, 0, -1))},
        "uuid": uuid.UUID(int=1),
        "uuid as bytes": uuid.UUID(int=1).bytes,
        "date": datetime.date(2024, 2, 29),
        "date as text": "2024-02-29",
        "timedelta 0": datetime.timedelta(),
        "timedelta day": datetime.timedelta(days=1),
        "timedelta back": datetime.timedelta(microseconds=-1),
        "moment": datetime.datetime(2024, 2, 29, tzinfo=UTC),
        "moment finer": datetime.datetime(2024, 2, 29, 0, 0, 0, 1, tzinfo=UTC),
        "moment elsewhere": datetime.datetime(2024, 2, 29, 1, tzinfo=datetime.timezone(datetime.timedelta(hours=1))),
        "moment odd offset": datetime.datetime(2024, 2, 29, tzinfo=datetime.timezone(datetime.timedelta(seconds=-7))),
        "moment in a zone": datetime.datetime(2024, 2, 29, tzinfo=ZONE),
        "moment in UTC by name": datetime.datetime(2024, 2, 29, tzinfo=zoneinfo.ZoneInfo("UTC")),
        "moment ambiguous": AMBIGUOUS.replace(tzinfo=ZONE),
        "moment ambiguous later": AMBIGUOUS.replace(tzinfo=ZONE, fold=1),
        "colour": Colour.RED,
        "other colour": Colour.GREEN,
        "shade": Shade.RED,
        "level": Level.LOW,
        "word": Word.LOW,
        "word as text": "low",
        "flags none": Access(0),
        "flags one": Access.READ,
        "flags two": Access.READ | Access.WRITE,
        "int flags": Mode.READ,
        "int flags more": Mode(8),
        "point": Point(1, 2),
        "point of floats": Point(1.0, 2),
        "position": Position(1, 2),
        "wider": Wider(1, 2),
        "wider in z": Wider(1, 2, 3),
        "loose": Loose(1),
        "point as dict": {"x": 1, "y": 2},
        "data": Data(1),
        "data with a list": Data(1, [None]),
        "pair": Pair(1, 2),
        "pair as tuple": (1, 2),
        "private": Private(1, 3),
        "split": Split("a b"),
        "derived": Derived(3),
        "hashed": Hashed(3),
        "hashed loose": HashedLoose(3),
        "started": Started(3),
        "own init": OwnInit(1, 2),
        "box": Box(1),
        "box of a box": Box(Box(1)),
        "box of a point": typing.cast(object, Box[Point](Point(1))),
        "schedule": Schedule(0.1),
        "schedule with warmup": Schedule(0.1, warmup=5),
        "schedule with names": Schedule(0.1, names=["a"]),
        "large text": "x" * 70_000,
        "large text as bytes": b"x" * 70_000,
        "large surrogates": "\ud800" * 40_000,
        "nearly large text": "x" * 65_535,
        "just large text": "x" * 65_536,
        "in a list: large text": ["x" * 70_000],
    }


def of_numpy() -> dict[str, object]:
    """The same with arrays and scalars of NumPy and ml_dtypes."""
    import ml_dtypes
    import numpy as np

    numbers = np.arange(6, dtype=np.int32)
    return {
        **{f"scalar {t}": np.dtype(t).type(1) for t in ("bool", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8")},
        **{f"scalar {t}": np.dtype(t).type(1) for t in ("f2", "f4", "f8", "c8", "c16")},
        **{f"scalar {t}": np.dtype(getattr(ml_dtypes, t)).type(1) for t in ("bfloat16", "float8_e5m2", "int4")},
        "scalar -0.0": np.float64(-0.0),
        "scalar nan": np.float64(NAN),
        "scalar text": np.str_("1"),
        "scalar empty text": np.str_(""),
        "scalar bytes": np.bytes_(b"1"),
        "scalar bytes with NUL": np.bytes_(b"1\0"),
        "scalar day": np.datetime64("2024-02-29"),
        "scalar second": np.datetime64("2024-02-29T00:00:00"),
        "scalar no time": np.datetime64("NaT"),
        "scalar span": np.timedelta64(1, "s"),
        **{f"array {t}": np.ones(3, t) for t in ("bool", "i1", "u1", "i4", "i8", "f2", "f4", "f8", "c8", "M8[s]")},
        **{f"array {t}": np.ones(3, getattr(ml_dtypes, t)) for t in ("bfloat16", "float8_e5m2", "float8_e4m3fn")},
        "array of text": np.array(["a", "bc"]),
        "array of wider text": np.array(["a", "bc"], "U3"),
        "array of bytes": np.array([b"a", b"bc"]),
        "array without dimension": np.array(1),
        "array of one": np.array([1]),
        "array empty": np.zeros(0),
        "array empty 0x3": np.zeros((0, 3)),
        "array empty 3x0": np.zeros((3, 0)),
        "array empty of ints": np.zeros(0, int),
        "array 6": numbers,
        "array 2x3": numbers.reshape(2, 3),
        "array 3x2": numbers.reshape(3, 2),
        "array transposed": numbers.reshape(2, 3).T,
        "array backwards": numbers[::-1],
        "array strided": np.arange(12, dtype=np.int32)[::2],
        "array as list": [0, 1, 2, 3, 4, 5],
        "array of NaN": np.array([NAN]),
        "array of another NaN": np.array([0x7FF8000000000001]).view(np.float64),
        "array large": np.arange(20_000.0),
        "array large otherwise": np.arange(20_000.0)[::-1],
        "array large 2d": np.arange(20_000.0).reshape(2, -1),
        "point of arrays": Point(numbers, {"w": np.ones(2)}),
    }


def named(x):
    """A function at the top of a module."""
    return x


def functions() -> dict[str, object]:
    """Functions and classes that can be imported; what they are changes with their code."""
    import numpy as np

    return {
        "function": named,
        "function of a class": Started.__post_init__,
        "class": Point,
        "another class": Position,
        "enumeration": Colour,
        "built-in function": len,
        "another built-in function": sorted,
        "built-in class": int,
        "built-in class of numbers": float,
        "function of C": math.sin,
        "method descriptor": str.upper,
        "function of NumPy": np.mean,
        "universal function": np.add,
        "scalar class of NumPy": np.float32,
        "function of the standard library": functools.reduce,
        "class of the standard library": collections.OrderedDict,
        "text of a place": f"{__name__}:named",
        "place and nothing": (f"{__name__}:named", None),
    }


def all_values() -> dict[str, object]:
    """All whose encoding never changes."""
    return {**plain(), **of_numpy()}
