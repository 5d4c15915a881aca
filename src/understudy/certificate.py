"""A privacy statement in words, for people, and in JSON, for machines.

Both are drawn from a `Statement` alone: what ran, never what was asked for, and no figure that was computed on real
rows without noise.
"""

import dataclasses
import decimal
import math
from collections.abc import Mapping, Sequence

from understudy._version import __version__
from understudy.files import json_bytes
from understudy.privacy import accounting
from understudy.privacy.accounting import (
    ZCDP,
    Choices,
    DiscreteGaussian,
    Event,
    Gaussian,
    NonPrivate,
    Pure,
    Spent,
    SubsampledGaussian,
)
from understudy.privacy.ledger import Guarantee, Look, Plan, Statement

FORMAT = "understudy-certificate"
FORMAT_VERSION = 1
_EVENTS = {
    cls.__name__: cls for cls in (DiscreteGaussian, Gaussian, SubsampledGaussian, Choices, Pure, ZCDP, NonPrivate)
}

NOT_COVERED = (
    "Other releases made from the same people's data. Guarantees add up: keep a record of all of them.",
    "What was taken as public: column names and kinds, and the facts listed above. If a declared list or bound "
    "was itself read off the private table, it is outside this guarantee.",
    "Scores, plots and reports that compare the synthetic table with the real one. They read real rows.",
    "Choices a person made after looking at the real rows, such as trying several settings and keeping the best.",
    "What someone with access to the machine can observe: running time, memory, and files. The same holds for a run "
    "that fails because memory runs out, or because a numerical minimum is not reached.",
    "Anyone who has the secret of the run, and so can subtract its noise. The secret is 256 bits from the operating "
    "system. SHAKE-256 expands it into all noise on counts and selections, and into 64-bit keys for the noise of "
    "trained networks (Threefry). It is part of no release; a checkpoint holds it while the run is unfinished.",
    "Low-order bits of floating-point arithmetic, in the scores by which a private choice compares its candidates and "
    "in the noise of trained networks. The sums of gradients that this noise is added to are covered, rounding "
    "included; counts carry exact discrete noise and are not affected.",
)


def to_json(statement: Statement) -> dict[str, object]:
    """The certificate for machines; `docs/certificate.md` explains each field. Infinity is written as null."""
    replace_epsilon, replace_delta = statement.replace_one
    return {
        "format": FORMAT,
        "format_version": FORMAT_VERSION,
        "understudy_version": __version__,
        "private": statement.is_private,
        "seeded": statement.seeded,
        "released": statement.released,
        "conditions": statement_conditions(statement),
        "warnings": list(statement.warnings),
        "method": statement.method,
        "guarantee": {
            "epsilon": _finite(statement.epsilon),
            "delta": statement.delta,
            "epsilon_target": _finite(statement.epsilon_target),
            "adjacency": "zero-out one unit" if statement.rows_declared is not None else "add or remove one unit",
            "unit": {"column": statement.unit, "max_rows": statement.max_rows_per_unit},
            "accountant": statement.accountant,
            "epsilon_pld": _finite(statement.epsilon_pld),
            "epsilon_rdp": _finite(statement.epsilon_rdp),
            "replace_one": {"epsilon": _finite(replace_epsilon), "delta": replace_delta},
        },
        "public": {
            "rows": statement.rows_declared,
            "kinds_drafted": statement.drafted,
            "storage_types_kept": statement.types_kept,
            "table_rows": statement.public_table,
            "declared": list(statement.declared),
            "bought": list(statement.bought),
        },
        "purchases": [_purchase(look, statement) for look in statement.looks],
        "not_covered": list(NOT_COVERED),
    }


def from_json(content: Mapping) -> Statement:
    """The statement that a certificate was made from."""
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
        looks=tuple(_look(purchase) for purchase in content["purchases"]),
        unit=guarantee["unit"]["column"],
        rows_declared=public["rows"],
        drafted=public["kinds_drafted"],
        types_kept=public.get("storage_types_kept", False),
        public_table=public.get("table_rows"),
        declared=tuple(public["declared"]),
        bought=tuple(public["bought"]),
        warnings=tuple(content.get("warnings", ())),
        method=content["method"],
        released=content.get("released", True),
    )


