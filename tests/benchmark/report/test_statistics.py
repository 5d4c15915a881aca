"""Means, wins, ranks and tests of ranks against values computed by hand, by SciPy and by Demsar."""

import math

import numpy as np
import pytest
from scipy import stats

from tests.benchmark.report.records import make_record, summarise
from understudy.benchmark.report.records import read_records
from understudy.benchmark.report.statistics import (
    Block,
    Summary,
    beats,
    block_ranks,
    count_seeds,
    count_wins,
    critical_difference,
    difference,
    find_winners,
    friedman_test,
    group_results,
    pareto_front,
    rank_methods,
)
from understudy.errors import ConfigError


def test_a_summary_has_the_moments_of_its_values() -> None:
    values = [0.2, 0.5, 0.9, 0.4]
    found = summarise(values)
    assert found.mean == pytest.approx(np.mean(values))
    assert found.std == pytest.approx(np.std(values, ddof=1))
    assert found.stderr == pytest.approx(stats.sem(values))
    assert summarise([0.3]).std is None
    assert summarise([]).mean is None


def test_failures_and_missing_metrics_are_counted() -> None:
    records = [
        make_record(seed=0, f1=0.5),
        make_record(seed=1, failure="time"),
        make_record(seed=2, auc=0.5),
    ]
    found = group_results(read_records(records), "f1")["car", 1.0]["mst"]
    assert (found.values, found.num_failed, found.num_undefined) == ((0.5,), 1, 1)
    assert not found.is_complete


def test_the_last_record_of_a_cell_counts() -> None:
    results = read_records([make_record(failure="died"), make_record(f1=0.4)])
    assert [result.metrics for result in results] == [{"f1": 0.4}]


def test_two_settings_under_one_label_are_named_by_their_expressions() -> None:
    records = [make_record(expression="mst(a=1)", f1=0.1), make_record(expression="mst(a=2)", f1=0.9)]
    assert [result.method for result in read_records(records)] == ["mst(a=1)", "mst(a=2)"]


def test_other_packages_are_named_and_nonfinite_scores_undefined() -> None:
    (result,) = read_records([make_record(peer="smartnoise", f1=math.nan, auc=0.5)])
    assert (result.method, dict(result.metrics)) == ("mst (smartnoise)", {"auc": 0.5})


@pytest.mark.parametrize("change", [{"status": "running"}, {"table": None}])
def test_a_malformed_record_is_refused_with_its_number(change: dict[str, object]) -> None:
    with pytest.raises(ConfigError, match="Record 2"):
        read_records([make_record(f1=0.5), {**make_record(f1=0.5), **change}])


def test_differences_have_the_standard_error_of_both_means() -> None:
    found = difference(summarise([1.0, 3.0]), summarise([0.0, 4.0]))
    assert found is not None
    assert found[0] == 0.0
    assert found[1] == pytest.approx(math.sqrt(1 + 4))


def test_wins_need_two_standard_errors_or_a_failed_rival() -> None:
    near, far = summarise([0.50, 0.54]), summarise([0.60, 0.64])
    assert beats(far, near, higher_is_better=True)
    assert not beats(far, near, higher_is_better=False)
    assert beats(near, far, higher_is_better=False)
    assert not beats(summarise([0.9]), summarise([0.1]), higher_is_better=True), "a single seed separates nothing"
    assert beats(summarise([0.1]), summarise([], num_failed=2), higher_is_better=True)
    grid: dict[Block, dict[str, Summary]] = {("car", e): {"a": far, "b": near} for e in (1.0, 3.0)}
    wins = count_wins(grid, higher_is_better=True)
    assert (wins["a", "b"].wins, wins["b", "a"].losses, wins["a", "b"].ties) == (2, 2, 0)


def test_a_method_with_a_failed_cell_cannot_win() -> None:
    block = {"a": summarise([0.9], num_failed=1), "b": summarise([0.5]), "c": summarise([0.4])}
    winner = find_winners({("car", 1.0): block}, higher_is_better=True)["car", 1.0]
    assert (winner.method, winner.is_clear) == ("b", False)


