"""Statistics of numeric columns against NumPy on plain arrays; and the columns and tables where they are undefined."""

import datetime
import math
from typing import Any

import hypothesis.strategies as st
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings

import understudy as us
from tests.evaluation.encoded import encode, mixed
from understudy.evaluation.evaluate import evaluate
from understudy.evaluation.numbers import MAX_GROUPS, MAX_SHARED, QUANTILES, numbers
from understudy.evaluation.scores import Result, Status, metrics_of, plain

KEYS = [metric.key for metric in metrics_of("numbers")]


def column_of(result: Result, name: str) -> dict[str, Any]:
    column = result.details["columns"][name]
    assert isinstance(column, dict)
    return column


def compare(real: list[Any], fake: list[Any], kind: pa.DataType | None = None) -> dict[str, Any]:
    """The details of one column."""
    kind = pa.float64() if kind is None else kind
    return column_of(numbers(*encode({"x": pa.array(real, kind)}, {"x": pa.array(fake, kind)})), "x")


def test_statistics_equal_numpy() -> None:
    tables = mixed(900, 0), mixed(700, 1, shift=0.2)
    found = numbers(*encode(*tables), target="degree")
    errors: dict[str, list[float]] = {key: [] for key in KEYS}
    for name in ("age", "income"):
        frames = [table.to_pandas() for table in tables]
        real, fake = (frame[name].dropna().to_numpy() for frame in frames)
        column = column_of(found, name)
        low, high = np.quantile(real, [0.05, 0.95])
        for values, frame, key in zip((real, fake), frames, ("real", "synthetic"), strict=True):
            assert column[key]["mean"] == pytest.approx(values.mean())
            assert column[key]["total"] == pytest.approx(values.sum() / len(frame) * 900)
            assert column[key]["stddev"] == pytest.approx(values.std())
            assert list(column[key]["quantiles"]) == ["5%", "50%", "95%", "99%"]
            assert list(column[key]["quantiles"].values()) == pytest.approx(np.quantile(values, QUANTILES))
        assert column["mean_ratio"] == pytest.approx(fake.mean() / real.mean())
        chance = real.std() * math.sqrt(1 / len(real) + 1 / len(fake)) / (high - low)
        assert column["mean_standard_error"] == pytest.approx(chance)
        errors["mean_error"].append(abs(fake.mean() - real.mean()) / (high - low))
        gaps = np.abs(np.quantile(fake, QUANTILES) - np.quantile(real, QUANTILES))
        errors["quantile_error"].append(gaps.mean() / (high - low))
        counts = frames[0][name].value_counts()
        shared = counts[counts >= 9]
        if name == "age":
            assert len(column["values"]) == MAX_SHARED
            for each in column["values"]:
                assert each["real"] == shared[each["value"]] / 900
                assert each["synthetic"] == (frames[1][name] == each["value"]).sum() / 700
            assert [each["real"] for each in column["values"]] == sorted(shared / 900, reverse=True)[:MAX_SHARED]
            errors["shared_values_error"].append(
                max(abs(each["real"] - each["synthetic"]) for each in column["values"])
            )
        else:
            assert shared.empty
            assert (column["values"], column["shared_values_error"]) == ([], None)
        means = [frame.groupby("degree")[name].agg(["mean", "count"]) for frame in frames]
        order = list(frames[0]["degree"].value_counts().index)
        assert [each["group"] for each in column["groups"]] == order
        for each in column["groups"]:
            for frame, key in zip(means, ("real", "synthetic"), strict=True):
                assert each[key] == pytest.approx(frame["mean"][each["group"]])
        gap = (means[1]["mean"] - means[0]["mean"]).abs() / (high - low)
        errors["group_mean_error"].append(float(np.average(gap, weights=means[0]["count"])))
    for key in KEYS:
        assert found[key] == pytest.approx(np.mean(errors[key]), abs=1e-12)


def test_zeros_that_became_a_continuum_are_seen() -> None:
    real = [0.0] * 90 + list(range(1, 11))
    column = compare(real, list(np.linspace(0, 0.1, 90)) + list(range(1, 11)))
    assert column["shared_values_error"] == pytest.approx(0.9 - 0.01)
    assert column["values"] == [{"value": 0.0, "real": 0.9, "synthetic": pytest.approx(0.01)}]


def test_a_shared_value_has_one_percent_of_the_rows_and_at_least_two() -> None:
    values = [1.5] * 7 + [2.5] * 6 + [None] * 10 + [float(k) for k in range(10, 687)]
    assert len(values) == 700
    assert [each["value"] for each in compare(values, values)["values"]] == [1.5]
    assert compare([1.0, 2.0, 2.0], [1.0])["values"] == [{"value": 2.0, "real": 2 / 3, "synthetic": 0.0}]
    assert compare([-0.0, 0.0, 1.0], [0.0])["values"] == [{"value": 0.0, "real": 2 / 3, "synthetic": 1.0}]


