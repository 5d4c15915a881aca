"""The reservation of one run in a budget book, from its plan to the certificate it is settled with."""

import contextlib
import dataclasses
import hashlib
import json
import os
from collections.abc import Mapping, Sequence
from types import TracebackType

from understudy import certificate
from understudy.errors import BookError, BookExceeded, UnderstudyError
from understudy.institution.book.book import BudgetBook, account_name
from understudy.institution.book.entries import Outcome, Reserved, approval_in, canonical
from understudy.institution.book.policy import Policy, as_policy
from understudy.institution.book.proposal import ProposedRun, as_book, require_covered
from understudy.institution.book.proposal import largest_epsilon as largest_epsilon
from understudy.institution.book.proposal import propose_run as propose_run
from understudy.privacy.accounting.ledger import Guarantee, Query, Statement
from understudy.privacy.accounting.release_costs import Cost
from understudy.privacy.accounting.statement import BookEntry
from understudy.run.atomic import json_bytes
from understudy.run.checkpoint import Checkpoint
from understudy.run.failure import SpentError


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
        """Extends the reservation to these queries of the run if they cost more, or raises `BudgetExceeded`.

        A reservation that a second person approved is not extended: that person saw another plan.
        """
        cost = self.book.terms.cost(queries, guarantee)
        if not cost.fits(self._reserved.cost):
            if approval_in(self._reserved.facts) is not None:
                raise BookExceeded(
                    "This run would cost more than the plan that a second person approved. If it holds rows out: split "
                    "the table first ('understudy split'), and have the plan for the smaller table approved.",
                    needed=cost.fraction_of(self.book.limit),
                    left=self._reserved.cost.fraction_of(self.book.limit),
                )
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
        try:
            cost = self.book.terms.cost(statement.queries, Guarantee(statement.epsilon_target, statement.delta))
            self._end(cost, Outcome.RELEASED, certificate_digest(certificate.to_json(statement)))
        except Exception as error:
            reason = error if isinstance(error, UnderstudyError) else f"The book failed ({type(error).__name__})."
            return f"{reason} Entry {self.number} stays at the reserved cost."
        return None

    def __enter__(self) -> "Reservation":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None or self._reserved.outcome is not Outcome.OPEN:
            return
        with contextlib.suppress(Exception):  # the error of the run counts, and the cost stays reserved
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


def reserve_run(
    book: "BudgetBook | str | os.PathLike[str]",
    policy: "Policy | str | os.PathLike[str] | None",
    run: ProposedRun,
    *,
    seed: int | None = None,
    noted: bytes | None = None,
) -> Reservation:
    """Reserves the cost of a run before its data are opened.

    `noted` is what an interrupted run has noted about its reservation, which this one continues.

    Formal guarantee: the reserved cost is at least that of every query the run charges, since its ledger asks `cover`
    before each charge. Plan and policy rest on public facts, so a refusal reveals nothing about the rows.
    """
    opened, own = as_book(book), as_policy(policy)
    require_covered(opened, run, seed=seed)
    if (rules := _rules(opened, own)) is not None:
        rules.check(run.method, run.guarantee)
    if noted is None:
        return Reservation(opened, _reserve(opened, run, own), resumed=False)
    found = _continued(opened, run, noted)
    if rules is not None and rules.second_person and "approved_by" not in found.facts:
        raise BookError(
            "The policy requires an approval, but the run to be resumed was started without one.", reason="not approved"
        )
    return Reservation(opened, found, resumed=True)


def _rules(book: BudgetBook, own: Policy | None) -> Policy | None:
    """The policy of the book and that of the run: a run can only be stricter than its book."""
    return own if (policy := book.policy) is None else policy.combined(own)


def _continued(book: BudgetBook, run: ProposedRun, noted: bytes) -> Reserved:
    """The reservation of a run that is resumed, if it was made for the same plan."""
    try:
        entry = BookEntry(**json.loads(noted))
        reservation = book.reservation(entry.number)
    except (ValueError, TypeError, LookupError, RecursionError):
        reservation = None
    if reservation is None or reservation.digest != entry.digest or reservation.outcome is Outcome.WITHDRAWN:
        raise BookError(
            f"{book.path} does not hold the reservation of the run to be resumed: it is another book, or an older "
            "copy. Resume with the book that the run was started with.",
            reason="missing",
        )
    if reservation.facts.get("plan") != run.plan_hash(book):
        raise BookError(
            f"Entry {reservation.number} of {book.path} was reserved for another plan than that of the run to be "
            "resumed. Resume with the same schema, method and guarantee, or delete the checkpoint and start a new run.",
            reason="other run",
        )
    return reservation


def _reserve(book: BudgetBook, run: ProposedRun, own: Policy | None) -> Reserved:
    plan = run.plan_hash(book)
    facts = {
        "plan": plan,
        "method": run.method_text,
        "epsilon": run.guarantee.epsilon,
        "delta": run.guarantee.delta,
        "by": account_name(),
    }

    def check_policy(locked: BudgetBook) -> dict[str, object]:
        if (rules := _rules(locked, own)) is None:  # as of now: somebody may have set another one
            return {}
        rules.check(run.method, run.guarantee)
        return {
            "policy": rules.to_dict(),
            **({"disclosure": True} if rules.require_disclosure else {}),
            **(locked.require_approval(plan, "the plan") if rules.second_person else {}),
        }

    try:
        return book.reserve(book.terms.cost(run.queries, run.guarantee), facts, check=check_policy)
    except BookExceeded as error:
        fitting = largest_epsilon(book, run)
        advice = f"No run with this method and delta {run.guarantee.delta:g} fits any more."
        if fitting is not None:
            advice = f"With the same schema and method, epsilon {fitting:g} at delta {run.guarantee.delta:g} would fit."
        raise BookExceeded(f"{error} {advice} No row was read.", needed=error.needed, left=error.left) from None
