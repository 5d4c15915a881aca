"""DPGAN: a generator and a critic, the critic trained by DP-SGD.

Xie et al., "Differentially private generative adversarial network", 2018; smart clipping, adaptive clipping and warm
starts after the DP-GAN extended abstract of Boob et al. Deviations, each for soundness or use: gradients are clipped
row by row (the abstract clips their sum), groups share one price, bounds never follow private gradients, draws are
Poisson. Columns are binned and one-hot; noisy one-way counts, bought with a part of the budget, hold the generator's
columns in place (`anchor=0` with `marginals_share=0` leaves them out, as published).
"""

import dataclasses
import math
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PRNGKeyArray

from understudy.adversarial.critics import Conditions, one_hot_blocks
from understudy.adversarial.models import GeneratorModel
from understudy.adversarial.training import Dials, Settings, train
from understudy.errors import ConfigError
from understudy.networks import GENERATORS, Blocks
from understudy.privacy.accounting import DiscreteGaussian, SubsampledGaussian
from understudy.privacy.gradients import multiplier_beside_counts
from understudy.privacy.ledger import Budget, Ledger, Look, Plan
from understudy.privacy.mechanisms import Rows, noisy_counts, pay_for_steps
from understudy.privacy.sampling import drawn_rate
from understudy.schema import Domain


