"""Peers: methods of other packages, which run beside those of Understudy.

A suite names a file that describes a peer; the function `read_peer` of `peers.py` beside that file reads it. The
repository has such a folder: `benchmarks/peers`.
"""

import functools
import importlib.util
from collections.abc import Sequence
from pathlib import Path
from typing import Literal, NamedTuple, Protocol

import pyarrow as pa

from understudy.errors import ConfigError, UnderstudyError
from understudy.schema import Schema


class PeerError(UnderstudyError):
    """A peer failed to produce synthetic rows."""

    def __init__(self, message: str, *, reason: Literal["time", "memory", "died", "error", "install"]) -> None:
        super().__init__(message)
        self.reason = reason
        """The reason in the `failure` of a result; install: the peer cannot run on this machine."""


class PeerResult(NamedTuple):
    """The synthetic rows of a peer."""

    table: pa.Table
    version: str | None
    """The installed version of the peer."""
    seconds: float
    """The time of fit and sampling alone."""


class Peer(Protocol):
    """Another package."""

    @property
    def name(self) -> str: ...

    @property
    def digest(self) -> str:
        """A hash of everything that its rows depend on."""

    @property
    def footnotes(self) -> Sequence[str]:
        """What readers of its figures should know, such as its privacy defects."""

    def check(self, method: str) -> None:
        """Raises ConfigError for a method or an argument that the peer does not have."""

    def prepare(self, root: Path) -> None:
        """Makes an environment for it in a folder, unless it is there; raises PeerError if that is impossible."""

    def synthesize(
        self,
        method: str,
        train: pa.Table,
        schema: Schema,
        *,
        epsilon: float,
        delta: float,
        seed: int,
        num_rows: int,
        target: str | None,
        root: Path,
    ) -> PeerResult:
        """Synthetic rows in the columns of the schema; `root` is the folder of environments."""


@functools.cache
def read_peer(file: str) -> Peer:
    """The peer that a file describes."""
    reader = Path(file).parent / "peers.py"
    spec = importlib.util.spec_from_file_location("understudy_peers", reader.resolve())
    if spec is None or spec.loader is None or not reader.is_file():
        raise ConfigError(f"There is no {reader} to read the peer {file}. Check the path.", setting=file)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    peer: Peer = module.read_peer(file)
    return peer
