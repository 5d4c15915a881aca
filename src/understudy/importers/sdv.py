"""Reads SDV metadata and constraints, and the constraints of a MOSTLY AI generator, by their public documentation.

Lists and ranges that these tools take from the training data are private: they are never carried over.
"""

import itertools
import re
from collections.abc import Mapping, Sequence

from understudy.errors import SchemaError
from understudy.importers.draft import (
    FROM_DATA,
    NO_COUNTERPART,
    OTHER_TABLES,
    WHOLE_TABLE,
    Draft,
    Entry,
    entries,
    entry_list,
    name_list,
    of_column,
    unknown_type,
)
from understudy.rules.values import format_list, format_value
from understudy.schema.column import MAX_DECIMALS, Column

# SDV: {"columns": {"age": {"sdtype": "numerical"}}}, or {"tables": {"people": {"columns": ...}}}; constraints in
# [{"class_name": "Inequality", "parameters": {...}}], with "constraint_class" and "constraint_parameters" in SDV 1, and
# flat in the metadata of the first versions.


def is_sdv(content: Entry) -> bool:
    tables = [content, *entries(content.get("tables")).values()]
    if any("sdtype" in entry for table in tables for entry in _sdv_columns(table).values()):
        return True
    return any(_sdv_class(entry) is not None for entry in entry_list(content.get("constraints")))


def read_sdv(content: Entry, draft: Draft) -> None:
    table, table_name = content, None
    if "tables" in content:
        tables = entries(content["tables"])
        table_name = draft.choose_table(tables)
        table = tables[table_name]
    keys = [*name_list(table.get("primary_key")), *name_list(table.get("sequence_key"))]
    for name, entry in _sdv_columns(table).items():
        _sdv_column(name, entry, draft, is_key=name in keys)
    constraints = [*entry_list(table.get("constraints")), *entry_list(content.get("constraints"))]
    if table is content:
        constraints = entry_list(content.get("constraints"))
    if constraints and not draft.names:
        raise SchemaError(
            "It has constraints but no columns. Name the schema that they are for: --schema FILE, or schema= in Python."
        )
    for constraint in constraints:
        _read_sdv_constraint(constraint, table_name, draft)


def _sdv_columns(table: Entry) -> dict[str, Entry]:
    """The columns of a table; drafts of version 2 put them into the table itself."""
    columns = entries(table.get("columns"))
    return columns or {name: entry for name, entry in entries(table).items() if "sdtype" in entry}


_SDV_CONCEPTS = (
    *("address", "administrative_unit", "bank_account", "bban", "building_number", "city", "company", "country"),
    *("country_code", "credit_card_number", "date_of_birth", "email", "first_name", "iban", "ip_address"),
    *("ipv4_address", "ipv6_address", "job", "last_name", "latitude", "license_plate", "longitude", "mac_address"),
    *("name", "phone_number", "postcode", "secondary_address", "ssn", "state", "state_abbr", "street_address"),
    *("street_name", "swift", "swift11", "swift8", "text", "unknown", "user_agent_string", "user_name"),
    *("vin", "zipcode"),
)
"""Documented sdtypes of what identifies a person, or has no statistics. Others have the key `pii`."""

_SDV_TYPES = ("numerical", "categorical", "ordinal", "boolean", "datetime", "id")

_SDV_DETECTS = "SDV detects them from the data"


def _sdv_column(name: str, entry: Entry, draft: Draft, *, is_key: bool) -> None:
    """Declares a column. The ranges and lists of version 2 are detected from the data."""
    sdtype = entry.get("sdtype")
    if is_key or sdtype == "id":
        draft.declare(Column(name=name, kind="id"))
        return
    if sdtype in _SDV_CONCEPTS or (isinstance(sdtype, str) and sdtype not in _SDV_TYPES and "pii" in entry):
        draft.leave_unmodelled(name, f"SDV calls it {format_value(sdtype)}")
        return
    if sdtype not in _SDV_TYPES:
        raise unknown_type(name, sdtype, (*_SDV_TYPES, *_SDV_CONCEPTS))
    if sdtype == "datetime":
        text_format = entry.get("datetime_format")
        text_format = text_format if isinstance(text_format, str) and text_format else None
        has_time = text_format is None or re.search(r"%-?[HIklMSfpcXTRrsz]", text_format)
        draft.declare(Column(name=name, kind="datetime" if has_time else "date", format=text_format))
    elif sdtype == "numerical":
        draft.declare(_sdv_number(name, entry, draft))
    else:
        draft.declare(Column(name=name, kind="boolean" if sdtype == "boolean" else "categorical"))
    if any(key.startswith("range_") for key in entry) and draft.trusts(name, _SDV_DETECTS):
        _read_sdv_range(name, entry, draft)


