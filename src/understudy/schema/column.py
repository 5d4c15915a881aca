"""One column of a schema and the checks of its keys."""

import dataclasses
import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from datetime import UTC, date, datetime, timedelta, timezone
from typing import TYPE_CHECKING, Literal

from understudy.errors import SchemaError, did_you_mean
from understudy.rules.values import Bound, Category, check_text, format_list, format_value, is_among, to_python, to_toml

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

KINDS = ("categorical", "integer", "real", "boolean", "datetime", "date", "location", "text", "id")
"""What a column can be. `text` and `id` are never modelled."""

BOUNDED = ("integer", "real", "datetime", "date")
"""The kinds that have bounds."""

OTHER = "other"
"""The category of values that are not in a list of strings."""

MAX_DECIMALS = 15
"""More digits are those of a binary fraction, not a precision."""

PARTS = ("month", "weekday", "hour")
"""The parts of a datetime that can be modelled as columns of their own. Dates have the first two."""

MAX_SPECIAL = 1000
"""The most special values of a column: each has a code of its own."""

RESOLUTIONS = {"second": 1, "minute": 60, "hour": 3600, "day": 86_400}
"""The resolutions of a datetime that can be declared, in seconds."""

_REQUIRED = ("kind", "nullable", "drop", "per_unit", "closed", "ordinal", "cyclic")

_APPLIES_TO = {
    "format": ("datetime", "date", "boolean"),
    "decimals": ("real",),
    "categories": ("categorical",),
    "bounds": BOUNDED,
    "special": BOUNDED,
    "parts": ("datetime", "date"),
    "resolution": ("datetime",),
}
"""The kinds that a key is for; absent: all."""

