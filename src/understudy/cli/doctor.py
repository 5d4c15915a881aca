"""The command `doctor`: what is installed, what the machine offers, and whether a private run is possible.

Its output is made to be pasted into a bug report: it contains no path, no user name and no host name.
"""

import dataclasses
import enum
import importlib.metadata
import os
import platform
import re
import secrets
import shutil
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from understudy._version import DISTRIBUTION, __version__
from understudy.cli.options import check_json, with_options
from understudy.cli.output import write_json
from understudy.cli.terminal import say
from understudy.errors import UnderstudyError
from understudy.run.environment import num_cores

if TYPE_CHECKING:
    from understudy.benchmark.catalogue import TableEntry

FORMAT = "understudy doctor 1"
GIB = 2**30
LITTLE_MEMORY = 2 * GIB
LITTLE_DISK = GIB
SYSTEM = Path("/")
"""Where /proc and /sys are."""

EXTRAS = {
    "pandas": "pandas frames",
    "polars": "polars frames",
    "excel": "reading Excel workbooks",
    "stats": "reading Stata, SPSS and SAS files",
    "postgres": "PostgreSQL without DuckDB's extension",
    "yaml": "importing schemas written in YAML",
    "geo": "locations in polygons",
    "graph": "NetworkX graphs and the metrics of graphs",
    "xgboost": "one more classifier in reports",
    "audit": "the command audit",
    "bench": "all tables, classifiers and drawings of benchmark suites",
    "mlflow": "tracking of benchmark suites",
    "studio": "the local web page",
    "ray": "benchmark suites on a cluster",
    "spark": "tables on a Spark cluster",
}
"""What each optional part is for."""

PROGRAMS = {
    "java": ("Spark", "Install Java 17 or later, if you use Spark."),
    "ssh-keygen": ("signatures", "Install OpenSSH 8.2 or later, if you sign or verify."),
}
"""Programs by name: what they are for, and what to do without one."""


class Status(enum.StrEnum):
    """How a check ended."""

    OK = "ok"
    MISSING = "missing"
    """An optional part is absent."""
    WARNING = "warning"
    """Runs are possible, but something should be changed."""
    PROBLEM = "problem"
    """No private run is possible."""


@dataclasses.dataclass(frozen=True)
class Check:
    """What was checked, what was found, and what to do about it."""

    section: str
    name: str
    status: Status
    found: str
    advice: str = ""


@with_options(checksums="Also compare the public tables of the data folder with the catalogue.")
def doctor(checksums: bool = False, json_file: str | None = None, force: bool = False) -> None:
    """Check the installation: versions, device, memory, data folder, optional parts, and a small private run.

    Reads no table of yours. The output has no paths, no user name and no host name, so it can be part of a bug report.
    Exit code 1 means that a private run is not possible.
    """
    check_json(json_file, force)
    checks = list(run_checks(checksums=checksums))
    usable = all(check.status is not Status.PROBLEM for check in checks)
    content = {"format": FORMAT, "version": __version__, "usable": usable}
    write_json(content | {"checks": [dataclasses.asdict(check) for check in checks]}, json_file, force=force)
    if json_file != "-":
        say(describe(checks))
    if not usable:
        raise typer.Exit(1)


def run_checks(*, checksums: bool = False) -> Iterator[Check]:
    """All checks, in the order in which they are shown."""
    section = "Private runs"
    yield _check_distribution(section)
    yield Check(
        section, "Python", Status.OK, f"{platform.python_version()} on {platform.system()} {platform.machine()}"
    )
    yield from _check_libraries(section)
    yield _check_entropy(section)
    yield _check_device(section)
    yield _check_run(section)
    if os.environ.get("UNDERSTUDY_DEBUG"):
        advice = "Unset it: error messages may contain private values."
        yield Check(section, "UNDERSTUDY_DEBUG", Status.WARNING, "set", advice)
    section = "Machine"
    yield Check(section, "cores", Status.OK, f"{usable_cores():g}")
    yield _check_memory(section)
    yield _check_disk(section, "temporary folder", tempfile.gettempdir(), "Set TMPDIR to a private folder with space.")
    yield _check_disk(section, "current folder", os.curdir, "Outputs are written here unless you name another folder.")
    yield _check_cache(section)
    yield _check_data(section, checksums)
    yield from (_check_extra(name) for name in EXTRAS)
    yield from (_check_program(name) for name in PROGRAMS)


