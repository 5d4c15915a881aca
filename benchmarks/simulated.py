"""Tables made by published or plain recipes. Everything about them is public, so their bounds may be declared.

    python benchmarks/simulated.py made_wide --to tables

writes the rows and the schema of one: tables/made_wide_train.parquet, made_wide_test.parquet and made_wide.toml, which
a suite of `understudy benchmark` names as `file`, `test_file` and `schema`.
"""

import argparse
import dataclasses
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from scipy.special import ndtr

sys.path.insert(0, str(Path(__file__).parents[1]))

from understudy.benchmark.tables import split_rows
from understudy.schema import Column, Schema


class Drawn(NamedTuple):
    """Rows for training, rows for testing if the recipe draws them, and the schema."""

    train: pa.Table
    test: pa.Table | None
    schema: Schema


# -------------------------------------------------------------------------------------------------- Montgomery-Olivella

MEANS_SEED = 2018
"""Draws the means of x11 to x40, once: they are part of the recipe."""
REACH = 4.0
"""The distance of declared bounds from the mean, in standard deviations."""
JUMP = 2.5
"""Where y leaves its polynomial in x10."""
NAMES = ("y", *(f"x{number}" for number in range(1, 41)))


def montgomery_olivella(num_rows: int = 500, *, seed: int) -> pa.Table:
    """The generating process of Montgomery and Olivella, "Tree-based models for political science data" (2018).

    41 columns: y, and x1 to x40. y is a polynomial of x1, x2 and x10 below a jump of x10, a line of x10 above it; x6 to
    x8 say which of three groups a row is in; x9 and x10 are correlated, all else is independent.
    """
    draw = np.random.default_rng(seed)
    x: dict[int, np.ndarray] = {1: draw.gamma(8.0, 1 / 2, num_rows), 2: draw.gamma(10.0, 1.0, num_rows)}
    for number, mean, variance in ((3, 2.0, 1.5), (4, 3.0, 0.5), (5, 6.0, 3.3)):
        x[number] = mean + np.sqrt(variance) * draw.standard_normal(num_rows)
    group = draw.integers(0, 3, num_rows)
    x |= {6 + number: (group == number).astype(np.int64) for number in range(3)}
    first, second = draw.standard_normal((2, num_rows))
    x[9] = -0.3 + np.sqrt(1.5) * first
    x[10] = 2.0 + 0.685 / np.sqrt(1.5) * first + np.sqrt(5.5 - 0.685**2 / 1.5) * second
    for number, mean in zip(range(11, 41), _means(), strict=True):
        x[number] = mean + draw.standard_normal(num_rows)
    return pa.table({"y": outcome(x[1], x[2], x[10]), **{f"x{number}": x[number] for number in range(1, 41)}})


def outcome(x1: np.ndarray, x2: np.ndarray, x10: np.ndarray) -> np.ndarray:
    """y, which has no noise of its own."""
    below = x1 - x1**2 - x2**2 - 15 * x1 * x2 * x10 + 10 * x10 - 5 * x10**2 + 0.9 * x10**3
    return np.where(x10 < JUMP, below, 1750 + 350 * x10)


def _means() -> np.ndarray:
    return np.random.default_rng(MEANS_SEED).integers(2, 11, 30)


def montgomery_olivella_schema(rows: int | None = 500) -> Schema:
    """Kinds and bounds from the recipe alone: no row is read. The bounds of y are quantiles of its distribution."""
    bounds = {1: (0.0, 12.0), 2: (0.0, 28.0)}
    moments = {3: (2.0, 1.5), 4: (3.0, 0.5), 5: (6.0, 3.3), 9: (-0.3, 1.5), 10: (2.0, 5.5)}
    moments |= {number: (float(mean), 1.0) for number, mean in zip(range(11, 41), _means(), strict=True)}
    for number, (mean, variance) in moments.items():
        reach = REACH * variance**0.5
        bounds[number] = (round(mean - reach, 3), round(mean + reach, 3))
    columns = [Column(name="y", kind="real", bounds=(-11_000.0, 8_000.0), nullable=False)]
    for number in range(1, 41):
        if number in (6, 7, 8):
            columns.append(Column(name=f"x{number}", kind="integer", bounds=(0, 1), nullable=False))
        else:
            columns.append(Column(name=f"x{number}", kind="real", bounds=bounds[number], nullable=False))
    return Schema(columns=tuple(columns), rows=rows)


def montgomery(rows: int = 500, seed: int = 0) -> Drawn:
    """The same process with test rows, which are a second draw.

    >>> montgomery(rows=20).train.num_columns
    41
    """
    schema = montgomery_olivella_schema(rows).with_target("y")
    return Drawn(montgomery_olivella(rows, seed=seed), montgomery_olivella(rows, seed=seed + 1), schema)


