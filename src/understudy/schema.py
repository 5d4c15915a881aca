"""What is public about a table: names, kinds, and whatever a person declared; the rest is bought from the data.

A schema is a small TOML file that a data steward can read. Column names and kinds are public. Categories, bounds and
the number of rows are either written there, by a person who answers for their being public, or they are absent, and
then Understudy buys them with part of the privacy budget. Nothing in this file reads a value of a table, except
`check`, which talks to the steward alone.
"""

import dataclasses
import difflib
import functools
import json
import math
import os
import re
import secrets
import tomllib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from datetime import UTC, date, datetime, timedelta, timezone
from pathlib import Path
from typing import Literal, cast

import pyarrow as pa
import pyarrow.compute as pc

from understudy.errors import SchemaError

KINDS = ("categorical", "integer", "real", "boolean", "datetime", "date", "text", "id")
"""What a column can be. `text` and `id` are never modelled."""

BOUNDED = ("integer", "real", "datetime", "date")
"""The kinds that have bounds."""

Category = str | int | float | bool
Bound = int | float | datetime | date
Clique = Sequence[str]
_Level = Literal["error", "warning", "note"]

# What people write who come from other tools; difflib alone would not find these.
_OTHER_WORDS = {
    "bool": "boolean",
    "category": "categorical",
    "continuous": "real",
    "double": "real",
    "enum": "categorical",
    "float": "real",
    "identifier": "id",
    "int": "integer",
    "key": "id",
    "nominal": "categorical",
    "number": "real",
    "numeric": "real",
    "numerical": "real",
    "object": "categorical",
    "ordinal": "categorical",
    "str": "categorical",
    "string": "categorical",
    "timestamp": "datetime",
}

