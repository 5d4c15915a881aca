"""What is public about a table: names, kinds, and whatever a person declared; the rest is bought from the data.

A schema is a small TOML file that a data steward can read. Column names and kinds are public. Categories, bounds and
the number of rows are either written there, by a person who answers for their being public, or they are absent, and
then Understudy buys them with part of the privacy budget. Nothing in this file reads a value of a table.
"""

import dataclasses
import functools
import math
import os
import tomllib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import date
from pathlib import Path

import pyarrow as pa

from understudy.columns import BOUNDED as BOUNDED
from understudy.columns import KINDS, Category, Column, did_you_mean, is_among, listed, plain, shown, toml, toml_key
from understudy.columns import Bound as Bound
from understudy.errors import SchemaError
from understudy.run.atomic import atomic_write

Clique = Sequence[str]

_NEEDS_UNIT = (
    "[table] max_rows_per_unit needs unit, the column that names the protected unit. Add unit, or remove"
    " max_rows_per_unit."
)


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
            raise SchemaError(f"Duplicate column names: {listed(twice)}. Rename them, so that each is there once.")
        if self.rows is not None:
            _require_count(self.rows, "rows")
        if not isinstance(self.drafted, bool):
            raise SchemaError(f"[table] drafted must be true or false, found {shown(self.drafted)}.")
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

        A field's metadata `kind`, `format` and `decimals` are honoured: the reader of text files leaves them there.
        """
        return cls(columns=tuple(_drafted_column(field) for field in arrow_schema), drafted=True)

    @classmethod
    def read(cls, path: str | os.PathLike[str]) -> "Schema":
        """Reads a TOML file."""
        return cls.from_toml(read_text(path), source=str(path))

    def write(self, path: str | os.PathLike[str], *, force: bool = False) -> None:
        """Writes a TOML file, whole or not at all. An existing file is replaced only with `force`."""
        with atomic_write(path, force=force) as file:
            file.write(self.to_toml().encode())

    @classmethod
    def from_toml(cls, text: str, *, source: str = "The schema") -> "Schema":
        """Reads TOML; `source` names the file in messages."""
        try:
            content = tomllib.loads(text)
        except tomllib.TOMLDecodeError as error:
            raise SchemaError(
                f"{source} is not valid TOML: {str(error).rstrip('.')}. Mend that line; of a table, draft a schema "
                "first ('understudy schema draft')."
            ) from None
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
        object.__setattr__(self, "positive", plain(self.positive))
        if not isinstance(self.positive, (str, int, float, bool)):
            raise SchemaError(f"[table] positive must be one value of the target, found {shown(self.positive)}.")
        categories = (False, True) if column.kind == "boolean" else column.categories
        if categories is not None and not is_among(self.positive, categories):
            raise SchemaError(
                f"[table] positive is {shown(self.positive)}, which is not among the categories of the target"
                f" {self.target!r}: {listed(categories)}.{did_you_mean(self.positive, categories)}"
            )

    def _column_of(self, key: str, name: object) -> Column:
        if isinstance(name, str) and name in self.names:
            return self[name]
        raise SchemaError(
            f"[table] {key} is {shown(name)}, and there is no such column.{did_you_mean(name, self.names)}"
            f" Name a column of the table, or remove {key}."
        )


MERGED_SIZE = 3
"""Codes of an estimated list of categories that is merged as far as possible: one category, "other", and null."""


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

    numbers: tuple[str, ...] = dataclasses.field(default=(), compare=False, repr=False)
    """Which columns are numbers or times, with bounds and an order."""

    declared_rows: int | None = dataclasses.field(default=None, compare=False, repr=False)
    """The number of rows where it was declared, and so known before any purchase; None: it is bought."""

    bought: tuple[str, ...] = dataclasses.field(default=(), compare=False, repr=False)
    """Columns whose number of codes is bought: no price may follow from it."""

    most_sizes: tuple[int, ...] = dataclasses.field(default=(), compare=False, repr=False)
    """The largest size that each column can have, from facts known before any query; empty: the sizes are known."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "names", tuple(self.names))
        object.__setattr__(self, "sizes", tuple(int(size) for size in self.sizes))
        if self.most_sizes and len(self.most_sizes) != len(self.sizes):
            raise SchemaError(f"A domain needs one largest size for each of its names; found {self.most_sizes}.")
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
            raise SchemaError(f"There is no column {name!r} to be modelled.{did_you_mean(name, self.names)}")
        return self._positions[name]

    def only(self, columns: Iterable[str]) -> "Domain":
        """Without all other columns, in the same order; the target stays if it is among them.

        >>> Domain(names=("sex", "age"), sizes=(2, 10), num_rows=100, target="sex").only(["age"])
        Domain(names=('age',), sizes=(10,), num_rows=100, target=None)
        """
        kept = sorted({self.index(name) for name in columns})
        names = tuple(self.names[at] for at in kept)
        return Domain(
            names=names,
            sizes=tuple(self.sizes[at] for at in kept),
            num_rows=self.num_rows,
            target=self.target if self.target in names else None,
            numbers=tuple(name for name in self.numbers if name in names),
            declared_rows=self.declared_rows,
            bought=tuple(name for name in self.bought if name in names),
            most_sizes=tuple(self.most_sizes[at] for at in kept) if self.most_sizes else (),
        )

    @property
    def largest(self) -> "Domain":
        """The same with every column at its largest size. Refusals that depend on sizes are decided on this or on
        `merged`: estimated sizes are noisy answers, and a refusal after a query would come too late."""
        return dataclasses.replace(self, sizes=self.most_sizes or self.sizes)

    @property
    def merged(self) -> "Domain":
        """The largest domain that remains when estimated lists of categories are merged as far as possible."""
        sizes = [
            min(size, MERGED_SIZE) if name in self.bought else size
            for name, size in zip(self.names, self.largest.sizes, strict=True)
        ]
        return dataclasses.replace(self, sizes=tuple(sizes))

    def shape(self, clique: Clique) -> tuple[int, ...]:
        return tuple(self.sizes[self.index(name)] for name in clique)

    def size(self, clique: Clique) -> int:
        """The number of cells of the clique's marginal."""
        return math.prod(self.shape(clique))

    @functools.cached_property
    def _positions(self) -> dict[str, int]:
        return {name: index for index, name in enumerate(self.names)}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Scale:
    """What is public about a numeric column besides its codes: places between its bounds, from 0 to 1.

    >>> Scale(run_edges=(0.0, 0.25, 0.5, 1.0), run_masses=(0.5, 0.3, 0.2), first_run=(0, 2, 3), whole=8).edges
    (0.0, 0.5, 1.0)
    """

    run_edges: tuple[float, ...]
    """Of the cells of its fine histogram, bought or assumed."""

    run_masses: tuple[float, ...]

    first_run: tuple[int, ...]
    """For each bin its first cell, and at the end the number of cells."""

    whole: int | None = None
    """How many whole numbers lie between the bounds; None: not only whole ones."""

    nullable: bool = False

    @property
    def edges(self) -> tuple[float, ...]:
        """Of the bins."""
        return tuple(self.run_edges[run] for run in self.first_run)


