"""Delimited text files: CSV and TSV."""

import codecs
import contextlib
import csv
import functools
import io
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple, cast

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv

from understudy.errors import TableError
from understudy.rules.sql import quote_text
from understudy.schema.draft import is_text
from understudy.tables.formatting import copy_in_sql, text_sql
from understudy.tables.header import check_header, names_without_header
from understudy.tables.infer import mark_untyped
from understudy.tables.options import ReadOptions
from understudy.tables.origin import value_type
from understudy.tables.path import TEXT_SUFFIXES, TablePath
from understudy.tables.reading_batches import BatchReader, read_on
from understudy.tables.writing_batches import OutputBatches

BLOCK_BYTES = 1 << 22
"""How much of a file is parsed at once. The parser reads up to 32 blocks ahead, so this decides the memory it takes."""
LONGEST_ROW = 1 << 24
"""A row may not be longer: an unclosed quote would make the rest of the file one row."""

_END = "end"
"""The content of every field of an extra row that is appended to the file and then removed."""


class _FirstLine(NamedTuple):
    """What the first line that is not blank decides, besides the options."""

    names: list[str]
    delimiter: str
    is_header: bool
    """Whether that line holds the names, and not a row."""


def open_delimited(table_path: TablePath, options: ReadOptions, declared: Sequence[str] | None = None) -> BatchReader:
    """All columns as text, without types; an empty field is null. `declared` are the names of a schema.

    One batch for each block of the file, and at least one.
    """
    first = _read_first_line(table_path, options, declared)
    separator = {"delimiter": first.delimiter} if first.delimiter != "," else None
    fields = [mark_untyped(pa.field(name, pa.string()), decimal=options.decimal) for name in first.names]
    types = pa.schema(fields, separator)
    return BatchReader(types, lambda _: (rows.cast(types) for rows in _read_batches(table_path, first, options)))


def _read_batches(table_path: TablePath, first: _FirstLine, options: ReadOptions) -> Iterator[pa.Table]:
    """All rows; one batch is held back, since its last row may be the extra one."""
    held = pa.table({name: pa.array([], pa.string()) for name in first.names})
    try:
        # If a row does not fit in a block, the rows that are left are read in larger ones.
        larger = functools.partial(_parse, table_path, first, options, LONGEST_ROW)
        for batch in read_on(_parse(table_path, first, options, BLOCK_BYTES), larger):
            if batch.num_rows and held.num_rows:
                yield held
            held = batch if batch.num_rows else held
    except (pa.ArrowInvalid, UnicodeError) as error:
        require_encoding(table_path, options.encoding)
        _require_equal_fields(table_path, first, options)
        if "straddling" in str(error):
            raise TableError(f"{table_path} has a row longer than 16 MB. Check for a missing closing quote.") from None
        raise
    rows = held.num_rows - 1
    # An unclosed quote silently takes in all that follows it, and then the extra last row is missing.
    if rows < 0 or any(values[rows].as_py() != _END for values in held.columns):
        raise TableError(
            f"{table_path}: a quote is never closed, so the last field extends to the end of the file. Close it."
        )
    yield held.slice(0, rows)


def _parse(
    table_path: TablePath,
    first: _FirstLine,
    options: ReadOptions,
    block_bytes: int,
    *,
    threads: bool = True,
    on_ragged: Callable[[pa.csv.InvalidRow], str] | None = None,
) -> Iterator[pa.Table]:
    """The table in batches, with one extra row at the end, which holds `_END`."""
    names = first.names
    with _open(table_path, options) as stream:
        reader = pa.csv.open_csv(
            _StreamWithLastLine(stream, first.delimiter.join([_END] * len(names)).encode()),
            read_options=pa.csv.ReadOptions(
                use_threads=threads, block_size=block_bytes, column_names=None if first.is_header else names
            ),
            parse_options=pa.csv.ParseOptions(
                delimiter=first.delimiter,
                newlines_in_values=True,
                ignore_empty_lines=len(names) > 1,  # in a single column an empty line is a null
                # None unless needed: with a handler, pyarrow prints an error of its own for a row that is not UTF-8.
                invalid_row_handler=on_ragged,
            ),
            convert_options=pa.csv.ConvertOptions(
                column_types={name: pa.string() for name in names},
                null_values=[""],
                strings_can_be_null=True,
                quoted_strings_can_be_null=True,
            ),
        )
        for batch in reader:
            yield pa.Table.from_batches([batch])


