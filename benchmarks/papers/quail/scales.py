"""A learner alone against the same learner inside QUAIL, by rows (figure 10), and times by fraction (table 1).

    python benchmarks/papers/quail/scales.py --profile paper --write

Logistic regression with epsilon 3.0 on real rows, beside QUAIL at epsilon 3.0 with a fraction of 0.8 (2.4 for the
learner): F1 of a random forest trained on its rows. Then seconds of fit and sample by fraction.
"""

import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[3]))

import understudy as us
from benchmarks.papers.quail import core
from understudy.benchmark.simulators import made_classes
from understudy.learners.methods import Logistic
from understudy.synthesizers import express

PROFILES: dict[str, dict[str, Any]] = {
    "smoke": {"rows": (1500,), "seeds": 1, "timed": ("independent",), "timed_rows": 500},
    "paper": {
        "rows": (20_000, 50_000, 100_000),
        "seeds": 1,
        "timed": ("mst", "dpgan(steps=300)"),
        "timed_rows": 10_000,
    },
}
LEARNER = Logistic(learning_rate=0.5)
INNER = "independent"


def cell(num_rows: int, seed: int) -> dict[str, Any]:
    train, test, schema = made_classes(num_rows, seed=seed)
    found: dict[str, Any] = {"rows": num_rows, "seed": seed}
    for name, epsilon in (("alone, 3.0", 3.0), ("alone, 2.4", 2.4)):
        guarantee = us.Guarantee(epsilon, core.DELTA)
        found[name] = core.learned(train, LEARNER, guarantee, schema=schema, seed=seed).f1(test)
    method = f"quail({INNER}, learner={express(LEARNER)}, learner_fraction=0.8)"
    release = us.fit(train, method, us.Guarantee(3.0, core.DELTA), schema=schema, seed=seed, binning=core.BINNING)
    model: Any = release.model
    codes, places = release.codec.encode(test), release.codec.positions(test)
    guesses = model.learners[0].predict(codes[:, :-1], places[:, :-1])
    found["inside"] = core.f1_of(codes[:, -1], guesses, range(10))
    fake = release.sample_arrow(min(num_rows, 20_000), seed=seed)
    found["forest on QUAIL"] = core.tstr_f1(train, test, fake, "label", models=("rf",))
    return found


def timed(inner: str, num_rows: int, epsilon: float) -> dict[str, Any]:
    """Seconds of fit and sample; the second of two runs, so that programs are compiled."""
    train, _, schema = made_classes(num_rows)
    found: dict[str, Any] = {"inner": inner, "epsilon": epsilon}
    for name, method in {
        "plain": inner,
        "fraction 0.5": f"quail({inner}, learner={express(LEARNER)}, learner_fraction=0.5)",
        "fraction 0.9": f"quail({inner}, learner={express(LEARNER)}, learner_fraction=0.9)",
    }.items():
        for seed in range(2):
            began = time.monotonic()
            release = us.fit(
                train, method, us.Guarantee(epsilon, core.DELTA), schema=schema, seed=seed, binning=core.BINNING
            )
            release.sample_arrow(seed=0)
            found[name] = round(time.monotonic() - began, 1)
    return found


def page(results: Sequence[Mapping[str, Any]]) -> str:
    by_rows = [run for run in results if "rows" in run]
    names = ("alone, 3.0", "alone, 2.4", "inside", "forest on QUAIL")
    lines = []
    for num_rows in sorted({run["rows"] for run in by_rows}):
        runs = [run for run in by_rows if run["rows"] == num_rows]
        lines.append([f"{num_rows:,}", *(float(np.mean([run[name] for run in runs])) for name in names)])
    fractions = ("plain", "fraction 0.5", "fraction 0.9")
    seconds = [
        [f"`{run['inner']}`, epsilon {run['epsilon']:g}", *(f"{run[name]:g}" for name in fractions)]
        for run in results
        if "inner" in run
    ]
    return f"""# Learner alone and inside, by rows; times by fraction

{core.provenance("scales")}

F1 on 5,000 other real rows, 10 classes of 7 features. *alone*: `{express(LEARNER)}` on real rows, at that epsilon.
*inside*: the same learner as `quail({INNER}, learner_fraction=0.8)` at epsilon 3.0 trained it. *forest*: a random
forest trained on QUAIL's rows (at most 20,000). {len({run["seed"] for run in by_rows})} repetition(s).

{core.table_of(["rows", *names], lines)}

Seconds of fit and sample on a table of the same kind, after compilation; `quail` has a learner to train and more
queries to account for, and no step is saved where the budget is smaller (the paper's GANs stop earlier).

{core.table_of(["method", *fractions], seconds)}
"""


def main() -> None:
    found = core.arguments(__doc__ or "")
    profile = PROFILES[found.profile]
    results: list[dict[str, Any]] = []
    for seed in range(profile["seeds"]):
        for num_rows in profile["rows"]:
            results.append(cell(num_rows, seed))
            print(results[-1], flush=True)
    for inner in profile["timed"]:
        for epsilon in (3.0, 6.0) if found.profile == "paper" else (3.0,):
            results.append(timed(inner, profile["timed_rows"], epsilon))
            print(results[-1], flush=True)
    if found.write:
        core.write("scales", page(results), results)
        by_rows = [run for run in results if "rows" in run]
        names = ("alone, 3.0", "inside", "forest on QUAIL")
        series = {
            name: [np.mean([r[name] for r in by_rows if r["rows"] == n]) for n in profile["rows"]] for name in names
        }
        places = [f"{num_rows:,}" for num_rows in profile["rows"]]
        picture = core.lines_svg(series, places, "Learner alone and inside QUAIL", across="rows", up="F1 on real rows")
        (core.IMAGES / "quail_scales.svg").write_text(picture)
    print(page(results))


if __name__ == "__main__":
    main()
