"""The query stage: noisy marginals are as far apart as charged, no further, and an audit sees it if they are not."""

import numpy as np
import pytest
from scipy import stats

from benchmarks.stage_audits.queries import STAGES, audit_queries, claimed_mu, score_runs
from tests.builders import raises
from understudy.audit.neighbours import make_neighbours
from understudy.errors import ConfigError
from understudy.privacy.accounting.ledger import Guarantee
from understudy.privacy.noise.source import NoiseSource
from understudy.run.plan import plan_run, synthesizer_of
from understudy.schema import as_schema

GUARANTEE = Guarantee(1.0, 1e-2)
SURE = 1 - 1e-4
"""The confidence of bounds in tests: each that is compared with a claim fails on correct code once in 10,000 seeds."""


@pytest.mark.parametrize("name", STAGES)
def test_scores_are_apart_by_the_claimed_mu(name: str) -> None:
    """Two-sided: the distance of the means in standard deviations, against its own standard error."""
    stage, pair, num_runs = STAGES[name], make_neighbours("row"), 200
    run = plan_run(as_schema(pair.schema), synthesizer_of(stage.method), GUARANTEE, pair.binning)
    seeds = np.arange(2 * num_runs)
    inside = np.fromiter(score_runs(stage, run, pair, seeds[:num_runs], with_canary=True), float)
    outside = np.fromiter(score_runs(stage, run, pair, seeds[num_runs:], with_canary=False), float)
    spread = np.sqrt((inside.var(ddof=1) + outside.var(ddof=1)) / 2)
    found, mu = (inside.mean() - outside.mean()) / spread, claimed_mu(run.training[stage.query].event)
    error = np.sqrt(2 / num_runs + mu**2 / (4 * num_runs))
    assert abs(found - mu) < stats.norm.isf(5e-5) * error
    # The noise itself: the sum of the cells moves by one for each column, so one standard deviation is this long.
    squares = (2 * num_runs - 2) * (spread / (len(pair.columns) / mu)) ** 2
    assert stats.chi2.sf(squares, 2 * num_runs - 2) > 5e-5
    assert stats.chi2.cdf(squares, 2 * num_runs - 2) > 5e-5


@pytest.mark.parametrize("name", STAGES)
def test_too_little_noise_is_found(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A quarter of the charged noise: the bound refutes the claim. With the charged noise it does not."""
    honest = audit_queries(name, GUARANTEE, num_runs=150, seed=1, confidence=SURE)
    assert honest.bound.mu <= honest.claimed_mu
    assert honest.bound.epsilon <= GUARANTEE.epsilon
    draw = NoiseSource.discrete_gaussian
    monkeypatch.setattr(NoiseSource, "discrete_gaussian", lambda self, stddev, shape: draw(self, stddev / 4, shape))
    broken = audit_queries(name, GUARANTEE, num_runs=150, seed=1, confidence=SURE)
    assert broken.bound.mu > broken.claimed_mu


def test_the_seed_fixes_every_run() -> None:
    first, second = (audit_queries("bundle", GUARANTEE, num_runs=20, seed=3) for _ in range(2))
    assert first == second


def test_a_stage_that_does_not_exist_is_refused() -> None:
    with raises(ConfigError, setting="stage"):
        audit_queries("bundel", GUARANTEE, num_runs=20, seed=0)


@pytest.mark.slow
@pytest.mark.parametrize("name", STAGES)
def test_an_audit_of_many_runs_shows_nearly_all_of_the_claim(name: str) -> None:
    found = audit_queries(name, GUARANTEE, num_runs=20_000, seed=0)
    assert 0.85 < found.fraction < 1.05
