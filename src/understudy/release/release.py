"""A release: the public schema, what was estimated privately, the model, and the statement of what was spent.

On disk it is a folder of readable JSON and plain arrays. Loading one runs no code from it.
"""

import dataclasses
import datetime
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pyarrow as pa

from understudy import certificate
from understudy._version import __version__
from understudy.certificate.agreement import codec_contradictions
from understudy.encoding import Codec, check_id_prefix, prefix_ids, with_text_ids
from understudy.errors import ConfigError
from understudy.models import Model, load_model, save_model
from understudy.models.protocol import pack
from understudy.privacy.accounting.ledger import Statement
from understudy.privacy.noise.source import fresh_key
from understudy.release.conditional import acceptance
from understudy.release.folder import AnyRelease, digest_of
from understudy.release.sampling import RowSampler
from understudy.schema import Schema
from understudy.summary import Summary
from understudy.tables import Origin, attach_label, to_frame

BATCH_ROWS = 2**20
"""The number of rows in a batch of synthetic rows. Fixed, since larger seeded samples depend on it."""


@dataclasses.dataclass(frozen=True, repr=False)
class Release(AnyRelease):
    """What may be shared: a model that makes synthetic rows, and the statement of its privacy cost.

    `understudy.fit` makes one, `save` writes it as a folder, and `load` reads it back.

    >>> import pyarrow as pa, understudy as us
    >>> schema = {"columns": {"member": {"kind": "boolean"}}}
    >>> release = us.fit(pa.table({"member": [True, False] * 50}), "independent", epsilon=1, schema=schema)
    >>> release.sample(2).num_rows, release.statement.is_private
    (2, True)
    """

    FORMAT = "understudy-release"
    FORMAT_VERSION = 4

    model: Model
    """The distribution of encoded rows."""
    codec: Codec
    """Turns encoded rows into values."""
    origin: Origin
    """The kind of frame and the types of columns that synthetic tables get."""

    @property
    def schema(self) -> Schema:
        """What was declared about the table, as drafted if nothing was."""
        return self.codec.schema

    def summary(self) -> Summary:
        """What its `repr` shows."""
        size = f"{'about ' if self.schema.rows is None else ''}{self.codec.num_rows:,}"
        columns = [(column.name, column.kind) for column in self.schema.columns if not column.drop]
        return self._summarize("Release", self.schema.name, {"rows": size}, columns)

    def sample(
        self,
        num_rows: int | None = None,
        *,
        where: str | None = None,
        seed: int | None = None,
        id_prefix: str | None = None,
    ) -> Any:
        """Synthetic rows in the kind of frame that `fit` was given. Post-processing: no privacy cost, repeatable.

        With a privacy unit that may own several rows, these are rows of synthetic units: see `group_into_units`.
        Every row satisfies the rules of the schema. A release of `boosted(..., output=weighted)` has one more column,
        `sample_weight`: rows count by these weights.

        Args:
            num_rows: The number of rows. Default: that of the original, declared or estimated privately.
            where: An SQL condition over the columns; rows follow the model given the rules and this condition.
            seed: Makes the sample reproducible. It does not affect the guarantee.
            id_prefix: Ids are strings with this prefix, such as "SYN-7".

        Returns:
            The rows, as a frame of the library that `fit` was given.

        Raises:
            ConfigError: The number of rows, the seed or the prefix is not allowed.
            ConditionError: The condition cannot be read, or hardly any row of the model meets it.
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

        Args:
            num_rows: As of `sample`, like `where`, `seed` and `id_prefix`.
            where: A condition.
            seed: A seed.
            id_prefix: A prefix.
            batch_rows: The largest number of rows of a table.

        Returns:
            An iterator over tables.

        Raises:
            ConfigError: The same as of `sample`.
            ConditionError: The same, when the first table is requested.

        >>> import pyarrow as pa, understudy as us
        >>> schema = {"columns": {"member": {"kind": "boolean"}}}
        >>> release = us.fit(pa.table({"member": [True, False] * 50}), "independent", epsilon=1, schema=schema)
        >>> [batch.num_rows for batch in release.sample_batches(250, batch_rows=100)]
        [100, 100, 50]
        """
        num_rows = self.codec.num_rows if num_rows is None else num_rows
        check_size(num_rows, "The number of synthetic rows", "num_rows")
        check_size(batch_rows, "The number of rows of a batch", "batch_rows")
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
        """The fraction of the model's rows that satisfy the rules of the schema without being drawn again."""
        return acceptance(self.sampler.draw, self.codec, self.origin) if self.schema.rules else 1.0

    def _content(self) -> dict[str, object]:
        return {
            "method": self.statement.method,
            "codec": self.codec.to_dict(),
            "origin": self.origin.to_dict(),
            "model": pack(self.model)[0],
        }

    def _arrays(self) -> bytes:
        return save_model(self.model)[1]

    @classmethod
    def _of_content(cls, content: Mapping[str, Any], arrays: bytes, statement: Statement) -> "Release":
        model, codec = load_model(content["model"], arrays), Codec.from_dict(content["codec"])
        return cls(model, codec, Origin.from_dict(content["origin"]), statement=statement)

    def _contradictions(self, content: Mapping[str, Any], *, same_version: bool) -> Iterator[str]:
        yield from codec_contradictions(self.codec, content["method"], self.statement, same_version=same_version)


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


def check_size(size: object, what: str, setting: str | None = None) -> None:
    """Refuses a number of rows that is not a positive whole number."""
    if isinstance(size, bool) or not isinstance(size, int | np.integer) or size < 1:
        raise ConfigError(
            f"{what} must be a whole number above 0, found {size}.",
            setting=setting or (what if what.isidentifier() else None),
        )


def check_seed(seed: object) -> None:
    """Refuses a seed that is neither None nor a whole number of 32 bits."""
    if seed is None:
        return
    if isinstance(seed, bool) or not isinstance(seed, int) or not 0 <= seed < 2**32:
        raise ConfigError(f"seed must be a whole number from 0 to {2**32 - 1}, found {seed}.", setting="seed")
