"""Tables of SQLite, DuckDB and PostgreSQL."""

import contextlib
import dataclasses
import importlib
import importlib.util
import re
import sqlite3
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

import duckdb
import pyarrow as pa

from understudy.errors import TableError
from understudy.schema import Column, Schema
from understudy.tables.casting import bare
from understudy.tables.cells import read_cells
from understudy.tables.engine import connect, named, quoted
from understudy.tables.places import Place, said_plainly
from understudy.tables.spelling import as_text, require_distinct_by_case, spelled
from understudy.tables.texts import MOST, by_distinct, read_as, untyped, utf8


def _chosen(place: Place, tables: Sequence[str]) -> str:
    """The table that the user named, or the only one."""
    listed = ", ".join(sorted(tables)) or "none"
    if place.table is None:
        if len(tables) == 1:
            return tables[0]
        found = f"{len(tables)} tables: {listed}" if tables else "no table"
        raise TableError(f"{place} has {found}. Name one of them as {place}::NAME.")
    if place.table not in tables:
        raise TableError(
            f"{Place(place.path, place.suffix, url=place.url)} has no table {place.table!r}. It has: {listed}."
        )
    return place.table


def _listed_tables(connection: duckdb.DuckDBPyConnection, catalog: str, main: str) -> dict[str, str]:
    """Tables and views by the name a user gives, with their quoted SQL names."""
    rows = connection.execute(
        "SELECT table_schema, table_name FROM information_schema.tables WHERE table_catalog = ?"
        " AND table_schema NOT IN ('pg_catalog', 'information_schema')",
        [catalog],
    ).fetchall()
    return _spelled_tables(rows, main, f"{named(catalog)}.")


def _spelled_tables(rows: Iterable[tuple[str, str]], main: str, prefix: str = "") -> dict[str, str]:
    plain = {table: f"{prefix}{named(schema)}.{named(table)}" for schema, table in rows if schema == main}
    return plain | {
        f"{schema}.{table}": f"{prefix}{named(schema)}.{named(table)}" for schema, table in rows if schema != main
    }


def tables_in(place: Place) -> list[str]:
    """The names of all tables of a file, in lower case, for SQL ignores it."""
    with said_plainly(place):
        if place.suffix == ".duckdb":
            with duckdb_file(place, read_only=True) as duck:
                names = duck.execute("SELECT table_name FROM information_schema.tables").fetchall()
        else:
            with contextlib.closing(sqlite3.connect(place.path)) as lite:
                names = lite.execute("SELECT name FROM sqlite_master").fetchall()
    return [name.lower() for (name,) in names]


# DuckDB


def read_duckdb(place: Place) -> pa.Table:
    with duckdb_file(place, read_only=True) as connection:
        catalog = connection.execute("SELECT current_database()").fetchall()[0][0]
        tables = _listed_tables(connection, catalog, "main")
        place = dataclasses.replace(place, table=place.table and place.table.removeprefix("main."))
        chosen = _chosen(place, list(tables))
        return bare(connection.sql(f"SELECT * FROM {tables[chosen]}").to_arrow_table())


def write_duckdb(table: pa.Table, path: Path, name: str) -> None:
    require_distinct_by_case(table)
    with duckdb_file(Place(path, ".duckdb"), read_only=False) as connection:
        connection.register("understudy_rows", bare(table))
        connection.execute(f"CREATE OR REPLACE TABLE {named(name)} AS SELECT * FROM understudy_rows")
        connection.unregister("understudy_rows")


@contextlib.contextmanager
def duckdb_file(place: Place, *, read_only: bool) -> Iterator[duckdb.DuckDBPyConnection]:
    try:
        connection = connect(str(place.path), read_only=read_only)
    except duckdb.Error as error:
        if "lock" in str(error):
            raise TableError(f"{place.path} is open in another program. Close it there first.") from None
        raise
    try:
        connection.execute("SET TimeZone = 'UTC'")
        yield connection
    finally:
        connection.close()


