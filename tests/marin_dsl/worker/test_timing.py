"""Timeouts without isolation: the worker lets go, and what the operator does afterwards is not seen."""

from __future__ import annotations

import threading
import time

import pytest

from marin_dsl import Ok, Store, context, evaluate, op, provenance, secret
from marin_dsl.store import StoreUnavailable
from marin_dsl.worker.context import Context, TimedOut


@pytest.fixture(autouse=True)
def _quick(monkeypatch):
    monkeypatch.setattr(provenance, "environment", lambda project: {"python": "3"})


def run(expression, tmp_path, **settings):
    return evaluate(expression, store=tmp_path / "store", debug=True, **settings)


RELEASE = threading.Event()
SEEN: list[object] = []


@op(version="1")
def ignoring(n: int) -> int:
    current = context()
    current.log("before")
    RELEASE.wait(20)
    current.log("after")
    try:
        SEEN.append(current.scratch)
    except BaseException as error:
        SEEN.append(error)
    return n


@op(version="1")
def asking(n: int) -> int:
    for _ in range(1000):
        context().check()
        time.sleep(0.02)
    return n


@op(version="1")
def quick(kind: str, url: str = "") -> str:
    if kind == "store":
        raise StoreUnavailable("store s: full", url)
    if kind == "raise":
        raise ValueError("wrong")
    return f"{kind} {context().rng().integers(10)}"


@pytest.mark.parametrize("debug", [True, False], ids=["here", "threads"])
def test_a_call_that_takes_too_long_is_let_go(tmp_path, debug):
    RELEASE.clear()
    SEEN.clear()
    seen = []
    made = ignoring(1).with_(timeout=0.3)
    outcome, other = evaluate(made, quick("a"), store=tmp_path / "store", debug=debug, watch=seen.append)
    assert (outcome.kind, outcome.exception) == ("timeout", "marin_dsl.worker.context.TimedOut")
    assert outcome.message == "no result within 0.3s, the timeout of the call"
    assert "RELEASE.wait(20)" in outcome.traceback, "it says where the operator was"

    assert outcome.output == ("before",)
    assert isinstance(other, Ok)
    RELEASE.set()
    while not SEEN:
        time.sleep(0.01)
    assert isinstance(SEEN[0], TimedOut)
    assert str(SEEN[0]) == "the worker has let go of this call, so there is no scratch folder for it any more"
    assert "after" not in [event.get("content") for event in seen]
    assert list((tmp_path / "store").glob("scratch/*")) == []


def test_an_operator_that_asks_ends_itself(tmp_path):
    outcome = run(asking(1).with_(timeout="100ms"), tmp_path)
    assert outcome.kind == "timeout"
    assert threading.active_count() < 50


def test_a_context_whose_time_is_up_says_so_when_it_is_asked():
    current = Context(b"", limit=1e-9)
    with pytest.raises(TimedOut, match=r"^no result within 1e-09s, the timeout of the call$"):
        current.check()
    Context(b"", limit=60).check()


def test_within_the_time_everything_is_as_without_a_limit(tmp_path):
    assert run(quick("a").with_(timeout=60), tmp_path / "1").value == run(quick("a"), tmp_path / "2").value
    assert run(quick("raise").with_(timeout=60), tmp_path).message == "wrong"
    with pytest.raises(StoreUnavailable, match="store s: full"):
        run(quick("store", str(tmp_path / "store")).with_(timeout=60), tmp_path)
    store = Store(tmp_path / "1" / "store")
    assert store.result(store.call_of(quick("a").key))["provenance"]["thread"] == threading.current_thread().name


@op(version="1")
def stuck(token: str) -> int:
    context().log(token)
    RELEASE.wait(20)
    return len(token)


def test_no_secret_is_told_of_a_call_that_was_let_go(tmp_path, monkeypatch):
    monkeypatch.setenv("MARIN_TEST_TOKEN", "hunter22")
    RELEASE.clear()
    assert run(stuck(secret("env://MARIN_TEST_TOKEN")).with_(timeout=0.3), tmp_path).output == (
        "<secret env://MARIN_TEST_TOKEN>",
    )
    RELEASE.set()
    assert b"hunter22" not in b"".join(path.read_bytes() for path in tmp_path.rglob("*") if path.is_file())
