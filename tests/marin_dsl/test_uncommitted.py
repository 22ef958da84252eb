"""What of a project is in no commit, in repositories of every kind, and that it can be put back where it came from."""

import os
import shutil
import subprocess

import pytest

from marin_dsl import git as questions
from marin_dsl import uncommitted as module
from marin_dsl.encoding import decode, encode
from marin_dsl.uncommitted import uncommitted


def git(folder, *arguments):
    identity = ["-c", "user.name=n", "-c", "user.email=e@example.org", "-c", "commit.gpgsign=false"]
    allowed = ["-c", "protocol.file.allow=always"]
    done = subprocess.run(["git", *identity, *allowed, *arguments], cwd=folder, check=True, capture_output=True)
    return done.stdout.decode().strip()


def repository(folder, **files):
    folder.mkdir(parents=True, exist_ok=True)
    git(folder, "init", "-q")
    for name, text in (files or {"a.py": "x = 1\n"}).items():
        (folder / name).write_text(text)
    git(folder, "add", ".")
    git(folder, "commit", "-q", "-m", "first")
    return folder


@pytest.fixture
def project(tmp_path):
    folder = repository(tmp_path / "project")
    (folder / "a.py").write_text("x = 1\n")
    return folder


def applied(project, found, folder):
    """A fresh checkout of the commit with what was not committed put back into it."""
    git(project.parent, "clone", "-q", "--no-checkout", str(project), str(folder))
    if found["commit"]:
        git(folder, "checkout", "-q", found["commit"])
    if found["patch"]:
        patch = found["patch"]
        (folder.parent / "patch").write_bytes(patch if isinstance(patch, bytes) else patch.encode())
        git(folder, "apply", str(folder.parent / "patch"))
    for name, content in found["contents"].items():
        (folder / found["folder"] / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / found["folder"] / name).write_bytes(content)
    return folder


def files(folder):
    paths = (path for path in folder.rglob("*") if ".git" not in path.relative_to(folder).parts and path.is_file())
    return {os.fsencode(path.relative_to(folder)): path.read_bytes() for path in paths}


CHANGES = {
    "a binary file": lambda p: (p / "a.py").write_bytes(bytes(range(256)) * 40),
    "bytes that are no text": lambda p: (p / "a.py").write_bytes(b"x = '\xff'\n"),
    "other ends of lines": lambda p: (p / "a.py").write_bytes(b"x = 2\r\ny = 3\rz\n"),
    "no end of the last line": lambda p: (p / "a.py").write_text("x = 2"),
    "a file that was moved": lambda p: git(p, "mv", "a.py", "b.py"),
    "a file that was removed": lambda p: (p / "a.py").unlink(),
    "a name with a new line": lambda p: (p / "a\nb \"c\" é.py").write_text("y\n"),
    "such a name that was added": lambda p: ((p / "a\nb \"c\" é.py").write_text("y\n"), git(p, "add", ".")),
    "a file that was added and not committed": lambda p: ((p / "b.py").write_text("y\n"), git(p, "add", "b.py")),
    "a file that was added as empty": lambda p: ((p / "b.py").write_text("y\n"), git(p, "add", "-N", "b.py")),
    "an untracked binary file": lambda p: (p / "data").write_bytes(bytes(range(256))),
}  # fmt: skip

LIKINGS = {
    "diff.external": "true", "color.ui": "always", "color.diff": "always", "core.quotePath": "true",
    "diff.noprefix": "true", "diff.mnemonicPrefix": "true", "diff.relative": "true", "diff.submodule": "log",
    "diff.context": "0", "diff.interHunkContext": "9", "diff.renames": "copies", "diff.algorithm": "patience",
    "diff.odd.textconv": "wc -c <", "diff.odd.command": "true", "diff.suppressBlankEmpty": "true",
    "core.fsmonitor": "false", "diff.wsErrorHighlight": "all", "diff.colorMoved": "zebra", "core.pager": "false",
}  # fmt: skip


