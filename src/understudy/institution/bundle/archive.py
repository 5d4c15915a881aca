"""The zip file of a bundle. The same files always give the same bytes, and reading accepts those bytes alone.

Files are stored without compression, in the order of their names, with one fixed time and no other attributes. So a
reader needs no trust in sizes that a file states about itself: nothing can expand, overlap or hide between entries.
Every program that opens zip files can open one.

`zipfile` accepts many forms of one file. So what is read is written again, to a stream that only compares.
"""

import dataclasses
import hashlib
import io
import re
import struct
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import IO, BinaryIO, cast

from understudy.errors import BundleError

MAX_FILES = 1000
MAX_DOCUMENT = 2**26
"""Bytes of a file that is read into memory. Tables are not."""

_UNREADABLE = (zipfile.BadZipFile, struct.error, ValueError, RuntimeError, EOFError, OverflowError)
"""The errors that `zipfile` raises for files that it cannot read."""
_CHUNK = 2**20


class Malformed(Exception):
    """What is read is not the zip file of a bundle as Understudy writes it. The text says where it differs."""


@dataclasses.dataclass(frozen=True)
class Measured:
    """Size and checksum of a file."""

    size: int
    sha256: str
    data: bytes | None = None
    """The content of a document that was read from a bundle. Of a table, only the checksum is kept."""


def measure(content: bytes | Path) -> Measured:
    """Size and checksum of some bytes, or of a file."""
    with _open(content) as file:
        return _copy(file)


def write_archive(file: BinaryIO, contents: Mapping[str, bytes | Path], measured: Mapping[str, Measured]) -> None:
    """Writes files by name; `measured` are their checksums, which must still be right when a file is copied."""
    with zipfile.ZipFile(file, "w") as archive:
        for name in sorted(contents):
            with _open(contents[name]) as source, archive.open(_entry(name, measured[name].size), "w") as target:
                copied = _copy(source, target)
            if copied.sha256 != measured[name].sha256:
                raise BundleError(
                    f"{name} changed while it was copied. Nothing was written. Bundle an unchanging file.",
                    reason="changed",
                )


def read_archive(file: BinaryIO) -> dict[str, Measured]:
    """The files of a bundle by name.

    Formal guarantee: exactly the bytes that `write_archive` gives for the returned files are accepted; all else is
    `Malformed`. So no byte of the zip file is without effect.
    """
    members: dict[str, Measured] = {}
    again = _Comparison(file)
    try:
        with zipfile.ZipFile(cast(BinaryIO, _Bounded(file))) as archive, zipfile.ZipFile(again, "w") as copy:
            names = archive.namelist()
            _check_names(names)
            for name, info in zip(names, archive.infolist(), strict=True):
                _check_entry(info, again.tell())
                with archive.open(info) as source, copy.open(_entry(name, info.file_size), "w") as target:
                    members[name] = _copy(source, target, keep=not name.startswith("tables/"))
    except _UNREADABLE:
        raise Malformed("it is cut or damaged") from None
    if again.differs():
        raise Malformed("a header, its list of files, or what is before or after them is not as Understudy writes it")
    return members


def is_plain(name: str) -> bool:
    """Whether a name, also one with folders, means the same file on every system, and lies inside the bundle."""
    parts = name.split("/")
    return name.isprintable() and not re.search(r'[\\:*?"<>|]', name) and not {"", ".", ".."} & set(parts)


def _check_names(names: list[str]) -> None:
    if len(names) > MAX_FILES:
        raise Malformed(f"it has more than {MAX_FILES} files")
    if not all(map(is_plain, names)):
        odd = next(name for name in names if not is_plain(name))
        raise Malformed(f"it has the file name {odd[:60]!r}, which is not a plain name")
    if names != sorted(set(names)):
        raise Malformed("a file is in it twice, or its files are not in order of their names")


def _check_entry(info: zipfile.ZipInfo, expected_offset: int) -> None:
    """What must hold before a file is read: it starts where the one before ends, and does not expand."""
    name = info.orig_filename
    if info.compress_type != zipfile.ZIP_STORED or info.compress_size != info.file_size:
        raise Malformed(f"{name!r} is compressed")
    if info.header_offset != expected_offset:
        raise Malformed(f"{name!r} is not where the file before it ends")
    if not name.startswith("tables/") and info.file_size > MAX_DOCUMENT:
        raise Malformed(f"{name!r} is larger than any document of a bundle")


def _entry(name: str, size: int) -> zipfile.ZipInfo:
    """A file as bundles have it: of the first day of 1980, the earliest that zip knows, and readable by all."""
    entry = zipfile.ZipInfo(name)
    entry.file_size, entry.create_system, entry.external_attr = size, 3, 0o100644 << 16
    return entry


def _open(content: bytes | Path) -> IO[bytes]:
    return io.BytesIO(content) if isinstance(content, bytes) else content.open("rb")


def _copy(source: IO[bytes], target: IO[bytes] | None = None, *, keep: bool = False) -> Measured:
    """Size and checksum of what is read from a stream and written to the other one."""
    size, digest, data = 0, hashlib.sha256(), bytearray()
    while chunk := source.read(_CHUNK):
        size += len(chunk)
        digest.update(chunk)
        if target is not None:
            target.write(chunk)
        if keep:
            data += chunk
    return Measured(size, digest.hexdigest(), bytes(data) if keep else None)


class _Bounded:
    """A file read in small pieces only: `zipfile` reads its list of files at once, and makes an object of each."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self.seek, self.tell, self.seekable = file.seek, file.tell, file.seekable

    def read(self, size: int = -1) -> bytes:
        if size > _CHUNK:
            raise Malformed(f"its list of files is longer than {_CHUNK:,} bytes")
        return self._file.read(size if size >= 0 else _CHUNK)


class _Comparison(io.RawIOBase):
    """A stream to write to that stores nothing. What is written last at each place should equal the file there."""

    def __init__(self, file: BinaryIO) -> None:
        self._file, self._position, self._end = file, 0, 0
        self._different: set[int] = set()
        """Places where other bytes were written. `zipfile` writes each header twice, first without a checksum."""

    def differs(self) -> bool:
        """Whether the file differs from what was written, or has another length."""
        return bool(self._different) or self._file.seek(0, io.SEEK_END) != self._end

    def write(self, data: bytes) -> int:  # type: ignore[override]  # zipfile writes bytes
        self._file.seek(self._position)
        if self._file.read(len(data)) == data:
            self._different.discard(self._position)
        else:
            self._different.add(self._position)
        self._position += len(data)
        self._end = max(self._end, self._position)
        return len(data)

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._position

    def seek(self, position: int, whence: int = io.SEEK_SET) -> int:
        self._position = position
        return position
