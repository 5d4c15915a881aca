"""Inputs of a learner: every column but the target as numbers, and the target as a label.

Categories are one-hot. A number is its position between its bounds, scaled to [-1, 1], or one-hot by its bin, or both;
without bins, one more input marks a missing number. The encoding is public or estimated privately, the inputs of a row
depend on that row alone, and their Euclidean norm is at most one.
"""

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from jaxtyping import Float, Int, PRNGKeyArray

from understudy.errors import ConfigError
from understudy.privacy.mechanisms.discovery import rounded
from understudy.schema import Domain, NumericDomain

NUMBERS = ("positions", "bins", "both")

Codes = Int[np.ndarray, "rows columns"]
Positions = Float[np.ndarray, "rows columns"]


@dataclasses.dataclass(frozen=True)
class Input:
    """One column."""

    name: str
    size: int
    """The number of its codes."""
    middles: tuple[float, ...] | None = None
    """The mean position of each bin of a number; None: the column enters by its codes alone."""
    nullable: bool = False
    binned: bool = True
    """Whether there is an input for each code."""

    @property
    def width(self) -> int:
        return (self.size if self.binned else 0) + (0 if self.middles is None else 1 + self._marks_nulls)

    @property
    def max_squared_norm(self) -> float:
        return float(self.binned) + (0.0 if self.middles is None else 1.0)

    @property
    def _marks_nulls(self) -> bool:
        """Whether one input marks nulls; with bins they have a code."""
        return self.nullable and not self.binned

    @property
    def names(self) -> tuple[str, ...]:
        """Names of its inputs, for display."""
        categories = tuple(f"{self.name}={code}" for code in range(self.size)) if self.binned else ()
        number = () if self.middles is None else (self.name,)
        return (*number, *((f"{self.name} missing",) if self._marks_nulls else ()), *categories)

    def encode(
        self, codes: Int[np.ndarray, " rows"], positions: Float[np.ndarray, " rows"] | None
    ) -> Float[np.ndarray, "rows inputs"]:
        parts = []
        if self.middles is not None:
            own = self.positions_of(codes) if positions is None else positions
            missing = np.isnan(own)
            parts.append(np.clip(np.where(missing, 0.0, 2 * own - 1), -1.0, 1.0)[:, None])
            if self._marks_nulls:
                parts.append(missing[:, None].astype(float))
        if self.binned:
            parts.append(np.eye(self.size)[codes])
        return np.concatenate(parts, axis=1)

    def positions_of(self, codes: Int[np.ndarray, " rows"]) -> Float[np.ndarray, " rows"]:
        """The mean position of each code's bin; NaN for nulls."""
        assert self.middles is not None
        return np.r_[np.asarray(self.middles), np.nan][np.minimum(codes, len(self.middles))]


