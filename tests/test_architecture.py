"""Rules about the source: imports point one way, and only `privacy/` draws noise, sees exact counts, or compares and
measures private tables."""

import ast
import itertools
import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

import understudy

SOURCE = Path(understudy.__file__).parent

ORDER = (
    "_version",
    "errors",
    "notes",
    "progress",
    "summary",
    "run.atomic",  # how files are written, and what a run was made with: for every folder
    "run.checkpoint",
    "run.environment",
    "synthesizers.settings",  # of methods, learners and networks alike
    "rules",
    "schema",
    "tables",
    "privacy",
    "synthesizers.run",  # what learners and networks plan and fit with, too
    "encoding",
    "models",
    "training",
    "marginals",
    "learners",
    "synthesizers",
    "certificate",
    "run.failure",  # a release reads its record
    "run.listener",
    "release",
    "institution.metadata",  # the description beside a synthetic table
    "run.composition",
    "run.plan",
    "run.sources",
    "institution.book",  # in which a run reserves its cost
    "run",
    "planning.requirements",
    "api",
    "planning",
    "synthesizers.boosted.external",  # a run of its own
    "learners.parameters",
    "learners.arrays",
    "learners.sklearn",  # runs of their own
    "steward",
    "importers",
    "evaluation",
    "disclosure",
    "graphs",
    "report",
    "institution",
    "audit",
    "benchmark",
    "studio",
    "demo",
    "cli",
    "__main__",
)
"""Folders, and files of the top level: each imports only what stands above it. A file of a folder that stands by itself
says why. The package's own `__init__`, which loads its names late, is free."""

TOP_FILES = {"__init__", "__main__", "_version", "api", "errors", "notes", "progress", "summary"}
"""What lies beside the folders."""

MAX_FILES = 30
"""In one folder, without those in it."""

MAY_IMPORT_STEWARD = {
    "steward": "itself",
    "cli": "shows it to the steward",
    "studio": "shows it to the steward",
    "graphs/check.py": "for the steward only",
    "__init__.py": "loads its names late",
}
"""`steward/` reads real rows without noise. Only these may import it, so nothing that it finds can reach a release."""

PAGE = Path(__file__).parents[1] / "docs" / "architecture.md"

FREE_DRAWS = {
    "normal",
    "standard_normal",
    "multivariate_normal",
    "truncated_normal",
    "normalvariate",
    "gauss",
    "laplace",
    "gumbel",
    "exponential",
    "standard_exponential",
    "expovariate",
    "logistic",
    "standard_t",
    "cauchy",
    "discrete_gaussian",
    "exponential_choice",
    "noisy_argmax",
}
"""Draws that could hide a statistic. Uniform and categorical draws, of which samplers are made, are not among them."""

PRIVATE_STATE = {"_codes", "_make_positions", "_exact_counts", "_count_ahead", "_cache", "_units"}
"""What `PrivateRows` holds; `privacy/test_opaque.py` has the rule for all opaque types."""

CODE_IN_DATA = {"pickle", "cPickle", "_pickle", "cloudpickle", "dill", "joblib", "marshal", "shelve"}

ALLOWED: dict[tuple[str, str], str] = {
    ("training/generation.py", "draws normal"): "latent vectors of a generator",
    ("models/generator.py", "draws normal"): "latent vectors of a generator",
    ("marginals/generator.py", "draws normal"): "latent vectors of a generator",
    ("training/autoencoder.py", "draws normal"): "latent vectors of a generator",
}
"""(file, rule) to the reason why it may: latent vectors of a generator, for example, hide no statistic."""


EXACT_FACTS = {"equals", "num_rows", "null_count"}
"""What a table tells of itself exactly."""

TABLE_NAMES = {"table", "arrow", "frame", "private"}
"""By these names `==` and `len` are known to be about a table."""

PUBLIC_SIZES = {"domain", "_domain", "codec", "chains", "self"}
"""Owners of a `num_rows` that is declared or noisy: `Domain`, `Codec`, and what is made of them."""

NOT_PRIVATE = ("privacy", "tables", "steward", "evaluation", "disclosure", "benchmark")
"""Where the rule does not hold: in the one folder that may, in the readers, which serve public and private tables alike
(`test_neighbours.py` holds them to it), and where all tables are outside the guarantee."""

