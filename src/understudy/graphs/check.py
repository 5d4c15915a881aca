"""What `fit_graph` would leave out of an edge list. For the data steward only: not private."""

import numpy as np
import pyarrow as pa

from understudy.graphs.fit import EdgeSource, edge_table
from understudy.graphs.schema import GraphSchemaSource, as_graph_schema
from understudy.schema.findings import Finding
from understudy.tables import ReadOptions


def check_edges(
    edges: EdgeSource, schema: GraphSchemaSource, *, reading: ReadOptions | None = None
) -> tuple[Finding, ...]:
    """Compares an edge list with its schema: loops, repeated edges, both directions, unknown nodes, large degrees.

    NOT private: it counts real rows. None of these is an error of `fit_graph`, which treats them by fixed rules.

    >>> import pyarrow as pa
    >>> for finding in check_edges(pa.table({"source": [0, 0, 1], "target": [0, 1, 0]}), {"nodes": {"count": 2}}):
    ...     print(finding)
    warning: The table: 1 row is a loop from a node to itself: left out.
    warning: The table: 1 row repeats an edge in the opposite direction: each pair of nodes counts once.
    """
    declared = as_graph_schema(schema)
    table = edge_table(edges, declared, reading)[0]
    batches = [table] if isinstance(table, pa.Table) else list(table)
    ends = np.concatenate([np.zeros((0, 2), dtype=np.int64), *(declared.number_ends(batch) for batch in batches)])
    known = ends[(ends >= 0).all(axis=1)]
    between = known[known[:, 0] != known[:, 1]]
    directed = np.unique(between, axis=0)
    pairs = np.unique(np.sort(directed, axis=1), axis=0)
    found = {
        "unknown node": (
            len(ends) - len(known),
            "{} an end that is empty or not a declared node: left out.",
            ("has", "have"),
        ),
        "loop": (len(known) - len(between), "{} a loop from a node to itself: left out.", ("is", "are")),
        "repeated edge": (
            len(between) - len(directed),
            "{} an edge: each pair of nodes counts once.",
            ("repeats", "repeat"),
        ),
        "both directions": (
            len(directed) - len(pairs),
            "{} an edge in the opposite direction: each pair of nodes counts once.",
            ("repeats", "repeat"),
        ),
    }
    findings = [
        Finding("warning", topic, None, f"{_rows(count)} {text.format(verbs[count != 1])}", count)
        for topic, (count, text, verbs) in found.items()
        if count
    ]
    degrees = np.bincount(pairs.ravel(), minlength=declared.num_nodes)
    if declared.max_degree is not None and (count := int((degrees > declared.max_degree).sum())):
        nodes, degrees_are = ("node has", "its degree is") if count == 1 else ("nodes have", "their degrees are")
        text = f"{count:,} {nodes} more edges than max_degree, {declared.max_degree:,}: {degrees_are} lowered."
        findings.append(Finding("warning", "above max_degree", None, text, count))
    return tuple(findings)


def _rows(count: int) -> str:
    return f"{count:,} row{'s' * (count != 1)}"
