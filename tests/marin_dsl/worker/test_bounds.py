"""What an operator says is kept up to a length, and what was left out is told; no part of a secret stays by that."""

import hashlib

import pytest

from marin_dsl import Store, attempt, context, evaluate, op, secret
from marin_dsl.worker.bounds import LINE, MESSAGE, NOTES, TRACEBACK, cut

LONG = 1_000_000


@op(version="1")
def complaining(kind: str, token: str = "") -> int:
    print("p" * LONG)
    context().log("l" * LONG)
    error = ValueError(f"begin {token}{'m' * LONG}{token} end")
    for number in range(100):
        error.add_note(f"note {number} " + "n" * LONG)
    if kind == "group":
        raise ExceptionGroup("many", [ValueError("g" * 10_000) for _ in range(200)])
    if kind == "name":
        raise type("N" * LONG, (Exception,), {})("short")
    raise error


@op(version="1")
def told(outcome: object) -> str:
    return outcome.message


HOW = {"here": {}, "in a process of its own": {"isolate": True}, "in a gang": {"hosts": 2}, "in time": {"timeout": 60}}


@pytest.mark.parametrize(("kind", "how"), [*(("message", how) for how in HOW), ("group", "here"), ("name", "here")])
def test_no_record_of_a_failure_is_longer_than_some_hundred_thousand_characters(tmp_path, kind, how):
    store = Store(tmp_path / "store")
    call = complaining(kind).with_(**HOW[how])
    outcome, message = evaluate(call, told(attempt(call)), store=store, debug=True)
    assert outcome.kind == "raised"
    assert len(outcome.message) < MESSAGE + 100
    assert message.value == outcome.message
    sizes = {entry.path: entry.size for entry in store.files.entries() if not entry.path.startswith("blobs/")}
    assert max(sizes.values()) < TRACEBACK + NOTES * LINE + 60 * LINE + 3 * MESSAGE
    record = store.last_failure(store.call_of(call.key))
    assert "characters were not kept" in str(record["output"])
    if kind == "message":
        assert outcome.message.removeprefix("rank 1 of 2: ").removeprefix("rank 0 of 2: ").startswith("begin mmm")
        assert outcome.message.endswith("mmm end")
        assert "of 1,000,0" in outcome.message
        assert record["failure"]["notes"][-1] == f"({100 - NOTES} more notes were not kept)"
    again = evaluate(told(attempt(call)), store=store, debug=True, keep_failures=True)
    assert again.value == message.value


@op(version="1")
def part(kind: str) -> dict:
    return {"a": 1}


def test_what_is_computed_on_the_way_and_fails_says_no_more(tmp_path):
    outcome = evaluate(part("x")["k" * LONG], store=tmp_path / "store", debug=True)
    assert len(outcome.message) < MESSAGE + 100
    assert "characters were not kept" in outcome.message


def test_a_secret_is_taken_out_before_anything_is_cut(tmp_path, monkeypatch):
    """Wherever the cut falls: a secret of many characters at each place near it."""
    token = hashlib.sha256(b"a secret that stands in no source").hexdigest()

    @op(version="1")
    def leaking(token: str, before: int) -> int:
        context().log("x" * before + token + "y" * LINE)
        raise ValueError("x" * before + token + "y" * MESSAGE)

    monkeypatch.setenv("TOKEN", token)
    store = Store(tmp_path / "store")
    calls = [
        leaking(secret("env://TOKEN"), end - near)
        for end in (LINE - LINE // 4, MESSAGE - MESSAGE // 4)
        for near in range(0, 71, 7)
    ]
    evaluate(*calls, store=store, debug=True)
    for entry in store.files.entries():
        content = store.files.read(entry.path).decode("utf-8", "replace")
        assert not any(token[start : start + 12] in content for start in range(len(token) - 11)), entry.path


def test_a_text_that_is_short_enough_stays_as_it_is():
    assert cut("x" * 8, 8) == "x" * 8
    assert cut("", 8) == ""
