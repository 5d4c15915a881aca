"""What `fit_graph` would leave out of an edge list. For the data steward only: not private."""

import numpy as np

from understudy.graphs.fit import EdgeSource, edge_table
from understudy.graphs.schema import GraphSchemaSource, as_graph_schema
from understudy.notes import count_of
from understudy.steward.findings import Finding
from understudy.tables import ReadOptions


def check_edges(
    edges: EdgeSource, schema: GraphSchemaSource, *, reading: ReadOptions | None = None
) -> tuple[Finding, ...]:
    """Compares an edge list with its schema: loops, repeated edges, both directions, unknown nodes, large degrees.

    NOT private: it counts real rows. None of these is an error of `fit_graph`, which treats them by fixed rules.
    """
    declared = as_graph_schema(schema)
    ends = declared.number_ends(edge_table(edges, declared, reading))
    known = ends[(ends >= 0).all(axis=1)]
    between = known[known[:, 0] != known[:, 1]]
    directed = np.unique(between, axis=0)
    pairs = np.unique(np.sort(directed, axis=1), axis=0)
    once = "each pair of nodes counts once."
    found = (
        ("unknown node", ends, known, "has", "have", "an end that is empty or not a declared node: left out."),
        ("loop", known, between, "is", "are", "a loop from a node to itself: left out."),
        ("repeated edge", between, directed, "repeats", "repeat", f"an edge: {once}"),
        ("both directions", directed, pairs, "repeats", "repeat", f"an edge in the opposite direction: {once}"),
    )
    findings = [
        Finding("warning", topic, None, f"{count_of(count, f'row {one}', f'rows {many}')} {what}", count)
        for topic, before, after, one, many, what in found
        if (count := len(before) - len(after))
    ]
    degrees = np.bincount(pairs.ravel(), minlength=declared.num_nodes)
    if declared.max_degree is not None and (count := int((degrees > declared.max_degree).sum())):
        nodes, degrees_are = ("node has", "its degree is") if count == 1 else ("nodes have", "their degrees are")
        text = f"{count:,} {nodes} more edges than max_degree, {declared.max_degree:,}: {degrees_are} lowered."
        findings.append(Finding("warning", "above max_degree", None, text, count))
    return tuple(findings)
