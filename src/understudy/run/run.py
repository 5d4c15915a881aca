"""A private run and its only owner: nothing else opens a ledger, takes noise, or reserves and settles a cost.

    with open_run(seed=seed, book=book, proposed=proposed) as run:  # refuses, and reserves in the budget book
        table = ...  # from here on, rows may be opened
        run.start(method, guarantee, plan.queries, facts)  # the last step that can refuse; opens `run.ledger`
        ...  # the queries, each of which is charged first
        statement = run.finish(run.statement())  # settles

A run that fails after its first charge raises a `SpentError`, whatever it makes: a table, a graph, a learner, weights.
"""

import contextlib
import dataclasses
import functools
import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Never

from jaxtyping import PRNGKeyArray

from understudy import certificate
from understudy.encoding import Codec, fit_codec
from understudy.errors import ConfigError
from understudy.institution.book.book import BudgetBook
from understudy.institution.book.policy import Policy
from understudy.institution.book.proposal import ProposedRun
from understudy.institution.book.reservation import Reservation, reserve_run
from understudy.notes import Level, Note
from understudy.privacy.accounting.ledger import Guarantee, Ledger, PublicFacts, Query, Statement
from understudy.privacy.noise.source import noise_source
from understudy.privacy.rows.rows import PrivateRows
from understudy.privacy.rows.table import PrivateTable, PublicTable, table_digest
from understudy.run.checkpoint import Checkpoint, require_place, reservation_of
from understudy.run.environment import environment_facts
from understudy.run.failure import raise_failure
from understudy.run.listener import Listener, WarningListener, report
from understudy.run.plan import PlannedRun
from understudy.schema import Domain

BookSource = BudgetBook | str | os.PathLike[str] | None
PolicySource = Policy | str | os.PathLike[str] | None
Folder = str | os.PathLike[str] | None


@contextlib.contextmanager
def open_run(
    *,
    seed: int | None = None,
    book: BookSource = None,
    policy: PolicySource = None,
    proposed: ProposedRun | None = None,
    checkpoint: Folder = None,
    resume: bool = False,
    record: Folder = None,
    listener: Listener | None = None,
) -> Iterator["PrivateRun"]:
    """Opens a run and reserves its cost; `PrivateRun.start` starts it. No row may be opened before this.

    `proposed` is the run as a budget book sees it: required with a `book`. `record` is the folder in which a run
    without a checkpoint records what it has spent if it fails. Without a `listener`, what a caller should know is
    issued as warnings.

    Formal guarantee: every query of the run is charged to its ledger before it is made and, if the run has a book,
    reserved there before it is charged. A run that ends with an error after its first charge counts with its whole
    plan, in the statement of the `SpentError` and in the book.
    """
    if checkpoint is not None:
        require_place(checkpoint, resume=resume)
    elif resume:
        raise ConfigError(
            "resume=True needs the folder of the run to resume: give checkpoint too.", setting="checkpoint"
        )
    if book is None and policy is not None:
        raise ConfigError("A policy needs a budget book. Name the book: --book (in Python: book=).", setting="book")
    with contextlib.ExitStack() as at_end:
        reservation = None
        if book is not None:
            assert proposed is not None
            noted = reservation_of(checkpoint) if resume and checkpoint is not None else None
            reservation = at_end.enter_context(reserve_run(book, policy, proposed, seed=seed, noted=noted))
        run = PrivateRun(seed, reservation, checkpoint, record, listener or WarningListener(), at_end, resume=resume)
        try:
            yield run
        except Exception as error:
            if not run._is_running:
                raise
            run._fail(error)


