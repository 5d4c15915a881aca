"""Reads the data dictionary of a REDCap project, a CSV file, by its public documentation.

A dictionary is written by the people who designed the study, so its choices and limits are declared. The columns are
those of a raw export: codes and not labels, one column for each box of a checkbox field, and one for each instrument
that says whether it is complete.
"""

import csv
import io
import re
from collections.abc import Mapping

from understudy.errors import SchemaError
from understudy.importers.draft import Draft, check_codes, column_error, of_column, unknown_type
from understudy.importers.values import to_number
from understudy.rules.values import format_list, format_value
from understudy.schema.column import Column

_HEADERS = {
    "name": ("variable / field name", "field_name"),
    "form": ("form name", "form_name"),
    "type": ("field type", "field_type"),
    "label": ("field label", "field_label"),
    "choices": ("choices, calculations, or slider labels", "choices or calculations", "select_choices_or_calculations"),
    "validation": (
        "text validation type or show slider number",
        "text validation type",
        "text_validation_type_or_show_slider_number",
    ),
    "minimum": ("text validation min", "text_validation_min"),
    "maximum": ("text validation max", "text_validation_max"),
    "identifier": ("identifier?", "identifier"),
    "branching": ("branching logic (show field only if...)", "branching logic", "branching_logic"),
    "required": ("required field?", "required_field"),
    "annotation": ("field annotation", "field_annotation"),
}
"""The columns that are read, as the web page and as the API of REDCap name them."""

_TYPES = (
    *("text", "notes", "calc", "dropdown", "radio", "checkbox", "yesno", "truefalse", "file", "slider", "descriptive"),
    "sql",
)

_FREE_TEXT = re.compile(r"alpha_only|email|phone.*|zipcode.*|postalcode.*|ssn|s?mrn.*|vmrn|time.*|signature")
_KNOWN_VALIDATIONS = (
    *("integer", "number", "number_1dp", "number_2dp", "number_comma_decimal", "date_dmy", "date_mdy", "date_ymd"),
    *("datetime_dmy", "datetime_seconds_ymd", "time", "email", "phone", "zipcode", "ssn", "alpha_only"),
)
_YES_NO = "0/1"
_COMPLETE = ((0, "Incomplete"), (1, "Unverified"), (2, "Complete"))


def is_redcap(text: str) -> bool:
    """Whether it is a CSV file with the header of a data dictionary."""
    header = text[:4000].partition("\n")[0].lower()
    return any(all(_HEADERS[key][at] in header for key in ("name", "type")) for at in (0, 1))


def read_redcap(text: str, draft: Draft) -> None:
    fields = _fields(text)
    if not fields:
        raise SchemaError("The data dictionary has no fields. Export it again: Dictionary > Download.")
    forms: list[str] = []
    for at, field in enumerate(fields):
        if field["type"] != "descriptive":
            _declare_field(field, draft, is_record_id=at == 0)
        if field["form"] and field["form"] not in forms:
            forms.append(field["form"])
    for form in forms:
        name = f"{form}_complete"
        if name not in draft.names:
            draft.declare(Column(name=name, kind="integer"))
            draft.codes(name, _COMPLETE)
    required = [field["name"] for field in fields if field["required"] == "y"]
    if required:
        draft.leave_out(f"Required Field? ({format_list(required)})", "REDCap asks for a value but does not enforce it")
    branching = [field["name"] for field in fields if field["branching"] and field["type"] != "descriptive"]
    if branching:
        draft.leave_out(
            f"branching logic ({format_list(branching)})",
            "a hidden field may still have a value. It is kept in comments: if it always holds, write skip rules",
        )


