"""MWEM: a histogram over all columns, updated round by round on the query that it answers worst.

Hardt, Ligett and McSherry, "A simple and practical algorithm for differentially private data release", 2012, with the
splits of the QUAIL paper's library (smartnoise-synth). Deviations: privacy costs are fixed in advance, calibrated
jointly and shared by all groups, whose queries compete in one selection; 1-way marginals are measured first, without
selection; queries with the target may have a larger weight; the step of an update is one over the largest cell of its
marginal, where the paper divides by twice the rows, so that a few passes do what hundreds of its steps do. Noise is
Gaussian by default; `noise="laplace"` is the paper's, with a pure epsilon.
"""

import dataclasses
import itertools
import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Annotated, ClassVar

import jax
import numpy as np
from jaxtyping import PRNGKeyArray

from understudy.errors import ConfigError, did_you_mean
from understudy.marginals.expected import expected_of_counts
from understudy.models.graphical import GraphicalModel, log_possible
from understudy.models.junction import Clique, junction_tree, zeros_within
from understudy.notes import Note
from understudy.privacy.accounting.events import DiscreteGaussian, Event, LaplaceMarginals, Selections
from understudy.privacy.accounting.ledger import Budget, Plan, Query
from understudy.privacy.accounting.marginal_noise import ExpectedNoise
from understudy.privacy.mechanisms.counts import noisy_answers
from understudy.privacy.mechanisms.selection import Candidates, noisy_selections
from understudy.privacy.rows.rows import Box
from understudy.schema import Domain
from understudy.synthesizers.protocol import Capabilities
from understudy.synthesizers.run import Run
from understudy.synthesizers.settings import Advice, Count, InnerFraction, Listed, OneOf, TargetWeight, check_settings

MAX_CELLS = 10_000_000
MANY_CELLS = 1_000_000
COMFORTABLE_CELLS = 500_000
"""The limit of automatic groups: a round then takes tenths of a second."""
MAX_COLUMNS = 32  # NumPy before version 2 has no more axes
LAST_PASSES = 10
"""The last update makes this many times the passes of the others."""
MIN_MASS = 1e-3  # a running sum that falls by this factor has lost as many digits
ROUNDS_PER_COLUMN = {"cuboid": 1, "range": 10, "cell": 10}
"""A cuboid is the answer to all of its cells at once; other queries are single counts."""

LinearQuery = Clique | Box


