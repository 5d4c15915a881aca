"""Tasks of `selected` beyond linear models: random forests, a Jensen-Shannon score, and tasks of users.

A task turns the synthetic table of a checkpoint into a score of one row. A task of a user is a function of the
synthetic table that returns a function of one row; the latter is traced once and applied row by row inside `privacy/`,
so that it does not see another row or keep a state by mistake (`privacy/scoring.py`).
"""

import dataclasses
from collections.abc import Callable, Mapping, Sequence

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PRNGKeyArray

from understudy.errors import ConfigError
from understudy.models.protocol import Sample
from understudy.privacy.scoring import trace_scores
from understudy.privacy.selection import RowFunctions
from understudy.schema import Domain, NumericDomain
from understudy.synthesizers.protocol import Synthesizer

Columns = Mapping[str, np.ndarray]
"""A synthetic table: for each column the codes of its categories, or the positions of its numbers (NaN for null)."""
Row = Mapping[str, Array]
"""One row in the same form: a value for each column."""
Task = Callable[[Columns], Callable[[Row], Array]]
"""From a synthetic table to a score of one row, from 0 to 1; the higher the better."""

TASKS: dict[str, Task | None] = dict.fromkeys(
    ("accuracy", "log_loss", "squared_loss", "clustering", "marginals", "random_forest", "jensen_shannon")
)
"""Tasks by name; None: one of our own. `add_task` adds those of users."""

TREES, DEPTH, LEAF = 30, 12, 5
"""The size of a forest: trees, their depth, and the least number of synthetic rows in a leaf."""
MOST_BITS = 2.0
"""The log-loss of a row, in bits, is clamped to this; chance is 1."""


def add_task(name: str, task: Task) -> None:
    """Makes a function of a synthetic table available as a task of `selected`, under this name.

    `task` gets the synthetic rows of a checkpoint as a dict of arrays by column: codes of categories, in their declared
    order, and positions of numbers between their bounds, from 0 to 1 (NaN: null). It trains what it likes on them, and
    returns a function that scores one row, given as a dict of values by column. That function is written with
    `jax.numpy`, because it is traced once and never called with a real row. Scores are clamped to [0, 1].

    >>> import jax.numpy as jnp
    >>> import understudy as us
    >>> def mean_age(table):
    ...     mean = table["age"].mean()
    ...     return lambda row: 1 - jnp.abs(row["age"] - mean)
    >>> us.add_task("mean_age", mean_age)
    >>> us.Selected(us.DPGAN(), task="mean_age").task
    'mean_age'
    """
    if not isinstance(name, str) or not name.isidentifier():
        raise ConfigError(f"The name of a task must be a word, such as my_task, found {name!r}.")
    if TASKS.get(name, task) is None:
        raise ConfigError(f"There is a task {name!r} already. Choose another name.")
    if not callable(task):
        raise ConfigError(f"A task must be a function of a synthetic table, found {type(task).__name__}.")
    TASKS[name] = task


def find_user_task(method: Synthesizer) -> str | None:
    """The name of a task that `add_task` added, if the method, or one inside of it, selects by it.

    >>> import understudy as us
    >>> find_user_task(us.Selected(us.DPGAN(), task="marginals"))
    """
    inner: Synthesizer | None = method
    while inner is not None:
        name = getattr(inner, "task", None)
        if isinstance(name, str) and TASKS.get(name) is not None:
            return name
        inner = inner.capabilities.inner
    return None


# ------------------------------------------------------------------------------------------------------- tasks of users


class SideBySide:
    """Codes, then positions of a row, without any randomness."""

    def encode(self, codes: np.ndarray, positions: np.ndarray, key: PRNGKeyArray) -> Float[np.ndarray, "rows both"]:
        return np.concatenate([codes, positions], axis=1, dtype=np.float64)


def numbers(rows: Sample, column: int, scale: NumericDomain) -> Float[np.ndarray, " rows"]:
    """Positions of a numeric column, or the middles of its bins where positions are unknown; NaN for nulls."""
    codes, positions = rows
    edges = np.asarray(scale.edges)
    middles = np.r_[(edges[1:] + edges[:-1]) / 2, np.nan][codes[:, column]]
    if positions is None:
        return middles
    return np.where(np.isnan(positions[:, column]), middles, positions[:, column])


def columns_of(rows: Sample, domain: Domain, scales: Sequence[NumericDomain | None]) -> dict[str, np.ndarray]:
    """Each column by name, value by value: codes of categories, numbers of the rest."""
    return {
        name: rows.codes[:, at].astype(np.int32) if scale is None else numbers(rows, at, scale).astype(np.float32)
        for at, (name, scale) in enumerate(zip(domain.names, scales, strict=True))
    }


def check_task(task: Task, domain: Domain, scales: Sequence[NumericDomain | None]) -> None:
    """Refuses a task that fails on made-up rows: before anything is trained, from public facts alone."""
    codes = np.random.default_rng(0).integers(domain.sizes, size=(200, len(domain.names)), dtype=np.int32)
    score_by_task(task, [Sample(codes, None)], domain, scales)


def score_by_task(
    task: Task, tables: Sequence[Sample], domain: Domain, scales: Sequence[NumericDomain | None]
) -> RowFunctions:
    """The score of a row by what the task made of each table. Formal guarantee: that of `trace_scores`.

    A task that fails does so on synthetic or made-up rows, so its error may be shown.
    """
    row = {
        name: jax.ShapeDtypeStruct((), jnp.int32 if scale is None else jnp.float32)
        for name, scale in zip(domain.names, scales, strict=True)
    }
    try:
        functions = [task(columns_of(table, domain, scales)) for table in tables]
        traced = trace_scores(functions, row)
    except ConfigError:
        raise
    except Exception as error:
        raise ConfigError(
            f"The task of selected failed on generated rows: {type(error).__name__}: {error}. Beside its categories a "
            "column may have codes for other values and for null."
        ) from error

    def of_both(rows: np.ndarray) -> np.ndarray:
        codes, positions = np.split(rows, 2, axis=1)
        return traced(columns_of(Sample(codes.astype(np.int32), positions), domain, scales))

    return RowFunctions(of_both, len(tables), layout=SideBySide())


