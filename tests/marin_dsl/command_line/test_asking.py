"""`marin show`, `why` and `lineage`: about one thing, from its records."""

from __future__ import annotations

import re
import shutil
import sys
from pathlib import Path

import pytest

from marin_dsl.lineage import inspection
from marin_dsl.worker import worker
from tests.marin_dsl.command_line.conftest import forgotten
from tests.marin_dsl.command_line.project import MODULE, document, marin, told, write_module


def forget_code() -> None:
    """The project's code is gone."""
    Path("experiment.py").unlink()
    sys.modules.pop("experiment", None)


def test_show_tells_by_a_label_what_a_thing_is_without_the_projects_code(evaluated):
    forget_code()
    shown = told("show", "a-page@1.0")
    assert shown[0] == "✓ write(title='A page')  ok"
    text = "\n".join(shown)
    for pattern in (
        r"^  label     a-page@1.0$",
        r"^  recipe    sha256:[0-9a-f]{64}$",
        r"^  value     sha256:[0-9a-f]{64}$",
        r"^  operator  experiment.write  \(version 1, code [0-9a-f]{12}…\)$",
        r"^  computed  \d{4}-\d\d-\d\d \d\d:\d\d:\d\d, in \d+ ms, on \S+ \(process \d+\), peak memory .*$",
        r"^  run       \d{8}T\d{6}Z-[0-9a-f]{9}  experiment:page$",
        r"^  with      Python 3.11.7, commit c0ffee000000 and uncommitted changes$",
        r"^  title  'A page'$",
        r"^  ✓ double\(double\)  [0-9a-f]{12}…$",
        r"^  ○ double\(fail\)  not evaluated  [0-9a-f]{12}…$",
        r"^  parts  2$",
        r"^  writing$",
    ):
        assert re.search(pattern, text, re.MULTILINE), pattern


def test_show_tells_of_a_failure_with_its_traceback(evaluated):
    shown = told("show", document("failures")["failures"][0]["call"])
    assert shown[0] == "✗ fail(n=3)  failed"
    assert "  about to fail with 3" in shown
    assert any(
        re.fullmatch(r"  1  .* raised  ValueError: no 3  \(.*experiment.py:\d+ in fail\)", line) for line in shown
    )
    assert shown[-1] == "  ValueError: no 3"
    assert any('raise ValueError(f"no {n}")' in line for line in shown)


def test_show_says_because_of_what_something_was_skipped(evaluated):
    marin("run", "experiment:bad", "--debug")
    shown = told("show", "experiment:bad")
    assert shown[0] == "– double(fail)  skipped"
    place = shown.index("skipped because these failed")
    assert shown[place + 1] == "  fail(n=3)"


def test_a_digest_is_named_by_its_first_digits(evaluated):
    whole = document("show", "a-page@1.0")["things"][0]
    for key in ("recipe", "call"):
        found = document("show", whole[key][:20])["things"][0]
        assert (found["title"], found["call"]) == (whole["title"], whole["call"])
    assert document("show", whole["recipe"][7:17])["things"][0]["recipe"] == whole["recipe"]


def test_show_of_a_grid_shows_each_cell(evaluated):
    assert [thing["status"] for thing in document("show", "experiment:sweep")["things"]] == [
        "ok",
        "not evaluated",
        "not evaluated",
    ]
    marin("run", "experiment:sweep", "--debug")
    assert [thing["title"] for thing in document("show", "experiment:sweep")["things"]] == [
        "double(n=1)",
        "double(n=2)",
        "double(n=3)",
    ]


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a-pag@1.0", "has no label a-pag@1.0; there is a-page@1.0"),
        ("A@1", "'A' cannot be the name of a label"),
        ("a-page", "`a-page` is neither a target (package.module:name or file.py:name), nor a label"),
        ("sha256:zz", "`sha256:zz` is no digest: after sha256: come 4 to 64 of the digits 0-9 and a-f"),
        ("abc", "'abc' cannot be found by 3 digits: give 4 to 64 of them"),
        ("sha256:" + "0" * 64, "has no recipe, call or large value whose digest begins with 0000"),
        ("experiment:long", "has no record of experiment:long: evaluate it first (marin run experiment:long)"),
        ("experiment:none", "experiment has no `none`"),
    ],
)
def test_what_is_not_known_is_one_message_and_exit_2(evaluated, name, text):
    done = marin("show", name)
    assert done.exit_code == 2
    assert done.stderr.startswith("marin: ")
    assert text in done.stderr
    assert "Traceback" not in done.output


