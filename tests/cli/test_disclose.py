"""`disclose` on the command line: what it finds beside a table, prints and writes; and the section of `evaluate`."""

import json
import re
from pathlib import Path

import pytest

from tests.disclosure.made_tables import draw_people
from understudy.cli.main import run

SCHEMA = """
[columns.height]
kind = "real"
bounds = [-70, 70]
[columns.weight]
kind = "real"
bounds = [-70, 70]
[columns.income]
kind = "real"
bounds = [-70, 70]
[columns.sex]
kind = "categorical"
categories = ["f", "m"]
[columns.region]
kind = "categorical"
categories = ["n", "e", "s", "w"]
[columns.smokes]
kind = "categorical"
categories = ["no", "yes"]
"""
WARNING = "This report contains statistics of the real data. Do not share it."


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A table, a private one made from a part of it, the rest, and a copy of the real rows."""
    folder = tmp_path_factory.mktemp("disclose")
    draw_people(1200, 1).to_csv(folder / "people.csv", index=False)
    draw_people(1200, 1).to_csv(folder / "copy.csv", index=False)
    draw_people(400, 2).to_csv(folder / "others.csv", index=False)
    (folder / "schema.toml").write_text(SCHEMA)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        options = ["--schema", "schema.toml", "--epsilon", "1", "--method", "independent", "--split", "0.3", "-q"]
        assert run(["synth", "people.csv", *options, "-o", "fake.csv"]) == 0
    return folder


def output(capsys: pytest.CaptureFixture[str]) -> str:
    return " ".join(capsys.readouterr().out.split())


def test_what_synth_left_is_found(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Schema, certificate and held-out rows; the terminal, the page and the document say the same."""
    monkeypatch.chdir(folder)
    monkeypatch.setenv("COLUMNS", "80")
    written = ["--report", str(tmp_path / "report.html"), "--json", str(tmp_path / "report.json")]
    assert run(["disclose", "people.csv", "fake.csv", "--quasi-identifiers", "sex, region", *written, "-q"]) == 0
    out = output(capsys)
    assert out.startswith(WARNING)
    assert "Held-out rows: fake.holdout.csv." in out
    assert len(re.findall(r"\(<?[\d.]+ to [\d.]+\)", out.partition("chosen for attack")[2])) == 6  # no line ends in one
    document = json.loads((tmp_path / "report.json").read_text())
    page = (tmp_path / "report.html").read_text()
    assert document["findings"] == []
    assert document["combinations"]["columns"] == ["sex", "region"]
    assert WARNING in page
    assert "Allowed: the largest true-positive rate" in page
    assert "No findings. Compared with a guarantee of epsilon 1." in page
    assert "<nav" not in page
    assert "Note: The held-out rows were left out of the real table." in out
    for name in ("report.html", "report.json"):
        assert (tmp_path / name).stat().st_mode & 0o777 == 0o600
    for sentence in document["sentences"].values():
        assert sentence in out
    assert "The guarantee (epsilon" in document["sentences"]["Membership"]


def test_the_holdout_of_the_release_may_be_named(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The real table still has its rows: they are removed, as if the file had been found."""
    monkeypatch.chdir(folder)
    documents = []
    for named in ([], ["--holdout", str(folder / "fake.holdout.csv")]):
        assert run(["disclose", "people.csv", "fake.csv", *named, "--target", "sex", "--json", "-", "-q"]) == 0
        documents.append(json.loads(capsys.readouterr().out))
    assert documents[0] == documents[1]
    (folder / "fake.holdout.csv").rename(folder / "elsewhere.csv")  # now it is any file
    try:
        assert run(["disclose", "people.csv", "fake.csv", "--holdout", "elsewhere.csv", "-q"]) == 2
        assert "give the table without them" in capsys.readouterr().err
    finally:
        (folder / "elsewhere.csv").rename(folder / "fake.holdout.csv")


def test_without_a_certificate_nothing_is_allowed(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The column is left out; the page lists the findings, and the exit code is 1 where that was asked for."""
    monkeypatch.chdir(folder)
    page = tmp_path / "report.html"
    options = ["--holdout", "others.csv", "--target", "sex", "--report", str(page), "-q"]
    assert run(["disclose", "people.csv", "copy.csv", *options, "--fail-on-finding"]) == 1
    table = capsys.readouterr().out.partition("chosen for  ")[2]
    assert table
    assert "allowed" not in table
    assert "3 findings: copies, membership, attributes." in page.read_text()


def test_a_copy_beside_a_certificate_is_not_explained_by_it(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(folder)
    options = ["--holdout", "others.csv", "--release", "fake.release", "--target", "smokes", "--json", "-", "-q"]
    assert run(["disclose", "people.csv", "copy.csv", *options]) == 0
    captured = capsys.readouterr()
    assert captured.err.strip() == WARNING
    document = json.loads(captured.out)
    assert document["findings"] == ["copies", "membership", "ceiling", "attributes"]
    assert "the guarantee does not explain this table" in document["sentences"]["Membership"]
    assert [each["column"] for each in document["attributes"]] == ["smokes"]


def test_the_report_of_evaluate_has_a_section(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Where rows were held out; it is drawn again from the scorecard alone."""
    monkeypatch.chdir(folder)
    files = ["--report", str(tmp_path / "report.html"), "--json", str(tmp_path / "scores.json")]
    assert run(["evaluate", "people.csv", "fake.csv", *files, "-q"]) == 0
    page = (tmp_path / "report.html").read_text()
    assert '<section id="disclosure"><h2>Disclosure</h2>' in page
    assert run(["report", str(tmp_path / "scores.json"), "-o", str(tmp_path / "again.html"), "-q"]) == 0
    assert '<section id="disclosure"><h2>Disclosure</h2>' in (tmp_path / "again.html").read_text()


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["people.csv", "copy.csv"], "There are no held-out rows to compare with. Give --holdout FILE"),
        (["people.csv", "copy.csv", "--holdout", "people.csv"], "The holdout overlaps the real table"),
        (["people.csv", "absent.csv", "--holdout", "others.csv"], "absent.csv does not exist"),
        (["people.csv", "copy.csv", "--holdout", "others.csv", "--quasi-identifiers", "sexx"], "Did you mean 'sex'?"),
        (["people.csv", "copy.csv", "--holdout", "others.csv", "--min-cell", "0"], "(--min-cell) must be"),
        (["people.csv", "copy.csv", "--holdout", "others.csv", "--target", "nope"], "evaluated column. Expected some"),
        (
            ["people.csv", "copy.csv", "--holdout", "others.csv", "--report", "others.csv"],
            "expected a file name ending",
        ),
    ],
)
def test_bad_input_is_one_line(
    arguments: list[str],
    text: str,
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(folder)
    before = sorted(folder.iterdir())
    assert run(["disclose", *arguments, "-q"]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert text in captured.err
    assert len(captured.err.splitlines()) == 1
    assert sorted(folder.iterdir()) == before
