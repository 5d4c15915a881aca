"""Reads Frictionless Table Schemas and Data Packages, versions 1 and 2, by their public specification.

Their constraints are taken as written by a person: frictionless for Python writes names and types only when it
describes a file. That for R also writes the levels of factors as `enum`, and the file does not show it: whoever imports
it vouches for them. Sizes, hashes and statistics of a resource are not read.
"""

from collections.abc import Mapping

from understudy.errors import SchemaError
from understudy.importers.draft import (
    NO_COUNTERPART,
    NO_EFFECT,
    OTHER_TABLES,
    WHOLE_TABLE,
    Draft,
    Entry,
    column_error,
    entry_list,
    name_list,
    of_column,
    unknown_type,
)
from understudy.importers.values import to_number
from understudy.rules.values import format_value
from understudy.schema.column import Column

# {"fields": [{"name": "age", "type": "integer", "constraints": {"minimum": 0, "maximum": 120}}], "primaryKey": "id"},
# alone, as `schema` of a resource, or in the resources of a package: {"resources": [{"name": ..., "schema": {...}}]}.

_KINDS = {
    "string": "categorical",
    "number": "real",
    "integer": "integer",
    "year": "integer",
    "boolean": "boolean",
    "date": "date",
    "yearmonth": "date",
    "datetime": "datetime",
}

_UNMODELLED = {
    "time": "times of day are not modelled",
    "duration": "durations are not modelled",
    "object": "nested values are not modelled",
    "array": "nested values are not modelled",
    "list": "lists are not modelled",
    "geojson": "shapes are not modelled",
    "geopoint": "it may be a location, which needs a public region",
}

_TEXT_FORMATS = ("email", "uri", "binary")

_KNOWN_TYPES = (*_KINDS, *_UNMODELLED, "any")


def is_frictionless(content: Entry) -> bool:
    return bool(_fields(content)) or bool(_resources(content)) or bool(_fields(content.get("schema")))


def read_frictionless(content: Entry, draft: Draft) -> None:
    schema = _chosen_schema(content, draft)
    fields = entry_list(schema.get("fields"))
    keys = name_list(schema.get("primaryKey"))
    for field in fields:
        _declare_field(field, schema, draft, is_key=[field.get("name")] == keys)
    for field in fields:
        _read_constraints(field, draft)
    if len(keys) > 1:
        draft.leave_out(f"primaryKey ({', '.join(keys)})", WHOLE_TABLE)
    unique = schema.get("uniqueKeys")
    for names in filter(None, map(name_list, unique)) if isinstance(unique, list) else ():
        draft.leave_out(f"uniqueKeys ({', '.join(names)})", WHOLE_TABLE)
    for foreign in entry_list(schema.get("foreignKeys")):
        draft.leave_out(f"foreignKeys ({', '.join(name_list(foreign.get('fields')))})", OTHER_TABLES)


def _chosen_schema(content: Entry, draft: Draft) -> Entry:
    """The schema itself, that of a resource, or that of the chosen resource of a package."""
    if _fields(content):
        return content
    resources = _resources(content)
    if resources:
        named = {str(each.get("name", f"resource {at}")): each for at, each in enumerate(resources, start=1)}
        if len(named) < len(resources):
            raise SchemaError("Two of its resources have the same name. Rename one.")
        name = draft.choose_table(named)
        content = named[name]
    schema = content.get("schema")
    if isinstance(schema, str):
        raise SchemaError(f"Its schema is in another file, {format_value(schema)}. Import that file.")
    if not isinstance(schema, Mapping) or not _fields(schema):
        raise SchemaError('The resource has no schema with "fields". Add one, or choose another resource with --table.')
    return schema


def _fields(schema: object) -> list[Entry]:
    listed = entry_list(schema.get("fields")) if isinstance(schema, Mapping) else []
    return listed if any("name" in field for field in listed) else []


def _resources(content: Entry) -> list[Entry]:
    return [each for each in entry_list(content.get("resources")) if "schema" in each]


# -------------------------------------------------------------------------------------------------------------- columns


