"""Clients of the core import what users import, `run/` and the seam of `training/`, all else by name, with a reason.

The lists are there to shrink: make a name public, or move the code that needs it.
"""

import ast
from pathlib import Path

import pytest

import understudy

SOURCE = Path(understudy.__file__).parent

FACES = (
    "_version",
    "errors",
    "notes",
    "progress",
    "summary",
    "synthesizers.registry",
    "run",
    "training.calls",
)
"""Open to clients as a whole: the files at the top of the package, which every folder uses; the names of the methods;
the run; and the one place where calls of a fit may be computed elsewhere."""

ALLOWED: dict[str, dict[str, str]] = {
    "benchmark": {
        "evaluation": "scores of `evaluate`, computed once for many cells",
        "report": "numbers, lists and figures as every report writes them",
        "certificate: escape_markdown to_json": "names in reports; the certificate of a cell, without its release",
        "schema: SchemaSource as_schema read_settings": "a schema, read once for many fits; suites are TOML files",
        "tables: conform read_table": "public tables",
    },
    "audit": {
        "certificate: Audit": "what an audit found, as certificates show it",
        "release: check_seed check_size": "a seed or a number of jobs is refused before thousands of runs",
        "tables: write_table": "the pair of made tables as files",
    },
    "graphs": {
        "privacy: Budget Gaussian GraphUnit LaplaceCounts PrivateGraph PrivateTable PublicFacts Query "
        "TAILS_SENSITIVITY block_pairs fresh_key noisy_block_counts noisy_degree_tails noisy_degrees noisy_tail_counts "
        "read_graph": (
            "the mechanism of a graph, which charges and draws noise, and plans and statements of another kind"
        ),
        "release: AnyRelease GRAPH_FORMAT check_seed is_graph_release": "what releases of both kinds share",
        "institution: ProposedRun": "what a run would take of a budget",
        "evaluation: WARNING": "the first line of all figures about real data",
        "steward: Finding": "what `check` finds",
        "rules: check_keys read_text to_toml": "forms that read and write a schema",
        "schema: names_files parse_toml without_content": "forms that read a schema",
        "tables: Frame attach_label read_table source_id": "edges and nodes, and the edges of a synthetic graph",
    },
    "studio": {
        "api: make_plan": "a plan whose warnings are shown, not raised",
        "certificate: plan_statement public_facts round_up standalone_epsilon statement_meaning": "a plan in words",
        "institution: percent propose_run": "what a run would take of a budget",
        "privacy: ExpectedNoise spent_by": "figures of a plan",
        "release: RELEASE_FILES": "the files of a release to download",
        "rules: Keep Rule rule_from_dict to_toml to_toml_key": "forms that write rules",
        "schema: BOUNDED KINDS read_column": "forms of schemas",
        "tables: Origin draft_table table_stem": "the table that was opened",
    },
}
"""By client: a folder, or some names of it, and why. One entry for each folder."""


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
    """Whether an entry of a list is about this import."""
    folder, _, names = entry.partition(": ")
    return folder == module.split(".")[0] and (not names or name in names.split())


@pytest.mark.parametrize("client", ALLOWED)
def test_a_client_imports_public_names(client: str) -> None:
    public, unexplained, used = set(understudy.__all__), [], set()
    for module, name in sorted(imported_names(client)):
        if name in public or any(f"{module}.{name}.".startswith(f"{face}.") for face in FACES):
            continue
        entries = [entry for entry in ALLOWED[client] if covers(entry, module, name)]
        used |= {(entry, name if ": " in entry else "") for entry in entries}
        if not entries:
            unexplained.append(f"{module}: {name}")
    assert not unexplained, f"{client}/ imports names that are not public: {', '.join(unexplained)}"
    assert not allowed_names(client) - used, "names that nothing needs"


def allowed_names(client: str) -> set[tuple[str, str]]:
    """(entry, name) of all names in the list of a client; no name for a whole folder."""
    return {(entry, name) for entry in ALLOWED[client] for name in entry.partition(": ")[2].split() or [""]}


def test_a_folder_has_one_entry() -> None:
    for entries in ALLOWED.values():
        folders = [entry.partition(":")[0] for entry in entries]
        assert len(folders) == len(set(folders))


def test_an_entry_covers_only_what_it_names() -> None:
    assert covers("tables: conform read_table", "tables.cast", "conform")
    assert not covers("tables: conform read_table", "tables", "open_table")
    assert covers("evaluation", "evaluation.scores", "Score")
    assert not covers("evaluation", "schema", "Schema")
