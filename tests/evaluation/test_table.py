"""One scale for real and synthetic tables, which no synthetic table can move."""

import dataclasses
import datetime

import numpy as np
import pyarrow as pa
import pytest

from tests.builders import raises
from understudy.errors import SchemaError, TableError
from understudy.evaluation.table import Layout
from understudy.schema import Column, Schema

SCHEMA = Schema(
    columns=(
        Column(name="age", kind="integer", bounds=(0, 100)),
        Column(name="city", kind="categorical", categories=("a", "b", "c"), closed=True),
        Column(name="smokes", kind="boolean"),
        Column(name="note", kind="text"),
    )
)
REAL = pa.table(
    {
        "age": [10, 50, None, 100],
        "city": ["a", "c", "z", None],
        "smokes": [True, False, True, True],
        "note": list("wxyz"),
    }
)


def test_a_table_is_codes_and_numbers() -> None:
    layout = Layout.of(REAL, SCHEMA)
    encoded = layout.read(REAL, "real table")
    assert layout.names == ("age", "city", "smokes")
    np.testing.assert_array_equal(encoded["age"], [10, 50, np.nan, 100])
    assert encoded["city"].tolist() == [0, 2, 4, 3]  # unlisted is one past null, which is one past the levels
    assert encoded["smokes"].tolist() == [1, 0, 1, 1]
    assert any("note" in sentence for sentence in layout.notes)


def test_features_follow_from_the_layout() -> None:
    layout = Layout.of(REAL, SCHEMA)
    features = layout.read(REAL, "real table").features()
    expected = [
        [0.1, 0, 1, 0, 0, 0, 1],
        [0.5, 0, 0, 0, 1, 0, 0],
        [0.0, 1, 0, 0, 0, 0, 1],
        [1.0, 0, 0, 0, 0, 1, 1],
    ]
    np.testing.assert_allclose(features, expected, atol=1e-7)
    assert layout.feature_names() == [
        "age",
        "age is missing",
        "city=a",
        "city=b",
        "city=c",
        "city=(missing)",
        "smokes=True",
    ]


def test_values_outside_stay_and_features_are_clipped() -> None:
    layout = Layout.of(REAL, SCHEMA)
    wild = layout.read(pa.table({"age": [-50, 150], "city": ["a", "a"], "smokes": [True, True]}), "synthetic table")
    assert wild["age"].tolist() == [-50, 150]
    assert wild.features(["age"])[:, 0].tolist() == [0, 1]
    assert wild.scale("age").tolist() == [-0.5, 1.5]
    assert wild.bin_codes("age", 10) == (pytest.approx([0, 9]), 11)


