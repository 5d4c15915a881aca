"""The public shape of an encoded table."""

import dataclasses

import pytest

from understudy.errors import SchemaError
from understudy.schema import Domain


def test_domain_shapes():
    domain = Domain(names=("a", "b", "c"), sizes=(2, 3, 2**40), num_rows=10, target="b")
    assert domain.shape(("c", "a")) == (2**40, 2)
    assert domain.size(("c", "c")) == 2**80
    assert domain.size(()) == 1
    assert domain.index("c") == 2
    assert domain.one_way == (("a",), ("b",), ("c",))
    assert dataclasses.replace(domain, num_rows=5).index("b") == 1
    with pytest.raises(SchemaError, match="no column 'd'"):
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
