"""How much Hypothesis tries: HYPOTHESIS_PROFILE=long for the long run of `make test-all`."""

import os

from hypothesis import HealthCheck, settings

_SLOW = [HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much]
_CI = bool(os.environ.get("CI"))

settings.register_profile("quick", max_examples=50, deadline=None, suppress_health_check=_SLOW, derandomize=_CI)
settings.register_profile("long", max_examples=2000, deadline=None, suppress_health_check=_SLOW, print_blob=True)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE") or "quick")
