"""The reservation of one run in a budget book, from its plan to the certificate it is settled with."""

import contextlib
import dataclasses
import functools
import getpass
import hashlib
import json
import math
import os
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from types import TracebackType

from understudy import certificate
from understudy.book.book import BudgetBook
from understudy.book.entries import Outcome, Reserved, canonical
from understudy.book.policy import Policy
from understudy.errors import BookError, BudgetExceeded, ConfigError, UnderstudyError
from understudy.failed_run import SpentError
from understudy.pipeline import plan_run
from understudy.privacy.discovery import Binning
from understudy.privacy.ledger import Guarantee, Query, Statement
from understudy.privacy.release_costs import Cost
from understudy.privacy.statement import BookEntry
from understudy.run.atomic import json_bytes
from understudy.run.checkpoint import Checkpoint, reservation_of
from understudy.schema import Schema
from understudy.synthesizers import Synthesizer, express

MOST_PLANS = 12
"""Plans that are made to find the largest epsilon that fits."""
LEAST_EPSILON = 1e-6
"""No guarantee has a smaller one."""


@dataclasses.dataclass(frozen=True)
class ProposedRun:
    """A run that is about to be planned: public facts only."""

    schema: Schema
    method: Synthesizer
    guarantee: Guarantee
    """With a delta."""
    binning: Binning

    @functools.cached_property
    def queries(self) -> tuple[Query, ...]:
        """Every query that is planned."""
        return plan_run(self.schema, self.method, self.guarantee, self.binning).queries

    def at(self, epsilon: float) -> "ProposedRun":
        """The same run at another epsilon."""
        return dataclasses.replace(self, guarantee=dataclasses.replace(self.guarantee, epsilon=epsilon))

    def plan_hash(self, book: BudgetBook) -> str:
        """Identifies what a person approves: data set, unit, schema, method, guarantee and every query."""
        queries = [
            {"what": query.what, "event": query.event.to_json(), "delta": query.delta, "partition": query.partition}
            for query in self.queries
        ]
        content = {
            "dataset": book.dataset,
            "unit": book.unit,
            "schema": json.loads(json.dumps(self.schema.to_dict(), default=str)),
            "method": express(self.method),
            "epsilon": self.guarantee.epsilon,
            "delta": self.guarantee.delta,
            "binning": repr(self.binning),
            "queries": queries,
        }
        return hashlib.sha256(canonical(content).encode()).hexdigest()


def propose_run(
    book: "BudgetBook | str | os.PathLike[str]",
    schema: Schema | None,
    method: Synthesizer,
    guarantee: Guarantee,
    binning: Binning,
    *,
    target: str | None = None,
    seed: int | None = None,
) -> tuple[BudgetBook, ProposedRun]:
    """The book and the run, if the book can cover such a run at all."""
    opened = book if isinstance(book, BudgetBook) else BudgetBook.open(book)
    if schema is None or schema.drafted:
        raise ConfigError(
            "A run with a budget book is planned before the table is opened, so it needs a declared schema. Write one "
            "with 'understudy schema draft', and name it with --schema (in Python: schema=)."
        )
    if not guarantee.is_private or seed is not None:
        what = "a seeded run" if guarantee.is_private else "a run without a guarantee"
        raise ConfigError(f"A budget book cannot cover {what}, which has no bound on its cost. Leave the book out.")
    if schema.name is not None and schema.name != opened.dataset:
        raise BookError(
            f"{opened.path} is the budget book of {opened.dataset!r}, but the schema declares the data set "
            f"{schema.name!r}. Use the book of that data set."
        )
    if schema.unit != opened.unit:
        raise BookError(
            f"{opened.path} counts the cost for {_unit(opened.unit)}, but the schema protects {_unit(schema.unit)}. "
            "Costs for different privacy units cannot be added. Use one unit for all releases of a data set."
        )
    declared = schema if target is None else schema.with_target(target)
    return opened, ProposedRun(declared, method, guarantee.with_delta_for(schema.rows), binning)


def _unit(unit: str | None) -> str:
    return "each row" if unit is None else f"all rows with the same {unit!r}"


