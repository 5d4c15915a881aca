"""What the QUAIL paper says about its figures, each sentence as a test on results."""

from collections.abc import Sequence

from benchmarks.papers.quail.enhancement import quail_pairs
from benchmarks.papers.quail.evidence import (
    EVERY_METHOD,
    GANS,
    PLAIN,
    WRAPPED,
    Clause,
    Keep,
    any_epsilon,
    at_least,
    at_most,
    best_of,
    blocks_of,
    count_best,
    describe_ranks,
    judge,
    leads,
    rank_where,
    table_seconds,
)
from understudy.benchmark.report.records import BASELINE, REAL, Result
from understudy.benchmark.report.statistics import difference, group_results

Statement = tuple[str, Clause]
"""The figure or table of the paper, and its test."""


def judge_statements(results: Sequence[Result]) -> list[Statement]:
    """Every statement on a figure or table that the results of one source can test.

    >>> {clause.status.value for _, clause in judge_statements([])}
    {'cannot be tested'}
    """
    every, large, car = any_epsilon, at_least(3.0), ("car",)
    return [
        ("Figure 3", _quail_leads(results, "car", at_most(0.5), "On Car, QUAIL is best by F1 up to epsilon 0.5.")),
        ("Figure 3", _ctgans_beat_quail(results)),
        ("Figure 28b", _leads(results, "pmse_ratio", every, car, "patectgan", "On Car, PATE-CTGAN leads by pMSE.")),
        ("Figure 28a", _quail_leads(results, "mushroom", every, "On Mushroom, QUAIL is best by F1.")),
        (
            "Figure 4",
            _leads(results, "pmse_ratio", large, ("mushroom",), "patectgan",
                   "On Mushroom, PATE-CTGAN leads by pMSE from epsilon 3."),
        ),
        ("Figure 29b", _quail_loses_auc(results)),
        (
            "Figure 30",
            _leads(results, "f1", large, ("adult",), "dpctgan", "On Adult, DP-CTGAN leads by F1 from epsilon 3."),
        ),
        ("Figures 31 to 33", _ctgans_lead(results)),
        ("Section 4", _low_budgets_fail(results)),
        ("Table 1", _quail_saves_time(results)),
    ]  # fmt: skip


def _leads(
    results: Sequence[Result], metric: str, keep: Keep, tables: Sequence[str], method: str, statement: str
) -> Clause:
    ranking = rank_where(results, metric, PLAIN, keep, tables)
    return judge(statement, leads(ranking, method), describe_ranks(ranking, (method,)))


def _quail_leads(results: Sequence[Result], table: str, keep: Keep, statement: str) -> Clause:
    """Whether a wrapped method is best at every epsilon of the range."""
    blocks = {
        block: found
        for block, found in blocks_of(results, "f1", EVERY_METHOD, keep, (table,)).items()
        if any(name in WRAPPED for name in found) and any(name in PLAIN for name in found)
    }
    best = count_best(blocks, "f1")
    total, won = sum(best.values()), sum(count for name, count in best.items() if name in WRAPPED)
    return judge(statement, won == total if total else None, f"best at {won} of {total} epsilons")


def _ctgans_beat_quail(results: Sequence[Result]) -> Clause:
    statement = "On Car at epsilon 3 and above, DP-CTGAN and PATE-CTGAN are better by F1 than every QUAIL variant."
    outcomes = []
    for found in blocks_of(results, "f1", EVERY_METHOD, at_least(3.0), ("car",)).values():
        wrapped = [mean for name in WRAPPED if name in found and (mean := found[name].mean) is not None]
        plain = [mean for name in ("dpctgan", "patectgan") if name in found and (mean := found[name].mean) is not None]
        if wrapped and len(plain) == 2:
            outcomes.append(min(plain) > max(wrapped))
    return judge(statement, all(outcomes) if outcomes else None, f"true at {sum(outcomes)} of {len(outcomes)} epsilons")


def _quail_loses_auc(results: Sequence[Result]) -> Clause:
    statement = "On Mushroom, QUAIL has the lower AUC in most pairs of method and epsilon."
    pairs = [pair for (table, _, _), pair in quail_pairs(results, "auc").items() if table == "mushroom"]
    gaps = [found[0] for pair in pairs if (found := difference(*pair)) is not None]
    fell = sum(gap < 0 for gap in gaps)
    return judge(statement, 2 * fell > len(gaps) if gaps else None, f"{fell} of {len(gaps)} pairs")


def _ctgans_lead(results: Sequence[Result]) -> Clause:
    statement = (
        "On Bank and Shopping at epsilon 3 and above, DP-CTGAN and PATE-CTGAN have the two best mean ranks by F1."
    )
    ranking = rank_where(results, "f1", PLAIN, at_least(3.0), ("bank", "shopping"))
    needed = ("dpctgan", "patectgan")
    if ranking is None or len(ranking.mean_ranks) < 3 or not set(needed) <= set(ranking.mean_ranks):
        return judge(statement, None, describe_ranks(ranking, needed))
    return judge(statement, set(list(ranking.mean_ranks)[:2]) == set(needed), describe_ranks(ranking))


def _low_budgets_fail(results: Sequence[Result]) -> Clause:
    statement = "At epsilon 0.1 and below, the best F1 is nearer to the baseline than to real data on most tables."
    real, outcomes = group_results(results, "f1"), []
    for (table, _), found in blocks_of(results, "f1", (*EVERY_METHOD, BASELINE), at_most(0.1)).items():
        ceiling = real.get((table, None), {}).get(REAL)
        private = {name: summary for name, summary in found.items() if name != BASELINE}
        best = best_of(private, "f1")
        if ceiling is None or ceiling.mean is None or BASELINE not in found or best is None:
            continue
        floor, mean = found[BASELINE].mean, private[best].mean
        if floor is not None and mean is not None:
            outcomes.append(mean - floor < ceiling.mean - mean)
    count = f"true in {sum(outcomes)} of {len(outcomes)} pairs of table and epsilon"
    return judge(statement, 2 * sum(outcomes) > len(outcomes) if outcomes else None, count)


def _quail_saves_time(results: Sequence[Result]) -> Clause:
    statement = "At epsilon 3 and 6, every GAN is faster inside QUAIL, by the median time on every table."
    here = [result for result in results if result.epsilon in (3.0, 6.0)]
    ratios = []
    for name in GANS:
        plain, wrapped = table_seconds(here, name), table_seconds(here, f"quail({name})")
        ratios += [wrapped[table] / plain[table] for table in plain if table in wrapped and plain[table] > 0]
    faster = sum(ratio < 1 for ratio in ratios)
    middle = f"; median ratio {sorted(ratios)[len(ratios) // 2]:.2f}" if ratios else ""
    count = f"faster in {faster} of {len(ratios)} pairs of method and table{middle}"
    return judge(statement, faster == len(ratios) if ratios else None, count)
