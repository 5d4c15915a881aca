"""Runs of the whole pipeline on neighbouring tables: a CSV file in, a release folder out, read back and observed.

Runs are numbered, and every second one has the canary in its table. They can be made in parallel, saved, continued and
turned into bounds elsewhere: nothing here needs the statistics of `bounds.py`.

Networks are trained one after another. Once compiled, a fit of this size takes about as long by itself as in a
population, and one process has one program for each of the two tables.
"""

import concurrent.futures
import contextlib
import functools
import math
import multiprocessing
import os
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np

from understudy.api import fit
from understudy.audit.methods import audited_expression
from understudy.audit.neighbours import DEFAULT_CANARY, make_neighbours
from understudy.audit.observation import Cells, Observation, observe
from understudy.audit.runs import Claim, Runs, Target
from understudy.errors import ConfigError, UnderstudyWarning
from understudy.failed_run import SpentError
from understudy.privacy.ledger import Guarantee, Statement
from understudy.release import check_seed

Report = Callable[[int], None]
"""Receives the number of runs that are done."""

ONE_THREAD = {
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "XLA_FLAGS": "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1",
    "JAX_PLATFORMS": "cpu",
}
"""The environment of a worker process: small fits gain nothing from threads or a GPU."""


def make_target(method: str, epsilon: float | None, delta: float | None = None, canary: str = DEFAULT_CANARY) -> Target:
    """What to audit, checked: a method at a guarantee, and a canary. The default delta is the largest allowed.

    >>> make_target("mst", 1.0)
    Target(method='mst', epsilon=1.0, delta=0.005, canary='combination')
    """
    if epsilon is None:
        raise ConfigError("Give the epsilon of the claim to audit, as in --epsilon 1 (epsilon=1).")
    expression, neighbours = audited_expression(method), make_neighbours(canary)
    delta = neighbours.most_delta if delta is None else delta
    rows = neighbours.schema.get("table", {}).get("rows")
    Guarantee(epsilon, delta).with_delta_for(rows)  # refuses an invalid guarantee
    return Target(expression, float(epsilon), float(delta), canary)


def make_runs(
    target: Target,
    numbers: range,
    *,
    seed: int | None = None,
    report: Report | None = None,
    deadline: float = math.inf,
) -> Runs:
    """Runs the pipeline once for each number, until the deadline (of `time.monotonic`).

    Without a seed the noise is secure. With one, each number has a seed of its own.
    """
    check_seed(seed)
    done = Runs(target, seeded=seed is not None, seed=seed)
    neighbours = make_neighbours(target.canary)
    cells = Cells(neighbours)
    with tempfile.TemporaryDirectory() as name, _quiet():
        folder = Path(name)
        tables = [neighbours.write(folder, with_canary=each) for each in (False, True)]
        for number in numbers:
            if time.monotonic() > deadline:
                break
            observation, claim = _run_once(target, tables[number % 2], cells, _seed_of(seed, number))
            done = done.with_run(number, observation, claim)
            if report is not None:
                report(len(done.numbers))
    return done


def _run_once(target: Target, table: Path, cells: Cells, seed: int | None) -> tuple[Observation, Claim | None]:
    """The pipeline: a file is read and fitted, its release saved, read back and sampled."""
    neighbours = make_neighbours(target.canary)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name) / "release"
        try:
            release = fit(
                table,
                target.method,
                Guarantee(target.epsilon, target.delta),
                schema=neighbours.schema,
                binning=neighbours.binning,
                seed=seed,
            )
        except SpentError:
            return Observation((), (), (), ()), None
        release.save(folder)
        # Rows are drawn with another seed than the noise, about which an attack must know nothing.
        return observe(folder, cells, seed=_seed_of(seed, 0)), _claim(release.statement)


def _claim(statement: Statement) -> Claim:
    return Claim(statement.epsilon, statement.delta, statement.accountant)


def _seed_of(seed: int | None, number: int) -> int | None:
    """Independent seeds, one for each run."""
    return None if seed is None else int(np.random.SeedSequence([seed, number]).generate_state(1)[0])


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Hides the warnings of a fit, which are about its table: here it is made up."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UnderstudyWarning)
        yield


# ------------------------------------------------------------------------------------------------------------- parallel


def make_runs_in_parallel(
    target: Target, num_runs: int, *, jobs: int = 1, seed: int | None = None, report: Report | None = None
) -> Runs:
    """The same with several processes. Seeded runs do not depend on the number of processes."""
    if isinstance(jobs, bool) or not isinstance(jobs, int) or jobs < 1:
        raise ConfigError(f"The number of jobs must be a whole number above 0, found {jobs}.")
    if jobs == 1:
        return make_runs(target, range(num_runs), seed=seed, report=report)
    size = math.ceil(num_runs / (4 * jobs))  # smaller than a job's fraction, to show progress
    blocks = [range(start, min(start + size, num_runs)) for start in range(0, num_runs, size)]
    done = Runs(target, seeded=seed is not None, seed=seed)
    with worker_processes(jobs) as pool:
        for part in pool.map(functools.partial(make_runs, target, seed=seed), blocks):
            done = done.merge(part)
            if report is not None:
                report(len(done.numbers))
    return done


@contextlib.contextmanager
def worker_processes(count: int) -> Iterator[concurrent.futures.ProcessPoolExecutor]:
    """Processes of one thread each. Tasks that have not started when the block ends are cancelled."""
    before = {name: os.environ.get(name) for name in ONE_THREAD}
    os.environ.update(ONE_THREAD)
    pool = concurrent.futures.ProcessPoolExecutor(count, multiprocessing.get_context("spawn"))
    try:
        yield pool
    finally:
        pool.shutdown(cancel_futures=True)
        for name, value in before.items():
            os.environ.pop(name, None)
            if value is not None:
                os.environ[name] = value


def continue_runs(
    path: Path,
    target: Target,
    numbers: range,
    *,
    seed: int | None = None,
    deadline: float = math.inf,
    every: int = 100,
) -> Runs:
    """Makes the runs that the file does not have yet, and saves them there from time to time."""
    done = Runs.read(path) if path.exists() else Runs(target, seeded=seed is not None, seed=seed)
    if done.target != target or (done.seeded, done.seed) != (seed is not None, seed):
        raise ConfigError(f"{path} has runs of another audit. Name another file, or delete it.")
    missing = sorted(set(numbers) - set(done.numbers))
    for start in range(0, len(missing), every):
        if time.monotonic() > deadline:
            break
        block = missing[start : start + every]
        for first, last in _ranges(block):
            done = done.merge(make_runs(target, range(first, last), seed=seed, deadline=deadline))
        done.write(path)
    return done


def _ranges(numbers: list[int]) -> Iterator[tuple[int, int]]:
    """Ranges of consecutive numbers: the first number, and the last one plus one."""
    cuts = [i for i in range(1, len(numbers)) if numbers[i] != numbers[i - 1] + 1]
    for start, end in zip([0, *cuts], [*cuts, len(numbers)], strict=True):
        yield numbers[start], numbers[end - 1] + 1
