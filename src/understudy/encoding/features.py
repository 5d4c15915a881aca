"""What networks see of a row: a layout turns codes and places into features, and features back into both.

`typed` gives numbers a bounded line or a few bits, and lists of categories a level each; `modes` is the mode-specific
normalisation of CTGAN (Xu et al. 2019). Codes are the codec's, and a place is where a number lies between its bounds,
from 0 to 1. Encoding a row follows public and bought facts, the row itself and randomness of its own: no other row.

CTGAN fits its mixtures to the rows. Here they are fitted to the noisy histogram that was bought, which is
post-processing, and no component is narrower than a cell of it.
"""

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, NamedTuple

import jax
import numpy as np
from jaxtyping import Float, Int, PRNGKeyArray

from understudy.schema import Domain, Scale

FEATURES = ("binned", "typed", "modes")
MODES = ("bought", "public_grid")
FEW = 15
"""Whole numbers of so many values at most are bits in `typed`, levels in `modes`."""
LIGHT = 0.005
"""Components of less weight are left out, as in CTGAN."""
REACH = 4.0
"""Standard deviations from a component's mean to either end of its line."""

Places = Float[np.ndarray, " rows"]
Codes = Int[np.ndarray, " rows"]
Features = Float[np.ndarray, "rows features"]
Numbers = Sequence[float] | np.ndarray


# --------------------------------------------------------------------------------------------------------------- blocks


class Block(NamedTuple):
    """One column's features: "one_hot" of `size` levels, "bits" of `size` digits, "tanh" numbers."""

    kind: str
    size: int


Blocks = tuple[Block, ...]


def is_level(blocks: Blocks) -> np.ndarray:
    """Which features are levels of one-hot blocks."""
    return np.repeat([block.kind == "one_hot" for block in blocks], [block.size for block in blocks])


def num_features(blocks: Blocks) -> int:
    return sum(block.size for block in blocks)


def starts(blocks: Blocks) -> list[int]:
    """Where each block begins."""
    return np.cumsum([0, *(block.size for block in blocks)])[:-1].tolist()


# -------------------------------------------------------------------------------------------------------------- columns


@dataclasses.dataclass(frozen=True)
class Levels:
    """A column's codes, one-hot."""

    kind: ClassVar[str] = "levels"
    size: int

    @property
    def blocks(self) -> Blocks:
        return (Block("one_hot", self.size),)

    def encode(self, codes: Codes, places: Places, uniform: Places) -> Features:
        return np.eye(self.size)[codes]

    def decode(self, features: Features) -> tuple[Codes, Places]:
        return features.argmax(axis=1), np.full(len(features), np.nan)

    def shares(self, marginal: np.ndarray) -> np.ndarray:
        """What is known of each feature's mean; zero where nothing is."""
        return marginal


@dataclasses.dataclass(frozen=True)
class Number:
    """What the layouts of a number share: its bins, whether it is whole, and whether it may be missing."""

    edges: tuple[float, ...]
    """Places of the bins' edges, from 0 to 1."""
    whole: int | None
    """How many whole numbers lie between the bounds; None: not only whole ones."""
    nullable: bool

    @property
    def size(self) -> int:
        return len(self.edges) - 1 + self.nullable

    def _snapped(self, places: Places) -> Places:
        """Whole numbers stand in the middle of their share of the line."""
        places = np.clip(places, 0.0, 1.0)
        return places if self.whole is None else (_index(places, self.whole) + 0.5) / self.whole

    def _coded(self, places: Places, missing: np.ndarray) -> tuple[Codes, Places]:
        inner = np.asarray(self.edges[1:-1])
        bins = np.searchsorted(inner, places, side="right")
        return np.where(missing, len(self.edges) - 1, bins), np.where(missing, np.nan, places)

    def _null_share(self, marginal: np.ndarray) -> float:
        return float(marginal[-1]) if self.nullable else 0.0


class Marked(Number):
    """Where a number may be missing, two levels before it say so: present, missing."""

    def _mark(self, missing: np.ndarray) -> Features:
        return np.stack([~missing, missing], axis=1).astype(float) if self.nullable else np.zeros((len(missing), 0))

    def _marked(self, features: Features) -> np.ndarray:
        return features[:, 1] > features[:, 0] if self.nullable else np.zeros(len(features), dtype=bool)

    def _mark_shares(self, marginal: np.ndarray, rest: int) -> np.ndarray:
        null = self._null_share(marginal)
        return np.r_[[1 - null, null] if self.nullable else [], np.zeros(rest)]

    @property
    def _mark_blocks(self) -> Blocks:
        return (Block("one_hot", 2),) if self.nullable else ()


