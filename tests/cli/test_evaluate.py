"""`understudy evaluate` and `understudy report`, from the shell's side."""

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from understudy.cli import run

WARNING = "Contains statistics of the real rows. Not covered by the privacy guarantee: do not publish."


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Real rows, a holdout, two synthetic tables, a schema and a release."""
    place = tmp_path_factory.mktemp("evaluate")
    draw = np.random.default_rng(0)
    for name, rows in [("real", 400), ("test", 200), ("one", 400), ("two", 400)]:
        age = draw.integers(18, 80, rows)
        member = np.where(age + draw.integers(-20, 20, rows) > 50, "yes", "no")
        frame = pd.DataFrame({"age": age, "region": draw.choice(["n", "s"], rows), "member": member})
        frame.to_csv(place / f"{name}.csv", index=False)
    (place / "schema.toml").write_text(
        '[table]\nrows = 400\ntarget = "member"\npositive = "yes"\n[columns.age]\nkind = "integer"\nbounds = [18, 80]\n'
        '[columns.region]\nkind = "categorical"\ncategories = ["n", "s"]\n'
        '[columns.member]\nkind = "categorical"\ncategories = ["no", "yes"]\n'
    )
    arguments = ["--schema", str(place / "schema.toml"), "--epsilon", "1", "-o", str(place / "release"), "-q"]
    assert run(["fit", str(place / "real.csv"), *arguments]) == 0
    return place


def test_scores_report_and_json(place: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    report, scores = tmp_path / "report.html", tmp_path / "scores.json"
    arguments = ["--schema", str(place / "schema.toml"), "--holdout", str(place / "test.csv"), "--quick"]
    arguments += ["--constraint", "age >= 18", "--release", f"one={place / 'release'}"]
    arguments += ["--report", str(report), "--json", str(scores)]
    assert run(["evaluate", str(place / "real.csv"), str(place / "one.csv"), f"b={place / 'two.csv'}", *arguments]) == 0
    out = capsys.readouterr().out
    assert "one" in out
    assert "ROC AUC" in out
    assert out.splitlines()[0] == WARNING
    content = json.loads(scores.read_text())
    assert [table["name"] for table in content["synthetic"]] == ["one", "b"]
    assert content["target"] == "member"
    page = report.read_text()
    assert WARNING in page
    assert "Privacy certificate" in page
    again = tmp_path / "again.html"
    assert run(["report", str(scores), "-o", str(again), "--release", f"one={place / 'release'}", "-q"]) == 0
    assert capsys.readouterr().out == WARNING + "\n"
    assert again.read_text() == page  # the page needs no data


def test_json_alone_on_standard_output(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    tables = [str(place / "real.csv"), str(place / "one.csv")]
    assert run(["evaluate", *tables, "--metric", "tv1", "--metric", "two_way", "--json", "-", "-q"]) == 0
    out, err = capsys.readouterr()
    content = json.loads(out)
    assert [entry["key"] for entry in content["metrics"]] == ["tv1", "tv2", "tv2_max"]
    assert err == WARNING + "\n"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["one.csv", "--target", "membre"], "target 'membre' is not a column of the tables. Did you mean 'member'?"),
        (["one.csv", "--quick", "--full"], "cannot be combined"),
        (["one.csv", "--metric", "tv7"], "no metric 'tv7'"),
        (["one.csv", "--report", "page.txt"], "--report page.txt: expected a file name ending in .html or .htm"),
        (["one.csv", "--json", "scores.csv"], "--json scores.csv: expected a file name ending in .json"),
        (["one.csv", "--json", "release/scores.json"], "not private"),
        (["one.csv", "--report", "release/deep/page.html"], "not private"),
        (["one.csv", "--schema", "schema.json", "--json", "schema.json", "--force"], "schema.json: that file is read"),
        (["one.csv", "--holdout", "none"], "The holdout cannot be read. none does not exist"),
        (["one.csv", "--holdout", "odd.csv"], "The holdout lacks"),
        (["odd.csv"], "The synthetic table lacks"),
        (["one.csv", "two.csv", "--release", "release", "--report", "r.html"], "--release NAME=FOLDER"),
        (["one.csv", "two.csv", "--release", "tow=release", "--report", "r.html"], "Did you mean 'two'"),
        (["one.csv", "one.csv"], "Two synthetic tables are named 'one'"),
        (["none.csv"], "none.csv"),
        (["one.csv", "--report", "taken.html"], "exists"),
        (["one.csv", "--constraint", "height > 3", "--metric", "constraints"], "height"),
    ],
)
def test_errors_are_one_line(
    place: Path, arguments: list[str], words: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(place)
    (place / "taken.html").touch()
    (place / "schema.json").touch()
    (place / "release" / "deep").mkdir(exist_ok=True)
    (place / "odd.csv").write_text("age\n3\n4\n")
    assert run(["evaluate", "real.csv", *arguments, "-q"]) == 2
    err = capsys.readouterr().err
    assert words in err
    assert err.count("\n") == 1
    assert not (place / "taken.html").read_text()


def test_a_report_needs_a_scorecard(place: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["report", str(place / "real.csv"), "-o", str(tmp_path / "r.html")]) == 2
    assert "not JSON" in capsys.readouterr().err
    assert not (tmp_path / "r.html").exists()


def test_two_outputs_are_two_files(place: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "link.json").symlink_to(tmp_path / "page.html")
    arguments = ["--report", str(tmp_path / "page.html"), "--json", str(tmp_path / "link.json"), "-q"]
    assert run(["evaluate", str(place / "real.csv"), str(place / "one.csv"), *arguments]) == 2
    assert "is written as well" in capsys.readouterr().err
    scores = tmp_path / "scores.html"
    scores.write_text("{}")
    assert run(["report", str(scores), "-o", str(scores), "--force"]) == 2
    assert "is read as well" in capsys.readouterr().err


def test_quiet_keeps_the_warning_and_drops_the_hints(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    tables = [str(place / "real.csv"), str(place / "one.csv")]
    assert run(["evaluate", *tables, "--metric", "validity", "-q"]) == 0
    out, err = capsys.readouterr()
    assert out.splitlines()[0] == WARNING
    assert not err
    assert "Rows with an unseen pair of values → real" in out
    assert "real, fewer rows" not in out  # a mean over rows can be compared whatever the number of rows


def test_warnings_are_shown_even_when_quiet(place: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pd.read_csv(place / "one.csv").head(20).to_csv(tmp_path / "tiny.csv", index=False)
    assert run(["evaluate", str(place / "real.csv"), str(tmp_path / "tiny.csv"), "--metric", "tv1", "-q"]) == 0
    assert "Warning: The synthetic table has 20 rows" in capsys.readouterr().out


def test_names_are_no_markup(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    tables = [str(place / "real.csv"), f"[/x]={place / 'one.csv'}", f"[red]={place / 'two.csv'}"]
    assert run(["evaluate", *tables, "--metric", "tv1"]) == 0
    out = capsys.readouterr().out
    assert "[/x]" in out
    assert "[red]" in out


def test_a_numeric_target_shows_its_scores(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    tables = [str(place / "real.csv"), str(place / "one.csv")]
    assert run(["evaluate", *tables, "--quick", "--target", "age", "-q"]) == 0
    out = capsys.readouterr().out
    assert "R squared, trained on synthetic ↑" in " ".join(out.split())
    assert "RMSE, trained on synthetic ↓" in " ".join(out.split())
    assert "ROC AUC" not in out
    assert run(["evaluate", *tables, "--quick", "-q"]) == 0
    out = " ".join(capsys.readouterr().out.split())
    assert "Not computed: F1, trained on synthetic, ROC AUC, trained on synthetic, " in out
    assert "No target column was given" in out


def test_a_condition_that_fails_on_a_value_does_not_quote_it(
    place: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    real = pd.read_csv(place / "real.csv")
    real.loc[5, "region"] = "SENTINEL-7261"
    real.to_csv(tmp_path / "real.csv", index=False)
    arguments = ["--metric", "constraints", "--constraint", "CAST(replace(region, 'n', '1') AS INTEGER) > 0", "-q"]
    for tables in (["real.csv", "one.csv"], ["one.csv", "real.csv"]):
        paths = [str((tmp_path if name == "real.csv" else place) / name) for name in tables]
        assert run(["evaluate", *paths, *arguments]) == 2
        out, err = capsys.readouterr()
        assert "fails on a value" in err
        assert "7261" not in out + err


def test_scores_of_locations_stand_beside_those_of_real_points(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """On the terminal, in the verdict, and among the key scores of the report."""
    monkeypatch.chdir(tmp_path)
    draw = np.random.default_rng(0)
    for name in ("real", "held", "fake"):
        lat, lon = 52.3 + 0.4 * draw.random(300), 13.0 + 0.8 * draw.random(300)
        pd.DataFrame({"lat": lat, "lon": lon, "sex": draw.choice(["f", "m"], 300)}).to_csv(f"{name}.csv", index=False)
    Path("s.toml").write_text(
        '[columns.home]\nkind = "location"\nlatitude = "lat"\nlongitude = "lon"\nbox = [52.3, 13.0, 52.7, 13.8]\n'
        '[columns.sex]\nkind = "categorical"\ncategories = ["f", "m"]\n'
    )
    given = ["--schema", "s.toml", "--holdout", "held.csv", "--quick", "--report", "r.html"]
    assert run(["evaluate", "real.csv", "fake.csv", *given]) == 0
    shown = " ".join(capsys.readouterr().out.replace("\N{NO-BREAK SPACE}", " ").split())
    for side in (1, 5, 25):
        assert f"Density error, squares of {side} km ↓ 0." in shown
    assert "Points inside the region ↑ 1 1" in shown
    assert "the density of “home” closely matches the real one on squares of" in shown
    assert "All points of “home” lie inside the declared region." in shown
    page = Path("r.html").read_text()
    key_scores = page.partition('<section id="key">')[2].partition("</section>")[0]
    assert "Density error, squares of 5 km" in key_scores
    assert "would have to move to match the real density (held-out real points:" in page
