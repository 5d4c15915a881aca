"""Reading in: a file or a database table as Arrow, and its origin."""

from collections.abc import Callable
from pathlib import Path

import pyarrow as pa

from understudy.errors import TableError
from understudy.schema import Schema
from understudy.tables.arrowfiles import read_arrow, read_parquet
from understudy.tables.casting import conform, given_back, inner_form
from understudy.tables.databases import read_duckdb, read_postgres, read_sqlite
from understudy.tables.jsonlines import read_json_lines, read_json_texts
from understudy.tables.origins import Origin
from understudy.tables.places import Place, require_file, require_names, said_plainly
from understudy.tables.textfiles import read_delimited
from understudy.tables.texts import with_found_types

_READERS: dict[str, Callable[[Place], pa.Table]] = {
    ".csv": read_delimited,
    ".tsv": read_delimited,
    ".tab": read_delimited,
    ".jsonl": read_json_lines,
    ".parquet": read_parquet,
    ".feather": read_arrow,
    ".arrow": read_arrow,
    ".sqlite": read_sqlite,
    ".duckdb": read_duckdb,
    "postgres": read_postgres,
}


def read_table(source: str | Path, *, schema: Schema | None = None) -> tuple[pa.Table, Origin]:
    """Reads a file or a database table: `people.csv`, `people.sqlite::patients`, `postgresql://me@host/db::public.people`.

    With a schema each column is read as the declared kind, and what cannot be read so is null: never an error. A
    declared schema (not a drafted one) alone decides how the origin spells values, and which types it gives to columns
    of text files and JSON lines: for all rows the origin is the same.
    """
    place = Place.of(source)
    if place.suffix != "postgres":
        require_file(place.path)
    with said_plainly(place):
        if place.suffix == ".jsonl" and schema is not None and not schema.drafted:
            table = read_json_texts(place, [column.name for column in schema.columns if not column.drop])
        else:
            table = _READERS[place.suffix](place)
    require_names(table.column_names, str(place))
    if table.num_rows == 0:
        raise TableError(f"{place} has a header but no rows. A table needs at least one row.")
    if schema is not None:
        conformed = conform(inner_form(table), schema)
        return conformed, Origin.of(given_back(table.schema, conformed.schema, schema), "file")
    columns, fields = list(table.columns), table.schema
    del table  # so that the texts of a column can go as soon as its values are there
    table = with_found_types(columns, fields)
    return inner_form(table), Origin.of(table.schema, "file")
