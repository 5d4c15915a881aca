"""Which truth values a condition can have, by codes."""

import datetime as dt
import itertools
from collections.abc import Mapping

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.examples import scaled
from understudy.errors import ConditionError
from understudy.rules.conditions import truth
from understudy.rules.outcomes import CodeValues, Outcomes, outcomes

BINS = CodeValues.bins([0, 5, 10], [4, 9, 30], null=True)
COLUMNS = {
    "x": BINS,
    "y": CodeValues.bins([-10, 0, 7, 7], [-1, 6, 7, 50], null=True),
    "c": CodeValues.categories(["a", "b", None]),
    "n": CodeValues.categories([1, 6, 20, None]),
}
ATOMS = st.sampled_from(
    [
        *("x < 5", "x <= 4", "x = 7", "x <> 7", "y = 7", "y IN (7, 8)", "y NOT IN (7, 8, 3)", "x BETWEEN 5 AND 9"),
        *(
            "x NOT BETWEEN 2 AND 12",
            "x IS NULL",
            "y IS NOT NULL",
            "x >= y",
            "x = y",
            "x <> y",
            "x - y > 3",
            "x + 3 < y",
        ),
        *(
            "x * y > 20",
            "-x < y",
            "x > n",
            "x = n",
            "c = 'a'",
            "c IN ('b', 'z')",
            "c IS NULL",
            "lower(c) = 'b' OR n > 5",
        ),
        *(
            "x % 2 = 0",
            "abs(y) < 5",
            "coalesce(x, 3) > 4",
            "x > x - y",
            "x / 2 > 3",
            "floor(x / 4) = 2",
            "n = 6",
            "1 = 1",
        ),
        *("CASE WHEN c = 'a' THEN x > 5 ELSE y > 5 END", "CAST(x AS VARCHAR) > '3'", "x > 4 * n", "c = 'a' AND NULL"),
        *("x IS DISTINCT FROM y", "x > 3000000000 * (y + 3000000000)", "y BETWEEN x AND n", "NULL > x"),
    ]
)
CONDITIONS = st.recursive(
    ATOMS,
    lambda inner: st.one_of(
        st.builds("({}) AND ({})".format, inner, inner),
        st.builds("({}) OR ({})".format, inner, inner),
        st.builds("NOT ({})".format, inner),
    ),
    max_leaves=4,
)


def concrete(values: CodeValues, code: int) -> list[object]:
    """All whole numbers of a bin, or its one value."""
    lower, upper = values.lower[code].as_py(), values.upper[code].as_py()
    return list(range(lower, upper + 1)) if isinstance(lower, int) else [lower]


def occurring(expression: str, columns: tuple[str, ...], values_of: Mapping[str, CodeValues] = COLUMNS) -> Outcomes:
    """Brute force: every value of every bin."""
    codes = {name: [c for c in range(values_of[name].size) for _ in concrete(values_of[name], c)] for name in columns}
    values = {name: [v for c in range(values_of[name].size) for v in concrete(values_of[name], c)] for name in columns}
    grid = np.indices([len(each) for each in values.values()]).reshape(len(columns), -1)
    rows = {
        name: pa.array(values[name], values_of[name].lower.type).take(pa.array(index))
        for name, index in zip(columns, grid, strict=True)
    }
    is_true, is_false = truth(pa.table(rows), expression)
    cells = tuple(np.array(codes[name])[index] for name, index in zip(columns, grid, strict=True))
    masks = []
    for met in (is_true, is_false, ~is_true & ~is_false):
        mask = np.zeros([values_of[name].size for name in columns], dtype=bool)
        np.logical_or.at(mask, cells, met)
        masks.append(mask)
    return Outcomes(columns, *masks)


@given(CONDITIONS)
@settings(max_examples=scaled(60))
def test_what_occurs_is_found(expression: str) -> None:
    found = outcomes(expression, COLUMNS, 10_000)
    assert found is not None
    if not found.columns:
        return
    for mask, expected in zip(found[1:], occurring(expression, found.columns)[1:], strict=True):
        assert mask.shape == expected.shape
        assert not (expected & ~mask).any(), expression
    if all(COLUMNS[name].exact for name in found.columns):
        assert all(map(np.array_equal, found[1:], occurring(expression, found.columns)[1:]))


