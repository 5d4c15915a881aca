"""Verifies an evidence bundle: that it is whole, agrees with itself, costs what it states, and who signed it."""

import dataclasses
import math
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

from understudy._version import __version__
from understudy.certificate.agreement import (
    UNREADABLE,
    Contradiction,
    renyi_agrees,
    same_figures,
    schema_contradictions,
)
from understudy.certificate.audit_section import audits_of, audits_to_json
from understudy.certificate.json import certificate_contradictions, read_statement
from understudy.certificate.page import to_files
from understudy.errors import BundleError, ConfigError, UnderstudyError
from understudy.institution.bundle import signing
from understudy.institution.bundle.archive import Malformed, Measured, measure, read_archive
from understudy.institution.bundle.manifest import (
    FORMAT,
    FORMAT_VERSION,
    MANIFEST,
    SIGNATURE,
    SUMS,
    TABLES,
    as_json,
    make_manifest,
    make_sums,
    plan_as_charged,
    read_facts,
    read_json,
)
from understudy.institution.bundle.pages import DESCRIPTIONS, make_readme, make_sign_off, release_facts
from understudy.privacy.accounting.ledger import Guarantee, Statement, spent_by
from understudy.privacy.accounting.statement import round_up
from understudy.run.atomic import json_bytes
from understudy.schema import Schema
from understudy.schema.toml import names_files, parse_toml
from understudy.summary import Summarized, Summary

_REQUIRED = {name for name in DESCRIPTIONS if not name.startswith("in-house/")} - {SIGNATURE}
_NUMBER = re.compile(r"\d[\d,]*(?:\.\d+)?(?:e[+-]?\d+)?")


@dataclasses.dataclass(frozen=True, repr=False)
class Verification(Summarized):
    """What was found about a bundle. `verify_bundle` makes one.

    >>> import understudy as us
    >>> us.Verification("bundle.zip", faults=("README.md was changed.",)).is_intact
    False
    """

    path: str
    """The zip file."""
    faults: tuple[str, ...] = ()
    """What is wrong with it. Empty: it is intact."""
    marks: tuple[str, ...] = ()
    """Whether it is not private, or in-house: to be known before anything else."""
    facts: Mapping[str, str] = dataclasses.field(default_factory=dict)
    """What was released, as its certificate states."""
    checked: tuple[str, ...] = ()
    """What was checked, one sentence each."""
    not_checked: tuple[str, ...] = ()
    """What could not be checked, and why."""
    signed_by: str | None = None
    """The key that signed it; None: it is not signed, or the signature is wrong."""
    identity: str | None = None
    """The name of the signer in the list of allowed signers; None: no list was given, or it has no such key."""

    @property
    def is_intact(self) -> bool:
        """Whether nothing is wrong. It says nothing about who made the bundle unless `identity` is set."""
        return not self.faults

    def to_json(self) -> dict[str, object]:
        """All fields, for machines."""
        fields = {name: list(v) if isinstance(v, tuple) else v for name, v in vars(self).items()}
        return {"format": "understudy-verification", "format_version": 1, "intact": self.is_intact, **fields}

    def summary(self) -> Summary:
        """What its `repr` shows."""
        title = f"{self.path}: {'intact' if self.is_intact else 'FAILS'}"
        rows = [("wrong", text) for text in self.faults] + [("checked", text) for text in self.checked]
        rows += [("not checked", text) for text in self.not_checked]
        return Summary(title, dict(self.facts), ("", ""), rows, self.marks)


