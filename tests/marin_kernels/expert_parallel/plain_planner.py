"""Which assignments are kept, by counting on fingers: no arrays, no cumulative sums, no closed formulas."""

import math
from fractions import Fraction
from typing import NamedTuple

DROPLESS = None


class Kept(NamedTuple):
    """The assignments ``(source, token, k)`` that are kept, and how many were dropped where."""

    kept: set
    by_sender: int
    by_receiver: int


def in_turn(demands, room):
    """One to each in turn who still wants one, until nothing is left."""
    granted = [0] * len(demands)
    while room > 0 and granted != list(demands):
        for member, demand in enumerate(demands):
            if room > 0 and granted[member] < demand:
                granted[member] += 1
                room -= 1
    return granted


def room_of(factor, even, most):
    """An even share times the factor, rounded up, at least one."""
    return most if factor is DROPLESS else min(most, max(1, math.ceil(Fraction(factor).limit_denominator(1000) * even)))


def hit(experts, group, top_k):
    """The probability, in thousandths rounded up, that a token with ``top_k`` experts has one in a group of them."""
    return Fraction(
        math.ceil(1000 * (1 - Fraction(math.comb(experts - group, top_k), math.comb(experts, top_k)))), 1000
    )


class Sources:
    """The assignments of all sources of one expert axis."""

    def __init__(self, chosen, valid, experts, factor=DROPLESS, lanes=1):
        self.chosen, self.experts, self.factor, self.lanes = chosen, experts, factor, lanes
        self.shards, self.tokens, self.top_k = len(chosen), len(chosen[0]), len(chosen[0][0])
        self.local = experts // self.shards
        self.real = [
            (s, t, k)
            for s in range(self.shards)
            for t in range(self.tokens)
            for k in range(self.top_k)
            if valid[s][t] and 0 <= chosen[s][t][k] < experts
        ]

    def expert(self, assignment):
        s, t, k = assignment
        return self.chosen[s][t][k]

    def queue(self, assignments, source, expert):
        return [a for a in assignments if a[0] == source and self.expert(a) == expert]

    def of_source(self, source):
        return [a for a in self.real if a[0] == source]

    def receive(self, sent):
        """Each receiver divides its room among its experts, and each expert among the sources."""
        most = self.shards * self.tokens * min(self.top_k, self.local)
        physical = room_of(self.factor, self.tokens * self.top_k, most)
        room = room_of(self.factor, Fraction(len(sent), self.shards), physical)
        kept = set()
        for receiver in range(self.shards):
            mine = range(receiver * self.local, (receiver + 1) * self.local)
            demands = [sum(self.expert(a) == e for a in sent) for e in mine]
            for e, granted in zip(mine, in_turn(demands, room), strict=True):
                queues = [self.queue(sent, s, e) for s in range(self.shards)]
                for queue, count in zip(queues, in_turn([len(q) for q in queues], granted), strict=True):
                    kept |= set(queue[:count])
        return Kept(kept, len(self.real) - len(sent), len(sent) - len(kept))

    def receivers(self):
        """All is sent."""
        return self.receive(self.real)

    def fixed(self):
        """Each source has a cell for each expert."""
        kept = set()
        for s in range(self.shards):
            most = room_of(self.factor, Fraction(self.tokens * self.top_k, self.experts), self.tokens)
            room = room_of(self.factor, Fraction(len(self.of_source(s)), self.experts), most)
            for e in range(self.experts):
                kept |= set(self.queue(self.real, s, e)[:room])
        return Kept(kept, len(self.real) - len(kept), 0)

    def pooled(self):
        """Each source has a pool for each receiver, divided among its experts."""
        sent = set()
        for s in range(self.shards):
            most = self.tokens * min(self.top_k, self.local)
            physical = room_of(self.factor, Fraction(self.tokens * self.top_k, self.shards), most)
            room = room_of(self.factor, Fraction(len(self.of_source(s)), self.shards), physical)
            for receiver in range(self.shards):
                mine = range(receiver * self.local, (receiver + 1) * self.local)
                queues = [self.queue(self.real, s, e) for e in mine]
                for queue, count in zip(queues, in_turn([len(q) for q in queues], room), strict=True):
                    sent |= set(queue[:count])
        return self.receive(sorted(sent))

    def once(self):
        """Each source sends each token once to each host, to so many tokens at most."""
        group = self.local * self.lanes
        sent = []
        for s in range(self.shards):
            share = hit(self.experts, group, self.top_k)
            room = room_of(self.factor, self.tokens * share, self.tokens)
            room = room_of(self.factor, len({t for _, t, _ in self.of_source(s)}) * share, room)
            for host in range(self.experts // group):
                mine = [a for a in self.of_source(s) if self.expert(a) // group == host]
                travel = sorted({t for _, t, _ in mine})[:room]
                sent += [a for a in mine if a[1] in travel]
        return self.receive(sorted(sent))
