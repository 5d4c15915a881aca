"""Every method under the name the literature gives it, and the reader of method expressions.

An expression is a name with settings, and wrappers nest: `mst`, `aim(max_rounds=50)`, `boosted(dpgan, rounds=200)`.
Values are written as in TOML; a bare word is a text, or another method where one is expected.
"""

import dataclasses
import difflib
import importlib
import inspect
import json
import re
import tomllib
import types
import typing
from typing import Any

from understudy.errors import ConfigError
from understudy.schema import Domain

SYNTHESIZERS = {
    "independent": "understudy.synthesizers.independent:Independent",
    "mst": "understudy.synthesizers.mst:MST",
    "aim": "understudy.synthesizers.aim:AIM",
    "mwem": "understudy.synthesizers.mwem:MWEM",
    "gem": "understudy.synthesizers.gem:GEM",
    "dpgan": "understudy.synthesizers.dpgan:DPGAN",
    "dpctgan": "understudy.synthesizers.dpctgan:DPCTGAN",
    "pategan": "understudy.synthesizers.pategan:PATEGAN",
    "patectgan": "understudy.synthesizers.patectgan:PATECTGAN",
    "bayesgan": "understudy.synthesizers.bayesgan:BayesGAN",
    "autogan": "understudy.synthesizers.autogan:AutoGAN",
    "boosted": "understudy.synthesizers.boosted.method:Boosted",
    "drs": "understudy.synthesizers.drs:DRS",
    "selected": "understudy.synthesizers.selected:Selected",
    "quail": "understudy.synthesizers.quail:Quail",
}
"""Name of each method and where it lives; loaded when asked for, so that listing them is instant."""

LEARNERS = {
    "logistic": "understudy.learners.methods:Logistic",
    "naive_bayes": "understudy.learners.methods:NaiveBayes",
    "mlp": "understudy.learners.methods:Perceptron",
    "prior": "understudy.learners.methods:Prior",
    "linear": "understudy.learners.methods:Linear",
    "mlp_regression": "understudy.learners.methods:NumberPerceptron",
}
"""Learners that stand as settings inside an expression: `quail(mst, learner=naive_bayes(numbers=gaussian))`."""

AUTO = "auto"

_TOKEN = re.compile(r"""\s*(?:(?P<text>"(?:[^"\\]|\\.)*"|'[^']*')|(?P<word>[^\s,=()\[\]"']+)|(?P<sign>[,=()\[\]]))""")


def synthesizer_class(name: str) -> type:
    """The class behind a name, or an error with the nearest one."""
    if name == AUTO:
        raise ConfigError("auto stands alone, without settings: to set some, name the method, as in gem(steps=800).")
    if name not in SYNTHESIZERS:
        near = difflib.get_close_matches(name, [*SYNTHESIZERS, AUTO], n=1)
        hint = f" Did you mean {near[0]!r}?" if near else ""
        raise ConfigError(f"There is no method {name!r}.{hint} The methods are: {', '.join([*SYNTHESIZERS, AUTO])}.")
    return _loaded(SYNTHESIZERS[name])


def learner_class(name: str) -> type:
    """The class behind a learner's name, or an error with all of them."""
    if name not in LEARNERS:
        raise ConfigError(f"There is no learner {name!r}. The learners are: {', '.join(LEARNERS)}.")
    return _loaded(LEARNERS[name])


def _loaded(place: str) -> type:
    module, _, attribute = place.partition(":")
    return getattr(importlib.import_module(module), attribute)


def name_of(part: object) -> str:
    """The name under which the class of a synthesizer, or of a learner, is registered."""
    here, places = f"{type(part).__module__}:{type(part).__name__}", {**SYNTHESIZERS, **LEARNERS}
    return next((name for name, place in places.items() if place == here), type(part).__name__.lower())


def too_large_for(synthesizer: Any, domain: Domain) -> tuple[str, ...]:
    """Columns that together have too many codes for a method, or for the method that it wraps; usually none."""
    if hasattr(synthesizer, "too_large"):
        return synthesizer.too_large(domain)
    inner = getattr(synthesizer, "inner", None)
    return () if inner is None else too_large_for(inner, domain)


