"""The page: it warns first, breaks on no name, loads nothing, and refuses what is no scorecard."""

import base64
import copy
import hashlib
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import understudy as us
from tests.builders import raises
from tests.report.pages import NASTY, SPACE, Text
from tests.report.scorecards import score, scorecard, skipped
from understudy.errors import ConfigError, TableError
from understudy.evaluation.scorecard import Scorecard
from understudy.privacy.accounting.ledger import Statement
from understudy.report import svg, verdict
from understudy.report.page import WARNING, markdown_to_html, render, write_report


@pytest.fixture(scope="module")
def statement() -> Statement:
    schema = us.Schema(columns=(us.Column(name="se|x <b>", kind="categorical", categories=("m", "f")),), rows=100)
    table = pa.table({"se|x <b>": ["m", "f"] * 50})
    return us.fit(table, us.Independent(), us.Guarantee(epsilon=1.0, delta=1e-6), schema=schema).statement


def test_the_first_visible_line_is_the_warning() -> None:
    assert Text(render(scorecard(("aim",)))).texts[0] == WARNING
    assert "statistics of the real rows. Not covered by the privacy guarantee" in WARNING


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
    assert len(links) == 14
    assert all(link[1:] in places for link in links)


def test_no_name_or_category_becomes_markup() -> None:
    card = scorecard(("<i>aim</i>", 'm"st'), renamed=NASTY)
    columns = card["details"]["one_way"]["<i>aim</i>"]["columns"]
    columns["workclass"]["labels"][0] = "<u>level</u>"
    for metric in card["metrics"]:
        metric["title"] += " <u>title</u>"
        metric["meaning"] += ' "><u>'
    card["notes"] = [{"group": "<u>", "tables": ["<u>"], "text": "<u>note</u>"}]
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
    column |= {"real": [0.6, 0.4], "synthetic": [0.25, 0.7], "unlisted": [0, 0.05]}
    page = render(card).replace(SPACE, " ")
    assert "<td>Male<td>60%<td>25%" in page
    assert "<td>(unlisted)<td>0%<td>5%" in page
    assert "(missing)<td>0%<td>0%" not in page


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
    drawn = {(style.colour, style.dash, style.shape) for style in svg.styles(methods)}
    assert len(drawn) == count


def test_sections_without_data_say_why() -> None:
    card = scorecard(("aim",))
    card["details"], card["target"], card["effort"] = {}, None, "quick"
    for metric in card["metrics"]:
        metric["values"] = {"aim": score(None, why="Because <of> that.")}
    texts = " ".join(Text(render(card)).texts)
    assert texts.count("Not drawn: Because <of> that.") >= 4
    assert "No score could be computed" in texts


def test_what_the_effort_skipped_is_neither_drawn_nor_called_impossible() -> None:
    card = scorecard(("aim",)) | {"effort": "quick"}
    del card["details"]["pca"], card["details"]["dimension_prediction"]
    for metric in card["metrics"]:
        if metric["group"] == "pca":
            metric["values"]["aim"] = skipped()
        if metric["key"] == "dcr_ratio":
            metric["values"]["aim"] = skipped("Distances were skipped.")
    page = Text(render(card))
    texts = " ".join(page.texts)
    assert not {"cloud", "prediction"} & {attrs.get("id") for _, attrs in page.elements}
    assert not {"#cloud", "#prediction"} & {attrs.get("href") for _, attrs in page.elements}
    assert "2 scores were skipped by the quick scorecard to save time" in texts
    assert "2 scores could not be computed: “No rule.” (1) and “Target is no number.” (1)." in texts
    assert (
        "not on this page: the sections “Principal components” and “Predicting every column”; the scores “Wass" in texts
    )
    assert "not computed: Skipped" not in texts
    card["settings"], card["seconds"] = {"pca": {}, "learning": {}}, {"pca": 0.01, "learning": 2.0}
    assert re.findall(r"<tr><td>(\w+)<td><td class=n>([\d.]+)", render(card)) == [("learning", "2.0")]