class Reservation:
    """What a run has reserved in a book. `with` ends it: a run that failed is settled at its reserved cost, and one
    that has charged nothing is withdrawn. One that is killed stays reserved."""

    def __init__(self, book: BudgetBook, reserved: Reserved, *, resumed: bool):
        self.book, self._reserved = book, reserved
        self.is_charged = resumed
        """Whether a query was charged, in this process or an earlier one: then nothing is given back."""

    @property
    def entry(self) -> BookEntry:
        """For the certificate of the run."""
        return BookEntry(self.book.dataset, self._reserved.number, self._reserved.digest)

    @property
    def number(self) -> int:
        return self._reserved.number

    def cover(self, queries: Sequence[Query], guarantee: Guarantee) -> None:
        """Extends the reservation to these queries of the run if they cost more, or raises `BudgetExceeded`."""
        cost = self.book.terms.cost(queries, guarantee)
        if not cost.fits(self._reserved.cost):
            self._reserved = self.book.extend(self.number, cost)

    def note_in(self, checkpoint: Checkpoint) -> None:
        """So that a resumed run continues this reservation and does not reserve again.

        A run that continues one adds an entry: from then on, no other process can withdraw the reservation. It might
        run from another copy of the checkpoint and not have charged anything.
        """
        if self.is_charged and self._reserved.outcome is not Outcome.RELEASED:
            self._reserved = self.book.extend(self.number, self._reserved.cost)
        checkpoint.note_reservation(json_bytes(dataclasses.asdict(self.entry)))

    def settle(self, statement: Statement) -> str | None:
        """Ends a run that succeeded, at the cost of what it charged.

        A book that cannot be written must not cost the release, whose cost is reserved: the reason is returned.
        """
        if self._reserved.outcome is Outcome.RELEASED:
            return None
        cost = self.book.terms.cost(statement.queries, Guarantee(statement.epsilon_target, statement.delta))
        try:
            self._end(cost, Outcome.RELEASED, certificate_digest(certificate.to_json(statement)))
        except BookError as error:
            return f"{error} Entry {self.number} stays at the reserved cost."
        return None

    def __enter__(self) -> "Reservation":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None or self._reserved.outcome is not Outcome.OPEN:
            return
        with contextlib.suppress(UnderstudyError):  # the error of the run counts, and the cost stays reserved
            if isinstance(error, SpentError):
                digest = certificate_digest(certificate.to_json(error.statement))
                self._end(self._reserved.cost, Outcome.FAILED, digest)
            elif not self.is_charged:
                self.book.withdraw(self._reserved)

    def _end(self, cost: Cost, outcome: Outcome, digest: str) -> None:
        self.book.settle(self.number, cost, outcome, digest)
        self._reserved = self.book.reservation(self.number)


def certificate_digest(content: Mapping[str, object]) -> str:
    """Identifies a certificate, whatever files are listed in it: `synth` adds the checksum of the synthetic table when
    the run is over."""
    kept = {key: value for key, value in content.items() if key != "checksums"}
    return hashlib.sha256(canonical(kept).encode()).hexdigest()


def open_reservation(
    book: "BudgetBook | str | os.PathLike[str] | None",
    policy: "Policy | str | os.PathLike[str] | None",
    schema: Schema | None,
    method: Synthesizer,
    guarantee: Guarantee,
    binning: Binning,
    *,
    target: str | None = None,
    seed: int | None = None,
    checkpoint: "str | os.PathLike[str] | None" = None,
    resume: bool = False,
) -> "AbstractContextManager[Reservation | None]":
    """Reserves the cost of a run before its table is opened; without a book, nothing.

    Formal guarantee: the reserved cost is at least that of every query the run charges, since its ledger asks `cover`
    before each charge. Plan and policy rest on public facts, so a refusal reveals nothing about the rows.
    """
    if book is None:
        if policy is not None:
            raise ConfigError(
                "A policy is about runs with a budget book. Name the book too: --book (in Python: book=)."
            )
        return contextlib.nullcontext()
    rules = policy if isinstance(policy, Policy | None) else Policy.read(policy)
    opened, run = propose_run(book, schema, method, guarantee, binning, target=target, seed=seed)
    if rules is not None:
        rules.check(run.method, run.guarantee)
    if resume and checkpoint is not None and (noted := reservation_of(checkpoint)) is not None:
        found = _continued(opened, noted)
        if rules is not None and rules.second_person and "approved_by" not in found.facts:
            raise BookError("The policy requires an approval, but the run to be resumed was started without one.")
        return Reservation(opened, found, resumed=True)
    return Reservation(opened, _reserve(opened, run, rules), resumed=False)


