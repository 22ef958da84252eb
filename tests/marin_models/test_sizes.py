import itertools
import re

import jax
import pytest

from marin_models import active_parameter_count, parameter_count, size
from marin_models.parameters import abstract_model
from marin_models.sizes import SIZES

UNITS = {"k": 1e3, "m": 1e6, "b": 1e9, "t": 1e12}


def number(text):
    return float(text[:-1]) * UNITS[text[-1]]


@pytest.mark.parametrize("name", SIZES)
def test_a_size_holds_what_its_name_and_its_count_say(name):
    config = size(name)
    leaves = jax.tree.leaves(abstract_model(config))
    assert parameter_count(config) == sum(leaf.size for leaf in leaves)
    family, total, active = re.fullmatch(r"(dense|moe)-(\w+?)(?:-a(\w+))?", name).groups()
    assert (config.mixture is not None) == (family == "moe") == (active is not None)
    assert parameter_count(config) == pytest.approx(number(total), rel=0.12)
    assert active_parameter_count(config) == pytest.approx(number(active or total), rel=0.12)


def test_the_ladder_reaches_from_a_hundred_thousand_to_a_trillion_in_both_families():
    for family, least in (("dense", 1.2e5), ("moe", 4e5)):
        counts = [parameter_count(rung.config) for name, rung in SIZES.items() if name.startswith(family)]
        assert counts == sorted(counts)
        assert counts[0] < least
        assert counts[-1] > 0.9e12
        assert max(after / before for before, after in itertools.pairwise(counts)) < 11


def test_every_size_splits_over_eight_experts_and_two_pieces_of_a_model():
    for rung in SIZES.values():
        config = rung.config
        split = [config.vocabulary, config.heads, config.key_value_heads, config.feed_forward]
        assert all(count % 2 == 0 for count in split)
        assert config.mixture is None or config.mixture.experts % 8 == 0
        assert rung.purpose


def test_an_unknown_size_is_refused_with_those_that_exist():
    with pytest.raises(ValueError, match=r"there is no size 'huge'; choose one of dense-100k, dense-1m, .*moe-1t-a32b"):
        size("huge")
