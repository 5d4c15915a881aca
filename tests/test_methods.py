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
from understudy.synthesizers.boosted import Boosted
from understudy.synthesizers.dpctgan import DPCTGAN
from understudy.synthesizers.dpgan import DPGAN
from understudy.synthesizers.drs import DRS
from understudy.synthesizers.independent import Independent
from understudy.synthesizers.mst import MST
from understudy.synthesizers.selected import Selected

TYPED = DPGAN(features="typed")


WRAPPERS = ("boosted", "drs", "selected", "quail")
"""Methods around a method, which comes first and has no default."""


@pytest.mark.parametrize("name", [name for name in SYNTHESIZERS if name not in WRAPPERS])
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
    fields = dataclasses.fields(synthesizer_class(name))
    assert [field.name for field in fields if not field.kw_only] == (["inner"] if name in WRAPPERS else [])
    assert all(field.default is not dataclasses.MISSING for field in fields if field.kw_only)


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
        ("boosted(dpgan)", Boosted(DPGAN())),
        ("boosted(dpgan(steps=2000), rounds=200)", Boosted(DPGAN(steps=2000), rounds=200)),
        ("boosted(inner=dpgan, queries=[[a, b]])", Boosted(DPGAN(), queries=(("a", "b"),))),
        ("selected(dpctgan, task=accuracy)", Selected(DPCTGAN(), task="accuracy")),
        ("selected(dpgan(features=typed), task=squared_loss, k=2)", Selected(TYPED, task="squared_loss", k=2)),
        ("drs(dpgan)", DRS(DPGAN())),
        ("drs(dpgan(features=typed), proposals=500)", DRS(TYPED, proposals=500)),
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
        ("boosted", "put around another method. Name that one first, as in boosted(dpgan)"),
        ("drs()", "as in drs(dpgan)"),
        ("selected(mst)", "mst has none"),
        ("boosted(inner=5)", "inner must be a method, found 5"),
        ("boosted(dpgan, dpgan)", "positional arguments"),
        ("boosted(dpgan, round=5)", "Did you mean 'rounds'?"),
        ("drs(dpgan, proposals=0)", "proposals must be a whole number"),
        ("selected(dpgan, clusters=0)", "clusters must be a whole number"),
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
