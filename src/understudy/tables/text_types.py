"""How the strings of a column are written: as whole numbers, reals, booleans, dates or datetimes, or as none of these.

`TextInference` sees the strings in any number of parts and keeps a few facts about them: what type is still possible,
and of the values themselves at most three. So a column of any length is inferred in one pass.
"""

import functools
import re
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from understudy.rules.sql import compute_sql, quote_text

NULL_WORDS = (
    *("", "na", "n/a", "n.a.", "#n/a", "#na", "<na>", "nan", "nat", "null", "nil", "none", "unknown", "unk", "missing"),
    *("not available", "not applicable", "not known", "no data", "?", "-", "--", ".", ".."),
    *("#div/0!", "#value!", "#ref!", "#name?", "#num!", "#null!"),
)
"""Read as null in columns of numbers, booleans and dates, in any case; in a text column only the empty field is."""

_INTEGER = r"(?:0|-?[1-9][0-9]*)"
_REAL = r"-?(?:(?:0|[1-9][0-9]*)(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?"
INFINITY = r"-?(?:inf|Inf|Infinity|infinity)"
ANY_NUMBER = r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?"

BOOLEANS = ("false/true", "False/True", "FALSE/TRUE")

_DATES: tuple[tuple[str, tuple[str, ...]], ...] = (
    (r"\d{4}-\d{2}-\d{2}", ("%Y-%m-%d",)),
    (r"\d{4}/\d{2}/\d{2}", ("%Y/%m/%d",)),
    (r"\d{2}\.\d{2}\.\d{4}", ("%d.%m.%Y",)),
    (r"[1-9]\d?\.[1-9]\d?\.\d{4}", ("%-d.%-m.%Y",)),
    (r"\d{2}/\d{2}/\d{4}", ("%d/%m/%Y", "%m/%d/%Y")),
    (r"[1-9]\d?/[1-9]\d?/\d{4}", ("%-d/%-m/%Y", "%-m/%-d/%Y")),
    (r"\d{2}-\d{2}-\d{4}", ("%d-%m-%Y", "%m-%d-%Y")),
    (r"\d{2}-[A-Z][a-z]{2}-\d{4}", ("%d-%b-%Y",)),
)
"""Patterns and formats. If two formats read all values, the order of day and month is unknown: it stays text."""

TIMES = ((r"\d{2}:\d{2}", "%H:%M"), (r"\d{2}:\d{2}:\d{2}", "%H:%M:%S"), (r"\d{2}:\d{2}:\d{2}\.\d{1,6}", "%H:%M:%S.%f"))
_ZONES = (("", ""), ("Z", "Z"), (r"[+-]\d{2}:?\d{2}", "%z"))

_DATETIMES = tuple(
    (date_pattern + mark + time_pattern + zone_pattern, tuple(f + mark + time_format + zone for f in date_formats))
    for date_pattern, date_formats in _DATES
    for mark in " T"
    for time_pattern, time_format in TIMES
    for zone_pattern, zone in _ZONES
)


def looks_like_date(text: str) -> bool:
    """Whether a string has the form of a date or a datetime, in any of the known formats."""
    return any(re.fullmatch(pattern, text, re.ASCII) for pattern, _ in (*_DATES, *_DATETIMES))


class TextType(NamedTuple):
    """The type of a column whose source has only strings."""

    read: Callable[[pa.Array], pa.Array]
    """Turns strings into values of that type, each by itself."""
    style: Mapping[str, str]
    """How the strings are written: the metadata of its field."""


class TextInference:
    """The type of a column by fixed rules over all its strings, which are seen part by part."""

    def __init__(self, *, only_dates: bool = False, decimal: str | None = None) -> None:
        """`only_dates`: nothing but dates and datetimes. `decimal` is the decimal mark; None: a point, and no thousands
        separators."""
        numbers: list[_Rule] = [] if only_dates else [_Integers(decimal), _Reals(decimal), _Booleans()]
        dates = [_Datetimes(pattern, formats, is_date=True) for pattern, formats in _DATES]
        datetimes = [_Datetimes(pattern, formats, is_date=False) for pattern, formats in _DATETIMES]
        self._rules: list[_Rule] = [*numbers, *dates, *datetimes]
        self._is_known = False

    def add(self, strings: pa.Array) -> None:
        """Takes in the distinct strings of a part of the column."""
        if not self._rules:
            return
        trimmed = without_null_words(strings)
        written, present = strings.filter(trimmed.is_valid()), trimmed.drop_null()
        if len(present):
            self._is_known = True
            self._rules = [rule for rule in self._rules if rule.admits(written, present)]

    def found(self) -> TextType | None:
        """The type of all strings so far; None: they stay text."""
        if not self._is_known:
            return None
        return next((found for rule in self._rules if (found := rule.found()) is not None), None)


