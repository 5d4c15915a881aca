"""What all tests share: a compilation cache, no network, the folder of public tables, and a second accountant."""

import functools
import gc
import os
import signal
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jaxtyping
import pytest

import tests.examples
import tests.typechecks  # noqa: F401  (the hook below finds it by its name)
from tests.privacy.second_accountant import Figures, errors_in

ROOT = Path(__file__).parents[1]

# By environment, before JAX is loaded, so that command-line tests in other processes share the cache too.
os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", str(ROOT / ".jax_cache"))
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0")
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES", "0")
os.environ.setdefault("JAX_PLATFORMS", "cpu")
# The tests compile many small programs and run each for moments: code that is quick to make beats quick code.
os.environ.setdefault("XLA_FLAGS", "--xla_backend_optimization_level=0 --xla_llvm_disable_expensive_passes=true")

# Shapes and types of arrays are checked while tests run (before the modules are loaded); users never pay for it.
UNCHECKED = {
    "models.predictors": "it returns `Self`",
    "models.protocol": "its class decorator takes a class of a protocol with attributes, which beartype cannot check",
    "privacy.accounting.accountants": "it refuses a delta of a wrong type itself, and tests give it one",
    "privacy.accounting.budget": "the same of an epsilon",
    "privacy.accounting.events": "the same of the parameters of all events",
    "privacy.mechanisms.discovery": "the same of settings of binning; and tests count batches that refuse to be read",
    "privacy.mechanisms.scoring": "the same of functions of one row",
    "privacy.noise.samplers": "they draw number by number: their tests would take four times as long",
    "privacy.rows.rows": "Python 3.11 asks remote codes for their rows to see whether they are `Codes`; they refuse",
    "privacy.rows.table": "its local functions are sent to a cluster, and checked ones cannot be pickled",
    "privacy.rows.spark": "as of rows; and it names types of Spark, which need not be installed",
}
"""Modules that are left out, and why."""


def _checked_modules() -> list[str]:
    source = ROOT / "src" / "understudy"
    files = [file for folder in ("models", "privacy", "training") for file in (source / folder).rglob("*.py")]
    names = {".".join(file.relative_to(source).with_suffix("").parts) for file in files if file.stem != "__init__"}
    assert names >= UNCHECKED.keys(), "an exception that is no module"
    return [f"understudy.{name}" for name in ("encoding", "marginals", *sorted(names - UNCHECKED.keys()))]


jaxtyping.install_import_hook(_checked_modules(), "tests.typechecks.checked")


def pytest_configure(config: pytest.Config) -> None:
    """Warnings are errors, but for our own: tests fit small tables without a schema. Those that expect one ask for it.

    Not in pyproject.toml: there it would load the package before the hook above.
    """
    config.addinivalue_line("filterwarnings", "ignore::understudy.errors.UnderstudyWarning")


LONG_TESTS = ROOT / "tests" / "long_tests.txt"
GUARDS = ("tests/golden/", "tests/contract/")
"""What every method and wrapper must pass: never slow."""


@pytest.hookimpl(tryfirst=True)  # before tests are chosen by their marks
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Marks the tests of long_tests.txt: those of `make test` must be done in six minutes."""
    lines = [
        line.split(maxsplit=1) for line in LONG_TESTS.read_text(encoding="utf-8").splitlines() if line[:1] not in "#"
    ]
    marks = {name: mark for mark, name in lines}
    for item in items:
        for name in (item.nodeid, item.nodeid.partition("[")[0], item.nodeid.partition("::")[0]):
            if name in marks:
                item.add_marker(marks[name])
        if item.nodeid.startswith(GUARDS) and item.get_closest_marker("slow"):
            raise pytest.UsageError(f"{item.nodeid} is marked slow, but `.ci/run` runs all of {' and '.join(GUARDS)}.")


def pytest_collection_finish() -> None:
    """What collecting has made stays to the end: the garbage collector need not walk through it again and again."""
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session", autouse=True)
def no_network() -> Iterator[None]:
    """Refuses every connection of this process that would leave the machine."""
    connect = socket.socket.connect

    def refuse(self: socket.socket, address: object) -> None:
        local = self.family == socket.AF_UNIX or (isinstance(address, tuple) and address[0] in ("127.0.0.1", "::1"))
        if not local:
            raise OSError("The tests use no network.")
        connect(self, address)  # type: ignore[arg-type]  # handed on

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(socket.socket, "connect", refuse)
        yield


MANY_MAPS = 15_000
"""Memory maps of a process from which on compiled programs are dropped: Linux ends a process at 65,530 of them."""


@pytest.fixture(scope="module", autouse=True)
def _few_programs() -> Iterator[None]:
    """Every compiled program holds several memory maps, and a worker compiles thousands."""
    yield
    maps = Path("/proc/self/maps")
    if maps.exists() and maps.read_bytes().count(b"\n") > MANY_MAPS:
        import jax

        jax.clear_caches()
        gc.collect()


@pytest.fixture(scope="session")
def claims() -> Iterator[list[Figures]]:
    """The figures of every statement that a run ends with, and of every certificate.json, in the order of their making.

    Runs and certificates stay what they are: the originals are called, and their results are noted and handed on.
    """
    from understudy import certificate
    from understudy.certificate import page as certificate_page
    from understudy.privacy.accounting.ledger import Ledger, Statement

    made: list[Figures] = []
    end_of_run, to_json = Ledger.statement, certificate.to_json

    @functools.wraps(end_of_run)
    def noted_statement(self: Ledger, *planned: Any, **facts: Any) -> Statement:
        statement = end_of_run(self, *planned, **facts)
        queries = tuple((query.event.to_json(), query.delta, query.partition) for query in statement.queries)
        made.append(Figures(queries, statement.delta, statement.epsilon, statement.epsilon_pld, statement.epsilon_rdp))
        return statement

    def noted_certificate(statement: Statement, *checksums: Any) -> dict[str, object]:
        content = to_json(statement, *checksums)
        made.append(Figures.of(content))
        return content

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Ledger, "statement", noted_statement)
        patch.setattr(certificate, "to_json", noted_certificate)
        patch.setattr(certificate_page, "to_json", noted_certificate)
        yield made


ERRORS: dict[str, list[str]] = {}
"""What the second accountant says of all figures that it has seen in this process."""


@pytest.fixture(autouse=True)
def _figures_are_right(claims: list[Figures], request: pytest.FixtureRequest) -> Iterator[None]:
    """Epsilon of every certificate that a test makes is computed again, by code that shares nothing with the first."""
    yield
    new, claims[:] = list(claims), []
    if request.node.get_closest_marker("made_up_figures") is not None:
        return
    for figures in new:
        if repr(figures) not in ERRORS:
            ERRORS[repr(figures)] = errors_in(figures)
        if wrong := ERRORS[repr(figures)]:
            pytest.fail(f"A certificate of this test is wrong: {'; '.join(wrong)}. {figures}")


@pytest.fixture
def can_interrupt() -> Iterator[None]:
    """SIGINT interrupts this process and those it starts, even where the parent ignores it, as under nohup."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.fixture(scope="session")
def understudy_data() -> Path:
    """The folder of public tables that `UNDERSTUDY_DATA` names."""
    named = os.environ.get("UNDERSTUDY_DATA")
    if not named:
        pytest.skip("UNDERSTUDY_DATA is not set: this test needs the folder of public tables.")
    folder = Path(named)
    if not folder.is_dir():
        pytest.skip(f"UNDERSTUDY_DATA names {folder.name}, which is no folder: this test needs public tables.")
    return folder
