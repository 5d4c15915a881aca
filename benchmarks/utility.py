"""Utility and time of methods on public tables, by a scorer that knows nothing about the methods.

    UNDERSTUDY_DATA=folder python benchmarks/utility.py default --jobs 2
    UNDERSTUDY_DATA=folder python benchmarks/utility.py gem --tables adult car --epsilons 1
    UNDERSTUDY_DATA=folder python benchmarks/utility.py wide --seeds 1

A suite (`SUITES`) names methods, tables and epsilons; options narrow it down. Tables are those in the folder
UNDERSTUDY_DATA and those that need no folder; missing ones are skipped with a message. The figures are those of
`scorer.py`. As many rows are sampled as there are training rows, but at most 50,000.

Each cell runs in its own process, and its result is added to results/utility_SUITE.jsonl at once; cells that are
already there are not run again, unless the revision of their method was raised since. The page
results/utility_SUITE.md shows all of them. `--cell` runs one cell and prints its result, and `--gather` adds such
results to the file, so that cells can run on other machines. Runs are seeded, on public data: repeatable, and not
private.
"""

import argparse
import itertools
import json
import os
import platform
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks.simulated import TABLES as SIMULATED
from benchmarks.simulated import load_simulated
from benchmarks.utility_page import REAL, Result, as_markdown
from understudy.benchmark.tables import missing_source, table_names
from understudy.run.atomic import write_file

