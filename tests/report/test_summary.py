"""The verdict of the first screen: each sentence follows from the scores by a rule."""

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import understudy as us
from tests.report.pages import SPACE, Text
from tests.report.scorecards import score, scorecard
from understudy.evaluation.evaluate import evaluate
from understudy.report import summary
from understudy.report.page import render
from understudy.report.summary import CheckedRule, summarise


def card_of(
    columns: dict[str, tuple[float, float]], pairs: dict[tuple[str, str], tuple[float, float]]
) -> dict[str, Any]:
    """A scorecard with these total variations (synthetic, held out) and associations (real, synthetic)."""
    card = scorecard(("aim",))
    names = list(columns)
    shape = {"kind": "discrete", "labels": ["a"], "real": [1.0], "synthetic": [1.0], "missing": [0, 0]}
    card["details"]["one_way"] = {
        "aim": {"columns": {name: {**shape, "tv": tv} for name, (tv, _) in columns.items()}},
        "real": {"columns": {name: {"tv": held} for name, (_, held) in columns.items()}},
    }
    real, ours = np.eye(len(names)), np.eye(len(names))
    for (a, b), values in pairs.items():
        for matrix, value in zip((real, ours), values, strict=True):
            matrix[names.index(a), names.index(b)] = matrix[names.index(b), names.index(a)] = value
    kinds = ["numeric" if name.startswith("n") else "discrete" for name in names]
    found = {"columns": names, "kinds": kinds, "real": real.tolist(), "synthetic": ours.tolist(), "values": []}
    card["details"]["correlations"] = {"aim": found}
    for entry in card["metrics"]:  # neither learnt nor unlearnt
        if entry["key"] == "tstr_auc":
            entry["values"]["aim"], entry["reference"]["value"] = score(0.84), 0.9
    return card


def said(card: dict[str, Any]) -> dict[str, str]:
    found = summarise(card, "aim")
    assert found is not None
    return {heading: sentence.replace(SPACE, " ") for heading, sentence in found.sentences.items()}


GOOD = {"ward": (0.01, 0.01), "sex": (0.02, 0.01), "n_age": (0.03, 0.0)}


def test_a_good_table() -> None:
    found = said(card_of(GOOD, {("ward", "sex"): (0.5, 0.48)}))
    assert found == {
        "Good": "All 3 columns closely match the real ones and the only dependence between columns is kept.",
        "Lost": "No dependence or histogram is lost.",
        "Rules": "No rules were checked. Declare them in the schema ([[rules]]), or add --constraint.",
        "Not for": "No limits were found, but never use it for conclusions about individuals or very small groups.",
    }


@pytest.mark.parametrize(
    ("tv", "held", "state"),
    [(0.05, 0.0, 0), (0.051, 0.0, 1), (0.1, 0.0, 1), (0.11, 0.0, 2), (0.3, 0.21, 0), (0.3, 0.16, 1), (0.3, 0.14, 2)],
)
def test_a_column_is_close_or_far_by_itself_and_by_what_held_out_rows_differ(
    tv: float, held: float, state: int
) -> None:
    found = summarise(card_of({"a": (tv, held), "b": (0.0, 0.0)}, {}), "aim")
    assert found is not None
    expected = [1, 0, 0]
    expected[state] += 1
    assert found.columns == tuple(expected)


@pytest.mark.parametrize(
    ("real", "ours", "state"),
    [(0.5, 0.4, 0), (0.5, 0.39, 1), (0.5, 0.25, 1), (0.5, 0.24, 2), (0.5, -0.5, 2), (-0.5, -0.45, 0), (0.5, 0.9, 0)],
)
def test_a_dependence_is_kept_weakened_or_lost_by_its_fraction(real: float, ours: float, state: int) -> None:
    found = summarise(card_of(GOOD, {("ward", "sex"): (real, ours)}), "aim")
    assert found is not None
    assert found.pairs == tuple(int(at == state) for at in range(3))