def test_an_ambiguous_beginning_names_what_it_may_be(evaluated):
    for shard in Path(".marin/recipes").iterdir():
        shutil.copytree(shard, Path(".marin/recipes/ab"), dirs_exist_ok=True)
    names = sorted(path.name for path in Path(".marin/recipes/ab").glob("*.json"))
    for position, name in enumerate(names):
        Path(f".marin/recipes/ab/{name}").rename(f".marin/recipes/ab/cd{position:02d}{name[4:]}")
    done = marin("show", "abcd")
    assert done.exit_code == 2
    assert re.search(r"\d+ digests begin with abcd: abcd00\w+… \(recipes\), .*; give more digits", done.stderr)


def test_a_value_that_is_gone_is_told_and_no_traceback(evaluated):
    write_module("experiment", MODULE.replace("return 2 * n", "return list(range(2000 * n))"))
    marin("run", "experiment:sweep", "--debug", "--store", "other")
    digest = document("show", "experiment:sweep", "--store", "other")["things"][0]["value"]["digest"]
    assert document("show", digest, "--store", "other")["things"][0]["value"]["lines"][0].startswith("[0]")
    shutil.rmtree("other/blobs")
    assert document("show", "experiment:sweep", "--store", "other")["things"][0]["status"] == "not evaluated"


def test_a_value_that_is_too_large_for_eyes_is_not_read(evaluated, monkeypatch):
    monkeypatch.setattr(inspection, "_READABLE", 10)
    assert document("show", "a-page@1.0")["things"][0]["value"]["lines"] == ["(too large to be shown)"]


def test_what_an_input_was_is_not_known_when_its_record_is_gone(evaluated):
    recipe = document("show", "experiment:good")["things"][0]["inputs"][0]["recipe"].removeprefix("sha256:")
    Path(f".marin/recipes/{recipe[:2]}/{recipe[2:]}.json").unlink()
    found = document("show", "experiment:good")["things"][0]
    assert [argument["text"] for argument in found["arguments"]] == ["(not recorded)"]
    assert found["inputs"] == []
    assert told("lineage", "experiment:good")[0].startswith("✓ double(double)")


def test_why_tells_what_changed_field_by_field(evaluated):
    changed = MODULE.replace('"A page", [good, attempt(bad)]', '"A better page", [double(5), attempt(bad)]')
    write_module("experiment", changed)
    shown = told("why", "experiment:page")
    place = shown.index("  run write(title='A better page'); spared if its inputs come out equal")
    assert sorted(shown[place + 1 : place + 4]) == [
        "      parts[0] changed: double(n=5)",
        "      title 'A page' → 'A better page'",
    ]
    found = document("why", "experiment:page", "write")["reasons"]
    assert [reason["title"] for reason in found] == ["write(title='A better page')"]
    assert len(found[0]["changes"]) == 2
    assert found[0]["when"] == "now"


def test_why_tells_why_things_ran_when_nothing_would_run_now(evaluated):
    shown = told("why", "experiment:page", "--keep-failures")
    assert shown[0] == "nothing would run now: every value is there; this is why they were computed"
    assert re.fullmatch(r"run \d{8}T\d{6}Z-[0-9a-f]{9}  \S+ \S+  experiment:page", shown[1])
    assert shown[2] == "  ran double(n=1)  not evaluated before"
    assert shown[-1] == "  ran write(title='A page')  not evaluated before"
    forget_code()
    by_label = told("why", "a-page@1.0", "double(n=1)")
    assert by_label[1:] == ["  ran double(n=1)  not evaluated before"]


def test_why_tells_inputs_first_of_what_ran_in_the_same_moment(project, monkeypatch):
    monkeypatch.setattr(worker, "_moment", lambda seconds: "2026-12-01T12:00:00+00:00")
    assert marin("run", "experiment:page").exit_code == 0
    shown = [line.split("  ")[1] for line in told("why", "experiment:page", "--keep-failures")[2:]]
    assert sorted(shown) == ["ran double(double)", "ran double(n=1)", "ran fail(n=3)", "ran write(title='A page')"]
    assert shown.index("ran double(n=1)") < shown.index("ran double(double)") < shown.index("ran write(title='A page')")


def test_why_tells_that_a_value_was_made_over_a_failure_that_is_tried_again(evaluated):
    spared = "; spared if its inputs come out equal"
    assert told("why", "experiment:page") == [
        "  run fail(n=3)  tried again: it failed with ValueError",
        f"  run double(fail)  not evaluated before{spared}",
        f"  run write(title='A page')  something that failed under it is tried again{spared}",
    ]


def test_why_of_a_node_that_is_not_there_says_where_the_titles_are(evaluated):
    done = marin("why", "a-page@1.0", "train")
    assert done.exit_code == 2
    assert "nothing with 'train' in its title or digest under a-page@1.0 would run or has run" in done.stderr
    assert "marin lineage a-page@1.0" in done.stderr


