"""Rows that are held out: `split`, and `--split` of `fit` and `synth`."""

import os
import re
import stat
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

import understudy as us
from tests.builders import raises
from understudy.cli.main import run
from understudy.evaluation.scorecard import Scorecard
from understudy.release import Release

SCHEMA = """[table]
rows = 1000
unit = "person"
max_rows_per_unit = 3

[columns.person]
kind = "id"
[columns.age]
kind = "integer"
bounds = [0, 100]
[columns.sex]
kind = "categorical"
categories = ["f", "m"]
"""


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    draw = np.random.default_rng(0)
    person = draw.integers(0, 400, 1000)
    table = pd.DataFrame({"person": person, "age": draw.integers(0, 100, 1000), "sex": draw.choice(["f", "m"], 1000)})
    table.to_csv(tmp_path / "people.csv", index=False)
    (tmp_path / "people.toml").write_text(SCHEMA)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def check_parts(train: pd.DataFrame, held: pd.DataFrame) -> None:
    whole = pd.read_csv("people.csv")
    both = pd.concat([train, held]).sort_values(["person", "age", "sex"], ignore_index=True)
    pd.testing.assert_frame_equal(both, whole.sort_values(["person", "age", "sex"], ignore_index=True))
    assert not set(train["person"]) & set(held["person"])


@pytest.mark.parametrize("how", [["--unit", "person"], ["--schema", "people.toml"]])
def test_all_rows_of_a_unit_go_to_one_side(place: Path, how: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["split", "people.csv", "--test", "0.3", "-o", "train.csv", "--holdout", "test.csv", *how]) == 0
    train, held = pd.read_csv("train.csv"), pd.read_csv("test.csv")
    check_parts(train, held)
    assert 60 < held["person"].nunique() < 160  # 110 expected
    for name in ("train.csv", "test.csv"):
        assert stat.S_IMODE(os.stat(name).st_mode) == 0o600
    said = capsys.readouterr().err
    assert "rows of the same 'person' stay together" in said
    assert ("about 700 of them" in said) == ("--schema" in how)
    assert str(len(train)) not in said.replace("about 700", "")


