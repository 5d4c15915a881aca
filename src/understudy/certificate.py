"""The certificate of a run: a `Statement` in Markdown for people; `certificate_json` writes it for machines, and
`certificate_page` as a web page.

All are made from a `Statement` and the checksums of files alone: what ran, never what was requested, and no figure that
was computed on real rows without noise. The sentences about public facts, which a statement carries, are written here
too.
"""

import datetime
import math
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from understudy._version import __version__
from understudy.audit.record import recorded_audit
from understudy.certificate_json import NOT_COVERED as NOT_COVERED
from understudy.certificate_json import from_json as from_json
from understudy.certificate_json import json_schema as json_schema
from understudy.certificate_json import not_covered as not_covered
from understudy.certificate_json import plan_statement as plan_statement
from understudy.certificate_json import plan_to_json as plan_to_json
from understudy.certificate_json import standalone_epsilon as standalone_epsilon
from understudy.certificate_json import statement_conditions as statement_conditions
from understudy.certificate_json import to_json as to_json
from understudy.certificate_json import write_json_schema as write_json_schema
from understudy.certificate_meaning import as_code, one_in
from understudy.certificate_meaning import statement_meaning as statement_meaning
from understudy.encoding import CategoricalCodec, Codec, describe_rows_per_unit, on_break
from understudy.marginals.measured import measured_section
from understudy.notes import Level, Note
from understudy.privacy.discovery import rows_to_be_listed
from understudy.privacy.events import UnitHistogram
from understudy.privacy.ledger import Plan, PublicFacts, Statement, Strength
from understudy.privacy.rows import PrivateRows
from understudy.privacy.statement import BookEntry, KeptIn
from understudy.privacy.statement import round_up as round_up
from understudy.schema import Column, Schema
from understudy.schema.locations import Location
from understudy.schema.regions import Mask, Sites

NO_CHECKSUMS: Mapping[str, str] = {}

LARGE_FRACTION_LOST = 0.02
"""A category list estimated privately causes a warning if values of this fraction of the rows may be missing."""


# ------------------------------------------------------------------------------------------------------ public facts


def public_facts(
    schema: Schema,
    *,
    file_name: str | None = None,
    types_kept: bool = False,
    public_table: int | None = None,
    kept_in: KeptIn = "memory",
    book: BookEntry | None = None,
) -> PublicFacts:
    """What a run with this schema takes as public. `public_table`: the rows of a public table to start from."""
    return PublicFacts(
        name=schema.name or file_name,
        responsible=schema.responsible,
        contact=schema.contact,
        unit=schema.unit,
        rows_declared=schema.rows,
        public_table=public_table,
        drafted=schema.drafted,
        types_kept=types_kept,
        kept_in=kept_in,
        declared=_declared_facts(schema),
        date=datetime.date.today().isoformat(),
        book=book,
    )


def _declared_facts(schema: Schema) -> tuple[str, ...]:
    """What the schema declares, one sentence for each kind of fact."""
    facts = [] if schema.rows is None else [f"number of rows: {schema.rows:,}"]
    modelled = schema.modelled
    listed = [f"{c.name} ({_extent(c)})" for c in modelled if c.categories is not None]
    located = [place for place in schema.locations if not place.drop]
    numeric = [c for c in modelled if not any(c.name in place.names for place in located)]
    bounded = [f"{c.name} ({c.bounds[0]} to {c.bounds[1]})" for c in numeric if c.bounds is not None]
    points = [place for place in located if place.format != "code"]
    drafted = ", drafted and not declared" if schema.drafted else ""  # a draft has those of its file
    ordered = [
        f"{c.name} (from {c.categories[0]} to {c.categories[-1]})" for c in modelled if c.ordinal and c.categories
    ]
    kept = [c for c in schema.columns if not c.drop]
    groups = {
        "category lists": listed,
        "categories in order": ordered,
        "bounds": bounded,
        "cyclic, so that the upper bound is followed by the lower one": [c.name for c in modelled if c.cyclic],
        "locations": [_place(location) for location in located],
        "parts of dates": [f"{c.name} ({', '.join(c.parts)})" for c in modelled if c.parts],
        "resolution of times": [f"{c.name} ({c.resolution})" for c in modelled if c.resolution],
        f"decimals{drafted}": _decimals(numeric if drafted else [*numeric, *points]),
        "decimals of locations": _decimals(points if drafted else []),
        f"formats{drafted}": [f"{c.name} ({c.format})" for c in modelled if c.format is not None],
        "never null": [c.name for c in modelled if not c.nullable],
        "read as null": [f"{c.name} ({', '.join(map(str, c.missing))})" for c in schema.columns if c.missing],
        "privacy unit, read only to group rows": [schema.unit] if schema.unit else [],
        "one value per unit": [c.name for c in modelled if c.per_unit],
        "replaced by fresh numbers, not modelled": [c.name for c in kept if c.kind == "id"],
        "left out, never read": [
            c.name for c in schema.columns if (c.drop or c.kind == "text") and c.name != schema.unit
        ],
    }
    listed_facts = (_one_line(f"{what}: {', '.join(names)}") for what, names in groups.items() if names)
    return (*facts, *listed_facts, *_rule_facts(schema))