_NAMES_ELSEWHERE = {
    "boolean": ("bool",),
    "categorical": ("category", "enum", "nominal", "object", "ordinal", "str", "string"),
    "datetime": ("timestamp",),
    "id": ("identifier", "key"),
    "integer": ("int",),
    "location": ("coordinates", "geo", "geometry", "latlon", "place", "point"),
    "real": ("continuous", "double", "float", "number", "numeric", "numerical"),
}
"""Names of kinds in other tools, which difflib alone would not find."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Column:
    """What is public about one column.

    >>> Column(name="age", kind="integer", bounds=(17, 90)).estimated is None
    True
    >>> Column(name="workclass", kind="categorical").estimated
    'categories'
    """

    name: str
    """The name of the column in the table."""

    kind: str
    """One of `KINDS`."""

    nullable: bool = True
    """Whether nulls have a category of their own. Never inferred from the data."""

    categories: tuple[Category, ...] | None = None
    """Of a categorical column: all of its values, of one type. None: estimated privately."""

    unknown: Category | None = None
    """The category that undeclared values become. None: "other", which `listed` adds unless the list is closed."""

    closed: bool = False
    """Whether the declared categories are complete, so that there is no "other". Undeclared values then become null
    where the column is nullable, else the first category."""

    ordinal: bool = False
    """Whether the declared categories are listed in order, such as grades: rare ones may then share a code with
    their neighbours, and distances count ranks. The list is complete unless `unknown` is named."""

    bounds: tuple[Bound, Bound] | None = None
    """Of an integer, real, datetime or date column: lower and upper bound. None: estimated privately."""

    special: tuple[Bound, ...] | None = None
    """Of an integer, real, datetime or date column: values with a code of their own, such as 0 or 999. Values that
    many rows share get one anyway, if their noisy count stands out."""

    cyclic: bool = False
    """Of an integer or real column: whether the upper bound is followed by the lower one, as for hours 0 to 23."""

    parts: tuple[str, ...] | None = None
    """Of a datetime or date: the parts that are modelled as columns of their own, of `PARTS`. Needs bounds."""

    resolution: str | None = None
    """Of a datetime: "second", "minute", "hour" or "day", to which its values are cut. None: microseconds. Needs
    bounds."""

    missing: tuple[str | int | float, ...] | None = None
    """Words and numbers that stand for a missing value, such as "unknown" or 99: they are read as null."""

    drop: bool = False
    """Whether it is left out of the synthetic table."""

    per_unit: bool = False
    """Whether all rows of a synthetic unit have the same value, as for a sex or a year of birth. Needs a unit."""

    format: str | None = None
    """How text files write it: a `strptime` format for a datetime or date; for a boolean its words for false and true,
    as in "no/yes". None: a boolean is written "false/true"; true, t, yes, y, 1 and their opposites are read."""

    decimals: int | None = None
    """Of a real column: digits after the decimal point. None: as many as a value needs."""

    def __post_init__(self) -> None:
        check_text(self.name, "A column name")
        checks: dict[str, Callable[..., object]] = {
            "kind": self._check_kind,
            "nullable": _check_flag,
            "drop": _check_flag,
            "per_unit": _check_flag,
            "format": self._check_format,
            "decimals": _check_decimals,
            "categories": _check_categories,
            "unknown": self._check_unknown,
            "ordinal": self._check_ordinal,
            "closed": self._check_closed,
            "bounds": self._check_bounds,
            "special": self._check_special,
            "cyclic": self._check_cyclic,
            "parts": self._check_parts,
            "resolution": self._check_resolution,
            "missing": self._check_missing,
        }
        for key, check in checks.items():
            value = getattr(self, key)
            if value is None and key not in _REQUIRED:
                continue
            try:
                if self.kind not in _APPLIES_TO.get(key, (self.kind,)):
                    kinds = " or ".join(_APPLIES_TO[key])
                    raise SchemaError(
                        f"only for kind {kinds}, found kind {self.kind!r}. Remove {key}, or change the kind."
                    )
                object.__setattr__(self, key, check(value))
            except SchemaError as error:
                raise SchemaError(f"Column {self.name!r}, {key}: {error}", column=self.name, key=key) from None

    @property
    def modelled(self) -> bool:
        """Whether a synthesizer learns this column. Text, ids and dropped columns are never queried."""
        return not self.drop and self.kind not in ("text", "id")

    @property
    def why_not_modelled(self) -> str:
        """Why this column is not modelled, for messages."""
        return f"{'is dropped' if self.drop else f'has kind {self.kind!r}'} and so is not modelled"

    @property
    def estimated(self) -> Literal["categories", "bounds"] | None:
        """What the schema does not declare here, so that it is estimated privately with part of the budget."""
        if not self.modelled:
            return None
        if self.kind == "categorical" and self.categories is None:
            return "categories"
        if self.kind in BOUNDED and self.bounds is None:
            return "bounds"
        return None

    @property
    def listed(self) -> tuple[Category | None, ...] | None:
        """The declared categories and, unless they are closed or one is named for undeclared values, "other".

        A declared "other" (in any case) takes that role. In a list of numbers or booleans "other" is a null: None, if
        nulls do not have a code already. None instead of a list: estimated privately.

        >>> Column(name="sex", kind="categorical", categories=("female", "male")).listed
        ('female', 'male', 'other')
        >>> Column(name="sex", kind="categorical", categories=("female", "male"), closed=True).listed
        ('female', 'male')
        """
        if self.categories is None or self.closed or self.unknown is not None or self._declared_other is not None:
            return self.categories
        if isinstance(self.categories[0], str):
            return (*self.categories, OTHER)
        return self.categories if self.nullable else (*self.categories, None)

    @property
    def replacement(self) -> Category | None:
        """The category that an undeclared value becomes; None: a null."""
        assert self.categories is not None
        if self.unknown is not None:
            return self.unknown
        if self.closed:
            return None if self.nullable else self.categories[0]
        if isinstance(self.categories[0], str):
            return OTHER if self._declared_other is None else self._declared_other
        return None

    @property
    def _declared_other(self) -> str | None:
        """The declared category that is called "other": spelt so, else in any case."""
        texts = [category for category in self.categories or () if isinstance(category, str)]
        return OTHER if OTHER in texts else next((text for text in texts if text.casefold() == OTHER), None)

    @property
    def is_two_integers(self) -> bool:
        """Whether the declared bounds span two integers, such as 0 and 1: then it is treated as two categories."""
        if self.kind != "integer" or self.bounds is None:
            return False
        lower, upper = self.bounds
        return upper - lower == 1  # type: ignore[operator]  # both are integers

    def _check_kind(self, kind: object) -> object:
        if kind not in KINDS:
            meant = next((here for here, names in _NAMES_ELSEWHERE.items() if str(kind).lower() in names), kind)
            hint = did_you_mean(meant, KINDS)
            raise SchemaError(f"expected one of {', '.join(KINDS)}; found {kind!r}.{hint}")
        return kind

    def _check_format(self, text_format: object) -> object:
        example = "no/yes" if self.kind == "boolean" else "%d.%m.%Y"
        if not isinstance(text_format, str) or not text_format:
            raise SchemaError(f'expected a string such as "{example}", found {format_value(text_format)}.')
        if self.kind == "boolean":
            words = text_format.split("/")
            if len(words) != 2 or words[0] == words[1] or not all(word and word == word.strip() for word in words):
                raise SchemaError(
                    f'expected the words for false and true, as in "{example}", found {format_value(text_format)}.'
                )
        elif not re.search(r"%[YyGcxDFsQ]", text_format):
            raise SchemaError(f'expected a strptime format such as "{example}", found {format_value(text_format)}.')
        return text_format

    def _check_unknown(self, unknown: Category) -> Category:
        unknown = to_python(unknown)
        if self.categories is None:
            raise SchemaError(
                "expected one of the declared categories, but none are declared. Declare them, or remove"
                ' unknown: a privately estimated list always has an "other".',
            )
        if not is_among(unknown, self.categories):
            raise SchemaError(
                f"expected one of the categories, found {format_value(unknown)}."
                f"{did_you_mean(unknown, self.categories)} Add it to categories, or choose one of them.",
            )
        return unknown

    def _check_closed(self, closed: object) -> object:
        _check_flag(closed)
        if closed and self.categories is None:
            raise SchemaError("needs categories, the complete list. Declare them, or remove closed.")
        if closed and self.unknown is not None:
            raise SchemaError(
                "cannot be combined with unknown: a complete list has no undeclared values. Remove one of them."
            )
        return closed

    def _check_ordinal(self, ordinal: object) -> object:
        _check_flag(ordinal)
        if ordinal and self.categories is None:
            raise SchemaError("needs categories, listed in their order. Declare them, or remove ordinal.")
        if ordinal and self.unknown is None:
            object.__setattr__(self, "closed", True)  # "other" has no place in an order
        return ordinal

    def _check_cyclic(self, cyclic: object) -> object:
        _check_flag(cyclic)
        if cyclic and (self.kind not in ("integer", "real") or self.bounds is None):
            raise SchemaError("only for kind integer or real with bounds, which are one whole cycle. Declare bounds.")
        return cyclic

    def _check_parts(self, parts: object) -> tuple[str, ...]:
        allowed = PARTS if self.kind == "datetime" else PARTS[:2]
        if isinstance(parts, str) or not isinstance(parts, Iterable) or not (listed := tuple(parts)):
            raise SchemaError(f'expected a list such as ["weekday"], found {format_value(parts)}.')
        for part in listed:
            if part not in allowed:
                raise SchemaError(f"expected parts among {', '.join(allowed)}; found {format_value(part)}.")
        if len(set(listed)) < len(listed):
            raise SchemaError(f"{format_list(listed)}: a part is listed more than once. Keep one.")
        if self.bounds is None:
            raise SchemaError("needs bounds. Declare them, or remove parts.")
        return listed

    def _check_resolution(self, resolution: object) -> object:
        if resolution not in RESOLUTIONS:
            hint = did_you_mean(resolution, RESOLUTIONS)
            raise SchemaError(f"expected one of {', '.join(RESOLUTIONS)}; found {format_value(resolution)}.{hint}")
        if self.bounds is None:
            raise SchemaError("needs bounds. Declare them, or remove resolution.")
        lower, upper = self.bounds
        step = timedelta(seconds=RESOLUTIONS[str(resolution)])
        if upper - lower < 2 * step:  # type: ignore[operator]  # both are datetimes
            raise SchemaError(f"the bounds must be at least two {resolution}s apart. Widen them, or remove resolution.")
        if resolution == "day" and "hour" in (self.parts or ()):
            raise SchemaError('parts has "hour", which days do not have. Remove one of them.')
        return resolution

    def _check_missing(self, missing: object) -> tuple[Category, ...]:
        if isinstance(missing, (str, Mapping, Set)) or not isinstance(missing, Iterable):
            raise SchemaError(f'expected a list such as ["unknown", 99], found {format_value(missing)}.')
        words = tuple(to_python(word) for word in missing)
        for word in words:
            if isinstance(word, bool) or not isinstance(word, (str, int, float)) or word != word:
                raise SchemaError(f"expected strings or numbers, found {format_value(word)}.")
            if isinstance(word, str):
                check_text(word, "a word")
            if self.categories is not None and is_among(word, self.categories):
                raise SchemaError(
                    f"{format_value(word)} is one of the categories too. Remove it from categories, or from missing."
                )
        return tuple(word.strip() if isinstance(word, str) else word for word in words)

    def _check_bounds(self, bounds: Sequence[Bound]) -> tuple[Bound, Bound]:
        if isinstance(bounds, str) or not isinstance(bounds, Sequence) or len(bounds) != 2:
            raise SchemaError(f"expected a list [lower, upper], found {format_value(bounds)}.")
        lower, upper = (self._to_bound(bound) for bound in bounds)
        if len({bound.tzinfo is None for bound in (lower, upper) if isinstance(bound, datetime)}) > 1:
            raise SchemaError("one bound has a time zone and the other does not. Write both with one, or both without.")
        if not lower < upper:  # type: ignore[operator]  # both have the kind's type
            raise SchemaError(
                f"the lower bound must be less than the upper bound, found [{to_toml(lower)}, {to_toml(upper)}]."
                f" {'Widen them, or drop the column' if lower == upper else 'Swap them'}.",
            )
        return lower, upper

    def _check_special(self, special: object) -> tuple[Bound, ...]:
        if isinstance(special, (str, Mapping, Set)) or not isinstance(special, Iterable):
            raise SchemaError(f"expected a list such as [0, 999], found {format_value(special)}.")
        if self.parts or self.resolution:
            raise SchemaError("cannot be combined with parts or resolution. Remove one of them.")
        values = tuple(self._to_bound(value) for value in special)
        if not 1 <= len(values) <= MAX_SPECIAL:
            raise SchemaError(f"expected 1 to {MAX_SPECIAL:,} values, found {len(values):,}.")
        if repeated := [value for value, count in Counter(values).items() if count > 1]:
            raise SchemaError(f"{format_list(repeated)} listed more than once. Keep one.")
        moments = [value for value in (*values, *(self.bounds or ())) if isinstance(value, datetime)]
        if len({moment.tzinfo is None for moment in moments}) > 1:
            raise SchemaError("some values or bounds have a time zone and others do not. Write all with one, or none.")
        for value in values:
            # All three have the kind's type.
            if self.bounds is not None and not self.bounds[0] <= value <= self.bounds[1]:  # type: ignore[operator]
                raise SchemaError(
                    f"{format_value(value)} is outside the bounds [{to_toml(self.bounds[0])}, "
                    f"{to_toml(self.bounds[1])}]. Widen them, or remove it."
                )
            if isinstance(value, float) and self.decimals is not None and round(value, self.decimals) != value:
                raise SchemaError(f"{value} has more than {self.decimals} decimals. Round it, or declare more of them.")
        return values

    def _to_bound(self, value: object) -> Bound:
        """A bound in the type of its kind: integers stay exact, and zones become fixed offsets, as in TOML."""
        value = to_python(value)
        try:
            match self.kind, value:
                case "integer", int() if not isinstance(value, bool) and -(2**63) <= value < 2**63:
                    return value
                case "integer", float() if value.is_integer() and -(2**63) <= value < 2**63:
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
        expected = {
            "integer": "integers of 64 bits",
            "real": "finite numbers",
            "datetime": "datetimes such as 2024-01-31T12:00:00",
            "date": "dates such as 2024-01-31",
        }
        raise SchemaError(f"expected {expected[self.kind]}, found {format_value(value)}.")


def set_fields(record: "DataclassInstance") -> dict[str, object]:
    """The fields that differ from their defaults, for JSON: dates as text, tuples as lists."""
    values = {field.name: (getattr(record, field.name), field.default) for field in dataclasses.fields(record)}
    return {
        name: [v.isoformat() if isinstance(v, date) else v for v in value] if isinstance(value, tuple) else value
        for name, (value, default) in values.items()
        if value is not default and value != default
    }


def _with_fixed_offset(moment: datetime) -> datetime:
    """The same moment with a whole-minute offset, the only zone that TOML can write."""
    offset = moment.utcoffset()
    if offset is None:
        return moment.replace(fold=0)
    if offset % timedelta(minutes=1):
        return moment.astimezone(UTC)
    return moment.replace(tzinfo=timezone(offset), fold=0)


def _check_flag(value: object) -> object:
    if not isinstance(value, bool):
        raise SchemaError(f"expected true or false, found {format_value(value)}.")
    return value


def _check_decimals(decimals: object) -> object:
    if isinstance(decimals, bool) or not isinstance(decimals, int) or not 0 <= decimals <= MAX_DECIMALS:
        raise SchemaError(f"expected an integer from 0 to {MAX_DECIMALS}, found {format_value(decimals)}.")
    return decimals


def _check_categories(categories: object) -> tuple[Category, ...]:
    if isinstance(categories, (str, Mapping, Set)) or not isinstance(categories, Iterable):
        raise SchemaError(f"expected a list, found {format_value(categories)}.")
    values = tuple(to_python(value) for value in categories)
    if not values:
        raise SchemaError(
            "expected at least one, found an empty list. Remove the line to have them estimated privately."
        )
    types = sorted({type(value).__name__ for value in values})
    if len(types) > 1 or types[0] not in ("str", "int", "float", "bool"):
        raise SchemaError(
            f"expected all strings, all integers, all floats or all booleans; found {' and '.join(types)}."
            " Write them all in one type."
        )
    for value in values:
        if isinstance(value, str):
            check_text(value, "a category")
        elif isinstance(value, float) and not math.isfinite(value):
            raise SchemaError(f"{value} cannot be a category. Remove it; for nulls set nullable = true.")
    repeated = [value for value, count in Counter(values).items() if count > 1]
    if repeated:
        raise SchemaError(f"{format_list(repeated)} listed more than once. Keep one.")
    return values
