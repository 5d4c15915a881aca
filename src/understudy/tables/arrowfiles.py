"""Parquet, Arrow and Feather files."""

from pathlib import Path

import pyarrow as pa
import pyarrow.feather
import pyarrow.parquet as pq

from understudy.tables.casting import bare
from understudy.tables.places import Place


def read_parquet(place: Place) -> pa.Table:
    return bare(pq.ParquetFile(place.path).read())


def read_arrow(place: Place) -> pa.Table:
    with pa.memory_map(str(place.path)) as file:
        try:
            table = pa.ipc.open_file(file).read_all()
        except pa.ArrowInvalid:
            try:
                file.seek(0)
                table = pa.ipc.open_stream(file).read_all()
            except pa.ArrowInvalid:
                table = pa.feather.read_table(str(place.path))  # the first version of Feather
    return bare(table)


def write_parquet(table: pa.Table, path: Path) -> None:
    pq.write_table(bare(table), path, compression="zstd")


def write_arrow(table: pa.Table, path: Path) -> None:
    pa.feather.write_feather(bare(table), str(path))
