"""Detectors for whole runs: what a table's neighbour changes, what is charged, and what a release holds."""

import contextlib
import dataclasses
import tempfile
from collections.abc import Iterator
from pathlib import Path

import jax
import numpy as np
import pyarrow as pa

import understudy as us
from tests.audit.detectors import Detector, deterministic
from tests.audit.outcomes import differences, outcome
from tests.audit.scans import numbers_in, values_in
from tests.builders import encode
from tests.fuzz.test_arrow_values import INVALID, fault_of
from tests.fuzz.test_arrow_values import SOURCES as SOURCES_OF_TYPES
from tests.privacy.small_tables import RecordingNoise
from tests.test_neighbours import KINDS as DECLARED
from tests.test_neighbours import NUM_ROWS, ODD, SOURCES, schema_of
from understudy import certificate
from understudy.institution.bundle.manifest import as_json
from understudy.privacy.noise.source import SeededNoise
from understudy.privacy.rows.rows import PrivateRows
from understudy.synthesizers import read_method
from understudy.synthesizers.run import Run
from understudy.tables import conform

GUARANTEE = us.Guarantee(2.0, 1e-6)
UNIFORM = us.Binning(bins="uniform", max_bins=4)
SIZE = 1237
"""Rows of the table: a number that nothing else here is."""
COLUMNS = (
    us.Column(name="city", kind="categorical", categories=("a", "b")),
    us.Column(name="age", kind="integer", bounds=(0, 99)),
    us.Column(name="income", kind="real", bounds=(0.0, 1000.0)),
)
SCHEMA = us.Schema(columns=COLUMNS, rows=1200)
"""Everything is declared, so that nothing but the model may depend on the rows."""
ROWS = [{"city": "ab"[i % 2], "age": i % 60, "income": float(7 * i % 500)} for i in range(SIZE)]
ADDED: dict[str, dict[str, object]] = {
    "an ordinary row": {"city": "a", "age": 30, "income": 5.0},
    "an unknown category": {"city": "canary-Qx7Lm2", "age": 30, "income": 5.0},
    "a row of nulls": {"city": None, "age": None, "income": None},
    "numbers beyond the bounds": {"city": "a", "age": 41_237, "income": 7.4e8},
}
TYPES = pa.schema([("city", pa.string()), ("age", pa.int64()), ("income", pa.float64())])


def arrow(*more: dict[str, object]) -> pa.Table:
    return conform(pa.Table.from_pylist([*ROWS, *more], schema=TYPES), SCHEMA)


# -------------------------------------------------------------------------------------------------------- neighbours


def facts_of_neighbours() -> list[str]:
    """With a declared schema, the codec, origin, charges and delta of a run must not depend on one row."""
    facts = {}
    for name, more in {"none": (), **{name: (row,) for name, row in ADDED.items()}}.items():
        codec, _, _ = encode(arrow(*more), SCHEMA, UNIFORM)
        facts[name] = [repr(codec.to_dict())]
    for name in ("none", "an ordinary row"):
        more = () if name == "none" else (ADDED[name],)
        release = us.fit(arrow(*more), "independent", us.Guarantee(2.0), schema=SCHEMA, binning=UNIFORM, seed=0)
        statement = release.statement
        public = (release.codec.to_dict(), release.origin, statement.queries, statement.delta)
        facts[name].append(repr(public))
    wrong = [f"{name} changes the codec" for name in ADDED if facts[name][0] != facts["none"][0]]
    same = facts["none"][1] == facts["an ordinary row"][1]
    return wrong if same else [*wrong, "an ordinary row changes the facts of a run"]


def codes_of_neighbours() -> list[str]:
    """The codes and positions of all other rows must not change when a row is added."""

    def encoded(*more: dict[str, object]) -> list[np.ndarray]:
        _, rows, _ = encode(arrow(*more), SCHEMA, UNIFORM)
        return [rows._codes[:SIZE], rows._positions[:SIZE]]

    before = encoded()
    return [
        f"{name} changes how other rows are encoded"
        for name, row in ADDED.items()
        if not all(map(lambda a, b: np.array_equal(a, b, equal_nan=True), before, encoded(row)))
    ]


@contextlib.contextmanager
def _scratch() -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as name, contextlib.chdir(name):
        yield Path(name)


ODD_PAIRS = [
    ("CSV", "closed list", "word"),
    ("CSV", "integer", "fraction"),
    ("Parquet by pandas", "real", "missing"),
    ("Parquet by polars", "integer", "word"),
]


def outcomes_of_neighbours() -> list[str]:
    """All output of the command line, apart from noise, on a table and on the same table with an odd row."""
    wrong = []
    for source, kind, odd in ODD_PAIRS:
        with _scratch() as folder:
            schema_of(kind).write(folder / "schema.toml")
            values = (DECLARED[kind].texts.split() * NUM_ROWS)[:NUM_ROWS]
            both = [outcome(folder, SOURCES[source](folder, each)) for each in (values, [*values, ODD[odd]])]
            wrong += [f"{source}, {kind}, {odd}: {each}" for each in differences(both[0], both[1], ["rows"])]
    return wrong


# ------------------------------------------------------------------------------------------------------------- units


