"""pMSE against hand examples, scikit-learn, closed forms and the published null distribution."""

import json
import math
from collections.abc import Callable

import numpy as np
import pyarrow as pa
import pytest
from sklearn.linear_model import LogisticRegression

from tests.builders import raises
from understudy.errors import ConfigError
from understudy.evaluation.pmse import allowed_order, pmse_cart, pmse_logit
from understudy.evaluation.scores import Result, Status, metrics_of
from understudy.evaluation.table import EncodedTable, Layout
from understudy.schema import Schema

Metric = Callable[..., Result]
LETTERS = np.array(["a", "b", "c", "d"])


def read(
    real: dict[str, object], synthetic: dict[str, object], schema: Schema | None = None
) -> tuple[EncodedTable, EncodedTable]:
    layout = Layout.of(pa.table(real), schema)
    return layout.read(pa.table(real), "real table"), layout.read(pa.table(synthetic), "synthetic table")


def mixed(num_rows: int, seed: int, shift: float = 0.0) -> dict[str, object]:
    """Two numbers, a column of four levels and one of two, all dependent."""
    generator = np.random.default_rng(seed)
    x = generator.normal(shift, 1.0, num_rows)
    return {
        "x": x,
        "y": x + generator.normal(size=num_rows),
        "letter": LETTERS[np.digitize(x + generator.normal(size=num_rows), [-1, 0, 1])],
        "flag": generator.random(num_rows) < 0.3 + shift / 4,
    }


def ones(num_rows: int, num_ones: int) -> dict[str, object]:
    return {"x": np.where(np.arange(num_rows) < num_ones, "yes", "no")}


def chi_square(result: Result) -> float:
    """N^4 pMSE / (n1^2 n2)."""
    real_rows, synthetic_rows = (int(str(result.settings[key])) for key in ("real_rows", "synthetic_rows"))
    return (real_rows + synthetic_rows) ** 4 * result["pmse_logit"] / (real_rows**2 * synthetic_rows)


# ---------------------------------------------------------------------------------------------------------------- logit


def test_logit_of_one_binary_column_by_hand() -> None:
    """3 and 7 ones of 10: fitted shares are 0.3 and 0.7, so pMSE is 0.2^2; k = 2 and N = 20."""
    result = pmse_logit(*read(ones(10, 3), ones(10, 7)))
    assert result["pmse_logit"] == pytest.approx(0.04, rel=1e-6)
    assert result["pmse_logit_ratio"] == pytest.approx(0.04 / (1 / 160), rel=1e-6)
    assert result["pmse_logit_standardised"] == pytest.approx((0.04 - 1 / 160) / (math.sqrt(2) / 160), rel=1e-6)
    assert result.details["num_coefficients"] == 2
    assert result.notes == ()


def test_logit_of_tables_of_different_sizes_by_hand() -> None:
    result = pmse_logit(*read(ones(10, 3), ones(20, 14)))
    pmse = (17 * (14 / 17 - 2 / 3) ** 2 + 13 * (6 / 13 - 2 / 3) ** 2) / 30
    assert result["pmse_logit"] == pytest.approx(pmse, rel=1e-6)
    assert result["pmse_logit_ratio"] == pytest.approx(chi_square(result), rel=1e-9)
    assert any("67%" in note for note in result.notes)


@pytest.mark.parametrize("maxorder", [0, 1])
@pytest.mark.parametrize("sizes", [(300, 300), (400, 250)])
def test_logit_agrees_with_scikit_learn(maxorder: int, sizes: tuple[int, int]) -> None:
    """Dense dummies without a reference level: other coefficients, the same fitted shares and the same rank."""
    real, synthetic = mixed(sizes[0], 1), mixed(sizes[1], 2, shift=0.3)
    stacked = {name: np.concatenate([real[name], synthetic[name]]) for name in real}
    columns = [stacked["x"], stacked["y"], stacked["flag"], *(stacked["letter"] == letter for letter in LETTERS)]
    design = np.stack(columns, axis=1).astype(float)
    variable = np.array([0, 1, 2, 3, 3, 3, 3])
    if maxorder:
        pairs = [(i, j) for i in range(7) for j in range(i) if variable[i] != variable[j]]
        design = np.hstack([design, *(design[:, [i]] * design[:, [j]] for i, j in pairs)])
    labels = np.arange(sum(sizes)) >= sizes[0]
    model = LogisticRegression(C=np.inf, solver="newton-cg", tol=1e-10, max_iter=5000).fit(design, labels)
    pmse = np.mean((model.predict_proba(design)[:, 1] - labels.mean()) ** 2)
    rank = np.linalg.matrix_rank(np.hstack([np.ones((len(design), 1)), design]))
    result = pmse_logit(*read(real, synthetic), maxorder=maxorder)
    assert result["pmse_logit"] == pytest.approx(pmse, rel=1e-4)
    assert result.details["num_coefficients"] == rank
    assert chi_square(result) == pytest.approx(result["pmse_logit_ratio"] * (rank - 1))
    assert chi_square(result) - (rank - 1) == pytest.approx(
        result["pmse_logit_standardised"] * math.sqrt(2 * (rank - 1))
    )


