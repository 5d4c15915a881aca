"""What gets into a bundle, what never does, and how it is marked."""

import dataclasses
import getpass
import hashlib
import io
import json
import os
import platform
import shutil
import stat
import subprocess
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import understudy as us
from tests.builders import raises
from tests.institution.bundle.archive_edits import read
from tests.institution.bundle.conftest import REAL, SCHEMA, write_sample
from understudy.cli import run
from understudy.errors import BundleError, ConfigError, ReleaseError, TableError
from understudy.institution.bundle.pages import DESCRIPTIONS, IN_HOUSE
from understudy.run.atomic import json_bytes
from understudy.run.environment import software_facts

PUBLIC = {
    "CERTIFICATE.md",
    "README.md",
    "SHA256SUMS",
    "audit.json",
    "certificate.html",
    "certificate.json",
    "manifest.json",
    "plan.json",
    "schema.toml",
    "sign-off.html",
    "versions.json",
}
CANARY = "kept-from-the-public"


def unpack(path: Path, folder: Path) -> set[str]:
    with zipfile.ZipFile(path) as opened:
        opened.extractall(folder)
        return set(opened.namelist())


# ------------------------------------------------------------------------------------------------------- what gets in


def test_a_public_bundle_has_these_files_and_coreutils_agree(made: Path, tmp_path: Path) -> None:
    assert unpack(made / "public.zip", tmp_path) == PUBLIC | {"tables/fake.csv"}
    assert (tmp_path / "tables/fake.csv").read_bytes() == (made / "fake.csv").read_bytes()
    for name in ("certificate.json", "CERTIFICATE.md", "certificate.html"):
        assert (tmp_path / name).read_bytes() == (made / "release" / name).read_bytes()
    statement = us.Release.load(made / "release").statement
    assert us.Schema.read(tmp_path / "schema.toml") == us.Schema.from_toml(SCHEMA)
    plan = json.loads((tmp_path / "plan.json").read_text())
    assert [query["key"] for query in plan["queries"]] == [query.key for query in statement.queries]
    assert plan["epsilon"] == statement.epsilon
    if shutil.which("sha256sum"):
        subprocess.run(["sha256sum", "-c", "--strict", "--quiet", "SHA256SUMS"], cwd=tmp_path, check=True)


def test_every_file_is_explained(made: Path) -> None:
    contents = read(made / "public.zip")
    assert set(DESCRIPTIONS) > PUBLIC
    for name in contents:
        assert f"| {name} | " in contents["README.md"].decode()


def test_the_same_release_gives_the_same_bytes(made: Path, tmp_path: Path) -> None:
    us.write_bundle(made / "release", tmp_path / "again.zip", tables=[made / "fake.csv"])
    assert (tmp_path / "again.zip").read_bytes() == (made / "public.zip").read_bytes()


def test_no_path_user_or_machine_is_named(made: Path) -> None:
    contents = b"\n".join(read(made / "public.zip").values()).decode()
    for private in (str(made), os.getcwd(), str(Path.home()) + os.sep, platform.node(), platform.release()):
        assert private not in contents
    names = json.dumps(json.loads(read(made / "public.zip")["versions.json"]))
    assert getpass.getuser() not in names


def test_other_files_of_the_folder_are_left_out_and_named(copied: Path) -> None:
    """A checkpoint, a journal, rows, a folder or a link: only files on the list get in."""
    release = copied / "release"
    (release / "journal.jsonl").write_text(CANARY)
    (release / "people.csv").write_text(CANARY)
    (release / "run.checkpoint").mkdir()
    (release / "run.checkpoint" / "state.json").write_text(CANARY)
    (release / "scores.json").symlink_to(release / "people.csv")
    note = us.write_bundle(release, copied / "b.zip").notes[0]
    assert note.endswith('such files: "journal.jsonl", "people.csv", "run.checkpoint", "scores.json".')
    assert set(read(copied / "b.zip")) == PUBLIC
    assert CANARY not in (copied / "b.zip").read_bytes().decode(errors="replace")


