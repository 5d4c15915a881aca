"""What people type in Python: the arguments of `fit`, `plan` and `evaluate`, their warnings and their progress."""

import sys
import types
import warnings
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

import understudy as us
from tests.builders import raises
from understudy.cli import run
from understudy.progress import display_progress, open_progress

SECTIONS: dict[str, Any] = {
    "table": {"rows": 200},
    "columns": {
        "income": {"kind": "categorical", "categories": ["low", "high"]},
        "age": {"kind": "integer", "bounds": [0, 100]},
    },
}


@pytest.fixture
def people() -> pd.DataFrame:
    return pd.DataFrame({"income": ["low", "high"] * 100, "age": [20, 40, 60, 80] * 50})


# --- The guarantee ---


def test_epsilon_is_enough(people: pd.DataFrame) -> None:
    release = us.fit(people, "independent", epsilon=1, schema=SECTIONS)
    assert release.statement.epsilon_target == 1.0
    assert release.statement.delta == us.Guarantee(1.0).with_delta_for(200).delta


def test_the_three_ways_to_give_a_guarantee_are_one(people: pd.DataFrame) -> None:
    wanted = us.Guarantee(2.0, 1e-7)
    plans = [
        us.plan(SECTIONS, "independent", wanted),
        us.plan(SECTIONS, "independent", guarantee=wanted),
        us.plan(SECTIONS, "independent", epsilon=2.0, delta=1e-7),
    ]
    assert plans[0] == plans[1] == plans[2]
    released = [
        us.fit(people, "independent", wanted, schema=SECTIONS),
        us.fit(people, "independent", epsilon=2, delta=1e-7, schema=SECTIONS),
    ]
    assert released[0].statement.queries == released[1].statement.queries


@pytest.mark.parametrize(
    ("given", "setting"),
    [
        ({}, "epsilon"),
        ({"delta": 1e-6}, "delta"),
        ({"guarantee": us.Guarantee(1.0), "epsilon": 1}, "guarantee"),
        ({"guarantee": us.Guarantee(1.0), "delta": 1e-6}, "guarantee"),
        ({"guarantee": 1.0}, "guarantee"),
        ({"epsilon": "1"}, "epsilon"),
    ],
)
def test_what_is_no_guarantee_is_one_line(people: pd.DataFrame, given: dict[str, Any], setting: str) -> None:
    with raises(us.ConfigError, setting=setting) as raised:
        us.fit(people, "independent", schema=SECTIONS, **given)
    assert "\n" not in str(raised.value)


# --- The schema ---


def test_a_schema_is_given_as_file_dict_or_object(people: pd.DataFrame, tmp_path: Path) -> None:
    path = tmp_path / "people.toml"
    schema = us.Schema.from_toml(
        '[table]\nrows = 200\n[columns.income]\nkind = "categorical"\ncategories = ["low", "high"]\n'
        '[columns.age]\nkind = "integer"\nbounds = [0, 100]\n'
    )
    schema.write(path)
    for given in (schema, schema.to_dict(), SECTIONS, path, str(path)):
        assert us.fit(people, "independent", epsilon=1, schema=given).schema == schema
        assert us.plan(given, "independent", epsilon=1) == us.plan(schema, "independent", us.Guarantee(1.0))
        assert us.guarantee_for(given, "1-way 5%", "independent").epsilon > 0
        scores = us.evaluate(people, people, holdout=people, schema=given, metrics=["tv1"], effort="quick")
        assert scores["tv1"] == 0.0


@pytest.mark.parametrize(
    ("given", "fields"),
    [
        (5, {"column": None, "key": None}),
        ("absent.toml", {"column": None, "key": None}),
        ({"colums": {}}, {"key": "colums"}),
        ({"columns": {"age": {"kind": "number"}}}, {"column": "age", "key": "kind"}),
    ],
)
def test_what_is_no_schema_is_one_line(people: pd.DataFrame, given: Any, fields: dict[str, str | None]) -> None:
    with raises(us.SchemaError, **fields):
        us.fit(people, "independent", epsilon=1, schema=given)


# --- Warnings ---


def _warnings_of(call: Any) -> list[str]:
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        call()
    ours = [each for each in found if each.category is us.UnderstudyWarning]
    assert all(each.filename == __file__ for each in ours), "they point at the caller's line"
    return [str(each.message) for each in ours]


