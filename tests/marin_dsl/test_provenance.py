"""Where and by what a run was made."""

import importlib.metadata
import shutil
import subprocess
import sys

import pytest

from marin_dsl import digest
from marin_dsl.encoding import decode, encode
from marin_dsl.provenance import command, environment


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
    assert "\ufffd" in environment(project)["patch"]


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
    assert (found["commit"], found["patch"], found["untracked"]) == (None, "", [])


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
    monkeypatch.setattr(sys, "argv", [""])
    assert command() == "python"
    monkeypatch.setattr(sys, "argv", [])
    assert command() == "python"