def test_weak_associations_are_no_dependences() -> None:
    found = summarise(card_of(GOOD, {("ward", "sex"): (0.09, 0.0)}), "aim")
    assert found is not None
    assert found.pairs == (0, 0, 0)


def test_losses_are_named_with_their_measure_and_the_real_value_the_largest_first() -> None:
    pairs = {("ward", "sex"): (0.4, 0.05), ("ward", "n_age"): (0.9, 0.1), ("n_age", "sex"): (0.3, 0.3)}
    card = card_of({**GOOD, "n_stay": (0.2, 0.01)}, {**pairs, ("n_age", "n_stay"): (-0.6, 0.0)})
    card["details"]["correlations"]["aim"]["values"] = [
        {"columns": ["ward", "sex"], "values": ["obstetrics", "f"], "real": 0.9, "synthetic": 0.0,
         "real_fraction": 0.99, "synthetic_fraction": 0.5, "real_rows": 120}
    ]  # fmt: skip
    found = said(card)
    assert found["Lost"] == (
        "The dependences of “ward” with “n_age” (correlation ratio 0.90, here 0.10), “n_age” with “n_stay” "
        "(correlation −0.60, here 0.00) and “ward” with “sex” (Cramér's V 0.40, here 0.05; for example, 99% of "
        "real rows with ward = “obstetrics” have sex = “f”, compared with 50% of synthetic rows); the histogram of "
        "“n_stay” (20% of the rows differ)."
    )
    assert found["Not for"] == (
        "Do not use it for analyses of “ward” with “n_age”, “n_age” with “n_stay” and “ward” with “sex”; or for "
        "histograms of “n_stay”."
    )
    assert found["Good"] == (
        "3 of 4 columns closely match the real ones and 1 of 4 dependences between columns is kept."
    )


def example_of(columns: tuple[str, str]) -> dict[str, Any]:
    return {"columns": list(columns), "values": ["x", "f"], "real": 0.9, "synthetic": 0.0, "real_fraction": 0.99,
            "synthetic_fraction": 0.5, "real_rows": 120}  # fmt: skip


def test_an_example_stands_with_its_own_pair_only() -> None:
    """The largest loss of single values may be of a pair that is not named, or not lost as a whole."""
    pairs = {("ward", "n_age"): (0.9, 0.1), ("ward", "sex"): (0.8, 0.1), ("n_age", "sex"): (0.7, 0.1)}
    card = card_of({**GOOD, "n_b": (0.0, 0.0)}, {**pairs, ("n_b", "sex"): (0.3, 0.0), ("n_b", "ward"): (0.5, 0.5)})
    for unnamed in (("n_b", "sex"), ("ward", "n_b")):
        card["details"]["correlations"]["aim"]["values"] = [example_of(unnamed)]
        assert "for example" not in said(card)["Lost"]
        assert "1 more pair" in said(card)["Lost"]
    card["details"]["correlations"]["aim"]["values"] = [example_of(("n_b", "sex")), example_of(("sex", "ward"))]
    assert (
        "“ward” with “sex” (Cramér's V 0.80, here 0.10; for example, 99% of real rows with sex = " in said(card)["Lost"]
    )
    assert "“ward” with “n_age” (correlation ratio 0.90, here 0.10), " in said(card)["Lost"]


def with_numbers(card: dict[str, Any], columns: dict[str, dict[str, Any]], **held: float) -> dict[str, Any]:
    """The scorecard with statistics of numeric columns, close to the real ones but for what is given."""
    fine = {"type": "real", "real": {"mean": 10.0}, "synthetic": {"mean": 10.0}, "mean_error": 0.0, "mean_ratio": 1.0,
            "mean_standard_error": 0.001, "shared_values_error": 0.0, "values": []}  # fmt: skip
    card["details"]["numbers"] = {
        "aim": {"columns": {name: {**fine, **column} for name, column in columns.items()}},
        "real": {"columns": {name: {"shared_values_error": error} for name, error in held.items()}},
    }
    return card