def to_files(statement: Statement) -> dict[str, bytes]:
    """The certificate as two files, by name."""
    return {"certificate.json": json_bytes(to_json(statement)), "CERTIFICATE.md": to_markdown(statement).encode()}


def planned(plan: Plan, guarantee: Guarantee, spent: Spent) -> Statement:
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
        max_rows_per_unit=1,  # no price depends on it: each event carries its own
        looks=plan.looks,
    )


def plan_to_json(plan: Plan, statement: Statement) -> dict[str, object]:
    """A plan for machines: the same purchases as in the certificate of the run."""
    return {
        "format": "understudy-plan",
        "format_version": FORMAT_VERSION,
        "understudy_version": __version__,
        "epsilon": _finite(statement.epsilon),
        "epsilon_target": _finite(statement.epsilon_target),
        "delta": statement.delta,
        "purchases": [_purchase(look, statement) for look in plan],
        "notes": [note.to_json() for note in plan.notes],
    }


def _purchase(look: Look, statement: Statement) -> dict[str, object]:
    event = {"type": type(look.event).__name__, **dataclasses.asdict(look.event)}
    return {
        "key": look.key,
        "what": look.what,
        "path": list(look.path),
        "columns": list(look.columns),
        "event": event,
        "delta": look.delta,
        "tail_delta": accounting.tail_delta([look.event]),
        "branch": look.branch,
        "epsilon_alone": _finite(price_alone(look, statement)),
    }


def _look(purchase: Mapping) -> Look:
    arguments = dict(purchase["event"])
    event = _EVENTS[arguments.pop("type")](**arguments)
    return Look(
        purchase["key"],
        purchase["what"],
        event,
        tuple(purchase["columns"]),
        purchase["delta"],
        tuple(purchase["path"]),
        purchase["branch"],
    )


def price_alone(look: Look, statement: Statement) -> float:
    """Epsilon of one look if it were the only one, at the run's delta."""
    if not math.isfinite(statement.epsilon_target):
        return math.inf
    grid = accounting.grid_for(statement.epsilon_target)
    return accounting.spent([look.event], statement.delta - look.delta, grid=grid).epsilon


def mechanism_in_words(event: Event) -> str:
    """What was done with the exact answer, and how much noise it got."""
    match event:
        case DiscreteGaussian(stddev, count, sensitivity):
            unit = "" if sensitivity == 1 else f", {sensitivity} rows a unit"
            of = "" if count == 1 else f" of {count} histograms"
            return f"discrete Gaussian noise, standard deviation {stddev:.4g} on every count{of}{unit}"
        case Gaussian(multiplier, count):
            return f"Gaussian noise, multiplier {multiplier:.4g}{f', {count} times' * (count > 1)}"
        case SubsampledGaussian(rate, multiplier, steps):
            return f"{steps} noisy gradient steps, sampling rate {rate:.4g}, noise multiplier {multiplier:.4g}"
        case Choices(epsilon, rounds):
            times = "1 choice" if rounds == 1 else f"{rounds} choices"
            return f"{times} by the exponential mechanism, epsilon {epsilon:.4g} each"
        case Pure(epsilon, rounds):
            times = "1 answer" if rounds == 1 else f"{rounds} answers"
            return f"{times} of pure epsilon {epsilon:.4g} each"
        case ZCDP(rho):
            return f"zCDP lump of rho {rho:.4g}, spent inside under a filter"
        case NonPrivate():
            return "no noise and no bound: not private"


def to_markdown(statement: Statement) -> str:
    """The certificate for people."""
    made = f"Made by Understudy {__version__} with the method `{statement.method}`."
    if not math.isfinite(statement.epsilon):  # nobody is protected, and nothing was bought or paid
        return "\n\n".join(["# Privacy certificate", *_verdict(statement), made]) + "\n"
    parts = ["# Privacy certificate", *_verdict(statement), *_protected(statement), *_public(statement)]
    parts += [*_purchases(statement), *_accounting(statement), "## What this guarantee does not cover"]
    return "\n\n".join([*parts, _bullets(NOT_COVERED), made]) + "\n"


