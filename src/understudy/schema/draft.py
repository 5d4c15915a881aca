"""Kinds drafted from Arrow types. Reads no value."""

import json
import re
from collections.abc import Sequence

import pyarrow as pa
from pyarrow import types

from understudy.rules.values import to_toml, to_toml_key
from understudy.schema.column import Column

_LISTED = 50
"""The most labels that a comment lists."""


def draft_column(field: pa.Field, *, trust_labels: bool = False) -> Column:
    """Name and kind of a field; `kind`, `format` and `decimals` in its metadata take precedence.

    With `trust_labels` the `labels` in its metadata become the categories of a categorical column.
    """
    facts = {key.decode(): value.decode() for key, value in (field.metadata or {}).items()}
    kind = facts.get("kind") or _kind_of(field.type)
    if kind is None:  # there is no kind for lists, structs and bytes
        return Column(name=field.name, kind="text", drop=True)
    text_format = facts.get("format") if kind in ("datetime", "date", "boolean") else None
    decimals = int(facts["decimals"]) if kind == "real" and facts.get("decimals", "").isdecimal() else None
    labels = tuple(dict.fromkeys(found_labels(field).values())) if kind == "categorical" and trust_labels else ()
    return Column(name=field.name, kind=kind, format=text_format, decimals=decimals, categories=labels or None)


def found_labels(field: pa.Field) -> dict[str, str]:
    """The labels that the source has for values of this column, by the text of the value."""
    labels: dict[str, str] = json.loads((field.metadata or {}).get(b"labels", b"{}"))
    return labels


def describe_labels(arrow_schema: pa.Schema, *, trusted: bool) -> dict[str, str]:
    """For each column with value labels a comment that lists them, for the person who completes the draft."""
    comments = {}
    for field in arrow_schema:
        labels = found_labels(field)
        advice = "" if trusted else ". If they come from a code book: --trust-labels declares them"
        if _kind_of(field.type) != "categorical":
            advice = ". Codes that mean a missing value: missing = [99]"
        listed = ", ".join(f"{code} = {to_toml(label)}" for code, label in list(labels.items())[:_LISTED])
        if labels:
            comments[field.name] = f"labels in the file: {listed}{', ...' * (len(labels) > _LISTED)}{advice}"
    return comments


_COORDINATE = re.compile(r"(?i)(?P<before>|.*[_. -])(?P<what>lat|latitude|lon|lng|long|longitude)(?P<after>|[_. -].*)")
_POINTS = re.compile(r"(?i)(.*[_. -])?(wkt|geom|geometry|coordinates|coords|lat_?lon|lat_?lng|gps)")
_REGION = "box = [south, west, north, east]"


def describe_names(names: Sequence[str]) -> dict[str, str]:
    """Comments on columns whose names alone, which are public, suggest coordinates. Reads no value."""
    comments: dict[str, str] = {}
    described: dict[str, dict[bool, tuple[str, str]]] = {}
    for name in names:
        if (match := _COORDINATE.fullmatch(name)) is not None:
            of = f"{match['before']}{match['after']}"
            is_latitude = match["what"].lower().startswith("la")
            described.setdefault(of.lower(), {})[is_latitude] = (name, of.strip("_. -"))
        elif _POINTS.fullmatch(name):
            comments[name] = (
                'by its name it may hold points. To model them: kind = "location" with format = "lat,lon" or "wkt" and '
                f"a public region such as {_REGION}"
            )
    for pair in described.values():
        if len(pair) == 2:
            (latitude, of), (longitude, _) = pair[True], pair[False]
            section = to_toml_key(of if of and of not in names else "location")
            comments[latitude] = (
                f"by its name a latitude. To model it with {longitude}: [columns.{section}] with "
                f'kind = "location", latitude = {to_toml(latitude)}, longitude = {to_toml(longitude)} and a public '
                f"region such as {_REGION}, in place of both sections"
            )
    return comments


def is_text(arrow_type: pa.DataType) -> bool:
    """Whether an Arrow type is one of strings."""
    return any(test(arrow_type) for test in (types.is_string, types.is_large_string, types.is_string_view))


_TESTS_OF_KINDS = {
    "boolean": [types.is_boolean],
    "integer": [types.is_integer],
    "real": [types.is_floating, types.is_decimal],
    "datetime": [types.is_timestamp],
    "date": [types.is_date],
    "categorical": [types.is_dictionary, is_text],
}


def _kind_of(arrow_type: pa.DataType) -> str | None:
    """The kind that an Arrow type suggests; None: no kind does."""
    return next((kind for kind, tests in _TESTS_OF_KINDS.items() if any(test(arrow_type) for test in tests)), None)
