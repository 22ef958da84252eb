import jax
import pytest

from marin_models import known_peak_flops, measured_peak_flops, throughput


def test_throughput_is_tokens_and_operations_over_time_and_utilization_their_share_of_the_peak():
    found = throughput(1000, 4.0, 6e6, 3e9)
    assert (found.tokens_per_second, found.flops_per_second, found.utilization) == (250.0, 1.5e9, 0.5)
    assert throughput(1000, 4.0, 6e6).utilization is None
    assert throughput(0, 0.0, 6e6, 3e9).utilization == 0


class Device:
    def __init__(self, kind):
        self.device_kind = kind


@pytest.mark.parametrize(("kind", "peak"), [("TPU v5 lite", 197e12), ("TPU v5p", 459e12), ("NVIDIA H200 SXM", 989e12)])
def test_the_peak_of_known_devices_is_that_of_their_data_sheet(kind, peak):
    assert known_peak_flops(Device(kind)) == peak


def test_the_peak_of_a_cpu_is_not_known_but_can_be_measured():
    assert known_peak_flops(jax.devices("cpu")[0]) is None
    assert measured_peak_flops(size=64, repetitions=1) > 0
