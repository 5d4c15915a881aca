"""DPGAN: a generator and a critic, the critic trained by DP-SGD.

Xie et al., "Differentially private generative adversarial network", 2018; smart clipping, adaptive clipping and warm
starts after the DP-GAN extended abstract of Boob et al. Deviations, each for soundness or use: gradients are clipped
row by row (the abstract clips their sum), groups share one cost, bounds never follow private gradients, batches are
Poisson samples. Columns are binned and one-hot by default; noisy one-way marginals, measured with a fraction of the
budget, regularise the generator (`marginal_weight=0` with `marginals_fraction=0` leaves them out, as published).
"""

import dataclasses
import math
from collections.abc import Sequence

import jax

from understudy.encoding.features import Blocks
from understudy.errors import ConfigError
from understudy.models.zeros import Masks
from understudy.notes import Level, Note
from understudy.privacy.accounting.events import SubsampledGaussian
from understudy.privacy.accounting.ledger import Budget, Plan, Query
from understudy.privacy.gradients.charges import UnitCounts, charge_dpsgd, event_of
from understudy.privacy.gradients.clipping import MAX_CLIP, MIN_CLIP
from understudy.privacy.gradients.poisson import round_sampling_rate
from understudy.privacy.gradients.sums import MAX_NOISE
from understudy.schema import Domain
from understudy.synthesizers.neural import ConditionalMethod, TargetMethod, Trained
from understudy.synthesizers.protocol import Capabilities, PublicUse
from understudy.synthesizers.run import Run, calibrate_query, describe_chosen_steps, moments_note
from understudy.synthesizers.settings import check_settings
from understudy.training.critics import one_hot_blocks
from understudy.training.gan import Hyperparameters, init_state, train
from understudy.training.generation import Context
from understudy.training.loop import RunOptions
from understudy.training.prepare import plan_marginals, prepare, warm_start
from understudy.training.settings import ClipSettings, GANSettings, Settings, TargetSettings


def critic_query(method: GANSettings, domain: Domain, budget: Budget) -> Query:
    """All critic steps, for all of this budget."""
    rate, noise_multiplier = round_sampling_rate(method.sampling_rate), method.noise_multiplier
    each = f"critic steps, each on about one unit in {1 / method.sampling_rate:.0f}"
    if noise_multiplier is None:
        steps = method.num_steps
        what = f"{steps} {each}"
        return calibrate_query("critic", what, lambda noise: SubsampledGaussian(rate, noise, steps), domain, budget)
    steps = budget.most_steps(lambda steps: [SubsampledGaussian(rate, noise_multiplier, steps)], method.critic_steps)
    event = SubsampledGaussian(rate, noise_multiplier, steps)
    what = f"{steps} {each}{describe_chosen_steps(budget, [event])}"
    return Query("critic", what, event, columns=domain.names)


def notes_on_steps(method: GANSettings, budget: Budget, queries: Sequence[Query]) -> tuple[Note, ...]:
    """Of a plan whose number of steps follows from the budget, what the papers' accountant states for its training."""
    if method.noise_multiplier is None:
        return ()
    return (moments_note(budget, [query.event for query in queries if isinstance(query.event, SubsampledGaussian)]),)


def engine_settings(
    method: GANSettings, blocks: Blocks, num_rows: int, block: int | None = None, masks: Masks = ()
) -> Settings:
    """The settings that are compiled in, for rows of these blocks and a public number of them."""
    return Settings.of(
        method,
        blocks=blocks,
        # Per step each unit counts once, so the public number of units is the public number of rows or less.
        batch_size=max(1, round(round_sampling_rate(method.sampling_rate) * num_rows)),
        marginal_weight=method.marginal_weight if method.marginals_fraction else 0.0,
        target_block=block,
        masks=masks,
    )


def check_gan(method: GANSettings) -> None:
    """Refuse what the annotations of single settings allow."""
    check_settings(method)
    method.check_steps()
    if method.noise_multiplier is None and method.num_steps % method.critic_steps:
        raise ConfigError(
            f"steps ({method.num_steps}) must be a multiple of critic_steps ({method.critic_steps}).",
            setting="critic_steps",
        )
    round_sampling_rate(method.sampling_rate)
    engine_settings(method, one_hot_blocks((2, 2)), 100)


