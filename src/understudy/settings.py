"""Settings of a method: what each may hold, its flat name, and the one function that checks them.

A method is a frozen dataclass. What a field may hold is its annotation, such as `Annotated[int, AtLeast(1)]`, and
`check_settings(self)` in `__post_init__` refuses anything else; only what relates two settings is code there. A field
that is itself a frozen dataclass is a group of settings that several methods share. In expressions and in `--set` a
group is flat: `widths` of the group `critic` is `critic_widths`, or what the metadata of a field says:
`metadata={"prefix": ""}` on the group, `metadata={"flat": "clip"}` on one of its fields.
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
from typing import Annotated, Any, NamedTuple, Never, Protocol, TypeAlias, TypeVar

from understudy.errors import ConfigError, did_you_mean

Method = TypeVar("Method")


Hint: TypeAlias = Any
"""A type annotation: Python has no type for all of them."""


class SettingError(ConfigError):
    """A setting that holds what it must not."""

    def __init__(self, setting: str, found: object, expected: str, advice: str = ""):
        self.setting, self.found, self.expected = setting, found, expected
        words = f" {advice}" if advice else ""
        super().__init__(f"{setting} must be {expected}, found {write_value(found)}.{words}")


# -------------------------------------------------------------------------------------------------------------- checks


class Check(Protocol):
    """A constraint in an annotation beside a type: which of its values are allowed."""

    def admits(self, value: Never) -> bool:
        """Whether a value of the type beside it is allowed."""

    def describe(self, kind: str) -> str:
        """The allowed values, for messages; `kind` is the type's, such as "a whole number"."""


@dataclasses.dataclass(frozen=True)
class AtLeast:
    """Finite numbers from `low` on."""

    low: float

    def admits(self, value: float) -> bool:
        return self.low <= value < math.inf

    def describe(self, kind: str) -> str:
        return f"{kind} of at least {self.low:g}"


@dataclasses.dataclass(frozen=True)
class Above:
    """Finite numbers above `low`."""

    low: float

    def admits(self, value: float) -> bool:
        return self.low < value < math.inf

    def describe(self, kind: str) -> str:
        return f"{kind} above {self.low:g}" if self.low else kind.replace("a ", "a positive ", 1)


@dataclasses.dataclass(frozen=True)
class Between:
    """Numbers from `low` to `high`, without the ends that are open."""

    low: float
    high: float
    open_low: bool = False
    open_high: bool = False

    def admits(self, value: float) -> bool:
        above = self.low < value if self.open_low else self.low <= value
        return above and (value < self.high if self.open_high else value <= self.high)

    def describe(self, kind: str) -> str:
        if self.low == self.high:
            return f"{self.low:g}"
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

    least: int = 1
    distinct: bool = False

    def admits(self, value: Sequence[object]) -> bool:
        return len(value) >= self.least and (not self.distinct or len(set(value)) == len(value))

    def describe(self, kind: str) -> str:
        entries = f"{self.least} entr{'y' if self.least == 1 else 'ies'}"
        return f"{kind} with at least {entries}{', none twice' * self.distinct}"


@dataclasses.dataclass(frozen=True)
class Advice:
    """No check: a sentence that is added to the refusal."""

    text: str


Count = Annotated[int, AtLeast(1)]
Positive = Annotated[float, Above(0)]
NotNegative = Annotated[float, AtLeast(0)]
Fraction = Annotated[float, Between(0, 1, open_high=True)]
"""From 0, which means none, to below 1."""
InnerFraction = Annotated[float, Between(0, 1, open_low=True, open_high=True)]
Widths = tuple[Count, ...]


def check_settings(method: object) -> None:
    """Refuse the first setting that its annotation does not allow; lists become tuples."""
    for name, setting in settings_of(type(method)).items():
        owner = _value_at(method, setting.path[:-1])
        value = getattr(owner, setting.path[-1])
        if (frozen := _freeze(value)) is not value:
            object.__setattr__(owner, setting.path[-1], frozen)
        if not _admits(setting.hint, frozen):
            advice = _advice(setting.hint) or (did_you_mean(frozen, _words(setting.hint))).strip()
            raise SettingError(name, value, _describe(setting.hint), advice)


def _freeze(value: object) -> object:
    if isinstance(value, list) or (type(value) is tuple and any(isinstance(item, list | tuple) for item in value)):
        return tuple(map(_freeze, value))
    return value


def _parts(hint: Hint) -> tuple[Hint, tuple[Hint, ...]]:
    """A hint without its checks, and these."""
    if typing.get_origin(hint) is Annotated:
        return hint.__origin__, hint.__metadata__
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
    words = {int: "a whole number", float: "a number", bool: "true or false", str: "a text", type(None): "left out"}
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


def _checks(hint: Hint) -> Iterator[Check | Advice]:
    """All checks of a hint and of the parts of a union."""
    kind, checks = _parts(hint)
    yield from checks
    for part in typing.get_args(kind) if _is_union(kind) else ():
        yield from _checks(part)