def test_failed_cells_rank_last_and_ties_share_ranks() -> None:
    block = {
        "a": summarise([0.9], num_failed=1),
        "b": summarise([0.5]),
        "c": summarise([0.5]),
        "d": summarise([0.1]),
        "e": summarise([], num_failed=2),
    }
    assert block_ranks(block, list("abcde"), higher_is_better=True) == [4.5, 1.5, 1.5, 3.0, 4.5]
    assert block_ranks(block, list("bcd"), higher_is_better=False) == [2.5, 2.5, 1.0]


def test_mean_ranks_by_hand_without_real_data() -> None:
    def block(*scores: float) -> dict[str, Summary]:
        return {name: summarise([score]) for name, score in zip("abc", scores, strict=True)}

    grid: dict[Block, dict[str, Summary]] = {
        ("x", 1.0): block(0.9, 0.5, 0.1),
        ("x", 3.0): block(0.9, 0.1, 0.5),
        ("y", 1.0): block(0.5, 0.9, 0.1),
        ("y", None): {"real data": summarise([1.0])},
    }
    ranking = rank_methods(grid, higher_is_better=True)
    assert ranking is not None
    assert ranking.mean_ranks == pytest.approx({"a": 4 / 3, "b": 2.0, "c": 8 / 3})
    assert ranking.num_blocks == 3
    assert ranking.statistic == pytest.approx(stats.friedmanchisquare([1, 1, 2], [2, 3, 1], [3, 2, 3]).statistic)


def test_a_method_that_ran_in_few_blocks_is_left_out_and_named() -> None:
    grid: dict[Block, dict[str, Summary]] = {
        ("x", float(e)): {"a": summarise([0.9]), "b": summarise([0.5]), "c": summarise([0.4])} for e in range(1, 5)
    }
    grid["x", 1.0]["rare"] = summarise([1.0])
    ranking = rank_methods(grid, higher_is_better=True)
    assert ranking is not None
    assert (ranking.left_out, ranking.num_blocks) == (("rare",), 4)


def test_friedman_agrees_with_scipy_and_survives_ties() -> None:
    ranks = np.array([np.random.default_rng(seed).permutation(5) + 1.0 for seed in range(12)])
    wanted = stats.friedmanchisquare(*ranks.T)
    assert friedman_test(ranks) == pytest.approx((wanted.statistic, wanted.pvalue))
    assert friedman_test(np.full((4, 3), 2.0)) == (0.0, 1.0)


@pytest.mark.parametrize(
    ("num_methods", "quantile"),
    [(2, 1.960), (3, 2.343), (4, 2.569), (5, 2.728), (6, 2.850), (7, 2.949), (8, 3.031), (9, 3.102), (10, 3.164)],
)
def test_critical_values_of_demsar_table_5a(num_methods: int, quantile: float) -> None:
    """Demsar (2006), Table 5 (a), the row of alpha 0.05; it is printed with an error of up to 0.001."""
    scale = math.sqrt(num_methods * (num_methods + 1) / (6 * 30))
    assert critical_difference(num_methods, 30) / scale == pytest.approx(quantile, abs=0.0015)


def test_the_example_of_demsar() -> None:
    """Demsar (2006), section 3.2.2: four methods on fourteen data sets have the critical difference 1.25."""
    assert critical_difference(4, 14) == pytest.approx(1.25, abs=0.005)
    assert critical_difference(4, 14, alpha=0.10) == pytest.approx(1.12, abs=0.005)


def test_the_front_keeps_what_nothing_beats_in_both() -> None:
    points = {"fast": (1.0, 0.2), "slow": (9.0, 0.9), "worse": (9.5, 0.9), "middle": (5.0, 0.5), "bad": (6.0, 0.4)}
    assert pareto_front(points, higher_is_better=True) == ["fast", "middle", "slow"]
    assert pareto_front(points, higher_is_better=False) == ["fast"]
    assert pareto_front({"a": (1.0, 0.5), "b": (1.0, 0.5)}, higher_is_better=True) == ["a", "b"]


def test_the_number_of_seeds_is_a_range_where_it_varies() -> None:
    assert count_seeds({("x", 1.0): {"a": summarise([0.1, 0.2])}}) == "2 seeds"
    assert count_seeds({("x", 1.0): {"a": summarise([0.1]), "b": summarise([], num_failed=3)}}) == "1 seed"
