"""A learner alone against the same learner inside QUAIL, by rows (figure 10).

    python benchmarks/papers/quail/scales.py --profile paper --write

Logistic regression with epsilon 3.0, and with 2.4, on real rows, beside QUAIL at epsilon 3.0 with a fraction of 0.8
(2.4 for the learner): the learner that QUAIL trained, and a random forest trained on all of its rows.
"""

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
from understudy.learners.methods import Logistic
from understudy.synthesizers import express

LEARNER = Logistic(learning_rate=0.5)
EPSILON, FRACTION = 3.0, 0.8
INNER = ("patectgan", "mst")
"""One of the paper's, and the best marginal method that has a fixed set of queries."""
SIZES = (20_000, 50_000, 100_000)
SEEDS = 10


def make_cells(sizes: Sequence[int], inner: Sequence[str], seeds: int) -> list[Cell]:
    cells = []
    for size in sizes:
        table = f"classes_{size}"
        for epsilon in (EPSILON, EPSILON * FRACTION):
            cells += [Cell(table, core.ALONE, core.ALONE, epsilon, seed) for seed in range(seeds)]
        for name in inner:
            method = f"quail({name}, learner={express(LEARNER)}, learner_fraction={FRACTION:g})"
            cells += [Cell(table, f"quail({name})", method, EPSILON, seed) for seed in range(seeds)]
    return cells


CELLS = {
    "smoke": make_cells((1500,), ("independent",), 1),
    "paper": make_cells(SIZES, INNER, SEEDS),
}


def score(cell: Cell, public: Public, fake: pa.Table) -> dict[str, Any]:
    if cell.method == core.ALONE:
        alone = core.learned(public.train, LEARNER, cell.guarantee, schema=public.schema, seed=cell.seed)
        return {"scores": alone.scores(public.test)}
    return {"scores": core.tstr_scores(public, fake, seed=cell.seed)}


def inspect(cell: Cell, public: Public, release: us.Release) -> dict[str, float]:
    """The learner inside, on the same test rows."""
    model: Any = release.model
    codes, positions = release.codec.encode(public.test), release.codec.positions(public.test)
    guesses = model.learners[0].predict(codes[:, :-1], positions[:, :-1])
    return {"inside": core.f1_of(codes[:, -1], guesses, range(10))}


EXPERIMENT = experiment.Experiment(
    "quail_scales",
    core.load_classes,
    score,
    baselines={core.ALONE: core.no_table},
    inspect=inspect,
    binning=core.BINNING,
)


def rows_of(lines: Sequence[Line]) -> list[list[object]]:
    """For each table: the learner alone twice, then the learner inside and the forest, for each inner method."""
    found: list[list[object]] = []
    for table in sorted({line["table"] for line in lines}, key=lambda name: int(name.removeprefix("classes_"))):
        alone = [
            core.mean_of(lines, "f1", table=table, method=core.ALONE, epsilon=epsilon)
            for epsilon in (EPSILON, EPSILON * FRACTION)
        ]
        quail = [
            core.mean_of(lines, score, table=table, method=f"quail({inner})")
            for inner in INNER
            for score in ("inside", "f1", "auc")
        ]
        found.append([f"{int(table.removeprefix('classes_')):,}", *alone, *quail])
    return found


def page(lines: Sequence[Line]) -> str:
    header = ["rows", "alone, 3.0", "alone, 2.4"]
    header += [f"{what}, {inner}" for inner in INNER for what in ("inside", "forest", "AUC of the forest")]
    return f"""# Learner alone and inside, by rows

{experiment.provenance("quail/scales.py", lines)}

F1 on 5,000 other real rows, 10 classes of 7 features, mean of {core.seeds_of(lines)} repetitions, each with another
table. *alone*: `{express(LEARNER)}` on real rows, at that epsilon. *inside*: the same learner as `quail(...,
learner_fraction={FRACTION:g})` at epsilon {EPSILON:g} trained it. *forest*: a random forest trained on QUAIL's rows, as
many as real ones.

{experiment.table_of(header, rows_of(lines))}
"""


def pictures(lines: Sequence[Line]) -> None:
    rows = rows_of(lines)
    names = ("alone, 3.0", *(f"{what}, {inner}" for inner in INNER for what in ("inside", "forest")))
    columns = (1, *(3 + 3 * number + at for number in range(len(INNER)) for at in range(2)))
    series = {
        name: [np.nan if row[at] is None else float(row[at]) for row in rows]  # type: ignore[arg-type]
        for name, at in zip(names, columns, strict=True)
    }
    picture = core.lines_svg(
        series, [str(row[0]) for row in rows], "Learner alone and inside QUAIL", across="rows", up="F1 on real rows"
    )
    (core.IMAGES / "quail_scales.svg").write_text(picture)


if __name__ == "__main__":
    experiment.main(EXPERIMENT, __doc__ or "", CELLS, page, pictures)