def _decimals(columns: Sequence[Column | Location]) -> list[str]:
    return [f"{each.name} ({each.decimals})" for each in columns if each.decimals is not None]


_ON_BREAK = {"clamp": "was moved to a row that keeps it, or left out if it cannot be", "drop": "was left out"}


def _rule_facts(schema: Schema) -> tuple[str, ...]:
    """The rules, and what happens to real rows that break them, but never how many there were."""
    if not schema.rules:
        return ()
    each = (
        f"rule {number}: {as_code(rule.text)}; a real row that breaks it {_ON_BREAK[on_break(rule, schema)]}"
        for number, rule in enumerate(schema.rules, start=1)
    )
    count = "1 rule" if len(schema.rules) == 1 else f"{len(schema.rules)} rules"
    return (f"{count} that every synthetic row keeps, applied to each row by itself, at no privacy cost", *each)


def _extent(column: Column) -> str:
    """The number of declared categories, and what is added to them."""
    assert column.categories is not None
    assert column.listed is not None
    added = ["other" if value is not None else "null" for value in column.listed[len(column.categories) :]]
    return " and ".join([str(len(column.categories)), *added])


def _place(location: Location) -> str:
    """A location, its columns if they have other names, and its region.

    >>> from understudy.schema.regions import Box
    >>> _place(Location(name="home", region=Box(52.3, 13.0, 52.7, 13.8), latitude="lat", longitude="lon"))
    'home (lat and lon: a point in the box 52.3 to 52.7 north, 13.0 to 13.8 east)'
    """
    region = location.region
    file = next((Path(name).name for key, name in location.source.items() if key != "code"), None)
    where = f"a point in {region.summary}"
    if isinstance(region, Sites):
        site = "zone" if "regions" in location.source else "site"
        where = f"one of {len(region.points):,} {site}s" if len(region.points) > 1 else f"1 {site}"
    if file is not None:
        where += f", from {file}" if isinstance(region, Mask) else f" of {file}"
    columns = f"{' and '.join(location.names)}: " if location.is_pair else ""
    return f"{location.name} ({columns}{where})"


def estimated_facts(schema: Schema, codec: Codec) -> tuple[str, ...]:
    """What the schema leaves open, with the noisy answers, which are free to show."""
    facts = [f"number of rows: about {codec.num_rows:,}"] if schema.rows is None else []
    if codec.rows_per_unit:
        facts.append(f"rows per unit: {describe_rows_per_unit(codec.rows_per_unit)}")
    columns = {column.name: column for column in codec.columns}
    found: dict[str, list[str]] = {"categories": [], "bounds": []}
    for column in codec.reexpression.modelled.modelled:
        if column.estimated is not None:
            label = codec.reexpression.label(column.name)
            found[column.estimated].append(f"{label} ({columns[column.name].extent})")
    return (*facts, *(_one_line(f"{what} of {', '.join(names)}") for what, names in found.items() if names))


def size_warnings(rows: PrivateRows, schema: Schema) -> tuple[str, ...]:
    """A warning if the noisy totals contradict the declared number of rows.

    With a unit column, only some rows of a unit with many are used, so fewer rows than declared are no contradiction.
    """
    warning = rows.totals.warning
    fewer = schema.rows is not None and rows.totals.measured < schema.rows
    return () if warning is None or (schema.unit is not None and fewer) else (warning,)


def estimation_notes(estimation: Plan, codec: Codec) -> tuple[Note, ...]:
    """What was estimated privately and may have lost values, by public facts and noisy answers alone."""
    columns = sorted(codec.columns, key=lambda column: (column.name != codec.schema.target, column.size))
    notes = []
    if "categories" in estimation:
        names, enough = estimation["categories"].columns, rows_to_be_listed(estimation["categories"])
        kept = [
            f"{column.name} {len(column.categories) - 1}"
            for column in columns
            if isinstance(column, CategoricalCodec) and column.name in names
        ]
        text = (
            f"Category lists were estimated privately. Values in fewer than about {enough:,} rows became 'other'; "
            f"values kept: {_some(kept)}. To keep more, declare categories in the schema, from a code book and "
            "not from this table."
        )
        is_loss = enough > LARGE_FRACTION_LOST * codec.num_rows
        notes.append(Note(_one_line(text), Level.WARNING if is_loss else Level.INFO))
    if "bounds" in estimation:
        label = codec.reexpression.label
        cut = [f"{label(c.name)} {c.extent}" for c in columns if c.name in estimation["bounds"].columns]
        text = (
            f"Bounds of numbers and dates were estimated privately: {_some(cut)}. Values outside were clamped. To "
            "set the bounds, declare them in the schema."
        )
        notes.append(Note(_one_line(text)))
    return tuple(notes)


