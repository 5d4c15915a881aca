"""Good files of every kind that a command reads, each with commands that read it.

The rows contain a canary: a value that no message and no output other than a release may show.
"""

import dataclasses
import gzip
import json
import sqlite3
from pathlib import Path

import duckdb
import openpyxl
import pandas as pd
import pyarrow as pa
import pyarrow.feather
import pyarrow.parquet
import pyreadstat

import understudy as us
from tests.cli.test_bad_input import SECRET as CANARY
from understudy.institution.book import BudgetBook

SCHEMA = """[table]
rows = 40
name = "people"
[columns.name]
kind = "categorical"
categories = ["ann", "bob"]
[columns.age]
kind = "integer"
bounds = [0, 100]
[columns.dose]
kind = "real"
bounds = [0.0, 1.0]
[columns.day]
kind = "date"
bounds = [2020-01-01, 2020-12-31]
[columns.note]
kind = "text"
[[rules]]
keep = "age >= 18 OR dose = 0"
"""

FRAME = pd.DataFrame(
    {
        "name": [CANARY if i % 7 == 3 else ("ann", "bob")[i % 2] for i in range(40)],
        "age": [20 + i for i in range(40)],
        "dose": [i / 40 for i in range(40)],
        "day": pd.to_datetime([f"2020-01-{i % 28 + 1:02}" for i in range(40)]),
        "note": [f"about {CANARY}" if i == 5 else "" for i in range(40)],
    }
)

CODE_BOOKS = {
    "frictionless.json": json.dumps(
        {
            "fields": [
                {"name": "age", "type": "integer", "constraints": {"minimum": 0, "maximum": 120, "required": True}},
                {"name": "sex", "type": "string", "constraints": {"enum": ["f", "m"]}},
                {"name": "seen", "type": "date", "format": "%d.%m.%Y"},
            ],
            "primaryKey": ["age"],
            "missingValues": ["", "-9"],
        }
    ),
    "redcap.csv": (
        '"Variable / Field Name","Form Name","Section Header","Field Type","Field Label",'
        '"Choices, Calculations, OR Slider Labels","Field Note","Text Validation Type OR Show Slider Number",'
        '"Text Validation Min","Text Validation Max",Identifier?,"Branching Logic (Show field only if...)",'
        '"Required Field?","Custom Alignment","Question Number (surveys only)","Matrix Group Name","Matrix Ranking?",'
        '"Field Annotation"\n'
        "record_id,base,,text,Id,,,,,,,,,,,,,\n"
        "age,base,,text,Age,,,integer,0,120,,,y,,,,,\n"
        'sex,base,,radio,Sex,"1, female | 2, male",,,,,,,y,,,,,\n'
        "signs,base,,checkbox,Signs,\"1, fever | 2, cough\",,,,,,[sex] = '1',,,,,,\n"
    ),
    "ddi.xml": (
        '<?xml version="1.0"?><codeBook xmlns="ddi:codebook:2_5"><dataDscr>'
        '<var name="age"><labl>Age</labl><valrng><range min="0" max="120"/></valrng><varFormat type="numeric"/></var>'
        '<var name="sex"><catgry><catValu>1</catValu><labl>f</labl></catgry><catgry missing="Y"><catValu>9</catValu>'
        '</catgry><varFormat type="numeric"/></var></dataDscr></codeBook>'
    ),
    "table.sql": (
        "CREATE TABLE stays (age INT NOT NULL CHECK (age BETWEEN 0 AND 120), sex VARCHAR(1) CHECK (sex IN ('f', 'm')),"
        "\n seen DATE, left_on DATE, cost NUMERIC(8, 2), UNIQUE (age), CHECK (left_on >= seen));\n"
    ),
    "sdv.json": json.dumps(
        {
            "tables": {
                "guests": {
                    "columns": {
                        "email": {"sdtype": "email", "pii": True},
                        "room": {"sdtype": "categorical"},
                        "nights": {"sdtype": "numerical", "computer_representation": "Int64"},
                        "day": {"sdtype": "datetime", "datetime_format": "%d %b %Y"},
                    },
                    "primary_key": "email",
                }
            },
            "relationships": [],
            "METADATA_SPEC_VERSION": "V1",
        }
    ),
    "smartnoise.yaml": (
        '"":\n  PUMS:\n    people:\n      max_ids: 3\n      rows: 1000\n      age:\n        type: int\n'
        "        lower: 0\n        upper: 100\n      sex:\n        type: string\n      pid:\n        type: int\n"
        "        private_id: true\n"
    ),
    "dpsynth.yaml": (
        "age:\n  dtype: int\n  max_value: 50.0\n  min_value: 10.0\n  clip_to_range: true\n"
        "sex:\n  out_of_domain_index: 1\n  possible_values:\n  - M\n  - F\n"
    ),
    "mbi.json": json.dumps({"age": 85, "sex": 2}),
}

SUITE = """title = "Small"
description = "A small suite."
epsilons = [1.0, 3]
seeds = 1
metrics = ["f1", "tvd2"]
classifiers = ["logistic"]
max_rows = 100
tables = ["breast"]
[[methods]]
method = "dpgan(steps=20)"
name = "dpgan"
wrappers = ["quail"]
[limits]
minutes = 5
memory_gb = 3
"""

POLICY = """largest_epsilon = 1
methods = ["independent", "aim"]
second_person = false
require_disclosure = true
"""