def _continued(book: BudgetBook, noted: bytes) -> Reserved:
    """The reservation of a run that is resumed."""
    try:
        entry = BookEntry(**json.loads(noted))
        found = book.reservation(entry.number)
    except (ValueError, TypeError, LookupError):
        found = None
    if found is None or found.digest != entry.digest or found.outcome is Outcome.WITHDRAWN:
        raise BookError(
            f"{book.path} does not hold the reservation of the run to be resumed: it is another book, or an older "
            "copy. Resume with the book that the run was started with."
        )
    return found


def _reserve(book: BudgetBook, run: ProposedRun, policy: Policy | None) -> Reserved:
    plan, user = run.plan_hash(book), _user()
    cost = book.terms.cost(run.queries, run.guarantee)
    facts = {
        "plan": plan,
        "method": express(run.method),
        "epsilon": run.guarantee.epsilon,
        "delta": run.guarantee.delta,
        "by": user,
        **({} if policy is None else {"policy": dataclasses.asdict(policy)}),
        **({"disclosure": True} if policy is not None and policy.require_disclosure else {}),
    }

    def find_approval(locked: BudgetBook) -> dict[str, object]:
        if policy is None or not policy.second_person:
            return {}
        for name in locked.approvals(plan):
            if name != user:
                return {"approved_by": name}
        raise BookError(
            "The policy requires that a second person approves the plan. Ask one to run: understudy book approve "
            f"{locked.path} {plan} --by NAME (a name other than {user!r})."
        )

    try:
        return book.reserve(cost, facts, check=find_approval)
    except BudgetExceeded as error:
        fitting = largest_epsilon(book, run)
        advice = "No run with this method fits any more."
        if fitting is not None:
            advice = f"With the same schema and method, epsilon {fitting:g} at delta {run.guarantee.delta:g} would fit."
        raise BudgetExceeded(f"{error} {advice} No row was read.", needed=error.needed, left=error.left) from None


def largest_epsilon(book: BudgetBook, run: ProposedRun) -> float | None:
    """About the largest epsilon, below that of the run, at which the same method still fits; None: none does.

    Makes up to `MOST_PLANS` plans. The answer was planned, so it fits as long as nobody else spends.
    """
    room = book.limit - book.total
    if room.amount <= 0:  # no run costs nothing
        return None

    def needed_at(epsilon: float) -> float:
        """As a fraction of what is left; infinite where there is no plan, or too little delta for any."""
        try:
            tried = run.at(epsilon)
            cost = book.terms.cost(tried.queries, tried.guarantee)
        except UnderstudyError:
            return math.inf
        return cost.amount / room.amount if cost.delta <= room.delta else math.inf

    best, high = None, run.guarantee.epsilon
    guess, needed = high, needed_at(high)
    for _ in range(MOST_PLANS - 1):
        # Costs grow almost like the square of epsilon, so that guesses come close.
        guess = _rounded_down(guess / math.sqrt(needed) * 0.998 if 0 < needed < 1e6 else guess / 8)
        if best is not None and not best < guess < high:
            guess = _rounded_down(math.sqrt(best * high))
        if guess < LEAST_EPSILON or guess == best:
            break
        needed = needed_at(guess)
        best, high = (guess, high) if needed <= 1 else (best, guess)
        if best is not None and (0.96 < needed <= 1 or high / best < 1.02):
            break
    return best


def _rounded_down(epsilon: float) -> float:
    """To three significant digits."""
    if epsilon <= 0:
        return 0.0
    digits = 2 - math.floor(math.log10(epsilon))
    return math.floor(epsilon * 10**digits) / 10**digits if digits < 300 else 0.0


def _user() -> str:
    """Who runs this, by the name of the account: declared in the book, and not verified."""
    try:
        return getpass.getuser()
    except (OSError, KeyError, ImportError):
        return "unknown"
