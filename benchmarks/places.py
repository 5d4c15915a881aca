"""How well the density of a map is kept: a made city, an adaptive histogram against a uniform grid of the same budget.

    python benchmarks/places.py --epsilon 1 --seeds 10 11 12 --write

The city has 100,000 people. `location` is the kind of that name, fitted with `--method`; `grid` counts people in 16 by
16 equal cells with the whole budget and draws uniformly in the part of a cell inside the region. The figures are the
density errors of a million synthetic points on squares of 1 and 5 km, the points outside the region, and the seconds in
which a million points are encoded and decoded. Runs are seeded, on made data: repeatable, and not private.
With --write the results are kept in results/places.md.
"""

import argparse
import datetime
import os
import platform
import shlex
import sys
import time
import warnings
from pathlib import Path

import numpy as np
import pyarrow as pa

sys.path.insert(0, str(Path(__file__).parents[1]))

import understudy as us
from understudy.benchmark.simulators import city
from understudy.encoding import reexpress
from understudy.encoding.locations import location_steps
from understudy.evaluation.locations import density_error, kilometres
from understudy.schema import Column, Schema
from understudy.schema.locations import Location

RESULTS = Path(__file__).parent / "results" / "places.md"
CELLS = 16
SAMPLED = 1_000_000
HEAD = ("seed", "table", "1 km", "5 km", "points outside")


def location_points(method: str, epsilon: float, seed: int) -> np.ndarray:
    """Synthetic points of the kind `location`, alone in its table."""
    drawn = city(seed=seed)
    schema = Schema(columns=drawn.schema.locations[0].columns, locations=drawn.schema.locations, rows=drawn.schema.rows)
    table = drawn.train.select(["lat", "lon"])
    release = us.fit(table, method, epsilon=epsilon, delta=1e-6, schema=schema, seed=seed)
    fake = release.sample(SAMPLED, seed=seed)
    return np.stack([fake.column(name).to_numpy() for name in ("lat", "lon")], axis=1)


def grid_points(epsilon: float, seed: int) -> np.ndarray:
    """Points of a uniform grid: one marginal with the whole budget, then uniform in the cell's part of the region."""
    drawn = city(seed=seed)
    extent, region = drawn.schema.locations[0].region.extent, drawn.schema.locations[0].region
    corner, size = np.array([extent.south, extent.west]), np.array([extent.north, extent.east])
    size = (size - corner) / CELLS
    points = np.stack([drawn.train.column(name).to_numpy() for name in ("lat", "lon")], axis=1)
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


def figures(points: np.ndarray, seed: int) -> list[str]:
    """The density errors and the points outside."""
    drawn = city(seed=seed)
    (home,) = drawn.schema.locations
    real = np.stack([drawn.train.column(name).to_numpy() for name in ("lat", "lon")], axis=1)
    ours, theirs = kilometres(home, real), kilometres(home, points)
    outside = int((~home.region.contains(*points.T)).sum())
    return [*(f"{density_error(ours, theirs, side):.4f}" for side in (1, 5)), f"{outside:,}"]


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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--epsilon", type=float, default=1.0)
    parser.add_argument("--method", default="mst")
    parser.add_argument("--seeds", type=int, nargs="+", default=[10, 11, 12])
    parser.add_argument("--write", action="store_true", help=f"write {RESULTS.name}")
    options = parser.parse_args()
    warnings.simplefilter("ignore", us.UnderstudyWarning)
    rows = [list(HEAD)]
    for seed in options.seeds:
        for name in ("location", "grid"):
            points = (
                location_points(options.method, options.epsilon, seed)
                if name == "location"
                else grid_points(options.epsilon, seed)
            )
            label = f"{name}, {options.method}" if name == "location" else f"{name}, {CELLS} x {CELLS}"
            rows.append([str(seed), label, *figures(points, seed)])
            print("  ".join(rows[-1]), flush=True)
    (home,) = city(rows=10).schema.locations
    seconds = seconds_of_a_million(home)
    took = f"A million points, one in twenty of them outside, took {seconds:.1f} s to encode and decode."
    print(took)
    if options.write:
        lines = [f"| {' | '.join(row)} |" for row in rows]
        lines.insert(1, "|" + " --- |" * len(HEAD))
        machine = f"{platform.machine()}, {os.cpu_count()} shared CPU cores, load {os.getloadavg()[0]:.0f}"
        command = shlex.join(["python", "benchmarks/places.py", *sys.argv[1:]])
        title = f"""# Locations: the density of a map

Density errors on the simulated city of 100,000 people, epsilon {options.epsilon:g}, delta 1e-6.

`{command}`, {datetime.date.today()}, {machine}, Python {platform.python_version()}. A million synthetic
points each; the error is the total variation distance on squares of this side. The finest cells of a map (`MAP_CELLS`)
were chosen on the cities of seeds 0 and 1."""
        RESULTS.write_text("\n".join([title, "", *lines, "", took, ""]))


if __name__ == "__main__":
    main()
