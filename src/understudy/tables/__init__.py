"""Reads and writes tables: files, databases and data frames. In between, a table is a `pyarrow.Table`.

The synthetic table has the library or file format of the original and, without a declared schema, the same column
types and the same style in text files. An `Origin` records these as type names and text formats. It holds no value or
category of the data, so it may be part of a release.

Text files carry no types, so kinds are inferred by fixed rules over all values of a column (`docs/tables.md`). With a
declared schema nothing is inferred: values are read as the declared kind, a value that cannot be read becomes null, and
types and styles of the output follow from the schema alone, whatever the types of the source (unless `keep_types` keeps
those). No message of this package contains a value of a row.
"""

from understudy.run.atomic import atomic_folder, atomic_write
from understudy.tables.cast import conform
from understudy.tables.formatting import output_decimals, restyle, restyle_within_bounds
from understudy.tables.frames import Frame, from_frame, read_column, to_frame
from understudy.tables.location import is_same_source
from understudy.tables.origin import ColumnOrigin, Origin
from understudy.tables.reading import as_arrow, read_table
from understudy.tables.where import Conjunct, Constant, filter_where, where_columns
from understudy.tables.writing import check_writable, write_table

__all__ = [
    "ColumnOrigin",
    "Conjunct",
    "Constant",
    "Frame",
    "Origin",
    "as_arrow",
    "atomic_folder",
    "atomic_write",
    "check_writable",
    "conform",
    "filter_where",
    "from_frame",
    "is_same_source",
    "output_decimals",
    "read_column",
    "read_table",
    "restyle",
    "restyle_within_bounds",
    "to_frame",
    "where_columns",
    "write_table",
]
