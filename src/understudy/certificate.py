"""The certificate of a run: a `Statement` in Markdown for people and in JSON for machines.

Both are made from a `Statement` alone: what ran, never what was requested, and no figure that was computed on real rows
without noise. The sentences about public facts, which a statement carries, are written here too.
"""

import dataclasses
import decimal
import importlib.resources
import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path

from understudy._version import __version__
from understudy.encoding import CategoricalCodec, Codec, describe_rows_per_unit
from understudy.marginals.measured import measured_from_json, measured_section, measured_to_json
from understudy.notes import Level, Note
from understudy.privacy.accounting import Spent, grid_for, spent
from understudy.privacy.discovery import rows_to_be_listed
from understudy.privacy.events import EVENTS, UnitHistogram, event_from_json
from understudy.privacy.ledger import Guarantee, Plan, PublicFacts, Query, Statement
from understudy.privacy.rows import PrivateRows
from understudy.run.atomic import json_bytes
from understudy.schema import Schema

FORMAT = "understudy-certificate"
FORMAT_VERSION = 2
SCHEMA_FILE = "certificate.schema.json"

NOT_COVERED = (
    "Other releases made from data of the same people. Privacy costs add up: keep a record of all of them.",
    "Facts taken as public: the names and kinds of columns, and the facts listed above. A declared list or bound that "
    "was itself read from the private table is outside this guarantee.",
    "Scores, plots and reports that compare the synthetic table with the real one. They show statistics of real rows.",
    "Decisions that a person made after seeing real rows, such as trying several settings and keeping the best.",
    "What can be observed on the machine: running time, memory use and files, and whether a run fails because "
    "memory runs out or a numerical minimum is not reached.",
    "Anyone who obtains the secret of the run. All noise is expanded from 256 random bits of the operating "
    "system, and whoever has these bits can subtract it. No release contains them. A checkpoint contains them "
    "until the run has finished, so keep that folder private. (SHAKE-256 expands the secret into the noise of "
    "counts, votes and selections, and into 64-bit Threefry keys for the noise of trained networks.)",
    "The low-order bits of floating-point numbers: of the scores that a private selection compares, and of the noise "
    "added to trained networks. The sums of gradients to which that noise is added are covered, including their "
    "rounding. Counts, votes of teachers among them, have exact discrete noise and are covered in full.",
)

LARGE_FRACTION_LOST = 0.02
"""A category list estimated privately causes a warning if values of this fraction of the rows may be missing."""


# ------------------------------------------------------------------------------------------------------ public facts


def public_facts(schema: Schema, *, types_kept: bool = False, public_table: int | None = None) -> PublicFacts:
    """What a run with this schema takes as public. `public_table`: the rows of a public table to start from."""
    return PublicFacts(
        unit=schema.unit,
        rows_declared=schema.rows,
        public_table=public_table,
        drafted=schema.drafted,
        types_kept=types_kept,
        declared=_declared_facts(schema),
    )


def _declared_facts(schema: Schema) -> tuple[str, ...]:
    """What the schema declares, one sentence for each kind of fact."""
    facts = [] if schema.rows is None else [f"number of rows: {schema.rows:,}"]
    modelled = schema.modelled
    listed = [f"{c.name} ({len(c.categories)})" for c in modelled if c.categories is not None]
    bounded = [f"{c.name} ({c.bounds[0]} to {c.bounds[1]})" for c in modelled if c.bounds is not None]
    kept = [c for c in schema.columns if not c.drop]
    groups = {
        "category lists": listed,
        "bounds": bounded,
        "decimals": [f"{c.name} ({c.decimals})" for c in modelled if c.decimals is not None],
        "formats": [f"{c.name} ({c.format})" for c in modelled if c.format is not None],
        "never null": [c.name for c in modelled if not c.nullable],
        "privacy unit, read only to group rows": [schema.unit] if schema.unit else [],
        "one value per unit": [c.name for c in modelled if c.per_unit],
        "replaced by fresh numbers, not modelled": [c.name for c in kept if c.kind == "id"],
        "left out, never read": [
            c.name for c in schema.columns if (c.drop or c.kind == "text") and c.name != schema.unit
        ],
    }
    return (*facts, *(_one_line(f"{what}: {', '.join(names)}") for what, names in groups.items() if names))


