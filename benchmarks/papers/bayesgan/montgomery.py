"""DP-BayesGAN on the simulated table of Montgomery and Olivella: B1, pMSE by epsilon, and B2, y against x10.

Arnold, Neunhoeffer and Sternberg, "Releasing differentially private synthetic micro-data with Bayesian GANs". 500 rows
and 41 columns; CART (synthpop) and BayesGAN without privacy, DP-BayesGAN at epsilon 10 and 1. Of each fit ten copies
are drawn and scored by the mean pMSE of a logistic regression and of a classification tree. Some lines are for
reference: columns drawn independently, and other tables of the recipe itself, that is what a perfect generator has.

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
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

ROOT = Path(__file__).parents[3]
sys.path.insert(0, str(ROOT))


import understudy as us  # noqa: E402
from benchmarks.baselines.cart import fit_cart  # noqa: E402
from benchmarks.papers.command import run_script  # noqa: E402
from benchmarks.simulated import JUMP, montgomery_olivella, montgomery_olivella_schema  # noqa: E402
from understudy.evaluation.pmse import pmse_cart, pmse_logit  # noqa: E402
from understudy.evaluation.table import Layout  # noqa: E402
from understudy.synthesizers import express  # noqa: E402
from understudy.synthesizers.bayesgan import BayesGAN  # noqa: E402
from understudy.synthesizers.independent import Independent  # noqa: E402

RESULTS, IMAGES = ROOT / "benchmarks/results", ROOT / "docs/images"
DELTA = 1e-5
ROWS, DATA_SEED = 500, 2
"""One table, as in the paper; fits differ by their seeds. Settings were chosen on a table of another seed."""
AGAIN = 1000
"""Seeds of further tables of the recipe begin here."""


@dataclasses.dataclass(frozen=True)
class Profile:
    """How large a run is."""

    method: BayesGAN
    fits: int
    private_fits: int
    copies: int
    epsilons: tuple[float, ...]
    binning: us.Binning


PROFILES = {
    "smoke": Profile(
        BayesGAN(
            steps=20,
            sampling_rate=1 / 8,
            generator_chains=2,
            generator_batch=16,
            generator_widths=(8, 8),
            critic_widths=(4,),
            latent=4,
            samples_per_chain=1,
        ),
        fits=1,
        private_fits=1,
        copies=1,
        epsilons=(0.3,),
        binning=us.Binning(bins="uniform", max_bins=4),  # one compiled program for all fits
    ),
    "paper": Profile(
        BayesGAN(
            steps=4000,
            sampling_rate=1 / 8,
            generator_chains=3,
            generator_batch=128,
            generator_widths=(64, 64),
            critic_widths=(64,),
            latent=32,
            samples_per_chain=4,
            step_size=0.4 / ROWS,
            schedule="exponential",
            prior_stddev=10.0,
            marginal_weight=1.0,
        ),
        fits=5,
        private_fits=5,
        copies=10,
        epsilons=(10.0, 1.0),
        binning=us.Binning(max_bins=12),
    ),
}

Copies = Callable[[int], list[pa.Table]]
"""From the seed of a fit to its copies."""


def kinds(profile: Profile, table: pa.Table) -> dict[str, tuple[Copies, int]]:
    """Copies and number of fits of each line of the page."""
    schema, not_private = montgomery_olivella_schema(ROWS), us.Guarantee.not_private()

    def by(method: Any, guarantee: us.Guarantee) -> Copies:
        def copies(seed: int) -> list[pa.Table]:
            release = us.fit(table, method, guarantee, schema=schema, seed=seed, binning=profile.binning)
            return [release.sample_arrow(ROWS, seed=number) for number in numbers(seed)]

        return copies

    def by_cart(seed: int) -> list[pa.Table]:
        model = fit_cart(table, seed=seed)
        return [model.sample(ROWS, seed=number) for number in numbers(seed)]

    def numbers(seed: int) -> range:  # no two copies of a line share one: some methods are the same at every seed
        return range(seed * profile.copies, (seed + 1) * profile.copies)

    def again(seed: int) -> list[pa.Table]:
        return [montgomery_olivella(ROWS, seed=AGAIN + number) for number in numbers(seed)]

    private = {f"epsilon {epsilon:g}": us.Guarantee(epsilon, DELTA) for epsilon in profile.epsilons}
    lines = {
        "CART": (by_cart, profile.fits),
        "BayesGAN": (by(profile.method, not_private), profile.fits),
    }
    lines |= {name: (by(profile.method, guarantee), profile.private_fits) for name, guarantee in private.items()}
    lines[INDEPENDENT] = (by(Independent(), not_private), profile.fits)
    for name, guarantee in private.items():
        lines[f"{INDEPENDENT}, {name}"] = (by(Independent(), guarantee), profile.private_fits)
    lines[FRESH] = (again, profile.fits)
    return lines


INDEPENDENT, FRESH = "independent columns", "other tables of the recipe"


def is_reference(name: str) -> bool:
    return name == FRESH or name.startswith(INDEPENDENT)


def run(profile: Profile, only: Callable[[str], bool] = lambda name: True) -> Iterator[dict[str, Any]]:
    """One fit after the other: its scores, and rows for the picture from the first of each kind."""
    table = montgomery_olivella(ROWS, seed=DATA_SEED)
    layout = Layout.of(table, montgomery_olivella_schema(ROWS))
    real = layout.read(table, "real table")
    # First fits of all kinds before second ones: a run that is cut short has all lines.
    for seed in range(max(profile.fits, profile.private_fits)):
        for name, (copies_of, fits) in kinds(profile, table).items():
            if seed >= fits or not only(name):
                continue
            began = time.monotonic()
            copies = copies_of(seed)
            seconds = round(time.monotonic() - began)
            read = [layout.read(copy, "copy") for copy in copies]
            yield {
                "kind": name,
                "seed": seed,
                "logit": float(np.mean([pmse_logit(real, one).scores["pmse_logit"].value for one in read])),
                "tree": float(
                    np.mean([pmse_cart(real, one, num_permutations=0).scores["pmse_cart"].value for one in read])
                ),
                "upper": float(np.mean([upper_branch(copy) for copy in copies])),
                "lower": float(np.mean([lower_branch(copy) for copy in copies])),
                "seconds": seconds,
                "points": points(copies[0]) if seed == 0 else [],
            }


def upper_branch(table: pa.Table) -> float:
    """Of rows with x10 above its jump, the share whose y is nearer to the line there than 500."""
    x10, y = table["x10"].to_numpy(), table["y"].to_numpy()
    above = x10 >= JUMP
    return float(np.mean(np.abs(y[above] - line(x10[above])) < 500)) if above.any() else 0.0


def lower_branch(table: pa.Table) -> float:
    """Of rows with x10 below its jump, the share whose y is below the line's least value. Of the law, some are not."""
    x10, y = table["x10"].to_numpy(), table["y"].to_numpy()
    below = x10 < JUMP
    return float(np.mean(y[below] < line(JUMP))) if below.any() else 0.0


