"""Utility and time of MWEM on public tables: Car in one histogram, Adult in automatic groups.

    UNDERSTUDY_DATA=folder python benchmarks/mwem.py --scorer score.py

`--scorer` is a Python file with `score(train, test, synthetic, target) -> dict` that gives tvd1, tvd2 and tstr. Car is
cut 70/30: the first 70% of a permutation by NumPy's generator of seed 0. Seconds are of fit and sample together, after
one run that loads everything. Runs are seeded, on public data: repeatable, and not private.
"""

import argparse
import dataclasses
import datetime
import importlib.util
import json
import os
import platform
import statistics
import time
from pathlib import Path

import numpy as np

HERE = Path(__file__).parent
DELTA = 1e-5
VARIANTS = [
    "mwem",
    "mwem(selection_fraction=0.5)",
    "mwem(columns_first=false)",
    "mwem(measure_only=true)",
    "mwem(average_rounds=true)",
    "mwem(columns_first=false, rounds=28, selection_fraction=0.5, score=mean, target_weight=1)",
    "mwem(workload=cell)",
    "mwem(workload=range)",
    "mst",
    "aim",
]
CELLS = [
    *({"table": "car", "method": method, "epsilon": epsilon, "seeds": 5} for epsilon in (1, 3) for method in VARIANTS),
    {"table": "adult", "method": "mwem", "epsilon": 1, "seeds": 3},
]
COLUMNS = {"auc": "TSTR AUC", "f1": "TSTR F1", "tvd1": "tvd1", "tvd2": "tvd2"}


def load(table: str):
    """Train and test part, target and schema."""
    from understudy.benchmark.sources import read_source
    from understudy.benchmark.tables import declared_schema, load_table

    if table != "car":
        loaded = load_table(table)
        return loaded.train, loaded.test, loaded.target, loaded.schema
    whole, schema = read_source("car"), declared_schema("car")
    order = np.random.default_rng(0).permutation(whole.num_rows)
    cut = round(0.7 * whole.num_rows)
    return whole.take(order[:cut]), whole.take(order[cut:]), "class", dataclasses.replace(schema, rows=cut)


def run_cell(cell: dict, score_fn) -> dict:
    """All seeds of one setting."""
    import understudy as us

    train, test, target, schema = load(cell["table"])
    us.fit(train, "independent", us.Guarantee(1.0, DELTA), schema=schema, seed=0).sample_arrow(seed=0)  # loads it all
    results = []
    for seed in range(cell["seeds"]):
        began = time.perf_counter()
        release = us.fit(train, cell["method"], us.Guarantee(cell["epsilon"], DELTA), schema=schema, seed=seed)
        fake = release.sample_arrow(seed=seed)
        seconds = time.perf_counter() - began
        judged = score_fn(train.to_pandas(), test.to_pandas(), fake.to_pandas(), target)
        results.append({**judged["tstr"]["mean"], "tvd1": judged["tvd1"], "tvd2": judged["tvd2"], "seconds": seconds})
    return {**cell, "results": results}


def as_markdown(cells: list[dict], command: str) -> str:
    lines = [
        "# MWEM on public tables",
        "",
        f"`{command}`, {datetime.date.today()}, {platform.machine()}, {len(os.sched_getaffinity(0))} CPU cores, no "
        f"GPU, Python {platform.python_version()}, NumPy {np.__version__}. Delta {DELTA:g}, declared schemas.",
        "Means over the seeds 0, 1, ...; seeded runs on public data. Car: 1,210 rows to fit, 518 to test (the first 70 "
        "% of a permutation by NumPy's generator of seed 0). Seconds: fit and sample together, slowest seed; the "
        "machine was shared.",
        "",
        "| table | epsilon | method | seeds | " + " | ".join(COLUMNS.values()) + " | sd of AUC | seconds |",
        "|---|---:|---|---:|" + "---:|" * (len(COLUMNS) + 2),
    ]
    for cell in cells:
        runs = cell["results"]
        shown = [f"{statistics.fmean(run[key] for run in runs):.4f}" for key in COLUMNS]
        shown += [f"{statistics.stdev(run['auc'] for run in runs):.3f}", f"{max(run['seconds'] for run in runs):.1f}"]
        lines.append(
            f"| {cell['table']} | {cell['epsilon']} | `{cell['method']}` | {len(runs)} | " + " | ".join(shown) + " |"
        )
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scorer", help="Python file with the scoring function")
    parser.add_argument("--out", type=Path, default=HERE / "results")
    arguments = parser.parse_args()
    if arguments.scorer is None:
        print("benchmarks/mwem.py: skipped, no --scorer given (see its head for how to run it).")
        return
    from understudy.benchmark.tables import missing_source

    for table in dict.fromkeys(str(cell["table"]) for cell in CELLS):
        if missing := missing_source(table):
            print(f"benchmarks/mwem.py: skipped. {missing}")
            return
    spec = importlib.util.spec_from_file_location("scorer", arguments.scorer)
    assert spec is not None
    assert spec.loader is not None
    scorer = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(scorer)
    cells = []
    for cell in CELLS:
        cells.append(run_cell(cell, scorer.score))
        print(json.dumps(cells[-1]), flush=True)
    arguments.out.mkdir(parents=True, exist_ok=True)
    (arguments.out / "mwem.md").write_text(as_markdown(cells, "python benchmarks/mwem.py --scorer score.py"))
    (arguments.out / "mwem.jsonl").write_text("".join(json.dumps(cell) + "\n" for cell in cells))


if __name__ == "__main__":
    main()
