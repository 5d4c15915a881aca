"""What several releases of one table guarantee together."""

import dataclasses
import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path

from understudy import certificate
from understudy.certificate import round_up
from understudy.errors import UnderstudyError
from understudy.privacy.ledger import Statement


@dataclasses.dataclass(frozen=True)
class NextRelease:
    """A run that is about to start: its table, its privacy unit and what it may spend."""

    name: str | None
    """As in its certificate; None: a frame without a declared name, which is compared with nothing."""
    unit: str | None
    epsilon: float
    delta: float
    graph_unit: str | None = None
    """Of a graph: edge or node."""


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
    contents = [content for place in beside if (content := _read_json(place / "certificate.json"))]
    distinct = [each for at, each in enumerate(contents) if not (each.get("checksums") and each in contents[:at])]
    found = map(_read_statement, distinct)
    return tuple(statement for statement in found if statement is not None and statement.facts.name == name)


def describe_total(earlier: Sequence[Statement], now: NextRelease) -> str | None:
    """What the earlier releases and this one guarantee together, for the steward; None: there is none.

    Formal guarantee: epsilons and deltas of runs on the same units add up (basic composition), whatever was chosen
    after the earlier ones. Figures are rounded up.
    """
    if not earlier:
        return None
    begin = f"This folder already holds {_counted(earlier)} of this table"
    if not all(statement.is_private for statement in earlier):
        return f"{begin}, not all private. Together with this run they have no guarantee."
    begin += f" (epsilon {_listed([round_up(statement.epsilon, 4) for statement in earlier])})"
    before = {_named(each.facts.unit, each.facts.graph_unit) for each in earlier}
    units = sorted({_named(now.unit, now.graph_unit), *before})
    if len(units) > 1:
        return (
            f"{begin}. Their privacy units differ ({_listed(units)}), so the costs cannot be added. Use one unit for "
            "all releases of a table."
        )
    epsilon = math.fsum([now.epsilon, *(statement.epsilon for statement in earlier)])
    delta = math.fsum([now.delta, *(statement.delta for statement in earlier)])
    return (
        f"{begin}. Together with this run they guarantee epsilon {round_up(epsilon, 4)} at delta {round_up(delta, 2)}."
    )


def _read_json(path: Path) -> dict:
    """The content of a file; empty where it is no JSON object."""
    try:
        content = json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError):
        return {}
    return content if isinstance(content, dict) else {}


def _read_statement(content: Mapping) -> Statement | None:
    try:
        return certificate.from_json(content)
    except (UnderstudyError, ValueError, LookupError, TypeError, AttributeError):
        return None


def _counted(statements: Sequence[Statement]) -> str:
    if len(statements) == 1:
        return "a release" if statements[0].released else "a failed run"
    all_released = all(statement.released for statement in statements)
    return f"{len(statements)} {'releases' if all_released else 'releases and failed runs'}"


def _named(unit: str | None, graph_unit: str | None) -> str:
    if graph_unit is not None:
        return f"each {graph_unit} of the graph"
    return "each row" if unit is None else repr(unit)


def _listed(words: Sequence[str]) -> str:
    """ "1", "1 and 2", "1, 2 and 3"."""
    return " and ".join([", ".join(words[:-1])] * (len(words) > 1) + [words[-1]])
