"""Lookup tables of rules: public lists of combinations, read from CSV files."""

import csv
from collections.abc import Sequence
from pathlib import Path

from understudy.errors import SchemaError, did_you_mean
from understudy.schema.values import Category, format_list

LookupRow = tuple[Category | None, ...]

MAX_LOOKUP_ROWS = 1_000_000


def _separator(header: str, columns: Sequence[str]) -> str:
    """The separator by which the header has most of the columns; a comma if several do."""

    def num_found(separator: str) -> int:
        return len({name.strip().strip('"') for name in header.strip().split(separator)} & set(columns))

    return max(",;\t|", key=num_found)


def read_lookup(path: str, columns: Sequence[str], *, folder: Path | None = None) -> tuple[LookupRow, ...]:
    """The rows of a CSV file in the order of these columns, each row once. Values are texts, as in the file.

    The file has a header; other columns are ignored. Its separator is a comma, a semicolon, a tab or a bar. It must be
    public: whoever writes the schema vouches for that.
    """
    place = Path(path) if folder is None else folder / path
    try:
        with open(place, newline="", encoding="utf-8-sig") as file:
            reader = csv.reader(file, strict=True, delimiter=_separator(file.readline(), columns))
            file.seek(0)
            rows = [(reader.line_num, row) for row in reader]
    except FileNotFoundError:
        raise SchemaError(
            f"There is no file {str(place)!r}. Paths of lookup tables are relative to the folder of the schema."
        ) from None
    except UnicodeDecodeError:
        raise SchemaError(f"{place} is not UTF-8 text. Save the lookup table as UTF-8.") from None
    except OSError as error:
        raise SchemaError(f"Cannot read the lookup table {place}: {error.strerror}.") from None
    except (csv.Error, ValueError) as error:  # ValueError: a path that no file can have
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
