"""What is public about a graph: its nodes, their blocks, and the columns of the edge list that name the ends."""

import dataclasses
import functools
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from jaxtyping import Int64

from understudy.errors import SchemaError, UnderstudyError, did_you_mean
from understudy.rules.keys import check_keys, read_text
from understudy.rules.values import to_toml
from understudy.schema import Column, Schema
from understudy.schema.toml import parse_toml, without_content
from understudy.tables import read_table

if TYPE_CHECKING:
    import networkx

MAX_NODES = 2**31
NO_NODES = (
    'Declare the nodes of the graph: a [nodes] section with count = 4000, list = [...] or file = "nodes.csv". A node '
    "list read from the edges would show which nodes have an edge."
)
GRAPH_KEYS = ("source", "target", "drop", "directed", "max_degree", "name", "responsible", "contact")
NODE_KEYS = ("count", "first", "list", "file", "id", "block")


@dataclasses.dataclass(frozen=True, repr=False)
class GraphSchema:
    """What is public about a graph. Its edges are private.

    >>> schema = GraphSchema(nodes=("ann", "bob", "eve"), blocks=("staff", "staff", "guest"))
    >>> schema.num_nodes, schema.block_names
    (3, ('guest', 'staff'))
    """

    nodes: tuple[str, ...]
    """The name of every node, whether or not it has edges."""
    blocks: tuple[str, ...] | None = None
    """The block of each node, such as a department: a public attribute. None: all nodes are in one block."""
    source: str = "source"
    """The column of the edge list with one end of each edge ..."""
    target: str = "target"
    """... and the one with the other end."""
    drop: tuple[str, ...] = ()
    """Other columns of the edge list, which are not used."""
    max_degree: int | None = None
    """A public cap on degrees: larger ones are not released. With `protect="node"`, edges beyond it are left out."""
    name: str | None = None
    """The name of the data set. Declared public, as the next two: they stand in the certificate."""
    responsible: str | None = None
    """Who is responsible for the release: a person or an office."""
    contact: str | None = None
    """Whom to ask about the release, such as an e-mail address."""

    def __post_init__(self) -> None:
        if not self.nodes:
            raise SchemaError(NO_NODES, key="nodes")
        if len(set(self.nodes)) < len(self.nodes):
            raise SchemaError("The node list names a node twice. Name each node once.", key="nodes")
        if self.blocks is not None and len(self.blocks) != len(self.nodes):
            raise SchemaError(
                f"There are {len(self.nodes):,} nodes but {len(self.blocks):,} blocks. Give each node a block.",
                key="block",
            )
        if self.source == self.target or {self.source, self.target} & set(self.drop):
            raise SchemaError(
                f"source, target and drop must name different columns, found source {self.source!r} and target "
                f"{self.target!r}. Name the two columns that hold the ends of an edge.",
                key="target",
            )
        if self.max_degree is not None and not (_is_whole(self.max_degree) and 1 <= self.max_degree < len(self.nodes)):
            raise SchemaError(
                f"max_degree must be a whole number from 1 to {len(self.nodes) - 1}, one less than the number of "
                f"nodes; found {self.max_degree!r}.",
                key="max_degree",
            )

    def __repr__(self) -> str:
        blocks = "" if self.blocks is None else f", {len(self.block_names)} blocks"
        return f"GraphSchema({self.num_nodes:,} nodes{blocks}, edges in {self.source!r} and {self.target!r})"

    @property
    def num_nodes(self) -> int:
        """The declared number of nodes."""
        return len(self.nodes)

    @functools.cached_property
    def block_names(self) -> tuple[str, ...]:
        """The blocks in the order of their numbers."""
        return ("all nodes",) if self.blocks is None else tuple(sorted(set(self.blocks)))

    @functools.cached_property
    def block_of_node(self) -> Int64[np.ndarray, " nodes"]:
        """The number of each node's block."""
        if self.blocks is None:
            return np.zeros(self.num_nodes, dtype=np.int64)
        return np.unique(np.asarray(self.blocks, dtype=object), return_inverse=True)[1].astype(np.int64)

    @classmethod
    def of_count(cls, count: int, *, first: int = 0, **keys: Any) -> "GraphSchema":
        """Nodes that are numbered, from `first` on.

        >>> GraphSchema.of_count(3, first=1).nodes
        ('1', '2', '3')
        """
        if not _is_whole(count) or not 1 <= count < MAX_NODES:
            raise SchemaError(f"count must be a whole number above 0, found {count!r}.", key="count")
        if not _is_whole(first):
            raise SchemaError(f"first must be a whole number, found {first!r}.", key="first")
        return cls(nodes=tuple(map(str, range(first, first + count))), **keys)

    @classmethod
    def of_networkx(cls, graph: "networkx.Graph", *, block: str | None = None, **keys: Any) -> "GraphSchema":
        """All nodes of this graph, and as blocks one of their attributes. Both become public."""
        blocks = None
        if block is not None:
            absent = next((node for node, attributes in graph.nodes(data=True) if block not in attributes), None)
            if absent is not None:
                raise SchemaError(f"A node has no attribute {block!r}. Give each node a block.", key="block")
            blocks = tuple(str(attributes[block]) for _, attributes in graph.nodes(data=True))
        return cls(nodes=tuple(map(str, graph.nodes)), blocks=blocks, **keys)

    @classmethod
    def read(cls, path: str | os.PathLike[str]) -> "GraphSchema":
        """Reads a TOML file. The path of a node file is relative to it."""
        content, folder = parse_toml(read_text(path), str(path)), Path(path).parent
        try:
            return cls.from_dict(content, folder=folder)
        except SchemaError as error:
            error = without_content(error, content, folder)
            raise error if str(path) in str(error) else error.in_file(str(path)) from None

    @classmethod
    def from_dict(cls, content: Mapping[str, object], *, folder: Path | None = None) -> "GraphSchema":
        """From the sections of a schema file: `graph` and `nodes`.

        >>> GraphSchema.from_dict({"graph": {"source": "from", "target": "to"}, "nodes": {"count": 34}})
        GraphSchema(34 nodes, edges in 'from' and 'to')
        """
        check_keys(content, ("graph", "nodes"), "The file")
        graph, nodes = content.get("graph", {}), content.get("nodes", {})
        if not isinstance(graph, Mapping) or not isinstance(nodes, Mapping):
            raise SchemaError("graph and nodes must be sections, written as [graph] and [nodes].")
        check_keys(graph, GRAPH_KEYS, "[graph]")
        check_keys(nodes, NODE_KEYS, "[nodes]")
        for key in ("source", "target", "name", "responsible", "contact"):
            if not isinstance(graph.get(key, ""), str):
                raise SchemaError(f"[graph] {key} must be text, found {graph[key]!r}.", key=key)
        if graph.get("directed", False) is not False:
            raise SchemaError(
                "[graph] directed must be false: directed graphs are not supported. With directed = false each edge is "
                "used without its direction.",
                key="directed",
            )
        keys = {key: graph[key] for key in GRAPH_KEYS if key in graph and key not in ("directed", "drop")}
        keys["drop"] = _strings(graph.get("drop", []), "[graph] drop")
        names, blocks = _read_nodes(nodes, folder)
        return cls(nodes=names, blocks=blocks, **keys)

    def to_dict(self) -> dict[str, object]:
        """The reverse of `from_dict`, with the whole list of nodes."""
        kept = {key: getattr(self, key) for key in GRAPH_KEYS if key not in ("directed", "drop")}
        nodes: dict[str, object] = {"list": list(self.nodes)}
        if self.blocks is not None:
            nodes["block"] = list(self.blocks)
        graph = {key: value for key, value in kept.items() if value is not None}
        return {"graph": {**graph, "drop": list(self.drop), "directed": False}, "nodes": nodes}

    def to_toml(self) -> str:
        """The same as a schema file."""
        sections = []
        for name, keys in self.to_dict().items():
            assert isinstance(keys, dict)
            sections.append("".join([f"[{name}]\n", *(f"{key} = {to_toml(value)}\n" for key, value in keys.items())]))
        return "\n".join(sections)

    @property
    def table_schema(self) -> Schema:
        """The two columns of the edge list, each of whose values is read as text, by itself."""
        ends = (Column(name=name, kind="categorical") for name in (self.source, self.target))
        return Schema(columns=(*ends, *(Column(name=name, kind="text", drop=True) for name in self.drop)))

    def number_ends(self, edges: pa.Table) -> Int64[np.ndarray, "rows 2"]:
        """The numbers of the two nodes of each row; -1 where a value is null or names no node. Row by row."""
        names = pa.array(self.nodes, pa.string())
        columns = [pc.index_in(edges.column(name).cast(pa.string()), names) for name in (self.source, self.target)]
        return np.stack([column.fill_null(-1).to_numpy().astype(np.int64) for column in columns], axis=1)

    def name_ends(self, edges: Int64[np.ndarray, "edges 2"]) -> pa.Table:
        """An edge list with the names of the nodes."""
        names = pa.array(self.nodes, pa.string())
        return pa.table({name: names.take(edges[:, at]) for at, name in enumerate((self.source, self.target))})


