"""The head of a certificate, its strength in words, its page for a board, and the checksums that connect files."""

import dataclasses
import datetime
import hashlib
import json
import math
import re
from pathlib import Path

import pyarrow as pa
import pytest

import understudy as us
from understudy import certificate
from understudy.certificate.json import read_statement
from understudy.certificate.page import to_html
from understudy.cli import run
from understudy.privacy.accounting.ledger import PublicFacts, Statement, Strength

CHECKSUM = {"model.safetensors": 64 * "a"}
FACTS = PublicFacts(
    name="Stays <b>2023</b> | *draft*",
    responsible="Data Protection Office",
    contact="privacy_office@hospital.example",
    date="2026-03-31",
)
SCHEMA = """
[table]
rows = 200
name = "Members 2023"
responsible = "A. Weber"
contact = "a.weber@office.example"
[columns.age]
kind = "integer"
bounds = [18, 80]
[columns.member]
kind = "boolean"
"""


def made_up(epsilon: float, facts: PublicFacts = FACTS, **changed: object) -> Statement:
    given: dict = {"epsilon": epsilon, "epsilon_target": epsilon, "epsilon_pld": epsilon, "epsilon_rdp": epsilon}
    given |= {"delta": 1.2e-6, "accountant": "Renyi (zCDP)", "seeded": False, "max_rows_per_unit": 1, "queries": ()}
    return Statement(**given | {"facts": facts, "method": "mst"} | changed)


# --- Strength, by epsilon alone ---


@pytest.mark.made_up_figures("no run has exactly these figures")
@pytest.mark.parametrize(
    ("epsilon", "word", "times", "said"),
    [
        (0.1, "strong", "1.11", "is almost the same whether or not"),
        (1.0, "strong", "2.72", "is almost the same whether or not"),
        (1.001, "moderate", "2.73", "depends somewhat on whether"),
        (3.0, "moderate", "20.1", "depends somewhat on whether"),
        (3.001, "limited", "20.2", "may depend considerably on whether"),
        (10.0, "limited", "22,100", "may depend considerably on whether"),
        (10.001, "weak", "22,100", "may depend strongly on whether"),
        (50.0, "weak", "10^22", "may depend strongly on whether"),
    ],
)
def test_the_word_and_the_sentence_follow_from_epsilon(epsilon: float, word: str, times: str, said: str) -> None:
    statement = made_up(epsilon)
    assert statement.strength is Strength(word)
    assert certificate.to_json(statement)["guarantee"]["strength"] == word  # type: ignore[index]  # JSON, typed as objects
    text = certificate.to_markdown(statement)
    called = "**This is a weak guarantee.**" if word == "weak" else f"**{word.capitalize()} guarantee.**"
    assert called in text
    assert said in text
    assert f"by at most a factor of {times}, apart from an added probability of at most 1 in 830,000 (delta)" in text
    assert f'<p class="seal {word}">' in to_html(statement)


@pytest.mark.parametrize("epsilon", [0.01, 0.5, 1.0, 2.5, 7.7, 12.3, 20.7, 25.0, 80.0])
def test_the_factor_is_never_rounded_down(epsilon: float) -> None:
    said = re.search(r"a factor of (\S+),", certificate.to_markdown(made_up(epsilon)))
    assert said is not None
    power = re.fullmatch(r"10\^(\d+)", said[1])
    factor = 10.0 ** int(power[1]) if power else float(said[1].replace(",", ""))
    assert math.exp(epsilon) <= factor <= math.exp(epsilon) * (10 if power else 1.01)


@pytest.mark.parametrize("changed", [{"seeded": True}, {"epsilon": math.inf}, {"released": False}])
def test_what_is_no_private_release_is_never_called_strong(changed: dict) -> None:
    statement = dataclasses.replace(made_up(1.0), **changed)
    for shown in (certificate.to_markdown(statement), to_html(statement)):
        assert "Strong guarantee" not in shown
        assert "is almost the same" not in shown
    assert '<p class="seal none">' in to_html(statement)


