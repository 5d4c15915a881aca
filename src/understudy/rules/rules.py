"""Rules that every synthetic row satisfies: public facts about single rows, declared in the schema.

A rule is never inferred from data. As in an SQL CHECK, a row breaks a rule only if the rule is false for it: a null
leaves a comparison unknown, and what is unknown is not broken.
"""

import abc
import dataclasses
import functools
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import ClassVar, cast

import numpy as np
import pyarrow as pa

from understudy.errors import ConditionError, SchemaError, did_you_mean
from understudy.rules.comparison import Mask, as_floats, as_text, equal_to_listed, is_null, match_lookup
from understudy.rules.keys import LookupRow, check_condition_text, check_keys, check_names, check_rows, read_lookup
from understudy.rules.values import format_list, format_value, to_python, to_toml

ON_BREAK = ("clamp", "drop")
"""What can happen to a real row that breaks a rule: it is moved to the nearest row that satisfies it, or left out."""

TOLERANCE = 1e-6
"""How far a sum of reals without declared decimals may be from its total, relative to the larger of 1 and the total."""

MAX_NUMBER = 1e300
"""Sums of larger numbers would not be finite."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Rule(abc.ABC):
    """A public fact about every row, satisfied by every synthetic row. The classes below are its kinds."""

    FIRST_KEY: ClassVar[str]
    """The key by which a schema file shows the kind."""
    CONDITION_KEYS: ClassVar[tuple[str, ...]] = ()
    """The keys that are SQL conditions."""

    on_break: str | None = None
    """What happens to a real row that breaks it, "clamp" or "drop". None: clamp where the rule says how, else drop."""

    def __post_init__(self) -> None:
        if self.on_break is not None and self.on_break not in ON_BREAK:
            raise SchemaError(
                f'on_break must be "clamp" or "drop", found {format_value(self.on_break)}.'
                f"{did_you_mean(self.on_break, ON_BREAK)}",
                key="on_break",
            )
        for key in self.CONDITION_KEYS:
            check_condition_text(getattr(self, key), key)

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns it is about, as written: by default those of its conditions."""
        from understudy.rules.conditions import condition_columns  # loads DuckDB, which only conditions need

        return tuple(dict.fromkeys(name for condition in self.conditions for name in condition_columns(condition)))

    @property
    @abc.abstractmethod
    def text(self) -> str:
        """The rule in one line, for people."""

    @property
    def conditions(self) -> tuple[str, ...]:
        """Its SQL conditions, as written."""
        return tuple(getattr(self, key) for key in self.CONDITION_KEYS)

    @abc.abstractmethod
    def broken(self, table: pa.Table) -> Mask:
        """Which rows break it: a function of each row alone, which no value makes fail."""

    def to_dict(self) -> dict[str, object]:
        """Its keys as in a schema file, with lookup tables inline."""
        names = [field.name for field in dataclasses.fields(self) if field.name not in ("source", "on_break")]
        values = {name: getattr(self, name) for name in (*names, "on_break")}
        return {name: _as_list(value) for name, value in values.items() if value is not None}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Keep(Rule):
    """An SQL condition over the columns of one row."""

    FIRST_KEY = "keep"
    CONDITION_KEYS = ("keep",)
    keep: str

    @property
    def text(self) -> str:
        return _one_line(self.keep)

    def broken(self, table: pa.Table) -> Mask:
        return _truth(table, self.keep)[1]


@dataclasses.dataclass(frozen=True, kw_only=True)
class WhenThen(Rule):
    """A condition that holds wherever another one does. Where `when` is unknown, nothing is required."""

    FIRST_KEY = "then"
    CONDITION_KEYS = ("when", "then")
    when: str
    then: str

    @property
    def text(self) -> str:
        return f"when {_one_line(self.when)} then {_one_line(self.then)}"

    @property
    def condition(self) -> str:
        """The same as one SQL condition."""
        return f"NOT coalesce(({self.when}), FALSE) OR ({self.then})"

    def broken(self, table: pa.Table) -> Mask:
        return np.asarray(_truth(table, self.when)[0] & _truth(table, self.then)[1])


