"""DP-BayesGAN: Langevin chains sample what they should, cost what they do, and one row moves a step by the bound."""

import dataclasses
import math
from collections.abc import Callable
from typing import Any, cast

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import Array

import understudy as us
from benchmarks.simulated import NAMES, montgomery_olivella, montgomery_olivella_schema, outcome
from tests.builders import raises
from understudy.demo import demo_schema, demo_table
from understudy.errors import BudgetExceeded, ConfigError
from understudy.models.generator import PosteriorModel
from understudy.privacy.accounting.events import DiscreteGaussian, SubsampledGaussian
from understudy.privacy.accounting.ledger import Budget, Query
from understudy.privacy.gradients.clipping import Clip, RowLoss
from understudy.privacy.gradients.dpsgd import ChargedSteps
from understudy.privacy.gradients.langevin import (
    Chain,
    ChargedUpdates,
    Dynamics,
    Stage,
    StepParameters,
    langevin_step,
    noisy_langevin_step,
    stages,
    step_parameters,
    zero_momentum,
)
from understudy.privacy.gradients.poisson import Batches, round_sampling_rate
from understudy.privacy.noise.source import SeededNoise
from understudy.privacy.rows.rows import PrivateRows, PrivateUnits
from understudy.schema import Domain
from understudy.synthesizers import bayesgan, read_method
from understudy.synthesizers.bayesgan import BayesGAN
from understudy.synthesizers.run import Run
from understudy.training.critics import one_hot_blocks
from understudy.training.gan import batches_of
from understudy.training.generation import Context
from understudy.training.langevin import critic_updates, init_state, log_prior_gradient
from understudy.training.neural import Critic, CriticMixture

QUICK = us.Guarantee(0.3, 1e-6)  # much noise: the accountant is quick
NOT_PRIVATE = us.Guarantee.not_private()
SMALL = (
    "steps=60, latent=4, generator_widths=[16, 16], critic_widths=[8], generator_chains=3, generator_batch=32, "
    "samples_per_chain=2"
)
DOMAIN = Domain(names=("a", "b"), sizes=(2, 3), num_rows=1000)


# ----------------------------------------------------------------------------------------------- a posterior to compare


NUM_ROWS, SPREAD, PRIOR = 6, 2.0, 3.0
ROWS = np.linspace(-1.0, 3.0, NUM_ROWS)
PRECISION = NUM_ROWS / SPREAD**2 + 1 / PRIOR**2
POSTERIOR_MEAN, POSTERIOR_VARIANCE = ROWS.sum() / SPREAD**2 / PRECISION, 1 / PRECISION
SIZE = 0.04
ETA = SIZE / PRECISION
"""Small: chains of such steps have a variance 1 / (1 - SIZE / 2), that is 2%, above that of the posterior."""


def network_of(values: Array) -> eqx.nn.Linear:
    """A network whose weights are these numbers, and which gives them out."""
    made = eqx.nn.Linear(1, values.shape[-1], use_bias=False, key=jax.random.key(0))
    return eqx.tree_at(lambda layer: layer.weight, made, values[..., None])


@RowLoss
def of_row(network: eqx.nn.Linear, row: Array, fake: Array | None, key: Array) -> Array:
    """Minus the log density of one row, normal around the network's number."""
    return jnp.sum((row - network(jnp.ones(1))) ** 2) / (2 * SPREAD**2)


def charged_updates(units: PrivateUnits, rate: float, now: tuple[float, float, float]) -> ChargedUpdates:
    """One iteration at this now."""
    steps = ChargedSteps(units, jnp.zeros(()), rate, 1)
    return ChargedUpdates(steps, StepParameters(*(jnp.asarray([value], jnp.float32) for value in now)))


