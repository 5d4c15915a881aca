"""Selected: private selection among the checkpoints of a training, by how well they serve a task.

After the "task-specific optimisation" of Boob et al.'s DP-GAN extended abstract. Every checkpoint samples a synthetic
table, a model is trained on it, and private rows score the models; the exponential mechanism selects the best, whose
mixture is released. Only scores that are sums over rows have a useful sensitivity: areas under curves and F-scores have
none, and are not offered. Errors of numbers and distances are relative to public bounds, so a row scores from 0 to 1.
"""

import dataclasses
import itertools
import math
from collections.abc import Sequence
from typing import Annotated

import jax
import numpy as np
from jaxtyping import Float, Int, PRNGKeyArray
from scipy import sparse

from understudy.errors import ConfigError
from understudy.models import Model
from understudy.models.pool import mix
from understudy.models.protocol import Sample
from understudy.notes import Level, Note
from understudy.privacy.charges import event_of
from understudy.privacy.events import Selections
from understudy.privacy.ledger import Budget, Ledger, Plan, Query
from understudy.privacy.rows import Clique, PrivateRows, partition_rows, partition_sizes
from understudy.privacy.selection import RowFunctions, noisy_closest, noisy_function_selections
from understudy.progress import stretch_progress
from understudy.schema import Domain, NumericDomain
from understudy.settings import Advice, Count, Fraction, InnerFraction, KeyOf, check_settings
from understudy.synthesizers.boosted.game import expected_miss
from understudy.synthesizers.protocol import Capabilities, HasTrajectory, check_trajectory
from understudy.synthesizers.registry import name_of
from understudy.synthesizers.run import Run, calibrate_query
from understudy.synthesizers.tasks import (
    TASKS,
    SideBySide,
    check_task,
    numbers,
    score_by_divergence,
    score_by_forests,
    score_by_task,
)

WITH_TARGET = ("accuracy", "log_loss", "squared_loss", "random_forest")
ONLY_SUMS = Advice(
    "AUC and F-scores are not sums over rows: one row can change them by a lot, so they are not offered."
)
TRAINING, HOLDOUT = "training rows", "held-out rows"
"""The two partitions of the units, as the ledger names them."""
MAX_ROWS = 50_000
"""Synthetic rows that the model of a task is trained on, at most."""
LARGE_MISS = 0.1
"""A mean gap to the best score, of scores from 0 to 1, at which a selection is hardly better than chance."""


