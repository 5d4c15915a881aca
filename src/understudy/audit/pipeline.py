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
from understudy.audit.audited_runs import Claim, Runs, Target
from understudy.audit.neighbours import DEFAULT_CANARY, make_neighbours
from understudy.audit.observation import Cells, Observation, observe
from understudy.errors import ConfigError, UnderstudyWarning
from understudy.privacy.accounting.ledger import Guarantee
from understudy.release import check_seed, check_size
from understudy.run.failure import SpentError
from understudy.synthesizers import express, read_method
from understudy.synthesizers.registry import name_of

Report = Callable[[int], None]
"""Receives the number of runs that are done."""

ONE_THREAD = {
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "XLA_FLAGS": "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1",
    "JAX_PLATFORMS": "cpu",
}
"""The environment of a worker process: small fits gain nothing from threads or a GPU."""

# A guarantee does not depend on the size of a network or the number of steps. Small networks compile quickly, few steps
# have little noise each, and with a high sampling rate every fit sees the canary.
_NETWORKS = "arch=plain, latent=4, generator_widths=[8], critic_widths=[8]"
_GAN = f"steps=20, sampling_rate=0.25, {_NETWORKS}, warm_steps=5, generator_learning_rate=0.05, ema_decay=0.9"
_VOTES = (
    "iterations=20, teacher_batch=4, student_batch=16, memory=64, arch=plain, latent=4, generator_widths=[8], "
    "generator_learning_rate=0.05, ema_decay=0.9"
)
_INNER = f"dpgan({_GAN})"

AUDITED = {
    "independent": "independent",
    "adaptive": "adaptive",
    "mst": "mst",
    "aim": "aim",
    "privbayes": "privbayes",
    "mwem": "mwem",
    "quail": "quail(mst)",
    "gem": "gem(steps=50, components=20, width=8, depth=1, latent=4, rounds=4, learning_rate=0.01)",
    "dpgan": _INNER,
    "dpctgan": f"dpctgan({_GAN})",
    "pategan": f"pategan({_VOTES})",
    "patectgan": f"patectgan({_VOTES})",
    "bayesgan": f"bayesgan(steps=20, sampling_rate=0.25, generator_chains=2, {_NETWORKS}, generator_batch=16)",
    "autogan": f"autogan({_GAN}, autoencoder_steps=20, autoencoder_sampling_rate=0.25)",
    "boosted": f"boosted({_INNER}, rounds=50, checkpoints=4, samples_per_generator=500, distinguishers=one_way)",
    "drs": f"drs({_INNER}, proposals=2000)",
    "selected": f"selected({_INNER}, checkpoints=4, holdout_fraction=0)",
}
"""Every method of the registry, by name. `auto` is another name for one of them."""


def audited_expression(method: str) -> str:
    """The expression to audit: for the name of a method, the one in `AUDITED`; otherwise the expression itself."""
    if not isinstance(method, str):
        raise ConfigError(f"method must be an expression, such as 'mst'; found {type(method).__name__}.")
    named = AUDITED.get(method.strip())
    read = read_method(method if named is None else named)
    return express(read_method(AUDITED[name_of(read)]) if method.strip() == "auto" else read)


def make_target(method: str, epsilon: float | None, delta: float | None = None, canary: str = DEFAULT_CANARY) -> Target:
    """What to audit, checked: a method at a guarantee, and a canary. The default delta is the largest allowed."""
    if epsilon is None:
        raise ConfigError("Give the epsilon of the claim to audit, as in --epsilon 1 (epsilon=1).")
    expression, neighbours = audited_expression(method), make_neighbours(canary)
    delta = neighbours.most_delta if delta is None else delta
    rows = neighbours.schema.get("table", {}).get("rows")
    Guarantee(epsilon, delta).with_delta_for(rows)  # refuses an invalid guarantee
    return Target(expression, float(epsilon), float(delta), canary)


def make_runs(
    target: Target, numbers: range, *, seed: int | None = None, report: Report | None = None, deadline: float = math.inf
) -> Runs:
    """Runs the pipeline once for each number, until the deadline (of `time.monotonic`).

    Without a seed the noise is secure. With one, each number has a seed of its own.
    """
    check_seed(seed)
    done = Runs(target, seeded=seed is not None, seed=seed)
    neighbours = make_neighbours(target.canary)
    cells = Cells(neighbours)
    with tempfile.TemporaryDirectory() as name, warnings.catch_warnings():
        warnings.simplefilter("ignore", UnderstudyWarning)  # they are about the table, which is made up
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
        statement = release.statement
        claim = Claim(statement.epsilon, statement.delta, statement.accountant)
        return observe(folder, cells, seed=_seed_of(seed, 0)), claim


def _seed_of(seed: int | None, number: int) -> int | None:
    """Independent seeds, one for each run."""
    return None if seed is None else int(np.random.SeedSequence([seed, number]).generate_state(1)[0])


# ------------------------------------------------------------------------------------------------------------- parallel


def make_runs_in_parallel(
    target: Target, num_runs: int, *, jobs: int = 1, seed: int | None = None, report: Report | None = None
) -> Runs:
    """The same with several processes. Seeded runs do not depend on the number of processes."""
    check_size(jobs, "The number of jobs", "jobs")
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
