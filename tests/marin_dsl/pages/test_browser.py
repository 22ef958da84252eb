"""The page in a real browser: quiet, self-contained, legible in both schemes, on a phone, and without JavaScript."""

import os
import re
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path

import pytest

from marin_dsl.pages import write_site

from . import example
from .test_render import HOSTILE, hostile_evidence, hostile_page

PHONE = {"viewport": {"width": 360, "height": 740}, "is_mobile": True, "has_touch": True}

# For each piece of visible text: its colour against the first opaque colour behind it.
CONTRAST = """() => {
  const canvas = new OffscreenCanvas(1, 1).getContext('2d', { willReadFrequently: true });
  const rgba = (text) => {
    canvas.clearRect(0, 0, 1, 1); canvas.fillStyle = text; canvas.fillRect(0, 0, 1, 1);
    return [...canvas.getImageData(0, 0, 1, 1).data];
  };
  const luminance = (c) => c.slice(0, 3).map((v) => v / 255)
    .map((v) => v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4)
    .reduce((sum, v, i) => sum + v * [0.2126, 0.7152, 0.0722][i], 0);
  const behind = (element) => {
    for (let e = element; e; e = e.parentElement) {
      if (e instanceof SVGElement) {
        const box = [...(e.children ?? [])].find((c) => c.tagName === 'rect');
        if (box) return rgba(getComputedStyle(box).fill);
      } else {
        const colour = rgba(getComputedStyle(e).backgroundColor);
        if (colour[3] === 255) return colour;
      }
    }
    return [0, 0, 0, 255];
  };
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  const found = [];
  for (let node; (node = walker.nextNode());) {
    const element = node.parentElement;
    if (!node.textContent.trim() || ['SCRIPT', 'STYLE', 'title'].includes(element.tagName)) continue;
    if (!element.checkVisibility({ checkVisibilityCSS: true })) continue;
    const style = getComputedStyle(element);
    const text = rgba(element instanceof SVGElement ? style.fill : style.color);
    const [a, b] = [luminance(text), luminance(behind(element))].sort((x, y) => y - x);
    found.push([(a + 0.05) / (b + 0.05), element.outerHTML.slice(0, 60), node.textContent.trim()]);
  }
  return found;
}"""


@pytest.fixture(scope="module")
def site(tmp_path_factory) -> Path:
    pages = {"example": (example.page(), example.evidence()), "hostile": (hostile_page(), hostile_evidence())}
    return write_site(pages, tmp_path_factory.mktemp("site")).parent


@contextmanager
def opened(chromium, path: Path, *, drawn: bool = True, **options):
    """A page in a fresh context; leaving it checks that nothing was complained about and nothing was fetched."""
    context = chromium.new_context(**options)
    page = context.new_page()
    complaints, requests = [], []
    page.on("console", lambda m: complaints.append(m.text) if m.type in ("error", "warning") else None)
    page.on("pageerror", lambda e: complaints.append(str(e)))
    page.on("request", lambda r: requests.append(r.url))
    page.goto(path.as_uri())
    if drawn:
        page.wait_for_selector("figure[data-ready]")
    yield page
    context.close()
    assert complaints == []
    assert [url for url in requests if not url.startswith(("file://", "data:", "blob:"))] == []


def plot(page, expression: str):
    return page.evaluate(f"(() => {{ const plot = Bokeh.documents[0].roots()[0]; return {expression}; }})()")


def overflow(page) -> int:
    return page.evaluate("document.documentElement.scrollWidth - innerWidth")


@pytest.mark.browser
@pytest.mark.parametrize("name", ["example", "index", "hostile"])
def test_a_page_opens_without_a_complaint_and_fetches_nothing(chromium, site, name):
    with opened(chromium, site / f"{name}.html", drawn=name != "index") as page:
        assert page.inner_text("h1")


@pytest.mark.browser
@pytest.mark.parametrize("name", ["example", "index", "hostile"])
def test_a_phone_never_scrolls_sideways(chromium, site, name):
    with opened(chromium, site / f"{name}.html", drawn=name != "index", **PHONE) as page:
        page.evaluate("document.querySelectorAll('details').forEach((d) => { d.open = true; })")
        assert overflow(page) <= 0


@pytest.mark.browser
def test_on_a_phone_the_graph_scrolls_in_its_own_frame(chromium, site):
    with opened(chromium, site / "example.html", **PHONE) as page:
        assert page.evaluate(
            "(() => { const g = document.querySelector('.graph'); return g.scrollWidth > g.clientWidth; })()"
        )


