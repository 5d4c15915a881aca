"""The plan of a run as the page shows it: every query and its cost, the noise to expect, and what epsilon means.

Made from the schema and the settings alone. Figures are formatted here, by the functions of the certificate, so that
page, plan and certificate agree.
"""

import math
from pathlib import Path
from typing import Any, NamedTuple

from understudy.api import make_plan
from understudy.certificate import plan_statement, public_facts, round_up, standalone_epsilon, statement_meaning
from understudy.errors import ConfigError, UnderstudyError
from understudy.institution.book import BudgetBook
from understudy.institution.book.book import percent
from understudy.institution.book.proposal import propose_run
from understudy.privacy.accounting.ledger import Guarantee, spent_by
from understudy.privacy.accounting.marginal_noise import ExpectedNoise
from understudy.privacy.mechanisms.discovery import Binning
from understudy.schema import Schema
from understudy.synthesizers import read_method


class Request(NamedTuple):
    """What a run is asked for, beside its schema."""

    method: str
    epsilon: float
    delta: float | None
    rows: int | None = None
    """The number of synthetic rows; None: as many as are declared or estimated."""
    holdout: float | None = None
    """The fraction of the rows that is held out for the disclosure report."""

    @classmethod
    def of(cls, given: dict[str, Any]) -> "Request":
        """From the fields of the page; an empty one stands for its default."""
        epsilon = _number(given, "epsilon", "Epsilon")
        if epsilon is None:
            raise ConfigError("Set epsilon, the privacy budget. Smaller is more private.")
        rows = _number(given, "rows", "The number of synthetic rows")
        if rows is not None and (rows < 1 or rows != int(rows)):
            raise ConfigError(f"The number of synthetic rows must be a whole number above 0, found {rows:g}.")
        method = given.get("method")
        if not isinstance(method, str) or not method.strip():
            raise ConfigError("Choose a method.")
        holdout = _number(given, "holdout", "The fraction to hold out")
        size = None if rows is None else int(rows)
        return cls(method.strip(), epsilon, _number(given, "delta", "Delta"), size, holdout)

    def at_planned_delta(self, num_rows: int | None) -> "Request":
        """The same run at the delta of its plan: a run that holds rows out has fewer, and its default would differ."""
        return self if self.holdout is None else self._replace(delta=self.guarantee.with_delta_for(num_rows).delta)

    @property
    def guarantee(self) -> Guarantee:
        return Guarantee(self.epsilon, self.delta)


def describe_plan(schema: Schema, request: Request, book: Path | None) -> dict[str, object]:
    """Everything that the page shows about a plan. Reads no data."""
    method, binning = read_method(request.method), Binning()
    made = make_plan(schema, method, request.guarantee, binning=binning)
    guarantee = request.guarantee.with_delta_for(schema.rows)
    statement = plan_statement(made, guarantee, spent_by(made, guarantee), public_facts(schema))
    meaning = statement_meaning(statement)
    queries = [
        {
            "what": query.label,
            "mechanism": query.event.describe(),
            "epsilon": round_up(standalone_epsilon(query, statement), 3),
            "delta": round_up(query.delta, 2) if query.delta else "",
        }
        for query in made
    ]
    return {
        "epsilon": round_up(statement.epsilon, 4),
        "requested": f"{guarantee.epsilon:g}",
        "delta": round_up(statement.delta, 2),
        "strength": None if statement.strength is None else statement.strength.value,
        "queries": queries,
        "meaning": None
        if meaning is None
        else {
            "sentences": meaning.sentences,
            "claim": meaning.claim,
            "beliefs": meaning.belief_table(),
            "tests": meaning.test_table(),
        },
        "expected": [_noise(each, schema.rows) for each in made.expected],
        "notes": [str(note) for note in made.notes],
        "book": None if book is None else _use_of(book, schema, request),
    }


def _noise(expected: ExpectedNoise, num_rows: int | None) -> dict[str, object]:
    orders = f"{expected.max_order}-way"
    if expected.min_order != expected.max_order:
        orders = f"{expected.min_order}- to {orders}"
    return {
        "marginals": orders,
        "number": f"{'' if expected.exact else 'up to '}{expected.marginals:,}",
        "rows": f"{expected.stddev:.3g}",
        "percent": f"{100 * expected.stddev / num_rows:.2g}%" if num_rows else None,
    }


def _use_of(path: Path, schema: Schema, request: Request) -> dict[str, object]:
    """What the run would use of the budget book, or why the book cannot cover it."""
    if schema.drafted:
        return {"refused": "A run with a budget book needs a declared schema. Confirm the draft in step 1 first."}
    try:
        book, run = propose_run(path, schema, read_method(request.method), request.guarantee, Binning())
        cost = book.terms.cost(run.queries, run.guarantee)
        room = book.limit - book.total
        return {
            "needed": percent(cost, book.limit),
            "left": f"{book.fraction_left:.2%}",
            "fits": cost.fits(room),
            "delta_fits": cost.delta <= room.delta,
            "hash": run.plan_hash(book),
        }
    except UnderstudyError as error:
        return {"refused": str(error)}


def describe_book(path: Path) -> dict[str, object]:
    """The entries of a budget book, and what is left."""
    book = BudgetBook.open(path)
    about = book.summary()
    return {
        "title": about.title,
        "facts": dict(about.facts),
        "head": list(about.head),
        "rows": [list(row) for row in about.rows],
        "left": f"{book.fraction_left:.2%}",
        "fraction_left": book.fraction_left,
    }


def _number(given: dict[str, Any], key: str, what: str) -> float | None:
    value = given.get(key)
    if value in (None, ""):
        return None
    try:
        number = float(value)
    except (TypeError, ValueError, OverflowError):
        raise ConfigError(f"{what} must be a number, found {str(value)[:40]!r}.") from None
    if not math.isfinite(number):
        raise ConfigError(f"{what} must be a finite number, found {number}.")
    return number