class PrivateRun:
    """What a run owns, from `open_run` to `finish`: its reservation, its checkpoint, its noise and its ledger."""

    ledger: Ledger
    """Charges every query. Opened by `start`."""
    is_finished: bool = False
    """After `start`: whether the run had already finished. Then its checkpoint holds the result, which is not computed
    again: the arithmetic could differ."""

    def __init__(
        self,
        seed: int | None,
        reservation: Reservation | None,
        folder: Folder,
        record: Folder,
        listener: Listener,
        at_end: contextlib.ExitStack,
        *,
        resume: bool,
    ):
        self.listener = listener
        self.checkpoint: Checkpoint | None = None
        self._seed, self._reservation, self._folder, self._resume = seed, reservation, folder, resume
        self._record, self._at_end = record, at_end
        self._is_running = False

    def start(
        self,
        method: str,
        guarantee: Guarantee,
        queries: Sequence[Query],
        facts: PublicFacts,
        *,
        max_rows_per_unit: int = 1,
        tables: Mapping[str, PrivateTable | PublicTable] | None = None,
        identity: Mapping[str, str] | None = None,
    ) -> None:
        """Opens the checkpoint (if there is one), the noise and the ledger: the last step that can refuse the run.

        `queries` is its whole plan, and `facts` what it takes as public. A checkpoint recognises the run by `tables`
        and by `identity`, which is everything else that its result depends on.
        """
        assert not hasattr(self, "ledger"), "a run starts once: its reservation covers one plan"
        entry = None
        if self._reservation is not None:
            self._reservation.cover(queries, guarantee)  # rows that were held out change the declared number of rows
            entry = self._reservation.entry
        self._method, self._queries = method, tuple(queries)
        self._facts = dataclasses.replace(facts, book=entry)
        if self._folder is not None:
            self.checkpoint = self._open_checkpoint(self._folder, guarantee, tables or {}, identity or {})
            if self.checkpoint.is_finished:
                self.is_finished = True
                return
        if not self._resume:
            self.listener.before_spending(self._facts, guarantee)
        noise = noise_source(self._seed, None if self.checkpoint is None else self.checkpoint.secret)
        self.ledger = Ledger(
            guarantee, noise=noise, max_rows_per_unit=max_rows_per_unit, store=self.checkpoint, book=self._reservation
        )
        self._is_running = True

    def _open_checkpoint(
        self,
        folder: str | os.PathLike[str],
        guarantee: Guarantee,
        tables: Mapping[str, PrivateTable | PublicTable],
        identity: Mapping[str, str],
    ) -> Checkpoint:
        """A resumed run must share all facts that its result depends on."""
        facts = {
            "method": self._method,
            "epsilon": repr(guarantee.epsilon),
            "delta": repr(guarantee.delta),
            "seed": repr(self._seed),
            **identity,
            **environment_facts(),
        }
        if self._facts.book is not None:  # a run under another reservation is another run
            facts["budget book"] = json.dumps(dataclasses.asdict(self._facts.book))
        digests = {name: functools.partial(table_digest, table) for name, table in tables.items()}
        checkpoint = self._at_end.enter_context(Checkpoint.open(folder, digests, facts, resume=self._resume))
        if self._reservation is not None and not checkpoint.is_finished:
            self._reservation.note_in(checkpoint)
        return checkpoint

    def key(self) -> PRNGKeyArray:
        """A key for the randomness of the method, as secret as the noise."""
        return self.ledger.noise.key()

    def statement(self, *, estimated: tuple[str, ...] = (), warnings: tuple[str, ...] = ()) -> Statement:
        """What was charged so far, with the public facts of the run and what it has estimated."""
        facts = dataclasses.replace(self._facts, estimated=estimated)
        return self.ledger.statement(facts, method=self._method, warnings=warnings)

    def finish(
        self, statement: Statement, notes: Sequence[Note] = (), *, keep: Callable[[], Mapping[str, bytes]] | None = None
    ) -> Statement:
        """Ends a run that succeeded: settles it, at the cost of what it charged.

        With a checkpoint, `keep` returns the files of the result, which are kept there until the result is saved;
        without such files the checkpoint is deleted. From here on nothing loses the result: if the book cannot be
        written, the cost stays reserved and the listener gets a warning; if the listener fails, a warning says so.
        """
        if self.checkpoint is not None and not self.is_finished:
            self.checkpoint.keep(keep()) if keep is not None else self.checkpoint.delete()
        failure = None if self._reservation is None else self._reservation.settle(statement)
        self._is_running = False
        report(lambda: self.listener.finished(statement, notes))
        if failure is not None:
            report(lambda: self.listener.note(Note(failure, Level.WARNING)))
        return statement

    def _fail(self, error: Exception) -> Never:
        planned = functools.partial(self.ledger.statement, self._facts, method=self._method, planned=self._queries)
        raise_failure(error, self.ledger, planned, checkpoint=self.checkpoint, record=self._record)


@dataclasses.dataclass(frozen=True)
class EncodedTable:
    """A table encoded under the ledger of its run, ready for the queries of a method."""

    codec: Codec
    rows: PrivateRows
    run: PrivateRun

    def statement(self) -> Statement:
        """What was charged so far, and the public facts of the run."""
        schema = self.codec.schema
        estimated = certificate.estimated_facts(schema, self.codec)
        return self.run.statement(estimated=estimated, warnings=certificate.size_warnings(self.rows, schema))


def encode_table(
    run: PrivateRun,
    planned: PlannedRun,
    table: PrivateTable,
    *,
    too_large: Callable[[Domain], tuple[str, ...]] | None = None,
) -> EncodedTable:
    """Estimates privately what the schema leaves open, and encodes the rows: the first queries of a run on a table."""
    codec, rows = fit_codec(table, planned.schema, planned.discovery, run.ledger, planned.binning, too_large)
    return EncodedTable(codec, rows, run)