@pytest.mark.parametrize("name", ["certificate.json", "CERTIFICATE.md", "model.safetensors", "release.json"])
def test_links_are_never_followed(copied: Path, name: str) -> None:
    real = copied / "elsewhere"
    (copied / "release" / name).rename(real)
    (copied / "release" / name).symlink_to(real)
    with raises(ReleaseError, reason="link"):
        us.write_bundle(copied / "release", copied / "b.zip")
    assert not (copied / "b.zip").exists()


def test_the_versions_are_those_of_the_run(copied: Path) -> None:
    """They are recorded by the run; another machine that makes the bundle states its own apart."""
    release = us.Release.load(copied / "release")
    assert release.made_with is not None
    recorded = {**release.made_with, "numpy": "1.0"}
    dataclasses.replace(release, made_with=recorded).save(copied / "release", force=True)
    us.write_bundle(copied / "release", copied / "b.zip")
    versions = json.loads(read(copied / "b.zip")["versions.json"])
    assert versions["release"] == recorded
    assert versions["bundle"] == software_facts()


# ------------------------------------------------------------------------------------------------------------- tables


def test_a_table_is_taken_only_if_it_is_a_sample_of_this_release(copied: Path) -> None:
    """The real table, a changed sample and a sample of another release are refused."""
    (copied / "real.csv").write_text("ward,member\na,true\n")
    changed = copied / "fake.csv"
    changed.write_text(changed.read_text() + "b,false\n")
    other = us.fit(REAL, "independent", epsilon=1, schema=us.Schema.from_toml(SCHEMA))
    (copied / "other").mkdir()
    other.save(copied / "other" / "release")
    write_sample(other, copied / "other", "more.csv")
    for table in (copied / "real.csv", changed, copied / "other" / "more.csv"):
        with raises(BundleError, reason="unknown table"):
            us.write_bundle(copied / "release", copied / "b.zip", tables=[table])
    assert not (copied / "b.zip").exists()


def test_a_table_that_the_certificate_names_needs_no_record(copied: Path) -> None:
    us.Release.load(copied / "release").with_table(copied / "fake.csv").save(copied / "release", force=True)
    (copied / "fake.csv.certificate.json").unlink()
    us.write_bundle(copied / "release", copied / "b.zip", tables=[copied / "fake.csv"], hash_only=True)
    contents = read(copied / "b.zip")
    assert set(contents) == PUBLIC
    (table,) = json.loads(contents["manifest.json"])["tables"]
    assert (table["name"], table["included"]) == ("fake.csv", False)
    assert table["sha256"] in contents["README.md"].decode()


def test_tables_need_different_names_and_must_be_files(copied: Path) -> None:
    (copied / "sub").mkdir()
    shutil.copy(copied / "fake.csv", copied / "sub" / "FAKE.csv")
    shutil.copy(copied / "fake.csv.certificate.json", copied / "sub" / "FAKE.csv.certificate.json")
    with raises(BundleError, reason="name"):
        us.write_bundle(copied / "release", copied / "b.zip", tables=[copied / "fake.csv", copied / "sub" / "FAKE.csv"])
    with raises(BundleError, reason="missing"):
        us.write_bundle(copied / "release", copied / "b.zip", tables=[copied / "release"])


# ----------------------------------------------------------------------------------------------------------- in-house


@pytest.fixture
def scored(copied: Path) -> Path:
    """The folder with figures of real rows in it."""
    (copied / "scores.json").write_text(json.dumps({"format": "understudy-scorecard", "what": CANARY}))
    (copied / "disclosure.json").write_text(json.dumps({"format": "understudy-disclosure", "what": CANARY}))
    (copied / "report.html").write_text(f"<!doctype html>\n<html>{CANARY}</html>")
    return copied


