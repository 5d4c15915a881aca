"""Folders of Parquet files that are one table, as Spark, Dask and DuckDB write them."""

import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple
from urllib.parse import unquote

import pyarrow as pa

from understudy.errors import TableError
from understudy.tables.arrow import open_parquet
from understudy.tables.infer import mark_untyped
from understudy.tables.path import TablePath, explain_errors, require_names
from understudy.tables.reading_batches import BatchReader, Version, version_of

_NULL = "__HIVE_DEFAULT_PARTITION__"


class _Part(NamedTuple):
    path: Path
    values: Mapping[str, str | None]
    """By its folders: of `year=2020/month=5/0.parquet` the year and the month, as text. Each is a column."""
    label: TablePath
    """Its path for messages: without these values, which are those of rows."""


def version_now(table_path: TablePath) -> Version:
    """The version of the files of a table. A server has none: there, all passes are in one transaction."""
    if table_path.suffix == "postgres":
        return ()
    with explain_errors(table_path):
        return version_of(
            [part.path for part in _list_parts(table_path.path)] if table_path.is_folder else [table_path.path]
        )


def open_parquet_folder(table_path: TablePath, *, is_declared: bool) -> BatchReader:
    """The files one after another, each column in a type that holds its values in all files.

    With a declared schema (`is_declared`) a column with different types in them counts as one without a type: each file
    is then converted by itself.
    """
    parts, readers = _open_parts(table_path)
    differing = _differing([reader.types for reader in readers])
    if is_declared:
        fields = [mark_untyped(pa.field(f.name, pa.string())) if f.name in differing else f for f in readers[0].types]
        return BatchReader(
            pa.schema(fields), lambda num_rows: (batch for reader in readers for batch in reader.read(num_rows))
        )
    try:
        empty = pa.concat_tables([reader.types.empty_table() for reader in readers], promote_options="permissive")
    except pa.ArrowException:
        name = differing[0]
        raise TableError(
            f"{table_path}: column {name!r} has types in two of the {len(parts)} files that no one type can hold. Write"
            " it in one type, or declare its kind in a schema.",
            column=name,
        ) from None

    def read(num_rows: int) -> Iterator[pa.Table]:
        for reader in readers:
            for batch in reader.read(num_rows):
                yield pa.concat_tables([empty, batch], promote_options="permissive")

    return BatchReader(empty.schema, read)


def _differing(schemas: Sequence[pa.Schema]) -> list[str]:
    """The columns whose types are not the same in all of them."""
    return [f.name for f in schemas[0] if any(schema.field(f.name).type != f.type for schema in schemas)]


def _list_parts(folder: Path) -> list[_Part]:
    """The Parquet files of a folder, sorted by name; raises if there is none, or anything else.

    What begins with a dot or an underscore is a note of the program that wrote the folder, and is left out.
    """
    parts = list(_walk(folder, {}, TablePath(folder, ".parquet")))
    if not parts:
        raise TableError(f"{folder} is a folder, expected a file or a folder of Parquet files. There is none in it.")
    for part in parts:
        if list(part.values) != list(parts[0].values):
            raise TableError(
                f"{part.label} is not in the same sort of folder as {parts[0].label}, so it has other columns. Expected"
                " all files at one depth."
            )
    return parts


def _walk(folder: Path, values: Mapping[str, str | None], label: TablePath) -> Iterator[_Part]:
    """The files in a folder and in its `name=value` folders."""
    for entry in sorted(os.scandir(folder), key=lambda entry: entry.name):
        name, equals, value = entry.name.partition("=")
        if entry.name in ("_delta_log", "_temporary"):
            raise TableError(
                f"{label} holds {entry.name}, so some of its files may not be part of the table. Write the table anew,"
                " as plain Parquet files."
            )
        if entry.name.startswith((".", "_")):
            continue
        if entry.is_dir() and equals:
            more = {**values, unquote(name): None if value == _NULL else unquote(value)}
            yield from _walk(Path(entry.path), more, TablePath(label.path / f"{name}=*", ".parquet"))
        elif entry.is_file() and entry.name.lower().endswith((".parquet", ".pq")):
            yield _Part(Path(entry.path), values, TablePath(label.path / entry.name, ".parquet"))
        else:
            raise TableError(f"{label} holds {entry.name!r}, expected Parquet files alone. Move it to another folder.")


def _open_parts(table_path: TablePath) -> tuple[list[_Part], list[BatchReader]]:
    """All files; raises unless they have the same columns, in whatever order."""
    parts = _list_parts(table_path.path)
    readers = [_open_part(part) for part in parts]
    names = readers[0].types.names
    for part, reader in zip(parts, readers, strict=True):
        _require_columns(part, reader.types.names, names, parts[0])
    return parts, [_in_order(reader, names) for reader in readers]


def _open_part(part: _Part) -> BatchReader:
    with explain_errors(part.label):
        types, read_file, _ = open_parquet(TablePath(part.path, ".parquet"))
    added = [mark_untyped(pa.field(name, pa.string())) for name in part.values]
    require_names([*types.names, *part.values], str(part.label))

    def read(num_rows: int) -> Iterator[pa.Table]:
        with explain_errors(part.label):
            for batch in read_file(num_rows):
                for field, value in zip(added, part.values.values(), strict=True):
                    batch = batch.append_column(field, pa.repeat(pa.scalar(value, pa.string()), batch.num_rows))
                yield batch

    return BatchReader(pa.schema([*types, *added]), read)


def _require_columns(part: _Part, names: Sequence[str], expected: Sequence[str], first: _Part) -> None:
    absent, more = [[n for n in a if n not in b] for a, b in ((expected, names), (names, expected))]
    if absent or more:
        name = (absent + more)[0]
        verb = "lacks" if absent else "has"
        raise TableError(
            f"{part.label} {verb} column {name!r}, unlike {first.label}. Expected the same columns in all files of a"
            " folder. Write it again, or move it to another folder.",
            column=name,
        )


def _in_order(reader: BatchReader, names: Sequence[str]) -> BatchReader:
    """The same with its columns in this order."""
    types = pa.schema([reader.types.field(name) for name in names])
    return BatchReader(types, lambda num_rows: (batch.select(names) for batch in reader.read(num_rows)))
