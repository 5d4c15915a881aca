"""Audit of the query stage: the noisy marginals on which the marginal methods are built.

Two made-up tables that differ in one row are measured many times, each time in a separate run, with the plan, ledger,
codec, charge and noise of a fit. All of the budget goes to the 1-way marginals. The row adds one to a cell of each of
them, so the sum of these cells is the best possible score, and the runs should be as far apart as the charged event
allows. A bound above its mu refutes the mechanism; one far below it would mean that the audit misses something.
"""

import dataclasses
import math
from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from understudy.audit.bounds import Bound, check_scores, lower_bound
from understudy.audit.neighbours import Neighbours, make_neighbours
from understudy.certificate.facts import public_facts
from understudy.errors import ConfigError
from understudy.privacy.accounting.events import ZCDP, DiscreteGaussian, Event, Gaussian
from understudy.privacy.accounting.ledger import Guarantee, Plan
from understudy.privacy.mechanisms.counts import noisy_counts
from understudy.privacy.mechanisms.filters import charge_marginals, charge_zcdp
from understudy.privacy.rows.rows import Clique
from understudy.run.listener import Listener
from understudy.run.plan import PlannedRun, plan_run, synthesizer_of
from understudy.run.run import EncodedTable, encode_table, open_run
from understudy.run.sources import read_private_table
from understudy.schema import as_schema

Answers = list[np.ndarray]
ABOVE = 1 + 1e-9
"""A factor on the noise, so that rounding does not push the total cost of all marginals above the budget."""


def _from_bundle(table: EncodedTable, plan: Plan, cliques: tuple[Clique, ...]) -> Answers:
    return noisy_counts(table.rows, cliques, plan["one_way"], table.run.ledger)


def _from_zcdp_filter(table: EncodedTable, plan: Plan, cliques: tuple[Clique, ...]) -> Answers:
    privacy_filter = charge_zcdp(table.rows, plan["rounds"], table.run.ledger)
    stddev = math.sqrt(len(cliques) / (2 * privacy_filter.rho)) * ABOVE
    return [privacy_filter.noisy_counts(clique, stddev) for clique in cliques]


def _from_gaussian_filter(table: EncodedTable, plan: Plan, cliques: tuple[Clique, ...]) -> Answers:
    privacy_filter = charge_marginals(table.rows, plan["marginals"], table.run.ledger)
    stddev = math.sqrt(len(cliques) / privacy_filter.precision) * ABOVE
    return privacy_filter.noisy_counts(cliques, [stddev] * len(cliques))


class Stage(NamedTuple):
    """One of the mechanisms that count marginals."""

    method: str
    """Whose plan is audited."""
    query: str
    """The key of the query in this plan."""
    answer: Callable[[EncodedTable, Plan, tuple[Clique, ...]], Answers]
    used_by: str


STAGES = {
    "bundle": Stage("independent", "one_way", _from_bundle, "independent, mst, privbayes"),
    "zcdp filter": Stage("aim", "rounds", _from_zcdp_filter, "aim"),
    "gaussian filter": Stage("gem", "marginals", _from_gaussian_filter, "gem, adaptive"),
}
"""By name: a bundle of one charge, and two privacy filters."""


@dataclasses.dataclass(frozen=True)
class QueryAudit:
    """What many runs of a query stage show about it."""

    stage: str
    guarantee: Guarantee
    claimed_mu: float
    """The mu (Gaussian differential privacy) of the event that each run charges."""
    bound: Bound

    @property
    def fraction(self) -> float:
        """The bound as a fraction of the claimed mu."""
        return self.bound.mu / self.claimed_mu


def audit_queries(
    stage: str, guarantee: Guarantee, *, num_runs: int, seed: int, confidence: float = 0.95
) -> QueryAudit:
    """Lower bounds from `num_runs` runs with the row and as many without it; the seed fixes all their noise.

    >>> found = audit_queries("bundle", Guarantee(1.0, 1e-2), num_runs=50, seed=0)
    >>> round(found.claimed_mu, 2)
    0.53
    """
    if stage not in STAGES:
        raise ConfigError(f"There is no query stage {stage!r}. The stages are: {', '.join(STAGES)}.", setting="stage")
    check_scores(np.zeros(num_runs))
    pair = make_neighbours("row")
    planned = plan_run(as_schema(pair.schema), synthesizer_of(STAGES[stage].method), guarantee, pair.binning)
    seeds = np.random.SeedSequence(seed).generate_state(2 * num_runs, np.uint64)
    inside, outside = (
        np.fromiter(score_runs(STAGES[stage], planned, pair, part, with_canary=with_canary), float, num_runs)
        for part, with_canary in ((seeds[:num_runs], True), (seeds[num_runs:], False))
    )
    bound = lower_bound(inside, outside, delta=planned.guarantee.delta or 0.0, confidence=confidence, seed=seed)
    return QueryAudit(stage, planned.guarantee, claimed_mu(planned.training[STAGES[stage].query].event), bound)


def score_runs(
    stage: Stage, planned: PlannedRun, pair: Neighbours, seeds: np.ndarray, *, with_canary: bool
) -> Iterator[float]:
    """For each seed, the sum of the noisy counts of the cells that contain the row."""
    table = read_private_table(pair.table(with_canary=with_canary), planned.schema).table
    canary = pa.Table.from_pylist(list(pair.added))
    for seed in seeds.tolist():
        with open_run(seed=seed, listener=Listener()) as run:
            run.start(stage.method, planned.guarantee, planned.queries, public_facts(planned.schema))
            encoded = encode_table(run, planned, table)
            answers = stage.answer(encoded, planned.training, encoded.rows.domain.one_way)
            (codes,) = encoded.codec.encode(canary)
            yield float(sum(cells[code] for cells, code in zip(answers, codes, strict=True)))


def claimed_mu(event: Event) -> float:
    """The mu of an event that is charged as a Gaussian one, or as all of a zCDP budget.

    >>> claimed_mu(DiscreteGaussian(stddev=4.0, count=4))
    0.5
    """
    assert isinstance(event, DiscreteGaussian | Gaussian | ZCDP)
    return math.sqrt(2 * event.rho)