def test_logit_has_the_published_null_distribution() -> None:
    """Rows from a normal model fitted to the real ones: ratio 1 on average; shuffled labels: twice that."""
    generator = np.random.default_rng(0)
    names = "vwxyz"
    layout = Layout.of(pa.table({name: np.array([0.0, 1.0]) for name in names}))

    def ratio(real: np.ndarray, synthetic: np.ndarray) -> float:
        tables = (EncodedTable(layout, dict(zip(names, rows.T, strict=True))) for rows in (real, synthetic))
        return pmse_logit(*tables)["pmse_logit_ratio"]

    fitted, shuffled = [], []
    for _ in range(500):
        real = generator.normal(size=(250, 5)) @ np.triu(np.ones((5, 5)))
        synthetic = generator.multivariate_normal(real.mean(axis=0), np.cov(real.T), size=250)
        mixture = generator.permutation(np.concatenate([real, synthetic]))
        fitted.append(ratio(real, synthetic))
        shuffled.append(ratio(mixture[:250], mixture[250:]))
    assert np.mean(fitted) == pytest.approx(1.0, abs=0.1)
    assert np.mean(shuffled) == pytest.approx(2.0, abs=0.2)
    assert np.std(fitted) == pytest.approx(math.sqrt(2 / 5), rel=0.15)


def test_aliased_and_constant_columns_do_not_count() -> None:
    real, synthetic = mixed(200, 1), mixed(200, 2)
    plain = pmse_logit(*read(real, synthetic))
    for table in (real, synthetic):
        table["again"] = 3 * table["x"] - 2 * table["y"]  # type: ignore[operator]  # a numeric column
        table["same"] = np.full(200, "one")
        table["zero"] = np.zeros(200)
    more = pmse_logit(*read(real, synthetic))
    assert more.details["num_coefficients"] == plain.details["num_coefficients"] == 7
    assert more["pmse_logit"] == pytest.approx(plain["pmse_logit"], rel=1e-6)


def test_a_column_constant_in_one_table_is_kept_and_separation_is_flagged() -> None:
    result = pmse_logit(*read({"x": np.zeros(50), **mixed50(1)}, {"x": np.ones(50), **mixed50(2)}))
    assert result["pmse_logit"] == pytest.approx(0.25, abs=1e-6)
    assert any("perfectly" in note for note in result.notes)
    assert int(str(result.details["iterations"])) < 200


def mixed50(seed: int) -> dict[str, object]:
    return {"y": np.random.default_rng(seed).normal(size=50)}


def test_no_varying_column_has_no_ratio() -> None:
    result = pmse_logit(*read({"x": ["a"] * 5}, {"x": ["a"] * 4}))
    assert result["pmse_logit"] == 0
    assert not result.scores["pmse_logit_ratio"].is_defined
    assert result.scores["pmse_logit_ratio"].why


def test_products_see_what_main_effects_do_not() -> None:
    """Equal margins, opposite dependence."""
    first = np.tile([0, 0, 1, 1], 50)
    real, synthetic = (
        {"a": LETTERS[first], "b": LETTERS[np.tile(cells, 50)]} for cells in ([0, 0, 1, 1], [1, 1, 0, 0])
    )
    assert pmse_logit(*read(real, synthetic))["pmse_logit"] == 0
    assert pmse_logit(*read(real, synthetic), maxorder=1)["pmse_logit"] == pytest.approx(0.25, abs=1e-4)
    assert pmse_cart(*read(real, synthetic), cp=0.0, num_permutations=2)["pmse_cart"] == pytest.approx(0.25)


