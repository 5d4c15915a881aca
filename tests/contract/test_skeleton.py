"""The method that developers copy, docs/skeleton_method.py, fulfils the contract: the checks of test_contract.py."""

import doctest
import importlib
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import understudy as us
from tests.contract.test_contract import *  # noqa: F403
from tests.contract.test_contract import Fitted, _fitted, fit, undeclared
from understudy.models import MODELS
from understudy.synthesizers import SYNTHESIZERS

DOCS = Path(__file__).parents[2] / "docs"


@pytest.fixture(scope="module", params=["skeleton"])
def method(request: pytest.FixtureRequest) -> Iterator[str]:
    """Registered while these tests run. So fixtures of the contract, which other files share, are made anew below."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(DOCS))
        patch.setitem(SYNTHESIZERS, request.param, "skeleton_method:Skeleton")
        yield request.param
    sys.modules.pop("skeleton_method", None)
    MODELS.pop("product", None)


@pytest.fixture(scope="module")  # type: ignore[no-redef]  # in place of the imported one
def with_declared(method: str, tmp_path_factory: pytest.TempPathFactory) -> Fitted:
    return _fitted(method, tmp_path_factory.mktemp("skeleton") / "declared")


@pytest.fixture(scope="module")  # type: ignore[no-redef]  # in place of the imported one
def with_nothing(method: str, tmp_path_factory: pytest.TempPathFactory) -> Fitted:
    return _fitted(method, tmp_path_factory.mktemp("skeleton") / "undeclared", schema=undeclared(method))


@pytest.fixture(scope="module")  # type: ignore[no-redef]  # in place of the imported one
def in_earnest(method: str) -> us.Release:
    return fit(method)


@pytest.fixture(scope="module")  # type: ignore[no-redef]  # in place of the imported one
def without_noise(method: str, tmp_path_factory: pytest.TempPathFactory) -> Fitted:
    folder = tmp_path_factory.mktemp("skeleton") / "open"
    return _fitted(method, folder, seed=None, guarantee=us.Guarantee.not_private())


def test_its_example_runs(method: str) -> None:
    found = doctest.testmod(importlib.import_module("skeleton_method"))
    assert (found.attempted > 0, found.failed) == (True, 0)
