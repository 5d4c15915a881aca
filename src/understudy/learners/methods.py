"""Learners on encoded rows: settings that plan their queries (`plan`) and make a model of the rows (`fit`).

Each is a frozen dataclass with the two methods of a synthesizer, under the same ledger, so that a learner and a
synthesizer can share one. The target is the domain's, or named. No cost depends on the rows or on private estimates.
"""

import dataclasses
import math
from typing import Annotated

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, PRNGKeyArray

from understudy.errors import ConfigError
from understudy.learners.targets import (
    PRIVATE,
    ClassWeight,
    check_class_weight,
    check_classes,
    class_query,
    class_weights,
    target_of,
)
from understudy.learners.training import CrossEntropy, Network, half_square
from understudy.models.inputs import NUMBERS, Examples, Inputs, inputs_of, seen_columns
from understudy.models.predictors import Layers, LogitModel, NaiveBayesModel, NumberModel, OneVersusRest, PriorModel
from understudy.privacy.charges import charge_dpsgd
from understudy.privacy.clipping import LEAST_CLIP, MOST_CLIP, RowLoss
from understudy.privacy.counts import noisy_counts
from understudy.privacy.events import Gaussian, Pure, SubsampledGaussian
from understudy.privacy.ledger import Budget, Ledger, Plan, Query
from understudy.privacy.moments import Moments, block_weights, check_rows, class_blocks, noisy_class_sums, noisy_moments
from understudy.privacy.objective import MOST_INPUTS, noisy_minimisers
from understudy.privacy.rows import PrivateRows
from understudy.privacy.sampling import round_sampling_rate
from understudy.progress import Progress
from understudy.schema import Domain
from understudy.settings import Between, Count, InnerFraction, NotNegative, OneOf, Positive, Widths, check_settings
from understudy.training.dpsgd import Descent, train_network
from understudy.training.loop import RunOptions
from understudy.training.settings import check_numbers

METHODS = ("sgd", "objective")
OBJECTIVE_PENALTY = 3e-4

# ------------------------------------------------------------------------------------------------------ gradient steps


@dataclasses.dataclass(frozen=True, kw_only=True)
class Steps:
    """What learners by DP-SGD share."""

    target: str | None = None
    """The column to predict; None: the domain's."""
    columns: tuple[str, ...] | None = None
    """The columns to predict from; None: all others."""
    numbers: Annotated[str, OneOf(*NUMBERS)] = "both"
    """How a number enters: its position between its bounds (positions), its bin (bins), or both."""
    steps: Count = 300
    """Training steps; each costs budget."""
    sampling_rate: float = 1 / 8
    """The probability that a unit enters a step. Public, and independent of the number of rows."""
    clip_norm: Annotated[float, Between(LEAST_CLIP, MOST_CLIP)] = 1.0
    """The clip norm of one unit's gradient in a step."""
    learning_rate: Positive = 0.1
    """Learning rate of Adam at the first step; it decays to zero along a half cosine."""
    penalty: NotNegative = 1e-5
    """Half of this times the squared weights is added to the mean loss."""

    def __post_init__(self) -> None:
        check_settings(self)
        round_sampling_rate(self.sampling_rate)

    def _steps_query(self, target: str, domain: Domain, budget: Budget) -> Query:
        check_numbers(domain, "Learn from a sample of the rows.")
        rate = round_sampling_rate(self.sampling_rate)
        noise = budget.calibrate(lambda noise: [SubsampledGaussian(rate, noise, self.steps)])
        what = f"{self.steps} gradient steps, each on about one unit in {1 / self.sampling_rate:.0f}"
        columns = (target, *seen_columns(domain, target, self.columns))
        return Query("steps", what, SubsampledGaussian(rate, noise, self.steps), columns)

    def _train(
        self,
        network: Network,
        examples: Examples,
        loss: RowLoss,
        rows: PrivateRows,
        plan: Plan,
        ledger: Ledger,
        progress: Progress | None,
    ) -> Layers:
        charged = charge_dpsgd(rows, plan["steps"], ledger, _SinglePrecision(examples))
        batch_size = max(1, round(charged.sampling_rate * rows.public_num_rows))
        options = RunOptions(progress=progress, slot=ledger.slot())
        bound, penalty = self.clip_norm, self.penalty
        descent = Descent(
            batch_size=batch_size, learning_rate=self.learning_rate, clip_norm=bound, cosine=True, penalty=penalty
        )
        advice = "Lower learning_rate."
        batch_key, noise_key = jax.random.split(ledger.noise.key())
        return train_network(
            network, loss, charged, descent, batch_key=batch_key, noise_key=noise_key, options=options, advice=advice
        ).as_arrays()


