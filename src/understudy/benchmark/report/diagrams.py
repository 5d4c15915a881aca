"""Drawings of comparisons: mean ranks with the critical difference, and what a wrapper changes."""

from collections.abc import Mapping, Sequence

from understudy.benchmark.report.axes import MethodStyle, Scale
from understudy.benchmark.report.document import Drawing
from understudy.benchmark.report.figures import file_name
from understudy.benchmark.report.ranks import Ranking
from understudy.benchmark.report.statistics import Summary, difference, is_separated
from understudy.report import svg
from understudy.report.charts import shade
from understudy.report.text import listing, minus

RANK_WIDTH = 820.0


def draw_ranks(ranking: Ranking, styles: Mapping[str, MethodStyle], *, metric: str) -> Drawing:
    """Mean ranks on an axis, the best on the left; a bar joins methods that Nemenyi's test cannot separate.

    >>> from understudy.benchmark.report.records import Result
    >>> from understudy.benchmark.report.axes import assign_styles
    >>> styles = assign_styles([Result(table="car", method=name, epsilon=1.0, seed=0) for name in "ab"])
    >>> draw_ranks(Ranking({"a": 1.0, "b": 2.0}, 3, None, None, None), styles, metric="F1").rows
    (('a', '1.00'), ('b', '2.00'))
    """
    names, left, right = list(ranking.mean_ranks), 190.0, RANK_WIDTH - 190.0
    across = Scale(1.0, float(len(names)), left, right)
    axis, bars = 44.0, 12.0 * len(ranking.groups)
    half = (len(names) + 1) // 2
    bottom = axis + 22 + bars + 18 * half
    body = [_rank_axis(across, len(names), axis)]
    if ranking.critical_difference is not None:
        body.append(_ruler(across, ranking.critical_difference))
    for index, group in enumerate(ranking.groups):
        y = axis + 12 + 12 * index
        ends = [across.at(ranking.mean_ranks[name]) for name in (group[0], group[-1])]
        thick = ' stroke-width="4" stroke-linecap="round"'
        body.append(svg.line(ends[0] - 2, y, ends[1] + 2, y, svg.INK, thick))
    for index, name in enumerate(names):
        is_left = index < half
        level = index if is_left else len(names) - 1 - index
        y = axis + 22 + bars + 18 * level + 4
        body.append(_rank_label(name, ranking.mean_ranks[name], across, (axis, y), styles[name], is_left, index))
    spread = ranking.critical_difference
    critical = f" The critical difference is {spread:.2f}." if spread is not None else ""
    best = listing([f"{name} {rank:.2f}" for name, rank in list(ranking.mean_ranks.items())[:3]])
    return Drawing(
        name=file_name("ranks", metric),
        title=f"Mean ranks by {metric}, over {ranking.num_blocks} pairs of table and epsilon",
        label=f"Mean ranks of {len(names)} methods by {metric}, the best first: {best}.{critical}",
        body="".join(body),
        width=RANK_WIDTH,
        height=bottom + 4,
        head=("method", "mean rank"),
        rows=tuple((name, f"{rank:.2f}") for name, rank in ranking.mean_ranks.items()),
    )


def _rank_axis(across: Scale, count: int, y: float) -> str:
    step = 1 if count <= 16 else 2
    parts = [svg.line(across.start, y, across.end, y, svg.INK)]
    for rank in range(1, count + 1, step):
        x = across.at(rank)
        parts += [svg.line(x, y - 5, x, y, svg.INK), svg.text(x, y - 9, str(rank), anchor="middle")]
    parts.append(svg.text(across.start - 12, y + 4, "best", anchor="end"))
    parts.append(svg.text(across.end + 12, y + 4, "worst"))
    return "".join(parts)


def _ruler(across: Scale, spread: float) -> str:
    """The length of the critical difference above the axis."""
    x, y = across.start, 10.0
    end = x + (across.end - across.start) * spread / (across.high - across.low)
    parts = [svg.line(x, y, end, y, svg.INK, ' stroke-width="1.6"')]
    parts += [svg.line(at, y - 4, at, y + 4, svg.INK, ' stroke-width="1.6"') for at in (x, end)]
    parts.append(svg.text(end + 8, y + 4, f"critical difference {spread:.2f}", extra=' class="axis"'))
    return "".join(parts)


def _rank_label(
    name: str, rank: float, across: Scale, span: tuple[float, float], style: MethodStyle, is_left: bool, row: int
) -> str:
    """A stem from the axis down and out to the name, its rank beside it."""
    x, (axis, y) = across.at(rank), span
    edge = across.start - 8 if is_left else across.end + 8
    label = f"{name}  {rank:.2f}"
    path = f'<path d="M{x:.1f} {axis:.1f}V{y:.1f}H{edge:.1f}" fill="none" stroke="{svg.RULE}"/>'
    mark = style.mark(x, axis, 3.6, f' class="m" data-r="{row}"')
    anchor, at = ("end", edge - 4) if is_left else ("start", edge + 4)
    return path + mark + svg.text(at, y + 4, label, anchor=anchor, room=across.start - 14, extra=' class="axis"')


