"""The identity as a whole: listings, differences, what is left out or added, operators, speed."""

import textwrap

import pytest

from marin_dsl.code_identity import CodeIdentity, code_identity, diff, exploration
from tests.marin_dsl.code_identity.projects import identity_in, identity_of, imported

HELPED = """
import json

RATE = 3

def helper(x):
    # multiply
    return x * RATE

def target(x):
    return json.dumps(helper(x))
"""


def test_an_identity_has_32_bytes_and_lists_what_counts_as_written(tmp_path):
    identity = identity_of(tmp_path, HELPED)
    assert isinstance(identity, CodeIdentity)
    assert len(identity.digest) == 32
    texts = {name.rpartition(".")[2]: text for name, text in identity.listing.items()}
    assert texts == {
        "helper": "def helper(x):\n    # multiply\n    return x * RATE\n",
        "target": "def target(x):\n    return json.dumps(helper(x))\n",
        "RATE": "RATE = 3\n",
    }
    assert identity.opaque == ()


def test_a_method_is_listed_dedented_with_its_decorators(tmp_path):
    text = """
    class C:
        @property
        def size(self):
            return 1

    def target():
        return C().size
    """
    listing = identity_of(tmp_path, textwrap.dedent(text)).listing
    (size,) = (shown for name, shown in listing.items() if name.endswith("C.size"))
    assert size == "@property\ndef size(self):\n    return 1\n"


def test_two_lambdas_of_one_name_are_listed_apart(tmp_path):
    listing = identity_of(tmp_path, "a = lambda: 1\nb = lambda: 2\ndef target():\n    return a() + b()\n").listing
    assert [name.partition(".main.")[2] for name in listing] == ["<lambda>", "<lambda> (2)", "target"]


def test_a_long_constant_is_listed_short_with_a_digest_of_the_rest(tmp_path):
    before, after = (
        identity_of(tmp_path, f"K = {list(range(n))}\ndef target():\n    return K\n").listing for n in (1000, 1001)
    )
    (shown,) = (text for name, text in before.items() if name.endswith(".K"))
    assert len(shown) < 200
    assert "# sha256:" in shown
    assert shown not in after.values()


def test_a_difference_shows_the_changed_definition_and_constant_and_nothing_else(tmp_path):
    with imported(tmp_path, {"main.py": HELPED}, "same") as package:
        assert package.__name__ == "same"
        old = code_identity(__import__("same.main", fromlist=["target"]).target).listing
    edited = HELPED.replace("RATE = 3", "RATE = 4").replace("x * RATE", "x + RATE")
    with imported(tmp_path, {"main.py": edited}, "same"):
        new = code_identity(__import__("same.main", fromlist=["target"]).target).listing
    assert diff(old, new) == (
        "--- same.main.RATE (before)\n+++ same.main.RATE (after)\n@@ -1 +1 @@\n-RATE = 3\n+RATE = 4\n"
        "--- same.main.helper (before)\n+++ same.main.helper (after)\n@@ -1,3 +1,3 @@\n def helper(x):\n"
        "     # multiply\n-    return x * RATE\n+    return x + RATE\n"
    )


def test_there_is_no_difference_between_a_listing_and_itself(tmp_path):
    listing = identity_of(tmp_path, HELPED).listing
    assert diff(listing, listing) == ""


def test_a_definition_that_is_only_in_one_listing_is_added_or_removed():
    assert diff({}, {"m.f": "x = 1"}) == "--- m.f (before)\n+++ m.f (after)\n@@ -0,0 +1 @@\n+x = 1\n"
    assert "-x = 1" in diff({"m.f": "x = 1"}, {})


# ---- includes and excludes

INCLUDED = """
def hidden(x):
    return x + {amount}

def noisy(x):
    return x - {amount}

LEVEL = {amount}

def target(x, name="hidden"):
    noisy(LEVEL)
    return globals()[name](x)
"""


def _with(folder, amount, *, includes=(), excludes=()):
    with imported(folder, {"main.py": INCLUDED.format(amount=amount)}) as package:
        main = __import__(f"{package.__name__}.main", fromlist=["target"])
        return code_identity(
            main.target,
            includes=tuple(getattr(main, name) for name in includes),
            excludes=tuple(getattr(main, name, name.format(self=package.__name__)) for name in excludes),
        )


def test_what_is_included_counts_although_nothing_names_it(tmp_path):
    excludes = ("noisy", "{self}.main.LEVEL")
    assert _with(tmp_path, 1, excludes=excludes).digest == _with(tmp_path, 2, excludes=excludes).digest
    one, two = (_with(tmp_path, amount, includes=("hidden",), excludes=excludes).digest for amount in (1, 2))
    assert one != two


def test_including_something_changes_the_digest(tmp_path):
    assert _with(tmp_path, 1).digest != _with(tmp_path, 1, includes=("hidden",)).digest


@pytest.mark.parametrize("excludes", [("noisy",), ("{self}.main.LEVEL",)])
def test_only_what_is_excluded_does_not_count(tmp_path, excludes):
    assert _with(tmp_path, 1, excludes=excludes).digest != _with(tmp_path, 2, excludes=excludes).digest


def test_an_excluded_module_does_not_count_nor_what_is_in_it(tmp_path):
    digests = set()
    for amount in (1, 2):
        files = {
            "tools.py": f"K = {amount}\ndef tool():\n    return {amount}\n",
            "main.py": "from . import tools\nfrom .tools import tool\n"
            "def target():\n    tools\n    return tool(), tools.K\n",
        }
        with imported(tmp_path, files) as package:
            main = __import__(f"{package.__name__}.main", fromlist=["target"])
            digests.add(code_identity(main.target, excludes=(main.tools,)).digest)
    assert len(digests) == 1


