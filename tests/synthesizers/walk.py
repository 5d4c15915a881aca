"""A stand-in for a training whose checkpoints and critics are known, and rows to judge it by."""

import dataclasses
from typing import ClassVar

import jax
import numpy as np
from jaxtyping import PRNGKeyArray

from tests.builders import make_ledger
from understudy.models import Model
from understudy.models.protocol import Allowed, Arrays, Sample, Structure
from understudy.notes import Note
from understudy.privacy.accounting.events import DiscreteGaussian
from understudy.privacy.accounting.ledger import Budget, Ledger, Plan, Query
from understudy.privacy.mechanisms.counts import noisy_counts
from understudy.privacy.rows.rows import PrivateRows
from understudy.schema import Domain, NumericDomain
from understudy.synthesizers import Capabilities, PublicUse
from understudy.synthesizers.run import Run
from understudy.training.trajectory import Trajectory

DOMAIN = Domain(names=("a", "b"), sizes=(2, 3), num_rows=5000, target="a")
REAL = np.asarray([[0.4, 0.15, 0.05], [0.05, 0.05, 0.3]])
"""The law of the rows of these tests: the second column tells the first."""


@dataclasses.dataclass(frozen=True)
class Law:
    """Rows drawn from a table of probabilities."""

    kind: ClassVar[str] = "law"
    shares: np.ndarray
    names: tuple[str, ...] = DOMAIN.names

    def sample(self, num_rows: int, *, key: PRNGKeyArray, allowed: Allowed | None = None) -> Sample:
        generator = np.random.default_rng(np.asarray(jax.random.key_data(key)))
        cells = generator.choice(self.shares.size, size=num_rows, p=self.shares.ravel())
        return Sample(np.stack(np.unravel_index(cells, self.shares.shape), axis=1).astype(np.int32), None)

    def to_arrays(self) -> tuple[dict[str, object], dict[str, np.ndarray]]:
        return {}, {"shares": self.shares}

    @classmethod
    def from_arrays(cls, structure: Structure, arrays: Arrays) -> "Law":
        return cls(arrays["shares"])


@dataclasses.dataclass(frozen=True)
class Walk:
    """A stand-in for a training: checkpoint t mixes the real law, t parts of `length`, with its contrary.

    Each of its critics takes the rows of one cell for real.
    """

    capabilities: ClassVar[Capabilities] = Capabilities(trajectory=True, critics=True, public=PublicUse.ACCEPTED)

    length: int = 10

    def plan(self, domain: Domain, budget: Budget) -> Plan:
        sensitivity = budget.max_rows_per_unit
        stddev = budget.calibrate(lambda noise: [DiscreteGaussian(noise, 1, sensitivity)])
        return Plan((Query("one_way", "a histogram", DiscreteGaussian(stddev, 1, sensitivity)),), (Note("Walked."),))

    def fit(self, run: Run) -> Model:
        raise AssertionError("whoever asks for checkpoints must call trajectory: a second fit would be charged again")

    def num_checkpoints(self, every: int) -> int:
        return self.length // every

    def trajectory(self, run: Run, *, checkpoints: int, every: int) -> Trajectory:
        noisy_counts(run.rows, [("a",)], run.plan["one_way"], run.ledger)
        kept = [t for t in range(1, self.length + 1) if t % every == 0][-checkpoints:]
        laws = [Law(t / self.length * REAL + (1 - t / self.length) * REAL[::-1]) for t in kept]
        cells = np.arange(checkpoints) % 6
        run.report(1.0, "walked")
        return Trajectory(
            tuple(laws), lambda codes: ((3 * codes[:, :1] + codes[:, 1:2]) == cells).astype(float) * 0.8 + 0.1
        )


HALVES = NumericDomain(fine_edges=(0.0, 0.5, 1.0), fine_masses=(0.5, 0.5), first_fine_bin=(0, 1, 2))
"""The first column as a number of two bins."""


def real_rows(num_rows: int = 5000, k: int = 1, domain: Domain = DOMAIN, *, numeric: bool = False) -> PrivateRows:
    codes = Law(REAL).sample(num_rows, key=jax.random.key(9)).codes
    scales = (HALVES, None) if numeric else None
    units = np.arange(num_rows) // k
    return PrivateRows(
        codes, domain, max_rows_per_unit=k, units=units, scales=scales, positions=lambda: real_places(codes)
    )


def real_places(codes: np.ndarray) -> np.ndarray:
    along = np.random.default_rng(8).random(len(codes))
    return np.stack([(codes[:, 0] + along) / 2, np.full(len(codes), np.nan)], axis=1)


def book(epsilon: float = 2.0, seed: int = 0, k: int = 1) -> Ledger:
    return make_ledger(epsilon, seed=seed, rows_per_unit=k)
