"""Labelled rows: columns from one model, and labels that learners give them. And all models that a release can hold."""

import dataclasses
from collections.abc import Mapping
from typing import Any

import jax
import numpy as np
from jaxtyping import Float, Int, PRNGKeyArray

from understudy.adversarial.models import AT_ONCE, GeneratorModel, PosteriorModel, joined
from understudy.adversarial.pools import Drawn, Mixture, Pool
from understudy.adversarial.products import Products
from understudy.donors import DonorTrees
from understudy.errors import ConditionError, ConfigError
from understudy.learners.models import HOW, Classifier, PriorModel, model_from_arrays
from understudy.learners.models import Model as LearnerModel
from understudy.marginals import GraphicalModel

DRAWS_PER_ROW = 2000
"""A condition on a label may cost so many draws for each row that is asked for, and at least LEAST_DRAWS in all."""
LEAST_DRAWS = 100_000
MOST_AT_ONCE = 1 << 17


@dataclasses.dataclass(frozen=True)
class Labelled:
    """Rows of an inner model, and a label for each of the targets from the row's other columns."""

    names: tuple[str, ...]
    """All columns, in the order of the schema."""
    targets: tuple[str, ...]
    """Those that learners give; the others are the inner model's, in the same order."""
    inner: Any
    learners: tuple[LearnerModel, ...]
    """One for each target. Each sees the inner model's columns, and no label of another."""
    label: str
    """argmax: the likeliest label, or the predicted number. sample: drawn by its probability, or around it."""

    def sample(
        self, num_rows: int, *, key: PRNGKeyArray, allowed: Mapping[str, np.ndarray] | None = None
    ) -> Int[np.ndarray, "rows columns"]:
        """Codes of new rows. With `allowed`, rows that meet it, in the law of the rows that do."""
        return self.draw(num_rows, key=key, allowed=allowed)[0]

    def draw(self, num_rows: int, *, key: PRNGKeyArray, allowed: Mapping[str, np.ndarray] | None = None) -> Drawn:
        """Codes of new rows as `sample` has them, and places of their numbers where there are any.

        The inner model is held to what is allowed of its own columns; rows whose labels are not allowed are rejected.
        """
        of_targets = {name: np.asarray(mask, bool) for name, mask in (allowed or {}).items() if name in self.targets}
        of_inner = {name: mask for name, mask in (allowed or {}).items() if name not in self.targets} or None
        if all(mask.all() for mask in of_targets.values()):
            return self._drawn(num_rows, key, of_inner)
        if not all(mask.any() for mask in of_targets.values()):
            raise ConditionError("No row can meet the condition: it leaves some column no value.")
        kept: list[Drawn] = []
        found = tried = 0
        most, batch = max(LEAST_DRAWS, DRAWS_PER_ROW * num_rows), max(AT_ONCE, min(num_rows, MOST_AT_ONCE))
        while found < num_rows:
            # At this rate all the draws that are allowed would find less than half of the rows.
            if tried >= most or (tried >= LEAST_DRAWS and 2 * found * most < num_rows * tried):
                raise ConditionError(
                    f"Only {found} of {num_rows} rows met the condition in {tried:,} draws. "
                    f"{'Ask for fewer rows, or loosen' if found else 'Loosen'} the condition."
                )
            key, now = jax.random.split(key)
            codes, places = self._drawn(batch, now, of_inner)
            met = np.all([mask[codes[:, self.names.index(name)]] for name, mask in of_targets.items()], axis=0)
            kept.append((codes[met], None if places is None else places[met]))
            found, tried = found + int(met.sum()), tried + len(codes)
        return joined(kept, num_rows)

    def _drawn(self, num_rows: int, key: PRNGKeyArray, allowed: Mapping[str, np.ndarray] | None) -> Drawn:
        inner_key, *label_keys = jax.random.split(key, 1 + len(self.targets))
        codes, places = self.inner.draw(num_rows, key=inner_key, allowed=allowed)
        all_codes = np.empty((num_rows, len(self.names)), dtype=np.int32)
        all_places = np.full(all_codes.shape, np.nan)
        others = [at for at, name in enumerate(self.names) if name not in self.targets]
        all_codes[:, others] = codes
        if places is not None:
            all_places[:, others] = places
        for name, learner, label_key in zip(self.targets, self.learners, label_keys, strict=True):
            at = self.names.index(name)
            all_codes[:, at], all_places[:, at] = self._labels(learner, codes, places, label_key)
        return all_codes, None if places is None and not self._has_numbers else all_places

    @property
    def _has_numbers(self) -> bool:
        return any(learner.is_numeric for learner in self.learners)

    def _labels(
        self,
        learner: LearnerModel,
        codes: Int[np.ndarray, "rows columns"],
        places: Float[np.ndarray, "rows columns"] | None,
        key: PRNGKeyArray,
    ) -> tuple[Int[np.ndarray, " rows"], Float[np.ndarray, " rows"] | float]:
        shown = places if places is None or isinstance(learner, PriorModel) else _filled(learner, codes, places)
        if isinstance(learner, Classifier):
            return learner.labels(codes, shown, how=self.label, key=key), np.nan
        found = learner.predict(codes, shown) if self.label == "argmax" else learner.sample(codes, shown, key=key)
        return learner.codes_of(found), found

    def to_arrays(self) -> tuple[dict[str, object], dict[str, np.ndarray]]:
        parts = {"inner": self.inner.to_arrays()}
        parts |= {f"learner_{number}": learner.to_arrays() for number, learner in enumerate(self.learners)}
        structure: dict[str, object] = {
            "names": list(self.names),
            "targets": list(self.targets),
            "label": self.label,
            "kind_of_inner": next(name for name, cls in MODELS.items() if isinstance(self.inner, cls)),
            "parts": {part: structure for part, (structure, _) in parts.items()},
        }
        return structure, {f"{part}/{name}": array for part, (_, each) in parts.items() for name, array in each.items()}

    @classmethod
    def from_arrays(cls, structure: Mapping, arrays: Mapping[str, np.ndarray]) -> "Labelled":
        names, targets, label = tuple(structure["names"]), tuple(structure["targets"]), structure["label"]
        if not set(targets) < set(names) or label not in HOW:
            raise ValueError(f"{len(targets)} targets among {len(names)} columns, with labels by {label!r}")

        def part(name: str) -> tuple[Mapping, dict[str, np.ndarray]]:
            start = f"{name}/"
            own = {key.removeprefix(start): array for key, array in arrays.items() if key.startswith(start)}
            return structure["parts"][name], own

        inner = MODELS[structure["kind_of_inner"]].from_arrays(*part("inner"))
        try:
            learners = tuple(model_from_arrays(*part(f"learner_{number}")) for number in range(len(targets)))
        except ConfigError as error:
            raise ValueError(str(error)) from error
        return cls(names, targets, inner, learners, label)


def _filled(learner: Any, codes: np.ndarray, places: np.ndarray) -> Float[np.ndarray, "rows columns"]:
    """Places as a learner takes them: a number that has a code and no place stands in the middle of its bin."""
    filled, at = places.copy(), learner.inputs.column_indices(codes.shape[1])
    for column in learner.inputs.columns:
        if column.middles is not None:
            own = at[column.name]
            filled[:, own] = np.where(np.isnan(places[:, own]), column.places_of(codes[:, own]), places[:, own])
    return filled


Model = GraphicalModel | GeneratorModel | Products | Pool | Mixture | Labelled | DonorTrees
MODELS: dict[str, Any] = {
    "graphical": GraphicalModel,
    "posterior": PosteriorModel,  # before the next, of which it is a kind
    "generator": GeneratorModel,
    "products": Products,
    "pool": Pool,
    "mixture": Mixture,
    "labelled": Labelled,
    "donors": DonorTrees,
}
"""The kinds of models a release can hold."""
