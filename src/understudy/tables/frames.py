"""Data frames of pandas, polars and pyarrow: read as Arrow, and converted back to the same library."""

import contextlib
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias, cast

import narwhals as nw
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from understudy.errors import TableError, raise_alone
from understudy.schema import Column, Schema
from understudy.schema.draft import is_text
from understudy.tables.cast import (
    WHOLE,
    as_declared_type,
    as_type,
    conform,
    is_zoned,
    normalize,
    normalize_column,
    output_schema,
    value_kind,
    without_metadata,
)
from understudy.tables.cell_tables import read_cells
from understudy.tables.cells import cell_text
from understudy.tables.formatting import restyle
from understudy.tables.infer import infer_text_dates, mark_untyped
from understudy.tables.labels import label_metadata
from understudy.tables.origin import Origin
from understudy.tables.path import require_names, require_types

if TYPE_CHECKING:
    import pandas as pd
    import polars as pl

Frame: TypeAlias = "pd.DataFrame | pl.DataFrame | pa.Table"


def from_frame(frame: object, *, schema: Schema | None = None, keep_types: bool = False) -> tuple[pa.Table, Origin]:
    """Reads a pandas, polars or pyarrow table, or another that narwhals supports.

    With a schema each column is read as the declared kind, as by `conform`. With a declared schema the types of the
    origin are those of the kinds, since the libraries choose their own by the values. `keep_types` keeps the frame's.
    """
    if isinstance(frame, pa.RecordBatch):
        frame = pa.Table.from_batches([frame])
    if isinstance(frame, pa.RecordBatchReader):
        frame = frame.read_all()
    if isinstance(frame, pa.Table):
        require_names(frame.column_names, "The table")
        return _to_internal(frame, "pyarrow", schema=schema, keep_types=keep_types)
    if nw.dependencies.is_pandas_dataframe(frame):
        return _from_pandas(cast("pd.DataFrame", frame), schema, keep_types=keep_types)
    try:
        native = nw.from_native(frame)  # type: ignore[call-overload]  # what is no frame is refused below
    except (TypeError, ValueError):
        hint = " Read files with read_table." if isinstance(frame, str | Path) else ""
        raise TableError(
            "Expected a pandas, polars or pyarrow table,"
            f" found {type(frame).__module__}.{type(frame).__qualname__}.{hint}"
        ) from None
    if isinstance(native, nw.LazyFrame):
        with explain_library(reads_rows=False):
            native.collect_schema()
        with explain_library():
            native = native.collect()
    if not isinstance(native, nw.DataFrame):
        raise TableError(f"Expected a table, found one column ({type(frame).__qualname__}). Put it in a data frame.")
    if native.implementation.is_pandas_like():
        return _from_pandas(native.to_pandas(), schema, keep_types=keep_types)
    library = "polars" if native.implementation.is_polars() else "pyarrow"
    schema_of = native.to_native().schema if library == "polars" else {}
    dtypes = {name: dtype.base_type().__name__ for name, dtype in schema_of.items()}
    require_names(native.columns, "The frame")
    columns = {name: _arrow_column(native[name], _declared_column(schema, name)) for name in native.columns}
    return _to_internal(pa.table(columns), library, dtypes, schema=schema, keep_types=keep_types)


@contextlib.contextmanager
def explain_library(*, reads_rows: bool = True) -> Iterator[None]:
    """Replaces the errors of a library that computes a lazy frame, which may quote rows, by a `TableError`.

    Before any row is read, the name of an absent column can only be from the query itself, and is kept.
    """
    try:
        yield
    except Exception as error:
        kind, absent = type(error).__name__, None
        if kind == "ColumnNotFoundError" and not reads_rows:
            absent = re.search('"([^"\n]{1,100})"', str(error).partition("\n")[0])
        why = kind if absent is None else f"{kind}: there is no column {absent[1]!r}"
        raise_alone(
            TableError(f"The rows of the table cannot be computed ({why}). Compute it first, and give the result.")
        )


def _declared_column(schema: Schema | None, name: str) -> Column | None:
    """The column of a declared schema; None if kinds are drafted."""
    if schema is None or schema.drafted:
        return None
    return schema[name] if name in schema else Column(name=name, kind="text")  # refused later, by `match_columns`