@pytest.mark.parametrize(
    ("column", "state"),
    [
        ({}, 0),
        ({"mean_error": 0.05, "mean_ratio": 1.1}, 0),
        ({"mean_error": 0.051}, 1),
        ({"mean_ratio": 1.11, "mean_error": 0.01}, 1),
        ({"mean_ratio": 0.89, "mean_error": 0.01}, 1),
        ({"mean_ratio": None, "mean_error": 0.01}, 0),
        ({"mean_error": 0.1}, 1),
        ({"mean_error": 0.11}, 2),
        ({"mean_ratio": 1.26, "mean_error": 0.01}, 2),
        ({"mean_ratio": 0.79, "mean_error": 0.01}, 2),
        ({"mean_ratio": 3.0, "mean_error": 0.3, "mean_standard_error": 0.15}, 0),  # within two standard errors
        ({"mean_ratio": 3.0, "mean_error": 0.3, "mean_standard_error": 0.1}, 1),  # within three
        ({"mean_error": None, "synthetic": {"mean": None}}, 2),
        ({"mean_error": None, "real": {"mean": None}}, 0),
        ({"shared_values_error": 0.05}, 0),
        ({"shared_values_error": 0.06}, 1),
        ({"shared_values_error": 0.11, "values": [{"value": 0.0, "real": 0.5, "synthetic": 0.39}]}, 2),
    ],
)
def test_a_column_is_good_only_if_its_mean_and_its_shared_values_are_close(column: dict[str, Any], state: int) -> None:
    found = summarise(with_numbers(card_of(GOOD, {}), {"n_age": column}), "aim")
    assert found is not None
    expected = [2, 0, 0]
    expected[state] += 1
    assert found.columns == tuple(expected)
    assert found.avoid.startswith("No limits") == (state < 2)
    assert ("“n_age”" in found.lost) == (state == 2)


def test_averages_that_are_off_are_named_with_how_far_the_worst_first() -> None:
    columns: dict[str, dict[str, Any]] = {
        "n_age": {"mean_error": 0.2, "mean_ratio": 1.2, "synthetic": {"mean": 12.0}},
        "n_cost": {"mean_error": 0.02, "mean_ratio": 2.31},
        "n_date": {"type": "date", "mean_error": 0.12, "mean_ratio": None, "synthetic": {"mean": 40.0}},
    }
    names = dict.fromkeys(columns, (0.0, 0.0))
    found = said(with_numbers(card_of({"sex": (0.0, 0.0), **names}, {}), columns))
    assert found["Good"] == "1 of 4 columns closely matches the real one."
    assert found["Lost"] == (
        "The averages of “n_cost” (2.3 times the real one), “n_age” (real 10.0, here 12.0) and “n_date” (real "
        "1970-01-11, here 1970-02-10)."
    )
    assert found["Not for"] == "Do not use it for totals or averages of “n_cost”, “n_age” and “n_date”."
    columns["n_cost"] |= {"mean_error": None, "synthetic": {"mean": None}}
    assert "“n_cost” (no row has a value)" in said(with_numbers(card_of(names, {}), columns))["Lost"]


def test_a_wrong_histogram_says_nothing_about_averages() -> None:
    found = said(with_numbers(card_of({**GOOD, "n_age": (0.5, 0.0)}, {}), {"n_age": {}}))
    assert found["Not for"] == "Do not use it for histograms of “n_age”."
    assert "average" not in found["Lost"]


