"""Parallel composition: queries are charged for the partition whose rows they read, and a run has one split."""

import ast
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import understudy
from tests.builders import RowsRead, over_budget, raises
from understudy.errors import BudgetExceeded
from understudy.privacy.accounting.events import (
    ZCDP,
    DiscreteGaussian,
    Event,
    Gaussian,
    Pure,
    Selections,
    SubsampledGaussian,
)
from understudy.privacy.accounting.ledger import Guarantee, Ledger, Partition, Query
from understudy.privacy.gradients.charges import charge_dpsgd, charge_langevin, charge_votes
from understudy.privacy.gradients.langevin import Law, Stage
from understudy.privacy.mechanisms.counts import noisy_answers, noisy_counts, noisy_size
from understudy.privacy.mechanisms.dependence import noisy_dependence_selections
from understudy.privacy.mechanisms.discovery import discover_bounds, discover_categories, discover_histograms
from understudy.privacy.mechanisms.filters import charge_marginals, charge_zcdp
from understudy.privacy.mechanisms.moments import noisy_class_sums, noisy_gram, noisy_moments
from understudy.privacy.mechanisms.objective import noisy_minimisers
from understudy.privacy.mechanisms.selection import (
    RowFunctions,
    noisy_closest,
    noisy_function_selections,
    noisy_selections,
)
from understudy.privacy.noise.source import SeededNoise
from understudy.privacy.rows.rows import PrivateRows, partition_rows
from understudy.privacy.rows.table import PrivateColumns, PrivateTable
from understudy.schema import Domain

DOMAIN = Domain(names=("a", "b"), sizes=(3, 2), num_rows=100)
NAMES = ("left", "right")
TEN_STEPS = [Stage(10, 1e-3)]


def ledger(epsilon: float = 1.0, seed: int = 0) -> Ledger:
    return Ledger(Guarantee(epsilon, 1e-6), noise=SeededNoise(seed))


def whole_rows() -> PrivateRows:
    return PrivateRows(np.zeros((100, 2), np.int32), DOMAIN, positions=lambda: np.full((100, 2), 0.5))


def count(rows: PrivateRows, book: Ledger, partition: str | None, stddev: float = 100.0) -> np.ndarray:
    query = Query("q", "a marginal", DiscreteGaussian(stddev), partition=partition)
    return noisy_counts(rows, [("a",)], query, book)[0]


# ------------------------------------------------------------------------------------------------------------ the rule


def full_budget(book: Ledger) -> float:
    return book.remaining.calibrate(lambda noise: [DiscreteGaussian(noise)])


def test_the_same_rows_under_many_names_are_refused() -> None:
    """Before and after they are partitioned: 400 queries of the whole budget would average the noise away."""
    for book in (ledger(), split_ledger()[0]):
        stddev, rows = full_budget(book), whole_rows()
        for number in range(400):
            with raises(BudgetExceeded, query="a marginal", needed=None):
                count(rows, book, f"p{number}", stddev)
        with raises(BudgetExceeded, query="a marginal", needed=None):
            count(rows, book, "left", stddev)
        assert book.queries == ()
        count(rows, book, None, stddev)
        with over_budget("a marginal"):
            count(rows, book, None, stddev)


def split_ledger(epsilon: float = 1.0) -> tuple[Ledger, PrivateRows, PrivateRows]:
    book = ledger(epsilon)
    return book, *partition_rows(whole_rows(), 0.5, book, NAMES)


def test_partitions_of_one_split_compose_in_parallel() -> None:
    """Each fills the budget, through a view too, and the run costs no more; a query on all units counts in both."""
    book, left, right = split_ledger()
    stddev = full_budget(book)
    counted = [count(left.only(("a",)), book, "left", stddev), count(right, book.view(book.remaining), "right", stddev)]
    assert 0.995 <= book.spent().epsilon <= 1.0
    assert abs(sum(counts.sum() for counts in counted) - 100) < 6 * np.sqrt(6) * stddev  # false alarms: 2e-9
    for rows, partition in ((left, "left"), (right, "right"), (whole_rows(), None)):
        with over_budget("a marginal"):
            count(rows, book, partition, stddev)


def test_a_query_must_name_the_partition_that_it_reads() -> None:
    book, left, right = split_ledger()
    for rows, named in ((left, "right"), (right, "left"), (left, None), (right.only(("b", "a")), None)):
        with raises(BudgetExceeded, query="a marginal", needed=None):
            count(rows, book, named)
    assert book.queries == ()


