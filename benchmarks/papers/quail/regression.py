"""A numeric target: RMSE of linear regressions trained on synthetic rows (figure 5b, on a simulated substitute).

    python benchmarks/papers/quail/regression.py --profile paper --write

A substitute for the paper's internal table: 34,333 rows (80% to fit), 8 categorical and 40 continuous columns, a
linear rule. The paper's synthesizers by themselves and inside QUAIL, beside the learner alone; another table for each
seed.
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
from benchmarks.simulated import BOUND, made_regression
from understudy.learners.methods import Linear

EPSILONS = (0.5, 1.0, 3.0, 10.0)
SEEDS = 3
REAL = "real rows"
SIZES = {"regression": (34_333, 40), "regression_small": (1500, 4)}
METHODS = [*core.INNER, *(f"quail({name})" for name in core.INNER), "independent", "quail(independent)"]


def make_cells(table: str, methods: Sequence[str], epsilons: Sequence[float], seeds: int) -> list[Cell]:
    cells = [Cell(table, REAL, REAL, float("inf"), seed) for seed in range(seeds)]
    for name in (core.ALONE, *methods):
        cells += [Cell(table, name, name, epsilon, seed) for epsilon in epsilons for seed in range(seeds)]
    return cells


CELLS = {
    "smoke": make_cells("regression_small", ("independent", "quail(independent)"), (3.0,), 1),
    "paper": make_cells("regression", METHODS, EPSILONS, SEEDS),
}


def load(name: str, seed: int) -> Public:
    num_rows, numbers = SIZES[name]
    table, _, schema = made_regression(num_rows, numbers, seed)
    cut = round(0.8 * num_rows)
    return Public(table.slice(0, cut), table.slice(cut), us.Schema(columns=schema.columns, rows=cut, target="y"))


def real_rows(public: Public, seed: int) -> pa.Table:
    return public.train


def score(cell: Cell, public: Public, fake: pa.Table) -> dict[str, Any]:
    wanted = public.test.column("y").to_numpy()
    if cell.method == core.ALONE:
        alone = core.learned(public.train, Linear(), cell.guarantee, schema=public.schema, seed=cell.seed)
        positions: Any = alone.model.predict(alone.codec.encode(public.test), alone.codec.positions(public.test))
        return {"scores": {"rmse": _rmse(-4 * BOUND + 8 * BOUND * np.asarray(positions), wanted)}}
    scores = {"rmse": rmse_of(public.train, public.test, fake)}
    if cell.method == REAL:
        scores["mean"] = float(np.std(wanted))
    return {"scores": scores}


def rmse_of(train: pa.Table, test: pa.Table, fake: pa.Table) -> float:
    """A linear regression of synthetic rows, on real ones."""
    from sklearn.linear_model import Ridge

    inputs = core.features(train.to_pandas(), "y")
    model = Ridge(alpha=1.0).fit(inputs(fake.to_pandas()), fake.column("y").to_numpy())
    return _rmse(model.predict(inputs(test.to_pandas())), test.column("y").to_numpy())


def _rmse(predicted: np.ndarray, wanted: np.ndarray) -> float:
    return float(np.sqrt(np.mean((predicted - wanted) ** 2)))


EXPERIMENT = experiment.Experiment(
    "quail_regression",
    load,
    score,
    baselines={core.ALONE: core.no_table, REAL: real_rows},
    binning=core.BINNING,
)


def means(lines: Sequence[Line], method: str) -> list[float | None]:
    return [core.mean_of(lines, "rmse", method=method, epsilon=epsilon) for epsilon in EPSILONS]


def shown_methods(lines: Sequence[Line]) -> list[str]:
    found = {line["method"] for line in lines}
    return [name for name in (core.ALONE, *METHODS) if name in found]


def page(lines: Sequence[Line]) -> str:
    rows: list[list[object]] = [[name, *means(lines, name)] for name in shown_methods(lines)]
    real, mean = (core.mean_of(lines, score, method=REAL) for score in ("rmse", "mean"))
    return f"""# A numeric target

{experiment.provenance("quail/regression.py", lines)}

RMSE on real test rows of a linear regression (ridge 1) trained on synthetic rows; the target has noise of standard
deviation 1. Trained on the real rows: {real or float("nan"):.3f}. Always the mean: {mean or float("nan"):.3f}.
*{core.ALONE}*: the private linear regression with the whole budget. Means of {core.seeds_of(lines)} repetitions,
each with another table.

{experiment.table_of(["epsilon", *(f"{epsilon:g}" for epsilon in EPSILONS)], rows)}
"""


def pictures(lines: Sequence[Line]) -> None:
    """Of QUAIL one line: its learner is the same around every synthesizer, and so is what it scores."""
    names = [
        name for name in shown_methods(lines) if not name.startswith("quail(") or name == f"quail({core.INNER[0]})"
    ]
    series = {name: [np.nan if value is None else value for value in means(lines, name)] for name in names}
    real = core.mean_of(lines, "rmse", method=REAL)
    series = {"real rows": [real or np.nan] * len(EPSILONS), **series}
    at = [f"{epsilon:g}" for epsilon in EPSILONS]
    picture = core.lines_svg(series, at, "RMSE by epsilon", across="epsilon", up="RMSE on real rows")
    (core.IMAGES / "quail_regression.svg").write_text(picture)


if __name__ == "__main__":
    experiment.main(EXPERIMENT, __doc__ or "", CELLS, page, pictures)
