"""The page of a utility benchmark on made-up results, whose wins, lost cells and ranks are known."""

import json
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2]))

from benchmarks import adult_table, utility
from benchmarks.utility_page import (
    REAL,
    as_markdown,
    count_wins,
    group_results,
    lost_cells,
    mean_ranks,
    worst_ratios,
)

RESULTS = Path(utility.__file__).parent / "results"
SUITE = {"title": "Made up", "methods": ["auto", "aim", "mst", REAL], "compare": ("auto", "aim")}


def runs(table: str, epsilon: float | None, method: str, **figures: list[float]) -> list[dict]:
    """One result for each seed: `runs("car", 1.0, "mst", auc=[0.8, 0.9])`."""
    cell = {"table": table, "epsilon": epsilon, "method": method, "delta": 1e-5}
    return [
        {**cell, "seed": seed, "machine": "none", **dict(zip(figures, values, strict=True))}
        for seed, values in enumerate(zip(*figures.values(), strict=True))
    ]


def failed(table: str, epsilon: float, method: str) -> dict:
    return {"table": table, "epsilon": epsilon, "method": method, "delta": 1e-5, "seed": 0, "failed": "too slow"}


MADE = [
    # Clearly behind in AUC; the 2-way error is 1.04 times the best: not lost.
    *runs("car", 1.0, "auto", auc=[0.80, 0.80, 0.80], tvd2=[0.104] * 3, worst2=[0.4] * 3, v_worst=[0.1] * 3),
    *runs("car", 1.0, "aim", auc=[0.81, 0.81, 0.81], tvd2=[0.100] * 3, worst2=[0.2] * 3, v_worst=[0.4] * 3),
    *runs("car", 1.0, "mst", auc=[0.70, 0.70, 0.70], tvd2=[0.200] * 3, worst2=[0.3] * 3, v_worst=[0.2] * 3),
    # Behind mst by 0.02, with standard errors of 0.0173 and 0: less than two. The 2-way error is 1.06 times the best.
    *runs("bank", 1.0, "auto", auc=[0.75, 0.78, 0.81], tvd2=[0.106] * 3, worst2=[0.2] * 3, v_worst=[0.2] * 3),
    *runs("bank", 1.0, "aim", auc=[0.70, 0.70, 0.70], tvd2=[0.110] * 3, worst2=[0.4] * 3, v_worst=[0.2] * 3),
    *runs("bank", 1.0, "mst", auc=[0.80, 0.80, 0.80], tvd2=[0.100] * 3, worst2=[0.4] * 3, v_worst=[0.2] * 3),
    # R2, behind by 0.004 only; aim failed.
    *runs("wage", 0.1, "auto", r2=[0.300, 0.300, 0.300], tvd2=[0.1] * 3, worst2=[0.2] * 3, v_worst=[0.2] * 3),
    failed("wage", 0.1, "aim"),
    *runs("wage", 0.1, "mst", r2=[0.304, 0.304, 0.304], tvd2=[0.2] * 3, worst2=[0.4] * 3, v_worst=[0.0] * 3),
    # No target, and auto failed.
    failed("nltcs", 0.1, "auto"),
    *runs("nltcs", 0.1, "aim", tvd2=[0.1] * 3, worst2=[0.2] * 3, v_worst=[0.2] * 3),
    *runs("nltcs", 0.1, "mst", tvd2=[0.1] * 3, worst2=[0.2] * 3, v_worst=[0.2] * 3),
    *runs("car", None, REAL, auc=[0.99], tvd2=[0.0], worst2=[0.0], v_worst=[0.0]),
]


def test_lost_cells() -> None:
    found = {(each.table, each.figure): each.best_method for each in lost_cells(group_results(MADE), "auto")}
    assert found == {("car", "auc"): "aim", ("bank", "tvd2"): "mst", ("nltcs", "tvd2"): "aim"}


def test_a_gap_beyond_two_standard_errors_is_lost() -> None:
    """The same means as above, with a standard error of 0.00058 instead of 0.0173."""
    close = [row for row in MADE if row["table"] == "bank" and row["method"] != "auto"]
    close += runs("bank", 1.0, "auto", auc=[0.779, 0.78, 0.781], tvd2=[0.09] * 3)
    assert [each.figure for each in lost_cells(group_results(close), "auto")] == ["auc"]


