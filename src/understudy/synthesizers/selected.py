"""Selected: private choice among the checkpoints of a training, by how well they serve a task.

After the "task-specific optimisation" of Boob et al.'s DP-GAN extended abstract. Every checkpoint makes a synthetic
table, a model is trained on it, and private rows score the models; the best are picked under noise and make the release
together. Only scores that are sums over rows have a useful bound: areas under curves and F-scores have none, and are
not offered.
"""

import dataclasses
import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np
from jaxtyping import Float, Int, PRNGKeyArray

from understudy.adversarial.pools import Mixture
from understudy.adversarial.trajectory import HasTrajectory
from understudy.boosting import expected_miss
from understudy.errors import ConfigError
from understudy.privacy.accounting import Choices
from understudy.privacy.ledger import Budget, Ledger, Look, Plan
from understudy.privacy.mechanisms import Clique, Rows
from understudy.privacy.selection import RowFunctions, noisy_closest, noisy_picks, part_sizes, split_by_coin
from understudy.schema import Domain
from understudy.synthesizers import name_of

TASKS = ("accuracy", "log_loss", "marginals")
TRAIN, HELD = "training rows", "held-out rows"
"""The two parts of the units, as the ledger calls them."""
MOST_ROWS = 50_000
"""Synthetic rows that a task's model is trained on, at most."""
FAR = 0.1
"""A pick that misses the best score by this much on average, of scores from 0 to 1, is hardly better than chance."""


