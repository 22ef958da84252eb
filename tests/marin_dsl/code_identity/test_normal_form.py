"""The normal form of syntax: which spellings are one, which are two."""

import ast

import pytest

from marin_dsl.code_identity.normal_form import Outer, constant, framed, normal_form
from marin_dsl.code_identity.scopes import Imported


def _form(text: str):
    return normal_form(ast.parse(text).body[0])


def _body(body: str, signature: str = "x"):
    return _form(f"def f({signature}):\n" + "".join(f"    {line}\n" for line in body.splitlines()))


SAME = [
    ("return 1", "'doc'\nreturn 1"),
    ("pass", "..."),
    ("pass", "'only a docstring'"),
    ("a: int = 1\nreturn a", "a = 1\nreturn a"),
    ("a = 1\nreturn a", "b = 1\nreturn b"),
    ("for a in x:\n    b = a\nreturn b", "for b in x:\n    a = b\nreturn a"),
    ("return [a for a in x]", "return [b for b in x]"),
    ("return [a for a in [b for b in x]]", "return [a for a in [a for a in x]]"),
    ("return {a: b for a, b in x}", "return {k: v for k, v in x}"),
    ("def g(y):\n    z = y\n    return z\nreturn g", "def h(y):\n    w = y\n    return w\nreturn h"),
    ("def g():\n    nonlocal_ = x\n    return nonlocal_\nreturn g", "def g():\n    y = x\n    return y\nreturn g"),
    ("with x as a:\n    return a", "with x as b:\n    return b"),
    ("try:\n    x()\nexcept E as e:\n    return e", "try:\n    x()\nexcept E as error:\n    return error"),
    ("match x:\n    case [a, *b]:\n        return a, b", "match x:\n    case [c, *d]:\n        return c, d"),
    ("match x:\n    case {'k': a, **b}:\n        return a", "match x:\n    case {'k': c, **d}:\n        return c"),
    ("match x:\n    case int() as a:\n        return a", "match x:\n    case int() as b:\n        return b"),
    ("if (a := x):\n    return a", "if (b := x):\n    return b"),
    ("[(a := y) for y in x]\nreturn a", "[(b := z) for z in x]\nreturn b"),
    ("import os as a\nreturn a.path", "import os as b\nreturn b.path"),
    ("from os import path\nreturn path", "from os import path as p\nreturn p"),
    (
        "class C:\n    def m(self):\n        a = 1\n        return a",
        "class C:\n    def m(self):\n        b = 1\n        return b",
    ),
    ("a = 1\nclass C:\n    def m(self):\n        return a", "b = 1\nclass C:\n    def m(self):\n        return b"),
    ("a = 1\ndef g():\n    nonlocal a\n    a = 2", "b = 1\ndef g():\n    nonlocal b\n    b = 2"),
    ("return f'a{x}b' 'c'", "return f'a{x}' 'bc'"),
    ("return f'{x:}'", "return f'{x}'"),
    ("return f'plain'", "return 'plain'"),
    ("return f'{{}}'", "return '{}'"),
    ("return 0x10, 1e3, b'a'", "return 16, 1000.0, b'\\x61'"),
    ("return u'a'", "return 'a'"),
    ("return (x), ((1)), (x)[0]", "return x, 1, x[0]"),
    ("a: int\nreturn x", "return x"),
]
DIFFERENT = [
    ("return 1", "return 1.0"),
    ("return 1", "return True"),
    ("return 0.0", "return -0.0"),
    ("return '1'", "return b'1'"),
    ("return 'a', 'b'", "return 'a' 'b'"),
    ("return None", "return"),
    ("return x.a", "return x.b"),
    ("return x(a=1)", "return x(b=1)"),
    ("return x[1:2]", "return x[1]"),
    ("return (x,)", "return [x]"),
    ("a = b = x\nreturn a", "a = b = x\nreturn b or a"),
    ("a = x\nb = 1\nreturn a", "a = x\nb = 1\nreturn b"),
    ("return [a for a in x]", "return [a for a in x if a]"),
    ("return [a for a in x]", "return (a for a in x)"),
    ("return [a for b in x for a in b]", "return [b for b in x for a in b]"),
    ("return [(a := y) for y in x]", "return [y for y in x]"),
    ("a = 1\ndef g():\n    nonlocal a\n    a = 2", "a = 1\ndef g():\n    a = 2"),
    ("global a\na = 1", "a = 1"),
    ("global a\na = 1", "global b\nb = 1"),
    ("def g(y):\n    return y", "def g(z):\n    return z"),
    ("def g(y=1):\n    return y", "def g(y=2):\n    return y"),
    ("def g(y, z=1):\n    return y", "def g(y=1, z=1):\n    return y"),
    ("def g(*, y=1, z):\n    return y", "def g(*, y, z=1):\n    return y"),
    ("def g(*y):\n    return y", "def g(**y):\n    return y"),
    ("def g(y, /):\n    return y", "def g(y):\n    return y"),
    ("@x\ndef g():\n    return 1", "def g():\n    return 1"),
    ("class C:\n    a = 1", "class C:\n    b = 1"),
    ("class C:\n    a: int", "class C:\n    b: int"),
    ("class C:\n    a: int = 1", "class C:\n    a = 1"),
    ("class C(x):\n    pass", "class C:\n    pass"),
    ("class C:\n    pass", "class D:\n    pass"),
    ("class C(m=x):\n    pass", "class C(n=x):\n    pass"),
    ("a = 1\nclass C:\n    a = a", "a = 1\nclass C:\n    a = 1"),
    ("a = 1\nreturn locals()", "b = 1\nreturn locals()"),
    ("a = 1\nreturn vars()", "b = 1\nreturn vars()"),
    ("a = 1\nreturn eval('a')", "b = 1\nreturn eval('b')"),
    ("return f'{x}'", "return f'{x!r}'"),
    ("return f'{x}'", "return f'{x:>3}'"),
    ("return f'{x=}'", "return f'{x}'"),
    ("a = 1\nreturn f'{a=}'", "b = 1\nreturn f'{b=}'"),
    ("yield x", "yield from x"),
    ("del x", "x"),
    ("x.a: int = 1", "x.b = 1"),
    ("return lambda y: y", "return lambda z: z"),
    ("match x:\n    case A(b=1):\n        pass", "match x:\n    case A(c=1):\n        pass"),
    ("match x:\n    case None:\n        pass", "match x:\n    case False:\n        pass"),
    ("try:\n    x()\nexcept E:\n    pass", "try:\n    x()\nexcept* E:\n    pass"),
    ("for a in x:\n    pass", "for a in x:\n    pass\nelse:\n    x()"),
    ("import os\nos = 1\nreturn os", "import os\nreturn os"),
    ("if x:\n import os as a\n import os as b\nreturn a", "if x:\n import os as a\n import os as a\nreturn a"),
    (
        "if x:\n import os as a\nelse:\n import os as b\nreturn a",
        "if x:\n import os as a\nelse:\n import os as a\nreturn a",
    ),
    (
        "if x:\n import a.b as c\nfrom a import b as d\nreturn c.e",
        "if x:\n import a.b as c\nfrom a import b as d\nreturn d.e",
    ),
]


