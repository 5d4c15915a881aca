"""The factorial experiment of the DP-GAN abstract: its effects, its verdict, and its page."""

import itertools
import re
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks.papers import experiment
from benchmarks.papers.dpgan import ablation, groups, summary

BLOCKS = [("adult", 1.0), ("adult", 3.0), ("bank", 1.0)]


def lines_of(value: Any, *, noise: float = 0.0, seeds: int = 5, suffix: str = "") -> list[dict[str, Any]]:
    """Lines whose scores are a function of the design, plus noise."""
    draw = np.random.default_rng(0)
    return [
        {
            "table": table + suffix,
            "epsilon": epsilon,
            "seed": seed,
            "method": ablation.name_of(design),
            "expression": ablation.expression_of(design),
            "scores": {name: value(*design) + epsilon / 10 + noise * draw.normal() for name in ablation.SCORES},
            "real": {"auc": 0.9, "f1": 0.7},
            "day": "2026-11-17",
            "machine": "test",
        }
        for (table, epsilon), seed, design in itertools.product(BLOCKS, range(seeds), ablation.DESIGNS)
    ]


def effects(lines: list[dict[str, Any]]) -> dict[str, float]:
    runs = ablation.runs_of(lines, "auc")
    terms = [term for size in (1, 2, 3) for term in itertools.combinations(ablation.FACTORS, size)]
    found = {" x ".join(term): ablation.estimate(runs, ablation.effect(term)) for term in terms}
    return {name: each.value for name, each in found.items() if each is not None}


def test_effects_are_those_of_the_recipe() -> None:
    """Two techniques that add up, one without effect, and a pair of which the second helps only beside the first."""
    found = effects(lines_of(lambda g, a, w, s: 0.5 + 0.1 * w - 0.03 * g + 0.04 * (g and s)))
    expected = {"warm": 0.1, "groups": -0.03 + 0.02, "selected": 0.02, "adaptive": 0.0, "groups x selected": 0.02}
    for name, value in found.items():
        assert value == pytest.approx(expected.get(name, 0.0), abs=1e-12)


def test_intervals_hold_the_truth_as_often_as_they_say() -> None:
    """A known effect of 0.02 under noise: 95 of 100 intervals, give or take four standard deviations."""
    inside = 0
    for seed in range(100):
        draw = np.random.default_rng(seed)
        runs = {
            block: {
                number: {design: 0.02 * design[2] + 0.05 * draw.normal() for design in ablation.DESIGNS}
                for number in range(5)
            }
            for block in BLOCKS
        }
        found = ablation.estimate(runs, ablation.effect(["warm"]))
        assert found is not None
        inside += found.low <= 0.02 <= found.high
    assert 86 <= inside <= 100


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (lambda g, a, w, s: 0.5 + 0.1 * (g + a + w + s), "holds: all four together are better than smart clipping, "),
        (lambda g, a, w, s: 0.5 + 0.1 * w - 0.05 * g, "does not hold: .*warm start alone is better"),
        (lambda g, a, w, s: 0.5, "is not shown: for smart clipping, .* alone the interval includes zero"),
    ],
)
def test_the_verdict_follows_from_the_intervals(value: Any, words: str) -> None:
    found = ablation.verdict(ablation.runs_of(lines_of(value, noise=0.001), "auc"))
    assert re.search(words, found), found


def test_incomplete_sets_are_left_out() -> None:
    lines = lines_of(lambda g, a, w, s: 0.5)[:-1]
    assert sum(map(len, ablation.runs_of(lines, "auc").values())) == 14
    assert ablation.verdict(ablation.runs_of(lines[:16], "auc")) == "Not yet run."


def test_every_combination_is_one_cell_of_each_block() -> None:
    cells = ablation.CELLS["paper"]
    assert len({cell.key for cell in cells}) == len(cells) == 18 * 6 * 5
    assert ablation.expression_of((True, True, True, True)).startswith("selected(dpgan(fake_term=clipped, clip_groups=")
    assert ablation.expression_of((False, False, True, False)) == "dpgan(fake_term=clipped)"
    # A warm start is no part of the expression: the group keeps such cells apart.
    assert len({(cell.table, cell.group) for cell in cells}) == 18 * 3


def test_the_page_names_all_blocks_and_what_real_rows_reach() -> None:
    lines = lines_of(lambda g, a, w, s: 0.5, noise=0.01) + lines_of(lambda g, a, w, s: 0.4, suffix=ablation.BARE)
    text = ablation.page(lines)
    for words in (
        "adult, epsilon 1",
        "bank without marginals",
        "| real rows | 0.900",
        "groups x adaptive x warm x sel",
    ):
        assert words in text


def test_the_summary_has_a_row_for_every_claim_also_without_results(monkeypatch: pytest.MonkeyPatch) -> None:
    """And names what was not run."""
    for found in ([], lines_of(lambda g, a, w, s: 0.5 + 0.1 * w, noise=0.001)):
        monkeypatch.setattr(summary, "read", lambda name, found=found: found if name == ablation.NAME else [])
        assert [row.id for row in summary.rows()][:3] == ["D1", "D2", "D4"]
        assert {row.id for row in summary.rows()} == {"D1", "D2", "D3", "D4", "D5", "D6"}
        verdicts = dict(summary.verdicts())
        assert verdicts["Warm start improves a DP-GAN."].startswith("AUC with it" if found else "Not yet run.")
    assert "+0.100 ±" in verdicts["Warm start improves a DP-GAN."]


def test_the_causes_are_told_from_the_means() -> None:
    """Only what was run is told."""
    lines = [
        {"method": f"{variant} | {term}", "epsilon": 1.0, "seed": 100, "scores": {"auc": value, "tvd2": 0.1}}
        for variant, term, value in (
            ("one clip norm", "separate", 0.87),
            ("one clip norm", "clipped", 0.88),
            ("four groups", "separate", 0.70),
            ("four groups", "clipped", 0.86),
        )
    ]
    text = groups.explanation(lines)
    assert (
        "0.870 if generated rows are not clipped, and 0.880 if they are. Four groups change these by -0.170 and" in text
    )
    assert "-0.020." in text
    assert "hardly any noise" not in text
    assert groups.explanation(lines[:1]) == "Not yet run."


@pytest.mark.slow
def test_the_experiment_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    """In small: every part, and a public table where it is wanted only."""
    wanted = {"groups + adaptive + warm + selected", "plain"}
    every = ablation.cells_of(["breast"], [3.0], [0], f"{ablation.SMALL}, warm_steps=10", checkpoints=2)
    cells = [cell for cell in every if cell.method in wanted]
    lines = list(experiment.run_cells(ablation.EXPERIMENT, cells))
    assert [line["method"] for line in lines] == [cell.method for cell in cells]
    for line in lines:
        assert "error" not in line, line
        assert set(line["scores"]) == set(ablation.SCORES)
    table = ablation.load("breast", 0)
    assert [ablation.public_rows(cell, table) is not None for cell in cells] == [True, False]
