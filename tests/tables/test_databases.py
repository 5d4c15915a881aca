"""Tables of SQLite, DuckDB and PostgreSQL, read for real; PostgreSQL only where a server can be started."""

import contextlib
import dataclasses
import datetime as dt
import glob
import importlib.util
import os
import shutil
import socket
import sqlite3
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import duckdb
import pyarrow as pa
import pytest

from understudy.errors import TableError
from understudy.schema import Column, Schema
from understudy.tables import read_table, write_table
from understudy.tables.databases import load_extension

PEOPLE = pa.table(
    {
        "n": pa.array([9007199254740993, None]),
        "r": [0.1, None],
        "t": ["007", None],
        "b": [True, None],
        "d": pa.array([dt.date(2020, 1, 1), None]),
        "m": pa.array([dt.datetime(2020, 1, 1, 10, 0, 0, 500_000), None], pa.timestamp("us")),
        "z": pa.array([dt.datetime(2020, 1, 1, 10), None], pa.timestamp("us", "UTC")),
        "c": pa.array(["x", None]).dictionary_encode(),
    }
)


def plain(table: pa.Table) -> pa.Table:
    """Databases keep values, not dictionaries."""
    return table.set_column(7, "c", table.column("c").cast(pa.string()))


@pytest.mark.parametrize("name", ["x.sqlite", "x.sqlite3", "x.db", "x.duckdb"])
def test_a_table_comes_back(tmp_path: Path, name: str) -> None:
    write_table(PEOPLE, f"{tmp_path / name}::people")
    assert read_table(f"{tmp_path / name}::people")[0].equals(plain(PEOPLE))
    assert read_table(tmp_path / name)[0].num_rows == 2  # the only table needs no name


@pytest.mark.parametrize("name", ["x.sqlite", "x.duckdb"])
def test_several_tables(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    write_table(PEOPLE, f"{path}::people")
    write_table(PEOPLE.select(["n"]), f"{path}::my visits")
    assert read_table(f"{path}::my visits")[0].column_names == ["n"]
    with pytest.raises(TableError, match=r"has 2 tables: my visits, people\. Name one as"):
        read_table(path)
    with pytest.raises(TableError, match=r"has no table 'peeple'\. It has: my visits, people"):
        read_table(f"{path}::peeple")
    with pytest.raises(TableError):
        write_table(PEOPLE, f"{path}::people")
    write_table(PEOPLE.slice(0, 1), f"{path}::people", force=True)
    assert read_table(f"{path}::people")[0].num_rows == 1
    assert read_table(f"{path}::my visits")[0].num_rows == 2
    assert sorted(p.name for p in tmp_path.iterdir()) == [name]


def test_an_empty_table(tmp_path: Path) -> None:
    write_table(PEOPLE.slice(0, 0), f"{tmp_path / 'x.sqlite'}::people")
    write_table(PEOPLE.slice(0, 0), f"{tmp_path / 'x.duckdb'}::people")
    schema = Schema.draft(PEOPLE.schema)
    for name in ("x.sqlite", "x.duckdb"):
        for given in (None, schema, dataclasses.replace(schema, drafted=False)):
            table, _ = read_table(tmp_path / name, schema=given)
            assert (table.num_rows, table.column_names) == (0, PEOPLE.column_names)
    with contextlib.closing(sqlite3.connect(tmp_path / "y.sqlite")) as connection:
        connection.execute("CREATE TABLE t (a)")
    with pytest.raises(TableError) as caught:
        read_table(tmp_path / "y.sqlite")
    assert caught.value.column == "a"


def test_sqlite_values_of_another_type_are_null(tmp_path: Path) -> None:
    """In SQLite each value may have its own type; the declared one counts."""
    with contextlib.closing(sqlite3.connect(tmp_path / "x.sqlite")) as connection:
        connection.execute("CREATE TABLE t (i INTEGER, r REAL, b BOOLEAN, d DATE, s VARCHAR(9), x, n DECIMAL(9, 2))")
        connection.execute("INSERT INTO t VALUES ('oops', 'oops', 'true', 'oops', 5, '1', 2.5)")
        connection.execute("INSERT INTO t VALUES (5, 2, 0, '2020-01-01', '007', 2, 1)")
        connection.commit()
    assert read_table(tmp_path / "x.sqlite")[0].to_pylist() == [
        {"i": None, "r": None, "b": True, "d": None, "s": "5", "x": 1, "n": 2.5},
        {"i": 5, "r": 2.0, "b": False, "d": dt.date(2020, 1, 1), "s": "007", "x": 2, "n": 1.0},
    ]


def test_a_schema_reads_text_columns(tmp_path: Path) -> None:
    write_table(pa.table({"a": ["1", "x"]}), f"{tmp_path / 'x.sqlite'}::t")
    schema = Schema(columns=(Column(name="a", kind="integer"),))
    for keep_types, held in ((False, "int64"), (True, "string")):
        table, origin = read_table(tmp_path / "x.sqlite", schema=schema, keep_types=keep_types)
        assert table.column("a").to_pylist() == [1, None]
        assert origin.columns["a"].arrow == held


@pytest.mark.parametrize("value", [1, 2.5, "x", None])
def test_sqlite_columns_without_a_type_take_the_declared_one(tmp_path: Path, value: object) -> None:
    with contextlib.closing(sqlite3.connect(tmp_path / "x.sqlite")) as connection:
        connection.execute("CREATE TABLE t (a, b, c)")
        connection.execute("INSERT INTO t VALUES (?, ?, ?)", [value] * 3)
        connection.commit()
    kinds = {"a": "integer", "b": "categorical", "c": "real"}
    schema = Schema(columns=tuple(Column(name=name, kind=kind) for name, kind in kinds.items()))
    _, origin = read_table(tmp_path / "x.sqlite", schema=schema)
    assert [origin.columns[name].arrow for name in "abc"] == ["int64", "string", "double"]
    assert all(not column.style for column in origin.columns.values())


def test_duckdb_schemas_and_views(tmp_path: Path) -> None:
    with contextlib.closing(duckdb.connect(str(tmp_path / "x.duckdb"))) as connection:
        connection.execute("CREATE TABLE people AS SELECT 1 AS a")
        connection.execute("CREATE SCHEMA clinic")
        connection.execute("CREATE VIEW clinic.visits AS SELECT a + 1 AS a FROM people")
    assert read_table(f"{tmp_path / 'x.duckdb'}::clinic.visits")[0].to_pylist() == [{"a": 2}]
    assert read_table(f"{tmp_path / 'x.duckdb'}::main.people")[0].to_pylist() == [{"a": 1}]


def test_a_locked_database_is_left_alone(tmp_path: Path) -> None:
    write_table(PEOPLE, f"{tmp_path / 'x.sqlite'}::people")
    with contextlib.closing(sqlite3.connect(tmp_path / "x.sqlite", isolation_level=None)) as other:
        other.execute("BEGIN EXCLUSIVE")
        with pytest.raises(TableError):
            write_table(PEOPLE, f"{tmp_path / 'x.sqlite'}::people", force=True)
    assert read_table(tmp_path / "x.sqlite")[0].num_rows == 2


# ------------------------------------------------------------------------------------------------------- PostgreSQL


def _has_driver() -> bool:
    with contextlib.closing(duckdb.connect(":memory:")) as connection:
        return importlib.util.find_spec("adbc_driver_postgresql") is not None or load_extension(
            connection, "postgres_scanner"
        )


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    """The address of a fresh PostgreSQL server with two tables."""
    found = shutil.which("initdb") or next(iter(sorted(glob.glob("/usr/lib/postgresql/*/bin/initdb"))), None)
    if found is None or not _has_driver():
        pytest.skip("needs PostgreSQL's programs, and its DuckDB extension or adbc-driver-postgresql")
    user = "postgres" if os.geteuid() == 0 else None  # the server refuses to run as root
    folder = tempfile.mkdtemp(prefix="understudy-postgres-")
    if user:
        try:
            shutil.chown(folder, user)
        except LookupError:
            pytest.skip("needs a user named postgres, as root may not run the server")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]

    def call(program: str, *arguments: str, text: str | None = None) -> None:
        path = Path(found).resolve().with_name(program)  # a link to initdb may stand alone
        subprocess.run(
            [path, *arguments], check=True, capture_output=True, user=user, cwd=folder, input=text, text=True
        )

    data = f"{folder}/data"
    options = f"-p {port} -k {folder} -c listen_addresses=127.0.0.1 -c fsync=off"
    try:
        call("initdb", "-D", data, "-A", "trust", "-U", "tester", "-E", "UTF8", "--no-sync")
        call("pg_ctl", "-D", data, "-o", options, "-l", f"{folder}/log", "-w", "start")
        try:
            call("psql", "-h", "127.0.0.1", "-p", str(port), "-U", "tester", "-d", "postgres", text=_POSTGRES_TABLES)
            yield f"postgresql://tester:secret@127.0.0.1:{port}/postgres"
        finally:
            call("pg_ctl", "-D", data, "-m", "immediate", "stop")
    finally:
        shutil.rmtree(folder, ignore_errors=True)


