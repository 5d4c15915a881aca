"""Transport, principal components and the discriminator against closed forms, POT and scikit-learn."""

import json
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import ot
import pyarrow as pa
import pytest
from scipy.special import entr
from sklearn.decomposition import PCA

from understudy.evaluation.geometry import (
    Cost,
    jensen_shannon,
    pca_marginal,
    transport,
    universe_diameter,
    wasserstein,
)
from understudy.evaluation.scores import CATALOGUE, Result, metrics_of
from understudy.evaluation.table import EncodedTable, Layout
from understudy.schema import Schema

Metric = Callable[..., Result]
LETTERS = np.array(["a", "b", "c", "d"])
SCHEMA = Schema.from_toml(
    """
    [table]
    [columns.number]
    kind = "real"
    bounds = [0, 10]
    [columns.level]
    kind = "categorical"
    categories = ["a", "b", "c"]
    """
)


def read(
    real: dict[str, object], synthetic: dict[str, object], schema: Schema | None = None
) -> tuple[EncodedTable, EncodedTable]:
    layout = Layout.of(pa.table(real), schema)
    return layout.read(pa.table(real), "real table"), layout.read(pa.table(synthetic), "synthetic table")


def mixed(num_rows: int, seed: int, shift: float = 0.0) -> dict[str, object]:
    generator = np.random.default_rng(seed)
    x = generator.normal(shift, 1.0, num_rows)
    return {
        "x": x,
        "y": x + generator.normal(size=num_rows),
        "letter": LETTERS[np.digitize(x + generator.normal(size=num_rows), [-1, 0, 1])],
        "flag": generator.random(num_rows) < 0.3 + shift / 4,
    }


# ------------------------------------------------------------------------------------------------------------ transport


@pytest.mark.parametrize(("cost", "distance"), [("squared", 0.09), ("euclidean", 0.3)])
def test_two_point_masses(cost: Cost, distance: float) -> None:
    """At distance d: d^2, or d."""
    real = {"number": [2.0] * 30, "level": ["a"] * 30}
    tables = read(real, {**real, "number": [5.0] * 30}, SCHEMA)
    largest = 3.0 if cost == "squared" else math.sqrt(3.0)
    for sample in (10, 30):
        result = wasserstein(*tables, cost=cost, sample=sample, repeats=3)
        assert result["wasserstein"] == pytest.approx(distance)
        assert result["wasserstein_score"] == pytest.approx(1 - distance / largest)
        assert result.details["real_baseline"]["value"] == 0


@pytest.mark.parametrize("cost", ["squared", "euclidean"])
@pytest.mark.parametrize("sizes", [(40, 40), (40, 25), (1, 7)])
def test_transport_agrees_with_pot(cost: Cost, sizes: tuple[int, int]) -> None:
    generator = np.random.default_rng(0)
    first, second = (generator.normal(size=(size, 3)) for size in sizes)
    costs = ot.dist(first, second, "sqeuclidean" if cost == "squared" else "euclidean")
    assert transport(first, second, cost=cost) == pytest.approx(
        ot.emd2(ot.unif(len(first)), ot.unif(len(second)), costs)
    )


def test_sampled_equals_exact_for_tables_of_100_rows() -> None:
    real, synthetic = read(mixed(100, 1), mixed(100, 2, shift=0.5))
    first, second = real.features(), synthetic.features()
    exact = ot.emd2(ot.unif(100), ot.unif(100), ot.dist(first, second))
    result = wasserstein(real, synthetic)
    assert result["wasserstein"] == pytest.approx(exact, rel=1e-5)
    assert result.scores["wasserstein"].error is None
    shuffled = synthetic.take(np.random.default_rng(0).permutation(100))
    assert wasserstein(real, shuffled)["wasserstein"] == pytest.approx(exact, rel=1e-5)
    assert wasserstein(real, real.take(np.arange(100)[::-1]))["wasserstein"] == pytest.approx(0, abs=1e-9)
    twice = synthetic.take(np.repeat(np.arange(100), 2))
    assert wasserstein(real, twice, sample=200)["wasserstein"] == pytest.approx(exact, rel=1e-5)


