"""Time, memory and error for tables of many sizes.

    UNDERSTUDY_DATA=folder python benchmarks/sizes.py rows --at 10000 1000000 --method mst --write
    python benchmarks/sizes.py columns --at 10 100 --method mst --write
    python benchmarks/sizes.py long --write

rows: the ten columns of the 1940 census, drawn again (`large_table.py census`), at each number of rows. columns:
100,000 rows of `made_wide` at each number of columns. Each cell is fitted at epsilon 1 and, with --not-private too,
without noise, in a process of its own, from a Parquet file in --folder. Seconds and peak memory are those of the fit;
tvd2 and tvd1 are the mean total variation of 2-way and 1-way marginals between the table itself and two million rows
of the model (columns: 100,000). Runs are seeded, on public data. Cells that are in results/sizes.jsonl are not run
again. --write keeps new ones there, and writes results/sizes.md and the picture of the documentation.

long, medium, hundred, wide: one table each. long: a million rows of 15 columns, categorical (2 to 40 categories) but
for five numeric ones, with a target; medium: 30,000 rows of 45 such columns. Both are drawn from a mixture of 20 kinds
of rows, so that columns depend on each other. hundred: 20,000 rows of 100 columns in short chains. wide: 30,000 rows of
1,000 boolean columns, most of them rare, the shape of patients by codes, with `autogan`; the others with the default
method. All are made by `benchmarks/simulated.py`.
"""

import argparse
import dataclasses
import datetime
import itertools
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

sys.path.insert(0, str(Path(__file__).parents[1]))

import understudy as us
from benchmarks import large_table, sizes_page
from benchmarks.simulated import Drawn, made_codes, made_long, made_wide
from benchmarks.sizes_page import Cell, read_results
from understudy.evaluation.table import Layout

RESULTS = Path(__file__).parent / "results"
EPSILON, DELTA = 1.0, 1e-9
ROWS = 100_000
"""Of the tables of the axis `columns`."""
SAMPLED = {"census": 2_000_000, "long": 2_000_000, "wide": ROWS}
"""Synthetic rows that are compared with the real ones: the same number at all sizes of an axis."""
BATCH_VALUES = 2**23
"""Of the rows that are compared at once."""
BINS = 20
"""Of a numeric column in the marginals that are compared."""
MAX_PAIRS = 1_000
"""Of many columns, so many random pairs are compared."""


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
    parser.add_argument("what", choices=["rows", "columns", "page", *CASES, "cell"], help="page: only write it again")
    parser.add_argument("--at", type=int, nargs="+", default=[], help="numbers of rows, or of columns")
    parser.add_argument("--method", action="append", help="repeatable")
    parser.add_argument("--not-private", action="store_true", help="each method without noise too")
    parser.add_argument("--table", choices=["census", "long"], default="census", help="of the axis `rows`")
    parser.add_argument("--folder", type=Path, default=Path(tempfile.gettempdir()), help="for the tables")
    parser.add_argument("--limit", type=int, default=1800, help="seconds after which a cell is given up")
    parser.add_argument("--again", action="store_true", help="run cells that have results; the last result counts")
    parser.add_argument("--rows", type=int, help="of a single table")
    parser.add_argument("--columns", type=int, help="of a single table")
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--cell", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.what == "cell":
        print(json.dumps(fit_cell(Cell(**json.loads(given.cell)), given.folder)))
    elif given.what in CASES:
        run_case(given.what, given)
    else:
        if given.what != "page":
            run_cells(list(cells_of(given)), given)
        if given.write:
            sizes_page.write(read_results(RESULTS / "sizes.jsonl"), RESULTS)


# ----------------------------------------------------------------------------------------------------------------- grid


def cells_of(given: argparse.Namespace) -> Iterator[Cell]:
    """The smallest tables first."""
    for at, method, private in itertools.product(given.at, given.method or ["mst"], (True, False)):
        if private or given.not_private:
            if given.what == "columns":
                yield Cell("wide", ROWS, at, method, private)
            else:
                yield Cell(given.table, at, 10 if given.table == "census" else 15, method, private)


