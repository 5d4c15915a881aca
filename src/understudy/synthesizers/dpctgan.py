"""DP-CTGAN: a conditional generator and a critic trained by DP-SGD.

After Xu et al., "Modeling tabular data using conditional GAN", 2019, and its private version in Rosenblatt et al.,
2020. The published construction reads categories and frequencies off the rows and picks rows by their category, which
breaks the amplification it counts on. Here the one-way counts are bought, a row takes its condition from itself, and
weights before the clip stand for training by sampling, so every row enters a step with the same public probability. The
cross-entropy that tells the generator to meet its condition compares noisy marginals with generated rows: it is kept.
"""

import dataclasses
import math
from typing import Annotated

import numpy as np
from jaxtyping import Array

from understudy.encoding.features import Blocks, Layout
from understudy.errors import ConfigError
from understudy.settings import Between, NotNegative
from understudy.synthesizers.dpgan import DPGAN
from understudy.training.critics import Conditions
from understudy.training.gan import Settings


@dataclasses.dataclass(frozen=True, kw_only=True)
class DPCTGAN(DPGAN):
    """A generator that can be asked for a level of a column, taught by a private critic that sees the level too."""

    max_weight: Annotated[float, Between(1, math.inf)] = 10.0
    """A row's loss is weighted for the rarity of its condition, at most by this, before its gradient is clipped."""
    condition_weight: NotNegative = 1.0
    """How strongly the generator is told to meet its condition."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.marginals_fraction:
            raise ConfigError("marginals_fraction must be positive: conditions are drawn from bought marginals.")

    def _settings(self, blocks: Blocks, num_rows: int) -> Settings:
        return dataclasses.replace(super()._settings(blocks, num_rows), condition_weight=self.condition_weight)

    def _conditions(self, layout: Layout, marginal: Array | None, num_rows: int) -> Conditions | None:
        """On the columns whose levels stand in the row one by one; without any, the generator takes no condition."""
        assert marginal is not None
        wanted = [column is not None for column in layout.discrete]
        if not any(wanted):
            return None
        return Conditions.from_marginal(layout.blocks, np.asarray(marginal), num_rows, self.max_weight, wanted)
