"""The release of a graph: a random graph model, and the statement of its privacy cost.

On disk it is a folder like that of a table: readable JSON, plain arrays, and the certificate. Loading runs no code.
"""

import dataclasses
import functools
import hashlib
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import jax
import numpy as np
import pyarrow as pa
import safetensors
import safetensors.numpy
from jaxtyping import Int64

from understudy import certificate, certificate_page
from understudy._version import __version__
from understudy.errors import ConfigError, ReleaseError, SchemaError
from understudy.failed_run import read_record
from understudy.graphs.sampler import sample_edges
from understudy.graphs.schema import GraphSchema
from understudy.privacy.ledger import Statement
from understudy.privacy.noise import fresh_key
from understudy.release import RELEASE_FILES, check_seed, guarantee_figures
from understudy.run.atomic import atomic_folder, json_bytes
from understudy.run.environment import software_facts
from understudy.schema.toml import names_files
from understudy.summary import Summarized, Summary
from understudy.tables import Label, attach_label

if TYPE_CHECKING:
    import networkx

FORMAT = "understudy-graph-release"
FORMAT_VERSION = 1


@dataclasses.dataclass(frozen=True, repr=False, eq=False)
class GraphRelease(Summarized):
    """What may be shared of a graph: a model that makes synthetic graphs, and the statement of its privacy cost.

    `understudy.fit_graph` makes one, `save` writes it as a folder, and `load` reads that again.

    >>> import pyarrow as pa, understudy as us
    >>> ring = pa.table({"source": range(50), "target": [(node + 1) % 50 for node in range(50)]})
    >>> release = us.fit_graph(ring, {"nodes": {"count": 50}}, epsilon=1)
    >>> release.statement.is_private, release.sample_networkx().number_of_nodes()
    (True, 50)
    """

    schema: GraphSchema
    degrees: Int64[np.ndarray, " nodes"]
    """Noisy degrees, block after block, ascending within each block: no degree belongs to a particular node."""
    block_counts: Int64[np.ndarray, " pairs"]
    """The noisy number of edges of each pair of blocks."""
    statement: Statement
    tables: tuple[tuple[str, str], ...] = ()
    """Name and SHA-256 of the synthetic edge list that was written with the release, if one was."""
    made_with: Mapping[str, str] | None = dataclasses.field(default=None, repr=False)
    """Versions of the software that made it, as recorded in its folder; None: it was made by this process."""

    @property
    def num_edges(self) -> int:
        """The noisy number of edges: the size of a synthetic graph."""
        return int(self.block_counts.sum())

    def summary(self) -> Summary:
        """What its `repr` shows."""
        named = "" if self.schema.name is None else f" of {self.schema.name}"
        about = self.statement.summary()
        word = about.title if self.statement.strength is None else self.statement.strength.value
        size = {"nodes": f"{self.schema.num_nodes:,}", "edges": f"about {self.num_edges:,}"}
        return Summary(f"Graph release{named}", {"guarantee": word, **about.facts, **size})

    @property
    def certificate(self) -> str:
        """The certificate as Markdown."""
        return certificate.to_markdown(self.statement, self.checksums)

    @functools.cached_property
    def checksums(self) -> dict[str, str]:
        """SHA-256 of the model file, and of the edge list that was written with the release, by file name."""
        return {"model.safetensors": hashlib.sha256(self._arrays()).hexdigest(), **dict(self.tables)}

    @functools.cached_property
    def digest(self) -> str:
        """SHA-256 of what the release can sample and guarantee: the label of every synthetic edge list has it."""
        content = {
            "schema": self.schema.to_dict(),
            "arrays": self.checksums["model.safetensors"],
            "guarantee": guarantee_figures(self.statement),
        }
        return hashlib.sha256(json_bytes(content)).hexdigest()

    @property
    def label(self) -> Label:
        """What its synthetic edge lists say of themselves."""
        return Label(certificate=self.statement.headline, source="release", digest=self.digest)

    def sample(self, *, seed: int | None = None) -> pa.Table:
        """The edge list of a synthetic graph. Post-processing: free, as often as wanted.

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

    def _arrays(self) -> bytes:
        return safetensors.numpy.save({"degrees": self.degrees, "block_counts": self.block_counts})

    def with_table(self, path: str | os.PathLike[str]) -> "GraphRelease":
        """The same release, whose certificate also has the checksum of the edge list in this file."""
        digest = hashlib.sha256(Path(path).read_bytes()).hexdigest()
        return dataclasses.replace(self, tables=((Path(path).name, digest),))

    def save(self, folder: str | os.PathLike[str], *, force: bool = False) -> None:
        """Writes the release as a folder, completely or not at all."""
        files = {"model.safetensors": self._arrays(), **certificate_page.to_files(self.statement, self.checksums)}
        content = {
            "format": FORMAT,
            "format_version": FORMAT_VERSION,
            "understudy_version": __version__,
            "made_with": software_facts() if self.made_with is None else dict(self.made_with),
            "private": self.statement.is_private,
            "schema": self.schema.to_dict(),
            "sha256": {name: hashlib.sha256(data).hexdigest() for name, data in files.items()},
        }
        files["release.json"] = json_bytes({**content, "sha256_above": hashlib.sha256(json_bytes(content)).hexdigest()})
        with atomic_folder(folder, force=force, contents=RELEASE_FILES) as inside:
            for name, data in files.items():
                (inside / name).write_bytes(data)

    @classmethod
    def load(cls, folder: str | os.PathLike[str]) -> "GraphRelease":
        """Reads a release folder. Refuses one that is incomplete, altered or of another version."""
        folder = Path(folder)
        if not (folder / "release.json").exists() and read_record(folder) is not None:
            raise ReleaseError(
                f"{folder} is the record of a failed run: its budget was spent, and nothing was released. "
                f"'understudy certificate {folder}' shows it."
            )
        try:
            content = json.loads((folder / "release.json").read_bytes())
            if not is_graph_release(folder):
                raise ReleaseError(f"{folder} is not the release of a graph.")
            if content["format_version"] != FORMAT_VERSION:
                raise ReleaseError(
                    f"{folder} has graph release format {content['format_version']}; Understudy {__version__} reads "
                    f"only format {FORMAT_VERSION}. Use the version that wrote it."
                )
            files = _checked_files(folder, content)
            arrays = safetensors.numpy.load(files["model.safetensors"])
            certified = json.loads(files["certificate.json"])
            tables = tuple((name, sum_) for name, sum_ in certified["checksums"].items() if name not in files)
            if names_files(content["schema"]):
                raise ValueError("the schema of a release names no files")
            schema, statement = GraphSchema.from_dict(content["schema"]), certificate.from_json(certified)
            made_with = dict(content.get("made_with", {}))
            return cls(schema, arrays["degrees"], arrays["block_counts"], statement, tables, made_with)
        except OSError as error:
            raise ReleaseError(
                f"{folder} is not a release folder: {Path(error.filename or folder).name} cannot be read "
                f"({error.strerror})."
            ) from None
        except (
            LookupError,
            TypeError,
            ValueError,
            AttributeError,
            RecursionError,
            SchemaError,
            safetensors.SafetensorError,
        ) as error:
            raise ReleaseError(
                f"{folder} is not a complete release ({type(error).__name__}). Ask for the original."
            ) from error


def is_graph_release(folder: str | os.PathLike[str]) -> bool:
    """Whether this folder is the release of a graph, by the first lines of its release.json."""
    try:
        with open(Path(folder) / "release.json", "rb") as file:
            return f'"{FORMAT}"'.encode() in file.read(200)
    except OSError:
        return False


def _checked_files(folder: Path, content: Mapping) -> dict[str, bytes]:
    """The other files of the folder, none of which was altered."""
    above = {key: value for key, value in content.items() if key != "sha256_above"}
    files = {name: (folder / name).read_bytes() for name in RELEASE_FILES if name != "release.json"}
    noted = {**content["sha256"], "release.json": content["sha256_above"]}
    for name, data in {**files, "release.json": json_bytes(above)}.items():
        if hashlib.sha256(data).hexdigest() != noted[name]:
            raise ReleaseError(f"{folder / name} was altered after the release was made. Ask for the original.")
    return files


def import_networkx():  # type: ignore[no-untyped-def]
    """NetworkX, or one line that says how to get it."""
    try:
        import networkx
    except ModuleNotFoundError:
        raise ConfigError("This needs NetworkX. Install it with: pip install 'understudy[graph]'") from None
    return networkx