ABOUT = """title = "Synthetic people"
description = "One row for each person."
license = "https://creativecommons.org/licenses/by/4.0/"
url = "https://data.example.org/people"
theme = "SOCI"
[publisher]
name = "Statistics Office"
[contact]
email = "data@example.org"
"""


@dataclasses.dataclass(frozen=True)
class Kind:
    """A file or a folder to damage, and commands that read it. Exit code 1 is that of findings."""

    name: str
    commands: tuple[tuple[str, ...], ...]
    findings: bool = False


FIT = ("fit", "--schema", "people.toml", "--epsilon", "1", "--method", "independent", "-o", "new", "-q")


def _table(name: str) -> Kind:
    """Tables are mostly drafted: that reads all of them, and is quicker than a run."""
    source = f"{name}::people" if name.endswith((".sqlite", ".duckdb")) else name
    return Kind(name, (*[("schema", "draft", source, "-o", "new.toml")] * 5, (*FIT, source)))


TABLES = [
    *("people.csv", "people.tsv", "people.csv.gz", "people.parquet", "people.arrow", "people.feather"),
    *("people.jsonl", "people.sqlite", "people.duckdb", "people.xlsx", "people.dta", "people.sav"),
]

KINDS = [
    *map(_table, TABLES),
    Kind(
        "people.toml",
        (
            *[("plan", "people.toml", "--epsilon", "1", "--method", "mst")] * 3,
            ("mock", "people.toml", "--fill", "-n", "20", "-o", "new.csv", "-q"),
        ),
    ),
    *(Kind(name, (("schema", "import", name, "-o", "new.toml", "-q"),)) for name in CODE_BOOKS),
    Kind("suite.toml", (("benchmark", "status", "suite.toml"),)),
    Kind("people.book", (("book", "show", "people.book"), ("book", "verify", "people.book"))),
    Kind("policy.toml", (("book", "policy", "people.book", "--set", "policy.toml", "-q"),)),
    Kind(
        "release",
        (
            ("sample", "release", "-n", "20", "-o", "new.csv", "-q"),
            ("certificate", "release"),
            ("bundle", "release", "-o", "new.zip", "-q"),
            ("metadata", "release", "--format", "table-schema", "-o", "new.json", "-q"),
        ),
    ),
    Kind("about.toml", (("metadata", "release", "--format", "dcat", "--about", "about.toml", "-o", "new.json", "-q"),)),
    Kind("bundle.zip", (("verify", "bundle.zip"),), findings=True),
    Kind(
        "scores.json",
        (
            ("report", "scores.json", "-o", "new.html", "-q"),
            ("bundle", "release", "-o", "new.in-house.zip", "--in-house", "--scores", "scores.json", "-q"),
        ),
    ),
]


def write_good_files(folder: Path) -> None:
    """Writes every file that a kind names, and runs once what makes releases, bundles and scores."""
    from understudy.cli import run

    (folder / "people.toml").write_text(SCHEMA)
    for name, text in {**CODE_BOOKS, "suite.toml": SUITE, "policy.toml": POLICY, "about.toml": ABOUT}.items():
        (folder / name).write_text(text)
    _write_tables(folder)
    BudgetBook.create(folder / "people.book", epsilon=3, delta=1e-5, dataset="people")
    release = us.fit(FRAME.drop(columns="note"), "independent", epsilon=1.0, schema=_without_note())
    release.save(folder / "release")
    bundle = ["bundle", str(folder / "release"), "-o", str(folder / "bundle.zip"), "-q"]
    assert run(bundle) == 0
    fake = release.sample(40, seed=1)
    scores = us.evaluate(FRAME.drop(columns="note"), fake, schema=_without_note(), effort="quick")
    (folder / "scores.json").write_text(json.dumps(scores.to_json()))


def _without_note() -> us.Schema:
    return us.Schema.from_toml(SCHEMA.replace('[columns.note]\nkind = "text"\n', ""))


def _write_tables(folder: Path) -> None:
    table = pa.Table.from_pandas(FRAME, preserve_index=False)
    text = FRAME.to_csv(index=False)
    (folder / "people.csv").write_text(text)
    (folder / "people.tsv").write_text(FRAME.to_csv(index=False, sep="\t"))
    (folder / "people.csv.gz").write_bytes(gzip.compress(text.encode(), mtime=0))
    (folder / "people.jsonl").write_text(FRAME.to_json(orient="records", lines=True, date_format="iso"))
    pa.parquet.write_table(table, folder / "people.parquet")
    pa.feather.write_feather(table, folder / "people.feather")
    with pa.ipc.new_file(folder / "people.arrow", table.schema) as writer:
        writer.write_table(table)
    with sqlite3.connect(folder / "people.sqlite") as connection:
        FRAME.assign(day=FRAME["day"].astype(str)).to_sql("people", connection, index=False)
    connection.close()
    with duckdb.connect(str(folder / "people.duckdb")) as duck:
        duck.register("frame", FRAME)
        duck.execute("CREATE TABLE people AS SELECT * FROM frame")
    book = openpyxl.Workbook()
    sheet = book.active
    assert sheet is not None
    sheet.append(list(FRAME))
    for row in FRAME.itertuples(index=False):
        sheet.append([value.to_pydatetime() if isinstance(value, pd.Timestamp) else value for value in row])
    book.save(folder / "people.xlsx")
    plain = FRAME.assign(day=FRAME["day"].dt.date)
    pyreadstat.write_dta(plain, str(folder / "people.dta"))
    pyreadstat.write_sav(plain, str(folder / "people.sav"))