def test_bins_are_those_of_a_loop() -> None:
    values = np.random.default_rng(0).uniform(-10, 110, 500)
    layout = Layout.of(REAL, SCHEMA)
    table = pa.table({"age": np.rint(values), "city": ["a"] * 500, "smokes": [True] * 500})
    cells, size = layout.read(table, "synthetic table").bin_codes("age", 20)
    expected = [min(19, max(0, int(np.rint(value) // 5))) for value in values]
    assert cells.tolist() == expected
    assert size == 21


def test_without_a_schema_the_real_table_sets_the_scale_and_this_is_said() -> None:
    real = pa.table(
        {"x": [1.0, 3.0, 2.0], "kind": ["b", "a", "b"], "day": [datetime.date(2020, 1, d) for d in (1, 2, 3)]}
    )
    layout = Layout.of(real)
    assert (layout["x"].lower, layout["x"].upper) == (1.0, 3.0)
    assert layout["kind"].categories == ("a", "b")
    assert layout["day"].upper - layout["day"].lower == 2
    assert "inferred from the real table" in layout.notes[0]


def test_what_a_schema_leaves_open_is_named() -> None:
    schema = Schema(
        columns=(Column(name="x", kind="real"), Column(name="k", kind="categorical", categories=("a",), closed=True))
    )
    layout = Layout.of(pa.table({"x": [0.0, 2.0], "k": ["a", "a"]}), schema)
    assert layout["x"].upper == 2.0
    assert any('"x"' in note and '"k"' not in note for note in layout.notes)


def test_names_and_empty_columns_are_left_out_and_this_is_said() -> None:
    real = pa.table(
        {"name": [f"person {i}" for i in range(200)], "x": range(200), "empty": pa.nulls(200, pa.float64())}
    )
    layout = Layout.of(real)
    assert layout.names == ("x",)
    assert any('"name"' in note and '"empty"' in note for note in layout.notes)


def test_no_column_left_is_an_error() -> None:
    with pytest.raises(TableError):
        Layout.of(pa.table({"name": [f"person {i}" for i in range(200)]}))


@pytest.mark.parametrize(
    ("table", "column"),
    [
        (pa.table({"age": [1], "city": ["a"]}), "smokes"),
        (pa.table({"Age": [1], "city": ["a"], "smokes": [True]}), "age"),
    ],
)
def test_missing_columns_are_named(table: pa.Table, column: str) -> None:
    with raises(SchemaError, column=column):
        Layout.of(REAL, SCHEMA).read(table, "synthetic table")


def test_parts_are_disjoint_and_repeatable() -> None:
    real = pa.table({"x": np.arange(100.0)})
    encoded = Layout.of(real).read(real, "real table")
    first, second = encoded.split(0.8, seed=3)
    assert (first.num_rows, second.num_rows) == (80, 20)
    assert sorted([*first["x"], *second["x"]]) == list(range(100))
    assert encoded.split(0.8, seed=3)[1]["x"].tolist() == second["x"].tolist()
    assert len(set(encoded.at_most(30, seed=1)["x"])) == 30
    assert encoded.at_most(None, seed=1) is encoded


def test_unlisted_values_are_the_declared_unknown_in_every_table() -> None:
    """As in the synthesizer's codec; else they have a code of their own."""
    city = Column(name="city", kind="categorical", categories=("a", "b", "rest"), unknown="rest")
    schema = Schema(columns=(city, SCHEMA["smokes"]))
    real = pa.table({"city": ["a", "z", None, "rest"], "smokes": [True] * 4})
    layout = Layout.of(real, schema)
    assert layout.read(real, "real table")["city"].tolist() == [0, 2, 3, 2]
    features = layout.read(real, "real table").features(["city"])
    np.testing.assert_array_equal(features, [[1, 0, 0, 0], [0, 0, 1, 0], [0, 0, 0, 1], [0, 0, 1, 0]])


def test_unlisted_values_of_an_open_list_are_other_in_every_table() -> None:
    """Texts have a code of their own, of which "other" is one; numbers become nulls. Neither makes a third class."""
    columns = (
        Column(name="sex", kind="categorical", categories=("f", "m")),
        Column(name="code", kind="categorical", categories=(1, 2), nullable=False),
    )
    real = pa.table({"sex": ["f", "x", "m"], "code": [1, 7, 2]})
    layout = Layout.of(real, Schema(columns=columns))
    assert layout.read(real, "real table")["sex"].tolist() == [0, 3, 1]
    assert layout.read(real, "real table")["code"].tolist() == [0, 2, 1]
    assert layout["code"].has_nulls
    assert layout["sex"].is_binary
    fake = layout.read(pa.table({"sex": ["other", "m"], "code": [None, 2]}), "synthetic table")
    assert (fake["sex"].tolist(), fake["code"].tolist()) == ([3, 1], [2, 1])
    closed = [dataclasses.replace(column, closed=True) for column in columns]
    assert Layout.of(real, Schema(columns=tuple(closed))).read(real, "real table")["code"].tolist() == [0, 3, 1]


def test_only_the_most_frequent_of_many_levels_have_features() -> None:
    draw = np.random.default_rng(0)
    codes = np.r_[np.repeat(np.arange(500, 1500), 4), np.arange(2500), draw.integers(500, 1500, 3000)]
    values = [f"level {code:04}" for code in codes] + [None, "new"]
    real = pa.table({"k": values[:-1]})
    layout = Layout.of(real)
    encoded = layout.read(pa.table({"k": values}), "synthetic table")
    features = encoded.features()
    assert features.shape == (len(values), 1001)
    names = layout.feature_names()
    assert names[0] == "k=level 0500"
    assert names[-1] == "k=(missing)"
    frequent = (codes >= 500) & (codes < 1500)
    np.testing.assert_array_equal(features[:-2].argmax(axis=1)[frequent], codes[frequent] - 500)
    np.testing.assert_array_equal(features.sum(axis=1), np.r_[frequent, True, False])
    assert any("1,000 most frequent" in note for note in layout.notes)
