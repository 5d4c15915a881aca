"""Models fitted side by side, with results that do not depend on the number of cores."""

import os
import warnings
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from threadpoolctl import threadpool_limits

Job = TypeVar("Job")


def in_threads(jobs: Sequence[Callable[[], Job]]) -> list[Job]:
    """Runs fits two at a time, each on one core: sums are then added in one order, whatever the machine.

    Warnings are silenced, here and not in the jobs because filters belong to the process: a fit that does not
    converge becomes a note.
    """
    workers = min(2, os.cpu_count() or 1)
    with warnings.catch_warnings(), threadpool_limits(limits=1):
        warnings.simplefilter("ignore")
        # OpenMP's number of threads is each thread's own, so the limit above does not reach the workers.
        with ThreadPoolExecutor(workers, initializer=threadpool_limits, initargs=(1, "openmp")) as pool:
            return list(pool.map(lambda job: job(), jobs))
