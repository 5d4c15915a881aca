"""Sequential CART: what synthetic rows of a public table look like without any guarantee.

After Nowok, Raab and Dibben, "synthpop: bespoke creation of synthetic data in R", 2016. The first column is drawn with
replacement. Each later one is copied from a real row that falls into the same leaf as the new row, in a tree of that
column over those before it. All values are those of real rows, so no noise could make a guarantee of it: for public
tables only. Trees are scikit-learn's: categories are seen one by one, where rpart splits sets of them.
"""

import dataclasses
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from jaxtyping import Float, Int
from sklearn.tree import DecisionTreeClassifier, DecisionTreeRegressor

MISSING = -1.0
"""Where a missing number stands for a tree: below all others, which are scaled to [0, 1]."""

Features = Float[np.ndarray, "rows features"]


class Leaves(NamedTuple):
    """The real rows in each leaf of one column's tree."""

    tree: DecisionTreeClassifier | DecisionTreeRegressor | None
    """None: one leaf holds all rows."""
    donors: Int[np.ndarray, " rows"]
    """Real rows, ordered by their leaf."""
    start: Int[np.ndarray, " nodes_and_end"]
    """Where in `donors` the rows of each leaf begin, by the number of its node."""

    def draw_donors(self, features: Features, generator: np.random.Generator) -> Int[np.ndarray, " rows"]:
        """A real row for each new one, uniformly among those of its leaf."""
        leaf = np.zeros(len(features), np.int64) if self.tree is None else self.tree.apply(features)
        size = self.start[leaf + 1] - self.start[leaf]
        return self.donors[self.start[leaf] + np.floor(generator.random(len(leaf)) * size).astype(np.int64)]


@dataclasses.dataclass(frozen=True)
class Cart:
    """A table, and for each column the leaves among whose rows its value is drawn."""

    table: pa.Table
    features: tuple[Features, ...]
    """What trees see of each column."""
    leaves: tuple[Leaves, ...]

    def sample(self, num_rows: int, *, seed: int) -> pa.Table:
        """New rows, column after column, each given those before it."""
        generator, columns = np.random.default_rng(seed), {}
        seen = np.zeros((num_rows, 0), dtype=np.float32)
        for name, own, leaves in zip(self.table.column_names, self.features, self.leaves, strict=True):
            donors = leaves.draw_donors(seen, generator)
            columns[name] = self.table[name].take(pa.array(donors))
            seen = np.concatenate([seen, own[donors]], axis=1)
        return pa.table(columns)


def fit_cart(table: pa.Table, *, complexity: float = 1e-8, min_bucket: int = 5, seed: int = 0) -> Cart:
    """Trees of every column over those before it, in the order of the table: numbers by regression, others by class.

    Args:
        complexity: the least gain of a split, relative to the impurity at the root as in rpart.
        min_bucket: the least number of real rows in a leaf; a node is split from three times as many on.
    """
    if not table.num_rows:
        raise ValueError("CART needs at least one row to copy from.")
    features, all_leaves = [], []
    seen = np.zeros((table.num_rows, 0), dtype=np.float32)
    for column in table.columns:
        target, own = _encode(column)
        all_leaves.append(_grow(seen, target, complexity, min_bucket, seed))
        features.append(own)
        seen = np.concatenate([seen, own], axis=1)
    return Cart(table, tuple(features), tuple(all_leaves))


def _encode(column: pa.ChunkedArray) -> tuple[np.ndarray, Features]:
    """A column as a target, floats or class numbers, and as features: a number as it is, categories one-hot."""
    if pa.types.is_integer(column.type) or pa.types.is_floating(column.type) or pa.types.is_temporal(column.type):
        whole = pc.cast(column, pa.int64()) if pa.types.is_temporal(column.type) else column
        values = pc.cast(whole, pa.float64(), safe=False).to_numpy()
        low, high = (np.nanmin(values), np.nanmax(values)) if not np.isnan(values).all() else (0.0, 0.0)
        scaled = np.where(np.isnan(values), MISSING, (values - low) / ((high - low) or 1.0))
        return scaled, scaled.astype(np.float32)[:, None]
    codes = column.combine_chunks().dictionary_encode("encode").indices.to_numpy()
    size = int(codes.max()) + 1
    return codes, (codes[:, None] if size <= 2 else np.eye(size)[codes]).astype(np.float32)


def _grow(features: Features, target: np.ndarray, complexity: float, min_bucket: int, seed: int) -> Leaves:
    if not features.shape[1] or (target == target[0]).all():
        return Leaves(None, np.arange(len(target)), np.asarray([0, len(target)]))
    is_number = target.dtype.kind == "f"
    impurity = np.var(target) if is_number else 1 - np.sum((np.bincount(target) / len(target)) ** 2)
    tree = (DecisionTreeRegressor if is_number else DecisionTreeClassifier)(
        min_samples_leaf=min_bucket,
        min_samples_split=3 * min_bucket,
        ccp_alpha=complexity * float(impurity),
        random_state=seed,
    ).fit(features, target)
    leaf = tree.apply(features)
    start = np.searchsorted(np.sort(leaf), np.arange(tree.tree_.node_count + 1))
    return Leaves(tree, np.argsort(leaf, kind="stable"), start)
