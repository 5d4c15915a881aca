"""Rules of other tools: each constraint on a realistic file, what is left out and why, and files of junk."""

import json
from datetime import date
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.examples import scaled
from tests.schema.importing import import_or_complain
from understudy.cli.main import run
from understudy.errors import SchemaError
from understudy.importers.ddl import is_ddl
from understudy.importers.draft import ImportedSchema
from understudy.importers.importers import FORMATS, import_schema
from understudy.importers.values import sql_literal, sql_name
from understudy.schema import Column, Schema

SDV_METADATA = {
    "METADATA_SPEC_VERSION": "V2",
    "tables": {
        "guests": {
            "primary_key": "email",
            "columns": {
                "email": {"sdtype": "email"},
                "checkin": {"sdtype": "datetime", "datetime_format": "%d %b %Y", "range_min": "01 Jan 2020"},
                "checkout": {"sdtype": "datetime", "datetime_format": "%d %b %Y"},
                "paid": {"sdtype": "datetime", "datetime_format": "%d %b %Y"},
                "rating": {"sdtype": "ordinal", "range_values": ["bad", "good"], "range_is_nullable": False},
                "rate": {"sdtype": "numerical", "decimal_places": 2},
                "fee": {"sdtype": "numerical"},
                "nights": {"sdtype": "numerical", "decimal_places": 0},
                "rooms": {"sdtype": "numerical", "decimal_places": "many"},
                "basic": {"sdtype": "numerical"},
                "suite": {"sdtype": "numerical"},
                "city": {"sdtype": "categorical"},
                "country": {"sdtype": "categorical"},
            },
        }
    },
}

SDV_CONSTRAINTS = [
    ("Inequality", {"low_column_name": "checkin", "high_column_name": "checkout", "strict_boundaries": False}),
    ("Range", {"low_column_name": "checkin", "middle_column_name": "paid", "high_column_name": "checkout"}),
    ("ChainedInequality", {"column_names": ["fee", "rate"], "strict_boundaries": True}),
    ("ScalarInequality", {"column_name": "checkin", "relation": ">", "value": "31 Dec 2019"}),
    ("ScalarInequality", {"column_name": "checkin", "relation": "<=", "value": "31 Dec 2024"}),
    ("ScalarRange", {"column_name": "rate", "low_value": 0, "high_value": 1000, "strict_boundaries": True}),
    ("Positive", {"column_name": "fee"}),
    ("Negative", {"column_name": "rooms", "strict_boundaries": True}),
    ("OneHotEncoding", {"column_names": ["basic", "suite"]}),
    ("FixedCombinations", {"column_names": ["city", "country"]}),
    ("FixedIncrements", {"column_name": "rate", "increment_value": 5}),
    ("Unique", {"column_names": ["email"]}),
    ("PrimaryToPrimaryKeySubset", {"table_names": ["guests", "staff"]}),
    ("Inequality", {"low_column_name": "checkin", "high_column_name": "x", "table_name": "staff"}),
    ("Inequality", {"low_column_name": "checkinn", "high_column_name": "checkout"}),
    ("Inequality", {"low_column_name": 3}),
    ("MyOwn", {}),
]

MOSTLY = {
    "name": "flights",
    "tables": [
        {
            "name": "flights",
            "primaryKey": "id",
            "columns": [
                {"name": "id", "modelEncodingType": "AUTO"},
                {"name": "airline", "modelEncodingType": "TABULAR_CATEGORICAL"},
                {"name": "air_time", "modelEncodingType": "TABULAR_NUMERIC_AUTO"},
                {"name": "elapsed", "modelEncodingType": "TABULAR_NUMERIC_AUTO"},
                {"name": "departs", "modelEncodingType": "TABULAR_DATETIME"},
                {"name": "remark", "modelEncodingType": "LANGUAGE_TEXT"},
            ],
        }
    ],
    "constraints": [
        {"type": "Inequality", "config": {"tableName": "flights", "lowColumn": "air_time", "highColumn": "elapsed"}},
        {"type": "Inequality", "config": {"table_name": "crew", "low_column": "a", "high_column": "b"}},
        {"type": "FixedCombinations", "config": {"table_name": "flights", "columns": ["airline", "departs"]}},
    ],
}

DPSYNTH = """
attributes:
  software: {possible_values: [Game, Office, Tool], out_of_domain_index: 0}
  system: {possible_values: [Windows, Linux], out_of_domain_index: 0}
  vendor: {possible_values: [Acme, Other], out_of_domain_index: 1}
constraints:
- attribute_names: [software, system]
  possible_combinations: [[Game, Windows], [Office, Windows], [Tool, Linux], [Tool, Windows]]
- attribute_names: [system, vendor]
  impossible_combinations: [[Linux, Acme]]
- attribute_names: [software, vendor]
  functional_dependency: {Game: Other, Office: Acme, Tool: Other}
- attribute_names: [software]
"""