def load_extension(connection: duckdb.DuckDBPyConnection, name: str, *, network: bool = False) -> bool:
    """Loads an extension of DuckDB that lies on this machine or in a Python package; from the network only if told."""
    package = importlib.util.find_spec(f"duckdb_extension_{name}")
    folders = list(package.submodule_search_locations or []) if package else []
    files = [Path(f, "extensions", f"v{duckdb.__version__}", f"{name}.duckdb_extension") for f in folders]
    connection.execute("SET autoinstall_known_extensions = false")
    for command in [f"LOAD {name}", *(f"LOAD {quoted(str(file))}" for file in files if file.exists())]:
        with contextlib.suppress(duckdb.Error):
            connection.execute(command)
            return True
    if network:
        with contextlib.suppress(duckdb.Error):
            connection.execute(f"INSTALL {name}")
            connection.execute(f"LOAD {name}")
            return True
    return False


# SQLite: the declared type of a column decides, since each of its values may have another. By kind: how SQLite gives
# the value, and the Arrow type.
_SQLITE_KINDS: dict[str, tuple[str, pa.DataType]] = {
    "integer": (
        "CASE typeof({c}) WHEN 'integer' THEN {c} WHEN 'real' THEN CAST(round({c}) AS INTEGER) END",
        pa.int64(),
    ),
    "real": (
        "CASE WHEN typeof({c}) IN ('integer', 'real') THEN CAST({c} AS REAL) END",
        pa.float64(),
    ),
    "boolean": (
        "CASE WHEN typeof({c}) = 'integer' THEN {c} <> 0"
        " WHEN lower({c}) = 'true' THEN 1 WHEN lower({c}) = 'false' THEN 0 END",
        pa.bool_(),
    ),
    "date": ("CAST({c} AS TEXT)", pa.string()),
    "datetime": ("CAST({c} AS TEXT)", pa.string()),
    "zoned": ("CAST({c} AS TEXT)", pa.string()),
    "text": ("CAST({c} AS TEXT)", pa.string()),
    "": ("CAST({c} AS TEXT)", pa.string()),
}


def _sqlite_kind(declared: str) -> str:
    """The kind of a declared SQLite type, by SQLite's own rules of affinity, with dates and booleans beside them."""
    declared = declared.upper()
    for word, kind in (
        ("BOOL", "boolean"),
        ("TIME ZONE", "zoned"),
        ("TIMESTAMPTZ", "zoned"),
        ("DATETIME", "datetime"),
        ("TIMESTAMP", "datetime"),
        ("DATE", "date"),
        ("INT", "integer"),
        ("CHAR", "text"),
        ("CLOB", "text"),
        ("TEXT", "text"),
        ("REAL", "real"),
        ("FLOA", "real"),
        ("DOUB", "real"),
        ("NUM", "real"),
        ("DEC", "real"),
    ):
        if word in declared:
            return kind
    return ""


def read_sqlite(place: Place) -> pa.Table:
    with _sqlite_table(place) as (connection, name, kinds):
        table = _sqlite_rows(connection, name, kinds)
    columns, wanted = list(table.columns), _sqlite_schema(kinds)
    for i, kind in enumerate(kinds.values()):
        if kind in ("date", "datetime", "zoned"):
            read = _read_each(columns[i], "date" if kind == "date" else "datetime", zoned=kind == "zoned")
            columns[i] = read.cast(wanted.field(i).type)
    return pa.table(columns, schema=wanted)


def read_sqlite_cells(place: Place, schema: Schema) -> tuple[pa.Table, pa.Schema]:
    """Each value by its own type, as a declared schema reads it; and the types that the database table declares.

    The tool that created the table may have chosen those by the values.
    """
    with _sqlite_table(place) as (connection, name, kinds):
        connection.text_factory = utf8
        wanted = [schema[column] if column in schema else Column(name=column, kind="text") for column in kinds]
        pieces: list[list[pa.ChunkedArray]] = [[read_cells((), column)] for column in wanted]
        cursor = connection.execute(f"SELECT {', '.join(map(named, kinds))} FROM {named(name)}")
        while rows := cursor.fetchmany(1 << 16):
            for read, cells, column in zip(pieces, zip(*rows, strict=True), wanted, strict=True):
                read.append(read_cells(cells, column))
        columns = [pa.chunked_array([chunk for part in read for chunk in part.chunks], read[0].type) for read in pieces]
        return pa.table(columns, names=list(kinds)), _sqlite_schema(kinds)