_NEEDS_UNIT = (
    "[table] max_rows_per_unit needs unit, the column that names the protected unit. Add unit, or remove"
    " max_rows_per_unit."
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Column:
    """One column's public facts.

    >>> Column(name="age", kind="integer", bounds=(17, 90)).bought is None
    True
    >>> Column(name="workclass", kind="categorical").bought
    'categories'
    """

    name: str

    kind: str
    """One of `KINDS`."""

    nullable: bool = True
    """Whether nulls keep a level of their own. Never found out by looking."""

    categories: tuple[Category, ...] | None = None
    """Of a categorical column: all of its values, of one type. None: bought."""

    unknown: Category | None = None
    """The category that undeclared values become. None: the first one."""

    bounds: tuple[Bound, Bound] | None = None
    """Of an integer, real, datetime or date column: least and greatest value. None: bought."""

    drop: bool = False
    """Left out of the synthetic table."""

    format: str | None = None
    """Of a datetime or date column: how text files write it, in the words of `strptime`."""

    def __post_init__(self) -> None:
        _require_text(self.name, "A column's name")
        if self.kind not in KINDS:
            raise SchemaError(
                f"Column {self.name!r}: kind must be one of {', '.join(KINDS)}; found {self.kind!r}."
                f"{did_you_mean(_OTHER_WORDS.get(str(self.kind).lower(), self.kind), KINDS)}"
            )
        for key in ("nullable", "drop"):
            if not isinstance(getattr(self, key), bool):
                raise SchemaError(
                    f"Column {self.name!r}: {key} must be true or false, found {_shown(getattr(self, key))}."
                )
        if self.format is not None:
            self._check_format()
        if self.categories is not None:
            object.__setattr__(self, "categories", self._checked_categories(self.categories))
        if self.unknown is not None:
            object.__setattr__(self, "unknown", self._checked_unknown(self.unknown))
        if self.bounds is not None:
            object.__setattr__(self, "bounds", self._checked_bounds(self.bounds))

    @property
    def modelled(self) -> bool:
        """Whether a synthesizer learns this column; text, ids and dropped columns are never looked at."""
        return not self.drop and self.kind not in ("text", "id")

    @property
    def bought(self) -> Literal["categories", "bounds"] | None:
        """What the schema leaves open here, to be bought from the data with part of the budget."""
        if not self.modelled:
            return None
        if self.kind == "categorical" and self.categories is None:
            return "categories"
        if self.kind in BOUNDED and self.bounds is None:
            return "bounds"
        return None

    def _check_format(self) -> None:
        if self.kind not in ("datetime", "date"):
            raise SchemaError(
                f'Column {self.name!r}: format is for kinds datetime and date, and this one is "{self.kind}".'
                " Remove it, or change the kind."
            )
        if not isinstance(self.format, str) or not self.format:
            raise SchemaError(
                f'Column {self.name!r}: format must be a text such as "%d.%m.%Y", found {_shown(self.format)}.'
            )

    def _checked_categories(self, categories: Iterable[Category]) -> tuple[Category, ...]:
        if self.kind != "categorical":
            hint = "A boolean column has true and false by itself" if self.kind == "boolean" else "Remove them"
            raise SchemaError(
                f'Column {self.name!r}: categories are for kind "categorical", and this one is "{self.kind}".'
                f" {hint}, or change the kind."
            )
        if isinstance(categories, (str, Mapping, Set)) or not isinstance(categories, Iterable):
            raise SchemaError(f"Column {self.name!r}: categories must be a list, found {_shown(categories)}.")
        values = tuple(_plain(value) for value in categories)
        if not values:
            raise SchemaError(
                f"Column {self.name!r}: categories is an empty list. Name at least one, or remove the line to have"
                " them bought from the data."
            )
        types = sorted({type(value).__name__ for value in values})
        if len(types) > 1 or types[0] not in ("str", "int", "float", "bool"):
            raise SchemaError(
                f"Column {self.name!r}: categories must all be texts, all integers, all floats or all booleans;"
                f" found {' and '.join(types)}. Write them in one way."
            )
        for value in values:
            if isinstance(value, str):
                _require_text(value, f"Column {self.name!r}: a category")
            elif isinstance(value, float) and not math.isfinite(value):
                raise SchemaError(
                    f"Column {self.name!r}: {value} cannot be a category. Remove it; a null has a level of its own"
                    " where nullable is true."
                )
        twice = [value for value, count in Counter(values).items() if count > 1]
        if twice:
            raise SchemaError(f"Column {self.name!r}: categories names {_listed(twice)} more than once. Keep one.")
        return values

    def _checked_unknown(self, unknown: Category) -> Category:
        unknown = _plain(unknown)
        if self.categories is None:
            raise SchemaError(
                f"Column {self.name!r}: unknown needs declared categories to choose from. Declare them, or remove"
                ' unknown: a bought list always keeps an "other".'
            )
        if not _is_among(unknown, self.categories):
            raise SchemaError(
                f"Column {self.name!r}: unknown is {_shown(unknown)}, which is not among its categories."
                f"{did_you_mean(unknown, self.categories)} Add it to categories, or choose one of them."
            )
        return unknown

    def _checked_bounds(self, bounds: Sequence[Bound]) -> tuple[Bound, Bound]:
        where = f"Column {self.name!r}"
        if self.kind not in BOUNDED:
            raise SchemaError(
                f'{where}: bounds are for kinds {", ".join(BOUNDED)}, and this one is "{self.kind}".'
                " Remove them, or change the kind."
            )
        if isinstance(bounds, str) or not isinstance(bounds, Sequence) or len(bounds) != 2:
            raise SchemaError(f"{where}: bounds must be a list [least, greatest], found {_shown(bounds)}.")
        lower, upper = (_as_bound(bound, self.kind, where) for bound in bounds)
        if (
            isinstance(lower, datetime)
            and isinstance(upper, datetime)
            and (lower.tzinfo is None) != (upper.tzinfo is None)
        ):
            raise SchemaError(f"{where}: one bound has a time zone and the other has none. Write both in the same way.")
        if not lower < upper:  # type: ignore[operator]
            raise SchemaError(
                f"{where}: the lower bound must be below the upper one, found [{_toml(lower)}, {_toml(upper)}]."
                f" {'Swap them' if lower > upper else 'Widen them, or drop the column'}."  # type: ignore[operator]
            )
        return lower, upper


@dataclasses.dataclass(frozen=True, kw_only=True)
class Schema:
    """What is public about a table. Immutable; `dataclasses.replace` makes a changed copy, checked again.

    >>> schema = Schema.from_toml('[columns.age]\\nkind = "integer"\\nbounds = [17, 90]')
    >>> schema["age"].bounds, schema.rows
    ((17, 90), None)
    """

    columns: tuple[Column, ...]

    rows: int | None = None
    """The declared number of rows. None: a noisy count is bought."""

    unit: str | None = None
    """The column that names the protected unit, where a person may own several rows. Its kind becomes `id`."""

    max_rows_per_unit: int = 1
    """With `unit`: at most this many rows of each unit are used."""

    target: str | None = None
    """The column that matters most."""

    positive: Category | None = None
    """The target's positive class, for scores."""

    drafted: bool = False
    """Whether the kinds were drafted from the file and no person has confirmed them yet."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "columns", tuple(self.columns))
        if not self.columns:
            raise SchemaError(
                "The schema declares no column. Add a [columns.NAME] section for each column of the table."
            )
        twice = [name for name, count in Counter(self.names).items() if count > 1]
        if twice:
            raise SchemaError(f"Duplicate column names: {_listed(twice)}. Rename them, so that each is there once.")
        if self.rows is not None:
            _require_count(self.rows, "rows")
        if not isinstance(self.drafted, bool):
            raise SchemaError(f"[table] drafted must be true or false, found {_shown(self.drafted)}.")
        self._check_unit()
        self._check_target()

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(column.name for column in self.columns)

    @property
    def modelled(self) -> tuple[Column, ...]:
        """The columns that a synthesizer learns, in the table's order."""
        return tuple(column for column in self.columns if column.modelled)

    def __getitem__(self, name: str) -> Column:
        for column in self.columns:
            if column.name == name:
                return column
        raise SchemaError(f"The schema has no column {name!r}.{did_you_mean(name, self.names)}")

    def __contains__(self, name: object) -> bool:
        return name in self.names

    def __iter__(self) -> Iterator[Column]:
        return iter(self.columns)

    def with_target(self, target: str | None, positive: Category | None = None) -> "Schema":
        """A copy with another target; a positive class is kept only where the target stays the same."""
        if positive is None and target == self.target:
            positive = self.positive
        return dataclasses.replace(self, target=target, positive=positive)

    @classmethod
    def draft(cls, arrow_schema: pa.Schema) -> "Schema":
        """Names and kinds from Arrow types alone: reads no value, no distinct count and no number of rows.

        A field's metadata `kind` and `format` are honoured: the reader of text files leaves them there.
        """
        return cls(columns=tuple(_drafted_column(field) for field in arrow_schema), drafted=True)

    @classmethod
    def read(cls, path: str | os.PathLike[str]) -> "Schema":
        """Reads a TOML file."""
        return cls.from_toml(read_text(path), source=str(path))

    def write(self, path: str | os.PathLike[str], *, force: bool = False) -> None:
        """Writes a TOML file, whole or not at all. An existing file is replaced only with `force`."""
        _write_whole(Path(path), self.to_toml().encode(), force=force)

    @classmethod
    def from_toml(cls, text: str, *, source: str = "The schema") -> "Schema":
        """Reads TOML; `source` names the file in messages."""
        try:
            content = tomllib.loads(text)
        except tomllib.TOMLDecodeError as error:
            raise SchemaError(f"{source} is not valid TOML: {str(error).rstrip('.')}. Mend that line.") from None
        try:
            return _from_tables(content)
        except SchemaError as error:
            raise SchemaError(f"{source}: {error}") from None

    def to_toml(self) -> str:
        """The schema as commented TOML: what is declared public, and what will be bought. Stable to the byte."""
        return "\n\n".join([_HEADER, _table_toml(self), *map(_column_toml, self.columns)]) + "\n"

    @classmethod
    def from_dict(cls, content: Mapping[str, object]) -> "Schema":
        """The reverse of `to_dict`."""
        columns = content.get("columns")
        if not isinstance(columns, list) or not all(isinstance(entry, dict) and "name" in entry for entry in columns):
            raise SchemaError('A schema\'s "columns" must be a list of objects, each with a "name".')
        table = {key: value for key, value in content.items() if key != "columns"}
        return _assembled(
            table, tuple(_column_from(e["name"], {k: v for k, v in e.items() if k != "name"}) for e in columns)
        )

    def to_dict(self) -> dict[str, object]:
        """The same facts for JSON: dates as ISO text, absent facts left out."""
        table = {key: value for key, value in _set_fields(self).items() if key != "columns"}
        return {**table, "columns": [_json_safe(_set_fields(column)) for column in self.columns]}

    def _check_unit(self) -> None:
        _require_count(self.max_rows_per_unit, "max_rows_per_unit")
        if self.unit is None:
            if self.max_rows_per_unit != 1:
                raise SchemaError(_NEEDS_UNIT)
            return
        column = self._column_of("unit", self.unit)
        # The column is an identifier whatever was written: as such no part of the pipeline can model it by mistake.
        as_id = Column(name=column.name, kind="id", nullable=column.nullable, drop=column.drop)
        object.__setattr__(self, "columns", tuple(as_id if c is column else c for c in self.columns))

    def _check_target(self) -> None:
        if self.target is None:
            if self.positive is not None:
                raise SchemaError(
                    "[table] positive needs target, the column whose class it is. Add target, or remove it."
                )
            return
        column = self._column_of("target", self.target)
        if not column.modelled:
            why = "is dropped" if column.drop else f"has kind {column.kind!r}"
            raise SchemaError(
                f"[table] target is column {self.target!r}, which {why} and so is never modelled. Choose another."
            )
        if self.positive is None:
            return
        object.__setattr__(self, "positive", _plain(self.positive))
        if not isinstance(self.positive, (str, int, float, bool)):
            raise SchemaError(f"[table] positive must be one value of the target, found {_shown(self.positive)}.")
        categories = (False, True) if column.kind == "boolean" else column.categories
        if categories is not None and not _is_among(self.positive, categories):
            raise SchemaError(
                f"[table] positive is {_shown(self.positive)}, which is not among the categories of the target"
                f" {self.target!r}: {_listed(categories)}.{did_you_mean(self.positive, categories)}"
            )

    def _column_of(self, key: str, name: object) -> Column:
        if isinstance(name, str) and name in self.names:
            return self[name]
        raise SchemaError(
            f"[table] {key} is {_shown(name)}, and there is no such column.{did_you_mean(name, self.names)}"
            f" Name a column of the table, or remove {key}."
        )


@dataclasses.dataclass(frozen=True, kw_only=True)
class Domain:
    """The encoded table's public shape: how many codes each column has, and the public number of rows.

    >>> domain = Domain(names=("sex", "age"), sizes=(2, 10), num_rows=100)
    >>> domain.shape(("age", "sex")), domain.size(("age", "sex"))
    ((10, 2), 20)
    """

    names: tuple[str, ...]

    sizes: tuple[int, ...]
    """The number of codes of each column, a level for nulls included."""

    num_rows: int
    """Declared, or bought: never the exact size of a table whose size is private."""

    target: str | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "names", tuple(self.names))
        object.__setattr__(self, "sizes", tuple(int(size) for size in self.sizes))
        if len(self.names) != len(self.sizes) or len(set(self.names)) != len(self.names):
            raise SchemaError(f"A domain needs one size for each of its names; found {self.names} and {self.sizes}.")
        if min(self.sizes, default=1) < 1 or self.num_rows < 1:
            raise SchemaError(f"Sizes must be at least 1; found {self.sizes} and {self.num_rows} rows.")
        if self.target is not None and self.target not in self.names:
            raise SchemaError(
                f"The target {self.target!r} is not in the domain.{did_you_mean(self.target, self.names)}"
            )

    @property
    def singles(self) -> tuple[tuple[str], ...]:
        """The cliques of one column each."""
        return tuple((name,) for name in self.names)

    def index(self, name: str) -> int:
        if name not in self._positions:
            raise SchemaError(f"The domain has no column {name!r}.{did_you_mean(name, self.names)}")
        return self._positions[name]

    def shape(self, clique: Clique) -> tuple[int, ...]:
        return tuple(self.sizes[self.index(name)] for name in clique)

    def size(self, clique: Clique) -> int:
        """The number of cells of the clique's marginal."""
        return math.prod(self.shape(clique))

    @functools.cached_property
    def _positions(self) -> dict[str, int]:
        return {name: index for index, name in enumerate(self.names)}


