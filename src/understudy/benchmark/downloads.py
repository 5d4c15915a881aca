"""Downloads public tables from their original sources into the data folder, and verifies them."""

import gzip
import http.client
import io
import os
import urllib.error
import urllib.request
import zipfile
import zlib
from pathlib import Path
from posixpath import basename

import pyarrow as pa
import pyarrow.parquet as pq

from understudy.benchmark.catalogue import Download, FileEntry, TableEntry, describe_table
from understudy.benchmark.raw_formats import READERS
from understudy.benchmark.sources import content_checksum, data_folder, verify_file
from understudy.errors import ConfigError, TableError
from understudy.run.atomic import atomic_path

MAX_BYTES = 200 * 2**20
"""The largest raw file of a table."""
TIMEOUT = 60.0
"""Seconds without an answer after which a download fails."""


def fetch_table(
    name: str, folder: str | os.PathLike[str] | None = None, *, mirror: str | None = None, timeout: float = TIMEOUT
) -> list[Path]:
    """Downloads a table, checks its content and writes its files; returns their paths.

    `folder` is the data folder, created if it does not exist; default: that of `data_folder()`. `mirror` is an
    address or a folder with the raw files under their own names, for machines that cannot reach the public ones. Files
    that are already there and correct are kept. If anything fails, nothing is written.
    """
    entry = describe_table(name)
    if entry.download is None:
        how = entry.how if entry.source == "folder" else f"It is in the package {entry.package}: load_table reads it."
        raise ConfigError(f"{entry.name} cannot be downloaded. {how}")
    where = data_folder(folder)
    missing = [file for file in entry.files if not (where / file.name).is_file()]
    for file in entry.files:
        if file not in missing:  # one that differs is not overwritten: it may be somebody's work
            verify_file(where / file.name, file)
    if missing:
        raw = _fetch_raw(entry, entry.download, mirror, timeout)
        tables = {file.name: _read_table(entry, file, raw) for file in missing}  # all are checked before one is written
        try:
            where.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise TableError(f"{where} cannot be created: {error.strerror}. Choose another folder.") from None
        for file_name, table in tables.items():
            with atomic_path(where / file_name, force=True, errors=(pa.ArrowException,)) as part:
                pq.write_table(table, part, compression="zstd")
    return [where / file.name for file in entry.files]


def _read_table(entry: TableEntry, file: FileEntry, raw: dict[str, bytes]) -> pa.Table:
    """The rows of a file of the data folder, checked."""
    assert entry.download is not None
    table = READERS[entry.download.format](entry, file, raw)
    if (checksum := content_checksum(table)) != file.content:
        raise TableError(
            f"{entry.name} at its source differs from the catalogue: expected content {file.content[:12]}, "
            f"found {checksum[:12]}. Nothing was written. Look for a notice of a new version at {entry.homepage}."
        )
    return table


# ------------------------------------------------------------------------------------------------------------ raw files


def _fetch_raw(entry: TableEntry, download: Download, mirror: str | None, timeout: float) -> dict[str, bytes]:
    """Every raw file that the table is made of, by its name in the catalogue."""
    fetched = {basename(address): _fetch(entry, address, mirror, timeout) for address in download.addresses}
    archives = [name for name in fetched if name.endswith(".zip")]
    members = {
        file.member: _extract(fetched[archives[0]], file.member, archives[0]) for file in entry.files if archives
    }
    return fetched | members


def _fetch(entry: TableEntry, address: str, mirror: str | None, timeout: float) -> bytes:
    if mirror is not None:
        if not mirror.startswith(("http://", "https://")):
            return _read_local(Path(mirror) / basename(address))
        address = f"{mirror.rstrip('/')}/{basename(address)}"
    request = urllib.request.Request(address, headers={"User-Agent": "understudy"})
    try:
        with urllib.request.urlopen(request, timeout=timeout) as answer:
            expected = answer.headers.get("Content-Length")
            content: bytes = answer.read(MAX_BYTES + 1)
    except urllib.error.HTTPError as error:
        error.close()
        raise TableError(f"{address} answered {error.code} ({error.reason}). See {entry.homepage}.") from None
    except (TimeoutError, urllib.error.URLError, http.client.HTTPException, OSError) as error:
        raise TableError(f"{address} {_failure(error, timeout)}") from None
    if len(content) > MAX_BYTES:
        raise TableError(f"{address} is larger than {MAX_BYTES // 2**20} MB, so it is not the table {entry.name}.")
    if expected is not None and len(content) != int(expected):
        raise TableError(f"{address} was truncated after {len(content):,} of {int(expected):,} bytes. Fetch it again.")
    return content


def _failure(error: Exception, timeout: float) -> str:
    """What happened, and what to do next."""
    reason = error.reason if isinstance(error, urllib.error.URLError) else error
    if isinstance(reason, TimeoutError):
        return f"did not answer within {timeout:g} seconds. Try again later."
    if isinstance(reason, http.client.IncompleteRead):
        return "was truncated during the download. Fetch it again."
    said = getattr(reason, "strerror", None) or type(reason).__name__
    return f"cannot be reached ({said}). Check the network, or use a copy of the raw files as a mirror."


def _read_local(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise TableError(f"{path} cannot be read: {error.strerror}. The mirror must have the raw files.") from None


def _extract(archive: bytes, member: str, name: str) -> bytes:
    """A file of a zip archive; `inner.zip/file` is one in an archive inside it. It may also be compressed with gzip."""
    first, _, rest = member.partition("/") if ".zip/" in member else (member, "", "")
    try:
        with zipfile.ZipFile(io.BytesIO(archive)) as opened:
            # By the last part of its path: publishers add and remove folders.
            infos = [info for info in opened.infolist() if basename(info.filename) in (first, f"{first}.gz")]
            if not infos:
                raise TableError(f"{name} has no file {first}. The publisher may have changed it.")
            if infos[0].file_size > MAX_BYTES:
                raise TableError(f"{member} in {name} is larger than {MAX_BYTES // 2**20} MB: not the table.")
            content = opened.read(infos[0])
        content = _gunzip(content) if infos[0].filename.endswith(".gz") else content
    except (zipfile.BadZipFile, zlib.error, EOFError, gzip.BadGzipFile):
        raise TableError(
            f"{name} is truncated or damaged, so {member} cannot be read from it. Fetch it again."
        ) from None
    return _extract(content, rest, first) if rest else content


def _gunzip(raw: bytes) -> bytes:
    """Refuses what would become larger than any table, before it fills the memory."""
    with gzip.GzipFile(fileobj=io.BytesIO(raw)) as file:
        content = file.read(MAX_BYTES + 1)
    if len(content) > MAX_BYTES:
        raise TableError(f"A compressed file is larger than {MAX_BYTES // 2**20} MB, so it is not the table.")
    return content
