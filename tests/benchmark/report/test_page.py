"""Pages parse, load nothing from elsewhere, describe every figure, and show failures and seeds."""

import re
import xml.etree.ElementTree as ET
from collections.abc import Sequence
from html.parser import HTMLParser

import pytest

from tests.benchmark.report.records import METRICS, make_record, make_suite
from understudy.benchmark.report.document import Section, render_html, render_markdown
from understudy.benchmark.report.records import Record, ReportInfo, read_records
from understudy.benchmark.report.sections import build_sections

INFO = ReportInfo(
    suite="made-up",
    title="Made-up <suite> & more",
    description="Two tables, **all** methods.",
    command="understudy benchmark run made-up",
    date="2026-11-17",
    footnotes=("smartnoise: reads the domain off the data.",),
)


def sections(records: Sequence[Record]) -> list[Section]:
    return build_sections(read_records(records), INFO, METRICS)


VOID = {"meta", "link", "br"}
OPTIONAL = {"td", "th", "tr", "thead", "tbody", "li"}
"""Elements whose end tag HTML lets a page omit."""


class Page(HTMLParser):
    """Collects elements, and checks that those that must be closed are."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.stack: list[str] = []
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag not in VOID | OPTIONAL:
            self.stack.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        if tag not in OPTIONAL:
            assert self.stack.pop() == tag


def score(table: str, method: str, epsilon: float) -> dict[str, float]:
    base = 0.4 + 0.05 * (len(method) % 7) + 0.02 * epsilon
    return {"f1": base, "auc": base + 0.1, "pmse_ratio": 30 / (1 + epsilon) + len(method), "sra": 0.6}


@pytest.fixture(scope="module")
def records() -> list[dict[str, object]]:
    found = make_suite(score, tables=("adult", "car"), epsilons=(0.1, 1.0, 3.0))
    found += [
        make_record("car", "dpctgan", e, seed, peer="smartnoise", failure="time") for e in (1.0, 3.0) for seed in (0, 1)
    ]
    return [*found, make_record("car", "aim", 1.0, 0, failure="memory"), make_record("car", "aim", 1.0, 1, f1=0.7)]


@pytest.fixture(scope="module")
def html(records: list[dict[str, object]]) -> str:
    return render_html(sections(records), INFO)


def test_a_page_is_well_formed_and_self_contained(html: str) -> None:
    page = Page(html)
    assert page.stack == []
    for tag, attrs in page.elements:
        assert tag not in ("img", "iframe", "object", "embed")
        assert not attrs.get("src")
        assert (attrs.get("href") or "#").startswith(("#", "data:"))
    anchors = {attrs["href"] for tag, attrs in page.elements if tag == "a"}
    sections = {f"#{attrs['id']}" for tag, attrs in page.elements if tag == "section"}
    assert anchors == sections
    assert not re.search(r"url\((?!#)|@import|https?://", html)


def test_every_drawing_says_what_it_shows(html: str) -> None:
    drawings = [a for tag, a in Page(html).elements if tag == "svg" and "aria-hidden" not in a]
    assert len(drawings) > 20
    assert all(drawing.get("role") == "img" and len(drawing.get("aria-label") or "") > 20 for drawing in drawings)


def test_the_first_screen_says_what_won_and_what_failed(html: str) -> None:
    summary = html.partition('id="summary"')[2].partition("</section>")[0]
    assert "has the best mean rank" in summary
    assert "5 cells failed: 4 (time) and 1 (memory)." in summary
    assert "Best mean F1 for each table and epsilon" in summary
    for name in ("cells", "failed", "tables", "methods", "seeds", "machine"):
        assert f"<dt>{name}</dt>" in summary


def test_the_page_escapes_names_and_says_that_it_is_not_private(html: str) -> None:
    assert "Made-up &lt;suite&gt; &amp; more" in html
    assert "Stopped &lt;early&gt; &amp; | loudly." in html
    assert "Seeded runs on public data. Nothing on this page is private." in html
    assert "reads the domain off the data" in html


def test_sections_follow_from_the_records(records: list[dict[str, object]], html: str) -> None:
    for title in (
        "Ranks",
        "Scores over epsilon",
        "What QUAIL changes",
        "Ranking agreement",
        "Running times",
        "Failures",
    ):
        assert f"<h2>{title}</h2>" in html
    plain = [record for record in records if not record["wrapper"] and not record["peer"]]
    assert "What QUAIL changes" not in render_html(sections(plain), INFO)


def test_every_table_of_scores_states_its_seeds(html: str) -> None:
    captions = re.findall(r"<caption>(.*?)</caption>", html)
    scores = [text for text in captions if " on " in text or text.startswith(("Best mean", "Ranks", "Median"))]
    assert len(scores) > 8
    assert all("seed" in text for text in scores)


@pytest.mark.parametrize(
    "case",
    [
        [],
        [make_record(failure="died")],
        [make_record(f1=0.5)],
        [make_record(method="real data", epsilon=None, f1=0.9)],
        [make_record(seed=s, f1=0.0, pmse_ratio=0.0, seconds=0.5) for s in (0, 1)],
        [make_record(method="quail(mst)", inner="mst", f1=0.5)],
    ],
)
def test_sparse_records_still_make_a_page(case: list[dict[str, object]]) -> None:
    assert Page(render_html(sections(case), INFO)).stack == []
    render_markdown(sections(case), INFO, image_folder="images")


def test_markdown_names_exactly_its_pictures(records: list[dict[str, object]]) -> None:
    text, pictures = render_markdown(sections(records), INFO, image_folder="images/made-up/")
    assert set(re.findall(r"\]\(images/made-up/([^)]+)\)", text)) == set(pictures)
    assert all(alt for alt in re.findall(r"!\[(.*?)\]\(", text))
    for drawing in pictures.values():
        root = ET.fromstring(drawing)
        assert root.get("role") == "img"
        assert root.get("aria-label")


def test_rows_of_a_markdown_table_have_the_cells_of_its_head(records: list[dict[str, object]]) -> None:
    text, _ = render_markdown(sections(records), INFO, image_folder="images")
    for block in re.findall(r"(?:^\|.*\n?)+", text, flags=re.MULTILINE):
        counts = {len(re.findall(r"(?<!\\)\|", line)) for line in block.splitlines()}
        assert len(counts) == 1, block
