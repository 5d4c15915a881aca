"""Mock tables: rows made from a schema alone. No row is read, so nothing is charged and epsilon is 0.

A mock has the columns, kinds, categories, bounds and rules of the schema, and nothing else of the real table. Nothing
that is imported here can read a table or hold private rows.
"""

import dataclasses
import datetime
import functools
import hashlib
import json
import secrets
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import jax
import numpy as np
import pyarrow as pa

from understudy._version import __version__
from understudy.certificate import escape_markdown, escape_sentence, public_facts
from understudy.certificate.meaning import as_code
from understudy.encoding import check_id_prefix, declared_codec, prefix_ids
from understudy.encoding.columns import CategoricalCodec, ColumnCodec
from understudy.errors import SchemaError
from understudy.marginals.estimation import Measurement, estimate
from understudy.release import BATCH_ROWS, check_seed, check_size, digest_of
from understudy.release.sampling import RowSampler
from understudy.rules.values import Bound
from understudy.schema import Column, Schema, SchemaSource, as_schema
from understudy.tables import Label, Origin, attach_label, declared_schema

DEFAULT_ROWS = 1000
"""The number of rows if neither the caller nor the schema names one."""
NULL_FRACTION = 0.1
"""The probability of a null in a nullable column, unless a rule decides it."""
PLACEHOLDER_TEXT = "mock text"
"""The value of every row in a text column."""
PLACEHOLDER_CATEGORIES = ("category_1", "category_2", "category_3")
PLACEHOLDER_BOUNDS: Mapping[str, tuple[Bound, Bound]] = {
    "integer": (0, 100),
    "real": (0.0, 100.0),
    "date": (datetime.date(2000, 1, 1), datetime.date(2030, 1, 1)),
    "datetime": (datetime.datetime(2000, 1, 1), datetime.datetime(2030, 1, 1)),
}
"""What `fill` uses where a schema declares no bounds."""
STATEMENT = "No row was read: epsilon 0, provided the schema was not read off the data."
"""What the certificate of a mock says."""
_CONDITION = (
    "> **Condition:** what the schema declares, listed below, must not come from the data. What was read off the data "
    "is revealed by the mock, and the statement above does not hold for it."
)
_DRAFTED = (
    "> **Warning:** the schema is an unreviewed draft: the kinds of its columns were read off a table. Review it, "
    "delete the line `drafted = true`, and make the mock again."
)


def mock(
    schema: SchemaSource,
    num_rows: int | None = None,
    *,
    seed: int | None = None,
    fill: bool = False,
    id_prefix: str | None = None,
) -> pa.Table:
    """Make rows from a schema alone: for writing code before anyone may see the data.

    Declared categories are equally likely, and numbers, dates and points uniform within their bounds or region. A tenth
    of the values of nullable columns are null. Ids are fresh numbers, text is a placeholder, and a privacy unit has 1
    to `max_rows_per_unit` rows. The rules of the schema are satisfied; apart from them, columns are independent.

    Formal guarantee: epsilon 0, provided the schema was not read off the data, because nothing else is read.

    Args:
        schema: A `Schema`, a dict of its sections, or the path of its file.
        num_rows: The number of rows. Default: the declared one, else 1,000.
        seed: Makes the rows reproducible.
        fill: Whether columns without declared categories or bounds get placeholders: "category_1" to "category_3", 0 to
            100, dates from 2000 to 2029. Else they are refused.
        id_prefix: What each id begins with.

    Returns:
        An Arrow table.

    Raises:
        SchemaError: The schema is malformed, or leaves something open that is not filled.
        ConfigError: The number of rows or the seed is out of range.

    >>> schema = {"columns": {"age": {"kind": "integer", "bounds": [17, 90]}, "member": {"kind": "boolean"}}}
    >>> table = mock(schema, 5, seed=0)
    >>> table.column_names, table.num_rows
    (['age', 'member'], 5)
    """
    maker = MockMaker.of(as_schema(schema), num_rows, fill=fill)
    return pa.concat_tables(maker.batches(seed=seed, id_prefix=id_prefix)).unify_dictionaries()


