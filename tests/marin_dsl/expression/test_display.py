"""What people see of expressions and grids: small, bounded, escaped, and nothing is evaluated for it."""

from __future__ import annotations

import html.parser
import time
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given

from marin_dsl import Expression, grid, op
from marin_dsl.encoding import encode
from marin_dsl.expression import walk
from marin_dsl.expression.display import CHILDREN, DEPTH, LINES, WIDTH
from tests.marin_dsl.programs import Step, build, programs


@op(version="1")
def corpus(name: Any) -> Any:
    raise AssertionError("nothing is evaluated to be shown")


@op(version="1")
def train(data: Any, rate: float = 0.1) -> Any:
    raise AssertionError("nothing is evaluated to be shown")


@op(version="1")
def report(*runs: Any) -> Any:
    raise AssertionError("nothing is evaluated to be shown")


def balanced(text: str) -> list[str]:
    """The texts between the tags of well-formed HTML."""
    stack: list[str] = []
    found: list[str] = []

    class Parser(html.parser.HTMLParser):
        def handle_starttag(self, tag, attributes):
            stack.append(tag)

        def handle_endtag(self, tag):
            assert stack.pop() == tag

        def handle_data(self, data):
            found.append(data)

    parser = Parser()
    parser.feed(text)
    parser.close()
    assert not stack
    return found


def test_an_expression_prints_as_a_tree_with_its_shared_parts_numbered():
    books = corpus("books")
    made = report(train(books, 0.1), train(books, 0.2)["loss"], corpus("web")).named("word-report", "1.0")
    assert str(made) == "\n".join(
        [
            "report · word-report@1.0",
            "├─ train(rate=0.1)",
            "│  └─ [1] corpus(name='books')",
            "├─ train['loss']",
            "│  └─ train(rate=0.2)",
            "│     └─ ↑ [1] corpus(name='books')",
            "└─ corpus(name='web')",
        ]
    )
    assert repr(made).startswith("<Expression ")
    assert "\n" not in repr(made)


def test_an_argument_that_is_given_twice_is_one_branch():
    assert str(report(corpus(1), corpus(1))) == "report\n└─ corpus(name=1)"


def test_html_is_nested_details_with_the_same_lines():
    books = corpus("books")
    shown = balanced(report(train(books, 0.1), train(books, 0.2))._repr_html_())
    assert shown == [
        "report",
        "train(rate=0.1)",
        "[1] corpus(name='books')",
        "train(rate=0.2)",
        "↑ [1] corpus(name='books')",
    ]


def test_text_of_the_user_is_escaped_and_in_one_line():
    nasty = corpus(1).with_(title="<script>alert('x')</script>\n\x1b[31mred\x07")
    for made in (nasty, grid(n=["<b>", 2])(lambda n: nasty)):
        page = made._repr_html_()
        assert "<script>" not in page
        assert "<b>" not in page
        assert "&lt;script&gt;" in page
        assert not {"\x1b", "\x07"} & set(page + str(made))
    assert str(nasty) == "<script>alert('x')</script>  [31mred "


def test_html_sets_no_colour_of_its_own():
    page = report(corpus(1))._repr_html_() + grid(n=[1])(corpus_at)._repr_html_()
    assert "#" not in page
    assert page.count("color:") == page.count("color:inherit")
    assert "color-scheme:light dark" in page


def corpus_at(n):
    return corpus(n)


def bounded(made: Any) -> None:
    began = time.process_time()
    lines = str(made).splitlines()
    assert len(lines) <= LINES + 1
    assert max(map(len, lines)) <= WIDTH
    assert len(made._repr_html_()) < 60_000
    assert time.process_time() - began < 10


def test_a_chain_of_100000_is_shown_as_deep_as_is_readable():
    made = corpus(0)
    for _ in range(100_000):
        made = train(made)
    bounded(made)
    assert str(made).splitlines()[-2:] == [
        f"{'   ' * (DEPTH - 1)}└─ train(rate=0.1) …",
        "17 of 100,001 expressions are shown",
    ]


def test_of_many_arguments_the_first_are_shown_and_the_others_are_counted():
    made = report([corpus(number) for number in range(100_000)])
    bounded(made)
    assert str(made).splitlines()[CHILDREN - 1 :] == [
        "├─ corpus(name=8)",
        "└─ … 99,991 more",
        "10 of 100,001 expressions are shown",
    ]