DDL = """
-- of MySQL and PostgreSQL alike
CREATE TYPE triage AS ENUM ('green', 'yellow', 'red');
CREATE TABLE wards (code CHAR(3) PRIMARY KEY, ward_name VARCHAR(40), beds INT);
CREATE TABLE IF NOT EXISTS hospital.`stays` (
    id BIGINT UNSIGNED NOT NULL AUTO_INCREMENT COMMENT 'number, (of the stay)',
    age SMALLINT NOT NULL CHECK (age BETWEEN 0 AND 120),
    sex CHAR(1) CHARACTER SET utf8 NOT NULL DEFAULT 'F' CHECK (sex IN ('F', 'M')),
    level triage,
    cost DECIMAL(10, 2) DEFAULT (0.0) CHECK (cost >= 0 AND cost < 100000),
    admitted DATE NOT NULL,
    discharged DATE CHECK (discharged IS NOT NULL),
    seen TIMESTAMP(3) WITHOUT TIME ZONE DEFAULT CURRENT_TIMESTAMP ON UPDATE CURRENT_TIMESTAMP,
    room NUMERIC(4), meals NUMERIC(8, 2),
    total DECIMAL(12, 2) GENERATED ALWAYS AS (room + meals) STORED,
    ward CHAR(3), ward_name VARCHAR(40) /* copied */, paid TINYINT(1) NULL,
    "key" DOUBLE PRECISION, tags TEXT[], shape GEOMETRY, colour ENUM('red', 'blue'),
    PRIMARY KEY (id),
    UNIQUE KEY once (ward, seen),
    KEY by_ward (ward),
    CONSTRAINT dates CHECK (discharged >= admitted AND (paid OR cost = 0)),
    CHECK (random() < 2),
    CHECK (id > 0),
    CHECK (nothing > 0),
    CONSTRAINT of_ward FOREIGN KEY (ward) REFERENCES wards (code) ON DELETE SET NULL
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4;
INSERT INTO stays VALUES (1);
"""


@pytest.fixture
def imported(tmp_path):
    def read(content, name="file.any", **options) -> ImportedSchema:
        path = tmp_path / name
        path.write_text(content if isinstance(content, str) else json.dumps(content))
        return import_schema(path, **options)

    return read


def texts(found: ImportedSchema) -> list[str]:
    return [rule.text for rule in found.schema.rules]


def reason(found: ImportedSchema, start: str) -> str:
    """Why the one thing that starts so was left out."""
    (line,) = [line for line in found.left_out if line.startswith(start)]
    return line.removeprefix(start)


def sdv_with(constraints: list, key: str = "class_name", parameters: str = "parameters") -> dict:
    return SDV_METADATA | {"constraints": [{key: name, parameters: given} for name, given in constraints]}


# SDV


@pytest.mark.parametrize(
    ("key", "parameters"), [("class_name", "parameters"), ("constraint_class", "constraint_parameters")]
)
def test_sdv_constraints(imported, key, parameters):
    found = imported(sdv_with(SDV_CONSTRAINTS, key, parameters))
    assert texts(found) == [
        "checkout >= checkin",
        "paid > checkin",
        "checkout > paid",
        "rate > fee",
        "basic + suite = 1",
        "fee >= 0.0",
        "rooms < 0.0",
    ]
    assert found.schema["checkin"].bounds == (date(2020, 1, 1), date(2024, 12, 31))
    assert found.schema["rate"].bounds == (0.01, 999.99)
    assert found.schema["basic"] == Column(name="basic", kind="integer", bounds=(0, 1))


def test_sdv_constraints_that_are_left_out(imported):
    found = imported(sdv_with(SDV_CONSTRAINTS))
    assert "comes from the training data" in reason(found, "SDV FixedCombinations")
    assert "increments are not modelled" in reason(found, "SDV FixedIncrements")
    assert "about the whole table" in reason(found, "SDV Unique")
    assert "relates several tables" in reason(found, "SDV PrimaryToPrimaryKeySubset")
    assert 'another table, "staff"' in reason(found, 'SDV Inequality ("checkin", "x")')
    assert "there is no column 'checkinn'" in reason(found, 'SDV Inequality ("checkinn", "checkout")')
    assert "expected the names of two columns" in reason(found, "SDV Inequality (3)")
    assert "it has no counterpart in a schema" in reason(found, "SDV MyOwn")