def match_columns(schema: Schema, column_names: Sequence[str]) -> None:
    """Refuses a table whose columns are not those of the schema. Looks at names only, which are public.

    A column that the schema drops may be absent.
    """
    twice = [name for name, count in Counter(column_names).items() if count > 1]
    if twice:
        raise SchemaError(
            f"Duplicate column names in the table: {_listed(twice)}. Rename them, so that each is there once."
        )
    absent = [c.name for c in schema.columns if c.name not in column_names and (not c.drop or c.name == schema.unit)]
    extra = [name for name in column_names if name not in schema]
    problems = []
    if absent:
        problems.append(
            f"{_columns_are(absent)} in the schema but not in the table.{did_you_mean(absent[0], extra)}"
            f" Remove {_them(absent)} from the schema, or check the spelling."
        )
    if extra:
        problems.append(
            f"{_columns_are(extra)} in the table but not in the schema.{did_you_mean(extra[0], absent)}"
            f" Add a [columns.{_toml_key(extra[0])}] section with a kind, or one with drop = true to leave it out."
        )
    if problems:
        raise SchemaError(" ".join(problems))


@dataclasses.dataclass(frozen=True, kw_only=True)
class Finding:
    """One thing that `check` has to tell the steward. NOT private: it may hold counts and values of the table."""

    level: _Level
    """error: `fit` will refuse the table; warning: `fit` will alter or lose something; note: worth knowing."""

    topic: str
    """A fixed word for machines, such as "outside bounds"."""

    column: str | None
    """None where the finding is about the whole table."""

    message: str

    def __str__(self) -> str:
        where = "The table" if self.column is None else f"Column {self.column!r}"
        return f"{self.level}: {where}: {self.message}"


