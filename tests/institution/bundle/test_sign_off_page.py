"""The page to sign, printed by the browser of the system."""

import dataclasses
from pathlib import Path

import pytest

import understudy as us
from tests.report import browser
from understudy.institution.bundle.pages import Facts, make_sign_off
from understudy.privacy.accounting.statement import BookEntry


def test_the_page_to_sign_is_one_sheet(made: Path, tmp_path: Path) -> None:
    """Decision and signatures on different sheets would not belong together."""
    if browser.CHROMIUM is None:
        pytest.skip("no Chromium")
    statement = us.Release.load(made / "release").statement
    booked = dataclasses.replace(statement.facts, book=BookEntry("people", 2, "0" * 64))
    page = make_sign_off(
        dataclasses.replace(statement, facts=booked), Facts(release_sha256="0" * 64, in_house=True, tables=())
    )
    assert "In-house" in page
    assert "entry 2" in page
    (tmp_path / "page.html").write_text(page)
    with browser.browser() as tab:
        tab.open(tmp_path / "page.html")
        assert len(browser.pdf_pages(tab.pdf())) == 1
