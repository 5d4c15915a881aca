"""Wide binary tables: shares and predictions, dimension by dimension. Experiments A1 and A2, with public stand-ins.

    UNDERSTUDY_DATA=folder python benchmarks/papers/autogan/binary.py --profile paper --write

MIMIC-III needs credentials (`understudy.benchmark.mimic` makes its matrix for those who have them); `msweb` (32,710
visitors by 285 areas, very sparse), `accidents` (111) and `nltcs` (16) stand in for it. Epsilon 3 is the paper's 3.12,
at which its points lie near the diagonal. `random` is the published MIMIC construction, whose encoder never learns.
"""

import math
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

sys.path[:0] = [str(Path(__file__).parents[3]), str(Path(__file__).parents[3] / "src")]

import numpy as np  # noqa: E402
import pyarrow as pa  # noqa: E402

import understudy as us  # noqa: E402
from benchmarks.papers.autogan import core  # noqa: E402
from understudy.benchmark.sources import read_source  # noqa: E402
from understudy.evaluation.marginals import dimension_probability  # noqa: E402
from understudy.evaluation.regression import dimension_prediction  # noqa: E402

TABLES = ("msweb", "accidents", "nltcs")
EPSILONS = (3.0, 1.0)
METHODS = {"autogan": "autogan", "random": "autogan(encoder=random)", "dpgan": "dpgan"}
SMALL = "autogan(steps=20, latent=4, generator_widths=[16, 16], critic_widths=[8], autoencoder_steps=20)"
AIM = 0.95
"""What the correlation of the shares should pass at epsilon 3."""
CELLS = {
    "smoke": [core.Cell("nltcs", "autogan", SMALL, math.inf, 0)],
    "paper": [
        core.Cell(table, name, expression, epsilon, 0)
        for epsilon in EPSILONS
        for table in TABLES
        for name, expression in METHODS.items()
    ],
}


def table(name: str) -> core.Public:
    """Training and test rows. Of msweb, which has no test part, a fifth by a coin of each row."""
    if name == "msweb":
        whole = read_source(name)
        held = np.random.default_rng(0).random(whole.num_rows) < 0.2
        train, test = whole.filter(pa.array(~held)), whole.filter(pa.array(held))
    else:
        train, test = read_source(f"{name}_train"), read_source(f"{name}_test")
    return declared(train, test)


def declared(train: pa.Table, test: pa.Table) -> core.Public:
    columns = tuple(us.Column(name=name, kind="boolean", nullable=False) for name in train.column_names)
    return core.Public(train, test, us.Schema(columns=columns, rows=train.num_rows))


def judged(cell: core.Cell, public: core.Public, *, predict: bool = True) -> dict[str, Any]:
    fake, seconds = core.released(cell, public)
    layout = public.layout
    real, test, synthetic = (
        layout.read(t, w) for t, w in ((public.train, "real"), (public.test, "test"), (fake, "fake"))
    )
    shares = dimension_probability(real, synthetic)
    scores = {key: score.value for key, score in shares.scores.items()}
    details: dict[str, Any] = {"shares": _points(shares.details["points"])}
    if predict:
        prediction = dimension_prediction(real, synthetic, test, max_rows=5000, seed=cell.seed)
        scores |= {key: score.value for key, score in prediction.scores.items()}
        details["predictions"] = _points(prediction.details["points"])
    return {"seconds": seconds, "scores": scores, "details": details}


def _points(points: Any) -> list[list[float]]:
    return [[round(point["real"], 5), round(point["synthetic"], 5)] for point in points]


def page(results: Sequence[Mapping[str, Any]]) -> str:
    keys = {
        "correlation of shares": "dwp_correlation",
        "root mean square": "dwp_rmse",
        "levels that vanish": "dwp_zero_share",
        "predictions from the diagonal": "dwpred_distance",
    }
    lines = [
        [
            f"{line['table']}, epsilon {line['epsilon']:g}, {line['method']}",
            *(line["scores"].get(key) for key in keys.values()),
            round(line["seconds"]),
        ]
        for line in sorted(results, key=lambda line: (line["table"], -line["epsilon"], line["method"]))
    ]
    used = "\n".join(
        f"- {name}: `{expression}`"
        for name, expression in METHODS.items()
        if any(line["method"] == name for line in results)
    )
    return f"""# DP-auto-GAN on wide binary tables (A1, A2)

{core.provenance("binary", results)}

{used}

Aim: a correlation of shares above {AIM} at epsilon 3 on msweb. The last column is the seconds that fitting took, on a
machine shared with other work.

{core.table_of(["", *keys, "seconds"], lines)}

Predictions: each column from the others by logistic regression on at most 5,000 rows, AUC on real test rows, by real
against synthetic training rows; the mean distance from the diagonal.
"""


def pictures(results: Sequence[Mapping[str, Any]]) -> None:
    """Shares of real against synthetic rows, for each table at epsilon 3."""
    core.IMAGES.mkdir(parents=True, exist_ok=True)
    for name in TABLES:
        panels = {
            line["method"]: {"": line["details"]["shares"]}
            for line in results
            if line["table"] == name and line["epsilon"] == 3.0
        }
        if panels:
            drawn = core.scatter(
                panels, f"{name}, epsilon 3: share of each column, real against synthetic", diagonal=True
            )
            (core.IMAGES / f"autogan_{name}.svg").write_text(drawn)


def main() -> None:
    core.run("autogan_binary", __doc__ or "", CELLS, lambda cell: judged(cell, table(cell.table)), page, pictures)


if __name__ == "__main__":
    main()
