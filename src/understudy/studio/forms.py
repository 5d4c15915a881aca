"""The schema as the page edits it: a form of plain values, checked field by field. Reads no data."""

import tomllib
from collections.abc import Mapping
from typing import Any, TypedDict

from understudy.errors import SchemaError, UnderstudyError
from understudy.rules.rules import Keep, Rule, rule_from_dict
from understudy.rules.values import to_toml, to_toml_key
from understudy.schema import Schema
from understudy.schema.column import BOUNDED
from understudy.schema.toml import read_column


class Problem(TypedDict):
    """What is wrong with one field."""

    column: str | None
    """None: a setting of the table, or a rule."""
    key: str | None
    rule: int | None
    """The line of the rule, counted from 0."""
    message: str


def form_of(schema: Schema) -> dict[str, object]:
    """The form that shows this schema."""
    content = schema.to_dict()
    columns, _ = content.pop("columns"), content.pop("rules", None)
    return {"table": content, "columns": columns, "rules": [rule_line(rule) for rule in schema.rules]}


def read_form(form: Mapping[str, Any]) -> tuple[Schema | None, list[Problem]]:
    """The schema that a form describes; None, and what to correct, if it does not describe one.

    >>> read_form({"columns": [{"name": "age", "kind": "integer", "bounds": ["9", "1"]}]})[1][0]["key"]
    'bounds'
    """
    table, columns, rules = form.get("table", {}), form.get("columns", []), form.get("rules", [])
    if not (isinstance(table, dict) and isinstance(columns, list) and isinstance(rules, list)):
        return None, [_problem_of(SchemaError("The form must have a table, columns and rules."))]
    entries, problems = [], list[Problem]()
    for column in columns:
        try:
            entry = _column_entry(column)
            read_column(entry.get("name"), {key: value for key, value in entry.items() if key != "name"})
            entries.append(entry)
        except UnderstudyError as error:
            problems.append(_problem_of(error, column=str(column.get("name")) if isinstance(column, dict) else None))
    if problems:
        return None, problems
    stated = {key: value for key, value in table.items() if value not in (None, "")}
    if "positive" in stated:
        stated["positive"] = _class_of(stated["positive"], stated.get("target"), entries)
    try:
        schema = Schema.from_dict({**stated, "columns": entries})
    except UnderstudyError as error:
        return None, [_problem_of(error)]
    return _with_rules(schema, {**stated, "columns": entries}, rules)


def _with_rules(schema: Schema, content: dict[str, Any], lines: list[Any]) -> tuple[Schema | None, list[Problem]]:
    """The schema with rules added one by one, so that a problem belongs to a line."""
    read = list[dict[str, object]]()
    for at, line in enumerate(lines):
        if not str(line).strip():
            continue
        try:
            read.append(read_rule(str(line)).to_dict())
            schema = Schema.from_dict({**content, "rules": read})
        except UnderstudyError as error:
            return None, [{**_problem_of(error), "rule": at}]
    return schema, []


def rule_line(rule: Rule) -> str:
    """A rule on one line: its condition, or its keys in braces.

    >>> rule_line(Keep(keep="end >= start"))
    'end >= start'
    """
    if isinstance(rule, Keep) and rule.to_dict() == {"keep": rule.keep}:
        return " ".join(rule.keep.split())
    keys = ", ".join(f"{to_toml_key(key)} = {to_toml(value)}" for key, value in rule.to_dict().items())
    return f"{{{keys}}}"


def read_rule(line: str) -> Rule:
    """The rule on a line.

    >>> read_rule('{when = "age < 16", then = "married = false"}').text
    'when age < 16 then married = false'
    """
    line = line.strip()
    if not line.startswith("{"):
        return rule_from_dict(line)
    try:
        return rule_from_dict(tomllib.loads(f"rule = {line}")["rule"])
    except (tomllib.TOMLDecodeError, RecursionError):
        raise SchemaError(
            'A rule in braces is written as in TOML, on one line: {when = "age < 16", then = "married = \'no\'"}.'
        ) from None


def _column_entry(column: object) -> dict[str, Any]:
    """The keys of a column's section: strings of the form become the values that its kind has."""
    if not isinstance(column, dict):
        raise SchemaError("Every column of the form must be an object with a name.")
    entry = {key: value for key, value in column.items() if value is not None and value != ""}
    name, bounds = str(entry.get("name")), entry.get("bounds")
    if isinstance(bounds, list):
        if len(bounds) != 2 or any(bound in (None, "") for bound in bounds):
            raise SchemaError("Declare both bounds, or have them estimated privately.", column=name, key="bounds")
        if entry.get("kind") in BOUNDED[:2]:
            entry["bounds"] = [_number(bound) for bound in bounds]
    if entry.pop("numbers", False):
        if isinstance(listed := entry.get("categories", []), list):
            entry["categories"] = [_number(each) for each in listed]
        if "unknown" in entry:
            entry["unknown"] = _number(entry["unknown"])
    if entry.get("categories") == []:
        raise SchemaError(
            "List at least one category, or have them estimated privately.", column=name, key="categories"
        )
    return entry


def _class_of(text: object, target: object, entries: list[dict[str, Any]]) -> object:
    """The class of the target that a string names: a number or a truth value where the target has such classes."""
    column = next((entry for entry in entries if entry.get("name") == target), {})
    if column.get("kind") == "boolean" and str(text).lower() in ("false", "true"):
        return str(text).lower() == "true"
    is_numeric = any(isinstance(each, int | float) for each in column.get("categories") or [])
    return _number(text) if is_numeric or column.get("kind") == "integer" else text


def _number(value: object) -> object:
    """The number that a string spells; anything else as it is, for the schema to refuse."""
    for read in (int, float):
        try:
            return read(value) if isinstance(value, str) else value
        except ValueError:
            continue
    return value


def _problem_of(error: UnderstudyError, *, column: str | None = None) -> Problem:
    name = getattr(error, "column", None) or column
    return {"column": name, "key": getattr(error, "key", None), "rule": None, "message": str(error)}
