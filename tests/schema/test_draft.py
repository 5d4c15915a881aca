"""Schemas drafted from Arrow types."""

import pyarrow as pa
import pytest

from tests.builders import raises
from understudy.errors import SchemaError
from understudy.schema import Column, Schema
from understudy.schema.draft import describe_names


def test_kinds_follow_arrow_types():
    arrow = pa.schema(
        [
            ("i8", pa.int8()),
            ("u64", pa.uint64()),
            ("f", pa.float32()),
            ("half", pa.float16()),
            ("dec", pa.decimal128(10, 2)),
            ("b", pa.bool_()),
            ("ts", pa.timestamp("ns", tz="Europe/Paris")),
            ("d32", pa.date32()),
            ("d64", pa.date64()),
            ("s", pa.string()),
            ("ls", pa.large_string()),
            ("sv", pa.string_view()),
            ("dict", pa.dictionary(pa.int8(), pa.string())),
            ("list", pa.list_(pa.int8())),
            ("struct", pa.struct([("a", pa.int8())])),
            ("bin", pa.binary()),
            ("time", pa.time64("us")),
            ("dur", pa.duration("s")),
            ("nul", pa.null()),
            ("uuid", pa.uuid()),
        ]
    )
    schema = Schema.draft(arrow)
    kinds = {column.name: column.kind for column in schema if not column.drop}
    assert kinds == {
        "i8": "integer",
        "u64": "integer",
        "f": "real",
        "half": "real",
        "dec": "real",
        "b": "boolean",
        "ts": "datetime",
        "d32": "date",
        "d64": "date",
        "s": "categorical",
        "ls": "categorical",
        "sv": "categorical",
        "dict": "categorical",
    }
    dropped = [column for column in schema if column.drop]
    assert [column.name for column in dropped] == ["list", "struct", "bin", "time", "dur", "nul", "uuid"]
    assert {column.kind for column in dropped} == {"text"}
    assert schema.drafted
    assert schema.rows is None


def test_field_metadata_is_honoured():
    date_field = pa.field("d", pa.date32(), metadata={b"kind": b"date", b"format": b"%d.%m.%Y"})
    zip_field = pa.field("zip", pa.int64(), metadata={b"kind": b"categorical", b"format": b"%d"})
    real_field = pa.field("r", pa.float64(), metadata={b"decimals": b"2", b"padded": b"true"})
    bool_field = pa.field("b", pa.bool_(), metadata={b"format": b"No/Yes"})
    schema = Schema.draft(pa.schema([date_field, zip_field, real_field, bool_field]))
    assert schema["r"] == Column(name="r", kind="real", decimals=2)
    assert schema["b"] == Column(name="b", kind="boolean", format="No/Yes")
    assert "decimals = 2                            # digits after the decimal point in text files" in schema.to_toml()
    assert 'format = "No/Yes"                       # how text files write false and true' in schema.to_toml()
    assert schema["d"] == Column(name="d", kind="date", format="%d.%m.%Y")
    assert schema["zip"].kind == "categorical"
    with raises(SchemaError, column="d", key="kind"):
        Schema.draft(pa.schema([pa.field("d", pa.date32(), metadata={b"kind": b"dat"})]))


def test_a_draft_is_the_same_for_every_table_of_the_same_shape():
    """No value, distinct count or number of rows may reach the file."""
    rich = pa.table({"a": pa.array(["canary", "other"]).dictionary_encode(), "n": [17, 4242]})
    poor = rich.slice(0, 0)
    assert Schema.draft(rich.schema).to_toml() == Schema.draft(poor.schema).to_toml()
    assert "canary" not in Schema.draft(rich.schema).to_toml()


def test_a_draft_refuses_duplicate_names():
    with raises(SchemaError, column="a"):
        Schema.draft(pa.schema([("a", pa.int8()), ("a", pa.int8())]))


@pytest.mark.parametrize(
    ("names", "section"),
    [
        (("lat", "lon"), "location"),
        (("Latitude", "Longitude"), "location"),
        (("home_lat", "home_lng"), "home"),
        (("pickup.latitude", "pickup.longitude"), "pickup"),
        (("lat_start", "long_start"), "start"),
    ],
)
def test_names_of_coordinates_get_a_hint_that_can_be_declared(names: tuple[str, str], section: str) -> None:
    """The comment names both columns; what it says is a section that a schema accepts."""
    (comment,) = describe_names(["age", *names]).values()
    assert all(f'"{name}"' in comment for name in names)
    assert f"[columns.{section}]" in comment
    keys = f'kind = "location"\nlatitude = "{names[0]}"\nlongitude = "{names[1]}"\nbox = [0, 0, 1, 1]'
    assert Schema.from_toml(f"[columns.{section}]\n{keys}\n").locations[0].names == names


def test_other_names_get_no_hint() -> None:
    assert describe_names(["lat", "age", "flat", "plateau", "home_lon", "long", "lon"]).keys() == {"lat"}
    assert describe_names(["platform", "along", "latency", "lonely", "lng", "lon"]) == {}
    assert 'kind = "location"' in describe_names(["home_wkt"])["home_wkt"]
