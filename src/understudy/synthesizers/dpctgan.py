"""DP-CTGAN: a conditional generator and a critic trained by DP-SGD.

After Xu et al., "Modeling tabular data using conditional GAN", 2019, and its private version in Rosenblatt et al.,
2020. The published construction reads categories and frequencies off the rows and samples rows by their category, which
breaks the amplification it counts on. Here the one-way marginals are noisy, a row takes its condition from itself, and
weights before the clip stand for training by sampling, so every row enters a step with the same public probability. The
cross-entropy that tells the generator to meet its condition compares noisy marginals with generated rows: it is kept.
"""

import dataclasses

from understudy.synthesizers.dpgan import CriticGAN
from understudy.synthesizers.neural import ConditionalMethod


@dataclasses.dataclass(frozen=True, kw_only=True)
class DPCTGAN(ConditionalMethod, CriticGAN):
    """A GAN with a generator conditioned on a category of one column; its critic is trained by DP-SGD.

    >>> import understudy as us
    >>> from understudy.synthesizers import express
    >>> express(us.DPCTGAN(steps=2000))  # as --method reads it
    'dpctgan(steps=2000)'
    """
