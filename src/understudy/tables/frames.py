"""Frames of pandas, polars and pyarrow: what goes in comes out."""

import contextlib
import os
import re
from collections.abc import Mapping
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
    given_back,
    in_declared_type,
    inner_form,
    is_zoned,
    read_kind,
)
from understudy.tables.cells import read_cells
from understudy.tables.origins import Origin
from understudy.tables.places import require_names, require_typed
from understudy.tables.reading import read_table
from understudy.tables.spelling import restyle
from understudy.tables.texts import cell_text

if TYPE_CHECKING:
    import pandas as pd
    import polars as pl

Frame: TypeAlias = "pd.DataFrame | pl.DataFrame | pa.Table"


def as_arrow(
    table: "Frame | str | os.PathLike[str]", schema: Schema | None = None, *, keep_types: bool = False
) -> tuple[pa.Table, Origin]:
    """A frame, or the file or database table that a path names, as Arrow, and what it was."""
    if isinstance(table, str | os.PathLike):
        return read_table(table if isinstance(table, str) else Path(table), schema=schema, keep_types=keep_types)
    return from_frame(table, schema=schema, keep_types=keep_types)


def from_frame(frame: object, *, schema: Schema | None = None, keep_types: bool = False) -> tuple[pa.Table, Origin]:
    """A pandas, polars or pyarrow table (or another that narwhals knows) as Arrow, and what it was.

    With a schema each column is read as the declared kind, as by `conform`. With a declared schema the types of the
    origin are those of the kinds: the libraries choose their own by the values. `keep_types` keeps the frame's.
    """
    if isinstance(frame, pa.RecordBatch):
        frame = pa.Table.from_batches([frame])
    if isinstance(frame, pa.Table):
        require_names(frame.column_names, "The table")
        return _entered(frame, "pyarrow", schema=schema, keep_types=keep_types)
    if _is_pandas(frame):
        return _from_pandas(cast("pd.DataFrame", frame), schema, keep_types=keep_types)
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
        return _from_pandas(native.to_pandas(), schema, keep_types=keep_types)
    library = "polars" if native.implementation.is_polars() else "pyarrow"
    dtypes = {}
    if library == "polars":
        dtypes = {name: dtype.base_type().__name__ for name, dtype in native.to_native().schema.items()}
    require_names(native.columns, "The frame")
    columns = {name: _arrow_column(native[name], _declared(schema, name)) for name in native.columns}
    return _entered(pa.table(columns), library, dtypes, schema=schema, keep_types=keep_types)


def _declared(schema: Schema | None, name: str) -> Column | None:
    """A column of a declared schema; None where kinds are drafted."""
    if schema is None or schema.drafted:
        return None
    return schema[name] if name in schema else Column(name=name, kind="text")  # will be refused later, by its name


def _arrow_column(series: nw.Series, column: Column | None) -> pa.Array | pa.ChunkedArray:
    """A series as Arrow; if Arrow does not have its type, its cells, each read as declared."""
    try:
        if series.dtype != nw.Object:  # for which polars returns addresses
            return series.to_arrow()
        reason = "objects"
    except Exception as error:  # each library has its own; none may speak, for they quote values
        reason = type(error).__name__
    if column is not None:
        return read_cells(series.to_list(), column)
    raise TableError(f"Column {series.name!r} is of a type that Arrow cannot hold ({reason}). Convert it first.")


def _entered(
    table: pa.Table,
    library: str,
    dtypes: Mapping[str, str] | None = None,
    *,
    schema: Schema | None = None,
    keep_types: bool = False,
    own: pa.Schema | None = None,
) -> tuple[pa.Table, Origin]:
    """The table in its inner form; `own` are the types to give back, where they are not those of the table."""
    dtypes = dict(dtypes or {})
    table = bare(table)
    own = table.schema if own is None else own
    inside = inner_form(table)
    if schema is None:
        require_typed(table, "The table")
        return inside, Origin.of(own, library, dtypes=dtypes)
    conformed = conform(inside, schema)
    back = given_back(own, conformed.schema, schema, keep_types=keep_types)
    if not (schema.drafted or keep_types):
        dtypes = {field.name: _dtype_of_kind(schema[field.name]) for field in back} if library == "pandas" else {}
    elif not schema.drafted:
        dtypes = {field.name: _kept_dtype(dtypes.get(field.name, ""), schema, field, own) for field in back}
    return conformed, Origin.of(back, library, dtypes=dtypes)


def _kept_dtype(dtype: str, schema: Schema, back: pa.Field, own: pa.Schema) -> str:
    """The frame library's type for the column given back: that of the frame, if it can hold the values."""
    if read_kind(schema[back.name]) in WHOLE and dtype in ("Float32", "Float64"):
        return "Int64"
    # A type that cannot hold what is given back is none.
    return dtype if pa.types.is_dictionary(back.type) or own.field(back.name).type == back.type else ""


def _is_pandas(frame: object) -> bool:
    return nw.dependencies.is_pandas_dataframe(frame)


