"""What has no bound is charged as such: no guarantee covers it."""

import math

import pytest

from understudy.errors import BudgetExceeded
from understudy.privacy.accounting import fits, spent
from understudy.privacy.events import NonPrivate
from understudy.privacy.ledger import Guarantee, Ledger, Query
from understudy.privacy.noise import SeededNoise

QUERY = Query("rows", "all rows as they are", NonPrivate())


def test_the_event_has_no_finite_cost() -> None:
    assert spent([NonPrivate()], 1e-2).epsilon == math.inf
    assert not fits([NonPrivate()], 1000.0, 1e-2)


@pytest.mark.parametrize("epsilon", [1e-3, 1.0, 1000.0])
def test_no_guarantee_covers_it(epsilon: float) -> None:
    ledger = Ledger(Guarantee(epsilon, 1e-6), noise=SeededNoise(0))
    with pytest.raises(BudgetExceeded):
        ledger.charge(QUERY)
    assert ledger.queries == ()
