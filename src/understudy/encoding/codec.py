"""The codec of a table: all modelled columns, to integer codes and back.

Everything a codec knows is public: declared in the schema, or estimated privately.
"""

import dataclasses
import functools
from collections.abc import Mapping
from typing import Any

import jax
import numpy as np
import pyarrow as pa
from jaxtyping import Float, Int, PRNGKeyArray

from understudy.encoding.arrow import bound_numbers, from_numbers, special_numbers
from understudy.encoding.columns import CategoricalCodec, ColumnCodec, NumericCodec
from understudy.encoding.reexpression import Reexpression, reexpress
from understudy.encoding.reexpression.zeros import structural_zeros
from understudy.schema import Domain, NumericDomain, Schema
from understudy.schema.toml import names_files


@dataclasses.dataclass(frozen=True)
class Codec:
    """All modelled columns of a schema, in its order.

    A release has one: it encodes rows as small integers and decodes them again.

    >>> import pyarrow as pa, understudy as us
    >>> schema = {"columns": {"member": {"kind": "boolean"}}}
    >>> codec = us.fit(pa.table({"member": [True, False]}), "independent", epsilon=1, schema=schema).codec
    >>> [column.name for column in codec.columns]
    ['member']
    """

    columns: tuple[ColumnCodec, ...]
    """One for each modelled column."""
    schema: Schema
    """The schema, declared or drafted."""
    num_rows: int
    """The public number of rows: declared, or estimated privately."""
    rows_per_unit: tuple[float, ...] = ()
    """The probability that a synthetic unit owns 1, 2, ... rows, estimated privately. Empty: rows are not linked."""
    unlisted: tuple[str, ...] = ()
    """The columns with an estimated list in which, by its noisy counts, less than half of the rows have a value."""

    @property
    def reexpression(self) -> Reexpression:
        """How the columns of the schema are modelled, so that its rules hold."""
        return reexpress(self.schema)

    @property
    def constant(self) -> tuple[str, ...]:
        """The modelled columns that have one value in every synthetic table, besides nulls, by what was estimated."""
        return tuple(
            column.name
            for column in self.columns
            if self.reexpression.modelled[column.name].estimated is not None and column.is_constant
        )

    @functools.cached_property
    def domain(self) -> Domain:
        modelled = self.reexpression.modelled
        return Domain(
            names=tuple(column.name for column in self.columns),
            sizes=tuple(column.size for column in self.columns),
            num_rows=self.num_rows,
            target=modelled.target,
            numeric=tuple(column.name for column in self.columns if isinstance(column, NumericCodec)),
            declared_rows=self.schema.rows,
            estimated=estimated_columns(modelled),
            zeros=structural_zeros(self.reexpression, self.columns),
        )

    def encode(self, table: pa.Table) -> Int[np.ndarray, "rows columns"]:
        """The codes of each row, by the public rules of the schema and of `columns`."""
        return self.encode_modelled(self.reexpression.express(table))

    def encode_modelled(self, table: pa.Table) -> Int[np.ndarray, "rows columns"]:
        """The same for a table of the modelled columns."""
        codes = np.empty((table.num_rows, len(self.columns)), dtype=np.int32, order="F")  # as they are kept
        for index, column in enumerate(self.columns):
            codes[:, index] = column.encode(table.column(column.name))
        return codes

    def positions(self, table: pa.Table) -> Float[np.ndarray, "rows columns"]:
        """The positions of numbers between their bounds, from 0 to 1; NaN for nulls and other columns."""
        return self.positions_modelled(self.reexpression.express(table))

    def positions_modelled(self, table: pa.Table) -> Float[np.ndarray, "rows columns"]:
        """The same for a table of the modelled columns."""
        positions = np.full((table.num_rows, len(self.columns)), np.nan)
        for index, column in enumerate(self.columns):
            if isinstance(column, NumericCodec):
                positions[:, index] = column.positions(table.column(column.name))
        return positions

    @property
    def scales(self) -> tuple[NumericDomain | None, ...]:
        """The bins of numbers; None for categories, and for locations, whose order is not a scale: networks see their
        bins one-hot."""
        known = self.reexpression
        return tuple(
            dataclasses.replace(
                column.scale(special_numbers(known.modelled[column.name])), cyclic=known.modelled[column.name].cyclic
            )
            if isinstance(column, NumericCodec) and column.name not in known.curves
            else None
            for column in self.columns
        )

    def decode(
        self,
        codes: Int[np.ndarray, "rows columns"],
        positions: Float[np.ndarray, "rows columns"] | None = None,
        *,
        key: PRNGKeyArray,
    ) -> pa.Table:
        """A table of the schema's columns: numbers at their positions or drawn within bins, new ids, no text."""
        generator = np.random.default_rng(np.asarray(jax.random.key_data(key)))
        arrays = {}
        for index, column in enumerate(self.columns):
            if positions is None or isinstance(column, CategoricalCodec):
                arrays[column.name] = column.decode(codes[:, index], generator=generator)
            else:
                arrays[column.name] = column.decode(codes[:, index], generator=generator, positions=positions[:, index])
        rows = self.reexpression.restore(pa.table(arrays))
        ids = [column.name for column in self.schema.columns if column.kind == "id" and not column.drop]
        columns = {name: rows.column(name) for name in rows.column_names}
        columns |= {name: pa.array(np.arange(1, len(codes) + 1)) for name in ids}
        return pa.table({name: columns[name] for name in self.schema.names if name in columns})

    def extremes(self, num_rows: int) -> dict[str, pa.Array]:
        """For each column, the extremes of its values in `num_rows` synthetic rows, or all its values.

        Columns that are rebuilt by rules have their declared bounds or categories, if any.
        """
        replaced = self.reexpression.replaced
        found = {column.name: column.extremes for column in self.columns if column.name not in replaced}
        for column in self.schema.columns:
            if column.kind == "id":
                found[column.name] = pa.array([1, num_rows])
            elif column.name in replaced and column.bounds is not None:
                ends = np.asarray(bound_numbers(column))
                found[column.name] = from_numbers(ends, np.zeros(2, dtype=bool), column.kind)
            elif column.name in replaced and column.categories is not None:
                found[column.name] = pa.array(list(column.categories))
        return {name: found[name] for name in self.schema.names if name in found and not self.schema[name].drop}

    def to_dict(self) -> dict[str, object]:
        """For JSON."""
        columns = [column.to_dict() for column in self.columns]
        return {
            "columns": columns,
            "schema": self.schema.to_dict(),
            "num_rows": self.num_rows,
            "rows_per_unit": list(self.rows_per_unit),
            "unlisted": list(self.unlisted),
        }

    @classmethod
    def from_dict(cls, content: Mapping[str, Any]) -> "Codec":
        """Reads what `to_dict` returns."""
        if names_files(content["schema"]):
            raise ValueError("the schema of a release names no files")
        types: dict[str, type[ColumnCodec]] = {"categorical": CategoricalCodec, "numeric": NumericCodec}
        columns = tuple(types[column["type"]].from_dict(column) for column in content["columns"])
        schema, rows_per_unit = Schema.from_dict(content["schema"]), tuple(content["rows_per_unit"])
        return cls(columns, schema, content["num_rows"], rows_per_unit, tuple(content["unlisted"]))


def estimated_columns(schema: Schema) -> tuple[str, ...]:
    """The columns whose categories are estimated privately."""
    return tuple(column.name for column in schema.modelled if column.estimated == "categories")
