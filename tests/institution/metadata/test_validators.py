"""Descriptions checked by the validators of their own formats, where these are installed.

None of them is a dependency: `pip install mlcroissant frictionless pyshacl`. The shapes of DCAT-AP (SEMICeu/DCAT-AP,
releases/3.0.1/html/shacl) and of HealthDCAT-AP are files: name a folder with them in UNDERSTUDY_DCAT_SHAPES. The schema
of the registry (opendp/deployments-registry-data, schemas/deployments-schema.yaml) is looked for in the same folder.
"""

import json
import os
from pathlib import Path

import pytest

import understudy as us
from tests.institution.metadata.test_describe import ABOUT, folder, release  # noqa: F401 - fixtures

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]


@pytest.fixture
def write(folder, tmp_path):  # noqa: F811
    """Writes a description beside a copy of the file that it describes."""

    def write_format(name: str) -> Path:
        data = tmp_path / "fake.csv"
        data.write_bytes((folder / "fake.csv").read_bytes())
        (tmp_path / "fake.csv.datapackage.json").write_bytes((folder / "fake.csv.datapackage.json").read_bytes())
        path = tmp_path / f"{name}.json"
        path.write_bytes(us.describe_release(folder / "release", name, about=ABOUT, files=[data]))
        return path

    return write_format


def shapes(*names: str) -> list[Path]:
    given = os.environ.get("UNDERSTUDY_DCAT_SHAPES")
    if given is None:
        pytest.skip("name the folder with the shapes in UNDERSTUDY_DCAT_SHAPES")
    found = [Path(given) / name for name in names]
    if absent := [path.name for path in found if not path.exists()]:
        pytest.skip(f"UNDERSTUDY_DCAT_SHAPES has no {', '.join(absent)}")
    return found


def test_croissant(write):
    """It is valid without warnings, and its rows load."""
    mlcroissant = pytest.importorskip("mlcroissant")
    dataset = mlcroissant.Dataset(str(write("croissant")))
    issues = dataset.metadata.ctx.issues
    assert (set(issues.errors), set(issues.warnings)) == (set(), set())
    rows = list(dataset.records("rows"))
    assert len(rows) == 20
    assert {row["rows/home%20town"] for row in rows} <= {b"Oslo", b"Rome", None}


def test_table_schema(write):
    frictionless = pytest.importorskip("frictionless")
    path = write("table-schema")
    schema = frictionless.Schema.from_descriptor(json.loads(path.read_text()))
    resource = frictionless.Resource(path="fake.csv", basepath=str(path.parent), schema=schema)
    report = resource.validate()
    assert report.valid, report.flatten(["message"])


@pytest.mark.parametrize(
    ("name", "files"),
    [
        ("dcat", ("shapes.ttl", "range.ttl")),
        ("healthdcat", ("shapes.ttl", "range.ttl", "hdap-validator-sensitivity-shape.ttl")),
    ],
)
def test_dcat(write, name, files):
    pyshacl, rdflib = pytest.importorskip("pyshacl"), pytest.importorskip("rdflib")
    graph = rdflib.Graph().parse(write(name), format="json-ld")
    for file in shapes(*files):
        conforms, _, text = pyshacl.validate(graph, shacl_graph=rdflib.Graph().parse(file), advanced=True)
        assert conforms, text


def test_registry(write):
    yaml, jsonschema = pytest.importorskip("yaml"), pytest.importorskip("jsonschema")
    (file,) = shapes("deployments-schema.yaml")
    checker = jsonschema.Draft7Validator(
        yaml.safe_load(file.read_text()), format_checker=jsonschema.Draft7Validator.FORMAT_CHECKER
    )
    assert list(checker.iter_errors(yaml.safe_load(write("registry").read_text()))) == []
