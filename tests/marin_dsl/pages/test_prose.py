"""A little markup, and nothing that a reader's browser would run."""

import re
from html import unescape

import pytest
from hypothesis import given
from hypothesis import strategies as st

from marin_dsl.pages import prose


@pytest.mark.parametrize(
    ("text", "html"),
    [
        ("a `b` c", "a <code>b</code> c"),
        ("*very* good", "<em>very</em> good"),
        ("2 * 3 * 4", "2 * 3 * 4"),
        ("a*b*c", "a*b*c"),
        ("`*not emphasis*`", "<code>*not emphasis*</code>"),
        ("`<b>` & *<i>*", "<code>&lt;b&gt;</code> &amp; <em>&lt;i&gt;</em>"),
        ("unclosed `code and *emphasis", "unclosed `code and *emphasis"),
        ('"quoted"', "&quot;quoted&quot;"),
    ],
)
def test_markup_becomes_elements_and_everything_else_stays_text(text, html):
    assert prose.inline(text) == html


def test_blank_lines_part_paragraphs_and_empty_ones_vanish():
    assert prose.paragraphs("\n\none\ntwo\n\n \n\nthree\n") == "<p>one\ntwo</p>\n<p>three</p>"


def test_no_text_makes_no_paragraph():
    assert prose.paragraphs(" \n ") == ""


@given(st.text())
def test_only_code_and_em_ever_come_out_as_tags(text):
    assert set(re.findall(r"<[^>]*>", prose.inline(text))) <= {"<code>", "</code>", "<em>", "</em>"}


@given(st.text(alphabet=st.characters(exclude_characters="`*")))
def test_text_without_markup_reads_back_unchanged(text):
    assert unescape(prose.inline(text)) == text


@given(st.text(alphabet="ab`* <&"))
def test_no_character_but_markup_is_lost(text):
    kept = unescape(re.sub(r"<[^>]*>", "", prose.inline(text)))
    assert kept.replace("`", "").replace("*", "") == text.replace("`", "").replace("*", "")
