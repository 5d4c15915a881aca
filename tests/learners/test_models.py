"""Fitted models on codes: with or without the target, with or without positions."""

import copy
import json
import math
from typing import Any

import numpy as np
import pytest

import understudy as us
from tests.builders import raises
from tests.learners.people import FEW, NUMBERS, SCHEMA, TABLE, encoded, key, ledger
from understudy.certificate.agreement import Contradiction
from understudy.errors import ConfigError
from understudy.learners import methods
from understudy.models.predictors import predictor_from_arrays
from understudy.privacy.accounting.ledger import Budget
from understudy.synthesizers.run import Run


def test_models_take_codes_with_or_without_the_target() -> None:
    """What a wrapper of synthesizers needs: rows without the target, and no places, get labels."""
    rows, _ = encoded()
    for method in (methods.Logistic(**FEW), methods.NaiveBayes(numbers="gaussian"), methods.Prior()):
        model = method.fit(Run(rows, method.plan(rows.domain, Budget(math.inf, 1e-6)), ledger(), key=key()))
        whole, without = rows._codes, rows._codes[:, :3]
        assert np.array_equal(model.predict_proba(whole), model.predict_proba(without))
        assert model.predict_proba(whole).shape == (600, 3)
        likely = model.predict(without)
        assert np.array_equal(likely, model.predict_proba(without).argmax(axis=1))
        drawn = model.sample(np.repeat(without[:1], 4000, axis=0), key=key())
        shares = np.bincount(drawn, minlength=3) / 4000
        # Five standard deviations of a share.
        assert shares == pytest.approx(model.predict_proba(without[:1])[0], abs=5 * 0.5 / math.sqrt(4000))
    plan = methods.Logistic(**FEW).plan(rows.domain, Budget(math.inf, 1e-6))
    logistic = methods.Logistic(**FEW).fit(Run(rows, plan, ledger(), key=key()))
    with pytest.raises(ConfigError):
        logistic.predict(rows._codes[:, :2])


def test_numbers_get_places_codes_and_draws() -> None:
    rows, codec = encoded(schema=NUMBERS)
    method = methods.Linear(residual=True)
    model = method.fit(Run(rows, method.plan(rows.domain, Budget(math.inf, 1e-6)), ledger(), key=key()))
    others = np.delete(rows._codes, 2, axis=1)
    found = model.predict(others)
    assert ((found >= 0) & (found <= 1)).all()
    bins = model.codes_of(found)
    edges = np.asarray(codec.scales[2].edges)  # type: ignore[union-attr]  # a numeric column
    assert (edges[bins] <= found).all()
    assert (found <= edges[bins + 1]).all()
    drawn = model.sample(np.repeat(others[:1], 3000, axis=0), key=key())
    assert drawn.std() == pytest.approx(model.residual_stddev, rel=0.1)
    assert drawn.mean() == pytest.approx(found[0], abs=0.02)
    plain = methods.Linear()
    bare = plain.fit(Run(rows, plain.plan(rows.domain, Budget(math.inf, 1e-6)), ledger(), key=key()))
    with raises(ConfigError, setting="residual"):
        bare.sample(others, key=key())


def test_an_unknown_model_is_refused() -> None:
    with pytest.raises(ConfigError):
        predictor_from_arrays({"kind": "forest"}, {})


BESIDE: dict[str, tuple[tuple[str, ...], object]] = {
    "rows of the codec": (("codec", "num_rows"), 999_999),
    "rows": (("codec", "schema", "rows"), 5),
    "rows of both": (("codec",), {"num_rows": 5, "schema": {"rows": 5}}),
    "name": (("codec", "schema", "name"), "other"),
    "responsible": (("codec", "schema", "responsible"), "other"),
    "categories": (("codec", "schema", "columns", "0", "categories"), ["a", "b"]),
    "method": (("certificate", "method"), "NaiveBayes"),
    "declared": (("certificate", "public", "declared"), ["nothing"]),
    "estimated": (("certificate", "estimated"), ["number of rows: about 5"]),
    "noise": (("certificate", "guarantee", "epsilon"), 0.01),
}
"""By fact that is in a fitted learner twice: where it is, and another value."""


@pytest.fixture(scope="module")
def fitted() -> tuple[dict[str, Any], Any]:
    structure, arrays = us.learners.ClassPrior(schema=SCHEMA, guarantee=us.Guarantee(1.0, 1e-5)).fit(TABLE).to_arrays()
    return json.loads(json.dumps(structure)), arrays


@pytest.mark.parametrize("fact", BESIDE)
def test_a_learner_that_contradicts_its_certificate_is_refused(fitted: tuple[dict[str, Any], Any], fact: str) -> None:
    structure, arrays = fitted
    us.learners.ClassPrior.from_arrays(structure, arrays)
    forged = copy.deepcopy(structure)
    path, value = BESIDE[fact]
    put(forged, path, value)
    with pytest.raises(Contradiction):
        us.learners.ClassPrior.from_arrays(forged, arrays)


def put(content: Any, path: tuple[str, ...], value: object) -> None:
    """Replaces one value, or each of those in a dictionary of values."""
    for name in path[:-1]:
        content = content[int(name) if isinstance(content, list) else name]
    if not isinstance(value, dict):
        content[path[-1]] = value
        return
    for name, inner in value.items():
        put(content, (path[-1], name), inner)
