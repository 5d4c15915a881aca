"""Private rows and public rows: types without a common base, so that one passed for the other does not type-check.

`PrivateRows` is the encoded private table and `PrivateUnits` its rows arranged for training. Both are opaque: what they
hold has underscore names, which no code outside `privacy/` may use, and their public attributes are facts that are
declared or already noisy. `PublicRows` and `PublicUnits` are the same for a table that anyone may see.

Functions of single rows come in from outside (`RowEncoder`, losses of a training). They are pure and are called here:
what they return stays in `privacy/` until noise has been added.
"""

import dataclasses
import functools
import math
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Protocol, TypeVar, runtime_checkable

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, Integer, PRNGKeyArray

from understudy.errors import BudgetExceeded, ConfigError
from understudy.privacy.gradients.multi_device import place_units
from understudy.privacy.rows.codes import ArrayCodes, Codes
from understudy.privacy.rows.kernel import split_counts

if TYPE_CHECKING:  # these read tables; training alone must not need to
    from understudy.privacy.accounting.ledger import Ledger, Partition
    from understudy.schema import Domain, NumericDomain


@runtime_checkable
class RowEncoder(Protocol):
    """From codes and positions of rows to features, each row by itself."""

    def encode(self, codes: np.ndarray, positions: np.ndarray, key: PRNGKeyArray, /) -> np.ndarray: ...


Clique = tuple[str, ...]


@dataclasses.dataclass(frozen=True)
class Box:
    """One count: of the rows whose codes lie within a range in each of these columns."""

    clique: Clique
    ranges: tuple[tuple[int, int], ...]
    """First code and the one after the last, for each column."""

    @property
    def slices(self) -> tuple[slice, ...]:
        return tuple(slice(first, end) for first, end in self.ranges)


Counted = Clique | Box
"""What can be counted."""
AnyCounted = TypeVar("AnyCounted", bound=Counted)

CONTRADICTED = 4.0
"""A declared size that is off by more standard deviations is contradicted: by chance once in 16,000 runs."""
MIN_VARIANCE = 1.0
"""Of a sum, in squared rows: without noise sums are exact, and a single row more or less is no contradiction."""
PASS_CELLS = 2**23
"""The most cells of the marginals that one pass over the rows counts: their counts take 64 MB."""
CACHE_BYTES = 512 * 2**20
"""The most memory that exact counts are kept in; the oldest are dropped, and counted again where they are needed."""


class Totals:
    """The noisy totals of one run, over all partitions of its rows: post-processing of answers that are charged anyway.

    Every marginal counts each row once, so the sum of its noisy cells estimates the number of rows. A declared number
    that these sums contradict was declared by mistake; fractions of the rows are then computed with the measured one.
    """

    def __init__(self, declared: int | None):
        self._declared = declared
        self._weighted, self._precision = 0.0, 0.0
        self._declared_variance = 0.0
        """Of the true size around the declared one, in squared rows: not 0 if units were held out at random."""

    def expect_spread(self, variance: float) -> None:
        """States how far the true size may lie from the declared one by chance: a public number."""
        self._declared_variance = variance

    def note(self, noisy_total: float, variance: float, *, fraction: float = 1.0, spread: float = 0.0) -> None:
        """Adds the sum of one marginal over a random `fraction` of the rows, whose number has variance `spread`."""
        weight = fraction**2 / (max(variance, MIN_VARIANCE) + spread)
        self._weighted += weight * noisy_total / fraction
        self._precision += weight

    @property
    def measured(self) -> float:
        """The number of rows as estimated by all marginals, weighted by their precision; NaN before the first one."""
        return self._weighted / self._precision if self._precision else math.nan

    @property
    def contradicted(self) -> bool:
        """Whether the declared size is too far from the measured one; never where none is declared."""
        if self._declared is None or not self._precision:
            return False
        return abs(self.measured - self._declared) * math.sqrt(self._precision) > CONTRADICTED

    @property
    def warning(self) -> str | None:
        """What readers of the run and its certificate should know; None if there is nothing.

        What chance explains in a table from which units were held out is no mistake of a person.
        """
        if not self.contradicted or self._declared is None:
            return None
        if abs(self.measured - self._declared) <= CONTRADICTED * math.sqrt(
            1 / self._precision + self._declared_variance
        ):
            return None
        digits = max(0, math.floor(math.log10(math.sqrt(self._precision) * max(self.measured, 1.0))))
        about = float(f"{max(self.measured, 0.0):.{digits}e}")
        return (
            f"the declared number of rows ({self._declared:,}) contradicts the measured totals (about {about:,.0f}). "
            "Fractions of the rows were computed with the measured totals; the declared number is only the default "
            "size of synthetic tables. Declare a published number, or leave it out: it is then estimated privately."
        )