@contextlib.contextmanager
def _open(table_path: TablePath, options: ReadOptions) -> Iterator[pa.NativeFile]:
    """The bytes of a text file, in UTF-8. Reading raises a `UnicodeError` for bytes that do not fit its encoding."""
    with pa.input_stream(str(table_path.path), compression="detect") as stream:
        yield stream if options.is_utf8 else pa.transcoding_input_stream(stream, options.encoding, "utf-8")


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


def _require_equal_fields(table_path: TablePath, first: _FirstLine, options: ReadOptions) -> None:
    """Raises for the first line with too few or too many fields. Reads in one thread, which knows the line number."""
    ragged: list[tuple[int, int, int | None]] = []

    def on_ragged(row: pa.csv.InvalidRow) -> str:
        ragged.append((row.expected_columns, row.actual_columns, row.number))
        return "error"

    with contextlib.suppress(pa.ArrowInvalid):
        for _ in _parse(table_path, first, options, LONGEST_ROW, threads=False, on_ragged=on_ragged):
            pass
    if ragged:
        expected, found, row = ragged[0]
        line = _physical_line(table_path, row, first.delimiter, options)
        where = "header" if first.is_header else "first line"
        raise TableError(
            f"{table_path}, line {line or 'unknown'}: expected {expected} fields as in the {where}, found {found}."
            f" Correct that line; a field that contains {first.delimiter!r} needs quotes.",
            line=line,
        ) from None  # the parser's own error quotes rows


def _read_first_line(table_path: TablePath, options: ReadOptions, declared: Sequence[str] | None) -> _FirstLine:
    """The column names, from the first line that is not blank or in place of it, and the delimiter."""
    with pa.input_stream(str(table_path.path), compression="detect") as stream:
        start = bytes(stream.read(4))
    if options.is_utf8 and start.startswith((b"\xff\xfe", b"\xfe\xff")):
        raise TableError(f'{table_path} is UTF-16, expected UTF-8. Give --encoding utf-16 (encoding="utf-16").')
    try:
        with _open(table_path, options) as file:
            start = bytes(file.read(1 << 20))
    except UnicodeError:
        require_encoding(table_path, options.encoding)
        raise
    lines = io.StringIO(start.decode("utf-8-sig", errors="replace"), newline=None).read().lstrip("\n")
    if options.header is False and options.separator is not None and declared is not None and not lines.strip():
        return _FirstLine(list(declared), options.separator, False)  # a table without rows, or with nulls alone
    if not lines.strip():
        raise TableError(f"{table_path} has no header line. Expected column names in the first line.")
    delimiter = _choose_delimiter(lines.split("\n", 1)[0], table_path, options)
    try:
        fields = next(csv.reader(io.StringIO(lines), delimiter=delimiter))
    except csv.Error:  # a very long field: with declared names the parser counts the fields
        if options.header is not False or declared is None:
            raise TableError(
                f"{table_path}: a field of the first line is very long. Check for a missing quote."
            ) from None
        return _FirstLine(list(declared), delimiter, False)
    if "\ufffd" in "".join(fields):
        require_encoding(table_path, options.encoding)
    if options.header is False:
        return _FirstLine(names_without_header(len(fields), declared, str(table_path)), delimiter, False)
    check_header(fields, str(table_path), declared=declared, is_header=options.header)
    return _FirstLine(fields, delimiter, True)


def _choose_delimiter(line: str, table_path: TablePath, options: ReadOptions) -> str:
    """The separator given, else by the ending; a .csv without a comma in its first line may use another.

    With a decimal comma the other separators come first, since the first line may hold numbers.
    """
    delimiter = options.separator or TEXT_SUFFIXES[table_path.suffix]
    if options.separator is None and table_path.suffix == ".csv" and ("," not in line or options.decimal == ","):
        delimiter = next((mark for mark in ";\t|" if mark in line), ",")
    if delimiter == options.decimal == "," and "," not in line:  # a single column
        return ";"
    if delimiter == options.decimal:
        raise TableError(
            f"{table_path}: the decimal mark {delimiter!r} is also the separator of its fields. Give the separator with"
            ' --separator (separator=";"), or leave --decimal out.'
        )
    return delimiter