def _arrow_column(series: nw.Series[Any], column: Column | None) -> pa.Array | pa.ChunkedArray:
    """A series as Arrow; if Arrow does not have its type, each cell is read as declared."""
    try:
        if series.dtype != nw.Object:  # polars would return addresses of these
            return series.to_arrow()
        reason = "objects"
    except Exception as error:  # each library has its own, and their messages may quote values
        reason = type(error).__name__
    if column is not None:
        return read_cells(series.to_list(), column)
    raise TableError(
        f"Column {series.name!r} has a type that Arrow cannot hold ({reason}). Convert it first.", column=series.name
    )


def _to_internal(
    table: pa.Table,
    library: str,
    dtypes: Mapping[str, str] | None = None,
    *,
    schema: Schema | None = None,
    keep_types: bool = False,
    own: pa.Schema | None = None,
) -> tuple[pa.Table, Origin]:
    """The table in the internal types, and its origin; `own` are its original types, if not those of `table`."""
    dtypes = dict(dtypes or {})
    table = without_metadata(table)
    own = table.schema if own is None else own
    internal = normalize(table)
    if schema is None:
        require_types(table, "The table")
        internal, own = infer_text_dates(internal, own)
        return internal, Origin.of(own, library, dtypes=dtypes)
    conformed = conform(internal, schema)
    back = output_schema(own, conformed.schema, schema, keep_types=keep_types)
    if not (schema.drafted or keep_types):
        dtypes = {field.name: _dtype_of_kind(schema[field.name]) for field in back} if library == "pandas" else {}
    elif not schema.drafted:
        dtypes = {field.name: _kept_dtype(dtypes.get(field.name, ""), schema, field, own) for field in back}
    return conformed, Origin.of(back, library, dtypes=dtypes)


def _kept_dtype(dtype: str, schema: Schema, back: pa.Field, own: pa.Schema) -> str:
    """The library's type of a synthetic column: that of the frame, if it can hold the values."""
    if value_kind(schema[back.name]) in WHOLE and dtype in ("Float32", "Float64"):
        return "Int64"
    return dtype if pa.types.is_dictionary(back.type) or own.field(back.name).type == back.type else ""


def _from_pandas(frame: "pd.DataFrame", schema: Schema | None, *, keep_types: bool = False) -> tuple[pa.Table, Origin]:
    import pandas as pd

    if isinstance(frame.columns, pd.MultiIndex):
        raise TableError("The column index is a MultiIndex, expected plain names. Join its levels first.")
    odd = [type(name).__name__ for name in frame.columns if not isinstance(name, str)]
    if odd:
        raise TableError(
            f"Column names must be strings, found {odd[0]}. Convert them: frame.columns = frame.columns.astype(str)."
        )
    require_names(list(frame.columns), "The frame")
    if isinstance(frame.index, pd.MultiIndex) or frame.index.name is not None:
        raise TableError(
            "The index has a name, but an index is not a column. Use reset_index() to make it one, or"
            " reset_index(drop=True) to remove it."
        )
    columns, dtypes, own = {}, {}, []
    for name in frame.columns:
        series = frame[name]
        if isinstance(series.dtype, pd.SparseDtype):
            series = series.sparse.to_dense()
        column = _declared_column(schema, name)
        if column is None and schema is not None and name in schema and schema[name].kind == "id":
            column = schema[name] if _is_typed_by_values(series.dtype) else None
        if column is None:
            columns[name] = _pandas_column(series)
            arrow_type = columns[name].type
            if series.dtype == object and pa.types.is_decimal(arrow_type):  # its precision follows from the values
                arrow_type = pa.float64()
            dtypes[name] = _pandas_dtype(series.dtype)
        else:
            columns[name] = _read_series(series, column)
            arrow_type, dtypes[name] = pa.int64() if column.kind == "id" else columns[name].type, _dtype_of_kind(column)
            if keep_types:
                arrow_type, dtypes[name] = _own_type(series, column, arrow_type)
        field = pa.field(name, arrow_type)
        own.append(mark_untyped(field) if schema is None and _is_mixed(series, arrow_type) else field)
    return _to_internal(pa.table(columns), "pandas", dtypes, schema=schema, keep_types=keep_types, own=pa.schema(own))


