"""Private rows cannot leave `privacy/`: no other folder reads what its opaque types hold.

The rule is read off the source: every underscore name that a class of `privacy/` defines, as a field, a method or on
`self`, is private state. Outside the folder such a name may only be used on `self`, in a class that defines it, and
nothing there takes apart or changes an object of an opaque type. What may be imported from the folder at all is listed
in `test_surface.py`.
"""

import ast
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

import understudy

SOURCE = Path(understudy.__file__).parent
OUTSIDE = sorted(file for path in SOURCE.rglob("*.py") if (file := path.relative_to(SOURCE)).parts[0] != "privacy")

OPAQUE = {
    "PrivateTable",
    "PrivateColumns",
    "PrivateRows",
    "PrivateScores",
    "PrivateUnits",
    "PrivateGraph",
    "Partitions",
    "Batches",
    "ChargedSteps",
    "ChargedUpdates",
    "ChargedVotes",
    "ChargedAnswers",
    "MarginalSelector",
    "FunctionSelector",
    "DependenceSelector",
    "GaussianFilter",
    "ZCDPFilter",
    "Teachers",
    "Ledger",
}
"""Types that stand for private rows, or for what was charged for them, outside `privacy/`."""

OPAQUE_NAMES = {"charged", "batches", "teachers", "partitions", "private"} | {
    "rows",
    "table",
    "steps",
    "units",
    "answers",
    "selector",
    "ledger",
    "privacy_filter",
}
"""By these names values of such types are known; also by any name that a file annotates with one of them."""

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
    "dir",
    "getattr",
    "setattr",
    "__setattr__",
    "getattr_static",
    "getmembers",
    "filter",
    "partition",
    "combine",
    "is_array",
    "copy",
    "deepcopy",
    "get_referents",
}
"""What takes a pytree or another object apart, or changes a part of it; all of `jax.tree` and `jax.tree_util` does."""

INSIDE = {"__dict__", "__getstate__", "__reduce__", "__reduce_ex__", "__closure__", "__globals__", "__getattribute__"}
"""Ways around the name of an attribute, which no file outside `privacy/` needs."""


def class_names(tree: ast.AST) -> Iterator[str]:
    """Names that the classes of a file define: fields, methods, and what they set on `self`."""
    for owner in ast.walk(tree):
        if not isinstance(owner, ast.ClassDef):
            continue
        for node in ast.walk(owner):
            match node:
                case ast.FunctionDef(name=name) | ast.AnnAssign(target=ast.Name(id=name)):
                    yield name
                case ast.Attribute(attr=name, value=ast.Name(id="self"), ctx=ast.Store()):
                    yield name


ATTRIBUTES = {name for file in (SOURCE / "privacy").rglob("*.py") for name in class_names(ast.parse(file.read_text()))}
STATE = {name for name in ATTRIBUTES if name.startswith("_") and not name.startswith("__")}


def opaque_faults(source: str, file: str) -> list[str]:
    """Where a file outside `privacy/` reaches into private rows, teachers or batches."""
    tree, faults = ast.parse(source), []
    opaque = OPAQUE_NAMES | _annotated_names(tree)
    own: dict[ast.AST, set[str]] = {}
    for each in ast.walk(tree):
        if isinstance(each, ast.ClassDef):
            names = set(class_names(each))
            own.update((inner, names) for inner in ast.walk(each))
    for node in ast.walk(tree):
        rules = _rules_broken(node, opaque, own.get(node, set()))
        faults += [f"{file}:{getattr(node, 'lineno', 0)}: {rule}" for rule in rules]
    return faults


def _annotated_names(tree: ast.AST) -> set[str]:
    """Names that a file annotates with an opaque type."""
    names = set()
    for node in ast.walk(tree):
        match node:
            case ast.arg(arg=name, annotation=ast.AST() as kind) if _mentions_opaque(kind):
                names.add(name)
            case ast.AnnAssign(target=target, annotation=kind) if _mentions_opaque(kind):
                names.add(last_name(target))
    return names


def _mentions_opaque(annotation: ast.AST) -> bool:
    return any(last_name(each) in OPAQUE for each in ast.walk(annotation))


