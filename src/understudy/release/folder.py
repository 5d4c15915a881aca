"""What every release has, whether of a table or of a graph: a statement, a certificate, a label, and its folder.

On disk it is a folder of readable JSON and plain arrays. Loading one runs no code from it.
"""

import abc
import dataclasses
import functools
import hashlib
import json
import math
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Self

import safetensors

from understudy import certificate
from understudy._version import __version__
from understudy.certificate import page as certificate_page
from understudy.certificate.agreement import UNREADABLE, Contradiction
from understudy.errors import ReleaseError, SchemaError
from understudy.notes import Note
from understudy.privacy.accounting.ledger import Statement
from understudy.run.atomic import atomic_folder, json_bytes
from understudy.run.checkpoint import Checkpoint, release_of
from understudy.run.environment import software_facts
from understudy.run.failure import read_record
from understudy.summary import Summarized, Summary
from understudy.tables import Label

FILES = ("model.safetensors", *certificate_page.CERTIFICATE_FILES)
RELEASE_FILES = ("release.json", *FILES)
"""The files of a release folder, whatever its kind."""
RESULT_FILES = ("model.safetensors", "certificate.json")
"""Those of them that a checkpoint keeps, beside release.json: not the pages of the certificate for people."""
GRAPH_FORMAT = "understudy-graph-release"
KINDS = {"understudy-release": ("a table", "Release"), GRAPH_FORMAT: ("a graph", "GraphRelease")}
"""By the format that release.json names: what a release is of, and the class that loads it."""


