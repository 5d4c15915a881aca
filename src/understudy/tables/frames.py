"""Frames of pandas, polars and pyarrow: what goes in comes out."""

import math
import os
import re
from collections.abc import Mapping
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias, cast

import narwhals as nw
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from understudy.errors import TableError
from understudy.schema import Column, Schema, is_text
from understudy.tables.casting import (
    WHOLE,
    as_type,
    bare,
    conform,
    declared_type,
    given_back,
    in_declared_type,
    inner_form,
    is_zoned,
    read_kind,
)
from understudy.tables.origins import Origin
from understudy.tables.places import require_names
from understudy.tables.reading import read_table
from understudy.tables.spelling import restyle
from understudy.tables.texts import MOST, cell_text, plain_cell

if TYPE_CHECKING:
    import pandas as pd
    import polars as pl

Frame: TypeAlias = "pd.DataFrame | pl.DataFrame | pa.Table"


def as_arrow(table: "Frame | str | os.PathLike[str]", schema: Schema | None = None) -> tuple[pa.Table, Origin]:
    """A frame, or the file or database table that a path names, as Arrow, and what it was."""
    if isinstance(table, str | os.PathLike):
        return read_table(table if isinstance(table, str) else Path(table), schema=schema)
    return from_frame(table, schema=schema)


def from_frame(frame: object, *, schema: Schema | None = None) -> tuple[pa.Table, Origin]:
    """A pandas, polars or pyarrow table (or another that narwhals knows) as Arrow, and what it was.

    With a schema each column is read as the declared kind, as by `conform`. The types of the origin are the frame's
    own, except those that pandas takes from the values (those of NumPy, objects, and lists of categories): with a
    declared schema such a column is read cell by cell, and its type is that of its kind.
    """
    if isinstance(frame, pa.RecordBatch):
        frame = pa.Table.from_batches([frame])
    if isinstance(frame, pa.Table):
        require_names(frame.column_names, "The table")
        return _entered(frame, "pyarrow", schema=schema)
    if _is_pandas(frame):
        return _from_pandas(cast("pd.DataFrame", frame), schema)
    try:
        native = nw.from_native(frame)  # type: ignore[call-overload]
    except (TypeError, ValueError):
        hint = " Read files with read_table." if isinstance(frame, str | Path) else ""
        raise TableError(
            "Expected a pandas, polars or pyarrow table,"
            f" found {type(frame).__module__}.{type(frame).__qualname__}.{hint}"
        ) from None
    if isinstance(native, nw.LazyFrame):
        native = native.collect()
    if not isinstance(native, nw.DataFrame):
        raise TableError(f"Expected a table, found one column ({type(frame).__qualname__}). Put it into a frame.")
    if native.implementation.is_pandas_like():
        return _from_pandas(native.to_pandas(), schema)
    library = "polars" if native.implementation.is_polars() else "pyarrow"
    dtypes = {}
    if library == "polars":
        dtypes = {name: dtype.base_type().__name__ for name, dtype in native.to_native().schema.items()}
    try:
        table = native.to_arrow()
    except Exception as error:  # each library has its own; none may speak, for they quote values
        raise TableError(
            f"This {type(frame).__qualname__} has a column that Arrow cannot hold ({type(error).__name__})."
        ) from None
    return _entered(table, library, dtypes, schema=schema)


def _entered(
    table: pa.Table,
    library: str,
    dtypes: Mapping[str, str] | None = None,
    *,
    schema: Schema | None = None,
    own: pa.Schema | None = None,
) -> tuple[pa.Table, Origin]:
    """The table in its inner form; `own` are the types to give back, where they are not those of the table."""
    if table.num_rows == 0:
        raise TableError("The table has columns but no rows. It needs at least one row.")
    dtypes = dict(dtypes or {})
    table = bare(table)
    own = table.schema if own is None else own
    inside = inner_form(table)
    if schema is None:
        return inside, Origin.of(own, library, dtypes=dtypes)
    conformed = conform(inside, schema)
    back = given_back(own, conformed.schema, schema)
    if not schema.drafted:
        dtypes = {field.name: _declared_dtype(dtypes.get(field.name, ""), schema, field, own) for field in back}
    return conformed, Origin.of(back, library, dtypes=dtypes)


def _declared_dtype(dtype: str, schema: Schema, back: pa.Field, own: pa.Schema) -> str:
    """The frame library's type for what is given back: a missing value must not show in it."""
    if read_kind(schema[back.name]) in WHOLE and dtype in ("Float32", "Float64"):
        return "Int64"
    # A type that cannot hold what is given back is none.
    return dtype if pa.types.is_dictionary(back.type) or own.field(back.name).type == back.type else ""