def test_sdv_ranges_come_from_the_data_and_are_left_out(imported):
    found = imported(SDV_METADATA)
    assert {name: found.schema[name].kind for name in ("rating", "rate", "fee", "nights", "rooms")} == {
        "rating": "categorical",
        "rate": "real",
        "fee": "real",
        "nights": "integer",
        "rooms": "real",
    }
    assert (found.schema["rate"].decimals, found.schema["fee"].decimals) == (2, None)
    assert found.schema["rating"] == Column(name="rating", kind="categorical")
    assert found.schema["checkin"].bounds is None
    assert "from the data" in reason(found, 'ranges and lists of values of columns "checkin", "rating"')
    assert "integer from 0 to 15" in reason(found, 'decimal_places of column "rooms"')


def test_sdv_ranges_that_a_person_vouches_for(imported):
    columns = {
        "grade": {"sdtype": "ordinal", "range_values": ["bad", "good"], "range_is_nullable": False},
        "city": {"sdtype": "categorical", "range_values": ["Rome", "Oslo"]},
        "age": {"sdtype": "numerical", "decimal_places": 0, "range_min": 17, "range_max": 90},
        "size": {"sdtype": "numerical", "computer_representation": "UInt8"},
    }
    found = imported({"METADATA_SPEC_VERSION": "V2", "tables": {"t": {"columns": columns}}}, trust_ranges=True)
    assert found.schema.columns == (
        Column(name="grade", kind="categorical", nullable=False, categories=("bad", "good"), ordinal=True),
        Column(name="city", kind="categorical", categories=("Rome", "Oslo"), closed=True),
        Column(name="age", kind="integer", bounds=(17, 90)),
        Column(name="size", kind="integer"),
    )
    assert found.left_out == ()


def test_one_of_several_sdv_tables(imported):
    tables = {name: {"columns": {f"{name}_size": {"sdtype": "numerical"}}} for name in ("guests", "hotels")}
    found = imported({"METADATA_SPEC_VERSION": "V2", "tables": tables}, table="hotels")
    assert found.schema.names == ("hotels_size",)


@pytest.mark.parametrize(
    ("content", "name", "found"),
    [
        ({"columns": {"a": {"sdtype": "ordnal"}}}, "sdv", "\"ordnal\", which is unknown. Did you mean 'ordinal'?"),
        ({"columns": {"a": {"sdtype": "numerical", "computer_representation": "Complex"}}}, "sdv", '"Complex"'),
        ({"t": {"a": {"type": "nit"}, "b": {"type": "int"}}}, "smartnoise", '"nit", which is unknown. Did you mean'),
        ({"a": {"type": "OddAttribute"}}, "dpsynth", '"OddAttribute"'),
        ({"tables": [{"columns": [{"name": "a", "modelEncodingType": "ODD"}]}]}, "mostly", '"ODD"'),
        ("CREATE TABLE t (a FOO(3))", "sql", '"FOO(3)"'),
    ],
)
def test_an_unknown_type_is_an_error(imported, content, name, found):
    """As text it would silently be left out of the synthetic table."""
    with pytest.raises(SchemaError) as error:
        imported(content, format=name)
    assert f"read as {name}: Column 'a' has the type {found}" in str(error.value)
    assert "Known types are" in str(error.value)
    assert "...." not in str(error.value)


def test_what_names_a_person_in_sdv_is_text_and_this_is_said(imported):
    columns = {"mail": {"sdtype": "email"}, "badge": {"sdtype": "badge_number", "pii": True}}
    found = imported({"columns": columns})
    assert {column.kind for column in found.schema} == {"text"}
    assert 'SDV calls it "badge_number"' in reason(found, 'the values of column "badge"')


def test_sdv_constraints_in_the_metadata_of_one_table(imported):
    columns = {"a": {"sdtype": "numerical"}, "b": {"sdtype": "numerical"}}
    flat = {"constraint_name": "Inequality", "low_column_name": "a", "high_column_name": "b"}
    dotted = {"constraint": "sdv.constraints.tabular.Positive", "column_name": "a"}
    found = imported({"columns": columns, "constraints": [flat, dotted]})
    assert texts(found) == ["b > a", "a >= 0.0"]
    assert found.left_out == ()


def test_constraints_alone_need_a_schema(imported, tmp_path):
    constraints = [{"class_name": "Inequality", "parameters": {"low_column_name": "low", "high_column_name": "High 1"}}]
    with pytest.raises(SchemaError, match="It has constraints but no columns"):
        imported(constraints)
    base = Schema.from_toml(
        '[columns.low]\nkind = "integer"\nbounds = [0, 9]\n[columns."High 1"]\nkind = "integer"\n'
        '[[rules]]\nkeep = "low <> 3"'
    )
    limit = {"column_name": "low", "relation": "<", "value": 5}
    constraints.append({"class_name": "Positive", "parameters": {"column_name": "low"}})
    constraints.append({"class_name": "ScalarInequality", "parameters": limit})
    found = imported(constraints, schema=base)
    assert texts(found) == ["low <> 3", '"High 1" > low', "low <= 4"]
    assert found.schema.columns == base.columns