GraphSchemaSource: TypeAlias = "GraphSchema | Mapping[str, object] | str | os.PathLike[str]"


def as_graph_schema(given: "GraphSchemaSource | None") -> GraphSchema:
    """A graph schema, given as one, as the path of its file, or as a dict of its sections."""
    if isinstance(given, GraphSchema):
        return given
    if isinstance(given, Mapping):
        return GraphSchema.from_dict(given)
    if isinstance(given, str | os.PathLike):
        return GraphSchema.read(given)
    if given is None:
        raise SchemaError(f"A graph needs a schema. {NO_NODES}")
    raise SchemaError(
        f"schema must be a GraphSchema, the path of a schema file or a dict, found {type(given).__name__}."
    )


_DRAFT = """\
# What is public about this graph. Its edges, one in each row, are private.
# Drafted from the names of the columns alone: confirm every line.

[graph]
source = {source}
target = {target}
directed = false                        # edges are used without direction
{drop}# max_degree = 50                       # a public cap on degrees; needed to protect a node

# Declare ALL nodes, with or without edges: from a register, not from the edges, which would show who has one.
[nodes]
# file = "nodes.csv"                    # a public table with a row for each node ...
# id = "node"                           # ... its column with the node
# block = "office"                      # ... and, optional, one with a public attribute that explains who is connected
# count = 4000                          # or: nodes numbered from 0 (first = 1: from 1)
# list = ["ann", "bob"]                 # or: their names
"""
_ENDS = (("source", "target"), ("from", "to"), ("src", "dst"), ("sender", "receiver"))
"""Names of the two ends of an edge."""


