"""Secrets: their references are arguments, their texts are known in the worker only and never written down."""

from __future__ import annotations

import logging
import sys
import threading
import types
from pathlib import Path
from typing import Any

import attrs
import numpy as np
import pytest

from marin_dsl import Failed, File, Ok, Store, attempt, context, digest, encodable, evaluate, op, provenance, secret
from marin_dsl.expression.recipe import call_text
from marin_dsl.operator.signature import WrongCall
from marin_dsl.pages import Page, Prose
from marin_dsl.pages.publish import publish
from marin_dsl.store import StoreUnavailable
from tests.marin_dsl.pages.test_collect import PLACE

TOKEN = "tok-'quoted' \"and\"\\ + ünïcode/42"
"""Awkward enough to look different in a repr, in JSON, in a URL and in a header."""
REFERENCE = "env://MARIN_TEST_TOKEN"


@pytest.fixture(autouse=True)
def _surroundings(monkeypatch):
    monkeypatch.setattr(provenance, "environment", lambda project: PLACE)
    monkeypatch.setenv("MARIN_TEST_TOKEN", TOKEN)


def run(expression, tmp_path, **settings):
    return evaluate(expression, store=tmp_path / "store", debug=True, **settings)


@encodable
@attrs.frozen
class Account:
    user: str
    token: Any = attrs.field(default=None)


@op(version="1")
def length(token: str) -> int:
    assert type(token) is str
    return len(token)


@op(version="1")
def kinds(nest: Any) -> list:
    return [type(found).__name__ for found in (nest["list"][0], nest["tuple"][1], nest["account"].token)]


@op(version="1")
def lengths(tokens: list[str], by_name: dict[str, str], maybe: str | None = None) -> int:
    return sum(map(len, tokens)) + sum(map(len, by_name.values()))


def test_an_operator_receives_the_text_wherever_the_reference_stands(tmp_path):
    assert run(length(secret(REFERENCE)), tmp_path).value == len(TOKEN)
    nest = {"list": [secret(REFERENCE)], "tuple": (1, secret(REFERENCE)), "account": Account("me", secret(REFERENCE))}
    assert run(kinds(nest), tmp_path).value == ["str", "str", "str"]
    made = lengths([secret(REFERENCE), "abc"], {"a": secret(REFERENCE)}, maybe=secret(REFERENCE))
    assert run(made, tmp_path).value == 2 * len(TOKEN) + 3


def test_the_reference_is_the_identity_and_the_text_is_not(tmp_path, monkeypatch):
    first = run(length(secret(REFERENCE)), tmp_path).value
    monkeypatch.setenv("MARIN_TEST_TOKEN", "another one")
    assert run(length(secret(REFERENCE)), tmp_path).value == first, "the key is the same, so the result is served"
    assert length(secret(REFERENCE)).key != length(secret("env://OTHER")).key
    assert digest(secret(REFERENCE)) == digest(secret(REFERENCE)) != digest(REFERENCE)
    assert repr(secret(REFERENCE)) == f"secret({REFERENCE!r})"


def test_a_parameter_that_takes_no_text_takes_no_secret():
    @op(version="1")
    def count(n: int) -> int:
        return n

    with pytest.raises(WrongCall, match="argument `n` is a Secret; expected int"):
        count(secret(REFERENCE))

    @op(version="1")
    def counts(ns: list[int]) -> int:
        return sum(ns)

    with pytest.raises(WrongCall, match=r"argument `ns` at \[0\] is a Secret; expected int"):
        counts([secret(REFERENCE)])


@pytest.mark.parametrize("given", ["hunter22", "env://", "env://A B", "file://relative", "gcp-secret://project", 3])
def test_what_is_no_reference_is_refused_without_showing_it(given):
    with pytest.raises(ValueError) as caught:
        secret(given)
    assert str(caught.value) == (
        "secret(...) takes where a secret is found, not the secret: 'env://NAME', 'file:///absolute/path' or "
        "'gcp-secret://project/name'"
    )


def test_the_end_of_the_line_in_a_file_is_no_part_of_the_secret(tmp_path):
    place = tmp_path / "token"
    place.write_text("hunter22\n")
    assert run(length(secret(f"file://{place}")), tmp_path).value == 8


class Manager(types.ModuleType):
    """Stands for `google.cloud.secretmanager`."""

    def __init__(self, texts: dict[str, bytes]) -> None:
        super().__init__("google.cloud.secretmanager")
        self.texts = texts
        self.SecretManagerServiceClient = lambda: self

    def access_secret_version(self, *, name: str) -> Any:
        if name not in self.texts:
            raise PermissionError(f"403 no access to {name}")
        return types.SimpleNamespace(payload=types.SimpleNamespace(data=self.texts[name]))