# MOSTLY AI


def test_mostly(imported):
    found = imported(MOSTLY)
    assert {column.name: column.kind for column in found.schema} == {
        "id": "id",
        "airline": "categorical",
        "air_time": "real",
        "elapsed": "real",
        "departs": "datetime",
        "remark": "text",
    }
    assert found.schema.drafted
    assert texts(found) == ["elapsed >= air_time"]
    assert "comes from the training data" in reason(found, "MOSTLY AI FixedCombinations")
    assert 'another table, "crew"' in reason(found, 'MOSTLY AI Inequality ("a", "b")')
    assert "confirm it" in reason(found, 'the kind of column "elapsed"')


def test_mostly_without_columns_needs_a_schema(imported):
    with pytest.raises(SchemaError, match="--schema FILE"):
        imported(MOSTLY["constraints"])
    with pytest.raises(SchemaError, match="It describes 2 tables"):
        imported(MOSTLY | {"tables": [*MOSTLY["tables"], {"name": "crew"}]})


# dpsynth


def test_dpsynth_constraints(imported):
    found = imported(DPSYNTH)
    allowed, forbidden, dependency = (rule.to_dict() for rule in found.schema.rules)
    assert allowed["combinations"] == ["software", "system"]
    assert allowed["allowed"] == [["Game", "Windows"], ["Office", "Windows"], ["Tool", "Linux"], ["Tool", "Windows"]]
    assert forbidden == {"combinations": ["system", "vendor"], "forbidden": [["Linux", "Acme"]]}
    assert dependency["determines"] == ["software"]
    assert dependency["table"] == [["Game", "Other"], ["Office", "Acme"], ["Tool", "Other"]]
    assert "at least 2 columns" in reason(found, 'dpsynth constraint ("software")')


# SQL


def test_ddl(imported):
    found = imported(DDL)
    columns = {column.name: column for column in found.schema}
    assert list(columns.values()) == [
        Column(name="id", kind="id", nullable=False),
        Column(name="age", kind="integer", nullable=False, bounds=(0, 120)),
        Column(name="sex", kind="categorical", nullable=False, categories=("F", "M"), closed=True),
        Column(name="level", kind="categorical", categories=("green", "yellow", "red"), closed=True),
        Column(name="cost", kind="real", decimals=2, bounds=(0.0, 99999.99)),
        Column(name="admitted", kind="date", nullable=False),
        Column(name="discharged", kind="date", nullable=False),
        Column(name="seen", kind="datetime"),
        Column(name="room", kind="integer"),
        Column(name="meals", kind="real", decimals=2),
        Column(name="total", kind="real", decimals=2),
        Column(name="ward", kind="categorical"),
        Column(name="ward_name", kind="categorical"),
        Column(name="paid", kind="boolean"),
        Column(name="key", kind="real"),
        Column(name="tags", kind="text"),
        Column(name="shape", kind="text"),
        Column(name="colour", kind="categorical", categories=("red", "blue"), closed=True),
    ]
    assert texts(found) == ["discharged >= admitted", 'paid OR ("cost" = 0)', "total = (room + meals)"]


def test_ddl_that_is_left_out(imported):
    found = imported(DDL)
    assert "about the whole table" in reason(found, "UNIQUE (ward, seen)")
    assert "random is not allowed" in reason(found, "CHECK (random() < 2)")
    assert "not modelled" in reason(found, "CHECK (id > 0)")
    assert "no column 'nothing'" in reason(found, "CHECK (nothing > 0)")
    assert "GEOMETRY has no kind" in reason(found, 'the values of column "shape"')
    assert "TEXT [ ] has no kind" in reason(found, 'the values of column "tags"')
    assert "--lookup wards=FILE.csv" in reason(found, "FOREIGN KEY (ward) REFERENCES wards")
    assert len(found.left_out) == 7