def line(x10: Any) -> Any:
    """y above the jump."""
    return 1750 + 350 * x10


def points(table: pa.Table) -> list[list[float]]:
    return np.stack([table["x10"].to_numpy(), table["y"].to_numpy()], axis=1).round(2).tolist()


SIDE, GAP, LEFT, TOP = 210, 14, 52, 44
X_RANGE, Y_RANGE = (-6.0, 10.0), (-6000.0, 6000.0)
"""Of the picture."""


def picture(results: Sequence[Mapping[str, Any]]) -> str:
    """y against x10 as an SVG, a panel for the real table and for each kind; a grey line where the upper branch is."""
    table = montgomery_olivella(ROWS, seed=DATA_SEED)
    panels = [("real rows", points(table), upper_branch(table))]
    drawn = [one for one in results if one["points"] and not is_reference(one["kind"])]
    panels += [(_title(one["kind"]), one["points"], upper_branch(_table(one["points"]))) for one in drawn]
    width, height = LEFT + len(panels) * (SIDE + GAP), TOP + SIDE + 62
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" font-family="sans-serif" '
        f'font-size="11"><rect width="{width}" height="{height}" fill="white"/>',
        f'<text x="{LEFT}" y="16" font-size="13">y against x10, {ROWS} rows each</text>',
    ]
    for number, (title, xy, share) in enumerate(panels):
        left = LEFT + number * (SIDE + GAP)
        parts += [_panel(left, title, np.asarray(xy), share), _axes(left, labelled=number == 0)]
    parts.append(f'<text x="{LEFT}" y="{height - 6}" fill="#555">{_caption()}</text>')
    return "\n".join([*parts, "</svg>"]) + "\n"


def _title(kind: str) -> str:
    return f"{kind}, not private" if kind in ("CART", "BayesGAN") else f"BayesGAN, {kind}"


def _caption() -> str:
    what = f"Percent: of rows right of the jump (x10 = {JUMP:g}), those within 500 of the line."
    return what + " First copy of the first fit; points beyond the frame are drawn at its edge."


def _table(xy: Sequence[Sequence[float]]) -> pa.Table:
    return pa.table({"x10": [x for x, _ in xy], "y": [y for _, y in xy]})


def _places(left: float, xy: np.ndarray) -> np.ndarray:
    low, high = np.transpose([X_RANGE, Y_RANGE])
    across = ((xy - low) / (high - low)).clip(0.005, 0.995)
    return np.stack([left + SIDE * across[:, 0], TOP + SIDE * (1 - across[:, 1])], axis=1)