@dataclasses.dataclass(frozen=True, repr=False, eq=False, kw_only=True)
class AnyRelease(Summarized):
    """A release of either kind. `save` writes it as a folder, and `load` of its class reads it back."""

    FORMAT: ClassVar[str]
    FORMAT_VERSION: ClassVar[int]

    statement: Statement
    """What the run spent, on what, under which guarantee."""
    checkpoint: Checkpoint | None = dataclasses.field(default=None, repr=False, compare=False)
    """The folder of the run that made it, until it is saved. Not part of the release."""
    notes: tuple[Note, ...] = dataclasses.field(default=(), repr=False, compare=False)
    """Warnings of the plan, and private estimates: public or noisy facts. Not saved."""
    tables: tuple[tuple[str, str], ...] = ()
    """Name and SHA-256 of the synthetic table that was written with the release, if one was."""
    made_with: Mapping[str, str] | None = dataclasses.field(default=None, repr=False, compare=False)
    """Versions of the software that made it, as recorded in its folder; None: it was made by this process."""

    @abc.abstractmethod
    def _content(self) -> dict[str, object]:
        """What release.json says about the model: samples follow from it and the arrays alone."""

    @abc.abstractmethod
    def _arrays(self) -> bytes:
        """The file of arrays."""

    @classmethod
    @abc.abstractmethod
    def _of_content(cls, content: Mapping[str, Any], arrays: bytes, statement: Statement) -> Self:
        """The release of a folder."""

    @abc.abstractmethod
    def _contradictions(self, content: Mapping[str, Any], *, same_version: bool) -> Iterator[str]:
        """How its content contradicts its statement, one sentence each."""

    def _summarize(
        self, title: str, name: str | None, size: Mapping[str, str], columns: Sequence[tuple[str, str]] = ()
    ) -> Summary:
        about = self.statement.summary()
        word = about.title if self.statement.strength is None else self.statement.strength.value
        named = title if name is None else f"{title} of {name}"
        return Summary(named, {"guarantee": word, **about.facts, **size}, ("column", "kind"), columns)

    @property
    def certificate(self) -> str:
        """The certificate as Markdown."""
        return certificate.to_markdown(self.statement, self.checksums)

    @functools.cached_property
    def checksums(self) -> dict[str, str]:
        """SHA-256 of the model file, and of the table that was written with the release, by file name."""
        return {"model.safetensors": hashlib.sha256(self._arrays()).hexdigest(), **dict(self.tables)}

    @functools.cached_property
    def digest(self) -> str:
        """SHA-256 of what the release can sample and guarantee: the label of every synthetic table has it.

        The checksums of tables are left out, so writing a table does not change it.
        """
        content = {name: part for name, part in self._content().items() if name != "method"}  # a figure has it
        content |= {"arrays": self.checksums["model.safetensors"], "guarantee": _guarantee_figures(self.statement)}
        return hashlib.sha256(json_bytes(content)).hexdigest()

    @property
    def label(self) -> Label:
        """What its synthetic tables say of themselves."""
        return Label(certificate=self.statement.headline, source="release", digest=self.digest)

    def with_table(self, path: str | os.PathLike[str]) -> Self:
        """The same release, whose certificate also has the checksum of the synthetic table in this file."""
        return dataclasses.replace(self, tables=((Path(path).name, digest_of(path)),))

    def save(self, folder: str | os.PathLike[str], *, force: bool = False) -> None:
        """Writes the release as a folder, completely or not at all. Then deletes the checkpoint of its run.

        Args:
            folder: The folder, which must not exist.
            force: Replace it, if it is a release.

        Raises:
            TableError: The folder may not be replaced, or cannot be written.
        """
        files = self.to_files()
        if self.checkpoint is not None:
            self.checkpoint.note_release(hashlib.sha256(files["release.json"]).hexdigest())
        with atomic_folder(folder, force=force, contents=RELEASE_FILES) as inside:
            for name, data in files.items():
                (inside / name).write_bytes(data)
        if self.checkpoint is not None:
            self.checkpoint.delete()

    def to_files(self) -> dict[str, bytes]:
        """The files of the release folder by name."""
        return self._to_files(certificate_page.to_files(self.statement, self.checksums))

    def to_result(self) -> dict[str, bytes]:
        """The files that a checkpoint keeps until the release is saved: not the pages of the certificate for people."""
        return self._to_files({"certificate.json": json_bytes(certificate.to_json(self.statement, self.checksums))})

    def _to_files(self, certified: Mapping[str, bytes]) -> dict[str, bytes]:
        files = {"model.safetensors": self._arrays(), **certified}
        content = {
            "format": self.FORMAT,
            "format_version": self.FORMAT_VERSION,
            "understudy_version": __version__,
            "made_with": software_facts() if self.made_with is None else dict(self.made_with),
            "private": self.statement.is_private,
            **self._content(),
            "sha256": {name: hashlib.sha256(data).hexdigest() for name, data in files.items()},
        }
        # Last of all the digest of everything above it, against damage to this file (a checksum, not a signature).
        files["release.json"] = json_bytes({**content, "sha256_above": hashlib.sha256(json_bytes(content)).hexdigest()})
        return files

    @classmethod
    def load(cls, folder: str | os.PathLike[str]) -> Self:
        """Reads a release folder. Refuses one that is incomplete, altered or of another version.

        Epsilon and its meaning are not recomputed, nor is CERTIFICATE.md compared: use `understudy verify` for that.

        Args:
            folder: What `save` wrote.

        Returns:
            The release, which samples as before.

        Raises:
            ReleaseError: It is no release, or one that is refused; `reason` says why.
        """
        folder = Path(folder)
        if not (folder / "release.json").exists() and read_record(folder) is not None:
            raise ReleaseError(
                f"{folder} is the record of a failed run: its budget was spent, and nothing was released. "
                f"'understudy certificate {folder}' shows it.",
                reason="unknown kind",
            )
        return cls._read(folder, FILES)

    @classmethod
    def load_result(cls, checkpoint: Checkpoint) -> Self:
        """The release that a finished run keeps in its checkpoint."""
        return dataclasses.replace(cls._read(checkpoint.folder, RESULT_FILES), checkpoint=checkpoint)

    @classmethod
    def _read(cls, folder: Path, names: Sequence[str]) -> Self:
        content = _read_json(folder, "release.json")
        cls._check_format(folder, content)
        try:
            _check_sums(folder, content, names)
            certified = _read_json(folder, "certificate.json")
            statement, checksums = certificate.from_json(certified), certified.get("checksums", {})
            release = cls._of_content(content, _read_bytes(folder, "model.safetensors"), statement)
            same_version = certified["understudy_version"] == __version__
            for fault in (
                *_contradictions(content, certified, statement),
                *release._contradictions(content, same_version=same_version),
            ):
                raise Contradiction(
                    f"{folder} contradicts itself: {fault}. Ask for the original.", reason="contradicts itself"
                )
            tables = tuple((name, digest) for name, digest in checksums.items() if name not in FILES)
            return dataclasses.replace(release, tables=tables, made_with=dict(content.get("made_with", {})))
        except (SchemaError, safetensors.SafetensorError, *UNREADABLE) as error:
            raise ReleaseError(
                f"{folder} is not a complete release ({type(error).__name__}). Ask for the original.",
                reason="incomplete",
            ) from error

    @classmethod
    def _check_format(cls, folder: Path, content: Mapping[str, Any]) -> None:
        name = content.get("format")
        if not isinstance(name, str) or name not in KINDS:
            raise ReleaseError(
                f"{folder} contains a release.json that Understudy did not write. Name a release folder.",
                reason="unknown kind",
            )
        if name != cls.FORMAT:
            subject, loader = KINDS[name]
            raise ReleaseError(
                f"{folder} is the release of {subject}. Load it with us.{loader}.load.", reason="unknown kind"
            )
        version = content.get("format_version")
        if version != cls.FORMAT_VERSION:
            raise ReleaseError(
                f"{folder} has release format {version}, written by Understudy {content.get('understudy_version')}; "
                f"Understudy {__version__} reads only format {cls.FORMAT_VERSION}. Use the version that wrote it.",
                reason="newer",
            )