def _read_sdv_range(name: str, entry: Entry, draft: Draft) -> None:
    """The range of a column, for which the caller vouches."""
    for key, operator in (("range_min", ">="), ("range_max", "<=")):
        if entry.get(key) is not None:
            draft.limit(name, operator, entry[key], of_column(key, name))
    listed = entry.get("range_values")
    if isinstance(listed, list):
        draft.codes(name, [(value, None) for value in listed if value is not None])
        if entry.get("sdtype") == "ordinal":
            draft.refine(name, of_column("the order", name), ordinal=True)
    if entry.get("range_is_nullable") is False:
        draft.not_null(name, of_column("range_is_nullable", name))


def _sdv_number(name: str, entry: Entry, draft: Draft) -> Column:
    """Version 1 says "Int64" or "Float", version 2 how many decimals there are; both may leave it out."""
    decimals = entry.get("decimal_places")
    if isinstance(decimals, int) and not isinstance(decimals, bool) and 0 <= decimals <= MAX_DECIMALS:
        return Column(name=name, kind="real", decimals=decimals) if decimals else Column(name=name, kind="integer")
    if decimals is not None:
        draft.leave_out(of_column("decimal_places", name), f"expected an integer from 0 to {MAX_DECIMALS}")
    stored = str(entry.get("computer_representation", "Float"))
    if not re.fullmatch(r"(?i)u?int(8|16|32|64)?|float(16|32|64)?", stored):
        raise unknown_type(
            name, stored, ("Float", "Int8", "Int16", "Int32", "Int64", "UInt8", "UInt16", "UInt32", "UInt64")
        )
    return Column(name=name, kind="integer" if "int" in stored.lower() else "real")


_CLASS_KEYS = ("class_name", "constraint_class", "constraint_name", "constraint")

_SDV_LEFT_OUT = {
    "FixedCombinations": FROM_DATA,
    "FixedNullCombinations": "its list comes from the training data, which is private; write skip rules",
    "FixedIncrements": "increments are not modelled; declare integers or decimals instead",
    "Unique": WHOLE_TABLE,
    "CompositeKey": WHOLE_TABLE,
    "CustomConstraint": "its rule is a Python function; write it as an SQL condition",
    "ColumnFormula": "its rule is a Python function; write it as an SQL condition",
}
_OF_SEVERAL_TABLES = re.compile("Primary|Foreign|Table|Hierarchy|CarryOver")

_RELATIONS = ("<", "<=", ">", ">=")


def _sdv_class(entry: Entry) -> str | None:
    """The class of a constraint, without its module."""
    name = next((entry[key] for key in _CLASS_KEYS if key in entry), None)
    return name.rsplit(".", 1)[-1] if isinstance(name, str) else None


def _read_sdv_constraint(entry: Entry, table_name: str | None, draft: Draft) -> None:
    name = _sdv_class(entry) or "constraint"
    nested = entry.get("parameters", entry.get("constraint_parameters"))
    given = nested if isinstance(nested, Mapping) else entry
    about = {key: value for key, value in given.items() if key not in (*_CLASS_KEYS, "table_name", "strict_boundaries")}
    what = f"SDV {name}" + (f" ({format_list(list(_flat(about)))})" if about else "")
    of_table = given.get("table_name", entry.get("table_name"))
    if draft.leave_out_other_table(what, of_table, table_name):
        return
    strict = given.get("strict_boundaries") is not False  # the documented default is true
    column = given.get("column_name")
    match name:
        case "Inequality":
            draft.order(given.get("low_column_name"), given.get("high_column_name"), what, strict=strict)
        case "Range":
            names = [given.get(f"{place}_column_name") for place in ("low", "middle", "high")]
            _chain(names, what, draft, strict=strict)
        case "ChainedInequality":
            _chain(name_list(given.get("column_names")), what, draft, strict=strict)
        case "ScalarInequality" if given.get("relation") in _RELATIONS:
            draft.limit(column, str(given["relation"]), given.get("value"), what)
        case "ScalarRange":
            draft.limit(column, ">" if strict else ">=", given.get("low_value"), what)
            draft.limit(column, "<" if strict else "<=", given.get("high_value"), what)
        case "Positive" | "Negative":
            sign = ">" if name == "Positive" else "<"
            draft.limit(column, sign if given.get("strict_boundaries") is True else f"{sign}=", 0, what)
        case "OneHotEncoding":
            _one_hot(name_list(given.get("column_names")), what, draft)
        case _:
            why = OTHER_TABLES if _OF_SEVERAL_TABLES.search(name) else NO_COUNTERPART
            draft.leave_out(what, _SDV_LEFT_OUT.get(name, why))


