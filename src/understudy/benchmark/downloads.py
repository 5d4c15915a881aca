"""Downloads public tables from their original sources into the data folder, and verifies them."""

import gzip
import http.client
import io
import os
import urllib.error
import urllib.request
import zipfile
import zlib
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from understudy.benchmark.catalogue import Download, FileEntry, TableEntry, describe_table, read_catalogue
from understudy.benchmark.raw_formats import MAX_BYTES, READERS, gunzip, read_idx
from understudy.benchmark.sources import content_checksum, data_folder, image_checksum, verify_file
from understudy.errors import ConfigError, TableError
from understudy.run.atomic import atomic_path

TIMEOUT = 60.0
"""Seconds without an answer after which a download fails."""
"""Of one download or one file in an archive: the largest raw file of the catalogue has 10 MB."""


def fetchable_names() -> list[str]:
    """The tables, and images, that `fetch_table` can download.

    >>> fetchable_names()[:3]
    ['adult', 'bank', 'car']
    """
    return [name for name, entry in read_catalogue().items() if entry.download]


def fetch_table(
    name: str,
    folder: str | os.PathLike[str] | None = None,
    *,
    mirror: str | None = None,
    timeout: float = TIMEOUT,
) -> list[Path]:
    """Downloads a table, checks its content and writes its files; returns their paths.

    `folder` is the data folder, created if it does not exist; default: that of `data_folder()`. `mirror` is an
    address or a folder with the raw files under their own names, for machines that cannot reach the public ones. Files
    that are already there and correct are kept. If anything fails, nothing is written.

    >>> fetch_table("xor3")
    Traceback (most recent call last):
    understudy.errors.ConfigError: xor3 needs no download: load_table('xor3') computes it.
    """
    entry = describe_table(name)
    if entry.download is None:
        raise ConfigError(_why_not(entry))
    where = data_folder(folder)
    missing = [file for file in entry.files if not _is_there(where / file.name, file)]
    if missing:
        raw = _fetch_raw(entry, entry.download, mirror, timeout)
        converted = [(file, _convert(entry, file, raw)) for file in missing]  # all are checked before one is written
        _create(where)
        for file, write in converted:
            with atomic_path(where / file.name, force=True, errors=(pa.ArrowException,)) as part:
                write(part)
    return [where / file.name for file in entry.files]


def _why_not(entry: TableEntry) -> str:
    if entry.source == "folder":
        return f"{entry.name} cannot be downloaded. {entry.how}"
    if entry.source == "package":
        return f"{entry.name} needs no download: it is in the package {entry.package}."
    return f"{entry.name} needs no download: load_table({entry.name!r}) computes it."


def _is_there(path: Path, file: FileEntry) -> bool:
    """A file that differs is not overwritten: it may be somebody's work."""
    if not path.is_file():
        return False
    verify_file(path, file)
    return True


def _create(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise TableError(f"{folder} cannot be created: {error.strerror}. Choose another folder.") from None


# ---------------------------------------------------------------------------------------------------------- conversion


def _convert(entry: TableEntry, file: FileEntry, raw: dict[str, bytes]) -> Callable[[Path], None]:
    """The function that writes this file, once its content has been checked."""
    if entry.images:
        arrays = read_idx(entry, raw)
        _require_content(entry, file, image_checksum(arrays))
        return lambda path: _write_images(path, arrays)
    assert entry.download is not None
    table = READERS[entry.download.format](entry, file, raw)
    _require_content(entry, file, content_checksum(table))
    return lambda path: pq.write_table(table, path, compression="zstd")


def _require_content(entry: TableEntry, file: FileEntry, found: str) -> None:
    if found != file.content:
        raise TableError(
            f"{entry.name} at its source differs from the catalogue: expected content {file.content[:12]}, "
            f"found {found[:12]}. Nothing was written. Look for a notice of a new version at {entry.homepage}."
        )


def _write_images(path: Path, arrays: dict[str, np.ndarray]) -> None:
    with path.open("wb") as file:
        np.savez_compressed(file, **arrays)  # type: ignore[arg-type]  # of numpy's keyword `allow_pickle`


# ------------------------------------------------------------------------------------------------------------ raw files


def _fetch_raw(entry: TableEntry, download: Download, mirror: str | None, timeout: float) -> dict[str, bytes]:
    """Every raw file that the table is made of, by its name in the catalogue."""
    fetched = {_last(address): _fetch(entry, address, mirror, timeout) for address in download.addresses}
    archives = [name for name in fetched if name.endswith(".zip")]
    members = {
        file.member: _extract(fetched[archives[0]], file.member, archives[0]) for file in entry.files if archives
    }
    return fetched | members


def _last(address: str) -> str:
    return address.rsplit("/", 1)[-1]


def _fetch(entry: TableEntry, address: str, mirror: str | None, timeout: float) -> bytes:
    if mirror is not None:
        if not mirror.startswith(("http://", "https://")):
            return _read_local(Path(mirror) / _last(address))
        address = f"{mirror.rstrip('/')}/{_last(address)}"
    request = urllib.request.Request(address, headers={"User-Agent": "understudy"})
    try:
        with urllib.request.urlopen(request, timeout=timeout) as answer:
            expected = answer.headers.get("Content-Length")
            content = answer.read(MAX_BYTES + 1)
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
            found = _member(opened, (first, f"{first}.gz"), name)
            content = _read_member(opened, found, name)
        content = gunzip(content) if found.filename.endswith(".gz") else content
    except (zipfile.BadZipFile, zlib.error, EOFError, gzip.BadGzipFile):
        raise TableError(
            f"{name} is truncated or damaged, so {member} cannot be read from it. Fetch it again."
        ) from None
    return _extract(content, rest, first) if rest else content


def _member(opened: zipfile.ZipFile, names: Sequence[str], archive: str) -> zipfile.ZipInfo:
    """By the last part of its path: publishers add and remove folders."""
    for info in opened.infolist():
        if _last(info.filename) in names:
            return info
    raise TableError(f"{archive} has no file {names[0]}. The publisher may have changed it.")


def _read_member(opened: zipfile.ZipFile, info: zipfile.ZipInfo, archive: str) -> bytes:
    if info.file_size > MAX_BYTES:
        raise TableError(f"{info.filename} in {archive} is larger than {MAX_BYTES // 2**20} MB: not the table.")
    return opened.read(info)
