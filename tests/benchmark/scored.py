"""Tables for the tests of scores of benchmark cells, and a short way to score one."""

import numpy as np
import pyarrow as pa

import understudy as us
from understudy.benchmark.scoring import CellScores, Reference, score_table

SCHEMA = us.Schema.from_toml(
    """
    [table]
    target = "buys"
    [columns.age]
    kind = "integer"
    bounds = [18, 79]
    [columns.income]
    kind = "real"
    bounds = [0, 120]
    nullable = true
    [columns.city]
    kind = "categorical"
    categories = ["a", "b", "c", "d"]
    [columns.buys]
    kind = "categorical"
    categories = ["no", "yes"]
    """
)
FAST = ("logistic", "bagging", "adaboost")


def people(num_rows: int, seed: int) -> pa.Table:
    """Income follows age, and buying follows both; some incomes are missing."""
    draw = np.random.default_rng(seed)
    age = draw.integers(18, 80, num_rows)
    income = np.clip(np.round(age + draw.normal(0, 10, num_rows), 1), 0, 120)
    city = draw.choice(["a", "b", "c", "d"], num_rows, p=[0.5, 0.3, 0.15, 0.05])
    buys = income + 20 * (city == "a") + draw.normal(0, 8, num_rows) > 75
    return pa.table(
        {
            "age": age,
            "income": pa.array(income, mask=draw.random(num_rows) < 0.05),
            "city": city,
            "buys": np.where(buys, "yes", "no"),
        }
    )


def shuffle(table: pa.Table, seed: int) -> pa.Table:
    """Every column in an order of its own: right histograms, no dependence."""
    draw = np.random.default_rng(seed)
    return pa.table({name: table[name].take(draw.permutation(table.num_rows)) for name in table.column_names})


def replace(table: pa.Table, **columns: object) -> pa.Table:
    return pa.table({**{name: table[name] for name in table.column_names}, **columns})


TRAIN, TEST, OTHER = people(800, 0), people(500, 1), people(800, 2)


def score(
    synthetic: pa.Table, *metrics: str, reference: Reference | None = None, test: pa.Table | None = TEST, seed: int = 0
) -> CellScores:
    found = reference or Reference.of(TRAIN, test, schema=SCHEMA, classifiers=FAST)
    return score_table(synthetic, found, metrics, seed=seed)
