"""DP-BayesGAN on the simulated table of Montgomery and Olivella: B1, pMSE by epsilon, and B2, y against x10.

Arnold, Neunhoeffer and Sternberg, "Releasing differentially private synthetic micro-data with Bayesian GANs". 500 rows
and 41 columns; CART (synthpop) and BayesGAN without privacy, DP-BayesGAN at epsilon 10 and 1. Of each fit ten copies
are drawn and judged by the mean pMSE of a logistic regression and of a classification tree.

    python benchmarks/papers/bayesgan/montgomery.py --profile paper --write
"""

import argparse
import dataclasses
import datetime
import json
import os
import platform
import shlex
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

ROOT = Path(__file__).parents[3]
sys.path.insert(0, str(ROOT))

import understudy as us  # noqa: E402
from benchmarks.gaussians25 import BOUND, drawing  # noqa: E402
from understudy.benchmark.simulators import montgomery_olivella, montgomery_olivella_schema  # noqa: E402
from understudy.evaluation.judged import Layout  # noqa: E402
from understudy.evaluation.pmse import pmse_cart, pmse_logit  # noqa: E402
from understudy.synthesizers import express  # noqa: E402
from understudy.synthesizers.bayesgan import BayesGAN  # noqa: E402
from understudy.synthesizers.cart import CART  # noqa: E402

RESULTS, IMAGES = ROOT / "benchmarks/results", ROOT / "docs/images"
DELTA = 1e-5
ROWS, DATA_SEED = 500, 1
"""One table, as in the paper; fits differ by their seeds."""


@dataclasses.dataclass(frozen=True)
class Profile:
    """How large a run is."""

    method: BayesGAN
    fits: int
    private_fits: int
    copies: int
    epsilons: tuple[float, ...]
    max_bins: int


PROFILES = {
    "smoke": Profile(
        BayesGAN(
            steps=20,
            rate=1 / 8,
            generator_chains=2,
            generator_batch=16,
            generator_widths=(8, 8),
            critic_widths=(4,),
            latent=4,
            kept=1,
        ),
        fits=1,
        private_fits=1,
        copies=1,
        epsilons=(0.3,),
        max_bins=4,
    ),
    "paper": Profile(
        BayesGAN(
            steps=800,
            rate=1 / 8,
            generator_chains=3,
            generator_batch=64,
            generator_widths=(64, 64),
            critic_widths=(64,),
            latent=32,
            kept=4,
            step_size=0.3 / ROWS,
        ),
        fits=5,
        private_fits=2,
        copies=10,
        epsilons=(10.0, 1.0),
        max_bins=8,
    ),
}


def kinds(profile: Profile) -> list[tuple[str, Any, us.Guarantee, int]]:
    """Name, method, guarantee and number of fits of each line of the table."""
    not_private = us.Guarantee.not_private()
    lines: list[tuple[str, Any, us.Guarantee, int]] = [
        ("CART", CART(), not_private, profile.fits),
        ("BayesGAN", profile.method, not_private, profile.fits),
    ]
    return lines + [
        (f"epsilon {epsilon:g}", profile.method, us.Guarantee(epsilon, DELTA), profile.private_fits)
        for epsilon in profile.epsilons
    ]


def run(profile: Profile) -> Iterator[dict[str, Any]]:
    """One fit after the other: its scores, and rows for the picture from the first of each kind."""
    table, schema = montgomery_olivella(ROWS, seed=DATA_SEED), montgomery_olivella_schema(ROWS)
    layout = Layout.of(table, schema)
    real = layout.read(table, "real table")
    # First fits of all kinds before second ones: a run that is cut short has all lines.
    for seed in range(profile.fits):
        for name, method, guarantee, fits in kinds(profile):
            if seed >= fits:
                continue
            began = time.monotonic()
            release = us.fit(
                table, method, guarantee, schema=schema, seed=seed, binning=us.Binning(max_bins=profile.max_bins)
            )
            copies = [release.sample_arrow(ROWS, seed=number) for number in range(profile.copies)]
            read = [layout.read(copy, "copy") for copy in copies]
            yield {
                "kind": name,
                "seed": seed,
                "logit": float(np.mean([pmse_logit(real, one).scores["pmse_logit"].value for one in read])),
                "tree": float(
                    np.mean([pmse_cart(real, one, num_permutations=0).scores["pmse_cart"].value for one in read])
                ),
                "upper": upper_branch(copies[0]),
                "seconds": round(time.monotonic() - began),
                "points": points(copies[0]) if seed == 0 else [],
            }


