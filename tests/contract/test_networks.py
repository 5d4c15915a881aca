"""The contract of the other methods with networks: the checks of test_contract.py.

Votes of teachers and chains of networks compile longest, in five shapes: they run with `make long-test`. `make test`
has a small run of each (tests/synthesizers/test_pategan.py and test_bayesgan.py).
"""

import pytest

from tests.contract.test_contract import *  # noqa: F403
from tests.contract.test_contract import EXPRESSIONS, OTHER_NETWORKS

LONG = ("pategan", "patectgan", "bayesgan")


@pytest.fixture(
    scope="session",
    params=[pytest.param(name, marks=[pytest.mark.long] if name in LONG else []) for name in OTHER_NETWORKS],
)
def method(request: pytest.FixtureRequest) -> str:
    return EXPRESSIONS[request.param]
