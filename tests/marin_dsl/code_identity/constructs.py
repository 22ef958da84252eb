"""The text of one project that uses every construct."""

import textwrap

_PROJECT = {
    "main.py": '''
        """A module."""
        import asyncio
        import contextlib
        import functools
        import math
        import attrs
        import dataclasses
        import enum
        import equinox
        import jax

        from . import settings
        from . import deep as depths
        from .helpers import clean as tidy, scale
        from .starred import *
        from .facade import offered
        from .models import Child, Record, Point, Colour, Layer, Frozen, Plain, INSTANCE

        LIMIT = 10
        NAMES = ["a", "b"]
        TABLE = {"scale": scale, "one": 1}
        square = lambda v: v * v

        def unrelated(x):
            return x + 1

        def also_unrelated(x):
            return x - 1

        def logged(word, times=1):
            def decorate(function):
                @functools.wraps(function)
                def wrapper(*args, **kwargs):
                    return (word * times, function(*args, **kwargs))
                return wrapper
            return decorate

        @logged("note", times=2)
        def decorated(x):
            return x ** 2

        @functools.lru_cache(maxsize=8)
        def cached(x):
            return x + 100

        @jax.vmap
        def mapped(x):
            return x + 200

        @jax.jit
        def jitted(x):
            return x + 300

        @contextlib.contextmanager
        def managed(x):
            yield x + 400

        @functools.singledispatch
        def dispatched(x):
            return "any"

        @dispatched.register
        def _(x: int):
            return "int"

        def make_adder(amount):
            def add(x):
                return x + amount
            return add

        add_five = make_adder(5)
        double = functools.partial(scale, factor=2)
        even = lambda n: n == 0 or odd(n - 1)

        def odd(n):
            return n != 0 and even(n - 1)

        def numbers(n):
            for i in range(n):
                yield i

        async def fetch(x):
            await asyncio.sleep(0)
            return x

        def counted(x, seen=[]):
            seen = seen + [x]
            return len(seen)

        class Operator:
            def __init__(self, identity):
                self.__marin_identity__ = identity

        other_operator = Operator(b"identity of another operator")

        def target(data: list, rate: float = 0.5, *, mode: str = "fast") -> dict:
            """What it does."""
            # a comment
            total = 0
            limit = LIMIT  # a constant
            for item in data:
                if item < limit:
                    total += item
            squares = [square(element) for element in data if element]
            try:
                ratio = total / (len(data) or 1_000)
            except ZeroDivisionError as problem:
                ratio = str(problem)
            message = f"sum is {total:>{limit}} of {len(data)!r}" + 'single'
            def inner(step, scale_by=3):
                part = step * scale_by
                return part
            with managed(total) as held:
                first = held
            last = first
            key = lambda pair: pair[1]
            local: int = 7
            match data:
                case [head, *rest]:
                    local = head
                case {"k": value}:
                    local = value
            if (found := local) is None:
                found = 1
            from .local import lazily
            from . import local as local_module
            child = Child(3)
            results = (
                tidy(data), depths.middle(total), settings.BATCH, child.run(), child.size, Child.KIND,
                Record(1), Point(1, 2), Colour.RED, Layer(1.0)(2), Frozen(), Plain(3), INSTANCE,
                decorated(2), cached(3), mapped(data), jitted(1), dispatched(1), add_five(1), double(2), even(4),
                list(numbers(3)), fetch(1), counted(1), TABLE, NAMES, from_star(), offered(), other_operator,
                lazily(1), local_module.other(2), math.floor(rate), message, ratio, squares, inner(1), last, key, found,
                mode, "text",
            )
            return {"results": results}
    ''',
    "helpers.py": """
        from .deep import middle

        def clean(items):
            return [middle(item) for item in items]

        def scale(value, factor=1):
            return value * factor
    """,
    "deep.py": """
        from . import settings

        def middle(x):
            return bottom(x) + 1

        def bottom(x):
            return x * settings.FACTOR
    """,
    "settings.py": """
        BATCH = 32
        FACTOR = 2
        UNUSED = 1
    """,
    "starred.py": """
        def from_star():
            return "star"
    """,
    "moved.py": """
        from .deep import middle

        def clean(items):
            return [middle(item) for item in items]
    """,
    "facade.py": """
        from .behind import really_offered as offered
    """,
    "behind.py": """
        def really_offered():
            return "behind"
    """,
    "local.py": """
        def lazily(x):
            return x + 11

        def other(x):
            return x + 12

        def untouched(x):
            return x + 13
    """,
    "models.py": """
        import dataclasses
        import enum
        import typing
        import attrs
        import equinox

        class Base:
            def prepare(self):
                return "prepare"

        class Child(Base):
            KIND = "child"

            def __init__(self, number):
                self.number = number

            def run(self):
                return self.prepare(), super().__repr__()

            @property
            def size(self):
                return 5

            @classmethod
            def build(cls):
                return cls(6)

            @staticmethod
            def tool():
                return 8

        @attrs.frozen
        class Record:
            weight: int
            name: str = "record"
            tags: list = attrs.field(factory=list)

        class Point(typing.NamedTuple):
            x: int
            y: int = 4

        class Colour(enum.Enum):
            RED = 1
            GREEN = 2

        class Layer(equinox.Module):
            w: float
            depth: int = equinox.field(static=True, default=2)

            def __call__(self, x):
                return self.w * x

        @dataclasses.dataclass(frozen=True)
        class Frozen:
            count: int = 9

        class Plain:
            def __init__(self, value):
                self.value = value

        INSTANCE = Plain(21)
    """,
}
FILES = {name: textwrap.dedent(text).lstrip() for name, text in _PROJECT.items()}
