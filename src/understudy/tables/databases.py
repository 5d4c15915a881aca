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
from understudy.tables.cast import read_cells, without_metadata
from understudy.tables.cells import INT64_MAX, decode_utf8
from understudy.tables.formatting import format_in_sql, require_case_insensitive_names, text_sql
from understudy.tables.infer import convert_distinct, mark_untyped, read_as
from understudy.tables.location import TableLocation, explain_errors
from understudy.tables.sql import connect, quote_name, quote_text


def _choose_table(location: TableLocation, tables: Sequence[str]) -> str:
    """The named table, or the only one."""
    names = ", ".join(sorted(tables)) or "none"
    if location.table is None:
        if len(tables) == 1:
            return tables[0]
        found = f"{len(tables)} tables: {names}" if tables else "no table"
        raise TableError(f"{location} has {found}. Name one as {location}::NAME.")
    if location.table not in tables:
        raise TableError(
            f"{dataclasses.replace(location, table=None)} has no table {location.table!r}. It has: {names}."
        )
    return location.table


def _list_tables(connection: duckdb.DuckDBPyConnection, catalog: str, main: str) -> dict[str, str]:
    """Quoted SQL names of tables and views, by the name that a user writes."""
    rows = connection.execute(
        "SELECT table_schema, table_name FROM information_schema.tables WHERE table_catalog = ?"
        " AND table_schema NOT IN ('pg_catalog', 'information_schema')",
        [catalog],
    ).fetchall()
    return _table_names(rows, main, f"{quote_name(catalog)}.")


def _table_names(rows: Iterable[tuple[str, str]], main: str, prefix: str = "") -> dict[str, str]:
    plain = {table: f"{prefix}{quote_name(schema)}.{quote_name(table)}" for schema, table in rows if schema == main}
    return plain | {
        f"{schema}.{table}": f"{prefix}{quote_name(schema)}.{quote_name(table)}"
        for schema, table in rows
        if schema != main
    }


def tables_in(location: TableLocation) -> list[str]:
    """The names of all tables of a database file, in lower case, since SQL ignores case."""
    with explain_errors(location):
        if location.suffix == ".duckdb":
            with open_duckdb(location, read_only=True) as duck:
                names = duck.execute("SELECT table_name FROM information_schema.tables").fetchall()
        else:
            with contextlib.closing(sqlite3.connect(location.path)) as lite:
                names = lite.execute("SELECT name FROM sqlite_master").fetchall()
    return [name.lower() for (name,) in names]


# DuckDB


def read_duckdb(location: TableLocation) -> pa.Table:
    with open_duckdb(location, read_only=True) as connection:
        catalog = connection.execute("SELECT current_database()").fetchall()[0][0]
        tables = _list_tables(connection, catalog, "main")
        location = dataclasses.replace(location, table=location.table and location.table.removeprefix("main."))
        chosen = _choose_table(location, list(tables))
        return without_metadata(connection.sql(f"SELECT * FROM {tables[chosen]}").to_arrow_table())


def write_duckdb(table: pa.Table, path: Path, name: str) -> None:
    require_case_insensitive_names(table)
    with open_duckdb(TableLocation(path, ".duckdb"), read_only=False) as connection:
        connection.register("understudy_rows", without_metadata(table))
        connection.execute(f"CREATE OR REPLACE TABLE {quote_name(name)} AS SELECT * FROM understudy_rows")
        connection.unregister("understudy_rows")


@contextlib.contextmanager
def open_duckdb(location: TableLocation, *, read_only: bool) -> Iterator[duckdb.DuckDBPyConnection]:
    try:
        connection = connect(str(location.path), read_only=read_only)
    except duckdb.Error as error:
        if "lock" in str(error):
            raise TableError(f"{location.path} is open in another program. Close it first.") from None
        raise
    try:
        connection.execute("SET TimeZone = 'UTC'")
        yield connection
    finally:
        connection.close()


def load_extension(connection: duckdb.DuckDBPyConnection, name: str, *, network: bool = False) -> bool:
    """Loads a DuckDB extension from this machine or a Python package, and with `network` also from the network."""
    package = importlib.util.find_spec(f"duckdb_extension_{name}")
    folders = list(package.submodule_search_locations or []) if package else []
    files = [Path(f, "extensions", f"v{duckdb.__version__}", f"{name}.duckdb_extension") for f in folders]
    connection.execute("SET autoinstall_known_extensions = false")
    for command in [f"LOAD {name}", *(f"LOAD {quote_text(str(file))}" for file in files if file.exists())]:
        with contextlib.suppress(duckdb.Error):
            connection.execute(command)
            return True
    if network:
        with contextlib.suppress(duckdb.Error):
            connection.execute(f"INSTALL {name}")
            connection.execute(f"LOAD {name}")
            return True
    return False


# SQLite: the declared type of a column decides, since each of its values may have another. For each kind: the SQL that
# reads a value, and the Arrow type.
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
    """The kind of a declared SQLite type, by SQLite's rules of affinity, extended by dates and booleans."""
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