def _fields(text: str) -> list[dict[str, str]]:
    """The rows of the dictionary, by our names of its columns."""
    header = text.partition("\n")[0]
    delimiter = ";" if header.count(";") > header.count(",") else "\t" if "\t" in header else ","
    try:
        rows = list(csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, strict=True))
    except csv.Error as error:
        raise SchemaError(f"It is not a valid CSV file: {error}. Export the dictionary again.") from None
    titles = [" ".join(title.split()).lower() for title in (rows[0] if rows else [])]
    places = {
        key: next((titles.index(each) for each in each_of if each in titles), None) for key, each_of in _HEADERS.items()
    }
    absent = [_HEADERS[key][0] for key in ("name", "type", "choices") if places[key] is None]
    if absent:
        raise SchemaError(
            f"The data dictionary has no column {format_list(absent)}. Export it again: Dictionary > Download."
        )
    fields = []
    for number, row in enumerate(rows[1:], start=2):
        if not any(cell.strip() for cell in row):
            continue
        field = {key: row[at].strip() if at is not None and at < len(row) else "" for key, at in places.items()}
        if not field["name"]:
            raise SchemaError(f"Row {number} of the data dictionary has no field name. Add it, or remove the row.")
        for key in ("type", "validation", "identifier", "required"):
            field[key] = field[key].lower()
        fields.append(field)
    return fields


# --------------------------------------------------------------------------------------------------------------- fields


def _declare_field(field: Mapping[str, str], draft: Draft, *, is_record_id: bool) -> None:
    """The column of a field, or the columns of a checkbox field."""
    name, type_name = field["name"], field["type"]
    if type_name not in _TYPES:
        raise unknown_type(name, type_name, _TYPES)
    if type_name not in ("dropdown", "radio", "checkbox", "slider", "calc", "sql") and field["choices"]:
        raise column_error(name, f"it has the type {type_name!r} and a list of choices, a contradiction. Remove one.")
    if type_name in ("dropdown", "radio", "checkbox") and (field["minimum"] or field["maximum"]):
        raise column_error(name, "it has choices and a minimum or maximum, a contradiction. Remove one.")
    names = [name]
    if type_name == "checkbox":
        names = [f"{name}___{re.sub(r'[^a-z0-9_]', '_', code.lower())}" for code, _ in _choices(field)]  # as exported
    for column in names:
        if field["label"]:
            draft.comment(column, f'"{_shortened(field["label"])}"')
    if is_record_id:
        draft.declare(Column(name=name, kind="id"))
    elif field["identifier"] in ("y", "yes"):
        for column in names:
            draft.declare(Column(name=column, kind="text", drop=True))
        draft.leave_out(of_column("the values", name), "REDCap marks it as an identifier, so it is dropped")
    elif type_name == "checkbox":
        for column, (_, label) in zip(names, _choices(field), strict=True):
            draft.declare(Column(name=column, kind="boolean", format=_YES_NO))
            draft.comment(column, f"checked: {label}" if label else "checked")
    else:
        _declare_one(field, draft)
    if field["branching"]:
        for column in names:
            draft.comment(column, f"shown only if {_shortened(field['branching'])}")


def _declare_one(field: Mapping[str, str], draft: Draft) -> None:
    name = field["name"]
    match field["type"]:
        case "dropdown" | "radio":
            listed = _choices(field)
            codes = [code for code, _ in listed]
            integers = all(re.fullmatch(r"-?(0|[1-9]\d{0,17})", code) for code in codes)
            draft.declare(Column(name=name, kind="integer" if integers else "categorical"))
            draft.codes(name, [(int(code) if integers else code, label) for code, label in listed])
            _check_default(field, draft, integers=integers)
        case "yesno" | "truefalse":
            draft.declare(Column(name=name, kind="boolean", format=_YES_NO))
        case "slider":
            draft.declare(Column(name=name, kind="integer"))
            _declare_limits(field, draft, {"minimum": "0", "maximum": "100"})  # what REDCap documents as the default
        case "calc":
            draft.declare(Column(name=name, kind="real"))
            draft.leave_out(of_column("the formula", name), "it is not a rule; write one if it always holds")
        case "sql":
            draft.declare(Column(name=name, kind="categorical"))
            draft.leave_out(of_column("the choices", name), "they come from a database query")
        case "notes" | "file":
            draft.leave_unmodelled(name, f"its type is {field['type']}")
        case _:
            _declare_text(field, draft)


