"""GEM: a generator trained on privately measured marginals.

After Liu, Vietri and Wu, "Iterative methods for private synthetic data: unifying framework and new methods", 2021.
Deviations: unless the table is wide for its budget, all marginals of the workload are measured, and without a target
some pairs twice, under one Gaussian cost that does not depend on their number or sizes; codes too rare for the noise
are merged; with a target, pairs of columns are measured within its classes; the loss is that of
`training/marginal_matching.py`. With a `critic_fraction`, a critic trained by DP-SGD as in `dpgan` corrects what the
marginals do not determine.
"""

import dataclasses
import math
from collections.abc import Callable
from typing import Annotated

import jax
import numpy as np
from jaxtyping import PRNGKeyArray

from understudy.marginals.expected import precision_of
from understudy.models.mixture import MixtureOfProducts
from understudy.notes import Note
from understudy.privacy.charges import charge_dpsgd
from understudy.privacy.clipping import LEAST_CLIP, MOST_CLIP
from understudy.privacy.events import Gaussian, Selections, SubsampledGaussian
from understudy.privacy.filters import charge_marginals
from understudy.privacy.ledger import Budget, Ledger, Plan, Query
from understudy.privacy.marginal_noise import ExpectedNoise
from understudy.privacy.rows import Clique, PrivateRows
from understudy.privacy.sampling import round_sampling_rate
from understudy.privacy.selection import noisy_selections
from understudy.progress import Progress
from understudy.schema import Domain
from understudy.settings import (
    Between,
    Count,
    Fraction,
    InnerFraction,
    Listed,
    OneOf,
    Positive,
    SettingError,
    Widths,
    check_settings,
)
from understudy.synthesizers.gem.allocation import LEAST_FRACTION
from understudy.synthesizers.gem.critic_inputs import critic_inputs
from understudy.synthesizers.gem.expected import expected_marginals
from understudy.synthesizers.gem.measurements import MarginalMeasurements
from understudy.synthesizers.protocol import Capabilities
from understudy.synthesizers.run import Run
from understudy.training.critics import one_hot_blocks
from understudy.training.gan import Hyperparameters, init_from_networks
from understudy.training.gan import train as train_both
from understudy.training.generation import Context
from understudy.training.loop import RunOptions, TrainingCheckpoint
from understudy.training.marginal_matching import (
    BETAS,
    Components,
    Fit,
    MarginalLoss,
    State,
    by_chance,
    falling,
    heads_of,
    init_state,
    train,
)
from understudy.training.networks import Centred, Constant, Critic
from understudy.training.settings import Settings
from understudy.training.trajectory import Trajectory, score_by_critics

