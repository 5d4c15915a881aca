"""`evaluate` as users meet it: tables in, one scorecard out."""

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

import understudy as us
from tests.builders import raises
from understudy.errors import ConditionError, ConfigError, SchemaError, TableError
from understudy.evaluation.evaluate import evaluate
from understudy.evaluation.groups import EFFORTS, GROUPS
from understudy.evaluation.scorecard import Scorecard
from understudy.evaluation.scores import CATALOGUE, Result, Status
from understudy.evaluation.table import EncodedTable

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


def texts(scores: Scorecard) -> list[str]:
    return [note["text"] for note in scores.to_json()["notes"]]


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
    special = ("gaussians", "locations")  # for some tables alone
    expected = [metric.key for group in GROUPS for metric in group.metrics if group.name not in special]
    assert [entry["key"] for entry in entries] == expected
    for entry in entries:
        assert entry["direction"] == CATALOGUE[entry["key"]].direction
        for score in entry["values"].values():
            assert (score["value"] is None) == bool(score["why"]) == (score["status"] != "computed"), entry["key"]


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
    won = whole.to_json()["cells_won"]
    assert sum(won["won"].values()) == won["cells"]


def test_quick_leaves_metrics_out_and_says_so(quick: Scorecard) -> None:
    assert quick.status("nist_l1") == quick.status("dcr_ratio") == Status.SKIPPED
    assert quick.status("tstr_auc") == quick.status("pmse_logit_ratio") == Status.COMPUTED
    assert quick.status("tstr_r2") == Status.NOT_APPLICABLE
    settings = quick.to_json()["settings"]
    assert settings["learning"]["max_rows"] == {"random_forest": 5000}
    assert settings["learning"]["models"] == ["random_forest"]


def test_without_a_holdout_rows_are_split_once_and_this_is_said(quick: Scorecard) -> None:
    content = quick.to_json()
    expected = {"name": "a fifth of the real table", "file": "", "rows": 400, "given": False, "seen": True}
    assert content["holdout"] == expected
    assert any("The synthesizer was fitted to them" in note for note in texts(quick))
    assert any("inferred from the real table" in note for note in texts(quick))


def test_a_given_holdout_is_unseen(whole: Scorecard) -> None:
    assert whole.to_json()["holdout"]["seen"] is False
    assert not any("The synthesizer was fitted to them" in note for note in texts(whole))


def test_no_target_says_why_and_scores_the_rest() -> None:
    scores = evaluate(REAL, GOOD, metrics=SMALL)
    assert scores.status("tstr_auc") == Status.MISSING_INPUT
    assert scores["tv1"] >= 0  # type: ignore[operator]  # a metric that has a number


def test_a_numeric_target_is_regressed() -> None:
    scores = evaluate(REAL, {"good": GOOD, "bad": BAD}, target="income", holdout=TEST, metrics=["learning"])
    r2 = scores["tstr_r2"]
    assert isinstance(r2, dict)
    assert r2["good"] > 0.8 > r2["bad"]
    assert scores.status("tstr_auc") == Status.NOT_APPLICABLE


def test_only_the_named_metrics_are_computed() -> None:
    scores = evaluate(REAL, GOOD, metrics=["tv1", "two_way"])
    assert list(scores) == ["tv1", "tv2", "tv2_max"]
    assert set(scores.to_json()["seconds"]) == {"one_way", "two_way"}


def test_the_order_of_rows_and_columns_does_not_matter() -> None:
    order = np.random.default_rng(5).permutation(GOOD.num_rows)
    turned = GOOD.take(order).select(GOOD.column_names[::-1])
    marginal = ["one_way", "two_way", "three_way", "correlations", "validity", "dimension_probability"]
    first, second = (evaluate(REAL, table, metrics=marginal, effort="full") for table in (GOOD, turned))
    for key in first:
        assert first[key] == pytest.approx(second[key], abs=1e-9), key