@dataclasses.dataclass(frozen=True)
class Inputs:
    """The columns that a learner predicts from, and the one that it predicts."""

    names: tuple[str, ...]
    """All columns of the domain, in its order."""
    target: str
    columns: tuple[Input, ...]
    intercept: bool = False
    """Whether there is one more input, which is constant."""

    @property
    def width(self) -> int:
        return sum(column.width for column in self.columns) + self.intercept

    @property
    def input_names(self) -> tuple[str, ...]:
        return (*(name for column in self.columns for name in column.names), *(["intercept"] if self.intercept else []))

    @property
    def scale(self) -> float:
        """The factor of all inputs that bounds the norm of a row by one."""
        return 1 / math.sqrt(sum(column.max_squared_norm for column in self.columns) + self.intercept)

    @property
    def of_column(self) -> Int[np.ndarray, " inputs"]:
        """The number of its column for each one-hot input, and a number of its own for every other input."""
        found: list[int] = []
        for number, column in enumerate(self.columns):
            first = column.width - (column.size if column.binned else 0)
            found += [len(self.columns) + len(found) + offset for offset in range(first)]
            found += [number] * (column.width - first)
        return np.asarray([*found, *([-1] if self.intercept else [])], dtype=np.int64)

    def encode(self, codes: Codes, positions: Positions | None = None) -> Float[np.ndarray, "rows inputs"]:
        """Inputs of each row, from that row alone. Without positions, a number is the mean position of its bin.

        `codes` has all columns of the domain, or all but the target.
        """
        at = self.column_indices(codes.shape[1])
        parts = [
            column.encode(codes[:, at[column.name]], None if positions is None else positions[:, at[column.name]])
            for column in self.columns
        ]
        if self.intercept:
            parts.append(np.ones((len(codes), 1)))
        return np.concatenate(parts, axis=1) * self.scale

    def column_indices(self, num_columns: int) -> dict[str, int]:
        """The index of each column in codes of all columns, or of all but the target."""
        names = self.names
        if num_columns == len(names) - 1:
            names = tuple(name for name in names if name != self.target)
        if num_columns != len(names):
            raise ConfigError(
                f"Expected codes of {len(self.names)} columns, or of all but the target, found {num_columns}."
            )
        return {name: at for at, name in enumerate(names)}

    def to_dict(self) -> dict[str, object]:
        return {
            "names": list(self.names),
            "target": self.target,
            "intercept": self.intercept,
            "columns": [
                {**dataclasses.asdict(column), "middles": column.middles and list(column.middles)}
                for column in self.columns
            ],
        }

    @classmethod
    def from_dict(cls, content: Mapping[str, Any]) -> "Inputs":
        columns = tuple(
            Input(**{**entry, "middles": None if entry["middles"] is None else tuple(entry["middles"])})
            for entry in content["columns"]
        )
        return cls(tuple(content["names"]), content["target"], columns, content["intercept"])


def inputs_of(
    domain: Domain,
    scales: Sequence[NumericDomain | None],
    target: str,
    *,
    numbers: str,
    columns: Sequence[str] | None = None,
    intercept: bool = False,
) -> Inputs:
    """The inputs by public facts and private estimates: kinds and sizes of columns, and scales of numbers."""
    seen = seen_columns(domain, target, columns)
    found = []
    for name in seen:
        at = domain.index(name)
        scale = scales[at]
        if scale is None or numbers == "bins":
            found.append(Input(name, domain.sizes[at]))
        else:
            found.append(Input(name, domain.sizes[at], bin_middles(scale), scale.nullable, numbers == "both"))
    return Inputs(domain.names, target, tuple(found), intercept)


def seen_columns(domain: Domain, target: str, columns: Sequence[str] | None) -> tuple[str, ...]:
    """The columns to predict from, in the domain's order. Refuses the target among them, and an empty list."""
    if columns is not None and target in columns:
        raise ConfigError(
            f"The target {target!r} is among the columns to predict it from. Leave it out there.", setting="columns"
        )
    for name in columns or ():
        domain.index(name)  # refuses an unknown name
    seen = tuple(name for name in domain.names if name != target and (columns is None or name in columns))
    if not seen:
        raise ConfigError(
            "There is no column to predict from besides the target. Declare at least one.", setting="columns"
        )
    return seen


def bin_middles(scale: NumericDomain) -> tuple[float, ...]:
    """The mean position of each bin, by the masses of its fine bins, which are public or estimated privately."""
    edges, masses = np.asarray(scale.fine_edges), scale.positive_masses
    middles = (edges[1:] + edges[:-1]) / 2
    starts = np.asarray(scale.first_fine_bin[:-1])
    return tuple(rounded(np.add.reduceat(masses * middles, starts) / np.add.reduceat(masses, starts)).tolist())


@dataclasses.dataclass(frozen=True)
class Examples:
    """Inputs of a row and, last, its label: the code of its class, or its number scaled to [-1, 1] (NaN: missing)."""

    inputs: Inputs
    numeric: bool
    dtype: type[np.floating] = np.float64
    """Networks take single precision."""

    def encode(self, codes: Codes, positions: Positions, key: PRNGKeyArray) -> Float[np.ndarray, "rows inputs"]:
        at = self.inputs.names.index(self.inputs.target)
        label = 2 * positions[:, at] - 1 if self.numeric else codes[:, at].astype(np.float64)
        return np.c_[self.inputs.encode(codes, positions), label].astype(self.dtype)
