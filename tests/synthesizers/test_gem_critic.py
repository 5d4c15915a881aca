"""A critic beside gem's marginals: what it costs, what it sees, and that it leads where marginals cannot."""

import dataclasses
import itertools
import math
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pyarrow as pa
import pytest
from scipy import stats

import understudy as us
from tests.synthesizers.walk import DOMAIN, book, real_rows
from understudy.encoding.features import Block
from understudy.errors import BudgetExceeded, ConfigError
from understudy.privacy.clipping import Clip, add_noise, clipped_sum, per_example_sum, unit_loss
from understudy.privacy.events import Gaussian, SubsampledGaussian
from understudy.privacy.ghost import has_rules
from understudy.privacy.ledger import Budget, Guarantee, Ledger, Plan
from understudy.privacy.noise import SeededNoise
from understudy.privacy.rows import PrivateRows
from understudy.privacy.sampling import round_sampling_rate
from understudy.schema import Domain, NumericDomain
from understudy.synthesizers.boosted import Boosted
from understudy.synthesizers.drs import DRS
from understudy.synthesizers.gem import method as gem_module
from understudy.synthesizers.gem.critic_inputs import critic_inputs
from understudy.synthesizers.gem.method import GEM
from understudy.synthesizers.run import Run
from understudy.training.critics import one_hot_blocks, row_loss
from understudy.training.generation import Context, generate, generator_gradient
from understudy.training.losses import LOSSES
from understudy.training.marginal_matching import (
    Components,
    Cross,
    Fit,
    MarginalLoss,
    by_chance,
    heads_of,
    init_state,
    loss_of,
)
from understudy.training.networks import Centred, Constant, Critic
from understudy.training.settings import Settings

SMALL: dict[str, Any] = {"steps": 40, "components": 50, "width": 16, "depth": 1, "latent": 8}
HYBRID: dict[str, Any] = {
    **SMALL,
    "critic_fraction": 0.4,
    "critic_steps": 20,
    "critic_sampling_rate": 0.25,
    "critic_widths": (8,),
}
HYBRID["clip_norm"] = 0.5


# ------------------------------------------------------------------------------------------------------------- the cost


