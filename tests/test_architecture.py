"""Two rules about the source: imports point one way, and only `privacy/` draws noise or sees exact counts."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import understudy

SOURCE = Path(understudy.__file__).parent

ORDER = (
    "_version",
    "errors",
    "files",
    "columns",
    "schema",
    "schema_formats",
    "schema_check",
    "tables.engine",
    "tables.origins",
    "tables.places",
    "tables.texts",
    "tables.casting",
    "tables.spelling",
    "tables.textfiles",
    "tables.jsonlines",
    "tables.arrowfiles",
    "tables.databases",
    "tables.reading",
    "tables.output",
    "tables.frames",
    "tables.conditions",
    "tables",
    "privacy.accounting",
    "privacy.device_noise",
    "privacy.sampling",
    "privacy.gradients",
    "privacy.langevin",
    "privacy.votes",
    "privacy.noise",
    "privacy.journal",
    "checkpoint",
    "privacy.ledger",
    "privacy.totals",
    "privacy.mechanisms",
    "privacy.statistics",
    "privacy.measurement",
    "privacy.objective",
    "privacy.selection",
    "privacy.discovery",
    "privacy.units",
    "encoding",
    "junction",
    "marginals",
    "networks",
    "features",
    "adversarial.losses",
    "adversarial.critics",
    "adversarial.training",
    "adversarial.chains",
    "adversarial.pate",
    "adversarial.autoencoder",
    "adversarial.measured",
    "adversarial.models",
    "adversarial.products",
    "adversarial.trajectory",
    "boosting",
    "adversarial.pools",
    "donors",
    "learners.inputs",
    "learners.models",
    "labelled",
    "learners.training",
    "learners.methods",
    "synthesizers",
    "certificate",
    "release",
    "learners.shells",
    "learners.estimators",
    "learners",
    "audit",
    "evaluation.scores",
    "evaluation.threads",
    "evaluation.judged",
    "evaluation.marginals",
    "evaluation.validity",
    "evaluation.pmse",
    "evaluation.geometry",
    "evaluation.tasks",
    "evaluation.learning",
    "evaluation.regression",
    "evaluation.groups",
    "evaluation.scorecard",
    "evaluation",
    "report.words",
    "report.charts",
    "report.markdown",
    "report.page",
    "report",
    "benchmark",
    "demo",
    "cli",
    "__main__",
)
"""A file imports only what stands above it; the package's own `__init__`, which loads its names late, is free."""

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
    "noisy_argmax",
}
"""Draws that could hide a statistic. Uniform and categorical draws, of which samplers are made, are not among them."""

PRIVATE_STATE = {
    "_codes",
    "_places",
    "_make_places",
    "_exact_counts",
    "_exact_grouped",
    "_exact_answer",
    "_cache",
    "_units",
    "_in_units",
}
"""What `Rows` holds."""

CODE_IN_DATA = {"pickle", "cPickle", "_pickle", "cloudpickle", "dill", "joblib", "marshal", "shelve"}

ALLOWED: dict[tuple[str, str], str] = {
    ("adversarial/training.py", "draws normal"): "latent vectors of a generator",
    ("adversarial/models.py", "draws normal"): "latent vectors of a generator",
    ("benchmark/simulators.py", "draws standard_normal"): "made tables: all of it is public",
    ("adversarial/measured.py", "draws normal"): "latent vectors of a generator",
    ("adversarial/autoencoder.py", "draws normal"): "latent vectors of a generator",
}
"""(file, rule) to the reason why it may: latent vectors of a generator, for example, hide no statistic."""


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
        elif there > here or (there == here and module in ORDER and target != module):
            faults.append(f"{module} imports {target}, which stands below it")
        elif module.startswith("evaluation") and target.startswith("synthesizers"):
            faults.append(f"{module} imports {target}: judging knows no method")
    return faults


# ---------------------------------------------------------------------------------------------------------------- noise


