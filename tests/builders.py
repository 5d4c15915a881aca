"""What many tests build: ledgers with seeded noise, encoded tables, and runs that end early."""

from collections.abc import Callable

import pyarrow as pa

import understudy as us
from understudy.encoding import fit_codec
from understudy.privacy.discovery import plan_discovery
from understudy.privacy.noise import NoiseSource, SeededNoise
from understudy.privacy.rows import PrivateRows
from understudy.privacy.table import PrivateTable


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