def verify_bundle(
    path: str | os.PathLike[str],
    *,
    signers: str | os.PathLike[str] | None = None,
    identity: str | None = None,
    tables: Sequence[str | os.PathLike[str]] = (),
) -> Verification:
    """Verify an evidence bundle. A bundle that is wrong is not an error: `faults` of the result says what is wrong.

    Formal guarantee: if there is no fault, every file has the checksum of the manifest, there is no other file and no
    other byte; and with `signers`, one of them signed that manifest with a key of that list.

    Args:
        path: The zip file.
        signers: A list of allowed signers, as in `man ssh-keygen`. The bundle must then be signed by one of them.
        identity: Which of them must have signed it. Default: any.
        tables: Files that should be synthetic tables of this bundle: compared with its checksums.

    Returns:
        What was found.

    Raises:
        BundleError: The file does not exist or is no bundle, or signatures cannot be checked on this machine.

    >>> import understudy as us
    >>> us.verify_bundle("absent.zip")
    Traceback (most recent call last):
    understudy.errors.BundleError: absent.zip does not exist. Name a bundle written by 'understudy bundle'.
    """
    if identity is not None and signers is None:
        raise ConfigError("--identity needs --signers, the list in which the identity has a key.", setting="identity")
    try:
        members = _read_members(Path(path))
    except Malformed as error:
        fault = f"The zip file is not as Understudy wrote it: {error}."
        return Verification(str(path), faults=(fault,))
    check = _Check(members)
    if check.manifest:
        check.files()
        check.signature(signers, identity)
        check.tables(tables)
    if not check.faults:
        check.documents()
    return Verification(
        str(path),
        faults=_printable(check.faults),
        marks=_printable(check.marks),
        facts=dict(zip(check.facts, _printable(check.facts.values()), strict=True)),
        checked=_printable(check.checked),
        not_checked=_printable(check.not_checked),
        signed_by=None if check.signed is None else check.signed.key,
        identity=None if check.signed is None else check.signed.identity,
    )


def _printable(strings: Iterable[str]) -> tuple[str, ...]:
    """Strings of unknown origin that a terminal shows and does not obey."""
    return tuple("".join(each if each.isprintable() else repr(each)[1:-1] for each in text) for text in strings)


def _read_members(path: Path) -> dict[str, Measured]:
    if not path.exists():
        raise BundleError(f"{path} does not exist. Name a bundle written by 'understudy bundle'.", reason="missing")
    try:
        with path.open("rb") as file:
            if file.read(2) != b"PK":
                raise BundleError(
                    f"{path} is not a zip file. Name a bundle written by 'understudy bundle'.", reason="unknown kind"
                )
            file.seek(0)
            return read_archive(file)
    except OSError as error:
        raise BundleError(f"{path} cannot be read: {error.strerror}.") from None


