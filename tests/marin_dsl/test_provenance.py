"""Where and by what a run was made."""

import hashlib
import importlib.metadata
import shutil
import subprocess
import sys
from datetime import datetime

import pytest

from marin_dsl import Store, digest, evaluate, op, provenance, uncommitted
from marin_dsl.encoding import decode, encode
from marin_dsl.lineage.history import runs
from marin_dsl.provenance import accelerators, command, environment


def git(folder, *arguments):
    identity = ["-c", "user.name=n", "-c", "user.email=e@example.org", "-c", "commit.gpgsign=false"]
    subprocess.run(["git", *identity, *arguments], cwd=folder, check=True, capture_output=True)


@pytest.fixture
def project(tmp_path):
    assert shutil.which("git"), "git is needed for the tests of provenance"
    git(tmp_path, "init", "-q")
    (tmp_path / "a.py").write_text("x = 1\n")
    (tmp_path / ".gitignore").write_text("ignored\n")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "-q", "-m", "first")
    return tmp_path


def test_the_environment_is_a_value_and_the_same_until_something_changes(tmp_path):
    one = environment(tmp_path)
    assert decode(encode(one)) == one
    assert digest(environment(tmp_path)) == digest(one)


def test_the_environment_names_interpreter_machine_and_packages(tmp_path):
    found = environment(tmp_path)
    assert found["python"] == ".".join(map(str, sys.version_info[:3]))
    assert found["implementation"] == "CPython"
    assert found["cores"] >= 1
    assert found["memory"] > 100_000_000
    assert found["processor"]
    assert found["packages"]["attrs"] == importlib.metadata.version("attrs")
    assert list(found["packages"]) == sorted(found["packages"])


def test_a_clean_project_is_its_commit(project):
    found = environment(project)
    head = subprocess.run(["git", "rev-parse", "HEAD"], cwd=project, capture_output=True, text=True).stdout.strip()
    assert (found["commit"], found["patch"], found["untracked"]) == (head, "", [])


def test_uncommitted_changes_are_kept_as_a_patch_and_new_files_by_name(project):
    (project / "a.py").write_text("x = 2\n")
    (project / "new é.py").write_text("")
    (project / "ignored").write_text("")
    found = environment(project)
    assert "-x = 1\n+x = 2\n" in found["patch"]
    assert found["untracked"] == ["new é.py"]
    git(project, "add", "new é.py")
    assert "new é.py" in environment(project)["patch"]


def test_the_patch_does_not_depend_on_how_a_person_likes_to_see_changes(project):
    (project / "a.py").write_text("x = 2\n")
    plain = environment(project)["patch"]
    for setting in (
        ("color.ui", "always"),
        ("diff.external", "true"),
        ("diff.noprefix", "true"),
        ("diff.context", "0"),
    ):
        git(project, "config", *setting)
    assert environment(project)["patch"] == plain


def test_content_that_is_no_text_does_not_stop_a_run(project):
    (project / "a.py").write_bytes(b"x = '\xff'\n")
    assert b"+x = '\xff'\n" in environment(project)["patch"]


@pytest.mark.parametrize("state", ["no repository", "no commit", "no folder", "no git"])
def test_without_a_commit_the_environment_says_so(tmp_path, monkeypatch, state):
    folder = tmp_path
    if state == "no commit":
        git(folder, "init", "-q")
    if state == "no folder":
        folder = tmp_path / "none"
    if state == "no git":
        monkeypatch.setenv("PATH", str(tmp_path))
    found = environment(folder)
    assert (found["commit"], found["patch"], found["untracked"], found["contents"]) == (None, "", [], {})


def test_of_a_package_that_is_installed_twice_the_first_on_the_path_counts(tmp_path, monkeypatch):
    for place, version in (("first", "2.0"), ("second", "1.0")):
        folder = tmp_path / place / "twice.dist-info"
        folder.mkdir(parents=True)
        (folder / "METADATA").write_text(f"Metadata-Version: 2.1\nName: twice\nVersion: {version}\n")
    (tmp_path / "first" / "broken.dist-info").mkdir()
    monkeypatch.setattr(sys, "path", [str(tmp_path / "first"), str(tmp_path / "second")])
    packages = environment(tmp_path)["packages"]  # an import hook that another test installed may add its own
    assert packages["twice"] == "2.0"
    assert "broken" not in packages


def test_the_command_is_written_as_a_person_would_type_it(monkeypatch):
    monkeypatch.setattr(sys, "argv", ["/somewhere/bin/marin", "page", "a b", "--store=$x"])
    assert command() == "marin page 'a b' '--store=$x'"
    monkeypatch.setattr(sys, "argv", ["folder/script.py", "4"])
    assert command() == "python script.py 4"
    monkeypatch.setattr(sys, "argv", [""])
    assert command() == "python"
    monkeypatch.setattr(sys, "argv", [])
    assert command() == "python"


def test_the_contents_of_untracked_files_are_kept(project):
    (project / "new.py").write_text("y = 2\n")
    (project / "folder").mkdir()
    (project / "folder" / "data.bin").write_bytes(b"\xff\0")
    found = environment(project)
    assert found["contents"] == {"folder/data.bin": b"\xff\0", "new.py": b"y = 2\n"}
    assert found["digests"]["new.py"] == f"sha256:{hashlib.sha256(b'y = 2' + bytes([10])).hexdigest()}"


