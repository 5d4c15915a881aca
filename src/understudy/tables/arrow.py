"""Parquet, Arrow and Feather files."""

import importlib.util
from pathlib import Path

import pyarrow as pa
import pyarrow.feather
import pyarrow.parquet as pq

from understudy.errors import TableError
from understudy.tables.cast import without_metadata
from understudy.tables.location import TableLocation


def read_parquet(location: TableLocation) -> pa.Table:
    try:
        return without_metadata(pq.ParquetFile(location.path).read())
    except pa.ArrowNotImplementedError:
        return _read_by_polars(location)


def read_arrow(location: TableLocation) -> pa.Table:
    try:
        try:
            return without_metadata(pa.feather.read_table(str(location.path)))
        except pa.ArrowInvalid:  # a stream and not a file
            with pa.memory_map(str(location.path)) as file:
                return without_metadata(pa.ipc.open_stream(file).read_all())
    except pa.ArrowNotImplementedError:
        return _read_by_polars(location)


def _read_by_polars(location: TableLocation) -> pa.Table:
    """For 128-bit integers, which polars uses for a column with one very large value. Arrow lacks the type.

    Columns of a type that Arrow lacks become text.
    """
    if importlib.util.find_spec("polars") is None:
        raise TableError(f"{location} has a column type that only polars can read. Install polars.")
    import polars as pl

    frame = pl.read_parquet(location.path) if location.suffix == ".parquet" else pl.read_ipc(location.path)
    columns = {}
    for series in frame.get_columns():
        try:
            columns[series.name] = series.to_arrow()
        except pa.ArrowException:
            columns[series.name] = series.cast(pl.String).to_arrow()
    return pa.table(columns)


def write_parquet(table: pa.Table, path: Path) -> None:
    pq.write_table(without_metadata(table), path, compression="zstd")


def write_arrow(table: pa.Table, path: Path) -> None:
    pa.feather.write_feather(without_metadata(table), str(path))
