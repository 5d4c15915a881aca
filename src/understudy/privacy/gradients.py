"""Per-example clipping and noise for one critic step, without per-example gradients.

A layer that computes W a + b has, for one row, the gradient d a^T, where d is the gradient of the row's loss with
respect to the layer's output. So its norm is |d| |a|, and the sum of clipped gradients is D^T diag(c) A: one backward
pass for the d of all rows, two small reductions for the norms, and the same matrix products as without privacy. A layer
that a row's loss uses several times (paired real and fake rows, several rows of one unit) has the gradient sum_k d_k
a_k^T, whose squared norm is sum_kl (a_k . a_l)(d_k . d_l). Layers without a rule, and losses that hold a gradient of
the critic (penalties), take the slow way through per-example gradients.

Needs nothing but NumPy, JAX and Equinox. To review what the critic can learn about one unit, read this file and
`sampling.py`.
"""

import dataclasses
import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray, PyTree

from understudy.errors import ConfigError
from understudy.privacy.device_noise import normals
from understudy.privacy.sampling import Draws, Units, sum_over_draw
from understudy.privacy.sums import (
    MOST_NOISE,
    SUMS_THAT_CHANGE,
    Fixed,
    add_totals,
    block_error,
    block_size,
    gamma,
    grid_error,
    grid_step,
    is_fixed,
    num_blocks,
    to_float,
    to_grid,
    total_of_blocks,
)

Loss = Callable[[Any, Any], Float[Array, ""]]
"""(critic, one unit's rows and randomness) -> the unit's loss. It may depend on nothing else that is private."""

CANCELLING = 0.03
"""Where the terms of one unit cancel, rounding of their sum matters: its norm is at least this fraction of theirs."""
LEAST_RESIDUAL = 2.0**-14
"""What is left of an input after projecting out earlier ones is zeroed below this fraction: it may be rounding."""
COUNT_STEP = 2.0**-20
"""The grid of noisy counts; exact counts are multiples of one half."""
MOST_MARGIN = 0.5
"""A margin above half of the clip bound would leave too little of a gradient."""
LEAST_INPUT = 2.0**-40
"""Smaller inputs of a layer are taken as zero: their squares vanish, and a huge gradient would pass the clip."""
LEAST_CLIP, MOST_CLIP = 1e-4, 1e4
"""Bounds of bounds: float32 noise of such sizes is neither infinite nor nothing."""
TINY = 1e-12
PIECE = 64
"""Rows whose gradients are held at once where there is no rule for a layer."""

FORBIDDEN = {
    eqx.nn.BatchNorm: "batch normalisation mixes rows, so one person's row would move every other row's gradient",
    eqx.nn.SpectralNorm: "its power iteration is a state; use spectral=True, which projects after the step",
}


class Clip(eqx.Module):
    """Bounds on what one unit adds to the sum: one for all parameters, or one for each group of them."""

    bounds: Float[Array, " groups"]
    groups: tuple[Int[Array, " units"], ...] | None = None
    """For each parameter array, the group of each entry of its first axis. None: one group."""
    allocation: str = eqx.field(static=True, default="optimal")
    """How noise is shared among groups: "uniform" or "optimal" (least total noise)."""
    is_private: bool = eqx.field(static=True, default=True)
    """False: gradients are not clipped, not rounded to a grid and get no noise, whatever the bounds are."""

    @classmethod
    def flat(cls, bound: float) -> "Clip":
        """One bound for all parameters; infinite for a run without privacy."""
        return cls(jnp.asarray([bound], dtype=jnp.float32), is_private=math.isfinite(bound))


class NoisySum(NamedTuple):
    """What leaves this file: everything in it carries noise."""

    gradient: PyTree
    within: Float[Array, " groups"] | None
    """For adaptive bounds: the number of drawn units within each bound, less half of those drawn; with noise."""


def check_critic(critic: PyTree) -> None:
    """Refuses a critic in which one row could reach another row's gradient."""
    for layer in jax.tree_util.tree_leaves(critic, is_leaf=lambda node: isinstance(node, tuple(FORBIDDEN))):
        for kind, reason in FORBIDDEN.items():
            if isinstance(layer, kind):
                raise ConfigError(f"{kind.__name__} cannot stand in a private critic: {reason}.")