@dataclasses.dataclass(frozen=True)
class _SinglePrecision:
    """Examples as networks take them."""

    examples: Examples

    def encode(self, codes: np.ndarray, positions: np.ndarray, key: PRNGKeyArray) -> np.ndarray:
        return self.examples.encode(codes, positions, key).astype(np.float32)


@dataclasses.dataclass(frozen=True, kw_only=True)
class ClassSteps(Steps):
    """What classifiers by DP-SGD share."""

    class_weight: ClassWeight = None
    """A public weight for each of the target's codes, or "private": the inverse of noisy class counts."""
    class_fraction: InnerFraction = 0.05
    """The fraction of the budget for class counts, with class_weight="private"."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_class_weight(self.class_weight)

    def plan(self, domain: Domain, budget: Budget) -> Plan:
        """Class counts for private weights, then what is left for the steps, or for the minimum."""
        target = target_of(domain, self.target, numeric=False)
        check_classes(self.class_weight, target, domain)
        queries = []
        if self.class_weight == PRIVATE:
            queries.append(class_query(target, budget.fraction(self.class_fraction)))
        return Plan((*queries, self._steps_query(target, domain, budget.after(queries))))

    def _fit_network(
        self,
        widths: tuple[int, ...],
        rows: PrivateRows,
        plan: Plan,
        ledger: Ledger,
        key: PRNGKeyArray,
        progress: Progress | None,
    ) -> LogitModel:
        target = target_of(rows.domain, self.target, numeric=False)
        inputs = inputs_of(rows.domain, rows.scales, target, numbers=self.numbers, columns=self.columns)
        weights = class_weights(self.class_weight, rows, target, plan, ledger)
        examples, loss = Examples(inputs, numeric=False), CrossEntropy(jnp.asarray(weights, jnp.float32))
        network = Network((inputs.width, *widths, len(weights)), key=key)
        return LogitModel(inputs, self._train(network, examples, loss, rows, plan, ledger, progress))


@dataclasses.dataclass(frozen=True, kw_only=True)
class Logistic(ClassSteps):
    """Logistic regression over all classes: by DP-SGD, or by objective perturbation."""

    method: Annotated[str, OneOf(*METHODS)] = "sgd"
    """sgd, or objective: an exact minimum with a random linear term, one class against the others; for two
    classes without delta."""
    penalty: NotNegative = -1.0
    """Left out: 1e-5 by steps, 3e-4 for the objective, whose noise wants more."""

    def __post_init__(self) -> None:
        if self.penalty == -1.0:
            usual = OBJECTIVE_PENALTY if self.method == "objective" else Steps.penalty
            object.__setattr__(self, "penalty", usual)
        super().__post_init__()
        if self.method == "objective" and not self.penalty > 0:
            raise ConfigError("Objective perturbation needs a positive penalty.")

    def _steps_query(self, target: str, domain: Domain, budget: Budget) -> Query:
        """The steps, or the minimum."""
        if self.method == "sgd":
            return super()._steps_query(target, domain, budget)
        if target in domain.estimated:
            # Each class is a minimum, so the cost would depend on how many classes are estimated.
            raise ConfigError(
                f"method=objective needs the classes of {target!r} to be declared, since each of them costs part of "
                "the budget. Declare its categories in the schema, or use method=sgd."
            )
        columns = (target, *seen_columns(domain, target, self.columns))
        inputs = 1 + sum(1 + size for size in domain.largest.shape(columns[1:]))
        if inputs > MOST_INPUTS:
            raise ConfigError(
                f"method=objective supports at most {MOST_INPUTS:,} inputs, but these columns may have up to "
                f"{inputs:,}. Declare their categories, lower max_categories, use fewer columns, or use method=sgd."
            )
        (size,) = domain.shape((target,))
        problems = 1 if size == 2 else size
        noise = budget.calibrate(lambda noise: [Pure(1 / noise, problems)])
        what = "the minimum of a perturbed loss" if problems == 1 else f"{problems} minima, one class against the rest"
        return Query("minimum", what, Pure(1 / noise, problems), columns)

    def fit(
        self, rows: PrivateRows, plan: Plan, ledger: Ledger, *, key: PRNGKeyArray, progress: Progress | None = None
    ) -> LogitModel | OneVersusRest:
        """Formal guarantee: the cost of the plan's queries; all else is post-processing."""
        if self.method == "sgd":
            return self._fit_network((), rows, plan, ledger, key, progress)
        target = target_of(rows.domain, self.target, numeric=False)
        inputs = inputs_of(rows.domain, rows.scales, target, numbers=self.numbers, columns=self.columns, intercept=True)
        weights = class_weights(self.class_weight, rows, target, plan, ledger)
        positives = [1] if len(weights) == 2 else list(range(len(weights)))
        examples, query = Examples(inputs, numeric=False), plan["minimum"]
        found = noisy_minimisers(rows, examples, positives, query, ledger, penalty=self.penalty, class_weights=weights)
        return OneVersusRest(inputs, Layers((found.coefficients,), (np.zeros(len(positives)),)))