class _Check:
    """The checks of one bundle, in order, and what they found."""

    def __init__(self, members: Mapping[str, Measured]) -> None:
        self.members = members
        self.faults: list[str] = []
        self.checked: list[str] = []
        self.not_checked: list[str] = []
        self.marks: list[str] = []
        self.facts: dict[str, str] = {}
        self.signed: signing.Signature | None = None
        self.manifest = self._read_manifest()

    def _read_manifest(self) -> dict[str, Any]:
        """The manifest if it has all its parts, else a fault."""
        if MANIFEST not in self.members:
            self.faults.append("There is no manifest.json, so this is not an evidence bundle.")
            return {}
        try:
            manifest = read_json(self._data(MANIFEST))
            if manifest["format"] != FORMAT:
                raise ValueError
            if manifest["format_version"] != FORMAT_VERSION:
                raise BundleError(
                    f"The bundle has format {manifest['format_version']!r}; Understudy {__version__} verifies format "
                    f"{FORMAT_VERSION}. Use the version that wrote it.",
                    reason="newer",
                )
            self.about = read_facts(manifest)
            _ = {name: (each["sha256"], each["bytes"]) for name, each in manifest["files"].items()}
            self.marks = [str(mark) for mark in manifest["marks"]]
            _ = manifest["signed"], manifest["understudy_version"], manifest["private"]
        except (ValueError, LookupError, TypeError, AttributeError):
            self.faults.append("manifest.json is not the manifest of an evidence bundle.")
            return {}
        return manifest

    def _data(self, name: str) -> bytes:
        return self.members[name].data or b""

    # ------------------------------------------------------------------------------------------------------- files

    def files(self) -> None:
        """Every file is listed, has its checksum, and belongs in a bundle."""
        listed, own = self.manifest["files"], {MANIFEST, SUMS, SIGNATURE}
        present = {name for name in self.members if name not in own}
        self.faults += [f"{name} is missing." for name in sorted(set(listed) - present)]
        self.faults += [f"{name!r} is not listed in the manifest." for name in sorted(present - set(listed))]
        self.faults += [f"{name} is missing." for name in sorted(_REQUIRED - set(listed) - set(self.members))]
        for name in sorted(present & set(listed)):
            member, noted = self.members[name], listed[name]
            if (member.sha256, member.size) != (noted["sha256"], noted["bytes"]):
                self.faults.append(f"{name} was changed: it does not have the checksum of the manifest.")
        self.faults += [f"{name!r} does not belong in a bundle." for name in sorted(present) if not self._belongs(name)]
        if len({name.casefold() for name in self.members}) < len(self.members):
            self.faults.append("Two file names differ in upper and lower case alone.")
        if not self.faults:
            sums = {name: each.sha256 for name, each in self.members.items() if name not in (SUMS, SIGNATURE)}
            if self._data(SUMS) != make_sums(sums):
                self.faults.append("SHA256SUMS does not have the checksums of the manifest.")
        if not self.faults:
            self.checked.append(
                f"All {len(listed)} files have the checksums of the manifest. None is missing or added."
            )

    def _belongs(self, name: str) -> bool:
        """Whether a file is one of those that a bundle with this manifest may have."""
        if name.startswith(TABLES):
            included = {f"{TABLES}{each.name}": each.sha256 for each in self.about.tables if each.included}
            return included.get(name) == self.members[name].sha256
        return name in DESCRIPTIONS and (self.about.in_house or not name.startswith("in-house/"))

    # --------------------------------------------------------------------------------------------------- signature

    def signature(self, signers: str | os.PathLike[str] | None, identity: str | None) -> None:
        """Who signed the manifest, as far as that can be known."""
        if SIGNATURE not in self.members:
            if self.manifest["signed"] or signers is not None:
                self.faults.append("It is not signed.")
            else:
                self.not_checked.append("Who made the bundle: it is not signed, and anyone could have written it.")
            return
        if signers is None and not signing.is_available():
            self.not_checked.append("The signature: there is no ssh-keygen on the PATH.")
            return
        try:
            signature = self._data(SIGNATURE)
            self.signed = signing.check(self._data(MANIFEST), signature, signers=signers, identity=identity)
        except signing.BadSignature as error:
            self.faults.append(f"{str(error)[:1].upper()}{str(error)[1:]}.")
            return
        if self.signed.identity is None:
            self.not_checked.append(
                f"Who made the bundle: it is signed by the key {self.signed.key}, and nobody vouches for that key. "
                "Give a list of allowed signers with --signers."
            )
        else:
            self.checked.append(f"The manifest is signed by {self.signed.identity} with the key {self.signed.key}.")

    # ------------------------------------------------------------------------------------------------------ tables

    def tables(self, given: Sequence[str | os.PathLike[str]]) -> None:
        """Whether files are the tables that the manifest states."""
        noted = {each.sha256: each for each in self.about.tables}
        seen = set()
        for path in map(Path, given):
            if not path.is_file():
                raise BundleError(f"There is no file {path}. Name a synthetic table.")
            if (digest := measure(path).sha256) not in noted:
                self.faults.append(f"{path} is none of the synthetic tables of this bundle, or was changed.")
                continue
            seen.add(digest)
            self.checked.append(f"{path} is the synthetic table {noted[digest].name} of this bundle.")
        self.not_checked += [
            f"{each.name}: only its checksum is in the bundle. Compare the file with --table."
            for each in noted.values()
            if not each.included and each.sha256 not in seen
        ]

    # --------------------------------------------------------------------------------------------------- documents

    def documents(self) -> None:
        """Whether the files say the same. Called only if every file has its checksum."""
        try:
            certified = read_json(self._data("certificate.json"))
            statement = read_statement(certified)
            self.faults += [f"The certificate {each}." for each in certificate_contradictions(certified, statement)]
            checksums = dict(certified["checksums"])
            version = certified["understudy_version"]
            self._manifest_agrees(statement)
            if renyi_agrees(statement):  # or else the other figure may take forever
                self._cost_is_right(statement)
            self._plan_agrees(certified)
            self._versions_are_plain()
            self.facts = release_facts(statement)
            if self.faults:  # what follows makes pages from figures, and these are wrong
                return
            if version == __version__:
                self._certificate_agrees(certified, statement, checksums)
            else:
                self.not_checked.append(
                    "The wording of the certificate, and lists, bounds and rules in schema.toml: the release was made "
                    f"by Understudy {version}, and this is {__version__}."
                )
            self._schema_agrees(statement, same_version=version == __version__)
            self._pages_agree(statement, is_current=version == __version__)
        except Contradiction as error:
            self.faults.append(str(error))
            return
        except (UnderstudyError, *UNREADABLE) as error:
            self.faults.append(f"certificate.json is not a certificate that can be read ({type(error).__name__}).")
            return
        self._not_verifiable()

    def _manifest_agrees(self, statement: Statement) -> None:
        manifest, facts = self.manifest, self.about
        files = {name: self.members[name] for name in manifest["files"]}
        made = make_manifest(statement, facts, files, signed=SIGNATURE in self.members)
        expected = {**read_json(json_bytes(made)), "understudy_version": str(manifest["understudy_version"])}
        self.faults += [
            f"manifest.json contradicts the certificate: {key!r}."
            for key, value in expected.items()
            if key not in manifest or not same_figures(manifest[key], value)
        ]
        self.faults += [
            f"manifest.json has the key {key!r}, which no manifest has." for key in manifest if key not in expected
        ]
        if facts.in_house != any(name.startswith("in-house/") for name in self.members):
            self.faults.append("manifest.json is wrong about whether the bundle is in-house.")
        if not statement.released:
            self.faults.append("The certificate is that of a failed run: nothing was released.")

    def _cost_is_right(self, statement: Statement) -> None:
        """Epsilon, computed again from the events of all queries."""
        if not math.isfinite(statement.epsilon_target):
            return
        spent = spent_by(statement.queries, Guarantee(statement.epsilon_target, statement.delta))
        stated, recomputed = round_up(statement.epsilon, 6), round_up(spent.epsilon, 6)
        if not same_figures(statement.epsilon, spent.epsilon):
            self.faults.append(f"The certificate states epsilon {stated}, but its queries cost {recomputed}.")
            return
        num = len(statement.queries)
        self.checked.append(
            f"{'The only query' if num == 1 else f'The {num} queries'} of the certificate "
            f"{'costs' if num == 1 else 'together cost'} epsilon {round_up(spent.epsilon, 4)} at delta "
            f"{round_up(statement.delta, 2)}, as stated (computed again)."
        )

    def _plan_agrees(self, certified: Mapping[str, Any]) -> None:
        if self._data("plan.json") != plan_as_charged(certified):
            self.faults.append("plan.json does not have the queries and figures of certificate.json.")
        else:
            self.checked.append("plan.json has the queries and figures of certificate.json.")

    def _versions_are_plain(self) -> None:
        """versions.json has versions by name and nothing else, of the release and of the bundle."""
        try:
            versions = read_json(self._data("versions.json"))
        except ValueError:
            versions = {}
        if versions.keys() != {"release", "bundle"} or not all(map(_is_versions, versions.values())):
            self.faults.append("versions.json does not have the versions of the software, or has more than these.")

    def _certificate_agrees(
        self, certified: Mapping[str, Any], statement: Statement, checksums: Mapping[str, str]
    ) -> None:
        """The three forms of the certificate, made again from the statement."""
        before = len(self.faults)
        if not same_figures(certified, as_json(statement, checksums)):
            self.faults.append("certificate.json is not what this version writes for its queries and facts.")
        for name, data in to_files(statement, checksums).items():
            if name != "certificate.json" and not same_text(self._data(name), data):
                self.faults.append(f"{name} does not say what certificate.json says.")
        if len(self.faults) == before:
            self.checked.append("The certificate says the same as JSON, as text and as a web page.")

    def _schema_agrees(self, statement: Statement, *, same_version: bool) -> None:
        """What schema.toml declares is what the certificate lists as declared: all of it only for `same_version`."""
        if statement.facts.graph_unit is not None:
            self.not_checked.append("schema.toml: that of a graph is not compared with the certificate.")
            return
        try:
            text = self._data("schema.toml").decode()
            if names_files(parse_toml(text, "schema.toml")):  # whoever verifies must not open them
                self.faults.append("schema.toml names other files.")
                return
            schema = Schema.from_toml(text)
        except (UnderstudyError, *UNREADABLE) as error:
            self.faults.append(f"schema.toml is not a schema that can be read ({type(error).__name__}).")
            return
        contradictions = [*schema_contradictions(schema, statement, same_version=same_version)]
        if not contradictions and same_version and schema.to_toml() != text:
            contradictions = ["is not as Understudy writes it"]
        self.faults += [f"schema.toml {each}." for each in contradictions]
        if not contradictions:
            listed = "what the certificate lists as declared" if same_version else "the certificate's unit and rows"
            self.checked.append(f"schema.toml declares {listed}.")

    def _pages_agree(self, statement: Statement, *, is_current: bool) -> None:
        """README, sign-off page and audits, as this version writes them."""
        version = self.manifest["understudy_version"]
        if version != __version__:
            self.not_checked.append(
                f"README.md, sign-off.html and audit.json: the bundle was made by Understudy {version}, and this is "
                f"{__version__}."
            )
            return
        expected = {
            "README.md": make_readme(statement, self.about, [*self.members]).encode(),
            "sign-off.html": make_sign_off(statement, self.about).encode(),
            "audit.json": json_bytes(audits_to_json(audits_of(statement.method) if is_current else [])),
        }
        wrong = [name for name, data in expected.items() if not same_text(self._data(name), data)]
        self.faults += [f"{name} is not what this version writes for this release." for name in wrong]
        if not wrong:
            self.checked.append("README.md, sign-off.html and audit.json are those of this version of Understudy.")

    def _not_verifiable(self) -> None:
        if any(name.startswith("in-house/") for name in self.members):
            self.not_checked.append("The figures in in-house/: that needs the real rows.")
        self.not_checked.append(
            "Whether the run was made as the certificate says, and whether what it takes as public is public: no "
            "file can show that."
        )


