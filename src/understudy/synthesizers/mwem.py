"""MWEM: a histogram over all columns, bent round by round towards the query that it gets most wrong.

Hardt, Ligett and McSherry, "A simple and practical algorithm for differentially private data release", 2012, with the
splits of the QUAIL paper's library (smartnoise-synth). Deviations: prices are fixed in advance, calibrated jointly and
shared by all groups, whose queries compete in one choice; the columns are measured first, since there is nothing to
choose; queries with the target may count more; an update steps by the largest cell of its marginal, where the paper
divides by twice the rows, so that a few passes reach what hundreds of its steps do.
"""

import dataclasses
import itertools
import math
from collections import Counter as Tally
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Annotated, ClassVar

import jax
import numpy as np
from jaxtyping import PRNGKeyArray

from understudy.columns import did_you_mean
from understudy.errors import ConfigError
from understudy.junction import Clique, junction_tree
from understudy.marginals import GraphicalModel
from understudy.notes import Note
from understudy.privacy.accounting import Choices, DiscreteGaussian, Event
from understudy.privacy.ledger import Budget, Ledger, Look, Plan
from understudy.privacy.mechanisms import Box, Candidates, Rows, noisy_answers, noisy_choices
from understudy.progress import Progress
from understudy.schema import Domain
from understudy.settings import Advice, AtLeast, Count, InnerFraction, Listed, OneOf, check_settings
from understudy.synthesizers.protocol import Capabilities

MOST_CELLS = 10_000_000
MANY_CELLS = 1_000_000
COMFORTABLE_CELLS = 500_000
"""What automatic groups may hold: a round then takes tenths of a second."""
MOST_COLUMNS = 32  # NumPy before version 2 has no more axes
LAST_PASSES = 10
"""The last update makes so many times the passes of the others."""
LEAST_MASS = 1e-3  # a running sum that falls by so much has lost as many digits
ROUNDS_PER_COLUMN = {"cuboid": 1, "range": 10, "cell": 10}
"""A cuboid answers for all of its cells at once; of single counts it takes many."""

Query = Clique | Box