def test_ddl_with_a_lookup_table(imported, tmp_path):
    (tmp_path / "wards.csv").write_text("code,ward_name,beds\nA01,Heart,12\nB02,Lung,8\n")
    found = imported(DDL, lookups={"Wards": str(tmp_path / "wards.csv")})
    assert found.schema["ward"].categories == ("A01", "B02")
    assert found.schema["ward"].closed
    assert found.schema.rules[-1].to_dict() == {
        "determines": ["ward"],
        "gives": ["ward_name"],
        "table": [["A01", "Heart"], ["B02", "Lung"]],
    }
    (tmp_path / "wards.csv").write_text("code,name\nA01,Heart\nB02,Lung\n")
    found = imported(DDL, lookups={"wards": str(tmp_path / "wards.csv")})
    assert found.schema["ward"].categories == ("A01", "B02")
    assert len(found.schema.rules) == 3
    with pytest.raises(SchemaError):
        imported(DDL, lookups={"beds": "beds.csv"})
    with pytest.raises(SchemaError):
        imported(DDL, lookups={"wards": str(tmp_path / "absent.csv")})
    imported({"age": 3})
    with pytest.raises(SchemaError):
        imported({"age": 3}, lookups={"wards": "wards.csv"})


def test_ddl_composite_keys_refer_to_combinations(imported, tmp_path):
    (tmp_path / "places.csv").write_text("country,city\n1,Rome\n2,Lima\n")
    script = (
        "CREATE TABLE places (country INT, city TEXT, PRIMARY KEY (country, city));"
        "CREATE TABLE trips (land INT, city TEXT, PRIMARY KEY (land, city));"
        "ALTER TABLE ONLY public.trips ADD CONSTRAINT f FOREIGN KEY (land, city) REFERENCES places;"
    )
    found = imported(script, lookups={"places": str(tmp_path / "places.csv")})
    assert found.schema["land"] == Column(
        name="land", kind="categorical", nullable=False, categories=(1, 2), closed=True
    )
    assert texts(found) == ["land, city: 2 allowed combinations"]
    assert "whole table" in reason(found, "PRIMARY KEY (land, city)")


def test_ddl_of_a_postgresql_dump(imported):
    """Lists become arrays, texts are cast, and keys come later."""
    script = """
    CREATE TYPE public.mood AS ENUM (
        'sad',
        'ok'
    );
    CREATE TABLE public.people (
        id integer DEFAULT nextval('public.people_id_seq'::regclass) NOT NULL,
        sex character varying(1) NOT NULL,
        size text COLLATE "C",
        born timestamp with time zone DEFAULT now(),
        now_feels public.mood DEFAULT 'ok'::public.mood,
        CHECK (((sex)::text = ANY ((ARRAY['F'::character varying, 'M'::character varying])::text[]))),
        CONSTRAINT size_check CHECK ((size <> 'x'::text))
    );
    ALTER TABLE public.people OWNER TO postgres;
    ALTER TABLE ONLY public.people ADD CONSTRAINT people_pkey PRIMARY KEY (id);
    """
    found = imported(script)
    assert found.schema.columns == (
        Column(name="id", kind="id", nullable=False),
        Column(name="sex", kind="categorical", nullable=False, categories=("F", "M"), closed=True),
        Column(name="size", kind="categorical"),
        Column(name="born", kind="datetime"),
        Column(name="now_feels", kind="categorical", categories=("sad", "ok"), closed=True),
    )
    assert texts(found) == ["size != 'x'"]
    assert found.left_out == ()


PEOPLE = "CREATE TABLE people (name text, age integer CHECK (age >= 0));\n"
LIMIT = "ALTER TABLE people ADD CONSTRAINT old CHECK (age < 130);\n"
ROWS = {
    "no rows": "",
    "COPY": "COPY public.people (name, age) FROM stdin;\nO'Hidden\t33\nHidden ( \"; \\.\t44\n\\.\n",
    "COPY of no rows": "COPY people FROM STDIN WITH (FORMAT text);\n\\.\n\n",
    "COPY twice": "COPY a FROM stdin;\nHidden's\n\\.\ncopy b FROM stdin;\n/* Hidden\n$$\n\\.\n",
    "COPY in DOS lines": "COPY a FROM stdin;\r\nHidden's\r\n\\.\r\n",
    "INSERT": "INSERT INTO people VALUES ('O''Hidden; (', 3), ('\nCOPY a FROM stdin;\n', 4);\n",
    "INSERT of MySQL": "INSERT INTO `people` VALUES ('O\\'Hidden; (',3),(\"Hidden\\\"\",4);\n",
    "INSERT of MySQL, one string": "INSERT INTO `people` VALUES ('Hidden\\', 3), (', 4);\n",
    "INSERT with a final backslash": "INSERT INTO people VALUES ('C:\\Hidden\\', 3);\n",
    "INSERT of PostgreSQL": "INSERT INTO people VALUES (E'O\\'Hidden', 3), ($$O'Hidden$$, 4);\n",
    "INSERT without semicolons": "INSERT people VALUES (N'O''Hidden', 3)\nINSERT people VALUES (N'Hidden (', 3)\n",
    "INSERT before GO": "INSERT people VALUES (N'O''Hidden', 3)\nGO\n  ",
    "INSERT with an open parenthesis": "INSERT INTO people VALUES (('Hidden', 3);\n",
    "a function": "CREATE FUNCTION f() AS $body$ it's Hidden; ( $body$ LANGUAGE sql;\n",
    "commands of psql": "\\restrict it's Hidden\n",
}


