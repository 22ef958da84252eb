"""Functions whose digests are stored: any change of these digests gives every operator without a version a new identity."""
# ruff: noqa

import abc
import argparse
import array
import asyncio
import contextlib
import dataclasses
import datetime
import decimal
import enum
import functools
import ipaddress
import json
import math
import operator
import pathlib
import re
import string
import struct
import textwrap
import types
import typing
import zoneinfo
from collections import ChainMap, OrderedDict
from pathlib import Path

import attrs

LIMIT = 10
TABLE = {"a": [1, 2.5, None], "b": {3, 4}}
PATTERN = re.compile(r"a+", re.IGNORECASE)
FOLDER = Path("data") / "raw"
Number = typing.Union[int, float]
Names = list[str]
T = typing.TypeVar("T")


def arithmetic(x, y=2, *rest, key=None, **options):
    """Sums."""
    total: int = 0
    for value in rest:
        total += value**y if value > LIMIT else -value
    else:
        total -= 1_0
    while total > 10 and not key:
        total //= 2
    del value
    assert total, "nothing"
    return {**options, "total": total, "all": (x, *rest), "slice": x[1:2, ::3]}


def texts(x, width=4):
    plain = f"no field"
    nested = f"{x!r:>{width}} and {x=} {{}} {'inner' + str(width):<{width}.{width}}tail{x:}"
    return plain + nested + rb"bytes\n".decode() + "\u00e9"


def matching(command):
    match command:
        case {"go": direction, **others} if others:
            return direction
        case [first, *_, last] | (first, last):
            return first, last
        case complex(real=r, imag=0) as whole:
            return r, whole
        case -1 | 1.5 | None | True | "text":
            return 0
        case _:
            raise ValueError(command) from None


def catching(x):
    try:
        with open(x) as file, contextlib.suppress(OSError):
            return file.read()
    except* ValueError as group:
        print(group)
    finally:
        print("done")


def scoped(x):
    counter = 0

    def count(step=LIMIT):
        nonlocal counter
        counter += step
        return [counter + (last := i) for i in range(x) if i if x], last

    class Local(list):
        size: int = 3
        other = size

        def both(self):
            return super().__len__() + self.size

    return count(), Local().both(), {k: v for k, v in zip(x, x)}, {s for s in x}, (lambda q, /, z=1: q + z)(2)


async def asynchronous(x):
    async with x as y:
        async for item in y:
            yield [i async for i in item if await i]
    await asyncio.sleep(0)


def is_even(n):
    return n == 0 or is_odd(n - 1)


def is_odd(n):
    return n != 0 and is_even(n - 1)


def importing(x):
    import os.path as path
    from json import dumps

    try:
        import tomllib as reader
    except ImportError:
        reader = None
    return path.join(dumps(x), "y"), reader


class Shape(abc.ABC):
    sides = 0

    @abc.abstractmethod
    def area(self): ...

    @property
    def double(self):
        return 2 * self.area()

    @functools.cached_property
    def triple(self):
        return 3 * self.area()


@functools.total_ordering
class Square(Shape):
    __slots__ = ("edge",)
    sides = 4

    def __init__(self, edge):
        super().__init__()
        self.edge = edge

    def area(self):
        return self.edge**2

    def __lt__(self, other):
        return self.edge < other.edge

    @classmethod
    def unit(cls):
        return cls(1)

    @staticmethod
    def name():
        return "square"


class Colour(enum.Enum):
    RED = 1
    BLUE = enum.auto()

    @property
    def label(self):
        return self.name.lower()


class Level(enum.IntEnum):
    LOW = 1


class Bits(enum.Flag):
    A = 1
    B = 2


@dataclasses.dataclass(frozen=True, order=True)
class Data:
    x: int
    tags: list = dataclasses.field(default_factory=list, metadata={"unit": "m"})


@attrs.frozen
class Fields:
    x: int = attrs.field(default=1, converter=int, validator=attrs.validators.instance_of(int))
    tags: list = attrs.field(factory=list, kw_only=True)


class Pair(typing.NamedTuple):
    left: int
    right: str = "r"


class Speaks(typing.Protocol):
    def speak(self) -> str: ...


class Entry(typing.TypedDict):
    key: str


class Box(typing.Generic[T]):
    def __init__(self, content: T) -> None:
        self.content = content


def classes(x):
    return Square(x), Colour.RED, Level.LOW, Bits.A, Data(1), Fields(), Pair(1), Speaks, Entry, Box[int], Shape


@functools.lru_cache(maxsize=None)
def cached(x):
    return x


@functools.singledispatch
def dispatched(x):
    return 0


@dispatched.register
def _(x: str):
    return 1


@contextlib.contextmanager
def managed(x):
    yield x


def repeated(times):
    def decorate(function):
        @functools.wraps(function)
        def wrapper(*args):
            return [function(*args) for _ in range(times)]

        return wrapper

    return decorate


@repeated(3)
def decorated(x):
    return x


nothing, one, two, chosen = (lambda: None), (lambda: 1), (lambda: 2), (lambda x: x if x else 2)
half = functools.partial(arithmetic, y=0.5)
DATA, BOX, ORDER = Data(2), Box([Data(3)]), OrderedDict(a=1)


def values(x):
    return (
        LIMIT,
        TABLE,
        PATTERN,
        FOLDER,
        Number,
        Names,
        half,
        DATA,
        BOX,
        Colour.BLUE,
        [cached, dispatched],
        managed,
        decorated(x),
    )


def libraries(x):
    return (
        math.floor(x),
        Path(x),
        pathlib.PurePath,
        len,
        print,
        str.upper,
        functools.reduce,
        re.sub,
        asyncio.run,
        dict.fromkeys,
    )


class Limits(enum.Flag, boundary=enum.KEEP):
    ONE = 1
    MOST = enum.nonmember(7)

    @enum.property
    def half(self):
        return self.MOST / 2

    @functools.cached_property
    def third(self):
        return self.MOST / 3


@dataclasses.dataclass(repr=False)
class Kinds:
    given: dataclasses.InitVar[int] = 1
    shared: typing.ClassVar[int] = 2
    __match_args__ = ("shared",)


@typing.runtime_checkable
class Sized(typing.Protocol):
    size: int


MADE = dataclasses.make_dataclass("MADE", [("x", int, 1)])
OTHERS = (
    types.SimpleNamespace(rate=0.1, f=arithmetic), argparse.Namespace(b=1, a=2), operator.itemgetter("a", 1),
    operator.attrgetter("a.b"), operator.methodcaller("lower"), string.Template("a $x"), ChainMap({"a": 1}),
    zoneinfo.ZoneInfo("UTC"), datetime.datetime(2020, 1, 2), datetime.timezone.utc, slice(1, None), bytearray(b"a"),
    memoryview(b"a"), struct.Struct("<i"), ipaddress.ip_address("10.0.0.1"), decimal.Context(prec=3), ValueError("a"),
    json.JSONEncoder(sort_keys=True), textwrap.TextWrapper(width=9), array.array("i", [1]), typing.Annotated[int, 3],
)  # fmt: skip


def others(x):
    return OTHERS, Limits.ONE.half, Kinds(x), isinstance(x, Sized), MADE(x)


GOLDEN = (
    arithmetic, texts, matching, catching, scoped, asynchronous, is_even, is_odd, importing, classes, cached, dispatched,
    managed, decorated, half, values, libraries, Square, Colour, Data, Fields, Pair,
    others,
)  # fmt: skip
