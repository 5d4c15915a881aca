"""A release: the public schema, what was estimated privately, the model, and the statement of what was spent.

On disk it is a folder of readable JSON and plain arrays. Loading one runs no code from it.
"""

import dataclasses
import datetime
import functools
import hashlib
import json
import math
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pyarrow as pa
import safetensors

from understudy import certificate, certificate_page
from understudy._version import __version__
from understudy.conditional import acceptance
from understudy.encoding import (
    Codec,
    check_id_prefix,
    prefix_ids,
    with_text_ids,
)
from understudy.errors import ConfigError, ReleaseError, SchemaError
from understudy.failed_run import read_record
from understudy.models import Model, load_model, save_model
from understudy.models.protocol import pack
from understudy.notes import Note
from understudy.privacy.ledger import Statement
from understudy.privacy.noise import fresh_key
from understudy.row_sampler import RowSampler
from understudy.run.atomic import json_bytes
from understudy.run.checkpoint import Checkpoint, release_of
from understudy.run.environment import software_facts
from understudy.schema import Schema
from understudy.summary import Summarized, Summary
from understudy.tables import (
    Label,
    Origin,
    atomic_folder,
    attach_label,
    to_frame,
)

FORMAT = "understudy-release"
FORMAT_VERSION = 3
FILES = ("model.safetensors", *certificate_page.CERTIFICATE_FILES)
RELEASE_FILES = ("release.json", *FILES)
"""The files of a release folder beside release.json."""
BATCH_ROWS = 2**20
"""The number of rows in a batch of synthetic rows. Fixed, since larger seeded samples depend on it."""


