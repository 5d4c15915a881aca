"""Post-GAN boosting: a game between a distribution over generated rows and a set of distinguishers.

After Neunhoeffer, Wu and Dwork, "Private Post-GAN Boosting", 2021. A sample B is drawn once from the checkpoints of a
run and stays fixed; phi is a distribution over it. A distinguisher D with values in [0, 1] gains

    U(phi, D) = (mean of D over the real rows) + 1 - (mean of D over phi),

phi loses it, and 1 means that D is no better than guessing. In each round a distinguisher with a large gain is
selected, and phi shifts towards the rows that it scores as real (multiplicative weights, in log space). The average of
all phi is the boosted distribution.

Everything here is computed from generated rows, at no privacy cost. The real rows are used by the selections alone: a
selection is a function of the public means, and the private one (`privacy/mechanisms/selection.py`) holds the real
means.
"""

import dataclasses
import math
import tempfile
import warnings
from collections.abc import Callable, Sequence
from typing import Annotated, Protocol, TypeAlias, runtime_checkable

import numpy as np
from jaxtyping import Float, Int

from understudy.models.pool import draw_indices
from understudy.synthesizers.settings import OneOf, Positive

LEARNING_RATES = ("paper", "sqrt")
LearningRate: TypeAlias = Annotated[str, OneOf(*LEARNING_RATES)] | Positive
"""How much one selection changes the log weight of a row: paper, sqrt as in its authors' code, or a number."""
AVERAGES = ("all", "last_window", "sqrt_weighted")
REJECTIONS = ("distinct", "draws", "exact")
FAILURE = 0.05
"""The probability with which a bound on the duality gap may fail."""

IN_MEMORY = 2 * 2**30
"""The number of bytes up to which values stay in memory; above, in a memory-mapped file."""
BATCH_SIZE = 8192
"""Rows that critics are evaluated on in one call: one compiled shape for all sample sizes."""
SURE = 1e-14
"""Rejection sampling clips scores to this distance from 0 and 1."""

Select = Callable[[Float[np.ndarray, " distinguishers"]], int]
"""From the mean of each distinguisher over phi to the index of the one to play against it."""


# ------------------------------------------------------------------------------------------------------- distinguishers


@runtime_checkable
class Distinguishers(Protocol):
    """Functions of a row with values in [0, 1], evaluated on the rows of one sample."""

    num_samples: int
    dtype: np.dtype
    """The precision of phi that they need."""

    def __len__(self) -> int: ...

    def means(self, phi: Float[np.ndarray, " samples"]) -> Float[np.ndarray, " distinguishers"]:
        """The mean of each under phi."""

    def add(self, log_weights: Float[np.ndarray, " samples"], index: int, learning_rate: float) -> None:
        """Adds `learning_rate` times the values of one, in place."""

    def mixture(self, shares: Float[np.ndarray, " distinguishers"]) -> Float[np.ndarray, " samples"]:
        """The values of their mixture."""


class Values:
    """Distinguishers whose values are stored, one line each."""

    def __init__(self, matrix: Float[np.ndarray, "distinguishers samples"]):
        self._matrix, self.num_samples, self.dtype = matrix, matrix.shape[1], matrix.dtype

    def __len__(self) -> int:
        return len(self._matrix)

    def means(self, phi: np.ndarray) -> np.ndarray:
        return np.asarray(self._matrix @ phi.astype(self.dtype, copy=False), dtype=np.float64)

    def add(self, log_weights: np.ndarray, index: int, learning_rate: float) -> None:
        log_weights += self._matrix[index] * log_weights.dtype.type(learning_rate)

    def mixture(self, shares: np.ndarray) -> np.ndarray:
        total = np.zeros(self.num_samples)
        for index in np.flatnonzero(shares).tolist():
            total += shares[index] * self._matrix[index]
        return total


