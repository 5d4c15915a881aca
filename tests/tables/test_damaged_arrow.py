"""Arrow files with offsets or indices outside their buffers are refused: pyarrow would read other memory there."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import understudy as us
from understudy.errors import TableError
from understudy.tables import read_table
from understudy.tables.arrow import open_parquet
from understudy.tables.path import TablePath

TEXTS = [f"text {i}" for i in range(50)]


def write(path: Path, column: pa.Array, *, stream: bool) -> None:
    table = pa.table({"a": column})
    with (pa.ipc.new_stream if stream else pa.ipc.new_file)(path, table.schema) as writer:
        writer.write_table(table)


def replace_once(path: Path, old: bytes, new: bytes) -> None:
    content = path.read_bytes()
    assert content.count(old) == 1
    assert len(old) == len(new)
    path.write_bytes(content.replace(old, new))


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("kind", [pa.string(), pa.large_string(), pa.binary()])
def test_offsets_outside(kind: pa.DataType, stream: bool, tmp_path: Path) -> None:
    path = tmp_path / "a.arrow"
    write(path, pa.array(TEXTS, kind), stream=stream)
    read_table(path)
    width = np.int64 if pa.types.is_large_string(kind) else np.int32
    offsets = np.cumsum([0, *map(len, TEXTS)]).astype(width)
    changed = offsets.copy()
    changed[7] = 2**30
    replace_once(path, offsets.tobytes(), changed.tobytes())
    with pytest.raises(TableError):
        read_table(path)


@pytest.mark.parametrize("stream", [True, False])
def test_indices_outside(stream: bool, tmp_path: Path) -> None:
    path = tmp_path / "a.arrow"
    indices = np.arange(40, 0, -1, dtype=np.int32)
    write(path, pa.DictionaryArray.from_arrays(pa.array(indices), pa.array(TEXTS)), stream=stream)
    read_table(path)
    replace_once(path, indices.tobytes(), np.where(indices == 9, 2**20, indices).astype(np.int32).tobytes())
    with pytest.raises(TableError):
        read_table(path)


def test_texts_need_not_be_utf8(tmp_path: Path) -> None:
    """They are values of rows, and no value causes a refusal."""
    path = tmp_path / "a.arrow"
    texts = pa.array([b"fine", b"\xff\xfe", b"fine"], pa.binary()).view(pa.string())
    write(path, texts, stream=False)
    table, *_ = read_table(path)
    column = table["a"].to_pylist()
    assert (column[0], len(column)) == ("fine", 3)


BYTES = pa.array([b"fine", b"\xff\xfe"], pa.binary()).view(pa.string())
LATE = pa.array([1, 10**15], pa.int64()).view(pa.time64("us"))  # not within a day
LARGE = pa.array([(10**each).to_bytes(16, "little") for each in (1, 9)], pa.binary(16)).view(pa.decimal128(5, 2))
OFFSETS = pa.array([0, 1, 2], pa.int32())


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize(
    "column",
    [
        pa.ListArray.from_arrays(OFFSETS, BYTES),
        pa.ListArray.from_arrays(OFFSETS, LATE),
        pa.LargeListArray.from_arrays(OFFSETS.cast(pa.int64()), BYTES),
        pa.FixedSizeListArray.from_arrays(BYTES, 1),
        pa.StructArray.from_arrays([BYTES, LATE], ["text", "time"]),
        pa.StructArray.from_arrays([BYTES], fields=[pa.field("text", pa.string(), nullable=False)]),
        pa.MapArray.from_arrays(OFFSETS, BYTES, BYTES),
        pa.DictionaryArray.from_arrays(pa.array([0, 1], pa.int32()), LARGE),
    ],
    ids=lambda column: str(column.type)[:20],
)
def test_no_value_inside_a_list_causes_a_refusal(column: pa.Array, stream: bool, tmp_path: Path) -> None:
    write(tmp_path / "a.arrow", column, stream=stream)
    schema = us.Schema.from_dict({"columns": [{"name": "a", "kind": "text", "drop": True}]})
    table, *_ = read_table(tmp_path / "a.arrow", schema=schema)
    assert len(table) == 2


@pytest.mark.parametrize("groups", [(5, 7, 3), (5, 7, 9), (3, 3, 3, 3), (2, 9)])
@pytest.mark.parametrize("num_rows", [1, 4, 5, 8])
def test_a_text_that_is_not_utf8_in_a_dictionary_moves_no_other_row(
    tmp_path: Path, groups: tuple[int, ...], num_rows: int
) -> None:
    """Batches of a dictionary end with the row groups; those that are read again as plain texts do not."""
    schema = pa.schema([("id", pa.int64()), ("c", pa.dictionary(pa.int8(), pa.string()))])
    for bad in range(len(groups)):
        path, start = tmp_path / f"{bad}.parquet", 0
        with pq.ParquetWriter(path, schema, dictionary_pagesize_limit=4) as writer:
            for at, size in enumerate(groups):
                texts = [f"v{number}".encode() for number in range(size)]
                texts[-1] = b"\xff" if at == bad else texts[-1]
                words = pa.DictionaryArray.from_arrays(pa.array(range(size), pa.int8()), _unchecked(texts))
                writer.write_table(pa.table([pa.array(range(start, start + size)), words], schema=schema))
                start += size
        batches = open_parquet(TablePath.parse(str(path))).read(num_rows)
        assert [number for batch in batches for number in batch.column("id").to_pylist()] == list(range(start))


def _unchecked(texts: list[bytes]) -> pa.StringArray:
    return pa.array(texts, pa.binary()).view(pa.string())
