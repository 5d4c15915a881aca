"""Methods with the settings that only the papers' experiments change; in the package they are constants.

An expression of these is read by `read`, and written by `express` as that of the package's method is.
"""

import dataclasses
import sys
from pathlib import Path
from typing import Annotated
from unittest import mock

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

sys.path[:0] = [str(Path(__file__).parents[2]), str(Path(__file__).parents[2] / "src")]

import understudy as us  # noqa: E402
from understudy.encoding.features import Blocks, is_one_hot  # noqa: E402
from understudy.errors import ConfigError  # noqa: E402
from understudy.models.neural import block_log_softmax  # noqa: E402
from understudy.privacy.gradients.clipping import RowLoss  # noqa: E402
from understudy.schema import Domain  # noqa: E402
from understudy.synthesizers import Synthesizer, read_method  # noqa: E402
from understudy.synthesizers.registry import SYNTHESIZERS  # noqa: E402
from understudy.synthesizers.settings import Count, Fraction, NotNegative, OneOf, Positive, Widths  # noqa: E402
from understudy.training.autoencoder import ReconstructionLoss, binary_cross_entropy  # noqa: E402
from understudy.training.neural import Encoder  # noqa: E402
from understudy.training.settings import ClipNorm  # noqa: E402


@dataclasses.dataclass(frozen=True, kw_only=True)
class Networks:
    """What networks of the papers differ in."""

    binary: Annotated[str, OneOf("one_hot", "bit")] = "one_hot"
    gumbel_temperature: Positive = 0.5
    critic_dropout: Fraction = 0.0
    optimizer: Annotated[str, OneOf("adam", "sgd", "rmsprop", "momentum")] = "adam"


@dataclasses.dataclass(frozen=True, kw_only=True)
class DPGAN(Networks, us.DPGAN):
    regroup_every: Count = 200
    clip_rows: Count = 256


@dataclasses.dataclass(frozen=True, kw_only=True)
class DPCTGAN(Networks, us.DPCTGAN):
    condition_weight: NotNegative = 1.0


@dataclasses.dataclass(frozen=True, kw_only=True)
class Votes:
    """How teachers and student of the papers train."""

    pool: Count = 4
    teacher_steps: Count = 1
    student_steps: Count = 4
    betas: tuple[Fraction, Fraction] = (0.5, 0.9)


@dataclasses.dataclass(frozen=True, kw_only=True)
class PATEGAN(Votes, us.PATEGAN):
    pass


@dataclasses.dataclass(frozen=True, kw_only=True)
class PATECTGAN(Votes, Networks, us.PATECTGAN):
    pass


@dataclasses.dataclass(frozen=True, kw_only=True)
class AutoGAN(Networks, us.AutoGAN):
    # mypy wants a constant to stay one
    autoencoder_widths: Widths = ()  # type: ignore[misc]
    autoencoder_learning_rate: Positive = 5e-3  # type: ignore[misc]
    autoencoder_clip_norm: ClipNorm = 1.0  # type: ignore[misc]
    autoencoder_noise_multiplier: Positive | None = None  # type: ignore[misc]
    reconstruction: Annotated[str, OneOf("typed", "bce")] = "typed"
    """typed: the package's loss for each kind of column. bce: binary cross-entropy of every feature, as published."""
    reduction: Annotated[str, OneOf("sum", "mean")] = "sum"
    """Whether a row's loss is the sum over its columns or their mean."""
    weight_decay: NotNegative = 0.0  # type: ignore[misc]

    def _row_loss(self, fixed: Encoder | None, blocks: Blocks) -> RowLoss:
        return RowLoss(PublishedLoss(fixed, blocks, self.reconstruction, self.reduction))

    def _check_domain(self, domain: Domain) -> None:
        super()._check_domain(domain)
        numbers_only = self.features == "typed" and domain.numeric and set(domain.numeric) == set(domain.names)
        if self.reconstruction == "bce" and numbers_only:
            raise ConfigError(
                "reconstruction=bce is for features that are 0 or 1, and with features=typed every column of this "
                "table is a number. Use reconstruction=typed, or features=binned."
            )


class PublishedLoss(ReconstructionLoss):
    """The loss of a row in the DP-auto-GAN paper and in its code.

    With bce, numbers stand between 0 and 1 too, and the categories of a block share a softmax where the paper gives
    each a sigmoid.
    """

    reconstruction: str = eqx.field(static=True)
    reduction: str = eqx.field(static=True)

    def of_logits(self, logits: Float[Array, " features"], features: Float[Array, " features"]) -> Float[Array, ""]:
        if self.reconstruction == "typed":
            return super().of_logits(logits, features) / (1 if self.reduction == "sum" else len(self.blocks))
        level = is_one_hot(self.blocks)
        is_number = np.repeat([block.kind == "tanh" for block in self.blocks], [block.size for block in self.blocks])
        logs = jnp.minimum(jnp.where(level, block_log_softmax(logits[None], self.blocks)[0], -1.0), -1e-6)
        of_levels = -features * logs - (1 - features) * jnp.log(-jnp.expm1(logs))
        # The head of a number is tanh(logit), whose position between -1 and 1 is the sigmoid of twice the logit.
        targets = jnp.where(is_number, (features + 1) / 2, features)
        terms = jnp.where(level, of_levels, binary_cross_entropy(jnp.where(is_number, 2 * logits, logits), targets))
        return terms.sum() / (1 if self.reduction == "sum" else len(level))


METHODS = {name.lower(): f"{__name__}:{name}" for name in ("DPGAN", "DPCTGAN", "PATEGAN", "PATECTGAN", "AutoGAN")}


def read(expression: str) -> Synthesizer:
    """The method of an expression that may have these settings.

    >>> read("boosted(dpgan(clip_rows=512), rounds=5)").inner.clip_rows
    512
    """
    with mock.patch.dict(SYNTHESIZERS, METHODS):
        return read_method(expression)