def describe(checks: list[Check]) -> str:
    """The checks as text, one line each, with a verdict at the end."""
    width = max(len(check.name) for check in checks)
    states = max(len(check.status) for check in checks)
    lines: list[str] = []
    for before, check in zip([None, *checks], checks, strict=False):
        if before is None or before.section != check.section:
            lines += [*([""] if lines else []), check.section]
        text = f"{check.found}. {check.advice}" if check.advice else check.found
        lines.append(f"  {check.status:<{states}}  {check.name:<{width}}  {text}")
    problems = [check.name for check in checks if check.status is Status.PROBLEM]
    verdict = f"No private run is possible: see {', '.join(problems)}." if problems else "Private runs are possible."
    return "\n".join([*lines, "", verdict])


def requirements(extra: str = "") -> dict[str, str]:
    """The packages that Understudy, or one of its extras, needs, each with its lowest version."""
    needed = {}
    for line in importlib.metadata.requires(DISTRIBUTION) or ():
        requirement, _, marker = line.partition(";")
        named = re.search(r"""extra == ["'](.+?)["']""", marker)
        match = re.match(r"([A-Za-z0-9._-]+)\s*>=\s*([0-9.]+)", requirement.strip())
        if match and (named[1] if named else "") == extra:
            needed[match[1]] = match[2]
    return needed


def _installed(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def _is_older(version: str, lowest: str) -> bool:
    """Compares the numbers at the beginning: pre-releases count as the release."""
    numbers = [[int(part) for part in re.findall(r"\d+", text)] for text in (version.partition("+")[0], lowest)]
    return numbers[0][: len(numbers[1])] < numbers[1]


def _check_distribution(section: str) -> Check:
    """Which package this is: another project's has the same import name and command."""
    if _installed("understudy"):
        advice = f"Uninstall both, then run: pip install {DISTRIBUTION}"
        return Check(section, DISTRIBUTION, Status.WARNING, "'understudy', another project's, is installed too", advice)
    return Check(section, DISTRIBUTION, Status.OK, f"{__version__} (not 'understudy', which is another project's)")


def _check_libraries(section: str) -> Iterator[Check]:
    for package, lowest in requirements().items():
        version = _installed(package)
        if version is None:
            yield Check(section, package, Status.PROBLEM, "not installed", "Install Understudy again with pip.")
        elif _is_older(version, lowest):
            advice = f"Upgrade it: pip install '{package}>={lowest}'."
            yield Check(section, package, Status.PROBLEM, f"{version}, older than {lowest}", advice)
        else:
            yield Check(section, package, Status.OK, version)


def _check_entropy(section: str) -> Check:
    """All noise of a private run is expanded from 256 bits of the operating system."""
    try:
        secrets.token_bytes(32)
    except (NotImplementedError, OSError):
        advice = "Private noise needs random bits of the operating system, such as /dev/urandom."
        return Check(section, "secure randomness", Status.PROBLEM, "not available", advice)
    return Check(section, "secure randomness", Status.OK, "from the operating system")


def _check_device(section: str) -> Check:
    try:
        import jax

        devices = jax.devices()
    except Exception as error:  # what JAX and its plugins raise is of many types, and may name paths
        advice = "Set JAX_PLATFORMS=cpu, or install JAX again."
        return Check(section, "device", Status.PROBLEM, f"JAX finds none ({type(error).__name__})", advice)
    kinds = sorted({device.device_kind for device in devices} - {"cpu"})
    return Check(section, "device", Status.OK, f"{len(devices)} x {' '.join([devices[0].platform, *kinds])}")


def _check_run(section: str) -> Check:
    """A private run on made-up rows: nothing else shows that all parts work together."""
    name, begun = "trial run", time.monotonic()
    try:
        import pyarrow as pa

        from understudy.api import fit

        schema = {"table": {"rows": 100}, "columns": {"answer": {"kind": "categorical", "categories": ["no", "yes"]}}}
        release = fit(pa.table({"answer": ["no", "yes"] * 50}), "independent", epsilon=1.0, schema=schema)
        private = release.statement.is_private and len(release.sample_arrow(5).to_pylist()) == 5
    except Exception as error:  # the text of an error may name a path
        advice = "Run 'understudy demo' with UNDERSTUDY_DEBUG=1 to see the error."
        return Check(section, name, Status.PROBLEM, f"failed ({type(error).__name__})", advice)
    if not private:
        return Check(section, name, Status.PROBLEM, "was not private", "Please report this error.")
    return Check(section, name, Status.OK, f"independent on 100 made-up rows took {time.monotonic() - begun:.1f} s")


def usable_cores(system: Path = SYSTEM) -> float:
    """Processor cores that this process may use, within the quota of its container."""
    quotas = []
    for text in _limits("cpu.max", system):
        quota, _, period = text.partition(" ")
        if quota.isdigit() and period.isdigit():
            quotas.append(int(quota) / int(period))
    return round(min([num_cores(), *quotas]), 1)


def usable_memory(system: Path = SYSTEM) -> int | None:
    """Bytes of memory that this process may use, within the limit of its container. None: not known on this system."""
    try:
        physical = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, OSError, ValueError):
        return None
    limits = [*_limits("memory.max", system), *_limits("memory.limit_in_bytes", system, controller="memory")]
    return min([physical, *(int(text) for text in limits if text.isdigit())])


