"""Exponential-mechanism selection of the column that depends most on some others.

The score of a child column X and parent columns P is the count-scaled R score of PrivBayes (Zhang, Cormode, Procopiuc,
Srivastava and Xiao, "PrivBayes: private data release via Bayesian networks", 2017, section 4.3),

    R(X, P) = 1/2 sum_{x, p} |c(x, p) - c(x) c(p) / n|,

with exact counts c and the exact number of rows n: n times the total variation distance of the joint distribution from
the product of its margins. The paper proves a sensitivity for replacing a row and a public n. Here n is private, and
one row is added or removed:

Let a row (x0, p0) be added, with indicators e = [x = x0] and f = [p = p0], and let u = c(x) / n and v = c(p) / n be the
distributions before. Then the matrix c(x, p) - c(x) c(p) / n changes by n / (n + 1) times (e - u) (f - v)', whose
absolute values sum to |e - u| |f - v| <= 2 * 2. So R changes by less than 2, up or down; a unit of k rows changes it by
less than 2 k.
"""

import dataclasses
from collections.abc import Sequence

import numpy as np

from understudy.errors import BudgetExceeded
from understudy.privacy.accounting.events import Selections
from understudy.privacy.accounting.ledger import Ledger, Query
from understudy.privacy.gradients.charges import check_query, event_of
from understudy.privacy.rows.rows import Clique, PrivateRows

SENSITIVITY = 2
"""Of the score, for one row that is added or removed."""
STEPS = 2**20
"""Scores are rounded down to this fraction of one, by integers: rounding adds one step to their sensitivity."""
MAX_INT64_ROWS = 2**31
"""Up to here sums of products of counts fit 64 bits."""


@dataclasses.dataclass(frozen=True)
class Dependence:
    """A child column and the parents that it may depend on."""

    child: str
    parents: Clique

    @property
    def clique(self) -> Clique:
        """All its columns."""
        return (*self.parents, self.child)


def noisy_dependence_selections(rows: PrivateRows, query: Query, ledger: Ledger) -> "DependenceSelector":
    """Charges for all rounds of `query` at once, and returns the function that makes them one by one.

    Formal guarantee: the cost of `query`, `Selections`, under add/remove of one unit: at most its `rounds` selections,
    each by the exponential mechanism of its `epsilon`, since a unit of k rows changes every score by less than 2 k, and
    rounding by one step more. Candidates may depend on earlier selections. Not covered: timing, memory.
    """
    event = event_of(query, Selections)
    check_query(rows, query, ledger)
    ledger.charge(query)  # before any count: a refused query must not be made
    return DependenceSelector(rows, event, ledger)


class DependenceSelector:
    """Charged selections. The exact scores inside are computed once each and never shown."""

    def __init__(self, rows: PrivateRows, event: Selections, ledger: Ledger):
        self._private, self._left, self._ledger = rows, event.rounds, ledger
        sensitivity = SENSITIVITY * rows.max_rows_per_unit + 1 / STEPS
        self._scale = 2 * sensitivity / event.epsilon
        self._scores: dict[Dependence, float] = {}

    def __call__(self, candidates: Sequence[Dependence]) -> int:
        """The index of one candidate, with odds exp(epsilon * score / (2 * sensitivity))."""
        if self._left == 0:
            raise BudgetExceeded("All charged selections have been made. This query was not made.")
        self._left -= 1
        new = [candidate for candidate in candidates if candidate not in self._scores]
        ahead = self._private._counted_ahead([candidate.clique for candidate in new])
        for candidate, _ in zip(new, ahead, strict=True):
            self._scores[candidate] = _exact_score(self._private, candidate)
        scores = np.asarray([self._scores[candidate] for candidate in candidates])
        return self._ledger.noise.noisy_argmax(scores, self._scale)


def _exact_score(rows: PrivateRows, candidate: Dependence) -> float:
    """R by integers, rounded down to a multiple of 1 / STEPS, which a float holds exactly; 0 without rows."""
    joint = rows._exact_counts(candidate.clique)
    joint = joint.reshape(-1, joint.shape[-1])
    num_rows = int(joint.sum())
    if num_rows == 0:
        return 0.0
    joint = joint.astype(np.int64 if num_rows < MAX_INT64_ROWS else object)
    products = joint.sum(axis=1, keepdims=True) * joint.sum(axis=0, keepdims=True)
    total = int(np.abs(num_rows * joint - products).sum())  # 2 n R, exactly
    return (total * STEPS // (2 * num_rows)) / STEPS
