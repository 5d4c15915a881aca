"""Time and memory of post-GAN boosting at the size of the published census run: 150 critics, 750,000 rows, 400 rounds.

    python benchmarks/boosting_rounds.py --write

The rounds are measured alone, selections from the secure source of noise included, and so is scoring the rows: the
value of every critic on every generated row. Needs no data: the rows are uniform codes and the critics fresh networks.
"""

import argparse
import datetime
import os
import platform
import resource
import time
from pathlib import Path

import jax
import numpy as np

from understudy.privacy.accounting.events import Selections
from understudy.privacy.accounting.ledger import Guarantee, Ledger, Query
from understudy.privacy.mechanisms.selection import RowFunctions, noisy_function_selections
from understudy.privacy.noise.source import SecureNoise
from understudy.privacy.rows.rows import PrivateRows
from understudy.schema import Domain
from understudy.synthesizers.boosted import game
from understudy.training.critics import one_hot_blocks
from understudy.training.neural import Critic
from understudy.training.trajectory import score_by_critics

HERE = Path(__file__).parent
SIZES = (2, 16, 12, 16, 6, 5, 5, 56)
"""Codes of the eight columns of the 1940 census table, numbers in sixteen bins."""
WIDTHS = (64, 64)
SEED = 0


def peak() -> float:
    """GiB that the process has held at most."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20


def measure(critics: int, samples: int, rounds: int, storage: str) -> dict[str, float]:
    domain = Domain(names=tuple(map(str, range(len(SIZES)))), sizes=SIZES, num_rows=39_660)
    generator = np.random.default_rng(SEED)
    pool, real = (generator.integers(SIZES, size=(n, len(SIZES)), dtype=np.int32) for n in (samples, domain.num_rows))
    keys = jax.random.split(jax.random.key(SEED), critics)
    judges = score_by_critics([Critic(sum(SIZES), WIDTHS, key=key) for key in keys], one_hot_blocks(SIZES))
    found = {"GiB before": peak()}
    began = time.perf_counter()
    limits = {"float32": (2**62, 2**62), "bytes": (0, 2**62), "file": (0, 0)}[storage]
    values = game.evaluate_critics(judges, critics, pool, in_floats=limits[0], in_memory=limits[1])
    found["judging, s"] = time.perf_counter() - began
    found["GiB after judging"] = peak()
    ledger = Ledger(Guarantee(1.0, 1e-5), noise=SecureNoise())
    epsilon = 1 / ledger.remaining.fraction(0.2).calibrate(lambda noise: [Selections(1 / noise, rounds)])
    began = time.perf_counter()
    pick = noisy_function_selections(
        PrivateRows(real, domain), RowFunctions(judges, critics), Query("p", "p", Selections(epsilon, rounds)), ledger
    )
    found["means over the rows, s"] = time.perf_counter() - began
    began = time.perf_counter()
    outcome = game.play(values, pick, rounds=rounds)
    found["rounds, s"] = time.perf_counter() - began
    found["GiB at most"] = peak()
    assert abs(outcome.weights.sum() - 1) < 1e-6
    return found


def report(arguments: argparse.Namespace) -> str:
    found = measure(arguments.critics, arguments.samples, arguments.rounds, arguments.storage)
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    what = f"{arguments.critics} critics x {arguments.samples:,} rows x {arguments.rounds} rounds, {arguments.storage}"
    lines = ["# Time and memory of post-GAN boosting", ""]
    lines += [
        f"`python benchmarks/boosting_rounds.py`, {datetime.date.today()}, {platform.machine()}, {cores} CPU cores,",
        f"JAX {jax.__version__} ({jax.devices()[0].device_kind}), NumPy {np.__version__}, seed {SEED}.",
        "The target for the rounds is 60 s and 3 GB on two cores.",
        "",
        f"{what}; critics {sum(SIZES)}-64-64-1:",
        "",
        "| | |",
        "|---|---:|",
        *(f"| {name} | {value:.2f} |" for name, value in found.items()),
    ]
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--critics", type=int, default=150)
    parser.add_argument("--samples", type=int, default=750_000)
    parser.add_argument("--rounds", type=int, default=400)
    parser.add_argument("--storage", choices=["float32", "bytes", "file"], default="float32")
    parser.add_argument("--write", action="store_true", help="save under benchmarks/results")
    arguments = parser.parse_args()
    text = report(arguments)
    print(text)
    if arguments.write:
        (HERE / "results" / f"boosting_rounds_{arguments.storage}.md").write_text(text)


if __name__ == "__main__":
    main()
