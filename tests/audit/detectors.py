"""Detectors: checks of the privacy rules as functions that return what they find wrong; on sound code, nothing.

A deterministic detector finds the same in every run. A statistical one takes a seed and a level: on sound code it
raises an alarm with at most that probability. What is tested is the code at the moment of the call, so defects can be
planted and detected (`defects.py`). Here: queries by noise on counts, selections, accounting, keys. Training steps are
in `training_detectors.py`, whole runs in `run_detectors.py`.
"""

import dataclasses
import itertools
from collections.abc import Callable, Mapping
from types import ModuleType

import jax
import numpy as np
import pyarrow as pa
from scipy import stats

from tests.builders import loose_guarantee
from tests.privacy.mechanisms.test_selection import law_of_choice
from tests.privacy.second_accountant import Figures, errors_in
from tests.privacy.small_tables import ExactLaw, candidates, chi_square, table, untouchable
from tests.privacy.small_tables import ledger as loose_ledger
from understudy.audit.bounds import lower_bound
from understudy.errors import BudgetExceeded
from understudy.privacy.accounting import accountants as accounting
from understudy.privacy.accounting.events import DiscreteGaussian, Event, Gaussian, Selections, SubsampledGaussian
from understudy.privacy.accounting.ledger import Ledger, Query
from understudy.privacy.mechanisms import counts, discovery, moments, selection
from understudy.privacy.mechanisms.selection import Candidates, RowFunctions
from understudy.privacy.noise.source import SeededNoise, noise_source
from understudy.privacy.rows.rows import PrivateRows
from understudy.privacy.rows.table import PrivateColumns, PrivateTable
from understudy.schema import Domain

LEVEL = 1e-5
"""The rate of false alarms of a statistical detector, unless a test asks for another one."""


@dataclasses.dataclass(frozen=True)
class Detector:
    """A check of one rule."""

    name: str
    """As the documentation lists it."""
    find: Callable[[int, float], list[str]]
    """From a seed and a level to what is wrong, a sentence each."""
    is_statistical: bool = False
    is_exact: bool = False
    """Whether the probability of an alarm on sound code is about the level, not just at most."""
    is_quick: bool = True
    """Whether it is part of every test run; the others are run by `make audit-test`."""

    @property
    def what(self) -> str:
        """What it does, from its docstring."""
        return " ".join((self.find.__doc__ or "").split()).removesuffix(".")


def deterministic(name: str, find: Callable[[], list[str]], *, is_quick: bool = True) -> Detector:
    """A detector that needs neither seed nor level."""

    def found(seed: int, level: float) -> list[str]:
        return find()

    found.__doc__ = find.__doc__
    return Detector(name, found, is_quick=is_quick)


def refuted(pvalues: Mapping[str, float], level: float) -> list[str]:
    """What is refuted at this level, Bonferroni's correction included."""
    return [f"{what}: p-value {p:.1g}" for what, p in pvalues.items() if p < level / len(pvalues)]


def two_sided(below: float) -> float:
    """The p-value of a statistic whose distribution function has this value."""
    return float(2 * min(below, 1 - below))


# -------------------------------------------------------------------------------------------------------------- counts

AUDITED = 20_000
DELTA = 1e-2
"""At which audits are published, and their power is greatest."""


def _noisy_cells(codes: np.ndarray, stddev: float, seed: int) -> np.ndarray:
    """The noisy marginal of one column, a cell for each audited pair."""
    rows = PrivateRows(codes.reshape(-1, 1).astype(np.int32), Domain(names=("x",), sizes=(AUDITED,), num_rows=AUDITED))
    book = loose_ledger(noise=SeededNoise(seed))
    return counts.noisy_counts(rows, [("x",)], Query("c", "c", DiscreteGaussian(stddev)), book)[0]


def audit_counts(seed: int, level: float) -> list[str]:
    """Lower bound on epsilon, from noisy counts of cells with one unit and of empty cells, against the claim."""
    stddev = accounting.calibrate(lambda noise: [DiscreteGaussian(noise)], epsilon=1.0, delta=DELTA)
    with_unit = _noisy_cells(np.arange(AUDITED), stddev, 2 * seed)
    without = _noisy_cells(np.zeros(0), stddev, 2 * seed + 1)
    found = lower_bound(with_unit, without, delta=DELTA, confidence=1 - level, seed=seed).epsilon
    return [f"epsilon is at least {found:.3g}, and 1 was charged"] if found > 1 else []


