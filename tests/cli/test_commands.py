"""Every command and flag, from the shell's side: what is written, what is said, and where."""

import csv
import json
import re
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import understudy as us
from understudy.cli import run
from understudy.synthesizers import SYNTHESIZERS

HEADER = ["person", "zip", "age", "income", "born", "seen", "member"]

SCHEMA = """
[table]
rows = 300
target = "member"

[columns.person]
kind = "id"
[columns.zip]
kind = "categorical"
nullable = false
categories = ["00123", "01000", "99999"]
closed = true
[columns.age]
kind = "integer"
bounds = [18, 80]
[columns.income]
kind = "real"
nullable = false
bounds = [0.0, 120.0]
decimals = 2
[columns.born]
kind = "date"
nullable = false
format = "%d.%m.%Y"
bounds = [1940-01-01, 2002-12-31]
[columns.seen]
kind = "datetime"
nullable = false
format = "%Y-%m-%d %H:%M:%S"
bounds = [2020-01-01T00:00:00, 2022-01-01T00:00:00]
[columns.member]
kind = "categorical"
nullable = false
categories = ["no", "yes"]
closed = true
"""

QUICK = ["--method", "gem", "--set", "steps=50"]
"""The method that is chosen by itself, with less to do."""


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a table, its schema, and a release made of both."""
    place = tmp_path_factory.mktemp("cli")
    draw = np.random.default_rng(0)
    with (place / "people.csv").open("w", newline="") as file:
        out = csv.writer(file)
        out.writerow(HEADER)
        for i in range(300):
            born = np.datetime64("1940-01-01") + draw.integers(0, 22_000)
            seen = np.datetime64("2020-01-01T00:00:00") + draw.integers(0, 60_000_000)
            out.writerow(
                [
                    f"P{i:04}",
                    ["00123", "01000", "99999"][i % 3],
                    "" if i % 10 == 0 else draw.integers(18, 81),
                    f"{min(draw.gamma(3.0, 10.0), 120.0):.2f}",
                    pd.Timestamp(born).strftime("%d.%m.%Y"),
                    str(seen).replace("T", " "),
                    ["no", "yes"][int(draw.random() < 0.4)],
                ]
            )
    (place / "people.toml").write_text(SCHEMA)
    assert run(["fit", *_in(place, "people.csv"), *_declared(place), *QUICK, "--out", str(place / "r"), "--quiet"]) == 0
    return place


def _in(place: Path, *names: str) -> list[str]:
    return [str(place / name) for name in names]


def _declared(place: Path) -> list[str]:
    return ["--schema", str(place / "people.toml"), "--epsilon", "2", "--delta", "1e-6"]


def _rows(path: Path) -> list[list[str]]:
    with path.open(newline="") as file:
        return list(csv.reader(file))


# --- Front matter ---


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["--version"]) == 0
    assert capsys.readouterr().out == f"understudy {us.__version__}\n"


@pytest.mark.parametrize(
    "command",
    [[], ["demo"], ["synth"], ["fit"], ["sample"], ["certificate"], ["plan"], ["methods"], ["schema"]]
    + [["schema", name] for name in ("draft", "check", "import")],
)
def test_help(command: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert run([*command, "--help"]) == 0
    said = capsys.readouterr()
    assert said.out.startswith("Usage:")
    assert said.err == ""


@pytest.mark.parametrize("command", [[], ["schema"]])
def test_without_a_command_the_help_is_shown(command: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """As it is, over many lines, and with an exit code that scripts notice."""
    assert run(command) == 2
    said = capsys.readouterr().err
    assert said.startswith("Usage:")
    assert len(said.splitlines()) > 8


def test_methods(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["methods"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == ["auto", *SYNTHESIZERS]
    assert run(["methods", "--json", "-"]) == 0
    assert list(json.loads(capsys.readouterr().out)) == list(SYNTHESIZERS)
    assert run(["methods", "--json", str(tmp_path / "m.json")]) == 0
    assert list(json.loads((tmp_path / "m.json").read_text())) == list(SYNTHESIZERS)


# --- Demo ---


def test_demo(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "made"
    assert run(["demo", "-o", str(out), "--method", "independent"]) == 0
    made = sorted(path.name for path in out.iterdir())
    beside = "synthetic.csv.datapackage.json"
    assert made == ["report.html", "schema.toml", "survey.csv", "synthetic.csv", beside, "synthetic.release"]
    assert pd.read_csv(out / "survey.csv").shape == (8802, 11)
    page = (out / "report.html").read_text()
    assert "Not covered by the privacy guarantee: do not publish" in page
    assert "Privacy certificate" in page
    fake = pd.read_csv(out / "synthetic.csv")
    assert fake.shape == (8802, 11)
    assert set(fake["region"]) == {"midwest", "northeast", "south", "west"}
    assert fake["age"].between(18, 62).all()
    said = capsys.readouterr()
    assert said.out == ""
    assert "NOT PRIVATE" not in said.err
    assert us.Release.load(out / "synthetic.release").statement.is_private
    assert run(["demo", "-o", str(out), "--no-force"]) == 2


# --- Synth, fit, sample ---


def test_csv_to_csv(place: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Columns in order, leading zeros, date formats and decimals kept; the release lies beside the table."""
    out = tmp_path / "fake.csv"
    assert run(["synth", *_in(place, "people.csv"), *_declared(place), "-o", str(out)]) == 0
    header, *rows = _rows(out)
    assert header == HEADER
    assert len(rows) == 300
    columns = dict(zip(header, zip(*rows, strict=True), strict=True))
    assert set(columns["zip"]) == {"00123", "01000", "99999"}
    assert all(re.fullmatch(r"\d\d\.\d\d\.(19|20)\d\d", text) for text in columns["born"])
    assert all(re.fullmatch(r"202[01]-\d\d-\d\d \d\d:\d\d:\d\d|2022-01-01 00:00:00", text) for text in columns["seen"])
    assert all(re.fullmatch(r"\d+\.\d\d", text) for text in columns["income"])
    assert all(text == "" or 18 <= int(text) <= 80 for text in columns["age"])
    assert len(set(columns["person"])) == 300
    assert not set(columns["person"]) & {row[0] for row in _rows(place / "people.csv")}
    assert (tmp_path / "fake.release" / "CERTIFICATE.md").is_file()
    said = capsys.readouterr()
    assert said.out == ""
    assert "Spent epsilon" in said.err
    assert "NOT PRIVATE" not in said.err
    assert us.Release.load(tmp_path / "fake.release").statement.is_private


