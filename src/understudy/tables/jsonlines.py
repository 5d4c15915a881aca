"""JSON lines: one object in each line."""

import io
import itertools
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import cast

import duckdb
import pyarrow as pa
import pyarrow.json

from understudy.errors import TableError
from understudy.tables.engine import named, quoted, sandbox
from understudy.tables.places import Place
from understudy.tables.spelling import moment_text, require_distinct_by_case, spelled
from understudy.tables.textfiles import require_utf8
from understudy.tables.texts import untyped


def read_json_lines(place: Place) -> pa.Table:
    """Columns in the types of JSON, which are those of its values; strings may yet be dates."""

    def parsed(schema: pa.Schema | None) -> pa.Table:
        with pa.input_stream(str(place.path), compression="detect") as stream:
            return pa.json.read_json(
                stream,
                read_options=pa.json.ReadOptions(block_size=1 << 24),
                parse_options=pa.json.ParseOptions(explicit_schema=schema),
            )

    try:
        table = parsed(None)
        moments = [field for field in table.schema if pa.types.is_timestamp(field.type)]
        if moments:  # pyarrow guesses at times; the rules for text decide instead
            table = parsed(pa.schema([field.with_type(pa.string()) for field in moments])).select(table.column_names)
        table.validate(full=True)  # the parser accepts strings that are not UTF-8
    except pa.ArrowInvalid as error:
        require_utf8(place)
        mixed = re.search(r"Column\(/([^)]*)\) changed from (\w+) to (\w+)", str(error))
        if mixed:
            name, before, after = mixed.groups()
            name = name.split("/")[0]  # names further down are keys of values
            raise TableError(
                f"{place}: column {name!r} holds both {before} and {after} values. Write it in one way throughout."
            ) from None
        row = re.search(r"in row (\d+)", str(error))
        raise _no_object(place, f"line {int(row[1]) + 1}" if row else "a line") from None
    fields = [untyped(f, only_dates=True) if pa.types.is_string(f.type) else f for f in table.schema]
    return table.cast(pa.schema(fields))


def read_json_texts(place: Place, names: Sequence[str]) -> pa.Table:
    """All columns as text, whatever JSON calls their values: for a declared schema, so that no value decides a type.

    Only the keys `names` are taken. An absent key is a null, and a line that is no JSON object a row of nulls.
    """
    pieces = [pa.schema([(name, pa.string()) for name in names]).empty_table()]
    for lines in _pieces(place):
        with sandbox() as connection:
            connection.register("t", pa.table({"line": pa.array(lines, pa.string())}))
            pieces.append(_texts_of(connection, names))
    table = pa.concat_tables(pieces)
    return table.cast(pa.schema([untyped(field) for field in table.schema]))


def _pieces(place: Place, num_lines: int = 1 << 16) -> Iterator[list[str]]:
    """The lines of the file, so many at a time."""
    with pa.input_stream(str(place.path), compression="detect") as stream:
        text = io.TextIOWrapper(cast(io.BufferedReader, stream), encoding="utf-8-sig", newline="\n")
        try:
            while lines := list(itertools.islice(text, num_lines)):
                yield lines
        except UnicodeDecodeError:
            require_utf8(place)
            raise


def _texts_of(connection: duckdb.DuckDBPyConnection, names: Sequence[str]) -> pa.Table:
    """The values of these keys of the lines in `t`; a blank line is no row."""
    pointers = ", ".join(quoted("/" + name.replace("~", "~0").replace("/", "~1")) for name in names)
    wanted = ", ".join(f"x[{i}] AS c{i}" for i in range(1, len(names) + 1))
    texts = connection.sql(
        f"SELECT {wanted} FROM (SELECT CASE WHEN json_valid(line) AND json_type(line) = 'OBJECT'"
        f" THEN json_extract_string(line, [{pointers}]) END AS x FROM t WHERE trim(line, ' \t\r\n') <> '')"
    )
    return texts.to_arrow_table().rename_columns(list(names))


def _no_object(place: Place, where: str) -> TableError:
    return TableError(f"{place}: {where} is not a JSON object. Expected one object in each line.")


def write_json_lines(table: pa.Table, path: Path) -> None:
    """Numbers and booleans as JSON has them, dates as text files have them."""
    require_distinct_by_case(table)
    with spelled(table, _as_json) as (connection, expressions):
        wanted = [f"{e} AS {named(name)}" for e, name in zip(expressions, table.column_names, strict=True)]
        compression = {".gz": "gzip", ".zst": "zstd"}.get(path.suffix.lower(), "none")
        connection.execute(
            f"COPY (SELECT {', '.join(wanted)} FROM t) TO {quoted(str(path))} (FORMAT json, COMPRESSION {compression})"
        )


def _as_json(c: str, held: pa.DataType, style: dict[str, str]) -> str:
    if pa.types.is_floating(held):
        value = f"round({c}, {int(style['decimals'])})" if "decimals" in style else c
        return f"CASE WHEN isfinite({c}) THEN {value} END"
    return moment_text(c, held, style) if pa.types.is_date(held) or pa.types.is_timestamp(held) else c
