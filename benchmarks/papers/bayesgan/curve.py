"""DP-BayesGAN by epsilon from 0.5 to 10: the published networks, ours, wrappers, and structural zeros as rules.

    python benchmarks/papers/bayesgan/curve.py --profile paper --write

The simulated table of Montgomery and Olivella, as in `montgomery.py`: 500 rows, 41 columns, ten copies of each fit, the
mean pMSE of a logistic regression and of a tree. `published` has the paper's networks (100-1000-41 and 41-1000-1) and
its unit prior; `bayesgan` the settings of `montgomery.py`; `boosted` and `selected` are put around the latter. In the
table `montgomery_rules` the schema says that a row is in exactly one of three groups (x6, x7, x8). Bins are of equal
width, so that fits of all epsilons and seeds are trained as one program.
"""

import dataclasses
import itertools
import math
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

sys.path[:0] = [str(Path(__file__).parents[3]), str(Path(__file__).parents[3] / "src")]

import numpy as np  # noqa: E402
import pyarrow as pa  # noqa: E402

import understudy as us  # noqa: E402
from benchmarks.baselines.cart import fit_cart  # noqa: E402
from benchmarks.papers import experiment  # noqa: E402
from benchmarks.papers.bayesgan import montgomery  # noqa: E402
from benchmarks.papers.bayesgan.montgomery import DATA_SEED, ROWS  # noqa: E402
from benchmarks.papers.experiment import Cell, Line, Public, table_of  # noqa: E402
from benchmarks.papers.published import BAYESGAN  # noqa: E402
from benchmarks.simulated import montgomery_olivella, montgomery_olivella_schema  # noqa: E402
from understudy.evaluation.pmse import pmse_cart, pmse_logit  # noqa: E402
from understudy.synthesizers import express  # noqa: E402

EPSILONS = (0.5, 1.0, 2.0, 3.0, 5.0, 10.0)
SEEDS = range(5)
COPIES = 10
PLAIN, RULED, SMALL = "montgomery", "montgomery_rules", "montgomery_small"
GROUPS = ("x6", "x7", "x8")
ONE_GROUP = {"combinations": list(GROUPS), "allowed": [[1, 0, 0], [0, 1, 0], [0, 0, 1]]}
CART, FRESH = "CART", "other tables of the recipe"
LEAST = 0.0005
"""Smaller differences of pMSE do not count as a fall."""

PUBLISHED = dataclasses.replace(BAYESGAN, steps=4000)
OURS = montgomery.PROFILES["paper"].method
METHODS = {
    "published": express(PUBLISHED),
    "bayesgan": express(OURS),
    "boosted": f"boosted({express(OURS)}, checkpoints=50, checkpoint_every=20, rounds=100, samples_per_generator=200)",
    "selected": f"selected({express(OURS)}, checkpoints=20, task=marginals)",
    "independent": "independent",
}
_TINY = "steps=20, generator_chains=2, generator_batch=16, samples_per_chain=1, latent=4, critic_widths=[4]"
_TINY_PUBLISHED = f"bayesgan({_TINY}, features=typed, marginals_fraction=0.0, arch=plain, generator_widths=[8])"
SMOKE = [
    Cell(SMALL, "published", _TINY_PUBLISHED, 0.5, 0),
    Cell(SMALL, "independent", "independent", 0.5, 0),
]
CELLS = {
    "smoke": SMOKE,
    # By importance: a run that is cut short has the curve of the published networks first.
    "paper": [
        *(Cell(PLAIN, name, name, math.inf, seed) for name in (CART, FRESH) for seed in SEEDS),
        *(
            Cell(table, name, METHODS[name], epsilon, seed)
            for table, name in (
                (PLAIN, "published"),
                (PLAIN, "bayesgan"),
                (PLAIN, "independent"),
                (PLAIN, "boosted"),
                (PLAIN, "selected"),
                (RULED, "bayesgan"),
            )
            for epsilon in (*EPSILONS, math.inf)
            for seed in SEEDS
        ),
    ],
}


def load(name: str, seed: int) -> Public:
    """One table, whatever the seed of the fit, and another of the recipe in place of test rows. `montgomery_small` has
    rules too, and is scored by one copy."""
    schema = montgomery_olivella_schema(ROWS)
    if name != PLAIN:
        schema = dataclasses.replace(schema, rules=(ONE_GROUP,))
    tables = [montgomery_olivella(ROWS, seed=each) for each in (DATA_SEED, montgomery.AGAIN)]
    return Public(*tables, schema)


def by_cart(public: Public, seed: int) -> pa.Table:
    model = fit_cart(public.train, seed=seed)
    return pa.concat_tables([model.sample(ROWS, seed=number) for number in _numbers(seed)])


