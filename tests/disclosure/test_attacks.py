"""What attacks compute, against plain implementations; and that each of them has power."""

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from scipy.spatial.distance import cdist
from scipy.stats import mannwhitneyu

from tests.disclosure.made_tables import draw_people
from understudy.disclosure.attacks import (
    ATTACKS,
    Attacked,
    bin_column,
    count_copies,
    nearest_distances,
    project,
)
from understudy.evaluation.table import EncodedTable, Layout


def encode(*frames: pd.DataFrame) -> list[EncodedTable]:
    tables = [pa.Table.from_pandas(frame, preserve_index=False) for frame in frames]
    layout = Layout.of(pa.concat_tables(tables))
    return [layout.read(table, "table") for table in tables]


def test_copies_are_counted_as_by_pandas() -> None:
    rows = pd.DataFrame({"a": [1, 1, 2, 3], "b": ["x", "y", "x", None]})
    fake = pd.DataFrame({"a": [1, 1, 3, 3, 9], "b": ["x", "x", None, "x", "y"]})
    encoded = encode(rows, fake)
    counts = fake.value_counts(dropna=False).to_dict()
    expected = [counts.get(tuple(row), 0) for row in rows.itertuples(index=False)]
    expected[3] = 1  # a tuple with NaN does not equal itself
    assert count_copies(*encoded).tolist() == expected


def test_distances_are_those_to_the_nearest_rows() -> None:
    generator = np.random.default_rng(0)
    known, asked = (generator.normal(size=(n, 7)).astype(np.float32) for n in (50, 20))
    expected = np.sort(cdist(asked, known), axis=1)[:, :5]
    np.testing.assert_allclose(nearest_distances(known, asked, 5), expected, rtol=1e-5)
    assert nearest_distances(known, known[:3], 1).tolist() == [[0.0]] * 3  # a copy is at distance zero, exactly


def test_bins_hold_about_as_many_rows_each_and_nulls_their_own() -> None:
    values = np.random.default_rng(0).exponential(size=3200)
    values[:200] = np.nan
    (table,) = encode(pd.DataFrame({"a": values}))
    (codes,), size = bin_column("a", (table,))
    counts = np.bincount(codes, minlength=size)
    assert counts[-1] == 200
    assert (abs(counts[:-1] - 3000 / 16) <= 2).all()


def test_wide_tables_are_projected_and_copies_stay_at_distance_zero() -> None:
    draws = np.random.default_rng(0).integers(0, 2, size=(40, 400))
    (table,) = encode(pd.DataFrame({f"c{i}": column.astype(bool) for i, column in enumerate(draws.T)}))
    first, second = project((table, table.take(np.arange(10))), 0)
    assert first.shape == (40, 256)
    np.testing.assert_array_equal(first[:10], second)


@pytest.mark.parametrize("name", ATTACKS)
def test_each_attack_recognises_the_rows_of_a_copy(name: str) -> None:
    members, others, reference = (draw_people(n, seed) for n, seed in ((500, 1), (500, 2), (500, 3)))
    rows, synthetic, known = encode(pd.concat([members, others]), members, reference)
    seen = Attacked(rows, synthetic, known, count_copies(rows, synthetic), seed=0)
    scores = ATTACKS[name](seen)
    assert scores.shape == (1000,)
    assert mannwhitneyu(scores[:500], scores[500:], alternative="greater").pvalue < 1e-6


@pytest.mark.parametrize("name", ATTACKS)
def test_no_attack_recognises_rows_that_were_not_used(name: str) -> None:
    """Two-sided, at a false-alarm rate of 1e-4."""
    members, others, fake, reference = (draw_people(500, seed) for seed in (1, 2, 3, 4))
    rows, synthetic, known = encode(pd.concat([members, others]), fake, reference)
    scores = ATTACKS[name](Attacked(rows, synthetic, known, count_copies(rows, synthetic), seed=0))
    assert mannwhitneyu(scores[:500], scores[500:]).pvalue > 1e-4
