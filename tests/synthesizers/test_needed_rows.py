"""What a method says of the rows that it needs: without it, rows on a cluster would be refused after a charge."""

from collections.abc import Sequence

import jax
import numpy as np
import pyarrow as pa
import pytest

import understudy as us
from tests.builders import RowsRead, make_guarantee, raises
from understudy.errors import ConfigError
from understudy.privacy.accounting.ledger import Ledger
from understudy.privacy.noise.source import SeededNoise
from understudy.privacy.rows.batches import LocalBatches
from understudy.privacy.rows.codes import ArrayCodes
from understudy.privacy.rows.rows import PrivateRows
from understudy.privacy.rows.table import PrivateTable
from understudy.run.plan import require_rows
from understudy.schema import Domain
from understudy.synthesizers import SYNTHESIZERS, read_method
from understudy.synthesizers.protocol import needs_rows
from understudy.synthesizers.run import Run

DOMAIN = Domain(names=("a", "b", "c"), sizes=(2, 3, 4), num_rows=300, target="a")
GEM = "gem(steps=10, components=20, width=8, depth=1, latent=4)"
QUICK = {
    "gem": GEM,
    "aim": "aim(max_rounds=4, iterations=20)",
    "boosted": "boosted(dpgan)",
    "drs": "drs(dpgan)",
    "selected": f"selected({GEM}, checkpoints=2)",
    "quail": "quail(mst, target=a)",
}


class CountedCodes:
    """Codes that can be counted, and hand out no row."""

    def __init__(self, codes: ArrayCodes):
        self._here = codes

    def count(self, workload: Sequence[tuple[int, ...]], sizes: Sequence[int]) -> np.ndarray:
        return self._here.count(workload, sizes)

    def only(self, at: Sequence[int]) -> "CountedCodes":
        return CountedCodes(self._here.only(at))

    def part(self, kept: np.ndarray) -> "CountedCodes":
        raise RowsRead

    @property
    def array(self) -> np.ndarray:
        raise RowsRead


@pytest.mark.parametrize("name", SYNTHESIZERS)
def test_a_method_needs_rows_if_and_only_if_it_says_so(name: str) -> None:
    method = read_method(QUICK.get(name, name))
    codes = np.random.default_rng(0).integers(0, DOMAIN.sizes, (300, 3)).astype(np.uint8)
    rows = PrivateRows(CountedCodes(ArrayCodes(codes)), DOMAIN)
    ledger = Ledger(make_guarantee(3.0), noise=SeededNoise(0))
    run = Run(rows, method.plan(DOMAIN, ledger.remaining), ledger, key=jax.random.key(0))
    if needs_rows(method):
        with pytest.raises(RowsRead):
            method.fit(run)
    else:
        method.fit(run)


class RemoteBatches(LocalBatches[pa.Table]):
    """Batches that claim to be on a cluster."""

    is_remote = True


def test_a_method_that_needs_rows_is_refused_where_they_are_remote() -> None:
    table = PrivateTable(RemoteBatches([pa.table({"x": [1]})]))
    assert table.is_remote
    require_rows(us.MST(), is_remote=table.is_remote)
    require_rows(us.DPGAN(), is_remote=PrivateTable(pa.table({"x": [1]})).is_remote)
    for method in (us.DPGAN(), read_method("boosted(dpgan)"), read_method(QUICK["selected"])):
        with raises(ConfigError, setting="method"):
            require_rows(method, is_remote=table.is_remote)