def test_logit_refuses_triples() -> None:
    with raises(ConfigError, setting="maxorder"):
        pmse_logit(*read(ones(5, 2), ones(5, 3)), maxorder=2)


# ----------------------------------------------------------------------------------------------------------------- both


@pytest.mark.parametrize("metric", [pmse_logit, pmse_cart])
def test_a_copy_scores_exactly_zero(metric: Metric) -> None:
    """Also one in another order, one of each row twice, and one drawn from a larger table."""
    table = pa.table(mixed(400, 1))
    layout = Layout.of(table)
    real = layout.read(table, "real table")
    key = metric.__name__
    assert metric(real, real)[key] == 0
    assert metric(real, real.take(np.random.default_rng(0).permutation(400)))[key] == 0
    assert metric(real, real.take(np.repeat(np.arange(400), 2)))[key] == 0
    assert metric(real, real, max_rows=100)[key] == 0


def test_a_copy_scores_exactly_zero_with_products() -> None:
    real, _ = read(mixed(200, 1), mixed(200, 1))
    assert pmse_logit(real, real.take(np.arange(200)[::-1]), maxorder=1)["pmse_logit"] == 0


@pytest.mark.parametrize("metric", [pmse_logit, pmse_cart])
def test_order_of_rows_and_columns_and_duplicates_do_not_matter(metric: Metric) -> None:
    real, synthetic = mixed(300, 1), mixed(300, 2, shift=0.5)
    key = metric.__name__
    settings = {} if metric is pmse_logit else {"num_permutations": 2, "cp": 0.01}
    value = metric(*read(real, synthetic), **settings)[key]
    tables = read(real, synthetic)
    order = np.random.default_rng(0).permutation(300)
    assert metric(*(table.take(order) for table in tables), **settings)[key] == pytest.approx(value, rel=1e-6)
    backwards = read({name: real[name] for name in reversed(real)}, synthetic)
    assert metric(*backwards, **settings)[key] == pytest.approx(value, rel=1e-6)
    if metric is pmse_logit:
        twice = np.repeat(np.arange(300), 2)
        assert metric(*(table.take(twice) for table in tables))[key] == pytest.approx(value, rel=1e-6)


SCHEMA = Schema.from_toml(
    """
    [table]
    [columns.number]
    kind = "real"
    bounds = [0, 10]
    [columns.level]
    kind = "categorical"
    categories = ["a", "b"]
    """
)


@pytest.mark.parametrize("metric", [pmse_logit, pmse_cart])
@pytest.mark.parametrize(
    "change",
    [
        {"number": [None] * 20 + [5.0] * 20},
        {"level": [None] * 20 + ["a"] * 20},
        {"level": ["other"] * 20 + ["b"] * 20},
        {"number": [500.0] * 20 + [5.0] * 20},
        {"number": [math.inf] * 20 + [5.0] * 20},
        {"number": pa.nulls(40, pa.float64())},
    ],
    ids=["null number", "null level", "unlisted", "out of range", "infinite", "all null"],
)
def test_what_the_real_table_never_holds_is_seen(metric: Metric, change: dict[str, object]) -> None:
    real: dict[str, object] = {"number": np.tile([4.0, 5.0, 6.0, 5.0], 10), "level": ["a", "b"] * 20}
    result = metric(*read(real, {**real, **change}, SCHEMA))
    assert result[metric.__name__] > 0.05


@pytest.mark.parametrize("metric", [pmse_logit, pmse_cart])
def test_one_row_of_each(metric: Metric) -> None:
    result = metric(*read({"x": ["a"], "y": [1.0]}, {"x": ["b"], "y": [2.0]}))
    assert 0 <= result[metric.__name__] <= 0.25
    json.dumps([result.settings, result.details])


