"""A drawing of scores: one line for each, with a dot for each synthetic table and a tick for real rows."""

import dataclasses
import html
import math
import os
from collections.abc import Sequence
from pathlib import Path

from understudy.errors import ConfigError
from understudy.evaluation.scorecard import WARNING, write_confidential
from understudy.evaluation.scores import Direction
from understudy.notes import shorten

COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9")
"""Okabe and Ito's palette, which is safe for colour-blind readers."""
INK, SOFT, RULE = "#2a2a28", "#5c5c57", "#d3d3cf"
WIDTH, LEFT, RIGHT, STEP = 760, 300, 560, 34
"""Of the drawing, of its scales, and from one score to the next, in pixels."""


@dataclasses.dataclass(frozen=True, repr=False)
class Plot:
    """A drawing as SVG text. A notebook shows it; `save` writes it."""

    svg: str

    def _repr_html_(self) -> str:
        return self.svg

    def __repr__(self) -> str:
        return "A plot: notebooks show it, plot.save('scores.svg') writes it."

    def save(self, path: str | os.PathLike[str], *, force: bool = False) -> None:
        """Writes an .svg file, whole or not at all; never into a release, as it shows scores of real rows."""
        if Path(path).suffix.lower() != ".svg":
            raise ConfigError(f"{path}: expected a file name ending in .svg.")
        write_confidential(path, self.svg.encode(), force=force)


def plot_scores(names: Sequence[str], rows: Sequence[tuple[str, str, Sequence[float]]]) -> Plot:
    """`names` are the tables and, last, real rows; a row is a title, a direction and a score for each of them."""
    top = 70
    height = top + STEP * len(rows) + 16
    body = [_text(16, 24, WARNING, size=11, colour="#8a2b12"), _legend(names)]
    for index, (title, direction, scores) in enumerate(rows):
        body.append(_line(top + STEP * index, title, Direction(direction), scores))
    said = html.escape(f"Scores of {', '.join(names[:-1])} and of real rows: {', '.join(row[0] for row in rows)}.")
    return Plot(
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}" '
        f'style="max-width:100%;height:auto" role="img" aria-label="{said}" font-family="system-ui, sans-serif">'
        f'<rect width="{WIDTH}" height="{height}" rx="6" fill="#fdfdfb"/>{"".join(body)}</svg>'
    )


def _legend(names: Sequence[str]) -> str:
    parts, x = [], 16.0
    for index, name in enumerate(names):
        shown = shorten(name, 24)
        is_real = index == len(names) - 1
        mark = _tick(x + 5, 46) if is_real else _dot(x + 5, 46, index)
        parts.append(mark + _text(x + 16, 50, shown))
        x += 34 + 7 * len(shown)
    return "".join(parts)


def _line(y: float, title: str, direction: Direction, scores: Sequence[float]) -> str:
    known = [score for score in scores if math.isfinite(score)]
    ends = [0.0, *known, *([] if direction.goal is None else [direction.goal])]
    low, high = min(ends), max(ends)
    high = high if high > low else low + 1.0

    def at(value: float) -> float:
        return LEFT + 8 + (RIGHT - LEFT - 16) * (value - low) / (high - low)

    parts = [f'<path d="M{LEFT} {y + 6}H{RIGHT}" stroke="{RULE}" stroke-width="6" stroke-linecap="round"/>']
    *tables, real = scores
    parts += [_tick(at(real), y + 6)] if math.isfinite(real) else []
    parts += [_dot(at(score), y + 6, index) for index, score in enumerate(tables) if math.isfinite(score)]
    said = ", ".join("-" if math.isnan(score) else f"{score:.3g}" for score in tables)
    of_real = "" if math.isnan(real) else f" (real {real:.3g})"
    named = _text(16, y + 4, shorten(title, 44)) + _text(16, y + 17, direction.text, size=10, colour=SOFT)
    return named + "".join(parts) + _text(RIGHT + 14, y + 10, f"{said}{of_real}")


def _dot(x: float, y: float, index: int) -> str:
    return f'<circle cx="{x:.1f}" cy="{y:.1f}" r="5" fill="{COLOURS[index % len(COLOURS)]}" fill-opacity=".85"/>'


def _tick(x: float, y: float) -> str:
    return f'<path d="M{x:.1f} {y - 8:.1f}v16" stroke="{INK}" stroke-width="2.4"/>'


def _text(x: float, y: float, text: str, *, size: int = 12, colour: str = INK) -> str:
    return f'<text x="{x:.0f}" y="{y:.0f}" font-size="{size}" fill="{colour}">{html.escape(text)}</text>'