@dataclasses.dataclass(frozen=True, kw_only=True)
class MWEM:
    """A histogram of all columns, or of each group of columns, fitted to noisy answers by multiplicative weights.

    >>> import understudy as us
    >>> us.express(us.MWEM(rounds=20))  # as --method reads it
    'mwem(rounds=20)'
    """

    capabilities: ClassVar[Capabilities] = Capabilities(target=True)

    splits: Annotated[tuple[Annotated[Clique, Listed()], ...], Listed()] | None = None
    """Groups of columns, each column in exactly one; groups are independent of each other in the result. None: by
    `split_factor`, else the target with as many small columns as fit a fast histogram, then the same with the rest."""

    split_factor: Count | None = None
    """Instead of `splits`: the number of consecutive columns in a group; the last group may be smaller."""

    workload: Annotated[str, OneOf(*ROUNDS_PER_COLUMN)] = "cuboid"
    """The queries: `cuboid` (whole marginals), `cell` (single cells of marginals) or `range` (random boxes)."""

    marginal_width: Count = 2
    """The largest number of columns of a marginal."""

    boxes: Count = 500
    """The number of random boxes of each group in the workload `range`."""

    columns_first: bool = True
    """Whether every 1-way marginal is measured before the first selection."""

    rounds: Count | None = None
    """The number of queries to select and measure, in all groups together. None: one for each column, or 10 where a
    query is a single count."""

    measure_only: bool = False
    """Whether to measure the marginals of the workload in a public order instead of selecting: right where they are
    few. `rounds` is then the number of all marginals by default."""

    selection_fraction: Annotated[InnerFraction, Advice("To measure without selecting, use measure_only.")] = 0.2
    """The fraction of the zCDP budget for selections."""

    noise: Annotated[str, OneOf("gaussian", "laplace")] = "gaussian"
    """The noise of measurements: `gaussian`, or `laplace` as in the paper. With laplace all privacy costs are pure and
    add up to epsilon at delta 0, and `selection_fraction` is a fraction of epsilon."""

    score: Annotated[str, OneOf("penalised", "mean")] = "penalised"
    """The score of a query: `penalised` (absolute error minus the expected error of measuring it) or `mean` (mean error
    of a cell, as in the library)."""

    target_weight: TargetWeight = 2.0
    """The weight of queries with the target in selections. Without a target it has no effect."""

    mw_passes: Count = 20
    """Passes of each update over all answers so far. Post-processing: costs time, not budget."""

    average_rounds: bool = False
    """Whether the model is the mean of the histograms after each round, as in the paper, instead of the last one."""

    def __post_init__(self) -> None:
        check_settings(self)
        if self.splits is not None and self.split_factor is not None:
            raise ConfigError(
                "Give splits or split_factor, not both: each determines the groups of columns.", setting="split_factor"
            )
        if self.measure_only and self.workload != "cuboid":
            raise ConfigError(
                f"measure_only measures whole marginals: workload must be cuboid, found {self.workload}.",
                setting="workload",
            )

    def plan(self, domain: Domain, budget: Budget) -> Plan:
        """One query for all answers and one for all selections, calibrated so that together they fill the budget.

        Their number depends on the names of the columns and the settings alone: sizes may be private estimates, on
        which no privacy cost may depend. Groups may depend on sizes, since they change no cost.
        """
        groups = self._groups(domain)
        if crowded := self.too_large(domain.merged):
            raise ConfigError(
                f"A histogram of the columns {', '.join(crowded)} may have {domain.merged.size(crowded):,} cells in "
                f"{len(crowded)} columns; it may have at most {MAX_CELLS:,} cells and {MAX_COLUMNS} columns. Use "
                "smaller splits (or leave them out), fewer bins (--max-bins), or drop columns.",
                setting="splits",
            )
        noise = budget.calibrate(lambda noise: list(self._events(domain, budget, noise).values()))
        if self.noise == "laplace":  # the sum of all costs, where other accountants would allow less noise
            noise = max(noise, 1 / budget.simple_rest())
        answers, rounds = self._num_queries(domain)
        measured = f"{answers} marginal{'s' if answers > 1 else ''}, in a public order"
        if rounds:
            kind = "marginals" if self.workload == "cuboid" else "counts"
            first = f"{answers - rounds} 1-way marginals, and " if answers > rounds else ""
            measured = f"{first}{rounds} selected {kind}"
        what = {"counts": measured, "selections": f"selection of {rounds} queries among those not yet measured"}
        events = self._events(domain, budget, noise)
        queries = tuple(Query(key, what[key], event, columns=domain.names) for key, event in events.items())
        return Plan(queries, self._notes(domain, groups))

    def _num_queries(self, domain: Domain) -> tuple[int, int]:
        """The number of measurements, and how many of them are selected."""
        columns = len(domain.names)
        marginals = sum(_num_marginals(size, self.marginal_width) for size in self._group_lengths(domain))
        if self.measure_only:
            return self.rounds or marginals, 0
        first = columns if self.columns_first else 0
        rounds = self.rounds or columns * ROUNDS_PER_COLUMN[self.workload]
        most = {"cuboid": marginals - first, "range": self.boxes, "cell": rounds}[self.workload]
        return first + min(rounds, most), min(rounds, most)

    def _group_lengths(self, domain: Domain) -> Sequence[int]:
        """The number of columns of each group by settings; groups that depend on sizes count as one."""
        if self.splits is None and self.split_factor is None:
            return [len(domain.names)]
        return [len(group) for group in self._groups(domain)]

    def _events(self, domain: Domain, budget: Budget, noise: float) -> dict[str, Event]:
        answers, rounds = self._num_queries(domain)
        sensitivity, fraction = budget.max_rows_per_unit, self.selection_fraction if rounds else 0.0
        if self.noise == "laplace":
            pure: dict[str, Event] = {
                "counts": LaplaceMarginals((1 - fraction) / noise / answers, answers, sensitivity)
            }
            return pure | ({"selections": Selections(fraction / noise / rounds, rounds)} if rounds else {})
        stddev = sensitivity * math.sqrt(answers / (2 * (1 - fraction))) * noise
        events: dict[str, Event] = {"counts": DiscreteGaussian(stddev, answers, sensitivity)}
        if rounds:
            events["selections"] = Selections(math.sqrt(8 * fraction / rounds) / noise, rounds)
        return events

    def _notes(self, domain: Domain, groups: Sequence[Clique]) -> tuple[Note, ...]:
        cells, sentences = max(domain.size(group) for group in groups), []
        if len(groups) > 1:
            listed = "; ".join(", ".join(group) for group in groups)
            sentences.append(f"{len(groups)} groups of columns, independent of each other: {listed}.")
        if domain.target is not None and not self.measure_only:
            weight = f"{self.target_weight:g}"
            sentences.append(f"Queries with the target {domain.target!r} have weight {weight} in selections.")
        if self.too_large(domain.largest):
            sentences.append(
                f"If estimated categories make a histogram larger than {MAX_CELLS:,} cells, the rarest of them become "
                "'other'. To keep them, declare them in the schema or use smaller splits."
            )
        if cells > MANY_CELLS:
            sentences.append(
                f"The largest histogram has {cells:,} cells: a run takes minutes and up to {cells * 40 / 2**30:.1g} "
                "GB. Smaller splits are faster."
            )
        return tuple(map(Note, sentences))

    def too_large(self, domain: Domain) -> tuple[str, ...]:
        """The columns of a group whose histogram would be too large; empty if all groups fit.

        Estimated lists of categories are merged until they do (`encoding.merge_rarest`).
        """
        return next(
            (group for group in self._groups(domain) if domain.size(group) > MAX_CELLS or len(group) > MAX_COLUMNS), ()
        )

    def _groups(self, domain: Domain) -> list[Clique]:
        """The groups of columns, by settings, sizes and the target alone."""
        if self.splits is not None:
            groups = list(self.splits)
            _check_partition(groups, domain)
        elif self.split_factor is not None:
            starts = range(0, len(domain.names), self.split_factor)
            groups = [domain.names[start : start + self.split_factor] for start in starts]
        else:
            groups = _automatic_groups(domain)
        # With the longest axis last, sums over the others read memory in order.
        return [tuple(sorted(group, key=lambda name: (domain.shape((name,)), name))) for group in groups]

    def expected_noise(self, domain: Domain, plan: Plan, max_rows_per_unit: int) -> tuple[ExpectedNoise, ...]:
        """That of 1-way marginals, if they are measured first, and of the workload. Boxes are not marginals."""
        event, (answers, rounds) = plan["counts"].event, self._num_queries(domain)
        width = min(self.marginal_width, max(self._group_lengths(domain)))
        if answers == rounds or not rounds:
            return (expected_of_counts(event, 1, width),) if self.workload == "cuboid" else ()
        first = expected_of_counts(event, 1, 1, marginals=answers - rounds)
        if self.workload != "cuboid" or width == 1:
            return (first,)
        return first, expected_of_counts(event, 2, width, marginals=rounds)

    def fit(self, run: Run) -> GraphicalModel:
        """Figure 1 of the paper, for all groups at once.

        Formal guarantee: the joint cost of the plan's queries. Queries are selected among those that are not yet
        measured; random boxes come from a key that is independent of the rows; the histograms are functions of noisy
        answers and public facts, so they and their samples are post-processing.
        """
        rows, plan, ledger, domain = run.rows, run.plan, run.ledger, run.domain
        answers, rounds = self._num_queries(domain)
        if self.too_large(domain):
            raise ConfigError("These columns have more codes than the plan allows. Merge some, as understudy.fit does.")
        measure = noisy_answers(rows, plan["counts"], ledger)
        choose = noisy_selections(rows, plan["selections"], ledger) if "selections" in plan else None
        histograms = [Histogram(domain, group, lambda: rows.public_num_rows) for group in self._groups(domain)]
        histogram_of = {name: histogram for histogram in histograms for name in histogram.group}

        def observe(query: LinearQuery) -> Histogram:
            histogram = histogram_of[_columns(query)[0]]
            histogram.observe(query, measure(query))
            return histogram

        pool = dict.fromkeys(self._workload(domain, [histogram.group for histogram in histograms], run.key))
        if choose is not None and answers > rounds:
            for single in domain.one_way:
                observe(single)
                pool.pop(single, None)
            for histogram in histograms:
                histogram.update(self.mw_passes)
        expected: dict[LinearQuery, np.ndarray] = {}
        stale = histograms
        while choose is not None and pool and measure.left:
            for histogram in stale:
                open_queries = [query for query in pool if histogram_of[_columns(query)[0]] is histogram]
                expected.update(histogram.expected(open_queries))
            query = list(pool)[choose(self._candidates(domain, list(pool), expected, measure.stddev))]
            del pool[query]
            stale = [observe(query)]
            stale[0].update(self.mw_passes)
            run.report(1 - measure.left / answers, f"{answers - measure.left} queries measured")
        # What is left is measured in a public order: everything in runs without selection, and repeated measurements
        # where fewer queries were open than rounds.
        measured = [query for histogram in histograms for query in histogram.answers]
        for query in itertools.islice(itertools.cycle(measured or pool), measure.left):
            observe(query)
        for histogram in histograms:
            histogram.update(self.mw_passes * LAST_PASSES)
        return _model(rows.measured_domain, histograms, average=self.average_rounds)

    def _workload(self, domain: Domain, groups: Sequence[Clique], key: PRNGKeyArray) -> list[LinearQuery]:
        """All queries of the workload, those of few columns and those with the target first."""
        if self.workload == "range":
            rng = np.random.default_rng(np.asarray(jax.random.key_data(key)))
            return [box for group in groups for box in _random_boxes(domain, group, self.boxes, rng)]
        marginals = [clique for group in groups for clique in _marginals(group, self.marginal_width)]
        marginals.sort(key=lambda clique: (len(clique), domain.target not in clique))
        if self.workload == "cuboid":
            return [*marginals]
        return [cell for clique in marginals for cell in _cells(domain, clique)]

    def _candidates(
        self, domain: Domain, queries: Sequence[LinearQuery], expected: Mapping[LinearQuery, np.ndarray], stddev: float
    ) -> Candidates:
        sizes = np.array([expected[query].size for query in queries])
        with_target = [domain.target in _columns(query) for query in queries]
        weights = np.where(with_target, self.target_weight, 1.0)
        if self.score == "mean":
            return Candidates(queries, [expected[q] for q in queries], weights / sizes, np.zeros(len(queries)))
        # The expected error of measuring: the mean of |noise|, summed over the cells.
        mean = math.sqrt(0.5) if self.noise == "laplace" else math.sqrt(2 / math.pi)
        return Candidates(queries, [expected[q] for q in queries], weights, mean * stddev * sizes)


