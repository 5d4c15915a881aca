"""Cyclic numbers, and dates and times modelled by their parts."""

from datetime import date, datetime

import jax
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import understudy as us
from tests.builders import raises
from tests.examples import scaled
from understudy.encoding import reexpress
from understudy.encoding.features import Circle, Layout, layout_of
from understudy.errors import SchemaError
from understudy.schema import Column, Domain, NumericDomain, Schema

FIRST, LAST = datetime(2019, 12, 30, 5), datetime(2024, 3, 1, 12)
DATE_PARTS = [("month",), ("weekday",), ("month", "weekday")]


def _schema(kind: str, parts: tuple[str, ...], **keys: object) -> Schema:
    bounds = (FIRST, LAST) if kind == "datetime" else (FIRST.date(), LAST.date())
    return Schema(columns=(Column(name="when", kind=kind, bounds=bounds, parts=parts, **keys),))  # type: ignore[arg-type]


@pytest.mark.parametrize("parts", [("hour",), ("hour", "weekday"), *DATE_PARTS, ("month", "weekday", "hour")])
@settings(max_examples=scaled(25))
@given(moments=st.lists(st.one_of(st.none(), st.datetimes(FIRST, LAST)), min_size=1, max_size=20))
def test_datetimes_make_the_round_trip_to_the_second(parts: tuple[str, ...], moments: list):
    known = reexpress(_schema("datetime", parts))
    expressed = known.express(pa.table({"when": pa.array(moments, pa.timestamp("us"))}))
    restored = known.restore(expressed).column("when").to_pylist()
    assert restored == [None if moment is None else moment.replace(microsecond=0) for moment in moments]
    for number, name in (("hour", "hour"), ("month", "month")):
        if name in parts:
            column = expressed.column(f"when ({name})").to_pylist()
            assert column == [None if moment is None else getattr(moment, number) for moment in moments]
    if "weekday" in parts:
        column = expressed.column("when (weekday)").to_pylist()
        assert column == [None if moment is None else moment.weekday() for moment in moments]


@pytest.mark.parametrize("resolution", ["second", "minute", "hour", "day"])
@pytest.mark.parametrize("parts", [None, ("hour",), ("weekday",), ("month", "weekday", "hour")])
@settings(max_examples=scaled(10))
@given(moments=st.lists(st.one_of(st.none(), st.datetimes(FIRST, LAST)), min_size=1, max_size=20))
def test_datetimes_are_cut_to_their_resolution(parts: tuple[str, ...] | None, resolution: str, moments: list):
    """The first bound is no midnight: days before the first whole one become that one."""
    if resolution == "day" and "hour" in (parts or ()):
        return
    known = reexpress(_schema("datetime", parts, resolution=resolution))  # type: ignore[arg-type]
    table = pa.table({"when": pa.array(moments, pa.timestamp("us"))})
    restored = known.restore(known.express(table)).column("when").to_pylist()
    zeros = {"microsecond": 0, "second": 0, "minute": 0, "hour": 0}
    cleared = dict(list(zeros.items())[: ["second", "minute", "hour", "day"].index(resolution) + 1])
    first = datetime(2019, 12, 31) if resolution == "day" else FIRST
    assert restored == [None if moment is None else max(moment.replace(**cleared), first) for moment in moments]
    assert known.clean(table).column("when").to_pylist() == restored


@pytest.mark.parametrize(
    "keys",
    [
        {"kind": "datetime", "resolution": "minutes"},
        {"kind": "datetime", "resolution": "minute", "bounds": None},
        {"kind": "datetime", "resolution": "day", "parts": ("hour",)},
        {"kind": "date", "resolution": "day"},
        {"kind": "datetime", "resolution": "day", "bounds": (FIRST, datetime(2019, 12, 31))},
    ],
)
def test_resolutions_that_cannot_be(keys: dict):
    bounds = (FIRST, LAST) if keys["kind"] == "datetime" else (FIRST.date(), LAST.date())
    with raises(SchemaError, column="when", key="resolution"):
        Column(name="when", **{"bounds": bounds, **keys})


def test_a_release_keeps_the_resolution():
    """In frames too, where no text format cuts the values."""
    generator = np.random.default_rng(0)
    minutes = np.datetime64("2024-01-01T00:00") + generator.integers(0, 500_000, 500).astype("timedelta64[m]")
    column = Column(
        name="when", kind="datetime", bounds=(datetime(2024, 1, 1), datetime(2024, 12, 31)), resolution="minute"
    )
    table = pa.table({"when": pa.array(minutes.astype("datetime64[us]"))})
    fake = us.fit(table, "independent", epsilon=1, schema=Schema(columns=(column,), rows=500)).sample(200)
    found = [moment for moment in fake["when"].to_pylist() if moment is not None]
    assert len({moment.minute for moment in found}) > 20
    assert all(moment.second == moment.microsecond == 0 for moment in found)


@pytest.mark.parametrize("parts", DATE_PARTS)
def test_every_date_makes_the_round_trip(parts: tuple[str, ...]):
    known = reexpress(_schema("date", parts))
    days = pa.array(np.arange(np.datetime64(FIRST.date()), np.datetime64(LAST.date()) + 1))
    assert known.restore(known.express(pa.table({"when": days}))).column("when").to_pylist() == days.to_pylist()


