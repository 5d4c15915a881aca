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
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Annotated, ClassVar, NamedTuple

import numpy as np

from understudy.errors import BudgetExceeded
from understudy.marginals.allocation import add_precision, needs
from understudy.marginals.choice import Candidates, SizeLimit, choose, resolved_cells, resolved_fraction
from understudy.marginals.errors import ErrorEstimates
from understudy.marginals.estimation import Fitting, Measurement, estimate
from understudy.marginals.expected import expected_of_precision, precision_of
from understudy.marginals.workload import list_subsets
from understudy.models.graphical import GraphicalModel
from understudy.models.junction import Clique, Table
from understudy.notes import Level, Note
from understudy.privacy.accounting.events import Gaussian
from understudy.privacy.accounting.ledger import Budget, Plan
from understudy.privacy.accounting.marginal_noise import ExpectedNoise
from understudy.privacy.mechanisms.filters import GaussianFilter, charge_marginals
from understudy.privacy.rows.rows import PrivateRows
from understudy.schema import Domain
from understudy.synthesizers.protocol import Capabilities
from understudy.synthesizers.run import Run, calibrate_query
from understudy.synthesizers.settings import Count, Listed, Positive, Range, SettingError, TargetWeight, check_settings

# --- Every constant of the method; the settings of `Adaptive` are what users have reason to change ---

SELECTION_FRACTION = 0.1
"""The fraction of the precision for the model's errors."""
FIRST_ROUND_FRACTION = 0.5
"""The fraction of that for the first round, in which all pairs are candidates."""
ONE_WAY_ERROR_FRACTION = 0.25
"""The fraction of a pair's error that is attributed to the noise of each of its columns until the pair is measured."""
CANDIDATES_PER_COLUMN, MIN_CANDIDATES = 6.0, 10
"""The number of candidates in later rounds: the most promising ones."""
ENTROPY = 0.01
"""The weight of the entropy term, which shrinks all cells towards independence."""
PRIOR_VARIANCE = 2.0
"""The variance of log-ratios between counts and what independent columns imply. The smaller it is, the more small cells
are shrunk towards independence."""
LAST_ITERATIONS = 10
"""The last estimation has this many times the iterations of the others."""
MAX_INTERACTIONS, AUTOMATIC_INTERACTIONS = 8, 6
"""The largest number of columns of a marginal with the target, as a setting and by default."""
FEW_CODES, CLEAR_ERROR = 3, 0.1
"""By default, more than three columns are tried if no column has more codes than this, and if the noise of an error is
at most this fraction of the rows: the error of a parity is as large as the number of rows."""
MAX_CANDIDATES = 20_000
"""The largest number of marginals of one size with the target: their exact counts take seconds."""
MAX_PAIRS = 250_000
"""The largest number of pairs that compete, about 700 columns; beyond, only 1-way marginals are measured by default."""
MAX_NOISE = 2.0**30
"""A plan whose counts would have a larger standard deviation is refused."""
TYPICAL_PAIRS = 3
"""The typical number of measured marginals of two or more columns, for each column of the table."""
CELLS_PER_MEGABYTE = 2**20 / 8


# --- What a fit knows: public facts, and answers so far ---


@dataclasses.dataclass(frozen=True)
class Workload:
    """The marginals of two or more columns that may be measured, and their weights. Public facts."""

    domain: Domain
    pairs: Sequence[Clique]
    larger: Sequence[Clique]
    interactions: int
    """The largest number of columns of a marginal with the target."""
    target_weight: float

    def weight(self, clique: Clique) -> float:
        return self.target_weight if self.domain.target in clique else 1.0

    def weights(self, cliques: Iterable[Clique]) -> np.ndarray:
        return np.array([self.weight(clique) for clique in cliques])


class RoundBudget(NamedTuple):
    """The precision of one round."""

    number: int
    errors: float
    """The precision for errors; zero if none are queried."""
    counts: float
    rounds_left: int
    """The number of rounds left, including this one."""


