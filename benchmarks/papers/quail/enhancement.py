"""What the QUAIL paper claims about QUAIL itself: its third and fifth punchlines, as tests on results."""

import statistics
from collections.abc import Mapping, Sequence

from benchmarks.papers.quail.evidence import (
    EVERY_METHOD,
    PLAIN,
    WRAPPED,
    Clause,
    Verdict,
    blocks_of,
    count_best,
    judge,
    judge_bests_differ,
    published_name,
)
from understudy.benchmark.report.records import Result
from understudy.benchmark.report.statistics import Summary, difference, is_separated

ALMOST_ALL, HALF = 0.8, 0.5
"""Fractions behind "almost all" and "often"."""


def judge_both_utilities(results: Sequence[Result]) -> Verdict:
    """F1 and AUC are both needed: QUAIL often wins by F1, and sometimes loses AUC."""
    return Verdict(
        "F1 and AUC",
        "Report both. The best methods by F1 often use QUAIL, which sometimes, but not always, costs AUC.",
        (_quail_wins(results), _quail_costs_auc(results), judge_bests_differ(results, "f1", "auc", WRAPPED)),
    )


def _quail_wins(results: Sequence[Result]) -> Clause:
    statement = "In at least half of the pairs of table and epsilon, the best method by F1 uses QUAIL."
    blocks = {
        block: found
        for block, found in blocks_of(results, "f1", EVERY_METHOD).items()
        if any(name in WRAPPED for name in found) and any(name in PLAIN for name in found)
    }
    best = count_best(blocks, "f1")
    total, won = sum(best.values()), sum(count for name, count in best.items() if name in WRAPPED)
    return judge(statement, won >= HALF * total if total else None, f"{won} of {total} pairs")


Pair = tuple[str, float | None, str]
"""Table, epsilon, inner method."""


def quail_pairs(results: Sequence[Result], metric: str) -> dict[Pair, tuple[Summary, Summary]]:
    """The summaries with and without QUAIL, where both were run."""
    return {
        (table, epsilon, name): (found[f"quail({name})"], found[name])
        for (table, epsilon), found in blocks_of(results, metric, EVERY_METHOD).items()
        for name in PLAIN
        if name in found and f"quail({name})" in found
    }


def _quail_costs_auc(results: Sequence[Result]) -> Clause:
    statement = (
        "QUAIL lowers AUC by more than two standard errors in some pairs of method, table and epsilon, not in all."
    )
    gaps = [found for pair in quail_pairs(results, "auc").values() if (found := difference(*pair)) is not None]
    tested = [(gap, stderr) for gap, stderr in gaps if stderr is not None]
    if not tested:
        return judge(statement, None, "no pair with at least two seeds each")
    fell = sum(gap < 0 and is_separated(gap, stderr) for gap, stderr in tested)
    return judge(statement, 0 < fell < len(tested), f"AUC falls in {fell} of {len(tested)} pairs")


def judge_quail(results: Sequence[Result]) -> Verdict:
    """QUAIL almost always helps, and the embedded classifier matters more than the synthesizer."""
    statement = "QUAIL raises mean F1 in at least 80% of the pairs of method, table and epsilon."
    gaps = [found[0] for pair in quail_pairs(results, "f1").values() if (found := difference(*pair)) is not None]
    better = sum(gap > 0 for gap in gaps)
    mean = f"; mean difference {statistics.fmean(gaps):+.3f}" if gaps else ""
    helps = judge(statement, better >= ALMOST_ALL * len(gaps) if gaps else None, f"{better} of {len(gaps)} pairs{mean}")
    return Verdict(
        "QUAIL",
        "QUAIL improves utility in almost every setting, and its success depends far more on the embedded private "
        "classifier than on the synthesizer.",
        (helps, _synthesizer_matters_less(results), _learner_matters_more(results)),
    )


def _synthesizer_matters_less(results: Sequence[Result]) -> Clause:
    statement = "F1 varies less between synthesizers with QUAIL than without, averaged over pairs of table and epsilon."
    spreads = []
    for found in blocks_of(results, "f1", EVERY_METHOD).values():
        both = [n for n in PLAIN if _mean(found, n) is not None and _mean(found, f"quail({n})") is not None]
        if len(both) > 1:
            plain = statistics.stdev([_mean(found, name) or 0.0 for name in both])
            spreads.append((plain, statistics.stdev([_mean(found, f"quail({name})") or 0.0 for name in both])))
    if not spreads:
        return judge(statement, None, "no two synthesizers with and without QUAIL")
    plain, wrapped = (statistics.fmean(side) for side in zip(*spreads, strict=True))
    return judge(statement, wrapped < plain, f"standard deviation {wrapped:.3f} with QUAIL, {plain:.3f} without")


def _mean(found: Mapping[str, Summary], name: str) -> float | None:
    return found[name].mean if name in found else None


def _learner_matters_more(results: Sequence[Result]) -> Clause:
    """Needs several classifiers, each with the same synthesizers; with only one, it is untested and not counted."""
    statement = "Over several embedded classifiers, F1 varies more with the classifier than with the synthesizer."
    cells: dict[tuple[str, float | None], dict[tuple[str, str], list[float]]] = {}
    for result in results:
        inner = published_name(result.inner or "") if result.wrapper == "quail" else None
        if inner is not None and "f1" in result.metrics:
            learner = result.expression.partition("learner=")[2].partition("(")[0].strip(" ),") or "default"
            block = cells.setdefault((result.table, result.epsilon), {})
            block.setdefault((inner, learner), []).append(result.metrics["f1"])
    spreads = []
    for block in cells.values():
        means = {key: statistics.fmean(values) for key, values in block.items()}
        by_side = [[statistics.fmean(m for k, m in means.items() if k[side] == name)
                    for name in {key[side] for key in means}] for side in (0, 1)]  # fmt: skip
        if min(map(len, by_side)) > 1:
            spreads.append(tuple(statistics.stdev(values) for values in by_side))
    if not spreads:
        return judge(statement, None, "one classifier only; not counted", counts=False)
    synthesizer, learner_spread = (statistics.fmean(side) for side in zip(*spreads, strict=True))
    figures = f"standard deviation {learner_spread:.3f} between classifiers, {synthesizer:.3f} between synthesizers"
    return judge(statement, learner_spread > synthesizer, figures)
