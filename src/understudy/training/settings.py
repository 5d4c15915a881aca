"""Settings that neural methods share, each written once.

A method is a frozen dataclass that lists the groups it has as its bases, so its settings are flat keyword arguments and
flat names in expressions. A default of its own is a field of its own. `Settings` is what of them is compiled into the
program; `Settings.of(method, ...)` reads it off the method by name.
"""

import dataclasses
import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated

from understudy.encoding.features import FEATURES, MODES, Blocks
from understudy.errors import ConfigError
from understudy.models.networks import GENERATORS
from understudy.models.zeros import Masks
from understudy.privacy.clipping import LEAST_CLIP, MOST_CLIP
from understudy.settings import Between, Count, Fraction, KeyOf, NotNegative, OneOf, Positive, Widths, check_settings
from understudy.training.losses import LOSSES

if TYPE_CHECKING:
    from understudy.schema import Domain  # reads tables; training alone must not need to

ClipNorm = Annotated[float, Between(LEAST_CLIP, MOST_CLIP)]

MOST_NUMBERS = 2**30
"""The most numbers, rows times columns, that features are made of: all of them are in memory, in 8 bytes each."""


def check_numbers(domain: "Domain", advice: str) -> None:
    """Refuse a table whose numbers do not fit in memory, by its declared number of rows."""
    rows, columns = domain.declared_rows or 0, len(domain.names)
    if rows * columns > MOST_NUMBERS:
        raise ConfigError(
            f"This method needs the numbers of all rows in memory, and {rows:,} declared rows of {columns} columns are "
            f"{rows * columns:,} numbers; the limit is {MOST_NUMBERS:,}. {advice}"
        )


@dataclasses.dataclass(frozen=True, kw_only=True)
class FeatureSettings:
    """What the networks see of a row."""

    features: Annotated[str, OneOf(*FEATURES)] = "binned"
    """What the networks see of a number: binned (a category for each bin), typed (a bounded number, or bits) or
    modes."""
    modes: Annotated[str, OneOf(*MODES)] = MODES[0]
    """With features="modes": components fitted to noisy histograms, or a public_grid of them."""
    num_modes: Count = 10
    """The largest number of components of a number."""

    def check_features(self, domain: "Domain") -> None:
        """Refuse features that need the numbers of too many rows. Before anything is charged, by public facts."""
        if self.features != "binned":
            check_numbers(domain, 'Use features="binned", which trains on codes.')


@dataclasses.dataclass(frozen=True, kw_only=True)
class GeneratorSettings:
    """The generator's network."""

    arch: Annotated[str, KeyOf(GENERATORS)] = "residual"
    """residual or plain."""
    latent: Count = 64
    """The dimension of the normal vector that a row is generated from."""
    generator_widths: Widths = (256, 256)
    gumbel_temperature: Positive = 0.5
    """Temperature of the Gumbel-softmax that makes categories."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class CriticSettings:
    """The critic's network and loss."""

    loss: Annotated[str, OneOf(*LOSSES)] = "gan"
    """gan, saturating_gan, wgan, wgan_gp, dragan or kl_wgan."""
    fake_term: Annotated[str, OneOf("separate", "paired")] = "separate"
    """separate, or paired: one generated row clipped together with each real one."""
    critic_widths: Widths = (64, 64)
    """Small on purpose: noise grows with the number of weights."""
    critic_steps: Count = 1
    """Critic steps for each generator step."""
    weight_clip: float = 0.0
    """Critic weights are clipped to this; 0: not at all."""
    spectral: bool = False
    """Whether weight matrices of the critic are divided by their largest singular value where it exceeds one."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class AdamSettings:
    """How the networks step, and how the generator is averaged."""

    betas: tuple[Fraction, Fraction] = (0.5, 0.9)
    """The betas of Adam."""
    ema_decay: Fraction = 0.99
    """Decay of the moving average of the generator, which is released."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class OptimizerSettings(AdamSettings):
    """How the networks step, and by which rule."""

    optimizer: Annotated[str, OneOf("adam", "sgd", "rmsprop", "momentum")] = "adam"