def check(schema: Schema, table: pa.Table) -> list[Finding]:
    """Compares a table with its schema, for the steward's eyes only.

    *Not covered*: everything. The findings are exact, hold counts and values of the table, and cost no budget because
    they are no part of a release: do not share them. `fit` says none of this, since saying it would be a look.
    """
    findings = [*_column_findings(schema, table.column_names), *_row_findings(schema, table)]
    if schema.unit is not None and table.column_names.count(schema.unit) == 1:
        findings += _unit_findings(schema, table)
    for column in schema.modelled:
        if table.column_names.count(column.name) == 1 and table.num_rows:
            findings += _value_findings(column, _decoded(table.column(column.name)))
    return findings


# Reading


def _from_tables(content: Mapping[str, object]) -> Schema:
    _require_known(content, ("table", "columns"), "The file")
    table, columns = content.get("table", {}), content.get("columns", {})
    if not isinstance(table, dict) or not isinstance(columns, dict):
        raise SchemaError("table and columns must be sections, written as [table] and [columns.NAME].")
    if "max_rows_per_unit" in table and "unit" not in table:
        raise SchemaError(_NEEDS_UNIT)
    return _assembled(table, tuple(_column_from(name, entry) for name, entry in columns.items()))


def _assembled(table: Mapping[str, object], columns: tuple[Column, ...]) -> Schema:
    """A schema from the keys of [table], which are the fields of `Schema`."""
    known = tuple(field.name for field in dataclasses.fields(Schema) if field.name != "columns")
    _require_known(table, known, "[table]")
    return Schema(columns=columns, **table)  # type: ignore[arg-type]


def _column_from(name: object, entry: object) -> Column:
    """A column from the keys of its section, which are the fields of `Column`."""
    if not isinstance(name, str) or not isinstance(entry, dict):
        raise SchemaError(f'Column {name!r} must be a section: [columns.{name}] with a line such as kind = "integer".')
    known = tuple(field.name for field in dataclasses.fields(Column) if field.name != "name")
    _require_known(entry, known, f"[columns.{_toml_key(name)}]")
    if "kind" not in entry and entry.get("drop") is True:
        return Column(name=name, **{"kind": "text", **entry})  # the kind of what is left out does not matter
    if "kind" not in entry:
        raise SchemaError(f"Column {name!r} has no kind. Add kind = one of {', '.join(KINDS)}.")
    return Column(name=name, **entry)


def _require_known(entry: Mapping[str, object], known: Sequence[str], where: str) -> None:
    for key in entry:
        if key not in known:
            raise SchemaError(
                f"{where} has the unknown key {key!r}.{did_you_mean(key, known)} The keys are {', '.join(known)}."
            )