def test_only_the_most_frequent_categories_have_a_mean() -> None:
    labels = [f"c{k:02}" for k in range(30) for _ in range(k + 1)]
    table = {"y": labels, "x": [float(k) for k in range(len(labels))]}
    column = column_of(numbers(*encode(table, table), target="y"), "x")
    assert [each["group"] for each in column["groups"]] == [f"c{k:02}" for k in range(29, 29 - MAX_GROUPS, -1)]


def test_groups_without_synthetic_values_are_left_out_and_the_others_weighted() -> None:
    values = [0.0, 0.0, 0.0, 10.0, 4.0]
    real = {"y": ["a", "a", "a", "b", "c"], "x": values}
    fake = {"y": ["a", "b", "b"], "x": [1.0, 10.0, 14.0]}
    column = column_of(numbers(*encode(real, fake), target="y"), "x")
    width = np.quantile(values, 0.95) - np.quantile(values, 0.05)
    assert column["group_mean_error"] == pytest.approx((3 * 1.0 + 1 * 2.0) / 4 / width)
    assert [plain(each["synthetic"]) for each in column["groups"]] == [1.0, 12.0, None]


@pytest.mark.parametrize(
    ("real", "fake", "ratio"),
    [
        ([1.0, 3.0], [2.0, 6.0], 2.0),
        ([-1.0, -3.0], [2.0, 6.0], -2.0),
        ([-3.0, 3.0], [4.0], None),
        ([-1.0, 5.0], [4.0], 2.0),  # 2 of 3
        ([-2.0, 4.0], [4.0], None),  # 1 of 3
        ([0.0, 0.0], [1.0], None),
    ],
)
def test_means_have_a_ratio_where_the_real_one_is_far_from_zero(
    real: list[float], fake: list[float], ratio: float | None
) -> None:
    assert compare(real, fake)["mean_ratio"] == ratio


def test_an_error_is_one_at_most_and_where_all_real_values_are_equal() -> None:
    for fake, error in (([7.0], 0.0), ([7.0, 7.5], 1.0), ([1e300], 1.0)):
        assert compare([7.0] * 5, fake)["mean_error"] == error
    assert compare([0.0, 1.0] * 9, [1e9] * 4)["mean_error"] == 1.0
    assert compare([0.0] * 97 + [8.0] * 3, [4.0])["mean_error"] == pytest.approx((4 - 0.24) / 8)  # of the whole range
    tenth = compare([0.1] * 1000, [0.1] * 7)
    assert (tenth["mean_error"], tenth["quantile_error"]) == (0.0, 0.0)


def test_dates_have_no_total_and_no_ratio() -> None:
    days = [datetime.date(2020, 1, day) for day in (1, 2, 3, 4)]
    for values, unit in ((days, 1.0), ([datetime.datetime(d.year, d.month, d.day) for d in days], 86_400e6)):
        column = column_of(numbers(*encode({"x": values}, {"x": values[:2]})), "x")
        assert (column["real"]["total"], column["mean_ratio"]) == (None, None)
        assert column["real"]["mean"] / unit == pytest.approx(18263.5)  # days since 1970
        assert column["synthetic"]["mean"] / unit == pytest.approx(18262.5)
        assert column["real"]["stddev"] / unit == pytest.approx(math.sqrt(1.25))


def test_large_integers_keep_their_mean() -> None:
    top = 2**63 - 1
    column = compare([top, top - 2**40], [top - 2**40], pa.int64())
    assert column["real"]["mean"] == pytest.approx(top - 2**39)
    assert column["quantile_error"] <= 1.0
    assert compare([top] * 3, [top] * 2, pa.int64())["mean_error"] == 0.0
    huge = compare([1e300, -1e300, 5e299], [1e300])
    assert huge["real"]["mean"] == pytest.approx(1e300 / 6)


@pytest.mark.parametrize(
    "fake",
    [[None] * 3, [math.inf, -math.inf], [math.nan], [None, math.inf, 2.0], [5.0], [1e308, -1e308], [2.0] * 4],
)
@pytest.mark.parametrize("real", [[1.0, None, 2.0, math.inf], [3.0], [3.0] * 5, [math.nan, 0.0], [5e-324, 0.0]])
def test_nulls_infinities_and_constants_leave_scores_finite_or_undefined(
    real: list[float | None], fake: list[float | None]
) -> None:
    labels = [pa.array(["u", "v"] * 3)[: len(each)] for each in (real, fake)]
    tables = [pa.table({"x": pa.array(x, pa.float64()), "y": y}) for x, y in zip((real, fake), labels, strict=True)]
    found = numbers(*encode(*tables), target="y")
    for key in KEYS:
        score = found.scores[key]
        assert score.is_defined == math.isfinite(score.value)
        assert not score.is_defined or 0 <= score.value <= 1
    if not np.isfinite(np.array(fake, dtype=float)).any():
        assert {key for key in KEYS if found.scores[key].is_defined} <= {"shared_values_error"}
    plain(found.details)