@dataclasses.dataclass(frozen=True)
class Selected:
    """The checkpoints of a training that serve a task best, selected privately by held-out rows.

    >>> import understudy as us
    >>> from understudy.synthesizers import express
    >>> express(us.Selected(us.DPGAN(), k=3))  # as --method reads it
    'selected(dpgan, k=3)'
    """

    inner: HasTrajectory
    """The method to train: a GAN, or gem."""
    _: dataclasses.KW_ONLY
    task: Annotated[str, KeyOf(TASKS), ONLY_SUMS] = "accuracy"
    """accuracy or log_loss of a classifier of the target, squared_loss of a regression of a target that is a number,
    random_forest: the accuracy of a forest; clustering: distances to k-means centres, marginals: the distance of all
    2-way marginals, jensen_shannon: how badly a forest separates real from synthetic rows; or one of `add_task`."""
    k: Count = 1
    """The number of checkpoints to select; each samples the same number of rows."""
    checkpoints: Count = 10
    """The number of checkpoints to select from, evenly over the training."""
    holdout_fraction: Fraction = 0.1
    """The fraction of units, partitioned at random, that score instead of training; the two compose in parallel. 0: the
    training rows score too, and the two compose sequentially."""
    selection_fraction: InnerFraction = 0.1
    """Without a holdout: the fraction of the budget for the selection."""
    clusters: Count = 8
    """The number of centres of task=clustering."""

    def __post_init__(self) -> None:
        check_trajectory("selected", self.inner)
        check_settings(self)
        if self.k > self.checkpoints:
            raise ConfigError(f"k must not exceed checkpoints, {self.checkpoints}; found {self.k}.")
        if not self._every:
            raise ConfigError(
                f"checkpoints is {self.checkpoints}, but {name_of(self.inner)} makes only "
                f"{self.inner.num_checkpoints(1)} generator steps. Lower checkpoints, or train for more steps."
            )

    @property
    def capabilities(self) -> Capabilities:
        inner = self.inner.capabilities
        target = inner.target or self.task in WITH_TARGET
        return Capabilities(public=inner.public, target=target, rows=True, inner=self.inner)

    @property
    def _every(self) -> int:
        return self.inner.num_checkpoints(1) // self.checkpoints

    def plan(self, domain: Domain, budget: Budget) -> Plan:
        """Training and selection: on disjoint units each fills the budget, on the same rows they divide it."""
        self._check_target(domain)
        what = f"selection of {self.k} of {self.checkpoints} checkpoints by {self.task.replace('_', ' ')}"

        def selection(noise: float) -> Selections:
            return Selections(1 / noise, self.k)

        if not self.holdout_fraction:
            query = calibrate_query("selection", what, selection, domain, budget.fraction(self.selection_fraction))
            inner = self.inner.plan(domain, budget.after([query])).under(name_of(self.inner))
            return Plan((*inner.queries, query), (*inner.notes, *self._notes(domain.num_rows, budget, query)))
        num_training, num_scoring = partition_sizes(domain, self.holdout_fraction)
        query = calibrate_query("selection", what, selection, domain, budget, HOLDOUT)
        inner = self.inner.plan(dataclasses.replace(domain, num_rows=num_training), budget).under(name_of(self.inner))
        training = tuple(dataclasses.replace(each, partition=TRAINING) for each in inner)
        note = Note(
            f"A random fraction {self.holdout_fraction:g} of the units is used for scoring only: training and "
            "selection compose in parallel, so the larger privacy cost counts."
        )
        return Plan((*training, query), (*inner.notes, note, *self._notes(num_scoring, budget, query)))

    def _check_target(self, domain: Domain) -> None:
        if self.task not in WITH_TARGET:
            return
        if domain.target is None:
            raise ConfigError(
                f"selected(task={self.task}) needs a target to predict: declare one in the schema, or use "
                "task=marginals or task=clustering."
            )
        if len(domain.names) < 2:
            raise ConfigError(f"selected(task={self.task}) needs a column beside the target to predict it from.")
        if self.task == "squared_loss" and domain.target not in domain.numeric:
            raise ConfigError(
                f"selected(task=squared_loss) needs a target that is a number or a time, and {domain.target!r} is "
                "not. Use task=accuracy, or another target."
            )

    def _notes(self, num_scoring: int, budget: Budget, query: Query) -> tuple[Note, ...]:
        if not budget.is_private or self.checkpoints == 1:
            return ()
        miss = expected_miss(
            self.checkpoints, event_of(query, Selections).epsilon * num_scoring / budget.max_rows_per_unit
        )
        if miss < LARGE_MISS:
            sampling_error = 0.5 / math.sqrt(max(1, num_scoring))
            text = (
                f"A selected checkpoint scores within {miss:.2g} of the best one on average (scores are from 0 to 1), "
                f"on the {num_scoring:,} scoring rows; their sampling error is up to {sampling_error:.2g}."
            )
            return (Note(text),)
        text = (
            f"{num_scoring:,} rows are too few to compare {self.checkpoints} checkpoints at this epsilon: the "
            f"selected one may score {min(miss, 1.0):.2g} below the best on average (scores are from 0 to 1). Hold "
            "out more units, select fewer checkpoints (k), or raise epsilon."
        )
        return (Note(text, Level.WARNING),)

    def fit(self, run: Run) -> Model:
        """Formal guarantee: the joint cost of the plan's queries; with a holdout the larger of training and selection,
        since a unit is in one partition only and a query on rows of another than its own is refused. Tables of
        checkpoints and models of the task are post-processing."""
        own_task = TASKS[self.task]
        if own_task is not None:
            check_task(own_task, run.domain, run.rows.scales)
        train_key, table_key, task_key = jax.random.split(run.key, 3)
        query, ledger = run.plan["selection"], run.ledger
        if self.holdout_fraction:
            training, scoring = partition_rows(run.rows, self.holdout_fraction, ledger, (TRAINING, HOLDOUT))
            training_ledger = ledger
        else:
            training = scoring = run.rows
            training_ledger = ledger.view(ledger.remaining.after([query]))
        training_plan = Plan(tuple(each for each in run.plan if each.key != "selection"))
        progress = stretch_progress(run.progress, 0.0, 0.8)
        inner = Run(training, training_plan, training_ledger, key=train_key, public=run.public, progress=progress)
        trajectory = self.inner.trajectory(inner, checkpoints=self.checkpoints, every=self._every)
        size = min(MAX_ROWS, run.rows.public_num_rows)
        tables = [
            model.sample(size, key=one)
            for model, one in zip(trajectory.models, jax.random.split(table_key, len(trajectory.models)), strict=True)
        ]
        run.report(0.85, "checkpoints sampled")
        best = self._select(scoring, tables, query, ledger, task_key)
        run.report(1.0, f"{self.k} of {self.checkpoints} checkpoints selected")
        return mix([trajectory.models[index] for index in best])

    def _select(
        self, scoring: PrivateRows, tables: Sequence[Sample], query: Query, ledger: Ledger, key: PRNGKeyArray
    ) -> list[int]:
        domain = scoring.domain
        if self.task == "marginals":
            cliques: tuple[Clique, ...] = tuple(itertools.combinations(domain.names, 2)) or domain.one_way
            marginals = [[_marginal(codes, domain, clique) for clique in cliques] for codes, _ in tables]
            return noisy_closest(scoring, cliques, marginals, query, ledger)
        functions = self._score_functions(domain, scoring.scales, tables, key)
        return noisy_function_selections(scoring, functions, query, ledger).top(self.k)

    def _score_functions(
        self, domain: Domain, scales: Sequence[NumericDomain | None], tables: Sequence[Sample], key: PRNGKeyArray
    ) -> RowFunctions:
        """The score of a row by the model of each checkpoint's table."""
        own_task = TASKS[self.task]
        if own_task is not None:
            return score_by_task(own_task, tables, domain, scales)
        seed = np.asarray(jax.random.key_data(key))  # the same for all: scores differ by their tables alone
        if self.task == "random_forest":
            assert domain.target is not None
            return score_by_forests(tables, domain, domain.target, seed)
        if self.task == "jensen_shannon":
            return score_by_divergence(tables, domain, seed)
        if self.task in ("accuracy", "log_loss"):
            assert domain.target is not None
            classifiers = [Classifier.fit(codes, domain, domain.target) for codes, _ in tables]

            def of_codes(codes: np.ndarray) -> np.ndarray:
                return np.stack([learner.scores(codes, self.task) for learner in classifiers], axis=1)

            return RowFunctions(of_codes, len(tables))
        learners: list[Regression] | list[Centres]
        if self.task == "squared_loss":
            learners = [Regression.fit(table, domain, scales) for table in tables]
        else:
            learners = [Centres.fit(table, domain, scales, self.clusters, seed) for table in tables]

        def of_both(rows: np.ndarray) -> np.ndarray:
            codes, positions = np.split(rows, 2, axis=1)
            return np.stack([learner.scores(Sample(codes.astype(np.int32), positions)) for learner in learners], axis=1)

        return RowFunctions(of_both, len(tables), layout=SideBySide())