def test_units_are_partitioned_once() -> None:
    """Two splits of the same units overlap: whole rows, partitions, other columns, and within a view."""
    book, left, _ = split_ledger()
    for rows in (whole_rows(), whole_rows().only(("a",)), left, left.only(("a",))):
        for each in (book, book.view(book.remaining)):
            with pytest.raises(BudgetExceeded):
                partition_rows(rows, 0.5, each, ("up", "down"))
    with pytest.raises(BudgetExceeded):
        partition_rows(left, 0.5, ledger(), ("up", "down"))  # nor by another ledger
    outer = ledger()
    view = outer.view(outer.remaining)
    partition_rows(whole_rows(), 0.5, view, NAMES)
    with pytest.raises(BudgetExceeded):
        partition_rows(whole_rows(), 0.5, outer, NAMES)


def test_partitions_of_another_run_are_refused() -> None:
    """Though it has partitions of the same names: those were drawn by other coins."""
    _, left, _ = split_ledger()
    other, _, _ = split_ledger()
    for book in (ledger(), other):
        for named in ("left", None):
            with raises(BudgetExceeded, query="a marginal", needed=None):
                count(left, book, named)
    assert Partition("left") != Partition("left")


def test_a_ledger_charges_no_partition_that_it_has_not() -> None:
    query = Query("q", "a marginal", DiscreteGaussian(100.0), partition="left")
    with raises(BudgetExceeded, query="a marginal", needed=None):
        ledger().charge(query)
    book, _, _ = split_ledger()
    with raises(BudgetExceeded, query="a marginal", needed=None):
        book.view(book.remaining).charge(Query("q", "a marginal", DiscreteGaussian(100.0), partition="up"))
    book.charge(query)


# ------------------------------------------------------------------------------------------------------ each mechanism

Mechanism = Callable[[PrivateRows, Query, Ledger], object]


class Unread:
    """A layout that must not be reached."""

    def encode(self, codes: np.ndarray, positions: np.ndarray, key: object, /) -> np.ndarray:
        raise AssertionError("the rows were read")


LAW = Law(1.0, 1.0, 1.0, momentum=False)
FUNCTIONS = RowFunctions(cliques=(("a",),))
ABSENT = np.zeros((2, 2), bool)

MECHANISMS: dict[str, tuple[Event, Mechanism]] = {
    "noisy_counts": (DiscreteGaussian(9.0), lambda r, q, book: noisy_counts(r, [("a",)], q, book)),
    "noisy_answers": (DiscreteGaussian(9.0), noisy_answers),
    "charge_zcdp": (ZCDP(0.01), charge_zcdp),
    "charge_marginals": (Gaussian(9.0), charge_marginals),
    "noisy_selections": (Selections(0.1), noisy_selections),
    "noisy_function_selections": (
        Selections(0.1),
        lambda r, q, book: noisy_function_selections(r, FUNCTIONS, q, book),
    ),
    "noisy_closest": (Selections(0.1), lambda r, q, book: noisy_closest(r, [("a",)], [[np.ones(3) / 3]], q, book)),
    "noisy_dependence_selections": (Selections(0.1), noisy_dependence_selections),
    "noisy_minimisers": (
        Pure(0.1),
        lambda r, q, book: noisy_minimisers(r, Unread(), [1], q, book, penalty=0.1, class_weights=np.ones(2)),
    ),
    "noisy_moments": (
        Gaussian(9.0),
        lambda r, q, book: noisy_moments(r, Unread(), q, book, weights=(1.0, 0.0, 0.0), absent=ABSENT),
    ),
    "noisy_gram": (Gaussian(9.0), lambda r, q, book: noisy_gram(r, Unread(), q, book)),
    "noisy_class_sums": (
        Gaussian(9.0),
        lambda r, q, book: noisy_class_sums(r, "b", [], q, book, weights=()),
    ),
    "charge_dpsgd": (SubsampledGaussian(0.5, 9.0, 10), lambda r, q, book: charge_dpsgd(r, q, book, Unread())),
    "charge_langevin": (
        SubsampledGaussian(0.5, 9.0, 10),
        lambda r, q, book: charge_langevin(r, [q], book, Unread(), schedule=TEN_STEPS, law=LAW, updates_each=1),
    ),
    "charge_votes": (
        Gaussian(9.0),
        lambda r, q, book: charge_votes(r, q, book, num_teachers=3, num_queries=1, layout=Unread()),
    ),
}


@pytest.mark.parametrize("name", MECHANISMS)
def test_every_mechanism_refuses_rows_that_its_query_does_not_name(name: str) -> None:
    event, mechanism = MECHANISMS[name]
    book, left, right = split_ledger(50.0)
    for rows, partition in ((whole_rows(), "left"), (right, "left"), (left, None), (split_ledger()[1], "left")):
        with raises(BudgetExceeded, query="a query", needed=None):
            mechanism(rows, Query("q", "a query", event, partition=partition), book)
    assert book.queries == ()


