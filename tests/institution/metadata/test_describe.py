"""Descriptions of a release: what they state, what they require, and what they never contain."""

import dataclasses
import hashlib
import json
import re
from datetime import date
from pathlib import Path

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
import pytest
from hypothesis import given
from hypothesis import strategies as st

import understudy as us
from tests.builders import raises
from understudy.cli.main import run
from understudy.institution.metadata.about import About, Agent, Health
from understudy.institution.metadata.describe import FORMATS
from understudy.institution.metadata.registry import to_yaml
from understudy.tables import Label, attach_label

SCHEMA = """
[table]
name = "People of Exampleton"
responsible = "Statistics Office"
contact = "data@example.org"
rows = 60
unit = "person"
[columns.person]
kind = "id"
[columns.age]
kind = "integer"
bounds = [0, 120]
[columns."home town"]
kind = "categorical"
categories = ["Oslo", "Rome"]
closed = true
[columns.seen]
kind = "date"
bounds = [2020-01-01, 2024-12-31]
[columns.member]
kind = "boolean"
[columns.remark]
kind = "text"
"""
CANARY = "zebra-271828"
AGENT = Agent(
    name="Statistics Office",
    email="office@example.org",
    url="https://office.example.org",
    note="Publishes statistics.",
    type="https://example.org/publisher-type/statistics",
    trusted_data_holder=True,
)
ABOUT = About(
    title="Synthetic people",
    description="One row for each person.",
    license="https://creativecommons.org/licenses/by/4.0/",
    url="https://data.example.org/people",
    identifier="https://data.example.org/id/people",
    issued=date(2026, 1, 31),
    theme="SOCI",
    access_rights="NON_PUBLIC",
    spatial="http://publications.europa.eu/resource/authority/country/NOR",
    region="Norway",
    sector="Government",
    intended_use="Teaching.",
    publisher=AGENT,
    contact=Agent(email="data@example.org", url="https://data.example.org/contact"),
    health=Health(
        category="https://example.org/category/EHRS",
        theme="https://example.org/theme/CARE",
        purpose="Research.",
        access_body=Agent(name="Agency", email="agency@example.org", url="https://agency.example.org"),
    ),
)


def people() -> pa.Table:
    return pa.table(
        {
            "person": [f"{CANARY}-{i}" for i in range(60)],
            "age": [i % 100 for i in range(60)],
            "home town": ["Oslo", "Rome"] * 30,
            "seen": [date(2021, 1, 1 + i % 28) for i in range(60)],
            "member": [True, False, False] * 20,
            "remark": [CANARY] * 60,
        }
    )


@pytest.fixture(scope="module")
def release():
    schema = us.Schema.from_toml(SCHEMA)
    return us.fit(people(), "independent", epsilon=1, schema=schema)


@pytest.fixture(scope="module")
def folder(release, tmp_path_factory) -> Path:
    """A release folder beside a synthetic table with its label, and the real table."""
    base = tmp_path_factory.mktemp("release")
    release.save(base / "release")
    assert run(["sample", str(base / "release"), "-n", "20", "-o", str(base / "fake.csv"), "--quiet"]) == 0
    pa.csv.write_csv(people(), base / "people.csv")
    return base


@pytest.fixture(scope="module")
def described(folder):
    """Every format: JSON as a dict, YAML as text."""
    found = {}
    for name in FORMATS:
        content = us.describe_release(folder / "release", name, about=ABOUT, files=[folder / "fake.csv"])
        found[name] = content.decode() if name == "registry" else json.loads(content)
    return found


def test_every_format_states_the_guarantee_and_nothing_of_the_rows(described, release):
    assert release.statement.is_private
    for name, content in described.items():
        text = json.dumps(content)
        assert CANARY not in text
        assert "ynthetic" in text or name == "table-schema"
        if name != "registry":  # whose declared facts name it
            assert "remark" not in text
    guarantee = "differentially private with epsilon"
    assert guarantee in described["croissant"]["rai:personalSensitiveInformation"]
    assert "all rows of one person" in described["croissant"]["description"]
    assert guarantee in described["dcat"]["dct:description"]["@value"]
    assert f"epsilon: {release.statement.epsilon!r}" in described["registry"]