def _some(words: list[str], most: int = 8) -> str:
    return ", ".join(words[:most]) + f" and {len(words) - most} more" * (len(words) > most)


# ---------------------------------------------------------------------------------------------------------- Markdown


def to_markdown(statement: Statement, checksums: Mapping[str, str] = NO_CHECKSUMS) -> str:
    """The certificate for people. `checksums` are the SHA-256 of files of the release, by name."""
    name = statement.facts.name
    title = "# Privacy certificate" if name is None else f"# Privacy certificate: {escape_markdown(name)}"
    facts = [f"{what}: {escape_markdown(value)}" for what, value in head_facts(statement).items()]
    facts += [f"SHA-256 of {escape_markdown(file)}: `{digest}`" for file, digest in checksums.items()]
    about = [_bullets(facts)] if facts else []
    return "\n\n".join([title, *verdict(statement), *about, *sections(statement)]) + "\n"


def head_facts(statement: Statement) -> dict[str, str]:
    """What was released, when and by whom, as far as it is declared."""
    facts = statement.facts
    found = {
        "Data set": facts.name,
        "Date of the run": facts.date,
        "Responsible": facts.responsible,
        "Contact": facts.contact,
        "Budget book": None if facts.book is None else _book_entry(facts.book),
    }
    return {what: value for what, value in found.items() if value is not None}


def _book_entry(entry: BookEntry) -> str:
    return f"{entry.dataset}, entry {entry.number}, hash {entry.digest}"


def sections(statement: Statement) -> list[str]:
    """Everything below the head, as blocks of Markdown."""
    made = f"Made by Understudy {__version__} with the method `{statement.method}`."
    if not math.isfinite(statement.epsilon):  # no one is protected, and no budget was spent
        return [made]
    measured = measured_section(statement.measurements, statement.facts.rows_declared, as_code)
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
    warnings = [f"> **Warning:** {warning}" for warning in statement.warnings]
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
    """e^epsilon for people, rounded up.

    >>> _times(1.0), _times(10.0), _times(50.0)
    ('2.72', '22,100', '10^22')
    """
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
        who = (
            f"The privacy unit is all rows with the same value of {as_code(facts.unit)}. {_used(statement)} "
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


def _used(statement: Statement) -> str:
    most = statement.max_rows_per_unit
    used = "Only one row of each unit was" if most == 1 else f"At most {most:,} rows of each unit were"
    return f"{used} used."


def _public(facts: PublicFacts) -> list[str]:
    types = " and storage types" if facts.drafted or facts.types_kept else ""
    opening = "The data steward declared public:"
    if facts.graph_unit is None:
        names = f"Column names{',' if types else ' and'} kinds{types}."
        opening = f"{names} The data steward also declared public:"
    lines = [
        "## What was taken as public",
        opening,
        _bullets(facts.declared or ["nothing else"]),
    ]
    if facts.estimated:
        lines += ["Estimated privately, within the budget:", _bullets(facts.estimated)]
    return lines


def _queries(statement: Statement) -> list[str]:
    rows = ["| query | mechanism | standalone epsilon | added delta |", "|---|---|---:|---:|"]
    for query in statement.queries:
        alone = standalone_epsilon(query, statement)
        figure = round_up(alone, 3) if math.isfinite(alone) else "infinite"
        added = round_up(query.delta, 2) if query.delta else ""
        label = query.label if query.partition is None else f"{query.label} ({query.partition} only)"
        cell = label.replace("|", "\\|")
        rows.append(f"| {cell} | {query.event.describe()} | {figure} | {added} |")
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


def _accuracy(statement: Statement) -> list[str]:
    return ["## How accurate the answers are", _bullets(statement.accuracy)] if statement.accuracy else []


def _accounting(statement: Statement) -> list[str]:
    figures = {
        "by privacy-loss distribution": statement.epsilon_pld,
        "by Renyi (zCDP)": statement.epsilon_rdp,
    }
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
    found = recorded_audit(statement.method)
    if found is None:
        return []
    return [
        "## How the software was attacked",
        f"{found.joint_sentence} ({found.date}.) This is a property of the software, not of this release. An audit can "
        "refute a claim but not prove one.",
        f"To repeat it: `{found.command}`",
    ]


def _one_line(sentence: str) -> str:
    """Names may hold line breaks; a sentence may not."""
    return " ".join(sentence.split())


def _bullets(lines: Sequence[str]) -> str:
    return "\n".join(f"- {_one_line(line)}" for line in lines)


def escape_markdown(text: str) -> str:
    """Text that Markdown shows as it is."""
    return re.sub(r"([\\`*\[\]<>|&#~]|(?<!\w)_|_(?!\w))", r"\\\1", _one_line(text))
