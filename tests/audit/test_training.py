"""White-box audits of DP-SGD: what an attacker sees is what was charged, and an audit sees it if it is not.

The epsilon of an audit in one run is that of a Gaussian curve. The curve of a training on samples is not Gaussian, so
comparing the two is indicative: it shows that the attack is strong and that planted defects stand out, but such a
figure above the claim would not refute it.
"""

import jax
import numpy as np
import pytest
from scipy import stats

from benchmarks.stage_audits.training import Directions, ObservedTraining, Training, audit_one_run, audit_runs
from tests.builders import raises
from understudy.errors import ConfigError
from understudy.privacy.accounting.ledger import Guarantee
from understudy.privacy.gradients import charges, clipping, dpsgd

GUARANTEE = Guarantee(1.0, 1e-2)
TRAINING = Training(num_steps=5, sampling_rate=0.25)
SURE = 1 - 1e-4
"""The confidence of bounds in tests: each that is compared with a claim fails on correct code once in 10,000 seeds."""
TAIL = 5e-5


def assert_normal(values: np.ndarray, mean: float, variance: float) -> None:
    """Two-sided on mean and variance; the fourth moment is near enough to that of a normal distribution."""
    assert abs(values.mean() - mean) < stats.norm.isf(TAIL) * np.sqrt(variance / values.size)
    assert abs(values.var() / variance - 1) < stats.norm.isf(TAIL) * np.sqrt(2 / values.size)


def test_the_attacker_sees_clipped_sums_with_the_charged_noise() -> None:
    """The canary moves its coordinate by one clip bound, in the batches that it is in; noise is as charged."""
    rate = TRAINING.sampling_rate
    for canary in ([], [1]):
        seen = ObservedTraining.of([0] * 9 + canary, Directions(2, 9), GUARANTEE, TRAINING, seed=3)
        sums = seen.observe(seen.key, 500)
        noise = seen.noise_multiplier**2
        assert_normal(sums[..., 1], rate * len(canary), noise + rate * (1 - rate) * len(canary))
        assert_normal(sums[..., 0], rate * 9, noise + rate * (1 - rate) * 9)


def test_steps_are_independent_of_each_other() -> None:
    seen = ObservedTraining.of([0] * 9, Directions(2, 9), GUARANTEE, TRAINING, seed=4)
    sums = seen.observe(seen.key, 500)[..., 1]
    between = np.corrcoef(sums.T)[np.triu_indices(TRAINING.num_steps, 1)]
    assert np.abs(between).max() < stats.norm.isf(TAIL / len(between)) / np.sqrt(500)


def test_bounds_stay_below_the_claim() -> None:
    found = audit_runs(GUARANTEE, TRAINING, num_runs=20_000, num_others=9, seed=0, confidence=SURE)
    assert 0.3 < found.bound.epsilon <= GUARANTEE.epsilon
    one = audit_one_run(GUARANTEE, TRAINING, num_canaries=200, seed=0, confidence=SURE)
    assert one.bound.epsilon <= GUARANTEE.epsilon


def test_too_little_noise_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """A fifth of what was charged; one run with few canaries is surer of itself with a twentieth."""
    factor = 1 / 5
    monkeypatch.setattr(
        charges, "ChargedSteps", lambda units, noise, *rest: dpsgd.ChargedSteps(units, factor * noise, *rest)
    )
    found = audit_runs(GUARANTEE, TRAINING, num_runs=4000, num_others=9, seed=0, confidence=SURE)
    assert found.bound.epsilon > GUARANTEE.epsilon
    factor = 1 / 20
    one = audit_one_run(GUARANTEE, TRAINING, num_canaries=200, seed=0)
    assert one.bound.epsilon > GUARANTEE.epsilon


def test_batches_larger_than_charged_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    draw = dpsgd.poisson_batches
    monkeypatch.setattr(
        dpsgd, "poisson_batches", lambda *args, sampling_rate, **kwargs: draw(*args, sampling_rate=1.0, **kwargs)
    )
    found = audit_runs(GUARANTEE, TRAINING, num_runs=4000, num_others=9, seed=0, confidence=SURE)
    assert found.bound.epsilon > GUARANTEE.epsilon


def test_gradients_that_are_clipped_too_late_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """At four times the bound: the canary's gradient, of twice the bound, is not clipped at all.

    The table has a size of its own among these tests, so no program is compiled before, or used after.
    """
    clipped_sum = dpsgd.clipped_sum

    def clip_late(loss: object, network: object, units: object, taken: object, clip: clipping.Clip) -> object:
        exact, within = clipped_sum(loss, network, units, taken, clipping.Clip.flat(4.0))  # type: ignore[arg-type]  # handed on
        return jax.tree_util.tree_map(lambda part: 4 * part, exact), within  # back to the grid of the charged bound

    monkeypatch.setattr(dpsgd, "clipped_sum", clip_late)
    found = audit_runs(GUARANTEE, TRAINING, num_runs=12_000, num_others=5, seed=0, confidence=SURE)
    assert found.bound.epsilon > GUARANTEE.epsilon


def test_the_seed_fixes_every_run() -> None:
    first, second = (audit_one_run(GUARANTEE, TRAINING, num_canaries=200, seed=0) for _ in range(2))
    assert first == second


def test_bad_settings_are_refused() -> None:
    with raises(ConfigError, setting="num_steps"):
        Training(num_steps=0)
    with raises(ConfigError, setting="sampling_rate"):
        Training(sampling_rate=0.0)
    with raises(ConfigError, setting="scores"):
        audit_runs(GUARANTEE, TRAINING, num_runs=5, num_others=9, seed=0)


@pytest.mark.slow
def test_an_audit_of_many_runs_shows_more_than_half_of_the_claim() -> None:
    found = audit_runs(GUARANTEE, num_runs=50_000, seed=0)
    assert 0.5 < found.bound.epsilon <= 1.0
