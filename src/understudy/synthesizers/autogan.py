"""DP-auto-GAN: a private autoencoder, then a GAN whose generator makes codes for its decoder.

"Differentially Private Mixed-Type Data Generation for Unsupervised Learning" (DP-auto-GAN), after its algorithms and
its published code. The paper trains the encoder without noise, which is not private
(`docs/autogan_counterexample.md`); here the encoder is trained under the same clip and noise as the decoder, or not on
the rows at all. Other deviations: gradients are clipped unit by unit, batches are Poisson samples, codes lie between -1
and 1, categories are sampled where the paper takes the likeliest. Noisy one-way marginals, measured with a fraction of
the budget, regularise the columns (`marginals_fraction=0` leaves them out, as published).
"""

import dataclasses
import math
from typing import Annotated, ClassVar

import equinox as eqx
import jax
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from understudy.encoding.features import FEW, Blocks, is_one_hot, num_features
from understudy.errors import ConfigError
from understudy.models.generator import GeneratorModel
from understudy.models.neural import GENERATORS, Decoded, Decoder, GeneratorNetwork
from understudy.notes import Note
from understudy.privacy.accounting.events import Gaussian, SubsampledGaussian
from understudy.privacy.accounting.ledger import Budget, Plan, Query
from understudy.privacy.gradients.charges import charge_dpsgd, event_of
from understudy.privacy.gradients.clipping import RowLoss
from understudy.privacy.gradients.dpsgd import ChargedSteps, PublicSteps
from understudy.privacy.gradients.poisson import round_sampling_rate
from understudy.privacy.mechanisms.moments import check_rows, noisy_gram
from understudy.privacy.rows.rows import PublicRows
from understudy.progress import Progress, prefix_progress, stretch_progress
from understudy.schema import Domain
from understudy.synthesizers.dpgan import check_gan, critic_query, engine_settings, notes_on_steps
from understudy.synthesizers.neural import NeuralMethod, Trained
from understudy.synthesizers.protocol import Capabilities, PublicUse
from understudy.synthesizers.run import Run, calibrate_query
from understudy.synthesizers.settings import Count, OneOf, Range, SettingError, Widths
from understudy.training.autoencoder import ReconstructionLoss, Shifted, match_shares, principal_encoder, random_encoder
from understudy.training.dpsgd import Descent, train_network
from understudy.training.gan import Hyperparameters, init_from_networks, train
from understudy.training.generation import Context
from understudy.training.loop import RunOptions
from understudy.training.neural import Autoencoder, Centred, Critic, Encoder, init_at_shares
from understudy.training.prepare import PUBLIC_BATCH, Prepared, plan_marginals, prepare
from understudy.training.settings import GANSettings

ENCODERS = ("joint", "random", "public", "dp_pca")
MAX_CODE = 32
"""Where `code_size` is left out: half of the columns, and no more than this."""
MAX_GRAM = 4096
"""Features of which all products are measured for dp_pca; more would take gigabytes."""
AUTOENCODER_FRACTION, PCA_FRACTION = 0.4, 0.1
"""Of the budget: for the first phase, and with dp_pca for the second moments. Each is calibrated alone; the critic gets
the rest."""
ADVICE = "The autoencoder diverged. Raise epsilon, or lower autoencoder_steps."


