"""Records with right digests that no store writes: each command says what is the matter, or goes on without them."""

import hashlib
import itertools
import json
import re
import shutil

import pytest

from marin_dsl.store import Store
from marin_dsl.store.records import write_record
from tests.marin_dsl.command_line.conftest import forgotten
from tests.marin_dsl.command_line.project import marin, write_module

MODULE = """
    import numpy as np
    from marin_dsl import attempt, context, op, tagged, when
    from marin_dsl.pages import Page, Prose

    @op(version="1")
    def corpus(n: int) -> dict:
        context().observe("curve", np.arange(float(n)))
        return {"tokens": np.arange(float(n)), "yes": True}

    @op(version="1")
    def train(data: dict, rate: float) -> float:
        if rate > 1:
            raise ValueError("diverged")
        return rate

    @op(version="1")
    def returning(data: dict, rate: float):
        return train(data, rate)

    @op
    def page_of(parts: list) -> Page:
        return Page("A page", "Is it?", "It is.", "Yes.", (Prose("Parts", str(parts)),))

    large = corpus(20_000)
    page = page_of([
        train(large, 0.1), attempt(train(large, 5.0)), returning(large, 0.5), attempt(returning(large, 6.0)),
        when(large["yes"], train(large, 0.3), train(large, 0.4)), tagged(train(corpus(30), 0.1), note="x"),
    ]).named("odd", "1.0")
    other = page_of([train(large, 0.1)]).named("odd", "1.0")
    again = page_of([train(large, 0.1), 7])
"""
NUMBER_3 = {"digest": f"sha256:{hashlib.sha256(bytes([3])).hexdigest()}", "inline": "Aw==", "leaves": []}
ABSENT = object()
WRONG = [
    ABSENT, None, 3, -1.5, "x", "", [], [{}], {}, {"a": {}}, True, 10**30, float("nan"), float("inf"), NUMBER_3,
    "0001-01-01T00:00:00+00:00", "99999999T999999Z-0", "a@b@c", "\x1b[31m", "\ud800", ["x"] * 3, "sha256:" + "0" * 64,
    {"digest": "sha256:zz", "inline": None, "leaves": []},
    {"digest": "sha256:" + "0" * 64, "inline": None, "leaves": [["sha256:" + "0" * 64, -1]]},
]  # fmt: skip


@pytest.fixture
def full(project):
    """A store with records of every kind, and what can be asked of it."""
    write_module("odd", MODULE)
    with forgotten("odd"):
        import odd

        for words in (
            ("run", "odd:page", "--debug"),
            ("run", "odd:other", "--debug"),
            ("run", "odd:again", "--debug", "--verify-sample", "1"),
        ):
            assert marin(*words, "--store", "full").exit_code == 0, words
        store = Store("full")
        key, large = (f"sha256:{expression.key.hex()}" for expression in (odd.page, odd.large))
        run = store.files.names("runs")[0]
        record = store.result(odd.large.key)
        store.commit(odd.large.key, {**record, "value": store.put(1).as_record()})
        done = marin("same", "odd@1.0", f"sha256:{odd.again.key.hex()}", "--why", "as good", "--store", "full")
        assert done.exit_code == 2  # it has a value of its own
        shutil.rmtree(f"full/results/{store.call_of(odd.again.key).hex()[:2]}")
        done = marin("same", "odd@1.0", f"sha256:{odd.again.key.hex()}", "--why", "as good", "--store", "full")
        assert done.exit_code == 0, done.output
        yield store, (
            ("show", "odd@1.0"), ("show", key), ("show", large), ("show", run), ("why", key), ("why", "odd:page"),
            ("lineage", "odd@1.0"), ("lineage", key, "--json"), ("lineage", "--down", large), ("diff", "odd@1.0", key),
            ("diff", "odd:page", "odd:other"), ("failures", "--traceback"), ("failures", "--json"), ("log",),
            ("log", "--json"), ("log", "odd@1.0"), ("label", "list"), ("label", "log", "odd@1.0"), ("gc",), ("verify",),
            ("doctor",), ("plan", "odd:page"), ("plan", "odd:other"), ("page", key),
            ("store", "copy", "store", "target"), ("export", "odd@1.0", "exported"),
            ("run", "odd:page", "--debug"), ("run", "odd:other", "--debug", "--keep-failures"), ("plan", "odd:again"),
        )  # fmt: skip