def read_sqlite(location: TableLocation) -> pa.Table:
    with _sqlite_table(location) as (connection, name, kinds):
        table = _sqlite_rows(connection, name, kinds)
    columns, wanted = list(table.columns), _sqlite_schema(kinds)
    for i, kind in enumerate(kinds.values()):
        if kind in ("date", "datetime", "zoned"):
            read = _read_texts(columns[i], "date" if kind == "date" else "datetime", zoned=kind == "zoned")
            columns[i] = read.cast(wanted.field(i).type)
    return pa.table(columns, schema=wanted)


def read_sqlite_cells(location: TableLocation, schema: Schema) -> tuple[pa.Table, pa.Schema]:
    """Each value read by its own type, as the schema declares; and the types that the database table declares.

    The tool that created the table may have chosen the latter by the values.
    """
    with _sqlite_table(location) as (connection, name, kinds):
        connection.text_factory = decode_utf8
        wanted = [schema[column] if column in schema else Column(name=column, kind="text") for column in kinds]
        pieces: list[list[pa.ChunkedArray]] = [[read_cells((), column)] for column in wanted]
        cursor = connection.execute(f"SELECT {', '.join(map(quote_name, kinds))} FROM {quote_name(name)}")
        while rows := cursor.fetchmany(1 << 16):
            for read, cells, column in zip(pieces, zip(*rows, strict=True), wanted, strict=True):
                read.append(read_cells(cells, column))
        columns = [pa.chunked_array([chunk for part in read for chunk in part.chunks], read[0].type) for read in pieces]
        return pa.table(columns, names=list(kinds)), _sqlite_schema(kinds)


@contextlib.contextmanager
def _sqlite_table(location: TableLocation) -> Iterator[tuple[sqlite3.Connection, str, dict[str, str]]]:
    """A connection, the name of the table, and the declared kind of each of its columns."""
    with contextlib.closing(sqlite3.connect(f"{location.path.resolve().as_uri()}?mode=ro", uri=True)) as connection:
        rows = connection.execute("SELECT name FROM sqlite_master WHERE type IN ('table', 'view')").fetchall()
        name = _choose_table(location, [row[0] for row in rows if not row[0].startswith("sqlite_")])
        info = connection.execute(f"PRAGMA table_info({quote_name(name)})").fetchall()
        yield connection, name, {row[1]: _sqlite_kind(row[2] or "") for row in info}


def _sqlite_schema(kinds: Mapping[str, str]) -> pa.Schema:
    moments = {"date": pa.date32(), "datetime": pa.timestamp("us"), "zoned": pa.timestamp("us", "UTC")}
    fields = [pa.field(column, moments.get(kind, _SQLITE_KINDS[kind][1])) for column, kind in kinds.items()]
    return pa.schema([f if kind else mark_untyped(f) for f, kind in zip(fields, kinds.values(), strict=True)])


def _read_texts(texts: pa.ChunkedArray, kind: str, *, zoned: bool = False) -> pa.ChunkedArray:
    return convert_distinct(texts, lambda distinct: (read_as(distinct, kind, zoned=zoned), {}))[0]


def _sqlite_rows(connection: sqlite3.Connection, name: str, kinds: Mapping[str, str]) -> pa.Table:
    """Reads in batches. A value that does not have its column's declared type is null, as is text that is not UTF-8."""
    connection.text_factory = decode_utf8
    wanted = ", ".join(_SQLITE_KINDS[kind][0].format(c=quote_name(column)) for column, kind in kinds.items())
    schema = pa.schema([(column, _SQLITE_KINDS[kind][1]) for column, kind in kinds.items()])
    cursor = connection.execute(f"SELECT {wanted} FROM {quote_name(name)}")
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
    require_case_insensitive_names(table)
    declared = ", ".join(f"{quote_name(field.name)} {_sqlite_type(field.type)}" for field in table.schema)
    placeholders = ", ".join("?" for _ in table.column_names)
    with format_in_sql(table, _as_sqlite) as (connection, expressions):
        plain = connection.sql(f"SELECT {', '.join(expressions)} FROM t").to_arrow_table()
    with contextlib.closing(sqlite3.connect(path, timeout=1.0, isolation_level=None)) as lite:
        lite.execute("BEGIN IMMEDIATE")
        try:
            lite.execute(f"DROP TABLE IF EXISTS {quote_name(name)}")
            lite.execute(f"CREATE TABLE {quote_name(name)} ({declared})")
            for batch in plain.to_batches(1 << 16):
                rows = zip(*(column.to_pylist() for column in batch.columns), strict=True)
                lite.executemany(f"INSERT INTO {quote_name(name)} VALUES ({placeholders})", rows)
            lite.execute("COMMIT")
        except BaseException:
            with contextlib.suppress(sqlite3.Error):  # on a full disk it is already rolled back
                lite.execute("ROLLBACK")
            raise


