"""One column's public facts, and the words in which they are refused."""

import dataclasses
import difflib
import json
import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence, Set
from datetime import UTC, date, datetime, timedelta, timezone
from typing import Literal, cast

from understudy.errors import SchemaError

KINDS = ("categorical", "integer", "real", "boolean", "datetime", "date", "text", "id")
"""What a column can be. `text` and `id` are never modelled."""

BOUNDED = ("integer", "real", "datetime", "date")
"""The kinds that have bounds."""

MOST_DECIMALS = 15
"""More digits than these are those of a binary fraction, not a precision."""

Category = str | int | float | bool
Bound = int | float | datetime | date

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
    """How text files write it: of a datetime or date, in the words of `strptime`; of a boolean, its words for false and
    true, as in "no/yes". None: a boolean is written "false/true"; true, t, yes, y, 1 and their opposites are read."""

    decimals: int | None = None
    """Of a real column: digits after the point. None: as many as a value needs."""

    def __post_init__(self) -> None:
        require_text(self.name, "A column's name")
        if self.kind not in KINDS:
            raise SchemaError(
                f"Column {self.name!r}: kind must be one of {', '.join(KINDS)}; found {self.kind!r}."
                f"{did_you_mean(_OTHER_WORDS.get(str(self.kind).lower(), self.kind), KINDS)}"
            )
        for key in ("nullable", "drop"):
            if not isinstance(getattr(self, key), bool):
                raise SchemaError(
                    f"Column {self.name!r}: {key} must be true or false, found {shown(getattr(self, key))}."
                )
        if self.format is not None:
            self._check_format(self.format)
        if self.decimals is not None:
            self._check_decimals(self.decimals)
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

    def _check_format(self, text_format: object) -> None:
        where = f"Column {self.name!r}: format"
        if self.kind not in ("datetime", "date", "boolean"):
            raise SchemaError(
                f'{where} is for kinds datetime, date and boolean, and this one is "{self.kind}".'
                " Remove it, or change the kind."
            )
        example = "no/yes" if self.kind == "boolean" else "%d.%m.%Y"
        if not isinstance(text_format, str) or not text_format:
            raise SchemaError(f'{where} must be a text such as "{example}", found {shown(text_format)}.')
        if self.kind == "boolean":
            words = text_format.split("/")
            if len(words) != 2 or words[0] == words[1] or not all(word and word == word.strip() for word in words):
                raise SchemaError(
                    f'{where} must be the words for false and true, as in "{example}", found {shown(text_format)}.'
                )

        elif not re.search(r"%[YyGcxDFsQ]", text_format):
            raise SchemaError(
                f'{where} must be written with the signs of strptime, as in "{example}" for 31.12.1990, found'
                f" {shown(text_format)}."
            )

    def _check_decimals(self, decimals: object) -> None:
        where = f"Column {self.name!r}: decimals"
        if self.kind != "real":
            raise SchemaError(
                f'{where} is for kind real, and this one is "{self.kind}". Remove it, or change the kind.'
            )
        if isinstance(decimals, bool) or not isinstance(decimals, int) or not 0 <= decimals <= MOST_DECIMALS:
            raise SchemaError(f"{where} must be a whole number from 0 to {MOST_DECIMALS}, found {shown(decimals)}.")

    def _checked_categories(self, categories: Iterable[Category]) -> tuple[Category, ...]:
        if self.kind != "categorical":
            hint = "A boolean column has true and false by itself" if self.kind == "boolean" else "Remove them"
            raise SchemaError(
                f'Column {self.name!r}: categories are for kind "categorical", and this one is "{self.kind}".'
                f" {hint}, or change the kind."
            )
        if isinstance(categories, (str, Mapping, Set)) or not isinstance(categories, Iterable):
            raise SchemaError(f"Column {self.name!r}: categories must be a list, found {shown(categories)}.")
        values = tuple(plain(value) for value in categories)
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
                require_text(value, f"Column {self.name!r}: a category")
            elif isinstance(value, float) and not math.isfinite(value):
                raise SchemaError(
                    f"Column {self.name!r}: {value} cannot be a category. Remove it; a null has a level of its own"
                    " where nullable is true."
                )
        twice = [value for value, count in Counter(values).items() if count > 1]
        if twice:
            raise SchemaError(f"Column {self.name!r}: categories names {listed(twice)} more than once. Keep one.")
        return values

    def _checked_unknown(self, unknown: Category) -> Category:
        unknown = plain(unknown)
        if self.categories is None:
            raise SchemaError(
                f"Column {self.name!r}: unknown needs declared categories to choose from. Declare them, or remove"
                ' unknown: a bought list always keeps an "other".'
            )
        if not is_among(unknown, self.categories):
            raise SchemaError(
                f"Column {self.name!r}: unknown is {shown(unknown)}, which is not among its categories."
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
            raise SchemaError(f"{where}: bounds must be a list [least, greatest], found {shown(bounds)}.")
        lower, upper = (_as_bound(bound, self.kind, where) for bound in bounds)
        if (
            isinstance(lower, datetime)
            and isinstance(upper, datetime)
            and (lower.tzinfo is None) != (upper.tzinfo is None)
        ):
            raise SchemaError(f"{where}: one bound has a time zone and the other has none. Write both in the same way.")
        if not lower < upper:  # type: ignore[operator]
            raise SchemaError(
                f"{where}: the lower bound must be below the upper one, found [{toml(lower)}, {toml(upper)}]."
                f" {'Swap them' if lower > upper else 'Widen them, or drop the column'}."  # type: ignore[operator]
            )
        return lower, upper


# Values and words


def _as_bound(value: object, kind: str, where: str) -> Bound:
    """A bound in the type of its kind: whole numbers stay exact, zones become fixed offsets as in TOML."""
    value = plain(value)
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
    raise SchemaError(f'{where}: bounds of kind "{kind}" must be {wanted[kind]}, found {shown(value)}.')


def _with_fixed_offset(moment: datetime) -> datetime:
    """The same moment with a whole-minute offset, the only zone that TOML can write."""
    offset = moment.utcoffset()
    if offset is None:
        return moment.replace(fold=0)
    if offset % timedelta(minutes=1):
        return moment.astimezone(UTC)
    return moment.replace(tzinfo=timezone(offset), fold=0)


def plain(value: object) -> Category:
    """A Python value for a NumPy one, which would be written in other words."""
    return cast(Category, value.item()) if type(value).__module__ == "numpy" else cast(Category, value)  # type: ignore[attr-defined]


def is_among(value: Category, categories: Iterable[Category]) -> bool:
    """Membership in which true is not 1."""
    return any(value == category and isinstance(value, bool) == isinstance(category, bool) for category in categories)


def require_text(value: object, what: str) -> None:
    """Refuses what is no text that a file can hold."""
    if not isinstance(value, str):
        raise SchemaError(f"{what} must be a text, found {shown(value)}.")
    try:
        value.encode()
    except UnicodeEncodeError:
        raise SchemaError(f"{what} is not valid Unicode: {value!r}. Rename it.") from None


def shown(value: object) -> str:
    """A value of the schema file, short enough for a message."""
    text = toml(value) if isinstance(value, (str, bool)) else str(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


def listed(values: Sequence[object]) -> str:
    """Some values of the schema file, the first five by name."""
    first = ", ".join(shown(value) for value in values[:5])
    return first if len(values) <= 5 else f"{first} and {len(values) - 5} more"


def did_you_mean(found: object, known: Iterable[object]) -> str:
    """A hint at the nearest name, or nothing."""
    words = [word for word in known if isinstance(word, str)]
    if not isinstance(found, str) or not words:
        return ""
    lowered = {word.lower().strip(): word for word in reversed(words)}
    near = difflib.get_close_matches(found.lower().strip(), lowered, n=1, cutoff=0.6)
    return f" Did you mean {lowered[near[0]]!r}?" if near else ""


def toml(value: object) -> str:
    """One value in TOML's notation."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return _toml_string(value)
    if isinstance(value, (list, tuple)):
        return f"[{', '.join(map(toml, value))}]"
    if isinstance(value, date):
        return value.isoformat()
    return repr(value)


def toml_key(name: str) -> str:
    """A name as a TOML key, in quotes where it needs them."""
    return name if re.fullmatch(r"[A-Za-z0-9_-]+", name) else _toml_string(name)


def _toml_string(text: str) -> str:
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")  # JSON's escapes are a part of TOML's