@dataclasses.dataclass(frozen=True, repr=False)
class Release(Summarized):
    """What may be shared: a model that makes synthetic rows, and the statement of its privacy cost.

    `understudy.fit` makes one, `save` writes it as a folder, and `load` reads that again.

    >>> import pyarrow as pa, understudy as us
    >>> schema = {"columns": {"member": {"kind": "boolean"}}}
    >>> release = us.fit(pa.table({"member": [True, False] * 50}), "independent", epsilon=1, schema=schema)
    >>> release.sample(2).num_rows, release.statement.is_private
    (2, True)
    """

    model: Model
    codec: Codec
    statement: Statement
    origin: Origin
    checkpoint: Checkpoint | None = dataclasses.field(default=None, repr=False, compare=False)
    """The folder of the run that made it, until it is saved. Not part of the release."""
    notes: tuple[Note, ...] = dataclasses.field(default=(), repr=False, compare=False)
    """Why `auto` chose its method, warnings of the plan, and private estimates: public or noisy facts. Not saved."""
    tables: tuple[tuple[str, str], ...] = ()
    """Name and SHA-256 of the synthetic table that was written with the release, if one was."""
    made_with: Mapping[str, str] | None = dataclasses.field(default=None, repr=False, compare=False)
    """Versions of the software that made it, as recorded in its folder; None: it was made by this process."""

    @property
    def schema(self) -> Schema:
        """What was declared about the table, as drafted if nothing was."""
        return self.codec.schema

    def summary(self) -> Summary:
        """What its `repr` shows."""
        named = "" if self.schema.name is None else f" of {self.schema.name}"
        about = self.statement.summary()
        size = f"{'about ' if self.schema.rows is None else ''}{self.codec.num_rows:,}"
        columns = [(column.name, column.kind) for column in self.schema.columns if not column.drop]
        word = about.title if self.statement.strength is None else self.statement.strength.value
        facts = {"guarantee": word, **about.facts, "rows": size}
        return Summary(f"Release{named}", facts, ("column", "kind"), columns)

    @property
    def certificate(self) -> str:
        """The certificate as Markdown."""
        return certificate.to_markdown(self.statement, self.checksums)

    @functools.cached_property
    def checksums(self) -> dict[str, str]:
        """SHA-256 of the model file, and of the tables that were written with the release, by file name."""
        return {"model.safetensors": hashlib.sha256(save_model(self.model)[1]).hexdigest(), **dict(self.tables)}

    @functools.cached_property
    def digest(self) -> str:
        """SHA-256 of what the release can sample and guarantee: the label of every synthetic table has it.

        The checksums of tables are left out, so writing a table does not change it.
        """
        content = {
            "codec": self.codec.to_dict(),
            "origin": self.origin.to_dict(),
            "model": pack(self.model)[0],
            "arrays": self.checksums["model.safetensors"],
            "guarantee": guarantee_figures(self.statement),
        }
        return hashlib.sha256(json_bytes(content)).hexdigest()

    @property
    def label(self) -> Label:
        """What its synthetic tables say of themselves."""
        return Label(certificate=self.statement.headline, source="release", digest=self.digest)

    def sample(
        self,
        num_rows: int | None = None,
        *,
        where: str | None = None,
        seed: int | None = None,
        id_prefix: str | None = None,
    ) -> Any:
        """Synthetic rows in the kind of frame that `fit` was given. Post-processing: free, as often as wanted.

        With a privacy unit that may own several rows, these are rows of synthetic units: see `group_into_units`.
        Every row keeps the rules of the schema. `where` is an SQL condition over the columns; rows then follow the
        model given the rules and that condition. `seed` makes the
        sample reproducible and does not affect the guarantee. A release of `boosted(..., output=weighted)` has one more
        column, `sample_weight`: rows count by these weights. With `id_prefix` ids are texts such as "SYN-7".
        """
        rows = self.sample_arrow(num_rows, where=where, seed=seed, id_prefix=id_prefix)
        return to_frame(rows, self.origin if id_prefix is None else with_text_ids(self.origin, self.schema))

    def sample_arrow(
        self,
        num_rows: int | None = None,
        *,
        where: str | None = None,
        seed: int | None = None,
        id_prefix: str | None = None,
    ) -> pa.Table:
        """The same as an Arrow table."""
        batches = list(self.sample_batches(num_rows, where=where, seed=seed, id_prefix=id_prefix))
        return batches[0] if len(batches) == 1 else pa.concat_tables(batches).unify_dictionaries()

    def sample_batches(
        self,
        num_rows: int | None = None,
        *,
        where: str | None = None,
        seed: int | None = None,
        id_prefix: str | None = None,
        batch_rows: int = BATCH_ROWS,
    ) -> Iterator[pa.Table]:
        """The rows of `sample_arrow` as Arrow tables of at most `batch_rows` rows, each made when it is requested.

        So any number of rows needs the memory of one batch. Ids continue from batch to batch, and no unit is in two
        batches: the last unit of a batch may be cut short. Each batch is a sample of its own, with a key derived from
        the seed, so if there is more than one batch, the rows also depend on `batch_rows`.

        >>> import pyarrow as pa, understudy as us
        >>> schema = {"columns": {"member": {"kind": "boolean"}}}
        >>> release = us.fit(pa.table({"member": [True, False] * 50}), "independent", epsilon=1, schema=schema)
        >>> [batch.num_rows for batch in release.sample_batches(250, batch_rows=100)]
        [100, 100, 50]
        """
        num_rows = self.codec.num_rows if num_rows is None else num_rows
        check_size(num_rows, "The number of synthetic rows")
        check_size(batch_rows, "The number of rows of a batch")
        check_seed(seed)
        kept = self.statement.facts.types_kept or self.schema.drafted
        check_id_prefix(id_prefix, self.schema, self.origin, types_kept=kept)
        key = fresh_key() if seed is None else jax.random.key(seed)
        batches = self.sampler.batches(int(num_rows), where, key, int(batch_rows))
        return (attach_label(prefix_ids(batch, self.schema, id_prefix), self.label) for batch in batches)

    @property
    def sampler(self) -> RowSampler:
        """What makes its rows."""
        return RowSampler(self.model, self.codec, self.origin)

    def acceptance(self) -> float:
        """The fraction of the model's rows that keep the rules of the schema without being drawn again."""
        return acceptance(self.sampler.draw, self.codec, self.origin) if self.schema.rules else 1.0

    def save(self, folder: str | os.PathLike[str], *, force: bool = False) -> None:
        """Writes the release as a folder, completely or not at all. Then deletes the checkpoint of its run."""
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
        model, arrays = save_model(self.model)
        files = {"model.safetensors": arrays, **certificate_page.to_files(self.statement, self.checksums)}
        content = {
            "format": FORMAT,
            "format_version": FORMAT_VERSION,
            "understudy_version": __version__,
            "made_with": software_facts() if self.made_with is None else dict(self.made_with),
            "private": self.statement.is_private,
            "method": self.statement.method,
            "codec": self.codec.to_dict(),
            "origin": self.origin.to_dict(),
            "model": model,
            "sha256": {name: hashlib.sha256(data).hexdigest() for name, data in files.items()},
        }
        # Last of all the digest of everything above it, against damage to this file (a checksum, not a signature).
        files["release.json"] = json_bytes({**content, "sha256_above": hashlib.sha256(json_bytes(content)).hexdigest()})
        return files

    def with_table(self, path: str | os.PathLike[str]) -> "Release":
        """The same release, whose certificate also has the checksum of the synthetic table in this file."""
        return dataclasses.replace(self, tables=((Path(path).name, digest_of(path)),), checkpoint=None)

    @classmethod
    def load(cls, folder: str | os.PathLike[str]) -> "Release":
        """Reads a release folder. Refuses one that is incomplete, altered or of another version."""
        folder = Path(folder)
        if not (folder / "release.json").exists() and read_record(folder) is not None:
            raise ReleaseError(
                f"{folder} is the record of a failed run: its budget was spent, and nothing was released. "
                f"'understudy certificate {folder}' shows it."
            )
        content = _read_json(folder, "release.json")
        _check_format(folder, content)
        try:
            _check_sums(folder, content)
            model = load_model(content["model"], _read_bytes(folder, "model.safetensors"))
            codec = Codec.from_dict(content["codec"])
            certified = _read_json(folder, "certificate.json")
            statement, checksums = certificate.from_json(certified), certified.get("checksums", {})
            tables = tuple((name, digest) for name, digest in checksums.items() if name not in FILES)
            origin, made_with = Origin.from_dict(content["origin"]), dict(content.get("made_with", {}))
            return cls(model, codec, statement, origin, tables=tables, made_with=made_with)
        except (LookupError, TypeError, ValueError, AttributeError, SchemaError, safetensors.SafetensorError) as error:
            raise ReleaseError(
                f"{folder} is not a complete release ({type(error).__name__}). Ask for the original."
            ) from error