@pytest.mark.parametrize("num_rows", [pytest.param(400, marks=pytest.mark.slow), 0])
def test_the_plan_is_what_is_charged_and_drawn(num_rows: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Marginals, then the critic's steps, whoever is in the table; both together fill the budget.

    Rate, noise and clip are those that were charged, and the denominator follows from the public number of rows.
    """
    seen: list[tuple] = []
    train_both = gem_module.train_both

    def watched(settings: Settings, charged: Any, hyperparameters: Any, *arguments: Any, **rest: Any) -> Any:
        assert rest["options"].iterations is None  # all steps that were charged
        seen.append((settings, charged, hyperparameters))
        return train_both(settings, charged, hyperparameters, *arguments, **rest)

    monkeypatch.setattr(gem_module, "train_both", watched)
    ledger, gem = book(2.0), GEM(**HYBRID)
    plan = gem.plan(DOMAIN, ledger.remaining)
    assert [query.key for query in plan.queries] == ["marginals", "critic"]
    model = gem.fit(Run(real_rows(num_rows), plan, ledger, key=jax.random.key(0)))
    assert ledger.queries == plan.queries
    assert 0.99 * 2 <= ledger.spent().epsilon <= 2
    assert (model.sample(30, key=jax.random.key(1)).codes < DOMAIN.sizes).all()
    event, [(settings, charged, hyperparameters)] = plan["critic"].event, seen
    assert isinstance(event, SubsampledGaussian)
    assert (charged.sampling_rate, charged.num_steps) == (event.sampling_rate, event.steps)
    assert settings.batch_size == round(event.sampling_rate * DOMAIN.num_rows)
    assert float(charged.noise_multiplier) == pytest.approx(event.noise_multiplier)
    assert float(hyperparameters.clip_norm) == HYBRID["clip_norm"]


def test_a_share_is_calibrated_alone_and_reserved_first() -> None:
    """The critic's steps cost critic_fraction of epsilon by themselves, and the marginals what they leave."""
    gem, budget = GEM(**HYBRID), Budget(2.0, 1e-6)
    marginals, critic = (query.event for query in gem.plan(DOMAIN, budget).queries)
    assert isinstance(critic, SubsampledGaussian)
    assert (critic.sampling_rate, critic.steps) == (round_sampling_rate(0.25), 20)
    alone = Budget(0.8, 1e-6).calibrate(lambda noise: [SubsampledGaussian(round_sampling_rate(0.25), noise, 20)])
    assert critic.noise_multiplier == alone
    assert isinstance(marginals, Gaussian)
    plain = GEM(**SMALL).plan(DOMAIN, budget)["marginals"].event
    assert isinstance(plain, Gaussian)
    assert plain.noise_multiplier < marginals.noise_multiplier
    adaptive = GEM(**{**HYBRID, "mode": "adaptive", "num_selections": 1}).plan(DOMAIN, budget)
    assert [query.key for query in adaptive.queries] == ["selections", "marginals", "critic"]


def test_steps_that_do_not_fit_are_refused_before_any_row_is_drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    """The critic is charged before it gets the rows: where the ledger refuses, no step is made."""
    gem, ledger = GEM(**HYBRID), book(2.0)
    plan = gem.plan(DOMAIN, ledger.remaining)
    event = plan["critic"].event
    assert isinstance(event, SubsampledGaussian)
    less = dataclasses.replace(event, noise_multiplier=0.9 * event.noise_multiplier)
    dearer = dataclasses.replace(plan["critic"], event=less)
    trained: list[object] = []
    monkeypatch.setattr(gem_module, "train_both", lambda *arguments, **rest: trained.append(arguments))
    with pytest.raises(BudgetExceeded):
        gem.fit(Run(real_rows(400), Plan((plan["marginals"], dearer)), ledger, key=jax.random.key(0)))
    assert [query.key for query in ledger.queries] == ["marginals"]
    assert not trained


# -------------------------------------------------------------------------------------------------------- what it sees


def test_numbers_are_one_input_and_all_are_centred() -> None:
    """Under the measured frequencies inputs have mean zero, and those of numbers and of two levels a spread of one."""
    draw = np.random.default_rng(0)
    sizes = (2, 9, 5, 8)
    scale = NumericDomain(
        fine_edges=tuple(np.linspace(0, 1, 9)), fine_masses=(1 / 8,) * 8, first_fine_bin=tuple(range(9))
    )
    domain = Domain(names=("sex", "age", "site", "dose"), sizes=sizes, num_rows=10, numeric=("age", "dose"))
    nullable = NumericDomain(
        fine_edges=scale.fine_edges, fine_masses=scale.fine_masses, first_fine_bin=scale.first_fine_bin, nullable=True
    )
    shares = [draw.dirichlet(np.ones(size) * 3) for size in sizes]
    centre, sums = critic_inputs(domain, (None, nullable, None, scale), shares)
    matrix = np.asarray(sums)
    assert matrix.shape == (sum(sizes), 1 + 2 + 5 + 1)
    inputs = np.concatenate(
        [np.eye(size)[draw.choice(size, 200_000, p=p)] for size, p in zip(sizes, shares, strict=True)], 1
    )
    found = (inputs - centre) @ matrix
    np.testing.assert_allclose(found.mean(axis=0), 0.0, atol=0.02)
    np.testing.assert_allclose(found.std(axis=0)[[0, 1, 2, 8]], 1.0, atol=0.02)
    place = matrix[2:11, 1]
    assert np.ptp(np.diff(place[:8])) < 1e-9  # even steps from bin to bin ...
    assert place[8] == 0  # ... and what is missing in the middle, with an input of its own
    assert matrix[2:10, 2].tolist() == [0.0] * 8
    rare = critic_inputs(Domain(names=("a",), sizes=(2,), num_rows=1), (None,), [np.asarray([1 - 1e-9, 1e-9])])[1]
    assert rare[1][0] == pytest.approx(10.0)


def test_clipped_sums_are_those_of_each_row() -> None:
    """With sums of features before the first layer, as without: against the gradient of every row by itself."""
    draw = np.random.default_rng(1)
    centre, sums = critic_inputs(DOMAIN, (None, None), [np.full(size, 1 / size) for size in DOMAIN.sizes])
    critic = Centred(Critic(len(sums[0]), (4,), key=jax.random.key(0)), Constant(centre), Constant(sums))
    assert has_rules(critic)
    blocks = one_hot_blocks(DOMAIN.sizes)
    loss = unit_loss(row_loss(LOSSES["gan"], blocks, None, paired=False))
    codes = jnp.asarray(draw.integers(0, DOMAIN.sizes, (40, 2)), jnp.int32)
    units = (codes[:, None], jnp.ones((40, 1), bool), None, jax.random.split(jax.random.key(1), 40))
    clip = Clip(jnp.asarray([100.0]))  # beyond all of them: below it the two ways keep different margins
    fast, slow = (
        add_noise(
            *each(loss, critic, units, jnp.ones(40, bool), clip), clip, noise_multiplier=0.0, key=jax.random.key(2)
        ).gradient
        for each in (clipped_sum, per_example_sum)
    )
    for one, two in zip(jax.tree_util.tree_leaves(fast), jax.tree_util.tree_leaves(slow), strict=True):
        np.testing.assert_allclose(one, two, atol=1e-4)


def tiny_components(sizes: tuple[int, ...] = (2, 3), rows: int = 4) -> tuple[Fit, Components]:
    fit = Fit(one_hot_blocks(sizes), (8,), 0.9)
    shares = [np.full(size, 1 / size) for size in sizes]
    state = init_state(fit, shares, rows=rows, latent=3, key=jax.random.key(2), spread=3.0)
    return fit, Components(state.generator, state.latents)


def test_rows_for_the_critic_have_the_law_of_the_model() -> None:
    """Drawn levels, one-hot, with the probabilities of the mixture; the chi-square test errs once in a thousand."""
    fit, made = tiny_components()
    settings = Settings(blocks=fit.blocks, batch_size=10, latent=1, heads="drawn")
    rows = np.asarray(generate(settings, made, 20_000, jax.random.key(5))[1])
    assert set(np.unique(rows)) == {0.0, 1.0}
    heads = np.asarray(heads_of(fit, made.generator, made.latents), float)
    law = np.einsum("ri,rj->ij", heads[:, :2], heads[:, 2:]) / 4
    counts = np.bincount(rows[:, :2].argmax(1) * 3 + rows[:, 2:].argmax(1), minlength=6)
    assert stats.chisquare(counts, 20_000 * law.reshape(-1) / law.sum()).pvalue > 1e-3


@pytest.mark.slow
def test_the_generator_follows_the_expected_loss() -> None:
    """The gradient for drawn rows against that of the sum over all rows that there are, by their probabilities."""
    fit, made = tiny_components()
    critic = Critic(5, (7,), key=jax.random.key(4))
    settings = Settings(blocks=fit.blocks, batch_size=10, latent=1, heads="drawn", generator_batch=10_000)
    every = np.asarray([np.concatenate([np.eye(2)[a], np.eye(3)[b]]) for a, b in itertools.product(range(2), range(3))])
    losses = jax.nn.softplus(-jax.vmap(critic)(jnp.asarray(every, jnp.float32)))

    def expected(generator: Any) -> jax.Array:
        heads = heads_of(fit, generator, made.latents)
        return jnp.mean(jnp.einsum("ri,rj->rij", heads[:, :2], heads[:, 2:]).reshape(-1, 6) @ losses)

    exact = jax.tree_util.tree_leaves(jax.grad(expected)(made.generator))
    found = generator_gradient(settings, made, jax.vmap(critic), jax.random.key(6), Context())
    assert not np.any(found.latents)  # they stay
    scale = max(float(jnp.abs(leaf).max()) for leaf in exact)
    for one, two in zip(exact, jax.tree_util.tree_leaves(found.generator), strict=True):
        np.testing.assert_allclose(two, one, atol=0.06 * scale)


def test_drawn_heads_are_for_levels_and_losses_of_single_rows() -> None:
    for changed in ({"loss": "kl_wgan"}, {"blocks": (Block("tanh", 1), Block("one_hot", 2))}, {"heads": "hard"}):
        with pytest.raises(ConfigError, match="heads"):
            Settings(**{"blocks": one_hot_blocks((2, 2)), "batch_size": 10, "heads": "drawn", **changed})  # type: ignore[arg-type]


def test_what_holds_the_generator_is_the_measured_loss() -> None:
    fit, made = tiny_components()
    term = Cross(None, None, jnp.full((1, 5), 0.4), jnp.full((1, 5), 2.0))
    heads = heads_of(fit, made.generator, made.latents)
    loss = float(loss_of((term,), heads, jax.random.key(0)))
    assert float(MarginalLoss.by(fit, (term,), 0.25)(made, jax.random.key(0))) == pytest.approx(0.25 * loss, rel=1e-5)


def test_chance_is_the_loss_of_so_many_rows() -> None:
    """Over 400 samples of 500 rows, whose mean loss errs by 2% or so."""
    draw, law = np.random.default_rng(0), np.asarray([0.1, 0.2, 0.05, 0.6, 0.05])
    term = Cross(None, None, jnp.asarray(law[None], jnp.float32), jnp.full((1, 5), 7.0))
    shares = draw.multinomial(500, law, 400) / 500
    loss = 7.0 * ((shares - law) ** 2).sum(axis=1).mean()
    assert by_chance((term,), 500) * (1 - (law**2).sum()) == pytest.approx(loss, rel=0.1)


# --------------------------------------------------------------------------------------------------------- what it does


@pytest.mark.slow
def test_it_sees_what_pairs_do_not() -> None:
    """Three bits with an even sum, without noise: gem alone makes half of the rows even, with a critic nearly all.

    Marginals without noise must not hold the generator endlessly.
    """
    bits = np.random.default_rng(0).integers(0, 2, (2000, 2))
    codes = np.concatenate([bits, bits.sum(axis=1, keepdims=True) % 2], axis=1).astype(np.int32)
    domain = Domain(names=("a", "b", "c"), sizes=(2, 2, 2), num_rows=2000)
    settings: dict[str, Any] = {
        "steps": 60,
        "components": 100,
        "width": 32,
        "depth": 1,
        "latent": 8,
        "learning_rate": 1e-2,
    }
    settings["three_way_fraction"] = 0.0  # they would see it

    def even(gem: GEM) -> float:
        ledger = Ledger(Guarantee.not_private(), noise=SeededNoise(0))
        model = gem.fit(
            Run(PrivateRows(codes, domain), gem.plan(domain, ledger.remaining), ledger, key=jax.random.key(0))
        )
        return float(np.mean(model.sample(10_000, key=jax.random.key(1)).codes.sum(axis=1) % 2 == 0))

    assert even(GEM(**settings)) < 0.6
    settings |= {"critic_fraction": 0.5, "critic_steps": 300, "critic_sampling_rate": 0.1, "critic_widths": (16,)}
    assert even(GEM(**settings, critic_learning_rate=2e-2)) > 0.9


def test_critics_of_checkpoints_score_rows() -> None:
    """The last checkpoint is what would be released, and its critic says something between 0 and 1 of any row."""
    gem, rows, books = GEM(**HYBRID), real_rows(400), [book(2.0), book(2.0)]
    plan = gem.plan(DOMAIN, books[0].remaining)
    released = gem.fit(Run(rows, plan, books[0], key=jax.random.key(0)))
    path = gem.trajectory(Run(rows, plan, books[1], key=jax.random.key(0)), checkpoints=1, every=20)
    assert books[0].queries == books[1].queries == plan.queries
    assert gem.num_checkpoints(10) == 2
    np.testing.assert_allclose(path.models[-1].probabilities, released.probabilities, atol=1e-4)  # type: ignore[attr-defined]
    assert path.critics is not None
    said = path.critics(rows._codes)
    assert said.shape == (400, 1)
    assert 0 <= said.min() < said.max() <= 1


@pytest.mark.parametrize("method", [pytest.param("boosted", marks=pytest.mark.slow), "drs"])
def test_wrappers_use_them(method: str) -> None:
    gem = GEM(**HYBRID)
    wrapped: Boosted | DRS = DRS(gem, proposals=500)
    if method == "boosted":
        wrapped = Boosted(gem, rounds=10, checkpoint_every=5, samples_per_generator=100)
    ledger = book(2.0)
    plan = wrapped.plan(DOMAIN, ledger.remaining)
    wrapped.fit(Run(real_rows(400), plan, ledger, key=jax.random.key(0)))
    assert sorted(query.key for query in ledger.queries) == sorted(query.key for query in plan.queries)
    if method == "boosted":
        assert plan["selections"].what == "10 selections among 4 critics and the cells of 1 marginals"


@pytest.mark.slow
def test_a_run_killed_in_any_training_has_the_same_release(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Before and after 3-way marginals are measured, and beside a critic."""

    class Killed(Exception):
        pass

    def killed_at(share: float) -> Any:
        def progress(done: float, words: str) -> None:
            if share <= done:
                raise Killed

        return progress

    monkeypatch.setenv("UNDERSTUDY_CHECKPOINT_SECONDS", "0")
    draw = np.random.default_rng(0)
    table = pa.table({name: draw.integers(0, 2, 300) == 1 for name in "abc"})
    columns = tuple(us.Column(name=name, kind="boolean", nullable=False) for name in "abc")
    rest: dict[str, Any] = {"schema": us.Schema(columns=columns, rows=300), "seed": 3}
    method = GEM(**HYBRID, three_way_fraction=0.3)
    guarantee, where = us.Guarantee(3.0, 1e-6), tmp_path / "run.checkpoint"
    whole = us.fit(table, method, guarantee, **rest)
    for share, resume in ((0.1, False), (0.3, True), (0.5, True)):
        with pytest.raises(Killed):
            us.fit(table, method, guarantee, progress=killed_at(share), checkpoint=where, resume=resume, **rest)
    again = us.fit(table, method, guarantee, checkpoint=where, resume=True, **rest)
    assert again.statement.queries == whole.statement.queries
    np.testing.assert_array_equal(
        again.model.to_arrays()[1]["probabilities"], whole.model.to_arrays()[1]["probabilities"]
    )


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"critic_fraction": 0.95}, "critic_fraction"),
        ({"critic_fraction": -0.1}, "critic_fraction"),
        ({"critic_steps": 0}, "critic_steps"),
        ({"critic_sampling_rate": 0.0}, "rate"),
        ({"critic_fraction": 0.2, "critic_widths": (16, 0)}, "critic_widths"),
        ({"critic_weight": 0.0}, "critic_weight"),
        ({"critic_learning_rate": math.inf}, "critic_learning_rate"),
        ({"clip_norm": 0.0}, "clip"),
    ],
)
def test_settings_are_checked(settings: dict, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        GEM(**settings)
