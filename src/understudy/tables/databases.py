"""Tables of SQLite, DuckDB and PostgreSQL."""

import contextlib
import dataclasses
import importlib
import importlib.util
import re
import sqlite3
import weakref
from collections.abc import Collection, Iterable, Iterator
from datetime import UTC, datetime
from pathlib import Path

import duckdb
import pyarrow as pa

from understudy.errors import TableError
from understudy.rules.sql import connect, quote_name, quote_text
from understudy.schema import Column, Schema
from understudy.tables.cast import as_declared_type, declared_type, without_metadata
from understudy.tables.cell_tables import read_cells
from understudy.tables.cells import INT64_MAX, decode_utf8
from understudy.tables.formatting import format_in_sql, require_case_insensitive_names, text_sql
from understudy.tables.infer import mark_untyped
from understudy.tables.labels import label_metadata
from understudy.tables.path import TablePath, explain_errors
from understudy.tables.reading_batches import BatchReader
from understudy.tables.writing_batches import RECORD_ROWS, OutputBatches, consume_in_thread


def _choose_table(table_path: TablePath, tables: Collection[str], main: str = "") -> str:
    """The named table, in the database schema `main` if it names none, or the only one."""
    name = table_path.table and table_path.table.removeprefix(f"{main}.")
    names = ", ".join(sorted(tables)) or "none"
    if name is None:
        if len(tables) == 1:
            return next(iter(tables))
        found = f"{len(tables)} tables: {names}" if tables else "no table"
        raise TableError(f"{table_path} has {found}. Name one as {table_path}::NAME.")
    if name not in tables:
        raise TableError(f"{dataclasses.replace(table_path, table=None)} has no table {name!r}. It has: {names}.")
    return name


def _list_tables(connection: duckdb.DuckDBPyConnection, catalog: str, main: str) -> dict[str, str]:
    """Quoted SQL names of tables and views, by the name that a user writes."""
    rows = connection.execute(
        "SELECT table_schema, table_name FROM information_schema.tables WHERE table_catalog = ?"
        " AND table_schema NOT IN ('pg_catalog', 'information_schema')",
        [catalog],
    ).fetchall()
    return _table_names(rows, main, f"{quote_name(catalog)}.")


def _table_names(rows: Iterable[tuple[str, str]], main: str, prefix: str = "") -> dict[str, str]:
    return {
        table if schema == main else f"{schema}.{table}": f"{prefix}{quote_name(schema)}.{quote_name(table)}"
        for schema, table in rows
    }


def tables_in(table_path: TablePath) -> list[str]:
    """The names of all tables of a database file, in lower case, since SQL ignores case."""
    with explain_errors(table_path):
        if table_path.suffix == ".duckdb":
            with open_duckdb(table_path, read_only=True) as duck:
                names = duck.execute("SELECT table_name FROM information_schema.tables").fetchall()
        else:
            with contextlib.closing(sqlite3.connect(table_path.path)) as lite:
                names = lite.execute("SELECT name FROM sqlite_master").fetchall()
    return [name.lower() for (name,) in names]


# DuckDB


def open_duckdb_table(table_path: TablePath) -> BatchReader:
    def read(num_rows: int) -> Iterator[pa.Table]:
        with _query_duckdb(table_path) as rows, rows.to_arrow_reader(num_rows) as reader:
            for batch in reader:
                yield without_metadata(pa.Table.from_batches([batch]))

    with _query_duckdb(table_path) as rows:
        return BatchReader(without_metadata(rows.limit(0).to_arrow_table()).schema, read)


@contextlib.contextmanager
def _query_duckdb(table_path: TablePath) -> Iterator[duckdb.DuckDBPyRelation]:
    with open_duckdb(table_path, read_only=True) as connection:
        catalog = connection.execute("SELECT current_database()").fetchall()[0][0]
        tables = _list_tables(connection, catalog, "main")
        chosen = tables[_choose_table(table_path, tables, "main")]
        yield connection.sql(f"SELECT * FROM {chosen}")


def write_duckdb(batches: OutputBatches, path: Path, name: str) -> None:
    """In one transaction: an error or interrupt before its end leaves the database as it was."""
    require_case_insensitive_names(batches.schema.names)
    with open_duckdb(TablePath(path, ".duckdb"), read_only=False) as connection:

        def load(rows: pa.RecordBatchReader) -> None:
            connection.register("understudy_rows", rows)
            connection.execute(f"CREATE OR REPLACE TABLE {quote_name(name)} AS SELECT * FROM understudy_rows")
            connection.unregister("understudy_rows")
            if label := label_metadata(batches.schema):
                comment = quote_text(", ".join(f"{key} = {value}" for key, value in label.items()))
                connection.execute(f"COMMENT ON TABLE {quote_name(name)} IS {comment}")

        connection.begin()
        consume_in_thread(map(without_metadata, batches), load)
        connection.commit()  # not reached if the rows broke off


