"""Parquet, Arrow and Feather files."""

import importlib.util
from pathlib import Path

import pyarrow as pa
import pyarrow.feather
import pyarrow.parquet as pq

from understudy.errors import TableError
from understudy.tables.casting import bare
from understudy.tables.places import Place


def read_parquet(place: Place) -> pa.Table:
    try:
        return bare(pq.ParquetFile(place.path).read())
    except pa.ArrowNotImplementedError:
        return _read_by_polars(place)


def read_arrow(place: Place) -> pa.Table:
    try:
        return bare(_read_ipc(place))
    except pa.ArrowNotImplementedError:
        return _read_by_polars(place)


def _read_by_polars(place: Place) -> pa.Table:
    """For 128-bit integers, which polars uses for a column with one very large value and which Arrow does not have.

    Columns of a type that Arrow does not have become text.
    """
    if importlib.util.find_spec("polars") is None:
        raise TableError(f"{place} has a column type that only polars writes. Install the package polars to read it.")
    import polars as pl

    frame = pl.read_parquet(place.path) if place.suffix == ".parquet" else pl.read_ipc(place.path)
    columns = {}
    for series in frame.get_columns():
        try:
            columns[series.name] = series.to_arrow()
        except pa.ArrowException:
            columns[series.name] = series.cast(pl.String).to_arrow()
    return pa.table(columns)


def _read_ipc(place: Place) -> pa.Table:
    with pa.memory_map(str(place.path)) as file:
        try:
            table = pa.ipc.open_file(file).read_all()
        except pa.ArrowInvalid:
            try:
                file.seek(0)
                table = pa.ipc.open_stream(file).read_all()
            except pa.ArrowInvalid:
                table = pa.feather.read_table(str(place.path))  # the first version of Feather
    return table


def write_parquet(table: pa.Table, path: Path) -> None:
    pq.write_table(bare(table), path, compression="zstd")


def write_arrow(table: pa.Table, path: Path) -> None:
    pa.feather.write_feather(bare(table), str(path))
