"""Public tables by name, for benchmarks and slow tests: Parquet files in the folder that UNDERSTUDY_DATA names.

Nothing here is private: the tables are published, and so are the facts that `benchmarks/schemas/` declares about them.
"""

import dataclasses
import os
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from understudy.errors import ConfigError, TableError

VARIABLE = "UNDERSTUDY_DATA"


@dataclasses.dataclass(frozen=True)
class Task:
    """A table cut in two, and what is to be predicted."""

    name: str
    train: pa.Table
    test: pa.Table
    target: str


@dataclasses.dataclass(frozen=True)
class _Recipe:
    target: str
    has_split: bool = False
    """The source comes as NAME_train and NAME_test; else 80/20 with seed 0."""
    leave_out: tuple[str, ...] = ()
    above: float | None = None
    """The target becomes whether it is above this."""


TASKS = {
    "adult": _Recipe("income", has_split=True),
    "bank": _Recipe("y"),
    "shopping": _Recipe("Revenue"),
    "car": _Recipe("class"),
    "mushroom": _Recipe("class"),
    "titanic": _Recipe("Survived", has_split=True, leave_out=("PassengerId", "Name", "Ticket", "Cabin")),
    "pums_ca": _Recipe("married", leave_out=("income_bracket",)),
    "acs_income_2018": _Recipe("Income", above=50_000),
}


def data_folder() -> Path:
    """The folder of public tables, or an error that says how to name one."""
    named = os.environ.get(VARIABLE)
    if not named:
        raise TableError(f"{VARIABLE} is not set: it names the folder with the public benchmark tables (Parquet).")
    folder = Path(named)
    if not folder.is_dir():
        raise TableError(f"{VARIABLE} names {named}, which is not a folder.")
    return folder


def read_public(name: str) -> pa.Table:
    """One table of that folder, whole."""
    path = data_folder() / f"{name}.parquet"
    if not path.exists():
        raise TableError(f"{VARIABLE} has no {path.name}.")
    return pq.read_table(path)


def load_task(name: str) -> Task:
    """The table's training and test parts, with the target as the literature uses it."""
    if name not in TASKS:
        raise ConfigError(f"There is no task {name!r}. The tasks are: {', '.join(TASKS)}.")
    recipe = TASKS[name]
    if recipe.has_split:
        train, test = read_public(f"{name}_train"), read_public(f"{name}_test")
    else:
        train, test = split_rows(read_public(name))
    return Task(name, _prepare(train, recipe), _prepare(test, recipe), recipe.target)


def split_rows(table: pa.Table) -> tuple[pa.Table, pa.Table]:
    """A random split into 80 % of the rows for training and 20 % for testing, the same each time.

    >>> [part.num_rows for part in split_rows(pa.table({"a": range(10)}))]
    [8, 2]
    """
    order = np.random.default_rng(0).permutation(table.num_rows)
    cut = round(0.8 * table.num_rows)
    return table.take(order[:cut]), table.take(order[cut:])


def _prepare(table: pa.Table, recipe: _Recipe) -> pa.Table:
    table = table.drop_columns([name for name in recipe.leave_out if name in table.column_names])
    if recipe.above is None:
        return table
    at = table.column_names.index(recipe.target)
    return table.set_column(at, recipe.target, pc.greater(table.column(recipe.target), recipe.above))