@dataclasses.dataclass(frozen=True)
class Line(Marked):
    """A number between its bounds, from -1 to 1."""

    kind: ClassVar[str] = "line"

    @property
    def blocks(self) -> Blocks:
        return (*self._mark_blocks, Block("tanh", 1))

    def encode(self, codes: Codes, places: Places, uniform: Places) -> Features:
        missing = np.isnan(places)
        return np.c_[self._mark(missing), np.where(missing, 0.0, 2 * places - 1)]

    def decode(self, features: Features) -> tuple[Codes, Places]:
        return self._coded(self._snapped((features[:, -1].astype(float) + 1) / 2), self._marked(features))

    def shares(self, marginal: np.ndarray) -> np.ndarray:
        return self._mark_shares(marginal, 1)


@dataclasses.dataclass(frozen=True)
class Bits(Marked):
    """A whole number of few values, counted from its lower bound, as bits: the most significant first."""

    kind: ClassVar[str] = "bits"

    @property
    def _width(self) -> int:
        assert self.whole is not None
        return max(1, (self.whole - 1).bit_length())

    @property
    def blocks(self) -> Blocks:
        return (*self._mark_blocks, Block("bits", self._width))

    def encode(self, codes: Codes, places: Places, uniform: Places) -> Features:
        assert self.whole is not None
        missing = np.isnan(places)
        index = np.where(missing, 0, _index(np.where(missing, 0.0, places), self.whole))
        powers = 1 << np.arange(self._width)[::-1]
        return np.c_[self._mark(missing), (index[:, None] // powers) % 2]

    def decode(self, features: Features) -> tuple[Codes, Places]:
        assert self.whole is not None
        powers = 1 << np.arange(self._width)[::-1]
        index = (features[:, -self._width :] > 0.5) @ powers
        # A code that no value has is above all of them: the nearest allowed is the greatest.
        places = (np.minimum(index, self.whole - 1) + 0.5) / self.whole
        return self._coded(places, self._marked(features))

    def shares(self, marginal: np.ndarray) -> np.ndarray:
        return self._mark_shares(marginal, self._width)


@dataclasses.dataclass(frozen=True)
class Modes(Number):
    """A number as a component of a mixture, and where it lies within four standard deviations of its mean.

    One more level, where it may be missing, says so.
    """

    kind: ClassVar[str] = "modes"
    means: tuple[float, ...]
    stddevs: tuple[float, ...]
    weights: tuple[float, ...]
    run_edges: tuple[float, ...] = ()
    run_masses: tuple[float, ...] = ()
    """The histogram that the components were made of. It is not kept in a release, which never needs it."""

    @property
    def blocks(self) -> Blocks:
        return (Block("one_hot", len(self.means) + self.nullable), Block("tanh", 1))

    def encode(self, codes: Codes, places: Places, uniform: Places) -> Features:
        """A component by its posterior, drawn with the row's own uniform number."""
        missing = np.isnan(places)
        known = np.where(missing, 0.5, places)
        odds = np.cumsum(self._posterior(known), axis=1)
        chosen = np.minimum((uniform[:, None] >= odds / odds[:, -1:]).sum(axis=1), len(self.means) - 1)
        means, reach = np.asarray(self.means)[chosen], REACH * np.asarray(self.stddevs)[chosen]
        along = np.where(missing, 0.0, np.clip((known - means) / reach, -1.0, 1.0))
        levels = np.eye(len(self.means) + self.nullable)[np.where(missing, len(self.means), chosen)]
        return np.c_[levels, along]

    def decode(self, features: Features) -> tuple[Codes, Places]:
        level = features[:, :-1].argmax(axis=1)
        missing = level >= len(self.means)
        chosen = np.where(missing, 0, level)
        along = np.clip(features[:, -1].astype(float), -1.0, 1.0)
        places = np.asarray(self.means)[chosen] + REACH * np.asarray(self.stddevs)[chosen] * along
        return self._coded(self._snapped(places), missing)

    def shares(self, marginal: np.ndarray) -> np.ndarray:
        middles = (np.asarray(self.run_edges[1:]) + np.asarray(self.run_edges[:-1])) / 2
        shares = np.asarray(self.run_masses) @ self._posterior(middles)
        null = self._null_share(marginal)
        return np.r_[shares / shares.sum() * (1 - null), [null] if self.nullable else [], 0.0]

    def _posterior(self, places: Places) -> Float[np.ndarray, "rows components"]:
        logs = _log_densities(places, np.zeros_like(places), self.means, self.stddevs, self.weights)
        logs = np.exp(logs - logs.max(axis=1, keepdims=True))
        return logs / logs.sum(axis=1, keepdims=True)


ColumnLayout = Levels | Line | Bits | Modes
KINDS: dict[str, type[ColumnLayout]] = {cls.kind: cls for cls in (Levels, Line, Bits, Modes)}


def _index(places: Places, whole: int) -> np.ndarray:
    """Which whole number a place stands for, counted from the lower bound."""
    return np.clip(np.floor(places * whole), 0, whole - 1)


# --------------------------------------------------------------------------------------------------------------- tables


@dataclasses.dataclass(frozen=True)
class Layout:
    """All columns of a table, in the domain's order."""

    columns: tuple[ColumnLayout, ...]

    @property
    def blocks(self) -> Blocks:
        return tuple(block for column in self.columns for block in column.blocks)

    @property
    def sizes(self) -> tuple[int, ...]:
        """Codes of each column."""
        return tuple(column.size for column in self.columns)

    @property
    def discrete(self) -> tuple[int | None, ...]:
        """For each block the column that it shows level by level; None: it shows none so. Conditions stand on these."""
        return tuple(
            number if isinstance(column, Levels) else None
            for number, column in enumerate(self.columns)
            for _ in column.blocks
        )

    def encode(
        self, codes: Int[np.ndarray, "rows columns"], places: Float[np.ndarray, "rows columns"], key: PRNGKeyArray
    ) -> Features:
        """Features of each row.

        Formal guarantee: row i of the result is a function of row i and of the i-th stretch of the key's randomness,
        which is independent of the others'. So whatever clips and adds rows afterwards keeps its sensitivity.
        """
        uniform = np.random.default_rng(np.asarray(jax.random.key_data(key))).random(codes.shape)
        parts = [
            column.encode(codes[:, at], places[:, at], uniform[:, at]).astype(np.float32)
            for at, column in enumerate(self.columns)
        ]
        return np.concatenate(parts, axis=1)

    def decode(self, features: Features) -> tuple[Int[np.ndarray, "rows columns"], Float[np.ndarray, "rows columns"]]:
        """Codes, and places of the numbers; NaN where a value follows from its code alone."""
        ends = np.cumsum([num_features(column.blocks) for column in self.columns])
        drawn = [
            column.decode(part)
            for column, part in zip(self.columns, np.split(features, ends[:-1], axis=1), strict=True)
        ]
        codes, places = zip(*drawn, strict=True)
        return np.stack(codes, axis=1).astype(np.int32), np.stack(places, axis=1)

    def shares(self, marginals: Sequence[np.ndarray]) -> Float[np.ndarray, " features"]:
        """The mean of each level by bought one-way shares of the codes; zero for features that are no levels."""
        return np.concatenate(
            [column.shares(marginal) for column, marginal in zip(self.columns, marginals, strict=True)]
        )

    def to_list(self) -> list[dict[str, object]]:
        """For JSON."""
        return [
            {"kind": column.kind}
            | {
                field.name: getattr(column, field.name)
                for field in dataclasses.fields(column)
                if not field.name.startswith("run_")
            }
            for column in self.columns
        ]

    @classmethod
    def from_list(cls, content: Sequence[Mapping]) -> "Layout":
        def column(entry: Mapping) -> ColumnLayout:
            facts: dict[str, Any] = {
                k: tuple(value) if isinstance(value, list) else value for k, value in entry.items()
            }
            return KINDS[facts.pop("kind")](**facts)

        return cls(tuple(column(entry) for entry in content))


def layout_of(
    features: str,
    domain: Domain,
    scales: Sequence[Scale | None],
    marginals: Sequence[np.ndarray] | None,
    *,
    modes: str = "bought",
    num_modes: int = 10,
) -> Layout:
    """The layout of a table by public and bought facts: its scales, and noisy shares of its codes if there are any."""
    columns = []
    for at, (size, scale) in enumerate(zip(domain.sizes, scales, strict=True)):
        known = None if marginals is None else marginals[at]
        columns.append(_column_layout(features, size, scale, known, modes, num_modes))
    return Layout(tuple(columns))


def _column_layout(
    features: str, size: int, scale: Scale | None, marginal: np.ndarray | None, modes: str, num_modes: int
) -> ColumnLayout:
    if features == "binned" or scale is None:
        return Levels(size)
    few = scale.whole is not None and scale.whole <= FEW
    number = (scale.edges, scale.whole, scale.nullable)
    if features == "typed":
        return Bits(*number) if few else Line(*number)
    if few:
        return Levels(size)
    masses = _run_masses(scale, marginal)
    if modes == "public_grid":
        means = (np.arange(num_modes) + 0.5) / num_modes
        stddevs, weights = np.full(num_modes, 1 / (REACH * num_modes)), np.full(num_modes, 1 / num_modes)
    else:
        means, stddevs, weights = weighted_mixture(np.asarray(scale.run_edges), masses, num_modes)
    fitted = [tuple(values.tolist()) for values in (means, stddevs, weights)]
    return Modes(*number, fitted[0], fitted[1], fitted[2], scale.run_edges, tuple(masses.tolist()))


def _run_masses(scale: Scale, marginal: np.ndarray | None) -> np.ndarray:
    """Shares of the fine histogram's runs; where the bins were counted once more, their runs share that count."""
    masses = np.asarray(scale.run_masses) + 1e-9 * np.diff(scale.run_edges)
    if marginal is None:
        return masses / masses.sum()
    bin_of = np.searchsorted(scale.first_run[1:-1], np.arange(len(masses)), side="right")
    inside = np.bincount(bin_of, weights=masses)
    masses = masses / inside[bin_of] * np.asarray(marginal)[bin_of]
    return masses / masses.sum()


# ------------------------------------------------------------------------------------------------------------- mixtures


def weighted_mixture(
    edges: Float[np.ndarray, " edges"], masses: Float[np.ndarray, " cells"], most: int, *, iterations: int = 200
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Means, standard deviations and weights of at most `most` normal components, by EM on the cells of a histogram.

    A cell counts with its mass at its middle, and with the variance that an even spread over it has. No component is
    narrower than the cells it is made of. Post-processing of a bought histogram.
    """
    widths, middles = np.diff(edges), (edges[1:] + edges[:-1]) / 2
    most = min(most, len(middles))
    spread = widths**2 / 12
    # Begins with equal masses: each component has one stretch of the cumulated histogram.
    means = np.interp((np.arange(most) + 0.5) / most, np.r_[0.0, np.cumsum(masses)], edges)
    overall = math.sqrt(masses @ ((middles - masses @ middles) ** 2 + spread))
    stddevs, weights = np.full(most, max(overall / most, 1e-9)), np.full(most, 1 / most)
    for _ in range(iterations):
        logs = _log_densities(middles, spread, means, stddevs, weights)
        resp = np.exp(logs - logs.max(axis=1, keepdims=True))
        resp = masses[:, None] * resp / resp.sum(axis=1, keepdims=True)
        total = np.maximum(resp.sum(axis=0), 1e-12)
        means = middles @ resp / total
        moments = ((middles[:, None] - means) ** 2 + spread[:, None]) * resp
        stddevs = np.maximum(np.sqrt(moments.sum(axis=0) / total), np.maximum(widths @ resp / total, 1e-9))
        weights = total / total.sum()
    heavy = weights >= min(LIGHT, weights.max())
    return means[heavy], stddevs[heavy], weights[heavy] / weights[heavy].sum()


def _log_densities(
    places: Places, spread: Places, means: Numbers, stddevs: Numbers, weights: Numbers
) -> Float[np.ndarray, "rows components"]:
    """Of each component at each place, averaged over an even stretch of this variance (to second order)."""
    variances = np.asarray(stddevs) ** 2
    squares = (places[:, None] - np.asarray(means)) ** 2 + spread[:, None]
    return np.log(np.asarray(weights)) - np.log(variances) / 2 - squares / (2 * variances)
