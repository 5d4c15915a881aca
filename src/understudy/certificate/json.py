"""The certificate for machines: a statement as JSON and back, the JSON Schema of it, and a plan as JSON."""

import dataclasses
import json
import math
from collections.abc import Iterator, Mapping
from typing import Any

from understudy._version import __version__
from understudy.certificate.agreement import Contradiction, check_size, contradictions, first_difference
from understudy.certificate.audit_section import recorded_audit
from understudy.certificate.meaning import statement_meaning
from understudy.errors import ConfigError
from understudy.privacy.accounting.accountants import Spent, grid_for, has_losses, spent
from understudy.privacy.accounting.budget import Budget, renyi_epsilon
from understudy.privacy.accounting.events import event_from_json
from understudy.privacy.accounting.ledger import Guarantee, Plan, PublicFacts, Query, Statement
from understudy.privacy.accounting.marginal_noise import MeasuredMarginal
from understudy.privacy.accounting.statement import BookEntry
from understudy.run.atomic import json_bytes

FORMAT = "understudy-certificate"
FORMAT_VERSION = 2

NOT_COVERED = (
    "Other releases made from data of the same people. Privacy costs add up: keep a record of all of them.",
    "People who are present or absent together, such as the members of a household. The effect of all of them together "
    "can be larger than that of one unit, so more can be learned about each of them. To protect them together, declare "
    "the household as the privacy unit.",
    "Facts taken as public: the names and kinds of columns, and the facts listed above. A declared list, bound or "
    "region that was itself read from the private table is outside this guarantee.",
    "Scores, plots and reports that compare the synthetic table with the real one. They show statistics of real rows.",
    "Decisions that a person made after seeing real rows, such as trying several settings and keeping the best.",
    "What can be observed on the machine: running time, memory use and files, and whether a run fails because "
    "memory runs out or a numerical minimum is not reached.",
    "Anyone who obtains the secret of the run. All noise is expanded from 256 random bits from the operating "
    "system, and anyone who has these bits can subtract it. No release contains them. A checkpoint contains them "
    "until the run has finished, so keep that folder private. (SHAKE-256 expands the secret into the noise of "
    "counts, votes and selections, and into 64-bit Threefry keys for the noise of trained networks.)",
    "The low-order bits of floating-point numbers: of the scores that a private selection compares, and of the noise "
    "added to trained networks. The sums of gradients to which that noise is added are covered, including their "
    "rounding. Counts, votes of teachers among them, have exact discrete noise and are covered in full.",
)


GRAPH_NOT_COVERED = {
    1: "Groups of related edges that are larger than one unit, such as the edges of a family. Together they can "
    "have a larger effect than one unit, so more can be learned about each of them.",
    2: "Facts taken as public: the nodes, their attributes, and the facts listed above. A declared list that was "
    "itself read from the private edges is outside this guarantee.",
    3: "Scores, plots and reports that compare the synthetic graph with the real one. They show statistics of real "
    "edges.",
    4: "Decisions that a person made after seeing real edges, such as trying several settings and keeping the best.",
}
"""Replaces these lines of `NOT_COVERED` in the certificate of a graph."""


KEPT_IN = {
    "scratch": "Anyone who could read the disk of the machine during the run. The codes of the private rows were "
    "kept in a scratch folder on this machine during the run and deleted. Also whether the run was refused because "
    "that folder had no room for them, which follows from the number of rows.",
    "spark": "Anyone who could read the machines of the cluster until the Spark session ended. Spark kept private rows "
    "and their codes in its memory and in files on their local disks. It was asked to drop them at the end of the run. "
    "Shuffle files, which can hold private rows, stay on the executors' disks until the Spark session ends.",
}
"""One more line where rows were kept outside the memory of one process."""


def not_covered(facts: PublicFacts) -> tuple[str, ...]:
    """What the guarantee does not cover, one sentence or more for each point."""
    if facts.graph_unit is not None:
        return tuple(GRAPH_NOT_COVERED.get(at, line) for at, line in enumerate(NOT_COVERED))
    return NOT_COVERED if facts.kept_in == "memory" else (*NOT_COVERED, KEPT_IN[facts.kept_in])


def to_json(statement: Statement, checksums: Mapping[str, str] | None = None) -> dict[str, object]:
    """The certificate for machines; `docs/certificate.md` explains each field. Infinity is written as null.

    `checksums` are the SHA-256 of files of the release, by name.
    """
    content = _plain_json(statement, checksums)
    content["guarantee"]["meaning"] = _meaning_to_json(statement)
    content["queries"] = [_query_to_json(query, statement) for query in statement.queries]
    return content