ALLOWED_EXACT: dict[tuple[str, str], str] = {
    ("cli/app.py", "demo"): "the embedded table is public",
    ("encoding/codec.py", "Codec.encode_modelled"): "shape of the codes, which go into Rows",
    ("encoding/reexpression/reexpression.py", "Reexpression.kept_rows"): "shape of the mask, one entry per row",
    ("encoding/reexpression/reexpression.py", "Reexpression.within_bounds"): "synthetic rows",
    ("encoding/units.py", "group_into_units"): "synthetic rows",
    ("encoding/units.py", "_sort_rows"): "synthetic rows",
    ("encoding/units.py", "number_ids"): "synthetic rows",
    ("encoding/codec.py", "Codec.positions_modelled"): "shape of the positions, which go into Rows",
    ("cli/mock.py", "mock"): "mock rows",
    ("institution/metadata/table_schema.py", "_resource"): "synthetic rows",
    ("planning/mock.py", "MockMaker._with_strings"): "mock rows",
    ("graphs/schema.py", "_read_node_file"): "the node list is public",
    ("learners/sklearn.py", "Estimator._read"): "X and y of two lengths are no table; no message says which",
    ("api.py", "_start"): "the size of the public table, for the certificate",
    ("run/sources.py", "read_public_table"): "a public table without rows is refused",
    ("release/conditional.py", "sample_meeting.propose"): "synthetic rows",
    ("release/conditional.py", "rows_meeting"): "synthetic rows",
    ("rules/rules.py", "Sum.total"): "a key of the rule, not a comparison",
    ("rules/conditions.py", "filter_where"): "shape of the mask, one entry per row",
    ("rules/conditions.py", "_numbered"): "shape of the numbers, one per row",
    ("rules/conditions.py", "_values"): "shape of the values, one per row",
    ("rules/conditions.py", "_run_rows"): "each row is answered by itself, however they are halved",
    ("importers/importers.py", "_read_smartnoise"): "a description of a table, not a table",
    ("synthesizers/selected/method.py", "_marginal"): "counts of synthetic rows",
    ("cli/show.py", "show_preview"): "for the steward only",
}
"""(file, function) to the reason why it may."""


RAW_READERS = {"TableStream", "from_frame", "open_spark_table", "open_table", "read_column", "read_table"}
"""What gives raw rows, or reads a file of them."""

MAY_READ_ROWS: dict[str, str] = {
    "run/sources.py": "hands the private table to `PrivateTable` at once",
    "synthesizers/boosted/external.py": "generated rows",
    "graphs/fit.py": "edges outside the guarantee, for checks and metrics",
    "graphs/schema.py": "public nodes",
    "learners/arrays.py": "reads X and y for `learners/sklearn.py`",
    "learners/sklearn.py": "hands X and y to `run/sources.py` at once",
    "evaluation/inputs.py": "outside the guarantee: compares with real rows",
    "benchmark/execution.py": "public tables",
    "demo/__init__.py": "the embedded table is public",
    "cli/split.py": "files of the steward",
    "cli/schema.py": "for the steward only: checks and drafts of a schema",
}
"""The files outside `privacy/`, `tables/` and `steward/` that may read rows, and why."""


# -------------------------------------------------------------------------------------------------------------- imports


def place(module: str) -> int | None:
    """Where `understudy.<module>` stands, by its longest listed prefix; None if it is not listed."""
    parts = module.split(".")
    for length in range(len(parts), 0, -1):
        if ".".join(parts[:length]) in ORDER:
            return ORDER.index(".".join(parts[:length]))
    return None


