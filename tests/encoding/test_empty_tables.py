"""A table without rows is fitted like any other, whatever its kinds of columns: whether it fails must not reveal it."""

from datetime import date, datetime

import pyarrow as pa
import pytest

import understudy as us

BOX: dict[str, object] = {"kind": "location", "box": [52.3, 13.0, 52.7, 13.8]}
SITES: dict[str, object] = {"kind": "location", "sites": [[52.3, 13.0], [52.7, 13.8]]}
MOMENTS: dict[str, object] = {"kind": "datetime", "bounds": [datetime(2020, 1, 1), datetime(2021, 1, 1)]}

COLUMNS: dict[str, dict[str, object]] = {
    "coordinates": BOX,
    "points": BOX | {"format": "wkt"},
    "sites": SITES,
    "codes": SITES | {"codes": ["a", "b"]},
    "parts of a date": {"kind": "date", "bounds": [date(2020, 1, 1), date(2021, 1, 1)], "parts": ["month", "weekday"]},
    "parts of a time": MOMENTS | {"parts": ["hour", "weekday"]},
    "time": MOMENTS,
    "ordinal": {"kind": "categorical", "ordinal": True, "categories": [f"grade {number}" for number in range(40)]},
    "cyclic": {"kind": "integer", "bounds": [0, 23], "cyclic": True},
    "categories": {"kind": "categorical"},
    "integers": {"kind": "integer"},
    "reals": {"kind": "real", "bounds": [0.0, 1.0]},
    "booleans": {"kind": "boolean"},
}


@pytest.mark.parametrize("rows", [[], [None]])
@pytest.mark.parametrize("name", COLUMNS)
def test_no_rows_and_no_values_give_a_release(name: str, rows: list[None]) -> None:
    table = pa.table({"value": pa.array(rows, pa.string())})
    release = us.fit(table, "independent", epsilon=1, schema={"columns": {"value": COLUMNS[name]}})
    assert release.sample(5).num_rows == 5
