"""The two edges of the package: frames, files and databases, in and out; in between, a table is a `pyarrow.Table`.

What goes in comes out: the same library, the same column types, the same spelling in text files. An `Origin` remembers
this as type names and text formats, and holds no value and no category of the data, so it may lie in a release.

Text files carry no types, so kinds are found by fixed rules over all values of a column (`docs/tables.md`). With a
schema nothing is found out: values are read as the declared kind, and what cannot be read so becomes null. No message
of this file contains a value of a row.
"""

import contextlib
import csv
import dataclasses
import errno
import functools
import importlib
import importlib.util
import io
import json
import os
import re
import shutil
import sqlite3
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, NamedTuple, TypeAlias, cast

import duckdb
import narwhals as nw
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.feather
import pyarrow.json
import pyarrow.parquet as pq

from understudy.errors import ConditionError, SchemaError, TableError, UnderstudyError
from understudy.schema import Column, Schema

if TYPE_CHECKING:
    import pandas as pd
    import polars as pl

Frame: TypeAlias = "pd.DataFrame | pl.DataFrame | pl.LazyFrame | pa.Table"
Constant = str | int | float | bool | date | datetime | None

_TEXT_SUFFIXES = {".csv": ",", ".tsv": "\t", ".tab": "\t"}
_SUFFIXES = (".csv", ".tsv", ".parquet", ".feather", ".arrow", ".jsonl", ".ndjson", ".sqlite", ".duckdb")
_ALIASES = {".pq": ".parquet", ".ipc": ".arrow", ".ndjson": ".jsonl", ".sqlite3": ".sqlite", ".ddb": ".duckdb"}
_COMPRESSED = (".gz", ".zst", ".bz2")
_POSTGRES = ("postgresql://", "postgres://")
_KNOWN = f"Known endings: {', '.join(_SUFFIXES)} (text also with .gz), and postgresql://user@host/db::table."


# -------------------------------------------------------------------------------------------- where a table came from


@dataclasses.dataclass(frozen=True, kw_only=True)
class ColumnOrigin:
    """How one column was typed and spelled where it came from."""

    arrow: str
    """Its Arrow type."""

    dtype: str = ""
    """Its type in the words of the frame library, without categories."""

    style: Mapping[str, str] = dataclasses.field(default_factory=dict)
    """Of text files: `format` of dates, `decimals` and `padded` of reals, `boolean` as "False/True"."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Origin:
    """What a table was before it became Arrow: enough to give the same back, and no value of it.

    >>> _, origin = from_frame(pa.table({"age": pa.array([39], pa.int16())}))
    >>> origin.to_dict()
    {'library': 'pyarrow', 'columns': {'age': {'arrow': 'int16'}}}
    """

    library: str
    """pandas, polars, pyarrow, or file."""

    columns: Mapping[str, ColumnOrigin]

    delimiter: str = ","
    """What stood between the fields of a text file."""

    def to_dict(self) -> dict[str, object]:
        """The same, ready for JSON."""
        columns = {
            name: {key: value for key, value in dataclasses.asdict(column).items() if value}
            for name, column in self.columns.items()
        }
        mark = {} if self.delimiter == "," else {"delimiter": self.delimiter}
        return {"library": self.library, "columns": columns, **mark}

    @classmethod
    def from_dict(cls, content: Mapping[str, object]) -> "Origin":
        """The reverse of `to_dict`."""
        columns = cast(Mapping[str, Mapping[str, object]], content["columns"])
        return cls(
            library=str(content["library"]),
            columns={name: ColumnOrigin(**entry) for name, entry in columns.items()},  # type: ignore[arg-type]
            delimiter=str(content.get("delimiter", ",")),
        )

    @classmethod
    def of(cls, table: pa.Table, library: str, *, dtypes: Mapping[str, str] | None = None) -> "Origin":
        """Reads off types and field metadata; `dtypes` are the frame library's own names of the types."""
        columns = {
            field.name: ColumnOrigin(
                arrow=str(field.type),
                dtype=(dtypes or {}).get(field.name, ""),
                style={k: v for k, v in _style(field).items() if k in ("format", "decimals", "padded", "boolean")},
            )
            for field in table.schema
        }
        delimiter = (table.schema.metadata or {}).get(b"delimiter", b",").decode()
        return cls(library=library, columns=columns, delimiter=delimiter)


def _style(field: pa.Field) -> dict[str, str]:
    return {key.decode(): value.decode() for key, value in (field.metadata or {}).items()}


# --------------------------------------------------------------------------------------------------------- reading in


def read_table(source: str | Path, *, schema: Schema | None = None) -> tuple[pa.Table, Origin]:
    """Reads a file or a database table: `people.csv`, `people.sqlite::patients`, `postgresql://me@host/db::public.people`.

    With a schema each column is read as the declared kind, and what cannot be read so is null: never an error.
    """
    place = _Place.of(source)
    if place.suffix != "postgres":
        _require_file(place.path)
    with _said_plainly(place):
        table = _READERS[place.suffix](place)
    _require_names(table.column_names, str(place))
    if table.num_rows == 0:
        raise TableError(f"{place} has a header but no rows. A table needs at least one row.")
    is_text = place.suffix in _TEXT_SUFFIXES
    if is_text and schema is None:
        table = _typed_by_values(table)
    elif place.suffix == ".jsonl" and schema is None:
        table = _typed_by_values(table, only_dates=True)
    if schema is not None:
        before = table
        table = conform(table, schema)
        origin = Origin.of(table if is_text else _with_style_of(before, table), "file")
    else:
        origin = Origin.of(table, "file")
    return _normal(table), origin


def conform(table: pa.Table, schema: Schema) -> pa.Table:
    """Reads each column as its declared kind; what cannot be read so becomes null. Never an error over a value.

    Integers are rounded, and clamped to 64 bits. Columns that the schema does not name stay as they are.
    """
    columns: list[pa.ChunkedArray] = []
    fields: list[pa.Field] = []
    for field, values in zip(table.schema, table.columns, strict=True):
        if field.name in schema and schema[field.name].modelled:
            values, style = _as_declared(values, schema[field.name])
            field = field.with_type(values.type).with_metadata({**_style(field), **style} or None)
        columns.append(values)
        fields.append(field)
    return pa.table(columns, schema=pa.schema(fields, table.schema.metadata))


@dataclasses.dataclass(frozen=True)
class _Place:
    """Where a table lies: a file, or one table of a database."""

    path: Path
    suffix: str
    """The canonical ending, or postgres."""
    table: str | None = None
    url: str = ""
    compressed: bool = False

    @classmethod
    def of(cls, source: str | Path) -> "_Place":
        """Reads `people.csv`, `people.sqlite::patients` or a PostgreSQL address."""
        text = str(source)
        before, mark, after = text.rpartition("::")
        url, table = (before, after or None) if mark else (text, None)
        if url.startswith(_POSTGRES):
            return cls(Path(), "postgres", table, url)
        if mark and _suffix_of(Path(before)) in (".sqlite", ".duckdb", ".db"):
            path = Path(before)
        else:
            path, table = Path(text), None
        suffix = _suffix_of(path)
        if suffix == ".db":
            suffix = _database_kind(path)
        if path.is_dir():
            raise TableError(f"{path} is a folder, expected a file. Name one file in it.")
        if suffix not in _READERS:
            raise TableError(f"{path} ends in {suffix or 'nothing'}, which names no known format. {_KNOWN}")
        compressed = path.suffix.lower() in _COMPRESSED
        if compressed and suffix not in (*_TEXT_SUFFIXES, ".jsonl"):
            raise TableError(f"{path}: only text files are read and written compressed. Decompress it first.")
        return cls(path, suffix, table, compressed=compressed)

    def __str__(self) -> str:
        address = re.sub(r"(?<=://)([^/@:]*):[^/@]*@", r"\1:***@", self.url) if self.url else str(self.path)
        return f"{address}::{self.table}" if self.table else address


def _suffix_of(path: Path) -> str:
    suffixes = [suffix.lower() for suffix in path.suffixes]
    if suffixes and suffixes[-1] in _COMPRESSED:
        suffixes.pop()
    suffix = suffixes[-1] if suffixes else ""
    return _ALIASES.get(suffix, suffix)


def _database_kind(path: Path) -> str:
    """A .db file says in its first bytes what it is; a new one becomes SQLite."""
    with contextlib.suppress(OSError), path.open("rb") as file:
        if file.read(12)[8:] == b"DUCK":
            return ".duckdb"
    return ".sqlite"


def _require_file(path: Path) -> None:
    if not path.exists():
        raise TableError(f"{path} does not exist. Check the spelling and the folder.")
    if not os.access(path, os.R_OK):
        raise TableError(f"{path} may not be read by this user. Change its permissions.")
    if path.stat().st_size == 0:
        raise TableError(f"{path} is empty (0 bytes). Expected a table with a header and rows.")


def _require_names(names: Sequence[str], where: str) -> None:
    twice = [repr(name) for name, count in Counter(names).items() if count > 1]
    if twice:
        raise TableError(
            f"{where} has duplicate column names: {', '.join(twice)}. Rename them, so that each is there once."
        )
    if not names:
        raise TableError(f"{where} has no columns. Expected at least one.")
    for position, name in enumerate(names, start=1):
        if not name.strip():
            raise TableError(
                f"Column {position} of {where} has no name (pandas writes its index so). Name it, or leave it out."
            )


@contextlib.contextmanager
def _said_plainly(place: _Place) -> Iterator[None]:
    """Errors of the readers in one line of ours: theirs quote rows."""
    try:
        yield
    except UnderstudyError:
        raise
    except MemoryError:
        raise TableError(f"{place} does not fit into memory.") from None
    except (pa.ArrowException, duckdb.Error, sqlite3.Error, OSError, ValueError):
        name = {"postgres": "PostgreSQL", ".jsonl": "JSON lines"}.get(place.suffix, place.suffix[1:].capitalize())
        raise TableError(f"{place} cannot be read as {name}: it is damaged, cut short, or of another format.") from None


# Text files ---------------------------------------------------------------------------------------------------------