def test_lost_zeros_are_named_though_the_histogram_is_close() -> None:
    zeros = {"shared_values_error": 0.62, "values": [{"value": 0.0, "real": 0.92, "synthetic": 0.3}]}
    card = with_numbers(card_of(GOOD, {}), {"n_age": zeros})
    assert said(card)["Lost"] == "The fraction of rows with “n_age” = 0 (real 92%, here 30%)."
    assert said(card)["Not for"] == "Do not use it for histograms of “n_age”."
    assert (
        said(with_numbers(card, {"n_age": zeros}, n_age=0.5))["Lost"] == "No dependence, histogram or average is lost."
    )


def test_a_total_that_a_few_rows_make_up_is_checked_from_the_rows() -> None:
    """In bins as wide as the declared range all costs are alike, though those of one table are three times as large."""
    draw = np.random.default_rng(0)
    cost = np.where(draw.random(4000) < 0.9, 0.0, draw.gamma(2.0, 50.0, 4000).round())
    real, fake = (pa.table({"cost": each, "sex": ["f", "m", "m", "m"] * 1000}) for each in (cost, 3 * cost))
    declared = us.Schema(
        columns=(us.Column(name="cost", kind="real", bounds=(0, 1e5)), us.Column(name="sex", kind="categorical"))
    )
    tables = {"bad": fake, "good": real.take(draw.permutation(4000))}
    card = evaluate(real, tables, schema=declared, effort="quick").to_json()
    bad, good = summarise(card, "bad"), summarise(card, "good")
    assert bad is not None
    assert good is not None
    assert (bad.columns, good.columns) == ((1, 0, 1), (2, 0, 0))
    assert bad.lost == "The average of “cost” (3.0 times the real one)."
    assert good.lost == "No dependence, histogram or average is lost."


def test_what_models_lose_is_said_from_a_fifth_of_their_advantage_on() -> None:
    card = card_of(GOOD, {})
    auc = next(entry for entry in card["metrics"] if entry["key"] == "tstr_auc")
    auc["values"]["aim"] = score(0.7)
    assert "50% of what models can learn about “income”" in said(card)["Lost"]
    assert "models of “income”" in said(card)["Not for"]
    auc["values"]["aim"] = score(0.89)
    assert "models of “income” are nearly as accurate as if trained on real rows" in said(card)["Good"]
    assert "models" not in said(card)["Lost"] + said(card)["Not for"]
    auc["values"]["aim"] = score(0.84)  # in between: neither good nor lost
    assert "models" not in " ".join(said(card).values())
    auc["reference"]["value"] = 0.51  # real rows hardly predict it
    assert "models" not in " ".join(said(card).values())


@pytest.mark.parametrize(
    ("real", "ours", "broken"), [(0.0, 0.005, False), (0.0, 0.006, True), (0.1, 0.2, False), (0.1, 0.21, True)]
)
def test_a_condition_is_broken_beyond_what_real_rows_do(real: float, ours: float, broken: bool) -> None:
    assert CheckedRule("a > b", real, ours).is_broken == broken


@pytest.mark.parametrize(("real", "ours", "broken"), [(0.0, 0.0, False), (0.0, 1e-6, True), (0.1, 0.01, True)])
def test_a_rule_of_the_schema_is_broken_by_any_row(real: float, ours: float, broken: bool) -> None:
    assert CheckedRule("a > b", real, ours, is_declared=True).is_broken == broken


def rule(text: str, real: int | None, ours: int | None, source: str = "schema", why: str = "") -> dict[str, Any]:
    """A rule as the scorecard has it, for tables of 1,000 rows."""
    fractions = {"real": real if real is None else real / 1000, "synthetic": ours if ours is None else ours / 1000}
    return {"rule": text, "source": source, "why": why, **fractions, "real_broken": real, "synthetic_broken": ours}


def card_with(*rules: dict[str, Any]) -> dict[str, Any]:
    card = card_of(GOOD, {})
    whole = {"real": 0.01, "synthetic": 0.5, "real_broken": 10, "synthetic_broken": 500}
    card["details"]["constraints"] = {"aim": {"rules": list(rules), "any": whole}}
    return card


