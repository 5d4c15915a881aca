"""Tasks of `selected`: linear models, clusters, random forests, a Jensen-Shannon score, and tasks of users.

A task turns the synthetic table of a checkpoint into a score of one row. A task of a user is a function of the
synthetic table that returns a function of one row; the latter is traced once and applied row by row inside `privacy/`,
so that it does not see another row or keep a state by mistake (`privacy/mechanisms/scoring.py`).
"""

import math
from collections.abc import Callable, Mapping, Sequence

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PRNGKeyArray
from scipy import sparse

from understudy.errors import ConfigError
from understudy.models.protocol import Sample
from understudy.privacy.mechanisms.scoring import trace_scores
from understudy.privacy.mechanisms.selection import RowFunctions
from understudy.schema import Domain, NumericDomain
from understudy.synthesizers.protocol import Synthesizer, layers_of

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
MAX_BITS = 2.0
"""The log-loss of a row, in bits, is clamped to this; chance is 1."""


def add_task(name: str, task: Task) -> None:
    """Make a function of a synthetic table available as a task of `selected`, under this name.

    Args:
        name: The name that `selected(task=...)` finds it by.
        task: Gets the synthetic rows of a checkpoint as a dict of arrays by column: codes of categories, in their
            declared order, and positions of numbers between their bounds, from 0 to 1 (NaN: null). It trains what it
            likes on them, and returns a function that scores one row, given as a dict of values by column. That
            function is written with `jax.numpy`, because it is traced once and never called with a real row. Scores are
            clamped to [0, 1].

    Raises:
        ConfigError: The name is not a word, or that of a built-in task; or the task is not a function.

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
        raise ConfigError(f"The name of a task must be a word, such as my_task, found {name!r}.", setting="name")
    if TASKS.get(name, task) is None:
        raise ConfigError(f"There is a task {name!r} already. Choose another name.", setting="name")
    if not callable(task):
        raise ConfigError(
            f"A task must be a function of a synthetic table, found {type(task).__name__}.", setting="task"
        )
    TASKS[name] = task


def find_user_task(method: Synthesizer) -> str | None:
    """The name of a task that `add_task` added, if the method, or one inside of it, selects by it.

    >>> import understudy as us
    >>> find_user_task(us.Selected(us.DPGAN(), task="marginals"))
    """
    names = (getattr(layer, "task", None) for layer in layers_of(method))
    return next((name for name in names if isinstance(name, str) and TASKS.get(name) is not None), None)


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


# ------------------------------------------------------------------------------------------------------------ our tasks

Score = Callable[[Sample], Float[np.ndarray, " rows"]]
"""Scores of rows, from 0 to 1, each from its row alone: a matrix product may round a row differently beside others."""


def row_functions(scores: Sequence[Score], *, sees_numbers: bool = False) -> RowFunctions:
    """One function of a row for each score: of its codes, or of its codes and positions."""

    def of_rows(rows: np.ndarray) -> np.ndarray:
        sample = Sample(rows, None)
        if sees_numbers:
            codes, positions = np.split(rows, 2, axis=1)
            sample = Sample(codes.astype(np.int32), positions)
        return np.stack([score(sample) for score in scores], axis=1)

    return RowFunctions(of_rows, len(scores), layout=SideBySide() if sees_numbers else None)


def target_index(domain: Domain) -> int:
    """The column of the target, which the task needs."""
    assert domain.target is not None
    return domain.index(domain.target)


def one_hot(codes: Int[np.ndarray, "rows columns"], domain: Domain, target: int) -> sparse.csr_matrix:
    """All columns but the target, an indicator for each code."""
    from sklearn.preprocessing import OneHotEncoder

    others = [index for index in range(len(domain.names)) if index != target]
    encoder = OneHotEncoder(categories=[np.arange(domain.sizes[index]) for index in others])
    return encoder.fit_transform(codes[:, others])


def one_hot_linear(
    weights: Float[np.ndarray, "features outputs"], intercept: np.ndarray, domain: Domain, target: int
) -> Callable[[Int[np.ndarray, "rows columns"]], Float[np.ndarray, "rows outputs"]]:
    """A linear function of the features of `one_hot`, its terms added column by column."""
    sizes = [size for index, size in enumerate(domain.sizes) if index != target]
    pieces = iter(np.split(weights, np.cumsum(sizes)[:-1]))
    terms = {index: next(pieces) for index in range(len(domain.names)) if index != target}

    def of_codes(codes: Int[np.ndarray, "rows columns"]) -> Float[np.ndarray, "rows outputs"]:
        total = np.repeat(intercept[None], len(codes), axis=0)
        for column, term in terms.items():
            total = total + term[codes[:, column]]
        return total

    return of_codes


def class_score(table: Sample, domain: Domain, task: str) -> Score:
    """Logistic regression of the target on all other columns: whether it is predicted, or one minus the log-loss.

    Classes that the synthetic rows lack are never predicted.
    """
    from sklearn.linear_model import LogisticRegression

    at = target_index(domain)
    labels, num_classes = table.codes[:, at], domain.sizes[at]
    weights = np.zeros((sum(domain.sizes) - num_classes, num_classes))
    intercept = np.full(num_classes, -np.inf)
    classes = np.unique(labels)
    intercept[classes] = 0.0
    if len(classes) > 1:
        model = LogisticRegression(max_iter=200, tol=1e-3).fit(one_hot(table.codes, domain, at), labels)
        fitted = classes[1:] if len(classes) == 2 else classes  # two classes have one row of weights, for the second
        weights[:, fitted] = model.coef_.T
        intercept[fitted] = model.intercept_
    logits_of = one_hot_linear(weights, intercept, domain, at)

    def score(rows: Sample) -> Float[np.ndarray, " rows"]:
        logits, labels = logits_of(rows.codes), rows.codes[:, at]
        if task == "accuracy":
            return (logits.argmax(axis=1) == labels).astype(np.float64)
        top = logits.max(axis=1)
        log_odds = logits[np.arange(len(labels)), labels] - top
        return np.clip(1.0 + log_odds - np.log(np.exp(logits - top[:, None]).sum(axis=1)), 0.0, 1.0)

    return score


def number_score(table: Sample, domain: Domain, scales: Sequence[NumericDomain | None]) -> Score:
    """Linear regression of a number on all other columns: one minus the squared error over the squared range.

    A small ridge makes the solution unique. A null target scores 0.
    """
    from sklearn.linear_model import Ridge

    at = target_index(domain)
    scale = scales[at]
    if scale is None:
        raise ConfigError(f"squared_loss needs a target that is a number, and {domain.target!r} is not.")
    wanted = numbers(table, at, scale)
    known = ~np.isnan(wanted)
    weights, intercept = np.zeros(sum(domain.sizes) - domain.sizes[at]), 0.5
    if known.any():
        model = Ridge(alpha=1.0, solver="sparse_cg").fit(one_hot(table.codes[known], domain, at), wanted[known])
        weights, intercept = model.coef_, float(model.intercept_)
    position_of = one_hot_linear(weights[:, None], np.asarray([intercept]), domain, at)

    def score(rows: Sample) -> Float[np.ndarray, " rows"]:
        error = numbers(rows, at, scale) - np.clip(position_of(rows.codes)[:, 0], 0.0, 1.0)
        return np.where(np.isnan(error), 0.0, 1.0 - np.clip(error**2, 0.0, 1.0))

    return score


def cluster_score(
    table: Sample, domain: Domain, scales: Sequence[NumericDomain | None], clusters: int, seed: np.ndarray
) -> Score:
    """One minus the distance to the nearest centre of a cluster, over the largest possible distance."""
    centres = find_centres(_points(table, domain, scales), clusters, seed)

    def score(rows: Sample) -> Float[np.ndarray, " rows"]:
        points = _points(rows, domain, scales)
        nearest = np.min([((points - centre) ** 2).sum(axis=1) for centre in centres], axis=0)
        return 1.0 - np.clip(np.sqrt(nearest / len(domain.names)), 0.0, 1.0)

    return score


def find_centres(
    points: Float[np.ndarray, "rows features"], clusters: int, seed: np.ndarray
) -> Float[np.ndarray, "clusters features"]:
    """By k-means on synthetic rows, from one start by k-means++."""
    from sklearn.cluster import KMeans
    from threadpoolctl import threadpool_limits

    clusters = min(clusters, len(np.unique(points, axis=0)))
    model = KMeans(clusters, n_init=1, max_iter=20, random_state=np.random.RandomState(seed))
    with threadpool_limits(limits=1):  # sums are added in one order, whatever the number of cores
        return model.fit(points).cluster_centers_


def _points(rows: Sample, domain: Domain, scales: Sequence[NumericDomain | None]) -> Float[np.ndarray, "rows features"]:
    """Positions of numbers with an axis for nulls, and one-hot categories: at most one apart in each column."""
    parts = []
    for at, (size, scale) in enumerate(zip(domain.sizes, scales, strict=True)):
        if scale is None:
            parts.append(np.eye(size)[rows.codes[:, at]] / math.sqrt(2))
            continue
        positions = numbers(rows, at, scale)
        missing = np.isnan(positions)
        parts.append(np.stack([np.where(missing, 0.5, positions), missing * math.sqrt(0.75)], axis=1))
    return np.concatenate(parts, axis=1)


def forest_score(table: Sample, domain: Domain, seed: Int[np.ndarray, " words"]) -> Score:
    """Whether a forest predicts the target of a row."""
    at = target_index(domain)
    others = [index for index in range(len(domain.names)) if index != at]
    probabilities = fit_forest(table.codes[:, others], table.codes[:, at], domain.sizes[at], seed)
    return lambda rows: probabilities(rows.codes[:, others]).argmax(axis=1) == rows.codes[:, at]


def fit_forest(
    table: Int[np.ndarray, "rows columns"], labels: Int[np.ndarray, " rows"], num_classes: int, seed: np.ndarray
) -> Callable[[Int[np.ndarray, "rows columns"]], Float[np.ndarray, "rows classes"]]:
    """The class probabilities of a random forest of synthetic rows; 0 for classes that these lack."""
    from sklearn.ensemble import RandomForestClassifier

    forest = RandomForestClassifier(
        TREES, max_depth=DEPTH, min_samples_leaf=LEAF, random_state=np.random.RandomState(seed)
    ).fit(table, labels)
    classes = forest.classes_.astype(int)

    def probabilities(codes: Int[np.ndarray, "rows columns"]) -> Float[np.ndarray, "rows classes"]:
        """The mean of all trees, tree by tree in one order: scikit-learn's own sum may run in threads."""
        total = np.zeros((len(codes), num_classes))
        for tree in forest.estimators_:
            total[:, classes] += tree.predict_proba(codes)
        return total / len(forest.estimators_)

    return probabilities