def _read_text(place: _Place) -> pa.Table:
    """All columns as text; an empty field is null."""
    header, delimiter = _header(place)
    _require_names(header, str(place))
    ragged: list[tuple[int, int, int | None]] = []

    def on_ragged(row: pa.csv.InvalidRow) -> str:
        ragged.append((row.expected_columns, row.actual_columns, row.number))
        return "error"

    def parsed(*, threads: bool) -> pa.Table:
        with pa.input_stream(str(place.path), compression="detect") as stream:
            return pa.csv.read_csv(
                stream,
                read_options=pa.csv.ReadOptions(use_threads=threads, block_size=1 << 24),
                parse_options=pa.csv.ParseOptions(
                    delimiter=delimiter,
                    newlines_in_values=True,
                    ignore_empty_lines=len(header) > 1,  # of one column, an empty line is a null
                    invalid_row_handler=on_ragged,
                ),
                convert_options=pa.csv.ConvertOptions(
                    column_types={name: pa.string() for name in header},
                    null_values=[""],
                    strings_can_be_null=True,
                    quoted_strings_can_be_null=True,
                ),
            )

    try:
        table = parsed(threads=True)
    except (pa.ArrowInvalid, UnicodeDecodeError) as error:
        _require_utf8(place)
        if ragged:
            ragged.clear()
            with contextlib.suppress(pa.ArrowInvalid):  # once more in one thread, which knows the line
                parsed(threads=False)
            expected, found, line = ragged[0]
            raise TableError(
                f"{place}, line {_physical_line(place, line, delimiter)}: expected {expected} fields as in the header,"
                f" found {found}. Mend that line; a field that contains {delimiter!r} needs quotes."
            ) from None
        if "straddling" in str(error):
            raise TableError(f"{place} has a row longer than 16 MB. Is a closing quote missing?") from None
        if "Empty CSV" in str(error):
            raise TableError(f"{place} has a header but no rows. A table needs at least one row.") from None
        raise
    _require_closed_quote(place, table)
    return table.replace_schema_metadata({"delimiter": delimiter} if delimiter != "," else None)


def _header(place: _Place) -> tuple[list[str], str]:
    """The names in the first line that is not blank, and what stands between them."""
    with pa.input_stream(str(place.path), compression="detect") as stream:
        start = bytes(stream.read(1 << 20))
    if start.startswith((b"\xff\xfe", b"\xfe\xff")):
        raise TableError(
            f"{place} is UTF-16, expected UTF-8. Convert it: iconv -f UTF-16 -t UTF-8 {place.path.name} > new.csv"
        )
    lines = io.StringIO(start.decode("utf-8-sig", errors="replace"), newline=None).read().lstrip("\n")
    if not lines.strip():
        raise TableError(f"{place} is empty: it has no header line. Expected column names in the first line.")
    delimiter = _TEXT_SUFFIXES[place.suffix]
    first = lines.split("\n", 1)[0]
    if place.suffix == ".csv" and "," not in first:
        delimiter = next((mark for mark in ";\t|" if mark in first), ",")
    return next(csv.reader(io.StringIO(lines), delimiter=delimiter)), delimiter


def _require_utf8(place: _Place) -> None:
    """Raises with the first byte that is not UTF-8. Reads in pieces; called only after a failure."""
    offset, line, rest = 0, 1, b""
    with pa.input_stream(str(place.path), compression="detect") as stream:
        while piece := bytes(stream.read(1 << 20)):
            piece = rest + piece
            try:
                piece.decode("utf-8")
                rest = b""
            except UnicodeDecodeError as error:
                if error.end < len(piece) or error.reason != "unexpected end of data":
                    lines_before = piece[: error.start].count(b"\n")
                    where = f"line {line + lines_before}, byte {offset + error.start}"
                    raise TableError(
                        f"{place} is not UTF-8 ({where}). Convert it: iconv -f LATIN1 -t UTF-8 {place.path.name} > new"
                    ) from None
                rest = piece[error.start :]
                piece = piece[: error.start]
            offset += len(piece)
            line += piece.count(b"\n")
    if rest:
        raise TableError(f"{place} is not UTF-8 (line {line}, byte {offset}): it ends inside a character.")


def _physical_line(place: _Place, row: int | None, delimiter: str) -> str:
    """The line of the file in which the row-th record starts: quoted fields may span lines. Only after a failure."""
    if row is None:
        return "unknown"
    with contextlib.suppress(csv.Error), pa.input_stream(str(place.path), compression="detect") as stream:
        text = io.TextIOWrapper(cast(io.BufferedReader, stream), encoding="utf-8", newline="")
        reader = csv.reader(text, delimiter=delimiter)
        end_of_last, records = 0, 0
        for record in reader:
            records += bool(record)
            if records == row:
                return str(end_of_last + 1)
            end_of_last = reader.line_num
    return str(row)


def _require_closed_quote(place: _Place, table: pa.Table) -> None:
    """An unclosed quote swallows all that follows, without a complaint of the parser: then the file ends in a field."""
    if table.num_rows == 0 or place.compressed:
        return
    last = table.column(table.num_columns - 1)[-1].as_py()
    if last is None:
        return
    raw = last.replace('"', '""').encode()
    with place.path.open("rb") as file:
        file.seek(max(0, place.path.stat().st_size - len(raw) - 1))
        tail = file.read()
    if tail.endswith(raw) and (b"\n" in raw or b"\r" in raw or tail[: -len(raw)] == b'"'):
        raise TableError(f"{place}: a quote is opened and never closed, so the last field runs to the end of the file.")


def _read_json_lines(place: _Place) -> pa.Table:
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
    except pa.ArrowInvalid as error:
        _require_utf8(place)
        mixed = re.search(r"Column\(/([^)]*)\) changed from (\w+) to (\w+)", str(error))
        if mixed:
            name, before, after = mixed.groups()
            raise TableError(
                f"{place}: column {name!r} holds both {before} and {after} values. Write it in one way throughout."
            ) from None
        row = re.search(r"in row (\d+)", str(error))
        where = f"line {int(row[1]) + 1}" if row else "a line"
        raise TableError(f"{place}: {where} is not a JSON object. Expected one object in each line.") from None
    return table


# What a column of texts holds ---------------------------------------------------------------------------------------

_NULL_WORDS = ("", "NA", "N/A", "NaN", "nan", "null", "NULL", "None", "?")
"""Read as null in columns of numbers, booleans and dates; in a column of texts only the empty field is null."""

_INTEGER = r"(?:0|-?[1-9][0-9]*)"
_REAL = r"-?(?:(?:0|[1-9][0-9]*)(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?"
_INFINITY = r"-?(?:inf|Inf|Infinity|infinity)"
_ANY_NUMBER = r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?"

_BOOLEANS = ("false/true", "False/True", "FALSE/TRUE")
_DECLARED_BOOLEANS = (*_BOOLEANS, "f/t", "F/T", "no/yes", "No/Yes", "NO/YES", "n/y", "N/Y", "0/1")

_DATES: tuple[tuple[str, tuple[str, ...]], ...] = (
    (r"\d{4}-\d{2}-\d{2}", ("%Y-%m-%d",)),
    (r"\d{4}/\d{2}/\d{2}", ("%Y/%m/%d",)),
    (r"\d{2}\.\d{2}\.\d{4}", ("%d.%m.%Y",)),
    (r"[1-9]\d?\.[1-9]\d?\.\d{4}", ("%-d.%-m.%Y",)),
    (r"\d{2}/\d{2}/\d{4}", ("%d/%m/%Y", "%m/%d/%Y")),
    (r"[1-9]\d?/[1-9]\d?/\d{4}", ("%-d/%-m/%Y", "%-m/%-d/%Y")),
    (r"\d{2}-\d{2}-\d{4}", ("%d-%m-%Y", "%m-%d-%Y")),
    (r"\d{2}-[A-Z][a-z]{2}-\d{4}", ("%d-%b-%Y",)),
)
"""Pattern and formats. Where two formats read all values, the order of day and month is unknown: it stays text."""

_TIMES = (
    (r"\d{2}:\d{2}", "%H:%M"),
    (r"\d{2}:\d{2}:\d{2}", "%H:%M:%S"),
    (r"\d{2}:\d{2}:\d{2}\.\d{1,6}", "%H:%M:%S.%f"),
)
_ZONES = (("", ""), ("Z", "Z"), (r"[+-]\d{2}:?\d{2}", "%z"))

_MOMENTS = tuple(
    (date_pattern + mark + time_pattern + zone_pattern, tuple(f + mark + time_format + zone for f in date_formats))
    for date_pattern, date_formats in _DATES
    for mark in " T"
    for time_pattern, time_format in _TIMES
    for zone_pattern, zone in _ZONES
)

_UNAMBIGUOUS = ("%Y-%m-%d", "%Y/%m/%d", "%d.%m.%Y")
"""Formats of a declared date without a `format`: tried on each value by itself."""


def _typed_by_values(table: pa.Table, *, only_dates: bool = False) -> pa.Table:
    """Finds each text column's type from all its values, and drops the texts column by column."""
    names, metadata = table.column_names, table.schema.metadata
    columns = list(table.columns)
    fields = list(table.schema)
    del table
    for i, name in enumerate(names):
        if pa.types.is_string(columns[i].type):
            columns[i], style = _by_distinct(columns[i], lambda texts: _found_type(texts, only_dates=only_dates))
            fields[i] = pa.field(name, columns[i].type, metadata=style or None)
    return pa.table(columns, schema=pa.schema(fields, metadata))


def _by_distinct(
    values: pa.ChunkedArray, convert: Callable[[pa.Array], tuple[pa.Array, dict[str, str]] | None]
) -> tuple[pa.ChunkedArray, dict[str, str]]:
    """Converts the distinct values once and spreads them; None from `convert` leaves the column as it is."""
    coded = values if pa.types.is_dictionary(values.type) else values.dictionary_encode()
    coded = coded.unify_dictionaries()
    distinct = coded.chunk(0).dictionary if coded.num_chunks else pa.array([], values.type)
    converted = convert(distinct)
    if converted is None:
        return values, {}
    array, style = converted
    return pa.chunked_array([array.take(chunk.indices) for chunk in coded.chunks], array.type), style


def _found_type(texts: pa.Array, *, only_dates: bool = False) -> tuple[pa.Array, dict[str, str]] | None:
    """Integer, real, boolean, date or datetime, if all values are written so; None: texts."""
    trimmed = _without_null_words(texts)
    present = trimmed.drop_null()
    if not len(present):
        return None
    finders = (_found_moment,) if only_dates else (_found_integer, _found_real, _found_boolean, _found_moment)
    for find in finders:
        found = find(trimmed, present)
        if found is not None:
            return found
    return None


def _without_null_words(texts: pa.Array) -> pa.Array:
    trimmed = pc.utf8_trim_whitespace(texts)
    return pc.if_else(pc.is_in(trimmed, pa.array(_NULL_WORDS)), pa.scalar(None, pa.string()), trimmed)


