"""From a private edge list to a release: `plan_graph` and `fit_graph`."""

import contextlib
import json
import math
import os
from collections.abc import Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
import pyarrow as pa
from jaxtyping import Int64

from understudy.errors import ConfigError, SchemaError, TableError, did_you_mean
from understudy.graphs.degrees import degrees_of_tails, make_graphical, restore_degrees
from understudy.graphs.release import GraphRelease, graph_facts
from understudy.graphs.schema import GraphSchema, GraphSchemaSource, as_graph_schema
from understudy.institution.book.book import BudgetBook
from understudy.institution.book.policy import Policy
from understudy.institution.book.proposal import ProposedRun
from understudy.notes import Note
from understudy.privacy.accounting.events import Gaussian, LaplaceCounts
from understudy.privacy.accounting.ledger import Budget, Guarantee, Ledger, Plan, Query
from understudy.privacy.mechanisms.graph import (
    TAILS_SENSITIVITY,
    GraphUnit,
    PrivateGraph,
    block_pairs,
    noisy_block_counts,
    noisy_degree_tails,
    noisy_degrees,
    noisy_tail_counts,
    read_graph,
)
from understudy.privacy.rows.table import PrivateTable
from understudy.progress import ShowProgress
from understudy.release import check_seed
from understudy.run.listener import Listener, open_listener
from understudy.run.plan import read_guarantee
from understudy.run.run import open_run
from understudy.run.sources import open_private_table
from understudy.tables import Frame, ReadOptions, read_table, source_id

if TYPE_CHECKING:
    import networkx

EdgeSource: TypeAlias = "Frame | networkx.Graph | str | os.PathLike[str]"
"""An edge list: a frame, or the path of a file or database table; or a NetworkX graph."""

MAX_TAILS = 1000
"""Degrees up to this one are counted; larger ones are known from the sorted degrees alone."""
COUNTS_FRACTION = 0.1
"""The fraction of rho for the number of edges; the rest is divided equally between the two queries on degrees."""
BLOCK_COUNTS_FRACTION = 0.3
"""The same where there are blocks: then every pair of them is counted."""
METHOD = "graph"


def plan_graph(
    schema: GraphSchemaSource,
    guarantee: Guarantee | None = None,
    *,
    epsilon: float | None = None,
    delta: float | None = None,
    protect: str = "edge",
) -> Plan:
    """List every query that `fit_graph` would make, and its privacy cost. Reads no edge.

    Args:
        schema: A `GraphSchema`, a dict of its sections, or the path of its file.
        guarantee: The guarantee. Give either this, or `epsilon` and, if you want, `delta`.
        epsilon: The epsilon of the guarantee.
        delta: Its delta. Default: 1e-6.
        protect: "edge" or "node".

    Returns:
        The plan, a sequence of queries.

    Raises:
        SchemaError: The schema is malformed.
        ConfigError: The guarantee or `protect` cannot be honoured.

    >>> [query.key for query in plan_graph({"nodes": {"count": 100}}, epsilon=1)]
    ['degrees', 'degree_tails', 'block_counts']
    """
    declared = as_graph_schema(schema)
    wanted = read_guarantee(guarantee, epsilon, delta)
    return _plan(declared, read_unit(protect, declared), wanted.budget())


