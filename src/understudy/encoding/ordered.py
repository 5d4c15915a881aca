"""Long ordered lists of categories, modelled as numbers: their ranks."""

import dataclasses

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from understudy.encoding.arrow import as_numbers, from_numbers
from understudy.encoding.steps import Arrays, OneColumn, Rows, in_declared_type
from understudy.schema import Column, Schema
from understudy.schema.rule_values import as_text, as_texts

MOST_CODES = 32
"""An ordinal column with more categories than this is modelled by ranks, so that rare neighbours share a code."""


@dataclasses.dataclass(frozen=True)
class Ranks(OneColumn):
    """An ordinal column as the rank of its category: an integer, whose bins are neighbouring categories."""

    @property
    def modelled(self) -> tuple[Column, ...]:
        column, bounds = self.column, (0, len(self._texts) - 1)
        return (
            Column(name=column.name, kind="integer", bounds=bounds, nullable=column.nullable, per_unit=column.per_unit),
        )

    @property
    def _texts(self) -> pa.Array:
        return pa.array([as_text(category) for category in self.column.categories or ()], pa.string())

    def _ranks(self, rows: Rows) -> tuple[np.ndarray, np.ndarray]:
        """The rank of each row, and which rows have one; undeclared categories are replaced by the schema's rule."""
        texts = as_texts(rows[self.column.name])
        found = pc.fill_null(pc.index_in(texts, value_set=self._texts), -1).to_numpy(zero_copy_only=False)
        instead = self.column.replacement
        if instead is not None:
            rank = self._texts.to_pylist().index(as_text(instead))
            is_null = pc.is_null(texts).to_numpy(zero_copy_only=False) & self.column.nullable
            found = np.where((found < 0) & ~is_null, rank, found)
        return np.maximum(found, 0).astype(np.int64), found >= 0

    def _values(self, ranks: np.ndarray, known: np.ndarray) -> Arrays:
        at = pa.array(np.clip(ranks, 0, len(self._texts) - 1), mask=~known)
        return {self.column.name: in_declared_type(self._texts.take(at), self.column)}

    def clean(self, rows: Rows) -> Arrays:
        return self._values(*self._ranks(rows))

    def express(self, rows: Rows) -> Arrays:
        ranks, known = self._ranks(rows)
        return {self.column.name: from_numbers(ranks, ~known, "integer")}

    def restore(self, rows: Rows) -> Arrays:
        ranks, known = as_numbers(pa.chunked_array([rows[self.column.name]]), "integer")
        return self._values(ranks, known | (not self.column.nullable))


def rank_steps(schema: Schema) -> tuple[Ranks, ...]:
    """One step for each long ordinal column. The target, and columns that rules are about, stay as they are."""
    ruled = {name for rule in schema.rules for name in rule.columns}
    return tuple(
        Ranks(column)
        for column in schema.modelled
        if column.ordinal
        and len(column.categories or ()) > MOST_CODES
        and column.name != schema.target
        and column.name not in ruled
    )
