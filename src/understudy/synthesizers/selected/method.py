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
from jaxtyping import PRNGKeyArray

from understudy.errors import ConfigError
from understudy.models import Model
from understudy.models.pool import mix
from understudy.models.protocol import Sample
from understudy.notes import Level, Note
from understudy.privacy.accounting.events import Selections
from understudy.privacy.accounting.ledger import Budget, Ledger, Plan, Query
from understudy.privacy.gradients.charges import event_of
from understudy.privacy.mechanisms.selection import RowFunctions, noisy_closest, noisy_function_selections
from understudy.privacy.rows.rows import Clique, PrivateRows, partition_rows, partition_sizes
from understudy.progress import stretch_progress
from understudy.schema import Domain, NumericDomain
from understudy.synthesizers.boosted.game import expected_miss
from understudy.synthesizers.protocol import Capabilities, HasTrajectory, check_trajectory
from understudy.synthesizers.registry import name_of
from understudy.synthesizers.run import Run, calibrate_query
from understudy.synthesizers.selected.tasks import (
    TASKS,
    check_task,
    class_score,
    cluster_score,
    divergence_scores,
    forest_score,
    number_score,
    row_functions,
    score_by_task,
)
from understudy.synthesizers.settings import Advice, Count, Fraction, InnerFraction, KeyOf, check_settings

WITH_TARGET = ("accuracy", "log_loss", "squared_loss", "random_forest")
ONLY_SUMS = Advice(
    "AUC and F-scores are not sums over rows: one row can change them by a lot, so they are not offered."
)
TRAINING, HOLDOUT = "training rows", "held-out rows"
"""The two partitions of the units, as the ledger names them."""
CLUSTERS = 8
"""The number of centres of task=clustering."""
MAX_ROWS = 50_000
"""Synthetic rows that the model of a task is trained on, at most."""
LARGE_MISS = 0.1
"""A mean gap to the best score, of scores from 0 to 1, at which a selection is hardly better than chance."""


@dataclasses.dataclass(frozen=True)
class Selected:
    """The checkpoints of a training that serve a task best, selected privately by held-out rows.

    >>> import understudy as us
    >>> us.express(us.Selected(us.DPGAN(), k=3))  # as --method reads it
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

    def __post_init__(self) -> None:
        check_trajectory("selected", self.inner)
        check_settings(self)
        if self.k > self.checkpoints:
            raise ConfigError(f"k must not exceed checkpoints, {self.checkpoints}; found {self.k}.", setting="k")
        if not self._every:
            raise ConfigError(
                f"checkpoints is {self.checkpoints}, but {name_of(self.inner)} makes only "
                f"{self.inner.num_checkpoints(1)} generator steps. Lower checkpoints, or train for more steps.",
                setting="checkpoints",
            )

    @property
    def capabilities(self) -> Capabilities:
        """Those of the inner method, without checkpoints of its training."""
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
                "task=marginals or task=clustering.",
                setting="target",
            )
        if len(domain.names) < 2:
            raise ConfigError(f"selected(task={self.task}) needs a column beside the target to predict it from.")
        if self.task == "squared_loss" and domain.target not in domain.numeric:
            raise ConfigError(
                f"selected(task=squared_loss) needs a target that is a number or a time, and {domain.target!r} is "
                "not. Use task=accuracy, or another target.",
                setting="task",
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
        if self.task == "jensen_shannon":
            return row_functions(divergence_scores(tables, domain, seed))
        if self.task == "random_forest":
            return row_functions([forest_score(table, domain, seed) for table in tables])
        if self.task in ("accuracy", "log_loss"):
            return row_functions([class_score(table, domain, self.task) for table in tables])
        if self.task == "squared_loss":
            return row_functions([number_score(table, domain, scales) for table in tables], sees_numbers=True)
        return row_functions(
            [cluster_score(table, domain, scales, CLUSTERS, seed) for table in tables], sees_numbers=True
        )


def _marginal(table: np.ndarray, domain: Domain, clique: Clique) -> np.ndarray:
    shape = domain.shape(clique)
    cells = np.ravel_multi_index([table[:, domain.index(name)] for name in clique], shape)
    return np.bincount(cells, minlength=math.prod(shape)).reshape(shape) / len(table)
