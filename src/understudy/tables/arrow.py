"""Parquet, Arrow and Feather files."""

import contextlib
import functools
import importlib.util
import io
import os
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.feather
import pyarrow.parquet as pq

from understudy.errors import TableError
from understudy.schema.draft import is_text
from understudy.tables.cast import in_dictionary, without_metadata
from understudy.tables.labels import label_metadata
from understudy.tables.path import TablePath
from understudy.tables.reading_batches import BatchReader, read_on
from understudy.tables.writing_batches import RECORD_ROWS, OutputBatches


def open_parquet(table_path: TablePath) -> BatchReader:
    """A Parquet file in batches; if only polars can read it, as one."""

    def read(num_rows: int) -> Iterator[pa.Table]:
        recoded = functools.partial(_parquet_batches, table_path.path, num_rows, recode=True)
        return read_on(_parquet_batches(table_path.path, num_rows), recoded)

    try:
        with pq.ParquetFile(table_path.path) as file:
            return BatchReader(_bare(file.schema_arrow), read)
    except pa.ArrowNotImplementedError:
        return BatchReader(_read_by_polars(table_path, 0).schema, lambda _: iter([_read_by_polars(table_path)]))


def _parquet_batches(path: Path, num_rows: int, *, recode: bool = False) -> Iterator[pa.Table]:
    """`recode`: columns that were written as dictionaries of strings are read as strings, and encoded again. As
    dictionaries, pyarrow refuses them if one string is not UTF-8; without its notes in the file it reads strings."""
    # Without a buffer all bytes of a row group are read at once, and a large file may have just one.
    with pq.ParquetFile(path, pre_buffer=False, buffer_size=1 << 20) as file:
        num_left, own = file.metadata.num_rows, file.schema_arrow
        coded = [f.name for f in own if recode and pa.types.is_dictionary(f.type) and is_text(f.type.value_type)]
        others = [name for name in own.names if name not in coded]
        pieces = [file.iter_batches(num_rows, columns=others)] if others else []
        if coded:
            plain = pq.ParquetFile(path, metadata=_metadata_without_notes(path), pre_buffer=False)
            pieces.append(plain.iter_batches(num_rows, columns=coded))
        for batches in zip(*pieces, strict=True):
            columns = {name: batch.column(name) for batch in batches for name in batch.schema.names}
            for name in coded:
                strings = columns[name].dictionary_encode()
                ordered = own.field(name).type.ordered
                columns[name] = pa.DictionaryArray.from_arrays(strings.indices, strings.dictionary, ordered=ordered)
            yield pa.table({name: columns[name] for name in own.names})
            num_left -= batches[0].num_rows
        if num_left:  # pyarrow takes the end of a file that was cut for the end of the table
            raise ValueError("rows are missing")  # explained by the caller


def _metadata_without_notes(path: Path) -> pq.FileMetaData:
    """The metadata of a file, in which pyarrow does not find the types from which it was written."""
    with path.open("rb") as file:
        file.seek(-8, os.SEEK_END)
        length = int.from_bytes(file.read(4), "little")
        file.seek(-8 - length, os.SEEK_END)
        return pq.read_metadata(io.BytesIO(b"PAR1" + file.read().replace(b"ARROW:schema", b"ARROW:-other")))


def open_arrow(table_path: TablePath) -> BatchReader:
    """The record batches of an Arrow file or stream; an old Feather file has none, and is read whole."""

    def read(_: int) -> Iterator[pa.Table]:
        with _open_ipc(table_path) as (reader, file):
            is_file = isinstance(reader, pa.RecordBatchFileReader)
            own = map(reader.get_batch, range(reader.num_record_batches)) if is_file else _whole_stream(reader, file)
            for batch in own:
                yield _intact(without_metadata(pa.Table.from_batches([batch])))

    with table_path.path.open("rb") as file:
        if file.read(4) == b"FEA1":
            return BatchReader.of_table(_intact(without_metadata(pa.feather.read_table(str(table_path.path)))))
    try:
        with _open_ipc(table_path) as (reader, _):
            return BatchReader(_bare(reader.schema), read)
    except pa.ArrowNotImplementedError:
        return BatchReader(_read_by_polars(table_path, 0).schema, lambda _: iter([_read_by_polars(table_path)]))


@contextlib.contextmanager
def _open_ipc(
    table_path: TablePath,
) -> "Iterator[tuple[pa.RecordBatchFileReader | pa.RecordBatchStreamReader, pa.MemoryMappedFile]]":
    """Mapped into memory: a batch may be the whole table, and then only the part in use is read."""
    with pa.memory_map(str(table_path.path)) as file:
        try:
            reader = pa.ipc.open_file(file)
        except pa.ArrowInvalid:
            file.seek(0)
            reader = pa.ipc.open_stream(file)
        with reader:
            yield reader, file


def _whole_stream(reader: pa.RecordBatchStreamReader, file: pa.MemoryMappedFile) -> Iterator[pa.RecordBatch]:
    """The batches of a stream; raises if it lacks the mark of its end.

    pyarrow takes the end of a file that was cut between two batches for the end of the stream. The mark is a few bytes
    that the reader takes after the last batch.
    """
    end_of_last = file.tell()
    for batch in reader:
        end_of_last = file.tell()
        yield batch
    if file.tell() == end_of_last:
        raise ValueError("the end is missing")  # explained by the caller


def _intact(table: pa.Table) -> pa.Table:
    """Raises if lengths, offsets or indices lead outside their buffers: pyarrow would read other memory there.

    Values are not looked at: strings need not be UTF-8, and no value of a row causes a refusal.
    """
    for column in table.columns:
        for chunk in column.chunks:
            _check_references(chunk)
    return table


