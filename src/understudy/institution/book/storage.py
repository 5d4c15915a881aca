"""The SQLite file of a budget book: entries are added one by one, and each is checked when it is read.

An entry is added in a transaction of its own that starts with the lock of the file, reads the entries that others have
added, checks them, and decides. So processes that spend from one book at the same time never spend more than it holds,
and a process that is killed leaves its reservation.
"""

import contextlib
import datetime
import os
import sqlite3
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

from understudy._version import __version__
from understudy.errors import BookError, ConfigError, Reason, TableError
from understudy.institution.book.entries import History, Kind, Row
from understudy.privacy.accounting.release_costs import Cost
from understudy.run.atomic import atomic_path

APPLICATION = 0x55424F4B
"""Marks the SQLite file as a budget book."""
FORMAT_VERSION = 1
SECONDS = "UNDERSTUDY_BOOK_SECONDS"
"""Environment variable: how long to wait for a book that another process writes. Default: 30 seconds."""

_TABLE = "CREATE TABLE entries (number INTEGER PRIMARY KEY, content TEXT, previous TEXT, hash TEXT)"


def create_file(path: str | os.PathLike[str], row: Row) -> None:
    """A file with this first entry, written whole or not at all, that only its owner can read."""
    try:
        with atomic_path(path, errors=(sqlite3.Error,)) as part:
            os.close(os.open(part, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
            with contextlib.closing(sqlite3.connect(part, isolation_level=None)) as file:
                file.execute(f"PRAGMA application_id = {APPLICATION}")
                file.execute(f"PRAGMA user_version = {FORMAT_VERSION}")
                file.execute(_TABLE)
                _insert(file, row)
    except TableError as error:
        if Path(path).is_file():  # a book is never replaced, and there is no --force
            raise BookError(f"{path} exists. Choose another name, or open this one.", reason="exists") from None
        raise BookError(str(error)) from None


class BookFile:
    """The file of a book, and what the entries that were read amount to."""

    def __init__(self, path: Path):
        if not path.is_file():
            what = "is a folder, not a budget book" if path.is_dir() else "does not exist"
            raise BookError(
                f"{path} {what}. Create a budget book: understudy book create {path} --epsilon 3 --delta 1e-5",
                reason="missing",
            )
        self.path, self.history = path, History()
        self.place = path.absolute()  # a program may change its working folder during a run
        self._lock = threading.RLock()  # threads that share the object also share its history
        with self.connection() as file, self._explained():
            _check_format(path, file)
            self._catch_up(file)
        if not self.history.number:
            raise _not_a_book(path)

    def refresh(self) -> None:
        """Reads what others have added since."""
        with self._lock, self.connection() as file, self._explained():
            self._catch_up(file)

    def append(self, decide: Callable[[History], tuple[Kind, Cost, dict[str, object]]]) -> Row:
        """Adds the entry that `decide` makes of all entries before it, while no other process can add one."""
        with self._lock, self.connection() as file, self._explained():
            file.execute("BEGIN IMMEDIATE")
            try:
                self._catch_up(file)
                kind, total, facts = decide(self.history)
                row = self.history.next_row(kind, total, {"time": time_now(), **facts})
                after = self.history.copy()
                after.add(row)  # what could not be read again is not written
                _insert(file, row)
                file.execute("COMMIT")
            except BaseException:
                if file.in_transaction:
                    file.execute("ROLLBACK")
                raise
            self.history = after
            return row

    @contextlib.contextmanager
    def connection(self) -> Iterator[sqlite3.Connection]:
        """One for each act: nothing stays open during a long run, and any thread may use the book."""
        with self._explained():
            address = f"{self.place.as_uri()}?mode=rw"
            file = sqlite3.connect(address, uri=True, timeout=_seconds(), isolation_level=None)
        with contextlib.closing(file):
            with self._explained():
                # An entry that was reported survives a loss of power. With FULL, the deletion of SQLite's journal
                # need not, and a journal that is back undoes the entry.
                file.execute("PRAGMA synchronous = EXTRA")
            yield file

    def _catch_up(self, file: sqlite3.Connection) -> None:
        """Checks the entries after those already known, and that the last known one is still there."""
        known = self.history.copy()
        query = "SELECT number, content, previous, hash FROM entries WHERE number >= ? ORDER BY number"
        rows = [Row(*found) for found in file.execute(query, (known.number,))]
        if known.number and (not rows or rows[0].digest != known.head or rows[0].number != known.number):
            raise self._edited(f"entry {known.number} is missing or was replaced")
        try:
            for row in rows[1:] if known.number else rows:
                known.add(row)
        except BookError as error:
            raise self._edited(str(error)) from None
        self.history = known

    def _edited(self, reason: str) -> BookError:
        return BookError(
            f"{self.path} cannot be trusted: {reason}. Nothing can be spent from it. Restore the original from a "
            "backup, and check it with 'understudy book verify --certificates DIR'.",
            reason="edited",
        )

    @contextlib.contextmanager
    def _explained(self) -> Iterator[None]:
        """Turns errors of SQLite into one line."""
        try:
            yield
        except (sqlite3.Error, sqlite3.Warning) as error:
            reason, said = _cause(error)
            raise BookError(f"{self.path} {said}", reason=reason) from None


def _cause(error: Exception) -> tuple[Reason, str]:
    name = getattr(error, "sqlite_errorname", "") or ""
    busy = f"is in use by another process; waited {_seconds():g} seconds. Try again later."
    causes: dict[str, tuple[Reason, str]] = {
        "SQLITE_BUSY": ("in use", busy),
        "SQLITE_LOCKED": ("in use", busy),
        "SQLITE_READONLY": (
            "closed",
            "is read-only, so nothing can be reserved. Make the file and its folder writable.",
        ),
        "SQLITE_FULL": ("disk full", "cannot be written: the disk is full. Free some space. Nothing was reserved."),
        "SQLITE_CANTOPEN": ("closed", "cannot be opened. Check the permissions of the file and of its folder."),
        "SQLITE_PERM": ("closed", "cannot be opened. Check the permissions of the file and of its folder."),
        "SQLITE_NOTADB": ("unknown kind", "is not a budget book. Name a file that 'understudy book create' made."),
        "SQLITE_CORRUPT": (
            "edited",
            "cannot be trusted: the file is damaged or was edited. Restore the original from a backup.",
        ),
        "SQLITE_IOERR": ("disk error", "cannot be read or written: the disk reports an error. Nothing was reserved."),
    }
    return next((cause for code, cause in causes.items() if name.startswith(code)), causes["SQLITE_NOTADB"])


def _check_format(path: Path, file: sqlite3.Connection) -> None:
    (application,), (version,) = (
        file.execute("PRAGMA application_id").fetchone(),
        file.execute("PRAGMA user_version").fetchone(),
    )
    if application != APPLICATION:
        raise _not_a_book(path)
    if version > FORMAT_VERSION:
        raise BookError(
            f"{path} has book format {version}, made by a newer version; Understudy {__version__} reads format "
            f"{FORMAT_VERSION}. Install the newer version.",
            reason="newer",
        )


def _not_a_book(path: Path) -> BookError:
    return BookError(
        f"{path} is not a budget book. Name a file that 'understudy book create' made.", reason="unknown kind"
    )


def _insert(file: sqlite3.Connection, row: Row) -> None:
    file.execute("INSERT INTO entries VALUES (?, ?, ?, ?)", row)


def time_now() -> str:
    """The time of an entry, in UTC."""
    return datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _seconds() -> float:
    text = os.environ.get(SECONDS, "30")
    with contextlib.suppress(ValueError):
        if 0 <= (seconds := float(text)) < 1e6:
            return seconds
    raise ConfigError(f"{SECONDS} must be a number of seconds, at least 0, found {text!r}.", setting=SECONDS)
