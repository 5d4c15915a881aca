"""A stand-in for a training whose checkpoints and critics are known, and rows to judge it by."""

import dataclasses
from collections.abc import Callable

import jax
import numpy as np
from builders import make_ledger
from jaxtyping import PRNGKeyArray

from understudy.adversarial.trajectory import Trajectory
from understudy.features import PublicRows
from understudy.privacy.accounting import DiscreteGaussian
from understudy.privacy.ledger import Budget, Ledger, Look, Plan
from understudy.privacy.mechanisms import Rows, noisy_counts
from understudy.schema import Domain, Scale

DOMAIN = Domain(names=("a", "b"), sizes=(2, 3), num_rows=5000, target="a")
REAL = np.asarray([[0.4, 0.15, 0.05], [0.05, 0.05, 0.3]])
"""The law of the rows of these tests: the second column tells the first."""


@dataclasses.dataclass(frozen=True)
class Law:
    """Rows drawn from a table of probabilities."""

    shares: np.ndarray

    def draw(self, num_rows: int, *, key: PRNGKeyArray) -> tuple[np.ndarray, None]:
        return self.sample(num_rows, key=key), None

    def sample(self, num_rows: int, *, key: PRNGKeyArray) -> np.ndarray:
        generator = np.random.default_rng(np.asarray(jax.random.key_data(key)))
        cells = generator.choice(self.shares.size, size=num_rows, p=self.shares.ravel())
        return np.stack(np.unravel_index(cells, self.shares.shape), axis=1).astype(np.int32)


@dataclasses.dataclass(frozen=True)
class Walk:
    """A stand-in for a training: checkpoint t mixes the real law, t parts of `length`, with its contrary.

    Each of its critics takes the rows of one cell for real.
    """

    length: int = 10

    def plan(self, domain: Domain, budget: Budget) -> Plan:
        sensitivity = budget.max_rows_per_unit
        stddev = budget.calibrate(lambda noise: [DiscreteGaussian(noise, 1, sensitivity)])
        return Plan((Look("singles", "a histogram", DiscreteGaussian(stddev, 1, sensitivity)),), ("Walked.",))

    def num_checkpoints(self, every: int) -> int:
        return self.length // every

    def trajectory(
        self,
        rows: Rows,
        plan: Plan,
        ledger: Ledger,
        *,
        key: PRNGKeyArray,
        checkpoints: int,
        every: int,
        public: PublicRows | None = None,
        progress: Callable[[float, str], None] | None = None,
    ) -> Trajectory:
        noisy_counts(rows, [("a",)], plan["singles"], ledger)
        kept = [t for t in range(1, self.length + 1) if t % every == 0][-checkpoints:]
        laws = [Law(t / self.length * REAL + (1 - t / self.length) * REAL[::-1]) for t in kept]
        cells = np.arange(checkpoints) % 6
        if progress is not None:
            progress(1.0, "walked")
        return Trajectory(
            tuple(laws), lambda codes: ((3 * codes[:, :1] + codes[:, 1:2]) == cells).astype(float) * 0.8 + 0.1
        )


HALVES = Scale(run_edges=(0.0, 0.5, 1.0), run_masses=(0.5, 0.5), first_run=(0, 1, 2))
"""The first column as a number of two bins."""


def real_rows(num_rows: int = 5000, k: int = 1, domain: Domain = DOMAIN, *, numeric: bool = False) -> Rows:
    codes = Law(REAL).sample(num_rows, key=jax.random.key(9))
    scales = (HALVES, None) if numeric else None
    units = np.arange(num_rows) // k
    return Rows(codes, domain, max_rows_per_unit=k, units=units, scales=scales, places=lambda: real_places(codes))


def real_places(codes: np.ndarray) -> np.ndarray:
    along = np.random.default_rng(8).random(len(codes))
    return np.stack([(codes[:, 0] + along) / 2, np.full(len(codes), np.nan)], axis=1)


def book(epsilon: float = 2.0, seed: int = 0, k: int = 1) -> Ledger:
    return make_ledger(epsilon, seed=seed, rows_per_unit=k)