class Answers(NamedTuple):
    """All answers so far. Each query returns a new value."""

    measurements: tuple[Measurement, ...] = ()
    precision: Mapping[Clique, float] = MappingProxyType({})
    """The precision of each measured marginal, by clique."""
    errors: ErrorEstimates = ErrorEstimates()

    @property
    def present(self) -> np.ndarray:
        """The precision of each measured marginal."""
        return np.array(list(self.precision.values()))

    def typical_stddev(self, added: float, columns: int) -> float:
        """The noise of a typical count once this much precision is added and one more marginal per column measured."""
        return math.sqrt((len(self.precision) + columns) / (self.present.sum() + added))


@dataclasses.dataclass(frozen=True, kw_only=True)
class Adaptive:
    """The default: marginals chosen round by round, by the error that measuring them is expected to remove.

    >>> import understudy as us
    >>> us.express(us.Adaptive(rounds=3))  # as --method reads it
    'adaptive(rounds=3)'
    """

    capabilities: ClassVar[Capabilities] = Capabilities(target=True)

    workload: Annotated[tuple[Annotated[Clique, Listed(2, distinct=True)], ...], Listed()] | None = None
    """The marginals that matter, each a list of columns. None: all pairs of columns, and with a target all
    marginals that contain it, of up to `interactions` columns."""

    interactions: Annotated[int, Range(2, MAX_INTERACTIONS)] | None = None
    """The largest number of columns of a marginal with the target. A dependence that shows only in four columns
    together, such as a target that is the parity of three others, needs 4. None: 3, or up to 6 if no column has
    more than three codes and the errors of that many marginals can be distinguished from noise."""

    target_weight: TargetWeight = 2.0
    """The weight of marginals with the target. Without a target it has no effect."""

    rounds: Count = 6
    """The number of rounds after the 1-way marginals."""

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
        if noise > MAX_NOISE:
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
                    f"{self._max_interactions(domain, precision_of(query.event, budget.max_rows_per_unit))} columns."
                )
            )
        return Plan((query,), tuple(notes))

    def _check_interactions(self, others: int, interactions: int) -> None:
        """Refuses more marginals than can be counted; 3-way marginals are always allowed."""
        if interactions > 3 and (count := math.comb(others, interactions - 1)) > MAX_CANDIDATES:
            raise SettingError(
                "interactions",
                interactions,
                f"smaller for {others + 1} columns",
                f"There would be {count:,} marginals of that size with the target; the limit is {MAX_CANDIDATES:,}.",
            )

    def _max_interactions(self, domain: Domain, precision: float) -> int:
        """The largest number of columns of a marginal with the target, from public facts."""
        others = len(domain.names) - 1
        if self.interactions is not None:
            return min(self.interactions, others + 1)
        most = min(3, others + 1)
        if domain.declared_rows is None or domain.estimated or max(domain.sizes) > FEW_CODES:
            return most
        budget = self._error_precision(1, precision)
        count = math.comb(len(domain.names), 2) + math.comb(others, 2)
        for size in range(4, min(AUTOMATIC_INTERACTIONS, others + 1) + 1):
            count += math.comb(others, size - 1)
            if count > MAX_CANDIDATES or math.sqrt(count / budget) > CLEAR_ERROR * domain.declared_rows:
                break
            most = size
        return most

    def _error_precision(self, number: int, precision: float) -> float:
        """The precision for the errors of one round, given that of the whole query."""
        budget = SELECTION_FRACTION * precision
        if self.rounds == 1:
            return budget
        return budget * FIRST_ROUND_FRACTION if number == 0 else budget * (1 - FIRST_ROUND_FRACTION) / (self.rounds - 1)

    def expected_noise(self, domain: Domain, plan: Plan, max_rows_per_unit: int) -> tuple[ExpectedNoise, ...]:
        """An estimate that assumes `TYPICAL_PAIRS` pairs per column, all with the same noise; the run decides both."""
        precision = precision_of(plan["marginals"].event, max_rows_per_unit) * (1 - SELECTION_FRACTION)
        columns = len(domain.names)
        pairs = 0 if _has_too_many_pairs(domain) else min(math.comb(columns, 2), TYPICAL_PAIRS * columns)
        return expected_of_precision(domain, precision, columns / (columns + pairs), pairs)

    def fit(self, run: Run) -> GraphicalModel:
        """Measures 1-way marginals. Each round then queries errors, chooses, divides precision, measures, estimates.

        Formal guarantee: the cost of the plan's Gaussian query. Every answer passes its filter, which adds up their
        exact precision; candidates, choices, noise levels and the model are functions of noisy answers and public
        facts.
        """
        privacy_filter = charge_marginals(run.rows, run.plan["marginals"], run.ledger)
        workload = self._list_workload(run.domain, privacy_filter.precision)
        is_last = not self._can_select(privacy_filter, workload)
        answers = self._measure_one_way(privacy_filter, workload, with_rounds=not is_last)
        model = self._estimate(run.rows, answers, None, is_last=is_last)
        run.report(float(is_last), f"{len(answers.precision)} marginals measured")
        number = 0
        while not is_last:
            budget = self._budget_of_round(privacy_filter, workload, number)
            is_last = budget.rounds_left == 1
            # Query errors.
            cliques = self._candidates(privacy_filter, workload, answers, number) if budget.errors else []
            expected = [np.maximum(table, 0.0) for table in model.marginals(cliques)]
            answers = _query_errors(privacy_filter, answers, cliques, expected, budget.errors)
            # Choose.
            stddev = answers.typical_stddev(budget.counts, len(run.domain.names))
            need = _needs_of_measured(workload, answers, model, stddev)
            candidates = _compare(workload, answers, cliques, expected, stddev)
            chosen = self._choose(candidates, model, answers, budget, float(need.sum()))
            # Divide precision.
            need = np.concatenate([need, candidates.needs[chosen]])
            available = privacy_filter.left if is_last else budget.counts  # some of that for errors may be left over
            added = _divide_precision(answers, need, available)
            # Measure, and estimate.
            answers = _measure(privacy_filter, answers, [*answers.precision, *(cliques[i] for i in chosen)], added)
            model = self._estimate(run.rows, answers, model, is_last=is_last)
            number += 1
            run.report(1.0 if is_last else number / self.rounds, f"{len(answers.precision)} marginals measured")
        return model

    @property
    def _max_cells(self) -> float:
        return self.max_model_size * CELLS_PER_MEGABYTE

    def _list_workload(self, domain: Domain, precision: float) -> Workload:
        """The marginals that may be measured beside 1-way marginals. A column of one code depends on no other."""
        interactions = self._max_interactions(domain, precision)
        cliques = [clique for clique in self._list_cliques(domain, interactions) if min(domain.shape(clique)) > 1]
        pairs = [clique for clique in cliques if len(clique) == 2]
        larger = [clique for clique in cliques if len(clique) > 2]
        return Workload(domain, pairs, larger, interactions, self.target_weight)

    def _list_cliques(self, domain: Domain, interactions: int) -> list[Clique]:
        """Cliques of two or more columns: pairs first, each in the order of the domain."""
        if self.workload is not None:
            return list_subsets(domain, self.workload, min_size=2)
        if _has_too_many_pairs(domain):
            return []
        cliques: list[Clique] = list(itertools.combinations(domain.names, 2))
        if domain.target is None:
            return cliques
        others = [name for name in domain.names if name != domain.target]
        for size in range(3, interactions + 1):
            for rest in itertools.combinations(others, size - 1):
                cliques.append(tuple(sorted((domain.target, *rest), key=domain.index)))
        return cliques

    def _can_select(self, privacy_filter: GaussianFilter, workload: Workload) -> bool:
        """Whether noisy errors of all pairs could show anything: none is larger than twice the rows."""
        if not workload.pairs:
            return False
        budget = self._error_precision(0, privacy_filter.precision)
        return math.sqrt(len(workload.pairs) / budget) < privacy_filter.public_num_rows

    def _measure_one_way(self, privacy_filter: GaussianFilter, workload: Workload, *, with_rounds: bool) -> Answers:
        """Measures 1-way marginals with the precision that they need if all pairs are measured, or with all of it."""
        domain, fraction = workload.domain, 1.0
        sizes = np.array(domain.sizes, dtype=float)
        need = needs(np.full(len(sizes), max(1.0, ONE_WAY_ERROR_FRACTION * (len(sizes) - 1))), sizes)
        if with_rounds:
            cells = np.array([domain.size(pair) for pair in workload.pairs], dtype=float)
            cells = np.minimum(cells, privacy_filter.public_num_rows / 4)
            of_pairs = needs(np.ones(len(cells)), cells).sum()
            fraction = float(need.sum() / (need.sum() + of_pairs)) * (1 - SELECTION_FRACTION)
        return _measure(
            privacy_filter, Answers(), domain.one_way, fraction * privacy_filter.precision * need / need.sum()
        )

    def _budget_of_round(self, privacy_filter: GaussianFilter, workload: Workload, number: int) -> RoundBudget:
        """An equal part of what is left for counts. A round in which noise would hide all errors is the last."""
        if not self._can_select(privacy_filter, workload):
            return RoundBudget(number, 0.0, privacy_filter.left, 1)
        rounds_left = self.rounds - number
        errors = self._error_precision(number, privacy_filter.precision)
        later_errors = self._error_precision(self.rounds - 1, privacy_filter.precision) * (rounds_left - 1)
        return RoundBudget(number, errors, (privacy_filter.left - errors - later_errors) / rounds_left, rounds_left)

    def _candidates(
        self, privacy_filter: GaussianFilter, workload: Workload, answers: Answers, number: int
    ) -> list[Clique]:
        """All pairs in the first round; later the most promising pairs and larger cliques.

        A clique of three is a candidate once two of its pairs are measured: before that, its error is mostly theirs.
        Larger ones are candidates in the second round, all at once, since no smaller marginal shows them.
        """

        def is_open(clique: Clique, max_cells: float) -> bool:
            return clique not in answers.precision and workload.domain.size(clique) <= max_cells

        def is_due(clique: Clique) -> bool:
            if len(clique) > 3:
                return number == 1 or answers.errors.likely(clique) is not None
            return sum(pair in answers.precision for pair in itertools.combinations(clique, 2)) >= 2

        pairs = [pair for pair in workload.pairs if is_open(pair, self._max_cells)]
        if number == 0:
            return pairs
        max_cells = min(self._max_cells, privacy_filter.public_num_rows / 2)
        candidates = pairs + [clique for clique in workload.larger if is_open(clique, max_cells) and is_due(clique)]
        max_candidates = max(MIN_CANDIDATES, round(CANDIDATES_PER_COLUMN * len(workload.domain.names)))
        if (number == 1 and workload.interactions > 3) or len(candidates) <= max_candidates:
            return candidates
        return sorted(candidates, key=lambda clique: _promise(workload, answers, clique), reverse=True)[:max_candidates]

    def _choose(
        self, candidates: Candidates, model: GraphicalModel, answers: Answers, budget: RoundBudget, total_need: float
    ) -> list[int]:
        """The indices of the candidates to measure in this round."""
        return choose(
            candidates,
            SizeLimit(model.domain, model, self._max_cells * (budget.number + 1) / self.rounds),
            total_need=total_need,
            precision=answers.present.sum() + budget.counts * budget.rounds_left,
            max_chosen=len(model.domain.names),
            forest=budget.number == 0,
        )

    def _estimate(
        self, rows: PrivateRows, answers: Answers, model: GraphicalModel | None, *, is_last: bool
    ) -> GraphicalModel:
        fitting = Fitting(
            iterations=self.iterations * (LAST_ITERATIONS if is_last else 1),
            entropy=ENTROPY,
            prior_variance=PRIOR_VARIANCE,
            max_cells=self._max_cells,
        )
        return estimate(rows.domain, answers.measurements, fitting, total=rows.public_num_rows, warm_start=model)