class PrivateRows:
    """The encoded private rows. Their content is reached through the mechanisms of `privacy/` alone."""

    def __init__(
        self,
        codes: "np.ndarray | Codes",
        domain: "Domain",
        *,
        max_rows_per_unit: int = 1,
        units: np.ndarray | None = None,
        positions: Callable[[], np.ndarray] | None = None,
        scales: "Sequence[NumericDomain | None] | None" = None,
        totals: Totals | None = None,
        fraction: float = 1.0,
    ):
        self._held: Codes = ArrayCodes(codes) if isinstance(codes, np.ndarray) else codes
        self._units = units
        self._make_positions = positions  # called when a method needs numbers rather than bins
        self.domain = domain
        self.scales: "tuple[NumericDomain | None, ...]" = tuple(scales or (None,) * len(domain.names))
        """What is public about each numeric column."""
        self.max_rows_per_unit = max_rows_per_unit
        self.totals = totals or Totals(domain.declared_rows)
        """The number of rows as estimated by the noisy answers about these rows and all their partitions."""
        self._fraction = fraction  # of the table's units, each kept independently at random
        self._partition: "Partition | None" = None  # None: all units. Set by `partition_rows` and kept by `only`
        self._cache = _CountCache()

    def __repr__(self) -> str:
        return "PrivateRows(...)"

    @property
    def _codes(self) -> np.ndarray:
        """The codes of each row, for what cannot be counted; refused for rows on a cluster."""
        return self._held.array

    @functools.cached_property
    def _positions(self) -> np.ndarray:
        """Positions of numbers between their bounds, from 0 to 1; NaN for nulls and for other columns."""
        return np.full(self._codes.shape, np.nan) if self._make_positions is None else self._make_positions()

    def only(self, columns: Sequence[str]) -> "PrivateRows":
        """The same rows without their other columns. Reads nothing; costs and bounds for a unit do not change."""
        domain = self.domain.only(columns)
        at = [self.domain.index(name) for name in domain.names]
        part = PrivateRows(
            self._held.only(at),
            domain,
            max_rows_per_unit=self.max_rows_per_unit,
            units=self._units,
            positions=lambda: self._positions[:, at],
            scales=[self.scales[index] for index in at],
            totals=self.totals,
            fraction=self._fraction,
        )
        part._partition = self._partition
        return part

    @property
    def public_num_rows(self) -> int:
        """The public number of rows; if the noisy totals contradict the declared number, their estimate."""
        if not self.totals.contradicted:
            return self.domain.num_rows
        return max(1, round(self._fraction * self.totals.measured))

    @property
    def measured_domain(self) -> "Domain":
        """The domain with that number of rows: for post-processing answers, never for plans."""
        return dataclasses.replace(self.domain, num_rows=self.public_num_rows)

    def shape_of(self, query: Counted) -> tuple[int, ...]:
        """The shape of an answer, from public facts."""
        return (1,) if isinstance(query, Box) else self.domain.shape(query)

    def _exact_counts(self, query: Counted) -> np.ndarray:
        """Cells of a marginal, in the clique's own order of columns, or the one count of a box as an array of one."""
        self._count_ahead([query])
        return self._cache.sum_of(query) if isinstance(query, Box) else self._cache[query]

    def _counted_ahead(self, queries: Sequence[AnyCounted]) -> Iterator[AnyCounted]:
        """The same queries, whose counts are then known: made in as few passes over the rows as memory allows."""
        first, cells = 0, 0
        for at, query in enumerate(queries):
            cells += self.domain.size(_clique_of(query))
            if cells >= PASS_CELLS or at == len(queries) - 1:
                self._count_ahead(queries[first : at + 1])
                yield from queries[first : at + 1]
                first, cells = at + 1, 0

    def _count_ahead(self, queries: Sequence[Counted]) -> None:
        """Counts every marginal that is not known yet, all in one pass. Each row is in exactly one cell of each."""
        cliques = [clique for clique in dict.fromkeys(map(_clique_of, queries)) if clique not in self._cache]
        if not cliques:
            return
        workload = [tuple(self.domain.index(name) for name in clique) for clique in cliques]
        counts = self._held.count(workload, self.domain.sizes)
        for clique, table in zip(cliques, split_counts(counts, workload, self.domain.sizes), strict=True):
            self._cache[clique] = table

    def _note_total(self, noisy_counts: np.ndarray, stddev: float) -> None:
        """Called for every answered marginal: its cells count each row once."""
        whole = (self.domain.declared_rows or self.domain.num_rows) * self.max_rows_per_unit
        spread = whole * self._fraction * (1 - self._fraction)
        variance = stddev**2 * noisy_counts.size
        self.totals.note(float(noisy_counts.sum()), variance, fraction=self._fraction, spread=spread)

    def _encoded(self, layout: RowEncoder | None, ledger: "Ledger") -> np.ndarray:
        """Features of all rows by `layout`, with randomness of the ledger; without a layout the codes."""
        if layout is None:
            return self._codes
        return layout.encode(self._codes.astype(np.int32), self._positions, ledger.noise.key())

    def _unit_of_row(self) -> np.ndarray:
        """The number of each row's unit."""
        if self.max_rows_per_unit == 1:
            return np.arange(len(self._codes), dtype=np.int32)
        assert self._units is not None, "the units of rows must be known where they may own several"
        return self._units

    def _part(self, kept: np.ndarray, partition: "Partition", num_rows: int, fraction: float) -> "PrivateRows":
        part = PrivateRows(
            self._held.part(kept),
            dataclasses.replace(self.domain, num_rows=num_rows),
            max_rows_per_unit=self.max_rows_per_unit,
            units=None if self._units is None else self._units[kept],
            positions=lambda: self._positions[kept],
            scales=self.scales,
            totals=self.totals,
            fraction=self._fraction * fraction,
        )
        part._partition = partition
        return part


