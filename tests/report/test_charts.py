"""What the charts show, and how they cut what is too much."""

import re
from typing import Any

import pyarrow as pa
import pytest

import understudy as us
from tests.report.pages import SPACE, Text
from tests.report.scorecards import score, scorecard
from understudy.report import score_sections, svg, text
from understudy.report.page import render


def bar_of(card: dict[str, Any], direction: str, values: tuple[float, ...], **more: Any) -> str:
    metric = card["metrics"][0] | {"fraction": False, "direction": direction, "reference": None, **more}
    metric["values"] = {f"m{i}": score(v) for i, v in enumerate(values)}
    card |= {"metrics": [metric], "details": {}, "synthetic": [{"name": n, "rows": 9} for n in metric["values"]]}
    return render(card).partition('<div class="bars">')[2].partition("</section>")[0]


@pytest.mark.parametrize(
    ("direction", "values", "low", "high", "goal", "bars", "ends"),
    [
        ("near_half", (0.9, 0.1), 0, 1, 50.0, [(50.0, 40.0), (10.0, 40.0)], ("0", "1")),
        ("near_zero", (6.0, -2.0), None, None, 25.0, [(25.0, 75.0), (0.0, 25.0)], ("−2", "6")),
        ("near_one", (4.0, 0.0), 0, None, 25.0, [(25.0, 75.0), (0.0, 25.0)], ("0", "4")),
    ],
)
def test_bars_start_at_the_best_value_which_is_marked(
    direction: str, values: tuple, low: Any, high: Any, goal: float, bars: list, ends: tuple
) -> None:
    drawn = bar_of(scorecard(("aim",)), direction, values, low=low, high=high)
    assert re.findall(r'class="goal" style="left:([\d.]+)%', drawn) == [str(goal)] * 2
    found = re.findall(r'class="bar" style="left:([\d.]+)%;width:([\d.]+)%', drawn)
    assert [(float(left), float(width)) for left, width in found] == bars
    assert re.findall(r'class="ends"><span><i>(.*?)</i><i>(.*?)</i>', drawn) == [ends]


@pytest.mark.parametrize(("value", "end"), [(0.0117, 0.015), (0.23, 0.25), (7.0, 8.0), (0.5, 0.5), (927.0, 1000.0)])
def test_scales_end_at_round_values(value: float, end: float) -> None:
    assert score_sections.round_up(value) == end
    assert f"<i>0</i><i>{end:g}</i>" in bar_of(scorecard(("aim",)), "lower", (value,), low=0, high=None)


def test_shares_are_percent_in_bars_as_in_words() -> None:
    page = render(scorecard(("aim",))).replace(SPACE, " ")
    bars = page.partition('<section id="scores">')[2].partition("</section>")[0]
    assert re.search(r"Total variation, 1-way marginals</h4>.*?real: 0.8%.*?<b>[\d.]+%</b>.*?<i>0%</i><i>[\d.]+%", bars)
    assert re.search(r"ROC AUC, trained on synthetic</h4>.*?<b>0.\d\d\d</b>", bars)


def test_markers_of_several_methods_do_not_cover_each_other() -> None:
    card = scorecard(tuple("abcdef"))
    for method in "abcdef":
        card["details"]["one_way"][method]["columns"]["sex"] |= {
            "real": [0.6, 0.4],
            "synthetic": [0.6, 0.4],
        }
    drawn = re.search(r'aria-label="Frequencies of the categories of sex .*?</svg>', render(card), re.S)
    assert drawn is not None
    circles = [
        [float(y) for y in re.findall(rf'd="M[\d.]+ ([\d.]+)[^"]*" fill="{style.colour}"', drawn[0])]
        for style in svg.styles("abcdef")
    ]
    assert all(len(each) == 2 for each in circles)
    assert len({each[0] for each in circles}) == 6
    steps = sorted(each[0] for each in circles)
    assert steps[-1] - steps[0] > 20


def test_missing_and_unlisted_values_are_never_folded_away() -> None:
    card = scorecard(("aim",))
    column = card["details"]["one_way"]["aim"]["columns"]["native-country"]
    shares = [0.9 / 41] * 41
    column |= {"real": shares, "synthetic": shares, "missing": [0.1, 0.0999], "unlisted": [0, 0.0001]}
    drawn = re.search(r'aria-label="Frequencies of the categories of native-country.*?</svg>', render(card), re.S)
    assert drawn is not None
    labels = re.findall(r">([^<>]+)</text>", drawn[0])
    assert labels[-3:] == ["31 other categories", "(missing)", "(unlisted)"]


