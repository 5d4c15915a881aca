"""Shapes and types are checked while tests run; users never pay for it."""

import numpy as np
from beartype import BeartypeConf, FrozenDict, beartype

# A whole number is a float too, and so is one of NumPy's.
checked = beartype(conf=BeartypeConf(hint_overrides=FrozenDict({float: float | int | np.floating})))
