"""Frames of pandas, polars and pyarrow: what goes in comes out."""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias, cast

import narwhals as nw
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from understudy.errors import TableError
from understudy.schema import Schema, is_text
from understudy.tables.casting import WHOLE, as_type, bare, conform, given_back, inner_form, read_kind
from understudy.tables.origins import Origin
from understudy.tables.places import require_names
from understudy.tables.spelling import restyle
from understudy.tables.texts import untyped

if TYPE_CHECKING:
    import pandas as pd
    import polars as pl

Frame: TypeAlias = "pd.DataFrame | pl.DataFrame | pa.Table"


def from_frame(frame: object, *, schema: Schema | None = None) -> tuple[pa.Table, Origin]:
    """A pandas, polars or pyarrow table (or another that narwhals knows) as Arrow, and what it was.

    With a schema each column is read as the declared kind, as by `conform`. The types of the origin are the frame's
    own, except those that pandas takes from the values: objects, and floats where integers are declared.
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
    objects: Sequence[str] = (),
) -> tuple[pa.Table, Origin]:
    """The table in its inner form; the types of `objects` were guessed from their values."""
    if table.num_rows == 0:
        raise TableError("The table has columns but no rows. It needs at least one row.")
    dtypes = dict(dtypes or {})
    own = pa.schema([_plain_field(field.remove_metadata(), dtypes.get(field.name, "")) for field in table.schema])
    table = bare(table)
    if schema is None:
        return inner_form(table), Origin.of(own, library, dtypes=dtypes)
    if not schema.drafted:
        own = pa.schema([untyped(field) if field.name in objects else field for field in own])
        dtypes = {name: _declared_dtype(dtype, schema, name) for name, dtype in dtypes.items()}
    inside = inner_form(table)
    fields = [f.with_metadata(g.metadata) for f, g in zip(inside.schema, own, strict=True)]
    conformed = conform(pa.table(inside.columns, schema=pa.schema(fields)), schema)
    return conformed, Origin.of(given_back(own, conformed.schema, schema), library, dtypes=dtypes)


def _plain_field(field: pa.Field, dtype: str) -> pa.Field:
    """A categorical column's codes as wide as any: pandas and polars choose their width by the number of categories."""
    if pa.types.is_dictionary(field.type) and (dtype.startswith("category") or dtype in ("Enum", "Categorical")):
        return field.with_type(pa.dictionary(pa.int32(), field.type.value_type, field.type.ordered))
    return field


def _declared_dtype(dtype: str, schema: Schema, name: str) -> str:
    """The pandas type that a column would have without nulls: a missing value must not show in the origin."""
    column = schema[name] if name in schema and schema[name].modelled else None
    kind = None if column is None else read_kind(column)
    if kind == "boolean" and dtype == "object":
        return "bool"
    if kind in WHOLE:
        return {"float": "int64", "Float": "Int64"}.get(dtype.rstrip("0123456789"), dtype)
    return dtype


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
    columns = {name: _pandas_column(frame[name]) for name in frame.columns}
    dtypes = {name: _pandas_dtype(frame[name].dtype) for name in frame.columns}
    objects = [name for name, dtype in dtypes.items() if dtype == "object"]
    return _entered(pa.table(columns), "pandas", dtypes, schema=schema, objects=objects)


def _pandas_column(series: "pd.Series") -> pa.ChunkedArray | pa.Array:
    import pandas as pd

    if isinstance(series.dtype, pd.SparseDtype):
        series = series.sparse.to_dense()
    try:
        values = pa.array(series, from_pandas=True)
    except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError, OverflowError):
        if series.dtype != object:
            raise TableError(
                f"Column {series.name!r} has dtype {series.dtype}, which has no Arrow type. Convert it first."
            ) from None
        return pa.array(series.map(str, na_action="ignore"), pa.string(), from_pandas=True)  # a mixture: as texts
    if isinstance(values.type, pa.BaseExtensionType):
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