def test_more_synthetic_rows_than_real_ones_are_drawn_down() -> None:
    scores = evaluate(REAL, people(5000, 4), metrics=["one_way"], effort="full")
    assert scores.to_json()["settings"]["one_way"]["synthetic_rows"] == 2000
    assert any("2,000 of them were sampled" in note for note in texts(scores))


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
            us.Column(name="city", kind="categorical", categories=("north", "south", "east"), closed=True),
            us.Column(name="income", kind="real", bounds=(0, 1200)),
            us.Column(name="rich", kind="categorical", categories=("no", "yes"), closed=True),
        ),
        target="rich",
        positive="no",
    )
    scores = evaluate(REAL, GOOD, schema=schema, metrics=["tv1"])
    assert (scores.to_json()["target"], scores.to_json()["positive"]) == ("rich", "no")
    assert not any("inferred from" in note for note in texts(scores))


def test_one_class_in_the_synthetic_table_is_flagged() -> None:
    one = GOOD.set_column(3, "rich", pa.array(["no"] * GOOD.num_rows))
    scores = evaluate(REAL, one, target="rich", holdout=TEST, metrics=["learning"], effort="quick")
    assert scores["tstr_auc"] == 0.5
    assert scores["tstr_f1"] == 0.0
    assert any("only the class" in note for note in texts(scores))


def test_constant_and_empty_columns_do_no_harm() -> None:
    odd = {"constant": pa.array(["c"] * 2000), "empty": pa.nulls(2000, pa.float64())}
    real, fake = REAL, GOOD
    for name, values in odd.items():
        real, fake = real.append_column(name, values), fake.append_column(name, values)
    scores = evaluate(real, fake, target="rich", effort="quick")
    assert scores["tv1"] < 0.1  # type: ignore[operator]  # a metric that has a number
    assert any('"empty"' in note for note in texts(scores))


@pytest.mark.parametrize(
    ("arguments", "error", "fields"),
    [
        ({"target": "rihc"}, SchemaError, {"column": "rihc"}),
        ({"synthetic": GOOD.drop_columns(["rich"]), "target": "rich"}, SchemaError, {"column": "rich"}),
        ({"real": REAL.drop_columns(["rich"]), "target": "rich"}, SchemaError, {"column": "rich"}),
        ({"effort": "ful"}, ConfigError, {"setting": "effort"}),
        ({"metrics": ["tv9"]}, ConfigError, {"setting": "metrics"}),
        ({"metrics": []}, ConfigError, {"setting": "metrics"}),
        ({"metrics": "tv1"}, ConfigError, {"setting": "metrics"}),
        ({"synthetic": {}}, ConfigError, {"setting": "synthetic"}),
        ({"synthetic": {"real": GOOD}}, ConfigError, {"setting": "synthetic"}),
        ({"constraints": ["age >"], "metrics": ["constraints"]}, ConditionError, {}),
    ],
)
def test_bad_input_is_named(arguments: dict, error: type[Exception], fields: dict) -> None:
    with raises(error, **fields):
        evaluate(**{"real": REAL, "synthetic": GOOD, **arguments})


@pytest.mark.parametrize(
    ("which", "words"), [("synthetic", "synthetic table"), ("real", "real table"), ("holdout", "holdout")]
)
def test_a_table_without_rows_is_named(which: str, words: str) -> None:
    with pytest.raises(TableError, match=f"The {words} .* no rows"):
        evaluate(**{"real": REAL, "synthetic": GOOD, which: TEST.slice(0, 0)})


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


def test_two_real_columns_are_scored_as_the_gaussian_benchmark() -> None:
    draw = np.random.default_rng(0)
    centres = 2.0 * draw.integers(-2, 3, (4000, 2))
    # Sums of uniforms are near enough to normal: standard deviation 0.05.
    spread = draw.uniform(-0.5, 0.5, (4000, 2, 12)).sum(axis=2) * 0.05
    points = centres + spread
    table = pa.table({"x": points[:, 0], "y": points[:, 1]})
    scores = evaluate(table, table, metrics=["gaussians"])
    assert scores["modes"] == 25
    assert scores["quality_uncapped"] == pytest.approx(0.99, abs=0.01)


# What the words say must be true


def declared(**changes: object) -> us.Schema:
    columns = {
        "age": us.Column(name="age", kind="integer", bounds=(18, 90)),
        "city": us.Column(name="city", kind="categorical", categories=("north", "south", "east"), closed=True),
        "income": us.Column(name="income", kind="real", bounds=(0, 1200)),
        "rich": us.Column(name="rich", kind="categorical", categories=("no", "yes"), closed=True),
    }
    return us.Schema(columns=tuple({**columns, **changes}.values()))  # type: ignore[arg-type]  # changes are columns