def fresh(public: Public, seed: int) -> pa.Table:
    return pa.concat_tables([montgomery_olivella(ROWS, seed=montgomery.AGAIN + number) for number in _numbers(seed)])


def _numbers(seed: int) -> range:
    return range(seed * COPIES, (seed + 1) * COPIES)


def score(cell: Cell, public: Public, fake: pa.Table) -> dict[str, Any]:
    """Means over the copies: pMSE, both branches of y, and the proportion of rows in exactly one group."""
    layout = public.layout
    real = layout.read(public.train, "real")
    count = 1 if cell.table == SMALL else fake.num_rows // ROWS
    copies = [fake.slice(number * ROWS, ROWS) for number in range(count)]
    read = [layout.read(copy, "copy") for copy in copies]
    in_one = np.sum([fake[name].to_numpy() for name in GROUPS], axis=0) == 1
    return {
        "scores": {
            "logit": float(np.mean([pmse_logit(real, one).scores["pmse_logit"].value for one in read])),
            "tree": float(
                np.mean([pmse_cart(real, one, num_permutations=0).scores["pmse_cart"].value for one in read])
            ),
            "upper": float(np.mean([montgomery.upper_branch(copy) for copy in copies])),
            "lower": float(np.mean([montgomery.lower_branch(copy) for copy in copies])),
            "one_group": float(in_one.mean()),
        }
    }


def page(lines: Sequence[Line]) -> str:
    """A table of each score by epsilon, and what holds of the curves."""
    names = list(dict.fromkeys((line["table"], line["method"]) for line in lines))
    epsilons = sorted({line["epsilon"] for line in lines})
    parts = [
        "# DP-BayesGAN by epsilon: the published networks, ours, wrappers, rules",
        experiment.provenance("bayesgan/curve.py", lines),
        f"Simulated table, {ROWS} rows; means over seeds of {COPIES} copies each. pMSE: smaller is better, and 0.25 "
        "means that real and synthetic rows are separated perfectly. Bins are of equal width, at most "
        f"{EXPERIMENT.binning.max_bins}.",
        "\n".join(f"- `{name}`: `{METHODS[name]}`" for name in METHODS),
    ]
    for key, title in (
        ("logit", "pMSE, logistic regression"),
        ("tree", "pMSE, tree"),
        ("upper", "Upper branch of y"),
        ("one_group", "Proportion of rows in exactly one group"),
    ):
        header = [title, *(f"epsilon {epsilon:g}" for epsilon in epsilons), "seeds"]
        rows = [
            [_label(*name), *(_mean(lines, name, epsilon, key) for epsilon in epsilons), _seeds(lines, name)]
            for name in names
        ]
        parts.append(table_of(header, rows))
    parts.append("\n".join(f"- {text}" for text in verdicts(lines)))
    return "\n\n".join(parts) + "\n"


def _label(table: str, method: str) -> str:
    return f"{method}, rules" if table == RULED else method


def _mean(lines: Sequence[Line], name: tuple[str, str], epsilon: float, key: str) -> float | None:
    found = [
        line["scores"][key] for line in lines if (line["table"], line["method"]) == name and line["epsilon"] == epsilon
    ]
    return float(np.mean(found)) if found else None


def _seeds(lines: Sequence[Line], name: tuple[str, str]) -> int:
    return len({line["seed"] for line in lines if (line["table"], line["method"]) == name})


def verdicts(lines: Sequence[Line]) -> list[str]:
    """Whether pMSE falls as epsilon grows, and by how much, method by method."""
    found = []
    for name in dict.fromkeys((line["table"], line["method"]) for line in lines):
        for key in ("logit", "tree"):
            values = [_mean(lines, name, epsilon, key) for epsilon in EPSILONS]
            known = [value for value in values if value is not None]
            if len(known) > 1:
                falls = sum(b < a - LEAST for a, b in itertools.pairwise(known))
                found.append(
                    f"{_label(*name)}: pMSE ({key}) falls in {falls} of {len(known) - 1} steps of epsilon, from "
                    f"{known[0]:.4f} to {known[-1]:.4f}."
                )
    return found


EXPERIMENT = experiment.Experiment(
    name="bayesgan_curve",
    load=load,
    score=score,
    baselines={CART: by_cart, FRESH: fresh},
    binning=us.Binning(bins="uniform", max_bins=12),
    synthetic_rows=COPIES * ROWS,
)


if __name__ == "__main__":
    # By its own name, so that processes find its functions.
    from benchmarks.papers.bayesgan import curve

    experiment.main(curve.EXPERIMENT, __doc__ or "", curve.CELLS, curve.page)