def test_sampled_distances_have_the_bias_of_their_baseline() -> None:
    """A perfect synthetic table is as far from the real one as that is from itself; a shifted one is farther."""
    good, bad = (wasserstein(*read(mixed(3000, 1), mixed(3000, 2, shift=s))) for s in (0.0, 1.0))
    error = good.scores["wasserstein"].error
    assert error is not None
    assert good.details["real_baseline"]["value"] > 10 * error
    assert abs(good["wasserstein"] - good.details["real_baseline"]["value"]) < 6 * error
    assert bad["wasserstein"] > 1.3 * bad.details["real_baseline"]["value"]
    assert good["wasserstein_score"] > bad["wasserstein_score"]


def test_the_baseline_takes_disjoint_samples() -> None:
    """Two rows, one in each sample: always as far apart as they are."""
    tables = read({"number": [0.0, 10.0], "level": ["a", "b"]}, {"number": [0.0], "level": ["a"]}, SCHEMA)
    result = wasserstein(*tables)
    assert result.details["real_baseline"]["value"] == pytest.approx(3.0)
    assert result["wasserstein"] == pytest.approx(1.5)
    assert result.notes


def test_one_real_row_has_no_baseline() -> None:
    row = {"number": [1.0], "level": ["a"]}
    result = wasserstein(*read(row, row, SCHEMA))
    assert result["wasserstein"] == 0
    assert result.details["real_baseline"] == {"value": None, "error": None, "score": None}


@pytest.mark.parametrize("measure", [wasserstein, pca_marginal])
def test_the_baseline_does_not_depend_on_the_synthetic_table(measure: Callable[..., Result]) -> None:
    first, second = (measure(*read(mixed(500, 1), mixed(size, 2, shift=1.0))) for size in (500, 90))
    assert first.details["real_baseline"] == second.details["real_baseline"]


def test_only_sampled_rows_become_features(monkeypatch: pytest.MonkeyPatch) -> None:
    """Memory is that of the samples, not of the table."""
    seen: list[int] = []
    encode = EncodedTable.features

    def counted(self: EncodedTable, *arguments: Any, **named: Any) -> np.ndarray:
        seen.append(self.num_rows)
        return encode(self, *arguments, **named)

    monkeypatch.setattr(EncodedTable, "features", counted)
    tables = read(mixed(3000, 1), mixed(3000, 2))
    wasserstein(*tables, repeats=3)
    assert max(seen) <= 200
    seen.clear()
    result = pca_marginal(*tables, repeats=3, num_points=150, max_rows=1000)
    assert max(seen) == 1000
    assert result.settings["basis_rows"] == 1000
    assert len(result.details["real"]) == 150


def test_the_universe_from_the_layout() -> None:
    """Numbers and binaries 1, blocks 2, an indicator of nulls 1."""
    table = {
        "number": [0.0, 1.0, 2.0],
        "gaps": [0.0, None, 2.0],
        "binary": ["a", "b", "a"],
        "gappy": ["a", "b", None],
        "levels": ["a", "b", "c"],
        "one": ["a", "a", "a"],
    }
    assert universe_diameter(Layout.of(pa.table(table))) == 1 + 2 + 1 + 2 + 2 + 1


def test_values_outside_the_schema_stay_in_the_universe() -> None:
    real = {"number": [0.0, 10.0], "level": ["a", "b"]}
    result = wasserstein(*read(real, {"number": [1e9, None], "level": ["other", None]}, SCHEMA))
    assert 0 <= result["wasserstein_score"] <= 1


# ------------------------------------------------------------------------------------------------------------------ PCA


def test_principal_components_agree_with_scikit_learn() -> None:
    real, synthetic = read(mixed(400, 1), mixed(300, 2, shift=0.5))
    features = real.features().astype(float)
    standard = (features - features.mean(axis=0)) / features.std(axis=0)
    oracle = PCA(2, svd_solver="full").fit(standard)
    result = pca_marginal(real, synthetic)
    assert result.details["explained"] == pytest.approx(oracle.explained_variance_ratio_, abs=6e-4)
    signs = np.sign([axis[np.abs(axis).argmax()] for axis in oracle.components_])
    assert np.array(result.details["real"]) == pytest.approx(oracle.transform(standard) * signs, abs=6e-4)
    moved = (synthetic.features() - features.mean(axis=0)) / features.std(axis=0)
    assert np.array(result.details["synthetic"]) == pytest.approx(oracle.transform(moved) * signs, abs=6e-4)
    loadings = result.details["loadings"]
    assert isinstance(loadings, list)
    for axis, sign, named in zip(oracle.components_, signs, loadings, strict=True):
        weights = dict(zip(real.layout.feature_names(), axis * sign, strict=True))
        assert named[0][1] > 0
        assert len(named) == len(weights)
        assert all(weight == pytest.approx(weights[name], abs=6e-4) for name, weight in named)
        assert [abs(weight) for _, weight in named] == sorted((abs(weight) for _, weight in named), reverse=True)