def draft_schema(names: Sequence[str]) -> str:
    """The schema file of an edge list with these columns, for a person to complete. Reads no edge.

    The ends are columns with the usual names, else the first two; all others are left out.
    """
    if len(names) < 2:
        raise SchemaError(f"An edge list needs two columns, one for each end of an edge; found {len(names)}.")
    by_lowercase = {name.lower(): name for name in reversed(names)}
    usual = next((ends for ends in _ENDS if by_lowercase.keys() >= set(ends)), None)
    source, target = names[:2] if usual is None else (by_lowercase[end] for end in usual)
    others = [name for name in names if name not in (source, target)]
    drop = f"{f'drop = {to_toml(others)}':<39} # other columns of the edge list\n" if others else ""
    return _DRAFT.format(source=to_toml(source), target=to_toml(target), drop=drop)


def _read_nodes(keys: Mapping[str, object], folder: Path | None) -> tuple[tuple[str, ...], tuple[str, ...] | None]:
    """Names and blocks of the nodes, of the keys of [nodes]."""
    given = [key for key in ("count", "list", "file") if key in keys]
    if len(given) != 1:
        raise SchemaError(
            NO_NODES if not given else f"[nodes] has {' and '.join(given)}. Keep one of them.", key="nodes"
        )
    if given == ["file"]:
        return _read_node_file(keys, folder)
    for key in ("id", "first"):
        if key in keys and not (key == "first" and given == ["count"]):
            raise SchemaError(f"[nodes] {key} has no meaning with {given[0]}. Remove it.", key=key)
    block = keys.get("block")
    blocks = None if block is None else _strings(block, "[nodes] block")
    if given == ["list"]:
        return _strings(keys["list"], "[nodes] list"), blocks
    # `__post_init__` checks the types of what a file has.
    counted = GraphSchema.of_count(keys["count"], first=keys.get("first", 0))  # type: ignore[arg-type]
    return counted.nodes, blocks


def _strings(values: object, key: str) -> tuple[str, ...]:
    if not isinstance(values, Iterable) or isinstance(values, str) or not all(isinstance(v, str | int) for v in values):
        raise SchemaError(f"{key} must be a list of strings or whole numbers.", key=key.split()[-1])
    return tuple(map(str, values))


def _read_node_file(keys: Mapping[str, object], folder: Path | None) -> tuple[tuple[str, ...], tuple[str, ...] | None]:
    """A public table with a row for each node."""
    path = Path(str(keys["file"]))
    path = path if folder is None else folder / path
    wanted = {"id": "node"} | {key: str(keys[key]) for key in ("id", "block") if key in keys}
    try:
        names = read_table(path)[0].column_names  # a public file: its header says which columns there are
        for key, name in wanted.items():
            if name not in names:
                raise SchemaError(
                    f"there is no column {name!r} in {path}.{did_you_mean(name, names)} Set {key} in [nodes] to one of "
                    f"{', '.join(names)}.",
                    key=key,
                )
        kinds = {name: "categorical" if name in wanted.values() else "text" for name in names}
        table, _ = read_table(path, Schema(columns=tuple(Column(name=name, kind=kind) for name, kind in kinds.items())))
    except UnderstudyError as error:
        raise SchemaError(f"The node file: {error}", key=getattr(error, "key", None) or "file") from None
    found = []
    for key, name in wanted.items():
        values = table.column(name)
        if values.null_count:
            raise SchemaError(f"The node file {path} has rows without a value of {name!r}. Complete them.", key=key)
        found.append(tuple(values.cast(pa.string()).to_pylist()))
    return found[0], found[1] if "block" in wanted else None


def _is_whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)