def _all_match(texts: pa.Array, pattern: str) -> bool:
    """Whether all match; the first few are tried before the rest."""
    pattern = f"^(?:{pattern})$"
    return all(pc.all(pc.match_substring_regex(part, pattern)).as_py() for part in (texts[:20], texts))


def _found_integer(trimmed: pa.Array, present: pa.Array) -> tuple[pa.Array, dict[str, str]] | None:
    if not _all_match(present, _INTEGER):
        return None
    try:
        return trimmed.cast(pa.int64()), {}
    except pa.ArrowInvalid:  # more than 64 bits is a name, not a quantity: it stays text, exactly
        return trimmed, {}


def _found_real(trimmed: pa.Array, present: pa.Array) -> tuple[pa.Array, dict[str, str]] | None:
    if not _all_match(present, f"{_REAL}|{_INFINITY}"):
        return None
    return trimmed.cast(pa.float64()), _decimals(present)


def _decimals(texts: pa.Array) -> dict[str, str]:
    """How many decimals are written, and whether all values are padded to as many."""
    plain = texts.filter(pc.match_substring_regex(texts, f"^(?:{_ANY_NUMBER}|{_INFINITY})$"))
    if not len(plain) or pc.any(pc.match_substring_regex(plain, "[0-9.][eE]")).as_py():
        return {}
    plain = plain.filter(pc.invert(pc.match_substring(plain, "n")))  # infinities have no decimals
    if not len(plain):
        return {}
    point = pc.find_substring(plain, ".")
    written = pc.if_else(pc.less(point, 0), 0, pc.subtract(pc.subtract(pc.utf8_length(plain), point), 1))
    least, most = pc.min_max(written).as_py().values()
    if most > 15:  # digits of a binary fraction, not a precision
        return {}
    return {"decimals": str(most)} | ({"padded": "true"} if least == most else {})


def _found_boolean(trimmed: pa.Array, present: pa.Array) -> tuple[pa.Array, dict[str, str]] | None:
    if len(present) > 2:
        return None
    spelling = next((s for s in _BOOLEANS if set(present.to_pylist()) <= set(s.split("/"))), None)
    if spelling is None:
        return None
    return pc.equal(trimmed, spelling.split("/")[1]), {"boolean": spelling}


def _found_moment(trimmed: pa.Array, present: pa.Array) -> tuple[pa.Array, dict[str, str]] | None:
    first = present[0].as_py()
    if not 8 <= len(first) <= 40:
        return None
    for is_date, (pattern, formats) in [(True, rule) for rule in _DATES] + [(False, rule) for rule in _MOMENTS]:
        if not re.fullmatch(pattern, first, re.ASCII) or not _all_match(present, pattern):
            continue
        readings = [(f, _parsed_moments(trimmed, [f])) for f in formats]
        whole = [(f, moments) for f, moments in readings if moments.null_count == trimmed.null_count]
        if len(whole) == 1:
            return _dated(whole[0][1], trimmed, whole[0][0], is_date=is_date)
    return None


def _parsed_moments(texts: pa.Array, formats: Sequence[str]) -> pa.Array:
    """Timestamps by the first format that reads a text, else null; in UTC where the format has a zone."""
    listed = ", ".join(_quoted(text_format) for text_format in formats)
    expression = f"try_strptime(v, {listed})" if len(formats) == 1 else f"try_strptime(v, [{listed}])"
    moments = _computed(expression, texts)
    if formats[0].endswith("Z"):
        moments = moments.cast(pa.timestamp("us", "UTC"))
    return moments


def _dated(moments: pa.Array, texts: pa.Array, text_format: str, *, is_date: bool) -> tuple[pa.Array, dict[str, str]]:
    """Dates as dates, datetimes with their zone and digits, and the spelling of both."""
    style = {"format": text_format}
    if is_date:
        return moments.cast(pa.date32()), style
    if "%f" in text_format:
        digits = pc.extract_regex(texts.drop_null(), r"\.(?P<digits>[0-9]+)").field("digits")
        style["decimals"] = str(pc.max(pc.utf8_length(digits)).as_py() or 6)
    if text_format.endswith("%z"):
        zones = pc.unique(pc.utf8_slice_codeunits(pc.replace_substring(texts.drop_null(), ":", ""), -5)).to_pylist()
        zone = f"{zones[0][:3]}:{zones[0][3:]}" if len(zones) == 1 else "UTC"
        moments = moments.cast(pa.timestamp("us", zone))
    return moments, style


def _as_declared(values: pa.ChunkedArray, column: Column) -> tuple[pa.ChunkedArray, dict[str, str]]:
    """One column as its declared kind, with nulls where a value cannot be read so."""
    kind = column.kind
    if kind == "categorical":
        if column.categories is None:
            return values, {}
        kind = {bool: "boolean", int: "integer", float: "real"}.get(type(column.categories[0]), "categorical")
    held = values.type.value_type if pa.types.is_dictionary(values.type) else values.type
    if pa.types.is_null(held):
        values, held = values.cast(pa.string()), pa.string()
    if _is_text(held):
        if kind == "categorical":
            return values, {}
        values = values.cast(pa.dictionary(pa.int32(), pa.string())) if held != pa.string() else values
        zoned = isinstance(column.bounds and column.bounds[0], datetime) and column.bounds[0].tzinfo is not None
        return _by_distinct(values, lambda texts: _read_as(texts, kind, column.format, zoned=zoned))
    try:
        return _retyped(values, held, kind), {}
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError):
        raise SchemaError(
            f"Column {column.name!r} is declared {column.kind!r}, and the table holds {held} there."
            " Change its kind in the schema, or the table."
        ) from None


def _read_as(
    texts: pa.Array, kind: str, text_format: str | None = None, *, zoned: bool = False
) -> tuple[pa.Array, dict[str, str]]:
    """Texts as the declared kind, each value by itself; datetimes in UTC where they are `zoned`."""
    trimmed = _without_null_words(texts)
    if kind == "integer":
        return _computed(_INTEGER_SQL, trimmed), {}
    if kind == "real":
        return _computed(_REAL_SQL, trimmed), _decimals(trimmed.drop_null())
    if kind == "boolean":
        return _computed(_BOOLEAN_SQL, trimmed), _boolean_spelling(trimmed.drop_null())
    if text_format is None:
        return _unformatted_moments(trimmed, kind, zoned=zoned), {}
    try:
        moments = _parsed_moments(trimmed, [text_format])
    except duckdb.Error:
        raise SchemaError(
            f"The format {text_format!r} is not one that strptime knows. Write it as in '%d.%m.%Y %H:%M'."
        ) from None
    if zoned and kind == "datetime" and moments.type.tz is None:
        moments = moments.cast(pa.timestamp("us", "UTC"))
    return moments.cast(pa.date32() if kind == "date" else moments.type, safe=False), {"format": text_format}


def _unformatted_moments(texts: pa.Array, kind: str, *, zoned: bool) -> pa.Array:
    """Dates and datetimes without a declared format: by those that leave no doubt, with or without a zone."""
    plain = [f"{day}{mark}{time}" for day in _UNAMBIGUOUS for mark in " T" for _, time in _TIMES]
    with_zone = [f"{text_format}%z" for text_format in plain]
    local = _parsed_moments(texts, [*_UNAMBIGUOUS, *plain])
    placed = _parsed_moments(pc.replace_substring_regex(texts, r"Z$", "+00:00"), with_zone)
    if zoned:
        return pc.coalesce(placed, local.cast(placed.type))
    moments = pc.coalesce(local, placed.cast(local.type))
    return moments.cast(pa.date32(), safe=False) if kind == "date" else moments


def _boolean_spelling(texts: pa.Array) -> dict[str, str]:
    found = set(texts.to_pylist()) if len(texts) <= 2 else {""}
    fitting = [s for s in _DECLARED_BOOLEANS if found <= set(s.split("/"))]
    return {"boolean": fitting[0]} if len(fitting) == 1 else {}


_LEAST, _MOST = -(2**63), 2**63 - 1

_INTEGER_SQL = f"""CASE
    WHEN regexp_full_match(v, '[+-]?[0-9]+')
        THEN coalesce(TRY_CAST(v AS BIGINT), CASE WHEN v LIKE '-%' THEN {_LEAST} ELSE {_MOST} END)
    WHEN regexp_full_match(v, '{_ANY_NUMBER}|{_INFINITY}')
        THEN coalesce(TRY_CAST(round(TRY_CAST(v AS DOUBLE)) AS BIGINT),
                      CASE WHEN v LIKE '-%' THEN {_LEAST} ELSE {_MOST} END)
    END::BIGINT"""
_REAL_SQL = f"CASE WHEN regexp_full_match(v, '{_ANY_NUMBER}|{_INFINITY}') THEN TRY_CAST(v AS DOUBLE) END::DOUBLE"
_BOOLEAN_SQL = """CASE WHEN lower(v) IN ('true', 't', 'yes', 'y', '1') THEN true
    WHEN lower(v) IN ('false', 'f', 'no', 'n', '0') THEN false END"""


def _computed(expression: str, values: pa.Array) -> pa.Array:
    """A DuckDB expression over `v`, in order."""
    with _sandbox() as connection:
        connection.register("t", pa.table({"v": values}))
        result = connection.sql(f"SELECT {expression} AS r FROM t").to_arrow_table().column(0)
    return result.combine_chunks() if isinstance(result, pa.ChunkedArray) else result


@contextlib.contextmanager
def _sandbox() -> Iterator[duckdb.DuckDBPyConnection]:
    """DuckDB in memory that can reach no file, no network and no Python variable."""
    connection = duckdb.connect(":memory:")
    try:
        connection.execute("SET TimeZone = 'UTC'")
        connection.execute("SET python_enable_replacements = false")
        connection.execute("SET enable_external_access = false")
        connection.execute("SET lock_configuration = true")
        yield connection
    finally:
        connection.close()


def _retyped(values: pa.ChunkedArray, held: pa.DataType, kind: str) -> pa.ChunkedArray:
    """A typed column as another kind."""
    types = pa.types
    if types.is_dictionary(values.type):
        values = values.cast(held)
    number = types.is_integer(held) or types.is_floating(held) or types.is_decimal(held) or types.is_boolean(held)
    if kind == "categorical":
        return values.cast(pa.string())
    if kind == "integer" and number:
        return values if types.is_integer(held) else _rounded(values)
    if kind == "real" and number:
        return values if types.is_floating(held) else values.cast(pa.float64(), safe=False)
    if kind == "boolean" and number:
        return values if types.is_boolean(held) else pc.not_equal(values.cast(pa.float64(), safe=False), 0.0)
    if kind == "date" and (types.is_date(held) or types.is_timestamp(held)):
        local = pc.local_timestamp(values) if types.is_timestamp(held) and held.tz else values
        return local.cast(pa.date32(), safe=False)
    if kind == "datetime" and (types.is_date(held) or types.is_timestamp(held)):
        return values if types.is_timestamp(held) else values.cast(pa.timestamp("us"))
    raise pa.ArrowTypeError("no rule")


