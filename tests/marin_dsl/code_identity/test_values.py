"""Values of every make: what of them counts, what does not, and that nothing of this process does."""

import pytest

from marin_dsl.code_identity import code_identity
from tests.marin_dsl.code_identity.projects import identity_of, imported

HEAD = """
import attrs, collections, dataclasses, decimal, enum, functools, logging, operator, pathlib, re, threading, typing
import equinox, jax, numpy, optax
def helper(x): return x
def other(x): return x + 1
class C:
    def __init__(self, v): self.v = v
class Slotted:
    __slots__ = ("v",)
    def __init__(self, v): self.v = v
class Words(list): pass
class Problem(Exception): pass
class Colour(enum.Enum):
    RED = 1
    BLUE = 2
@attrs.frozen
class A:
    v: object
@dataclasses.dataclass
class D:
    v: object
class N(typing.NamedTuple):
    v: object
class M(equinox.Module):
    v: object
    def __call__(self, x): return x
"""


def _digest(folder, value: str):
    return identity_of(folder, f"{HEAD}\nVALUE = {value}\ndef target():\n    return VALUE\n")


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("1", "1.0"),
        ("[1, 2]", "(1, 2)"),
        ("{'a': 1}", "{'a': 2}"),
        ("{1, 2}", "frozenset({1, 2})"),
        ("helper", "other"),
        ("[helper]", "[other]"),
        ("[helper, other]", "[other, helper]"),
        ("{'a': helper, 'b': other}", "{'a': other, 'b': helper}"),
        ("{helper: 1, other: 2}", "{helper: 2, other: 1}"),
        ("{helper}", "{other}"),
        ("functools.partial(helper, 1)", "functools.partial(helper, 2)"),
        ("functools.partial(helper, x=1)", "functools.partial(helper, x=2)"),
        ("functools.partial(helper)", "helper"),
        ("C(1)", "C(2)"),
        ("C(helper)", "C(other)"),
        ("Slotted(1)", "Slotted(2)"),
        ("A(1)", "A(2)"),
        ("A(1)", "D(1)"),
        ("D(1)", "D(2)"),
        ("N(1)", "N(2)"),
        ("N(1)", "(1,)"),
        ("M(1)", "M(2)"),
        ("M(helper)", "M(other)"),
        ("Words([1])", "Words([2])"),
        ("Words([1])", "[1]"),
        ("Problem('a')", "Problem('b')"),
        ("Colour.RED", "Colour.BLUE"),
        ("C(1).__init__", "C(2).__init__"),
        ("M(1).__call__", "M(2).__call__"),
        ("C", "Slotted"),
        ("re.compile('a')", "re.compile('b')"),
        ("re.compile('a')", "re.compile('a', re.IGNORECASE)"),
        ("pathlib.Path('a')", "pathlib.Path('b')"),
        ("decimal.Decimal('1.0')", "decimal.Decimal('1.00')"),
        ("numpy.zeros(3)", "numpy.ones(3)"),
        ("numpy.zeros(3)", "numpy.zeros(3, 'float32')"),
        ("numpy.add", "numpy.subtract"),
        ("jax.numpy.add", "jax.numpy.subtract"),
        ("jax.nn.relu", "jax.nn.gelu"),
        ("jax.jit(helper)", "jax.jit(other)"),
        ("jax.grad(helper)", "jax.grad(other)"),
        ("jax.grad(helper, 0)", "jax.grad(helper, 1)"),
        ("jax.vmap(helper)", "jax.vmap(helper, 1)"),
        ("equinox.filter_jit(helper)", "equinox.filter_jit(other)"),
        ("equinox.filter_jit(helper)", "jax.jit(helper)"),
        ("optax.sgd(0.1)", "optax.sgd(0.2)"),
        ("optax.sgd(0.1)", "optax.sgd(0.1, momentum=0.9)"),
        ("operator.add", "operator.sub"),
        ("operator.itemgetter", "operator.attrgetter"),
        ("len", "max"),
        ("str.upper", "str.lower"),
        ("'a'.join", "'b'.join"),
        ("dict.fromkeys", "dict.get"),
        ("list[int]", "list[str]"),
        ("typing.Optional[int]", "typing.Optional[str]"),
        ("int | None", "str | None"),
        ("list[C]", "list[Slotted]"),
        ("typing.TypeVar('T')", "typing.TypeVar('U')"),
        ("...", "NotImplemented"),
        ("functools.lru_cache(2)(helper)", "functools.lru_cache(3)(helper)"),
        ("functools.lru_cache(2)(helper)", "functools.lru_cache(2)(other)"),
        ("collections.OrderedDict(a=1)", "collections.OrderedDict(a=2)"),
        ("collections.OrderedDict(a=1, b=2)", "collections.OrderedDict(b=2, a=1)"),
        ("collections.OrderedDict(a=helper)", "collections.OrderedDict(a=other)"),
        ("collections.defaultdict(list)", "collections.defaultdict(set)"),
        ("collections.Counter('ab')", "collections.Counter('abb')"),
        ("collections.deque([1], 3)", "collections.deque([1], 4)"),
        ("__import__('types').MappingProxyType({1: 2})", "__import__('types').MappingProxyType({1: 3})"),
        ("range(3)", "range(4)"),
        ("'\\ud800'", "'\\ud801'"),
    ],
)
def test_different_values_have_different_digests_that_are_the_same_again(tmp_path, one, other):
    first, second, again = (_digest(tmp_path, value) for value in (one, other, one))
    assert first.digest != second.digest
    assert first.digest == again.digest


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("{'a': 1, 'b': 2}", "{'b': 2, 'a': 1}"),
        ("{'a': helper, 'b': other}", "{'b': other, 'a': helper}"),
        ("{helper, other}", "{other, helper}"),
        ("{1, 2, 3}", "{3, 2, 1}"),
        ("logging.getLogger('a')", "logging.getLogger('b')"),
        ("threading.Lock()", "threading.Lock()"),
        ("numpy.arange(6).reshape(2, 3)", "numpy.asfortranarray(numpy.arange(6).reshape(2, 3))"),
        ("functools.reduce", "__import__('functools').reduce"),
    ],
)
def test_what_makes_no_difference_makes_none(tmp_path, one, other):
    assert _digest(tmp_path, one).digest == _digest(tmp_path, other).digest