@contextlib.contextmanager
def open_duckdb(table_path: TablePath, *, read_only: bool) -> Iterator[duckdb.DuckDBPyConnection]:
    try:
        connection = connect(str(table_path.path), read_only=read_only)
    except duckdb.Error as error:
        if "lock" in str(error):
            raise TableError(f"{table_path.path} is open in another program. Close it first.") from None
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
    commands = [f"LOAD {name}", *(f"LOAD {quote_text(str(file))}" for file in files if file.exists())]
    for command in [*commands, *([f"INSTALL {name}; LOAD {name}"] if network else [])]:
        with contextlib.suppress(duckdb.Error):
            connection.execute(command)
            return True
    return False


# SQLite: the declared type of a column decides, since each of its values may have another.
_SQLITE_COLUMNS = {
    kind: Column(name="", kind=kind) for kind in ("integer", "real", "boolean", "date", "datetime", "text")
} | {
    "zoned": Column(name="", kind="datetime", bounds=(datetime(1, 1, 1, tzinfo=UTC), datetime(9999, 1, 1, tzinfo=UTC)))
}
_SQLITE_WORDS = {
    "boolean": ("BOOL",),
    "zoned": ("TIME ZONE", "TIMESTAMPTZ"),
    "datetime": ("DATETIME", "TIMESTAMP"),
    "date": ("DATE",),
    "integer": ("INT",),
    "text": ("CHAR", "CLOB", "TEXT"),
    "real": ("REAL", "FLOA", "DOUB", "NUM", "DEC"),
}
"""SQLite's rules of affinity, extended by dates and booleans: the first word in a declared type decides."""


def _sqlite_kind(declared: str) -> str:
    """The kind of a declared SQLite type; empty: it has none."""
    return next((kind for kind, words in _SQLITE_WORDS.items() if any(word in declared.upper() for word in words)), "")


def open_sqlite(table_path: TablePath, schema: Schema | None = None) -> BatchReader:
    """Each value read by its own type as its column declares, in the schema or else in the database; and the types that
    the database declares, which the tool that created the table may have chosen by the values.

    A value that cannot be read so is null, as is text that is not UTF-8.
    """
    with _connect_sqlite(table_path) as connection:
        rows = connection.execute("SELECT name FROM sqlite_master WHERE type IN ('table', 'view')").fetchall()
        name = _choose_table(table_path, [row[0] for row in rows if not row[0].startswith("sqlite_")])
        info = connection.execute(f"PRAGMA table_info({quote_name(name)})").fetchall()
    kinds = {row[1]: _sqlite_kind(row[2] or "") for row in info}
    columns = {column: _SQLITE_COLUMNS[kind or "text"] for column, kind in kinds.items()}
    own = pa.schema([pa.field(column, declared_type(read)) for column, read in columns.items()])
    own = pa.schema([f if kinds[f.name] else mark_untyped(f) for f in own])
    wanted = [f"CAST({quote_name(c)} AS TEXT)" if columns[c].kind == "text" else quote_name(c) for c in columns]
    if schema is not None:
        columns = {c: schema[c] if c in schema else _SQLITE_COLUMNS["text"] for c in columns}
        wanted = list(map(quote_name, columns))
    types = own if schema is None else pa.schema([(c, declared_type(column)) for c, column in columns.items()])

    def read(num_rows: int) -> Iterator[pa.Table]:
        with _connect_sqlite(table_path) as connection:
            cursor = connection.execute(f"SELECT {', '.join(wanted)} FROM {quote_name(name)}")
            while rows := cursor.fetchmany(min(num_rows, 1 << 16)):
                cells = zip(zip(*rows, strict=True), columns.values(), strict=True)
                yield pa.table([read_cells(values, column) for values, column in cells], schema=types)

    return BatchReader(types, read, None if schema is None else own)


@contextlib.contextmanager
def _connect_sqlite(table_path: TablePath) -> Iterator[sqlite3.Connection]:
    with contextlib.closing(sqlite3.connect(f"{table_path.path.resolve().as_uri()}?mode=ro", uri=True)) as connection:
        connection.text_factory = decode_utf8
        yield connection


def write_sqlite(batches: OutputBatches, path: Path, name: str) -> None:
    """In one transaction, as `write_duckdb`."""
    require_case_insensitive_names(batches.schema.names)
    declared = ", ".join(f"{quote_name(field.name)} {_sqlite_type(field.type)}" for field in batches.schema)
    placeholders = ", ".join("?" for _ in batches.schema)
    with contextlib.closing(sqlite3.connect(path, timeout=1.0, isolation_level=None)) as lite:
        lite.execute("BEGIN IMMEDIATE")
        try:
            lite.execute(f"DROP TABLE IF EXISTS {quote_name(name)}")
            lite.execute(f"CREATE TABLE {quote_name(name)} ({declared})")
            for batch in batches:
                for piece in format_in_sql(batch, _as_sqlite).to_batches(RECORD_ROWS):
                    rows = zip(*(column.to_pylist() for column in piece.columns), strict=True)
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
    if types.is_timestamp(arrow_type):
        return "TIMESTAMP WITH TIME ZONE" if arrow_type.tz else "TIMESTAMP"
    names = {
        "BOOLEAN": types.is_boolean(arrow_type),
        "INTEGER": types.is_integer(arrow_type),
        "REAL": types.is_floating(arrow_type) or types.is_decimal(arrow_type),
        "DATE": types.is_date(arrow_type),
    }
    return next((name for name, fits in names.items() if fits), "TEXT")