def test_a_plain_value_cannot_be_excluded():
    with pytest.raises(TypeError, match=r"excludes= was given 3: it takes functions.*'package.module.NAME'"):
        code_identity(len, excludes=(3,))


# ---- operators

OPERATORS = """
class Operator:
    def __init__(self, function, version=None):
        self.function, self.version = function, version

    @property
    def __marin_identity__(self):
        raise AssertionError("the identity of an operator without a version is its code")

    @property
    def __marin_code__(self):
        return b"name", self.function, (), ()

@Operator
def even(n):
    return n == 0 or odd(n - 1)

@Operator
def odd(n):
    return n != 0 and even(n - {step})

@Operator
def factorial(n):
    return n * factorial(n - {step})
"""


@pytest.mark.parametrize("name", ["even", "odd", "factorial"])
def test_operators_that_call_each_other_in_a_circle_have_an_identity(tmp_path, name):
    digests = set()
    for step in (1, 1, 2):
        with imported(tmp_path, {"main.py": OPERATORS.format(step=step)}) as package:
            main = __import__(f"{package.__name__}.main", fromlist=["even"])
            digests.add(code_identity(getattr(main, name).function).digest)
    assert len(digests) == 2


def test_an_operator_with_an_identity_of_its_own_is_not_looked_into(tmp_path):
    text = """
class Versioned:
    __marin_identity__ = b"version 1"
    def __call__(self, x):
        return x + {amount}

called = Versioned()

def target(x):
    return called(x)
"""
    digests = {identity_of(tmp_path, text.format(amount=amount)).digest for amount in (1, 2)}
    assert len(digests) == 1


def test_an_operator_keeps_its_own_exclusions_where_another_operator_calls_it(tmp_path):
    text = """
class Operator:
    __marin_identity__ = b""
    def __init__(self, function, excludes):
        self.__marin_code__ = b"name", function, (), excludes

def noisy():
    return {amount}

def called_plainly():
    return noisy()

operator = Operator(called_plainly, (noisy,))

def through_operator():
    return operator()

def directly():
    return operator(), called_plainly()
"""
    through, directly = (
        {identity_of(tmp_path, text.format(amount=amount), name).digest for amount in (1, 2)}
        for name in ("through_operator", "directly")
    )
    assert (len(through), len(directly)) == (1, 2)


# ---- opacity and speed


@pytest.mark.parametrize(
    ("body", "sentence"),
    [
        ("return getattr(x, x + 'y')", "getattr() with a name computed while running"),
        ("return eval(x)", "eval() reaches code by text or name"),
        ("exec(x)", "exec() reaches code by text or name"),
        ("return __import__(x)", "__import__() reaches code"),
        ("import importlib\n    return importlib.import_module(x)", "import_module() reaches code"),
        ("from importlib import import_module\n    return import_module(x)", "import_module() reaches code"),
        ("return globals()[x]", "globals() reaches code"),
        ("return undefined(x)", "the name undefined has no value yet"),
        ("global counter\n    counter = 1", "it assigns the global name counter"),
        ("return lock", "is a _io.TextIOWrapper"),
        ("from . import nothing_here\n    return nothing_here", "there is no"),
        ("from .broken import x\n    return x", "cannot import broken to see it (ZeroDivisionError"),
        ("return broken_name.x", "the name broken_name has no value"),
        ("return sibling", "is used as a value: every definition in it counts"),
        ("return path", "its text counts, not what lies there"),
    ],
)
def test_what_cannot_be_seen_is_said(tmp_path, body, sentence):
    preface = "import sys, pathlib\nfrom . import sibling\nlock = sys.__stdout__\npath = pathlib.Path('/somewhere')\n"
    files = {
        "main.py": f"{preface}def target(x):\n    {body}\n",
        "broken.py": "x = 1 / 0\n",
        "sibling.py": "def f():\n    return 1\n",
    }
    opaque = identity_in(tmp_path, files).opaque
    assert len(opaque) == 1
    assert sentence.replace("_io.", "io.") in opaque[0]


def test_reading_an_attribute_by_a_literal_name_is_not_opaque(tmp_path):
    assert identity_of(tmp_path, "def target(x):\n    return getattr(x, 'y', None)\n").opaque == ()


@pytest.mark.parametrize("last", ["len(x)", "f0(x)"], ids=["a chain", "a circle"])
def test_each_of_200_definitions_is_read_once(tmp_path, last, monkeypatch):
    body = "    total = 0\n    for item in x:\n        total += item * K\n    return total + f{next}(x)\n"
    functions = "".join(f"def f{n}(x):\n{body.format(next=n + 1)}\n" for n in range(200))
    with imported(tmp_path, {"main.py": f"K = 3\n{functions}def f200(x):\n    return {last}\n"}) as package:
        main = __import__(f"{package.__name__}.main", fromlist=["f0"])
        read: list[str] = []
        normal_form = exploration.normal_form
        monkeypatch.setattr(exploration, "normal_form", lambda found: read.append(found.name) or normal_form(found))
        identity = code_identity(main.f0)
    assert len(identity.listing) == 202
    assert sorted(read) == sorted(f"f{n}" for n in range(201))


def test_a_chain_of_helpers_deeper_than_the_stack_is_hashed(tmp_path):
    functions = "".join(f"def f{n}(x):\n    return f{n + 1}(x)\n" for n in range(3000))
    assert len(identity_of(tmp_path, f"{functions}def f3000(x):\n    return x\n", "f0").listing) == 3001


def test_an_expression_deeper_than_the_stack_is_hashed(tmp_path):
    assert identity_of(tmp_path, f"def target(x):\n    return x{' + x' * 900}\n").digest