def with_column(table: pa.Table, name: str, values: list | np.ndarray) -> pa.Table:
    return table.set_column(table.column_names.index(name), name, pa.array(values))


def test_a_wrong_positive_class_lists_no_level_of_the_real_table() -> None:
    schema = us.Schema(
        columns=(*declared().columns[:3], us.Column(name="rich", kind="categorical")), target="rich", positive="maybe"
    )
    with raises(SchemaError, column="rich", key="positive") as caught:
        evaluate(with_column(REAL, "rich", ["SENTINEL", "x"] * 1000), GOOD, schema=schema, metrics=["tv1"])
    assert "SENTINEL" not in str(caught.value)


def test_other_is_named_as_coarsening() -> None:
    some = np.where(np.arange(2000) < 100, "other", GOOD.column("city").to_numpy(zero_copy_only=False))
    fake = with_column(GOOD, "city", some)
    (warning,) = evaluate(REAL, fake, metrics=["validity"]).to_json()["warnings"]
    assert '"city" (5.00%)' in warning
    real = with_column(REAL, "city", np.where(np.arange(2000) < 5, "other", "north"))
    assert not evaluate(real, fake, metrics=["validity"]).to_json()["warnings"]  # a category like any other
    unknown = us.Column(name="city", kind="categorical", categories=("north", "south", "east"), unknown="east")
    scores = evaluate(REAL, fake, schema=declared(city=unknown), metrics=["validity"])
    assert scores["unlisted"] == 0
    assert not scores.to_json()["warnings"]


def test_copies_are_warned_about_by_every_effort() -> None:
    for effort in ("quick", "default"):
        scores = evaluate(REAL, REAL, effort=effort, metrics=None if effort == "quick" else ["closest_record"])
        assert scores["exact_copies"] == pytest.approx(0.8)  # of the rows that are not held out
        assert any("most of the table is copied" in w for w in scores.to_json()["warnings"])
        assert (scores.status("dcr_ratio") == Status.SKIPPED) == (effort == "quick")
    assert not evaluate(REAL, GOOD, metrics=["closest_record"]).to_json()["warnings"]
    few = pa.table({"a": ["x", "y"] * 500})  # every row has twins: no sign of copying
    assert not evaluate(few, few, metrics=["closest_record"]).to_json()["warnings"]


def test_held_out_rows_do_not_find_themselves() -> None:
    """Without a holdout, distances are to the rows that were not set aside."""
    scores = evaluate(REAL, GOOD, metrics=["closest_record"])
    assert 0.5 < scores["dcr_ratio"] < 2  # type: ignore[operator]  # a metric that has a number
    assert scores.to_json()["details"]["closest_record"]["synthetic"]["holdout"]["exact_copies"] < 0.01


def test_a_holdout_out_of_the_real_table_is_noticed() -> None:
    mixed = pa.concat_tables([REAL.slice(0, 400), TEST.slice(0, 100)])
    content = evaluate(REAL, GOOD, holdout=mixed, metrics=["tv1"]).to_json()
    assert content["holdout"]["seen"]
    assert any("equal a row of the real table" in warning for warning in content["warnings"])
    content = evaluate(REAL, GOOD, holdout=REAL.slice(0, 500), metrics=["tv1"]).to_json()
    assert content["real"]["rows"] == 1500  # what was held out is not compared with itself
    assert any("were removed from it" in warning for warning in content["warnings"])
    draw = np.random.default_rng(0)
    few = [pa.table({"a": draw.integers(0, 4, 500), "b": draw.integers(0, 4, 500)}) for _ in range(2)]
    content = evaluate(few[0], few[1], holdout=few[1], metrics=["tv1"]).to_json()
    assert not content["holdout"]["seen"]  # twins by chance
    assert not content["warnings"]


def test_a_reference_of_fewer_rows_is_marked() -> None:
    content = evaluate(REAL, GOOD, target="rich", metrics=["tv1", "tstr_auc"], effort="full").to_json()
    tv1, auc = (entry["reference"] for entry in content["metrics"])
    assert (tv1["rows"], tv1["comparable"]) == (400, False)
    assert (auc["rows"], auc["comparable"]) == (1600, True)
    assert any("by chance alone" in note["text"] for note in content["notes"])
    content = evaluate(REAL, GOOD, holdout=people(5000, 9), metrics=["tv1"]).to_json()
    assert content["metrics"][0]["reference"]["rows"] == 2000  # no more than the real table has
    assert content["metrics"][0]["reference"]["comparable"]
    assert not any("by chance alone" in note["text"] for note in content["notes"])


