"""What an argument or a field brings along: the methods of the classes of the project that annotations name."""

import textwrap

import pytest

from marin_dsl.code_identity import code_identity
from tests.marin_dsl.code_identity.projects import identity_in, identity_of, imported

SCORE = """
class Score:
    def total(self):
        return {amount}
"""
# What stands above the target (or around it), the target, and whether its annotations reach `Score`.
REACHING = {
    "a parameter": "def target(score: Score):\n    return score.total()",
    "a keyword": "def target(*, score: Score = None):\n    return score.total()",
    "all other arguments": "def target(*scores: Score):\n    return scores[0].total()",
    "all other keywords": "def target(**scores: Score):\n    return scores",
    "a text": "def target(score: 'Score'):\n    return score.total()",
    "a text within": "def target(scores: list['Score']):\n    return scores[0].total()",
    "elements": "def target(scores: dict[str, list[Score]]):\n    return scores",
    "one of several": "def target(score: Score | None):\n    return score.total()",
    "typing's union": "import typing\ndef target(score: typing.Optional['Score']):\n    return score.total()",
    "with a note": "import typing\ndef target(score: typing.Annotated[Score, 'points']):\n    return score.total()",
    "an alias": "Scores = list[Score]\ndef target(scores: Scores):\n    return scores[0].total()",
    "a new type": "import typing\nPoints = typing.NewType('Points', Score)\ndef target(s: Points):\n    return s",
    "a bound": "import typing\nT = typing.TypeVar('T', bound=Score)\ndef target(s: T):\n    return s.total()",
    "a bound by text": "import typing\nT = typing.TypeVar('T', bound='Score')\ndef target(s: T):\n    return s.total()",
    "constraints": "import typing\nT = typing.TypeVar('T', Score, int)\ndef target(s: list[T]):\n    return s",
    "what a call gives": "import json\ndef load(x) -> Score:\n    return json.loads(x)\ndef target(x):\n    load(x)",
    "a variable": "def target(scores):\n    first: Score = scores[0]\n    return first.total()",
    "a function inside": "def target(scores):\n    def of(s: Score):\n        return s.total()\n    map(of, scores)",
    "a helper": "def of(score: Score):\n    return score.total()\ndef target(x):\n    return of(x)",
    "a subclass": "class Half(Score):\n    pass\ndef target(half: Half):\n    return half.total()",
    "a generic class": (
        "import typing\nT = typing.TypeVar('T')\nclass Box(typing.Generic[T]):\n    pass\n"
        "def target(box: Box[Score]):\n    return box.held.total()"
    ),
    "attrs fields": (
        "import attrs\n@attrs.frozen\nclass Row:\n    score: Score\ndef target(row: Row):\n    return row.score.total()"
    ),
    "older attrs fields": (
        "import attr\n@attr.s\nclass Row:\n    score = attr.ib(type=Score)\n"
        "def target(row: Row):\n    return row.score.total()"
    ),
    "fields of a dataclass": (
        "import dataclasses\n@dataclasses.dataclass\nclass Row:\n    scores: 'list[Score]'\n"
        "def target(row: Row):\n    return row.scores"
    ),
    "fields of a NamedTuple": (
        "import typing\nclass Row(typing.NamedTuple):\n    score: Score\ndef target(row: Row):\n    return row.score"
    ),
    "keys of a TypedDict": (
        "import typing\nclass Row(typing.TypedDict):\n    score: Score\ndef target(row: Row):\n    return row['score']"
    ),
    "fields of a protocol": (
        "import typing\nclass Row(typing.Protocol):\n    score: Score\ndef target(row: Row):\n    return row.score"
    ),
    "Equinox fields": (
        "import equinox\nclass Row(equinox.Module):\n    score: Score\ndef target(row: Row):\n    return row.score"
    ),
    "a dotted name": (
        "class Outer:\n    class Inner:\n        score: Score\ndef target(x: Outer.Inner):\n    return x.score.total()"
    ),
}


def _identity(folder, amount, text):
    return identity_of(folder, SCORE.format(amount=amount) + text + "\n")


@pytest.mark.parametrize("future", ["", "from __future__ import annotations\n"], ids=["as objects", "as texts"])
@pytest.mark.parametrize("text", REACHING.values(), ids=list(REACHING))
def test_an_edit_of_a_method_changes_what_an_annotation_leads_to_it(tmp_path, text, future):
    one, same, two = (identity_of(tmp_path, future + SCORE.format(amount=amount) + text + "\n") for amount in (1, 1, 2))
    assert one.digest == same.digest != two.digest
    assert any(name.endswith("Score.total") for name in one.listing)


