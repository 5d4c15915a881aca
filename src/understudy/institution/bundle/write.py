"""Makes the evidence bundle of a release: from its certificate, schema and audits, and from nothing else by default."""

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from understudy._version import __version__
from understudy.certificate.audit_section import audits_of, audits_to_json
from understudy.certificate.page import CERTIFICATE_FILES
from understudy.disclosure.disclose import FORMAT as DISCLOSURE
from understudy.disclosure.disclose import PRIVATE
from understudy.errors import BundleError, ConfigError, ReleaseError
from understudy.evaluation.scorecard import FORMAT as SCORECARD
from understudy.graphs.release import load_release
from understudy.institution.bundle import signing
from understudy.institution.bundle.archive import MAX_DOCUMENT, Measured, is_plain, measure, write_archive
from understudy.institution.bundle.manifest import (
    MANIFEST,
    SIGNATURE,
    SUMS,
    TABLES,
    make_manifest,
    make_sums,
    plan_as_charged,
    read_json,
)
from understudy.institution.bundle.pages import Facts, Table, make_readme, make_sign_off, marks
from understudy.institution.bundle.verify import verify_bundle
from understudy.privacy.accounting.ledger import Statement
from understudy.release import RELEASE_FILES
from understudy.rules.values import format_list
from understudy.run.atomic import atomic_path, json_bytes
from understudy.run.environment import software_facts

FilePath = str | os.PathLike[str]


class Written(NamedTuple):
    """What a steward should know about a bundle that was written."""

    marks: tuple[str, ...]
    """Whether it is not private, or in-house."""
    notes: tuple[str, ...]
    """What was left out of it, and what it cannot show."""


def write_bundle(
    release: FilePath,
    path: FilePath,
    *,
    tables: Sequence[FilePath] = (),
    hash_only: bool = False,
    in_house: bool = False,
    disclosure: FilePath | None = None,
    scores: FilePath | None = None,
    report: FilePath | None = None,
    sign: FilePath | None = None,
    force: bool = False,
) -> Written:
    """Write the evidence bundle of a release folder as one zip file.

    Formal guarantee: without `in_house`, every file of the bundle is computed from the release and from public facts,
    so it may be published like the release. Files in the folder that Understudy did not write there are left out.

    Args:
        release: The release folder.
        path: The zip file to write. With `in_house`, its name must contain "in-house".
        tables: Synthetic tables that were sampled from this release: each with the record that `sample` wrote beside
            it, or with its checksum in the certificate.
        hash_only: State the checksums of the tables, and leave out their rows.
        in_house: Allow the next three, which contain figures computed from real rows, and mark the bundle.
        disclosure: A report written by `disclose --json`.
        scores: A scorecard written by `evaluate --json`.
        report: An HTML page written by `evaluate --report` or `disclose --report`.
        sign: A private SSH key that signs the manifest. Needs `ssh-keygen`.
        force: Replace the zip file.

    Returns:
        What was written, and what a steward should know about it.

    Raises:
        BundleError: The bundle cannot be made or signed, or would contain figures of real rows without `in_house`.
        ReleaseError: The folder holds no release.

    >>> import pathlib, tempfile, pyarrow as pa, understudy as us
    >>> schema = {"columns": {"member": {"kind": "boolean"}}}
    >>> release = us.fit(pa.table({"member": [True, False] * 50}), "independent", epsilon=1, schema=schema)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     place = pathlib.Path(folder)
    ...     release.save(place / "release")
    ...     _ = us.write_bundle(place / "release", place / "bundle.zip")
    ...     us.verify_bundle(place / "bundle.zip").is_intact
    True
    """
    private = {"disclosure": disclosure, "scores": scores, "report": report}
    named = {name: Path(file) for name, file in private.items() if file is not None}
    _check_names(Path(release), Path(path), [*tables, *named.values(), *([] if sign is None else [sign])])
    _check_in_house(Path(path), in_house, named)
    if sign is not None:
        signing.find_ssh_keygen()
    source = _read_release(Path(release))
    facts = Facts(source.sha256, in_house, _describe_tables(source, tables, hash_only=hash_only))
    documents = _documents(source, facts) | _in_house_documents(named)
    contents: dict[str, bytes | Path] = {**documents}
    contents |= {f"{TABLES}{Path(table).name}": Path(table) for table in tables if not hash_only}
    with atomic_path(path, force=force) as part:
        with part.open("wb") as file:
            if in_house:
                os.chmod(file.name, PRIVATE)
            measured = _seal(source, facts, contents, sign)
            write_archive(file, contents, measured)
        if faults := verify_bundle(part).faults:
            raise ReleaseError(
                f"{release} contradicts itself: {faults[0]} Nothing was written.", reason="contradicts itself"
            )
    return Written(tuple(marks(source.statement, in_house=in_house)), source.notes)