class Cells:
    """Counting queries: the cells of one marginal as indicators, then the complements of all of them.

    A cell gains if the sample has too few rows in it, its complement if it has too many.
    """

    dtype = np.dtype(np.float32)

    def __init__(self, cells: Int[np.ndarray, " samples"], num_cells: int):
        self._cells, self._size, self.num_samples = cells, num_cells, len(cells)

    def __len__(self) -> int:
        return 2 * self._size

    def means(self, phi: np.ndarray) -> np.ndarray:
        shares = np.bincount(self._cells, weights=phi, minlength=self._size)
        return np.concatenate([shares, 1.0 - shares])

    def add(self, log_weights: np.ndarray, index: int, learning_rate: float) -> None:
        cell, complement = index % self._size, index >= self._size
        log_weights[(self._cells == cell) ^ complement] += learning_rate

    def mixture(self, shares: np.ndarray) -> np.ndarray:
        inside, outside = shares[: self._size], shares[self._size :]
        return (inside - outside)[self._cells] + outside.sum()


class Constant:
    """The distinguisher that is one half everywhere. With it the value of the game is at least 1."""

    dtype = np.dtype(np.float32)

    def __init__(self, num_samples: int):
        self.num_samples = num_samples

    def __len__(self) -> int:
        return 1

    def means(self, phi: np.ndarray) -> np.ndarray:
        return np.asarray([0.5])

    def add(self, log_weights: np.ndarray, index: int, learning_rate: float) -> None:
        """Does nothing: a constant changes no odds."""

    def mixture(self, shares: np.ndarray) -> np.ndarray:
        return np.full(self.num_samples, 0.5 * float(shares[0]))


class Together:
    """Several sets of distinguishers on the same sample as one, numbered in this order."""

    def __init__(self, parts: Sequence[Distinguishers]):
        self._parts, self.num_samples = tuple(parts), parts[0].num_samples
        assert all(part.num_samples == self.num_samples for part in parts), "all must be on the same sample"
        self._ends = np.cumsum([len(part) for part in parts])
        self.dtype = np.result_type(*(part.dtype for part in parts))

    def __len__(self) -> int:
        return int(self._ends[-1])

    def means(self, phi: np.ndarray) -> np.ndarray:
        return np.concatenate([part.means(phi) for part in self._parts])

    def add(self, log_weights: np.ndarray, index: int, learning_rate: float) -> None:
        at = int(np.searchsorted(self._ends, index, side="right"))
        self._parts[at].add(log_weights, index - int(self._ends[at]) + len(self._parts[at]), learning_rate)

    def mixture(self, shares: np.ndarray) -> np.ndarray:
        pieces = np.split(shares, self._ends[:-1])
        return np.sum([part.mixture(piece) for part, piece in zip(self._parts, pieces, strict=True)], axis=0)


def evaluate_critics(
    critics: Callable[[np.ndarray], Float[np.ndarray, "rows critics"]],
    count: int,
    codes: Int[np.ndarray, "samples columns"],
    *,
    shown: Callable[[slice], np.ndarray] | None = None,
    in_memory: int = IN_MEMORY,
    progress: Callable[[float], None] | None = None,
) -> Values:
    """The values of `count` critics on every row of a sample, within [0, 1]; one half for NaN.

    `shown` maps a slice of the sample to the critics' inputs. None: its codes.
    """
    shape = (count, len(codes))
    matrix = np.empty(shape, np.float32) if 4 * math.prod(shape) <= in_memory else _on_disk(shape)
    for start in range(0, len(codes), BATCH_SIZE):
        at = slice(start, start + BATCH_SIZE)
        part = codes[at] if shown is None else shown(at)
        # Always one shape, padded with the first row.
        padded = np.concatenate([part, np.repeat(part[:1], BATCH_SIZE - len(part), axis=0)])
        values = np.nan_to_num(np.asarray(critics(padded), dtype=np.float32), nan=0.5)[: len(part)]
        matrix[:, start : start + len(part)] = np.clip(values, 0.0, 1.0).T
        if progress is not None:
            progress(min(1.0, (start + BATCH_SIZE) / len(codes)))
    return Values(matrix)


