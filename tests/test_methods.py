"""Method expressions: read, written, and refused with a hint. What methods say they can do."""

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.builders import raises
from understudy.errors import ConfigError
from understudy.privacy.accounting.ledger import Budget
from understudy.run.plan import plan_method
from understudy.schema import Domain
from understudy.synthesizers import (
    SYNTHESIZERS,
    HasTrajectory,
    PublicUse,
    Synthesizer,
    describe_methods,
    express,
    name_of,
    read_method,
    read_setting,
    synthesizer_class,
    too_large_for,
)
from understudy.synthesizers.aim import AIM
from understudy.synthesizers.autogan import AutoGAN
from understudy.synthesizers.boosted import Boosted
from understudy.synthesizers.boosted.method import DRS
from understudy.synthesizers.dpgan import DPCTGAN, DPGAN
from understudy.synthesizers.gem import GEM
from understudy.synthesizers.independent import Independent
from understudy.synthesizers.mst import MST
from understudy.synthesizers.mwem import MWEM
from understudy.synthesizers.quail import Quail
from understudy.synthesizers.selected.method import Selected

TYPED = DPGAN(features="typed")
QUAIL = Quail(MST(), target="class", columns=("for", "a-b", "50%", "None", "\\n"))
"""Bare words that mean something in Python, and a literal string of TOML, which knows no escapes."""


CROWDED = Domain(names=("a", "b"), sizes=(20_000_000, 2), num_rows=100)

WRAPPERS = ("boosted", "drs", "selected", "quail")
"""Methods around a method, which comes first and has no default."""


@pytest.mark.parametrize("name", [name for name in SYNTHESIZERS if name not in WRAPPERS])
def test_name_alone_is_the_default(name: str) -> None:
    method = read_method(name)
    assert method == synthesizer_class(name)()
    assert name_of(method) == express(method) == name
    assert dataclasses.is_dataclass(method)
    with pytest.raises(dataclasses.FrozenInstanceError):
        method.anything = 1


@pytest.mark.parametrize("name", SYNTHESIZERS)
def test_every_field_has_a_default_and_is_frozen(name: str) -> None:
    params = synthesizer_class(name).__dataclass_params__  # type: ignore[attr-defined]  # of a frozen dataclass
    assert params.frozen
    fields = dataclasses.fields(synthesizer_class(name))
    assert [field.name for field in fields if not field.kw_only] == (["inner"] if name in WRAPPERS else [])
    assert all(field.default is not dataclasses.MISSING for field in fields if field.kw_only)


