"""L7: what keeps an operator's code digest, and what changes it.

The catalogue of edits is in `tests/marin_dsl/code_identity/catalogue.py`; here are the law, and properties over
programs that hypothesis writes.
"""

import ast
import functools
import itertools
import random
import re
import warnings

import pytest
from hypothesis import HealthCheck, given, reject, settings
from hypothesis import strategies as st

from marin_dsl.code_identity import code_identity
from tests.marin_dsl.code_identity.catalogue import CHANGED, KEPT, Edit
from tests.marin_dsl.code_identity.constructs import FILES
from tests.marin_dsl.code_identity.projects import identity_in, identity_of, imported

on_disk = settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=30)
pytestmark = pytest.mark.filterwarnings("ignore::SyntaxWarning")


@pytest.fixture(scope="module")
def digest_before(tmp_path_factory):
    return identity_in(tmp_path_factory.mktemp("before"), FILES).digest


def _names(edits: list[Edit]) -> list[str]:
    assert len({edit.name for edit in edits}) == len(edits)
    return [edit.name for edit in edits]


@pytest.fixture(scope="module")
def digest_after(tmp_path_factory):
    folder = tmp_path_factory.mktemp("after")
    return functools.cache(lambda edit: identity_in(folder, edit.applied()).digest)


@pytest.mark.parametrize("edit", KEPT, ids=_names(KEPT))
def test_the_digest_stays_after_an_edit_without_meaning(edit, digest_before, digest_after):
    assert digest_after(edit) == digest_before


@pytest.mark.parametrize("edit", CHANGED, ids=_names(CHANGED))
def test_the_digest_changes_after_an_edit_with_a_meaning(edit, digest_before, digest_after):
    assert digest_after(edit) != digest_before


def test_each_edit_with_a_meaning_has_a_digest_of_its_own(digest_after):
    assert len({digest_after(edit) for edit in CHANGED}) == len(CHANGED) >= 40


def test_the_catalogue_sees_everything_but_what_it_says(tmp_path):
    assert identity_in(tmp_path, FILES).opaque == ()


def test_the_digest_stays_when_the_whole_project_moves_into_a_package(digest_before, tmp_path):
    moved = {f"deeper/still/{name}": text for name, text in FILES.items()}
    moved |= {"deeper/__init__.py": "", "deeper/still/__init__.py": ""}
    assert identity_in(tmp_path, moved, "deeper.still.main:target").digest == digest_before


def test_the_digest_stays_when_one_file_is_renamed(digest_before, tmp_path):
    renamed = {name.replace("deep.py", "depth.py"): re.sub(r"\bdeep\b", "depth", text) for name, text in FILES.items()}
    assert identity_in(tmp_path, renamed).digest == digest_before


# ---- properties over written programs

_LOCALS = ("alpha", "beta", "gamma", "delta")
_name = st.sampled_from(_LOCALS)


