"""25 Gaussians: how many generated points lie where the data's do. Experiments P1, P1b and P2 of the boosting paper.

    python benchmarks/papers/pgb/gaussians.py --profile paper --minutes 10 --write

The networks of the paper (generator 512-256, latent 2; critic 128-256; KL-WGAN) see the two columns as numbers between
declared bounds. Weights are not averaged, as in the paper, so that checkpoints differ. Epsilon 1 at delta 2e-5, a tenth
of it for the selections. A third part keeps generator and guarantee, but takes a smaller critic, the plain GAN loss
and, as distinguishers beside the critics, the cells of x and of y by themselves; the generator still makes numbers, not
bins.
"""

import dataclasses
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

sys.path[:0] = [str(Path(__file__).parents[3]), str(Path(__file__).parents[3] / "src")]

import numpy as np  # noqa: E402

import understudy as us  # noqa: E402
from benchmarks import gaussians25, simulated  # noqa: E402
from benchmarks.papers.command import run_script  # noqa: E402
from benchmarks.papers.pgb import core  # noqa: E402
from benchmarks.papers.published import PGB_GAUSSIANS  # noqa: E402
from understudy.evaluation.sample_quality import gaussian_quality  # noqa: E402
from understudy.synthesizers import express  # noqa: E402
from understudy.synthesizers.boosted import Boosted  # noqa: E402

OWN = "epsilon 1, own settings"
GUARANTEES = {
    "not private": us.Guarantee.not_private(),
    "epsilon 1": us.Guarantee(1.0, 2e-5),
    OWN: us.Guarantee(1.0, 2e-5),
}
CELLS = 72
"""Of each column, an eighth wide: two and a half Gaussians' standard deviations."""
CAPPED = {
    "not private": {"GAN": 0.904, "DRS": 0.874, "PGB": 0.918, "PGB+DRS": None},
    "epsilon 1": {"GAN": 0.031, "DRS": 0.035, "PGB": 0.053, "PGB+DRS": None},
    OWN: {"GAN": 0.031, "DRS": 0.035, "PGB": 0.053, "PGB+DRS": None},
}
UNCAPPED: dict[str, dict[str, float | None]] = {
    "not private": {"GAN": 0.906, "DRS": 0.946, "PGB": 0.951, "PGB+DRS": 0.972},
    "epsilon 1": dict.fromkeys(core.OUTPUTS, None),
    OWN: dict.fromkeys(core.OUTPUTS, None),
}
POINTS = 10_000
PROFILES = {
    "smoke": core.Profile(
        seeds=1,
        steps=40,
        checkpoints=4,
        every=5,
        samples_per_generator=100,
        rounds=20,
        proposals=500,
        max_rows=2000,
        minutes=1,
        kinds=("not private",),
    ),
    "paper": core.Profile(
        seeds=10, steps=10_000, checkpoints=100, every=5, samples_per_generator=300, rounds=1000, proposals=20_000
    ),
}

PROFILES["not_private"] = dataclasses.replace(PROFILES["paper"], kinds=("not private",))
PROFILES["private"] = dataclasses.replace(PROFILES["paper"], kinds=("epsilon 1", OWN))


def published(profile: core.Profile) -> Boosted:
    """The paper's networks, loss and distinguishers."""
    inner = dataclasses.replace(PGB_GAUSSIANS, steps=profile.steps, ema_decay=0.0)
    return profile.boosted(inner, share=0.1, distinguishers="none")


def own(profile: core.Profile) -> Boosted:
    """What noise of epsilon 1 leaves something of: few weights in the critic, and fast steps of it."""
    inner = dataclasses.replace(
        PGB_GAUSSIANS,
        loss="gan",
        critic_widths=(64, 64),
        steps=min(profile.steps, 8000),
        ema_decay=0.0,
        critic_learning_rate=8e-3,
        generator_learning_rate=4e-4,
    )
    rounds, rows = min(profile.rounds, 400), 5 * profile.samples_per_generator
    game: dict[str, Any] = {"learning_rate": 0.2, "averaging": "last_window", "window": min(rounds, 100)}
    return profile.boosted(
        inner, share=0.3, distinguishers="one_way", rounds=rounds, samples_per_generator=rows, **game
    )


