"""The scorecard as users meet it: real tables in, one JSON document out."""

import json
import math
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

import understudy as us
from understudy.errors import ConditionError, ConfigError, SchemaError, TableError
from understudy.evaluation.groups import EFFORTS, GROUPS
from understudy.evaluation.scorecard import WARNING, Scorecard, evaluate

SMALL = ["one_way", "two_way", "validity", "learning"]


def people(num_rows: int, seed: int) -> pa.Table:
    draw = np.random.default_rng(seed)
    age = draw.integers(18, 90, num_rows)
    city = draw.choice(["north", "south", "east"], num_rows)
    income = 10.0 * age + np.where(city == "south", 200, 0) + draw.uniform(-100, 100, num_rows)
    rich = np.where(income + draw.uniform(-200, 200, num_rows) > 700, "yes", "no")
    return pa.table({"age": age, "city": city, "income": income, "rich": rich})


def shuffled(table: pa.Table, seed: int = 0) -> pa.Table:
    draw = np.random.default_rng(seed)
    return pa.table({name: table.column(name).take(draw.permutation(table.num_rows)) for name in table.column_names})


REAL, TEST, GOOD, BAD = people(2000, 0), people(800, 1), people(2000, 2), shuffled(people(2000, 3))


@pytest.fixture(scope="module")
def whole() -> Scorecard:
    """Every metric, two methods side by side."""
    return evaluate(
        REAL,
        {"good": GOOD, "bad": BAD},
        target="rich",
        holdout=TEST,
        constraints=["age >= 18", "income < 1000"],
    )


@pytest.fixture(scope="module")
def quick() -> Scorecard:
    return evaluate(REAL, GOOD, target="rich", effort="quick")


def test_every_metric_is_there_with_its_words(whole: Scorecard) -> None:
    entries = whole.to_json()["metrics"]
    assert [entry["key"] for entry in entries] == [metric.key for group in GROUPS for metric in group.metrics]
    for entry in entries:
        assert len(entry["meaning"]) > 20
        assert entry["direction"] in (
            "lower is better",
            "higher is better",
            "1 is best",
            "nearer to real is better",
        )
        for score in entry["values"].values():
            assert (score["value"] is None) == bool(score["why"]), entry["key"]


def test_every_number_is_in_its_range(whole: Scorecard) -> None:
    for entry in whole.to_json()["metrics"]:
        low = -math.inf if entry["low"] is None else entry["low"]
        high = math.inf if entry["high"] is None else entry["high"]
        for score in [*entry["values"].values(), entry["reference"] or {"value": None}]:
            if score["value"] is not None:
                assert low - 1e-9 <= score["value"] <= high + 1e-9, entry["key"]


@pytest.mark.parametrize(
    ("key", "is_lower"),
    [
        ("tv2", True),
        ("tv3", True),
        ("corr_diff", True),
        ("nist_l1", True),
        ("js_score", True),
        ("discriminator_auc", True),
        ("pmse_cart", True),
        ("tstr_auc", False),
        ("tstr_f1", False),
        ("nist_score", False),
        ("wasserstein_score", False),
        ("dwpred_distance", True),
        ("rmse_ratio_mean", True),
    ],
)
def test_a_good_table_beats_a_shuffled_one(whole: Scorecard, key: str, is_lower: bool) -> None:
    scores = whole[key]
    assert isinstance(scores, dict)
    assert (scores["good"] < scores["bad"]) == is_lower


def test_real_rows_stand_beside_and_score_like_a_good_table(whole: Scorecard) -> None:
    scores = whole["tstr_auc"]
    assert isinstance(scores, dict)
    assert scores["good"] == pytest.approx(whole.reference("tstr_auc"), abs=0.03)
    assert scores["bad"] < whole.reference("tstr_auc") - 0.05
    assert whole.reference("tv1") < 0.15


def test_the_document_survives_json(whole: Scorecard, tmp_path: Path) -> None:
    whole.save(tmp_path / "scores.json")
    again = Scorecard.load(tmp_path / "scores.json")
    assert again.to_json() == whole.to_json()
    assert json.loads((tmp_path / "scores.json").read_text())["warning"] == WARNING
    with pytest.raises(us.UnderstudyError, match="exists"):
        whole.save(tmp_path / "scores.json")


def test_uncertainty_stands_where_it_was_estimated(whole: Scorecard) -> None:
    errors = {
        entry["key"]: entry["values"]["good"]["error"]
        for entry in whole.to_json()["metrics"]
        if entry["values"]["good"]["error"] is not None
    }
    assert {"tv1", "tstr_auc", "tstr_f1", "wasserstein"} <= set(errors)
    assert all(error > 0 for error in errors.values())


