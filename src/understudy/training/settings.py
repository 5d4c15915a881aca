"""Settings that neural methods share, each written once.

A method is a frozen dataclass that lists the groups it has as its bases, so its settings are flat keyword arguments and
flat names in expressions. A default of its own is a field of its own. `Settings` is what of them is compiled into the
program; `Settings.of(method, ...)` reads it off the method by name.
"""

import dataclasses
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, ClassVar

from understudy.encoding.features import FEATURES, Blocks
from understudy.errors import ConfigError
from understudy.models.neural import GENERATORS
from understudy.models.zeros import Masks
from understudy.privacy.gradients.clipping import MAX_CLIP, MIN_CLIP
from understudy.synthesizers.settings import (
    Count,
    Fraction,
    KeyOf,
    NotNegative,
    OneOf,
    Positive,
    Range,
    Widths,
    check_settings,
)
from understudy.training.critics import LOSSES

if TYPE_CHECKING:
    from understudy.schema import Domain  # reads tables; training alone must not need to

ClipNorm = Annotated[float, Range(MIN_CLIP, MAX_CLIP)]

MAX_NUMBERS = 2**30
"""The most numbers, rows times columns, that features are made of: all of them are in memory, in 8 bytes each."""


def check_numbers(domain: "Domain", advice: str) -> None:
    """Refuse a table whose numbers do not fit in memory, by its declared number of rows."""
    rows, columns = domain.declared_rows or 0, len(domain.names)
    if rows * columns > MAX_NUMBERS:
        raise ConfigError(
            f"This method needs the numbers of all rows in memory, and {rows:,} declared rows of {columns} columns are "
            f"{rows * columns:,} numbers; the limit is {MAX_NUMBERS:,}. {advice}",
            setting="features",
        )


NUM_MODES = 10


@dataclasses.dataclass(frozen=True, kw_only=True)
class FeatureSettings:
    """What the networks see of a row."""

    features: Annotated[str, OneOf(*FEATURES)] = "binned"
    """What the networks see of a number: binned (a category for each bin), typed (a bounded number, or bits) or
    modes."""
    num_modes: ClassVar[int] = NUM_MODES
    binary: ClassVar[str] = "one_hot"
    """With features="typed" or "modes": what the networks see of a column of two categories, one_hot or one bit."""

    def check_features(self, domain: "Domain") -> None:
        """Refuse features that need the numbers of too many rows. Before anything is charged, by public facts."""
        if self.features == "binned" and self.binary != "one_hot":
            raise ConfigError(
                f"binary={self.binary} cannot be combined with features=binned, whose columns are all one-hot. Use "
                "features=typed.",
                setting="binary",
            )
        if self.features != "binned":
            check_numbers(domain, 'Use features="binned", which trains on codes.')


@dataclasses.dataclass(frozen=True, kw_only=True)
class ModeSettings(FeatureSettings):
    """The same, with the number of components."""

    num_modes: Count = NUM_MODES  # type: ignore[misc]  # mypy wants a constant to stay one
    """The largest number of components of a number."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class GeneratorSettings:
    """The generator's network."""

    arch: Annotated[str, KeyOf(GENERATORS)] = "residual"
    """residual or plain."""
    latent: Count = 64
    """The dimension of the normal vector that a row is generated from."""
    generator_widths: Widths = (256, 256)
    """The widths of the hidden layers of the generator."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class CriticSettings:
    """The critic's network and loss."""

    loss: Annotated[str, OneOf(*LOSSES)] = "gan"
    """gan, saturating_gan, wgan, wgan_gp, dragan or kl_wgan."""
    fake_term: Annotated[str, OneOf("separate", "paired", "clipped")] = "separate"
    """separate; paired: one generated row clipped together with each real one; clipped: generated rows clipped one by
    one like real ones."""
    critic_widths: Widths = (64, 64)
    """Small on purpose: noise grows with the number of weights."""
    critic_steps: Count = 1
    """Critic steps for each generator step."""
    weight_clip: float = 0.0
    """Critic weights are clipped to this; 0: not at all."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class AdamSettings:
    """How the networks step."""

    betas: tuple[Fraction, Fraction] = (0.5, 0.9)
    """The betas of Adam."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class AveragingSettings:
    """How the generator is averaged."""

    ema_decay: Fraction = 0.99
    """Decay of the moving average of the generator, which is released."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class LearningSettings:
    """How far the two networks step."""

    critic_learning_rate: Positive = 5e-3
    """The learning rate of the critic's private steps."""
    generator_learning_rate: Positive = 4e-3
    """The learning rate of the generator's steps, which have no privacy cost."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class WarmSettings:
    """How long the networks step on public rows."""

    warm_steps: Count = 500
    """With a public table: steps on its rows, without noise, before the first private one."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class ClipSettings:
    """How groups of weights are clipped."""

    clip_groups: Count = 1
    """Smart clipping: groups of weights with bounds of their own, by the size of their gradients on generated rows."""
    clip_allocation: Annotated[str, OneOf("uniform", "optimal", "equal")] = "optimal"
    """How noise is allocated to groups: uniform (in proportion to their clip norms), optimal (least noise in total) or
    equal (the same noise on every weight)."""
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


