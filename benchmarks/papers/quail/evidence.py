"""Claims about results as tests: what a claim says, whether it holds, and the figures behind the answer."""

import dataclasses
import enum
import re
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence

from scipy import stats

from understudy.benchmark.report.records import BASELINE, REAL, Result
from understudy.benchmark.report.statistics import (
    Block,
    Grid,
    Ranking,
    Summary,
    group_results,
    private_blocks,
    rank_methods,
)

PLAIN = ("mwem", "dpgan", "pategan", "dpctgan", "patectgan")
GANS = PLAIN[1:]
WRAPPED = tuple(f"quail({name})" for name in PLAIN)
EVERY_METHOD = (*PLAIN, *WRAPPED)
TABLES = ("adult", "bank", "car", "mushroom", "shopping")
SOME = 0.25
"""The fraction behind "both metrics are needed"."""
HIGHER = {"f1": True, "auc": True, "pmse_ratio": False, "sra": True, "seconds": False}
"""Whether higher is better, for the metrics that the paper reports and for time."""
TITLES = {"f1": "F1", "auc": "AUC", "pmse_ratio": "pMSE ratio", "sra": "SRA", "seconds": "seconds"}


class Status(enum.StrEnum):
    """The answer to a claim."""

    HOLDS = "holds"
    FAILS = "does not hold"
    UNTESTED = "cannot be tested"


@dataclasses.dataclass(frozen=True)
class Clause:
    """One testable part of a claim."""

    statement: str
    status: Status
    figures: str
    """What was computed, or what is missing."""
    counts: bool = True
    """Whether the claim depends on it; False: shown only."""


@dataclasses.dataclass(frozen=True)
class Verdict:
    """A claim with its clauses: it holds if every one that counts does."""

    title: str
    claim: str
    clauses: tuple[Clause, ...]

    @property
    def status(self) -> Status:
        found = {clause.status for clause in self.clauses if clause.counts}
        if Status.FAILS in found:
            return Status.FAILS
        return Status.UNTESTED if Status.UNTESTED in found or not found else Status.HOLDS


def judge(statement: str, outcome: bool | None, figures: str, *, counts: bool = True) -> Clause:
    """A clause from a truth value; None: it cannot be tested.

    >>> judge("Two is even.", True, "2 / 2 = 1").status
    <Status.HOLDS: 'holds'>
    """
    status = Status.UNTESTED if outcome is None else Status.HOLDS if outcome else Status.FAILS
    return Clause(statement, status, figures, counts)


def published_name(name: str) -> str | None:
    """The paper's name of a method, from an expression or a label; None if it is not one of the paper's.

    >>> published_name("dpgan(steps=1000)"), published_name("PATE-CTGAN"), published_name("aim")
    ('dpgan', 'patectgan', None)
    """
    start = re.sub(r"[^a-z0-9(]", "", name.lower()).partition("(")[0]
    return next((known for known in sorted(PLAIN, key=len, reverse=True) if start.endswith(known)), None)


def select_source(results: Iterable[Result], peer: str | None) -> list[Result]:
    """The paper's methods as Understudy (None) or another package runs them, under the paper's names.

    Real data and the baseline stay. If a method has several settings, the one labelled as in the paper counts, else
    the first; the others keep their labels.

    >>> cells = [Result(table="car", method="dpgan", expression="dpgan(steps=9)", epsilon=1.0, seed=0)]
    >>> [result.method for result in select_source(cells, None)]
    ['dpgan']
    """
    cells = [result for result in results if result.peer == peer or result.method in (REAL, BASELINE)]
    names = {result.method: _published_label(result) for result in cells}
    chosen: dict[str, str] = {}
    for method, name in names.items():
        if name is not None and (name not in chosen or method == name):
            chosen[name] = method
    return [
        dataclasses.replace(result, method=name)
        if (name := names[result.method]) is not None and chosen[name] == result.method
        else result
        for result in cells
    ]


def _published_label(result: Result) -> str | None:
    """The paper's label of a plain or QUAIL method; None if it is not one of the paper's."""
    if result.method in (REAL, BASELINE) or result.wrapper not in (None, "quail"):
        return None
    if result.wrapper is None:
        return published_name(result.expression or result.method)
    inner = published_name(result.inner or "")
    return inner and f"quail({inner})"


Keep = Callable[[float], bool]


def any_epsilon(epsilon: float) -> bool:
    return True


def at_least(limit: float) -> Keep:
    return lambda epsilon: epsilon >= limit


def at_most(limit: float) -> Keep:
    return lambda epsilon: epsilon <= limit


def blocks_of(
    results: Iterable[Result],
    metric: str,
    methods: Sequence[str],
    keep: Keep = any_epsilon,
    tables: Sequence[str] | None = None,
) -> dict[Block, Mapping[str, Summary]]:
    """The summaries of these methods, at the epsilons to keep, for each table and epsilon."""
    chosen = [
        result
        for result in results
        if result.method in methods
        and result.epsilon is not None
        and keep(result.epsilon)
        and (tables is None or result.table in tables)
    ]
    return private_blocks(group_seconds(chosen) if metric == "seconds" else group_results(chosen, metric))


