"""Models made of the checkpoints of a training: a pool of weighted rows, or a mixture of models with equal weights."""

import dataclasses
from collections.abc import Sequence
from typing import ClassVar

import jax
import numpy as np
from jaxtyping import Float, Int, PRNGKeyArray

from understudy.errors import ConditionError
from understudy.models.mixture import MixtureOfProducts
from understudy.models.protocol import (
    Allowed,
    Arrays,
    Model,
    Sample,
    Structure,
    concatenate,
    nest,
    pack,
    register,
    unnest,
    unpack,
)
from understudy.models.rejection import BATCH_SIZE, meets, sample_allowed

WEIGHT_COLUMN = "sample_weight"
"""The column of a synthetic table that has the weights of its rows, where they are not equal."""


@register
@dataclasses.dataclass(frozen=True)
class Pool:
    """Generated rows and the probability of each. Samples are drawn from it independently, with replacement."""

    kind: ClassVar[str] = "pool"
    names: tuple[str, ...]
    codes: Int[np.ndarray, "samples columns"]
    weights: Float[np.ndarray, " samples"]
    positions: Float[np.ndarray, "samples columns"] | None = None
    """Of generated numbers between their bounds, NaN elsewhere; None: all values follow from the codes."""
    is_weighted: bool = False
    """Whether synthetic tables have rows sampled with equal probability, and their weights as a column."""

    def sample(self, num_rows: int, *, key: PRNGKeyArray, allowed: Allowed | None = None) -> Sample:
        """New rows. With `allowed`, among the pool's rows that meet it."""
        weights = self._weights_meeting(allowed)
        generator = np.random.default_rng(np.asarray(jax.random.key_data(key)))
        return self._take(draw_indices(weights, num_rows, generator))

    def sample_weighted(
        self, num_rows: int, *, key: PRNGKeyArray, allowed: Allowed | None = None
    ) -> tuple[Sample, Float[np.ndarray, " rows"]]:
        """Rows with equal probability, and their weights; the mean weight of the whole pool is 1.

        No row comes twice before all have come once, so a sample of the size of the pool is the pool. Weighted, rows
        follow the distribution of `sample`.
        """
        weights = self._weights_meeting(allowed)
        generator = np.random.default_rng(np.asarray(jax.random.key_data(key)))
        open_rows = np.flatnonzero(weights)
        passes = [generator.permutation(open_rows) for _ in range(-(-num_rows // len(open_rows)))]
        chosen = np.concatenate(passes)[:num_rows]
        scale = len(weights) / float(np.sum(self.weights, dtype=np.float64))
        return self._take(chosen), weights[chosen] * scale

    def _weights_meeting(self, allowed: Allowed | None) -> Float[np.ndarray, " samples"]:
        """The weights, 0 for rows that do not meet the condition."""
        weights = np.asarray(self.weights, dtype=np.float64)
        if allowed:
            weights = np.where(meets(self.names, self.codes, allowed), weights, 0.0)
        if not weights.sum() > 0:
            raise ConditionError(
                f"None of the model's {len(self.codes):,} rows meets the condition. Loosen it, or fit with a larger "
                "pool: samples_per_generator of boosted, proposals of drs."
            )
        return weights

    def _take(self, chosen: Int[np.ndarray, " rows"]) -> Sample:
        codes, positions = Sample(self.codes, self.positions).take(chosen)
        return Sample(codes.astype(np.int32), positions)

    def only(self, kept: Int[np.ndarray, " kept"]) -> "Pool":
        """The pool of these rows, with equal weights."""
        codes, positions = Sample(self.codes, self.positions).take(kept)
        return Pool(self.names, codes, np.full(len(kept), 1 / len(kept)), positions)

    def to_arrays(self) -> tuple[dict[str, object], dict[str, np.ndarray]]:
        smallest = np.min_scalar_type(int(self.codes.max(initial=0)))
        structure: dict[str, object] = {"names": list(self.names)}
        if self.is_weighted:
            structure["weighted"] = True
        arrays = {"codes": self.codes.astype(smallest), "weights": np.asarray(self.weights, dtype=np.float64)}
        if self.positions is not None:
            numbers = [at for at in range(len(self.names)) if not np.isnan(self.positions[:, at]).all()]
            if numbers:
                structure["numbers"] = numbers
                arrays["positions"] = np.asarray(self.positions[:, numbers], dtype=np.float64)
        return structure, arrays

    @classmethod
    def from_arrays(cls, structure: Structure, arrays: Arrays) -> "Pool":
        names, codes, weights = tuple(structure["names"]), arrays["codes"], arrays["weights"]
        if codes.ndim != 2 or codes.shape != (len(weights), len(names)) or not np.all(weights >= 0):
            raise ValueError(f"codes of shape {codes.shape} and {len(weights)} weights for {len(names)} columns")
        positions = None
        if "numbers" in structure:
            if arrays["positions"].shape != (len(codes), len(structure["numbers"])):
                raise ValueError(f"positions of shape {arrays['positions'].shape} for codes of shape {codes.shape}")
            positions = np.full(codes.shape, np.nan)
            positions[:, structure["numbers"]] = arrays["positions"]
        return cls(names, codes.astype(np.int32), weights, positions, is_weighted=structure.get("weighted") is True)


def draw_indices(
    weights: Float[np.ndarray, " samples"], size: int, generator: np.random.Generator
) -> Int[np.ndarray, " size"]:
    """Independent draws by weight, with replacement."""
    cumulative = np.cumsum(weights, dtype=np.float64)
    indices = np.searchsorted(cumulative, generator.random(size) * cumulative[-1], side="right")
    return np.minimum(indices, len(weights) - 1)


@register
@dataclasses.dataclass(frozen=True)
class Mixture:
    """Several models, each sampled for the same number of rows; the first ones for the remainder."""

    kind: ClassVar[str] = "mixture"
    parts: tuple[Model, ...]

    @property
    def names(self) -> tuple[str, ...]:
        return self.parts[0].names

    def sample(self, num_rows: int, *, key: PRNGKeyArray, allowed: Allowed | None = None) -> Sample:
        """New rows. With `allowed`, by rejection."""
        batch_size = BATCH_SIZE * len(self.parts)
        return sample_allowed(self._draw, self.names, allowed, num_rows, key=key, batch_size=batch_size)

    def _draw(self, num_rows: int, key: PRNGKeyArray) -> Sample:
        *part_keys, order_key = jax.random.split(key, len(self.parts) + 1)
        sizes = [num_rows // len(self.parts)] * len(self.parts)
        sizes[0] += num_rows - sum(sizes)
        samples = [
            part.sample(size, key=part_key) for part, size, part_key in zip(self.parts, sizes, part_keys, strict=True)
        ]
        # Shuffled, so that the order of rows reveals no component, and a cut favours none.
        order = np.random.default_rng(np.asarray(jax.random.key_data(order_key))).permutation(num_rows)
        return concatenate(samples, num_rows).take(order)

    def to_arrays(self) -> tuple[dict[str, object], dict[str, np.ndarray]]:
        contents, arrays = zip(*(pack(part) for part in self.parts), strict=True)
        return {"parts": list(contents)}, nest({str(number): each for number, each in enumerate(arrays)})

    @classmethod
    def from_arrays(cls, structure: Structure, arrays: Arrays) -> "Mixture":
        return cls(tuple(unpack(part, unnest(arrays, str(number))) for number, part in enumerate(structure["parts"])))


def mix(models: Sequence[Model]) -> Model:
    """The mixture of models with equal weights."""
    if len(models) == 1:
        return models[0]
    products = [model for model in models if isinstance(model, MixtureOfProducts)]
    if len(products) == len(models):
        # Components have equal weights, and all models the same number of them.
        probabilities = np.concatenate([model.probabilities for model in products])
        return dataclasses.replace(products[0], probabilities=probabilities)
    return Mixture(tuple(models))