HERE = Path(__file__).parent
DEVELOPMENT = (*table_names("package"), "made_wide", "made_long", "xor3", "xor4", "xor5")
"""Tables without downloads, for choosing default settings."""
LABELLED = ("adult", "bank", "shopping", "mushroom", "car", "pums_ca", "acs_income_2018")
UNLABELLED = {"nltcs": "nltcs_train", "accidents": "accidents_train", "msweb": "msweb"}
SUITES: dict[str, dict[str, Any]] = {
    "default": {
        "title": "The default method compared with others",
        "tables": [*LABELLED, *UNLABELLED, *DEVELOPMENT],
        "epsilons": [1.0, 0.1, 10.0],
        "methods": ["auto", "aim", "gem", "mst", "privbayes", "independent", REAL],
        "seeds": 3,
        "compare": ("auto", "aim"),
    },
    "gem": {
        "title": "gem beside the graphical models",
        "tables": [*LABELLED, *UNLABELLED],
        "epsilons": [1.0, 0.1, 3.0],
        "methods": ["gem", "aim", "mst", "independent"],
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
KEYS = ("table", "epsilon", "method", "delta", "seed")
MAX_ROWS = 50_000
"""The largest number of sampled rows: three classifiers are trained on them."""


def run_cell(cell: dict) -> dict:
    """Fits, samples and scores; real data are only scored."""
    import understudy as us
    from benchmarks.scorer import score

    train, test, schema, target = _task(cell["table"])
    times, fake = {}, train
    if cell["method"] != REAL:
        guarantee = us.Guarantee(cell["epsilon"], cell["delta"])
        began, began_cpu = time.monotonic(), time.process_time()
        release = us.fit(train, cell["method"], guarantee, schema=schema, target=target, seed=cell["seed"])
        fake = release.sample_arrow(min(train.num_rows, MAX_ROWS), seed=cell["seed"])
        times = {"cpu": time.process_time() - began_cpu, "wall": time.monotonic() - began}
    figures = score(train.to_pandas(), None if test is None else test.to_pandas(), fake.to_pandas(), target)
    return {**cell, **figures, **times, "revisions": revisions_of(cell["method"]), "machine": machine()}


def revisions_of(method: str) -> str:
    """The revisions of the methods in an expression; results without this field are of revision 1.

    >>> revisions_of("dpgan(target_fraction=0.1)")
    'dpgan:1'
    """
    from understudy.benchmark.cells import code_of
    from understudy.benchmark.suite import MethodSpec

    return " ".join(code_of(None if method == REAL else MethodSpec(expression=method)).split()[2:])


def is_current(result: Result) -> bool:
    """Whether its method would give the same result today."""
    revisions = revisions_of(result["method"])
    return result.get("revisions", re.sub(r":\d+", ":1", revisions)) == revisions


def machine() -> str:
    import jax

    device = jax.devices()[0]
    beside = "" if device.platform == "cpu" else f" and an {device.device_kind}"
    cores = len(os.sched_getaffinity(0))
    return f"{platform.machine()}, {cores} core{'s' * (cores > 1)}{beside}, Python {platform.python_version()}"


def delta_for(table: str) -> float:
    """A delta below 1 / rows."""
    return 1e-6 if table in ("acs_income_2018", "made_long") else 1e-5


def _task(name: str) -> tuple:
    """Training rows, test rows, schema and target; test rows and target are None if nothing is predicted."""
    import understudy as us
    from understudy.benchmark.sources import read_source
    from understudy.benchmark.tables import load_table

    if name in UNLABELLED:
        rows = read_source(UNLABELLED[name])
        columns = tuple(us.Column(name=each, kind="boolean", nullable=False) for each in rows.column_names)
        return rows, None, us.Schema(columns=columns, rows=rows.num_rows), None
    if name in SIMULATED:
        table, test, schema = load_simulated(name)
        return table, test, schema, schema.target
    loaded = load_table(name)
    return loaded.train, loaded.test, loaded.schema, loaded.target


def present_tables(tables: list[str]) -> list[str]:
    """The tables that can be loaded; the others are printed, with the reason."""
    lacking: dict[str | None, list[str]] = {}
    for table in tables:
        lacking.setdefault(None if table in SIMULATED else missing_source(table), []).append(table)
    present = lacking.pop(None, [])
    for reason, left_out in lacking.items():
        print(f"benchmarks/utility.py: skipped {', '.join(left_out)}: {reason}", file=sys.stderr)
    return present


def cells_of(tables: list[str], epsilons: list[float], methods: list[str], seeds: int) -> Iterator[dict]:
    """Seed by seed, so that an interrupted run includes all methods; real data once for each table."""
    if REAL in methods:
        for table in tables:
            yield {"table": table, "epsilon": None, "method": REAL, "delta": None, "seed": 0}
    private = [method for method in methods if method != REAL]
    for seed, table, epsilon, method in itertools.product(range(seeds), tables, epsilons, private):
        yield {"table": table, "epsilon": epsilon, "method": method, "delta": delta_for(table), "seed": seed}


def in_own_process(suite: str, cell: dict, limit: float) -> dict:
    command = [sys.executable, __file__, suite, "--cell", json.dumps(cell)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=limit)
    except subprocess.TimeoutExpired:
        return {**cell, "failed": f"not finished in {limit / 60:.0f} minutes"}
    if done.returncode != 0:
        return {**cell, "failed": (done.stderr.strip().splitlines() or ["no message"])[-1]}
    return json.loads(done.stdout.splitlines()[-1])


class Record:
    """The results of a suite, and the files that show them."""

    def __init__(self, folder: Path, suite: str) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.suite = suite
        self.path, self.page = (folder / f"utility_{suite}.{ending}" for ending in ("jsonl", "md"))
        self.results = read_results(self.path) if self.path.exists() else []
        self.known = {_key(result) for result in self.results if is_current(result)}

    def __contains__(self, cell: dict) -> bool:
        return _key(cell) in self.known

    def lacks(self, result: dict) -> bool:
        """Whether this result is new, or newer than what is there."""
        return result not in self and (is_current(result) or _key(result) not in map(_key, self.results))

    def add(self, result: dict) -> None:
        """A result of the same cell is replaced: it was run with an earlier revision of its method."""
        self.results = [each for each in self.results if _key(each) != _key(result)] + [result]
        self.known.add(_key(result))
        print(json.dumps(result), flush=True)
        earlier = sum(not is_current(each) for each in self.results)
        write_file(self.path, "".join(json.dumps(each) + "\n" for each in self.results).encode(), force=True)
        write_file(
            self.page, as_markdown(self.results, self.suite, SUITES[self.suite], earlier=earlier).encode(), force=True
        )


def read_results(path: Path) -> list[dict]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def _key(cell: dict) -> tuple:
    return tuple(cell[key] for key in KEYS)


def run_all(record: Record, cells: list[dict], jobs: int, limit: float) -> None:
    pool = ThreadPoolExecutor(jobs)  # its threads wait for processes
    try:
        for done in as_completed([pool.submit(in_own_process, record.suite, cell, limit) for cell in cells]):
            record.add(done.result())
    finally:
        pool.shutdown(cancel_futures=True)  # an interrupted run starts no further cells


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("suite", choices=list(SUITES))
    parser.add_argument("--tables", nargs="*")
    parser.add_argument("--epsilons", nargs="*", type=float)
    parser.add_argument("--methods", nargs="*")
    parser.add_argument("--seeds", type=int)
    parser.add_argument("--jobs", type=int, default=1, help="number of cells to run at once")
    parser.add_argument("--minutes", type=float, default=15.0, help="time limit for one cell")
    parser.add_argument("--out", type=Path, default=HERE / "results")
    parser.add_argument("--cell", help="run only this cell, given as JSON, and print its result")
    parser.add_argument("--gather", type=Path, nargs="*", default=[], help="files with such results, to be added")
    arguments = parser.parse_args()
    if arguments.cell:
        print(json.dumps(run_cell(json.loads(arguments.cell))))
        return
    suite, record = SUITES[arguments.suite], Record(arguments.out, arguments.suite)
    if arguments.gather:
        for result in itertools.chain.from_iterable(map(read_results, arguments.gather)):
            if record.lacks(result):
                record.add(result)
        return
    tables = present_tables(arguments.tables or suite["tables"])
    axes = (arguments.epsilons or suite["epsilons"], arguments.methods or suite["methods"])
    wanted = cells_of(tables, *axes, arguments.seeds or suite.get("seeds", 5))
    run_all(record, [cell for cell in wanted if cell not in record], arguments.jobs, 60 * arguments.minutes)


if __name__ == "__main__":
    main()