@dataclasses.dataclass(frozen=True, kw_only=True)
class Perceptron(ClassSteps):
    """A small network over all classes, by DP-SGD."""

    widths: Widths = (64, 64)
    """Widths of the hidden layers."""
    learning_rate: Positive = 2e-2

    def fit(
        self, rows: PrivateRows, plan: Plan, ledger: Ledger, *, key: PRNGKeyArray, progress: Progress | None = None
    ) -> LogitModel:
        """Formal guarantee: the cost of the plan's queries; all else is post-processing."""
        return self._fit_network(self.widths, rows, plan, ledger, key, progress)


@dataclasses.dataclass(frozen=True, kw_only=True)
class NumberPerceptron(Steps):
    """A small network for a number, by DP-SGD on the squared error."""

    widths: Widths = (64, 64)
    learning_rate: Positive = 1e-2

    def plan(self, domain: Domain, budget: Budget) -> Plan:
        """All of the budget for the steps."""
        return Plan((self._steps_query(target_of(domain, self.target, numeric=True), domain, budget),))

    def fit(
        self, rows: PrivateRows, plan: Plan, ledger: Ledger, *, key: PRNGKeyArray, progress: Progress | None = None
    ) -> NumberModel:
        """Formal guarantee: the cost of the plan's queries; all else is post-processing."""
        target = target_of(rows.domain, self.target, numeric=True)
        inputs = inputs_of(rows.domain, rows.scales, target, numbers=self.numbers, columns=self.columns)
        network, examples = Network((inputs.width, *self.widths, 1), key=key), Examples(inputs, numeric=True)
        layers = self._train(network, examples, half_square, rows, plan, ledger, progress)
        return NumberModel(inputs, layers, target_edges(rows, target))


def target_edges(rows: PrivateRows, target: str) -> tuple[float, ...]:
    scale = rows.scales[rows.domain.index(target)]
    if scale is None:
        raise ConfigError(f"The target {target!r} has no declared bounds. Declare them in the schema.")
    return scale.edges


# ---------------------------------------------------------------------------------------------------------------- sums