@pytest.mark.parametrize("rows", ROWS)
def test_rows_in_a_dump_hide_no_constraint(imported, rows):
    found = imported(PEOPLE + ROWS[rows] + LIMIT, format="sql")
    assert found.schema == imported(PEOPLE + LIMIT, format="sql").schema
    assert found.schema["age"].bounds == (0, 129)
    assert found.left_out == ()
    assert is_ddl(PEOPLE + ROWS[rows] + LIMIT)


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ("COPY people FROM stdin;\nO'Hidden\t33\n", "have no end"),
        ("INSERT INTO people VALUES ('Hidden, 3);\n", "have no end"),
        ("INSERT INTO people VALUES ('Hidden\\', ' ; ALTER TABLE people ADD CHECK (age > 5); -- ');\n", "two ways"),
    ],
)
def test_rows_in_a_dump_that_could_hide_a_constraint_are_refused(imported, rows, message):
    with pytest.raises(SchemaError, match=message) as error:
        imported(PEOPLE + rows + LIMIT, format="sql")
    assert "Hidden" not in str(error.value)
    assert "\n" not in str(error.value)


def test_strings_with_quotes_are_read_as_their_dialect_writes_them(imported):
    for written in (r"'it''s'", r"'it\'s'", r"E'it\'s'", "$$it's$$"):
        found = imported(f"CREATE TABLE t (a text CHECK (a IN ('x', {written})))", format="sql")
        assert found.schema["a"].categories == ("x", "it's"), written


def test_ddl_refusals(imported):
    assert imported("create temp table t (a int)").schema["a"].kind == "integer"
    for script, message in {
        "SELECT 1": "It creates no table",
        "CREATE TABLE t AS SELECT 1": "no list of columns",
        "CREATE TABLE t ()": "no columns",
        "CREATE TABLE t (a INT": "no list of columns",
        "CREATE TABLE (a INT)": "has no name",
        "CREATE TABLE t (a INT, a INT)": "Duplicate column names",
        "CREATE TABLE t (a INT); CREATE TABLE u (a INT)": "It describes 2 tables",
        "CREATE TABLE t (3 INT)": "column without a name",
    }.items():
        with pytest.raises(SchemaError, match=message) as error:
            imported(script, format="sql")
        assert "\n" not in str(error.value)


def test_contradictions_in_a_script_are_errors(imported):
    for script, message in {
        "a INT CHECK (a >= 9), CHECK (a <= 1)": "the lower limit 9 (CHECK (a >= 9)) is above the upper limit 1",
        "a INT DEFAULT -1 CHECK (a BETWEEN 0 AND 9)": "the default -1 is not among the values",
        "a CHAR(1) DEFAULT 'x' CHECK (a IN ('f', 'm'))": 'the default "x" is not among the values',
        "a INT CHECK (a IN (1, 5)), CHECK (a < 3)": "the category 5 is outside the limits",
    }.items():
        with pytest.raises(SchemaError) as error:
            imported(f"CREATE TABLE t ({script})")
        assert message in str(error.value)
    fine = imported("CREATE TABLE t (a INT DEFAULT 3 CHECK (a IN (1, 3)), CHECK (a < 9), b DATE DEFAULT now())")
    assert (fine.schema["a"].categories, fine.schema.rules, fine.left_out) == ((1, 3), (), ())


def test_one_of_several_tables_of_a_script(imported):
    script = "CREATE TABLE t (a INT); CREATE TABLE U (b INT);"
    assert imported(script, table="U").schema.names == ("b",)


# All formats

REALISTIC = {
    "sdv": sdv_with(SDV_CONSTRAINTS),
    "mostly": MOSTLY,
    "dpsynth": DPSYNTH,
    "sql": DDL,
}


@pytest.mark.parametrize("name", REALISTIC)
def test_each_format_is_detected_and_gives_a_schema_file(imported, tmp_path, name):
    """The comments say what is left out, and the file reads back as the same schema."""
    found = imported(REALISTIC[name])
    assert imported(REALISTIC[name], format=name) == found
    found.write(tmp_path / "schema.toml")
    written = (tmp_path / "schema.toml").read_text()
    assert Schema.read(tmp_path / "schema.toml") == found.schema
    assert all(f"\n# - {line}\n" in written for line in found.left_out)
    assert found.left_out


