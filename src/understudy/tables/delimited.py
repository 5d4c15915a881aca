"""Delimited text files: CSV and TSV."""

import contextlib
import csv
import io
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import cast

import pyarrow as pa
import pyarrow.csv

from understudy.errors import TableError
from understudy.tables.formatting import format_in_sql, text_sql
from understudy.tables.infer import mark_untyped
from understudy.tables.location import TEXT_SUFFIXES, TableLocation, require_names
from understudy.tables.sql import quote_text

_END = "end"
"""The content of every field of an extra row that is appended to the file and then removed."""


def read_delimited(location: TableLocation) -> pa.Table:
    """All columns as text, without types; an empty field is null."""
    header, delimiter = _read_header(location)
    require_names(header, str(location))
    try:
        table = _parse(location, header, delimiter)
    except (pa.ArrowInvalid, UnicodeDecodeError) as error:
        require_utf8(location)
        _require_equal_fields(location, header, delimiter)
        if "straddling" in str(error):
            raise TableError(f"{location} has a row longer than 16 MB. Check for a missing closing quote.") from None
        raise
    rows = table.num_rows - 1
    # An unclosed quote silently takes in all that follows it, and then the extra last row is missing.
    if any(values[rows].as_py() != _END for values in table.columns):
        raise TableError(
            f"{location}: a quote is never closed, so the last field extends to the end of the file. Close it."
        )
    mark = {"delimiter": delimiter} if delimiter != "," else None
    return table.slice(0, rows).cast(pa.schema([mark_untyped(field) for field in table.schema], mark))


def _parse(
    location: TableLocation,
    header: Sequence[str],
    delimiter: str,
    *,
    threads: bool = True,
    on_ragged: Callable[[pa.csv.InvalidRow], str] | None = None,
) -> pa.Table:
    """The table with one extra row, which holds `_END`."""
    with pa.input_stream(str(location.path), compression="detect") as stream:
        return pa.csv.read_csv(
            _StreamWithLastLine(stream, delimiter.join([_END] * len(header)).encode()),
            read_options=pa.csv.ReadOptions(use_threads=threads, block_size=1 << 24),
            parse_options=pa.csv.ParseOptions(
                delimiter=delimiter,
                newlines_in_values=True,
                ignore_empty_lines=len(header) > 1,  # in a single column an empty line is a null
                # None unless needed: with a handler, pyarrow prints an error of its own for a row that is not UTF-8.
                invalid_row_handler=on_ragged,
            ),
            convert_options=pa.csv.ConvertOptions(
                column_types={name: pa.string() for name in header},
                null_values=[""],
                strings_can_be_null=True,
                quoted_strings_can_be_null=True,
            ),
        )


class _StreamWithLastLine(io.RawIOBase):
    """A stream with one line appended, after a line break if the last line has none."""

    def __init__(self, stream: pa.NativeFile, line: bytes):
        self._stream, self._line, self._last = stream, line + b"\n", b""

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1, /) -> bytes:
        """As many bytes as requested unless the stream ends: the parser expects the header in the first block."""
        pieces, wanted = [], sys.maxsize if size < 0 else size
        while wanted and (piece := bytes(self._stream.read(wanted if size >= 0 else None))):
            pieces.append(piece)
            wanted, self._last = wanted - len(piece), piece[-1:]
        if wanted:
            line = self._line if self._last in b"\r\n" else b"\n" + self._line
            pieces.append(line[:wanted])
            self._line, self._last = line[wanted:], b"\n"
        return b"".join(pieces)


def _require_equal_fields(location: TableLocation, header: Sequence[str], delimiter: str) -> None:
    """Raises for the first line with too few or too many fields. Reads in one thread, which knows the line number."""
    ragged: list[tuple[int, int, int | None]] = []

    def on_ragged(row: pa.csv.InvalidRow) -> str:
        ragged.append((row.expected_columns, row.actual_columns, row.number))
        return "error"

    with contextlib.suppress(pa.ArrowInvalid):
        _parse(location, header, delimiter, threads=False, on_ragged=on_ragged)
    if ragged:
        expected, found, line = ragged[0]
        line = _physical_line(location, line, delimiter)
        raise TableError(
            f"{location}, line {line or 'unknown'}: expected {expected} fields as in the header, found {found}. Correct"
            f" that line; a field that contains {delimiter!r} needs quotes.",
            line=line,
        ) from None  # the parser's own error quotes rows


def _read_header(location: TableLocation) -> tuple[list[str], str]:
    """The names in the first line that is not blank, and the delimiter."""
    with pa.input_stream(str(location.path), compression="detect") as stream:
        start = bytes(stream.read(1 << 20))
    if start.startswith((b"\xff\xfe", b"\xfe\xff")):
        raise TableError(
            f"{location} is UTF-16, expected UTF-8. Convert it: iconv -f UTF-16 -t UTF-8 {location.path.name} > new.csv"
        )
    lines = io.StringIO(start.decode("utf-8-sig", errors="replace"), newline=None).read().lstrip("\n")
    if not lines.strip():
        raise TableError(f"{location} has no header line. Expected column names in the first line.")
    delimiter = TEXT_SUFFIXES[location.suffix]
    first = lines.split("\n", 1)[0]
    if location.suffix == ".csv" and "," not in first:
        delimiter = next((mark for mark in ";\t|" if mark in first), ",")
    names = next(csv.reader(io.StringIO(lines), delimiter=delimiter))
    if "\ufffd" in "".join(names):
        require_utf8(location)
    return names, delimiter


def require_utf8(location: TableLocation) -> None:
    """Raises for the first byte that is not UTF-8. Called only after a failure."""
    with pa.input_stream(str(location.path), compression="detect") as stream:
        content = bytes(stream.read())
    try:
        content.decode()
    except UnicodeDecodeError as error:
        line = 1 + content[: error.start].count(b"\n")
        advice = f". Convert it: iconv -f LATIN1 -t UTF-8 {location.path.name} > new"
        if error.reason == "unexpected end of data":
            advice = ": it ends inside a character."
        raise TableError(f"{location} is not UTF-8 (line {line}, byte {error.start}){advice}", line=line) from None


def _physical_line(location: TableLocation, row: int | None, delimiter: str) -> int | None:
    """The line of the file where a record starts: quoted fields may span lines. Called only after a failure."""
    if row is None:
        return None
    with contextlib.suppress(csv.Error), pa.input_stream(str(location.path), compression="detect") as stream:
        text = io.TextIOWrapper(cast(io.BufferedReader, stream), encoding="utf-8", newline="")
        reader = csv.reader(text, delimiter=delimiter)
        end_of_last, records = 0, 0
        for record in reader:
            records += bool(record)
            if records == row:
                return end_of_last + 1
            end_of_last = reader.line_num
    return row


def write_delimited(table: pa.Table, path: Path, delimiter: str) -> None:
    """Writes the header as a row of the query: DuckDB would rename columns that differ only in case."""
    header = ", ".join(quote_text(name) for name in table.column_names)
    with format_in_sql(table, text_sql) as (connection, expressions):
        compression = {".gz": "gzip", ".zst": "zstd"}.get(path.suffix.lower(), "none")
        connection.execute(
            f"COPY (SELECT {header} UNION ALL SELECT {', '.join(expressions)} FROM t) TO {quote_text(str(path))}"
            f" (FORMAT csv, HEADER false, DELIMITER {quote_text(delimiter)}, COMPRESSION {compression},"
            """ QUOTE '"', ESCAPE '"')"""
        )
