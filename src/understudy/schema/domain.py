"""The public shape of an encoded table: how many codes each column has, and the bins of numeric columns."""

import dataclasses
import functools
import math
from collections.abc import Iterable, Sequence

import numpy as np

from understudy.errors import SchemaError, did_you_mean
from understudy.rules.satisfiability import MAX_EFFORT, Table, find_row

Clique = Sequence[str]

MERGED_SIZE = 3
"""The number of codes of an estimated category list, merged as far as possible: one category, "other", and null."""


@dataclasses.dataclass(frozen=True, eq=False)
class StructuralZeros:
    """The combinations of codes of a few columns that public rules make impossible.

    A fact of the rules alone, never read off the data, so methods may use it at no privacy cost.
    """

    columns: tuple[str, ...]

    possible: np.ndarray
    """For each combination of codes, with one axis per column in the order of `columns`, whether it is possible."""

    def __post_init__(self) -> None:
        possible = np.array(self.possible, dtype=bool)
        possible.setflags(write=False)
        object.__setattr__(self, "columns", tuple(self.columns))
        object.__setattr__(self, "possible", possible)
        if possible.ndim != len(self.columns) or len(set(self.columns)) != len(self.columns):
            raise SchemaError(
                f"Structural zeros need different columns and one axis for each, found {self.columns} and "
                f"{possible.ndim} axes."
            )
        if not possible.any():
            names = ", ".join(map(repr, self.columns))
            raise SchemaError(f"No combination of {names} is possible under the rules. Allow at least one.")

    @property
    def num_impossible(self) -> int:
        return int(self.possible.size - np.count_nonzero(self.possible))

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, StructuralZeros):
            return NotImplemented
        return self.columns == other.columns and np.array_equal(self.possible, other.possible)

    def __hash__(self) -> int:
        return self._hash

    @functools.cached_property
    def _hash(self) -> int:
        return hash((self.columns, self.possible.shape, self.possible.tobytes()))


