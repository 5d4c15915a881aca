"""The public shape of an encoded table."""

import dataclasses

import numpy as np
import pytest

from tests.builders import raises
from understudy.errors import SchemaError
from understudy.schema import Domain, StructuralZeros


def test_domain_shapes():
    domain = Domain(names=("a", "b", "c"), sizes=(2, 3, 2**40), num_rows=10, target="b")
    assert domain.shape(("c", "a")) == (2**40, 2)
    assert domain.size(("c", "c")) == 2**80
    assert domain.size(()) == 1
    assert domain.index("c") == 2
    assert domain.one_way == (("a",), ("b",), ("c",))
    assert dataclasses.replace(domain, num_rows=5).index("b") == 1
    with raises(SchemaError, column="d"):
        domain.index("d")


@pytest.mark.parametrize(
    "facts",
    [
        {"names": ("a", "b"), "sizes": (2,), "num_rows": 1},
        {"names": ("a", "a"), "sizes": (2, 2), "num_rows": 1},
        {"names": ("a",), "sizes": (0,), "num_rows": 1},
        {"names": ("a",), "sizes": (2,), "num_rows": 0},
        {"names": ("a",), "sizes": (2,), "num_rows": 1, "target": "b"},
    ],
)
def test_refused_domains(facts):
    with pytest.raises(SchemaError):
        Domain(**facts)


PAIR = StructuralZeros(("c", "a"), np.array([[True, False], [True, True], [False, True]]))


def test_zeros_stay_with_their_columns():
    domain = Domain(names=("a", "b", "c"), sizes=(2, 2, 3), num_rows=10, max_sizes=(4, 4, 4), zeros=(PAIR,))
    assert domain.only(("a", "c")).zeros == (PAIR,)
    assert domain.only(("a", "b")).zeros == ()
    assert dataclasses.replace(domain, num_rows=5).zeros == (PAIR,)
    assert domain.largest.zeros == domain.merged.zeros == ()
    assert domain == dataclasses.replace(domain, zeros=())
    assert (PAIR.num_impossible, PAIR.possible.flags.writeable) == (2, False)
    same = StructuralZeros(("c", "a"), PAIR.possible.copy())
    assert (same, hash(same)) == (PAIR, hash(PAIR))
    assert StructuralZeros(("c", "a"), ~PAIR.possible) != PAIR


@pytest.mark.parametrize(
    ("columns", "shape"),
    [(("a", "c"), (3, 2)), (("a",), (3,)), (("a", "d"), (2, 3)), (("a", "a"), (2, 2)), (("a",), (2, 2))],
)
def test_refused_zeros(columns, shape):
    with pytest.raises(SchemaError):
        Domain(names=("a", "c"), sizes=(2, 3), num_rows=10, zeros=(StructuralZeros(columns, np.ones(shape)),))


def test_zeros_leave_a_possible_cell():
    StructuralZeros(("a", "c"), np.eye(2, 3))
    with pytest.raises(SchemaError):
        StructuralZeros(("a", "c"), np.zeros((2, 3)))
