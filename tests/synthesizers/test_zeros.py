"""Structural zeros under every method: what it draws, what it plans, and what a release keeps."""

import dataclasses
import functools
import warnings

import jax
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import understudy as us
from tests.builders import make_ledger
from tests.contract.test_contract import EXPRESSIONS
from tests.examples import scaled
from tests.joint_tables import count_impossible, is_possible, make_domain
from understudy.models import Model
from understudy.models.generator import GeneratorModel
from understudy.models.protocol import load_model, save_model
from understudy.privacy.accounting.ledger import Plan
from understudy.privacy.rows.rows import PrivateRows
from understudy.schema import Domain, NumericDomain, StructuralZeros
from understudy.synthesizers import SYNTHESIZERS, read_method
from understudy.synthesizers.run import Run

SIZES = {"a": 3, "b": 4, "c": 2, "d": 3}
DOMAIN = dataclasses.replace(
    make_domain(
        SIZES,
        300,
        {
            ("b", "a"): [(0, 0), (1, 0), (2, 1), (3, 1), (3, 2)],
            ("a", "d"): [(0, 2), (2, 0)],
            ("b", "c", "d"): [(1, 0, 0), (1, 1, 1)],
        },
    ),
    target="c",
)
METHODS = [
    pytest.param(name, marks=pytest.mark.slow)
    if name in ("autogan", "bayesgan", "patectgan", "selected", "drs")
    else name
    for name in SYNTHESIZERS
]
NEED_REJECTION = {"gem", "quail"}
"""Methods whose rows may still break a rule: a mixture of products, and labels by a learner that sees one row at a
time. All others never draw an impossible combination of codes."""


def possible_rows(domain: Domain, num_rows: int) -> np.ndarray:
    rng = np.random.default_rng(0)
    drawn = np.stack([rng.integers(size, size=5 * num_rows) for size in domain.sizes], axis=1)
    kept = [row for row in drawn if is_possible(domain.zeros, dict(zip(domain.names, row.tolist(), strict=True)))]
    return np.asarray(kept[:num_rows], dtype=np.int32)


@functools.cache
def fit(method: str, *, zeros: bool = True) -> tuple[Model, Plan]:
    domain = DOMAIN if zeros else dataclasses.replace(DOMAIN, zeros=())
    expression = EXPRESSIONS[method].replace("target=member", "target=c")
    ledger, synthesizer = make_ledger(3.0), read_method(expression)
    plan = synthesizer.plan(domain, ledger.remaining)
    scales: list[NumericDomain | None] = [None] * len(domain.names)
    rows = PrivateRows(possible_rows(DOMAIN, 300), domain, scales=scales)
    return synthesizer.fit(Run(rows, plan, ledger, key=jax.random.key(1))), plan


@pytest.mark.parametrize("method", METHODS)
def test_no_impossible_row_is_drawn(method: str) -> None:
    model, _ = fit(method)
    codes = model.sample(5000, key=jax.random.key(2)).codes
    assert (count_impossible(DOMAIN, codes) == 0) or method in NEED_REJECTION
    assert all(len(np.unique(codes[:, at])) > 1 for at in range(len(DOMAIN.names)))


@pytest.mark.parametrize("method", METHODS)
def test_a_release_keeps_the_zeros(method: str) -> None:
    model, _ = fit(method)
    back = load_model(*save_model(model))
    for allowed in (None, {"b": np.array([False, True, True, False])}):
        rows = [each.sample(500, key=jax.random.key(3), allowed=allowed).codes for each in (model, back)]
        np.testing.assert_array_equal(rows[0], rows[1])
        assert (count_impossible(DOMAIN, rows[0]) == 0) or method in NEED_REJECTION


SAME: list[tuple[int, ...]] = [(0, 0), (1, 1)]
TRIANGLE = make_domain({"a": 2, "b": 2, "c": 2, "d": 3}, 300, {("a", "b"): SAME, ("b", "d"): SAME, ("d", "a"): SAME})
CONTRADICTION = dataclasses.replace(
    TRIANGLE, target="c", zeros=(*TRIANGLE.zeros, StructuralZeros(("d",), np.array([True, True, False])))
)
"""Three columns of two codes of which each two differ."""


def fit_any_zeros(method: str, domain: Domain) -> Model:
    """Of rows that break any rule."""
    rng = np.random.default_rng(0)
    codes = np.stack([rng.integers(size, size=300) for size in domain.sizes], axis=1).astype(np.int32)
    expression = EXPRESSIONS.get(method, method).replace("target=member", "target=c")
    ledger, synthesizer = make_ledger(3.0), read_method(expression)
    plan = synthesizer.plan(domain, ledger.remaining)
    rows = PrivateRows(codes, domain, scales=[None] * len(domain.names))
    return synthesizer.fit(Run(rows, plan, ledger, key=jax.random.key(1)))


