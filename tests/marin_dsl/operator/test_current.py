"""Code that changes in a process: notebooks' cells that are run anew, constants that are set, modules loaded again."""

import contextlib
import importlib
import itertools
import linecache
import sys
import textwrap
import types

import pytest

from marin_dsl import Store, after, digest, evaluate, labels, op, plan, tagged
from marin_dsl.operator.current import by_current_code

_numbers = itertools.count()


class Notebook:
    """A module whose cells are run one after the other, as IPython does."""

    def __init__(self):
        self.module = types.ModuleType(f"notebook_{next(_numbers)}")
        self.module.op = op
        sys.modules[self.module.__name__] = self.module

    def run(self, text):
        text = textwrap.dedent(text)
        name = f"<ipython-input-{next(_numbers)}>"
        linecache.cache[name] = (len(text), None, text.splitlines(True), name)
        exec(compile(text, name, "exec"), vars(self.module))

    def __getattr__(self, name):
        return getattr(self.module, name)


@pytest.fixture
def notebook():
    found = Notebook()
    yield found
    del sys.modules[found.module.__name__]


@pytest.fixture
def store():
    return Store(f"memory://current-{next(_numbers)}")


def value(expression, store):
    return evaluate(expression, store=store, debug=True).value


def runs(expression, store):
    return len(plan(expression, store=store).runs)


CHANGES = {
    "a helper": ("def helper(x): return x + 1", "def helper(x): return x + 100", "helper(1)"),
    "a helper of a helper": (
        "def deep(x): return x\ndef helper(x): return deep(x)",
        "def deep(x): return -x",
        "helper(1)",
    ),
    "a constant": ("SCALE = 1", "SCALE = 5", "SCALE"),
    "a constant in place": ("SETTINGS = {'rate': 1}", "SETTINGS['rate'] = 2", "SETTINGS['rate']"),
    "a constant in place, deep inside": ("SETTINGS = {'a': [1]}", "SETTINGS['a'].append(2)", "sum(SETTINGS['a'])"),
    "a list of functions": ("steps = [abs]", "steps.append(lambda x: x * 9)", "sum(step(-3) for step in steps)"),
    "an array in place": ("import numpy\nTABLE = numpy.ones(2)", "TABLE[0] = 7", "float(TABLE.sum())"),
    "a class attribute": ("class Settings:\n    rate = 1", "Settings.rate = 2", "Settings.rate"),
    "a method": (
        "class Model:\n    def run(self): return 1",
        "Model.run = lambda self: 2",
        "Model().run()",
    ),
    "a method that was inherited": (
        "class Base:\n    def run(self): return 1\nclass Model(Base): pass",
        "Model.run = lambda self: 2",
        "Model().run()",
    ),
    "the settings in a dataclass": (
        "import dataclasses\n@dataclasses.dataclass\nclass Settings:\n    rate: int = 1\nSETTINGS = Settings()",
        "SETTINGS.rate = 2",
        "SETTINGS.rate",
    ),
    "the settings in an attrs class": (
        "import attrs\n@attrs.define\nclass Settings:\n    rate: int = 1\n    f: object = abs\nSETTINGS = Settings()",
        "SETTINGS.rate = 2",
        "SETTINGS.rate",
    ),
    "a default": ("def helper(x=1): return x", "helper.__defaults__ = (2,)", "helper()"),
    "a default of a keyword": ("def helper(*, x=1): return x", "helper.__kwdefaults__['x'] = 2", "helper()"),
    "the code of a function": ("def helper(): return 1", "helper.__code__ = (lambda: 2).__code__", "helper()"),
    "a variable of a closure": (
        (
            "def make():\n    n = 1\n    def get(): return n\n    def put(v):\n        nonlocal n\n        n = v\n"
            "    return get, put\nget, put = make()"
        ),
        "put(2)",
        "get()",
    ),
    "what was a builtin": ("", "def len(x): return 99", "len([])"),
    "another implementation": (
        "import functools\n@functools.singledispatch\ndef kind(x): return 'any'",
        "@kind.register\ndef _(x: int): return 'int'",
        "kind(3)",
    ),
}


@pytest.mark.parametrize(("before", "edit", "used"), CHANGES.values(), ids=CHANGES)
def test_what_is_changed_in_a_process_is_another_code_and_runs(before, edit, used, notebook, store):
    notebook.run(before)
    notebook.run(f"@op\ndef work(n: int):\n    return {used}")
    built, old = notebook.work(1), eval(used, vars(notebook.module))
    assert value(built, store) == old
    notebook.run(edit)
    new = eval(used, vars(notebook.module))
    assert new != old
    assert value(notebook.work(1), store) == new
    assert value(built, store) == new, "an expression that was built before means what would run now"
    assert runs(built, store) == 0


def test_what_is_changed_back_is_served_again(notebook, store):
    notebook.run("SCALE = 1\n@op\ndef work(n: int): return n * SCALE")
    first = digest(notebook.work(1))
    assert value(notebook.work(1), store) == 1
    notebook.run("SCALE = 5")
    assert digest(notebook.work(1)) != first
    assert value(notebook.work(1), store) == 5
    notebook.run("SCALE = 1")
    assert digest(notebook.work(1)) == first
    assert runs(notebook.work(1), store) == 0
    assert value(notebook.work(1), store) == 1


def test_a_constant_that_is_set_in_a_loop_gives_as_many_values(notebook, store):
    notebook.run("RATE = 0\n@op\ndef train(): return RATE")

    def trained(rate):
        notebook.module.RATE = rate
        return value(notebook.train(), store)

    assert [trained(rate) for rate in range(4)] == [0, 1, 2, 3]


