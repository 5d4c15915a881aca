"""What several releases of one table guarantee together."""

import dataclasses
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from understudy.certificate import round_up
from understudy.certificate.agreement import UNREADABLE, contradictions
from understudy.certificate.json import read_statement
from understudy.errors import UnderstudyError
from understudy.privacy.accounting.budget import Budget, renyi_epsilon
from understudy.privacy.accounting.ledger import Guarantee, PublicFacts, Statement
from understudy.run.atomic import read_object


def earlier_releases(folder: Path, name: str | None) -> tuple[Statement, ...]:
    """The statements of releases and failed runs of a table of this name: in this folder, and beside it.

    Folders that are not releases, or that cannot be read, are passed over. Copies of a release, such as unpacked
    bundles, count once: no two runs have the same model, whose checksum is in the certificate.
    """
    if name is None:
        return ()
    try:
        beside = sorted(place for place in folder.absolute().parent.iterdir() if place.is_dir())
    except OSError:
        return ()
    contents = [content for place in beside if (content := read_object(place / "certificate.json"))]
    distinct = [each for at, each in enumerate(contents) if not (each.get("checksums") and each in contents[:at])]
    statements = map(_read_statement, distinct)
    return tuple(statement for statement in statements if statement is not None and statement.facts.name == name)


def describe_total(earlier: Sequence[Statement], facts: PublicFacts, guarantee: Guarantee) -> str | None:
    """What the earlier releases and a run that is about to start guarantee together; None: there is none.

    Formal guarantee: epsilons and deltas of runs on the same units add up (basic composition), whatever was chosen
    after the earlier ones. Figures are rounded up.
    """
    if not earlier:
        return None
    begin = f"This folder already holds {_counted(earlier)} of this table"
    if not all(statement.is_private for statement in earlier):
        return f"{begin}, not all private. Together with this run they have no guarantee."
    begin += f" (epsilon {_listed([round_up(statement.epsilon, 4) for statement in earlier])})"
    units = sorted({_unit_of(each) for each in (facts, *(statement.facts for statement in earlier))})
    if len(units) > 1:
        return (
            f"{begin}. Their privacy units differ ({_listed(units)}), so the costs cannot be added. Use one unit for "
            "all releases of a table."
        )
    epsilon = math.fsum([guarantee.epsilon, *(statement.epsilon for statement in earlier)])
    delta = math.fsum([guarantee.fixed_delta, *(statement.delta for statement in earlier)])
    return (
        f"{begin}. Together with this run they guarantee epsilon {round_up(epsilon, 4)} at delta {round_up(delta, 2)}."
    )


def _read_statement(content: Mapping[str, Any]) -> Statement | None:
    """One that contradicts itself counts too, at no less than its queries cost by Renyi divergence."""
    try:
        statement = read_statement(content)
    except (UnderstudyError, *UNREADABLE):
        return None
    try:
        agrees = not math.isfinite(statement.epsilon) or not any(contradictions(statement))
    except (UnderstudyError, *UNREADABLE):
        agrees = False
    if agrees:
        return statement
    budget = Budget(statement.epsilon_target, statement.delta, statement.queries)
    return dataclasses.replace(statement, epsilon=max(statement.epsilon, renyi_epsilon(budget)))


def _counted(statements: Sequence[Statement]) -> str:
    if len(statements) == 1:
        return "a release" if statements[0].released else "a failed run"
    all_released = all(statement.released for statement in statements)
    return f"{len(statements)} {'releases' if all_released else 'releases and failed runs'}"


def _unit_of(facts: PublicFacts) -> str:
    if facts.graph_unit is not None:
        return f"each {facts.graph_unit} of the graph"
    return "each row" if facts.unit is None else repr(facts.unit)


def _listed(words: Sequence[str]) -> str:
    """ "1", "1 and 2", "1, 2 and 3"."""
    return " and ".join([", ".join(words[:-1])] * (len(words) > 1) + [words[-1]])
