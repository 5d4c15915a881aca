"""The results of `sizes.py`: their file, their page and their picture."""

import dataclasses
import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from understudy.benchmark.report.axes import Scale, scale_around, spread_labels, x_axis, y_axis
from understudy.benchmark.report.document import Drawing
from understudy.report import svg
from understudy.report.svg import Style

IMAGES = Path(__file__).parents[1] / "docs" / "images"
PANEL, HEIGHT, LEFT, RIGHT, GAP = 318.0, 150.0, 52.0, 226.0, 62.0
"""Width and height of a panel; the ends of its horizontal axis; the distance between two rows of panels."""


@dataclasses.dataclass(frozen=True)
class Cell:
    """One fit: a table of a size, a method, with noise or without."""

    table: str
    rows: int
    columns: int
    method: str
    private: bool
    seed: int = 0

    @property
    def file_name(self) -> str:
        """Of the table."""
        return f"{self.table}-{self.rows}x{self.columns}.parquet"

    @property
    def baseline(self) -> "Cell":
        """The same without noise."""
        return dataclasses.replace(self, private=False)


Results = Mapping[Cell, dict]


def read_results(path: Path) -> dict[Cell, dict]:
    """The last result of each cell of a file of JSON lines."""
    lines = path.read_text().splitlines() if path.exists() else []
    found = [json.loads(line) for line in lines]
    return {Cell(**result.pop("cell")): result for result in found}


def write(results: Results, folder: Path) -> None:
    """The page, and the picture for the documentation."""
    (folder / "sizes.md").write_text(page(results))
    (IMAGES / "sizes.svg").write_text(draw(results).to_svg())


def page(results: Results) -> str:
    """Two tables, by rows and by columns, and how they were made."""
    facts = list(results.values())
    days, commits, machines = (sorted({result[key] for result in facts}) for key in ("date", "commit", "machine"))
    loads = sorted(result["load"] for result in facts)
    return f"""# How time, memory and error grow with a table

`UNDERSTUDY_DATA=folder python benchmarks/sizes.py rows --write` and `... columns --write`, {", ".join(days)};
{"; ".join(machines)}; commits {", ".join(commits)}; seed 0, epsilon 1, delta 1e-9. The machine was shared with other
work (load average {loads[0]:.1f} to {loads[-1]:.1f}), so wall seconds are upper bounds; CPU seconds are of all threads.

Seconds and peak memory are those of one fit from a Parquet file, in a process of its own; the memory includes that of
the libraries. `tvd2` (`tvd1`) is the mean total variation of 2-way (1-way) marginals between the table itself and two
million rows of the model (by columns: 100,000). "Not private" is the same method without noise; "cost" is the
difference of the two, the cost of privacy. "Sampling" is the tvd2 of as many real rows, drawn again: no model
can be expected to do better.

## Rows: ten columns of the 1940 census, drawn again

There are no new people in a table drawn again: it has the size of a large table and the distribution of 39,660 adults.

{_table(_axis(results, "census"), "rows", results)}

## Rows: fifteen columns of `made_long`, drawn again

{_table(_axis(results, "long"), "rows", results)}

## Columns: 100,000 rows of `made_wide`

At most 1,000 random pairs of columns are compared.

{_table(_axis(results, "wide"), "columns", results)}
"""


def _axis(results: Results, table: str) -> list[Cell]:
    """Private cells of a table, and those whose private twin has no result, from small to large."""
    mine = [cell for cell in results if cell.table == table and cell.private]
    return sorted(mine, key=lambda cell: (cell.rows, cell.columns, cell.method))


def _table(cells: Iterable[Cell], size: str, results: Results) -> str:
    names = [
        "seconds",
        "CPU seconds",
        "peak GB",
        "tvd2",
        "not private",
        "cost",
        "tvd1",
        "not private",
        "sampling",
        "commit",
    ]
    head = f"| {size} | method | {' | '.join(names)} |"
    lines = [head, "|---:|---|" + "---:|" * 10]
    for cell in cells:
        result, baseline = results[cell], results.get(cell.baseline, {})
        start = f"| {getattr(cell, size):,} | `{cell.method}` |"
        if "failed" in result:
            lines.append(f"{start} {result['failed']} |" + " |" * 9)
            continue
        cost = result["tvd2"] - baseline["tvd2"] if "tvd2" in result and "tvd2" in baseline else None
        figures = [f"{result['seconds']:,.0f}", f"{result['cpu_seconds']:,.0f}", f"{result['gigabytes']:.2f}"]
        errors = [result.get("tvd2"), baseline.get("tvd2"), cost, *(each.get("tvd1") for each in (result, baseline))]
        errors.append(result.get("sampling2"))
        lines.append(start + "".join(f" {text} |" for text in (*figures, *map(_shown, errors), result["commit"])))
    return "\n".join(lines)