def _marginal(table: np.ndarray, domain: Domain, clique: Clique) -> np.ndarray:
    shape = domain.shape(clique)
    cells = np.ravel_multi_index([table[:, domain.index(name)] for name in clique], shape)
    return np.bincount(cells, minlength=math.prod(shape)).reshape(shape) / len(table)


# ------------------------------------------------------------------------------------------------- models of the tasks


@dataclasses.dataclass(frozen=True)
class OneHotLinear:
    """A linear function of all columns but the target, one-hot, as tables: the term of each code of each column.

    Terms are added column by column, so the result of a row never depends on the rows beside it; a matrix product may
    round a row differently.
    """

    target: int
    terms: tuple[Float[np.ndarray, "codes outputs"] | None, ...]
    """One for each column; None for the target."""
    intercept: Float[np.ndarray, " outputs"]

    @classmethod
    def split(
        cls, weights: Float[np.ndarray, "features outputs"], intercept: np.ndarray, domain: Domain, target: int
    ) -> "OneHotLinear":
        """From weights of the features of `one_hot`."""
        sizes = [size for index, size in enumerate(domain.sizes) if index != target]
        pieces = iter(np.split(weights, np.cumsum(sizes)[:-1]))
        terms = tuple(None if index == target else next(pieces) for index in range(len(domain.names)))
        return cls(target, terms, intercept)

    def __call__(self, codes: Int[np.ndarray, "rows columns"]) -> Float[np.ndarray, "rows outputs"]:
        total = np.repeat(self.intercept[None], len(codes), axis=0)
        for column, term in enumerate(self.terms):
            if term is not None:
                total = total + term[codes[:, column]]
        return total


def one_hot(codes: Int[np.ndarray, "rows columns"], domain: Domain, target: int) -> sparse.csr_matrix:
    """All columns but the target, an indicator for each code."""
    from sklearn.preprocessing import OneHotEncoder

    others = [index for index in range(len(domain.names)) if index != target]
    encoder = OneHotEncoder(categories=[np.arange(domain.sizes[index]) for index in others])
    return encoder.fit_transform(codes[:, others])


