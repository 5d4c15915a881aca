"""Wide binary tables: proportions and predictions, column by column. Experiments A1 and A2, on public substitutes.

    UNDERSTUDY_DATA=folder python benchmarks/papers/autogan/binary.py --profile paper --write

MIMIC-III needs credentials (`mimic.py` makes its matrix for those who have them); `msweb` (32,710
visitors by 285 areas, very sparse), `accidents` (111) and `nltcs` (16) replace it, at the paper's epsilons. `random` is
the published MIMIC construction, whose encoder never learns; `independent` and shuffled columns show what noisy and
exact 1-way marginals bring by themselves.
"""

import functools
import math
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

sys.path[:0] = [str(Path(__file__).parents[3]), str(Path(__file__).parents[3] / "src")]

import numpy as np  # noqa: E402
import pyarrow as pa  # noqa: E402

import understudy as us  # noqa: E402
from benchmarks.papers import experiment  # noqa: E402
from benchmarks.papers.autogan import core  # noqa: E402
from benchmarks.papers.experiment import table_of  # noqa: E402
from understudy.benchmark.sources import read_source  # noqa: E402
from understudy.evaluation.marginals import dimension_probability  # noqa: E402
from understudy.evaluation.regression import dimension_prediction  # noqa: E402

TABLES = ("msweb", "accidents", "nltcs")
EPSILONS = (3.11865, 1.27655, 0.94145)
METHODS = {
    "autogan": "autogan",
    "random": "autogan(encoder=random)",
    "dpgan": "dpgan",
    "independent": "independent",
}
SMALL = "autogan(steps=20, latent=4, generator_widths=[16, 16], critic_widths=[8], autoencoder_steps=20)"
CELLS = {
    "smoke": [core.Cell("nltcs_small", "autogan", SMALL, EPSILONS[0], 0)],
    "paper": [
        *(core.Cell(table, core.INDEPENDENT, core.INDEPENDENT, math.inf, 0) for table in TABLES),
        *(
            core.Cell(table, name, expression, epsilon, seed)
            for table in TABLES
            for name, expression in METHODS.items()
            for epsilon in EPSILONS
            for seed in range(5)
        ),
    ],
}
SCORED_ROWS = 2000
"""The number of rows that each column is predicted from."""


@functools.cache
def load(name: str, seed: int = 0) -> core.Public:
    """Training and test rows, the same for every seed. Of msweb, which has no test part, a random fifth."""
    if name == "msweb":
        whole = read_source(name)
        held = np.random.default_rng(0).random(whole.num_rows) < 0.2
        return declared(whole.filter(pa.array(~held)), whole.filter(pa.array(held)))
    stem = name.removesuffix("_small")
    train, test = read_source(f"{stem}_train"), read_source(f"{stem}_test")
    return declared(train, test) if stem == name else declared(train.slice(0, 500), test.slice(0, 500))


def declared(train: pa.Table, test: pa.Table) -> core.Public:
    columns = tuple(us.Column(name=name, kind="boolean", nullable=False) for name in train.column_names)
    return core.Public(train, test, us.Schema(columns=columns, rows=train.num_rows))


def score(cell: core.Cell, public: core.Public, fake: pa.Table) -> dict[str, Any]:
    layout = public.layout
    real, test, synthetic = (
        layout.read(t, w) for t, w in ((public.train, "real"), (public.test, "test"), (fake, "fake"))
    )
    proportions = dimension_probability(real, synthetic)
    prediction = dimension_prediction(real, synthetic, test, max_rows=SCORED_ROWS, seed=cell.seed)
    scores = {key: found.value for part in (proportions, prediction) for key, found in part.scores.items()}
    details: dict[str, Any] = {}
    if not cell.seed:
        details = {
            "proportions": _points(proportions.details["points"]),
            "predictions": _points(prediction.details["points"]),
        }
    return {"scores": scores, "details": details}


def _points(points: Any) -> list[list[float]]:
    return [[round(point["real"], 4), round(point["synthetic"], 4)] for point in points]


EXPERIMENT = experiment.Experiment("autogan_binary", load, score, baselines=core.BASELINES)
KEYS = {
    "correlation of proportions": "dwp_correlation",
    "root mean square": "dwp_rmse",
    "categories that vanish": "dwp_zero_share",
    "predictions from the diagonal": "dwpred_distance",
}


def page(results: Sequence[Mapping[str, Any]]) -> str:
    groups = {(line["table"], line["epsilon"], line["method"]): None for line in results}
    order = [*METHODS, core.INDEPENDENT]
    lines: list[list[object]] = []
    for table, epsilon, method in sorted(groups, key=lambda g: (g[0], -g[1], order.index(g[2]))):
        which = {"table": table, "epsilon": epsilon, "method": method}
        seeds = len(core.values_of(results, "dwp_correlation", **which))
        label = f"{table}, {'not private' if epsilon == math.inf else f'epsilon {epsilon:.3g}'}, {method}"
        lines.append([label, *(core.mean_of(results, key, **which) for key in KEYS.values()), seeds])
    used = "\n".join(
        f"- {name}: `{expression}`"
        for name, expression in METHODS.items()
        if any(line["method"] == name for line in results)
    )
    return f"""# DP-auto-GAN on wide binary tables (A1, A2)

{experiment.provenance("autogan/binary.py", results)} `UNDERSTUDY_DATA` names the folder of tables.

{used}

Means over the seeds in the last column. *{core.INDEPENDENT}*: every column of the real rows shuffled by itself.

{table_of(["", *KEYS, "seeds"], lines)}

Predictions: each column from the others by logistic regression on at most {SCORED_ROWS:,} rows, AUC on real test rows,
by real against synthetic training rows; the mean distance from the diagonal.
"""


def pictures(results: Sequence[Mapping[str, Any]]) -> None:
    """Proportions (A1) and predictions (A2) of real against synthetic rows, for each table and epsilon, `autogan`."""
    for name in TABLES:
        lines = [line for line in results if line["table"] == name and line["method"] == "autogan" and not line["seed"]]
        lines.sort(key=lambda line: -line["epsilon"])
        if not lines:
            continue
        for part, title in (("proportions", "proportion of each column"), ("predictions", "AUC of each column")):
            panels = {f"epsilon {line['epsilon']:.3g}": {"": line["details"][part]} for line in lines}
            drawn = core.scatter(panels, f"{name}, autogan: {title}, real (across) and synthetic (up)", diagonal=True)
            end = "" if part == "proportions" else "_prediction"
            (experiment.IMAGES / f"autogan_{name}{end}.svg").write_text(drawn)


if __name__ == "__main__":
    experiment.main(EXPERIMENT, __doc__ or "", CELLS, page, pictures)
