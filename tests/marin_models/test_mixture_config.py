import attrs
import pytest

from marin_models.mixture_config import MixtureOfExpertsConfig

SHAPE = {"experts": 8, "top_k": 2, "inner": 16}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"experts": 1}, "experts must be an integer of at least 2, not 1"),
        ({"top_k": 0}, "top_k must be an integer of at least 1, not 0"),
        ({"top_k": 9, "balancing": "none"}, "top_k 9 of 8 experts; it must be at most 8$"),
        ({"top_k": 8}, "top_k 8 of 8 experts; it must be at most 7; balancing by quantiles looks at the first expert"),
        ({"inner": 0}, "inner must be an integer of at least 1, not 0"),
        ({"shared_inner": -1}, "shared_inner must be an integer of at least 0, not -1"),
        ({"latent": -1}, "latent must be an integer of at least 0, not -1"),
        ({"latent": 2.5}, r"latent must be an integer of at least 0, not 2\.5"),
        ({"scoring": "tanh"}, "scoring must be one of 'softmax', 'sigmoid', not 'tanh'"),
        ({"renormalize": 2}, "renormalize must be one of False, True, not 2"),
        ({"scale": 0}, "scale must be a finite number above 0, not 0"),
        ({"balance_on": "weights"}, "balance_on must be one of 'scores', 'logits', not 'weights'"),
        ({"balancing": "hope"}, "balancing must be one of 'quantiles', 'auxiliary', 'sign', 'none', not 'hope'"),
        ({"auxiliary_coefficient": -1.0}, "auxiliary_coefficient must be a finite number of at least 0"),
        ({"sign_step": 0.0}, "sign_step must be a finite number above 0"),
        ({"quantile_bins": 1}, "quantile_bins must be an integer of at least 2, not 1"),
        ({"router_z_loss": float("inf")}, "router_z_loss must be a finite number of at least 0, not inf"),
        ({"capacity_factor": 0.0}, "capacity_factor must be a finite number above 0"),
        ({"implementation": "magic"}, "implementation must be one of 'reference', 'local', 'ring', .* not 'magic'"),
        ({"grouped_matmul": "magic"}, "grouped_matmul must be one of 'default', 'reference', .* not 'magic'"),
    ],
)
def test_an_impossible_mixture_of_experts_is_refused_with_what_is_possible(change, message):
    with pytest.raises(ValueError, match=message):
        MixtureOfExpertsConfig(**{**SHAPE, **change})


def test_every_expert_may_be_chosen_where_no_quantile_is_looked_for():
    assert MixtureOfExpertsConfig(**{**SHAPE, "top_k": 8}, balancing="auxiliary").top_k == 8


def test_experts_are_as_wide_as_the_model_unless_they_have_a_latent_space():
    config = MixtureOfExpertsConfig(**SHAPE)
    assert config.expert_width(32) == 32
    assert attrs.evolve(config, latent=12).expert_width(32) == 12


def test_a_bias_exists_where_balancing_moves_one():
    config = MixtureOfExpertsConfig(**SHAPE)
    found = {name: attrs.evolve(config, balancing=name).biased for name in ("quantiles", "sign", "auxiliary", "none")}
    assert found == {"quantiles": True, "sign": True, "auxiliary": False, "none": False}