@dataclasses.dataclass(frozen=True)
class Classifier:
    """Logistic regression of the target on all other columns."""

    logits: OneHotLinear

    @classmethod
    def fit(cls, table: Int[np.ndarray, "rows columns"], domain: Domain, target: str) -> "Classifier":
        """From synthetic rows. Classes that they lack are never predicted."""
        from sklearn.linear_model import LogisticRegression

        at = domain.index(target)
        labels, num_classes = table[:, at], domain.sizes[at]
        weights = np.zeros((sum(domain.sizes) - num_classes, num_classes))
        intercept = np.full(num_classes, -np.inf)
        found = np.unique(labels)
        intercept[found] = 0.0
        if len(found) > 1:
            model = LogisticRegression(max_iter=200, tol=1e-3).fit(one_hot(table, domain, at), labels)
            fitted = found[1:] if len(found) == 2 else found  # two classes have one row of weights, for the second
            weights[:, fitted] = model.coef_.T
            intercept[fitted] = model.intercept_
        return cls(OneHotLinear.split(weights, intercept, domain, at))

    def scores(self, codes: Int[np.ndarray, "rows columns"], task: str) -> Float[np.ndarray, " rows"]:
        """Whether the class of a row is predicted, or one minus its log-loss; from 0 to 1, by each row alone."""
        logits, labels = self.logits(codes), codes[:, self.logits.target]
        if task == "accuracy":
            return (logits.argmax(axis=1) == labels).astype(np.float64)
        top = logits.max(axis=1)
        log_odds = logits[np.arange(len(codes)), labels] - top
        return np.clip(1.0 + log_odds - np.log(np.exp(logits - top[:, None]).sum(axis=1)), 0.0, 1.0)


@dataclasses.dataclass(frozen=True)
class Regression:
    """Linear regression of a number on all other columns."""

    position: OneHotLinear
    scale: NumericDomain

    @classmethod
    def fit(cls, table: Sample, domain: Domain, scales: Sequence[NumericDomain | None]) -> "Regression":
        """From synthetic rows whose target is not null. A small ridge makes the solution unique."""
        from sklearn.linear_model import Ridge

        assert domain.target is not None
        at = domain.index(domain.target)
        scale = scales[at]
        if scale is None:
            raise ConfigError(f"squared_loss needs a target that is a number, and {domain.target!r} is not.")
        wanted = numbers(table, at, scale)
        known = ~np.isnan(wanted)
        weights, intercept = np.zeros(sum(domain.sizes) - domain.sizes[at]), 0.5
        if known.any():
            model = Ridge(alpha=1.0, solver="sparse_cg").fit(one_hot(table[0][known], domain, at), wanted[known])
            weights, intercept = model.coef_, float(model.intercept_)
        return cls(OneHotLinear.split(weights[:, None], np.asarray([intercept]), domain, at), scale)

    def scores(self, rows: Sample) -> Float[np.ndarray, " rows"]:
        """One minus the squared error over the squared range, by each row alone. A null target scores 0."""
        predicted = self.position(rows[0])[:, 0]
        error = numbers(rows, self.position.target, self.scale) - np.clip(predicted, 0.0, 1.0)
        return np.where(np.isnan(error), 0.0, 1.0 - np.clip(error**2, 0.0, 1.0))


@dataclasses.dataclass(frozen=True)
class Centres:
    """Centres of clusters of points; two points are at most one apart in each column."""

    domain: Domain
    scales: tuple[NumericDomain | None, ...]
    centres: Float[np.ndarray, "clusters features"]

    @classmethod
    def fit(
        cls, table: Sample, domain: Domain, scales: Sequence[NumericDomain | None], clusters: int, seed: np.ndarray
    ) -> "Centres":
        """By k-means on synthetic rows, from one start by k-means++."""
        from sklearn.cluster import KMeans
        from threadpoolctl import threadpool_limits

        points = _points(table, domain, scales)
        clusters = min(clusters, len(np.unique(points, axis=0)))
        model = KMeans(clusters, n_init=1, max_iter=20, random_state=np.random.RandomState(seed))
        with threadpool_limits(limits=1):  # sums are added in one order, whatever the number of cores
            return cls(domain, tuple(scales), model.fit(points).cluster_centers_)

    def scores(self, rows: Sample) -> Float[np.ndarray, " rows"]:
        """One minus the distance to the nearest centre over the largest possible distance, by each row alone."""
        points = _points(rows, self.domain, self.scales)
        # One centre at a time: a matrix product may round a row differently among other rows.
        nearest = np.min([((points - centre) ** 2).sum(axis=1) for centre in self.centres], axis=0)
        return 1.0 - np.clip(np.sqrt(nearest / len(self.domain.names)), 0.0, 1.0)


def _points(rows: Sample, domain: Domain, scales: Sequence[NumericDomain | None]) -> Float[np.ndarray, "rows features"]:
    """Positions of numbers with an axis for nulls, and one-hot categories: at most one apart in each column."""
    parts = []
    for at, (size, scale) in enumerate(zip(domain.sizes, scales, strict=True)):
        if scale is None:
            parts.append(np.eye(size)[rows[0][:, at]] / math.sqrt(2))
            continue
        found = numbers(rows, at, scale)
        missing = np.isnan(found)
        parts.append(np.stack([np.where(missing, 0.5, found), missing * math.sqrt(0.75)], axis=1))
    return np.concatenate(parts, axis=1)