# --- Groups and queries: public facts alone ---


def _automatic_groups(domain: Domain) -> list[Clique]:
    """The target with as many columns as fit, smallest first; then the same with the rest.

    Dependence on the target matters most, and small columns model it in the fewest cells.
    """
    rest = sorted(domain.names, key=lambda name: (name != domain.target, domain.shape((name,)), domain.index(name)))
    groups: list[Clique] = []
    while rest:
        group: Clique = (rest[0],)
        for name in rest[1:]:
            if domain.size((*group, name)) <= COMFORTABLE_CELLS and len(group) < MAX_COLUMNS:
                group = (*group, name)
        groups.append(group)
        rest = [name for name in rest if name not in group]
    return groups


def _check_partition(groups: Sequence[Clique], domain: Domain) -> None:
    times = Counter(name for group in groups for name in group)
    for name, count in times.items():
        if name not in domain.names:
            raise ConfigError(
                f"splits name a column {name!r} that is not modelled.{did_you_mean(name, domain.names)} The columns "
                f"are: {', '.join(domain.names)}.",
                setting="splits",
            )
        if count > 1:
            raise ConfigError(
                f"splits name the column {name!r} {count} times. Put every column into one group.", setting="splits"
            )
    if missing := [name for name in domain.names if name not in times]:
        raise ConfigError(f"splits leave out {', '.join(missing)}. Put every column into one group.", setting="splits")


