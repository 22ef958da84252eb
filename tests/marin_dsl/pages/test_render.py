"""Pages as files: complete, escaped, self-contained, written whole or not at all."""

import errno
import os
import re
from collections import Counter
from html.parser import HTMLParser

import attrs
import numpy as np
import pytest

from marin_dsl.pages import (
    Column,
    Curves,
    Differences,
    ErrorEvidence,
    Evidence,
    NodeEvidence,
    Page,
    Prose,
    Sample,
    Samples,
    Series,
    Table,
    render,
    write_site,
)
from marin_dsl.pages.content import Missing

from . import example

HOSTILE = "</script><script>hacked=1</script><img src=x onerror=hacked=1>\"'&{{7*191}}"
VOID = {"meta", "link", "img", "input", "br", "wbr", "hr"}


class Outline(HTMLParser):
    """Reads a page as a browser would, refusing elements that are not closed in order."""

    def __init__(self):
        super().__init__()
        self.open, self.elements, self.text, self.ids = [], Counter(), [], []
        self.headings, self.links, self.handlers = [], [], []

    def handle_starttag(self, tag, attributes):
        self.elements[tag] += 1
        facts = dict(attributes)
        self.handlers += [name for name in facts if name.startswith("on")]
        self.ids += [facts["id"]] if "id" in facts else []
        self.links += [facts[name] for name in ("href", "src") if name in facts]
        if re.fullmatch("h[1-6]", tag):
            self.headings.append(int(tag[1]))
        if tag not in VOID and not self.get_starttag_text().endswith("/>"):
            self.open.append(tag)

    def handle_startendtag(self, tag, attributes):
        self.handle_starttag(tag, attributes)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if not self.open or self.open[-1] not in ("script", "style"):
            self.text.append(data)


def outline(html: str) -> Outline:
    parser = Outline()
    parser.feed(html)
    parser.close()
    assert parser.open == []
    return parser


def hostile_page() -> Page:
    h = HOSTILE
    series = Series(h, h, np.arange(1, 4), np.arange(1, 4), np.array([3.0, 2.0, 1.0]), (h, 0))
    return Page(
        h, h, h, h,
        (
            Table(h, h, (Column(h, h), Column("x")), ((h, Missing(h)), (h, 1.0))),
            Curves(h, h, (series,), h),
            Differences(h, h, {h: {h: h}, "b": {h: 1, "same": h}, "c": {h: h}}),
            Samples(h, h, (Sample(h, h, h),)),
            Prose(h, h),
        ),
        h,
    )  # fmt: skip


def hostile_evidence() -> Evidence:
    h = HOSTILE
    error = ErrorEvidence(h, h, h, h, h, 2)
    nodes = [NodeEvidence(h, h, h, "failed", False, h, 1.0, 1, 1.0, ((h, h),), (), error)]
    for key in (f"{h}{i}" for i in range(5)):
        nodes.append(NodeEvidence(key, h, key, "skipped", False, h, None, None, None, ((h, h),), (h,), None, (h,)))
    return Evidence(h, h, nodes, h, h, h, h, {(h, 0): np.arange(3.0)}, {h: h}, {h: h}, h, True)


@pytest.fixture(scope="module")
def html() -> str:
    return render(example.page(), example.evidence())


@pytest.fixture(scope="module")
def read(html) -> Outline:
    return outline(html)


@pytest.fixture(scope="module")
def hostile() -> str:
    return render(hostile_page(), hostile_evidence())


def text_of(read: Outline) -> str:
    return " ".join("".join(read.text).split())


def test_the_page_tells_everything_that_it_was_given(read):
    text, page, evidence = text_of(read), example.page(), example.evidence()
    given = [page.title, page.question, page.verdict, evidence.command, evidence.label, evidence.commit]
    told = [
        "34.6 TFLOP",
        "780 MiB",
        "0.10.2",
        "Linux 6.1",
        "2.010",
        "1.980 to 2.040",
        "with changes that are not committed",
        "raised, 2 attempts",
        "Diverged: loss 9.31e+04 at step 41, 1193 times its start",
        "library/training.py:88 in guard",
        "argument lr 0.01 → 0.02",
        "Traceback (most recent call last)",
        "settings are equal in all 5 arms",
        "return open(path).read()",
    ]
    for wanted in (*given, evidence.run_id, evidence.root, *told):
        assert wanted in text, wanted


def test_the_order_is_that_of_reading(html):
    given = ("Bits per byte on held-out documents", "Training loss", "What differs between the arms")
    own = ("Failures", "How it was made", "Nodes", "Cost", "Make it again")
    places = [html.index(f">{heading}</h2>") for heading in (*given, *own)]
    assert html.index("<h1>") < html.index('class="question"') < html.index('class="verdict"') < places[0]
    assert places == sorted(places)


def test_headings_descend_one_level_at_a_time(read):
    assert read.headings[0] == 1
    assert read.headings.count(1) == 1
    assert all(b - a <= 1 for a, b in zip(read.headings, read.headings[1:], strict=False))


def test_every_link_leads_to_something_on_the_page(read):
    assert len(read.ids) == len(set(read.ids))
    for link in read.links:
        assert link.startswith("data:") or (link[0] == "#" and link[1:] in read.ids)