def estimated_facts(schema: Schema, codec: Codec) -> tuple[str, ...]:
    """What the schema leaves open, with the noisy answers, which are free to show."""
    facts = [f"number of rows: about {codec.num_rows:,}"] if schema.rows is None else []
    if codec.rows_per_unit:
        facts.append(f"rows per unit: {describe_rows_per_unit(codec.rows_per_unit)}")
    columns = {column.name: column for column in codec.columns}
    found: dict[str, list[str]] = {"categories": [], "bounds": []}
    for column in schema.modelled:
        if column.estimated is not None:
            found[column.estimated].append(f"{column.name} ({columns[column.name].extent})")
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
        cut = [f"{column.name} {column.extent}" for column in columns if column.name in estimation["bounds"].columns]
        text = (
            f"Bounds of numbers and dates were estimated privately: {_some(cut)}. Values outside were clamped. To "
            "set the bounds, declare them in the schema."
        )
        notes.append(Note(_one_line(text)))
    return tuple(notes)


def _some(words: list[str], most: int = 8) -> str:
    return ", ".join(words[:most]) + f" and {len(words) - most} more" * (len(words) > most)


def to_json(statement: Statement) -> dict[str, object]:
    """The certificate for machines; `docs/certificate.md` explains each field. Infinity is written as null."""
    facts = statement.facts
    replace_epsilon, replace_delta = statement.replace_one
    return {
        "format": FORMAT,
        "format_version": FORMAT_VERSION,
        "understudy_version": __version__,
        "private": statement.is_private,
        "seeded": statement.seeded,
        "released": statement.released,
        "conditions": statement_conditions(facts),
        "warnings": list(statement.warnings),
        "method": statement.method,
        "guarantee": {
            "epsilon": _finite(statement.epsilon),
            "delta": statement.delta,
            "epsilon_target": _finite(statement.epsilon_target),
            "adjacency": "zero-out one unit" if facts.rows_declared is not None else "add or remove one unit",
            "unit": {"column": facts.unit, "max_rows": statement.max_rows_per_unit},
            "accountant": statement.accountant,
            "epsilon_pld": _finite(statement.epsilon_pld),
            "epsilon_rdp": _finite(statement.epsilon_rdp),
            "replace_one": {"epsilon": _finite(replace_epsilon), "delta": replace_delta},
        },
        "public": {
            "rows": facts.rows_declared,
            "kinds_drafted": facts.drafted,
            "storage_types_kept": facts.types_kept,
            "table_rows": facts.public_table,
            "declared": list(facts.declared),
        },
        "estimated": list(facts.estimated),
        "queries": [_query_to_json(query, statement) for query in statement.queries],
        "measured_marginals": [measured_to_json(each) for each in statement.measurements],
        "not_covered": list(NOT_COVERED),
    }


def from_json(content: Mapping) -> Statement:
    """The statement that a certificate was made from."""
    if content["format_version"] != FORMAT_VERSION:
        raise ValueError(f"certificate format {content['format_version']}, expected {FORMAT_VERSION}")
    guarantee, public = content["guarantee"], content["public"]
    return Statement(
        epsilon_target=_number(guarantee["epsilon_target"]),
        delta=guarantee["delta"],
        epsilon=_number(guarantee["epsilon"]),
        epsilon_pld=_number(guarantee["epsilon_pld"]),
        epsilon_rdp=_number(guarantee["epsilon_rdp"]),
        accountant=guarantee["accountant"],
        seeded=content["seeded"],
        max_rows_per_unit=guarantee["unit"]["max_rows"],
        queries=tuple(_query_from_json(query) for query in content["queries"]),
        measurements=tuple(measured_from_json(each) for each in content.get("measured_marginals", ())),
        facts=PublicFacts(
            unit=guarantee["unit"]["column"],
            rows_declared=public["rows"],
            public_table=public["table_rows"],
            drafted=public["kinds_drafted"],
            types_kept=public["storage_types_kept"],
            declared=tuple(public["declared"]),
            estimated=tuple(content["estimated"]),
        ),
        warnings=tuple(content["warnings"]),
        method=content["method"],
        released=content["released"],
    )


def to_files(statement: Statement) -> dict[str, bytes]:
    """The certificate as two files, by name."""
    return {"certificate.json": json_bytes(to_json(statement)), "CERTIFICATE.md": to_markdown(statement).encode()}


def plan_statement(plan: Plan, guarantee: Guarantee, spent: Spent) -> Statement:
    """The statement that a run of this plan would end with, as far as a plan can know."""
    assert guarantee.delta is not None
    return Statement(
        epsilon_target=guarantee.epsilon,
        delta=guarantee.delta,
        epsilon=spent.epsilon,
        epsilon_pld=spent.pld,
        epsilon_rdp=spent.rdp,
        accountant=spent.accountant,
        seeded=False,
        max_rows_per_unit=1,  # no cost depends on it: each event carries its own
        queries=plan.queries,
    )