def test_a_secret_of_the_secret_manager_is_read_in_the_worker(tmp_path, monkeypatch):
    cloud = types.ModuleType("google.cloud")
    cloud.secretmanager = Manager({"projects/p/secrets/n/versions/latest": b"hunter22"})
    monkeypatch.setitem(sys.modules, "google", types.ModuleType("google"))
    monkeypatch.setitem(sys.modules, "google.cloud", cloud)
    monkeypatch.setitem(sys.modules, "google.cloud.secretmanager", cloud.secretmanager)
    assert run(length(secret("gcp-secret://p/n")), tmp_path).value == 8
    assert run(length(secret("gcp-secret://p/other")), tmp_path).message == (
        "secret 'gcp-secret://p/other': Google's Secret Manager does not give it (PermissionError: 403 no access to "
        "projects/p/secrets/other/versions/latest); see whether it exists and whether the account that workers run as "
        "may read it"
    )


@pytest.mark.parametrize(
    ("reference", "text"),
    [
        (
            "env://MARIN_NOT_SET",
            (
                "secret 'env://MARIN_NOT_SET': the environment variable MARIN_NOT_SET is not set in the worker; set it "
                "where workers are started (export MARIN_NOT_SET=...)"
            ),
        ),
        ("env://MARIN_EMPTY", "secret 'env://MARIN_EMPTY' has 0 characters; at least 4 are needed, since it could"),
        ("env://MARIN_SHORT", "secret 'env://MARIN_SHORT' has 3 characters; at least 4 are needed, since it could"),
        (
            "file:///nowhere/token",
            (
                "secret 'file:///nowhere/token': the worker cannot read /nowhere/token (No such file or directory); "
                "put the secret there, readable to the user that workers run as"
            ),
        ),
        ("env://MARIN_BINARY", "secret 'env://MARIN_BINARY' is not UTF-8 text; encode it (base64, say)"),
        (
            "gcp-secret://p/n",
            (
                "secret 'gcp-secret://p/n': the worker has no client of Google's Secret Manager; install the package "
                "google-cloud-secret-manager there"
            ),
        ),
    ],
)
def test_a_secret_that_cannot_be_had_is_a_failure_that_says_what_to_do(tmp_path, monkeypatch, reference, text):
    monkeypatch.setitem(sys.modules, "google", None)
    monkeypatch.setenv("MARIN_EMPTY", "")
    monkeypatch.setenv("MARIN_SHORT", "abc")
    monkeypatch.setenv("MARIN_BINARY", "abc\udcffdef")
    outcome = run(length(secret(reference)), tmp_path)
    assert (outcome.kind, outcome.exception) == ("raised", "marin_dsl.operator.secret.SecretMissing")
    assert outcome.message.startswith(text)


@op(version="1")
def hand_on(reference: str) -> Any:
    return [secret(reference)]


@op(version="1")
def kind_of(value: Any) -> str:
    return type(value[0]).__name__


def test_a_reference_that_comes_out_of_a_store_is_not_looked_up(tmp_path):
    assert run(kind_of(hand_on(REFERENCE)), tmp_path).value == "Secret"
    assert run(hand_on(REFERENCE)[0], tmp_path).value == secret(REFERENCE)


# Leaks: each operator gives away what it was given, in its own way.


class Telling(Exception):
    def __init__(self, text: str) -> None:
        super().__init__("see my text")
        self.text = text

    def __str__(self) -> str:
        return f"rejected {self.text!r}"


@op(version="1")
def leaking(token: str, way: str) -> Any:
    current = context()
    getattr(sys.modules[__name__], f"leak_by_{way}")(current, token)
    return "the token was used"


def leak_by_log(current, token):
    current.log(f"using {token} and {token!r}")
    logging.getLogger("test").debug(token)


def leak_by_progress(current, token):
    current.progress(1, 2, token=token, **{f"about {token}": 1})


def leak_by_observation(current, token):
    current.observe("header", {"Authorization": [token]})


def leak_by_name_of_an_observation(current, token):
    current.observe(token, 1)


def leak_by_exception(current, token):
    raise ValueError(token, {"token": token})


def leak_by_type(current, token):
    raise type(f"Bad{token}", (Exception,), {})("x")


def leak_by_str(current, token):
    raise Telling(token)


def leak_by_note(current, token):
    error = ValueError("no")
    error.add_note(f"the token was {token}")
    raise error


def leak_by_cause(current, token):
    try:
        raise KeyError(token)
    except KeyError as error:
        raise ExceptionGroup("several", [ValueError(token), ValueError("other")]) from error


def leak_by_url(current, token):
    from urllib.parse import quote_plus

    raise OSError(f"GET https://x.org/?key={quote_plus(token)}: 403")


def leak_by_header(current, token):
    import base64

    raise OSError("Authorization: Basic " + base64.b64encode(b"user:" + token.encode()).decode())


def leak_by_exit(current, token):
    sys.exit(token)


def leak_by_thread(current, token):
    threading.current_thread().name = token


