"""The loader of MIMIC-III, on a small made table of its layout."""

import gzip
from pathlib import Path

import pyarrow as pa
import pytest

import understudy as us
from benchmarks.papers.autogan.mimic import category, icd9_categories, patient_matrix
from tests.builders import raises
from understudy.errors import ConfigError, TableError

ADMISSIONS = """"ROW_ID","SUBJECT_ID","HADM_ID","ADMITTIME"
1,22,165315,2196-04-09 12:26:00
2,23,152223,2153-09-03 07:15:00
3,23,124321,2157-10-18 19:34:00
4,24,161859,2139-06-06 16:14:00
"""
DIAGNOSES = """"ROW_ID","SUBJECT_ID","HADM_ID","SEQ_NUM","ICD9_CODE"
1,23,152223,1,"4019"
2,23,124321,1,"0389"
3,23,124321,2,"40190"
4,22,165315,1,"E8788"
5,22,165315,2,"V3001"
6,24,161859,1,""
7,99,999999,1,"4019"
"""


@pytest.fixture
def files(tmp_path: Path) -> tuple[Path, Path]:
    admissions, diagnoses = tmp_path / "ADMISSIONS.csv", tmp_path / "DIAGNOSES_ICD.csv.gz"
    admissions.write_text(ADMISSIONS)
    diagnoses.write_bytes(gzip.compress(DIAGNOSES.encode()))
    return admissions, diagnoses


def test_a_row_for_each_patient_and_a_column_for_each_category(files: tuple[Path, Path]) -> None:
    """Admissions of a patient come together; who has no diagnosis is a row of zeros; who was not admitted is none."""
    table, schema = patient_matrix(*files, codes=["038", "250", "401", "V30", "E878"])
    assert table.num_rows == 3
    assert table.to_pylist() == [
        {"038": False, "250": False, "401": False, "V30": True, "E878": True},
        {"038": True, "250": False, "401": True, "V30": False, "E878": False},
        {"038": False, "250": False, "401": False, "V30": False, "E878": False},
    ]
    assert schema.rows is None
    assert {(column.kind, column.nullable) for column in schema.columns} == {("boolean", False)}
    assert us.plan(schema, "independent", us.Guarantee(1.0)).queries  # the schema is one that can be fitted


def test_the_default_list_is_public(files: tuple[Path, Path]) -> None:
    """All formal categories, whoever is in the table."""
    table, schema = patient_matrix(*files, rows=46_520)
    assert tuple(table.column_names) == icd9_categories() == schema.names
    assert schema.rows == 46_520
    empty = pa.table({"SUBJECT_ID": pa.array([], pa.int64()), "ICD9_CODE": pa.array([], pa.string())})
    assert patient_matrix(files[0], empty)[0].column_names == table.column_names


def test_codes_have_categories() -> None:
    assert [category(code) for code in ("4019", "401.9", "v3001", "E8788", "0389")] == [
        "401",
        "401",
        "V30",
        "E878",
        "038",
    ]


def test_other_tables_are_refused(files: tuple[Path, Path]) -> None:
    with raises(ConfigError, setting="codes"):
        patient_matrix(*files, codes=["4019"])
    with raises(ConfigError, setting="codes"):
        patient_matrix(*files, codes=["401", "401"])
    with raises(TableError, column="ICD9_CODE"):
        patient_matrix(files[0], pa.table({"SUBJECT_ID": [1]}))
    secret = pa.table({"SUBJECT_ID": ["patient seven"], "ICD9_CODE": ["4019"]})
    for tables in ((secret, files[1]), (files[0], secret)):
        with raises(TableError, column="SUBJECT_ID") as refused:
            patient_matrix(*tables)
        assert "seven" not in str(refused.value)
    with pytest.raises(TableError):
        patient_matrix(files[0], "nowhere.csv")