def has_rules(critic: PyTree) -> bool:
    """Whether every trainable array of the critic belongs to a layer with a rule."""
    known = {id(leaf) for layer in _layers(critic) for leaf in jax.tree_util.tree_leaves(layer)}
    return all(id(leaf) in known for leaf in _parameters(critic))


# ----------------------------------------------------------------------------------------------------------- the query


def noisy_direction(
    of_unit: Loss,
    critic: PyTree,
    units: Units,
    fakes_for: Callable[[PRNGKeyArray, int], Array] | None,
    clip: Clip,
    *,
    draw: Draws,
    noise_multiplier: Float[Array, ""],
    count_stddev: float | None,
    key: PRNGKeyArray,
) -> tuple[PyTree, Float[Array, " groups"] | None]:
    """One step's look at the rows: the noisy sum of clipped gradients over a Poisson draw, and noisy counts if wanted.

    `of_unit` is the loss of one unit: (rows, which are present, fakes, key). `fakes_for` makes generated rows for
    pairing; the generator is row-wise, so a pair touches one private row. Divide by a public constant, never by the
    size of the draw.

    Formal guarantee: a Gaussian mechanism of this noise multiplier on a Poisson draw, for one unit added or removed,
    whatever the draw holds; an empty one is noise alone. Provided that `draw` comes from `poisson_draws`, by a key that
    serves nothing else.
    """
    check_critic(critic)
    part_key, noise_key = jax.random.split(key)
    chunk = draw.at.shape[-1]

    def part(drawn: Units, taken: Array, chunk_key: PRNGKeyArray) -> tuple[PyTree, Fixed]:
        keys_key, fake_key = jax.random.split(chunk_key)
        keys = jax.random.split(keys_key, chunk)
        fakes = None
        if fakes_for is not None:
            slots = drawn.rows.shape[1]
            fakes = fakes_for(fake_key, chunk * slots).reshape(chunk, slots, -1)
        taken = taken & drawn.present.any(axis=1)  # a line without rows is nobody
        return clipped_sum(of_unit, critic, (drawn.rows, drawn.present, fakes, keys), taken, clip)

    exact_sum, exact_within = sum_over_draw(part, units, draw, part_key)
    noisy = add_noise(
        exact_sum, exact_within, clip, noise_multiplier=noise_multiplier, key=noise_key, count_stddev=count_stddev
    )
    return noisy.gradient, noisy.within


def _has_rules(loss: Loss, critic: PyTree) -> bool:
    return has_rules(critic) and not getattr(loss, "differentiates_critic", False)


# ------------------------------------------------------------------------------------------------------------ the sum


def clipped_sum(
    loss: Loss, critic: PyTree, units: PyTree, taken: Bool[Array, " units"], clip: Clip
) -> tuple[PyTree, Fixed]:
    """The sum of the units' gradients, each clipped; and how many of the taken ones lay within each bound, less half.

    Both are integers on a public grid (`sums.py`), except that gradients without privacy are floats. They are exact:
    noise must be added. A unit that is not `taken` adds nothing, nor does one whose gradient is not finite.

    Formal guarantee: filling one empty slot, or filling one and replacing the unit in another, moves the computed sum
    in group j by at most `clip.bounds[j]` in L2 norm, rounding included, and each count by 1/2, provided that `loss`
    sees one unit at a time. For this, gradients are clipped to less than the bound, by `rounding_margin`.
    """
    if not _has_rules(loss, critic):
        return _sum_in_pieces(loss, critic, units, taken, clip)
    parts = _ghost_parts(loss, critic, units)
    groups = _groups(critic, clip)
    squares = _group_squares([part.squares() for part in parts], groups, len(clip.bounds))
    uses = max((part.uses for part in parts), default=1)
    block = block_size(uses, CANCELLING)
    keep, finite, within = _coefficients(squares, taken, clip, rounding_margin(_parameters(critic), block, uses))
    blocks = num_blocks(len(taken), block) if clip.is_private else 1
    leaves = [
        total_of_blocks(part.block_sums(_Weights(keep, finite, group), blocks), _steps_of(clip, group, leaf))
        for part, group, leaf in zip(parts, groups, _parameters(critic), strict=True)
    ]
    return _with_parameters(critic, leaves), within


