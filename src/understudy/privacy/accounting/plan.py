"""Queries on private rows, and plans of them: what a run will ask and what it costs, from public facts alone."""

import dataclasses
from collections.abc import Callable, Iterator

from understudy.notes import Note
from understudy.privacy.accounting.events import Event
from understudy.privacy.accounting.marginal_noise import ExpectedNoise
from understudy.summary import Summarized, Summary


@dataclasses.dataclass(frozen=True)
class Query:
    """One planned query on the private rows, and the event that is its privacy cost."""

    key: str
    """Its name in the plan."""
    what: str
    """What is queried, for people."""
    event: Event
    columns: tuple[str, ...] = ()
    delta: float = 0.0
    """Added to the run's delta: the probability that a thresholded list shows a value that only one unit has."""
    path: tuple[str, ...] = ()
    """The methods that make the query, outermost first."""
    partition: str | None = None
    """The partition of the units that it reads; None: all units."""
    kind: str = dataclasses.field(default="", compare=False)
    """Distinguishes queries that a method can answer in several ways. For the method only; in no certificate."""

    @property
    def label(self) -> str:
        return f"{' > '.join(self.path)}: {self.what}" if self.path else self.what


@dataclasses.dataclass(frozen=True, repr=False)
class Plan(Summarized):
    """Every query that a method will make, and its privacy cost: a pure function of public facts.

    `understudy.plan` makes one without reading data; it is a sequence of queries.

    >>> import understudy as us
    >>> schema = {"table": {"rows": 1000}, "columns": {"a": {"kind": "boolean"}, "b": {"kind": "boolean"}}}
    >>> [query.label for query in us.plan(schema, "independent", epsilon=1)]
    ['independent: 1-way marginals of 2 columns']
    """

    queries: tuple[Query, ...] = ()
    """The queries, in the order in which they are charged."""
    notes: tuple[Note, ...] = ()
    """For the reader of the plan: what was chosen, and why."""
    parts: tuple["Plan", ...] = ()
    """Of a wrapper: the plans of the methods that it wraps. Their queries are among `queries`."""
    expected: tuple[ExpectedNoise, ...] = ()
    """The noise of the marginals to be measured; empty if the method measures none or cannot tell in advance."""

    def __getitem__(self, key: str) -> Query:
        return next(query for query in self.queries if query.key == key)

    def __contains__(self, key: object) -> bool:
        return any(query.key == key for query in self.queries)

    def __iter__(self) -> Iterator[Query]:
        return iter(self.queries)

    @property
    def events(self) -> tuple[Event, ...]:
        """The event of each query: what it costs."""
        return tuple(query.event for query in self.queries)

    def under(self, name: str) -> "Plan":
        """The same plan as part of method `name`."""
        return self.each(lambda query: dataclasses.replace(query, path=(name, *query.path)))

    def each(self, change: Callable[[Query], Query]) -> "Plan":
        """The same plan with each query changed, in its parts too."""
        parts = tuple(part.each(change) for part in self.parts)
        return dataclasses.replace(self, queries=tuple(map(change, self.queries)), parts=parts)

    def summary(self) -> Summary:
        """What its `repr` shows."""
        title = f"Plan of {len(self.queries)} {'query' if len(self.queries) == 1 else 'queries'}"
        rows = [(query.label, query.event.describe()) for query in self.queries]
        return Summary(title, {}, ("query", "mechanism"), rows, [str(note) for note in self.notes])
