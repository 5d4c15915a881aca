"""Distances of marginals against slow, obvious versions and SciPy; and the tables on which they are undefined."""

import itertools
import json
import math
from collections import Counter
from collections.abc import Callable, Mapping
from fractions import Fraction
from pathlib import Path
from typing import Literal, cast

import numpy as np
import ot
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from scipy import stats
from scipy.spatial.distance import jensenshannon

import understudy as us
from understudy.errors import ConfigError, SchemaError
from understudy.evaluation import marginals
from understudy.evaluation.judged import Judged, Layout
from understudy.evaluation.marginals import (
    Distance,
    cell_accuracy,
    cells_won,
    correlations,
    default_cells,
    dimension_probability,
    k_way,
    nist,
    one_way,
    three_way,
    two_way,
)
from understudy.evaluation.scores import Result

FUNCTIONS: dict[str, Callable[[Judged, Judged], Result]] = {
    "one_way": one_way,
    "two_way": two_way,
    "three_way": three_way,
    "k_way": lambda r, s: k_way(r, s, r.layout.names[:2]),
    "k_way transport": lambda r, s: k_way(r, s, r.layout.names[:2], bins=5, distance="wasserstein"),
    "nist": nist,
    "cell_accuracy": lambda r, s: cell_accuracy(r, s, r.layout.names[:2]),
    "correlations": correlations,
    "dimension_probability": dimension_probability,
}
ZERO = {
    **dict.fromkeys(
        ("tv1", "tv1_max", "jsd1", "ks", "w1", "tv2", "tv2_max", "tv3", "k_way", "nist_l1", "cell_tv"), 0.0
    ),
    **dict.fromkeys(
        ("corr_diff", "corr_diff_max", "dwp_rmse", "dwp_sum_squares", "dwp_mean_abs", "dwp_zero_share"), 0.0
    ),
    "nist_score": 1.0,
    "nist_points": 1e6,
    "cell_accuracy": 1.0,
    "dwp_correlation": 1.0,
}
"""What a table scores against itself."""


