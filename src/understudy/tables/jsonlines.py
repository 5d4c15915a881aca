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
from understudy.rules.sql import quote_name, quote_text, sandbox
from understudy.schema import Schema
from understudy.tables.delimited import require_encoding
from understudy.tables.formatting import copy_in_sql, datetime_sql, require_case_insensitive_names
from understudy.tables.infer import mark_untyped
from understudy.tables.path import TablePath
from understudy.tables.reading_batches import BatchReader
from understudy.tables.writing_batches import OutputBatches

_BLOCK_BYTES = 1 << 24
"""How much of a file is parsed at once. A line may not be longer."""


class TypedJsonLines:
    """A file in batches, in the types of its JSON values, which are known after the first pass over it.

    Strings may turn out to be dates.

    A column that holds nulls alone in one part of the file and values in another has the type of these, and numbers are
    reals if one of them is. In the first pass each batch has the types that its own part needs.
    """

    own: None = None
    """As in a `BatchReader`."""

    def __init__(self, table_path: TablePath) -> None:
        self._table_path, self._is_known = table_path, False
        self._types: dict[str, pa.DataType] = {}

    @property
    def types(self) -> pa.Schema:
        """Of the batches of every pass but the first; strings are marked, since they may be dates."""
        return self._marked(pa.schema(list(self._types.items())))

    def read(self, _: int = 0) -> Iterator[pa.Table]:
        """The rows, one batch for each block of the file."""
        known = pa.schema(list(self._types.items())) if self._is_known else None
        num_rows = 0
        for block in self._blocks():
            table = self._parse(block, known, num_rows)
            num_rows += table.num_rows
            if known is None:
                self._learn(table.schema)
            yield table.cast(self._marked(table.schema))
        self._is_known = True

    def _blocks(self) -> Iterator[bytes]:
        """The bytes of the file, cut after line breaks."""
        with pa.input_stream(str(self._table_path.path), compression="detect") as stream:
            left = b""
            while piece := bytes(stream.read(_BLOCK_BYTES)):
                end = piece.rfind(b"\n") + 1
                if end and (block := left + piece[:end]).strip():
                    yield block
                left = piece[end:] if end else left + piece
                if len(left) > 2 * _BLOCK_BYTES:
                    raise TableError(f"{self._table_path} has a line longer than 16 MB. Expected one object per line.")
            if left.strip():
                yield left

    def _parse(self, block: bytes, known: pa.Schema | None, num_before: int) -> pa.Table:
        try:
            table = _parse_block(block, known)
            datetimes = [field for field in table.schema if pa.types.is_timestamp(field.type)]
            if datetimes:  # pyarrow guesses datetimes; here the rules for text decide
                strings = pa.schema([field.with_type(pa.string()) for field in datetimes])
                table = _parse_block(block, strings).select(table.column_names)
            table.validate(full=True)  # the parser accepts strings that are not UTF-8
            return table
        except pa.ArrowInvalid as error:
            raise self._explain(block, str(error), num_before) from None

    def _explain(self, block: bytes, message: str, num_before: int) -> TableError:
        """What is wrong with a block, without the parser's own message, which may quote values."""
        require_encoding(self._table_path, can_choose=False)
        mixed = re.search(r"Column\(/([^)]*)\) changed from (\w+) to (\w+)", message)
        if mixed:
            return self._mixed(*mixed.groups())
        with sandbox() as connection:
            _require_end(block[block.rfind(b"\n") + 1 :].decode(), connection, self._table_path)
        row = re.search(r"in row (\d+)", message)
        line = num_before + int(row[1]) + 1 if row else None
        return TableError(
            f"{self._table_path}: {f'line {line}' if line else 'a line'} is not a JSON object. Expected one object per"
            " line.",
            line=line,
        )

    def _mixed(self, name: str, before: str, after: str) -> TableError:
        name = name.split("/")[0]  # nested names are part of the values
        return TableError(
            f"{self._table_path}: column {name!r} holds both {before} and {after} values. Write them all in one type.",
            column=name,
        )

    def _learn(self, types: pa.Schema) -> None:
        for field in types:
            before = self._types.get(field.name, pa.null())
            try:
                self._types[field.name] = _common_type(before, field.type)
            except TypeError as error:
                raise self._mixed(field.name, *error.args) from None

    def _marked(self, types: pa.Schema) -> pa.Schema:
        return pa.schema([mark_untyped(f, only_dates=True) if pa.types.is_string(f.type) else f for f in types])