def _is_pandas(frame: object) -> bool:
    return nw.dependencies.is_pandas_dataframe(frame)


def _from_pandas(frame: "pd.DataFrame", schema: Schema | None) -> tuple[pa.Table, Origin]:
    import pandas as pd

    if isinstance(frame.columns, pd.MultiIndex):
        raise TableError("The frame's columns are a MultiIndex, expected plain names. Join their levels first.")
    odd = [type(name).__name__ for name in frame.columns if not isinstance(name, str)]
    if odd:
        raise TableError(
            f"Column names must be texts, found {odd[0]}. Rename them: frame.columns = frame.columns.astype(str)."
        )
    require_names(list(frame.columns), "The frame")
    if isinstance(frame.index, pd.MultiIndex) or frame.index.name is not None:
        raise TableError(
            "The frame's index has a name, and an index is no column. Use reset_index() to make it one,"
            " or reset_index(drop=True) to leave it out."
        )
    columns, dtypes, own = {}, {}, []
    for name in frame.columns:
        series = frame[name]
        column = schema[name] if schema is not None and name in schema else None
        as_cells = schema is not None and (not schema.drafted or (column is not None and column.kind == "id"))
        if as_cells and _is_typed_by_values(series.dtype):
            column = column or Column(name=name, kind="text")  # it will be refused for its name
            columns[name] = _read_cells(series, column)
            dtypes[name] = _dtype_of_kind(series.dtype, column)
            own.append(pa.field(name, pa.int64() if column.kind == "id" else columns[name].type))
            continue
        columns[name] = _pandas_column(series)
        dtypes[name] = _pandas_dtype(series.dtype)
        held = columns[name].type
        guessed = series.dtype == object and pa.types.is_decimal(held)  # its digits are those of the values
        own.append(pa.field(name, pa.float64() if guessed else held))
    return _entered(pa.table(columns), "pandas", dtypes, schema=schema, own=pa.schema(own))


def _is_typed_by_values(dtype: object) -> bool:
    """Whether pandas takes such a type from the values: one more row, and integers are floats, or objects."""
    import pandas as pd

    if isinstance(dtype, pd.CategoricalDtype):
        return _is_typed_by_values(dtype.categories.dtype)
    if isinstance(dtype, pd.SparseDtype):
        return isinstance(dtype.subtype, np.dtype)
    return isinstance(dtype, np.dtype) or (isinstance(dtype, pd.StringDtype) and dtype.na_value is not pd.NA)


def _dtype_of_kind(dtype: object, column: Column) -> str:
    """The pandas type of a declared kind; that of texts has no name here, for it is another in each pandas."""
    import pandas as pd

    moment = "datetime64[us, UTC]" if is_zoned(column) else "datetime64[us]"
    kinds = {"integer": "int64", "real": "float64", "boolean": "bool", "date": "datetime64[us]", "datetime": moment}
    name = "int64" if column.kind == "id" else kinds.get(read_kind(column), "")
    if isinstance(dtype, pd.CategoricalDtype) and column.modelled:
        return f"category[{name}]{' ordered' if dtype.ordered else ''}"
    return name


def _read_cells(series: "pd.Series", column: Column) -> pa.ChunkedArray:
    """A column in the type of its declared kind, each cell by its own type: as a column of that type would be read."""
    import pandas as pd

    if isinstance(series.dtype, pd.CategoricalDtype):
        listed = _read_cells(pd.Series(series.dtype.categories), column).combine_chunks()
        codes = pa.array(series.cat.codes.to_numpy())
        return pa.chunked_array([listed.take(pc.if_else(pc.less(codes, 0), None, codes))], listed.type)
    if isinstance(series.dtype, pd.SparseDtype):
        series = series.sparse.to_dense()
    if isinstance(series.dtype, np.dtype) and series.dtype.kind in "biufM":
        numbers = series.astype("float64") if series.dtype.kind == "f" else series
        values = pa.chunked_array([pa.array(numbers, from_pandas=True)])
        return in_declared_type(values, column if column.modelled else Column(name=column.name, kind="categorical"))
    cells = series.to_numpy(dtype=object)
    try:
        texts = pa.chunked_array([pa.array(cells, pa.string(), from_pandas=True)])
    except (pa.ArrowException, UnicodeEncodeError, ArithmeticError):  # not all are texts
        return _read_mixture(cells, column)
    return in_declared_type(texts, column) if column.modelled else texts


