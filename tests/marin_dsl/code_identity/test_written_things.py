"""What people really write at the top of a module: each of these edits changes what an operator does."""

import copyreg
import json
import os
import subprocess
import sys
import textwrap

import pytest

from tests.marin_dsl.code_identity.projects import identity_of

CONSTANTS = {
    "namespace": ("types.SimpleNamespace(rate=0.1)", "types.SimpleNamespace(rate=0.2)"),
    "namespace with a function": ("types.SimpleNamespace(f=helper)", "types.SimpleNamespace(f=other)"),
    "namespace with an instance": ("types.SimpleNamespace(f=C(1))", "types.SimpleNamespace(f=C(2))"),
    "parsed arguments": ("argparse.Namespace(rate=0.1)", "argparse.Namespace(rate=0.2)"),
    "item getter": ("operator.itemgetter('a')", "operator.itemgetter('b')"),
    "attribute getter": ("operator.attrgetter('a')", "operator.attrgetter('b')"),
    "method caller": ("operator.methodcaller('lower')", "operator.methodcaller('upper')"),
    "chain of maps": ("collections.ChainMap({'a': 1})", "collections.ChainMap({'a': 2})"),
    "template": ("string.Template('a $x')", "string.Template('b $x')"),
    "zone": ("zoneinfo.ZoneInfo('Europe/Berlin')", "zoneinfo.ZoneInfo('Asia/Tokyo')"),
    "offset": ("datetime.timezone.utc", "datetime.timezone(datetime.timedelta(hours=1))"),
    "time without a zone": ("datetime.datetime(2020, 1, 1)", "datetime.datetime(2021, 1, 1)"),
    "typed array": ("array.array('i', [1])", "array.array('i', [2])"),
    "byte array": ("bytearray(b'a')", "bytearray(b'b')"),
    "view of memory": ("memoryview(b'a')", "memoryview(b'b')"),
    "slice": ("slice(1, 2)", "slice(1, 3)"),
    "structure": ("struct.Struct('<i')", "struct.Struct('>i')"),
    "address": ("ipaddress.ip_address('10.0.0.1')", "ipaddress.ip_address('10.0.0.2')"),
    "decimal context": ("decimal.Context(prec=3)", "decimal.Context(prec=4)"),
    "exception": ("ValueError('a')", "ValueError('b')"),
    "encoder of JSON": ("json.JSONEncoder(sort_keys=True)", "json.JSONEncoder(sort_keys=False)"),
    "wrapper of text": ("textwrap.TextWrapper(width=9)", "textwrap.TextWrapper(width=10)"),
    "signature": ("inspect.signature(lambda a: a)", "inspect.signature(lambda b: b)"),
    "array of objects": ("numpy.array(['a', None], object)", "numpy.array(['b', None], object)"),
    "masked array": ("numpy.ma.array([1, 2], mask=[0, 1])", "numpy.ma.array([1, 2], mask=[1, 0])"),
    "type of elements": ("numpy.dtype('f4')", "numpy.dtype('f8')"),
    "limits of a type": ("numpy.finfo('f4')", "numpy.finfo('f8')"),
    "random key": ("jax.random.key(0)", "jax.random.key(1)"),
    "annotated type": ("typing.Annotated[int, 3]", "typing.Annotated[int, 4]"),
    "type alias": (
        "typing_extensions.TypeAliasType('N', int | str)",
        "typing_extensions.TypeAliasType('N', float | str)",
    ),
}
HEAD = """
import argparse, array, collections, datetime, decimal, inspect, ipaddress, json, operator, string, struct, textwrap
import types, typing, zoneinfo
import jax, numpy, typing_extensions
def helper(x): return x
def other(x): return x + 1
class C:
    def __init__(self, v): self.v = v
"""


def _constant(value):
    return f"{HEAD}\nVALUE = {value}\ndef target(): return VALUE\n"


