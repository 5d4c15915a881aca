"""The certificate of a run in Markdown, for people."""

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from understudy._version import __version__
from understudy.certificate.audit_section import recorded_audit
from understudy.certificate.facts import one_line
from understudy.certificate.json import not_covered, standalone_epsilon, statement_conditions
from understudy.certificate.meaning import as_code, one_in, statement_meaning
from understudy.privacy.accounting.events import UnitHistogram
from understudy.privacy.accounting.ledger import PublicFacts, Statement, Strength
from understudy.privacy.accounting.marginal_noise import MeasuredMarginal
from understudy.privacy.accounting.statement import round_up

NO_CHECKSUMS: Mapping[str, str] = {}
MAX_LINES = 40
"""The largest number of marginals in the table; certificate.json lists all."""
EXPLANATION = (
    "Every marginal that was counted with noise, and the standard deviation of the noise in each of its cells. For a "
    "marginal that was measured several times, it is that of the weighted average. Noisy errors and selections, by "
    "which a method chooses what to measure, are part of its queries and are not listed."
)

# ---------------------------------------------------------------------------------------------------------- Markdown


def to_markdown(statement: Statement, checksums: Mapping[str, str] = NO_CHECKSUMS) -> str:
    """The certificate for people. `checksums` are the SHA-256 of files of the release, by name."""
    name = statement.facts.name
    title = "# Privacy certificate" if name is None else f"# Privacy certificate: {escape_markdown(name)}"
    facts = [f"{what}: {escape_markdown(value)}" for what, value in head_facts(statement).items()]
    facts += [f"SHA-256 of {escape_markdown(file)}: {as_code(digest)}" for file, digest in checksums.items()]
    about = [_bullets(facts)] if facts else []
    return "\n\n".join([title, *verdict(statement), *about, *sections(statement)]) + "\n"


def head_facts(statement: Statement) -> dict[str, str]:
    """What was released, when and by whom, as far as it is declared."""
    facts, book = statement.facts, statement.facts.book
    found = {
        "Data set": facts.name,
        "Date of the run": facts.date,
        "Responsible": facts.responsible,
        "Contact": facts.contact,
        "Budget book": None if book is None else f"{book.dataset}, entry {book.number}, hash {book.digest}",
    }
    return {what: value for what, value in found.items() if value is not None}


def sections(statement: Statement) -> list[str]:
    """Everything below the head, as blocks of Markdown."""
    made = f"Made by Understudy {__version__} with the method {as_code(statement.method)}."
    if not math.isfinite(statement.epsilon):  # no one is protected, and no budget was spent
        return [made]
    measured = measured_section(statement.measurements, statement.facts.rows_declared)
    meaning = statement_meaning(statement)
    learned = [] if meaning is None else meaning.sections()
    parts = [*_protected(statement), *learned, *_public(statement.facts), *_queries(statement), *measured]
    covered = [*_accuracy(statement), *_accounting(statement), *_audit(statement)]
    return [*parts, *covered, "## What this guarantee does not cover", _bullets(not_covered(statement.facts)), made]


def verdict(statement: Statement, *, with_figures: bool = True) -> list[str]:
    """What is guaranteed, in a few blocks of Markdown, or that nothing is. The page shows the figures by itself."""
    if not math.isfinite(statement.epsilon):
        return [_not_private(statement.facts)]
    return [*_graph_scope(statement.facts), *_guaranteed(statement, with_figures=with_figures)]


def _not_private(facts: PublicFacts) -> str:
    used, like = ("rows were", "original table") if facts.graph_unit is None else ("edges were", "real graph")
    return (
        f"> **NOT PRIVATE.** Real {used} used without noise, or without a bound on their effect: epsilon is infinite, "
        f"and there is no guarantee. Treat this release like the {like}."
    )


def _graph_scope(facts: PublicFacts) -> list[str]:
    """The first thing to know about the release of a graph; nothing for a table."""
    if facts.graph_unit is None:
        return []
    protected = {"edge": "one edge", "node": "all edges of one node"}[facts.graph_unit]
    return [
        "> **Nodes are public.** The list of nodes and the attributes of nodes are not protected. What is protected "
        f"is {protected}."
    ]


