"""Every public name says what it takes, returns, raises and guarantees, and has an example."""

import ast
import builtins
import dataclasses
import inspect
import re
import textwrap
from collections.abc import Callable
from typing import Any

import pytest

import understudy as us
from understudy import errors
from understudy.models.protocol import Model
from understudy.synthesizers.protocol import Synthesizer
from understudy.synthesizers.registry import SYNTHESIZERS

NAMES = [name for name in us.__all__ if name != "__version__"]
VALUES: dict[str, Any] = {name: getattr(us, name) for name in NAMES}
FUNCTIONS = {name: value for name, value in VALUES.items() if inspect.isfunction(value)}
CLASSES = {
    name: value
    for name, value in VALUES.items()
    if inspect.isclass(value) and not issubclass(value, Exception) and value not in (Synthesizer, Model)
}
METHODS = sorted(place.partition(":")[2] for place in SYNTHESIZERS.values())

GUARANTEED = {"fit", "fit_graph", "boost", "mock"}
"""Functions that make something of which a guarantee holds."""
NOT_PRIVATE = {"evaluate", "disclose", "preview", "split", "write_report"}
"""Functions that read real rows outside of any guarantee, or write figures of them."""


def sections_of(value: Any) -> dict[str, str]:
    """The parts of a docstring under "Args:", "Returns:" and "Raises:", up to the next part or the example."""
    text = inspect.getdoc(value) or ""
    return dict(re.findall(r"^(Args|Returns|Raises):\n((?:(?: {4}.*)?\n)*)", text, flags=re.MULTILINE))


def entries_of(section: str) -> list[str]:
    """The names before a colon at the first level of indentation."""
    return re.findall(r"^ {4}(\w+): \S", section, flags=re.MULTILINE)


def documented_fields(cls: type) -> set[str]:
    """The fields of a dataclass under which there is a text."""
    (definition,) = ast.parse(textwrap.dedent(inspect.getsource(cls))).body
    assert isinstance(definition, ast.ClassDef)
    return {
        field.target.id
        for field, text in zip(definition.body, definition.body[1:], strict=False)
        if isinstance(field, ast.AnnAssign)
        and isinstance(field.target, ast.Name)
        and isinstance(text, ast.Expr)
        and isinstance(text.value, ast.Constant)
    }


def test_every_name_has_a_sentence_and_an_example() -> None:
    """Of a class its own: `inspect.getdoc` would fall back on that of a base class."""
    texts = {name: value.__doc__ or "" for name, value in VALUES.items()}
    assert not [name for name, text in texts.items() if not re.match(r"\S[^\n]*(\n[^\n]+)*?[.:]", text)]
    assert not [name for name, text in texts.items() if ">>> " not in text]


def test_functions_say_what_they_take_return_and_raise() -> None:
    for name, function in FUNCTIONS.items():
        sections, signature = sections_of(function), inspect.signature(function)
        assert sorted(entries_of(sections["Args"])) == sorted(signature.parameters), name
        assert (signature.return_annotation in (None, "None")) == ("Returns" not in sections), name
        raised = entries_of(sections["Raises"])
        assert raised, name
        for error in raised:
            value = getattr(us, error, None) or getattr(errors, error, None) or getattr(builtins, error)
            assert issubclass(value, Exception)


def test_functions_on_real_rows_say_what_is_guaranteed() -> None:
    real = {
        name
        for name, function in FUNCTIONS.items()
        if any("PrivateSource" in str(p.annotation) for p in inspect.signature(function).parameters.values())
    }
    assert real <= GUARANTEED | NOT_PRIVATE
    for name in GUARANTEED:
        assert "Formal guarantee: " in (FUNCTIONS[name].__doc__ or ""), name
    for name in NOT_PRIVATE:
        assert re.search(
            r"(?i)not private|both are private|\*not covered\*: everything", FUNCTIONS[name].__doc__ or ""
        ), name


def test_the_fit_of_every_method_states_its_guarantee() -> None:
    assert not [name for name in METHODS if "Formal guarantee: " not in (inspect.getdoc(VALUES[name].fit) or "")]
    assert not [name for name in METHODS if not inspect.getdoc(VALUES[name].plan)]


def test_classes_document_their_arguments_and_methods() -> None:
    assert not {name: silent for name, cls in CLASSES.items() if (silent := undocumented(cls))}


def undocumented(cls: type) -> list[str]:
    """Fields without a text below them, arguments that the docstring does not have, and members without a docstring."""
    if dataclasses.is_dataclass(cls):
        said = {field for base in cls.__mro__ if dataclasses.is_dataclass(base) for field in documented_fields(base)}
        silent = [f.name for f in dataclasses.fields(cls) if f.init and f.name[0] != "_" and f.name not in said]
    else:
        arguments = list(inspect.signature(cls).parameters)
        silent = [] if entries_of(sections_of(cls)["Args"]) == arguments else arguments
    members = {key: value for key, value in vars(cls).items() if key[0] != "_" and _is_member(value)}
    return silent + [key for key, value in members.items() if not inspect.getdoc(getattr(value, "__func__", value))]


def _is_member(value: object) -> bool:
    return inspect.isfunction(value) or isinstance(value, property | classmethod | staticmethod)


@pytest.mark.parametrize("protocol", [Synthesizer, Model])
def test_the_package_shows_both_protocols_as_they_are(protocol: type) -> None:
    """Its docstring has each member of the protocol, and each method with its arguments."""
    shown = re.search(rf"class {protocol.__name__}\(Protocol\):\n(( {{8}}.*\n)+)", us.__doc__ or "")
    assert shown
    (definition,) = ast.parse(f"class C:\n{shown[1]}").body
    assert isinstance(definition, ast.ClassDef)
    members = {key: value for key, value in vars(protocol).items() if key[0] != "_" and _is_member(value)}
    assert _names_of(definition) == set(members) | set(vars(protocol).get("__annotations__", {}))
    for node in definition.body:
        if isinstance(node, ast.FunctionDef):
            ours: Callable[..., Any] = getattr(members[node.name], "__func__", members[node.name])
            assert [a.arg for a in (*node.args.args, *node.args.kwonlyargs)] == list(inspect.signature(ours).parameters)


def _names_of(definition: ast.ClassDef) -> set[str]:
    fields = {
        node.target.id
        for node in definition.body
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name)
    }
    return fields | {node.name for node in definition.body if isinstance(node, ast.FunctionDef)}
