"""The command as a user types it: exit codes, one message for what can be mended, examples that run."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from marin_dsl import provenance
from marin_dsl.encoding import LeafMissing
from tests.marin_dsl.command_line.project import MODULE, document, marin, write_module


def test_run_prints_outcomes_and_exits_0_when_all_is_well(project):
    done = marin("run", "experiment:good", "--debug")
    assert done.exit_code == 0, done.output
    assert "2 nodes run, 0 served" in done.output
    assert "✓ double(n=1)" in done.output
    assert re.search(r"^Ok\(", done.output, re.MULTILINE)
    assert (project / ".marin" / "format.json").is_file(), "beside pyproject.toml"
    assert "0 nodes run" in marin("run", "experiment:good", "--debug").output


def test_run_exits_1_when_something_failed():
    done = marin("run", "experiment:bad", "experiment:sweep", "--debug")
    assert done.exit_code == 1
    assert "✗ fail(n=3)  ValueError: no 3" in done.output
    assert "skipped: fail(n=3) failed" in done.output
    assert done.output.count("Ok(") == 3
    kept = marin("run", "experiment:bad", "--debug", "--keep-failures")
    assert kept.exit_code == 1
    assert "kept from an earlier run" in kept.output


def test_plan_says_what_would_run_and_why_and_writes_nothing(project):
    done = marin("plan", "experiment:good")
    assert done.exit_code == 0
    assert done.output.splitlines() == [
        "2 to run, 0 served",
        "  run double(n=1)  (not evaluated before)",
        "  run double(double)  (not evaluated before; spared if its inputs come out equal)",
    ]
    assert not (project / ".marin").exists()


@pytest.mark.parametrize(
    ("target", "text"),
    [
        ("experiment", "`experiment` is no target; write package.module:name or path/to/file.py:name"),
        ("experiment:", "`experiment:` is no target"),
        ("experiment:goood", "experiment has no `goood`; it has the expressions good"),
        ("experiment:number", "experiment:number is a int, not an expression; name the result of calling an operator"),
        ("experiment:double", "experiment:double is an operator, not an expression"),
        ("experimant:good", "there is no module `experimant` here ("),
        ("none.py:good", "there is no file none.py"),
    ],
)
def test_a_target_that_names_nothing_is_one_message_and_exit_2(target, text):
    done = marin("run", target)
    assert done.exit_code == 2
    assert text in done.output
    assert "Traceback" not in done.output
    assert len(done.output.splitlines()) == 1


def test_a_wrong_call_in_the_module_is_one_message_with_its_place():
    write_module("wrong", "from experiment import double\n\nx = double(m=1)\n")
    done = marin("plan", "wrong:x")
    assert done.exit_code == 2
    assert re.fullmatch(
        r"marin: .*wrong\.py:3: double\(\.\.\.\): unexpected argument `m`; did you mean `n`\? it takes n: int\n"
        r"|marin: .*wrong\.py:3: double\(\.\.\.\): unexpected argument `m`; it takes n: int\n",
        done.output,
    )


def test_a_store_that_cannot_be_used_is_one_message_and_exit_3(project):
    (project / "file").touch()
    done = marin("run", "experiment:good", "--debug", "--store", "file/store")
    assert done.exit_code == 3
    assert re.search(r"^marin: store .*file/store: cannot .*a part of the path is a file", done.output, re.MULTILINE)
    assert "Traceback" not in done.output
    write_module(
        "wrong",
        """
        from experiment import op
        from marin_dsl.settings import Settings
        from marin_dsl.store import Store, StoreUnavailable

        @op(version="1")
        def breaking() -> int:
            raise StoreUnavailable("store s: cannot write x: the disk is full", Store(Settings.read().store).url)

        x = breaking()
        """,
    )
    done = marin("run", "wrong:x", "--debug")
    assert done.exit_code == 3
    assert done.output.count("the disk is full") == 1


def test_one_label_for_two_recipes_is_one_message_and_exit_2():
    write_module("wrong", "from experiment import double\nx = double(double(1).named('a', '1')).named('a', '1')\n")
    done = marin("run", "wrong:x", "--debug")
    assert done.exit_code == 2
    assert "a@1 names two different recipes in one run" in done.output


def test_accept_moves_a_label():
    write_module("wrong", "from experiment import double\nx = double(1).named('a', '1')\n")
    marin("run", "wrong:x", "--debug")
    write_module("wrong", "from experiment import double\nx = double(2).named('a', '1')\n")
    drifted = marin("run", "wrong:x", "--debug")
    assert drifted.exit_code == 0
    assert "a@1 was recorded for another recipe" in drifted.output
    assert "≠ double(n=2): n 1 → 2" in drifted.output
    assert "was recorded for another" not in marin("run", "wrong:x", "--debug", "--accept").output
    assert "was recorded for another" not in marin("run", "wrong:x", "--debug").output


def drifted_module():
    write_module("wrong", "from experiment import double\nx = double(1).named('a', '1')\n")
    marin("run", "wrong:x", "--debug")
    write_module("wrong", "from experiment import double\nx = double(2).named('a', '1')\n")


def test_what_a_label_stands_for_is_served_in_the_place_of_what_drifted():
    drifted_module()
    done = marin("run", "wrong:x", "--debug", "--use-recorded")
    assert done.exit_code == 0
    assert "a@1 was recorded for another recipe" in done.output
    assert "and what it stands for is served:" in done.output
    assert "0 nodes run" in done.output
    assert document("log")["runs"][0]["drift"] == "use-recorded"
    assert document("plan", "wrong:x", "--use-recorded")["run"] == []


@pytest.mark.parametrize("words", [("run", "wrong:x", "--debug"), ("plan", "wrong:x"), ("page", "wrong:x", "--debug")])
def test_a_strict_command_ends_with_1_before_anything_runs(words):
    drifted_module()
    done = marin(*words, "--strict")
    assert done.exit_code == 1
    assert done.output.startswith("marin: drift, so nothing was run:\na@1 was recorded for another recipe")
    assert "≠ double(n=2): n 1 → 2" in done.output
    assert len(document("log")["runs"]) == 1


@pytest.mark.parametrize(
    "words", [("run", "experiment:good"), ("plan", "experiment:good"), ("page", "experiment:page")]
)
def test_policies_exclude_each_other(words):
    done = marin(*words, "--accept", "--strict")
    assert done.exit_code == 2
    assert "--accept and --strict exclude each other; choose one of them" in done.output


def test_an_edit_to_a_versioned_operator_is_told_and_can_be_accepted():
    marin("run", "experiment:good", "--debug")
    write_module("experiment", MODULE.replace("return 2 * n", "return n + n"))
    done = marin("run", "experiment:good", "--debug")
    assert "the code of experiment.double changed and its version 1 did not; served: double" in done.output
    assert "-    return 2 * n" in done.output
    assert "+    return n + n" in done.output
    assert "    -    return 2 * n" in marin("plan", "experiment:good").output
    assert marin("run", "experiment:good", "--debug", "--strict").exit_code == 1
    assert "changed" not in marin("run", "experiment:good", "--debug", "--accept").output
    assert "changed" not in marin("run", "experiment:good", "--debug", "--strict").output


def test_a_page_of_what_is_recorded_shows_the_evidence_of_that(evaluated):
    write_module("experiment", MODULE.replace('"A page"', '"Edited"'))
    done = marin("page", "experiment:page", "--debug", "--use-recorded", "--site", "out")
    assert done.exit_code == 0, done.output
    assert "A page" in (evaluated / "out" / "a-page.html").read_text()


def test_page_writes_pages_with_an_index_and_says_where(project):
    done = marin("page", "experiment:page", "experiment:again", "--site", "out", "--debug")
    assert done.exit_code == 0, done.output
    places = re.findall(r"^page: (.*)$", done.output, re.MULTILINE)
    assert [Path(place).name for place in places] == ["a-page.html", "a-page-2-0.html"]
    assert all(Path(place).is_file() for place in places)
    assert "a-page@1.0" in Path(places[0]).read_text()
    assert "a-page@2.0" in Path(places[1]).read_text()
    assert (project / "out" / "index.html").is_file()


def test_page_exits_1_and_says_which_page_there_is_not():
    done = marin("page", "experiment:page", "experiment:broken", "--debug")
    assert done.exit_code == 1
    assert "marin: there is no page: fail(n=3) failed (ValueError: no 3)" in done.output
    assert "page: " in done.output


def test_page_of_a_value_that_is_no_page_is_one_message():
    done = marin("page", "experiment:good", "--debug")
    assert done.exit_code == 2
    assert "is a int: a page operator returns a Page" in done.output


def test_page_into_a_folder_that_cannot_be_made_is_one_message(project):
    (project / "file").touch()
    done = marin("page", "experiment:page", "--debug", "--site", "file/site")
    assert done.exit_code == 2
    assert "marin: cannot write pages to file/site: " in done.output
    assert "choose another folder with --site" in done.output


def test_nothing_to_do_and_unknown_options_are_usage():
    assert marin("run").exit_code == 2
    assert marin("run", "experiment:good", "--workers", "0").exit_code == 2
    assert marin("fly").exit_code == 2


def test_the_output_of_a_program_has_no_escape_codes_and_long_titles_do_not_break_lines():
    done = marin("run", "experiment:long", "experiment:bad", "--debug")
    assert "\x1b" not in done.output
    assert any("x" * 300 in line for line in done.output.splitlines())


def test_a_run_can_be_a_document_and_then_its_view_is_on_standard_error():
    done = marin("run", "experiment:good", "experiment:bad", "--debug", "--json")
    assert done.exit_code == 1
    assert "✓ double(n=1)" in done.stderr
    good, bad = document("run", "experiment:good", "experiment:bad", "--debug", code=1)["outcomes"]
    assert (good["outcome"], good["digest"][:7], good["label"]) == ("ok", "sha256:", None)
    assert (bad["outcome"], bad["because"][0]["exception"]) == ("skipped", "ValueError")
    (failed,) = document("run", "experiment:fail_alone", "--debug", code=1)["outcomes"]
    assert (failed["outcome"], failed["kind"], failed["message"]) == ("failed", "raised", "no 7")


def test_a_plan_can_be_a_document(project):
    found = document("plan", "experiment:good")
    assert [(run["title"], run["reason"], run["undecided"]) for run in found["run"]] == [
        ("double(n=1)", "not evaluated before", False),
        ("double(double)", "not evaluated before", True),
    ]
    assert (found["served"], found["store"]) == ([], str(project / ".marin"))
    marin("run", "experiment:good", "--debug")
    assert document("plan", "experiment:good")["served"] == ["double(double)"]


def test_a_page_can_be_a_document():
    found = document("page", "experiment:page", "--debug")
    assert [Path(place).name for place in found["pages"]] == ["a-page.html"]
    assert found["outcomes"][0]["label"] == "a-page@1.0"


def test_help_and_version():
    assert "Exit codes: 0" in marin("--help").output
    assert marin("--version").output.startswith("marin ")


def test_the_installed_command_runs_on_dask(project):
    code = "from marin_dsl.command_line import main; main(prog_name='marin')"
    source = Path(provenance.__file__).parents[1]
    done = subprocess.run(
        [sys.executable, "-c", code, "run", "experiment.py:sweep", "experiment:bad"],
        env=os.environ | {"PYTHONPATH": str(source), "MARIN_STORE": str(project / "elsewhere")},
        capture_output=True, text=True, check=False, timeout=60,
    )  # fmt: skip
    assert done.returncode == 1, done.stdout + done.stderr
    assert done.stdout.count("Ok(") == 3
    assert "threads of this process, dashboard http://127.0.0.1:" in done.stdout
    assert "Traceback" not in done.stdout + done.stderr
    assert "\x1b" not in done.stdout
    assert (project / "elsewhere" / "format.json").is_file()


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("import nothing_of_this_name\n", ["wrong.py", "No module named 'nothing_of_this_name'"]),
        ("def inner():\n    return 1 / 0\nx = inner()\n", ["in inner", "ZeroDivisionError: division by zero"]),
        ("x = (\n", ["wrong.py", "SyntaxError: '(' was never closed"]),
        ("from marin_dsl import grid\nx = grid(rate=[])(abs)\n", ["the axis `rate` is empty"]),
    ],
)
def test_what_the_module_of_a_target_raises_is_told_without_our_own_frames(text, told):
    write_module("wrong", text)
    done = marin("plan", "wrong.py:x")
    assert done.exit_code == 1
    assert all(part in done.stderr for part in told)
    assert done.stderr.endswith("marin: the module of the target could not be loaded; what it raised is above\n")
    assert not [part for part in ("click", "importlib", "command_line") if part in done.stderr]


UNSPELLABLE = """
    from marin_dsl import op

    @op(version="1")
    def fail(text: str) -> str:
        raise FileNotFoundError("no file \\udcff é")

    bad = fail("é")