@dataclasses.dataclass(frozen=True, kw_only=True)
class Domain:
    """The public shape of an encoded table: how many codes each column has, and the public number of rows.

    >>> domain = Domain(names=("sex", "age"), sizes=(2, 10), num_rows=100)
    >>> domain.shape(("age", "sex")), domain.size(("age", "sex"))
    ((10, 2), 20)
    """

    names: tuple[str, ...]
    """The columns, in the order of the codes."""

    sizes: tuple[int, ...]
    """The number of codes of each column, including the one for nulls."""

    num_rows: int
    """Declared, or estimated privately: never the exact number if that is private."""

    target: str | None = None
    """The column that matters most."""

    numeric: tuple[str, ...] = dataclasses.field(default=(), compare=False, repr=False)
    """The columns with bounds and an order: numbers, dates and datetimes."""

    declared_rows: int | None = dataclasses.field(default=None, compare=False, repr=False)
    """The number of rows if it was declared, and so is known before any query; None: estimated privately."""

    estimated: tuple[str, ...] = dataclasses.field(default=(), compare=False, repr=False)
    """The columns whose number of codes is estimated privately: no privacy cost may depend on it."""

    max_sizes: tuple[int, ...] = dataclasses.field(default=(), compare=False, repr=False)
    """The largest size that each column can have, by facts known before any query; empty: `sizes` are final."""

    zeros: tuple[StructuralZeros, ...] = dataclasses.field(default=(), compare=False, repr=False)
    """Combinations of codes that are impossible by public rules. Models use them; plans and refusals never do.

    Together they leave some row possible: zeros that would not, given those before them, are left out. This happens
    where the codes are estimated privately, when it is too late to refuse the rules; the rows are checked anyway.
    """

    def __post_init__(self) -> None:
        object.__setattr__(self, "names", tuple(self.names))
        object.__setattr__(self, "sizes", tuple(int(size) for size in self.sizes))
        if self.max_sizes and len(self.max_sizes) != len(self.sizes):
            raise SchemaError(f"A domain needs one largest size for each column, found {self.max_sizes}.")
        if len(self.names) != len(self.sizes) or len(set(self.names)) != len(self.names):
            raise SchemaError(
                f"A domain needs different names and one size for each, found {self.names} and {self.sizes}."
            )
        if min(self.sizes, default=1) < 1 or self.num_rows < 1:
            raise SchemaError(
                f"Sizes and the number of rows must be at least 1, found {self.sizes} and {self.num_rows}."
            )
        if self.target is not None and self.target not in self.names:
            raise SchemaError(
                f"The target {self.target!r} is not in the domain.{did_you_mean(self.target, self.names)}",
                column=self.target,
            )
        object.__setattr__(self, "zeros", tuple(self.zeros))
        for zeros in self.zeros:
            if zeros.possible.shape != self.shape(zeros.columns):
                raise SchemaError(
                    f"Structural zeros of {zeros.columns} need one axis of codes for each column, of sizes "
                    f"{self.shape(zeros.columns)}, found {zeros.possible.shape}."
                )
        object.__setattr__(self, "zeros", _satisfiable(self.zeros))

    @property
    def one_way(self) -> tuple[tuple[str], ...]:
        """The 1-way cliques: one for each column."""
        return tuple((name,) for name in self.names)

    def index(self, name: str) -> int:
        """The index of this column; raises SchemaError if there is none."""
        if name not in self._indices:
            raise SchemaError(
                f"There is no column {name!r} in the domain.{did_you_mean(name, self.names)}", column=name
            )
        return self._indices[name]

    def only(self, columns: Iterable[str]) -> "Domain":
        """These columns alone, in the order of the domain, with what was known about them: the target, bounds, zeros.

        >>> Domain(names=("sex", "age"), sizes=(2, 10), num_rows=100, target="sex").only(["age"])
        Domain(names=('age',), sizes=(10,), num_rows=100, target=None)
        """
        kept = sorted({self.index(name) for name in columns})
        names = tuple(self.names[at] for at in kept)
        return Domain(
            names=names,
            sizes=tuple(self.sizes[at] for at in kept),
            num_rows=self.num_rows,
            target=self.target if self.target in names else None,
            numeric=tuple(name for name in self.numeric if name in names),
            declared_rows=self.declared_rows,
            estimated=tuple(name for name in self.estimated if name in names),
            max_sizes=tuple(self.max_sizes[at] for at in kept) if self.max_sizes else (),
            zeros=tuple(zeros for zeros in self.zeros if set(zeros.columns) <= set(names)),
        )

    @property
    def largest(self) -> "Domain":
        """The same with every column at its largest size, without structural zeros, which belong to the final codes.

        Refusals that depend on sizes are decided on this or on `merged`: estimated sizes are noisy answers, and a
        refusal after a query would come too late.
        """
        return dataclasses.replace(self, sizes=self.max_sizes or self.sizes, zeros=())

    @property
    def merged(self) -> "Domain":
        """The largest domain that is left after estimated category lists are merged as far as possible."""
        sizes = [
            min(size, MERGED_SIZE) if name in self.estimated else size
            for name, size in zip(self.names, self.largest.sizes, strict=True)
        ]
        return dataclasses.replace(self, sizes=tuple(sizes), zeros=())

    def shape(self, clique: Clique) -> tuple[int, ...]:
        """The shape of the marginal over these columns."""
        return tuple(self.sizes[self.index(name)] for name in clique)

    def size(self, clique: Clique) -> int:
        """The number of cells of the clique's marginal."""
        return math.prod(self.shape(clique))

    @functools.cached_property
    def _indices(self) -> dict[str, int]:
        return {name: index for index, name in enumerate(self.names)}


@functools.lru_cache(maxsize=64)
def _satisfiable(zeros: tuple[StructuralZeros, ...]) -> tuple[StructuralZeros, ...]:
    """Those that leave a row possible together with the kept ones before; cached, since domains are often copied."""
    tables = [(each.columns, each.possible) for each in zeros]
    if not zeros or find_row(tables) is not None:
        return zeros
    kept: list[StructuralZeros] = []
    known: list[Table] = []
    for each, table in zip(zeros, tables, strict=True):
        if find_row([*known, table], MAX_EFFORT // len(zeros)) is not None:
            kept.append(each)
            known.append(table)
    return tuple(kept)


@dataclasses.dataclass(frozen=True, kw_only=True)
class NumericDomain:
    """The bins of a numeric column: their edges as positions between its bounds, from 0 to 1."""

    fine_edges: tuple[float, ...]
    """The edges of its fine histogram, which is estimated privately or assumed."""

    fine_masses: tuple[float, ...]
    """The probability of each fine bin."""

    first_fine_bin: tuple[int, ...]
    """The index of the first fine bin of each bin, and at the end the number of fine bins."""

    whole: int | None = None
    """The number of values between the bounds if they are whole (integers, days, microseconds); None: they are not."""

    nullable: bool = False

    cyclic: bool = False
    """Whether the upper bound is followed by the lower one."""

    shared: tuple[int, ...] = ()
    """The bins that are one number which many rows share: a zero among amounts, a declared special value."""

    @property
    def positive_masses(self) -> np.ndarray:
        """The masses with a little more for every fine bin, so that none is empty; one number has hardly a width."""
        return np.asarray(self.fine_masses) + 1e-9 * np.maximum(np.diff(self.fine_edges), 2.0**-53)

    @property
    def edges(self) -> tuple[float, ...]:
        """The edges of the bins."""
        return tuple(self.fine_edges[index] for index in self.first_fine_bin)