def test_numbers_counted_in_the_end_cells_are_reported() -> None:
    card = scorecard(("aim", "mst"))
    card["details"]["validity"] = {"mst": {"columns": {"age": {"out_of_range": 0.25}, "fnlwgt": {"out_of_range": 0.0}}}}
    page = render(card).replace(SPACE, " ")
    assert page.count("Numbers out of range are counted in the first or last bin") == 1
    assert "in the first or last bin: mst 25%." in page


def test_associations_are_weaker_or_stronger_whatever_their_sign() -> None:
    card = scorecard(("aim",))
    names = ["a", "b", "c"]
    real = [[1, 0.5, -0.5], [0.5, 1, 0.1], [-0.5, 0.1, 1]]
    ours = [[1, 0.1, -0.2], [0.1, 1, -0.7], [-0.2, -0.7, 1]]
    card["details"]["correlations"]["aim"] = {"columns": names, "real": real, "synthetic": ours}
    said = " ".join(Text(render(card)).texts)
    assert "c × b 0.800 stronger b × a 0.400 weaker c × a 0.300 weaker" in said


def test_models_and_scores_have_names_that_people_use() -> None:
    texts = " ".join(Text(render(scorecard(("aim",)) | {"settings": {}})).texts)
    assert "neural network" in texts
    assert not re.search(r"\bmlp\b", texts)
    assert text.model_name("pr_auc") == "precision-recall AUC"


def test_the_model_is_blamed_for_columns_it_cannot_predict() -> None:
    texts = " ".join(Text(render(scorecard(("aim",)))).texts)
    assert "Not drawn: “fnlwgt”. The Lasso with penalty 1, the model for numbers here, hardly predicts" in texts


def test_a_single_component_gives_a_sentence_and_no_cloud() -> None:
    card = scorecard(("aim",))
    card["details"]["pca"]["aim"] = {"explained": [1.0], "real": [[0.1], [0.2]], "synthetic": [[0.3]], "loadings": [[]]}
    assert "only one principal component" in render(card)


@pytest.mark.parametrize("kind", ["number", "text"])
def test_a_table_of_one_column_can_be_evaluated_and_drawn(kind: str) -> None:
    values = [i % 7 for i in range(60)] if kind == "number" else ["xyz"[i % 3] for i in range(60)]
    card = us.evaluate(
        pa.table({"a": values}), pa.table({"a": values[::-1]}), metrics=["tv1", "tv2", "pca", "unlisted"]
    )
    page = render(card)
    assert "The table has only one column" in page
    assert ("only one principal component" in page) == (kind == "number")


@pytest.mark.parametrize("junk", [None, float("nan"), float("inf")])
def test_numbers_that_are_none_do_no_harm(junk: float | None) -> None:
    card = scorecard(("aim", "mst"), points=20)

    def spoil(value: Any, key: str = "") -> Any:
        if isinstance(value, dict):
            return {name: spoil(item, name) for name, item in value.items()}
        if isinstance(value, list):
            return [spoil(item, key) for item in value]
        return junk if isinstance(value, float) and key != "edges" else value

    card["details"] = spoil(card["details"])
    for metric in card["metrics"]:
        metric["values"]["aim"] |= {"value": junk, "error": junk, "why": "No number."}
    page = render(card)
    assert not re.search(r"\b(nan|inf|None)\b", " ".join(Text(page).texts))
    assert not re.search(r'="[^"]*\b(nan|inf)\b', page)


def test_many_columns_are_cut_to_the_worst_and_said_so() -> None:
    page = render(scorecard(("aim", "mst"), extra_columns=285, points=100))
    assert "The 60 worst of 300 columns are shown." in page
    assert "The 40 of 300 columns with the largest errors." in page
    assert len(page) < 3_000_000


def test_many_levels_are_cut_to_the_worst_and_said_so() -> None:
    card = scorecard(("aim",))
    points = [
        {"column": "town", "category": f"town {i}", "real": 0.5, "synthetic": 0.5 + i / 9_000} for i in range(3_000)
    ]
    card["details"]["dimension_probability"]["aim"]["points"] = points
    column = card["details"]["one_way"]["aim"]["columns"]["sex"]
    column |= {
        "labels": [f"town {i}" for i in range(3_000)],
        "real": [1 / 3_000] * 3_000,
        "synthetic": [1 / 3_000] * 3_000,
    }
    page = render(card)
    assert "The 1,000 worst of 3,000 categories are shown." in page
    assert "The 10 most frequent of 3,000 categories" in page
    assert "town 2999<td>0.500" in page
    assert "town 1999<td>0.500" not in page
    assert len(page) < 600_000