def require_encoding(table_path: TablePath, encoding: str = "utf-8", *, can_choose: bool = True) -> None:
    """Raises for the first byte that does not fit the encoding. Called only after a failure."""
    decoder, before, line, piece = codecs.getincrementaldecoder(encoding)(), 0, 1, b"first"
    try:
        with pa.input_stream(str(table_path.path), compression="detect") as stream:
            while piece:
                piece = bytes(stream.read(1 << 20))
                decoder.decode(piece, final=not piece).encode()
                before, line = before + len(piece), line + piece.count(b"\n")
    except UnicodeDecodeError as error:
        waited = error.object[: len(error.object) - len(piece)]  # the start of a character, from the piece before
        byte = before - len(waited) + error.start
        line += error.object[: error.start].count(b"\n") - waited.count(b"\n")
        name = "UTF-8" if encoding == "utf-8" else encoding
        advice = f". Convert it: iconv -f LATIN1 -t UTF-8 {table_path.path.name} > new"
        if can_choose:
            advice = '. Give its encoding, often --encoding cp1252 (encoding="cp1252"); others are latin-1 and utf-16.'
        if error.reason == "unexpected end of data":
            advice = ": it ends inside a character."
        raise TableError(f"{table_path} is not {name} (line {line}, byte {byte}){advice}", line=line) from None
    except UnicodeError:
        raise TableError(f"{table_path} is not {encoding}. Give another --encoding (encoding=...).") from None


def _physical_line(table_path: TablePath, row: int | None, delimiter: str, options: ReadOptions) -> int | None:
    """The line of the file where a record starts: quoted fields may span lines. Called only after a failure."""
    if row is None:
        return None
    with contextlib.suppress(csv.Error), pa.input_stream(str(table_path.path), compression="detect") as stream:
        text = io.TextIOWrapper(cast(io.BufferedReader, stream), encoding=options.encoding, newline="")
        reader = csv.reader(text, delimiter=delimiter)
        end_of_last, records = 0, 0
        for record in reader:
            records += bool(record)
            if records == row:
                return end_of_last + 1
            end_of_last = reader.line_num
    return row


FORMULA = r"^[=+\-@\t\r\n＝＋－＠]"
"""The beginning of a cell that a spreadsheet takes for a formula."""


def formula_columns(table: pa.Table) -> list[str]:
    """The columns whose name, or one of whose strings, a spreadsheet would take for a formula."""
    columns = zip(table.column_names, table.columns, strict=True)
    strings = {name: values.cast(pa.string()) for name, values in columns if is_text(value_type(values.type))}
    flagged = {name for name, values in strings.items() if pc.any(pc.match_substring_regex(values, FORMULA)).as_py()}
    return [name for name in table.column_names if name in flagged or re.match(FORMULA, name)]


def escape_formulas(table: pa.Table) -> pa.Table:
    """Puts an apostrophe before each string and column name that a spreadsheet would take for a formula."""
    fields, columns = [], []
    for field, values in zip(table.schema, table.columns, strict=True):
        if is_text(value_type(field.type)):
            values = pc.replace_substring_regex(values.cast(pa.string()), rf"({FORMULA})", r"'\1")
        fields.append(field.with_type(values.type).with_name(re.sub(f"({FORMULA})", r"'\1", field.name)))
        columns.append(values)
    return pa.table(columns, schema=pa.schema(fields, table.schema.metadata))


def write_delimited(batches: OutputBatches, path: Path, delimiter: str) -> None:
    """Writes the header as a row of the query: DuckDB would rename columns that differ only in case."""
    header = ", ".join(quote_text(name) for name in batches.schema.names)
    compression = {".gz": "gzip", ".zst": "zstd"}.get(path.suffix.lower(), "none")

    def copy(expressions: list[str]) -> str:
        return (
            f"COPY (SELECT {header} UNION ALL SELECT {', '.join(expressions)} FROM t) TO {quote_text(str(path))}"
            f" (FORMAT csv, HEADER false, DELIMITER {quote_text(delimiter)}, COMPRESSION {compression},"
            """ QUOTE '"', ESCAPE '"')"""
        )

    copy_in_sql(batches, text_sql, copy)