def chain_moments(
    multiplier: float, extra: float, *, clip: float, friction: float = 1.0, eta: float = ETA, chains: int = 600
) -> tuple[float, float]:
    """Mean and variance over many chains, all rows in every step. They begin in the posterior, and must stay there."""
    units = PrivateUnits(jnp.asarray(ROWS, jnp.float32)[:, None, None], jnp.ones((NUM_ROWS, 1), dtype=bool))
    batch = Batches(jnp.arange(NUM_ROWS)[None], jnp.ones((1, NUM_ROWS), dtype=bool))
    charged = charged_updates(units, 1.0, (eta, multiplier, extra))

    def step(state: Chain, key: Array) -> tuple[Chain, Array]:
        def one(network: eqx.nn.Linear, momentum: eqx.nn.Linear, own: Array) -> Chain:
            rest = jax.tree_util.tree_map(lambda leaf: -leaf / PRIOR**2, network)
            return noisy_langevin_step(
                charged,
                of_row,
                Chain(network, momentum),
                Dynamics(rest, 1.0, friction),
                Clip.flat(clip),
                batch=batch,
                iteration=jnp.asarray(0),
                key=own,
            )

        state = jax.vmap(one)(*state, jax.random.split(key, chains))
        return state, state.network.weight

    fair = np.random.default_rng(0).normal(POSTERIOR_MEAN, math.sqrt(POSTERIOR_VARIANCE), (chains, 1))
    begin = network_of(jnp.asarray(fair, jnp.float32))
    run = jax.jit(lambda keys: jax.lax.scan(step, Chain(begin, zero_momentum(begin)), keys)[1])
    path = np.asarray(run(jax.random.split(jax.random.key(7), 500)))[100:].reshape(-1)
    return float(path.mean()), float(path.var())


DRAWS = 600 * 400 * SIZE
"""Chains forget a square in about 1 / SIZE steps, and a value in twice as many. So the variance is known to sqrt(2 /
DRAWS), 1.4%, and stands 2% high: a window from 4% below to 8% above is missed by chance once in 10,000 runs. The
seed is fixed."""


def check_moments(mean: float, variance: float, expected: float = POSTERIOR_VARIANCE) -> None:
    assert abs(mean - POSTERIOR_MEAN) < 4 * math.sqrt(2 * expected / DRAWS)
    assert 0.96 < variance / expected < 1.08


@pytest.mark.parametrize("private", [False, True], ids=["extra alone", "noise of the sum alone"])
def test_sgld_samples_the_posterior(private: bool) -> None:
    """Mean and variance of a conjugate toy: without noise on the sum, and with just the noise that Langevin asks for,
    where nothing is added to it."""
    clip = 10.0  # above every gradient: nothing is clipped
    stage = Stage(1, ETA)
    multiplier = stage.langevin_multiplier(clip, 1.0) if private else 0.0
    extra = stage.extra_stddev(multiplier, clip, 1.0, 1.0)
    assert (extra == 0) == private
    assert private or extra == pytest.approx(math.sqrt(2 * ETA))
    check_moments(*chain_moments(multiplier, extra, clip=clip))


def test_half_the_noise_is_another_posterior() -> None:
    """The test above can fail: half of the noise gives a quarter of the variance."""
    _, variance = chain_moments(0.0, math.sqrt(2 * ETA) / 2, clip=10.0)
    assert 0.22 < variance / POSTERIOR_VARIANCE < 0.3  # chains begin at the whole of it


def test_sghmc_samples_the_posterior() -> None:
    """With momentum, in its friction form: noise of variance 2 friction eta. Steps are eta / friction in effect."""
    friction = 0.2
    eta = friction * ETA / 2
    extra = Stage(1, eta).extra_stddev(0.0, 0.0, 1.0, friction)
    assert extra == pytest.approx(math.sqrt(2 * friction * eta))
    mean, variance = chain_moments(0.0, extra, clip=10.0, friction=friction, eta=eta)
    assert abs(mean - POSTERIOR_MEAN) < 4 * math.sqrt(4 * POSTERIOR_VARIANCE / DRAWS)
    # Twice as slow to forget: 2%. Friction form: the variance stands 1 / friction * eta * precision / 4 = 0.5% off.
    assert variance == pytest.approx(POSTERIOR_VARIANCE, rel=0.08)


