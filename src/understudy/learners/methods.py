"""Learners on encoded rows: settings that plan their queries (`plan`) and make a model of the rows (`fit`).

Each is a frozen dataclass with the two methods of a synthesizer, under the same ledger, so that a learner and a
synthesizer can share one. The target is the domain's, or named. No cost depends on the rows or on private estimates.
"""

import dataclasses
import math
from collections.abc import Callable
from typing import Annotated

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Float, PRNGKeyArray

from understudy.errors import ConfigError
from understudy.learners.targets import PRIVATE, ClassWeight, check_classes, class_query, class_weights, target_of
from understudy.models.inputs import NUMBERS, Examples, Inputs, inputs_of, seen_columns
from understudy.models.neural import apply_layers
from understudy.models.predictors import Layers, LogitModel, NaiveBayesModel, NumberModel, OneVersusRest, PriorModel
from understudy.privacy.accounting.events import Event, Gaussian, Pure, SubsampledGaussian
from understudy.privacy.accounting.ledger import Budget, Plan, Query
from understudy.privacy.gradients.charges import charge_dpsgd
from understudy.privacy.gradients.clipping import MAX_CLIP, MIN_CLIP, RowLoss
from understudy.privacy.gradients.poisson import round_sampling_rate
from understudy.privacy.mechanisms.counts import noisy_counts
from understudy.privacy.mechanisms.moments import (
    Moments,
    block_weights,
    check_rows,
    class_blocks,
    noisy_class_sums,
    noisy_moments,
)
from understudy.privacy.mechanisms.objective import MAX_INPUTS, noisy_minimisers
from understudy.privacy.rows.rows import PrivateRows
from understudy.schema import Domain
from understudy.synthesizers.run import Run, calibrate_query
from understudy.synthesizers.settings import (
    Count,
    InnerFraction,
    NotNegative,
    OneOf,
    Positive,
    Range,
    Widths,
    check_settings,
)
from understudy.training.dpsgd import Descent, train_network
from understudy.training.loop import RunOptions
from understudy.training.settings import check_numbers

METHODS = ("sgd", "objective")
OBJECTIVE_PENALTY = 3e-4

# ------------------------------------------------------------------------------------------------------------ networks


class Network(eqx.Module):
    """Linear layers with ReLU between them."""

    layers: list[eqx.nn.Linear]

    def __init__(self, sizes: tuple[int, ...], *, key: PRNGKeyArray):
        """He's weights, and zeros in the last layer: at first nothing is preferred."""
        keys = jax.random.split(key, len(sizes))
        self.layers = []
        for inputs, outputs, own_key in zip(sizes, sizes[1:], keys, strict=False):
            reach = np.sqrt(6 / inputs) if len(self.layers) < len(sizes) - 2 else 0.0
            weight = jax.random.uniform(own_key, (outputs, inputs), minval=-1.0, maxval=1.0) * reach
            layer = eqx.nn.Linear(inputs, outputs, key=own_key)
            self.layers.append(eqx.tree_at(lambda it: (it.weight, it.bias), layer, (weight, jnp.zeros(outputs))))

    def __call__(self, inputs: Float[Array, " inputs"]) -> Float[Array, " out"]:
        return apply_layers(self.layers, inputs, jax.nn.relu)

    def as_arrays(self) -> Layers:
        host = jax.device_get([(layer.weight, layer.bias) for layer in self.layers])
        weights, biases = zip(*((w.astype(np.float64), b.astype(np.float64)) for w, b in host), strict=True)
        return Layers(weights, biases)


class CrossEntropy(eqx.Module):
    """The loss of one row, whose last feature is its class, each class with its weight."""

    weights: Float[Array, " classes"]

    def __call__(self, network: Network, row: Array, fake: Array | None, key: PRNGKeyArray) -> Float[Array, ""]:
        code = row[-1].astype(jnp.int32)
        # Weighted before the clip: a heavy class has larger gradients, and no larger bound.
        return self.weights[code] * optax.losses.softmax_cross_entropy_with_integer_labels(network(row[:-1]), code)


def half_square(network: Network, row: Array, fake: Array | None, key: PRNGKeyArray) -> Float[Array, ""]:
    """The loss of one row, whose last feature is the number to predict. A row without a label has no part."""
    output, label = network(row[:-1])[0], row[-1]
    known = ~jnp.isnan(label)
    return jnp.where(known, 0.5 * (output - jnp.where(known, label, 0.0)) ** 2, 0.0)