def _guaranteed(statement: Statement, *, with_figures: bool) -> list[str]:
    """The same for tables and graphs alike, where epsilon is finite."""
    delta = round_up(statement.delta, 2)
    headline = (
        f"**epsilon = {round_up(statement.epsilon, 4)}, delta = {delta}** "
        f"(requested: epsilon at most {statement.epsilon_target:g})"
    )
    conditions = [f"> **Condition:** {condition}" for condition in statement_conditions(statement.facts)]
    warnings = [f"> **Warning:** {escape_sentence(warning)}" for warning in statement.warnings]
    if not statement.released:
        return [*_failed(statement, headline), *conditions]
    if statement.seeded:
        return [
            "> **SEEDED: NOT PRIVATE.** The noise of this run came from a fixed seed. Anyone who knows or guesses the "
            "seed can subtract it. Use such a run for tests and for public data only.",
            f"If the noise had been secret, the guarantee would be: {headline}.",
            *warnings,
        ]
    return [
        *([headline] if with_figures else []),
        *_meaning(statement, named=with_figures),
        *conditions,
        *warnings,
        _released(statement.facts),
    ]


def _released(facts: PublicFacts) -> str:
    """What was computed under the guarantee."""
    if facts.selections_only:
        return (
            "The weights of the generated rows were computed under differential privacy. Anything computed from the "
            "weights, the generated rows and the discriminators has no further privacy cost."
        )
    return (
        "Everything in this release was computed under differential privacy. Anything computed from the release alone, "
        f"such as more synthetic {'rows' if facts.graph_unit is None else 'graphs'}, is covered too and has no further "
        "privacy cost."
    )


_MEANINGS = {
    Strength.STRONG: "What anyone can learn from this release is almost the same whether or not {presence}",
    Strength.MODERATE: "What anyone can learn from this release depends somewhat on whether {presence}",
    Strength.LIMITED: "What anyone can learn from this release may depend considerably on whether {presence}",
    Strength.WEAK: "What anyone can learn from this release may depend strongly on whether {presence}",
}


def _meaning(statement: Statement, *, named: bool) -> list[str]:
    """What the guarantee means: for every reader, then its definition, `named` with the word for its strength."""
    assert statement.strength is not None
    facts, word = statement.facts, statement.strength
    unit = "row" if facts.unit is None else f"unit (all rows with the same value of {as_code(facts.unit)})"
    is_sized = facts.rows_declared is not None
    presence = f"the values of a given {unit} were in the table" if is_sized else f"a given {unit} was in the table"
    presence = {
        None: presence,
        "edge": "a given edge was in the graph",
        "node": "the edges of a given node were in the graph",
    }[facts.graph_unit]
    called = "This is a weak guarantee." if word is Strength.WEAK else f"{word.value.capitalize()} guarantee."
    name = f"**{called}** " if named else ""
    meaning = (
        f"{name}{_MEANINGS[word].format(presence=presence)}: the probability of any outcome changes by at most "
        f"a factor of {_times(statement.epsilon)}, apart from an added probability of at most "
        f"{one_in(statement.delta)} (delta). The strength depends on epsilon alone: up to 1 strong, up to 3 "
        "moderate, up to 10 limited, above 10 weak."
    )
    size = (
        "The number of rows is public, so the guarantee hides the values of one "
        f"{'row' if facts.unit is None else 'unit'}, not the number of rows."
    )
    found = statement_meaning(statement)
    assert found is not None, "a release with a strength is private"
    return [*found.sentences, meaning, *([size] if is_sized else [])]


def _times(epsilon: float) -> str:
    """e^epsilon for people, rounded up."""
    factor = math.exp(epsilon)
    if factor >= 1e9:
        return f"10^{math.ceil(epsilon / math.log(10))}"
    up = float(round_up(factor, 3))
    return f"{up:,.0f}" if up >= 1000 else f"{up:g}"


def _failed(statement: Statement, headline: str) -> list[str]:
    seeded = " Its noise came from a fixed seed, so the figures below do not hold." if statement.seeded else ""
    return [
        "> **SPENT, NOTHING RELEASED.** This run failed after its first query, and nothing was released. Its whole "
        f"planned privacy cost counts as spent.{seeded}",
        headline,
        "Add these figures to those of all other releases made from data of the same people. A new run spends a budget "
        "of its own.",
    ]


