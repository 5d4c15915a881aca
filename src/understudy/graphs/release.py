"""The release of a graph: a random graph model, and the statement of its privacy cost.

On disk it is a folder like that of a table: readable JSON, plain arrays, and the certificate. Loading runs no code.
"""

import dataclasses
import datetime
import os
import types
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import jax
import numpy as np
import pyarrow as pa
import safetensors.numpy
from jaxtyping import Int64

from understudy._version import install_advice
from understudy.errors import ConfigError
from understudy.graphs.random_graphs import sample_edges
from understudy.graphs.schema import GraphSchema
from understudy.privacy.accounting.ledger import PublicFacts, Statement
from understudy.privacy.mechanisms.graph import GraphUnit
from understudy.privacy.noise.source import fresh_key
from understudy.release import AnyRelease, Release, check_seed, is_graph_release
from understudy.release.folder import GRAPH_FORMAT
from understudy.schema.toml import names_files
from understudy.summary import Summary
from understudy.tables import attach_label

if TYPE_CHECKING:
    import networkx


@dataclasses.dataclass(frozen=True, repr=False, eq=False)
class GraphRelease(AnyRelease):
    """What may be shared of a graph: a model that makes synthetic graphs, and the statement of its privacy cost.

    `understudy.fit_graph` makes one, `save` writes it as a folder, and `load` reads that again.

    >>> import pyarrow as pa, understudy as us
    >>> ring = pa.table({"source": range(50), "target": [(node + 1) % 50 for node in range(50)]})
    >>> release = us.fit_graph(ring, {"nodes": {"count": 50}}, epsilon=1)
    >>> release.statement.is_private, release.sample_networkx().number_of_nodes()
    (True, 50)
    """

    FORMAT = GRAPH_FORMAT
    FORMAT_VERSION = 1

    schema: GraphSchema
    """The schema, as declared."""
    degrees: Int64[np.ndarray, " nodes"]
    """Noisy degrees, block after block, ascending within each block: no degree belongs to a particular node."""
    block_counts: Int64[np.ndarray, " pairs"]
    """The noisy number of edges of each pair of blocks."""

    @property
    def num_edges(self) -> int:
        """The noisy number of edges: the size of a synthetic graph."""
        return int(self.block_counts.sum())

    def summary(self) -> Summary:
        """What its `repr` shows."""
        size = {"nodes": f"{self.schema.num_nodes:,}", "edges": f"about {self.num_edges:,}"}
        return self._summarize("Graph release", self.schema.name, size)

    def sample(self, *, seed: int | None = None) -> pa.Table:
        """The edge list of a synthetic graph. Post-processing: it has no privacy cost and can be repeated.

        No loops and no repeated edges. Degrees are given to the nodes of each block at random. `seed` makes the sample
        reproducible and does not affect the guarantee.
        """
        return attach_label(self.schema.name_ends(self.sample_edges(seed=seed)), self.label)

    def sample_edges(self, *, seed: int | None = None) -> Int64[np.ndarray, "edges 2"]:
        """The same with the numbers of the nodes, in the order of the schema."""
        check_seed(seed)
        key = fresh_key() if seed is None else jax.random.key(seed)
        generator = np.random.default_rng(np.asarray(jax.random.key_data(key)))
        edges = sample_edges(self.degrees, self.schema.block_of_node, self.block_counts, generator)
        return edges[np.lexsort((edges[:, 1], edges[:, 0]))]

    def sample_networkx(self, *, seed: int | None = None) -> "networkx.Graph":
        """The same as a NetworkX graph with all nodes, whose attribute `block` is the declared one."""
        graph = import_networkx().Graph()
        schema = self.schema
        for node, block in zip(schema.nodes, schema.blocks or schema.nodes, strict=True):
            graph.add_node(node, **({} if schema.blocks is None else {"block": block}))
        names = np.asarray(schema.nodes, dtype=object)
        graph.add_edges_from(names[self.sample_edges(seed=seed)].tolist())
        return graph

    def _content(self) -> dict[str, object]:
        return {"schema": self.schema.to_dict()}

    def _arrays(self) -> bytes:
        return safetensors.numpy.save({"degrees": self.degrees, "block_counts": self.block_counts})

    @classmethod
    def _of_content(cls, content: Mapping[str, Any], arrays: bytes, statement: Statement) -> "GraphRelease":
        if names_files(content["schema"]):
            raise ValueError("the schema of a release names no files")
        schema, named = GraphSchema.from_dict(content["schema"]), safetensors.numpy.load(arrays)
        return cls(schema, named["degrees"], named["block_counts"], statement=statement)

    def _contradictions(self, content: Mapping[str, Any], *, same_version: bool) -> Iterator[str]:
        facts = self.statement.facts
        if facts.graph_unit is None:
            yield "the certificate is that of a table"
            return
        expected = graph_facts(self.schema, GraphUnit(facts.graph_unit), file_name=facts.name)
        for name in ("name", "responsible", "contact", *(["declared"] if same_version else [])):
            if getattr(expected, name) != getattr(facts, name):
                yield f"its schema does not declare what the certificate lists as declared ({name})"


def load_release(folder: str | os.PathLike[str]) -> Release | GraphRelease:
    """The release in this folder, of a table or of a graph."""
    return GraphRelease.load(folder) if is_graph_release(folder) else Release.load(folder)


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


def import_networkx() -> types.ModuleType:
    """NetworkX, or one line that says how to get it."""
    try:
        import networkx
    except ModuleNotFoundError:
        raise ConfigError(f"This needs NetworkX. Run: {install_advice('graph')}.") from None
    return networkx
