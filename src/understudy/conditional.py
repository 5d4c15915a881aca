"""Sampling under a condition: synthetic rows that meet an SQL WHERE clause, distributed as the model's rows that do.

Each conjunct over a single column is turned into the codes that it allows, and the model samples among these. What the
codes do not decide (conditions over several columns, values inside a bin) is left to rejection. Excluding codes that
cannot meet the condition changes no odds among the rows that do, so the accepted rows follow the conditional
distribution exactly.
"""

import re
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import TypeAlias

import numpy as np
import pyarrow as pa
from jaxtyping import Bool, PRNGKeyArray

from understudy.encoding import CategoricalCodec, Codec, NumericCodec, number_ids
from understudy.errors import ConditionError
from understudy.models.protocol import Allowed
from understudy.models.rejection import propose_until
from understudy.schema import Schema
from understudy.tables import (
    Conjunct,
    Constant,
    Origin,
    filter_where,
    output_decimals,
    restyle_within_bounds,
    where_columns,
)

Draw: TypeAlias = Callable[[int, PRNGKeyArray, Allowed | None], pa.Table]
"""Draws this many rows with this key, of those whose codes are allowed."""


def sample_where(draw: Draw, num_rows: int, where: str, *, codec: Codec, origin: Origin, key: PRNGKeyArray) -> pa.Table:
    """`num_rows` rows that meet the condition in the form in which they are written. Ids are numbered from 1."""
    allowed = allowed_codes(where, codec, origin)

    def propose(size: int, batch_key: PRNGKeyArray) -> tuple[pa.Table, int]:
        rows = draw(size, batch_key, allowed)
        rows = rows.filter(pa.array(rows_meeting(where, rows, codec, origin)))
        return rows, rows.num_rows

    accepted = pa.concat_tables(propose_until(num_rows, propose, key=key)).slice(0, num_rows)
    return number_ids(accepted, codec.schema, np.arange(num_rows))  # not those of the proposed rows


def rows_meeting(where: str, rows: pa.Table, codec: Codec, origin: Origin) -> Bool[np.ndarray, " rows"]:
    """Which decoded rows meet the condition in the form in which they are written."""
    modelled = rows.select([column.name for column in codec.columns])
    return filter_where(restyle_within_bounds(modelled, origin, codec.schema), where)


def allowed_codes(where: str, codec: Codec, origin: Origin) -> dict[str, np.ndarray]:
    """For each column that a conjunct is about, the codes that some value meeting it can have."""
    columns = {column.name: column for column in codec.columns}
    allowed: dict[str, np.ndarray] = {}
    # Ids cannot be part of a condition: they number the rows that are returned.
    for conjunct in where_columns(where, tuple(columns)):
        if len(conjunct.columns) != 1:
            continue
        column = columns[conjunct.columns[0]]
        mask = _codes_meeting(conjunct, column, codec.schema, origin)
        if mask is None:
            continue
        allowed[column.name] = allowed.get(column.name, np.ones(column.size, dtype=bool)) & mask
        if not allowed[column.name].any():
            raise ConditionError(
                f"No row can meet the condition: it excludes every value of {column.name!r}.{_describe_values(column)}",
                column=column.name,
            )
    return allowed


def _codes_meeting(
    conjunct: Conjunct, column: CategoricalCodec | NumericCodec, schema: Schema, origin: Origin
) -> np.ndarray | None:
    """Which codes can meet a condition on this column alone; None if that is unknown."""
    if isinstance(column, CategoricalCodec):  # each code is one value: evaluate the condition on all of them
        categories = column.decode(np.arange(column.size), generator=np.random.default_rng(0))
        output = restyle_within_bounds(pa.table({column.name: categories}), origin, schema)
        return filter_where(output, conjunct.sql)
    return column.bins_that_can(*_widen(conjunct, _resolution(origin, column)))


def _resolution(origin: Origin, column: NumericCodec) -> float:
    """How far the output may move a value: by rounding to decimals, or to the type of the original column."""
    known = origin.columns.get(column.name)
    if known is None or column.kind not in ("real", "datetime"):
        return 0.0
    if column.kind == "datetime":
        units = {"timestamp[s": 10**6, "timestamp[ms": 10**3, "date": 86_400 * 10**6}
        return next((microseconds for start, microseconds in units.items() if known.arrow.startswith(start)), 0)
    decimals = output_decimals(origin, column.name)
    if decimals is not None:
        return 10.0**-decimals
    largest = max(abs(column.histogram.grid.lower), abs(column.histogram.grid.upper))
    scale = re.fullmatch(r"decimal\d+\(\d+, (-?\d+)\)", known.arrow)
    return 10.0 ** -int(scale[1]) if scale else 2.0**-22 * largest * (known.arrow == "float")


def _widen(conjunct: Conjunct, resolution: float) -> tuple[str | None, tuple[Constant, ...]]:
    """A comparison that holds before rounding wherever the given one can hold after it."""
    operator, constants = conjunct.operator, conjunct.constants
    if not resolution or not constants:
        return operator, constants
    times = [constant for constant in constants if isinstance(constant, datetime)]
    numbers = [constant for constant in constants if isinstance(constant, int | float)]
    least: Constant
    most: Constant
    if len(times) == len(constants):
        step = timedelta(microseconds=resolution)
        least, most = min(times) - step, max(times) + step
    elif len(numbers) == len(constants):
        least, most = min(numbers) - resolution, max(numbers) + resolution
    else:
        return operator, constants
    match operator:
        case "<" | "<=":
            return operator, (most,)
        case ">" | ">=":
            return operator, (least,)
        case "=" | "in" | "between":
            return "between", (least, most)
    return operator, constants


def _describe_values(column: CategoricalCodec | NumericCodec) -> str:
    """The values of a column for a message: they are part of the release."""
    if not isinstance(column, CategoricalCodec):
        return f" Its values range from {column.extent}."
    listed = [repr(value) for value in column.categories if value is not None]
    return f" Its values are {', '.join(listed[:10])}{' and others' * (len(listed) > 10)}."
