"""Features of networks: a layout turns codes and positions into features, and features back into both.

`typed` encodes a number as one bounded value or a few bits, a cyclic number as a point on the circle, and a category
one-hot; `modes` is the mode-specific normalisation of CTGAN (Xu et al. 2019). In both, a number that many rows share,
such as zero among amounts, and a declared special value are categories, except in columns that are encoded as bits.
Codes are the codec's, and a position is that of a number between its bounds, from 0 to 1. The features of a row depend
on public facts, private estimates, the row itself and its own randomness, and on no other row.

CTGAN fits its mixtures to the rows. Here they are fitted to the privately estimated histogram, which is
post-processing, and no component is narrower than a bin of it.
"""

import abc
import dataclasses
import itertools
import math
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, NamedTuple

import jax
import numpy as np
from jaxtyping import Float, Int, PRNGKeyArray

from understudy.privacy.mechanisms.discovery import rounded
from understudy.schema import Domain, NumericDomain

FEATURES = ("binned", "typed", "modes")
FEW = 15
"""Integer columns with at most this many values are bits in `typed`, and one-hot in `modes`."""
LIGHT = 0.005
"""Components of less weight are dropped, as in CTGAN."""
MIN_FRACTION = 1e-6
"""Of the numbers that are no category, where all that have a mass are: networks begin at its logarithm."""
REACH = 4.0
"""The half-width of a component's range, in standard deviations."""

Positions = Float[np.ndarray, " rows"]
Codes = Int[np.ndarray, " rows"]
Features = Float[np.ndarray, "rows features"]
Numbers = Sequence[float] | np.ndarray


class Values(NamedTuple):
    """The values of a column, row by row."""

    codes: Codes
    positions: Positions
    """The positions of numbers; NaN where one is missing."""
    uniform: Positions
    """A random number of each row's own, from 0 to 1."""


# --------------------------------------------------------------------------------------------------------------- blocks


class Block(NamedTuple):
    """A group of features: "one_hot" of `size` categories, "bits" of `size` digits, or `size` "tanh" numbers."""

    kind: str
    size: int


Blocks = tuple[Block, ...]


def is_one_hot(blocks: Blocks) -> np.ndarray:
    """Which features belong to one-hot blocks."""
    return np.repeat([block.kind == "one_hot" for block in blocks], [block.size for block in blocks])


def num_features(blocks: Blocks) -> int:
    return sum(block.size for block in blocks)


def starts(blocks: Blocks) -> list[int]:
    """The first feature of each block."""
    return list(itertools.accumulate((block.size for block in blocks[:-1]), initial=0)) if blocks else []


# -------------------------------------------------------------------------------------------------------------- columns


@dataclasses.dataclass(frozen=True)
class OneHot:
    """A column's codes, one-hot."""

    kind: ClassVar[str] = "one_hot"
    size: int

    @property
    def blocks(self) -> Blocks:
        return (Block("one_hot", self.size),)

    def encode(self, values: Values) -> Features:
        return np.asarray(np.eye(self.size)[values.codes])

    def decode(self, features: Features) -> tuple[Codes, Positions]:
        return features.argmax(axis=1), np.full(len(features), np.nan)

    def estimated_means(self, marginal: np.ndarray) -> np.ndarray:
        """The estimated mean of each feature; zero if it is not known."""
        return marginal


@dataclasses.dataclass(frozen=True)
class Bit:
    """A column of two codes as one digit: 0 or 1."""

    kind: ClassVar[str] = "bit"
    size: int = 2

    @property
    def blocks(self) -> Blocks:
        return (Block("bits", 1),)

    def encode(self, values: Values) -> Features:
        return values.codes[:, None].astype(float)

    def decode(self, features: Features) -> tuple[Codes, Positions]:
        return (features[:, 0] > 0.5).astype(int), np.full(len(features), np.nan)

    def estimated_means(self, marginal: np.ndarray) -> np.ndarray:
        """Unknown: noisy marginals constrain one-hot features alone."""
        return np.zeros(1)