_POSTGRES_TABLES = """
CREATE TABLE people
    (n bigint, r float8, t text, b boolean, d date, m timestamp, z timestamptz, c varchar(9), q numeric);
INSERT INTO people VALUES (9007199254740993, 0.1, '007', true, '2020-01-01', '2020-01-01 10:00:00.5',
    '2020-01-01 11:00+01', 'x', 2.50), (NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL);
CREATE SCHEMA clinic;
CREATE TABLE clinic.visits AS SELECT 5 AS a;
"""


def test_postgres_tables_are_read(server: str) -> None:
    for name in ("people", "public.people"):
        table, _ = read_table(f"{server}::{name}")
        assert table.drop_columns(["q"]).to_pylist() == plain(PEOPLE).to_pylist()
        assert [float(q) if q is not None else None for q in table.column("q").to_pylist()] == [2.5, None]
    assert read_table(f"{server}::clinic.visits")[0].to_pylist() == [{"a": 5}]


def test_postgres_messages_name_tables_and_no_password(server: str) -> None:
    for address, said in (
        (server, "has 2 tables: clinic.visits, people"),
        (f"{server}::nix", "has no table 'nix'"),
        (f"{server}nodb::people", "does not exist"),
    ):
        with pytest.raises(TableError, match=said) as caught:
            read_table(address)
        assert "secret" not in str(caught.value)
        assert "\n" not in str(caught.value)


def test_a_server_that_is_not_there() -> None:
    if not _has_driver():
        pytest.skip("needs the DuckDB extension or adbc-driver-postgresql")
    with pytest.raises(TableError, match=r"Cannot connect to postgresql://me:\*\*\*@127\.0\.0\.1:1/db::people"):
        read_table("postgresql://me:secret@127.0.0.1:1/db::people")