def leak_by_scratch(current, token):
    (current.scratch / "token.txt").write_text(token)
    raise ValueError("left it in a file")


WAYS = sorted(name.removeprefix("leak_by_") for name in list(globals()) if name.startswith("leak_by_"))


@op(version="1")
def returning(token: str, way: str) -> Any:
    if way == "file":
        (context().scratch / "token.txt").write_bytes(b"x" * (1 << 20) + token.encode())
        return File.of(context().scratch / "token.txt")
    return {
        "text": {"deep": [token]},
        "bytes": token.encode(),
        "large": "x" * ((1 << 20) - 5) + token + "y",
        "array": np.frombuffer(token.encode(), np.uint8),
        "key": {token: 1},
        "class": Account(token),
        "expression": length(token),
        "inside_an_expression": [length("x"), {"deep": length(token * 3000)}],
        "title": length("x").with_(title=token),
        "name": op(version="1", name=token)(length.function)("x"),
        "closure": _closing_over(token)(),
    }[way]


def _closing_over(token: str) -> Any:
    @op
    def closing() -> int:
        return len(token)

    return closing


RETURNS = (
    "text", "bytes", "large", "array", "key", "class", "file", "expression", "inside_an_expression", "title", "name",
    "closure",
)  # fmt: skip


@op(version="1")
def write_page(outcomes: Any) -> Page:
    return Page("Leaks", "What?", "That.", "So.", (Prose("Text", repr(outcomes)),))


def everything(folder: Path) -> bytes:
    return b"\0".join(path.read_bytes() + str(path).encode() for path in sorted(folder.rglob("*")) if path.is_file())


def traces(token: str) -> list[str]:
    """What to look for: the text, and any eight characters of it that mean nothing else."""
    return [token, *(token[start : start + 8] for start in range(len(token) - 7)), repr(token)[1:-1]]


def leaks() -> list[Any]:
    token = secret(REFERENCE)
    return [leaking(token, way) for way in WAYS] + [returning(token, way) for way in RETURNS]


@pytest.mark.parametrize("debug", [True, False], ids=["here", "threads"])
def test_no_byte_of_a_secret_reaches_the_store_an_event_an_outcome_or_a_page(tmp_path, debug):
    store, seen = Store(tmp_path / "store"), []
    outcomes = evaluate(*leaks(), store=store, watch=seen.append, debug=debug)
    page = write_page([attempt(made) for made in leaks()])
    shown = evaluate(page, store=store, watch=seen.append, debug=debug)
    places = publish((page,), [shown.value], tmp_path / "site", store)
    by_way = dict(zip((*WAYS, *RETURNS), outcomes, strict=True))
    assert {way for way, outcome in by_way.items() if isinstance(outcome, Ok)} == {
        "log", "progress", "thread", "name_of_an_observation",
    }  # fmt: skip
    assert {by_way[way].kind for way in (*RETURNS, "observation")} == {"unstorable"}
    written = everything(tmp_path).decode("utf-8", "replace")
    told = repr(seen) + "".join(repr(attrs.asdict(found)) for found in outcomes if isinstance(found, Failed))
    for trace in traces(TOKEN):
        assert trace not in written
        assert trace not in told
    assert f"<secret {REFERENCE}>" in by_way["exception"].message
    assert f"rejected '<secret {REFERENCE}>'" in by_way["str"].traceback
    assert "leak_by_note" in by_way["note"].traceback, "lines of source are no secret"
    assert "rejected" in places[0].read_text()


def test_a_result_that_holds_a_secret_says_so(tmp_path):
    outcome = run(returning(secret(REFERENCE), "text"), tmp_path)
    assert outcome.message == (
        f"the result of returning holds the text of secret '{REFERENCE}', and a secret is never stored: give back what "
        "it was used for, without the secret itself"
    )


def test_what_stops_a_run_says_no_secret(tmp_path):
    url = str(tmp_path / "store")

    @op(version="1")
    def stopping(token: str, kind: str) -> int:
        raise StoreUnavailable(f"with {token}", url) if kind == "store" else KeyboardInterrupt(f"with {token}")

    with pytest.raises(StoreUnavailable, match=f"^with <secret {REFERENCE}>$"):
        run(stopping(secret(REFERENCE), "store"), tmp_path)
    with pytest.raises(KeyboardInterrupt, match=f"^with <secret {REFERENCE}>$"):
        run(stopping(secret(REFERENCE), "interrupt"), tmp_path)


def test_ordinary_text_stays_as_it_is(tmp_path):
    seen = []
    assert run(leaking(secret(REFERENCE), "log"), tmp_path, watch=seen.append).value == "the token was used"
    log = next(event["content"] for event in seen if event["event"] == "log")
    assert log == f"using <secret {REFERENCE}> and '<secret {REFERENCE}>'"
    assert call_text(length(secret(REFERENCE))) == "length"
