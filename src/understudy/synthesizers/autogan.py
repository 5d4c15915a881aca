"""DP-auto-GAN: a private autoencoder, then a GAN whose generator makes codes for its decoder.

"Differentially Private Mixed-Type Data Generation for Unsupervised Learning" (DP-auto-GAN), after its algorithms and
its published code. The paper trains the encoder without noise, which is not private
(`docs/autogan_counterexample.md`); here the encoder is trained under the same clip and noise as the decoder, or not on
the rows at all, and the published way is kept under a name that says so and an epsilon that is infinite. Other
deviations: gradients are clipped unit by unit, draws are Poisson, codes lie between -1 and 1, levels are drawn where
the paper takes the likeliest. Noisy one-way counts, bought with a part of the budget, hold the columns in place
(`marginals_fraction=0` leaves them out, as published).
"""

import dataclasses
import math
from collections.abc import Callable
from typing import Annotated, Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from understudy.encoding.features import FEW, Block, Blocks, Layout, is_one_hot, layout_of, num_features
from understudy.errors import ConfigError
from understudy.models.generator import GeneratorModel
from understudy.models.networks import GENERATORS, Decoded, Decoder
from understudy.notes import Note
from understudy.privacy.charges import charge_dpsgd
from understudy.privacy.clipping import LEAST_CLIP, MOST_CLIP
from understudy.privacy.counts import noisy_counts
from understudy.privacy.dpsgd import ChargedSteps, PublicSteps
from understudy.privacy.events import Gaussian, NonPrivate, SubsampledGaussian
from understudy.privacy.ledger import Budget, Ledger, Plan, Query
from understudy.privacy.moments import check_rows, noisy_gram
from understudy.privacy.rows import PrivateRows, PublicRows
from understudy.privacy.sampling import round_sampling_rate
from understudy.progress import Progress
from understudy.schema import Domain
from understudy.settings import (
    AtLeast,
    Between,
    Count,
    InnerFraction,
    NotNegative,
    OneOf,
    Positive,
    SettingError,
    Widths,
)
from understudy.synthesizers.dpgan import DPGAN, PUBLIC_BATCH, ledger_key, shares
from understudy.synthesizers.protocol import Capabilities, PublicUse
from understudy.training.autoencoder import (
    RECONSTRUCTIONS,
    REDUCTIONS,
    Coded,
    Recipe,
    Shifted,
    held_to_shares,
    principal_encoder,
    random_encoder,
    train_autoencoder,
    with_shares,
)
from understudy.training.gan import Dials, Kept, Settings, State, begun_with, train
from understudy.training.networks import Autoencoder, Centred, Critic, Encoder
from understudy.training.trajectory import Trajectory

ENCODERS = ("joint", "random", "public", "dp_pca", "unsound_paper")
MOST_CODE = 32
"""Where `code` is left out: half of the columns, and no more than this."""
MOST_GRAM = 4096
"""Features of which all products are bought for dp_pca; more would take gigabytes."""
UNSOUND = "the encoder, by exact gradients that nothing bounds, as published"


