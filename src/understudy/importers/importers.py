"""Imports code books and schemas of other tools: dictionaries, synthesizers and SQL.

Each reader carries over what its format declares and lists what it cannot; what is not declared is estimated privately.
Ranges and lists that a tool may have found in the data are not declared, unless the caller vouches for them. Whoever
imports a file vouches that the rest of it is public.
"""

import json
import math
import os
from collections.abc import Callable, Mapping
from typing import NamedTuple

from understudy._version import install_advice
from understudy.errors import SchemaError, did_you_mean
from understudy.importers.ddi import is_ddi, read_ddi
from understudy.importers.ddl import is_ddl, read_ddl
from understudy.importers.draft import (
    NO_COUNTERPART,
    Draft,
    Entry,
    ImportedSchema,
    entries,
    entry_list,
    of_column,
    unknown_type,
)
from understudy.importers.frictionless import is_frictionless, read_frictionless
from understudy.importers.redcap import is_redcap, read_redcap
from understudy.importers.sdv import is_mostly, is_sdv, read_mostly, read_sdv
from understudy.rules.keys import read_text
from understudy.rules.values import Bound, Category, format_list
from understudy.schema.column import Column
from understudy.schema.schema import SchemaSource, as_schema


def import_schema(
    path: str | os.PathLike[str],
    format: str | None = None,
    *,
    schema: SchemaSource | None = None,
    lookups: Mapping[str, str] | None = None,
    table: str | None = None,
    trust_ranges: bool = False,
) -> ImportedSchema:
    """Reads a code book or a schema of another tool, and lists what could not be carried over.

    The default format is detected from the content. With `schema` only the rules are taken from the file and added to
    that schema. `lookups` are CSV files of the tables that foreign keys of an SQL table refer to, by name. `table` is
    the one to import of several tables in the file. Ranges and lists of values that a tool may have found in the data
    are left out, so that they are estimated privately; `trust_ranges` declares them.
    """
    if format is not None and format not in FORMATS:
        raise SchemaError(
            f"There is no schema format {format!r}.{did_you_mean(format, FORMATS)} The formats are {_known_formats()}."
        )
    text = read_text(path)
    content = text if format is not None and FORMATS[format].content is str else _parse(text, str(path))
    chosen = format or _detect_format(content, str(path))
    try:
        if not isinstance(content, FORMATS[chosen].content):
            raise SchemaError("It is neither JSON nor YAML. Check the path and the format.")
        if lookups and chosen != "sql":
            raise SchemaError("Lookup tables are only for foreign keys of SQL tables. Leave them out.")
        base = None if schema is None else as_schema(schema)
        draft = Draft(base, lookups, table=table, trust_ranges=trust_ranges)
        FORMATS[chosen].read(content, draft)
        return draft.finish()
    except SchemaError as error:
        raise error.in_file(f"{path}, read as {chosen}") from None
    except RecursionError:
        raise SchemaError(_TOO_DEEP.format(path)) from None


# SmartNoise: {"": {"schema": {"people": {"rows": 1000, "age": {"type": "int", "lower": 0, "upper": 120}}}}}

_SMARTNOISE_KINDS = {
    "int": "integer",
    "float": "real",
    "string": "categorical",
    "boolean": "boolean",
    "datetime": "datetime",
}


def _smartnoise_tables(content: Entry, depth: int = 3) -> dict[str, Entry]:
    """The tables in nested sections: a table has sections with a `type` that SmartNoise knows."""
    sections = entries(content)
    if any(_smartnoise_kind(entry) is not None for entry in sections.values()):
        return {"": content}
    tables: dict[str, Entry] = {}
    if depth > 0:
        for name, section in sections.items():
            for inner, table in _smartnoise_tables(section, depth - 1).items():
                tables[f"{name}.{inner}".strip(".")] = table
    return tables


def _smartnoise_kind(entry: Entry) -> str | None:
    return _SMARTNOISE_KINDS.get(str(entry.get("type")).lower())