def test_files_are_stated_by_their_checksum(described, folder):
    data = (folder / "fake.csv").read_bytes()
    digest = hashlib.sha256(data).hexdigest()
    (file,) = described["croissant"]["distribution"]
    assert (file["sha256"], file["contentSize"]) == (digest, f"{len(data)} B")
    (distribution,) = described["dcat"]["dcat:distribution"]
    assert distribution["spdx:checksum"]["spdx:checksumValue"]["@value"] == digest
    assert distribution["dcat:byteSize"]["@value"] == str(len(data))


def test_columns_of_croissant_are_those_of_the_file(described, folder):
    (records,) = described["croissant"]["recordSet"]
    written = (folder / "fake.csv").read_text().splitlines()[0].split(",")
    assert [field["source"]["extract"]["column"] for field in records["field"]] == written
    types = {field["name"]: (field["dataType"], field["description"]) for field in records["field"]}
    assert types == {
        "person": ("sc:Integer", "surrogate identifier"),
        "age": ("sc:Integer", "integer from 0 to 120"),
        "home town": ("sc:Text", "one of Oslo, Rome"),
        "seen": ("sc:Date", "date from 2020-01-01 to 2024-12-31"),
        "member": ("sc:Boolean", "boolean"),
    }
    assert [field["name"] for field in described["table-schema"]["fields"]] == written


def test_a_file_that_may_be_the_real_table_is_refused(folder):
    """A checksum of the real table would identify it."""
    with pytest.raises(us.ConfigError, match=r"people.csv does not say that it is synthetic"):
        us.describe_release(folder / "release", "croissant", about=ABOUT, files=[folder / "people.csv"])
    with raises(us.ConfigError, setting="files"):
        us.describe_release(folder / "release", "croissant", about=ABOUT, files=[folder / "absent.csv"])


@pytest.mark.filterwarnings("ignore::understudy.UnderstudyWarning")
@pytest.mark.parametrize("format", ["dcat", "registry"])
def test_a_condition_of_the_guarantee_is_stated(format):
    release = us.fit(people(), "independent", epsilon=1)
    assert "drafted from the table" in us.describe_release(release, format, about=ABOUT).decode()


def test_a_data_package_vouches_for_one_file_of_one_release(folder, tmp_path):
    """A real table may have taken the place of a synthetic one, and other releases have other guarantees."""
    for name in ("fake.csv", "fake.csv.datapackage.json"):
        (tmp_path / name).write_bytes((folder / name).read_bytes())
    us.describe_release(folder / "release", "croissant", about=ABOUT, files=[tmp_path / "fake.csv"])
    pa.csv.write_csv(people(), tmp_path / "fake.csv")
    pa.parquet.write_table(attach_label(people(), Label(certificate="other", source="release")), tmp_path / "a.parquet")
    for name in ("fake.csv", "a.parquet"):
        with pytest.raises(us.ConfigError, match=r"does not say that it is synthetic and of this release"):
            us.describe_release(folder / "release", "croissant", about=ABOUT, files=[tmp_path / name])


@pytest.mark.parametrize(
    ("format", "absent"),
    [
        ("croissant", "license, url"),
        ("dcat", "description, url, license"),
        ("healthdcat", "description, url, license, identifier, contact.url, publisher.email, publisher.url"),
        ("registry", "description, intended_use, region"),
    ],
)
def test_what_a_format_requires_is_named_all_at_once(release, format, absent):
    """Title, publisher and contact come from the schema."""
    with pytest.raises(us.ConfigError) as error:
        us.describe_release(release, format)
    assert f"requires {absent}" in str(error.value)
    assert "--about" in str(error.value)


