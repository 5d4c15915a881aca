"""A mixture of product distributions: a generator with a fixed set of latent vectors, as a release holds it."""

import dataclasses
import math
from collections.abc import Sequence
from typing import ClassVar

import jax
import numpy as np
from jaxtyping import Float, Int, PRNGKeyArray

from understudy.errors import ConditionError
from understudy.models.protocol import Allowed, Arrays, Sample, Structure, register

GOLDEN = (math.sqrt(5) - 1) / 2
"""The fractional parts of its multiples are evenly spread in the unit interval, from any start."""
BATCH_SIZE = 2**17


@register
@dataclasses.dataclass(frozen=True)
class MixtureOfProducts:
    """Components of equal weight; within one, columns are independent, each with probabilities of its own."""

    kind: ClassVar[str] = "mixture_of_products"
    names: tuple[str, ...]
    sizes: tuple[int, ...]
    probabilities: Float[np.ndarray, "components features"]
    """Of the codes of every column, columns side by side."""

    def sample(self, num_rows: int, *, key: PRNGKeyArray, allowed: Allowed | None = None) -> Sample:
        """New rows. With `allowed`, by Bayes' rule.

        Every row has the distribution of the mixture, or its exact distribution given the condition. Components, and
        within them the codes of each column, are spread over the rows as evenly as their weights allow, which
        independent draws would only do on average.
        """
        generator = np.random.default_rng(np.asarray(jax.random.key_data(key)))
        columns = np.split(np.asarray(self.probabilities, np.float64), np.cumsum(self.sizes)[:-1], axis=1)
        log_weights = np.zeros(len(self.probabilities))
        for at, name in enumerate(self.names):
            if allowed and name in allowed:
                columns[at] = columns[at] * np.asarray(allowed[name], dtype=bool)
                with np.errstate(divide="ignore"):
                    log_weights += np.log(columns[at].sum(axis=1))
        if not np.isfinite(log_weights.max()):
            raise ConditionError("No row can meet the condition: the model gives it probability zero. Loosen it.")
        components = _spread_components(np.exp(log_weights - log_weights.max()), num_rows, generator)
        columns = [np.cumsum(column, axis=1) for column in columns]
        batches = [
            _draw_codes(columns, components[start : start + BATCH_SIZE], generator)
            for start in range(0, max(1, num_rows), BATCH_SIZE)
        ]
        return Sample(np.concatenate(batches), None)

    def marginals(self, cliques: Sequence[Sequence[str]]) -> list[Float[np.ndarray, "..."]]:
        """The probabilities of the cells of each marginal, in its own order of columns.

        >>> mixture = MixtureOfProducts(("a", "b"), (2, 2), np.array([[1.0, 0, 1, 0], [0, 1, 0, 1]]))
        >>> mixture.marginals([("a", "b")])[0].tolist()
        [[0.5, 0.0], [0.0, 0.5]]
        """
        parts = np.split(np.asarray(self.probabilities, np.float64), np.cumsum(self.sizes)[:-1], axis=1)
        columns = dict(zip(self.names, map(np.ascontiguousarray, parts), strict=True))
        return [self._marginal([columns[name] for name in clique]) for clique in cliques]

    def _marginal(self, columns: list[Float[np.ndarray, "components _"]]) -> Float[np.ndarray, "..."]:
        """One product of matrices: the largest column, and all others joined."""
        order = sorted(range(len(columns)), key=lambda at: columns[at].shape[1])
        joined = np.ones((len(self.probabilities), 1))
        for at in order[:-1]:
            joined = (joined[:, :, None] * columns[at][:, None, :]).reshape(len(joined), -1)
        table = joined.T @ columns[order[-1]] / len(joined)
        return table.reshape([columns[at].shape[1] for at in order]).transpose(np.argsort(order))

    def to_arrays(self) -> tuple[dict[str, object], dict[str, np.ndarray]]:
        structure: dict[str, object] = {"names": list(self.names), "sizes": list(self.sizes)}
        return structure, {"probabilities": np.asarray(self.probabilities, dtype=np.float32)}

    @classmethod
    def from_arrays(cls, structure: Structure, arrays: Arrays) -> "MixtureOfProducts":
        names, sizes, weights = tuple(structure["names"]), tuple(structure["sizes"]), arrays["probabilities"]
        if weights.ndim != 2 or not len(weights) or weights.shape[1] != sum(sizes) or len(names) != len(sizes):
            raise ValueError(f"probabilities of shape {weights.shape} for columns of {sizes} codes")
        if not (np.isfinite(weights).all() and (weights >= 0).all()):
            raise ValueError("some probabilities are negative or not finite")
        return cls(names, sizes, weights)


def _spread_components(
    weights: Float[np.ndarray, " components"], num_rows: int, generator: np.random.Generator
) -> np.ndarray:
    """A component per row, in random order. Systematic sampling: counts are within one of their expectation."""
    order = generator.permutation(len(weights))  # components too light for a row are dropped at random
    ends = np.cumsum(weights[order]) / weights.sum()
    ends[-1] = math.inf
    points = (np.arange(num_rows) + generator.random()) / max(1, num_rows)
    return generator.permutation(order[np.searchsorted(ends, points, side="right")])


def _draw_codes(
    cumulative: list[Float[np.ndarray, "components _"]], components: np.ndarray, generator: np.random.Generator
) -> Int[np.ndarray, "rows columns"]:
    """A code for each row and column, by the probabilities of the row's component."""
    codes = np.empty((len(components), len(cumulative)), dtype=np.int32)
    steps = np.arange(len(components)) * GOLDEN
    for at, ends in enumerate(cumulative):
        # Rows of one component lie side by side, and each column has its own order, so columns are independent.
        order = np.lexsort((generator.random(len(components)), generator.permutation(len(ends))[components]))
        draws = np.empty(len(components))
        draws[order] = (steps + generator.random()) % 1.0
        # A draw is below the last cumulative sum, so it always meets a code of positive probability.
        draws = draws * np.nextafter(ends[components, -1], 0.0)
        codes[:, at] = (ends[components] <= draws[:, None]).sum(axis=1)
    return codes