# What a wrapper changes

Pairs = Mapping[str, Mapping[float, tuple[Summary, Summary]]]
"""By inner method and epsilon: the summaries of the wrapped and of the plain method."""


def largest_change(panels: Sequence[Pairs]) -> float:
    """The end of the scale of all panels: their largest difference, and at least a tenth of their largest mean.

    >>> largest_change([])
    1e-09
    """
    pairs = [pair for panel in panels for by_epsilon in panel.values() for pair in by_epsilon.values()]
    gaps = [abs(found[0]) for pair in pairs if (found := difference(*pair)) is not None]
    means = [abs(summary.mean) for pair in pairs for summary in pair if summary.mean is not None]
    return max([*gaps, 0.1 * max(means, default=0.0), 1e-9])  # so that noise alone is never in full colour


def draw_changes(
    pairs: Pairs, *, table: str, metric: str, wrapper: str, higher_is_better: bool, peak: float
) -> Drawing:
    """Wrapped minus plain, one row per inner method, one column per epsilon: blue is better, orange worse.

    Differences of more than two standard errors are bold; a cross marks cells where one of the two failed.

    >>> from understudy.benchmark.report.statistics import summarise
    >>> pairs = {"mst": {1.0: (summarise([0.75]), summarise([0.5]))}}
    >>> draw_changes(pairs, table="car", metric="F1", wrapper="quail", higher_is_better=True, peak=1.0).rows
    (('mst', '1', '+0.25', 'single seed'),)
    """
    epsilons = sorted({epsilon for by_epsilon in pairs.values() for epsilon in by_epsilon})
    left, top, high = 96.0, 6.0, 26.0
    wide = min((460.0 - left - 6) / max(len(epsilons), 1), 64.0)
    bottom = top + high * len(pairs)
    body: list[str] = []
    rows: list[tuple[str, ...]] = []
    for line, (inner, by_epsilon) in enumerate(pairs.items()):
        y = top + high * line
        body.append(svg.text(left - 6, y + high / 2 + 4, inner, anchor="end", room=left - 8, extra=' class="axis"'))
        for column, epsilon in enumerate(epsilons):
            if epsilon in by_epsilon:
                text, gap, kind = _change(*by_epsilon[epsilon])
                gain = None if gap is None else gap if higher_is_better else -gap
                place = left + wide * column, y, wide - 1.5, high - 1.5
                body.append(_tile(place, text, gain, peak, kind == "separated", len(rows)))
                rows.append((inner, f"{epsilon:g}", text, kind))
    for column, epsilon in enumerate(epsilons):
        body.append(svg.text(left + wide * (column + 0.5), bottom + 14, f"{epsilon:g}", anchor="middle"))
    middle = left + wide * len(epsilons) / 2
    body.append(svg.text(middle, bottom + 30, "epsilon", anchor="middle", extra=' class="axis"'))
    better = sum(row[2].startswith("+") == higher_is_better for row in rows if row[2][0] in "+\N{MINUS SIGN}")
    return Drawing(
        name=file_name(wrapper, metric, table),
        title=f"{metric} on {table}: {wrapper} minus plain",
        label=f"{metric} on {table}, {wrapper} minus plain: better in {better} of {len(rows)} pairs.",
        body="".join(body),
        width=460.0,
        height=bottom + 36,
        head=("inner method", "epsilon", "difference", "noise"),
        rows=tuple(rows),
    )


def _change(wrapped: Summary, plain: Summary) -> tuple[str, float | None, str]:
    """The text of a difference, its value and whether it stands out from the noise."""
    found = difference(wrapped, plain)
    if found is None:
        return "×", None, "failed"
    gap, stderr = found
    kind = (
        "single seed" if stderr is None else "separated" if is_separated(gap, stderr) else "within two standard errors"
    )
    return format_change(gap), gap, kind


def format_change(gap: float) -> str:
    """A difference with its sign and two or three digits.

    >>> format_change(0.031), format_change(-12.4)
    ('+0.03', '−12')
    """
    digits = f"{gap:+.2f}" if abs(gap) < 9.995 else f"{gap:+,.0f}"
    return minus(digits.replace("+0.00", "0.00").replace("-0.00", "0.00"))


def _tile(
    place: tuple[float, float, float, float], text: str, gain: float | None, peak: float, is_sure: bool, row: int
) -> str:
    x, y, width, height = place
    ink = "light" if gain is not None and abs(gain) / peak > 0.45 else "dark"
    kind = f' class="{ink}{" sure" if is_sure else ""}"'
    return (
        f'<rect class="m" x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}" '
        f'fill="{shade(gain, peak, signed=True)}" data-r="{row}"/>'
        f"{svg.text(x + width / 2, y + height / 2 + 4, text, anchor='middle', extra=kind)}"
    )
