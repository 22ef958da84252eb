"""L21: whatever clocks, pauses, forks and I/O errors do, one at most holds a lease by the observers' rule."""

from __future__ import annotations

import copy
import itertools
import os

import attrs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, rule

from marin_dsl.store import StoreUnavailable
from marin_dsl.store.leases import LOOKS, Lease, Sighting, Watch, acquire, look
from marin_dsl.store.owner import Owner
from tests.laws.interleaving import Action, InMemory, Stepped

CALL = bytes(range(32))
T = 60.0


class Party:
    """A process that wants the lease, with its own clock."""

    def __init__(self, files, names):
        self.files = files
        self.owner = Owner(f"run-{next(names)}", "host", os.getpid(), "", None)
        self.now = 0.0
        self.watch = Watch(T, lambda: self.now)
        self.lease: Lease | None = None
        self.abandoned: Sighting | None = None
        self.action: Action | None = None
        self.doing = ""
        self.first_seen: dict[Sighting, float] = {}

    def begin(self, doing, action):
        self.doing, self.action = doing, Action(action)

    def acquire(self, nonce):
        self.begin("acquire", lambda: acquire(self.files, CALL, self.owner, abandoned=self.abandoned, nonce=nonce))

    def look(self):
        self.begin("look", lambda: look(self.files, CALL))

    def settle(self):
        """Take note of what the action came to."""
        found = self.action.result
        if self.doing == "acquire" and isinstance(found, Lease):
            self.lease = found
        if self.doing in ("acquire", "look") and isinstance(found, Sighting):
            self.first_seen.setdefault(found, self.now)
            self.abandoned = found if self.watch.abandoned(found) else None
        if self.doing == "release":
            self.lease = None
        self.action = None

    @property
    def holds(self):
        return self.lease is not None and not self.lease.lost


class World:
    """Parties on the same files; every single operation is held against the observers' rule."""

    def __init__(self, parties=3):
        self.plain = InMemory()
        self.files = Stepped(self.plain)
        self.names, self.nonces = itertools.count(), itertools.count()
        self.parties = [Party(self.files, self.names) for _ in range(parties)]

    def nonce(self):
        return str(next(self.nonces))

    def top(self):
        """What an observer sees: generation and run of the owner; None when nobody holds the lease."""
        seen = look(self.plain, CALL)
        return None if seen is None or seen.released else (seen.generation, seen.owner.run)

    def begin(self, index, what):
        """A party begins something, up to its first file operation, if it is free to."""
        party = self.parties[index]
        if party.action is not None:
            return
        if party.lease is None and what in ("acquire", "look"):
            party.acquire(self.nonce) if what == "acquire" else party.look()
        elif party.lease is not None and what in ("refresh", "release"):
            party.begin(what, getattr(party.lease, what))
        if party.action is not None and party.action.over:
            party.settle()

    def step(self, index, fault=None):
        """A party does one file operation."""
        party = self.parties[index]
        if party.action is None:
            return
        before, held = self.top(), party.lease
        party.action.step(fault)
        self.check(party, before, held)
        if party.action.over:
            party.settle()
            if party.doing == "acquire" and party.holds:
                assert self.top() == (party.lease.generation, party.owner.run), "it acquired what it does not hold"

    def check(self, party, before, held):
        after = self.top()
        if before == after:
            return
        if party.doing == "acquire":
            assert after is not None
            assert after[1] == party.owner.run
            if before is not None and before[1] != party.owner.run:  # a run never waits for itself
                assert after[0] == before[0] + 1
                watched = [found for found in party.first_seen if found.generation == before[0]]
                assert any(party.now - party.first_seen[found] >= T for found in watched), "taken over too early"
        elif party.doing == "release":
            assert after is None
            assert before == (held.generation, party.owner.run), "released what another one holds"
        else:
            raise AssertionError(f"{party.doing} changed who holds the lease")

    def finish(self, index):
        while self.parties[index].action is not None:
            self.step(index)

    def whole(self, index, what):
        """A party does something without a pause."""
        self.finish(index)
        self.begin(index, what)
        self.finish(index)

    def take_over(self, index):
        """A party looks for long enough, and acquires."""
        for _ in range(LOOKS + 1):
            self.whole(index, "look")
            self.parties[index].now += T / LOOKS
        self.whole(index, "acquire")

    def die(self, index):
        self.parties[index] = Party(self.files, self.names)

    def fork(self, index, what):
        """A process that was forked from an owner tries to do something with the lease: nothing happens."""
        if self.parties[index].lease is not None:
            child = copy.copy(self.parties[index].lease)
            child._owner = attrs.evolve(child._owner, pid=0)  # what it looks like from a process of another number
            before = look(self.plain, CALL)
            getattr(child, what)()
            assert look(self.plain, CALL) == before

    def end(self):
        """Progress: when all others are gone, somebody who waits gets the lease."""
        self.parties.append(Party(self.files, self.names))
        self.whole(-1, "acquire")
        if not self.parties[-1].holds:
            self.take_over(-1)
        assert self.parties[-1].holds


parties = st.integers(0, 2)
faults = st.sampled_from([None] * 6 + ["before", "after"])