@pytest.mark.parametrize(("one", "other"), CONSTANTS.values(), ids=CONSTANTS)
def test_a_constant_of_another_maker_counts_with_what_is_in_it(one, other, tmp_path):
    first, second, again = (identity_of(tmp_path, _constant(value)) for value in (one, other, one))
    assert first.digest != second.digest
    assert first.digest == again.digest
    assert first.opaque == ()


def test_such_constants_are_the_same_in_every_process(tmp_path):
    here = [identity_of(tmp_path, _constant(value)).digest.hex() for value, _ in CONSTANTS.values()]
    program = """
    import json, pathlib, sys
    from tests.marin_dsl.code_identity.projects import identity_of
    from tests.marin_dsl.code_identity.test_written_things import CONSTANTS, _constant
    found = [identity_of(pathlib.Path(sys.argv[1]), _constant(v)).digest.hex() for v, _ in CONSTANTS.values()]
    print(json.dumps(found))
    """
    environment = {**os.environ, "PYTHONHASHSEED": "77", "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-c", textwrap.dedent(program), str(tmp_path)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    assert dict(zip(CONSTANTS, json.loads(done.stdout), strict=True)) == dict(zip(CONSTANTS, here, strict=True))


def test_a_way_to_pickle_that_somebody_registers_later_changes_nothing(tmp_path, monkeypatch):
    table = {kind: way for kind, way in copyreg.dispatch_table.items() if not issubclass(kind, BaseException)}
    monkeypatch.setattr(copyreg, "dispatch_table", table)
    before = identity_of(tmp_path, _constant("ValueError('a')"))
    table[ValueError] = lambda error: (ValueError, error.args, {"registered": True})
    assert identity_of(tmp_path, _constant("ValueError('a')")).digest == before.digest


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        ("iter([1])", "builtins.list_iterator"),
        ("__import__('random').Random(0)", "random.Random"),
        ("numpy.random.default_rng(0)", "numpy.random.Generator"),
        ("__import__('threading').Event()", "threading.Event"),
        ("types.SimpleNamespace(lock=__import__('threading').Event())", "types.SimpleNamespace"),
        ("numpy.frompyfunc(helper, 1, 1)", "numpy.ufunc"),
    ],
)
def test_what_using_it_changes_or_nothing_can_pickle_counts_by_its_type_and_is_said_to(value, kind, tmp_path):
    (sentence,) = identity_of(tmp_path, _constant(value)).opaque
    assert sentence.endswith(f".main.VALUE is a {kind}, which has no encoding: only its type counts")


def test_what_a_constant_of_another_maker_is_can_be_read_in_a_difference(tmp_path):
    listing = identity_of(tmp_path, _constant("types.SimpleNamespace(rate=0.1)")).listing
    assert [text for name, text in listing.items() if name.endswith("VALUE")] == ["VALUE = namespace(rate=0.1)\n"]
    hidden = identity_of(tmp_path, _constant("types.SimpleNamespace(f=C(1))")).listing
    assert not [name for name in hidden if name.endswith("VALUE")], "an address says nothing"


