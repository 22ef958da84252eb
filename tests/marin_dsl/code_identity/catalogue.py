"""Edits of one project that uses every construct: those that keep an operator's code and those that change it."""

import re

import attrs

from tests.marin_dsl.code_identity.constructs import FILES


@attrs.frozen
class Edit:
    """Replace `old` by `new` at its one place in a file, or at all places where it is a whole word."""

    name: str
    old: str
    new: str
    file: str = "main.py"
    every_word: bool = False

    def applied(self) -> dict[str, str]:
        """The project after the edit."""
        pattern = rf"\b{self.old}\b" if self.every_word else re.escape(self.old)
        text, places = re.subn(pattern, lambda _: self.new, FILES[self.file])
        assert places == 1 or (self.every_word and places), f"{self.name}: {self.old!r} occurs {places} times"
        return {**FILES, self.file: text}


def _renamed(file: str, old: str, new: str) -> Edit:
    return Edit(f"{old} renamed {new}", old, new, file, every_word=True)


KEPT = [
    Edit("comment edited", "# a comment", "# quite another comment"),
    Edit("comment removed", "    # a comment\n", ""),
    Edit("comment added at the end of a line", "total = 0", "total = 0  # start"),
    Edit("blank lines", "    total = 0\n", "\n\n    total = 0\n\n"),
    Edit("blank lines above", "def target(", "\n\n\n\ndef target("),
    Edit("layout: a call over several lines", "len(data) or 1_000", "len(\n        data\n    ) or 1_000"),
    Edit("layout: spaces", "total / (len", "total/(len"),
    Edit("layout: statements on one line", "total = 0\n    limit = LIMIT ", "total = 0; limit = LIMIT "),
    Edit("docstring edited", '"""What it does."""', '"""Something else."""'),
    Edit("docstring removed", '    """What it does."""\n', ""),
    Edit("docstring of a helper", "    return bottom(x)", '    """Help."""\n    return bottom(x)', "deep.py"),
    Edit("docstring of a class", "class Base:\n", 'class Base:\n    """Base."""\n', "models.py"),
    Edit("docstring of the module", '"""A module."""', '"""Another."""'),
    Edit("annotation of a parameter", "data: list", "data: tuple"),
    Edit("annotation removed", "rate: float = 0.5", "rate=0.5"),
    Edit("annotation of the result", ") -> dict:", ") -> object:"),
    Edit("annotation of a local", "local: int = 7", "local = 7"),
    Edit("declaration without a value", "    total = 0\n", "    total: int\n    total = 0\n"),
    Edit("annotation of an attrs field", "weight: int", "weight: float", "models.py"),
    Edit("annotation of an Equinox field", "w: float", "w: object", "models.py"),
    _renamed("main.py", "total", "tally"),
    _renamed("main.py", "squares", "powers"),
    _renamed("main.py", "element", "each"),
    _renamed("main.py", "problem", "error"),
    _renamed("main.py", "inner", "nested"),
    _renamed("main.py", "part", "piece"),
    _renamed("main.py", "held", "taken"),
    _renamed("main.py", "head", "front"),
    _renamed("main.py", "found", "result"),
    _renamed("main.py", "wrapper", "outer"),
    _renamed("main.py", "local_module", "module"),
    _renamed("main.py", "tidy", "neat"),
    _renamed("main.py", "depths", "profound"),
    _renamed("main.py", "LIMIT", "BOUND"),
    _renamed("deep.py", "bottom", "floor"),
    _renamed("main.py", "make_adder", "adder"),
    Edit("unrelated definition edited", "return x + 1\n", "return x + 2\n"),
    Edit("unrelated definition removed", "def also_unrelated(x):\n    return x - 1\n", ""),
    Edit("unrelated definition added", "def unrelated(x)", "def new(x):\n    return 1\n\ndef unrelated(x)"),
    Edit("unrelated constant edited", "UNUSED = 1", "UNUSED = 2", "settings.py"),
    Edit("unrelated function of a locally imported module", "x + 13", "x + 14", "local.py"),
    Edit("unrelated import", "import math\n", "import math\nimport json\n"),
    Edit(
        "definitions reordered",
        "def unrelated(x):\n    return x + 1\n\ndef also_unrelated(x):\n    return x - 1\n",
        "def also_unrelated(x):\n    return x - 1\n\ndef unrelated(x):\n    return x + 1\n",
    ),
    Edit(
        "helpers reordered",
        "def middle(x):\n    return bottom(x) + 1\n\ndef bottom(x):\n    return x * settings.FACTOR\n",
        "def bottom(x):\n    return x * settings.FACTOR\n\ndef middle(x):\n    return bottom(x) + 1\n",
        "deep.py",
    ),
    Edit(
        "methods reordered",
        "    @classmethod\n    def build(cls):\n        return cls(6)\n\n"
        "    @staticmethod\n    def tool():\n        return 8\n",
        "    @staticmethod\n    def tool():\n        return 8\n\n"
        "    @classmethod\n    def build(cls):\n        return cls(6)\n",
        "models.py",
    ),
    Edit("quotes of a string", '"text"', "'text'"),
    Edit(
        "quotes of an f-string",
        'f"sum is {total:>{limit}} of {len(data)!r}"',
        "f'sum is {total:>{limit}} of {len(data)!r}'",
    ),
    Edit("f-string in two pieces", 'f"sum is {total:>{limit}} of {len', 'f"sum is {total:>{limit}}" f" of {len'),
    Edit("string in two pieces", '"text"', '"te" "xt"'),
    Edit("string by escape", '"text"', '"t\\x65xt"'),
    Edit("parentheses", "total += item", "total += (item)"),
    Edit("parentheses around a condition", "if item < limit:", "if (item < limit):"),
    Edit(
        "parentheses around a tuple",
        "return (word * times, function(*args, **kwargs))",
        "return word * times, function(*args, **kwargs)",
    ),
    Edit("trailing comma", 'mode, "text",\n', 'mode, "text"\n'),
    Edit("spelling of an integer", "1_000", "1000"),
    Edit("spelling of an integer in another base", "1_000", "0x3E8"),
    Edit("spelling of a float", "rate: float = 0.5", "rate: float = 5e-1"),
    Edit("value of a constant computed", "LIMIT = 10\n", "LIMIT = 5 + 5\n"),
    Edit("pass beside a statement", "    seen = seen + [x]", "    pass\n    seen = seen + [x]"),
    Edit(
        "import through the module itself",
        "from .facade import offered",
        "from .behind import really_offered as offered",
    ),
    Edit(
        "helper moved to another module",
        "from .helpers import clean as tidy, scale",
        "from .moved import clean as tidy\nfrom .helpers import scale",
    ),
    Edit("star import spelled out", "from .starred import *", "from .starred import from_star"),
]