# ------------------------------------------------------------------------------------------------- tables for defaults

KINDS = 20
"""The number of kinds of rows of which `made_long` and `made_codes` are mixtures."""
CHAIN = 4
"""The length of the chains of `made_wide`, in which each column depends on the one before it."""
COPIED = 0.6
"""The probability that a value is determined by that of the column before it."""
TARGET_PARENTS = ("c000", "c004", "c008")
CHANCES = np.array([0.1, 0.35, 0.65, 0.9])
"""The probability of a yes if none, one, two or three parents of the target are in the upper half of their values."""
NUMERIC = 20
"""The size of the numeric columns of `made_wide`, whose codes are intervals of equal width from 0 to 100."""


def made_wide(rows: int = 20_000, columns: int = 120) -> Drawn:
    """Many columns of 2 to 20 values in chains of four, and a target that depends on the heads of three chains.

    >>> table, _, schema = made_wide(rows=50, columns=13)
    >>> table.shape, schema.target
    ((50, 13), 'target')
    """
    draw = np.random.default_rng(0)
    made, declared, upper = {}, [], np.zeros(rows, dtype=int)
    before, before_size = np.zeros(rows, dtype=int), 1
    for at, size in enumerate(draw.choice([2, 3, 5, 8, NUMERIC], columns - 1).tolist()):
        name = f"c{at:03d}"
        codes = draw.choice(size, rows, p=draw.dirichlet(np.full(size, 2.0)))
        if at % CHAIN:
            codes = np.where(draw.random(rows) < COPIED, before * size // before_size, codes)
        if name in TARGET_PARENTS:
            upper += 2 * codes >= size
        if size == NUMERIC:
            made[name] = pa.array(100 / NUMERIC * (codes + draw.random(rows)))
            declared.append(Column(name=name, kind="real", bounds=(0.0, 100.0), nullable=False))
        else:
            made[name] = _labels("v", codes)
            declared.append(_categorical(name, "v", size))
        before, before_size = codes, size
    made["target"] = pa.array(np.where(draw.random(rows) < CHANCES[upper], "yes", "no"))
    declared.append(Column(name="target", kind="categorical", categories=("no", "yes"), nullable=False, closed=True))
    return Drawn(pa.table(made), None, Schema(columns=tuple(declared), rows=rows, target="target"))


def made_long(rows: int = 300_000, columns: int = 15) -> Drawn:
    """Categorical columns of 2 to 40 values and five numeric ones, from a mixture of kinds of rows.

    >>> made_long(rows=50, columns=8).train.column_names[-6:]
    ['class_2', 'number_0', 'number_1', 'number_2', 'number_3', 'number_4']
    """
    draw = np.random.default_rng(0)
    kinds = draw.integers(0, KINDS, rows)
    made, declared = {}, []
    for number, size in enumerate(np.geomspace(2, 40, columns - 5).astype(int).tolist()):
        laws = np.cumsum(draw.dirichlet(np.full(size, 0.5), KINDS), axis=1)
        codes = (laws[kinds] < draw.random((rows, 1))).sum(axis=1).clip(0, size - 1)
        made[f"class_{number}"] = _labels("level ", codes)
        declared.append(_categorical(f"class_{number}", "level ", size))
    for number in range(5):
        means = 50 + 15 * draw.standard_normal(KINDS)
        made[f"number_{number}"] = pa.array((means[kinds] + 8 * draw.standard_normal(rows)).clip(0, 100))
        declared.append(Column(name=f"number_{number}", kind="real", bounds=(0.0, 100.0), nullable=False))
    return Drawn(pa.table(made), None, Schema(columns=tuple(declared), rows=rows, target="class_0"))


def made_codes(rows: int = 30_000, columns: int = 1_000) -> Drawn:
    """Boolean columns, most of them rare, from a mixture of kinds of rows: the shape of patients by diagnosis codes.

    >>> made_codes(rows=50, columns=3).train.column_names
    ['code_0', 'code_1', 'code_2']
    """
    draw = np.random.default_rng(0)
    shares = np.minimum(0.9, draw.beta(0.3, 6.0, (1, columns)) * draw.gamma(1.0, 1.0, (KINDS, columns)))
    found = draw.random((rows, columns)) < shares[draw.integers(0, KINDS, rows)]
    table = pa.table({f"code_{number}": found[:, number] for number in range(columns)})
    declared = tuple(Column(name=name, kind="boolean", nullable=False) for name in table.column_names)
    return Drawn(table, None, Schema(columns=declared, rows=rows))


def xor(inputs: int, rows: int = 50_000, columns: int = 20) -> Drawn:
    """Independent coins, and a target: whether the first `inputs` coins show an odd number of heads.

    These coins are fair, so that no smaller marginal shows the dependence; of the others every second one is fair.

    >>> table, _, schema = xor(3, rows=50)
    >>> table.num_columns, schema.target
    (20, 'parity')
    """
    draw = np.random.default_rng(inputs)
    chances = np.where(np.arange(columns - 1) % 2, draw.uniform(0.1, 0.9, columns - 1), 0.5)
    chances[:inputs] = 0.5
    heads = draw.random((rows, columns - 1)) < chances
    made = {f"coin_{at}": pa.array(heads[:, at]) for at in range(columns - 1)}
    made["parity"] = pa.array(heads[:, :inputs].sum(axis=1) % 2 == 1)
    declared = tuple(Column(name=name, kind="boolean", nullable=False) for name in made)
    return Drawn(pa.table(made), None, Schema(columns=declared, rows=rows, target="parity"))


# ----------------------------------------------------------------------------------------- tables of the boosting paper

CENTRES = np.array([(x, y) for x in range(-4, 5, 2) for y in range(-4, 5, 2)], dtype=float)
CLUSTER_STDDEV, PLANE_BOUND = 0.05, 4.5


def gaussians25(points: int = 1000, seed: int = 1) -> Drawn:
    """25 narrow Gaussians on a grid in the plane, `points` rows each, cluster by cluster.

    >>> gaussians25(points=2).train.num_rows
    50
    """
    draw = np.random.default_rng(seed)
    xy = np.repeat(CENTRES, points, axis=0) + CLUSTER_STDDEV * draw.standard_normal((len(CENTRES) * points, 2))
    bounds = (-PLANE_BOUND, PLANE_BOUND)
    columns = tuple(Column(name=name, kind="real", bounds=bounds, nullable=False) for name in ("x", "y"))
    return Drawn(pa.table({"x": xy[:, 0], "y": xy[:, 1]}), None, Schema(columns=columns, rows=len(xy)))


# -------------------------------------------------------------------------------------------- tables of the QUAIL paper

BOUND = 4.0
"""Of every number of `made_regression`, either way; the target's is four times that."""
FEATURE_BOUND = 8.0
"""Of every number of `made_classes`, either way."""
LEVELS = (2, 3, 4, 5, 6, 8, 12, 24)
"""The sizes of the categorical columns of `made_regression`."""


def made_classes(rows: int, test_rows: int = 5000, seed: int = 0) -> Drawn:
    """scikit-learn's make_classification: 7 informative features, 10 classes of one cluster each.

    >>> made_classes(100, test_rows=50).test.num_rows
    50
    """
    from sklearn.datasets import make_classification

    features, classes = make_classification(
        rows + test_rows, 7, n_informative=7, n_redundant=0, n_classes=10, n_clusters_per_class=1, random_state=seed
    )
    columns = {f"x{at}": np.clip(features[:, at], -FEATURE_BOUND, FEATURE_BOUND) for at in range(7)}
    table = pa.table({**columns, "label": _labels("c", classes)})
    bounds = (-FEATURE_BOUND, FEATURE_BOUND)
    declared = [Column(name=name, kind="real", bounds=bounds, nullable=False) for name in columns]
    declared.append(_categorical("label", "c", 10))
    schema = Schema(columns=tuple(declared), rows=rows, target="label")
    return Drawn(table.slice(0, rows), table.slice(rows), schema)


def made_categorical(rows: int = 100_000, columns: int = 30, seed: int = 0) -> Drawn:
    """A stand-in for the paper's internal classification table: Zipf categories and a logistic rule of three classes.

    The columns depend on each other through three normal factors, cut so that each marginal is exactly Zipf's law.

    >>> made_categorical(rows=50, columns=4).train.column_names
    ['c0', 'c1', 'c2', 'c3', 'label']
    """
    draw = np.random.default_rng(seed)
    sizes = np.geomspace(2, 50, columns).round().astype(int).tolist()
    loads = draw.standard_normal((3, columns)) / 2
    latent = draw.standard_normal((rows, 3)) @ loads + draw.standard_normal((rows, columns))
    ranks = ndtr(latent / np.sqrt(1 + (loads**2).sum(axis=0)))
    codes = [np.searchsorted(_zipf(size).cumsum()[:-1], ranks[:, at]) for at, size in enumerate(sizes)]
    effects = [draw.standard_normal((size, 3)) for size in sizes]
    logits = 2 * sum(effect[code] for effect, code in zip(effects, codes, strict=True)) / np.sqrt(columns)
    chances = np.exp(logits - logits.max(axis=1, keepdims=True))
    cut = (chances / chances.sum(axis=1, keepdims=True)).cumsum(axis=1)
    made = {f"c{at}": _labels("v", code) for at, code in enumerate(codes)}
    made["label"] = _labels("k", (draw.random((rows, 1)) > cut[:, :2]).sum(axis=1))
    declared = [_categorical(f"c{at}", "v", size) for at, size in enumerate(sizes)]
    schema = Schema(columns=(*declared, _categorical("label", "k", 3)), rows=rows, target="label")
    return Drawn(pa.table(made), None, schema)


def made_regression(rows: int = 34_333, numbers: int = 40, seed: int = 0) -> Drawn:
    """A stand-in for the paper's internal regression table: 8 categorical and 40 numeric columns, and a linear rule.

    Numbers share two factors, categories follow Zipf's law, and the target is linear in both, with noise.

    >>> made_regression(rows=50, numbers=2).train.num_columns
    11
    """
    draw = np.random.default_rng(seed)
    factors = draw.standard_normal((rows, 2)) @ draw.standard_normal((2, numbers)) / 2
    values = np.clip((factors + draw.standard_normal(factors.shape)) / np.sqrt(1.5), -BOUND, BOUND)
    codes = [draw.choice(size, rows, p=_zipf(size)) for size in LEVELS]
    rule = values @ (draw.standard_normal(numbers) / np.sqrt(numbers) * 2)
    rule += sum(draw.standard_normal(size)[code] for size, code in zip(LEVELS, codes, strict=True)) / 2
    target = np.clip(rule + draw.standard_normal(rows), -4 * BOUND, 4 * BOUND)
    made = {f"c{at}": _labels("v", code) for at, code in enumerate(codes)}
    made |= {f"x{at}": pa.array(values[:, at]) for at in range(numbers)} | {"y": pa.array(target)}
    declared = [_categorical(f"c{at}", "v", size) for at, size in enumerate(LEVELS)]
    declared += [Column(name=f"x{at}", kind="real", bounds=(-BOUND, BOUND), nullable=False) for at in range(numbers)]
    declared.append(Column(name="y", kind="real", bounds=(-4 * BOUND, 4 * BOUND), nullable=False))
    return Drawn(pa.table(made), None, Schema(columns=tuple(declared), rows=rows, target="y"))


def _zipf(size: int) -> np.ndarray:
    weights = 1.0 / np.arange(1, size + 1)
    return np.asarray(weights / weights.sum())


def _labels(prefix: str, codes: np.ndarray) -> pa.Array:
    names = pa.array([f"{prefix}{code}" for code in range(int(codes.max(initial=0)) + 1)])
    return names.take(pa.array(codes))


def _categorical(name: str, prefix: str, size: int) -> Column:
    listed = tuple(f"{prefix}{code}" for code in range(size))
    return Column(name=name, kind="categorical", categories=listed, nullable=False, closed=True)


# ------------------------------------------------------------------------------------------------------ tables by name

TABLES: dict[str, Callable[[], Drawn]] = {
    "made_wide": made_wide,
    "made_long": made_long,
    "wide": made_codes,
    **{f"xor{inputs}": partial(xor, inputs) for inputs in (3, 4, 5)},
    "gaussians25": gaussians25,
    "montgomery_olivella": montgomery,
    **{f"made_classes_{rows}k": partial(made_classes, 1000 * rows) for rows in (10, 20, 30, 40, 50, 100)},
    "made_categorical": made_categorical,
    "made_regression": made_regression,
}


def load_simulated(name: str) -> Drawn:
    """A table by name, with a random fifth of its rows for testing where its recipe draws none and it has a target.

    >>> table, test, schema = load_simulated("xor3")
    >>> table.num_rows, test.num_rows, schema.rows, schema.target
    (40000, 10000, 40000, 'parity')
    """
    train, test, schema = TABLES[name]()
    if test is None and schema.target is not None:
        train, test = split_rows(train)
    return Drawn(train, test, dataclasses.replace(schema, rows=train.num_rows))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("table", choices=list(TABLES))
    parser.add_argument("--to", type=Path, default=Path("tables"), help="the folder to write to")
    options = parser.parse_args()
    train, test, schema = load_simulated(options.table)
    options.to.mkdir(parents=True, exist_ok=True)
    pq.write_table(train, options.to / f"{options.table}_train.parquet")
    if test is not None:
        pq.write_table(test, options.to / f"{options.table}_test.parquet")
    schema.write(options.to / f"{options.table}.toml", force=True)


if __name__ == "__main__":
    main()
