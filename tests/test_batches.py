"""A table that is read in many batches gives the release of the same table in one."""

import numpy as np
import pyarrow as pa
import pytest

import understudy as us
from understudy.tables import stream

COLUMNS = {"who": {"kind": "id"}, "town": {"kind": "categorical"}, "age": {"kind": "integer"}, "pay": {"kind": "real"}}


def people() -> pa.Table:
    draw = np.random.default_rng(0)
    town = draw.choice(["north", "south", "east", "west"], 400, p=[0.5, 0.3, 0.15, 0.05])
    pay = [None if number % 9 == 0 else float(value) for number, value in enumerate(draw.gamma(2.0, 9.0, 400))]
    who = [f"p{number // 3}" for number in range(400)]
    return pa.table({"who": who, "town": town, "age": draw.integers(18, 80, 400), "pay": pay})


@pytest.mark.filterwarnings("ignore::understudy.UnderstudyWarning")
@pytest.mark.parametrize("unit", [{}, {"unit": "who", "max_rows_per_unit": 2}], ids=["rows", "units"])
def test_batches_do_not_change_a_release(unit: dict, monkeypatch: pytest.MonkeyPatch) -> None:
    schema = {"table": unit, "columns": COLUMNS}

    def rows() -> list[dict]:
        release = us.fit(people(), "mst", epsilon=20, schema=schema, seed=1)
        return [release.codec.to_dict(), *release.sample_arrow(50, seed=2).to_pylist()]

    whole = rows()
    monkeypatch.setattr(stream, "BATCH_ROWS", 7)
    assert rows() == whole
