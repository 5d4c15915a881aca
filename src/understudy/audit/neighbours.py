"""Worst-case pairs of neighbouring tables: the same public schema, the same rows, with and without one canary unit.

The other rows have a few common values, so nothing hides what the canary adds. The schema is fixed: it is public and
the same for both tables.
"""

import dataclasses
from pathlib import Path
from typing import Any

import pyarrow as pa

from understudy.errors import ConfigError, did_you_mean
from understudy.privacy.mechanisms.discovery import Binning
from understudy.tables import write_table

NUM_ROWS = 200
"""Rows beside the canary."""
BOUNDS = (0, 100)
UNIFORM, PRIVATE = Binning(bins="uniform", max_bins=4), Binning(max_bins=8)
ROWS_PER_UNIT = 2
"""Declared for the canary `unit`, which has twice as many."""

Row = dict[str, object]


@dataclasses.dataclass(frozen=True)
class Neighbours:
    """Two tables that differ in one unit, and what is public about both."""

    canary: str
    what: str
    """A short description of the canary."""
    schema: dict[str, dict[str, Any]]
    rows: tuple[Row, ...]
    """Those of both tables."""
    added: tuple[Row, ...]
    """The rows of the canary unit."""
    binning: Binning = UNIFORM

    @property
    def most_delta(self) -> float:
        """The largest delta that is allowed for these tables, and the default of an audit."""
        return 1 / NUM_ROWS if "rows" in self.schema.get("table", {}) else 1e-4

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns of a synthetic row that an attack looks at."""
        return tuple(name for name, column in self.schema["columns"].items() if column["kind"] != "id")

    def table(self, *, with_canary: bool) -> pa.Table:
        """One of the two tables."""
        return pa.Table.from_pylist([*self.rows, *(self.added if with_canary else ())])

    def write(self, folder: Path, *, with_canary: bool) -> Path:
        """One of the two tables as a CSV file."""
        path = folder / f"{'with' if with_canary else 'without'}.csv"
        write_table(self.table(with_canary=with_canary), path, force=True)
        return path


def _common_rows() -> tuple[Row, ...]:
    return tuple(
        {"group": "ab"[i % 2], "amount": 40 + 5 * (i // 2 % 3), "flag": i % 4 == 0, "city": "uv"[i // 5 % 2]}
        for i in range(NUM_ROWS)
    )


COMMON: Row = {"group": "a", "amount": 40, "flag": False, "city": "u"}
UNIQUE: Row = {"group": "rare", "amount": BOUNDS[1], "flag": True, "city": "rare"}


def _schema(**table: object) -> dict[str, dict[str, Any]]:
    listed = {"kind": "categorical", "closed": True, "nullable": False}
    return {
        "table": {"rows": NUM_ROWS, "target": "flag", **table},
        "columns": {
            "group": {**listed, "categories": ["a", "b", "rare"]},
            "amount": {"kind": "integer", "bounds": list(BOUNDS), "nullable": False},
            "flag": {"kind": "boolean", "nullable": False},
            "city": {**listed, "categories": ["u", "v", "rare"]},
        },
    }


def _rows_without_pairs() -> tuple[Row, ...]:
    """All counts are far above the noise, so clipping negative counts to zero loses nothing."""
    return tuple(
        {
            "group": "rare" if i % 5 == 0 else "ab"[i % 2],
            "city": "rare" if i % 5 == 1 else "uv"[i // 2 % 2],
            "flag": i % 5 == 2,
            "amount": BOUNDS[1] if i % 5 == 3 else (10, 35, 60)[i % 3],
        }
        for i in range(NUM_ROWS)
    )


def _unit() -> Neighbours:
    schema = _schema(unit="person", max_rows_per_unit=ROWS_PER_UNIT)
    schema["columns"]["person"] = {"kind": "id"}
    rows = tuple({**row, "person": f"p{i // ROWS_PER_UNIT}"} for i, row in enumerate(_common_rows()))
    added = ({**UNIQUE, "person": "canary"},) * (2 * ROWS_PER_UNIT)
    what = f"a unit with {len(added)} rows where {ROWS_PER_UNIT} are declared"
    return Neighbours("unit", what, schema, rows, added)


def _domain() -> Neighbours:
    kinds = {name: {"kind": column["kind"]} for name, column in _schema()["columns"].items()}
    added = ({**UNIQUE, "group": "unheard of", "amount": 10**6},)
    what = "a row that would change an estimated domain (categories, bounds and size are estimated privately)"
    return Neighbours("domain", what, {"table": {"target": "flag"}, "columns": kinds}, _common_rows(), added, PRIVATE)


_BOTH = _schema(), _common_rows()
CANARIES = {
    pair.canary: pair
    for pair in (
        Neighbours("category", "a category that no other row has", *_BOTH, ({**COMMON, "group": "rare"},)),
        Neighbours("row", "a row that is unique in every column", *_BOTH, (UNIQUE,)),
        Neighbours(
            "combination",
            "a row of common values, no two of which occur together in another row",
            _schema(),
            _rows_without_pairs(),
            (UNIQUE,),
        ),
        Neighbours("bound", "a value at the declared bound", *_BOTH, ({**COMMON, "amount": BOUNDS[1]},), PRIVATE),
        Neighbours(
            "outside", "a value far outside the declared bounds", *_BOTH, ({**COMMON, "amount": 10**9},), PRIVATE
        ),
        _unit(),
        _domain(),
    )
}
"""Every kind of canary by name."""

DEFAULT_CANARY = "combination"


def make_neighbours(canary: str) -> Neighbours:
    """The pair of tables of this kind of canary."""
    if canary not in CANARIES:
        raise ConfigError(
            f"There is no canary {canary!r}.{did_you_mean(canary, list(CANARIES))} The canaries are: "
            f"{', '.join(CANARIES)}."
        )
    return CANARIES[canary]