@pytest.mark.parametrize("cost", ["squared", "euclidean"])
def test_score_of_principal_components_by_the_formula(cost: Cost) -> None:
    """1 - W / (sqrt(v) max), exact for small tables; both W and the maximum are of the same cost."""
    real, synthetic = read(mixed(80, 1), mixed(80, 2, shift=0.5))
    result = pca_marginal(real, synthetic, cost=cost)
    assert result.settings["cost"] == cost
    first, second = np.array(result.details["real"]), np.array(result.details["synthetic"])
    assert result["pca_wasserstein"] == pytest.approx(transport(first, second, cost=cost), abs=0.01)
    explained = sum(result.details["explained"])
    squared = universe_diameter(real.layout)
    largest = math.sqrt(explained) * (squared if cost == "squared" else math.sqrt(squared))
    score = 1 - result["pca_wasserstein"] / largest
    assert result["pca_wasserstein_score"] == pytest.approx(score, abs=1e-3)
    baseline = result.details["real_baseline"]
    assert baseline["score"] == pytest.approx(1 - baseline["value"] / largest, abs=1e-3)
    assert pca_marginal(real, real, cost=cost)["pca_wasserstein"] == pytest.approx(0, abs=1e-9)
    assert pca_marginal(real, real, cost=cost)["pca_wasserstein_score"] == pytest.approx(1)


def test_principal_components_default_to_squared_distances() -> None:
    tables = read(mixed(80, 1), mixed(80, 2, shift=0.5))
    assert pca_marginal(*tables)["pca_wasserstein"] == pca_marginal(*tables, cost="squared")["pca_wasserstein"]


def test_components_ignore_the_order_of_rows_and_columns() -> None:
    real, synthetic = mixed(90, 1), mixed(90, 2, shift=0.5)
    plain = pca_marginal(*read(real, synthetic))
    order = np.random.default_rng(0).permutation(90)
    for changed in (
        read({name: real[name] for name in reversed(real)}, synthetic),
        [table.take(order) for table in read(real, synthetic)],
    ):
        result = pca_marginal(*changed)
        assert result["pca_wasserstein"] == pytest.approx(plain["pca_wasserstein"], rel=1e-5)
        assert result.details["explained"] == plain.details["explained"]


def test_a_share_of_the_rows_for_the_basis_and_of_the_points_for_the_picture() -> None:
    result = pca_marginal(*read(mixed(600, 1), mixed(500, 2)), basis_fraction=0.83, num_points=50)
    assert result.settings["basis_rows"] == 498
    for cloud in ("real", "synthetic"):
        assert np.array(result.details[cloud]).shape == (50, 2)
    whole = pca_marginal(*read(mixed(600, 1), mixed(500, 2)))
    assert whole.details["explained"] == pytest.approx(result.details["explained"], abs=0.05)
    assert whole.details["explained"] != result.details["explained"]


def test_a_constant_column_becomes_zero_and_a_constant_table_has_no_components() -> None:
    constant = {"number": [3.3] * 20, "level": ["a", "b"] * 10}
    moved = {"number": [9.0] * 20, "level": ["a", "b"] * 10}
    assert pca_marginal(*read(constant, moved, SCHEMA))["pca_wasserstein"] == pytest.approx(0, abs=1e-9)
    result = pca_marginal(*read({**constant, "level": ["a"] * 20}, moved, SCHEMA))
    assert all("varies" in score.why for score in result.scores.values())


def test_a_single_feature_has_a_single_component() -> None:
    result = pca_marginal(*read({"x": [0.0, 1.0, 2.0]}, {"x": [0.0, 1.0, 2.0]}))
    assert result.details["explained"] == [1.0]
    assert np.array(result.details["real"]).shape == (3, 1)