@dataclasses.dataclass(frozen=True, kw_only=True)
class LearningSettings:
    """How far the two networks step, and how long on public rows."""

    critic_learning_rate: Positive = 5e-3
    generator_learning_rate: Positive = 4e-3
    warm_steps: Count = 500
    """With a public table: steps on its rows, without noise, before the first private one."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class SamplingSettings:
    """The batches of private steps."""

    sampling_rate: float = 1 / 32
    """The probability that a unit enters a step. Public, and independent of the number of rows."""
    chunk_size: Count | None = None
    """Units processed at once: fewer need less memory. None: nearly every batch at once. Does not affect privacy."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class ClipSettings:
    """How groups of weights are clipped."""

    clip_groups: Count = 1
    """Smart clipping: groups of weights with bounds of their own, by the size of their gradients on generated rows."""
    clip_allocation: Annotated[str, OneOf("uniform", "optimal")] = "optimal"
    """How noise is allocated to groups: uniform, or optimal."""
    adaptive_clip: Annotated[str, OneOf("none", "public", "quantile", "noisy_norm")] = "none"
    """Where bounds come from: none (fixed), public (or generated) rows, quantile (noisy counts), noisy_norm."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class MarginalSettings:
    """Noisy 1-way marginals that regularise the generator."""

    marginals_fraction: Fraction = 0.1
    """The fraction of the budget for noisy one-way marginals."""
    marginal_weight: NotNegative = 30.0
    """How strongly the generator is regularised towards noisy marginals."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class TargetSettings:
    """Noisy 2-way marginals with the target."""

    target_fraction: Fraction = 0.0
    """The fraction of the budget for noisy marginals of each column with the target, where features are binned and the
    target is not numeric and has at most 8 declared categories."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class ConditionSettings:
    """Settings of conditional generators."""

    max_weight: Annotated[float, Between(1, math.inf)] = 10.0
    """A row's loss is weighted for the rarity of its condition, at most by this, before its gradient is clipped."""
    condition_weight: NotNegative = 1.0
    """The weight of the generator's loss for not meeting its condition."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class CriticStepSettings(SamplingSettings):
    """The private steps of a critic."""

    steps: Count = 1000
    """Critic steps; each costs budget."""
    clip_norm: ClipNorm = 1.0
    """The clip norm of one unit's gradient; with `adaptive_clip`, its initial value."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class GANSettings(
    MarginalSettings,
    LearningSettings,
    OptimizerSettings,
    GeneratorSettings,
    FeatureSettings,
    CriticSettings,
    CriticStepSettings,
):
    """Of methods with a critic trained by DP-SGD. Settings are listed from the last base to the first."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Settings(GeneratorSettings, CriticSettings, OptimizerSettings, ClipSettings):
    """What is compiled into the program. All of it is public."""

    blocks: Blocks
    batch_size: int
    """The public batch size, sampling rate times the public number of units: the denominator, and a batch of fakes."""
    chunk_size: int | None = None
    """Units handled at once; None: nearly every batch at once."""
    dropout: float = 0.0
    generator_batch: int = 512
    quantile: float = 0.5
    quantile_rate: float = 0.2
    regroup_every: int = 200
    marginal_weight: float = 0.0
    target_block: int | None = None
    """The block of the target, if the generator is regularised towards marginals with it too."""
    condition_weight: float = 1.0
    masks: Masks = ()
    """The codes of one-hot blocks that structural zeros leave possible, given earlier blocks."""

    @classmethod
    def of(cls, method: object, **values: object) -> "Settings":
        """The settings of a method that are compiled in, and these values beside or instead of them."""
        names = {field.name for field in dataclasses.fields(cls)}
        settings: Callable[..., Settings] = cls
        return settings(**({name: getattr(method, name) for name in names if hasattr(method, name)} | values))

    def __post_init__(self) -> None:
        check_settings(self)
        if self.arch == "residual" and len(set(self.generator_widths)) != 1:
            raise ConfigError(
                f"The layers of a residual generator have one width, found {list(self.generator_widths)}. Write "
                "generator_widths=[128, 128], or use arch=plain."
            )
        if self.fake_term == "paired" and LOSSES[self.loss].couples_fakes:
            raise ConfigError(
                f"fake_term=paired cannot be combined with loss={self.loss}, in which generated rows "
                "depend on each other."
            )

    @property
    def needs_fakes(self) -> bool:
        """Whether a private row's term holds a generated row."""
        return self.fake_term == "paired" or LOSSES[self.loss].penalty == "between"