def test_a_declared_schema_warns_of_nothing(people: pd.DataFrame) -> None:
    assert _warnings_of(lambda: us.fit(people, "independent", epsilon=1, schema=SECTIONS)) == []


def test_fit_warns_of_what_its_notes_say(people: pd.DataFrame) -> None:
    """Without a schema the few rows of a small table are not enough to estimate its categories."""
    released: list[us.Release] = []
    found = _warnings_of(lambda: released.append(us.fit(people, "independent", epsilon=1)))
    noted = [note.text for note in released[0].notes if str(note).startswith("Warning: ")]
    assert noted
    assert found[1:] == noted
    assert found[0].startswith("The schema was drafted from the table, and each row counts as one person.")


def test_a_seed_is_warned_of(people: pd.DataFrame) -> None:
    (found,) = _warnings_of(lambda: us.fit(people, "independent", epsilon=1, schema=SECTIONS, seed=0))
    assert "not private" in found


def test_plan_and_evaluate_warn(people: pd.DataFrame) -> None:
    (found,) = _warnings_of(lambda: us.plan(SECTIONS, "independent", epsilon=1, delta=2e-3))
    assert found.startswith("Delta 0.002 is large")
    few = people[:5].reset_index(drop=True)
    scores: list[us.Scorecard] = []
    call = {"holdout": people, "schema": SECTIONS, "metrics": ["tv1"], "effort": "quick"}
    found_of_scores = _warnings_of(lambda: scores.append(us.evaluate(people, few, **call)))
    assert found_of_scores == list(scores[0].warnings)
    assert found_of_scores


def test_the_command_line_prints_each_warning_once(
    people: pd.DataFrame, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    people.to_csv(tmp_path / "people.csv", index=False)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        arguments = ["fit", str(tmp_path / "people.csv"), "--epsilon", "1", "--method", "independent"]
        assert run([*arguments, "-o", str(tmp_path / "release")]) == 0
        said = capsys.readouterr().err
        assert said.count("Category lists were estimated privately") == 1
        people[:5].to_csv(tmp_path / "few.csv", index=False)
        files = [str(tmp_path / "people.csv"), str(tmp_path / "few.csv")]
        assert run(["evaluate", *files, "--holdout", files[0], "--metric", "tv1", "--quick"]) == 0
    said = capsys.readouterr().out
    assert said.count("synthetic table has 5 rows") == 1


# --- Progress ---


def test_progress_true_prints_lines_where_there_is_no_terminal(
    people: pd.DataFrame, capsys: pytest.CaptureFixture[str]
) -> None:
    us.fit(people, "independent", epsilon=1, schema=SECTIONS, progress=True)
    assert capsys.readouterr().err.startswith("  0%  encoding the table")
    us.fit(people, "independent", epsilon=1, schema=SECTIONS, progress=False)
    us.fit(people, "independent", epsilon=1, schema=SECTIONS)
    assert capsys.readouterr().err == ""
    us.evaluate(people, people, holdout=people, schema=SECTIONS, metrics=["tv1"], effort="quick", progress=True)
    assert "100%  evaluated" in capsys.readouterr().err


def test_progress_in_a_notebook_is_one_bar_that_goes_away(monkeypatch: pytest.MonkeyPatch) -> None:
    """IPython's own display handle is replaced: a notebook cannot run here."""
    shown: list[str] = []
    display = types.ModuleType("IPython.display")
    display.HTML = str  # type: ignore[attr-defined]  # a made-up module

    def show(content: str, display_id: bool) -> Any:
        shown.append(content)
        return types.SimpleNamespace(update=shown.append)

    display.display = show  # type: ignore[attr-defined]  # a made-up module
    ipython = types.ModuleType("IPython")
    ipython.get_ipython = lambda: types.SimpleNamespace(kernel=1)  # type: ignore[attr-defined]  # a made-up module
    monkeypatch.setitem(sys.modules, "IPython", ipython)
    monkeypatch.setitem(sys.modules, "IPython.display", display)
    with display_progress("fitting") as report:
        report(0.5, "step <1>")
        report(1.0, "done")
    assert shown[0].startswith("<progress")
    assert "step &lt;1&gt;" in shown[1]
    assert "100% done" in shown[2]
    assert shown[-1] == ""


def test_what_is_no_progress_is_refused() -> None:
    with raises(us.ConfigError, setting="progress"), open_progress("yes", "x"):  # type: ignore[arg-type]  # a wrong type
        pass
