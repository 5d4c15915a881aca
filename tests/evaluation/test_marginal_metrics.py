"""1-, 2- and 3-way marginals against slow, obvious versions and SciPy; and the tables where they are undefined."""

import itertools
import math
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from scipy import stats
from scipy.spatial.distance import jensenshannon

import understudy as us
from tests.evaluation.encoded import encode, mixed, slow_counts, slow_l1, slow_tv, some_pair
from understudy.evaluation import marginals
from understudy.evaluation.marginals import dimension_probability, nist, one_way, three_way, two_way
from understudy.evaluation.table import EncodedTable, Layout


@pytest.fixture(scope="module")
def pair() -> tuple[EncodedTable, EncodedTable]:
    return some_pair()


@pytest.mark.parametrize("bins", [1, 2, 7])
def test_marginals_of_one_two_and_three_columns_equal_slow_counts(
    pair: tuple[EncodedTable, EncodedTable], bins: int
) -> None:
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


def test_single_columns_equal_scipy(pair: tuple[EncodedTable, EncodedTable]) -> None:
    real, fake = pair
    result = one_way(real, fake, bins=12)
    columns = result.details["columns"]
    assert isinstance(columns, dict)
    ks, w1 = [], []
    for name in ("age", "income"):
        x, y = (table[name][~np.isnan(table[name])] for table in pair)
        ks.append(stats.ks_2samp(x, y, method="asymp").statistic)
        spec = real.layout[name]
        scaled = [np.clip((v - spec.lower) / (spec.upper - spec.lower), 0, 1) for v in (x, y)]
        w1.append(stats.wasserstein_distance(*scaled))
        assert columns[name]["ks"] == pytest.approx(ks[-1], abs=1e-12)
        assert columns[name]["w1"] == pytest.approx(w1[-1], abs=1e-12)
        edges = columns[name]["edges"]
        assert len(edges) <= 13
        inside = [
            np.histogram(np.clip(v, spec.lower, spec.upper), edges)[0] / len(t[name])
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


def test_nulls_and_unlisted_values_are_counted_apart_from_categories() -> None:
    real, fake = encode({"a": ["x", "y", "x", None], "b": ["u", "v", "u", "u"]}, {"a": ["x"], "b": ["w"]})
    columns = one_way(real, fake).details["columns"]
    assert columns["a"]["labels"] == ["x", "y"]
    assert columns["a"]["real"] == [0.5, 0.25]
    assert columns["a"]["synthetic"] == [1.0, 0.0]
    assert columns["a"]["missing"] == [0.25, 0.0]
    assert columns["a"]["tv"] == 0.5
    assert columns["b"]["labels"] == ["u", "v"]
    assert columns["b"]["unlisted"] == [0.0, 1.0]
    assert columns["b"]["tv"] == 1.0
    assert columns["b"]["jsd"] == 1.0
    assert columns["b"]["ks"] is None


def test_bootstrap_error_is_the_spread_of_repeated_samples() -> None:
    """Against fresh samples of two known laws: the multinomial draws have the same spread."""
    draw = np.random.default_rng(0)
    laws = ([0.6, 0.3, 0.1], [0.3, 0.3, 0.4])
    samples = [[draw.choice(["a", "b", "c"], 400, p=law) for law in laws] for _ in range(200)]
    tables = [encode({"x": real}, {"x": fake}) for real, fake in samples]
    spread = np.std([one_way(*each)["tv1"] for each in tables])
    score = one_way(*tables[0], bootstrap=400).scores["tv1"]
    assert score.error == pytest.approx(spread, rel=0.2)
    assert score == one_way(*tables[0], bootstrap=400).scores["tv1"]
    assert score.error != one_way(*tables[0], bootstrap=400, seed=1).scores["tv1"].error
    assert one_way(*tables[0]).scores["tv1"].error is None


def slow_nist(real: EncodedTable, synthetic: EncodedTable, ends: Mapping[str, tuple[float, float]], bins: int) -> float:
    def place(table: EncodedTable, name: str, row: int) -> object:
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
def test_nist_equals_its_formula(pair: tuple[EncodedTable, EncodedTable], bins: int) -> None:
    """Synthetic incomes lie above and below the real ones, in bins of their own."""
    real, fake = pair
    own = {n: (float(np.nanmin(real[n])), float(np.nanmax(real[n]))) for n in ("age", "income")}
    assert np.nanmax(fake["income"]) > own["income"][1]
    found = nist(real, fake, bins=bins)
    assert found["nist_l1"] == pytest.approx(slow_nist(real, fake, own, bins), abs=1e-12)
    assert found["nist_score"] == pytest.approx(1 - found["nist_l1"] / 2)
    assert found["nist_points"] == pytest.approx(1e6 * found["nist_score"])


def test_nist_bins_by_hand() -> None:
    values = np.array([0.0, 0.5, 0.999, 1.0, 1.2, -0.1, np.nan, np.inf])
    assert marginals._nist_bins(values, 0.0, 1.0, 100).tolist()[:6] == [0, 50, 99, 100, 120, -10]
    real, fake = encode({"x": [0.0, 1.0, 0.5]}, {"x": [1.0, 1.2, -0.1, None, 1.2]})
    ours, theirs, size = marginals._nist_codes(real, fake, real.layout["x"], 100)
    assert ours.tolist() == [0, 100, 50]
    assert theirs.tolist() == [100, 103, 102, 101, 103]
    assert size == 104


def test_nist_of_disjoint_tables_is_two() -> None:
    real, fake = encode(
        {"x": [1.0, 2.0], "y": ["a", "a"], "z": [True, True]}, {"x": [9.0, 8.0], "y": ["a", "a"], "z": [True, True]}
    )
    assert nist(real, fake)["nist_l1"] == pytest.approx(2.0)
    assert nist(real, fake)["nist_points"] == pytest.approx(0.0)


def test_nist_gives_a_constant_column_one_bin() -> None:
    table = {"x": [1.0, 1.0], "y": ["a", "b"], "z": [True, False]}
    real, fake = encode(table, {**table, "x": [5.0, -1.0]})
    assert nist(real, fake)["nist_l1"] == 0.0


def test_dimension_wise_probability_by_hand() -> None:
    real, fake = encode(
        {"flag": [True, False, False, False], "x": ["a", "b", "c", None], "n": [1.0, 2.0, 3.0, 4.0]},
        {"flag": [True, True, False, False], "x": ["a", "a", "z", None], "n": [1.0, 2.0, 3.0, 4.0]},
    )
    result = dimension_probability(real, fake)
    points = result.details["points"]
    assert isinstance(points, list)
    assert [(p["column"], p["category"], p["real"], p["synthetic"]) for p in points] == [
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


def test_dimension_wise_correlation_equals_numpy(pair: tuple[EncodedTable, EncodedTable]) -> None:
    result = dimension_probability(*pair)
    points = result.details["points"]
    assert isinstance(points, list)
    expected = np.corrcoef([p["real"] for p in points], [p["synthetic"] for p in points])[0, 1]
    assert result["dwp_correlation"] == pytest.approx(expected)


def test_levels_that_no_real_row_has_are_not_lost() -> None:
    column = us.Column(name="x", kind="categorical", categories=("a", "b", "c"), closed=True)
    real, fake = encode({"x": ["a", "b"]}, {"x": ["a", "a"]}, schema=us.Schema(columns=(column,)))
    assert dimension_probability(real, fake)["dwp_zero_share"] == 0.5


def test_dimension_wise_probability_of_a_constant_column_counts_ones() -> None:
    real, fake = encode({"flag": [True, True]}, {"flag": [True, True]})
    points = dimension_probability(real, fake).details["points"]
    assert isinstance(points, list)
    assert points[0]["real"] == points[0]["synthetic"] == 1.0


def test_triples_are_distinct_and_do_not_hang_on_the_order_of_columns() -> None:
    names = [f"c{i}" for i in range(12)]
    drawn = marginals._triples(names, 50, 3)
    assert len(drawn) == len({frozenset(triple) for triple in drawn}) == 50
    assert all(len(set(triple)) == 3 for triple in drawn)
    turned = marginals._triples(names[::-1], 50, 3)
    assert [{names[i] for i in t} for t in drawn] == [{names[::-1][i] for i in t} for t in turned]
    assert marginals._triples(names, 50, 4) != drawn
    assert len(marginals._triples(names, 220, 0)) == 220
    assert three_way(*encode(mixed(50, 0), mixed(50, 1)), num_triples=4).details["triples"] == 4


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
    ours = encode(real, turned)
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
