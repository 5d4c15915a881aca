"""The split of the budget between learner and method: difference of F1 by fraction and epsilon (figures 6, 7, 11-25).

    python benchmarks/papers/quail/splits.py --profile paper --write

scikit-learn's made classes (7 features, 10 classes). Each cell is F1 of naive Bayes alone, with the whole budget on
real rows, less F1 of a random forest trained on QUAIL's rows: below zero QUAIL is better.
"""

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[3]))

import understudy as us
from benchmarks.papers.quail import core
from understudy.benchmark.simulators import made_classes
from understudy.learners.methods import NaiveBayes
from understudy.synthesizers import express

PROFILES: dict[str, dict[str, Any]] = {
    "smoke": {"rows": 1500, "seeds": 1, "epsilons": (3.0,), "shares": (0.5,), "inner": ("independent",)},
    "paper": {
        "rows": 10_000,
        "seeds": 2,
        "epsilons": (1.0, 3.0, 10.0),
        "shares": (0.1, 0.3, 0.5, 0.7, 0.9),
        "inner": ("mst",),
    },
}
LEARNER = NaiveBayes(numbers="gaussian")


def cell(num_rows: int, inner: str, epsilon: float, shares: Sequence[float], seed: int) -> dict[str, Any]:
    train, test, schema = made_classes(num_rows, seed=seed)
    guarantee = us.Guarantee(epsilon, core.DELTA)
    alone = core.learned(train, LEARNER, guarantee, schema=schema, seed=seed).f1(test)
    found: dict[str, Any] = {"inner": inner, "epsilon": epsilon, "seed": seed, "rows": num_rows, "alone": alone}
    for share in shares:
        method = f"quail({inner}, learner={express(LEARNER)}, learner_fraction={share:g})"
        release = us.fit(train, method, guarantee, schema=schema, seed=seed, binning=core.BINNING)
        found[f"{share:g}"] = core.tstr_f1(train, test, release.sample_arrow(seed=seed), "label", models=("rf",))
    return found


def grids(results: Sequence[Mapping[str, Any]], shares: Sequence[float]) -> dict[str, np.ndarray]:
    """Mean differences, a line for each epsilon."""
    found = {}
    for inner in dict.fromkeys(result["inner"] for result in results):
        lines = []
        for epsilon in sorted({result["epsilon"] for result in results}):
            runs = [run for run in results if run["inner"] == inner and run["epsilon"] == epsilon]
            lines.append([np.mean([run["alone"] - run[f"{share:g}"] for run in runs]) for share in shares])
        found[f"quail({inner})"] = np.asarray(lines)
    return found


def page(results: Sequence[Mapping[str, Any]], shares: Sequence[float]) -> str:
    epsilons = sorted({result["epsilon"] for result in results})
    lines = []
    for name, grid in grids(results, shares).items():
        for epsilon, line in zip(epsilons, grid, strict=True):
            alone = np.mean([run["alone"] for run in results if run["epsilon"] == epsilon])
            lines.append([f"{name}, epsilon {epsilon:g}", float(alone), *(f"{value:+.3f}" for value in line)])
    seeds = len({result["seed"] for result in results})
    return f"""# The split of the budget

{core.provenance("splits")}

F1 of `{express(LEARNER)}` alone (the whole budget, real rows) less F1 of a random forest trained on QUAIL's rows, by
fraction of the learner; both are tested on 5,000 other real rows. Below zero QUAIL is better.
{results[0]["rows"]:,} rows;
mean of {seeds} repetitions (the paper has 75). Bins of equal width between public bounds.

{core.table_of(["", "alone", *(f"fraction {share:g}" for share in shares)], lines)}
"""


def main() -> None:
    found = core.arguments(__doc__ or "")
    profile = PROFILES[found.profile]
    results: list[dict[str, Any]] = []
    for seed in range(profile["seeds"]):
        for inner in profile["inner"]:
            for epsilon in profile["epsilons"]:
                results.append(cell(profile["rows"], inner, epsilon, profile["shares"], seed))
                print(results[-1], flush=True)
    if found.write:
        core.write("splits", page(results, profile["shares"]), results)
        down, across = [f"epsilon {e:g}" for e in profile["epsilons"]], [f"{s:g}" for s in profile["shares"]]
        title = "F1 of the learner alone less F1 by QUAIL's rows, by fraction of the learner"
        picture = core.heat_svg(grids(results, profile["shares"]), down, across, title)
        (core.IMAGES / "quail_splits.svg").write_text(picture)
    print(page(results, profile["shares"]))


if __name__ == "__main__":
    main()