def test_the_command_prints_what_is_left_out(tmp_path, capsys):
    (tmp_path / "stays.sql").write_text(DDL)
    (tmp_path / "wards.csv").write_text("code,name\nA01,Heart\n")
    (tmp_path / "constraints.json").write_text(
        json.dumps([{"class_name": "Inequality", "parameters": {"low_column_name": "age", "high_column_name": "room"}}])
    )
    out = str(tmp_path / "stays.toml")
    lookup = f"wards={tmp_path / 'wards.csv'}"
    assert run(["schema", "import", str(tmp_path / "stays.sql"), "-o", out, "--lookup", lookup]) == 0
    printed = capsys.readouterr()
    assert printed.out == ""
    *lines, wrote = printed.err.splitlines()
    assert [line.removeprefix("Not carried over: ") for line in lines] == [
        line.removeprefix("# - ") for line in Path(out).read_text().splitlines() if line.startswith("# - ")
    ]
    assert len(lines) == 6
    assert wrote.startswith(f"Wrote {out}.")
    both = str(tmp_path / "both.toml")
    assert run(["schema", "import", str(tmp_path / "constraints.json"), "-o", both, "--schema", out]) == 0
    assert [rule.text for rule in Schema.read(both).rules][-1] == "room > age"
    assert run(["schema", "import", str(tmp_path / "stays.sql"), "-o", both, "--lookup", "wards"]) == 2
    assert "--lookup expects NAME=FILE.csv" in capsys.readouterr().err


def test_imported_rules_find_the_rows_that_break_them(imported):
    found = imported(DDL)
    rows = {"admitted": [date(2024, 1, 2), date(2024, 1, 2)], "discharged": [date(2024, 1, 3), date(2024, 1, 1)]}
    assert found.schema.rules[0].broken(pa.table(rows)).tolist() == [False, True]


def test_a_rule_that_contradicts_the_others_is_left_out(imported):
    script = "CREATE TABLE t (a INT CHECK (a BETWEEN 0 AND 9), b INT, CHECK (a > b), CHECK (lower(a) > 'x'))"
    found = imported(script)
    assert texts(found)[:1] == ["a > b"]
    assert len(texts(found)) + len(found.left_out) == 2


@pytest.mark.parametrize(
    ("checks", "column", "rules"),
    [
        ("a > 3 AND a < 9", {"kind": "integer", "bounds": (4, 8)}, []),
        ("a >= 0.5 AND 9.5 >= a", {"kind": "integer", "bounds": (1, 9)}, []),
        ("a >= 1 AND a >= 3 AND a <= 9 AND a <= 12", {"kind": "integer", "bounds": (3, 9)}, []),
        ("a >= 5", {"kind": "integer"}, ["a >= 5"]),
        ("a BETWEEN 5 AND 5", {"kind": "integer"}, ["a >= 5", "a <= 5"]),
        ("a IN (3, 1)", {"kind": "categorical", "categories": (3, 1), "closed": True}, []),
        ("a NOT IN (3, 1)", {"kind": "integer"}, ["a NOT IN (3, 1)"]),
    ],
)
def test_checks_of_one_column(imported, checks, column, rules):
    found = imported(f"CREATE TABLE t (a INT CHECK ({checks}))")
    assert found.schema["a"] == Column(name="a", **column)
    assert texts(found) == rules
    assert found.left_out == ()


@given(st.text(max_size=12).filter(lambda text: text and "\x00" not in text and text.encode("utf-8", "ignore")))
def test_names_and_texts_are_quoted(name):
    """Whatever the name and the text, SQL reads them as what they are."""
    from understudy.rules.sql import quote_name, sandbox

    try:
        name.encode()
    except UnicodeEncodeError:
        return
    with sandbox() as connection:
        query = f"SELECT {sql_name(name)} = {sql_literal(name)} FROM (SELECT {sql_literal(name)} AS {quote_name(name)})"
        assert connection.execute(query).fetchall() == [(True,)]


def test_an_imported_schema_is_fitted_and_its_rules_are_kept(imported):
    """From a script to synthetic rows: none of them breaks a rule, though a real row does."""
    import understudy as us

    script = (
        "CREATE TABLE stays (a INT NOT NULL CHECK (a BETWEEN 0 AND 20), b INT NOT NULL CHECK (b BETWEEN 0 AND 30),"
        " sex CHAR(1) NOT NULL CHECK (sex IN ('F', 'M')), CHECK (b >= a), CHECK (sex = 'F' OR a <> 3))"
    )
    schema = imported(script).schema
    assert len(schema.rules) == 2
    real = pa.table({"a": [i % 21 for i in range(200)], "b": [i % 29 for i in range(200)], "sex": ["F", "M"] * 100})
    assert any(rule.broken(real).any() for rule in schema.rules)
    release = us.fit(real, "independent", epsilon=5, schema=schema, seed=0)
    synthetic = release.sample(500, seed=1)
    assert not any(rule.broken(synthetic).any() for rule in schema.rules)


