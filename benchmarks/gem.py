"""Generators trained on marginals beside the graphical models: utility and time on public tables.

    UNDERSTUDY_DATA=folder python benchmarks/gem.py --scorer score.py --tables adult car --epsilons 1 --methods gem aim

Tables with a target are scored by `--scorer`, a Python file with `score(train, test, synthetic, target) -> dict` that
gives tvd1, tvd2 and tstr. Tables without one (nltcs, accidents, msweb) by the mean total variation distance over all
pairs of columns, or 500 fixed random ones, and 500 fixed random triples. Each cell runs in a process of its own, and a
result is written as soon as it is there; cells that are already in the results are not run again. Runs are seeded, on
public data: repeatable, and not private.
"""

import argparse
import datetime
import importlib.util
import itertools
import json
import os
import platform
import statistics
import subprocess
import sys
import time
from pathlib import Path

HERE = Path(__file__).parent
LABELLED = ("adult", "bank", "shopping", "mushroom", "car", "pums_ca", "acs_income_2018")
UNLABELLED = {"nltcs": "nltcs_train", "accidents": "accidents_train", "msweb": "msweb"}
METHODS = ("gem", "aim", "mst", "independent")
FIGURES = {"auc": "TSTR AUC", "f1": "TSTR F1", "tvd1": "tvd1", "tvd2": "tvd2", "tvd3": "tvd3"}
SOME = 500


def run_cell(cell: dict, scorer: str) -> dict:
    """One fit, one sample, one score."""
    import understudy as us

    guarantee = us.Guarantee(cell["epsilon"], cell["delta"])
    train, test, schema, target = _task(cell["table"])
    began, began_cpu = time.monotonic(), time.process_time()
    release = us.fit(train, cell["method"], guarantee, schema=schema, target=target, seed=cell["seed"])
    fake = release.sample_arrow(seed=cell["seed"])
    times = {"cpu": time.process_time() - began_cpu, "wall": time.monotonic() - began}
    if target is None:
        return {**cell, **_distances(train, fake), **times}
    spec = importlib.util.spec_from_file_location("scorer", scorer)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    judged = module.score(train.to_pandas(), test.to_pandas(), fake.to_pandas(), target)
    mean = judged["tstr"]["mean"]
    figures = {"auc": mean["auc"], "f1": mean["f1"], "tvd1": judged["tvd1"], "tvd2": judged["tvd2"]}
    return {**cell, **figures, **times}


def _task(name: str) -> tuple:
    import understudy as us
    from understudy.benchmark.public_tables import load_task, read_public

    if name in UNLABELLED:
        table = read_public(UNLABELLED[name])
        columns = tuple(us.Column(name=each, kind="boolean", nullable=False) for each in table.column_names)
        return table, None, us.Schema(columns=columns, rows=table.num_rows), None
    task = load_task(name)
    return task.train, task.test, us.Schema.read(HERE / "schemas" / f"{name}.toml"), task.target


def _distances(real, fake) -> dict:
    """Mean total variation distances of pairs and triples of boolean columns."""
    import numpy as np

    tables = [np.stack([table.column(name).to_numpy() for name in real.column_names], 1) for table in (real, fake)]
    draw, width = np.random.default_rng(0), len(real.column_names)

    def distance(columns: tuple[int, ...]) -> float:
        powers = 2 ** np.arange(len(columns))
        shares = [np.bincount(t[:, columns] @ powers, minlength=2 ** len(columns)) / len(t) for t in tables]
        return float(np.abs(shares[0] - shares[1]).sum() / 2)

    pairs = list(itertools.combinations(range(width), 2))
    if len(pairs) > SOME:
        pairs = [pairs[at] for at in draw.choice(len(pairs), SOME, replace=False)]
    triples = [tuple(draw.choice(width, 3, replace=False)) for _ in range(SOME)]
    return {
        "tvd1": statistics.fmean(distance((at,)) for at in range(width)),
        "tvd2": statistics.fmean(map(distance, pairs)),
        "tvd3": statistics.fmean(map(distance, triples)),
    }