def set_likings(project):
    for name, value in LIKINGS.items():
        git(project, "config", name, value)
    (project / ".git" / "info" / "attributes").write_text("* diff=odd\n")


@pytest.mark.parametrize("likings", [False, True])
@pytest.mark.parametrize("change", CHANGES)
def test_what_was_not_committed_can_be_put_back(project, tmp_path, change, likings):
    CHANGES[change](project)
    if likings:
        set_likings(project)
    found = uncommitted(project)
    assert decode(encode(found)) == found
    assert found["unread"] == []
    assert files(applied(project, found, tmp_path / "fresh")) == files(project)


def test_files_that_were_added_before_the_first_commit_are_kept(tmp_path):
    git(tmp_path, "init", "-q")
    (tmp_path / "added.py").write_text("x = 1\n")
    git(tmp_path, "add", "added.py")
    (tmp_path / "untracked.py").write_text("y = 1\n")
    found = uncommitted(tmp_path)
    assert (found["commit"], found["contents"]) == (None, {"untracked.py": b"y = 1\n"})
    assert "+x = 1\n" in found["patch"]


def test_a_project_in_a_folder_of_its_repository_says_in_which(project, tmp_path):
    inner = project / "inner"
    inner.mkdir()
    (inner / "new.py").write_text("y = 2\n")
    (project / "a.py").write_text("x = 2\n")
    set_likings(project)
    found = uncommitted(inner)
    assert (found["folder"], found["untracked"]) == ("inner", ["new.py"])
    assert "+x = 2\n" in found["patch"]
    assert files(applied(project, found, tmp_path / "fresh")) == files(project)


@pytest.mark.parametrize("kind", ["detached", "worktree"])
def test_other_checkouts_are_like_the_first(project, tmp_path, kind):
    folder = project
    if kind == "worktree":
        folder = tmp_path / "other"
        git(project, "worktree", "add", "-q", str(folder))
    else:
        git(project, "checkout", "-q", "--detach")
    (folder / "a.py").write_text("x = 2\n")
    found = uncommitted(folder)
    assert found["commit"] == git(project, "rev-parse", "HEAD")
    assert "+x = 2\n" in found["patch"]


@pytest.mark.parametrize(
    "variable", ["GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_NAMESPACE", "GIT_LITERAL_PATHSPECS"]
)
def test_variables_that_lead_git_elsewhere_change_nothing(project, tmp_path, monkeypatch, variable):
    """A hook of git sets them for whatever it starts."""
    other = repository(tmp_path / "other", **{"b.py": "z = 1\n"})
    (project / "a.py").write_text("x = 2\n")
    (project / ".env").write_text("hunter2\n")
    git(project, "add", "-f", ".env")
    plain = uncommitted(project)
    values = {"GIT_DIR": other / ".git", "GIT_WORK_TREE": other, "GIT_INDEX_FILE": other / ".git" / "index"}
    monkeypatch.setenv(variable, str(values.get(variable, "1")))
    monkeypatch.setenv("GIT_EXTERNAL_DIFF", "true")
    monkeypatch.setenv("GIT_DIFF_OPTS", "-u0")
    assert uncommitted(project) == plain
    assert "+x = 2\n" in plain["patch"]
    assert "hunter2" not in plain["patch"]