def imported_modules(tree: ast.AST, module: str) -> Iterator[str]:
    """Names below `understudy` that a file imports anywhere, also late or for types only."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                if alias.name.startswith("understudy."):
                    yield alias.name.removeprefix("understudy.")
        elif isinstance(node, ast.ImportFrom):
            source = node.module or ""
            if node.level:
                above = ["understudy", *module.split(".")][: -node.level]
                source = ".".join([*above, source]).rstrip(".")
            for alias in node.names:
                if source == "understudy":
                    yield alias.name
                elif source.startswith("understudy."):
                    full = f"{source}.{alias.name}".removeprefix("understudy.")
                    yield full if is_module(full) else source.removeprefix("understudy.")


def is_module(name: str) -> bool:
    path = SOURCE.joinpath(*name.split("."))
    return path.is_dir() or path.with_suffix(".py").exists() or name in ORDER


def import_faults(source: str, module: str) -> list[str]:
    """Imports of this file that point upwards, or to nothing that the order knows."""
    here, faults = place(module), []
    for target in imported_modules(ast.parse(source), module):
        there = place(target)
        if here is None or there is None:
            faults.append(f"{module} imports {target}: one of them has no place in the order")
        elif there > here:
            faults.append(f"{module} imports {target}, which stands below it")
        elif module.startswith("evaluation") and target.startswith("synthesizers"):
            faults.append(f"{module} imports {target}: evaluation knows no method")
    return faults


# ---------------------------------------------------------------------------------------------------------------- noise


def noise_faults(source: str, file: str) -> list[str]:
    """What a file outside `privacy/` must not do, each as (line, rule)."""
    tree, faults = ast.parse(source), []
    parents = {child: parent for parent in ast.walk(tree) for child in ast.iter_child_nodes(parent)}
    for node in ast.walk(tree):
        for rule in _rules_broken(node, parents):
            if (file, rule) not in ALLOWED:
                faults.append(f"{file}:{getattr(node, 'lineno', 0)}: {rule}")
    return faults


def _rules_broken(node: ast.AST, parents: dict[ast.AST, ast.AST]) -> Iterator[str]:
    match node:
        case ast.Import(names=names) | ast.ImportFrom(names=names):
            modules = [alias.name for alias in names]
            if isinstance(node, ast.ImportFrom):
                yield from (f"draws {name}" for name in modules if name in FREE_DRAWS)
                yield from (f"takes {name}" for name in modules if name in PRIVATE_STATE)
                modules = [node.module or ""]
            for root in {name.split(".")[0] for name in modules}:
                if root in CODE_IN_DATA or root in ("opendp", "torch"):
                    yield f"imports {root}"
        case ast.Attribute(attr=attr) if attr in FREE_DRAWS:
            yield f"draws {attr}"
        case ast.Attribute(attr=attr) if attr in PRIVATE_STATE:
            yield f"takes {attr}"
        case ast.Attribute(attr="noise"):
            parent = parents.get(node)
            is_free = isinstance(parent, ast.Attribute) and parent.attr in ("key", "seeded")
            if not is_free and not _is_compared_with_a_word(parent):  # the setting of a method, by its name
                yield "uses a ledger's noise"
        case ast.Call(func=ast.Name(id="getattr"), args=[_, ast.Constant(value=str(name)), *_]):
            if name in FREE_DRAWS | PRIVATE_STATE | {"noise"}:
                yield f"takes {name} by name"
        case ast.keyword(arg="allow_pickle", value=ast.Constant(value=True)):
            yield "imports pickle"


def _is_compared_with_a_word(node: ast.AST | None) -> bool:
    return isinstance(node, ast.Compare) and all(
        isinstance(each, ast.Constant) and isinstance(each.value, str) for each in node.comparators
    )


# ---------------------------------------------------------------------------------------------------- exact comparisons


def exact_uses(source: str) -> Iterator[tuple[str, int, str]]:
    """Where a file reads an exact fact of a table: the function, the line, and what it reads."""

    def walk(node: ast.AST, scope: tuple[str, ...]) -> Iterator[tuple[str, int, str]]:
        inner = scope
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            inner = (*scope, node.name)
        fact = _exact_fact(node)
        if fact:
            yield ".".join(scope), getattr(node, "lineno", 0), fact
        for child in ast.iter_child_nodes(node):
            yield from walk(child, inner)

    yield from walk(ast.parse(source), ())


def _exact_fact(node: ast.AST) -> str:
    match node:
        case ast.Attribute(attr=attr, value=owner) if attr in EXACT_FACTS and isinstance(node.ctx, ast.Load):
            is_public = attr == "num_rows" and _last_name(owner) in PUBLIC_SIZES
            return "" if is_public else f".{attr}"
        case ast.Compare(ops=ops) if any(isinstance(op, ast.Eq | ast.NotEq) for op in ops):
            sides = (node.left, *node.comparators)
            return "==" if any(isinstance(s, ast.Name) and s.id in TABLE_NAMES for s in sides) else ""
        case ast.Call(func=ast.Name(id="len"), args=[ast.Name(id=name)]) if name in TABLE_NAMES:
            return "len"
        case ast.Call(func=ast.Name(id="getattr"), args=[_, ast.Constant(value=str(name)), *_]) if name in EXACT_FACTS:
            return f".{name}"
    return ""


def _last_name(node: ast.AST) -> str:
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


def exact_faults(source: str, file: str) -> list[str]:
    return [
        f"{file}:{line}: {function or 'the module'} reads {fact} of a table"
        for function, line, fact in exact_uses(source)
        if (file, function) not in ALLOWED_EXACT
    ]


# ------------------------------------------------------------------------------------------------------------- raw rows


def raw_reads(source: str) -> list[str]:
    """What a file imports that gives raw rows, from wherever; also by the attribute of a module."""
    found = []
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.ImportFrom(module=str(module), names=names) if module.startswith("understudy.tables"):
                found += [each.name for each in names if each.name in RAW_READERS]
            case ast.Attribute(attr=attr, value=ast.Name(id="tables" | "stream" | "reading" | "frames")):
                found += [attr] if attr in RAW_READERS else []
    return found


# ---------------------------------------------------------------------------------------------------------------- tests


FILES = sorted(path.relative_to(SOURCE) for path in SOURCE.rglob("*.py"))
OUTSIDE = [file for file in FILES if file.parts[0] != "privacy"]


def faults_of(files: Sequence[Path], rule: Callable[[str, str], list[str]]) -> list[str]:
    """What a rule finds in these files, given the source and the path of each."""
    return [fault for file in files for fault in rule((SOURCE / file).read_text(), file.as_posix())]


def module_name(file: Path) -> str:
    parts = file.with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def test_imports_point_one_way() -> None:
    modules = {file: module_name(file) for file in FILES if file != Path("__init__.py")}
    del modules[Path("learners/__init__.py")]  # loads its estimators late
    assert not [name for name in modules.values() if place(name) is None]
    assert not faults_of(list(modules), lambda source, file: import_faults(source, modules[Path(file)]))


def test_the_page_lists_folders_in_this_order() -> None:
    """docs/architecture.md has a row for every folder and file of the top level; parts of folders stand elsewhere."""
    (rows,) = re.findall(
        r"^\| in `src/understudy/`.*\n\|[-|]+\n((?:\|.*\n)+)", PAGE.read_text(encoding="utf-8"), re.MULTILINE
    )
    listed = [
        name.removesuffix("/").removesuffix(".py")
        for row in rows.splitlines()
        for name in re.findall(r"`(.+?)`", row.split("|")[1])
    ]
    assert listed == [name for name in ORDER if "." not in name and name[0] != "_"]


def test_folders_of_private_rows_are_packages_of_files_and_nothing_of_their_own() -> None:
    faces = [file for file in FILES if file.parts[0] == "privacy" and file.name == "__init__.py"]
    assert len(faces) > 5
    assert not [file for file in faces if (SOURCE / file).read_text().strip()]


def test_the_tree_is_small_enough_to_read() -> None:
    assert {file.stem for file in FILES if len(file.parts) == 1} == TOP_FILES
    sizes = Counter(file.parent for file in FILES)
    assert {folder: size for folder, size in sizes.items() if size > MAX_FILES} == {}


ONE_LETTER_APART = {
    ("api", "app"): "the public functions, and the program of the command line",
    ("calls", "cells"): "two plain words",
    ("codec", "codes"): "a codec makes codes",
    ("column", "columns"): "one column of a schema, and all columns of a table",
    ("ddi", "ddl"): "two formats",
    ("graph", "graphs"): "a package, and what one command or one mechanism does for it",
    ("method", "methods"): "one published method, and all learners",
    ("page", "pages"): "one page, and several",
    ("page", "pate"): "an algorithm",
    ("pate", "path"): "an algorithm",
    ("source", "sources"): "the source of randomness, and sources of tables",
    ("table", "tables"): "a package, and the table of one reader",
}


def one_letter_apart(one: str, other: str) -> bool:
    """Whether two names differ by one letter: changed, or added to one of them."""
    short, long = sorted((one, other), key=len)
    return one != other and any(
        long[:at] + long[at + 1 :] == short[:at] + short[at + (len(short) == len(long)) :] for at in range(len(long))
    )


def test_no_two_names_of_modules_differ_by_one_letter() -> None:
    names = sorted({module_name(file).rpartition(".")[2] for file in FILES})
    pairs = {pair for pair in itertools.combinations(names, 2) if one_letter_apart(*pair)}
    assert pairs == set(ONE_LETTER_APART)
    assert one_letter_apart("plan", "plans")
    assert one_letter_apart("plane", "plan")
    assert one_letter_apart("plan", "play")
    assert not one_letter_apart("plan", "player")


FILLER_NAMES = ("found", "each", "held", "own")
MAX_FILLER_NAMES = 205
"""Arguments and variables of these names, outside of comprehensions. May only fall: name the thing instead."""


def filler_names(source: str) -> int:
    tree = ast.parse(source)
    targets = [node.target for node in ast.walk(tree) if isinstance(node, ast.comprehension)]
    in_comprehensions = {name for target in targets for name in ast.walk(target)}
    return sum(
        node.arg in FILLER_NAMES
        if isinstance(node, ast.arg)
        else isinstance(node, ast.Name)
        and isinstance(node.ctx, ast.Store)
        and node.id in FILLER_NAMES
        and node not in in_comprehensions
        for node in ast.walk(tree)
    )


def test_filler_names_do_not_come_back() -> None:
    assert filler_names("def f(own):\n    found = [each for each in own]\n    for held in found: pass") == 3
    assert sum(filler_names((SOURCE / file).read_text()) for file in FILES) <= MAX_FILLER_NAMES


def test_what_the_steward_sees_reaches_no_release() -> None:
    readers = {
        file
        for file in FILES
        for target in imported_modules(ast.parse((SOURCE / file).read_text()), module_name(file))
        if target.split(".")[0] == "steward"
    }
    assert {file for file in readers if not {file.parts[0], file.as_posix()} & set(MAY_IMPORT_STEWARD)} == set()


def test_only_the_privacy_folder_draws_noise() -> None:
    assert not faults_of(OUTSIDE, noise_faults)


def test_the_privacy_folder_is_what_the_rules_are_about() -> None:
    """The same checker finds the samplers and the counts where they belong."""
    noise = noise_faults((SOURCE / "privacy/noise/source.py").read_text(), "privacy/noise/source.py")
    for fault in ("draws discrete_gaussian", "draws exponential_choice"):
        assert any(fault in each for each in noise)
    counts = noise_faults((SOURCE / "privacy/mechanisms/counts.py").read_text(), "privacy/mechanisms/counts.py")
    for fault in ("takes _exact_counts", "uses a ledger's noise"):
        assert any(fault in each for each in counts)


def test_raw_rows_are_read_in_few_places() -> None:
    """Beside `privacy/`, `tables/` and `steward/`: what these then do with rows is for the rules above and
    `test_opaque.py`."""
    readers = [file for file in FILES if file.parts[0] not in ("privacy", "tables", "steward")]
    found = {file.as_posix() for file in readers if raw_reads((SOURCE / file).read_text())}
    assert found == set(MAY_READ_ROWS)


def test_the_rule_about_raw_rows_can_fail() -> None:
    assert raw_reads("from understudy.tables import conform, open_table") == ["open_table"]
    assert raw_reads("from understudy.tables.reading import read_table") == ["read_table"]
    assert raw_reads("from understudy import tables\nx = tables.read_table(p)") == ["read_table"]
    assert not raw_reads("from understudy.tables import conform")


def test_opendp_is_for_tests_alone() -> None:
    """It is a development dependency: no file of the package, inside `privacy/` or outside, may need it."""
    for file in FILES:
        assert not [each for each in noise_faults((SOURCE / file).read_text(), file.as_posix()) if "opendp" in each]


@pytest.mark.parametrize(
    ("source", "fault"),
    [
        ("import numpy as np\nx = counts + np.random.default_rng().normal(size=3)", "draws normal"),
        ("import jax\nx = jax.random.gumbel(key, (3,))", "draws gumbel"),
        ("from jax.random import laplace", "draws laplace"),
        ("x = ledger.noise.discrete_gaussian(1.0, (3,))", "draws discrete_gaussian"),
        ("from understudy.privacy.noise.samplers import exponential_choice", "draws exponential_choice"),
        ("def f(rows): return rows._codes.sum()", "takes _codes"),
        ("def f(rows): return rows._exact_counts(('a',))", "takes _exact_counts"),
        ("x = getattr(rows, '_exact_counts')(('a',))", "takes _exact_counts by name"),
        ("noise = ledger.noise", "uses a ledger's noise"),
        ("def f():\n    import opendp.prelude as dp", "imports opendp"),
        ("from opendp import measurements", "imports opendp"),
        ("import pickle", "imports pickle"),
        ("np.load(path, allow_pickle=True)", "imports pickle"),
        ("from torch import nn", "imports torch"),
    ],
)
def test_the_noise_rule_can_fail(source: str, fault: str) -> None:
    faults = noise_faults(source, "synthesizers/bad.py")
    assert any(each.endswith(fault) for each in faults), faults


def test_no_private_table_is_compared_or_measured() -> None:
    assert not faults_of([file for file in FILES if file.parts[0] not in NOT_PRIVATE], exact_faults)


def test_every_exception_is_needed() -> None:
    """What stands in the list and is used no more would hide the next use."""
    used = {(file.as_posix(), function) for file in FILES for function, _, _ in exact_uses((SOURCE / file).read_text())}
    assert set(ALLOWED_EXACT) <= used


@pytest.mark.parametrize(
    ("source", "fact"),
    [
        ("def fit(table, public):\n    if public.equals(table): raise ConfigError", ".equals"),
        ("def fit_codec(table, ledger): return noisy_size(table.num_rows, ledger)", ".num_rows"),
        ("def f(rows): return rows.column('x').null_count > 0", ".null_count"),
        ("def f(table, other): return table == other", "=="),
        ("def f(other, table): return other != table", "=="),
        ("def f(table): return len(table)", "len"),
        ("def f(table): return getattr(table, 'num_rows')", ".num_rows"),
        ("class Codec:\n    def fit(self, table): return table.num_rows", ".num_rows"),
    ],
)
def test_the_rule_against_comparisons_can_fail(source: str, fact: str) -> None:
    assert any(f"reads {fact} of a table" in fault for fault in exact_faults(source, "encoding.py"))


def test_the_rule_against_comparisons_lets_public_sizes_be() -> None:
    source = "x = rows.domain.num_rows + codec.num_rows\nself.num_rows = num_rows\nassert len(names) == 2"
    assert not exact_faults(source, "marginals.py")


def test_the_noise_rule_lets_samplers_be() -> None:
    source = "key = ledger.noise.key()\nx = np.random.default_rng(0).random(3)\nnoise = 3.0\nLedger(g, noise=noise)"
    source += "\nif self.noise == 'laplace': pass"
    assert not noise_faults(source, "marginals.py")


@pytest.mark.parametrize(
    ("source", "module"),
    [
        ("from understudy.api import fit", "synthesizers.mst"),
        ("def f():\n    from understudy.encoding import Codec", "privacy.ledger"),
        ("from understudy import cli", "release"),
        ("import understudy.training.gan", "privacy.noise"),
        ("from ..api import fit", "synthesizers.mst"),
        ("from understudy.synthesizers import mst", "evaluation.scores"),
        ("from understudy.unheard_of import f", "release"),
    ],
)
def test_the_import_rule_can_fail(source: str, module: str) -> None:
    assert import_faults(source, module)


@pytest.mark.parametrize(
    ("source", "module"),
    [
        ("from understudy.privacy.accounting.ledger import Query", "synthesizers.mst"),
        ("from understudy.synthesizers.mst import MST", "synthesizers.boosted"),
        ("import numpy\nfrom understudy import certificate", "release"),
        ("from understudy.privacy import accounting", "privacy.ledger"),
    ],
)
def test_the_import_rule_lets_the_pipeline_be(source: str, module: str) -> None:
    assert not import_faults(source, module)