class UnreadRows:
    """Batches that nobody may read."""

    def __iter__(self) -> Iterator[pa.Table]:
        raise RowsRead


def test_a_table_that_is_not_encoded_has_all_units() -> None:
    book, _, _ = split_ledger(50.0)
    query = Query("q", "a query", DiscreteGaussian(9.0), delta=1e-8, partition="left")
    columns: PrivateColumns[Any] = PrivateColumns({"a": None})  # reading it would fail otherwise
    unread: dict[str, Callable[[], object]] = {
        "size": lambda: noisy_size(PrivateTable(UnreadRows()), query, book),
        "categories": lambda: discover_categories(columns, query, book),
        "bounds": lambda: discover_bounds(columns, {"a": "integer"}, query, book),
        "histograms": lambda: discover_histograms(columns, {}, {"a": 1}, query, book, num_rows=9),
    }
    for ask in unread.values():
        with raises(BudgetExceeded, query="a query", needed=None):
            ask()
    assert book.queries == ()


# ---------------------------------------------------------------------------------------------------------- the source

PRIVACY = Path(understudy.__file__).parent / "privacy"
CHECKS = {"PrivateRows": "check_query", "PrivateTable": "check_table_query", "PrivateColumns": "check_table_query"}


def parameters(function: ast.FunctionDef) -> dict[str, str]:
    """From the name of each parameter to its annotation."""
    every = [*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs]
    return {each.arg: ast.unparse(each.annotation) for each in every if each.annotation is not None}


def mechanisms(source: str) -> Iterator[ast.FunctionDef]:
    """Functions of private rows and a ledger that charge, or are given queries to charge."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.FunctionDef):
            kinds = " ".join(parameters(node).values())
            if "Ledger" in kinds and any(kind in kinds for kind in CHECKS):
                charges = any(ast.unparse(call.func) == "ledger.charge" for call in calls(node))
                if charges or ("Query" in kinds and not node.name.startswith("check_")):
                    yield node


def calls(function: ast.FunctionDef) -> list[ast.Call]:
    found = [node for node in ast.walk(function) if isinstance(node, ast.Call)]
    return sorted(found, key=lambda call: (call.lineno, call.col_offset))


def unchecked(source: str) -> list[str]:
    """Mechanisms that do not check their query before they charge it, or leave both to one that does."""
    functions, faults = list(mechanisms(source)), []
    names = {function.name for function in functions}
    for function in functions:
        rows, kind = next(
            (own, kind) for own, text in parameters(function).items() for kind in CHECKS if text.startswith(kind)
        )
        wanted = f"{CHECKS[kind]}({rows}, query, ledger)" if kind == "PrivateRows" else f"{CHECKS[kind]}(query)"
        made = [ast.unparse(call) for call in calls(function)]
        if "ledger.charge(query)" in made:
            good = wanted in made[: made.index("ledger.charge(query)")]
        else:
            good = any(isinstance(call.func, ast.Name) and call.func.id in names for call in calls(function))
        faults += [] if good else [function.name]
    return faults


def test_every_mechanism_checks_its_query_before_it_charges() -> None:
    """Read off the source, so that a new one cannot leave it out; and each one above is found."""
    found: set[str] = set()
    for file in sorted(PRIVACY.rglob("*.py")):
        source = file.read_text()
        assert unchecked(source) == [], file.name
        found |= {function.name for function in mechanisms(source)}
        for charging in [line for line in source.splitlines() if ".charge(" in line]:
            assert "ledger.charge(query)" in charging, file.name  # the form that is looked for
    assert found >= set(MECHANISMS) | {"noisy_size", "discover_categories", "discover_bounds"}
    assert "__init__" not in found  # making an object costs nothing
    public = {name for name in found if name.startswith(("noisy_", "charge_"))}
    assert public == set(MECHANISMS) | {"noisy_size", "noisy_rows_per_unit"}


@pytest.mark.parametrize(
    "body",
    [
        "ledger.charge(query)",
        "ledger.charge(query); check_query(rows, query, ledger)",
        "check_query(others, query, ledger); ledger.charge(query)",
        "check_table_query(query); ledger.charge(query)",
        "return rows._codes",
    ],
)
def test_a_missing_check_is_seen(body: str) -> None:
    assert unchecked(f"def noisy(rows: PrivateRows, query: Query, ledger: Ledger):\n    {body}\n") == ["noisy"]