def test_data_that_are_not_public_have_more_mandatory_properties(release):
    bare = dataclasses.replace(ABOUT, spatial=None, health=dataclasses.replace(ABOUT.health, purpose=None))
    with pytest.raises(us.ConfigError, match=r"NON_PUBLIC requires spatial, health.purpose\."):
        us.describe_release(release, "healthdcat", about=bare)
    us.describe_release(release, "healthdcat", about=dataclasses.replace(bare, access_rights="PUBLIC"))


def test_a_release_without_a_guarantee_says_so(folder):
    schema = us.Schema.from_toml(SCHEMA)
    seeded = us.fit(people(), "independent", epsilon=1, schema=schema, seed=0)
    record = json.loads(us.describe_release(seeded, "dcat", about=ABOUT))
    assert "no privacy guarantee" in record["dct:description"]["@value"]
    assert "differentially private" not in json.dumps(record)
    with raises(us.ConfigError, setting="guarantee"):
        us.describe_release(seeded, "registry", about=ABOUT)


def test_the_registry_entry_follows_the_published_schema(described):
    """The required keys and the enumerations of its schema, of July 2026."""
    yaml = pytest.importorskip("yaml")
    entry = yaml.safe_load(described["registry"])
    assert set(entry) == {"url_slug", "status", "tier", "deployment"}
    basic, loss = entry["deployment"]["basic"], entry["deployment"]["privacy_loss"]
    required = {"name", "data_curators", "description", "intended_use", "data_product_type", "data_product_region"}
    assert required | {"publication_date"} <= set(basic)
    assert (entry["status"], entry["tier"], basic["data_product_type"]) == ("Draft", 3, "Synthetic data")
    assert basic["publication_date"] == "2026-01-31"
    assert loss["privacy_unit"] == "person-level"
    assert all(isinstance(value, float) for value in loss["privacy_parameters"].values())
    assert entry["deployment"]["dp_variant"]["variant_name"] == "Approximate DP"
    assert entry["deployment"]["deployment_model"]["model_name"] == "Central"
    assert re.fullmatch(r"[a-z0-9-]+", entry["url_slug"])


@given(st.text(max_size=30) | st.text("a \n\t:#-|\x85\u2028\U0001f600", max_size=12))
def test_yaml_reads_every_text_back(text):
    yaml = pytest.importorskip("yaml")
    try:
        text.encode()
    except UnicodeEncodeError:
        return
    assert yaml.safe_load(to_yaml({"a": {"b": text, "c": [text]}})) == {"a": {"b": text, "c": [text]}}


def test_the_command_writes_a_file_or_one_line(folder, capsys):
    out = folder / "record.json"
    about = folder / "about.toml"
    about.write_text('description = "d"\nlicense = "https://x.org/l"\nurl = "https://x.org/d"\n')
    arguments = ["metadata", str(folder / "release"), "--format", "dcat", "--about", str(about), "-o", str(out)]
    assert run(arguments) == 0
    assert json.loads(out.read_text())["dct:publisher"]["foaf:name"] == "Statistics Office"
    assert run(arguments) == 2
    assert "exists" in capsys.readouterr().err
    for damaged, message in {
        "licence = 'x'": "unknown key 'licence'. Did you mean 'license'?",
        "license = 'x'": "license must be an address",
        "license = ''": "license must be a string",
        "issued = 'today'": "issued must be a date",
        "publisher = 'me'": "publisher must be a section",
        "keywords = 'a'": "keywords must be a list of strings",
        "access_rights = 'SECRET'": "access_rights must be one of PUBLIC",
        "theme = 'HEALTH'\ndescription = 'd'\nlicense = 'https://x.org'\nurl = 'https://x.org'": "theme must be one of",
        "[contact]\nemail = 'me'": "contact.email must be an e-mail address",
        "a = ": "not valid TOML",
    }.items():
        about.write_text(damaged)
        assert run([*arguments[:-1], str(folder / "other.json")]) == 2
        printed = capsys.readouterr().err
        assert message in printed
        assert printed.count("\n") == 1
        assert not (folder / "other.json").exists()
    assert run(["metadata", str(folder / "release"), "--format", "dcta", "-o", str(out)]) == 2
    assert "Did you mean 'dcat'?" in capsys.readouterr().err