def test_wins_and_losses() -> None:
    cells = group_results(MADE)
    assert count_wins(cells, "auto", "aim", "auc", 1.0) == (1, 1, 1, 1)
    assert count_wins(cells, "auto", "aim", "tvd2", 1.0) == (1, 1, 1, 1)
    assert count_wins(cells, "auto", "mst", "auc", 1.0) == (1, 1, 1, 0)
    assert count_wins(cells, "auto", "aim", "r2", 0.1) == (1, 0, 1, 0)  # aim failed
    assert count_wins(cells, "auto", "aim", "tvd2", 0.1) == (1, 1, 1, 1)
    assert count_wins(cells, "aim", "mst", "tvd2", 0.1) == (0, 1, 0, 1)  # equal on nltcs: neither
    assert count_wins(cells, "auto", "aim", "f1", 1.0) == (0, 0, 0, 0)


def test_mean_ranks() -> None:
    """Task: car 2 1 3, bank 2 3 1, wage 2 3 1. 2-way error: car 2 1 3, bank 2 3 1, wage 1 3 2, nltcs 3 1.5 1.5."""
    ranks = mean_ranks(group_results(MADE), ["auto", "aim", "mst"])
    assert ranks["task"] == (pytest.approx({"auto": 2, "aim": 7 / 3, "mst": 5 / 3}), 3)
    assert ranks["tvd2"] == (pytest.approx({"auto": 2, "aim": 8.5 / 4, "mst": 7.5 / 4}), 4)
    assert mean_ranks(group_results(MADE), ["auto", "gem"]) == {}


def test_ratios_of_the_largest_errors() -> None:
    cells = group_results(MADE)
    assert worst_ratios(cells, "auto", "worst2") == pytest.approx(
        {("car", 1.0): 2.0, ("bank", 1.0): 0.5, ("wage", 0.1): 0.5}
    )
    assert worst_ratios(cells, "auto", "v_worst") == pytest.approx({("car", 1.0): 0.5, ("bank", 1.0): 1.0})


def test_the_page_shows_it() -> None:
    lines = as_markdown(MADE, "made", SUITE).splitlines()
    assert "| tvd2 | 1 : 1 (1 : 1) | 1 : 1 (1 : 1) |" in lines
    assert "| AUC or R2 | 0 of 1 (0%) | 1 of 2 (50%) | 1 of 3 (33%) |" in lines
    assert "| tvd2 | 1 of 2 (50%) | 1 of 2 (50%) | 2 of 4 (50%) |" in lines
    assert "| either | 1 of 2 (50%) | 2 of 2 (100%) | 3 of 4 (75%) |" in lines
    assert "| car | 1 | AUC | 0.8000 | 0.8100 | aim |" in lines
    assert "| nltcs | 0.1 | tvd2 | failed | 0.1000 | aim |" in lines
    assert "| auto | 2.00 | 2.00 |" in lines
    assert "| car |  | 2.00 |  | 0.50 |" in lines
    assert "| *median* | 0.50 | 1.25 |  | 0.75 |" in lines
    assert any(line.startswith("| car |  | real data | 0 | 0.9900 |") for line in lines)
    assert "| nltcs | 0.1 | auto |  | too slow |" in lines


def test_one_method_alone_makes_a_page() -> None:
    page = as_markdown(runs("car", 1.0, "auto", auc=[0.8], tvd2=[0.1]), "made", SUITE)
    assert "| car | 1 | auto | 0 | 0.8000 | 0.1000 |" in page
    assert "0.8000" in as_markdown(runs("car", 1.0, "other", auc=[0.8], tvd2=[0.1]), "made", SUITE)


def table_of(page: str) -> list[dict[str, str]]:
    """The table of a page that has one only, a line as a mapping from column to value."""
    lines = [[value.strip() for value in line.strip("|").split("|")] for line in page.splitlines() if line[:1] == "|"]
    rows = [dict(zip(lines[0], line, strict=False)) for line in lines[2:]]
    return sorted(rows, key=lambda row: (row["table"], row["epsilon"], row["method"]))


@pytest.mark.parametrize("suite", ["gem", "pate", "wide"])
def test_pages_of_earlier_results_stay_as_they_are(suite: str) -> None:
    """They lack some figures, which must not matter. Titles and the order of lines changed, values did not."""
    results = utility.read_results(RESULTS / f"utility_{suite}.jsonl")
    old = table_of((RESULTS / f"utility_{suite}.md").read_text().replace("TSTR ", ""))
    new = table_of(as_markdown(results, suite, utility.SUITES[suite]))
    assert len(old) == len(new) > 0
    for before, after in zip(old, new, strict=True):
        assert "AUC" in after or "tvd2" in after
        assert {key: before.get(key) for key in after} == after


