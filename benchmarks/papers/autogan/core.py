"""What the experiments of the DP-auto-GAN paper share: baselines that need no fit, means over seeds, and pictures.

"Differentially Private Mixed-Type Data Generation for Unsupervised Learning". The paper's own figures come from an
encoder that is not private (`docs/autogan_counterexample.md`).
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from benchmarks.papers.experiment import Cell as Cell
from benchmarks.papers.experiment import Public as Public

REAL, HELD_OUT, INDEPENDENT = "real rows", "held-out rows", "independent columns"


def independent_columns(public: Public, seed: int) -> pa.Table:
    """The training rows with every column shuffled by itself: exact 1-way marginals, no dependence. Not private."""
    draw = np.random.default_rng(seed)
    train = public.train
    columns = [train.column(name).take(draw.permutation(train.num_rows)) for name in train.column_names]
    return pa.table(columns, names=train.column_names)


def real_rows(public: Public, seed: int) -> pa.Table:
    return public.train


def held_out_rows(public: Public, seed: int) -> pa.Table:
    return public.test


BASELINES: Mapping[str, Callable[[Public, int], pa.Table]] = {
    REAL: real_rows,
    HELD_OUT: held_out_rows,
    INDEPENDENT: independent_columns,
}


def values_of(results: Sequence[Mapping[str, Any]], score: str, **which: Any) -> list[float]:
    """A score of all seeds of a cell."""
    return [
        float(line["scores"][score])
        for line in results
        if all(line[name] == value for name, value in which.items()) and line["scores"].get(score) is not None
    ]


def mean_of(results: Sequence[Mapping[str, Any]], score: str, **which: Any) -> float | None:
    """The mean of a score over the seeds of a cell; None where none was run."""
    found = values_of(results, score, **which)
    return float(np.mean(found)) if found else None


MIN_R2 = 0.1
"""Numeric columns that real rows predict worse than this are neither plotted nor counted, as in the paper."""


def floored_distance(points: Sequence[Sequence[Any]]) -> float:
    """Mean distance from the diagonal of a column's name, score, and values for real and for synthetic rows, with
    scores below 0 taken for 0. A prediction by the mean has an R squared of 0; worse ones have no lower bound, so one
    column could determine the mean.

    >>> round(floored_distance([["age", "r2", 0.3, -20.0], ["sex", "f1", 0.7, 0.7], ["gain", "r2", 0.05, 0.0]]), 6)
    0.106066
    """
    counted = [point for point in points if point[1] != "r2" or point[2] >= MIN_R2]
    gaps = [max(0.0, point[2]) - max(0.0, point[3]) for point in counted]
    return float(np.mean(np.abs(gaps)) / np.sqrt(2))


def with_floored_distance(line: Mapping[str, Any]) -> dict[str, Any]:
    """A line whose scores have that distance too."""
    found = floored_distance(line["details"]["predictions"])
    return {**line, "scores": {**line["scores"], "dwpred_floored": found}}


COLOURS = ("#222222", "#c0392b", "#2471a3", "#1e8449")


def scatter(
    panels: Mapping[str, Mapping[str, Sequence[Sequence[float]]]], title: str, *, diagonal: bool = False
) -> str:
    """Points in panels, three in a line, as a small SVG; with a diagonal, on which they should lie.

    >>> import re
    >>> picture = scatter({"a": {"real": [[0, 0], [1, 1]], "synthetic": [[0, 0], [1, 1]]}}, "same points")
    >>> re.findall('cx="([0-9.]+)"', picture)
    ['50.0', '290.0', '50.0', '290.0']
    """
    side, gap, head, foot = 240, 50, 46, 40
    columns = max(1, min(3, len(panels)))
    width, height = gap + columns * (side + gap), 20 + -(-len(panels) // columns) * (head - 20 + side + foot)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" font-family="sans-serif" '
        f'font-size="11"><rect width="{width}" height="{height}" fill="white"/><text x="{gap}" y="18" '
        f'font-size="13">{title}</text>'
    ]
    points = np.concatenate([np.asarray(p, float) for panel in panels.values() for p in panel.values()])
    low, high = points.min(axis=0), points.max(axis=0)
    if diagonal:  # from nothing to a little above the largest
        low, high = np.zeros(2), np.full(2, min(1.0, 1.1 * float(points.max())))
    for number, (name, panel) in enumerate(panels.items()):
        left, top = gap + number % columns * (side + gap), head + number // columns * (head - 20 + side + foot)
        parts.append(f'<rect x="{left}" y="{top}" width="{side}" height="{side}" fill="none" stroke="#999"/>')
        parts.append(f'<text x="{left}" y="{top - 8}">{name}</text>')
        if diagonal:
            parts.append(f'<line x1="{left}" y1="{top + side}" x2="{left + side}" y2="{top}" stroke="#ccc"/>')
            parts.append(
                f'<text x="{left}" y="{top + side + 16}">0</text><text x="{left + side}" y="{top + side + 16}" '
                f'text-anchor="end">{high[0]:.2g}</text>'
            )
        colours = COLOURS if len(panel) > 1 else COLOURS[1:]
        for series, (colour, (label, values)) in enumerate(zip(colours, panel.items(), strict=False)):
            at = np.clip((np.asarray(values, float) - low) / np.maximum(high - low, 1e-9), 0, 1)
            parts += [
                f'<circle cx="{left + side * x:.1f}" cy="{top + side * (1 - y):.1f}" r="1.6" fill="{colour}" '
                'fill-opacity="0.5"/>'
                for x, y in at
            ]
            parts.append(f'<text x="{left + 90 * series}" y="{top + side + 16}" fill="{colour}">{label}</text>')
    return "\n".join([*parts, "</svg>"]) + "\n"