@dataclasses.dataclass(frozen=True)
class Number:
    """The common part of the layouts of a number: its bins, whether it is an integer, and whether it may be missing.

    Shared numbers and nulls are categories, encoded one-hot; all other numbers have features of their own.
    """

    edges: tuple[float, ...]
    """The positions of the bins' edges, from 0 to 1."""
    whole: int | None
    """The number of integers between the bounds; None: the column is not of integers."""
    nullable: bool
    shared: tuple[int, ...]
    """The codes of numbers that many rows share, and of declared special values."""

    @property
    def size(self) -> int:
        return len(self.edges) - 1 + self.nullable

    @property
    def _categories(self) -> np.ndarray:
        """The codes that are categories: shared numbers, and missing ones."""
        return np.asarray([*self.shared, *([len(self.edges) - 1] if self.nullable else [])], dtype=np.int64)

    def _category(self, values: Values) -> Codes:
        """Which of the categories each value is; -1: none."""
        missing = np.asarray(np.where(np.isnan(values.positions) & self.nullable, len(self.shared), -1))
        if not self.shared:
            return missing
        is_shared = values.codes[:, None] == np.asarray(self.shared)
        return np.asarray(np.where(is_shared.any(axis=1), is_shared.argmax(axis=1), missing))

    def _snap(self, positions: Positions) -> Positions:
        """Positions of integers, rounded to the middle of their part of [0, 1]."""
        positions = np.clip(positions, 0.0, 1.0)
        return positions if self.whole is None else (_index(positions, self.whole) + 0.5) / self.whole

    def _to_codes(self, positions: Positions, category: Codes) -> tuple[Codes, Positions]:
        """Codes and positions, given which category each value is; -1: none."""
        # Features have single precision, and edges are values that many rows have.
        inner = np.asarray(self.edges[1:-1]) - 2.0**-24
        bins = np.searchsorted(inner, positions, side="right")
        codes = np.r_[self._categories, 0][category]
        return np.where(category < 0, bins, codes), np.where(category < 0, positions, np.nan)

    def _of_categories(self, marginal: np.ndarray) -> np.ndarray:
        """The fraction of all rows that each category has."""
        return np.asarray(np.asarray(marginal)[self._categories])


class Marked(Number, abc.ABC):
    """A number; in columns with categories, after a one-hot block that says which category it is, or none.

    The other features of a category are zero.
    """

    @property
    @abc.abstractmethod
    def _block(self) -> Block:
        """The features of a number that is no category."""

    @abc.abstractmethod
    def _express(self, positions: Positions) -> Features:
        """The features of numbers at these positions."""

    @abc.abstractmethod
    def _locate(self, features: Features) -> Positions:
        """The inverse of `_express`."""

    @property
    def blocks(self) -> Blocks:
        categories = len(self._categories)
        return (Block("one_hot", 1 + categories), self._block) if categories else (self._block,)

    def encode(self, values: Values) -> Features:
        category = self._category(values)[:, None]
        number = np.where(category < 0, self._express(np.nan_to_num(values.positions)), 0.0)
        marks = category == np.arange(-1, len(self._categories))
        return np.concatenate([marks, number], axis=1) if len(self._categories) else number

    def decode(self, features: Features) -> tuple[Codes, Positions]:
        marks, number = np.split(features, [-self._block.size], axis=1)
        category = marks.argmax(axis=1) - 1 if marks.shape[1] else np.full(len(features), -1)
        return self._to_codes(self._snap(self._locate(number.astype(float))), category)

    def estimated_means(self, marginal: np.ndarray) -> np.ndarray:
        categories = self._of_categories(marginal)
        marks = [max(1 - categories.sum(), MIN_FRACTION), *categories] if len(categories) else []
        return np.concatenate([marks, np.zeros(self._block.size)])