def law_of_count_noise(seed: int, level: float) -> list[str]:
    """Noise on empty cells and on the number of rows, against the charged distribution (chi-square)."""
    sizes = [
        counts.noisy_size(
            PrivateTable(pa.table({"x": range(1000)})),
            Query("size", "size", DiscreteGaussian(4.0)),
            loose_ledger(noise=SeededNoise(1000 * seed + number)),
        )
        for number in range(800)
    ]
    drawn = {"cells": (_noisy_cells(np.zeros(0), 3.0, seed), 3.0), "sizes": (np.asarray(sizes) - 1000, 4.0)}
    return refuted({what: chi_square(*each) for what, each in drawn.items()}, level)


@dataclasses.dataclass(frozen=True)
class _Codes:
    """A layout of codes as numbers."""

    def encode(self, codes: np.ndarray, positions: np.ndarray, key: object) -> np.ndarray:
        return codes.astype(np.float32)


def law_of_moment_noise(seed: int, level: float) -> list[str]:
    """Variance of the noise on the second moments of all-zero rows, against the charge."""
    domain = Domain(names=tuple(f"c{n}" for n in range(40)), sizes=(2,) * 40, num_rows=100)
    rows, book = PrivateRows(np.zeros((5, 40), np.int32), domain), loose_ledger(noise=SeededNoise(seed))
    noisy = moments.noisy_gram(rows, _Codes(), Query("m", "moments", Gaussian(4.0)), book)
    values = noisy[np.triu_indices(40)] / 4.0
    pvalue = two_sided(float(stats.chi2.cdf(np.sum(values**2), values.size)))
    return refuted({"second moments": pvalue}, level)


def noise_of_two_answers() -> list[str]:
    """Two marginals of one bundle, and two bundles, of an empty table: their noise must differ."""
    rows = table([], domain=Domain(names=("x", "y"), sizes=(20, 20), num_rows=10))
    book = loose_ledger()
    query = Query("c", "c", DiscreteGaussian(3.0, 2))
    first = counts.noisy_counts(rows, [("x",), ("y",)], query, book)
    second = counts.noisy_counts(rows, [("x",), ("y",)], query, book)
    pairs = itertools.combinations([*first, *second], 2)
    return ["two answers have the same noise"] if any(np.array_equal(*pair) for pair in pairs) else []


def refusals_before_reading() -> list[str]:
    """A query beyond the budget is refused before its rows are read, and leaves no charge behind."""
    book = loose_ledger(1.0)
    try:
        counts.noisy_counts(untouchable(), [("a",)], Query("c", "c", DiscreteGaussian(0.5)), book)
    except BudgetExceeded:
        return ["a refused query was charged"] if book.queries else []
    except AssertionError:
        return ["rows were read for a query beyond the budget"]
    return ["a query beyond the budget was answered"]


# ----------------------------------------------------------------------------------------------------------- discovery


def values_of_one_unit(seed: int, level: float) -> list[str]:
    """How many of 4,000 values, each held by one unit, are listed: each with probability at most delta."""
    columns = PrivateColumns({"x": pa.array(np.arange(4000).astype(str))})
    query = Query("c", "c", DiscreteGaussian(2.0), delta=0.01)
    book = Ledger(loose_guarantee(100.0, delta=0.1), noise=SeededNoise(seed))
    listed = discovery.discover_categories(columns, query, book)["x"]
    pvalue = float(stats.binom.sf(len(listed) - 1, 4000, 0.01))
    return refuted({f"{len(listed)} values of one unit each are listed": pvalue}, level)


class _Given(SeededNoise):
    """Noise that is given, as often as it is asked for."""

    def __init__(self, draws: np.ndarray):
        super().__init__(0)
        self._draws = draws

    def discrete_gaussian(self, stddev: float, shape: tuple[int, ...]) -> np.ndarray:
        return self._draws.reshape(shape)


def sums_of_averaged_counts() -> list[str]:
    """Averaged counts are the same for a count with noise and for one row fewer with correspondingly more noise."""
    draw = np.random.default_rng(0)
    exact, noise = draw.integers(1, 2**10, 20_000), draw.integers(-(2**6), 2**6, (3, 20_000))
    pairs = ((exact, noise), (exact - 1, noise + 1))
    one, other = (
        discovery._averaged_counts(counts, 3, 20.0, loose_ledger(noise=_Given(draws))) for counts, draws in pairs
    )
    apart = np.count_nonzero(one != other)
    return [f"{apart / len(exact):.2%} of the averages tell a table from one with a row less"] if apart else []


# ---------------------------------------------------------------------------------------------------------- selections


