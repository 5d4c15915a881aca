"""`BudgetBook`: the limit for all releases of one data set, and every run that has used some of it, in one SQLite file.

Entries are only ever added, each in a transaction of its own that starts with the lock of the file, reads the entries
that others have added, checks them, and decides. So processes that spend from one book at the same time never spend
more than it holds, and a process that is killed leaves its reservation.
"""

import contextlib
import dataclasses
import datetime
import math
import os
import sqlite3
import threading
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from understudy._version import __version__
from understudy.book.entries import History, Kind, Outcome, Reserved, Row, cost_to_json
from understudy.errors import BookError, BudgetExceeded, ConfigError, TableError
from understudy.privacy.release_costs import Cost, ReleaseFilter
from understudy.privacy.statement import round_up
from understudy.run.atomic import atomic_path
from understudy.summary import Summarized, Summary

APPLICATION = 0x55424F4B
"""Marks the SQLite file as a budget book."""
FORMAT_VERSION = 1
SECONDS = "UNDERSTUDY_BOOK_SECONDS"
"""Environment variable: how long to wait for a book that another process writes. Default: 30 seconds."""

SHOWN = ("time", "method", "epsilon", "delta", "by", "plan", "policy", "approved_by")
"""Facts of a run that `to_json` has; None: the run had none."""
_TABLE = "CREATE TABLE entries (number INTEGER PRIMARY KEY, content TEXT, previous TEXT, hash TEXT)"