@dataclasses.dataclass(frozen=True, kw_only=True)
class NaiveBayes:
    """Class frequencies, and each column given the class: categories by counts, numbers by bins or as normal."""

    target: str | None = None
    columns: tuple[str, ...] | None = None
    numbers: Annotated[str, OneOf("bins", "gaussian")] = "bins"
    """How numbers are modelled: by counts of their bins (bins), or as normal given the class (gaussian)."""
    smoothing: Positive = 1.0
    """Added to each noisy count, in rows."""
    least_variance: Positive = 1e-3
    """Variances of numbers from -1 to 1 are at least this."""

    def __post_init__(self) -> None:
        check_settings(self)

    def plan(self, domain: Domain, budget: Budget) -> Plan:
        """One bundle of sums by class."""
        target = target_of(domain, self.target, numeric=False)
        seen = seen_columns(domain, target, self.columns)
        noise = budget.calibrate(lambda noise: [Gaussian(noise)])
        what = f"counts and sums by class, of the target and {len(seen)} columns"
        return Plan((Query("sums", what, Gaussian(noise), (target, *seen)),))

    def fit(
        self, rows: PrivateRows, plan: Plan, ledger: Ledger, *, key: PRNGKeyArray, progress: Progress | None = None
    ) -> NaiveBayesModel:
        """Formal guarantee: the cost of the plan's query; all else is post-processing."""
        domain = rows.domain
        target = target_of(domain, self.target, numeric=False)
        shown = "bins" if self.numbers == "bins" else "positions"
        inputs = inputs_of(domain, rows.scales, target, numbers=shown, columns=self.columns)
        levels = [column.name for column in inputs.columns if column.middles is None]
        numbers = [column.name for column in inputs.columns if column.middles is not None]
        blocks = class_blocks(domain, rows.scales, target, levels, numbers)
        sums = noisy_class_sums(rows, target, blocks, plan["sums"], ledger, weights=block_weights(blocks))
        counts = np.maximum(sums["classes", target][0], 0.0) + self.smoothing
        means, variances = {}, {}
        for name in numbers:
            known = sums["known", name] if ("known", name) in sums else sums["classes", target]
            means[name], variances[name] = self._moments(known, sums["sums", name], sums["squares", name])
        return NaiveBayesModel(
            inputs,
            np.log(counts / counts.sum()),
            {name: self._log_shares(*sums["levels", name]) for name in levels},
            means,
            variances,
        )

    def _log_shares(self, noisy: np.ndarray, stddev: float) -> Float[np.ndarray, "classes codes"]:
        """Shares of each class; what is below the noise is evened out."""
        held = np.maximum(noisy, 0.0) + self.smoothing + stddev
        return np.log(held / held.sum(axis=1, keepdims=True))

    def _moments(
        self, known: tuple[np.ndarray, float], sums: tuple[np.ndarray, float], squares: tuple[np.ndarray, float]
    ) -> tuple[np.ndarray, np.ndarray]:
        """Mean and variance by class, held to what numbers from -1 to 1 can have.

        As many rows spread evenly as the noise may have made up: where there is little else, these remain.
        """
        even = self.smoothing + known[1]
        counts = np.maximum(known[0], 0.0) + even
        mean = np.clip(sums[0] / counts, -1.0, 1.0)
        variance = np.clip((squares[0] + even / 3) / counts, 0.0, 1.0) - mean**2
        return mean, np.clip(variance, self.least_variance, 1.0)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Prior:
    """Class frequencies alone: the baseline to beat."""

    target: str | None = None
    smoothing: Positive = 1.0

    def __post_init__(self) -> None:
        check_settings(self)

    def plan(self, domain: Domain, budget: Budget) -> Plan:
        """Counts of the classes, for all of the budget."""
        return Plan((class_query(target_of(domain, self.target, numeric=False), budget),))

    def fit(
        self, rows: PrivateRows, plan: Plan, ledger: Ledger, *, key: PRNGKeyArray, progress: Progress | None = None
    ) -> PriorModel:
        """Formal guarantee: the cost of the plan's query; all else is post-processing."""
        target = target_of(rows.domain, self.target, numeric=False)
        (noisy,) = noisy_counts(rows, [(target,)], plan["classes"], ledger)
        counts = np.maximum(noisy, 0.0) + self.smoothing
        return PriorModel(np.log(counts / counts.sum()))


