"""What the ends of floating-point noise add to delta: bounded, taken off, and refused where nothing would be left."""

import json
import math
from pathlib import Path

import jax.numpy as jnp
import numpy as np
import pyarrow as pa
import pytest
from scipy import stats

import understudy as us
from tests.builders import raises
from understudy import certificate
from understudy.api import plan
from understudy.cli import run
from understudy.errors import ConfigError
from understudy.notes import Level, Note
from understudy.privacy.accounting import accountants as accounting
from understudy.privacy.accounting import events
from understudy.privacy.accounting.accountants import tail_delta
from understudy.privacy.accounting.events import (
    DiscreteGaussian,
    DiscreteLaplace,
    Event,
    Gaussian,
    Pure,
    Selections,
    SubsampledGaussian,
    normal_escape,
)
from understudy.privacy.accounting.ledger import Guarantee, Ledger, Query
from understudy.privacy.mechanisms.objective import MAX_INPUTS
from understudy.privacy.noise import device as device_noise
from understudy.privacy.noise.source import SeededNoise

FLOATING: tuple[Event, ...] = (SubsampledGaussian(0.1, 30.0, 10), Gaussian(30.0, floating=True), Pure(0.01, 5))
EXACT: tuple[Event, ...] = (DiscreteGaussian(30.0, 2), Gaussian(30.0), Selections(0.01, 5), DiscreteLaplace(0.01, 5))


def test_the_samplers_reach_the_ends_that_are_charged() -> None:
    """Were the noise shorter than NORMAL_END, or a vector longer than is charged, more would have to be taken off."""
    words = jnp.asarray([2**31 - 1, 2**31], jnp.uint32)
    ends = np.asarray(device_noise.normals_of(words, jnp.asarray([2**32 - 1, 0], jnp.uint32)))
    assert ends[0] > events.NORMAL_END
    assert ends[1] < -events.NORMAL_END
    assert ends[0] < events.NORMAL_END + 0.1  # the bound is not far from what it is about
    assert device_noise.MAX_COORDINATES == events.MAX_COORDINATES
    with pytest.raises(ConfigError):
        device_noise.normals(SeededNoise(0).key(), device_noise.MAX_COORDINATES + 1)


def test_an_escape_is_bounded_however_the_shift_is_spread() -> None:
    draw = np.random.default_rng(0)
    for shift in (0.01, 0.3, 1.0, 2.5, 4.0):
        for coordinates in (1, 2, 10, 1000):
            bound = normal_escape(shift, end=6.0, coordinates=coordinates)
            spreads = [np.full(coordinates, 1.0), np.eye(1, coordinates)[0], *draw.random((20, coordinates))]
            for spread in spreads:
                moved = shift * spread / np.linalg.norm(spread)
                exact = float(np.sum(stats.norm.sf(6.0 - moved) - stats.norm.sf(6.0)))
                assert exact <= bound * (1 + 1e-9)
        assert normal_escape(shift, end=6.0, coordinates=1) == pytest.approx(
            stats.norm.sf(6.0 - shift) - stats.norm.sf(6.0), rel=1e-6
        )


@pytest.mark.parametrize("rate", [0.02, 0.3, 0.7, 1.0])
@pytest.mark.parametrize("shift", [0.3, 1.0, 1.8])
def test_a_step_with_ends_costs_what_one_without_does_and_the_tail(rate: float, shift: float) -> None:
    """Oracle: hockey-stick divergences by sums over a fine grid, at every epsilon of either sign, in both directions.

    At epsilon 20 the ideal step has no divergence left, and the cut one has that of its escape: not a tenth less than
    is charged where the unit is in every batch.
    """
    end, step = 3.0, 1e-4
    at = np.arange(-end - 3, end + 3, step) + step / 2

    def density(cut: bool, mean: float) -> np.ndarray:
        inside = np.abs(at - mean) <= end if cut else True
        return np.where(inside, stats.norm.pdf(at, mean), 0.0) * step

    def pair(cut: bool) -> tuple[np.ndarray, np.ndarray]:
        return (1 - rate) * density(cut, 0.0) + rate * density(cut, shift), density(cut, 0.0)

    tail = min(1.0, 2 * rate) * normal_escape(shift, end=end, coordinates=1)
    for direction in (1, -1):
        (first, second), (ideal_first, ideal_second) = pair(True)[::direction], pair(False)[::direction]
        for epsilon in (-20.0, -2.0, -0.5, 0.0, 0.1, 0.5, 1.0, 3.0, 20.0):
            cut = float(np.maximum(first - math.exp(epsilon) * second, 0).sum())
            ideal = float(np.maximum(ideal_first - math.exp(epsilon) * ideal_second, 0).sum())
            assert cut <= ideal + tail + 1e-6, (direction, epsilon)
    first, second = pair(True)
    if rate == 1.0:
        assert float(np.maximum(first - math.exp(20.0) * second, 0).sum()) > 0.9 * tail


def test_a_random_linear_term_has_no_more_numbers_than_are_charged() -> None:
    assert 2 * MAX_INPUTS <= 2**15  # a random linear term has two numbers for each input
    assert Pure(1.0, 3).tail_delta == pytest.approx(3 * (1 + math.e) / 2**48)