NUM_STEPS = 1000
"""Where neither a number of steps nor a noise multiplier is set."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class StepSettings:
    """The batches of private steps, and how many a training makes: a number, or as many as the budget covers."""

    sampling_rate: float = 1 / 32
    """The probability that a unit enters a step. Public, and independent of the number of rows."""
    steps: Count | None = None
    """Steps; each costs budget. Left out: 1000, or as many as the budget covers with `noise_multiplier`."""
    noise_multiplier: Positive | None = None
    """The noise multiplier of a step, as papers give it: the number of steps then follows from the budget, before any
    row is read. Left out: the least noise with which `steps` fit the budget."""

    @property
    def num_steps(self) -> int:
        """The number of steps by settings alone; refused where it follows from the budget."""
        if self.noise_multiplier is not None:
            raise ConfigError(
                "With noise_multiplier the number of steps follows from the budget, so the number of checkpoints is "
                "not known in advance. Set steps instead; the plan of the method alone says how many fit.",
                setting="noise_multiplier",
            )
        return NUM_STEPS if self.steps is None else self.steps

    def check_steps(self) -> None:
        """Refuse two settings that each determine the number of steps."""
        if self.steps is not None and self.noise_multiplier is not None:
            raise ConfigError(
                f"Give steps or noise_multiplier, not both: found steps={self.steps} and noise_multiplier="
                f"{self.noise_multiplier:g}. Each follows from the other and the budget.",
                setting="noise_multiplier",
            )


@dataclasses.dataclass(frozen=True, kw_only=True)
class CriticStepSettings(StepSettings):
    """The private steps of a critic."""

    clip_norm: ClipNorm = 1.0
    """The clip norm of one unit's gradient; with `adaptive_clip`, its initial value."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class GANSettings(
    MarginalSettings,
    WarmSettings,
    LearningSettings,
    AveragingSettings,
    AdamSettings,
    GeneratorSettings,
    ModeSettings,
    CriticSettings,
    CriticStepSettings,
):
    """Of methods with a critic trained by DP-SGD. Settings are listed from the last base to the first."""

    def num_checkpoints(self, every: int) -> int:
        """The number of checkpoints if one is kept every `every` generator steps."""
        return self.num_steps // self.critic_steps // every


@dataclasses.dataclass(frozen=True, kw_only=True)
class Settings(GeneratorSettings, CriticSettings, AveragingSettings, AdamSettings, ClipSettings):
    """What is compiled into the program. All of it is public.

    What is not a setting of any method is constant, except in experiments, whose methods may have more settings.
    """

    blocks: Blocks
    batch_size: int
    """The public batch size, sampling rate times the public number of units: the denominator, and a batch of fakes."""
    chunk_size: int | None = None
    """Units handled at once; None: nearly every batch at once."""
    gumbel_temperature: Positive = 0.5
    """Temperature of the Gumbel-softmax that makes categories."""
    critic_dropout: Fraction = 0.0
    """The probability that a hidden value of the critic is dropped, for each row by itself; 0: none is."""
    optimizer: Annotated[str, OneOf("adam", "sgd", "rmsprop", "momentum")] = "adam"
    regroup_every: Count = 200
    """Critic steps after which groups, and clip norms from public (or generated) rows, are determined again."""
    clip_rows: Count = 256
    """Public (or generated) rows that they are determined from."""
    generator_batch: int = 512
    marginal_weight: float = 0.0
    target_block: int | None = None
    """The block of the target, if the generator is regularised towards marginals with it too."""
    condition_weight: float = 1.0
    """The weight of the generator's loss for not meeting its condition."""
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
                "generator_widths=[128, 128], or use arch=plain.",
                setting="generator_widths",
            )
        if self.fake_term != "separate" and LOSSES[self.loss].couples_fakes:
            raise ConfigError(
                f"fake_term={self.fake_term} cannot be combined with loss={self.loss}, in which generated rows "
                "depend on each other.",
                setting="fake_term",
            )

    @property
    def needs_fakes(self) -> bool:
        """Whether a private row's term holds a generated row."""
        return self.fake_term == "paired" or LOSSES[self.loss].penalty == "between"
