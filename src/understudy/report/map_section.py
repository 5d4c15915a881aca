"""The section on locations: a map of the real and of each synthetic density over the public outline."""

from collections.abc import Sequence

from understudy.evaluation.scores import Json
from understudy.report.charts import shade
from understudy.report.markup import esc
from understudy.report.parts import detail
from understudy.report.svg import GREY_LINE, INK, Style, figure, line, panel, text
from understudy.report.text import finite, format_fraction, number, percent

SIZE = 400.0
"""The longer side of a map, in CSS pixels."""


def section(card: Json, methods: Sequence[Style]) -> str:
    """A figure for each location; empty if no table has one."""
    found = {style.name: detail(card, "locations", style.name).get("locations") or {} for style in methods}
    names = list(dict.fromkeys(name for each in found.values() for name in each))
    if not names:
        return ""
    figures = [_figure(name, {m: each[name] for m, each in found.items() if name in each}, methods) for name in names]
    return (
        "<p>The fraction of points in each cell, over the outline of the public region. Darker cells hold more; all "
        "maps of a location share one scale. The density error is the fraction of points that would have to move to "
        f"another square to match the real density.</p>{''.join(figures)}"
    )


def _figure(name: str, found: dict[str, Json], methods: Sequence[Style]) -> str:
    maps = {method: each["map"] for method, each in found.items()}
    first = next(iter(maps.values()))
    shares = [first["real"], *(each["synthetic"] for each in maps.values())]
    peak = max((value for grid in shares for row in grid for value in row), default=0.0) or 1.0
    panels = [_map(first, first["real"], peak, "real rows", "Real rows")]
    drawn = [style for style in methods if style.name in maps]
    for style in drawn:
        each = maps[style.name]
        panels.append(_map(each, each["synthetic"], peak, style.name, style.heading()))
    sides = list(found[drawn[0].name]["errors"])
    head = ["table", *(f"density error, {side} km" for side in sides), "inside the region"]
    rows = [
        [
            style.name,
            *(format_fraction(finite(found[style.name]["errors"][side])) for side in sides),
            percent(finite(found[style.name]["inside"]) or 0.0),
        ]
        for style in drawn
    ]
    return figure(panels, head, rows, title=esc(name), kind="map")


def _map(drawn: Json, grid: Sequence[Sequence[float]], peak: float, label: str, heading: str) -> str:
    body, width, height = draw_map(drawn, grid, peak)
    return panel(body, f"Map of the density of {label}.", width=max(width, 120.0), height=height, heading=heading)


def draw_map(drawn: Json, grid: Sequence[Sequence[float]], peak: float) -> tuple[str, float, float]:
    """Cells from south to north, drawn upwards, the outline above them, and a scale; as SVG, with width and height."""
    width, height = (max(float(part), 1e-6) for part in drawn["km"])
    scale = SIZE / max(width, height)
    side, down = float(drawn["side"]) * scale, height * scale
    cells = [
        f'<rect x="{column * side:.1f}" y="{down - (row + 1) * side:.1f}" width="{side + 0.3:.1f}" '
        f'height="{side + 0.3:.1f}" fill="{shade(value, peak, signed=False)}"/>'
        for row, values in enumerate(grid)
        for column, value in enumerate(values)
        if value
    ]
    rings = ["M" + "L".join(f"{x * scale:.1f} {down - y * scale:.1f}" for x, y in ring) for ring in drawn["outline"]]
    outline = f'<path d="{"".join(rings)}" fill="none" stroke="{GREY_LINE}" stroke-width="0.8"/>' if rings else ""
    bar = _round_length(width / 3)
    end = 4 + bar * scale
    ruler = line(4, down + 10, end, down + 10, INK) + text(end + 4, down + 14, f"{number(bar)} km", size=10.0)
    return "".join(cells) + outline + ruler, width * scale, down + 20


def _round_length(most: float) -> float:
    """The largest of 1, 2 and 5 times a power of ten that is not longer.

    >>> _round_length(7.3), _round_length(0.4)
    (5.0, 0.2)
    """
    power = 1.0
    while power > most:
        power /= 10
    while 10 * power <= most:
        power *= 10
    return next(factor * power for factor in (5.0, 2.0, 1.0) if factor * power <= most)
