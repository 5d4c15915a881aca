"""The zip file of a bundle. The same files always give the same bytes, and reading accepts those bytes alone.

Files are stored without compression, in the order of their names, with one fixed time and no other attributes. So a
reader needs no trust in sizes that a file states about itself: nothing can expand, overlap or hide between entries.
Every program that opens zip files can open one.
"""

import dataclasses
import hashlib
import re
import struct
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import BinaryIO

from understudy.errors import BundleError

MAX_BYTES = 2**32 - 1
"""Of a bundle. Larger zip files have another form."""
MAX_FILES = 1000
MAX_DOCUMENT = 2**26
"""Bytes of a file that is read into memory. Tables are not."""

_LOCAL, _CENTRAL, _END = b"PK\3\4", b"PK\1\2", b"PK\5\6"
_LOCAL_FORM, _CENTRAL_FORM, _END_FORM = (struct.Struct(form) for form in ("<4s5H3L2H", "<4s6H3L5H2L", "<4s4H2LH"))
_VERSION, _UTF8, _STORED, _TIME, _DATE = 20, 0x800, 0, 0, 0x21  # the first day of 1980, the earliest that zip knows
_UNIX, _PLAIN_FILE = 3 << 8, 0o100644 << 16
_CHUNK = 2**20


class Malformed(Exception):
    """What is read is not the zip file of a bundle as Understudy writes it. The text says where it differs."""


@dataclasses.dataclass(frozen=True)
class Measured:
    """Size and checksums of a file."""

    size: int
    crc: int
    sha256: str


@dataclasses.dataclass(frozen=True)
class Member:
    """A file that was read from a bundle; `data` is None for a table, of which only the checksums are kept."""

    size: int
    sha256: str
    data: bytes | None


def measure(content: bytes | Path) -> Measured:
    """Size and checksums of some bytes, or of a file.

    >>> measure(b"abc").sha256[:8]
    'ba7816bf'
    """
    size, crc, digest = 0, 0, hashlib.sha256()
    for chunk in _chunks(content):
        size, crc = size + len(chunk), zlib.crc32(chunk, crc)
        digest.update(chunk)
    return Measured(size, crc, digest.hexdigest())


def write_archive(file: BinaryIO, contents: Mapping[str, bytes | Path], measured: Mapping[str, Measured]) -> None:
    """Writes files by name; `measured` are their checksums, which must still be right when a file is copied."""
    names, offsets = sorted(contents), []
    _check_size([measured[name] for name in names])
    for name in names:
        offsets.append(file.tell())
        file.write(_local_header(name, measured[name]))
        digest = hashlib.sha256()
        for chunk in _chunks(contents[name]):
            digest.update(chunk)
            file.write(chunk)
        if digest.hexdigest() != measured[name].sha256:
            raise BundleError(f"{name} changed while it was copied. Nothing was written. Bundle an unchanging file.")
    file.write(_directory(dict(zip(names, offsets, strict=True)), measured, file.tell()))


def read_archive(file: BinaryIO) -> dict[str, Member]:
    """The files of a bundle by name.

    Formal guarantee: exactly the bytes that `write_archive` gives for the returned files are accepted; all else is
    `Malformed`. So no byte of the zip file is without effect.
    """
    members: dict[str, Member] = {}
    measured: dict[str, Measured] = {}
    offsets: dict[str, int] = {}
    last = ""
    while (head := file.read(_LOCAL_FORM.size))[:4] == _LOCAL:
        offset = file.tell() - len(head)
        name, noted = _read_header(file, head)
        if name <= last:
            raise Malformed(f"{name!r} is in it twice, or its files are not in order of their names")
        if len(members) == MAX_FILES:
            raise Malformed(f"it has more than {MAX_FILES} files")
        members[name], crc = _read_member(file, name, noted.size)
        if crc != noted.crc:
            raise Malformed(f"{name!r} is damaged")
        measured[name], offsets[name], last = Measured(noted.size, crc, ""), offset, name
    start = file.tell() - len(head)
    expected = _directory(offsets, measured, start)
    if head + file.read(len(expected) + 1) != expected:
        raise Malformed("its list of files is cut, damaged, or followed by other bytes")
    return members


