"""Pages about what is recorded: any label or key, and two of them side by side; choices are drawn as they went."""

import re
import uuid

import pytest
from click.testing import CliRunner

from marin_dsl import Store, context, evaluate, op, provenance, when
from marin_dsl.command_line import main
from marin_dsl.lineage.comparison import compare, recorded_value
from marin_dsl.lineage.inspection import inspect
from marin_dsl.lineage.subject import subjects
from marin_dsl.pages import Listing, Page, Prose, Table, render
from marin_dsl.pages.clusters import cluster
from marin_dsl.pages.collect import collect
from marin_dsl.pages.compared import difference_evidence, difference_page
from marin_dsl.pages.publish import publish_difference, publish_recorded
from marin_dsl.pages.summary import page_of
from marin_dsl.store import StoredValue
from marin_dsl.store.files import place
from marin_dsl.store.records import write_record

from .test_browser import CONTRAST, PHONE, opened, overflow


@op(version="1")
def train(rate: float) -> dict:
    return {"loss": rate * 2, "name": "arm"}


@op(version="1")
def report(runs: list, title: str) -> dict:
    return {"title": title, "mean": sum(run["loss"] for run in runs) / len(runs)}


@op(version="1")
def refuse(n: int) -> int:
    raise ValueError(f"no {n}")