def test_what_was_changed_in_a_submodule_is_kept(project, tmp_path):
    library = repository(tmp_path / "library", **{"lib.py": "a = 1\n"})
    git(project, "submodule", "--quiet", "add", str(library), "deps/library")
    git(project, "commit", "-q", "-m", "with a submodule")
    assert uncommitted(project)["patch"] == ""
    inner = project / "deps" / "library"
    (inner / "lib.py").write_text("a = 2\n")
    (inner / "new.py").write_text("b = 1\n")
    (inner / ".env").write_text("hunter2\n")
    for likings in (False, True):
        if likings:
            set_likings(project)
        found = uncommitted(project)
        assert found["contents"] == {"deps/library/new.py": b"b = 1\n"}
        assert found["untracked"] == ["deps/library/.env", "deps/library/new.py"]
        assert "+a = 2\n" in found["patch"]
        assert "-dirty" not in found["patch"]
    fresh = tmp_path / "fresh"
    git(tmp_path, "clone", "-q", "--recurse-submodules", str(project), str(fresh))
    (tmp_path / "patch").write_text(found["patch"])
    git(fresh, "apply", str(tmp_path / "patch"))
    assert (fresh / "deps" / "library" / "lib.py").read_text() == "a = 2\n"


def test_a_name_that_is_no_text_is_told_and_does_not_stop_a_run(project):
    name = os.fsdecode(b"caf\xe9.txt")
    (project / name).write_text("y")
    found = uncommitted(project)
    assert found["untracked"] == [r"caf\xe9.txt"]
    assert (found["contents"], list(found["digests"])) == ({}, [r"caf\xe9.txt"])
    assert decode(encode(found)) == found


@pytest.mark.skipif(os.name != "posix" or os.geteuid() != 0, reason="only root can give files to somebody else")
def test_a_repository_of_somebody_else_is_read(project):
    """In a container, folders from outside belong to another user; whoever runs the code in them trusts them."""
    for path in (project, *project.rglob("*")):
        os.lchown(path, 12345, 12345)
    (project / "a.py").write_text("x = 2\n")
    found = uncommitted(project)
    assert found["commit"] is not None
    assert "+x = 2\n" in found["patch"]


def test_where_the_repository_came_from_is_told_without_the_key_to_it(project):
    assert uncommitted(project)["remote"] == ""
    git(project, "remote", "add", "origin", "https://name:hunter2@example.org/team/project.git?token=hunter2")
    assert uncommitted(project)["remote"] == "https://example.org/team/project.git"
    git(project, "remote", "set-url", "origin", "git@example.org:team/project.git")
    assert uncommitted(project)["remote"] == "git@example.org:team/project.git"


def test_a_patch_that_is_too_large_is_told_and_not_passed_off_for_none(project, monkeypatch):
    monkeypatch.setattr(module, "PATCH_LIMIT", 2000)
    (project / "a.py").write_bytes(os.urandom(9000))
    (project / "b.py").write_text("y\n")
    git(project, "add", ".")
    found = uncommitted(project)
    assert "+y\n" in found["patch"]
    assert "Binary files" in found["patch"]
    assert found["unread"] == ["the patch of binary files is larger than 2,000 bytes"]
    (project / "b.py").write_text("y\n" * 2000)
    found = uncommitted(project)
    assert found["patch"] == ""
    assert found["unread"] == ["the patch is larger than 2,000 bytes"]


def test_what_git_does_not_tell_in_time_is_told_to_be_unknown(project, tmp_path, monkeypatch):
    slow, real = tmp_path / "bin" / "git", shutil.which("git")
    slow.parent.mkdir()
    slow.write_text(f'#!/bin/sh\ncase "$*" in *ls-files*|*" diff "*) exec sleep 60;; esac\nexec {real} "$@"\n')
    slow.chmod(0o755)
    monkeypatch.setenv("PATH", str(slow.parent), prepend=os.pathsep)
    monkeypatch.setattr(questions, "PATIENCE", 0.2)
    found = uncommitted(project)
    assert found["commit"] is not None
    assert found["unread"] == ["git did not tell the untracked files", "git did not tell the patch"]


def test_of_very_many_untracked_files_the_first_are_named_and_the_rest_counted(project, monkeypatch):
    monkeypatch.setattr(module, "NAMES_LIMIT", 3)
    for number in range(7):
        (project / f"{number}").write_text("")
    found = uncommitted(project)
    assert found["untracked"] == ["0", "1", "2"]
    assert found["unread"] == ["4 more untracked files are not named"]