@dataclasses.dataclass(frozen=True)
class Selected:
    """The checkpoints of a GAN that serve a task best, picked under noise by rows that were held out."""

    inner: HasTrajectory
    """The method that is trained: dpgan or dpctgan."""
    _: dataclasses.KW_ONLY
    task: str = "accuracy"
    """accuracy or log_loss of a classifier of the target, or marginals: the distance of all pairs of columns."""
    k: int = 1
    """How many checkpoints are picked; each makes the same number of rows."""
    checkpoints: int = 10
    """How many there are to pick from, evenly over the training."""
    holdout: float = 0.1
    """The share of the units, by coin, that scores instead of training: the costs of the two then do not add. 0: the
    training rows score too, and the costs add."""
    share: float = 0.1
    """Without a holdout: the part of the budget for the picks."""

    def __post_init__(self) -> None:
        if not isinstance(self.inner, HasTrajectory):
            raise ConfigError(
                f"selected needs a method that can keep checkpoints of its training, such as dpgan or dpctgan; "
                f"{name_of(self.inner)} has none."
            )
        for name in ("k", "checkpoints"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                raise ConfigError(f"{name} must be a whole number of at least 1, found {value}.")
        if self.task not in TASKS:
            raise ConfigError(
                f"task must be one of {', '.join(TASKS)}, found {self.task!r}. Areas under curves and F-scores are no "
                "sums over rows: one row can move them far, so they cannot be picked by."
            )
        if self.k > self.checkpoints:
            raise ConfigError(
                f"k picks {self.k} of {self.checkpoints} checkpoints: it must not be more than there are."
            )
        if not 0 < self.share < 1:
            raise ConfigError(
                f"share is the part of the budget for the picks, above 0 and below 1, found {self.share}."
            )
        if not 0 <= self.holdout < 1:
            raise ConfigError(f"holdout is a share of the units, from 0 (none) to below 1, found {self.holdout}.")
        if not self._every:
            raise ConfigError(
                f"checkpoints asks for {self.checkpoints}, but {name_of(self.inner)} makes "
                f"{self.inner.num_checkpoints(1)} generator steps. Lower checkpoints, or train for more steps."
            )

    @property
    def _every(self) -> int:
        return self.inner.num_checkpoints(1) // self.checkpoints

    def plan(self, domain: Domain, budget: Budget) -> Plan:
        """Training and picks; on disjoint rows each fills the budget, on the same rows the picks take their share."""
        if self.task != "marginals" and domain.target is None:
            raise ConfigError(
                f"selected(task={self.task}) needs a target to predict: declare one in the schema, or use "
                "task=marginals."
            )
        if self.task != "marginals" and len(domain.names) < 2:
            raise ConfigError(f"selected(task={self.task}) needs a column beside the target to predict it from.")
        what = f"{self.k} of {self.checkpoints} checkpoints picked by {self.task.replace('_', ' ')}"

        def picks(noise: float) -> Choices:
            return Choices(1 / noise, self.k)

        if not self.holdout:
            noise = budget.part(self.share).calibrate(lambda noise: [picks(noise)])
            look = Look("selection", what, picks(noise), columns=domain.names)
            inner = self.inner.plan(domain, budget.after([look])).under(name_of(self.inner))
            return Plan((*inner.looks, look), (*inner.notes, *self._notes(domain.num_rows, budget, look)))
        num_training, num_held = part_sizes(domain, self.holdout)
        look = Look(
            "selection", what, picks(budget.calibrate(lambda noise: [picks(noise)])), columns=domain.names, branch=HELD
        )
        inner = self.inner.plan(dataclasses.replace(domain, num_rows=num_training), budget).under(name_of(self.inner))
        training = tuple(dataclasses.replace(each, branch=TRAIN) for each in inner.looks)
        apart = f"A coin for each unit holds out {self.holdout:g} of them to score: nobody pays for training and picks."
        return Plan((*training, look), (*inner.notes, apart, *self._notes(num_held, budget, look)))

    def _notes(self, num_scoring: int, budget: Budget, look: Look) -> tuple[str, ...]:
        assert isinstance(look.event, Choices)
        if not budget.is_private or self.checkpoints == 1:
            return ()
        miss = expected_miss(self.checkpoints, look.event.epsilon * num_scoring / budget.max_rows_per_unit)
        if miss < FAR:
            return (f"A pick scores within {miss:.2g} of the best checkpoint on average, scores being from 0 to 1.",)
        return (
            f"Warning: {num_scoring:,} rows are too few to tell {self.checkpoints} checkpoints apart at this price: a "
            f"pick may miss the best score by {min(miss, 1.0):.2g} on average, scores being from 0 to 1. Hold out "
            "more, pick fewer (k), or raise epsilon.",
        )

    def fit(
        self,
        rows: Rows,
        plan: Plan,
        ledger: Ledger,
        *,
        key: PRNGKeyArray,
        progress: Callable[[float, str], None] | None = None,
    ) -> Any:
        """Formal guarantee: the joint price of the plan's looks; on held-out rows the larger of training and picks,
        since a unit is in one part only. Tables of the checkpoints and models of the task are post-processing."""
        tell = progress or (lambda share, words: None)
        train_key, table_key = jax.random.split(key)
        look = plan["selection"]
        if self.holdout:
            training, scoring = split_by_coin(rows, self.holdout, ledger)
            purse = ledger
        else:
            training = scoring = rows
            purse = ledger.view(ledger.remaining.after([look]))
        trajectory = self.inner.trajectory(
            training,
            Plan(tuple(each for each in plan if each.key != "selection")),
            purse,
            key=train_key,
            checkpoints=self.checkpoints,
            every=self._every,
            progress=lambda share, words: tell(0.8 * share, words),
        )
        size = min(MOST_ROWS, rows.domain.num_rows)
        tables = [
            model.sample(size, key=one)
            for model, one in zip(trajectory.models, jax.random.split(table_key, len(trajectory.models)), strict=True)
        ]
        tell(0.85, "checkpoints sampled")
        picked = self._picked(scoring, tables, look, ledger)
        tell(1.0, f"{self.k} of {self.checkpoints} checkpoints picked")
        parts = tuple(trajectory.models[index] for index in picked)
        return parts[0] if len(parts) == 1 else Mixture(parts)

    def _picked(self, scoring: Rows, tables: Sequence[np.ndarray], look: Look, ledger: Ledger) -> list[int]:
        domain = scoring.domain
        if self.task == "marginals":
            cliques: tuple[Clique, ...] = tuple(itertools.combinations(domain.names, 2)) or domain.singles
            shares = [[_shares(table, domain, clique) for clique in cliques] for table in tables]
            return noisy_closest(scoring, cliques, shares, look, ledger)
        assert domain.target is not None
        learners = [Classifier.trained(table, domain, domain.target) for table in tables]

        def scores(codes: np.ndarray) -> np.ndarray:
            return np.stack([learner.scores(codes, self.task) for learner in learners], axis=1)

        return noisy_picks(scoring, RowFunctions(scores, len(learners)), look, ledger).top(self.k)


def _shares(table: np.ndarray, domain: Domain, clique: Clique) -> np.ndarray:
    shape = domain.shape(clique)
    cells = np.ravel_multi_index([table[:, domain.index(name)] for name in clique], shape)
    return np.bincount(cells, minlength=math.prod(shape)).reshape(shape) / len(table)


@dataclasses.dataclass(frozen=True)
class Classifier:
    """Logistic regression on one-hot columns, as tables: what each code of each column adds to each class."""

    target: int
    terms: tuple[Float[np.ndarray, "codes classes"] | None, ...]
    """One for each column; None for the target."""
    intercept: Float[np.ndarray, " classes"]

    @classmethod
    def trained(cls, table: Int[np.ndarray, "rows columns"], domain: Domain, target: str) -> "Classifier":
        """From synthetic rows. Classes that they lack are never predicted."""
        from sklearn.linear_model import LogisticRegression
        from sklearn.preprocessing import OneHotEncoder

        at = domain.index(target)
        others = [index for index in range(len(domain.names)) if index != at]
        labels, num_classes = table[:, at], domain.sizes[at]
        weights = np.zeros((sum(domain.sizes[index] for index in others), num_classes))
        intercept = np.full(num_classes, -np.inf)
        found = np.unique(labels)
        intercept[found] = 0.0
        if len(found) > 1:
            encoder = OneHotEncoder(categories=[np.arange(domain.sizes[index]) for index in others])
            model = LogisticRegression(max_iter=200, tol=1e-3).fit(encoder.fit_transform(table[:, others]), labels)
            both = len(found) == 2  # two classes have one line, for the second
            weights[:, found[1:] if both else found] = model.coef_.T
            intercept[found[1:] if both else found] = model.intercept_
        pieces = iter(np.split(weights, np.cumsum([domain.sizes[index] for index in others])[:-1]))
        return cls(at, tuple(None if index == at else next(pieces) for index in range(len(domain.names))), intercept)

    def scores(self, codes: Int[np.ndarray, "rows columns"], task: str) -> Float[np.ndarray, " rows"]:
        """Of each row by itself, from 0 to 1: whether its class is predicted, or one less its log-loss."""
        logits = np.repeat(self.intercept[None], len(codes), axis=0)
        for column, term in enumerate(self.terms):
            if term is not None:
                logits = logits + term[codes[:, column]]
        labels = codes[:, self.target]
        if task == "accuracy":
            return (logits.argmax(axis=1) == labels).astype(np.float64)
        top = logits.max(axis=1)
        log_odds = logits[np.arange(len(codes)), labels] - top
        return np.clip(1.0 + log_odds - np.log(np.exp(logits - top[:, None]).sum(axis=1)), 0.0, 1.0)