@pytest.mark.parametrize(("one", "other"), SAME)
def test_spellings_of_one_function_have_one_form(one, other):
    assert _body(one)[:2] == _body(other)[:2]


@pytest.mark.parametrize(("one", "other"), DIFFERENT)
def test_different_functions_have_different_forms(one, other):
    assert _body(one)[:2] != _body(other)[:2]


@pytest.mark.parametrize(
    ("one", "other"),
    [("x", "y"), ("x", "*x"), ("x", "x, /"), ("x", "*, x"), ("*x", "**x"), ("x, y", "y, x")],
)
def test_parameters_count_with_their_names_and_kinds(one, other):
    assert _body("return 0", one) != _body("return 0", other)


def test_annotations_do_not_count():
    assert _form("def f(x: int, *y: str, **z: a.b) -> c: return x") == _form("def f(x, *y, **z): return x")


def test_decorators_the_name_and_default_expressions_are_left_to_the_caller():
    assert _form("@d(1)\ndef f(x=1, *, y=2): return x") == _form("def g(x=3, *, y): return x")


def test_a_coroutine_is_no_function():
    assert _form("async def f(): return 1") != _form("def f(): return 1")


def test_references_are_listed_in_order_with_the_attributes_read_from_them():
    form = _body("import a.b as c\ny = np.linalg.norm(x, K)\nglobal G\nreturn c.d, G.h, y.shape, np, [q for q in z]")
    assert form.references == (
        Imported("a.b", 0, None, (), True),
        Outer("np", ("linalg", "norm")),
        Outer("K"),
        Imported("a.b", 0, None, ("d",)),
        Outer("G", ("h",), True),
        Outer("np"),
        Outer("z"),
    )
    assert form.text.count(b"@") == len(form.references)


def test_a_name_of_the_class_body_is_not_seen_by_its_methods():
    form = _body("class C:\n    a = 1\n    def m(self):\n        return a\n    b = [a for _ in a]")
    assert form.references == (Outer("a"), Outer("a"), Outer("a"))


def test_the_first_iterable_of_a_comprehension_belongs_to_the_scope_around_it():
    form = _body("class C:\n    a = x\n    b = [1 for _ in a]\n    c = [1 for _ in x for _ in a]")
    assert form.references == (Outer("a"), Outer("a"))


def test_type_parameters_and_their_uses_are_local():
    if not hasattr(ast, "TypeVar"):
        generic = ast.parse("def f(x):\n    return x").body[0]
        assert _form("def f(x): return x").text == normal_form(generic).text
        return
    assert _form("def f[T](x: T): return x") == _form("def f(x): return x")


def test_a_computed_attribute_name_is_hinted_at():
    assert _body("return getattr(x, x)").hints == (
        "getattr() with a name computed while running: what it reaches is not seen",
    )
    assert _body("return getattr(x, 'a')").hints == ()


@pytest.mark.parametrize(
    "values",
    [
        (0, 0.0, False, "", b"", None, (), frozenset(), 0j, ...),
        (1, 1.0, True, "1", b"1", (1,), frozenset({1}), 1 + 0j, (1.0,)),
    ],
)
def test_constants_are_told_apart_by_type(values):
    assert len({constant(value) for value in values}) == len(values)


def test_constants_without_order_have_one_form():
    names = [f"name {number}" for number in range(50)]
    assert constant(frozenset(names)) == constant(frozenset(reversed(names)))


def test_integers_of_any_size_and_lone_surrogates_have_a_form():
    assert constant(10**6000) != constant(10**6000 + 1)
    assert constant("\ud800") != constant("\ud801")


def test_framed_texts_do_not_run_together():
    assert framed("a") + framed("bc") != framed("ab") + framed("c")
