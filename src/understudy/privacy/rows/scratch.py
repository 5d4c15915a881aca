"""A scratch folder: where the codes of the private rows of one run are kept instead of in memory.

The folder `understudy-XXXXXXXX` inside the one that the user names can be read by its owner alone. A lock marks it as
in use while the process lives. The name of a file of codes is removed as soon as the file is open, so the system frees
its space when the run ends, however it ends. What a killed run leaves of the folder is removed by the next run with the
same place; folders of runs that are still alive are left alone.
"""

import contextlib
import errno
import os
import re
import stat
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

import numpy as np
from jaxtyping import Integer

from understudy.errors import ConfigError, TableError

try:
    import fcntl
except ImportError:  # no such locks on this system
    fcntl = None  # type: ignore[assignment]  # no module, so no lock

PREFIX = "understudy-"
FOLDER = re.compile(r"understudy-[a-z0-9_]{8}")
LOCK = "lock"
NEW_SECONDS = 60
"""An empty folder that is younger may be one that another run is making; its lock is the first file in it."""
OWN_FILE = re.compile(r"lock|codes-\d+")
COPIED_ROWS, COPIED_BYTES = 2**18, 2**22
"""What is copied at once."""


class Scratch:
    """Files of codes in a folder of one run."""

    def __init__(self, folder: Path):
        self._folder = folder
        self._files: list[BinaryIO] = []
        self._reserved: BinaryIO | None = None  # with the space for all codes
        self._num_rows: int | None = None  # of the whole table, once space was reserved for it

    def __repr__(self) -> str:
        return "Scratch(...)"

    def _reserve(self, num_rows: int, num_columns: int, dtype: np.dtype) -> None:
        """Takes the space for the codes of all rows, before anything is charged."""
        self._num_rows, self._reserved = num_rows, self._open(num_rows * num_columns * dtype.itemsize)

    def _create(self, num_columns: int, dtype: np.dtype) -> "CodeFile":
        """A file for the codes of all rows, in the reserved space if there is any."""
        assert self._num_rows is not None, "no space was reserved"
        needed = self._num_rows * num_columns * dtype.itemsize
        file, self._reserved = self._reserved, None
        if file is None or needed > os.fstat(file.fileno()).st_size:
            file = self._open(needed)
        os.ftruncate(file.fileno(), needed)
        return CodeFile(file, self._num_rows, num_columns, dtype)

    def _copy(self, codes: Integer[np.ndarray, "rows columns"], kept: np.ndarray) -> np.ndarray:
        """The rows that are marked, in a file of their own."""
        num_rows, num_columns = int(np.count_nonzero(kept)), codes.shape[1]
        file = CodeFile(self._open(num_rows * num_columns * codes.itemsize), num_rows, num_columns, codes.dtype)
        for start in range(0, len(codes), COPIED_ROWS):
            at = slice(start, start + COPIED_ROWS)
            file.append(codes[at][kept[at]])
        return file.finish()

    def _open(self, num_bytes: int) -> BinaryIO:
        """A file of this size without a name. All its space is taken now: a full disk is found here, and not later."""
        path = self._folder / f"codes-{len(self._files) + 1}"
        with _explained(self._folder):
            handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | getattr(os, "O_CLOEXEC", 0), 0o600)
            self._files.append(open(handle, "r+b", buffering=0))  # noqa: SIM115  closed with the folder
            path.unlink()
            if num_bytes:
                _allocate(handle, num_bytes)
        return self._files[-1]

    def _close(self) -> None:
        for file in self._files:
            file.close()


class CodeFile:
    """A file that codes are written to batch by batch, each column in one piece, and then mapped into memory."""

    def __init__(self, file: BinaryIO, num_rows: int, num_columns: int, dtype: np.dtype):
        self._file, self._extent, self._type, self._written = file, (num_rows, num_columns), dtype, 0

    def append(self, codes: np.ndarray) -> None:
        """Adds the codes of a batch."""
        most, _ = self._extent
        assert self._written + len(codes) <= most, "more rows than there is space for"
        for at, column in enumerate(np.asfortranarray(codes, dtype=self._type).T):
            _write(self._file.fileno(), column, (at * most + self._written) * self._type.itemsize)
        self._written += len(codes)

    def finish(self) -> Integer[np.ndarray, "rows columns"]:
        """All codes, as an array that reads the file. Nothing else refers to the file any more."""
        with self._file:
            if not self._written or not all(self._extent):
                return np.zeros((self._written, self._extent[1]), dtype=self._type)
            whole = np.memmap(self._file, self._type, mode="r", shape=self._extent, order="F")
        return np.asarray(whole)[: self._written]


