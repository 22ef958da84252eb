"""A record at the place of another one is as little believed as a damaged one, whatever kinds the two are of."""

import re
import shutil

import pytest
from experiments import corpus, evaluated, experiment, folder

from marin_dsl import Store, evaluate, labels, op, plan, provenance
from marin_dsl.store.copy import copy
from marin_dsl.store.verify import verify


@pytest.fixture(autouse=True, scope="module")
def _quick_environment():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(provenance, "environment", lambda project: {"python": "3" * 2000})
        yield


@op(version="1")
def returning(text: str):
    return folder(text)


@op(version="1")
def broken(number: int) -> int:
    raise ValueError(f"no {number}")


@op(version="1")
def returning_broken(number: int):
    return broken(number)


@pytest.fixture(scope="module")
def full(tmp_path_factory):
    """A store with two records of every kind at least, and what was evaluated in it."""
    store = Store(tmp_path_factory.mktemp("full") / "store")
    for scale in (1.0, 2.0):
        evaluated(store, version=f"{scale}", scale=scale)
    evaluate(*map(returning, "abc"), store=store, debug=True)
    evaluate(*map(returning_broken, (1, 2)), store=store, debug=True)
    for size, text in ((20_001, "same"), (20_002, "too")):
        labels.same(store, "experiment@1.0", corpus(size), why=text)
    for text in "ab":
        call = store.call_of(folder(text).key)
        store.commit(call, {**store.result(call), "value": store.put(text).as_record()})
    return store


@pytest.fixture
def store(full, tmp_path):
    shutil.copytree(full.url, tmp_path / "store")
    return Store(tmp_path / "store")


def files_by_kind(store):
    """Paths of the records of a store, by what is kept there."""
    found = {}
    for path in sorted(store.files.root.rglob("*")):
        place = path.relative_to(store.files.root).as_posix()
        if path.is_file() and store.read(place) is not None:
            kind = re.sub(r"[^/]*@[^/]*|/[0-9a-f]{2}/[0-9a-f]{62}|[0-9a-f]{64}|[0-9]{6,}[^/.]*", "*", place)
            found.setdefault(kind, []).append(place)
    return found


def test_there_are_two_records_of_every_kind(full):
    found = files_by_kind(full)
    assert set(found) == {
        "conflicts/*/*.json", "equivalences/*/*.json", "failures/*/*.json", "history/experiment/*/*.json",
        "labels/experiment/*/*.json", "recipes*.call", "recipes*.json", "recipes*.next", "results*.json",
        "runs/*/end/*.json", "runs/*/start/*.json", "skips*.json",
    }  # fmt: skip
    assert min(map(len, found.values())) >= 2


def put_over(store, source, target):
    shutil.copy2(store.files.root / source, store.files.root / target)


def test_a_record_at_the_place_of_another_of_its_kind_is_damaged_for_readers_and_for_verify(store):
    moved = {}
    for paths in files_by_kind(store).values():
        originals = [(store.files.root / path).read_bytes() for path in paths]
        for number, path in enumerate(paths):
            if originals[number] != originals[number - 1]:
                (store.files.root / path).unlink()  # it may have two names
                (store.files.root / path).write_bytes(originals[number - 1])
                moved[path] = store.read(path)
    assert len(moved) > 40
    assert {path for path, record in moved.items() if record is not None} == set()
    found = {finding.path for finding in verify(store).findings if finding.kind == "damaged"}
    assert found >= set(moved)


def test_no_value_of_another_call_is_served(store):
    a, b = (store.call_of(folder(text).key).hex() for text in "ab")
    put_over(store, f"results/{a[:2]}/{a[2:]}.json", f"results/{b[:2]}/{b[2:]}.json")
    assert plan(folder("b"), store=store).counts.startswith("1 to run")
    outcome = evaluate(folder("b"), store=store, debug=True)
    assert [file.read_text() for file in outcome.value.files.values()] == ["b"]
    assert verify(store).sound


@pytest.mark.parametrize("suffix", [".json", ".call", ".next"])
def test_no_value_of_another_expression_is_served(store, suffix):
    a, b = (returning(text).key.hex() for text in "ab")
    source, target = (f"recipes/{key[:2]}/{key[2:]}{suffix}" for key in (a, b))
    if (store.files.root / source).exists():
        put_over(store, source, target)
    outcome = evaluate(returning("b"), store=store, debug=True)
    assert [file.read_text() for file in outcome.value.files.values()] == ["b"]


def test_no_failure_of_another_call_is_kept(store):
    one, two = (store.call_of(broken(number).key).hex() for number in (1, 2))
    shutil.rmtree(store.files.root / f"failures/{two}")
    shutil.copytree(store.files.root / f"failures/{one}", store.files.root / f"failures/{two}")
    assert evaluate(broken(2), store=store, debug=True, keep_failures=True).message == "no 2"


def test_the_record_of_another_label_is_none_of_a_label(store):
    put_over(store, "labels/experiment/@1.0/000001.json", "labels/experiment/@2.0/000001.json")
    assert labels.current(store, labels.check_label("experiment", "2.0")) is None
    put_over(store, "labels/experiment/@1.0/000001.json", "labels/experiment/@1.0/000002.json")
    assert labels.current(store, labels.check_label("experiment", "1.0")).number == 1


def test_what_a_store_is_copied_to_is_as_sound(store, tmp_path):
    target = Store(tmp_path / "target")
    copy(store, target)
    assert verify(target).sound
    for scale in (1.0, 2.0):
        root = experiment(scale).named("experiment", f"{scale}")
        assert plan(root, store=target).counts == plan(root, store=store).counts == "2 to run, 4 served"


def test_what_came_back_from_the_trash_is_as_good(store):
    call = store.call_of(folder("a").key)
    path = f"results/{call.hex()[:2]}/{call.hex()[2:]}.json"
    record = store.read(path)
    store.files.move(path, f"trash/{path}")
    store.look_again()
    assert store.read(path) == record
    store.restore(path)
    assert store.read(path) == record
    assert store.files.size(path) is not None
