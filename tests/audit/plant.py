"""Plants a defect for a while: programs compiled without it are forgotten before, and those compiled with it after."""

import contextlib
from collections.abc import Callable, Iterator

import jax
import pytest

from tests.audit import training_detectors
from tests.audit.detectors import clear_caches_of
from tests.privacy.gradients import test_sums
from understudy.training import loop


def forget() -> None:
    """All programs that were compiled before."""
    for module in (loop, test_sums, training_detectors):
        clear_caches_of(module)
    jax.clear_caches()


@contextlib.contextmanager
def planted(plant: Callable[[pytest.MonkeyPatch], None]) -> Iterator[None]:
    """With this defect in the code."""
    with pytest.MonkeyPatch.context() as patch:
        plant(patch)
        forget()
        yield
    forget()
