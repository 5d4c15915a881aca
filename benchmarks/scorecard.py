"""How long scorecards take, and how much memory: each in a process of its own.

    UNDERSTUDY_DATA=folder python benchmarks/scorecard.py
    python benchmarks/scorecard.py --mixed

Adult (32,561 real rows, 15 columns, the source's test part as holdout) against a table of MST of equal size, quick and
default; and the marginal metrics of 2 million rows by 10 columns. --mixed: the command line on a made-up table of
100,000 rows by 50 columns (`made_mixed`), quick and default, in seconds of the clock and of the processor;
prints a row for the table in `results/scorecard_timing.md`, and writes nothing.
"""

import argparse
import datetime
import json
import platform
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import csv

HERE = Path(__file__).parent


def adult(effort: str, fake: str) -> dict:
    """One scorecard, from the start of Python to the last metric."""
    import understudy as us
    from understudy.benchmark.tables import load_table

    table = load_table("adult")
    schema = table.schema
    scores = us.evaluate(
        table.train, pq.read_table(fake), schema=schema, target=table.target, holdout=table.test, effort=effort
    )
    return {"seconds_by_group": scores.to_json()["seconds"]}


def large() -> dict:
    """One-, two- and three-way marginals of 2 million rows; half of the columns are numbers."""
    import understudy as us

    draw = np.random.default_rng(0)
    tables = []
    for _ in range(2):
        columns = {f"n{i}": draw.random(2_000_000) for i in range(5)}
        columns |= {f"c{i}": draw.integers(0, 10 * (i + 1), 2_000_000).astype(str) for i in range(5)}
        tables.append(pa.table(columns))
    began = time.perf_counter()
    us.evaluate(*tables, metrics=["one_way", "two_way", "three_way"])
    return {"seconds_without_making_the_tables": round(time.perf_counter() - began, 1)}


MIXED_KINDS = 20
"""The number of kinds of rows of `made_mixed`, on which all of its columns depend."""


def made_mixed(rows: int = 100_000, columns: int = 50, *, kept: bool = True, seed: int = 0) -> pa.Table:
    """Numbers, categories (a third of these columns has 100 of them) and a target, from a mixture of kinds of rows.

    With `kept=False` every third column does not depend on the others and two have values that no real row has: a
    synthetic table with losses, to time how it is evaluated.

    >>> made_mixed(100, 8).column_names
    ['number_0', 'number_1', 'number_2', 'class_0', 'class_1', 'class_2', 'class_3', 'target']
    """
    draw, laws = np.random.default_rng(seed), np.random.default_rng(7)
    kinds, made = draw.integers(0, MIXED_KINDS, rows), {}
    numbers = 2 * columns // 5

    def kind_of(at: int) -> np.ndarray:
        return kinds if kept or at % 3 else draw.integers(0, MIXED_KINDS, rows)

    for at in range(numbers):
        values = laws.normal(0, 1, MIXED_KINDS)[kind_of(at)] + draw.normal(0, 1, rows)
        made[f"number_{at}"] = np.round(10 * values).astype(int) if at % 2 else values.round(3)
    classes = columns - 1 - numbers
    for at in range(classes):
        size = 100 if at >= 2 * classes // 3 else (2, 3, 5, 8, 12, 20)[at % 6]
        law = laws.dirichlet(np.full(size, 0.5), MIXED_KINDS).cumsum(axis=1)
        codes = (draw.random((rows, 1)) > law[kind_of(at)]).sum(axis=1).clip(0, size - 1)
        values = np.char.add("v", codes.astype(str))
        made[f"class_{at}"] = values if kept or at < classes - 2 else np.where(draw.random(rows) < 0.1, "other", values)
    made["target"] = np.where(draw.random(rows) < laws.random(MIXED_KINDS)[kinds], "yes", "no")
    return pa.table(made)


def mixed() -> None:
    """The commands as a user gives them, from CSV files to the last line."""
    with tempfile.TemporaryDirectory() as folder:
        real, fake = Path(folder) / "real.csv", Path(folder) / "fake.csv"
        for path, kept, seed in ((real, True, 0), (fake, False, 1)):
            csv.write_csv(made_mixed(kept=kept, seed=seed), path)
        for effort in (["--quick"], []):
            command = [sys.executable, "-m", "understudy", "evaluate", str(real), str(fake), "--target", "target"]
            before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
            subprocess.run([*command, *effort, "-q"], check=True, stdout=subprocess.DEVNULL)
            after, wall = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter() - began
            cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
            name = effort[0] if effort else "default"
            print(f"| {name} | {wall:.1f} | {cpu:.1f} | {after.ru_maxrss / 2**20:.2f} |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cell", help=argparse.SUPPRESS)
    parser.add_argument("--fake", help=argparse.SUPPRESS)
    parser.add_argument("--mixed", action="store_true", help="time the command line on a made-up table of 100,000 x 50")
    arguments = parser.parse_args()
    if arguments.mixed:
        mixed()
        return
    if arguments.cell is not None:
        began = time.perf_counter()
        found = large() if arguments.cell == "large" else adult(arguments.cell, arguments.fake)
        memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
        print(json.dumps({"cell": arguments.cell, "seconds": time.perf_counter() - began, "memory": memory, **found}))
        return
    with tempfile.TemporaryDirectory() as folder:
        fake = str(Path(folder) / "fake.parquet")
        _make(fake)
        cells = [_run(cell, fake) for cell in ("quick", "default", "large")]
    stamp = f"{datetime.date.today()}, Python {platform.python_version()}, {platform.machine()}, seed 0"
    lines = ["# Time and memory of scorecards", "", f"`python benchmarks/scorecard.py`, {stamp}, 2 CPU cores.", ""]
    lines += ["| what | seconds, wall | peak GB |", "|---|---:|---:|"]
    names = {
        "quick": "Adult, `--quick`",
        "default": "Adult, default",
        "large": "2 million x 10 twice, 1- to 3-way marginals, with making the tables",
    }
    lines += [f"| {names[cell['cell']]} | {cell['seconds']:.1f} | {cell['memory']:.2f} |" for cell in cells]
    lines += [f"\nOf the last: {cells[-1]['seconds_without_making_the_tables']} s without making the tables.\n"]
    parts = sorted(cells[1]["seconds_by_group"].items(), key=lambda item: -item[1])
    lines += ["The default scorecard by group, seconds (reference and synthetic table together):", ""]
    lines += [", ".join(f"{name} {seconds}" for name, seconds in parts if seconds >= 0.1) + "."]
    (HERE / "results" / "scorecard_timing.md").write_text("\n".join(lines) + "\n")
    print("\n".join(lines))


def _make(path: str) -> None:
    import understudy as us
    from understudy.benchmark.tables import load_table

    table = load_table("adult")
    release = us.fit(table.train, "mst", us.Guarantee(1.0, 1e-5), schema=table.schema, seed=0)
    pq.write_table(release.sample_arrow(seed=0), path)


def _run(cell: str, fake: str) -> dict:
    command = [sys.executable, __file__, "--cell", cell, "--fake", fake]
    return json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


if __name__ == "__main__":
    main()
