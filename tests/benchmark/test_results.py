"""Results on disk: nothing that was finished is lost, and nothing half-written counts."""

import json
from pathlib import Path

import pytest

from understudy.benchmark.results import Locked, ResultStore, read_records, write_parquet
from understudy.errors import TableError

RECORD: dict[str, object] = {
    "key": "a",
    "suite": "tiny",
    "table": "car",
    "method": "mst",
    "peer": None,
    "peer_version": None,
    "epsilon": 1.0,
    "delta": 1e-5,
    "seed": 0,
    "status": "done",
    "failure": None,
    "metrics": {"f1": 0.5, "tvd2": 0.1},
    "details": {"classifiers": {"logistic": {"f1": 0.5}}},
    "seconds": {"fit": 1.5, "sample": 0.1, "score": 2.0},
    "rows": {"train": 10, "test": 5, "synthetic": 10, "scored": 10},
    "peak_mb": 100.0,
}
FAILED: dict[str, object] = {
    **RECORD,
    "key": "b",
    "status": "failed",
    "failure": {"reason": "time", "message": "Too slow."},
    "metrics": {},
    "details": {},
    "seconds": {},
    "rows": {},
    "peak_mb": None,
}


@pytest.fixture
def store(tmp_path):
    found = ResultStore(tmp_path / "results")
    with found.open():
        for record in (RECORD, FAILED):
            found.add(record)
    return found


def test_the_last_record_of_a_cell_counts(store):
    store.add({**FAILED, "status": "done"})
    assert store.read()["b"]["status"] == "done"


@pytest.mark.parametrize("cut", [1, 5, 50, 200])
def test_a_file_cut_in_the_middle_loses_the_last_cell_only(store, cut):
    content = store.lines.read_bytes()
    store.lines.write_bytes(content[:-cut] if cut > 1 else content[:-2])
    assert list(store.read()) == ["a"]
    with store.open():
        store.add(FAILED)
    assert list(store.read()) == ["a", "b"], "the next record is a line of its own"


def test_lines_that_are_not_records_are_skipped(store):
    with store.lines.open("ab") as file:
        file.write(b'nonsense\n[1, 2]\n{"key": "c"}\n\xff\xfe\n')
    assert list(store.read()) == ["a", "b"]


def test_a_second_run_is_refused(store):
    with store.open(), pytest.raises(Locked), store.open():
        pass


def test_the_lock_ends_with_its_block(store):
    for _ in range(2):
        with store.open():
            pass


def test_parquet_holds_the_same_records(store):
    store.write_parquet()
    found = {record["key"]: record for record in read_records(store.parquet)}
    assert found == {"a": RECORD, "b": FAILED}


def test_records_can_be_read_from_the_folder_and_its_files(store):
    store.write_parquet()
    for source in (store.folder, store.lines, store.parquet):
        assert [record["key"] for record in read_records(source)] == ["a", "b"]


def test_a_parquet_of_no_records_can_be_written(tmp_path):
    write_parquet([], tmp_path / "results.parquet")
    assert read_records(tmp_path / "results.parquet") == []


def test_numbers_that_json_cannot_hold_are_refused(store):
    with pytest.raises(ValueError, match="JSON compliant"):
        store.add({**RECORD, "metrics": {"f1": float("nan")}})
    assert len(store.lines.read_text().splitlines()) == 2


def test_artefacts_are_kept_by_cell(store):
    store.keep_artefact("a", "certificate.json", {"epsilon": 1})
    (path,) = store.artefacts("a")
    assert json.loads(path.read_text()) == {"epsilon": 1}
    assert store.artefacts("b") == []


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full, a device that is always full")
def test_a_full_disk_is_one_clear_line(tmp_path):
    store = ResultStore(tmp_path)
    store.lines.symlink_to("/dev/full")
    with pytest.raises(TableError, match="the disk is full"):
        store.add(RECORD)