@pytest.mark.parametrize(
    ("expression", "method"),
    [
        ("mst(iterations=5)", MST(iterations=5)),
        (" mst ( iterations = 5 , ) ", MST(iterations=5)),
        ("mst(fractions=[1, 2, 3])", MST(fractions=(1, 2, 3))),
        ("mst()", MST()),
        ("mst(\n\titerations\u00a0=5\n)", MST(iterations=5)),
        ("quail(mst, target=class, columns=[for, a-b, 50%, None, '\\n'])", QUAIL),
        ("independent(smoothing=1e-1)", Independent(smoothing=0.1)),
        ('aim(workload=[["a b", c], ["d, (e)", \'f"\']])', AIM(workload=(("a b", "c"), ("d, (e)", 'f"')))),
        ("aim(max_rounds=50)", AIM(max_rounds=50)),
        ("boosted(dpgan)", Boosted(DPGAN())),
        ("boosted(dpgan(steps=2000), rounds=200)", Boosted(DPGAN(steps=2000), rounds=200)),
        ("boosted(inner=dpgan, distinguishers=[[a, b]])", Boosted(DPGAN(), distinguishers=(("a", "b"),))),
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


@given(st.lists(st.lists(st.text(min_size=1), min_size=1, max_size=3, unique=True), min_size=1, max_size=3))
def test_names_survive_being_written(workload: list[list[str]]) -> None:
    """Whatever a column is called."""
    method = AIM(workload=tuple(map(tuple, workload)))
    assert read_method(express(method)) == method


@pytest.mark.parametrize(
    ("expression", "words"),
    [
        ("mts", "There is no method 'mts'. Did you mean 'mst'?"),
        ("MST", "The methods are: adaptive, independent, mst"),
        ("", "The method is empty"),
        ("   ", "The method is empty"),
        ("mst(", "'(' was never closed"),
        ("mst)", "unmatched ')'"),
        ("mst mst", "cannot be read: invalid syntax"),
        ("mst.", "There is no method 'mst.'. Did you mean 'mst'?"),
        ("mst(iterations)", "There is no method 'iterations'"),
        ("mst(iterations=)", "cannot be read: "),
        ("mst(iterations=5 fractions=[1, 2, 3])", "cannot be read: "),
        ("mst(iterations=5, iterations=6)", "iterations is set twice"),
        ("mst(max-rounds=5)", "has no setting 'max-rounds'"),
        ("mst(fractions=(1, 2, 3))", "a value is a number, a string"),
        ("mst(fractions=[1, 2][0])", "a value is a number, a string"),
        ("logistic", "There is no method 'logistic'"),
        ("(mst, mst)", "a method is a name"),
        ("mst(iteration=5)", "has no setting 'iteration'. Did you mean 'iterations'?"),
        ("dpgan(batch_size=64)", "has no setting 'batch_size'. Set sampling_rate, the expected fraction"),
        ("mst(zzz=5)", "Its settings are: fractions"),
        ("mst(mst)", "positional argument"),
        ("mst(iterations=many)", "iterations must be a whole number of at least 1, found many"),
        ("mst(iterations=1.5)", "iterations must be a whole number of at least 1, found 1.5"),
        ("mst(iterations=true)", "iterations must be a whole number of at least 1, found true"),
        ("mst(iterations=0)", "iterations must be a whole number of at least 1, found 0"),
        ("mst(fractions=[1, 2])", "fractions must be a list of 3"),
        ("mst(fractions=[1, 2, x])", "fractions must be a list of 3"),
        ("independent(smoothing=nan)", "smoothing must be a positive number"),
        ("independent(smoothing=mst)", "smoothing must be a positive number"),
        ("aim(workload=5)", "workload must be a list"),
        ("mst(iterations=[1", "'[' was never closed"),
        ("mst(" * 5000, "too many nested parentheses"),
        ("boosted", "wraps another method. Name that method first, as in boosted(dpgan)"),
        ("drs()", "as in drs(dpgan)"),
        ("selected(mst)", "mst has none"),
        ("boosted(inner=5)", "inner must be a method, found 5"),
        ("boosted(dpgan, dpgan)", "positional arguments"),
        ("boosted(dpgan, round=5)", "Did you mean 'rounds'?"),
        ("drs(dpgan, proposals=0)", "proposals must be a whole number"),
        ('mst("', "unterminated string literal"),
    ],
)
def test_refused_with_a_hint(expression: str, words: str) -> None:
    with pytest.raises(ConfigError) as refused:
        read_method(expression)
    assert words in str(refused.value)


@pytest.mark.parametrize("setting", ["steps", "=5", "", " =5"])
def test_setting_needs_name_and_value(setting: str) -> None:
    with raises(ConfigError, setting=setting):
        read_setting(setting)


def test_settings_by_name_have_a_hint_too() -> None:
    with raises(ConfigError, setting="iteration"):
        read_method("mst", {"iteration": 7})


@pytest.mark.parametrize("name", SYNTHESIZERS)
def test_every_class_is_a_synthesizer(name: str) -> None:
    """With capabilities that say what its methods can do."""
    cls = synthesizer_class(name)
    method = cls(DPGAN()) if name in WRAPPERS else cls()
    assert isinstance(method, Synthesizer)
    able = method.capabilities
    assert able.trajectory == isinstance(method, HasTrajectory)
    assert (able.inner is not None) == (name in WRAPPERS)
    assert able.trajectory or not able.critics


def test_capabilities_follow_from_settings_and_from_what_is_inside() -> None:
    assert not GEM().capabilities.critics
    assert DPGAN().capabilities.critics
    public = AutoGAN(encoder="public")
    assert public.capabilities.public is PublicUse.REQUIRED
    for method in (Boosted(public), DRS(public), Selected(public), Quail(public), Quail(Quail(public), target="a")):
        assert method.capabilities.public is PublicUse.REQUIRED
    assert Boosted(GEM()).capabilities.public is PublicUse.NONE
    assert Quail(MST()).capabilities.public is PublicUse.NONE
    assert too_large_for(Quail(MWEM(splits=(("a",),)), target="b"), CROWDED) == ("a",)
    assert too_large_for(DRS(DPGAN()), CROWDED) == ()


@pytest.mark.parametrize("name", [name for name in SYNTHESIZERS if name not in (*WRAPPERS, "cart")])
def test_a_target_moves_no_query_of_a_method_that_does_not_use_it(name: str) -> None:
    """And `us.plan` says so."""
    method = read_method(name)
    domain = Domain(names=("a", "b", "c"), sizes=(2, 3, 4), num_rows=1000)
    plain, named = (method.plan(d, Budget(0.3, 1e-6)) for d in (domain, dataclasses.replace(domain, target="a")))
    if not method.capabilities.target:
        assert plain == named
    noted = plan_method(method, dataclasses.replace(domain, target="a"), Budget(0.3, 1e-6)).notes
    assert any("target" in note.text or "'a'" in note.text for note in noted)


def test_each_method_has_one_line() -> None:
    described = dict(describe_methods())
    assert list(described) == list(SYNTHESIZERS)
    assert all(20 < len(line) < 160 for line in described.values())