def test_a_reason_that_concerns_one_table_names_it() -> None:
    card = scorecard(("aim", "mst"))
    card["metrics"] = card["metrics"][:1]
    card["metrics"][0]["values"]["mst"] = score(None, why="It is empty.")
    assert verdict.absences(card, ["aim", "mst"]) == ["1 score could not be computed: “It is empty.” (1 of mst)."]


def test_key_scores_stand_side_by_side_directly_after_the_words() -> None:
    card = scorecard(("aim", "mst"))
    by_key = {metric["key"]: metric for metric in card["metrics"]}
    by_key["tv2"]["values"] = {m: score(v) for m, v in (("aim", 0.2), ("mst", 0.04))}
    page = render(card).replace(SPACE, " ")
    sections = re.findall(r'<section id="(\w+)">(.*?)</section>', page, re.S)
    assert [key for key, _ in sections][:2] == ["verdict", "key"]
    rows = re.findall(r"<tr><th scope=row><span>(.*?)</span>.*?</tr>", sections[1][1])
    assert rows == [
        "Total variation, 1-way marginals", "Total variation, 2-way marginals", "Invalid cells",
        "pMSE ratio, logistic", "ROC AUC, trained on synthetic",
    ]  # fmt: skip
    assert re.search(r'2-way.*?"real rows">2%</td>.*?"aim">20%</td>.*?"mst"><b>4%</b>', sections[1][1])
    del card["details"]
    card |= {"details": {}, "metrics": [by_key["sra"]]}
    assert 'id="key"' not in render(card)


def test_the_head_names_files_and_the_day() -> None:
    card = scorecard(("aim",))
    assert "adult_test, 16,281 rows; declared as unseen" in " ".join(Text(render(card)).texts)
    card["real"]["file"], card["holdout"]["file"], card["holdout"]["seen"] = "train.csv", "<test>.csv", True
    texts = " ".join(Text(render(card | {"created": "2026-01-31"})).texts)
    assert "train.csv, 32,561 rows" in texts
    assert "<test>.csv, 16,281 rows; part of the table that was fitted" in texts
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
    assert "repeats tv1" in page


def test_a_reference_of_a_much_smaller_table_is_drawn_apart() -> None:
    card = scorecard(("aim",))
    assert "real rough" not in render(card)
    card["metrics"][0]["reference"] |= {"rows": 300, "comparable": False}
    page = render(card)
    assert page.count('class="real rough"') == 1
    assert page.count("† Only 16,281 real rows could be held out, too few to compare with") == 2
    assert f"<b>0.8%{SPACE}†</b><small>±" in page


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
    with raises(ConfigError, setting="of"):
        render(card, statement, of="else")
    with raises(ConfigError, setting="statement"):
        render(card, "folder")  # type: ignore[arg-type]  # a wrong type


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("# A\n\n## B `c`", "<h3>A</h3>\n<h4>B <code>c</code></h4>\n"),
        ("> **No.** Not\n> so", "<blockquote>\n<p><strong>No.</strong> Not\nso</p>\n</blockquote>\n"),
        ("- a\n- <b>", "<ul>\n<li>a</li>\n<li>&lt;b&gt;</li>\n</ul>\n"),
        ("a <script>alert(1)</script>", "<p>a &lt;script&gt;alert(1)&lt;/script&gt;</p>\n"),
        ("<script>alert(1)</script>", "<p>&lt;script&gt;alert(1)&lt;/script&gt;</p>\n"),
        ("<table><tr>", "<p>&lt;table&gt;&lt;tr&gt;</p>\n"),
        ("[a](javascript:alert(1)) ![b](x.png)", "<p>[a](javascript:alert(1)) ![b](x.png)</p>\n"),
        ("<https://example.org> &lt;b&gt;", "<p>&lt;https://example.org&gt; &amp;lt;b&amp;gt;</p>\n"),
    ],
)
def test_markdown_never_becomes_html_of_its_own(source: str, expected: str) -> None:
    assert markdown_to_html(source, down=2) == expected