def _check_references(values: pa.Array) -> None:
    """Raises where the array, or one inside it, leads outside its buffers; the caller explains what is raised.

    Each array is checked by itself, with nulls for what is inside and bytes for strings: those have no invalid values.
    """
    values.validate()
    if isinstance(values, pa.ExtensionArray):
        _check_references(values.storage)
        return
    inside = _inner_arrays(values)
    for each in inside:
        _check_references(each)
    _without_values(values, inside).validate(full=True)


def _inner_arrays(values: pa.Array) -> list[pa.Array]:
    type, types = values.type, pa.types
    if types.is_dictionary(type):
        return [values.dictionary]
    if types.is_struct(type) or types.is_union(type):
        return [values.field(at) for at in range(type.num_fields)]
    return [values.values] if types.is_nested(type) or types.is_run_end_encoded(type) else []


_BYTES = {
    **{pa.string(): pa.binary(), pa.large_string(): pa.large_binary(), pa.string_view(): pa.binary_view()},
    **{type: type for type in (pa.binary(), pa.large_binary(), pa.binary_view())},
}


_LISTS = {
    **{pa.lib.Type_LIST: pa.list_, pa.lib.Type_MAP: pa.list_, pa.lib.Type_LARGE_LIST: pa.large_list},
    **{pa.lib.Type_LIST_VIEW: pa.list_view, pa.lib.Type_LARGE_LIST_VIEW: pa.large_list_view},
}


def _without_values(values: pa.Array, inside: list[pa.Array]) -> pa.Array:
    """The lengths, offsets and indices of an array; an empty one if it has none."""
    type, types = values.type, pa.types
    if type in _BYTES:
        return values.view(_BYTES[type])
    nulls = [pa.nulls(len(each)) for each in inside]
    if types.is_dictionary(type):
        return pa.DictionaryArray.from_arrays(values.indices, nulls[0], safe=False)
    if types.is_run_end_encoded(type):
        plain, nulls = pa.run_end_encoded(type.run_end_type, pa.null()), [values.run_ends, *nulls]
    elif types.is_union(type):
        plain = pa.union([pa.field(str(at), pa.null()) for at in range(type.num_fields)], type.mode, type.type_codes)
    elif types.is_fixed_size_list(type):
        plain = pa.list_(pa.null(), type.list_size)
    elif type.id in _LISTS:
        plain = _LISTS[type.id](pa.null())
    else:
        return pa.nulls(0)
    buffers = values.buffers()[: type.num_buffers]
    return pa.Array.from_buffers(plain, len(values), buffers, offset=values.offset, children=nulls)


def _read_by_polars(table_path: TablePath, num_rows: int | None = None) -> pa.Table:
    """For 128-bit integers, which polars uses for a column with one very large value. Arrow lacks the type.

    Columns of a type that Arrow lacks become text.
    """
    if importlib.util.find_spec("polars") is None:
        raise TableError(f"{table_path} has a column type that only polars can read. Install polars.")
    import polars as pl

    read = pl.read_parquet if table_path.suffix == ".parquet" else pl.read_ipc
    frame = read(table_path.path, n_rows=num_rows)
    columns = {}
    for series in frame.get_columns():
        try:
            columns[series.name] = series.to_arrow()
        except pa.ArrowException:
            columns[series.name] = series.cast(pl.String).to_arrow()
    return pa.table(columns)


def write_parquet(batches: OutputBatches, path: Path) -> None:
    """Each batch is a row group, or several if it is very long."""
    schema = _labelled(batches.schema)
    with pq.ParquetWriter(path, schema, compression="zstd") as writer:
        for batch in batches:
            writer.write_table(pa.table(batch.columns, schema=schema))


def write_arrow(batches: OutputBatches, path: Path) -> None:
    """As Feather, version 2, is written. A file has one dictionary per column: later batches may only extend it."""
    schema = _labelled(batches.schema)
    options = pa.ipc.IpcWriteOptions(
        compression="lz4", allow_64bit=True, unify_dictionaries=True, emit_dictionary_deltas=True
    )
    known: dict[str, pa.Array] = {}
    # The file is opened here: the writer would leave it open if it cannot write its last bytes.
    with pa.OSFile(str(path), "wb") as file, pa.ipc.new_file(file, schema, options=options) as writer:
        for batch in batches:
            batch = without_metadata(batch)
            for at, field in enumerate(schema):
                if pa.types.is_dictionary(field.type):
                    batch = batch.set_column(at, field, _extend_dictionary(batch.column(at), known, field.name))
            writer.write_table(batch, max_chunksize=RECORD_ROWS)


def _extend_dictionary(values: pa.ChunkedArray, known: dict[str, pa.Array], name: str) -> pa.ChunkedArray:
    """The values with the dictionary known so far, and what this batch adds at its end."""
    if not values.num_chunks:
        return values
    dictionary = values.unify_dictionaries().chunk(0).dictionary
    before = known.get(name, dictionary)
    known[name] = pa.concat_arrays([before, dictionary.filter(pc.is_null(pc.index_in(dictionary, before)))])
    if len(known[name]) and not len(before):
        raise TableError(
            f"Column {name!r} has no values in the first batch and some in a later one, which Arrow files cannot hold. "
            "Write Parquet.",
            column=name,
        )
    return in_dictionary(values, known[name])


def _bare(schema: pa.Schema) -> pa.Schema:
    return pa.schema([field.remove_metadata() for field in schema])


def _labelled(schema: pa.Schema) -> pa.Schema:
    """Without metadata, except for the label of a synthetic table."""
    label = label_metadata(schema)
    return _bare(schema).with_metadata(label) if label else _bare(schema)
