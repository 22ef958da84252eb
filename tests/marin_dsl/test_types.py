"""What a type checker says about the programs in `typed_programs`: nothing, but on the marked lines of wrong ones."""

import re
from pathlib import Path

import pytest
from mypy import api

import marin_dsl

ROOT = Path(__file__).resolve().parents[2]
PROGRAMS = Path(__file__).parent / "typed_programs"
REPORT = re.compile(r"(?P<file>[^:]+):(?P<line>\d+): error: (?P<message>.*)")
MARK = re.compile(r"# E: (?P<words>.*)$")


@pytest.fixture(scope="module")
def reports(tmp_path_factory):
    """The errors of one run of mypy with the project's configuration: by file name, line and message in order."""
    cache = tmp_path_factory.mktemp("mypy")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(ROOT)
        names = sorted(str(path.relative_to(ROOT)) for path in PROGRAMS.glob("*.py"))
        out, err, _ = api.run([*names, "--config-file", "pyproject.toml", "--cache-dir", str(cache)])
    assert not err
    found = [REPORT.match(line) for line in out.splitlines()]
    return [(Path(it["file"]).name, int(it["line"]), it["message"]) for it in found if it]


def test_correct_programs_are_accepted(reports):
    assert [report for report in reports if not report[0].endswith("wrong.py")] == []


@pytest.mark.parametrize("program", ["wrong.py", "library_wrong.py"])
def test_wrong_uses_are_rejected_on_exactly_their_lines_and_say_what_was_expected(reports, program):
    lines = (PROGRAMS / program).read_text().splitlines()
    marked = {number: mark["words"] for number, line in enumerate(lines, 1) if (mark := MARK.search(line))}
    reported: dict[int, str] = {}
    for name, line, message in reports:
        if name == program:
            reported[line] = f"{reported.get(line, '')}{message}\n"
    assert reported.keys() == marked.keys(), reported
    assert {line: reported[line] for line, words in marked.items() if words not in reported[line]} == {}


def test_an_installed_package_says_that_it_is_typed_and_brings_the_plugin():
    from marin_dsl.typing_plugin import plugin

    assert (Path(marin_dsl.__file__).parent / "py.typed").exists()
    assert plugin("2.0").__module__ == "marin_dsl.typing_plugin"
