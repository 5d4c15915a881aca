"""Runs a quick part of the tests with the oldest or the newest Python and dependencies that are supported.

    python distribution/matrix.py oldest --python python3.11    # every dependency at its lower bound in pyproject.toml
    python distribution/matrix.py newest --python python3.13    # every dependency at its latest version

The environments are made anew in build/matrix/, and the package is installed in them as a wheel. `make matrix`
runs both.
"""

import argparse
import os
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from distribution.wheelhouse import FILE_NAME, ROOT, copy_sources

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
EXTRAS = ("pandas", "polars", "excel", "stats", "yaml", "geo", "graph")
TOOLS = ("pytest>=8", "hypothesis", "beartype", "jsonschema", "openpyxl", "dask[dataframe]")
"""What the tests below need; always at the latest version."""
TESTS = (
    "tests/test_package.py",
    "tests/cli/test_commands.py",
    "tests/cli/test_doctor.py",
    "tests/contract/test_contract.py",
    "tests/encoding/test_codec.py",
    "tests/evaluation/test_evaluate.py",
    "tests/graphs/test_fit.py",
    "tests/learners/test_sklearn.py",
    "tests/marginals/test_estimation.py",
    "tests/privacy/accounting/test_accountants.py",
    "tests/privacy/mechanisms/test_counts.py",
    "tests/privacy/gradients/test_dpsgd.py",
    "tests/privacy/noise/test_source.py",
    "tests/tables",
    "tests/release/test_release.py",
)
"""Each library at least once: tables, arrays, training, accounting, evaluation, the command line."""


def lower_bounds() -> Iterator[str]:
    """The dependencies of the package and of the extras that are tested, each pinned to its lower bound.

    >>> "numpy==2.0" in lower_bounds()
    True
    """
    extras = [line for name in EXTRAS for line in PROJECT["optional-dependencies"][name]]
    for line in [*PROJECT["dependencies"], *extras]:
        found = re.fullmatch(r"([\w.-]+)>=([\w.]+)", line)
        if found is None:
            sys.exit(f"pyproject.toml: expected a dependency such as 'numpy>=2.0', found {line!r}.")
        yield f"{found[1]}=={found[2]}"


def outside_environment() -> dict[str, str]:
    """The variables of this process, but those that would lend the new environment packages of another one."""
    return {
        name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV")
    }


def make_environment(which: str, python: str) -> Path:
    """An environment with the wheel of the package; the folder of its programs."""
    folder = ROOT / "build" / "matrix" / which
    shutil.rmtree(folder, ignore_errors=True)
    copy_sources(folder / "sources")
    constraints = folder / "constraints.txt"
    constraints.write_text("".join(f"{line}\n" for line in lower_bounds()) if which == "oldest" else "")
    programs = folder / "env" / "bin"
    pip = [str(programs / "python"), "-m", "pip", "--quiet"]
    _execute([python, "-m", "venv", str(folder / "env")])
    _execute([*pip, "install", "--upgrade", "pip"])
    _execute([*pip, "wheel", "--no-deps", str(folder / "sources"), "--wheel-dir", str(folder)])
    (wheel,) = folder.glob(f"{FILE_NAME}-*.whl")
    asked = [f"{wheel}[{','.join(EXTRAS)}]", *TOOLS]
    _execute([*pip, "install", "--upgrade", "--constraint", str(constraints), *asked])
    return programs


def _execute(command: list[str]) -> None:
    subprocess.run(command, env=outside_environment(), check=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("which", choices=["oldest", "newest"])
    parser.add_argument("--python", default=sys.executable, help="The Python of the environment.")
    parser.add_argument("--only", nargs="+", default=TESTS, metavar="TEST", help="Other tests than the usual ones.")
    options = parser.parse_args()
    programs = make_environment(options.which, options.python)
    environment = outside_environment()
    environment["PATH"] = f"{programs}{os.pathsep}{environment['PATH']}"
    _execute([str(programs / "pip"), "list"])
    subprocess.run([programs / "understudy", "doctor"], cwd=programs, env=environment, check=True)
    # New versions warn of what they will remove: told, but no failure.
    pytest = [programs / "python", "-m", "pytest", "-q", "-p", "no:cacheprovider", "-W", "default", *options.only]
    sys.exit(subprocess.run(pytest, cwd=ROOT, env=environment).returncode)


if __name__ == "__main__":
    main()