# --------------------------------------------------------------------------------------------------------- comparing


def _is_versions(versions: object) -> bool:
    """Whether these are short versions by name; None: a release without such a record."""
    if not isinstance(versions, dict):
        return versions is None
    known = (
        re.fullmatch(r"[a-z-]{1,40}", name) and re.fullmatch(r"[\w.+ -]{1,40}", str(versions[name]))
        for name in versions
    )
    return len(versions) <= 40 and all(known)


def same_text(one: bytes, other: bytes) -> bool:
    """Whether two pages are equal, apart from figures whose last shown digit was rounded the other way."""
    if one == other:
        return True
    strings = [data.decode(errors="replace") for data in (one, other)]
    if len({_NUMBER.sub("#", text) for text in strings}) > 1:
        return False
    return all(map(_is_rounded_alike, *(_NUMBER.findall(text) for text in strings)))


def _is_rounded_alike(one: str, other: str) -> bool:
    if one == other:
        return True
    if "." not in one and "." not in other:  # counts, dates and versions are whole numbers, and exact
        return False
    values = [Decimal(text.replace(",", "")) for text in (one, other)]
    last_digit = Decimal(1).scaleb(min(int(value.as_tuple().exponent) for value in values))
    return abs(values[0] - values[1]) <= last_digit and math.isclose(*map(float, values), rel_tol=0.011)
