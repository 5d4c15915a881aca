"""What synthetic tables disclose, by method and epsilon, beside a copy of the real table and held-out real rows.

    UNDERSTUDY_DATA=folder python benchmarks/disclosure.py --table adult --method bayesgan --method autogan \
        --epsilons 0.1 1 10 inf --seeds 3 --jobs 2 --write

Methods are fitted to the training rows of a public table. Half of its test rows are the holdout of `us.disclose`; the
other half is attacked too, as a table that discloses nothing. Runs are seeded, on public data: repeatable, and not
private. Each cell runs in its own process; with --write its result is appended to results/disclosure_TABLE.jsonl at
once, cells that are there are not run again, and results/disclosure_TABLE.md shows all of them.
"""

import argparse
import datetime
import json
import math
import platform
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from statistics import mean

HERE = Path(__file__).parent
COPY, HELD_OUT = "copy of the training rows", "held-out rows"
BASELINES = (COPY, HELD_OUT)
KEYS = ("table", "method", "epsilon", "seed", "rows")
HEAD = (
    "method",
    "epsilon",
    "runs",
    "TPR at 1%",
    "FPR there",
    "allowed",
    "TPR at 5%",
    "FPR there",
    "allowed",
    "advantage",
    "AUC",
    "mean attribute difference",
    "largest",
    "runs with findings",
)


def run_cell(cell: dict) -> dict:
    """Fits and samples, or takes real rows, and attacks the result."""
    import numpy as np

    import understudy as us
    from understudy.benchmark.tables import load_table

    table = load_table(cell["table"])
    if table.test is None:
        raise SystemExit(f"{cell['table']} has no test rows to hold out.")
    train = table.train if cell["rows"] is None else table.train.slice(0, cell["rows"])
    order = np.random.default_rng([cell["seed"], 1]).permutation(table.test.num_rows)
    held, others = (table.test.take(half) for half in np.array_split(order, 2))
    began, statement = time.monotonic(), None
    if cell["method"] in BASELINES:
        fake = train if cell["method"] == COPY else others
    else:
        epsilon = float(cell["epsilon"])
        guarantee = us.Guarantee(epsilon, 1e-5) if math.isfinite(epsilon) else us.Guarantee.not_private()
        release = us.fit(train, cell["method"], guarantee, schema=_schema(table, train), seed=cell["seed"])
        fake, statement = release.sample_arrow(train.num_rows, seed=cell["seed"]), release.statement
    fitted = time.monotonic() - began
    found = us.disclose(train, fake, holdout=held, schema=table.schema, seed=cell["seed"])
    return {
        **cell,
        **figures(found, statement),
        "fit_seconds": round(fitted, 1),
        "machine": machine(),
        "date": str(datetime.date.today()),
    }


def _schema(table, train):
    import dataclasses

    return dataclasses.replace(table.schema, rows=train.num_rows)


def figures(found, statement) -> dict:
    """What the page shows of one report."""
    from understudy.privacy.accounting.tradeoff import statement_tradeoff

    one, five, best = found.membership.points
    at = {"tpr1": one.true_positives, "fpr1": one.false_positives}
    at |= {"tpr5": five.true_positives, "fpr5": five.false_positives}
    differences = [each.difference.value for each in found.attributes]
    allowed = {}
    if statement is not None and math.isfinite(statement.epsilon):  # what the noise would guarantee, were it secret
        bound = statement_tradeoff(statement)
        allowed = {f"allowed{n}": bound.largest_true_positive_rate(n / 100) for n in (1, 5)}
    return {
        **{name: rate.value for name, rate in at.items()},
        **allowed,
        "advantage": best.advantage.value,
        "attacks": [point.attack for point in found.membership.points],
        "auc": found.membership.auc.value,
        "mean_difference": mean(differences),
        "largest_difference": max(differences),
        "findings": [finding.value for finding in found.findings],
        "num_rows": dict(found.table_sizes),
    }


def machine() -> str:
    import os

    return f"{platform.machine()}, {len(os.sched_getaffinity(0))} cores, Python {platform.python_version()}"


# ---------------------------------------------------------------------------------------------------------------- cells


def cells_of(arguments: argparse.Namespace) -> Iterator[dict]:
    """Seed by seed, so that an interrupted run includes all methods."""
    for seed in range(arguments.seeds):
        wanted = [(baseline, None) for baseline in BASELINES]
        wanted += [(method, epsilon) for method in arguments.method for epsilon in arguments.epsilons]
        for method, epsilon in wanted:
            yield dict(zip(KEYS, (arguments.table, method, epsilon, seed, arguments.rows), strict=True))


def in_own_process(cell: dict, limit: float) -> dict:
    command = [sys.executable, __file__, "--cell", json.dumps(cell)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=limit)
    except subprocess.TimeoutExpired:
        return {**cell, "failed": f"not finished in {limit / 60:.0f} minutes"}
    if done.returncode != 0:
        return {**cell, "failed": (done.stderr.strip().splitlines() or ["no message"])[-1]}
    return json.loads(done.stdout.splitlines()[-1])


