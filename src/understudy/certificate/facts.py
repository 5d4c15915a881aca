"""Sentences about what a run took as public and what it estimated privately: a `Statement` carries them."""

import datetime
from collections.abc import Sequence
from pathlib import Path

from understudy.certificate.meaning import as_code
from understudy.encoding import CategoricalCodec, Codec, describe_rows_per_unit, on_break
from understudy.notes import Level, Note
from understudy.privacy.accounting.ledger import Plan, PublicFacts
from understudy.privacy.accounting.statement import KeptIn
from understudy.privacy.mechanisms.discovery import rows_to_be_listed
from understudy.privacy.rows.rows import PrivateRows
from understudy.schema import Column, Schema
from understudy.schema.locations import Location
from understudy.schema.regions import Mask, Sites

LARGE_FRACTION_LOST = 0.02
"""A category list estimated privately causes a warning if values of this fraction of the rows may be missing."""


def public_facts(
    schema: Schema,
    *,
    file_name: str | None = None,
    types_kept: bool = False,
    public_table: int | None = None,
    kept_in: KeptIn = "memory",
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
    listed_facts = (one_line(f"{what}: {', '.join(names)}") for what, names in groups.items() if names)
    return (*facts, *listed_facts, *_rule_facts(schema))


def _decimals(columns: Sequence[Column | Location]) -> list[str]:
    return [f"{each.name} ({each.decimals})" for each in columns if each.decimals is not None]


_ON_BREAK = {"clamp": "was moved to a row that satisfies it, or left out if it cannot be", "drop": "was left out"}


def _rule_facts(schema: Schema) -> tuple[str, ...]:
    """The rules, and what happens to real rows that break them, but never how many there were."""
    if not schema.rules:
        return ()
    each = (
        f"rule {number}: {as_code(rule.text)}; a real row that breaks it {_ON_BREAK[on_break(rule, schema)]}"
        for number, rule in enumerate(schema.rules, start=1)
    )
    count = "1 rule" if len(schema.rules) == 1 else f"{len(schema.rules)} rules"
    return (f"{count} that every synthetic row satisfies, applied to each row by itself, at no privacy cost", *each)


def _extent(column: Column) -> str:
    """The number of declared categories, and what is added to them."""
    assert column.categories is not None
    assert column.listed is not None
    added = ["other" if value is not None else "null" for value in column.listed[len(column.categories) :]]
    return " and ".join([str(len(column.categories)), *added])


def _place(location: Location) -> str:
    """A location, its columns if they have other names, and its region."""
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
    return (*facts, *(one_line(f"{what} of {', '.join(names)}") for what, names in found.items() if names))


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
    label = codec.reexpression.label
    for names, what in (
        (codec.constant, "are constant in the synthetic table, because little stood out of the noise"),
        (codec.unlisted, "have a listed value in less than half of their rows; the others are null, or became 'other'"),
    ):
        if names:
            shown = _some([label(name) for name in names])
            text = f"Columns that {what}: {shown}. Declare their categories or bounds in the schema."
            notes.append(Note(one_line(text), Level.WARNING))
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
        notes.append(Note(one_line(text), Level.WARNING if is_loss else Level.INFO))
    if "bounds" in estimation:
        cut = [f"{label(c.name)} {c.extent}" for c in columns if c.name in estimation["bounds"].columns]
        text = (
            f"Bounds of numbers and dates were estimated privately: {_some(cut)}. Values outside were clamped. To "
            "set the bounds, declare them in the schema."
        )
        notes.append(Note(one_line(text)))
    return tuple(notes)


def _some(words: list[str], max_shown: int = 8) -> str:
    return ", ".join(words[:max_shown]) + f" and {len(words) - max_shown} more" * (len(words) > max_shown)


def one_line(sentence: str) -> str:
    """Names may hold line breaks; a sentence may not."""
    return " ".join(sentence.split())