def _num_marginals(columns: int, width: int) -> int:
    return sum(math.comb(columns, size) for size in range(1, width + 1))


def _marginals(group: Clique, width: int) -> list[Clique]:
    return [clique for size in range(1, width + 1) for clique in itertools.combinations(group, size)]


def _cells(domain: Domain, clique: Clique) -> list[Box]:
    return [Box(clique, tuple((c, c + 1) for c in cell)) for cell in np.ndindex(domain.shape(clique))]


def _random_boxes(domain: Domain, group: Clique, count: int, rng: np.random.Generator) -> list[Box]:
    """One interval for each column, between two random codes."""
    ends = np.sort(rng.integers(np.array(domain.shape(group)), size=(count, 2, len(group))), axis=1)
    return [Box(group, tuple((int(low), int(high) + 1) for low, high in box.T)) for box in ends]


# --- The histogram of one group ---


class Histogram:
    """Log probabilities of all cells of a group of columns, and the noisy answers that they are fitted to."""

    def __init__(self, domain: Domain, group: Clique, num_rows: Callable[[], int] | None = None):
        """`num_rows` returns the current estimate of the number of rows; by default the public number."""
        self.group, self._num_rows = group, num_rows or (lambda: domain.num_rows)
        self.log_probs = np.full(domain.shape(group), -math.log(domain.size(group)))
        if zeros_here := [zeros for zeros in domain.zeros if set(zeros.columns) <= set(group)]:
            # Weights of zero stay zero: the histogram is one of the possible cells, and starts uniform on them.
            self.log_probs += sum(_broadcast(log_possible(zeros), zeros.columns, group) for zeros in zeros_here)
            self.log_probs -= _log_sum(self.log_probs)
        self.answers: dict[LinearQuery, np.ndarray] = {}
        self._times: Counter[LinearQuery] = Counter()
        self._sum_of_probs, self._updates = np.zeros(()), 0

    def observe(self, query: LinearQuery, noisy_answer: np.ndarray) -> None:
        """Adds an answer; the answers to one query are averaged."""
        self._times[query] += 1
        before = self.answers.get(query, 0.0)
        self.answers[query] = before + (noisy_answer - before) / self._times[query]

    def update(self, passes: int) -> None:
        """Multiplicative weights: a cell's weight times exp(step * (answer - expected answer)) of its query, in turn.

        Steps are summed as logarithms, so that a weight that rounds to zero on the way is not lost. A step is one over
        the largest count that is measured or expected, which bounds the curvature of the likelihood.
        """
        probs, mass, num_rows = np.exp(self.log_probs), 1.0, self._num_rows()
        views = {query: _cells_of(probs, self.group, query) for query in self.answers}
        steps = {query: np.zeros(()) for query in self.answers}
        for _, (query, noisy) in itertools.product(range(passes), self.answers.items()):
            cells, summed = views[query]
            weight = cells.sum(axis=summed, keepdims=True)
            answer, count = noisy.reshape(weight.shape), weight / mass * num_rows
            step = (answer - count) / max(np.abs(answer).max(), count.max(), 1.0)
            growth, grown = np.exp(step), float((weight * np.exp(step)).sum())
            steps[query] = steps[query] + step
            if not isinstance(query, Box):
                # The new sum of all probabilities is known beforehand, so one pass over the table is enough.
                cells *= growth / grown
                mass = 1.0
            else:
                # The rest of the table stays as it is: probabilities are relative to their sum.
                cells *= growth
                mass += grown - float(weight.sum())
                if not MIN_MASS < mass < 1 / MIN_MASS:
                    probs /= probs.sum()
                    mass = 1.0
        for query, total in steps.items():
            cells, _ = _cells_of(self.log_probs, self.group, query)
            cells += total
        self.log_probs -= _log_sum(self.log_probs)
        self._sum_of_probs = self._sum_of_probs + np.exp(self.log_probs)
        self._updates += 1

    def expected(self, queries: Iterable[LinearQuery]) -> dict[LinearQuery, np.ndarray]:
        """The answers of the histogram, in rows."""
        counts = np.exp(self.log_probs) * self._num_rows()
        tables: dict[Clique, np.ndarray] = {}
        answers: dict[LinearQuery, np.ndarray] = {}
        for query in queries:
            clique = _columns(query)
            if clique not in tables:
                tables[clique] = counts.sum(axis=_cells_of(counts, self.group, clique)[1])
            answers[query] = tables[clique][query.slices].sum().reshape(1) if isinstance(query, Box) else tables[clique]
        return answers

    def log_mean_probs(self) -> np.ndarray:
        """The logarithm of the mean over the histograms after each update."""
        with np.errstate(divide="ignore"):
            return np.log(self._sum_of_probs / self._updates)


