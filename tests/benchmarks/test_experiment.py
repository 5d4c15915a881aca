"""Experiments of the papers: which cells train together, what is kept, and what a run that is cut short loses."""

import dataclasses
import json
import math
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import understudy as us
from benchmarks.papers import experiment
from benchmarks.papers.experiment import Cell, Public

SCHEMA = us.Schema(columns=(us.Column(name="a", kind="boolean", nullable=False),), rows=200)


def load(name: str, seed: int) -> Public:
    rows = pa.table({"a": [True, True, True, False] * 50})
    return Public(rows, rows, SCHEMA)


def score(cell: Cell, public: Public, fake: pa.Table) -> dict[str, Any]:
    return {"scores": {"true": sum(fake.column("a").to_pylist()) / fake.num_rows}}


def all_false(public: Public, seed: int) -> pa.Table:
    return pa.table({"a": [False] * 4})


EXPERIMENT = experiment.Experiment("made", load, score, baselines={"false": all_false})
CELLS = [Cell("t", "false", "false", math.inf, 0)] + [Cell("t", "i", "independent", 9.0, seed) for seed in range(2)]


def test_cells_that_differ_in_seed_and_budget_train_together() -> None:
    cells = [Cell("t", "m", "mst", epsilon, seed) for seed in range(2) for epsilon in (1.0, 3.0)]
    other = [
        Cell("u", "m", "mst", 1.0, 0),
        Cell("t", "m", "mst", math.inf, 0),
        Cell("t", "x", "aim", 1.0, 0, group="mst"),
    ]
    groups = experiment.group_cells([*cells, *other])
    assert groups == [[*cells, other[2]], [other[0]], [other[1]]]
    many = [Cell("t", "m", "mst", 1.0, seed) for seed in range(experiment.MAX_MEMBERS + 1)]
    assert [len(group) for group in experiment.group_cells(many)] == [81, 80]


def test_a_cell_is_what_fit_gives() -> None:
    lines = list(experiment.run_cells(EXPERIMENT, CELLS))
    assert [line["scores"]["true"] for line in lines[:1]] == [0.0]
    release = us.fit(load("t", 1).train, "independent", us.Guarantee(9.0, 1e-5), schema=SCHEMA, seed=1)
    expected = release.sample_arrow(200, seed=1).column("a").to_pylist()
    assert lines[2]["scores"]["true"] == sum(expected) / 200


def test_an_error_belongs_to_its_cell() -> None:
    bad = Cell("t", "bad", "mst(no_such=1)", 1.0, 0)
    lines = list(experiment.run_cells(EXPERIMENT, [bad, *CELLS]))
    assert "no_such" in lines[0]["error"]
    assert all("error" not in line for line in lines[1:])


def test_a_script_whose_cells_fail_says_so(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(sys, "argv", ["made.py"])
    with pytest.raises(SystemExit) as ended:
        experiment.main(EXPERIMENT, "", {"smoke": [Cell("t", "bad", "mst(no_such=1)", 1.0, 0)]}, lambda lines: "page")
    assert ended.value.code == 1
    assert "1 of 1 cells failed" in capsys.readouterr().err


def test_no_group_begins_after_the_limit() -> None:
    assert not list(experiment.run_cells(EXPERIMENT, CELLS, limit_seconds=0.0))


def test_finished_cells_are_not_run_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["made.py", "--profile", "paper", "--folder", str(tmp_path)])
    experiment.main(EXPERIMENT, "", {"paper": CELLS[:2]}, lambda lines: "page")
    file = tmp_path / "made.jsonl"
    file.write_text(file.read_text() + '{"key": "cut')
    capsys.readouterr()
    experiment.main(EXPERIMENT, "", {"paper": CELLS}, lambda lines: "page")
    assert len(capsys.readouterr().out.splitlines()) == 1  # the third cell alone
    assert {json.loads(line)["seed"] for line in file.read_text().splitlines()} == {0, 1}


def test_a_missing_table_ends_a_script_with_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from benchmarks.papers.autogan import adult
    from benchmarks.papers.command import require_tables, run_script

    monkeypatch.setenv("UNDERSTUDY_DATA", str(tmp_path))
    monkeypatch.setattr(sys, "argv", ["adult.py", "--trainers", "1"])
    adult.load.cache_clear()
    scripts = (
        lambda: experiment.main(adult.EXPERIMENT, "", adult.CELLS, adult.page),
        lambda: run_script(lambda: require_tables(["titanic", "car"])),
    )
    for script in scripts:
        with pytest.raises(SystemExit) as ended:
            script()
        assert ended.value.code == 2
        (line,) = capsys.readouterr().err.splitlines()
        assert line.startswith("adult.py: ")
        assert "understudy benchmark fetch" in line
    adult.load.cache_clear()


def test_tables_that_a_run_left_are_scored_and_not_made_again(tmp_path: Path) -> None:
    experiment.fit_group(EXPERIMENT, CELLS[:2], tmp_path)
    cannot_fit = dataclasses.replace(EXPERIMENT, public=lambda cell, table: 1 / 0, baselines={})
    lines = list(experiment.run_cells(cannot_fit, CELLS[:2], tables=tmp_path))
    assert [line["key"] for line in lines] == [cell.key for cell in CELLS[:2]]
    assert not list(tmp_path.iterdir())


def test_blocks_of_seeds_have_some_of_everything_first() -> None:
    cells = [Cell("t", method, method, 1.0, seed) for method in ("a", "b") for seed in range(4)]
    blocks = experiment.group_cells(cells, block=2)
    assert [(group[0].method, [cell.seed for cell in group]) for group in blocks] == [
        ("a", [0, 1]),
        ("b", [0, 1]),
        ("a", [2, 3]),
        ("b", [2, 3]),
    ]


@pytest.mark.slow
def test_a_run_in_processes_has_the_lines_of_a_run_without() -> None:
    keys = ("key", "scores", "stated_epsilon")
    alone, together = (
        sorted(
            [{key: line[key] for key in keys} for line in experiment.run_cells(EXPERIMENT, CELLS, trainers=trainers)],
            key=str,
        )
        for trainers in (0, 1)
    )
    assert alone == together