@dataclasses.dataclass(frozen=True, kw_only=True)
class DPGAN:
    """A generator taught by a critic that sees real rows through clipped and noisy gradients only."""

    steps: int = 1000
    """Critic steps; each costs budget."""
    rate: float = 1 / 32
    """The share of the units that enters a critic step: public, whatever the number of rows."""
    critic_steps: int = 1
    """Critic steps for each generator step."""
    loss: str = "gan"
    """gan, saturating_gan, wgan, wgan_gp, dragan or kl_wgan."""
    fake_term: str = "separate"
    """separate, or paired: one generated row clipped together with each real one."""
    arch: str = "residual"
    """residual, plain, or quail_dpgan as published."""
    latent: int = 64
    generator_widths: tuple[int, ...] = (256, 256)
    critic_widths: tuple[int, ...] = (64, 64)
    """Small on purpose: noise grows with the number of weights."""
    critic_rate: float = 5e-3
    generator_rate: float = 4e-3
    clip: float = 1.0
    """How much one unit may add to a step's gradient; with `adaptive`, where the bound begins."""
    groups: int = 1
    """Smart clipping: groups of weights with bounds of their own, by the size of their gradients on generated rows."""
    allocation: str = "optimal"
    """How noise is shared among groups: uniform, or optimal."""
    adaptive: str = "none"
    """Where bounds come from: none, public (or generated) rows, quantile (noisy counts), noisy_norm."""
    marginals_share: float = 0.1
    """The part of the budget for noisy one-way counts."""
    anchor: float = 30.0
    """How strongly the generator is held to them."""
    temperature: float = 0.5
    average: float = 0.99
    """Decay of the generator's running average, which is what is released."""
    optimiser: str = "adam"
    weight_clip: float = 0.0
    spectral: bool = False

    def __post_init__(self) -> None:
        whole = {"steps": self.steps, "critic_steps": self.critic_steps, "latent": self.latent, "groups": self.groups}
        for name, value in whole.items():
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                raise ConfigError(f"{name} must be a whole number of at least 1, found {value}.")
        rates = {"critic_rate": self.critic_rate, "generator_rate": self.generator_rate}
        for name, number in {**rates, "clip": self.clip, "temperature": self.temperature}.items():
            if not 0 < number < math.inf:
                raise ConfigError(f"{name} must be a positive number, found {number}.")
        if self.arch not in GENERATORS:
            raise ConfigError(f"arch must be one of {', '.join(GENERATORS)}, found {self.arch!r}.")
        if not 0 <= self.marginals_share < 1:
            raise ConfigError(
                f"marginals_share is a part of the budget, from 0 to below 1, found {self.marginals_share}."
            )
        if not 0 <= self.anchor < math.inf or not 0 <= self.average < 1:
            raise ConfigError("anchor must be at least 0, and average from 0 to below 1.")
        if self.steps % self.critic_steps:
            raise ConfigError(f"steps ({self.steps}) must be a multiple of critic_steps ({self.critic_steps}).")
        drawn_rate(self.rate)
        self._settings((2, 2), 100)  # refuses unknown words before anything is spent

    def plan(self, domain: Domain, budget: Budget) -> Plan:
        """One bundle of histograms, then all critic steps; the last fill what is left. No price depends on the rows."""
        looks: list[Look] = []
        if self.marginals_share:
            count = len(domain.names)

            def singles(noise: float) -> DiscreteGaussian:
                return DiscreteGaussian(noise, count, budget.max_rows_per_unit)

            stddev = budget.part(self.marginals_share).calibrate(lambda noise: [singles(noise)])
            looks.append(
                Look("singles", f"one histogram for each of {count} columns", singles(stddev), columns=domain.names)
            )
        rate = drawn_rate(self.rate)
        noise = budget.after(looks).calibrate(lambda noise: [SubsampledGaussian(rate, noise, self.steps)])
        what = f"{self.steps} critic steps, each on about one unit in {1 / self.rate:.0f}"
        looks.append(Look("critic", what, SubsampledGaussian(rate, noise, self.steps), columns=domain.names))
        notes = () if domain.target is None else ("The target is a column like any other here.",)
        return Plan(tuple(looks), notes)

    def fit(
        self,
        rows: Rows,
        plan: Plan,
        ledger: Ledger,
        *,
        key: PRNGKeyArray,
        progress: Callable[[float, str], None] | None = None,
    ) -> GeneratorModel:
        """Formal guarantee: the price of the plan's looks; generator, averages and bounds are post-processing."""
        domain = rows.domain
        marginal = None
        if self.marginals_share:
            tables = noisy_counts(rows, domain.singles, plan["singles"], ledger)
            marginal = jnp.asarray(np.concatenate([shares(table) for table in tables]), dtype=jnp.float32)
        paid = pay_for_steps(rows, plan["critic"], ledger)
        # Per step each unit counts once, so the public number of units is the public number of rows or less.
        settings = self._settings(domain.sizes, domain.num_rows)
        multiplier = paid.noise_multiplier
        if self.adaptive == "quantile" and multiplier:
            multiplier = multiplier_beside_counts(multiplier, self.groups, settings.count_stddev)
        clip = self.clip if multiplier else math.inf
        dials = Dials.of(multiplier, self.critic_rate, self.generator_rate, clip)
        conditions = self._conditions(settings.blocks, marginal, domain.num_rows)
        state, _ = train(
            settings,
            paid.units,
            dials,
            ledger_key(ledger),
            iterations=paid.steps // self.critic_steps,
            conditions=conditions,
            marginal=marginal,
            progress=progress,
        )
        return GeneratorModel(
            jax.device_get(state.average),
            self.arch,
            domain.names,
            settings.blocks,
            self.latent,
            self.generator_widths,
            None if conditions is None else np.asarray(conditions.marginal),
        )

    def _conditions(self, blocks: Blocks, marginal: Array | None, num_rows: int) -> Conditions | None:
        """None: this generator takes no condition."""
        return None

    def _settings(self, sizes: tuple[int, ...], num_rows: int) -> Settings:
        batch = max(1, round(drawn_rate(self.rate) * num_rows))
        return Settings(
            blocks=one_hot_blocks(sizes),
            rate=drawn_rate(self.rate),
            batch=batch,
            loss=self.loss,
            fake_term=self.fake_term,
            latent=self.latent,
            generator=self.arch,
            generator_widths=self.generator_widths,
            critic_widths=self.critic_widths,
            critic_steps=self.critic_steps,
            temperature=self.temperature,
            average=self.average,
            optimiser=self.optimiser,
            weight_clip=self.weight_clip,
            spectral=self.spectral,
            groups=self.groups,
            allocation=self.allocation,
            adaptive=self.adaptive,
            count_stddev=batch / 20 if self.adaptive == "quantile" else 0.0,
            anchor=self.anchor if self.marginals_share else 0.0,
        )


def ledger_key(ledger: Ledger) -> PRNGKeyArray:
    """A key for draws, noise and networks, from the run's own source of randomness."""
    return ledger.noise.key()


def shares(noisy: np.ndarray) -> np.ndarray:
    """A distribution from noisy counts: no level is impossible."""
    cleaned = np.maximum(noisy, 0.5)
    return cleaned / cleaned.sum()
