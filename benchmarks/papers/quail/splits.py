"""The split of the budget between learner and method: difference of F1 by fraction and epsilon (figures 6, 7, 11-25).

    python benchmarks/papers/quail/splits.py --profile paper --write

scikit-learn's made classes (7 features, 10 classes), another table for each seed. Each cell is F1 of naive Bayes alone,
with the whole budget on real rows, less F1 of a random forest trained on QUAIL's rows: below zero QUAIL is better.
"""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

sys.path.insert(0, str(Path(__file__).parents[3]))

from benchmarks.papers import experiment
from benchmarks.papers.experiment import Cell, Line, Public
from benchmarks.papers.quail import core
from understudy.learners.methods import NaiveBayes
from understudy.synthesizers import express

LEARNER = NaiveBayes(numbers="gaussian")
FRACTIONS = (0.1, 0.3, 0.5, 0.7, 0.9)
EPSILONS = (1.0, 3.0, 10.0)
SIZES = (10_000, 50_000, 20_000, 30_000, 40_000)
SEEDS = 10
SYNTHETIC_ROWS = 5000
"""The rows that the forest is trained on, whatever the size of the table: its training takes most of the time."""


def make_cells(
    sizes: Sequence[int], inner: Sequence[str], epsilons: Sequence[float], fractions: Sequence[float], seeds: int
) -> list[Cell]:
    """All methods of one size, then those of the next."""
    cells = []
    for size in sizes:
        table = f"classes_{size}"
        cells += [Cell(table, core.ALONE, core.ALONE, epsilon, seed) for epsilon in epsilons for seed in range(seeds)]
        for name in inner:
            cells += [
                Cell(table, label(name, fraction), expression(name, fraction), epsilon, seed, group=name)
                for seed in range(seeds)
                for epsilon in epsilons
                for fraction in fractions
            ]
    return cells


def label(inner: str, fraction: float) -> str:
    return f"quail({inner}), {fraction:g}"


def expression(inner: str, fraction: float) -> str:
    return f"quail({inner}, learner={express(LEARNER)}, learner_fraction={fraction:g})"


CELLS = {
    "smoke": make_cells((1500,), ("independent",), (3.0,), (0.5,), 1),
    "paper": make_cells(SIZES, core.INNER, EPSILONS, FRACTIONS, SEEDS),
}


def score(cell: Cell, public: Public, fake: pa.Table) -> dict[str, Any]:
    if cell.method == core.ALONE:
        alone = core.learned(public.train, LEARNER, cell.guarantee, schema=public.schema, seed=cell.seed)
        return {"scores": alone.scores(public.test)}
    return {"scores": core.tstr_scores(public, fake, seed=cell.seed)}


EXPERIMENT = experiment.Experiment(
    "quail_splits",
    core.load_classes,
    score,
    baselines={core.ALONE: core.no_table},
    binning=core.BINNING,
    synthetic_rows=SYNTHETIC_ROWS,
)


def differences(lines: Sequence[Line], table: str, inner: str, score: str = "f1") -> np.ndarray:
    """Mean over seeds of the learner alone less QUAIL, a row for each epsilon; NaN where nothing was run."""
    found = {(line["table"], line["method"], line["epsilon"], line["seed"]): line["scores"][score] for line in lines}
    seeds = sorted({line["seed"] for line in lines})

    def mean(epsilon: float, fraction: float) -> float:
        pairs = [((table, core.ALONE, epsilon, s), (table, label(inner, fraction), epsilon, s)) for s in seeds]
        values = [found[alone] - found[quail] for alone, quail in pairs if alone in found and quail in found]
        return float(np.mean(values)) if values else float("nan")

    return np.array([[mean(epsilon, fraction) for fraction in FRACTIONS] for epsilon in EPSILONS])


def tables_of(lines: Sequence[Line]) -> list[str]:
    """Those with results of QUAIL, by size."""
    found = {line["table"] for line in lines if line["method"] != core.ALONE}
    return sorted(found, key=lambda name: int(name.removeprefix("classes_")))


def inner_of(lines: Sequence[Line]) -> list[str]:
    found = {line["method"].removeprefix("quail(").split(")")[0] for line in lines if line["method"] != core.ALONE}
    return [*(name for name in core.INNER if name in found), *sorted(found - set(core.INNER))]


def page(lines: Sequence[Line]) -> str:
    header = ["", "alone", *(f"fraction {fraction:g}" for fraction in FRACTIONS)]
    parts = []
    for table in tables_of(lines):
        for score in ("f1", "auc"):
            rows: list[list[object]] = []
            for inner in inner_of(lines):
                for epsilon, line in zip(EPSILONS, differences(lines, table, inner, score), strict=True):
                    if np.isfinite(line).any():
                        alone = core.mean_of(lines, score, table=table, method=core.ALONE, epsilon=epsilon)
                        shown = (f"{value:+.3f}" if np.isfinite(value) else "" for value in line)
                        rows.append([f"quail({inner}), epsilon {epsilon:g}", alone, *shown])
            size = int(table.removeprefix("classes_"))
            parts.append(f"## {size:,} rows, {score.upper()}\n\n{experiment.table_of(header, rows)}\n")
    return f"""# The split of the budget

{experiment.provenance("quail/splits.py", lines)}

F1, and below it AUC, of `{express(LEARNER)}` alone (the whole budget, real rows) minus that of a random forest trained
on {SYNTHETIC_ROWS:,} rows of QUAIL, by fraction of the learner; both are tested on 5,000 other real rows. Below zero
QUAIL is better. Means of {core.seeds_of(lines)} repetitions (the paper has 75), each with another table. Bins of equal
width between public bounds.

{chr(10).join(parts)}"""


def pictures(lines: Sequence[Line]) -> None:
    for table in tables_of(lines):
        size = int(table.removeprefix("classes_"))
        panels = {f"quail({inner})": differences(lines, table, inner) for inner in inner_of(lines)}
        down, across = [f"epsilon {e:g}" for e in EPSILONS], [f"{s:g}" for s in FRACTIONS]
        what = "F1 of the learner alone minus F1 of a forest on QUAIL's rows, by the learner's fraction"
        title = f"{size:,} rows: {what}"
        (core.IMAGES / f"quail_splits_{size // 1000}k.svg").write_text(core.heat_svg(panels, down, across, title))


if __name__ == "__main__":
    experiment.main(EXPERIMENT, __doc__ or "", CELLS, page, pictures)
