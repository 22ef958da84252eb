"""Data that exists already: `external`."""

from __future__ import annotations

import hashlib

import fsspec
import pytest

from marin_dsl import Directory, Failed, File, Store, digest, external, op
from tests.marin_dsl.runs import Ran, run


@op(version="1")
def words(file: File) -> int:
    return len(file.read_text().split())


@pytest.fixture
def data(tmp_path):
    path = tmp_path / "data.txt"
    path.write_text("one two three")
    return path


@pytest.fixture
def store(tmp_path):
    return Store(tmp_path / "store")


def sha(path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def test_a_file_is_read_in_each_run_and_what_is_made_of_it_runs_when_it_changed(data, store):
    ran = Ran()
    assert run(words(external(str(data))), store, watch=ran).value == 3
    data.touch()
    assert run(words(external(str(data))), store, watch=ran).value == 3
    data.write_text("four")
    assert run(words(external(data.as_uri())), store, watch=ran).value == 1
    assert [title.partition("(")[0] for title in ran] == ["external", "words", "external", "external", "words"]


def test_with_a_digest_the_place_is_no_part_of_identity_and_the_store_serves(data, store, tmp_path):
    wanted = external(str(data), digest=sha(data))
    elsewhere = external(f"memory://bucket/{data.name}", digest=f"sha256:{sha(data)}")
    assert wanted == elsewhere
    assert wanted.key != external(str(data)).key
    assert run(words(wanted), store).value == 3
    data.unlink()
    ran = Ran()
    assert run(words(elsewhere), store, watch=ran).value == 3
    assert run(elsewhere, store, watch=ran).value.read_text() == "one two three"
    assert ran == []


def test_other_content_than_its_digest_says_is_a_failure_with_both_digests(data, store):
    expected = sha(data)
    data.write_text("changed")
    outcome = run(external(str(data), digest=expected), store)
    assert isinstance(outcome, Failed)
    assert outcome.message == (
        f"{data} has the digest sha256:{sha(data)}, and sha256:{expected} was asked for: it was changed or replaced; "
        "bring the data back, or write the new digest if it is meant"
    )


def test_a_folder_is_a_directory(tmp_path, store):
    folder = tmp_path / "folder"
    (folder / "below").mkdir(parents=True)
    (folder / "a.txt").write_text("a")
    (folder / "below" / "b.txt").write_text("b")
    expected = Directory.of(folder)
    assert run(external(str(folder)), store).value == expected
    assert run(external(str(folder), digest=digest(expected)), store).value == expected


def test_a_bucket_is_read_through_fsspec(store):
    fs = fsspec.filesystem("memory")
    fs.pipe("/external-bucket/text.txt", b"one two")
    fs.pipe("/external-bucket/deep/more.txt", b"three")
    assert run(words(external("memory://external-bucket/text.txt")), store).value == 2
    found = run(external("memory://external-bucket"), store).value
    assert {name: file.read_text() for name, file in found.files.items()} == {
        "text.txt": "one two",
        "deep/more.txt": "three",
    }


def test_where_it_was_read_from_is_recorded(data, store):
    wanted = external(str(data), digest=sha(data))
    run(wanted, store)
    record = store.result(store.call_of(wanted.key))
    assert set(record["observations"]) == {"source"}


def test_data_that_is_not_there_is_a_failure_that_names_it(tmp_path, store):
    outcome = run(external(str(tmp_path / "missing")), store)
    assert isinstance(outcome, Failed)
    assert outcome.message == f"{tmp_path / 'missing'} does not exist, or cannot be read from here"


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (("data.txt",), "a relative path means another file in another folder; write an absolute path or a URL"),
        (("",), "write an absolute path or a URL"),
        (("/data", "sha256:12"), "is no digest"),
    ],
)
def test_wrong_uses_are_refused(arguments, text):
    with pytest.raises(ValueError, match=text):
        external(*arguments)
