"""The manifest of a bundle: what it is about, how it is marked, and the checksum of every file."""

import json
import math
from collections.abc import Mapping
from typing import Any

from understudy._version import __version__
from understudy.certificate import to_json
from understudy.certificate.json import book_to_json
from understudy.institution.bundle.archive import Measured
from understudy.institution.bundle.pages import Facts, Table, marks
from understudy.privacy.accounting.ledger import Statement
from understudy.run.atomic import json_bytes

FORMAT, FORMAT_VERSION = "understudy-bundle", 1
MANIFEST, SUMS, SIGNATURE = "manifest.json", "SHA256SUMS", "manifest.json.sig"
TABLES = "tables/"


def make_manifest(
    statement: Statement, facts: Facts, files: Mapping[str, Measured], *, signed: bool
) -> dict[str, object]:
    """The manifest of these files. Marks come first, so that whoever opens it reads them."""
    return {
        "format": FORMAT,
        "format_version": FORMAT_VERSION,
        "marks": marks(statement, in_house=facts.in_house),
        "understudy_version": __version__,
        "private": statement.is_private,
        "in_house": facts.in_house,
        "signed": signed,
        "release": {
            "sha256": facts.release_sha256,
            "dataset": statement.facts.name,
            "date": statement.facts.date,
            "method": statement.method,
            "epsilon": statement.epsilon if math.isfinite(statement.epsilon) else None,
            "delta": statement.delta,
            "book": None if statement.facts.book is None else book_to_json(statement.facts.book),
        },
        "tables": [
            {"name": each.name, "sha256": each.sha256, "bytes": each.size, "included": each.included}
            for each in facts.tables
        ],
        "files": {name: {"sha256": files[name].sha256, "bytes": files[name].size} for name in sorted(files)},
    }


def make_sums(files: Mapping[str, str]) -> bytes:
    """SHA256SUMS, as coreutils writes and checks it, of checksums by name."""
    return "".join(f"{files[name]}  {name}\n" for name in sorted(files)).encode()


def plan_as_charged(certified: Mapping[str, Any]) -> bytes:
    """plan.json: what was charged, in the form of a plan, from the JSON of the certificate."""
    guarantee = certified["guarantee"]
    figures = {key: guarantee[key] for key in ("epsilon", "epsilon_target", "delta", "meaning")}
    about = {"format": "understudy-plan", "format_version": certified["format_version"]}
    marks = {key: certified[key] for key in ("understudy_version", "private", "seeded")}
    return json_bytes({**about, **marks, **figures, "queries": certified["queries"], "expected": [], "notes": []})


def read_facts(manifest: Mapping[str, Any]) -> Facts:
    """What the pages need of a manifest; raises if it is malformed."""
    tables = tuple(
        Table(str(each["name"]), str(each["sha256"]), int(each["bytes"]), each["included"] is True)
        for each in manifest["tables"]
    )
    return Facts(str(manifest["release"]["sha256"]), manifest["in_house"] is True, tables)


def read_json(data: bytes) -> dict[str, Any]:
    """A JSON object; raises ValueError for anything else, also for numbers that JSON does not have and for keys that
    are in it twice, of which every reader takes another one."""
    try:
        content = json.loads(data, parse_constant=_refuse, object_pairs_hook=_unique)
    except RecursionError:
        raise ValueError("nested too deeply") from None
    if not isinstance(content, dict):
        raise ValueError("not an object")
    return content


def _refuse(constant: str) -> None:
    raise ValueError(constant)


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    if len(content := dict(pairs)) < len(pairs):
        raise ValueError("a key is in it twice")
    return content


def as_json(statement: Statement, checksums: Mapping[str, str]) -> dict[str, Any]:
    """The certificate for machines, as it is after writing and reading it."""
    return read_json(json_bytes(to_json(statement, checksums)))