def _plain_json(statement: Statement, checksums: Mapping[str, str] | None = None) -> dict[str, Any]:
    """The same without the figures that need the accountant of privacy-loss distributions."""
    facts = statement.facts
    replace_epsilon, replace_delta = statement.replace_one
    return {
        "format": FORMAT,
        "format_version": FORMAT_VERSION,
        "understudy_version": __version__,
        "date": facts.date,
        "checksums": dict(checksums or {}),
        "private": statement.is_private,
        "seeded": statement.seeded,
        "released": statement.released,
        "conditions": statement_conditions(facts),
        "warnings": list(statement.warnings),
        "method": statement.method,
        "guarantee": {
            "epsilon": _finite(statement.epsilon),
            "delta": statement.delta,
            "strength": None if statement.strength is None else statement.strength.value,
            "epsilon_target": _finite(statement.epsilon_target),
            "adjacency": "zero-out one unit" if is_zero_out(facts) else "add or remove one unit",
            "unit": {"column": facts.unit, "max_rows": statement.max_rows_per_unit, "graph": facts.graph_unit},
            "accountant": statement.accountant,
            "epsilon_pld": _finite(statement.epsilon_pld),
            "epsilon_rdp": _finite(statement.epsilon_rdp),
            "replace_one": {"epsilon": _finite(replace_epsilon), "delta": replace_delta},
        },
        "public": {
            "name": facts.name,
            "responsible": facts.responsible,
            "contact": facts.contact,
            "rows": facts.rows_declared,
            "kinds_drafted": facts.drafted,
            "storage_types_kept": facts.types_kept,
            "table_rows": facts.public_table,
            "rows_kept_in": facts.kept_in,
            "declared": list(facts.declared),
            **({"selections_only": True} if facts.selections_only else {}),
        },
        **({} if facts.book is None else {"book": book_to_json(facts.book)}),
        "estimated": list(facts.estimated),
        **({"accuracy": list(statement.accuracy)} if statement.accuracy else {}),
        "queries": [_charged_to_json(query) for query in statement.queries],
        "measured_marginals": [
            {**dataclasses.asdict(each), "columns": list(each.columns)} for each in statement.measurements
        ],
        "audit": _audit_to_json(statement.method),
        "not_covered": list(not_covered(facts)),
    }


def book_to_json(entry: BookEntry) -> dict[str, object]:
    return {"dataset": entry.dataset, "entry": entry.number, "hash": entry.digest}


def _book_from_json(content: Mapping[str, Any] | None) -> BookEntry | None:
    return None if content is None else BookEntry(content["dataset"], content["entry"], content["hash"])


def is_zero_out(facts: PublicFacts) -> bool:
    """Whether neighbouring data have the same size, and in one of them the unit is not taken into account."""
    return facts.rows_declared is not None or facts.graph_unit == "node"


def _audit_to_json(method: str) -> dict[str, object] | None:
    """The recorded audit of this version of the method: a property of the software, not of the data."""
    audit = recorded_audit(method)
    if audit is None:
        return None
    return {
        "method": audit.method,
        "version": audit.version,
        "date": audit.date,
        "command": audit.command,
        "canary": audit.canary,
        "threat": audit.threat,
        "runs": audit.num_runs,
        "claimed_epsilon": audit.claimed_epsilon,
        "claimed_delta": audit.claimed_delta,
        "epsilon_at_least": audit.epsilon_jointly,
        "epsilon_attainable": audit.attainable_epsilon,
        "confidence": audit.confidence,
        "audits_together": audit.num_audits,
    }


def from_json(content: Mapping[str, Any]) -> Statement:
    """The statement that a certificate was made from. Refuses one that contradicts itself. Figures that
    need the accountant of privacy-loss distributions are not recomputed here, but by `verify_bundle`."""
    if (content["format"], content["format_version"]) != (FORMAT, FORMAT_VERSION):
        raise ValueError(f"certificate format {content['format_version']}, expected {FORMAT_VERSION}")
    statement = read_statement(content)
    for fault in certificate_contradictions(content, statement):
        raise Contradiction(f"The certificate {fault}.")
    return statement


def certificate_contradictions(content: Mapping[str, Any], statement: Statement) -> Iterator[str]:
    """How a certificate contradicts itself, each as the end of a sentence."""
    yield from contradictions(statement)
    expected = _plain_json(statement, content.get("checksums"))
    if content["understudy_version"] != __version__:  # which has other sentences
        expected = {key: value for key, value in expected.items() if key not in _WORDINGS}
    elif tuple(statement.warnings[: len(always := _warnings(statement))]) != always:
        yield "lacks a warning about its epsilon or delta"
    difference = first_difference(content, json.loads(json_bytes(expected)))
    if difference is not None:
        yield f"contradicts itself: {difference}"


