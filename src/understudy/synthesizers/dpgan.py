"""DPGAN: a generator and a critic, the critic trained by DP-SGD.

Xie et al., "Differentially private generative adversarial network", 2018; smart clipping, adaptive clipping and warm
starts after the DP-GAN extended abstract of Boob et al. Deviations, each for soundness or use: gradients are clipped
row by row (the abstract clips their sum), groups share one price, bounds never follow private gradients, draws are
Poisson. Columns are binned and one-hot by default; noisy one-way counts, bought with a part of the budget, hold the
generator's columns in place (`anchor=0` with `marginals_fraction=0` leaves them out, as published).
"""

import dataclasses
import math
from collections.abc import Callable
from typing import Annotated

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PRNGKeyArray

from understudy.encoding.features import FEATURES, MODES, Blocks, Layout, layout_of, num_features
from understudy.errors import ConfigError
from understudy.models.generator import GeneratorModel
from understudy.models.networks import GENERATORS
from understudy.notes import Note
from understudy.privacy.charges import UnitCounts, charge_dpsgd, event_of
from understudy.privacy.clipping import LEAST_CLIP, MOST_CLIP
from understudy.privacy.counts import noisy_counts
from understudy.privacy.dpsgd import PublicSteps
from understudy.privacy.events import DiscreteGaussian, SubsampledGaussian
from understudy.privacy.ledger import Budget, Ledger, Plan, Query
from understudy.privacy.rows import PrivateRows, PublicRows, PublicUnits
from understudy.privacy.sampling import round_sampling_rate
from understudy.progress import Progress, prefix_progress, stretch_progress
from understudy.schema import Domain
from understudy.settings import Between, Count, Fraction, NotNegative, OneOf, Positive, Widths, check_settings
from understudy.synthesizers.protocol import Capabilities, PublicUse
from understudy.training.critics import Conditions, one_hot_blocks
from understudy.training.gan import (
    ADAPTIVE,
    FAKE_TERMS,
    Dials,
    Kept,
    Settings,
    State,
    begun_with,
    carried_over,
    start,
    train,
)
from understudy.training.losses import LOSSES
from understudy.training.trajectory import Trajectory, judge

