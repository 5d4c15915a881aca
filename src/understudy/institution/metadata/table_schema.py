"""Frictionless Data Package and Table Schema: the file beside a synthetic table that says what it is.

Types are those of the written columns. Constraints are what the schema declares, never what the rows happen to hold.
"""

import importlib.resources
import json
import re
from collections.abc import Mapping
from datetime import date, datetime
from typing import Any, TypeAlias

import pyarrow as pa

from understudy._version import __version__
from understudy.release.folder import digest_of
from understudy.run.atomic import json_bytes
from understudy.schema import Column, Schema
from understudy.tables import Describe, Origin, WrittenTable, label_metadata
from understudy.tables.labels import PREFIX, SYNTHETIC
from understudy.tables.origin import parse_arrow_type, style_of
from understudy.tables.path import TEXT_SUFFIXES

PROFILE = "https://datapackage.org/profiles/2.0/datapackage.json"
JsonObject: TypeAlias = dict[str, object]

_FORMATTED = (*TEXT_SUFFIXES, ".jsonl")
"""The formats that write dates as text, in the declared format."""


def read_resource(name: str) -> dict[str, Any]:
    """The words of a format: a JSON file beside this one."""
    content: dict[str, Any] = json.loads(importlib.resources.files(__package__).joinpath(name).read_bytes())
    return content


def describe_synthetic(schema: Schema | None = None, *, title: str | None = None) -> Describe:
    """Makes the data package of a synthetic table when it is written; see `write_batches`.

    `title` is the name of the data set, by default that of the schema.
    """
    title = title or (None if schema is None else schema.name)
    return lambda written: json_bytes(data_package(written, schema, title=title))


def data_package(written: WrittenTable, schema: Schema | None, *, title: str | None) -> JsonObject:
    """A data package of one resource, the table, with its label."""
    label = label_metadata(written.schema)
    certificate = label.get(f"{PREFIX}certificate")
    digests = {key.removeprefix(PREFIX): value for key, value in label.items()}
    sources: JsonObject = {name: {"sha256": digests[name]} for name in ("release", "schema") if name in digests}
    name = written.table_path.table or written.table_path.path.name
    made = "made from a schema alone" if "schema" in sources else "sampled from a model"
    return {
        "$schema": PROFILE,
        "name": _slug(name),
        "title": f"Synthetic data: {title or name}",
        "description": f"This table is synthetic: its rows were {made} by Understudy {__version__}.",
        "synthetic": label.get(SYNTHETIC) == "true",
        **({} if certificate is None else {"certificate": certificate}),
        **sources,
        "understudy_version": __version__,
        "resources": [_resource(written, schema)],
    }


def _resource(written: WrittenTable, schema: Schema | None) -> JsonObject:
    table_path, file = written.table_path, written.file
    is_text = table_path.suffix in TEXT_SUFFIXES
    resource: JsonObject = {"name": _slug(table_path.table or table_path.path.name), "path": table_path.path.name}
    resource["format"] = table_path.suffix.removeprefix(".")
    if table_path.path.suffix.lower() in (".gz", ".zst"):
        resource["compression"] = table_path.path.suffix.lower().removeprefix(".")
    if table_path.suffix in _FORMATTED:
        resource["encoding"] = "utf-8"
    if is_text:
        resource["dialect"] = {"delimiter": written.delimiter}
    if table_path.table is not None:  # its file may hold other tables, which change its hash
        resource["dialect"] = {"table": table_path.table}
    if file is not None:
        resource |= {"bytes": file.stat().st_size, "hash": f"sha256:{digest_of(file)}"}
    return {**resource, "rows": written.num_rows, "schema": table_schema(written.schema, schema, table_path.suffix)}


def table_schema(written: pa.Schema, schema: Schema | None = None, suffix: str = ".csv") -> JsonObject:
    """The Table Schema of a table with these columns, as a file with this ending holds them."""
    fields = []
    for field in written:
        column = schema[field.name] if schema is not None and field.name in schema else None
        described = _field(field, suffix)
        constraints = {} if column is None else _constraints(column, schema, described)
        fields.append({**described, "constraints": constraints} if constraints else described)
    missing = {"missingValues": [""]} if suffix in TEXT_SUFFIXES else {}
    return {"fields": fields, **missing}


def schema_columns(origin: Origin) -> pa.Schema:
    """The columns that a release with this origin writes, for `table_schema` before any row is sampled."""
    fields = [
        pa.field(name, parse_arrow_type(column.arrow) or pa.string(), metadata=dict(column.style) or None)
        for name, column in origin.columns.items()
    ]
    return pa.schema(fields)


def _field(field: pa.Field, suffix: str) -> JsonObject:
    """Name, type and format of a column, as a file of this kind holds it."""
    types, style = pa.types, style_of(field)
    arrow_type = field.type.value_type if types.is_dictionary(field.type) else field.type
    is_text, text_format = suffix in TEXT_SUFFIXES, style.get("format") if suffix in _FORMATTED else None
    extra: JsonObject = {}
    if types.is_boolean(arrow_type):
        name = "boolean"
        if is_text:
            false, true = (text_format or "false/true").split("/")
            extra = {"trueValues": [true], "falseValues": [false]}
    elif types.is_integer(arrow_type):
        name = "integer"
    elif types.is_floating(arrow_type) or types.is_decimal(arrow_type):
        name = "number"
        extra = {"decimalChar": ","} if is_text and style.get("decimal") == "," else {}
    elif types.is_date(arrow_type):
        name, extra = "date", {} if text_format is None else {"format": text_format}
    elif types.is_timestamp(arrow_type):
        # Without a declared format, a time is written with a space before it, which is not the default of Table Schema.
        name, extra = "datetime", {"format": text_format or "any"} if suffix in _FORMATTED else {}
    else:
        name = "string"
    return {"name": field.name, "type": name, **extra}


def _constraints(column: Column, schema: Schema | None, field: Mapping[str, object]) -> JsonObject:
    """What the schema declares about the values of a column."""
    constraints: JsonObject = {}
    if column.kind == "id":
        is_shared = schema is not None and schema.links_rows and column.name == schema.unit
        return {"required": True} if is_shared else {"required": True, "unique": True}
    if not column.nullable and None not in (column.listed or ()):
        constraints["required"] = True
    listed = [value for value in column.listed or () if value is not None]
    if listed and field["type"] != "boolean":
        is_text = field["type"] == "string"
        if is_text == isinstance(listed[0], str):  # else the types of the source were kept
            constraints["enum"] = listed
    if column.bounds is not None and field["type"] in ("integer", "number", "date", "datetime"):
        low, high = (_bound(end, field.get("format")) for end in column.bounds)
        constraints |= {"minimum": low, "maximum": high}
    return constraints


def _bound(value: object, text_format: object) -> object:
    """A bound as JSON: dates as text, in the format of their column."""
    if isinstance(value, date):  # or a datetime
        if isinstance(text_format, str) and "%" in text_format:
            return value.strftime(text_format)
        return value.isoformat(" ") if isinstance(value, datetime) and text_format == "any" else value.isoformat()
    return value


def _slug(name: str) -> str:
    """A name as a data package allows it: lower case, without spaces."""
    return re.sub(r"[^a-z0-9._-]+", "-", name.lower()).strip("-") or "table"
