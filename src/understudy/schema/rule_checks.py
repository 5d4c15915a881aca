"""Refuses rules that cannot be kept: by public facts alone, before anything is charged."""

import dataclasses
from collections.abc import Mapping, Sequence

from understudy.errors import SchemaError, did_you_mean
from understudy.schema.column import Column
from understudy.schema.rules import Rule, Skip, Sum


def checked_rules(rules: Sequence[Rule], columns: Sequence[Column]) -> tuple[Rule, ...]:
    """The rules with what the columns add to them. Raises SchemaError for the first that no table can keep."""
    by_name = {column.name: column for column in columns}
    for number, rule in enumerate(rules, start=1):
        _check_columns(number, rule, by_name)
    return tuple(_with_decimals(rule, by_name) if isinstance(rule, Sum) else rule for rule in rules)


def _check_columns(number: int, rule: Rule, columns: Mapping[str, Column]) -> None:
    """Every column must be modelled, and of a kind that the rule can be about."""
    for name in rule.columns:
        if name not in columns:
            raise SchemaError(
                f"Rule {number} ({rule.text}) is about column {name!r}, which the schema does not have."
                f"{did_you_mean(name, columns)}",
                column=name,
            )
        column = columns[name]
        if not column.modelled:
            why = "is dropped" if column.drop else f"has kind {column.kind!r}"
            raise SchemaError(
                f"Rule {number} ({rule.text}) is about column {name!r}, which {why} and so is not modelled. Remove the "
                "rule, or give the column another kind.",
                column=name,
            )
    if isinstance(rule, Sum):
        for name in rule.columns:
            if columns[name].kind not in ("integer", "real"):
                raise SchemaError(
                    f"Rule {number} ({rule.text}) adds up column {name!r} of kind {columns[name].kind!r}; expected "
                    "integer or real.",
                    column=name,
                )
    if isinstance(rule, Skip) and not columns[rule.skip].nullable:
        raise SchemaError(
            f"Rule {number} ({rule.text}) makes {rule.skip!r} null, but its nullable is false. Remove that line.",
            column=rule.skip,
        )


def _with_decimals(rule: Sum, columns: Mapping[str, Column]) -> Sum:
    decimals = [0 if columns[name].kind == "integer" else columns[name].decimals for name in rule.columns]
    known = [places for places in decimals if places is not None]
    return dataclasses.replace(rule, decimals=min(known) if len(known) == len(decimals) else None)
