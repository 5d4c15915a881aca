"""Private rows cannot leave `privacy/`: no other folder reads what its opaque types hold.

The rule is read off the source: every underscore name that a class of `privacy/` defines, as a field, a method or on
`self`, is private state. Outside the folder such a name may only be used on `self`, in a class of its own.
"""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import understudy

SOURCE = Path(understudy.__file__).parent
OUTSIDE = sorted(file.relative_to(SOURCE) for file in SOURCE.rglob("*.py") if file.parent.name != "privacy")

OPAQUE = {
    "PrivateTable",
    "PrivateColumns",
    "PrivateRows",
    "PrivateUnits",
    "Batches",
    "ChargedSteps",
    "ChargedUpdates",
    "ChargedVotes",
    "Teachers",
}
"""Types that stand for private rows outside `privacy/`."""

OPAQUE_NAMES = {"charged", "batches", "teachers", "partitions", "private"}
"""By these names values of such types are known."""

OPENERS = {
    "tree_leaves",
    "tree_flatten",
    "tree_map",
    "tree_at",
    "tree_reduce",
    "device_get",
    "asarray",
    "array",
    "replace",
    "asdict",
    "astuple",
    "vars",
    "partition",
}
"""What takes a pytree or a dataclass apart, or changes a part of it."""


def class_names(tree: ast.AST) -> Iterator[str]:
    """Underscore names that the classes of a file define."""
    for owner in ast.walk(tree):
        if not isinstance(owner, ast.ClassDef):
            continue
        for node in ast.walk(owner):
            match node:
                case ast.FunctionDef(name=name) | ast.AnnAssign(target=ast.Name(id=name)):
                    yield name
                case ast.Attribute(attr=name, value=ast.Name(id="self"), ctx=ast.Store()):
                    yield name


def private_state() -> set[str]:
    names = {name for file in (SOURCE / "privacy").glob("*.py") for name in class_names(ast.parse(file.read_text()))}
    return {name for name in names if name.startswith("_") and not name.startswith("__")}


STATE = private_state()


def opaque_faults(source: str, file: str) -> list[str]:
    """Where a file outside `privacy/` reaches into private rows, teachers or batches."""
    faults = []
    for node in ast.walk(ast.parse(source)):
        faults += [f"{file}:{getattr(node, 'lineno', 0)}: {rule}" for rule in _rules_broken(node)]
    return faults


def _rules_broken(node: ast.AST) -> Iterator[str]:
    match node:
        case ast.Attribute(attr=attr, value=owner):
            if attr in STATE and not (isinstance(owner, ast.Name) and owner.id in ("self", "cls")):
                yield f"takes {attr}"
            if attr.startswith(("exact_", "_exact_")):
                yield f"takes {attr}"
        case ast.ImportFrom(module=str(module), names=names) if module.startswith("understudy.privacy"):
            yield from (f"imports {a.name}" for a in names if a.name.startswith(("_", "exact_")))
        case ast.ClassDef(bases=bases):
            yield from (f"subclasses {_last(base)}" for base in bases if _last(base) in OPAQUE)
        case ast.Call(func=func, args=args, keywords=keywords):
            yield from (f"sets {word.arg}" for word in keywords if word.arg in STATE)
            if _last(func) in OPENERS:
                yield from (f"opens {_last(each)}" for each in args if _last(each) in OPAQUE_NAMES)
            if _last(func) in ("getattr", "setattr", "attrgetter"):
                for each in args:
                    if isinstance(each, ast.Constant) and each.value in STATE:
                        yield f"takes {each.value} by name"


def _last(node: ast.AST) -> str:
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


@pytest.mark.parametrize("file", OUTSIDE, ids=str)
def test_no_other_folder_reads_private_state(file: Path) -> None:
    assert not opaque_faults((SOURCE / file).read_text(), file.as_posix())


def test_the_rule_knows_what_the_opaque_types_hold() -> None:
    assert {"_codes", "_positions", "_exact_counts", "_rows", "_present", "_units", "_indices", "_taken"} <= STATE
    assert {"_table", "_values", "_unit_ids"} <= STATE
    assert {
        "_noise_multiplier",
        "_schedule",
        "_partitions",
        "_networks",
        "_lengths",
        "_private",
        "_exact_sums",
    } <= STATE
    rules = {fault.split(": ")[1] for fault in opaque_faults((SOURCE / "privacy/dpsgd.py").read_text(), "dpsgd.py")}
    assert {"takes _units", "takes _rows", "takes _indices"} <= rules


@pytest.mark.parametrize(
    ("source", "fault"),
    [
        ("def f(rows): return rows._codes.sum()", "takes _codes"),
        ("def f(charged): return charged._units._rows", "takes _rows"),
        ("def fit_codec(table): return table._table.num_rows", "takes _table"),
        ("def f(numbers): return numbers._values['age'].max()", "takes _values"),
        ("names = getattr(table, '_table').column_names", "takes _table by name"),
        ("class Open(PrivateTable):\n    def rows(self): return self._table", "subclasses PrivateTable"),
        ("def step(charged): return charged._units", "takes _units"),
        ("x = charged._partitions._lengths", "takes _lengths"),
        ("x = state.teachers._networks", "takes _networks"),
        ("x = batches._indices", "takes _indices"),
        ("x = charged._noise_multiplier", "takes _noise_multiplier"),
        ("x = rows._exact_counts(('a',))", "takes _exact_counts"),
        ("x = getattr(charged, '_units')", "takes _units by name"),
        ("charged = dataclasses.replace(charged, _noise_multiplier=0.0)", "sets _noise_multiplier"),
        ("charged = dataclasses.replace(charged, num_steps=10**6)", "opens charged"),
        ("rows, *_ = jax.tree_util.tree_leaves(charged)", "opens charged"),
        ("teachers = jax.device_get(state.teachers)", "opens teachers"),
        ("from understudy.privacy.clipping import _unit_squares", "imports _unit_squares"),
        ("from understudy.privacy.pate import exact_opinions", "imports exact_opinions"),
        ("from understudy.privacy import pate\nx = pate.exact_opinions(teachers, rows)", "takes exact_opinions"),
        ("class Open(PrivateRows):\n    def codes(self): return self._codes", "subclasses PrivateRows"),
    ],
)
def test_the_rule_can_fail(source: str, fault: str) -> None:
    faults = opaque_faults(source, "synthesizers/bad.py")
    assert any(each.endswith(fault) for each in faults), faults


def test_the_rule_lets_training_code_be() -> None:
    source = (
        "from understudy.privacy.dpsgd import noisy_gradient\n"
        "class Own:\n    def __init__(self): self._units = 3\n    def more(self): return self._units\n"
        "noisy = noisy_gradient(charged, loss, network, clip, batch=batches[0], key=key)\n"
        "clip = 1.0 if charged.is_private else 2.0\n"
    )
    assert not opaque_faults(source, "training/gan.py")
