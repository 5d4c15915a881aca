"""Fits models in parallel, with results that do not depend on the number of cores; reports how many are done."""

import contextlib
import contextvars
import os
import warnings
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from threadpoolctl import threadpool_limits

Job = TypeVar("Job")
_workers: contextvars.ContextVar[int] = contextvars.ContextVar("workers", default=2)
_report: contextvars.ContextVar[Callable[[float], None]] = contextvars.ContextVar("report", default=lambda done: None)


@contextlib.contextmanager
def report_jobs(report: Callable[[float], None]) -> Iterator[None]:
    """Calls `report` with the fraction of jobs that are done, after each of those that run inside the block."""
    token = _report.set(report)
    try:
        yield
    finally:
        _report.reset(token)


def report_part(first: float, last: float) -> contextlib.AbstractContextManager[None]:
    """Inside the block, all jobs count as this part of what is reported outside."""
    report = _report.get()
    return report_jobs(lambda done: report(first + (last - first) * done))


@contextlib.contextmanager
def limit_workers(count: int) -> Iterator[None]:
    """Inside the block, at most this many fits run at a time: for callers that run processes in parallel."""
    token = _workers.set(max(1, count))
    try:
        yield
    finally:
        _workers.reset(token)


def run_in_threads(jobs: Sequence[Callable[[], Job]]) -> list[Job]:
    """Run fits two at a time, each on one core, so that sums are added in the same order on every machine.

    `limit_workers` sets another number. Warnings are silenced here, not in the jobs, because warning filters belong to
    the process; fits that do not converge are reported as notes.
    """
    workers, report = min(_workers.get(), os.cpu_count() or 1), _report.get()
    with warnings.catch_warnings(), threadpool_limits(limits=1):
        warnings.simplefilter("ignore")
        # OpenMP's number of threads is each thread's own, so the limit above does not reach the workers.
        with ThreadPoolExecutor(workers, initializer=threadpool_limits, initargs=(1, "openmp")) as pool:
            results = []
            for result in pool.map(lambda job: job(), jobs):
                results.append(result)
                report(len(results) / len(jobs))
            return results