CHANGED = [
    Edit("operator", "item < limit", "item <= limit"),
    Edit("arithmetic", "total += item", "total -= item"),
    Edit("statement added", "    last = first\n", "    last = first\n    last += 1\n"),
    Edit("statement removed", "            total += item\n", "            pass\n"),
    Edit("order of two statements", "    total = 0\n    limit = LIMIT ", "    limit = LIMIT\n    total = 0 "),
    Edit("one local for another", "first = held", "first = total"),
    Edit("default", "rate: float = 0.5", "rate: float = 0.25"),
    Edit("type of a default", "rate: float = 0.5", "rate: float = 5"),
    Edit("default of a keyword", 'mode: str = "fast"', 'mode: str = "slow"'),
    Edit("default removed", "scale_by=3", "scale_by"),
    Edit("default of a nested function", "scale_by=3", "scale_by=4"),
    Edit("mutable default", "seen=[]", "seen=[0]"),
    Edit("parameter renamed", "rate", "speed", every_word=True),
    Edit("parameter of a lambda renamed", "lambda pair: pair[1]", "lambda duo: duo[1]"),
    Edit("parameter made keyword-only", "rate: float = 0.5, *, mode", "*, rate: float = 0.5, mode"),
    Edit(
        "helper at depth 1",
        "return [middle(item) for item in items]",
        "return [middle(item) for item in items if item]",
        "helpers.py",
    ),
    Edit("helper at depth 2", "return bottom(x) + 1", "return bottom(x) + 2", "deep.py"),
    Edit("helper at depth 3", "return x * settings.FACTOR", "return settings.FACTOR * x", "deep.py"),
    Edit("constant", "LIMIT = 10\n", "LIMIT = 11\n"),
    Edit("type of a constant", "LIMIT = 10\n", "LIMIT = 10.0\n"),
    Edit("constant in a list", 'NAMES = ["a", "b"]', 'NAMES = ["b", "a"]'),
    Edit("constant in a dict", '"one": 1', '"one": 2'),
    Edit("function in a dict", '{"scale": scale', '{"scale": tidy'),
    Edit("constant in another module", "BATCH = 32", "BATCH = 64", "settings.py"),
    Edit("constant in another module at depth 3", "FACTOR = 2", "FACTOR = 3", "settings.py"),
    Edit("module-level lambda", "lambda v: v * v", "lambda v: v * v * v"),
    Edit("method", "return self.prepare(), super()", "return None, super()", "models.py"),
    Edit("constructor", "self.number = number", "self.number = -number", "models.py"),
    Edit("method of a base class", 'return "prepare"', 'return "ready"', "models.py"),
    Edit("base class", "class Child(Base)", "class Child", "models.py"),
    Edit("property", "return 5", "return 6", "models.py"),
    Edit("class method", "cls(6)", "cls(7)", "models.py"),
    Edit("static method", "return 8", "return 9", "models.py"),
    Edit("property made a method", "    @property\n", "", "models.py"),
    Edit("class attribute", 'KIND = "child"', 'KIND = "kid"', "models.py"),
    Edit("default of an attrs field", 'name: str = "record"', 'name: str = "disc"', "models.py"),
    Edit("attrs field renamed", "weight: int", "mass: int", "models.py"),
    Edit("factory of an attrs field", "factory=list", "factory=dict", "models.py"),
    Edit("attrs flags", "@attrs.frozen\n", "@attrs.define\n", "models.py"),
    Edit("default of a NamedTuple", "y: int = 4", "y: int = 5", "models.py"),
    Edit("enum member", "GREEN = 2", "GREEN = 3", "models.py"),
    Edit("enum member added", "GREEN = 2", "GREEN = 2\n    BLUE = 3", "models.py"),
    Edit("enum members reordered", "RED = 1\n    GREEN = 2", "GREEN = 2\n    RED = 1", "models.py"),
    Edit("method of an Equinox module", "return self.w * x", "return self.w + x", "models.py"),
    Edit("static field of an Equinox module", "static=True, default=2", "static=True, default=3", "models.py"),
    Edit("default of a dataclass", "count: int = 9", "count: int = 10", "models.py"),
    Edit("state of an instance", "Plain(21)", "Plain(22)", "models.py"),
    Edit("class of an instance", "self.value = value", "self.value = [value]", "models.py"),
    Edit("body of a decorator", "return (word * times, function", "return (word + word, function"),
    Edit("argument of a decorator", '@logged("note", times=2)', '@logged("remark", times=2)'),
    Edit("keyword of a decorator", '@logged("note", times=2)', '@logged("note", times=3)'),
    Edit("decorator removed", '@logged("note", times=2)\n', ""),
    Edit("decorated body", "return x ** 2", "return x ** 3"),
    Edit("cached body", "x + 100", "x + 101"),
    Edit("size of a cache", "maxsize=8", "maxsize=9"),
    Edit("vmapped body", "x + 200", "x + 201"),
    Edit("jitted body", "x + 300", "x + 301"),
    Edit("vmap made jit", "@jax.vmap", "@jax.jit"),
    Edit("body of a context manager", "x + 400", "x + 401"),
    Edit("registered implementation", 'return "int"', 'return "integer"'),
    Edit("registered type", "def _(x: int)", "def _(x: str)"),
    Edit("closure value", "make_adder(5)", "make_adder(6)"),
    Edit("closure body", "return x + amount", "return amount + x"),
    Edit("nested function", "part = step * scale_by", "part = step + scale_by"),
    Edit("nested lambda", "pair[1]", "pair[0]"),
    Edit("comprehension", "square(element) for element in data if element]", "square(element) for element in data]"),
    Edit("partial keyword", "factor=2)", "factor=3)"),
    Edit("partial function", "functools.partial(scale, factor=2)", "functools.partial(tidy, factor=2)"),
    Edit("member of a circle", "n == 0 or odd", "n == 1 or odd"),
    Edit("other member of a circle", "n != 0 and", "n != 1 and"),
    Edit("generator made a list", "for i in range(n):\n        yield i", "return [i for i in range(n)]"),
    Edit("async made plain", "async def fetch(x):\n    await asyncio.sleep(0)\n", "def fetch(x):\n"),
    Edit("exception caught", "except ZeroDivisionError", "except ArithmeticError"),
    Edit("string", '"text"', '"Text"'),
    Edit("text of an f-string", "sum is {total", "sum was {total"),
    Edit("format specification", ":>{limit}", ":<{limit}"),
    Edit("conversion", "len(data)!r", "len(data)!s"),
    Edit("number", "1_000", "1_001"),
    Edit("pattern", "[head, *rest]", "[*rest, head]"),
    Edit("walrus removed", "if (found := local) is None:\n", "found = 3\n    if local is None:\n"),
    Edit(
        "global bound to something else",
        "from .helpers import clean as tidy, scale",
        "from .helpers import scale\ntidy = scale",
    ),
    Edit("star import", 'return "star"', 'return "planet"', "starred.py"),
    Edit("name shadows a star import", "LIMIT = 10\n", "LIMIT = 10\ndef from_star():\n    return 0\n"),
    Edit("re-exported function", 'return "behind"', 'return "before"', "behind.py"),
    Edit(
        "re-export of something else",
        "import really_offered as offered",
        "import really_offered\noffered = len",
        "facade.py",
    ),
    Edit("called operator", 'b"identity of another operator"', 'b"identity after an edit"'),
    Edit("target of a local import", "x + 11", "x + 111", "local.py"),
    Edit("attribute of a locally imported module", "x + 12", "x + 112", "local.py"),
    Edit("third-party function", "math.floor(rate)", "math.ceil(rate)"),
    Edit("key of the result", '{"results": results}', '{"outcome": results}'),
    Edit("builtin", "list(numbers(3))", "set(numbers(3))"),
    Edit("builtin shadowed", "LIMIT = 10\n", "LIMIT = 10\ndef len(x):\n    return 0\n"),
    Edit("type of an enum value", "RED = 1", 'RED = "1"', "models.py"),
    Edit("class renamed", "INSTANCE = Plain", "Plain.__name__ = 'Simple'\nINSTANCE = Plain", "models.py"),
]
