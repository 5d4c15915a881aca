"""A mixture of products: what a generator with a fixed set of latent vectors makes of rows, as a release holds it."""

import dataclasses
import math
from collections.abc import Mapping

import jax
import numpy as np
from jaxtyping import Float, Int, PRNGKeyArray

from understudy.errors import ConditionError

GOLDEN = (math.sqrt(5) - 1) / 2
"""Multiples of it, less their whole parts, fill the unit interval evenly, wherever they begin and end."""
AT_ONCE = 2**17
"""Rows drawn in one pass."""


@dataclasses.dataclass(frozen=True)
class Products:
    """Components in equal parts; within one, columns are independent, each with probabilities of its own."""

    names: tuple[str, ...]
    sizes: tuple[int, ...]
    probabilities: Float[np.ndarray, "components features"]
    """Of the codes of every column, columns side by side."""

    def sample(
        self, num_rows: int, *, key: PRNGKeyArray, allowed: Mapping[str, np.ndarray] | None = None
    ) -> Int[np.ndarray, "rows columns"]:
        """Codes of new rows. With `allowed`, rows that meet it, in the law of the rows that do."""
        return self.draw(num_rows, key=key, allowed=allowed)[0]

    def draw(
        self, num_rows: int, *, key: PRNGKeyArray, allowed: Mapping[str, np.ndarray] | None = None
    ) -> tuple[Int[np.ndarray, "rows columns"], None]:
        """Codes of new rows as `sample` has them; numbers follow from their codes.

        Every row has the law of the mixture, or its exact law given the condition. Components, and within them the
        codes of each column, are spread over the rows as evenly as their weights allow, which independent draws would
        only do on average.
        """
        generator = np.random.default_rng(np.asarray(jax.random.key_data(key)))
        columns = np.split(np.asarray(self.probabilities, np.float64), np.cumsum(self.sizes)[:-1], axis=1)
        logs = np.zeros(len(self.probabilities))
        for at, name in enumerate(self.names):
            if allowed and name in allowed:
                columns[at] = columns[at] * np.asarray(allowed[name], dtype=bool)
                with np.errstate(divide="ignore"):
                    logs += np.log(columns[at].sum(axis=1))
        if not np.isfinite(logs.max()):
            raise ConditionError("No row can meet the condition: the model gives it no probability. Loosen it.")
        components = _spread(np.exp(logs - logs.max()), num_rows, generator)
        columns = [np.cumsum(column, axis=1) for column in columns]
        parts = [
            _codes(columns, components[at : at + AT_ONCE], generator) for at in range(0, max(1, num_rows), AT_ONCE)
        ]
        return np.concatenate(parts), None

    def to_arrays(self) -> tuple[dict[str, object], dict[str, np.ndarray]]:
        structure: dict[str, object] = {"names": list(self.names), "sizes": list(self.sizes)}
        return structure, {"probabilities": np.asarray(self.probabilities, dtype=np.float32)}

    @classmethod
    def from_arrays(cls, structure: Mapping, arrays: Mapping[str, np.ndarray]) -> "Products":
        names, sizes, found = tuple(structure["names"]), tuple(structure["sizes"]), arrays["probabilities"]
        if found.ndim != 2 or not len(found) or found.shape[1] != sum(sizes) or len(names) != len(sizes):
            raise ValueError(f"probabilities of shape {found.shape} for columns of {sizes} codes")
        if not (np.isfinite(found).all() and (found >= 0).all()):
            raise ValueError("some probabilities are none")
        return cls(names, sizes, found)


def _spread(weights: Float[np.ndarray, " components"], num_rows: int, generator: np.random.Generator) -> np.ndarray:
    """Components for so many rows, in random order: systematic draws, so that shares are met to within one row."""
    order = generator.permutation(len(weights))  # which of the small ones fall out is left to chance
    ends = np.cumsum(weights[order]) / weights.sum()
    ends[-1] = math.inf
    points = (np.arange(num_rows) + generator.random()) / max(1, num_rows)
    return generator.permutation(order[np.searchsorted(ends, points, side="right")])


def _codes(
    cumulated: list[Float[np.ndarray, "components codes"]], components: np.ndarray, generator: np.random.Generator
) -> Int[np.ndarray, "rows columns"]:
    """A code for each row and column, by the probabilities of the row's component."""
    codes = np.empty((len(components), len(cumulated)), dtype=np.int32)
    steps = np.arange(len(components)) * GOLDEN
    for at, ends in enumerate(cumulated):
        # Rows of one component lie side by side, and all orders are new for every column: pairs are left to chance.
        order = np.lexsort((generator.random(len(components)), generator.permutation(len(ends))[components]))
        draws = np.empty(len(components))
        draws[order] = (steps + generator.random()) % 1.0
        # The last end is the sum itself, and a draw lies below it: some code with a probability is always met.
        draws = draws * np.nextafter(ends[components, -1], 0.0)
        codes[:, at] = (ends[components] <= draws[:, None]).sum(axis=1)
    return codes