def test_constraints_count_both_tables(whole: Scorecard) -> None:
    scores = whole["constraint_violations"]
    assert isinstance(scores, dict)
    expected = np.mean(np.asarray(GOOD["income"]) >= 1000)
    assert scores["good"] == pytest.approx(expected, rel=1e-5)
    expected = np.mean(np.asarray(TEST["income"]) >= 1000)
    assert whole.reference("constraint_violations") == pytest.approx(expected, rel=1e-5)


def test_cells_won_compares_the_methods(whole: Scorecard) -> None:
    won = whole.to_json()["details"]["cell_accuracy"]["comparison"]
    assert sum(won["won"].values()) == won["cells"]


def test_quick_leaves_metrics_out_and_says_so(quick: Scorecard) -> None:
    assert quick.why("nist_l1") == "Left out by the quick scorecard."
    assert not quick.why("tstr_auc")
    assert not quick.why("pmse_logit_ratio")
    settings = quick.to_json()["settings"]
    assert settings["learning"]["max_rows"] == 5000
    assert settings["learning"]["models"] == ["random_forest"]


def test_without_a_holdout_rows_are_split_once_and_this_is_said(quick: Scorecard) -> None:
    content = quick.to_json()
    assert content["holdout"] == {"name": "a fifth of the real table", "rows": 400, "given": False, "seen": True}
    assert any("The synthesizer has seen them" in note for note in content["notes"])
    assert any("read off the real table" in note for note in content["notes"])


def test_a_given_holdout_is_unseen(whole: Scorecard) -> None:
    assert whole.to_json()["holdout"]["seen"] is False
    assert not any("The synthesizer has seen them" in note for note in whole.to_json()["notes"])


def test_no_target_says_why_and_judges_the_rest() -> None:
    scores = evaluate(REAL, GOOD, metrics=SMALL)
    assert "No target" in scores.why("tstr_auc")
    assert scores["tv1"] >= 0  # type: ignore[operator]


def test_a_numeric_target_is_regressed() -> None:
    scores = evaluate(REAL, {"good": GOOD, "bad": BAD}, target="income", holdout=TEST, metrics=["learning"])
    r2 = scores["tstr_r2"]
    assert isinstance(r2, dict)
    assert r2["good"] > 0.8 > r2["bad"]
    assert "number" in scores.why("tstr_auc")


def test_only_the_named_metrics_are_computed() -> None:
    scores = evaluate(REAL, GOOD, metrics=["tv1", "two_way"])
    assert list(scores) == ["tv1", "tv2", "tv2_max"]
    assert set(scores.to_json()["seconds"]) == {"one_way", "two_way"}


def test_the_order_of_rows_and_columns_does_not_matter() -> None:
    order = np.random.default_rng(5).permutation(GOOD.num_rows)
    turned = GOOD.take(order).select(GOOD.column_names[::-1])
    marginal = ["one_way", "two_way", "three_way", "correlations", "validity", "dimension_probability"]
    first, second = (evaluate(REAL, table, metrics=marginal) for table in (GOOD, turned))
    for key in first:
        assert first[key] == pytest.approx(second[key], abs=1e-9), key


def test_more_synthetic_rows_than_real_ones_are_drawn_down() -> None:
    scores = evaluate(REAL, people(5000, 4), metrics=["one_way"])
    assert scores.to_json()["settings"]["one_way"]["synthetic_rows"] == 2000
    assert any("2,000 of them were drawn" in note for note in scores.to_json()["notes"])


def test_frames_and_files_give_the_same_scorecard(tmp_path: Path) -> None:
    real, fake = REAL.to_pandas(), GOOD.to_pandas()
    real.to_csv(tmp_path / "people.csv", index=False)
    fake.to_csv(tmp_path / "fake.csv", index=False)
    of_frames = evaluate(real, fake, metrics=["one_way", "two_way"])
    of_files = evaluate(tmp_path / "people.csv", str(tmp_path / "fake.csv"), metrics=["one_way", "two_way"])
    for key in of_frames:
        assert of_frames[key] == pytest.approx(of_files[key])
    assert of_files.methods == ("fake",)
    assert of_files.to_json()["real"]["name"] == "people"


def test_a_synthetic_file_is_read_as_the_kinds_of_the_real_one(tmp_path: Path) -> None:
    pd.DataFrame({"zip": ["01", "1", "x"] * 20}).to_csv(tmp_path / "real.csv", index=False)
    pd.DataFrame({"zip": ["01"] * 60}).to_csv(tmp_path / "fake.csv", index=False)
    scores = evaluate(tmp_path / "real.csv", tmp_path / "fake.csv", metrics=["tv1", "unlisted"])
    assert scores["unlisted"] == 0
    assert scores["tv1"] == pytest.approx(2 / 3, rel=1e-5)


