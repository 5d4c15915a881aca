"""Made tables have the dependence and the marginals that they claim."""

import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from scipy.stats.contingency import association

from benchmarks import simulated
from benchmarks.simulated import CHAIN, TARGET_PARENTS, made_categorical, made_regression, made_wide, xor
from understudy.benchmark.cells import file_checksum
from understudy.benchmark.execution import load_spec
from understudy.benchmark.suite import TableSpec
from understudy.steward.check import check

LARGE = {"made_long", "wide", *(f"made_classes_{rows}k" for rows in (20, 30, 40, 50, 100))}
"""Left to the slow tests, or made by the same function as a smaller one."""


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.slow] * (name in LARGE)) for name in simulated.TABLES]
)
def test_the_schema_holds_for_every_row(name: str) -> None:
    train, test, schema = simulated.load_simulated(name)
    assert schema.rows == train.num_rows
    assert test is None or train.schema.equals(test.schema)
    allowed = "outside bounds" if name == "montgomery_olivella" else ""  # its bounds are at four standard deviations
    findings = check(schema, train, train)
    assert [each for each in findings if each.level != "note" and each.topic != allowed] == []


def test_a_suite_reads_the_files_that_the_script_writes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["simulated.py", "xor3", "--to", str(tmp_path)])
    simulated.main()
    files = [str(tmp_path / name) for name in ("xor3_train.parquet", "xor3.toml", "xor3_test.parquet")]
    spec = TableSpec(name="xor3", file=files[0], schema=files[1], test_file=files[2])
    table, drawn = load_spec(spec, file_checksum(spec)), simulated.load_simulated("xor3")
    assert table.train.equals(drawn.train)
    assert table.test is not None
    assert table.test.equals(drawn.test)
    assert (table.target, table.schema) == ("parity", drawn.schema)


def cramers_v(first: pd.Series, second: pd.Series) -> float:
    return float(association(pd.crosstab(first, second).to_numpy(), method="cramer"))


def test_columns_of_the_wide_table_depend_within_chains_alone() -> None:
    """V of independent columns with at most 20 values is about sqrt(19 / 20,000) = 0.03 and hardly ever twice that;
    copied values give one of at least 0.2."""
    frame = made_wide().train.to_pandas()
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
    frame = xor(inputs).train.to_pandas()
    assert frame.shape == (50_000, 20)
    assert (frame.iloc[:, :inputs].sum(axis=1) % 2 == 1).equals(frame["parity"])
    for left_out in range(inputs):
        rest = frame.columns[:inputs].delete(left_out)
        groups = frame.groupby([*rest, "coin_7"])["parity"].agg(["mean", "size"])
        assert (np.abs(groups["mean"] - 0.5) < 4.5 * 0.5 / np.sqrt(groups["size"])).all()


def test_marginals_of_the_categorical_table_are_zipf_laws_and_its_label_depends_on_columns() -> None:
    """Shares are those of the law within 4.5 standard errors; columns depend on each other and on the label."""
    frame = made_categorical(rows=20_000).train.to_pandas()
    assert frame.shape == (20_000, 31)
    for name in ("c0", "c15", "c29"):
        law = 1 / np.arange(1, frame[name].nunique() + 1)
        law /= law.sum()
        shares = np.array([(frame[name] == f"v{code}").mean() for code in range(len(law))])
        assert (np.abs(shares - law) < 4.5 * np.sqrt(law / 20_000)).all()
    assert frame["label"].value_counts(normalize=True).min() > 0.1
    related = [cramers_v(frame["c29"], frame[f"c{at}"]) for at in range(29)]
    assert max(related) > 0.1
    telling = [cramers_v(frame["label"], frame[f"c{at}"]) for at in range(30)]
    assert max(telling) > 0.15  # of independent columns it is about sqrt(2 * 49 / 20,000 / 2) = 0.05 at most


def test_the_target_of_the_regression_table_is_linear_in_all_columns_with_noise_of_one() -> None:
    frame = pd.get_dummies(made_regression(rows=5_000).train.to_pandas(), dtype=float)
    inputs, target = frame.drop(columns="y").to_numpy(), frame["y"].to_numpy()
    coefficients = np.linalg.lstsq(inputs, target, rcond=None)[0]
    assert 0.95 < np.std(target - inputs @ coefficients) < 1.05 < 1.8 < np.std(target)


def test_the_same_table_is_made_each_time_and_another_with_another_seed() -> None:
    assert made_regression(rows=50).train.equals(made_regression(rows=50).train)
    assert not made_categorical(rows=50).train.equals(made_categorical(rows=50, seed=1).train)
