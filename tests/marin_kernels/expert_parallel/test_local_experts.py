"""All experts on one shard: against the oracle."""

import numpy as np
import pytest
from routed_cases import assert_agrees, layer, run


@pytest.mark.parametrize("implementation", ["local", "ring"])
def test_one_shard_computes_what_the_oracle_computes(implementation):
    case = layer(padded=5)
    result, oracle = run(case, implementation=implementation), run(case, implementation="reference")
    assert_agrees(result, oracle)
    np.testing.assert_array_equal(result[0][-5:], 0)
    counts, expected = result[1], np.bincount(np.asarray(case[1].experts)[:-5].ravel(), minlength=8)
    np.testing.assert_array_equal(counts.load, expected)
    assert (counts.padding, counts.dropped_by_sender, counts.dropped_by_receiver) == (10, 0, 0)