def _declare_field(field: Entry, schema: Entry, draft: Draft, *, is_key: bool) -> None:
    name = field.get("name")
    if not isinstance(name, str) or not name:
        raise SchemaError(f"A field has no name: {format_value(name)}. Name every field.")
    written = field.get("type", "any" if "categories" in field else "string")
    if written not in _KNOWN_TYPES:
        raise unknown_type(name, written, _KNOWN_TYPES)
    type_name = str(written)
    missing = _missing_values(field, schema)
    if is_key or (type_name == "string" and field.get("format") == "uuid"):
        draft.declare(Column(name=name, kind="id", missing=missing))
    elif type_name in _UNMODELLED:
        draft.leave_unmodelled(name, _UNMODELLED[type_name])
    elif type_name == "string" and field.get("format") in _TEXT_FORMATS:
        draft.leave_unmodelled(name, f"its format is {field['format']}")
    elif type_name == "any":
        types = {type(value) for value, _ in _listed(field)}
        kind = "integer" if types == {int} else "boolean" if types == {bool} else "categorical"
        draft.guess(name, kind, "its type is any")
    else:
        column = Column(name=name, kind=_KINDS[type_name], missing=missing, format=_text_format(field, type_name))
        draft.declare(column)
    for key in ("decimalChar", "groupChar", "bareNumber"):
        if key in field:
            draft.leave_out(of_column(key, name), "it is an option of reading: --decimal and so on")


def _missing_values(field: Entry, schema: Entry) -> tuple[str, ...] | None:
    """Words that stand for a null. The empty string always does."""
    given = field.get("missingValues", schema.get("missingValues"))
    if given is None:
        return None
    if not isinstance(given, list):
        raise SchemaError(f"missingValues must be a list, found {format_value(given)}.")
    words = [each.get("value") if isinstance(each, Mapping) else each for each in given]
    return (
        tuple(dict.fromkeys(str(word) for word in words if isinstance(word, str | int | float) and word != "")) or None
    )


def _text_format(field: Entry, type_name: str) -> str | None:
    """How a text file writes the values; None: as ISO dates, and false and true."""
    if type_name == "boolean":
        false, true = (name_list(field.get(key)) for key in ("falseValues", "trueValues"))
        words = f"{false[0]}/{true[0]}" if false and true else ""
        return words if words.count("/") == 1 and words not in ("false/true", "/") else None
    if type_name == "yearmonth":
        return "%Y-%m"
    pattern = field.get("format")
    if type_name not in ("date", "datetime") or not isinstance(pattern, str):
        return None
    return pattern.removeprefix("fmt:") if "%" in pattern else None  # else "default" or "any"


# ---------------------------------------------------------------------------------------------------------- constraints

_LIMITS = {"minimum": ">=", "maximum": "<=", "exclusiveMinimum": ">", "exclusiveMaximum": "<"}
_OF_TEXTS = ("pattern", "minLength", "maxLength")


def _read_constraints(field: Entry, draft: Draft) -> None:
    name, constraints = str(field["name"]), field.get("constraints")
    given = constraints if isinstance(constraints, Mapping) else {}
    if draft.kind(name) in (None, "id", "text"):
        return
    for key, value in given.items():
        what = of_column(key, name)
        if key in _LIMITS:
            draft.limit(name, _LIMITS[key], value, what)
        elif key == "required":
            if value is True:
                draft.not_null(name, what)
        elif key == "unique":
            if value is True:
                draft.leave_out(what, WHOLE_TABLE)
        elif key != "enum":
            draft.leave_out(what, NO_EFFECT if key in _OF_TEXTS else NO_COUNTERPART)
    listed = _listed(field)
    if listed:
        draft.codes(name, [(_in_kind(value, draft.kind(name)), label) for value, label in listed])
        if field.get("categoriesOrdered") is True:
            draft.refine(name, of_column("categoriesOrdered", name), ordinal=True)


def _listed(field: Entry) -> list[tuple[object, str | None]]:
    """The values in `enum`, or in the `categories` of version 2, which may have labels."""
    constraints = field.get("constraints")
    enum = constraints.get("enum") if isinstance(constraints, Mapping) else None
    listed = enum if enum is not None else field.get("categories")
    if listed is None:
        return []
    if not isinstance(listed, list) or not listed:
        raise column_error(str(field.get("name")), "the list of its values must have at least one value.")
    pairs = [(each.get("value"), each.get("label")) if isinstance(each, Mapping) else (each, None) for each in listed]
    return [(value, label if isinstance(label, str) else None) for value, label in pairs]


def _in_kind(value: object, kind: str | None) -> object:
    """A value in the type of its column: enumerations may hold the strings that files have."""
    number = to_number(value) if isinstance(value, str) else None
    if kind == "integer" and isinstance(number, int):
        return number
    if kind == "real" and number is not None:
        return float(number)
    if kind == "categorical" and isinstance(value, int | float) and not isinstance(value, bool):
        return str(value)
    return value
