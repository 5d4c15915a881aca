"""Seconds of one release with the local engine and with Spark on the same two cores.

    python benchmarks/spark.py --rows 10000000 -o benchmarks/results/spark.md

Makes a folder of Parquet files (10 columns: 6 categorical, 3 integer, 1 real; 8 files), and fits `mst` to it in a new
process for each engine, in turns. Every column is declared. Times are those of the whole command, from reading the
folder to the saved release; the start of Spark is included.
"""

import argparse
import datetime
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import understudy as us

FILES = 8
TOWNS = tuple(f"town {number}" for number in range(20))


def schema(num_rows: int) -> us.Schema:
    """All columns, declared."""
    texts = [us.Column(name=f"text{at}", kind="categorical", categories=TOWNS[: 3 * at + 3]) for at in range(6)]
    wholes = [us.Column(name=f"whole{at}", kind="integer", bounds=(0, 99)) for at in range(3)]
    return us.Schema(columns=(*texts, *wholes, us.Column(name="real", kind="real", bounds=(0.0, 50.0))), rows=num_rows)


def write_folder(folder: Path, num_rows: int) -> None:
    """The simulated table: each column depends on the one before."""
    folder.mkdir()
    for number in range(FILES):
        draw = np.random.default_rng(number)
        size = num_rows // FILES
        state = draw.integers(0, 100, size)
        columns: dict[str, pa.Array] = {}
        for at in range(6):
            state = (state + draw.integers(0, 30, size)) % 100
            columns[f"text{at}"] = pa.array(TOWNS).take(pa.array(state % (3 * at + 3)))
        for at in range(3):
            state = (state + draw.integers(0, 30, size)) % 100
            columns[f"whole{at}"] = pa.array(state)
        columns["real"] = pa.array(draw.gamma(2.0, 1.0 + state / 20.0))
        pq.write_table(pa.table(columns), folder / f"{number}.parquet")


def seconds(folder: Path, declared: Path, engine: str, out: Path) -> float:
    """Of one command in a process of its own."""
    command = [sys.executable, "-m", "understudy", "fit", str(folder), "--schema", str(declared), "--epsilon", "1"]
    options = ["--method", "mst", "--seed", "1", "--engine", engine, "--force", "--quiet", "-o", str(out)]
    memory = "--driver-memory 4g pyspark-shell"
    environment = {**os.environ, "PYSPARK_SUBMIT_ARGS": f"--master local[2] {memory}", "PYSPARK_PYTHON": sys.executable}
    start = time.perf_counter()
    subprocess.run([*command, *options], check=True, env=environment, stderr=subprocess.DEVNULL)
    return time.perf_counter() - start


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=10_000_000)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("-o", "--out", type=Path, required=True)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as place:
        folder, declared = Path(place, "made.parquet"), Path(place, "schema.toml")
        write_folder(folder, options.rows)
        schema(options.rows).write(declared)
        times: dict[str, list[float]] = {"local": [], "spark": []}
        for _ in range(options.repeats):
            for engine, own in times.items():
                own.append(seconds(folder, declared, engine, Path(place, f"{engine}.release")))
    options.out.write_text(report(times, options.rows))


def report(times: dict[str, list[float]], num_rows: int) -> str:
    """The page of results."""
    medians = {engine: statistics.median(own) for engine, own in times.items()}
    lines = [
        f"# Spark beside the local engine, {num_rows:,} rows",
        "",
        f"`python benchmarks/spark.py --rows {num_rows} --repeats {len(times['local'])}`, {datetime.date.today()},"
        f" {platform.machine()}, {os.cpu_count()} cores, load {os.getloadavg()[2]:.0f} (above 2, other programs ran);"
        f" Python {platform.python_version()}, Understudy {us.__version__}.",
        "",
        "`mst` at epsilon 1, 10 declared columns, 8 Parquet files. Seconds of the whole command; Spark is `local[2]`,",
        "and its start is included.",
        "",
        "| engine | median | each |",
        "|---|---|---|",
        *(
            f"| {engine} | {medians[engine]:.0f} | {', '.join(f'{each:.0f}' for each in own)} |"
            for engine, own in times.items()
        ),
        "",
        f"Ratio of the medians: {medians['spark'] / medians['local']:.2f}.",
        "",
    ]
    return "\n".join(lines)


if __name__ == "__main__":
    main()