def one(profile: core.Profile, seed: int, kinds: Sequence[str] = ()) -> dict[str, Any]:
    found: dict[str, Any] = {}
    whole = simulated.gaussians25()
    kept = np.random.default_rng(0).permutation(whole.train.num_rows)[: profile.max_rows]
    table = whole.train.take(np.sort(kept))
    schema = dataclasses.replace(whole.schema, rows=table.num_rows)
    for name in kinds or profile.kinds or GUARANTEES:
        boosted = own(profile) if name == OWN else published(profile)
        binning = us.Binning(bins="uniform", max_bins=CELLS)
        more: dict[str, Any] = {"schema": schema, "seed": seed, "proposals": profile.proposals, "binning": binning}
        releases = core.trained(table, boosted, GUARANTEES[name], **more)
        found[name] = {}
        for label, release in releases.items():
            made = release.sample_arrow(POINTS, seed=seed)
            xy = np.stack([made["x"].to_numpy(), made["y"].to_numpy()], axis=1)
            scores = gaussian_quality(xy).scores
            keys = {"capped": "quality", "uncapped": "quality_uncapped", "modes": "modes"}
            found[name][label] = {short: scores[key].value for short, key in keys.items()}
            found[name][label]["points"] = xy[:4000].round(3).tolist() if seed == 0 else None
    return found


def page(profile: core.Profile, results: Sequence[Mapping[str, Any]]) -> str:
    parts = [
        f"""# Private post-GAN boosting: 25 Gaussians (P1, P1b, P2)

{core.provenance("gaussians", results)}
Medians over the seeds, {POINTS:,} points each. {core.sizes(profile)}
Q counts points within the radius that holds 99% of a Gaussian; capped, no Gaussian counts for more than 1/25.
"""
    ]
    for name in GUARANTEES:
        found = [each for each in results if name in each]
        if not found:
            continue
        lines = []
        for label in core.OUTPUTS:
            lines.append([f"{label}, published", CAPPED[name][label], UNCAPPED[name][label], None])
            figures = [core.median(found, name, label, key) for key in ("capped", "uncapped", "modes")]
            lines.append([f"{label}, here", *figures[:2], f"{figures[2]:g}"])
        wins = sum(each[name]["PGB"]["capped"] > each[name]["GAN"]["capped"] for each in found)
        each_seed = "; ".join(
            f"{each['seed']}: " + ", ".join(f"{each[name][label]['capped']:.3f}" for label in core.OUTPUTS)
            for each in found
        )
        method = own(profile) if name == OWN else published(profile)
        parts.append(f"""## {name[0].upper()}{name[1:]}

`{express(method)}`

{core.table_of(["", "Q, capped", "Q, uncapped", "modes"], lines)}

PGB has a higher capped Q than GAN in {wins} of {len(found)} seeds. Capped Q of each seed ({", ".join(core.OUTPUTS)}):
{each_seed}.
""")
    caption = (
        f"seed 0: GAN, DRS, PGB, PGB+DRS, each for: {', '.join(name for name in GUARANTEES if name in results[0])}"
    )
    parts.append(f"![{caption}](../../docs/images/pgb_gaussians.png)\n")
    return "\n".join(parts)


def picture(result: Mapping[str, Any]) -> bytes:
    """A line of panels, one for each output: without privacy above, with it below."""
    rows = [
        [np.asarray(result[name][label]["points"]) for label in core.OUTPUTS] for name in GUARANTEES if name in result
    ]
    return gaussians25.drawing([panel for row in rows for panel in row], side=240, across=len(core.OUTPUTS))


def _draw(results: Sequence[Mapping[str, Any]]) -> None:
    if results[0].get("seed") == 0:
        (core.IMAGES / "pgb_gaussians.png").write_bytes(picture(results[0]))


def main() -> None:
    core.run("gaussians", __doc__ or "", PROFILES, one, page, _draw)


if __name__ == "__main__":
    run_script(main)
