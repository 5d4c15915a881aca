"""`evaluate` takes schema, target and certificate from the release beside the synthetic table."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from understudy.cli.main import run
from understudy.evaluation.scorecard import Scorecard

SCHEMA = """[table]
target = "rich"

[columns.number]
kind = "id"
[columns.age]
kind = "integer"
bounds = [0, 120]
[columns.rich]
kind = "categorical"
categories = ["no", "yes"]
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("release")
    draw = np.random.default_rng(0)
    age = draw.integers(18, 90, 1500)
    rich = np.where(age + draw.normal(0, 10, 1500) > 60, "yes", "no")
    pd.DataFrame({"number": np.arange(1500), "age": age, "rich": rich}).to_csv(folder / "people.csv", index=False)
    (folder / "schema.toml").write_text(SCHEMA)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        common = ["--epsilon", "1", "--method", "independent", "-q"]
        assert run(["synth", "people.csv", "--schema", "schema.toml", *common, "-o", "fake.csv"]) == 0
        (folder / "other.toml").write_text(SCHEMA.replace("120", "100"))
        assert run(["synth", "people.csv", "--schema", "other.toml", *common, "-o", "other.csv"]) == 0
    return folder


def test_the_example_of_the_overview_needs_no_schema(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Ids are not scored, the target is known, the report shows the certificate, and the output says why."""
    monkeypatch.chdir(folder)
    written = ["--report", str(tmp_path / "report.html"), "--json", str(tmp_path / "scores.json")]
    rules = ["--constraint", "age >= 18", "--constraint", "age < 200"]
    assert run(["evaluate", "people.csv", "fake.csv", "--quick", *written, *rules, "-q"]) == 0
    out = " ".join(capsys.readouterr().out.split())
    assert "Schema: that of the release fake.release." in out
    assert "Lost The dependence of “age” with “rich”" in out
    assert "Not for Do not use it for analyses of “age” with “rich”" in out
    assert "rows that break the rule fake real" in out
    assert "age < 200 none none" in out
    content = Scorecard.load(tmp_path / "scores.json").to_json()
    assert content["target"] == "rich"
    assert content["details"]["correlations"]["fake"]["columns"] == ["age", "rich"]
    page = (tmp_path / "report.html").read_text()
    assert 'id="certificate"' in page
    assert "of the release fake.release" in page


def test_a_schema_file_takes_precedence(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(folder)
    assert run(["evaluate", "people.csv", "fake.csv", "--schema", "schema.toml", "--metric", "tv1", "-q"]) == 0
    assert "Schema: that of" not in capsys.readouterr().out


def test_a_release_elsewhere_can_be_named(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(folder)
    lonely = tmp_path / "lonely.csv"
    lonely.write_bytes((folder / "fake.csv").read_bytes())
    assert run(["evaluate", "people.csv", str(lonely), "--release", "fake.release", "--metric", "tv1", "-q"]) == 0
    assert "Schema: that of the release fake.release." in capsys.readouterr().out
    assert run(["evaluate", "people.csv", str(lonely), "--metric", "tv1", "-q"]) == 0
    assert "Schema: that of" not in capsys.readouterr().out


def test_releases_that_disagree_are_refused(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(folder)
    assert run(["evaluate", "people.csv", "fake.csv", "other.csv", "--metric", "tv1", "-q"]) == 2
    assert "have different schemas. Say which one to use: --schema FILE" in capsys.readouterr().err


def test_a_damaged_release_is_not_passed_over(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "fake.csv").write_bytes((folder / "fake.csv").read_bytes())
    (tmp_path / "fake.release").mkdir()
    (tmp_path / "fake.release" / "release.json").write_text("{}")
    assert run(["evaluate", str(folder / "people.csv"), str(tmp_path / "fake.csv"), "--metric", "tv1", "-q"]) == 2
    err = capsys.readouterr().err
    assert "To evaluate without it, give --schema." in err
    assert err.count("\n") == 1