def read_text(path: str | os.PathLike[str]) -> str:
    """A text file's content, or a `SchemaError` that says why not."""
    try:
        return Path(path).read_bytes().decode("utf-8-sig")
    except FileNotFoundError:
        raise SchemaError(f"There is no file {str(path)!r}. Check the path of the schema.") from None
    except UnicodeDecodeError:
        raise SchemaError(f"{path} is not UTF-8 text. Save the schema as UTF-8.") from None
    except OSError as error:
        raise SchemaError(f"Cannot read {path}: {error.strerror}.") from None


# Writing


_HEADER = """\
# What is public about this table.
# Column names and kinds are public. Every other line below is DECLARED public: a person answers for it.
# What is absent (shown as a comment where it matters) is BOUGHT from the data with part of the privacy budget.
# Of any column: nullable = false (no level for nulls), drop = true (leave it out);
# of a categorical one: unknown = "..." (the category that undeclared values become; absent: the first)."""

_COMMENT_AT = 40


def _table_toml(schema: Schema) -> str:
    lines = ["[table]"]
    if schema.drafted:
        lines.append(_line("drafted", True, "kinds were drafted from the file: confirm them, then delete this line"))
    lines.append(_line("rows", schema.rows, "declared public", "10000", "absent: a noisy count is bought"))
    lines.append(_line("unit", schema.unit, "the protected unit", '"..."', "absent: each row is a protected unit"))
    if schema.unit is not None:
        lines.append(
            _line("max_rows_per_unit", schema.max_rows_per_unit, "at most this many rows of each unit are used")
        )
    lines.append(
        _line("target", schema.target, "the column that matters most", '"..."', "absent: no column is favoured")
    )
    if schema.positive is not None:
        lines.append(_line("positive", schema.positive, "the target's positive class"))
    return "\n".join(lines)


def _column_toml(column: Column) -> str:
    never = {"text": "text is never modelled", "id": "identifiers are never modelled"}.get(column.kind, "")
    lines = [f"[columns.{_toml_key(column.name)}]", _line("kind", column.kind, never)]
    if column.drop:
        lines.append(_line("drop", True, "left out of the synthetic table"))
    if not column.nullable:
        lines.append(_line("nullable", False, "declared public: no level for nulls"))
    if column.format is not None:
        lines.append(_line("format", column.format, "how text files write it"))
    absent = "absent: bought from the data with part of the budget"
    if column.bounds is not None:
        lines.append(_line("bounds", column.bounds, "declared public"))
    elif column.bought == "bounds":
        lines.append(_line("bounds", None, "", "[least, greatest]", absent))
    if column.categories is not None:
        lines.append(_line("categories", column.categories, "declared public"))
    elif column.bought == "categories":
        lines.append(_line("categories", None, "", '["...", "..."]', absent))
    if column.unknown is not None:
        lines.append(_line("unknown", column.unknown, "where undeclared values go"))
    return "\n".join(lines)


def _line(key: str, value: object, comment: str, example: str = "", absent: str = "") -> str:
    """One line of TOML with its comment; without a value the whole line is a comment."""
    if value is None:
        return f"{f'# {key} = {example}':<{_COMMENT_AT}}# {absent}"
    text = f"{key} = {_toml(value)}"
    if len(text) > 118 and isinstance(value, tuple):
        return f"{f'{key} = [':<{_COMMENT_AT}}# {comment}\n{_filled(value)}\n]"
    return f"{text:<{_COMMENT_AT - 1}} # {comment}" if comment else text


def _filled(values: Sequence[object]) -> str:
    """Many values on as few lines as fit the page."""
    lines = ["   "]
    for value in map(_toml, values):
        if len(lines[-1]) > 4 and len(lines[-1]) + len(value) > 116:
            lines.append("   ")
        lines[-1] += f" {value},"
    return "\n".join(lines)