EXACT = [
    *("x < 5", "x <= 4", "x = 7", "x <> 7", "y = 7", "y <> 7", "y IN (7, 8)", "x BETWEEN 5 AND 9", "x IS NULL"),
    *("y IS NOT NULL", "x >= y", "x = y", "x <> y", "x - y > 3", "x + 3 < y", "x * y > 20", "-x < y", "x > n", "x = n"),
    *(
        "x / 2 > 3",
        "floor(x / 4) = 2",
        "x NOT BETWEEN 2 AND 12",
        "c = 'a' AND x < 5",
        "c = 'b' OR x >= 10",
        "x > 4 * n",
    ),
]


@pytest.mark.parametrize("expression", EXACT)
def test_comparisons_of_bins_are_exact(expression: str) -> None:
    found = outcomes(expression, COLUMNS, 10_000)
    assert found is not None
    for mask, expected in zip(found[1:], occurring(expression, found.columns)[1:], strict=True):
        assert np.array_equal(mask, expected)


def test_other_conditions_can_have_any_outcome() -> None:
    found = outcomes("x % 2 = 0", COLUMNS, 100)
    assert found is not None
    assert all(mask.all() for mask in found[1:])


@pytest.mark.parametrize(
    "expression",
    [
        "z * (4 - z) > 2",
        "z - z > 1",
        "CAST(w AS VARCHAR) > '2'",
        "abs(z) < 2",
        "z % 3 = 1",
        "1 - z * z > 0",
        "TRY(abs(z)) < 2",
    ],
)
def test_both_ends_of_a_bin_may_differ_from_its_inside(expression: str) -> None:
    columns = {"z": CodeValues.bins([-5, 0], [5, 4]), "w": CodeValues.bins([1], [10])}
    found = outcomes(expression, columns, 100)
    assert found is not None
    for mask, expected in zip(found[1:], occurring(expression, found.columns, columns)[1:], strict=True):
        assert not (expected & ~mask).any()


def test_too_many_cells_are_not_looked_at() -> None:
    assert outcomes("x > y", COLUMNS, 19) is None
    assert outcomes("x > y", COLUMNS, 20) is not None


def test_bins_of_dates_and_times() -> None:
    days = [dt.date(2020, month, 1) for month in (1, 2, 3, 4)]
    start = CodeValues.bins(pa.array(days[:3]), pa.array([day - dt.timedelta(days=1) for day in days[1:]]))
    end = CodeValues.bins(np.array(days[:3], "datetime64[us]"), np.array(days[1:], "datetime64[us]"))
    columns = {"a": start, "b": end}
    found = outcomes("b < a", columns, 100)
    assert found is not None
    assert found.columns == ("b", "a")
    for i, j in itertools.product(range(3), range(3)):
        assert found.can_be_true[i, j] == (days[i] < days[j + 1] - dt.timedelta(days=1))
        assert found.can_be_false[i, j] == (days[i + 1] >= days[j])
    whole = outcomes("a >= '2020-02-10'", columns, 100)
    assert whole is not None
    assert whole.can_be_true.tolist() == [False, True, True]
    assert whole.can_be_false.tolist() == [True, True, False]
    later = outcomes("b >= a + INTERVAL 1 MONTH", columns, 100)
    assert later is not None
    assert later.can_be_true.tolist() == [[True, False, False], [True, True, False], [True, True, True]]


def test_a_corner_that_fails_proves_nothing() -> None:
    big = CodeValues.bins([-(2**62), 0], [2**62, 1])
    found = outcomes("big * 4 > 0", {"big": big}, 10)
    assert found is not None
    assert found.can_be_true.tolist() == [True, True]
    assert found.can_be_false.tolist() == [True, True]
    assert found.can_be_null.tolist() == [True, False]


def test_conditions_of_rules_are_checked() -> None:
    with pytest.raises(ConditionError):
        outcomes("now() > x", COLUMNS, 10)
