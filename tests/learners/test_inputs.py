"""Inputs of a row: their norm, and numbers known by their bins only."""

import json

import numpy as np
import pytest

from tests.learners.people import encoded
from understudy.learners import methods
from understudy.models.inputs import Inputs, bin_middles, inputs_of
from understudy.schema import Domain, NumericDomain


def test_inputs_have_norm_one_at_most() -> None:
    rows, _ = encoded()
    for numbers in ("positions", "bins", "both"):
        for intercept in (False, True):
            inputs = inputs_of(rows.domain, rows.scales, "level", numbers=numbers, intercept=intercept)
            features = inputs.encode(rows._codes, rows._positions)
            assert features.shape == (600, inputs.width) == (600, len(inputs.input_names))
            assert np.linalg.norm(features, axis=1).max() <= 1 + 1e-12
            assert Inputs.from_dict(json.loads(json.dumps(inputs.to_dict()))) == inputs
            exclusive = methods.exclusive(inputs)
            gram = features.T @ features
            assert (gram[exclusive] == 0).all()
            assert inputs.of_column.shape == (inputs.width,)


def test_without_places_numbers_stand_in_the_middle_of_their_bins() -> None:
    scale = NumericDomain(fine_edges=(0.0, 0.2, 0.4, 1.0), fine_masses=(0.25, 0.75, 0.0), first_fine_bin=(0, 2, 3))
    assert bin_middles(scale) == pytest.approx((0.25, 0.7), abs=1e-6)
    domain = Domain(names=("x", "y"), sizes=(2, 2), num_rows=10, target="y", numeric=("x",))
    inputs = inputs_of(domain, (scale, None), "y", numbers="positions")
    assert inputs.encode(np.array([[0, 1], [1, 0]]))[:, 0] == pytest.approx([-0.5, 0.4], abs=1e-6)