def _toml(value: object) -> str:
    """One value in TOML's notation."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return _toml_string(value)
    if isinstance(value, (list, tuple)):
        return f"[{', '.join(map(_toml, value))}]"
    if isinstance(value, date):
        return value.isoformat()
    return repr(value)


def _toml_key(name: str) -> str:
    return name if re.fullmatch(r"[A-Za-z0-9_-]+", name) else _toml_string(name)


def _toml_string(text: str) -> str:
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")  # JSON's escapes are a part of TOML's


def _write_whole(path: Path, content: bytes, *, force: bool) -> None:
    """Writes beside the file and then renames, so that no reader ever sees half a schema."""
    if path.exists() and not force:
        raise SchemaError(f"{path} exists already. Choose another name, or replace it with --force (force=True).")
    beside = path.with_name(f".{path.name}.{secrets.token_hex(4)}.tmp")
    try:
        with open(beside, "xb") as file:
            file.write(content)
        os.replace(beside, path)
    except OSError as error:
        raise SchemaError(f"Cannot write {path}: {error.strerror}.") from None
    finally:
        beside.unlink(missing_ok=True)


def _set_fields(record: Column | Schema) -> dict[str, object]:
    """The fields that differ from their defaults."""
    values = {field.name: (getattr(record, field.name), field.default) for field in dataclasses.fields(record)}
    return {name: value for name, (value, default) in values.items() if value is not default and value != default}


def _json_safe(entry: dict[str, object]) -> dict[str, object]:
    return {
        key: [v.isoformat() if isinstance(v, date) else v for v in value] if isinstance(value, tuple) else value
        for key, value in entry.items()
    }


# Drafting


def _drafted_column(field: pa.Field) -> Column:
    metadata = field.metadata or {}
    kind = metadata[b"kind"].decode() if b"kind" in metadata else _kind_of(field.type)
    text_format = metadata[b"format"].decode() if b"format" in metadata else None
    if kind is None:  # neither a model nor a surrogate can stand in for a list, a struct or bytes
        return Column(name=field.name, kind="text", drop=True)
    return Column(name=field.name, kind=kind, format=text_format if kind in ("datetime", "date") else None)


def _kind_of(arrow_type: pa.DataType) -> str | None:
    """The kind that an Arrow type suggests; None where no kind fits it."""
    types = pa.types
    if isinstance(arrow_type, pa.BaseExtensionType):
        return _kind_of(arrow_type.storage_type)
    if types.is_run_end_encoded(arrow_type):
        return _kind_of(arrow_type.value_type)
    if types.is_boolean(arrow_type):
        return "boolean"
    if types.is_integer(arrow_type):
        return "integer"
    if types.is_floating(arrow_type) or types.is_decimal(arrow_type):
        return "real"
    if types.is_timestamp(arrow_type):
        return "datetime"
    if types.is_date(arrow_type):
        return "date"
    if types.is_dictionary(arrow_type) or _is_text(arrow_type):
        return "categorical"
    return None


def _is_text(arrow_type: pa.DataType) -> bool:
    return pa.types.is_string(arrow_type) or pa.types.is_large_string(arrow_type) or pa.types.is_string_view(arrow_type)


# Checking


def _column_findings(schema: Schema, column_names: Sequence[str]) -> Iterator[Finding]:
    try:
        match_columns(schema, column_names)
    except SchemaError as error:
        yield Finding(level="error", topic="columns", column=None, message=str(error))


def _row_findings(schema: Schema, table: pa.Table) -> Iterator[Finding]:
    num_rows = table.num_rows
    if not num_rows:
        yield Finding(level="error", topic="rows", column=None, message="It has no rows.")
    elif schema.rows is None:
        message = "rows is not declared, so a noisy count is bought. Where the size is public, declare it."
        yield Finding(level="note", topic="rows", column=None, message=message)
        if num_rows > 1_000_000:
            message = (
                f"It has {num_rows} rows, and without declared rows delta is 1e-6, which is more than one in that many."
                " Give a smaller --delta, or declare rows where the size is public."
            )
            yield Finding(level="warning", topic="delta", column=None, message=message)
    elif schema.rows != num_rows:
        message = (
            f"rows is declared as {schema.rows}, and there are {num_rows}. Sums are divided by the declared number,"
            " and delta follows from it: mend it if it is far off."
        )
        yield Finding(level="warning", topic="rows", column=None, message=message)


def _unit_findings(schema: Schema, table: pa.Table) -> Iterator[Finding]:
    units = _decoded(table.column(schema.unit))
    if units.null_count:
        message = f"{units.null_count} rows have no unit. They are left out."
        yield Finding(level="warning", topic="no unit", column=schema.unit, message=message)
    rows_of_unit = pc.value_counts(units.drop_null()).field("counts")
    surplus = pc.subtract(rows_of_unit, schema.max_rows_per_unit)
    surplus = surplus.filter(pc.greater(surplus, 0))
    if len(surplus):
        message = (
            f"{len(surplus)} units have more than max_rows_per_unit = {schema.max_rows_per_unit} rows;"
            f" {pc.sum(surplus)} rows will not be used. The largest unit has {pc.max(rows_of_unit)}. A larger"
            " max_rows_per_unit keeps more rows and needs more noise."
        )
        yield Finding(level="warning", topic="rows per unit", column=schema.unit, message=message)


def _value_findings(column: Column, values: pa.ChunkedArray) -> Iterator[Finding]:
    def finding(level: _Level, topic: str, message: str) -> Finding:
        return Finding(level=level, topic=topic, column=column.name, message=message)

    if pa.types.is_floating(values.type):
        exact_nans = _num_true(pc.is_nan(values))
        if exact_nans:
            yield finding("warning", "not a number", f"{exact_nans} values are NaN. They count as nulls.")
            values = pc.if_else(pc.is_nan(values), None, values)
    if values.null_count == len(values):
        yield finding("warning", "all null", "Every value is null. Consider drop = true.")
        return
    if values.null_count and not column.nullable:
        message = (
            f"{values.null_count} values are null, and nullable is false: they become {_default_of(column)}. Remove the"
            " line to give nulls a level of their own."
        )
        yield finding("warning", "null", message)
    values = values.drop_null()
    converted = _as_kind(column, values)
    if converted is None:
        message = (
            f"It is declared {column.kind}, and the table holds {values.type}. Change the kind, or mend the table."
        )
        yield finding("error", "kind", message)
        return
    if len(converted) < len(values):
        num = len(values) - len(converted)
        yield finding("warning", "kind", f"{num} values cannot be read as {column.kind}. They count as nulls.")
    yield from _domain_findings(column, converted, finding)


def _domain_findings(
    column: Column, values: pa.ChunkedArray, finding: Callable[[_Level, str, str], Finding]
) -> Iterator[Finding]:
    if pa.types.is_floating(values.type):
        infinite = pc.is_inf(values)
        if _num_true(infinite):
            message = f"{_num_true(infinite)} values are infinite. They are clamped to the bounds."
            yield finding("warning", "infinite", message)
            values = values.filter(pc.invert(infinite))
    num_distinct = pc.count_distinct(values).as_py()
    if num_distinct == 1:
        yield finding("note", "constant", "Every value is the same. It costs budget and tells nothing.")
    if column.categories is not None:
        yield from _category_findings(column, values, finding)
    elif column.kind == "categorical" and num_distinct > 1000:
        message = (
            f"It has {num_distinct} distinct values, and its categories are to be bought: the rare ones become"
            ' "other". Consider kind = "text", kind = "id" or drop = true.'
        )
        yield finding("note", "many categories", message)
    if column.kind == "integer" and pa.types.is_floating(values.type):
        broken = pc.not_equal(values, pc.round(values))
        if _num_true(broken):
            message = f"{_num_true(broken)} values are not whole{_examples(values, broken)}. They are rounded."
            yield finding("warning", "not whole", message)
    if column.bounds is not None:
        yield from _bound_findings(column, column.bounds, values, finding)


def _category_findings(
    column: Column, values: pa.ChunkedArray, finding: Callable[[_Level, str, str], Finding]
) -> Iterator[Finding]:
    values, declared = _comparable(values, pa.array(column.categories))
    outside = pc.invert(pc.is_in(values, declared))
    if _num_true(outside):
        message = (
            f"{_num_true(outside)} values are outside the declared categories{_examples(values, outside)}."
            f" They become {_default_of(column)}."
        )
        yield finding("warning", "outside categories", message)
    unused = pc.invert(pc.is_in(declared, values.unique()))
    if _num_true(unused):
        message = f"{_num_true(unused)} declared categories do not occur{_examples(declared, unused)}."
        yield finding("note", "unused categories", message)


def _bound_findings(
    column: Column,
    bounds: tuple[Bound, Bound],
    values: pa.ChunkedArray,
    finding: Callable[[_Level, str, str], Finding],
) -> Iterator[Finding]:
    if isinstance(bounds[0], datetime) and (bounds[0].tzinfo is None) != (values.type.tz is None):
        has, lacks = ("bounds", "values") if bounds[0].tzinfo else ("values", "bounds")
        yield finding(
            "warning", "time zone", f"The {has} have a time zone and the {lacks} have none. Write both alike."
        )
        return
    outside = pc.or_(_below(values, bounds[0]), _below(values, bounds[1], above=True))
    if _num_true(outside):
        message = (
            f"{_num_true(outside)} values are outside the bounds [{_toml(bounds[0])}, {_toml(bounds[1])}]"
            f"{_examples(values, outside)}. They are clamped."
        )
        yield finding("warning", "outside bounds", message)


def _below(values: pa.ChunkedArray, bound: Bound, *, above: bool = False) -> pa.ChunkedArray:
    """Which values lie below the bound, or above it; exact for integers of any size."""
    compare = pc.greater if above else pc.less
    if pa.types.is_integer(values.type):
        extremes = pc.min_max(values).as_py()  # a bound that the column's type cannot hold is beyond all or no values
        if not extremes["min"] <= cast(int, bound) <= extremes["max"]:
            beyond = bound < extremes["min"] if above else bound > extremes["max"]  # type: ignore[operator]
            return pa.chunked_array([pa.repeat(beyond, len(values))])
    return compare(values, pa.scalar(bound, type=values.type))


def _as_kind(column: Column, values: pa.ChunkedArray) -> pa.ChunkedArray | None:
    """The values that can be read as the column's kind, in a type to compare; None where their type allows none."""
    types, held = pa.types, values.type
    if column.kind == "categorical":
        return None if types.is_nested(held) else values
    if _is_text(held):
        return _read_as_kind(column, values)
    if column.kind in ("datetime", "date"):
        if not (types.is_timestamp(held) or types.is_date(held)):
            return None
        zone = held.tz if types.is_timestamp(held) else None
        return values.cast(pa.date32() if column.kind == "date" else pa.timestamp("us", tz=zone), safe=False)
    if types.is_boolean(held):
        return values if column.kind == "boolean" else values.cast(pa.int8())
    if not (types.is_integer(held) or types.is_floating(held) or types.is_decimal(held)):
        return None
    if types.is_integer(held) and column.kind == "integer":
        return values
    values = values.cast(pa.float64(), safe=False)
    return pc.not_equal(values, 0.0) if column.kind == "boolean" else values


