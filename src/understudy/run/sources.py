"""Reads the tables of a run: the private one, and the public one that some methods start from."""

import contextlib
import dataclasses
import os
from collections.abc import Callable, Sequence
from typing import TypeAlias

from understudy.errors import ConfigError, SchemaError, UnderstudyError
from understudy.privacy.rows.scratch import Scratch
from understudy.privacy.rows.spark import SparkBatches
from understudy.privacy.rows.table import PrivateTable, PublicTable
from understudy.schema import Schema, match_columns
from understudy.synthesizers import (
    SYNTHESIZERS,
    PublicUse,
    Synthesizer,
    express,
    name_of,
    synthesizer_class,
    takes_public,
)
from understudy.synthesizers.settings import settings_of
from understudy.tables import Frame, Origin, ReadOptions, SourceId, is_same_source, open_table, read_table, source_id
from understudy.tables.spark import is_spark_engine, is_spark_frame, open_spark_table

PrivateSource: TypeAlias = "Frame | str | os.PathLike[str]"
"""A pandas, polars, Arrow or Spark frame, or the path of a file or database table."""
PublicSource: TypeAlias = "Frame | str | os.PathLike[str] | Callable[[], Frame]"
"""A frame, the path of a file, or a function that returns a frame, such as a simulator."""


@dataclasses.dataclass(frozen=True)
class TableToFit:
    """A private table in the columns of its schema."""

    table: PrivateTable
    schema: Schema
    origin: Origin
    keep_types: bool
    source: SourceId
    """Where the table was read from, to compare with the source of a public table."""
    held_out: float = 0.0
    """The probability with which each unit of the declared number of rows was held out."""

    @property
    def rows_variance(self) -> float:
        """The largest variance of its number of rows around the declared one: of a binomial number of whole units."""
        rows = 0 if self.schema.rows is None else self.schema.rows
        return self.held_out * rows * self.schema.max_rows_per_unit

    @property
    def file_name(self) -> str | None:
        """The name of its file or database table; None: a frame."""
        return None if isinstance(self.source, int) else self.source.name


HoldOut: TypeAlias = Callable[[TableToFit], TableToFit]
"""Returns the table without the rows that it holds out, for the steward."""


def read_private_table(
    table: PrivateSource,
    schema: Schema | None = None,
    *,
    target: str | None = None,
    keep_types: bool = False,
    reading: ReadOptions | None = None,
    engine: str = "local",
    scratch: Scratch | None = None,
) -> TableToFit:
    """Reads a table by its schema, or drafts one from its types.

    With a declared schema, or from a file without one, the rows are read batch by batch, whenever a query needs them.
    They are read once here, so that a damaged file is refused before anything is charged. With the engine `spark`, or
    if `table` is a Spark DataFrame, the tasks of a cluster read them.
    """
    if is_on_cluster(table, engine):
        if scratch is not None:
            raise ConfigError("A Spark cluster keeps the codes of the rows itself. Leave the scratch folder out.")
        return _read_on_spark(table, schema, target=target, keep_types=keep_types, engine=engine)
    rows, origin = open_table(table, schema, keep_types=keep_types, reading=reading)
    if schema is None:
        schema = Schema.draft(rows.schema)
        rows = rows.conformed(schema)
    schema = schema if target is None else schema.with_target(target)
    match_columns(schema, rows.column_names)
    rows.check()
    _require_columns(schema)
    return TableToFit(PrivateTable(rows, scratch=scratch), schema, origin, keep_types, source_id(table))


def open_private_table(
    table: PrivateSource,
    schema: Schema,
    check_names: Callable[[Sequence[str]], None],
    *,
    reading: ReadOptions | None = None,
) -> PrivateTable:
    """Reads the columns of a declared schema from a table that may have others."""
    rows, _ = open_table(table, schema, reading=reading)
    check_names(rows.column_names)
    rows.check()
    return PrivateTable(rows)


def is_on_cluster(table: PrivateSource, engine: str) -> bool:
    """Whether the rows of this table stay on a cluster, which follows from its type and the engine alone."""
    return is_spark_engine(engine) or is_spark_frame(table)


def _read_on_spark(
    table: object, schema: Schema | None, *, target: str | None, keep_types: bool, engine: str
) -> TableToFit:
    at_end = contextlib.ExitStack()
    try:
        opened, origin = open_spark_table(table, schema, engine=engine, keep_types=keep_types, at_end=at_end)
        assert schema is not None, "refused without one"
        _require_columns(schema)
        batches = SparkBatches(opened.frame, opened.empty, at_end=at_end, check_source=opened.check_source).map(
            opened.convert
        )
        batches.check()
    except BaseException:
        at_end.close()
        raise
    schema = schema if target is None else schema.with_target(target)
    return TableToFit(PrivateTable(batches), schema, origin, keep_types, source_id(table))


def _require_columns(schema: Schema) -> None:
    if not schema.modelled:
        raise SchemaError(
            "The schema leaves no column to model: all are ids, text or dropped. Declare another kind for at least one."
        )


def read_public_table(
    public: "PublicSource | None", private: SourceId, synthesizer: Synthesizer, schema: Schema
) -> PublicTable | None:
    """The public table in the schema's columns, if one is given; refused before any query if it cannot be used.

    It is compared with the private table by source only: whether their rows are equal must not be revealed.
    """
    if public is None:
        if synthesizer.capabilities.public is PublicUse.REQUIRED:
            raise ConfigError(
                f"{express(synthesizer)} needs a public table. Name one with --public (in Python: public=), or change "
                "its settings.",
                setting="public",
            )
        return None
    if not takes_public(synthesizer):
        raise ConfigError(f"{name_of(synthesizer)} cannot use a public table. {_public_methods()}", setting="public")
    try:
        source = public() if callable(public) else public
        is_private = is_same_source(source_id(source), private)
        table, _ = read_table(source, schema)
        match_columns(schema, table.column_names)
    except UnderstudyError as error:
        error.args = (f"The public table: {error} It must have the columns of the schema.",)
        raise
    if is_private:
        raise ConfigError(
            "The public table is the private one. Training on it without noise would give no privacy. Name a "
            "public table, or omit --public (public=).",
            setting="public",
        )
    if not table.num_rows:
        raise ConfigError(
            "The public table has no rows. Use a public table with at least one row, or omit --public (public=).",
            setting="public",
        )
    return PublicTable(table)


def _public_methods() -> str:
    """Which methods take a public table, by their capabilities."""
    classes = {name: synthesizer_class(name) for name in SYNTHESIZERS}
    wrappers = [name for name, cls in classes.items() if "inner" in settings_of(cls)]
    able = [name for name, cls in classes.items() if name not in wrappers and takes_public(cls())]
    return (
        f"Methods that can: {', '.join(able)}, and {', '.join(wrappers)} around them. Leave the public table out, or "
        "choose one of them."
    )
