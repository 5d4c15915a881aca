"""What `privacy/` offers to the rest of the package: one list of names, and nothing else may be imported from it.

A name is on the list because it charges what it queries, because it spends what was charged before, because it is the
type of such a thing, or because it has no private rows. Objects that were charged are made in `privacy/` alone, and
ledgers only where a run starts: so no other folder can ask a query that was not charged.

These are rules about names in the source, against mistakes; code that hides what it does needs a reader. What they
cannot see: functions handed to `privacy/` (codecs, losses, layouts) must be pure, and a draw that adds noise to an
answer looks like one that samples.
"""

import ast
import dataclasses
from collections.abc import Iterator
from pathlib import Path

import pytest

import understudy
from tests.privacy.test_opaque import annotation_nodes, last_name, opaque_faults
from understudy.privacy.rows.table import PrivateTable
from understudy.run.sources import TableToFit
from understudy.schema import Schema
from understudy.tables import Origin, SourceId

SOURCE = Path(understudy.__file__).parent
PRIVACY = sorted((SOURCE / "privacy").rglob("*.py"))
OUTSIDE = sorted(file for path in SOURCE.rglob("*.py") if (file := path.relative_to(SOURCE)).parts[0] != "privacy")

# ------------------------------------------------------------------------------------------------------------- the list

CHARGES = {
    "charge_zcdp",
    "charge_dpsgd",
    "charge_langevin",
    "charge_marginals",
    "charge_votes",
    "discover_bounds",
    "discover_categories",
    "discover_histograms",
    "noisy_answers",
    "noisy_block_counts",
    "noisy_class_sums",
    "noisy_closest",
    "noisy_counts",
    "noisy_degree_tails",
    "noisy_degrees",
    "noisy_dependence_selections",
    "noisy_function_selections",
    "noisy_gram",
    "noisy_minimisers",
    "noisy_moments",
    "noisy_rows_per_unit",
    "noisy_score_selections",
    "noisy_selections",
    "noisy_size",
    "noisy_tail_counts",
}
"""Charge the ledger, then query, or return the object that may."""

SPENDS = {"noisy_gradient", "noisy_langevin_step", "noisy_votes", "sample_batches", "teacher_step"}
"""Query what was charged before, by the function that made their first argument."""

HANDLES = {
    "Batches",
    "ChargedSteps",
    "ChargedUpdates",
    "ChargedVotes",
    "DependenceSelector",
    "GaussianFilter",
    "Ledger",
    "MarginalSelector",
    "PrivateGraph",
    "PrivateRows",
    "PrivateScores",
    "PrivateTable",
    "SparkBatches",
    "Scratch",
    "Teachers",
}
"""Types of private rows, of what was charged for them, and of what charges: for annotations and `isinstance` only."""

MADE_IN = {
    "Ledger": {"run/run.py"},  # where every run starts
    "PrivateScores": {"synthesizers/boosted/external.py"},  # where private scores are read
    "PrivateTable": {"run/sources.py"},  # where private tables are read
    "SparkBatches": {"run/sources.py"},
}
"""Where a handle may be constructed nevertheless."""

ONE_PLACE = {
    "convert_columns": {"encoding/fit.py"},
    "convert_rows": {"encoding/fit.py"},
    "encode_rows": {"encoding/fit.py"},
    "in_one_pass": {"encoding/fit.py"},  # charges by the queries that it is given
    "hold_out": {"steward/split.py"},  # its rows go to a file of the steward
    "keep_rows": {"encoding/fit.py"},
    "limit_units": {"encoding/fit.py"},
    "open_scratch": {"api.py"},
    "reserve_scratch": {"encoding/fit.py"},
    "noise_source": {"run/run.py"},
    "read_graph": {"graphs/fit.py"},
    "split_units": {"steward/split.py"},
    "partition_rows": {"synthesizers/quail.py", "synthesizers/selected/method.py"},
    "rows_within_units": {"steward/preview.py"},  # for the steward only
    "table_digest": {"run/run.py"},
}
"""Functions that take private rows or make noise without a charge, whose result is opaque or no part of a release, and
the files that may import them."""

MAY_START = {
    "open_run": {"api.py", "graphs/fit.py", "learners/sklearn.py", "synthesizers/boosted/external.py"},
    "encode_table": {"api.py", "learners/sklearn.py"},
    "PrivateRun": {"api.py"},
    "EncodedTable": {"api.py"},
}
"""What opens a ledger, which queries of any kind can then be charged to; and the clients that may import it."""