def in_own_process(cell: dict, scorer: str, limit: float) -> dict:
    command = [sys.executable, __file__, "--scorer", scorer, "--cell", json.dumps(cell)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=limit)
    except subprocess.TimeoutExpired:
        return {**cell, "failed": f"not done in {limit / 60:.0f} minutes"}
    if done.returncode != 0:
        return {**cell, "failed": (done.stderr.strip().splitlines() or ["no message"])[-1]}
    return json.loads(done.stdout.splitlines()[-1])


def as_markdown(results: list[dict], command: str) -> str:
    """One row for each table, epsilon and method: means over seeds."""
    lines = [
        "# gem beside the graphical models",
        "",
        "Declared schemas, delta 1e-5, means over the seeds; seeded runs on public data. tvd2 and tvd3 of tables "
        "without a target are over all pairs, or 500 fixed ones, and 500 fixed triples. Wall seconds are of a machine "
        "that others used at the same time.",
        "",
        f"Command: `{command}`, in several runs. Date: {datetime.date.today()}. Machine: {platform.machine()}, "
        f"{len(os.sched_getaffinity(0))} cores, no GPU, Python {platform.python_version()}.",
        "",
        f"| table | epsilon | method | seeds | {' | '.join(FIGURES.values())} | CPU s | wall s |",
        "|---|---:|---|---|" + "---:|" * (len(FIGURES) + 2),
    ]
    groups: dict[tuple, list[dict]] = {}
    for result in results:
        groups.setdefault((result["table"], result["epsilon"], result["method"]), []).append(result)
    for (table, epsilon, method), rows in sorted(groups.items()):
        good = [row for row in rows if "failed" not in row]
        if not good:
            lines.append(f"| {table} | {epsilon:g} | {method} | | {rows[0]['failed']} |")
            continue
        shown = [f"{statistics.fmean(r[key] for r in good):.4f}" if key in good[0] else "" for key in FIGURES]
        shown += [f"{statistics.fmean(row[key] for row in good):.0f}" for key in ("cpu", "wall")]
        seeds = ", ".join(str(row["seed"]) for row in good)
        lines.append(f"| {table} | {epsilon:g} | {method} | {seeds} | " + " | ".join(shown) + " |")
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scorer", help="Python file with the scoring function")
    parser.add_argument("--tables", nargs="*", default=[*LABELLED, *UNLABELLED])
    parser.add_argument("--epsilons", nargs="*", type=float, default=[1.0, 0.1, 3.0])
    parser.add_argument("--methods", nargs="*", default=list(METHODS))
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--minutes", type=float, default=15.0, help="most time for one cell")
    parser.add_argument("--out", type=Path, default=HERE / "results")
    parser.add_argument("--cell", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.scorer is None or not os.environ.get("UNDERSTUDY_DATA"):
        print("benchmarks/gem.py: skipped, no --scorer or no UNDERSTUDY_DATA given (see its head for how to run it).")
        return
    if arguments.cell:
        print(json.dumps(run_cell(json.loads(arguments.cell), arguments.scorer)))
        return
    record = arguments.out / "gem_tables.jsonl"
    results = [json.loads(line) for line in record.read_text().splitlines()] if record.exists() else []
    axes = (range(arguments.seeds), arguments.tables, arguments.epsilons, arguments.methods)
    for seed, table, epsilon, method in itertools.product(*axes):
        cell = {"table": table, "epsilon": epsilon, "method": method, "delta": 1e-5, "seed": seed}
        if any(all(old[key] == cell[key] for key in cell) for old in results):
            continue
        results.append(in_own_process(cell, arguments.scorer, 60 * arguments.minutes))
        print(json.dumps(results[-1]), flush=True)
        with record.open("a") as file:
            file.write(json.dumps(results[-1]) + "\n")
        command = "python benchmarks/gem.py --scorer score.py --tables ... --epsilons ... --methods ..."
        (arguments.out / "gem_tables.md").write_text(as_markdown(results, command))


if __name__ == "__main__":
    main()