@dataclasses.dataclass(frozen=True, kw_only=True)
class Linear:
    """Least squares from noisy moments, with a ridge that follows from the noise.

    After Wang, "Revisiting differentially private linear regression", 2018 (AdaSSP). Deviations: one Gaussian bundle
    instead of three answers; the least eigenvalue is that of the noisy moments; cells that public facts make zero, two
    levels of one column, are not looked at.
    """

    target: str | None = None
    columns: tuple[str, ...] | None = None
    numbers: Annotated[str, OneOf(*NUMBERS)] = "positions"
    residual: bool = False
    """Whether to measure the residual variance, so that labels can be sampled around predictions."""
    gram_fraction: InnerFraction = 0.6
    """Fraction of the privacy cost for the products of inputs; the rest is for inputs by target."""
    ridge: Positive = 0.4
    """The ridge, as a multiple of the norm of the noise matrix."""

    def __post_init__(self) -> None:
        check_settings(self)

    def plan(self, domain: Domain, budget: Budget) -> Plan:
        """One bundle of moments."""
        target = target_of(domain, self.target, numeric=True)
        seen = seen_columns(domain, target, self.columns)
        check_rows(domain)
        noise = budget.calibrate(lambda noise: [Gaussian(noise)])
        what = f"products of the inputs and the target, of {len(seen)} columns"
        return Plan((Query("moments", what, Gaussian(noise), (target, *seen)),))

    def fit(
        self, rows: PrivateRows, plan: Plan, ledger: Ledger, *, key: PRNGKeyArray, progress: Progress | None = None
    ) -> NumberModel:
        """Formal guarantee: the cost of the plan's query; all else is post-processing."""
        target = target_of(rows.domain, self.target, numeric=True)
        edges = target_edges(rows, target)
        inputs = inputs_of(rows.domain, rows.scales, target, numbers=self.numbers, columns=self.columns, intercept=True)
        left, absent, examples = 1.0 - 0.05 * self.residual, exclusive(inputs), Examples(inputs, numeric=True)
        gram, cross, square = self.gram_fraction * left, (1 - self.gram_fraction) * left, 1 - left
        weights = (math.sqrt(gram), math.sqrt(cross), math.sqrt(square))
        moments = noisy_moments(rows, examples, plan["moments"], ledger, weights=weights, absent=absent)
        coefficients = self._solved(moments, absent)
        residual = _residual(moments, coefficients, rows.public_num_rows)
        layers = Layers((coefficients[None, :],), (np.zeros(1),))
        return NumberModel(inputs, layers, edges, residual)

    def _solved(self, moments: Moments, absent: np.ndarray) -> Float[np.ndarray, " inputs"]:
        """Eigenvalues below zero are noise; above, they get the ridge on top."""
        values, vectors = np.linalg.eigh(moments.gram)
        held = np.maximum(values, 0.0) + self.ridge * _noise_norm(moments.gram_stddev, absent)
        # Columns that sum to the intercept: without noise they are one.
        held = held + 1e-9 * max(float(values[-1]), 1.0)
        return vectors @ ((vectors.T @ moments.cross) / held)


def _noise_norm(stddev: float, absent: np.ndarray) -> float:
    """About the largest eigenvalue of the noise: twice the root of the mean of its rows' squared sizes."""
    cells = np.where(absent, 0.0, stddev**2 / 2)
    return 2 * math.sqrt(float(cells.sum(axis=1).mean()))


def exclusive(inputs: Inputs) -> np.ndarray:
    """Pairs of inputs of which one is always zero: two levels of one column."""
    column = inputs.of_column
    return (column[:, None] == column[None, :]) & ~np.eye(len(column), dtype=bool)


def _residual(moments: Moments, coefficients: np.ndarray, num_rows: int) -> float | None:
    """The root of the mean squared error by the noisy moments, in places: half of that from -1 to 1."""
    if moments.square is None:
        return None
    explained = 2 * moments.cross @ coefficients - coefficients @ moments.gram @ coefficients
    mean = np.clip((moments.square - explained) / num_rows, 1e-4, 1.0)
    return float(np.sqrt(mean)) / 2


Learner = Logistic | NaiveBayes | Perceptron | NumberPerceptron | Linear | Prior
