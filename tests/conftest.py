"""What all tests share: how much Hypothesis tries, and the browser.

HYPOTHESIS_PROFILE=long is the long run of `make test-all`. Tests that need a browser, compilers or transformers
and find none are left out loudly; on a build machine (CI is set) left out means failed.
"""

import importlib.util
import os
import shutil
import signal
import sys
import uuid

import checked_shapes
import google_storage
import pytest
import s3_storage
from hypothesis import HealthCheck, settings

os.environ.setdefault("JAX_PLATFORMS", "cpu")
checked_shapes.install()

# Tests write a module, run it, and write it again within a second: Python would take the first one's bytecode for the
# second's, since it compares times in whole seconds.
sys.dont_write_bytecode = True
os.environ["PYTHONDONTWRITEBYTECODE"] = "1"

# Who starts tests in the background may have Ctrl-C ignored, and those that press it would wait for ever.
signal.signal(signal.SIGINT, signal.default_int_handler)

_SLOW = [HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much]
_CI = bool(os.environ.get("CI"))

settings.register_profile("quick", max_examples=50, deadline=None, suppress_health_check=_SLOW, derandomize=_CI)
settings.register_profile("long", max_examples=2000, deadline=None, suppress_health_check=_SLOW, print_blob=True)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE") or "quick")

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
BUCKETS = {"google": "bucket", "s3": "s3_bucket"}
"""By the kind of a store: the fixture of its server with an empty bucket."""
LEFT_OUT = pytest.StashKey[dict[str, int]]()


def find_chromium() -> str | None:
    return next((path for name in NAMES if (path := shutil.which(name))), None)


def find_compilers() -> bool:
    from marin_kernels.topologies import missing_compilers

    return not missing_compilers()


def find_transformers() -> bool:
    return all(map(importlib.util.find_spec, ("torch", "transformers")))


NEEDS = {
    "browser": (find_chromium, "no Chromium found: apt-get install chromium"),
    "interop": (find_transformers, "no torch and transformers found: make test-all installs them"),
    "compilers": (find_compilers, "no libtpu and CUDA compiler found: make test-all installs them"),
}
"""By marker: how to find what its tests need, and what to say when it is not there."""


@pytest.hookimpl(trylast=True)  # after the markers asked for: only what would have run is left out
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Outside a build machine, take the tests that need what is not here out of the run."""
    config.stash[LEFT_OUT] = {}
    for marker, (find, _) in NEEDS.items():
        out = [item for item in items if item.get_closest_marker(marker)]
        if out and not os.environ.get("CI") and not find():
            config.stash[LEFT_OUT][marker] = len(out)
            config.hook.pytest_deselected(items=out)
            items[:] = [item for item in items if not item.get_closest_marker(marker)]


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Where several processes test, each has collected everything, and the one that tells has collected nothing."""
    if hasattr(session.config, "workeroutput"):
        session.config.workeroutput["left_out"] = session.config.stash.get(LEFT_OUT, {})


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node) -> None:
    told = getattr(node, "workeroutput", {}).get("left_out", {})  # one that died tells nothing
    node.config.stash[LEFT_OUT] = node.config.stash.get(LEFT_OUT, {}) | told


def pytest_terminal_summary(terminalreporter, config: pytest.Config) -> None:
    for marker, count in config.stash.get(LEFT_OUT, {}).items():
        terminalreporter.write_line(
            f"{marker.upper()} TESTS LEFT OUT: {count} tests ({NEEDS[marker][1]})", red=True, bold=True
        )


@pytest.fixture(scope="session")
def chromium():
    """A running headless Chromium."""
    path = find_chromium()
    if path is None:
        pytest.fail("no Chromium found, and CI is set: apt-get install chromium", pytrace=False)
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture(scope="session")
def storage():
    """A Google Cloud Storage on loopback; gcsfs in this process and in those that it starts finds it."""
    with google_storage.running() as server, pytest.MonkeyPatch.context() as patch:
        patch.setenv("STORAGE_EMULATOR_HOST", server.url)
        patch.setenv("NO_GCE_CHECK", "true")  # no credentials are looked for on the network
        patch.setenv("GOOGLE_CLOUD_PROJECT", "tests")
        yield server


@pytest.fixture
def bucket(storage):
    """The server, with an empty bucket named `bucket`."""
    storage.empty()
    return storage


@pytest.fixture(scope="session")
def s3_storage_server():
    """An S3 on loopback; s3fs in this process and in those that it starts finds it."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in s3_storage.ENVIRONMENT.items():
            patch.setenv(name, value)
        with s3_storage.running() as server:
            patch.setenv("AWS_ENDPOINT_URL", server.url)
            yield server


@pytest.fixture
def s3_bucket(s3_storage_server):
    """That server, with an empty bucket named `bucket`."""
    s3_storage_server.empty()
    return s3_storage_server


@pytest.fixture
def new_url(request, tmp_path):
    """Where an empty store of a kind may be; the server that it needs runs then."""

    def make(kind):
        name = uuid.uuid4().hex
        if kind in BUCKETS:
            return f"{request.getfixturevalue(BUCKETS[kind]).scheme}://bucket/{name}"
        return f"memory://{name}" if kind == "memory" else str(tmp_path / name)

    return make