@contextlib.contextmanager
def _sqlite_table(place: Place) -> Iterator[tuple[sqlite3.Connection, str, dict[str, str]]]:
    """A connection, the name of the table, and the declared kind of each of its columns."""
    with contextlib.closing(sqlite3.connect(f"{place.path.resolve().as_uri()}?mode=ro", uri=True)) as connection:
        rows = connection.execute("SELECT name FROM sqlite_master WHERE type IN ('table', 'view')").fetchall()
        name = _chosen(place, [row[0] for row in rows if not row[0].startswith("sqlite_")])
        info = connection.execute(f"PRAGMA table_info({named(name)})").fetchall()
        yield connection, name, {row[1]: _sqlite_kind(row[2] or "") for row in info}


def _sqlite_schema(kinds: Mapping[str, str]) -> pa.Schema:
    moments = {"date": pa.date32(), "datetime": pa.timestamp("us"), "zoned": pa.timestamp("us", "UTC")}
    fields = [pa.field(column, moments.get(kind, _SQLITE_KINDS[kind][1])) for column, kind in kinds.items()]
    return pa.schema([f if kind else untyped(f) for f, kind in zip(fields, kinds.values(), strict=True)])


def _read_each(texts: pa.ChunkedArray, kind: str, *, zoned: bool = False) -> pa.ChunkedArray:
    return by_distinct(texts, lambda distinct: (read_as(distinct, kind, zoned=zoned), {}))[0]


def _sqlite_rows(connection: sqlite3.Connection, name: str, kinds: Mapping[str, str]) -> pa.Table:
    """In pieces. What does not have its column's declared type is null, and so is text that is not UTF-8."""
    connection.text_factory = utf8
    wanted = ", ".join(_SQLITE_KINDS[kind][0].format(c=named(column)) for column, kind in kinds.items())
    schema = pa.schema([(column, _SQLITE_KINDS[kind][1]) for column, kind in kinds.items()])
    cursor = connection.execute(f"SELECT {wanted} FROM {named(name)}")
    batches = []
    while rows := cursor.fetchmany(1 << 16):
        arrays = [
            pa.array(values, pa.int64()).cast(pa.bool_())
            if pa.types.is_boolean(field.type)
            else pa.array(values, field.type)
            for field, values in zip(schema, zip(*rows, strict=True), strict=True)
        ]
        batches.append(pa.record_batch(arrays, schema=schema))
    return pa.Table.from_batches(batches, schema)


def write_sqlite(table: pa.Table, path: Path, name: str) -> None:
    require_distinct_by_case(table)
    declared = ", ".join(f"{named(field.name)} {_sqlite_type(field.type)}" for field in table.schema)
    holes = ", ".join("?" for _ in table.column_names)
    with spelled(table, _as_sqlite) as (connection, expressions):
        plain = connection.sql(f"SELECT {', '.join(expressions)} FROM t").to_arrow_table()
    with contextlib.closing(sqlite3.connect(path, timeout=1.0, isolation_level=None)) as lite:
        lite.execute("BEGIN IMMEDIATE")
        try:
            lite.execute(f"DROP TABLE IF EXISTS {named(name)}")
            lite.execute(f"CREATE TABLE {named(name)} ({declared})")
            for batch in plain.to_batches(1 << 16):
                rows = zip(*(column.to_pylist() for column in batch.columns), strict=True)
                lite.executemany(f"INSERT INTO {named(name)} VALUES ({holes})", rows)
            lite.execute("COMMIT")
        except BaseException:
            with contextlib.suppress(sqlite3.Error):  # a full disk has rolled back already
                lite.execute("ROLLBACK")
            raise


def _as_sqlite(c: str, held: pa.DataType, style: dict[str, str]) -> str:
    if pa.types.is_boolean(held):
        return f"CAST({c} AS INTEGER)"
    if pa.types.is_decimal(held):
        return f"CAST({c} AS DOUBLE)"
    if pa.types.is_uint64(held):
        return f"CASE WHEN {c} <= {MOST} THEN CAST({c} AS BIGINT) ELSE {MOST} END"
    if pa.types.is_integer(held) or pa.types.is_floating(held):
        return c
    iso = {key: value for key, value in style.items() if key == "zone"}
    return as_text(c, held, iso)