def _rounded(values: pa.ChunkedArray) -> pa.ChunkedArray:
    """Reals as the nearest 64-bit integers; NaN is null, infinities are the ends."""
    if pa.types.is_boolean(values.type):
        return values.cast(pa.int64())
    if pa.types.is_decimal(values.type):
        with contextlib.suppress(pa.ArrowInvalid):  # exact where it fits
            return pc.round(values).cast(pa.int64(), safe=False)
    reals = pc.round(values.cast(pa.float64(), safe=False))
    reals = pc.if_else(pc.is_nan(reals), pa.scalar(None, pa.float64()), reals)
    fits = pc.less(pc.abs(reals), 2.0**63)
    whole = pc.if_else(fits, reals, 0.0).cast(pa.int64())
    return pc.if_else(fits, whole, pc.if_else(pc.greater(reals, 0.0), _MOST, _LEAST))


def _normal(table: pa.Table) -> pa.Table:
    """One form for all: plain strings, 32-bit dictionary codes, NaN as null, dates in days."""
    columns = [_normal_column(values) for values in table.columns]
    fields = [f.with_type(c.type).with_nullable(True) for f, c in zip(table.schema, columns, strict=True)]
    return pa.table(columns, schema=pa.schema(fields, table.schema.metadata))


def _normal_column(values: pa.ChunkedArray) -> pa.ChunkedArray:
    held, types = values.type, pa.types
    if isinstance(held, pa.BaseExtensionType):
        return _normal_column(pa.chunked_array([c.storage for c in values.chunks], held.storage_type))
    if types.is_run_end_encoded(held):
        return _normal_column(pa.chunked_array([pc.run_end_decode(c) for c in values.chunks], held.value_type))
    if types.is_dictionary(held):
        value_type = pa.string() if _is_text(held.value_type) else held.value_type
        plain = pa.dictionary(pa.int32(), value_type, ordered=held.ordered)
        return values.cast(plain).unify_dictionaries() if held != plain else values.unify_dictionaries()
    if types.is_large_string(held) or types.is_string_view(held):
        with contextlib.suppress(pa.ArrowInvalid):  # a piece of more than 2 GB stays large
            return values.cast(pa.string())
    if types.is_float16(held):
        values = values.cast(pa.float32())
    if types.is_floating(values.type) and pc.any(pc.is_nan(values)).as_py():
        return pc.if_else(pc.is_nan(values), pa.scalar(None, values.type), values)
    return values.cast(pa.date32()) if types.is_date64(held) else values


def _is_text(held: pa.DataType) -> bool:
    return pa.types.is_string(held) or pa.types.is_large_string(held) or pa.types.is_string_view(held)


def _with_style_of(original: pa.Table, conformed: pa.Table) -> pa.Table:
    """The original's types with the spelling that reading found."""
    fields = [f.with_metadata(g.metadata) for f, g in zip(original.schema, conformed.schema, strict=True)]
    return pa.table(original.columns, schema=pa.schema(fields, original.schema.metadata))


# Binary files -------------------------------------------------------------------------------------------------------


def _read_parquet(place: _Place) -> pa.Table:
    return _bare(pq.ParquetFile(place.path).read())


def _read_arrow(place: _Place) -> pa.Table:
    with pa.memory_map(str(place.path)) as file:
        try:
            table = pa.ipc.open_file(file).read_all()
        except pa.ArrowInvalid:
            try:
                file.seek(0)
                table = pa.ipc.open_stream(file).read_all()
            except pa.ArrowInvalid:
                table = pa.feather.read_table(str(place.path))  # the first version of Feather
    return _bare(table)


def _bare(table: pa.Table) -> pa.Table:
    """Without foreign metadata: pandas and polars write values and categories there."""
    return pa.table(table.columns, schema=pa.schema([field.remove_metadata() for field in table.schema]))


# Databases ----------------------------------------------------------------------------------------------------------


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def _name(text: str) -> str:
    return '"' + text.replace('"', '""') + '"'


def _chosen(place: _Place, tables: Sequence[str]) -> str:
    """The table that the user named, or the only one."""
    listed = ", ".join(sorted(tables)) or "none"
    if place.table is None:
        if len(tables) == 1:
            return tables[0]
        found = f"{len(tables)} tables: {listed}" if tables else "no table"
        raise TableError(f"{place} has {found}. Name one of them as {place}::NAME.")
    if place.table not in tables:
        raise TableError(
            f"{_Place(place.path, place.suffix, url=place.url)} has no table {place.table!r}. It has: {listed}."
        )
    return place.table


def _listed_tables(connection: duckdb.DuckDBPyConnection, catalog: str, main: str) -> dict[str, str]:
    """Tables and views by the name a user gives, with their quoted SQL names."""
    rows = connection.execute(
        "SELECT table_schema, table_name FROM information_schema.tables WHERE table_catalog = ?"
        " AND table_schema NOT IN ('pg_catalog', 'information_schema')",
        [catalog],
    ).fetchall()
    return _spelled_tables(rows, main, f"{_name(catalog)}.")


def _spelled_tables(rows: Iterable[tuple[str, str]], main: str, prefix: str = "") -> dict[str, str]:
    plain = {table: f"{prefix}{_name(schema)}.{_name(table)}" for schema, table in rows if schema == main}
    return plain | {
        f"{schema}.{table}": f"{prefix}{_name(schema)}.{_name(table)}" for schema, table in rows if schema != main
    }


def _read_duckdb(place: _Place) -> pa.Table:
    with _duckdb_file(place, read_only=True) as connection:
        catalog = connection.execute("SELECT current_database()").fetchall()[0][0]
        tables = _listed_tables(connection, catalog, "main")
        place = dataclasses.replace(place, table=place.table and place.table.removeprefix("main."))
        chosen = _chosen(place, list(tables))
        return _bare(connection.sql(f"SELECT * FROM {tables[chosen]}").to_arrow_table())


@contextlib.contextmanager
def _duckdb_file(place: _Place, *, read_only: bool) -> Iterator[duckdb.DuckDBPyConnection]:
    try:
        connection = duckdb.connect(str(place.path), read_only=read_only)
    except duckdb.Error as error:
        if "lock" in str(error):
            raise TableError(f"{place.path} is open in another program. Close it there first.") from None
        raise
    try:
        connection.execute("SET TimeZone = 'UTC'")
        yield connection
    finally:
        connection.close()