def fit_graph(
    edges: EdgeSource,
    schema: "GraphSchemaSource | None" = None,
    guarantee: Guarantee | None = None,
    *,
    epsilon: float | None = None,
    delta: float | None = None,
    protect: str = "edge",
    seed: int | None = None,
    reading: ReadOptions | None = None,
    book: "BudgetBook | str | os.PathLike[str] | None" = None,
    policy: "Policy | str | os.PathLike[str] | None" = None,
    progress: ShowProgress | Listener = None,
    record: "str | os.PathLike[str] | None" = None,
    checkpoint: "str | os.PathLike[str] | None" = None,
    resume: bool = False,
) -> GraphRelease:
    """Fit a random graph model to one private graph.

    Formal guarantee: the release is (epsilon, delta)-differentially private under add/remove of one edge, or of all
    edges of one node. Rows with an end that is not a declared node, and loops, are left out; repeated edges, and the
    two directions of an edge, count once. An error after the first query is a `SpentError`, whose `statement` has the
    whole planned cost. Not covered: nodes, blocks and the other facts of the schema, timing and memory.

    Args:
        edges: A frame with a row for each edge, a NetworkX graph, or the path of a file.
        schema: What is public: the nodes, and their blocks if they have any. A `GraphSchema`, a dict of its sections,
            or the path of its file.
        guarantee: The guarantee. Give either this, or `epsilon` and, if you want, `delta`.
        epsilon: The epsilon of the guarantee.
        delta: Its delta. Default: 1e-6.
        protect: "edge": one edge is protected. "node": all edges of one node are, which needs a declared `max_degree`.
        seed: Makes the run reproducible, and not private.
        reading: How to read a text file or workbook.
        book: The `BudgetBook` of the data set, or its path, created for the same `protect`.
        policy: A `Policy`, or the path of its file.
        progress: True for a progress bar, or a function of the fraction done and a string.
        record: A folder for the record of a run that fails after its first query and has no `checkpoint`.
        checkpoint: A folder in which the run keeps the secret of its noise, and its result until that is saved: anyone
            who reads it can subtract the noise. Saving the release deletes it.
        resume: Whether to continue a run that was killed from its `checkpoint`, to the same release.

    Returns:
        The release, which samples synthetic graphs. Its `statement` says what was spent.

    Raises:
        SchemaError: The schema is malformed, or absent.
        TableError: The edges cannot be read.
        ConfigError: The guarantee or `protect` cannot be honoured.
        BudgetExceeded: The book has no room for the run.
        CheckpointError: There is nothing to resume, or something that was not resumed.
        SpentError: The run failed after its first charge.

    >>> import pyarrow as pa
    >>> ring = pa.table({"source": range(50), "target": [(node + 1) % 50 for node in range(50)]})
    >>> release = fit_graph(ring, {"nodes": {"count": 50}}, epsilon=1)
    >>> release.sample().column_names
    ['source', 'target']
    """
    wanted = read_guarantee(guarantee, epsilon, delta).with_delta_for(None)
    check_seed(seed)
    declared = as_graph_schema(schema)
    unit = read_unit(protect, declared)
    plan = _plan(declared, unit, wanted.budget())
    proposed = propose_graph(declared, unit, wanted)
    with (
        open_listener(progress, "fitting") as listener,
        open_run(
            seed=seed,
            book=book,
            policy=policy,
            proposed=proposed,
            checkpoint=checkpoint,
            resume=resume,
            record=record,
            listener=listener,
        ) as run,
    ):
        table, file_name = _private_edges(edges, declared, reading)
        facts, identity = graph_facts(declared, unit, file_name=file_name), {"schema": json.dumps(declared.to_dict())}
        run.start(
            METHOD,
            wanted,
            plan.queries,
            facts,
            tables={"edge list": table},
            identity={**identity, "protected unit": unit.value},
        )
        if run.checkpoint is not None and run.is_finished:
            finished = GraphRelease.load_result(run.checkpoint)
            run.finish(finished.statement)
            return finished
        graph = read_graph(table, declared.number_ends, declared.block_of_node, unit)
        fit_level = _fit_edge_level if unit is GraphUnit.EDGE else _fit_node_level
        degrees, counts = fit_level(graph, declared, plan, run.ledger)
        statement = run.statement(estimated=(f"number of edges: about {counts.sum():,}",))
        release = GraphRelease(declared, degrees, counts, statement=statement, checkpoint=run.checkpoint)
        run.finish(statement, keep=release.to_result)
        return release


def propose_graph(schema: GraphSchema, unit: GraphUnit, guarantee: Guarantee) -> ProposedRun:
    """The run as a budget book sees it."""
    return ProposedRun(
        METHOD,
        guarantee,
        lambda wanted: _plan(schema, unit, wanted.budget()).queries,
        {"schema": schema.to_dict()},
        dataset=schema.name,
        protect=unit.value,
    )