def read_method(expression: str, settings: dict[str, object] | None = None) -> Any:
    """A synthesizer from its expression; `settings` speak to the outermost.

    >>> read_method("independent(smoothing=0.1)")
    Independent(smoothing=0.1)
    """
    try:
        method, rest = _read(_tokens(expression), expression)
    except RecursionError:
        raise ConfigError("The method is nested too deeply. Write name(setting=value, ...).") from None
    if rest:
        raise ConfigError(f"The method {expression!r} goes on after its end. Write name(setting=value, ...).")
    return with_settings(method, settings or {})


def with_settings(synthesizer: Any, settings: dict[str, object]) -> Any:
    """The same synthesizer with some settings changed; unknown names are refused with the valid ones."""
    if not settings:
        return synthesizer
    _check_names(type(synthesizer), settings)
    try:
        return dataclasses.replace(synthesizer, **settings)
    except TypeError as error:
        raise ConfigError(f"{name_of(synthesizer)}: {error}.") from error


def read_setting(text: str) -> tuple[str, object]:
    """`steps=2000` as a name and a value, the value as in TOML.

    >>> read_setting("smoothing=0.1")
    ('smoothing', 0.1)
    """
    name, equals, value = text.partition("=")
    if not equals or not name.strip():
        raise ConfigError(f"A setting is written name=value, found {text!r}.")
    return name.strip(), _value(value.strip())


def express(synthesizer: object) -> str:
    """The expression that reads back as this synthesizer: its name, and the settings that are not the defaults."""
    settings = []
    for field in dataclasses.fields(synthesizer):  # type: ignore[arg-type]
        value = getattr(synthesizer, field.name)
        default = field.default if field.default_factory is dataclasses.MISSING else field.default_factory()
        if value != default:
            settings.append(f"{field.name}={_written(value)}" if field.kw_only else _written(value))
    name = name_of(synthesizer)
    return f"{name}({', '.join(settings)})" if settings else name


def describe_methods() -> list[tuple[str, str]]:
    """Each method's name and the first line of its documentation."""
    return [(name, (inspect.getdoc(synthesizer_class(name)) or "").splitlines()[0]) for name in SYNTHESIZERS]


def _tokens(expression: str) -> list[str]:
    tokens, at = [], 0
    text = expression.rstrip()
    while at < len(text):
        match = _TOKEN.match(text, at)
        if match is None:
            raise ConfigError(
                f"The method {expression!r} cannot be read at {text[at:]!r}. Write name(setting=value, ...)."
            )
        tokens.append(match.group().strip())
        at = match.end()
    if not tokens:
        raise ConfigError("The method is empty. Write a name, such as mst.")
    return tokens


def _read(tokens: list[str], expression: str, *, learner: bool = False) -> tuple[Any, list[str]]:
    """One method, or one learner, and the tokens after it."""
    name, rest = tokens[0], tokens[1:]
    cls = learner_class(name) if learner else synthesizer_class(name)
    if rest[:1] != ["("]:
        return _build(cls, name, [], {}), rest
    rest, inner, settings = rest[1:], [], {}
    while rest and rest[0] != ")":
        if rest[1:2] == ["="]:
            key = rest[0]
            settings[key], rest = _read_value(rest[2:], expression)
        else:
            method, rest = _read(rest, expression)
            inner.append(method)
        if rest[:1] == [","]:
            rest = rest[1:]
    if not rest:
        raise ConfigError(f"The method {expression!r} lacks a closing parenthesis.")
    return _build(cls, name, inner, settings), rest[1:]


def _read_value(tokens: list[str], expression: str) -> tuple[object, list[str]]:
    """One value: a scalar, a list, or a method with parentheses."""
    if not tokens or tokens[0] in ",=)]":
        lacks = "a [ or a ] without its other half" if expression.count("[") != expression.count("]") else ""
        raise ConfigError(f"The method {expression!r} has {lacks or 'a setting without a value'}.")
    if tokens[0] == "[":
        values, rest = [], tokens[1:]
        while rest and rest[0] != "]":
            value, rest = _read_value(rest, expression)
            values.append(value)
            if rest[:1] == [","]:
                rest = rest[1:]
        return tuple(values), rest[1:]
    if tokens[1:2] == ["("]:
        return _read(tokens, expression, learner=tokens[0] in LEARNERS)
    return _value(tokens[0]), tokens[1:]


