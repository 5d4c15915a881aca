"""Private post-GAN boosting: the wrapper (`method`) and the game it plays (`game`)."""

from understudy.synthesizers.boosted.method import Boosted

__all__ = ["Boosted"]
