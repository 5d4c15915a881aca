"""The package as a whole: its public names, its version, and how light its front door is."""

import importlib.metadata
import json
import subprocess
import sys
import time

import pytest

import understudy

HEAVY = ("jax", "numpy", "scipy", "pandas", "polars", "pyarrow", "duckdb", "opendp", "dp_accounting", "mbi", "equinox")

PROBE = """
import json, sys
from understudy.cli import run
code = run(["--help"])
heavy = [name for name in {heavy!r} if name in sys.modules]
print(json.dumps([code, heavy]), file=sys.stderr)
"""


@pytest.mark.parametrize("name", understudy.__all__)
def test_public_name_loads(name: str) -> None:
    assert getattr(understudy, name) is not None
    assert name in dir(understudy)


def test_about_two_dozen_names() -> None:
    assert 15 <= len(understudy.__all__) <= 31
    assert understudy.__all__ == ["__version__", *sorted(understudy.__all__[1:])]


def test_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        understudy.nonsense  # noqa: B018


def test_version_is_that_of_the_distribution() -> None:
    assert understudy.__version__ == importlib.metadata.version("understudy")


def test_help_loads_nothing_heavy() -> None:
    """A fresh interpreter that shows the help has loaded no array, table or privacy library."""
    began = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-c", PROBE.format(heavy=HEAVY)], capture_output=True, text=True, timeout=60, check=True
    )
    assert json.loads(done.stderr) == [0, []]
    assert "synth" in done.stdout
    assert time.monotonic() - began < 10  # half a second on an idle machine
