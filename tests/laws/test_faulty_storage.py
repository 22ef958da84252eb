"""L19, L20 on a storage that tears writes, fails and shows new files late: the whole value, none, or a complaint."""

import contextlib
import errno
import os
import random
import uuid

import pytest
from faulty_filesystem import FaultyFileSystem, Stopped, faults, faulty_store
from hypothesis import given
from hypothesis import strategies as st
from made_up_records import result_record

from marin_dsl.store import Store, StoreUnavailable
from marin_dsl.store import store as module

from .test_store import CALL, commit, served

FULL = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
BROKEN = OSError(errno.EIO, os.strerror(errno.EIO))
ERRORS = {"stopped": Stopped, "ENOSPC": FULL, "EIO": BROKEN}


@pytest.fixture(scope="module", autouse=True)
def clean():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "_PAUSES", (0.0,) * 8)
        yield
    FaultyFileSystem.store.clear()


@pytest.mark.parametrize("error", ERRORS)
@pytest.mark.parametrize("when", ["before", "torn", "after"])
@pytest.mark.parametrize("kind", ["write", "read"])
def test_l19_a_commit_disturbed_at_any_operation_leaves_the_whole_value_or_none(kind, when, error):
    at, reached = 0, True
    while reached:
        with faulty_store(at=at, kind=kind, when=when, error=ERRORS[error]) as (store, plan):
            complaint = ""
            try:
                commit(store)
            except Stopped:
                assert error == "stopped"
            except StoreUnavailable as complaining:
                complaint = str(complaining)
            reached = plan.reached
        assert complaint == "" or complaint.startswith(f"store {store.url}: ")
        assert error == "stopped" or not reached or "choose another store" in complaint
        served(store)
        commit(store)  # nothing has to be cleaned by hand
        assert served(store)
        assert store.files.names(f"conflicts/{CALL.hex()}") == []
        at += 1
    assert at > 4


def test_l19_a_read_that_fails_at_any_operation_is_a_complaint_and_never_a_value():
    with faulty_store() as (store, _):
        commit(store)
    at, reached = 0, True
    while reached:
        with faults(at=at, kind="read", error=BROKEN) as plan, contextlib.suppress(StoreUnavailable):
            assert served(store)
            assert not plan.reached
        reached = plan.reached
        at += 1
    assert served(store)
    assert at > 3


@given(late=st.integers(0, 8), values=st.lists(st.sampled_from(["one", "two", "x" * 5000]), min_size=2, max_size=4))
def test_l20_where_new_files_are_seen_late_the_first_commit_stays_all_the_same(late, values):
    with faulty_store(late=late) as (store, _):
        for value in values:
            record = store.commit(CALL, result_record(store.put(value)))
            assert record["value"]["digest"] == store.put(values[0]).as_record()["digest"]
    assert store.result(CALL)["value"]["digest"] == store.put(values[0]).as_record()["digest"]


@given(late=st.integers(0, 8), seed=st.integers(0, 9))
def test_l20_where_listings_come_late_and_in_any_order_no_entry_of_a_log_is_lost(late, seed):
    with faulty_store(late=late, order=random.Random(seed)) as (store, _):
        numbers = [store.add("log", {"n": number}) for number in range(12)]
    assert numbers == list(range(1, 13))
    assert [store.read(f"log/{name}")["n"] for name in store.files.names("log")] == list(range(12))
    assert store.last("log")["n"] == 11


def test_a_storage_of_ones_own_is_one_that_says_how_to_create_on_condition():
    place = f"faulty://{uuid.uuid4().hex}"
    assert commit(Store(place))
    assert served(Store(place))
    assert Store(place).files.create("format.json", b"") is False
