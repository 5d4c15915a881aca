"""A Bayesian network over encoded rows: each column given its parents. Sampled column by column, in order."""

import dataclasses
from typing import ClassVar

import jax
import numpy as np
from jaxtyping import Bool, Float, Int, PRNGKeyArray

from understudy.models.protocol import Allowed, Arrays, Sample, Structure, register
from understudy.models.rejection import sample_allowed
from understudy.models.zeros import masks_in_order, pack_zeros, possible_codes, unpack_zeros
from understudy.schema import StructuralZeros

CHUNK_ROWS = 2**17


@register
@dataclasses.dataclass(frozen=True, eq=False)
class BayesianNetwork:
    """A product of conditional distributions, one for each column.

    >>> coin = np.asarray([0.5, 0.5])
    >>> same = np.eye(2)  # the second column equals the first
    >>> network = BayesianNetwork(("a", "b"), (2, 2), (0, 1), ((), (0,)), (coin, same))
    >>> codes = network.sample(100, key=jax.random.key(0)).codes
    >>> bool((codes[:, 0] == codes[:, 1]).all())
    True
    """

    kind: ClassVar[str] = "bayesian_network"
    names: tuple[str, ...]
    sizes: tuple[int, ...]
    order: tuple[int, ...]
    """The columns such that parents come before their children."""
    parents: tuple[tuple[int, ...], ...]
    """The parents of each column, by number of column."""
    conditionals: tuple[Float[np.ndarray, "..."], ...]
    """The probabilities of each column's codes: one axis for each parent, then one for the column."""
    zeros: tuple[StructuralZeros, ...] = ()
    """Combinations of codes that are never drawn: the probabilities of a column apply to its possible codes."""

    def sample(self, num_rows: int, *, key: PRNGKeyArray, allowed: Allowed | None = None) -> Sample:
        """New rows. A condition is met by rejection."""
        return sample_allowed(self._sample, self.names, allowed, num_rows, key=key)

    def _sample(self, num_rows: int, key: PRNGKeyArray) -> Sample:
        generator = np.random.default_rng(np.asarray(jax.random.key_data(key)))
        codes = np.zeros((num_rows, len(self.names)), dtype=np.int32)
        masks = masks_in_order(self.zeros, {self.names[column]: place for place, column in enumerate(self.order)})
        for place, column in enumerate(self.order):
            table = self.conditionals[column].reshape(-1, self.sizes[column])
            context = np.zeros(num_rows, dtype=np.int64)
            for parent in self.parents[column]:
                context = context * self.sizes[parent] + codes[:, parent]
            masks_here = [mask for mask in masks if mask.place == place]
            possible = possible_codes(masks_here, codes[:, self.order]) if masks_here else None
            codes[:, column] = _draw(table, context, possible, generator)
        return Sample(codes, None)

    def to_arrays(self) -> tuple[dict[str, object], dict[str, np.ndarray]]:
        structure: dict[str, object] = {
            "names": list(self.names),
            "sizes": list(self.sizes),
            "order": list(self.order),
            "parents": [list(each) for each in self.parents],
        }
        columns, possible = pack_zeros(self.zeros)
        arrays = {f"conditional_{i}": table for i, table in enumerate(self.conditionals)}
        return structure | columns, arrays | possible

    @classmethod
    def from_arrays(cls, structure: Structure, arrays: Arrays) -> "BayesianNetwork":
        names, sizes, order = (tuple(structure[key]) for key in ("names", "sizes", "order"))
        parents = tuple(tuple(each) for each in structure["parents"])
        tables = tuple(arrays[f"conditional_{i}"] for i in range(len(names)))
        if not len(names) == len(sizes) == len(parents) or sorted(order) != list(range(len(names))):
            raise ValueError(
                f"{len(names)} columns, {len(sizes)} sizes, {len(parents)} lists of parents, order {order}"
            )
        for column, (own, table) in enumerate(zip(parents, tables, strict=True)):
            if any(order.index(parent) >= order.index(column) for parent in own):
                raise ValueError(f"a parent of column {column} comes after it")
            if table.shape != (*(sizes[parent] for parent in own), sizes[column]):
                raise ValueError(f"probabilities of shape {table.shape} for column {column}")
            if not (np.isfinite(table).all() and (table >= 0).all() and (table.sum(axis=-1) > 0).all()):
                raise ValueError("some probabilities are negative, not finite or all zero")
        return cls(names, sizes, order, parents, tables, unpack_zeros(structure, arrays))


def _draw(
    table: Float[np.ndarray, "contexts codes"],
    at: Int[np.ndarray, " rows"],
    possible: Bool[np.ndarray, "rows codes"] | None,
    generator: np.random.Generator,
) -> Int[np.ndarray, " rows"]:
    """A code for each row, by the probabilities of the context that the row has, among its possible ones if given."""
    cumulative = np.cumsum(table, axis=1)
    codes = np.empty(len(at), dtype=np.int32)
    for start in range(0, len(at), CHUNK_ROWS):
        chunk = slice(start, start + CHUNK_ROWS)
        ends = cumulative[at[chunk]]
        if possible is not None:
            weights = np.where(possible[chunk], table[at[chunk]], 0.0)
            # A context may have no count in any possible code: these are then equally likely.
            ends = np.cumsum(np.where(weights.sum(axis=1, keepdims=True) > 0, weights, possible[chunk]), axis=1)
        # Below the last end, so that some code with a positive probability is always found.
        draws = generator.random(len(ends)) * np.nextafter(ends[:, -1], 0.0)
        codes[chunk] = (ends <= draws[:, None]).sum(axis=1)
    return codes
