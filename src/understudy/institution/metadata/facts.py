"""A release as the formats of other tools describe it: its words, its columns and its files."""

import dataclasses
import os
from collections.abc import Iterable, Mapping
from pathlib import Path

from understudy._version import __version__
from understudy.certificate.json import statement_conditions
from understudy.errors import ConfigError
from understudy.institution.metadata.about import About
from understudy.institution.metadata.table_schema import JsonObject, schema_columns, table_schema
from understudy.privacy.accounting.statement import round_up
from understudy.release import Release
from understudy.release.folder import digest_of
from understudy.schema import Schema
from understudy.tables.labels import is_sample_of
from understudy.tables.path import TablePath

_MEDIA_TYPES = {
    ".csv": "text/csv",
    ".tsv": "text/tab-separated-values",
    ".parquet": "application/vnd.apache.parquet",
    ".arrow": "application/vnd.apache.arrow.file",
    ".feather": "application/vnd.apache.arrow.file",
    ".jsonl": "application/jsonlines",
    ".xlsx": "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet",
}

LIMITS = (
    "Synthetic rows preserve some statistics of the confidential rows and lose others. Check an important result on the"
    " confidential data before relying on it."
)
"""What a user of the data must know."""


@dataclasses.dataclass(frozen=True)
class DescribedFile:
    """A synthetic table, by name and checksum."""

    name: str
    suffix: str
    sha256: str
    num_bytes: int

    @property
    def media_type(self) -> str:
        return _MEDIA_TYPES.get(self.suffix, "application/octet-stream")


@dataclasses.dataclass(frozen=True)
class DescribedRelease:
    """All that a description is made from: a release, what a person says about it, and synthetic tables."""

    release: Release
    about: About
    files: tuple[DescribedFile, ...] = ()

    @classmethod
    def of(cls, release: Release, about: About, files: Iterable[str | os.PathLike[str]]) -> "DescribedRelease":
        described = tuple(_describe_file(Path(file), release) for file in files)
        names = [file.name for file in described]
        if len(set(names)) < len(names):
            raise ConfigError(f"Two files have the name {max(names, key=names.count)!r}. Rename one.")
        return cls(release, about.completed_from(release.schema), described)

    @property
    def schema(self) -> Schema:
        return self.release.schema

    @property
    def date(self) -> str | None:
        """When it was published, as declared, or else the day of the run."""
        return self.about.issued.isoformat() if self.about.issued else self.release.statement.facts.date

    @property
    def fields(self) -> list[Mapping[str, object]]:
        """The columns, as a Table Schema describes them in the format of the first file."""
        fields = self.table_schema["fields"]
        assert isinstance(fields, list)
        return fields

    @property
    def table_schema(self) -> JsonObject:
        suffix = self.files[0].suffix if self.files else ".csv"
        return table_schema(schema_columns(self.release.origin), self.schema, suffix)

    @property
    def guarantee(self) -> str:
        """The guarantee in a sentence."""
        statement = self.release.statement
        if not statement.is_private:
            return f"This release has no privacy guarantee ({statement.headline})."
        if statement.facts.selections_only:
            return f"Privacy guarantee: {statement.headline}."
        unit = statement.facts.unit
        protected = "one row" if unit is None else f"all rows of one {unit}"
        figures = f"epsilon {round_up(statement.epsilon, 4)} and delta {round_up(statement.delta, 2)}"
        said = f"The model is differentially private with {figures}; the guarantee protects {protected}."
        return " ".join((said, *statement_conditions(statement.facts)))

    @property
    def version(self) -> str:
        """The version of Understudy that made the release."""
        return (self.release.made_with or {}).get("understudy", __version__)

    @property
    def origin(self) -> str:
        """How the rows came about, in a sentence."""
        return (
            f"All rows are synthetic: they were sampled from a model that Understudy {self.version} fitted to"
            f" confidential rows with the method {self.release.statement.method}."
        )

    @property
    def description(self) -> str:
        """The declared description, followed by what the certificate says."""
        return " ".join(filter(None, (self.about.description, self.origin, self.guarantee)))


def _describe_file(path: Path, release: Release) -> DescribedFile:
    """Name and checksum of a synthetic table. One that may be the real table is refused: a checksum identifies it."""
    if not path.is_file():
        raise ConfigError(f"There is no file {str(path)!r}. Name one file with a synthetic table.", setting="files")
    digest = digest_of(path)
    if digest not in dict(release.tables).values() and not is_sample_of(path, digest, release.digest):
        raise ConfigError(
            f"{path} does not say that it is synthetic and of this release: neither its label, nor the"
            f" {path.name}.datapackage.json beside it, nor the certificate. Name a table that was sampled from this"
            " release."
        )
    return DescribedFile(path.name, TablePath.parse(path).suffix, digest, path.stat().st_size)
