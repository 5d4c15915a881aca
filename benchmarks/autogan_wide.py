"""How long `autogan` takes for a wide binary table: 30,000 rows of 1,000 columns, the shape of patients by codes.

    python benchmarks/autogan_wide.py --write

The rows are drawn here from a mixture of 20 kinds, so that columns go together; most columns are rare.
"""

import argparse
import datetime
import platform
import resource
import time
from pathlib import Path

import numpy as np
import pyarrow as pa

import understudy as us

ROWS, COLUMNS, KINDS = 30_000, 1_000, 20
RESULT = Path(__file__).parent / "results" / "autogan_wide.md"


def table(rows: int, columns: int) -> pa.Table:
    draw = np.random.default_rng(0)
    shares = np.minimum(0.9, draw.beta(0.3, 6.0, (1, columns)) * draw.gamma(1.0, 1.0, (KINDS, columns)))
    found = draw.random((rows, columns)) < shares[draw.integers(0, KINDS, rows)]
    return pa.table({f"code_{number}": found[:, number] for number in range(columns)})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=ROWS)
    parser.add_argument("--columns", type=int, default=COLUMNS)
    parser.add_argument("--method", default="autogan")
    parser.add_argument("--write", action="store_true")
    given = parser.parse_args()
    real = table(given.rows, given.columns)
    columns = tuple(us.Column(name=name, kind="boolean", nullable=False) for name in real.column_names)
    schema = us.Schema(columns=columns, rows=given.rows)
    began, began_cpu = time.monotonic(), time.process_time()
    release = us.fit(real, given.method, us.Guarantee(1.0, 1e-6), schema=schema, seed=0)
    fitted, cpu = time.monotonic() - began, time.process_time() - began_cpu
    began = time.monotonic()
    fake = release.sample_arrow(given.rows, seed=0)
    sampled = time.monotonic() - began
    shares = [np.asarray([t.column(n).to_numpy().mean() for n in real.column_names]) for t in (real, fake)]
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    machine = f"{platform.machine()}, 2 CPU cores that others used too, Python {platform.python_version()}"
    text = f"""# A wide binary table

`python benchmarks/autogan_wide.py --write`, {datetime.date.today()}, {machine}; seed 0. `{given.method}` at epsilon 1
and delta 1e-6, {given.rows:,} rows of {given.columns:,} boolean columns.

| | |
|---|---:|
| fitting, wall seconds | {fitted:.0f} |
| fitting, CPU seconds | {cpu:.0f} |
| sampling as many rows, wall seconds | {sampled:.0f} |
| most memory, GB | {memory:.1f} |
| correlation of the columns' shares, real and synthetic | {np.corrcoef(*shares)[0, 1]:.4f} |
"""
    print(text)
    if given.write:
        RESULT.write_text(text)


if __name__ == "__main__":
    main()