def _load_extension(connection: duckdb.DuckDBPyConnection, name: str, *, network: bool = False) -> bool:
    """Loads an extension of DuckDB that lies on this machine or in a Python package; from the network only if told."""
    package = importlib.util.find_spec(f"duckdb_extension_{name}")
    folders = list(package.submodule_search_locations or []) if package else []
    files = [Path(f, "extensions", f"v{duckdb.__version__}", f"{name}.duckdb_extension") for f in folders]
    connection.execute("SET autoinstall_known_extensions = false")
    for command in [f"LOAD {name}", *(f"LOAD {_quoted(str(file))}" for file in files if file.exists())]:
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
# the value, how DuckDB gives it, and the Arrow type.
_SQLITE_KINDS: dict[str, tuple[str, str, pa.DataType]] = {
    "integer": (
        "CASE typeof({c}) WHEN 'integer' THEN {c} WHEN 'real' THEN CAST(round({c}) AS INTEGER) END",
        "CAST({c} AS BIGINT)",
        pa.int64(),
    ),
    "real": (
        "CASE WHEN typeof({c}) IN ('integer', 'real') THEN CAST({c} AS REAL) END",
        "CAST({c} AS DOUBLE)",
        pa.float64(),
    ),
    "boolean": (
        "CASE WHEN typeof({c}) = 'integer' THEN {c} <> 0"
        " WHEN lower({c}) = 'true' THEN 1 WHEN lower({c}) = 'false' THEN 0 END",
        "CAST(CAST({c} AS VARCHAR) AS BOOLEAN)",
        pa.bool_(),
    ),
    "date": ("CAST({c} AS TEXT)", "CAST({c} AS VARCHAR)", pa.string()),
    "datetime": ("CAST({c} AS TEXT)", "CAST({c} AS VARCHAR)", pa.string()),
    "zoned": ("CAST({c} AS TEXT)", "CAST({c} AS VARCHAR)", pa.string()),
    "text": ("CAST({c} AS TEXT)", "CAST({c} AS VARCHAR)", pa.string()),
    "": ("CAST({c} AS TEXT)", "CAST({c} AS VARCHAR)", pa.string()),
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


def _read_sqlite(place: _Place) -> pa.Table:
    with contextlib.closing(sqlite3.connect(f"{place.path.resolve().as_uri()}?mode=ro", uri=True)) as connection:
        rows = connection.execute("SELECT name FROM sqlite_master WHERE type IN ('table', 'view')").fetchall()
        name = _chosen(place, [row[0] for row in rows if not row[0].startswith("sqlite_")])
        info = connection.execute(f"PRAGMA table_info({_name(name)})").fetchall()
        kinds = {row[1]: _sqlite_kind(row[2] or "") for row in info}
        table = _sqlite_through_duckdb(place.path, name, kinds) or _sqlite_rows(connection, name, kinds)
    columns, fields = list(table.columns), list(table.schema)
    for i, (column, kind) in enumerate(kinds.items()):
        if kind == "":
            columns[i], style = _by_distinct(columns[i], _found_type)
            fields[i] = pa.field(column, columns[i].type, metadata=style or None)
        elif kind in ("date", "datetime", "zoned"):
            read = functools.partial(_read_as, kind="date" if kind == "date" else "datetime", zoned=kind == "zoned")
            columns[i], _ = _by_distinct(columns[i], read)
            fields[i] = pa.field(column, columns[i].type)
    return pa.table(columns, schema=pa.schema(fields))


def _sqlite_through_duckdb(path: Path, name: str, kinds: Mapping[str, str]) -> pa.Table | None:
    """By DuckDB's extension, where it is on this machine and every value has its column's declared type."""
    wanted = ", ".join(f"{_SQLITE_KINDS[kind][1].format(c=_name(c))} AS {_name(c)}" for c, kind in kinds.items())
    with contextlib.closing(duckdb.connect(":memory:")) as connection, contextlib.suppress(duckdb.Error):
        if _load_extension(connection, "sqlite_scanner"):
            connection.execute(f"ATTACH {_quoted(str(path))} AS source (TYPE sqlite, READ_ONLY)")
            return _bare(connection.sql(f"SELECT {wanted} FROM source.{_name(name)}").to_arrow_table())
    return None


def _sqlite_rows(connection: sqlite3.Connection, name: str, kinds: Mapping[str, str]) -> pa.Table:
    """By Python's own SQLite, in pieces."""
    wanted = ", ".join(_SQLITE_KINDS[kind][0].format(c=_name(column)) for column, kind in kinds.items())
    schema = pa.schema([(column, _SQLITE_KINDS[kind][2]) for column, kind in kinds.items()])
    cursor = connection.execute(f"SELECT {wanted} FROM {_name(name)}")
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


def _read_postgres(place: _Place) -> pa.Table:
    """By DuckDB's extension, or by ADBC where that is installed and the extension is not."""
    with contextlib.closing(duckdb.connect(":memory:")) as connection:
        if _load_extension(connection, "postgres_scanner"):
            return _postgres_through_duckdb(place, connection)
        if importlib.util.find_spec("adbc_driver_postgresql"):
            return _postgres_through_adbc(place)
        if _load_extension(connection, "postgres_scanner", network=True):
            return _postgres_through_duckdb(place, connection)
    raise TableError(
        f"{place} needs DuckDB's postgres extension, which is neither on this machine nor within reach."
        " Install the package adbc-driver-postgresql, or export the table as Parquet."
    )


def _postgres_through_duckdb(place: _Place, connection: duckdb.DuckDBPyConnection) -> pa.Table:
    connection.execute("SET TimeZone = 'UTC'")
    with _said_about_server(place, duckdb.Error):
        connection.execute(f"ATTACH {_quoted(place.url)} AS source (TYPE postgres, READ_ONLY)")
    tables = _listed_tables(connection, "source", "public")
    chosen = _chosen(
        dataclasses.replace(place, table=place.table and place.table.removeprefix("public.")), list(tables)
    )
    return _bare(connection.sql(f"SELECT * FROM {tables[chosen]}").to_arrow_table())


def _postgres_through_adbc(place: _Place) -> pa.Table:
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
    return _bare(_without_opaque(table))


def _without_opaque(table: pa.Table) -> pa.Table:
    """ADBC gives `numeric` as text with a label: read it as real."""
    for i, field in enumerate(table.schema):
        if isinstance(field.type, pa.BaseExtensionType):
            texts = pa.chunked_array([c.storage for c in table.column(i).chunks], field.type.storage_type)
            if "numeric" in str(field.type):
                texts, style = _by_distinct(texts, lambda distinct: _read_as(distinct, "real"))
                field = field.with_metadata(style)
            table = table.set_column(i, pa.field(field.name, texts.type), texts)
    return table


@contextlib.contextmanager
def _said_about_server(place: _Place, *errors: type[Exception]) -> Iterator[None]:
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


_READERS: dict[str, Callable[[_Place], pa.Table]] = {
    ".csv": _read_text,
    ".tsv": _read_text,
    ".tab": _read_text,
    ".jsonl": _read_json_lines,
    ".parquet": _read_parquet,
    ".feather": _read_arrow,
    ".arrow": _read_arrow,
    ".sqlite": _read_sqlite,
    ".duckdb": _read_duckdb,
    "postgres": _read_postgres,
}


# ------------------------------------------------------------------------------------------------------------- frames


def from_frame(frame: object) -> tuple[pa.Table, Origin]:
    """A pandas, polars or pyarrow table (or another that narwhals knows) as Arrow, and what it was."""
    if isinstance(frame, pa.RecordBatch):
        frame = pa.Table.from_batches([frame])
    if isinstance(frame, pa.Table):
        _require_names(frame.column_names, "The table")
        return _entered(frame, "pyarrow")
    if _is_pandas(frame):
        return _from_pandas(cast("pd.DataFrame", frame))
    try:
        native = nw.from_native(frame)  # type: ignore[call-overload]
    except (TypeError, ValueError):
        hint = " Read files with read_table." if isinstance(frame, str | Path) else ""
        raise TableError(
            "Expected a pandas, polars or pyarrow table,"
            f" found {type(frame).__module__}.{type(frame).__qualname__}.{hint}"
        ) from None
    if isinstance(native, nw.LazyFrame):
        native = native.collect()
    if not isinstance(native, nw.DataFrame):
        raise TableError(f"Expected a table, found one column ({type(frame).__qualname__}). Put it into a frame.")
    library = "polars" if native.implementation.is_polars() else "pyarrow"
    dtypes = {}
    if library == "polars":
        dtypes = {name: dtype.base_type().__name__ for name, dtype in native.to_native().schema.items()}
    try:
        table = native.to_arrow()
    except Exception as error:  # each library has its own; none may speak, for they quote values
        raise TableError(
            f"This {type(frame).__qualname__} has a column that Arrow cannot hold ({type(error).__name__})."
        ) from None
    return _entered(table, library, dtypes)


def _entered(table: pa.Table, library: str, dtypes: Mapping[str, str] | None = None) -> tuple[pa.Table, Origin]:
    if table.num_rows == 0:
        raise TableError("The table has columns but no rows. It needs at least one row.")
    table = _bare(table)
    return _normal(table), Origin.of(table, library, dtypes=dtypes)


def _is_pandas(frame: object) -> bool:
    return nw.dependencies.is_pandas_dataframe(frame)


def _from_pandas(frame: "pd.DataFrame") -> tuple[pa.Table, Origin]:
    import pandas as pd

    if isinstance(frame.columns, pd.MultiIndex):
        raise TableError("The frame's columns are a MultiIndex, expected plain names. Join their levels first.")
    odd = [type(name).__name__ for name in frame.columns if not isinstance(name, str)]
    if odd:
        raise TableError(
            f"Column names must be texts, found {odd[0]}. Rename them: frame.columns = frame.columns.astype(str)."
        )
    _require_names(list(frame.columns), "The frame")
    if isinstance(frame.index, pd.MultiIndex) or frame.index.name is not None:
        raise TableError(
            "The frame's index has a name, and an index is no column. Use reset_index() to make it one,"
            " or reset_index(drop=True) to leave it out."
        )
    columns = {name: _pandas_column(frame[name]) for name in frame.columns}
    dtypes = {name: _pandas_dtype(frame[name].dtype) for name in frame.columns}
    return _entered(pa.table(columns), "pandas", dtypes)


def _pandas_column(series: "pd.Series") -> pa.ChunkedArray | pa.Array:
    import pandas as pd

    if isinstance(series.dtype, pd.SparseDtype):
        series = series.sparse.to_dense()
    try:
        values = pa.array(series, from_pandas=True)
    except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError, OverflowError):
        if series.dtype != object:
            raise TableError(
                f"Column {series.name!r} has dtype {series.dtype}, which has no Arrow type. Convert it first."
            ) from None
        return pa.array(series.map(str, na_action="ignore"), pa.string(), from_pandas=True)  # a mixture: as texts
    if isinstance(values.type, pa.BaseExtensionType):
        raise TableError(
            f"Column {series.name!r} has dtype {series.dtype}, which is not supported. Convert it to dates or text."
        )
    return values


def _pandas_dtype(dtype: object) -> str:
    """The name of a pandas dtype, from which pandas makes it again; of a Categorical, without its categories."""
    import pandas as pd

    if isinstance(dtype, pd.CategoricalDtype):
        return f"category[{_pandas_dtype(dtype.categories.dtype)}]{' ordered' if dtype.ordered else ''}"
    if isinstance(dtype, pd.SparseDtype):
        return str(dtype.subtype)
    if isinstance(dtype, pd.StringDtype) and dtype.na_value is pd.NA:
        return f"string[{dtype.storage}]"
    return str(dtype)


def to_frame(table: pa.Table, origin: Origin) -> Frame:
    """The table in the library and with the column types of its origin.

    Categories are those of the given table's dictionaries, or its values in order: never those of the original frame.
    """
    table = restyle(table, origin)
    if origin.library == "pandas":
        return _to_pandas(table, origin)
    if origin.library == "polars":
        return _to_polars(table, origin)
    return table


def restyle(table: pa.Table, origin: Origin) -> pa.Table:
    """The table with the types, decimals and spelling of its origin, where its values allow them."""
    columns, fields = [], []
    for field, values in zip(table.schema, table.columns, strict=True):
        known = origin.columns.get(field.name)
        target = _arrow_type(known.arrow) if known else None
        if target is not None:
            with contextlib.suppress(pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError):
                values = _cast(values, target)
        if known and "decimals" in known.style and pa.types.is_floating(values.type):
            values = pc.round(values, int(known.style["decimals"]))
        style = {**(known.style if known else {}), **_style(field)}
        columns.append(values)
        fields.append(pa.field(field.name, values.type, metadata=style or None))
    return pa.table(columns, schema=pa.schema(fields))


def _cast(values: pa.ChunkedArray, target: pa.DataType) -> pa.ChunkedArray:
    held, types = values.type, pa.types
    if held == target:
        return values
    if types.is_dictionary(target):
        if not types.is_dictionary(held):
            values = _cast(values, target.value_type)
            ordered = pa.chunked_array([pc.unique(values).drop_null().sort()])
            values = pc.index_in(values, ordered.combine_chunks())
            return _coded(values, ordered.combine_chunks(), target)
        values = values.unify_dictionaries()
        dictionary = _cast(pa.chunked_array([values.chunk(0).dictionary]), target.value_type).combine_chunks()
        return _coded(pa.chunked_array([c.indices for c in values.chunks], held.index_type), dictionary, target)
    if types.is_dictionary(held):
        return _cast(values.cast(held.value_type), target)
    if types.is_floating(held) and types.is_integer(target):
        return _rounded(values).cast(target)
    if types.is_floating(held) and types.is_decimal(target):
        return pc.round(values, target.scale).cast(target)
    lossy = types.is_timestamp(held) or (types.is_floating(target) and not _is_text(held))
    return values.cast(target, safe=not lossy)


def _coded(indices: pa.ChunkedArray, dictionary: pa.Array, target: pa.DictionaryType) -> pa.ChunkedArray:
    """Codes and dictionary as one column, in wider codes where the given ones are too narrow."""
    fits = len(dictionary) <= 2 ** (target.index_type.bit_width - 1)
    index_type = target.index_type if fits else pa.int32()
    chunks = [
        pa.DictionaryArray.from_arrays(chunk.cast(index_type), dictionary, ordered=target.ordered)
        for chunk in indices.chunks
    ]
    return pa.chunked_array(chunks, pa.dictionary(index_type, dictionary.type, target.ordered))