class _Source(NamedTuple):
    """What a bundle takes from a release folder."""

    sha256: str
    statement: Statement
    certificate: Mapping[str, bytes]
    certified: Mapping[str, Any]
    """Its JSON."""
    schema: str
    made_with: Mapping[str, str]
    notes: tuple[str, ...]


def _read_release(folder: Path) -> _Source:
    """The public parts of a release, each from the file itself and never through a link."""
    for path in (folder / name for name in RELEASE_FILES):
        if os.path.lexists(path) and (os.path.islink(path) or not os.path.isfile(path)):
            raise ReleaseError(
                f"{path} is a link, or not a plain file. Put the file itself into the release.", reason="link"
            )
    release = load_release(folder)
    others = sorted(each.name for each in folder.iterdir() if each.name not in RELEASE_FILES)
    notes = [f"Left out, because no release has such files: {format_list(others)}."] if others else []
    if release.statement.facts.book is None and release.statement.is_private:
        notes.append("The run used no budget book, so the bundle does not show what earlier releases have cost.")
    certificate = {name: (folder / name).read_bytes() for name in CERTIFICATE_FILES}
    return _Source(
        sha256=measure(folder / "release.json").sha256,
        statement=release.statement,
        certificate=certificate,
        certified=read_json(certificate["certificate.json"]),
        schema=release.schema.to_toml(),
        made_with=release.made_with or {},
        notes=tuple(notes),
    )


def _documents(source: _Source, facts: Facts) -> dict[str, bytes]:
    """Every file of a public bundle, except the README and the manifest."""
    is_same_version = source.certified["understudy_version"] == __version__
    audits = audits_of(source.statement.method) if is_same_version else []
    versions = {"release": dict(source.made_with) or None, "bundle": software_facts()}
    return {
        **source.certificate,
        "schema.toml": source.schema.encode(),
        "plan.json": plan_as_charged(source.certified),
        "audit.json": json_bytes(audits_to_json(audits)),
        "versions.json": json_bytes(versions),
        "sign-off.html": make_sign_off(source.statement, facts).encode(),
    }


def _seal(
    source: _Source, facts: Facts, contents: dict[str, bytes | Path], sign: FilePath | None
) -> dict[str, Measured]:
    """Adds README, manifest, checksums and signature to the contents, and returns the checksums of all of them."""
    last = [MANIFEST, SUMS, *([SIGNATURE] if sign is not None else [])]
    contents["README.md"] = make_readme(source.statement, facts, [*contents, "README.md", *last]).encode()
    measured = {name: measure(content) for name, content in contents.items()}
    manifest = json_bytes(make_manifest(source.statement, facts, measured, signed=sign is not None))
    measured[MANIFEST] = measure(manifest)
    contents[MANIFEST] = manifest
    contents[SUMS] = make_sums({name: each.sha256 for name, each in measured.items()})
    if sign is not None:
        contents[SIGNATURE] = signing.sign(manifest, sign)
    return {name: measured.get(name) or measure(content) for name, content in contents.items()}


# ------------------------------------------------------------------------------------------------------------ tables


