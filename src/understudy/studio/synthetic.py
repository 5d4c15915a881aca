"""The first rows of a synthetic table, as they stand in its file. The studio reads no other rows."""

import csv
import itertools
import json
from pathlib import Path

import pyarrow.parquet as pq

from understudy.tables import Origin

ROWS = 20


def first_rows(table: Path, release: Path) -> dict[str, object]:
    """Column names and rows of texts, of a table that `synth` wrote with this release folder."""
    if table.suffix == ".parquet":
        file = pq.ParquetFile(table)
        batch = next(file.iter_batches(ROWS), None)
        names = file.schema_arrow.names
        rows = [] if batch is None else [list(map(_text, row.values())) for row in batch.to_pylist()]
        return {"columns": names, "rows": rows}
    origin = Origin.from_dict(json.loads((release / "release.json").read_bytes())["origin"])
    with table.open(encoding="utf-8", newline="") as lines:
        names, *rows = itertools.islice(csv.reader(lines, delimiter=origin.delimiter), ROWS + 1)
    return {"columns": names, "rows": rows}


def _text(value: object) -> str:
    return "" if value is None else str(value)