# Junk

JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=6)
    | st.sampled_from(["age", "sex", ">"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3),
    max_leaves=8,
)
KEYS = [
    *("columns", "tables", "constraints", "type", "checks", "sdtype"),
    *("class_name", "parameters", "config", "attributes", "attribute_names", "possible_combinations", "dtype"),
    *("functional_dependency", "column_names", "low_column_name", "high_column_name", "column", "name"),
    *("min_value", "max_value", "options", "nullable", "relation"),
]
WORDS = [
    *("Inequality", "OneHotEncoding", "ScalarRange", "FixedCombinations", "int64", "numerical", "age"),
]
ALIKE = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.sampled_from(WORDS) | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from([*KEYS, *WORDS]), inner, max_size=4),
    max_leaves=20,
)
TOKENS = [
    *("CREATE", "TABLE", "t", "(", ")", ",", ";", "a", "b", "INT", "CHAR(3)", "CHECK", "(a > 1)", "NOT", "NULL", "'x"),
    *("PRIMARY", "KEY", "REFERENCES", "FOREIGN", "AS", "ENUM", "('x')", "DEFAULT", "UNIQUE", '"', "`", "--", "IN", "."),
    *("CREATE TABLE t (", "a INT", "ALTER TABLE t ADD", "CREATE TYPE m AS ENUM", "GENERATED ALWAYS AS (b)", "[", "/*"),
]


@settings(max_examples=scaled(80))
@given(JSON | ALIKE, st.sampled_from([None, *FORMATS]))
def test_any_json_is_a_schema_or_refused(content, format):
    import_or_complain(json.dumps(content), format)


@settings(max_examples=scaled(12))
@given(st.sampled_from(sorted(REALISTIC)), st.data())
def test_a_damaged_file_is_a_schema_or_refused(name, data):
    """One value of a realistic file replaced by anything."""
    yaml = pytest.importorskip("yaml")
    content = REALISTIC[name]
    if name == "sql":
        assert isinstance(content, str)
        at = data.draw(st.integers(0, len(content)))
        import_or_complain(content[:at] + data.draw(st.sampled_from(TOKENS)) + content[at + 3 :], name)
        return
    tree = json.loads(json.dumps(yaml.safe_load(content) if isinstance(content, str) else content))
    node = tree
    while True:
        keys = list(node) if isinstance(node, dict) else list(range(len(node)))
        if not keys:
            break
        key = data.draw(st.sampled_from(keys))
        if not isinstance(node[key], dict | list) or data.draw(st.integers(0, 5)) == 0:
            node[key] = data.draw(JSON)
            break
        node = node[key]
    import_or_complain(json.dumps(tree), name)


@settings(max_examples=scaled(60))
@given(
    st.lists(st.sampled_from(TOKENS) | st.text(max_size=3), max_size=20).map(" ".join), st.sampled_from([None, "sql"])
)
def test_any_sql_is_a_schema_or_refused(content, format):
    import_or_complain(content, format)


@pytest.mark.parametrize(
    "content", ["[" * 100_000, '{"a":' * 100_000, "9" * 5000, '{"a": ' + "9" * 5000 + "}", "a: 2020-13-45"]
)
def test_deep_and_long_files(content):
    import_or_complain(content, None)


def test_rules_added_to_a_schema_with_a_lookup_file_can_be_written_elsewhere(tmp_path: Path) -> None:
    (tmp_path / "pairs.csv").write_text("a,b\nx,1\ny,2\n")
    columns = "\n".join(f'[columns.{name}]\nkind = "categorical"' for name in "ab")
    rule = '[[rules]]\ncombinations = ["a", "b"]\nallowed = "pairs.csv"\n'
    (tmp_path / "base.toml").write_text(
        f'{columns}\n[columns.n]\nkind = "integer"\n[columns.m]\nkind = "integer"\n{rule}'
    )
    constraint = {
        "constraint_class": "Inequality",
        "constraint_parameters": {"low_column_name": "n", "high_column_name": "m"},
    }
    (tmp_path / "sdv.json").write_text(json.dumps([constraint]))
    elsewhere = tmp_path / "new"
    elsewhere.mkdir()
    import_schema(tmp_path / "sdv.json", schema=Schema.read(tmp_path / "base.toml")).write(elsewhere / "schema.toml")
    written = Schema.read(elsewhere / "schema.toml")
    assert [type(each).__name__ for each in written.rules] == ["Combinations", "Keep"]
    assert written.rules == (*Schema.read(tmp_path / "base.toml").rules, written.rules[1])
