"""The data package beside a synthetic table: it describes the file, and its constraints come from the schema."""

import csv
import hashlib
import json
from datetime import date, datetime
from pathlib import Path

import pyarrow as pa
import pytest

import understudy as us
from tests.planning.test_mock import KINDS
from understudy.institution.metadata.table_schema import describe_synthetic, schema_columns, table_schema
from understudy.planning.mock import MockMaker
from understudy.tables import Label, Origin, attach_label, declared_schema, write_batches, write_table

SCHEMA = us.Schema.from_toml(KINDS)


def read_value(text: str, field: dict) -> object:
    """One cell as Table Schema says that it is to be read."""
    match field["type"]:
        case "boolean":
            assert text in (*field["trueValues"], *field["falseValues"])
            return text in field["trueValues"]
        case "integer":
            return int(text)
        case "number":
            return float(text.replace(field.get("decimalChar", "."), "."))
        case "date":
            return datetime.strptime(text, field.get("format", "%Y-%m-%d")).date()
        case "datetime":
            return (
                datetime.fromisoformat(text) if field["format"] == "any" else datetime.strptime(text, field["format"])
            )
    return text


def check_column(texts: list[str], field: dict, missing: list[str]) -> None:
    """Every cell of a column keeps what its field says."""
    rules = field.get("constraints", {})
    values = [read_value(text, field) for text in texts if text not in missing]
    assert not (rules.get("required") and len(values) < len(texts)), field
    assert not (rules.get("unique") and len(set(values)) < len(values)), field
    assert "enum" not in rules or set(values) <= set(rules["enum"]), field
    for value in values if "minimum" in rules else ():
        low, high = (read_value(str(rules[end]), field) for end in ("minimum", "maximum"))
        assert low <= value <= high, field  # type: ignore[operator]  # numbers or dates, both of one kind


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("described")
    maker = MockMaker.of(SCHEMA, 300)
    write_batches(maker.batches(seed=0), folder / "fake.csv", delimiter=";", describe=describe_synthetic(SCHEMA))
    return folder


def test_the_file_can_be_read_and_checked_by_its_description(folder: Path) -> None:
    content = json.loads((folder / "fake.csv.datapackage.json").read_bytes())
    (resource,) = content["resources"]
    data = (folder / resource["path"]).read_bytes()
    assert resource["bytes"] == len(data)
    assert resource["hash"] == f"sha256:{hashlib.sha256(data).hexdigest()}"
    header, *lines = csv.reader(data.decode(resource["encoding"]).splitlines(), **resource["dialect"])
    assert header == [field["name"] for field in resource["schema"]["fields"]]
    assert resource["rows"] == len(lines) == 300
    for field, *texts in zip(resource["schema"]["fields"], *lines, strict=True):
        check_column(texts, field, resource["schema"]["missingValues"])
    assert content["title"] == "Synthetic data: All *kinds*"
    assert content["synthetic"] is True


def test_constraints_are_declared_and_never_found(tmp_path: Path) -> None:
    """The description is the same for rows with other values, and a column without declarations has no constraint."""
    schema = us.Schema.from_toml('[columns.a]\nkind = "integer"\n[columns.b]\nkind = "categorical"\ncategories = ["x"]')
    found = []
    for values in ([1, 2, 3], [7, 8, 9]):
        table = attach_label(pa.table({"a": values, "b": ["x", "x", None]}), Label(certificate="none"))
        write_table(table, tmp_path / "fake.csv", describe=describe_synthetic(schema), force=True)
        (resource,) = json.loads((tmp_path / "fake.csv.datapackage.json").read_bytes())["resources"]
        found.append(resource["schema"])
    assert found[0] == found[1]
    assert found[0]["fields"] == [
        {"name": "a", "type": "integer"},
        {"name": "b", "type": "string", "constraints": {"enum": ["x", "other"]}},
    ]


def test_dates_and_missing_values_are_described_as_the_format_writes_them() -> None:
    columns = declared_schema(SCHEMA)
    as_text, as_parquet = table_schema(columns, SCHEMA), table_schema(columns, SCHEMA, ".parquet")
    by_name = {field["name"]: field for field in as_text["fields"]}  # type: ignore[attr-defined]  # JSON, typed as objects
    assert by_name["born"]["format"] == "%d.%m.%Y"
    assert by_name["born"]["constraints"] == {"minimum": "01.01.1930", "maximum": "31.12.2005"}
    assert as_text["missingValues"] == [""]
    plain = {field["name"]: field for field in as_parquet["fields"]}  # type: ignore[attr-defined]  # JSON, typed as objects
    assert "format" not in plain["born"]
    assert plain["born"]["constraints"]["minimum"] == date(1930, 1, 1).isoformat()
    assert plain["member"] == {"name": "member", "type": "boolean"}
    assert "missingValues" not in as_parquet


def test_ids_of_units_with_several_rows_are_not_unique() -> None:
    text = '[table]\nunit = "p"\nmax_rows_per_unit = 2\n[columns.p]\nkind = "id"\n[columns.m]\nkind = "boolean"'
    linked = us.Schema.from_toml(text)
    single = us.Schema.from_toml(text.replace("= 2", "= 1"))
    for schema, constraints in ((linked, {"required": True}), (single, {"required": True, "unique": True})):
        fields = table_schema(declared_schema(schema), schema)["fields"]
        assert fields[0]["constraints"] == constraints  # type: ignore[index]  # JSON, typed as objects


def test_the_columns_of_a_release_are_known_before_rows_are_sampled() -> None:
    columns = declared_schema(SCHEMA)
    assert table_schema(schema_columns(Origin.of(columns, "file")), SCHEMA) == table_schema(columns, SCHEMA)


def test_a_database_table_has_no_hash(tmp_path: Path) -> None:
    write_table(pa.table({"a": [1]}), f"{tmp_path}/base.duckdb::fake people", describe=describe_synthetic())
    content = json.loads((tmp_path / "base.duckdb-fake people.datapackage.json").read_bytes())
    (resource,) = content["resources"]
    assert (resource["name"], resource["path"]) == ("fake-people", "base.duckdb")
    assert resource["dialect"] == {"table": "fake people"}
    assert "hash" not in resource
    assert content["synthetic"] is False  # the rows had no label
