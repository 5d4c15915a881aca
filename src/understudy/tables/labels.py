"""Labels: what a synthetic table says of itself, in the metadata of Arrow and Parquet files and in a file beside it.

Reading a label never reads a row.
"""

import contextlib
import dataclasses
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq

from understudy.errors import UnderstudyError
from understudy.tables.path import TablePath

PREFIX = "understudy."
SYNTHETIC = f"{PREFIX}synthetic"
SIDECAR = ".datapackage.json"
MAX_BYTES = 2**24
"""A larger file is not the description of a table, and is not read."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Label:
    """Says that a table is synthetic, what it was made from, and under which guarantee."""

    certificate: str
    """The guarantee in one line."""
    source: Literal["release", "schema"] | None = None
    """What the rows were made from; None: neither, such as the samples of somebody else's generator."""
    digest: str = ""
    """The SHA-256 of that release or schema."""

    def to_metadata(self) -> dict[str, str]:
        """The label as keys and values, as files and frames carry it."""
        made_from = {} if self.source is None else {f"{PREFIX}{self.source}": self.digest}
        return {SYNTHETIC: "true", **made_from, f"{PREFIX}certificate": self.certificate}


def attach_label(table: pa.Table, label: Label) -> pa.Table:
    """The table with the label in its schema metadata."""
    return table.replace_schema_metadata({**(table.schema.metadata or {}), **label.to_metadata()})


def label_metadata(schema: pa.Schema) -> dict[str, str]:
    """The label in the metadata of a schema, and nothing else of it; empty without one."""
    known = {_text(key): _text(value) for key, value in (schema.metadata or {}).items()}
    return {key: value for key, value in known.items() if key.startswith(PREFIX)} if SYNTHETIC in known else {}


def _text(value: bytes) -> str:
    return value.decode(errors="replace")


def sidecar_path(table_path: TablePath) -> Path:
    """fake.csv -> fake.csv.datapackage.json; base.duckdb::people -> base.duckdb-people.datapackage.json."""
    table = "" if table_path.table is None else f"-{table_path.table.replace(os.sep, '_')}"
    return table_path.path.with_name(f"{table_path.path.name}{table}{SIDECAR}")


_UNREADABLE = (UnderstudyError, OSError, ValueError, pa.ArrowException, duckdb.Error, RecursionError)
"""What reading the label of a file may raise."""


def is_sample_of(path: str | os.PathLike[str], digest: str, release: str) -> bool:
    """Whether a file with this SHA-256 says that it was sampled from the release with that one. Reads no row.

    A file of another name or content beside a data package is not the one that it describes.
    """
    with contextlib.suppress(*_UNREADABLE, LookupError, TypeError):
        table_path = TablePath.parse(os.fspath(path))
        if label := label_metadata(_file_schema(table_path)):
            return label.get(f"{PREFIX}release") == release
        package = _read_sidecar(sidecar_path(table_path))
        named = (package["synthetic"], package["release"]["sha256"], package["resources"][0]["hash"])
        return named == (True, release, f"sha256:{digest}")
    return False


def says_synthetic(source: object) -> bool:
    """Whether a frame or a file says that it is synthetic. Never fails, and reads no row."""
    if isinstance(source, str | os.PathLike):
        with contextlib.suppress(*_UNREADABLE):
            table_path = TablePath.parse(os.fspath(source))
            return (
                bool(label_metadata(_file_schema(table_path)))
                or _read_sidecar(sidecar_path(table_path)).get("synthetic") is True
            )
        return False
    attributes = getattr(source, "attrs", None)  # of a pandas frame
    if isinstance(attributes, Mapping) and attributes.get(SYNTHETIC) == "true":
        return True
    schema = getattr(source, "schema", None)
    return isinstance(schema, pa.Schema) and bool(label_metadata(schema))


def _file_schema(table_path: TablePath) -> pa.Schema:
    if table_path.suffix == ".parquet" and table_path.path.is_file():
        return pq.read_schema(table_path.path)
    if table_path.suffix in (".arrow", ".feather") and table_path.path.is_file():
        with pa.memory_map(str(table_path.path)) as file:
            with contextlib.suppress(pa.ArrowInvalid):
                return pa.ipc.open_file(file).schema
            file.seek(0)
            with contextlib.suppress(pa.ArrowInvalid):  # an old Feather file has no metadata of this kind
                return pa.ipc.open_stream(file).schema
    return pa.schema([])


def _read_sidecar(path: Path) -> dict[str, Any]:
    """The data package in a file; empty if there is none."""
    if not path.is_file() or path.stat().st_size > MAX_BYTES:
        return {}
    content = json.loads(path.read_bytes())
    return content if isinstance(content, dict) else {}