MODES = ("auto", "one_shot", "adaptive")
TOO_NOISY = 0.03
"""The noise of a count over the number of rows above which not all 2-way marginals are measured at once."""
TOO_NOISY_ALONE = 0.002
"""The same for a marginal that is measured alone: too few rows for the budget, whatever the number of columns."""
FEW_CODES, FEW_THREE_WAY = 4, 10_000
"""By default, 3-way marginals are measured if all columns have at most this many codes, there are at most this many
3-way marginals ..."""
THREE_WAY_NOISE = 0.012
"""... and the noise of their counts is below this fraction of the rows ..."""
THREE_WAY_FRACTION = 0.25
"""... with this fraction of the precision for 2-way marginals."""
REMEASUREMENT_FRACTION = 0.5
"""The fraction of the precision for 2-way marginals that is reserved for re-measurement, without a target. With one it
improves 2-way marginals by a few per cent, and makes predictions of the target worse."""
AND_THREE_WAY = ", and 3-way marginals"
WITH_THREE_WAY = "3-way"
"""The kind of a query that 3-way marginals are measured by too."""
Part = Annotated[float, Between(LEAST_FRACTION, 1 - LEAST_FRACTION)]
UNKNOWN_SIZE = 10_000
"""The number of rows that a plan assumes if it is not declared: no choice may depend on a private estimate."""
SPREAD, WIDE_SPREAD = 0.1, 1.0
"""The spread of the initial components, without and with a critic. A critic needs distinct components: from equal ones,
changes of one column show nothing of a parity of four."""
CRITIC_LEARNING_RATE_FACTOR = 0.25
"""The factor of the generator's learning rate in training with a critic."""
GENERATOR_BATCH = 256
"""The rows that a critic scores in a generator step, with each of their codes exchanged in turn."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class GEM:
    """A generator network trained on noisy 2-way marginals, within classes of the target if there is one."""

    mode: Annotated[str, OneOf(*MODES)] = "auto"
    """one_shot: measure all 2-way marginals at once. adaptive: in each round select those with the largest error of the
    generator. auto: by the number of columns, the declared rows and the budget."""
    rounds: Count = 6
    """The number of rounds of the adaptive mode."""
    num_selections: Count | None = None
    """The number of 2-way marginals that the adaptive mode selects in all. None: one for each column."""
    selection_fraction: Part = 0.1
    """The fraction of the budget for these selections."""
    one_way_fraction: Part = 0.1
    """The fraction of the precision for 1-way marginals."""
    target_fraction: InnerFraction = 0.2
    """The fraction of the precision for 2-way marginals with the target, if there is one. The rest is for other 2-way
    marginals and the given cliques."""
    max_classes: Count = 6
    """The largest number of classes of the target that 2-way marginals are measured within; rare or neighbouring codes
    are merged."""
    min_signal: Positive = 0.1
    """The smallest ratio of a cell's expected count to its noise, if rows were uniform: rarer codes are merged."""
    three_way_fraction: Annotated[float, Between(0, 0)] | Part | None = None
    """The fraction of the precision for 2-way marginals that goes to 3-way marginals; 0: none are measured. None: a
    quarter without a target, if the mode is one_shot, columns have few declared categories, and there are enough rows
    and budget."""
    remeasurement_fraction: Annotated[float, Between(0, 0)] | Part | None = None
    """The fraction of the precision for 2-way marginals that the mode one_shot reserves for re-measuring the most
    informative ones. None: a half without a target, zero with one."""
    cliques: tuple[Annotated[Clique, Listed(2, distinct=True)], ...] = ()
    """Further marginals to measure and fit, each a list of columns."""
    steps: Count = 400
    """Training steps; up to twice as many if there is little noise. Post-processing, as are all settings up to
    `ema_decay`."""
    components: Count = 1000
    """The number of components of the mixture, each a product distribution over the columns, with a latent vector."""
    width: Count = 256
    depth: Count = 2
    """Width and number of the generator's hidden layers."""
    latent: Count = 64
    learning_rate: Positive = 4e-3
    ema_decay: Fraction = 0.98
    """The decay of the exponential moving average of the generator's weights, which is released."""
    critic_fraction: Fraction = 0.0
    """The fraction of the budget for a critic, trained by DP-SGD, that the generator is trained against after it fits
    the marginals. 0: no critic, and the settings below have no effect."""
    critic_steps: Count = 1000
    """Critic steps, each of which costs budget; each is followed by a generator step."""
    critic_sampling_rate: float = 1 / 32
    """The probability with which each unit is in the batch of a critic step."""
    critic_widths: Widths = (32, 32)
    """Hidden layers of the critic. Small on purpose: noise grows with the number of weights. A number is one input."""
    critic_learning_rate: Positive = 5e-3
    """The critic's learning rate."""
    critic_weight: Positive = 3.0
    """The weight of the critic's loss relative to that of the marginals, which is scaled by their noise and sampling
    error."""
    clip_norm: Annotated[float, Between(LEAST_CLIP, MOST_CLIP)] = 1.0
    """The clipping norm of one unit's gradient in a critic step."""

    def __post_init__(self) -> None:
        check_settings(self)
        if self.target_fraction >= 1 - self.one_way_fraction:
            raise SettingError("target_fraction", self.target_fraction, "below 1 together with one_way_fraction")
        if self.critic_fraction >= 1 - self.selection_fraction:
            raise SettingError("critic_fraction", self.critic_fraction, "below 1 together with selection_fraction")
        round_sampling_rate(self.critic_sampling_rate)

    def plan(self, domain: Domain, budget: Budget) -> Plan:
        """One Gaussian query for all marginals, selections before it in adaptive mode, and a critic's steps after it.

        No cost depends on sizes or numbers of marginals, and the mode depends on public facts alone.
        """
        for clique in self.cliques:
            domain.shape(clique)  # refuses unknown columns
        # The noise of a single Gaussian query, which decides the mode.
        critic = self._critic_query(domain, budget) if self.critic_fraction else []
        left = budget.after(critic)
        alone = left.calibrate(lambda noise: [Gaussian(noise)])
        mode, reason = self._mode(domain, alone * budget.max_rows_per_unit)
        by = "" if domain.target is None else f", within classes of {domain.target!r}"
        kind = WITH_THREE_WAY if self._measures_three_way(domain, mode, alone * budget.max_rows_per_unit) else ""
        three_way = AND_THREE_WAY if kind else ""
        what, queries, noise = f"1-way and 2-way marginals{by}{three_way}", [], alone
        if mode == "adaptive":
            selections = self._num_selections(domain)
            least = budget.fraction(self.selection_fraction).calibrate(
                lambda noise: [Selections(1 / noise, selections)]
            )
            choice = f"selection of {selections} pairs of columns, in {min(self.rounds, selections)} rounds"
            queries.append(Query("selections", choice, Selections(1 / least, selections), columns=domain.names))
            noise = left.after(queries).calibrate(lambda noise: [Gaussian(noise)])
            what = f"1-way marginals, and {selections} 2-way marginals{by}{three_way}"
        queries.append(Query("marginals", what, Gaussian(noise), columns=domain.names, kind=kind))
        return Plan((*queries, *critic), (Note(reason), *self._notes(domain, mode)))

    def _critic_query(self, domain: Domain, budget: Budget) -> list[Query]:
        """The critic's steps with their fraction, reserved before the marginals get the rest."""

        def steps(noise: float) -> SubsampledGaussian:
            return SubsampledGaussian(round_sampling_rate(self.critic_sampling_rate), noise, self.critic_steps)

        noise = budget.fraction(self.critic_fraction).calibrate(lambda noise: [steps(noise)])
        what = f"{self.critic_steps} critic steps, each on about one unit in {1 / self.critic_sampling_rate:.0f}"
        return [Query("critic", what, steps(noise), columns=domain.names)]

    def _mode(self, domain: Domain, stddev: float) -> tuple[str, str]:
        """The mode and the reason for it; `stddev` is the noise of a marginal that is measured alone."""
        if self.mode != "auto":
            return self.mode, f"gem measures its marginals {MODE_TEXTS[self.mode]}, as set."
        pairs, rows = _num_pairs(domain), domain.declared_rows or UNKNOWN_SIZE
        together, selections = stddev * math.sqrt(max(1, pairs)), self._num_selections(domain)
        size = f"{rows:,} declared rows" if domain.declared_rows else f"an assumed {rows:,} rows (none are declared)"
        mode = "adaptive"
        if pairs <= selections:
            mode, why = "one_shot", f"there are no more than {selections} pairs"
        elif together > TOO_NOISY * rows:
            why = (
                f"with all {pairs:,} pairs, the standard deviation of a count would be {together:.3g} rows, above "
                f"{TOO_NOISY:.0%} of {size}"
            )
        elif stddev > TOO_NOISY_ALONE * rows:
            why = (
                f"the standard deviation of a count would be {stddev:.3g} rows for a single pair, above "
                f"{TOO_NOISY_ALONE:.1%} of {size}"
            )
        else:
            mode = "one_shot"
            why = (
                f"with all {pairs:,} pairs, the standard deviation of a count is {together:.3g} rows, at most "
                f"{TOO_NOISY:.0%} of {size}"
            )
        return mode, f"gem measures its marginals {MODE_TEXTS[mode]}: {why}."

    def _measures_three_way(self, domain: Domain, mode: str, stddev: float) -> bool:
        """Whether 3-way marginals are measured; `stddev` is the noise of a marginal that is measured alone.

        With a target, 2-way marginals within its classes are 3-way marginals already.
        """
        if self.three_way_fraction is not None:
            return self.three_way_fraction > 0
        # Bins are private estimates, as some categories are: no plan may depend on them.
        few = not domain.estimated and not domain.numeric and max(domain.sizes) <= FEW_CODES
        three_way = math.comb(len(domain.names), 3)
        noise = stddev * math.sqrt(three_way / THREE_WAY_FRACTION)
        quiet = noise <= THREE_WAY_NOISE * (domain.declared_rows or UNKNOWN_SIZE)
        return mode == "one_shot" and domain.target is None and few and three_way <= FEW_THREE_WAY and quiet

    def _notes(self, domain: Domain, mode: str) -> tuple[Note, ...]:
        texts = []
        if domain.target is not None:
            texts.append(
                f"2-way marginals are measured within classes of {domain.target!r}, at most {self.max_classes}."
            )
        if self._remeasurement(domain) and mode == "one_shot":
            part = f"{self._remeasurement(domain):.3g}"
            texts.append(
                f"A fraction of {part} of the budget for 2-way marginals is reserved for re-measuring the most "
                "informative ones."
            )
        return tuple(map(Note, texts))

    def _remeasurement(self, domain: Domain) -> float:
        unasked = REMEASUREMENT_FRACTION if domain.target is None else 0.0
        return unasked if self.remeasurement_fraction is None else self.remeasurement_fraction

    def _num_selections(self, domain: Domain) -> int:
        """By settings and the number of columns alone: sizes may be private estimates."""
        return min(self.num_selections or len(domain.names), max(1, _num_pairs(domain)))

    def expected_noise(self, domain: Domain, plan: Plan, max_rows_per_unit: int) -> tuple[ExpectedNoise, ...]:
        """At the mean precision of 1-way marginals, of those with the target, and of the others, if none is left out
        and no codes are merged. The settings and the plan decide how many there are."""
        precision = precision_of(plan["marginals"].event, max_rows_per_unit)
        num_pairs = self._num_selections(domain) if "selections" in plan else _num_pairs(domain)
        three_way_fraction = self._three_way_fraction(plan)
        return expected_marginals(self, domain, precision, num_pairs=num_pairs, three_way_fraction=three_way_fraction)

    def _three_way_fraction(self, plan: Plan) -> float:
        """As planned: sizes that are private estimates could decide otherwise in a fit."""
        wanted = THREE_WAY_FRACTION if self.three_way_fraction is None else self.three_way_fraction
        return wanted if plan["marginals"].kind == WITH_THREE_WAY else 0.0

    def fit(self, run: Run) -> MixtureOfProducts:
        """Formal guarantee: the cost of the plan's queries. Groups, the generator and its average are functions of
        noisy answers and public facts."""
        state, _, model_of = self._train(run.rows, run.plan, run.ledger, run.progress, key=run.key)
        return model_of(state)

    @property
    def has_critics(self) -> bool:
        """Whether checkpoints have critics: marginals do not score single rows."""
        return self.critic_fraction > 0

    @property
    def capabilities(self) -> Capabilities:
        return Capabilities(trajectory=True, critics=self.has_critics, target=True)

    def num_checkpoints(self, every: int) -> int:
        """The number of checkpoints if one is kept after every `every` steps of the last training."""
        return (self.critic_steps if self.has_critics else self.steps) // every

    def trajectory(self, run: Run, *, checkpoints: int, every: int) -> Trajectory:
        """The averaged generators, and critics if any, of the last `checkpoints` states. Formal guarantee: that of
        `fit`."""
        _, kept, model_of = self._train(
            run.rows, run.plan, run.ledger, run.progress, key=run.key, keep_every=every, keep_last=checkpoints
        )
        critics = None
        if self.has_critics:
            critics = score_by_critics([state.critic for state in kept], one_hot_blocks(run.domain.sizes))
        return Trajectory(tuple(model_of(state) for state in kept), critics)

    def _train(
        self,
        rows: PrivateRows,
        plan: Plan,
        ledger: Ledger,
        progress: Progress | None,
        *,
        key: PRNGKeyArray,
        keep_every: int = 0,
        keep_last: int | None = None,
    ) -> tuple[TrainingCheckpoint, list[TrainingCheckpoint], Callable[[TrainingCheckpoint], MixtureOfProducts]]:
        """The last state, the checkpoints, and a function from one of them to a model."""
        domain, report = rows.domain, progress or (lambda fraction, phase: None)
        report_critic = _part(report, 0.4, 0.6)
        report = _part(report, 0.0, 0.4) if self.has_critics else report
        network_key, *keys, critic_key = jax.random.split(key, 2 + max(1, self.rounds))
        three_way_key = jax.random.fold_in(keys[0], 1)
        select = noisy_selections(rows, plan["selections"], ledger) if "selections" in plan else None
        privacy_filter = charge_marginals(rows, plan["marginals"], ledger)
        max_pairs = None if select is None else self._num_selections(domain)
        measurements = MarginalMeasurements(
            self, domain, privacy_filter, max_pairs=max_pairs, three_way_fraction=self._three_way_fraction(plan)
        )
        fit = Fit(one_hot_blocks(domain.sizes), (self.width,) * self.depth, self.ema_decay)
        spread = WIDE_SPREAD if self.has_critics else SPREAD
        state = init_state(
            fit, measurements.shares, rows=self.components, latent=self.latent, key=network_key, spread=spread
        )
        counts = self._counts(domain, len(measurements.pairs)) if select is not None else ()
        for number, count in enumerate(counts):  # each starts from the result of the one before
            if number:
                rates = np.full(max(1, self.steps // 2 // len(counts)), self.learning_rate)
                part = _part(report, number / 2 / len(counts), 1 / 2 / len(counts))
                state = train(
                    fit,
                    measurements.terms(),
                    state.restart(),
                    rates,
                    key=keys[number],
                    options=RunOptions(chunk=50, progress=part),
                )[0]
            assert select is not None
            precision = measurements.left_for_pairs(privacy_filter) * count / sum(counts[number:])
            expected = measurements.expected(heads_of(fit, state.average, state.latents))
            measurements.measure(
                privacy_filter, measurements.select_worst(expected, select, count, precision), precision
            )
        if not counts:
            measurements.measure(
                privacy_filter,
                measurements.pairs,
                measurements.left_for_pairs(privacy_filter) * (1 - self._remeasurement(domain)),
            )
            measurements.remeasure(privacy_filter, measurements.left_for_pairs(privacy_filter))
        part = _part(report, 0.5, 0.5) if counts else report
        rates = falling(self.learning_rate, round(self.steps * measurements.step_factor))
        if measurements.has_three_way:  # they are shrunk towards a model fitted to the other marginals
            first, part = _part(part, 0.0, 0.5), _part(part, 0.5, 0.5)
            state = train(
                fit,
                measurements.terms(),
                state.restart(),
                rates,
                key=three_way_key,
                options=RunOptions(chunk=50, progress=first),
            )[0]
            measurements.measure_three_way(privacy_filter, heads_of(fit, state.average, state.latents))
        state, kept = train(
            fit,
            measurements.terms(),
            state.restart(),
            rates,
            key=keys[0],
            options=RunOptions(
                keep_every=0 if self.has_critics else keep_every,
                keep_last=keep_last,
                chunk=50,
                progress=part,
                slot=ledger.slot(),
            ),
        )
        latents, last = state.latents, TrainingCheckpoint(state.average, None, state.iteration)
        if self.has_critics:
            last, kept = self._train_with_critic(
                rows,
                plan,
                ledger,
                state,
                measurements,
                key=critic_key,
                keep_every=keep_every,
                keep_last=keep_last,
                progress=report_critic,
            )

        def model_of(state: TrainingCheckpoint) -> MixtureOfProducts:
            return MixtureOfProducts(domain.names, domain.sizes, np.asarray(heads_of(fit, state.average, latents)))

        return last, kept, model_of

    def _train_with_critic(
        self,
        rows: PrivateRows,
        plan: Plan,
        ledger: Ledger,
        state: State,
        measurements: "MarginalMeasurements",
        *,
        key: PRNGKeyArray,
        keep_every: int,
        keep_last: int | None,
        progress: Progress,
    ) -> tuple[TrainingCheckpoint, list[TrainingCheckpoint]]:
        """Alternating critic and generator steps, from the generator that was fitted to the marginals."""
        charged, domain = charge_dpsgd(rows, plan["critic"], ledger), rows.domain
        blocks = one_hot_blocks(domain.sizes)
        settings = Settings(
            blocks=blocks,
            batch_size=max(1, round(charged.sampling_rate * rows.public_num_rows)),
            latent=1,
            critic_widths=self.critic_widths,
            generator_batch=GENERATOR_BATCH,
            ema_decay=self.ema_decay,
            betas=BETAS,
            heads="drawn",
        )
        hyperparameters = Hyperparameters.of(
            self.critic_learning_rate,
            self.learning_rate * CRITIC_LEARNING_RATE_FACTOR,
            self.clip_norm if charged.is_private else math.inf,
        )
        centre, sums = critic_inputs(domain, rows.scales, measurements.shares)
        critic = Centred(Critic(len(sums[0]), self.critic_widths, key=key), Constant(centre), Constant(sums))
        terms = measurements.terms()
        hold = 1 / self.critic_weight / (1 + by_chance(terms, rows.public_num_rows))
        fit = Fit(blocks, (self.width,) * self.depth, self.ema_decay)
        end, kept = train_both(
            settings,
            charged,
            hyperparameters,
            ledger.noise.key(),
            network_key=key,  # of fresh networks; these are given
            context=Context(extra_loss=MarginalLoss.by(fit, terms, hold)),
            state=init_from_networks(settings, hyperparameters, Components(state.average, state.latents), critic),
            options=RunOptions(keep_every=keep_every, keep_last=keep_last, progress=progress, slot=ledger.slot()),
        )
        last, *kept = [
            TrainingCheckpoint(each.average.generator, each.critic, each.iteration)
            for each in (TrainingCheckpoint.of(end), *kept)
        ]
        return last, kept

    def _counts(self, domain: Domain, num_pairs: int) -> tuple[int, ...]:
        """The number of pairs to select in each round; empty if all remaining pairs can be measured."""
        selections = self._num_selections(domain)
        if num_pairs <= selections:
            return ()
        rounds = min(self.rounds, selections)
        return tuple(selections // rounds + (number < selections % rounds) for number in range(rounds))


MODE_TEXTS = {"one_shot": "all at once", "adaptive": "in rounds, those with the largest error first"}


def _num_pairs(domain: Domain) -> int:
    """The number of pairs of columns without the target."""
    return math.comb(len(domain.names) - (domain.target is not None), 2)


def _part(report: Progress, start: float, length: float) -> Progress:
    return lambda done, phase: report(start + length * done, phase)