def _allocate(handle: int, num_bytes: int) -> None:
    """Takes the space of a file; where the system cannot, by writing zeros."""
    if hasattr(os, "posix_fallocate"):
        os.posix_fallocate(handle, 0, num_bytes)
        return
    for offset in range(0, num_bytes, COPIED_BYTES):
        _write(handle, np.zeros(min(COPIED_BYTES, num_bytes - offset), dtype=np.uint8), offset)


def _write(handle: int, column: np.ndarray, offset: int) -> None:
    left = np.ascontiguousarray(column).data.cast("B")
    while left:
        written = os.pwrite(handle, left, offset)
        left, offset = left[written:], offset + written


@contextlib.contextmanager
def open_scratch(place: "str | os.PathLike[str] | None") -> Iterator[Scratch | None]:
    """A scratch folder inside this one, which must exist, for one run; None: none is used.

    Folders that killed runs left there are removed first. The new one is removed at the end, also after an error.
    """
    if place is None:
        yield None
        return
    parent = Path(os.path.realpath(place))
    if not parent.is_dir():
        what = "is not a folder" if parent.exists() else "does not exist"
        raise ConfigError(
            f"The scratch folder {place} {what}. Name a folder on a disk with room for the codes.", setting="scratch"
        )
    folder, lock = _make_folder(parent)
    scratch = Scratch(folder)
    try:
        yield scratch
    finally:
        scratch._close()
        _remove(folder)
        os.close(lock)


def _make_folder(parent: Path) -> tuple[Path, int]:
    """A new folder and its open lock. The lock of the parent lets one process at a time make and remove folders; where
    another program holds it, nothing is removed, and the next run does it."""
    with _explained(parent):
        handle = os.open(parent, os.O_RDONLY)
        try:
            if _is_free(handle):
                _remove_remains(parent)
            folder = Path(tempfile.mkdtemp(prefix=PREFIX, dir=parent))  # mode 0700
            return folder, _lock(folder / LOCK, os.O_CREAT | os.O_EXCL)
        finally:
            os.close(handle)


def _is_free(handle: int) -> bool:
    """Takes the lock if nobody holds it. Never waits: anyone who can read a shared folder can lock it."""
    try:
        if fcntl is not None:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return fcntl is not None


def _remove_remains(parent: Path) -> None:
    """Removes the folders of runs that ended without doing so: those of this user whose lock is free."""
    for entry in os.scandir(parent):
        if not FOLDER.fullmatch(entry.name) or not entry.is_dir(follow_symlinks=False):
            continue
        if entry.stat(follow_symlinks=False).st_uid != os.geteuid():
            continue
        folder = Path(entry.path)
        try:
            inside = os.listdir(folder)
            if not inside and time.time() - entry.stat(follow_symlinks=False).st_mtime < NEW_SECONDS:
                continue
            lock = _lock(folder / LOCK) if LOCK in inside else None
        except OSError:
            continue  # its run is still alive
        _remove(folder)
        if lock is not None:
            os.close(lock)


def _lock(path: Path, flags: int = 0) -> int:
    """The open lock file, held until it is closed or the process ends; raises OSError if another process holds it."""
    handle = os.open(path, os.O_RDWR | flags, 0o600)
    try:
        if fcntl is not None:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BaseException:
        os.close(handle)
        raise
    return handle


def _remove(folder: Path) -> None:
    """Removes what a run made, and nothing else: a folder with other files stays."""
    with contextlib.suppress(OSError):
        for name in os.listdir(folder):
            if OWN_FILE.fullmatch(name) and stat.S_ISREG(os.lstat(folder / name).st_mode):
                os.unlink(folder / name)
        os.rmdir(folder)


@contextlib.contextmanager
def _explained(folder: Path) -> Iterator[None]:
    """Errors of the system as one line, without the number of bytes: it would reveal the number of rows."""
    try:
        yield
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EFBIG, errno.EDQUOT):
            raise TableError(
                f"The scratch folder {folder.parent if FOLDER.fullmatch(folder.name) else folder} has no room for the "
                "codes of this table. Name a folder on a larger disk."
            ) from None
        raise TableError(
            f"The scratch folder {folder} cannot be used: {os.strerror(error.errno or 0)}. Name another."
        ) from None
