"""What callers pass to an estimator as X and y: frames, arrays and labels of any kind, read by public rules.

An error about a value would reveal it, so values are never refused and no message quotes one.
"""

from collections.abc import Sized
from typing import TYPE_CHECKING, cast

import narwhals as nw
import numpy as np
import pyarrow as pa
from scipy import sparse
from sklearn.utils.validation import check_array, column_or_1d

from understudy.errors import ConfigError
from understudy.schema import Column, Schema
from understudy.tables import read_column, read_table

if TYPE_CHECKING:
    from understudy.tables import Frame


def column_names(X: object) -> tuple[str, ...] | None:
    """Names of a frame's columns; None for anything else, and for frames whose names are not strings."""
    names = getattr(X, "column_names", None)
    if names is None:
        names = getattr(X, "columns", None)
    names = None if names is None or callable(names) else tuple(names)
    return names if names and all(isinstance(name, str) for name in names) else None


def count_columns(X: object) -> int:
    """The number of columns, which is public: by the form of X, unless it is a list or is refused."""
    shape: tuple[int, ...] = getattr(X, "shape", ())
    dtype = getattr(X, "dtype", None)
    is_readable = len(shape) == 2 and getattr(dtype, "kind", "f") != "c"
    if is_readable:
        return int(shape[1])
    if isinstance(X, list | tuple) and X and isinstance(X[0], list | tuple):
        return len(X[0])  # of the first row alone; rows of other lengths are refused when they are read
    return int(as_floats(X).shape[1])


def read_frame(X: object, schema: Schema) -> pa.Table:
    """X as an Arrow table, if it is a frame or a path."""
    if column_names(X) is None and not isinstance(X, str) and not hasattr(X, "__fspath__"):
        raise ConfigError(
            f"With a schema, X must be a pandas, polars or Arrow table, found {type(X).__name__}.", setting="X"
        )
    return read_table(cast("Frame", X), schema)[0]


def require_equal_lengths(num_rows: int, labels: Sized) -> None:
    """The number of rows is private, so the message does not contain it."""
    if num_rows != len(labels):
        raise ValueError("X and y have inconsistent numbers of samples. Pass one label for each row.")


def as_floats(X: object) -> np.ndarray:
    """A two-dimensional array of numbers, finite or not. Cells that are not numbers become NaN, one by one."""
    if isinstance(X, pa.Table):
        X = np.stack([column.to_numpy() for column in X.columns], axis=1)
    elif column_names(X) is not None and not hasattr(X, "__array__"):
        X = nw.from_native(cast("Frame", X)).to_numpy()
    if not sparse.issparse(X):
        array = np.asarray(X) if hasattr(X, "__array__") else np.asarray(X, dtype=object)
        if array.ndim != 2:
            array = np.zeros(array.shape)  # refused by its shape, in a message that quotes the array
        elif array.dtype.kind not in "biufc":
            columns = [read_column(cells, Column(name="x", kind="real")).to_numpy() for cells in array.T]
            array = np.array(columns, dtype=np.float64).reshape(array.T.shape).T
        X = array
    return check_array(X, dtype=np.float64, ensure_all_finite=False, ensure_min_samples=0)


def as_cells(y: object) -> Sized:
    """Labels as a sequence, each with its own type: a common type would depend on all of their values."""
    if isinstance(y, pa.Array) or nw.dependencies.is_into_series(y):
        return y
    return column_or_1d(np.asarray(y) if hasattr(y, "__array__") else np.asarray(y, dtype=object), warn=True)


def as_bounds(bounds: object, count: int) -> list[tuple[float, float]]:
    """A pair (low, high) for each column, from one pair for all columns or one for each."""
    try:
        given = np.asarray(bounds, dtype=np.float64)
    except (TypeError, ValueError):
        given = np.empty(0)
    if given.shape == (2,):
        given = np.tile(given, (count, 1))
    if given.shape != (count, 2) or not np.isfinite(given).all() or not (given[:, 0] < given[:, 1]).all():
        raise ConfigError(
            f"Bounds must be one pair (low, high) for all {count} columns or a pair for each column, low below high.",
            setting="bounds",
        )
    return [(float(low), float(high)) for low, high in given]