def _clique_of(query: Counted) -> Clique:
    return query.clique if isinstance(query, Box) else query


class _CountCache:
    """Exact counts by their clique, in the narrowest type that holds them."""

    def __init__(self) -> None:
        self._tables: dict[Clique, np.ndarray] = {}
        self._num_bytes = 0

    def __contains__(self, clique: Clique) -> bool:
        return clique in self._tables

    def __getitem__(self, clique: Clique) -> np.ndarray:
        return self._tables[clique].astype(np.int64)

    def sum_of(self, box: Box) -> np.ndarray:
        """The one count of a box."""
        return self._tables[box.clique][box.slices].sum(dtype=np.int64).reshape(1)

    def __setitem__(self, clique: Clique, counts: np.ndarray) -> None:
        """The last one is kept, whatever its size."""
        self._tables[clique] = counts.astype(np.min_scalar_type(counts.max(initial=0)))
        self._num_bytes += self._tables[clique].nbytes
        while self._num_bytes > CACHE_BYTES and len(self._tables) > 1:
            self._num_bytes -= self._tables.pop(next(iter(self._tables))).nbytes


class PrivateUnits(eqx.Module):
    """Private rows arranged for training, one line for each unit. A pytree, so that compiled programs can take it."""

    _rows: Float[Array, "units slots features"] | Integer[Array, "units slots columns"]
    """Features, or the codes of one-hot blocks."""
    _present: Bool[Array, "units slots"]
    _absent: int = eqx.field(static=True, default=0)
    """Lines at the end that are no units and never sampled: with them, lines divide evenly among several devices."""

    @property
    def _num_units(self) -> int:
        return len(self._present) - self._absent

    def __repr__(self) -> str:
        return "PrivateUnits(...)"  # shapes would reveal the number of units