def test_models_tested_within_a_table_learn_from_as_many_rows_on_both_sides(monkeypatch: pytest.MonkeyPatch) -> None:
    from understudy.evaluation import learning

    seen: list[int] = []
    learn = learning.learn

    def counted(train: EncodedTable, *arguments: Any, **named: Any) -> Result:
        seen.append(train.num_rows)
        return learn(train, *arguments, **named)

    monkeypatch.setattr(learning, "learn", counted)
    evaluate(REAL, people(600, 8), target="rich", holdout=TEST, metrics=["learning"], effort="quick")
    assert sorted(seen) == [300, 300, 600, 2000]


def test_the_difference_of_areas_is_paired(whole: Scorecard) -> None:
    found = whole.to_json()["details"]["learning"]["good"]["difference"]
    scores = whole["tstr_auc"]
    assert isinstance(scores, dict)
    assert found["value"] == pytest.approx(scores["good"] - whole.reference("tstr_auc"), abs=1e-5)
    entry = next(entry for entry in whole.to_json()["metrics"] if entry["key"] == "tstr_auc")
    assert 0 < found["error"] < 0.7 * math.hypot(entry["values"]["good"]["error"], entry["reference"]["error"])


def test_entries_say_what_repeats_and_what_is_private(whole: Scorecard) -> None:
    entries = {entry["key"]: entry for entry in whole.to_json()["metrics"]}
    assert all(entry["private"] for entry in entries.values())
    entries |= {entry["key"]: entry for entry in evaluate(REAL, GOOD, metrics=["gaussians"]).to_json()["metrics"]}
    assert entries["nist_score"]["same_as"] == entries["nist_points"]["same_as"] == "nist_l1"
    assert all(entry["same_as"] in ("", *entries) for entry in entries.values())
    assert {key for key, entry in entries.items() if not entry["private"]} == {
        "quality",
        "quality_uncapped",
        "modes",
        "mode_tv",
    }


def test_cells_that_cannot_be_read_are_counted_and_not_shown(tmp_path: Path) -> None:
    ages = [str(age) if i % 4 else f"SENTINEL-{i}" for i, age in enumerate(GOOD.column("age").to_pylist())]
    fake = with_column(GOOD, "age", ages)
    fake.to_pandas().to_csv(tmp_path / "fake.csv", index=False)
    for source in (fake, fake.to_pandas(), tmp_path / "fake.csv"):
        for schema in (None, declared()):
            content = evaluate(REAL, source, schema=schema, metrics=["tv1"]).to_json()
            (warning,) = content["warnings"]
            assert '"age" (25.00%)' in warning
            assert "SENTINEL" not in json.dumps(content)
    assert not evaluate(REAL, GOOD, schema=declared(), metrics=["tv1"]).to_json()["warnings"]


def test_a_tiny_table_is_warned_about() -> None:
    (warning,) = evaluate(REAL, GOOD.slice(0, 20), metrics=["tv1"]).to_json()["warnings"]
    assert "20 rows" in warning


def test_a_release_beside_the_real_table_is_a_sign_of_wrong_order(tmp_path: Path) -> None:
    GOOD.to_pandas().to_csv(tmp_path / "fake.csv", index=False)
    (tmp_path / "fake.release").mkdir()
    content = evaluate(tmp_path / "fake.csv", REAL, metrics=["tv1"]).to_json()
    assert any("the real table comes first" in warning for warning in content["warnings"])
    assert content["real"]["file"] == "fake.csv"


def test_columns_outside_the_schema_are_called_what_they_are() -> None:
    schema = us.Schema(columns=declared().columns[:3])
    notes = texts(evaluate(REAL, GOOD.append_column("new", GOOD["age"]), schema=schema, metrics=["tv1"]))
    assert any('schema does not name were not evaluated: "rich".' in note for note in notes)
    assert [note for note in notes if "lacks" in note] == [
        'The synthetic table has columns that the real one lacks; they were ignored: "new".'
    ]


