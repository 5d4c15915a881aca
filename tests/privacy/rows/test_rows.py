"""Rows: what private ones show of themselves, how they are arranged by unit, and random partitions of them."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from understudy.privacy.accounting.events import DiscreteGaussian, Gaussian, SubsampledGaussian
from understudy.privacy.accounting.ledger import Guarantee, Ledger, Query
from understudy.privacy.gradients.charges import charge_dpsgd, charge_langevin, charge_votes
from understudy.privacy.gradients.dpsgd import sample_batches
from understudy.privacy.gradients.langevin import Law, Stage
from understudy.privacy.mechanisms.counts import noisy_counts
from understudy.privacy.noise.source import SeededNoise
from understudy.privacy.rows.rows import PrivateRows, PublicRows, arrange_units, number_units, partition_rows
from understudy.schema import Domain

NUM_UNITS = 37
DOMAIN = Domain(names=("a", "b"), sizes=(3, 4), num_rows=100)


def ledger() -> Ledger:
    return Ledger(Guarantee(50.0, 1e-6), noise=SeededNoise(0))


def private_rows() -> PrivateRows:
    codes = np.random.default_rng(0).integers(0, 3, (NUM_UNITS, 2)).astype(np.int32)
    return PrivateRows(codes, DOMAIN, positions=lambda: np.full(codes.shape, 0.123456))


def opaque_objects() -> list[object]:
    """One of every type that stands for private rows outside `privacy/`."""
    rows, query = private_rows(), Query("s", "steps", SubsampledGaussian(0.5, 20.0, 2))
    charged = charge_dpsgd(rows, query, ledger())
    law = Law(1.0, 1.0, 1.0, momentum=False)
    updates = charge_langevin(rows, [query], ledger(), schedule=[Stage(2, 1e-3)], law=law, updates_each=1)
    votes = charge_votes(rows, Query("v", "votes", Gaussian(20.0)), ledger(), num_teachers=4, num_queries=3)
    batches = sample_batches(charged, jax.random.split(jax.random.key(0), 2), end=2, batch_size=50)
    return [rows, charged, updates, votes, batches, charged._units, votes._partitions]


def test_public_attributes_hold_no_rows_and_no_sizes() -> None:
    """Of every opaque object: scalars that were charged or declared, public facts, functions; the number of units in
    the table is neither in an attribute nor in the text of one."""
    for opaque in opaque_objects():
        for name in (name for name in dir(opaque) if not name.startswith("_")):
            value = getattr(opaque, name)
            assert not isinstance(value, np.ndarray | jax.Array) or value.ndim == 0, (opaque, name)
            assert value != NUM_UNITS, (opaque, name)
        assert str(NUM_UNITS) not in repr(opaque)
        assert not hasattr(opaque, "__len__")


def test_the_public_number_of_rows_is_the_declared_one() -> None:
    rows = private_rows()
    assert rows.public_num_rows == 100
    noisy_counts(rows, [("a",)], Query("c", "c", DiscreteGaussian(5.0)), ledger())
    assert rows.measured_domain.num_rows == rows.public_num_rows


def test_rows_of_a_unit_are_arranged_together() -> None:
    codes = np.array([[0, 1], [2, 2], [1, 0]], np.int32)
    rows = PrivateRows(codes, DOMAIN, max_rows_per_unit=2, units=np.array([8, 7, 8]))
    units = arrange_units(rows, codes)
    assert np.asarray(units._rows).tolist() == [[[2, 2], [0, 0]], [[0, 1], [1, 0]]]
    assert np.asarray(units._present).tolist() == [[True, False], [True, True]]


@pytest.mark.parametrize("slots", [1, 2])
def test_an_empty_table_has_the_shape_of_one_absent_unit(slots: int) -> None:
    codes = np.zeros((0, 2), np.int32)
    units = arrange_units(PrivateRows(codes, DOMAIN, max_rows_per_unit=slots, units=np.zeros(0)), codes)
    assert units._rows.shape == (1, slots, 2)
    assert not units._present.any()


def test_a_unit_is_in_one_partition_with_all_its_rows() -> None:
    """And about the wanted fraction of units is held out: within 5 standard deviations (false alarms: 6e-7)."""
    numbers = np.repeat(np.arange(2000), 2)
    rows = PrivateRows(numbers[:, None].astype(np.int32), DOMAIN, max_rows_per_unit=2, units=numbers)
    book = Ledger(Guarantee(1.0, 1e-6), noise=SeededNoise(3), max_rows_per_unit=2)
    kept, held = partition_rows(rows, 0.25, book, ("kept", "held"))
    marks = [set(part._codes[:, 0].tolist()) for part in (kept, held)]
    assert not marks[0] & marks[1]
    assert len(kept._codes) + len(held._codes) == 4000
    assert abs(len(marks[1]) - 500) < 5 * np.sqrt(2000 * 0.25 * 0.75)
    assert (kept.domain.num_rows, held.domain.num_rows) == (75, 25)
    assert book.queries == ()


def test_public_rows_are_arranged_one_by_one() -> None:
    class Doubled:
        def encode(self, codes: np.ndarray, positions: np.ndarray, key: jax.Array) -> np.ndarray:
            return codes * 2.0

    public = PublicRows(np.array([[1, 2], [0, 1]], np.int32), np.zeros((2, 2)))
    assert jnp.array_equal(public.arrange(None, key=jax.random.key(0)).rows[:, 0], public.codes)
    assert jnp.array_equal(public.arrange(Doubled(), key=jax.random.key(0)).rows[:, 0], 2 * public.codes)
    assert public.only([1]).codes.tolist() == [[2], [1]]


@given(st.lists(st.integers(0, 5), max_size=6))
def test_units_are_numbered_in_the_order_of_their_ids(ids: list[int]) -> None:
    """As by sorting them, also where each row is a unit of its own and nothing is sorted."""
    for unit_of_row in (np.asarray(ids, np.int64), np.arange(len(ids))):
        numbers, index = np.unique(unit_of_row, return_inverse=True)
        num_units, found = number_units(unit_of_row)
        assert num_units == len(numbers)
        np.testing.assert_array_equal(found, index)
