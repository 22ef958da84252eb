"""All experts on one shard: against the oracle."""

import pytest
from routed_cases import check, layer

TOP_K = {1: "one expert a token", 7: "all experts but one"}


@pytest.mark.parametrize("implementation", ["local", "reference"])
def test_one_shard_computes_what_the_oracle_computes(implementation):
    check(layer(padded=5), implementation)
