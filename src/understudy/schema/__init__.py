"""What is public about a table: column names, kinds, and whatever a person declared.

A schema is a small TOML file that a data steward can read. Column names and kinds are public. Categories, bounds and
the number of rows are either written there, by a person who vouches that they are public, or absent, and then
Understudy estimates them privately with part of the budget. Nothing in this folder but `check` reads a value of a
table.
"""

from understudy.schema.column import BOUNDED, KINDS, Column
from understudy.schema.domain import MERGED_SIZE, Clique, Domain, NumericDomain
from understudy.schema.schema import Schema, match_columns
from understudy.schema.values import Bound, Category

__all__ = [
    "BOUNDED",
    "KINDS",
    "MERGED_SIZE",
    "Bound",
    "Category",
    "Clique",
    "Column",
    "Domain",
    "NumericDomain",
    "Schema",
    "match_columns",
]
