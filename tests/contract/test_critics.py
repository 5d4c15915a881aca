"""The contract of methods with critics: the checks of test_contract.py."""

import pytest

from tests.contract.test_contract import *  # noqa: F403
from tests.contract.test_contract import EXPRESSIONS, WITH_CRITICS


@pytest.fixture(scope="session", params=WITH_CRITICS)
def method(request: pytest.FixtureRequest) -> str:
    return EXPRESSIONS[request.param]