@dataclasses.dataclass(frozen=True, kw_only=True)
class MWEM:
    """A whole histogram, or one for each group of columns, bent towards noisy answers by multiplicative weights."""

    capabilities: ClassVar[Capabilities] = Capabilities(target=True)

    splits: Annotated[tuple[Annotated[Clique, Listed()], ...], Listed()] | None = None
    """Groups of columns, each column in exactly one; groups come out independent of each other. Left out: by
    `split_factor`, else as many small columns with the target as a histogram comfortably holds, and so on."""

    split_factor: Count | None = None
    """Instead of `splits`: groups of so many consecutive columns, the last one smaller."""

    workload: Annotated[str, OneOf(*ROUNDS_PER_COLUMN)] = "cuboid"
    """What to ask: `cuboid` (whole marginals), `cell` (single cells of marginals) or `range` (random boxes)."""

    marginal_width: Count = 2
    """Most columns of a marginal."""

    boxes: Count = 500
    """How many random boxes of each group the workload `range` has to choose from."""

    columns_first: bool = True
    """Whether every column is measured before the first choice."""

    rounds: Count | None = None
    """How many queries are chosen and measured, in all groups together. Left out: one for each column, or 10 where a
    query is a single count."""

    measure_only: bool = False
    """Whether to measure the marginals of the workload in a public order instead of choosing: right where they are
    few. Left out, `rounds` is then the number of all marginals."""

    selection_share: Annotated[InnerFraction, Advice("To measure without choosing, use measure_only.")] = 0.2
    """Part of the budget that pays for the choices, in zero-concentrated terms."""

    score: Annotated[str, OneOf("penalised", "mean")] = "penalised"
    """How a query is judged: `penalised` (absolute error, less what noise in so many cells would bring) or `mean`
    (error of an average cell, as in the library)."""

    target_weight: Annotated[float, AtLeast(1)] = 2.0
    """How many times a query with the target counts in the choices. Without a target it does nothing."""

    mw_passes: Count = 20
    """How often each update goes through all answers so far. Post-processing: costs time, not budget."""

    average: bool = False
    """Whether the model is the mean of the histograms after each round, as in the paper, instead of the last."""

    def __post_init__(self) -> None:
        check_settings(self)
        if self.splits is not None and self.split_factor is not None:
            raise ConfigError("Give splits or split_factor, not both: each says how to group the columns.")
        if self.measure_only and self.workload != "cuboid":
            raise ConfigError(f"measure_only measures whole marginals: workload must be cuboid, found {self.workload}.")

    def plan(self, domain: Domain, budget: Budget) -> Plan:
        """One look for all answers and one for all choices, calibrated so that together they fill the budget.

        Their number follows from the names of the columns and the settings alone: sizes may have been bought, and what
        was bought must not move a price. Groups may follow from sizes, since they change no price.
        """
        groups = self._groups(domain)
        if crowded := self.too_large(domain.merged):
            raise ConfigError(
                f"A histogram of the columns {', '.join(crowded)} may have {domain.merged.size(crowded):,} cells in "
                f"{len(crowded)} columns; it may have at most {MOST_CELLS:,} cells and {MOST_COLUMNS} columns. Use "
                "smaller splits (or leave them out), fewer bins (--max-bins), or drop columns."
            )
        noise = budget.calibrate(lambda noise: list(self._events(domain, budget, noise).values()))
        answers, rounds = self._turns(domain)
        chosen = f"counts of {answers} marginal{'s' if answers > 1 else ''}, in a public order"
        if rounds:
            kind = "marginals" if self.workload == "cuboid" else "counts"
            first = f"one histogram for each of {answers - rounds} columns, and " if answers > rounds else ""
            chosen = f"{first}{rounds} chosen {kind}"
        words = {"counts": chosen, "choices": f"choice of {rounds} queries among those not yet measured"}
        events = self._events(domain, budget, noise)
        looks = tuple(Look(key, words[key], event, columns=domain.names) for key, event in events.items())
        return Plan(looks, self._notes(domain, groups))

    def _turns(self, domain: Domain) -> tuple[int, int]:
        """How many answers are bought in all, and how many of them are chosen."""
        columns = len(domain.names)
        marginals = sum(_num_parts(size, self.marginal_width) for size in self._group_lengths(domain))
        if self.measure_only:
            return self.rounds or marginals, 0
        first = columns if self.columns_first else 0
        rounds = self.rounds or columns * ROUNDS_PER_COLUMN[self.workload]
        most = {"cuboid": marginals - first, "range": self.boxes, "cell": rounds}[self.workload]
        return first + min(rounds, most), min(rounds, most)

    def _group_lengths(self, domain: Domain) -> Sequence[int]:
        """Columns of each group, as far as settings tell; groups that sizes decide count as one."""
        if self.splits is None and self.split_factor is None:
            return [len(domain.names)]
        return [len(group) for group in self._groups(domain)]

    def _events(self, domain: Domain, budget: Budget, noise: float) -> dict[str, Event]:
        answers, rounds = self._turns(domain)
        sensitivity, share = budget.max_rows_per_unit, self.selection_share if rounds else 0.0
        stddev = sensitivity * math.sqrt(answers / (2 * (1 - share))) * noise
        events: dict[str, Event] = {"counts": DiscreteGaussian(stddev, answers, sensitivity)}
        if rounds:
            events["choices"] = Choices(math.sqrt(8 * share / rounds) / noise, rounds)
        return events

    def _notes(self, domain: Domain, groups: Sequence[Clique]) -> tuple[Note, ...]:
        cells = [domain.size(group) for group in groups]
        notes = []
        if len(groups) > 1:
            notes.append(Note(f"{len(groups)} groups of columns, independent of each other: {_in_words(groups)}."))
        if domain.target is not None and not self.measure_only:
            notes.append(
                Note(f"Queries with the target {domain.target!r} count {self.target_weight:g} times in the choices.")
            )
        if self.too_large(domain.largest):
            notes.append(
                Note(
                    f"If estimated categories make a histogram larger than {MOST_CELLS:,} cells, the rarest of them "
                    "become 'other'. To keep them, declare them in the schema or use smaller splits."
                )
            )
        if max(cells) > MANY_CELLS:
            notes.append(
                Note(
                    f"The largest histogram has {max(cells):,} cells: a run takes minutes and up to "
                    f"{max(cells) * 40 / 2**30:.1g} GB. Smaller splits are quicker."
                )
            )
        return tuple(notes)

    def too_large(self, domain: Domain) -> tuple[str, ...]:
        """The columns of a group whose histogram would be too large; empty if all groups fit.

        Estimated lists of categories are merged until they do (`encoding.merge_rarest`).
        """
        return next(
            (group for group in self._groups(domain) if domain.size(group) > MOST_CELLS or len(group) > MOST_COLUMNS),
            (),
        )

    def _groups(self, domain: Domain) -> list[Clique]:
        """The groups of columns, from settings, sizes and the target alone."""
        if self.splits is not None:
            groups = list(self.splits)
            _check_partition(groups, domain)
        elif self.split_factor is not None:
            starts = range(0, len(domain.names), self.split_factor)
            groups = [domain.names[start : start + self.split_factor] for start in starts]
        else:
            groups = _automatic_groups(domain)
        # With the longest axis last, sums over the others run over memory in order.
        return [tuple(sorted(group, key=lambda name: (domain.shape((name,)), name))) for group in groups]

    def fit(
        self,
        rows: Rows,
        plan: Plan,
        ledger: Ledger,
        *,
        key: PRNGKeyArray,
        progress: Progress | None = None,
    ) -> GraphicalModel:
        """Figure 1 of the paper, for all groups at once.

        Formal guarantee: the joint price of the plan's looks. Queries are chosen among those that noisy answers leave
        open, never again once measured; random boxes come from a key that knows no row; the histograms are functions
        of noisy answers and public facts, so they and their rows are post-processing.
        """
        domain = rows.domain
        answers, rounds = self._turns(domain)
        if self.too_large(domain):
            raise ConfigError("These columns have more codes than the plan allows. Merge some, as understudy.fit does.")
        histograms = [Histogram(domain, group, lambda: rows.public_num_rows) for group in self._groups(domain)]
        ask = noisy_answers(rows, plan["counts"], ledger)
        choose = noisy_choices(rows, plan["choices"], ledger) if "choices" in plan else None
        of_column = {name: histogram for histogram in histograms for name in histogram.group}

        def home(query: Query) -> Histogram:
            return of_column[_columns(query)[0]]

        pool = dict.fromkeys(self._pool(domain, [h.group for h in histograms], key))
        if choose is not None and answers > rounds:
            for single in domain.singles:
                home(single).observe(single, ask(single))
                pool.pop(single, None)
            for histogram in histograms:
                histogram.update(self.mw_passes)
        expected: dict[Query, np.ndarray] = {}
        stale: Iterable[Histogram] = histograms
        while choose is not None and pool and ask.left:
            for histogram in stale:
                expected.update(histogram.expected(query for query in pool if home(query) is histogram))
            query = list(pool)[choose(self._candidates(domain, list(pool), expected, ask.stddev))]
            del pool[query]
            histogram = home(query)
            histogram.observe(query, ask(query))
            histogram.update(self.mw_passes)
            stale = [histogram]
            if progress is not None:
                progress(1 - ask.left / answers, f"{answers - ask.left} queries measured")
        # The rest goes on in a public order, round and round: all of it in runs without choices, and what is over where
        # fewer queries were open than rounds.
        for query in itertools.islice(itertools.cycle([q for h in histograms for q in h.answers] or pool), ask.left):
            home(query).observe(query, ask(query))
        for histogram in histograms:
            histogram.update(self.mw_passes * LAST_PASSES)
        return _model(rows.measured_domain, histograms, average=self.average)

    def _pool(self, domain: Domain, groups: Sequence[Clique], key: PRNGKeyArray) -> list[Query]:
        """All queries of the workload, narrow ones and those with the target first."""
        if self.workload == "range":
            rng = np.random.default_rng(np.asarray(jax.random.key_data(key)))
            return [box for group in groups for box in _random_boxes(domain, group, self.boxes, rng)]
        marginals = [part for group in groups for part in _parts(group, self.marginal_width)]
        marginals.sort(key=lambda part: (len(part), domain.target not in part))
        if self.workload == "cuboid":
            return [*marginals]
        return [cell for part in marginals for cell in _cells(domain, part)]

    def _candidates(
        self, domain: Domain, queries: Sequence[Query], expected: Mapping[Query, np.ndarray], stddev: float
    ) -> Candidates:
        sizes = np.array([expected[query].size for query in queries])
        with_target = [domain.target in _columns(query) for query in queries]
        weights = np.where(with_target, self.target_weight, 1.0)
        if self.score == "mean":
            return Candidates(queries, [expected[q] for q in queries], weights / sizes, np.zeros(len(queries)))
        # What measuring would add to the error: the mean of |noise| over the cells.
        return Candidates(queries, [expected[q] for q in queries], weights, math.sqrt(2 / math.pi) * stddev * sizes)


