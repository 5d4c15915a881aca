"""Models made of what a training left on its way: a pool of weighted rows, or several generators in equal parts."""

import dataclasses
from collections.abc import Mapping

import jax
import numpy as np
from jaxtyping import Float, Int, PRNGKeyArray

from understudy.adversarial.models import AT_ONCE, MOST_DRAWS, GeneratorModel
from understudy.boosting import drawn
from understudy.errors import ConditionError


@dataclasses.dataclass(frozen=True)
class Pool:
    """Generated rows and the probability of each. Rows are drawn from it independently, with replacement."""

    names: tuple[str, ...]
    codes: Int[np.ndarray, "samples columns"]
    weights: Float[np.ndarray, " samples"]

    def sample(
        self, num_rows: int, *, key: PRNGKeyArray, allowed: Mapping[str, np.ndarray] | None = None
    ) -> Int[np.ndarray, "rows columns"]:
        """Codes of new rows. With `allowed`, in the law of the rows that meet it."""
        weights = np.asarray(self.weights, dtype=np.float64)
        if allowed:
            weights = np.where(_met(self.names, self.codes, allowed), weights, 0.0)
        if not weights.sum() > 0:
            raise ConditionError(
                f"None of the model's {len(self.codes):,} rows meets the condition. Loosen it, or fit with more "
                "samples_per_generator."
            )
        generator = np.random.default_rng(np.asarray(jax.random.key_data(key)))
        return self.codes[drawn(weights, num_rows, generator)].astype(np.int32)

    def weighted(self) -> tuple[Int[np.ndarray, "samples columns"], Float[np.ndarray, " samples"]]:
        """All rows with their weights, for those who can use weights."""
        return self.codes.astype(np.int32), np.asarray(self.weights, dtype=np.float64) / float(np.sum(self.weights))

    def to_arrays(self) -> tuple[dict[str, object], dict[str, np.ndarray]]:
        least = np.min_scalar_type(int(self.codes.max(initial=0)))
        return {"names": list(self.names)}, {
            "codes": self.codes.astype(least),
            "weights": np.asarray(self.weights, dtype=np.float64),
        }

    @classmethod
    def from_arrays(cls, structure: Mapping, arrays: Mapping[str, np.ndarray]) -> "Pool":
        names, codes, weights = tuple(structure["names"]), arrays["codes"], arrays["weights"]
        if codes.ndim != 2 or codes.shape != (len(weights), len(names)) or not np.all(weights >= 0):
            raise ValueError(f"codes of shape {codes.shape} and {len(weights)} weights for {len(names)} columns")
        return cls(names, codes.astype(np.int32), weights)


@dataclasses.dataclass(frozen=True)
class Mixture:
    """Several generators, each making the same number of rows; what is left over comes from the first."""

    parts: tuple[GeneratorModel, ...]

    def sample(
        self, num_rows: int, *, key: PRNGKeyArray, allowed: Mapping[str, np.ndarray] | None = None
    ) -> Int[np.ndarray, "rows columns"]:
        """Codes of new rows. With `allowed`, rows that meet it, in the law of the rows that do."""
        if not allowed:
            return self._drawn(num_rows, key)
        kept: list[np.ndarray] = []
        found = tried = 0
        while found < num_rows:
            key, now = jax.random.split(key)
            codes = self._drawn(AT_ONCE * len(self.parts), now)
            kept.append(codes[_met(self.parts[0].names, codes, allowed)])
            found, tried = found + len(kept[-1]), tried + len(codes)
            if tried >= max(100_000, MOST_DRAWS * num_rows) and found < num_rows:
                raise ConditionError(
                    f"Only {found} of {num_rows} rows met the condition in {tried:,} draws. "
                    f"{'Ask for fewer rows, or loosen' if found else 'Loosen'} the condition."
                )
        return np.concatenate(kept)[:num_rows]

    def _drawn(self, num_rows: int, key: PRNGKeyArray) -> np.ndarray:
        keys = jax.random.split(key, len(self.parts) + 1)
        each = [num_rows // len(self.parts)] * len(self.parts)
        each[0] += num_rows - sum(each)
        rows = np.concatenate(
            [part.sample(size, key=one) for part, size, one in zip(self.parts, each, keys, strict=False)]
        )
        # The order of rows must not tell the generators apart, nor a cut favour the first.
        return np.random.default_rng(np.asarray(jax.random.key_data(keys[-1]))).permutation(rows)

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


def _met(names: tuple[str, ...], codes: np.ndarray, allowed: Mapping[str, np.ndarray]) -> np.ndarray:
    """Which rows every column's condition allows."""
    met = np.ones(len(codes), dtype=bool)
    for name, mask in allowed.items():
        met &= np.asarray(mask, dtype=bool)[codes[:, names.index(name)]]
    return met