# PostgreSQL


def open_postgres(table_path: TablePath) -> BatchReader:
    """A table: in batches with ADBC, all passes in one transaction; else read whole by DuckDB's extension."""
    if importlib.util.find_spec("adbc_driver_postgresql"):
        return _open_adbc(table_path)
    with contextlib.closing(connect()) as connection:
        if load_extension(connection, "postgres_scanner", network=True):
            return BatchReader.of_table(_postgres_through_duckdb(table_path, connection))
    raise TableError(
        f"{table_path} needs DuckDB's postgres extension, which is not installed and cannot be downloaded. Install "
        "adbc-driver-postgresql, or export the table as Parquet."
    )


def _postgres_through_duckdb(table_path: TablePath, connection: duckdb.DuckDBPyConnection) -> pa.Table:
    connection.execute("SET TimeZone = 'UTC'")
    with _explain_server_errors(table_path, duckdb.Error):
        connection.execute(f"ATTACH {quote_text(table_path.url)} AS source (TYPE postgres, READ_ONLY)")
    tables = _list_tables(connection, "source", "public")
    chosen = tables[_choose_table(table_path, tables, "public")]
    return without_metadata(connection.sql(f"SELECT * FROM {chosen}").to_arrow_table())


_ONE_ORDER = (
    "SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY",
    "SET LOCAL synchronize_seqscans = off",
    "SET LOCAL max_parallel_workers_per_gather = 0",
)
"""Makes every query of a transaction see the same rows in the same order, whatever others do meanwhile."""


def _open_adbc(table_path: TablePath) -> BatchReader:
    """The connection stays open until the reader is no longer used."""
    dbapi = importlib.import_module("adbc_driver_postgresql.dbapi")
    with contextlib.ExitStack() as stack:
        with _explain_server_errors(table_path, dbapi.Error):
            connection = stack.enter_context(dbapi.connect(table_path.url))

        def query(sql: str) -> Iterator[pa.Table]:
            try:
                with connection.cursor() as cursor:
                    cursor.execute(sql)
                    with cursor.fetch_record_batch() as reader:
                        yield from _plain_batches(reader)
            except (dbapi.Error, pa.ArrowException, OSError):
                raise _unreadable(table_path) from None

        try:
            with connection.cursor() as cursor:
                for command in _ONE_ORDER:
                    cursor.execute(command)
                cursor.execute(
                    "SELECT table_schema::text, table_name::text FROM information_schema.tables"
                    " WHERE table_schema NOT IN ('pg_catalog', 'information_schema')"
                )
                tables = _table_names(cursor.fetchall(), "public")
        except dbapi.Error:
            raise _unreadable(table_path) from None
        chosen = f"SELECT * FROM {tables[_choose_table(table_path, tables, 'public')]}"

        def read(_: int) -> Iterator[pa.Table]:
            yield from query(chosen)

        (empty,) = query(f"{chosen} LIMIT 0")
        weakref.finalize(read, stack.pop_all().close)
        return BatchReader(empty.schema, read)


def _unreadable(table_path: TablePath) -> TableError:
    return TableError(
        f"{table_path} cannot be read: the connection was lost, or this user lacks the SELECT privilege. Check both, "
        "and run again."
    )


def _plain_batches(reader: pa.RecordBatchReader) -> Iterator[pa.Table]:
    """The batches of ADBC, after one without rows."""
    yield without_metadata(_without_opaque(reader.schema.empty_table()))
    for batch in reader:
        yield without_metadata(_without_opaque(pa.Table.from_batches([batch])))


def _without_opaque(table: pa.Table) -> pa.Table:
    """ADBC returns `numeric` as text in an extension type; reads it as real."""
    for i, field in enumerate(table.schema):
        if isinstance(field.type, pa.BaseExtensionType):
            strings = pa.chunked_array([c.storage for c in table.column(i).chunks], field.type.storage_type)
            if "numeric" in str(field.type):
                strings = as_declared_type(strings, Column(name="", kind="real"))
            table = table.set_column(i, pa.field(field.name, strings.type), strings)
    return table


@contextlib.contextmanager
def _explain_server_errors(table_path: TablePath, *errors: type[Exception]) -> Iterator[None]:
    """Raises with the reason of the server, without the address, which may contain a password."""
    try:
        yield
    except errors as error:
        match = re.search(r"(connection to server .*|FATAL: .*|could not .*)", str(error))
        reason = match[1].rstrip(".") if match else "the address is not valid"
        raise TableError(
            f"Cannot connect to {table_path}: {reason}. Check host, user and database, and the password in"
            " PGPASSWORD or ~/.pgpass."
        ) from None