def test_without_a_unit_each_row_has_a_coin(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["split", "people.csv", "-o", "train.csv", "--holdout", "test.csv"]) == 0
    train, held = pd.read_csv("train.csv"), pd.read_csv("test.csv")
    assert len(train) + len(held) == 1000
    assert 130 < len(held) < 270
    assert set(train["person"]) & set(held["person"])
    assert "each row counts as one person (otherwise: --unit)" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--test", "0"], "--test must be a fraction between 0 and 1, such as 0.2; found 0"),
        (["--test", "1.5"], "found 1.5"),
        (["--unit", "persn"], "no column 'persn'. Did you mean 'person'?"),
        (["--unit", "age", "--schema", "people.toml"], "--unit is 'age', but the schema names 'person'"),
        (["--holdout", "train.csv"], "must be three different files"),
        (["--holdout", "people.csv"], "must be three different files"),
        (["--holdout", "nowhere/test.csv"], "does not exist"),
        (["--holdout", "people.toml"], "people.toml"),
    ],
)
def test_bad_splits_are_one_line_and_write_nothing(
    place: Path, arguments: list[str], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    before = sorted(path.name for path in place.iterdir())
    assert run(["split", "people.csv", "-o", "train.csv", "--holdout", "test.csv", *arguments]) == 2
    err = capsys.readouterr().err
    assert words in err
    assert err.count("\n") == 1
    assert sorted(path.name for path in place.iterdir()) == before


def test_synth_fits_only_the_rest_and_evaluate_finds_both(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Held-out rows are left out of the real table, the schema is that of the release."""
    arguments = ["--schema", "people.toml", "--epsilon", "1", "--method", "independent", "-o", "fake.csv"]
    assert run(["synth", "people.csv", "--split", "0.3", *arguments]) == 0
    said = capsys.readouterr().err
    # Every number of the message is public: the fraction, not the exact number of rows that were drawn. (Elsewhere in
    # the output stands the number of synthetic rows, which can be the same by chance.)
    (message,) = [line for line in said.splitlines() if "Held out about" in line]
    assert re.findall(r"\d[\d.,]*", message) == ["30"]
    held = pd.read_csv("fake.holdout.csv")
    assert stat.S_IMODE(os.stat("fake.holdout.csv").st_mode) == 0o600
    assert not list(place.glob("*.secret"))
    assert Release.load("fake.release").schema.rows == 700  # expected, from public numbers alone
    whole = pd.read_csv("people.csv")
    check_parts(whole[~whole["person"].isin(held["person"])], held)
    assert run(["evaluate", "people.csv", "fake.csv", "--metric", "tv1", "-q"]) == 0
    out = capsys.readouterr().out
    assert "Schema: that of the release fake.release." in out
    assert "Held-out rows: fake.holdout.csv." in out
    assert "Warning" not in out
    for options in (["--schema", "people.toml"], ["--release", "fake.release"]):
        found = ["--json", "scores.json", "--force", *options]
        assert run(["evaluate", "people.csv", "fake.csv", "--metric", "tv1", "-q", *found]) == 0
        assert "Held-out rows: fake.holdout.csv." in capsys.readouterr().out
        content = Scorecard.load("scores.json").to_json()
        assert content["real"]["rows"] == 1000 - len(held)
        assert "The held-out rows were left out of the real table." in [note["text"] for note in content["notes"]]
    named = ["--holdout", "fake.holdout.csv", "--metric", "tv1", "-q"]
    assert run(["evaluate", "people.csv", "fake.csv", *named]) == 0
    assert "were removed from it" in capsys.readouterr().out


def test_held_out_rows_found_beside_the_table_are_read_as_understudy_wrote_them(
    place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """In UTF-8 with commas, whatever the real file."""
    draw = np.random.default_rng(0)
    sex = draw.choice(["männlich", "weiblich"], 1000)
    costs = draw.integers(0, 10**6, 1000)
    pd.DataFrame({"Kosten €": costs, "sex": sex}).to_csv("real.csv", index=False, sep="|", encoding="cp1252")
    Path("costs.toml").write_text(
        '[columns."Kosten €"]\nkind = "integer"\nbounds = [0, 1000000]\n'
        '[columns.sex]\nkind = "categorical"\ncategories = ["männlich", "weiblich"]\n',
        encoding="utf-8",
    )
    reading = ["--encoding", "cp1252", "--separator", "|", "-q"]
    arguments = ["--schema", "costs.toml", "--epsilon", "1", "--method", "independent", "-o", "fake.csv", *reading]
    assert run(["synth", "real.csv", "--split", "0.3", *arguments]) == 0
    held = pd.read_csv("fake.holdout.csv")
    capsys.readouterr()
    assert run(["evaluate", "real.csv", "fake.csv", "--metric", "tv1", "--json", "scores.json", *reading]) == 0
    assert "Warning" not in capsys.readouterr().out
    content = Scorecard.load("scores.json").to_json()
    assert content["holdout"]["rows"] == len(held)
    assert content["real"]["rows"] == 1000 - len(held)
    assert next(entry for entry in content["metrics"] if entry["key"] == "tv1")["reference"]["value"] < 0.2


def test_held_out_rows_keep_ids_that_are_words_and_what_is_missing(
    place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Otherwise they would not be found in the real table."""
    table = pd.read_csv("people.csv")
    table["person"] = [f"P{number}" for number in table["person"]]
    table["stay"] = [f"S{number:04d}" for number in range(1000)]
    table.loc[:99, "sex"] = "n/s"
    table.to_csv("people.csv", index=False)
    Path("people.toml").write_text(SCHEMA + 'missing = ["n/s"]\n[columns.stay]\nkind = "id"\n')
    arguments = ["--schema", "people.toml", "--epsilon", "1", "--method", "independent", "-o", "fake.csv", "-q"]
    assert run(["synth", "people.csv", "--split", "0.3", *arguments]) == 0
    held = pd.read_csv("fake.holdout.csv")
    assert set(held["stay"]) < set(table["stay"])
    assert set(held["person"]) < set(table["person"])
    capsys.readouterr()
    assert run(["evaluate", "people.csv", "fake.csv", "--metric", "tv1", "--json", "scores.json", "-q"]) == 0
    assert "Warning" not in capsys.readouterr().out
    assert Scorecard.load("scores.json").to_json()["real"]["rows"] == 1000 - len(held)


def test_the_file_of_the_held_out_rows_can_be_named(place: Path) -> None:
    arguments = ["--schema", "people.toml", "--epsilon", "1", "--method", "independent", "-o", "model", "-q"]
    assert run(["fit", "people.csv", "--split", "0.2", "--holdout", "kept.parquet", *arguments]) == 0
    assert 0 < len(pd.read_parquet("kept.parquet")) < 500
    assert not Path("model.holdout.csv").exists()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--holdout", "x.csv"], "Give --split 0.2 too"),
        (["--split", "1"], "--split must be a fraction between 0 and 1"),
        (["--split", "0.2", "--holdout", "people.csv"], "exists"),
        (["--split", "0.2", "--holdout", "a.duckdb::b"], "not a table of a database"),
        (["--split", "0.2", "--holdout", "fake.csv"], "read or written as well"),
        (["--split", "0.2", "--holdout", "./nothing.csv", "--force"], "read or written as well"),
        (["--split", "0.2", "--holdout", "people.csv", "--schema", "people.csv", "--force"], "read or written as well"),
        (["--split", "0.2", "--holdout", "old/rows.csv"], "is inside the release"),
    ],
)
def test_bad_options_are_refused_before_anything_is_read(
    place: Path, arguments: list[str], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (place / "old").mkdir()
    (place / "old" / "release.json").write_text("{}")
    assert run(["synth", "nothing.csv", "--epsilon", "1", "-o", "fake.csv", *arguments]) == 2
    assert words in capsys.readouterr().err


def test_a_refused_run_leaves_no_held_out_rows(place: Path) -> None:
    arguments = ["--schema", "people.toml", "--epsilon", "1", "-o", "fake.csv", "--method", "dpgan", "-q"]
    assert run(["synth", "people.csv", "--split", "0.2", "--public", "people.csv", *arguments]) == 2
    assert {path.name for path in place.iterdir()} == {"people.csv", "people.toml"}


def test_a_refused_run_removes_only_what_it_wrote(place: Path) -> None:
    (place / "mine.csv").write_text("mine")
    arguments = ["--schema", "people.toml", "--epsilon", "1", "-o", "fake.csv", "--force", "--where", "nothing > 3"]
    assert run(["synth", "people.csv", "--split", "0.2", "--holdout", "mine.csv", *arguments]) == 2
    assert (place / "mine.csv").read_text() == "mine"


def test_ids_that_are_words_stay_in_the_files_of_a_split(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (place / "s.toml").write_text('[table]\nunit = "who"\n[columns.who]\nkind = "id"\n[columns.x]\nkind = "integer"\n')
    (place / "ids.csv").write_text("who,x\n" + "".join(f"P{number},{number}\n" for number in range(40)))
    assert run(["split", "ids.csv", "-o", "a.csv", "--holdout", "b.csv", "--schema", "s.toml"]) == 0
    assert "understudy synth a.csv --schema s.toml --epsilon 1" in capsys.readouterr().err
    lines = [line for file in ("a.csv", "b.csv") for line in (place / file).read_text().splitlines()[1:]]
    assert sorted(lines) == sorted(f"P{number},{number}" for number in range(40))
    train, held = us.split(place / "ids.csv", 0.5, schema=place / "s.toml")
    assert isinstance(train, pa.Table)
    assert isinstance(held, pa.Table)
    assert sorted(train["who"].to_pylist() + held["who"].to_pylist()) == sorted(f"P{number}" for number in range(40))


def test_held_out_rows_are_not_fitted_later_under_the_same_name(
    place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """`evaluate` finds them beside the table and takes them for rows that were not fitted."""
    again = ["synth", "people.csv", "--schema", "people.toml", "--epsilon", "1", "-o", "fake.csv", "--method"]
    assert run([*again, "independent", "--split", "0.3", "-q"]) == 0
    before = (place / "fake.csv").read_bytes()
    assert run([*again, "independent", "--force"]) == 2
    assert "fake.holdout.csv holds rows that an earlier run held out" in capsys.readouterr().err
    assert (place / "fake.csv").read_bytes() == before
    assert run([*again, "independent", "--split", "0.3", "--force", "-q"]) == 0


def test_one_row_changes_no_other_in_the_files_of_a_split(place: Path) -> None:
    """With a schema they are read by it: types inferred from the values would rewrite 1.50 and NA in all rows."""
    schema = '[columns.x]\nkind = "categorical"\n[columns.y]\nkind = "date"\nformat = "%d.%m.%Y"\n'
    (place / "s.toml").write_text(schema)
    for odd in ("", "odd,\n"):
        (place / "odd.csv").write_text("x,y\n" + "1.50,01.02.2020\nNA,02.02.2020\n" * 20 + odd)
        assert run(["split", "odd.csv", "-o", "a.csv", "--holdout", "b.csv", "--schema", "s.toml", "--force"]) == 0
        lines = [*(place / "a.csv").read_text().splitlines()[1:], *(place / "b.csv").read_text().splitlines()[1:]]
        assert sorted(lines) == sorted([*["1.50,01.02.2020", "NA,02.02.2020"] * 20, *odd.splitlines()])
        train, held = us.split(place / "odd.csv", 0.5, schema=place / "s.toml")
        assert isinstance(train, pa.Table)
        assert isinstance(held, pa.Table)
        assert {*train["x"].to_pylist(), *held["x"].to_pylist()} == {"1.50", "NA", *(["odd"] if odd else [])}


def test_an_interrupted_run_holds_out_the_same_rows_again(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    arguments = ["fit", "people.csv", "--split", "0.3", "--schema", "people.toml", "--epsilon", "1", "-q"]
    arguments += ["--method", "independent", "-o", "model"]
    with monkeypatch.context() as patch:
        patch.setattr(Release, "to_files", _interrupt)
        assert run(arguments) == 130
    held = Path("model.holdout.csv").read_bytes()
    assert Path("model.holdout.csv.secret").exists()
    assert run([*arguments, "--resume"]) == 0
    assert Path("model.holdout.csv").read_bytes() == held
    assert not Path("model.holdout.csv.secret").exists()
    assert Release.load("model").schema.rows == 700


def _interrupt(release: Release) -> None:
    raise KeyboardInterrupt


def test_split_of_frames_keeps_their_kind() -> None:
    frame = pd.DataFrame({"person": [1, 1, 2, 2, 3, 4], "x": range(6)})
    train, held = us.split(frame, 0.5, unit="person")
    assert isinstance(train, pd.DataFrame)
    assert sorted([*train["x"], *held["x"]]) == list(range(6))
    with raises(us.SchemaError, column="y"):
        us.split(frame, 0.5, unit="y")
