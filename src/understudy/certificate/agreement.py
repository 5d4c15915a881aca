"""Whether a certificate agrees with itself about every fact that it states twice, and limits on the cost of reading it.

`certificate.json.from_json` checks every certificate that is read; `release` and `bundle` compare the files beside it
with `schema_contradictions`.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from understudy.certificate.facts import estimated_facts, public_facts
from understudy.encoding import Codec
from understudy.errors import ReleaseError
from understudy.privacy.accounting.accountants import Spent, rdp_epsilon, tail_delta
from understudy.privacy.accounting.events import (
    ZCDP,
    DiscreteGaussian,
    Event,
    Gaussian,
    LaplaceMarginals,
    UnitHistogram,
)
from understudy.privacy.accounting.ledger import Query, Statement, partitions
from understudy.privacy.accounting.marginal_noise import MeasuredMarginal
from understudy.schema import Schema

UNREADABLE = (
    *(ValueError, LookupError, TypeError, AttributeError, ArithmeticError),
    *(RecursionError, MemoryError, AssertionError),
)
"""Errors that reading a certificate of unknown origin may raise, besides those of Understudy."""
SLACK = 1e-6
"""The relative difference allowed in recomputed figures: their last digits depend on the machine."""
MAX_QUERIES = 1000
MAX_PARTITIONS = 2
"""No method makes more. The cost of each is computed on its own, within `accountants.MAX_LOSSES`."""
MAX_MARGINALS = 1_000_000


class Contradiction(ReleaseError):
    """Two statements of one fact differ, or a certificate would take too long to check."""


def check_size(statement: Statement) -> None:
    """Refuses a statement whose cost would take hours to recompute: anyone can write a certificate."""
    if len(statement.measurements) > MAX_MARGINALS:
        raise Contradiction(
            f"The certificate lists {len(statement.measurements):,} marginals; at most {MAX_MARGINALS:,} are read."
        )
    for fault in excess(statement.queries):
        raise Contradiction(f"The certificate {fault} are read.")


# ------------------------------------------------------------------------------------------------------------- limits


def excess(queries: Sequence[Query]) -> Iterator[str]:
    """Why no certificate with these queries could be read. A run is refused for the same reasons before it starts."""
    if len(queries) > MAX_QUERIES:
        yield f"has {len(queries):,} queries; at most {MAX_QUERIES:,}"
    if (num := len(partitions(queries))) > MAX_PARTITIONS:
        yield f"has {num:,} partitions; at most {MAX_PARTITIONS}"


# ------------------------------------------------------------------------------------------------------------ one fact


def contradictions(statement: Statement) -> Iterator[str]:
    """Contradictions between the facts of a statement, each as the end of a sentence."""
    yield from _figures(statement)
    yield from _units(statement)
    for query in statement.queries:
        if not 0 <= query.delta < statement.delta:
            total = _shown(statement.delta)
            yield f"adds delta {_shown(query.delta)!r} for '{_shown(query.what)}', of {total!r} in all"
    if not statement.released and statement.measurements:
        yield "lists measured marginals of a run that released nothing"
    yield from _measurements(statement)


def _figures(statement: Statement) -> Iterator[str]:
    """Epsilon, its target, its accountant, and the figure of the faster accountant, recomputed."""
    spent = Spent(statement.epsilon_pld, statement.epsilon_rdp)
    if not 0 < statement.delta < 1:
        yield f"states delta {_shown(statement.delta)!r}"
    elif statement.epsilon != spent.epsilon:
        yield "states an epsilon that neither accountant has"
    elif statement.accountant != spent.accountant:
        yield f"names the accountant {_shown(statement.accountant)!r}, whose figure is not the smaller one"
    elif math.isfinite(statement.epsilon_target) != math.isfinite(statement.epsilon):
        yield "states an epsilon for a run without noise, or none for a run with noise"
    elif statement.epsilon > statement.epsilon_target * (1 + SLACK):
        yield (
            f"states epsilon {_shown(statement.epsilon)!r}, but {_shown(statement.epsilon_target)!r} at most was "
            "requested"
        )
    elif math.isfinite(statement.epsilon) and not renyi_agrees(statement):
        yield "states another epsilon by Renyi divergence than its queries cost"


def renyi_agrees(statement: Statement) -> bool:
    """Whether the Renyi figure is right. With partitions, it is the figure of one of them."""
    return any(
        same_figures(_renyi(part, statement.delta), float(statement.epsilon_rdp))
        for part in partitions(statement.queries)
    )


def _renyi(queries: Sequence[Query], delta: float) -> float:
    events = [query.event for query in queries]
    left = delta - sum(query.delta for query in queries) - tail_delta(events)
    return float(rdp_epsilon(events, left)) if left > 0 or not events else math.inf


def _units(statement: Statement) -> Iterator[str]:
    """Whether the queries cover as many rows of a unit as it may have, and whether there are units at all."""
    facts, max_rows = statement.facts, statement.max_rows_per_unit
    if type(max_rows) is not int or max_rows < 1:
        yield f"states {_shown(max_rows)!r} rows of each unit"
        return
    if facts.unit is not None and facts.graph_unit is not None:
        yield "states two privacy units, of a table and of a graph"
    if facts.unit is None and max_rows > 1:
        yield f"states {_shown(max_rows)} rows of each unit, but the unit is one {facts.graph_unit or 'row'}"
    for query in statement.queries:
        covered = query.event.covered_rows
        if covered is not None and covered != max_rows and (facts.graph_unit is None or covered < max_rows):
            yield (
                f"states {_shown(max_rows)} row(s) of each unit, but the cost of '{_shown(query.what)}' is for "
                f"{covered:,} row(s)"
            )
        if facts.unit is None and isinstance(query.event, UnitHistogram):
            yield f"has no privacy unit but the query '{_shown(query.what)}', which counts units"


def _measurements(statement: Statement) -> Iterator[str]:
    """Whether the measured marginals are those that the queries were charged for, with their noise."""
    queries: dict[tuple[str, str | None], list[Event]] = {}
    for query in statement.queries:
        queries.setdefault((query.key, query.partition), []).append(query.event)
    measured: dict[tuple[str, str | None], list[MeasuredMarginal]] = {}
    for marginal in statement.measurements:
        measured.setdefault((marginal.query, marginal.partition), []).append(marginal)
    for key, marginals in measured.items():
        what = f"marginals of the query '{_shown(key[0])}'"
        if key not in queries:
            yield f"lists {what}, which it does not have"
        elif not math.isfinite(statement.epsilon):
            if any(marginal.stddev for marginal in marginals):
                yield f"lists {what} with noise, in a run without noise"
        elif not _is_paid(marginals, queries[key], statement.max_rows_per_unit):
            yield f"lists {what} that have less noise, or are more, than it costs"


def _is_paid(marginals: Sequence[MeasuredMarginal], events: Sequence[Event], max_rows: int) -> bool:
    if not all(isinstance(marginal.stddev, int | float) and 1e-30 < marginal.stddev < 1e30 for marginal in marginals):
        return False
    if any(marginal.cells < 1 for marginal in marginals):
        return False
    stddevs = [float(marginal.stddev) for marginal in marginals]
    fixed = {event.stddev: event.count for event in events if isinstance(event, DiscreteGaussian)}
    fixed |= {event.stddev: event.rounds for event in events if isinstance(event, LaplaceMarginals)}
    if len(fixed) == len(events):
        return all(
            sum(same_figures(stddev, float(fixed_stddev)) for stddev in stddevs) <= count
            for fixed_stddev, count in fixed.items()
        ) and all(any(same_figures(stddev, float(fixed_stddev)) for fixed_stddev in fixed) for stddev in stddevs)
    rho = sum(event.rho for event in events if isinstance(event, Gaussian | ZCDP | DiscreteGaussian | LaplaceMarginals))
    return math.fsum(max_rows**2 / (2 * stddev**2) for stddev in stddevs) <= rho * (1 + SLACK)


def schema_contradictions(schema: Schema, statement: Statement, *, same_version: bool) -> Iterator[str]:
    """How a schema contradicts the public facts of a certificate; the wording of sentences only for `same_version`."""
    expected, facts = public_facts(schema, file_name=statement.facts.name), statement.facts
    names = ["unit", "rows_declared", "drafted", "name", "responsible", "contact"]
    for name in [*names, *(["declared"] if same_version else [])]:
        if getattr(expected, name) != getattr(facts, name):
            yield f"does not declare what the certificate lists as declared ({_WORDS.get(name, name)})"
    if schema.max_rows_per_unit != statement.max_rows_per_unit:
        yield (
            f"declares {schema.max_rows_per_unit} row(s) of each unit, and the certificate states "
            f"{statement.max_rows_per_unit}"
        )


def codec_contradictions(codec: Codec, method: str, statement: Statement, *, same_version: bool) -> Iterator[str]:
    """How the method and the codec beside a certificate contradict it, each as a clause."""
    for fault in schema_contradictions(codec.schema, statement, same_version=same_version):
        yield f"its schema {fault}"
    if method != statement.method:
        yield "it and the certificate name different methods"
    if same_version and estimated_facts(codec.schema, codec) != statement.facts.estimated:
        yield "what was estimated privately is not what the certificate lists"
    if codec.schema.rows not in (None, codec.num_rows):
        yield "its schema and its codec have different numbers of rows"


_WORDS = {"rows_declared": "rows", "declared": "a list, a bound or a rule"}


# ----------------------------------------------------------------------------------------------------------- comparing


def first_difference(found: object, expected: object, path: str = "") -> str | None:
    """Where two JSON values differ; None: nowhere. What `found` lacks is not compared."""
    if isinstance(found, Mapping) and isinstance(expected, Mapping):
        pairs = [(found[key], expected[key], f"{path}.{key}" if path else key) for key in expected if key in found]
    elif isinstance(found, list) and isinstance(expected, list) and len(found) == len(expected):
        pairs = [(*pair, f"{path}[{at}]") for at, pair in enumerate(zip(found, expected, strict=True))]
    elif same_figures(found, expected):
        return None
    else:
        return f"{path} is {_shown(found)!r}, but the other fields give {_shown(expected)!r}"
    differences = (first_difference(*pair) for pair in pairs)
    return next((difference for difference in differences if difference is not None), None)


def _shown(value: Any) -> Any:
    """A short form, for a message of one line."""
    if isinstance(value, int) and abs(value) >= 10**20:  # of more digits than Python writes, perhaps
        return "a number of more than 20 digits"
    text = str(value)
    return value if isinstance(value, bool | int | float | None) else text if len(text) <= 80 else f"{text[:77]}..."


def same_figures(one: object, other: object) -> bool:
    """Whether two JSON values are equal, apart from the last digits of recomputed figures."""
    if isinstance(one, Mapping) and isinstance(other, Mapping):
        return one.keys() == other.keys() and all(same_figures(one[key], other[key]) for key in one)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(same_figures, one, other))
    if isinstance(one, float) or isinstance(other, float):
        numbers = [value for value in (one, other) if isinstance(value, int | float) and not isinstance(value, bool)]
        return len(numbers) == 2 and math.isclose(*numbers, rel_tol=SLACK)
    return type(one) is type(other) and one == other
