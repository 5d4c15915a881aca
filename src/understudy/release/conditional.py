"""Sampling under conditions: synthetic rows that satisfy the rules of the schema and meet an SQL WHERE clause.

They are distributed as the model's rows that do. Each conjunct over a single column is turned into the codes that it
allows, and the model samples among these. What the codes do not decide (conditions over several columns, values inside
a bin) is left to rejection. Excluding codes that cannot meet the condition changes no odds among the rows that do, so
the accepted rows follow the conditional distribution exactly.

Where too few rows satisfy the rules, rows that break them are repaired: moved as a real row that breaks them would be.
Repaired rows no longer follow that distribution. Every row that is returned has been checked in the form in which it
is written.
"""

import functools
import re
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from typing import TypeAlias

import jax
import numpy as np
import pyarrow as pa
from jaxtyping import Bool, PRNGKeyArray

from understudy.encoding import CategoricalCodec, Codec, NumericCodec, number_ids
from understudy.encoding.columns import ColumnCodec
from understudy.encoding.reexpression.steps import in_declared_type
from understudy.errors import ConditionError
from understudy.models.protocol import Allowed
from understudy.models.rejection import TooRare, propose_until
from understudy.tables import (
    Conjunct,
    Constant,
    Origin,
    filter_where,
    output_decimals,
    restyle_within_bounds,
    where_columns,
    with_formatted_dates,
)

Draw: TypeAlias = Callable[[int, PRNGKeyArray, Allowed | None], pa.Table]
"""Draws this many rows with this key, of those whose codes are allowed."""

TRIED = 4096
"""The number of rows from which the fraction that satisfies the rules is estimated."""


def sample_meeting(
    draw: Draw, num_rows: int, where: str | None, *, codec: Codec, origin: Origin, key: PRNGKeyArray
) -> pa.Table:
    """`num_rows` rows that satisfy the rules and meet the condition, as they are written. Ids are numbered from 1."""
    allowed = None if where is None else allowed_codes(where, codec, origin)

    def propose(size: int, batch_key: PRNGKeyArray, *, repair: bool = False) -> tuple[pa.Table, int]:
        rows = draw(size, batch_key, allowed)
        rows = codec.reexpression.clean(rows) if repair else rows
        rows = rows.filter(pa.array(rows_meeting(where, rows, codec, origin)))
        return rows, rows.num_rows

    met, condition = "met", "the condition"
    if codec.schema.rules:
        met, condition = "satisfied", "the rules" + " and the condition" * (where is not None)
    try:
        proposed = propose_until(num_rows, propose, key=key, met=met, condition=condition)
    except TooRare:
        if not codec.schema.rules:
            raise
        again, tried_key = jax.random.split(key)
        repaired = functools.partial(propose, repair=True)
        try:
            proposed = propose_until(num_rows, repaired, key=again, met=met, condition=condition)
        except TooRare as error:
            raise ConditionError(_explain(str(error), draw(TRIED, tried_key, allowed), codec, origin)) from None
    accepted = pa.concat_tables(proposed).slice(0, num_rows)
    return number_ids(accepted, codec.schema, np.arange(num_rows))  # not those of the proposed rows


def rows_meeting(where: str | None, rows: pa.Table, codec: Codec, origin: Origin) -> Bool[np.ndarray, " rows"]:
    """Which decoded rows satisfy the rules and meet the condition in the form in which they are written."""
    written = _as_written(rows, codec, origin)
    met = np.ones(rows.num_rows, dtype=bool) if where is None else filter_where(written, where)
    if codec.schema.rules:
        met &= codec.reexpression.within_bounds(rows)
    for broken in _broken_rules(written, codec):
        met &= ~broken
    return met


def _broken_rules(written: pa.Table, codec: Codec) -> list[np.ndarray]:
    """For each rule which rows break it: as values, and as what a text file holds of them."""
    if not codec.schema.rules:
        return []
    forms = [codec.reexpression.read(form) for form in (written, with_formatted_dates(written))]
    return [np.any([rule.broken(form) for form in forms], axis=0) for rule in codec.schema.rules]


