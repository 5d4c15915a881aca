"""Private and public tables before they are encoded: types without a common base.

`PrivateTable` and `PrivateColumns` are opaque, like `PrivateRows`: what they hold has underscore names, which no code
outside `privacy/` may use. Functions of single rows or values come in from outside (a codec's rules, the numbers of a
column). They are pure and are called here, and what they return stays in an opaque type.

A private table is read batch by batch, as often as a query needs it; it is held as a whole only if its source is.
"""

import dataclasses
import functools
import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Generic, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from jaxtyping import Int64

from understudy.privacy.accounting.statement import KeptIn
from understudy.privacy.rows.batches import LocalBatches, PrivateBatches, add_arrays
from understudy.privacy.rows.rows import PrivateRows, PublicRows
from understudy.privacy.rows.scratch import Scratch
from understudy.privacy.rows.units import RemoteUnits, choose_units, content_hashes
from understudy.schema import Domain, NumericDomain
from understudy.tables.reading_batches import RowsDigest

Values = TypeVar("Values")
"""An Arrow array or a NumPy one."""


class PrivateTable:
    """A private table in the columns of its schema. Names and types of the columns are public, nothing else is."""

    def __init__(
        self,
        batches: "pa.Table | Iterable[pa.Table] | PrivateBatches[pa.Table]",
        unit_of_row: np.ndarray | RemoteUnits | None = None,
        scratch: Scratch | None = None,
    ):
        """`batches` must give the same rows in the same order whenever they are read. `scratch` is where their codes
        are kept; None: in memory."""
        self._batches: PrivateBatches[pa.Table] = (
            batches
            if isinstance(batches, PrivateBatches)
            else LocalBatches((batches,) if isinstance(batches, pa.Table) else batches, scratch)
        )
        self._unit_ids = unit_of_row

    def __repr__(self) -> str:
        return "PrivateTable(...)"

    @property
    def is_remote(self) -> bool:
        """Whether the rows stay on a cluster, which counts them and does not hand them out."""
        return self._batches.is_remote

    @property
    def kept_in(self) -> KeptIn:
        """Where the codes of its rows are kept during a run."""
        if self.is_remote:
            return "spark"
        return "memory" if _scratch_of(self) is None else "scratch"

    @property
    def _table(self) -> pa.Table:
        """All rows at once, for what cannot work batch by batch."""
        return pa.concat_tables(self._batches)

    def close(self) -> None:
        """Ends the run: drops what a cluster kept for it."""
        self._batches.close()

    def __len__(self) -> int:
        raise TypeError("The exact number of rows of a private table is private: use noisy_size.")


@dataclasses.dataclass(frozen=True)
class PublicTable:
    """A table that anyone may see, in the columns of a schema: whoever is in it is not protected."""

    table: pa.Table

    def encode(
        self, codes: Callable[[pa.Table], np.ndarray], positions: Callable[[pa.Table], np.ndarray]
    ) -> PublicRows:
        """Its rows by the rules of a codec."""
        return PublicRows(codes(self.table), positions(self.table))


class PrivateColumns(Generic[Values]):
    """Values of some columns of a private table, batch by batch, each column in one array per batch."""

    def __init__(
        self,
        values: Mapping[str, Values],
        batches: "PrivateBatches[Mapping[str, Values]] | None" = None,
        whole: "PrivateBatches[Mapping[str, Values]] | None" = None,
    ):
        """`values` is the only batch; of several `batches`, it names the columns and is not read. `whole` has more."""
        self._names = tuple(values)
        self._batches = LocalBatches((values,)) if batches is None else batches  # not read before the charge
        self._whole = self._batches if whole is None else whole

    def __repr__(self) -> str:
        return f"PrivateColumns({', '.join(self._names)})"

    def only(self, names: Iterable[str]) -> "PrivateColumns[Values]":
        """The columns of these names."""
        names = tuple(names)
        chosen = self._batches.map(functools.partial(_choose, names=names))
        return PrivateColumns(dict.fromkeys(names), chosen, self._whole)


def _choose(values: Mapping[str, Values], names: Sequence[str]) -> dict[str, Values]:
    return {name: values[name] for name in names}


def hold_out(
    table: PrivateTable, unit: str | None, fraction: float, coins: np.random.Generator
) -> tuple[PrivateTable, pa.Table]:
    """The table without the units that are held out, each by a coin of its own, and the rows of these.

    The held-out rows leave this package, for a file of the steward: nothing that is fitted or released may read them.

    Formal guarantee: that of `choose_units`.
    """
    rest, held = split_units(table._table, unit, fraction, coins)
    return PrivateTable(rest, scratch=_scratch_of(table)), held


