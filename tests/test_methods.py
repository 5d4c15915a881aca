"""Method expressions: read, written, and refused with a hint."""

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from understudy.errors import ConfigError
from understudy.synthesizers import (
    SYNTHESIZERS,
    describe_methods,
    express,
    name_of,
    read_method,
    read_setting,
    synthesizer_class,
)
from understudy.synthesizers.aim import AIM
from understudy.synthesizers.independent import Independent
from understudy.synthesizers.mst import MST


@pytest.mark.parametrize("name", SYNTHESIZERS)
def test_name_alone_is_the_default(name: str) -> None:
    method = read_method(name)
    assert method == synthesizer_class(name)()
    assert name_of(method) == express(method) == name
    assert dataclasses.is_dataclass(method)
    with pytest.raises(dataclasses.FrozenInstanceError):
        method.anything = 1  # type: ignore[union-attr]


@pytest.mark.parametrize("name", SYNTHESIZERS)
def test_every_field_has_a_default_and_is_frozen(name: str) -> None:
    params = synthesizer_class(name).__dataclass_params__  # type: ignore[attr-defined]
    assert params.frozen
    assert all(field.kw_only for field in dataclasses.fields(synthesizer_class(name)))


@pytest.mark.parametrize(
    ("expression", "method"),
    [
        ("mst(iterations=5)", MST(iterations=5)),
        (" mst ( iterations = 5 , ) ", MST(iterations=5)),
        ("mst(shares=[1, 2, 3])", MST(shares=(1, 2, 3))),
        ("mst()", MST()),
        ("independent(smoothing=1e-1)", Independent(smoothing=0.1)),
        ('aim(workload=[["a b", c], ["d, (e)", \'f"\']])', AIM(workload=(("a b", "c"), ("d, (e)", 'f"')))),
        ("aim(max_rounds=50)", AIM(max_rounds=50)),
    ],
)
def test_expressions_are_read(expression: str, method: object) -> None:
    assert read_method(expression) == method
    assert read_method(express(method)) == method


def test_settings_speak_to_the_outermost() -> None:
    assert read_method("mst(iterations=5)", {"iterations": 7}) == MST(iterations=7)
    assert read_setting("steps=2000") == ("steps", 2000)
    assert read_setting(" x = [1, 2] ") == ("x", (1, 2))
    assert read_setting("column=a bare word") == ("column", "a bare word")
    assert read_setting('column="a=b"') == ("column", "a=b")


@given(st.floats(min_value=1e-300, max_value=1e300), st.integers(1, 10**12))
def test_numbers_survive_being_written(smoothing: float, iterations: int) -> None:
    for method in (Independent(smoothing=smoothing), MST(iterations=iterations)):
        assert read_method(express(method)) == method


@given(st.lists(st.lists(st.text(min_size=1), min_size=1, max_size=3), min_size=1, max_size=3))
def test_names_survive_being_written(workload: list[list[str]]) -> None:
    """Whatever a column is called."""
    method = AIM(workload=tuple(map(tuple, workload)))
    assert read_method(express(method)) == method


@pytest.mark.parametrize(
    ("expression", "words"),
    [
        ("mts", "There is no method 'mts'. Did you mean 'mst'?"),
        ("MST", "The methods are: independent, mst"),
        ("", "The method is empty"),
        ("   ", "The method is empty"),
        ("mst(", "lacks a closing parenthesis"),
        ("mst)", "goes on after its end"),
        ("mst mst", "goes on after its end"),
        ("mst(iterations)", "There is no method 'iterations'"),
        ("mst(iterations=)", "a setting without a value"),
        ("mst(iteration=5)", "has no setting 'iteration'. Did you mean 'iterations'?"),
        ("mst(zzz=5)", "Its settings are: shares"),
        ("mst(mst)", "positional argument"),
        ("mst(iterations=many)", "iterations must be a whole number, found many"),
        ("mst(iterations=1.5)", "iterations must be a whole number, found 1.5"),
        ("mst(iterations=true)", "iterations must be a whole number, found true"),
        ("mst(iterations=0)", "iterations must be at least 1"),
        ("mst(shares=[1, 2])", "shares must be a list of 3"),
        ("mst(shares=[1, 2, x])", "shares must be a list of 3"),
        ("independent(smoothing=nan)", "smoothing must be a positive number"),
        ("independent(smoothing=mst)", "smoothing must be a number"),
        ("aim(workload=5)", "workload must be a list"),
        ("mst(iterations=[1", "closing"),
        ("mst(" * 5000, "nested too deeply"),
        ('mst("', "cannot be read at"),
    ],
)
def test_refused_with_a_hint(expression: str, words: str) -> None:
    with pytest.raises(ConfigError) as refused:
        read_method(expression)
    assert words in str(refused.value)


@pytest.mark.parametrize("setting", ["steps", "=5", "", " =5"])
def test_setting_needs_name_and_value(setting: str) -> None:
    with pytest.raises(ConfigError, match="name=value"):
        read_setting(setting)


def test_each_method_has_one_line() -> None:
    described = dict(describe_methods())
    assert list(described) == list(SYNTHESIZERS)
    assert all(20 < len(line) < 160 for line in described.values())
