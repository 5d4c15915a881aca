"""Clients of the core import what users import, `run/` and the seam of `training/`, all else by name, with a reason.

The lists are there to shrink: make a name public, or move the code that needs it.
"""

import ast
from pathlib import Path

import pytest

import understudy

SOURCE = Path(understudy.__file__).parent

FACES = ("_version", "errors", "run", "training.calls")
"""Open to clients as a whole: the version and what to install, errors and their hints, the run, and the one place where
calls of a fit may be computed elsewhere."""

ALLOWED: dict[str, dict[str, str]] = {
    "benchmark": {
        "evaluation": "scores of `evaluate`, computed once for many cells",
        "report": "numbers, lists and figures as every report writes them",
        "registry: AUTO DEFAULT LEARNERS REVISIONS SYNTHESIZERS": "names of methods, without loading one",
        "synthesizers: read_method": "a method of a suite, before its first cell",
        "tables: conform read_table": "public tables",
        "certificate: escape_markdown": "names in reports",
        "schema: read_settings": "suites are TOML files",
        "schema: SchemaSource as_schema": "what `fit` takes as a schema, read once for many fits",
        "progress: Progress": "the type of a callback",
        "to_json": "the certificate of a cell, without its release",
    },
    "audit": {
        "registry: AUTO DEFAULT REVISIONS": "which recorded audits are of this version",
        "synthesizers: express name_of read_method": "the method that is audited, in full",
        "progress: ShowProgress open_progress": "a bar over runs",
        "audits: Audit": "what an audit found, as certificates show it",
        "release: check_seed check_size": "a seed or a number of jobs is refused before thousands of runs",
        "tables: write_table": "the pair of made tables as files",
    },
    "graphs": {
        "accounting: Budget Gaussian LaplaceCounts PublicFacts Query": "plans and statements of another kind",
        "graph": "the private queries of a graph",
        "source: fresh_key": "the seed of a sample that is given none",
        "privacy: PrivateTable": "the edges, as `run/` opens them",
        "release: AnyRelease GRAPH_FORMAT check_seed is_graph_release": "what releases of both kinds share",
        "book: ProposedRun": "what a run would take of a budget",
        "evaluation: WARNING": "the first line of all figures about real data",
        "steward: Finding": "what `check` finds",
        "rules: check_keys read_text to_toml": "forms that read and write a schema",
        "schema: names_files parse_toml without_content": "forms that read a schema",
        "notes: Note count_of": "what a caller should know, and numbers in words",
        "progress: ShowProgress": "the type of a callback",
        "summary": "how a result is shown",
        "tables: Frame attach_label read_table source_id": "edges and nodes, and the edges of a synthetic graph",
    },
    "studio": {
        "api: make_plan": "plans without a run",
        "book: percent propose_run": "what a run would take of a budget",
        "certificate: plan_statement public_facts round_up standalone_epsilon statement_meaning": "a plan in words",
        "privacy: spent_by ExpectedNoise": "figures of a plan",
        "progress: PROGRESS_FILE": "where a command that it started reports",
        "release: RELEASE_FILES": "which folders are releases",
        "rules: Keep Rule check_keys read_text rule_from_dict to_toml to_toml_key": "forms that write rules",
        "schema: BOUNDED KINDS check_keys names_files parse_toml read_column without_content": "forms of schemas",
        "synthesizers: AUTO describe_methods name_of read_method": "the list of methods",
        "tables: Origin draft_table table_stem": "the table that was opened",
    },
}
"""By client: a module or folder, or some names of it, and why."""


def imported_names(client: str) -> set[tuple[str, str]]:
    """(module, name) of all that a client imports from elsewhere in the package."""
    found = set()
    for file in (SOURCE / client).rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom):
                found |= {(node.module or "", each.name) for each in node.names}
            elif isinstance(node, ast.Import):
                found |= {(each.name, "") for each in node.names}
    found = {(module.removeprefix("understudy").lstrip("."), name) for module, name in found if _is_ours(module)}
    return {(module, name) for module, name in found if f"{module}.".split(".")[0] != client}


def _is_ours(module: str) -> bool:
    return module.split(".")[0] == "understudy"


def covers(entry: str, module: str, name: str) -> bool:
    """Whether an entry of a list is about this import, wherever its module stands."""
    where, _, names = entry.partition(": ")
    if names:
        return name in names.split()
    return name == where or where in [*module.split("."), name]


@pytest.mark.parametrize("client", ALLOWED)
def test_a_client_imports_public_names(client: str) -> None:
    public, unexplained, used = set(understudy.__all__), [], set()
    for module, name in sorted(imported_names(client)):
        if name in public or any(f"{module}.{name}.".startswith(f"{face}.") for face in FACES):
            continue
        entries = {entry for entry in ALLOWED[client] if covers(entry, module, name)}
        used |= entries
        if not entries:
            unexplained.append(f"{module}: {name}")
    assert not unexplained, f"{client}/ imports names that are not public: {', '.join(unexplained)}"
    assert not ALLOWED[client].keys() - used, "entries that nothing needs"


def test_an_entry_covers_only_what_it_names() -> None:
    assert covers("tables: conform read_table", "tables", "conform")
    assert not covers("tables: conform read_table", "tables", "open_table")
    assert covers("evaluation", "evaluation.scores", "Score")
    assert not covers("evaluation", "schema", "Schema")
