"""Settings of a method: what each may hold, and the one function that checks them.

A method is a frozen dataclass. What a field may hold is its annotation, such as `Annotated[int, Range(1)]`, and
`check_settings(self)` in `__post_init__` refuses anything else; only what relates two settings is code there. Settings
that several methods share are base classes.
"""

import dataclasses
import functools
import json
import math
import numbers
import re
import tomllib
import types
import typing
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Annotated, Any, NamedTuple, TypeAlias, TypeVar

from understudy.errors import ConfigError, did_you_mean

Method = TypeVar("Method")


Hint: TypeAlias = object
"""A type annotation: Python has no type for all of them."""


class SettingError(ConfigError):
    """A setting that holds what it must not."""

    def __init__(self, setting: str, found: object, expected: str, advice: str = ""):
        words = f" {advice}" if advice else ""
        super().__init__(f"{setting} must be {expected}, found {write_value(found)}.{words}", setting=setting)
        self.found, self.expected = found, expected


# -------------------------------------------------------------------------------------------------------------- checks


@dataclasses.dataclass(frozen=True)
class Range:
    """Finite numbers from `low` to `high`, excluding an end that is open."""

    low: float
    high: float = math.inf
    open_low: bool = False
    open_high: bool = False

    def admits(self, value: float) -> bool:
        above = self.low < value if self.open_low else self.low <= value
        return above and (value < self.high if self.open_high or self.high == math.inf else value <= self.high)

    def describe(self, kind: str) -> str:
        """The allowed values, for messages; `kind` is the type's, such as "a whole number"."""
        if self.low == self.high:
            return f"{self.low:g}"
        if self.high == math.inf and self.open_low and not self.low:
            return kind.replace("a ", "a positive ", 1)
        if self.high == math.inf:
            return f"{kind} {'above' if self.open_low else 'of at least'} {self.low:g}"
        if self.open_low:
            return f"{kind} above {self.low:g} and {'below' if self.open_high else 'at most'} {self.high:g}"
        return f"{kind} from {self.low:g} to {'below ' * self.open_high}{self.high:g}"


class OneOf:
    """One of these words."""

    def __init__(self, *words: str):
        self.words: Collection[str] = words

    def admits(self, value: str) -> bool:
        return value in self.words

    def describe(self, kind: str) -> str:
        return f"one of {', '.join(self.words)}"


class KeyOf(OneOf):
    """A key of this mapping, those that are added later included."""

    def __init__(self, mapping: Mapping[str, object]):
        self.words = mapping


@dataclasses.dataclass(frozen=True)
class Listed:
    """Lists of some length, with or without repeated entries."""

    min_length: int = 1
    distinct: bool = False

    def admits(self, value: Sequence[object]) -> bool:
        return len(value) >= self.min_length and (not self.distinct or len(set(value)) == len(value))

    def describe(self, kind: str) -> str:
        entries = f"{self.min_length} entr{'y' if self.min_length == 1 else 'ies'}"
        return f"{kind} with at least {entries}{', none twice' * self.distinct}"


@dataclasses.dataclass(frozen=True)
class Advice:
    """No check: a sentence that is added to the refusal."""

    text: str


Check: TypeAlias = Range | OneOf | Listed | Advice
"""What an annotation may have beside a type."""

Count = Annotated[int, Range(1)]
Positive = Annotated[float, Range(0, open_low=True)]
NotNegative = Annotated[float, Range(0)]
Fraction = Annotated[float, Range(0, 1, open_high=True)]
"""From 0, which means none, to below 1."""
InnerFraction = Annotated[float, Range(0, 1, open_low=True, open_high=True)]
TargetWeight = Annotated[float, Range(1)]
Widths = tuple[Count, ...]


def check_settings(method: object) -> None:
    """Refuse the first setting that its annotation does not allow; lists become tuples."""
    for name, setting in settings_of(type(method)).items():
        value = getattr(method, name)
        check_value(name, value, setting.hint)
        if (frozen := _freeze(value)) is not value:
            object.__setattr__(method, name, frozen)


def check_value(name: str, value: object, hint: Hint) -> None:
    """Refuse a value that an annotation does not allow; lists count as tuples."""
    if not _admits(hint, _freeze(value)):
        advice = _advice(hint) or did_you_mean(value, _words(hint)).strip()
        raise SettingError(name, value, _describe(hint), advice)


def _freeze(value: object) -> object:
    if isinstance(value, list) or (type(value) is tuple and any(isinstance(item, list | tuple) for item in value)):
        return tuple(map(_freeze, value))
    return value


def _parts(hint: Hint) -> tuple[Hint, tuple[Any, ...]]:
    """A hint without its checks, and these."""
    if typing.get_origin(hint) is Annotated:
        return typing.get_args(hint)[0], typing.get_args(hint)[1:]
    return hint, ()


def _is_union(hint: Hint) -> bool:
    return typing.get_origin(hint) in (typing.Union, types.UnionType)