@dataclasses.dataclass(frozen=True, kw_only=True)
class Combinations(Rule):
    """A list of the combinations of values that are allowed, or of those that are forbidden.

    A row with a null in one of the columns breaks no rule.
    """

    FIRST_KEY = "combinations"
    combinations: tuple[str, ...]
    allowed: tuple[LookupRow, ...] | None = None
    forbidden: tuple[LookupRow, ...] | None = None
    source: str | None = dataclasses.field(default=None, compare=False)
    """The file that the list was read from."""

    def __post_init__(self) -> None:
        super().__post_init__()
        names = check_names(self.combinations, "combinations", at_least=2)
        object.__setattr__(self, "combinations", names)
        if (self.allowed is None) == (self.forbidden is None):
            raise SchemaError(
                "combinations needs a list of the combinations: either allowed or forbidden, as in"
                ' allowed = [["France", "EUR"]] or allowed = "pairs.csv".',
                key="combinations",
            )
        key = "forbidden" if self.allowed is None else "allowed"
        object.__setattr__(self, key, check_rows(getattr(self, key), key, names))

    @property
    def columns(self) -> tuple[str, ...]:
        return self.combinations

    @property
    def listed(self) -> tuple[LookupRow, ...]:
        """The rows of the list."""
        return self.forbidden or () if self.allowed is None else self.allowed

    @property
    def text(self) -> str:
        kind = "forbidden" if self.allowed is None else "allowed"
        return f"{', '.join(self.combinations)}: {len(self.listed)} {kind} combinations"

    def broken(self, table: pa.Table) -> Mask:
        known, index = match_lookup(table, self.combinations, self.listed)
        return known & ((index >= 0) if self.allowed is None else (index < 0))


@dataclasses.dataclass(frozen=True, kw_only=True)
class Determines(Rule):
    """A functional dependency given by a public table: the values of some columns determine those of others.

    A key that is not in the table breaks the rule.
    """

    FIRST_KEY = "determines"
    determines: tuple[str, ...]
    gives: tuple[str, ...]
    table: tuple[LookupRow, ...]
    """Rows of the columns of `determines`, then those of `gives`."""
    source: str | None = dataclasses.field(default=None, compare=False)
    """The file that the table was read from."""

    def __post_init__(self) -> None:
        super().__post_init__()
        keys, given = check_names(self.determines, "determines"), check_names(self.gives, "gives")
        object.__setattr__(self, "determines", keys)
        object.__setattr__(self, "gives", given)
        if both := [name for name in given if name in keys]:
            raise SchemaError(
                f"Column {both[0]!r} is both in determines and in gives. Remove it from one of them.", column=both[0]
            )
        names = (*keys, *given)
        listed = check_rows(self.table, "table", names, nulls_from=len(keys))
        vars(self)["table"] = listed
        seen: dict[tuple[str | None, ...], tuple[str | None, ...]] = {}
        for row in listed:
            strings = tuple(map(as_text, row))
            if seen.setdefault(strings[: len(keys)], strings[len(keys) :]) != strings[len(keys) :]:
                raise SchemaError(
                    f"The table has different values for the key {format_list(row[: len(keys)])} of {', '.join(keys)}. "
                    "Keep one.",
                    column=keys[0],
                    key="table",
                )

    @property
    def columns(self) -> tuple[str, ...]:
        return (*self.determines, *self.gives)

    @functools.cached_property
    def keys(self) -> tuple[LookupRow, ...]:
        """The keys of the table, each once: 1, 1.0 and "1" are one key."""
        keys: dict[tuple[str | None, ...], LookupRow] = {}
        for row in self.table:
            key = row[: len(self.determines)]
            keys.setdefault(tuple(map(as_text, key)), key)
        return tuple(keys.values())

    @property
    def text(self) -> str:
        return f"{', '.join(self.determines)} determines {', '.join(self.gives)} ({len(self.keys)} keys)"

    def broken(self, table: pa.Table) -> Mask:
        num_keys = len(self.determines)
        known, index = match_lookup(table, self.determines, [row[:num_keys] for row in self.table])
        broken = known & (index < 0)
        for at, name in enumerate(self.gives, start=num_keys):
            values = [row[at] for row in self.table]
            has_value, same = equal_to_listed(table.column(name), values, index)
            broken |= known & (index >= 0) & has_value & ~same
        return broken


