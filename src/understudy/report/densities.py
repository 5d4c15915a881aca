"""What a scorecard says about the points of locations: how closely their density matches the real one, and where."""

import dataclasses
from collections.abc import Mapping, Sequence

from understudy.evaluation.scores import Json
from understudy.report.parts import detail, is_close, is_far
from understudy.report.text import finite, listing, percent, quote


@dataclasses.dataclass(frozen=True)
class Density:
    """The points of one location: density errors by the side of the squares in km, and the fraction inside."""

    name: str
    errors: Mapping[float, float]
    """From the finest squares to the coarsest."""
    real: Mapping[float, float]
    """The same for held-out real points, as far as it is known."""
    inside: float

    @property
    def close_from(self) -> float | None:
        """The finest squares from which on the density is close to the real one; None: no squares are."""
        found = None
        for side in sorted(self.errors, reverse=True):
            if not is_close(self.errors[side], self.real.get(side, 0.0)):
                break
            found = side
        return found

    @property
    def far_up_to(self) -> float | None:
        """The coarsest squares on which the density is far from the real one; None: on none."""
        far = [side for side, error in self.errors.items() if is_far(error, self.real.get(side, 0.0))]
        return max(far, default=None)

    @property
    def good(self) -> str:
        """What is kept, as part of a sentence; empty: nothing is."""
        if self.close_from is None:
            return ""
        squares = f"squares of {self.close_from:g} km{' or more' if self.close_from < max(self.errors) else ''}"
        return f"the density of {quote(self.name)} closely matches the real one on {squares}"

    @property
    def lost(self) -> str:
        """What is lost, as part of a sentence; empty: nothing is."""
        side = self.far_up_to
        if side is None:
            return ""
        squares = f"squares of {side:g} km{' or less' if side > min(self.errors) else ''}"
        return f"the density of {quote(self.name)} on {squares} ({self.moved(side)})"

    def moved(self, side: float) -> str:
        """How many points would have to move to another square, beside the same for real ones."""
        real = f"; held-out real points: {percent(self.real[side])}" if side in self.real else ""
        return f"{percent(self.errors[side])} of the points would have to move{real}"


def densities(scores: Json, method: str) -> list[Density]:
    """One entry for each location that was compared."""
    locations = detail(scores, "locations", method).get("locations") or {}
    real = detail(scores, "locations", "real").get("locations") or {}
    each = [
        Density(
            name,
            _numbers(entry.get("errors")),
            _numbers((real.get(name) or {}).get("errors")),
            1.0 if (inside := finite(entry.get("inside"))) is None else inside,
        )
        for name, entry in locations.items()
    ]
    return [density for density in each if density.errors]


def _numbers(errors: object) -> dict[float, float]:
    known = errors if isinstance(errors, Mapping) else {}
    numbers = {float(side): value for side, error in known.items() if (value := finite(error)) is not None}
    return dict(sorted(numbers.items()))


def outside_regions(regions: Sequence[Density]) -> str:
    """One sentence on points outside their public region; empty without locations."""
    outside = [f"{percent(1 - each.inside)} of the points of {quote(each.name)}" for each in regions if each.inside < 1]
    if outside:
        return f"{listing(outside)} lie outside the declared region."
    return (
        f"All points of {listing([quote(each.name) for each in regions])} lie inside the declared region."
        if regions
        else ""
    )


def density_sentences(scores: Json, method: str) -> list[str]:
    """The findings about locations: the density error on squares of each size, and points outside the region."""
    measured = densities(scores, method)
    sentences = []
    for density in measured:
        parts = [f"on squares of {side:g} km {percent(error)}" for side, error in density.errors.items()]
        real = [f"{percent(density.real[side])}" for side in density.errors if side in density.real]
        reference = f" (held-out real points: {listing(real)})" if real else ""
        sentences.append(
            f"Of the points of {quote(density.name)}, {listing(parts)} would have to move to match the real density"
            f"{reference}."
        )
    return [*sentences, *([outside_regions(measured)] if measured else [])]