# --- Groups and queries: public facts alone ---


def _automatic_groups(domain: Domain) -> list[Clique]:
    """The target with as many columns as fit, smallest first; then the same with what is left.

    What matters most about a column is what it says of the target, and small columns say it in the fewest cells.
    """
    rest = sorted(domain.names, key=lambda name: (name != domain.target, domain.shape((name,)), domain.index(name)))
    groups: list[Clique] = []
    while rest:
        group: Clique = (rest[0],)
        for name in rest[1:]:
            if domain.size((*group, name)) <= COMFORTABLE_CELLS and len(group) < MOST_COLUMNS:
                group = (*group, name)
        groups.append(group)
        rest = [name for name in rest if name not in group]
    return groups


def _check_partition(groups: Sequence[Clique], domain: Domain) -> None:
    times = Tally(name for group in groups for name in group)
    for name, count in times.items():
        if name not in domain.names:
            raise ConfigError(
                f"splits name a column {name!r} that is not modelled.{did_you_mean(name, domain.names)} The columns "
                f"are: {', '.join(domain.names)}."
            )
        if count > 1:
            raise ConfigError(f"splits name the column {name!r} {count} times. Put every column into one group.")
    if missing := [name for name in domain.names if name not in times]:
        raise ConfigError(f"splits leave out {', '.join(missing)}. Put every column into one group.")