def test_a_class_that_only_type_checkers_import_is_found(tmp_path):
    main = """
        import typing
        from typing import TYPE_CHECKING
        if TYPE_CHECKING:
            from json import JSONDecoder

            from . import scores as kinds
            from .scores import Score as S
        def target(first: "S", decoder: "JSONDecoder"):
            return first.total()
        def dotted(first: "kinds.Score"):
            return first.total()
    """
    for target in ("target", "dotted"):
        projects = ({"main.py": textwrap.dedent(main), "scores.py": SCORE.format(amount=n)} for n in (1, 2))
        one, two = (identity_in(tmp_path, files, f"main:{target}") for files in projects)
        assert one.digest != two.digest
        assert one.opaque == ()


def test_a_class_for_type_checkers_that_cannot_be_imported_is_told(tmp_path):
    main = """
        from typing import TYPE_CHECKING
        if TYPE_CHECKING:
            from .broken import Score
        def target(score: "Score"):
            return score.total()
    """
    identity = identity_in(tmp_path, {"main.py": textwrap.dedent(main), "broken.py": "1 / 0"})
    (note,) = identity.opaque
    assert "broken" in note
    assert "ZeroDivisionError" in note


def test_a_class_within_a_function_is_found_where_annotations_are_objects(tmp_path):
    text = """
        def make():
            class Score:
                def total(self):
                    return {amount}
            def target(score: Score):
                return score.total()
            return target
        target = make()
    """
    one, two = (identity_of(tmp_path, textwrap.dedent(text.format(amount=n))) for n in (1, 2))
    assert one.digest != two.digest


def test_annotations_of_what_the_code_names_anyway_change_nothing(tmp_path):
    text = "def target(score{}, other{}):\n    return isinstance(score, Score) and score.total()"
    digests = {
        _identity(tmp_path, 1, text.format(*annotations)).digest
        for annotations in (("", ""), (": Score", ""), ("", ": list[Score]"), (": 'Score'", ": 'Score | None'"))
    }
    assert len(digests) == 1


def test_the_order_in_which_annotations_name_classes_does_not_matter(tmp_path):
    two = "class A:\n    size = 1\nclass B:\n    size = 2\n"
    texts = ("x: A, y: B", "x: B, y: A", "x: A | B, y: dict[A, B]")
    assert len({identity_of(tmp_path, f"{two}def target({names}):\n    return x, y\n").digest for names in texts}) == 1


def test_an_excluded_class_does_not_count_where_an_annotation_names_it(tmp_path):
    digests = set()
    for amount in (1, 2):
        text = SCORE.format(amount=amount) + "def target(score: Score):\n    return score.total()\n"
        with imported(tmp_path, {"__init__.py": text}) as package:
            digests.add(code_identity(package.target, excludes=(package.Score,)).digest)
    assert len(digests) == 1


def test_a_class_that_names_itself_and_another_that_names_it_come_to_an_end(tmp_path):
    text = """
        class Node:
            parent: "Node"
            def edge(self, other: "Edge") -> "Node":
                return other
        class Edge:
            ends: tuple[Node, Node]
            size = {amount}
        def target(node: Node):
            return node
    """
    one, two = (identity_of(tmp_path, textwrap.dedent(text.format(amount=n))) for n in (1, 2))
    assert one.digest != two.digest


def test_what_annotations_hold_besides_classes_does_no_harm(tmp_path):
    text = """
        import typing
        def raising():
            raise RuntimeError
        def target(
            a: "not python", b: "Absent", c: "1 +", d: 3, e: typing.Literal["x", 1], f: typing.Callable[[int], str],
            g: typing.Callable[..., "Absent.more"], h: typing.Any, i: "raising()", j: [1, 2], k: ..., l: "",
            m: int.real,
        ):
            return a
    """
    assert identity_of(tmp_path, textwrap.dedent(text)).digest == identity_of(tmp_path, textwrap.dedent(text)).digest


def test_a_class_defined_anew_is_looked_at_in_place_of_the_one_annotated(tmp_path):
    text = (
        SCORE.format(amount=1) + "class Row:\n    score: Score\ndef target(row: Row):\n    return row.score.total()\n"
    )
    with imported(tmp_path, {"__init__.py": text}) as package:
        before = code_identity(package.target)
        assert before.is_current
        (tmp_path / "cell.py").write_text(SCORE.format(amount=2))
        exec(compile(SCORE.format(amount=2), str(tmp_path / "cell.py"), "exec"), vars(package))
        assert not before.is_current
        assert code_identity(package.target).digest != before.digest
