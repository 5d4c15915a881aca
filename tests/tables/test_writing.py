"""Files written and read back, whole or not at all."""

import contextlib
import gzip
import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.tables.table_examples import STYLED, written
from understudy.errors import TableError
from understudy.run.atomic import atomic_path
from understudy.tables import (
    Origin,
    atomic_folder,
    check_writable,
    from_frame,
    read_table,
    write_file,
    write_table,
)


def test_csv_comes_back_to_the_byte(tmp_path: Path) -> None:
    table, origin = read_table(written(tmp_path, STYLED))
    bare = pa.table(table.columns, names=table.column_names)  # what a codec decodes has no metadata
    origin = Origin.from_dict(json.loads(json.dumps(origin.to_dict())))
    write_table(bare, tmp_path / "out.csv", origin=origin)
    assert (tmp_path / "out.csv").read_text() == STYLED


@pytest.mark.parametrize(
    "name", ["x.csv", "x.tsv", "x.csv.gz", "x.csv.zst", "x.parquet", "x.feather", "x.arrow", "x.jsonl", "x.ndjson.gz"]
)
def test_every_file_format_gives_back_what_was_written(tmp_path: Path, name: str) -> None:
    table, origin = read_table(written(tmp_path, STYLED))
    write_table(table, tmp_path / name, origin=origin)
    back, again = read_table(tmp_path / name)
    assert back.equals(table)
    assert [again.columns[c].arrow for c in table.column_names] == [origin.columns[c].arrow for c in table.column_names]


def test_compressed_files_are_compressed(tmp_path: Path) -> None:
    write_table(pa.table({"a": [1, 2]}), tmp_path / "x.csv.gz")
    assert gzip.decompress((tmp_path / "x.csv.gz").read_bytes()) == b"a\n1\n2\n"
    with pytest.raises(TableError, match="only text files"):
        write_table(pa.table({"a": [1]}), tmp_path / "x.parquet.gz")


def test_synthetic_reals_get_the_decimals_of_the_original(tmp_path: Path) -> None:
    _, origin = read_table(written(tmp_path, "x,y\n1.50,0.5\n2.25,2\n"))
    write_table(pa.table({"x": [1.23456, -0.001], "y": [0.66, 3.0]}), tmp_path / "out.csv", origin=origin)
    assert (tmp_path / "out.csv").read_text() == "x,y\n1.23,0.7\n0.00,3\n"


def test_unpadded_dates_stay_unpadded(tmp_path: Path) -> None:
    table, origin = read_table(written(tmp_path, "x,y\n1/31/2020,1\n12/2/2020,1\n"))
    write_table(table, tmp_path / "out.csv", origin=origin)
    assert (tmp_path / "out.csv").read_text() == "x,y\n1/31/2020,1\n12/2/2020,1\n"


def test_names_that_differ_by_case(tmp_path: Path) -> None:
    table = pa.table({"A": [1], "a": [2]})
    write_table(table, tmp_path / "x.csv")
    assert (tmp_path / "x.csv").read_text() == "A,a\n1,2\n"
    with pytest.raises(TableError) as caught:
        write_table(table, tmp_path / "x.jsonl")
    assert caught.value.column == "A"


def test_a_long_csv_keeps_its_order(tmp_path: Path) -> None:
    write_table(pa.table({"i": np.arange(300_000), "z": np.arange(300_000) % 7}), tmp_path / "x.csv")
    assert np.array_equal(read_table(tmp_path / "x.csv")[0].column("i").to_numpy(), np.arange(300_000))


def test_nan_is_null_everywhere_inside(tmp_path: Path) -> None:
    pq.write_table(pa.table({"x": [1.0, float("nan"), None]}), tmp_path / "x.parquet")
    assert read_table(tmp_path / "x.parquet")[0].column("x").to_pylist() == [1.0, None, None]
    assert from_frame(pl.DataFrame({"x": [1.0, float("nan")]}))[0].column("x").null_count == 1


def test_parquet_keeps_arrow_types(tmp_path: Path) -> None:
    table = pa.table(
        {
            "i": pa.array([1, None], pa.int16()),
            "u": pa.array([2**64 - 1, 0], pa.uint64()),
            "s": pa.array(["a", "b"], pa.large_string()),
            "c": pa.array(["x", "y"]).dictionary_encode(),
            "t": pa.array([0, 1], pa.timestamp("ms", "Europe/Berlin")),
            "d": pa.array([1, 2]).cast(pa.decimal128(24, 3)),
            "f": pa.array([1.0, 2.0], pa.float32()),
        }
    )
    pq.write_table(table, tmp_path / "x.parquet")
    inside, origin = read_table(tmp_path / "x.parquet")
    assert inside.schema.field("s").type == pa.string()
    write_table(inside, tmp_path / "y.parquet", origin=origin)
    assert pq.read_table(tmp_path / "y.parquet").equals(table)


