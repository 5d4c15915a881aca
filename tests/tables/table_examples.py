"""Small text files, and how they are read."""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from understudy.errors import TableError
from understudy.schema import Schema
from understudy.tables import ReadOptions, read_table

CANARY = "Canary-Zebra-4711"

STYLED = (
    "n,r,v,zip,flag,day,us,moment,stamp,offset,job\n"
    "1,1.50,1.5,007,True,2020-01-01,12/31/2020,2020-01-01T10:00:00Z,2020-01-01 10:00:00.123,"
    '2020-01-01T10:00:00+01:00,"a,""b"\n'
    "9007199254740993,-0.25,2,012,False,2020-01-02,01/02/2020,2020-06-01T10:00:00Z,2020-01-01 10:00:00.120,"
    "2020-06-01T10:00:00+01:00,?\n"
    ",,,1,,,,,,,x\n"
)


def written(folder: Path, content: str | bytes, name: str = "people.csv") -> Path:
    path = folder / name
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def read_csv(folder: Path, content: str | bytes, name: str = "people.csv") -> pa.Table:
    return read_table(written(folder, content, name))[0]


def column_of(folder: Path, *values: str) -> pa.ChunkedArray:
    """One column of a CSV with these texts; a second column keeps the lines from being empty."""
    return read_csv(folder, "x,y\n" + "".join(f"{value},1\n" for value in values)).column("x")


def refuse(folder: Path, content: str | bytes, name: str = "people.csv") -> TableError:
    """The error with which a file is refused; its message is one line and holds no canary."""
    with pytest.raises(TableError) as caught:
        read_csv(folder, content, name)
    assert "\n" not in str(caught.value)
    assert CANARY not in str(caught.value)
    return caught.value


def refuse_reading(source: str | Path, schema: Schema | None = None, **options: Any) -> str:
    """The one line with which a source is refused under these reading options; it holds no canary."""
    with pytest.raises(TableError) as caught:
        read_table(source, schema=schema, reading=ReadOptions(**options))
    assert CANARY not in str(caught.value)
    assert "\n" not in str(caught.value)
    return str(caught.value)
