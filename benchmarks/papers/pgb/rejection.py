"""Why rejection after boosting can lose what boosting won: the steps of PGB+DRS one by one, where the truth is known.

    python benchmarks/papers/pgb/rejection.py --profile paper --write

Real rows follow a known distribution on a line of cells. Generators mix it with others that miss parts of it, as
checkpoints of a training do, and each critic is the best one between the real distribution and its own generator, or
that one shrunk towards 1/2 (weak). Boosting is played without privacy on rows of all generators. Distances from the
real distribution are exact: a row's weight counts in its cell, and for sampled steps the expected number of copies.
Runs in seconds on a CPU.
"""

import argparse
import datetime
import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

sys.path[:0] = [str(Path(__file__).parents[3]), str(Path(__file__).parents[3] / "src")]

import numpy as np  # noqa: E402
from scipy import stats  # noqa: E402

from benchmarks.papers.command import run_script  # noqa: E402
from benchmarks.papers.pgb import core  # noqa: E402
from understudy.synthesizers.boosted.game import (  # noqa: E402
    Constant,
    Together,
    Values,
    acceptance,
    play,
    reject_exactly,
)

NAME = "pgb_rejection"
CELLS, GENERATORS = 100, 20
STEPS = {
    "pool": "rows of all generators",
    "pool x odds": "the pool, exact odds of the mixture, no boosting",
    "PGB": "boosted",
    "PGB, distinct": "boosted, then distinct rows",
    "PGB x odds": "boosted, then exact odds",
    "PGB, accepted": "boosted, then acceptance as in the authors' code",
    "PGB+DRS": "boosted, then distinct rows, then that acceptance",
}
PROFILES = {"smoke": (2, 2000), "paper": (20, 20_000)}
"""Seeds, and rows of the pool."""


def one(seed: int, samples: int, *, strength: float, rate: str, rounds: int) -> dict[str, Any]:
    """The distance from the real distribution after each step; how far the mixture agrees with the weights."""
    generator = np.random.default_rng(seed)
    real = _law(generator)
    laws = [0.5 * real + 0.5 * _law(generator) for _ in range(GENERATORS)]
    best = np.stack([real / (real + law) for law in laws])
    critics = 0.5 + strength * (best - 0.5)
    cells = np.concatenate([generator.choice(CELLS, size=samples // GENERATORS, p=law) for law in laws])
    flat = np.full(len(cells), 1 / len(cells))
    together = Together([Values(critics[:, cells]), Constant(len(cells))])
    means = np.append(critics @ real, 0.5)
    outcome = play(together, core.best_response(means), rounds=rounds, learning_rate=rate)
    phi, scores = outcome.weights, outcome.mixture
    distinct = 1 - (1 - phi) ** len(cells)  # the probability that a row is among as many draws
    found = {
        "pool": flat,
        "pool x odds": reject_exactly(flat, scores),
        "PGB": phi,
        "PGB, distinct": distinct,
        "PGB x odds": reject_exactly(phi, scores),
        "PGB, accepted": phi * acceptance(scores),
        "PGB+DRS": distinct * acceptance(scores),
    }
    distances = {}
    for name, weights in found.items():
        shares = np.bincount(cells, weights=weights / weights.sum(), minlength=CELLS)
        distances[name] = float(np.abs(shares - real).sum() / 2)
    gained = real @ scores_of_cells(critics, outcome.shares) - phi @ scores
    odds, accepted = scores / (1 - scores), acceptance(scores)
    return {
        "tv": distances,
        "odds": float(np.percentile(odds, 95) / np.median(odds)),
        "acceptance": float(np.percentile(accepted, 95) / np.median(accepted)),
        "agreement": float(stats.spearmanr(np.log(phi), scores).statistic),
        "gain before": float(means[:-1] @ outcome.shares[:-1] + 0.5 * outcome.shares[-1] - scores.mean()),
        "gain after": float(gained),
    }


def scores_of_cells(critics: np.ndarray, shares: np.ndarray) -> np.ndarray:
    """The mixture of the selected critics, and of the constant, in each cell."""
    return shares[:-1] @ critics + 0.5 * shares[-1]


def _law(generator: np.random.Generator) -> np.ndarray:
    """Five bumps of random place, width and height on a line."""
    line = np.arange(CELLS)
    bumps = [
        height * np.exp(-(((line - place) / width) ** 2) / 2)
        for place, width, height in zip(
            generator.uniform(0, CELLS, 5), generator.uniform(3, 12, 5), generator.uniform(0.2, 1, 5), strict=True
        )
    ]
    law = np.sum(bumps, axis=0) + 0.01
    return law / law.sum()


SETTINGS: dict[str, dict[str, Any]] = {
    "best critics, rate of the paper": {"strength": 1.0, "rate": "paper", "rounds": 1000},
    "best critics, rate of the code": {"strength": 1.0, "rate": "sqrt", "rounds": 400},
    "weak critics, rate of the paper": {"strength": 0.3, "rate": "paper", "rounds": 1000},
    "weak critics, rate of the code": {"strength": 0.3, "rate": "sqrt", "rounds": 400},
}


def page(results: Sequence[Mapping[str, Any]], command: str) -> str:
    names = list(SETTINGS)
    rows = [
        [
            f"{step}: {what}",
            *(float(np.median([each["found"][name]["tv"][step] for each in results])) for name in names),
        ]
        for step, what in STEPS.items()
    ]
    for label, key in (
        ("rank correlation of weights and mixture", "agreement"),
        ("gain of the mixture on the pool", "gain before"),
        ("gain of the mixture on boosted rows", "gain after"),
        ("odds of the mixture in the pool, 95th percentile over median", "odds"),
        ("acceptance in the pool, 95th percentile over median", "acceptance"),
    ):
        rows.append([label, *(float(np.median([each["found"][name][key] for each in results])) for name in names)])
    worse = {
        name: sum(e["found"][name]["tv"]["PGB+DRS"] > e["found"][name]["tv"]["PGB"] for e in results) for name in names
    }
    return f"""# Private post-GAN boosting: the steps of PGB+DRS on a known distribution

`{command}`, {datetime.date.today()}, {core.machine()};
seeds 0 to {len(results) - 1}. Total variation from the real distribution, medians; lower is better. The gain of a
mixture is its mean over real rows minus its mean over generated ones.

{core.table_of(["step", *(name.replace("rate of", "learning rate of") for name in names)], rows)}

Seeds of {len(results)} in which PGB+DRS is further from the real distribution than PGB:
{"; ".join(f"{name.replace('rate of', 'learning rate of')} {count}" for name, count in worse.items())}.
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--profile", choices=list(PROFILES), default="smoke")
    parser.add_argument("--write", action="store_true", help="write the result files")
    found = parser.parse_args()
    seeds, samples = PROFILES[found.profile]
    results = [
        {"seed": seed, "found": {name: one(seed, samples, **settings) for name, settings in SETTINGS.items()}}
        for seed in range(seeds)
    ]
    text = page(results, f"python benchmarks/papers/pgb/rejection.py --profile {found.profile}")
    print(text)
    if found.write:
        core.RESULTS.mkdir(parents=True, exist_ok=True)
        (core.RESULTS / f"{NAME}.md").write_text(text)
        (core.RESULTS / f"{NAME}.jsonl").write_text("".join(json.dumps(result) + "\n" for result in results))


if __name__ == "__main__":
    run_script(main)
