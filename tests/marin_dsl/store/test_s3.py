"""Stores on S3: what is particular about them."""

import sys
import threading

import numpy as np
import pytest

from marin_dsl import evaluate, op
from marin_dsl.store import Store, StoreUnavailable, s3

CHOOSE = "choose another store with --store or MARIN_STORE"
UNSAFE = (
    "store s3://bucket/x: a file could be created there although there was one, so that two writers could each believe "
    "to have been the first: its server must keep conditions of creation (on S3: `If-None-Match: *`); " + CHOOSE
)


@pytest.fixture
def service(s3_bucket):
    return s3_bucket


@pytest.fixture
def no_waiting(monkeypatch):
    monkeypatch.setattr(s3.time, "sleep", lambda seconds: None)


@op(version="1")
def double(array) -> np.ndarray:
    return array * 2


def test_a_result_is_served_from_s3_the_second_time(service):
    array = np.arange(20_000.0)
    assert np.array_equal(evaluate(double(array), store="s3://bucket/x", debug=True).value, array * 2)
    seen = []
    assert np.array_equal(
        evaluate(double(array), store="s3://bucket/x", debug=True, watch=seen.append).value, array * 2
    )
    assert seen[-1]["ran"] == 0


def test_a_new_object_is_created_by_one_request_on_condition_that_there_is_none(files, service):
    service.requests.clear()
    files.create("a", b"one")
    assert [(method, condition) for method, _, condition in service.requests] == [("PUT", "*")]
    files.replace("a", [b"two"])
    assert service.requests[-1][2] is None


def test_an_object_is_read_by_one_request(files, service):
    files.create("a", b"one")
    service.requests.clear()
    assert files.read("a") == b"one"
    assert [method for method, *_ in service.requests] == ["GET"]


def test_a_server_that_ignores_the_condition_is_refused_before_anything_is_run(service, monkeypatch):
    monkeypatch.setattr(service, "ignoring", True)
    with pytest.raises(StoreUnavailable) as caught:
        evaluate(double(np.zeros(3)), store="s3://bucket/x", debug=True)
    assert str(caught.value) == UNSAFE
    assert service.names() == ["x/format.json"]


def test_a_server_that_does_not_know_the_condition_is_refused(service):
    with service.failing(501, "PUT", times=-1), pytest.raises(StoreUnavailable) as caught:
        Store("s3://bucket/x").check(writing=True)
    assert str(caught.value) == UNSAFE


def test_the_trial_of_the_condition_leaves_nothing(service):
    Store("s3://bucket/x").check(writing=True)
    assert service.names() == ["x/format.json"]
    tried = [path for method, path, condition in service.requests if method == "PUT" and ".temporary-" in path]
    assert len(tried) == 2
    assert len(set(tried)) == 1


def test_a_refusal_that_does_not_name_the_condition_is_understood(files, service):
    files.create("a", b"one")
    with service.failing(412, "PUT") as fault:
        assert files.create("a", b"two") is False
    assert fault.times == 0


def test_of_threads_that_create_one_object_exactly_one_wins(service):
    start, won = threading.Barrier(8), []

    def race(number):
        files = Store("s3://bucket/x").files
        start.wait()
        won.extend(number for _ in range(3) if files.create("a", str(number).encode()))

    threads = [threading.Thread(target=race, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert Store("s3://bucket/x").files.read("a") == str(*won).encode()


def test_a_creation_that_meets_another_one_is_tried_again(files, service, no_waiting):
    with service.failing(409, "PUT", times=s3.CONFLICTS - 1) as fault:
        assert files.create("a", b"one") is True
    assert fault.times == 0
    with service.failing(409, "PUT", times=-1), pytest.raises(StoreUnavailable) as caught:
        files.create("b", b"one")
    assert str(caught.value) == (
        f"store {files.url}: cannot write b: no proper answer after several tries (ConditionalRequestConflict: no); "
        f"try again later, or {CHOOSE}"
    )


@pytest.mark.parametrize("read", [lambda files: files.read("a"), lambda files: b"".join(files.pieces("a"))])
def test_a_reply_that_breaks_off_is_asked_for_again(files, service, eager, read):
    content = np.random.default_rng(0).bytes(10_000)
    files.replace("a", [content])
    with service.failing("torn", "GET") as fault:
        assert read(files) == content
    assert fault.times == 0


def test_the_parts_of_very_large_objects_grow(files, service, small_pieces, monkeypatch):
    monkeypatch.setattr(s3, "PARTS_OF_A_SIZE", 2)
    content = np.random.default_rng(0).bytes(12_345)
    service.requests.clear()
    files.replace("a", [content])
    assert len([path for method, path, _ in service.requests if method == "PUT"]) == 6  # 1 + 1 + 2 + 2 + 4 + 3 pieces
    assert files.read("a") == content


def test_parts_reach_the_size_of_the_largest_object():
    assert sum(2 ** (number // s3.PARTS_OF_A_SIZE) for number in range(10_000)) * 8 * 2**20 > 5e12


def test_an_upload_that_somebody_ended_is_a_complaint(files, service, small_pieces):
    with service.failing(404, "PUT", "uploadId="), pytest.raises(StoreUnavailable) as caught:
        files.replace("a", [b"x" * 3000])
    assert "cannot write a: no proper answer after several tries (NoSuchUpload: no)" in str(caught.value)
    assert service.unfinished() == []


def test_no_credentials_are_one_complaint(new_clients, monkeypatch):
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    with pytest.raises(StoreUnavailable) as caught:
        Store("s3://bucket/x").files.read("a")
    assert str(caught.value) == (
        "store s3://bucket/x: cannot read a: no valid AWS credentials: run `aws configure` or `aws sso login`, or set "
        f"AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or {CHOOSE}"
    )


def test_without_s3fs_it_is_said_how_to_install_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "s3fs", None)
    with pytest.raises(StoreUnavailable) as caught:
        Store("s3://bucket/x")
    assert str(caught.value) == (
        "store s3://bucket/x: stores on S3 need the package s3fs, which is not installed here: "
        f"`pip install 'marin-dsl[s3]'`, or {CHOOSE}"
    )
