"""Every transport against the oracle, on simulated devices."""

import pytest
from routed_cases import TRANSPORTS, check, special_cases
from simulated_devices import on_devices


@on_devices(8)
def over_two_by_four(implementation, factor):
    drops = 0
    for case in special_cases().values():
        _, counts, _ = check(case, implementation, groups=2, shards=4, lanes=2, factor=factor)
        drops += int(counts.dropped_by_sender + counts.dropped_by_receiver)
    assert (drops > 0) == (factor is not None)


@pytest.mark.parametrize("implementation", TRANSPORTS)
def test_with_capacity_what_is_kept_is_computed_and_what_is_dropped_counts_nowhere(implementation):
    over_two_by_four(implementation, 1.0)


@pytest.mark.parametrize("implementation", TRANSPORTS)
def test_without_capacity_nothing_is_dropped(implementation):
    over_two_by_four(implementation, None)