def _arrow_type(text: str) -> pa.DataType | None:
    """The Arrow type that prints so; None for those that have no place in a table of people."""
    if match := re.fullmatch(r"dictionary<values=(.+), indices=(\w+), ordered=([01])>", text):
        values, indices = _arrow_type(match[1]), _arrow_type(match[2])
        return pa.dictionary(indices, values, match[3] == "1") if values and indices else None
    if match := re.fullmatch(r"timestamp\[(\w+)(?:, tz=(.+))?\]", text):
        return pa.timestamp(match[1], match[2])
    if match := re.fullmatch(r"decimal(32|64|128|256)\((\d+), (-?\d+)\)", text):
        return getattr(pa, f"decimal{match[1]}")(int(match[2]), int(match[3]))
    if match := re.fullmatch(r"(time32|time64|duration)\[(\w+)\]", text):
        return getattr(pa, match[1])(match[2])
    plain = {
        "date32[day]": "date32",
        "date64[ms]": "date64",
        "double": "float64",
        "float": "float32",
        "halffloat": "float16",
    }
    try:
        return pa.type_for_alias(plain.get(text, text))
    except ValueError:
        return None


def _to_pandas(table: pa.Table, origin: Origin) -> "pd.DataFrame":
    import pandas as pd

    columns = {
        name: _pandas_series(values, origin.columns[name].dtype if name in origin.columns else "", origin)
        for name, values in zip(table.column_names, table.columns, strict=True)
    }
    return pd.DataFrame(columns, index=pd.RangeIndex(table.num_rows), copy=False)


def _pandas_series(values: pa.ChunkedArray, dtype: str, origin: Origin) -> "pd.Series":
    """One column by the name of its pandas dtype; numbers that meet nulls become their nullable kin."""
    import pandas as pd

    if match := re.fullmatch(r"category\[(.*)\]( ordered)?", dtype):
        return _pandas_categorical(values, match[1], ordered=match[2] is not None)
    if dtype.endswith("[pyarrow]") and not dtype.startswith("string["):
        return pd.Series(pd.arrays.ArrowExtensionArray(values))  # type: ignore[attr-defined]
    if dtype == "object" or dtype == "":
        if dtype and _is_text(values.type):
            return pd.Series(values.to_numpy(), dtype=object)  # nulls as None
        return values.to_pandas().astype(object) if dtype else values.to_pandas()
    wanted = pd.api.types.pandas_dtype(dtype)
    if values.null_count and getattr(wanted, "kind", "") in "iub" and isinstance(wanted, np.dtype):
        nullable = {"bool": "boolean"}.get(dtype, dtype.replace("uint", "UInt").replace("int", "Int"))
        wanted = pd.api.types.pandas_dtype(nullable)
    if isinstance(wanted, np.dtype):
        series = values.to_pandas()
        narrower = wanted.kind in "iu" and not np.can_cast(series.dtype, wanted)
        return series if narrower or (wanted.kind in "Mm" and series.dtype.kind not in "Mm") else series.astype(wanted)
    if hasattr(wanted, "__from_arrow__"):
        return pd.Series(wanted.__from_arrow__(values))
    return values.to_pandas()


def _pandas_categorical(values: pa.ChunkedArray, dtype: str, *, ordered: bool) -> "pd.Series":
    import pandas as pd

    if not pa.types.is_dictionary(values.type):
        values = _cast(values, pa.dictionary(pa.int32(), values.type))
    values = values.unify_dictionaries()
    dictionary = values.chunk(0).dictionary if values.num_chunks else pa.array([], values.type.value_type)
    codes = pa.chunked_array([c.indices for c in values.chunks], values.type.index_type)
    categories = _pandas_series(pa.chunked_array([dictionary]), dtype, Origin(library="pandas", columns={}))
    filled = pc.fill_null(codes.cast(pa.int64()), -1).to_numpy()
    return pd.Series(pd.Categorical.from_codes(filled, categories=pd.Index(categories), ordered=ordered))


def _to_polars(table: pa.Table, origin: Origin) -> "pl.DataFrame":
    import polars as pl

    columns = []
    for name, values in zip(table.column_names, table.columns, strict=True):
        dtype = origin.columns[name].dtype if name in origin.columns else ""
        if dtype not in ("Enum", "Categorical"):
            columns.append(pl.Series(name, pl.from_arrow(values)))
            continue
        if not pa.types.is_dictionary(values.type):
            values = _cast(values, pa.dictionary(pa.int32(), pa.string()))
        values = values.unify_dictionaries()
        categories = values.chunk(0).dictionary.cast(pa.string()).to_pylist() if values.num_chunks else []
        texts = pl.Series(name, pl.from_arrow(values.cast(pa.large_string())))
        columns.append(texts.cast(pl.Enum(categories) if dtype == "Enum" else pl.Categorical))
    return pl.DataFrame(columns)


# -------------------------------------------------------------------------------------------------------- writing out


def write_table(table: pa.Table, path: str | Path, *, origin: Origin | None = None, force: bool = False) -> None:
    """Writes a file or a database table (`fake.duckdb::people`), whole or not at all.

    With its origin, types and spelling are those of the table that came in. An existing file or table is replaced only
    with `force`.
    """
    check_writable(path, force=force, table=True)
    place = _Place.of(path)
    if origin is not None:
        table = restyle(table, origin)
    if place.suffix in _TEXT_SUFFIXES:
        delimiter = origin.delimiter if origin is not None and place.suffix == ".csv" else _TEXT_SUFFIXES[place.suffix]
        with _atomic_path(place.path, force=force) as part:
            _write_text(table, part, delimiter)
    elif place.table is None:
        with _atomic_path(place.path, force=force) as part:
            _WRITERS[place.suffix](table, part)
    elif place.path.exists():  # other tables live there: the database's own transaction keeps it whole
        with _explained(place.path):
            _DATABASE_WRITERS[place.suffix](table, place.path, place.table)
    else:
        with _atomic_path(place.path) as part:
            _DATABASE_WRITERS[place.suffix](table, part, place.table)


def check_writable(path: str | os.PathLike[str], *, force: bool = False, table: bool = False) -> None:
    """Raises now what writing would raise later: call it before any budget is spent.

    Serves files and folders alike; with `table` the path must also end in a format that `write_table` knows.
    """
    is_database = "::" in str(path) or str(path).startswith(_POSTGRES)
    if not table and not is_database:
        _require_free(Path(path), force=force)
        return
    place = _Place.of(str(path))
    if place.suffix == "postgres":
        raise TableError("PostgreSQL tables are only read. Write a file, and load it with the database's own tools.")
    if place.path.suffix.lower() == ".bz2":
        raise TableError(f"{place.path}: text is written plain, as .gz or as .zst.")
    if place.suffix not in (".sqlite", ".duckdb"):
        _require_free(place.path, force=force)
        return
    if place.table is None:
        raise TableError(f"Name the table to write, as in {place}::people.")
    _require_free(place.path, force=True)
    if place.path.exists() and not force and place.table.lower() in _tables_in(place):
        raise TableError(f"{place} exists. Choose another name, or replace it with --force (force=True).")


def _tables_in(place: _Place) -> list[str]:
    with _said_plainly(place):
        if place.suffix == ".duckdb":
            with _duckdb_file(place, read_only=True) as duck:
                names = duck.execute("SELECT table_name FROM information_schema.tables").fetchall()
        else:
            with contextlib.closing(sqlite3.connect(place.path)) as lite:
                names = lite.execute("SELECT name FROM sqlite_master").fetchall()
    return [name.lower() for (name,) in names]


def _require_free(path: Path, *, force: bool) -> None:
    """The folder is there and may be written, and nothing is in the way."""
    folder = path.parent
    if not folder.is_dir():
        what = "is not a folder" if folder.exists() else "does not exist"
        raise TableError(f"The folder {folder} {what}, so {path.name} cannot be written there. Make it first.")
    if path.exists() and not force:
        raise TableError(f"{path} exists. Choose another name, or replace it with --force (force=True).")
    effective = os.access in os.supports_effective_ids
    if not os.access(folder, os.W_OK | os.X_OK, effective_ids=effective):
        raise TableError(
            f"The folder {folder} may not be written by this user. Choose another, or change its permissions."
        )


@contextlib.contextmanager
def atomic_write(path: str | os.PathLike[str], *, force: bool = False) -> Iterator[BinaryIO]:
    """Gives a file to write to; it becomes `path` when the block ends well, and vanishes if it does not.

    >>> with tempfile.TemporaryDirectory() as folder, atomic_write(Path(folder, "a.txt")) as file:
    ...     _ = file.write(b"whole")
    """
    with _atomic_path(path, force=force) as part, part.open("wb") as file:
        yield file


@contextlib.contextmanager
def _atomic_path(path: str | os.PathLike[str], *, force: bool = False) -> Iterator[Path]:
    """The same with the name of the file, for libraries that open it themselves."""
    path = Path(os.path.realpath(path))  # a link stays a link: what it points to is replaced
    if path.is_dir():
        raise TableError(f"{path} is a folder, expected a file name.")
    _require_free(path, force=force)
    with _explained(path):
        folder = Path(tempfile.mkdtemp(prefix=f".{path.name}.", suffix=".tmp", dir=path.parent))
        try:
            part = folder / path.name
            yield part
            _sync(part)
            if not force and path.exists():
                raise TableError(f"{path} appeared while it was being written. Choose another name, or use --force.")
            os.replace(part, path)
            _sync(path.parent)
        finally:
            shutil.rmtree(folder, ignore_errors=True)


@contextlib.contextmanager
def atomic_folder(path: str | os.PathLike[str], *, force: bool = False, marker: str | None = None) -> Iterator[Path]:
    """Gives a folder to fill; it becomes `path` when the block ends well, and vanishes if it does not.

    With `force` an existing folder is replaced, and is lost only when the new one stands in its place. With `marker` it
    must be empty or contain that file: `--force` with a wrong name must not remove a home folder.
    """
    path = Path(os.path.realpath(path))
    check_writable(path, force=force)
    _require_marked(path, marker)
    with _explained(path):
        work = Path(tempfile.mkdtemp(prefix=f".{path.name}.", suffix=".tmp", dir=path.parent))
        try:
            new, old = work / "new", work / "old"
            new.mkdir()
            yield new
            for file in [*new.rglob("*"), new]:
                _sync(file)
            if path.exists():
                check_writable(path, force=force)
                _require_marked(path, marker)
                os.rename(path, old)
            try:
                os.rename(new, path)
            except BaseException:
                if old.exists():
                    os.rename(old, path)
                raise
            _sync(path.parent)
        finally:
            shutil.rmtree(work, ignore_errors=True)


