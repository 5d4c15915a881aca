"""Selected: private choice among the checkpoints of a training, by how well they serve a task.

After the "task-specific optimisation" of Boob et al.'s DP-GAN extended abstract. Every checkpoint makes a synthetic
table, a model is trained on it, and private rows score the models; the best are picked under noise and make the release
together. Only scores that are sums over rows have a useful bound: areas under curves and F-scores have none, and are
not offered. Errors of numbers and distances are taken relative to public bounds, so that a row's score is from 0 to 1.
"""

import dataclasses
import itertools
import math
from collections.abc import Sequence
from typing import Annotated, Any

import jax
import numpy as np
from jaxtyping import Float, Int, PRNGKeyArray

from understudy.adversarial.pools import Drawn, mixed
from understudy.boosting import expected_miss
from understudy.errors import ConfigError
from understudy.features import PublicRows
from understudy.notes import Level, Note
from understudy.privacy.accounting import Choices
from understudy.privacy.ledger import Budget, Ledger, Look, Plan
from understudy.privacy.mechanisms import Clique, Rows
from understudy.privacy.selection import RowFunctions, noisy_closest, noisy_picks, part_sizes, split_by_coin
from understudy.progress import Progress, stretch_progress
from understudy.schema import Domain, Scale
from understudy.settings import Advice, Count, Fraction, InnerFraction, OneOf, check_settings
from understudy.synthesizers.protocol import Capabilities, HasTrajectory, check_trajectory
from understudy.synthesizers.registry import name_of

