"""DP-BayesGAN: chains of generators and discriminators that sample a posterior, the discriminators by DP-SGLD.

Arnold, Neunhoeffer and Sternberg, "Releasing differentially private synthetic micro-data with Bayesian GANs", after
Saatchi and Wilson's Bayesian GAN. Deviations, each for soundness or use: gradients are clipped row by row, since
nothing else bounds them; a real row's gradient stands in a step once, not once for each pair of chains; every update of
every discriminator chain draws its own rows and is charged; noise follows from the guarantee and not from the paper's
theorem, which asks for 30 to 50 times as much. Columns are binned and one-hot by default, so categories work too, and
noisy one-way counts hold the generators' columns in place, as in `dpgan` (`marginals_fraction=0` leaves them out).
"""

import dataclasses
import math
import warnings
from collections.abc import Sequence
from typing import Annotated, ClassVar

import jax
import numpy as np

from understudy.encoding.features import Blocks
from understudy.errors import BudgetExceeded, ConfigError
from understudy.models.generator import PosteriorModel
from understudy.models.neural import GeneratorNetwork
from understudy.models.zeros import Masks
from understudy.notes import Note
from understudy.privacy.accounting.events import SubsampledGaussian
from understudy.privacy.accounting.ledger import Budget, Plan, Query
from understudy.privacy.gradients.charges import charge_langevin, event_of
from understudy.privacy.gradients.clipping import Clip
from understudy.privacy.gradients.langevin import SCHEDULES, Law, Stage, stages, step_parameters
from understudy.privacy.gradients.poisson import round_sampling_rate
from understudy.schema import Domain
from understudy.synthesizers.protocol import Capabilities
from understudy.synthesizers.run import Run, describe_chosen_steps, moments_note
from understudy.synthesizers.settings import Count, NotNegative, OneOf, Positive, Widths, check_settings
from understudy.training.critics import one_hot_blocks
from understudy.training.generation import Context
from understudy.training.langevin import PRIORS, Chains, train_chains
from understudy.training.loop import RunOptions, TrainingCheckpoint
from understudy.training.neural import CriticMixture
from understudy.training.prepare import Prepared, plan_marginals, prepare
from understudy.training.settings import (
    ClipNorm,
    GeneratorSettings,
    MarginalSettings,
    ModeSettings,
    Settings,
    StepSettings,
)
from understudy.training.trajectory import Trajectory, score_by_critics

SAMPLERS = ("sgld", "sghmc")
PAIRS = ("mean", "sum")
MAX_STAGES = 8
ABSURD = 100.0
"""Beyond this temperature the noise of privacy has little to do with the posterior: a warning says so."""
STEP = 0.1
"""Where no step size is given it is this over the public number of rows: so far goes a step along the mean gradient."""