def _panel(left: float, title: str, xy: np.ndarray, share: float) -> str:
    (x1, y1), (x2, y2) = _places(left, np.asarray([[JUMP, line(JUMP)], [X_RANGE[1], line(X_RANGE[1])]]))
    dots = "".join(f"M{x:.1f} {y:.1f}h0" for x, y in _places(left, xy))
    return (
        f'<text x="{left}" y="{TOP - 8}">{title}</text>'
        f'<text x="{left + SIDE}" y="{TOP - 8}" text-anchor="end" fill="#2471a3">{share:.0%}</text>'
        f'<path d="M{x1:.1f} {TOP}v{SIDE}" stroke="#ccc" stroke-dasharray="3 3"/>'
        f'<path d="M{x1:.1f} {y1:.1f}L{x2:.1f} {y2:.1f}" stroke="#ccc" stroke-width="5"/>'
        f'<path d="{dots}" stroke="#2471a3" stroke-opacity="0.55" stroke-width="3" stroke-linecap="round"/>'
    )


def _axes(left: float, *, labelled: bool) -> str:
    parts = [f'<rect x="{left}" y="{TOP}" width="{SIDE}" height="{SIDE}" fill="none" stroke="#999"/>']
    for value in (-5, 0, 5):
        x = _places(left, np.asarray([[value, 0.0]]))[0, 0]
        parts.append(f'<text x="{x:.1f}" y="{TOP + SIDE + 14}" text-anchor="middle">{value}</text>')
    parts.append(f'<text x="{left + SIDE / 2}" y="{TOP + SIDE + 30}" text-anchor="middle">x10</text>')
    for value in (-4000, -2000, 0, 2000, 4000) if labelled else ():
        y = _places(left, np.asarray([[0.0, value]]))[0, 1]
        parts.append(f'<text x="{left - 6}" y="{y + 4:.1f}" text-anchor="end">{value:,}</text>')
    return "".join(parts)


def summary(results: Sequence[Mapping[str, Any]]) -> dict[str, dict[str, float]]:
    """Means over the fits of each kind."""
    names = list(dict.fromkeys(result["kind"] for result in results))
    return {
        name: {
            figure: float(np.mean([result[figure] for result in results if result["kind"] == name]))
            for figure in ("logit", "tree", "upper", "lower", "seconds")
        }
        | {"fits": sum(result["kind"] == name for result in results)}
        for name in names
    }


def page(profile: Profile, results: Sequence[Mapping[str, Any]]) -> str:
    command = shlex.join(
        ["python", "benchmarks/papers/bayesgan/montgomery.py", *(a for a in sys.argv[1:] if a != "--write")]
    )
    found, real = summary(results), montgomery_olivella(ROWS, seed=DATA_SEED)
    lines = [
        f"| {name} | {one['logit']:.4f} | {one['tree']:.4f} | {one['upper']:.2f} | {one['lower']:.2f} "
        f"| {one['fits']:.0f} | {one['seconds']:.0f} |"
        for name, one in found.items()
    ]
    verdicts = []
    if {"CART", "BayesGAN"} <= found.keys():
        ratios = {figure: found["BayesGAN"][figure] / found["CART"][figure] for figure in ("logit", "tree")}
        verdicts.append(
            f"- BayesGAN without privacy over CART: logit {ratios['logit']:.2f} (target at most 1.5), tree "
            f"{ratios['tree']:.2f} (target at most 3)."
        )
    order = [name for name in found if name != "CART" and not is_reference(name)]
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

`{command}`, {datetime.date.today()}, {where};
seeds {seeds[0]} to {seeds[-1]}. Seeded runs on a simulated table.
Method `{express(profile.method)}`, at most {profile.binning.max_bins} bins a column, delta {DELTA:g}.
Simulated table of seed {DATA_SEED}; settings were chosen on one of another seed. Means over the fits, of
{profile.copies} copies of {ROWS} rows each. "Upper branch": of rows with x10 of at least {JUMP:g}, the share
with y within 500 of its line there ({upper_branch(real):.2f} in the real table). "Lower branch": of the other rows,
the share with y below {line(JUMP):,.0f}, where the line begins ({lower_branch(real):.2f} in the real table).
Seconds are of fit and copies, without scores.

| | pMSE, logit | pMSE, tree | upper branch | lower branch | fits | seconds each |
|---|---:|---:|---:|---:|---:|---:|
{chr(10).join(lines)}

{chr(10).join(verdicts)}

Each fit (logit, tree): {each}.

![y against x10: real rows, CART, BayesGAN without privacy and by epsilon](../../docs/images/bayesgan_x10.svg)
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
            (IMAGES / "bayesgan_x10.svg").write_text(picture(results))
    print(page(profile, results))


if __name__ == "__main__":
    run_script(main)
