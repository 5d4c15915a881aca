"""The keys of a rule, as they are written in a schema file, and the public lookup tables (CSV files) that they name."""

import csv
import io
import math
import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from understudy.errors import SchemaError, did_you_mean
from understudy.rules.values import Category, check_text, format_list, format_value, to_python

LookupRow = tuple[Category | None, ...]

MAX_LOOKUP_ROWS = 1_000_000


def _separator(header: str, columns: Sequence[str]) -> str:
    """The separator by which the header has most of the columns; a comma if several do."""

    def num_found(separator: str) -> int:
        return len({name.strip().strip('"') for name in header.strip().split(separator)} & set(columns))

    return max(",;\t|", key=num_found)


def read_text(path: str | os.PathLike[str], advice: str = "Check the path of the schema.") -> str:
    """The content of a public UTF-8 file; `advice` is what to do if there is no such file."""
    try:
        return Path(path).read_bytes().decode("utf-8-sig")
    except FileNotFoundError:
        raise SchemaError(f"There is no file {str(path)!r}. {advice}") from None
    except UnicodeDecodeError:
        raise SchemaError(f"{path} is not UTF-8 text. Save it as UTF-8.") from None
    except (OSError, ValueError) as error:  # ValueError: a path that no file can have
        raise SchemaError(f"Cannot read {str(path)!r}: {getattr(error, 'strerror', None) or error}.") from None


def read_lookup(path: str, columns: Sequence[str], *, folder: Path | None = None) -> tuple[LookupRow, ...]:
    """The rows of a CSV file in the order of these columns, each row once. Values are strings, as in the file.

    The file has a header; other columns are ignored. Its separator is a comma, a semicolon, a tab or a bar. It must be
    public: whoever writes the schema vouches for that.
    """
    place = Path(path) if folder is None else folder / path
    text = read_text(place, "Paths of lookup tables are relative to the folder of the schema.")
    with io.StringIO(text, newline="") as file:
        reader = csv.reader(file, strict=True, delimiter=_separator(file.readline(), columns))
        file.seek(0)
        try:
            rows = [(reader.line_num, row) for row in reader]
        except csv.Error as error:
            raise SchemaError(f"Cannot read the lookup table {str(place)!r}: {error}.") from None
    rows = [(line, row) for line, row in rows if any(cell.strip() for cell in row)]
    if len(rows) < 2:
        raise SchemaError(
            f"The lookup table {place} has no rows. It needs a header with {', '.join(columns)}, then rows."
        )
    if len(rows) > MAX_LOOKUP_ROWS:
        raise SchemaError(f"The lookup table {place} has more than {MAX_LOOKUP_ROWS:,} rows. Use a shorter one.")
    header = [name.strip() for name in rows[0][1]]
    for name in columns:
        if header.count(name) != 1:
            raise SchemaError(
                f"The lookup table {place} needs one column {name!r}; its header has {format_list(header)}."
                f"{did_you_mean(name, header)}",
                column=name,
            )
    at = [header.index(name) for name in columns]
    for line, row in rows[1:]:
        if len(row) != len(header):
            raise SchemaError(f"Line {line} of the lookup table {place} has {len(row)} values, expected {len(header)}.")
    return tuple(dict.fromkeys(tuple(row[index].strip() for index in at) for _, row in rows[1:]))


def check_keys(entry: Mapping[str, object], known: Sequence[str], where: str, *, column: str | None = None) -> None:
    """Raises for the first key of a section that is not known."""
    for key in entry:
        if key not in known:
            raise SchemaError(
                f"{where} has the unknown key {key!r}.{did_you_mean(key, known)} The keys are {', '.join(known)}.",
                column=column,
                key=key,
            )


def check_names(names: object, key: str, *, at_least: int = 1) -> tuple[str, ...]:
    listed = tuple(names) if isinstance(names, list | tuple) else None
    if listed is None or len(listed) < at_least or not all(isinstance(name, str) and name for name in listed):
        what = "a list of columns" if at_least == 1 else f"a list of at least {at_least} columns"
        raise SchemaError(f'{key} must be {what}, as in {key} = ["a", "b"]; found {format_value(names)}.', key=key)
    if twice := [name for name in listed if listed.count(name) > 1]:
        raise SchemaError(f"{key} names column {twice[0]!r} twice. Remove one.", column=twice[0], key=key)
    return listed


def check_rows(
    rows: object, key: str, columns: Sequence[str], *, nulls_from: int | None = None
) -> tuple[LookupRow, ...]:
    """Rows of a list or of the file at a path, as tuples of Python values.

    From column `nulls_from` on, an empty string is a null.
    """
    if isinstance(rows, str):
        rows = read_lookup(rows, columns)
    if not isinstance(rows, list | tuple) or not rows:
        raise SchemaError(
            f"{key} must be a list of rows, each with values of {', '.join(columns)}, or the path of a CSV file; found "
            f"{format_value(rows) if not isinstance(rows, list | tuple) else 'an empty list'}.",
            key=key,
        )
    checked = []
    for row in rows:
        if not isinstance(row, list | tuple) or len(row) != len(columns):
            raise SchemaError(
                f"{key}: each row must have {len(columns)} values ({', '.join(columns)}), found {format_value(row)}.",
                key=key,
            )
        values: list[Category | None] = []
        for at, value in enumerate(map(to_python, row)):
            nullable = nulls_from is not None and at >= nulls_from
            if nullable and (value is None or (isinstance(value, str) and not value)):
                values.append(None)
                continue
            if not isinstance(value, str | int | float | bool) or (
                isinstance(value, float) and not math.isfinite(value)
            ):
                raise SchemaError(
                    f"{key}: expected strings, numbers or booleans, found {format_value(value)} for {columns[at]!r}.",
                    key=key,
                )
            if isinstance(value, str):
                check_text(value, f"{key}: a value of {columns[at]!r}")
            values.append(value)
        checked.append(tuple(values))
    return tuple(checked)


def check_condition_text(condition: object, key: str) -> None:
    if not isinstance(condition, str) or not condition.strip():
        raise SchemaError(
            f'{key} must be an SQL condition, as in {key} = "age >= 18", found {format_value(condition)}.', key=key
        )
    check_text(condition, key)