TASKS = ("accuracy", "log_loss", "squared_loss", "clustering", "marginals")
WITH_TARGET = ("accuracy", "log_loss", "squared_loss")
ONLY_SUMS = Advice(
    "Areas under curves and F-scores are no sums over rows: one row can move them far, so they cannot be picked by."
)
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
    """The method that is trained: a GAN, or gem."""
    _: dataclasses.KW_ONLY
    task: Annotated[str, OneOf(*TASKS), ONLY_SUMS] = "accuracy"
    """accuracy or log_loss of a classifier of the target, squared_loss of a regression of a target that is a number,
    clustering: distances to k-means centres, or marginals: the distance of all pairs of columns."""
    k: Count = 1
    """How many checkpoints are picked; each makes the same number of rows."""
    checkpoints: Count = 10
    """How many there are to pick from, evenly over the training."""
    holdout: Fraction = 0.1
    """The share of the units, by coin, that scores instead of training: the costs of the two then do not add. 0: the
    training rows score too, and the costs add."""
    share: InnerFraction = 0.1
    """Without a holdout: the part of the budget for the picks."""
    clusters: Count = 8
    """Of task=clustering: the number of centres."""

    def __post_init__(self) -> None:
        check_trajectory("selected", self.inner)
        check_settings(self)
        if self.k > self.checkpoints:
            raise ConfigError(
                f"k picks {self.k} of {self.checkpoints} checkpoints: it must not be more than there are."
            )
        if not self._every:
            raise ConfigError(
                f"checkpoints asks for {self.checkpoints}, but {name_of(self.inner)} makes "
                f"{self.inner.num_checkpoints(1)} generator steps. Lower checkpoints, or train for more steps."
            )

    @property
    def capabilities(self) -> Capabilities:
        inner = self.inner.capabilities
        return Capabilities(public=inner.public, target=inner.target or self.task in WITH_TARGET, inner=self.inner)

    @property
    def _every(self) -> int:
        return self.inner.num_checkpoints(1) // self.checkpoints

    def plan(self, domain: Domain, budget: Budget) -> Plan:
        """Training and picks; on disjoint rows each fills the budget, on the same rows the picks take their share."""
        self._check_target(domain)
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
        apart = Note(
            f"A coin for each unit holds out {self.holdout:g} of them to score: no person is used for both training "
            "and picks, so the larger price counts."
        )
        return Plan((*training, look), (*inner.notes, apart, *self._notes(num_held, budget, look)))

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
        if self.task == "squared_loss" and domain.target not in domain.numbers:
            raise ConfigError(
                f"selected(task=squared_loss) needs a target that is a number or a time, and {domain.target!r} is "
                "none. Use task=accuracy, or another target."
            )

    def _notes(self, num_scoring: int, budget: Budget, look: Look) -> tuple[Note, ...]:
        assert isinstance(look.event, Choices)
        if not budget.is_private or self.checkpoints == 1:
            return ()
        miss = expected_miss(self.checkpoints, look.event.epsilon * num_scoring / budget.max_rows_per_unit)
        if miss < FAR:
            chance = 0.5 / math.sqrt(max(1, num_scoring))
            text = (
                f"A pick scores within {miss:.2g} of the best checkpoint on average, scores being from 0 to 1, by the "
                f"{num_scoring:,} rows that score; by chance of these rows a score is off by {chance:.2g}."
            )
            return (Note(text),)
        text = (
            f"{num_scoring:,} rows are too few to tell {self.checkpoints} checkpoints apart at this price: a "
            f"pick may miss the best score by {min(miss, 1.0):.2g} on average, scores being from 0 to 1. Hold out "
            "more, pick fewer (k), or raise epsilon."
        )
        return (Note(text, Level.WARNING),)

    def fit(
        self,
        rows: Rows,
        plan: Plan,
        ledger: Ledger,
        *,
        key: PRNGKeyArray,
        public: PublicRows | None = None,
        progress: Progress | None = None,
    ) -> Any:
        """Formal guarantee: the joint price of the plan's looks; on held-out rows the larger of training and picks,
        since a unit is in one part only. Tables of the checkpoints and models of the task are post-processing."""
        tell = progress or (lambda share, words: None)
        train_key, table_key, task_key = jax.random.split(key, 3)
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
            progress=stretch_progress(progress, 0.0, 0.8),
            **({} if public is None else {"public": public}),
        )
        size = min(MOST_ROWS, rows.public_num_rows)
        tables = [
            model.draw(size, key=one)
            for model, one in zip(trajectory.models, jax.random.split(table_key, len(trajectory.models)), strict=True)
        ]
        tell(0.85, "checkpoints sampled")
        picked = self._picked(scoring, tables, look, ledger, task_key)
        tell(1.0, f"{self.k} of {self.checkpoints} checkpoints picked")
        return mixed([trajectory.models[index] for index in picked])

    def _picked(
        self, scoring: Rows, tables: Sequence[Drawn], look: Look, ledger: Ledger, key: PRNGKeyArray
    ) -> list[int]:
        domain = scoring.domain
        if self.task == "marginals":
            cliques: tuple[Clique, ...] = tuple(itertools.combinations(domain.names, 2)) or domain.singles
            shares = [[_shares(codes, domain, clique) for clique in cliques] for codes, _ in tables]
            return noisy_closest(scoring, cliques, shares, look, ledger)
        functions = self._scores(domain, scoring.scales, tables, key)
        return noisy_picks(scoring, functions, look, ledger).top(self.k)

    def _scores(
        self, domain: Domain, scales: Sequence[Scale | None], tables: Sequence[Drawn], key: PRNGKeyArray
    ) -> RowFunctions:
        """What the model of each checkpoint's table says of a row."""
        if self.task in ("accuracy", "log_loss"):
            assert domain.target is not None
            classifiers = [Classifier.trained(codes, domain, domain.target) for codes, _ in tables]

            def of_codes(codes: np.ndarray) -> np.ndarray:
                return np.stack([learner.scores(codes, self.task) for learner in classifiers], axis=1)

            return RowFunctions(of_codes, len(tables))
        learners: list[Regression] | list[Centres]
        if self.task == "squared_loss":
            learners = [Regression.trained(table, domain, scales) for table in tables]
        else:
            seed = np.asarray(jax.random.key_data(key))  # the same for all: they differ by their tables alone
            learners = [Centres.trained(table, domain, scales, self.clusters, seed) for table in tables]

        def of_both(rows: np.ndarray) -> np.ndarray:
            codes, places = np.split(rows, 2, axis=1)
            return np.stack([learner.scores((codes.astype(np.int32), places)) for learner in learners], axis=1)

        return RowFunctions(of_both, len(tables), layout=SideBySide())


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


class SideBySide:
    """Codes, then places: a row as it is, without any randomness."""

    def encode(self, codes: np.ndarray, places: np.ndarray, key: PRNGKeyArray) -> Float[np.ndarray, "rows both"]:
        return np.concatenate([codes, places], axis=1, dtype=np.float64)


def numbers(rows: Drawn, column: int, scale: Scale) -> Float[np.ndarray, " rows"]:
    """Where a column's numbers lie between their bounds: their places, or the middles of their bins; NaN for nulls."""
    codes, places = rows
    edges = np.asarray(scale.edges)
    middles = np.r_[(edges[1:] + edges[:-1]) / 2, np.nan][codes[:, column]]
    if places is None:
        return middles
    return np.where(np.isnan(places[:, column]), middles, places[:, column])