def _from_pandas(frame: "pd.DataFrame", schema: Schema | None, *, keep_types: bool = False) -> tuple[pa.Table, Origin]:
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
        column = _declared(schema, name)
        if column is None and schema is not None and name in schema and schema[name].kind == "id":
            column = schema[name] if _is_typed_by_values(series.dtype) else None
        if column is None:
            columns[name] = _pandas_column(series)
            held = columns[name].type
            guessed = series.dtype == object and pa.types.is_decimal(held)  # its precision follows from the values
            held, dtypes[name] = pa.float64() if guessed else held, _pandas_dtype(series.dtype)
        else:
            columns[name] = _read_series(series, column)
            held, dtypes[name] = pa.int64() if column.kind == "id" else columns[name].type, _dtype_of_kind(column)
            if keep_types:
                held, dtypes[name] = _own_type(series, column, held)
        own.append(pa.field(name, held))
    return _entered(pa.table(columns), "pandas", dtypes, schema=schema, keep_types=keep_types, own=pa.schema(own))


def _is_typed_by_values(dtype: object) -> bool:
    """Whether pandas takes such a type from the values: one more row, and integers are floats, or objects."""
    import pandas as pd

    if isinstance(dtype, pd.CategoricalDtype):
        return _is_typed_by_values(dtype.categories.dtype)
    if isinstance(dtype, pd.SparseDtype):
        return isinstance(dtype.subtype, np.dtype)
    return isinstance(dtype, np.dtype) or (isinstance(dtype, pd.StringDtype) and dtype.na_value is not pd.NA)


def _dtype_of_kind(column: Column) -> str:
    """The pandas type of a declared kind; that of texts has no name here, for it is another in each pandas."""
    moment = "datetime64[us, UTC]" if is_zoned(column) else "datetime64[us]"
    kinds = {"integer": "int64", "real": "float64", "boolean": "bool", "date": "datetime64[us]", "datetime": moment}
    return "int64" if column.kind == "id" else kinds.get(read_kind(column), "")


def _own_type(series: "pd.Series", column: Column, read: pa.DataType) -> tuple[pa.DataType, str]:
    """The type of a series, in Arrow and as pandas names it; for objects and plain text, that of the kind."""
    import pandas as pd

    dtype, name = series.dtype, _dtype_of_kind(column)
    held = dtype.categories.dtype if isinstance(dtype, pd.CategoricalDtype) else dtype
    if not (pd.api.types.is_object_dtype(held) or (isinstance(held, pd.StringDtype) and held.na_value is not pd.NA)):
        return _pandas_column(series.iloc[:0]).type, _pandas_dtype(dtype)
    if isinstance(dtype, pd.CategoricalDtype) and column.modelled:
        name = f"category[{name}]{' ordered' if dtype.ordered else ''}"
    return read, name


def _read_series(series: "pd.Series", column: Column) -> pa.ChunkedArray:
    """A column in the type of its declared kind, each cell by its own type: as a column of that type would be read."""
    import pandas as pd

    if isinstance(series.dtype, pd.CategoricalDtype):
        listed = _read_series(pd.Series(series.dtype.categories), column).combine_chunks()
        codes = pa.array(series.cat.codes.to_numpy())
        return pa.chunked_array([listed.take(pc.if_else(pc.less(codes, 0), None, codes))], listed.type)
    if isinstance(series.dtype, pd.SparseDtype):
        series = series.sparse.to_dense()
    if isinstance(series.dtype, np.dtype) and series.dtype.kind in "biufM":
        numbers = series.astype("float64") if series.dtype.kind == "f" else series
        return in_declared_type(pa.chunked_array([pa.array(numbers, from_pandas=True)]), column)
    if isinstance(series.dtype, np.dtype):
        with contextlib.suppress(pa.ArrowException, UnicodeEncodeError, ArithmeticError):  # if all are strings
            texts = pa.array(series.to_numpy(dtype=object), pa.string(), from_pandas=True)
            return in_declared_type(pa.chunked_array([texts]), column)
        return read_cells(series.to_numpy(dtype=object), column)
    with contextlib.suppress(pa.ArrowException, UnicodeEncodeError, ArithmeticError, TypeError):
        values = pa.array(series, from_pandas=True)
        if not isinstance(values.type, pa.BaseExtensionType):  # only pandas knows what these mean
            return in_declared_type(_inner(values), column)
    return read_cells(series.to_numpy(dtype=object), column)


def read_column(values: object, column: Column) -> pa.ChunkedArray:
    """One column apart from its table, as `from_frame` would read it there: an array, a series, or a plain sequence.

    The type does not depend on the values: it is that of the declared kind.
    """
    if nw.dependencies.is_pandas_series(values):
        return _read_series(cast("pd.Series", values), column)
    if nw.dependencies.is_polars_series(values):
        series = nw.from_native(cast("pl.Series", values), series_only=True)
        return in_declared_type(_inner(_arrow_column(series, column)), column)
    if isinstance(values, pa.Array | pa.ChunkedArray):
        return in_declared_type(_inner(values), column)
    cells = np.asarray(values) if hasattr(values, "__array__") else np.asarray(values, dtype=object)
    if cells.dtype.kind in "biuf":
        numbers = cells.astype("float64") if cells.dtype.kind == "f" else cells
        return in_declared_type(_inner(pa.array(numbers)), column)
    return read_cells(cells.astype(object), column)


def _inner(values: pa.Array | pa.ChunkedArray) -> pa.ChunkedArray:
    return inner_form(pa.table({"values": values})).column(0)


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