CLASSES = {
    "attribute of an enum that is no member": (
        "class E(enum.Enum):\n    A = 1\n    LIMIT = enum.nonmember(5)\ndef target(): return E.LIMIT",
        "nonmember(5)",
        "nonmember(6)",
    ),
    "cached property of an enum": (
        (
            "class E(enum.Enum):\n    A = 1\n    @functools.cached_property\n    def v(self): return 5\n"
            "def target(): return E.A.v"
        ),
        "return 5",
        "return 6",
    ),
    "property of an enum": (
        "class E(enum.Enum):\n    A = 1\n    @enum.property\n    def v(self): return 5\ndef target(): return E.A.v",
        "return 5",
        "return 6",
    ),
    "boundary of flags": (
        "class F(enum.Flag, boundary=enum.KEEP):\n    A = 1\ndef target(): return F(9)",
        "KEEP",
        "EJECT",
    ),
    "text of a dataclass": (
        "@dataclasses.dataclass(repr=True)\nclass D:\n    x: int = 1\ndef target(): return str(D())",
        "repr=True",
        "repr=False",
    ),
    "constructor of a dataclass": (
        "@dataclasses.dataclass(init=True)\nclass D:\n    x: int = 1\ndef target(): return D()",
        "init=True",
        "init=False",
    ),
    "argument that is no field": (
        (
            "@dataclasses.dataclass\nclass D:\n    x: dataclasses.InitVar[int] = 1\n"
            "    def __post_init__(self, *given): self.given = given\ndef target(): return D().given"
        ),
        "dataclasses.InitVar[int]",
        "int",
    ),
    "attribute of the class that is no field": (
        "@dataclasses.dataclass\nclass D:\n    x: typing.ClassVar[int] = 1\n    y: int = 2\ndef target(): return D(5)",
        "typing.ClassVar[int]",
        "int",
    ),
    "text of an attrs class": (
        "@attrs.define(repr=True)\nclass D:\n    x: int = 1\ndef target(): return str(D())",
        "repr=True",
        "repr=False",
    ),
    "attribute that a protocol asks for": (
        "@typing.runtime_checkable\nclass Q(typing.Protocol):\n    size: int\ndef target(x): return isinstance(x, Q)",
        "size",
        "length",
    ),
    "order of a pattern": (
        (
            "class P:\n    __match_args__ = ('x', 'y')\n    x = 1\n    y = 2\ndef target(p):\n    match p:\n"
            "        case P(a, b): return a"
        ),
        "'x', 'y'",
        "'y', 'x'",
    ),
    "order of a dataclass's pattern": (
        (
            "@dataclasses.dataclass\nclass P:\n    x: int\n    y: int\n    __match_args__ = ('x', 'y')\n"
            "def target(p):\n    match p:\n        case P(a, b): return a"
        ),
        "'x', 'y'",
        "'y', 'x'",
    ),
    "constructor in a text without a file": (
        "exec('class A:\\n    def __init__(self): self.x = 1')\ndef target(): return A().x",
        "x = 1",
        "x = 2",
    ),
    "equality in a text without a file": (
        "exec('class A:\\n    def __eq__(self, other): return 1')\ndef target(): return A() == A()",
        "return 1",
        "return 2",
    ),
    "class that is made by a call": (
        "A = dataclasses.make_dataclass('A', [('x', int, 1)])\ndef target(): return A()",
        "int, 1",
        "int, 2",
    ),
    "class that is made by a longer call": (
        "A = types.new_class('A', (), {}, lambda body: body.update(x=1))\ndef target(): return A.x",
        "x=1",
        "x=2",
    ),
    "attribute of a function that is read": (
        "def helper(): return helper.limit\nhelper.limit = 1\ndef target(): return helper()",
        "limit = 1",
        "limit = 2",
    ),
}
_IMPORTS = "import attrs, dataclasses, enum, functools, types, typing\n"


@pytest.mark.parametrize(("text", "old", "new"), CLASSES.values(), ids=CLASSES)
def test_a_class_counts_with_all_that_it_does(text, old, new, tmp_path):
    edited = text.replace(old, new)
    assert edited != text
    first, second, again = (identity_of(tmp_path, _IMPORTS + each).digest for each in (text, edited, text))
    assert first != second
    assert first == again


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("class P:\n    x: int\n    y: int\n", "class P:\n    x: int\n    y: int\n    __match_args__ = ('x', 'y')\n"),
        ("class P:\n    x: int\n", "class P:\n    x: str\n"),
    ],
)
@pytest.mark.parametrize("maker", ["dataclasses.dataclass", "attrs.frozen"])
def test_what_a_class_has_anyway_makes_no_difference(maker, one, other, tmp_path):
    texts = [f"{_IMPORTS}@{maker}\n{each}def target(): return P\n" for each in (one, other)]
    assert identity_of(tmp_path, texts[0]).digest == identity_of(tmp_path, texts[1]).digest
