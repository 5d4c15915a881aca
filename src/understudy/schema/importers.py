"""Importers of schemas of other tools: SDV metadata, SmartNoise, dpsynth and mbi domains.

Each reader takes over what its format declares; the rest is estimated privately. Whoever imports a file vouches that
it is public: a category list or a bound that was computed from the data is not.
"""

import json
import math
import os
import re
from collections.abc import Callable, Mapping
from typing import NamedTuple

from understudy.errors import SchemaError, did_you_mean
from understudy.schema.column import Column
from understudy.schema.schema import Schema
from understudy.schema.toml import read_text
from understudy.schema.values import Bound, Category

Entry = Mapping[str, object]


def import_schema(path: str | os.PathLike[str], format: str | None = None) -> Schema:
    """Reads a schema of another tool; without a named format, it is detected from the content."""
    if format is not None and format not in FORMATS:
        raise SchemaError(
            f"There is no schema format {format!r}.{did_you_mean(format, FORMATS)} The formats are {_known_formats()}."
        )
    content = _parse(read_text(path), str(path))
    chosen = format or _detect_format(content, str(path))
    try:
        return FORMATS[chosen].read(content)
    except SchemaError as error:
        raise error.in_file(f"{path}, read as {chosen}") from None


# SDV: {"columns": {"age": {"sdtype": "numerical"}}}, or {"tables": {"people": {"columns": ...}}}


def _is_sdv(content: Entry) -> bool:
    tables = [content, *_entries(content.get("tables")).values()]
    return any("sdtype" in entry for table in tables for entry in _entries(table.get("columns")).values())


def _read_sdv(content: Entry) -> Schema:
    if "tables" in content:
        tables = _entries(content["tables"])
        if len(tables) != 1:
            raise SchemaError(
                f"It describes {len(tables)} tables, expected one: linked tables are not supported. Keep the one you"
                " need, or join them first."
            )
        (content,) = tables.values()
    columns = _entries(content.get("columns"))
    keys = _names(content.get("primary_key")) | _names(content.get("sequence_key"))
    return Schema(columns=tuple(_sdv_column(name, entry, is_key=name in keys) for name, entry in columns.items()))


def _sdv_column(name: str, entry: Entry, *, is_key: bool) -> Column:
    sdtype = entry.get("sdtype")
    if is_key or sdtype == "id":
        return Column(name=name, kind="id")
    if sdtype == "datetime":
        text_format = entry.get("datetime_format")
        text_format = text_format if isinstance(text_format, str) and text_format else None
        has_time = text_format is None or re.search(r"%-?[HIklMSfpcXTRrsz]", text_format)
        return Column(name=name, kind="datetime" if has_time else "date", format=text_format)
    if sdtype == "numerical":
        is_integer = "int" in str(entry.get("computer_representation", "Float")).lower()
        return Column(name=name, kind="integer" if is_integer else "real")
    if sdtype in ("categorical", "boolean"):
        return Column(name=name, kind=str(sdtype))
    return Column(name=name, kind="text")  # e-mail addresses, names, phone numbers and so on


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
    sections = _entries(content)
    if any(_smartnoise_kind(entry) is not None for entry in sections.values()):
        return {"": content}
    found: dict[str, Entry] = {}
    if depth > 0:
        for name, section in sections.items():
            for inner, table in _smartnoise_tables(section, depth - 1).items():
                found[f"{name}.{inner}".strip(".")] = table
    return found


def _smartnoise_kind(entry: Entry) -> str | None:
    return _SMARTNOISE_KINDS.get(str(entry.get("type")).lower())


def _read_smartnoise(content: Entry) -> Schema:
    tables = _smartnoise_tables(content)
    if len(tables) != 1:
        raise SchemaError(
            f"It describes {len(tables)} tables ({', '.join(tables)}), expected one. Keep the one you need."
        )
    table = next(iter(tables.values()))
    entries = {name: entry for name, entry in _entries(table).items() if "type" in entry or "private_id" in entry}
    private = [name for name, entry in entries.items() if entry.get("private_id") is True]
    if len(private) > 1:
        raise SchemaError(f"It has {len(private)} columns with private_id, expected one. Keep one.", column=private[1])
    unit = private[0] if private and table.get("row_privacy") is not True else None
    most = table.get("max_ids", table.get("max_contrib", 1))
    return Schema(
        columns=tuple(_smartnoise_column(name, entry) for name, entry in entries.items()),
        rows=_count(table.get("rows")),
        unit=unit,
        max_rows_per_unit=(_count(most) or 1) if unit is not None else 1,
    )


