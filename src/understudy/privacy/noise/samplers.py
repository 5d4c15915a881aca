"""Exact samplers: given uniform bits, samples follow their distribution exactly, not a float approximation of it.

Every random decision has the form "is a uniform number U in [0, 1) less than p?". The first 64 bits of U are compared
with p computed in floats whose error is bounded. Where the two are closer than the bound (a fraction of about 2^-40
of the decisions), more bits of U are read and p is computed with more digits, until the comparison is certain. So no
decision is affected by rounding, and none depends on how a machine computes its floats.
"""

import abc
import decimal
import functools
import hashlib
import itertools
import math
import struct
from collections.abc import Callable
from fractions import Fraction

import numpy as np
from jaxtyping import Bool, Float, Int64, UInt64

CHUNK = 2**16
"""Cells that are drawn together, to bound memory. With another chunk size the same secret gives other noise."""
EPSILON = 2.0**-53
"""Relative error of one rounding to a float."""
FAR = 2000.0
"""Standard deviations beyond which an acceptance probability is less than 2^-64, whatever the layer."""
EXACTLY = False
"""Whether every decision takes the high-precision path. For tests: it must not change any result."""


class BitStream:
    """Uniform bits expanded from a secret, as many as needed, in parts that are identified by integer labels.

    Each part is SHAKE-256 of the seed and the encoded label. The seed begins with a secret of 256 bits, and SHAKE-256
    with a secret prefix is a pseudorandom function of what follows: a sponge needs no HMAC around it, since its output
    does not reveal the 512 bits of its capacity. So parts are independent and uniform to anyone who cannot try 2^256
    secrets. Encodings are injective: no two parts share an input.
    """

    def __init__(self, seed: bytes):
        self._seed = hashlib.shake_256(seed)

    def words(self, count: int, *label: int) -> UInt64[np.ndarray, " count"]:
        """The first `count` 64-bit words of one part."""
        part = self._seed.copy()
        part.update(encoded(*label))
        return np.frombuffer(part.digest(8 * count), dtype="<u8").astype(np.uint64, copy=False)

    def word(self, *label: int) -> int:
        return int(self.words(1, *label)[0])


def encoded(*parts: int | float | str | bytes) -> bytes:
    """An injective encoding: the number of parts, then for each one its type, its length and its bytes."""
    data = struct.pack(">Q", len(parts))
    for part in parts:
        match part:
            case int():
                mark, content = b"i", str(part).encode()
            case float():
                mark, content = b"f", struct.pack(">d", part)
            case str():
                mark, content = b"s", part.encode()
            case bytes():
                mark, content = b"b", part
        data += mark + struct.pack(">Q", len(content)) + content
    return data


