"""What the experiments of the DP-auto-GAN paper share: cells that are run once, and how their results are told.

"Differentially Private Mixed-Type Data Generation for Unsupervised Learning". Each cell is one release of a public
table by one method at one epsilon and seed; what it scored is a line of a file, and a cell whose line is there is not
run again. The paper's own figures come from an encoder that is not private (`docs/autogan_counterexample.md`); ours are
sound.
"""

import argparse
import dataclasses
import datetime
import json
import math
import os
import platform
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pyarrow as pa

import understudy as us
from understudy.evaluation.table import Layout

ROOT = Path(__file__).parents[3]
RESULTS, IMAGES = ROOT / "benchmarks/results", ROOT / "docs/images"
DELTA = 1e-5


@dataclasses.dataclass(frozen=True)
class Cell:
    """One release to make and judge."""

    table: str
    method: str
    """Its name on the page."""
    expression: str
    epsilon: float
    """Infinite: not private."""
    seed: int

    @property
    def key(self) -> str:
        return json.dumps(dataclasses.astuple(self))

    @property
    def guarantee(self) -> us.Guarantee:
        return us.Guarantee(self.epsilon, DELTA) if math.isfinite(self.epsilon) else us.Guarantee.not_private()


@dataclasses.dataclass(frozen=True)
class Public:
    """A public table, cut in two, and what is declared about it."""

    train: pa.Table
    test: pa.Table
    schema: us.Schema

    @property
    def layout(self) -> Layout:
        return Layout.of(self.train, self.schema, self.test)


def released(cell: Cell, table: Public) -> tuple[pa.Table, float]:
    """As many synthetic rows as there are real ones, and the seconds that fitting took. Seeded: public data."""
    began = time.monotonic()
    release = us.fit(table.train, cell.expression, cell.guarantee, schema=table.schema, seed=cell.seed)
    seconds = time.monotonic() - began
    assert release.statement.epsilon <= cell.epsilon
    return release.sample_arrow(table.train.num_rows, seed=cell.seed), seconds


