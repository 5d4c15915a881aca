"""Small tables, ledgers and laws of noise that the tests of counts, selections and filters share."""

import math
from collections.abc import Sequence

import numpy as np
from hypothesis import strategies as st
from scipy import stats

from tests.builders import RowsRead, loose_guarantee
from understudy.privacy.accounting.ledger import Ledger
from understudy.privacy.mechanisms.selection import Candidates
from understudy.privacy.noise.source import NoiseSource, SeededNoise
from understudy.privacy.rows.rows import Clique, PrivateRows
from understudy.schema import Domain

DOMAIN = Domain(names=("a", "b", "c"), sizes=(2, 3, 4), num_rows=20)
CLIQUES: list[Clique] = [("a",), ("c", "a"), ("a", "b", "c"), ()]
LEVEL = 1e-7  # of the chi-square tests on draws that differ in every run: a false alarm in ten million

codes = st.tuples(*(st.integers(0, size - 1) for size in DOMAIN.sizes))


def table(rows: Sequence[tuple[int, ...]], *, k: int = 1, domain: Domain = DOMAIN) -> PrivateRows:
    return PrivateRows(np.array(rows, dtype=np.int32).reshape(-1, len(domain.names)), domain, max_rows_per_unit=k)


def ledger(epsilon: float = 100.0, *, noise: NoiseSource | None = None, k: int = 1) -> Ledger:
    return Ledger(loose_guarantee(epsilon), noise=noise or SeededNoise(0), max_rows_per_unit=k)


class Untouchable(PrivateRows):
    """Rows that tell when they are counted."""

    def _exact_counts(self, query: object) -> np.ndarray:
        raise RowsRead

    def _count_cells(self, query: object) -> np.ndarray:
        raise RowsRead


def untouchable(*, k: int = 1) -> PrivateRows:
    return Untouchable(np.zeros((3, 3), dtype=np.int32), DOMAIN, max_rows_per_unit=k)


class ExactLaw(SeededNoise):
    """Keeps the law of each selection: the log-probabilities of softmax(scores / scale)."""

    def noisy_argmax(self, scores: np.ndarray, scale: float) -> int:
        logits = np.asarray(scores) / scale
        self.log_law = logits - np.logaddexp.reduce(logits)
        return super().noisy_argmax(scores, scale)


class RecordingNoise(SeededNoise):
    """Noise that adds up the zCDP cost of everything drawn, for `rows_per_unit` and weights of one.

    A row moves the scores of a choice within a range of 2, up or down by one; `one_sided`, within a range of 1: picks
    of critics move all one way, distances of marginals by half a row (tests/synthesizers/boosted/test_external.py).
    """

    def __init__(self, seed: int, rows_per_unit: int, *, one_sided: bool = False) -> None:
        super().__init__(seed)
        self._rows_per_unit, self._range = rows_per_unit, rows_per_unit * (1 if one_sided else 2)
        self.rho = 0.0

    def discrete_gaussian(self, stddev: float, shape: tuple[int, ...]) -> np.ndarray:
        self.rho += self._rows_per_unit**2 / (2 * stddev**2)
        return super().discrete_gaussian(stddev, shape)

    def noisy_argmax(self, scores: np.ndarray, scale: float) -> int:
        self.rho += (self._range / scale) ** 2 / 8
        return super().noisy_argmax(scores, scale)


class Closed(PrivateRows):
    """Rows that tell when they are read at all."""

    def __getattribute__(self, name: str) -> object:
        if name in ("_codes", "_positions"):
            raise RowsRead
        return super().__getattribute__(name)


def candidates(shift: float = 0.0, weights: tuple[float, ...] = (1.0, 2.0, 0.5)) -> Candidates:
    cliques: list[Clique] = [("a",), ("b",), ("a", "c")]
    expected = [np.full(DOMAIN.shape(clique), 1.3 + shift * i) for i, clique in enumerate(cliques)]
    return Candidates(cliques, expected, np.array(weights), np.array([0.5, 3.0, 1.0]))


def chi_square(draws: np.ndarray, stddev: float) -> float:
    support = np.arange(-math.ceil(12 * stddev), math.ceil(12 * stddev) + 1)
    mass = np.exp(-(support**2) / (2 * stddev**2))
    mass /= mass.sum()
    kept = np.flatnonzero(mass * draws.size >= 50)
    inside = [np.count_nonzero(draws == support[i]) for i in kept]
    observed = np.r_[inside, draws.size - sum(inside)]
    expected = np.r_[mass[kept], 1 - mass[kept].sum()] * draws.size
    return float(stats.chisquare(observed, expected).pvalue)