def read_column(values: object, column: Column) -> pa.ChunkedArray:
    """One column apart from its table, as `from_frame` would read it there: an array, a series, or a plain sequence.

    No type is taken from the values: those of a sequence or of an array of objects are read one by one, by the declared
    kind. Arrow and polars have types of their own.
    """
    if nw.dependencies.is_pandas_series(values):
        series = cast("pd.Series", values)
        return _read_cells(series, column) if _is_typed_by_values(series.dtype) else _inner(_pandas_column(series))
    if nw.dependencies.is_polars_series(values):
        try:
            return _inner(cast("pl.Series", values).to_arrow())
        except Exception as error:  # it may quote values
            raise TableError(f"Arrow cannot hold this series ({type(error).__name__}).") from None
    if isinstance(values, pa.Array | pa.ChunkedArray):
        return _inner(values)
    cells = np.asarray(values) if hasattr(values, "__array__") else np.asarray(values, dtype=object)
    if cells.dtype.kind in "biuf":
        numbers = cells.astype("float64") if cells.dtype.kind == "f" else cells
        return in_declared_type(_inner(pa.array(numbers)), column)
    return _read_mixture(cells.astype(object), column)


def _inner(values: pa.Array | pa.ChunkedArray) -> pa.ChunkedArray:
    return inner_form(pa.table({"values": values})).column(0)


_CELL_TYPES = {
    "text": pa.string(),
    "truth": pa.bool_(),
    "integer": pa.int64(),
    "real": pa.float64(),
    "day": pa.date32(),
    "moment": pa.timestamp("us"),
    "placed": pa.timestamp("us", "UTC"),
}


def _read_mixture(cells: np.ndarray, column: Column) -> pa.ChunkedArray:
    """Cells of any types: those of one type are read together, and put back in their places."""
    target = declared_type(column)
    if pa.types.is_string(target):
        return pa.chunked_array([pa.array(map(cell_text, cells), target)])
    groups: dict[str, list] = {name: [] for name in _CELL_TYPES}
    places: dict[str, list[int]] = {name: [] for name in _CELL_TYPES}
    for place, cell in enumerate(cells):
        name, value = _typed_cell(cell)
        if name:
            groups[name].append(value)
            places[name].append(place)
    read = [
        in_declared_type(pa.chunked_array([pa.array(values, _CELL_TYPES[name])]), column)
        for name, values in groups.items()
        if values
    ]
    order = np.full(len(cells), -1)
    order[[place for listed in places.values() for place in listed]] = np.arange(sum(map(len, places.values())))
    return pa.chunked_array([chunk for part in read for chunk in part.chunks], target).take(
        pa.array(order, mask=order < 0)
    )


def _typed_cell(cell: object) -> tuple[str, object]:
    """The name of a cell's type, and its value; no name for a null, and for what is no plain value."""
    cell = plain_cell(cell)
    match cell:
        case str():
            return "text", cell
        case bool():
            return "truth", cell
        case Decimal():
            whole = cell == cell.to_integral_value()
            return _typed_cell(int(cell)) if whole else ("real", float(cell))
        case int() if cell.bit_length() > 1023:  # beyond the floats
            return "real", math.copysign(math.inf, cell > 0 or -1)
        case int():
            return ("integer", int(cell)) if -MOST <= cell <= MOST else ("real", float(cell))
        case float():
            return "real", cell
        case datetime():
            return "placed" if cell.tzinfo else "moment", cell
        case date():
            return "day", cell
    return "", None


def _pandas_column(series: "pd.Series") -> pa.ChunkedArray | pa.Array:
    import pandas as pd

    if isinstance(series.dtype, pd.SparseDtype):
        series = series.sparse.to_dense()
    try:
        values = pa.array(series, from_pandas=True)
    except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError, OverflowError, UnicodeEncodeError):
        if isinstance(series.dtype, pd.StringDtype):
            return pa.array(map(cell_text, series), pa.string())
        if series.dtype != object:
            raise TableError(
                f"Column {series.name!r} has dtype {series.dtype}, which has no Arrow type. Convert it first."
            ) from None
        return pa.array(map(cell_text, series), pa.string())  # a mixture: as texts
    if isinstance(getattr(values.type, "value_type", values.type), pa.BaseExtensionType):
        raise TableError(
            f"Column {series.name!r} has dtype {series.dtype}, which is not supported. Convert it to dates or text."
        )
    return values


