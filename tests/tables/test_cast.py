"""Columns converted to their declared kinds, and to the types of their origin."""

import datetime as dt
from decimal import Decimal

import pyarrow as pa
import pytest

from tests.builders import raises
from understudy.errors import SchemaError
from understudy.schema import Column, Schema
from understudy.tables import (
    conform,
    from_frame,
    restyle,
)


def test_zoned_bounds_make_zoned_datetimes() -> None:
    lo, hi = dt.datetime(2020, 1, 1, tzinfo=dt.UTC), dt.datetime(2021, 1, 1, tzinfo=dt.UTC)
    schema = Schema(columns=(Column(name="t", kind="datetime", bounds=(lo, hi)),))
    table = conform(pa.table({"t": ["2020-06-01T10:00:00+02:00", "2020-06-01 10:00"]}), schema)
    assert table.schema.field("t").type == pa.timestamp("us", "UTC")
    assert [t.hour for t in table.column("t").to_pylist()] == [8, 10]


def test_conform_retypes_typed_columns() -> None:
    schema = Schema(
        columns=(
            Column(name="i", kind="integer"),
            Column(name="b", kind="boolean"),
            Column(name="r", kind="real"),
            Column(name="d", kind="date"),
            Column(name="c", kind="categorical", categories=("1", "2")),
        )
    )
    table = pa.table(
        {
            "i": [1.4, float("inf"), None],
            "b": [0, 1, None],
            "r": pa.array([1, 2, None]).cast(pa.decimal128(20, 1)),
            "d": pa.array([dt.datetime(2020, 1, 1, 23)] * 3, pa.timestamp("ns")),
            "c": [1, 2, None],
        }
    )
    assert conform(table, schema).to_pydict() == {
        "i": [1, 2**63 - 1, None],
        "b": [False, True, None],
        "r": [1.0, 2.0, None],
        "d": [dt.date(2020, 1, 1)] * 3,
        "c": ["1", "2", None],
    }


def test_a_type_that_no_rule_reads_is_an_error_of_a_drafted_schema_only() -> None:
    """What made the table may have chosen the type by the values, so with a declared schema it makes no refusal."""
    table, columns = pa.table({"x": [dt.date(2020, 1, 1)]}), (Column(name="x", kind="integer"),)
    with raises(SchemaError, column="x", key="kind"):
        conform(table, Schema(columns=columns, drafted=True))
    assert conform(table, Schema(columns=columns)) == pa.table({"x": pa.nulls(1, pa.int64())})


def test_an_unknown_format_is_a_schema_error() -> None:
    schema = Schema(columns=(Column(name="x", kind="date", format="%Q"),))
    for values in (["2020"], [dt.date(2020, 1, 1)]):  # the second would fail in writing, after the budget is spent
        with pytest.raises(SchemaError) as caught:
            conform(pa.table({"x": values}), schema)
        assert caught.value.key == "format"


@pytest.mark.parametrize(
    ("values", "kind", "expected"),
    [
        (pa.array([2**31 - 1, 0, None], pa.int32()).cast(pa.date32()), "datetime", 3),
        (pa.array([b"a", b"\xff", None], pa.binary()), "categorical", 3),
        (pa.array([Decimal("1e30"), Decimal(2**60 + 1)], pa.decimal128(38, 0)), "integer", 2),
    ],
    ids=["extreme date", "not UTF-8", "huge decimal"],
)
def test_no_value_makes_conforming_fail_or_touches_its_neighbours(values: pa.Array, kind: str, expected: int) -> None:
    """An error over a value would be a query; and each value is read by itself."""
    categories = ("a",) if kind == "categorical" else None
    schema = Schema(columns=(Column(name="x", kind=kind, categories=categories),))
    together = conform(pa.table({"x": values}), schema).column("x")
    assert len(together) == expected
    for at in range(len(values)):
        alone = conform(pa.table({"x": values.slice(at, 1)}), schema).column("x")
        assert alone.equals(together.slice(at, 1))


def test_restyle_gives_back_types() -> None:
    _, origin = from_frame(pa.table({"i": pa.array([1], pa.int16()), "d": pa.array([1]).cast(pa.decimal128(20, 1))}))
    styled = restyle(pa.table({"i": [2.6], "d": [1.26]}), origin)
    assert styled.schema.types == [pa.int16(), pa.decimal128(20, 1)]
    assert [str(v) for v in styled.to_pylist()[0].values()] == ["3", "1.3"]
