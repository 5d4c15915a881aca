"""Learners by synthesizers: which of the two does QUAIL's success depend on (the paper's fifth punchline)?

    UNDERSTUDY_DATA=folder python benchmarks/papers/quail/grid.py --profile paper --write

QUAIL of four learners around the paper's five synthesizers, on three of its tables: F1 and AUC on real test rows of a
random forest and a logistic regression trained on synthetic rows, the better of the two. The variation of the means
between learners, and between synthesizers, is compared.
"""

import functools
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

sys.path.insert(0, str(Path(__file__).parents[3]))

import understudy as us
from benchmarks.papers import experiment
from benchmarks.papers.experiment import Cell, Line, Public
from benchmarks.papers.quail import core
from understudy.benchmark.tables import load_table
from understudy.learners.methods import Logistic, NaiveBayes, Perceptron, Prior
from understudy.synthesizers import express

LEARNERS = {
    "logistic": Logistic(),
    "naive_bayes": NaiveBayes(),
    "mlp": Perceptron(),
    "prior": Prior(),
}
"""This package's learners with their defaults; `prior` learns the proportions of the classes alone."""
TABLES = ("mushroom", "shopping", "car")
EPSILONS = (1.0, 3.0)
SEEDS = 5


def make_cells(tables: Sequence[str], inner: Sequence[str], learners: Sequence[str], seeds: int) -> list[Cell]:
    return [
        Cell(table, f"{learner} + {name}", f"quail({name}, learner={express(LEARNERS[learner])})", epsilon, seed, name)
        for table in tables
        for name in inner
        for learner in learners
        for epsilon in EPSILONS
        for seed in range(seeds)
    ]


CELLS = {
    "smoke": make_cells(("small",), ("independent",), ("naive_bayes",), 1),
    "paper": make_cells(TABLES, core.INNER, tuple(LEARNERS), SEEDS),
}


@functools.cache
def load(name: str, seed: int = 0) -> Public:
    """A public table, the same for every seed; `small` needs no data."""
    if name == "small":
        return core.load_classes("classes_800", 0)
    found = load_table(name)
    assert found.test is not None
    return Public(found.train, found.test, found.schema)


def score(cell: Cell, public: Public, fake: pa.Table) -> dict[str, Any]:
    both = [core.tstr_scores(public, fake, seed=cell.seed, model=model) for model in ("rf", "lr")]
    return {"scores": {key: max(each[key] for each in both) for key in ("f1", "auc")}}


EXPERIMENT = experiment.Experiment("quail_grid", load, score, binning=us.Binning(bins="uniform"), synthetic_rows=5000)


def means(lines: Sequence[Line], table: str, epsilon: float, score: str) -> np.ndarray:
    """Learners down, synthesizers across; NaN where nothing was run."""
    return np.array(
        [
            [
                np.nan if found is None else found
                for inner in core.INNER
                for found in [core.mean_of(lines, score, table=table, epsilon=epsilon, method=f"{learner} + {inner}")]
            ]
            for learner in LEARNERS
        ]
    )


def explained(grid: np.ndarray) -> tuple[float, float]:
    """The fractions of the variation of the means that lie between learners and between synthesizers."""
    total = float(((grid - grid.mean()) ** 2).sum())
    between = [float(grid.shape[1 - axis] * ((grid.mean(axis=1 - axis) - grid.mean()) ** 2).sum()) for axis in (0, 1)]
    return (between[0] / total, between[1] / total) if total else (float("nan"), float("nan"))


def trained_learners(grid: np.ndarray) -> np.ndarray:
    """The lines of learners that use the features."""
    return grid[[name != "prior" for name in LEARNERS]]


def complete_grids(lines: Sequence[Line], score: str = "f1") -> dict[tuple[str, float], np.ndarray]:
    """By table and epsilon, where all learners and synthesizers were run."""
    grids = {
        (table, epsilon): means(lines, table, epsilon, score)
        for table in dict.fromkeys(line["table"] for line in lines)
        for epsilon in sorted({line["epsilon"] for line in lines})
    }
    return {at: grid for at, grid in grids.items() if np.isfinite(grid).all()}


def page(lines: Sequence[Line]) -> str:
    parts, rows = [], []
    for score in ("f1", "auc"):
        for (table, epsilon), grid in complete_grids(lines, score).items():
            body: list[list[object]] = [[name, *map(float, row)] for name, row in zip(LEARNERS, grid, strict=True)]
            parts.append(
                f"## {table}, epsilon {epsilon:g}, {score.upper()}\n\n{experiment.table_of(['', *core.INNER], body)}\n"
            )
            figures = [f"{value:.2f}" for part in (grid, trained_learners(grid)) for value in explained(part)]
            rows.append([f"{table}, epsilon {epsilon:g}, {score.upper()}", *figures])
    header = ["", "between learners", "between synthesizers", "without `prior`: learners", "synthesizers"]
    return f"""# Learners by synthesizers

{experiment.provenance("quail/grid.py", lines)} `UNDERSTUDY_DATA` names the folder of tables.

`quail(synthesizer, learner=...)` with 0.9 of the budget for the learner, 5,000 synthetic rows; the better of a random
forest and a logistic regression on real test rows. Means of {core.seeds_of(lines)} repetitions. The fraction of the
variation of these means that lies between learners, and between synthesizers; `prior`, which learns the frequencies
of the classes and nothing else, determines most of it, so it stands there without `prior` as well:

{experiment.table_of(header, rows)}

{chr(10).join(parts)}"""


if __name__ == "__main__":
    experiment.main(EXPERIMENT, __doc__ or "", CELLS, page)
