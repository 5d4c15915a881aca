"""The schema of a table: its columns, its privacy unit, its target. Reads no value of a table."""

import dataclasses
import os
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TypeAlias

import pyarrow as pa

from understudy.errors import SchemaError, did_you_mean
from understudy.rules.keys import check_keys, read_text
from understudy.rules.rules import Rule
from understudy.rules.values import Category, check_text, format_list, format_value, is_among, to_python, to_toml_key
from understudy.run.atomic import write_file
from understudy.schema.column import Column, set_fields
from understudy.schema.draft import draft_column
from understudy.schema.locations import Location
from understudy.schema.toml import (
    NEEDS_UNIT,
    format_schema,
    parse_toml,
    read_column,
    read_rules,
    read_sections,
    without_content,
)
from understudy.summary import Summarized, Summary

_PARTS = ("columns", "rules", "locations")
"""The fields that a schema file has in sections of their own."""

MAX_ROWS = 2**33
"""The fixed-point arithmetic of scores and sums is proven up to here."""


@dataclasses.dataclass(frozen=True, kw_only=True, repr=False)
class Schema(Summarized):
    """What is public about a table. Immutable; `dataclasses.replace` makes a changed copy and checks it.

    >>> schema = Schema.from_toml('[columns.age]\\nkind = "integer"\\nbounds = [17, 90]')
    >>> schema["age"].bounds, schema.rows
    ((17, 90), None)
    """

    columns: tuple[Column, ...]
    """All columns of the table, in its order."""

    rows: int | None = None
    """The declared number of rows. None: a noisy count is used."""

    unit: str | None = None
    """The column that identifies the privacy unit, if a person may have several rows. Its kind becomes `id`."""

    max_rows_per_unit: int = 1
    """With `unit`: at most this many rows of each unit are used."""

    target: str | None = None
    """The column that matters most."""

    positive: Category | None = None
    """The positive class of the target, for scores."""

    rules: tuple[Rule, ...] = ()
    """What every synthetic row satisfies. Declared public, never inferred from data."""

    locations: tuple[Location, ...] = ()
    """The columns that hold points of a public region. Those that `columns` lacks are added to it."""

    drafted: bool = False
    """Whether the kinds were drafted from the table and not yet confirmed by a person."""

    name: str | None = None
    """The name of the data set. Declared public, as the next two: they stand in the certificate."""

    responsible: str | None = None
    """Who is responsible for the release: a person or an office."""

    contact: str | None = None
    """Whom to ask about the release, such as an e-mail address."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "columns", tuple(self.columns))
        self._add_locations()
        if not self.columns:
            raise SchemaError(
                "The schema declares no column. Add a [columns.NAME] section for each column of the table."
            )
        twice = [name for name, count in Counter(self.names).items() if count > 1]
        if twice:
            raise SchemaError(f"Duplicate column names: {format_list(twice)}. Rename all but one.", column=twice[0])
        if self.rows is not None:
            _check_count(self.rows, "rows")
        if not isinstance(self.drafted, bool):
            raise _table_error("drafted", f"must be true or false, found {format_value(self.drafted)}.")
        for key in ("name", "responsible", "contact"):
            _check_title(getattr(self, key), key)
        self._check_unit()
        self._check_target()
        self._check_rules()

    @property
    def names(self) -> tuple[str, ...]:
        """The columns of the table, in its order."""
        return tuple(column.name for column in self.columns)

    @property
    def modelled(self) -> tuple[Column, ...]:
        """The columns that a synthesizer learns, in order."""
        return tuple(column for column in self.columns if column.modelled)

    @property
    def links_rows(self) -> bool:
        """Whether synthetic rows are linked: units may own several rows, and their ids are in the synthetic table."""
        return self.unit is not None and self.max_rows_per_unit > 1 and not self[self.unit].drop

    @property
    def sections(self) -> tuple[Column | Location, ...]:
        """The sections of a schema file: its columns, and each location in place of its columns."""
        sections: dict[str, Column | Location] = {}
        for column in self.columns:
            section = next((each for each in self.locations if column.name in each.names), column)
            sections.setdefault(section.name, section)
        return tuple(sections.values())

    def __getitem__(self, name: str) -> Column:
        for column in self.columns:
            if column.name == name:
                return column
        raise SchemaError(f"The schema has no column {name!r}.{did_you_mean(name, self.names)}", column=name)

    def __contains__(self, name: object) -> bool:
        return name in self.names

    def __iter__(self) -> Iterator[Column]:
        return iter(self.columns)

    def summary(self) -> Summary:
        """What its `repr` shows."""
        facts = {
            "rows": "estimated privately" if self.rows is None else f"{self.rows:,}",
            "privacy unit": "one row" if self.unit is None else f"{self.unit}, at most {self.max_rows_per_unit} row(s)",
            **({} if self.target is None else {"target": self.target}),
            **({"rules": "; ".join(rule.text for rule in self.rules)} if self.rules else {}),
        }
        named = "" if self.name is None else f" of {self.name}"
        title = f"{'Drafted schema' if self.drafted else 'Schema'}{named}: {len(self.columns)} column(s)"
        rows = [(column.name, "dropped" if column.drop else column.kind, _declared(column)) for column in self.columns]
        return Summary(title, facts, ("column", "kind", "declared"), rows)

    def with_target(self, target: str | None, positive: Category | None = None) -> "Schema":
        """A copy with another target; the positive class is kept only if the target stays the same."""
        if positive is None and target == self.target:
            positive = self.positive
        return dataclasses.replace(self, target=target, positive=positive)

    @classmethod
    def draft(cls, arrow_schema: pa.Schema, *, trust_labels: bool = False) -> "Schema":
        """Names and kinds from Arrow types alone: reads no value, no distinct count and no number of rows.

        Args:
            arrow_schema: The fields. Their metadata `kind`, `format` and `decimals` are used: the reader of text files
                puts them there.
            trust_labels: Declare the value labels of Stata and SPSS files as categories: only for labels that come from
                a code book, since some tools write those that occur in the data.

        Returns:
            The schema, which is marked as drafted.

        Raises:
            SchemaError: A name or a type cannot be declared.
        """
        columns = tuple(draft_column(field, trust_labels=trust_labels) for field in arrow_schema)
        return cls(columns=columns, drafted=True)

    @classmethod
    def read(cls, path: str | os.PathLike[str]) -> "Schema":
        """Reads a TOML file. Paths of lookup tables in its rules, and of regions, are relative to its folder.

        Args:
            path: The file.

        Returns:
            The schema.

        Raises:
            SchemaError: The file cannot be read, or its content is malformed.
        """
        return cls.from_toml(read_text(path), source=str(path), folder=Path(path).parent)

    def write(
        self, path: str | os.PathLike[str], *, force: bool = False, found: Mapping[str, str] | None = None
    ) -> None:
        """Writes a TOML file, whole or not at all. An existing file is replaced only with `force`.

        `found` are comments on columns: what the source says about them and is not declared.
        """
        write_file(path, self.to_toml(found).encode(), force=force)

    @classmethod
    def from_toml(cls, text: str, *, source: str = "The schema", folder: Path | None = None) -> "Schema":
        """Reads TOML.

        Args:
            text: The content of a file.
            source: The name of the file in messages.
            folder: Paths of lookup tables and regions are relative to it.

        Returns:
            The schema.

        Raises:
            SchemaError: The content is malformed.
        """
        content = parse_toml(text, source)
        try:
            return cls._from_parts(*read_sections(content, folder))
        except SchemaError as error:
            raise without_content(error, content, folder).in_file(source) from None

    def to_toml(self, found: Mapping[str, str] | None = None) -> str:
        """Commented TOML that says what is declared public and what will be estimated privately. Deterministic."""
        return format_schema(self.sections, vars(self), found or {}, self.rules)

    @classmethod
    def from_dict(cls, content: Mapping[str, object]) -> "Schema":
        """Reads what `to_dict` returns."""
        columns = content.get("columns")
        if not isinstance(columns, list) or not all(isinstance(entry, dict) and "name" in entry for entry in columns):
            raise SchemaError('A schema\'s "columns" must be a list of objects, each with a "name".', key="columns")
        table = {key: value for key, value in content.items() if key not in ("columns", "rules")}
        return cls._from_parts(
            table,
            tuple(read_column(e["name"], {k: v for k, v in e.items() if k != "name"}) for e in columns),
            read_rules(content.get("rules", [])),
        )

    def to_dict(self) -> dict[str, object]:
        """The same for JSON: dates as ISO text, defaults left out."""
        table = {key: value for key, value in set_fields(self).items() if key not in _PARTS}
        rules = {"rules": [rule.to_dict() for rule in self.rules]} if self.rules else {}
        columns = [
            section.to_dict() if isinstance(section, Location) else set_fields(section) for section in self.sections
        ]
        return {**table, **rules, "columns": columns}

    @classmethod
    def _from_parts(
        cls, table: Mapping[str, object], sections: tuple[Column | Location, ...], rules: tuple[Rule, ...] = ()
    ) -> "Schema":
        """A schema from the keys of [table], which are its fields."""
        known = tuple(field.name for field in dataclasses.fields(cls) if field.name not in _PARTS)
        check_keys(table, known, "[table]")
        columns = [column for each in sections for column in (each.columns if isinstance(each, Location) else [each])]
        locations = tuple(each for each in sections if isinstance(each, Location))
        # `__post_init__` checks the types of what a file has.
        return cls(columns=tuple(columns), rules=rules, locations=locations, **table)  # type: ignore[arg-type]

    def _add_locations(self) -> None:
        """Adds the columns of locations, and refuses those that cannot be distinguished from others."""
        object.__setattr__(self, "locations", tuple(self.locations))
        columns = [column for location in self.locations for column in location.columns]
        if not all(isinstance(column, Column) for column in self.columns):
            raise SchemaError("columns must be a list of Column. Give locations as locations.", key="columns")
        added = tuple(column for column in columns if column.name not in self.names)
        object.__setattr__(self, "columns", (*self.columns, *added))
        for location in self.locations:
            for column in location.columns:
                if self.names.count(column.name) != 1 or column not in self.columns:
                    raise SchemaError(
                        f"Column {column.name!r} is part of the location {location.name!r} and is declared there. "
                        f"Remove the section [columns.{to_toml_key(column.name)}].",
                        column=column.name,
                    )
            if location.is_pair and location.name in self.names:
                raise SchemaError(
                    f"The location {location.name!r} has the name of a column of the table. Give it another name.",
                    column=location.name,
                )
        names = {location.name for location in self.locations}
        alone = [c.name for c in self.columns if c.kind == "location" and not c.drop and c.name not in names]
        if alone:
            raise SchemaError(
                f"Column {alone[0]!r} is a location without a public region. Declare one: box, region, mask, sites or "
                "regions.",
                column=alone[0],
                key="region",
            )

    def _check_unit(self) -> None:
        _check_count(self.max_rows_per_unit, "max_rows_per_unit")
        self._check_per_unit()
        if self.unit is None:
            if self.max_rows_per_unit != 1:
                raise SchemaError(NEEDS_UNIT, key="max_rows_per_unit")
            return
        column = self._column_of("unit", self.unit)
        # Whatever kind was declared: as an identifier it cannot be modelled by mistake.
        as_id = Column(name=column.name, kind="id", nullable=column.nullable, drop=column.drop, missing=column.missing)
        object.__setattr__(self, "columns", tuple(as_id if c is column else c for c in self.columns))

    def _check_per_unit(self) -> None:
        """Refuses columns that cannot have one value per synthetic unit."""
        for column in self.columns:
            if not column.per_unit:
                continue
            if self.unit is None:
                problem = "needs [table] unit, the column that identifies the unit. Add unit, or remove per_unit."
            elif column.name == self.unit:
                problem = "this is the unit column itself, which has one value per unit anyway. Remove per_unit."
            elif not column.modelled:
                problem = f"the column {column.why_not_modelled}. Remove per_unit."
            elif self.unit in self.names and self[self.unit].drop:
                problem = (
                    f"the unit column {self.unit!r} is dropped, so synthetic rows belong to no unit. Remove drop there,"
                    " or per_unit here."
                )
            else:
                continue
            raise SchemaError(f"Column {column.name!r}, per_unit: {problem}", column=column.name, key="per_unit")

    def _check_target(self) -> None:
        if self.target is None:
            if self.positive is not None:
                raise _table_error(
                    "positive", "needs target, the column of which it is a class. Add target, or remove positive."
                )
            return
        column = self._column_of("target", self.target)
        if not column.modelled:
            problem = f"is column {self.target!r}, which {column.why_not_modelled}. Choose another."
            raise _table_error("target", problem, column=self.target)
        if self.positive is None:
            return
        object.__setattr__(self, "positive", to_python(self.positive))
        if not isinstance(self.positive, (str, int, float, bool)):
            raise _table_error("positive", f"must be one value of the target, found {format_value(self.positive)}.")
        categories = (False, True) if column.kind == "boolean" else column.categories
        if categories is not None and not is_among(self.positive, categories):
            problem = (
                f"is {format_value(self.positive)}, which is not one of the categories of the target {self.target!r}: "
                f"{format_list(categories)}.{did_you_mean(self.positive, categories)}"
            )
            raise _table_error("positive", problem, column=self.target)

    def _check_rules(self) -> None:
        """Refuses rules that cannot be satisfied; sums get the decimals of their columns."""
        if isinstance(self.rules, str | Mapping):
            raise SchemaError("rules must be a list of rules. Put the one rule into a list.", key="rules")
        object.__setattr__(self, "rules", read_rules(list(self.rules)))
        if not self.rules:
            return
        from understudy.schema.rule_checks import checked_rules  # loads DuckDB, which only conditions need

        object.__setattr__(self, "rules", checked_rules(self.rules, self.columns))

    def _column_of(self, key: str, name: object) -> Column:
        if any(name in location.names for location in self.locations):
            problem = f"is {name!r}, a part of a location, which cannot be the {key}. Choose another column."
            raise _table_error(key, problem, column=str(name))
        if isinstance(name, str) and name in self.names:
            return self[name]
        problem = (
            f"is {format_value(name)}, but there is no such column.{did_you_mean(name, self.names)} Name a column of "
            f"the table, or remove {key}."
        )
        raise _table_error(key, problem, column=str(name))


SchemaSource: TypeAlias = Schema | Mapping[str, object] | str | os.PathLike[str]
"""A schema, its content as a dict, or the path of its file."""


def as_schema(given: SchemaSource) -> Schema:
    """The schema that a caller gave: itself, read from a file, or made from a dict.

    A dict has the sections of a schema file, or is what `Schema.to_dict` returns.
    """
    if isinstance(given, Schema):
        return given
    if isinstance(given, str | os.PathLike):
        return Schema.read(given)
    if isinstance(given, Mapping):
        if isinstance(given.get("columns"), list):
            return Schema.from_dict(given)
        return Schema._from_parts(*read_sections(given))
    raise SchemaError(
        f"schema must be a us.Schema, the path of a schema file or a dict of its sections; found {type(given).__name__}"
        "."
    )


def match_columns(schema: Schema, column_names: Sequence[str]) -> None:
    """Raises unless a table with these columns has those of the schema, in any order. Names are public.

    A column that the schema drops may be absent.
    """
    twice = [name for name, count in Counter(column_names).items() if count > 1]
    if twice:
        raise SchemaError(
            f"Duplicate column names in the table: {format_list(twice)}. Rename all but one.", column=twice[0]
        )
    absent = [c.name for c in schema.columns if c.name not in column_names and (not c.drop or c.name == schema.unit)]
    extra = [name for name in column_names if name not in schema]
    problems = []
    if absent:
        problems.append(
            f"{_columns_are(absent)} in the schema but not in the table.{did_you_mean(absent[0], extra)}"
            f" Remove {'it' if len(absent) == 1 else 'them'} from the schema, or check the spelling."
        )
    if extra:
        problems.append(
            f"{_columns_are(extra)} in the table but not in the schema.{did_you_mean(extra[0], absent)}"
            f" Add a [columns.{to_toml_key(extra[0])}] section with a kind, or with drop = true to leave it out."
        )
    if problems:
        raise SchemaError(" ".join(problems), column=[*absent, *extra][0])


def _table_error(key: str, problem: str, *, column: str | None = None) -> SchemaError:
    return SchemaError(f"[table] {key} {problem}", column=column, key=key)


def _check_count(value: object, key: str) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= MAX_ROWS:
        raise _table_error(key, f"must be an integer from 1 to {MAX_ROWS:,}, found {format_value(value)}.")


def _check_title(value: object, key: str) -> None:
    """Raises unless the value is absent or one line of text."""
    if value is None:
        return
    if not isinstance(value, str) or not value.strip() or len(value.splitlines()) > 1:
        example = f'{key} = "{_TITLES[key]}"'
        raise _table_error(key, f"must be one line of text, such as {example}, found {format_value(value)}.")
    check_text(value, f"[table] {key}")


_TITLES = {"name": "Hospital stays 2024", "responsible": "Jane Doe", "contact": "data@example.org"}


def _declared(column: Column) -> str:
    """What is declared about a column beside its kind, in a few words."""
    if column.categories is not None:
        return f"{len(column.categories)} categories"
    if column.bounds is not None:
        return f"{column.bounds[0]} to {column.bounds[1]}"
    if column.kind == "location":
        return "points of a region"
    return "" if column.estimated is None else f"{column.estimated} estimated privately"


def _columns_are(names: Sequence[str]) -> str:
    if len(names) == 1:
        return f"Column {names[0]!r} is"
    return f"Columns {', '.join(map(repr, names[:5]))}{' and others' * (len(names) > 5)} are"