class _Integers:
    def __init__(self, decimal: str | None) -> None:
        self._decimal, self._fit = decimal, True

    def admits(self, written: pa.Array, trimmed: pa.Array) -> bool:
        numbers = _plain(trimmed, self._decimal)
        if numbers.null_count or not _all_match(numbers, _INTEGER):
            return False
        self._fit = self._fit and _can_cast(numbers, pa.int64())
        return True

    def found(self) -> TextType:
        # More than 64 bits is an identifier, not a quantity: it stays text.
        arrow_type = pa.int64() if self._fit else pa.string()
        return TextType(functools.partial(_read_numbers, decimal=self._decimal, arrow_type=arrow_type), {})


class _Reals:
    def __init__(self, decimal: str | None) -> None:
        self._decimal, self._decimals = decimal, Decimals()

    def admits(self, written: pa.Array, trimmed: pa.Array) -> bool:
        numbers = _plain(trimmed, self._decimal)
        if numbers.null_count or not _all_match(numbers, f"{_REAL}|{INFINITY}"):
            return False
        self._decimals.add(numbers)
        return _can_cast(numbers, pa.float64())

    def found(self) -> TextType:
        read = functools.partial(_read_numbers, decimal=self._decimal, arrow_type=pa.float64())
        return TextType(read, self._decimals.style())


class _Booleans:
    def __init__(self) -> None:
        self._seen: dict[str, str] = {}

    def admits(self, written: pa.Array, trimmed: pa.Array) -> bool:
        self._seen.update(zip(written[:3].to_pylist(), trimmed[:3].to_pylist(), strict=True))
        return len(self._seen) <= 2 and self._words is not None

    @property
    def _words(self) -> str | None:
        return next((words for words in BOOLEANS if set(self._seen.values()) <= set(words.split("/"))), None)

    def found(self) -> TextType | None:
        words = self._words
        return None if words is None else TextType(functools.partial(_read_words, words=words), {"format": words})


class _Datetimes:
    def __init__(self, pattern: str, formats: Sequence[str], *, is_date: bool) -> None:
        self._pattern, self._formats, self._is_date = pattern, formats, is_date
        self._digits = 0
        self._zones: set[str] = set()

    def admits(self, written: pa.Array, trimmed: pa.Array) -> bool:
        # Most patterns fail at the first value.
        if not re.fullmatch(self._pattern, trimmed[0].as_py(), re.ASCII) or not _all_match(trimmed, self._pattern):
            return False
        self._formats = [f for f in self._formats if parse_datetimes(trimmed, [f]).null_count == 0]
        if not self._formats:
            return False
        if "%f" in self._formats[0]:
            digits = pc.extract_regex(trimmed, r"\.(?P<digits>[0-9]+)").field("digits")
            self._digits = max(self._digits, pc.max(pc.utf8_length(digits)).as_py() or 0)
        if self._formats[0].endswith("%z") and len(self._zones) < 2:
            zones = pc.unique(pc.utf8_slice_codeunits(pc.replace_substring(trimmed, ":", ""), -5))
            self._zones.update(zones[:2].to_pylist())
        return True

    def found(self) -> TextType | None:
        if len(self._formats) != 1:
            return None
        (text_format,) = self._formats
        style = {"format": text_format} | ({"decimals": str(self._digits or 6)} if "%f" in text_format else {})
        arrow_type = pa.date32() if self._is_date else None
        if not self._is_date and text_format.endswith("%z"):
            zone = next(iter(self._zones))
            arrow_type = pa.timestamp("us", f"{zone[:3]}:{zone[3:]}" if len(self._zones) == 1 else "UTC")
        return TextType(functools.partial(_read_datetimes, text_format=text_format, arrow_type=arrow_type), style)


_Rule: TypeAlias = _Integers | _Reals | _Booleans | _Datetimes
"""One type that the strings of a column could have. It is asked whether it `admits` more of them until it does not,
and what type was `found`, if all strings so far leave no doubt."""


