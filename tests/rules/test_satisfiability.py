"""The search for a row that all tables allow, against trying every row."""

import itertools

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.examples import scaled
from understudy.rules.satisfiability import Table, find_row
from understudy.schema import Domain, StructuralZeros

SIZES = {"a": 2, "b": 3, "c": 2, "d": 3, "e": 2}


@st.composite
def tables(draw: st.DrawFn, most: int = 6) -> list[Table]:
    """Mostly impossible cells, so that contradictions are common; each table allows something."""
    found: list[Table] = []
    for _ in range(draw(st.integers(1, most))):
        columns = tuple(draw(st.lists(st.sampled_from(sorted(SIZES)), min_size=1, max_size=3, unique=True)))
        rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
        possible = rng.random([SIZES[name] for name in columns]) < draw(st.sampled_from([0.2, 0.4, 0.6]))
        possible.flat[rng.integers(possible.size)] = True
        found.append((columns, possible))
    return found


def allows(found: list[Table], row: dict[str, int]) -> bool:
    return all(possible[tuple(row[name] for name in columns)] for columns, possible in found)


def some_row(found: list[Table]) -> bool:
    rows = itertools.product(*map(range, SIZES.values()))
    return any(allows(found, dict(zip(SIZES, row, strict=True))) for row in rows)


@settings(max_examples=scaled(300))
@given(tables())
def test_a_row_is_found_exactly_if_there_is_one(found: list[Table]) -> None:
    row = find_row(found)
    assert (row is not None) == some_row(found)
    if row is not None:
        assert set(row) == {name for columns, _ in found for name in columns}
        assert allows(found, row)


@settings(max_examples=scaled(100))
@given(tables(), st.integers(1, 6000))
def test_a_search_that_is_cut_short_claims_nothing_wrong(found: list[Table], effort: int) -> None:
    row = find_row(found, effort)
    assert row is None or allows(found, row)


def all_different(columns: str, size: int) -> list[Table]:
    return [(pair, ~np.eye(size, dtype=bool)) for pair in itertools.combinations(columns, 2)]


def test_columns_that_all_differ_need_as_many_codes() -> None:
    assert find_row(all_different("abcdef", 6)) is not None
    assert find_row(all_different("abcdef", 5)) is None


def test_hard_searches_end() -> None:
    """Eleven columns of ten codes that all differ: no row, but proving it this way would take too long."""
    assert find_row(all_different("abcdefghijk", 10)) is None


@settings(max_examples=scaled(200))
@given(tables())
def test_the_zeros_of_a_domain_leave_a_row_possible(found: list[Table]) -> None:
    """As many of them as can be, in their order."""
    zeros = [StructuralZeros(columns, possible) for columns, possible in found]
    domain = Domain(names=tuple(SIZES), sizes=tuple(SIZES.values()), num_rows=10, zeros=tuple(zeros))
    kept: list[StructuralZeros] = []
    for each in zeros:
        if some_row([(known.columns, known.possible) for known in (*kept, each)]):
            kept.append(each)
    assert domain.zeros == tuple(kept)