def test_total_noise_of_an_update_is_the_stated_one() -> None:
    """Of 20,000 updates the variance is (eta s reach)^2 + extra^2 = max(2 eta T, (eta s reach)^2), by a chi-square
    window of 4 standard errors (2 in 30,000): below, at and above the multiplier that Langevin asks for."""
    stage, drift_sensitivity = Stage(1, 0.01), 4.0
    units = PrivateUnits(jnp.zeros((1, 1, 1)), jnp.zeros((1, 1), dtype=bool))  # nobody: noise alone
    batch = Batches(jnp.zeros((1, 1), jnp.int32), jnp.zeros((1, 1), dtype=bool))
    wanted = stage.langevin_multiplier(drift_sensitivity, 1.0)
    for multiplier in (0.3 * wanted, wanted, 2 * wanted):
        extra = stage.extra_stddev(multiplier, drift_sensitivity, 1.0, 1.0)
        network = network_of(jnp.zeros(20_000))
        moved, _ = noisy_langevin_step(
            charged_updates(units, 1.0, (stage.eta, multiplier, extra)),
            of_row,
            Chain(network, zero_momentum(network)),
            Dynamics(zero_momentum(network), drift_sensitivity / 2.0, 1.0),
            Clip.flat(2.0),
            batch=batch,
            iteration=jnp.asarray(0),
            key=jax.random.key(3),
        )
        variance = max(2 * stage.eta, (stage.eta * multiplier * drift_sensitivity) ** 2)
        assert float(jnp.var(moved.weight)) == pytest.approx(variance, rel=4 * math.sqrt(2 / 20_000))
        assert stage.effective_temperature(multiplier, drift_sensitivity, 1.0, 1.0) == pytest.approx(
            variance / (2 * stage.eta)
        )


def test_without_noise_an_update_follows_the_drift() -> None:
    network, drift = network_of(jnp.asarray([1.0, 2.0])), network_of(jnp.asarray([3.0, -1.0]))
    eta, none = jnp.asarray(0.1), jnp.asarray(0.0)
    moved, velocity = langevin_step(
        Chain(network, drift), drift, eta=eta, stddev=none, friction=0.25, key=jax.random.key(0)
    )
    np.testing.assert_allclose(velocity.weight, 0.85 * drift.weight, rtol=1e-6)
    np.testing.assert_allclose(moved.weight, network.weight + velocity.weight, rtol=1e-6)


# ------------------------------------------------------------------------------------------------ one row, many chains


BLOCKS = one_hot_blocks((3, 4))


@pytest.mark.parametrize("pairs", [pytest.param("mean", marks=pytest.mark.slow), "sum"])
def test_one_row_moves_an_update_by_its_reach_at_most(pairs: str) -> None:
    """Removing one row moves the drift of each discriminator chain by at most clip * scale, whatever the chains: the
    row's clipped gradient stands in it once. Noise is the same in both runs, so the difference shows the row alone."""
    clip, method = (
        0.05,
        BayesGAN(
            latent=3,
            generator_widths=(8, 8),
            critic_widths=(6,),
            sampling_rate=0.5,
            generator_chains=3,
            discriminator_chains=4,
            chain_pairs=pairs,
            clip_norm=0.05,
        ),
    )
    chains = method._chains(BLOCKS, 40)
    state = init_state(chains, jax.random.key(1), Context())
    rows = jnp.asarray(np.random.default_rng(0).integers(0, 3, (40, 1, 2)))
    present = jnp.ones((40, 1), dtype=bool)
    batches = Batches(jnp.tile(jnp.arange(40), (4, 1, 1)), jnp.ones((4, 1, 40), dtype=bool))

    @jax.jit
    def updated(present: Array) -> Any:
        charged = charged_updates(PrivateUnits(rows, present), 0.5, (1.0, 1.0, 0.0))
        return critic_updates(chains, state, charged, Clip.flat(clip), jax.random.key(2), batches)

    def after(present: Array) -> np.ndarray:
        moved = updated(present).critic
        leaves = jax.tree_util.tree_leaves(moved)
        return np.concatenate([np.asarray(leaf).reshape(4, -1) for leaf in leaves], axis=1)

    whole = after(present)
    distances = [np.linalg.norm(whole - after(present.at[row, 0].set(False)), axis=1) for row in (0, 7, 39)]
    power = 12 if pairs == "sum" else 1
    assert method._drift_sensitivity == clip * power / 0.5
    assert (
        0.9 * method._drift_sensitivity < np.max(distances) <= method._drift_sensitivity * (1 + 1e-4)
    )  # reached: gradients here are larger


def test_every_chain_draws_rows_of_its_own() -> None:
    """As many draws in an iteration as updates are charged, and no two of them alike."""
    method = BayesGAN(discriminator_chains=3, updates=2, sampling_rate=0.5)
    chains = method._chains(BLOCKS, 200)
    units = PrivateUnits(jnp.zeros((200, 1, 2), jnp.int32), jnp.ones((200, 1), dtype=bool))
    batches = batches_of(chains.engine, jax.random.key(0), ChargedSteps(units, jnp.ones(()), 0.5, 30), 0, 5)
    assert batches._indices.shape[:2] == (5, 6)
    sets = {
        tuple(np.asarray(at[taken]))
        for at, taken in zip(batches._indices.reshape(30, -1), batches._taken.reshape(30, -1), strict=True)
    }
    assert len(sets) == 30


