"""The report: one page that warns first, says what the scores say, breaks on no name, and works in a browser."""

import base64
import copy
import hashlib
import html.parser
import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import browser
import pyarrow as pa
import pytest
from scorecards import scorecard

import understudy as us
from understudy.errors import ConfigError, TableError
from understudy.privacy.ledger import Statement
from understudy.report import charts, markdown, words
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
    assert len(links) == 11
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
    assert "<td>(unlisted)<td>0 %<td>5.0 %" in page
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
    assert "Not drawn: Left out by the quick scorecard." in texts
    assert "No score could be computed" in texts
    card["metrics"] = []
    assert "Not drawn: No target column was named" in " ".join(Text(render(card)).texts)


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
    assert "No loss is measurable." in said_of(card)
    auc["values"]["aim"]["value"] = 0.4
    assert "Nothing of what real rows gain" in said_of(card)
    auc["reference"]["value"] = 0.5
    assert "do not predict the target better than chance" in said_of(card)


def test_the_worst_columns_and_pairs_are_named() -> None:
    card = scorecard(("aim",))
    card["details"]["one_way"]["aim"]["columns"]["sex"]["tv"] = 0.875
    card["details"]["two_way"]["aim"]["worst"][0] = {"columns": ["age", "race"], "tv": 0.9375}
    said = said_of(card)
    assert "furthest off: “sex” (87.5 %)" in said
    assert "most for “age” with “race” (93.8 %)" in said
    assert "No invalid value was found." in said
    card["metrics"][3]["values"]["aim"]["value"] = 0.002
    assert "Invalid values occur: invalid cells 0.2 %." in said_of(card)


def test_invalid_values_are_found_without_their_scores() -> None:
    card = scorecard(("aim",))
    card["metrics"] = []
    columns = card["details"]["one_way"]["aim"]["columns"]
    columns["sex"]["synthetic"] = [0.5, 0.3, 0.15, 0.05]
    columns["age"]["missing"] = [0.0, 0.2]
    said = said_of(card)
    assert "not on the list occur in “sex” (5.0 %)." in said
    assert "missing where no real row lacks one: “age” and “sex”." in said


@pytest.mark.parametrize(
    ("direction", "values", "best"),
    [
        ("lower is better", (0.1, 0.2), "a"),
        ("higher is better", (0.1, 0.2), "b"),
        ("1 is best", (0.7, 1.2), "b"),
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
    [(0, "0"), (1.0, "1.00"), (0.12345, "0.123"), (0.00241, "0.0024"), (3.2e-4, "0.00032"), (0.99996, "0.99996"),
     (-0.5, "−0.500"), (2e-5, "2.0e−5"), (12.34, "12.3"),
     (123456.7, "123,457"), (2e7, "20.0M"), (-3e20, "−3.0e20"), (None, "–"), (float("nan"), "–")],
)  # fmt: skip
def test_numbers_are_rounded_to_what_can_be_read(value: float | None, shown: str) -> None:
    assert words.number(value) == shown


@pytest.mark.parametrize(
    ("share", "shown"),
    [(0, "0 %"), (1e-5, "less than 0.1 %"), (0.123, "12.3 %"), (0.99999, "more than 99.9 %"), (1, "100 %")],
)
def test_a_share_is_never_rounded_to_nothing_or_all(share: float, shown: str) -> None:
    assert words.percent(share).replace(SPACE, " ") == shown


# ---------------------------------------------------------------------------------------------------------- certificate


def test_the_certificate_stands_at_the_end_and_apart(statement: Statement) -> None:
    page = render(scorecard(("aim",)), statement)
    assert "certificate" not in render(scorecard(("aim",))).partition("<body>")[2].partition("<script>")[0]
    before, _, after = page.partition('<section id="certificate">')
    assert "this part may be published; everything above may not" in after
    assert "<section" not in after
    assert "<strong>epsilon = " in after
    assert "epsilon =" not in before
    assert "se|x &lt;b&gt;" in after
    assert "What this guarantee does not cover" in after


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
        ("#prediction path.m", "r2"),
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


def test_no_label_leaves_its_drawing(tab: browser.Browser, page: Path) -> None:
    tab.open(page)
    out = tab.evaluate(
        "[...document.querySelectorAll('.panel > svg text')].filter(t => { const a = t.getBoundingClientRect(),"
        " b = t.closest('svg').getBoundingClientRect(); return a.left < b.left - 16 || a.right > b.right + 16"
        " || a.bottom > b.bottom + 8 || a.top < b.top - 8; }).map(t => t.textContent)"
    )
    assert out == []


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