def _verdict(statement: Statement) -> list[str]:
    if not math.isfinite(statement.epsilon):
        is_partly = any(isinstance(look.event, NonPrivate) for look in statement.looks)
        how = "was made of looks at rows without noise or bound" if is_partly else "was made without noise"
        return [
            f"> **NOT PRIVATE.** This release {how}: epsilon is infinite, and no guarantee of any kind is given. Treat "
            "it like the original table.",
        ]
    delta = rounded_up(statement.delta, 2)
    headline = (
        f"**epsilon = {rounded_up(statement.epsilon, 4)}, delta = {delta}** "
        f"(asked for: epsilon at most {statement.epsilon_target:g})"
    )
    if not statement.released:
        seeded = " Its noise came from a fixed seed, so the figures below do not hold." if statement.seeded else ""
        return [
            "> **SPENT, NOTHING RELEASED.** This run failed after its first query, and nothing was released. Its whole "
            f"planned privacy cost counts as spent.{seeded}",
            headline,
            "Add these figures to those of all other releases of the same people's data. A new run spends a budget of "
            "its own.",
            *[f"> **On one condition:** {condition}" for condition in statement_conditions(statement)],
        ]
    if statement.seeded:
        return [
            "> **SEEDED: NOT PRIVATE.** The noise of this run came from a fixed seed. Whoever knows or guesses the "
            "seed can subtract it. Use such a run for tests and public data only.",
            f"Had the noise been secret, the guarantee would be: {headline}.",
            *_warnings(statement),
        ]
    conditions = [f"> **On one condition:** {condition}" for condition in statement_conditions(statement)]
    return [
        headline,
        *conditions,
        *_warnings(statement),
        "Everything in this release was computed under differential privacy. Whether or not any one "
        f"{_unit_word(statement)} is in the original table, every possible outcome of the release is about equally "
        f"likely: its odds change by a factor of at most e^epsilon = {rounded_up(math.exp(statement.epsilon), 3)}, "
        f"except with a probability of about {delta}. Whatever is computed from the release alone, such as more "
        "synthetic rows, is covered as well and costs nothing.",
    ]


def _warnings(statement: Statement) -> list[str]:
    return [f"> **Warning:** {warning}" for warning in statement.warnings]


def statement_conditions(statement: Statement) -> list[str]:
    """What the guarantee takes for granted beyond the declarations of a person; empty for a declared schema."""
    conditions = []
    if statement.public_table is not None:
        conditions.append(
            f"training began on a table of {statement.public_table:,} rows that was called public by whoever ran this. "
            "Nobody in that table is protected, and if it holds rows of the private one they are not protected either."
        )
    if statement.types_kept and not statement.drafted:
        conditions.append(
            "storage types of the source are taken as public (keep_types). Many tools choose them by the values, and "
            "then one row can change them. Without this setting, types follow from the declared kinds."
        )
    if statement.drafted:
        conditions.append(
            "the kinds and storage types of the columns, and the spelling of dates, digits and truth values, were "
            "drafted from the table instead of being declared by a person. They depend on its values, even where the "
            "source has types (tools choose those by the values), and one row can change them. Declare a schema to "
            "lift this condition."
        )
    return conditions


def rounded_up(value: float, digits: int) -> str:
    """So many significant digits, never fewer than the figure: a guarantee must not be rounded down."""
    if value <= 0 or not math.isfinite(value):
        return f"{value:g}"
    exact = decimal.Decimal(value)
    step = decimal.Decimal(1).scaleb(exact.adjusted() - digits + 1)
    up = exact.quantize(step, rounding=decimal.ROUND_CEILING)
    # 1.2e-06 as a float is a hair above its decimal digits: what was meant by them counts as itself.
    near = decimal.Decimal(f"{value:.{digits - 1}e}")
    return f"{float(near if abs(near - exact) <= exact * decimal.Decimal('1e-12') else up):.{digits}g}"


