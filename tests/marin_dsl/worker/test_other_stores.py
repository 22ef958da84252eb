"""Trouble with a store that an operator opened itself is its failure; trouble with that of the run ends the run."""

import errno
import pickle

import pytest

from marin_dsl import Failed, Ok, Store, attempt, evaluate, op, when
from marin_dsl.store import StoreUnavailable, local


@op(version="1")
def reading(url: str) -> int:
    store = Store(url)
    store.check()
    return len(store.files.names("labels"))


@op(version="1")
def evaluating(url: str) -> int:
    return evaluate(doubled(1), store=url, debug=True).value


@op(version="1")
def doubled(n: int) -> int:
    return 2 * n


@op(version="1")
def told(outcomes: list) -> list:
    return [type(outcome).__name__ for outcome in outcomes]


def broken(tmp_path):
    """Addresses of stores that cannot be used, each in a way of its own."""
    (tmp_path / "file").write_text("")
    (tmp_path / "newer").mkdir()
    (tmp_path / "newer" / "format.json").write_text('{"schema": 999}')
    (tmp_path / "damaged").mkdir()
    (tmp_path / "damaged" / "format.json").write_text("garbage")
    return [
        str(tmp_path / "file" / "store"),
        str(tmp_path / "newer"),
        str(tmp_path / "damaged"),
        "nothing://x",
        "s3://",
    ]


RUN = {
    "here": {},
    "with a timeout": {"timeout": 60},
    "in a process of its own": {"isolate": True},
    "as a gang": {"hosts": 2, "retries": 0},
}


@pytest.mark.parametrize("how", RUN)
def test_a_store_of_an_operator_that_cannot_be_used_is_its_failure(tmp_path, how):
    url = str(tmp_path / "store")
    calls = [operator(place).with_(**RUN[how]) for place in broken(tmp_path) for operator in (reading, evaluating)]
    calls = calls if how == "here" else calls[:2]
    *outcomes, other, summary = evaluate(*calls, doubled(2), told([*map(attempt, calls)]), store=url, debug=True)
    assert {type(outcome) for outcome in outcomes} == {Failed}
    assert {(outcome.kind, outcome.exception) for outcome in outcomes} == {
        ("raised", "marin_dsl.store.files.StoreUnavailable")
    }
    assert "a part of the path is a file" in outcomes[0].message
    assert isinstance(other, Ok)
    assert summary.value == ["Failed"] * len(calls)


def test_trouble_with_the_store_of_the_run_ends_it_though_an_operator_met_it(tmp_path):
    @op(version="1")
    def breaking(url: str) -> int:
        (tmp_path / "store" / "labels").write_text("")
        return len(Store(url).files.names("labels"))

    with pytest.raises(StoreUnavailable, match="cannot list labels: a part of the path is a file"):
        evaluate(breaking(str(tmp_path / "store")), doubled(2), store=tmp_path / "store", debug=True)


@op(version="1")
def large(n: int) -> dict:
    return {"text": "x" * 5000, "n": n, "yes": True}


@pytest.mark.parametrize("kind", ["projection", "choice"])
def test_trouble_with_the_store_is_no_failure_of_what_is_computed_on_the_way(tmp_path, monkeypatch, kind):
    store = Store(tmp_path / "store")
    root = large(1)["n"] if kind == "projection" else when(large(1)["yes"], doubled(1), doubled(2))
    evaluate(large(1), store=store, debug=True)

    looked_up = []

    def broken(place):
        looked_up.extend([place] if "/blobs/" in place else [])
        if len(looked_up) > 1:
            raise OSError(errno.EIO, "Input/output error")
        return read(place)

    read = local._read
    monkeypatch.setattr(local, "_read", broken)
    with pytest.raises(StoreUnavailable, match=r"cannot read blobs/.*Input/output error"):
        evaluate(root, store=store, debug=True)


def test_whose_trouble_it_is_is_known_in_other_processes(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreUnavailable) as caught:
        Store(tmp_path / "file" / "store").check()
    for found in (caught.value, pickle.loads(pickle.dumps(caught.value))):
        assert found.url == str(tmp_path / "file" / "store")
        assert str(found).startswith(f"store {found.url}: cannot read format.json")
