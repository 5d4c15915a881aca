"""Models made of what a training left on its way: a pool of weighted rows, or several generators in equal parts."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import numpy as np
from jaxtyping import Float, Int, PRNGKeyArray

from understudy.adversarial.models import AT_ONCE, MOST_DRAWS, GeneratorModel, joined
from understudy.adversarial.products import Products
from understudy.boosting import drawn
from understudy.errors import ConditionError

Drawn = tuple[Int[np.ndarray, "rows columns"], Float[np.ndarray, "rows columns"] | None]
"""Codes, and places of numbers where there are any."""


@dataclasses.dataclass(frozen=True)
class Pool:
    """Generated rows and the probability of each. Rows are drawn from it independently, with replacement."""

    names: tuple[str, ...]
    codes: Int[np.ndarray, "samples columns"]
    weights: Float[np.ndarray, " samples"]
    places: Float[np.ndarray, "samples columns"] | None = None
    """Where generated numbers lie between their bounds, NaN for what is none; None: all follows from the codes."""

    def sample(
        self, num_rows: int, *, key: PRNGKeyArray, allowed: Mapping[str, np.ndarray] | None = None
    ) -> Int[np.ndarray, "rows columns"]:
        """Codes of new rows. With `allowed`, in the law of the rows that meet it."""
        return self.draw(num_rows, key=key, allowed=allowed)[0]

    def draw(self, num_rows: int, *, key: PRNGKeyArray, allowed: Mapping[str, np.ndarray] | None = None) -> Drawn:
        """Codes of new rows as `sample` has them, and the places of their numbers where the pool has any."""
        weights = np.asarray(self.weights, dtype=np.float64)
        if allowed:
            weights = np.where(_met(self.names, self.codes, allowed), weights, 0.0)
        if not weights.sum() > 0:
            raise ConditionError(
                f"None of the model's {len(self.codes):,} rows meets the condition. Loosen it, or fit with more rows "
                "to draw from: samples_per_generator of boosted, proposals of drs."
            )
        generator = np.random.default_rng(np.asarray(jax.random.key_data(key)))
        at = drawn(weights, num_rows, generator)
        return self.codes[at].astype(np.int32), None if self.places is None else self.places[at]

    def only(self, kept: Int[np.ndarray, " kept"]) -> "Pool":
        """These of its rows, evenly."""
        places = None if self.places is None else self.places[kept]
        return Pool(self.names, self.codes[kept], np.full(len(kept), 1 / len(kept)), places)

    def weighted(self) -> tuple[Int[np.ndarray, "samples columns"], Float[np.ndarray, " samples"]]:
        """All rows with their weights, for those who can use weights."""
        return self.codes.astype(np.int32), np.asarray(self.weights, dtype=np.float64) / float(np.sum(self.weights))

    def to_arrays(self) -> tuple[dict[str, object], dict[str, np.ndarray]]:
        least = np.min_scalar_type(int(self.codes.max(initial=0)))
        structure: dict[str, object] = {"names": list(self.names)}
        arrays = {"codes": self.codes.astype(least), "weights": np.asarray(self.weights, dtype=np.float64)}
        if self.places is not None:
            placed = [at for at in range(len(self.names)) if not np.isnan(self.places[:, at]).all()]
            if placed:
                structure["placed"] = placed
                arrays["places"] = np.asarray(self.places[:, placed], dtype=np.float64)
        return structure, arrays

    @classmethod
    def from_arrays(cls, structure: Mapping, arrays: Mapping[str, np.ndarray]) -> "Pool":
        names, codes, weights = tuple(structure["names"]), arrays["codes"], arrays["weights"]
        if codes.ndim != 2 or codes.shape != (len(weights), len(names)) or not np.all(weights >= 0):
            raise ValueError(f"codes of shape {codes.shape} and {len(weights)} weights for {len(names)} columns")
        places = None
        if "placed" in structure:
            if arrays["places"].shape != (len(codes), len(structure["placed"])):
                raise ValueError(f"places of shape {arrays['places'].shape} for codes of shape {codes.shape}")
            places = np.full(codes.shape, np.nan)
            places[:, structure["placed"]] = arrays["places"]
        return cls(names, codes.astype(np.int32), weights, places)


@dataclasses.dataclass(frozen=True)
class Mixture:
    """Several generators, each making the same number of rows; what is left over comes from the first."""

    parts: tuple[GeneratorModel, ...]

    def sample(
        self, num_rows: int, *, key: PRNGKeyArray, allowed: Mapping[str, np.ndarray] | None = None
    ) -> Int[np.ndarray, "rows columns"]:
        """Codes of new rows. With `allowed`, rows that meet it, in the law of the rows that do."""
        return self.draw(num_rows, key=key, allowed=allowed)[0]

    def draw(self, num_rows: int, *, key: PRNGKeyArray, allowed: Mapping[str, np.ndarray] | None = None) -> Drawn:
        """Codes of new rows as `sample` has them, and the places of their numbers where the generators give any."""
        if not allowed:
            return self._drawn(num_rows, key)
        kept: list[Drawn] = []
        found = tried = 0
        while found < num_rows:
            key, now = jax.random.split(key)
            codes, places = self._drawn(AT_ONCE * len(self.parts), now)
            met = _met(self.parts[0].names, codes, allowed)
            kept.append((codes[met], None if places is None else places[met]))
            found, tried = found + int(met.sum()), tried + len(codes)
            if tried >= max(100_000, MOST_DRAWS * num_rows) and found < num_rows:
                raise ConditionError(
                    f"Only {found} of {num_rows} rows met the condition in {tried:,} draws. "
                    f"{'Ask for fewer rows, or loosen' if found else 'Loosen'} the condition."
                )
        return joined(kept, num_rows)

    def _drawn(self, num_rows: int, key: PRNGKeyArray) -> Drawn:
        keys = jax.random.split(key, len(self.parts) + 1)
        each = [num_rows // len(self.parts)] * len(self.parts)
        each[0] += num_rows - sum(each)
        drawn = [part.draw(size, key=one) for part, size, one in zip(self.parts, each, keys, strict=False)]
        codes, places = joined(drawn, num_rows)
        # The order of rows must not tell the generators apart, nor a cut favour the first.
        order = np.random.default_rng(np.asarray(jax.random.key_data(keys[-1]))).permutation(num_rows)
        return codes[order], None if places is None else places[order]

    def to_arrays(self) -> tuple[dict[str, object], dict[str, np.ndarray]]:
        both = [part.to_arrays() for part in self.parts]
        arrays = {f"{number}/{name}": array for number, (_, each) in enumerate(both) for name, array in each.items()}
        return {"parts": [structure for structure, _ in both]}, arrays

    @classmethod
    def from_arrays(cls, structure: Mapping, arrays: Mapping[str, np.ndarray]) -> "Mixture":
        def of(number: int) -> dict[str, np.ndarray]:
            start = f"{number}/"
            return {name.removeprefix(start): array for name, array in arrays.items() if name.startswith(start)}

        return cls(
            tuple(GeneratorModel.from_arrays(part, of(number)) for number, part in enumerate(structure["parts"]))
        )


def mixed(parts: Sequence[Any]) -> Any:
    """Models of one kind in equal parts, as a model that a release can hold."""
    if len(parts) == 1:
        return parts[0]
    if all(isinstance(part, Products) for part in parts):
        # Components have equal parts, and all models as many of them.
        return dataclasses.replace(parts[0], probabilities=np.concatenate([part.probabilities for part in parts]))
    return Mixture(tuple(parts))


def _met(names: tuple[str, ...], codes: np.ndarray, allowed: Mapping[str, np.ndarray]) -> np.ndarray:
    """Which rows every column's condition allows."""
    met = np.ones(len(codes), dtype=bool)
    for name, mask in allowed.items():
        met &= np.asarray(mask, dtype=bool)[codes[:, names.index(name)]]
    return met