def odds_of_selections() -> list[str]:
    """Exact probabilities of a selection on neighbouring tables: log ratios and their range are within epsilon."""
    epsilon, base = 0.8, [(0, 1, 2), (1, 1, 0), (1, 2, 3), (0, 0, 0)]
    opposed = Candidates(
        [("a",), ("b",)], [np.array([100.0, 0.0]), np.array([-100.0, 0.0, 0.0])], np.ones(2), np.zeros(2)
    )
    widest = 0.0
    for choice in (candidates(), candidates(2.5), opposed):
        here = law_of_choice(base, choice, epsilon)
        for row in itertools.product((0, 1), (0, 1, 2), (0, 3)):
            ratio = law_of_choice([*base, row], choice, epsilon) - here
            widest = max(widest, float(np.abs(ratio).max()), float(np.ptp(ratio)))
    return [] if widest <= epsilon * (1 + 1e-9) else [f"log-odds move by {widest:.3g}, and {epsilon:g} was charged"]


def odds_of_function_selections() -> list[str]:
    """The same for selections among functions of a row, in a table larger than any sample of it."""
    epsilon, cliques, rows = 0.5, (("a",), ("b",)), [(i % 2, i % 3, i % 4) for i in range(60)]

    def law(rows: list[tuple[int, int, int]]) -> np.ndarray:
        noise = ExactLaw(0)
        query = Query("t", "t", Selections(epsilon))
        functions = RowFunctions(cliques=cliques)
        choose = selection.noisy_function_selections(table(rows), functions, query, loose_ledger(noise=noise))
        choose(np.zeros(2 * (2 + 3)))
        return noise.log_law

    widest = max(
        float(np.ptp(law([row, *rows]) - law(rows))) for row in itertools.product((0, 1), (0, 1, 2), (0, 1, 2, 3))
    )
    return [] if widest <= epsilon * (1 + 1e-9) else [f"log-odds move by {widest:.3g}, and {epsilon:g} was charged"]


# ---------------------------------------------------------------------------------------------------------- accounting

RUNS: tuple[tuple[Event, ...], ...] = (
    (SubsampledGaussian(1 / 64, 1.0, 400), SubsampledGaussian(1 / 32, 4.0, 500)),
    (DiscreteGaussian(30.0, 8), SubsampledGaussian(1 / 16, 2.0, 100), Selections(0.05, 20)),
    (DiscreteGaussian(1.1),),
    (DiscreteGaussian(12.0, 5, 2), Selections(0.1, 10)),
)
"""Queries of a run: two trainings, counts beside a training, little noise, units of two rows."""


def second_accountant() -> list[str]:
    """Epsilon of several runs from the ledger, against independent code."""
    wrong = []
    clear_caches_of(accounting)  # figures from before a defect was planted
    for events in RUNS:
        book = loose_ledger(20.0, k=2 if any(getattr(event, "sensitivity", 1) == 2 for event in events) else 1)
        for number, event in enumerate(events):
            book.charge(Query(f"q{number}", "a query", event))
        wrong += errors_in(claimed_figures(book))
    clear_caches_of(accounting)
    return wrong


def clear_caches_of(module: ModuleType) -> None:
    """Of all its functions that have one."""
    for value in list(vars(module).values()):
        if hasattr(value, "cache_clear"):
            value.cache_clear()


def claimed_figures(book: Ledger) -> Figures:
    """What a certificate of these charges would claim."""
    statement = book.statement()
    queries = tuple((query.event.to_json(), query.delta, query.partition) for query in statement.queries)
    return Figures(queries, statement.delta, statement.epsilon, statement.epsilon_pld, statement.epsilon_rdp)


# ---------------------------------------------------------------------------------------------------------------- keys


def bits_of_keys() -> list[str]:
    """Each of the 64 bits of a key takes both values over 128 sources (otherwise with probability 2^-121)."""
    keys = np.asarray([jax.random.key_data(noise_source(seed).key()) for seed in range(128)], dtype=np.uint32)
    bits = (keys[..., None] >> np.arange(32, dtype=np.uint32)) & 1
    fixed = int(np.sum(bits.min(axis=0) == bits.max(axis=0)))
    return [f"{fixed} of 64 bits of a key are always the same"] if fixed else []


DETECTORS = (
    Detector("audit of counts", audit_counts, is_statistical=True),
    Detector("noise on counts", law_of_count_noise, is_statistical=True, is_exact=True),
    Detector("noise on second moments", law_of_moment_noise, is_statistical=True, is_exact=True),
    deterministic("independence of noise", noise_of_two_answers),
    deterministic("refusal before rows are read", refusals_before_reading),
    Detector("values held by one unit", values_of_one_unit, is_statistical=True),
    deterministic("sums of averaged counts", sums_of_averaged_counts),
    deterministic("selection probabilities", odds_of_selections),
    deterministic("selection probabilities, functions of a row", odds_of_function_selections),
    deterministic("second accountant", second_accountant),
    deterministic("key bits", bits_of_keys),
)
