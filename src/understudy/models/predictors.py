"""Fitted learners: arrays that predict a target from encoded rows. Post-processing: free to use and to share.

A model takes codes of all columns of its domain, or of all but the target, and positions of numbers where they are
known (else the mean position of the bin). Classifiers return probabilities of the target's codes, regressions positions
of the target in [0, 1]; both return codes of the target, the likeliest or sampled ones.
"""

import abc
import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Self

import jax
import numpy as np
from jaxtyping import Float, Int, PRNGKeyArray
from scipy import special

from understudy.errors import ConfigError
from understudy.models.inputs import Codes, Inputs, Positions

HOW = ("argmax", "sample")

Arrays = dict[str, np.ndarray]


class Classifier(abc.ABC):
    """Probabilities of the target's codes."""

    is_numeric: ClassVar[bool] = False

    @abc.abstractmethod
    def predict_log_proba(
        self, codes: Codes, positions: Positions | None = None
    ) -> Float[np.ndarray, "rows classes"]: ...

    def predict_proba(self, codes: Codes, positions: Positions | None = None) -> Float[np.ndarray, "rows classes"]:
        """The probability of each of the target's codes."""
        return special.softmax(self.predict_log_proba(codes, positions), axis=1)

    def predict(self, codes: Codes, positions: Positions | None = None) -> Int[np.ndarray, " rows"]:
        """The likeliest code of the target."""
        return self.predict_log_proba(codes, positions).argmax(axis=1).astype(np.int32)

    def sample(
        self, codes: Codes, positions: Positions | None = None, *, key: PRNGKeyArray
    ) -> Int[np.ndarray, " rows"]:
        """A code of the target for each row, sampled by its probability."""
        cumulative = np.cumsum(self.predict_proba(codes, positions), axis=1)
        sampled = (_uniforms(key, len(codes))[:, None] * cumulative[:, -1:] >= cumulative).sum(axis=1)
        return np.minimum(sampled, cumulative.shape[1] - 1).astype(np.int32)


class Regression(abc.ABC):
    """A position of the target between its bounds."""

    is_numeric: ClassVar[bool] = True
    edges: tuple[float, ...]
    """Positions of the edges of the target's bins."""
    residual_stddev: float | None
    """The standard deviation of the target around its prediction, as a position; None: it was not estimated."""

    @abc.abstractmethod
    def predict(self, codes: Codes, positions: Positions | None = None) -> Float[np.ndarray, " rows"]:
        """The position of the target, from 0 to 1."""

    def sample(
        self, codes: Codes, positions: Positions | None = None, *, key: PRNGKeyArray
    ) -> Float[np.ndarray, " rows"]:
        """Positions from a normal around each prediction, with the residual's standard deviation, clipped to [0, 1]."""
        if self.residual_stddev is None:
            raise ConfigError(
                "The residual variance was not estimated. Fit with residual=True, or use predictions.",
                setting="residual",
            )
        spread = self.residual_stddev * special.ndtri(_uniforms(key, len(codes)))
        return np.clip(self.predict(codes, positions) + spread, 0.0, 1.0)

    def codes_of(self, positions: Float[np.ndarray, " rows"]) -> Int[np.ndarray, " rows"]:
        """The bins of positions of the target."""
        return np.searchsorted(np.asarray(self.edges[1:-1]), positions, side="right").astype(np.int32)


def _uniforms(key: PRNGKeyArray, count: int) -> Float[np.ndarray, " rows"]:
    """Uniform numbers between zero and one, excluding both."""
    generator = np.random.default_rng(np.asarray(jax.random.key_data(key)))
    return generator.random(count) * (1 - 2.0**-52) + 2.0**-53


# ------------------------------------------------------------------------------------------------------------ networks


