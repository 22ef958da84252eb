import uuid

import pytest

from marin_dsl.store import Store


@pytest.fixture(params=["local", "memory"])
def store(request, tmp_path):
    """An empty store, on a local folder and in memory."""
    return Store(tmp_path / "store" if request.param == "local" else f"memory://{uuid.uuid4().hex}")


@pytest.fixture
def local(tmp_path):
    """An empty store on a local folder."""
    return Store(tmp_path / "store")
