"""Schema files: TOML read into columns, and a schema written as commented TOML."""

import dataclasses
import os
import textwrap
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path

from understudy.errors import ConfigError, SchemaError
from understudy.rules.keys import check_keys
from understudy.rules.rules import Rule, format_rule, rule_from_dict
from understudy.rules.values import to_toml, to_toml_key
from understudy.schema.column import KINDS, Column
from understudy.schema.locations import LOCATION_KEYS, Location, read_location

NEEDS_UNIT = (
    "[table] max_rows_per_unit needs unit, the column that identifies the privacy unit. Add unit, or remove"
    " max_rows_per_unit."
)


# Reading


def parse_toml(text: str, source: str) -> Mapping[str, object]:
    """The content of TOML text; `source` names the file in messages."""
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise SchemaError(
            f"{source} is not valid TOML: {str(error).rstrip('.')}. Correct that line. If this is a table, draft a "
            "schema for it first ('understudy schema draft')."
        ) from None
    except RecursionError:
        raise SchemaError(f"{source} is nested too deeply to be a schema. Check that it is the right file.") from None


def read_settings(path: str | os.PathLike[str]) -> dict[str, object]:
    """The content of a TOML file that is no schema; raises `ConfigError` if it cannot be read."""
    try:
        return tomllib.loads(Path(path).read_bytes().decode("utf-8-sig"))
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror}. Check the path.") from None
    except RecursionError:
        raise ConfigError(f"{path} is nested too deeply. Check that it is the right file.") from None
    except (UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise ConfigError(f"{path} is not valid TOML: {str(error).rstrip('.')}. Correct it.") from None


def names_files(content: Mapping[str, object]) -> bool:
    """Whether the content of a schema file refers to other files: to lookup tables of rules, to regions, or to nodes.

    What others wrote must not open files of whoever reads it. Such schemas have the content of files, and name none.
    """
    return bool(_named_files(content))


def _named_files(content: Mapping[str, object]) -> list[str]:
    entries: list[object] = [content.get("nodes")]
    for part in (content.get("columns"), content.get("rules")):
        entries += part.values() if isinstance(part, dict) else part if isinstance(part, list) else ()
    keys = ("allowed", "forbidden", "table", "region", "mask", "sites", "regions", "file")
    values = [entry.get(key) for entry in entries if isinstance(entry, dict) for key in keys]
    return [value for value in values if isinstance(value, str)]


def without_content(error: SchemaError, content: Mapping[str, object], folder: Path | None) -> SchemaError:
    """The error about a schema file, or one without details if it could quote a file outside the folder of the schema.

    Whoever writes a schema chooses the files that it names, and whoever reads it may be able to read more of them.
    """
    base = Path(folder or ".").resolve()
    for name in _named_files(content):
        try:
            is_below = (base / name).resolve().is_relative_to(base)
        except (OSError, ValueError):  # no file can have such a path
            continue
        if not is_below:
            return SchemaError(
                f"it names the file {name!r}, which is not below the folder of the schema, and cannot be read as it "
                "is. The reason is not shown, since it could quote that file. Copy the file there to see it.",
                column=error.column,
                key=error.key,
            )
    return error


def read_sections(
    content: Mapping[str, object], folder: Path | None = None
) -> tuple[Mapping[str, object], tuple[Column | Location, ...], tuple[Rule, ...]]:
    """The keys of [table], the columns, and the rules. Paths of lookup tables and regions are relative to `folder`."""
    check_keys(content, ("table", "columns", "rules"), "The file")
    table, columns = content.get("table", {}), content.get("columns", {})
    if not isinstance(table, dict) or not isinstance(columns, dict):
        raise SchemaError("table and columns must be sections, written as [table] and [columns.NAME].")
    if "max_rows_per_unit" in table and "unit" not in table:
        raise SchemaError(NEEDS_UNIT, key="max_rows_per_unit")
    read = tuple(read_column(name, entry, folder) for name, entry in columns.items())
    return table, read, read_rules(content.get("rules", []), folder)


def read_rules(entries: object, folder: Path | None = None) -> tuple[Rule, ...]:
    """The rules of the [[rules]] sections."""
    if not isinstance(entries, list):
        raise SchemaError("rules must be a list: sections with two brackets, [[rules]] before the lines of each rule.")
    return tuple(rule_from_dict(entry, number=at, folder=folder) for at, entry in enumerate(entries, start=1))


def read_column(name: object, entry: object, folder: Path | None = None) -> Column | Location:
    """A column from the keys of its section, which are the fields of `Column`; or a location."""
    if not isinstance(name, str) or not isinstance(entry, dict):
        raise SchemaError(
            f'Column {name!r} must be a section: [columns.{name}] with a line such as kind = "integer".',
            column=str(name),
        )
    if entry.get("kind") == "location":
        return read_location(name, entry, folder)
    if entry.get("kind", KINDS[0]) not in KINDS:
        return Column(name=name, kind=entry["kind"])  # raises: before its keys, which may be those of a location
    if (of_location := next((key for key in entry if key in LOCATION_KEYS), None)) is not None:
        raise SchemaError(
            f"[columns.{to_toml_key(name)}] has the key {of_location!r}, which is for locations. Set "
            'kind = "location", or remove it.',
            column=name,
            key=of_location,
        )
    known = tuple(field.name for field in dataclasses.fields(Column) if field.name != "name")
    check_keys(entry, known, f"[columns.{to_toml_key(name)}]", column=name)
    if "kind" not in entry and entry.get("drop") is True:
        return Column(name=name, **{"kind": "text", **entry})  # the kind of a dropped column does not matter
    if "kind" not in entry:
        raise SchemaError(
            f"Column {name!r} has no kind. Add kind = one of {', '.join(KINDS)}.", column=name, key="kind"
        )
    return Column(name=name, **entry)


# Writing


_HEADER = """\
# What is public about this table.
# Column names and kinds are public. Every other line below is DECLARED public: a person vouches for it.
# What is absent (shown as a comment where it matters) is ESTIMATED PRIVATELY with part of the privacy budget.
# For any column: nullable = false (no category for nulls), drop = true (leave it out);
# missing = ["unknown", 99] (words and numbers that are read as null);
# for a categorical one: unknown = "..." (the category that undeclared values become; absent: "other", which is added),
# closed = true (the list is complete, so there is no "other").
# How text files write a real column: decimals = 2 (digits after the decimal point; absent: as many as needed);
# a date or datetime: format = "%d.%m.%Y"; a boolean: format = "no/yes" (absent: "false/true").
# Numbers with a meaning of their own: special = [0, 999].
# A list in order: ordinal = true. Hours or angles: cyclic = true, with bounds. Where the hour of a datetime matters:
# parts = ["hour", "weekday"], with bounds; resolution = "minute" cuts its values.
# Points in a public region: kind = "location".
# What every synthetic row satisfies: [[rules]] at the end of the file, each with a line like keep = "end >= start"."""

_COMMENT_COLUMN = 40
_NOT_DECLARED = "absent: estimated privately with part of the budget"


def format_schema(
    columns: Sequence[Column | Location],
    table: Mapping[str, object],
    found: Mapping[str, str],
    rules: Sequence[Rule] = (),
) -> str:
    """TOML whose comments say what is declared public and what will be estimated privately.

    `table` has the other fields of a schema; `found` comments for columns by name.
    """
    lines = ["[table]"]
    if table["drafted"]:
        lines.append(_line("drafted", True, "kinds were drafted from the file: confirm them, then delete this line"))
    for key, comment in _TITLES.items():
        if table[key] is not None:
            lines.append(_line(key, table[key], comment))
    lines.append(_line("rows", table["rows"], "declared public", "10000", "absent: a noisy count is used"))
    lines.append(_line("unit", table["unit"], "the privacy unit", '"..."', "absent: each row is a privacy unit"))
    if table["unit"] is not None:
        limit = table["max_rows_per_unit"]
        lines.append(_line("max_rows_per_unit", limit, "at most this many rows of each unit are used"))
    favoured = "absent: all columns matter equally"
    lines.append(_line("target", table["target"], "the column that matters most", '"..."', favoured))
    if table["positive"] is not None:
        lines.append(_line("positive", table["positive"], "the positive class of the target"))
    sections = [
        column.to_toml() if isinstance(column, Location) else _format_column(column, found.get(column.name))
        for column in columns
    ]
    return "\n\n".join([_HEADER, "\n".join(lines), *sections, *map(format_rule, rules)]) + "\n"


_TITLES = {
    "name": "the name of the data set, for the certificate",
    "responsible": "who is responsible for the release, for the certificate",
    "contact": "whom to ask, for the certificate",
}
_COMMENTS = {
    "drop": "left out of the synthetic table",
    "per_unit": "one value for all rows of a synthetic unit",
    "nullable": "declared public: no category for nulls",
    "format": "how text files write it",
    "decimals": "digits after the decimal point in text files",
    "bounds": "declared public",
    "special": "declared public: values with a code of their own",
    "cyclic": "declared public: the upper bound is followed by the lower one",
    "parts": "modelled as columns of their own",
    "resolution": "declared public: values are cut to it",
    "categories": "declared public",
    "ordinal": "declared public: the categories are listed in their order",
    "unknown": "what undeclared values become",
    "closed": 'declared public: the list is complete, there is no "other"',
    "missing": "read as null",
}
_EXAMPLES = {"bounds": "[lower, upper]", "categories": '["...", "..."]'}


def _format_column(column: Column, found: str | None) -> str:
    never = {"text": "text is never modelled", "id": "identifiers are never modelled"}.get(column.kind, "")
    lines = [f"[columns.{to_toml_key(column.name)}]", _line("kind", column.kind, never)]
    comments = _COMMENTS | ({"format": "how text files write false and true"} if column.kind == "boolean" else {})
    defaults = {field.name: field.default for field in dataclasses.fields(Column)}
    for key, comment in comments.items():
        if getattr(column, key) != defaults[key]:
            lines.append(_line(key, getattr(column, key), comment))
        elif column.estimated == key:
            lines.append(_line(key, None, "", _EXAMPLES[key], _NOT_DECLARED))
    if found is not None:
        lines += textwrap.wrap(found, 120, initial_indent="# ", subsequent_indent="# ", break_on_hyphens=False)
    return "\n".join(lines)


def _line(key: str, value: object, comment: str, example: str = "", absent: str = "") -> str:
    """One line of TOML with its comment; without a value the whole line is a comment."""
    if value is None:
        return f"{f'# {key} = {example}':<{_COMMENT_COLUMN}}# {absent}"
    text = f"{key} = {to_toml(value)}"
    if len(text) > 118 and isinstance(value, tuple):
        return f"{f'{key} = [':<{_COMMENT_COLUMN}}# {comment}\n{_wrap_values(value)}\n]"
    return f"{text:<{_COMMENT_COLUMN - 1}} # {comment}" if comment else text


def _wrap_values(values: Sequence[object]) -> str:
    """A long list over as few lines as fit the page."""
    lines = ["   "]
    for value in map(to_toml, values):
        if len(lines[-1]) > 4 and len(lines[-1]) + len(value) > 116:
            lines.append("   ")
        lines[-1] += f" {value},"
    return "\n".join(lines)
