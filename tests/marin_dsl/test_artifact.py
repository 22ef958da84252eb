"""Files and directories as values: content and relative names, nothing else; safe paths; cleaned up."""

import gc
import os
import pickle
import socket

import pytest

from marin_dsl import Directory, File, digest
from marin_dsl.encoding import Undecodable, decode, encode, encode_with_leaves, tags
from marin_dsl.encoding.tags import head


@pytest.fixture
def folder(tmp_path):
    place = tmp_path / "d"
    (place / "sub").mkdir(parents=True)
    (place / "sub" / "b").write_text("beta")
    (place / "a").write_text("alpha")
    return place


def detached(value):
    """The value as somebody else reads it, from bytes in memory instead of files."""
    encoded = encode_with_leaves(value)
    content = {name: b"".join(leaf.chunks()) for name, leaf in encoded.leaves.items()}
    return decode(encoded.data, read_leaf=lambda name, size: content[name])


def test_a_file_is_its_content_and_not_its_name_place_mode_or_time(folder, tmp_path):
    one, other = folder / "a", tmp_path / "elsewhere.txt"
    other.write_text("alpha")
    other.chmod(0o777)
    os.utime(other, (1, 1))
    assert File.of(one) == File.of(str(other))
    assert hash(File.of(one)) == hash(File.of(other))
    assert digest(File.of(one)) == digest(File.of(other))
    assert File.of(one) != File.of(folder / "sub" / "b")
    assert File.of(one) != "alpha"


def test_a_file_says_what_it_is(folder):
    file = File.of(folder / "a")
    assert file.size == 5
    assert file.digest == "sha256:8ed3f6ad685b959ead7022518e1af76cd816f8e8ec7ccdda1ed4018e8f2223f8"
    assert repr(file) == "<File sha256:8ed3f6ad685b 5 bytes>"
    assert file.path == folder / "a"
    assert (file.read_text(), file.read_bytes()) == ("alpha", b"alpha")
    with file.open() as stream:
        assert stream.read(2) == b"al"


def test_an_empty_file_and_a_short_one_are_leaves_as_well(tmp_path):
    (tmp_path / "empty").write_bytes(b"")
    file = File.of(tmp_path / "empty")
    assert len(encode_with_leaves(file).leaves) == 1
    assert detached(file).read_bytes() == b""


def test_a_relative_path_goes_on_naming_its_file_when_the_working_directory_changes(folder, monkeypatch, tmp_path):
    monkeypatch.chdir(folder)
    file = File.of("a")
    monkeypatch.chdir(tmp_path)
    assert file.read_text() == "alpha"


def test_a_file_of_a_directory_is_refused_with_the_right_name(folder):
    with pytest.raises(IsADirectoryError) as caught:
        File.of(folder)
    assert str(caught.value) == f"{folder} is a directory: use Directory.of(...)"


def test_a_file_that_does_not_exist_is_named(tmp_path):
    with pytest.raises(FileNotFoundError) as caught:
        File.of(tmp_path / "none")
    assert str(caught.value) == (
        f"{tmp_path / 'none'} does not exist; File.of(...) takes a file that is already written"
    )


