"""From an accuracy to an epsilon: enough, and not more than needed."""

import math

import pytest

import understudy as us
from tests.builders import raises
from understudy.errors import ConfigError
from understudy.planning.accuracy import Accuracy, _epsilon, _index, _smallest_epsilon

SCHEMA = us.Schema(
    columns=tuple(
        us.Column(name=name, kind="categorical", categories=tuple("pqrstuvw"[:size]), nullable=False, closed=True)
        for name, size in {"a": 2, "b": 3, "c": 8, "d": 5}.items()
    ),
    rows=5000,
)


def _noise(epsilon: float, method: str, order: int, delta: float | None = None) -> float:
    expected = us.plan(SCHEMA, method, us.Guarantee(epsilon, delta)).expected
    return next(each.stddev for each in expected if each.min_order <= order <= each.max_order)


@pytest.mark.parametrize(
    ("method", "accuracy", "order", "limit"),
    [
        (method, *form)
        for method in ("independent", "mst", "aim", "privbayes", "mwem", "auto")
        for form in (("1-way 1%", 1, 50.0), ("2-way 0.7 %", 2, 35.0), ("1-way 90 rows", 1, 90.0))
        if (method, form[1]) != ("independent", 2)
    ]
    + [("gem", "2-way 0.7 %", 2, 35.0)],
)
def test_epsilon_is_the_smallest_of_three_digits(method: str, accuracy: str, order: int, limit: float) -> None:
    found = us.guarantee_for(SCHEMA, accuracy, method)
    assert _noise(found.epsilon, method, order) <= limit
    assert _noise(_epsilon(_index(found.epsilon) - 1), method, order) > limit
    assert found.epsilon == float(f"{found.epsilon:.3g}")


def test_delta_is_kept_and_matters() -> None:
    strict = us.guarantee_for(SCHEMA, "1-way 20 rows", "mst", delta=1e-9)
    assert strict.delta == 1e-9
    assert strict.epsilon > us.guarantee_for(SCHEMA, "1-way 20 rows", "mst").epsilon
    assert _noise(strict.epsilon, "mst", 1, 1e-9) <= 20


def test_a_fit_has_the_noise_that_was_asked_for() -> None:
    import pyarrow as pa

    table = pa.table({name: [("pqrstuvw"[number % 2]) for number in range(5000)] for name in "abcd"})
    guarantee = us.guarantee_for(SCHEMA, "2-way 1%", "mst")
    measured = us.fit(table, "mst", guarantee, schema=SCHEMA, seed=0).statement.measurements
    pairs = [each for each in measured if len(each.columns) == 2]
    assert len(pairs) == 3
    assert all(each.stddev <= 50 for each in pairs)


def test_what_cannot_be_reached_says_what_can() -> None:
    with pytest.raises(ConfigError, match=r'aim does not reach "2-way 1e-06%".* at epsilon 100 it expects "2-way'):
        us.guarantee_for(SCHEMA, "2-way 0.000001%", "aim")
    with raises(ConfigError, setting="accuracy"):
        us.guarantee_for(SCHEMA, "2-way 1%", us.Independent())
    with raises(ConfigError, setting="method"):
        us.guarantee_for(SCHEMA, "2-way 1%", "dpgan")


@pytest.mark.parametrize(
    "text", ["", "2way 1%", "2-way", "2-way -1%", "2-way 0 rows", "0-way 1%", "2-way 1", "1% 2-way"]
)
def test_other_forms_are_refused(text: str) -> None:
    with raises(ConfigError, setting="accuracy"):
        Accuracy.parse(text)


def test_indices_are_the_numbers_of_three_digits() -> None:
    for index in range(_index(0.001), _index(100.0) + 1):
        assert _index(_epsilon(index)) == index
        assert _epsilon(index) == float(f"{_epsilon(index):.3g}")
        assert _epsilon(index) < _epsilon(index + 1)
    assert _epsilon(_index(0.12345)) == 0.124
    assert _epsilon(_index(9.999)) == 10.0


@pytest.mark.parametrize("power", [0.3, 1.0, 3.0])
@pytest.mark.parametrize("limit", [1e-9, 0.02, 1.0, 7.0, 1e9])
def test_the_search_against_brute_force(power: float, limit: float) -> None:
    """Noise that falls by a power, with a jump at 2, as of a plan that changes there, and none below 0.01."""

    calls = []

    def noise(epsilon: float) -> float:
        calls.append(epsilon)
        return math.inf if epsilon < 0.01 else epsilon**-power * (0.4 if epsilon >= 2 else 1.0)

    epsilon, found = _smallest_epsilon(noise, limit)
    num_calls = len(calls)
    enough = [_epsilon(index) for index in range(_index(0.001), _index(100.0) + 1) if noise(_epsilon(index)) <= limit]
    assert epsilon == (enough[0] if enough else 100.0)
    assert found == noise(epsilon)
    assert num_calls <= 25
