"""Methods of other packages, each package in an environment of its own.

A peer is described by `NAME.toml` and called by `adapters/NAME.py`, a script that runs in the peer's environment and
imports nothing of Understudy. Rows are encoded and decoded here, so every peer gets the same integer
codes over the same public domain, and none has to infer a domain from the data.
"""

import dataclasses
import json
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import warnings
from pathlib import Path

import jax
import numpy as np
import pyarrow as pa
import pyarrow.csv as pacsv
from jaxtyping import Int

from benchmarks.peers.description import Peer
from benchmarks.peers.environment import (
    build_environment,
    environment_python,
    environment_variables,
    last_line,
    peer_version,
)
from understudy.api import fit
from understudy.benchmark.peers import PeerError, PeerResult
from understudy.encoding import Codec
from understudy.errors import ConfigError, TableError, UnderstudyWarning, did_you_mean
from understudy.privacy.mechanisms.discovery import Binning
from understudy.schema import Schema


def run_peer(
    peer: Peer,
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
    timeout: float | None = None,
    max_bins: int = 32,
) -> PeerResult:
    """Synthetic rows from a method of a peer, in the columns of the schema.

    `method` is a name or an expression such as `aim(degree=3)`. The schema must declare all bounds and categories:
    numbers are cut into `max_bins` bins of equal width between their bounds, and the peer sees only
    the codes and the size of each column. `root` is the folder of environments.
    """
    chosen, arguments = peer.require(method)
    codec = public_codec(train, schema, max_bins=max_bins)
    names = [f"c{index}" for index in range(len(codec.columns))]
    if target is not None and target not in codec.domain.names:
        raise ConfigError(
            f"The target {target!r} is not among the columns of the schema.{did_you_mean(target, codec.domain.names)}",
            setting="target",
        )
    task = {
        "method": chosen.name,
        "arguments": arguments,
        "sizes": dict(zip(names, codec.domain.sizes, strict=True)),
        "target": None if target is None else names[codec.domain.names.index(target)],
        "epsilon": epsilon,
        "delta": delta,
        "seed": seed,
        "num_rows": num_rows,
        "codes": "codes.csv",
        "output": "synthetic.csv",
    }
    what, environment = f"{chosen.title} of {peer.title}", build_environment(peer, root)
    with tempfile.TemporaryDirectory(prefix="understudy-peer-") as scratch:
        folder = Path(scratch)
        shutil.copy(peer.adapter, folder / "adapter.py")  # away from the others: its name would shadow the package
        (folder / "task.json").write_text(json.dumps(task))
        codes = codec.encode(train)
        pacsv.write_csv(pa.table({name: codes[:, index] for index, name in enumerate(names)}), folder / "codes.csv")
        began = time.perf_counter()
        _run_adapter(what, environment, folder, seed=seed, timeout=timeout)
        seconds = time.perf_counter() - began
        synthetic = _read_codes(what, folder / "synthetic.csv", codec, num_rows)
    table = codec.decode(synthetic, key=jax.random.key(seed))
    return PeerResult(table, peer_version(peer, environment), seconds)


def public_codec(train: pa.Table, schema: Schema, *, max_bins: int = 32) -> Codec:
    """The codec of a schema that leaves nothing to be estimated. Reads the number of rows, but no values.

    >>> schema = Schema.from_toml('[columns.age]\\nkind = "integer"\\nbounds = [0, 99]')
    >>> public_codec(pa.table({"age": [17, 90]}), schema, max_bins=10).domain.sizes
    (11,)
    """
    undeclared = [column.name for column in schema.modelled if column.estimated]
    if undeclared:
        raise ConfigError(
            f"Peers need a declared domain. Declare the bounds or categories of: {', '.join(undeclared)}."
        )
    if schema.max_rows_per_unit > 1:
        raise ConfigError("Peers protect single rows, but the schema allows several rows per unit. Use another table.")
    missing = [column.name for column in schema.modelled if column.name not in train.column_names]
    if missing:
        raise TableError(f"The table has no column {missing[0]!r}, which the schema declares.", column=missing[0])
    declared = dataclasses.replace(schema, rows=schema.rows or max(train.num_rows, 1))
    # Everything is declared, so the codec is the same for every table: that of a run without rows.
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UnderstudyWarning)
        binning = Binning(bins="uniform", max_bins=max_bins)
        return fit(train.slice(0, 0), "independent", epsilon=1, schema=declared, binning=binning, seed=0).codec


def _run_adapter(what: str, environment: Path, folder: Path, *, seed: int, timeout: float | None) -> None:
    """Runs the adapter in a folder. Its stderr goes to a file: a process it leaves behind cannot block us."""
    variables = {**environment_variables(), "PYTHONHASHSEED": str(seed % 2**32)}
    # The kernel ends the adapter with this process, so that a killed run leaves no peer behind.
    start = "import runpy, sys; sys.argv = ['adapter.py', 'task.json']; runpy.run_path('adapter.py', None, '__main__')"
    if sys.platform == "linux":
        start = f"import ctypes; ctypes.CDLL(None).prctl(1, 9); {start}"
    command = [str(environment_python(environment)), "-c", start]
    log = folder / "stderr.txt"
    with log.open("wb") as errors:
        process = subprocess.Popen(
            command,
            cwd=folder,
            env=variables,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=errors,
        )
        try:
            code = process.wait(timeout)
        except subprocess.TimeoutExpired:
            raise PeerError(f"{what} took longer than {timeout:g} s and was stopped.", reason="time") from None
        finally:
            process.kill()
            process.wait()
    if code < 0:
        raise PeerError(f"{what} was killed by {signal.Signals(-code).name}.", reason="died")
    if code > 0:
        said = last_line(log.read_text(errors="replace"))
        raise PeerError(f"{what} failed: {said}", reason="memory" if "MemoryError" in said else "error")


def _read_codes(what: str, path: Path, codec: Codec, num_rows: int) -> Int[np.ndarray, "rows columns"]:
    """The codes that an adapter wrote, checked against the domain."""
    names, sizes = [f"c{index}" for index in range(len(codec.columns))], np.asarray(codec.domain.sizes)
    if not path.exists():
        raise PeerError(f"{what} wrote no rows.", reason="error")
    try:
        table = pacsv.read_csv(path).select(names)
    except (pa.ArrowInvalid, KeyError):
        raise PeerError(f"{what} did not write a table with all {len(names)} columns.", reason="error") from None
    if table.num_rows != num_rows:
        raise PeerError(f"{what} wrote {table.num_rows} rows, expected {num_rows}.", reason="error")
    if not all(pa.types.is_integer(field.type) for field in table.schema) or any(c.null_count for c in table.columns):
        raise PeerError(f"{what} wrote values that are not whole numbers.", reason="error")
    codes = np.column_stack([column.to_numpy() for column in table.columns])
    if codes.size and ((codes < 0) | (codes >= sizes)).any():
        raise PeerError(f"{what} wrote codes outside the domain.", reason="error")
    return codes.astype(np.int32)