def sample_record(
    release: Release, folder: str | os.PathLike[str], path: str | os.PathLike[str], num_rows: int, where: str | None
) -> dict[str, object]:
    """What connects a table that was sampled later with the release in this folder: the file beside the table."""
    statement = release.statement
    certified = certificate.to_json(statement)
    return {
        "format": "understudy-sample",
        "format_version": 1,
        "understudy_version": __version__,
        "dataset": statement.facts.name,
        "date": datetime.date.today().isoformat(),
        "table": {"file": Path(path).name, "sha256": digest_of(path), "rows": num_rows, "where": where},
        "release": {
            "folder": Path(os.path.realpath(folder)).name,
            "sha256": digest_of(Path(folder) / "release.json"),
            "date": statement.facts.date,
            "method": statement.method,
        },
        "private": statement.is_private,
        "guarantee": certified["guarantee"],
    }


def guarantee_figures(statement: Statement) -> list[object]:
    """The figures of a guarantee, for the digest of its release."""
    facts = statement.facts
    epsilon = statement.epsilon if math.isfinite(statement.epsilon) else None
    return [statement.method, epsilon, statement.delta, statement.seeded, facts.unit, facts.graph_unit]


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


def check_size(size: object, what: str) -> None:
    """Refuses a number of rows that is not a positive whole number."""
    if isinstance(size, bool) or not isinstance(size, int | np.integer) or size < 1:
        raise ConfigError(f"{what} must be a whole number above 0, found {size}.")


def check_seed(seed: object) -> None:
    """Refuses a seed that is neither None nor a whole number of 32 bits."""
    if seed is None:
        return
    if isinstance(seed, bool) or not isinstance(seed, int) or not 0 <= seed < 2**32:
        raise ConfigError(f"seed must be a whole number from 0 to {2**32 - 1}, found {seed}.")


def _check_format(folder: Path, content: Mapping) -> None:
    if content.get("format") == "understudy-graph-release":
        raise ReleaseError(f"{folder} is the release of a graph. Load it with us.GraphRelease.load.")
    if content.get("format") != FORMAT:
        raise ReleaseError(f"{folder} contains a release.json that Understudy did not write. Name a release folder.")
    found, written_by = content.get("format_version"), content.get("understudy_version")
    if found != FORMAT_VERSION:
        raise ReleaseError(
            f"{folder} has release format {found}, written by Understudy {written_by}; Understudy {__version__} reads "
            f"only format {FORMAT_VERSION}. Use the version that wrote it."
        )


def _check_sums(folder: Path, content: Mapping) -> None:
    above = {key: value for key, value in content.items() if key != "sha256_above"}
    found = {name: _read_bytes(folder, name) for name in FILES} | {"release.json": json_bytes(above)}
    noted = {**content["sha256"], "release.json": content["sha256_above"]}
    for name, data in found.items():
        if hashlib.sha256(data).hexdigest() != noted[name]:
            raise ReleaseError(f"{folder / name} was altered after the release was made. Ask for the original.")


def _read_bytes(folder: Path, name: str) -> bytes:
    try:
        return (folder / name).read_bytes()
    except OSError as error:
        reason = f"{name} cannot be read ({error.strerror})" if folder.exists() else "it does not exist"
        raise ReleaseError(f"{folder} is not a release folder: {reason}.") from error


def _read_json(folder: Path, name: str) -> dict:
    try:
        content = json.loads(_read_bytes(folder, name))
    except (ValueError, RecursionError) as error:
        raise ReleaseError(f"{folder / name} is not valid JSON. Ask for the original release.") from error
    if not isinstance(content, dict):
        raise ReleaseError(f"{folder / name} is not a JSON object. Ask for the original release.")
    return content
