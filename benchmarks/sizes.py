"""Time and memory for tables of several shapes: a wide one with `autogan`, the others with the default method.

    python benchmarks/sizes.py wide --write
    python benchmarks/sizes.py long --write

wide: 30,000 rows of 1,000 boolean columns, most of them rare, the shape of patients by codes. long: a million rows of
15 columns, categorical (2 to 40 categories) but for five numeric ones, with a target; medium: 30,000 rows of 45 such
columns. Both are drawn from a mixture of 20 kinds of rows, so that columns depend on each other. hundred: 20,000 rows
of 100 columns in short chains. All are made by `understudy.benchmark.simulators`.
"""

import argparse
import dataclasses
import datetime
import platform
import resource
import time
from collections.abc import Callable
from pathlib import Path

import understudy as us
from understudy.benchmark.simulators import Drawn, made_codes, made_long, made_wide

RESULTS = Path(__file__).parent / "results"


@dataclasses.dataclass(frozen=True)
class Case:
    make: Callable[[int, int], Drawn]
    rows: int
    columns: int
    method: str


CASES = {
    "wide": Case(made_codes, 30_000, 1_000, "autogan"),
    "long": Case(made_long, 1_000_000, 15, "adaptive"),
    "medium": Case(made_long, 30_000, 45, "adaptive"),
    "hundred": Case(made_wide, 20_000, 100, "adaptive"),
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
    real, _, schema = case.make(given.rows or case.rows, given.columns or case.columns)
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