class Uniform:
    """A uniform number in [0, 1): its first 64 bits, and more from `next_word` when a comparison needs them."""

    def __init__(self, first: int, next_word: Callable[[int], int]):
        self._bits, self._num_bits, self._next_word = first, 64, next_word

    def is_below_exp(self, x: Fraction, over: Fraction = Fraction(1)) -> bool:
        """Whether it is less than exp(-x) / over, for x >= 0 and over > 0. Terminates with probability one."""
        while True:
            low, high = exp_bounds(x, self._num_bits)
            unit = over / 2**self._num_bits
            if (self._bits + 1) * unit <= low:
                return True
            if self._bits * unit >= high:
                return False
            self._bits = (self._bits << 64) | self._next_word(self._num_bits // 64)
            self._num_bits += 64


def exp_bounds(x: Fraction, num_bits: int) -> tuple[Fraction, Fraction]:
    """Numbers below and above exp(-x), for x >= 0, that differ by much less than 2^-num_bits."""
    if x > num_bits:
        return Fraction(0), Fraction(1, 2**num_bits)
    digits = 30 + num_bits // 3

    def rounded(rounding: str) -> decimal.Decimal:
        context = decimal.Context(prec=digits, rounding=rounding, traps=[])
        return context.divide(decimal.Decimal(x.numerator), decimal.Decimal(x.denominator))

    context = decimal.Context(prec=digits, traps=[])  # its exp is correctly rounded: the true value is next to it
    low = context.next_minus(context.exp(rounded(decimal.ROUND_CEILING).copy_negate()))
    high = context.next_plus(context.exp(rounded(decimal.ROUND_FLOOR).copy_negate()))
    return Fraction(low), Fraction(high)


# -------------------------------------------------------------------------------------- discrete Gaussian and Laplace


def discrete_gaussian(stream: BitStream, stddev: float, count: int) -> Int64[np.ndarray, " count"]:
    """Integers x with probability proportional to exp(-x^2 / (2 stddev^2)), for the exact value of the float `stddev`.

    Rejection from layers (Canonne, Kamath and Steinke 2020, algorithm 3, with its two rejections combined). Let
    t = floor(stddev) + 1. A candidate is y = u + t v with a random sign, u uniform in {0, ..., t - 1} and v geometric,
    P(v) proportional to e^-v. It is accepted with probability exp(-a),

        a = y^2 / (2 stddev^2) - v + stddev^2 / (2 t^2) = u / t + (y - stddev^2 / t)^2 / (2 stddev^2) >= 0,

    and negative zero is always rejected. Then P(candidate) P(accept) is proportional to exp(-y^2 / (2 stddev^2)) for
    either sign.
    """
    return _draw(stream, _GaussianLaw(stddev), count)


def discrete_laplace(stream: BitStream, scale: Fraction, count: int) -> Int64[np.ndarray, " count"]:
    """Integers x with probability proportional to exp(-|x| / scale).

    Rejection from the same layers (Canonne, Kamath and Steinke 2020, algorithm 2, for a scale that is not whole). Let
    t = ceil(scale). A candidate y = u + t v, as above, is accepted with probability exp(-a),

        a = y / scale - v = (u + v (t - scale)) / scale >= 0,

    and negative zero is always rejected. Then P(candidate) P(accept) is proportional to exp(-y / scale) for either
    sign.
    """
    return _draw(stream, _LaplaceLaw(scale), count)


def _draw(stream: BitStream, law: "_Law", count: int) -> Int64[np.ndarray, " count"]:
    chunks = [
        _chunk(stream, law, number, min(CHUNK, count - start)) for number, start in enumerate(range(0, count, CHUNK))
    ]
    return np.concatenate([np.zeros(0, dtype=np.int64), *chunks])


def _chunk(stream: BitStream, law: "_Law", chunk: int, count: int) -> Int64[np.ndarray, " count"]:
    """Candidates for all cells, then again for the cells whose candidate was rejected, and so on."""
    drawn, left = np.zeros(count, dtype=np.int64), np.arange(count)
    for attempt in itertools.count():
        words = stream.words(3 * len(left), chunk, attempt).reshape(3, -1)
        values, accepted, doubtful = law.candidates(words)
        for at in np.flatnonzero(doubtful):
            more = functools.partial(stream.word, chunk, attempt, int(at))
            exact = law.exact_candidate([int(word) for word in words[:, at]], more)
            values[at], accepted[at] = exact or 0, exact is not None
        drawn[left[accepted]] = values[accepted]
        left = left[~accepted]
        if not len(left):
            return drawn
    raise AssertionError


class _Law(abc.ABC):
    """Layers of one width t, and one round of candidates: in arrays, and exactly for a single one."""

    def __init__(self, width: int):
        self.width = width
        self._fit = 2**63 - 2**63 % width
        """How many of the 63-bit integers to keep, so that their remainders modulo t are uniform."""

    @abc.abstractmethod
    def acceptance(
        self, size: UInt64[np.ndarray, " cells"], layer: UInt64[np.ndarray, " cells"]
    ) -> tuple[Float[np.ndarray, " cells"], Float[np.ndarray, " cells"]]:
        """2^64 exp(-a) in floats, and how far from it a uniform word must be for the comparison to be certain."""

    @abc.abstractmethod
    def exponent(self, size: int, layer: int) -> Fraction:
        """a, exactly."""

    def candidates(
        self, words: UInt64[np.ndarray, "3 cells"]
    ) -> tuple[Int64[np.ndarray, " cells"], Bool[np.ndarray, " cells"], Bool[np.ndarray, " cells"]]:
        """From three words for each cell: a signed integer, whether it is accepted, and whether that is in doubt."""
        whole, negative = words[0] >> 1, (words[0] & 1).astype(bool)
        layer, layer_doubtful = _layers(words[1])
        # Layers are at most 44 here and the width at most 2^57 + 1, so this stays below 2^63.
        size = whole % self.width + np.uint64(self.width) * layer
        chance, doubt = self.acceptance(size, layer)
        uniform = words[2].astype(np.float64)
        fits = whole < self._fit
        accepted = fits & ~(negative & (size == 0)) & (uniform < chance)
        doubtful = fits & (layer_doubtful | (np.abs(uniform - chance) <= doubt) | EXACTLY)
        value = size.astype(np.int64)
        return np.where(negative, -value, value), accepted, doubtful

    def exact_candidate(self, words: list[int], more: Callable[[int, int], int]) -> int | None:
        """The same candidate with every decision certain; None: rejected. `more(1 or 2, n)` extends that word."""
        whole, negative = words[0] >> 1, words[0] & 1
        if whole >= self._fit:
            return None
        uniform, layer = Uniform(words[1], functools.partial(more, 1)), 0
        while uniform.is_below_exp(Fraction(layer + 1)):
            layer += 1
        size = whole % self.width + self.width * layer
        if negative and size == 0:
            return None
        if not Uniform(words[2], functools.partial(more, 2)).is_below_exp(self.exponent(size, layer)):
            return None
        return -size if negative else size


class _GaussianLaw(_Law):
    """The constants of one standard deviation."""

    def __init__(self, stddev: float):
        super().__init__(int(stddev) + 1)
        self.stddev = stddev
        self._variance = Fraction(stddev) ** 2
        self._least = self._variance / (2 * self.width**2)

    def acceptance(
        self, size: UInt64[np.ndarray, " cells"], layer: UInt64[np.ndarray, " cells"]
    ) -> tuple[Float[np.ndarray, " cells"], Float[np.ndarray, " cells"]]:
        """As declared above.

        The half square s = (y / stddev)^2 / 2 has a relative error of at most 5 roundings (y to a float, the division,
        twice each; one product), so a has an absolute error of at most (7 s + 2 v + 2) roundings, and exp adds its own,
        taken to be less than 32 (16 units in the last place; libraries keep 4). The word itself is rounded once, and
        stands for an interval of length 1. Beyond FAR both numbers are less than 1.
        """
        with np.errstate(over="ignore"):
            distance = np.minimum(size / self.stddev, FAR)
        square = 0.5 * distance * distance
        chance = 2.0**64 * np.exp(layer - square - float(self._least))
        return chance, chance * (EPSILON * (8 * square + 4 * layer + 64)) + 4

    def exponent(self, size: int, layer: int) -> Fraction:
        return size**2 / (2 * self._variance) - layer + self._least


class _LaplaceLaw(_Law):
    """The constants of one scale."""

    def __init__(self, scale: Fraction):
        super().__init__(math.ceil(scale))
        self.scale = scale

    def acceptance(
        self, size: UInt64[np.ndarray, " cells"], layer: UInt64[np.ndarray, " cells"]
    ) -> tuple[Float[np.ndarray, " cells"], Float[np.ndarray, " cells"]]:
        """As declared above.

        The quotient x = y / scale has a relative error of at most 3 roundings (y and 1 / scale to floats, one
        product), so a has an absolute error of at most (4 x + v) roundings; the rest is as for the Gaussian.
        """
        quotient = size * float(1 / self.scale)
        chance = 2.0**64 * np.exp(layer - quotient)
        return chance, chance * (EPSILON * (8 * quotient + 4 * layer + 64)) + 4

    def exponent(self, size: int, layer: int) -> Fraction:
        return size / self.scale - layer


def _layers(words: UInt64[np.ndarray, " cells"]) -> tuple[UInt64[np.ndarray, " cells"], Bool[np.ndarray, " cells"]]:
    """How many k >= 1 have U < e^-k, for the numbers U that begin with these words; and where 64 bits do not decide."""
    edges = _layer_edges()
    not_above = np.searchsorted(edges, words, side="right")
    return (len(edges) - not_above).astype(np.uint64), edges[not_above - 1] == words


@functools.cache
def _layer_edges() -> UInt64[np.ndarray, " layers"]:
    """floor(2^64 e^-k) in ascending order, for k from 45, where it is 0, to 1."""
    bounds = [exp_bounds(Fraction(k), 128) for k in range(45, 0, -1)]
    floors = [{int(bound * 2**64) for bound in pair} for pair in bounds]
    assert all(len(floor) == 1 for floor in floors), "128 bits separate these numbers from integers"
    return np.asarray([floor.pop() for floor in floors], dtype=np.uint64)


# ----------------------------------------------------------------------------------------------- exponential mechanism


def exponential_choice(stream: BitStream, scores: Float[np.ndarray, " candidates"], scale: float) -> int:
    """An index i with probability proportional to exp(scores[i] / scale), for the exact values of these floats.

    Rejection from integer weights: with x_i = (max score - scores[i]) / scale and integers w_i >= 2^k exp(-x_i), an
    index is drawn in exact proportion to w_i and accepted with probability 2^k exp(-x_i) / w_i, about 1 - 2^-43
    wherever the weight matters. So one attempt is nearly always enough, and in case of doubt only one number is
    computed with high precision.
    """
    k = 62 - len(scores).bit_length()
    low, weights = weight_bounds(scores, scale, k)
    cumulative = np.cumsum(weights, dtype=np.uint64)
    total = int(cumulative[-1])
    highest = Fraction(float(scores.max()))
    for attempt in itertools.count():
        draw, first = (int(word) for word in stream.words(2, attempt))
        if draw >= 2**64 - 2**64 % total:  # so that the remainder is uniform
            continue
        at = int(np.searchsorted(cumulative, np.uint64(draw % total), side="right"))
        weight = int(weights[at])
        if (first + 1) * weight <= int(low[at]) << 64 and not EXACTLY:
            return at
        uniform = Uniform(first, functools.partial(stream.word, attempt))
        x = (highest - Fraction(float(scores[at]))) / Fraction(scale)
        if uniform.is_below_exp(x, Fraction(weight, 2**k)):
            return at
    raise AssertionError


def weight_bounds(
    scores: Float[np.ndarray, " candidates"], scale: float, k: int
) -> tuple[UInt64[np.ndarray, " candidates"], UInt64[np.ndarray, " candidates"]]:
    """Integers below and above 2^k exp((score - max score) / scale) for k <= 61; the upper ones are at least 1.

    Scores are halved so that their difference cannot overflow. The exponent has a relative error of 3 roundings, the
    exponential adds less than 32 of its own, and exponents beyond 64 give less than 1 either way: 2^9 roundings are
    more than enough.
    """
    with np.errstate(over="ignore"):
        exponent = (scores / 2 - scores.max() / 2) / (scale / 2)
    weight = np.exp(exponent) * 2.0**k
    slack = 2**9 * EPSILON
    return np.floor(weight * (1 - slack)).astype(np.uint64), (np.floor(weight * (1 + slack)) + 1).astype(np.uint64)