@pytest.mark.parametrize("metric", [pmse_logit, pmse_cart])
def test_results_are_repeatable_json_and_described(metric: Metric) -> None:
    tables = read(mixed(300, 1), mixed(200, 2, shift=0.5))
    first, second = metric(*tables, max_rows=150, seed=3), metric(*tables, max_rows=150, seed=3)
    assert first == second

    assert json.loads(json.dumps([first.settings, first.details])) == [first.settings, first.details]
    assert first.settings["real_rows"] == first.settings["synthetic_rows"] == 150
    assert set(first.scores) == {entry.key for entry in metrics_of(metric.__name__)}
    assert all(type(score.value) is float for score in first.scores.values())


# ----------------------------------------------------------------------------------------------------------------- CART


def test_cart_of_one_binary_column_by_hand() -> None:
    """30 and 70 ones of 100: leaves of 0.3 and 0.7. The split lowers Gini impurity by 16%, so cp 0.17 forbids it."""
    tables = read(ones(100, 30), ones(100, 70))
    assert pmse_cart(*tables, cp=0.15)["pmse_cart"] == pytest.approx(0.04)
    assert pmse_cart(*tables, cp=0.17)["pmse_cart"] == 0


@pytest.mark.parametrize(("num_ones", "split"), [(4, False), (5, True)])
def test_cart_leaves_hold_at_least_the_bucket(num_ones: int, split: bool) -> None:
    result = pmse_cart(*read(ones(20, num_ones), ones(20, 0)), num_permutations=1)
    assert (result["pmse_cart"] > 0) == split


@pytest.mark.parametrize(("rows", "split"), [(7, False), (8, True)])
def test_cart_splits_at_least_fifteen_rows(rows: int, split: bool) -> None:
    result = pmse_cart(*read(ones(rows, rows), ones(rows, 0)), num_permutations=1)
    assert (result["pmse_cart"] > 0) == split


def test_cart_null_by_shuffled_labels() -> None:
    """Two samples of one distribution: ratio near 1."""
    tables = read(mixed(600, 1), mixed(300, 2))
    plain = pmse_cart(*tables, cp=1e-3)
    assert plain["pmse_cart_ratio"] == pytest.approx(1.0, abs=0.15)
    assert abs(plain["pmse_cart_standardised"]) < 4
    error = plain.scores["pmse_cart_ratio"].error
    assert error is not None
    assert 0 < error < 0.05
    shifted = pmse_cart(*read(mixed(300, 1), mixed(300, 2, shift=1.0)), cp=1e-3)
    assert shifted["pmse_cart_ratio"] > 1.3
    assert shifted["pmse_cart_standardised"] > 4


def test_trees_that_never_split_have_no_ratio() -> None:
    result = pmse_cart(*read(ones(20, 2), ones(20, 2)))
    assert result["pmse_cart"] == 0
    assert result.scores["pmse_cart_ratio"].status is Status.UNDEFINED
    assert not result.scores["pmse_cart_standardised"].is_defined


def test_no_ratio_with_too_many_coefficients_for_the_rows() -> None:
    draw = np.random.default_rng(0)
    tables = [pa.table({f"c{i}": draw.integers(0, 2, 60).astype(float) for i in range(20)}) for _ in range(2)]
    layout = Layout.of(tables[0])
    result = pmse_logit(*(layout.read(table, "table") for table in tables))
    assert result.scores["pmse_logit"].is_defined
    for key in ("pmse_logit_ratio", "pmse_logit_standardised"):
        assert result.scores[key].status is Status.UNDEFINED
        assert "20 coefficients" in result.scores[key].why


def test_no_ratio_where_the_tables_can_be_separated_perfectly() -> None:
    tables = [pa.table({"x": np.arange(100.0) + shift}) for shift in (0, 1000)]
    layout = Layout.of(tables[0])
    result = pmse_logit(*(layout.read(table, "table") for table in tables))
    assert result["pmse_logit"] == pytest.approx(0.25, abs=1e-3)
    for key in ("pmse_logit_ratio", "pmse_logit_standardised"):
        assert result.scores[key].status is Status.UNDEFINED


def test_interactions_only_where_the_rows_are_enough() -> None:
    table = pa.table({"a": [str(i % 10) for i in range(100)], "b": [str(i % 7) for i in range(100)], "x": range(100)})
    layout = Layout.of(table)  # 9 + 6 + 1 columns, 9 * 6 + 9 + 6 products
    assert allowed_order(layout, 1, 850) == 1
    assert allowed_order(layout, 1, 849) == 0
    assert allowed_order(layout, 0, 10**9) == 0
