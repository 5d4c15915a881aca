"""Labels of synthetic tables: files and frames carry them, other libraries still read the files, and no row is read."""

import json
from pathlib import Path

import duckdb
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.ipc
import pyarrow.parquet as pq
import pytest

from understudy.errors import TableError
from understudy.tables import (
    Label,
    Origin,
    WrittenTable,
    attach_label,
    check_writable,
    label_metadata,
    read_table,
    says_synthetic,
    to_frame,
    write_batches,
    write_table,
)
from understudy.tables.labels import sidecar_path
from understudy.tables.path import TablePath

LABEL = Label(certificate="mst: epsilon 1, delta 1e-06", source="release", digest="ab" * 32)
TABLE = attach_label(pa.table({"a": [1, None, 3], "b": ["x", "y", "ä"]}), LABEL)
PLAIN = TABLE.replace_schema_metadata(None)


def describe(written: WrittenTable) -> bytes:
    label = label_metadata(written.schema)
    return json.dumps({"synthetic": bool(label), "rows": written.num_rows, "delimiter": written.delimiter}).encode()


def test_files_with_metadata_carry_the_label_and_stay_readable(tmp_path: Path) -> None:
    for name in ("fake.parquet", "fake.feather", "fake.arrow"):
        write_batches([TABLE.slice(0, 2), TABLE.slice(2)], tmp_path / name)
        assert says_synthetic(tmp_path / name), name
        write_table(PLAIN, tmp_path / f"real-{name}")
        assert not says_synthetic(tmp_path / f"real-{name}"), name
        assert read_table(tmp_path / name)[0].equals(read_table(tmp_path / f"real-{name}")[0])
    assert label_metadata(pq.read_schema(tmp_path / "fake.parquet")) == LABEL.to_metadata()
    with pa.memory_map(str(tmp_path / "fake.feather")) as file:
        assert label_metadata(pa.ipc.open_file(file).schema) == LABEL.to_metadata()
    assert pd.read_parquet(tmp_path / "fake.parquet")["b"].tolist() == ["x", "y", "ä"]
    assert pd.read_feather(tmp_path / "fake.feather")["b"].tolist() == ["x", "y", "ä"]
    assert pl.read_parquet(tmp_path / "fake.parquet")["a"].to_list() == [1, None, 3]
    assert pl.read_ipc(tmp_path / "fake.feather")["a"].to_list() == [1, None, 3]


def test_a_duckdb_table_has_the_label_as_its_comment(tmp_path: Path) -> None:
    write_table(TABLE, f"{tmp_path}/base.duckdb::fake")
    write_table(PLAIN, f"{tmp_path}/base.duckdb::real")
    with duckdb.connect(str(tmp_path / "base.duckdb")) as connection:
        comments = dict(connection.sql("SELECT table_name, comment FROM duckdb_tables()").fetchall())
    assert comments["real"] is None
    assert all(f"{key} = {value}" in comments["fake"] for key, value in LABEL.to_metadata().items())


def attributes(frame: object) -> dict:
    assert isinstance(frame, pd.DataFrame)
    return dict(frame.attrs)


def test_frames_carry_the_label_where_they_can() -> None:
    frames = {name: to_frame(TABLE, Origin.of(PLAIN.schema, name)) for name in ("pyarrow", "pandas", "polars")}
    assert label_metadata(frames["pyarrow"].schema) == attributes(frames["pandas"]) == LABEL.to_metadata()
    assert says_synthetic(frames["pyarrow"])
    assert says_synthetic(frames["pandas"])
    assert not says_synthetic(frames["polars"])  # nowhere to put it
    assert not attributes(to_frame(PLAIN, Origin.of(PLAIN.schema, "pandas")))


def test_other_metadata_is_not_written(tmp_path: Path) -> None:
    """pandas and polars keep values there, such as the categories of the original."""
    table = TABLE.replace_schema_metadata({**LABEL.to_metadata(), "pandas": "secret", "understudy": "x"})
    write_table(table, tmp_path / "fake.parquet")
    assert label_metadata(pq.read_schema(tmp_path / "fake.parquet")) == LABEL.to_metadata()
    assert b"secret" not in (tmp_path / "fake.parquet").read_bytes()


@pytest.mark.parametrize(
    "name", ["fake.csv", "fake.tsv", "fake.csv.gz", "fake.jsonl", "fake.parquet", "fake.sqlite::t"]
)
def test_a_description_is_written_beside_every_format(name: str, tmp_path: Path) -> None:
    path = f"{tmp_path}/{name}"
    write_batches([TABLE.slice(0, 2), TABLE.slice(2)], path, delimiter=";", describe=describe)
    content = json.loads(sidecar_path(TablePath.parse(path)).read_bytes())
    assert content == {"synthetic": True, "rows": 3, "delimiter": "\t" if name == "fake.tsv" else ";"}
    assert says_synthetic(path)
    with pytest.raises(TableError):
        write_table(TABLE, path, describe=describe)
    write_table(TABLE.slice(0, 1), path, describe=describe, force=True)
    assert json.loads(sidecar_path(TablePath.parse(path)).read_bytes())["rows"] == 1


def test_table_and_description_appear_together_or_not_at_all(tmp_path: Path) -> None:
    def fail(_: WrittenTable) -> bytes:
        raise OSError(28, "No space left on device")

    with pytest.raises(TableError, match="disk is full"):
        write_table(TABLE, tmp_path / "fake.csv", describe=fail)
    assert not list(tmp_path.iterdir())
    check_writable(tmp_path / "fake.csv", table=True, sidecar=True)
    (tmp_path / "fake.csv.datapackage.json").write_text("mine")
    for attempt in (
        lambda: write_table(TABLE, tmp_path / "fake.csv", describe=describe),
        lambda: check_writable(tmp_path / "fake.csv", table=True, sidecar=True),
    ):
        with pytest.raises(TableError):
            attempt()
    assert [path.name for path in tmp_path.iterdir()] == ["fake.csv.datapackage.json"]
    write_table(TABLE, tmp_path / "fake.csv")  # without a description, the file beside it is not touched
    assert (tmp_path / "fake.csv.datapackage.json").read_text() == "mine"


@pytest.mark.parametrize(
    "content", [b"", b"[]", b"{}", b"\xff", b'{"synthetic": "yes"}', b'{"synthetic": false}', b"[" * 100_000]
)
def test_a_file_that_does_not_say_so_is_no_label(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "people.csv").write_text("a\n1\n")
    (tmp_path / "people.csv.datapackage.json").write_bytes(content)
    assert not says_synthetic(tmp_path / "people.csv")
    (tmp_path / "people.parquet").write_bytes(content)
    assert not says_synthetic(tmp_path / "people.parquet")
    assert not says_synthetic(tmp_path / "people.unknown")
    assert not says_synthetic(tmp_path / "missing.feather")