def run_cells(cells: Sequence[Cell], given: argparse.Namespace) -> None:
    """Runs what has no result yet, one process at a time, and appends each result when it is there."""
    path = RESULTS / "sizes.jsonl"
    known = {} if given.again else read_results(path)
    for cell in cells:
        if cell in known:
            continue
        write_table(cell, given.folder)
        line = json.dumps({"cell": dataclasses.asdict(cell), **run_cell(cell, given.folder, limit=given.limit)})
        print(line, flush=True)
        if given.write:
            with path.open("a") as file:
                file.write(line + "\n")


def run_cell(cell: Cell, folder: Path, *, limit: int) -> dict:
    """The figures of a cell from a process of its own; a failure is a result too."""
    words = [sys.executable, __file__, "cell", "--cell", json.dumps(dataclasses.asdict(cell)), "--folder", str(folder)]
    facts = {"date": str(datetime.date.today()), "machine": _machine(), "commit": _commit(), "load": os.getloadavg()[0]}
    try:
        done = subprocess.run(words, capture_output=True, text=True, timeout=limit, check=False)
    except subprocess.TimeoutExpired:
        return {**facts, "failed": f"more than {limit} seconds"}
    if done.returncode:
        return {**facts, "failed": (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1]}
    return {**facts, **json.loads(done.stdout.splitlines()[-1])}


def write_table(cell: Cell, folder: Path) -> None:
    """The table of a cell as a Parquet file with its schema, unless it is there."""
    path = folder / cell.file_name
    if path.exists():
        return
    if cell.table == "wide":
        drawn = made_wide(cell.rows, cell.columns)
        pq.write_table(drawn.train, path)
        drawn.schema.write(path.with_suffix(".toml"), force=True)
    else:
        large_table.write_table(large_table.SOURCES[cell.table](), cell.rows, path)