def test_without_a_schema(place: Path, tmp_path: Path) -> None:
    """Everything is estimated privately; leading zeros and formats are kept all the same."""
    out = tmp_path / "fake.csv"
    arguments = ["--epsilon", "5", "--method", "mst", "-o", str(out), "-q", "-n", "50"]
    assert run(["synth", *_in(place, "people.csv"), *arguments]) == 0
    header, *rows = _rows(out)
    assert header == HEADER
    assert len(rows) == 50
    columns = dict(zip(header, zip(*rows, strict=True), strict=True))
    assert set(columns["zip"]) <= {"00123", "01000", "99999", "other", ""}
    assert set(columns["zip"]) & {"00123", "01000"}
    assert all(re.fullmatch(r"\d\d\.\d\d\.\d\d\d\d|", text) for text in columns["born"])
    statement = us.Release.load(tmp_path / "fake.release").statement
    assert statement.facts.drafted
    assert statement.facts.rows_declared is None


@pytest.mark.parametrize(
    ("out", "folder"),
    [("fake.csv", "fake"), ("fake_0.5.csv", "fake_0.5"), ("a.b.csv.gz", "a.b"), ("x.sqlite::t", "x-t"), ("F.PQ", "F")],
)
def test_the_release_lies_beside_the_table(out: str, folder: str, tmp_path: Path) -> None:
    """Under its name, whatever else than a known ending that holds."""
    table = tmp_path / "few.csv"
    table.write_text("a\n" + "x\n" * 50)
    assert run(["synth", str(table), "--not-private", "--method", "independent", "-q", "-o", str(tmp_path / out)]) == 0
    assert (tmp_path / f"{folder}.release" / "release.json").exists()


