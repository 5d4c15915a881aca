"""What a release would keep: exact counts against plans, for the steward only."""

import hashlib
import math
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

import understudy as us
from understudy.cli import run
from understudy.privacy.mechanisms.discovery import rows_to_be_listed
from understudy.steward.preview import EPSILONS, WARNING

GUARANTEE = us.Guarantee(1.0, 1e-6)
TABLE = pa.table(
    {
        "town": ["north"] * 700 + ["south"] * 250 + ["east"] * 40 + [f"village {n}" for n in range(10)],
        "sex": ["f"] * 490 + ["m"] * 490 + ["x"] * 20,
        "age": [n % 100 for n in range(1000)],
    }
)
COLUMNS = (
    us.Column(name="town", kind="categorical"),
    us.Column(name="sex", kind="categorical", categories=("f", "m")),
    us.Column(name="age", kind="integer", bounds=(0, 89)),
)


def of(found: us.Preview, name: str) -> tuple[int | None, int | None, float | None, float]:
    """Values, values kept, rows unchanged and "other" of one column."""
    assert found.chosen.columns is not None
    (column,) = (each for each in found.chosen.columns if each.name == name)
    kept = None if column.values_kept is None else round(column.values_kept)
    unchanged = None if column.unchanged is None else round(column.unchanged, 2)
    return column.num_values, kept, unchanged, round(column.other, 2)


def test_what_survives_of_each_column() -> None:
    """By declared lists and bounds exactly; by the threshold of the plan where a list is estimated."""
    found = us.preview(TABLE, "mst", GUARANTEE, schema=us.Schema(columns=COLUMNS))
    assert (found.num_rows, found.used_rows) == (1000, 1000)
    assert of(found, "sex") == (3, 2, 0.98, 0.02)
    assert of(found, "age") == (None, None, 0.9, 0.0)
    plan = us.plan(us.Schema(columns=COLUMNS), "mst", GUARANTEE)
    assert found.chosen.rows_to_be_listed == rows_to_be_listed(plan["categories"])
    assert 40 < rows_to_be_listed(plan["categories"]) < 250
    assert found.chosen.stddev == min(each.stddev for each in plan.expected)
    values, kept, unchanged, other = of(found, "town")
    assert (values, kept) == (13, 2)
    assert unchanged == pytest.approx(1 - other)
    assert 0.03 <= other <= 0.05


@pytest.mark.parametrize(
    ("keys", "other"), [({"closed": True}, 0.0), ({"unknown": "f"}, 0.0), ({"nullable": False}, 0.02)]
)
def test_other_is_what_becomes_other(keys: dict, other: float) -> None:
    column = us.Column(**{"name": "sex", "kind": "categorical", "categories": ("f", "m"), **keys})
    found = us.preview(TABLE.select(["sex"]), "independent", GUARANTEE, schema=us.Schema(columns=(column,)))
    assert of(found, "sex") == (3, 2, 0.98, other)


def test_the_chance_of_being_listed_is_that_of_the_draws() -> None:
    """Against the lists of 200 runs with noise: the share of runs in which a value at the threshold is kept.

    The standard error of the share is at most 0.035; the seeds are fixed, and four of them are allowed.
    """
    schema = us.Schema(columns=(us.Column(name="c", kind="categorical", nullable=False),), rows=1000)
    plan = us.plan(schema, "independent", GUARANTEE)
    event = plan["categories"].event
    at = rows_to_be_listed(plan["categories"]) + round(0.5 * event.stddev)  # type: ignore[attr-defined]  # counts have a stddev
    table = pa.table({"c": ["a"] * (1000 - at) + ["b"] * at})
    found = us.preview(table, "independent", GUARANTEE, schema=schema)
    assert found.chosen.columns is not None
    expected = found.chosen.columns[0].values_kept
    assert expected is not None
    kept = []
    for seed in range(200):
        release = us.fit(table, "independent", GUARANTEE, schema=schema, seed=seed)
        kept.append(len(release.codec.columns[0].categories) - 1)  # type: ignore[union-attr]  # a categorical column
    assert np.mean(kept) == pytest.approx(expected, abs=4 * math.sqrt(0.25 / 200))


def test_more_epsilon_keeps_more() -> None:
    found = us.preview(TABLE, "mst", us.Guarantee(2.0, 1e-6), schema=us.Schema(columns=COLUMNS))
    assert tuple(each.epsilon for each in found.outlooks) == EPSILONS
    assert found.chosen.epsilon == 2.0
    for less, more in zip(found.outlooks, found.outlooks[1:], strict=False):
        assert less.stddev is not None
        assert more.stddev is not None
        assert less.stddev > more.stddev
        assert less.other is not None
        assert more.other is not None
        assert less.other >= more.other


def test_rows_beyond_the_limit_of_a_unit_are_not_used() -> None:
    table = pa.table({"who": [1, 1, 1, 2, None], "sex": ["f", "f", "f", "m", "x"]})
    columns = (us.Column(name="who", kind="id"), COLUMNS[1])
    schema = us.Schema(columns=columns, unit="who", max_rows_per_unit=2)
    found = us.preview(table, "independent", GUARANTEE, schema=schema)
    assert (found.num_rows, found.used_rows) == (5, 3)
    assert of(found, "sex") == (2, 2, 1.0, 0.0)


def test_values_that_the_declared_kind_cannot_read_do_not_survive(tmp_path: Path) -> None:
    """Decimal commas that are read as points are null, all of them; what is declared missing is not lost."""
    path = tmp_path / "weights.csv"
    path.write_text("weight;height\n" + "70,5;unknown\n80,5;1\n" * 50)
    columns = us.Column(name="weight", kind="real"), us.Column(name="height", kind="integer", missing=("unknown",))
    schema = us.Schema(columns=columns)
    for decimal, unchanged in ((None, 0.0), (",", None)):
        found = us.preview(path, "independent", GUARANTEE, schema=schema, reading=us.ReadOptions(decimal=decimal))
        assert found.chosen.columns is not None
        weight, height = found.chosen.columns
        assert (weight.unchanged, height.unchanged) == (unchanged, None)


@pytest.mark.parametrize("method", ["dpgan", "adaptive"])
def test_any_method_and_no_rows(method: str) -> None:
    """Trained methods do not know the noise of counts; an empty table has nothing to lose."""
    found = us.preview(TABLE.slice(0, 0), method, GUARANTEE, schema=us.Schema(columns=COLUMNS))
    assert (found.chosen.stddev is None) == (method == "dpgan")
    assert of(found, "sex") == (0, 0, 1.0, 0.0)


def test_the_command_prints_first_that_it_is_not_private_and_writes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "100")
    Path("people.csv").write_text("sex,age\n" + "".join(f"{'fm'[n % 2]},{n % 90}\n" for n in range(30)))
    before = {path: hashlib.sha256(path.read_bytes()).hexdigest() for path in tmp_path.iterdir()}
    assert run(["preview", "people.csv", "--epsilon", "1", "--method", "independent"]) == 0
    out = capsys.readouterr().out
    assert " ".join(out.split()).startswith(" ".join(WARNING.split()))
    assert "The table has 30 rows. At epsilon 1:" in out
    assert "Warning: 30 rows are too few for epsilon 1" in " ".join(out.split())
    assert {path: hashlib.sha256(path.read_bytes()).hexdigest() for path in tmp_path.iterdir()} == before
    assert run(["preview", "people.csv"]) == 2
    assert run(["preview", "people.csv", "--epsilon", "1000"]) == 2
    assert "too large to give meaningful protection" in capsys.readouterr().err
