"""Associations of pairs of columns, against SciPy."""

import math

import numpy as np
import pyarrow as pa
import pytest
from scipy import stats

from tests.evaluation.encoded import encode, some_pair
from understudy.evaluation.associations import correlations
from understudy.evaluation.table import EncodedTable


@pytest.fixture(scope="module")
def pair() -> tuple[EncodedTable, EncodedTable]:
    return some_pair()


def test_associations_equal_scipy(pair: tuple[EncodedTable, EncodedTable]) -> None:
    result = correlations(*pair)
    names, found = list(pair[0].layout.names), np.array(result.details["synthetic"])
    table = pair[1]
    both = ~np.isnan(table["income"])
    pearson = stats.pearsonr(table["age"][both], table["income"][both]).statistic
    assert found[names.index("age"), names.index("income")] == pytest.approx(pearson, abs=1e-5)
    crossed = stats.contingency.crosstab(table["degree"], table["city"]).count
    cramer = stats.contingency.association(crossed, method="cramer", correction=False)
    assert found[names.index("degree"), names.index("city")] == pytest.approx(cramer, abs=1e-5)
    groups = [table["income"][both & (table["degree"] == code)] for code in range(4)]
    everything = np.concatenate(groups)
    between = sum(len(g) * (g.mean() - everything.mean()) ** 2 for g in groups)
    eta = math.sqrt(between / ((everything - everything.mean()) ** 2).sum())
    assert found[names.index("degree"), names.index("income")] == pytest.approx(eta, abs=1e-5)
    upper = np.triu_indices(5, 1)
    differences = np.abs(np.array(result.details["real"]) - found)[upper]
    assert result["corr_diff"] == pytest.approx(differences.mean(), abs=2e-5)
    assert result["corr_diff_max"] == pytest.approx(differences.max(), abs=2e-5)


def test_correlations_keep_their_sign_and_their_precision() -> None:
    draw = np.random.default_rng(0)
    x = 1e9 + draw.random(500)
    real, fake = encode({"x": x, "y": x}, {"x": x, "y": -x})
    assert correlations(real, fake)["corr_diff"] == pytest.approx(2.0, abs=1e-6)


def test_pairs_with_a_constant_column_are_left_out_and_counted() -> None:
    draw = np.random.default_rng(0)
    table = {"x": draw.random(50), "y": draw.random(50), "c": draw.choice(["a", "b"], 50)}
    real, fake = encode({**table, "k": [0.1] * 50}, {**table, "k": [0.1] * 50})
    result = correlations(real, fake)
    assert result["corr_diff"] == 0.0
    assert "3 of 6 pairs" in result.notes[0]
    matrix = result.details["real"]
    assert isinstance(matrix, list)
    assert matrix[0][3] is None
    flat = real.take(np.zeros(50, dtype=int))
    assert not correlations(real, flat).scores["corr_diff"].is_defined


def test_a_column_that_is_constant_where_the_other_is_known_is_left_out() -> None:
    draw = np.random.default_rng(0)
    x, y = np.array([0.1] * 30 + [7.3]), pa.array(draw.random(31), mask=np.arange(31) == 30)
    real, fake = encode({"x": x, "y": y}, {"x": x, "y": y})
    assert not correlations(real, fake).scores["corr_diff"].is_defined