def test_a_condition_is_read_before_anything_is_charged(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Without a schema too; what shows only afterwards leaves the release, and says that drawing from it is free."""
    table, out = tmp_path / "few.csv", tmp_path / "fake.csv"
    table.write_text("a\n" + "x\n" * 200)
    command = ["synth", str(table), "--epsilon", "3", "--method", "independent", "-q", "-o", str(out), "--where"]
    for typo in ("b = 'x'", "a = "):
        assert run([*command, typo]) == 2
        assert list(tmp_path.iterdir()) == [table]
    assert run([*command, "a = 'y'"]) == 2
    said = capsys.readouterr().err.splitlines()[-1]
    assert (
        "it excludes every value of 'a'. Its values are 'x', 'other'. The budget is spent and the release is kept"
        in said
    )
    assert f"at no cost with 'understudy sample {tmp_path / 'fake.release'}'" in said
    assert not out.exists()
    assert run(["sample", str(tmp_path / "fake.release"), "--where", "a = 'x'", "-o", str(out), "-q"]) == 0


def test_parquet_to_parquet(tmp_path: Path) -> None:
    table = pa.table(
        {
            "small": pa.array([1, 2, None] * 60, pa.int8()),
            "large": pa.array([2**60 + 1, 2**60 + 3, 2**60 + 5] * 60),
            "day": pa.array([18_000, 18_001, 18_002] * 60, pa.int32()).cast(pa.date32()),
            "at": pa.array([0, 10**9, 2 * 10**9] * 60).cast(pa.timestamp("ms", "Asia/Tokyo")),
            "kind": pa.array(["a", "b", "a"] * 60).dictionary_encode(),
            "flag": pa.array([True, False, None] * 60),
            "share": pa.array([0.25, 0.5, 0.75] * 60, pa.float32()),
        }
    )
    pq.write_table(table, tmp_path / "t.parquet")
    out = tmp_path / "fake.parquet"
    source, method = str(tmp_path / "t.parquet"), ["--not-private", "--method", "independent"]
    assert run(["synth", source, *method, "-o", str(out)]) == 0
    fake = pq.read_table(out)
    assert fake.column_names == table.column_names
    for name in table.column_names:
        held, wanted = fake.schema.field(name).type, table.schema.field(name).type
        assert held == wanted or (pa.types.is_dictionary(held) and held.value_type == wanted.value_type), name


def test_formats_can_be_changed(place: Path, tmp_path: Path) -> None:
    for ending in ("tsv", "jsonl", "feather", "parquet", "csv.gz"):
        out = tmp_path / f"fake.{ending}"
        assert run(["sample", *_in(place, "r"), "-n", "20", "-o", str(out), "-q"]) == 0
        assert out.stat().st_size > 100


def test_sample_is_repeatable_and_free(place: Path, tmp_path: Path) -> None:
    made = {}
    for name, arguments in {"a": ["--seed", "5"], "b": ["--seed", "5"], "c": ["--seed", "6"], "d": [], "e": []}.items():
        out = tmp_path / f"{name}.csv"
        assert run(["sample", *_in(place, "r"), "-n", "40", "-o", str(out), "-q", *arguments]) == 0
        made[name] = out.read_bytes()
    assert made["a"] == made["b"]
    assert len(set(made.values())) == 4


def test_synth_seed_fixes_release_and_table(place: Path, tmp_path: Path) -> None:
    """Byte by byte; as fit and sample with the same seed have it. Other seeds, and none, differ."""
    told = [*_in(place, "people.csv"), *_declared(place), "--method", "independent", "--quiet"]
    for name, seed in {"a": ["--seed", "5"], "b": ["--seed", "5"], "c": ["--seed", "6"], "d": [], "e": []}.items():
        (tmp_path / name).mkdir()
        assert run(["synth", *told, "-o", str(tmp_path / name / "fake.csv"), *seed]) == 0
    a, b, c, d, e = ((tmp_path / name / "fake.csv").read_bytes() for name in "abcde")
    assert a == b
    assert len({a, c, d, e}) == 4
    releases = [(tmp_path / name / "fake.release" / "release.json").read_bytes() for name in "ab"]
    assert releases[0] == releases[1]
    assert run(["fit", *told, "-o", str(tmp_path / "r"), "--seed", "5"]) == 0
    assert run(["sample", str(tmp_path / "r"), "-o", str(tmp_path / "f.csv"), "--seed", "5", "--quiet"]) == 0
    assert (tmp_path / "f.csv").read_bytes() == a


def test_sample_seed_marks_nothing(place: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["sample", *_in(place, "r"), "-o", str(tmp_path / "a.csv"), "--seed", "5"]) == 0
    said = capsys.readouterr().err
    assert "NOT PRIVATE" not in said
    assert "Wrote 300 synthetic rows" in said


def test_seeded_fit_is_marked(place: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """In what is written, and on the terminal even with --quiet."""
    arguments = [
        "fit",
        *_in(place, "people.csv"),
        *_declared(place),
        "--seed",
        "7",
        "--quiet",
        "--method",
        "independent",
    ]
    for name in ("a", "b"):
        assert run([*arguments, "-o", str(tmp_path / name)]) == 0
    assert capsys.readouterr().err.count("NOT PRIVATE: its noise was seeded") == 2
    for file in (tmp_path / "a").iterdir():
        assert file.read_bytes() == (tmp_path / "b" / file.name).read_bytes()
        assert not re.search(rb'"?seed"?\s*[:=]\s*7\b', file.read_bytes())


def test_not_private(place: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["--schema", *_in(place, "people.toml"), "--not-private", "--method", "independent"]
    assert run(["fit", *_in(place, "people.csv"), *arguments, "-o", str(tmp_path / "r"), "--json", "-"]) == 0
    said = capsys.readouterr()
    assert "NOT PRIVATE: it was made without noise" in said.err
    certificate = json.loads(said.out)
    assert certificate["private"] is False
    assert certificate["guarantee"]["epsilon"] is None
    assert "epsilon is infinite" in (tmp_path / "r" / "CERTIFICATE.md").read_text()


def test_quiet_is_silent(place: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    quick = ["--method", "independent", "-o", str(tmp_path / "f.csv")]
    assert run(["synth", *_in(place, "people.csv"), *_declared(place), *quick, "--quiet"]) == 0
    assert run(["sample", str(tmp_path / "f.release"), "-o", str(tmp_path / "g.csv"), "-q"]) == 0
    assert run(["schema", "draft", *_in(place, "people.csv"), "-o", str(tmp_path / "d.toml"), "-q"]) == 0
    assert capfd.readouterr() == ("", "")


def test_plain_progress_lines_elsewhere(place: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["fit", *_in(place, "people.csv"), *_declared(place), *QUICK, "-o", str(tmp_path / "r")]) == 0
    said = capsys.readouterr().err
    assert re.search(r"^ *0%  .*\(\d+ s\)$", said, re.MULTILINE)
    assert re.search(r"^100%  .*\(\d+ s\)$", said, re.MULTILINE)
    assert "\x1b" not in said


def test_settings_and_target(place: Path, tmp_path: Path) -> None:
    arguments = ["fit", *_in(place, "people.csv"), *_declared(place), "-q", "--target", "zip"]
    settings = ["--method", "mst", "--set", "iterations=50", "--set", "fractions=[1, 1, 2]"]
    assert run([*arguments, *settings, "-o", str(tmp_path / "r"), "--bins", "uniform", "--max-bins", "7"]) == 0
    release = us.Release.load(tmp_path / "r")
    assert release.statement.method == "mst(fractions=[1, 1, 2], iterations=50)"
    assert release.schema.target == "zip"
    assert max(release.codec.domain.sizes) == 8
    assert {query.path for query in release.statement.queries} == {("mst",)}  # uniform bins need no histogram
    assert us.Release.load(place / "r").schema.target == "member"


def test_set_changes_the_default_method_too(place: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["fit", *_in(place, "people.csv"), *_declared(place), "-o", str(tmp_path / "r")]
    assert run([*arguments, "--set", "nonsense=50"]) == 2
    assert "nonsense" in capsys.readouterr().err
    assert run([*arguments, "--set", "iterations=50"]) == 0
    assert us.Release.load(tmp_path / "r").statement.method == "adaptive(iterations=50)"


def test_where_and_rows_in_one_go(place: Path, tmp_path: Path) -> None:
    out = tmp_path / "fake.csv"
    arguments = ["synth", *_in(place, "people.csv"), *_declared(place), "-q", "-o", str(out), "--method", "mst"]
    assert run([*arguments, "--where", "zip = '00123' AND income < 30.5", "-n", "25"]) == 0
    fake = pd.read_csv(out, dtype={"zip": str})
    assert len(fake) == 25
    assert set(fake["zip"]) == {"00123"}
    assert fake["income"].max() < 30.5


def test_force(place: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "fake.csv"
    arguments = ["sample", *_in(place, "r"), "-q", "-n", "5", "-o", str(out)]
    out.write_text("mine")
    assert run(arguments) == 2
    assert out.read_text() == "mine"
    assert "--force" in capsys.readouterr().err
    assert run([*arguments, "--force"]) == 0
    assert len(_rows(out)) == 6


# --- JSON ---


def test_json_of_a_run(place: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The certificate, on standard output alone or in a file."""
    arguments = ["fit", *_in(place, "people.csv"), *_declared(place), "--method", "independent"]
    assert run([*arguments, "-o", str(tmp_path / "a"), "--json", "-"]) == 0
    content = json.loads(capsys.readouterr().out)
    assert content == json.loads((tmp_path / "a" / "certificate.json").read_text())
    assert run([*arguments, "-o", str(tmp_path / "b"), "--json", str(tmp_path / "b.json"), "-q"]) == 0
    assert json.loads((tmp_path / "b.json").read_text()) == json.loads((tmp_path / "b/certificate.json").read_text())
    assert content["private"] is True


@pytest.mark.parametrize("target", ["kept.json", "nowhere/x.json"])
def test_json_is_checked_before_the_run(
    target: str, place: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """An existing file is kept, and nothing is spent when the JSON could not be written."""
    (tmp_path / "kept.json").write_text("mine")
    arguments = ["fit", *_in(place, "people.csv"), *_declared(place), "-o", str(tmp_path / "r")]
    assert run([*arguments, "--json", str(tmp_path / target)]) == 2
    assert len(capsys.readouterr().err.splitlines()) == 1
    assert (tmp_path / "kept.json").read_text() == "mine"
    assert not (tmp_path / "r").exists()


def test_certificate(place: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The words as they lie in the folder, and the JSON."""
    assert run(["certificate", *_in(place, "r")]) == 0
    assert capsys.readouterr().out == (place / "r" / "CERTIFICATE.md").read_text()
    assert run(["certificate", *_in(place, "r"), "--json", "-"]) == 0
    assert json.loads(capsys.readouterr().out) == json.loads((place / "r" / "certificate.json").read_text())
    assert run(["certificate", *_in(place, "r"), "--json", str(tmp_path / "c.json")]) == 0
    assert json.loads((tmp_path / "c.json").read_text())["private"] is True


# The neural ones, and what is put around them, stand for this in the slow contract.
@pytest.mark.parametrize("method", ["independent", "mst", "aim", "mwem"])
def test_plan_is_what_is_charged(method: str, place: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The queries of the plan are those of the certificate of the run, number for number."""
    guarantee = ["--epsilon", "2", "--delta", "1e-6", "--method", method]
    assert run(["plan", *_in(place, "people.toml"), *guarantee, "--json", "-"]) == 0
    plan = json.loads(capsys.readouterr().out)
    arguments = ["--schema", *_in(place, "people.toml"), *guarantee, "-q", "-o", str(tmp_path / "r"), "--json", "-"]
    assert run(["fit", *_in(place, "people.csv"), *arguments]) == 0
    certificate = json.loads(capsys.readouterr().out)
    assert plan["queries"] == certificate["queries"]
    assert plan["epsilon"] == certificate["guarantee"]["epsilon"]
    assert plan["meaning"]["posteriors"]
    assert plan["meaning"] == certificate["guarantee"]["meaning"]


def test_plan_in_words(place: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["plan", *_in(place, "people.toml"), "--epsilon", "1"]
    assert run([*arguments, "--rows", "5000", "--target", "zip", "--json", str(tmp_path / "p.json")]) == 0
    said = capsys.readouterr()
    assert "discovery" in said.out
    assert "'zip'" in said.out
    assert "Only the schema was read" in said.out
    assert said.err == ""
    assert json.loads((tmp_path / "p.json").read_text())["format"] == "understudy-plan"
    assert run(arguments) == 0
    assert "'member'" in capsys.readouterr().out  # the schema's own target


# --- Schemas ---


def test_schema_draft_holds_no_value(place: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "draft.toml"
    assert run(["schema", "draft", *_in(place, "people.csv"), "-o", str(out)]) == 0
    assert "Review it" in capsys.readouterr().err
    text = out.read_text()
    schema = us.Schema.read(out)
    assert schema.names == tuple(HEADER)
    assert schema.drafted
    assert schema.rows is None
    assert all(column.categories is None and column.bounds is None for column in schema)
    for row in _rows(place / "people.csv")[1:]:
        assert row[0] not in text
        assert row[3] not in text
    assert "00123" not in text
    assert run(["schema", "draft", *_in(place, "people.csv"), "-o", str(out)]) == 2
    assert run(["schema", "draft", *_in(place, "people.csv"), "-o", str(out), "--force", "-q"]) == 0


def test_schema_check(place: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """0 where the table fits or is altered by rule; 1 where fit would refuse it."""
    assert run(["schema", "check", *_in(place, "people.csv", "people.toml")]) == 0
    said = capsys.readouterr().out
    assert said.startswith("For the steward only")
    assert "fits its schema" in said
    (tmp_path / "narrow.toml").write_text(SCHEMA.replace("[18, 80]", "[18, 30]").replace('"00123", ', ""))
    assert run(["schema", "check", *_in(place, "people.csv"), str(tmp_path / "narrow.toml")]) == 0
    said = capsys.readouterr().out
    assert "outside the bounds [18, 30]" in said
    assert "outside the closed list of categories" in said
    (tmp_path / "fewer.toml").write_text(SCHEMA.replace('[columns.age]\nkind = "integer"\nbounds = [18, 80]\n', ""))
    assert run(["schema", "check", *_in(place, "people.csv"), str(tmp_path / "fewer.toml")]) == 1
    assert "'age' is in the table but not in the schema" in capsys.readouterr().out


def test_schema_import(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "domain.json").write_text('{"age": 100, "sex": 2}')
    out = tmp_path / "s.toml"
    assert run(["schema", "import", str(tmp_path / "domain.json"), "-o", str(out)]) == 0
    assert "treated as public" in capsys.readouterr().err
    assert us.Schema.read(out).names == ("age", "sex")
    assert run(["schema", "import", str(tmp_path / "domain.json"), "-o", str(out), "--format", "sdv", "--force"]) == 2
    assert len(capsys.readouterr().err.splitlines()) == 1
    assert us.Schema.read(out).names == ("age", "sex")
