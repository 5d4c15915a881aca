"""The results of `sizes.py`: their file, their page and their picture."""

import dataclasses
import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from understudy.benchmark.report.document import Drawing
from understudy.benchmark.report.figures import COLOURS, INK, MARKERS, canvas, save

IMAGES = Path(__file__).parents[1] / "docs" / "images"


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
    (IMAGES / "sizes.svg").write_text(draw(results).svg)


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
    title = "A fit at epsilon 1 on two shared CPU cores. Dashed: error without privacy; dotted: sampling error"
    with canvas(1000, 500, title, columns=3, rows=2) as (figure, grid):
        for row, (table, size) in zip(grid, (("census", "rows"), ("wide", "columns")), strict=True):
            for axes, (key, name) in zip(row, _FIGURES, strict=True):
                _draw_panel(axes, results, (table, size, key), methods)
                axes.set_xlabel(f"{size} (log scale)")
                axes.set_ylabel(name)
        lines = {
            label: line for axes in grid.flat for line, label in zip(*axes.get_legend_handles_labels(), strict=True)
        }
        shown = [name for name in methods if name in lines]
        figure.legend([lines[name] for name in shown], shown, loc="outside right center")
        label = "Seconds, peak memory and error of 2-way marginals, by rows of a census table and by columns."
        return save(figure, "sizes", label)


_FIGURES = (("cpu_seconds", "CPU seconds"), ("gigabytes", "peak memory, GB"), ("tvd2", "2-way error (tvd2)"))


def _order(method: str) -> tuple[int, str]:
    known = ("independent", "mst", "aim", "auto", "dpgan")
    return (known.index(method) if method in known else len(known)), method


def _draw_panel(axes: Any, results: Results, what: tuple[str, str, str], methods: Sequence[str]) -> None:
    """One figure against one size: a line for each method."""
    points, plain, floor = _points(results, *what, private=True), {}, {}
    if what[2] == "tvd2":
        plain = _points(results, *what, private=False)
        floor = _points(results, what[0], what[1], "sampling2", private=True)
    level = sorted({point for line in floor.values() for point in line})
    if not points:
        return
    axes.set(xscale="log", yscale="log")
    if level:
        axes.plot(*zip(*level, strict=True), color=INK, linestyle=(0, (1, 3)))
    for number, method in enumerate(methods):
        colour = COLOURS[number % len(COLOURS)]
        if method in plain:
            axes.plot(*zip(*plain[method], strict=True), color=colour, linestyle=(0, (4, 3)), linewidth=1.2, alpha=0.6)
        if method in points:
            axes.plot(
                *zip(*points[method], strict=True),
                color=colour,
                marker=MARKERS[number % len(MARKERS)],
                markersize=4,
                linewidth=1.3,
                label=method,
            )


def _points(
    results: Results, table: str, size: str, key: str, *, private: bool
) -> dict[str, Sequence[tuple[float, float]]]:
    """For each method, its sizes with a figure, in order."""
    found: dict[str, list[tuple[float, float]]] = {}
    for cell, result in results.items():
        if cell.table == table and cell.private == private and result.get(key, 0) > 0:
            found.setdefault(cell.method, []).append((getattr(cell, size), result[key]))
    return {method: sorted(found[method]) for method in sorted(found, key=_order)}
