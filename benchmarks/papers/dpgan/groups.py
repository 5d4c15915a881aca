"""Why smart clipping fails where generated rows are not clipped: variants that differ in one thing each.

    UNDERSTUDY_DATA=folder python benchmarks/papers/dpgan/groups.py --profile paper --write

Adult at epsilon 1, and at 100, where there is hardly any noise. Seeds are not those of `ablation.py`.
"""

import sys
from collections.abc import Sequence
from pathlib import Path

sys.path[:0] = [str(Path(__file__).parents[3]), str(Path(__file__).parents[3] / "src")]

import numpy as np  # noqa: E402

import understudy as us  # noqa: E402
from benchmarks.papers import experiment  # noqa: E402
from benchmarks.papers.command import run_script  # noqa: E402
from benchmarks.papers.dpgan import ablation  # noqa: E402

NAME = "dpgan_groups"
VARIANTS = {
    "one clip norm": "",
    "four groups": "clip_groups=4",
    "four groups, clip norms from generated rows": "clip_groups=4, adaptive_clip=public",
    "four groups, the same noise on every weight": "clip_groups=4, clip_allocation=equal",
    "four groups, made once": "clip_groups=4, regroup_every=1000000",
    "four groups, made every 20 steps": "clip_groups=4, regroup_every=20",
    "four groups, from 2,048 generated rows": "clip_groups=4, clip_rows=2048",
    "four groups, clip norms from counts": "clip_groups=4, adaptive_clip=quantile",
    "one clip norm, a tenth as large": "clip_norm=0.1",
}
"""What real rows are clipped to, each with generated rows that are not clipped and that are clipped alike."""
TERMS = {"separate": "not clipped", "clipped": "clipped alike"}
SEEDS = range(100, 105)
NOISELESS = 100.0
"""An epsilon at which there is hardly any noise."""


def expression_of(variant: str, term: str, settings: str = "") -> str:
    fake_term = "" if term == "separate" else f"fake_term={term}"
    inside = ", ".join(filter(None, [fake_term, VARIANTS[variant], settings]))
    return f"dpgan({inside})" if inside else "dpgan"


def cells_of(table: str, epsilon: float, seeds: Sequence[int], variants: Sequence[str], settings: str = "") -> list:
    return [
        experiment.Cell(table, f"{variant} | {term}", expression_of(variant, term, settings), epsilon, seed)
        for variant in variants
        for term in TERMS
        for seed in seeds
    ]


CELLS = {
    "smoke": cells_of("breast", 3.0, [100], list(VARIANTS)[:1], ablation.SMALL)[:1],
    "paper": [
        *cells_of("adult", 1.0, SEEDS, list(VARIANTS)),
        *cells_of("adult", NOISELESS, SEEDS[:3], list(VARIANTS)[:2]),
    ],
}


def page(lines: Sequence[experiment.Line]) -> str:
    seeds = sorted({line["seed"] for line in lines})
    rows: list[list[object]] = []
    for epsilon in sorted({line["epsilon"] for line in lines}):
        for variant in VARIANTS:
            found = [[_scores(lines, variant, term, epsilon, metric) for metric in ("auc", "tvd2")] for term in TERMS]
            if any(each for each, _ in found):
                shown = [_shown(each) for pair in zip(*found, strict=True) for each in pair]
                rows.append([f"{variant}, epsilon {epsilon:g}", *shown])
    header = [f"{metric}, generated rows {title}" for metric in ("AUC", "2-way distance") for title in TERMS.values()]
    return f"""# Smart clipping and generated rows

{experiment.provenance("dpgan/groups.py", lines)}

A step of the critic adds the gradients of real rows, clipped, and those of generated rows. {len(seeds)} seeds
({seeds[0]} to {seeds[-1]}); AUC and 2-way distance are means, with the lowest and the highest in brackets. Scores as in
[dpgan_factorial.md](dpgan_factorial.md).

{experiment.table_of(["", *header], rows)}

{explanation(lines)}
"""


def explanation(lines: Sequence[experiment.Line]) -> str:
    """What the means say about each possible cause."""
    epsilon = min(line["epsilon"] for line in lines)

    def mean(variant: str, term: str, at: float = epsilon) -> float | None:
        found = _scores(lines, variant, term, at, "auc")
        return float(np.mean(found)) if found else None

    def changes(variant: str, at: float = epsilon) -> list[float] | None:
        """What a variant adds to the mean AUC of one clip norm, with generated rows not clipped and clipped."""
        found = [(mean(variant, term, at), mean("one clip norm", term, at)) for term in TERMS]
        known = [a - b for a, b in found if a is not None and b is not None]
        return known if len(known) == len(TERMS) else None

    groups = changes("four groups")
    if groups is None:
        return "Not yet run."
    plain = [np.mean(_scores(lines, "one clip norm", term, epsilon, "auc")) for term in TERMS]
    parts = [
        f"One clip norm has a mean AUC of {plain[0]:.3f} if generated rows are not clipped, and {plain[1]:.3f} if they "
        f"are. Four groups change these by {groups[0]:+.3f} and {groups[1]:+.3f}."
    ]
    if quiet := changes("four groups", NOISELESS):
        parts.append(
            f"With hardly any noise (epsilon {NOISELESS:g}), four groups change the AUC by {quiet[0]:+.3f} and "
            f"{quiet[1]:+.3f}."
        )
    if small := changes("one clip norm, a tenth as large"):
        parts.append(f"A single clip norm a tenth as large changes it by {small[0]:+.3f} and {small[1]:+.3f}.")
    return " ".join(parts)


def _scores(lines: Sequence[experiment.Line], variant: str, term: str, epsilon: float, metric: str) -> list[float]:
    which = {"method": f"{variant} | {term}", "epsilon": epsilon}
    return [line["scores"][metric] for line in lines if all(line[key] == value for key, value in which.items())]


def _shown(values: Sequence[float]) -> str | None:
    return f"{np.mean(values):.3f} ({min(values):.3f} to {max(values):.3f})" if values else None


EXPERIMENT = experiment.Experiment(
    name=NAME,
    load=ablation.load,
    score=ablation.score,
    binning=us.Binning(bins="uniform"),
    synthetic_rows=ablation.SYNTHETIC_ROWS,
)


def main() -> None:
    experiment.main(EXPERIMENT, __doc__ or "", CELLS, page)


if __name__ == "__main__":
    run_script(main)