# ------------------------------------------------------------------------------------------------------------ settings


@dataclasses.dataclass(frozen=True, kw_only=True)
class Columns:
    """The column that a learner predicts, and those that it predicts from."""

    target: str | None = None
    """The column to predict; None: the domain's."""
    columns: tuple[str, ...] | None = None
    """The columns to predict from; None: all others."""

    def __post_init__(self) -> None:
        check_settings(self)

    def _query(self, key: str, what: str, event_of: Callable[[float], Event], domain: Domain, budget: Budget) -> Query:
        """A query on these columns, with the least noise that fits the budget."""
        target = self.target or domain.target
        assert target is not None
        query = calibrate_query(key, what, event_of, domain, budget)
        return dataclasses.replace(query, columns=(target, *seen_columns(domain, target, self.columns)))

    def _inputs(self, rows: PrivateRows, target: str, numbers: str, *, intercept: bool = False) -> Inputs:
        return inputs_of(rows.domain, rows.scales, target, numbers=numbers, columns=self.columns, intercept=intercept)


# ------------------------------------------------------------------------------------------------------ gradient steps


@dataclasses.dataclass(frozen=True, kw_only=True)
class Steps(Columns):
    """What learners by DP-SGD share."""

    numbers: Annotated[str, OneOf(*NUMBERS)] = "both"
    """How a number enters: its position between its bounds (positions), its bin (bins), or both."""
    steps: Count = 300
    """Training steps; each costs budget."""
    sampling_rate: float = 1 / 8
    """The probability that a unit enters a step. Public, and independent of the number of rows."""
    clip_norm: Annotated[float, Range(MIN_CLIP, MAX_CLIP)] = 1.0
    """The clip norm of one unit's gradient in a step."""
    learning_rate: Positive = 0.1
    """Learning rate of Adam at the first step; it decays to zero along a half cosine."""
    penalty: NotNegative = 1e-5
    """Half of this times the squared weights is added to the mean loss."""

    def __post_init__(self) -> None:
        super().__post_init__()
        round_sampling_rate(self.sampling_rate)

    def _steps_query(self, domain: Domain, budget: Budget) -> Query:
        check_numbers(domain, "Learn from a sample of the rows.")
        rate = round_sampling_rate(self.sampling_rate)
        what = f"{self.steps} gradient steps, each on about one unit in {1 / self.sampling_rate:.0f}"
        return self._query("steps", what, lambda noise: SubsampledGaussian(rate, noise, self.steps), domain, budget)

    def _train(self, network: Network, examples: Examples, loss: RowLoss, run: Run) -> Layers:
        ledger = run.ledger
        charged = charge_dpsgd(run.rows, run.plan["steps"], ledger, examples)
        batch_size = max(1, round(charged.sampling_rate * run.rows.public_num_rows))
        options = RunOptions(progress=run.progress, slot=ledger.slot())
        bound, penalty = self.clip_norm, self.penalty
        descent = Descent(
            batch_size=batch_size, learning_rate=self.learning_rate, clip_norm=bound, cosine=True, penalty=penalty
        )
        advice = "Lower learning_rate."
        batch_key, noise_key = jax.random.split(ledger.noise.key())
        return train_network(
            network, loss, charged, descent, batch_key=batch_key, noise_key=noise_key, options=options, advice=advice
        ).as_arrays()