def is_graph_release(folder: str | os.PathLike[str]) -> bool:
    """Whether this folder is the release of a graph, by the first lines of its release.json."""
    try:
        with open(Path(folder) / "release.json", "rb") as file:
            return f'"{GRAPH_FORMAT}"'.encode() in file.read(200)
    except OSError:
        return False


def digest_of(path: str | os.PathLike[str]) -> str:
    """The SHA-256 of a file."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def saved_by(checkpoint: str | os.PathLike[str], folder: str | os.PathLike[str]) -> bool:
    """Whether the run in this checkpoint saved the release in this folder, and was killed right after that."""
    try:
        return hashlib.sha256((Path(folder) / "release.json").read_bytes()).hexdigest() == release_of(checkpoint)
    except OSError:
        return False


def _guarantee_figures(statement: Statement) -> list[object]:
    """The figures of a guarantee, for the digest of its release."""
    facts = statement.facts
    epsilon = statement.epsilon if math.isfinite(statement.epsilon) else None
    return [statement.method, epsilon, statement.delta, statement.seeded, facts.unit, facts.graph_unit]


def _check_sums(folder: Path, content: Mapping[str, Any], names: Sequence[str]) -> None:
    above = {key: value for key, value in content.items() if key != "sha256_above"}
    files = {name: _read_bytes(folder, name) for name in names} | {"release.json": json_bytes(above)}
    noted = {**content["sha256"], "release.json": content["sha256_above"]}
    for name, data in files.items():
        if hashlib.sha256(data).hexdigest() != noted[name]:
            raise ReleaseError(
                f"{folder / name} was altered after the release was made. Ask for the original.", reason="edited"
            )


def _contradictions(content: Mapping[str, Any], certified: Mapping[str, Any], statement: Statement) -> Iterator[str]:
    """How release.json contradicts the certificate beside it, one sentence each."""
    if content["private"] is not statement.is_private:
        yield "release.json and the certificate differ in whether it is private"
    if content["understudy_version"] != certified["understudy_version"]:
        yield "release.json and the certificate name different versions of Understudy"
    if certified["checksums"].get("model.safetensors") != content["sha256"]["model.safetensors"]:
        yield "the certificate has another checksum of model.safetensors"
    if not statement.released:
        yield "its certificate is that of a failed run, of which nothing was released"


def _read_bytes(folder: Path, name: str) -> bytes:
    try:
        return (folder / name).read_bytes()
    except OSError as error:
        reason = f"{name} cannot be read ({error.strerror})" if folder.exists() else "it does not exist"
        raise ReleaseError(f"{folder} is not a release folder: {reason}.", reason="missing") from error


def _read_json(folder: Path, name: str) -> dict[str, Any]:
    try:
        content = json.loads(_read_bytes(folder, name))
    except (ValueError, RecursionError) as error:
        raise ReleaseError(
            f"{folder / name} is not valid JSON. Ask for the original release.", reason="unknown kind"
        ) from error
    if not isinstance(content, dict):
        raise ReleaseError(
            f"{folder / name} is not a JSON object. Ask for the original release.", reason="unknown kind"
        )
    return content