def _protected(statement: Statement) -> list[str]:
    facts = statement.facts
    who = "The privacy unit is one row. A person with several rows is protected less: each row is protected separately."
    if facts.unit is not None:
        most = statement.max_rows_per_unit
        used = "Only one row of each unit was" if most == 1 else f"At most {most:,} rows of each unit were"
        who = (
            f"The privacy unit is all rows with the same value of {as_code(facts.unit)}. {used} used. "
            "Further rows, and rows with no value in that column, were left out."
        )
        if any(isinstance(query.event, UnitHistogram) for query in statement.queries):
            who += (
                " The number of rows of a synthetic unit is sampled from a noisy histogram of rows per unit; its rows "
                "are independent of each other, given the columns with one value per unit."
            )
    if facts.graph_unit is not None:
        who = _GRAPH_UNITS[facts.graph_unit]
    relation = "Neighbouring tables differ by adding or removing one unit. The number of rows is protected as well."
    if facts.rows_declared is not None:
        relation = (
            f"The number of rows ({facts.rows_declared:,}) was declared public, so this is a zero-out guarantee: "
            "neighbouring tables have the same number of rows, and in one of them no query takes the rows of one unit "
            "into account."
        )
    if facts.graph_unit is not None:
        relation = _GRAPH_RELATIONS[facts.graph_unit]
    epsilon, delta = statement.replace_one
    would_be = "would be" if statement.seeded else "is"
    replaced = (
        "Under the definition in which one unit is replaced by another (one removal and one addition), the "
        f"guarantee {would_be} epsilon {round_up(epsilon, 4)} and delta {round_up(delta, 2)}."
    )
    return [f"## Who {would_be} protected", f"{who} {relation}", replaced]


_GRAPH_UNITS = {
    "edge": "The privacy unit is one edge: all rows that name the same two nodes. A person with several edges is "
    "protected less: each edge is protected separately, and how many edges a node has may be learned approximately.",
    "node": "The privacy unit is all edges of one node. Edges beyond the declared cap on degrees were left out.",
}
_GRAPH_RELATIONS = {
    "edge": "Neighbouring graphs have the same nodes and differ by adding or removing one edge. The number of edges is "
    "protected as well.",
    "node": "Neighbouring graphs have the same nodes, and in one of them one node has no edges. The number of edges is "
    "protected as well; whether a node exists is not.",
}


def _public(facts: PublicFacts) -> list[str]:
    types = " and storage types" if facts.drafted or facts.types_kept else ""
    opening = "The data steward declared public:"
    if facts.graph_unit is None:
        names = f"Column names{',' if types else ' and'} kinds{types}."
        opening = f"{names} The data steward also declared public:"
    lines = ["## What was taken as public", opening, _bullets(map(escape_sentence, facts.declared or ["nothing else"]))]
    if facts.estimated:
        lines += ["Estimated privately, within the budget:", _bullets(map(escape_sentence, facts.estimated))]
    return lines


def _queries(statement: Statement) -> list[str]:
    rows = ["| query | mechanism | standalone epsilon | added delta |", "|---|---|---:|---:|"]
    for query in statement.queries:
        alone = standalone_epsilon(query, statement)
        figure = round_up(alone, 3) if math.isfinite(alone) else "infinite"
        added = round_up(query.delta, 2) if query.delta else ""
        label = query.label if query.partition is None else f"{query.label} ({query.partition} only)"
        rows.append(f"| {escape_markdown(label)} | {query.event.describe()} | {figure} | {added} |")
    explanation = (
        "Every query on the private rows, in order. The standalone epsilon is what the query would cost if it were the "
        "only one. These figures do not add up: composed, the queries cost the epsilon at the top of this page."
    )
    if not statement.released:
        explanation = (
            "Every planned query, in order. The run failed before it was complete, so the last queries may not "
            "have been made; they count all the same. Composed, they cost the epsilon at the top of this page."
        )
    if any(query.partition is not None for query in statement.queries):
        explanation += (
            " Units are partitioned at random, so queries on different partitions compose in parallel: the total is "
            "that of the most expensive partition together with all queries on all units."
        )
    return ["## Where the budget went", explanation, "\n".join(rows)]


class CombinedMarginal(NamedTuple):
    """All measurements of one marginal, combined."""

    columns: tuple[str, ...]
    cells: int
    partition: str | None
    times: int
    stddev: float
    """Of the average of the measurements, weighted by inverse variance."""


