"""Two sets of results: matched cells, new failures, cells of one set."""

import pytest

from tests.benchmark.report.records import METRICS, make_record
from understudy.benchmark.report.comparison import compare_results, render_comparison


def test_differences_are_paired_by_seed() -> None:
    first = [make_record(seed=seed, f1=value) for seed, value in enumerate((0.50, 0.70, 0.60))]
    second = [make_record(seed=seed, f1=value) for seed, value in enumerate((0.56, 0.75, 0.67))]
    (found,) = compare_results(first, second, METRICS).differences
    assert found.mean == pytest.approx(0.06)
    assert found.paired.stderr == pytest.approx(0.01 / 3**0.5)
    assert found.is_clear
    assert found.is_better


def test_lower_can_be_better_and_noise_is_no_change() -> None:
    first = [make_record(seed=s, pmse_ratio=v, f1=w) for s, (v, w) in enumerate(((5.0, 0.5), (5.1, 0.6)))]
    second = [make_record(seed=s, pmse_ratio=v, f1=w) for s, (v, w) in enumerate(((9.0, 0.6), (9.2, 0.5)))]
    comparison = compare_results(first, second, METRICS)
    assert [found.metric for found in comparison.clear(better=False)] == ["pmse_ratio"]
    assert comparison.clear(better=True) == []


def test_failures_and_unmatched_cells_are_listed() -> None:
    first = [make_record(seed=0, f1=0.5), make_record(seed=1, failure="time"), make_record(method="aim", f1=0.6)]
    second = [make_record(seed=0, failure="memory"), make_record(seed=1, f1=0.5), make_record(method="gem", f1=0.7)]
    comparison = compare_results(first, second, METRICS)
    assert comparison.matched == 0
    assert [result.seed for result in comparison.new_failures] == [0]
    assert [result.seed for result in comparison.recoveries] == [1]
    assert [result.method for result in comparison.only_first] == ["aim"]
    assert [result.method for result in comparison.only_second] == ["gem"]
    text = render_comparison(comparison, METRICS)
    assert "**New failures**" in text
    assert "memory" in text
    assert "Only in the second set: 1 cell of gem." in text


def test_the_text_counts_and_names_what_changed() -> None:
    first = [make_record(seed=seed, f1=0.5 + seed / 100) for seed in range(3)]
    second = [make_record(seed=seed, f1=0.6 + seed / 90) for seed in range(3)]
    text = render_comparison(compare_results(first, second, METRICS), METRICS)
    assert text.startswith("3 cells done in both sets, 1 mean compared: 1 better and 0 worse")
    assert "| car | mst | 1.00 | F1 | 0.510 |" in text
    single = render_comparison(compare_results(first[:1], second[:1], METRICS), METRICS)
    assert "1 difference with a single seed cannot be separated from noise." in single