def test_broken_rules_are_named_and_speak_against_uses() -> None:
    conditions = [rule("discharge >= admission", 0, 470), rule("age < 120", 0, 0)]
    card = card_with(*conditions)
    assert said(card)["Rules"] == "Broken: “discharge >= admission” in 47% of the rows (real: 0%)."
    assert said(card)["Not for"] == "Do not use it for anything that relies on the broken rule."
    assert "Fraction of the rows that break" in render(card)


@pytest.mark.parametrize(
    ("rules", "sentence"),
    [
        ([rule("a", 3, 0)], "The rule holds in every row."),
        ([rule("a", 0, 0), rule("b", 0, 0, "constraint")], "Both rules hold in every row."),
        ([rule(name, 0, 0) for name in "abc"], "All 3 rules hold in every row."),
        ([rule("a", 0, 0), rule("b", 4, 5, "constraint")], "1 rule holds in every row and 1 as often as in real rows."),
        ([rule(name, 40, 50, "constraint") for name in "ab"], "Both rules hold as often as in real rows."),
        ([rule("a", 40, 1)], "Broken: “a” in 0.1% of the rows (real: 4%)."),
        ([rule("a", 0, 0), rule("b", None, None, why="No column b.")], "The rule holds in every row. 1 rule could not "
         "be checked."),
        ([rule(name, None, None, why="No.") for name in "ab"], "2 rules could not be checked."),
    ],
)  # fmt: skip
def test_the_sentence_about_rules(rules: list[dict[str, Any]], sentence: str) -> None:
    assert said(card_with(*rules))["Rules"] == sentence


def test_rules_that_no_row_breaks_need_no_plot() -> None:
    assert "Fraction of the rows that break" not in render(card_with(rule("a", 0, 0), rule("b", 0, 0)))


def test_the_page_shows_real_beside_synthetic_rows_for_every_rule() -> None:
    card = card_with(rule("a <b>", 10, 0), rule("c", 0, 480, "constraint"), rule("d", None, None, why="There is no d."))
    page = render(card)
    texts = [text.replace(SPACE, " ") for text in Text(page).texts]
    start = texts.index("rule", texts.index("Rules", texts.index("Rules") + 1))
    whole = " | ".join(texts[start : texts.index("Tables", start)])
    assert "a <b> | 1% | 10 rows | none" in whole
    assert "c | given with --constraint | none | 48% | broken in 480 rows" in whole
    assert "d | – | not checked: There is no d." in whole
    assert "Any of these rules | 1% | 10 rows | 50% | 500 rows" in whole
    assert "<b>a" not in page.replace("<b>a</b>", "")


def test_without_rules_there_is_no_section_and_none_is_called_skipped() -> None:
    page = render(card_of(GOOD, {}))
    assert 'id="rules"' not in page
    assert "“Rules”" not in page


def test_a_lost_dependence_of_single_values_counts_where_the_columns_keep_theirs() -> None:
    card = card_of(GOOD, {("ward", "sex"): (0.5, 0.45)})
    card["details"]["correlations"]["aim"]["values"] = [
        {"columns": ["ward", "sex"], "values": ["x", "f"], "real": 0.9, "synthetic": 0.0, "real_fraction": 0.9,
         "synthetic_fraction": None, "real_rows": 12}
    ]  # fmt: skip
    assert said(card)["Lost"].startswith("A dependence between single values: 90% of real rows with ward = “x”")
    assert "no synthetic row has ward = “x”" in said(card)["Lost"]
    assert said(card)["Not for"] == "Do not use it for analyses of “ward” with “sex”."
    assert "Lost dependences of single values" in render(card)


def test_there_is_no_verdict_on_a_part_of_the_scores() -> None:
    card = scorecard(("aim",))
    del card["details"]["correlations"]
    assert summarise(card, "aim") is None
    assert "No verdict: it needs the scores" in render(card)


