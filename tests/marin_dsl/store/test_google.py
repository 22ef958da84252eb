"""Stores on Google Cloud Storage: what is particular about them."""

import subprocess
import sys

import numpy as np
import pytest

from marin_dsl.store import Store


@pytest.fixture
def service(bucket):
    return bucket


def test_a_new_object_is_created_on_condition_that_there_is_none(files, bucket):
    files.create("a", b"one")
    assert "ifGenerationMatch=0" in bucket.requests[-1][1]
    assert bucket.requests[-1][1].startswith("/upload/storage/v1/b/bucket/o?uploadType=multipart")
    files.replace("a", [b"two"])
    assert "ifGenerationMatch" not in bucket.requests[-1][1]


def test_a_bucket_that_may_not_be_listed_can_be_read(bucket, monkeypatch):
    store = Store("gs://bucket/x")
    call = store.files.fs.call

    def unlisted(method, path, *given, **named):
        if path == "b/{}/o":
            raise OSError("Forbidden: b/bucket/o")
        return call(method, path, *given, **named)

    monkeypatch.setattr(store.files.fs, "call", unlisted)
    assert store.files.read("a") is None


def test_gcs_names_the_service_too(bucket):
    Store("gs://bucket").files.create("a/b", b"one")
    assert Store("gcs://bucket/").files.read("a/b") == b"one"


def test_what_the_service_did_not_take_of_a_piece_is_sent_again(files, bucket, small_pieces):
    content = np.random.default_rng(0).bytes(4500)
    for swallowed in (1, 300, 1000):
        bucket.swallowed = swallowed
        files.replace("a", [content])
        assert bucket.swallowed == 0
        assert files.read("a") == content


def test_importing_the_language_imports_no_clients_of_services_nor_what_they_need():
    program = (
        "import sys, marin_dsl, marin_dsl.store; "
        "print(sorted({'gcsfs', 's3fs', 'fsspec', 'aiohttp', 'google', 'tensorstore'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
