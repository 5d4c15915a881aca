"""Cells: one table, one method, one budget and one seed. The hash of a cell identifies its result."""

import dataclasses
import functools
import hashlib
import importlib.metadata
import itertools
import json
import re
from pathlib import Path
from typing import Any

from understudy._version import __version__
from understudy.benchmark.suite import REAL, MethodSpec, Scoring, Suite, SuiteError, TableSpec
from understudy.synthesizers.registry import AUTO, DEFAULT, REVISIONS, SYNTHESIZERS

FORMAT = 1
"""Increased when the same cell would be scored differently."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Cell:
    """Everything that the result of one run depends on."""

    table: TableSpec
    method: MethodSpec | None
    """None: the training rows are scored."""
    epsilon: float | None
    delta: float | None
    seed: int
    scoring: Scoring
    synthetic_rows: int
    bins: str | None
    data: str
    """The checksum of the table."""
    code: str
    """The version of the package and the revisions of the methods in the expression, or the peer's packages."""

    @functools.cached_property
    def key(self) -> str:
        """The hash of everything above except labels."""
        content = dataclasses.asdict(self)
        content["table"] = {**content["table"], "file": None, "schema": None, "test_file": None}  # `data` covers them
        if self.method is not None:
            content["method"] = [_normalise(self.method.expression), self.method.peer]
        text = json.dumps([FORMAT, content], sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:20]

    @property
    def label(self) -> str:
        return REAL if self.method is None else self.method.label

    @property
    def program(self) -> tuple[str, str, str | None, int]:
        """Cells with equal programs differ only in seed and budget: they can be trained as one."""
        expression = "" if self.method is None else self.method.expression
        return self.table.name, expression, self.bins, self.synthetic_rows

    def to_json(self) -> dict[str, object]:
        return dataclasses.asdict(self)

    @classmethod
    def from_json(cls, content: dict[str, Any]) -> "Cell":
        fields = dict(content)
        fields["table"] = TableSpec(**fields["table"])
        fields["method"] = None if fields["method"] is None else MethodSpec(**fields["method"])
        scoring: dict[str, Any] = {
            key: tuple(each) if isinstance(each, list) else each for key, each in fields["scoring"].items()
        }
        fields["scoring"] = Scoring(**scoring)
        return cls(**fields)


def cells_of(suite: Suite, *, checksums: dict[str, str]) -> list[Cell]:
    """Every cell, seed by seed, so that even an interrupted run compares all methods.

    `checksums` are those of the tables, by name; a table without one is left out.
    """
    tables = [table for table in suite.tables if table.name in checksums]

    def make(table: TableSpec, method: MethodSpec | None, epsilon: float | None, seed: int) -> Cell:
        return Cell(
            table=table,
            method=method,
            epsilon=epsilon,
            delta=None if method is None else suite.delta,
            seed=seed,
            scoring=suite.scoring,
            synthetic_rows=suite.synthetic_rows,
            bins=suite.bins,
            data=checksums[table.name],
            code=code_of(method),
        )

    order = itertools.product(range(suite.seeds), tables, suite.epsilons, suite.methods)
    cells = [make(table, None, None, 0) for table in tables if suite.real_data]
    cells += [make(table, method, float(epsilon), seed) for seed, table, epsilon, method in order]
    by_key: dict[str, Cell] = {}
    for cell in cells:
        if (other := by_key.setdefault(cell.key, cell)) is not cell:
            raise SuiteError(
                f"The methods {other.label!r} and {cell.label!r} of the suite {suite.name} are the same. Remove one.",
                setting="methods",
            )
    return cells


def code_of(method: MethodSpec | None) -> str:
    """The versions that a result depends on, besides its settings."""
    scored = f"{__version__} scikit-learn:{importlib.metadata.version('scikit-learn')}"  # its classifiers score
    if method is None:
        return scored
    if method.peer_file is not None:
        from understudy.benchmark.peers import read_peer

        return f"{scored} {method.peer}:{read_peer(method.peer_file).digest}"
    named = {DEFAULT if word == AUTO else word for word in re.findall(r"[A-Za-z_]\w*", method.expression)}
    used = sorted(named & set(SYNTHESIZERS))
    return " ".join([scored, *(f"{name}:{REVISIONS.get(name, 1)}" for name in used)])


def _normalise(expression: str) -> str:
    """Without spaces outside quotes, which do not change an expression."""
    return "".join(
        part if at % 2 else re.sub(r"\s+", "", part)
        for at, part in enumerate(re.split(r"(\"[^\"]*\"|'[^']*')", expression))
    )


def check_methods(suite: Suite) -> None:
    """Raises for a setting that its method does not have. Loads the methods, so only runs call it, not reports."""
    from understudy.errors import UnderstudyError
    from understudy.synthesizers import read_method

    for method in suite.methods:
        if method.peer is None:
            try:
                read_method(method.expression)
            except UnderstudyError as error:
                raise SuiteError(
                    f"Method {method.label!r} of the suite {suite.name}: {error}", setting="methods"
                ) from None


def table_checksums(suite: Suite) -> tuple[dict[str, str], dict[str, str]]:
    """The checksums of the tables that are available, and what is missing for the others."""
    from understudy.benchmark.tables import missing_source, table_checksum

    checksums, missing = {}, {}
    for table in suite.tables:
        if table.file is not None:
            checksums[table.name] = file_checksum(table)
        elif (why := missing_source(table.name)) is not None:
            missing[table.name] = why
        else:
            checksums[table.name] = table_checksum(table.name)
    return checksums, missing


def file_checksum(table: TableSpec) -> str:
    """Of the files of a table that is not in the catalogue."""
    digest = hashlib.sha256()
    for path in (table.file, table.schema, table.test_file):
        if path is None:
            continue
        try:
            digest.update(Path(path).read_bytes())
        except OSError as error:
            raise SuiteError(f"Table {table.name!r}: cannot read {path}: {error.strerror}.") from None
        digest.update(b"\0")
    return digest.hexdigest()