def _chain(names: Sequence[object], what: str, draft: Draft, *, strict: bool) -> None:
    if len(names) < 2:
        draft.leave_out(what, "expected the names of at least two columns")
    for low, high in itertools.pairwise(names):
        draft.order(low, high, what, strict=strict)


def _one_hot(names: list[str], what: str, draft: Draft) -> None:
    """Columns of 0 and 1 of which exactly one is 1."""
    if all(draft.refine(name, what, kind="integer", decimals=None, bounds=(0, 1)) for name in names):
        for name in names:
            draft.limit(name, ">=", 0, what)
            draft.limit(name, "<=", 1, what)
        draft.rule({"sum": names, "equals": 1}, what)


def _flat(section: Mapping[str, object]) -> list[object]:
    return [item for value in section.values() for item in (value if isinstance(value, list) else [value])]


# MOSTLY AI: {"tables": [{"name": "people", "columns": [{"name": "age", "model_encoding_type": "TABULAR_NUMERIC_AUTO"}],
# "primary_key": "id"}], "constraints": [{"type": "Inequality", "config": {"low_column": ..., "high_column": ...}}]}


def is_mostly(content: Entry) -> bool:
    if any(isinstance(entry.get("config"), Mapping) for entry in entry_list(content.get("constraints"))):
        return True
    return any(
        "name" in column and _either(column, "model_encoding_type") is not None
        for table in entry_list(content.get("tables"))
        for column in entry_list(table.get("columns"))
    )


def read_mostly(content: Entry, draft: Draft) -> None:
    tables = entry_list(content.get("tables"))
    named = {str(each.get("name", f"table {at}")): each for at, each in enumerate(tables, start=1)}
    table = named[draft.choose_table(named)] if tables else {}
    for entry in entry_list(table.get("columns")):
        _declare_mostly(entry, _either(table, "primary_key"), draft)
    if not draft.names:
        raise SchemaError(
            "It has no columns with their encoding types. Name the schema that the constraints are for: --schema FILE,"
            " or schema= in Python."
        )
    for constraint in entry_list(content.get("constraints")):
        config = constraint.get("config")
        given = config if isinstance(config, Mapping) else constraint
        name, about = constraint.get("type"), [_either(given, key) for key in ("low_column", "high_column", "columns")]
        what = f"MOSTLY AI {name} ({format_list(_flat({str(i): value for i, value in enumerate(about) if value}))})"
        of_table = _either(given, "table_name")
        if draft.leave_out_other_table(what, of_table, table.get("name")):
            continue
        if name == "Inequality":
            draft.order(about[0], about[1], what)
        else:
            draft.leave_out(what, FROM_DATA if name == "FixedCombinations" else NO_COUNTERPART)


def _declare_mostly(entry: Entry, key: object, draft: Draft) -> None:
    """Encoding types do not distinguish integers from reals, so kinds of numbers are drafted."""
    name, encoding = str(entry.get("name")), str(_either(entry, "model_encoding_type")).upper()
    if name == key:
        draft.declare(Column(name=name, kind="id"))
    elif "NUMERIC_DISCRETE" in encoding or "CATEGORICAL" in encoding:
        draft.declare(Column(name=name, kind="categorical"))
    elif "NUMERIC" in encoding:
        draft.guess(name, "real", "integers and reals have the same encoding type")
    elif "DATETIME" in encoding:
        draft.declare(Column(name=name, kind="datetime"))
    elif "TEXT" in encoding or "CHARACTER" in encoding or "LAT_LONG" in encoding:
        draft.declare(Column(name=name, kind="text"))
    elif "AUTO" in encoding:
        draft.guess(name, "categorical")
    else:
        raise unknown_type(name, encoding, _MOSTLY_TYPES)


_MOSTLY_TYPES = ("TABULAR_CATEGORICAL", "TABULAR_NUMERIC_AUTO", "TABULAR_DATETIME", "LANGUAGE_TEXT", "AUTO")


def _either(section: Entry, key: str) -> object:
    """The value of a key that is written in snake case or in camel case."""
    first, *others = key.split("_")
    return section.get(key, section.get(first + "".join(map(str.capitalize, others))))