def _require_marked(path: Path, marker: str | None) -> None:
    if path.exists() and not path.is_dir():
        raise TableError(f"{path} is a file, expected the name of a folder. Choose another name.")
    if path.is_dir() and marker and not (path / marker).exists() and any(path.iterdir()):
        raise TableError(f"{path} is not empty and has no {marker}, so it is not replaced. Choose another name.")


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


@contextlib.contextmanager
def _explained(path: Path) -> Iterator[None]:
    """Errors of writing in one line."""
    try:
        yield
    except UnderstudyError:
        raise
    except (OSError, duckdb.Error, sqlite3.Error, pa.ArrowException) as error:
        raise TableError(f"{path} cannot be written: {_reason(error)} Nothing was written.") from None


def _reason(error: Exception) -> str:
    said, code = str(error).lower(), getattr(error, "errno", None)
    if code in (errno.ENOSPC, errno.EDQUOT) or "no space left" in said or "is full" in said:
        return "the disk is full. Free some space, or choose another folder."
    if code in (errno.EACCES, errno.EPERM) or "permission denied" in said:
        return "this user may not write there. Choose another folder, or change its permissions."
    if code == errno.EROFS or "read-only" in said or "readonly" in said:
        return "that place is read-only. Choose another folder."
    if code == errno.ENAMETOOLONG:
        return "the name is too long. Choose a shorter one."
    if "lock" in said:
        return "it is open in another program. Close it there first."
    return f"{os.strerror(code)}." if code else f"{type(error).__name__}."


# How each format is written -----------------------------------------------------------------------------------------


def _write_text(table: pa.Table, path: Path, delimiter: str) -> None:
    """The header is the first row of the query: DuckDB would rename columns that differ only by case."""
    header = ", ".join(_quoted(name) for name in table.column_names)
    with _spelled(table, _as_text) as (connection, expressions):
        compression = {".gz": "gzip", ".zst": "zstd"}.get(path.suffix.lower(), "none")
        connection.execute(
            f"COPY (SELECT {header} UNION ALL SELECT {', '.join(expressions)} FROM t) TO {_quoted(str(path))}"
            f" (FORMAT csv, HEADER false, DELIMITER {_quoted(delimiter)}, COMPRESSION {compression},"
            """ QUOTE '"', ESCAPE '"')"""
        )


def _write_json_lines(table: pa.Table, path: Path) -> None:
    _require_distinct_by_case(table)
    with _spelled(table, _as_json) as (connection, expressions):
        named = [f"{e} AS {_name(name)}" for e, name in zip(expressions, table.column_names, strict=True)]
        compression = {".gz": "gzip", ".zst": "zstd"}.get(path.suffix.lower(), "none")
        connection.execute(
            f"COPY (SELECT {', '.join(named)} FROM t) TO {_quoted(str(path))} (FORMAT json, COMPRESSION {compression})"
        )


def _write_parquet(table: pa.Table, path: Path) -> None:
    pq.write_table(_bare(table), path, compression="zstd")


def _write_arrow(table: pa.Table, path: Path) -> None:
    pa.feather.write_feather(_bare(table), str(path))


def _write_duckdb(table: pa.Table, path: Path, name: str) -> None:
    _require_distinct_by_case(table)
    with _duckdb_file(_Place(path, ".duckdb"), read_only=False) as connection:
        connection.register("understudy_rows", _bare(table))
        connection.execute(f"CREATE OR REPLACE TABLE {_name(name)} AS SELECT * FROM understudy_rows")
        connection.unregister("understudy_rows")


def _write_sqlite(table: pa.Table, path: Path, name: str) -> None:
    _require_distinct_by_case(table)
    declared = ", ".join(f"{_name(field.name)} {_sqlite_type(field.type)}" for field in table.schema)
    holes = ", ".join("?" for _ in table.column_names)
    with _spelled(table, _as_sqlite) as (connection, expressions):
        plain = connection.sql(f"SELECT {', '.join(expressions)} FROM t").to_arrow_table()
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as lite:
        lite.execute("BEGIN IMMEDIATE")
        try:
            lite.execute(f"DROP TABLE IF EXISTS {_name(name)}")
            lite.execute(f"CREATE TABLE {_name(name)} ({declared})")
            for batch in plain.to_batches(1 << 16):
                rows = zip(*(column.to_pylist() for column in batch.columns), strict=True)
                lite.executemany(f"INSERT INTO {_name(name)} VALUES ({holes})", rows)
            lite.execute("COMMIT")
        except BaseException:
            lite.execute("ROLLBACK")
            raise


_WRITERS: dict[str, Callable[[pa.Table, Path], None]] = {
    ".jsonl": _write_json_lines,
    ".parquet": _write_parquet,
    ".feather": _write_arrow,
    ".arrow": _write_arrow,
}
_DATABASE_WRITERS: dict[str, Callable[[pa.Table, Path, str], None]] = {
    ".duckdb": _write_duckdb,
    ".sqlite": _write_sqlite,
}


def _require_distinct_by_case(table: pa.Table) -> None:
    lower = Counter(name.lower() for name in table.column_names)
    clashing = [repr(name) for name in table.column_names if lower[name.lower()] > 1]
    if clashing:
        raise TableError(
            f"This format cannot hold names that differ only by case: {', '.join(clashing)}. Write CSV or Parquet."
        )


@contextlib.contextmanager
def _spelled(
    table: pa.Table, spell: Callable[[str, pa.DataType, dict[str, str]], str]
) -> Iterator[tuple[duckdb.DuckDBPyConnection, list[str]]]:
    """A connection in which `t` holds the columns as c0, c1, ..., and an expression that spells each of them."""
    columns: dict[str, pa.ChunkedArray] = {}
    expressions = []
    for i, (field, values) in enumerate(zip(table.schema, table.columns, strict=True)):
        style, held = _style(field), values.type
        if pa.types.is_dictionary(held):
            values, held = values.cast(held.value_type), held.value_type
        if pa.types.is_timestamp(held) and held.tz:
            seconds = values.cast(pa.timestamp("s", held.tz), safe=False)
            columns[f"z{i}"] = pc.strftime(seconds, format="%z")
            values = pc.local_timestamp(values)
            style = {"zone": f"z{i}", **style}
        columns[f"c{i}"] = values
        expressions.append(spell(f"c{i}", held, style))
    with contextlib.closing(duckdb.connect(":memory:")) as connection:
        connection.execute("SET python_enable_replacements = false")
        connection.register("t", pa.table(columns))
        yield connection, expressions


def _as_text(c: str, held: pa.DataType, style: dict[str, str]) -> str:
    """SQL that spells a column as text files had it."""
    types = pa.types
    if types.is_boolean(held):
        no, yes = map(_quoted, style.get("boolean", "false/true").split("/"))
        return f"CASE WHEN {c} THEN {yes} WHEN NOT {c} THEN {no} END"
    if types.is_floating(held):
        return f"CASE WHEN NOT isnan({c}) THEN {_real_text(c, style)} END"
    if types.is_date(held) or types.is_timestamp(held):
        return _moment_text(c, held, style)
    return f"CAST({c} AS VARCHAR)"


def _real_text(c: str, style: dict[str, str]) -> str:
    if "decimals" not in style:
        return f"CAST({c} AS VARCHAR)"
    decimals = int(style["decimals"])
    rounded = f"(round({c}, {decimals}) + 0.0)"  # minus zero becomes zero
    if style.get("padded"):
        return f"format('{{:.{decimals}f}}', {rounded})"
    return rf"regexp_replace(CAST({rounded} AS VARCHAR), '\.0$', '')"


def _moment_text(c: str, held: pa.DataType, style: dict[str, str]) -> str:
    """Dates and datetimes by their format, in their own zone."""
    day = pa.types.is_date(held)
    text_format = style.get("format", "%Y-%m-%d" if day else "")
    zone = f"left({style['zone']}, 3) || ':' || right({style['zone']}, 2)" if "zone" in style else "'+00:00'"
    if not text_format:
        return f"CAST({c}::TIMESTAMP AS VARCHAR)" + (f" || {zone}" if "zone" in style else "")
    end = ""
    if text_format.endswith("%z"):
        text_format, end = text_format[:-2], f" || {zone}"
    elif text_format.endswith("Z") and not text_format.endswith("%Z"):
        text_format, end = text_format[:-1], " || 'Z'"
    text = f"strftime({c}::TIMESTAMP, {_quoted(text_format)})"
    if text_format.endswith("%f"):
        text = f"left({text}, -{6 - int(style['decimals'])})" if style.get("decimals", "6") != "6" else text
    return text + end


def _as_json(c: str, held: pa.DataType, style: dict[str, str]) -> str:
    if pa.types.is_floating(held):
        value = f"round({c}, {int(style['decimals'])})" if "decimals" in style else c
        return f"CASE WHEN isfinite({c}) THEN {value} END"
    return _moment_text(c, held, style) if pa.types.is_date(held) or pa.types.is_timestamp(held) else c


def _as_sqlite(c: str, held: pa.DataType, style: dict[str, str]) -> str:
    if pa.types.is_boolean(held):
        return f"CAST({c} AS INTEGER)"
    if pa.types.is_decimal(held):
        return f"CAST({c} AS DOUBLE)"
    if pa.types.is_uint64(held):
        return f"CASE WHEN {c} <= {_MOST} THEN CAST({c} AS BIGINT) ELSE {_MOST} END"
    if pa.types.is_integer(held) or pa.types.is_floating(held):
        return c
    iso = {key: value for key, value in style.items() if key == "zone"}
    return _as_text(c, held, iso)


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


# -------------------------------------------------------------------------------------------------- conditions in SQL


class Conjunct(NamedTuple):
    """One part of a condition that must hold together with the others."""

    sql: str
    columns: tuple[str, ...]
    operator: str | None = None
    """Of one column against constants: =, <>, <, <=, >, >=, between, not between, in, not in, is null, is not null.
    None: anything else."""
    constants: tuple[Constant, ...] = ()


