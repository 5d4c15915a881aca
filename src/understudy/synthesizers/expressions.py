"""Method expressions: `mst`, `aim(max_rounds=50)`, `boosted(dpgan(steps=2000), rounds=400)`.

An expression is a name with settings, and wrappers nest. Its structure is that of a Python call, which Python's own
parser reads; values are written as in TOML, and a bare word is a string, or a method where one is expected.
"""

import ast
import dataclasses
import re
from collections.abc import Callable, Mapping
from typing import TypeVar

from understudy.errors import ConfigError
from understudy.synthesizers.protocol import Synthesizer
from understudy.synthesizers.registry import LEARNERS, learner_class, name_of, synthesizer_class
from understudy.synthesizers.settings import (
    build,
    changed_settings,
    read_value,
    replace_settings,
    settings_of,
    write_value,
)

Part = TypeVar("Part")  # a synthesizer, or a learner

_WORD = re.compile(r"""(?P<space>\s+)|"(?:[^"\\]|\\.)*"|'[^']*'|[^\s,=()\[\]"']+""")


def read_method(expression: str, settings: Mapping[str, object] | None = None) -> Synthesizer:
    """A synthesizer from its expression.

    Args:
        expression: The name of a method, its settings in parentheses; wrappers name the inner method first.
        settings: Further settings of the outermost method.

    Returns:
        The synthesizer.

    Raises:
        ConfigError: There is no such method or setting, or a value is not allowed.

    >>> read_method("independent(smoothing=0.1)")
    Independent(smoothing=0.1)
    """
    return replace_settings(_Reader(expression).read(), settings or {})


def read_setting(text: str) -> tuple[str, object]:
    """`steps=2000` as a name and a value, the value as in TOML.

    >>> read_setting("smoothing=0.1")
    ('smoothing', 0.1)
    """
    name, equals, value = text.partition("=")
    if not equals or not name.strip():
        raise ConfigError(f"A setting is written name=value, found {text!r}.", setting=text)
    return name.strip(), read_value(value.strip())


def express(method: object) -> str:
    """The expression that reads back as this synthesizer: its name, and the settings that are not the defaults.

    Args:
        method: A synthesizer, or a learner.

    Returns:
        The expression, as `read_method` and `--method` read it.

    Raises:
        TypeError: It is neither.

    >>> express(read_method("mst(iterations=500)"))
    'mst(iterations=500)'
    """
    settings = [
        f"{setting}={_write(value)}" if found.is_keyword else _write(value)
        for setting, found, value in changed_settings(method)
    ]
    return f"{name_of(method)}({', '.join(settings)})" if settings else name_of(method)


def _write(value: object) -> str:
    return express(value) if dataclasses.is_dataclass(value) else write_value(value)


class _Reader:
    """One expression.

    Python knows neither TOML's values nor bare words such as `class` or `>50K`, so every word is replaced by a stand-in
    (`_0`, `_1`, ...) before the structure is parsed.
    """

    def __init__(self, expression: str):
        self.expression = expression
        self.words: list[str] = []

    def read(self) -> Synthesizer:
        if not self.expression.strip():
            raise ConfigError("The method is empty. Write a name, such as mst.")
        try:
            return self._method(ast.parse(_WORD.sub(self._stand_in, self.expression).strip(), mode="eval").body)
        except SyntaxError as error:
            raise self._refusal(error.msg) from None
        except (RecursionError, MemoryError, ValueError):
            raise self._refusal("it is nested too deeply") from None

    def _stand_in(self, word: re.Match[str]) -> str:
        if word["space"]:
            return " "
        if word.group() not in self.words:
            self.words.append(word.group())
        return f" _{self.words.index(word.group())} "

    def _word(self, stand_in: str) -> str:
        return self.words[int(stand_in.removeprefix("_"))]

    def _refusal(self, reason: str) -> ConfigError:
        words = re.sub(r"\b_\d+\b", lambda match: self._word(match.group()), reason)
        return ConfigError(f"The method {self.expression!r} cannot be read: {words}. Write name(setting=value, ...).")

    def _method(self, node: ast.expr) -> Synthesizer:
        match node:
            case ast.Name(id=name):
                return _build(synthesizer_class, self._word(name), [], {})
            case ast.Call(func=ast.Name(id=name)):
                return self._call(synthesizer_class, self._word(name), node)
        raise self._refusal("a method is a name, with its settings in parentheses")

    def _value(self, node: ast.expr) -> object:
        match node:
            case ast.Name(id=name):
                return read_value(self._word(name))
            case ast.List(elts=items):
                return tuple(self._value(item) for item in items)
            case ast.Call(func=ast.Name(id=name)) if (word := self._word(name)) in LEARNERS:
                return self._call(learner_class, word, node)
            case ast.Call():
                return self._method(node)
        raise self._refusal("a value is a number, a string, true, false, a list in brackets, or a method")

    def _call(self, class_of: Callable[[str], type[Part]], name: str, node: ast.Call) -> Part:
        settings: dict[str, object] = {}
        for keyword in node.keywords:
            setting = self._word(str(keyword.arg))
            if setting in settings:
                raise self._refusal(f"{setting} is set twice")
            settings[setting] = self._value(keyword.value)
        return _build(class_of, name, [self._method(part) for part in node.args], settings)


def _build(
    class_of: Callable[[str], type[Part]], name: str, inner: list[Synthesizer], settings: dict[str, object]
) -> Part:
    cls = class_of(name)
    if isinstance(named := settings.get("inner"), str):
        settings = {**settings, "inner": _build(synthesizer_class, named, [], {})}
    if not inner and "inner" not in settings and "inner" in settings_of(cls):
        raise ConfigError(f"{name} wraps another method. Name that method first, as in {name}(dpgan).", setting="inner")
    try:
        return build(cls, inner, settings)
    except TypeError as error:
        raise ConfigError(f"{name}: {str(error).removeprefix(f'{cls.__name__}.__init__() ')}.") from error