def _cells_of(table: np.ndarray, group: Clique, query: LinearQuery) -> tuple[np.ndarray, tuple[int, ...]]:
    """A view of the cells that a query covers, and the axes that its answers sum over."""
    if isinstance(query, Box):
        ranges = dict(zip(query.clique, query.slices, strict=True))
        return table[tuple(ranges.get(name, slice(None)) for name in group)], tuple(range(table.ndim))
    return table, tuple(axis for axis, name in enumerate(group) if name not in query)


def _columns(query: LinearQuery) -> Clique:
    return query.clique if isinstance(query, Box) else query


def _broadcast(table: np.ndarray, columns: Clique, group: Clique) -> np.ndarray:
    """A table over some columns of a group, with the axes of the group."""
    order = sorted(range(len(columns)), key=lambda axis: group.index(columns[axis]))
    sizes = dict(zip(columns, table.shape, strict=True))
    return np.transpose(table, order).reshape([sizes.get(name, 1) for name in group])


def _log_sum(logs: np.ndarray) -> float:
    highest = float(logs.max())
    return highest + math.log(np.exp(logs - highest).sum())


def _model(domain: Domain, histograms: Sequence[Histogram], *, average: bool) -> GraphicalModel:
    """The product of the histograms: groups are independent, but for structural zeros between them."""
    groups = tuple(histogram.group for histogram in histograms)
    zeros = zeros_within(domain, groups, MAX_CELLS)
    return GraphicalModel(
        domain=domain,
        total=float(domain.num_rows),
        cliques=groups,
        potentials=tuple(h.log_mean_probs() if average else h.log_probs for h in histograms),
        tree=junction_tree(domain, [*groups, *(each.columns for each in zeros)]),
        zeros=zeros,
    )
