"""The six punchlines of the QUAIL paper, each as a test on results.

"Differentially Private Synthetic Data: Applied Evaluations and Enhancements", section 6. The thresholds are ours, as
the paper gives none; each clause states its own.
"""

import statistics
from collections.abc import Mapping, Sequence

from benchmarks.papers.quail.enhancement import judge_both_utilities, judge_quail
from benchmarks.papers.quail.evidence import (
    EVERY_METHOD,
    GANS,
    PLAIN,
    Clause,
    Verdict,
    at_least,
    at_most,
    best_of,
    blocks_of,
    correlate,
    count_best,
    describe_ranks,
    judge,
    judge_bests_differ,
    leads,
    rank_where,
    table_seconds,
)
from understudy.benchmark.report.figures import format_change
from understudy.benchmark.report.records import REAL, Result
from understudy.benchmark.report.statistics import (
    SEPARATION,
    Grid,
    beats,
    block_ranks,
    difference,
    group_results,
    is_separated,
)

CATEGORICAL = ("car", "mushroom")
FEATURES = {"adult": 14, "bank": 16, "car": 6, "mushroom": 22, "shopping": 17}
"""Columns besides the target."""
HALF = 0.5
"""The fraction behind "most" and "often"."""
REDUNDANT = 0.9
"""Rank correlation above which one metric says nothing that the other does not."""


def judge_punchlines(results: Sequence[Result]) -> list[Verdict]:
    """All six verdicts on the results of one source, see `evidence.select_source`.

    >>> [verdict.status.value for verdict in judge_punchlines([])] == ["cannot be tested"] * 6
    True
    """
    return [
        judge_performance(results),
        judge_computation(results),
        judge_both_utilities(results),
        judge_similarity(results),
        judge_quail(results),
        judge_scale(results),
    ]


# 1


def judge_performance(results: Sequence[Result]) -> Verdict:
    """No method is always best; PATE-CTGAN leads at large budgets, DP-CTGAN at small ones."""
    large, small = at_least(3.0), at_most(1.0)
    cases = [
        ("At epsilon 3 and above, PATE-CTGAN has the best mean rank by F1.", "f1", large, "patectgan", True),
        ("At epsilon 3 and above, PATE-CTGAN has the best mean rank by pMSE.", "pmse_ratio", large, "patectgan", True),
        ("At epsilon 1 and below, DP-CTGAN has the best mean rank by F1.", "f1", small, "dpctgan", True),
        ("At epsilon 1 and below, PATE-CTGAN may lead by pMSE.", "pmse_ratio", small, "patectgan", False),
    ]
    clauses = [_no_single_winner(results)]
    for statement, metric, keep, method, counts in cases:
        ranking = rank_where(results, metric, PLAIN, keep)
        clauses.append(judge(statement, leads(ranking, method), describe_ranks(ranking, (method,)), counts=counts))
    return Verdict(
        "Holistic performance",
        "No synthesizer is best everywhere. PATE-CTGAN is often good, and best at epsilon 3 and above; at epsilon 1 "
        "and below DP-CTGAN has the better utility.",
        tuple(clauses),
    )


def _no_single_winner(results: Sequence[Result]) -> Clause:
    statement = "The method that is most often best by F1 is beaten somewhere by more than two standard errors."
    blocks = blocks_of(results, "f1", EVERY_METHOD)
    best = count_best(blocks, "f1")
    if len(blocks) < 2 or not best:
        return judge(statement, None, "fewer than two pairs of table and epsilon")
    top = next(iter(best))
    if not any(summary.stderr is not None for block in blocks.values() for summary in block.values()):
        return judge(statement, None, "a single seed: no standard errors")
    beaten = sum(
        any(beats(other, block[top], higher_is_better=True) for name, other in block.items() if name != top)
        for block in blocks.values()
        if top in block
    )
    figures = f"{top} is best in {best[top]} of {len(blocks)} pairs of table and epsilon, and beaten in {beaten}"
    return judge(statement, beaten > 0, figures)


# 2


