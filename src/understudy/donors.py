"""Rows put together from values of real ones: the model of a baseline that is never private.

After Nowok, Raab and Dibben, "synthpop: bespoke creation of synthetic data in R", 2016. A column's value is copied from
a real row, drawn among those that fall into the same leaf of a tree as the new row. The model holds all real rows: it
must be kept like the original table.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import numpy as np
from jaxtyping import Float, Int, PRNGKeyArray
from sklearn.tree import DecisionTreeClassifier, DecisionTreeRegressor

from understudy.errors import ConditionError

AT_ONCE = 8192
"""Rows drawn at once where a condition must be met."""
MOST_DRAWS = 2000
"""A condition may cost so many draws for each row that is asked for."""
MISSING = -1.0
"""Where a missing number stands for a tree: before all others, which lie from 0 to 1."""

Drawn = tuple[Int[np.ndarray, "rows columns"], Float[np.ndarray, "rows columns"]]


@dataclasses.dataclass(frozen=True)
class Tree:
    """One column's tree over the columns before it, and the rows in each of its leaves. A single leaf holds all."""

    feature: Int[np.ndarray, " nodes"]
    """What is compared at a node; below 0: it is a leaf."""
    threshold: Float[np.ndarray, " nodes"]
    left: Int[np.ndarray, " nodes"]
    right: Int[np.ndarray, " nodes"]
    start: Int[np.ndarray, " nodes_and_end"]
    """Where in `donors` the rows of each node's leaf begin."""
    donors: Int[np.ndarray, " rows"]

    def leaves(self, features: Float[np.ndarray, "rows features"]) -> Int[np.ndarray, " rows"]:
        node = np.zeros(len(features), dtype=np.int64)
        while (inner := np.flatnonzero(self.feature[node] >= 0)).size:
            at = node[inner]
            goes_left = features[inner, self.feature[at]] <= self.threshold[at]
            node[inner] = np.where(goes_left, self.left[at], self.right[at])
        return node

    def drawn(self, features: Float[np.ndarray, "rows features"], generator: np.random.Generator) -> np.ndarray:
        """A donor for each row, evenly among those of its leaf."""
        leaf = self.leaves(features)
        size = self.start[leaf + 1] - self.start[leaf]
        return self.donors[self.start[leaf] + np.floor(generator.random(len(leaf)) * size).astype(np.int64)]


@dataclasses.dataclass(frozen=True)
class DonorTrees:
    """Real rows, and a tree for each column that says among which of them its value is drawn. Never private."""

    names: tuple[str, ...]
    sizes: tuple[int, ...]
    codes: Int[np.ndarray, "donors columns"]
    places: Float[np.ndarray, "donors columns"]
    """Where numbers lie between their bounds; NaN for nulls, and for what is no number."""
    numeric: tuple[bool, ...]
    trees: tuple[Tree, ...]

    def sample(
        self, num_rows: int, *, key: PRNGKeyArray, allowed: Mapping[str, np.ndarray] | None = None
    ) -> Int[np.ndarray, "rows columns"]:
        """Codes of new rows. With `allowed`, rows that meet it, in the law of the rows that do."""
        return self.draw(num_rows, key=key, allowed=allowed)[0]

    def draw(self, num_rows: int, *, key: PRNGKeyArray, allowed: Mapping[str, np.ndarray] | None = None) -> Drawn:
        """Codes of new rows as `sample` has them, and the places of their numbers."""
        generator = np.random.default_rng(np.asarray(jax.random.key_data(key)))
        if not allowed:
            return self._drawn(num_rows, generator)
        kept: list[Drawn] = []
        found = tried = 0
        while found < num_rows:
            codes, places = self._drawn(max(AT_ONCE, num_rows), generator)
            met = np.ones(len(codes), dtype=bool)
            for name, mask in allowed.items():
                met &= np.asarray(mask, bool)[codes[:, self.names.index(name)]]
            kept.append((codes[met], places[met]))
            found, tried = found + int(met.sum()), tried + len(codes)
            if tried >= max(100_000, MOST_DRAWS * num_rows) and found < num_rows:
                raise ConditionError(
                    f"Only {found} of {num_rows} rows met the condition in {tried:,} draws. "
                    f"{'Ask for fewer rows, or loosen' if found else 'Loosen'} the condition."
                )
        return np.concatenate([c for c, _ in kept])[:num_rows], np.concatenate([p for _, p in kept])[:num_rows]

    def _drawn(self, num_rows: int, generator: np.random.Generator) -> Drawn:
        """Column after column, each given those before it."""
        codes = np.zeros((num_rows, len(self.names)), dtype=np.int32)
        places = np.full((num_rows, len(self.names)), np.nan)
        features = np.zeros((num_rows, 0), dtype=np.float32)
        for at, tree in enumerate(self.trees):
            donor = tree.drawn(features, generator)
            codes[:, at], places[:, at] = self.codes[donor, at], self.places[donor, at]
            seen = shown(codes[:, at], places[:, at], self.sizes[at], numeric=self.numeric[at])
            features = np.concatenate([features, seen], axis=1)
        return codes, places

    def to_arrays(self) -> tuple[dict[str, object], dict[str, np.ndarray]]:
        arrays: dict[str, np.ndarray] = {"codes": self.codes.astype(np.int32), "places": self.places.astype(np.float64)}
        for number, tree in enumerate(self.trees):
            parts = {field.name: getattr(tree, field.name) for field in dataclasses.fields(tree)}
            arrays |= {f"tree.{number:05}.{name}": part for name, part in parts.items()}
        return {"names": list(self.names), "sizes": list(self.sizes), "numeric": list(self.numeric)}, arrays

    @classmethod
    def from_arrays(cls, structure: Mapping, arrays: Mapping[str, np.ndarray]) -> "DonorTrees":
        names = tuple(structure["names"])

        def tree(number: int) -> Tree:
            return Tree(**{field.name: arrays[f"tree.{number:05}.{field.name}"] for field in dataclasses.fields(Tree)})

        return cls(
            names,
            tuple(structure["sizes"]),
            arrays["codes"],
            arrays["places"],
            tuple(structure["numeric"]),
            tuple(tree(number) for number in range(len(names))),
        )


