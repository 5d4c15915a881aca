"""Ordinal columns: the listed order in schemas, codes and metrics."""

import numpy as np
import pyarrow as pa
import pytest

import understudy as us
from tests.builders import raises
from understudy.encoding import NumericCodec, reexpress
from understudy.errors import SchemaError
from understudy.evaluation.marginals import one_way
from understudy.evaluation.table import Layout
from understudy.schema import Column, Schema

GRADES = tuple(f"grade {number}" for number in range(40))


def _schema(**keys: object) -> Schema:
    return Schema(columns=(Column(name="grade", kind="categorical", categories=GRADES, ordinal=True, **keys),))  # type: ignore[arg-type]


def test_an_ordinal_list_is_complete_and_needs_categories():
    assert _schema()["grade"].closed
    assert not _schema(unknown="grade 3")["grade"].closed
    assert Schema.from_toml(_schema().to_toml()) == _schema()
    with raises(SchemaError, key="ordinal"):
        Column(name="grade", kind="categorical", ordinal=True)
    with raises(SchemaError, key="ordinal"):
        Column(name="grade", kind="integer", ordinal=True)


@pytest.mark.parametrize(
    ("keys", "expected"),
    [
        ({}, ["grade 7", None, None, "grade 39"]),
        ({"nullable": False}, ["grade 7", "grade 0", "grade 0", "grade 39"]),
        ({"unknown": "grade 5"}, ["grade 7", "grade 5", None, "grade 39"]),
    ],
)
def test_ranks_make_the_round_trip(keys: dict, expected: list):
    known = reexpress(_schema(**keys))
    table = pa.table({"grade": ["grade 7", "none of them", None, "grade 39"]})
    expressed = known.express(table)
    ranks = [None if text is None else GRADES.index(text) for text in expected]
    assert expressed.column("grade").to_pylist() == ranks
    assert known.restore(expressed).column("grade").to_pylist() == expected


def test_rare_categories_share_a_code_with_their_neighbours():
    """In a list without an order nothing is merged; here the codes are runs of ranks, and all grades come back."""
    chosen = np.random.default_rng(0).choice(40, 4000, p=np.r_[np.full(4, 0.2), np.full(36, 0.2 / 36)])
    table = pa.table({"grade": [GRADES[rank] for rank in chosen]})
    with pytest.warns(us.UnderstudyWarning, match="seeded"):
        release = us.fit(table, "independent", epsilon=2, schema=_schema(nullable=False), seed=0)
    (column,) = release.codec.columns
    assert isinstance(column, NumericCodec)
    codes = release.codec.encode(pa.table({"grade": list(GRADES)}))[:, 0]
    assert (np.diff(codes) >= 0).all()
    assert len(set(codes.tolist())) == column.size < 40
    assert len(set(codes[:4].tolist())) == 4  # frequent ones are alone
    assert set(release.sample(2000, seed=1).column("grade").to_pylist()) > set(GRADES[:4])


def test_distances_count_ranks():
    schema = Schema(columns=(Column(name="g", kind="categorical", categories=("a", "b", "c", "d"), ordinal=True),))
    tables = [pa.table({"g": [value] * 10 + ["a"] * 10}) for value in ("b", "c", "d")]
    layout = Layout.of(tables[0], schema)
    real, near, far = (layout.read(table, "table") for table in tables)
    close, distant = (one_way(real, other).scores["w1"].value for other in (near, far))
    assert close == pytest.approx(0.5 / 3)
    assert distant == pytest.approx(1 / 3)
    assert one_way(real, far).scores["ks"].value == pytest.approx(0.5)
    assert layout.read(tables[2], "table").features()[:, 0].tolist() == [1.0] * 10 + [0.0] * 10
    assert layout.feature_names() == ["g"]