def test_figures_of_real_rows_need_a_mark_that_nobody_misses(scored: Path) -> None:
    files: dict[str, Any] = {"disclosure": scored / "disclosure.json", "report": scored / "report.html"}
    with raises(ConfigError, setting="in_house"):
        us.write_bundle(scored / "release", scored / "b.in-house.zip", scores=scored / "scores.json")
    with raises(ConfigError, setting="path"):
        us.write_bundle(scored / "release", scored / "b.zip", scores=scored / "scores.json", in_house=True)
    (scored / "b.in-house.zip").symlink_to(scored / "b.zip")
    with raises(ConfigError, setting="path"):
        us.write_bundle(scored / "release", scored / "b.in-house.zip", scores=scored / "scores.json", in_house=True)
    (scored / "b.in-house.zip").unlink()
    with raises(ConfigError, setting="in_house"):
        us.write_bundle(scored / "release", scored / "b.in-house.zip", in_house=True)
    out = scored / "b.in-house.zip"
    us.write_bundle(scored / "release", out, in_house=True, scores=scored / "scores.json", **files)
    contents = read(out)
    added = {"in-house/scores.json", "in-house/disclosure.json", "in-house/report.html"}
    assert set(contents) == PUBLIC | added
    assert {name for name, data in contents.items() if CANARY in data.decode()} == added
    assert stat.S_IMODE(out.stat().st_mode) == 0o600
    assert json.loads(contents["manifest.json"])["marks"] == [IN_HOUSE]
    assert contents["README.md"].decode().split("\n\n")[1] == f"> **I{IN_HOUSE[1:]}.**"
    assert "not for publication" in contents["sign-off.html"].decode()
    assert us.verify_bundle(out).marks == (IN_HOUSE,)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("scores", '{"format": "understudy-disclosure"}'),
        ("disclosure", "[1]"),
        ("disclosure", "ward,member\n"),
        ("scores", "[" * 100_000),
        ("report", "ward,member\n"),
    ],
)
def test_other_documents_are_refused(copied: Path, name: str, text: str) -> None:
    (copied / "file").write_text(text)
    options: dict[str, Any] = {name: copied / "file"}
    with raises(BundleError, reason="document"):
        us.write_bundle(copied / "release", copied / "b.in-house.zip", in_house=True, **options)


# -------------------------------------------------------------------------------------------------------------- marks


@pytest.mark.parametrize("how", [{"epsilon": 1, "seed": 0}, {"guarantee": us.Guarantee.not_private()}])
def test_a_release_without_a_guarantee_is_marked_at_the_head(tmp_path: Path, how: dict) -> None:
    us.fit(REAL, "independent", schema=us.Schema.from_toml(SCHEMA), **how).save(tmp_path / "release")
    written = us.write_bundle(tmp_path / "release", tmp_path / "b.zip")
    contents = read(tmp_path / "b.zip")
    assert json.loads(contents["plan.json"])["private"] is False
    manifest = json.loads(contents["manifest.json"])
    assert (manifest["private"], manifest["marks"][0][:11]) == (False, "NOT PRIVATE")
    assert contents["README.md"].decode().split("\n\n")[1].startswith("> **NOT PRIVATE:")
    assert "No file of this bundle is covered" in contents["README.md"].decode()
    found = us.verify_bundle(tmp_path / "b.zip")
    assert found.is_intact
    assert found.facts["Guarantee"] == "none"
    assert found.marks == written.marks == tuple(manifest["marks"])


@pytest.mark.filterwarnings("ignore::understudy.UnderstudyWarning")
def test_a_condition_of_the_guarantee_is_wherever_its_figures_are(made: Path, tmp_path: Path) -> None:
    """Nobody signs a guarantee without its condition; here the kinds of the columns follow from the rows."""
    us.fit(REAL, "independent", epsilon=1).save(tmp_path / "release")
    us.write_bundle(tmp_path / "release", tmp_path / "b.zip")
    contents = read(tmp_path / "b.zip")
    assert contents["README.md"].decode().count("drafted from the table") == 1
    assert "Under the condition above, the guarantee covers every file" in contents["README.md"].decode()
    assert "drafted from the table" in contents["sign-off.html"].decode()
    assert "drafted from the table" in us.verify_bundle(tmp_path / "b.zip").facts["Condition"]
    assert "Condition" not in us.verify_bundle(made / "public.zip").facts


def test_the_entry_of_a_budget_book_is_in_the_manifest(tmp_path: Path) -> None:
    book = us.BudgetBook.create(tmp_path / "visits.book", epsilon=3, delta=1e-5)
    schema = us.Schema.from_toml(SCHEMA.replace("visits | <b>", "visits"))
    us.fit(REAL, "independent", epsilon=1, schema=schema, book=book).save(tmp_path / "release")
    assert us.write_bundle(tmp_path / "release", tmp_path / "b.zip") == ((), ())
    entry = us.Release.load(tmp_path / "release").statement.facts.book
    assert entry is not None
    found = json.loads(read(tmp_path / "b.zip")["manifest.json"])["release"]["book"]
    assert found == {"dataset": "visits", "entry": entry.number, "hash": entry.digest}


