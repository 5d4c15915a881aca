"""The list of measured marginals as people read it: re-measurements combined, long lists cut, odd names unbroken."""

import numpy as np
import pytest

from understudy.certificate.markdown import MAX_LINES, combine_measurements, measured_section
from understudy.privacy.accounting.marginal_noise import MeasuredMarginal


def test_combined_noise_is_that_of_the_weighted_average() -> None:
    """By simulation: 100,000 averages of two draws, whose standard deviation is known to 0.2%, 4 sigma to 1%."""
    rng = np.random.default_rng(0)
    draws = [rng.normal(0, stddev, 100_000) for stddev in (3.0, 5.0)]
    average = np.average(draws, axis=0, weights=[1 / 9, 1 / 25])
    (one,) = combine_measurements([MeasuredMarginal("m", ("a",), 4, 3.0), MeasuredMarginal("n", ("a",), 4, 5.0)])
    assert one.times == 2
    assert average.std() == pytest.approx(one.stddev, rel=0.01)


def test_different_cells_and_partitions_are_not_combined() -> None:
    listed = [
        MeasuredMarginal("m", ("a",), 4, 3.0),
        MeasuredMarginal("m", ("a",), 3, 3.0),
        MeasuredMarginal("m", ("a",), 4, 3.0, "train"),
    ]
    assert [each.times for each in combine_measurements(listed)] == [1, 1, 1]


def test_without_noise_the_combined_noise_is_zero() -> None:
    (one,) = combine_measurements([MeasuredMarginal("m", ("a",), 4, 0.0)] * 2)
    assert one.stddev == 0.0


def test_a_long_list_is_cut() -> None:
    listed = [MeasuredMarginal("m", (f"c{number}",), 4, 3.0) for number in range(MAX_LINES + 3)]
    *_, table, more = measured_section(listed, 1000)
    assert len(table.splitlines()) == MAX_LINES + 2
    assert more == "And 3 more in certificate.json."
    assert len(measured_section(listed[:MAX_LINES], 1000)) == 3


def test_percentages_need_a_public_number_of_rows() -> None:
    listed = [MeasuredMarginal("m", ("a|b", "c"), 4, 3.0)]
    assert "| `a\\|b`, `c` | 4 | 1 | 3 | 0.3 |" in measured_section(listed, 1000)[2]
    assert measured_section(listed, None)[2].splitlines()[-1] == "| `a\\|b`, `c` | 4 | 1 | 3 |"
    assert measured_section([], 1000) == []
