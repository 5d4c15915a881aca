"""Plants a defect for a while: programs and figures that were computed without it are forgotten, and again after it."""

import contextlib
from collections.abc import Callable, Iterator

import jax
import pytest

from tests.audit import training_detectors
from tests.privacy import test_sums
from understudy.privacy import accounting, discovery
from understudy.training import loop


def forget() -> None:
    """Everything compiled or computed before."""
    for module in (accounting, discovery, loop, test_sums, training_detectors):
        for value in list(vars(module).values()):
            if hasattr(value, "cache_clear"):
                value.cache_clear()
    jax.clear_caches()


@contextlib.contextmanager
def planted(plant: Callable[[pytest.MonkeyPatch], None]) -> Iterator[None]:
    """With this defect in the code."""
    with pytest.MonkeyPatch.context() as patch:
        plant(patch)
        forget()
        yield
    forget()
