"""What records consist of: all that stores write, now and by earlier versions, is as it should be."""

from pathlib import Path

import pytest

from marin_dsl import Store, after, attempt, evaluate, external, labels, op, provenance, recall, replicate, tagged, when
from marin_dsl.store.records import read_record
from marin_dsl.store.shapes import misshapen

OLD = sorted((Path(__file__).parents[1] / "store" / "old_stores").iterdir())


def records(folder):
    for path in sorted(folder.rglob("*.*")):
        place = path.relative_to(folder).as_posix()
        record = read_record(place, path.read_bytes()) if path.is_file() else None
        if record is not None:
            yield place, record


@pytest.mark.parametrize("folder", OLD, ids=lambda folder: folder.name)
def test_records_of_earlier_versions_are_as_they_should_be(folder):
    found = dict(records(folder))
    assert len(found) > 5
    assert {place: wrong for place, record in found.items() if (wrong := misshapen(place, record))} == {}


TRIES = []


@op(version="1", transient=(ConnectionError,), retries=2, excludes=[TRIES])
def flaky(n: int) -> int:
    TRIES.append(n)
    raise ConnectionError(f"try {len(TRIES)}")


@op
def unseen(name: str) -> object:
    return getattr(TRIES, name)


@op(impure=True)
def now() -> int:
    return len(TRIES)


@op(version="1")
def returns(n: int):
    return total([1, returns(n - 1)]) if n else broken(n)


@op(version="1")
def broken(n: int) -> int:
    error = ValueError(f"no {n}")
    error.add_note("a note")
    raise error


@op(version="1")
def total(parts: list) -> int:
    return sum(part for part in parts if isinstance(part, int))


@op(version="1")
def size(data) -> int:
    return len(data.read_bytes())


def test_records_of_every_kind_are_as_they_should_be(tmp_path, monkeypatch):
    monkeypatch.setattr(provenance, "environment", lambda project: {"python": "3", "patch": "x" * 70_000})
    store = Store(tmp_path / "store")
    (tmp_path / "data").write_text("data")
    labels.adopt(store, "data", "1.0", str(tmp_path / "data"))
    parts = [
        attempt(flaky(1)), attempt(returns(2)), now(), total.map(unseen("copy")), size(recall("data@1.0")),
        size(external(str(tmp_path / "data"))), *replicate(total([1]), 2), tagged(total([3]), note="é"),
        after(total([4]), total([5])), when(total([1]).eq(1), total([6]), broken(7)), broken(8).recover(total([9])),
    ]  # fmt: skip
    evaluate(total(parts).named("all/kinds", "1.0"), store=store, debug=True, note="a note")
    evaluate(total([1, "other"]).named("all/kinds", "1.0"), store=store, debug=True, drift="accept")
    evaluate(returns(2), broken(3), store=store, debug=True)
    labels.same(store, "all/kinds@1.0", total([1, "anew"]), why="the same")
    record = store.result(total([5]).key)
    store.commit(total([5]).key, {**record, "value": store.put(77).as_record()})
    found = dict(records(tmp_path / "store"))
    kinds = {place.partition("/")[0] for place in found}
    assert kinds >= {"recipes", "results", "failures", "conflicts", "skips", "labels", "history", "runs"}
    assert {place: wrong for place, record in found.items() if (wrong := misshapen(place, record))} == {}
