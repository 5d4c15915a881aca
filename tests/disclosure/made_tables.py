"""Made-up people: one distribution, from which training, held-out and synthetic rows are drawn."""

import numpy as np
import pandas as pd


def draw_people(num_rows: int, seed: int, *, decimals: int = 2) -> pd.DataFrame:
    """Three numbers and three categories that depend on one another; with two decimals nearly every row is unique."""
    generator = np.random.default_rng(seed)
    hidden = generator.normal(size=(num_rows, 2))
    numbers = {
        name: np.round(10 * (hidden[:, at % 2] + generator.normal(size=num_rows)), decimals)
        for at, name in enumerate(("height", "weight", "income"))
    }
    edges = {"sex": [0.0], "region": [-1.0, 0.0, 1.0], "smokes": [0.7]}
    labels = {"sex": ["f", "m"], "region": list("nesw"), "smokes": ["no", "yes"]}
    categories = {
        name: np.array(labels[name])[np.searchsorted(edges[name], hidden[:, at % 2] + generator.normal(size=num_rows))]
        for at, name in enumerate(edges)
    }
    return pd.DataFrame({**numbers, **categories})


def draw_common(num_rows: int, seed: int) -> pd.DataFrame:
    """Rows of three columns with 16 combinations: nearly every row has many twins."""
    return draw_people(num_rows, seed)[["sex", "region", "smokes"]]