@op(version="1")
def halvings(n: int):
    return 0 if n < 2 else 1 + halvings(n // 2)


@op(version="1")
def numbers(n: int) -> list[int]:
    return list(range(n))


@op(version="1")
def double(n: int, by: int = 2) -> int:
    return n * by


@op(version="1")
def write(title: str) -> Page:
    return Page(title, "What?", "That.", "So.", (Prose("Part", "text"),))


@pytest.fixture
def store(monkeypatch, tmp_path) -> Store:
    monkeypatch.setattr(provenance, "environment", lambda project: {"python": "3.11", "packages": {"attrs": "25.1"}})
    return Store(tmp_path / f"store-{uuid.uuid4().hex[:6]}")


def evidence_of(store, expression):
    evaluate(expression, store=store, debug=True)
    return collect(store, write.function("A page"), expression.key)


def by_title(evidence):
    return {node.title: node for node in evidence.nodes}


def test_a_branch_that_was_not_taken_is_neither_failed_nor_skipped(store):
    evidence = evidence_of(store, when(numbers(3)[0].eq(0), double(1), refuse(double(7))))
    nodes = by_title(evidence)
    assert nodes["double(n=1, by=2)"].status == "ok"
    assert nodes["double(n=7, by=2)"].status == "untaken"
    assert [node.status for node in evidence.nodes if node.operator.endswith("refuse")] == ["untaken"]
    choice = next(node for node in evidence.nodes if node.operator == "when")
    assert choice.continued == nodes["double(n=1, by=2)"].key
    assert len(choice.passed_over) == 1
    assert evidence.with_status("failed") == evidence.with_status("skipped") == ()


def test_edges_tell_what_a_choice_went_on_with_and_what_it_did_not_need(store):
    root = when(numbers(3)[0].eq(0), double(1), refuse(7))
    evidence = evidence_of(store, root)
    found = cluster(evidence.nodes, evidence.root)
    kinds = {
        found.boxes[link.source].cells[0].node.operator.rpartition(".")[2]: (link.continued, link.untaken)
        for link in found.links
        if found.boxes[link.target].cells[0].node.operator == "when"
    }
    assert kinds == {"numbers": (False, False), "double": (True, False), "refuse": (False, True)}
    html = render(page_of(store, subjects(store, root.key.hex())[0], None), evidence)
    assert 'class="link continued"' in html
    assert re.search(r'class="link[^"]* untaken"', html)
    assert "when went on with double" in html
    assert "when did not need refuse" in html
    assert "not taken" in html
    assert "A blue arrow leads to" in html


def test_what_recovered_shows_the_failure_and_what_it_went_on_with(store):
    evidence = evidence_of(store, refuse(1).recover(double(4)))
    nodes = {node.operator.rpartition(".")[2]: node for node in evidence.nodes}
    assert (nodes["refuse"].status, nodes["double"].status) == ("failed", "ok")
    assert nodes["recover"].continued == nodes["double"].key


def test_a_recovery_that_was_not_needed_is_not_taken(store):
    evidence = evidence_of(store, double(1).recover(double(4)))
    assert {node.title: node.status for node in evidence.nodes if "double(" in node.title} == {
        "double(n=1, by=2)": "ok",
        "double(n=4, by=2)": "untaken",
    }


def test_the_template_of_a_map_is_not_drawn_and_its_calls_are(store):
    evidence = evidence_of(store, double.map(numbers(3), by=numbers(2)[1]))
    titles = sorted(node.title for node in evidence.nodes if node.operator.endswith("double"))
    assert len(titles) == 3
    assert not [node for node in evidence.nodes if node.operator == "element"]
    assert {node.status for node in evidence.nodes} == {"ok", "inline"}
    assert "a list of 3" in {node.title for node in evidence.nodes}


def test_an_operator_that_returned_an_expression_shows_what_it_went_on_with(store):
    evidence = evidence_of(store, halvings(4))
    found = cluster(evidence.nodes, evidence.root)
    assert [link.continued for link in found.links] == [True, True]


def sweep(rate: float, title: str):
    return report([train(rate), train(1.0)], title)


def test_a_value_that_is_no_page_has_a_page_about_it(store, tmp_path):
    evaluate(sweep(0.5, "first").named("sweep", "1.0"), store=store, debug=True, note="a note")
    (place,) = publish_recorded(subjects(store, "sweep@1.0"), tmp_path / "site", store)
    html = place.read_text()
    assert place.name == "sweep-1-0.html"
    for said in ("sweep@1.0", "It came to {", "mean", "1.5", "train(rate=0.5)", "a note", "<svg"):
        assert said in html


def test_a_value_that_is_a_page_is_that_page(store, tmp_path):
    evaluate(write("My own page").named("own", "1.0"), store=store, debug=True)
    (place,) = publish_recorded(subjects(store, "own@1.0"), tmp_path / "site", store)
    assert "<h1>My own page</h1>" in place.read_text()


@pytest.mark.parametrize(
    ("root", "verdict"),
    [(refuse(1), "It failed: ValueError: no 1"), (double(refuse(2)), "It was skipped, because refuse(n=2) failed.")],
)
def test_what_has_no_value_has_a_page_that_says_why(store, root, verdict):
    evaluate(root, store=store, debug=True)
    assert page_of(store, subjects(store, root.key.hex())[0], None).verdict == verdict


def test_rows_of_numbers_are_a_table(store):
    @op(version="1")
    def rows() -> list:
        return [{"rate": 0.1, "loss": 1.0}, {"rate": 0.2, "seed": 3}]

    evaluate(rows(), store=store, debug=True)
    (subject,) = subjects(store, rows().key.hex())
    table = page_of(store, subject, recorded_value(store, subject)[1]).sections[0]
    assert isinstance(table, Table)
    assert [column.name for column in table.columns] == ["no.", "loss", "rate", "seed"]
    assert table.rows[0][:3] == ("0", 1.0, 0.1)


@pytest.fixture
def two(store):
    for rate, label in ((0.5, "1.0"), (0.25, "2.0")):
        evaluate(sweep(rate, "same").named("sweep", label), store=store, debug=True)
    return tuple(subjects(store, f"sweep@{label}")[0] for label in ("1.0", "2.0"))


def test_a_difference_page_tells_what_changed_and_what_that_did_to_the_numbers(store, two):
    page = difference_page(compare(store, *two))
    assert page.verdict == "1 change of the recipe; the results differ in 1 place."
    numbers_table, changes, *_ = page.sections
    assert numbers_table.rows == (("mean", "1.5", "1.25", "-0.25", "-16.7"),)
    assert changes.rows == (("train(rate=0.25)", "rate 0.5 → 0.25"),)
    assert "`mean`: 1.5 → 1.25" in page.answer


def test_the_nodes_of_a_difference_page_say_in_what_they_differ(store, two):
    found = compare(store, *two)
    page = difference_page(found)
    key = sweep(0.25, "same").key
    evidence = difference_evidence(found, collect(store, page, key))
    reasons = {node.title: node.reason for node in evidence.nodes}
    assert reasons["train(rate=0.25)"] == "changed: rate 0.5 → 0.25"
    assert reasons["train(rate=1.0)"] == "as in sweep@1.0"


def test_code_that_differs_is_listed_as_a_difference(store, tmp_path):
    @op(name="tests.step")
    def first(n: int) -> int:
        return n + 1

    @op(name="tests.step")
    def second(n: int) -> int:
        return n + 2

    for root, label in ((first(1), "1.0"), (second(1), "2.0")):
        evaluate(root.named("step", label), store=store, debug=True)
    old, new = (subjects(store, f"step@{label}")[0] for label in ("1.0", "2.0"))
    (listing,) = (it for it in difference_page(compare(store, old, new)).sections if isinstance(it, Listing))
    assert listing.heading == "Code of step"
    html = publish_difference(old, new, tmp_path / "site", store).read_text()
    assert '<span class="added">+    return n + 2</span>' in html


def test_equal_experiments_have_a_difference_page_that_says_so(store, two):
    assert difference_page(compare(store, two[0], two[0])).verdict == "Equal recipes; the results are equal."


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    folder = tmp_path_factory.mktemp("recorded")
    store = Store(folder / "store")
    chosen = when(numbers(3)[0].eq(0), double(1), refuse(double(7))).named("chosen", "1.0")

    @op(name="tests.choose", version="1")
    def first(n: int) -> dict:
        return {"loss": n / 3, "a rather long name of something": "x" * 90}

    @op(name="tests.choose", version="2")
    def second(n: int) -> dict:
        return {"loss": n / 7, "a rather long name of something": "y" * 90}

    roots = (chosen, first(chosen).named("arm", "1.0"), second(chosen).named("arm", "2.0"))
    for root in roots:
        evaluate(root, store=store, debug=True)
    publish_recorded([subjects(store, name)[0] for name in ("chosen@1.0", "arm@1.0")], folder, store)
    publish_difference(subjects(store, "arm@1.0")[0], subjects(store, "arm@2.0")[0], folder, store)
    return folder


PAGES = ["chosen-1-0", "arm-1-0", "arm-1-0-and-arm-2-0"]


@pytest.mark.browser
@pytest.mark.parametrize("name", PAGES)
def test_a_phone_never_scrolls_sideways(chromium, site, name):
    with opened(chromium, site / f"{name}.html", drawn=False, **PHONE) as page:
        page.evaluate("document.querySelectorAll('details').forEach((d) => { d.open = true; })")
        assert overflow(page) <= 0


@pytest.mark.browser
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("name", PAGES)
def test_all_text_stands_out_from_its_background(chromium, site, name, scheme):
    with opened(chromium, site / f"{name}.html", drawn=False, color_scheme=scheme) as page:
        assert [found for found in page.evaluate(CONTRAST) if found[0] < 4.5] == []


def marin(*words):
    return CliRunner().invoke(main, list(words), prog_name="marin")


def test_the_command_renders_labels_and_differences(store, two, tmp_path):
    site = str(tmp_path / "site")
    done = marin("page", "sweep@1.0", "--store", store.url, "--site", site)
    assert done.output == f"page: {site}/sweep-1-0.html\n"
    done = marin("page", "--diff", "sweep@1.0", "sweep@2.0", "--store", store.url, "--site", site)
    assert done.output == f"page: {site}/sweep-1-0-and-sweep-2-0.html\n"


def test_a_difference_needs_two_names(store, two):
    done = marin("page", "--diff", "sweep@1.0", "--store", store.url)
    assert done.exit_code == 2
    assert "--diff takes two names that stand for one expression each, not sweep@1.0" in done.output


def test_a_label_that_is_unknown_is_a_complaint_that_names_those_there_are(store, two):
    done = marin("page", "swep@1.0", "--store", store.url)
    assert done.exit_code == 2
    assert "has no label swep@1.0; there is sweep@1.0" in done.output


def test_what_was_made_in_no_run_that_is_recorded_has_a_page_all_the_same(store, tmp_path):
    root = double(3)
    evaluate(root, store=store, debug=True)
    store.files.remove(place("results", root.key, ".json"))
    (page,) = publish_recorded(subjects(store, root.key.hex()), tmp_path / "lost", store)
    assert "It has not been evaluated." in page.read_text()
    evaluate(root, store=store, debug=True)
    record = store.result(root.key)
    path = place("results", root.key, ".json")
    for run in ("", "20261201T190942Z-123abcdef"):
        changed = {**record, "provenance": {**record["provenance"], "run": run}}
        store.files.replace(path, (write_record(path, changed),))
        (page,) = publish_recorded(subjects(store, root.key.hex()), tmp_path / "odd", store)
        assert "It came to 6." in page.read_text()
        assert inspect(store, subjects(store, root.key.hex())[0]).computed.run == run


def test_an_observation_that_is_gone_or_no_number_is_left_out(store):
    for value in ("many", True, None, float("nan")):
        evidence = evidence_of(store, observed(value))
        (node,) = evidence.nodes
        assert node.flops is None or node.flops != node.flops
    large = observed("x" * 200_000)
    evaluate(large, store=store, debug=True)
    for digest, _ in StoredValue.from_record(store.result(large.key)["observations"]["flops"]).leaves:
        store.files.remove(place("blobs", digest))
    assert evidence_of(store, large).nodes[0].flops is None


@op(name="tests.observed")
def observed(value: object) -> int:
    context().observe("flops", value)
    return 1


@op(name="tests.measured")
def measured(n: int) -> dict:
    return {"x" * 300: n, "text": "y" * 70_000, "n": n}


def test_very_long_names_are_shortened_and_the_size_is_that_of_the_whole_value(store, tmp_path):
    for n, version in ((1, "1.0"), (2, "2.0")):
        evaluate(measured(n).named("measured", version), store=store, debug=True)
    one, two = (subjects(store, f"measured@{version}")[0] for version in ("1.0", "2.0"))
    (place,) = publish_recorded([one], tmp_path / "site", store)
    html = place.read_text()
    assert "The value is a dict of 3, and takes 68.7 KiB." in html
    assert f"{'x' * 59}…" in html
    assert "x" * 80 not in html
    assert "x" * 90 not in publish_difference(one, two, tmp_path / "site", store).read_text()


def test_what_a_value_is_has_its_article(store):
    evaluate(double(3), store=store, debug=True)
    assert page_of(store, *_subject_and_value(store, double(3))).answer == "The value is an int, and takes 1 B."


def _subject_and_value(store, expression):
    (subject,) = subjects(store, expression.key.hex())
    return subject, recorded_value(store, subject)[1]


def test_labels_of_any_length_and_spelling_have_files_of_their_own(store, tmp_path):
    names = ["a.b", "a-b", "a/b", "c" * 200, "/".join(["d" * 60] * 3)]
    for n, name in enumerate(names):
        evaluate(double(n).named(name, "1.0" * 60), store=store, debug=True)
    found = [subjects(store, f"{name}@{'1.0' * 60}")[0] for name in names]
    places = publish_recorded(found, tmp_path / "site", store)
    assert len(set(places)) == len(names)
    for n, written in enumerate(places):
        assert f"It came to {2 * n}." in written.read_text()
    assert publish_difference(found[3], found[4], tmp_path / "site", store).is_file()


def test_a_page_that_no_target_made_says_nothing_of_one(store, tmp_path):
    evaluate(double(3), store=store, debug=True)
    (place,) = publish_recorded(subjects(store, double(3).key.hex()), tmp_path / "site", store)
    assert "<dt>target</dt>" not in place.read_text()
    assert re.search(r"<footer>Made on \d{4}-", place.read_text())


@op(name="tests.every")
def every(parts: list) -> int:
    return len(parts)


def test_a_page_of_very_many_nodes_shows_those_without_a_value_and_folds_the_rest(store, tmp_path):
    parts = [double(n) for n in range(300)] + [double(refuse(1))]
    evaluate(every(parts).named("many", "1.0"), store=store, debug=True)
    (place,) = publish_recorded(subjects(store, "many@1.0"), tmp_path / "site", store)
    html = place.read_text()
    assert "× 301, 60 shown" in html
    assert re.search(r'<a href="#[^"]+" class="skipped"><title>double', html)
    assert "<summary>303 nodes, and what became of each</summary>" in html
    assert html.count("<tr id=") >= 303