def run(
    name: str,
    about: str,
    cells: Mapping[str, Sequence[Cell]],
    judge: Callable[[Cell], dict[str, Any]],
    page: Callable[[Sequence[Mapping[str, Any]]], str],
    pictures: Callable[[Sequence[Mapping[str, Any]]], None],
) -> None:
    """The command line: runs what is not yet in the result file, or none with --page, and writes file and page."""
    parser = argparse.ArgumentParser(description=about, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--profile", choices=list(cells), default="smoke")
    parser.add_argument("--methods", nargs="+", help="these methods alone")
    parser.add_argument("--tables", nargs="+", help="these tables alone")
    parser.add_argument("--epsilons", nargs="+", type=float, help="these epsilons alone")
    parser.add_argument("--seeds", nargs="+", type=int, help="these seeds alone")
    parser.add_argument("--write", action="store_true", help="keep results, and write the page")
    parser.add_argument("--part", type=Path, help="keep results in this file, for --gather, and write no page")
    parser.add_argument("--gather", type=Path, nargs="+", help="with --write: take over the results of such files")
    parser.add_argument("--page", action="store_true", help="run nothing: the page of what is there")
    found = parser.parse_args()
    file = RESULTS / f"{name}.jsonl"
    file, keep = found.part or file, found.write or found.part
    kept = [json.loads(line) for line in file.read_text().splitlines()] if keep and file.exists() else []
    for line in [line for part in found.gather or () for line in part.read_text().splitlines()]:
        if found.write and json.loads(line)["key"] not in {old["key"] for old in kept}:
            kept.append(json.loads(line))
            with file.open("a") as out:
                out.write(line + "\n")
    wanted = [
        cell
        for cell in cells[found.profile]
        if (not found.methods or cell.method in found.methods)
        and (not found.tables or cell.table in found.tables)
        and (not found.epsilons or cell.epsilon in found.epsilons)
        and (not found.seeds or cell.seed in found.seeds)
    ]
    for cell in [] if found.page else wanted:
        if cell.key in {line["key"] for line in kept}:
            continue
        line = {"key": cell.key, **dataclasses.asdict(cell), **judge(cell), "machine": machine(), "day": _today()}
        kept.append(line)
        print(cell.method, cell.table, cell.epsilon, line["scores"], f"{line['seconds']:.0f} s", flush=True)
        if keep:
            with file.open("a") as out:
                out.write(json.dumps(line) + "\n")
    if found.part:
        return
    text = page(kept)
    if found.write:
        (RESULTS / f"{name}.md").write_text(text)
        pictures(kept)
    print(text)


def _today() -> str:
    return str(datetime.date.today())


def machine() -> str:
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    device = jax.devices()[0]
    with_ = "" if device.platform == "cpu" else f" and one {device.device_kind} (shared)"
    return f"{platform.machine()}, {cores} CPU cores (shared){with_}, Python {platform.python_version()}"


def provenance(script: str, results: Sequence[Mapping[str, Any]]) -> str:
    """The command, the days, the machine, the seeds."""
    days, machines = (sorted({line[what] for line in results}) for what in ("day", "machine"))
    seeds = sorted({line["seed"] for line in results})
    return (
        f"`UNDERSTUDY_DATA=folder python benchmarks/papers/autogan/{script}.py --profile paper --write`, "
        f"{' and '.join(days)}, {' and '.join(machines)}; seed{'s' * (len(seeds) > 1)} "
        f"{', '.join(map(str, seeds))}. Seeded runs on public data; settings were chosen on public tables, these "
        "included. Delta 1e-5, add or remove one row."
    )


def mean_of(results: Sequence[Mapping[str, Any]], score: str, **which: Any) -> float | None:
    """The mean of a score over the seeds of a cell; None where none was run."""
    found = [
        line["scores"][score]
        for line in results
        if all(line[name] == value for name, value in which.items()) and line["scores"].get(score) is not None
    ]
    return float(np.mean(found)) if found else None


def table_of(header: Sequence[str], lines: Sequence[Sequence[object]]) -> str:
    """A Markdown table; numbers to the right."""
    rule = ["---", *["---:"] * (len(header) - 1)]
    return "\n".join("| " + " | ".join(map(_shown, line)) + " |" for line in [header, rule, *lines])


def _shown(value: object) -> str:
    return f"{value:.4g}" if isinstance(value, float) else "" if value is None else str(value)


COLOURS = ("#222222", "#c0392b", "#2471a3", "#1e8449")


def scatter(
    panels: Mapping[str, Mapping[str, Sequence[Sequence[float]]]], title: str, *, diagonal: bool = False
) -> str:
    """Points in panels side by side as a small SVG; with a diagonal, on which they should lie."""
    side, gap, top = 240, 50, 46
    width, height = gap + len(panels) * (side + gap), top + side + 40
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" font-family="sans-serif" '
        f'font-size="11"><rect width="{width}" height="{height}" fill="white"/><text x="{gap}" y="18" '
        f'font-size="13">{title}</text>'
    ]
    points = np.concatenate([np.asarray(p, float) for panel in panels.values() for p in panel.values()])
    low, high = points.min(axis=0), points.max(axis=0)
    if diagonal:  # of shares, from nothing to a little above the largest
        low, high = np.zeros(2), np.full(2, min(1.0, 1.1 * float(points.max())))
    for number, (name, panel) in enumerate(panels.items()):
        left = gap + number * (side + gap)
        parts.append(f'<rect x="{left}" y="{top}" width="{side}" height="{side}" fill="none" stroke="#999"/>')
        parts.append(f'<text x="{left}" y="{top - 8}">{name}</text>')
        if diagonal:
            parts.append(f'<line x1="{left}" y1="{top + side}" x2="{left + side}" y2="{top}" stroke="#ccc"/>')
            parts.append(
                f'<text x="{left}" y="{top + side + 16}">0</text><text x="{left + side}" y="{top + side + 16}" '
                f'text-anchor="end">{high[0]:.2g}</text>'
            )
        for colour, (label, values) in zip(COLOURS if len(panel) > 1 else COLOURS[1:], panel.items(), strict=False):
            places = (np.asarray(values, float) - low) / np.maximum(high - low, 1e-9)
            parts += [
                f'<circle cx="{left + side * x:.1f}" cy="{top + side * (1 - y):.1f}" r="1.6" fill="{colour}" '
                'fill-opacity="0.5"/>'
                for x, y in places
            ]
            parts.append(f'<text x="{left}" y="{top + side + 16}" fill="{colour}">{label}</text>')
            left += 90
    return "\n".join([*parts, "</svg>"]) + "\n"