@dataclasses.dataclass(frozen=True, kw_only=True)
class Sum(Rule):
    """Columns that add up to a total, or to no more than it: a column or a number. A null leaves the sum unknown."""

    FIRST_KEY = "sum"
    sum: tuple[str, ...]
    equals: str | int | float | None = None
    at_most: str | int | float | None = None
    decimals: int | None = dataclasses.field(default=None, compare=False)
    """How many decimals of the sum are compared, set by the schema; None: not all columns have declared decimals."""

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "sum", check_names(self.sum, "sum", at_least=2))
        if sum(getattr(self, key) is None for key in ("equals", "at_most")) != 1:
            raise SchemaError(
                'sum needs what the columns add up to: either equals or at_most, as in equals = "total" or '
                "at_most = 24.",
                key="sum",
            )
        key = "equals" if self.at_most is None else "at_most"
        total = to_python(getattr(self, key))
        object.__setattr__(self, key, total)
        is_number = isinstance(total, int | float) and not isinstance(total, bool) and abs(total) <= MAX_NUMBER
        if not is_number and not (isinstance(total, str) and total):
            raise SchemaError(f"{key} must be a column or a number, found {format_value(total)}.", key=key)
        if total in self.sum:
            raise SchemaError(f"Column {total!r} cannot be part of its own sum. Remove it from sum.", column=str(total))

    @property
    def total(self) -> str | int | float:
        """The column or number on the other side."""
        return self.equals if self.is_exact else self.at_most  # type: ignore[return-value]  # one is given

    @property
    def is_exact(self) -> bool:
        """Whether the columns add up to the total, rather than to no more than it."""
        return self.at_most is None

    @property
    def columns(self) -> tuple[str, ...]:
        return (*self.sum, self.total) if isinstance(self.total, str) else self.sum

    @property
    def text(self) -> str:
        return f"{' + '.join(self.sum)} {'=' if self.is_exact else '<='} {self.total}"

    def to_dict(self) -> dict[str, object]:
        return {key: value for key, value in super().to_dict().items() if key != "decimals"}

    def broken(self, table: pa.Table) -> Mask:
        parts = [as_floats(table.column(name)) for name in self.sum]
        total = as_floats(table.column(self.total)) if isinstance(self.total, str) else np.float64(self.total)
        with np.errstate(invalid="ignore", over="ignore"):
            excess = np.sum(parts, axis=0) - total
            slack = (
                0.5 * 10.0**-self.decimals
                if self.decimals is not None
                else TOLERANCE
                * np.maximum(1.0, np.max(np.abs([*parts, np.broadcast_to(total, parts[0].shape)]), axis=0))
            )
            return np.asarray(np.abs(excess) > slack if self.is_exact else excess > slack)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Skip(Rule):
    """A column that is null exactly where a condition is true, as in a questionnaire that skips a question.

    Where the condition is unknown, nothing is required.
    """

    FIRST_KEY = "skip"
    CONDITION_KEYS = ("when",)
    skip: str
    when: str

    def __post_init__(self) -> None:
        super().__post_init__()
        if not isinstance(self.skip, str) or not self.skip:
            raise SchemaError(
                f'skip must be a column, as in skip = "employer", found {format_value(self.skip)}.', key="skip"
            )

    @property
    def columns(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys((self.skip, *super().columns)))

    @property
    def text(self) -> str:
        return f"{self.skip} is null exactly when {_one_line(self.when)}"

    def broken(self, table: pa.Table) -> Mask:
        is_true, is_false = _truth(table, self.when)
        null = is_null(table.column(self.skip))
        return np.asarray((is_true & ~null) | (is_false & null))


