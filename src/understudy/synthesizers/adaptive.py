"""Adaptive marginals: select, measure and estimate in rounds, every decision by expected error. The default method.

One Gaussian query covers all answers. Its budget is precision: the sum of 1 / stddev^2 over all answers. 1-way
marginals are measured first. Each round then queries the model's errors with noise, chooses marginals whose measurement
lowers the expected error of the workload, divides the round's precision among these and all that were measured before,
and estimates the graphical model again. Where noise hides every dependence, no marginal is chosen, and all precision
goes to the 1-way marginals.

The components come from the literature: rounds of selection by error from MWEM (Hardt, Ligett and McSherry 2012) and
AIM (McKenna et al. 2022), whose trade-off between error and noise is extended to all marginals at once; estimation from
Private-PGM (McKenna, Sheldon and Miklau 2019). What differs: errors are released with Gaussian noise instead of being
used in the exponential mechanism, so that answers of several rounds can be pooled and the decision not to measure
follows from an expected value; precision is divided by need (`marginals/allocation.py`); cells too small for their
noise are shrunk towards what independent columns imply (`marginals/shrinkage.py`).
"""

import collections
import dataclasses
import itertools
import math
from collections.abc import Sequence
from typing import Annotated, ClassVar

import numpy as np

from understudy.errors import BudgetExceeded
from understudy.marginals.allocation import add_precision, needs
from understudy.marginals.choice import Candidates, SizeLimit, choose, resolved_cells, resolved_fraction
from understudy.marginals.errors import ErrorEstimates
from understudy.marginals.estimation import Measurement, estimate
from understudy.marginals.expected import expected_of_precision, precision_of
from understudy.models.graphical import GraphicalModel
from understudy.models.junction import Clique
from understudy.notes import Level, Note
from understudy.privacy.events import Gaussian
from understudy.privacy.filters import GaussianFilter, charge_marginals
from understudy.privacy.ledger import Budget, Plan
from understudy.privacy.marginal_noise import ExpectedNoise
from understudy.schema import Domain
from understudy.settings import AtLeast, Between, Count, InnerFraction, Listed, Positive, SettingError, check_settings
from understudy.synthesizers.protocol import Capabilities
from understudy.synthesizers.run import Run, calibrate_query