def _on_disk(shape: tuple[int, int]) -> np.ndarray:
    with tempfile.TemporaryFile() as file:  # without a name: it is gone when its last reader is
        return np.memmap(file, dtype=np.float32, mode="w+", shape=shape)


# ------------------------------------------------------------------------------------------------------------- the game


@dataclasses.dataclass(frozen=True)
class Outcome:
    """The result of a game: a distribution over the sample, a mixture of distinguishers, and the selections."""

    weights: Float[np.ndarray, " samples"]
    """The average of phi: the boosted distribution."""
    selections: Int[np.ndarray, " rounds"]
    shares: Float[np.ndarray, " distinguishers"]
    """The fraction of rounds in which each distinguisher was selected: the mixture of the equilibrium."""
    mixture: Float[np.ndarray, " samples"]
    """The value of that mixture on each row of the sample."""
    regret: float
    """The regret of phi against the best single row: the half of the duality gap in which the real means cancel. A
    function of the selections, so at no privacy cost."""


def play(
    distinguishers: Distinguishers,
    select: Select,
    *,
    rounds: int,
    learning_rate: str | float = "paper",
    average: str = "all",
    window: int = 150,
    after_update: bool = False,
    progress: Callable[[float], None] | None = None,
) -> Outcome:
    """`rounds` rounds of the game (Algorithm 1 of the paper, in log space).

    `learning_rate` is "paper", 0.5 sqrt(log M / T) throughout, "sqrt", 1 / sqrt(t) in round t, or a number. `average`
    takes phi of "all" rounds, of the "last_window", or all "sqrt_weighted" by sqrt(t). Each phi is taken
    before the update, as in the paper, or `after_update`, as in its authors' code.
    """
    rates = learning_rates(learning_rate, rounds, distinguishers.num_samples)
    importance = averaging_weights(average, rounds, window)
    log_weights = np.zeros(distinguishers.num_samples)
    total = np.zeros(distinguishers.num_samples)
    selections, payoff = np.zeros(rounds, dtype=np.int64), 0.0
    phi = _softmax(log_weights, distinguishers.dtype)
    for number in range(rounds):
        means = distinguishers.means(phi)
        selections[number] = chosen = select(means)
        payoff += float(means[chosen])
        if importance[number] and not after_update:
            total += importance[number] * phi
        distinguishers.add(log_weights, chosen, rates[number])
        phi = _softmax(log_weights, distinguishers.dtype)
        if importance[number] and after_update:
            total += importance[number] * phi
        if progress is not None:
            progress((number + 1) / rounds)
    shares = np.bincount(selections, minlength=len(distinguishers)) / rounds
    mixture = distinguishers.mixture(shares)
    return Outcome(total / total.sum(), selections, shares, mixture, float(mixture.max()) - payoff / rounds)


def learning_rates(name: str | float, rounds: int, num_samples: int) -> Float[np.ndarray, " rounds"]:
    """The learning rate of each round."""
    if name == "sqrt":
        return 1 / np.sqrt(np.arange(1, rounds + 1))
    return np.full(rounds, 0.5 * math.sqrt(math.log(num_samples) / rounds) if name == "paper" else float(name))


def averaging_weights(name: str, rounds: int, window: int) -> Float[np.ndarray, " rounds"]:
    """The weight of each round in the average; they sum to one."""
    number = np.arange(1, rounds + 1)
    weights = {"all": np.ones(rounds), "last_window": number > rounds - window, "sqrt_weighted": np.sqrt(number)}[name]
    return weights / weights.sum()


def _softmax(log_weights: np.ndarray, dtype: np.dtype) -> np.ndarray:
    weights: np.ndarray = np.exp((log_weights - log_weights.max()).astype(dtype))
    weights /= weights.sum(dtype=np.float64)
    return weights