def run_all(arguments: argparse.Namespace, known: list[dict], record: Path | None) -> list[dict]:
    done = {_key(result) for result in known if "failed" not in result}
    cells = [cell for cell in cells_of(arguments) if _key(cell) not in done]
    results = [result for result in known if "failed" not in result]
    pool = ThreadPoolExecutor(arguments.jobs)  # its threads wait for processes
    try:
        for each in as_completed([pool.submit(in_own_process, cell, 60 * arguments.minutes) for cell in cells]):
            results.append(each.result())
            print(json.dumps(results[-1]), flush=True)
            if record is not None:
                with record.open("a") as file:
                    file.write(json.dumps(results[-1]) + "\n")
    finally:
        pool.shutdown(cancel_futures=True)  # an interrupted run starts no further cells
    return results


def _key(cell: dict) -> tuple:
    return tuple(str(cell[key]) for key in KEYS)


# ----------------------------------------------------------------------------------------------------------------- page


def as_markdown(results: Sequence[dict], table: str) -> str:
    """All results of one table: means over seeds."""
    done, failed = ([each for each in results if ("failed" in each) == is_failed] for is_failed in (False, True))
    groups: dict[tuple, list[dict]] = {}
    for each in sorted(done, key=lambda each: (each["method"] not in BASELINES, each["method"], _number(each))):
        groups.setdefault((each["method"], str(each["epsilon"] or "–"), each["rows"]), []).append(each)
    lines = [f"| {' | '.join(HEAD)} |", "|---|---|" + "---:|" * (len(HEAD) - 2)]
    lines += [_line(method, epsilon, group) for (method, epsilon, _), group in groups.items()]
    machines = "; ".join(sorted({each["machine"] for each in done}))
    sizes = "; ".join(
        sorted({f"{e['num_rows']['real']:,} training and {e['num_rows']['holdout']:,} held-out rows" for e in done})
    )
    dates = " to ".join(sorted({each["date"] for each in done}))
    text = (
        f"# Disclosure: {table}\n\n`{_command(done)}`, {dates}, {machines}; {sizes}.\n\n"
        "Means over seeds. The best of the attacks of `us.disclose` was chosen on one half of the rows; true- and "
        "false-positive rates (TPR, FPR) are those of the other half, at thresholds for 1% and 5% false positives. "
        "*Allowed* is the largest true-positive rate that the guarantee would allow at 1% and 5%, were the noise "
        "secret. Rates are estimates from samples of rows: compare true with false positives, and take a rate a little "
        "above what is allowed for chance unless there are findings. An attribute difference is the rate of right "
        "guesses for training rows minus that for held-out rows. "
        "Findings have a false-alarm rate of at most 1%.\n\n"
    )
    missing = "".join(
        f"\nFailed: {e['method']}, epsilon {e['epsilon']}, seed {e['seed']}: {e['failed']}\n" for e in failed
    )
    return text + "\n".join(lines) + "\n" + missing


def _command(results: Sequence[dict]) -> str:
    """The one command that makes all of these results."""
    fitted = [each for each in results if each["method"] not in BASELINES]
    methods = "".join(f" --method {name}" for name in dict.fromkeys(each["method"] for each in fitted))
    epsilons = " ".join(dict.fromkeys(each["epsilon"] for each in sorted(fitted, key=_number)))
    rows = "" if results[0]["rows"] is None else f" --rows {results[0]['rows']}"
    seeds = 1 + max(each["seed"] for each in results)
    return (
        f"python benchmarks/disclosure.py --table {results[0]['table']}{rows}{methods} --epsilons {epsilons} "
        f"--seeds {seeds} --write"
    )


def _number(result: dict) -> float:
    return -1.0 if result["epsilon"] is None else float(result["epsilon"])


def _line(method: str, epsilon: str, group: list[dict]) -> str:
    def percent(name: str) -> str:
        values = [each[name] for each in group if name in each]
        return f"{100 * mean(values):.1f}%" if values else "–"

    cells = [method, epsilon, str(len(group))]
    cells += [percent(name) for name in ("tpr1", "fpr1", "allowed1", "tpr5", "fpr5", "allowed5", "advantage")]
    cells += [f"{mean(each['auc'] for each in group):.3f}", percent("mean_difference"), percent("largest_difference")]
    cells.append(f"{sum(bool(each['findings']) for each in group)} of {len(group)}")
    return f"| {' | '.join(cells)} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--table", default="adult")
    parser.add_argument("--method", action="append", default=[], help="repeatable")
    parser.add_argument("--epsilons", nargs="*", default=["1"], help="'inf' for a run without noise")
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--rows", type=int, help="fit only the first training rows")
    parser.add_argument("--jobs", type=int, default=1, help="number of cells to run at once")
    parser.add_argument("--minutes", type=float, default=60.0, help="time limit for one cell")
    parser.add_argument("--write", action="store_true", help="write results/disclosure_TABLE.jsonl and .md")
    parser.add_argument("--out", type=Path, default=HERE / "results")
    parser.add_argument("--cell", help="run only this cell, given as JSON, and print its result")
    arguments = parser.parse_args()
    if arguments.cell:
        print(json.dumps(run_cell(json.loads(arguments.cell))))
        return
    record = arguments.out / f"disclosure_{arguments.table}.jsonl" if arguments.write else None
    known = []
    if record is not None and record.exists():
        known = [json.loads(line) for line in record.read_text().splitlines()]
    page = as_markdown(run_all(arguments, known, record), arguments.table)
    print(page)
    if record is not None:
        record.with_suffix(".md").write_text(page)


if __name__ == "__main__":
    sys.path.insert(0, str(HERE.parent / "src"))
    main()