def test_tables_without_rows_or_numbers_have_no_scores() -> None:
    (table,) = encode(mixed(50, 0))
    empty = table.take(np.array([], dtype=int))
    assert {numbers(empty, other, target="degree").scores[key].status for other in (table, empty) for key in KEYS} == {
        Status.UNDEFINED
    }
    found = numbers(table, empty, target="degree")
    assert found.scores["mean_error"].status is Status.UNDEFINED
    one, two = encode({"c": ["a", "b"]}, {"c": ["a"]})
    assert {score.status for score in numbers(one, two).scores.values()} == {Status.NOT_APPLICABLE}
    assert numbers(table, table).scores["group_mean_error"].status is Status.MISSING_INPUT


@settings(max_examples=60, deadline=None)
@given(
    st.lists(
        st.tuples(
            st.one_of(st.none(), st.floats(allow_nan=True), st.sampled_from([0.0, 1.5])),
            st.integers(-(2**63), 2**63 - 1),
            st.sampled_from(["u", "v", None]),
        ),
        min_size=1,
        max_size=40,
    )
)
def test_a_table_compared_with_itself_has_no_error(rows: list[tuple[float | None, int, str | None]]) -> None:
    real, whole, labels = zip(*rows, strict=True)
    schema = us.Schema(
        columns=(
            us.Column(name="real", kind="real"),
            us.Column(name="whole", kind="integer"),
            us.Column(name="y", kind="categorical", categories=("u", "v")),
        )
    )
    table = {
        "real": pa.array(real, pa.float64()),
        "whole": pa.array(whole, pa.int64()),
        "y": pa.array(labels, pa.string()),
    }
    one, two = encode(table, table, schema=schema)
    found = numbers(one, two, target="y")
    assert {score.value for score in found.scores.values() if score.is_defined} == {0.0}
    assert found.scores["mean_error"].is_defined
    shuffled = numbers(one, two.take(np.random.default_rng(0).permutation(two.num_rows)), target="y")
    assert {shuffled.scores[key].value for key in KEYS[:3] if shuffled.scores[key].is_defined} == {0.0}


@pytest.fixture(scope="module")
def scored() -> dict[str, Any]:
    """Several tables, more rows than are compared for scores, and a holdout."""
    tables = {"good": mixed(25_000, 1), "bad": mixed(25_000, 2, shift=0.5)}
    scores = evaluate(
        mixed(25_000, 0), tables, holdout=mixed(12_000, 3), target="degree", metrics=["numbers"], effort="quick"
    )
    return dict(scores.to_json())


def test_a_scorecard_has_the_statistics_of_all_rows_beside_those_of_held_out_ones(scored: dict[str, Any]) -> None:
    details = scored["details"]["numbers"]
    income = mixed(25_000, 0)["income"].to_pandas().dropna()
    held = mixed(12_000, 3)["income"].to_pandas().dropna()
    for name in ("good", "bad"):
        assert details[name]["columns"]["income"]["real"]["mean"] == pytest.approx(income.mean(), rel=1e-5)
    assert details["real"]["columns"]["income"]["synthetic"]["mean"] == pytest.approx(held.mean(), rel=1e-5)
    assert scored["settings"]["numbers"]["synthetic_rows"] == 10_000
    assert [metric["key"] for metric in scored["metrics"]] == KEYS
    for metric in scored["metrics"]:
        assert metric["private"]
        assert metric["reference"]["comparable"]
        assert metric["values"]["good"]["value"] < 0.03
        assert metric["reference"]["value"] < 0.03
        if metric["key"] != "shared_values_error":
            assert metric["values"]["bad"]["value"] > 0.1


def test_a_numeric_target_makes_no_groups() -> None:
    real = mixed(300, 0)
    scores = evaluate(real, real, holdout=real, target="age", metrics=["numbers"], effort="quick")
    assert scores.status("group_mean_error") == Status.NOT_APPLICABLE
    assert scores["mean_error"] == 0.0
    no_target = evaluate(real, real, holdout=real, metrics=["numbers"], effort="quick")
    assert no_target.status("group_mean_error") == Status.MISSING_INPUT