def test_lineage_goes_up_to_what_a_thing_was_made_from(evaluated):
    forget_code()
    shown = told("lineage", "a-page@1.0")
    assert re.fullmatch(r"✓ write\(title='A page'\)  \d+ ms", shown[0])
    assert any(re.fullmatch(r"[│├└─ ]+✗ fail\(n=3\)  failed  \d+ ms", line) for line in shown)
    assert not any("attempt" in line for line in shown), "what is inline is left out of the tree"
    found = document("lineage", "a-page@1.0")
    assert found["direction"] == "up"
    nodes = {node["title"]: node for node in found["lineages"][0]["nodes"]}
    assert nodes["double(n=1)"]["status"] == "ok"
    assert nodes["double(double)"]["references"] == [nodes["double(n=1)"]["recipe"]]
    assert nodes["fail(n=3)"]["status"] == "failed"


def test_lineage_goes_down_to_what_was_made_from_a_thing(evaluated):
    titles = {node["title"] for node in document("lineage", "experiment:good", "--down")["lineages"][0]["nodes"]}
    assert titles == {"double(double)", "write(title='A page')"}
    assert len(told("lineage", "experiment:good", "--down")) == 2


def test_lineage_is_a_graph_for_graphviz(evaluated):
    shown = told("lineage", "a-page@1.0", "--dot")
    assert shown[0] == "digraph lineage {"
    assert shown[-1] == "}"
    assert sum(" -> " in line for line in shown) == 5
    assert any(re.fullmatch(r'  "[0-9a-f]{16}" \[label="double\(n=1\)"\];', line) for line in shown)


def test_a_large_lineage_is_counted(evaluated):
    assert told("lineage", "a-page@1.0", "--lines", "2")[-1].endswith("expressions are shown")


def test_a_call_without_an_expression_has_no_lineage(evaluated):
    call = document("show", "a-page@1.0")["things"][0]["call"]
    done = marin("lineage", call)
    assert done.exit_code == 2
    assert "is no expression, so its lineage is not known" in done.stderr


UNSEEN = """
    from marin_dsl import op
    import table

    @op
    def look_up(name: str) -> int:
        return getattr(table, name)()

    @op
    def plain(n: int) -> int:
        return n + 1

    @op(version="1")
    def versioned(n: int) -> int:
        return eval("n + 1")

    found = plain(look_up("one"))
    twice = versioned(found)
"""
SENTENCES = [
    "unseen.look_up: getattr() with a name computed while running: what it reaches is not seen",
    "the module table is used as a value: every definition in it counts, its submodules do not",
]


@pytest.fixture
def unseen(project):
    (project / "table.py").write_text("def one():\n    return 1\n")
    write_module("unseen", UNSEEN)
    with forgotten("unseen", "table"):
        yield project


def test_what_the_identity_of_the_code_cannot_see_is_shown_with_the_call(unseen):
    assert marin("run", "unseen:twice", "--debug").exit_code == 0
    (unseen / "unseen.py").unlink()  # the records say it, long after
    recipes = {node["title"]: node["recipe"] for node in _lineage_nodes(_latest_root())}
    looked = recipes["look_up(name='one')"]
    lines = told("show", looked)
    start = lines.index("not seen by the identity of its code") + 1
    assert [line.strip() for line in lines[start : start + 2]] == SENTENCES
    (thing,) = document("show", looked)["things"]
    assert thing["operator"]["unseen"] == SENTENCES
    plain = next(key for title, key in recipes.items() if title.startswith("plain("))
    assert not [line for line in told("show", plain) if "not seen" in line]
    (thing,) = document("show", plain)["things"]
    assert thing["operator"]["unseen"] == []


def test_why_says_once_of_each_operator_what_the_identity_of_its_code_cannot_see(unseen):
    for _ in ("it would run", "it ran"):
        lines = told("why", "unseen:twice")
        start = lines.index("not seen by the identity of the code, so that an edit there runs nothing:")
        assert [line.strip() for line in lines[start + 1 :]] == [
            *SENTENCES,
            "unseen.versioned: eval() reaches code by text or name; what it reaches is not seen",
        ]
        reasons = {reason["title"].partition("(")[0]: reason for reason in document("why", "unseen:twice")["reasons"]}
        assert reasons["look_up"]["unseen"] == SENTENCES
        assert reasons["plain"]["unseen"] == []
        assert "not seen by" not in "\n".join(told("why", "unseen:twice", "plain("))
        assert marin("run", "unseen:twice", "--debug").exit_code == 0


def _latest_root():
    return document("log")["runs"][0]["roots"][0]["recipe"]


def _lineage_nodes(root):
    return document("lineage", root)["lineages"][0]["nodes"]


def test_a_lineage_has_one_form(evaluated):
    done = marin("lineage", "a-page@1.0", "--json", "--dot")
    assert (done.exit_code, "take one of them" in done.output) == (2, True)