def leftovers(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_an_existing_output_is_refused_without_force(tmp_path: Path) -> None:
    path = written(tmp_path, "old")
    for act in (lambda: check_writable(path), lambda: write_table(pa.table({"a": [1]}), path)):
        with pytest.raises(TableError):
            act()
    assert path.read_text() == "old"
    check_writable(path, force=True)
    write_table(pa.table({"a": [1]}), path, force=True)
    assert path.read_text() == "a\n1\n"
    assert leftovers(tmp_path) == ["people.csv"]


@pytest.mark.parametrize("error", [KeyboardInterrupt, ValueError])
def test_an_interrupted_file_leaves_nothing(tmp_path: Path, error: type[BaseException]) -> None:
    path = written(tmp_path, "old")
    with pytest.raises(error), atomic_path(path, force=True) as part:  # noqa: PT012
        part.write_bytes(b"half")
        raise error
    assert path.read_text() == "old"
    assert leftovers(tmp_path) == ["people.csv"]


@pytest.mark.parametrize("error", [KeyboardInterrupt, ValueError])
def test_an_interrupted_folder_keeps_the_old_one(tmp_path: Path, error: type[BaseException]) -> None:
    path = tmp_path / "release"
    with atomic_folder(path) as inside:
        (inside / "release.json").write_text("old")
    with pytest.raises(TableError), atomic_folder(path):
        pass
    with pytest.raises(error), atomic_folder(path, force=True) as inside:  # noqa: PT012
        (inside / "release.json").write_text("new")
        raise error
    assert (path / "release.json").read_text() == "old"
    with atomic_folder(path, force=True, contents=("release.json",)) as inside:
        (inside / "release.json").write_text("new")
    assert (path / "release.json").read_text() == "new"
    assert leftovers(tmp_path) == ["release"]


def test_force_does_not_remove_a_folder_of_another_kind(tmp_path: Path) -> None:
    (tmp_path / "home").mkdir()
    written(tmp_path / "home", "precious")
    with (
        pytest.raises(TableError, match=r"not empty and has no release\.json"),
        atomic_folder(tmp_path / "home", force=True, contents=("release.json",)),
    ):
        pass
    (tmp_path / "home" / "release.json").write_text("precious")
    with (
        pytest.raises(TableError, match=r"1 file that Understudy did not write"),
        atomic_folder(tmp_path / "home", force=True, contents=("release.json",)),
    ):
        pass
    assert leftovers(tmp_path / "home") == ["people.csv", "release.json"]


def test_a_link_stays_a_link(tmp_path: Path) -> None:
    written(tmp_path, "old", "target.csv")
    (tmp_path / "link.csv").symlink_to(tmp_path / "target.csv")
    write_table(pa.table({"a": [1]}), tmp_path / "link.csv", force=True)
    assert (tmp_path / "link.csv").is_symlink()
    assert (tmp_path / "target.csv").read_text() == "a\n1\n"


def test_bad_paths_are_refused_before_any_budget_is_spent(tmp_path: Path) -> None:
    with pytest.raises(TableError):
        check_writable(tmp_path / "none" / "x.csv")
    with pytest.raises(TableError):
        check_writable(written(tmp_path, "x") / "x.csv")
    check_writable(tmp_path / "y.csv", table=True)
    with pytest.raises(TableError):
        check_writable(tmp_path / "x.docx", table=True)
    with pytest.raises(TableError, match="can only be read"):
        check_writable("postgresql://me@host/db::people")
    check_writable(f"{tmp_path}/x.duckdb::people", table=True)
    with pytest.raises(TableError):
        check_writable(tmp_path / "x.duckdb", table=True)
    check_writable(tmp_path / "fake.release")


@contextlib.contextmanager
def unprivileged() -> Iterator[None]:
    """Root may write anywhere, so for a moment be somebody else."""
    if os.geteuid() != 0:
        yield
        return
    os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(0)


def test_a_folder_that_may_not_be_written(tmp_path: Path) -> None:
    folder = tmp_path / "locked"
    folder.mkdir()
    folder.chmod(0o555)
    for parent in [tmp_path, *tmp_path.parents][:4]:
        if parent.stat().st_uid == os.geteuid():
            parent.chmod(0o755)
    with unprivileged(), pytest.raises(TableError, match="do not have permission to write"):
        check_writable(folder / "x.csv")


@pytest.fixture
def tiny_disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of 64 kB."""
    folder = tmp_path / "tiny"
    folder.mkdir()
    try:
        done = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(folder)], capture_output=True)
    except FileNotFoundError:
        pytest.skip("needs mount")
    if done.returncode:
        pytest.skip("needs the right to mount a small disk")
    yield folder
    subprocess.run(["umount", str(folder)], check=True)


@pytest.mark.parametrize(
    "name", ["x.csv", "x.csv.gz", "x.parquet", "x.feather", "x.jsonl", "x.sqlite::t", "x.duckdb::t"]
)
def test_a_full_disk_leaves_nothing(tiny_disk: Path, name: str) -> None:
    noise = pa.table({"x": np.random.default_rng(0).integers(0, 2**60, 100_000)})
    with pytest.raises(TableError, match="the disk is full") as caught:
        write_table(noise, str(tiny_disk / name))
    assert "\n" not in str(caught.value)
    assert leftovers(tiny_disk) == []


def test_a_device_without_space() -> None:
    if not os.path.exists("/dev/full"):
        pytest.skip("needs /dev/full")
    with pytest.raises(TableError, match=r"cannot be written|exists|may not"):
        write_file("/dev/full", b"x")