def test_exact_noise_has_no_tail_and_floating_noise_has_one() -> None:
    assert tail_delta(EXACT) == 0.0
    assert all(0 < tail_delta([event]) < 1e-10 for event in FLOATING)
    assert tail_delta([SubsampledGaussian(1 / 32, 1.0, 1000)]) == pytest.approx(5.6e-13, rel=0.02)
    assert tail_delta([SubsampledGaussian(1 / 32, 0.3, 1000)]) > 1e-7


def test_the_tail_is_taken_off_delta() -> None:
    """With noise this small, the ends take a third of delta: what is left decides."""
    event = SubsampledGaussian(1 / 32, 0.305, 1000)
    tail = tail_delta([event])
    delta = 3 * tail
    assert accounting.spent([event], delta, grid=1e-4).rdp == accounting.rdp_epsilon([event], delta - tail)
    assert accounting.spent([event], tail, grid=1e-4).epsilon == math.inf
    epsilon = accounting.rdp_epsilon([event], delta - tail / 2)
    assert accounting.rdp_epsilon([event], delta) <= epsilon
    least = accounting.calibrate(lambda noise: [Gaussian(noise, floating=True)], epsilon=900.0, delta=1e-6)
    assert 0.9e-6 < tail_delta([Gaussian(least, floating=True)]) < 1e-6  # not epsilon, but the ends of the noise decide


@pytest.mark.parametrize("event", FLOATING, ids=lambda event: type(event).__name__)
def test_a_ledger_refuses_deltas_that_floating_noise_cannot_honour(event: Event) -> None:
    ledger = Ledger(Guarantee(10.0, 1e-15), noise=SeededNoise(0))
    with raises(ConfigError, setting="delta"):
        ledger.charge(Query("k", "what", event))
    assert not ledger.queries
    with raises(ConfigError, setting="delta"):
        ledger.remaining.calibrate(lambda noise: [event])
    Ledger(Guarantee(10.0, 1e-12), noise=SeededNoise(0)).charge(Query("k", "what", event))


@pytest.mark.parametrize("event", EXACT, ids=lambda event: type(event).__name__)
def test_exact_noise_takes_any_delta(event: Event) -> None:
    Ledger(Guarantee(10.0, 1e-25), noise=SeededNoise(0)).charge(Query("k", "what", event))


def schema(rows: int | None) -> us.Schema:
    return us.Schema(
        columns=(us.Column(name="a", kind="categorical", categories=("x", "y"), nullable=False, closed=True),),
        rows=rows,
    )


@pytest.mark.parametrize("method", ["dpgan", "bayesgan"])
def test_a_plan_refuses_before_any_data(method: str) -> None:
    with raises(ConfigError, setting="delta"):
        plan(schema(100), method, Guarantee(1.0, 1e-15))


@pytest.mark.parametrize("method", ["mst", "pategan", "pategan(vote_noise=laplace, queries=300)"])
def test_counts_and_votes_are_planned_at_any_delta(method: str) -> None:
    assert not tail_delta([query.event for query in plan(schema(100), method, Guarantee(1.0, 1e-15)).queries])


def test_a_large_delta_needs_declared_rows() -> None:
    with raises(ConfigError, setting="delta"):
        plan(schema(None), "independent", Guarantee(1.0, 1e-3))
    assert Guarantee(1.0, 1e-4).with_delta_for(None).delta == 1e-4
    made = plan(schema(500), "independent", Guarantee(1.0, 1e-3))
    assert str(made.notes[0]).startswith("Warning: delta 0.001 is large")
    assert not plan(schema(500), "independent", Guarantee(1.0, 1e-4)).notes


def test_a_large_delta_stands_in_the_certificate_and_in_the_output(tmp_path: Path) -> None:
    table = pa.table({"a": ["x", "y"] * 250})
    release = us.fit(table, "independent", Guarantee(1.0, 1e-3), schema=schema(500))
    (warning,) = release.statement.warnings
    assert warning.startswith("delta 0.001 is large")
    assert Note(warning, Level.WARNING) in release.notes
    assert f"> **Warning:** {warning}" in release.certificate
    content = json.loads(json.dumps(certificate.to_json(release.statement)))
    assert content["warnings"] == [warning]
    assert certificate.from_json(content).warnings == (warning,)
    small = us.fit(table, "independent", Guarantee(1.0, 1e-4), schema=schema(500))
    assert not small.statement.warnings
    assert "Warning" not in small.certificate


def test_the_command_line_refuses_in_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    table, declared, out = (str(tmp_path / name) for name in ("t.csv", "t.toml", "release"))
    Path(table).write_text("a\n" + "x\ny\n" * 50)
    schema(100).write(declared)
    told = ["--epsilon", "1", "--delta", "1e-15", "--method", "dpgan"]
    for command in (["plan", declared, *told], ["fit", table, "-o", out, "--schema", declared, *told]):
        assert run(command) == 2
        assert "below 1e-12" in " ".join(capsys.readouterr().err.split())
    assert not Path(out).exists()