@dataclasses.dataclass(frozen=True)
class Regression:
    """Linear regression of a number on one-hot columns, as tables: what each code of each column adds."""

    target: int
    scale: Scale
    terms: tuple[Float[np.ndarray, " codes"] | None, ...]
    """One for each column; None for the target."""
    intercept: float

    @classmethod
    def trained(cls, table: Drawn, domain: Domain, scales: Sequence[Scale | None]) -> "Regression":
        """From synthetic rows whose target is no null. A little ridge settles what they leave open."""
        from sklearn.linear_model import Ridge
        from sklearn.preprocessing import OneHotEncoder

        assert domain.target is not None
        at = domain.index(domain.target)
        scale = scales[at]
        if scale is None:
            raise ConfigError(f"squared_loss needs a target that is a number, and {domain.target!r} is none.")
        others = [index for index in range(len(domain.names)) if index != at]
        wanted = numbers(table, at, scale)
        known = ~np.isnan(wanted)
        weights, intercept = np.zeros(sum(domain.sizes[index] for index in others)), 0.5
        if known.any():
            encoder = OneHotEncoder(categories=[np.arange(domain.sizes[index]) for index in others])
            model = Ridge(alpha=1.0, solver="sparse_cg").fit(
                encoder.fit_transform(table[0][known][:, others]), wanted[known]
            )
            weights, intercept = model.coef_, float(model.intercept_)
        pieces = iter(np.split(weights, np.cumsum([domain.sizes[index] for index in others])[:-1]))
        terms = tuple(None if index == at else next(pieces) for index in range(len(domain.names)))
        return cls(at, scale, terms, intercept)

    def scores(self, rows: Drawn) -> Float[np.ndarray, " rows"]:
        """Of each row by itself: one less its squared error over the squared range. A null says nothing: 0 for all."""
        predicted = np.full(len(rows[0]), self.intercept)
        for column, term in enumerate(self.terms):
            if term is not None:
                predicted = predicted + term[rows[0][:, column]]
        error = numbers(rows, self.target, self.scale) - np.clip(predicted, 0.0, 1.0)
        return np.where(np.isnan(error), 0.0, 1.0 - np.clip(error**2, 0.0, 1.0))


@dataclasses.dataclass(frozen=True)
class Centres:
    """Centres of clusters among points in which two rows are at most one apart in each column."""

    domain: Domain
    scales: tuple[Scale | None, ...]
    centres: Float[np.ndarray, "clusters features"]

    @classmethod
    def trained(
        cls, table: Drawn, domain: Domain, scales: Sequence[Scale | None], clusters: int, seed: np.ndarray
    ) -> "Centres":
        """By k-means (Lloyd) of synthetic rows, begun at some of them that are far apart."""
        points = _points(table, domain, scales)
        generator = np.random.default_rng(seed)
        centres = points[:1]
        nearest = _squares(points, centres[0])
        while len(centres) < clusters and nearest.max() > 0:
            law = np.cumsum(nearest)
            chosen = min(int(np.searchsorted(law, generator.random() * law[-1], side="right")), len(points) - 1)
            centres = np.concatenate([centres, points[chosen : chosen + 1]])
            nearest = np.minimum(nearest, _squares(points, centres[-1]))
        for _ in range(20):
            owner = np.argmin(np.stack([_squares(points, centre) for centre in centres], axis=1), axis=1)
            counts = np.bincount(owner, minlength=len(centres))
            sums = np.stack([points[owner == number].sum(axis=0) for number in range(len(centres))])
            moved = np.where(counts[:, None] > 0, sums / np.maximum(counts, 1)[:, None], centres)
            if np.array_equal(moved, centres):
                break
            centres = moved
        return cls(domain, tuple(scales), centres)

    def scores(self, rows: Drawn) -> Float[np.ndarray, " rows"]:
        """Of each row by itself: one less its distance to the nearest centre, over the largest that there can be."""
        points = _points(rows, self.domain, self.scales)
        # One centre at a time: products of matrices could round a row differently at another place.
        nearest = np.min([_squares(points, centre) for centre in self.centres], axis=0)
        return 1.0 - np.clip(np.sqrt(nearest / len(self.domain.names)), 0.0, 1.0)


def _squares(points: np.ndarray, centre: np.ndarray) -> Float[np.ndarray, " rows"]:
    return ((points - centre) ** 2).sum(axis=1)


def _points(rows: Drawn, domain: Domain, scales: Sequence[Scale | None]) -> Float[np.ndarray, "rows features"]:
    """Numbers between their bounds, levels one-hot, nulls beside the line: by public facts, one apart at most."""
    parts = []
    for at, (size, scale) in enumerate(zip(domain.sizes, scales, strict=True)):
        if scale is None:
            parts.append(np.eye(size)[rows[0][:, at]] / math.sqrt(2))
            continue
        found = numbers(rows, at, scale)
        missing = np.isnan(found)
        parts.append(np.stack([np.where(missing, 0.5, found), missing * math.sqrt(0.75)], axis=1))
    return np.concatenate(parts, axis=1)
