"""The report: one page that warns first, says what the scores say, breaks on no name, and works in a browser."""

import base64
import contextlib
import copy
import hashlib
import html.parser
import json
import random
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import understudy as us
from tests.report import browser
from tests.report.scorecards import scorecard
from understudy.errors import ConfigError, TableError
from understudy.privacy.ledger import Statement
from understudy.report import charts, markdown, words
from understudy.report import page as page_module
from understudy.report.page import WARNING, render, write_report

SPACE = "\N{NO-BREAK SPACE}"

NASTY = {
    "age": "<script>alert(1)</script>",
    "sex": "a \"quoted\" & 'odd' name",
    "race": "😀 " + "very long " * 40,
    "education": "</style></script><img src=x onerror=alert(1)>",
    "income": "back`tick **bold** | pipe\nnew line\x00nul",
}


@pytest.fixture(scope="module")
def statement() -> Statement:
    schema = us.Schema(columns=(us.Column(name="se|x <b>", kind="categorical", categories=("m", "f")),), rows=100)
    table = pa.table({"se|x <b>": ["m", "f"] * 50})
    return us.fit(table, us.Independent(), us.Guarantee(epsilon=1.0, delta=1e-6), schema=schema).statement


class Text(html.parser.HTMLParser):
    """The visible text of a page in order, and its elements."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.texts: list[str] = []
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self._hidden = ""
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        self._hidden = tag if tag in ("style", "script", "title") and not self._hidden else self._hidden

    def handle_endtag(self, tag: str) -> None:
        self._hidden = "" if tag == self._hidden else self._hidden

    def handle_data(self, data: str) -> None:
        if data.strip() and not self._hidden:
            self.texts.append(data.strip())


# ------------------------------------------------------------------------------------------------------------- the page


def test_the_first_visible_line_is_the_warning() -> None:
    assert Text(render(scorecard(("aim",)))).texts[0] == WARNING
    assert WARNING == "Contains statistics of the real rows: not private, do not publish."


def test_the_same_scorecard_gives_the_same_page() -> None:
    card = json.loads(json.dumps(scorecard()))
    before = copy.deepcopy(card)
    assert render(card) == render(card)
    assert card == before


def test_the_page_asks_for_nothing_and_runs_only_its_own_script(statement: Statement) -> None:
    page = render(scorecard(), statement)
    policy = re.search(r'Content-Security-Policy" content="([^"]*)"', page)
    script = re.search(r"<script>(.*?)</script>", page, re.S)
    assert policy is not None
    assert script is not None
    digest = base64.b64encode(hashlib.sha256(script[1].encode()).digest()).decode()
    assert policy[1].startswith("default-src 'none'")
    assert f"script-src 'sha256-{digest}'" in policy[1]
    links = [value for _, attrs in Text(page).elements for key, value in attrs.items() if key in ("src", "href")]
    assert all(link is not None and link.startswith(("#", "data:,")) for link in links)
    assert not re.search(r"url\(|@import|https?://", page)


def test_every_link_of_the_contents_has_its_place(statement: Statement) -> None:
    elements = Text(render(scorecard(), statement)).elements
    places = {attrs.get("id") for _, attrs in elements}
    links = [str(attrs["href"]) for tag, attrs in elements if tag == "a"]
    assert len(links) == 12
    assert all(link[1:] in places for link in links)


def test_no_name_or_level_becomes_markup() -> None:
    card = scorecard(("<i>aim</i>", 'm"st'), renamed=NASTY)
    columns = card["details"]["one_way"]["<i>aim</i>"]["columns"]
    columns["workclass"]["labels"][0] = "<u>level</u>"
    for metric in card["metrics"]:
        metric["title"] += " <u>title</u>"
        metric["meaning"] += ' "><u>'
    card["notes"] = ["<u>note</u>"]
    card["settings"] = {"one_way": {"<u>": "<u>"}}
    card["real"]["name"] = card["holdout"]["name"] = "<u>file</u>"
    parsed = Text(render(card))
    tags = {tag for tag, _ in parsed.elements}
    assert not tags & {"u", "img"}
    assert [tag for tag, _ in parsed.elements].count("script") == 1
    assert not [key for _, attrs in parsed.elements for key in attrs if key.startswith("on")]
    assert "<script>alert(1)</script>" in " ".join(parsed.texts)
    assert "\x00" not in render(card)


def test_marks_point_to_rows_of_their_own_table() -> None:
    for figure in re.findall(r"<figure.*?</figure>", render(scorecard()), re.S):
        body = figure.partition("<tbody>")[2]
        head = figure.partition("<thead>")[2].partition("</thead>")[0].count("<th ")
        marks = [int(row) for row in re.findall(r'data-r="(\d+)"', figure)]
        assert marks
        assert max(marks) < body.count("<tr>")
        assert all(int(column) < head for column in re.findall(r'data-c="(\d+)"', figure))
        assert all(row.count("<td>") == head for row in body.partition("</tbody>")[0].split("<tr>")[1:])


def test_each_drawing_says_in_words_what_it_is() -> None:
    drawings = [attrs for tag, attrs in Text(render(scorecard())).elements if tag == "svg" and "role" in attrs]
    assert len(drawings) > 25
    assert all(attrs["aria-label"] and attrs["tabindex"] == "0" for attrs in drawings)


def test_real_and_synthetic_shares_stand_in_the_table_of_a_histogram() -> None:
    card = scorecard(("aim",))
    column = card["details"]["one_way"]["aim"]["columns"]["sex"]
    column["real"], column["synthetic"] = [0.6, 0.4, 0, 0], [0.25, 0.7, 0, 0.05]
    page = render(card).replace(SPACE, " ")
    assert "<td>Male<td>60.0 %<td>25.0 %" in page
    assert "<td>(unlisted)<td>0 %<td>5.00 %" in page
    assert "(missing)<td>0 %<td>0 %" not in page


def test_levels_of_several_tables_are_matched_by_name() -> None:
    """A table names missing and unlisted values only if it has some."""
    card = scorecard(("aim", "mst"))
    first, second = (card["details"]["one_way"][m]["columns"]["sex"] for m in ("aim", "mst"))
    first |= {"labels": ["Male", "Female"], "real": [0.6, 0.4], "synthetic": [0.5, 0.5]}
    second |= {"labels": ["Male", "Female", "(unlisted)"], "real": [0.6, 0.4, 0], "synthetic": [0.3, 0.6, 0.1]}
    page = render(card).replace(SPACE, " ")
    assert "<td>Female<td>40.0 %<td>50.0 %<td>60.0 %" in page
    assert "<td>(unlisted)<td>0 %<td>0 %<td>10.0 %" in page


def test_dates_are_written_as_dates_where_the_scorecard_says_so() -> None:
    card = scorecard(("aim",))
    column = card["details"]["one_way"]["aim"]["columns"]["age"]
    column |= {"type": "date", "edges": [day * 73.05 for day in range(51)]}
    assert "1970-01-01 to 1970-03-15" in render(card)


@pytest.mark.parametrize("count", [1, 2, 6, 8])
def test_any_number_of_methods(count: int) -> None:
    methods = tuple(f"method {i}" for i in range(count))
    page = render(scorecard(methods, points=50))
    assert all(page.count(method) > 10 for method in methods)
    drawn = {(look.colour, look.dash, look.shape) for look in charts.looks(methods)}
    assert len(drawn) == count


def test_sections_without_data_say_why() -> None:
    card = scorecard(("aim",))
    card["details"], card["target"], card["effort"] = {}, None, "quick"
    for metric in card["metrics"]:
        metric["values"] = {"aim": {"value": None, "error": None, "why": "Because <of> that."}}
    texts = " ".join(Text(render(card)).texts)
    assert texts.count("Not drawn: Because <of> that.") >= 4
    assert "No score could be computed" in texts


def test_what_the_effort_left_out_is_neither_drawn_nor_called_impossible() -> None:
    card = scorecard(("aim",)) | {"effort": "quick"}
    del card["details"]["pca"], card["details"]["dimension_prediction"]
    for metric in card["metrics"]:
        if metric["group"] == "pca":
            metric["values"]["aim"] = {"value": None, "error": None, "why": "Left out by the quick scorecard."}
        if metric["key"] == "dcr_ratio":
            metric["values"]["aim"] = {"value": None, "error": None, "why": "Distances were left out; copies counted."}
    page = Text(render(card))
    texts = " ".join(page.texts)
    assert not {"cloud", "prediction"} & {attrs.get("id") for _, attrs in page.elements}
    assert not {"#cloud", "#prediction"} & {attrs.get("href") for _, attrs in page.elements}
    assert "2 scores were left out by the quick scorecard, to save time" in texts
    assert (
        "2 scores could not be computed or did not apply: “No constraint.” (1) and “Target is no number.” (1)." in texts
    )
    assert (
        "leaves them out: the sections “The table as a cloud” and “Predicting every column”; the scores “Wass" in texts
    )
    assert "not computed: Left out" not in texts
    card["settings"], card["seconds"] = {"pca": {}, "learning": {}}, {"pca": 0.01, "learning": 2.0}
    assert re.findall(r"<tr><td>(\w+)<td><td class=n>([\d.]+)", render(card)) == [("learning", "2.0")]


def test_a_reason_that_concerns_one_table_names_it() -> None:
    card = scorecard(("aim", "mst"))
    card["metrics"] = card["metrics"][:1]
    card["metrics"][0]["values"]["mst"] = {"value": None, "error": None, "why": "It is empty."}
    assert words.absences(card, ["aim", "mst"]) == [
        "1 score could not be computed or did not apply: “It is empty.” (1 of mst)."
    ]


def test_key_scores_stand_side_by_side_directly_after_the_words() -> None:
    card = scorecard(("aim", "mst"))
    by_key = {metric["key"]: metric for metric in card["metrics"]}
    by_key["tv2"]["values"] = {m: {"value": v, "error": None, "why": ""} for m, v in (("aim", 0.2), ("mst", 0.04))}
    page = render(card).replace(SPACE, " ")
    sections = re.findall(r'<section id="(\w+)">(.*?)</section>', page, re.S)
    assert [key for key, _ in sections][:2] == ["verdict", "key"]
    rows = re.findall(r"<tr><th scope=row><span>(.*?)</span>.*?</tr>", sections[1][1])
    assert rows == [
        "Histogram distance, one column", "Histogram distance, two columns", "Invalid cells",
        "ROC AUC, trained on synthetic", "pMSE ratio, logistic",
    ]  # fmt: skip
    assert re.search(r'two columns.*?"real rows">2.00 %</td>.*?"aim">20.0 %</td>.*?"mst"><b>4.00 %</b>', sections[1][1])
    del card["details"]
    card |= {"details": {}, "metrics": [by_key["sra"]]}
    assert 'id="key"' not in render(card)


def test_the_head_names_files_and_the_day() -> None:
    card = scorecard(("aim",))
    assert "adult_test, 16,281 rows; given as unseen" in " ".join(Text(render(card)).texts)
    card["real"]["file"], card["holdout"]["file"], card["holdout"]["seen"] = "train.csv", "<test>.csv", True
    texts = " ".join(Text(render(card | {"created": "2026-01-31"})).texts)
    assert "train.csv, 32,561 rows" in texts
    assert "<test>.csv, 16,281 rows; the synthesizer has seen them" in texts
    assert "Understudy 0.1.0, 2026-01-31" in texts


def test_real_rows_are_named_once_for_each_part() -> None:
    card = scorecard(("aim",))
    texts = " ".join(Text(render(card)).texts)
    few = texts.count("held-out real rows")
    for i in range(20):
        card["metrics"].append(card["metrics"][0] | {"key": f"more {i}"})
    assert " ".join(Text(render(card)).texts).count("held-out real rows") == few
    card["metrics"][1]["reference"]["what"] = "a coin"
    texts = " ".join(Text(render(card)).texts)
    assert "a coin: 0.00700" in texts
    assert texts.count("a coin") == 2


def test_a_score_that_repeats_another_is_listed_but_not_drawn() -> None:
    card = scorecard(("aim",))
    card["metrics"].append(card["metrics"][0] | {"key": "again", "title": "Once more", "same_as": "tv1"})
    page = render(card)
    assert page.count("Once more") == 1
    assert "the same as tv1" in page


def test_a_reference_of_a_much_smaller_table_is_drawn_apart() -> None:
    card = scorecard(("aim",))
    assert "real rough" not in render(card)
    card["metrics"][0]["reference"] |= {"rows": 300, "comparable": False}
    page = render(card)
    assert page.count('class="real rough"') == 1
    assert page.count("† The held-out table has 16,281 rows, far fewer") == 2
    assert f"<b>0.800{SPACE}%{SPACE}†</b><small>±" in page


# --------------------------------------------------------------------------------------------------------------- charts


def bar_of(card: dict[str, Any], direction: str, values: tuple[float, ...], **more: Any) -> str:
    metric = card["metrics"][0] | {"key": "k", "direction": direction, "reference": None, **more}
    metric["values"] = {f"m{i}": {"value": v, "error": None, "why": ""} for i, v in enumerate(values)}
    card |= {"metrics": [metric], "details": {}, "synthetic": [{"name": n, "rows": 9} for n in metric["values"]]}
    return render(card).partition('<div class="bars">')[2].partition("</section>")[0]


@pytest.mark.parametrize(
    ("direction", "values", "low", "high", "goal", "bars", "ends"),
    [
        ("0.5 is best", (0.9, 0.1), 0, 1, 50.0, [(50.0, 40.0), (10.0, 40.0)], ("0", "1")),
        ("0 is best", (6.0, -2.0), None, None, 25.0, [(25.0, 75.0), (0.0, 25.0)], ("−2", "6")),
        ("1 is best", (4.0, 0.0), 0, None, 25.0, [(25.0, 75.0), (0.0, 25.0)], ("0", "4")),
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
    assert page_module.rounded_up(value) == end
    assert f"<i>0</i><i>{end:g}</i>" in bar_of(scorecard(("aim",)), "lower is better", (value,), low=0, high=None)


def test_shares_are_percent_in_bars_as_in_words() -> None:
    page = render(scorecard(("aim",))).replace(SPACE, " ")
    bars = page.partition('<section id="scores">')[2].partition("</section>")[0]
    assert re.search(
        r"Histogram distance, one column</h4>.*?real: 0.800 %.*?<b>[\d.]+ %</b>.*?<i>0 %</i><i>[\d.]+ %", bars
    )
    assert re.search(r"ROC AUC, trained on synthetic</h4>.*?<b>0.\d\d\d</b>", bars)


def test_markers_of_several_methods_do_not_cover_each_other() -> None:
    card = scorecard(tuple("abcdef"))
    for method in "abcdef":
        card["details"]["one_way"][method]["columns"]["sex"] |= {
            "real": [0.6, 0.4, 0, 0],
            "synthetic": [0.6, 0.4, 0, 0],
        }
    drawn = re.search(r'aria-label="Shares of the levels of sex .*?</svg>', render(card), re.S)
    assert drawn is not None
    circles = [
        [float(y) for y in re.findall(rf'd="M[\d.]+ ([\d.]+)[^"]*" fill="{look.colour}"', drawn[0])]
        for look in charts.looks("abcdef")
    ]
    assert all(len(each) == 2 for each in circles)
    assert len({each[0] for each in circles}) == 6
    steps = sorted(each[0] for each in circles)
    assert steps[-1] - steps[0] > 20


def test_missing_and_unlisted_values_are_never_folded_away() -> None:
    card = scorecard(("aim",))
    column = card["details"]["one_way"]["aim"]["columns"]["native-country"]
    shares = [0.9 / 41] * 41
    column |= {"real": [*shares, 0.1, 0], "synthetic": [*shares, 0.0999, 0.0001]}
    drawn = re.search(r'aria-label="Shares of the levels of native-country.*?</svg>', render(card), re.S)
    assert drawn is not None
    labels = re.findall(r">([^<>]+)</text>", drawn[0])
    assert labels[-3:] == ["31 other levels", "(missing)", "(unlisted)"]


def test_numbers_that_were_put_into_the_end_cells_are_told() -> None:
    card = scorecard(("aim", "mst"))
    card["details"]["validity"] = {"mst": {"columns": {"age": {"out_of_range": 0.25}, "fnlwgt": {"out_of_range": 0.0}}}}
    page = render(card).replace(SPACE, " ")
    assert page.count("Numbers outside the range stand in the end cells") == 1
    assert "stand in the end cells: mst 25.0 %." in page


def test_associations_are_lost_or_gained_whatever_their_sign() -> None:
    card = scorecard(("aim",))
    names = ["a", "b", "c"]
    real = [[1, 0.5, -0.5], [0.5, 1, 0.1], [-0.5, 0.1, 1]]
    ours = [[1, 0.1, -0.2], [0.1, 1, -0.7], [-0.2, -0.7, 1]]
    card["details"]["correlations"]["aim"] = {"columns": names, "real": real, "synthetic": ours}
    said = " ".join(Text(render(card)).texts)
    assert "c × b 0.800 gained b × a 0.400 lost c × a 0.300 lost" in said


def test_models_and_scores_have_names_that_people_use() -> None:
    texts = " ".join(Text(render(scorecard(("aim",)) | {"settings": {}})).texts)
    assert "neural network" in texts
    assert not re.search(r"\bmlp\b", texts)
    assert charts.model_name("pr_auc") == "precision-recall AUC"


def test_the_model_is_blamed_for_columns_it_cannot_predict() -> None:
    texts = " ".join(Text(render(scorecard(("aim",)))).texts)
    assert "Not drawn: “fnlwgt”. The model for numbers here, the Lasso with penalty 1, is too stiff" in texts


def test_a_single_component_gives_a_sentence_and_no_cloud() -> None:
    card = scorecard(("aim",))
    card["details"]["pca"]["aim"] = {"explained": [1.0], "real": [[0.1], [0.2]], "synthetic": [[0.3]], "loadings": [[]]}
    assert "it has one principal component and no plane to draw on" in render(card)


@pytest.mark.parametrize("kind", ["number", "text"])
def test_a_table_of_one_column_can_be_judged_and_drawn(kind: str) -> None:
    values = [i % 7 for i in range(60)] if kind == "number" else ["xyz"[i % 3] for i in range(60)]
    card = us.evaluate(
        pa.table({"a": values}), pa.table({"a": values[::-1]}), metrics=["tv1", "tv2", "pca", "unlisted"]
    )
    page = render(card)
    assert "There is one column only" in page
    assert ("one principal component" in page) == (kind == "number")


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
    assert "Of 300 columns the 60 furthest off are drawn." in page
    assert "Of 300 columns the 40 that are furthest off." in page
    assert len(page) < 3_000_000


def test_many_levels_are_cut_to_the_worst_and_said_so() -> None:
    card = scorecard(("aim",))
    points = [{"column": "town", "level": f"town {i}", "real": 0.5, "synthetic": 0.5 + i / 9_000} for i in range(3_000)]
    card["details"]["dimension_probability"]["aim"]["points"] = points
    column = card["details"]["one_way"]["aim"]["columns"]["sex"]
    column |= {
        "labels": [f"town {i}" for i in range(3_000)],
        "real": [1 / 3_000] * 3_000,
        "synthetic": [1 / 3_000] * 3_000,
    }
    page = render(card)
    assert "Of 3,000 levels the 1,000 furthest off are drawn." in page
    assert "The 10 commonest of 3000 levels" in page
    assert "town 2999<td>0.500" in page
    assert "town 1999<td>0.500" not in page
    assert len(page) < 600_000


def test_a_page_about_a_census_table_is_small(statement: Statement) -> None:
    assert len(render(scorecard(points=1_000), statement)) < 1_000_000
    assert len(render(scorecard(("aim",), points=1_000))) < 500_000


# ---------------------------------------------------------------------------------------------------------------- words


def said_of(card: dict[str, Any]) -> str:
    return " ".join(words.verdict(card, "aim")).replace(SPACE, " ")


def test_the_loss_in_auc_is_measured_from_chance() -> None:
    card = scorecard(("aim",))
    auc = next(metric for metric in card["metrics"] if metric["key"] == "tstr_auc")
    auc["reference"]["value"], auc["values"]["aim"]["value"] = 0.9, 0.8
    said = said_of(card)
    assert "reach 0.900. Of what real rows gain over chance (0.5), 25.0 % is lost." in said
    auc["values"]["aim"]["value"] = 0.898
    assert "reach 0.900. The difference lies within the error of the 16,281 test rows." in said_of(card)
    auc["values"]["aim"]["value"] = 0.99
    assert "reach 0.900. That is not less." in said_of(card)
    auc["values"]["aim"]["value"] = 0.4
    assert "Nothing of what real rows gain" in said_of(card)
    auc["reference"]["value"] = 0.5
    assert "do not predict the target better than chance" in said_of(card)


def test_warnings_come_first_and_the_counting_last() -> None:
    card = scorecard(("aim", "mst")) | {"warnings": ["The holdout <overlaps>."]}
    section = render(card).partition('<section id="verdict">')[2].partition("</section>")[0]
    texts = Text(section).texts
    assert texts[:3] == ["In words", "Warning.", "The holdout <overlaps>."]
    said = " ".join(texts)
    parts = ("ROC AUC, trained on synthetic, best first: aim", "Models trained on these", "For pairs of columns",
             "No invalid value", "Of 11 scores that can be set", "that all of them have, aim is")  # fmt: skip
    order = [said.index(part) for part in parts]
    assert order == sorted(order)
    assert "Histogram distance, two columns, best first: aim" in said


def test_counting_leaves_out_repetitions_baselines_and_small_references() -> None:
    card = scorecard(("aim", "mst"))
    plain = card["metrics"][0]
    plain["values"]["aim"]["value"], plain["values"]["mst"]["value"] = 0.0, 0.5
    near = plain | {"key": "d", "direction": "nearer to real is better"}
    near["reference"] = plain["reference"] | {"comparable": False}
    card["metrics"] = [plain, plain | {"key": "b", "same_as": "tv1"}, plain | {"key": "c_real"}, near]
    assert "On the 1 score that all of them have, aim is best on 1" in words.comparison(card, ["aim", "mst"])[0]
    said = said_of(card)
    assert "Of 1 score that can be set beside the same score of real rows, all are at least as good" in said
    assert "Another 1 is not counted: the held-out table has far fewer rows" in said
    card["metrics"] = [near]
    assert "No score is set beside that of real rows: the held-out table has far fewer rows" in said_of(card)


def test_invalid_values_are_only_denied_where_all_were_looked_for() -> None:
    card = scorecard(("aim",))
    metric = card["metrics"][3]
    card["metrics"] = [metric | {"key": "unlisted", "title": "Unlisted categories"}]
    assert "No invalid value" not in said_of(card)
    assert "Looked for and not found: unlisted categories." in said_of(card)
    card["metrics"] = []
    assert "nvalid" not in said_of(card)


@pytest.mark.parametrize(("share", "by_chance", "told"), [(0.8, 0.001, True), (0.8, 0.78, False), (0.01, 0.0, False)])
def test_a_table_of_copies_is_called_one(share: float, by_chance: float, told: bool) -> None:
    card = scorecard(("aim",))
    metric = card["metrics"][0] | {"key": "exact_copies", "direction": "nearer to real is better"}
    metric |= {"values": {"aim": {"value": share, "error": None, "why": ""}}, "group": "closest_record"}
    card["metrics"] = [metric | {"reference": {"value": by_chance, "error": None, "what": ""}}]
    assert ("% of these rows are equal to a real row" in words.verdict(card, "aim")[0]) is told


def test_the_worst_columns_and_pairs_are_named() -> None:
    card = scorecard(("aim",))
    card["details"]["one_way"]["aim"]["columns"]["sex"]["tv"] = 0.875
    card["details"]["two_way"]["aim"]["worst"][0] = {"columns": ["age", "race"], "tv": 0.9375}
    said = said_of(card)
    assert "furthest off: “sex” (87.5 %)" in said
    assert f"“sex” (87.5{SPACE}%)" in render(card)  # number and unit stay on one line
    assert "most for “age” with “race” (93.8 %)" in said
    assert "No invalid value was found." in said
    card["metrics"][3]["values"]["aim"]["value"] = 0.002
    assert "Invalid values occur: invalid cells 0.200 %." in said_of(card)


def test_invalid_values_are_found_without_their_scores() -> None:
    card = scorecard(("aim",))
    card["metrics"] = []
    columns = card["details"]["one_way"]["aim"]["columns"]
    columns["sex"]["synthetic"] = [0.5, 0.3, 0.15, 0.05]
    columns["age"]["missing"] = [0.0, 0.2]
    said = said_of(card)
    assert "not on the list occur in “sex” (5.00 %)." in said
    assert "missing where no real row lacks one: “age” and “sex”." in said


@pytest.mark.parametrize(
    ("direction", "values", "best"),
    [
        ("lower is better", (0.1, 0.2), "a"),
        ("higher is better", (0.1, 0.2), "b"),
        ("1 is best", (0.7, 1.2), "b"),
        ("0 is best", (-0.3, 0.2), "b"),
        ("0.5 is best", (0.1, 0.6), "b"),
        ("nearer to real is better", (0.1, 0.45), "b"),
    ],
)
def test_methods_are_compared_by_the_direction_of_each_score(direction: str, values: tuple, best: str) -> None:
    card = scorecard(("a", "b"))
    metric = card["metrics"][0] | {"direction": direction, "reference": {"value": 0.5, "error": None, "what": ""}}
    metric["values"] = {name: {"value": v, "error": None, "why": ""} for name, v in zip("ab", values, strict=True)}
    card["metrics"] = [metric]
    other = "b" if best == "a" else "a"
    assert (
        f"On the 1 score that all of them have, {best} is best on 1 and {other} on 0."
        in words.comparison(card, "ab")[0]
    )
    assert words.no_worse(metric, {"value": 0.5, "error": None}) is True
    assert words.badness(metric | {"direction": "sideways"}, 0.5) is None


def test_as_good_as_real_counts_two_standard_errors() -> None:
    metric = {"direction": "lower is better", "reference": {"value": 0.1, "error": 0.03}}
    assert words.no_worse(metric, {"value": 0.19, "error": 0.04})
    assert not words.no_worse(metric, {"value": 0.21, "error": 0.04})
    assert words.no_worse(metric, {"value": None}) is None


def test_notes_that_several_tables_share_are_said_once() -> None:
    notes = ["A note, with a comma.", "pca, aim: Odd: very.", "pca, mst: Odd: very.", "pca, mst: Else."]
    said = ["A note, with a comma.", "pca (aim, mst): Odd: very.", "pca (mst): Else."]
    assert words.merged(notes, {"real", "aim", "mst"}) == said


def test_no_sentence_speaks_of_privacy() -> None:
    card = scorecard()
    said = " ".join([*words.comparison(card, list(card["details"]["pca"])), *words.verdict(card, "mst")])
    assert not re.search("priva|anonym|safe|secure|protect", said, re.I)


@pytest.mark.parametrize(
    ("value", "shown"),
    [(0, "0"), (1.0, "1.00"), (0.12345, "0.123"), (0.00241, "0.00241"), (3.2e-4, "0.000320"), (0.9997, "0.9997"),
     (0.99996, "> 0.9999"), (-0.5, "−0.500"), (2e-5, "< 0.0001"), (-2e-5, "> −0.0001"), (12.34, "12.3"),
     (9.999, "10.0"),
     (123456.7, "123,457"), (2e7, "20.0M"), (-3e20, "−3.0e20"), (None, "–"), (float("nan"), "–")],
)  # fmt: skip
def test_numbers_are_rounded_to_what_can_be_read(value: float | None, shown: str) -> None:
    assert words.number(value).replace(SPACE, " ") == shown


@pytest.mark.parametrize(
    ("share", "shown"),
    [(0, "0 %"), (1e-5, "< 0.01 %"), (0.00817, "0.817 %"), (0.123, "12.3 %"), (0.99999, "> 99.9 %"), (1, "100 %")],
)
def test_a_share_is_never_rounded_to_nothing_or_all(share: float, shown: str) -> None:
    assert words.percent(share).replace(SPACE, " ") == shown


# ---------------------------------------------------------------------------------------------------------- certificate


def test_the_certificate_stands_at_the_end_and_apart(statement: Statement) -> None:
    page = render(scorecard(("aim",)), statement)
    assert "certificate" not in render(scorecard(("aim",))).partition("<body>")[2].partition("<script>")[0]
    before, _, after = page.partition('<section id="certificate"')
    assert "this part may be published; everything above may not" in after
    assert "It belongs to “aim”, made by the method “independent”." in after
    assert "<section" not in after
    assert "<strong>epsilon = " in after
    assert "epsilon =" not in before
    assert "se|x &lt;b&gt;" in after
    assert "What this guarantee does not cover" in after


@pytest.mark.parametrize("made", [{"guarantee": us.Guarantee.not_private()}, {"seed": 3}])
def test_what_is_not_private_is_never_said_to_be_publishable(made: dict[str, Any]) -> None:
    schema = us.Schema(columns=(us.Column(name="a", kind="categorical", categories=("m", "f")),), rows=100)
    made = {"guarantee": us.Guarantee(epsilon=1.0, delta=1e-6)} | made
    release = us.fit(pa.table({"a": ["m", "f"] * 50}), us.Independent(), schema=schema, **made)
    after = render(scorecard(("aim",)), release).partition('<section id="certificate" class="unsafe"')[2]
    assert "This release is NOT PRIVATE: publish neither this part nor anything above." in after
    assert "may be published" not in after


def test_the_certificate_says_whose_it_is(statement: Statement) -> None:
    card = scorecard(("aim", "<mst>"))
    unnamed = render(card, statement)
    assert "It belongs to one of the tables above, made by the method “independent”." in unnamed
    assert "It belongs to “&lt;mst&gt;”, made by the method “independent”." in render(card, statement, of="<mst>")
    with pytest.raises(ConfigError, match="No table named “else” was judged, only “aim” and “<mst>”"):
        render(card, statement, of="else")
    with pytest.raises(ConfigError, match="found str"):
        render(card, "folder")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("# A\n\n## B `c`", "<h1>A</h1><h2>B <code>c</code></h2>"),
        ("> **No.** Not\n> so", "<blockquote><strong>No.</strong> Not so</blockquote>"),
        ("- a\n- <b>", "<ul><li>a</li><li>&lt;b&gt;</li></ul>"),
        ("`**a** <i>`", "<p><code>**a** &lt;i&gt;</code></p>"),
        ("**a `b` c**", "<p><strong>a <code>b</code> c</strong></p>"),
        ("2 * 3 ** 4", "<p>2 * 3 ** 4</p>"),
    ],
)
def test_markdown(source: str, expected: str) -> None:
    assert markdown.to_html(source) == expected


def test_markdown_tables_keep_pipes_and_sides() -> None:
    page = markdown.to_html("| a | b |\n|---|---:|\n| x\\|y | 1 |\n| z | |")
    assert "<td>x|y</td><td class=n>1</td>" in page
    assert "<td>z</td><td class=n></td>" in page


# --------------------------------------------------------------------------------------------------------------- errors


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda card: card.clear(), "not a scorecard"),
        (lambda card: card.update(format="understudy-certificate"), "not a scorecard"),
        (lambda card: card.update(version=2), "version 2, and this Understudy reads version 1"),
        (lambda card: card.pop("metrics"), "damaged: 'metrics'"),
        (lambda card: card.update(synthetic=[]), "damaged: 'synthetic'"),
        (lambda card: card["metrics"][0]["values"].pop("aim"), "'tv1' has no value for 'aim'"),
        (lambda card: card.update(synthetic=[1]), r"damaged: 'synthetic'\[0\] is a number, expected an object"),
        (
            lambda card: card.update(synthetic=card["synthetic"] * 2),
            "damaged: two entries of 'synthetic' have one name",
        ),
        (lambda card: card.update(metrics=[{}]), r"damaged: 'metrics'\[0\] has no 'key'"),
        (lambda card: card["metrics"][0].update(title=["a"]), "title is a list, expected text"),
        (lambda card: card["metrics"][0].update(values=[]), "values is a list, expected an object"),
        (lambda card: card["metrics"][0]["values"]["aim"].update(value="x"), "value is text, expected a number"),
        (lambda card: card["real"].update(rows="x"), "'real'.rows is text, expected a whole number"),
        (lambda card: card.update(notes="x"), "'notes' is text, expected a list"),
        (lambda card: card.update(warnings=[["x"]]), r"'warnings'\[0\] is a list, expected text"),
        (lambda card: card["details"].update(one_way=3), "one_way is a number, expected an object"),
        (lambda card: card["details"]["one_way"].update(aim={"columns": {"a\nb": 1}}), "columns.a b is a number"),
        (lambda card: card["details"]["one_way"]["aim"]["columns"]["age"]["edges"].pop(), "age differ in length"),
        (lambda card: card["details"]["two_way"]["aim"]["tv"].pop(), "have not the size of its columns"),
        (lambda card: card["details"]["learning"]["real"]["roc"]["mlp"]["fpr"].pop(), "differs in length"),
    ],
)
def test_what_is_no_scorecard_is_refused_in_one_line(change: Callable[[dict], object], said: str) -> None:
    card = scorecard(("aim",))
    change(card)
    with pytest.raises(ConfigError, match=said) as caught:
        render(card)
    assert "\n" not in str(caught.value)


def test_any_damage_is_refused_or_does_no_harm() -> None:
    """Anything anywhere in a scorecard may be something else."""
    card = json.loads(json.dumps(scorecard(("aim",), points=3)))
    rng = random.Random(0)
    junk = [None, 1, "x", [], {}, [1], {"a": 1}, True, [["x"]], float("nan")]
    for _ in range(150):
        spoiled = node = dict(card)
        while True:
            key = rng.choice(list(node) if isinstance(node, dict) else range(len(node)))
            if not (node[key] and isinstance(node[key], dict | list)) or rng.random() < 0.15:
                node[key] = rng.choice(junk)
                break
            node[key] = copy.copy(node[key])
            node = node[key]
        with contextlib.suppress(ConfigError):
            render(spoiled)


@pytest.mark.parametrize("content", [[], "text", None])
def test_other_things_are_no_scorecards(content: Any) -> None:
    with pytest.raises(ConfigError, match="Expected JSON as 'understudy evaluate --json' writes"):
        render(content)


def test_the_file_is_written_whole_and_only_replaced_by_force(tmp_path: Path) -> None:
    class Card:
        def to_json(self) -> dict[str, Any]:
            return scorecard(("aim \ud800",))  # a lone surrogate, as JSON may hold

    path = tmp_path / "report.html"
    write_report(path, Card())
    first = path.read_bytes()
    assert first.startswith(b"<!doctype html>")
    with pytest.raises(TableError, match="exists"):
        write_report(path, scorecard(("mst",)))
    assert path.read_bytes() == first
    write_report(path, scorecard(("mst",)), force=True)
    assert path.read_bytes() != first
    assert [each.name for each in tmp_path.iterdir()] == ["report.html"]


def test_no_report_is_written_into_a_release(tmp_path: Path) -> None:
    (tmp_path / "inner").mkdir()
    (tmp_path / "release.json").write_text("{}")
    for path in (tmp_path / "report.html", tmp_path / "inner" / "report.html"):
        with pytest.raises(TableError, match="is a release, and the report must not travel with it"):
            write_report(path, scorecard(("aim",)), force=True)
        assert not path.exists()


# ------------------------------------------------------------------------------------------------------- in the browser


@pytest.fixture(scope="module")
def tab() -> Iterator[browser.Browser]:
    if browser.CHROMIUM is None:
        pytest.skip("No Chromium was found: this test looks at the page in a real browser.")
    with browser.browser() as found:
        yield found


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory, statement: Statement) -> Path:
    path = tmp_path_factory.mktemp("report") / "report.html"
    write_report(path, scorecard(renamed=NASTY), statement)
    return path


TIP = "(() => { const t = document.getElementById('tip'); return t.hidden ? '' : t.innerText; })()"


def test_it_opens_without_a_complaint_or_a_request(tab: browser.Browser, page: Path) -> None:
    tab.open(page)
    tab.hover(".hit")
    assert tab.complaints() == []
    assert tab.requests() == [page.resolve().as_uri()]
    assert tab.evaluate("document.body.innerText").startswith(WARNING)


def test_the_policy_stops_foreign_scripts_and_requests(tab: browser.Browser, page: Path, tmp_path: Path) -> None:
    """Even if a name slipped through as markup, it could neither run nor send."""
    path = tmp_path / "broken.html"
    planted = "<script>window.ran = 1</script><img src='http://127.0.0.1:9/x'><main>"
    path.write_text(page.read_text().replace("<main>", planted), encoding="utf-8")
    tab.open(path)
    assert tab.evaluate("window.ran") is None
    assert any("Content Security Policy" in said for said in tab.complaints())


@pytest.mark.parametrize(
    ("selector", "said"),
    [
        ("#columns .hit", "independent"),
        ("#pairs .m", "aim"),
        ("#cloud .hit", "drawn"),
        ("#levels path.m", "real"),
        ("#prediction path.m", "R²"),
        ("#learning .hit", "logistic"),
        ("#scores .bar-card", "plain words"),
    ],
)
def test_the_mouse_shows_what_a_mark_stands_for(tab: browser.Browser, page: Path, selector: str, said: str) -> None:
    tab.open(page)
    assert tab.evaluate(TIP) == ""
    tab.hover(selector)
    assert said in tab.evaluate(TIP)
    box = tab.evaluate("(() => { const b = document.getElementById('tip').getBoundingClientRect();"
                       " return [b.left, b.top, innerWidth - b.right, innerHeight - b.bottom]; })()")  # fmt: skip
    assert min(box) >= 0
    tab.send("Input.dispatchMouseEvent", type="mouseMoved", x=2, y=2)
    assert tab.evaluate(TIP) == ""


def test_the_keyboard_reaches_every_mark(tab: browser.Browser, page: Path) -> None:
    tab.open(page)
    tab.evaluate("document.querySelector('#columns summary').focus()")
    tab.press("Tab")
    assert tab.evaluate("document.activeElement.matches('.panel > svg')")
    names = tab.evaluate(
        "[...document.activeElement.closest('figure').querySelectorAll('tbody tr')].map(r => r.cells[0].textContent)"
    )
    seen = [tab.evaluate(TIP).split("\n")[0]]
    for key in ("ArrowRight", "ArrowLeft", "End"):
        tab.press(key)
        seen.append(tab.evaluate(TIP).split("\n")[0])
    assert seen[0] == seen[2] == names[0]
    assert seen[1] == names[1]
    assert seen[3] in names[2:]
    assert tab.evaluate("getComputedStyle(document.activeElement).outlineStyle") == "solid"
    tab.press("Escape")
    assert tab.evaluate(TIP) == ""


@pytest.mark.parametrize("width", [1280, 800, 390])
def test_nothing_sticks_out(tab: browser.Browser, page: Path, width: int) -> None:
    tab.open(page, width=width)
    assert tab.evaluate("document.scrollingElement.scrollWidth") <= width
    tab.evaluate("document.querySelectorAll('details').forEach(d => d.open = true)")
    assert tab.evaluate("document.scrollingElement.scrollWidth") <= width
    out = tab.evaluate(
        f"[...document.querySelectorAll('.panel > svg, h4, figcaption, dd, li, p')].filter(e => !e.closest('.scroll')"
        f" && e.getBoundingClientRect().right > {width} + 1).length"
    )
    assert out == 0
    sideways = (
        "[...document.querySelectorAll('.scroll')].filter(e => !e.closest('details') && !e.closest('#certificate')"
    )
    sideways += " && e.scrollWidth > e.clientWidth + 1).map(e => e.getAttribute('aria-label'))"
    assert tab.evaluate(sideways) == []


def test_no_label_leaves_its_drawing(tab: browser.Browser, page: Path) -> None:
    tab.open(page)
    out = tab.evaluate(
        "[...document.querySelectorAll('.panel > svg text')].filter(t => { const a = t.getBoundingClientRect(),"
        " b = t.closest('svg').getBoundingClientRect(); return a.left < b.left - 1 || a.right > b.right + 1"
        " || a.bottom > b.bottom + 1 || a.top < b.top - 1; }).map(t => t.textContent)"
    )
    assert out == []


def test_no_labels_cover_each_other_beside_missing_values(tab: browser.Browser, tmp_path: Path) -> None:
    card = scorecard()
    for method in ("aim", "mst", "independent"):
        for name in ("age", "fnlwgt", "hours-per-week"):
            column = card["details"]["one_way"][method]["columns"][name]
            column |= {"missing": [0.1, 0.2], "edges": [2 * i for i in range(51)]}  # the last tick is at the very end
    write_report(tmp_path / "report.html", card)
    tab.open(tmp_path / "report.html")
    covered = tab.evaluate(
        "[...document.querySelectorAll('#columns .panel > svg')].flatMap(s => {"
        " const t = [...s.querySelectorAll('text')].map(e => [e.textContent, e.getBoundingClientRect()]);"
        " return t.flatMap(([a, x], i) => t.slice(i + 1).filter("
        "([b, y]) => x.left < y.right && y.left < x.right && x.top + 3 < y.bottom && y.top + 3 < x.bottom)"
        ".map(([b]) => a + ' ' + b)); })"
    )
    assert covered == []


def test_letters_have_one_size_in_all_charts(tab: browser.Browser, page: Path) -> None:
    tab.open(page)
    heights = tab.evaluate("[...document.querySelectorAll('.panel > svg')].map(s => s.getScreenCTM().a * 11)")
    assert max(heights) <= 11.05
    assert min(heights) > 9


def test_no_number_beside_a_bar_is_broken(tab: browser.Browser, tmp_path: Path) -> None:
    card = scorecard()
    for metric, value in zip(card["metrics"], (3.81e-4, 2e-5, 0.99999, -0.000123, 123456), strict=False):
        metric |= {"key": f"k{value}", "direction": "0 is best", "low": None}
        for score in metric["values"].values():
            score["value"] = value
    write_report(tmp_path / "report.html", card)
    for width in (1280, 390):
        tab.open(tmp_path / "report.html", width=width)
        tall = tab.evaluate(
            "[...document.querySelectorAll('.bar-card dd b')].filter(b => b.scrollWidth > b.clientWidth + 1"
            " || b.getBoundingClientRect().height > 24).map(b => b.textContent)"
        )
        assert tall == []


def test_it_prints_with_the_warning_on_every_page_but_the_certificate(tab: browser.Browser, page: Path) -> None:
    tab.open(page)
    pages = browser.pdf_pages(tab.pdf())
    assert len(pages) > 5
    first = next(i for i, text in enumerate(pages) if "this part may be published" in text)
    assert all(WARNING in text for text in pages[:first])
    assert not any(WARNING in text for text in pages[first:])
    assert pages[0].count(WARNING) == 2  # the banner, and the head of the page
    whole = "".join(pages)
    assert all(heading in whole for heading in ("In words", "Pairs of columns", "ROC curves", "All scores"))
