"""The two edges of the package: frames, files and databases, in and out; in between, a table is a `pyarrow.Table`.

What goes in comes out: the same library or file format, and without a declared schema the same column types and the
same spelling in text files. An `Origin` records this as type names and text formats, and holds no value or category of
the data, so it may be part of a release.

Text files carry no types, so kinds are found by fixed rules over all values of a column (`docs/tables.md`). With a
declared schema nothing is found out: values are read as the declared kind, what cannot be read so becomes null, and
types and spelling of the output follow from the schema alone, whatever the types of the source (unless `keep_types`
keeps those). No message of this package contains a value of a row.
"""

from understudy.run.atomic import atomic_folder, atomic_write
from understudy.tables.casting import conform
from understudy.tables.conditions import Conjunct, Constant, filter_where, where_columns
from understudy.tables.frames import Frame, as_arrow, from_frame, read_column, to_frame
from understudy.tables.origins import ColumnOrigin, Origin
from understudy.tables.output import check_writable, write_table
from understudy.tables.places import is_same_source
from understudy.tables.reading import read_table
from understudy.tables.spelling import restyle

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
    "read_column",
    "read_table",
    "restyle",
    "to_frame",
    "where_columns",
    "write_table",
]