def one_of_each_kind(store):
    found = {}
    for path in sorted(store.files.root.rglob("*")):
        place = path.relative_to(store.files.root).as_posix()
        record = store.read(place) if path.is_file() else None
        if record is not None:
            kind = re.sub(r"[0-9a-f]{62,}|/[0-9a-f]{2}/|\d{8}T\w+-\w+|\d{6}", "*", place)
            found.setdefault((kind, *sorted(record)), (place, record))
    return list(found.values())


def parts(value, above=()):
    """The place of each part of a record; of lists those of the first."""
    items = value.items() if isinstance(value, dict) else enumerate(value[:1]) if isinstance(value, list) else ()
    for name, part in items:
        yield (*above, name)
        yield from parts(part, (*above, name))


def changed(record, place, value):
    record = json.loads(json.dumps(record))
    inner = record
    for step in place[:-1]:
        inner = inner[step]
    if value is ABSENT:
        del inner[place[-1]]
    else:
        inner[place[-1]] = value
    return record


def asked(words, store):
    """A command as it goes on a store, which ended as commands end."""
    for folder in ("target", "exported"):
        shutil.rmtree(folder, ignore_errors=True)
    done = marin(*words, *(() if words[0] == "store" else ("--store", store)))
    assert isinstance(done.exception, SystemExit | None), done.exception
    assert done.exit_code in (0, 1, 2, 3)
    return done


def all_asked(full, values, step=1):
    """Ask about a store in which one part of one record is odd, for each such part (or some); how many were asked."""
    store, questions = full
    questions, number = itertools.cycle(questions), 0
    for path, record in one_of_each_kind(store):
        for place in itertools.islice(parts(record), 0, None, step):
            for value in values():
                shutil.rmtree("store", ignore_errors=True)
                shutil.copytree("full", "store")
                (store.files.root.parent / "store" / path).unlink()  # it may have two names
                (store.files.root.parent / "store" / path).write_bytes(
                    write_record(path, changed(record, place, value))
                )
                words, number = next(questions), number + 1
                try:
                    asked(words, "store")
                except BaseException as error:
                    raise AssertionError(f"{' '.join(words)} with {value!r} at {place} of {path}") from error
    return number


def test_no_command_ends_in_a_traceback(full):
    wrong = itertools.cycle(WRONG)
    assert all_asked(full, lambda: [next(wrong)], 3) > 70


@pytest.mark.long
def test_no_command_ends_in_a_traceback_whatever_is_odd(full):
    assert all_asked(full, lambda: WRONG) > 4000


def test_what_is_odd_is_named_and_the_rest_of_the_answer_given(full):
    store, _ = full
    before = asked(("failures", "--json"), "full").stdout
    calls = store.files.names("failures")
    path = f"failures/{calls[0]}/000001.json"
    record = store.read(path)
    store.files.replace(path, [write_record(path, {**record, "failure": {}})])
    done = asked(("failures", "--json"), "full")
    assert len(json.loads(done.stdout)["failures"]) == len(json.loads(before)["failures"]) - 1
    assert done.stderr == (
        f"marin: {store.url}/{path} counts as absent: it is no record that a store writes: its `failure` is no such "
        "thing\n"
    )
    done = asked(("verify",), "full")
    assert done.exit_code == 1
    told = (
        "it is no record that a store writes: its `failure` is no such thing; it counts as absent, and can be removed"
    )
    assert done.stdout.startswith(f"damaged {path}\n        {told}\n")
    assert done.stderr == ""


def test_of_many_damaged_records_some_are_named(full):
    store, _ = full
    calls = store.files.names("failures")
    for call in calls:
        for number in range(2, 6):
            store.files.create(f"failures/{call}/{number:06d}.json", b"garbage")
    lines = asked(("failures",), "full").stderr.splitlines()
    assert len(lines) == 6
    assert lines[0].endswith("000002.json counts as absent: its content is not what was written here")
    assert lines[-1] == f"marin: and {len(calls) * 4 - 5} more; marin verify names all of them"


def test_a_run_tells_what_it_met_damaged_and_makes_it_anew(full):
    store, _ = full
    import odd

    call = store.call_of(odd.page.key).hex()
    path = f"results/{call[:2]}/{call[2:]}.json"
    store.files.replace(path, [b""])
    told = f"marin: {store.url}/{path} counts as absent: its content is not what was written here\n"
    for words in (("show", "odd@1.0"), ("plan", "odd:page"), ("run", "odd:page", "--debug")):
        done = asked(words, "full")
        assert done.exit_code == 0
        assert done.stderr.endswith(told)
    assert "counts as absent" not in asked(("run", "odd:page", "--debug"), "full").stderr
