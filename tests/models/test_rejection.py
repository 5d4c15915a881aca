"""Rejection sampling: the rows that are kept, how many are proposed, and when it gives up."""

import jax
import numpy as np
import pytest
from jaxtyping import PRNGKeyArray
from scipy import stats

from understudy.errors import ConditionError
from understudy.models.protocol import Sample
from understudy.models.rejection import DRAWS_PER_ROW, MIN_DRAWS, propose_until, sample_allowed

KEY = jax.random.key(0)
LAW = np.asarray([0.5, 0.3, 0.15, 0.05])


def draw(num_rows: int, key: PRNGKeyArray) -> Sample:
    generator = np.random.default_rng(np.asarray(jax.random.key_data(key)))
    codes = generator.choice(4, (num_rows, 1), p=LAW).astype(np.int32)
    return Sample(codes, codes / 4)


class Proposals:
    """Every `one_in`-th row is accepted; remembers how many were asked for."""

    def __init__(self, one_in: int) -> None:
        self.one_in, self.sizes, self.keys = one_in, list[int](), set[bytes]()

    def __call__(self, size: int, key: PRNGKeyArray) -> tuple[int, int]:
        count = (sum(self.sizes) + size) // self.one_in - sum(self.sizes) // self.one_in
        self.sizes.append(size)
        self.keys.add(np.asarray(jax.random.key_data(key)).tobytes())
        return count, count


def test_rows_follow_the_law_given_the_condition() -> None:
    allowed = {"a": np.asarray([False, True, True, True])}
    sample = sample_allowed(draw, ("a",), allowed, 20_000, key=KEY, batch_size=3000)
    assert sample.positions is not None
    np.testing.assert_array_equal(sample.positions, sample.codes / 4)
    counts = np.bincount(sample.codes[:, 0], minlength=4)
    assert counts[0] == 0
    assert counts.sum() == 20_000
    assert stats.chisquare(counts[1:], 20_000 * LAW[1:] / LAW[1:].sum()).pvalue > 1e-3
    assert stats.chisquare(counts[1:], 20_000 * np.asarray([0.6, 0.33, 0.07])).pvalue < 1e-3


def test_batches_grow_to_what_is_still_expected_to_be_needed() -> None:
    proposals = Proposals(one_in=10)
    assert sum(propose_until(5000, proposals, key=KEY)) >= 5000
    assert proposals.sizes == [5000, 54_000]  # 1.2 times the 4,500 rows that lack, ten proposals for each
    assert len(proposals.keys) == 2


def test_a_fixed_size_is_kept() -> None:
    proposals = Proposals(one_in=4)
    propose_until(500, proposals, key=KEY, batch_size=700)
    assert proposals.sizes == [700, 700, 700]
    assert len(proposals.keys) == 3


@pytest.mark.parametrize("batch_size", [None, 8192])
def test_a_condition_that_nothing_meets_is_given_up_early(batch_size: int | None) -> None:
    proposals = Proposals(one_in=10**12)
    with pytest.raises(ConditionError, match=r"Only 0 of 1000 rows met the condition in [\d,]+ draws\. Loosen the"):
        propose_until(1000, proposals, key=KEY, batch_size=batch_size)
    assert MIN_DRAWS <= sum(proposals.sizes) < MIN_DRAWS + 1_000_000


def test_a_rare_condition_is_met_within_the_limit_and_refused_beyond() -> None:
    sum_of = sum(propose_until(100, Proposals(one_in=DRAWS_PER_ROW - 100), key=KEY, batch_size=8192))
    assert sum_of >= 100
    proposals = Proposals(one_in=DRAWS_PER_ROW + 100)
    with pytest.raises(ConditionError, match=r"Only 95 of 100 rows .* Ask for fewer rows, or loosen the"):
        propose_until(100, proposals, key=KEY, batch_size=8192)
    assert sum(proposals.sizes) == DRAWS_PER_ROW * 100


def test_a_column_without_a_code_is_refused_before_any_draw() -> None:
    def never(num_rows: int, key: PRNGKeyArray) -> Sample:
        raise AssertionError

    with pytest.raises(ConditionError):
        sample_allowed(never, ("a",), {"a": np.zeros(4, bool)}, 1, key=KEY, batch_size=10)