@dataclasses.dataclass(frozen=True, kw_only=True)
class ClassSteps(Steps):
    """What classifiers by DP-SGD share."""

    class_weight: ClassWeight = None
    """A public weight for each of the target's codes, or "private": the inverse of noisy class counts."""
    class_fraction: InnerFraction = 0.05
    """The fraction of the budget for class counts, with class_weight="private"."""

    def plan(self, domain: Domain, budget: Budget) -> Plan:
        """Class counts for private weights, then what is left for the steps, or for the minimum."""
        target = target_of(domain, self.target, numeric=False)
        check_classes(self.class_weight, target, domain)
        queries = []
        if self.class_weight == PRIVATE:
            queries.append(class_query(target, budget.fraction(self.class_fraction)))
        return Plan((*queries, self._steps_query(domain, budget.after(queries))))

    def _fit_network(self, widths: tuple[int, ...], run: Run) -> LogitModel:
        target = target_of(run.domain, self.target, numeric=False)
        inputs = self._inputs(run.rows, target, self.numbers)
        weights = class_weights(self.class_weight, run, target)
        examples = Examples(inputs, numeric=False, dtype=np.float32)
        loss = RowLoss(CrossEntropy(jnp.asarray(weights, jnp.float32)))
        network = Network((inputs.width, *widths, len(weights)), key=run.key)
        return LogitModel(inputs, self._train(network, examples, loss, run))


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
            raise ConfigError("Objective perturbation needs a positive penalty.", setting="penalty")

    def _steps_query(self, domain: Domain, budget: Budget) -> Query:
        """The steps, or the minimum."""
        if self.method == "sgd":
            return super()._steps_query(domain, budget)
        target = target_of(domain, self.target, numeric=False)
        if target in domain.estimated:
            # Each class is a minimum, so the cost would depend on how many classes are estimated.
            raise ConfigError(
                f"method=objective needs the classes of {target!r} to be declared, since each of them costs part of "
                "the budget. Declare its categories in the schema, or use method=sgd.",
                setting="method",
            )
        inputs = 1 + sum(1 + size for size in domain.largest.shape(seen_columns(domain, target, self.columns)))
        if inputs > MAX_INPUTS:
            raise ConfigError(
                f"method=objective supports at most {MAX_INPUTS:,} inputs, but these columns may have up to "
                f"{inputs:,}. Declare their categories, lower max_categories, use fewer columns, or use method=sgd."
            )
        (size,) = domain.shape((target,))
        problems = 1 if size == 2 else size
        what = "the minimum of a perturbed loss" if problems == 1 else f"{problems} minima, one class against the rest"
        return self._query("minimum", what, lambda noise: Pure(1 / noise, problems), domain, budget)

    def fit(self, run: Run) -> LogitModel | OneVersusRest:
        """Formal guarantee: the cost of the plan's queries; all else is post-processing."""
        if self.method == "sgd":
            return self._fit_network((), run)
        target = target_of(run.domain, self.target, numeric=False)
        inputs = self._inputs(run.rows, target, self.numbers, intercept=True)
        weights = class_weights(self.class_weight, run, target)
        positives = [1] if len(weights) == 2 else list(range(len(weights)))
        minima = noisy_minimisers(
            run.rows,
            Examples(inputs, numeric=False),
            positives,
            run.plan["minimum"],
            run.ledger,
            penalty=self.penalty,
            class_weights=weights,
        )
        return OneVersusRest(inputs, Layers((minima.coefficients,), (np.zeros(len(positives)),)))


@dataclasses.dataclass(frozen=True, kw_only=True)
class Perceptron(ClassSteps):
    """A small network over all classes, by DP-SGD."""

    widths: Widths = (64, 64)
    """Widths of the hidden layers."""
    learning_rate: Positive = 2e-2

    def fit(self, run: Run) -> LogitModel:
        """Formal guarantee: the cost of the plan's queries; all else is post-processing."""
        return self._fit_network(self.widths, run)


@dataclasses.dataclass(frozen=True, kw_only=True)
class NumberPerceptron(Steps):
    """A small network for a number, by DP-SGD on the squared error."""

    widths: Widths = (64, 64)
    learning_rate: Positive = 1e-2

    def plan(self, domain: Domain, budget: Budget) -> Plan:
        """All of the budget for the steps."""
        target_of(domain, self.target, numeric=True)  # refuses a target of another kind
        return Plan((self._steps_query(domain, budget),))

    def fit(self, run: Run) -> NumberModel:
        """Formal guarantee: the cost of the plan's queries; all else is post-processing."""
        target = target_of(run.domain, self.target, numeric=True)
        inputs = self._inputs(run.rows, target, self.numbers)
        network = Network((inputs.width, *self.widths, 1), key=run.key)
        examples = Examples(inputs, numeric=True, dtype=np.float32)
        layers = self._train(network, examples, RowLoss(half_square), run)
        return NumberModel(inputs, layers, target_edges(run.rows, target))


def target_edges(rows: PrivateRows, target: str) -> tuple[float, ...]:
    scale = rows.scales[rows.domain.index(target)]
    if scale is None:
        raise ConfigError(f"The target {target!r} has no declared bounds. Declare them in the schema.")
    return scale.edges


# ---------------------------------------------------------------------------------------------------------------- sums


