"""The internal classification table (figures 5a, 26, 27a), by a simulated substitute.

    python benchmarks/papers/quail/internal.py --profile paper --write

100,000 rows, 30 categorical columns of 2 to 50 categories after Zipf's law, three classes by a logistic rule
(`made_categorical`); 80% to fit. The paper's synthesizers by themselves and inside QUAIL: F1 and AUC of the best of
its five classifiers, and pMSE ratio.
"""

import dataclasses
import functools
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

sys.path.insert(0, str(Path(__file__).parents[3]))

from benchmarks.papers import experiment
from benchmarks.papers.experiment import Cell, Line, Public
from benchmarks.papers.quail import core
from benchmarks.simulated import made_categorical
from understudy.benchmark.scoring import Reference, score_table
from understudy.benchmark.tables import split_rows

EPSILONS = (1.0, 3.0, 9.0)
SEEDS = 3
REAL = "real rows"
METHODS = [*core.INNER, *(f"quail({name})" for name in core.INNER), "independent"]
METRICS = {"f1": "F1", "auc": "AUC", "pmse_ratio": "pMSE ratio"}
SCORED_ROWS = 5000


def make_cells(table: str, methods: Sequence[str], epsilons: Sequence[float], seeds: int) -> list[Cell]:
    cells = [Cell(table, REAL, REAL, float("inf"), 0)]
    for name in methods:
        cells += [Cell(table, name, name, epsilon, seed) for epsilon in epsilons for seed in range(seeds)]
    return cells


CELLS = {
    "smoke": make_cells("internal_small", ("independent",), (3.0,), 1),
    "paper": make_cells("internal", METHODS, EPSILONS, SEEDS),
}


@functools.cache
def load(name: str, seed: int = 0) -> Public:
    """The same table for every seed."""
    table, _, schema = made_categorical() if name == "internal" else made_categorical(rows=1000, columns=4)
    train, test = split_rows(table)
    return Public(train, test, dataclasses.replace(schema, rows=train.num_rows))


def real_rows(public: Public, seed: int) -> pa.Table:
    return public.train


def score(cell: Cell, public: Public, fake: pa.Table) -> dict[str, Any]:
    real = Reference.of(public.train, public.test, schema=public.schema, max_rows=SCORED_ROWS)
    found = score_table(fake, real, tuple(METRICS), seed=cell.seed)
    return {"scores": dict(found.metrics)}


EXPERIMENT = experiment.Experiment(
    "quail_internal",
    load,
    score,
    baselines={REAL: real_rows},
    binning=core.BINNING,
    synthetic_rows=10_000,
)


def page(lines: Sequence[Line]) -> str:
    names = [name for name in METHODS if any(line["method"] == name for line in lines)]
    header = ["", *(f"{title}, epsilon {epsilon:g}" for title in METRICS.values() for epsilon in EPSILONS)]
    rows: list[list[object]] = [
        [REAL, *(core.mean_of(lines, key, method=REAL) if not at else None for key in METRICS for at in range(3))]
    ]
    rows += [
        [name, *(core.mean_of(lines, key, method=name, epsilon=epsilon) for key in METRICS for epsilon in EPSILONS)]
        for name in names
    ]
    return f"""# The internal classification table, simulated

{experiment.provenance("quail/internal.py", lines)}

By metric and epsilon: F1 and AUC on real test rows of the best of the paper's five classifiers, trained on synthetic
rows, and the pMSE ratio of a tree; {SCORED_ROWS:,} rows of each table are scored. Means of
{core.seeds_of([line for line in lines if line["method"] != REAL])} repetitions.

{experiment.table_of(header, rows)}
"""


if __name__ == "__main__":
    experiment.main(EXPERIMENT, __doc__ or "", CELLS, page)