# -------------------------------------------------------------------------------------------------------------- forests


@dataclasses.dataclass(frozen=True)
class Forest:
    """A random forest of codes, as arrays: so its value for a row never depends on the rows beside it."""

    columns: tuple[int, ...]
    """Those that it sees."""
    nodes: tuple["Tree", ...]
    num_classes: int

    @classmethod
    def fit(
        cls,
        table: Int[np.ndarray, "rows columns"],
        labels: Int[np.ndarray, " rows"],
        columns: Sequence[int],
        num_classes: int,
        seed: Int[np.ndarray, " words"],
    ) -> "Forest":
        """From synthetic rows."""
        from sklearn.ensemble import RandomForestClassifier

        forest = RandomForestClassifier(
            TREES, max_depth=DEPTH, min_samples_leaf=LEAF, random_state=np.random.RandomState(seed)
        ).fit(table[:, list(columns)], labels)
        found = forest.classes_.astype(int)
        return cls(tuple(columns), tuple(Tree.of(each.tree_, found, num_classes) for each in forest), num_classes)

    def probabilities(self, codes: Int[np.ndarray, "rows columns"]) -> Float[np.ndarray, "rows classes"]:
        """The mean of all trees, tree by tree: each row by itself."""
        seen, total = codes[:, list(self.columns)], np.zeros((len(codes), self.num_classes))
        for tree in self.nodes:
            total = total + tree.probabilities(seen)
        return total / len(self.nodes)


@dataclasses.dataclass(frozen=True)
class Tree:
    """One tree: for each node its column, threshold and children; a leaf is its own child."""

    column: Int[np.ndarray, " nodes"]
    threshold: Float[np.ndarray, " nodes"]
    below: Int[np.ndarray, " nodes"]
    above: Int[np.ndarray, " nodes"]
    fractions: Float[np.ndarray, "nodes classes"]

    @classmethod
    def of(cls, tree: object, found: Int[np.ndarray, " found"], num_classes: int) -> "Tree":
        """Of scikit-learn's arrays; classes that were not among the labels have probability 0."""
        below, above, column, threshold, counts = (
            np.asarray(getattr(tree, name))
            for name in ("children_left", "children_right", "feature", "threshold", "value")
        )
        is_leaf, own = below < 0, np.arange(len(below))
        fractions = np.zeros((len(below), num_classes))
        fractions[:, found] = counts[:, 0] / counts[:, 0].sum(axis=1, keepdims=True)
        return cls(
            np.where(is_leaf, 0, column),
            threshold,
            np.where(is_leaf, own, below),
            np.where(is_leaf, own, above),
            fractions,
        )

    def probabilities(self, seen: Int[np.ndarray, "rows columns"]) -> Float[np.ndarray, "rows classes"]:
        at, lines = np.zeros(len(seen), dtype=np.int64), np.arange(len(seen))
        for _ in range(DEPTH):
            at = np.where(seen[lines, self.column[at]] <= self.threshold[at], self.below[at], self.above[at])
        return self.fractions[at]


def score_by_forests(
    tables: Sequence[Sample], domain: Domain, target: str, seed: Int[np.ndarray, " words"]
) -> RowFunctions:
    """Whether a forest of each table predicts the target of a row."""
    at = domain.index(target)
    others = [index for index in range(len(domain.names)) if index != at]
    forests = [Forest.fit(codes, codes[:, at], others, domain.sizes[at], seed) for codes, _ in tables]

    def is_right(codes: np.ndarray) -> np.ndarray:
        return np.stack([forest.probabilities(codes).argmax(axis=1) == codes[:, at] for forest in forests], axis=1)

    return RowFunctions(is_right, len(tables))


def score_by_divergence(tables: Sequence[Sample], domain: Domain, seed: Int[np.ndarray, " words"]) -> RowFunctions:
    """How badly a forest separates real rows from the rows of each table: half of its log-loss in bits, clamped.

    One minus the log-loss of the best classifier of real against synthetic rows is their Jensen-Shannon divergence in
    bits. Training such a classifier on private rows would be a query; here the rows of all tables together take the
    place of the real ones when it is trained. The loss on the real rows is a sum over rows; that on the synthetic ones
    is public and the same for every row.
    """
    whole = np.concatenate([codes for codes, _ in tables])[:: len(tables)]  # equally many of each table
    columns = list(range(len(domain.names)))
    forests, public = [], []
    for codes, _ in tables:
        labels = np.repeat([1, 0], [len(whole), len(codes)])
        forests.append(Forest.fit(np.concatenate([whole, codes]), labels, columns, 2, seed))
        public.append(float(_bits(forests[-1].probabilities(codes)[:, 0]).mean()))

    def losses(codes: np.ndarray) -> np.ndarray:
        real = np.stack([_bits(forest.probabilities(codes)[:, 1]) for forest in forests], axis=1)
        return (real + np.asarray(public)) / (2 * MOST_BITS)

    return RowFunctions(losses, len(tables))


def _bits(probabilities: Float[np.ndarray, " rows"]) -> Float[np.ndarray, " rows"]:
    """The log-loss of each row in bits, clamped."""
    return np.clip(-np.log2(np.maximum(probabilities, 2.0**-MOST_BITS)), 0.0, MOST_BITS)