@dataclasses.dataclass(frozen=True, kw_only=True)
class CriticGAN(ClipSettings, TargetSettings, GANSettings, TargetMethod):
    """What dpgan and dpctgan share: all but their conditions."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_gan(self)

    @property
    def capabilities(self) -> Capabilities:
        return Capabilities(
            trajectory=True, critics=True, public=PublicUse.ACCEPTED, target=self._holds_target, rows=True
        )

    def plan(self, domain: Domain, budget: Budget) -> Plan:
        """Noisy marginals, then all critic steps, which take the rest. No cost depends on the rows."""
        self.check_features(domain)
        target_fraction = self.target_fraction if self._holds_target else 0.0
        queries = plan_marginals(domain, budget, self.marginals_fraction, target_fraction)
        queries.append(critic_query(self, domain, budget.after(queries)))
        notes = (*notes_on_steps(self, budget, queries), *self._notes_on_groups(queries[-1]))
        if domain.target is None or not self._holds_target:
            return Plan(tuple(queries), notes)
        held = "Noisy 2-way marginals of every column with the target constrain the generator."
        note = Note(held if len(queries) > 2 else "This method treats the target like any other column.")
        return Plan(tuple(queries), (note, *notes))

    def _notes_on_groups(self, query: Query) -> tuple[Note, ...]:
        if self.clip_groups == 1:
            return ()
        warnings = []
        if self.fake_term == "separate":
            warnings.append(
                f"With clip_groups={self.clip_groups} gradients of real rows are clipped group by group, but those of "
                "generated rows are not clipped: the critic is biased towards calling every row generated, and may "
                "learn little else. Set fake_term=clipped."
            )
        largest = self.clip_norm if self.adaptive_clip == "none" else MAX_CLIP
        most = MAX_NOISE / event_of(query, SubsampledGaussian).noise_multiplier
        if self.clip_allocation == "equal" and largest / MIN_CLIP > most:
            warnings.append(
                "With clip_allocation=equal all weights get the noise of the largest clip norm. A group whose clip "
                f"norm is more than {most:,.0f} times smaller cannot have it: the training then fails, and its budget "
                "is spent. Set clip_allocation=optimal."
            )
        return tuple(Note(text, Level.WARNING) for text in warnings)

    def _train(self, run: Run, options: RunOptions) -> Trained:
        rows, plan, ledger = run.rows, run.plan, run.ledger
        prepared = prepare(self, rows, plan, ledger)
        blocks, masks = prepared.layout.blocks, prepared.masks
        settings = engine_settings(self, blocks, rows.public_num_rows, prepared.target_block, masks)
        counts = self._unit_counts(plan["critic"], settings.batch_size)
        charged = charge_dpsgd(rows, plan["critic"], ledger, prepared.encoder, counts=counts)
        clip_norm = self.clip_norm if charged.is_private else math.inf
        hyperparameters = Hyperparameters.of(self.critic_learning_rate, self.generator_learning_rate, clip_norm)
        context = Context(self._conditions(prepared, rows.public_num_rows), prepared.marginal)
        network_key, feature_key, warm_key = jax.random.split(run.key, 3)
        start = None
        if run.public is not None:
            units = run.public.arrange(prepared.encoder, key=feature_key)
            context = dataclasses.replace(context, public=units)
            fresh = init_state(settings, hyperparameters, network_key, context)
            iterations = max(1, self.warm_steps // self.critic_steps)
            start = warm_start(
                settings, units, hyperparameters, warm_key, fresh, context, iterations=iterations, progress=run.progress
            )
        trained = train(
            settings,
            charged,
            hyperparameters,
            ledger.noise.key(),
            network_key=network_key,
            context=context,
            state=start,
            options=dataclasses.replace(options, slot=ledger.slot()),
        )
        names, conditions = rows.domain.names, context.conditions
        return Trained(*trained, lambda generator: prepared.model(self, names, generator, conditions))

    def _unit_counts(self, query: Query, batch_size: int) -> UnitCounts | None:
        """The counts that adaptive_clip="quantile" needs of every step, within its cost.

        Their noise is a twentieth of a batch; where batches are small, enough that they take a quarter of the cost.
        """
        if self.adaptive_clip != "quantile":
            return None
        multiplier = event_of(query, SubsampledGaussian).noise_multiplier
        return UnitCounts(self.clip_groups, max(batch_size / 20, multiplier * math.sqrt(self.clip_groups)))


@dataclasses.dataclass(frozen=True, kw_only=True)
class DPGAN(CriticGAN):
    """A GAN whose critic is trained by DP-SGD: it sees real rows only through clipped, noisy gradients.

    >>> import understudy as us
    >>> us.express(us.DPGAN(loss="wgan"))  # as --method reads it
    'dpgan(loss=wgan)'
    """


@dataclasses.dataclass(frozen=True, kw_only=True)
class DPCTGAN(ConditionalMethod, CriticGAN):
    """A GAN with a generator conditioned on a category of one column; its critic is trained by DP-SGD.

    After Xu et al., "Modeling tabular data using conditional GAN", 2019, and its private version in Rosenblatt et al.,
    2020. The published construction reads categories and frequencies off the rows and samples rows by their category,
    which breaks the amplification it counts on. Here the one-way marginals are noisy, a row takes its condition from
    itself, and weights before the clip stand for training by sampling, so every row enters a step with the same public
    probability. The cross-entropy that tells the generator to meet its condition compares noisy marginals with
    generated rows: it is kept.

    >>> import understudy as us
    >>> us.express(us.DPCTGAN(steps=2000))  # as --method reads it
    'dpctgan(steps=2000)'
    """