def _limits(file: str, system: Path, *, controller: str = "") -> Iterator[str]:
    """The values of a limit in the control group of this process and those around it. The smallest one holds."""
    root = system / "sys/fs/cgroup" / controller
    try:
        lines = (system / "proc/self/cgroup").read_text().splitlines()
    except OSError:
        return
    for line in lines:
        _, controllers, group = line.split(":", 2)
        if controller in controllers.split(","):
            inside = root / group.lstrip("/")
            for folder in (inside, *inside.parents):
                if (folder / file).is_file():
                    yield (folder / file).read_text().strip()


def _check_memory(section: str) -> Check:
    memory = usable_memory()
    if memory is None:
        return Check(section, "memory", Status.OK, "not known on this system")
    if memory < LITTLE_MEMORY:
        advice = "Large tables need more; --scratch keeps the codes of the rows on disk."
        return Check(section, "memory", Status.WARNING, f"{memory / GIB:.1f} GiB", advice)
    return Check(section, "memory", Status.OK, f"{memory / GIB:.1f} GiB")


def _check_disk(section: str, name: str, folder: str, advice: str) -> Check:
    try:
        free = shutil.disk_usage(folder).free
    except OSError:
        return Check(section, name, Status.WARNING, "cannot be read", advice)
    if not os.access(folder, os.W_OK):
        return Check(section, name, Status.WARNING, "cannot be written to", advice)
    status = Status.WARNING if free < LITTLE_DISK else Status.OK
    return Check(section, name, status, f"{free / GIB:.1f} GiB free", advice if status is Status.WARNING else "")


def _check_cache(section: str) -> Check:
    if os.environ.get("JAX_COMPILATION_CACHE_DIR"):
        return Check(section, "compile cache", Status.OK, "set by JAX_COMPILATION_CACHE_DIR")
    status = "off, so every process compiles its programs again (set JAX_COMPILATION_CACHE_DIR to keep them)"
    return Check(section, "compile cache", Status.OK, status)


def _check_data(section: str, checksums: bool) -> Check:
    """Which public tables of benchmarks are there. No run on your own table needs them."""
    name = "public tables"
    try:
        from understudy.benchmark.catalogue import describe_table, table_names
        from understudy.benchmark.sources import VARIABLE, data_folder

        folder = data_folder()
    except UnderstudyError:
        advice = "Create the folder, or unset the variable; only benchmarks use it."
        return Check(section, name, Status.WARNING, "UNDERSTUDY_DATA names no folder", advice)
    except ImportError as error:
        return Check(section, name, Status.WARNING, f"cannot be listed ({type(error).__name__})", "See the libraries.")
    place = f"in the folder of {VARIABLE}" if os.environ.get(VARIABLE) else f"in the cache ({VARIABLE} is not set)"
    entries = [entry for entry in map(describe_table, table_names()) if entry.files]
    present = [entry for entry in entries if all((folder / file.name).is_file() for file in entry.files)]
    damaged = [entry.name for entry in present if checksums and not _is_published(entry, folder)]
    intact = [entry.name for entry in present if entry.name not in damaged]
    summary = f"{len(intact)} of {len(entries)} {place}{': ' if intact else ''}{', '.join(intact)}"
    if damaged:
        summary += f"; not as published: {', '.join(damaged)}"
        return Check(section, name, Status.WARNING, summary, "Fetch these again with 'understudy benchmark fetch'.")
    return Check(section, name, Status.OK, summary + ("; checksums agree" if checksums and intact else ""))


def _is_published(entry: "TableEntry", folder: Path) -> bool:
    """Whether the files of a public table are what was published."""
    from understudy.benchmark.sources import verify_file

    try:
        for file in entry.files:
            verify_file(folder / file.name, file)
    except (UnderstudyError, OSError):
        return False
    return True


def _check_extra(name: str) -> Check:
    versions = {package: _installed(package) for package in requirements(name)}
    present = ", ".join(f"{package} {version}" for package, version in versions.items() if version)
    if versions and all(versions.values()):
        return Check("Optional", name, Status.OK, f"{EXTRAS[name]} ({present})")
    install = f"pip install '{DISTRIBUTION}[{name}]'"
    return Check("Optional", name, Status.MISSING, f"{EXTRAS[name]}: {install}")


def _check_program(name: str) -> Check:
    purpose, advice = PROGRAMS[name]
    if shutil.which(name):
        return Check("Optional", name, Status.OK, f"{purpose} (found)")
    return Check("Optional", name, Status.MISSING, purpose, advice)