def mixed(num_rows: int, seed: int, *, shift: float = 0.0, nulls: float = 0.1) -> pa.Table:
    draw = np.random.default_rng(seed)
    age = draw.integers(18, 80, num_rows)
    income = np.round(age * (1 + shift) + draw.normal(0, 10, num_rows), 2)
    degree = np.array(["none", "school", "college"])[np.clip((age // 30) + draw.integers(-1, 2, num_rows), 0, 2)]
    return pa.table(
        {
            "age": pa.array(age),
            "income": pa.array(income, mask=draw.random(num_rows) < nulls),
            "degree": pa.array(degree, mask=draw.random(num_rows) < nulls),
            "member": draw.random(num_rows) < 0.3 + shift,
            "city": draw.choice(["a", "b", "c", "d"], num_rows, p=[0.5, 0.3, 0.15, 0.05]),
        }
    )


def judged(real: pa.Table | Mapping, *others: pa.Table | Mapping, schema: us.Schema | None = None) -> list[Judged]:
    tables = [t if isinstance(t, pa.Table) else pa.table(dict(t)) for t in (real, *others)]
    layout = Layout.of(tables[0], schema)
    return [layout.read(table, "table") for table in tables]


@pytest.fixture(scope="module")
def pair() -> tuple[Judged, Judged]:
    """Some synthetic values are out of range and some are not listed."""
    real, fake = mixed(600, 0), mixed(450, 1, shift=0.2)
    fake = fake.set_column(
        4, "city", pa.array(["z" if i % 50 == 0 else v for i, v in enumerate(fake["city"].to_pylist())])
    )
    one, two = judged(real, fake)
    return one, two


# ---------------------------------------------------------------------------------------------------- slow and obvious


def slow_cell(table: Judged, name: str, row: int, bins: int) -> object:
    """The cell of one value, found by walking over the edges."""
    trait, value = table.layout[name], table[name][row]
    if not trait.is_numeric:
        return int(value)
    if math.isnan(value):
        return "missing"
    edges = np.linspace(trait.lower, trait.upper, bins + 1)[1:-1]
    return sum(bool(value >= edge) for edge in edges)


def slow_counts(table: Judged, names: tuple[str, ...], bins: int) -> Counter:
    return Counter(tuple(slow_cell(table, name, row, bins) for name in names) for row in range(table.num_rows))


def slow_l1(a: Counter, b: Counter) -> float:
    num_a, num_b = sum(a.values()), sum(b.values())
    return float(sum(abs(Fraction(a[cell], num_a) - Fraction(b[cell], num_b)) for cell in {*a, *b}))


def slow_tv(real: Judged, synthetic: Judged, names: tuple[str, ...], bins: int) -> float:
    return slow_l1(slow_counts(real, names, bins), slow_counts(synthetic, names, bins)) / 2


@pytest.mark.parametrize("bins", [1, 2, 7])
def test_marginals_of_one_two_and_three_columns_equal_slow_counts(pair: tuple[Judged, Judged], bins: int) -> None:
    names = pair[0].layout.names
    slow = {k: [slow_tv(*pair, n, bins) for n in itertools.combinations(names, k)] for k in (1, 2, 3)}
    one, two, three = one_way(*pair, bins=bins), two_way(*pair, bins=bins), three_way(*pair, bins=bins)
    assert one["tv1"] == pytest.approx(np.mean(slow[1]), abs=1e-12)
    assert one["tv1_max"] == pytest.approx(max(slow[1]), abs=1e-12)
    assert two["tv2"] == pytest.approx(np.mean(slow[2]), abs=1e-12)
    assert two["tv2_max"] == pytest.approx(max(slow[2]), abs=1e-12)
    assert three["tv3"] == pytest.approx(np.mean(slow[3]), abs=1e-12)
    matrix = np.array(two.details["tv"])
    assert np.allclose(matrix, matrix.T)
    assert np.allclose(np.diag(matrix), slow[1], atol=1e-5)
    assert np.allclose(matrix[np.triu_indices(5, 1)], slow[2], atol=1e-5)
    worst = two.details["worst"]
    assert isinstance(worst, list)
    assert worst[0]["tv"] == pytest.approx(max(slow[2]), abs=1e-5)
    a, b = worst[0]["columns"]
    assert matrix[names.index(a), names.index(b)] == worst[0]["tv"]
    assert len(worst) == 10


def test_sparse_counting_equals_dense_counting(pair: tuple[Judged, Judged], monkeypatch: pytest.MonkeyPatch) -> None:
    dense = {name: function(*pair) for name, function in FUNCTIONS.items()}
    monkeypatch.setattr(marginals, "DENSE_CELLS", 0)
    monkeypatch.setattr(marginals, "CHUNK_ROWS", 100)
    for name, function in FUNCTIONS.items():
        for key, score in function(*pair).scores.items():
            assert score.value == pytest.approx(dense[name][key], rel=1e-9, abs=1e-12), key


def test_chunks_change_no_count(monkeypatch: pytest.MonkeyPatch) -> None:
    codes = [np.arange(1000) % 7, np.arange(1000) % 3]
    whole = marginals.dense_counts(codes, (7, 3))
    monkeypatch.setattr(marginals, "CHUNK_ROWS", 10)
    assert np.array_equal(marginals.dense_counts(codes, (7, 3)), whole)
    assert whole.sum() == 1000


def test_keys_of_more_cells_than_an_integer_holds() -> None:
    draw = np.random.default_rng(0)
    tables = [[draw.integers(0, 2, 200) * 65_535 for _ in range(8)] for _ in range(2)]
    keys = marginals.joint_keys(tables, [65_536] * 8)  # 2^128 cells
    rows = [list(zip(*table, strict=True)) for table in tables]
    flat, joined = [*rows[0], *rows[1]], np.concatenate(keys)
    names = dict(zip(flat, joined.tolist(), strict=True))
    assert [names[row] for row in flat] == joined.tolist()
    assert len(set(names.values())) == len(set(flat))


# ------------------------------------------------------------------------------------------------------- single columns


def test_single_columns_equal_scipy(pair: tuple[Judged, Judged]) -> None:
    real, fake = pair
    result = one_way(real, fake, bins=12)
    columns = result.details["columns"]
    assert isinstance(columns, dict)
    ks, w1 = [], []
    for name in ("age", "income"):
        x, y = (table[name][~np.isnan(table[name])] for table in pair)
        ks.append(stats.ks_2samp(x, y, method="asymp").statistic)
        trait = real.layout[name]
        scaled = [np.clip((v - trait.lower) / (trait.upper - trait.lower), 0, 1) for v in (x, y)]
        w1.append(stats.wasserstein_distance(*scaled))
        assert columns[name]["ks"] == pytest.approx(ks[-1], abs=1e-12)
        assert columns[name]["w1"] == pytest.approx(w1[-1], abs=1e-12)
        edges = columns[name]["edges"]
        assert len(edges) <= 13
        inside = [
            np.histogram(np.clip(v, trait.lower, trait.upper), edges)[0] / len(t[name])
            for v, t in zip((x, y), pair, strict=True)
        ]
        np.testing.assert_allclose([columns[name]["real"], columns[name]["synthetic"]], inside)
        assert columns[name]["missing"] == pytest.approx([np.isnan(t[name]).mean() for t in pair])
        assert sum(columns[name]["real"]) + columns[name]["missing"][0] == pytest.approx(1)
    assert result["ks"] == pytest.approx(np.mean(ks))
    assert result["w1"] == pytest.approx(np.mean(w1))
    jsd = []
    for name in real.layout.names:
        counts = [slow_counts(table, (name,), 12) for table in pair]
        cells = sorted({*counts[0], *counts[1]}, key=str)
        jsd.append(jensenshannon(*([count[c] for c in cells] for count in counts), base=2) ** 2)
    assert result["jsd1"] == pytest.approx(np.mean(jsd), abs=1e-12)


def test_cells_of_whole_numbers_hold_equally_many() -> None:
    ages = pa.table({"age": np.arange(17, 91)})
    table = Layout.of(ages).read(ages, "real table")
    column = one_way(table, table).details["columns"]["age"]
    assert np.diff(column["edges"]).tolist() == [2.0] * 37
    assert column["edges"][0] == 16.5
    np.testing.assert_allclose(column["real"], 2 / 74)


@pytest.mark.parametrize(("num_x", "num_y"), [(2, 2), (5, 5), (7, 3), (40, 60), (2, 30)])
def test_distances_of_two_samples_with_ties(num_x: int, num_y: int) -> None:
    draw = np.random.default_rng(num_x)
    for _ in range(20):
        x, y = (np.sort(draw.integers(0, 6, size) / 5) for size in (num_x, num_y))
        assert marginals._kolmogorov_smirnov(x, y) == pytest.approx(
            stats.ks_2samp(x, y, method="asymp").statistic, abs=1e-12
        )
        assert marginals._wasserstein_1(x, y) == pytest.approx(stats.wasserstein_distance(x, y), abs=1e-12)


def test_cells_of_nulls_and_unlisted_values_are_shown_where_there_are_any() -> None:
    real, fake = judged({"a": ["x", "y", "x", None], "b": ["u", "v", "u", "u"]}, {"a": ["x"], "b": ["w"]})
    columns = one_way(real, fake).details["columns"]
    assert isinstance(columns, dict)
    assert columns["a"]["labels"] == ["x", "y", "(missing)"]
    assert columns["a"]["real"] == [0.5, 0.25, 0.25]
    assert columns["a"]["synthetic"] == [1.0, 0.0, 0.0]
    assert columns["a"]["tv"] == 0.5
    assert columns["b"]["labels"] == ["u", "v", "(unlisted)"]
    assert columns["b"]["tv"] == 1.0
    assert columns["b"]["jsd"] == 1.0
    assert columns["b"]["ks"] is None


def test_bootstrap_error_is_the_spread_of_repeated_samples() -> None:
    """Against fresh samples of two known laws: the multinomial draws have the same spread."""
    draw = np.random.default_rng(0)
    laws = ([0.6, 0.3, 0.1], [0.3, 0.3, 0.4])
    samples = [[draw.choice(["a", "b", "c"], 400, p=law) for law in laws] for _ in range(200)]
    tables = [judged({"x": real}, {"x": fake}) for real, fake in samples]
    spread = np.std([one_way(*each)["tv1"] for each in tables])
    score = one_way(*tables[0], bootstrap=400).scores["tv1"]
    assert score.error == pytest.approx(spread, rel=0.2)
    assert score == one_way(*tables[0], bootstrap=400).scores["tv1"]
    assert score.error != one_way(*tables[0], bootstrap=400, seed=1).scores["tv1"].error
    assert one_way(*tables[0]).scores["tv1"].error is None


# ---------------------------------------------------------------------------------------------------------- any columns


def test_distances_of_a_joint_marginal(pair: tuple[Judged, Judged]) -> None:
    names = ("age", "degree", "city")
    counts = [slow_counts(table, names, 20) for table in pair]
    cells = sorted({*counts[0], *counts[1]}, key=str)
    l1 = slow_l1(*counts)
    assert k_way(*pair, names)["k_way"] == pytest.approx(l1 / 2)
    assert k_way(*pair, names, distance="l1")["k_way"] == pytest.approx(l1)
    jsd = jensenshannon(*([count[c] for c in cells] for count in counts), base=2) ** 2
    assert k_way(*pair, names, distance="jsd")["k_way"] == pytest.approx(jsd)
    assert k_way(*pair, ("degree", "age", "city"))["k_way"] == pytest.approx(l1 / 2)


def test_transport_equals_a_full_solution(pair: tuple[Judged, Judged]) -> None:
    """The whole mass of both histograms, on an explicit embedding, by POT."""
    names, bins = ("income", "degree", "member"), 6
    counts = [slow_counts(table, names, bins) for table in pair]
    cells = sorted({*counts[0], *counts[1]}, key=str)

    def gap(a: object, b: object, *, numeric: bool) -> float:
        return abs(a - b) / bins if numeric and "missing" not in (a, b) else float(a != b)  # type: ignore[operator]

    cost = [
        [math.hypot(*(gap(x, y, numeric=i == 0) for i, (x, y) in enumerate(zip(a, b, strict=True)))) for b in cells]
        for a in cells
    ]
    p, q = (np.array([count[c] for c in cells]) / sum(count.values()) for count in counts)
    found = k_way(*pair, names, bins=bins, distance="wasserstein")["k_way"]
    assert found == pytest.approx(ot.emd2(p, q, np.array(cost)), abs=1e-9)
    assert found > 0.01


def test_transport_of_two_point_masses() -> None:
    real, fake = judged({"x": [0.0, 0.0, 1.0], "y": ["a", "a", "b"]}, {"x": [1.0], "y": ["b"]})
    one = real.take(np.array([0, 1]))
    assert k_way(one, fake, ["x"], bins=10, distance="wasserstein")["k_way"] == pytest.approx(0.9)
    assert k_way(one, fake, ["y"], distance="wasserstein")["k_way"] == pytest.approx(1.0)
    assert k_way(one, fake, ["x", "y"], bins=10, distance="wasserstein")["k_way"] == pytest.approx(math.sqrt(1.81))


def test_transport_of_too_many_cells_is_refused() -> None:
    draw = np.random.default_rng(0)
    real, fake = judged(*({"x": draw.random(4000), "y": draw.random(4000)} for _ in range(2)))
    score = k_way(real, fake, ["x", "y"], bins=200, distance="wasserstein").scores["k_way"]
    assert not score.is_defined
    assert "too many" in score.why


@pytest.mark.parametrize(
    ("call", "error"),
    [
        (lambda r, s: k_way(r, s, []), ConfigError),
        (lambda r, s: k_way(r, s, ["age", "age"]), ConfigError),
        (lambda r, s: k_way(r, s, ["agee"]), SchemaError),
        (lambda r, s: k_way(r, s, ["age"], distance=cast(Distance, "euclid")), ConfigError),
        (lambda r, s: cell_accuracy(r, s, ["agee"]), SchemaError),
        (lambda r, s: one_way(r, s, bins=0), ConfigError),
        (lambda r, s: nist(r, s, bins=0), ConfigError),
        (lambda r, s: nist(r, s, binning=cast(Literal["real"], "own")), ConfigError),
        (lambda r, s: three_way(r, s, num_triples=0), ConfigError),
    ],
)
def test_bad_settings_are_refused(pair: tuple[Judged, Judged], call: Callable, error: type[Exception]) -> None:
    with pytest.raises(error):
        call(*pair)


# ----------------------------------------------------------------------------------------------------------------- NIST


def slow_nist(real: Judged, synthetic: Judged, ends: Mapping[str, tuple[float, float]], bins: int) -> float:
    def place(table: Judged, name: str, row: int) -> object:
        value = table[name][row]
        if name not in ends:
            return int(value)
        lower, upper = ends[name]
        return "missing" if math.isnan(value) else math.floor(bins * (value - lower) / (upper - lower))

    distances = []
    for names in itertools.combinations(real.layout.names, 3):
        counts = [
            Counter(tuple(place(t, n, row) for n in names) for row in range(t.num_rows)) for t in (real, synthetic)
        ]
        distances.append(slow_l1(*counts))
    return float(np.mean(distances))


@pytest.mark.parametrize("bins", [10, 100])
def test_nist_equals_its_formula(pair: tuple[Judged, Judged], bins: int) -> None:
    """Synthetic incomes lie above and below the real ones, in bins of their own."""
    real, fake = pair
    own = {n: (float(np.nanmin(real[n])), float(np.nanmax(real[n]))) for n in ("age", "income")}
    assert np.nanmax(fake["income"]) > own["income"][1]
    found = nist(real, fake, bins=bins)
    assert found["nist_l1"] == pytest.approx(slow_nist(real, fake, own, bins), abs=1e-12)
    assert found["nist_score"] == pytest.approx(1 - found["nist_l1"] / 2)
    assert found["nist_points"] == pytest.approx(1e6 * found["nist_score"])


def test_nist_by_public_bounds() -> None:
    columns = (
        us.Column(name="x", kind="real", bounds=(0.0, 10.0)),
        us.Column(name="y", kind="real", bounds=(0.0, 10.0)),
        us.Column(name="z", kind="boolean"),
    )
    draw = np.random.default_rng(0)
    tables = [{"x": draw.random(200) * 6, "y": draw.random(200) * 12, "z": draw.random(200) < 0.5} for _ in range(2)]
    real, fake = judged(*tables, schema=us.Schema(columns=columns))
    ends = {"x": (0.0, 10.0), "y": (0.0, 10.0)}
    assert nist(real, fake, bins=9, binning="public")["nist_l1"] == pytest.approx(slow_nist(real, fake, ends, 9))
    assert nist(real, fake, bins=9)["nist_l1"] != pytest.approx(slow_nist(real, fake, ends, 9))


def test_nist_bins_by_hand() -> None:
    values = np.array([0.0, 0.5, 0.999, 1.0, 1.2, -0.1, np.nan, np.inf])
    assert marginals._nist_bins(values, 0.0, 1.0, 100).tolist()[:6] == [0, 50, 99, 100, 120, -10]
    real, fake = judged({"x": [0.0, 1.0, 0.5]}, {"x": [1.0, 1.2, -0.1, None, 1.2]})
    ours, theirs, size = marginals._nist_codes(real, fake, real.layout["x"], 100, "real")
    assert ours.tolist() == [0, 100, 50]
    assert theirs.tolist() == [100, 103, 102, 101, 103]
    assert size == 104


def test_nist_of_disjoint_tables_is_two() -> None:
    real, fake = judged(
        {"x": [1.0, 2.0], "y": ["a", "a"], "z": [True, True]}, {"x": [9.0, 8.0], "y": ["a", "a"], "z": [True, True]}
    )
    assert nist(real, fake)["nist_l1"] == pytest.approx(2.0)
    assert nist(real, fake)["nist_points"] == pytest.approx(0.0)


def test_nist_gives_a_constant_column_one_bin() -> None:
    table = {"x": [1.0, 1.0], "y": ["a", "b"], "z": [True, False]}
    real, fake = judged(table, {**table, "x": [5.0, -1.0]})
    assert nist(real, fake)["nist_l1"] == 0.0


# ---------------------------------------------------------------------------------------------------------------- cells


def test_cell_accuracy_of_550_cells_includes_the_empty_ones() -> None:
    """Race, Hispanic origin and sex of a census: 11 x 25 x 2 cells, most of them empty."""
    sizes = {"race": 11, "hispanic": 25, "sex": 2}
    columns = tuple(
        us.Column(name=n, kind="categorical", categories=tuple(range(k)), nullable=False) for n, k in sizes.items()
    )
    draw = np.random.default_rng(0)
    tables = [{n: (k * draw.random(rows) ** 4).astype(int) for n, k in sizes.items()} for rows in (300, 200)]
    real, fake = judged(*tables, schema=us.Schema(columns=columns))
    result = cell_accuracy(real, fake)
    assert result.details["cells"] == 550
    assert result.settings["columns"] == ["race", "hispanic", "sex"]
    counts = [slow_counts(table, ("race", "hispanic", "sex"), 20) for table in (real, fake)]
    every = itertools.product(*(range(k) for k in sizes.values()))
    accuracy = np.mean([1 - abs(counts[0][cell] / 300 - counts[1][cell] / 200) for cell in every])
    assert result["cell_accuracy"] == pytest.approx(accuracy, abs=1e-12)
    assert result["cell_tv"] == pytest.approx(slow_l1(*counts) / 2)
    assert result["cell_accuracy"] == pytest.approx(1 - 2 * result["cell_tv"] / 550, abs=1e-12)


def test_cells_are_levels_and_nulls_where_real_rows_have_them(pair: tuple[Judged, Judged]) -> None:
    result = cell_accuracy(*pair, ["degree", "city", "income"], bins=5)
    assert result.details["cells"] == (3 + 1) * 4 * (5 + 1)
    assert result.details["outside"] == [0.0, pytest.approx(9 / 450)]  # the unlisted city
    assert result["cell_tv"] == pytest.approx(slow_tv(*pair, ("degree", "city", "income"), 5))


def test_too_many_cells_are_refused(pair: tuple[Judged, Judged]) -> None:
    result = cell_accuracy(*pair, ["age", "income"], bins=5000)
    assert not result.scores["cell_accuracy"].is_defined
    assert "joint cells" in result.scores["cell_tv"].why
    won = cells_won(pair[0], {"one": pair[1]}, ["age", "income"], bins=5000)
    assert won["won"] == {}
    assert "joint cells" in str(won["why"])


@pytest.mark.parametrize(
    "sizes",
    [
        {"a": 30, "b": 300, "c": 40, "d": 7, "e": 2, "f": 300, "g": 7, "h": 12_000},
        {"a": 2, "b": 20, "c": 20, "d": 3, "e": 20, "f": 20},
    ],
)
def test_default_cells_are_the_largest_table_that_is_allowed(sizes: dict[str, int]) -> None:
    columns = tuple(
        us.Column(name=n, kind="categorical", categories=tuple(range(k)), nullable=False) for n, k in sizes.items()
    )
    layout = Layout.of(pa.table({name: [0] for name in sizes}), us.Schema(columns=columns))
    products = {
        names: math.prod(sizes[n] for n in names) for k in (1, 2, 3) for names in itertools.combinations(sizes, k)
    }
    best = max(size for size in products.values() if size <= 10_000)
    chosen = default_cells(layout)
    assert math.prod(sizes[name] for name in chosen) == best
    assert tuple(chosen) == next(names for names, size in products.items() if size == best)


def test_cells_won_counts_ties_apart() -> None:
    real, first, second = judged(
        {"x": ["a", "b", "c", "d", "d", "d"]},
        {"x": ["a", "b", "c", "c", "d", "d"]},  # right in a and b, one too many in c
        {"x": ["a", "c", "c", "d", "d", "d"]},  # right in a and d, one too many in c
    )
    found = cells_won(real, {"first": first, "second": second}, ["x"])
    assert found == {"won": {"first": 3, "second": 1}, "ties": 2, "cells": 4}
    assert cells_won(real, {"second": second, "first": first}, ["x"])["won"] == {"second": 3, "first": 1}
    twice = second.take(np.tile(np.arange(6), 7))  # the same shares of 42 rows
    assert cells_won(real, {"one": second, "other": twice}, ["x"])["ties"] == 4
    assert cells_won(real, {"one": first}, ["x"]) == {"won": {"one": 4}, "ties": 0, "cells": 4}


# --------------------------------------------------------------------------------------------------------- associations


def test_associations_equal_scipy(pair: tuple[Judged, Judged]) -> None:
    result = correlations(*pair)
    names, found = list(pair[0].layout.names), np.array(result.details["synthetic"])
    table = pair[1]
    both = ~np.isnan(table["income"])
    pearson = stats.pearsonr(table["age"][both], table["income"][both]).statistic
    assert found[names.index("age"), names.index("income")] == pytest.approx(pearson, abs=1e-5)
    crossed = stats.contingency.crosstab(table["degree"], table["city"]).count
    cramer = stats.contingency.association(crossed, method="cramer", correction=False)
    assert found[names.index("degree"), names.index("city")] == pytest.approx(cramer, abs=1e-5)
    groups = [table["income"][both & (table["degree"] == code)] for code in range(4)]
    everything = np.concatenate(groups)
    between = sum(len(g) * (g.mean() - everything.mean()) ** 2 for g in groups)
    eta = math.sqrt(between / ((everything - everything.mean()) ** 2).sum())
    assert found[names.index("degree"), names.index("income")] == pytest.approx(eta, abs=1e-5)
    upper = np.triu_indices(5, 1)
    differences = np.abs(np.array(result.details["real"]) - found)[upper]
    assert result["corr_diff"] == pytest.approx(differences.mean(), abs=2e-5)
    assert result["corr_diff_max"] == pytest.approx(differences.max(), abs=2e-5)


def test_correlations_keep_their_sign_and_their_precision() -> None:
    draw = np.random.default_rng(0)
    x = 1e9 + draw.random(500)
    real, fake = judged({"x": x, "y": x}, {"x": x, "y": -x})
    assert correlations(real, fake)["corr_diff"] == pytest.approx(2.0, abs=1e-6)


def test_pairs_with_a_constant_column_are_left_out_and_counted() -> None:
    draw = np.random.default_rng(0)
    table = {"x": draw.random(50), "y": draw.random(50), "c": draw.choice(["a", "b"], 50)}
    real, fake = judged({**table, "k": [0.1] * 50}, {**table, "k": [0.1] * 50})
    result = correlations(real, fake)
    assert result["corr_diff"] == 0.0
    assert "3 of 6 pairs" in result.notes[0]
    matrix = result.details["real"]
    assert isinstance(matrix, list)
    assert matrix[0][3] is None
    flat = real.take(np.zeros(50, dtype=int))
    assert not correlations(real, flat).scores["corr_diff"].is_defined


def test_a_column_that_is_constant_where_the_other_is_known_is_left_out() -> None:
    draw = np.random.default_rng(0)
    x, y = np.array([0.1] * 30 + [7.3]), pa.array(draw.random(31), mask=np.arange(31) == 30)
    real, fake = judged({"x": x, "y": y}, {"x": x, "y": y})
    assert not correlations(real, fake).scores["corr_diff"].is_defined


# --------------------------------------------------------------------------------------------------------------- levels


def test_dimension_wise_probability_by_hand() -> None:
    real, fake = judged(
        {"flag": [True, False, False, False], "x": ["a", "b", "c", None], "n": [1.0, 2.0, 3.0, 4.0]},
        {"flag": [True, True, False, False], "x": ["a", "a", "z", None], "n": [1.0, 2.0, 3.0, 4.0]},
    )
    result = dimension_probability(real, fake)
    points = result.details["points"]
    assert isinstance(points, list)
    assert [(p["column"], p["level"], p["real"], p["synthetic"]) for p in points] == [
        ("flag", "True", 0.25, 0.5),
        ("x", "a", 0.25, 0.5),
        ("x", "b", 0.25, 0.0),
        ("x", "c", 0.25, 0.0),
        ("x", "(missing)", 0.25, 0.25),
    ]
    assert result["dwp_sum_squares"] == pytest.approx(4 / 16)
    assert result["dwp_rmse"] == pytest.approx(math.sqrt(4 / 16 / 5))
    assert result["dwp_mean_abs"] == pytest.approx(0.2)
    assert result["dwp_zero_share"] == pytest.approx(0.4)
    assert not result.scores["dwp_correlation"].is_defined  # all real shares are equal


def test_dimension_wise_correlation_equals_numpy(pair: tuple[Judged, Judged]) -> None:
    result = dimension_probability(*pair)
    points = result.details["points"]
    assert isinstance(points, list)
    expected = np.corrcoef([p["real"] for p in points], [p["synthetic"] for p in points])[0, 1]
    assert result["dwp_correlation"] == pytest.approx(expected)


def test_levels_that_no_real_row_has_are_not_lost() -> None:
    column = us.Column(name="x", kind="categorical", categories=("a", "b", "c"))
    real, fake = judged({"x": ["a", "b"]}, {"x": ["a", "a"]}, schema=us.Schema(columns=(column,)))
    assert dimension_probability(real, fake)["dwp_zero_share"] == 0.5


def test_dimension_wise_probability_of_a_constant_column_counts_ones() -> None:
    real, fake = judged({"flag": [True, True]}, {"flag": [True, True]})
    points = dimension_probability(real, fake).details["points"]
    assert isinstance(points, list)
    assert points[0]["real"] == points[0]["synthetic"] == 1.0


# ------------------------------------------------------------------------------------------------------- all functions


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_table_against_itself(pair: tuple[Judged, Judged], name: str) -> None:
    for key, score in FUNCTIONS[name](pair[0], pair[0]).scores.items():
        assert score.value == pytest.approx(ZERO[key], abs=1e-9), key


@pytest.mark.parametrize("name", FUNCTIONS)
def test_order_and_copies_of_rows_do_not_matter(pair: tuple[Judged, Judged], name: str) -> None:
    real, fake = pair
    draw = np.random.default_rng(0)
    shuffled = [table.take(draw.permutation(table.num_rows)) for table in pair]
    doubled = fake.take(np.tile(np.arange(fake.num_rows), 2))
    expected = FUNCTIONS[name](real, fake).scores
    for other in (FUNCTIONS[name](*shuffled), FUNCTIONS[name](real, doubled)):
        for key, score in other.scores.items():
            assert score.value == pytest.approx(expected[key].value, abs=1e-9), key


@pytest.mark.parametrize("name", [n for n in FUNCTIONS if n not in ("k_way", "k_way transport", "cell_accuracy")])
def test_order_of_columns_does_not_matter(name: str) -> None:
    tables = [mixed(300, 0), mixed(300, 1, shift=0.2)]
    straight = FUNCTIONS[name](*judged(*tables))
    turned = FUNCTIONS[name](*judged(*(t.select(t.column_names[::-1]) for t in tables)))
    for key, score in turned.scores.items():
        assert score.value == pytest.approx(straight[key], abs=1e-9), key


def test_triples_are_distinct_and_do_not_hang_on_the_order_of_columns() -> None:
    names = [f"c{i}" for i in range(12)]
    drawn = marginals._triples(names, 50, 3)
    assert len(drawn) == len({frozenset(triple) for triple in drawn}) == 50
    assert all(len(set(triple)) == 3 for triple in drawn)
    turned = marginals._triples(names[::-1], 50, 3)
    assert [{names[i] for i in t} for t in drawn] == [{names[::-1][i] for i in t} for t in turned]
    assert marginals._triples(names, 50, 4) != drawn
    assert len(marginals._triples(names, 220, 0)) == 220
    assert three_way(*judged(mixed(50, 0), mixed(50, 1)), num_triples=4).details["triples"] == 4


ODD: dict[str, tuple[Mapping, Mapping]] = {
    "one row": ({"x": [1.0], "y": ["a"], "z": [True]}, {"x": [2.0], "y": ["b"], "z": [False]}),
    "constant columns": (
        {"x": [1.0] * 5, "y": ["a"] * 5, "z": [True] * 5},
        {"x": [1.0] * 5, "y": ["a"] * 5, "z": [True] * 5},
    ),
    "nulls only in synthetic": (
        {"x": [1.0, 2.0], "y": ["a", "b"], "z": [True, False]},
        {"x": pa.nulls(3, pa.float64()), "y": pa.nulls(3, pa.string()), "z": pa.nulls(3, pa.bool_())},
    ),
    "infinite values": (
        {"x": [1.0, 2.0, math.inf], "y": ["a", "b", "a"], "z": [True, False, True]},
        {"x": [math.inf, -math.inf, 1e300], "y": ["a", "b", "q"], "z": [True, False, None]},
    ),
    "two numbers": ({"x": [1.0, 2.0], "y": [3, 4]}, {"x": [1.0, 5.0], "y": [4, 4]}),
    "one column": ({"x": ["a", "b"]}, {"x": ["a", "c"]}),
}


@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize("case", ODD)
def test_odd_tables_give_a_number_or_a_reason(case: str, name: str) -> None:
    real, fake = judged(*ODD[case])
    result = FUNCTIONS[name](real, fake)
    known = {metric.key: metric for metric in marginals.METRICS}
    for key, score in result.scores.items():
        if score.is_defined:
            assert known[key].low - 1e-9 <= score.value <= known[key].high + 1e-9
        else:
            assert score.why.endswith(".")
    json.dumps([result.settings, result.details], allow_nan=False)
    assert result.settings["real_rows"] == real.num_rows
    assert result.settings["synthetic_rows"] == fake.num_rows
    assert result.private


def test_an_all_null_column_with_declared_bounds() -> None:
    columns = (us.Column(name="x", kind="real", bounds=(0.0, 1.0)), us.Column(name="y", kind="boolean"))
    nulls = {"x": pa.nulls(3, pa.float64()), "y": [True, False, None]}
    real, fake = judged(nulls, {"x": [0.1, 0.2, None], "y": [True, None, None]}, schema=us.Schema(columns=columns))
    result = one_way(real, fake)
    assert result["tv1"] == pytest.approx((2 / 3 + 1 / 3) / 2)
    assert not result.scores["ks"].is_defined
    for function in FUNCTIONS.values():
        json.dumps(function(real, fake).details, allow_nan=False)


def test_every_key_is_explained(pair: tuple[Judged, Judged]) -> None:
    keys = {key for function in FUNCTIONS.values() for key in function(*pair).scores}
    assert keys == {metric.key for metric in marginals.METRICS}
    assert len(marginals.METRICS) == len(keys)
    assert all(metric.meaning.endswith(".") for metric in marginals.METRICS)


def test_adult_equals_a_slow_version(understudy_data: Path) -> None:
    """Values of the table itself, not of the layout: counted with dictionaries over 2,000 rows of each."""
    path = understudy_data / "adult_train.parquet"
    if not path.exists():
        pytest.skip("There is no adult_train.parquet in the folder of public tables.")
    table = pq.read_table(path)
    real, fake = table.slice(0, 2000), table.slice(2000, 2000)
    turned = fake.set_column(0, "age", pa.array(np.roll(fake["age"].to_numpy(), 1) + 3))
    values = [t.to_pydict() for t in (real, turned)]
    for name, column in values[0].items():
        if isinstance(column[0], int):
            edges = np.linspace(min(column), max(column), 21)[1:-1]
            for each in values:
                each[name] = [int((edges <= value).sum()) for value in each[name]]
    names = list(values[0])
    slow = [
        [
            slow_l1(*(Counter(zip(*(each[n] for n in group), strict=True)) for each in values)) / 2
            for group in itertools.combinations(names, k)
        ]
        for k in (1, 2)
    ]
    ours = judged(real, turned)
    assert one_way(*ours, bins=20)["tv1"] == pytest.approx(np.mean(slow[0]), abs=1e-9)
    assert two_way(*ours)["tv2"] == pytest.approx(np.mean(slow[1]), abs=1e-9)


def test_the_bootstrap_redraws_whole_rows() -> None:
    """Twenty copies of a column are no surer than one; twenty columns of their own are."""
    draw = np.random.default_rng(0)
    values = draw.integers(0, 3, (2, 20, 400)).astype(str)

    def error(copies: bool) -> float:
        tables = [pa.table({f"c{i}": part[0 if copies else i] for i in range(20)}) for part in values]
        layout = Layout.of(tables[0])
        score = one_way(*(layout.read(table, "table") for table in tables), bootstrap=100).scores["tv1"]
        assert score.error is not None
        return score.error

    assert error(True) > 2.5 * error(False)


def test_the_bootstrap_of_a_large_table_takes_some_rows_and_keeps_the_scale(monkeypatch: pytest.MonkeyPatch) -> None:
    draw = np.random.default_rng(0)
    tables = [pa.table({"k": draw.choice(list("abc"), 4000, p=p)}) for p in ([0.2, 0.3, 0.5], [0.3, 0.3, 0.4])]
    layout = Layout.of(tables[0])
    real, fake = (layout.read(table, "table") for table in tables)
    whole = one_way(real, fake, bootstrap=100)
    monkeypatch.setattr(marginals, "BOOTSTRAP_ROWS", 1000)
    some = one_way(real, fake, bootstrap=100)
    assert some.settings["bootstrap_rows"] == [1000, 1000]
    assert some["tv1"] == whole["tv1"]
    assert some.scores["tv1"].error == pytest.approx(whole.scores["tv1"].error, rel=0.4)  # not twice as large