PARTITIONED_IN = {"synthesizers/quail.py", "synthesizers/run.py", "synthesizers/selected/method.py"}
"""Where a query may be given a partition: a wrong one would be charged less than it costs."""

PUBLIC = {
    "accountants": {"Spent", "grid_for", "has_losses", "rdp_epsilon", "spent", "tail_delta"},
    "budget": {"renyi_epsilon"},
    "charges": {"UnitCounts", "event_of"},
    "clipping": {"Clip", "MIN_CLIP", "MAX_CLIP", "RowLoss", "clip_from_public", "noisy_group_norms"},
    "dependence": {"Dependence"},
    "discovery": {
        "Binning",
        "SPLIT_AT",
        "charged_levels",
        "largest_counts",
        "plan_discovery",
        "rounded",
        "rows_to_be_listed",
    },
    "dpsgd": {"FakesFn", "PublicSteps", "public_clipped_gradient", "public_gradient"},
    "events": {
        "DiscreteGaussian",
        "DiscreteLaplace",
        "Event",
        "Gaussian",
        "LaplaceCounts",
        "LaplaceMarginals",
        "Pure",
        "Selections",
        "SubsampledGaussian",
        "UnitHistogram",
        "ZCDP",
        "event_from_json",
    },
    "graph": {"GraphUnit", "TAILS_SENSITIVITY", "block_pairs"},
    "langevin": {"Chain", "Dynamics", "Law", "SCHEDULES", "Stage", "StepParameters"}
    | {"langevin_step", "stages", "step_parameters", "zero_momentum"},
    "ledger": {
        "Budget",
        "Guarantee",
        "MAX_EPSILON",
        "Plan",
        "PublicFacts",
        "Query",
        "Statement",
        "Strength",
        "partitions",
        "spent_by",
    },
    "marginal_noise": {"ExpectedNoise", "MeasuredMarginal"},
    "moments": {"Moments", "block_weights", "check_rows", "class_blocks"},
    "source": {"fresh_key"},
    "objective": {"MAX_INPUTS"},
    "pate": {"AGAINST", "Teaching", "init_teachers", "vote_stddev"},
    "release_costs": {"Cost", "ReleaseFilter"},
    "rows": {"Box", "Clique", "PublicRows", "PublicUnits", "RowEncoder", "partition_sizes"},
    "rows_per_unit": {"num_bins", "plan_rows_per_unit", "to_probabilities"},
    "poisson": {"num_slots", "round_sampling_rate"},
    "scoring": {"RowScore", "trace_scores", "unit_scores"},
    "sums": {"MAX_NOISE"},
    "selection": {"Candidates", "RowFunctions", "check_num_rows"},
    "statement": {"BookEntry", "KeptIn", "round_up"},
    "table": {"PublicTable"},
    "tradeoff": {"statement_tradeoff"},
}
"""By module: settings, public facts and tables, plans, and functions of these alone."""

LISTED = CHARGES | SPENDS | HANDLES | set(ONE_PLACE) | {name for names in PUBLIC.values() for name in names}

ROOMS = {"understudy.privacy"} | {f"understudy.privacy.{path.name}" for path in (SOURCE / "privacy").iterdir()}
"""The folder and those in it: packages of files, and nothing of their own."""

# ------------------------------------------------------------------------------------------------------------ the rules


def surface_faults(source: str, file: str) -> list[str]:
    """Where a file outside `privacy/` imports what is not on the list, or makes what only `privacy/` may make."""
    tree = ast.parse(source)
    harmless = annotation_nodes(tree) | _type_checks(tree)
    return [
        f"{file}:{getattr(node, 'lineno', 0)}: {rule}"
        for node in ast.walk(tree)
        if node not in harmless
        for rule in _rules_broken(node, file)
    ]


