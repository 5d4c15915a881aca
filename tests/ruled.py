"""A made table with one rule of each kind, and rows that break each of them."""

import dataclasses

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

import understudy as us

RULES = """
[table]
rows = 326
unit = "person"
max_rows_per_unit = 2
target = "member"
[columns.person]
kind = "id"
[columns.start]
kind = "integer"
bounds = [0, 9]
nullable = false
[columns.stop]
kind = "integer"
bounds = [0, 30]
[columns.member]
kind = "boolean"
nullable = false
[columns.club]
kind = "categorical"
categories = ["chess", "none"]
closed = true
[columns.grade]
kind = "categorical"
categories = [1, 2, 3]
closed = true
nullable = false
[columns.country]
kind = "categorical"
categories = ["France", "Peru"]
closed = true
per_unit = true
nullable = false
[columns.currency]
kind = "categorical"
categories = ["EUR", "PEN", "USD"]
closed = true
per_unit = true
nullable = false
[columns.hours]
kind = "integer"
bounds = [0, 24]
nullable = false
[columns.rest]
kind = "integer"
bounds = [0, 24]
nullable = false
[columns.employer]
kind = "categorical"
categories = ["A", "B"]
closed = true
[[rules]]
keep = "stop >= start AND stop - start <> 4"
[[rules]]
when = "start > 5"
then = "grade <> 3"
[[rules]]
combinations = ["country", "currency"]
allowed = [["France", "EUR"], ["Peru", "PEN"], ["Peru", "USD"]]
[[rules]]
combinations = ["grade", "employer"]
forbidden = [[1, "A"]]
[[rules]]
determines = ["member"]
gives = ["club"]
table = [[true, "chess"], [false, "none"]]
[[rules]]
sum = ["hours", "rest"]
equals = 24
[[rules]]
skip = "employer"
when = "NOT member"
"""
"""Satisfied by a difference and by rejection, by structural zeros, by a joint column, a lookup, and shares."""


def ruled_schema(**facts: object) -> us.Schema:
    return dataclasses.replace(us.Schema.from_toml(RULES), **facts)  # type: ignore[arg-type]  # keywords of several types


def ruled_table(num_rows: int = 397, *, seed: int = 0, broken: float = 0.1) -> pa.Table:
    """Rows that satisfy the rules, but for a fraction of each column that is shuffled, so that some rows break each."""
    draw = np.random.default_rng(seed)
    start, member = draw.integers(0, 10, num_rows), draw.random(num_rows) < 0.5
    length = draw.choice([0, 1, 2, 3, 5, 9], num_rows)
    grade = np.where(start > 5, draw.integers(1, 3, num_rows), draw.integers(1, 4, num_rows))
    employer = np.where(grade == 1, "B", draw.choice(["A", "B"], num_rows))
    country, hours = draw.choice(["France", "Peru"], num_rows), draw.integers(0, 25, num_rows)
    columns: dict[str, np.ndarray] = {
        "start": start,
        "stop": start + length,
        "member": member,
        "club": np.where(member, "chess", "none").astype(object),
        "grade": grade,
        "country": country.astype(object),
        "currency": np.where(country == "France", "EUR", draw.choice(["PEN", "USD"], num_rows)).astype(object),
        "hours": hours,
        "rest": 24 - hours,
        "employer": np.array([name if works else None for name, works in zip(employer, member, strict=True)]),
    }
    for name, values in columns.items():
        moved = np.flatnonzero(draw.random(num_rows) < broken)
        columns[name][moved] = values[draw.permutation(moved)]
    person = [f"p{at // 2:04}" for at in range(num_rows)]
    types = {"employer": pa.string()}  # even if all of them are null
    arrays = {name: pa.array(values, types.get(name)) for name, values in columns.items()}
    return pa.table({"person": person, **arrays})


def violations(rows: pa.Table, schema: us.Schema) -> dict[str, int]:
    """How many rows break each rule, of those that some row breaks; and how many are outside the bounds of a column."""
    found = {rule.text: int(rule.broken(rows).sum()) for rule in schema.rules}
    for column in schema.columns:
        if column.bounds is not None:
            values = rows.column(column.name)
            lower, upper = (pa.scalar(bound, values.type) for bound in column.bounds)
            outside = pc.or_(pc.less(values, lower), pc.greater(values, upper))
            found[column.name] = pc.sum(outside).as_py() or 0
    return {text: count for text, count in found.items() if count}