def is_plain(name: str) -> bool:
    """Whether a name, also one with folders, means the same file on every system, and lies inside the bundle.

    >>> [is_plain(name) for name in ("in-house/report.html", "../a", "/a", "a\\\\b", "C:a", "a//b", "con\\n")]
    [True, False, False, False, False, False, False]
    """
    parts = name.split("/")
    return name.isprintable() and not re.search(r'[\\:*?"<>|]', name) and not {"", ".", ".."} & set(parts)


def _read_header(file: BinaryIO, head: bytes) -> tuple[str, Measured]:
    """Name, size and CRC of the next file, from the part of its header that is given and the name behind it."""
    if len(head) < _LOCAL_FORM.size:
        raise Malformed("it is cut in the middle")
    crc, size, length = _LOCAL_FORM.unpack(head)[6], _LOCAL_FORM.unpack(head)[7], _LOCAL_FORM.unpack(head)[9]
    try:
        name = (raw := file.read(length)).decode()
    except UnicodeDecodeError:
        raise Malformed("it has a file name that is not UTF-8") from None
    if not is_plain(name):
        raise Malformed(f"it has the file name {name[:60]!r}, which is not a plain name")
    noted = Measured(size, crc, "")
    if head + raw != _local_header(name, noted):
        raise Malformed(f"{name!r} is compressed, or has attributes that Understudy does not write")
    return name, noted


def _read_member(file: BinaryIO, name: str, size: int) -> tuple[Member, int]:
    """The next file, and its CRC."""
    is_table = name.startswith("tables/")
    if not is_table and size > MAX_DOCUMENT:
        raise Malformed(f"{name!r} is larger than any document of a bundle")
    kept, crc, digest, left = bytearray(), 0, hashlib.sha256(), size
    while left:
        chunk = file.read(min(_CHUNK, left))
        if not chunk:
            raise Malformed(f"it is cut in the middle of {name!r}")
        crc, left = zlib.crc32(chunk, crc), left - len(chunk)
        digest.update(chunk)
        if not is_table:
            kept += chunk
    return Member(size, digest.hexdigest(), None if is_table else bytes(kept)), crc


def _local_header(name: str, about: Measured) -> bytes:
    raw = name.encode()
    fixed = (_VERSION, _flags(name), _STORED, _TIME, _DATE, about.crc, about.size, about.size, len(raw), 0)
    return _LOCAL_FORM.pack(_LOCAL, *fixed) + raw


def _directory(offsets: Mapping[str, int], measured: Mapping[str, Measured], start: int) -> bytes:
    """The list of files at the end of a zip file."""
    entries = []
    for name, offset in offsets.items():
        raw, about = name.encode(), measured[name]
        head = (_UNIX | _VERSION, _VERSION, _flags(name), _STORED, _TIME, _DATE)
        sizes = (about.crc, about.size, about.size, len(raw))
        entries.append(_CENTRAL_FORM.pack(_CENTRAL, *head, *sizes, 0, 0, 0, 0, _PLAIN_FILE, offset) + raw)
    listed = b"".join(entries)
    return listed + _END_FORM.pack(_END, 0, 0, len(entries), len(entries), len(listed), start, 0)


def _flags(name: str) -> int:
    return 0 if name.isascii() else _UTF8


def _check_size(files: list[Measured]) -> None:
    if sum(each.size + 1000 for each in files) > MAX_BYTES:
        raise BundleError("The bundle would be larger than 4 GB. Use --hash-only (hash_only=True) for the tables.")


def _chunks(content: bytes | Path) -> Iterator[bytes]:
    if isinstance(content, bytes):
        yield content
        return
    with content.open("rb") as file:
        while chunk := file.read(_CHUNK):
            yield chunk