def test_the_release_of_a_graph(tmp_path: Path) -> None:
    ring = pa.table({"source": range(20), "target": [(node + 1) % 20 for node in range(20)]})
    release = us.fit_graph(ring, {"nodes": {"count": 20}}, epsilon=1)
    release.save(tmp_path / "release")
    us.write_bundle(tmp_path / "release", tmp_path / "b.zip")
    assert us.verify_bundle(tmp_path / "b.zip").is_intact
    (tmp_path / "schema.toml").write_bytes(read(tmp_path / "b.zip")["schema.toml"])
    assert us.GraphSchema.read(tmp_path / "schema.toml").to_dict() == release.schema.to_dict()


# ------------------------------------------------------------------------------------------------------------ refusals


def test_a_release_that_contradicts_itself_is_refused(copied: Path) -> None:
    """Its checksums were computed again, so that it loads."""
    folder = copied / "release"
    text = (folder / "CERTIFICATE.md").read_text().replace("Strong guarantee", "Perfect guarantee")
    (folder / "CERTIFICATE.md").write_text(text)
    content = json.loads((folder / "release.json").read_text())
    content["sha256"]["CERTIFICATE.md"] = hashlib.sha256(text.encode()).hexdigest()
    content.pop("sha256_above")
    content["sha256_above"] = hashlib.sha256(json_bytes(content)).hexdigest()
    (folder / "release.json").write_bytes(json_bytes(content))
    us.Release.load(folder)
    with raises(ReleaseError, reason="contradicts itself"):
        us.write_bundle(folder, copied / "b.zip")
    assert not (copied / "b.zip").exists()


def _edit_certificate(folder: Path) -> dict[str, Any]:
    path = folder / "release" / "certificate.json"
    path.write_text(path.read_text().replace('"released": true', '"released":  true'))
    return {}


REFUSED: dict[str, tuple[Callable[[Path], dict[str, Any]], str]] = {
    "altered": (_edit_certificate, "was altered"),
    "no release": (lambda f: {"release": f / "absent"}, "is not a release folder"),
    "not a zip": (lambda f: {"path": f / "b.tar"}, "ending in .zip"),
    "inside": (lambda f: {"path": f / "release" / "b.zip"}, "inside the release"),
    "exists": (lambda f: {"path": f / "public.zip"}, "exists"),
    "own input": (lambda f: {"path": f / "fake.zip", "tables": [f / "fake.zip"]}, "is read as well"),
    "no key": (lambda f: {"sign": f / "absent"}, "no key file"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_refused_in_one_line_and_nothing_is_left(copied: Path, case: str) -> None:
    prepare, reason = REFUSED[case]
    options = {"release": copied / "release", "path": copied / "b.zip", **prepare(copied)}
    before = sorted(copied.rglob("*"))
    with pytest.raises((BundleError, ConfigError, ReleaseError, TableError), match=reason) as refused:
        us.write_bundle(options.pop("release"), options.pop("path"), **options)
    assert "\n" not in str(refused.value)
    assert sorted(copied.rglob("*")) == before


def test_the_command_writes_what_the_function_writes(
    made: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "b.zip"
    command = ["bundle", str(made / "release"), "-o", str(out), "--table", str(made / "fake.csv")]
    assert run(command) == 0
    assert out.read_bytes() == (made / "public.zip").read_bytes()
    said = capsys.readouterr()
    assert f"Wrote {out}." in said.err
    assert run(command) == 2
    assert "exists. Choose another name, or replace it with --force" in capsys.readouterr().err
    assert run([*command, "--force", "-q"]) == 0
    assert capsys.readouterr().err == ""
    with zipfile.ZipFile(io.BytesIO(out.read_bytes())) as opened:
        assert opened.infolist()[0].date_time == (1980, 1, 1, 0, 0, 0)
