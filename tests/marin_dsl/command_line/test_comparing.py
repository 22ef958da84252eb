"""`marin diff`: two experiments, told apart."""

from __future__ import annotations

import re

from tests.marin_dsl.command_line.project import MODULE, document, marin, told, write_module


def test_two_labels_are_told_apart_from_their_records_alone(evaluated):
    assert marin("run", "experiment:again", "--debug").exit_code == 0
    (evaluated / "experiment.py").unlink()
    lines = told("diff", "a-page@1.0", "a-page@2.0")
    assert re.fullmatch(r"- a-page@1\.0  write\(title='A page'\)  \S+…  .*  run \S+, .*", lines[0])
    assert "  write(title='A page', …): title 'A page' → 'Another page'" in [
        line.replace("(title='Another page')", "(title='A page', …)") for line in lines
    ]
    assert "result" in lines
    assert "  title  'A page' → 'Another page'" in lines


def test_equal_experiments_are_said_to_be_equal(evaluated):
    lines = told("diff", "a-page@1.0", "experiment:page")
    assert "the recipes are equal" in lines
    assert any(line.startswith("  equal") for line in lines)


def test_what_differs_in_the_code_is_printed_as_a_unified_diff(evaluated):
    write_module("experiment", MODULE.replace("Page(title,", 'Page(title + "!",'))
    lines = told("diff", "a-page@1.0", "experiment:again")
    assert "  experiment.write  (both have version 1)" in lines
    assert any(line.startswith('    +    return Page(title + "!",') for line in lines)


def test_a_target_that_was_not_evaluated_is_compared_by_its_recipe(evaluated):
    lines = told("diff", "a-page@1.0", "experiment:again")
    assert "  experiment:again has no stored value" in lines


def test_two_runs_are_compared_by_their_roots(evaluated):
    assert marin("run", "experiment:again", "--debug").exit_code == 0
    runs = [run["run"] for run in document("log")["runs"]]
    (found,) = document("diff", runs[1], runs[0])["differences"]
    assert "title" in [change["path"] for change in found["recipe"] if not change["inherited"]]
    assert found["recipe"][0]["node"].startswith("sha256:")
    assert found["old"]["run"] == runs[1]


def test_long_lists_are_cut_and_counted(evaluated):
    lines = told("diff", "a-page@1.0", "experiment:again", "--lines", "1")
    assert "  … and 1 more" in lines


def test_a_run_that_is_unknown_is_a_complaint_that_says_where_to_look(evaluated):
    assert (
        "has no run 20200101T000000Z-abc; marin log lists them"
        in told("diff", "20200101T000000Z-abc", "a-page@1.0", code=2)[0]
    )
