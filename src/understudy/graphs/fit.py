"""From a private edge list to a release: `plan_graph` and `fit_graph`."""

import dataclasses
import datetime
import math
import os
import warnings
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
import pyarrow as pa
from jaxtyping import Int64

from understudy.api import read_guarantee
from understudy.book.book import BudgetBook
from understudy.book.policy import Policy
from understudy.book.proposal import ProposedRun
from understudy.book.reservation import reserve_run, settle_run
from understudy.errors import ConfigError, SchemaError, TableError, UnderstudyWarning, did_you_mean
from understudy.failed_run import record_failure
from understudy.graphs.degrees import degrees_of_tails, make_graphical, restore_degrees
from understudy.graphs.release import GraphRelease
from understudy.graphs.schema import GraphSchema, GraphSchemaSource, as_graph_schema
from understudy.notes import Note
from understudy.privacy.events import Gaussian, LaplaceCounts
from understudy.privacy.graph import (
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
from understudy.privacy.ledger import Budget, Guarantee, Ledger, Plan, PublicFacts, Query
from understudy.privacy.noise import noise_source
from understudy.privacy.table import PrivateTable
from understudy.release import check_seed
from understudy.tables import Frame, ReadOptions, TableStream, as_arrow, source_id, stream_table

if TYPE_CHECKING:
    import networkx

EdgeSource: TypeAlias = "Frame | networkx.Graph | str | os.PathLike[str]"
"""An edge list: a frame, or the path of a file or database table; or a NetworkX graph."""

MOST_TAILS = 1000
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
    """Every query that `fit_graph` will make, and its privacy cost. Reads no edge.

    >>> [query.key for query in plan_graph({"nodes": {"count": 100}}, epsilon=1)]
    ['degrees', 'degree_tails', 'block_counts']
    """
    declared = as_graph_schema(schema)
    wanted = _require_guarantee(read_guarantee(guarantee, epsilon, delta))
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
) -> GraphRelease:
    """Fits a random graph model to one private graph under differential privacy.

    `edges` has a row for each edge; `schema` declares the nodes, which are public. `protect="edge"`: one edge is
    protected. `protect="node"`: all edges of one node are, which needs a declared `max_degree`. A `seed` makes the run
    reproducible, and not private. `book` and `policy` are those of `fit`; the book was created for the same `protect`.

    Formal guarantee: the release is (epsilon, delta)-differentially private under add/remove of one edge, or of all
    edges of one node. Rows with an end that is not a declared node, and loops, are left out; repeated edges, and the
    two directions of an edge, count once. An error after the first query is a `SpentError`, whose `statement` has the
    whole planned cost. Not covered: nodes, blocks and the other facts of the schema, timing and memory.

    >>> import pyarrow as pa
    >>> ring = pa.table({"source": range(50), "target": [(node + 1) % 50 for node in range(50)]})
    >>> release = fit_graph(ring, {"nodes": {"count": 50}}, epsilon=1)
    >>> release.sample().column_names
    ['source', 'target']
    """
    wanted = _require_guarantee(read_guarantee(guarantee, epsilon, delta)).with_delta_for(None)
    check_seed(seed)
    declared = as_graph_schema(schema)
    unit = read_unit(protect, declared)
    plan = _plan(declared, unit, wanted.budget())
    with reserve_run(book, policy, propose_graph(declared, unit, wanted), seed=seed) as reservation:
        rows, file_name = edge_table(edges, declared, reading)
        table = PrivateTable(rows)
        entry = None if reservation is None else reservation.entry
        facts = dataclasses.replace(graph_facts(declared, unit, file_name=file_name), book=entry)
        ledger = Ledger(wanted, noise=noise_source(seed), book=reservation)
        with record_failure(ledger, lambda: ledger.statement(facts, method=METHOD, planned=plan.queries)):
            graph = read_graph(table, declared.number_ends, declared.block_of_node, unit)
            degrees, counts = (
                _fit_edge_level(graph, declared, plan, ledger)
                if unit is GraphUnit.EDGE
                else _fit_node_level(graph, declared, plan, ledger)
            )
            estimated = (f"number of edges: about {counts.sum():,}",)
            statement = ledger.statement(dataclasses.replace(facts, estimated=estimated), method=METHOD)
        settle_run(reservation, statement)
    if statement.seeded:
        warnings.warn(
            "The noise was seeded, so this release is not private. Use a seed for tests and public data only.",
            UnderstudyWarning,
            stacklevel=2,
        )
    return GraphRelease(declared, degrees, counts, statement)


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
            f"protect must be 'edge' or 'node', found {protect!r}.{did_you_mean(protect, ['edge', 'node'])}"
        )
    unit = GraphUnit(protect)
    if unit is GraphUnit.EDGE:
        return unit
    if schema.max_degree is None:
        raise ConfigError(
            "Protecting a node needs a declared degree cap: add max_degree to the [graph] section. Without one, a "
            "single node can have an edge to every other node and change every degree, so the noise would "
            "have to be too large to be useful. "
            "Or protect one edge: --protect edge."
        )
    if schema.blocks is not None:
        raise ConfigError(
            "Blocks cannot be used when a node is protected: one node can change the edge counts of blocks by more "
            "than any declared cap. Remove block from the [nodes] section, or protect one edge: --protect edge."
        )
    return unit


