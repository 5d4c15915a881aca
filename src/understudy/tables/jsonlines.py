"""JSON lines: one object per line."""

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
from understudy.schema.sql import quote_name, quote_text, sandbox
from understudy.tables.delimited import require_encoding
from understudy.tables.formatting import copy_in_sql, datetime_sql, require_case_insensitive_names
from understudy.tables.infer import mark_untyped
from understudy.tables.location import TableLocation
from understudy.tables.reading_batches import BatchReader
from understudy.tables.writing_batches import OutputBatches


def read_json_lines(location: TableLocation) -> pa.Table:
    """Columns in the types of their JSON values; strings may turn out to be dates."""

    def parse(schema: pa.Schema | None) -> pa.Table:
        with pa.input_stream(str(location.path), compression="detect") as stream:
            return pa.json.read_json(
                stream,
                read_options=pa.json.ReadOptions(block_size=1 << 24),
                parse_options=pa.json.ParseOptions(explicit_schema=schema),
            )

    try:
        table = parse(None)
        moments = [field for field in table.schema if pa.types.is_timestamp(field.type)]
        if moments:  # pyarrow guesses datetimes; here the rules for text decide
            table = parse(pa.schema([field.with_type(pa.string()) for field in moments])).select(table.column_names)
        table.validate(full=True)  # the parser accepts strings that are not UTF-8
    except pa.ArrowInvalid as error:
        require_encoding(location, can_choose=False)
        mixed = re.search(r"Column\(/([^)]*)\) changed from (\w+) to (\w+)", str(error))
        if mixed:
            name, before, after = mixed.groups()
            name = name.split("/")[0]  # nested names are part of the values
            raise TableError(
                f"{location}: column {name!r} holds both {before} and {after} values. Write them all in one type.",
                column=name,
            ) from None
        row = re.search(r"in row (\d+)", str(error))
        line = int(row[1]) + 1 if row else None
        raise TableError(
            f"{location}: {f'line {line}' if line else 'a line'} is not a JSON object. Expected one object per line.",
            line=line,
        ) from None
    fields = [mark_untyped(f, only_dates=True) if pa.types.is_string(f.type) else f for f in table.schema]
    return table.cast(pa.schema(fields))


def read_json_texts(location: TableLocation, names: Sequence[str]) -> pa.Table:
    """All columns as text, whatever their JSON types: for a declared schema, so that no value decides a type.

    Reads the keys `names` only. A missing key is a null, and a line that is not a JSON object is a row of nulls; but a
    file that ends inside a line is truncated.
    """
    reader = open_json_texts(location, names)
    return pa.concat_tables([reader.types.empty_table(), *reader.read(1 << 16)])


def open_json_texts(location: TableLocation, names: Sequence[str]) -> BatchReader:
    """The same in batches."""
    types = pa.schema([mark_untyped(pa.field(name, pa.string())) for name in names])

    def read(num_rows: int) -> Iterator[pa.Table]:
        for lines in _read_chunks(location, min(num_rows, 1 << 16)):
            with sandbox() as connection:
                _require_end(lines[-1], connection, location)
                connection.register("t", pa.table({"line": pa.array(lines, pa.string())}))
                texts = _texts_of(connection, names)
            yield texts.cast(types)

    return BatchReader(types, read)


def _read_chunks(location: TableLocation, num_lines: int) -> Iterator[list[str]]:
    """The lines of the file, `num_lines` at a time."""
    with pa.input_stream(str(location.path), compression="detect") as stream:
        text = io.TextIOWrapper(cast(io.BufferedReader, stream), encoding="utf-8-sig", newline="\n")
        try:
            while lines := list(itertools.islice(text, num_lines)):
                yield lines
        except UnicodeDecodeError:
            require_encoding(location, can_choose=False)
            raise


def _require_end(line: str, connection: duckdb.DuckDBPyConnection, location: TableLocation) -> None:
    """Raises if a line without a line break, which is the last of the file, is not complete."""
    if line.endswith("\n") or not line.strip():
        return
    if connection.execute("SELECT json_valid(?)", [line]).fetchall() != [(True,)]:
        raise TableError(f"{location} ends inside a line: it is damaged or truncated. Write it again.")


def _texts_of(connection: duckdb.DuckDBPyConnection, names: Sequence[str]) -> pa.Table:
    """The values of these keys in the lines of `t`; a blank line is not a row."""
    pointers = ", ".join(quote_text("/" + name.replace("~", "~0").replace("/", "~1")) for name in names)
    wanted = ", ".join(f"x[{i}] AS c{i}" for i in range(1, len(names) + 1))
    texts = connection.sql(
        f"SELECT {wanted} FROM (SELECT CASE WHEN json_valid(line) AND json_type(line) = 'OBJECT'"
        f" THEN json_extract_string(line, [{pointers}]) END AS x FROM t WHERE trim(line, ' \t\r\n') <> '')"
    )
    return texts.to_arrow_table().rename_columns(list(names))


def write_json_lines(batches: OutputBatches, path: Path) -> None:
    """Writes numbers and booleans as JSON, and dates as text files write them."""
    names = batches.schema.names
    require_case_insensitive_names(names)
    compression = {".gz": "gzip", ".zst": "zstd"}.get(path.suffix.lower(), "none")

    def copy(expressions: list[str]) -> str:
        wanted = ", ".join(f"{e} AS {quote_name(name)}" for e, name in zip(expressions, names, strict=True))
        return f"COPY (SELECT {wanted} FROM t) TO {quote_text(str(path))} (FORMAT json, COMPRESSION {compression})"

    copy_in_sql(batches, _as_json, copy)


def _as_json(c: str, arrow_type: pa.DataType, style: dict[str, str]) -> str:
    if pa.types.is_floating(arrow_type):
        value = f"round({c}, {int(style['decimals'])})" if "decimals" in style else c
        return f"CASE WHEN isfinite({c}) THEN {value} END"
    is_moment = pa.types.is_date(arrow_type) or pa.types.is_timestamp(arrow_type)
    return datetime_sql(c, arrow_type, style) if is_moment else c