DECAY, OFFSET = 0.55, 100.0
"""The polynomial schedule (Welling and Teh's gamma and b): its exponent, and the iterations before it falls."""
FRICTION = 0.1
"""For sghmc, the fraction of the momentum that each update loses (Chen, Fox and Guestrin's alpha)."""
BURN_IN = 0.5
"""The fraction of the steps before the first state that is kept."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class BayesGAN(StepSettings, ModeSettings, GeneratorSettings, MarginalSettings):
    """A mixture of generators, sampled from a posterior by private Langevin dynamics.

    >>> import understudy as us
    >>> us.express(us.BayesGAN(latent=32))  # as --method reads it
    'bayesgan(latent=32)'
    """

    capabilities: ClassVar[Capabilities] = Capabilities(trajectory=True, critics=True, rows=True)

    steps: Count | None = None
    """Iterations; in each, every chain is updated. Left out: 1000, or as many as the budget covers with
    `noise_multiplier`."""
    generator_chains: Count = 10
    """The number of generators, each sampled by a chain of its own."""
    discriminator_chains: Count = 1
    """Each of them queries the private rows and is charged."""
    updates: Count = 1
    """Updates of every chain in an iteration."""
    sampler: Annotated[str, OneOf(*SAMPLERS)] = "sgld"
    """sgld, or sghmc: with momentum."""
    step_size: Positive | None = None
    """None: 0.1 over the public number of rows. If set, the noise that Langevin dynamics needs counts for privacy."""
    schedule: Annotated[str, OneOf(*SCHEDULES)] = "constant"
    """constant, polynomial or exponential: how step sizes fall, in at most eight stages."""
    samples_per_chain: Count = 5
    """States kept of every generator chain, evenly thinned over the steps after burn-in."""
    posterior_temperature: NotNegative = 1e-3
    """Temperature of the posterior to sample from. 1: the posterior itself; below 1: colder, that is sharper."""
    prior: Annotated[str, OneOf(*PRIORS)] = "unit"
    """Normals around zero: unit, as published, or scaled: the variance is divided by the inputs of a layer."""
    prior_stddev: Positive = 1.0
    """The standard deviation of those normals."""
    chain_pairs: Annotated[str, OneOf(*PAIRS)] = "mean"
    """mean over pairs of chains, or sum: the published power posterior."""
    clip_norm: ClipNorm = 1.0
    """The clip norm of one unit's gradient in an update."""
    generator_widths: Widths = (128, 128)
    """The widths of the hidden layers of a generator."""
    critic_widths: Widths = (64, 64)
    """Small on purpose: noise grows with the number of weights."""
    generator_batch: Count = 128
    """The number of rows that a generator makes for one of its updates."""
    marginal_weight: NotNegative = 3.0
    """How strongly generators are regularised towards noisy marginals: 1 counts a row's categories as a row."""

    def __post_init__(self) -> None:
        check_settings(self)
        self.check_steps()
        if self.noise_multiplier is None and self._thinning < 1:
            raise ConfigError(
                f"samples_per_chain is {self.samples_per_chain}, but a chain has "
                f"{self.num_steps - self._burn_in_steps} steps after burn-in. Raise steps, or lower "
                "samples_per_chain.",
                setting="samples_per_chain",
            )
        round_sampling_rate(self.sampling_rate)
        self._chains(one_hot_blocks((2, 2)), 100)  # refuses unknown words before anything is spent

    @property
    def _burn_in_steps(self) -> int:
        return math.ceil(BURN_IN * self.num_steps)

    @property
    def _thinning(self) -> int:
        """Steps between two kept states."""
        return (self.num_steps - self._burn_in_steps) // self.samples_per_chain

    @property
    def _friction(self) -> float:
        return 1.0 if self.sampler == "sgld" else FRICTION

    @property
    def _power(self) -> float:
        return float(self.generator_chains * self.discriminator_chains) if self.chain_pairs == "sum" else 1.0

    @property
    def _drift_sensitivity(self) -> float:
        """How far one unit moves the drift of a discriminator: clipped, then scaled."""
        return self.clip_norm * self._power / round_sampling_rate(self.sampling_rate)

    def _stages(self, num_rows: int, steps: int | None = None) -> tuple[Stage, ...]:
        """The schedule, of a number of steps that is tried or else of that of the settings."""
        first = STEP / num_rows if self.step_size is None else self.step_size
        return stages(steps or self.num_steps, first, self.schedule, decay=DECAY, offset=OFFSET, max_stages=MAX_STAGES)

    @property
    def _law(self) -> Law:
        return Law(self._drift_sensitivity, self.posterior_temperature, self._friction, momentum=self.sampler != "sgld")

    def _events(self, schedule: Sequence[Stage], noise: float) -> list[SubsampledGaussian]:
        """One for each stretch of stages with one multiplier: every update of every discriminator chain counts.

        The noise of Langevin counts only where the step size is a setting: a step size that follows from an estimated
        number of rows must not affect the cost. There it is drawn all the same.
        """
        counted = [noise] * len(schedule)
        if self.step_size is not None:
            counted = self._law.noise_multipliers(schedule, counted)
        events: list[SubsampledGaussian] = []
        for stage, multiplier in zip(schedule, counted, strict=True):
            steps = stage.iterations * self.discriminator_chains * self.updates
            if events and events[-1].noise_multiplier == multiplier:
                steps += events.pop().steps
            events.append(SubsampledGaussian(round_sampling_rate(self.sampling_rate), multiplier, steps))
        return events

    def plan(self, domain: Domain, budget: Budget) -> Plan:
        """One bundle of histograms, then all updates of discriminators; the last fill what is left. No cost depends on
        the rows."""
        self.check_features(domain)
        queries = plan_marginals(domain, budget, self.marginals_fraction)
        left, noise, chosen, why = budget.after(queries), self.noise_multiplier, self, ""
        if noise is None:
            schedule = self._stages(domain.num_rows)
            noise = left.calibrate(lambda noise: self._events(schedule, noise))
            events = self._events(schedule, noise)
        else:
            chosen = self._with_steps(left.most_steps(lambda steps: self._noisy_events(domain, steps)))
            events = self._noisy_events(domain, chosen.num_steps)
            why = describe_chosen_steps(left, events)
        for number, event in enumerate(events):
            chains = f"{self.discriminator_chains} discriminator{'s' * (self.discriminator_chains > 1)}"
            what = f"{event.steps} updates of {chains}, each on about one unit in {1 / self.sampling_rate:.0f}"
            what += why if number == 0 else ""
            queries.append(Query(f"discriminators {number + 1}", what, event, columns=domain.names))
        text, is_hot = chosen._describe_temperature(domain.num_rows, noise if budget.is_private else 0.0)
        notes = (Note(text),) if budget.is_private or is_hot else ()
        return Plan(tuple(queries), notes if self.noise_multiplier is None else (*notes, moments_note(left, events)))

    def _noisy_events(self, domain: Domain, steps: int) -> list[SubsampledGaussian]:
        """The events of this number of steps with the noise multiplier of the settings."""
        assert self.noise_multiplier is not None
        return self._events(self._stages(domain.num_rows, steps), self.noise_multiplier)

    def _with_steps(self, steps: int) -> "BayesGAN":
        """The same settings with a number of steps in place of a noise multiplier."""
        return dataclasses.replace(self, steps=steps, noise_multiplier=None)

    def num_checkpoints(self, every: int) -> int:
        """The number of checkpoints if one is kept every `every` steps."""
        return self.num_steps // every

    def _describe_temperature(self, num_rows: int, noise: float) -> tuple[str, bool]:
        """What the noise of privacy makes of the temperature that was asked for, and whether that is far too much."""
        asked, schedule = self.posterior_temperature, self._stages(num_rows)
        found = [
            stage.effective_temperature(noise, self._drift_sensitivity, asked, self._friction) for stage in schedule
        ]
        coolest, hottest, first = min(found), max(found), schedule[0].eta
        between = f"{coolest:.3g}" if coolest == hottest else f"{coolest:.3g} to {hottest:.3g}"
        text = (
            f"The discriminator chains have temperature {between} at step size {first:.3g} (1 is the posterior; "
            f"posterior_temperature is {asked:g})."
        )
        if asked > ABSURD:
            text += " At this temperature samples are mostly noise. Set posterior_temperature to 1 or less."
            return text, True
        usual = max(1.0, asked)
        if hottest <= ABSURD * usual:
            return text, False
        advice = (
            "At this temperature samples are mostly noise. It is proportional to step_size: with "
            f"step_size={first * usual / hottest:.2g} it would be {usual:g}."
        )
        return f"{text} {advice}", True

    def fit(self, run: Run) -> PosteriorModel:
        """Formal guarantee: the cost of the plan's queries. Generators, and all states on the way, are post-processing
        of noisy counts and noisy updates: no other thing that they are made of has seen a row."""
        queries = self._planned(run)
        updates = self.discriminator_chains * self.updates
        made = sum(event_of(query, SubsampledGaussian).steps for query in queries) // updates
        chosen = self if self.noise_multiplier is None else self._with_steps(made)
        options = RunOptions(keep_every=chosen._thinning, keep_last=chosen.samples_per_chain, progress=run.progress)
        prepared, kept = chosen._train(run, queries, options)
        return PosteriorModel(prepared.model(self, run.domain.names, concatenate_generators(kept)))

    def trajectory(self, run: Run, *, checkpoints: int, every: int) -> Trajectory:
        """All generator chains, and the mixture of all discriminator chains, of the last `checkpoints` states.

        Formal guarantee: that of `fit`. Burn-in is a matter of which checkpoints are used.
        """
        queries = self._planned(run)
        options = RunOptions(keep_every=every, keep_last=checkpoints, progress=run.progress)
        prepared, kept = self._train(run, queries, options)
        models = tuple(PosteriorModel(prepared.model(self, run.domain.names, state.average)) for state in kept)
        critics = [CriticMixture(state.critic) for state in kept]
        return Trajectory(models, score_by_critics(critics, prepared.layout.blocks), prepared.encoder)

    def _train(
        self, run: Run, queries: Sequence[Query], options: RunOptions
    ) -> tuple[Prepared, list[TrainingCheckpoint]]:
        """Make the plan's queries. The number of steps is that of these settings."""
        rows, plan, ledger, domain = run.rows, run.plan, run.ledger, run.domain
        prepared = prepare(self, rows, plan, ledger)
        schedule, updates = self._stages(domain.num_rows), self.discriminator_chains * self.updates
        charged = charge_langevin(
            rows, queries, ledger, prepared.encoder, schedule=schedule, law=self._law, updates_each=updates
        )
        is_private = charged.steps.is_private
        noise = min(event_of(query, SubsampledGaussian).noise_multiplier for query in queries) if is_private else 0.0
        text, is_hot = self._describe_temperature(domain.num_rows, noise)
        if is_hot:
            warnings.warn(text, stacklevel=2)
        kept = train_chains(
            self._chains(prepared.layout.blocks, domain.num_rows, prepared.masks),
            charged,
            Clip.flat(self.clip_norm if is_private else math.inf),
            step_parameters(schedule, [0.0] * len(schedule), dataclasses.replace(self._law, drift_sensitivity=0.0)),
            ledger.noise.key(),
            network_key=jax.random.split(run.key)[0],
            context=Context(marginal=prepared.marginal),
            options=dataclasses.replace(options, slot=ledger.slot()),
        )
        return prepared, kept

    def _planned(self, run: Run) -> list[Query]:
        """The queries of discriminators. Those of other settings are refused: what is done follows from these ones."""
        queries, domain = [query for query in run.plan if query.key != "one_way"], run.domain
        events = [query.event for query in queries]
        multipliers = [event.noise_multiplier for event in events if isinstance(event, SubsampledGaussian)]
        expected: list[SubsampledGaussian] | None = None
        if multipliers and self.noise_multiplier is not None:
            total = sum(event.steps for event in events if isinstance(event, SubsampledGaussian))
            expected = self._noisy_events(domain, total // (self.discriminator_chains * self.updates))
        elif multipliers:
            expected = self._events(self._stages(domain.num_rows), min(multipliers))
        if events != expected:
            raise BudgetExceeded(
                "The plan charges for different updates than these settings make. Plan and fit with the same settings."
            )
        return queries

    def _chains(self, blocks: Blocks, num_rows: int, masks: Masks = ()) -> Chains:
        rate = round_sampling_rate(self.sampling_rate)
        engine = Settings.of(
            self,
            blocks=blocks,
            batch_size=max(1, round(rate * num_rows)),
            critic_steps=self.discriminator_chains * self.updates,
            marginal_weight=self.marginal_weight if self.marginals_fraction else 0.0,
            masks=masks,
        )
        return Chains(
            engine,
            self.generator_chains,
            self.discriminator_chains,
            self.updates,
            num_rows,
            self._power,
            self.prior,
            self.prior_stddev,
            self._friction,
        )


def concatenate_generators(trajectory: Sequence[TrainingCheckpoint]) -> GeneratorNetwork:
    """All generators of all checkpoints along one axis."""
    return jax.tree_util.tree_map(lambda *leaves: np.concatenate(leaves), *(state.average for state in trajectory))
