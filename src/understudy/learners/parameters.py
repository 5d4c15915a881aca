"""Parameters of an estimator, generated from the dataclass of its learner: each setting is written once, there."""

import ast
import dataclasses
import functools
import inspect
import itertools
import operator
import types
import typing
from collections.abc import Callable, Sequence
from typing import TypeVar

from understudy.learners import methods
from understudy.synthesizers.settings import Hint

E = TypeVar("E")


def estimator(learner: "type[methods.Learner] | None" = None, name: str = "") -> Callable[[type[E]], type[E]]:
    """Gives a class the parameters that it annotates and, after them, the settings of a learner.

    `__init__` is that of a dataclass: it assigns its keyword arguments, as scikit-learn requires. Types, defaults and
    descriptions of the settings are those of the learner's dataclass.
    """

    def generate(cls: type[E]) -> type[E]:
        known = {*getattr(cls, "__dataclass_fields__", {}), *inspect.get_annotations(cls)}
        for field in () if learner is None else dataclasses.fields(learner):
            if field.name not in known:
                cls.__annotations__[field.name] = _accept_sequences(typing.get_type_hints(learner)[field.name])
                setattr(cls, field.name, field.default)
        dataclasses.dataclass(kw_only=True, eq=False, repr=False)(cls)
        if learner is not None:
            cls._learner, cls._name = learner, name  # type: ignore[attr-defined]  # `Estimator` declares both
            cls.__doc__ = f"{inspect.cleandoc(cls.__doc__ or '')}\n\n{_describe_parameters(cls, learner)}"
        return cls

    return generate


def _accept_sequences(hint: Hint) -> Hint:
    """The same type, with `Sequence` for `tuple`: lists are what callers write."""
    parts = typing.get_args(hint)
    if typing.get_origin(hint) in (typing.Union, types.UnionType):
        return functools.reduce(operator.or_, map(_accept_sequences, parts))
    # A type made while the program runs.
    return Sequence[parts[0]] if typing.get_origin(hint) is tuple else hint  # type: ignore[valid-type]


def _describe_parameters(cls: type, learner: type) -> str:
    """The section "Parameters" of a docstring, in NumPy's format. A text may stand in another learner's class."""
    descriptions: dict[str, str] = {}
    for kind in (*reversed(typing.get_args(methods.Learner)), learner, cls):
        for base in reversed(kind.__mro__):
            descriptions |= _field_strings(base)
    lines = ["Parameters", "----------"]
    for name, parameter in inspect.signature(cls).parameters.items():
        lines.append(f"{name} : default {parameter.default!r}")
        lines += [f"    {line}" for line in descriptions.get(name, "").splitlines()]
    return "\n".join(lines)


@functools.cache
def _field_strings(cls: type) -> dict[str, str]:
    """The string under each annotated field of a class of ours; none where there is no source file."""
    descriptions: dict[str, str] = {}
    try:
        source = inspect.getsource(cls) if cls.__module__.startswith("understudy.") else ""
    except (OSError, TypeError):
        return descriptions
    for node in ast.parse(source).body:
        for field, text in itertools.pairwise(node.body if isinstance(node, ast.ClassDef) else ()):
            match field, text:
                case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=str(docstring))):
                    descriptions[name] = inspect.cleandoc(docstring)
    return descriptions