def rounding_margin(parameters: Sequence[Array], block: int, uses: int = 1) -> float:
    """How far below its bound a norm is clipped, as a fraction of it, so that no rounding crosses the bound.

    The sum of bounds on three errors: of the block sums that change; of rounding them to the grid; and of a unit's own
    computed norm, a sum of positive numbers over inputs and outputs, and of its products. Where a layer is used several
    times for a unit, its norm is that of a combination of orthogonalised inputs: they are orthogonal up to
    gamma(inputs), coefficients are rounded relative to the terms, and residuals below LEAST_RESIDUAL are left out.
    """
    inputs = max(leaf.size // max(len(leaf), 1) if leaf.ndim else 1 for leaf in parameters)
    outputs = sum(leaf.shape[0] if leaf.ndim else 1 for leaf in parameters)
    own_norm = gamma(inputs + outputs + 32)
    if uses > 1:
        own_norm += uses * gamma(4 * (inputs + 4)) + (LEAST_RESIDUAL + gamma(16 * uses)) / CANCELLING
    entries = sum(leaf.size for leaf in parameters)
    margin = SUMS_THAT_CHANGE * (block_error(block, uses, CANCELLING) + grid_error(entries)) + own_norm
    if margin >= MOST_MARGIN:
        raise ConfigError(
            f"Clipping cannot be proven for a network of {entries:,} parameters that is used {uses} times for each "
            "unit. Use a smaller network, or lower max_rows_per_unit."
        )
    return margin


def exact_gradient(exact_sum: PyTree, clip: Clip) -> PyTree:
    """A clipped sum as floats, without noise: for tests and public rows only."""
    if not clip.is_private:
        return exact_sum
    leaves, structure = jax.tree_util.tree_flatten(exact_sum, is_leaf=is_fixed)
    groups = _group_of_leaves([leaf.high for leaf in leaves], clip)
    floats = [to_float(leaf, _steps_of(clip, group, leaf.high)) for leaf, group in zip(leaves, groups, strict=True)]
    return jax.tree_util.tree_unflatten(structure, floats)


def add_noise(
    exact_sum: PyTree,
    exact_within: Fixed,
    clip: Clip,
    *,
    noise_multiplier: Float[Array, ""] | float,
    key: PRNGKeyArray,
    count_stddev: float | None = None,
) -> NoisySum:
    """Noise on a clipped sum, once for all its chunks.

    Formal guarantee: with the noise stated below this is a Gaussian mechanism whose noise is `noise_multiplier` times
    its sensitivity: sum_j (bound_j / stddev_j)^2 = 1 / noise_multiplier^2. Noise is rounded to the grid of the sum and
    added as an integer, so the result is a function of the exact sum plus noise. Counts, if requested, are charged in
    addition (`multiplier_beside_counts`). Not covered: the float32 grid of the noise itself (64 bits per draw, up to 9
    standard deviations), timing, memory.
    """
    if not clip.is_private:
        # These sums are unbounded, so no noise covers them: if noise is requested, the result is NaN.
        nothing = jnp.where(jnp.asarray(noise_multiplier) == 0, 0.0, jnp.nan)
        gradient = jax.tree_util.tree_map(lambda leaf: leaf + nothing, exact_sum)
        counts = to_float(exact_within, jnp.float32(COUNT_STEP)) + nothing
        return NoisySum(gradient, None if count_stddev is None else counts)
    leaves, structure = jax.tree_util.tree_flatten(exact_sum, is_leaf=is_fixed)
    groups = _group_of_leaves([leaf.high for leaf in leaves], clip)
    stddevs = group_stddevs([leaf.high for leaf in leaves], clip, noise_multiplier)
    stddevs = jnp.where(stddevs <= MOST_NOISE * clip.bounds, stddevs, jnp.nan)  # NaN rather than too little noise
    sizes = [leaf.high.size for leaf in leaves]
    noise_key, count_key = jax.random.split(key)
    draws = jnp.split(normals(noise_key, sum(sizes)), np.cumsum(sizes)[:-1])
    noisy = [
        _with_noise(
            leaf,
            draw.reshape(leaf.high.shape),
            _along_first(stddevs[group], leaf.high),
            _steps_of(clip, group, leaf.high),
        )
        for leaf, draw, group in zip(leaves, draws, groups, strict=True)
    ]
    within = None
    if count_stddev is not None:
        counts = normals(count_key, len(clip.bounds))
        within = _with_noise(exact_within, counts, jnp.float32(count_stddev), jnp.float32(COUNT_STEP))
    return NoisySum(jax.tree_util.tree_unflatten(structure, noisy), within)


def _with_noise(exact: Fixed, normal: Array, stddev: Array, step: Array | None) -> Array:
    assert step is not None
    noise = normal * stddev
    return jnp.where(jnp.isnan(noise), jnp.nan, to_float(add_totals(exact, to_grid(noise, step)), step))


def group_stddevs(
    leaves: Sequence[Array], clip: Clip, noise_multiplier: Float[Array, ""] | float
) -> Float[Array, " groups"]:
    """The noise of each group, so that all groups together cost what one flat clip of this multiplier costs."""
    bounds = clip.bounds
    if len(bounds) == 1:
        return noise_multiplier * bounds
    if clip.allocation == "uniform":
        return noise_multiplier * bounds * math.sqrt(len(bounds))
    dims = sum(
        jax.ops.segment_sum(jnp.full(len(group), leaf.size / len(group)), group, len(bounds))
        for leaf, group in zip(leaves, _group_of_leaves(leaves, clip), strict=True)
    )
    roots = jnp.sqrt(jnp.maximum(dims, 1.0))
    # Minimises sum_j d_j s_j^2 for a given sum_j (c_j / s_j)^2.
    return noise_multiplier * jnp.sqrt(bounds / roots * jnp.sum(bounds * roots))


def multiplier_beside_counts(total: float, num_groups: int, count_stddev: float) -> float:
    """The multiplier left for gradients when noisy counts of every step are paid from the same `total`.

    1 / total^2 = 1 / gradients^2 + groups / (2 count_stddev)^2: a unit moves each count by at most 1/2.
    """
    left = 1 / total**2 - num_groups / (2 * count_stddev) ** 2
    if left <= 0:
        raise ConfigError(
            f"Counts with noise {count_stddev:.3g} for {num_groups} groups cost more than a step of noise multiplier "
            f"{total:.3g} may. Raise their noise, or use fewer groups."
        )
    return 1 / math.sqrt(left)


# ------------------------------------------------------------------------------------- bounds from rows that are public


def public_norms(loss: Loss, critic: PyTree, rows: PyTree, clip: Clip) -> Float[Array, "rows groups"]:
    """Gradient norms of each row in each group. Only for public or generated rows: nothing here carries noise."""
    squares = _group_squares(_unit_squares(loss, critic, rows), _groups(critic, clip), len(clip.bounds))
    return jnp.sqrt(squares)


def grouped_by_size(
    loss: Loss, critic: PyTree, rows: PyTree, num_groups: int, iterations: int = 10
) -> tuple[Array, ...]:
    """Groups of parameters whose gradients are of like size on public or generated rows: k-means on log RMS."""
    squares = _unit_squares(loss, critic, rows)
    sizes = [
        leaf.size / len(group) for leaf, group in zip(_parameters(critic), _groups(critic, Clip.flat(1.0)), strict=True)
    ]
    logs = [jnp.log(jnp.mean(square, axis=0) / size + 1e-20) / 2 for square, size in zip(squares, sizes, strict=True)]
    values = jnp.concatenate(logs)
    centres = jnp.quantile(values, (jnp.arange(num_groups) + 0.5) / num_groups)

    def nearest(centres: Array) -> Array:
        return jnp.argmin(jnp.abs(values[:, None] - centres[None, :]), axis=1)

    def moved(centres: Array, _: None) -> tuple[Array, None]:
        member = jax.nn.one_hot(nearest(centres), num_groups)
        counts = member.sum(axis=0)
        return jnp.where(counts > 0, values @ member / jnp.maximum(counts, 1), centres), None

    centres, _ = jax.lax.scan(moved, centres, None, length=iterations)
    return tuple(jnp.split(nearest(centres), np.cumsum([len(log) for log in logs])[:-1]))


def _unit_squares(loss: Loss, critic: PyTree, rows: PyTree) -> list[Array]:
    """Squared gradients of each row, for each entry of every parameter array's first axis."""
    if _has_rules(loss, critic):
        num_rows = jax.tree_util.tree_leaves(rows)[0].shape[0]
        squares = [part.squares() for part in _ghost_parts(loss, critic, rows)]
        return [jnp.broadcast_to(square, (num_rows, square.shape[1])) for square in squares]
    trained, rest = eqx.partition(critic, eqx.is_inexact_array)
    gradients = jax.vmap(lambda row: jax.grad(lambda inside: loss(eqx.combine(inside, rest), row))(trained))(rows)
    return [
        (leaf**2).reshape(*leaf.shape[:2], -1).sum(axis=2) if leaf.ndim > 1 else leaf[:, None] ** 2
        for leaf in jax.tree_util.tree_leaves(gradients)
    ]


# ---------------------------------------------------------------------------------------------- layers, and their rules


class _Part(NamedTuple):
    """One parameter array of one layer, in the words of its rule."""

    squares: Callable[[], Float[Array, "rows units"]]
    """The squared gradient of each entry of the array's first axis."""
    block_sums: Callable[["_Weights", int], Float[Array, "blocks ..."]]
    """Weighted sums over the given number of equal blocks of rows."""
    uses: int = 1
    """How many times a row's loss uses the array in products that are summed without being stored."""


class _Weights(NamedTuple):
    """How much of each row's gradient enters the sum of one parameter array."""

    keep: Float[Array, "rows groups"]
    finite: Bool[Array, " rows"]
    group: Int[Array, " units"]

    def apply(self, gradients: Float[Array, "rows units"]) -> Float[Array, "rows units"]:
        weights = self.keep if self.keep.shape[1] == 1 else self.keep[:, self.group]
        return jnp.where(self.finite[:, None], gradients, 0.0) * weights


@dataclasses.dataclass
class _Recorder:
    """Collects the inputs of every layer while a loss is traced, and adds a tap to every output."""

    taps: list[list[Array]] | None
    inputs: list[list[tuple[Array, Array]]]
    """As they came, for the norms; and with zeros for what is not finite, for the products: 0 times NaN is NaN."""

    def next_tap(self, layer: int, given: tuple[Array, Array], output: Array) -> Array:
        self.inputs[layer].append(given)
        return output if self.taps is None else output + self.taps[layer][len(self.inputs[layer]) - 1]


class _SecondOrder(Exception):
    """The loss holds a gradient of the critic, in which a layer acts a second time: its rule would be wrong.

    Such a loss must say so (`differentiates_critic`). One that does not is stopped here, or by JAX, because the inputs
    of layers inside an inner gradient cannot leave it; it is never summed wrongly.
    """


@jax.custom_jvp
def _not_differentiable(x: Array) -> Array:
    return x


@_not_differentiable.defjvp
def _refuse(primals: tuple, tangents: tuple) -> tuple:
    raise _SecondOrder


@jax.custom_vjp
def _first_order(x: Array) -> Array:
    """The identity, whose backward pass cannot be differentiated: a gradient penalty is noticed, not miscounted."""
    return x


_first_order.defvjp(lambda x: (x, None), lambda _, gradient: (_not_differentiable(gradient),))


class _Tapped(eqx.Module):
    """A layer whose output can be disturbed, so that the gradient with respect to it is known."""

    layer: Any
    index: int = eqx.field(static=True)
    recorder: _Recorder = eqx.field(static=True)

    def __call__(self, x: Array, *, key: PRNGKeyArray | None = None) -> Array:
        x = _first_order(x)
        if isinstance(self.layer, eqx.nn.LayerNorm):
            scaled = (x - x.mean()) * jax.lax.rsqrt(jnp.maximum(x.var(), 0.0) + self.layer.eps)
            output = scaled if self.layer.weight is None else scaled * self.layer.weight
            output = output if self.layer.bias is None else output + self.layer.bias
            return self.recorder.next_tap(self.index, (scaled, scaled), output)
        x = jnp.broadcast_to(x, (1,)) if self.layer.in_features == "scalar" else x
        x = jnp.where(jnp.abs(x) < LEAST_INPUT, 0.0, x)  # not NaN: no comparison holds for it
        clean = jnp.where(jnp.isfinite(x), x, 0.0)
        output = self.layer.weight @ clean
        output = output if self.layer.bias is None else output + self.layer.bias
        output = self.recorder.next_tap(self.index, (x, clean), output)
        return output.squeeze() if self.layer.out_features == "scalar" else output


_RULED = (eqx.nn.Linear, eqx.nn.LayerNorm)


def _is_ruled(node: object) -> bool:
    """Exactly these: a subclass may compute something else, and a normalisation of several axes has no rule."""
    return type(node) in _RULED and (not isinstance(node, eqx.nn.LayerNorm) or len(node.shape) == 1)


def _layers(critic: PyTree) -> list[Any]:
    return [node for node in jax.tree_util.tree_leaves(critic, is_leaf=_is_ruled) if _is_ruled(node)]


def _parameters(critic: PyTree) -> list[Array]:
    return jax.tree_util.tree_leaves(eqx.filter(critic, eqx.is_inexact_array))


def _with_parameters(critic: PyTree, leaves: Sequence[Array | Fixed]) -> PyTree:
    structure = jax.tree_util.tree_structure(eqx.filter(critic, eqx.is_inexact_array))
    return jax.tree_util.tree_unflatten(structure, leaves)


def _ghost_parts(loss: Loss, critic: PyTree, units: PyTree) -> list[_Part]:
    """The rules of all parameter arrays, from one forward and one backward pass."""
    layers = _layers(critic)

    def traced(unit: PyTree, taps: list[list[Array]] | None) -> tuple[Array, list[list[tuple[Array, Array]]]]:
        recorder = _Recorder(taps, [[] for _ in layers])
        index = iter(range(len(layers)))
        tapped = jax.tree_util.tree_map(
            lambda node: _Tapped(node, next(index), recorder) if _is_ruled(node) else node, critic, is_leaf=_is_ruled
        )
        return loss(tapped, unit), recorder.inputs

    rows = jax.tree_util.tree_leaves(units)[0].shape[0]
    first = jax.tree_util.tree_map(lambda array: array[0], units)
    _, shapes = jax.eval_shape(lambda unit: traced(unit, None), first)
    taps = [
        [jnp.zeros((rows, _width(layer, given)), dtype=jnp.float32) for given, _ in uses]
        for layer, uses in zip(layers, shapes, strict=True)
    ]

    def total(taps: list[list[Array]]) -> tuple[Array, list[list[tuple[Array, Array]]]]:
        losses, inputs = jax.vmap(traced)(units, taps)
        return losses.sum(), inputs

    outputs, inputs = jax.grad(total, has_aux=True)(taps)
    return [
        part
        for layer, given, back in zip(layers, inputs, outputs, strict=True)
        for part in (_norm_parts if isinstance(layer, eqx.nn.LayerNorm) else _linear_parts)(layer, given, back)
    ]


def _width(layer: Any, given: jax.ShapeDtypeStruct) -> int:
    return given.shape[0] if isinstance(layer, eqx.nn.LayerNorm) else layer.weight.shape[0]


def _linear_parts(layer: eqx.nn.Linear, given: list[tuple[Array, Array]], back: list[Array]) -> list[_Part]:
    """W a + b: gradients sum_k d_k a_k^T and sum_k d_k."""

    def weight_squares() -> Array:
        if len(given) == 1:
            # Squared last: the square of a tiny gradient alone would vanish, and a large input with it pass the clip.
            return (jnp.linalg.norm(given[0][0], axis=1, keepdims=True) * jnp.abs(back[0])) ** 2
        return _squares_of_sum([raw for raw, _ in given], back)

    def weight_sums(weights: _Weights, blocks: int) -> Array:
        outputs = [_in_blocks(weights.apply(d), blocks) for d in back]
        inputs = [_in_blocks(clean, blocks) for _, clean in given]
        # All bits of every factor, whatever a device uses by default: the error bound of a block's sum assumes them.
        exact = jax.lax.Precision.HIGHEST
        return jnp.einsum(
            "bro,bri->boi", jnp.concatenate(outputs, axis=1), jnp.concatenate(inputs, axis=1), precision=exact
        )

    parts = [_Part(weight_squares, weight_sums, len(given))] if given else [_nothing(layer.weight)]
    if layer.bias is not None:
        parts.append(_vector_part(sum(back)) if given else _nothing(layer.bias))  # type: ignore[arg-type]
    return parts


def _in_blocks(rows: Float[Array, "rows units"], blocks: int) -> Float[Array, "blocks block units"]:
    """Equal blocks of rows, the last one padded with zeros."""
    block = -(-len(rows) // blocks)
    return jnp.pad(rows, ((0, blocks * block - len(rows)), (0, 0))).reshape(blocks, block, rows.shape[1])


def _squares_of_sum(given: list[Array], back: list[Array]) -> Float[Array, "rows units"]:
    """Squared rows of sum_k d_k a_k^T, never below what rounding lets them be.

    Written out, |a|^2 + |b|^2 - 2ab loses everything where terms cancel, and a unit would pass the clip. So the inputs
    are made orthogonal first (twice, as one pass leaves rounding behind), and a sum that is small beside its terms is
    taken for at least CANCELLING of them.
    """
    basis: list[Array] = []
    along_basis = [jnp.zeros_like(back[0]) for _ in given]
    terms = jnp.zeros_like(back[0])
    for a, d in zip(given, back, strict=True):
        whole = jnp.linalg.norm(a, axis=1, keepdims=True)
        terms = terms + whole * jnp.abs(d)
        for _ in range(2):
            for number, unit in enumerate(basis):
                along = jnp.sum(a * unit, axis=1, keepdims=True)
                a, along_basis[number] = a - along * unit, along_basis[number] + along * d
        length = jnp.linalg.norm(a, axis=1, keepdims=True)
        length = jnp.where(length > LEAST_RESIDUAL * whole, length, 0.0)
        along_basis[len(basis)] = along_basis[len(basis)] + length * d
        basis.append(jnp.where(length > 0, a, 0.0) / jnp.maximum(length, 1e-30))
    return jnp.maximum(sum(part**2 for part in along_basis), (CANCELLING * terms) ** 2)


def _norm_parts(layer: eqx.nn.LayerNorm, given: list[tuple[Array, Array]], back: list[Array]) -> list[_Part]:
    """scale * x + shift: gradients sum_k d_k x_k and sum_k d_k, entry by entry."""
    parts = []
    if layer.weight is not None:
        scales = [d * x for (x, _), d in zip(given, back, strict=True)]
        parts.append(_vector_part(sum(scales)) if given else _nothing(layer.weight))  # type: ignore[arg-type]
    if layer.bias is not None:
        parts.append(_vector_part(sum(back)) if given else _nothing(layer.bias))  # type: ignore[arg-type]
    return parts


def _vector_part(gradients: Float[Array, "rows units"]) -> _Part:
    """A parameter vector: its per-example gradients are small enough to be held."""
    return _Part(lambda: gradients**2, lambda weights, blocks: _in_blocks(weights.apply(gradients), blocks).sum(axis=1))


def _nothing(leaf: Array) -> _Part:
    """A layer that the loss does not use."""
    return _Part(lambda: jnp.zeros((1, leaf.shape[0])), lambda weights, blocks: jnp.zeros((1, *leaf.shape)))


# --------------------------------------------------------------------------------------------------- groups and weights


def _groups(critic: PyTree, clip: Clip) -> list[Array]:
    return _group_of_leaves(_parameters(critic), clip)


def _group_of_leaves(leaves: Sequence[Array], clip: Clip) -> list[Array]:
    if clip.groups is not None:
        return [jnp.asarray(group) for group in clip.groups]
    return [jnp.zeros(leaf.shape[0] if leaf.ndim else 1, dtype=np.int32) for leaf in leaves]


def _along_first(values: Array, leaf: Array) -> Array:
    return values.reshape(values.shape[:1] + (1,) * (leaf.ndim - 1)) if leaf.ndim else values[0]


def _steps_of(clip: Clip, group: Array, leaf: Array) -> Array | None:
    """The grid step of each entry of a parameter array; None without privacy."""
    return _along_first(grid_step(clip.bounds)[group], leaf) if clip.is_private else None


def _group_squares(squares: Sequence[Array], groups: Sequence[Array], num_groups: int) -> Array:
    """Each row's squared norm in each group."""
    if num_groups == 1:
        return sum(square.sum(axis=1) for square in squares)[:, None]  # type: ignore[index]
    return sum(  # type: ignore[return-value]
        jnp.matmul(square, jax.nn.one_hot(group, num_groups), precision=jax.lax.Precision.HIGHEST)
        for square, group in zip(squares, groups, strict=True)
    )


def _coefficients(squares: Array, taken: Array, clip: Clip, margin: float) -> tuple[Array, Array, Fixed]:
    """How much of each row's gradient is kept in each group; which rows are finite; how many are within, less half."""
    norms = jnp.sqrt(squares)
    finite = jnp.all(jnp.isfinite(norms), axis=1)
    scale = jnp.ones_like(norms)
    if clip.is_private:
        scale = jnp.minimum(1.0, clip.bounds * (1 - margin) / jnp.maximum(norms, TINY))
    keep = jnp.where((taken & finite)[:, None], scale, 0.0)
    within = jnp.where(taken[:, None], jnp.where((norms <= clip.bounds) & finite[:, None], 0.5, -0.5), 0.0)
    return keep, finite, to_grid(within.sum(axis=0), jnp.float32(COUNT_STEP))


# ------------------------------------------------------------------------------------------------------- without a rule


def per_example_sum(
    loss: Loss, critic: PyTree, units: PyTree, taken: Bool[Array, " units"], clip: Clip
) -> tuple[PyTree, Fixed]:
    """The same as `clipped_sum`, from the gradient of every row, as one block: slow and obvious, for any layer."""
    trained, rest = eqx.partition(critic, eqx.is_inexact_array)
    gradients = jax.vmap(lambda unit: jax.grad(lambda inside: loss(eqx.combine(inside, rest), unit))(trained))(units)
    leaves, structure = jax.tree_util.tree_flatten(gradients)
    groups = _groups(critic, clip)
    squares = [
        (leaf**2).reshape(*leaf.shape[:2], -1).sum(axis=2) if leaf.ndim > 1 else leaf[:, None] ** 2 for leaf in leaves
    ]
    margin = rounding_margin(_parameters(critic), len(taken))
    keep, finite, within = _coefficients(_group_squares(squares, groups, len(clip.bounds)), taken, clip, margin)
    summed = []
    for leaf, group in zip(leaves, groups, strict=True):
        weights = jnp.broadcast_to(keep if keep.shape[1] == 1 else keep[:, group], (len(keep), len(group)))
        finite_here = finite.reshape(-1, *[1] * (leaf.ndim - 1))
        clean = jnp.where(finite_here, leaf, 0.0)
        weights = weights.reshape(*weights.shape, *[1] * (leaf.ndim - 2)) if leaf.ndim > 1 else weights[:, 0]
        total = (clean * weights).sum(axis=0)
        summed.append(total_of_blocks(total[None], _steps_of(clip, group, total)))
    return jax.tree_util.tree_unflatten(structure, summed), within


def _sum_in_pieces(loss: Loss, critic: PyTree, units: PyTree, taken: Array, clip: Clip) -> tuple[PyTree, Fixed]:
    """`per_example_sum` over pieces of the rows, so that memory stays small."""
    rows = len(taken)
    pieces = -(-rows // PIECE)
    padding = pieces * PIECE - rows

    def cut(array: Array) -> Array:
        padded = jnp.concatenate([array, jnp.repeat(array[:1], padding, axis=0)])
        return padded.reshape(pieces, PIECE, *array.shape[1:])

    def more(total: PyTree, piece: tuple[PyTree, Array]) -> tuple[PyTree, None]:
        units, taken = piece
        return add_totals(total, per_example_sum(loss, critic, units, taken, clip)), None

    cut_taken = jnp.concatenate([taken, jnp.zeros(padding, dtype=bool)]).reshape(pieces, PIECE)
    cut_units = jax.tree_util.tree_map(cut, units)
    first = jax.tree_util.tree_map(lambda array: array[0], (cut_units, cut_taken))
    shapes = jax.eval_shape(lambda units, taken: per_example_sum(loss, critic, units, taken, clip), *first)
    zero = jax.tree_util.tree_map(lambda shape: jnp.zeros(shape.shape, shape.dtype), shapes)
    return jax.lax.scan(more, zero, (cut_units, cut_taken))[0]
