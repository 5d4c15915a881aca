"""Made-up tables with known dependence: many columns, many rows, and parities that only large marginals show."""

import sys
from pathlib import Path

import numpy as np
import pyarrow as pa

sys.path.insert(0, str(Path(__file__).parents[1]))

import understudy as us
from benchmarks import sizes

CHAIN = 4
"""The length of the chains of `made_wide`, in which each column depends on the one before it."""
COPIED = 0.6
"""The probability that a value is determined by that of the column before it."""
TARGET_PARENTS = ("c000", "c004", "c008")
CHANCES = np.array([0.1, 0.35, 0.65, 0.9])
"""The probability of a yes if none, one, two or three parents of the target are in the upper half of their values."""
NUMERIC = 20
"""The size of the numeric columns of `made_wide`, whose codes are intervals of equal width from 0 to 100."""


def made_wide(rows: int = 20_000, columns: int = 120) -> tuple[pa.Table, us.Schema]:
    """Many columns of 2 to 20 values in chains of four, and a target that depends on the heads of three chains.

    >>> table, schema = made_wide(rows=50, columns=13)
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
            declared.append(us.Column(name=name, kind="real", bounds=(0.0, 100.0), nullable=False))
        else:
            values = tuple(f"v{value}" for value in range(size))
            made[name] = pa.array(np.asarray(values)[codes])
            declared.append(us.Column(name=name, kind="categorical", categories=values, nullable=False, closed=True))
        before, before_size = codes, size
    made["target"] = pa.array(np.where(draw.random(rows) < CHANCES[upper], "yes", "no"))
    declared.append(us.Column(name="target", kind="categorical", categories=("no", "yes"), nullable=False, closed=True))
    return pa.table(made), us.Schema(columns=tuple(declared), target="target")


def made_long() -> tuple[pa.Table, us.Schema]:
    """300,000 rows of 15 columns, drawn from a mixture of 20 kinds of rows."""
    return sizes.long(300_000, 15)


def xor(inputs: int, rows: int = 50_000, columns: int = 20) -> tuple[pa.Table, us.Schema]:
    """Independent coins, and a target: whether the first `inputs` coins show an odd number of heads.

    These coins are fair, so that no smaller marginal shows the dependence; of the others every second one is fair.

    >>> table, schema = xor(3, rows=50)
    >>> table.num_columns, schema.target
    (20, 'parity')
    """
    draw = np.random.default_rng(inputs)
    chances = np.where(np.arange(columns - 1) % 2, draw.uniform(0.1, 0.9, columns - 1), 0.5)
    chances[:inputs] = 0.5
    heads = draw.random((rows, columns - 1)) < chances
    made = {f"coin_{at}": pa.array(heads[:, at]) for at in range(columns - 1)}
    made["parity"] = pa.array(heads[:, :inputs].sum(axis=1) % 2 == 1)
    declared = tuple(us.Column(name=name, kind="boolean", nullable=False) for name in made)
    return pa.table(made), us.Schema(columns=declared, target="parity")


MIXED_KINDS = 20
"""The number of kinds of rows of `made_mixed`, on which all of its columns depend."""


def made_mixed(rows: int = 100_000, columns: int = 50, *, kept: bool = True, seed: int = 0) -> pa.Table:
    """Numbers, categories (a third of these columns has 100 of them) and a target, from a mixture of kinds of rows.

    With `kept=False` every third column does not depend on the others and two have values that no real row has: a
    synthetic table with losses, to time how it is evaluated.

    >>> made_mixed(100, 8).column_names
    ['number_0', 'number_1', 'number_2', 'class_0', 'class_1', 'class_2', 'class_3', 'target']
    """
    draw, laws = np.random.default_rng(seed), np.random.default_rng(7)
    kinds, made = draw.integers(0, MIXED_KINDS, rows), {}
    numbers = 2 * columns // 5

    def kind_of(at: int) -> np.ndarray:
        return kinds if kept or at % 3 else draw.integers(0, MIXED_KINDS, rows)

    for at in range(numbers):
        values = laws.normal(0, 1, MIXED_KINDS)[kind_of(at)] + draw.normal(0, 1, rows)
        made[f"number_{at}"] = np.round(10 * values).astype(int) if at % 2 else values.round(3)
    classes = columns - 1 - numbers
    for at in range(classes):
        size = 100 if at >= 2 * classes // 3 else (2, 3, 5, 8, 12, 20)[at % 6]
        law = laws.dirichlet(np.full(size, 0.5), MIXED_KINDS).cumsum(axis=1)
        codes = (draw.random((rows, 1)) > law[kind_of(at)]).sum(axis=1).clip(0, size - 1)
        values = np.char.add("v", codes.astype(str))
        made[f"class_{at}"] = values if kept or at < classes - 2 else np.where(draw.random(rows) < 0.1, "other", values)
    made["target"] = np.where(draw.random(rows) < laws.random(MIXED_KINDS)[kinds], "yes", "no")
    return pa.table(made)