def _shown(value: float | None) -> str:
    return "" if value is None else f"{value:.4f}"


# -------------------------------------------------------------------------------------------------------------- picture


def draw(results: Results) -> Drawing:
    """Seconds, memory and error on logarithmic axes: by rows above, by columns below."""
    methods = sorted({cell.method for cell in results if cell.table != "long"}, key=_order)
    styles = {style.name: style for style in svg.styles(methods)}
    parts: list[str] = []
    for down, (table, size) in enumerate((("census", "rows"), ("wide", "columns"))):
        for across, (key, title) in enumerate(_FIGURES):
            body = _panel(results, table, size, key, title, styles)
            parts.append(f'<g transform="translate({across * PANEL:g} {down * (HEIGHT + GAP):g})">{body}</g>')
    return Drawing(
        name="sizes",
        title="A fit at epsilon 1 on two shared CPU cores. Dashed: error without privacy; dotted: sampling error",
        label="Seconds, peak memory and error of 2-way marginals, by rows of a census table and by columns.",
        body="".join(parts),
        width=3 * PANEL,
        height=2 * HEIGHT + GAP + 40,
        head=(),
        rows=(),
    )


_FIGURES = (("cpu_seconds", "CPU seconds"), ("gigabytes", "peak memory, GB"), ("tvd2", "2-way error (tvd2)"))


def _order(method: str) -> tuple[int, str]:
    known = ("independent", "mst", "aim", "auto", "dpgan")
    return (known.index(method) if method in known else len(known)), method


def _panel(results: Results, table: str, size: str, key: str, title: str, styles: Mapping[str, Style]) -> str:
    """One figure against one size: a line for each method, named at its end."""
    points = _points(results, table, size, key, private=True)
    plain = _points(results, table, size, key, private=False) if key == "tvd2" else {}
    if not points:
        return ""
    floor = _points(results, table, size, "sampling2", private=True) if key == "tvd2" else {}
    level = sorted({point for line in floor.values() for point in line})
    lines = [*points.values(), *plain.values(), level]
    top = 6.0
    up = scale_around([y for line in lines for _, y in line], top + HEIGHT, top, is_log=True)
    sizes = sorted({x for line in lines for x, _ in line})
    across = scale_around(sizes, LEFT, RIGHT, is_log=True)
    parts = [x_axis(across, across.ticks(4), top, top + HEIGHT, f"{size} (log scale)"), y_axis(up, LEFT, RIGHT, title)]
    if level:
        parts.append(f'<path d="{_path(level, across, up)}" fill="none" stroke="{svg.INK}" stroke-dasharray="1 3"/>')
    for method, line in plain.items():
        faint = dataclasses.replace(styles[method], dash="4 3")
        parts.append(f'<path d="{_path(line, across, up)}" {faint.line} stroke-opacity="0.6"/>')
    for method, line in points.items():
        style = dataclasses.replace(styles[method], dash="")
        parts.append(f'<path d="{_path(line, across, up)}" {style.line}/>')
        parts += [style.mark(across.at(x), up.at(y), 3.4) for x, y in line]
    ends = {method: up.at(line[-1][1]) for method, line in points.items()}
    for method, y in spread_labels(ends, top + 4, top + HEIGHT).items():
        parts.append(svg.line(across.at(points[method][-1][0]) + 4, ends[method], RIGHT + 6, y, svg.RULE))
        parts.append(svg.text(RIGHT + 8, y + 3.8, method, extra=' class="axis"'))
    return "".join(parts)


def _points(
    results: Results, table: str, size: str, key: str, *, private: bool
) -> dict[str, Sequence[tuple[float, float]]]:
    """For each method, its sizes with a figure, in order."""
    found: dict[str, list[tuple[float, float]]] = {}
    for cell, result in results.items():
        if cell.table == table and cell.private == private and result.get(key, 0) > 0:
            found.setdefault(cell.method, []).append((getattr(cell, size), result[key]))
    return {method: sorted(found[method]) for method in sorted(found, key=_order)}


def _path(line: Sequence[tuple[float, float]], across: Scale, up: Scale) -> str:
    return "M" + "L".join(f"{across.at(x):.1f} {up.at(y):.1f}" for x, y in line)