def _is_mixed(series: "pd.Series", arrow_type: pa.DataType) -> bool:
    """Whether a column that becomes text holds objects of other types too, such as numbers and "unknown"."""
    return series.dtype == object and is_text(arrow_type) and not {*map(type, series.dropna())} <= {str}


def _is_typed_by_values(dtype: object) -> bool:
    """Whether pandas chooses this type by the values: one more row can turn integers into floats or objects."""
    import pandas as pd

    if isinstance(dtype, pd.CategoricalDtype):
        return _is_typed_by_values(dtype.categories.dtype)
    return isinstance(dtype, np.dtype) or (isinstance(dtype, pd.StringDtype) and dtype.na_value is not pd.NA)


def _dtype_of_kind(column: Column) -> str:
    """The pandas dtype of a declared kind; empty for text, whose dtype depends on the version of pandas."""
    timestamps = "datetime64[us, UTC]" if is_zoned(column) else "datetime64[us]"
    kinds = {"integer": "int64", "real": "float64", "boolean": "bool", "date": "datetime64[us]", "datetime": timestamps}
    return "int64" if column.kind == "id" else kinds.get(value_kind(column), "")


def _own_type(series: "pd.Series", column: Column, read: pa.DataType) -> tuple[pa.DataType, str]:
    """The type of a series, in Arrow and in pandas; for objects and plain strings, that of the kind."""
    import pandas as pd

    dtype, name = series.dtype, _dtype_of_kind(column)
    arrow_type = dtype.categories.dtype if isinstance(dtype, pd.CategoricalDtype) else dtype
    if not (
        pd.api.types.is_object_dtype(arrow_type)
        or (isinstance(arrow_type, pd.StringDtype) and arrow_type.na_value is not pd.NA)
    ):
        return _pandas_column(series.iloc[:0]).type, _pandas_dtype(dtype)
    if isinstance(dtype, pd.CategoricalDtype) and column.modelled:
        name = f"category[{name}]{' ordered' if dtype.ordered else ''}"
    return read, name


def _read_series(series: "pd.Series", column: Column) -> pa.ChunkedArray:
    """A column in the type of its declared kind, each cell read by its own type, as in a column of that type."""
    import pandas as pd

    if isinstance(series.dtype, pd.CategoricalDtype):
        listed = _read_series(pd.Series(series.dtype.categories), column).combine_chunks()
        codes = pa.array(series.cat.codes.to_numpy())
        return pa.chunked_array([listed.take(pc.if_else(pc.less(codes, 0), None, codes))], listed.type)
    if isinstance(series.dtype, np.dtype) and series.dtype.kind in "biufM":
        numbers = series.astype("float64") if series.dtype.kind == "f" else series
        return as_declared_type(pa.chunked_array([pa.array(numbers, from_pandas=True)]), column)
    if isinstance(series.dtype, np.dtype):
        with contextlib.suppress(pa.ArrowException, UnicodeEncodeError, ArithmeticError):  # if all are strings
            strings = pa.array(series.to_numpy(dtype=object), pa.string(), from_pandas=True)
            return as_declared_type(pa.chunked_array([strings]), column)
        return read_cells(series.to_numpy(dtype=object), column)
    with contextlib.suppress(pa.ArrowException, UnicodeEncodeError, ArithmeticError, TypeError):
        values = pa.array(series, from_pandas=True)
        if not isinstance(values.type, pa.BaseExtensionType):  # only pandas can interpret these
            return as_declared_type(_normalize(values), column)
    return read_cells(series.to_numpy(dtype=object), column)


def read_column(values: object, column: Column) -> pa.ChunkedArray:
    """One array, series or sequence, read as `from_frame` would read it as a column of a table.

    The type is that of the declared kind and does not depend on the values.
    """
    if nw.dependencies.is_pandas_series(values):
        return _read_series(cast("pd.Series", values), column)
    if nw.dependencies.is_polars_series(values):
        return as_declared_type(_normalize(_arrow_column(nw.from_native(values, series_only=True), column)), column)
    if isinstance(values, pa.Array | pa.ChunkedArray):
        return as_declared_type(_normalize(values), column)
    cells = np.asarray(values) if hasattr(values, "__array__") else np.asarray(values, dtype=object)
    if cells.dtype.kind in "biuf":
        numbers = cells.astype("float64") if cells.dtype.kind == "f" else cells
        return as_declared_type(_normalize(pa.array(numbers)), column)
    return read_cells(cells.astype(object), column)