def test_a_ladder_of_diamonds_is_bounded_although_it_has_endless_paths():
    left, right = corpus(1), corpus(2)
    for _ in range(10_000):
        left, right = report(left, right), report(right, left)
    bounded(report(left, right))


def test_no_branch_uses_up_the_lines_of_the_others():
    def chain(name: str) -> Any:
        made = corpus(name)
        for _ in range(30):
            made = train(made)
        return made

    shown = str(report(chain("a"), train(corpus("b")), chain("c")))
    assert "corpus(name='b')" in shown


def test_a_part_that_is_too_deep_at_first_is_shown_where_it_is_met_next():
    shared = train(corpus("shared"))
    deep = shared
    for _ in range(DEPTH - 1):
        deep = train(deep)
    lines = str(report(deep, shared)).splitlines()
    assert lines[DEPTH].endswith("└─ train(rate=0.1) …")
    assert lines[-2:] == ["└─ train(rate=0.1)", "   └─ corpus(name='shared')"]


_LEAF = Step("leaf", (), 0)
_WITH_A_LEAF_AT_THE_GREATEST_DEPTH = [
    _LEAF,
    Step("map", (0,), 0),
    Step("map", (1,), 0),
    _LEAF,
    _LEAF,
    Step("map", (2, 0), 0),
    _LEAF,
    _LEAF,
    _LEAF,
    Step("map", (5,), 0),
]


@given(programs())
@example(_WITH_A_LEAF_AT_THE_GREATEST_DEPTH)
def test_whatever_is_built_is_shown_whole_or_says_what_is_left_out(program):
    for made in build(program):
        text = str(made)
        lines = text.splitlines()
        assert len(lines) <= LINES + 1
        assert max(map(len, lines)) <= WIDTH
        besides = sum("↑ [" in line or line.endswith(" …") for line in lines)  # their full lines are elsewhere
        complete = not lines[-1].endswith("are shown")
        assert not complete or len(lines) - besides == sum(1 for _ in walk(made))
        balanced(made._repr_html_())


def test_large_leaves_are_not_read():
    made = report(corpus(np.zeros(1_000_000)), np.zeros((1000, 1000)))
    for expression in walk(made):
        for digest in list(expression.leaves):
            leaves: Any = expression.leaves
            del leaves[digest]
    assert str(made).startswith("report")
    assert "corpus" in made._repr_html_()


def test_a_grid_prints_as_a_table_of_coordinates_and_titles():
    runs = grid(data=[corpus("books"), "text"], rate=[0.1, 10.25])(lambda data, rate: train(data, rate))
    assert str(runs) == "\n".join(
        [
            "<grid of 4 cells over data, rate>",
            "  data                  rate",
            "  corpus(name='books')  0.1    train(rate=0.1)",
            "  corpus(name='books')  10.25  train(rate=10.25)",
            "  'text'                0.1    train(data='text', rate=0.1)",
            "  'text'                10.25  train(data='text', rate=10.25)",
        ]
    )
    assert "train(data='text', rate=10.25)" in balanced(runs._repr_html_())
    assert repr(runs) == "<grid of 4 cells over data, rate>"


def test_a_large_grid_is_shown_by_its_first_cells():
    runs = grid(n=range(2_000), text=["a" * 500])(lambda n, text: corpus(n))
    bounded(runs)
    assert str(runs).splitlines()[-1] == "  … 1,963 more"
    assert "  … 1,963 more" in balanced(runs._repr_html_())


def test_contents_that_are_no_expressions_are_shown_in_short():
    assert str(grid(n=[1])(lambda n: {"loss": 1.5})).splitlines()[-1] == "  1  {'loss': 1.5}"


def test_an_expression_with_a_display_is_still_no_value():
    assert isinstance(report(), Expression)
    with pytest.raises(TypeError, match="has no value yet"):
        encode(report())


@pytest.mark.browser
@pytest.mark.parametrize(("ground", "ink"), [("#000", "rgb(255, 255, 255)"), ("#fff", "rgb(0, 0, 0)")])
def test_in_a_notebook_the_colours_are_those_of_the_notebook_and_parts_open(chromium, ground, ink):
    made = report(train(train(train(corpus("books")))))
    page = chromium.new_page()
    page.set_content(f'<body style="background:{ground};color:{ink}">{made._repr_html_()}</body>')
    assert page.locator("summary").first.evaluate("e => getComputedStyle(e).color") == ink
    innermost = page.get_by_text("corpus(name='books')")
    assert not innermost.is_visible()
    page.locator("summary").nth(3).click()
    assert innermost.is_visible()
    page.close()
