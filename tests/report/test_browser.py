"""The page in a real browser: no request, no script but its own, keyboard, narrow screens, print."""

import dataclasses
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

import understudy as us
from tests.report import browser
from tests.report.pages import NASTY
from tests.report.scorecards import scorecard
from understudy.certificate.page import to_html
from understudy.privacy.accounting.ledger import Statement
from understudy.report.page import WARNING, write_report


@pytest.fixture(scope="module")
def statement() -> Statement:
    schema = us.Schema(columns=(us.Column(name="se|x <b>", kind="categorical", categories=("m", "f")),), rows=100)
    table = pa.table({"se|x <b>": ["m", "f"] * 50})
    return us.fit(table, us.Independent(), us.Guarantee(epsilon=1.0, delta=1e-6), schema=schema).statement


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
        ("#categories path.m", "real"),
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


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_verdict_is_on_the_first_screen_and_can_be_read(tab: browser.Browser, tmp_path: Path, scheme: str) -> None:
    """At 1280 x 900; and in either scheme its text stands out from its background (WCAG AA: 4.5 to 1)."""
    write_report(tmp_path / "report.html", scorecard(("aim",)))
    tab.send("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])
    try:
        tab.open(tmp_path / "report.html")
        bottoms = tab.evaluate(
            "[...document.querySelectorAll('.finding > p')].map(e => e.getBoundingClientRect().bottom)"
        )
        assert len(bottoms) == 4
        assert max(bottoms) < 900
        contrasts = tab.evaluate(
            "[...document.querySelectorAll('.finding > p, .finding > h4, .finding .note, .tables, nav a')].map(e => {"
            " const light = c => { const [r, g, b] = c.match(/[0-9.]+/g).map(v => { v /= 255;"
            " return v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4; });"
            " return 0.2126 * r + 0.7152 * g + 0.0722 * b; };"
            " let p = e; while (getComputedStyle(p).backgroundColor === 'rgba(0, 0, 0, 0)') p = p.parentElement;"
            " const [a, b] = [light(getComputedStyle(e).color), light(getComputedStyle(p).backgroundColor)];"
            " return (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05); })"
        )
        assert min(contrasts) >= 4.5
    finally:
        tab.send("Emulation.setEmulatedMedia", features=[])


def test_letters_have_one_size_in_all_charts(tab: browser.Browser, page: Path) -> None:
    tab.open(page)
    heights = tab.evaluate("[...document.querySelectorAll('.panel > svg')].map(s => s.getScreenCTM().a * 11)")
    assert max(heights) <= 11.05
    assert min(heights) > 9


def test_no_number_beside_a_bar_is_broken(tab: browser.Browser, tmp_path: Path) -> None:
    card = scorecard()
    for metric, value in zip(card["metrics"], (3.81e-4, 2e-5, 0.99999, -0.000123, 123456), strict=False):
        metric |= {"key": f"k{value}", "direction": "near_zero", "low": None, "fraction": False}
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
    letters = "".join(pages[0].split())  # a banner that wraps has no space where it breaks
    assert letters.count("".join(WARNING.split())) == 2  # the banner, and the head of the page
    whole = "".join(pages)
    assert all(heading in whole for heading in ("Verdict", "Pairs of columns", "ROC curves", "All scores"))


@pytest.fixture(scope="module")
def certified(tmp_path_factory: pytest.TempPathFactory, statement: Statement) -> Path:
    """The page of a certificate with everything that its head can show."""
    facts = dataclasses.replace(statement.facts, name="Stays 2023", responsible="Data Protection", date="2026-03-31")
    path = tmp_path_factory.mktemp("certificate") / "certificate.html"
    page = to_html(dataclasses.replace(statement, facts=facts), {"model.safetensors": 64 * "a"})
    path.write_text(page, encoding="utf-8")
    return path


@pytest.mark.parametrize("width", [1280, 390])
def test_the_certificate_fits_every_window(tab: browser.Browser, certified: Path, width: int) -> None:
    tab.open(certified, width=width)
    assert tab.complaints() == []
    assert tab.requests() == [certified.resolve().as_uri()]
    assert tab.evaluate("document.documentElement.scrollWidth") <= width


def test_the_first_printed_page_of_a_certificate_is_enough_for_a_board(tab: browser.Browser, certified: Path) -> None:
    """Name, strength, meaning, date, person and checksum stand on it."""
    tab.open(certified)
    first = "".join(browser.pdf_pages(tab.pdf())[0].split())
    said = ("Stays 2023", "Strong guarantee", "is almost the same", "2026-03-31", "Data Protection", 64 * "a")
    assert all("".join(words.split()) in first for words in said)
