"""The contract of the other methods with networks: the checks of test_contract.py."""

import pytest

from tests.contract.test_contract import *  # noqa: F403
from tests.contract.test_contract import EXPRESSIONS, OTHER_NETWORKS


@pytest.fixture(scope="session", params=OTHER_NETWORKS)
def method(request: pytest.FixtureRequest) -> str:
    return EXPRESSIONS[request.param]
