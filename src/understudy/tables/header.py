"""The first line of a text file or sheet: names of columns, or a row? No message repeats what it holds."""

import re
from collections.abc import Sequence

from understudy.errors import TableError, did_you_mean
from understudy.tables.path import require_names
from understudy.tables.text_types import looks_like_date

_NUMBER = re.compile(r"[<>≤≥~±]?\s*[+-]?(?:[0-9][0-9.,'’\s]*|[.,][0-9]+)(?:[eE][+-]?[0-9]+)?\s*[%€$£]?")
_TIME = re.compile(r"[0-9]{1,2}:[0-9]{2}(?::[0-9]{2}(?:\.[0-9]+)?)?")
_MANY_DIGITS = re.compile(r"[0-9]{5}")
_NEVER_NAMES = ("true", "false", "nan", "nat", "null", "n/a", "#n/a", "<na>", "?", "-", "--", ".", "..")

_ADVICE = "If the file has no header, give --no-header (header=False)"


def check_header(
    names: Sequence[str], where: str, *, declared: Sequence[str] | None = None, is_header: bool | None = None
) -> None:
    """Raises unless the first line can be one of column names.

    With `declared` names each of its fields must be one of them. Without, it is judged alone, never by other lines,
    and refused if a field looks like a value. `is_header` says that it holds names: then they need only be different.
    """
    require_names(names, where, advice=f" {_ADVICE}.")
    if is_header:
        return
    if declared is not None:
        _require_declared(names, declared, where)
        return
    for position, name in enumerate(names, start=1):
        what = looks_like_value(name)
        if what is not None:
            raise TableError(
                f"{where}: the first line looks like values, not like column names (field {position} looks like"
                f" {what}). {_ADVICE}; if it holds names, give --header (header=True)."
            )


def looks_like_value(field: str) -> str | None:
    """What the field of a first line looks like if it does not look like a name; None: it may be a name."""
    field = field.strip()
    if looks_like_date(field) or _TIME.fullmatch(field):
        return "a date" if ":" not in field else "a time"
    if _NUMBER.fullmatch(field):
        return "a number"
    if field.lower() in _NEVER_NAMES:
        return "a value"
    if "@" in field:
        return "an address"
    return "an identifier" if _MANY_DIGITS.search(field) else None


def _require_declared(names: Sequence[str], declared: Sequence[str], where: str) -> None:
    unknown = [position for position, name in enumerate(names, start=1) if name not in declared]
    if not unknown:
        return
    absent = [name for name in declared if name not in names]
    hint = did_you_mean(names[unknown[0] - 1], absent)
    lacks = f" It lacks {', '.join(map(repr, absent[:5]))}{' and others' * (len(absent) > 5)}." if absent else ""
    raise TableError(
        f"{where}: the first line does not hold the column names of the schema: field {unknown[0]} is none of them."
        f"{hint}{lacks} {_ADVICE}; else correct the line, or declare all its names in the schema (drop = true leaves a"
        " column out).",
        column=absent[0] if absent else None,
        line=1,
    )


def names_without_header(num_fields: int, declared: Sequence[str] | None, where: str) -> list[str]:
    """The names of columns without a header: the declared ones in order, else column_1, column_2, ..."""
    if declared is None:
        return [f"column_{position}" for position in range(1, num_fields + 1)]
    if len(declared) != num_fields:
        raise TableError(
            f"{where} has {num_fields} fields in its first line, but the schema declares {len(declared)} columns."
            " Without a header they are matched in order: declare each column of the file, in its order. If its fields"
            " are separated otherwise, give --separator (separator=...)."
        )
    return list(declared)