def _smartnoise_column(name: str, entry: Entry) -> Column:
    if entry.get("private_id") is True:
        return Column(name=name, kind="id")
    kind = _smartnoise_kind(entry)
    if kind is None:  # "unknown" and types of later versions
        return Column(name=name, kind="text")
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
    return any(_dpsynth_class(entry) is not None for entry in _dpsynth_attributes(content).values())


def _dpsynth_attributes(content: Entry) -> dict[str, Entry]:
    """The attributes, which some versions put in a section of that name, next to constraints."""
    inner = _entries(content.get("attributes"))
    if any(_dpsynth_class(entry) is not None for entry in inner.values()):
        return inner
    return _entries(content)


def _dpsynth_class(entry: Entry) -> str | None:
    """The class of an attribute, given as `type` or implied by a key that only that class has."""
    if entry.get("type") in _DPSYNTH_CLASSES:
        return str(entry["type"])
    return next((name for name, key in _DPSYNTH_CLASSES.items() if key in entry), None)


def _read_dpsynth(content: Entry) -> Schema:
    attributes = _dpsynth_attributes(content)
    return Schema(columns=tuple(_dpsynth_column(name, entry) for name, entry in attributes.items()))


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


def _read_mbi(content: Entry) -> Schema:
    columns = []
    for name, size in _mbi_sizes(content).items():
        num_codes = _count(size)
        if num_codes is None:
            raise SchemaError(f"Column {name!r}: the number of codes must be an integer of at least 1.", column=name)
        codes = tuple(range(num_codes))  # all of them, by the meaning of a domain
        columns.append(Column(name=name, kind="categorical", nullable=False, categories=codes, closed=True))
    return Schema(columns=tuple(columns))


# Detecting and parsing


class _Format(NamedTuple):
    """How a format is named, detected and read."""

    title: str
    detect: Callable[[Entry], bool]
    read: Callable[[Entry], Schema]


FORMATS = {
    "sdv": _Format(title="SDV metadata JSON", detect=_is_sdv, read=_read_sdv),
    "smartnoise": _Format(
        title="SmartNoise YAML", detect=lambda content: bool(_smartnoise_tables(content)), read=_read_smartnoise
    ),
    "dpsynth": _Format(title="dpsynth domain YAML", detect=_is_dpsynth, read=_read_dpsynth),
    "mbi": _Format(title="mbi domain JSON", detect=_is_mbi, read=_read_mbi),
}
"""The formats that `import_schema` reads, in the order in which they are tried."""


def _known_formats() -> str:
    return ", ".join(f"{name} ({each.title})" for name, each in FORMATS.items())


def _detect_format(content: Entry, source: str) -> str:
    for name, each in FORMATS.items():
        if each.detect(content):
            return name
    raise SchemaError(f"{source} is not in a known schema format. The formats are {_known_formats()}.")


def _parse(text: str, source: str) -> Entry:
    """The content of a JSON or YAML file, which must be a mapping with text keys."""
    if source.endswith(".toml"):
        raise SchemaError(f"{source} is TOML, which needs no import. Use it as the schema directly.")
    try:
        content = json.loads(text)
    except json.JSONDecodeError as error:
        if source.endswith(".json"):
            raise SchemaError(f"{source} is not valid JSON: {error}. Correct that line.") from None
        content = _parse_yaml(text, source)
    if not isinstance(content, dict):
        raise SchemaError(f"{source} does not describe columns. The formats are {_known_formats()}.")
    return {str(key): value for key, value in content.items()}


def _parse_yaml(text: str, source: str) -> object:
    try:
        import yaml
    except ImportError:
        raise SchemaError(
            f"{source} is not JSON, and reading YAML needs PyYAML: pip install 'understudy[yaml]'."
        ) from None
    try:
        return yaml.safe_load(text)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = f" (at line {mark.line + 1})" if mark is not None else ""
        reason = getattr(error, "problem", None) or "it cannot be read"
        raise SchemaError(f"{source} is neither JSON nor valid YAML: {reason}{where}. Correct that line.") from None


def _entries(section: object) -> dict[str, Entry]:
    """The subsections of a section, empty ones included."""
    if not isinstance(section, Mapping):
        return {}
    return {str(name): entry or {} for name, entry in section.items() if entry is None or isinstance(entry, Mapping)}


def _names(keys: object) -> set[str]:
    """One name or a list of them, as a set."""
    return {keys} if isinstance(keys, str) else set(map(str, keys)) if isinstance(keys, list) else set()


def _count(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 1 else None


def _bounds(lower: object, upper: object) -> tuple[Bound, Bound] | None:
    """Both bounds, or None if one is missing or infinite."""
    for bound in (lower, upper):
        if bound is None or (isinstance(bound, float) and not math.isfinite(bound)):
            return None
    return lower, upper  # type: ignore[return-value]