def _in_words(groups: Sequence[Clique]) -> str:
    return "; ".join(", ".join(group) for group in groups)


def _num_parts(columns: int, width: int) -> int:
    return sum(math.comb(columns, size) for size in range(1, width + 1))


def _parts(group: Clique, width: int) -> list[Clique]:
    return [part for size in range(1, width + 1) for part in itertools.combinations(group, size)]


def _cells(domain: Domain, clique: Clique) -> list[Box]:
    return [Box(clique, tuple((c, c + 1) for c in cell)) for cell in np.ndindex(domain.shape(clique))]


def _random_boxes(domain: Domain, group: Clique, count: int, rng: np.random.Generator) -> list[Box]:
    """One interval for each column, between two codes drawn at random."""
    ends = np.sort(rng.integers(np.array(domain.shape(group)), size=(count, 2, len(group))), axis=1)
    return [Box(group, tuple((int(low), int(high) + 1) for low, high in box.T)) for box in ends]


# --- The histogram of one group ---


class Histogram:
    """Shares of all cells of a group of columns, kept as logarithms, and the noisy answers that they follow."""

    def __init__(self, domain: Domain, group: Clique, num_rows: Callable[[], int] | None = None):
        """`num_rows` returns the current estimate of the number of rows; by default the public number."""
        self.group, self._num_rows = group, num_rows or (lambda: domain.num_rows)
        self.log_shares = np.full(domain.shape(group), -math.log(domain.size(group)))
        self.answers: dict[Query, np.ndarray] = {}
        self._times: Tally[Query] = Tally()
        self._sum_of_shares, self._updates = np.zeros(()), 0

    def observe(self, query: Query, noisy_answer: np.ndarray) -> None:
        """Another answer to a query counts as much as each one before."""
        self._times[query] += 1
        before = self.answers.get(query, 0.0)
        self.answers[query] = before + (noisy_answer - before) / self._times[query]

    def update(self, passes: int) -> None:
        """Multiplicative weights: a cell's weight times exp(step * (answer - expected answer)) of its query, in turn.

        Steps are summed up as logarithms, so that a weight that rounds to zero on the way is not lost. A step is one
        over the greatest count that is answered or expected, for the curvature of the likelihood is at most that.
        """
        shares, mass, num_rows = np.exp(self.log_shares), 1.0, self._num_rows()
        steps = {query: np.zeros(answer.shape) for query, answer in self.answers.items()}
        parts = {query: _Part.of(shares, self.group, query) for query in self.answers}
        for _, (query, answer) in itertools.product(range(passes), self.answers.items()):
            part = parts[query]
            weight = part.sum()
            count = weight / mass * num_rows
            step = (answer - count) / max(np.abs(answer).max(), count.max(), 1.0)
            growth, grown = np.exp(step), float((weight * np.exp(step)).sum())
            steps[query] += step
            if part.is_whole:  # the new sum of all shares is known beforehand, so one walk over the table does both
                part *= growth / grown
                mass = 1.0
            else:  # the rest of the table stays as it is: shares are relative to their sum until that is far from one
                part *= growth
                mass += grown - float(weight.sum())
                if not LEAST_MASS < mass < 1 / LEAST_MASS:
                    shares /= shares.sum()
                    mass = 1.0
        for query, total in steps.items():
            part = _Part.of(self.log_shares, self.group, query)
            part += total
        self.log_shares -= _log_sum(self.log_shares)
        self._sum_of_shares = self._sum_of_shares + np.exp(self.log_shares)
        self._updates += 1

    def expected(self, queries: Iterable[Query]) -> dict[Query, np.ndarray]:
        """What the histogram answers, in rows."""
        counts = np.exp(self.log_shares) * self._num_rows()
        tables: dict[Clique, np.ndarray] = {}
        answers: dict[Query, np.ndarray] = {}
        for query in queries:
            clique = _columns(query)
            if clique not in tables:
                tables[clique] = _Part.of(counts, self.group, clique).sum()
            answers[query] = tables[clique][query.slices].sum().reshape(1) if isinstance(query, Box) else tables[clique]
        return answers

    def log_mean_shares(self) -> np.ndarray:
        """Of the histograms after each update."""
        with np.errstate(divide="ignore"):
            return np.log(self._sum_of_shares / self._updates)