def _has_too_many_pairs(domain: Domain) -> bool:
    return math.comb(len(domain.names), 2) > MAX_PAIRS


# --- The steps of a round ---


def _promise(workload: Workload, answers: Answers, clique: Clique) -> float:
    """A plausibly large error, weighted; for a clique without answers, estimated from its pairs."""
    likely = answers.errors.likely(clique)
    if likely is None:
        likely = sum(answers.errors.first.get(pair, 0.0) for pair in itertools.combinations(clique, 2)) / 2
    return workload.weight(clique) * likely


def _query_errors(
    privacy_filter: GaussianFilter,
    answers: Answers,
    cliques: Sequence[Clique],
    expected: Sequence[Table],
    precision: float,
) -> Answers:
    """The errors of a model with these marginals, all with the same noise."""
    if not cliques:
        return answers
    stddev = math.sqrt(len(cliques) / precision)
    noisy = privacy_filter.noisy_errors(cliques, expected, stddev)
    return answers._replace(errors=answers.errors.add(cliques, expected, noisy, stddev))


def _needs_of_measured(workload: Workload, answers: Answers, model: GraphicalModel, stddev: float) -> np.ndarray:
    """The needs of measured marginals; 1-way marginals also stand for pairs that are not measured."""
    unmeasured = collections.Counter(itertools.chain(*(p for p in workload.pairs if p not in answers.precision)))
    cliques = list(answers.precision)
    factors = [max(1.0, ONE_WAY_ERROR_FRACTION * unmeasured[c[0]]) if len(c) == 1 else 1.0 for c in cliques]
    cells = np.array([resolved_cells(table, stddev) for table in model.marginals(cliques)])
    return needs(workload.weights(cliques) * factors, cells)