def noise_faults(source: str, file: str) -> list[str]:
    """What a file outside `privacy/` must not do, each as (line, rule) in words."""
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
            if not (isinstance(parent, ast.Attribute) and parent.attr in ("key", "seeded")):
                yield "uses a ledger's noise"
        case ast.Call(func=ast.Name(id="getattr"), args=[_, ast.Constant(value=str(name)), *_]):
            if name in FREE_DRAWS | PRIVATE_STATE | {"noise"}:
                yield f"takes {name} by name"
        case ast.keyword(arg="allow_pickle", value=ast.Constant(value=True)):
            yield "imports pickle"


# ---------------------------------------------------------------------------------------------------------------- tests


FILES = sorted(path.relative_to(SOURCE) for path in SOURCE.rglob("*.py"))
OUTSIDE = [file for file in FILES if file.parts[0] != "privacy"]


def module_name(file: Path) -> str:
    parts = file.with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


@pytest.mark.parametrize("file", [f for f in FILES if f != Path("__init__.py")], ids=str)
def test_imports_point_one_way(file: Path) -> None:
    name = module_name(file)
    if name == "privacy":
        assert not (SOURCE / file).read_text().strip()  # a package of files, and nothing of its own
        return
    assert place(name) is not None, f"{name} has no place in the order"
    assert not import_faults((SOURCE / file).read_text(), name)


@pytest.mark.parametrize("file", OUTSIDE, ids=str)
def test_only_the_privacy_folder_draws_noise(file: Path) -> None:
    assert not noise_faults((SOURCE / file).read_text(), file.as_posix())


def test_the_privacy_folder_is_what_the_rules_are_about() -> None:
    """The same checker finds the samplers and the counts where they belong."""
    noise = noise_faults((SOURCE / "privacy/noise.py").read_text(), "privacy/noise.py")
    assert any("imports opendp" in fault for fault in noise)
    assert any("draws gumbel" in fault for fault in noise)
    mechanisms = noise_faults((SOURCE / "privacy/mechanisms.py").read_text(), "privacy/mechanisms.py")
    for fault in ("takes _codes", "takes _exact_counts", "draws discrete_gaussian", "uses a ledger's noise"):
        assert any(fault in each for each in mechanisms)


@pytest.mark.parametrize(
    ("source", "fault"),
    [
        ("import numpy as np\nx = counts + np.random.default_rng().normal(size=3)", "draws normal"),
        ("import jax\nx = jax.random.gumbel(key, (3,))", "draws gumbel"),
        ("from jax.random import laplace", "draws laplace"),
        ("x = ledger.noise.discrete_gaussian(1.0, (3,))", "draws discrete_gaussian"),
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


def test_the_noise_rule_lets_samplers_be() -> None:
    source = "key = ledger.noise.key()\nx = np.random.default_rng(0).random(3)\nnoise = 3.0\nLedger(g, noise=noise)"
    assert not noise_faults(source, "marginals.py")


@pytest.mark.parametrize(
    ("source", "module"),
    [
        ("from understudy.release import fit", "synthesizers.mst"),
        ("def f():\n    from understudy.encoding import Codec", "privacy.ledger"),
        ("from understudy import cli", "release"),
        ("import understudy.privacy.discovery", "privacy.noise"),
        ("from ..release import fit", "synthesizers.mst"),
        ("from understudy.synthesizers import mst", "evaluation.scores"),
        ("from understudy.unheard_of import f", "release"),
    ],
)
def test_the_import_rule_can_fail(source: str, module: str) -> None:
    assert import_faults(source, module)


@pytest.mark.parametrize(
    ("source", "module"),
    [
        ("from understudy.privacy.ledger import Look", "synthesizers.mst"),
        ("from understudy.synthesizers.mst import MST", "synthesizers.boosted"),
        ("import numpy\nfrom understudy import certificate", "release"),
        ("from understudy.privacy import accounting", "privacy.ledger"),
    ],
)
def test_the_import_rule_lets_the_pipeline_be(source: str, module: str) -> None:
    assert not import_faults(source, module)
