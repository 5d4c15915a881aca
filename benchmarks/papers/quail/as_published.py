"""The QUAIL paper's synthesizers with their published networks and kinds of noise, on two of its tables.

    UNDERSTUDY_DATA=folder python benchmarks/papers/quail/as_published.py --profile paper --write

The other scripts and the suite `quail-paper` run this package's defaults. Here DPGAN and DP-CTGAN train with the
paper's noise multipliers until the budget is used, PATE-GAN and PATE-CTGAN have one teacher for every 1,000 rows and
Laplace votes, whose scale is calibrated to the budget, and MWEM has Laplace noise (`benchmarks/papers/published.py`),
each by itself and inside QUAIL, whose learner gets 0.8 of epsilon. Queries that the published code leaves uncharged are
not made: bounds, categories and conditions are declared or measured. Car and Mushroom have only categorical columns.
"""

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

sys.path.insert(0, str(Path(__file__).parents[3]))

import understudy as us
from benchmarks.papers import experiment, published
from benchmarks.papers.experiment import Cell, Line, Public
from benchmarks.papers.quail import core
from understudy.benchmark.scoring import Reference, score_table
from understudy.benchmark.tables import load_table
from understudy.synthesizers import express

SIZES = {"car": (1382, 25), "mushroom": (6499, 118)}
"""Declared number of training rows; number of network inputs, one per category."""
EPSILONS = (1.0, 9.0)
SEEDS = 3
FRACTION = 0.8
REAL = "real rows"
METRICS = {"f1": "F1", "auc": "AUC", "pmse_ratio": "pMSE ratio"}


def methods_of(num_rows: int, num_features: int) -> dict[str, us.Synthesizer]:
    """The paper's ten, in its order."""
    inner: dict[str, us.Synthesizer] = {
        "patectgan": published.quail_patectgan(num_rows),
        "mwem": published.quail_mwem(),
        "dpctgan": published.quail_dpctgan(num_rows),
        "dpgan": published.quail_dpgan_published(num_features, num_rows),
        "pategan": published.quail_pategan(num_features, num_rows),
    }
    quail = {f"quail({name})": us.Quail(method, learner_fraction=FRACTION) for name, method in inner.items()}
    return inner | quail


def make_cells(
    methods: Mapping[str, Mapping[str, us.Synthesizer]], epsilons: Sequence[float], seeds: int
) -> list[Cell]:
    """Table by table; methods without a network first."""
    cells = []
    for table, known in methods.items():
        cells.append(Cell(table, REAL, REAL, float("inf"), 0))
        for name in sorted(known, key=lambda name: "mwem" not in name):
            cells += [
                Cell(table, name, express(known[name]), epsilon, seed, group=f"{name}, {epsilon:g}")
                for epsilon in epsilons
                for seed in range(seeds)
            ]
    return cells


METHODS = {table: methods_of(*size) for table, size in SIZES.items()}
CELLS = {
    "smoke": make_cells({"car": {"mwem": METHODS["car"]["mwem"]}}, EPSILONS[:1], 1),
    "paper": make_cells(METHODS, EPSILONS, SEEDS),
}


def load(name: str, seed: int) -> Public:
    """The same rows for every seed."""
    found = load_table(name)
    assert found.test is not None
    return Public(found.train, found.test, found.schema)


def real_rows(public: Public, seed: int) -> pa.Table:
    return public.train


def score(cell: Cell, public: Public, fake: pa.Table) -> dict[str, Any]:
    """By the best of the paper's five classifiers."""
    real = Reference.of(public.train, public.test, schema=public.schema)
    found = score_table(fake, real, tuple(METRICS), seed=cell.seed)
    return {"scores": dict(found.metrics)}


EXPERIMENT = experiment.Experiment("quail_as_published", load, score, baselines={REAL: real_rows}, binning=core.BINNING)


def page(lines: Sequence[Line]) -> str:
    parts = []
    for table in sorted({line["table"] for line in lines}):
        here = [line for line in lines if line["table"] == table]
        names = [name for name in METHODS[table] if any(line["method"] == name for line in here)]
        header = ["", *(f"{title}, epsilon {epsilon:g}" for title in METRICS.values() for epsilon in EPSILONS)]
        real = [core.mean_of(here, key, method=REAL) if not at else None for key in METRICS for at in range(2)]
        rows: list[list[object]] = [[REAL, *real]]
        rows += [
            [name, *(core.mean_of(here, key, method=name, epsilon=e) for key in METRICS for e in EPSILONS)]
            for name in names
        ]
        parts.append(f"## {table}\n\n{experiment.table_of(header, rows)}\n")
    repeated = core.seeds_of([line for line in lines if line["method"] != REAL])
    return f"""# The QUAIL paper's synthesizers as published

{experiment.provenance("quail/as_published.py", lines)}

{__doc__.split(chr(10), 4)[4].strip()}

By metric and epsilon: F1 and AUC on real test rows of the best of the paper's five classifiers, trained on synthetic
rows, and the pMSE ratio of a tree. Means of {repeated} repetitions. Epsilon is the budget: what the ledger states for
Laplace noise is less, since its composition is tighter than the sum of pure epsilons by which that noise is set.

{chr(10).join(parts)}"""


if __name__ == "__main__":
    experiment.main(EXPERIMENT, __doc__ or "", CELLS, page)