@dataclasses.dataclass(frozen=True)
class PublicRows:
    """Encoded rows of a public table, or of a simulator: whoever is in it is not protected."""

    codes: Int[np.ndarray, "rows columns"]
    positions: Float[np.ndarray, "rows columns"]

    def only(self, at: Sequence[int]) -> "PublicRows":
        """The same rows with the columns at these indices."""
        return PublicRows(self.codes[:, at], self.positions[:, at])

    def arrange(self, layout: RowEncoder | None, *, key: PRNGKeyArray) -> "PublicUnits":
        """For training: features by `layout`, or the codes."""
        rows = self.codes if layout is None else layout.encode(self.codes, self.positions, key)
        return PublicUnits(jnp.asarray(rows[:, None]), jnp.ones((len(rows), 1), dtype=bool))


class PublicUnits(eqx.Module):
    """Public rows arranged for training, each row a unit of its own."""

    rows: Float[Array, "units slots features"] | Int[Array, "units slots columns"]
    present: Bool[Array, "units slots"]


def arrange_units(rows: PrivateRows, encoded: np.ndarray) -> PrivateUnits:
    """Codes or features with one line for each unit and a slot for each of its rows.

    An empty table is padded with one absent unit, so that array shapes do not reveal it.
    """
    slots = rows.max_rows_per_unit
    if not len(encoded):
        arranged = np.zeros((1, slots, encoded.shape[1]), encoded.dtype)
        present = np.zeros((1, slots), dtype=bool)
    elif slots == 1:
        arranged, present = encoded[:, None], np.ones((len(encoded), 1), dtype=bool)
    else:
        units = rows._unit_of_row()
        order = np.argsort(units, kind="stable")
        _, first, line = np.unique(units[order], return_index=True, return_inverse=True)
        slot = np.arange(len(order)) - first[line]
        arranged = np.zeros((len(first), slots, encoded.shape[1]), dtype=encoded.dtype)
        present = np.zeros((len(first), slots), dtype=bool)
        arranged[line, slot], present[line, slot] = encoded[order], True
    lines = place_units(arranged)
    return PrivateUnits(lines, place_units(present), len(lines) - len(arranged))


def number_units(unit_of_row: Integer[np.ndarray, " rows"]) -> tuple[int, Integer[np.ndarray, " rows"]]:
    """How many units there are, and which of them each row belongs to, in the order of their numbers.

    >>> number_units(np.array([8, 3, 8]))
    (2, array([1, 0, 1]))
    """
    first_to_last = len(unit_of_row) > 0 and unit_of_row[0] == 0 and unit_of_row[-1] == len(unit_of_row) - 1
    if first_to_last and bool((unit_of_row[1:] > unit_of_row[:-1]).all()):
        return len(unit_of_row), unit_of_row  # one row each, in order: nothing to sort, however many they are
    numbers, index = np.unique(unit_of_row, return_inverse=True)
    return len(numbers), index


def partition_rows(
    rows: PrivateRows, fraction: float, ledger: "Ledger", names: tuple[str, str]
) -> tuple[PrivateRows, PrivateRows]:
    """The rows to train on and about `fraction` of them held out, every unit by a coin of its own.

    Formal guarantee: a unit's rows are all in one partition, and no other unit moves when it is added or removed, so
    queries on the two compose in parallel: they cost the larger of both. Every query must name the partition of the
    rows that it reads (`check_query` refuses others), and the ledger refuses to partition units a second time. The
    sizes of the partitions are public: fractions of the public number of rows.
    """
    if not 0 < fraction < 1:
        raise ConfigError(
            f"The fraction of held-out units must be between 0 and 1, found {fraction:g}.", setting="fraction"
        )
    if rows._partition is not None:
        raise BudgetExceeded("These rows are a partition already, and units can be partitioned only once.")
    partitions = ledger._partition_units(*names)
    num_units, unit_of_row = number_units(rows._unit_of_row())
    coins = np.asarray(jax.random.bits(ledger.noise.key(), (num_units,), np.uint32))
    held = (coins < fraction * 2.0**32)[unit_of_row] if num_units else np.zeros(0, dtype=bool)
    sizes = partition_sizes(rows.domain, fraction)
    kept = rows._part(~held, partitions[0], sizes[0], 1 - fraction)
    return kept, rows._part(held, partitions[1], sizes[1], fraction)


def partition_sizes(domain: "Domain", fraction: float) -> tuple[int, int]:
    """The public sizes of the two partitions."""
    return max(1, round((1 - fraction) * domain.num_rows)), max(1, round(fraction * domain.num_rows))