def test_a_declared_size_is_said_not_to_be_hidden() -> None:
    """What the sentence says holds by `tests/test_declared_size.py`: such runs have the zero-out guarantee."""
    sentence = "The number of rows is public, so the guarantee hides the values of one row, not the number of rows."
    sized = dataclasses.replace(FACTS, rows_declared=200)
    assert sentence in certificate.to_markdown(made_up(1.0, sized))
    assert "the values of a given row were in the table" in certificate.to_markdown(made_up(1.0, sized))
    assert sentence not in certificate.to_markdown(made_up(1.0))
    assert "whether or not a given row was in the table" in certificate.to_markdown(made_up(1.0))
    owned = dataclasses.replace(sized, unit="patient")
    assert "hides the values of one unit, not the number" in certificate.to_markdown(made_up(1.0, owned))


# --- The head ---


@pytest.mark.made_up_figures("the head is looked at")
def test_the_head_names_data_set_date_person_and_files() -> None:
    text = certificate.to_markdown(made_up(1.0), CHECKSUM)
    assert text.startswith("# Privacy certificate: Stays \\<b\\>2023\\</b\\> \\| \\*draft\\*\n")
    assert "- Date of the run: 2026-03-31\n" in text
    assert "- Responsible: Data Protection Office\n" in text
    assert "- Contact: privacy_office@hospital.example\n" in text
    assert f"- SHA-256 of model.safetensors: `{64 * 'a'}`\n" in text
    content = certificate.to_json(made_up(1.0), CHECKSUM)
    declared = [content["public"][key] for key in ("name", "responsible", "contact")]  # type: ignore[index]  # JSON, typed as objects
    assert declared == [FACTS.name, FACTS.responsible, FACTS.contact]
    assert content["date"] == "2026-03-31"
    assert content["checksums"] == CHECKSUM
    assert read_statement(content) == made_up(1.0)


def test_the_page_is_one_file_without_scripts() -> None:
    page = to_html(made_up(1.0), CHECKSUM)
    assert "<h1>Stays &lt;b&gt;2023&lt;/b&gt; | *draft*</h1>" in page
    assert "<title>Privacy certificate: Stays &lt;b&gt;2023&lt;/b&gt; | *draft*</title>" in page
    assert "default-src 'none'" in page
    assert not re.search(r"<script|<img|https?://|src=|url\(", page)
    assert 64 * "a" in page
    assert "@media print" in page


def test_the_page_says_what_the_text_says() -> None:
    """Every word of the text is on the page, but for the line of figures, which its head shows."""
    statement = made_up(12.0, dataclasses.replace(FACTS, rows_declared=200, drafted=True))
    page = re.sub(r"<style>.*?</style>|<[^>]+>", " ", to_html(statement, CHECKSUM), flags=re.DOTALL)
    shown = set(re.findall(r"\w+", page))
    assert set(re.findall(r"\w+", certificate.to_markdown(statement, CHECKSUM))) <= shown


def test_the_page_says_the_strength_once_and_breaks_no_figure() -> None:
    page = to_html(made_up(1.0))
    assert page.count("Strong guarantee") == 1
    assert page.count("1.2e-06") == page.count('<span class="number">1.2e-06</span>') > 0
    assert ".number { white-space: nowrap; }" in page