# -------------------------------------------------------------------------------------------------------- discriminator


def test_disjoint_tables_reach_the_largest_divergence() -> None:
    result = jensen_shannon(*read(mixed(400, 1), {**mixed(400, 2), "x": np.full(400, 9.0)}))
    largest = float(entr(0.25) + entr(0.75) - entr(0.5))  # between a certain coin and a fair one
    assert CATALOGUE["js_score"].high == pytest.approx(largest)
    assert result["js_score"] == pytest.approx(largest, abs=2e-3)
    assert result["discriminator_auc"] == 1


@pytest.mark.parametrize("sizes", [(2000, 2000), (2000, 500)])
def test_samples_of_one_law_are_not_distinguished(sizes: tuple[int, int]) -> None:
    """Whatever their sizes: both tables weigh the same."""
    result = jensen_shannon(*read(mixed(sizes[0], 1), mixed(sizes[1], 2)))
    assert result["js_score"] < 0.02
    assert result["discriminator_auc"] == pytest.approx(0.5, abs=0.06)


def test_divergence_of_one_binary_column_by_hand() -> None:
    """Shares of ones 0.2 and 0.8: the best belief is 0.2 or 0.8, and JSD(0.8, 1/2) follows."""
    levels = np.array(["no", "yes"])
    real, synthetic = ({"x": levels[(np.arange(4000) % 10 < ones).astype(int)]} for ones in (2, 8))
    result = jensen_shannon(*read(real, synthetic))

    def entropy(p: float) -> float:
        return -p * math.log(p) - (1 - p) * math.log(1 - p)

    expected = entropy(0.65) - entropy(0.8) / 2 - math.log(2) / 2
    assert result["js_score"] == pytest.approx(expected, rel=0.05)
    assert result["discriminator_auc"] == pytest.approx(0.8, abs=0.02)


@pytest.mark.parametrize(
    "change",
    [
        {"number": [None] * 100 + [5.0] * 100},
        {"number": pa.nulls(200, pa.float64())},
        {"number": [math.inf] * 200},
        {"level": ["other"] * 200},
        {"level": pa.nulls(200, pa.string())},
    ],
    ids=["nulls", "all null", "infinite", "unlisted", "null levels"],
)
def test_the_discriminator_sees_what_the_real_table_never_holds(change: dict[str, object]) -> None:
    real: dict[str, object] = {"number": np.tile([4.0, 5.0, 6.0, 5.0], 50), "level": ["a", "b"] * 100}
    assert jensen_shannon(*read(real, {**real, **change}, SCHEMA))["js_score"] > 0.03


def test_a_column_without_values_in_any_table_is_left_to_the_others() -> None:
    real: dict[str, object] = {"number": pa.nulls(200, pa.float64()), "level": ["a", "b"] * 100}
    assert jensen_shannon(*read(real, real, SCHEMA))["js_score"] < 0.02


def test_a_column_of_many_levels_is_taken_for_an_ordered_one() -> None:
    levels = [f"{number:03}" for number in range(300)]
    result = jensen_shannon(*read({"x": levels * 3}, {"x": levels[:150] * 6}))
    assert result["discriminator_auc"] == pytest.approx(0.75, abs=0.05)


def test_few_rows_train_no_discriminator() -> None:
    result = jensen_shannon(*read(mixed(99, 1), mixed(200, 2)))
    assert all("100 rows" in score.why for score in result.scores.values())


# ------------------------------------------------------------------------------------------------------------------ all


@pytest.mark.parametrize("metric", [pca_marginal, wasserstein, jensen_shannon])
def test_results_are_repeatable_json(metric: Metric) -> None:
    tables = read(mixed(300, 1), mixed(200, 2, shift=0.5))
    first = metric(*tables, seed=3)
    assert first == metric(*tables, seed=3)
    assert json.loads(json.dumps([first.settings, first.details])) == [first.settings, first.details]
    assert all(type(score.value) is float for score in first.scores.values())


def test_every_key_is_described() -> None:
    tables = read(mixed(200, 1), mixed(200, 2))
    keys = [key for metric in (pca_marginal, wasserstein, jensen_shannon) for key in metric(*tables).scores]
    assert sorted(keys) == sorted(
        m.key for group in ("pca", "wasserstein", "jensen_shannon") for m in metrics_of(group)
    )
