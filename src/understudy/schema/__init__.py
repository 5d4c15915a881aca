"""What is public about a table: column names, kinds, and whatever a person declared.

A schema is a small TOML file that a data steward can read. Column names and kinds are public. Categories, bounds and
the number of rows are either written there, by a person who vouches that they are public, or absent, and then
Understudy estimates them privately with part of the budget. Rules about single rows are public too. In this
folder only `check` and rules, which are functions of single rows, read values of a table.
"""

from understudy.schema.column import BOUNDED as BOUNDED
from understudy.schema.column import KINDS as KINDS
from understudy.schema.column import OTHER as OTHER
from understudy.schema.column import Column as Column
from understudy.schema.domain import MERGED_SIZE as MERGED_SIZE
from understudy.schema.domain import Clique as Clique
from understudy.schema.domain import Domain as Domain
from understudy.schema.domain import NumericDomain as NumericDomain
from understudy.schema.domain import StructuralZeros as StructuralZeros
from understudy.schema.locations import Location as Location
from understudy.schema.rules import Combinations as Combinations
from understudy.schema.rules import Determines as Determines
from understudy.schema.rules import Keep as Keep
from understudy.schema.rules import Rule as Rule
from understudy.schema.rules import Skip as Skip
from understudy.schema.rules import Sum as Sum
from understudy.schema.rules import WhenThen as WhenThen
from understudy.schema.schema import Schema as Schema
from understudy.schema.schema import SchemaSource as SchemaSource
from understudy.schema.schema import as_schema as as_schema
from understudy.schema.schema import match_columns as match_columns
from understudy.schema.values import Bound as Bound
from understudy.schema.values import Category as Category
