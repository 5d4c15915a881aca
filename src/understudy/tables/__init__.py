"""Reads and writes tables: files, databases and data frames. In between, a table is a `pyarrow.Table`.

The synthetic table has the library or file format of the original and, without a declared schema, the same column
types and the same style in text files. An `Origin` records these as type names and text formats. It holds no value or
category of the data, so it may be part of a release.

Text files carry no types, so kinds are inferred by fixed rules over all values of a column (`docs/tables.md`). With a
declared schema nothing is inferred: values are read as the declared kind, a value that cannot be read becomes null, and
types and styles of the output follow from the schema alone, whatever the types of the source (unless `keep_types` keeps
those). No message of this package contains a value of a row.
"""

from understudy.rules.conditions import Conjunct as Conjunct
from understudy.rules.conditions import filter_where as filter_where
from understudy.rules.conditions import where_columns as where_columns
from understudy.rules.syntax import Constant as Constant
from understudy.run.atomic import atomic_folder as atomic_folder
from understudy.run.atomic import write_file as write_file
from understudy.tables.cast import conform as conform
from understudy.tables.cast import declared_schema as declared_schema
from understudy.tables.formatting import output_decimals as output_decimals
from understudy.tables.formatting import restyle as restyle
from understudy.tables.formatting import restyle_within_bounds as restyle_within_bounds
from understudy.tables.formatting import settle_types as settle_types
from understudy.tables.formatting import share_dictionaries as share_dictionaries
from understudy.tables.formatting import with_formatted_dates as with_formatted_dates
from understudy.tables.frames import Frame as Frame
from understudy.tables.frames import from_frame as from_frame
from understudy.tables.frames import read_column as read_column
from understudy.tables.frames import to_frame as to_frame
from understudy.tables.labels import Label as Label
from understudy.tables.labels import attach_label as attach_label
from understudy.tables.labels import label_metadata as label_metadata
from understudy.tables.labels import says_synthetic as says_synthetic
from understudy.tables.options import ReadOptions as ReadOptions
from understudy.tables.origin import ColumnOrigin as ColumnOrigin
from understudy.tables.origin import Origin as Origin
from understudy.tables.path import SourceId as SourceId
from understudy.tables.path import is_same_source as is_same_source
from understudy.tables.path import source_id as source_id
from understudy.tables.reading import draft_table as draft_table
from understudy.tables.reading import open_table as open_table
from understudy.tables.reading import read_table as read_table
from understudy.tables.stream import TableStream as TableStream
from understudy.tables.writing import Describe as Describe
from understudy.tables.writing import WrittenTable as WrittenTable
from understudy.tables.writing import check_writable as check_writable
from understudy.tables.writing import write_batches as write_batches
from understudy.tables.writing import write_table as write_table
