"""Expected noise: what plans predict is what runs measure with, and what their counts show."""

import itertools
import math

import jax
import numpy as np
import pytest

import understudy as us
from tests.builders import make_guarantee
from understudy.certificate.markdown import combine_measurements
from understudy.marginals.estimation import measure
from understudy.marginals.expected import expected_of_precision, precision_of
from understudy.privacy.accounting.events import ZCDP, DiscreteGaussian, Gaussian
from understudy.privacy.accounting.ledger import Ledger, Plan
from understudy.privacy.accounting.marginal_noise import ExpectedNoise, MeasuredMarginal
from understudy.privacy.noise.source import SeededNoise
from understudy.privacy.rows.rows import PrivateRows
from understudy.schema import Domain
from understudy.synthesizers import SYNTHESIZERS, read_method, synthesizer_class
from understudy.synthesizers.protocol import ExpectsNoise, expected_noise_of
from understudy.synthesizers.run import Run

ABLE = ("adaptive", "independent", "mst", "aim", "privbayes", "mwem", "gem")
DOMAIN = Domain(names=tuple("abcde"), sizes=(2, 3, 4, 8, 6), num_rows=4000, declared_rows=4000)


def _rows(k: int = 1) -> PrivateRows:
    """Dependent columns, all codes common: methods have no reason to leave out or merge anything."""
    rng = np.random.default_rng(0)
    first = rng.integers(0, 24, 4000)
    codes = np.stack([(first + rng.integers(0, 3, 4000)) % size for size in DOMAIN.sizes], axis=1)
    return PrivateRows(codes.astype(np.int32), DOMAIN, max_rows_per_unit=k, units=np.arange(4000) // k)


def _plan_and_measure(method: str, seed: int, k: int = 1) -> tuple[tuple[ExpectedNoise, ...], Ledger, Plan]:
    synthesizer = read_method(method)
    ledger = Ledger(make_guarantee(1.0), noise=SeededNoise(seed), max_rows_per_unit=k)
    plan = synthesizer.plan(DOMAIN, ledger.remaining)
    synthesizer.fit(Run(_rows(k), plan, ledger, key=jax.random.key(seed)))
    return expected_noise_of(synthesizer, DOMAIN, plan, k), ledger, plan


def _typical(measurements: tuple[MeasuredMarginal, ...], order: int) -> float:
    """The noise at the mean precision of all marginals of this order."""
    combined = [each for each in combine_measurements(measurements) if len(each.columns) == order]
    return float(np.mean([each.stddev**-2 for each in combined]) ** -0.5)


@pytest.mark.parametrize("k", [1, 3])
@pytest.mark.parametrize("method", ["independent", "mst", "mwem", "privbayes"])
def test_one_way_noise_is_as_expected(method: str, k: int) -> None:
    expected, ledger, _ = _plan_and_measure(method, 0, k)
    assert expected[0].min_order == 1
    assert _typical(ledger.measurements, 1) == pytest.approx(expected[0].stddev, rel=0.1)


def test_one_way_noise_of_aim_is_that_of_its_first_rounds() -> None:
    """Later selections may measure a column again."""
    expected, ledger, _ = _plan_and_measure("aim", 0)
    first = ledger.measurements[: len(DOMAIN.names)]
    assert [each.columns for each in first] == list(DOMAIN.one_way)
    assert [each.stddev for each in first] == pytest.approx([expected[0].stddev] * len(first))
    rest = ledger.measurements[len(DOMAIN.names) :]
    assert len(rest) <= expected[1].marginals
    assert max(each.stddev for each in rest) <= expected[1].stddev * (1 + 1e-6)
    assert rest[0].stddev == pytest.approx(expected[1].stddev)


@pytest.mark.parametrize("k", [1, 3])
def test_noise_of_gem_is_as_expected(k: int) -> None:
    """All selected marginals have the same noise; a column or a pair may be selected again."""
    expected, ledger, _ = _plan_and_measure("gem(steps=2)", 0, k)
    columns = len(DOMAIN.names)
    first, rest = ledger.measurements[:columns], ledger.measurements[columns:]
    assert [each.columns for each in first] == list(DOMAIN.one_way)
    assert [each.stddev for each in first] == pytest.approx([expected[0].stddev] * columns)
    assert [each.stddev for each in rest] == pytest.approx([expected[1].stddev] * expected[1].marginals)


def test_two_way_noise_is_as_expected() -> None:
    expected, ledger, _ = _plan_and_measure("mst", 0)
    pairs = {frozenset(each.columns) for each in ledger.measurements if len(each.columns) == 2}
    assert len(pairs) == expected[1].marginals
    assert _typical(ledger.measurements, 2) == pytest.approx(expected[1].stddev, rel=0.1)


@pytest.mark.parametrize(("method", "key", "entry"), [("independent", "one_way", 0), ("mst", "two_way", 1)])
def test_expected_noise_is_what_counts_show(method: str, key: str, entry: int) -> None:
    """Noisy minus exact counts of a public table over seeds: 4,000 draws and more, so their standard deviation is known
    to about 1%, and 10% is nine of its standard errors."""
    synthesizer, rows, noise = read_method(method), _rows(), []
    codes = rows._codes
    for seed in range(175):
        ledger = Ledger(make_guarantee(1.0), noise=SeededNoise(seed))
        plan = synthesizer.plan(DOMAIN, ledger.remaining)
        cliques = DOMAIN.one_way if entry == 0 else list(itertools.pairwise(DOMAIN.names))
        for each in measure(rows, cliques, plan[key], ledger):
            columns = tuple(codes[:, DOMAIN.index(name)] for name in each.clique)
            exact = np.zeros(DOMAIN.shape(each.clique))
            np.add.at(exact, columns, 1)
            noise.append((each.noisy_counts - exact).ravel())
    drawn = np.concatenate(noise)
    assert len(drawn) > 4000
    (expected,) = expected_noise_of(synthesizer, DOMAIN, plan, 1)[entry : entry + 1]
    assert drawn.std() == pytest.approx(expected.stddev, rel=0.1)


def test_methods_that_expect_noise_are_these() -> None:
    """Others say nothing, and nothing is found by chance."""
    able = [name for name in SYNTHESIZERS if issubclass(synthesizer_class(name), ExpectsNoise)]
    assert tuple(able) == ABLE
    gan = read_method("dpgan")
    assert expected_noise_of(gan, DOMAIN, Plan(), 1) == ()


@pytest.mark.parametrize(
    "settings",
    [
        "aim",
        "aim(workload=[[a], [b]])",
        "gem",
        "gem(workload=[[a, b]], num_selections=1)",
        "gem(workload=[[a], [b]])",
        "independent",
        "mst",
        "mwem(measure_only=true)",
        "mwem(columns_first=false)",
        "mwem(workload=range)",
        "mwem(split_factor=1)",
        "privbayes",
    ],
)
@pytest.mark.parametrize("columns", [2, 5])
@pytest.mark.parametrize("target", [False, True])
def test_expected_noise_is_within_the_budget(settings: str, columns: int, target: bool) -> None:
    """Whatever the settings: all expected marginals together have no more precision than the plan has."""
    domain = DOMAIN.only(DOMAIN.names[:columns])
    domain = Domain(
        names=domain.names,
        sizes=domain.sizes,
        num_rows=4000,
        declared_rows=4000,
        target=domain.names[-1] if target else None,
    )
    method = read_method(settings)
    plan = method.plan(domain, make_guarantee(1.0).budget(2))
    expected = expected_noise_of(method, domain, plan, 2)
    charged = sum(
        precision_of(query.event, 2) for query in plan if isinstance(query.event, DiscreteGaussian | Gaussian | ZCDP)
    )
    assert math.fsum(each.marginals / each.stddev**2 for each in expected) <= charged * (1 + 1e-9)
    orders = [each.min_order for each in expected]
    assert orders == sorted(orders)
    assert all(1 <= each.min_order <= each.max_order <= columns for each in expected)
    assert expected or "range" in settings


@pytest.mark.parametrize("method", [name for name in ABLE if name != "mwem"])
def test_a_single_column_gets_the_whole_budget(method: str) -> None:
    """About as little noise as one histogram with all of the budget, or as its round where there are several."""
    domain, budget, settings = DOMAIN.only(["c"]), make_guarantee(1.0).budget(), read_method(method)
    (expected, *_) = expected_noise_of(settings, domain, settings.plan(domain, budget), 1)
    (alone,) = expected_noise_of(read_method("independent"), domain, read_method("independent").plan(domain, budget), 1)
    most = 17 if method == "aim" else 1  # a round for the column, and 16 to select
    assert expected.stddev <= alone.stddev * math.sqrt(most) * 1.1


def test_precision_is_divided_as_told() -> None:
    one_way, pairs = expected_of_precision(DOMAIN, 0.01, 0.25, 8)
    assert one_way.marginals / one_way.stddev**2 == pytest.approx(0.0025)
    assert pairs.marginals / pairs.stddev**2 == pytest.approx(0.0075)
    (alone,) = expected_of_precision(DOMAIN.only(["a"]), 0.01, 0.25, 0)
    assert alone.stddev == pytest.approx(10.0)


def test_a_plan_says_what_its_method_expects() -> None:
    schema = us.Schema(
        columns=(us.Column(name="x", kind="boolean"), us.Column(name="y", kind="boolean", nullable=False)), rows=1000
    )
    made = us.plan(schema, "mst", us.Guarantee(1.0))
    assert [(each.min_order, each.marginals) for each in made.expected] == [(1, 2), (2, 1)]
    assert us.plan(schema, "dpgan", us.Guarantee(1.0)).expected == ()
    assert us.plan(schema, "mst", us.Guarantee.not_private()).expected == ()