def _rules_broken(node: ast.AST, file: str) -> Iterator[str]:
    match node:
        case ast.Import(names=names):
            yield from (f"imports the module {each.name}" for each in names if _is_privacy(each.name))
        case ast.ImportFrom(level=level) if level:
            yield "imports by a relative name"
        case ast.ImportFrom(module="understudy", names=names):
            yield from ("imports the module privacy" for each in names if each.name == "privacy")
        case ast.ImportFrom(module=str(module), names=names) if module in ROOMS:
            yield from (f"imports the module {each.name}" for each in names)
        case ast.ImportFrom(module=str(module), names=names) if module.startswith("understudy.run"):
            for each in names:
                allowed = MAY_START.get(each.name) or ONE_PLACE.get(each.name)
                if allowed is not None and not file.startswith("run/") and file not in allowed:
                    yield f"imports {each.name}"
        case ast.ImportFrom(module=str(module), names=names) if _is_privacy(module):
            for each in names:
                if each.name not in LISTED or file not in ONE_PLACE.get(each.name, {file}):
                    yield f"imports {each.name}"
                elif each.asname not in (None, each.name):
                    yield f"renames {each.name}"
        case ast.Name() | ast.Attribute() if last_name(node) in HANDLES:
            if file not in MADE_IN.get(last_name(node), ()):
                yield f"uses {last_name(node)} as a value"
        case ast.Constant(value=str(text)) if text.startswith("understudy.privacy"):
            yield f"names the module {text}"
        case ast.Call(func=func, args=args, keywords=keywords):
            if any(word.arg == "partition" for word in keywords) and file not in PARTITIONED_IN:
                yield "gives a query a partition"
            if last_name(func) in ("convert_columns", "convert_rows", "encode_rows", "keep_rows"):
                passed = [inner for each in (*args, *keywords) for inner in ast.walk(each)]
                yield from ("hands in a lambda" for each in passed if isinstance(each, ast.Lambda))
            if last_name(func) in ("default_rng", "RandomState") and not (args or keywords):
                yield "draws without a key"


def _is_privacy(module: str) -> bool:
    return module == "understudy.privacy" or module.startswith("understudy.privacy.")


def _type_checks(tree: ast.AST) -> set[ast.AST]:
    """The types in calls of `isinstance`, and unions of types at the top of a file."""
    types: list[ast.AST] = []
    for node in ast.walk(tree):
        match node:
            case ast.Call(func=ast.Name(id="isinstance"), args=[_, kinds]):
                types.append(kinds)
            case ast.Module(body=body):
                types += [each.value for each in body if isinstance(each, ast.Assign) and _is_union(each.value)]
    return {inner for each in types for inner in ast.walk(each) if isinstance(inner, ast.Name | ast.BinOp | ast.Tuple)}


def _is_union(node: ast.AST) -> bool:
    return isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitOr)


# ---------------------------------------------------------------------------------------------------------------- tests


def test_other_folders_import_only_what_is_listed() -> None:
    assert not [fault for file in OUTSIDE for fault in surface_faults((SOURCE / file).read_text(), file.as_posix())]


def test_the_list_has_nothing_that_is_not_used() -> None:
    used = {
        (node.module.rpartition(".")[2], each.name)
        for file in OUTSIDE
        for node in ast.walk(ast.parse((SOURCE / file).read_text()))
        if isinstance(node, ast.ImportFrom) and node.module and _is_privacy(node.module)
        for each in node.names
    }
    assert {name for _, name in used} == LISTED
    assert {(module, name) for module, names in PUBLIC.items() for name in names} <= used


def definitions() -> dict[str, ast.FunctionDef | ast.ClassDef]:
    """Functions and classes of `privacy/`, by name; underscore names of two files may be the same."""
    parts = [node for file in PRIVACY for node in ast.parse(file.read_text()).body]
    return {node.name: node for node in parts if isinstance(node, ast.FunctionDef | ast.ClassDef)}


DEFINED = definitions()


def charges(name: str) -> bool:
    """Whether a function, or the constructor of a class, or what it calls of `privacy/`, charges a ledger."""
    for node in ast.walk(DEFINED[name]):
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "ledger.charge":
            return True
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "_charged_stddevs":
            return charges(node.func.id)
    return False


def test_what_is_listed_as_charging_does() -> None:
    assert CHARGES
    assert not [name for name in CHARGES if not charges(name)]


def takes_what_was_charged(name: str) -> bool:
    """Whether the first argument of a function is a handle that only a charge gives."""
    function = DEFINED[name]
    assert isinstance(function, ast.FunctionDef)
    first = function.args.args[0].annotation
    assert first is not None
    return bool({node.id for node in ast.walk(first) if isinstance(node, ast.Name)} & HANDLES)


def test_what_is_listed_as_spending_takes_what_was_charged() -> None:
    assert SPENDS
    assert not [name for name in SPENDS if not takes_what_was_charged(name)]


def test_what_is_listed_as_public_takes_no_private_rows() -> None:
    names = {name for listed in PUBLIC.values() for name in listed} & set(DEFINED)
    assert len(names) > 80
    taken = {
        name: {node.id for node in annotation_nodes(DEFINED[name]) if isinstance(node, ast.Name)} for name in names
    }
    private = HANDLES - {"Batches", "Teachers"}  # batches of public rows too; teachers not yet taught
    assert not {name: types & private for name, types in taken.items() if types & private}


