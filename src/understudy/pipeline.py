"""What every private run shares, whether it fits a synthesizer or a learner: the plan, the ledger, the encoded table.

A run is planned from public facts alone. `encode_table` then opens its ledger, estimates privately what the schema
leaves open, and encodes the table; the queries of the method follow under the same ledger.
"""

import contextlib
import dataclasses
from collections.abc import Callable, Iterator
from typing import Protocol

from understudy import certificate
from understudy.encoding import Codec, assumed_domain, fit_codec, reexpress
from understudy.errors import ConfigError
from understudy.failed_run import record_failure
from understudy.notes import Note
from understudy.privacy.discovery import Binning, plan_discovery
from understudy.privacy.ledger import Book, Budget, Guarantee, Ledger, Plan, PublicFacts, Query, Statement
from understudy.privacy.noise import NoiseSource
from understudy.privacy.rows import PrivateRows
from understudy.privacy.rows_per_unit import plan_rows_per_unit
from understudy.privacy.table import PrivateTable
from understudy.run.checkpoint import Checkpoint
from understudy.schema import Domain, Schema
from understudy.synthesizers import Synthesizer, name_of, read_method
from understudy.synthesizers.protocol import needs_rows


class Plannable(Protocol):
    """What a run needs of a synthesizer or of a learner before it reads data."""

    def plan(self, domain: Domain, budget: Budget) -> Plan: ...


@dataclasses.dataclass(frozen=True)
class PlannedRun:
    """The public facts of a run and the plan of all its queries, complete before any data is read."""

    schema: Schema
    guarantee: Guarantee
    binning: Binning
    discovery: Plan
    """Estimates of what the schema leaves open."""
    training: Plan
    """Queries of the method, planned on an assumed domain: their cost must not depend on private estimates."""

    @property
    def queries(self) -> tuple[Query, ...]:
        return (*self.discovery.queries, *self.training.queries)


def plan_run(
    schema: Schema, method: Plannable, guarantee: Guarantee, binning: Binning, *, num_rows: int | None = None
) -> PlannedRun:
    """Plans every query of a run. Refuses what exceeds the budget, and what would not fit at the largest sizes."""
    budget = guarantee.budget(schema.max_rows_per_unit)
    discovery = plan_discovery(reexpress(schema).modelled, budget, binning)
    if isinstance(method, Synthesizer):  # a learner makes no rows
        queries = (*discovery.queries, *plan_rows_per_unit(schema, budget))
        discovery = dataclasses.replace(discovery, queries=queries)
    domain = assumed_domain(schema, binning, num_rows=num_rows)
    training = plan_method(method, domain, budget.after(discovery.queries))
    return PlannedRun(schema, guarantee, binning, discovery, training)


def plan_method(method: Plannable, domain: Domain, budget: Budget) -> Plan:
    """The plan of a method under its name, with a note if it treats the target like any other column."""
    made = method.plan(domain, budget).under(name_of(method))
    if domain.target is None or not isinstance(method, Synthesizer) or method.capabilities.target:
        return made
    return dataclasses.replace(made, notes=(*made.notes, Note("This method treats the target like any other column.")))


def require_rows(method: Synthesizer, *, is_remote: bool) -> None:
    """Refuses a method that needs rows where they stay on a cluster. Both are public: refused before rows are read."""
    if is_remote and needs_rows(method):
        raise ConfigError(
            f"{name_of(method)} needs individual rows, which stay on the cluster. Use a method that counts (mst, aim, "
            "auto), or the local engine."
        )


def synthesizer_of(method: Synthesizer | str) -> Synthesizer:
    """The synthesizer to fit, given as a synthesizer or as an expression."""
    if isinstance(method, str):
        return read_method(method)
    if not isinstance(method, Synthesizer):
        raise ConfigError(
            f"method must be a synthesizer or its expression, such as 'mst'; found {type(method).__name__}."
        )
    return method


@dataclasses.dataclass(frozen=True)
class EncodedTable:
    """A table encoded under a ledger, ready for the queries of a method."""

    codec: Codec
    rows: PrivateRows
    ledger: Ledger
    facts: PublicFacts
    method: str

    def statement(self) -> Statement:
        """What was charged so far, and the public facts of the run."""
        schema = self.codec.schema
        found = dataclasses.replace(self.facts, estimated=certificate.estimated_facts(schema, self.codec))
        warnings = certificate.size_warnings(self.rows, schema)
        return self.ledger.statement(found, method=self.method, warnings=warnings)


@contextlib.contextmanager
def encode_table(
    run: PlannedRun,
    table: PrivateTable,
    noise: NoiseSource,
    *,
    too_large: Callable[[Domain], tuple[str, ...]] | None = None,
    checkpoint: Checkpoint | None = None,
    method: str,
    facts: PublicFacts | None = None,
    book: Book | None = None,
) -> Iterator[EncodedTable]:
    """Opens the ledger of a run, estimates what the schema leaves open, and encodes the table.

    Queries of the method belong inside the `with` block: any error after the first charge becomes a `SpentError` with
    the statement of the whole plan. `facts` are by default those of the schema alone. `book` must cover every query.
    """
    schema, facts = run.schema, facts or certificate.public_facts(run.schema)
    ledger = Ledger(run.guarantee, noise=noise, max_rows_per_unit=schema.max_rows_per_unit, store=checkpoint, book=book)
    with record_failure(ledger, lambda: ledger.statement(facts, method=method, planned=run.queries), checkpoint):
        codec, rows = fit_codec(table, schema, run.discovery, ledger, run.binning, too_large)
        yield EncodedTable(codec, rows, ledger, facts, method)