@pytest.mark.parametrize("method", METHODS)
def test_contradictory_zeros_fail_no_method(method: str) -> None:
    """It would be too late for an error: the budget is spent."""
    codes = fit_any_zeros(method, CONTRADICTION).sample(500, key=jax.random.key(2)).codes
    assert codes.shape == (500, 4)
    assert (codes < np.array(CONTRADICTION.sizes)).all()


@pytest.mark.parametrize("method", ["independent", "aim", "mst", "mwem", "privbayes", "gem"])
def test_rules_that_an_estimated_list_contradicts_do_not_fail_the_fit(method: str) -> None:
    """Of the cities only "other" is found, which leaves no kind possible; before the list is known, both rules are."""
    kind = {"kind": "categorical", "categories": ["a", "b"], "nullable": False, "closed": True}
    rules = [{"keep": "city <> 'other' OR kind = 'a'"}, {"keep": "kind <> 'a' OR city = 'Rome'"}]
    schema = {"columns": {"city": {"kind": "categorical", "nullable": False}, "kind": kind}, "rules": rules}
    table = pa.table({"city": ["Rome"] * 3, "kind": ["a"] * 3})
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", us.UnderstudyWarning)
        release = us.fit(table, EXPRESSIONS[method], epsilon=0.1, schema=schema, seed=1)
    assert [zeros.columns for zeros in release.codec.domain.zeros] == [("city", "kind")]
    with pytest.raises(us.ConditionError, match="rows satisfied the rules"):
        release.sample(5)


@st.composite
def domains(draw: st.DrawFn) -> Domain:
    """With zeros that contradict each other as often as not."""
    zeros = []
    for _ in range(draw(st.integers(1, 5))):
        columns = tuple(draw(st.lists(st.sampled_from(sorted(SIZES)), min_size=1, max_size=3, unique=True)))
        rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
        possible = rng.random([SIZES[name] for name in columns]) < draw(st.sampled_from([0.1, 0.3, 0.6]))
        possible.flat[rng.integers(possible.size)] = True
        zeros.append(StructuralZeros(columns, possible))
    return dataclasses.replace(DOMAIN, zeros=tuple(zeros))


@pytest.mark.parametrize(
    "method", ["independent", "mst", "aim", "adaptive", "mwem", "privbayes", "quail", "mwem(split_factor=2)"]
)
@given(domain=domains())
@settings(max_examples=scaled(15))
def test_any_zeros_fail_no_method(method: str, domain: Domain) -> None:
    codes = fit_any_zeros(method, domain).sample(50, key=jax.random.key(2)).codes
    assert method == "quail" or count_impossible(domain, codes) == 0


@pytest.mark.parametrize("method", ["adaptive", "privbayes", "mwem", "dpgan"])
def test_zeros_change_no_plan(method: str) -> None:
    assert fit(method)[1] == fit(method, zeros=False)[1]


@pytest.mark.parametrize("method", ["independent", "mwem", "privbayes", "dpgan"])
def test_zeros_bring_the_model_closer_to_the_rows(method: str) -> None:
    """The pair that rules restrict most, in 20,000 rows of each model."""

    def table(codes: np.ndarray) -> np.ndarray:
        return np.bincount(4 * codes[:, 0] + codes[:, 1], minlength=12) / len(codes)

    truth = table(possible_rows(DOMAIN, 300))
    errors = []
    for zeros in (True, False):
        codes = fit(method, zeros=zeros)[0].sample(20_000, key=jax.random.key(2)).codes
        errors.append(np.abs(table(codes) - truth).sum())
    assert errors[0] < errors[1]


def test_numbers_that_are_no_codes_are_not_masked() -> None:
    """A zero on a column whose network feature is a number is left to rejection; the others hold."""
    ledger, method = make_ledger(3.0), read_method(EXPRESSIONS["dpgan"], {"features": "typed"})
    edges = tuple(np.linspace(0, 1, 5).tolist())
    scale = NumericDomain(fine_edges=edges, fine_masses=(0.25,) * 4, first_fine_bin=(0, 1, 2, 3, 4))
    codes = possible_rows(DOMAIN, 300)
    positions = np.where(np.arange(4) == 1, (codes + 0.5) / 4, np.nan)
    domain = dataclasses.replace(DOMAIN, numeric=("b",))
    rows = PrivateRows(codes, domain, positions=lambda: positions, scales=[None, scale, None, None])
    model = method.fit(Run(rows, method.plan(domain, ledger.remaining), ledger, key=jax.random.key(1)))
    assert isinstance(model, GeneratorModel)
    drawn = model.sample(2000, key=jax.random.key(0)).codes
    assert count_impossible(DOMAIN, drawn) > 0
    assert count_impossible(dataclasses.replace(DOMAIN, zeros=DOMAIN.zeros[1:2]), drawn) == 0