def match_columns(schema: Schema, column_names: Sequence[str]) -> None:
    """Refuses a table whose columns are not those of the schema. Looks at names only, which are public.

    A column that the schema drops may be absent.
    """
    twice = [name for name, count in Counter(column_names).items() if count > 1]
    if twice:
        raise SchemaError(
            f"Duplicate column names in the table: {listed(twice)}. Rename them, so that each is there once."
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
            f" Add a [columns.{toml_key(extra[0])}] section with a kind, or one with drop = true to leave it out."
        )
    if problems:
        raise SchemaError(" ".join(problems))


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
    _require_known(entry, known, f"[columns.{toml_key(name)}]")
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
# of a categorical one: unknown = "..." (the category that undeclared values become; absent: the first).
# How text files write it, of a real column: decimals = 2 (digits after the point; absent: as many as needed);
# of a date or datetime: format = "%d.%m.%Y"; of a boolean: format = "no/yes" (absent: "false/true")."""

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
    lines = [f"[columns.{toml_key(column.name)}]", _line("kind", column.kind, never)]
    if column.drop:
        lines.append(_line("drop", True, "left out of the synthetic table"))
    if not column.nullable:
        lines.append(_line("nullable", False, "declared public: no level for nulls"))
    if column.format is not None:
        what = "how text files write false and true" if column.kind == "boolean" else "how text files write it"
        lines.append(_line("format", column.format, what))
    if column.decimals is not None:
        lines.append(_line("decimals", column.decimals, "digits after the point in text files"))
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
    text = f"{key} = {toml(value)}"
    if len(text) > 118 and isinstance(value, tuple):
        return f"{f'{key} = [':<{_COMMENT_AT}}# {comment}\n{_filled(value)}\n]"
    return f"{text:<{_COMMENT_AT - 1}} # {comment}" if comment else text


def _filled(values: Sequence[object]) -> str:
    """Many values on as few lines as fit the page."""
    lines = ["   "]
    for value in map(toml, values):
        if len(lines[-1]) > 4 and len(lines[-1]) + len(value) > 116:
            lines.append("   ")
        lines[-1] += f" {value},"
    return "\n".join(lines)


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
    facts = {key.decode(): value.decode() for key, value in (field.metadata or {}).items()}
    kind = facts.get("kind") or _kind_of(field.type)
    if kind is None:  # neither a model nor a surrogate can stand in for a list, a struct or bytes
        return Column(name=field.name, kind="text", drop=True)
    text_format = facts.get("format") if kind in ("datetime", "date", "boolean") else None
    decimals = int(facts["decimals"]) if kind == "real" and facts.get("decimals", "").isdecimal() else None
    return Column(name=field.name, kind=kind, format=text_format, decimals=decimals)


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
    if types.is_dictionary(arrow_type) or is_text(arrow_type):
        return "categorical"
    return None


def is_text(arrow_type: pa.DataType) -> bool:
    """Whether an Arrow type holds texts."""
    return pa.types.is_string(arrow_type) or pa.types.is_large_string(arrow_type) or pa.types.is_string_view(arrow_type)


# Words


def _require_count(value: object, key: str) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise SchemaError(f"[table] {key} must be a whole number of at least 1, found {shown(value)}.")


def _columns_are(names: Sequence[str]) -> str:
    return (
        f"Column {names[0]!r} is"
        if len(names) == 1
        else f"Columns {', '.join(map(repr, names[:5]))}{' and others' * (len(names) > 5)} are"
    )


def _them(names: Sequence[str]) -> str:
    return "it" if len(names) == 1 else "them"