def combine_measurements(measurements: Sequence[MeasuredMarginal]) -> list[CombinedMarginal]:
    """One entry for each marginal, in the order of their first measurement. Precisions (1 / variance) add up."""
    groups: dict[tuple[Any, ...], list[MeasuredMarginal]] = {}
    for marginal in measurements:
        groups.setdefault((frozenset(marginal.columns), marginal.cells, marginal.partition), []).append(marginal)
    return [
        CombinedMarginal(same[0].columns, same[0].cells, same[0].partition, len(same), _combined_stddev(same))
        for same in groups.values()
    ]


def _combined_stddev(same: Sequence[MeasuredMarginal]) -> float:
    if any(each.stddev == 0 for each in same):
        return 0.0
    return 1 / math.sqrt(math.fsum(each.stddev**-2 for each in same))


def measured_section(measurements: Sequence[MeasuredMarginal], num_rows: int | None) -> list[str]:
    """A table, cut if it is long, with percentages if the number of rows is public; empty if nothing was measured."""
    if not measurements:
        return []
    marginals = combine_measurements(measurements)
    head = ["columns", "cells", "times", "noise (rows)", *(["% of all rows"] if num_rows else [])]
    rows = [f"| {' | '.join(head)} |", "|---|" + "---:|" * (len(head) - 1)]
    for marginal in marginals[:MAX_LINES]:
        names = ", ".join(map(as_code, marginal.columns)).replace("|", "\\|") or "number of rows"
        part = "" if marginal.partition is None else f" ({as_code(marginal.partition)} only)"
        noise = [f"{marginal.stddev:.3g}", *([f"{100 * marginal.stddev / num_rows:.2g}"] if num_rows else [])]
        rows.append(f"| {names}{part} | {marginal.cells:,} | {marginal.times} | {' | '.join(noise)} |")
    rest = len(marginals) - MAX_LINES
    more = [f"And {rest:,} more in certificate.json."] if rest > 0 else []
    return ["## Which marginals were measured", EXPLANATION, "\n".join(rows), *more]


def _accuracy(statement: Statement) -> list[str]:
    return (
        ["## How accurate the answers are", _bullets(map(escape_sentence, statement.accuracy))]
        if statement.accuracy
        else []
    )


def _accounting(statement: Statement) -> list[str]:
    figures = {"by privacy-loss distribution": statement.epsilon_pld, "by Renyi (zCDP)": statement.epsilon_rdp}
    listed = "; ".join(
        f"{name}: {round_up(figure, 4)}"
        if math.isfinite(figure)
        else f"{name}: no figure (it cannot account for one of the queries)"
        for name, figure in figures.items()
    )
    return [
        "## How the total was computed",
        f"Two accountants computed epsilon at delta {round_up(statement.delta, 2)}. Both figures are upper bounds, so "
        f"the smaller one {'would be' if statement.seeded else 'is'} the guarantee. Epsilon {listed}.",
        *_pure(statement),
    ]


def _pure(statement: Statement) -> list[str]:
    """The same run at delta 0, where every query has a cost there."""
    pure = statement.pure_epsilon
    if pure is None:
        return []
    held = "would also hold" if statement.seeded else "also holds"
    return [
        f"Every query of this run is pure: the guarantee {held} with epsilon {round_up(pure, 4)} at delta 0, the sum "
        "of their costs."
    ]


def _audit(statement: Statement) -> list[str]:
    """How this version of the method was attacked: about the software, so it reads nothing of this run."""
    audit = recorded_audit(statement.method)
    if audit is None:
        return []
    return [
        "## How the software was attacked",
        f"{audit.joint_sentence} ({audit.date}.) This is a property of the software, not of this release. An audit can "
        "refute a claim but not prove one.",
        f"To repeat it: `{audit.command}`",
    ]


def _bullets(lines: Iterable[str]) -> str:
    return "\n".join(f"- {one_line(line)}" for line in lines)


def escape_markdown(text: str) -> str:
    """Text that Markdown shows as it is."""
    return _MARKS.sub(r"\\\1", one_line(text))


_MARKS = re.compile(r"([\\`*\[\]<>|&#~$]|(?<!\w)_|_(?!\w))")
_CODE = re.compile(r"(?<!`)(`[^`]+`)(?!`)")


def escape_sentence(text: str) -> str:
    """The same for a sentence with names of columns and with code, which stays code."""
    parts = enumerate(_CODE.split(one_line(text)))
    return "".join(part if at % 2 else _MARKS.sub(r"\\\1", part) for at, part in parts)