@dataclasses.dataclass(frozen=True, kw_only=True)
class AutoGAN(DPGAN):
    """A generator of codes for the decoder of a private autoencoder, taught by a private critic of decoded rows."""

    encoder: Annotated[str, OneOf(*ENCODERS)] = "joint"
    """joint (trained and noised with the decoder), random, public, dp_pca, or unsound_paper (epsilon is infinite)."""
    code_size: Count | None = None
    """Numbers in a code, at most as many as features. Left out: half of the columns, from 2 to 32."""
    autoencoder_widths: Widths = ()
    """Hidden layers of the encoder; the decoder mirrors them."""
    autoencoder_steps: Annotated[int, AtLeast(0)] = 500
    """Steps of the first phase; each costs budget. 0, with a public encoder: the decoder is the public one."""
    autoencoder_sampling_rate: float | None = None
    """The share of the units that enters such a step. Left out: `rate`."""
    autoencoder_learning_rate: Positive = 5e-3
    """Its learning rate."""
    autoencoder_clip_norm: Annotated[float, Between(LEAST_CLIP, MOST_CLIP)] = 1.0
    """How much one unit may add to a step, encoder and decoder together."""
    autoencoder_fraction: InnerFraction = 0.4
    """The part of the budget for the first phase, calibrated alone; the critic gets what is left of the whole."""
    pca_fraction: InnerFraction = 0.1
    """With dp_pca: the part of the budget for the second moments."""
    reconstruction: Annotated[str, OneOf(*RECONSTRUCTIONS)] = "typed"
    """typed: a loss for each kind of column. bce: binary cross-entropy of every feature, as published."""
    reduction: Annotated[str, OneOf(*REDUCTIONS)] = "sum"
    """Whether a row's loss is the sum over its columns or their mean."""
    weight_decay: NotNegative = 0.0
    """Of the autoencoder."""
    latent_critic: bool = False
    """Whether the critic compares codes of rows with generated codes, instead of rows with decoded ones."""
    tune_decoder: bool = False
    """Whether the decoder goes on to learn with the generator, from the critic alone: free, and not as published."""
    unsound_noise: tuple[Positive, Positive] = (2.5, 7.5)
    """With unsound_paper alone: the noise multipliers of decoder and critic, which buy no guarantee."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.autoencoder_steps and self.encoder != "public":
            advice = "Only a public encoder brings a decoder with it."
            raise SettingError("autoencoder_steps", 0, "a whole number of at least 1", advice)
        shares = (
            self.marginals_fraction + self.autoencoder_fraction + (self.pca_fraction if self.encoder == "dp_pca" else 0)
        )
        if shares >= 1:
            raise ConfigError(
                f"marginals, autoencoder and moments take {shares:g} of the budget and leave nothing for the critic. "
                "Lower marginals_fraction, autoencoder_fraction or pca_fraction."
            )
        if self.target_fraction:
            raise ConfigError("autogan is held to single columns alone: leave target_fraction at 0.")
        if self.encoder == "dp_pca" and self.autoencoder_widths:
            raise ConfigError("The encoder of dp_pca is one linear layer: leave autoencoder_widths empty.")
        if self.encoder == "unsound_paper" and self.latent_critic:
            raise ConfigError("latent_critic needs an encoder that may be looked at: unsound_paper has none.")
        if self.clip_groups > 1 or self.adaptive_clip != "none":
            raise ConfigError("autogan has one clip bound for each phase: leave groups at 1 and adaptive at none.")
        round_sampling_rate(self._sampling)

    @property
    def capabilities(self) -> Capabilities:
        """With encoder=public there is nothing to train without a public table."""
        public = PublicUse.REQUIRED if self.encoder == "public" else PublicUse.ACCEPTED
        return Capabilities(trajectory=True, critics=True, public=public)

    @property
    def _sampling(self) -> float:
        return self.sampling_rate if self.autoencoder_sampling_rate is None else self.autoencoder_sampling_rate

    # ------------------------------------------------------------------------------------------------------------ plan

    def plan(self, domain: Domain, budget: Budget) -> Plan:
        """Histograms, then what the encoder needs, all steps of the autoencoder, all steps of the critic.

        Parts are calibrated alone to their share; the critic fills what is left of the joint budget. No price depends
        on the rows.
        """
        self._check_domain(domain)
        queries: list[Query] = []
        if self.encoder == "unsound_paper":
            if budget.is_private:
                raise ConfigError(
                    "encoder=unsound_paper has no finite epsilon: its encoder learns from the rows without noise. Run "
                    "it with --not-private (in Python: Guarantee.not_private()), or use encoder=joint."
                )
            queries.append(Query("encoder", UNSOUND, NonPrivate(), columns=domain.names))
        queries += self._histograms(domain, budget)
        if self.encoder == "dp_pca":
            noise = budget.fraction(self.pca_fraction).calibrate(lambda noise: [Gaussian(noise)])
            what = "second moments of all features, for the encoder"
            queries.append(Query("moments", what, Gaussian(noise), columns=domain.names))
        if self.autoencoder_steps:
            rate, steps = round_sampling_rate(self._sampling), self.autoencoder_steps
            noise = budget.fraction(self.autoencoder_fraction).calibrate(
                lambda noise: [SubsampledGaussian(rate, noise, steps)]
            )
            part = "autoencoder" if self.encoder in ("joint", "unsound_paper") else "decoder"
            what = f"{steps} {part} steps, each on about one unit in {1 / rate:.0f}"
            queries.append(Query("autoencoder", what, SubsampledGaussian(rate, noise, steps), columns=domain.names))
        rate = round_sampling_rate(self.sampling_rate)
        noise = budget.after(queries).calibrate(lambda noise: [SubsampledGaussian(rate, noise, self.steps)])
        what = f"{self.steps} critic steps, each on about one unit in {1 / rate:.0f}"
        queries.append(Query("critic", what, SubsampledGaussian(rate, noise, self.steps), columns=domain.names))
        if not self.too_large(domain.largest):
            return Plan(tuple(queries))
        note = Note(
            f"If estimated categories give more than {MOST_GRAM:,} features, the rarest of them become 'other'. "
            "Declare them in the schema to keep them."
        )
        return Plan(tuple(queries), (note,))

    def _check_domain(self, domain: Domain) -> None:
        """Refuses a table that these settings do not fit. Public facts only."""
        most = self._most_features(domain)
        if self.code_size is not None and self.code_size > most:
            raise ConfigError(
                f"code_size {self.code_size} exceeds the features of a row, at most {most}. An autoencoder must "
                "narrow them: use a smaller code, or leave it out."
            )
        numbers_only = self.features == "typed" and domain.numeric and set(domain.numeric) == set(domain.names)
        if self.reconstruction == "bce" and numbers_only:
            raise ConfigError(
                "reconstruction=bce is for features that are 0 or 1, and with features=typed every column of this "
                "table is a number. Use reconstruction=typed, or features=binned."
            )
        if self.encoder == "dp_pca":
            check_rows(domain)
        if self.too_large(domain.merged):
            raise ConfigError(
                f"dp_pca measures all products of features: at most {MOST_GRAM}, found {sum(domain.merged.sizes)}. Use "
                "encoder=random or encoder=joint."
            )

    def too_large(self, domain: Domain) -> tuple[str, ...]:
        """All columns, where dp_pca would measure too many products; estimated categories are merged until it fits."""
        return domain.names if self.encoder == "dp_pca" and sum(domain.sizes) > MOST_GRAM else ()

    def _most_features(self, domain: Domain) -> int:
        """The most features that a row can have, from facts known before any query."""

        def of_number(size: int) -> int:
            if self.features == "typed":
                return 2 + (FEW - 1).bit_length()
            return size if self.features == "binned" else max(size, self.num_modes + 2)

        return sum(
            of_number(size) if name in domain.numeric else size
            for name, size in zip(domain.names, domain.largest.sizes, strict=True)
        )

    # ------------------------------------------------------------------------------------------------------------- fit

    def num_checkpoints(self, every: int) -> int:
        """As `dpgan` has it; refused here, before anything is spent, where critics judge no rows."""
        if self.latent_critic:
            raise ConfigError("latent_critic leaves critics of codes, which judge no rows. Set latent_critic=false.")
        return super().num_checkpoints(every)

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
        """As `dpgan` has it. Critics of codes judge no rows, so with `latent_critic` there is none."""
        self.num_checkpoints(every)
        more: dict[str, Any] = {"checkpoints": checkpoints, "every": every, "public": public, "progress": progress}
        return super().trajectory(rows, plan, ledger, key=key, **more)

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
        """Both phases. Formal guarantee: the price of the plan's looks; what leaves a phase is post-processing of them.

        Rows of a `public` table train an autoencoder without noise, where the private one begins. They are not
        protected.
        """
        if self.encoder == "public" and public is None:
            raise ConfigError("encoder=public learns from a public table: give one (--public), or use encoder=joint.")
        domain, is_binned = rows.domain, self.features == "binned"
        if self.encoder == "unsound_paper":
            ledger.charge(plan["encoder"])  # no private ledger takes it
        marginals = marginal = None
        if self.marginals_fraction:
            marginals = [shares(table) for table in noisy_counts(rows, domain.one_way, plan["one_way"], ledger)]
        layout = layout_of(self.features, domain, rows.scales, marginals, modes=self.modes, num_modes=self.num_modes)
        if marginals is not None:
            marginal = jnp.asarray(layout.shares(marginals), dtype=jnp.float32)
        encoder_key, generator_key, critic_key, public_key, hold_key = jax.random.split(key, 5)
        shown = None if is_binned else layout
        autoencoder = self._fresh(layout, rows, plan, ledger, marginal, encoder_key)
        if public is not None:
            autoencoder = self._on_public_rows(autoencoder, layout, public, public_key)
        phases = _phases(progress, self.autoencoder_steps, self.steps)
        autoencoder = self._on_private_rows(autoencoder, rows, plan, ledger, layout.blocks, shown, phases[0])

        settings = self._settings(layout.blocks, rows.public_num_rows)
        make, code = GENERATORS[self.arch], autoencoder.decoder.layers[0].weight.shape[1]
        codes: Any = make(self.latent, 0, self.generator_widths, code, key=generator_key)

        def decoded(codes: Any, decoder: Decoder) -> Decoded:
            """A whole generator, its columns held where the noisy histograms have them."""
            whole = Decoded(codes, decoder)
            return (
                whole if marginal is None else held_to_shares(whole, layout.blocks, self.latent, marginal, key=hold_key)
            )

        generator: Any = Decoded(codes, decoded(codes, autoencoder.decoder).decoder, not self.tune_decoder)
        fixed = generator.decoder
        if self.latent_critic:
            settings = dataclasses.replace(settings, blocks=(Block("tanh", code),), anchor=0.0)
            generator, shown = codes, Coded(layout, autoencoder.encoder)  # type: ignore[assignment]
        critic = Critic(num_features(settings.blocks), settings.critic_widths, key=critic_key)

        charged = self._with_published_noise(charge_dpsgd(rows, plan["critic"], ledger, shown), 1)
        clip = self.clip_norm if charged.is_private else math.inf
        dials = Dials.of(self.critic_learning_rate, self.generator_learning_rate, clip)
        centred = critic if marginal is None or self.latent_critic else Centred(critic, autoencoder.encoder.centre)
        state, kept = train(
            settings,
            charged,
            dials,
            ledger_key(ledger),
            network_key=generator_key,
            iterations=charged.num_steps // self.critic_steps,
            marginal=None if self.latent_critic else marginal,
            state=begun_with(settings, dials, generator, centred),
            keep_every=keep_every,
            keep_last=keep_last,
            progress=phases[1],
            slot=ledger.slot(),
        )

        def model_of(state: State | Kept) -> GeneratorModel:
            average: Any = jax.device_get(state.average)
            # An average of one and the same decoder is that decoder up to rounding; it is put back as it was.
            decoder = average.decoder if self.tune_decoder and not self.latent_critic else fixed
            whole = decoded(average if self.latent_critic else average.codes, decoder)
            return GeneratorModel(
                jax.device_get(whole),
                self.arch,
                domain.names,
                layout.blocks,
                self.latent,
                self.generator_widths,
                None,
                None if is_binned else layout,
                (code, *reversed(self._hidden)),
            )

        return state, kept, model_of

    @property
    def _hidden(self) -> tuple[int, ...]:
        return tuple(self.autoencoder_widths)

    def _with_published_noise(self, charged: ChargedSteps, phase: int) -> ChargedSteps:
        """As charged; of the published way, which is not private and charged without noise, with the published one."""
        is_unsound = self.encoder == "unsound_paper"
        return charged.with_noise_multiplier(self.unsound_noise[phase]) if is_unsound else charged

    def _fresh(
        self, layout: Layout, rows: PrivateRows, plan: Plan, ledger: Ledger, marginal: Array | None, key: PRNGKeyArray
    ) -> Autoencoder:
        """Networks before the first step; the encoder of dp_pca is final."""
        encoder_key, decoder_key = jax.random.split(key)
        blocks = layout.blocks
        features = num_features(blocks)
        wanted = min(MOST_CODE, max(2, len(layout.columns) // 2)) if self.code_size is None else self.code_size
        code = min(wanted, features)  # estimated categories and bins may be fewer than the plan allows
        centre = _centre(blocks, marginal)
        encoder = Encoder(centre, self._hidden, code, key=encoder_key)
        if self.encoder == "random":
            encoder = random_encoder(centre, self._hidden, code, key=encoder_key)
        if self.encoder == "dp_pca":
            gram = noisy_gram(rows, Shifted(layout, centre), plan["moments"], ledger)
            reach = math.sqrt(float(np.sum(np.where(is_one_hot(blocks), centre * (1 - centre), 0.25))))
            encoder = principal_encoder(gram, rows.public_num_rows, reach, centre, code)
        decoder = Decoder(code, tuple(reversed(self._hidden)), features, key=decoder_key)
        if marginal is not None:
            decoder = with_shares(decoder, blocks, np.asarray(marginal))
        return Autoencoder(encoder, decoder)

    def _recipe(self, blocks: Blocks, batch: int, learns: str) -> Recipe:
        engine = Settings(blocks=blocks, batch=batch, chunk=self.chunk_size, betas=(0.9, 0.999), average=self.ema_decay)
        return Recipe(
            engine=engine,
            reconstruction=self.reconstruction,
            reduction=self.reduction,
            learning_rate=self.autoencoder_learning_rate,
            weight_decay=self.weight_decay,
            learns=learns,
        )

    def _on_public_rows(
        self, autoencoder: Autoencoder, layout: Layout, public: PublicRows, key: PRNGKeyArray
    ) -> Autoencoder:
        """Trained without noise, bound or charge, where the encoder learns at all; else its decoder alone."""
        feature_key, train_key = jax.random.split(key)
        units = public.arrange(None if self.features == "binned" else layout, key=feature_key)
        num_rows = len(units.rows)
        batch = min(PUBLIC_BATCH, num_rows)
        is_given = self.encoder in ("random", "dp_pca")
        recipe = self._recipe(layout.blocks, batch, "decoder" if is_given else "both")
        steps = PublicSteps(units, round_sampling_rate(batch / num_rows), self.warm_steps)
        if is_given:
            fixed, decoder = autoencoder.encoder, autoencoder.decoder
            decoder = train_autoencoder(recipe, decoder, steps, fixed=fixed, clip=math.inf, key=train_key)
            return Autoencoder(fixed, decoder)
        return train_autoencoder(recipe, autoencoder, steps, clip=math.inf, key=train_key)

    def _on_private_rows(
        self,
        autoencoder: Autoencoder,
        rows: PrivateRows,
        plan: Plan,
        ledger: Ledger,
        blocks: Blocks,
        shown: Layout | None,
        progress: Progress | None,
    ) -> Autoencoder:
        """The first phase: what may learn from the rows does, clipped and noised."""
        if not self.autoencoder_steps:
            return autoencoder
        charged = charge_dpsgd(rows, plan["autoencoder"], ledger, shown)
        learns = {"joint": "both", "unsound_paper": "unsound"}.get(self.encoder, "decoder")
        batch = max(1, round(charged.sampling_rate * rows.public_num_rows))
        whole = learns != "decoder"
        trained = train_autoencoder(
            self._recipe(blocks, batch, learns),
            autoencoder if whole else autoencoder.decoder,
            charged,
            fixed=None if whole else autoencoder.encoder,
            clip=self.autoencoder_clip_norm,
            published=self._with_published_noise(charged, 0) if learns == "unsound" else None,
            key=ledger_key(ledger),
            progress=progress,
            slot=ledger.slot(),
        )
        return trained if whole else Autoencoder(autoencoder.encoder, trained)


def _centre(blocks: Blocks, marginal: Array | None) -> Float[np.ndarray, " features"]:
    """The middle of each feature by bought shares, else by what is public: even levels, bits of a half, zero."""
    even = np.concatenate(
        [np.full(block.size, {"one_hot": 1 / block.size, "bits": 0.5}.get(block.kind, 0.0)) for block in blocks]
    )
    return even if marginal is None else np.where(is_one_hot(blocks), np.asarray(marginal, dtype=np.float64), even)


def _phases(progress: Progress | None, first: int, second: int) -> tuple[Progress | None, Progress | None]:
    """One bar for both, by their steps."""
    if progress is None:
        return None, None
    cut = first / (first + second)
    return (
        lambda share, words: progress(cut * share, f"autoencoder: {words}"),
        lambda share, words: progress(cut + (1 - cut) * share, f"critic: {words}"),
    )
