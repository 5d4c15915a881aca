"""auto: another name of the default method, for every table."""

import pytest

import understudy as us
from tests.builders import raises
from understudy.errors import ConfigError
from understudy.run.plan import synthesizer_of
from understudy.synthesizers import express, read_method

GUARANTEE = us.Guarantee(1.0, 1e-6)


def small_schema(rows: int | None = None) -> us.Schema:
    columns = (
        us.Column(name="a", kind="categorical", categories=("x", "y"), closed=True),
        us.Column(name="b", kind="categorical"),
        us.Column(name="c", kind="integer", bounds=(0, 9)),
    )
    return us.Schema(columns=columns, rows=rows, target="a")


def test_auto_is_adaptive() -> None:
    assert synthesizer_of("auto") == us.Adaptive()
    assert read_method("auto(rounds=3)") == us.Adaptive(rounds=3)
    assert express(read_method("auto")) == "adaptive"


@pytest.mark.parametrize("rows", [None, 500])
def test_its_plan_is_that_of_the_default(rows: int | None) -> None:
    assert us.plan(small_schema(rows), "auto", GUARANTEE) == us.plan(small_schema(rows), "adaptive", GUARANTEE)
    assert us.plan(small_schema(rows), guarantee=GUARANTEE) == us.plan(small_schema(rows), "auto", GUARANTEE)


def test_a_method_must_be_one() -> None:
    with raises(ConfigError, setting="method"):
        synthesizer_of(3)  # type: ignore[arg-type]  # a wrong type