def _sqlite_type(held: pa.DataType) -> str:
    types = pa.types
    if types.is_dictionary(held):
        return _sqlite_type(held.value_type)
    if types.is_boolean(held):
        return "BOOLEAN"
    if types.is_integer(held):
        return "INTEGER"
    if types.is_floating(held) or types.is_decimal(held):
        return "REAL"
    if types.is_timestamp(held):
        return "TIMESTAMP WITH TIME ZONE" if held.tz else "TIMESTAMP"
    return "DATE" if types.is_date(held) else "TEXT"


# PostgreSQL


def read_postgres(place: Place) -> pa.Table:
    """By DuckDB's extension, or by ADBC where that is installed and the extension is not."""
    with contextlib.closing(connect()) as connection:
        if load_extension(connection, "postgres_scanner"):
            return _postgres_through_duckdb(place, connection)
        if importlib.util.find_spec("adbc_driver_postgresql"):
            return _postgres_through_adbc(place)
        if load_extension(connection, "postgres_scanner", network=True):
            return _postgres_through_duckdb(place, connection)
    raise TableError(
        f"{place} needs DuckDB's postgres extension, which is neither on this machine nor within reach."
        " Install the package adbc-driver-postgresql, or export the table as Parquet."
    )


def _postgres_through_duckdb(place: Place, connection: duckdb.DuckDBPyConnection) -> pa.Table:
    connection.execute("SET TimeZone = 'UTC'")
    with _said_about_server(place, duckdb.Error):
        connection.execute(f"ATTACH {quoted(place.url)} AS source (TYPE postgres, READ_ONLY)")
    tables = _listed_tables(connection, "source", "public")
    chosen = _chosen(
        dataclasses.replace(place, table=place.table and place.table.removeprefix("public.")), list(tables)
    )
    return bare(connection.sql(f"SELECT * FROM {tables[chosen]}").to_arrow_table())


def _postgres_through_adbc(place: Place) -> pa.Table:
    dbapi = importlib.import_module("adbc_driver_postgresql.dbapi")
    with contextlib.ExitStack() as stack:
        with _said_about_server(place, dbapi.Error):
            connection = stack.enter_context(dbapi.connect(place.url))
        cursor = stack.enter_context(connection.cursor())
        try:
            cursor.execute("SET default_transaction_read_only = on")
            cursor.execute(
                "SELECT table_schema::text, table_name::text FROM information_schema.tables"
                " WHERE table_schema NOT IN ('pg_catalog', 'information_schema')"
            )
            tables = _spelled_tables(cursor.fetchall(), "public")
            place = dataclasses.replace(place, table=place.table and place.table.removeprefix("public."))
            cursor.execute(f"SELECT * FROM {tables[_chosen(place, list(tables))]}")
            table = cursor.fetch_arrow_table()
        except dbapi.Error:
            raise TableError(f"{place} cannot be read. May this user select from it?") from None
    return bare(_without_opaque(table))


def _without_opaque(table: pa.Table) -> pa.Table:
    """ADBC gives `numeric` as text with a label: read it as real."""
    for i, field in enumerate(table.schema):
        if isinstance(field.type, pa.BaseExtensionType):
            texts = pa.chunked_array([c.storage for c in table.column(i).chunks], field.type.storage_type)
            if "numeric" in str(field.type):
                texts = _read_each(texts, "real")
            table = table.set_column(i, pa.field(field.name, texts.type), texts)
    return table


@contextlib.contextmanager
def _said_about_server(place: Place, *errors: type[Exception]) -> Iterator[None]:
    """What the server said, without the address: it may hold a password."""
    try:
        yield
    except errors as error:
        said = re.search(r"(connection to server .*|FATAL: .*|could not .*)", str(error))
        reason = said[1].rstrip(".") if said else "the address is not understood"
        raise TableError(
            f"Cannot connect to {place}: {reason}. Check host, user and database; PGPASSWORD or ~/.pgpass holds the"
            " password."
        ) from None