def test_no_function_that_queries_without_a_charge_is_listed() -> None:
    """Functions for callers that have charged, which stay inside."""
    unlisted = {"count_with_noise", "select_candidates", "arrange_units", "FunctionSelector", "PrivateUnits"}
    assert unlisted <= set(DEFINED)
    assert not unlisted & LISTED


def test_a_table_to_fit_holds_only_public_facts_beside_the_opaque_table() -> None:
    """In particular not the frame that was given."""
    kinds = {field.name: field.type for field in dataclasses.fields(TableToFit)}
    assert kinds == {
        "table": PrivateTable,
        "schema": Schema,
        "origin": Origin,
        "keep_types": bool,
        "source": SourceId,
        "held_out": float,  # the fraction that the caller names
    }


OFFENCES = {
    "a bundle of answers without a charge": (
        "from understudy.privacy.mechanisms.counts import ChargedAnswers\n"
        "def fit(run): return ChargedAnswers(run.rows, 1e-9, 10**9, run.ledger)(('a',))",
        "imports ChargedAnswers",
    ),
    "a count without a charge": (
        "from understudy.privacy.mechanisms.counts import count_with_noise\n"
        "def fit(run): return count_with_noise(run.rows, ('a',), 1e-9, run.ledger)",
        "imports count_with_noise",
    ),
    "a selection without a charge": (
        "from understudy.privacy.mechanisms.selection import select_candidates\n"
        "def fit(run, c): return select_candidates(run.rows, c, 1e9, run.ledger)",
        "imports select_candidates",
    ),
    "a selector without a charge": (
        "from understudy.privacy.mechanisms.dependence import DependenceSelector\n"
        "def fit(run, event): return DependenceSelector(run.rows, event, run.ledger)",
        "uses DependenceSelector as a value",
    ),
    "a selector of marginals without a charge": (
        "from understudy.privacy.mechanisms.selection import MarginalSelector\n"
        "def fit(run): return MarginalSelector(run.rows, 1e9, 10, run.ledger)",
        "uses MarginalSelector as a value",
    ),
    "a selector of functions without a charge": (
        "from understudy.privacy.mechanisms.selection import FunctionSelector\n"
        "def fit(run, sums, event): return FunctionSelector(sums, event, run.rows, run.ledger)",
        "imports FunctionSelector",
    ),
    "a filter without a charge": (
        "from understudy.privacy.mechanisms.filters import GaussianFilter\n"
        "def fit(run, event): return GaussianFilter(run.rows, event, run.ledger).noisy_counts([('a',)], [1e-6])",
        "uses GaussianFilter as a value",
    ),
    "training steps without a charge": (
        "from understudy.privacy.rows.rows import arrange_units\n"
        "from understudy.privacy.gradients.dpsgd import ChargedSteps\n"
        "def fit(run, codes): return ChargedSteps(arrange_units(run.rows, codes), 0.0, 1.0, 10**9)",
        "imports arrange_units",
    ),
    "a handle under another name": (
        "from understudy.privacy.gradients.dpsgd import ChargedSteps as Steps\nx = Steps(units, 0.0, 1.0, 10**9)",
        "renames ChargedSteps",
    ),
    "a handle behind another name": (
        "from understudy.privacy.gradients.dpsgd import ChargedSteps\n"
        "Make = ChargedSteps\nx = Make(units, 0.0, 1.0, 10**9)",
        "uses ChargedSteps as a value",
    ),
    "a function outside a class that calls its argument self": (
        "def peek(self): return self._table\ndef fit(table): return peek(table)",
        "takes _table",
    ),
    "the dictionary of an object": ("def fit(run): return run.rows.__dict__['_cod' + 'es']", "takes __dict__"),
    "vars": ("def fit(run): return list(vars(run.rows).values())", "opens rows"),
    "a computed name": ("def fit(run): return getattr(run.rows, '_cod' + 'es')", "opens rows"),
    "an annotated argument": ("def fit(mine: PrivateRows | None): return vars(mine)", "opens mine"),
    "leaves": ("import jax\ndef f(charged): return jax.tree.leaves(charged)", "opens charged"),
    "leaves in a tuple": ("import jax\ndef f(charged, x): return jax.tree.leaves((x, charged))", "opens charged"),
    "leaves by the old name": ("import jax\ndef f(steps): return jax.tree_util.tree_leaves(steps)", "opens steps"),
    "a filter of leaves": (
        "import equinox as eqx\ndef f(charged): return eqx.filter(charged, eqx.is_array)",
        "opens charged",
    ),
    "a pattern": (
        "def f(rows):\n    match rows:\n        case PrivateRows(_codes=c): return c",
        "matches PrivateRows",
    ),
    "a pattern of any class": ("def f(x):\n    match x:\n        case object(_codes=c): return c", "takes _codes"),
    "a charged object that is changed": ("def f(answers): answers.left = 10**9", "sets left"),
    "a function that keeps what it sees": (
        "from understudy.privacy.rows.table import convert_columns\n"
        "seen = []\ndef fit(table): convert_columns(table, {'age': lambda c: seen.append(c) or c})",
        "hands in a lambda",
    ),
    "a conversion of columns elsewhere": (
        "from understudy.privacy.rows.table import convert_columns\nx = convert_columns(table, {'age': keep})",
        "imports convert_columns",
    ),
    "a digest with a known key": (
        "from understudy.privacy.rows.table import table_digest\ndef note(table): return table_digest(table, b'known')",
        "imports table_digest",
    ),
    "a draw without a key": (
        "import numpy as np\ndef f(x): return x + np.random.default_rng().uniform()",
        "draws without a key",
    ),
    "a ledger of one's own": (
        "from understudy.privacy.accounting.ledger import Ledger\n"
        "def fit(run): return Ledger(run.ledger.guarantee, noise=run.ledger.noise.key)",
        "uses Ledger as a value",
    ),
    "a ledger by another way": (
        "import understudy as us\ndef fit(run): return us.Ledger(run.ledger.guarantee, noise=0)",
        "uses Ledger as a value",
    ),
    "a ledger without noise": (
        "from understudy.privacy.accounting.ledger import Ledger, Guarantee\n"
        "from understudy.privacy.noise.source import SeededNoise\n"
        "from understudy.privacy.mechanisms.counts import noisy_counts\n"
        "own = Ledger(Guarantee.not_private(), noise=SeededNoise(0))\n"
        "def fit(run): return noisy_counts(run.rows, [('a',)], run.plan['marginals'], own)",
        "uses Ledger as a value",
    ),
    "a run of its own": ("from understudy.run.run import open_run", "imports open_run"),
    "a source of noise that another module imported": (
        "from understudy.run.run import noise_source",
        "imports noise_source",
    ),
    "a source of noise": ("from understudy.privacy.noise.source import SeededNoise", "imports SeededNoise"),
    "a query with a partition": (
        "import dataclasses\n"
        "def f(run): return noisy_counts(run.rows, [], dataclasses.replace(run.plan['m'], partition='b'), run.ledger)",
        "gives a query a partition",
    ),
    "a module": (
        "import understudy.privacy.mechanisms.moments as m\nf = m.__dict__['exact_' + 'examples']",
        "imports the module understudy.privacy.mechanisms.moments",
    ),
    "a module of the package": ("from understudy.privacy import counts", "imports the module counts"),
    "the package": ("from understudy import privacy", "imports the module privacy"),
    "a module by its text": (
        "import importlib\nm = importlib.import_module('understudy.privacy.mechanisms.counts')",
        "names the module understudy.privacy.mechanisms.counts",
    ),
}
"""Source that must be rejected, and the rule that it breaks. The frame that was given, which no object holds any more,
is a matter of types: `test_types.py`."""


@pytest.mark.parametrize(("source", "rule"), OFFENCES.values(), ids=list(OFFENCES))
def test_the_rules_can_fail(source: str, rule: str) -> None:
    file = "synthesizers/bad.py"
    faults = surface_faults(source, file) + opaque_faults(source, file)
    assert any(each.endswith(f": {rule}") for each in faults), faults


def test_the_rules_let_methods_be() -> None:
    source = (
        "from understudy.privacy.mechanisms.filters import GaussianFilter, charge_marginals\n"
        "from understudy.privacy.accounting.ledger import Ledger\n"
        "def fit(rows: 'PrivateRows', ledger: Ledger) -> GaussianFilter:\n"
        "    answers = charge_marginals(rows, query, ledger)\n"
        "    assert isinstance(answers, GaussianFilter)\n"
        "    moving, rest = eqx.partition(network, eqx.is_inexact_array)\n"
        "    name, _, rest = text.partition('=')\n"
        "    return answers\n"
    )
    assert not surface_faults(source, "synthesizers/good.py") + opaque_faults(source, "synthesizers/good.py")
