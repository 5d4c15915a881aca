"""What is public about a table: column names, kinds, and whatever a person declared.

A schema is a small TOML file that a data steward can read. Column names and kinds are public. Categories, bounds and
the number of rows are either written there, by a person who vouches that they are public, or absent, and then
Understudy estimates them privately with part of the budget. Rules about single rows are public too. In this
folder only functions of single rows, such as those of locations, read values of a table.
"""

from understudy.rules.rules import Combinations as Combinations
from understudy.rules.rules import Determines as Determines
from understudy.rules.rules import Keep as Keep
from understudy.rules.rules import Rule as Rule
from understudy.rules.rules import Skip as Skip
from understudy.rules.rules import Sum as Sum
from understudy.rules.rules import WhenThen as WhenThen
from understudy.rules.values import Bound as Bound
from understudy.rules.values import Category as Category
from understudy.schema.column import BOUNDED as BOUNDED
from understudy.schema.column import KINDS as KINDS
from understudy.schema.column import OTHER as OTHER
from understudy.schema.column import Column as Column
from understudy.schema.domain import MERGED_SIZE as MERGED_SIZE
from understudy.schema.domain import Domain as Domain
from understudy.schema.domain import NumericDomain as NumericDomain
from understudy.schema.domain import StructuralZeros as StructuralZeros
from understudy.schema.locations import Location as Location
from understudy.schema.schema import Schema as Schema
from understudy.schema.schema import SchemaSource as SchemaSource
from understudy.schema.schema import as_schema as as_schema
from understudy.schema.schema import match_columns as match_columns