def _compare(
    workload: Workload, answers: Answers, cliques: Sequence[Clique], expected: Sequence[Table], stddev: float
) -> Candidates:
    """The candidates, whose errors were queried: only errors in cells larger than the noise can be removed."""
    known = np.array([resolved_fraction(table, stddev, PRIOR_VARIANCE) for table in expected])
    return Candidates(
        cliques,
        answers.errors.means(cliques) * known,
        weights=workload.weights(cliques),
        cells=np.array([resolved_cells(table, stddev) for table in expected]),
    )


def _divide_precision(answers: Answers, need: np.ndarray, available: float) -> np.ndarray:
    """The precision to add to each measured marginal, and to new ones, whose needs come last."""
    present = np.concatenate([answers.present, np.zeros(len(need) - len(answers.precision))])
    return add_precision(need, present, available * (1 - 1e-9))


def _measure(
    privacy_filter: GaussianFilter, answers: Answers, cliques: Sequence[Clique], precision: np.ndarray
) -> Answers:
    """Measures each marginal with its precision; those with none are left out."""
    added = {clique: float(amount) for clique, amount in zip(cliques, precision, strict=True) if amount > 0}
    stddevs = [amount**-0.5 for amount in added.values()]
    tables = privacy_filter.noisy_counts(list(added), stddevs)
    total = {clique: answers.precision.get(clique, 0.0) + amount for clique, amount in added.items()}
    return answers._replace(
        measurements=(*answers.measurements, *map(Measurement, added, tables, stddevs)),
        precision={**answers.precision, **total},
    )
