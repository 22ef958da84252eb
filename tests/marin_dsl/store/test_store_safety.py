"""What a store can do to its reader: nothing of it is unpickled, and no name in it leads out of it."""

import os
import stat
import subprocess
import sys

import pytest
from experiments import evaluated, new_store

from marin_dsl.store import Store
from marin_dsl.store.copy import copy

READER = """
import sys, pickle, _pickle, marshal, shelve

def refuse(*given, **named):
    raise AssertionError("something was unpickled")

for module in (pickle, _pickle):
    for name in ("load", "loads", "Unpickler"):
        setattr(module, name, refuse)
pickle._load = pickle._loads = pickle._Unpickler = refuse

import cloudpickle
cloudpickle.load = cloudpickle.loads = refuse

from marin_dsl import evaluate, plan
from marin_dsl.lineage import ancestors
from marin_dsl.encoding import parse_digest
from marin_dsl.store import Store, StoredValue
from marin_dsl.store.closure import closure, values_in
from marin_dsl.store.copy import copy
from marin_dsl.store.verify import verify
from experiments import experiment
from marin_dsl.array_tree import ArrayTree

store = Store(sys.argv[1])
assert verify(store).sound
copy(store, Store("memory://copy"))
root = experiment().named("experiment", "1.0")
for place in (store, Store("memory://copy")):
    print(evaluate(root, store=place, debug=True, keep_failures=True).value[0], str(plan(root, store=place))[:1])
    read = 0
    for ancestor in ancestors(place, root.key).values():
        for value in values_in([ancestor.recipe, ancestor.record or {}]):
            place.get(value), place.get(value, lazy=True)
            read += 1
    print(read > 5)
"""


def test_nothing_of_a_store_is_unpickled_by_whoever_reads_all_of_it(tmp_path):
    evaluated(Store(tmp_path / "store"))
    path = os.pathsep.join([os.path.dirname(__file__), *filter(None, sys.path)])
    given = [sys.executable, "-c", READER, str(tmp_path / "store")]
    done = subprocess.run(given, capture_output=True, text=True, env={**os.environ, "PYTHONPATH": path}, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["19999000.0", "2", "True"] * 2


def test_the_reader_of_this_test_would_notice():
    program = READER.partition("from marin_dsl import")[0] + "import pickle; pickle.loads(b'')"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert "something was unpickled" in done.stderr


def test_a_copied_store_is_private_to_its_owner(tmp_path):
    source, target = new_store("memory"), Store(tmp_path / "new" / "target")
    evaluated(source)
    previous = os.umask(0o022)
    try:
        copy(source, target)
    finally:
        os.umask(previous)
    found = [tmp_path / "new", *(tmp_path / "new").rglob("*")]
    assert {stat.S_IMODE(place.stat().st_mode) for place in found if place.is_file()} == {0o600}
    assert {stat.S_IMODE(place.stat().st_mode) for place in found if place.is_dir()} == {0o700}


@pytest.mark.parametrize("run", ["../../outside", "/outside", "a/../../../outside", ""])
def test_a_run_in_a_hostile_record_leads_nowhere_when_it_is_copied(tmp_path, run):
    source, target = new_store("memory"), Store(tmp_path / "target")
    evaluated(source)
    (name,) = source.files.names("labels/experiment/@1.0")
    record = source.read(f"labels/experiment/@1.0/{name}")
    source.files.remove(f"labels/experiment/@1.0/{name}")
    source.add("labels/experiment/@1.0", {**record, "run": run})
    copy(source, target)  # what it names is no run, so that there is nothing to copy of it
    assert [place.name for place in tmp_path.iterdir()] == ["target"]
    assert all(".." not in name for name in target.files.names("runs"))