@pytest.mark.browser
def test_on_a_phone_a_finger_on_the_figure_scrolls_the_page(chromium, site):
    with opened(chromium, site / "example.html", **PHONE) as page:
        assert plot(page, "plot.toolbar.active_drag") is None


@pytest.mark.browser
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("name", ["example", "index"])
def test_all_text_stands_out_from_its_background(chromium, site, name, scheme):
    with opened(chromium, site / f"{name}.html", drawn=name != "index", color_scheme=scheme) as page:
        page.evaluate("document.querySelectorAll('details').forEach((d) => { d.open = true; })")
        page.evaluate("document.querySelector('button[data-group]')?.click()")
        found = page.evaluate(CONTRAST)
        assert len(found) > (400 if name == "example" else 8)
        assert [one for one in found if one[0] < 4.5] == []


@pytest.mark.browser
def test_the_figure_follows_the_colour_scheme_while_open(chromium, site):
    with opened(chromium, site / "example.html", color_scheme="light") as page:
        colours = "[plot.left[0].major_label_text_color, plot.renderers[1].glyph.line_color].map((c) => c?.value ?? c)"
        light = plot(page, colours)
        page.emulate_media(color_scheme="dark")
        page.wait_for_timeout(200)
        assert all(a != b for a, b in zip(light, plot(page, colours), strict=True))
        assert plot(page, colours)[1] == page.evaluate(
            "getComputedStyle(document.documentElement).getPropertyValue('--series-0')"
        )


@pytest.mark.browser
def test_choosing_another_axis_changes_what_is_plotted(chromium, site):
    with opened(chromium, site / "example.html") as page:
        shot = lambda: page.locator(".plot").screenshot()  # noqa: E731
        state = "[plot.renderers[0].glyph.x.field, plot.below[0].axis_label, Math.round(plot.x_range.end)]"
        seen, shots = {}, []
        for axis in ("tokens", "steps", "seconds"):
            page.check(f"input[value={axis}]")
            page.wait_for_timeout(150)
            seen[axis] = plot(page, state)
            shots.append(shot())
        assert seen == {
            "tokens": ["tokens", "tokens (millions)", 2],
            "steps": ["steps", "steps", 606],
            "seconds": ["seconds", "time (seconds)", 24],
        }
        assert len(set(shots)) == 3


@pytest.mark.browser
def test_a_logarithmic_axis_can_be_chosen_and_left_again(chromium, site):
    with opened(chromium, site / "example.html") as page:
        state = "[plot.x_scale.type, ...plot.below.filter((a) => a.visible).map((a) => a.type), plot.x_range.start > 0]"
        linear = plot(page, state)
        page.check("input[name=log]")
        assert plot(page, state) == ["LogScale", "LogAxis", True]
        page.uncheck("input[name=log]")
        assert plot(page, state) == linear == ["LinearScale", "LinearAxis", False]


@pytest.mark.browser
def test_pressing_an_entry_of_the_legend_fades_its_group_only(chromium, site):
    with opened(chromium, site / "example.html") as page:
        muted = "[...new Set(plot.renderers.filter((r) => r.muted).map((r) => r.tags[0]))]"
        button = page.get_by_role("button", name="muon, lr 0.01")
        assert plot(page, muted) == []
        button.press("Enter")
        assert plot(page, muted) == ["muon, lr 0.01"]
        assert button.get_attribute("aria-pressed") == "false"
        button.click()
        assert plot(page, muted) == []


MIDDLE = """() => {
  const view = [...Bokeh.index.roots][0], plot = view.model, line = plot.renderers[1];
  const at = Math.floor(line.data_source.get_column('smooth').length / 2);
  const part = (range, value) => (value - range.start) / (range.end - range.start);
  const { left, right, top, bottom } = view.frame.bbox;
  const across = part(plot.x_range, line.data_source.get_column(line.glyph.x.field)[at]);
  const up = part(plot.y_range, line.data_source.get_column('smooth')[at]);
  return [left + across * (right - left), bottom - up * (bottom - top)];
}"""


def hover(page) -> str:
    """The tooltip of the middle point of the first curve."""
    page.evaluate("document.querySelector('.plot').scrollIntoView()")
    page.wait_for_timeout(200)
    box = page.locator(".plot").bounding_box()
    x, y = page.evaluate(MIDDLE)
    page.mouse.move(box["x"] + x - 3, box["y"] + y)
    page.mouse.move(box["x"] + x, box["y"] + y)
    page.wait_for_selector(".bk-Tooltip", state="attached")
    return page.evaluate(
        "document.querySelector('.bk-Tooltip').shadowRoot.querySelector('.bk-tooltip-content').innerText"
    )


