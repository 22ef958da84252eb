import uuid

import pytest

from marin_dsl.store import Store


@pytest.fixture(params=["local", "memory", "google"])
def store(request, tmp_path):
    """An empty store, on a local folder, in memory and in a bucket."""
    if request.param == "local":
        return Store(tmp_path / "store")
    if request.param == "memory":
        return Store(f"memory://{uuid.uuid4().hex}")
    request.getfixturevalue("bucket")
    return Store(f"gs://bucket/{uuid.uuid4().hex}")


@pytest.fixture
def local(tmp_path):
    """An empty store on a local folder."""
    return Store(tmp_path / "store")