def _read_smartnoise(content: Entry, draft: Draft) -> None:
    tables = _smartnoise_tables(content)
    table = next(iter(tables.values())) if list(tables) == [""] else tables[draft.choose_table(tables)]
    columns = {name: entry for name, entry in entries(table).items() if "type" in entry or "private_id" in entry}
    private = [name for name, entry in columns.items() if entry.get("private_id") is True]
    if len(private) > 1:
        raise SchemaError(f"It has {len(private)} columns with private_id, expected one. Keep one.", column=private[1])
    unit = private[0] if private and table.get("row_privacy") is not True else None
    max_rows = table.get("max_ids", table.get("max_contrib", 1))
    for name, entry in columns.items():
        if entry.get("type") == "unknown" and entry.get("private_id") is not True:
            draft.leave_unmodelled(name, "SmartNoise does not know its type")
            continue
        draft.declare(_smartnoise_column(name, entry))
        for key in ("cardinality", "missing_value"):
            if key in entry:
                draft.leave_out(of_column(key, name), NO_COUNTERPART)
    draft.table_keys |= {"rows": _count(table.get("rows")), "unit": unit}
    draft.table_keys["max_rows_per_unit"] = (_count(max_rows) or 1) if unit is not None else 1


def _smartnoise_column(name: str, entry: Entry) -> Column:
    if entry.get("private_id") is True:
        return Column(name=name, kind="id")
    kind = _smartnoise_kind(entry)
    if kind is None:
        raise unknown_type(name, entry.get("type"), (*_SMARTNOISE_KINDS, "unknown"))
    bounds = _bounds(entry.get("lower"), entry.get("upper")) if kind in ("integer", "real", "datetime") else None
    return Column(name=name, kind=kind, nullable=entry.get("nullable") is not False, bounds=bounds)


# dpsynth: {"age": {"min_value": 0, "max_value": 120, "dtype": "int"}, "sex": {"possible_values": ["F", "M"]}}

_DPSYNTH_CLASSES = {
    "CategoricalAttribute": "possible_values",
    "NumericalAttribute": "min_value",
    "OpenSetCategoricalAttribute": "default_value",
    "FreeFormTextAttribute": "max_tokens",
}


def _is_dpsynth(content: Entry) -> bool:
    return any(map(_dpsynth_class, _dpsynth_attributes(content).values()))


def _dpsynth_attributes(content: Entry) -> dict[str, Entry]:
    """The attributes, which some versions put in a section of that name, next to constraints."""
    inner = entries(content.get("attributes"))
    return inner if any(map(_dpsynth_class, inner.values())) else entries(content)


def _dpsynth_class(entry: Entry) -> str | None:
    """The class of an attribute, given as `type` or implied by a key that only that class has."""
    if entry.get("type") in _DPSYNTH_CLASSES:
        return str(entry["type"])
    return next((name for name, key in _DPSYNTH_CLASSES.items() if key in entry), None)


def _read_dpsynth(content: Entry, draft: Draft) -> None:
    for name, entry in _dpsynth_attributes(content).items():
        draft.declare(_dpsynth_column(name, entry))
    for constraint in entry_list(content.get("constraints")):
        names = constraint.get("attribute_names")
        columns = list(names) if isinstance(names, list | tuple) else []
        what = f"dpsynth constraint ({format_list(columns)})"
        dependency = constraint.get("functional_dependency")
        if isinstance(dependency, Mapping):
            pairs = [[key, value] for key, value in dependency.items()]
            draft.rule({"determines": columns[:1], "gives": columns[1:], "table": pairs}, what)
            continue
        key = "allowed" if constraint.get("possible_combinations") is not None else "forbidden"
        listed = constraint.get(f"{'' if key == 'allowed' else 'im'}possible_combinations")
        rows = [list(row) for row in listed if isinstance(row, list | tuple)] if isinstance(listed, list) else []
        draft.rule({"combinations": columns, key: rows}, what)