def test_the_prior_is_normal() -> None:
    """Its gradient is that of the log density, by layer."""
    for prior in ("unit", "scaled"):
        chains = BayesGAN(prior=prior, prior_stddev=2.0, critic_widths=(6,))._chains(BLOCKS, 40)
        critic = jax.tree_util.tree_map(lambda leaf: leaf[0], init_state(chains, jax.random.key(1), Context()).critic)
        first = log_prior_gradient(chains, critic).layers[0]
        inputs = 7 if prior == "scaled" else 1
        np.testing.assert_allclose(first.weight, -critic.layers[0].weight * inputs / 4, rtol=1e-6)
        np.testing.assert_allclose(first.bias, -critic.layers[0].bias / 4, rtol=1e-6)


# ---------------------------------------------------------------------------------------------------------------- costs


def _budget(guarantee: us.Guarantee = QUICK) -> Budget:
    return us.Ledger(guarantee, noise=SeededNoise(0)).remaining


@pytest.mark.parametrize(
    "settings", ["posterior_temperature=1.0", "schedule=exponential, step_size=1e-5, posterior_temperature=1.0"]
)
def test_every_update_of_every_discriminator_is_charged(settings: str) -> None:
    """K J_d M events in all, at the rate that is drawn, whatever the number of rows: where the step size follows from
    it, the noise of Langevin (here for a million rows more than the budget asks for) moves no cost."""
    method: Any = read_method(f"bayesgan(steps=40, discriminator_chains=3, updates=2, sampling_rate=0.03, {settings})")
    plans = [method.plan(dataclasses.replace(DOMAIN, num_rows=rows), _budget()) for rows in (100, 10**6)]
    assert plans[0].queries == plans[1].queries
    events = [query.event for query in plans[0] if query.key != "one_way"]
    assert all(
        isinstance(event, SubsampledGaussian) and event.sampling_rate == round_sampling_rate(0.03) for event in events
    )
    assert sum(event.steps for event in events) == 40 * 3 * 2
    assert (len(events) == 8) == ("schedule" in settings)


def test_langevin_noise_counts_for_privacy_where_the_step_size_is_a_setting() -> None:
    """With small steps the noise of Langevin is more than the budget asks for: it is charged, and drawn, as it is."""
    method: Any = read_method("bayesgan(steps=60, step_size=1e-8, posterior_temperature=1.0, marginals_fraction=0.0)")
    event = method.plan(DOMAIN, _budget())["discriminators 1"].event
    asked = Stage(60, 1e-8).langevin_multiplier(method._drift_sensitivity, 1.0)
    assert event.noise_multiplier == pytest.approx(asked)
    least_plan: Any = read_method("bayesgan(steps=60, marginals_fraction=0.0)").plan(DOMAIN, _budget())
    least = least_plan["discriminators 1"].event
    assert least.noise_multiplier < asked  # what the budget alone asks for
    schedule = method._stages(1000)
    drawn = method._law.noise_multipliers(schedule, [event.noise_multiplier])
    now = step_parameters(schedule, drawn, method._law)
    assert float(now.noise_multiplier.min()) >= event.noise_multiplier * (1 - 1e-6)
    assert float(now.extra.max()) == 0