def plan_to_json(plan: Plan, statement: Statement) -> dict[str, object]:
    """A plan for machines: the same queries as in the certificate of the run."""
    return {
        "format": "understudy-plan",
        "format_version": FORMAT_VERSION,
        "understudy_version": __version__,
        "epsilon": _finite(statement.epsilon),
        "epsilon_target": _finite(statement.epsilon_target),
        "delta": statement.delta,
        "queries": [_query_to_json(query, statement) for query in plan],
        "expected": [dataclasses.asdict(each) for each in plan.expected],
        "notes": [note.to_json() for note in plan.notes],
    }


def _query_to_json(query: Query, statement: Statement) -> dict[str, object]:
    return {
        "key": query.key,
        "what": query.what,
        "path": list(query.path),
        "columns": list(query.columns),
        "event": query.event.to_json(),
        "delta": query.delta,
        "tail_delta": query.event.tail_delta,
        "partition": query.partition,
        "standalone_epsilon": _finite(standalone_epsilon(query, statement)),
    }


def _query_from_json(content: Mapping) -> Query:
    return Query(
        content["key"],
        content["what"],
        event_from_json(content["event"]),
        tuple(content["columns"]),
        content["delta"],
        tuple(content["path"]),
        content["partition"],
    )


def standalone_epsilon(query: Query, statement: Statement) -> float:
    """Epsilon of one query if it were the only one, at the run's delta."""
    if not math.isfinite(statement.epsilon_target):
        return math.inf
    grid = grid_for(statement.epsilon_target)
    return spent([query.event], statement.delta - query.delta, grid=grid).epsilon


def json_schema() -> dict[str, object]:
    """The JSON schema of certificate.json: the published file, with the events as their classes describe them."""
    schema = json.loads(importlib.resources.files("understudy").joinpath(SCHEMA_FILE).read_text(encoding="utf-8"))
    schema["$defs"]["event"]["oneOf"] = [cls.json_schema() for cls in EVENTS.values()]
    return schema


def write_json_schema() -> None:
    """Publishes `json_schema` after an event was added or changed."""
    (Path(__file__).parent / SCHEMA_FILE).write_bytes(json_bytes(json_schema()))


# ---------------------------------------------------------------------------------------------------------- Markdown


def to_markdown(statement: Statement) -> str:
    """The certificate for people."""
    made = f"Made by Understudy {__version__} with the method `{statement.method}`."
    if not math.isfinite(statement.epsilon):  # no one is protected, and no budget was spent
        return "\n\n".join(["# Privacy certificate", *_verdict(statement), made]) + "\n"
    parts = ["# Privacy certificate", *_verdict(statement), *_protected(statement), *_public(statement.facts)]
    measured = measured_section(statement.measurements, statement.facts.rows_declared, _code)
    parts += [*_queries(statement), *measured, *_accounting(statement), "## What this guarantee does not cover"]
    return "\n\n".join([*parts, _bullets(NOT_COVERED), made]) + "\n"


def _verdict(statement: Statement) -> list[str]:
    if not math.isfinite(statement.epsilon):
        return [
            "> **NOT PRIVATE.** Real rows were used without noise, or without a bound on their effect: epsilon "
            "is infinite, and there is no guarantee. Treat this release like the original table.",
        ]
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
        headline,
        *conditions,
        *warnings,
        "Everything in this release was computed under differential privacy. Whether or not any one "
        f"{_unit_word(statement.facts)} is in the original table, the probability of any outcome is nearly the "
        f"same: it changes by at most a factor of e^epsilon = {round_up(math.exp(statement.epsilon), 3)}, plus "
        f"delta = {delta}. Anything computed from the release alone, such as more synthetic rows, is covered too "
        "and has no further privacy cost.",
    ]


def _failed(statement: Statement, headline: str) -> list[str]:
    seeded = " Its noise came from a fixed seed, so the figures below do not hold." if statement.seeded else ""
    return [
        "> **SPENT, NOTHING RELEASED.** This run failed after its first query, and nothing was released. Its whole "
        f"planned privacy cost counts as spent.{seeded}",
        headline,
        "Add these figures to those of all other releases made from data of the same people. A new run spends a budget "
        "of its own.",
    ]