def _parse_block(block: bytes, types: pa.Schema | None) -> pa.Table:
    """As one block, so that the parser numbers its rows from the first."""
    return pa.json.read_json(
        pa.BufferReader(block),
        read_options=pa.json.ReadOptions(block_size=len(block) + 1),
        parse_options=pa.json.ParseOptions(explicit_schema=types),
    )


def _common_type(one: pa.DataType, other: pa.DataType) -> pa.DataType:
    """The type of a column with parts of these types, as if it were parsed whole; raises a `TypeError` with the JSON
    types of two values that have none."""
    types = pa.types
    if one == other or types.is_null(other):
        return one
    if types.is_null(one):
        return other
    if (kinds := (_json_type(one), _json_type(other))) and kinds[0] != kinds[1]:
        raise TypeError(*kinds)
    if types.is_list(one):
        return pa.list_(_common_type(one.value_type, other.value_type))
    if types.is_struct(one):
        fields = {field.name: field.type for field in one}
        fields |= {field.name: _common_type(fields.get(field.name, pa.null()), field.type) for field in other}
        return pa.struct(list(fields.items()))
    return pa.string() if types.is_string(one) or types.is_string(other) else pa.float64()


def _json_type(arrow_type: pa.DataType) -> str:
    types = pa.types
    if types.is_boolean(arrow_type):
        return "boolean"
    if types.is_list(arrow_type):
        return "array"
    if types.is_struct(arrow_type):
        return "object"
    return "string" if types.is_string(arrow_type) or types.is_timestamp(arrow_type) else "number"


def open_json_strings(table_path: TablePath, declared: Schema) -> BatchReader:
    """The declared columns as text, whatever their JSON types, so that no value decides a type.

    A missing key is a null, and a line that is not a JSON object is a row of nulls; but a file that ends inside a line
    is truncated.
    """
    names = [column.name for column in declared.columns if not column.drop]
    types = pa.schema([mark_untyped(pa.field(name, pa.string())) for name in names])

    def read(num_rows: int) -> Iterator[pa.Table]:
        for lines in _read_chunks(table_path, min(num_rows, 1 << 16)):
            with sandbox() as connection:
                _require_end(lines[-1], connection, table_path)
                connection.register("t", pa.table({"line": pa.array(lines, pa.string())}))
                strings = _texts_of(connection, names)
            yield strings.cast(types)

    return BatchReader(types, read)


def _read_chunks(table_path: TablePath, num_lines: int) -> Iterator[list[str]]:
    """The lines of the file, `num_lines` at a time."""
    with pa.input_stream(str(table_path.path), compression="detect") as stream:
        text = io.TextIOWrapper(cast(io.BufferedReader, stream), encoding="utf-8-sig", newline="\n")
        try:
            while lines := list(itertools.islice(text, num_lines)):
                yield lines
        except UnicodeDecodeError:
            require_encoding(table_path, can_choose=False)
            raise


def _require_end(line: str, connection: duckdb.DuckDBPyConnection, table_path: TablePath) -> None:
    """Raises if a line without a line break, which is the last of the file, is not complete."""
    if line.endswith("\n") or not line.strip():
        return
    if connection.execute("SELECT json_valid(?)", [line]).fetchall() != [(True,)]:
        raise TableError(f"{table_path} ends inside a line: it is damaged or truncated. Write it again.")


def _texts_of(connection: duckdb.DuckDBPyConnection, names: Sequence[str]) -> pa.Table:
    """The values of these keys in the lines of `t`; a blank line is not a row."""
    pointers = ", ".join(quote_text("/" + name.replace("~", "~0").replace("/", "~1")) for name in names)
    wanted = ", ".join(f"x[{i}] AS c{i}" for i in range(1, len(names) + 1))
    strings = connection.sql(
        f"SELECT {wanted} FROM (SELECT CASE WHEN json_valid(line) AND json_type(line) = 'OBJECT'"
        f" THEN json_extract_string(line, [{pointers}]) END AS x FROM t WHERE trim(line, ' \t\r\n') <> '')"
    )
    return strings.to_arrow_table().rename_columns(list(names))


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
