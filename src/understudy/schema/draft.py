"""Kinds drafted from Arrow types. Reads no value."""

import pyarrow as pa

from understudy.schema.column import Column


def draft_column(field: pa.Field) -> Column:
    """Name and kind of a field; `kind`, `format` and `decimals` in its metadata take precedence."""
    facts = {key.decode(): value.decode() for key, value in (field.metadata or {}).items()}
    kind = facts.get("kind") or _kind_of(field.type)
    if kind is None:  # there is no kind for lists, structs and bytes
        return Column(name=field.name, kind="text", drop=True)
    text_format = facts.get("format") if kind in ("datetime", "date", "boolean") else None
    decimals = int(facts["decimals"]) if kind == "real" and facts.get("decimals", "").isdecimal() else None
    return Column(name=field.name, kind=kind, format=text_format, decimals=decimals)


def _kind_of(arrow_type: pa.DataType) -> str | None:
    """The kind that an Arrow type suggests; None: no kind does."""
    types = pa.types
    if types.is_boolean(arrow_type):
        return "boolean"
    if types.is_integer(arrow_type):
        return "integer"
    if types.is_floating(arrow_type) or types.is_decimal(arrow_type):
        return "real"
    if types.is_timestamp(arrow_type):
        return "datetime"
    if types.is_date(arrow_type):
        return "date"
    if types.is_dictionary(arrow_type) or is_text(arrow_type):
        return "categorical"
    return None


def is_text(arrow_type: pa.DataType) -> bool:
    """Whether an Arrow type is one of strings."""
    return pa.types.is_string(arrow_type) or pa.types.is_large_string(arrow_type) or pa.types.is_string_view(arrow_type)