def _dpsynth_column(name: str, entry: Entry) -> Column:
    match _dpsynth_class(entry):
        case "CategoricalAttribute":
            return _dpsynth_categorical(name, entry)
        case "NumericalAttribute":
            kind = "integer" if entry.get("dtype") == "int" else "real"
            # In dpsynth a null becomes the lower bound if values are clipped, else a category of its own.
            nullable = entry.get("clip_to_range", True) is False
            bounds = _bounds(entry.get("min_value"), entry.get("max_value"))
            return Column(name=name, kind=kind, nullable=nullable, bounds=bounds)
        case "FreeFormTextAttribute":
            return Column(name=name, kind="text")
        case None if "type" in entry:
            raise unknown_type(name, entry["type"], tuple(_DPSYNTH_CLASSES))
        case _:
            return Column(name=name, kind="categorical")


def _dpsynth_categorical(name: str, entry: Entry) -> Column:
    """In dpsynth a null becomes the out-of-domain category, unless null is itself in the list."""
    listed = entry.get("possible_values")
    if not isinstance(listed, list):
        raise SchemaError(f"Column {name!r}: possible_values must be a list.", column=name, key="possible_values")
    index = entry.get("out_of_domain_index", 0)
    if not isinstance(index, int) or not 0 <= index < max(len(listed), 1):
        raise SchemaError(
            f"Column {name!r}: out_of_domain_index must be an index into possible_values.",
            column=name,
            key="out_of_domain_index",
        )
    nullable = any(value is None for value in listed)
    categories: tuple[Category, ...] = tuple(value for value in listed if value is not None)
    if len(categories) == 2 and all(isinstance(value, bool) for value in categories):
        return Column(name=name, kind="boolean", nullable=nullable)
    unknown = listed[index] if listed else None
    closed = unknown is None  # undeclared values become null, which is in the list
    return Column(
        name=name, kind="categorical", nullable=nullable, categories=categories, unknown=unknown, closed=closed
    )


# mbi: {"age": 85, "sex": 2}, the number of codes of each column; or {"attributes": [...], "shape": [...]}


def _is_mbi(content: Entry) -> bool:
    return bool(content) and all(_count(size) is not None for size in _mbi_sizes(content).values())


def _mbi_sizes(content: Entry) -> dict[str, object]:
    attributes, shape = content.get("attributes"), content.get("shape")
    if isinstance(attributes, list) and isinstance(shape, list) and len(attributes) == len(shape):
        return dict(zip(map(str, attributes), shape, strict=True))
    return dict(content)


_MAX_CODES = 1_000_000


def _read_mbi(content: Entry, draft: Draft) -> None:
    for name, size in _mbi_sizes(content).items():
        num_codes = _count(size)
        if num_codes is None:
            raise SchemaError(f"Column {name!r}: the number of codes must be an integer of at least 1.", column=name)
        if num_codes > _MAX_CODES:
            raise SchemaError(f"Column {name!r} has more than {_MAX_CODES:,} codes: too many to list.", column=name)
        codes = tuple(range(num_codes))  # all of them, by the meaning of a domain
        draft.declare(Column(name=name, kind="categorical", nullable=False, categories=codes, closed=True))


# Detecting and parsing


Content = str | dict[str, object]
"""A file: the text of an SQL script, a CSV or an XML file, or the mapping in JSON or YAML."""


class _Format(NamedTuple):
    """How a format is named, detected and read. `content` is dict for JSON and YAML, else str."""

    title: str
    content: type[str] | type[dict[str, object]]
    detect: Callable[..., bool]
    read: Callable[..., None]


