"""Printing with the browser of the system: whole PDF files, or one line that says why not."""

import dataclasses
import re
import time
from pathlib import Path

import pytest

import understudy as us
from tests.bundle.archive_edits import read
from understudy.bundle import pdf
from understudy.bundle.pages import Facts, make_sign_off
from understudy.errors import BundleError
from understudy.privacy.statement import BookEntry


def fake_browser(folder: Path, script: str) -> None:
    """A program named chromium; `$out` is the file that it should print to."""
    find = 'for each in "$@"; do case $each in --print-to-pdf=*) out=${each#*=};; esac; done'
    (folder / "chromium").write_text(f"#!/bin/sh\n{find}\n{script}\n")
    (folder / "chromium").chmod(0o700)


@pytest.mark.parametrize(
    ("script", "reason"),
    [
        ("exit 1", "printed nothing"),
        ('printf "%%PDF-1.4 cut" > $out', "printed no complete PDF"),
        ("sleep 60 & sleep 60", "did not print within"),
        (None, "needs an installed Chromium"),
    ],
)
def test_a_browser_that_is_absent_fails_or_hangs(
    made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str | None, reason: str
) -> None:
    monkeypatch.setattr(pdf, "SECONDS", 0.3)
    monkeypatch.setattr(pdf, "MAC_BROWSERS", ())
    if script is not None:
        fake_browser(tmp_path, script)
    monkeypatch.setenv("PATH", f"{tmp_path}:/bin" if script is not None else str(tmp_path))
    started = time.monotonic()
    with pytest.raises(BundleError, match=reason) as refused:
        us.write_bundle(made / "release", tmp_path / "b.zip", pdf=True)
    assert time.monotonic() - started < 20
    assert "\n" not in str(refused.value)
    assert not (tmp_path / "b.zip").exists()


def test_printed_pages_have_no_date_of_their_own(made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    dated = "%%PDF-1.4 /CreationDate (D:20261117233307+00'00') /ModDate (D:20261117233308+00'00') %%%%EOF"
    fake_browser(tmp_path, f'printf "{dated}" > $out')
    monkeypatch.setenv("PATH", f"{tmp_path}:/bin:/usr/bin")
    us.write_bundle(made / "release", tmp_path / "b.zip", pdf=True)
    contents = read(tmp_path / "b.zip")
    assert contents["certificate.pdf"].count(b"(D:19800101000000+00'00')") == 2
    assert set(contents) > {"certificate.pdf", "sign-off.pdf"}
    found = us.verify_bundle(tmp_path / "b.zip")
    assert found.is_intact
    assert any("certificate.pdf and sign-off.pdf show" in text for text in found.not_checked)


@pytest.mark.long
def test_a_real_browser_prints_the_same_bytes_twice(made: Path, tmp_path: Path) -> None:
    try:
        pdf.find_browser()
    except BundleError:
        pytest.skip("no Chromium")
    for name in ("one.zip", "two.zip"):
        us.write_bundle(made / "release", tmp_path / name, pdf=True)
    assert (tmp_path / "one.zip").read_bytes() == (tmp_path / "two.zip").read_bytes()
    assert len(read(tmp_path / "one.zip")["certificate.pdf"]) > 10_000


def test_the_page_to_sign_is_one_sheet(made: Path) -> None:
    """Decision and signatures on different sheets would not belong together."""
    try:
        pdf.find_browser()
    except BundleError:
        pytest.skip("no Chromium")
    statement = us.Release.load(made / "release").statement
    booked = dataclasses.replace(statement.facts, book=BookEntry("people", 2, "0" * 64))
    page = make_sign_off(
        dataclasses.replace(statement, facts=booked), Facts(release_sha256="0" * 64, in_house=True, tables=())
    )
    assert "In-house" in page
    assert "entry 2" in page
    assert re.findall(rb"/Count (\d+)", pdf.print_pdf(page.encode())) == [b"1"]
