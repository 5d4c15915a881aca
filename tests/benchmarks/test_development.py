"""The development tables fit their declared schemas, and the made-up ones have the dependence that they claim."""

import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from scipy.stats.contingency import association

sys.path.insert(0, str(Path(__file__).parents[2]))

from benchmarks import development
from benchmarks.made_tables import CHAIN, TARGET_PARENTS, made_wide, xor
from understudy.schema.check import check


@pytest.mark.parametrize("name", development.NAMES)
def test_tables_fit_their_schemas(name: str) -> None:
    if package := development.missing_package(name):
        pytest.skip(f"{package} is not installed: pip install --group benchmarks")
    train, test, schema, target = development.load(name)
    assert schema.rows == train.num_rows
    assert schema.target == target
    assert all(column.estimated is None for column in schema)
    assert train.schema.equals(test.schema)
    assert 0.19 < test.num_rows / (train.num_rows + test.num_rows) < 0.21
    assert [finding for finding in check(schema, train, train) if finding.level != "note"] == []


def test_an_unknown_table_is_refused() -> None:
    with pytest.raises(ValueError, match="no development table 'xor9'"):
        development.load("xor9")


def cramers_v(first: pd.Series, second: pd.Series) -> float:
    return float(association(pd.crosstab(first, second).to_numpy(), method="cramer"))


def test_columns_of_the_wide_table_depend_within_chains_alone() -> None:
    """V of independent columns with at most 20 values is about sqrt(19 / 20,000) = 0.03 and hardly ever twice that;
    copied values give one of at least 0.2."""
    frame = made_wide()[0].to_pandas()
    assert frame.shape == (20_000, 120)
    codes = frame.apply(lambda values: values // 5 if values.dtype == float else values)
    for at in range(1, 40):
        found = cramers_v(codes.iloc[:, at - 1], codes.iloc[:, at])
        assert found > 0.2 if at % CHAIN else found < 0.06, at
    for name in ("c000", "c001", "c004", "c008", "c020", "c055", "c118"):
        related = any(abs(int(name[1:]) - int(parent[1:])) < CHAIN for parent in TARGET_PARENTS)
        assert (cramers_v(codes[name], codes["target"]) > 0.06) == related, name


@pytest.mark.parametrize("inputs", [3, 4, 5])
def test_a_parity_shows_in_the_whole_marginal_alone(inputs: int) -> None:
    """Given all inputs it is certain; given any other columns it is a fair coin, within 4.5 standard errors."""
    frame = xor(inputs)[0].to_pandas()
    assert frame.shape == (50_000, 20)
    assert (frame.iloc[:, :inputs].sum(axis=1) % 2 == 1).equals(frame["parity"])
    for left_out in range(inputs):
        rest = frame.columns[:inputs].delete(left_out)
        groups = frame.groupby([*rest, "coin_7"])["parity"].agg(["mean", "size"])
        assert (np.abs(groups["mean"] - 0.5) < 4.5 * 0.5 / np.sqrt(groups["size"])).all()