@dataclasses.dataclass(frozen=True)
class _Part:
    """Those cells of a group's table that a query is about, side by side with its answers."""

    cells: np.ndarray
    axes: tuple[int, ...]
    """Summed over in an answer."""
    shape: tuple[int, ...]
    """Of the answers, with one axis for each of the table's."""
    is_whole: bool

    @classmethod
    def of(cls, table: np.ndarray, group: Clique, query: Query) -> "_Part":
        """A view, not a copy. The query names its columns in the group's order."""
        if isinstance(query, Box):
            ranges = dict(zip(query.clique, query.slices, strict=True))
            cells = table[tuple(ranges.get(name, slice(None)) for name in group)]
            return cls(cells, tuple(range(table.ndim)), (1,) * table.ndim, False)
        axes = tuple(axis for axis, name in enumerate(group) if name not in query)
        return cls(table, axes, tuple(1 if axis in axes else n for axis, n in enumerate(table.shape)), True)

    def sum(self) -> np.ndarray:
        total = self.cells.sum(axis=self.axes)
        return total if self.is_whole else np.reshape(total, 1)

    def __imul__(self, factors: np.ndarray) -> "_Part":
        np.multiply(self.cells, factors.reshape(self.shape), out=self.cells)
        return self

    def __iadd__(self, terms: np.ndarray) -> "_Part":
        np.add(self.cells, terms.reshape(self.shape), out=self.cells)
        return self


def _columns(query: Query) -> Clique:
    return query.clique if isinstance(query, Box) else query


def _log_sum(logs: np.ndarray) -> float:
    highest = float(logs.max())
    return highest + math.log(np.exp(logs - highest).sum())


def _model(domain: Domain, histograms: Sequence[Histogram], *, average: bool) -> GraphicalModel:
    """The groups' histograms side by side: rows are drawn cell by cell, each group by itself."""
    groups = tuple(histogram.group for histogram in histograms)
    return GraphicalModel(
        domain=domain,
        total=float(domain.num_rows),
        cliques=groups,
        potentials=tuple(h.log_mean_shares() if average else h.log_shares for h in histograms),
        tree=junction_tree(domain, groups),
    )