def test_a_pipe_is_refused_instead_of_waited_for(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(ValueError) as caught:
        File.of(tmp_path / "pipe")
    assert str(caught.value) == (
        f"{tmp_path / 'pipe'} is a device, a pipe or a socket; a File is the content of a regular file"
    )
    with pytest.raises(ValueError, match=r"^/dev/zero is a device"):
        File.of("/dev/zero")


def test_the_path_of_a_file_from_elsewhere_is_private_and_goes_with_the_file(folder):
    file = detached(File.of(folder / "a"))
    place = file.path
    assert place.read_text() == "alpha"
    assert place is file.path
    assert place.parent.stat().st_mode & 0o077 == 0
    del file
    gc.collect()
    assert not place.parent.exists()


def test_a_file_goes_through_pickle(folder):
    file = File.of(folder / "a")
    assert pickle.loads(pickle.dumps(file)) == file


def test_a_directory_is_the_relative_names_and_contents_below_it(folder):
    directory = Directory.of(folder)
    assert list(directory.files) == ["a", "sub/b"]
    assert directory["sub/b"].read_text() == "beta"
    assert directory.size == 9
    assert directory.path == folder
    assert repr(directory) == "<Directory 2 files, 9 bytes>"


def test_directories_are_equal_by_names_and_contents(folder, tmp_path):
    import shutil

    shutil.copytree(folder, tmp_path / "copy")
    one, other = Directory.of(folder), Directory.of(str(tmp_path / "copy"))
    assert one == other
    assert hash(one) == hash(other)
    (tmp_path / "copy" / "a").rename(tmp_path / "copy" / "c")
    assert Directory.of(tmp_path / "copy") != one
    assert one != 5


def test_the_order_in_which_files_are_given_is_no_part_of_a_directory(folder):
    files = Directory.of(folder).files
    assert encode(Directory(dict(reversed(files.items())))) == encode(Directory(files))
    assert list(Directory(dict(reversed(files.items()))).files) == list(files)


def test_an_absent_file_of_a_directory_is_named_with_those_that_are_there(folder, tmp_path):
    with pytest.raises(KeyError) as caught:
        Directory.of(folder)["b"]
    assert caught.value.args == ("no file `b` in the directory; it holds a, sub/b",)
    (tmp_path / "empty").mkdir()
    with pytest.raises(KeyError) as caught:
        Directory.of(tmp_path / "empty")["b"]
    assert caught.value.args == ("no file `b` in the directory; it holds none",)


def test_an_empty_directory_is_a_value(tmp_path):
    (tmp_path / "empty").mkdir()
    directory = Directory.of(tmp_path / "empty")
    assert directory.files == {}
    back = detached(directory)
    assert back == directory
    assert list(back.path.iterdir()) == []


def test_hidden_files_belong_to_a_directory(tmp_path):
    (tmp_path / ".hidden").mkdir()
    (tmp_path / ".hidden" / ".x").write_text("x")
    assert list(Directory.of(tmp_path).files) == [".hidden/.x"]


def test_the_path_of_a_directory_from_elsewhere_holds_its_files_and_goes_with_it(folder):
    directory = detached(Directory.of(folder))
    place = directory.path
    assert sorted(p.relative_to(place).as_posix() for p in place.rglob("*")) == ["a", "sub", "sub/b"]
    assert (place / "sub" / "b").read_text() == "beta"
    inner = (place / "a").resolve()
    del directory
    gc.collect()
    assert not place.exists()
    assert not inner.exists()


@pytest.mark.parametrize("target", ["a", "/etc/passwd", "missing", "sub", "."])
def test_a_link_in_a_directory_is_refused(folder, target):
    (folder / "sub" / "link").symlink_to(target if target.startswith("/") else folder / target)
    with pytest.raises(ValueError) as caught:
        Directory.of(folder)
    assert str(caught.value) == (
        f"{folder / 'sub' / 'link'} is a link or a special file; a Directory holds regular files only"
    )


def test_a_special_file_in_a_directory_is_refused(folder):
    os.mkfifo(folder / "pipe")
    with pytest.raises(ValueError, match="pipe is a link or a special file"):
        Directory.of(folder)


def test_a_socket_in_a_directory_is_refused(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind("s")
        with pytest.raises(ValueError, match="s is a link or a special file"):
            Directory.of(tmp_path)


def test_a_directory_of_a_file_is_refused_with_the_right_name(folder):
    for place in (folder / "a", folder / "none"):
        with pytest.raises(NotADirectoryError) as caught:
            Directory.of(place)
        assert str(caught.value) == f"{place} is not a folder: use File.of(...) for a single file"


def test_a_folder_that_cannot_be_listed_is_an_error_and_no_omission(folder, monkeypatch):
    listed = os.scandir

    def refuse(place):
        if str(place).endswith("sub"):
            raise PermissionError(13, "Permission denied", str(place))
        return listed(place)

    monkeypatch.setattr(os, "scandir", refuse)
    with pytest.raises(PermissionError, match="sub"):
        Directory.of(folder)


ESCAPES = ["/etc/passwd", "../x", "a/../../x", "..", ".", "", "a/..", "a//b", "./a", "a/", "a\0b", "a/./b"]


@pytest.mark.parametrize("name", ESCAPES)
def test_no_name_leads_out_of_a_directory(folder, name):
    with pytest.raises(ValueError) as caught:
        Directory({name: File.of(folder / "a")})
    assert str(caught.value) == f"{name!r} is no relative path below a directory"
    content = {"files": {name: File.of(folder / "a")._content}}
    data = head(tags.TAG, tags.OBJECT) + encode(["marin:Directory", 1, content])
    with pytest.raises(Undecodable, match="is no relative path below a directory"):
        decode(data)


def test_a_file_cannot_lie_in_a_file(folder):
    file = File.of(folder / "a")
    with pytest.raises(ValueError) as caught:
        Directory({"x/y": file, "x": file})
    assert str(caught.value) == "'x' is a file, so 'x/y' cannot lie in it"
    assert set(Directory({"x/y": file, "xy": file}).files) == {"x/y", "xy"}


def test_names_that_are_no_unicode_come_back(tmp_path):
    (tmp_path / "\udcff.bin").write_bytes(b"x")
    back = detached(Directory.of(tmp_path))
    assert list(back.files) == ["\udcff.bin"]
    assert (back.path / "\udcff.bin").read_bytes() == b"x"


def test_a_file_of_something_else_than_content_is_refused():
    data = head(tags.TAG, tags.OBJECT) + encode(["marin:File", 1, {"content": 5}])
    with pytest.raises(Undecodable, match="`marin:File` cannot be made from what is stored"):
        decode(data)
    with pytest.raises(TypeError) as caught:
        File("a.txt")
    assert str(caught.value) == "a File is not made from a str; use File.of(path)"
