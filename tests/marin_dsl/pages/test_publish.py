"""From evaluated pages to files."""

from __future__ import annotations

import pytest

from marin_dsl import Store, evaluate, op, provenance
from marin_dsl.pages import Page, Prose
from marin_dsl.pages.publish import NotAPage, publish
from tests.marin_dsl.pages.test_collect import PLACE


@pytest.fixture(autouse=True)
def _environment(monkeypatch):
    monkeypatch.setattr(provenance, "environment", lambda project: PLACE)


@op(version="1")
def write(title: str, text: str = "More.") -> Page:
    return Page(title, "What?", "That.", "So.", (Prose("Text", text),))


@op(version="1")
def number() -> int:
    return 3


def published(tmp_path, *expressions):
    store = Store(tmp_path / "store")
    outcomes = [evaluate(expression, store=store, debug=True) for expression in expressions]
    return publish(expressions, [outcome.value for outcome in outcomes], tmp_path / "site", store)


@pytest.mark.parametrize(
    ("make", "names"),
    [
        (lambda: [write("A Title: of sorts!")], ["a-title-of-sorts.html"]),
        (lambda: [write("x").named("scaling/muon_300m", "1.0")], ["scaling-muon-300m.html"]),
        (lambda: [write("x").named("a", "1.0"), write("y").named("a", "2.0dev")], ["a.html", "a-2-0dev.html"]),
        (lambda: [write("???")], ["page.html"]),
        (lambda: [write("Überschrift <script>")], ["berschrift-script.html"]),
    ],
)
def test_the_label_names_the_file_or_else_the_title(make, names, tmp_path):
    places = published(tmp_path, *make())
    assert [place.name for place in places] == names
    assert all(place.is_file() and place.is_absolute() for place in places)
    assert (tmp_path / "site" / "index.html").is_file()


def test_pages_of_one_title_do_not_overwrite_each_other(tmp_path):
    first, second = write("Same", "one text"), write("Same", "another text")
    places = published(tmp_path, first, second)
    assert [place.name for place in places] == ["same.html", f"same-{second.key.hex()[:8]}.html"]
    assert "one text" in places[0].read_text()
    assert "another text" in places[1].read_text()


def test_a_page_shows_the_label_under_which_it_is_published_now(tmp_path):
    published(tmp_path, write("x").named("a", "1.0"))
    (place,) = published(tmp_path, write("x").named("a", "2.0"))
    assert "a@2.0" in place.read_text()
    assert "a@1.0" not in place.read_text()


def test_titles_are_text_on_the_page(tmp_path):
    (place,) = published(tmp_path, write("<script>alert(1)</script>"))
    assert "<script>alert(1)</script>" not in place.read_text()


def test_a_value_that_is_no_page_is_refused(tmp_path):
    with pytest.raises(NotAPage, match=r"is a int: a page operator returns a Page"):
        published(tmp_path, number())
