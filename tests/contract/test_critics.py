"""The contract of methods with critics: the checks of test_contract.py.

Each compiles programs of its own for half a minute: `make test` has `dpgan`, and `make long-test` the others.
"""

from datetime import date

import pyarrow.compute as pc
import pytest

from tests.contract.test_contract import *  # noqa: F403
from tests.contract.test_contract import EXPRESSIONS, SEED, WITH_CRITICS, assert_satisfies, declared, fit


@pytest.fixture(
    scope="session",
    params=[pytest.param(name, marks=[] if name == "dpgan" else [pytest.mark.long]) for name in WITH_CRITICS],
)
def method(request: pytest.FixtureRequest) -> str:
    return EXPRESSIONS[request.param]


def test_a_network_models_every_kind_of_column() -> None:
    """All columns at once, of which the shared fits leave out some: dates, times, wide integers and their nulls."""
    schema = declared("independent")
    release = fit(EXPRESSIONS["dpgan"], seed=SEED, schema=schema)
    fake = release.sample(2000, seed=0)
    assert_satisfies(fake, schema)
    for name in ("balance", "income", "born", "degree"):
        assert 0 < fake.column(name).null_count < 1000, name
    for name in ("grade", "age", "balance", "income", "member", "born", "seen"):
        assert len(fake.column(name).drop_null().unique()) > 1, name
    assert fake.filter(pc.greater(pc.abs(fake.column("balance")), 2**24)).num_rows  # beyond what float32 counts by ones
    recent = release.sample(100, where="born >= '1980-01-01' AND member AND balance IS NOT NULL", seed=0)
    assert pc.min(recent.column("born")).as_py() >= date(1980, 1, 1)
    assert recent.column("balance").null_count == 0
    assert pc.all(recent.column("member")).as_py()