@dataclasses.dataclass(frozen=True, kw_only=True)
class AutoGAN(GANSettings, NeuralMethod):
    """A GAN in the code space of a private autoencoder; a private critic compares decoded rows with real ones.

    >>> import understudy as us
    >>> us.express(us.AutoGAN(steps=2000))  # as --method reads it
    'autogan(steps=2000)'
    """

    encoder: Annotated[str, OneOf(*ENCODERS)] = "joint"
    """joint (trained and noised with the decoder), random, public or dp_pca."""
    code_size: Count | None = None
    """Dimensions of a code, at most as many as features. None: half of the columns, from 2 to 32."""
    autoencoder_steps: Annotated[int, Range(0)] = 500
    """Steps of the first phase; each costs budget. 0, with a public encoder: the decoder is the public one."""
    autoencoder_sampling_rate: float | None = None
    """The sampling rate of such a step. None: `sampling_rate`."""

    # Constants of the first phase. An experiment may have them as settings.
    autoencoder_widths: ClassVar[Widths] = ()
    """Hidden layers of the encoder; the decoder mirrors them."""
    autoencoder_learning_rate: ClassVar[float] = 5e-3
    autoencoder_clip_norm: ClassVar[float] = 1.0
    """The clip norm of one unit's gradient, of encoder and decoder together."""
    autoencoder_noise_multiplier: ClassVar[float | None] = None
    """The noise multiplier of its steps, as papers state it: the critic gets the rest of the budget.
    None: it follows from `AUTOENCODER_FRACTION`."""
    weight_decay: ClassVar[float] = 0.0

    def __post_init__(self) -> None:
        check_gan(self)
        if not self.autoencoder_steps and self.encoder != "public":
            advice = "Only encoder=public includes a decoder."
            raise SettingError("autoencoder_steps", 0, "a whole number of at least 1", advice)
        moments = PCA_FRACTION if self.encoder == "dp_pca" else 0
        if (taken := self.marginals_fraction + AUTOENCODER_FRACTION + moments) >= 1:
            raise ConfigError(
                f"marginals, autoencoder and second moments use {taken:g} of the budget, which leaves nothing for "
                "the critic. Lower marginals_fraction.",
                setting="marginals_fraction",
            )
        round_sampling_rate(self._sampling)

    @property
    def capabilities(self) -> Capabilities:
        """With encoder=public there is nothing to train without a public table."""
        public = PublicUse.REQUIRED if self.encoder == "public" else PublicUse.ACCEPTED
        return Capabilities(trajectory=True, critics=True, public=public, rows=True)

    @property
    def _sampling(self) -> float:
        return self.sampling_rate if self.autoencoder_sampling_rate is None else self.autoencoder_sampling_rate

    def plan(self, domain: Domain, budget: Budget) -> Plan:
        """Histograms, then what the encoder needs, all steps of the autoencoder, all steps of the critic.

        Parts are calibrated alone to their share; the critic fills what is left of the joint budget. No cost depends
        on the rows.
        """
        self._check_domain(domain)
        self.check_features(domain)
        queries = plan_marginals(domain, budget, self.marginals_fraction)
        if self.encoder == "dp_pca":
            what = "second moments of all features, for the encoder"
            queries.append(calibrate_query("moments", what, Gaussian, domain, budget.fraction(PCA_FRACTION)))
        if self.autoencoder_steps:
            rate, steps = round_sampling_rate(self._sampling), self.autoencoder_steps
            network = "autoencoder" if self.encoder == "joint" else "decoder"
            what = f"{steps} {network} steps, each on about one unit in {1 / rate:.0f}"
            if self.autoencoder_noise_multiplier is not None:
                event = SubsampledGaussian(rate, self.autoencoder_noise_multiplier, steps)
                queries.append(Query("autoencoder", what, event, columns=domain.names))
            else:
                part = budget.fraction(AUTOENCODER_FRACTION)
                queries.append(
                    calibrate_query("autoencoder", what, lambda n: SubsampledGaussian(rate, n, steps), domain, part)
                )
        queries.append(critic_query(self, domain, budget.after(queries)))
        notes = notes_on_steps(self, budget, queries)
        if not self.too_large(domain.largest):
            return Plan(tuple(queries), notes)
        note = Note(
            f"If estimated categories give more than {MAX_GRAM:,} features, the rarest of them become 'other'. "
            "Declare them in the schema to keep them."
        )
        return Plan(tuple(queries), (*notes, note))

    def _check_domain(self, domain: Domain) -> None:
        """Refuses a table that these settings do not fit. Public facts only."""
        max_features = self._max_features(domain)
        if self.code_size is not None and self.code_size > max_features:
            raise ConfigError(
                f"code_size is {self.code_size}, but a row has at most {max_features} features. Use a smaller "
                "code_size, or leave it out.",
                setting="code_size",
            )
        if self.encoder == "dp_pca":
            check_rows(domain)
        if self.too_large(domain.merged):
            raise ConfigError(
                f"dp_pca measures all products of two features, so it supports at most {MAX_GRAM} features, found "
                f"{sum(domain.merged.sizes)}. Use encoder=random or encoder=joint.",
                setting="encoder",
            )

    def too_large(self, domain: Domain) -> tuple[str, ...]:
        """All columns, where dp_pca would measure too many products; estimated categories are merged until it fits."""
        return domain.names if self.encoder == "dp_pca" and sum(domain.sizes) > MAX_GRAM else ()

    def _max_features(self, domain: Domain) -> int:
        """The most features that a row can have, from facts known before any query."""

        def of_number(size: int) -> int:  # each of its codes may be a category beside other numbers
            most = {
                "binned": size,
                "typed": size + 1 + max(2, (FEW - 1).bit_length()),
                "modes": size + 1 + self.num_modes,
            }
            return most[self.features]

        return sum(
            of_number(size) if name in domain.numeric else size
            for name, size in zip(domain.names, domain.largest.sizes, strict=True)
        )

    def _train(self, run: Run, options: RunOptions) -> Trained:
        """Both phases. What leaves a phase is post-processing of its queries.

        Rows of a `public` table train an autoencoder without noise, from which the private one begins.
        """
        if self.encoder == "public" and run.public is None:
            raise ConfigError(
                "encoder=public needs a public table. Name one with --public, or use encoder=joint.", setting="public"
            )
        if options.keep_every:
            self.num_checkpoints(options.keep_every)
        prepared = prepare(self, run.rows, run.plan, run.ledger)
        encoder_key, generator_key, critic_key, public_key, shift_key = jax.random.split(run.key, 5)
        critic_steps = event_of(run.plan["critic"], SubsampledGaussian).steps
        phases = _phases(options.progress, self.autoencoder_steps, critic_steps)
        autoencoder = self._init_autoencoder(prepared, run, encoder_key)
        if run.public is not None:
            autoencoder = self._train_on_public(autoencoder, prepared, run.public, public_key)
        autoencoder = self._train_on_private(autoencoder, prepared, run, phases[0])
        options = dataclasses.replace(options, progress=phases[1])
        keys = (generator_key, critic_key, shift_key)
        return self._train_generator(autoencoder, prepared, run, options, keys)

    def _train_generator(
        self,
        autoencoder: Autoencoder,
        prepared: Prepared,
        run: Run,
        options: RunOptions,
        keys: tuple[PRNGKeyArray, PRNGKeyArray, PRNGKeyArray],
    ) -> Trained:
        """The second phase: a generator of codes, and a critic of decoded rows."""
        generator_key, critic_key, shift_key = keys
        blocks, code = prepared.layout.blocks, autoencoder.decoder.layers[0].weight.shape[1]
        settings = engine_settings(self, blocks, run.rows.public_num_rows, masks=prepared.masks)
        codes = GENERATORS[self.arch](self.latent, 0, self.generator_widths, code, key=generator_key)

        def decode(codes: GeneratorNetwork, decoder: Decoder) -> Decoded:
            """A whole generator, its columns at the noisy marginals."""
            whole = Decoded(codes, decoder)
            if prepared.one_way is None:
                return whole
            return match_shares(whole, blocks, self.latent, prepared.one_way, key=shift_key)

        fixed = decode(codes, autoencoder.decoder).decoder
        plain = Critic(
            num_features(settings.blocks), settings.critic_widths, dropout=settings.critic_dropout, key=critic_key
        )
        critic = plain if prepared.one_way is None else Centred(plain, autoencoder.encoder.centre)
        charged = charge_dpsgd(run.rows, run.plan["critic"], run.ledger, prepared.encoder)
        clip_norm = self.clip_norm if charged.is_private else math.inf
        hyperparameters = Hyperparameters.of(self.critic_learning_rate, self.generator_learning_rate, clip_norm)
        state, checkpoints = train(
            settings,
            charged,
            hyperparameters,
            run.ledger.noise.key(),
            network_key=generator_key,
            context=Context(marginal=prepared.one_way),
            state=init_from_networks(settings, hyperparameters, Decoded(codes, fixed), critic),
            options=dataclasses.replace(options, slot=run.ledger.slot()),
        )

        def model_of(average: GeneratorNetwork) -> GeneratorModel:
            assert isinstance(average, Decoded)
            # An average of one and the same decoder is that decoder up to rounding; it is put back as it was.
            whole = jax.device_get(decode(average.codes, fixed))
            shape = (code, *reversed(self.autoencoder_widths))
            return prepared.model(self, run.domain.names, whole, decoder=shape)

        return Trained(state, checkpoints, model_of)

    def _init_autoencoder(self, prepared: Prepared, run: Run, key: PRNGKeyArray) -> Autoencoder:
        """Networks before the first step; the encoder of dp_pca is final."""
        encoder_key, decoder_key = jax.random.split(key)
        layout, blocks, widths = prepared.layout, prepared.layout.blocks, self.autoencoder_widths
        features = num_features(blocks)
        wanted = min(MAX_CODE, max(2, len(layout.columns) // 2)) if self.code_size is None else self.code_size
        code = min(wanted, features)  # estimated categories and bins may be fewer than the plan allows
        centre = _centre(blocks, prepared.one_way)
        encoder = Encoder(centre, widths, code, key=encoder_key)
        if self.encoder == "random":
            encoder = random_encoder(centre, widths, code, key=encoder_key)
        if self.encoder == "dp_pca":
            gram = noisy_gram(run.rows, Shifted(layout, centre), run.plan["moments"], run.ledger)
            reach = math.sqrt(float(np.sum(np.where(is_one_hot(blocks), centre * (1 - centre), 0.25))))
            encoder = principal_encoder(gram, run.rows.public_num_rows, reach, centre, code)
        decoder = Decoder(code, tuple(reversed(widths)), features, key=decoder_key)
        if prepared.one_way is not None:
            last = init_at_shares(decoder.layers[-1], blocks, prepared.one_way)
            decoder = eqx.tree_at(lambda it: it.layers[-1], decoder, last)
        return Autoencoder(encoder, decoder)

    def _train_on_public(
        self, autoencoder: Autoencoder, prepared: Prepared, public: PublicRows, key: PRNGKeyArray
    ) -> Autoencoder:
        """Trained without noise, clipping or charge, where the encoder learns at all; else its decoder alone."""
        feature_key, train_key = jax.random.split(key)
        units = public.arrange(prepared.encoder, key=feature_key)
        batch_size = min(PUBLIC_BATCH, len(units.rows))
        steps = PublicSteps(units, round_sampling_rate(batch_size / len(units.rows)), self.warm_steps)
        learns_encoder = self.encoder in ("joint", "public")
        return self._descend(autoencoder, prepared.layout.blocks, steps, batch_size, train_key, learns_encoder)

    def _train_on_private(
        self, autoencoder: Autoencoder, prepared: Prepared, run: Run, progress: Progress | None
    ) -> Autoencoder:
        """The first phase: clipped and noisy steps of encoder and decoder, or of the decoder alone."""
        if not self.autoencoder_steps:
            return autoencoder
        charged = charge_dpsgd(run.rows, run.plan["autoencoder"], run.ledger, prepared.encoder)
        batch_size = max(1, round(charged.sampling_rate * run.rows.public_num_rows))
        key, options = run.ledger.noise.key(), RunOptions(progress=progress, slot=run.ledger.slot())
        blocks, learns_encoder = prepared.layout.blocks, self.encoder == "joint"
        return self._descend(autoencoder, blocks, charged, batch_size, key, learns_encoder, options)

    def _descend(
        self,
        autoencoder: Autoencoder,
        blocks: Blocks,
        steps: ChargedSteps | PublicSteps,
        batch_size: int,
        key: PRNGKeyArray,
        learns_encoder: bool,
        options: RunOptions | None = None,
    ) -> Autoencoder:
        descent = Descent(
            batch_size=batch_size,
            learning_rate=self.autoencoder_learning_rate,
            clip_norm=self.autoencoder_clip_norm,
            penalty=self.weight_decay,
            ema_decay=self.ema_decay,
        )
        noise_key, batch_key = jax.random.split(key)
        fixed = None if learns_encoder else autoencoder.encoder
        trained = train_network(
            autoencoder if learns_encoder else autoencoder.decoder,
            self._row_loss(fixed, blocks),
            steps,
            descent,
            batch_key=batch_key,
            noise_key=noise_key,
            options=options,
            advice=ADVICE,
        )
        return Autoencoder(autoencoder.encoder, trained) if isinstance(trained, Decoder) else trained

    def _row_loss(self, fixed: Encoder | None, blocks: Blocks) -> RowLoss:
        """Of the first phase. An experiment may have another."""
        return RowLoss(ReconstructionLoss(fixed, blocks))


def _centre(blocks: Blocks, marginal: Array | None) -> Float[np.ndarray, " features"]:
    """The middle of each feature by noisy shares, else by what is public: even categories, bits of a half, zero."""
    even = np.concatenate(
        [np.full(block.size, {"one_hot": 1 / block.size, "bits": 0.5}.get(block.kind, 0.0)) for block in blocks]
    )
    return even if marginal is None else np.where(is_one_hot(blocks), np.asarray(marginal, dtype=np.float64), even)


def _phases(progress: Progress | None, first: int, second: int) -> tuple[Progress | None, Progress | None]:
    """One bar for both, by their steps."""
    if progress is None:
        return None, None
    cut = first / (first + second)
    before, after = stretch_progress(progress, 0.0, cut), stretch_progress(progress, cut, 1.0)
    return prefix_progress(before, "autoencoder: "), prefix_progress(after, "critic: ")
