"""Time and memory for tables of several shapes: a wide one with `autogan`, the others with the default method.

    python benchmarks/sizes.py wide --write
    python benchmarks/sizes.py long --write

wide: 30,000 rows of 1,000 boolean columns, most of them rare, the shape of patients by codes. long: a million rows of
15 columns, categorical (2 to 40 categories) but for five numeric ones, with a target; medium: 30,000 rows of 45 such
columns. Both are drawn from a mixture of 20 kinds of rows, so that columns depend on each other. hundred: 20,000 rows
of 100 columns in short chains (`made_tables.py`).
"""

import argparse
import dataclasses
import datetime
import platform
import resource
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa

import understudy as us

sys.path.insert(0, str(Path(__file__).parents[1]))

KINDS = 20
RESULTS = Path(__file__).parent / "results"


def wide(rows: int, columns: int) -> tuple[pa.Table, us.Schema]:
    draw = np.random.default_rng(0)
    shares = np.minimum(0.9, draw.beta(0.3, 6.0, (1, columns)) * draw.gamma(1.0, 1.0, (KINDS, columns)))
    found = draw.random((rows, columns)) < shares[draw.integers(0, KINDS, rows)]
    table = pa.table({f"code_{number}": found[:, number] for number in range(columns)})
    declared = tuple(us.Column(name=name, kind="boolean", nullable=False) for name in table.column_names)
    return table, us.Schema(columns=declared, rows=rows)


def long(rows: int, columns: int) -> tuple[pa.Table, us.Schema]:
    draw = np.random.default_rng(0)
    kinds = draw.integers(0, KINDS, rows)
    made, declared = {}, []
    for number, size in enumerate(np.geomspace(2, 40, columns - 5).astype(int).tolist()):
        levels = np.asarray([f"level {level}" for level in range(size)])
        laws = np.cumsum(draw.dirichlet(np.full(size, 0.5), KINDS), axis=1)
        codes = (laws[kinds] < draw.random((rows, 1))).sum(axis=1).clip(0, size - 1)
        made[f"class_{number}"] = pa.array(levels[codes])
        declared.append(
            us.Column(name=f"class_{number}", kind="categorical", categories=tuple(levels), nullable=False, closed=True)
        )
    for number in range(5):
        values = draw.normal(draw.normal(50, 15, KINDS)[kinds], 8).clip(0, 100)
        made[f"number_{number}"] = pa.array(values)
        declared.append(us.Column(name=f"number_{number}", kind="real", bounds=(0.0, 100.0), nullable=False))
    return pa.table(made), us.Schema(columns=tuple(declared), rows=rows, target="class_0")


def chains(rows: int, columns: int) -> tuple[pa.Table, us.Schema]:
    from benchmarks.made_tables import made_wide  # which imports this file

    return made_wide(rows, columns)


@dataclasses.dataclass(frozen=True)
class Case:
    make: Callable[[int, int], tuple[pa.Table, us.Schema]]
    rows: int
    columns: int
    method: str


CASES = {
    "wide": Case(wide, 30_000, 1_000, "autogan"),
    "long": Case(long, 1_000_000, 15, "adaptive"),
    "medium": Case(long, 30_000, 45, "adaptive"),
    "hundred": Case(chains, 20_000, 100, "adaptive"),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("case", choices=list(CASES))
    parser.add_argument("--method")
    parser.add_argument("--rows", type=int)
    parser.add_argument("--columns", type=int)
    parser.add_argument("--write", action="store_true")
    given = parser.parse_args()
    case = CASES[given.case]
    method = given.method or case.method
    real, schema = case.make(given.rows or case.rows, given.columns or case.columns)
    began, began_cpu = time.monotonic(), time.process_time()
    release = us.fit(real, method, us.Guarantee(1.0, 1e-7), schema=schema, seed=0)
    fitted, cpu = time.monotonic() - began, time.process_time() - began_cpu
    began = time.monotonic()
    release.sample_arrow(real.num_rows, seed=0)
    sampled = time.monotonic() - began
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    machine = f"{platform.machine()}, 2 shared CPU cores, Python {platform.python_version()}"
    text = f"""# The table `{given.case}`: {real.num_rows:,} rows of {real.num_columns:,} columns

`python benchmarks/sizes.py {given.case} --write`, {datetime.date.today()}, {machine}; seed 0. `{method}` at
epsilon 1 and delta 1e-7.

| | |
|---|---:|
| fitting, wall seconds | {fitted:.0f} |
| fitting, CPU seconds | {cpu:.0f} |
| sampling as many rows, wall seconds | {sampled:.0f} |
| peak memory of the process, including the table, GB | {memory:.1f} |
"""
    print(text)
    if given.write:
        (RESULTS / f"sizes_{given.case}.md").write_text(text)


if __name__ == "__main__":
    main()
