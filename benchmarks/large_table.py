"""Writes a large table as Parquet, row group by row group, with its schema beside it, in little memory.

    UNDERSTUDY_DATA=folder python benchmarks/large_table.py census --rows 130000000 -o census.parquet
    python benchmarks/large_table.py long --rows 10000000 -o long.parquet

census: adults of the 1940 census (`census1940_ca`, 39,660 rows), drawn again with replacement, and two simulated
columns: whether there is a wage, wrong in one row of twenty, and weeks of work, which depend on that and on sex. long:
a million rows of `made_long` (15 columns), drawn again. A table drawn again has no new people: it has the size of a
large table and the distribution of the small one. Every column is declared. Rows depend on the seed, not on the
machine.
"""

import argparse
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

sys.path.insert(0, str(Path(__file__).parents[1]))

import understudy as us
from benchmarks.simulated import made_long
from understudy.benchmark.tables import load_table
from understudy.schema import Column

GROUP_ROWS = 1_000_000
"""Rows of a row group of the file."""
LONG_ROWS = 1_000_000
WRONG = 0.05
"""The fraction of rows whose column `wage` is not what their income says."""
WEEKS = 52


class Source(NamedTuple):
    """Rows to draw again, columns that are simulated for the drawn rows, and what is declared of all of them."""

    rows: pa.Table
    add_columns: Callable[[pa.Table, np.random.Generator], pa.Table]
    columns: tuple[Column, ...]


def census() -> Source:
    """The eight columns of `census1940_ca`, and two simulated ones."""
    table = load_table("census1940_ca")
    assert table.test is not None
    made = (
        Column(name="wage", kind="boolean", nullable=False),
        Column(name="weeks", kind="integer", bounds=(0, WEEKS), nullable=False),
    )
    return Source(pa.concat_tables([table.train, table.test]), _work, (*table.schema.columns, *made))


def _work(rows: pa.Table, draw: np.random.Generator) -> pa.Table:
    wage = (rows["inc"].to_numpy() > 0) ^ (draw.random(len(rows)) < WRONG)
    men = pc.equal(rows["sex"], "0").to_numpy()
    mean = np.where(wage, np.where(men, 44.0, 38.0), 6.0)
    weeks = np.rint(mean + 10 * draw.standard_normal(len(rows))).clip(0, WEEKS).astype(np.int32)
    return rows.append_column("wage", pa.array(wage)).append_column("weeks", pa.array(weeks))


def long() -> Source:
    """The fifteen columns of `made_long`."""
    drawn = made_long(LONG_ROWS, 15)
    return Source(drawn.train, lambda rows, _: rows, drawn.schema.columns)


SOURCES: dict[str, Callable[[], Source]] = {"census": census, "long": long}


def draw_batches(source: Source, num_rows: int, *, seed: int, group_rows: int = GROUP_ROWS) -> Iterator[pa.Table]:
    """Rows of the source, drawn with replacement, in batches of the size of a row group."""
    text = [field.name for field in source.rows.schema if pa.types.is_string(field.type)]
    rows = source.rows.combine_chunks().replace_schema_metadata()
    for name in text:  # drawing numbers is faster than drawing texts
        at = rows.schema.get_field_index(name)
        rows = rows.set_column(at, name, rows[name].combine_chunks().dictionary_encode())
    draw = np.random.default_rng(seed)
    for start in range(0, num_rows, group_rows):
        chosen = draw.integers(0, len(rows), min(group_rows, num_rows - start))
        yield source.add_columns(rows.take(pa.array(chosen)).unify_dictionaries(), draw)


def declared(source: Source, num_rows: int) -> us.Schema:
    """The schema of that many rows of the source."""
    return us.Schema(columns=source.columns, rows=num_rows)


def write_table(source: Source, num_rows: int, path: Path, *, seed: int = 0) -> us.Schema:
    """Writes the table and, beside it, its schema. The file has its name only when it is complete."""
    partial = path.with_name(path.name + ".part")
    batches = draw_batches(source, num_rows, seed=seed)
    first = next(batches)
    # Texts are dictionaries here; without the Arrow schema in the file they are read as texts.
    with pq.ParquetWriter(partial, first.schema, store_schema=False) as writer:
        writer.write_table(first, row_group_size=GROUP_ROWS)
        for batch in batches:
            writer.write_table(batch, row_group_size=GROUP_ROWS)
    schema = declared(source, num_rows)
    schema.write(path.with_suffix(".toml"), force=True)
    os.replace(partial, path)
    return schema


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("source", choices=list(SOURCES))
    parser.add_argument("--rows", type=int, required=True)
    parser.add_argument("-o", "--out", type=Path, required=True, metavar="FILE.parquet")
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    if given.rows < 1 or given.out.suffix != ".parquet":
        parser.error("--rows must be at least 1, and --out must name a .parquet file.")
    write_table(SOURCES[given.source](), given.rows, given.out, seed=given.seed)
    print(f"{given.out}: {given.rows:,} rows, {given.out.stat().st_size / 1e9:.2f} GB")


if __name__ == "__main__":
    main()