@dataclasses.dataclass(frozen=True)
class MockMaker:
    """A schema from which rows can be made, and their number."""

    schema: Schema
    """As it was given."""
    num_rows: int
    complete: Schema
    """The schema with placeholders for what it does not declare, and no category beside the declared ones."""
    filled: tuple[str, ...] = ()
    """The columns that have placeholders."""

    @classmethod
    def of(cls, schema: Schema, num_rows: int | None = None, *, fill: bool = False) -> "MockMaker":
        """Refuses a schema that does not declare enough, unless placeholders may fill it."""
        num_rows = schema.rows or DEFAULT_ROWS if num_rows is None else num_rows
        check_size(num_rows, "The number of mock rows", "num_rows")
        open_columns = tuple(column.name for column in schema.columns if column.estimated is not None)
        if open_columns and not fill:
            raise SchemaError(_explain_open(schema, open_columns), column=open_columns[0])
        columns = tuple(_completed(column, is_unit=column.name == schema.unit) for column in schema.columns)
        complete = dataclasses.replace(schema, columns=columns, rows=num_rows, drafted=False)
        return cls(schema, int(num_rows), complete, open_columns)

    @property
    def label(self) -> Label:
        """What its tables say of themselves."""
        return Label(certificate=f"mock: {STATEMENT}", source="schema", digest=self.digest)

    @property
    def digest(self) -> str:
        """SHA-256 of the schema."""
        text = json.dumps(self.schema.to_dict(), sort_keys=True, default=str, ensure_ascii=False)
        return hashlib.sha256(text.encode()).hexdigest()

    @functools.cached_property
    def origin(self) -> Origin:
        """The types and styles of the declared kinds."""
        return Origin.of(declared_schema(self.complete), "file")

    def batches(self, *, seed: int | None = None, id_prefix: str | None = None) -> Iterator[pa.Table]:
        """The rows, a batch at a time. A seed makes them reproducible."""
        check_seed(seed)
        check_id_prefix(id_prefix, self.complete, self.origin, types_kept=False)
        key = jax.random.key(secrets.randbits(32) if seed is None else seed)
        batches = self._sampler.batches(self.num_rows, None, key, BATCH_ROWS)
        named = (prefix_ids(rows, self.complete, id_prefix) for rows in batches)
        return (attach_label(self._with_strings(rows), self.label) for rows in named)

    @functools.cached_property
    def _sampler(self) -> RowSampler:
        sizes = (1.0,) * min(self.complete.max_rows_per_unit, self.num_rows) if self.complete.links_rows else ()
        codec = declared_codec(self.complete, self.num_rows, tuple(1 / len(sizes) for _ in sizes))
        wanted = [Measurement((column.name,), self.num_rows * _probabilities(column), 0.0) for column in codec.columns]
        return RowSampler(estimate(codec.domain, wanted, total=self.num_rows), codec, self.origin)

    def _with_strings(self, rows: pa.Table) -> pa.Table:
        """The rows with the text columns of the schema, in its order."""
        columns = {name: (rows.field(name), rows.column(name)) for name in rows.column_names}
        for column in self.complete.columns:
            if column.kind == "text" and not column.drop:
                placeholders = pa.chunked_array([pa.array([PLACEHOLDER_TEXT] * rows.num_rows, pa.string())])
                columns[column.name] = (pa.field(column.name, pa.string()), placeholders)
        ordered = [columns[name] for name in self.complete.names if name in columns]
        return pa.table([values for _, values in ordered], schema=pa.schema([field for field, _ in ordered]))

    def to_json(self, path: str | Path) -> dict[str, object]:
        """The certificate for machines, of the mock in this file."""
        return {
            "format": "understudy-mock",
            "format_version": 1,
            "understudy_version": __version__,
            "statement": STATEMENT,
            "dataset": self.schema.name,
            "date": datetime.date.today().isoformat(),
            "table": {**_checksum(path), "rows": self.num_rows},
            "schema": {"sha256": self.digest, "drafted": self.schema.drafted, "declared": self._declared()},
            "rows_read": 0,
            "guarantee": {"epsilon": 0, "delta": 0, "condition": "the schema was not read off the data"},
            "placeholders": list(self.filled),
        }

    def to_markdown(self, path: str | Path) -> str:
        """The certificate for people, of the mock in this file."""
        title = "# Certificate of a mock table"
        facts = {
            "Data set": self.schema.name,
            "Date": datetime.date.today().isoformat(),
            "Responsible": self.schema.responsible,
            "Contact": self.schema.contact,
            "Rows": f"{self.num_rows:,}",
        }
        head = [f"{what}: {escape_markdown(value)}" for what, value in facts.items() if value is not None]
        checksum = _checksum(path)
        digests = {checksum["file"]: checksum["sha256"]} if "sha256" in checksum else {}
        digests["the schema"] = self.digest
        head += [f"SHA-256 of {escape_markdown(name)}: `{digest}`" for name, digest in digests.items()]
        conditions = [_CONDITION, *([_DRAFTED] if self.schema.drafted else [])]
        blocks = [title, f"> **{STATEMENT}**", *conditions, _bullets(head)]
        blocks += ["## What is in it", _bullets([*map(escape_sentence, self._contents())])]
        declared = self._declared() or ["names and kinds of the columns"]
        blocks += ["## What the schema declares", _bullets([*map(escape_sentence, declared)])]
        blocks += [f"Made by Understudy {__version__}."]
        return "\n\n".join(blocks) + "\n"

    def _contents(self) -> list[str]:
        contents = [
            "Categories are equally likely, and numbers, dates and points uniform within their bounds or region. Apart "
            "from rules, columns are independent of each other. Draw no conclusions from these rows.",
            f"Nullable columns are null in about {NULL_FRACTION:.0%} of the rows, unless a rule decides it.",
        ]
        names = [c.name for c in self.complete.columns if c.kind == "text" and not c.drop]
        if names:
            contents.append(f"Text is the placeholder {PLACEHOLDER_TEXT!r}: {', '.join(names)}.")
        if self.filled:
            contents.append(f"Placeholders, since nothing is declared: {', '.join(self.filled)}.")
        if self.schema.rules:
            contents.append("Every row satisfies the rules of the schema.")
        return contents

    def _declared(self) -> list[str]:
        """What the schema declares, as in other certificates; of rules, only what they say."""
        declared = public_facts(dataclasses.replace(self.schema, rules=())).declared
        return [*declared, *(f"rule: {as_code(rule.text)}" for rule in self.schema.rules)]