def judge_computation(results: Sequence[Result]) -> Verdict:
    """The best GANs are the slowest, and MWEM is fast, and competitive on categorical tables."""
    times = rank_where(results, "seconds", PLAIN)
    slow = None
    if times is not None and {"dpctgan", "patectgan"} <= set(times.mean_ranks) and len(times.mean_ranks) > 2:
        slow = set(list(times.mean_ranks)[-2:]) == {"dpctgan", "patectgan"}
    fair = rank_where(results, "f1", PLAIN, tables=CATEGORICAL)
    rank = fair.mean_ranks.get("mwem") if fair is not None and len(fair.mean_ranks) > 2 else None
    middle = None if fair is None else (len(fair.mean_ranks) + 1) / 2
    clauses = (
        judge(
            "PATE-CTGAN and DP-CTGAN are the two slowest, by mean rank of time.",
            slow,
            describe_ranks(times, ("dpctgan", "patectgan")),
        ),
        _mwem_fastest(results),
        _slow_is_good(results),
        judge(
            "On categorical tables (Car, Mushroom), MWEM is in the better half by mean rank of F1.",
            None if rank is None or middle is None else rank <= middle,
            describe_ranks(fair, ("mwem",)),
        ),
    )
    return Verdict(
        "Computational tradeoff",
        "The synthesizers with the best scores, PATE-CTGAN and DP-CTGAN, also train longest. MWEM is much faster, and "
        "competitive on categorical tables.",
        clauses,
    )


def _mwem_fastest(results: Sequence[Result]) -> Clause:
    statement = "MWEM has the smallest median time on every table."
    seconds = {name: table_seconds(results, name) for name in PLAIN}
    tables = [table for table in seconds["mwem"] if any(table in seconds[name] for name in GANS)]
    if not tables:
        return judge(statement, None, "no times of MWEM beside those of a GAN")
    fastest = {table: min(seconds[name][table] for name in GANS if table in seconds[name]) for table in tables}
    ahead = [table for table in tables if seconds["mwem"][table] < fastest[table]]
    named = ", ".join(f"{table} {seconds['mwem'][table]:.3g} against {fastest[table]:.3g}" for table in tables)
    return judge(statement, len(ahead) == len(tables), f"seconds of MWEM and of the fastest GAN: {named}")


def _slow_is_good(results: Sequence[Result]) -> Clause:
    statement = "Among the GANs, more time goes with a better mean rank by F1."
    times, scores = rank_where(results, "seconds", GANS), rank_where(results, "f1", GANS)
    if times is None or scores is None:
        return judge(statement, None, "no times or no F1 of at least three GANs")
    names = [name for name in GANS if name in times.mean_ranks and name in scores.mean_ranks]
    found = correlate([times.mean_ranks[n] for n in names], [-scores.mean_ranks[n] for n in names])
    if found is None:
        return judge(statement, None, "no times or no F1 of at least three GANs")
    return judge(statement, found > 0, f"rank correlation {format_change(found)} over {len(names)} GANs")


# 4


def judge_similarity(results: Sequence[Result]) -> Verdict:
    """pMSE says something clear that utility does not."""
    return Verdict(
        "pMSE",
        "pMSE sums up statistical similarity in one number and complements the utility of models.",
        (_separates(results), _not_redundant(results), judge_bests_differ(results, "f1", "pmse_ratio")),
    )


def _separates(results: Sequence[Result]) -> Clause:
    statement = "In at least half of the pairs of table and epsilon, best and worst pMSE are two standard errors apart."
    found = []
    for block in blocks_of(results, "pmse_ratio", EVERY_METHOD).values():
        means = {
            name: summary for name, summary in block.items() if summary.mean is not None and summary.stderr is not None
        }
        if len(means) > 1:
            order = sorted(means.values(), key=lambda summary: summary.mean or 0.0)
            gap = difference(order[-1], order[0])
            found.append(gap is not None and is_separated(*gap))
    return judge(statement, sum(found) >= HALF * len(found) if found else None, f"{sum(found)} of {len(found)} pairs")