def _as_sqlite(c: str, arrow_type: pa.DataType, style: dict[str, str]) -> str:
    if pa.types.is_boolean(arrow_type):
        return f"CAST({c} AS INTEGER)"
    if pa.types.is_decimal(arrow_type):
        return f"CAST({c} AS DOUBLE)"
    if pa.types.is_uint64(arrow_type):
        return f"CASE WHEN {c} <= {INT64_MAX} THEN CAST({c} AS BIGINT) ELSE {INT64_MAX} END"
    if pa.types.is_integer(arrow_type) or pa.types.is_floating(arrow_type):
        return c
    iso = {key: value for key, value in style.items() if key == "zone"}
    return text_sql(c, arrow_type, iso)


def _sqlite_type(arrow_type: pa.DataType) -> str:
    types = pa.types
    if types.is_dictionary(arrow_type):
        return _sqlite_type(arrow_type.value_type)
    if types.is_boolean(arrow_type):
        return "BOOLEAN"
    if types.is_integer(arrow_type):
        return "INTEGER"
    if types.is_floating(arrow_type) or types.is_decimal(arrow_type):
        return "REAL"
    if types.is_timestamp(arrow_type):
        return "TIMESTAMP WITH TIME ZONE" if arrow_type.tz else "TIMESTAMP"
    return "DATE" if types.is_date(arrow_type) else "TEXT"


# PostgreSQL


def read_postgres(location: TableLocation) -> pa.Table:
    """Reads with DuckDB's extension, or with ADBC if that is installed and the extension is not."""
    with contextlib.closing(connect()) as connection:
        if load_extension(connection, "postgres_scanner"):
            return _postgres_through_duckdb(location, connection)
        if importlib.util.find_spec("adbc_driver_postgresql"):
            return _postgres_through_adbc(location)
        if load_extension(connection, "postgres_scanner", network=True):
            return _postgres_through_duckdb(location, connection)
    raise TableError(
        f"{location} needs DuckDB's postgres extension, which is not installed and cannot be downloaded. Install "
        "adbc-driver-postgresql, or export the table as Parquet."
    )


def _postgres_through_duckdb(location: TableLocation, connection: duckdb.DuckDBPyConnection) -> pa.Table:
    connection.execute("SET TimeZone = 'UTC'")
    with _explain_server_errors(location, duckdb.Error):
        connection.execute(f"ATTACH {quote_text(location.url)} AS source (TYPE postgres, READ_ONLY)")
    tables = _list_tables(connection, "source", "public")
    chosen = _choose_table(
        dataclasses.replace(location, table=location.table and location.table.removeprefix("public.")), list(tables)
    )
    return without_metadata(connection.sql(f"SELECT * FROM {tables[chosen]}").to_arrow_table())


def _postgres_through_adbc(location: TableLocation) -> pa.Table:
    dbapi = importlib.import_module("adbc_driver_postgresql.dbapi")
    with contextlib.ExitStack() as stack:
        with _explain_server_errors(location, dbapi.Error):
            connection = stack.enter_context(dbapi.connect(location.url))
        cursor = stack.enter_context(connection.cursor())
        try:
            cursor.execute("SET default_transaction_read_only = on")
            cursor.execute(
                "SELECT table_schema::text, table_name::text FROM information_schema.tables"
                " WHERE table_schema NOT IN ('pg_catalog', 'information_schema')"
            )
            tables = _table_names(cursor.fetchall(), "public")
            location = dataclasses.replace(location, table=location.table and location.table.removeprefix("public."))
            cursor.execute(f"SELECT * FROM {tables[_choose_table(location, list(tables))]}")
            table = cursor.fetch_arrow_table()
        except dbapi.Error:
            raise TableError(f"{location} cannot be read. Check that this user has the SELECT privilege.") from None
    return without_metadata(_without_opaque(table))


def _without_opaque(table: pa.Table) -> pa.Table:
    """ADBC returns `numeric` as text in an extension type; reads it as real."""
    for i, field in enumerate(table.schema):
        if isinstance(field.type, pa.BaseExtensionType):
            texts = pa.chunked_array([c.storage for c in table.column(i).chunks], field.type.storage_type)
            if "numeric" in str(field.type):
                texts = _read_texts(texts, "real")
            table = table.set_column(i, pa.field(field.name, texts.type), texts)
    return table


@contextlib.contextmanager
def _explain_server_errors(location: TableLocation, *errors: type[Exception]) -> Iterator[None]:
    """Raises with the reason of the server, without the address, which may contain a password."""
    try:
        yield
    except errors as error:
        found = re.search(r"(connection to server .*|FATAL: .*|could not .*)", str(error))
        reason = found[1].rstrip(".") if found else "the address is not valid"
        raise TableError(
            f"Cannot connect to {location}: {reason}. Check host, user and database, and the password in"
            " PGPASSWORD or ~/.pgpass."
        ) from None
