"""Made-up tables that the pages take for granted: `people.csv` stands for the reader's own table."""

import shutil
import sqlite3
from pathlib import Path

import numpy as np
import pandas as pd

HOSPITAL = Path(__file__).parents[2] / "docs" / "tutorials" / "hospital_stays.py"
ROWS = 2000

PEOPLE = f"""
[table]
rows = {ROWS}
target = "income"
positive = "high"

[columns.person]
kind = "id"
[columns.age]
kind = "integer"
nullable = false
bounds = [17, 90]
[columns.sex]
kind = "categorical"
nullable = false
categories = ["female", "male"]
[columns.region]
kind = "categorical"
nullable = false
categories = ["north", "east", "south", "west"]
[columns.degree]
kind = "categorical"
nullable = false
categories = ["none", "school", "college"]
[columns.smokes]
kind = "boolean"
nullable = false
format = "no/yes"
[columns.dose]
kind = "real"
nullable = false
decimals = 1
bounds = [0.0, 10.0]
[columns.income]
kind = "categorical"
nullable = false
categories = ["low", "high"]
"""


def write_files(folder: Path) -> None:
    """people (csv, parquet, sqlite, xlsx, toml; export.csv: with decimal commas; test.parquet: others of the same
    kind), cars, visits, metadata.json, and the script that writes the hospital table.
    """
    shutil.copy(HOSPITAL, folder)
    people = _people(ROWS, seed=0)
    people.to_csv(folder / "people.csv", index=False)
    people.to_parquet(folder / "people.parquet", index=False)
    _people(ROWS // 2, seed=1).to_parquet(folder / "test.parquet", index=False)
    with sqlite3.connect(folder / "clinic.sqlite") as database:
        people.to_sql("people", database, index=False)
    database.close()
    (folder / "people.toml").write_text(PEOPLE)
    people.to_csv(folder / "export.csv", index=False, sep=";", decimal=",", encoding="cp1252")
    people.head(300).to_excel(folder / "people.xlsx", index=False)
    (folder / "metadata.json").write_text('{"age": 85, "sex": 2}')  # a domain of mbi
    draw = np.random.default_rng(2)
    _write_categories(folder, "cars", {"doors": "234", "seats": "246", "class": ("bad", "good")}, draw)
    _write_categories(folder, "visits", {f"code_{number}": "01" for number in range(40)}, draw)


def _people(rows: int, *, seed: int) -> pd.DataFrame:
    draw = np.random.default_rng(seed)
    age = draw.integers(17, 91, rows)
    degree = draw.choice(["none", "school", "college"], rows, p=[0.2, 0.5, 0.3])
    high = draw.random(rows) < 0.1 + 0.4 * (degree == "college") + 0.2 * (age > 40)
    return pd.DataFrame(
        {
            "person": np.arange(1, rows + 1),
            "age": age,
            "sex": draw.choice(["female", "male"], rows),
            "region": draw.choice(["north", "east", "south", "west"], rows),
            "degree": degree,
            "smokes": np.where(draw.random(rows) < 0.25, "yes", "no"),
            "dose": np.round(10 * draw.beta(2, 5, rows), 1),
            "income": np.where(high, "high", "low"),
        }
    )


def _write_categories(folder: Path, name: str, columns: dict, draw: np.random.Generator) -> None:
    pd.DataFrame({column: draw.choice(list(values), ROWS) for column, values in columns.items()}).to_csv(
        folder / f"{name}.csv", index=False
    )
    sections = [f"[table]\nrows = {ROWS}"]
    for column, values in columns.items():
        listed = ", ".join(f'"{value}"' for value in values)
        sections.append(f'[columns.{column}]\nkind = "categorical"\nnullable = false\ncategories = [{listed}]')
    (folder / f"{name}.toml").write_text("\n".join(sections) + "\n")