def shown(codes: np.ndarray, places: np.ndarray, size: int, *, numeric: bool) -> Float[np.ndarray, "rows features"]:
    """What later trees see of a column: a number as it is, a truth value as one, other levels one by one."""
    if numeric:
        return np.where(np.isnan(places), MISSING, places).astype(np.float32)[:, None]
    return codes[:, None].astype(np.float32) if size <= 2 else np.eye(size, dtype=np.float32)[codes]


def grown(
    names: tuple[str, ...],
    sizes: tuple[int, ...],
    codes: np.ndarray,
    places: np.ndarray,
    numeric: Sequence[bool],
    *,
    complexity: float,
    min_bucket: int,
    seed: int,
) -> DonorTrees:
    """A tree for each column over those before it: of regression for a number, of classification for levels.

    rpart's complexity is relative to the root, so it becomes `complexity` times the root's impurity.
    """
    num_rows, trees = len(codes), list[Tree]()
    features = np.zeros((num_rows, 0), dtype=np.float32)
    for at in range(len(names)):
        target = np.where(np.isnan(places[:, at]), MISSING, places[:, at]) if numeric[at] else codes[:, at]
        trees.append(_tree(features, target, numeric[at], complexity, min_bucket, seed))
        seen = shown(codes[:, at], places[:, at], sizes[at], numeric=numeric[at])
        features = np.concatenate([features, seen], axis=1)
    return DonorTrees(names, sizes, codes.astype(np.int32), places.astype(np.float64), tuple(numeric), tuple(trees))


def _tree(
    features: np.ndarray, target: np.ndarray, is_number: bool, complexity: float, min_bucket: int, seed: int
) -> Tree:
    num_rows = len(target)
    if not features.shape[1] or (target == target[0]).all():
        start = np.asarray([0, num_rows])
        return Tree(np.asarray([-1]), np.zeros(1), np.asarray([-1]), np.asarray([-1]), start, np.arange(num_rows))
    impurity = float(np.var(target)) if is_number else float(1 - np.sum((np.bincount(target) / num_rows) ** 2))
    settings: dict[str, Any] = {"min_samples_leaf": min_bucket, "min_samples_split": 3 * min_bucket}
    settings |= {"ccp_alpha": complexity * impurity, "random_state": seed}
    fitted = (DecisionTreeRegressor if is_number else DecisionTreeClassifier)(**settings).fit(features, target)
    made = fitted.tree_
    leaf = fitted.apply(features)
    start = np.searchsorted(np.sort(leaf), np.arange(made.node_count + 1))
    donors = np.argsort(leaf, kind="stable")
    feature = np.where(made.children_left < 0, -1, made.feature)
    return Tree(feature, made.threshold, made.children_left, made.children_right, start, donors)