@pytest.mark.parametrize("kind", ["date", "datetime"])
@pytest.mark.parametrize("parts", DATE_PARTS)
def test_any_combination_of_parts_is_a_value_inside_the_bounds(kind: str, parts: tuple[str, ...]):
    schema = _schema(kind, parts, nullable=False)
    known = reexpress(schema)
    generator = np.random.default_rng(0)
    drawn = {
        column.name: generator.integers(column.bounds[0], column.bounds[1], 500, endpoint=True)  # type: ignore[index, arg-type]
        for column in known.modelled.columns
    }
    restored = known.restore(pa.table(drawn)).column("when")
    lower, upper = schema["when"].bounds  # type: ignore[misc]
    assert restored.null_count == 0
    assert pc.min(restored).as_py() >= lower
    assert pc.max(restored).as_py() <= upper
    weekdays = np.array([moment.weekday() for moment in restored.to_pylist()])
    if parts == ("weekday",):  # also in the first and the last week
        assert (weekdays == drawn["when (weekday)"]).all()


@pytest.mark.parametrize(
    "keys",
    [
        {"kind": "datetime", "parts": ["hour"]},
        {"kind": "date", "bounds": (date(2020, 1, 1), date(2021, 1, 1)), "parts": ["hour"]},
        {"kind": "date", "bounds": (date(2020, 1, 1), date(2021, 1, 1)), "parts": "weekday"},
        {"kind": "date", "bounds": (date(2020, 1, 1), date(2021, 1, 1)), "parts": ["month"] * 2},
        {"kind": "integer", "cyclic": True},
        {"kind": "boolean", "cyclic": True},
    ],
)
def test_bad_parts_are_refused(keys: dict):
    with raises(SchemaError, column="when", key=list(keys)[-1]):
        Column(name="when", **keys)


def test_numbers_have_no_parts():
    with pytest.raises(SchemaError, match="only for kind datetime or date"):
        Column(name="when", kind="integer", parts=["hour"])  # type: ignore[arg-type]


def test_parts_and_cycles_make_the_round_trip_of_a_schema_file():
    schema = Schema(
        columns=(
            *_schema("datetime", ("hour", "weekday")).columns,
            Column(name="hour", kind="integer", bounds=(0, 23), cyclic=True),
        )
    )
    assert Schema.from_toml(schema.to_toml()) == schema
    assert Schema.from_dict(schema.to_dict()) == schema


def _hours(*, nullable: bool) -> tuple[Layout, Domain]:
    edges = tuple((np.arange(25) / 24).tolist())
    scale = NumericDomain(
        fine_edges=edges,
        fine_masses=(1 / 24,) * 24,
        first_fine_bin=tuple(range(25)),
        whole=24,
        nullable=nullable,
        cyclic=True,
    )
    domain = Domain(names=("hour",), sizes=(24 + nullable,), num_rows=10)
    return layout_of("typed", domain, [scale], None), domain


@pytest.mark.parametrize("nullable", [False, True])
def test_the_features_of_a_cycle_are_points_of_a_circle(nullable: bool):
    layout, domain = _hours(nullable=nullable)
    assert isinstance(layout.columns[0], Circle)
    codes = np.arange(domain.sizes[0])[:, None]
    positions = np.where(codes < 24, (codes + 0.5) / 24, np.nan)
    features = layout.encode(codes.astype(np.int32), positions, jax.random.key(0))
    assert (layout.decode(features)[0] == codes).all()
    points = features[:24, -2:]
    gaps = np.linalg.norm(points - np.roll(points, 1, axis=0), axis=1)
    assert np.allclose(gaps, gaps[0], atol=1e-5)  # 23 and 0 are as near as 0 and 1
    assert Layout.from_list(layout.to_list()) == layout


def test_hours_keep_their_dependence_on_other_columns():
    """Night shifts: with parts, the hour of the synthetic rows follows the shift; the date alone would not show it."""
    generator = np.random.default_rng(1)
    night = generator.random(3000) < 0.5
    hours = np.where(night, generator.integers(22, 26, 3000) % 24, generator.integers(9, 17, 3000))
    days = np.datetime64("2020-01-01T00", "h") + generator.integers(0, 1000, 3000) * 24
    table = pa.table({"when": pa.array((days + hours).astype("datetime64[us]")), "night": night})
    bounds = (datetime(2020, 1, 1), datetime(2023, 1, 1))
    schema = Schema(
        columns=(
            Column(name="when", kind="datetime", bounds=bounds, parts=("hour",), nullable=False),
            Column(name="night", kind="boolean", nullable=False),
        ),
        rows=3000,
    )
    with pytest.warns(us.UnderstudyWarning, match="seeded"):
        release = us.fit(table, "mst", epsilon=4, schema=schema, seed=0)
    fake = release.sample(2000, seed=0)
    found = pc.hour(fake.column("when")).to_numpy()
    is_night = fake.column("night").to_numpy()
    assert np.isin(found[is_night], [22, 23, 0, 1]).mean() > 0.9
    assert ((found[~is_night] >= 9) & (found[~is_night] < 17)).mean() > 0.9
