"""No value of a row ends a run: one odd row more makes no table refused, and changes no other row of it.

Every type of Arrow with extreme and invalid values, as every kind of column, from every source that holds the type.
600 tables with the default suite, of every type some; every type as every kind with `make long-test`; 30,000 with
`make fuzz`.
"""

import itertools
import os
import random
from collections.abc import Callable
from functools import partial
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from tests.fuzz.arrow_values import all_types, values_of
from tests.tables.test_reading_is_rowwise import ALSO_UNMODELLED, Read, outcome
from tests.tables.test_stream import sizes
from understudy.errors import UnderstudyError
from understudy.privacy.rows.units import rows_within_units
from understudy.schema import Column, Schema
from understudy.tables import Origin, from_frame, read_table
from understudy.tables.cast import as_declared_type

NUMBER = 3 * int(os.environ.get("UNDERSTUDY_FUZZ", "200"))
UNIT = "unit"
Make = Callable[[pa.Table, Path], Read]


def in_memory(table: pa.Table, path: Path) -> Read:
    return partial(from_frame, table)


def as_parquet(table: pa.Table, path: Path) -> Read:
    pq.write_table(table, path.with_suffix(".parquet"))
    return partial(read_table, path.with_suffix(".parquet"))


def as_arrow(table: pa.Table, path: Path, *, stream: bool) -> Read:
    with (pa.ipc.new_stream if stream else pa.ipc.new_file)(path.with_suffix(".arrow"), table.schema) as writer:
        writer.write_table(table)
    return partial(read_table, path.with_suffix(".arrow"))


def in_batches(table: pa.Table, path: Path, *, make: Make) -> Read:
    """Row by row."""
    whole = make(table, path)

    def read(schema: Schema) -> tuple[pa.Table, Origin]:
        with sizes(rows=1):
            return whole(schema=schema)

    return read


SOURCES: dict[str, Make] = {
    "memory": in_memory,
    "parquet": as_parquet,
    "arrow file": partial(as_arrow, stream=False),
    "arrow stream": partial(as_arrow, stream=True),
    "batches of parquet": partial(in_batches, make=as_parquet),
    "batches of an arrow stream": partial(in_batches, make=partial(as_arrow, stream=True)),
}


def found_in(read: Read, kind: str) -> object:
    """What a run sees of the first two rows, or why it refuses the table. Any other error is one of Understudy."""
    try:
        if kind == UNIT:
            schema = Schema(columns=(Column(name="x", kind="id"), Column(name="y", kind="integer")), unit="x")
            rows_within_units([read(schema=schema)[0]], "x", ["y"], 1)
            return "read"
        column = ALSO_UNMODELLED[kind]
        values, codes, type, origin = outcome(read, column)
        return values.slice(0, 2).to_string() if column.modelled else "", codes[:2], type, origin
    except UnderstudyError as error:
        return str(error)


def fault_of(type: pa.DataType, kind: str, source: str, seed: int, folder: Path) -> str | None:
    """How the table without the odd rows differs from the one with them; None: not at all."""
    rng = random.Random(f"{type} {seed}")
    plain, odd = values_of(type, 2, False, rng), values_of(type, 8, True, rng)
    columns = pa.chunked_array([plain]), pa.chunked_array([plain, odd])
    tables = [pa.table({"x": column, "y": pa.array([1] * len(column))}) for column in columns]
    try:
        reads = [SOURCES[source](table, folder / str(at)) for at, table in enumerate(tables)]
    except (pa.ArrowException, OSError):  # the format cannot hold this type or these values
        return None
    try:
        without, with_odd = (found_in(read, kind) for read in reads)
    except Exception as error:
        return f"{type}, {kind}, {source}, {seed}: {error!r}"
    return None if without == with_odd else f"{type}, {kind}, {source}, {seed}: {without} and {with_odd}"


def test_no_value_of_any_type_ends_a_run(tmp_path: Path) -> None:
    types, rng = all_types(), random.Random(0)
    cases = [
        (types[at % len(types)], rng.choice([*ALSO_UNMODELLED, UNIT]), rng.choice([*SOURCES])) for at in range(NUMBER)
    ]
    assert {type for type, _, _ in cases} == set(types)
    faults = [fault_of(*case, at, tmp_path) for at, case in enumerate(cases)]
    assert not list(filter(None, faults)), "\n".join(filter(None, faults))


def test_no_value_of_any_type_as_any_kind_ends_a_run(tmp_path: Path) -> None:
    cases = itertools.product(all_types(), [*ALSO_UNMODELLED, UNIT])
    sources = itertools.cycle(SOURCES)
    faults = [fault_of(type, kind, next(sources), 7, tmp_path) for type, kind in cases]
    assert not list(filter(None, faults)), "\n".join(filter(None, faults))


TIMES = (pa.time32("s"), pa.time32("ms"), pa.time64("us"), pa.time64("ns"))
INVALID = (*TIMES, pa.date64(), pa.decimal32(5, 2), pa.decimal64(10, -2), pa.string(), pa.string_view())
"""Types with values that a file can hold and Arrow itself refuses."""


@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.parametrize("wrap", ["plain", "dictionary", "runs", "extension", "union"])
def test_invalid_values(source: str, wrap: str, tmp_path: Path) -> None:
    for type in INVALID:
        held = {
            "plain": type,
            "dictionary": pa.dictionary(pa.int8(), type),
            "runs": pa.run_end_encoded(pa.int32(), type),
            "extension": pa.opaque(type, "t", "v"),
            "union": pa.dense_union([pa.field("f", type)]),
        }[wrap]
        faults = [fault_of(held, kind, source, 1, tmp_path) for kind in ("texts", "missing", "datetime", UNIT)]
        assert not any(faults), faults


@pytest.mark.parametrize(
    "error",
    [pa.ArrowInvalid, pa.ArrowTypeError, OverflowError, ValueError, ZeroDivisionError, KeyError, duckdb.DataError],
)
def test_one_value_that_no_conversion_expects_is_null_alone(
    error: type[Exception], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever a value does to a conversion of a library, the other rows stay as they are."""
    whole = pc.round

    def fails_on_seven(values: pa.ChunkedArray) -> pa.ChunkedArray:
        if 7.0 in values.to_pylist():
            raise error("7")
        return whole(values)

    monkeypatch.setattr(pc, "round", fails_on_seven)
    values = pa.chunked_array([[1.0, 2.0, 7.0], [3.0, 7.0]])
    read = as_declared_type(values, Column(name="x", kind="integer", bounds=(0, 9)))
    assert read.to_pylist() == [1, 2, None, 3, None]
