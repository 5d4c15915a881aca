"""Tiny suites over a table of the test's own, for tests that run cells."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv as pacsv

SCHEMA = """
[table]
target = "sick"
[columns.sex]
kind = "categorical"
categories = ["f", "m"]
nullable = false
[columns.age]
kind = "integer"
bounds = [0, 99]
nullable = false
[columns.sick]
kind = "categorical"
categories = ["no", "yes"]
nullable = false
"""


def write_table(folder: Path, rows: int = 300) -> None:
    """people.csv and people.toml: older people are sick more often."""
    draw = np.random.default_rng(0)
    age = draw.integers(0, 100, rows)
    table = pa.table(
        {
            "sex": draw.choice(["f", "m"], rows),
            "age": age,
            "sick": np.where(draw.random(rows) < age / 120 + 0.05, "yes", "no"),
        }
    )
    pacsv.write_csv(table, folder / "people.csv")
    (folder / "people.toml").write_text(SCHEMA)


def write_suite(folder: Path, *, methods: str, more: str = "", seeds: int = 2) -> Path:
    """A suite file over that table; `methods` are TOML sections or a line."""
    if not (folder / "people.csv").exists():
        write_table(folder)
    path = folder / "tiny.toml"
    path.write_text(
        f"""
epsilons = [1.0]
seeds = {seeds}
metrics = ["f1", "tvd2"]
classifiers = ["logistic"]
synthetic_rows = 200
{more}
{methods}
[[tables]]
name = "people"
file = "people.csv"
schema = "people.toml"
"""
    )
    return path
