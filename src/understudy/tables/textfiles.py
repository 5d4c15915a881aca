"""Text files: fields between commas, tabs and the like."""

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
from understudy.tables.engine import quoted
from understudy.tables.places import TEXT_SUFFIXES, Place, require_names
from understudy.tables.spelling import as_text, spelled
from understudy.tables.texts import untyped

_END = "end"
"""Fills every field of an extra row that is appended after the last one and removed again."""


def read_delimited(place: Place) -> pa.Table:
    """All columns as text, without types; an empty field is null."""
    header, delimiter = _header(place)
    require_names(header, str(place))
    try:
        table = _parsed(place, header, delimiter)
    except (pa.ArrowInvalid, UnicodeDecodeError) as error:
        require_utf8(place)
        _require_even_lines(place, header, delimiter)
        if "straddling" in str(error):
            raise TableError(f"{place} has a row longer than 16 MB. Is a closing quote missing?") from None
        raise
    rows = table.num_rows - 1
    # The parser silently lets an unclosed quote swallow all that follows: then the extra last row is missing.
    if any(values[rows].as_py() != _END for values in table.columns):
        raise TableError(f"{place}: a quote is opened and never closed, so the last field runs to the end of the file.")
    mark = {"delimiter": delimiter} if delimiter != "," else None
    return table.slice(0, rows).cast(pa.schema([untyped(field) for field in table.schema], mark))


def _parsed(
    place: Place,
    header: Sequence[str],
    delimiter: str,
    *,
    threads: bool = True,
    on_ragged: Callable[[pa.csv.InvalidRow], str] | None = None,
) -> pa.Table:
    """The table with one extra row, which holds `_END`."""
    with pa.input_stream(str(place.path), compression="detect") as stream:
        return pa.csv.read_csv(
            _WithLastLine(stream, delimiter.join([_END] * len(header)).encode()),
            read_options=pa.csv.ReadOptions(use_threads=threads, block_size=1 << 24),
            parse_options=pa.csv.ParseOptions(
                delimiter=delimiter,
                newlines_in_values=True,
                ignore_empty_lines=len(header) > 1,  # of one column, an empty line is a null
                # None unless needed: with a handler, a row that is not UTF-8 makes pyarrow print an error of its own.
                invalid_row_handler=on_ragged,
            ),
            convert_options=pa.csv.ConvertOptions(
                column_types={name: pa.string() for name in header},
                null_values=[""],
                strings_can_be_null=True,
                quoted_strings_can_be_null=True,
            ),
        )


class _WithLastLine(io.RawIOBase):
    """A stream with one extra line appended; a last line without a line break gets one first."""

    def __init__(self, stream: pa.NativeFile, line: bytes):
        self._stream, self._line, self._last = stream, line + b"\n", b""

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1, /) -> bytes:
        """As many bytes as requested, unless the stream ends: the parser looks for the header in the first ones."""
        pieces, wanted = [], sys.maxsize if size < 0 else size
        while wanted and (piece := bytes(self._stream.read(wanted if size >= 0 else None))):
            pieces.append(piece)
            wanted, self._last = wanted - len(piece), piece[-1:]
        if wanted:
            line = self._line if self._last in b"\r\n" else b"\n" + self._line
            pieces.append(line[:wanted])
            self._line, self._last = line[wanted:], b"\n"
        return b"".join(pieces)


def _require_even_lines(place: Place, header: Sequence[str], delimiter: str) -> None:
    """Raises with the first line that has too few or too many fields. Reads in one thread, which knows the line."""
    ragged: list[tuple[int, int, int | None]] = []

    def on_ragged(row: pa.csv.InvalidRow) -> str:
        ragged.append((row.expected_columns, row.actual_columns, row.number))
        return "error"

    with contextlib.suppress(pa.ArrowInvalid):
        _parsed(place, header, delimiter, threads=False, on_ragged=on_ragged)
    if ragged:
        expected, found, line = ragged[0]
        raise TableError(
            f"{place}, line {_physical_line(place, line, delimiter)}: expected {expected} fields as in the header,"
            f" found {found}. Mend that line; a field that contains {delimiter!r} needs quotes."
        ) from None  # the parser's own error quotes rows


def _header(place: Place) -> tuple[list[str], str]:
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
    delimiter = TEXT_SUFFIXES[place.suffix]
    first = lines.split("\n", 1)[0]
    if place.suffix == ".csv" and "," not in first:
        delimiter = next((mark for mark in ";\t|" if mark in first), ",")
    names = next(csv.reader(io.StringIO(lines), delimiter=delimiter))
    if "\ufffd" in "".join(names):
        require_utf8(place)
    return names, delimiter


def require_utf8(place: Place) -> None:
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
        raise TableError(f"{place} is not UTF-8 (line {line}, byte {offset}): it ends inside a character.") from None


def _physical_line(place: Place, row: int | None, delimiter: str) -> str:
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


def write_delimited(table: pa.Table, path: Path, delimiter: str) -> None:
    """The header is the first row of the query: DuckDB would rename columns that differ only by case."""
    header = ", ".join(quoted(name) for name in table.column_names)
    with spelled(table, as_text) as (connection, expressions):
        compression = {".gz": "gzip", ".zst": "zstd"}.get(path.suffix.lower(), "none")
        connection.execute(
            f"COPY (SELECT {header} UNION ALL SELECT {', '.join(expressions)} FROM t) TO {quoted(str(path))}"
            f" (FORMAT csv, HEADER false, DELIMITER {quoted(delimiter)}, COMPRESSION {compression},"
            """ QUOTE '"', ESCAPE '"')"""
        )