def _describe_tables(source: _Source, tables: Sequence[FilePath], *, hash_only: bool) -> tuple[Table, ...]:
    """The tables by name, each of which must be a sample of this release: a real table must never get in."""
    described: dict[str, Table] = {}
    for table in map(Path, tables):
        if not table.is_file():
            raise BundleError(
                f"There is no file {table}. Name a synthetic table that was written as one file.", reason="missing"
            )
        if not is_plain(table.name) or table.name.casefold() in described:
            raise BundleError(
                f"{table}: tables in a bundle need different, plain file names. Rename the file.", reason="name"
            )
        about = measure(table)
        if about.sha256 not in source.certified["checksums"].values() and not _is_sample(table, about.sha256, source):
            raise BundleError(
                f"{table} is not known as a synthetic table of this release: neither the certificate nor "
                f"{table.name}.certificate.json beside it has its checksum. Sample it again with 'understudy sample'.",
                reason="unknown table",
            )
        described[table.name.casefold()] = Table(table.name, about.sha256, about.size, not hash_only)
    return tuple(sorted(described.values(), key=lambda each: each.name))


def _is_sample(table: Path, digest: str, source: _Source) -> bool:
    """Whether the record beside a table says that it was sampled from this release."""
    try:
        record = json.loads(table.with_name(f"{table.name}.certificate.json").read_bytes())
        named = (record["format"], record["table"]["sha256"], record["release"]["sha256"])
    except (OSError, ValueError, LookupError, TypeError, RecursionError):
        return False
    return named == ("understudy-sample", digest, source.sha256)


# ---------------------------------------------------------------------------------------------------------- in-house


def _check_in_house(path: Path, in_house: bool, named: Mapping[str, Path]) -> None:
    if named and not in_house:
        raise ConfigError(
            f"--{next(iter(named))} contains figures computed from real rows. Such a bundle must not be published: say "
            "so with --in-house (in_house=True), or leave it out.",
            setting="in_house",
        )
    if in_house and not named:
        raise ConfigError("--in-house needs a file to add: --disclosure, --scores or --report.", setting="in_house")
    if in_house and "in-house" not in Path(os.path.realpath(path)).name:
        raise ConfigError(
            f"{path}: the name of an in-house bundle must contain 'in-house', so that nobody publishes it by mistake. "
            f"Use {path.stem}.in-house.zip.",
            setting="path",
        )


def _in_house_documents(named: Mapping[str, Path]) -> dict[str, bytes]:
    """The files with figures of real rows that the user named."""
    formats = {"disclosure": DISCLOSURE, "scores": SCORECARD}
    return {
        f"in-house/{name}.{'json' if name in formats else 'html'}": _read_document(name, file, formats.get(name))
        for name, file in named.items()
    }


def _read_document(name: str, path: Path, expected: str | None) -> bytes:
    """A JSON document of this format, or an HTML page."""
    try:
        with path.open("rb") as file:
            data = file.read(MAX_DOCUMENT + 1)
    except OSError as error:
        raise BundleError(f"--{name} {path} cannot be read: {error.strerror}.", reason="missing") from None
    if len(data) > MAX_DOCUMENT:
        raise BundleError(f"--{name} {path} is larger than {MAX_DOCUMENT:,} bytes. Leave it out.", reason="document")
    if expected is None:
        if not data[:200].lstrip().lower().startswith(b"<!doctype html"):
            raise BundleError(
                f"--{name} {path} is not an HTML page. Expected one written by 'evaluate --report'.", reason="document"
            )
        return data
    try:
        found = read_json(data).get("format")
    except ValueError:
        found = None
    if found != expected:
        command = {DISCLOSURE: "disclose", SCORECARD: "evaluate"}[expected]
        raise BundleError(
            f"--{name} {path} was not written by 'understudy {command} --json'. Name that file.", reason="document"
        )
    return data


# ------------------------------------------------------------------------------------------------------------- names


def _check_names(release: Path, path: Path, inputs: Sequence[FilePath]) -> None:
    """The output is a zip file outside the release, and replaces nothing that is read."""
    if path.suffix.lower() != ".zip":
        raise ConfigError(f"{path}: expected a file name ending in .zip.")
    place = Path(os.path.realpath(path))
    if Path(os.path.realpath(release)) in place.parents:
        raise ConfigError(f"{path} is inside the release folder. Choose another folder.")
    if place in {Path(os.path.realpath(each)) for each in inputs}:
        raise ConfigError(f"{path} is read as well. Choose another name for the bundle.")
