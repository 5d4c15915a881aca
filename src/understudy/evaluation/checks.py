"""Warnings about the tables of an evaluation: what would make its scores misleading."""

import re
from collections.abc import Iterator, Mapping
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from understudy.evaluation.scores import Result
from understudy.evaluation.table import Layout
from understudy.schema import OTHER
from understudy.schema.values import format_list
from understudy.tables.location import TABLE_ENDINGS

FEW_ROWS, FEW_OF_REAL = 100, 0.01
"""Synthetic tables with fewer rows, or a smaller fraction of the real rows, are warned about."""
MANY_COPIES, TIMES_CHANCE = 0.5, 2.0
"""A table is called copied if its fraction of copies exceeds the first, and that of held-out rows by this factor."""


def warn_of_order(path: Path | None, what: str) -> Iterator[str]:
    """A release folder beside a file, as `synth` leaves one, may mean that the file is not the real table."""
    if path is None:
        return
    stem = path.name
    while Path(stem).suffix.lower() in TABLE_ENDINGS:
        stem = Path(stem).stem
    if not (release := path.with_name(f"{stem}.release")).is_dir():
        return
    yield (
        f"{release.name}, which 'understudy synth' writes beside its output, is next to the {what}, {path.name}. If "
        f"{path.name} is synthetic, the order is wrong: the real table comes first."
    )


def warn_of_size(num_rows: int, num_real: int, what: str) -> Iterator[str]:
    if num_rows < max(FEW_ROWS, FEW_OF_REAL * num_real):
        count = "1 row" if num_rows == 1 else f"{num_rows:,} rows"
        yield f"The {what} has {count}, the real one {num_real:,}: too few for a reliable evaluation."


def warn_of_other(synthetic: pa.Table, layout: Layout, what: str) -> Iterator[str]:
    """Understudy's own name for categories that it did not keep is not an invention of the synthesizer."""
    found = {}
    for spec in layout.discrete:
        values = synthetic.column(spec.name)
        if (
            spec.is_open
            or spec.unknown is not None
            or not pa.types.is_string(getattr(values.type, "value_type", values.type))
        ):
            continue
        distinct = pc.unique(values).drop_null().to_pylist()
        named = [name for name in distinct if re.fullmatch(f"{OTHER}_*", name) and name not in spec.categories]
        if named:
            fraction = pc.mean(pc.is_in(values.cast(pa.string()), pa.array(named)).cast(pa.float64())).as_py()
            found[spec.name] = float(fraction)
    if found:
        yield (
            f"In the {what} some cells are {OTHER!r}, Understudy's name for categories that it did not keep:"
            f" {fractions_text(found)}. They count as unlisted. Declare the categories in the schema to keep them."
        )


def is_copied(copies: float, held_out: float) -> bool:
    """Whether this fraction of rows that equal a real row is far beyond that of held-out real rows."""
    return copies > MANY_COPIES and copies > TIMES_CHANCE * held_out


def warn_of_copies(name: str, result: Result) -> Iterator[str]:
    """`result` is that of the group closest_record."""
    copies = result.details["synthetic"]["exact_copies"]
    chance = result.details["holdout"]["exact_copies"]
    if is_copied(copies, chance):
        yield (
            f"{copies:.0%} of the rows of {name!r} equal a real row in every evaluated column, against {chance:.0%} of"
            " held-out real rows: most of the table is copied, whatever its scores."
        )


def fractions_text(fractions: Mapping[str, float]) -> str:
    """Columns with a fraction of their rows, the largest first."""
    order = sorted(fractions, key=lambda name: -fractions[name])
    text = ", ".join(f"{format_list([name])} ({fractions[name]:.2%})" for name in order[:5])
    return text if len(order) <= 5 else f"{text} and {len(order) - 5} more columns"