def _unit_word(statement: Statement) -> str:
    return "row" if statement.unit is None else f"unit (all rows that share one value of {_code(statement.unit)})"


def _protected(statement: Statement) -> list[str]:
    if statement.unit is None:
        who = (
            "Each row of the table is one protected unit. If a person can own several rows, only single rows are "
            "protected."
        )
    else:
        who = (
            f"A protected unit is everything that shares one value of {_code(statement.unit)}. Of each unit at most "
            f"{statement.max_rows_per_unit} row(s) were used; rows without a value there were left out."
        )
    if statement.rows_declared is None:
        relation = "Neighbouring tables differ by adding or removing one unit. The number of rows is itself protected."
    else:
        relation = (
            f"The number of rows ({statement.rows_declared:,}) was declared public, so the statement is the zero-out "
            "one: neighbouring tables differ by one unit whose rows count as if they were not there."
        )
    lines = ["## Who is protected", f"{who} {relation}"]
    if math.isfinite(statement.epsilon):
        epsilon, delta = statement.replace_one
        lines.append(
            f"For readers who think of replacing one unit by another: that is one removal and one addition, at most "
            f"epsilon {rounded_up(epsilon, 4)} and delta {rounded_up(delta, 2)}."
        )
    return lines


def _public(statement: Statement) -> list[str]:
    types = " and storage types" if statement.drafted or statement.types_kept else ""
    lines = [
        "## What was taken as public",
        f"Column names{',' if types else ' and'} kinds{types}, and on the word of whoever ran this:",
    ]
    lines.append(_bullets(statement.declared or ["nothing else"]))
    if statement.bought:
        lines += ["Bought from the data, within the budget:", _bullets(statement.bought)]
    return lines


def _purchases(statement: Statement) -> list[str]:
    rows = ["| what | how | epsilon alone | added delta |", "|---|---|---:|---:|"]
    for look in statement.looks:
        price = price_alone(look, statement)
        alone = rounded_up(price, 3) if math.isfinite(price) else "infinite"
        added = rounded_up(look.delta, 2) if look.delta else ""
        label = look.label if look.branch is None else f"{look.label} ({look.branch} only)"
        rows.append(f"| {_cell(label)} | {mechanism_in_words(look.event)} | {alone} | {added} |")
    explained = (
        "Every look at the private rows, in order. Prices do not simply add up: composed together they cost the figure "
        "at the head of this page."
    )
    if not statement.released:
        explained = (
            "Every planned query, in order. The run failed before its end, so the last ones may not have been made; "
            "they count all the same. Composed together they cost the figure at the head of this page."
        )
    if any(look.branch is not None for look in statement.looks):
        explained += (
            " Each unit is in one part of the table only, by a secret coin of its own, so nobody pays for looks at "
            "different parts: the figure is that of the dearest part together with all looks that read everyone."
        )
    return ["## Where the budget went", explained, "\n".join(rows)]


def _accounting(statement: Statement) -> list[str]:
    if not math.isfinite(statement.epsilon):
        return []
    figures = {"privacy-loss distribution": statement.epsilon_pld, "Renyi (zCDP)": statement.epsilon_rdp}
    said = "; ".join(
        f"{name}: {rounded_up(figure, 4)}"
        if math.isfinite(figure)
        else f"{name}: no figure (it cannot hold one of the looks)"
        for name, figure in figures.items()
    )
    return [
        "## How it was added up",
        f"Two accountants bound the same run at delta {rounded_up(statement.delta, 2)}. Both are upper bounds: the "
        f"smaller figure holds, and the other is only less sharp. {said}.",
    ]


def _bullets(lines: Sequence[str]) -> str:
    return "\n".join(f"- {' '.join(line.split())}" for line in lines)


def _code(name: str) -> str:
    """A column's name as code, whatever it holds."""
    plain = " ".join(name.split()).replace("`", "'")
    return f"`{plain}`"


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _number(value: float | None) -> float:
    return math.inf if value is None else value