def test_an_operator_below_is_looked_at_and_what_stands_above_it_follows(notebook, store):
    notebook.run("SCALE = 1\n@op\ndef low(n: int): return n * SCALE\n@op\ndef high(n: int): return n + 1")
    top = tagged(after(notebook.high(notebook.low(3) + 1), notebook.low(4)), note="kept").named("top", "1.0dev")
    assert value(top, store) == 5
    notebook.run("SCALE = 2")
    anew = by_current_code([top])[0]
    assert anew.key != top.key
    assert (anew.label, anew.facts, anew.annotations) == (top.label, top.facts, top.annotations)
    assert anew.waits[0].key == notebook.low(4).key
    assert value(top, store) == 8


def test_where_nothing_of_it_changed_an_expression_stays_the_same_object(notebook):
    notebook.run("SCALE = 1\n@op\ndef work(n: int): return n * SCALE\n@op\ndef other(n: int): return n")
    work, other = notebook.work(1), notebook.other(1)
    assert all(map(lambda a, b: a is b, by_current_code([work, other]), [work, other]))
    notebook.run("SCALE = 2")
    found = by_current_code([work, other])
    assert found[0] is not work
    assert found[1] is other


KEPT_WHILE_RUNNING = {
    "a cache that is filled": ("CACHE = {}\ndef get(n):\n    CACHE[n] = n\n    return CACHE[n]", "get(1)"),
    "a cache by `setdefault`": ("CACHE = {}\ndef get(n): return CACHE.setdefault(n, n)", "get(1)"),
    "a log": ("SEEN = []\ndef get(n):\n    SEEN.append(n)\n    return n", "get(1)"),
    "what is loaded once": (
        "model = None\ndef get():\n    global model\n    if model is None: model = 7\n    return model",
        "get()",
    ),
    "an instance that is made once": (
        (
            "class Model:\n    one = None\n    @classmethod\n    def get(cls):\n        cls.one = cls.one or cls()\n"
            "        return 3"
        ),
        "Model.get()",
    ),
    "a cache of an instance": (
        (
            "class Model:\n    def __init__(self): self.kept = {}\n    def get(self, n):\n        self.kept[n] = n\n"
            "        return n\nmodel = Model()"
        ),
        "model.get(1)",
    ),
    "a counter in an attribute": (
        (
            "import attrs\n@attrs.define\nclass Model:\n    calls: int = 0\n    def get(self):\n"
            "        self.calls += 1\n        return 3\nmodel = Model()"
        ),
        "model.get()",
    ),
    "a cache in a module": ("import functools\n@functools.cache\ndef get(n): return n", "get(1)"),
    "a mutable default": ("def get(n, seen=[]):\n    seen.append(n)\n    return n", "get(1)"),
}


@pytest.mark.parametrize(("before", "used"), KEPT_WHILE_RUNNING.values(), ids=KEPT_WHILE_RUNNING)
def test_what_the_code_itself_changes_while_it_runs_runs_nothing_again(before, used, notebook, store):
    notebook.run(before)
    notebook.run(f"@op\ndef work(n: int):\n    return {used}")
    value(notebook.work(1), store)
    assert runs(notebook.work(1), store) == 0
    value(notebook.work(2), store)
    assert runs(notebook.work(1), store) == 0


def test_a_module_that_is_edited_and_loaded_again_is_another_code(tmp_path, store):
    name = f"edited_{next(_numbers)}"
    (tmp_path / f"{name}.py").write_text("def helper(n): return n\n")
    (tmp_path / f"{name}_work.py").write_text(
        f"import {name}\nfrom marin_dsl import op\n\n@op\ndef work(n: int):\n    return {name}.helper(n)\n"
    )
    sys.path.insert(0, str(tmp_path))
    try:
        helpers, work = importlib.import_module(name), importlib.import_module(f"{name}_work").work
        assert value(work(3), store) == 3
        (tmp_path / f"{name}.py").write_text("def helper(n): return n * 1000\n")
        assert value(work(3), store) == 3, "what is loaded counts"
        importlib.reload(helpers)
        assert value(work(3), store) == 3000
    finally:
        sys.path.remove(str(tmp_path))
        for loaded in (name, f"{name}_work"):
            sys.modules.pop(loaded, None)


def test_a_change_below_a_declared_version_is_told_as_drift(notebook, store):
    notebook.run("SCALE = 1\n@op(version='1')\ndef work(n: int): return n * SCALE")
    assert value(notebook.work(1), store) == 1
    notebook.run("SCALE = 5")
    found = plan(notebook.work(1), store=store)
    assert not found.runs
    assert "SCALE = 5" in str(found)


def test_operators_that_are_gone_are_not_asked(notebook, store):
    notebook.run("SCALE = 1\n@op\ndef work(n: int): return n * SCALE")
    value(notebook.work(1), store)
    with contextlib.suppress(AttributeError):
        del notebook.module.work
    notebook.run("SCALE = 2")
    assert by_current_code([]) == ()


def test_what_is_said_to_be_the_same_is_so_by_the_code_there_is_now(notebook, store):
    notebook.run("SCALE = 1\n@op\ndef work(n: int): return n * SCALE\n@op(version='1')\ndef old(n: int): return n")
    assert value(notebook.old(1).named("old", "1.0"), store) == 1
    anew = notebook.work(1)
    notebook.run("SCALE = 5")
    labels.same(store, "old@1.0", anew, why="only to see")
    assert value(anew, store) == 1, "it is served, and not run"
    labels.undo(store, anew)
    assert value(anew, store) == 5