def group_seconds(results: Iterable[Result]) -> dict[Block, dict[str, Summary]]:
    """Seconds to fit and sample, for each block and method; failed cells are counted."""
    timed = [
        dataclasses.replace(result, metrics={} if result.seconds is None else {"seconds": result.seconds})
        for result in results
        if result.method != REAL
    ]
    return group_results(timed, "seconds")


def rank_where(
    results: Iterable[Result],
    metric: str,
    methods: Sequence[str],
    keep: Keep = any_epsilon,
    tables: Sequence[str] | None = None,
) -> Ranking | None:
    """Mean ranks of these methods by this metric."""
    return rank_methods(blocks_of(results, metric, methods, keep, tables), higher_is_better=HIGHER[metric])


def describe_ranks(ranking: Ranking | None, needed: Sequence[str] = ()) -> str:
    """Mean ranks as text, or what is missing.

    >>> describe_ranks(Ranking({"a": 1.0, "b": 2.0}, 3, None, None, None))
    'mean ranks a 1.00, b 2.00 over 3 pairs of table and epsilon'
    """
    absent = [name for name in needed if ranking is None or name not in ranking.mean_ranks]
    if absent or ranking is None:
        return f"no comparable results of {', '.join(absent) or 'two methods'}"
    named = ", ".join(f"{name} {rank:.2f}" for name, rank in ranking.mean_ranks.items())
    spread = ranking.critical_difference
    critical = "" if spread is None else f"; critical difference {spread:.2f}"
    pairs = "1 pair" if ranking.num_blocks == 1 else f"{ranking.num_blocks} pairs"
    return f"mean ranks {named} over {pairs} of table and epsilon{critical}"


def leads(ranking: Ranking | None, method: str) -> bool | None:
    """Whether a method has the best mean rank; None if it is not ranked against at least two others.

    >>> leads(Ranking({"a": 1.0, "b": 2.0, "c": 3.0}, 3, None, None, None), "a")
    True
    """
    if ranking is None or method not in ranking.mean_ranks or len(ranking.mean_ranks) < 3:
        return None
    others = [rank for name, rank in ranking.mean_ranks.items() if name != method]
    return ranking.mean_ranks[method] < min(others)


def correlate(first: Sequence[float], second: Sequence[float]) -> float | None:
    """Spearman's rank correlation; None for fewer than three points or where one side is constant.

    >>> correlate([1, 2, 3], [10, 20, 30])
    1.0
    """
    if len(first) < 3 or len(set(first)) < 2 or len(set(second)) < 2:
        return None
    return round(float(stats.spearmanr(first, second).statistic), 12)


def table_seconds(results: Iterable[Result], method: str) -> dict[str, float]:
    """Median seconds of a method on each table."""
    found: dict[str, list[float]] = {}
    for result in results:
        if result.method == method and result.seconds is not None and not result.is_failed:
            found.setdefault(result.table, []).append(result.seconds)
    return {table: statistics.median(values) for table, values in found.items()}


def best_of(block: Mapping[str, Summary], metric: str) -> str | None:
    """The method with the best mean among those without a failed cell."""
    means = {name: summary.mean for name, summary in block.items() if summary.is_complete and summary.mean is not None}
    if not means:
        return None
    sign = -1 if HIGHER[metric] else 1
    return min(means, key=lambda name: sign * (means[name] or 0.0))


def count_best(blocks: Grid, metric: str) -> dict[str, int]:
    """How often each method has the best mean; the most frequent first."""
    counts: dict[str, int] = {}
    for block in blocks.values():
        best = best_of(block, metric)
        if best is not None and len(block) > 1:
            counts[best] = counts.get(best, 0) + 1
    return dict(sorted(counts.items(), key=lambda pair: -pair[1]))


def judge_bests_differ(
    results: Sequence[Result], first: str, second: str, needed: Sequence[str] = EVERY_METHOD
) -> Clause:
    """Whether two metrics name different methods as best, often enough that both are needed."""
    names = {"f1": "F1", "auc": "AUC", "pmse_ratio": "pMSE"}
    statement = (
        f"In at least a quarter of the pairs of table and epsilon, the best by {names[first]} is not the best by "
        f"{names[second]}."
    )
    one, other = blocks_of(results, first, EVERY_METHOD), blocks_of(results, second, EVERY_METHOD)
    able = [block for block in one if len(one[block]) > 2 and block in other and set(needed) & set(one[block])]
    bests = [(best_of(one[block], first), best_of(other[block], second)) for block in able]
    known = [(a, b) for a, b in bests if a is not None and b is not None]
    differ = sum(a != b for a, b in known)
    return judge(statement, differ >= SOME * len(known) if known else None, f"{differ} of {len(known)} pairs")
