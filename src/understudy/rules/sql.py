"""DuckDB connections and SQL quoting.

Annotations that name DuckDB's types are quoted: JAX keeps some functions until the process has ended, and DuckDB prints
long messages about types that are still in use then.
"""

import contextlib
import os
import threading
from collections.abc import Iterator

import duckdb
import pyarrow as pa


def compute_sql(expression: str, values: pa.Array) -> pa.Array:
    """The value of a DuckDB expression over `v`, for each of the values."""
    with sandbox() as connection:
        connection.register("t", pa.table({"v": values}))
        result = connection.sql(f"SELECT {expression} AS r FROM t").to_arrow_table().column(0)
    return result.combine_chunks() if isinstance(result, pa.ChunkedArray) else result


@contextlib.contextmanager
def sandbox(*, optimized: bool = True) -> "Iterator[duckdb.DuckDBPyConnection]":
    """DuckDB in memory, without access to files, the network or Python variables.

    Its optimizer moves parts of an expression out of TRY, where they raise an error; without it they stay inside.
    An error after which the engine is of no more use is raised as FatalException, and the next sandbox has a new one.
    """
    engine = _engine(optimized=optimized)
    connection = engine.cursor()
    try:
        yield connection
    except duckdb.Error as error:
        if isinstance(error, duckdb.FatalException | duckdb.InternalException) or not _answers(engine):
            _engines.running.pop((os.getpid(), optimized), None)
            raise duckdb.FatalException(str(error)) from None
        raise
    finally:
        connection.close()


class _Engines(threading.local):
    """The engines of this thread. No other thread shares them, so a query that fails for good spoils no other."""

    def __init__(self) -> None:
        self.running: dict[tuple[int, bool], duckdb.DuckDBPyConnection] = {}


_engines = _Engines()


def _engine(*, optimized: bool) -> "duckdb.DuckDBPyConnection":
    """One engine of each sort per process: starting one takes longer than most queries, and none survives a fork."""
    key = (os.getpid(), optimized)
    if key not in _engines.running:
        _engines.running[key] = _start_engine(optimized=optimized)
    return _engines.running[key]


def _start_engine(*, optimized: bool) -> "duckdb.DuckDBPyConnection":
    connection = connect()
    if not optimized:
        steps = [name for (name,) in connection.execute("SELECT name FROM duckdb_optimizers()").fetchall()]
        connection.execute(f"SET GLOBAL disabled_optimizers = '{','.join(steps)}'")
    connection.execute("SET GLOBAL TimeZone = 'UTC'")
    connection.execute("SET GLOBAL python_enable_replacements = false")
    connection.execute("SET GLOBAL enable_external_access = false")
    connection.execute("SET GLOBAL lock_configuration = true")
    return connection


def _answers(engine: "duckdb.DuckDBPyConnection") -> bool:
    try:
        with engine.cursor() as connection:
            return connection.execute("SELECT 1").fetchall() == [(1,)]
    except duckdb.Error:
        return False


def connect(path: str = ":memory:", *, read_only: bool = False) -> "duckdb.DuckDBPyConnection":
    """A connection that never spills private rows to disk."""
    connection = duckdb.connect(path, read_only=read_only)
    connection.execute("SET temp_directory = ''")
    return connection


def quote_text(text: str) -> str:
    """A string as an SQL literal."""
    return "'" + text.replace("'", "''") + "'"


def quote_name(text: str) -> str:
    """A name as an SQL identifier."""
    return '"' + text.replace('"', '""') + '"'