def test_the_schema_names_target_and_positive_class() -> None:
    schema = us.Schema(
        columns=(
            us.Column(name="age", kind="integer", bounds=(18, 90)),
            us.Column(name="city", kind="categorical", categories=("north", "south", "east")),
            us.Column(name="income", kind="real", bounds=(0, 1200)),
            us.Column(name="rich", kind="categorical", categories=("no", "yes")),
        ),
        target="rich",
        positive="no",
    )
    content = evaluate(REAL, GOOD, schema=schema, metrics=["tv1"]).to_json()
    assert (content["target"], content["positive"]) == ("rich", "no")
    assert not any("read off" in note for note in content["notes"])


def test_one_class_in_the_synthetic_table_is_flagged() -> None:
    one = GOOD.set_column(3, "rich", pa.array(["no"] * GOOD.num_rows))
    scores = evaluate(REAL, one, target="rich", holdout=TEST, metrics=["learning"], effort="quick")
    assert scores["tstr_auc"] == 0.5
    assert scores["tstr_f1"] == 0.0
    assert any("one class" in note for note in scores.to_json()["notes"])


def test_constant_and_empty_columns_do_no_harm() -> None:
    odd = {"constant": pa.array(["c"] * 2000), "empty": pa.nulls(2000, pa.float64())}
    real, fake = REAL, GOOD
    for name, values in odd.items():
        real, fake = real.append_column(name, values), fake.append_column(name, values)
    scores = evaluate(real, fake, target="rich", effort="quick")
    assert scores["tv1"] < 0.1  # type: ignore[operator]
    assert any('"empty"' in note for note in scores.to_json()["notes"])


@pytest.mark.parametrize(
    ("arguments", "error", "words"),
    [
        ({"target": "rihc"}, SchemaError, "Did you mean 'rich'"),
        ({"synthetic": GOOD.drop_columns(["rich"]), "target": "rich"}, SchemaError, "synthetic table lacks.*rich"),
        ({"real": REAL.drop_columns(["rich"]), "target": "rich"}, SchemaError, "target 'rich' is not a column"),
        ({"synthetic": GOOD.slice(0, 0)}, TableError, "The synthetic table .* no rows"),
        ({"real": REAL.slice(0, 0)}, TableError, "The real table .* no rows"),
        ({"holdout": TEST.slice(0, 0)}, TableError, "The holdout .* no rows"),
        ({"effort": "ful"}, ConfigError, "Did you mean 'full'"),
        ({"metrics": ["tv9"]}, ConfigError, "no metric 'tv9'"),
        ({"metrics": []}, ConfigError, "metrics is empty"),
        ({"metrics": "tv1"}, ConfigError, "list of names"),
        ({"synthetic": {}}, ConfigError, "no synthetic table"),
        ({"synthetic": {"real": GOOD}}, ConfigError, "cannot be named 'real'"),
        ({"constraints": ["age >"], "metrics": ["constraints"]}, ConditionError, "age"),
    ],
)
def test_bad_input_is_named(arguments: dict, error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        evaluate(**{"real": REAL, "synthetic": GOOD, **arguments})


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("{", "not JSON"),
        ("[]", "not a scorecard"),
        ('{"format": "understudy-scorecard", "version": 99}', "version 99"),
    ],
)
def test_a_wrong_file_is_refused(tmp_path: Path, content: str, words: str) -> None:
    (tmp_path / "scores.json").write_text(content)
    with pytest.raises(ConfigError, match=words):
        Scorecard.load(tmp_path / "scores.json")
    with pytest.raises(ConfigError, match="no file"):
        Scorecard.load(tmp_path / "other.json")


def test_an_unknown_key_is_a_key_error(quick: Scorecard) -> None:
    with pytest.raises(KeyError, match="tv1"):
        quick["tv11"]


def test_progress_runs_from_nothing_to_all() -> None:
    seen: list[float] = []
    evaluate(REAL, GOOD, metrics=["one_way", "two_way"], progress=lambda share, now: seen.append(share))
    assert seen[0] == 0.0
    assert seen[-1] == 1.0
    assert seen == sorted(seen)


def test_the_efforts_are_stated() -> None:
    assert EFFORTS["default"].slow_rows == 20_000
    assert EFFORTS["full"].slow_rows is None
    assert EFFORTS["full"].interactions == 1
    assert EFFORTS["quick"].slow_rows == 5_000


def test_two_real_columns_are_judged_as_the_gaussian_benchmark() -> None:
    draw = np.random.default_rng(0)
    centres = 2.0 * draw.integers(-2, 3, (4000, 2))
    # Sums of uniforms are near enough to normal: standard deviation 0.05.
    spread = draw.uniform(-0.5, 0.5, (4000, 2, 12)).sum(axis=2) * 0.05
    points = centres + spread
    table = pa.table({"x": points[:, 0], "y": points[:, 1]})
    scores = evaluate(table, table, metrics=["gaussians"])
    assert scores["modes"] == 25
    assert scores["quality_uncapped"] == pytest.approx(0.99, abs=0.01)
