"""`BudgetBook`: the limit for all releases of one data set, and every run that has used some of it, in one SQLite file.

Entries are only ever added. `storage.py` has the file, `entries.py` what its entries amount to.
"""

import dataclasses
import getpass
import hashlib
import math
import os
from collections.abc import Callable, Mapping
from pathlib import Path

from understudy._version import __version__
from understudy.errors import BookError, BookExceeded, ConfigError
from understudy.institution.book.entries import (
    Approval,
    History,
    Kind,
    Outcome,
    PolicyEntry,
    Reserved,
    canonical,
    cost_to_json,
)
from understudy.institution.book.policy import Policy, as_policy
from understudy.institution.book.storage import FORMAT_VERSION, BookFile, create_file, time_now
from understudy.privacy.accounting.release_costs import Cost, ReleaseFilter
from understudy.privacy.accounting.statement import round_up
from understudy.summary import Summarized, Summary

SHOWN = ("time", "method", "epsilon", "delta", "by", "plan", "policy", "approved_by", "approved_from")
"""Facts of a run that `to_json` has; None: the run had none."""


class BudgetBook(Summarized):
    """The limit of epsilon and delta for all releases of one data set, and what each run has used of it.

    `create` makes the file, `open` reads and checks it, and `understudy.fit(..., book=...)` spends from it.

    Args:
        file: The file of the book, which `create` and `open` provide.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     book = BudgetBook.create(f"{folder}/people.book", epsilon=3, delta=1e-5, unit="patient")
    ...     book.dataset, book.unit, book.fraction_left
    ('people', 'patient', 1.0)
    """

    def __init__(self, file: BookFile):
        self._file = file

    @property
    def path(self) -> Path:
        """Where the book is."""
        return self._file.path

    @property
    def _history(self) -> History:
        return self._file.history

    def __reduce__(self) -> tuple[object, tuple[Path]]:
        """A copy, as in another process, reads the file again."""
        return BudgetBook.open, (self._file.place,)

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
        policy: "Policy | str | os.PathLike[str] | None" = None,
        protect: str | None = None,
    ) -> "BudgetBook":
        """A new book, written whole or not at all, that only its owner can read.

        Args:
            path: The file, which must not exist.
            epsilon: The limit of epsilon for all releases together.
            delta: The limit of delta.
            unit: The column that identifies the privacy unit, as declared. Default: each row is one.
            dataset: The name of the data set. Default: that of the file.
            composition: How releases add up: "renyi" at one `order`, "zcdp" or "basic".
            order: The Renyi order. Default: a good one for these limits.
            policy: A `Policy`, or the path of its file, that binds every run with the book.
            protect: For a graph, what is protected: "edge", or "node" (all edges of one node).

        Returns:
            The book.

        Raises:
            ConfigError: A limit, a name, the composition or the policy is not allowed.
            BookError: The file exists, or cannot be written.

        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     BudgetBook.create(f"{folder}/people.book", epsilon=1, delta=1e-6, composition="basic").terms.epsilon
        1.0
        """
        terms = ReleaseFilter.create(epsilon, delta, composition, order)
        dataset = Path(path).stem if dataset is None else dataset
        if not dataset.strip() or (unit is not None and not unit.strip()):
            raise ConfigError(
                "The names of a data set and of its privacy unit must not be empty.",
                setting="unit" if dataset.strip() else "dataset",
            )
        if protect is not None and (protect not in ("edge", "node") or unit is not None):
            raise ConfigError(
                "protect is for graphs, and must be edge or node; unit is for tables. Give one of them.",
                setting="protect",
            )
        rules = as_policy(policy)
        facts = {
            "time": time_now(),
            "understudy_version": __version__,
            "dataset": dataset,
            "unit": unit,
            **dataclasses.asdict(terms),
            "limit": cost_to_json(terms.limit),
            "by": account_name(),
            **({} if protect is None else {"protect": protect}),
            **({} if rules is None else {"policy": rules.to_dict()}),
        }
        row = History().next_row(Kind.CREATE, Cost(), facts)
        create_file(path, row)
        return cls.open(path)

    @classmethod
    def open(cls, path: str | os.PathLike[str]) -> "BudgetBook":
        """Reads a book and checks every entry. Refuses one that was edited."""
        if not isinstance(path, str | os.PathLike):
            raise ConfigError(
                f"book must be a us.BudgetBook or the path of one, found {type(path).__name__}.", setting="book"
            )
        return cls(BookFile(Path(path)))

    @property
    def dataset(self) -> str:
        """The declared name of the data set."""
        return self._history.dataset

    @property
    def unit(self) -> str | None:
        """The declared column that identifies the privacy unit; None: each row is one."""
        return self._history.unit

    @property
    def protect(self) -> str | None:
        """What is protected in a graph, an `edge` or a `node`; None: the data set is a table."""
        return self._history.protect

    @property
    def policy(self) -> Policy | None:
        """The policy that binds every run with this book; None: there is none."""
        if not self._history.policies:
            return None
        try:
            return Policy.from_dict(self._history.policies[-1].policy)
        except ConfigError as error:
            raise BookError(
                f"The policy of {self.path} cannot be read by this version: {error}", reason="policy"
            ) from None

    @property
    def policies(self) -> tuple[PolicyEntry, ...]:
        """Every policy that the book has had, in order."""
        return tuple(self._history.policies)

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
        """The number of entries."""
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

    def approvals(self, plan: str) -> tuple[Approval, ...]:
        """Who approved this plan, once for every run of it that is still allowed."""
        return tuple(self._history.approvals.get(plan, ()))

    def require_approval(self, plan: str, what: str) -> dict[str, object]:
        """The approval of this plan by somebody else, as facts of an entry; refused if there is none."""
        user = account_name()
        for each in self.approvals(plan):
            if each.by != user:
                return each.to_json()
        raise BookError(
            f"The policy requires that a second person approves {what}. Ask one to run: understudy book approve "
            f"{self.path} {plan} --by NAME (a name other than {user!r}).",
            reason="not approved",
        )

    def policy_hash(self, policy: Policy) -> str:
        """Identifies a policy of this book that a second person approves."""
        content = {"dataset": self.dataset, "unit": self.unit, "policy": policy.to_dict()}
        return hashlib.sha256(canonical(content).encode()).hexdigest()

    def set_policy(self, policy: "Policy | str | os.PathLike[str]") -> None:
        """Adds a policy that binds every later run. Earlier ones stay visible.

        If the policy in force requires a second person, so does setting another one.
        """
        rules = as_policy(policy)
        if rules is None:
            raise ConfigError("policy must be a us.Policy or the path of its file, found None.")
        digest = self.policy_hash(rules)

        def decide(history: History) -> tuple[Kind, Cost, dict[str, object]]:
            approved = self.require_approval(digest, "another policy") if history.needs_approval else {}
            facts = {"plan": digest, "policy": rules.to_dict(), "by": account_name(), **approved}
            return Kind.POLICY, history.total, facts

        self._file.append(decide)

    def approve(self, plan: str, by: str) -> None:
        """Records that someone approves one run of the plan with this hash, and the account that recorded it."""
        if len(plan) != 64 or set(plan) - set("0123456789abcdef"):
            raise ConfigError("A plan hash has 64 hexadecimal digits, as 'understudy plan --book' prints it.")
        if not by.strip():
            raise ConfigError("Say who approves the plan: --by NAME.")
        facts: dict[str, object] = {"plan": plan, "by": by.strip(), "account": account_name()}
        self._file.append(lambda history: (Kind.APPROVE, history.total, facts))

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

        row = self._file.append(decide)
        return self._history.reservations[row.number]

    def extend(self, number: int, cost: Cost) -> Reserved:
        """Raises a reservation to this cost, or raises `BudgetExceeded` and leaves it as it was."""

        def decide(history: History) -> tuple[Kind, Cost, dict[str, object]]:
            before = self._unfinished(number)
            new = before.cost.maximum(cost)
            self._require_room(new - before.counted, new)
            after = history.total - before.counted + new
            return Kind.EXTEND, after, {"reservation": number, "cost": cost_to_json(new)}

        self._file.append(decide)
        return self._history.reservations[number]

    def settle(self, number: int, cost: Cost, outcome: Outcome, certificate: str | None) -> None:
        """Ends a run at this cost, at most what it reserved: the rest is free again."""

        def decide(history: History) -> tuple[Kind, Cost, dict[str, object]]:
            before = self._unfinished(number)
            if not cost.fits(before.cost) or not cost.amount:
                raise BookError(
                    f"Entry {number} of {self.path} cannot be settled at more than it reserved, or at nothing.",
                    reason="cost",
                )
            facts = {"outcome": outcome.value, "certificate": certificate, "cost": cost_to_json(cost)}
            return Kind.SETTLE, history.total - before.counted + cost, {"reservation": number, **facts}

        self._file.append(decide)

    def withdraw(self, reserved: Reserved) -> None:
        """Ends a run that has charged nothing; refused if another process has continued it since."""

        def decide(history: History) -> tuple[Kind, Cost, dict[str, object]]:
            before = self._unfinished(reserved.number)
            if before.last != reserved.last:
                raise BookError(f"Another process continues the run of entry {before.number}.", reason="in use")
            if before.last != before.number:
                raise BookError(
                    f"Entry {before.number} cannot be withdrawn: its run was continued, and may have charged. "
                    "Settle it.",
                    reason="settled",
                )
            return Kind.WITHDRAW, history.total - before.counted, {"reservation": before.number}

        self._file.append(decide)

    def _unfinished(self, number: int) -> Reserved:
        """The reservation of a run that is under way, was killed or has failed: only those can change."""
        reservation = self._history.reservations.get(number)
        if reservation is None:
            raise BookError(
                f"Entry {number} of {self.path} is not a reservation, so it cannot be settled.", reason="missing"
            )
        if reservation.outcome is Outcome.RELEASED:
            raise BookError(
                f"Entry {number} of {self.path} is settled already: its run was released. Nothing changed.",
                reason="settled",
            )
        if reservation.outcome is Outcome.WITHDRAWN:
            raise BookError(
                f"Entry {number} of {self.path} was withdrawn by another process. Start the run again.",
                reason="withdrawn",
            )
        return reservation

    def refresh(self) -> None:
        """Reads what others have added since."""
        self._file.refresh()

    def to_json(self) -> dict[str, object]:
        """The book for machines: its limit, what is used, and every run."""
        return {
            "format": "understudy-book",
            "format_version": FORMAT_VERSION,
            "dataset": self.dataset,
            "unit": self.unit,
            **({} if self.protect is None else {"protect": self.protect}),
            **dataclasses.asdict(self.terms),
            "used": {"epsilon": self.terms.spent_epsilon(self.total), "fraction": self.total.fraction_of(self.limit)},
            "entries": self.num_entries,
            "hash": self.head,
            "policies": [
                {
                    "entry": each.number,
                    **{key: each.facts.get(key) for key in ("time", "by", "approved_by", "approved_from")},
                    "policy": each.policy,
                }
                for each in self.policies
            ],
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
        adds = {
            "renyi": f"Renyi divergence of order {terms.order or 0:g}",
            "zcdp": "zCDP",
            "basic": "basic composition",
        }
        facts = {
            "limit": f"epsilon {terms.epsilon:g} at delta {terms.delta:g}",
            "used": f"epsilon {round_up(terms.spent_epsilon(self.total), 4)} ({percent(self.total, self.limit)})",
            "privacy unit": protected_unit(self.unit, self.protect),
            "composition": adds[terms.composition],
            **({} if (policy := self.policy) is None else {"policy": policy.describe()}),
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
        if not more.fits(self.limit - self.total):
            raise BookExceeded(
                f"This run needs {percent(whole, self.limit)} of the budget book {self.path.name}, which has "
                f"{self.fraction_left:.2%} left.",
                needed=whole.fraction_of(self.limit),
                left=self.fraction_left,
            )


def protected_unit(unit: str | None, protect: str | None) -> str:
    """The privacy unit that a book counts the cost for, for messages."""
    if protect is not None:
        return "one edge of a graph" if protect == "edge" else "all edges of one node of a graph"
    return "each row" if unit is None else f"all rows with the same {unit}"


def percent(cost: Cost, limit: Cost) -> str:
    """A cost as a part of the limit, rounded up."""
    part = 100 * cost.fraction_of(limit)
    return f"{math.ceil(part):,}%" if part >= 100 else f"{round_up(part, 3)}%" if part else "0%"


def account_name() -> str:
    """The account that runs this, by the operating system: recorded in the book, and no proof of who it was."""
    try:
        import pwd  # not on Windows

        return pwd.getpwuid(os.geteuid()).pw_name
    except (ImportError, KeyError):
        pass
    try:
        return getpass.getuser()  # by variables, which anyone can set
    except (OSError, KeyError, ImportError):
        return "unknown"
