"""Fitted models on codes: with or without the target, with or without positions."""

import math

import numpy as np
import pytest

from tests.learners.people import FEW, NUMBERS, encoded, key, ledger
from understudy.errors import ConfigError
from understudy.learners import methods
from understudy.models.predictors import predictor_from_arrays
from understudy.privacy.ledger import Budget


def test_models_take_codes_with_or_without_the_target() -> None:
    """What a wrapper of synthesizers needs: rows without the target, and no places, get labels."""
    rows, _ = encoded()
    for method in (methods.Logistic(**FEW), methods.NaiveBayes(numbers="gaussian"), methods.Prior()):
        model = method.fit(rows, method.plan(rows.domain, Budget(math.inf, 1e-6)), ledger(), key=key())
        whole, without = rows._codes, rows._codes[:, :3]
        assert np.array_equal(model.predict_proba(whole), model.predict_proba(without))
        assert model.predict_proba(whole).shape == (600, 3)
        likely = model.predict(without)
        assert np.array_equal(likely, model.predict_proba(without).argmax(axis=1))
        drawn = model.sample(np.repeat(without[:1], 4000, axis=0), key=key())
        shares = np.bincount(drawn, minlength=3) / 4000
        # Five standard deviations of a share.
        assert shares == pytest.approx(model.predict_proba(without[:1])[0], abs=5 * 0.5 / math.sqrt(4000))
    with pytest.raises(ConfigError, match="columns"):
        methods.Logistic(**FEW).fit(
            rows, methods.Logistic(**FEW).plan(rows.domain, Budget(math.inf, 1e-6)), ledger(), key=key()
        ).predict(rows._codes[:, :2])


def test_numbers_get_places_codes_and_draws() -> None:
    rows, codec = encoded(schema=NUMBERS)
    method = methods.Linear(residual=True)
    model = method.fit(rows, method.plan(rows.domain, Budget(math.inf, 1e-6)), ledger(), key=key())
    others = np.delete(rows._codes, 2, axis=1)
    found = model.predict(others)
    assert ((found >= 0) & (found <= 1)).all()
    bins = model.codes_of(found)
    edges = np.asarray(codec.scales[2].edges)  # type: ignore[union-attr]
    assert (edges[bins] <= found).all()
    assert (found <= edges[bins + 1]).all()
    drawn = model.sample(np.repeat(others[:1], 3000, axis=0), key=key())
    assert drawn.std() == pytest.approx(model.residual_stddev, rel=0.1)
    assert drawn.mean() == pytest.approx(found[0], abs=0.02)
    plain = methods.Linear()
    bare = plain.fit(rows, plain.plan(rows.domain, Budget(math.inf, 1e-6)), ledger(), key=key())
    with pytest.raises(ConfigError, match="not estimated"):
        bare.sample(others, key=key())


def test_an_unknown_model_is_refused() -> None:
    with pytest.raises(ConfigError, match="Expected a learner"):
        predictor_from_arrays({"kind": "forest"}, {})
