"""The sentences that follow from the scores, and numbers as text."""

import re
from typing import Any

import pytest

from tests.report.pages import SPACE, Text
from tests.report.scorecards import score, scorecard
from understudy.report import text, verdict
from understudy.report.page import render


def said_of(card: dict[str, Any]) -> str:
    return " ".join(verdict.verdict(card, "aim")).replace(SPACE, " ")


def test_the_loss_in_auc_is_measured_from_chance() -> None:
    card = scorecard(("aim",))
    auc = next(metric for metric in card["metrics"] if metric["key"] == "tstr_auc")
    auc["reference"]["value"], auc["values"]["aim"]["value"] = 0.9, 0.8
    said = said_of(card)
    assert "reach 0.900. 25% of the advantage over chance (0.5) is lost." in said
    auc["values"]["aim"]["value"] = 0.898
    assert "reach 0.900. The difference is within the error of the 16,281 test rows." in said_of(card)
    auc["values"]["aim"]["value"] = 0.99
    assert "reach 0.900. That is at least as good." in said_of(card)
    auc["values"]["aim"]["value"] = 0.4
    assert "All of the advantage over chance (0.5) is lost" in said_of(card)
    auc["reference"]["value"] = 0.5
    assert "do not predict the target better than chance" in said_of(card)


def test_warnings_come_first_and_the_counting_last() -> None:
    card = scorecard(("aim", "mst")) | {"warnings": ["The holdout <overlaps>."]}
    page = render(card).replace(SPACE, " ")
    first, findings = (page.partition(f'<section id="{key}">')[2].partition("</section>")[0]
                       for key in ("verdict", "findings"))  # fmt: skip
    assert Text(first).texts[:3] == ["Verdict", "Warning.", "The holdout <overlaps>."]
    said = " ".join([*Text(first).texts, *Text(findings).texts])
    parts = ("ROC AUC, trained on synthetic, best first: aim", "Good", "Models trained on these",
             "For pairs of columns",
             "There are no invalid values", "Of 11 scores that can be compared",
             "that all of them have, aim is")  # fmt: skip
    order = [said.index(part) for part in parts]
    assert order == sorted(order)
    assert "Total variation, 2-way marginals, best first: aim" in said


def test_counting_leaves_out_repetitions_and_small_references() -> None:
    card = scorecard(("aim", "mst"))
    plain = card["metrics"][0]
    plain["values"]["aim"]["value"], plain["values"]["mst"]["value"] = 0.0, 0.5
    near = plain | {"key": "d", "direction": "near_real"}
    near["reference"] = plain["reference"] | {"comparable": False}
    card["metrics"] = [plain, plain | {"key": "b", "same_as": "tv1"}, near]
    assert "Of the 1 score that all of them have, aim is best on 1" in verdict.comparison(card, ["aim", "mst"])[0]
    said = said_of(card)
    assert "Of 1 score that can be compared with that of real rows, all are at least as good" in said
    assert "Another 1 is not counted: the held-out table has far fewer rows" in said
    card["metrics"] = [near]
    assert "No score can be compared with that of real rows: the held-out table has far fewer rows" in said_of(card)


def test_invalid_values_are_only_denied_where_all_were_searched() -> None:
    card = scorecard(("aim",))
    metric = card["metrics"][3]
    card["metrics"] = [metric | {"key": "unlisted", "title": "Unlisted categories"}]
    assert "There are no invalid values" not in said_of(card)
    assert "None found: unlisted categories." in said_of(card)
    card["metrics"] = []
    assert "nvalid" not in said_of(card)


@pytest.mark.parametrize(("share", "by_chance", "told"), [(0.8, 0.001, True), (0.8, 0.78, False), (0.01, 0.0, False)])
def test_a_table_of_copies_is_called_one(share: float, by_chance: float, told: bool) -> None:
    card = scorecard(("aim",))
    metric = card["metrics"][0] | {"key": "exact_copies", "direction": "near_real"}
    metric |= {"values": {"aim": score(share)}, "group": "closest_record"}
    card["metrics"] = [metric | {"reference": {"value": by_chance, "error": None, "what": ""}}]
    assert ("% of these rows equal a real row" in verdict.verdict(card, "aim")[0]) is told


