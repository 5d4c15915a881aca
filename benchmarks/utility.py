"""Utility and time of methods on public tables, by a scorer that knows nothing of them.

    UNDERSTUDY_DATA=folder python benchmarks/utility.py gem --scorer score.py --tables adult car --epsilons 1
    UNDERSTUDY_DATA=folder python benchmarks/utility.py pate --scorer score.py
    UNDERSTUDY_DATA=folder python benchmarks/utility.py wide --scorer score.py --seeds 1

A suite (`SUITES`) names methods, tables and epsilons; options narrow it. Tables with a target are scored by `--scorer`,
a Python file with `score(train, test, synthetic, target) -> dict` that gives tvd1, tvd2 and tstr. Tables without one
(nltcs, accidents, msweb, and the made one of `sizes.py wide`) by the mean total variation distance over all pairs of
columns, or 500 fixed random ones, and 500 fixed random triples. As many rows are made as there are to learn from,
50,000 at most. Each cell runs in a process of its own, and a result is written as soon as it is there, into
results/NAME.jsonl; cells that are already there are not run again, and the page results/NAME.md shows all of them. With
`--cell` one cell is run and its result printed, with `--gather` such results are taken over: so cells can run
elsewhere. Runs are seeded, on public data: repeatable, and not private.
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
SUITES = {
    "gem": {
        "title": "gem beside the graphical models",
        "tables": [*LABELLED, *UNLABELLED],
        "epsilons": [1.0, 0.1, 3.0],
        "methods": ["gem", "aim", "mst", "independent"],
    },
    "recounts": {
        "title": "gem with and without recounts",
        "tables": ["adult", "bank", "accidents"],
        "epsilons": [1.0],
        "methods": ["gem", "gem(remeasurement_fraction=0)", "gem(remeasurement_fraction=0.5)"],
    },
    "wide": {
        "title": "30,000 rows of 1,000 boolean columns, most of them rare",
        "tables": ["wide"],
        "epsilons": [1.0],
        "methods": ["gem", "independent", "dpctgan", "autogan"],
    },
    "pate": {
        "title": "Teachers' votes beside clipped gradients",
        "tables": ["adult", "bank", "acs_income_2018"],
        "epsilons": [1.0, 3.0, 10.0],
        "methods": [
            "pategan",
            "pategan(target_fraction=0.0)",
            "pategan(teachers=2)",
            "patectgan",
            "dpgan",
            "dpgan(target_fraction=0.1)",
            "dpctgan",
        ],
    },
}
FIGURES = {"auc": "TSTR AUC", "f1": "TSTR F1", "tvd1": "tvd1", "tvd2": "tvd2", "tvd3": "tvd3"}
KEYS = ("table", "epsilon", "method", "delta", "seed")
SOME = 500
MOST_ROWS = 50_000
"""Rows that are made, if the training part has more: three classifiers learn from them."""


def run_cell(cell: dict, scorer: str) -> dict:
    """One fit, one sample, one score."""
    import understudy as us

    guarantee = us.Guarantee(cell["epsilon"], cell["delta"])
    train, test, schema, target = _task(cell["table"])
    began, began_cpu = time.monotonic(), time.process_time()
    release = us.fit(train, cell["method"], guarantee, schema=schema, target=target, seed=cell["seed"])
    fake = release.sample_arrow(min(train.num_rows, MOST_ROWS), seed=cell["seed"])
    times = {"cpu": time.process_time() - began_cpu, "wall": time.monotonic() - began}
    if target is None:
        return {**cell, **_distances(train, fake), **times, "machine": machine()}
    spec = importlib.util.spec_from_file_location("scorer", scorer)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    judged = module.score(train.to_pandas(), test.to_pandas(), fake.to_pandas(), target)
    mean = judged["tstr"]["mean"]
    figures = {"auc": mean["auc"], "f1": mean["f1"], "tvd1": judged["tvd1"], "tvd2": judged["tvd2"]}
    return {**cell, **figures, **times, "machine": machine()}


def machine() -> str:
    import jax

    device = jax.devices()[0]
    beside = "" if device.platform == "cpu" else f" and an {device.device_kind}"
    cores = len(os.sched_getaffinity(0))
    return f"{platform.machine()}, {cores} core{'s' * (cores > 1)}{beside}, Python {platform.python_version()}"


def delta_for(table: str) -> float:
    """A delta must lie below one over the rows."""
    return 1e-6 if table == "acs_income_2018" else 1e-5


def _task(name: str) -> tuple:
    import understudy as us
    from understudy.benchmark.public_tables import load_task, read_public

    if name == "wide":
        import sizes

        table, schema = sizes.wide(30_000, 1_000)
        return table, None, schema, None
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


def in_own_process(suite: str, cell: dict, scorer: str, limit: float) -> dict:
    command = [sys.executable, __file__, suite, "--scorer", scorer, "--cell", json.dumps(cell)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=limit)
    except subprocess.TimeoutExpired:
        return {**cell, "failed": f"not done in {limit / 60:.0f} minutes"}
    if done.returncode != 0:
        return {**cell, "failed": (done.stderr.strip().splitlines() or ["no message"])[-1]}
    return json.loads(done.stdout.splitlines()[-1])


def as_markdown(results: list[dict], suite: str) -> str:
    """One row for each table, epsilon and method: means over seeds."""
    machines = sorted({row["machine"] for row in results if "machine" in row})
    lines = [
        f"# {SUITES[suite]['title']}",
        "",
        "Declared schemas, means over the seeds; seeded runs on public data. Delta 1e-5; 1e-6 for acs_income_2018, "
        "which has more than 100,000 rows. Of tables without a target, tvd2 and tvd3 are over all pairs, or 500 fixed "
        "ones, and 500 fixed triples. Seconds are those of fitting and sampling, on machines that others used too; "
        "some runs came one after the other in one process, and did not compile again.",
        "",
        f"Command: `python benchmarks/utility.py {suite} --scorer score.py`, in several runs. "
        f"Date: {datetime.date.today()}. Machines: {'; '.join(machines)}.",
        "",
        f"| table | epsilon | method | seeds | {' | '.join(FIGURES.values())} | CPU s | wall s |",
        "|---|---:|---|---|" + "---:|" * (len(FIGURES) + 2),
    ]
    groups: dict[tuple, list[dict]] = {}
    for result in results:
        groups.setdefault((result["table"], result["epsilon"], result["method"]), []).append(result)
    order = {method: place for place, method in enumerate(SUITES[suite]["methods"])}
    for (table, epsilon, method), rows in sorted(groups.items(), key=lambda item: (*item[0][:2], order[item[0][2]])):
        good = [row for row in rows if "failed" not in row]
        if not good:
            lines.append(f"| {table} | {epsilon:g} | {method} | | {rows[0]['failed']} |")
            continue
        shown = [f"{statistics.fmean(r[key] for r in good):.4f}" if key in good[0] else "" for key in FIGURES]
        shown += [f"{statistics.fmean(row[key] for row in good):.0f}" for key in ("cpu", "wall")]
        numbers = sorted(row["seed"] for row in good)
        whole = numbers == list(range(len(numbers))) and len(numbers) > 3
        seeds = f"0 to {numbers[-1]}" if whole else ", ".join(map(str, numbers))
        lines.append(f"| {table} | {epsilon:g} | {method} | {seeds} | " + " | ".join(shown) + " |")
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("suite", choices=list(SUITES))
    parser.add_argument("--scorer", help="Python file with the scoring function")
    parser.add_argument("--tables", nargs="*")
    parser.add_argument("--epsilons", nargs="*", type=float)
    parser.add_argument("--methods", nargs="*")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--minutes", type=float, default=15.0, help="most time for one cell")
    parser.add_argument("--out", type=Path, default=HERE / "results")
    parser.add_argument("--cell", help="run this one, given as JSON, and print its result")
    parser.add_argument("--gather", type=Path, nargs="*", default=[], help="files of such results, to be taken over")
    arguments = parser.parse_args()
    if not arguments.gather and (arguments.scorer is None or not os.environ.get("UNDERSTUDY_DATA")):
        print(
            "benchmarks/utility.py: skipped, no --scorer or no UNDERSTUDY_DATA given (see its head for how to run it)."
        )
        return
    if arguments.cell:
        print(json.dumps(run_cell(json.loads(arguments.cell), arguments.scorer)))
        return
    suite = SUITES[arguments.suite]
    record, page = (arguments.out / f"utility_{arguments.suite}.{ending}" for ending in ("jsonl", "md"))
    results = [json.loads(line) for line in record.read_text().splitlines()] if record.exists() else []

    def add(result: dict) -> None:
        results.append(result)
        print(json.dumps(result), flush=True)
        with record.open("a") as file:
            file.write(json.dumps(result) + "\n")
        page.write_text(as_markdown(results, arguments.suite))

    def is_there(cell: dict) -> bool:
        return any(all(old[key] == cell[key] for key in KEYS) for old in results)

    for result in [json.loads(line) for path in arguments.gather for line in path.read_text().splitlines()]:
        if not is_there(result):
            add(result)
    axes = (arguments.tables or suite["tables"], arguments.epsilons or suite["epsilons"])
    wanted = itertools.product(range(arguments.seeds), *axes, arguments.methods or suite["methods"])
    for seed, table, epsilon, method in () if arguments.gather else wanted:
        cell = {"table": table, "epsilon": epsilon, "method": method, "delta": delta_for(table), "seed": seed}
        if not is_there(cell):
            add(in_own_process(arguments.suite, cell, arguments.scorer, 60 * arguments.minutes))


if __name__ == "__main__":
    main()