def _pandas_dtype(dtype: object) -> str:
    """The name of a pandas dtype, from which pandas makes it again; of a Categorical, without its categories."""
    import pandas as pd

    if isinstance(dtype, pd.CategoricalDtype):
        return f"category[{_pandas_dtype(dtype.categories.dtype)}]{' ordered' if dtype.ordered else ''}"
    if isinstance(dtype, pd.SparseDtype):
        return str(dtype.subtype)
    if isinstance(dtype, pd.ArrowDtype):
        return "ArrowDtype"
    if isinstance(dtype, pd.StringDtype) and dtype.na_value is pd.NA:
        return f"string[{dtype.storage}]"
    return str(dtype)


def to_frame(table: pa.Table, origin: Origin) -> Frame:
    """The table in the library and with the column types of its origin.

    Categories are those of the given table's dictionaries, or its values in order: never those of the original frame.
    """
    table = restyle(table, origin)
    if origin.library == "pandas":
        return _to_pandas(table, origin)
    if origin.library == "polars":
        return _to_polars(table, origin)
    return table


def _to_pandas(table: pa.Table, origin: Origin) -> "pd.DataFrame":
    import pandas as pd

    columns = {
        name: _pandas_series(values, origin.columns[name].dtype if name in origin.columns else "", origin)
        for name, values in zip(table.column_names, table.columns, strict=True)
    }
    return pd.DataFrame(columns, index=pd.RangeIndex(table.num_rows), copy=False)


def _pandas_series(values: pa.ChunkedArray, dtype: str, origin: Origin) -> "pd.Series":
    """One column by the name of its pandas dtype; numbers that meet nulls become their nullable kin."""
    import pandas as pd

    if match := re.fullmatch(r"category\[(.*)\]( ordered)?", dtype):
        return _pandas_categorical(values, match[1], ordered=match[2] is not None)
    if dtype == "ArrowDtype":
        return pd.Series(pd.arrays.ArrowExtensionArray(values))  # type: ignore[attr-defined]
    if dtype == "object" or dtype == "":
        if dtype and is_text(values.type):
            return pd.Series(values.to_numpy(), dtype=object)  # nulls as None
        return values.to_pandas().astype(object) if dtype else values.to_pandas()
    wanted = pd.api.types.pandas_dtype(dtype)
    if values.null_count and getattr(wanted, "kind", "") in "iub" and isinstance(wanted, np.dtype):
        nullable = {"bool": "boolean"}.get(dtype, dtype.replace("uint", "UInt").replace("int", "Int"))
        wanted = pd.api.types.pandas_dtype(nullable)
    if isinstance(wanted, np.dtype):
        if wanted.kind == "M" and pa.types.is_date(values.type):
            values = values.cast(pa.timestamp("s")).cast(pa.timestamp("us"))
        series = values.to_pandas()
        narrower = wanted.kind in "iu" and not np.can_cast(series.dtype, wanted)
        return series if narrower or (wanted.kind in "Mm" and series.dtype.kind not in "Mm") else series.astype(wanted)
    if hasattr(wanted, "__from_arrow__"):
        return pd.Series(wanted.__from_arrow__(values))
    return values.to_pandas()


def _pandas_categorical(values: pa.ChunkedArray, dtype: str, *, ordered: bool) -> "pd.Series":
    import pandas as pd

    if not pa.types.is_dictionary(values.type):
        values = as_type(values, pa.dictionary(pa.int32(), values.type))
    values = values.unify_dictionaries()
    dictionary = values.chunk(0).dictionary if values.num_chunks else pa.array([], values.type.value_type)
    codes = pa.chunked_array([c.indices for c in values.chunks], values.type.index_type)
    categories = _pandas_series(pa.chunked_array([dictionary]), dtype, Origin(library="pandas", columns={}))
    filled = pc.fill_null(codes.cast(pa.int64()), -1).to_numpy()
    return pd.Series(pd.Categorical.from_codes(filled, categories=pd.Index(categories), ordered=ordered))


def _to_polars(table: pa.Table, origin: Origin) -> "pl.DataFrame":
    import polars as pl

    columns = []
    for name, values in zip(table.column_names, table.columns, strict=True):
        dtype = origin.columns[name].dtype if name in origin.columns else ""
        if dtype not in ("Enum", "Categorical"):
            columns.append(pl.Series(name, pl.from_arrow(values)))
            continue
        if not pa.types.is_dictionary(values.type):
            values = as_type(values, pa.dictionary(pa.int32(), pa.string()))
        values = values.unify_dictionaries()
        categories = values.chunk(0).dictionary.cast(pa.string()).to_pylist() if values.num_chunks else []
        texts = pl.Series(name, pl.from_arrow(values.cast(pa.large_string())))
        columns.append(texts.cast(pl.Enum(categories) if dtype == "Enum" else pl.Categorical))
    return pl.DataFrame(columns)