def _read_as_kind(column: Column, texts: pa.ChunkedArray) -> pa.ChunkedArray | None:
    """The texts that can be read as the column's kind; None where its format is no format."""
    import duckdb  # here, because a schema is otherwise read without it

    kinds = {"integer": "BIGINT", "real": "DOUBLE", "boolean": "BOOLEAN", "datetime": "TIMESTAMP", "date": "DATE"}
    reading = "v" if column.format is None else "try_strptime(v, ?)"
    with duckdb.connect() as connection:
        connection.register("texts", pa.table({"v": texts}))
        query = f"SELECT TRY_CAST({reading} AS {kinds[column.kind]}) AS v FROM texts"
        try:
            read = connection.sql(query, params=None if column.format is None else [column.format]).to_arrow_table()
        except duckdb.Error:
            return None
        return read.column("v").drop_null()


def _comparable(values: pa.ChunkedArray, declared: pa.Array) -> tuple[pa.ChunkedArray, pa.Array]:
    """Values and categories in one type: that of the categories where the values allow it, else as text."""
    try:
        return values.cast(declared.type), declared
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        return values.cast(pa.string()), declared.cast(pa.string())


def _decoded(values: pa.ChunkedArray) -> pa.ChunkedArray:
    """The values without their dictionary, extension or run-length wrapping."""
    if isinstance(values.type, pa.BaseExtensionType):
        return _decoded(values.cast(values.type.storage_type))
    if pa.types.is_dictionary(values.type):
        return _decoded(values.cast(values.type.value_type))
    if pa.types.is_run_end_encoded(values.type):
        return _decoded(pc.run_end_decode(values))
    plain = {pa.float16(): pa.float32(), pa.string_view(): pa.string()}  # Arrow cannot compute with the former
    return values.cast(plain.get(values.type, values.type))