def acceptance(draw: Draw, codec: Codec, origin: Origin) -> float:
    """The fraction of a model's rows that satisfy the rules of the schema, among `TRIED` rows: post-processing."""
    return float(rows_meeting(None, draw(TRIED, jax.random.key(0), None), codec, origin).mean())


def _as_written(rows: pa.Table, codec: Codec, origin: Origin) -> pa.Table:
    modelled = rows.select([column.name for column in codec.schema.modelled])
    return restyle_within_bounds(modelled, origin, codec.schema)


def _explain(message: str, rows: pa.Table, codec: Codec, origin: Origin) -> str:
    """The message, and the rule that these rows break most often."""
    found = _broken_rules(_as_written(rows, codec, origin), codec)
    broken = {rule.text: float(rows.mean()) for rule, rows in zip(codec.schema.rules, found, strict=True)}
    worst = max(broken, key=lambda text: broken[text])
    if not broken[worst]:
        return message
    return f"{message} The rule broken most often, in {broken[worst]:.0%} of the model's rows: {worst}."


def allowed_codes(where: str, codec: Codec, origin: Origin) -> dict[str, np.ndarray]:
    """For each column that a conjunct is about, the codes that some value meeting it can have."""
    columns = {column.name: column for column in codec.columns}
    allowed: dict[str, np.ndarray] = {}
    # Ids cannot be part of a condition: they number the rows that are returned.
    for conjunct in where_columns(where, tuple(column.name for column in codec.schema.modelled)):
        column, mask = _restricted(conjunct, columns, codec, origin)
        if column is None or mask is None:
            continue
        allowed[column.name] = allowed.get(column.name, np.ones(column.size, dtype=bool)) & mask
        if not allowed[column.name].any():
            name = conjunct.columns[0]
            values = _describe_values(column) if name == column.name else ""
            raise ConditionError(
                f"No row can meet the condition: it excludes every value of {name!r}.{values}", column=name
            )
    return allowed


def _restricted(
    conjunct: Conjunct, columns: Mapping[str, ColumnCodec], codec: Codec, origin: Origin
) -> tuple[ColumnCodec | None, np.ndarray | None]:
    """The modelled column whose codes decide a condition, and which of them can meet it; None if there is none."""

    def meeting(values: Mapping[str, pa.Array]) -> np.ndarray:
        return filter_where(restyle_within_bounds(pa.table(dict(values)), origin, codec.schema), conjunct.sql)

    reexpression = codec.reexpression
    for step in reexpression.steps:
        if set(conjunct.columns) <= set(step.outputs) and not step.inputs and len(step.modelled) == 1:
            column = columns[step.modelled[0].name]
            if isinstance(column, CategoricalCodec):  # each code stands for one value of every column of the step
                values = in_declared_type(column.extremes, step.modelled[0])
                return column, meeting(step.restore({column.name: values}))
    if len(conjunct.columns) != 1 or conjunct.columns[0] in reexpression.replaced:
        return None, None
    column = columns[conjunct.columns[0]]
    if isinstance(column, CategoricalCodec):
        return column, meeting({column.name: column.extremes})
    return column, column.bins_that_can(*_widen(conjunct, _resolution(origin, column)))


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
    low: Constant
    high: Constant
    if len(times) == len(constants):
        step = timedelta(microseconds=resolution)
        low, high = min(times) - step, max(times) + step
    elif len(numbers) == len(constants):
        low, high = min(numbers) - resolution, max(numbers) + resolution
    else:
        return operator, constants
    match operator:
        case "<" | "<=":
            return operator, (high,)
        case ">" | ">=":
            return operator, (low,)
        case "=" | "in" | "between":
            return "between", (low, high)
    return operator, constants


def _describe_values(column: CategoricalCodec | NumericCodec) -> str:
    """The values of a column for a message: they are part of the release."""
    if not isinstance(column, CategoricalCodec):
        return f" Its values range from {column.extent}."
    listed = [repr(value) for value in column.categories if value is not None]
    return f" Its values are {', '.join(listed[:10])}{' and others' * (len(listed) > 10)}."