def read_unit(protect: str, schema: GraphSchema) -> GraphUnit:
    """What to protect; refuses a claim that the declared facts cannot support."""
    if protect not in ("edge", "node"):
        raise ConfigError(
            f"protect must be 'edge' or 'node', found {protect!r}.{did_you_mean(protect, ['edge', 'node'])}",
            setting="protect",
        )
    unit = GraphUnit(protect)
    if unit is GraphUnit.EDGE:
        return unit
    if schema.max_degree is None:
        raise ConfigError(
            "Protecting a node needs a declared degree cap: add max_degree to the [graph] section. Without one, a "
            "single node can have an edge to every other node and change every degree, so the noise would "
            "have to be too large to be useful. "
            "Or protect one edge: --protect edge.",
            setting="max_degree",
        )
    if schema.blocks is not None:
        raise ConfigError(
            "Blocks cannot be used when a node is protected: one node can change the edge counts of blocks by more "
            "than any declared cap. Remove block from the [nodes] section, or protect one edge: --protect edge.",
            setting="block",
        )
    return unit


# ---------------------------------------------------------------------------------------------------------------- plan


def _plan(schema: GraphSchema, unit: GraphUnit, budget: Budget) -> Plan:
    return _plan_edge_level(schema, budget) if unit is GraphUnit.EDGE else _plan_node_level(schema, budget)


def _plan_edge_level(schema: GraphSchema, budget: Budget) -> Plan:
    """Two queries on degrees and one on edge counts, with fixed fractions of rho."""
    fraction = COUNTS_FRACTION if schema.blocks is None else BLOCK_COUNTS_FRACTION
    other = (1 - fraction) / 2
    noise = budget.calibrate(lambda noise: [Gaussian(noise / math.sqrt(part)) for part in (other, other, fraction)])
    within = "" if schema.blocks is None else " within each block"
    whats = {
        "degrees": (f"degrees of {schema.num_nodes:,} nodes, sorted{within} (L2 sensitivity sqrt(2))", other),
        "degree_tails": (
            f"number of nodes of degree at least 1, ..., {_num_tails(schema):,}{within} (L2 sensitivity 2)",
            other,
        ),
        "block_counts": (_counts_text(schema), fraction),
    }
    queries = tuple(
        Query(key, what, Gaussian(noise / math.sqrt(part)), path=(METHOD,)) for key, (what, part) in whats.items()
    )
    return Plan(queries, (Note("Protects one edge. The nodes and their blocks are public."),))


def _counts_text(schema: GraphSchema) -> str:
    if schema.blocks is None:
        return "number of edges (L2 sensitivity 1)"
    pairs = len(block_pairs(len(schema.block_names)))
    return f"number of edges of {pairs:,} pairs of blocks (L2 sensitivity 1)"


def _num_tails(schema: GraphSchema) -> int:
    return min(_max_degree(schema), MAX_TAILS)


def _max_degree(schema: GraphSchema) -> int:
    return schema.max_degree if schema.max_degree is not None else max(schema.num_nodes - 1, 1)


def _plan_node_level(schema: GraphSchema, budget: Budget) -> Plan:
    """One query: all of epsilon, and none of delta."""
    cap = schema.max_degree
    assert cap is not None
    # Calibrated, because the accountant's epsilon is not exactly that of the pure query.
    noise = budget.calibrate(lambda noise: [LaplaceCounts(1 / noise, 2 * cap)])
    what = (
        f"number of nodes of degree at least 1, ..., {cap:,}, after leaving out edges beyond the cap (L1 sensitivity "
        f"{2 * cap:,})"
    )
    query = Query("degree_tails", what, LaplaceCounts(1 / noise, 2 * cap), path=(METHOD,))
    return Plan((query,), (Note("Protects all edges of one node. The nodes are public."),))


# ----------------------------------------------------------------------------------------------------------------- fit


def _fit_edge_level(
    graph: PrivateGraph, schema: GraphSchema, plan: Plan, ledger: Ledger
) -> tuple[Int64[np.ndarray, " nodes"], Int64[np.ndarray, " pairs"]]:
    """Whole degrees, block after block, and the number of edges of each pair of blocks."""
    degrees = noisy_degrees(graph, plan["degrees"], ledger)
    tails = noisy_degree_tails(graph, _num_tails(schema), plan["degree_tails"], ledger)
    counts = noisy_block_counts(graph, plan["block_counts"], ledger)
    event = plan["degree_tails"].event
    assert isinstance(event, Gaussian)
    stddev = event.noise_multiplier * TAILS_SENSITIVITY
    return _restore(degrees, tails, counts, stddev if ledger.guarantee.is_private else 0.0, schema)


