"""Parquet, Arrow and Feather files."""

import contextlib
import importlib.util
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.feather
import pyarrow.parquet as pq

from understudy.errors import TableError
from understudy.tables.cast import in_dictionary, without_metadata
from understudy.tables.labels import label_metadata
from understudy.tables.location import TableLocation
from understudy.tables.reading_batches import BatchReader
from understudy.tables.writing_batches import RECORD_ROWS, OutputBatches


def read_parquet(location: TableLocation) -> pa.Table:
    try:
        return without_metadata(pq.ParquetFile(location.path).read())
    except pa.ArrowNotImplementedError:
        return _read_by_polars(location)


def read_arrow(location: TableLocation) -> pa.Table:
    try:
        try:
            return _intact(without_metadata(pa.feather.read_table(str(location.path))))
        except pa.ArrowInvalid:  # a stream and not a file
            with pa.memory_map(str(location.path)) as file, pa.ipc.open_stream(file) as reader:
                return _intact(without_metadata(pa.Table.from_batches(_whole_stream(reader, file), reader.schema)))
    except pa.ArrowNotImplementedError:
        return _read_by_polars(location)


def open_parquet(location: TableLocation) -> BatchReader:
    """A Parquet file in batches; if only polars can read it, as one."""

    def read(num_rows: int) -> Iterator[pa.Table]:
        # Without a buffer all bytes of a row group are read at once, and a large file may have just one.
        with pq.ParquetFile(location.path, pre_buffer=False, buffer_size=1 << 20) as file:
            num_left = file.metadata.num_rows
            for batch in file.iter_batches(num_rows):
                yield without_metadata(pa.Table.from_batches([batch]))
                num_left -= batch.num_rows
            if num_left:  # pyarrow takes the end of a file that was cut for the end of the table
                raise ValueError("rows are missing")  # explained by the caller

    try:
        with pq.ParquetFile(location.path) as file:
            return BatchReader(_bare(file.schema_arrow), read)
    except pa.ArrowNotImplementedError:
        return BatchReader(_read_by_polars(location, 0).schema, lambda _: iter([_read_by_polars(location)]))


def open_arrow(location: TableLocation) -> BatchReader | None:
    """The record batches of an Arrow file or stream; None: an old Feather file, which has none."""

    def read(_: int) -> Iterator[pa.Table]:
        with _open_ipc(location) as (reader, file):
            is_file = isinstance(reader, pa.RecordBatchFileReader)
            own = map(reader.get_batch, range(reader.num_record_batches)) if is_file else _whole_stream(reader, file)
            for batch in own:
                yield _intact(without_metadata(pa.Table.from_batches([batch])))

    with location.path.open("rb") as file:
        if file.read(4) == b"FEA1":
            return None
    try:
        with _open_ipc(location) as (reader, _):
            return BatchReader(_bare(reader.schema), read)
    except pa.ArrowNotImplementedError:
        return BatchReader(_read_by_polars(location, 0).schema, lambda _: iter([_read_by_polars(location)]))


@contextlib.contextmanager
def _open_ipc(
    location: TableLocation,
) -> "Iterator[tuple[pa.RecordBatchFileReader | pa.RecordBatchStreamReader, pa.MemoryMappedFile]]":
    """Mapped into memory: a batch may be the whole table, and then only the part in use is read."""
    with pa.memory_map(str(location.path)) as file:
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

    Values are not looked at: texts need not be UTF-8, and no value of a row causes a refusal.
    """
    for column in table.columns:
        for chunk in column.chunks:
            chunk.validate()
            _as_bytes(chunk).validate(full=_has_references(chunk.type))  # the caller explains what it raises
    return table


def _has_references(type: pa.DataType) -> bool:
    """Whether the values of this type are found by offsets or indices."""
    return pa.types.is_dictionary(type) or pa.types.is_nested(type) or type in _BYTES or type in _BYTES.values()


_BYTES = {pa.string(): pa.binary(), pa.large_string(): pa.large_binary(), pa.string_view(): pa.binary_view()}


def _as_bytes(values: pa.Array) -> pa.Array:
    """The same buffers in a type that has no invalid values."""
    if pa.types.is_dictionary(values.type):
        return pa.DictionaryArray.from_arrays(values.indices, _as_bytes(values.dictionary), safe=False)
    plain = _plain_type(values.type)
    return values if plain == values.type else values.view(plain)


def _plain_type(type: pa.DataType) -> pa.DataType:
    """Bytes for texts, decimals and times, also inside lists, structs and maps."""
    types = pa.types
    if type in _BYTES:
        return _BYTES[type]
    if types.is_decimal(type) or types.is_temporal(type):
        return pa.binary(type.bit_width // 8)
    if types.is_struct(type):
        return pa.struct([(field.name, _plain_type(field.type)) for field in type])
    if types.is_map(type):
        return pa.list_(pa.struct([("key", _plain_type(type.key_type)), ("value", _plain_type(type.item_type))]))
    if types.is_fixed_size_list(type):
        return pa.list_(_plain_type(type.value_type), type.list_size)
    lists = ((types.is_list, pa.list_), (types.is_large_list, pa.large_list), (types.is_list_view, pa.list_view))
    make = next((make for is_kind, make in lists if is_kind(type)), None)
    return type if make is None else make(_plain_type(type.value_type))


def _read_by_polars(location: TableLocation, num_rows: int | None = None) -> pa.Table:
    """For 128-bit integers, which polars uses for a column with one very large value. Arrow lacks the type.

    Columns of a type that Arrow lacks become text.
    """
    if importlib.util.find_spec("polars") is None:
        raise TableError(f"{location} has a column type that only polars can read. Install polars.")
    import polars as pl

    read = pl.read_parquet if location.suffix == ".parquet" else pl.read_ipc
    frame = read(location.path, n_rows=num_rows)
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
    own = values.unify_dictionaries().chunk(0).dictionary
    before = known.get(name, own)
    known[name] = pa.concat_arrays([before, own.filter(pc.is_null(pc.index_in(own, before)))])
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
