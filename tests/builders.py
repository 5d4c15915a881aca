"""What many tests build: ledgers with seeded noise, encoded tables, runs that end early; errors by their fields."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

import pyarrow as pa
import pytest

import understudy as us
from understudy.encoding import fit_codec
from understudy.privacy.mechanisms.discovery import plan_discovery
from understudy.privacy.noise.source import NoiseSource, SeededNoise
from understudy.privacy.rows.rows import PrivateRows
from understudy.privacy.rows.table import PrivateTable

E = TypeVar("E", bound=BaseException)


@contextmanager
def raises(error: type[E], **fields: object) -> Iterator[pytest.ExceptionInfo[E]]:
    """`pytest.raises`, and what the fields of the error must be: tests tell causes apart by them, not by its words."""
    with pytest.raises(error) as caught:
        yield caught
    found = {name: getattr(caught.value, name) for name in fields}
    assert found == fields, f"{found}, expected {fields}: {caught.value}"


@contextmanager
def over_budget(query: str) -> Iterator[pytest.ExceptionInfo[us.BudgetExceeded]]:
    """This query is refused for what it would cost, not since the plan has another one (then `needed` is None)."""
    with raises(us.BudgetExceeded, query=query) as caught:
        yield caught
    needed, left = caught.value.needed, caught.value.left
    assert needed is not None, caught.value
    assert left is not None, caught.value
    assert needed > left


class RowsRead(AssertionError):
    """Rows were read: what a test puts in their place raises it."""


def make_guarantee(epsilon: float = 1.0) -> us.Guarantee:
    """Of this epsilon at a delta of 1e-6; of an infinite one, none."""
    return us.Guarantee(epsilon, 1e-6) if epsilon < float("inf") else us.Guarantee.not_private()


def loose_guarantee(epsilon: float, delta: float = 1e-6) -> us.Guarantee:
    """Beyond the largest epsilon that is accepted: for mechanisms with hardly any noise."""
    guarantee = us.Guarantee(1.0, delta)
    object.__setattr__(guarantee, "epsilon", epsilon)
    return guarantee


def make_ledger(epsilon: float = 1.0, *, seed: int = 0, rows_per_unit: int = 1) -> us.Ledger:
    return us.Ledger(make_guarantee(epsilon), noise=SeededNoise(seed), max_rows_per_unit=rows_per_unit)


def encode(
    table: pa.Table,
    schema: us.Schema,
    binning: us.Binning | None = None,
    *,
    guarantee: us.Guarantee | None = None,
    noise: NoiseSource | None = None,
) -> tuple[us.Codec, PrivateRows, us.Ledger]:
    """A codec, the encoded rows and the ledger that was charged; without noise unless a guarantee is given.

    Columns are taken as they are: `conform` gives a table the types of the schema first.
    """
    binning, guarantee = binning or us.Binning(), guarantee or us.Guarantee.not_private()
    ledger = us.Ledger(guarantee, noise=noise or SeededNoise(0), max_rows_per_unit=schema.max_rows_per_unit)
    plan = plan_discovery(schema, ledger.remaining, binning)
    codec, rows = fit_codec(PrivateTable(table), schema, plan, ledger, binning)
    return codec, rows, ledger


class Killed(BaseException):
    """Stands for a kill where another process would take too long: nothing catches it."""


def kill_at(fraction: float) -> Callable[[float, str], None]:
    """A callback of progress that ends the run there."""

    def progress(done: float, now: str) -> None:
        if done >= fraction:
            raise Killed

    return progress