def _declare_text(field: Mapping[str, str], draft: Draft) -> None:
    """A text box is what its validation says; without any it is free text."""
    name, validation = field["name"], field["validation"]
    number = re.fullmatch(r"number(?:_(\d)dp)?(?:_comma_decimal)?", validation)
    moment = re.fullmatch(r"(date|datetime|datetime_seconds)_(dmy|mdy|ymd)", validation)
    if validation in ("integer", "int") or number:
        decimals = int(number[1]) if number and number[1] else None
        draft.declare(Column(name=name, kind="real" if number else "integer", decimals=decimals))
        _declare_limits(field, draft)
        _check_default(field, draft, integers=not number)
    elif moment:  # exports have ISO dates, whatever the order on the page
        draft.declare(Column(name=name, kind="date" if moment[1] == "date" else "datetime"))
        _declare_limits(field, draft)
    elif validation == "" or _FREE_TEXT.fullmatch(validation):
        draft.leave_unmodelled(name, "it is free text" if validation == "" else f"its validation is {validation}")
    else:
        raise unknown_type(name, validation, _KNOWN_VALIDATIONS)


def _declare_limits(field: Mapping[str, str], draft: Draft, defaults: Mapping[str, str] | None = None) -> None:
    name = field["name"]
    for key, operator in (("minimum", ">="), ("maximum", "<=")):
        given = field[key] or (defaults or {}).get(key, "")
        what = of_column(key, name)
        if not given:
            continue
        if given.lower() in ("today", "now") or "[" in given:
            draft.leave_out(what, f"{format_value(given)} is known only when a value is entered")
            continue
        value = _limit(given, field["validation"])
        if value is None:
            said = f"the {key} {format_value(given)} is not a value of its validation {field['validation']!r}"
            raise column_error(name, f"{said}. Correct the data dictionary.")
        draft.limit(name, operator, value, what)


def _limit(text: str, validation: str) -> str | float | int | None:
    """A limit as a number, or as an ISO date; None if it is neither."""
    order = validation.rpartition("_")[2]
    if validation.startswith("date"):
        day, _, time = text.replace("/", "-").replace(".", "-").partition(" ")
        parts = day.split("-")
        if len(parts) != 3 or not all(part.isascii() and part.isdecimal() and len(part) <= 4 for part in parts):
            return None
        if len(parts[0]) != 4:
            day_month = parts[:2] if order == "dmy" else parts[1::-1]
            parts = [parts[2], *reversed(day_month)]
        iso = f"{parts[0]:0>4}-{parts[1]:0>2}-{parts[2]:0>2}"
        return f"{iso} {time}".strip()
    return to_number(text.replace(",", ".") if validation.endswith("comma_decimal") else text)


def _check_default(field: Mapping[str, str], draft: Draft, *, integers: bool) -> None:
    """The action tag @DEFAULT='...' must name a value that the field can have."""
    match = re.search(r"@DEFAULT\s*=\s*(['\"])(.*?)\1", field["annotation"])
    if match is None or "[" in match[2]:
        return
    is_integer = integers and re.fullmatch(r"-?\d{1,18}", match[2])
    draft.default(field["name"], int(match[2]) if is_integer else match[2])


def _choices(field: Mapping[str, str]) -> list[tuple[str, str]]:
    """Codes and labels from "1, Yes | 2, No"."""
    listed = [part.strip() for part in field["choices"].split("|") if part.strip()]
    pairs = [(code.strip(), _shortened(label)) for code, _, label in (part.partition(",") for part in listed)]
    if not pairs or any(not code for code, _ in pairs):
        said = f"it has no choices of the form '1, Yes | 2, No', found {format_value(field['choices'])}"
        raise column_error(field["name"], f"{said}. Correct the data dictionary.")
    check_codes(field["name"], [code for code, _ in pairs])
    return pairs


def _shortened(text: str) -> str:
    plain = " ".join(re.sub(r"<[^>]*>", " ", text).split())  # labels may hold HTML
    return plain if len(plain) <= 120 else f"{plain[:117]}..."