FIRST_SCORES = 0.5
"""The fraction of the selection budget for the first round, in which all pairs are candidates."""
ONE_WAY_ERROR_FRACTION = 0.25
"""The fraction of a pair's error that is attributed to the noise of each of its columns until the pair is measured."""
CELLS_PER_MEGABYTE = 2**20 / 8
LAST_ITERATIONS = 10
"""The last estimation has this many times the iterations of the others."""
MOST_INTERACTIONS, AUTOMATIC_INTERACTIONS = 8, 6
MOST_CANDIDATES = 20_000
"""The largest number of marginals of one size with the target: the exact counts of so many take seconds."""
MOST_PAIRS = 250_000
"""The largest number of pairs that compete, about 700 columns; beyond, only 1-way marginals are measured by default."""
TOO_MUCH_NOISE = 2.0**30
TYPICAL_PAIRS = 3
"""The typical number of measured marginals of two or more columns, for each column of the table."""
FEW_CODES = 3
CLEAR_ERROR = 0.1
"""The largest noise of an error, as a fraction of the rows, at which larger interactions are tried by default: the
error of a parity is as large as the number of rows."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Adaptive:
    """The default: marginals chosen round by round, by the error that measuring them is expected to remove.

    >>> import understudy as us
    >>> from understudy.synthesizers import express
    >>> express(us.Adaptive(rounds=3))  # as --method reads it
    'adaptive(rounds=3)'
    """

    capabilities: ClassVar[Capabilities] = Capabilities(target=True)

    workload: Annotated[tuple[Annotated[Clique, Listed(2, distinct=True)], ...], Listed()] | None = None
    """The marginals that matter, each a list of columns. None: all pairs of columns, and with a target all
    marginals that contain it, of up to `interactions` columns."""

    interactions: Annotated[int, Between(2, MOST_INTERACTIONS)] | None = None
    """The largest number of columns of a marginal with the target. A dependence that shows only in four columns
    together, such as a target that is the parity of three others, needs 4. None: 3, or up to 6 if no column has
    more than three codes and the errors of that many marginals can be distinguished from noise."""

    target_weight: Annotated[float, AtLeast(1)] = 2.0
    """The weight of marginals with the target. Without a target it has no effect."""

    rounds: Count = 6
    """The number of rounds after the 1-way marginals."""

    selection_fraction: InnerFraction = 0.1
    """The fraction of the precision for the model's errors, half of it in the first round."""

    candidates_per_column: Positive = 6.0
    """The number of candidates per column in later rounds: the most promising ones."""

    prior_variance: Positive = 2.0
    """The variance of log-ratios between counts and what independent columns imply. The smaller it is, the more
    small cells are shrunk towards independence."""

    entropy: Positive = 0.01
    """The weight of the entropy term, which shrinks all cells towards independence."""

    max_model_size: Positive = 8.0
    """The size of the finished model's tables in megabytes; the limit rises evenly from round to round."""

    iterations: Count = 150
    """The largest number of iterations of each round's estimation; ten times as many in the last round."""

    def __post_init__(self) -> None:
        check_settings(self)

    def plan(self, domain: Domain, budget: Budget) -> Plan:
        """One Gaussian query, spent as precision. Its cost does not depend on what is measured."""
        for clique in self.workload or ():
            domain.shape(clique)  # refuses unknown columns
        if domain.target is not None and self.interactions is not None:
            self._check_interactions(len(domain.names) - 1, self.interactions)
        what = f"1-way marginals, and others chosen in {self.rounds} rounds by their expected error"
        query = calibrate_query("marginals", what, Gaussian, domain, budget)
        noise = math.sqrt(len(domain.names) / precision_of(query.event, budget.max_rows_per_unit))
        if noise > TOO_MUCH_NOISE:
            raise BudgetExceeded(
                f"The noise of a count would be about {noise:.0e} rows. Raise epsilon, or lower max_rows_per_unit."
            )
        notes = [Note(f"The tables of the model take at most {self.max_model_size:g} MB.")]
        if self.workload is None and _has_too_many_pairs(domain):
            few = f"{len(domain.names):,} columns have too many pairs, so only 1-way marginals are measured."
            return Plan((query,), (Note(f"{few} Name a workload to change this.", Level.WARNING),))
        if domain.target is not None:
            notes.append(
                Note(
                    f"Marginals with the target {domain.target!r} have weight {self.target_weight:g} and up to "
                    f"{self.max_interactions(domain, precision_of(query.event, budget.max_rows_per_unit))} columns."
                )
            )
        return Plan((query,), tuple(notes))

    def _check_interactions(self, others: int, interactions: int) -> None:
        """Refuses more marginals than can be counted; 3-way marginals are always allowed."""
        if interactions > 3 and (count := math.comb(others, interactions - 1)) > MOST_CANDIDATES:
            raise SettingError(
                "interactions",
                interactions,
                f"smaller for {others + 1} columns",
                f"There would be {count:,} marginals of that size with the target; the limit is {MOST_CANDIDATES:,}.",
            )

    def max_interactions(self, domain: Domain, precision: float) -> int:
        """The largest number of columns of a marginal with the target, from public facts."""
        others = len(domain.names) - 1
        if self.interactions is not None:
            return min(self.interactions, others + 1)
        most = min(3, others + 1)
        if domain.declared_rows is None or domain.estimated or max(domain.sizes) > FEW_CODES:
            return most
        budget = self.score_precision(1, precision)
        count = math.comb(len(domain.names), 2) + math.comb(others, 2)
        for size in range(4, min(AUTOMATIC_INTERACTIONS, others + 1) + 1):
            count += math.comb(others, size - 1)
            if count > MOST_CANDIDATES or math.sqrt(count / budget) > CLEAR_ERROR * domain.declared_rows:
                break
            most = size
        return most

    def score_precision(self, number: int, precision: float) -> float:
        """The precision for the errors of one round, given that of the whole query."""
        budget = self.selection_fraction * precision
        if self.rounds == 1:
            return budget
        return budget * FIRST_SCORES if number == 0 else budget * (1 - FIRST_SCORES) / (self.rounds - 1)

    def expected_noise(self, domain: Domain, plan: Plan, max_rows_per_unit: int) -> tuple[ExpectedNoise, ...]:
        """An estimate that assumes `TYPICAL_PAIRS` pairs per column, all with the same noise; the run decides both."""
        precision = precision_of(plan["marginals"].event, max_rows_per_unit) * (1 - self.selection_fraction)
        columns = len(domain.names)
        pairs = 0 if _has_too_many_pairs(domain) else min(math.comb(columns, 2), TYPICAL_PAIRS * columns)
        return expected_of_precision(domain, precision, columns / (columns + pairs), pairs)

    def one_way_fraction(self, domain: Domain, pairs: Sequence[Clique], num_rows: int) -> float:
        """The fraction of the measuring precision that 1-way marginals need if all of these pairs are measured."""
        need = _one_way_needs(domain).sum()
        cells = np.array([domain.size(pair) for pair in pairs], dtype=float)
        return float(need / (need + needs(np.ones(len(pairs)), np.minimum(cells, num_rows / 4)).sum()))

    def fit(self, run: Run) -> GraphicalModel:
        """Formal guarantee: the cost of the plan's Gaussian query.

        Every answer passes its filter, which adds up their exact precision; candidates, choices, noise levels and the
        model are functions of noisy answers and public facts.
        """
        return _Fit(self, run).run()


