"""What the benchmark harness itself costs: idle time of its workers, and the time to resume a finished suite.

    python benchmarks/harness.py [--cells 1000] [--write]

Cells are fits and scores of `mst` on a table of scikit-learn's, so that each takes a second or two. *Busy* is the time
that workers spend in fitting, sampling and scoring, over the time that they were there; what is missing is the harness,
the start of the workers and the wait for the last cell.
"""

import argparse
import datetime
import os
import platform
import subprocess
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent / "src"))
SUITE = """
tables = ["breast"]
methods = ["mst"]
epsilons = [1.0]
seeds = {seeds}
metrics = ["f1", "auc", "pmse_ratio", "tvd2"]
classifiers = ["logistic", "random_forest"]
"""


def main(arguments: argparse.Namespace) -> None:
    from understudy.benchmark.cells import cells_of, table_checksums
    from understudy.benchmark.results import ResultStore, describe
    from understudy.benchmark.suite import read_suite

    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "short.toml").write_text(SUITE.format(seeds=arguments.seeds))
        wall = run(folder / "short.toml", folder / "short")
        records = ResultStore(folder / "short").read().values()
        busy = sum(sum(record["seconds"].values()) for record in records)  # type: ignore[attr-defined]
        (folder / "long.toml").write_text(SUITE.format(seeds=arguments.cells - 1))
        suite, store = read_suite(folder / "long.toml"), ResultStore(folder / "long")
        with store.open():
            for cell in cells_of(suite, checksums=table_checksums(suite)[0]):  # one result serves for all
                store.add({**next(iter(records)), **describe(cell, suite.name)})
        store.write_parquet()
        resumed = run(folder / "long.toml", folder / "long")
    lines = [
        "# The benchmark harness",
        "",
        f"`python benchmarks/harness.py --seeds {arguments.seeds} --write`, {datetime.date.today()}, "
        f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}.",
        "",
        "| | |",
        "|---|---:|",
        f"| cells that were run by two workers | {len(records)} |",
        f"| seconds, with the start of the workers | {wall:.1f} |",
        f"| fraction of the workers' time spent in fitting, sampling and scoring | {busy / (2 * wall):.3f} |",
        f"| seconds to resume a finished suite of {arguments.cells:,} cells | {resumed:.2f} |",
    ]
    print("\n".join(lines))
    if arguments.write:
        (HERE / "results" / "harness.md").write_text("\n".join(lines) + "\n")


def run(suite: Path, out: Path) -> float:
    """Runs a suite by the command line; seconds."""
    command = [
        sys.executable,
        "-m",
        "understudy",
        "benchmark",
        "run",
        str(suite),
        "-o",
        str(out),
        "--workers",
        "2",
        "-q",
    ]
    began = time.perf_counter()
    subprocess.run(command, check=True)
    return time.perf_counter() - began


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=100, help="cells of the suite that is run")
    parser.add_argument("--cells", type=int, default=1000, help="cells of the suite that is resumed")
    parser.add_argument("--write", action="store_true")
    main(parser.parse_args())