"""


@pytest.mark.parametrize("encoding", ["utf-8", "latin-1"])
def test_what_the_output_cannot_spell_is_escaped(project, encoding):
    write_module("experiment", UNSPELLABLE)
    environment = {**os.environ, "PYTHONIOENCODING": encoding, "PYTHONUTF8": "0"}

    def run(*arguments: str) -> str:
        done = subprocess.run(
            [sys.executable, "-c", "from marin_dsl.command_line import main; main()", *arguments],
            capture_output=True,
            env=environment,
            timeout=120,
        )
        assert done.returncode in (0, 1), done.stderr
        assert b"Traceback" not in done.stderr
        return done.stdout.decode(encoding)

    assert "FileNotFoundError: no file" in run("run", "experiment:bad", "--debug")
    assert json.loads(run("run", "experiment:bad", "--debug", "--json"))["outcomes"][0]["message"] == "no file \udcff é"
    assert json.loads(run("failures", "--json"))["failures"][0]["attempts"][0]["message"] == "no file \udcff é"
    assert "FileNotFoundError: no file" in run("failures")


def test_what_the_user_can_mend_about_the_surroundings_is_one_message(project, monkeypatch):
    def said(*arguments: str) -> str:
        done = marin(*arguments)
        assert done.exit_code == 2, done.output
        return done.stderr

    workers = said("run", "experiment:good", "--workers", "2", "--store", "memory://here")
    assert "worker processes do not see it" in workers
    monkeypatch.setenv("MARIN_LEASE_SECONDS", "soon")
    assert "MARIN_LEASE_SECONDS is 'soon'" in said("plan", "experiment:good")
    monkeypatch.delenv("MARIN_LEASE_SECONDS")
    gone = project / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    for command in ("plan experiment:good", "run experiment:good", "log", "show a-page@1.0"):
        assert "the working directory is gone" in said(*command.split())
    assert "the working directory is gone" in marin("store", "copy", "a", "b").stderr


@pytest.fixture
def large(project) -> list[Path]:
    """A page that is too large for a record has been evaluated; the blobs of the store, the page's own last."""
    own = """
    large = write("Large", ["x" * 3000]).named("large", "1.0")
    """
    write_module("experiment", MODULE + own)
    assert marin("run", "experiment:large", "--debug").exit_code == 0
    return sorted(Path(".marin/blobs").glob("*/*"), key=lambda blob: b"x" * 3000 in blob.read_bytes())


def test_what_is_recorded_is_shown_when_the_store_has_lost_the_values(large):
    for blob in large:
        blob.unlink()
    assert marin("page", "large@1.0").exit_code == 0
    assert marin("page", "experiment:large", "--debug").exit_code == 0


def test_a_damaged_value_is_made_anew(large):
    large[-1].write_bytes(large[-1].read_bytes().replace(b"x" * 3000, b"x" * 2999 + b"y"))
    done = marin("page", "experiment:large", "--debug")
    assert done.exit_code == 0
    assert "1 node run, 0 served" in done.output


def test_a_value_that_is_lost_while_it_is_wanted_is_one_message(large, monkeypatch):
    def lost(*given):
        raise LeafMissing("store s: blob sha256:0 is gone; evaluate again to compute it anew")

    monkeypatch.setattr("marin_dsl.pages.publish.publish", lost)
    done = marin("page", "experiment:large", "--debug")
    assert done.exit_code == 1
    assert done.stderr == "marin: store s: blob sha256:0 is gone; evaluate again to compute it anew\n"