@pytest.mark.browser
def test_hovering_tells_the_point_on_all_axes(chromium, site):
    with opened(chromium, site / "example.html") as page:
        text = hover(page)
        assert text.startswith("adamw, lr 0.001, seed")
        for part in (
            "seed",
            "loss (nats per token): ",
            "smoothed: ",
            "tokens (millions): 1.",
            "steps: ",
            "time (seconds): ",
        ):
            assert part in text


@pytest.mark.browser
def test_hostile_names_do_nothing_but_show(chromium, site):
    with opened(chromium, site / "hostile.html") as page:
        assert HOSTILE in hover(page)
        assert page.evaluate("typeof hacked") == "undefined"
        assert page.inner_text("h1") == HOSTILE
        assert page.title() == HOSTILE
        assert page.locator("img").count() == 0


@pytest.mark.browser
def test_without_javascript_text_tables_and_graph_are_there(chromium, site):
    with opened(chromium, site / "example.html", drawn=False, java_script_enabled=False) as page:
        assert page.locator("figure.curves").is_hidden()
        for seen in (
            "h1",
            ".verdict",
            "#section-1 table",
            "#section-2 table",
            "#graph svg >> nth=-1",
            "#nodes table >> nth=0",
        ):
            assert page.locator(seen).last.is_visible(), seen
        assert page.get_by_text("muon, lr 0.02, seed 1").first.is_visible()
        assert page.locator("#graph a").count() == 40


@pytest.mark.browser
def test_with_javascript_the_numbers_behind_the_curves_are_folded_away(chromium, site):
    with opened(chromium, site / "example.html") as page:
        assert not page.locator("#section-2 table").is_visible()
        page.get_by_text("The same curves as numbers").click()
        assert page.locator("#section-2 table").is_visible()


@pytest.mark.browser
def test_a_node_of_the_graph_leads_to_its_row(chromium, site):
    with opened(chromium, site / "example.html") as page:
        page.locator("#graph a.failed", has_text="adamw 3 0").click()
        assert "train adamw 3 0" in page.locator("tr:target").inner_text()


@pytest.mark.browser
def test_labels_in_the_graph_stay_inside_their_boxes(chromium, site):
    with opened(chromium, site / "example.html") as page:
        wide = page.evaluate("""() => [...document.querySelectorAll('#graph a')].flatMap((a) => {
            const box = a.querySelector('rect').getBBox();
            return [...a.querySelectorAll('text')].filter((t) => t.getBBox().x + t.getBBox().width > box.x + box.width)
              .map((t) => t.textContent);
        })""")
        assert wide == []


@pytest.mark.browser
def test_everything_that_can_be_pressed_can_be_reached_and_has_a_name(chromium, site):
    with opened(chromium, site / "example.html") as page:
        nameless = page.evaluate("""() => [...document.querySelectorAll('a, button, input, summary, [role=region]')]
            .filter((e) => !(e.textContent.trim() || e.ariaLabel || e.labels?.length)).map((e) => e.outerHTML)""")
        assert nameless == []
        assert page.evaluate("[...document.querySelectorAll('.scroll')].every((e) => e.tabIndex === 0)")


@pytest.mark.browser
def test_a_printed_page_is_light_and_complete(chromium, site):
    with opened(chromium, site / "example.html", color_scheme="light") as page:
        page.emulate_media(media="print")
        assert page.locator("nav.contents").is_hidden()
        assert page.pdf(format="A4").startswith(b"%PDF")


def run_without_browser(tmp_path: Path, **environment: str) -> subprocess.CompletedProcess:
    """These tests, in a process that finds no browser, only one of them to be quick."""
    root = Path(__file__).parents[3]
    kept = {name: value for name, value in os.environ.items() if name != "CI"}
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:cacheprovider",
        __file__,
        "-k",
        "opens_without or labels_in",
    ]
    return subprocess.run(
        command,
        cwd=root,
        env={**kept, "PATH": str(tmp_path), **environment},
        capture_output=True,
        text=True,
        check=False,
    )


def test_without_a_browser_these_tests_are_left_out_loudly(tmp_path):
    result = run_without_browser(tmp_path)
    told = r"BROWSER TESTS LEFT OUT: (\d+) tests \(no Chromium found: apt-get install chromium\)"
    (count,) = re.findall(told, result.stdout)
    assert int(count) >= 2
    assert "failed" not in result.stdout


def test_on_a_build_machine_a_missing_browser_is_a_failure(tmp_path):
    result = run_without_browser(tmp_path, CI="true")
    assert result.returncode == 1
    assert "no Chromium found, and CI is set: apt-get install chromium" in result.stdout
    assert "LEFT OUT" not in result.stdout