def test_equal_rows_are_explained_where_they_stand() -> None:
    draw = np.random.default_rng(0)
    few = [pa.table({name: draw.choice(["u", "v"], 600) for name in "abcde"}) for _ in range(2)]
    card = dict(evaluate(*few, metrics=["closest_record"]).to_json())
    text = summary.chance_of_copies(card, "synthetic").replace(SPACE, " ")
    assert text.startswith("By chance alone, 100% of held-out real rows equal another real row, as do ")
    assert text.endswith("no more than chance explains.")
    assert Text(render(card).replace(SPACE, " ")).texts.count(text) == 2  # in the chart and in the table
    many = pa.table({"x": draw.random(600)})
    card = dict(evaluate(many, many, metrics=["closest_record"]).to_json())
    assert "more than chance explains: rows may have been copied" in summary.chance_of_copies(card, "synthetic")


def test_a_hospital_whose_rare_dependence_is_lost_is_told_so_from_its_rows() -> None:
    draw = np.random.default_rng(0)
    ward = draw.choice(["surgery", "medicine", "obstetrics"], 4000, p=[0.5, 0.47, 0.03])
    pregnant = np.where(ward == "obstetrics", "yes", "no")
    real = pa.table({"ward": ward, "pregnant": pregnant})
    fake = pa.table({"ward": ward, "pregnant": draw.permutation(pregnant)})
    found = summarise(evaluate(real, fake, effort="quick").to_json(), "synthetic")
    assert found is not None
    assert found.lost.startswith("The dependence of “ward” with “pregnant” (Cramér's V 1.00, here 0.0")
    assert found.columns == (2, 0, 0)


def test_a_table_of_copies_is_not_to_be_shared() -> None:
    """Real rows that were sampled again are; held-out real rows are not."""
    draw = np.random.default_rng(0)
    people = draw.integers(0, 10**6, (3000, 3))
    real, held, others = (
        pa.table({f"n{i}": rows[:, i] for i in range(3)} | {"sex": np.where(rows[:, 0] > 5 * 10**5, "f", "m")})
        for rows in np.split(people, 3)
    )
    tables = {"copied": real.take(draw.integers(0, 1000, 1000)), "fresh": others}
    with pytest.warns(us.UnderstudyWarning, match="most of the table is copied"):
        card = evaluate(real, tables, holdout=held, effort="quick").to_json()
    found = {name: summary_of.avoid for name in tables if (summary_of := summarise(card, name)) is not None}
    copies = "Do not share: 100% of the rows equal a real row, compared with 0% of held-out real rows"
    assert found["copied"].replace(SPACE, " ") == f"{copies}, so real rows have been copied."
    assert found["fresh"].startswith("No limits were found")


def test_other_limits_follow_the_warning_not_to_share() -> None:
    card = card_of({**GOOD, "ward": (0.5, 0.01)}, {})
    card["details"]["closest_record"] = {"aim": {"synthetic": {"exact_copies": 0.8}, "holdout": {"exact_copies": 0.1}}}
    assert said(card)["Not for"].startswith("Do not share: 80% of the rows equal a real row")
    assert said(card)["Not for"].endswith(" Do not use it for histograms of “ward”.")
    card["details"]["closest_record"]["aim"]["holdout"]["exact_copies"] = 0.7
    assert said(card)["Not for"] == "Do not use it for histograms of “ward”."


def test_invalid_cells_are_named_with_their_cause() -> None:
    card = card_of(GOOD, {})
    next(metric for metric in card["metrics"] if metric["key"] == "invalid_cells")["values"]["aim"] = score(0.00201)
    causes = {"out_of_range": None, "unlisted": 0.0, "unexpected_nulls": 0.004}
    card["details"]["validity"] = {"aim": {"columns": {"lat": causes, "sex": {**causes, "unexpected_nulls": None}}}}
    assert said(card)["Rules"].endswith("0.201% of all cells are invalid (“lat” 0.4% null, but never in real rows).")