KINDS: tuple[type[Rule], ...] = (Keep, Combinations, Determines, Sum, Skip, WhenThen)
"""The kinds of rules. Skip comes before WhenThen, since both have `when`."""


# ----------------------------------------------------------------------------------------------------- reading, writing


def rule_from_dict(entry: object, *, number: int = 1, folder: Path | None = None) -> Rule:
    """A rule from its keys in a schema file. Paths of lookup tables are relative to `folder`.

    A rule is returned as it is, and a string is the condition of a `Keep`.
    """
    where = f"Rule {number}"
    if isinstance(entry, Rule):
        return entry
    if isinstance(entry, str):
        entry = {"keep": entry}
    if not isinstance(entry, Mapping):
        raise SchemaError(
            f'{where} must be a section, [[rules]] with a line such as keep = "a >= b", or in Python a dict or a rule; '
            f"found {type(entry).__name__}."
        )
    kind = next((kind for kind in KINDS if kind.FIRST_KEY in entry), None)
    if kind is None:
        known = [kind.FIRST_KEY for kind in KINDS]
        found = format_list(list(entry)) if entry else "nothing"
        hint = next((hint for key in entry if (hint := did_you_mean(key, known))), "")
        raise SchemaError(f"{where} has {found}; expected one of the keys {', '.join(known)}.{hint}")
    known = [field.name for field in dataclasses.fields(kind) if field.name not in ("source", "decimals")]
    check_keys(entry, known, f"{where} ({kind.FIRST_KEY})")
    needed = [f.name for f in dataclasses.fields(kind) if f.default is dataclasses.MISSING]
    if missing := [key for key in needed if key not in entry]:
        raise SchemaError(f"{where} ({kind.FIRST_KEY}) lacks the key {missing[0]!r}. Add it.", key=missing[0])
    try:
        return kind(**_read_files(kind, dict(entry), folder))  # type: ignore[arg-type]  # checked by `__post_init__`
    except (SchemaError, ConditionError) as error:
        raise SchemaError(f"{where}: {error}", column=error.column, key=getattr(error, "key", None)) from None


def _read_files(kind: type[Rule], entry: dict[str, object], folder: Path | None) -> dict[str, object]:
    """Replaces the path of a lookup table by its rows."""
    for key in ("allowed", "forbidden", "table"):
        if isinstance(path := entry.get(key), str):
            listed = (entry.get(part) for part in ("combinations", "determines", "gives"))
            names = [name for part in listed if isinstance(part, list | tuple) for name in part]
            entry[key] = read_lookup(path, [name for name in names if isinstance(name, str)], folder=folder)
            entry["source"] = path
    return entry


def rule_title(rule: Rule, number: int) -> str:
    """How a message names a rule: its number in the schema and its text, cut to 100 characters."""
    text = rule.text if len(rule.text) <= 100 else f"{rule.text[:97]}..."
    return f"Rule {number} ({text})"


def format_rule(rule: Rule) -> str:
    """The section of a schema file."""
    lines = ["[[rules]]"]
    source = getattr(rule, "source", None)
    for key, value in rule.to_dict().items():
        if key in ("allowed", "forbidden", "table"):
            rows = cast(Sequence[Sequence[object]], value)
            lines.append(f"{key} = {to_toml(source)}" if source else _format_rows(key, rows))
        else:
            lines.append(f"{key} = {to_toml(value)}")
    return "\n".join(lines)


def _format_rows(key: str, rows: Sequence[Sequence[object]]) -> str:
    lines = [", ".join("''" if value is None else to_toml(value) for value in row) for row in rows]
    return "\n".join([f"{key} = [", *(f"    [{line}]," for line in lines), "]"])


def _truth(table: pa.Table, condition: str) -> tuple[Mask, Mask]:
    from understudy.rules.conditions import truth

    return truth(table, condition)


def _one_line(text: str) -> str:
    return " ".join(text.split())


def _as_list(value: object) -> object:
    return [_as_list(item) for item in value] if isinstance(value, tuple) else value