def split_units(
    table: pa.Table, unit: str | None, fraction: float, coins: np.random.Generator
) -> tuple[pa.Table, pa.Table]:
    """The rows that are not held out and those that are. Both are private: for files of the steward.

    Formal guarantee: that of `choose_units`.
    """
    ids = None if unit is None else table.column(unit)
    held = pa.array(choose_units(ids, table.num_rows, fraction, coins))
    return table.filter(pc.invert(held)), table.filter(held)


def limit_units(table: PrivateTable, unit: str | None, columns: Sequence[str], max_rows_per_unit: int) -> PrivateTable:
    """At most `max_rows_per_unit` rows of each unit, and none without a unit id. Without units, all rows.

    Which rows of a larger unit are used follows from their values in these columns.

    Formal guarantee: that of `rows_within_units`.
    """
    if unit is None:
        return table
    return PrivateTable(*table._batches.limit_units(unit, columns, max_rows_per_unit))


def keep_rows(table: PrivateTable, kept: Callable[[pa.Table], np.ndarray]) -> PrivateTable:
    """The rows that satisfy a public rule. To be called before `limit_units`.

    Formal guarantee: none is released, and none is needed: `kept` decides for each row by itself, so that adding or
    removing the rows of one unit changes this unit's rows alone, and their number does not grow.
    """
    assert table._unit_ids is None, "rows are left out before the units are numbered"

    def filtered(batch: pa.Table) -> pa.Table:
        return batch.filter(pa.array(kept(batch)))

    return PrivateTable(table._batches.map(filtered))


def convert_rows(table: PrivateTable, function: Callable[[pa.Table], pa.Table]) -> PrivateTable:
    """The table through a function that works row by row and returns as many rows."""
    return PrivateTable(table._batches.map(function), table._unit_ids)


def convert_columns(
    table: PrivateTable, functions: Mapping[str, Callable[[pa.ChunkedArray], Values]]
) -> PrivateColumns[Values]:
    """These columns, each through its function, which works value by value."""

    def converted(batch: pa.Table) -> dict[str, Values]:
        return {name: function(batch.column(name)) for name, function in functions.items()}

    # The first argument only names the columns.
    return PrivateColumns(dict.fromkeys(functions), table._batches.map(converted))  # type: ignore[arg-type]


def reserve_scratch(table: PrivateTable, sizes: Sequence[int]) -> None:
    """Takes the space for the codes in the scratch folder, if one is used: a full disk is found before any charge.

    `sizes` are the largest possible numbers of codes of the modelled columns. To be called on the table as it was read.
    """
    if isinstance(table._batches, LocalBatches):
        table._batches.reserve_scratch(sizes)


def _scratch_of(table: PrivateTable) -> Scratch | None:
    return table._batches._scratch if isinstance(table._batches, LocalBatches) else None


def encode_rows(
    table: PrivateTable,
    codes: Callable[[pa.Table], np.ndarray],
    positions: Callable[[pa.Table], np.ndarray],
    domain: Domain,
    *,
    max_rows_per_unit: int,
    scales: Sequence[NumericDomain | None],
) -> PrivateRows:
    """The encoded rows. `codes` and `positions` work row by row, by public rules; positions are computed on demand."""
    return PrivateRows(
        table._batches.map(codes).to_codes(domain.sizes),
        domain,
        max_rows_per_unit=max_rows_per_unit,
        units=table._unit_ids if isinstance(table._unit_ids, np.ndarray) else None,
        positions=lambda: np.concatenate(list(table._batches.map(positions))),
        scales=scales,
    )


def table_digest(table: PrivateTable | PublicTable, key: bytes) -> str:
    """A keyed hash of the names, types and values of a table, by which a resumed run recognises it. Without the key
    nobody can test guessed tables.

    It is the same whatever the batches in which the rows come: a lazy frame may be computed in others when a run is
    resumed. Computed from the private rows without noise: for the checkpoint folder and for comparisons only.
    """
    if isinstance(table, PrivateTable) and table.is_remote:
        sums = table._batches.fold(_sum_of_hashes, add_arrays)
        return hashlib.blake2b(sums.tobytes(), key=key).hexdigest()
    if isinstance(table, PrivateTable) and table._batches._digest is not None:  # as it was read
        return hashlib.blake2b(table._batches._digest, key=key, digest_size=32).hexdigest()
    batches = iter([table.table] if isinstance(table, PublicTable) else table._batches)
    first = next(batches)
    rows = RowsDigest(first.column_names, key)
    rows.add(first)
    for batch in batches:
        rows.add(batch)
    return hashlib.blake2b(rows.of_table(first.schema), key=key, digest_size=32).hexdigest()


def _sum_of_hashes(batch: pa.Table) -> Int64[np.ndarray, "3"]:
    """Of all rows, in whatever order a cluster reads them, and their number."""
    words = content_hashes(batch, None, batch.column_names).sum(axis=1, dtype=np.uint64).view(np.int64)
    return np.r_[words, np.int64(batch.num_rows)]