def graph_facts(schema: GraphSchema, unit: GraphUnit, *, file_name: str | None = None) -> PublicFacts:
    """What a run takes as public."""
    declared = [f"the list of {schema.num_nodes:,} nodes, whether or not they have edges"]
    if schema.blocks is not None:
        declared.append(f"the block of each node, one of {len(schema.block_names):,}")
    if schema.max_degree is not None:
        declared.append(f"a cap on degrees: {schema.max_degree:,}")
    declared.append("that edges have no direction; loops are left out, and each pair of nodes counts once")
    return PublicFacts(
        graph_unit=unit.value,
        name=schema.name or file_name,
        responsible=schema.responsible,
        contact=schema.contact,
        declared=tuple(declared),
        date=datetime.date.today().isoformat(),
    )


def _require_guarantee(guarantee: Guarantee | None) -> Guarantee:
    if guarantee is None:
        raise ConfigError(
            "Set the privacy budget: epsilon=1 (smaller is more private), or guarantee=us.Guarantee.not_private() for "
            "a baseline."
        )
    return guarantee


# ---------------------------------------------------------------------------------------------------------------- plan


def _plan(schema: GraphSchema, unit: GraphUnit, budget: Budget) -> Plan:
    return _plan_edge_level(schema, budget) if unit is GraphUnit.EDGE else _plan_node_level(schema, budget)


def _plan_edge_level(schema: GraphSchema, budget: Budget) -> Plan:
    """Two queries on degrees and one on edge counts, with fixed fractions of rho."""
    fraction = COUNTS_FRACTION if schema.blocks is None else BLOCK_COUNTS_FRACTION
    each = (1 - fraction) / 2
    noise = budget.calibrate(lambda noise: [Gaussian(noise / math.sqrt(part)) for part in (each, each, fraction)])
    within = "" if schema.blocks is None else " within each block"
    whats = {
        "degrees": (f"degrees of {schema.num_nodes:,} nodes, sorted{within} (L2 sensitivity sqrt(2))", each),
        "degree_tails": (
            f"number of nodes of degree at least 1, ..., {_num_tails(schema):,}{within} (L2 sensitivity 2)",
            each,
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
    return min(_most_degree(schema), MOST_TAILS)


def _most_degree(schema: GraphSchema) -> int:
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
            restore_degrees(part, tail, tails_stddev=tails_stddev, total=int(total), most=_most_degree(schema))
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


def edge_table(
    edges: EdgeSource, schema: GraphSchema, reading: ReadOptions | None = None
) -> tuple["pa.Table | TableStream", str | None]:
    """The edge list, and the name of its file. Each value is read by itself, as text; other columns are not used."""
    if hasattr(edges, "edges") and hasattr(edges, "nodes"):  # a NetworkX graph, whether or not NetworkX is installed
        pairs = [(str(one), str(other)) for one, other, *_ in edges.edges]
        ends = list(zip(*pairs, strict=True)) or [(), ()]
        names = (schema.source, schema.target)
        return pa.table([pa.array(end, pa.string()) for end in ends], names=names), None
    columns = schema.table_schema
    try:
        streamed = stream_table(edges, schema=columns, reading=reading)
        batches, _ = as_arrow(edges, columns, reading=reading) if streamed is None else streamed
    except TableError as error:
        hint = ' In the schema of a graph: source and target, and drop = ["weight"] for columns to leave out.'
        raise TableError(f"{error}{hint * (error.line == 1)}", column=error.column, line=error.line) from None
    absent = [name for name in (schema.source, schema.target) if name not in batches.column_names]
    if absent:
        raise SchemaError(
            f"The edge list has no column {absent[0]!r}.{did_you_mean(absent[0], batches.column_names)} Name the "
            "columns that hold the ends of an edge as source and target in the [graph] section.",
            column=absent[0],
        )
    if isinstance(batches, TableStream):
        for _ in batches:  # a damaged file is refused before anything is charged
            pass
    source = source_id(edges)
    return batches, None if isinstance(source, int) else source.name
