"""The contract of every method with a location, the hour of a datetime and a long ordinal list.

Methods with networks compile a program of their own for this table: they run with `make long-test`.
"""

from datetime import datetime, timedelta

import numpy as np
import pyarrow as pa
import pytest

import understudy as us
from tests.contract.test_contract import EXPRESSIONS, NEURAL, SEED, SMALL_NETS, fit, plan
from understudy.schema import Schema
from understudy.synthesizers import SYNTHESIZERS

GRADES = [f"grade {number}" for number in range(40)]
TRIANGLE = [[[13.0, 52.3], [13.8, 52.3], [13.4, 52.7], [13.0, 52.3]]]
SCHEMA = Schema.from_dict(
    {
        "rows": 326,
        "unit": "person",
        "max_rows_per_unit": 2,
        "target": "member",
        "columns": [
            {"name": "person", "kind": "id"},
            {
                "name": "home",
                "kind": "location",
                "latitude": "lat",
                "longitude": "lon",
                "region": [TRIANGLE],
                "per_unit": True,
            },
            {
                "name": "seen",
                "kind": "datetime",
                "bounds": ["2024-01-01T00:00:00", "2024-12-31T00:00:00"],
                "parts": ["hour"],
                "nullable": False,
            },
            {"name": "grade", "kind": "categorical", "categories": GRADES, "ordinal": True, "nullable": False},
            {"name": "member", "kind": "boolean", "nullable": False},
        ],
    }
)
METHODS = EXPRESSIONS | {"typed dpgan": f"dpgan{SMALL_NETS[:-1]}, features=typed)"}


def table_of_locations(num_rows: int = 400) -> pa.Table:
    """Points inside and outside the region, out of range and null; two rows for each person."""
    draw = np.random.default_rng(0)
    latitude, longitude = 52.4 + 0.1 * draw.standard_normal(num_rows), 13.4 + 0.2 * draw.standard_normal(num_rows)
    latitude[::50] = 123.0
    hours = draw.integers(0, 8000, num_rows).tolist()
    return pa.table(
        {
            "person": [f"p{row // 2}" for row in range(num_rows)],
            "lat": pa.array(latitude, mask=draw.random(num_rows) < 0.1),
            "lon": longitude,
            "seen": [datetime(2024, 1, 1) + timedelta(hours=hour) for hour in hours],
            "grade": draw.choice(GRADES, num_rows),
            "member": draw.random(num_rows) < 0.5,
        }
    )


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=[pytest.mark.long] if name in NEURAL or name not in SYNTHESIZERS else [])
        for name in METHODS
    ],
)
def test_every_method_makes_valid_points_at_the_planned_cost(name: str, tmp_path):
    method = METHODS[name]
    release = fit(method, seed=SEED, table=table_of_locations(), schema=SCHEMA)
    assert plan(method, SCHEMA).queries == release.statement.queries
    release.save(tmp_path / "release")
    fake = release.sample(500, seed=0)
    assert fake.equals(us.Release.load(tmp_path / "release").sample(500, seed=0))
    assert fake.column_names == ["person", "lat", "lon", "seen", "grade", "member"]
    latitude, longitude, known = SCHEMA.locations[0].read({name: fake.column(name) for name in ("lat", "lon")})
    assert SCHEMA.locations[0].region.contains(latitude[known], longitude[known]).all()
    assert (np.array(fake.column("lat").is_null()) == np.array(fake.column("lon").is_null())).all()
    assert set(fake.column("grade").to_pylist()) <= set(GRADES)
    assert min(fake.column("seen").to_pylist()) >= datetime(2024, 1, 1)
    units = fake.column("person").to_numpy()
    for unit in units[:20]:  # all rows of a unit are at one point
        assert len(set(fake.column("lat").filter(pa.array(units == unit)).to_pylist())) == 1