def test_a_drafted_schema_still_says_what_was_read_off(tmp_path: Path) -> None:
    us.Schema.draft(REAL.schema).write(tmp_path / "schema.toml")
    for schema in (us.Schema.draft(REAL.schema), tmp_path / "schema.toml", str(tmp_path / "schema.toml")):
        notes = texts(evaluate(REAL, GOOD, schema=schema, metrics=["tv1"]))
        assert any("categories and ranges were inferred from the real table" in note for note in notes)


def test_settings_differ_by_table_only_where_they_do() -> None:
    settings = evaluate(REAL, {"a": GOOD, "b": GOOD.slice(0, 300)}, metrics=["two_way"]).to_json()["settings"]
    assert settings["two_way"]["by_table"] == {"b": {"synthetic_rows": 300}}
    assert "by_table" not in evaluate(REAL, {"a": GOOD, "b": BAD}, metrics=["two_way"]).to_json()["settings"]["two_way"]


def test_a_table_may_be_named_comparison() -> None:
    content = evaluate(REAL, {"comparison": GOOD, "b": BAD}, metrics=["cell_accuracy"]).to_json()
    assert set(content["cells_won"]["won"]) == {"comparison", "b"}
    assert content["details"]["cell_accuracy"]["comparison"]["cells"] == 6


@pytest.mark.parametrize("seed", [-1, 2**32, 1.5, True, "0"])
def test_a_seed_is_a_whole_number(seed: object) -> None:
    with raises(ConfigError, setting="seed"):
        evaluate(REAL, GOOD, seed=seed, metrics=["tv1"])  # type: ignore[arg-type]  # a wrong type


def test_one_real_row_needs_a_holdout() -> None:
    with pytest.raises(TableError):
        evaluate(REAL.slice(0, 1), GOOD, metrics=["tv1"])
    assert 0 <= evaluate(REAL.slice(0, 1), GOOD, holdout=TEST, metrics=["tv1"])["tv1"] <= 1  # type: ignore[operator]  # a metric that has a number


@pytest.mark.parametrize("outside", [1.7e308, -1.7e308, math.inf])
def test_numbers_at_the_end_of_floats_are_scored(outside: float) -> None:
    draw = np.random.default_rng(0)
    wide, narrow = draw.uniform(-1.7, 1.7, (2, 600)) * 1e308, draw.uniform(0, 1e-300, (2, 600))
    real, fake = (
        pa.table({"wide": wide[i], "narrow": np.r_[narrow[i][:-1], i * outside or 0.0], "k": ["a", "b"] * 300})
        for i in (0, 1)
    )
    scores = evaluate(real, fake, target="k", effort="quick" if math.isinf(outside) else "default")
    assert scores["tv1"] < 0.3  # type: ignore[operator]  # a metric that has a number
    assert any("power of two" in note for note in texts(scores))
    assert scores["ks"] < 0.2  # type: ignore[operator]  # a metric that has a number


def test_files_that_are_not_there_are_said_so_first(tmp_path: Path) -> None:
    with pytest.raises(TableError, match=r"holdout cannot be read\. .*nothing does not exist"):
        evaluate(REAL, GOOD, holdout=tmp_path / "nothing")
    with raises(SchemaError, column="rich"):
        evaluate(REAL.drop_columns(["rich"]), GOOD, schema=declared())
    with raises(SchemaError, column="rich"):
        evaluate(REAL, GOOD, holdout=TEST.drop_columns(["rich"]))


def test_a_typo_gets_near_names_and_the_groups() -> None:
    with pytest.raises(ConfigError) as caught:
        evaluate(REAL, GOOD, metrics=["tv22"])
    assert "Did you mean 'tv2'" in str(caught.value)
    assert "one_way" in str(caught.value)
    assert "jsd1" not in str(caught.value)


def test_a_note_names_its_group_and_the_tables_that_have_it() -> None:
    one = GOOD.set_column(3, "rich", pa.array(["no"] * GOOD.num_rows))
    tables = {"a": one, "b": GOOD, "c": one}
    notes = evaluate(REAL, tables, target="rich", holdout=TEST, metrics=["learning"], effort="quick").to_json()["notes"]
    (note,) = (note for note in notes if "only the class" in note["text"])
    assert (note["group"], note["tables"]) == ("learning", ["a", "c"])
    assert all(note["tables"] == [] for note in notes if note["group"] is None)
