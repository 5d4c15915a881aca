"""Utility, time and memory of the marginal methods on a public table.

    UNDERSTUDY_DATA=folder python benchmarks/marginals.py --scorer score.py

`--scorer` is a Python file with `score(train, test, synthetic, target) -> dict` that gives tvd1, tvd2 and tstr. Each
cell runs in a process of its own, so that CPU seconds (from the start of Python to the last synthetic row, without
scoring) and peak memory are its own. Runs are seeded, on public data: repeatable, and not private.
"""

import argparse
import datetime
import importlib.util
import json
import platform
import resource
import statistics
import subprocess
import sys
import time
from pathlib import Path

HERE = Path(__file__).parent
DEFAULT_CELLS = [
    {"method": "independent", "schema": "declared"},
    {"method": "privbayes", "schema": "declared"},
    {"method": "mst", "schema": "declared"},
    {"method": "mst", "schema": "estimated"},
    {"method": "aim", "schema": "declared"},
    {"method": "aim", "schema": "estimated"},
]
BIN_CELLS = [
    {"method": "mst", "schema": "declared", "bins": bins, "max_bins": max_bins}
    for bins, max_bins in [("tree", 32), ("equal", 32), ("uniform", 32), ("tree", 16), ("tree", 64)]
]
COLUMNS = {"auc": "TSTR AUC", "f1": "TSTR F1", "tvd1": "tvd1", "tvd2": "tvd2", "cpu": "CPU s", "memory": "peak GB"}


def run_cell(cell: dict, scorer: str) -> dict:
    """One fit, one sample, one score."""
    import understudy as us
    from understudy.benchmark.tables import load_table

    table = load_table(cell["table"])
    schema = table.schema if cell["schema"] == "declared" else None
    binning = us.Binning(bins=cell.get("bins", "tree"), max_bins=cell.get("max_bins", 32))
    guarantee = us.Guarantee(cell["epsilon"], cell["delta"])
    release = us.fit(
        table.train, cell["method"], guarantee, schema=schema, target=table.target, binning=binning, seed=cell["seed"]
    )
    fake = release.sample_arrow(seed=cell["seed"]).to_pandas()
    cpu = time.process_time()
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    judged = _scorer(scorer).score(table.train.to_pandas(), table.test.to_pandas(), fake, table.target)
    return {
        **cell,
        "auc": judged["tstr"]["mean"]["auc"],
        "f1": judged["tstr"]["mean"]["f1"],
        "tvd1": judged["tvd1"],
        "tvd2": judged["tvd2"],
        "cpu": cpu,
        "memory": memory,
        "spent": release.statement.epsilon,
    }


def _scorer(path: str):
    spec = importlib.util.spec_from_file_location("scorer", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def in_own_process(cell: dict, scorer: str) -> dict:
    command = [sys.executable, __file__, "--scorer", scorer, "--cell", json.dumps(cell)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        sys.exit(f"The cell {cell} failed:\n{done.stderr}")
    return json.loads(done.stdout.splitlines()[-1])


def as_markdown(results: list[dict], command: str, title: str) -> str:
    """One row for each setting: means over seeds, and the standard deviation of the AUC."""
    groups: dict[tuple, list[dict]] = {}
    for result in results:
        key = (result["method"], result["schema"], result.get("bins", "tree"), result.get("max_bins", 32))
        groups.setdefault(key, []).append(result)
    first = results[0]
    lines = [
        f"# {title}",
        "",
        f"Table {first['table']}, epsilon {first['epsilon']:g}, delta {first['delta']:g}, mean of seeds "
        f"{sorted({r['seed'] for r in results})}; seeded runs on public data.",
        "",
        f"Command: `{command}`. Date: {datetime.date.today()}. Machine: {platform.machine()}, "
        f"{_cores()} cores, no GPU, Python {platform.python_version()}.",
        "",
        "| method | schema | bins | " + " | ".join(COLUMNS.values()) + " | sd of AUC |",
        "|---|---|---|" + "---:|" * (len(COLUMNS) + 1),
    ]
    for (method, schema, bins, max_bins), rows in groups.items():
        means = {key: statistics.fmean(row[key] for row in rows) for key in COLUMNS}
        spread = statistics.stdev([row["auc"] for row in rows]) if len(rows) > 1 else 0.0
        shown = [f"{means[key]:.4f}" for key in ("auc", "f1", "tvd1", "tvd2")]
        shown += [f"{means['cpu']:.0f}", f"{means['memory']:.2f}", f"{spread:.4f}"]
        lines.append(f"| {method} | {schema} | {bins}, {max_bins} | " + " | ".join(shown) + " |")
    return "\n".join(lines) + "\n"


def _cores() -> int:
    import os

    return len(os.sched_getaffinity(0))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scorer", help="Python file with the scoring function")
    parser.add_argument("--table", default="adult")
    parser.add_argument("--epsilon", type=float, default=1.0)
    parser.add_argument("--delta", type=float, default=1e-5)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--bins", action="store_true", help="compare ways to bin numbers instead of methods")
    parser.add_argument("--methods", nargs="*", help="only these methods")
    parser.add_argument("--out", type=Path, default=HERE / "results")
    parser.add_argument("--cell", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.scorer is None:
        print("benchmarks/marginals.py: skipped, no --scorer given (see its head for how to run it).")
        return
    if arguments.cell:
        print(json.dumps(run_cell(json.loads(arguments.cell), arguments.scorer)))
        return
    from understudy.benchmark.tables import missing_source

    cells = BIN_CELLS if arguments.bins else DEFAULT_CELLS
    for table in dict.fromkeys(cell["table"] for cell in cells):
        if missing := missing_source(table):
            print(f"benchmarks/marginals.py: skipped. {missing}")
            return
    cells = [cell for cell in cells if not arguments.methods or cell["method"] in arguments.methods]
    results = []
    for cell in cells:
        for seed in range(arguments.seeds):
            whole = {
                **cell,
                "table": arguments.table,
                "epsilon": arguments.epsilon,
                "delta": arguments.delta,
                "seed": seed,
            }
            results.append(in_own_process(whole, arguments.scorer))
            print(json.dumps(results[-1]), flush=True)
    name = f"{'bins' if arguments.bins else 'marginals'}_{arguments.table}_epsilon{arguments.epsilon:g}"
    title = "Ways to bin numeric columns" if arguments.bins else "Marginal methods"
    options = [
        f"--{key} {value}" for key in ("table", "epsilon", "delta", "seeds") if (value := getattr(arguments, key))
    ]
    options += [f"--methods {' '.join(arguments.methods)}"] if arguments.methods else []
    command = " ".join(["python benchmarks/marginals.py --scorer score.py", *options] + ["--bins"] * arguments.bins)
    arguments.out.mkdir(parents=True, exist_ok=True)
    (arguments.out / f"{name}.md").write_text(as_markdown(results, command, title))
    (arguments.out / f"{name}.jsonl").write_text("".join(json.dumps(result) + "\n" for result in results))


if __name__ == "__main__":
    main()