@dataclasses.dataclass(frozen=True)
class Layers:
    """Linear layers with ReLU between them; one layer is a linear model."""

    weights: tuple[Float[np.ndarray, "out into"], ...]
    biases: tuple[Float[np.ndarray, " out"], ...]

    def __call__(self, inputs: Float[np.ndarray, "rows inputs"]) -> Float[np.ndarray, "rows out"]:
        for number, (weight, bias) in enumerate(zip(self.weights, self.biases, strict=True)):
            inputs = np.maximum(inputs, 0.0) if number else inputs
            inputs = inputs @ weight.T + bias
        return inputs

    def to_arrays(self) -> Arrays:
        named = {f"weight_{number}": np.asarray(weight) for number, weight in enumerate(self.weights)}
        return named | {f"bias_{number}": np.asarray(bias) for number, bias in enumerate(self.biases)}

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, np.ndarray]) -> "Layers":
        count = sum(name.startswith("weight_") for name in arrays)
        return cls(
            tuple(np.asarray(arrays[f"weight_{number}"], dtype=np.float64) for number in range(count)),
            tuple(np.asarray(arrays[f"bias_{number}"], dtype=np.float64) for number in range(count)),
        )


@dataclasses.dataclass(frozen=True)
class LayeredClassifier(Classifier):
    """Scores of the target's codes from linear layers."""

    kind: ClassVar[str]
    inputs: Inputs
    layers: Layers

    def scores(self, codes: Codes, positions: Positions | None) -> Float[np.ndarray, "rows out"]:
        return self.layers(self.inputs.encode(codes, positions))

    def to_arrays(self) -> tuple[dict[str, object], Arrays]:
        return {"kind": self.kind, "inputs": self.inputs.to_dict()}, self.layers.to_arrays()

    @classmethod
    def from_arrays(cls, structure: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> Self:
        return cls(Inputs.from_dict(structure["inputs"]), Layers.from_arrays(arrays))


class LogitModel(LayeredClassifier):
    """Logits of the target's codes: logistic regression, or a small network."""

    kind: ClassVar[str] = "logits"

    def predict_log_proba(self, codes: Codes, positions: Positions | None = None) -> Float[np.ndarray, "rows classes"]:
        return special.log_softmax(self.scores(codes, positions), axis=1)


class OneVersusRest(LayeredClassifier):
    """One logistic model for each class against all others; their probabilities are scaled to sum to one."""

    kind: ClassVar[str] = "one_versus_rest"

    def predict_log_proba(self, codes: Codes, positions: Positions | None = None) -> Float[np.ndarray, "rows classes"]:
        scores = self.scores(codes, positions)
        if scores.shape[1] == 1:  # two classes need one model
            scores = np.c_[-scores, scores]
        logs = -np.logaddexp(0.0, -scores)
        return logs - special.logsumexp(logs, axis=1, keepdims=True)


@dataclasses.dataclass(frozen=True)
class NumberModel(Regression):
    """The target as a number scaled to [-1, 1], by linear layers."""

    kind: ClassVar[str] = "number"
    inputs: Inputs
    layers: Layers
    edges: tuple[float, ...]
    residual_stddev: float | None = None

    def predict(self, codes: Codes, positions: Positions | None = None) -> Float[np.ndarray, " rows"]:
        return np.clip((self.layers(self.inputs.encode(codes, positions))[:, 0] + 1) / 2, 0.0, 1.0)

    def to_arrays(self) -> tuple[dict[str, object], Arrays]:
        facts = {"edges": list(self.edges), "residual_stddev": self.residual_stddev}
        return {"kind": self.kind, "inputs": self.inputs.to_dict(), **facts}, self.layers.to_arrays()

    @classmethod
    def from_arrays(cls, structure: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> "NumberModel":
        inputs = Inputs.from_dict(structure["inputs"])
        return cls(inputs, Layers.from_arrays(arrays), tuple(structure["edges"]), structure["residual_stddev"])


# --------------------------------------------------------------------------------------------------------- naive Bayes


@dataclasses.dataclass(frozen=True)
class NaiveBayesModel(Classifier):
    """Class probabilities, and each column given the class, as if columns were independent given the class."""

    kind: ClassVar[str] = "naive_bayes"
    inputs: Inputs
    """Which columns enter by codes, and which as numbers."""
    log_prior: Float[np.ndarray, " classes"]
    log_levels: Mapping[str, Float[np.ndarray, "classes codes"]]
    means: Mapping[str, Float[np.ndarray, " classes"]]
    """Of numbers scaled to [-1, 1]; a missing number has no influence."""
    variances: Mapping[str, Float[np.ndarray, " classes"]]

    def predict_log_proba(self, codes: Codes, positions: Positions | None = None) -> Float[np.ndarray, "rows classes"]:
        at = self.inputs.column_indices(codes.shape[1])
        joint = np.tile(self.log_prior, (len(codes), 1))
        for column in self.inputs.columns:
            column_codes = codes[:, at[column.name]]
            if column.name in self.log_levels:
                joint += self.log_levels[column.name][:, column_codes].T
                continue
            position = column.positions_of(column_codes) if positions is None else positions[:, at[column.name]]
            mean, variance = self.means[column.name], self.variances[column.name]
            number = np.clip(2 * position - 1, -1.0, 1.0)[:, None]
            logs = -0.5 * (np.log(2 * np.pi * variance) + (number - mean) ** 2 / variance)
            joint += np.where(np.isnan(number), 0.0, logs)
        return joint - special.logsumexp(joint, axis=1, keepdims=True)

    def to_arrays(self) -> tuple[dict[str, object], Arrays]:
        arrays = {"log_prior": self.log_prior}
        for number, column in enumerate(self.inputs.columns):
            if column.name in self.log_levels:
                arrays[f"log_levels_{number}"] = self.log_levels[column.name]
            else:
                arrays[f"means_{number}"] = self.means[column.name]
                arrays[f"variances_{number}"] = self.variances[column.name]
        return {"kind": self.kind, "inputs": self.inputs.to_dict()}, arrays

    @classmethod
    def from_arrays(cls, structure: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> "NaiveBayesModel":
        inputs = Inputs.from_dict(structure["inputs"])

        def named(what: str) -> dict[str, np.ndarray]:
            return {
                column.name: np.asarray(arrays[f"{what}_{number}"])
                for number, column in enumerate(inputs.columns)
                if f"{what}_{number}" in arrays
            }

        return cls(inputs, np.asarray(arrays["log_prior"]), named("log_levels"), named("means"), named("variances"))


@dataclasses.dataclass(frozen=True)
class PriorModel(Classifier):
    """Class probabilities alone, whatever the row."""

    kind: ClassVar[str] = "prior"
    log_prior: Float[np.ndarray, " classes"]

    def predict_log_proba(self, codes: Codes, positions: Positions | None = None) -> Float[np.ndarray, "rows classes"]:
        return np.tile(self.log_prior, (len(codes), 1))

    def to_arrays(self) -> tuple[dict[str, object], Arrays]:
        return {"kind": self.kind}, {"log_prior": self.log_prior}

    @classmethod
    def from_arrays(cls, structure: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> "PriorModel":
        return cls(np.asarray(arrays["log_prior"]))


Predictor = LogitModel | OneVersusRest | NumberModel | NaiveBayesModel | PriorModel
PREDICTORS: Sequence[type[Predictor]] = (LogitModel, OneVersusRest, NumberModel, NaiveBayesModel, PriorModel)


def predictor_from_arrays(structure: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> Predictor:
    """The model that `to_arrays` wrote."""
    known = {model.kind: model for model in PREDICTORS}
    if structure.get("kind") not in known:
        raise ConfigError(f"Expected a learner of kind {', '.join(known)}, found {structure.get('kind')!r}.")
    return known[structure["kind"]].from_arrays(structure, arrays)