def divergence_scores(tables: Sequence[Sample], domain: Domain, seed: Int[np.ndarray, " words"]) -> list[Score]:
    """How badly a forest separates real rows from the rows of each table: half of its log-loss in bits, clamped.

    One minus the log-loss of the best classifier of real against synthetic rows is their Jensen-Shannon divergence in
    bits. Training such a classifier on private rows would be a query; here the rows of all tables together take the
    place of the real ones when it is trained. The loss on the real rows is a sum over rows; that on the synthetic ones
    is public and the same for every row.
    """
    whole = np.concatenate([codes for codes, _ in tables])[:: len(tables)]  # equally many of each table

    def score_against(codes: Int[np.ndarray, "rows columns"]) -> Score:
        labels = np.repeat([1, 0], [len(whole), len(codes)])
        probabilities = fit_forest(np.concatenate([whole, codes]), labels, 2, seed)
        public = float(_bits(probabilities(codes)[:, 0]).mean())
        return lambda rows: (_bits(probabilities(rows.codes)[:, 1]) + public) / (2 * MAX_BITS)

    return [score_against(codes) for codes, _ in tables]


def _bits(probabilities: Float[np.ndarray, " rows"]) -> Float[np.ndarray, " rows"]:
    """The log-loss of each row in bits, clamped."""
    return np.clip(-np.log2(np.maximum(probabilities, 2.0**-MAX_BITS)), 0.0, MAX_BITS)