def _has_too_many_pairs(domain: Domain) -> bool:
    return math.comb(len(domain.names), 2) > MOST_PAIRS


def _one_way_needs(domain: Domain) -> np.ndarray:
    cells = np.array(domain.sizes, dtype=float)
    return needs(np.full(len(cells), max(1.0, ONE_WAY_ERROR_FRACTION * (len(cells) - 1))), cells)


class _Fit:
    """The state of one fit: what was measured, with how much precision, and the estimated errors."""

    def __init__(self, settings: Adaptive, run: Run) -> None:
        self.settings, self._run = settings, run
        self.domain = run.rows.domain
        self.filter: GaussianFilter = charge_marginals(run.rows, run.plan["marginals"], run.ledger)
        self.measurements: list[Measurement] = []
        self.precision: dict[Clique, float] = {}
        self.errors = ErrorEstimates()
        self.first_errors: dict[Clique, float] = {}
        self.interactions = settings.max_interactions(self.domain, self.filter.precision)
        # A column of one code depends on no other.
        workload = [clique for clique in self._workload() if min(self.domain.shape(clique)) > 1]
        self.pairs = [clique for clique in workload if len(clique) == 2]
        self.larger = [clique for clique in workload if len(clique) > 2]

    def run(self) -> GraphicalModel:
        """All rounds; the last one spends what is left."""
        can_select = self._can_select()
        self._measure_one_way(and_more=can_select)
        if not can_select:  # nothing is left for rounds, even if noisy counts now suggest more rows than declared
            self._run.report(1.0, f"{len(self.precision)} marginals measured")
            return self._estimate(None, LAST_ITERATIONS)
        model = self._estimate(None)
        rounds = self.settings.rounds
        for number in range(rounds):
            is_last = number == rounds - 1 or not self._can_select()
            model = self._round(model, number, is_last=is_last)
            self._run.report((number + 1) / rounds, f"{len(self.precision)} marginals measured")
            if is_last:
                break
        return model

    # --- Candidates ---

    def _workload(self) -> list[Clique]:
        """Cliques of two or more columns: pairs first, each in the order of the domain."""
        domain, settings = self.domain, self.settings
        if settings.workload is not None:
            subsets = {
                tuple(sorted(subset, key=domain.index))
                for clique in settings.workload
                for size in range(2, len(clique) + 1)
                for subset in itertools.combinations(clique, size)
            }
            return sorted(subsets, key=lambda clique: (len(clique), [domain.index(name) for name in clique]))
        if _has_too_many_pairs(domain):
            return []
        cliques: list[Clique] = list(itertools.combinations(domain.names, 2))
        if domain.target is None:
            return cliques
        others = [name for name in domain.names if name != domain.target]
        for size in range(3, self.interactions + 1):
            cliques += [self._with_target(rest) for rest in itertools.combinations(others, size - 1)]
        return cliques

    def _with_target(self, rest: Clique) -> Clique:
        assert self.domain.target is not None
        return tuple(sorted((self.domain.target, *rest), key=self.domain.index))

    def _weight(self, clique: Clique) -> float:
        return self.settings.target_weight if self.domain.target in clique else 1.0

    def _candidates(self, number: int) -> list[Clique]:
        """All pairs in the first round; later the most promising pairs and larger cliques.

        A clique of three is a candidate once two of its pairs are measured: before that, its error is mostly theirs.
        Larger ones are candidates in the second round, all at once, since no smaller marginal shows them.
        """
        most_cells = self.settings.max_model_size * CELLS_PER_MEGABYTE
        open_pairs: list[Clique] = [
            pair for pair in self.pairs if pair not in self.precision and self.domain.size(pair) <= most_cells
        ]
        if number == 0:
            return open_pairs
        most_cells = min(most_cells, self._num_rows / 2)
        larger = [
            clique
            for clique in self.larger
            if clique not in self.precision and self.domain.size(clique) <= most_cells and self._is_due(clique, number)
        ]
        found = open_pairs + larger
        if number == 1 and self.interactions > 3:
            return found
        keep = max(10, round(self.settings.candidates_per_column * len(self.domain.names)))
        return sorted(found, key=self._promise, reverse=True)[:keep] if len(found) > keep else found

    def _is_due(self, clique: Clique, number: int) -> bool:
        if len(clique) > 3:
            return number == 1 or self.errors.likely(clique) is not None
        return sum(pair in self.precision for pair in itertools.combinations(clique, 2)) >= 2

    def _promise(self, clique: Clique) -> float:
        """A plausibly large error, weighted; for a clique without answers, estimated from its pairs."""
        likely = self.errors.likely(clique)
        if likely is None:
            pairs = [self.first_errors.get(pair, 0.0) for pair in itertools.combinations(clique, 2)]
            likely = sum(pairs) / 2
        return self._weight(clique) * likely

    def _can_select(self) -> bool:
        """Whether noisy errors of all pairs could show anything: none is larger than twice the rows."""
        if not self.pairs:
            return False
        budget = self.settings.score_precision(0, self.filter.precision)
        return math.sqrt(len(self.pairs) / budget) < self._num_rows

    @property
    def _num_rows(self) -> int:
        return self._run.rows.public_num_rows

    # --- Rounds ---

    def _measure_one_way(self, *, and_more: bool) -> None:
        """Measures 1-way marginals with the precision that they need if all pairs are measured, or with all of it."""
        need, fraction = _one_way_needs(self.domain), 1.0
        if and_more:
            fraction = self.settings.one_way_fraction(self.domain, self.pairs, self._num_rows)
            fraction *= 1 - self.settings.selection_fraction
        self._measure(self.domain.one_way, fraction * self.filter.precision * need / need.sum())

    def _round(self, model: GraphicalModel, number: int, *, is_last: bool) -> GraphicalModel:
        """Queries errors, chooses marginals, measures these and earlier ones, and estimates the model again."""
        rounds = self.settings.rounds
        is_open = self._can_select()
        later_scores = (
            self.settings.score_precision(rounds - 1, self.filter.precision) * (rounds - 1 - number)
            if is_open and not is_last
            else 0.0
        )
        scores = self.settings.score_precision(number, self.filter.precision) if is_open else 0.0
        available = (self.filter.left - scores - later_scores) / (1 if is_last else rounds - number)
        held = list(self.precision)
        present = np.array([self.precision[clique] for clique in held])
        stddev = math.sqrt((len(held) + len(self.domain.names)) / (present.sum() + available))
        cells = np.array([resolved_cells(table, stddev) for table in model.marginals(held)])
        need = needs(self._held_weights(held), cells)
        chosen: list[Clique] = []
        if is_open and (candidates := self._candidates(number)):
            compared = self._compare(model, candidates, scores, stddev)
            limit = SizeLimit(
                self.domain, model, self.settings.max_model_size * CELLS_PER_MEGABYTE * (number + 1) / rounds
            )
            final = present.sum() + available * (1 if is_last else rounds - number)
            indices = choose(
                compared,
                limit,
                total_need=float(need.sum()),
                precision=final,
                most=len(self.domain.names),
                forest=number == 0,
            )
            chosen = [candidates[at] for at in indices]
            need = np.concatenate([need, needs(compared.weights, compared.cells)[indices]])
        available = self.filter.left if is_last else available  # precision reserved for errors may be left over
        added = add_precision(need, np.concatenate([present, np.zeros(len(chosen))]), available * (1 - 1e-9))
        self._measure([*held, *chosen], added)
        return self._estimate(model, LAST_ITERATIONS if is_last else 1)

    def _held_weights(self, cliques: Sequence[Clique]) -> np.ndarray:
        """The weights of measured marginals; 1-way marginals also stand for pairs that are not measured."""
        waiting = collections.Counter(itertools.chain(*(pair for pair in self.pairs if pair not in self.precision)))
        factors = [
            max(1.0, ONE_WAY_ERROR_FRACTION * waiting[clique[0]]) if len(clique) == 1 else 1.0 for clique in cliques
        ]
        return np.array([self._weight(clique) for clique in cliques]) * factors

    def _compare(self, model: GraphicalModel, cliques: list[Clique], precision: float, stddev: float) -> Candidates:
        """Queries the errors of candidates; only errors in cells larger than the noise can be removed."""
        expected = [np.maximum(table, 0.0) for table in model.marginals(cliques)]
        noise = math.sqrt(len(cliques) / precision)
        errors = self.errors.add(cliques, expected, self.filter.noisy_errors(cliques, expected, noise), noise)
        if not self.first_errors:
            self.first_errors = dict(zip(cliques, errors.tolist(), strict=True))
        known = np.array([resolved_fraction(table, stddev, self.settings.prior_variance) for table in expected])
        return Candidates(
            cliques,
            errors * known,
            weights=np.array([self._weight(clique) for clique in cliques]),
            cells=np.array([resolved_cells(table, stddev) for table in expected]),
        )

    def _measure(self, cliques: Sequence[Clique], precision: np.ndarray) -> None:
        wanted = [(clique, float(each)) for clique, each in zip(cliques, precision, strict=True) if each > 0]
        stddevs = [each**-0.5 for _, each in wanted]
        tables = self.filter.noisy_counts([clique for clique, _ in wanted], stddevs)
        for (clique, each), table, stddev in zip(wanted, tables, stddevs, strict=True):
            self.measurements.append(Measurement(clique, table, stddev))
            self.precision[clique] = self.precision.get(clique, 0.0) + each

    def _estimate(self, model: GraphicalModel | None, factor: int = 1) -> GraphicalModel:
        return estimate(
            self.domain,
            self.measurements,
            total=self._num_rows,
            iterations=factor * self.settings.iterations,
            entropy=self.settings.entropy,
            prior_variance=self.settings.prior_variance,
            warm_start=model,
            max_cells=self.settings.max_model_size * CELLS_PER_MEGABYTE,
        )
