"""Points of locations in the verdict, beside those of held-out real rows."""

import copy
from typing import Any

import pytest

from understudy.report.densities import densities, density_sentences
from understudy.report.summary import summarise
from understudy.report.verdict import verdict

from .scorecards import scorecard

SPACE = "\N{NO-BREAK SPACE}"


def card_of(errors: dict[int, float], real: dict[int, float], inside: float = 1.0) -> dict[str, Any]:
    card = copy.deepcopy(scorecard(("aim",)))
    each = {name: {"home": {"errors": {str(s): e for s, e in found.items()}, "inside": inside}}
            for name, found in (("aim", errors), ("real", real))}  # fmt: skip
    card["details"]["locations"] = {name: {"locations": entry} for name, entry in each.items()}
    return card


@pytest.mark.parametrize(
    ("errors", "real", "close_from", "far_up_to"),
    [
        ({1: 0.04, 5: 0.03, 25: 0.01}, {1: 0.0, 5: 0.0, 25: 0.0}, 1, None),
        ({1: 0.3, 5: 0.04, 25: 0.01}, {1: 0.1, 5: 0.03, 25: 0.01}, 5, 1),
        ({1: 0.3, 5: 0.2, 25: 0.01}, {1: 0.25, 5: 0.01, 25: 0.01}, 25, 5),
        ({1: 0.3, 5: 0.2, 25: 0.2}, {}, None, 25),
        ({1: 0.3, 5: 0.2, 25: 0.2}, {1: 0.3, 5: 0.2, 25: 0.2}, 1, None),
        ({1: 0.01, 5: 0.2, 25: 0.08}, {}, None, 5),
    ],
)
def test_squares_are_close_or_far_by_themselves_and_beside_real_points(
    errors: dict[int, float], real: dict[int, float], close_from: float | None, far_up_to: float | None
) -> None:
    (found,) = densities(card_of(errors, real), "aim")
    assert (found.close_from, found.far_up_to) == (close_from, far_up_to)


def test_the_verdict_names_the_squares() -> None:
    card = card_of({1: 0.3, 5: 0.04, 25: 0.01}, {1: 0.1, 5: 0.03, 25: 0.01})
    found = summarise(card, "aim")
    assert found is not None
    assert "the density of “home” closely matches the real one on squares of 5 km or more" in found.good
    assert found.lost.replace(SPACE, " ") == (
        "The density of “home” on squares of 1 km (30% of the points would have to move; held-out real points: 10%)."
    )
    assert "maps of “home” as fine as 1 km" in found.avoid
    assert found.rules.endswith("All points of “home” lie inside the declared region.")
    assert set(density_sentences(card, "aim")) <= set(verdict(card, "aim"))


def test_points_outside_are_said() -> None:
    found = summarise(card_of({1: 0.0}, {}, inside=0.75), "aim")
    assert found is not None
    assert "25% of the points of “home” lie outside the declared region." in found.rules.replace(SPACE, " ")


def test_without_locations_nothing_is_said() -> None:
    card = scorecard(("aim",))
    found = summarise(card, "aim")
    assert found is not None
    assert density_sentences(card, "aim") == []
    assert "region" not in " ".join(found.sentences.values())