def _value(text: str) -> object:
    """A TOML value; what is none is a bare word."""
    try:
        value = tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text
    return _frozen(value)


def _frozen(value: object) -> object:
    return tuple(_frozen(item) for item in value) if isinstance(value, list) else value


def _written(value: object) -> str:
    if dataclasses.is_dataclass(value):
        return express(value)
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, tuple | list):
        return f"[{', '.join(_written(item) for item in value)}]"
    if isinstance(value, str) and not (re.fullmatch(r"[A-Za-z_][\w-]*", value) and _value(value) == value):
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")  # TOML writes texts like JSON
    return f"{value:g}" if isinstance(value, float) and value == float(f"{value:g}") else str(value)


def _build(cls: type, name: str, inner: list[Any], settings: dict[str, object]) -> Any:
    if isinstance(named := settings.get("inner"), str):
        settings = {**settings, "inner": _build(synthesizer_class(named), named, [], {})}
    _check_names(cls, settings)
    if not inner and "inner" not in settings and any(field.name == "inner" for field in dataclasses.fields(cls)):
        raise ConfigError(f"{name} is put around another method. Name that one first, as in {name}(dpgan).")
    try:
        return cls(*inner, **settings)
    except TypeError as error:
        raise ConfigError(f"{name}: {str(error).removeprefix(f'{cls.__name__}.__init__() ')}.") from error


def _check_names(cls: type, settings: dict[str, object]) -> None:
    valid = [field.name for field in dataclasses.fields(cls)]
    for setting in settings:
        if setting not in valid:
            near = difflib.get_close_matches(setting, valid, n=1)
            hint = f" Did you mean {near[0]!r}?" if near else ""
            raise ConfigError(
                f"{cls.__name__} has no setting {setting!r}.{hint} Its settings are: {', '.join(valid) or 'none'}."
            )
        wanted = typing.get_type_hints(cls)[setting]
        if not _is_a(settings[setting], wanted):
            raise ConfigError(
                f"{cls.__name__}: {setting} must be {_kind_in_words(wanted)}, found {_written(settings[setting])}."
            )


def _is_a(value: object, wanted: Any) -> bool:
    """Whether a value from an expression is of a field's type; a whole number is a real one, a truth value is not."""
    parts = typing.get_args(wanted)
    if typing.get_origin(wanted) in (typing.Union, types.UnionType):
        return any(_is_a(value, part) for part in parts)
    if typing.get_origin(wanted) is tuple:
        if not isinstance(value, tuple):
            return False
        if parts[1:] == (...,):
            parts = parts[:1] * len(value)
        return len(value) == len(parts) and all(map(_is_a, value, parts))
    if wanted in (int, float):
        return not isinstance(value, bool) and isinstance(value, int | wanted)
    return not isinstance(wanted, type) or isinstance(value, wanted)


def _kind_in_words(wanted: Any) -> str:
    words = {int: "a whole number", float: "a number", bool: "true or false", str: "a text", type(None): "left out"}
    parts = typing.get_args(wanted)
    if typing.get_origin(wanted) in (typing.Union, types.UnionType):
        return " or ".join(_kind_in_words(part) for part in parts)
    if wanted == tuple[tuple[str, ...], ...]:
        return 'a list of lists of columns, as in [["a", "b"], ["c", "d"]]'
    if typing.get_origin(wanted) is tuple:
        many = "" if parts[1:] == (...,) else f" of {len(parts)}"
        return f"a list{many}, each {_kind_in_words(parts[0])}"
    is_method = getattr(wanted, "_is_protocol", False)
    return words.get(wanted, "a method" if is_method else f"a {getattr(wanted, '__name__', 'method')}")