FORMATS = {
    "frictionless": _Format("Frictionless Table Schema or Data Package", dict, is_frictionless, read_frictionless),
    "redcap": _Format("REDCap data dictionary CSV", str, is_redcap, read_redcap),
    "ddi": _Format("DDI-Codebook XML", str, is_ddi, read_ddi),
    "sdv": _Format("SDV metadata or constraints JSON", dict, is_sdv, read_sdv),
    "mostly": _Format("MOSTLY AI generator JSON", dict, is_mostly, read_mostly),
    "smartnoise": _Format("SmartNoise YAML", dict, lambda content: bool(_smartnoise_tables(content)), _read_smartnoise),
    "dpsynth": _Format("dpsynth domain YAML", dict, _is_dpsynth, _read_dpsynth),
    "mbi": _Format("mbi domain JSON", dict, _is_mbi, _read_mbi),
    "sql": _Format("SQL CREATE TABLE", str, is_ddl, read_ddl),
}
"""The formats that `import_schema` reads, in the order in which they are tried."""

_TOO_DEEP = "{} is nested too deeply to describe a table. Check that it is the right file."


def _known_formats() -> str:
    return ", ".join(f"{name} ({each.title})" for name, each in FORMATS.items())


def _detect_format(content: Content, source: str) -> str:
    for name, each in FORMATS.items():
        if isinstance(content, each.content) and each.detect(content):
            return name
    raise SchemaError(f"{source} is not in a known schema format. The formats are {_known_formats()}.")


def _parse(text: str, source: str) -> Content:
    """The mapping in a JSON or YAML file, a list of constraints under "constraints"; or other text as it is."""
    if source.endswith(".toml"):
        raise SchemaError(f"{source} is TOML, which needs no import. Use it as the schema directly.")
    if source.lower().endswith((".sql", ".xml", ".csv")) or is_redcap(text) or text.lstrip()[:1] == "<":
        return text
    try:
        content = json.loads(text)
    except RecursionError:
        raise SchemaError(_TOO_DEEP.format(source)) from None
    except ValueError as error:
        if source.endswith(".json"):
            raise SchemaError(f"{source} is not valid JSON: {error}. Correct that line.") from None
        if is_ddl(text):
            return text
        content = _parse_yaml(text, source)
    if isinstance(content, list) and content and all(isinstance(entry, dict) for entry in content):
        content = {"constraints": content}
    if not isinstance(content, dict):
        raise SchemaError(f"{source} does not describe columns. The formats are {_known_formats()}.")
    return {str(key): value for key, value in content.items()}


def _parse_yaml(text: str, source: str) -> object:
    try:
        import yaml
    except ImportError:
        raise SchemaError(f"{source} is not JSON, and reading YAML needs PyYAML: {install_advice('yaml')}.") from None
    try:
        content = yaml.safe_load(text)
        if _size(content, {}) > _MAX_NODES:
            raise SchemaError(f"{source} has aliases that expand to too many values. Write them out.")
        return content
    except RecursionError:
        raise SchemaError(_TOO_DEEP.format(source)) from None
    except (yaml.YAMLError, ValueError, TypeError, AttributeError, OverflowError) as error:  # such as a 13th month
        mark = getattr(error, "problem_mark", None)
        where = f" (at line {mark.line + 1})" if mark is not None else ""
        reason = getattr(error, "problem", None) or "it cannot be read"
        raise SchemaError(f"{source} is neither JSON nor valid YAML: {reason}{where}. Correct that line.") from None


_MAX_NODES = 10_000_000
"""The most values in a YAML file whose aliases are written out."""


def _size(content: object, known: dict[int, int]) -> int:
    """The number of values with all aliases written out; one that contains itself counts as too many."""
    if not isinstance(content, dict | list):
        return 1
    if id(content) not in known:
        known[id(content)] = _MAX_NODES + 1
        inner = [*content, *content.values()] if isinstance(content, dict) else content
        known[id(content)] = 1 + sum(_size(each, known) for each in inner)
    return known[id(content)]


def _count(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 1 else None


def _bounds(lower: object, upper: object) -> tuple[Bound, Bound] | None:
    """Both bounds, or None if one is missing or infinite."""
    for bound in (lower, upper):
        if bound is None or (isinstance(bound, float) and not math.isfinite(bound)):
            return None
    return lower, upper  # type: ignore[return-value]  # checked by `Column`