_WORDINGS = ("understudy_version", "conditions", "audit", "not_covered")


def _warnings(statement: Statement) -> tuple[str, ...]:
    """The warnings in every certificate of this guarantee."""
    if not math.isfinite(statement.epsilon_target):
        return ()
    return Guarantee(statement.epsilon_target, statement.delta).warnings


def read_statement(content: Mapping[str, Any]) -> Statement:
    """The statement in a certificate, which may contradict itself, but costs no more to check than one of ours."""
    guarantee, public = content["guarantee"], content["public"]
    statement = Statement(
        epsilon_target=_number(guarantee["epsilon_target"]),
        delta=guarantee["delta"],
        epsilon=_number(guarantee["epsilon"]),
        epsilon_pld=_number(guarantee["epsilon_pld"]),
        epsilon_rdp=_number(guarantee["epsilon_rdp"]),
        accountant=guarantee["accountant"],
        seeded=content["seeded"],
        max_rows_per_unit=guarantee["unit"]["max_rows"],
        queries=tuple(_query_from_json(query) for query in content["queries"]),
        measurements=tuple(
            MeasuredMarginal(**{**each, "columns": tuple(each["columns"])})
            for each in content.get("measured_marginals", ())
        ),
        facts=PublicFacts(
            unit=guarantee["unit"]["column"],
            graph_unit=guarantee["unit"].get("graph"),
            rows_declared=public["rows"],
            public_table=public["table_rows"],
            drafted=public["kinds_drafted"],
            types_kept=public["storage_types_kept"],
            kept_in=public.get("rows_kept_in", "memory"),
            selections_only=public.get("selections_only", False),
            declared=tuple(public["declared"]),
            estimated=tuple(content["estimated"]),
            name=public.get("name"),
            responsible=public.get("responsible"),
            contact=public.get("contact"),
            date=content.get("date"),
            book=_book_from_json(content.get("book")),
        ),
        warnings=tuple(content["warnings"]),
        accuracy=tuple(content.get("accuracy", ())),
        method=content["method"],
        released=content["released"],
    )
    check_size(statement)
    return statement


def statement_conditions(facts: PublicFacts) -> list[str]:
    """What the guarantee assumes beyond the declarations of a person; empty for a declared schema."""
    conditions = []
    if facts.selections_only:
        conditions.append(
            "this certificate covers the selections alone. The generated rows and the discriminators were made "
            "elsewhere. Unless they were themselves made under differential privacy, they can reveal real rows, and no "
            "selection among them repairs that. Add their privacy cost to this one."
        )
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


def plan_statement(plan: Plan, guarantee: Guarantee, spent: Spent, facts: PublicFacts | None = None) -> Statement:
    """The statement that a run of this plan would end with, as far as a plan can know."""
    return Statement(
        epsilon_target=guarantee.epsilon,
        delta=guarantee.fixed_delta,
        epsilon=spent.epsilon,
        epsilon_pld=spent.pld,
        epsilon_rdp=spent.rdp,
        accountant=spent.accountant,
        seeded=False,
        max_rows_per_unit=1,  # no cost depends on it: each event carries its own
        queries=plan.queries,
        facts=facts or PublicFacts(),
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
        "meaning": _meaning_to_json(statement),
        "queries": [_query_to_json(query, statement) for query in plan],
        "expected": [dataclasses.asdict(each) for each in plan.expected],
        "notes": [note.to_json() for note in plan.notes],
    }


def _meaning_to_json(statement: Statement) -> dict[str, object] | None:
    meaning = statement_meaning(statement)
    return None if meaning is None else meaning.to_json()


def _query_to_json(query: Query, statement: Statement) -> dict[str, object]:
    return {**_charged_to_json(query), "standalone_epsilon": _finite(standalone_epsilon(query, statement))}


def _charged_to_json(query: Query) -> dict[str, object]:
    return {
        "key": query.key,
        "what": query.what,
        "path": list(query.path),
        "columns": list(query.columns),
        "event": query.event.to_json(),
        "delta": query.delta,
        "tail_delta": query.event.tail_delta,
        "partition": query.partition,
    }


def _query_from_json(content: Mapping[str, Any]) -> Query:
    try:
        event = event_from_json(content["event"])
    except ConfigError as error:
        raise Contradiction(f"The certificate has an invalid query: {error}") from None
    return Query(
        content["key"],
        content["what"],
        event,
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
    if not has_losses(tuple(each.event for each in statement.queries), grid):  # nor are those of all, one by one
        return renyi_epsilon(Budget(statement.epsilon_target, statement.delta, (query,)))
    return spent([query.event], statement.delta - query.delta, grid=grid).epsilon


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _number(value: float | None) -> float:
    return math.inf if value is None else value