def _restore(
    degrees: np.ndarray, tails: np.ndarray, counts: np.ndarray, tails_stddev: float, schema: GraphSchema
) -> tuple[Int64[np.ndarray, " nodes"], Int64[np.ndarray, " pairs"]]:
    """Consistent whole numbers from noisy ones. Post-processing."""
    sizes = np.bincount(schema.block_of_node)
    pairs = block_pairs(len(sizes))
    possible = np.where(pairs[:, 0] == pairs[:, 1], sizes[pairs[:, 0]] - 1, 2 * sizes[pairs[:, 1]]) * sizes[pairs[:, 0]]
    whole = np.clip(np.rint(counts), 0, possible // 2).astype(np.int64)
    totals = np.bincount(pairs.ravel(), np.repeat(whole, 2), minlength=len(sizes)).astype(np.int64)
    parts = np.split(degrees, np.cumsum(sizes)[:-1])
    restored = np.concatenate(
        [
            restore_degrees(part, tail, tails_stddev=tails_stddev, total=int(total), max_degree=_max_degree(schema))
            for part, tail, total in zip(parts, tails, totals, strict=True)
        ]
    )
    if len(sizes) > 1:
        return restored, whole
    restored = np.sort(make_graphical(restored))
    return restored, np.array([restored.sum() // 2])


def _fit_node_level(
    graph: PrivateGraph, schema: GraphSchema, plan: Plan, ledger: Ledger
) -> tuple[Int64[np.ndarray, " nodes"], Int64[np.ndarray, " pairs"]]:
    """The same from degree counts alone."""
    cap = schema.max_degree
    assert cap is not None
    tails = noisy_tail_counts(graph, cap, plan["degree_tails"], ledger)
    degrees = np.sort(make_graphical(degrees_of_tails(tails, schema.num_nodes)))
    return degrees, np.array([degrees.sum() // 2])


# ---------------------------------------------------------------------------------------------------------------- read


def _private_edges(
    edges: EdgeSource, schema: GraphSchema, reading: ReadOptions | None
) -> tuple[PrivateTable, str | None]:
    """The edge list, and the name of its file."""
    source = source_id(edges)
    with _explain_columns():
        table = open_private_table(
            _as_frame(edges, schema), schema.table_schema, partial(_require_ends, schema), reading=reading
        )
    return table, None if isinstance(source, int) else source.name


def edge_table(edges: EdgeSource, schema: GraphSchema, reading: ReadOptions | None = None) -> pa.Table:
    """An edge list that is not protected, or is outside the guarantee. Each value is read by itself, as text; other
    columns are not used."""
    with _explain_columns():
        table, _ = read_table(_as_frame(edges, schema), schema.table_schema, reading=reading)
    _require_ends(schema, table.column_names)
    return table


def _as_frame(edges: EdgeSource, schema: GraphSchema) -> "Frame | str | os.PathLike[str]":
    """A NetworkX graph as a table, whether or not NetworkX is installed; everything else as it is."""
    if not (hasattr(edges, "edges") and hasattr(edges, "nodes")):
        return edges
    pairs = [(str(one), str(other)) for one, other, *_ in edges.edges]
    ends = list(zip(*pairs, strict=True)) or [(), ()]
    return pa.table([pa.array(end, pa.string()) for end in ends], names=(schema.source, schema.target))


@contextlib.contextmanager
def _explain_columns() -> Iterator[None]:
    try:
        yield
    except TableError as error:
        hint = ' In the schema of a graph: source and target, and drop = ["weight"] for columns to leave out.'
        raise TableError(f"{error}{hint * (error.line == 1)}", column=error.column, line=error.line) from None


def _require_ends(schema: GraphSchema, names: Sequence[str]) -> None:
    absent = [name for name in (schema.source, schema.target) if name not in names]
    if absent:
        raise SchemaError(
            f"The edge list has no column {absent[0]!r}.{did_you_mean(absent[0], names)} Name the "
            "columns that hold the ends of an edge as source and target in the [graph] section.",
            column=absent[0],
        )
