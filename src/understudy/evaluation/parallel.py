"""Fits models in parallel, with results that do not depend on the number of cores."""

import os
import warnings
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from threadpoolctl import threadpool_limits

Job = TypeVar("Job")


def run_in_threads(jobs: Sequence[Callable[[], Job]]) -> list[Job]:
    """Run fits two at a time, each on one core, so that sums are added in the same order on every machine.

    Warnings are silenced here, not in the jobs, because warning filters belong to the process; fits that do not
    converge are reported as notes.
    """
    workers = min(2, os.cpu_count() or 1)
    with warnings.catch_warnings(), threadpool_limits(limits=1):
        warnings.simplefilter("ignore")
        # OpenMP's number of threads is each thread's own, so the limit above does not reach the workers.
        with ThreadPoolExecutor(workers, initializer=threadpool_limits, initargs=(1, "openmp")) as pool:
            return list(pool.map(lambda job: job(), jobs))