def _grown(expression: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    operators = st.sampled_from(["+", "<", "and", "@"])
    return st.one_of(
        st.builds("({} {} {})".format, expression, operators, expression),
        st.builds("[{0} + {1} for {0} in {2} if beta]".format, _name, expression, expression),
        st.builds("(lambda p: {} + p)".format, expression),
        st.builds("[({} := {}) for _ in x]".format, _name, expression),
        st.builds("helper({}, key={})".format, expression, expression),
        st.builds(lambda inside: "f'{" + inside.replace("'", '"') + "} end'", expression),
    )


def _block(statements: list[str]) -> str:
    return "".join(f"    {line}\n" for statement in statements for line in statement.splitlines())


def _nested(statement: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    block = st.lists(statement, min_size=1, max_size=3).map(_block)
    return st.one_of(
        st.builds("for {} in x:\n{}".format, _name, block),
        st.builds("if {}:\n{}".format, _expression, block),
        st.builds("try:\n{1}except ValueError as {0}:\n    pass\n".format, _name, block),
        st.builds("def {}(q):\n{}".format, _name, block),
        st.builds("class Kept:\n    kept = {}\n    def f(self):\n        return {}\n".format, _name, _name),
    )


_expression = st.recursive(st.sampled_from([*_LOCALS, "x", "LIMIT", "1", "'s'"]), _grown, max_leaves=6)
_statement = st.recursive(
    st.one_of(
        st.builds("{} {} {}\n".format, _name, st.sampled_from(["=", "+="]), _expression),
        st.builds("return {}\n".format, _expression),
        st.builds("import math as {}\n".format, _name),
    ),
    _nested,
    max_leaves=6,
)


@st.composite
def bodies(draw: st.DrawFn) -> str:
    """The body of a function of `x`, which need not run but is Python."""
    body = _block(draw(st.lists(_statement, min_size=1, max_size=5)))
    with warnings.catch_warnings(action="ignore"):
        try:
            compile(_program(body), "", "exec")
        except SyntaxError:
            reject()  # a walrus where Python forbids it
    return body


def _program(body: str) -> str:
    return f"LIMIT = 3\n\ndef helper(v, key=None):\n    return v\n\ndef target(x):\n{body}    return 0\n"


@on_disk
@given(body=bodies(), names=st.permutations([*_LOCALS, "one", "two", "three", "helper_2"]))
def test_renaming_locals_keeps_the_digest(body, names, tmp_path):
    renaming = dict(zip(_LOCALS, names, strict=False))
    renamed = re.sub(r"\b(alpha|beta|gamma|delta)\b", lambda found: renaming[found[0]], body)
    before, after = (f"    {' = '.join(chosen)} = x\n" for chosen in (renaming, renaming.values()))
    first, second = (_program(text) for text in (before + body, after + renamed))
    assert identity_of(tmp_path, first).digest == identity_of(tmp_path, second).digest


@on_disk
@given(body=bodies(), seed=st.integers(0, 1000))
def test_white_space_and_comments_keep_the_digest(body, seed, tmp_path):
    chance = random.Random(seed)
    lines = []
    for line in _program(body).splitlines():
        lines += chance.choice([[], [""], ["# nothing", ""]])
        lines.append(line + chance.choice(["", "   ", "  # so"]))
    assert identity_of(tmp_path, _program(body)).digest == identity_of(tmp_path, "\n".join(lines) + "\n").digest


@on_disk
@given(body=bodies())
def test_printing_the_syntax_anew_keeps_the_digest(body, tmp_path):
    program = _program(body)
    printed = ast.unparse(ast.parse(program))
    assert identity_of(tmp_path, program).digest == identity_of(tmp_path, printed).digest


@on_disk
@given(body=bodies(), other=bodies())
def test_two_bodies_have_one_digest_only_if_they_compile_to_one_code(body, other, tmp_path):
    """Equal digests mean equal instructions on constants and names, up to what locals are called."""
    with imported(tmp_path, {"m.py": _program(body), "n.py": _program(other)}) as package:
        m, n = (__import__(f"{package.__name__}.{name}", fromlist=["target"]).target for name in "mn")
        if code_identity(m).digest == code_identity(n).digest:
            assert m.__code__.co_code == n.__code__.co_code


_CIRCLE = st.lists(st.tuples(st.lists(st.integers(0, 5), max_size=3), st.integers(0, 1)), min_size=2, max_size=6)


def _circle(members: list[tuple[list[int], int]], order: list[int]) -> str:
    """Functions that call each other as the numbers say, written in the given order."""
    texts = []
    for position in order:
        calls, constant = members[position]
        called = "".join(f", f{call % len(members)}(n - 1)" for call in calls)
        texts.append(f"def f{position}(n):\n    return ({constant}{called})\n")
    return "\n".join(texts)


@on_disk
@given(members=_CIRCLE, data=st.data())
def test_functions_in_circles_have_the_same_digests_whichever_is_asked_first(members, data, tmp_path):
    numbers = list(range(len(members)))
    answers = []
    for order in (numbers, data.draw(st.permutations(numbers))):
        with imported(tmp_path, {"m.py": _circle(members, order)}) as package:
            module = __import__(f"{package.__name__}.m", fromlist=["f0"])
            asked = {number: code_identity(getattr(module, f"f{number}")).digest for number in order}
            answers.append([asked[number] for number in numbers])
    assert answers[0] == answers[1]


def _unfolded(members: list[tuple[list[int], int]], position: int, depth: int) -> tuple:
    calls, constant = members[position]
    return constant, len(calls), *(_unfolded(members, call % len(members), depth - 1) for call in calls if depth)


@on_disk
@given(members=_CIRCLE)
def test_functions_in_circles_have_one_digest_only_if_they_behave_alike(members, tmp_path):
    small = [(calls[:2], constant) for calls, constant in members]
    with imported(tmp_path, {"m.py": _circle(small, list(range(len(small))))}) as package:
        module = __import__(f"{package.__name__}.m", fromlist=["f0"])
        digests = [code_identity(getattr(module, f"f{number}")).digest for number in range(len(small))]
    for a, b in itertools.combinations(range(len(small)), 2):
        assert digests[a] != digests[b] or _unfolded(small, a, 6) == _unfolded(small, b, 6)
