import asyncio
import types
import uuid

import pytest

from marin_dsl.store import Store, blobs, bucket, remote


@pytest.fixture(params=["local", "memory", "google", pytest.param("s3", marks=pytest.mark.long)])
def store(request, new_url):
    """An empty store, on a local folder, in memory and in a bucket."""
    return Store(new_url(request.param))


@pytest.fixture
def local(tmp_path):
    """An empty store on a local folder."""
    return Store(tmp_path / "store")


@pytest.fixture(params=["bucket", "s3_bucket"], ids=["google", "s3"])
def service(request):
    """A service that keeps buckets, with an empty one named `bucket`."""
    return request.getfixturevalue(request.param)


@pytest.fixture
def files(service):
    return Store(f"{service.scheme}://bucket/{uuid.uuid4().hex}").files


@pytest.fixture
def eager(service, monkeypatch):
    """Retries follow at once."""

    async def at_once(seconds):
        await asyncio.sleep(0)

    hasty = types.SimpleNamespace(**{**vars(asyncio), "sleep": at_once})
    if service.scheme == "gs":
        import gcsfs.retry as waiting
    else:
        import aiobotocore.endpoint as waiting
        import s3fs.core

        monkeypatch.setattr(s3fs.core, "asyncio", hasty)
    monkeypatch.setattr(waiting, "asyncio", hasty)


@pytest.fixture
def new_clients(files):
    """Clients that were made before are not used in the test, nor those of the test after it."""
    kept = type(files.fs)
    kept.clear_instance_cache()
    yield
    kept.clear_instance_cache()


@pytest.fixture
def small_pieces(monkeypatch):
    """Pieces of 1 kB instead of 8 MB."""
    _pieces(monkeypatch, 1000)


@pytest.fixture
def few_pieces(monkeypatch):
    """Pieces of 50 kB."""
    _pieces(monkeypatch, 50_000)


def _pieces(monkeypatch, size):
    for module in (bucket, remote):
        monkeypatch.setattr(module, "PIECE", size)
    monkeypatch.setattr(blobs, "IN_MEMORY_LIMIT", 3000)