# --- Files ---


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What `synth` leaves behind."""
    folder = tmp_path_factory.mktemp("synth")
    table = "age,member\n" + "".join(f"{20 + number % 50},{number % 2 == 0}\n" for number in range(200))
    (folder / "people.csv").write_text(table)
    (folder / "people.toml").write_text(SCHEMA)
    arguments = ["--schema", str(folder / "people.toml"), "--epsilon", "1", "--method", "independent", "-q"]
    assert run(["synth", str(folder / "people.csv"), *arguments, "-o", str(folder / "fake.csv")]) == 0
    return folder


def _digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def test_synth_certifies_the_model_and_the_table(folder: Path) -> None:
    content = json.loads((folder / "fake.release" / "certificate.json").read_bytes())
    assert content["checksums"] == {
        "model.safetensors": _digest(folder / "fake.release" / "model.safetensors"),
        "fake.csv": _digest(folder / "fake.csv"),
    }
    assert content["public"]["name"] == "Members 2023"
    assert content["date"] == datetime.date.today().isoformat()
    for name in ("CERTIFICATE.md", "certificate.html"):
        assert _digest(folder / "fake.csv") in (folder / "fake.release" / name).read_text(encoding="utf-8")
    assert not (folder / "fake.release.checkpoint").exists()


def test_a_loaded_release_writes_the_same_files(folder: Path) -> None:
    written = {path.name: path.read_bytes() for path in (folder / "fake.release").iterdir()}
    assert us.Release.load(folder / "fake.release").to_files() == written


def test_a_later_sample_names_its_release(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "more.parquet"
    sample = ["sample", str(folder / "fake.release"), "-n", "5", "--where", "age < 60", "-q", "-o"]
    assert run([*sample, str(out)]) == 0
    content = json.loads((tmp_path / "more.parquet.certificate.json").read_bytes())
    assert content["table"] == {"file": "more.parquet", "sha256": _digest(out), "rows": 5, "where": "age < 60"}
    assert content["release"]["folder"] == "fake.release"
    assert content["release"]["sha256"] == _digest(folder / "fake.release" / "release.json")
    certified = json.loads((folder / "fake.release" / "certificate.json").read_bytes())
    assert content["guarantee"] == certified["guarantee"]
    assert content["private"] is True
    out.unlink()
    assert run([*sample, str(out)]) == 2  # the file beside it would be replaced
    assert "exists" in capsys.readouterr().err
    assert not out.exists()
    assert run([*sample, str(out), "--force"]) == 0
    assert run([*sample, str(tmp_path / "base.duckdb::people")]) == 0
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "base.duckdb",
        "base.duckdb-people.datapackage.json",
        "more.parquet",
        "more.parquet.certificate.json",
        "more.parquet.datapackage.json",
    ]


def test_the_page_is_written_for_releases_and_failed_runs(folder: Path, tmp_path: Path) -> None:
    out = tmp_path / "certificate.html"
    assert run(["certificate", str(folder / "fake.release"), "--html", str(out)]) == 0
    assert out.read_bytes() == (folder / "fake.release" / "certificate.html").read_bytes()
    assert run(["certificate", str(folder / "fake.release"), "--html", str(out)]) == 2
    table = tmp_path / "survey.csv"
    table.write_text("a\n1\n")
    assert run(["certificate", str(folder / "fake.release"), "--html", str(table), "--force"]) == 2
    assert table.read_text() == "a\n1\n"
    statement = us.Release.load(folder / "fake.release").statement
    statement = dataclasses.replace(statement, released=False, measurements=())
    us.SpentError("It failed.", statement).save(tmp_path / "run.spent")
    assert run(["certificate", str(tmp_path / "run.spent"), "--html", str(out), "--force"]) == 0
    assert "Spent, nothing released" in out.read_text(encoding="utf-8")


def test_the_certificate_holds_no_statistic_of_real_rows() -> None:
    """Two tables of one schema that differ in every value: noise apart, their pages are one."""
    schema = us.Schema.from_toml(SCHEMA)
    pages = []
    for age, member in ((20, True), (79, False)):
        table = pa.table({"age": [age] * 200, "member": [member] * 200})
        release = us.fit(table, "independent", epsilon=1, schema=schema)
        pages.append(re.sub(r"[0-9a-f]{64}", "", to_html(release.statement, release.checksums)))
    cells = re.compile(r"<td class=\"n\">[^<]*</td>")  # the number of bins follows from noisy answers
    assert cells.sub("", pages[0]) == cells.sub("", pages[1])
