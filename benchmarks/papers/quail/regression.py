"""QUAIL for a number: RMSE of linear regressions trained on synthetic rows (the paper's internal regression set, made).

    python benchmarks/papers/quail/regression.py --profile paper --write

A stand-in of the internal table: 34,333 rows (80 % to fit), 8 categorical and 40 continuous columns, a linear rule.
"""

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

sys.path.insert(0, str(Path(__file__).parents[3]))

import understudy as us
from benchmarks.papers.quail import core
from understudy.benchmark.simulators import BOUND, made_regression
from understudy.learners.methods import Linear

PROFILES: dict[str, dict[str, Any]] = {
    "smoke": {"rows": 1500, "numbers": 4, "seeds": 1, "epsilons": (3.0,)},
    "paper": {"rows": 34_333, "numbers": 40, "seeds": 2, "epsilons": (0.5, 1.0, 3.0, 10.0)},
}
METHODS = {
    "independent": "independent",
    "quail(independent)": "quail(independent)",
    "quail(independent), sample": "quail(independent, label=sample)",
}


def rmse_of(train: pa.Table, test: pa.Table, fake: pa.Table) -> float:
    """A linear regression of synthetic rows, on real ones."""
    from sklearn.linear_model import Ridge

    inputs = core.features(train.to_pandas(), "y")
    model = Ridge(alpha=1.0).fit(inputs(fake.to_pandas()), fake.column("y").to_numpy())
    return float(np.sqrt(np.mean((model.predict(inputs(test.to_pandas())) - test.column("y").to_numpy()) ** 2)))


def cell(num_rows: int, num_numbers: int, epsilon: float, seed: int) -> dict[str, Any]:
    table, _, schema = made_regression(num_rows, num_numbers, seed)
    cut = round(0.8 * num_rows)
    train, test = table.slice(0, cut), table.slice(cut)
    schema = us.Schema(columns=schema.columns, rows=cut, target="y")
    guarantee = us.Guarantee(epsilon, core.DELTA)
    found: dict[str, Any] = {"epsilon": epsilon, "seed": seed, "real rows": rmse_of(train, test, train)}
    found["mean"] = float(np.std(test.column("y").to_numpy()))
    alone = core.learned(train, Linear(), guarantee, schema=schema, seed=seed)
    places: Any = alone.model.predict(alone.codec.encode(test), alone.codec.positions(test))
    predicted = -4 * BOUND + 8 * BOUND * np.asarray(places)
    found["learner"] = float(np.sqrt(np.mean((predicted - test.column("y").to_numpy()) ** 2)))
    for name, method in METHODS.items():
        release = us.fit(train, method, guarantee, schema=schema, seed=seed, binning=core.BINNING)
        found[name] = rmse_of(train, test, release.sample_arrow(seed=seed))
    return found


def page(results: Sequence[Mapping[str, Any]]) -> str:
    names = ["real rows", "mean", "learner", *METHODS]
    lines = []
    for epsilon in sorted({result["epsilon"] for result in results}):
        runs = [run for run in results if run["epsilon"] == epsilon]
        lines.append([f"{epsilon:g}", *(float(np.mean([run[name] for run in runs])) for name in names)])
    return f"""# QUAIL for a number

{core.provenance("regression")}

RMSE on real test rows of a linear regression (ridge 1) trained on synthetic rows; the target has noise of standard
deviation 1. *real rows*: trained on the real training part. *mean*: always the mean. *learner*: the private linear
regression alone, with the whole budget. {len({run["seed"] for run in results})} repetitions, each with another table.

{core.table_of(["epsilon", *names], lines)}
"""


def main() -> None:
    found = core.arguments(__doc__ or "")
    profile = PROFILES[found.profile]
    results: list[dict[str, Any]] = []
    for seed in range(profile["seeds"]):
        for epsilon in profile["epsilons"]:
            results.append(cell(profile["rows"], profile["numbers"], epsilon, seed))
            print(results[-1], flush=True)
    if found.write:
        core.write("regression", page(results), results)
        series = {
            name: [np.mean([r[name] for r in results if r["epsilon"] == e]) for e in profile["epsilons"]]
            for name in ("real rows", "mean", "learner", *METHODS)
        }
        places = [f"{epsilon:g}" for epsilon in profile["epsilons"]]
        picture = core.lines_svg(series, places, "RMSE by epsilon", across="epsilon", up="RMSE on real rows")
        (core.IMAGES / "quail_regression.svg").write_text(picture)
    print(page(results))


if __name__ == "__main__":
    main()