def test_the_worst_columns_and_pairs_are_named() -> None:
    card = scorecard(("aim",))
    card["details"]["one_way"]["aim"]["columns"]["sex"]["tv"] = 0.875
    card["details"]["two_way"]["aim"]["worst"][0] = {"columns": ["age", "race"], "tv": 0.9375}
    said = said_of(card)
    assert "the worst are “sex” (87.5%)" in said
    assert "the worst are “age” with “race” (93.8%)" in said
    assert "There are no invalid values." in said
    card["metrics"][3]["values"]["aim"]["value"] = 0.002
    assert "There are invalid values: invalid cells 0.2%." in said_of(card)


@pytest.mark.parametrize(
    ("direction", "values", "best"),
    [
        ("lower", (0.1, 0.2), "a"),
        ("higher", (0.1, 0.2), "b"),
        ("near_one", (0.7, 1.2), "b"),
        ("near_zero", (-0.3, 0.2), "b"),
        ("near_half", (0.1, 0.6), "b"),
        ("near_real", (0.1, 0.45), "b"),
    ],
)
def test_methods_are_compared_by_the_direction_of_each_score(direction: str, values: tuple, best: str) -> None:
    card = scorecard(("a", "b"))
    metric = card["metrics"][0] | {"direction": direction, "reference": {"value": 0.5, "error": None, "what": ""}}
    metric["values"] = {name: score(v) for name, v in zip("ab", values, strict=True)}
    card["metrics"] = [metric]
    other = "b" if best == "a" else "a"
    assert (
        f"Of the 1 score that all of them have, {best} is best on 1 and {other} on 0."
        in verdict.comparison(card, "ab")[0]
    )
    assert verdict.no_worse(metric, {"value": 0.5, "error": None}) is True


def test_as_good_as_real_counts_two_standard_errors() -> None:
    metric = {"direction": "lower", "reference": {"value": 0.1, "error": 0.03}}
    assert verdict.no_worse(metric, {"value": 0.19, "error": 0.04})
    assert not verdict.no_worse(metric, {"value": 0.21, "error": 0.04})
    assert verdict.no_worse(metric, {"value": None}) is None


def test_no_sentence_speaks_of_privacy() -> None:
    card = scorecard()
    said = " ".join([*verdict.comparison(card, list(card["details"]["pca"])), *verdict.verdict(card, "mst")])
    assert not re.search("priva|anonym|safe|secure|protect", said, re.I)


@pytest.mark.parametrize(
    ("value", "shown"),
    [(0, "0"), (1.0, "1.00"), (0.12345, "0.123"), (0.00241, "0.00241"), (3.2e-4, "0.000320"), (0.9997, "0.9997"),
     (0.99996, "> 0.9999"), (-0.5, "−0.500"), (2e-5, "< 0.0001"), (-2e-5, "> −0.0001"), (12.34, "12.3"),
     (9.999, "10.0"),
     (123456.7, "123,457"), (2e7, "20.0M"), (-3e20, "−3.0e20"), (None, "–"), (float("nan"), "–")],
)  # fmt: skip
def test_numbers_are_rounded_to_what_can_be_read(value: float | None, shown: str) -> None:
    assert text.number(value).replace(SPACE, " ") == shown


@pytest.mark.parametrize(
    ("share", "shown"),
    [(0, "0%"), (1e-5, "<0.01%"), (0.00817, "0.817%"), (0.123, "12.3%"), (0.99999, ">99.9%"), (1, "100%")],
)
def test_a_share_is_never_rounded_to_nothing_or_all(share: float, shown: str) -> None:
    assert text.percent(share).replace(SPACE, " ") == shown
