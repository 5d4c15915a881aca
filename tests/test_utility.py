"""What each method is for, measured on a public table. Slow, and skipped without UNDERSTUDY_DATA."""

import itertools

import numpy as np
import pytest

import understudy as us
from understudy.benchmark.tables import load_table


def two_way_error(real: np.ndarray, fake: np.ndarray) -> float:
    """Mean total variation distance over all pairs of coded columns."""

    def shares(codes: np.ndarray, a: int, b: int, width: int) -> np.ndarray:
        return np.bincount(codes[:, a] * width + codes[:, b], minlength=width**2) / len(codes)

    width = int(max(real.max(), fake.max())) + 1
    pairs = itertools.combinations(range(real.shape[1]), 2)
    return float(np.mean([np.abs(shares(real, a, b, width) - shares(fake, a, b, width)).sum() / 2 for a, b in pairs]))


@pytest.mark.slow
@pytest.mark.usefixtures("understudy_data")
def test_pairs_are_kept_better_by_each_richer_method() -> None:
    """On Adult at epsilon 1 the 2-way error falls from independent columns to a tree of pairs to AIM."""
    table = load_table("adult")
    train, schema = table.train, table.schema
    errors = {}
    for method in ("independent", "mst", "aim"):
        release = us.fit(train, method, us.Guarantee(1.0, 1e-5), schema=schema, seed=0)
        fake = release.codec.encode(release.sample_arrow(seed=0))
        errors[method] = two_way_error(release.codec.encode(train), fake)
    assert errors["aim"] < 0.8 * errors["mst"]
    assert errors["mst"] < 0.8 * errors["independent"]