class Decimals:
    """How many decimals numbers are written with, which are seen part by part."""

    def __init__(self) -> None:
        self._min_decimals, self._max_decimals, self._has_exponents = 16, -1, False

    def add(self, strings: pa.Array) -> None:
        """Takes in some strings. Those that are not numbers do not count."""
        plain = strings.filter(pc.match_substring_regex(strings, f"^(?:{ANY_NUMBER}|{INFINITY})$"))
        self._has_exponents |= bool(pc.any(pc.match_substring_regex(plain, "[0-9.][eE]")).as_py())
        plain = plain.filter(pc.invert(pc.match_substring(plain, "n")))  # infinities have no decimals
        if len(plain):
            point = pc.find_substring(plain, ".")
            written = pc.if_else(pc.less(point, 0), 0, pc.subtract(pc.subtract(pc.utf8_length(plain), point), 1))
            low, high = pc.min_max(written).as_py().values()
            self._min_decimals, self._max_decimals = min(self._min_decimals, low), max(self._max_decimals, high)

    def style(self) -> dict[str, str]:
        """The largest number of decimals, and whether all values have that many."""
        if self._has_exponents or not 0 <= self._max_decimals <= 15:  # more are digits of a binary fraction
            return {}
        padded = {"padded": "true"} if self._min_decimals == self._max_decimals else {}
        return {"decimals": str(self._max_decimals), **padded}


# Reading


def without_null_words(strings: pa.Array) -> pa.Array:
    """The strings without spaces around them, and nulls for those that mean a null."""
    trimmed = pc.utf8_trim_whitespace(strings)
    return pc.if_else(pc.is_in(pc.utf8_lower(trimmed), pa.array(NULL_WORDS)), pa.scalar(None, pa.string()), trimmed)


_SPACES = " '\u2019\u00a0\u202f"
"""Thousands separators of either decimal mark: spaces and apostrophes."""


def plain_numbers(strings: pa.Array, decimal: str) -> pa.Array:
    """Numbers with this decimal mark, perhaps with thousands separators, as computers write them; all else is null."""
    marks = [*_SPACES, "." if decimal == "," else ","]
    grouped = "|".join(rf"[0-9]{{1,3}}(?:{re.escape(mark)}[0-9]{{3}})+" for mark in marks)
    sign = re.escape(decimal)
    number = rf"[+-]?(?:(?:[0-9]+|{grouped})(?:{sign}[0-9]*)?|{sign}[0-9]+)(?:[eE][+-]?[0-9]+)?|{INFINITY}"
    is_number = pc.match_substring_regex(strings, f"^(?:{number})$")
    bare = pc.replace_substring_regex(strings, f"[{re.escape(''.join(marks))}]", "")
    plain = pc.replace_substring(bare, decimal, ".")
    return pc.if_else(is_number, plain, pa.scalar(None, pa.string()))


def parse_datetimes(strings: pa.Array, formats: Sequence[str]) -> pa.Array:
    """Timestamps by the first format that reads a string, else null; in UTC if the format has a zone."""
    listed = ", ".join(quote_text(text_format) for text_format in formats)
    expression = f"try_strptime(v, {listed})" if len(formats) == 1 else f"try_strptime(v, [{listed}])"
    datetimes = compute_sql(expression, strings)
    if formats[0].endswith("Z"):
        datetimes = datetimes.cast(pa.timestamp("us", "UTC"))
    return datetimes


def _plain(trimmed: pa.Array, decimal: str | None) -> pa.Array:
    return trimmed if decimal is None else plain_numbers(trimmed, decimal)


def _can_cast(numbers: pa.Array, arrow_type: pa.DataType) -> bool:
    try:
        return numbers.cast(arrow_type) is not None
    except pa.ArrowInvalid:
        return False


def _all_match(strings: pa.Array, pattern: str) -> bool:
    """Whether all match. Tries the first few before the rest."""
    pattern = f"^(?:{pattern})$"
    return all(pc.all(pc.match_substring_regex(part, pattern)).as_py() for part in (strings[:20], strings))


def _read_numbers(strings: pa.Array, *, decimal: str | None, arrow_type: pa.DataType) -> pa.Array:
    return _plain(without_null_words(strings), decimal).cast(arrow_type)


def _read_words(strings: pa.Array, *, words: str) -> pa.Array:
    return pc.equal(without_null_words(strings), words.split("/")[1])


def _read_datetimes(strings: pa.Array, *, text_format: str, arrow_type: pa.DataType | None) -> pa.Array:
    datetimes = parse_datetimes(without_null_words(strings), [text_format])
    return datetimes if arrow_type is None else datetimes.cast(arrow_type)