def test_results_of_an_earlier_revision_are_counted_run_again_and_replaced(tmp_path: Path) -> None:
    cell = {"table": "car", "epsilon": 1.0, "method": "mst", "delta": 1e-5, "seed": 0}
    old, other = {**cell, "auc": 0.7}, {**cell, "method": "privbayes", "auc": 0.6}
    (tmp_path / "utility_default.jsonl").write_text("".join(json.dumps(each) + "\n" for each in (old, other)))
    record = utility.Record(tmp_path, "default")
    assert cell not in record
    assert other in record
    record.add({**other, "seed": 1})
    assert "**1 of the 3 results were run with an earlier revision" in record.page.read_text()
    record.add({**cell, "auc": 0.8, "revisions": utility.revisions_of("mst")})
    assert cell in utility.Record(tmp_path, "default")
    assert "earlier revision" not in record.page.read_text()
    assert [each["auc"] for each in utility.read_results(record.path) if each["method"] == "mst"] == [0.8]


def test_cells_of_a_suite() -> None:
    cells = list(utility.cells_of(["car", "bank"], [1.0], ["auto", "aim", REAL], 3))
    assert len(cells) == 2 * 2 * 3 + 2
    assert [cell["table"] for cell in cells if cell["method"] == REAL] == ["car", "bank"]
    assert len({utility._key(cell) for cell in cells}) == len(cells)


def test_a_cell_has_all_figures() -> None:
    cells = list(utility.cells_of(["diabetes"], [1.0], ["independent", REAL], 1))
    real, fake = map(utility.run_cell, cells)
    assert real.keys() - cells[0].keys() == {
        "tvd1",
        "tvd2",
        "worst2",
        "v_loss",
        "v_worst",
        "r2",
        "revisions",
        "machine",
    }
    assert fake.keys() - real.keys() == {"cpu", "wall"}
    assert real["tvd2"] == 0.0 < fake["tvd2"]
    assert fake["r2"] < real["r2"]


def test_sources_that_are_absent_are_named(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("UNDERSTUDY_DATA", str(tmp_path))
    assert utility.present_tables(["car", "xor3", "wide"]) == ["xor3", "wide"]
    assert capsys.readouterr().err == (
        f"benchmarks/utility.py: skipped car: car.parquet not found in {tmp_path}. "
        "Get it with: understudy benchmark fetch car\n"
    )
    (tmp_path / "car.parquet").touch()
    assert utility.present_tables(["car", "nltcs"]) == ["car"]


def test_gathered_results_are_taken_over_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    elsewhere = tmp_path / "cells.jsonl"
    elsewhere.write_text("".join(json.dumps(row) + "\n" for row in MADE))
    command = [utility.__file__, "default", "--out", str(tmp_path), "--gather", str(elsewhere)]
    monkeypatch.setattr(sys, "argv", command)
    for _ in range(2):
        utility.main()
    assert utility.read_results(tmp_path / "utility_default.jsonl") == MADE
    assert "| either | 1 of 2 (50%) | 2 of 2 (100%) | 3 of 4 (75%) |" in (tmp_path / "utility_default.md").read_text()


def adult_results() -> list[dict]:
    private = {"auc": [0.9, 0.8], "tvd2": [0.1, 0.2], "worst2": [0.3, 0.3], "v_loss": [0.0, 0.1], "cpu": [3.0, 5.0]}
    made = [row for method in adult_table.METHODS if method != REAL for row in runs("adult", 1.0, method, **private)]
    return made + runs("adult", None, REAL, auc=[0.91], tvd2=[0.0], worst2=[0.0], v_loss=[0.0])


def test_the_block_of_the_page() -> None:
    block = adult_table.make_block(adult_results())
    assert "| `auto` | 0.850 | 0.150 | 0.300 | 0.050 | 4 |" in block.splitlines()
    assert "| real data | 0.910 | 0.000 | 0.000 | 0.000 |  |" in block.splitlines()
    assert "mean of 2 seeds" in block
    text = f"before\n{adult_table.BEGIN}\nold\n{adult_table.END}\nafter\n"
    once = adult_table.replace_block(text, block)
    assert once.startswith("before\n")
    assert once.endswith("\nafter\n")
    assert "old" not in once
    assert adult_table.replace_block(once, block) == once


def test_what_cannot_be_put_into_the_page_is_refused() -> None:
    with pytest.raises(ValueError, match="found none of gem"):
        adult_table.make_block(row for row in adult_results() if row["method"] != "gem")
    with pytest.raises(ValueError, match="once each"):
        adult_table.replace_block("no comments", "block")


def test_the_page_has_what_the_results_give() -> None:
    text = adult_table.PAGE.read_text()
    if not adult_table.RESULTS.exists():
        assert adult_table.replace_block(text, "block") != text  # the comments are there
        pytest.skip("There are no results of the default suite yet.")
    block = adult_table.make_block(utility.read_results(adult_table.RESULTS))
    assert adult_table.replace_block(text, block) == text