def filter_where(table: pa.Table, expression: str) -> np.ndarray:
    """Which rows meet an SQL condition over the columns; null counts as false.

    >>> filter_where(pa.table({"age": [17, 70, None]}), "age >= 18").tolist()
    [False, True, False]
    """
    names = table.column_names
    tree = _parsed_condition(expression, names)
    used = _columns_of(tree)
    numbered = _renamed(tree, {name: f"c{i}" for i, name in enumerate(used)})
    with _sandbox() as connection:
        columns = {f"c{i}": _plain_for_sql(table.column(name)) for i, name in enumerate(used)}
        rows = pa.table({**columns, "row": np.arange(table.num_rows)})
        connection.register("t", rows)
        try:
            relation = connection.sql(f"SELECT {_sql_of(numbered)} AS met, row FROM t")
            if str(relation.types[0]) != "BOOLEAN":
                raise ConditionError(
                    f"{expression!r} is {relation.types[0]}, expected a condition that is true or false, such as"
                    f" {names[0]} IS NOT NULL."
                )
            met = relation.to_arrow_table()
        except duckdb.Error as error:
            raise _cannot(expression, _first_line(error), names) from None
    mask = np.zeros(table.num_rows, dtype=bool)
    mask[met.column("row").to_numpy()] = pc.fill_null(met.column("met"), False).to_numpy()
    return mask


def where_columns(expression: str, names: Sequence[str]) -> list[Conjunct]:
    """The parts of a condition that are joined by AND, with the columns of each.

    >>> first, second = where_columns("age BETWEEN 18 AND 65 AND lower(city) = 'rome'", ["age", "city"])
    >>> first.columns, first.operator, first.constants
    (('age',), 'between', (18, 65))
    >>> second.columns, second.operator
    (('city',), None)
    """
    parts = _conjuncts(_parsed_condition(expression, names))
    return [Conjunct(_sql_of(part), _columns_of(part), *_comparison(part)) for part in parts]


_Tree = dict[str, object]

_ALLOWED_NODES = frozenset(
    [
        "COMPARISON",
        "CONJUNCTION",
        "CONSTANT",
        "COLUMN_REF",
        "FUNCTION",
        "OPERATOR",
        "BETWEEN",
        "CASE",
        "CAST",
        "COLLATE",
        "TYPE",
    ]
)
_ALLOWED_MACROS = frozenset(["nullif", "fmod", "fdiv", "split_part", "days_in_month", "date_add", "if", "now", "today"])


def _parsed_condition(expression: str, names: Sequence[str]) -> _Tree:
    """The syntax tree of an expression that can do nothing but look at the columns, under their exact names."""
    statement = _statement(f"SELECT 1 FROM t WHERE (\n{expression}\n)")
    if isinstance(statement, str):
        raise _cannot(expression, statement, names)
    tree = cast(_Tree, cast(_Tree, statement["node"]).pop("where_clause"))
    frame = cast(_Tree, _statement("SELECT 1 FROM t WHERE (true)"))
    cast(_Tree, frame["node"]).pop("where_clause")
    if _without_places(statement) != _without_places(frame):
        raise _cannot(expression, "it is more than one expression", names)
    exact = {}
    for node in _nodes(tree):
        kind = node["class"]
        if kind not in _ALLOWED_NODES:
            raise _cannot(expression, f"{str(kind).lower().replace('_', ' ')} is not allowed here", names)
        if kind == "FUNCTION" and str(node["function_name"]).lower() not in _harmless_functions():
            raise _cannot(expression, f"the function {node['function_name']} is not allowed here, or unknown", names)
        if kind == "COLUMN_REF":
            path = cast(list[str], node["column_names"])
            exact[".".join(path)] = _exact_name(path, expression, names)
    return _renamed(tree, exact)


def _exact_name(path: list[str], expression: str, names: Sequence[str]) -> str:
    """The table's own spelling of a column: SQL names ignore case."""
    written = ".".join(path)
    if written in names:
        return written
    alike = [name for name in names if name.lower() == written.lower()]
    if len(alike) == 1:
        return alike[0]
    hint = "; texts stand in single quotes" if re.search(rf'"{re.escape(written)}"', expression) else ""
    raise _cannot(expression, f"there is no column {written!r}{hint}", names)


def _cannot(expression: str, reason: str, names: Sequence[str]) -> ConditionError:
    shown = ", ".join(names[:30]) + (f" and {len(names) - 30} more" if len(names) > 30 else "")
    return ConditionError(
        f"Cannot use the condition {expression!r}: {reason.rstrip('.')}. Write SQL over the columns {shown}."
    )


def _first_line(error: Exception) -> str:
    return str(error).strip().split("\n")[0]


def _statement(sql: str) -> _Tree | str:
    """The syntax tree of one SELECT, or what is wrong with it."""
    with _sandbox() as connection:
        answer = json.loads(connection.execute("SELECT json_serialize_sql(?)", [sql]).fetchall()[0][0])
    if answer["error"]:
        return _first_line(answer["error_message"])
    return answer["statements"][0] if len(answer["statements"]) == 1 else "it is more than one statement"


def _nodes(tree: object) -> Iterator[_Tree]:
    """All expressions in a tree."""
    if isinstance(tree, dict):
        if "class" in tree:
            yield tree
        for value in tree.values():
            yield from _nodes(value)
    elif isinstance(tree, list):
        for value in tree:
            yield from _nodes(value)


def _without_places(tree: object) -> object:
    if isinstance(tree, dict):
        return {key: _without_places(value) for key, value in tree.items() if not key.startswith("query_location")}
    return [_without_places(value) for value in tree] if isinstance(tree, list) else tree


def _renamed(tree: object, names: Mapping[str, str]) -> _Tree:
    """A copy of the tree with other column names."""
    copy = json.loads(json.dumps(tree))
    for node in _nodes(copy):
        if node["class"] == "COLUMN_REF":
            node["column_names"] = [names[".".join(cast(list[str], node["column_names"]))]]
    return copy


def _columns_of(tree: _Tree) -> tuple[str, ...]:
    found = [cast(list[str], node["column_names"])[0] for node in _nodes(tree) if node["class"] == "COLUMN_REF"]
    return tuple(dict.fromkeys(found))


@functools.cache
def _harmless_functions() -> frozenset[str]:
    """Functions whose value depends on their arguments alone, so on no file, setting, clock or die."""
    with _sandbox() as connection:
        rows = connection.execute(
            "SELECT DISTINCT function_name FROM duckdb_functions()"
            " WHERE function_type = 'scalar' AND stability = 'CONSISTENT'"
        ).fetchall()
    return frozenset(name.lower() for (name,) in rows) | _ALLOWED_MACROS


def _sql_of(tree: _Tree) -> str:
    """A tree as SQL text."""
    with _sandbox() as connection:
        statement = json.loads(connection.execute("SELECT json_serialize_sql('SELECT 1')").fetchall()[0][0])
        statement["statements"][0]["node"]["select_list"] = [tree]
        text = connection.execute("SELECT json_deserialize_sql(?::JSON)", [json.dumps(statement)]).fetchall()[0][0]
    return text.removeprefix("SELECT ")


def _conjuncts(tree: _Tree) -> list[_Tree]:
    if tree["type"] != "CONJUNCTION_AND":
        return [tree]
    return [part for child in cast(list[_Tree], tree["children"]) for part in _conjuncts(child)]


_COMPARISONS = {
    "COMPARE_EQUAL": "=",
    "COMPARE_NOTEQUAL": "<>",
    "COMPARE_LESSTHAN": "<",
    "COMPARE_LESSTHANOREQUALTO": "<=",
    "COMPARE_GREATERTHAN": ">",
    "COMPARE_GREATERTHANOREQUALTO": ">=",
}
_MIRRORED = {"=": "=", "<>": "<>", "<": ">", "<=": ">=", ">": "<", ">=": "<="}
_NEGATED = {
    "=": "<>",
    "<>": "=",
    "<": ">=",
    "<=": ">",
    ">": "<=",
    ">=": "<",
    "in": "not in",
    "not in": "in",
    "between": "not between",
    "not between": "between",
    "is null": "is not null",
    "is not null": "is null",
}


_Test = tuple[str | None, tuple[Constant, ...]]


def _comparison(tree: _Tree) -> _Test:
    """Operator and constants, if the tree is one column against constants."""
    kind, children = str(tree["type"]), cast(list[_Tree], tree.get("children", []))
    if kind == "OPERATOR_NOT":
        operator, constants = _comparison(children[0])
        return (_NEGATED[operator], constants) if operator else (None, ())
    if kind in _COMPARISONS:
        left, right, operator = cast(_Tree, tree["left"]), cast(_Tree, tree["right"]), _COMPARISONS[kind]
        if left["type"] != "COLUMN_REF":
            left, right, operator = right, left, _MIRRORED[operator]
        return _against(left, operator, [right])
    if kind == "COMPARE_BETWEEN":
        return _against(cast(_Tree, tree["input"]), "between", [cast(_Tree, tree["lower"]), cast(_Tree, tree["upper"])])
    if kind in ("COMPARE_IN", "COMPARE_NOT_IN"):
        return _against(children[0], "in" if kind == "COMPARE_IN" else "not in", children[1:])
    if kind in ("OPERATOR_IS_NULL", "OPERATOR_IS_NOT_NULL"):
        return _against(children[0], "is null" if kind == "OPERATOR_IS_NULL" else "is not null", [])
    return None, ()


def _against(column: _Tree, operator: str, others: Sequence[_Tree]) -> _Test:
    if column["type"] != "COLUMN_REF" or not all(_is_constant(other) for other in others):
        return None, ()
    constants = tuple(_constant(other) for other in others)
    return (None, ()) if None in constants else (operator, constants)


def _is_constant(tree: _Tree) -> bool:
    """A literal, also signed or with its type before it."""
    return all(
        node["class"] in ("CONSTANT", "CAST", "TYPE")
        or (node["class"] == "FUNCTION" and node["function_name"] in ("+", "-"))
        for node in _nodes(tree)
    )


def _constant(tree: _Tree) -> Constant:
    with _sandbox() as connection:
        try:
            value = connection.sql(f"SELECT {_sql_of(tree)} AS v").to_arrow_table().column(0)[0].as_py()
        except duckdb.Error as error:
            raise ConditionError(f"Cannot read the constant {_sql_of(tree)}: {_first_line(error)}") from None
    if isinstance(value, Decimal):
        return int(value) if value.as_tuple().exponent == 0 else float(value)
    return value


def _plain_for_sql(values: pa.ChunkedArray) -> pa.ChunkedArray:
    held = values.type
    if pa.types.is_dictionary(held):
        return values.cast(held.value_type)
    return values.cast(pa.float64()) if pa.types.is_decimal256(held) else values
