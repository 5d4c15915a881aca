"""QUAIL's model: columns from an inner model, and labels that learners predict from them."""

import dataclasses
from typing import ClassVar

import jax
import numpy as np
from jaxtyping import Float, Int, PRNGKeyArray

from understudy.errors import ConfigError
from understudy.models.predictors import HOW, Classifier, Predictor, PriorModel, predictor_from_arrays
from understudy.models.protocol import Allowed, Arrays, Model, Sample, Structure, nest, pack, register, unnest, unpack
from understudy.models.rejection import BATCH_SIZE, check_satisfiable, sample_allowed

MAX_BATCH_SIZE = 1 << 17


@register
@dataclasses.dataclass(frozen=True)
class QuailModel:
    """Rows of an inner model, and a label for each of the targets from the row's other columns."""

    kind: ClassVar[str] = "quail"
    names: tuple[str, ...]
    """All columns, in the order of the schema."""
    targets: tuple[str, ...]
    """Those that learners predict; the others are the inner model's, in the same order."""
    inner: Model
    learners: tuple[Predictor, ...]
    """One for each target. Each sees the inner model's columns, and no other label."""
    label: str
    """argmax: the likeliest label, or the predicted number. sample: drawn by its probability, or around it."""

    def sample(self, num_rows: int, *, key: PRNGKeyArray, allowed: Allowed | None = None) -> Sample:
        """New rows. The inner model is conditioned on `allowed`; labels that are not allowed are rejected."""
        of_targets = {name: mask for name, mask in (allowed or {}).items() if name in self.targets}
        of_inner = {name: mask for name, mask in (allowed or {}).items() if name not in self.targets} or None

        def draw(size: int, batch_key: PRNGKeyArray) -> Sample:
            return self._draw(size, batch_key, of_inner)

        if all(np.all(mask) for mask in of_targets.values()):
            return draw(num_rows, key)
        check_satisfiable(of_targets)
        batch_size = max(BATCH_SIZE, min(num_rows, MAX_BATCH_SIZE))
        return sample_allowed(draw, self.names, of_targets, num_rows, key=key, batch_size=batch_size)

    def _draw(self, num_rows: int, key: PRNGKeyArray, allowed: Allowed | None) -> Sample:
        inner_key, *label_keys = jax.random.split(key, 1 + len(self.targets))
        inner = self.inner.sample(num_rows, key=inner_key, allowed=allowed)
        codes = np.empty((num_rows, len(self.names)), dtype=np.int32)
        positions = np.full(codes.shape, np.nan)
        others = [at for at, name in enumerate(self.names) if name not in self.targets]
        codes[:, others] = inner.codes
        if inner.positions is not None:
            positions[:, others] = inner.positions
        for name, learner, label_key in zip(self.targets, self.learners, label_keys, strict=True):
            at = self.names.index(name)
            codes[:, at], positions[:, at] = self._predict(learner, inner, label_key)
        has_numbers = inner.positions is not None or any(learner.is_numeric for learner in self.learners)
        return Sample(codes, positions if has_numbers else None)

    def _predict(
        self, learner: Predictor, rows: Sample, key: PRNGKeyArray
    ) -> tuple[Int[np.ndarray, " rows"], Float[np.ndarray, " rows"] | float]:
        """Codes of the labels, and their positions where they are numbers."""
        positions = _fill_positions(learner, rows)
        if self.label == "argmax":
            predicted = learner.predict(rows.codes, positions)
        else:
            predicted = learner.sample(rows.codes, positions, key=key)
        return (predicted, np.nan) if isinstance(learner, Classifier) else (learner.codes_of(predicted), predicted)

    def to_arrays(self) -> tuple[dict[str, object], dict[str, np.ndarray]]:
        parts = {"inner": pack(self.inner)}
        parts |= {f"learner_{number}": learner.to_arrays() for number, learner in enumerate(self.learners)}
        structure: dict[str, object] = {
            "names": list(self.names),
            "targets": list(self.targets),
            "label": self.label,
            "parts": {part: content for part, (content, _) in parts.items()},
        }
        return structure, nest({part: arrays for part, (_, arrays) in parts.items()})

    @classmethod
    def from_arrays(cls, structure: Structure, arrays: Arrays) -> "QuailModel":
        names, targets, label = tuple(structure["names"]), tuple(structure["targets"]), structure["label"]
        if not set(targets) < set(names) or label not in HOW:
            raise ValueError(f"{len(targets)} targets among {len(names)} columns, with labels by {label!r}")
        parts = structure["parts"]
        inner = unpack(parts["inner"], unnest(arrays, "inner"))
        learner_parts = [f"learner_{number}" for number in range(len(targets))]
        try:
            learners = tuple(predictor_from_arrays(parts[part], unnest(arrays, part)) for part in learner_parts)
        except ConfigError as error:
            raise ValueError(str(error)) from error
        return cls(names, targets, inner, learners, label)


def _fill_positions(learner: Predictor, rows: Sample) -> Float[np.ndarray, "rows columns"] | None:
    """Positions as a learner takes them: a number that has only a code is put in the middle of its bin."""
    if rows.positions is None or isinstance(learner, PriorModel):
        return rows.positions
    filled, at = rows.positions.copy(), learner.inputs.column_indices(rows.codes.shape[1])
    for column in learner.inputs.columns:
        if column.middles is not None:
            own, middles = filled[:, at[column.name]], column.positions_of(rows.codes[:, at[column.name]])
            filled[:, at[column.name]] = np.where(np.isnan(own), middles, own)
    return filled