def test_markdown_tables_keep_pipes_and_sides() -> None:
    page = markdown_to_html("| a | b |\n|---|---:|\n| x\\|y | 1 |\n| z | |")
    assert '<td>x|y</td>\n<td class="n">1</td>' in page
    assert '<td>z</td>\n<td class="n"></td>' in page
    assert page.startswith('<div class="scroll"')
    assert page.rstrip().endswith("</table></div>")


def test_a_column_named_like_a_script_is_escaped_in_the_certificate() -> None:
    name = "<script>alert(1)</script>"
    schema = us.Schema(columns=(us.Column(name=name, kind="categorical", categories=("m", "f")),), rows=100)
    guarantee = us.Guarantee(epsilon=1.0, delta=1e-6)
    release = us.fit(pa.table({name: ["m", "f"] * 50}), us.Independent(), guarantee, schema=schema)
    after = render(scorecard(("aim",)), release).partition('<section id="certificate"')[2]
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in after
    assert [tag for tag, _ in Text(after.partition('<div id="tip"')[0]).elements].count("script") == 0


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda card: card.clear(), "not a scorecard"),
        (lambda card: card.update(format="understudy-certificate"), "not a scorecard"),
        (lambda card: card.update(version=1), "version 1; this version of Understudy reads version 2"),
        (lambda card: card.pop("metrics"), "damaged: 'metrics'"),
        (lambda card: card.update(synthetic=[]), "damaged: 'synthetic'"),
        (lambda card: card["metrics"][0]["values"].pop("aim"), "'tv1' has no value for one of the tables"),
        (lambda card: card.update(synthetic=[1]), "a table or metric is malformed"),
        (lambda card: card.update(metrics=[{}]), "a table or metric is malformed"),
    ],
)
def test_what_is_no_scorecard_is_refused_in_one_line(change: Callable[[dict], object], said: str) -> None:
    card = scorecard(("aim",))
    change(card)
    with pytest.raises(ConfigError, match=said) as caught:
        render(card)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("content", [[], "text", None])
def test_other_things_are_no_scorecards(content: Any) -> None:
    with pytest.raises(ConfigError, match="Expected JSON as written by 'understudy evaluate --json'"):
        render(content)


def test_the_file_is_written_whole_and_only_replaced_by_force(tmp_path: Path) -> None:
    path = tmp_path / "report.html"
    write_report(path, Scorecard(scorecard(("aim \ud800",))))  # a lone surrogate, as JSON may hold
    first = path.read_bytes()
    assert first.startswith(b"<!doctype html>")
    with pytest.raises(TableError):
        write_report(path, scorecard(("mst",)))
    assert path.read_bytes() == first
    write_report(path, scorecard(("mst",)), force=True)
    assert path.read_bytes() != first
    assert [each.name for each in tmp_path.iterdir()] == ["report.html"]


def test_no_report_is_written_into_a_release(tmp_path: Path) -> None:
    (tmp_path / "inner").mkdir()
    (tmp_path / "release.json").write_text("{}")
    for path in (tmp_path / "report.html", tmp_path / "inner" / "report.html"):
        with raises(ConfigError, setting="path"):
            write_report(path, scorecard(("aim",)), force=True)
        assert not path.exists()


def test_a_page_about_a_census_table_is_small(statement: Statement) -> None:
    assert len(render(scorecard(points=1_000), statement)) < 1_000_000
    assert len(render(scorecard(("aim",), points=1_000))) < 500_000


def test_the_text_of_the_report() -> None:
    """All sentences and headings at a glance, without the data of charts. To renew: print `text` into the file."""
    page = re.sub(
        r'<details class="data">.*?</details>|<svg.*?</svg>', "", render(scorecard(("aim", "mst"))), flags=re.S
    )
    text = "\n".join(Text(page).texts).replace(SPACE, " ") + "\n"
    assert text == Path(__file__).with_name("report.txt").read_text(encoding="utf-8")