def _not_redundant(results: Sequence[Result]) -> Clause:
    statement = f"Methods rank differently by pMSE and by F1: the mean rank correlation is below {REDUNDANT}."
    first, second = blocks_of(results, "f1", EVERY_METHOD), blocks_of(results, "pmse_ratio", EVERY_METHOD)
    found = []
    for block in first:
        names = [name for name in first[block] if name in second.get(block, {})]
        if len(names) > 2:
            one = block_ranks(first[block], names, higher_is_better=True)
            other = block_ranks(second[block], names, higher_is_better=False)
            if (value := correlate(one, other)) is not None:
                found.append(value)
    if not found:
        return judge(statement, None, "no three methods with both metrics")
    mean = statistics.fmean(found)
    return judge(statement, mean < REDUNDANT, f"mean correlation {format_change(mean)} over {len(found)} pairs")


# 6


def judge_scale(results: Sequence[Result]) -> Verdict:
    """Scale and dimension make private synthesis hard."""
    gaps = _gaps_to_real(results)
    return Verdict(
        "Applied scenarios",
        "Private synthesis for models is hard in practice: large tables cost time, and many sparse, unbalanced columns "
        "cost utility. The paper's own large tables are internal; its advice to reduce dimensions first is no result.",
        (_time_grows(results), _stays_below(gaps), _gap_grows(gaps)),
    )


def _time_grows(results: Sequence[Result]) -> Clause:
    statement = (
        "Training time of the GANs grows with the number of rows: the mean rank correlation over tables is positive."
    )
    rows = {result.table: result.num_train for result in results if result.num_train is not None}
    found = []
    for name in GANS:
        seconds = {table: value for table, value in table_seconds(results, name).items() if table in rows}
        value = correlate([float(rows[table] or 0) for table in seconds], list(seconds.values()))
        if value is not None:
            found.append((name, value))
    if not found:
        return judge(statement, None, "no GAN with times on three tables")
    mean = statistics.fmean(value for _, value in found)
    named = ", ".join(f"{name} {format_change(value)}" for name, value in found)
    return judge(statement, mean > 0, f"rank correlations {named}")


def _gaps_to_real(results: Sequence[Result]) -> dict[str, tuple[float, float | None]]:
    """By table, at its largest epsilon: F1 of real data minus that of the best method, and its standard error."""
    grid: Grid = group_results(results, "f1")
    gaps = {}
    for table in dict.fromkeys(table for table, _ in grid):
        real = grid.get((table, None), {}).get(REAL)
        private = {
            e: found for (t, e), found in blocks_of(results, "f1", EVERY_METHOD).items() if t == table and e is not None
        }
        if real is None or real.mean is None or not private:
            continue
        found = private[max(private)]
        best = best_of(found, "f1")
        if best is not None and (mean := found[best].mean) is not None:
            gaps[table] = (real.mean - mean, found[best].stderr)
    return gaps


def _stays_below(gaps: Mapping[str, tuple[float, float | None]]) -> Clause:
    statement = "At the largest epsilon, the best F1 is two standard errors below that of real data on most tables."
    tested = {table: (gap, stderr) for table, (gap, stderr) in gaps.items() if stderr is not None}
    if not tested:
        return judge(statement, None, "no real data beside a method with two seeds")
    below = sum(gap > SEPARATION * (stderr or 0.0) for gap, stderr in tested.values())
    named = ", ".join(f"{table} {gap:.3f}" for table, (gap, _) in tested.items())
    return judge(statement, below > HALF * len(tested), f"gap in F1: {named}")


def _gap_grows(gaps: Mapping[str, tuple[float, float | None]]) -> Clause:
    statement = "That gap grows with the number of columns: the rank correlation over tables is positive."
    known = [table for table in gaps if table in FEATURES]
    found = correlate([float(FEATURES[t]) for t in known], [gaps[t][0] for t in known]) if len(known) > 3 else None
    if found is None:
        return judge(statement, None, f"{len(known)} of the five tables; four are needed")
    return judge(statement, found > 0, f"rank correlation {format_change(found)} over {len(known)} tables")
