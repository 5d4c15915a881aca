"""`understudy evaluate` and `understudy report`, from the shell's side."""

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from understudy.cli import run

WARNING = "Contains statistics of the real rows: not private, do not publish."


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
    arguments += ["--constraint", "age >= 18", "--release", str(place / "release")]
    arguments += ["--report", str(report), "--json", str(scores)]
    assert run(["evaluate", str(place / "real.csv"), str(place / "one.csv"), f"b={place / 'two.csv'}", *arguments]) == 0
    out, err = capsys.readouterr()
    assert "one" in out
    assert "ROC AUC" in out
    assert WARNING in err
    content = json.loads(scores.read_text())
    assert [table["name"] for table in content["synthetic"]] == ["one", "b"]
    assert content["target"] == "member"
    page = report.read_text()
    assert WARNING in page
    assert "Privacy certificate" in page
    again = tmp_path / "again.html"
    assert run(["report", str(scores), "-o", str(again), "--release", str(place / "release")]) == 0
    assert again.read_text() == page  # the page needs no data


def test_json_alone_on_standard_output(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    tables = [str(place / "real.csv"), str(place / "one.csv")]
    assert run(["evaluate", *tables, "--metric", "tv1", "--metric", "two_way", "--json", "-", "-q"]) == 0
    content = json.loads(capsys.readouterr().out)
    assert [entry["key"] for entry in content["metrics"]] == ["tv1", "tv2", "tv2_max"]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["one.csv", "--target", "membre"], "target 'membre' is not a column of the tables. Did you mean 'member'?"),
        (["one.csv", "--quick", "--full"], "exclude each other"),
        (["one.csv", "--metric", "tv7"], "no metric 'tv7'"),
        (["one.csv", "one.csv"], "Two synthetic tables are called 'one'"),
        (["none.csv"], "none.csv"),
        (["one.csv", "--release", "release"], "give --report too"),
        (["one.csv", "--report", "taken.html"], "exists"),
        (["one.csv", "--constraint", "height > 3", "--metric", "constraints"], "height"),
    ],
)
def test_errors_are_one_line(
    place: Path, arguments: list[str], words: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(place)
    (place / "taken.html").touch()
    assert run(["evaluate", "real.csv", *arguments, "-q"]) == 2
    err = capsys.readouterr().err
    assert words in err
    assert err.count("\n") == 1
    assert not (place / "taken.html").read_text()


def test_a_report_needs_a_scorecard(place: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["report", str(place / "real.csv"), "-o", str(tmp_path / "r.html")]) == 2
    assert "not JSON" in capsys.readouterr().err
    assert not (tmp_path / "r.html").exists()