def _normalize(values: pa.Array | pa.ChunkedArray) -> pa.ChunkedArray:
    return normalize_column(values if isinstance(values, pa.ChunkedArray) else pa.chunked_array([values]))


def _pandas_column(series: "pd.Series") -> pa.ChunkedArray | pa.Array:
    import pandas as pd

    try:
        values = pa.array(series, from_pandas=True)
    except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError, OverflowError, UnicodeEncodeError):
        if series.dtype != object and not isinstance(series.dtype, pd.StringDtype):
            raise TableError(
                f"Column {series.name!r} has dtype {series.dtype}, which has no Arrow type. Convert it first.",
                column=str(series.name),
            ) from None
        return pa.array(map(cell_text, series), pa.string())  # mixed types
    if isinstance(getattr(values.type, "value_type", values.type), pa.BaseExtensionType):
        raise TableError(
            f"Column {series.name!r} has dtype {series.dtype}, which is not supported. Convert it to dates or text.",
            column=str(series.name),
        )
    return values


def _pandas_dtype(dtype: object) -> str:
    """The name of a pandas dtype, from which pandas can restore it; of a Categorical, without its categories."""
    import pandas as pd

    if isinstance(dtype, pd.CategoricalDtype):
        return f"category[{_pandas_dtype(dtype.categories.dtype)}]{' ordered' if dtype.ordered else ''}"
    if isinstance(dtype, pd.ArrowDtype):
        return "ArrowDtype"
    if isinstance(dtype, pd.StringDtype) and dtype.na_value is pd.NA:
        return f"string[{dtype.storage}]"
    return str(dtype)


def to_frame(table: pa.Table, origin: Origin) -> Frame:
    """The table in the library and the column types of its origin.

    Categories are those of the table's dictionaries, or its sorted values: never those of the original frame. The label
    of a synthetic table is in the schema metadata of an Arrow table, and in `attrs` of a pandas frame. A polars frame
    has no place for it.
    """
    table = restyle(table, origin)
    dtypes = [origin.columns[name].dtype if name in origin.columns else "" for name in table.column_names]
    if origin.library == "pandas":
        frame = _to_pandas(table, dtypes)
        frame.attrs |= label_metadata(table.schema)
        return frame
    if origin.library == "polars":
        return _to_polars(table, dtypes)
    return table


def _to_pandas(table: pa.Table, dtypes: Sequence[str]) -> "pd.DataFrame":
    import pandas as pd

    columns = dict(zip(table.column_names, map(_pandas_series, table.columns, dtypes), strict=True))
    return pd.DataFrame(columns, index=pd.RangeIndex(table.num_rows), copy=False)


def _pandas_series(values: pa.ChunkedArray, dtype: str) -> "pd.Series":
    """One column in a pandas dtype; integers and booleans with nulls take the nullable dtype."""
    import pandas as pd

    if match := re.fullmatch(r"category\[(.*)\]( ordered)?", dtype):
        return _pandas_categorical(values, match[1], ordered=match[2] is not None)
    if dtype == "ArrowDtype":
        return pd.Series(pd.arrays.ArrowExtensionArray(values))
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
    categories = _pandas_series(pa.chunked_array([dictionary]), dtype)
    filled = pc.fill_null(codes.cast(pa.int64()), -1).to_numpy()
    return pd.Series(pd.Categorical.from_codes(filled, categories=pd.Index(categories), ordered=ordered))


def _to_polars(table: pa.Table, dtypes: Sequence[str]) -> "pl.DataFrame":
    import polars as pl

    columns = []
    for name, values, dtype in zip(table.column_names, table.columns, dtypes, strict=True):
        if dtype not in ("Enum", "Categorical"):
            columns.append(pl.Series(name, pl.from_arrow(values)))
            continue
        if not pa.types.is_dictionary(values.type):
            values = as_type(values, pa.dictionary(pa.int32(), pa.string()))
        values = values.unify_dictionaries()
        categories = values.chunk(0).dictionary.cast(pa.string()).to_pylist() if values.num_chunks else []
        strings = pl.Series(name, pl.from_arrow(values.cast(pa.large_string())))
        columns.append(strings.cast(pl.Enum(categories) if dtype == "Enum" else pl.Categorical))
    return pl.DataFrame(columns)