def test_every_node_has_a_row_and_every_one_that_is_drawn_leads_to_it(read):
    rows = [one for one in read.ids if one.startswith("node-")]
    assert len(rows) == 50
    assert len({link for link in read.links if link.startswith("#node-")}) == 40


def test_nothing_is_fetched_from_anywhere(html):
    own = re.sub(r"<script>.*?</script>", "", html, flags=re.DOTALL)
    assert set(re.findall(r"https?://[^\"'\s<]*", own)) <= {"http://www.w3.org/2000/svg"}
    assert "@import" not in own


def test_only_the_scripts_of_the_page_may_run(html):
    (policy,) = re.findall(r'Content-Security-Policy" content="([^"]*)"', html)
    assert policy.count("sha256-") == 2
    assert "script-src 'sha256-" in policy
    assert "default-src 'none'" in policy


def test_a_page_without_curves_carries_no_script():
    page = attrs.evolve(example.page(), sections=(Prose("h", "t"),))
    html = render(page, example.evidence())
    assert "script-src 'none'" in html
    assert outline(html).elements["script"] == 0
    assert len(html) < 120_000


def test_equal_content_and_evidence_give_equal_text(html):
    assert render(example.page(), example.evidence()) == html


def test_a_page_is_not_larger_than_it_must_be(html):
    assert len(html.encode()) < 1_600_000


def test_hostile_values_add_no_element_and_no_handler(hostile):
    read = outline(hostile)
    assert read.elements["img"] == 0
    assert read.elements["script"] == 3
    assert read.handlers == []


def test_hostile_values_are_shown_as_they_are(hostile):
    assert text_of(outline(hostile)).count("</script><script>hacked=1</script>") > 30


def test_hostile_values_are_not_taken_for_templates(hostile):
    assert "{{7*191}}" in hostile
    assert "1337" not in text_of(outline(hostile))


def test_a_page_without_failures_says_so():
    fine = Evidence("t", "c", [NodeEvidence("k", "m.f", "n", "ok")], "k")
    assert "No node failed, none was skipped." in render(example.page(), fine)


def test_a_failure_without_an_error_on_record_says_so():
    lost = Evidence("t", "c", [NodeEvidence("k", "m.f", "n", "failed")], "k")
    assert "No error is on record." in render(example.page(), lost)


def test_a_section_of_curves_without_points_says_so():
    page = attrs.evolve(example.page(), sections=(Curves("Loss", "c", ()),))
    assert "There is not one point to draw." in render(page, example.evidence())


def test_arms_that_do_not_differ_say_so():
    page = attrs.evolve(example.page(), sections=(Differences("Arms", "c", {"a": {"x": 1}, "b": {"x": 1}}),))
    html = render(page, example.evidence())
    assert "The arms do not differ in any setting." in html
    assert "1 setting is equal in all 2 arms" in html


def test_two_sections_of_curves_are_drawn_into_places_of_their_own():
    curves = example.page().sections[1]
    html = render(attrs.evolve(example.page(), sections=(curves, curves)), example.evidence())
    assert 'id="section-1-plot"' in html
    assert '"target_id":"section-2-plot"' in html


def test_the_site_has_an_index_that_leads_to_each_page(tmp_path):
    both = (example.page(), example.evidence())
    index = write_site({"first-model": both, "second": both}, tmp_path / "new" / "site", title="Gallery")
    read = outline(index.read_text())
    assert index == tmp_path / "new" / "site" / "index.html"
    assert {link for link in read.links if link.endswith(".html")} == {"first-model.html", "second.html"}
    assert example.page().verdict in text_of(read)
    assert sorted(p.name for p in index.parent.iterdir()) == ["first-model.html", "index.html", "second.html"]


def test_a_site_without_pages_is_an_empty_index(tmp_path):
    assert "0 pages" in write_site({}, tmp_path).read_text()


@pytest.mark.parametrize("slug", ["index", "../up", "A", "", "a--b", "a.html", "a/b"])
def test_names_that_could_not_be_files_are_refused(tmp_path, slug):
    with pytest.raises(ValueError, match="cannot name a page: use lower-case letters, digits and single hyphens"):
        write_site({slug: (example.page(), example.evidence())}, tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_full_disk_leaves_the_old_page_and_no_remains(tmp_path, monkeypatch):
    both = {"page": (example.page(), example.evidence())}
    write_site(both, tmp_path)
    before = (tmp_path / "page.html").read_bytes()

    def full(*_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "replace", full)
    with pytest.raises(OSError, match=r"the site cannot be written to .*: No space left on device\. Name a folder"):
        write_site({"page": (attrs.evolve(example.page(), title="new"), example.evidence())}, tmp_path)
    assert (tmp_path / "page.html").read_bytes() == before
    assert sorted(p.name for p in tmp_path.iterdir()) == ["index.html", "page.html"]


def test_a_destination_that_is_a_file_is_named_in_the_error(tmp_path):
    (tmp_path / "site").write_text("x")
    with pytest.raises(FileExistsError, match=r"the site cannot be written to .*site: File exists"):
        write_site({}, tmp_path / "site")