def promised_gap(
    num_samples: int, num_distinguishers: int, rounds: int, exponent: float, learning_rate: str | float = "paper"
) -> float:
    """A bound on the duality gap that holds with probability 1 - `FAILURE`, whatever the rows and the selections are.

    A selection with odds exp(exponent * U) misses the best by more than log(N T / `FAILURE`) / exponent in some round
    with probability at most `FAILURE`; the regret is added. Gains are from 0 to 1, so `rounds` rounds of multiplicative
    weights with a constant learning rate have a regret of at most log(M) / (eta T) + eta / 8: Theorem 3 of the paper,
    with a constant of 1/8 instead of 4. For averages of all rounds before their updates; infinite for learning rates
    that change, to which it does not apply.

    >>> round(promised_gap(100_000, 101, 400, 500.0), 2)
    0.38
    """
    if learning_rate == "sqrt":
        return math.inf
    rate = float(learning_rates(learning_rate, rounds, num_samples)[0])
    regret = math.log(num_samples) / (rate * rounds) + rate / 8
    return regret + math.log(num_distinguishers * rounds / FAILURE) / exponent


def expected_miss(num_distinguishers: int, exponent: float) -> float:
    """An upper bound on the mean gap between the best gain and that of a selection with odds exp(exponent * U)."""
    return math.log(num_distinguishers) / exponent


# -------------------------------------------------------------------------------------------------------------- outputs


def draw_distinct(weights: Float[np.ndarray, " samples"], generator: np.random.Generator) -> Int[np.ndarray, " kept"]:
    """The distinct rows of one sample by weight, of the size of the pool, as in the authors' code.

    Their number is random, and they are flatter than the distribution: multiplicities are dropped.
    """
    return np.unique(draw_indices(weights, len(weights), generator))


def draw_accepted(
    weights: Float[np.ndarray, " samples"], scores: Float[np.ndarray, " samples"], generator: np.random.Generator
) -> Int[np.ndarray, " kept"]:
    """Discriminator rejection sampling of independent draws by weight, as many as the pool has rows.

    The paper's text: first draw from the boosted distribution, then reject. A row may be kept several times.
    """
    draws = draw_indices(weights, len(weights), generator)
    return draws[rejection_sample(scores[draws], generator)]


def reject_exactly(
    weights: Float[np.ndarray, " samples"], scores: Float[np.ndarray, " samples"]
) -> Float[np.ndarray, " samples"]:
    """The distribution of rows that are drawn by weight and accepted with probability proportional to D / (1 - D).

    On a finite pool it needs no sampling: it is the product of the two, normalised. Sampled acceptance (`acceptance`)
    is normalised differently and stays below one.

    >>> reject_exactly(np.asarray([0.5, 0.5]), np.asarray([0.5, 0.75])).round(2).tolist()
    [0.25, 0.75]
    """
    with np.errstate(divide="ignore"):
        logs = np.log(np.asarray(weights, dtype=np.float64)) + _log_odds(scores)
    product = np.exp(logs - logs.max())
    return product / product.sum()


def _log_odds(scores: Float[np.ndarray, " proposals"]) -> Float[np.ndarray, " proposals"]:
    sure = np.clip(np.asarray(scores, dtype=np.float64), SURE, 1 - SURE)
    return np.log(sure) - np.log1p(-sure)


def acceptance(scores: Float[np.ndarray, " proposals"]) -> Float[np.ndarray, " proposals"]:
    """The probability that discriminator rejection sampling accepts each proposal.

    Proportional to D / (1 - D) in principle; normalised as in the authors' code, by the largest odds and then by the
    95th percentile, so that one proposal in twenty is accepted with probability above one half.
    """
    below = _log_odds(scores)
    below -= below.max()
    logits = below - np.log1p(-np.exp(below - 1e-6))
    return 1 / (1 + np.exp(np.clip(np.percentile(logits, 95) - logits, -700, 700)))


def rejection_sample(
    scores: Float[np.ndarray, " proposals"], generator: np.random.Generator
) -> Int[np.ndarray, " kept"]:
    """The proposals that discriminator rejection sampling accepts. Reads no private row."""
    kept = np.flatnonzero(generator.random(len(scores)) < acceptance(scores))
    if not len(kept):
        warnings.warn("Rejection sampling accepted no row; the one with the highest score is used alone.", stacklevel=2)
        return np.asarray([np.argmax(scores)])
    return kept