def _default_of(column: Column) -> str:
    """In words: the fixed public value that stands for one that the schema does not allow."""
    if column.unknown is not None:
        return _shown(column.unknown)
    if column.categories is not None:
        return f"the first category, {_shown(column.categories[0])}"
    return {"boolean": "false", "categorical": '"other"'}.get(column.kind, "the lower bound")


def _num_true(mask: pa.ChunkedArray) -> int:
    return pc.sum(mask).as_py() or 0


def _examples(values: pa.ChunkedArray | pa.Array, mask: pa.ChunkedArray | pa.Array) -> str:
    shown = ", ".join(_shown(value) for value in values.filter(mask).unique().slice(0, 3).to_pylist())
    return f" (such as {shown})"


# Values and words


def _as_bound(value: object, kind: str, where: str) -> Bound:
    """A bound in the type of its kind: whole numbers stay exact, zones become fixed offsets as in TOML."""
    value = _plain(value)
    try:
        match kind, value:
            case "integer", int() if not isinstance(value, bool):
                return value
            case "integer", float() if value.is_integer():
                return int(value)
            case "real", int() | float() if not isinstance(value, bool) and math.isfinite(float(value)):
                return float(value)
            case "datetime", str():
                return _with_fixed_offset(datetime.fromisoformat(value))
            case "datetime", datetime():
                return _with_fixed_offset(value)
            case "datetime", date():
                return datetime(value.year, value.month, value.day)
            case "date", str():
                return date.fromisoformat(value)
            case "date", date() if not isinstance(value, datetime):
                return value
    except (ValueError, OverflowError):
        pass
    wanted = {
        "integer": "whole numbers",
        "real": "finite numbers",
        "datetime": "times such as 2024-01-31T12:00:00",
        "date": "dates such as 2024-01-31",
    }
    raise SchemaError(f'{where}: bounds of kind "{kind}" must be {wanted[kind]}, found {_shown(value)}.')


def _with_fixed_offset(moment: datetime) -> datetime:
    """The same moment with a whole-minute offset, the only zone that TOML can write."""
    offset = moment.utcoffset()
    if offset is None:
        return moment.replace(fold=0)
    if offset % timedelta(minutes=1):
        return moment.astimezone(UTC)
    return moment.replace(tzinfo=timezone(offset), fold=0)


def _plain(value: object) -> Category:
    """A Python value for a NumPy one, which would be written in other words."""
    return cast(Category, value.item()) if type(value).__module__ == "numpy" else cast(Category, value)  # type: ignore[attr-defined]


def _is_among(value: Category, categories: Iterable[Category]) -> bool:
    """Membership in which true is not 1."""
    return any(value == category and isinstance(value, bool) == isinstance(category, bool) for category in categories)


def _require_text(value: object, what: str) -> None:
    if not isinstance(value, str):
        raise SchemaError(f"{what} must be a text, found {_shown(value)}.")
    try:
        value.encode()
    except UnicodeEncodeError:
        raise SchemaError(f"{what} is not valid Unicode: {value!r}. Rename it.") from None


def _require_count(value: object, key: str) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise SchemaError(f"[table] {key} must be a whole number of at least 1, found {_shown(value)}.")


def _shown(value: object) -> str:
    """A value of the schema file, short enough for a message."""
    text = _toml(value) if isinstance(value, (str, bool)) else str(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


def _listed(values: Sequence[object]) -> str:
    shown = ", ".join(_shown(value) for value in values[:5])
    return shown if len(values) <= 5 else f"{shown} and {len(values) - 5} more"


def _columns_are(names: Sequence[str]) -> str:
    return (
        f"Column {names[0]!r} is"
        if len(names) == 1
        else f"Columns {', '.join(map(repr, names[:5]))}{' and others' * (len(names) > 5)} are"
    )


def _them(names: Sequence[str]) -> str:
    return "it" if len(names) == 1 else "them"


def did_you_mean(found: object, known: Iterable[object]) -> str:
    """A hint at the nearest name, or nothing."""
    words = [word for word in known if isinstance(word, str)]
    if not isinstance(found, str) or not words:
        return ""
    lowered = {word.lower().strip(): word for word in reversed(words)}
    near = difflib.get_close_matches(found.lower().strip(), lowered, n=1, cutoff=0.6)
    return f" Did you mean {lowered[near[0]]!r}?" if near else ""