def fit_cell(cell: Cell, folder: Path) -> dict:
    """Fits a cell in this process. The peak memory is read before anything else is computed."""
    warnings.simplefilter("ignore", us.UnderstudyWarning)
    path = folder / cell.file_name
    schema = us.Schema.read(path.with_suffix(".toml"))
    guarantee = us.Guarantee(EPSILON, DELTA) if cell.private else us.Guarantee.not_private()
    began, began_cpu = time.monotonic(), time.process_time()
    release = us.fit(path, cell.method, guarantee, schema=schema, seed=cell.seed)
    figures = {
        "seconds": round(time.monotonic() - began, 1),
        "cpu_seconds": round(time.process_time() - began_cpu, 1),
        "gigabytes": round(peak_bytes() / 1e9, 3),
    }
    began = time.monotonic()
    real = real_marginals(path, schema)
    num_rows = SAMPLED[cell.table]
    batches = release.sample_batches(num_rows, batch_rows=max(1, BATCH_VALUES // cell.columns), seed=cell.seed)
    sampled = Marginals.of(batches, real.layout)
    figures |= {"evaluation_seconds": round(time.monotonic() - began, 1)}
    for order in (1, 2):
        figures[f"tvd{order}"] = round(real.distance(sampled, order), 5)
        figures[f"sampling{order}"] = round(real.distance(real.drawn_again(num_rows), order), 5)
    return figures


def peak_bytes() -> int:
    """The most memory this process has had, pages of mapped files included.

    Not `ru_maxrss`, which a process inherits from the one that started it.
    """
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    raise RuntimeError("/proc/self/status does not name the peak memory: run this on Linux.")


# --------------------------------------------------------------------------------------------------------------- errors


@dataclasses.dataclass(frozen=True)
class Marginals:
    """Exact counts of 1-way and 2-way marginals, added up batch by batch."""

    layout: Layout
    counts: dict[tuple[str, ...], np.ndarray]

    @classmethod
    def of(cls, batches: Iterable[pa.Table], layout: Layout) -> "Marginals":
        counts: dict[tuple[str, ...], np.ndarray] = {}
        for batch in batches:
            encoded = layout.read(batch, "table")
            codes = {name: encoded.bin_codes(name, BINS) for name in layout.names}
            for clique in cliques_of(layout.names):
                cells, num_cells = np.zeros(batch.num_rows, dtype=np.int64), 1
                for name in clique:
                    column, size = codes[name]
                    cells, num_cells = cells * size + column, num_cells * size
                found = np.bincount(cells, minlength=num_cells)
                counts[clique] = counts[clique] + found if clique in counts else found
        return cls(layout, counts)

    def distance(self, other: "Marginals", order: int) -> float:
        """The mean total variation between marginals of this order."""
        cliques = [clique for clique in self.counts if len(clique) == order]
        shares = [[counts[c] / counts[c].sum() for counts in (self.counts, other.counts)] for c in cliques]
        return float(np.mean([abs(mine - its).sum() / 2 for mine, its in shares]))

    def drawn_again(self, num_rows: int) -> "Marginals":
        """The marginals of so many of these rows, drawn with replacement: their distance is sampling error alone."""
        draw = np.random.default_rng(0)
        again = {c: draw.multinomial(num_rows, found / found.sum()) for c, found in self.counts.items()}
        return Marginals(self.layout, again)


def cliques_of(names: Sequence[str]) -> list[tuple[str, ...]]:
    """All columns and all pairs; of too many pairs, some at random."""
    pairs = list(itertools.combinations(names, 2))
    if len(pairs) > MAX_PAIRS:
        chosen = np.random.default_rng(0).choice(len(pairs), MAX_PAIRS, replace=False)
        pairs = [pairs[at] for at in chosen]
    return [*((name,) for name in names), *pairs]


def real_marginals(path: Path, schema: us.Schema) -> Marginals:
    """The marginals of a table in a file. They are kept beside it, for all methods."""
    kept, source = path.with_suffix(".npz"), pq.ParquetFile(path)
    first = next(source.iter_batches(batch_size=1000))
    layout = Layout.of(pa.Table.from_batches([first]), schema)
    cliques = cliques_of(layout.names)
    if not kept.exists():
        found = Marginals.of(
            map(_as_table, source.iter_batches(batch_size=max(1, BATCH_VALUES // len(layout.names)))), layout
        )
        np.savez(kept, *(found.counts[clique] for clique in cliques))
    with np.load(kept) as arrays:
        return Marginals(layout, {clique: arrays[f"arr_{at}"] for at, clique in enumerate(cliques)})


def _as_table(batch: pa.RecordBatch) -> pa.Table:
    return pa.Table.from_batches([batch])


# -------------------------------------------------------------------------------------------------------- single tables


def run_case(name: str, given: argparse.Namespace) -> None:
    """Fits one table in memory, and writes a page of its own."""
    case = CASES[name]
    method = given.method[-1] if given.method else case.method
    real, _, schema = case.make(given.rows or case.rows, given.columns or case.columns)
    began, began_cpu = time.monotonic(), time.process_time()
    release = us.fit(real, method, us.Guarantee(1.0, 1e-7), schema=schema, seed=0)
    fitted, cpu = time.monotonic() - began, time.process_time() - began_cpu
    began = time.monotonic()
    release.sample_arrow(real.num_rows, seed=0)
    sampled = time.monotonic() - began
    text = f"""# The table `{name}`: {real.num_rows:,} rows of {real.num_columns:,} columns

`python benchmarks/sizes.py {name} --write`, {datetime.date.today()}, {_machine()}; seed 0. `{method}` at
epsilon 1 and delta 1e-7.

| | |
|---|---:|
| fitting, wall seconds | {fitted:.0f} |
| fitting, CPU seconds | {cpu:.0f} |
| sampling as many rows, wall seconds | {sampled:.0f} |
| peak memory of the process, including the table, GB | {peak_bytes() / 1e9:.1f} |
"""
    print(text)
    if given.write:
        (RESULTS / f"sizes_{name}.md").write_text(text)


def _machine() -> str:
    return f"{platform.machine()}, {os.cpu_count()} shared CPU cores, Python {platform.python_version()}"


def _commit() -> str:
    """The commit of the code that runs."""
    words = ["git", "-C", str(Path(us.__file__).parent), "rev-parse", "--short", "HEAD"]
    return subprocess.run(words, capture_output=True, text=True, check=False).stdout.strip()


if __name__ == "__main__":
    main()