def _advice(hint: Hint) -> str:
    return " ".join(check.text for check in _checks(hint) if isinstance(check, Advice))


def _words(hint: Hint) -> list[str]:
    return [word for check in _checks(hint) if isinstance(check, OneOf) for word in check.words]


# ---------------------------------------------------------------------------------------------------------- flat names


class Setting(NamedTuple):
    """One setting of a method, or of a group of its settings."""

    path: tuple[str, ...]
    """The attributes that lead to it."""
    hint: Hint
    default: object
    is_keyword: bool
    is_flat: bool
    """Whether its name stays as it is, whatever the prefix of its group."""


def settings_of(cls: type) -> dict[str, Setting]:
    """All settings of a class by their flat names."""
    return _read_settings(cls)  # type: ignore[arg-type]  # mypy takes a class for not hashable


@functools.cache
def _read_settings(cls: type) -> dict[str, Setting]:
    hints = typing.get_type_hints(cls, include_extras=True)
    found: dict[str, Setting] = {}
    for field in dataclasses.fields(cls):  # type: ignore[arg-type]
        hint, default = hints[field.name], _default_of(field)
        own = {field.metadata.get("flat", field.name): Setting((), hint, default, bool(field.kw_only), False)}
        if isinstance(hint, type) and dataclasses.is_dataclass(hint):
            own = dict(_group_settings(hint, default, field.metadata.get("prefix", f"{field.name}_")))
        for name, setting in own.items():
            if name in found:
                raise TypeError(f"{cls.__name__} has two settings {name!r}")
            is_flat = setting.is_flat or "flat" in field.metadata
            found[name] = setting._replace(path=(field.name, *setting.path), is_flat=is_flat)
    return found


def _group_settings(group: type, default: object, prefix: str) -> Iterator[tuple[str, Setting]]:
    for name, setting in settings_of(group).items():
        flat = name if setting.is_flat else f"{prefix}{name}"
        own = default if default is dataclasses.MISSING else _value_at(default, setting.path)
        yield flat, setting._replace(default=own, is_keyword=True)


def _default_of(field: dataclasses.Field[object]) -> object:
    return field.default if field.default_factory is dataclasses.MISSING else field.default_factory()


def _value_at(owner: object, path: Sequence[str]) -> object:
    return functools.reduce(getattr, path, owner)


def changed_settings(method: object) -> Iterator[tuple[str, Setting, object]]:
    """The settings that are not the defaults: flat name, setting and value."""
    for name, setting in settings_of(type(method)).items():  # type: ignore[arg-type]
        value = _value_at(method, setting.path)
        if value != setting.default:
            yield name, setting, value


def build(cls: type[Method], positional: Sequence[object], values: Mapping[str, object]) -> Method:
    """An instance from settings by their flat names."""
    check_names(cls, values)
    groups = {field.name: _default_of(field) for field in dataclasses.fields(cls)}  # type: ignore[arg-type]
    return cls(*positional, **_arguments(cls, values, groups))


def replace_settings(method: Method, values: Mapping[str, object]) -> Method:
    """The same method with some settings, by their flat names, changed."""
    check_names(type(method), values)
    return dataclasses.replace(method, **_arguments(type(method), values, vars(method)))  # type: ignore[type-var]


def _arguments(cls: type, values: Mapping[str, object], groups: Mapping[str, object]) -> dict[str, object]:
    arguments: dict[str, object] = {}
    for name, value in values.items():
        first, *rest = settings_of(cls)[name].path
        arguments[first] = _replace_at(arguments.get(first, groups[first]), rest, value) if rest else value
    return arguments


def _replace_at(group: object, path: Sequence[str], value: object) -> object:
    first, *rest = path
    return dataclasses.replace(group, **{first: _replace_at(getattr(group, first), rest, value) if rest else value})  # type: ignore[type-var]


def check_names(cls: type, values: Mapping[str, object]) -> None:
    """Refuse a name that is no setting, with the nearest that is."""
    known = settings_of(cls)
    for name in values:
        if name not in known:
            hint = did_you_mean(name, known)
            if name == "batch_size" and "sampling_rate" in known:  # a usual name, and chunk_size is another thing
                hint = " Set sampling_rate, the expected fraction of the units in a batch: batch_size / number of rows."
            raise ConfigError(
                f"{cls.__name__} has no setting {name!r}.{hint} Its settings are: {', '.join(known) or 'none'}."
            )


# -------------------------------------------------------------------------------------------------------------- values


def read_value(text: str) -> object:
    """A TOML value; what is none is a bare word, and so a text.

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
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")  # TOML writes texts like JSON
    if dataclasses.is_dataclass(value):
        return type(value).__name__
    return f"{value:g}" if isinstance(value, float) and value == float(f"{value:g}") else str(value)