def test_what_does_not_fit_is_named_with_its_digest_and_the_smallest_files_go_first(project, monkeypatch):
    monkeypatch.setattr(uncommitted, "CONTENTS_LIMIT", 10)
    for name, size in (("a", 20), ("b", 6), ("c", 4), ("d", 5)):
        (project / name).write_bytes(b"x" * size)
    found = environment(project)
    assert list(found["contents"]) == ["c", "d"]
    assert list(found["digests"]) == ["a", "b", "c", "d"]
    monkeypatch.setattr(uncommitted, "_HASHED_LIMIT", 12)
    found = environment(project)
    assert list(found["digests"]) == ["c", "d"]
    assert found["untracked"] == ["a", "b", "c", "d"]


@pytest.mark.parametrize(
    "name",
    [".env", ".env.local", "prod.env", "Server.PEM", "id_ed25519", "my_credentials.json", "secrets/a.txt", ".netrc"],
)
def test_what_looks_like_a_secret_is_named_and_never_read(project, name):
    (project / name).parent.mkdir(exist_ok=True)
    (project / name).write_text("hunter22\n")
    found = environment(project)
    assert found["untracked"] == [name]
    assert b"hunter22" not in encode(found)
    git(project, "add", "-f", name)
    found = environment(project)
    assert b"hunter22" not in encode(found)  # tracked, and in the patch otherwise
    git(project, "commit", "-q", "-m", "a mistake")
    (project / name).write_text("hunter23\n")
    assert b"hunter2" not in encode(environment(project))


def test_links_are_not_followed_and_files_that_cannot_be_read_do_not_stop_a_run(project, tmp_path_factory):
    outside = tmp_path_factory.mktemp("outside") / "data"
    outside.write_text("elsewhere")
    (project / "link").symlink_to(outside)
    (project / "dangling").symlink_to("nowhere")
    found = environment(project)
    assert found["untracked"] == ["dangling", "link"]
    assert found["contents"] == {}


def test_accelerators_are_read_from_what_the_system_shows(tmp_path):
    gpus, buses = tmp_path / "gpus", tmp_path / "pci"
    for folder, files in (
        (gpus / "0000:1b:00.0", {"information": "Model: \t\t NVIDIA H100 80GB HBM3\nIRQ:   9\n"}),
        (gpus / "0000:43:00.0", {}),
        (buses / "0000:00:05.0", {"vendor": "0x1ae0\n", "class": "0x120000\n"}),
        (buses / "0000:00:06.0", {"vendor": "0x8086\n", "class": "0x060000\n"}),
    ):
        folder.mkdir(parents=True)
        for name, text in files.items():
            (folder / name).write_text(text)
    assert accelerators(gpus, buses) == ["NVIDIA H100 80GB HBM3", "Google TPU"]
    assert accelerators(tmp_path / "none", tmp_path / "neither") == []


def test_a_note_is_recorded_with_the_run_and_shown(tmp_path):
    store = Store(tmp_path)
    evaluate(noted(1), store=store, debug=True, note="with the new tokenizer")
    assert [run.note for run in runs(store)] == ["with the new tokenizer"]


def test_an_environment_is_one_blob_that_runs_share(tmp_path, monkeypatch):
    store = Store(tmp_path)
    monkeypatch.setattr(provenance, "environment", lambda project: {"packages": {f"p{n}": "1.0" for n in range(400)}})
    for n in (1, 2, 3):
        evaluate(noted(n), store=store, debug=True, note=str(n))
    starts = [store.last(f"runs/{run.run}/start") for run in runs(store)]
    assert len({start["environment"]["digest"] for start in starts}) == 1
    assert starts[0]["environment"]["inline"] is None
    record = store.result(noted(1).key)
    assert record["provenance"]["environment"] == starts[0]["environment"]["digest"]
    assert {"run", "started", "ended", "seconds", "host", "pid", "peak_memory"} <= record["provenance"].keys()
    assert all(datetime.fromisoformat(record["provenance"][when]).tzinfo for when in ("started", "ended"))


@op(version="1")
def noted(n: int) -> int:
    return n


def test_files_of_a_project_that_has_no_commit_yet_are_kept_all_the_same(tmp_path):
    git(tmp_path, "init", "-q")
    (tmp_path / "first.py").write_text("x = 1\n")
    found = environment(tmp_path)
    assert (found["commit"], found["patch"], found["contents"]) == (None, "", {"first.py": b"x = 1\n"})


def test_the_accelerators_of_the_machine_that_ran_a_call_are_in_its_record(tmp_path, monkeypatch):
    monkeypatch.setattr("marin_dsl.worker.worker.accelerators", lambda: ["NVIDIA H100"])
    store = Store(tmp_path)
    evaluate(noted(5), store=store, debug=True)
    assert store.result(noted(5).key)["provenance"]["accelerators"] == ["NVIDIA H100"]


def test_the_store_itself_is_no_part_of_the_project(tmp_path):
    git(tmp_path, "init", "-q")
    (tmp_path / "first.py").write_text("x = 1\n")
    evaluate(noted(6), store=Store(tmp_path / ".marin"), debug=True)
    assert environment(tmp_path)["untracked"] == ["first.py"]
