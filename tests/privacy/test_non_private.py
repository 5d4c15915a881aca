"""What has no bound is charged as such: no guarantee covers it, and no row is read before it is refused."""

import math

import numpy as np
import pytest

from understudy.errors import BudgetExceeded
from understudy.privacy.accounting import Gaussian, NonPrivate, fits, spent
from understudy.privacy.ledger import Guarantee, Ledger, Look
from understudy.privacy.mechanisms import Rows, open_rows
from understudy.privacy.noise import SeededNoise
from understudy.schema import Domain

LOOK = Look("rows", "all rows as they are", NonPrivate())


class Untouchable(Rows):
    """Rows that must not be read."""

    def __init__(self) -> None:
        super().__init__(np.zeros((30, 2), np.int32), Domain(names=("a", "b"), sizes=(2, 3), num_rows=30))

    def __getattribute__(self, name: str) -> object:
        assert name not in ("_codes", "_places"), "a row was read"
        return super().__getattribute__(name)


def test_the_event_has_no_finite_price() -> None:
    assert spent([NonPrivate()], 1e-2).epsilon == math.inf
    assert not fits([NonPrivate()], 1000.0, 1e-2)
    with pytest.raises(AssertionError):  # another event cannot stand for it
        open_rows(Untouchable(), Look("rows", "", Gaussian(1e9)), Ledger(Guarantee.not_private(), noise=SeededNoise(0)))


@pytest.mark.parametrize("epsilon", [1e-3, 1.0, 1000.0])
def test_no_guarantee_covers_it(epsilon: float) -> None:
    ledger = Ledger(Guarantee(epsilon, 1e-6), noise=SeededNoise(0))
    with pytest.raises(BudgetExceeded, match=r"no budget covers it\. This query was not made"):
        open_rows(Untouchable(), LOOK, ledger)
    assert ledger.looks == ()
