"""Compares a budget book with the certificates of the runs that it covered.

Alone, a book can only show that its entries follow from each other. A certificate carries the number and the hash of
its reservation, and that hash depends on all entries before it: so certificates show that a book was truncated, rolled
back to an older copy, rewritten, or replaced by another.
"""

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from understudy import certificate
from understudy.certificate.agreement import UNREADABLE
from understudy.certificate.json import book_to_json
from understudy.errors import BookError, UnderstudyError
from understudy.institution.book.book import BudgetBook
from understudy.institution.book.entries import Outcome, approval_in
from understudy.institution.book.reservation import certificate_digest
from understudy.privacy.accounting.ledger import Guarantee
from understudy.privacy.accounting.release_costs import Cost
from understudy.privacy.accounting.statement import BookEntry
from understudy.run.atomic import read_object

CERTIFICATE, DISCLOSURE = "certificate.json", "understudy-disclosure"
SLACK = 10**9
"""Costs may differ by one part in 10^9: another machine computes other last digits."""


def verify_certificates(book: BudgetBook, folder: str | os.PathLike[str]) -> tuple[list[str], list[str]]:
    """What contradicts the book among the certificates in this folder and below, and what else a steward should know.

    Formal guarantee: if a certificate that names this data set has a reservation that the given book does not have, or
    one that covers less than the queries of the certificate, or was changed after its run was settled, there is a
    contradiction. So is one from which nothing but its entry was removed. If it was changed as well, it looks like one
    of a run without a book, and only the entry of its run has no certificate.
    """
    place = Path(folder)
    if not place.is_dir():
        raise BookError(f"{place} is not a folder. Name the folder that holds the releases.")
    faults, notes, seen = [], [], set()
    tables: dict[int, set[str]] = {}
    for path in sorted(place.rglob(CERTIFICATE)):
        content = read_object(path)
        entry = content.get("book")
        if isinstance(entry, Mapping) and (entry.get("dataset"), type(entry.get("entry"))) == (book.dataset, int):
            tables[entry["entry"]] = _table_names(path, content)
        if content.get("format") != "understudy-certificate":
            notes.append(f"{path} is not a certificate that can be read.")
        elif not isinstance(entry, Mapping):
            if (number := _removed_entry(book, content)) is None:
                notes.append(f"{path} is from a run without a budget book: its cost is in no book.")
            else:
                faults.append(f"{path} is the certificate of entry {number}, which was removed from it.")
        elif entry.get("dataset") != book.dataset:
            notes.append(f"{path} belongs to the budget book of {entry.get('dataset')!r}.")
        elif (fault := _contradiction(book, content, entry)) is not None:
            faults.append(f"{path} {fault}")
        elif content.get("released") or book.reservation(entry["entry"]).outcome is not Outcome.RELEASED:
            seen.add(entry["entry"])  # and not by the record of an earlier attempt alone
    notes.extend(_missing(book, place, seen, tables))
    return faults, notes


def approval_notes(book: BudgetBook) -> Iterator[str]:
    """Approvals that one account may have given to itself: names and accounts are records, not proof."""
    entries = {each.number: each.facts for each in book.reservations}
    entries |= {each.number: each.facts for each in book.policies}
    for number, facts in sorted(entries.items()):
        approval = approval_in(facts)
        if approval is not None and approval.account == facts.get("by"):
            yield (
                f"The approval of entry {number} by {approval.by} was recorded from the account that used it "
                f"({approval.account})."
            )


def _removed_entry(book: BudgetBook, content: Mapping[str, Any]) -> int | None:
    """The entry of a certificate that has lost it; None: it is not one of this book."""
    for each in book.reservations:
        entry = BookEntry(book.dataset, each.number, each.digest)
        if each.certificate == _digest({**content, "book": book_to_json(entry)}):
            return each.number
    return None


def _contradiction(book: BudgetBook, content: Mapping[str, Any], entry: Mapping[str, Any]) -> str | None:
    """How a certificate contradicts the book; None: it does not."""
    number = entry.get("entry")
    if type(number) is int and number > book.num_entries:
        return f"has entry {number}, but the book ends at {book.num_entries}: it was truncated, or is an older copy."
    try:
        reservation = book.reservation(number)  # type: ignore[arg-type]  # refused below if it is no number
    except (LookupError, TypeError):
        return f"has entry {number}, which reserves nothing: the book was rewritten, or is another one."
    if reservation.digest != entry.get("hash"):
        return f"has entry {number} with another hash: the book was rewritten, or is another one."
    if reservation.outcome is Outcome.WITHDRAWN:
        return f"has entry {number}, which was withdrawn: the book was rewritten."
    if reservation.certificate is None and not _is_covered(book, content, reservation.cost):
        return f"costs more than entry {number} has reserved: the book was cut, or is an older copy."
    known = (reservation.certificate, *reservation.failures)  # a run may have failed before it was resumed
    if reservation.certificate is not None and _digest(content) not in known:
        return f"was changed after entry {number} was settled, or is from a later state of the book."
    return None


def _is_covered(book: BudgetBook, content: Mapping[str, Any], reserved: Cost) -> bool:
    """Whether a reservation covers the queries of a certificate. Extensions are entries after the one it names."""
    try:
        statement = certificate.from_json(content)
        cost = book.terms.cost(statement.queries, Guarantee(statement.epsilon_target, statement.delta))
    except (UnderstudyError, *UNREADABLE):
        return False
    slack = Cost(reserved.amount // SLACK, reserved.delta // SLACK)
    return cost.fits(reserved + slack)


def _missing(book: BudgetBook, place: Path, seen: set[int], tables: Mapping[int, set[str]]) -> Iterator[str]:
    """Runs without a certificate here, and releases without the disclosure report that their policy requires."""
    reports = (each for each in map(read_object, place.rglob("*.json")) if each.get("format") == DISCLOSURE)
    disclosed = {str(each.get("synthetic")) for each in reports}
    for each in book.reservations:
        if each.outcome is Outcome.OPEN:
            yield f"Entry {each.number} is not settled: its run is under way, or was killed. Its reserved cost counts."
        elif each.outcome is not Outcome.WITHDRAWN and each.number not in seen:
            yield f"In {place}, entry {each.number} ({each.outcome.value}) has no certificate."
        elif each.facts.get("disclosure") and not disclosed & tables.get(each.number, set()):
            yield f"In {place}, entry {each.number} has no disclosure report, which its policy requires."


def _table_names(path: Path, content: Mapping[str, Any]) -> set[str]:
    """Names by which a disclosure report may know the table of this release."""
    names = {path.parent.name.removesuffix(".release")}
    checksums = content.get("checksums")
    return names | {Path(name).name.partition(".")[0] for name in (checksums if isinstance(checksums, Mapping) else ())}


def _digest(content: Mapping[str, Any]) -> str:
    """The digest of a certificate; that of none if it has what no certificate has, such as NaN."""
    try:
        return certificate_digest(content)
    except (ValueError, RecursionError):
        return ""