def test_a_value_that_contains_itself_is_hashed(tmp_path):
    text = "V = [1, {}]\nV.append(V)\nV[1]['self'] = V\ndef target():\n    return V\n"
    one, two, again = (identity_of(tmp_path, t).digest for t in (text, text.replace("[1,", "[2,"), text))
    assert one != two
    assert one == again


def test_an_object_without_an_encoding_counts_by_its_type_and_is_said_to(tmp_path):
    open_file = _digest(tmp_path, "__import__('sys').__stdout__")
    (sentence,) = open_file.opaque
    assert sentence.endswith(".main.VALUE is a io.TextIOWrapper, which has no encoding: only its type counts")


def test_a_path_beside_the_module_moves_with_the_project_and_another_does_not(tmp_path):
    beside = "pathlib.Path(__file__).parent / 'data'"
    one, two = _digest(tmp_path / "here", beside), _digest(tmp_path / "there", beside)
    assert one.opaque[0].endswith("VALUE is a path: its text counts, not what lies there")
    listed = [identity_of(tmp_path, f"import pathlib\nP = pathlib.Path('{p}')\ndef target(): return P\n") for p in "ab"]
    assert listed[0].digest != listed[1].digest
    assert one.digest != listed[0].digest
    assert _same_package(tmp_path / "a", beside) == _same_package(tmp_path / "b", beside)
    assert len(two.opaque) == 1


def _same_package(folder, value):
    text = f"{HEAD}\nVALUE = {value}\ndef target():\n    return VALUE\n"
    with imported(folder, {"main.py": text}, "same_place") as package:
        return code_identity(__import__(f"{package.__name__}.main", fromlist=["target"]).target).digest


def test_a_cached_property_that_was_computed_is_no_state(tmp_path):
    text = """
import functools
class C:
    @functools.cached_property
    def size(self): return 1
VALUE = C()
def target(): return VALUE
"""
    assert (
        identity_of(tmp_path, text).digest == identity_of(tmp_path, text.replace("C()\n", "C()\nVALUE.size\n")).digest
    )


def test_a_filled_cache_is_no_state(tmp_path):
    text = "import functools\n@functools.lru_cache\ndef f(x): return x\ndef target(): return f(1)\n"
    assert identity_of(tmp_path, text).digest == identity_of(tmp_path, f"{text}target()\n").digest


def test_calling_jitted_code_changes_nothing(tmp_path):
    text = "import jax, equinox\n@jax.jit\ndef f(x): return x\n@equinox.filter_jit\ndef g(x): return x\n"
    text += "def target(): return f(1), g(1)\n"
    assert identity_of(tmp_path, text).digest == identity_of(tmp_path, f"{text}target()\n").digest


def test_a_module_used_as_a_value_counts_with_every_definition_in_it(tmp_path):
    main = "from . import tools\ndef target(name): return run(tools, name)\ndef run(module, name): return module\n"
    local = "def target(name):\n    from . import tools\n    return run(tools)\ndef run(module): return module\n"
    for text in (main, local):
        digests = set()
        for amount in (1, 2):
            with imported(tmp_path, {"main.py": text, "tools.py": f"def f(): return {amount}\n"}) as package:
                digests.add(code_identity(__import__(f"{package.__name__}.main", fromlist=["target"]).target).digest)
        assert len(digests) == 2