class BudgetBook(Summarized):
    """The limit of epsilon and delta for all releases of one data set, and what each run has used of it.

    `create` makes the file, `open` reads and checks it, and `understudy.fit(..., book=...)` spends from it.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     book = BudgetBook.create(f"{folder}/people.book", epsilon=3, delta=1e-5, unit="patient")
    ...     book.dataset, book.unit, book.fraction_left
    ('people', 'patient', 1.0)
    """

    def __init__(self, path: Path, history: History):
        self.path, self._history = path, history
        self._place = path.absolute()  # a program may change its working folder during a run
        self._lock = threading.RLock()  # threads that share the object also share its history

    def __reduce__(self) -> tuple[object, tuple[Path]]:
        """A copy, as in another process, reads the file again."""
        return BudgetBook.open, (self._place,)

    @classmethod
    def create(
        cls,
        path: str | os.PathLike[str],
        *,
        epsilon: float,
        delta: float,
        unit: str | None = None,
        dataset: str | None = None,
        composition: str = "renyi",
        order: float | None = None,
    ) -> "BudgetBook":
        """A new book, written whole or not at all, that only its owner can read.

        `dataset` is the name of the data set (default: that of the file) and `unit` the column that identifies the
        privacy unit (default: each row is one). Both are declared, and nothing is read off the data. `composition` is
        how releases add up: `renyi` at one `order`, `zcdp`, or `basic`.

        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     BudgetBook.create(f"{folder}/people.book", epsilon=1, delta=1e-6, composition="basic").terms.epsilon
        1.0
        """
        terms = ReleaseFilter.create(epsilon, delta, composition, order)
        dataset = Path(path).stem if dataset is None else dataset
        if not dataset.strip() or (unit is not None and not unit.strip()):
            raise ConfigError("The names of a data set and of its privacy unit must not be empty.")
        facts = {
            "time": _now(),
            "understudy_version": __version__,
            "dataset": dataset,
            "unit": unit,
            **dataclasses.asdict(terms),
            "limit": cost_to_json(terms.limit),
        }
        row = History().next_row(Kind.CREATE, Cost(), facts)
        try:
            with atomic_path(path, errors=(sqlite3.Error,)) as part:
                os.close(os.open(part, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
                with contextlib.closing(sqlite3.connect(part, isolation_level=None)) as file:
                    file.execute(f"PRAGMA application_id = {APPLICATION}")
                    file.execute(f"PRAGMA user_version = {FORMAT_VERSION}")
                    file.execute(_TABLE)
                    _insert(file, row)
        except TableError as error:
            raise BookError(str(error).replace("or replace it with --force (force=True)", "or open this one")) from None
        return cls.open(path)

    @classmethod
    def open(cls, path: str | os.PathLike[str]) -> "BudgetBook":
        """Reads a book and checks every entry. Refuses one that was edited."""
        if not isinstance(path, str | os.PathLike):
            raise ConfigError(f"book must be a us.BudgetBook or the path of one, found {type(path).__name__}.")
        place = Path(path)
        if not place.is_file():
            what = "is a folder, not a budget book" if place.is_dir() else "does not exist"
            raise BookError(
                f"{place} {what}. Create a budget book: understudy book create {place} --epsilon 3 --delta 1e-5"
            )
        book = cls(place, History())
        with book._connection() as file, book._explained():
            _check_format(place, file)
            book._catch_up(file)
        if not book._history.number:
            raise _not_a_book(place)
        return book

    @property
    def dataset(self) -> str:
        """The declared name of the data set."""
        return self._history.dataset

    @property
    def unit(self) -> str | None:
        """The declared column that identifies the privacy unit; None: each row is one."""
        return self._history.unit

    @property
    def terms(self) -> ReleaseFilter:
        """The limit, and how releases add up to it."""
        return self._history.terms

    @property
    def limit(self) -> Cost:
        """The largest total that the book allows."""
        return self._history.limit

    @property
    def total(self) -> Cost:
        """What all runs have used or reserved, as of the last time that the book was read."""
        return self._history.total

    @property
    def fraction_left(self) -> float:
        """What is left, as a fraction of the limit: of the part of which less is left."""
        return max(0.0, 1 - self.total.fraction_of(self.limit))

    @property
    def num_entries(self) -> int:
        return self._history.number

    @property
    def head(self) -> str:
        """The hash of the last entry."""
        return self._history.head

    @property
    def reservations(self) -> tuple[Reserved, ...]:
        """Every run, in order, and what became of it."""
        return tuple(self._history.reservations.values())

    def reservation(self, number: int) -> Reserved:
        """The run that this entry reserved the cost of."""
        return self._history.reservations[number]

    def approvals(self, plan: str) -> tuple[str, ...]:
        """Who approved this plan, once for every run of it that is still allowed."""
        return tuple(self._history.approvals.get(plan, ()))

    def approve(self, plan: str, by: str) -> None:
        """Notes that someone approves one run of the plan with this hash."""
        if len(plan) != 64 or set(plan) - set("0123456789abcdef"):
            raise ConfigError("A plan hash has 64 hexadecimal digits, as 'understudy plan --book' prints it.")
        if not by.strip():
            raise ConfigError("Say who approves the plan: --by NAME.")
        self._append(lambda history: (Kind.APPROVE, history.total, {"plan": plan, "by": by.strip()}))

    def reserve(
        self,
        cost: Cost,
        facts: Mapping[str, object],
        *,
        check: "Callable[[BudgetBook], Mapping[str, object]] | None" = None,
    ) -> Reserved:
        """Reserves the cost of a run, or raises `BudgetExceeded`.

        `check` sees the book while no other process can write it. It may refuse the run, and returns further facts.
        """

        def decide(history: History) -> tuple[Kind, Cost, dict[str, object]]:
            more = {} if check is None else check(self)
            self._require_room(cost, cost)
            return Kind.RESERVE, history.total + cost, {**facts, **more, "cost": cost_to_json(cost)}

        row = self._append(decide)
        return self._history.reservations[row.number]

    def extend(self, number: int, cost: Cost) -> Reserved:
        """Raises a reservation to this cost, or raises `BudgetExceeded` and leaves it as it was."""

        def decide(history: History) -> tuple[Kind, Cost, dict[str, object]]:
            before = history.reservations[number]
            if before.outcome is Outcome.WITHDRAWN:
                raise BookError(f"Entry {number} of {self.path} was withdrawn by another process. Start the run again.")
            new = before.cost.most(cost)
            self._require_room(new - before.counted, new)
            after = history.total - before.counted + new
            return Kind.EXTEND, after, {"reservation": number, "cost": cost_to_json(new)}

        self._append(decide)
        return self._history.reservations[number]

    def settle(self, number: int, cost: Cost, outcome: Outcome, certificate: str | None) -> None:
        """Ends a run at this cost, at most what it reserved: the rest is free again."""

        def decide(history: History) -> tuple[Kind, Cost, dict[str, object]]:
            before = history.reservations[number]
            facts = {"outcome": outcome.value, "certificate": certificate, "cost": cost_to_json(cost)}
            return Kind.SETTLE, history.total - before.counted + cost, {"reservation": number, **facts}

        self._append(decide)

    def withdraw(self, reserved: Reserved) -> None:
        """Ends a run that has charged nothing; refused if another process has continued it since."""

        def decide(history: History) -> tuple[Kind, Cost, dict[str, object]]:
            before = history.reservations[reserved.number]
            if before.last != reserved.last:
                raise BookError(f"Another process continues the run of entry {before.number}.")
            return Kind.WITHDRAW, history.total - before.counted, {"reservation": before.number}

        self._append(decide)

    def refresh(self) -> None:
        """Reads what others have added since."""
        with self._lock, self._connection() as file, self._explained():
            self._catch_up(file)

    def to_json(self) -> dict[str, object]:
        """The book for machines: its limit, what is used, and every run."""
        return {
            "format": "understudy-book",
            "format_version": FORMAT_VERSION,
            "dataset": self.dataset,
            "unit": self.unit,
            **dataclasses.asdict(self.terms),
            "used": {"epsilon": self.terms.spent_epsilon(self.total), "fraction": self.total.fraction_of(self.limit)},
            "entries": self.num_entries,
            "hash": self.head,
            "runs": [
                {
                    **{key: each.facts.get(key) for key in SHOWN},
                    "entry": each.number,
                    "state": each.outcome.value,
                    "fraction": each.counted.fraction_of(self.limit),
                }
                for each in self.reservations
            ],
        }

    def summary(self) -> Summary:
        """What its `repr` shows."""
        terms = self.terms
        how = "each row" if self.unit is None else f"all rows with the same {self.unit}"
        adds = {
            "renyi": f"Renyi divergence of order {terms.order or 0:g}",
            "zcdp": "zCDP",
            "basic": "basic composition",
        }
        facts = {
            "limit": f"epsilon {terms.epsilon:g} at delta {terms.delta:g}",
            "used": f"epsilon {round_up(terms.spent_epsilon(self.total), 4)} ({percent(self.total, self.limit)})",
            "privacy unit": how,
            "composition": adds[terms.composition],
        }
        rows = [
            (
                str(each.number),
                str(each.facts.get("time", "")),
                str(each.facts.get("method", "")),
                f"{each.facts.get('epsilon', '')}",
                each.outcome.value,
                percent(each.counted, self.limit),
            )
            for each in self.reservations
        ]
        head = ("entry", "time (UTC)", "method", "epsilon", "state", "used of the limit")
        return Summary(f"Budget book of {self.dataset}", facts, head, rows, ())

    def _require_room(self, more: Cost, whole: Cost) -> None:
        left = self._history.left
        if not more.fits(left):
            raise BudgetExceeded(
                f"This run needs {percent(whole, self.limit)} of the budget book {self.path.name}, which has "
                f"{self.fraction_left:.2%} left.",
                needed=whole.fraction_of(self.limit),
                left=self.fraction_left,
            )

    def _append(self, decide: Callable[[History], tuple[Kind, Cost, dict[str, object]]]) -> Row:
        """Adds the entry that `decide` makes of all entries before it, while no other process can add one."""
        with self._lock, self._connection() as file, self._explained():
            file.execute("BEGIN IMMEDIATE")
            try:
                self._catch_up(file)
                kind, total, facts = decide(self._history)
                row = self._history.next_row(kind, total, {"time": _now(), **facts})
                take = self._history.check(row)  # what could not be read again is not written
                _insert(file, row)
                file.execute("COMMIT")
            except BaseException:
                if file.in_transaction:
                    file.execute("ROLLBACK")
                raise
            take()
            return row

    @contextlib.contextmanager
    def _connection(self) -> Iterator[sqlite3.Connection]:
        """One for each act: nothing stays open during a long run, and any thread may use the book."""
        with self._explained():
            address = f"{self._place.as_uri()}?mode=rw"
            file = sqlite3.connect(address, uri=True, timeout=_seconds(), isolation_level=None)
        with contextlib.closing(file):
            with self._explained():
                # An entry that was reported survives a loss of power. With FULL, the deletion of SQLite's journal
                # need not, and a journal that is back undoes the entry.
                file.execute("PRAGMA synchronous = EXTRA")
            yield file

    def _catch_up(self, file: sqlite3.Connection) -> None:
        """Checks the entries after those already known, and that the last known one is still there."""
        known = self._history
        query = "SELECT number, content, previous, hash FROM entries WHERE number >= ? ORDER BY number"
        rows = [Row(*found) for found in file.execute(query, (known.number,))]
        if known.number and (not rows or rows[0].digest != known.head or rows[0].number != known.number):
            raise self._edited(f"entry {known.number} is missing or was replaced")
        try:
            for row in rows[1:] if known.number else rows:
                known.add(row)
        except BookError as error:
            raise self._edited(str(error)) from None

    def _edited(self, reason: str) -> BookError:
        return BookError(
            f"{self.path} cannot be trusted: {reason}. Nothing can be spent from it. Restore the original from a "
            "backup, and check it with 'understudy book verify --certificates DIR'."
        )

    @contextlib.contextmanager
    def _explained(self) -> Iterator[None]:
        """Turns errors of SQLite into one line."""
        try:
            yield
        except (sqlite3.Error, sqlite3.Warning) as error:
            raise BookError(f"{self.path} {_reason(error)}") from None


def percent(cost: Cost, limit: Cost) -> str:
    """A cost as a part of the limit, rounded up."""
    part = 100 * cost.fraction_of(limit)
    return f"{math.ceil(part):,}%" if part >= 100 else f"{round_up(part, 3)}%" if part else "0%"


def _reason(error: Exception) -> str:
    name = getattr(error, "sqlite_errorname", "") or ""
    causes = {
        "SQLITE_BUSY": f"is in use by another process; waited {_seconds():g} seconds. Try again later.",
        "SQLITE_LOCKED": f"is in use by another process; waited {_seconds():g} seconds. Try again later.",
        "SQLITE_READONLY": "is read-only, so nothing can be reserved. Make the file and its folder writable.",
        "SQLITE_FULL": "cannot be written: the disk is full. Free some space. Nothing was reserved.",
        "SQLITE_CANTOPEN": "cannot be opened. Check the permissions of the file and of its folder.",
        "SQLITE_PERM": "cannot be opened. Check the permissions of the file and of its folder.",
        "SQLITE_NOTADB": "is not a budget book. Name a file that 'understudy book create' made.",
        "SQLITE_CORRUPT": "cannot be trusted: the file is damaged or was edited. Restore the original from a backup.",
        "SQLITE_IOERR": "cannot be read or written: the disk reports an error. Nothing was reserved.",
    }
    said = "is not a budget book. Name a file that 'understudy book create' made."
    return next((cause for code, cause in causes.items() if name.startswith(code)), said)


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
            f"{FORMAT_VERSION}. Install the newer version."
        )


def _not_a_book(path: Path) -> BookError:
    return BookError(f"{path} is not a budget book. Name a file that 'understudy book create' made.")


def _insert(file: sqlite3.Connection, row: Row) -> None:
    file.execute("INSERT INTO entries VALUES (?, ?, ?, ?)", row)


def _now() -> str:
    return datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _seconds() -> float:
    text = os.environ.get(SECONDS, "30")
    with contextlib.suppress(ValueError):
        if 0 <= (seconds := float(text)) < 1e6:
            return seconds
    raise ConfigError(f"{SECONDS} must be a number of seconds, at least 0, found {text!r}.")