class LeaseMachine(RuleBasedStateMachine):
    """Any party does anything at any time, and is stopped anywhere."""

    def __init__(self):
        super().__init__()
        self.world = World()

    @rule(index=parties, what=st.sampled_from(["acquire", "look", "refresh", "release"]), faults=st.lists(faults))
    def begin(self, index, what, faults):
        self.world.begin(index, what)
        for fault in faults:
            self.world.step(index, fault)

    @rule(index=parties)
    def go_on(self, index):
        self.world.finish(index)

    @rule(index=parties)
    def take_over(self, index):
        self.world.take_over(index)

    @rule(index=parties, seconds=st.sampled_from([0.0, 1.0, T / 3, T, 1000 * T]))
    def time_passes(self, index, seconds):
        self.world.parties[index].now += seconds

    @rule(index=parties)
    def die(self, index):
        self.world.die(index)

    @rule(index=parties, what=st.sampled_from(["refresh", "release"]))
    def fork(self, index, what):
        self.world.fork(index, what)

    def teardown(self):
        self.world.end()


TestLeases = LeaseMachine.TestCase
TestLeases.settings = settings(max_examples=settings.default.max_examples, stateful_step_count=30, deadline=None)

OTHERS = [("take over", 1), ("refresh", 1), ("release", 1), ("acquire", 2), ("take over", 2), ("die", 1)]


@pytest.mark.parametrize("generation", [1, 2])
@pytest.mark.parametrize("paused", ["acquire", "refresh", "release"])
def test_l21_an_owner_may_pause_before_any_operation_while_others_do_anything(paused, generation):
    for steps, others in itertools.product(range(4), itertools.product(OTHERS, repeat=2)):
        world = World()
        if generation == 2:
            world.whole(2, "acquire")
            world.die(2)
        if paused != "acquire" or generation == 2:
            world.take_over(0)
        world.begin(0, paused)
        for _ in range(steps):
            world.step(0)
        for what, index in others:
            if what == "take over":
                world.take_over(index)
            elif what == "die":
                world.die(index)
            else:
                world.whole(index, what)
        world.finish(0)
        world.whole(0, "refresh")
        world.end()


def a_lease(run="run"):
    files = InMemory()
    stepped = Stepped(files)
    return files, acquire(stepped, CALL, Owner(run, "host", os.getpid(), "", None))


@pytest.mark.parametrize("fault", ["before", "after"])
@pytest.mark.parametrize("at", range(3))
def test_l21_a_refresh_that_failed_done_or_not_loses_nothing(fault, at):
    _, lease = a_lease()
    failing = Action(lease.refresh)
    for _ in range(at):
        failing.step()
    failing.step(fault)
    assert isinstance(failing.result, StoreUnavailable)
    assert lease.refresh()
    assert lease.refresh()


def test_l21_a_refresh_never_acquires_a_lease_whose_file_is_gone():
    files, lease = a_lease()
    files.remove(f"leases/{CALL.hex()}")
    assert not lease.refresh()
    other = acquire(files, CALL, Owner("other", "host", os.getpid(), "", None))
    assert isinstance(other, Lease)
    lease.release()
    assert look(files, CALL).owner.run == "other"


def test_l21_a_machine_that_slept_with_the_owner_does_not_wake_up_to_an_abandoned_lease():
    files, lease = a_lease()
    now = 0.0
    watch = Watch(T, lambda: now)
    assert not watch.abandoned(look(files, CALL))
    now += 1000 * T
    assert not watch.abandoned(look(files, CALL))
    assert lease.refresh()


@given(jumps=st.lists(st.floats(0, 1e6), max_size=30), rate=st.floats(0, 100))
def test_l21_an_owner_that_shows_itself_between_any_two_looks_is_never_taken_over(jumps, rate):
    files, now = InMemory(), 0.0
    owner, other = (Owner(run, "host", os.getpid(), "", None) for run in "ab")
    lease = acquire(files, CALL, owner)
    watch = Watch(T, lambda: now)
    for jump in jumps:
        seen = look(files, CALL)
        assert not watch.abandoned(seen)
        assert lease.refresh()
        now += jump * rate
    assert isinstance(acquire(files, CALL, other), Sighting)
    assert look(files, CALL).owner == owner


def owner_of(run):
    return Owner(run, "host", os.getpid(), "", None)


def test_l21_a_lease_that_was_given_back_after_a_takeover_is_taken_at_once():
    files = InMemory()
    first = acquire(files, CALL, owner_of("first"))
    second = acquire(files, CALL, owner_of("second"), abandoned=look(files, CALL))
    assert (first.generation, second.generation) == (1, 2)
    assert isinstance(acquire(files, CALL, owner_of("third")), Sighting)
    second.release()
    third = acquire(files, CALL, owner_of("third"))
    assert isinstance(third, Lease)
    assert third.generation == 3
    assert not first.refresh()
    assert not second.refresh()
    assert third.refresh()


def test_l21_a_run_takes_over_from_itself_at_once_for_it_hands_out_a_call_once():
    files = InMemory()
    acquire(files, CALL, owner_of("one"))
    assert isinstance(acquire(files, CALL, owner_of("other")), Sighting)
    again = acquire(files, CALL, owner_of("one"))
    assert isinstance(again, Lease)
    assert again.generation == 2