def _rules_broken(node: ast.AST, opaque: set[str], own: set[str]) -> Iterator[str]:
    match node:
        case ast.Attribute(attr=attr, value=owner, ctx=ctx):
            on_self = isinstance(owner, ast.Name) and owner.id in ("self", "cls")
            if attr in STATE and not (on_self and attr in own):
                yield f"takes {attr}"
            if attr.startswith(("exact_", "_exact_")) or attr in INSIDE:
                yield f"takes {attr}"
            if attr in ATTRIBUTES and not on_self and not isinstance(ctx, ast.Load):
                yield f"sets {attr}"
        case ast.ImportFrom(module=str(module), names=names) if module.startswith("understudy.privacy"):
            yield from (f"imports {a.name}" for a in names if a.name.startswith(("_", "exact_")))
        case ast.ClassDef(bases=bases):
            yield from (f"subclasses {last_name(base)}" for base in bases if last_name(base) in OPAQUE)
        case ast.MatchClass(cls=kind, kwd_attrs=names):
            yield from (f"takes {name}" for name in names if name in STATE)
            if last_name(kind) in OPAQUE:
                yield f"matches {last_name(kind)}"
        case ast.Call(func=func, args=args, keywords=keywords):
            yield from (f"sets {word.arg}" for word in keywords if word.arg in STATE)
            if last_name(func) in OPENERS or ast.unparse(func).startswith(("jax.tree", "jtu.", "tree_util.")):
                yield from (f"opens {last_name(each)}" for each in _parts(args) if last_name(each) in opaque)
            if last_name(func) in ("getattr", "setattr", "attrgetter"):
                for each in args:
                    if isinstance(each, ast.Constant) and each.value in STATE:
                        yield f"takes {each.value} by name"


def _parts(args: Sequence[ast.AST]) -> Iterator[ast.AST]:
    """The arguments, and what stands in tuples, lists and dictionaries among them."""
    for each in args:
        yield each
        if isinstance(each, ast.Tuple | ast.List | ast.Dict | ast.Starred):
            yield from _parts(list(ast.iter_child_nodes(each)))


def last_name(node: ast.AST) -> str:
    """`c` of `a.b.c`; also of the text "c", and of `c[...]`, as annotations have them."""
    match node:
        case ast.Attribute(attr=name) | ast.Name(id=name) | ast.Constant(value=str(name)):
            return name
        case ast.Subscript(value=value):
            return last_name(value)
    return ""


def annotation_nodes(tree: ast.AST) -> set[ast.AST]:
    """Everything that stands in an annotation."""
    kinds = [getattr(node, field, None) for node in ast.walk(tree) for field in ("annotation", "returns")]
    return {inner for kind in kinds if isinstance(kind, ast.AST) for inner in ast.walk(kind)}


def test_no_other_folder_reads_private_state() -> None:
    assert not [fault for file in OUTSIDE for fault in opaque_faults((SOURCE / file).read_text(), file.as_posix())]


def test_the_rule_knows_what_the_opaque_types_hold() -> None:
    assert {"_codes", "_positions", "_exact_counts", "_rows", "_present", "_units", "_indices", "_taken"} <= STATE
    assert {"_table", "_batches", "_unit_ids"} <= STATE
    assert {
        "_noise_multiplier",
        "_schedule",
        "_partitions",
        "_networks",
        "_lengths",
        "_private",
        "_exact_sums",
    } <= STATE
    rules = {
        fault.split(": ")[1] for fault in opaque_faults((SOURCE / "privacy/gradients/dpsgd.py").read_text(), "dpsgd.py")
    }
    assert {"takes _units", "takes _rows", "takes _indices"} <= rules


@pytest.mark.parametrize(
    ("source", "fault"),
    [
        ("def f(rows): return rows._codes.sum()", "takes _codes"),
        ("def f(charged): return charged._units._rows", "takes _rows"),
        ("def fit_codec(table): return table._table.num_rows", "takes _table"),
        ("def f(numbers): return next(iter(numbers._batches))['age'].max()", "takes _batches"),
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
        ("from understudy.privacy.gradients.clipping import _unit_squares", "imports _unit_squares"),
        ("from understudy.privacy.gradients.pate import exact_opinions", "imports exact_opinions"),
        ("from understudy.privacy import pate\nx = pate.exact_opinions(teachers, rows)", "takes exact_opinions"),
        ("class Open(PrivateRows):\n    def codes(self): return self._codes", "subclasses PrivateRows"),
    ],
)
def test_the_rule_can_fail(source: str, fault: str) -> None:
    faults = opaque_faults(source, "synthesizers/bad.py")
    assert any(each.endswith(fault) for each in faults), faults


def test_the_rule_lets_training_code_be() -> None:
    source = (
        "from understudy.privacy.gradients.dpsgd import noisy_gradient\n"
        "class Own:\n    def __init__(self): self._units = 3\n    def more(self): return self._units\n"
        "noisy = noisy_gradient(charged, loss, network, clip, batch=batches[0], key=key)\n"
        "clip = 1.0 if charged.is_private else 2.0\n"
    )
    assert not opaque_faults(source, "training/gan.py")