def statement_conditions(facts: PublicFacts) -> list[str]:
    """What the guarantee assumes beyond the declarations of a person; empty for a declared schema."""
    conditions = []
    if facts.public_table is not None:
        conditions.append(
            f"training started from a table of {facts.public_table:,} rows that the maker of this release "
            "declared public. The people in that table are not protected. If it contains rows of the private "
            "table, those rows are not protected either."
        )
    if facts.types_kept and not facts.drafted:
        conditions.append(
            "the storage types of the source are taken as public (keep_types). Many tools derive them from the "
            "values, so one row can change them. Without this setting, types follow from the declared kinds."
        )
    if facts.drafted:
        conditions.append(
            "the kinds and storage types of the columns, and the format of dates, numbers and booleans, were "
            "drafted from the table and not declared by a person. They depend on its values, even if the source "
            "has types (tools derive those from the values), so one row can change them. Declare a schema to "
            "remove this condition."
        )
    return conditions


def round_up(value: float, digits: int) -> str:
    """The figure with this many significant digits, rounded up: a guarantee must not be rounded down."""
    if value <= 0 or not math.isfinite(value):
        return f"{value:g}"
    exact = decimal.Decimal(value)
    step = decimal.Decimal(1).scaleb(exact.adjusted() - digits + 1)
    up = exact.quantize(step, rounding=decimal.ROUND_CEILING)
    # 1.2e-06 as a float is a hair above its decimal digits: what was meant by them counts as itself.
    near = decimal.Decimal(f"{value:.{digits - 1}e}")
    return f"{float(near if abs(near - exact) <= exact * decimal.Decimal('1e-12') else up):.{digits}g}"


def _unit_word(facts: PublicFacts) -> str:
    return "row" if facts.unit is None else f"unit (all rows with the same value of {_code(facts.unit)})"


def _protected(statement: Statement) -> list[str]:
    facts = statement.facts
    who = "The privacy unit is one row. A person with several rows is protected less: each row is protected separately."
    if facts.unit is not None:
        who = (
            f"The privacy unit is all rows with the same value of {_code(facts.unit)}. At most "
            f"{statement.max_rows_per_unit} row(s) of each unit were used, the first ones in the table. Further rows, "
            "and rows without a value there, were left out."
        )
        if any(isinstance(query.event, UnitHistogram) for query in statement.queries):
            who += (
                " The number of rows of a synthetic unit is drawn from a noisy histogram of rows per unit; its rows "
                "are independent of each other, given the columns with one value per unit."
            )
    relation = "Neighbouring tables differ by adding or removing one unit. The number of rows is protected as well."
    if facts.rows_declared is not None:
        relation = (
            f"The number of rows ({facts.rows_declared:,}) was declared public, so this is a zero-out guarantee: "
            "neighbouring tables have the same number of rows, and in one of them the rows of one unit count as absent."
        )
    epsilon, delta = statement.replace_one
    replaced = (
        "Under the definition in which one unit is replaced by another (one removal and one addition), the "
        f"guarantee is epsilon {round_up(epsilon, 4)} and delta {round_up(delta, 2)}."
    )
    return ["## Who is protected", f"{who} {relation}", replaced]


def _public(facts: PublicFacts) -> list[str]:
    types = " and storage types" if facts.drafted or facts.types_kept else ""
    lines = [
        "## What was taken as public",
        f"Column names{',' if types else ' and'} kinds{types}. The maker of this release also declared public:",
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


def _accounting(statement: Statement) -> list[str]:
    figures = {"privacy-loss distribution": statement.epsilon_pld, "Renyi (zCDP)": statement.epsilon_rdp}
    listed = "; ".join(
        f"{name}: {round_up(figure, 4)}"
        if math.isfinite(figure)
        else f"{name}: no figure (it cannot account for one of the queries)"
        for name, figure in figures.items()
    )
    return [
        "## How it was added up",
        f"Two accountants computed epsilon at delta {round_up(statement.delta, 2)}. Both figures are upper bounds, so "
        f"the smaller one holds. {listed}.",
    ]


def _one_line(sentence: str) -> str:
    """Names may hold line breaks; a sentence may not."""
    return " ".join(sentence.split())


def _bullets(lines: Sequence[str]) -> str:
    return "\n".join(f"- {_one_line(line)}" for line in lines)


def _code(name: str) -> str:
    """A column's name as code, whatever it holds."""
    plain = _one_line(name).replace("`", "'")
    return f"`{plain}`"


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _number(value: float | None) -> float:
    return math.inf if value is None else value
