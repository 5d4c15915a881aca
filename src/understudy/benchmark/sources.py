"""The folder of public tables: where it is, and whether its files match the catalogue."""

import hashlib
import os
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from understudy.benchmark.catalogue import FileEntry, TableEntry, read_catalogue
from understudy.errors import ConfigError, TableError, did_you_mean

VARIABLE = "UNDERSTUDY_DATA"

_verified: set[tuple[str, int, int]] = set()
"""Path, size and time of change of files that were compared with the catalogue."""


def data_folder(folder: str | os.PathLike[str] | None = None) -> Path:
    """The folder given, else the one that UNDERSTUDY_DATA names, else a cache folder of the user."""
    if folder is not None:
        return Path(folder)
    if not (named := os.environ.get(VARIABLE)):
        return cache_folder()
    if not Path(named).is_dir():
        raise TableError(f"{VARIABLE} names {named}, which is not a folder. Create it, or name another one.")
    return Path(named)


def cache_folder() -> Path:
    """Where downloaded tables are kept if UNDERSTUDY_DATA is not set; it may not exist yet."""
    if named := os.environ.get("XDG_CACHE_HOME"):
        return Path(named) / "understudy"
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA") or Path.home() / "AppData/Local") / "understudy" / "Cache"
    return Path.home() / ("Library/Caches" if sys.platform == "darwin" else ".cache") / "understudy"


def content_checksum(table: pa.Table) -> str:
    """SHA-256 of names, types, nulls and values, whatever the encoding, the chunks and the metadata."""
    digest = hashlib.sha256(f"{table.num_rows} rows".encode())
    for field, column in zip(table.schema, table.columns, strict=True):
        digest.update(f"\n{field.name}\t{field.type}\n".encode())
        digest.update(np.packbits(column.is_null().to_numpy()).tobytes())
        digest.update(_value_bytes(column))
    return digest.hexdigest()


def _value_bytes(column: pa.ChunkedArray) -> bytes:
    if pa.types.is_string(column.type):
        encoded = column.fill_null("").combine_chunks().dictionary_encode()
        values = np.asarray(encoded.dictionary.to_pylist(), dtype=object)
        order = np.argsort(values)  # the dictionary is in order of appearance, which chunks may change
        ranks = np.empty(len(order), dtype="<i4")
        ranks[order] = np.arange(len(order))
        return bytes("\0".join(values[order]).encode() + ranks[encoded.indices.to_numpy()].tobytes())
    values = column.fill_null(False if pa.types.is_boolean(column.type) else 0).to_numpy()
    return bytes(values.astype(np.uint8 if values.dtype == bool else values.dtype.newbyteorder("<")).tobytes())


def read_source(stem: str, *, folder: str | os.PathLike[str] | None = None) -> pa.Table:
    """One Parquet file of the data folder, whole, checked against the catalogue.

    `stem` is the name of the file without its extension, such as "adult_train" or "bank".
    """
    known = {Path(file.name).stem: (entry, file) for entry in read_catalogue().values() for file in entry.files}
    if stem not in known:
        raise ConfigError(f"There is no benchmark file {stem!r}.{did_you_mean(stem, known)}", setting="file")
    entry, file = known[stem]
    path = data_folder(folder) / file.name
    if not path.is_file():
        raise TableError(f"{path} does not exist. {how_to_get(entry)}")
    verify_file(path, file)
    return pq.read_table(path)


def how_to_get(entry: TableEntry) -> str:
    """What the user should do to get this table."""
    return f"Get it with: understudy benchmark fetch {entry.name}" if entry.download else entry.how


def verify_file(path: Path, file: FileEntry) -> None:
    """Refuses a file that differs from the catalogue. Other bytes that hold the same table are accepted."""
    facts = path.stat()
    key = (os.path.realpath(path), facts.st_size, facts.st_mtime_ns)
    if key in _verified:
        return
    with path.open("rb") as opened:
        digest = hashlib.file_digest(opened, "sha256").hexdigest()
    if digest != file.sha256 and (digest := _content_of(path)) != file.content:
        raise TableError(
            f"{path} is not the published table: expected content {file.content[:12]}, found {digest[:12]}. "
            "Move it away and fetch it again."
        )
    _verified.add(key)


def _content_of(path: Path) -> str:
    """The checksum of the content, or "none" where the file cannot be read."""
    try:
        return content_checksum(pq.read_table(path))
    except (pa.ArrowException, OSError, ValueError):
        return "none"