@dataclasses.dataclass(frozen=True)
class Line(Marked):
    """A number between its bounds, from -1 to 1."""

    kind: ClassVar[str] = "line"
    _block: ClassVar[Block] = Block("tanh", 1)

    def _express(self, positions: Positions) -> Features:
        return 2 * positions[:, None] - 1

    def _locate(self, features: Features) -> Positions:
        return np.asarray((features[:, 0] + 1) / 2)


@dataclasses.dataclass(frozen=True)
class Circle(Marked):
    """A cyclic number as the cosine and the sine of its angle, so that both ends of the cycle are neighbours."""

    kind: ClassVar[str] = "circle"
    _block: ClassVar[Block] = Block("tanh", 2)

    def _express(self, positions: Positions) -> Features:
        angles = 2 * np.pi * positions
        return np.stack([np.cos(angles), np.sin(angles)], axis=1)

    def _locate(self, features: Features) -> Positions:
        return np.asarray(np.mod(np.arctan2(features[:, 1], features[:, 0]) / (2 * np.pi), 1.0))


@dataclasses.dataclass(frozen=True)
class Bits(Marked):
    """An integer of few values, counted from its lower bound, as bits: the most significant first."""

    kind: ClassVar[str] = "bits"
    whole: int

    @property
    def _block(self) -> Block:
        return Block("bits", max(1, (self.whole - 1).bit_length()))

    @property
    def _powers(self) -> np.ndarray:
        return np.asarray(1 << np.arange(self._block.size)[::-1])

    def _express(self, positions: Positions) -> Features:
        return np.asarray(_index(positions, self.whole)[:, None] // self._powers % 2)

    def _locate(self, features: Features) -> Positions:
        # Bits that no value has are above all of them: the nearest value is the largest.
        return np.asarray((np.minimum((features > 0.5) @ self._powers, self.whole - 1) + 0.5) / self.whole)


@dataclasses.dataclass(frozen=True)
class Modes(Number):
    """A number as a component of a mixture, and its position within four standard deviations of the component's mean.

    The one-hot block has one more category for each number that many rows share, and for missing ones.
    """

    kind: ClassVar[str] = "modes"
    means: tuple[float, ...]
    stddevs: tuple[float, ...]
    weights: tuple[float, ...]
    fine_edges: tuple[float, ...] = ()
    fine_masses: tuple[float, ...] = ()
    """The histogram that the components were fitted to, without categories. A release does not keep it."""

    @property
    def blocks(self) -> Blocks:
        return (Block("one_hot", len(self.means) + len(self._categories)), Block("tanh", 1))

    def encode(self, values: Values) -> Features:
        """A component drawn from its posterior, with the row's own uniform number."""
        category = self._category(values)
        known = np.nan_to_num(values.positions, nan=0.5)
        odds = np.cumsum(self._posterior(known), axis=1)
        chosen = np.minimum((values.uniform[:, None] >= odds / odds[:, -1:]).sum(axis=1), len(self.means) - 1)
        means, reach = np.asarray(self.means)[chosen], REACH * np.asarray(self.stddevs)[chosen]
        along = np.where(category < 0, np.clip((known - means) / reach, -1.0, 1.0), 0.0)
        block = np.where(category < 0, chosen, len(self.means) + category)
        return np.column_stack([np.eye(len(self.means) + len(self._categories))[block], along])

    def decode(self, features: Features) -> tuple[Codes, Positions]:
        block = features[:, :-1].argmax(axis=1)
        category = np.where(block < len(self.means), -1, block - len(self.means))
        chosen = np.where(category < 0, block, 0)
        along = np.clip(features[:, -1].astype(float), -1.0, 1.0)
        positions = np.asarray(self.means)[chosen] + REACH * np.asarray(self.stddevs)[chosen] * along
        return self._to_codes(self._snap(positions), category)

    def estimated_means(self, marginal: np.ndarray) -> np.ndarray:
        middles = (np.asarray(self.fine_edges[1:]) + np.asarray(self.fine_edges[:-1])) / 2
        weights = np.asarray(self.fine_masses) @ self._posterior(middles)
        categories = self._of_categories(marginal)
        return np.concatenate([weights / weights.sum() * max(1 - categories.sum(), MIN_FRACTION), categories, [0.0]])

    def _posterior(self, positions: Positions) -> Float[np.ndarray, "rows components"]:
        logs = _log_densities(positions, np.zeros_like(positions), self.means, self.stddevs, self.weights)
        logs = np.exp(logs - logs.max(axis=1, keepdims=True))
        return np.asarray(logs / logs.sum(axis=1, keepdims=True))


ColumnLayout = OneHot | Bit | Line | Circle | Bits | Modes
KINDS: dict[str, type[ColumnLayout]] = {cls.kind: cls for cls in (OneHot, Bit, Line, Circle, Bits, Modes)}


def _index(positions: Positions, whole: int) -> np.ndarray:
    """The integer at a position, counted from the lower bound."""
    return np.asarray(np.clip(np.floor(positions * whole), 0, whole - 1))


# --------------------------------------------------------------------------------------------------------------- tables


@dataclasses.dataclass(frozen=True)
class Layout:
    """All columns of a table, in the domain's order."""

    columns: tuple[ColumnLayout, ...]

    @property
    def blocks(self) -> Blocks:
        return tuple(block for column in self.columns for block in column.blocks)

    @property
    def discrete(self) -> tuple[int | None, ...]:
        """For each block the column whose codes it one-hot encodes, or None. Conditional training uses these blocks."""
        return tuple(
            number if isinstance(column, OneHot) else None
            for number, column in enumerate(self.columns)
            for _ in column.blocks
        )

    def encode(
        self, codes: Int[np.ndarray, "rows columns"], positions: Float[np.ndarray, "rows columns"], key: PRNGKeyArray
    ) -> Features:
        """The features of each row.

        Formal guarantee: row i of the result is a function of row i and of its own part of the key's randomness, which
        is independent of the other parts. So clipped sums over the result keep their sensitivity.
        """
        uniform = np.random.default_rng(np.asarray(jax.random.key_data(key))).random(codes.shape)
        parts = [
            column.encode(Values(codes[:, at], positions[:, at], uniform[:, at])).astype(np.float32)
            for at, column in enumerate(self.columns)
        ]
        return np.concatenate(parts, axis=1)

    def decode(self, features: Features) -> tuple[Int[np.ndarray, "rows columns"], Float[np.ndarray, "rows columns"]]:
        """Codes, and positions of numbers; NaN where a value follows from its code alone."""
        ends = np.cumsum([num_features(column.blocks) for column in self.columns])
        drawn = [
            column.decode(part)
            for column, part in zip(self.columns, np.split(features, ends[:-1], axis=1), strict=True)
        ]
        codes, positions = zip(*drawn, strict=True)
        return np.stack(codes, axis=1).astype(np.int32), np.stack(positions, axis=1)

    def estimated_means(self, marginals: Sequence[np.ndarray]) -> Float[np.ndarray, " features"]:
        """The estimated mean of each one-hot feature, by estimated 1-way marginals; zero for other features."""
        return np.concatenate(
            [column.estimated_means(marginal) for column, marginal in zip(self.columns, marginals, strict=True)]
        )

    def to_list(self) -> list[dict[str, object]]:
        """For JSON."""
        return [
            {"kind": column.kind}
            | {
                field.name: getattr(column, field.name)
                for field in dataclasses.fields(column)
                if not field.name.startswith("fine_")
            }
            for column in self.columns
        ]

    @classmethod
    def from_list(cls, content: Sequence[Mapping[str, Any]]) -> "Layout":
        def column(entry: Mapping[str, Any]) -> ColumnLayout:
            facts = {k: tuple(value) if isinstance(value, list) else value for k, value in entry.items() if k != "kind"}
            return KINDS[entry["kind"]](**facts)  # type: ignore[arg-type]  # as `to_list` wrote them

        columns = tuple(column(entry) for entry in content)
        if any(code not in range(column.size) for column in columns for code in getattr(column, "shared", ())):
            raise ValueError("shared numbers that no column has")
        return cls(columns)


def layout_of(
    features: str,
    domain: Domain,
    scales: Sequence[NumericDomain | None],
    marginals: Sequence[np.ndarray] | None,
    *,
    num_modes: int = 10,
    binary: str = "one_hot",
) -> Layout:
    """The layout of a table by public facts and private estimates: its numeric domains, and, if given, 1-way
    marginals."""
    columns: list[ColumnLayout] = []
    for at, (size, scale) in enumerate(zip(domain.sizes, scales, strict=True)):
        known = None if marginals is None else marginals[at]
        is_bit = binary == "bit" and scale is None and size == 2
        columns.append(Bit() if is_bit else _column_layout(features, size, scale, known, num_modes))
    return Layout(tuple(columns))


def _column_layout(
    features: str, size: int, scale: NumericDomain | None, marginal: np.ndarray | None, num_modes: int
) -> ColumnLayout:
    if features == "binned" or scale is None:
        return OneHot(size)
    few = scale.whole if scale.whole is not None and scale.whole <= FEW else None
    number = (scale.edges, scale.whole, scale.nullable, scale.shared)
    if features == "typed" and scale.cyclic:
        return Circle(*number)
    if features == "typed":  # bits represent every value exactly, so none needs a category
        return Line(*number) if few is None else Bits(scale.edges, few, scale.nullable, ())
    if few is not None:
        return OneHot(size)
    masses = _fine_masses(scale, marginal)
    mixture = weighted_mixture(np.asarray(scale.fine_edges), masses, num_modes)
    fitted = [tuple(rounded(values).tolist()) for values in mixture]
    return Modes(*number, fitted[0], fitted[1], fitted[2], scale.fine_edges, tuple(masses.tolist()))


def _fine_masses(scale: NumericDomain, marginal: np.ndarray | None) -> np.ndarray:
    """The probabilities of the fine bins without shared numbers, scaled to the marginal over bins if there is one."""
    masses = scale.positive_masses
    bin_of = np.searchsorted(scale.first_fine_bin[1:-1], np.arange(len(masses)), side="right")
    if marginal is not None:
        inside = np.bincount(bin_of, weights=masses)
        masses = masses / inside[bin_of] * np.asarray(marginal)[bin_of]
    others = masses * ~np.isin(bin_of, scale.shared)
    masses = others if others.sum() > 0 else masses
    return np.asarray(masses / masses.sum())


# ------------------------------------------------------------------------------------------------------------- mixtures


def weighted_mixture(
    edges: Float[np.ndarray, " edges"],
    masses: Float[np.ndarray, " bins"],
    max_components: int,
    *,
    iterations: int = 200,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Means, standard deviations and weights of at most `max_components` normal components, by EM on a histogram.

    A bin counts with its mass at its middle, and with the variance of a uniform distribution over it. No component is
    narrower than its bins. Post-processing of an estimated histogram.
    """
    widths, middles = np.diff(edges), (edges[1:] + edges[:-1]) / 2
    size = min(max_components, len(middles))
    spread = widths**2 / 12
    # Start with equal masses: each component at its quantile of the histogram.
    means = np.interp((np.arange(size) + 0.5) / size, np.r_[0.0, np.cumsum(masses)], edges)
    overall = math.sqrt(masses @ ((middles - masses @ middles) ** 2 + spread))
    stddevs, weights = np.full(size, max(overall / size, 1e-9)), np.full(size, 1 / size)
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
    positions: Positions, spread: Positions, means: Numbers, stddevs: Numbers, weights: Numbers
) -> Float[np.ndarray, "rows components"]:
    """The log density of each component at each position, averaged over a uniform spread of this variance (to second
    order)."""
    variances = np.asarray(stddevs) ** 2
    squares = (positions[:, None] - np.asarray(means)) ** 2 + spread[:, None]
    return np.asarray(np.log(np.asarray(weights)) - np.log(variances) / 2 - squares / (2 * variances))
