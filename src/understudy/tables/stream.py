"""Tables as batches of rows, read anew in each pass and never held whole if they are large."""

from collections.abc import Callable, Iterator, Sequence

import pyarrow as pa

from understudy.schema import Schema
from understudy.tables.cast import conform

BATCH_ROWS = 2**18
"""The most rows of a batch."""
BATCH_VALUES = 2**23
"""The most values of a batch: with many columns it has fewer rows."""
KEPT_BYTES = 256 * 2**20
"""A table that takes less memory than this is kept there: it is not read again in the next pass."""


class TableStream:
    """A table as batches of rows in the same types. It can be read again and again, always in the same order.

    A source is read anew in each pass, unless its table is small or can be read only once. One pass at a time. A pass
    whose rows are not those of the first raises.
    """

    schema: pa.Schema
    """The types and styles of every batch."""
    num_rows: int | None = None
    """Private, like the rows; known once they were read to the end."""

    def __init__(
        self,
        schema: pa.Schema,
        read: Callable[[], Iterator[pa.Table]],
        *,
        is_computed: bool = False,
        num_rows: int | None = None,
        is_checked: bool = False,
        digest: bytes | None = None,
    ) -> None:
        """`is_computed`: by a query, so that the rows or their order could change from pass to pass. `num_rows` is
        given if they were read to the end before. `is_checked`: then, none failed to be converted. `digest` is a hash
        of all rows, if that pass made one; like `num_rows` it is private."""
        self.schema, self.num_rows, self.digest = schema, num_rows, digest
        self._is_checked = is_checked
        self._read: Callable[[], Iterator[pa.Table]] | None = read
        self._is_computed = is_computed
        self._kept: Sequence[pa.Table] = ()

    @classmethod
    def of_table(cls, table: pa.Table) -> "TableStream":
        """The rows of a table in memory."""
        return cls(table.schema, lambda: iter([table]))

    @property
    def column_names(self) -> list[str]:
        return list(self.schema.names)

    def check(self) -> None:
        """Reads and converts the table, so that a damaged one is found early; twice, if its rows could change from pass
        to pass, unless they were read to the end before."""
        if self._is_checked:
            return
        num_passes = 2 if self._is_computed and self.num_rows is None else 1
        for _ in range(num_passes):
            for _ in self:
                pass

    def conformed(self, schema: Schema) -> "TableStream":
        """Every batch read as a drafted schema says, as by `conform`."""
        types = conform(without_rows(self.schema), schema).schema
        return TableStream(
            types,
            lambda: (conform(batch, schema) for batch in self),
            is_computed=self._is_computed,
            num_rows=self.num_rows,
            is_checked=self._is_checked,
            digest=self.digest,
        )

    def __iter__(self) -> Iterator[pa.Table]:
        """Batches of at most `BATCH_ROWS` rows and `BATCH_VALUES` values; at least one, perhaps without rows."""
        if self._read is None:
            yield from self._kept
            return
        kept: list[pa.Table] = []
        num_bytes = num_rows = 0
        max_rows = batch_rows(len(self.schema))
        for table in self._read():
            num_rows += table.num_rows
            for start in range(0, table.num_rows, max_rows):
                batch = table.slice(start, max_rows)
                num_bytes += batch.nbytes
                if num_bytes <= KEPT_BYTES:
                    kept.append(batch)
                else:
                    kept.clear()
                yield batch
        self.num_rows = num_rows
        if not num_rows:
            kept = [without_rows(self.schema)]
            yield kept[0]
        if num_bytes <= KEPT_BYTES:
            self._kept, self._read = kept, None  # without its reader, the connection to a server is closed


def without_rows(types: pa.Schema) -> pa.Table:
    """A table of these types, for some of which Arrow cannot make an empty array."""
    return pa.table([pa.chunked_array([], type) for type in types.types], schema=types)


def batch_rows(num_columns: int) -> int:
    """The most rows of a batch with this number of columns."""
    return min(BATCH_ROWS, max(1, BATCH_VALUES // max(1, num_columns)))