def rows_of_a_unit() -> list[str]:
    """A unit with 50 rows changes each marginal by at most the declared number; rows without a unit change none."""
    schema = us.Schema(columns=(us.Column(name="who", kind="id"), *COLUMNS), rows=1200, unit="who", max_rows_per_unit=2)
    base = [{"who": f"p{i // 2}", **row} for i, row in enumerate(ROWS[:100])]

    def marginals(*more: dict[str, object]) -> list[np.ndarray]:
        types = pa.schema([("who", pa.string()), *TYPES])
        table = conform(pa.Table.from_pylist([*base, *more], schema=types), schema)
        rows: PrivateRows = encode(table, schema, UNIFORM)[1]
        return [rows._exact_counts((name,)) for name in rows.domain.names]

    wrong, before = [], marginals()
    for who, most in (("new", 2), (None, 0)):
        after = marginals(*[{"who": who, **ADDED["an ordinary row"]}] * 50)
        moved = max(float(np.abs(a - b).sum()) for a, b in zip(after, before, strict=True))
        if moved > most:
            wrong.append(f"a unit moves a marginal by {moved:g} rows, and {most} are declared")
    return wrong


# ------------------------------------------------------------------------------------------------- values and claims


def values_of_every_type() -> list[str]:
    """A table with additional invalid values, such as times outside a day, is read like the table without them."""
    with _scratch() as folder:
        cases = [
            (type, kind, source) for type in INVALID for kind in ("texts", "integer") for source in SOURCES_OF_TYPES
        ]
        return [fault for case in cases if (fault := fault_of(*case, 1, folder)) is not None]


def forged_units() -> list[str]:
    """A certificate that states more rows of each unit than its queries cover is refused, whatever else it states."""
    schema = us.Schema(columns=(us.Column(name="who", kind="id"), *COLUMNS), rows=1200, unit="who", max_rows_per_unit=2)
    table = arrow().append_column("who", pa.array([f"p{at // 2}" for at in range(SIZE)]))
    statement = us.fit(table, "independent", GUARANTEE, schema=schema, binning=UNIFORM, seed=0).statement
    wrong = []
    for most in (3, 50):
        try:
            certificate.from_json(as_json(dataclasses.replace(statement, max_rows_per_unit=most), {}))
        except us.ReleaseError:
            continue
        wrong.append(f"{most} rows of each unit are accepted, and the queries cover 2")
    return wrong


# ----------------------------------------------------------------------------------------------------------- charges

OPEN = us.Schema(columns=tuple(us.Column(name=column.name, kind=column.kind) for column in COLUMNS))
"""Names and kinds only: all else is estimated privately."""


def plan_and_charges() -> list[str]:
    """The queries of a plan, which reads no data, are those that a run charges."""
    planned = us.plan(OPEN, "mst", GUARANTEE, binning=UNIFORM).queries
    charged = us.fit(arrow(), "mst", GUARANTEE, schema=OPEN, binning=UNIFORM, seed=0).statement.queries
    return [] if planned == charged else ["the queries that were charged are not those of the plan"]


def draws_and_charges() -> list[str]:
    """The noise that a run draws for counts and selections costs no more than the ledger records."""
    _, rows, _ = encode(arrow(), SCHEMA, UNIFORM)
    wrong = []
    for name in ("mst", "aim"):
        noise, method = RecordingNoise(0, rows_per_unit=1), read_method(name)
        ledger = us.Ledger(GUARANTEE, noise=noise)
        method.fit(Run(rows, method.plan(rows.domain, ledger.remaining), ledger, key=jax.random.key(0)))
        charged = sum(query.event.rho for query in ledger.queries)  # type: ignore[attr-defined]  # an event of this kind has it
        if noise.rho > charged * (1 + 1e-6):
            wrong.append(f"{name}: the noise that was drawn costs {noise.rho / charged:.3g} times the charge")
    return wrong


# ----------------------------------------------------------------------------------------------------------- release

SEED = 948_271_635


def release_scan() -> list[str]:
    """No byte of a release contains a value of one row, a seed, a secret or the exact number of rows."""
    table = arrow(ADDED["an unknown category"], ADDED["numbers beyond the bounds"])
    release = us.fit(table, "independent", GUARANTEE, schema=OPEN, seed=SEED)
    with _scratch() as folder:
        release.save(folder / "a.release")
        planted = ["canary-Qx7Lm2", 41_237, SEED, SeededNoise(SEED)._secret]
        found = values_in(folder / "a.release", planted)
        return found + numbers_in(folder / "a.release", {SIZE + 2})


DETECTORS: tuple[Detector, ...] = (
    deterministic("facts on neighbouring tables", facts_of_neighbours),
    deterministic("codes on neighbouring tables", codes_of_neighbours),
    deterministic("outputs on neighbouring tables", outcomes_of_neighbours, is_quick=False),
    deterministic("values of every type", values_of_every_type),
    deterministic("rows per unit", rows_of_a_unit),
    deterministic("forged units", forged_units),
    deterministic("plan and charges", plan_and_charges),
    deterministic("draws and charges", draws_and_charges),
    deterministic("scan of the release", release_scan),
)