def _admits(hint: Hint, value: object) -> bool:
    """Whether a value is of this type and passes its checks; a whole number is a real one, a truth value is not."""
    kind, checks = _parts(hint)
    if checks:
        return _admits(kind, value) and all(isinstance(check, Advice) or check.admits(value) for check in checks)
    if _is_union(kind):
        return any(_admits(part, value) for part in typing.get_args(kind))
    if typing.get_origin(kind) is tuple:
        parts = typing.get_args(kind)
        if not isinstance(value, tuple):
            return False
        if parts[1:] == (...,):
            parts = parts[:1] * len(value)
        return len(value) == len(parts) and all(map(_admits, parts, value))
    if kind in (int, float):
        return not isinstance(value, bool) and isinstance(value, int if kind is int else numbers.Real)
    return not isinstance(kind, type) or isinstance(value, kind)


def _describe(hint: Hint) -> str:
    kind, checks = _parts(hint)
    words: dict[Hint, str] = {int: "a whole number", float: "a number", bool: "true or false", str: "a string"}
    words[type(None)] = "left out"
    if checks:
        named = _describe(kind)
        return next((check.describe(named) for check in checks if not isinstance(check, Advice)), named)
    parts = typing.get_args(kind)
    if _is_union(kind):
        return " or ".join(_describe(part) for part in parts if part is not type(None))
    if typing.get_origin(kind) is tuple and _parts(parts[0])[0] == tuple[str, ...]:
        each = "".join(f", {check.describe('each')}" for check in _parts(parts[0])[1])
        return f'a list of lists of columns, as in [["a", "b"], ["c", "d"]]{each}'
    if typing.get_origin(kind) is tuple:
        many = "" if parts[1:] == (...,) else f" of {len(parts)}"
        return f"a list{many}, each {_describe(parts[0])}"
    is_method = getattr(kind, "_is_protocol", False)
    return words.get(kind, "a method" if is_method else f"a {getattr(kind, '__name__', 'method')}")


def _checks(hint: Hint) -> Iterator[Check]:
    """All checks of a hint and of the parts of a union."""
    kind, checks = _parts(hint)
    yield from checks
    for part in typing.get_args(kind) if _is_union(kind) else ():
        yield from _checks(part)


def _advice(hint: Hint) -> str:
    return " ".join(check.text for check in _checks(hint) if isinstance(check, Advice))


def _words(hint: Hint) -> list[str]:
    return [word for check in _checks(hint) if isinstance(check, OneOf) for word in check.words]


# --------------------------------------------------------------------------------------------------------------- names


class Setting(NamedTuple):
    """One setting of a method."""

    hint: Hint
    default: object
    is_keyword: bool


def settings_of(cls: type) -> dict[str, Setting]:
    """All settings of a class by their names."""
    return _read_settings(cls)


@functools.cache
def _read_settings(cls: type) -> dict[str, Setting]:
    hints = typing.get_type_hints(cls, include_extras=True)
    return {
        field.name: Setting(hints[field.name], _default_of(field), bool(field.kw_only))
        for field in dataclasses.fields(cls)
    }


def _default_of(field: dataclasses.Field[object]) -> object:
    return field.default if field.default_factory is dataclasses.MISSING else field.default_factory()


def changed_settings(method: object) -> Iterator[tuple[str, Setting, object]]:
    """The settings that are not the defaults: name, setting and value."""
    for name, setting in settings_of(type(method)).items():
        value = getattr(method, name)
        if value != setting.default:
            yield name, setting, value


def build(cls: type[Method], positional: Sequence[object], values: Mapping[str, object]) -> Method:
    """An instance from settings by their names."""
    check_names(cls, values)
    return cls(*positional, **values)


def replace_settings(method: Method, values: Mapping[str, object]) -> Method:
    """The same method with some settings changed."""
    check_names(type(method), values)
    return dataclasses.replace(method, **values)  # type: ignore[type-var]  # every method is a dataclass


def check_names(cls: type, values: Mapping[str, object]) -> None:
    """Refuse a name that is no setting, with the nearest that is."""
    known = settings_of(cls)
    for name in values:
        if name not in known:
            hint = did_you_mean(name, known)
            if name == "batch_size" and "sampling_rate" in known:  # a usual name, and chunk_size is another thing
                hint = " Set sampling_rate, the expected fraction of the units in a batch: batch_size / number of rows."
            raise ConfigError(
                f"{cls.__name__} has no setting {name!r}.{hint} Its settings are: {', '.join(known) or 'none'}.",
                setting=name,
            )


# -------------------------------------------------------------------------------------------------------------- values


def read_value(text: str) -> object:
    """Parses a TOML value; anything else is taken as a string.

    >>> read_value("[1, 2.5]"), read_value("true"), read_value("a bare word")
    ((1, 2.5), True, 'a bare word')
    """
    try:
        return _freeze(tomllib.loads(f"value = {text}")["value"])
    except (tomllib.TOMLDecodeError, RecursionError):
        return text


def write_value(value: object) -> str:
    """What reads back as this value."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, tuple | list):
        return f"[{', '.join(map(write_value, value))}]"
    if isinstance(value, str) and not (re.fullmatch(r"[A-Za-z_][\w-]*", value) and read_value(value) == value):
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")  # TOML writes strings like JSON
    if dataclasses.is_dataclass(value):
        return type(value).__name__
    return f"{value:g}" if isinstance(value, float) and value == float(f"{value:g}") else str(value)
