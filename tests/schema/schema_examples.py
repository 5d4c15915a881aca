"""A schema file with every key."""

PEOPLE = """
[table]
name = "Census 1994"
responsible = "Jane Doe, Census Bureau"
contact = "census@example.org"
rows = 32561
unit = "person_id"
max_rows_per_unit = 3
target = "income"
positive = ">50K"

[columns.person_id]
kind = "id"

[columns.age]
kind = "integer"
bounds = [17, 90]

[columns.workclass]
kind = "categorical"
nullable = false
unknown = "Other"
categories = ["Private", "State-gov", "Other"]

[columns.income]
kind = "categorical"
categories = ["<=50K", ">50K"]
closed = true

[columns.seen]
kind = "datetime"
bounds = [2020-01-01T00:00:00+02:00, 2021-01-01T00:00:00+02:00]

[columns.born]
kind = "date"
format = "%d.%m.%Y"
bounds = [1900-01-01, 2020-12-31]

[columns.weight]
kind = "real"

[columns.notes]
kind = "text"
drop = true
"""
