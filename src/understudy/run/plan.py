"""The plan of a run, whether it fits a synthesizer or a learner: from public facts alone, before any row is read."""

import dataclasses
import json
from typing import Protocol

from understudy.certificate.agreement import excess
from understudy.encoding import assumed_domain, reexpress, rule_warnings
from understudy.errors import ConfigError
from understudy.notes import Note
from understudy.privacy.accounting.ledger import Budget, Guarantee, Plan, Query
from understudy.privacy.mechanisms.discovery import Binning, plan_discovery
from understudy.privacy.mechanisms.rows_per_unit import plan_rows_per_unit
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

    @property
    def identity(self) -> dict[str, str]:
        """What a checkpoint recognises the run by, apart from its method and its table."""
        schema = json.dumps(self.schema.to_dict(), sort_keys=True, default=str)
        return {"schema": schema, "binning": repr(self.binning)}


def plan_run(
    schema: Schema, method: Plannable, guarantee: Guarantee, binning: Binning, *, num_rows: int | None = None
) -> PlannedRun:
    """Plans every query of a run. Refuses what exceeds the budget, what would not fit at the largest sizes, and rules
    that no row satisfies."""
    rule_warnings(schema)
    budget = guarantee.budget(schema.max_rows_per_unit)
    discovery = plan_discovery(reexpress(schema).modelled, budget, binning)
    if isinstance(method, Synthesizer):  # a learner makes no rows
        queries = (*discovery.queries, *plan_rows_per_unit(schema, budget))
        discovery = dataclasses.replace(discovery, queries=queries)
    domain = assumed_domain(schema, binning, num_rows=num_rows)
    training = plan_method(method, domain, budget.after(discovery.queries))
    for fault in excess((*discovery.queries, *training.queries)):
        raise ConfigError(f"The run {fault} fit into a certificate. Use fewer targets or parts.")
    return PlannedRun(schema, guarantee, binning, discovery, training)


def plan_method(method: Plannable, domain: Domain, budget: Budget) -> Plan:
    """The plan of a method under its name, with a note if it treats the target like any other column."""
    made = method.plan(domain, budget).under(name_of(method))
    if domain.target is None or not isinstance(method, Synthesizer) or method.capabilities.target:
        return made
    return dataclasses.replace(made, notes=(*made.notes, Note("This method treats the target like any other column.")))


def require_rows(method: Synthesizer, *, is_remote: bool) -> None:
    """Refuses a method that needs rows if they stay on a cluster: both facts are public, so before rows are read."""
    if is_remote and needs_rows(method):
        raise ConfigError(
            f"{name_of(method)} needs individual rows, which stay on the cluster. Use a method that counts (mst, aim, "
            "auto), or the local engine.",
            setting="method",
        )


def synthesizer_of(method: Synthesizer | str) -> Synthesizer:
    """The synthesizer to fit, given as a synthesizer or as an expression."""
    if isinstance(method, str):
        return read_method(method)
    if not isinstance(method, Synthesizer):
        raise ConfigError(
            f"method must be a synthesizer or its expression, such as 'mst'; found {type(method).__name__}.",
            setting="method",
        )
    return method


def read_guarantee(
    guarantee: Guarantee | None, epsilon: float | None, delta: float | None, *, default: Guarantee | None = None
) -> Guarantee:
    """The guarantee, given as one or by its figures; refused if there is none and no `default`."""
    if not isinstance(guarantee, Guarantee | None):
        raise ConfigError(
            f"guarantee must be a us.Guarantee, found {type(guarantee).__name__}. Write epsilon=1, or "
            "us.Guarantee(epsilon=1).",
            setting="guarantee",
        )
    if guarantee is not None:
        if epsilon is not None or delta is not None:
            raise ConfigError(
                "Give the guarantee once: either guarantee, or epsilon and delta. Remove one of them.",
                setting="guarantee",
            )
        return guarantee
    if epsilon is not None:
        return Guarantee(epsilon, delta)
    if delta is not None:
        raise ConfigError("delta alone is not a guarantee. Give epsilon too: epsilon=1.", setting="delta")
    if default is None:
        raise ConfigError(
            "Set the privacy budget: epsilon=1 (smaller is more private), or guarantee=us.Guarantee.not_private() for "
            "a baseline.",
            setting="epsilon",
        )
    return default