def upper_branch(table: pa.Table) -> float:
    """Of rows with x10 above its jump, the share whose y is nearer to the line there than 500."""
    x10, y = table["x10"].to_numpy(), table["y"].to_numpy()
    above = x10 >= 2.5
    return float(np.mean(np.abs(y[above] - 1750 - 350 * x10[above]) < 500)) if above.any() else 0.0


def points(table: pa.Table) -> list[list[float]]:
    return np.stack([table["x10"].to_numpy(), table["y"].to_numpy()], axis=1).round(2).tolist()


def picture(results: Sequence[Mapping[str, Any]]) -> bytes:
    """y against x10, a panel for the real table and for each kind."""
    real = points(montgomery_olivella(ROWS, seed=DATA_SEED))
    panels = [np.asarray(real)] + [np.asarray(result["points"]) for result in results if result["points"]]
    low, high = np.asarray([-8.0, -6000.0]), np.asarray([12.0, 7000.0])
    return drawing([(2 * (panel - low) / (high - low) - 1) * BOUND for panel in panels], side=240)


def summary(results: Sequence[Mapping[str, Any]]) -> dict[str, dict[str, float]]:
    """Means over the fits of each kind."""
    names = list(dict.fromkeys(result["kind"] for result in results))
    return {
        name: {
            figure: float(np.mean([result[figure] for result in results if result["kind"] == name]))
            for figure in ("logit", "tree", "upper", "seconds")
        }
        | {"fits": sum(result["kind"] == name for result in results)}
        for name in names
    }


def page(profile: Profile, results: Sequence[Mapping[str, Any]]) -> str:
    command = shlex.join(
        ["python", "benchmarks/papers/bayesgan/montgomery.py", *(a for a in sys.argv[1:] if a != "--write")]
    )
    found = summary(results)
    lines = [
        f"| {name} | {one['logit']:.4f} | {one['tree']:.4f} | {one['upper']:.2f} | {one['fits']:.0f} "
        f"| {one['seconds']:.0f} |"
        for name, one in found.items()
    ]
    verdicts = []
    if {"CART", "BayesGAN"} <= found.keys():
        ratios = {figure: found["BayesGAN"][figure] / found["CART"][figure] for figure in ("logit", "tree")}
        verdicts.append(
            f"- BayesGAN without privacy over CART: logit {ratios['logit']:.2f} (target at most 1.5), tree "
            f"{ratios['tree']:.2f} (target at most 3)."
        )
    order = [name for name in found if name != "CART"]
    for figure in ("logit", "tree") if len(order) > 1 else ():
        values = [found[name][figure] for name in order]
        verdicts.append(
            f"- pMSE ({figure}) {'grows' if values == sorted(values) else 'DOES NOT GROW'} with privacy: "
            + ", ".join(f"{value:.4f}" for value in values)
            + "."
        )
    seeds = sorted({result["seed"] for result in results})
    where = f"{platform.machine()}, {os.cpu_count()} shared CPU cores, Python {platform.python_version()}"
    each = "; ".join(
        f"{result['kind']} {result['seed']}: {result['logit']:.4f}, {result['tree']:.4f}" for result in results
    )
    return f"""# DP-BayesGAN: pMSE by epsilon (B1), y against x10 (B2)

`{command}`, {datetime.date.today()}, {where}; seeds {seeds[0]} to {seeds[-1]}. Seeded runs on a simulated table.
Method `{express(profile.method)}`, at most {profile.max_bins} bins a column, delta {DELTA:g}.
Means over the fits, of {profile.copies} copies of {ROWS} rows each. "Upper branch": of rows with x10 of at least 2.5,
the share with y within 500 of its line there (1 in the real table).

| | pMSE, logit | pMSE, tree | upper branch | fits | seconds each |
|---|---:|---:|---:|---:|---:|
{chr(10).join(lines)}

{chr(10).join(verdicts)}

Each fit (logit, tree): {each}.

![y against x10: the real table, then each line of the table in order](../../docs/images/bayesgan_x10.png)
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--profile", choices=list(PROFILES), default="smoke")
    parser.add_argument("--write", action="store_true", help="write result file and picture, after every fit")
    found = parser.parse_args()
    profile, results = PROFILES[found.profile], list[dict[str, Any]]()
    for result in run(profile):
        results.append(result)
        print({key: value for key, value in result.items() if key != "points"}, flush=True)
        if found.write:
            (RESULTS / "bayesgan_montgomery.md").write_text(page(profile, results))
            figures = [{key: value for key, value in one.items() if key != "points"} for one in results]
            (RESULTS / "bayesgan_montgomery.jsonl").write_text("".join(json.dumps(one) + "\n" for one in figures))
            IMAGES.mkdir(exist_ok=True)
            (IMAGES / "bayesgan_x10.png").write_bytes(picture(results))
    print(page(profile, results))


if __name__ == "__main__":
    main()