PUBLIC_BATCH = 512
"""Public rows in a step that warms the networks up."""
MOST_LEVELS = 8
"""A target of more levels is not crossed with the other columns: each adds as many numbers to learn as there are."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class DPGAN:
    """A generator taught by a critic that sees real rows through clipped and noisy gradients only."""

    steps: Count = 1000
    """Critic steps; each costs budget."""
    sampling_rate: float = 1 / 32
    """The share of the units that enters a critic step: public, whatever the number of rows."""
    chunk_size: Count | None = None
    """Units handled at once: fewer need less memory. Left out: nearly every draw at once. Not a matter of privacy."""
    critic_steps: Count = 1
    """Critic steps for each generator step."""
    loss: Annotated[str, OneOf(*LOSSES)] = "gan"
    """gan, saturating_gan, wgan, wgan_gp, dragan or kl_wgan."""
    fake_term: Annotated[str, OneOf(*FAKE_TERMS)] = "separate"
    """separate, or paired: one generated row clipped together with each real one."""
    arch: Annotated[str, OneOf(*GENERATORS)] = "residual"
    """residual, plain, or quail_dpgan as published."""
    features: Annotated[str, OneOf(*FEATURES)] = "binned"
    """What the networks see of a number: binned (a level for each bin), typed (a bounded number, or bits) or modes."""
    modes: Annotated[str, OneOf(*MODES)] = "private"
    """Of features="modes": components fitted to bought histograms, or a public_grid of them."""
    num_modes: Count = 10
    """At most so many components for a number."""
    latent: Count = 64
    generator_widths: Widths = (256, 256)
    critic_widths: Widths = (64, 64)
    """Small on purpose: noise grows with the number of weights. Empty with arch=quail_dpgan: 2m/3 and m/3 for rows of m
    features, as published."""
    critic_learning_rate: Positive = 5e-3
    generator_learning_rate: Positive = 4e-3
    clip_norm: Annotated[float, Between(LEAST_CLIP, MOST_CLIP)] = 1.0
    """How much one unit may add to a step's gradient; with `adaptive`, where the bound begins."""
    clip_groups: Count = 1
    """Smart clipping: groups of weights with bounds of their own, by the size of their gradients on generated rows."""
    clip_allocation: Annotated[str, OneOf("uniform", "optimal")] = "optimal"
    """How noise is shared among groups: uniform, or optimal."""
    adaptive_clip: Annotated[str, OneOf(*ADAPTIVE)] = "none"
    """Where bounds come from: none, public (or generated) rows, quantile (noisy counts), noisy_norm."""
    marginals_fraction: Fraction = 0.1
    """The part of the budget for noisy one-way counts."""
    target_fraction: Fraction = 0.0
    """The part of the budget for noisy counts of each column with the target, where features are binned and the target
    is no number and has no more than 8 declared levels."""
    marginal_weight: NotNegative = 30.0
    """How strongly the generator is held to them."""
    gumbel_temperature: Positive = 0.5
    ema_decay: Fraction = 0.99
    """Decay of the generator's running average, which is what is released."""
    optimizer: Annotated[str, OneOf("adam", "sgd", "rmsprop", "momentum")] = "adam"
    betas: tuple[Fraction, Fraction] = (0.5, 0.9)
    """Of Adam."""
    weight_clip: float = 0.0
    spectral: bool = False
    warm_steps: Count = 500
    """With a public table: critic steps on its rows, without noise, before the first private one."""

    def __post_init__(self) -> None:
        check_settings(self)
        check_shares(self.marginals_fraction, self.target_fraction)
        if self.steps % self.critic_steps:
            raise ConfigError(f"steps ({self.steps}) must be a multiple of critic_steps ({self.critic_steps}).")
        round_sampling_rate(self.sampling_rate)
        self._settings(one_hot_blocks((2, 2)), 100)  # refuses unknown words before anything is spent

    @property
    def capabilities(self) -> Capabilities:
        is_held = self.marginals_fraction > 0 and self.target_fraction > 0 and self.features == "binned"
        return Capabilities(trajectory=True, critics=True, public=PublicUse.ACCEPTED, target=is_held)

    def plan(self, domain: Domain, budget: Budget) -> Plan:
        """One bundle of histograms, then all critic steps; the last fill what is left. No price depends on the rows."""
        queries = self._histograms(domain, budget)
        rate = round_sampling_rate(self.sampling_rate)
        noise = budget.after(queries).calibrate(lambda noise: [SubsampledGaussian(rate, noise, self.steps)])
        what = f"{self.steps} critic steps, each on about one unit in {1 / self.sampling_rate:.0f}"
        queries.append(Query("critic", what, SubsampledGaussian(rate, noise, self.steps), columns=domain.names))
        if domain.target is None or not self.capabilities.target:
            return Plan(tuple(queries))
        held = "The generator is held to noisy counts of every column with the target."
        return Plan(
            tuple(queries), (Note(held if len(queries) > 2 else "The target is a column like any other here."),)
        )

    def _histograms(self, domain: Domain, budget: Budget) -> list[Query]:
        """The bundles of counts that the generator is held to, where any are bought."""
        return histograms(domain, budget, self.marginals_fraction, self.target_fraction * (self.features == "binned"))

    def fit(
        self,
        rows: PrivateRows,
        plan: Plan,
        ledger: Ledger,
        *,
        key: PRNGKeyArray,
        public: PublicRows | None = None,
        progress: Progress | None = None,
    ) -> GeneratorModel:
        """Formal guarantee: the price of the plan's queries; generator, averages and bounds are post-processing.

        Rows of a `public` table warm both networks up and set clip bounds. They are not protected.
        """
        state, _, model_of = self._trained(rows, plan, ledger, progress, key=key, public=public)
        return model_of(state)

    def num_checkpoints(self, every: int) -> int:
        """How many checkpoints there are if one is kept every so many generator steps."""
        return self.steps // self.critic_steps // every

    def trajectory(
        self,
        rows: PrivateRows,
        plan: Plan,
        ledger: Ledger,
        *,
        key: PRNGKeyArray,
        checkpoints: int,
        every: int,
        public: PublicRows | None = None,
        progress: Progress | None = None,
    ) -> Trajectory:
        """Generators, averaged, and critics of the last `checkpoints` states. Formal guarantee: that of `fit`."""
        _, kept, model_of = self._trained(
            rows, plan, ledger, progress, key=key, public=public, keep_every=every, keep_last=checkpoints
        )
        return trajectory_of(kept, model_of)

    def _trained(
        self,
        rows: PrivateRows,
        plan: Plan,
        ledger: Ledger,
        progress: Progress | None,
        *,
        key: PRNGKeyArray,
        public: PublicRows | None = None,
        keep_every: int = 0,
        keep_last: int | None = None,
    ) -> tuple[State, list[Kept], Callable[[State | Kept], GeneratorModel]]:
        """The last state, those kept on the way, and what makes a model of one."""
        domain = rows.domain
        marginals, crossed = bought_shares(rows, plan, ledger)
        layout = layout_of(self.features, domain, rows.scales, marginals, modes=self.modes, num_modes=self.num_modes)
        marginal, held = anchors(layout, marginals, crossed)
        # One-hot codes are made of codes where they are needed; only other features are made beforehand.
        is_binned = self.features == "binned"
        shown = None if is_binned else layout
        # Per step each unit counts once, so the public number of units is the public number of rows or less.
        settings = self._settings(layout.blocks, rows.public_num_rows)
        settings = dataclasses.replace(settings, held_with=target_block(domain) if crossed is not None else None)
        counts = self._unit_counts(plan["critic"], settings.batch)
        charged = charge_dpsgd(rows, plan["critic"], ledger, shown, counts=counts)
        clip = self.clip_norm if charged.is_private else math.inf
        dials = Dials.of(self.critic_learning_rate, self.generator_learning_rate, clip)
        conditions = self._conditions(layout, marginal, rows.public_num_rows)
        network_key, feature_key, warm_key = jax.random.split(key, 3)
        warm, public_units = None, None
        if public is not None:
            public_units = public.arrange(shown, key=feature_key)
            warm = warmed_up(
                settings,
                public_units,
                dials,
                warm_key,
                start(settings, dials, network_key, conditioned=conditions is not None, marginal=held),
                iterations=max(1, self.warm_steps // self.critic_steps),
                conditions=conditions,
                marginal=held,
                progress=progress,
            )
        state, kept = train(
            settings,
            charged,
            dials,
            ledger_key(ledger),
            network_key=network_key,
            iterations=charged.num_steps // self.critic_steps,
            conditions=conditions,
            public=public_units,
            marginal=held,
            state=warm,
            keep_every=keep_every,
            keep_last=keep_last,
            progress=progress,
            slot=ledger.slot(),
        )

        def model_of(state: State | Kept) -> GeneratorModel:
            return GeneratorModel(
                jax.device_get(state.average),
                self.arch,
                domain.names,
                settings.blocks,
                self.latent,
                self.generator_widths,
                None if conditions is None else np.asarray(conditions.marginal),
                None if is_binned else layout,
            )

        return state, kept, model_of

    def _unit_counts(self, query: Query, batch_size: int) -> UnitCounts | None:
        """The counts that adaptive="quantile" needs of every step, within its cost.

        Their noise is a twentieth of a batch; where batches are small, enough that they take a quarter of the cost.
        """
        if self.adaptive_clip != "quantile":
            return None
        multiplier = event_of(query, SubsampledGaussian).noise_multiplier
        return UnitCounts(self.clip_groups, max(batch_size / 20, multiplier * math.sqrt(self.clip_groups)))

    def _conditions(self, layout: Layout, marginal: Array | None, num_rows: int) -> Conditions | None:
        """None: this generator takes no condition."""
        return None

    def _settings(self, blocks: Blocks, num_rows: int) -> Settings:
        batch = max(1, round(round_sampling_rate(self.sampling_rate) * num_rows))
        critic_widths = self.critic_widths
        if self.arch == "quail_dpgan" and not critic_widths:
            critic_widths = tuple(max(1, num_features(blocks) * part // 3) for part in (2, 1))
        return Settings(
            blocks=blocks,
            batch=batch,
            chunk=self.chunk_size,
            loss=self.loss,
            fake_term=self.fake_term,
            latent=self.latent,
            generator=self.arch,
            generator_widths=self.generator_widths,
            critic_widths=critic_widths,
            critic_steps=self.critic_steps,
            temperature=self.gumbel_temperature,
            average=self.ema_decay,
            optimiser=self.optimizer,
            betas=self.betas,
            weight_clip=self.weight_clip,
            spectral=self.spectral,
            groups=self.clip_groups,
            allocation=self.clip_allocation,
            adaptive=self.adaptive_clip,
            anchor=self.marginal_weight if self.marginals_fraction else 0.0,
        )


def check_shares(marginals_fraction: float, target_fraction: float) -> None:
    """Refuse fractions of the budget that leave nothing for training."""
    if marginals_fraction + target_fraction >= 1:
        raise ConfigError("marginals_fraction and target_fraction must leave a part of the budget for training.")


def target_block(domain: Domain) -> int | None:
    """Where the target stands, if there is one of few declared levels beside other columns.

    Where its levels are bought, their number must move no price: pairs with it are bought however many there are. The
    bins of a number are bought too, and may be many: pairs with one never are, however few are found.
    """
    if domain.target is None or len(domain.names) < 2 or domain.target in domain.numeric:
        return None
    if domain.target not in domain.estimated and domain.shape((domain.target,))[0] > MOST_LEVELS:
        return None
    return domain.index(domain.target)


def histograms(domain: Domain, budget: Budget, marginals_fraction: float, target_fraction: float) -> list[Query]:
    """One histogram of each column, and of each with the target, as one bundle each, for these parts of the budget.

    Pairs are believed only beside the shares of single columns, so without these there are none.
    """

    def bundle(name: str, what: str, count: int, share: float) -> Query:
        def event(noise: float) -> DiscreteGaussian:
            return DiscreteGaussian(noise, count, budget.max_rows_per_unit)

        stddev = budget.fraction(share).calibrate(lambda noise: [event(noise)])
        return Query(name, what, event(stddev), columns=domain.names)

    count = len(domain.names)
    queries = []
    if marginals_fraction:
        queries.append(bundle("one_way", f"one histogram for each of {count} columns", count, marginals_fraction))
    if marginals_fraction and target_fraction and target_block(domain) is not None:
        what = f"counts of {domain.target!r} with each of {count - 1} columns"
        queries.append(bundle("two_way", what, count - 1, target_fraction))
    return queries


def bought_shares(rows: PrivateRows, plan: Plan, ledger: Ledger) -> tuple[list[np.ndarray] | None, np.ndarray | None]:
    """Shares of each column's levels, and of all levels together with each of the target's, as far as planned.

    Formal guarantee: the price of the queries "singles" and "pairs", where the plan has them.
    """
    domain = rows.domain
    if "one_way" not in plan:
        return None, None
    marginals = [shares(table) for table in noisy_counts(rows, domain.one_way, plan["one_way"], ledger)]
    if "two_way" not in plan:
        return marginals, None
    target, event = domain.target, plan["two_way"].event
    assert target is not None
    assert isinstance(event, DiscreteGaussian)
    others = [name for name in domain.names if name != target]
    found = noisy_counts(rows, [(target, name) for name in others], plan["two_way"], ledger)
    noise, own = event.stddev / rows.public_num_rows, marginals[domain.index(target)]
    crossed = dict(zip(others, found, strict=True))
    blocks = [
        believed(crossed[name] / rows.public_num_rows, own, marginal, noise) if name in crossed else np.diag(own) * 0
        for name, marginal in zip(domain.names, marginals, strict=True)
    ]
    return marginals, np.concatenate(blocks, axis=1)


def believed(noisy: np.ndarray, first: np.ndarray, second: np.ndarray, noise: float) -> np.ndarray:
    """Shares of pairs: those of independent columns but where the noisy ones are away from them by twice the noise.

    Rare pairs would otherwise be mostly noise, and never below zero. Rescaled to the shares of both columns.
    """
    independent = np.outer(first, second)
    table = np.where(np.abs(noisy - independent) > 2 * noise, np.maximum(noisy, 0.0), independent) + 1e-9
    for _ in range(10):
        table = table * (first / table.sum(axis=1))[:, None]
        table = table * (second / table.sum(axis=0))
    return table


def anchors(
    layout: Layout, marginals: list[np.ndarray] | None, crossed: np.ndarray | None
) -> tuple[Array | None, Array | None]:
    """Shares of the features of a row, and what the generator is held to: these, above the crossed ones if any."""
    if marginals is None:
        return None, None
    marginal = jnp.asarray(layout.shares(marginals), dtype=jnp.float32)
    if crossed is None:
        return marginal, marginal
    return marginal, jnp.concatenate([marginal[None], jnp.asarray(crossed, dtype=jnp.float32)])


def warmed_up(
    settings: Settings,
    units: PublicUnits,
    dials: Dials,
    key: PRNGKeyArray,
    state: State,
    *,
    iterations: int,
    conditions: Conditions | None,
    marginal: Array | None,
    progress: Progress | None,
) -> State:
    """A start for private rows: networks trained on from these, on public ones, without noise, bound or charge."""
    batch = min(PUBLIC_BATCH, len(units.rows))
    plain = dataclasses.replace(settings, batch=batch, groups=1, adaptive="none")
    free = dataclasses.replace(dials, clip=jnp.float32(math.inf), is_private=False)
    rate = round_sampling_rate(batch / len(units.rows))
    state, _ = train(
        plain,
        PublicSteps(units, rate, iterations * settings.critic_steps),
        free,
        key,
        network_key=key,  # of fresh networks; these are given
        state=begun_with(plain, free, state.generator, state.critic),
        iterations=iterations,
        conditions=conditions,
        marginal=marginal,
        progress=progress and prefix_progress(stretch_progress(progress, 0.0, 0.0), "public rows: "),
    )
    return carried_over(settings, dials, state)


def trajectory_of(kept: list[Kept], model_of: Callable[[Kept], GeneratorModel]) -> Trajectory:
    """Averaged generators and critics of what was kept of a training."""
    models = tuple(model_of(state) for state in kept)
    blocks, layout, conditional = models[0].blocks, models[0].layout, models[0].marginal is not None
    wanted = None if layout is None else [column is not None for column in layout.discrete]
    critics = judge([state.critic for state in kept], blocks, conditional=conditional, wanted=wanted)
    return Trajectory(models, critics, layout)


def ledger_key(ledger: Ledger) -> PRNGKeyArray:
    """A key for draws, noise and networks, from the run's own source of randomness."""
    return ledger.noise.key()


def shares(noisy: np.ndarray) -> np.ndarray:
    """A distribution from noisy counts: no level is impossible."""
    cleaned = np.maximum(noisy, 0.5)
    return cleaned / cleaned.sum()
