"""How many examples a property is tried on: few in `make test`, many in `make long-test`."""

import os

from hypothesis import HealthCheck, settings
from hypothesis.internal.conjecture import providers

PROFILES = {"understudy": 25, "thorough": 200}
"""Examples of a property, by profile."""
PROFILE = os.environ.get("UNDERSTUDY_EXAMPLES", "understudy")

# The same examples in every run: a failure can be repeated, and the suite's verdict is no lottery. Nor does it depend
# on how busy the machine is.
settings.register_profile(
    PROFILE,
    max_examples=PROFILES[PROFILE],
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile(PROFILE)
# Nor on which modules the tests before happened to load, whose constants would be among the values that are tried.
if hasattr(providers, "_get_local_constants"):
    providers._get_local_constants = providers.Constants


def scaled(percent: int) -> int:
    """A percentage of the profile's examples, where they cost or matter more than usual; 10 at least, or all."""
    return max(min(percent, 10), percent * PROFILES[PROFILE] // 100)