@dataclasses.dataclass(frozen=True, kw_only=True)
class NaiveBayes(Columns):
    """Class frequencies, and each column given the class: categories by counts, numbers by bins or as normal."""

    numbers: Annotated[str, OneOf("bins", "gaussian")] = "bins"
    """How numbers are modelled: by counts of their bins (bins), or as normal given the class (gaussian)."""
    smoothing: Positive = 1.0
    """Added to each noisy count, in rows."""
    least_variance: Positive = 1e-3
    """Variances of numbers from -1 to 1 are at least this."""

    def plan(self, domain: Domain, budget: Budget) -> Plan:
        """One bundle of sums by class."""
        target = target_of(domain, self.target, numeric=False)
        seen = seen_columns(domain, target, self.columns)
        what = f"counts and sums by class, of the target and {len(seen)} columns"
        return Plan((self._query("sums", what, Gaussian, domain, budget),))

    def fit(self, run: Run) -> NaiveBayesModel:
        """Formal guarantee: the cost of the plan's query; all else is post-processing."""
        rows, domain = run.rows, run.domain
        target = target_of(domain, self.target, numeric=False)
        inputs = self._inputs(rows, target, "bins" if self.numbers == "bins" else "positions")
        levels = [column.name for column in inputs.columns if column.middles is None]
        numbers = [column.name for column in inputs.columns if column.middles is not None]
        blocks = class_blocks(domain, rows.scales, target, levels, numbers)
        sums = noisy_class_sums(rows, target, blocks, run.plan["sums"], run.ledger, weights=block_weights(blocks))
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

    def fit(self, run: Run) -> PriorModel:
        """Formal guarantee: the cost of the plan's query; all else is post-processing."""
        target = target_of(run.domain, self.target, numeric=False)
        (noisy,) = noisy_counts(run.rows, [(target,)], run.plan["classes"], run.ledger)
        counts = np.maximum(noisy, 0.0) + self.smoothing
        return PriorModel(np.log(counts / counts.sum()))


@dataclasses.dataclass(frozen=True, kw_only=True)
class Linear(Columns):
    """Least squares from noisy moments, with a ridge that follows from the noise.

    After Wang, "Revisiting differentially private linear regression", 2018 (AdaSSP). Deviations: one Gaussian bundle
    instead of three answers; the least eigenvalue is that of the noisy moments; cells that public facts make zero, two
    levels of one column, are not looked at.
    """

    numbers: Annotated[str, OneOf(*NUMBERS)] = "positions"
    residual: bool = False
    """Whether to measure the residual variance, so that labels can be sampled around predictions."""
    gram_fraction: InnerFraction = 0.6
    """Fraction of the privacy cost for the products of inputs; the rest is for inputs by target."""
    ridge: Positive = 0.4
    """The ridge, as a multiple of the norm of the noise matrix."""

    def plan(self, domain: Domain, budget: Budget) -> Plan:
        """One bundle of moments."""
        target = target_of(domain, self.target, numeric=True)
        seen = seen_columns(domain, target, self.columns)
        check_rows(domain)
        what = f"products of the inputs and the target, of {len(seen)} columns"
        return Plan((self._query("moments", what, Gaussian, domain, budget),))

    def fit(self, run: Run) -> NumberModel:
        """Formal guarantee: the cost of the plan's query; all else is post-processing."""
        rows = run.rows
        target = target_of(run.domain, self.target, numeric=True)
        edges = target_edges(rows, target)
        inputs = self._inputs(rows, target, self.numbers, intercept=True)
        left, absent, examples = 1.0 - 0.05 * self.residual, exclusive(inputs), Examples(inputs, numeric=True)
        gram, cross, square = self.gram_fraction * left, (1 - self.gram_fraction) * left, 1 - left
        weights = (math.sqrt(gram), math.sqrt(cross), math.sqrt(square))
        moments = noisy_moments(rows, examples, run.plan["moments"], run.ledger, weights=weights, absent=absent)
        coefficients = self._solved(moments, absent)
        residual = _residual(moments, coefficients, rows.public_num_rows)
        layers = Layers((coefficients[None, :],), (np.zeros(1),))
        return NumberModel(inputs, layers, edges, residual)

    def _solved(self, moments: Moments, absent: np.ndarray) -> Float[np.ndarray, " inputs"]:
        """Eigenvalues below zero are noise; above, they get the ridge on top."""
        values, vectors = np.linalg.eigh(moments.gram)
        kept = np.maximum(values, 0.0) + self.ridge * _noise_norm(moments.gram_stddev, absent)
        # Columns that sum to the intercept: without noise they are one.
        kept = kept + 1e-9 * max(float(values[-1]), 1.0)
        return vectors @ ((vectors.T @ moments.cross) / kept)


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