def _completed(column: Column, *, is_unit: bool) -> Column:
    """The column with placeholders for what is not declared, and without an "other"; the unit is never dropped."""
    if is_unit:  # `fit` needs it even if it is dropped
        return dataclasses.replace(column, drop=False)
    if column.estimated == "categories":
        return dataclasses.replace(column, categories=PLACEHOLDER_CATEGORIES, closed=True)
    if column.estimated == "bounds":
        return dataclasses.replace(column, bounds=PLACEHOLDER_BOUNDS[column.kind])
    if column.modelled and column.categories is not None and column.unknown is None:
        return dataclasses.replace(column, closed=True)
    return column


def _explain_open(schema: Schema, names: Sequence[str]) -> str:
    missing = sorted({str(schema[name].estimated) for name in names})
    listed = ", ".join(map(repr, names[:10])) + " and others" * (len(names) > 10)
    return (
        f"The schema declares no {' or '.join(missing)} of {listed}, so a mock has no values there. Declare them, or "
        "use placeholders: --fill (fill=True)."
    )


def _probabilities(column: ColumnCodec) -> np.ndarray:
    """Equal for all values of a column, with the fixed fraction for nulls."""
    if isinstance(column, CategoricalCodec):
        values = np.ones(len(column.categories)) / len(column.categories)
    else:
        masses = np.r_[0.0, np.cumsum(column.histogram.masses)]
        values = np.diff(masses[column.first_fine_bin])
    if not column.nullable:
        return values
    return np.append((1 - NULL_FRACTION) * values, NULL_FRACTION)


def _checksum(path: str | Path) -> dict[str, str]:
    """Name and SHA-256 of a file; of a table in a database, the name alone."""
    name = Path(path).name
    return {"file": name} if "::" in str(path) else {"file": name, "sha256": digest_of(path)}


def _bullets(lines: Sequence[str]) -> str:
    return "\n".join(f"- {line}" for line in lines)