@pytest.mark.parametrize(
    "settings",
    ["", "sampler=sghmc", "schedule=polynomial", "schedule=exponential, step_size=1e-6, posterior_temperature=1.0"],
)
def test_no_update_draws_less_noise_than_was_charged(settings: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """What `fit` hands to the chains: as many updates as were charged, at the rate and the bound, each with the noise
    of its own stretch or more, by a fresh key of the run; all of it in the ledger before."""
    method = read_method(f"bayesgan(steps=60, discriminator_chains=2, clip_norm=0.5, {settings})")
    noise = Keys(0)
    ledger = us.Ledger(QUICK, noise=noise)
    plan = method.plan(DOMAIN, ledger.remaining)
    chains, updates, clip, of_generators, key = _handed(method, plan, ledger, monkeypatch)
    assert ledger.queries == plan.queries
    events = [cast(SubsampledGaussian, query.event) for query in plan if query.key != "one_way"]
    charged = np.concatenate([np.full(event.steps, event.noise_multiplier) for event in events])
    drawn = np.repeat(np.asarray(updates._schedule.noise_multiplier, np.float64), chains.engine.critic_steps)
    assert chains.engine.critic_steps == chains.discriminators * chains.updates == 2
    assert drawn.shape == charged.shape
    assert np.all(drawn >= charged * (1 - 1e-6))  # single precision; clipped norms leave a margin of 2e-3
    assert not np.any(of_generators.noise_multiplier)
    assert {event.sampling_rate for event in events} == {updates.steps.sampling_rate}
    assert updates.steps.num_steps == len(charged)
    assert clip.bounds.tolist() == [0.5]
    assert len(updates.steps._units._rows) == 1000
    assert _bytes(key) in noise.given


class Keys(SeededNoise):
    """A source that remembers the keys it handed out."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.given: list[bytes] = []

    def key(self) -> Any:
        key = super().key()
        self.given.append(_bytes(key))
        return key


def _bytes(key: Any) -> bytes:
    return np.asarray(jax.random.key_data(key)).tobytes()


class Seen(Exception):
    """Ends a run where its chains would begin."""


def _handed(method: Any, plan: Any, ledger: us.Ledger, monkeypatch: pytest.MonkeyPatch) -> tuple:
    """What `fit` hands to the training of the chains, which is left out."""
    handed: list[tuple] = []

    def instead(*given: Any, **_: Any) -> None:
        handed.append(given)
        raise Seen

    monkeypatch.setattr(bayesgan, "train_chains", instead)
    with pytest.raises(Seen):
        method.fit(Run(_rows(), plan, ledger, key=jax.random.key(0)))
    return handed[0]


def test_a_plan_of_other_settings_is_refused_before_a_row_is_read() -> None:
    """Fewer updates, fewer chains, another rate, another stage: what is done would not be what is charged."""
    cheap = read_method("bayesgan(steps=60)").plan(DOMAIN, Budget(math.inf, 1e-6))
    for settings in (
        "steps=120",
        "discriminator_chains=2",
        "updates=2",
        "sampling_rate=0.5",
        "step_size=1e-9, posterior_temperature=1.0",
    ):
        ledger = us.Ledger(NOT_PRIVATE, noise=SeededNoise(0))
        method = read_method(f"bayesgan(steps=60, {settings})" if "steps" not in settings else f"bayesgan({settings})")
        with pytest.raises(BudgetExceeded, match="different updates than these settings make"):
            method.fit(Run(_rows(), cheap, ledger, key=jax.random.key(0)))
        assert ledger.queries == ()


@pytest.mark.parametrize("settings", ["step_size=0.5", "posterior_temperature=1e6"])
def test_an_absurd_temperature_is_reported(settings: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """By privacy's noise or by asking for it: the plan says it, and fitting warns, with the number."""
    method = read_method(f"bayesgan(steps=60, {settings})")
    ledger = us.Ledger(QUICK, noise=SeededNoise(0))
    plan = method.plan(DOMAIN, ledger.remaining)
    least = min(cast(SubsampledGaussian, query.event).noise_multiplier for query in plan if query.key != "one_way")
    effective_temperature = 1e6 if settings == "posterior_temperature=1e6" else 0.5 * (least * 32) ** 2 / 2
    assert f"temperature {effective_temperature:.3g} at" in plan.notes[0].text
    assert "mostly noise" in plan.notes[0].text
    with pytest.warns(UserWarning, match=f"temperature {effective_temperature:.3g} at".replace("+", "[+]")):
        _handed(method, plan, ledger, monkeypatch)


def test_stairs_follow_their_schedule() -> None:
    made = stages(1000, 0.1, "polynomial", decay=0.5, offset=10.0, max_stages=8)
    assert sum(stage.iterations for stage in made) == 1000
    assert len(made) == 8
    assert made[4].eta == pytest.approx(0.1 * (510 / 10) ** -0.5)
    last = stages(5, 0.1, "exponential", decay=0.0, offset=1.0, max_stages=8)[-1]
    assert last.eta == pytest.approx(0.1 * math.exp(-2.4))
    assert stages(7, 0.1, "constant", decay=0.5, offset=1.0, max_stages=8) == (Stage(7, 0.1),)


# ---------------------------------------------------------------------------------------------------------- small runs


def survey() -> tuple[us.Schema, object]:
    table = demo_table().select(["insurance", "region", "age"]).slice(0, 1000)
    return us.Schema(columns=tuple(demo_schema()[name] for name in table.column_names), rows=1000), table


def test_a_small_run_from_table_to_rows() -> None:
    """Categories and numbers, private; the release is a mixture that saves and loads."""
    schema, table = survey()
    release = us.fit(table, f"bayesgan({SMALL}, discriminator_chains=2)", QUICK, schema=schema)
    assert 0.995 * 0.3 <= release.statement.epsilon <= 0.3
    model: Any = release.model
    assert model.num_generators == 6
    fake: Any = release.sample(500, seed=0)
    assert set(fake.column_names) == set(cast(Any, table).column_names)
    south = release.sample(30, where="region = 'south'", seed=0)
    assert set(south["region"].to_pylist()) == {"south"}


@pytest.mark.slow
def test_rows_are_a_mixture_of_all_generators() -> None:
    """Six generators that each make one level only: every few rows show most of them, and all come evenly."""
    schema, table = survey()
    release = us.fit(table, f"bayesgan({SMALL})", NOT_PRIVATE, schema=schema, seed=0)
    assert isinstance(release.model, PosteriorModel)
    model: Any = release.model.stacked
    exit_layer = model.generator.exit
    size = model.blocks[1].size
    start = model.blocks[0].size
    bias = np.full_like(np.asarray(exit_layer.bias), 0.0)
    for member in range(6):
        bias[member, start + member % size] = 1e3
    forced = eqx.tree_at(
        lambda net: (net.exit.bias, net.exit.weight), model.generator, (bias, np.zeros_like(exit_layer.weight))
    )
    codes = PosteriorModel(dataclasses.replace(model, generator=forced)).sample(9000, key=jax.random.key(0)).codes[:, 1]
    expected = np.bincount(np.arange(6) % size, minlength=size) / 6
    # Blocks are equal, so shares are known but for the cut of the last call: 4 standard errors of 808 rows.
    np.testing.assert_allclose(np.bincount(codes, minlength=size) / 9000, expected, atol=4 * 0.5 * 28.4 / 9000)
    few = PosteriorModel(dataclasses.replace(model, generator=forced)).sample(60, key=jax.random.key(1)).codes[:, 1]
    assert len(np.unique(few)) == np.count_nonzero(expected)  # missed by chance: less than 6 (5/6)^60 = 1e-4


@pytest.mark.slow
def test_a_hot_chain_ends_well_or_names_its_step_size() -> None:
    method, rows, ledger = (
        read_method(f"bayesgan({SMALL}, step_size=0.5)"),
        _rows(),
        us.Ledger(QUICK, noise=SeededNoise(0)),
    )
    plan = method.plan(rows.domain, ledger.remaining)
    with pytest.warns(UserWarning, match="mostly noise"):
        _outcome_of(lambda: method.fit(Run(rows, plan, ledger, key=jax.random.key(0))))


def _rows() -> PrivateRows:
    codes = np.random.default_rng(0).integers(0, 2, (1000, 2)).astype(np.int32)
    return PrivateRows(codes, DOMAIN)


def _outcome_of(call: Callable[[], object]) -> None:
    """A step so large may well diverge: then the message names a setting that exists."""
    try:
        call()
    except ConfigError as error:
        if "step_size" not in str(error):
            raise


@pytest.mark.parametrize(
    ("settings", "setting"),
    [
        ("generator_chains=0", "generator_chains"),
        ("discriminator_chains=0", "discriminator_chains"),
        ("updates=0", "updates"),
        ("steps=0", "steps"),
        ("steps=8", "samples_per_chain"),
        ("step_size=0.0", "step_size"),
        ("step_size=inf", "step_size"),
        ("sampler=hmc", "sampler"),
        ("schedule=cosine", "schedule"),
        ("prior=laplace", "prior"),
        ("chain_pairs=all", "chain_pairs"),
        ("arch=mlp", "arch"),
        ("marginals_fraction=1.0", "marginals_fraction"),
        ("posterior_temperature=-1.0", "posterior_temperature"),
        ("sampling_rate=0.0", "sampling_rate"),
        ("clip_norm=1e-30", "clip_norm"),
        ("stepsize=1.0", "stepsize"),
        ("generator_widths=[8, 16]", "generator_widths"),
        ("critic_widths=[0]", "critic_widths"),
    ],
)
def test_bad_settings_are_refused_before_anything_is_read(settings: str, setting: str) -> None:
    with raises(ConfigError, setting=setting):
        read_method(f"bayesgan({settings})")


@pytest.mark.parametrize(
    "around",
    [
        "boosted({}, checkpoints=3, checkpoint_every=2, rounds=5, samples_per_generator=20)",
        "selected({}, checkpoints=3, task=marginals)",
        "drs({})",
    ],
)
def test_wrappers_train_it_at_its_own_cost(around: str) -> None:
    """The plan of the wrapper is charged, query by query, and what is released has rows of the table's shape."""
    small = "bayesgan(steps=10, generator_chains=2, discriminator_chains=2, latent=4, generator_widths=[8, 8]"
    method: Any = read_method(around.format(f"{small}, critic_widths=[8], samples_per_chain=1)"))
    ledger = us.Ledger(QUICK, noise=SeededNoise(0))
    plan = method.plan(DOMAIN, ledger.remaining)
    codes = np.random.default_rng(0).integers(0, DOMAIN.sizes, size=(60, len(DOMAIN.sizes)), dtype=np.int32)
    model = method.fit(Run(PrivateRows(codes, DOMAIN), plan, ledger, key=jax.random.key(0)))
    assert set(ledger.queries) == set(plan.queries)
    drawn = model.sample(50, key=jax.random.key(1)).codes
    assert drawn.shape == (50, len(DOMAIN.sizes))
    assert (drawn.max(axis=0) < DOMAIN.sizes).all()


def test_the_critic_of_a_checkpoint_is_the_mixture_of_its_discriminators() -> None:
    """Its probability is the mean of theirs; one discriminator is itself."""
    keys = jax.random.split(jax.random.key(0), 3)
    critics = [Critic(4, (5,), key=key) for key in keys]
    row = jnp.asarray([0.3, -1.0, 2.0, 0.1])
    for some in (critics, critics[:1]):
        mixed = CriticMixture(jax.tree_util.tree_map(lambda *leaves: jnp.stack(leaves), *some))
        wanted = np.mean([jax.nn.sigmoid(critic(row)) for critic in some])
        assert float(jax.nn.sigmoid(mixed(row))) == pytest.approx(wanted, abs=1e-6)


def test_a_spent_budget_is_refused() -> None:
    spent = Budget(1.0, 1e-6, (Query("all", "all of it", DiscreteGaussian(0.5)),))
    with pytest.raises(BudgetExceeded):
        read_method("bayesgan(steps=60)").plan(DOMAIN, spent)


# ----------------------------------------------------------------------------------------------------------- simulator


def test_moments_of_the_simulated_table() -> None:
    """Those of the recipe, within 5 standard errors of 200,000 rows; y follows its two branches."""
    table = {
        name: column.to_numpy()
        for name, column in zip(NAMES, montgomery_olivella(200_000, seed=5).columns, strict=True)
    }
    root = math.sqrt(200_000)
    for name, mean, variance in (("x1", 4, 2), ("x2", 10, 10), ("x3", 2, 1.5), ("x5", 6, 3.3), ("x10", 2, 5.5)):
        assert abs(table[name].mean() - mean) < 5 * math.sqrt(variance) / root
        assert table[name].var() == pytest.approx(variance, rel=5 * math.sqrt(6) / root)  # gammas have heavier tails
    correlation = np.corrcoef(table["x9"], table["x10"])[0, 1]
    assert abs(correlation - 0.685 / math.sqrt(8.25)) < 5 / root
    groups = np.stack([table[name] for name in ("x6", "x7", "x8")])
    assert np.all(groups.sum(axis=0) == 1)
    np.testing.assert_allclose(groups.mean(axis=1), 1 / 3, atol=5 * 0.48 / root)
    above = table["x10"] >= 2.5
    np.testing.assert_allclose(table["y"][above], 1750 + 350 * table["x10"][above])
    assert outcome(np.ones(1), np.ones(1), np.zeros(1))[0] == -1
    schema = montgomery_olivella_schema()
    assert schema.names == NAMES
    inside = [np.mean((table[c.name] >= c.bounds[0]) & (table[c.name] <= c.bounds[1])) for c in schema.columns]  # type: ignore[index]  # all columns have bounds
    assert min(inside) > 0.998
