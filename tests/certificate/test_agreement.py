"""Every fact that a certificate, or the files beside it, state twice: forged on one side, it is refused in one line."""

import contextlib
import copy
import dataclasses
import hashlib
import itertools
import json
import math
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import understudy as us
from tests.certificate.json_schema import json_schema
from understudy import certificate
from understudy.certificate import page as certificate_page
from understudy.certificate.agreement import MAX_MARGINALS, MAX_QUERIES, Contradiction, excess
from understudy.errors import ReleaseError, UnderstudyError
from understudy.institution.book.certificate_checks import _is_covered
from understudy.privacy.accounting.events import EVENTS, MAX_COUNT, SubsampledGaussian
from understudy.privacy.accounting.ledger import spent_by
from understudy.privacy.accounting.release_costs import Cost
from understudy.run.atomic import json_bytes
from understudy.run.composition import earlier_releases
from understudy.run.failure import read_record

SCHEMA = """
[table]
rows = 240
name = "visits"
responsible = "Dr A. Weber"
contact = "weber@example.org"
unit = "who"
max_rows_per_unit = 2
[columns.who]
kind = "id"
[columns.ward]
kind = "categorical"
categories = ["a", "b"]
[columns.member]
kind = "boolean"
[columns.city]
kind = "categorical"
"""
TABLE = pa.table(
    {
        "who": [row // 2 for row in range(240)],
        "ward": ["a", "b"] * 120,
        "member": [True, False, False] * 80,
        "city": ["x", "y"] * 120,
    }
)
Edit = Callable[[dict[str, Any]], None]


@pytest.fixture(scope="module")
def release(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("agreement") / "visits.release"
    us.fit(TABLE, "mst", epsilon=2, schema=us.Schema.from_toml(SCHEMA)).save(folder)
    return folder


@pytest.fixture(scope="module")
def certified(release: Path) -> dict[str, Any]:
    return json.loads((release / "certificate.json").read_bytes())


def put(*path: str | int, to: object) -> Edit:
    def edit(content: dict[str, Any]) -> None:
        place: Any = content
        for key in path[:-1]:
            place = place[key]
        assert place[path[-1]] != to, "the edit changes nothing"
        place[path[-1]] = to

    return edit


def scale(*path: str | int, by: float) -> Edit:
    def edit(content: dict[str, Any]) -> None:
        place: Any = content
        for key in path[:-1]:
            place = place[key]
        place[path[-1]] *= by

    return edit


def without_units(content: dict[str, Any]) -> None:
    content["guarantee"]["unit"]["column"] = None


def loud(content: dict[str, Any]) -> None:
    """A warning that belongs to a weak guarantee, and is left out."""
    content["guarantee"]["epsilon_target"] = 50.0


def spend_more(content: dict[str, Any]) -> None:
    """One more query than the figures are for."""
    content["queries"].append(copy.deepcopy(content["queries"][0]))


CERTIFICATE: dict[str, Edit] = {
    "format": put("format", to="understudy-plan"),
    "private": put("private", to=False),
    "seeded": put("seeded", to=True),
    "released": put("released", to=False),
    "conditions": put("conditions", to=["none"]),
    "epsilon": scale("guarantee", "epsilon", by=0.5),
    "epsilon infinite": put("guarantee", "epsilon", to=None),
    "delta": scale("guarantee", "delta", by=10),
    "strength": put("guarantee", "strength", to="strong"),
    "target": put("guarantee", "epsilon_target", to=0.5),
    "target infinite": put("guarantee", "epsilon_target", to=None),
    "warnings": loud,
    "adjacency": put("guarantee", "adjacency", to="add or remove one unit"),
    "rows per unit": put("guarantee", "unit", "max_rows", to=50),
    "fewer rows per unit": put("guarantee", "unit", "max_rows", to=1),
    "no privacy unit": without_units,
    "unit of a graph too": put("guarantee", "unit", "graph", to="edge"),
    "accountant": put("guarantee", "accountant", to="moments"),
    "epsilon_pld": put("guarantee", "epsilon_pld", to=0.1),
    "epsilon_rdp": scale("guarantee", "epsilon_rdp", by=0.9),
    "replace_one epsilon": scale("guarantee", "replace_one", "epsilon", by=0.5),
    "replace_one delta": scale("guarantee", "replace_one", "delta", by=0.5),
    "rows": put("public", "rows", to=None),
    "kept in": put("public", "rows_kept_in", to="scratch"),
    "drafted": put("public", "kinds_drafted", to=True),
    "types kept": put("public", "storage_types_kept", to=True),
    "public table": put("public", "table_rows", to=99),
    "selections only": lambda content: content["public"].update(selections_only=True),
    "noise of a query": scale("queries", -1, "event", "stddev", by=2),
    "count of a query": lambda content: content["queries"][-1]["event"].update(count=1),
    "rows of a query": put("queries", -1, "event", "sensitivity", to=1),
    "tail of a query": put("queries", -1, "tail_delta", to=1e-3),
    "delta of a query": put("queries", 0, "delta", to=-1e-5),
    "one query more": spend_more,
    "one query less": lambda content: content["queries"].pop(),
    "query of a marginal": put("measured_marginals", 0, "query", to="another"),
    "partition of a marginal": put("measured_marginals", 0, "partition", to="held-out rows"),
    "noise of a marginal": scale("measured_marginals", 0, "stddev", by=0.5),
    "one marginal more": lambda content: content["measured_marginals"].append(content["measured_marginals"][0]),
    "audit": put("audit", to=None),
    "not covered": put("not_covered", to=["nothing"]),
}
"""An edit of certificate.json for each fact that is in it twice."""


@pytest.mark.parametrize("fact", CERTIFICATE)
def test_a_certificate_that_contradicts_itself_is_refused(certified: dict[str, Any], fact: str) -> None:
    certificate.from_json(certified)
    forged = copy.deepcopy(certified)
    CERTIFICATE[fact](forged)
    with pytest.raises((Contradiction, ValueError)) as caught:
        certificate.from_json(forged)
    assert len(str(caught.value)) < 300
    assert str(caught.value).isprintable()


ONCE = {
    *("date", "method", "estimated", "accuracy", "checksums", "understudy_version", "book"),  # beside it, or nowhere
    "warnings",  # follow from the target, which is forged above
    *("guarantee.meaning", "queries.standalone_epsilon"),  # `verify` computes them again
    *("public.name", "public.responsible", "public.contact", "public.declared"),  # in the schema
    *("queries.key", "queries.what", "queries.path", "queries.columns", "queries.partition"),
    *("measured_marginals.columns", "measured_marginals.cells", "format_version"),
}
"""Fields that state what no other field of certificate.json does. Each of these in a release is compared below."""


def test_every_field_is_compared_or_stated_once(certified: dict[str, Any]) -> None:
    """A new field of the certificate must be in one of the tables."""
    tried = set()
    for fact, edit in CERTIFICATE.items():
        forged = copy.deepcopy(certified)
        edit(forged)
        tried |= {path for path in paths_of(json_schema()) if at(forged, path) != at(certified, path)}
        assert forged != certified, fact
    missing = {path for path in paths_of(json_schema()) if path not in tried and path not in ONCE}
    assert not {path for path in missing if at(certified, path) is not None}, sorted(missing)


def paths_of(schema: dict[str, Any]) -> list[str]:
    """The fields of a certificate, two levels deep."""
    found = []
    for name, field in schema["properties"].items():
        reference = field.get("$ref") or field.get("items", {}).get("$ref")
        inner = {} if reference is None else schema["$defs"][reference.rpartition("/")[2]].get("properties", {})
        found += [f"{name}.{each}" for each in inner] if inner else [name]
    return found


def at(content: Any, path: str) -> Any:
    for key in path.split("."):
        if isinstance(content, list):
            content = [each.get(key) for each in content]
        else:
            content = None if content is None else content.get(key)
    return content


# ------------------------------------------------------------------------------------------------- the files beside it


def forge_release(source: Path, folder: Path, edit: Edit, *, of: str) -> None:
    """Another release, with every checksum right: `of` certificate.json, or of release.json."""
    shutil.copytree(source, folder)
    contents = {name: json.loads((source / name).read_bytes()) for name in ("certificate.json", "release.json")}
    edit(contents[of])
    certified, released = contents["certificate.json"], contents["release.json"]
    (folder / "certificate.json").write_bytes(json_bytes(certified))
    released["sha256"]["certificate.json"] = hashlib.sha256(json_bytes(certified)).hexdigest()
    above = {key: value for key, value in released.items() if key != "sha256_above"}
    above["sha256_above"] = hashlib.sha256(json_bytes(above)).hexdigest()
    (folder / "release.json").write_bytes(json_bytes(above))


BESIDE: dict[str, tuple[str, Edit]] = {
    "private": ("release.json", put("private", to=False)),
    "method": ("release.json", put("method", to="independent")),
    "version": ("release.json", put("understudy_version", to="9.9")),
    "rows of the codec": ("release.json", put("codec", "num_rows", to=999)),
    "rows": ("release.json", put("codec", "schema", "rows", to=241)),
    "rows per unit": ("release.json", put("codec", "schema", "max_rows_per_unit", to=50)),
    "name": ("release.json", put("codec", "schema", "name", to="other")),
    "responsible": ("release.json", put("codec", "schema", "responsible", to="other")),
    "categories": ("release.json", put("codec", "schema", "columns", 1, "categories", to=["a", "b", "c"])),
    "the method's name": ("certificate.json", put("method", to="independent")),
    "checksum of the model": ("certificate.json", put("checksums", "model.safetensors", to="0" * 64)),
    "declared": ("certificate.json", put("public", "declared", to=["nothing"])),
    "contact": ("certificate.json", put("public", "contact", to=None)),
    "estimated": ("certificate.json", put("estimated", to=[])),
    "unit": ("certificate.json", put("guarantee", "unit", "column", to="ward")),
}


@pytest.mark.parametrize("fact", BESIDE)
def test_a_release_that_contradicts_its_certificate_is_refused(release: Path, tmp_path: Path, fact: str) -> None:
    us.Release.load(release)
    name, edit = BESIDE[fact]
    forge_release(release, tmp_path / "forged.release", edit, of=name)
    with pytest.raises(ReleaseError, match=r"contradicts itself|is not a complete release") as caught:
        us.Release.load(tmp_path / "forged.release")
    assert "\n" not in str(caught.value)


def test_more_rows_of_a_unit_than_the_queries_cover(release: Path, tmp_path: Path) -> None:
    """Consistent in every sentence and checksum: only the cost of the queries says otherwise."""
    made = us.Release.load(release)
    forged = dataclasses.replace(made.statement, max_rows_per_unit=50)
    shutil.copytree(release, tmp_path / "forged.release")
    for name, data in certificate_page.to_files(forged, made.checksums).items():
        (tmp_path / "forged.release" / name).write_bytes(data)
    forge_release(tmp_path / "forged.release", tmp_path / "sealed.release", lambda content: None, of="release.json")
    released = json.loads((tmp_path / "sealed.release" / "release.json").read_bytes())
    for name in certificate_page.CERTIFICATE_FILES:
        data = (tmp_path / "sealed.release" / name).read_bytes()
        released["sha256"][name] = hashlib.sha256(data).hexdigest()
    above = {key: value for key, value in released.items() if key != "sha256_above"}
    above["sha256_above"] = hashlib.sha256(json_bytes(above)).hexdigest()
    (tmp_path / "sealed.release" / "release.json").write_bytes(json_bytes(above))
    with pytest.raises(Contradiction, match=r"states 50 row\(s\) of each unit, but the cost of .* is for 2 row\(s\)"):
        us.Release.load(tmp_path / "sealed.release")


def test_a_graph_release_that_contradicts_its_certificate_is_refused(tmp_path: Path) -> None:
    ring = pa.table({"source": range(50), "target": [(node + 1) % 50 for node in range(50)]})
    us.fit_graph(ring, {"nodes": {"count": 50}}, epsilon=1).save(tmp_path / "ring.release")
    us.GraphRelease.load(tmp_path / "ring.release")
    edits: list[tuple[str, Edit]] = [
        ("certificate.json", put("public", "declared", to=["nothing"])),
        ("certificate.json", put("guarantee", "unit", "max_rows", to=3)),
        ("certificate.json", put("checksums", "model.safetensors", to="0" * 64)),
        ("release.json", put("private", to=False)),
    ]
    for number, (name, edit) in enumerate(edits):
        forge_release(tmp_path / "ring.release", tmp_path / f"{number}.release", edit, of=name)
        with pytest.raises(ReleaseError, match=r"contradicts itself|row"):
            us.GraphRelease.load(tmp_path / f"{number}.release")


# -------------------------------------------------------------------------------------------------------------- limits


def with_event(certified: dict[str, Any], event: dict[str, object]) -> dict[str, Any]:
    content = copy.deepcopy(certified)
    content["queries"] = [{**content["queries"][0], "event": event}]
    return content


EXTREMES = (5e-324, 1e-200, 1e-30, 1e-6, 1.0, 1e30, 1e308, 10**400, 1e300)
"""For each number of an event: out of range, at its ends, of another type, and with too many digits to print."""


def extremes(kind: str) -> Iterator[dict[str, Any]]:
    """Events of which one field is extreme."""
    fields = [field.name for field in dataclasses.fields(EVENTS[kind]) if field.name != "floating"]
    for name, value in itertools.product(fields, (*EXTREMES, True, "1", None, [1], 10**7)):
        usual = {each: 1 if each in COUNTS else 0.5 for each in fields}
        yield {"kind": kind, **usual, **({"floating": False} if kind == "Gaussian" else {}), name: value}


COUNTS = {"count", "sensitivity", "steps", "rounds"}


@pytest.mark.parametrize("kind", EVENTS)
def test_no_reader_fails_on_an_extreme_event(
    release: Path, certified: dict[str, Any], tmp_path: Path, kind: str
) -> None:
    """Readers refuse the certificate or pass it over, without computing its cost first; `verify` has its own test."""
    began = time.process_time()
    book = us.BudgetBook.create(tmp_path / "visits.book", epsilon=3, delta=1e-5)
    folder = tmp_path / "forged.release"
    shutil.copytree(release, folder)
    for event in extremes(kind):
        forged = with_event(certified, event)
        seal(folder, forged)
        with pytest.raises(UnderstudyError) as caught:
            us.Release.load(folder)
        assert len(str(caught.value)) < 300
        assert "\n" not in str(caught.value)
        with contextlib.suppress(UnderstudyError):
            assert read_record(folder) is None
        assert not _is_covered(book, forged, Cost(10**40, 10**40))
        earlier = earlier_releases(folder, "visits")
        assert len(earlier) <= 1
        if earlier:
            assert earlier[0].epsilon >= certified["guarantee"]["epsilon"]
            again = spent_by(earlier[0].queries, us.Guarantee(2.0, earlier[0].delta))
            assert again.epsilon >= 0
    assert time.process_time() - began < 300


def seal(folder: Path, certified: dict[str, Any]) -> None:
    """Replaces the certificate of a release, with every checksum right."""
    data = json_bytes(certified)
    (folder / "certificate.json").write_bytes(data)
    above = json.loads((folder / "release.json").read_bytes())
    above["sha256"]["certificate.json"] = hashlib.sha256(data).hexdigest()
    del above["sha256_above"]
    above["sha256_above"] = hashlib.sha256(json_bytes(above)).hexdigest()
    (folder / "release.json").write_bytes(json_bytes(above))


def test_the_number_of_queries_and_marginals_is_limited(certified: dict[str, Any]) -> None:
    many = {**certified, "queries": certified["queries"][:1] * (MAX_QUERIES + 1)}
    with pytest.raises(Contradiction, match="1,001 queries; at most 1,000 are read"):
        certificate.from_json(many)
    listed = {**certified, "measured_marginals": certified["measured_marginals"][:1] * (MAX_MARGINALS + 1)}
    with pytest.raises(Contradiction, match="marginals; at most 1,000,000 are read"):
        certificate.from_json(listed)
    parts = {**certified, "queries": [{**certified["queries"][0], "partition": name} for name in "abc"]}
    with pytest.raises(Contradiction, match="3 partitions; at most 2 are read"):
        certificate.from_json(parts)


# --------------------------------------------------------------------------------------------- what is made can be read


@pytest.mark.parametrize("epsilon", [1e-6, 1e-3, 100.0])
@pytest.mark.parametrize("max_rows", [1, 1000])
@pytest.mark.parametrize("columns", [2, 300])
def test_extreme_runs_are_planned_in_seconds_or_refused(epsilon: float, max_rows: int, columns: int) -> None:
    began = time.process_time()
    for method in ("independent", "mst"):
        try:
            made = us.plan(wide_schema(max_rows, columns), method, epsilon=epsilon, delta=1e-6)
        except UnderstudyError:
            continue  # before the first charge
        assert not [*excess(made.queries)]
    assert time.process_time() - began < 30


@pytest.mark.parametrize(
    ("method", "epsilon", "max_rows", "columns"),
    [("mst", 0.01, 1000, 20), ("independent", 1e-4, 1, 5), ("independent", 1e-5, 1, 20), ("independent", 100, 1, 2)],
)
def test_an_extreme_release_is_read_again(
    tmp_path: Path, method: str, epsilon: float, max_rows: int, columns: int
) -> None:
    """A run that spent its budget has something that can be used."""
    names = [f"c{number}" for number in range(columns)]
    table = pa.table({"who": range(90), **{name: ["x", "y", "y"] * 30 for name in names}})
    made = us.fit(table, method, epsilon=epsilon, delta=1e-6, schema=wide_schema(max_rows, columns))
    made.save(tmp_path / "made.release")
    assert us.Release.load(tmp_path / "made.release").statement == made.statement
    us.write_bundle(tmp_path / "made.release", tmp_path / "made.zip")
    assert us.verify_bundle(tmp_path / "made.zip").is_intact


@pytest.mark.made_up_figures
def test_queries_one_by_one_take_no_longer_than_together(release: Path) -> None:
    """The cost of each query alone is in the certificate, too."""
    made = us.Release.load(release).statement
    events = [SubsampledGaussian(1e-3 + at * 1e-8, 5.0, MAX_COUNT) for at in range(120)]
    queries = tuple(dataclasses.replace(made.queries[0], event=event, key=f"{event}") for event in events)
    began = time.process_time()
    written = certificate.to_json(dataclasses.replace(made, queries=queries, measurements=(), epsilon_pld=math.inf))
    assert len(written["queries"]) == 120  # type: ignore[arg-type]  # JSON, typed as objects
    assert time.process_time() - began < 15


def wide_schema(max_rows: int, columns: int) -> dict[str, Any]:
    declared = {f"c{number}": {"kind": "categorical", "categories": ["x", "y"]} for number in range(columns)}
    table = {"rows": 90, "unit": "who", "max_rows_per_unit": max_rows}
    return {"table": table, "columns": {"who": {"kind": "id"}, **declared}}
