"""Per-example clipping and the noise of clipped sums, for one step of DP-SGD.

The sum of clipped gradients comes from the rules of `ghost.py`. Layers without a rule, and losses that hold a gradient
of the network (penalties), take the slow way through per-example gradients.

Needs nothing but NumPy, JAX and Equinox. To review what a step can learn about one unit, read this file, `ghost.py`,
`sums.py` and `sampling.py`.
"""

import dataclasses
import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, Key, PRNGKeyArray, PyTree

from understudy.errors import ConfigError
from understudy.privacy.gradients.ghost import (
    CANCELLING,
    MIN_RESIDUAL,
    UnitLoss,
    Weights,
    ghost_parts,
    has_rules,
    parameters_of,
    with_parameters,
)
from understudy.privacy.gradients.sums import (
    MAX_NOISE,
    SUMS_THAT_CHANGE,
    Fixed,
    add_totals,
    block_error,
    block_size,
    gamma,
    grid_error,
    grid_step,
    is_fixed,
    noise_on_grid,
    num_blocks,
    to_float,
    to_grid,
    total_of_blocks,
)
from understudy.privacy.noise.device import normals_and_words
from understudy.privacy.rows.rows import PublicUnits


class RowLoss(eqx.Module):
    """The loss of one row: of the network, the row, a generated row where losses pair them, and randomness of its own.

    Pure: it may depend on nothing else that is private.
    """

    of_row: Callable[[PyTree, Array, Array | None, PRNGKeyArray], Float[Array, ""]]
    differentiates_network: bool = eqx.field(static=True, default=False)
    """Whether it holds a gradient of the network, as a penalty does: a layer then acts twice, and has no rule."""


COUNT_STEP = 2.0**-20
"""The grid of noisy counts; exact counts are multiples of one half."""
MAX_MARGIN = 0.5
"""A margin above half of the clip bound would leave too little of a gradient."""
MIN_CLIP, MAX_CLIP = 1e-4, 1e4
"""Bounds of bounds: float32 noise of such sizes is neither infinite nor nothing."""
TINY = 1e-12
PIECE = 64
"""Rows whose gradients are held at once where there is no rule for a layer."""

FORBIDDEN = {
    eqx.nn.BatchNorm: "batch normalisation mixes rows, so one person's row would move every other row's gradient",
    eqx.nn.SpectralNorm: "its power iteration is stateful; project the weights after the step instead",
}


class Clip(eqx.Module):
    """Bounds on what one unit adds to the sum: one for all parameters, or one for each group of them."""

    bounds: Float[Array, " groups"]
    groups: tuple[Int[Array, " _"], ...] | None = None
    """For each parameter array, the group of each entry of its first axis. None: one group."""
    allocation: str = eqx.field(static=True, default="optimal")
    """How noise is allocated to groups: "uniform", "optimal" (least total noise) or "equal" (as one group has it)."""
    is_private: bool = eqx.field(static=True, default=True)
    """False: gradients are not clipped, not rounded to a grid and get no noise, whatever the bounds are."""

    @classmethod
    def flat(cls, bound: float) -> "Clip":
        """One bound for all parameters; infinite for a run without privacy."""
        return cls(jnp.asarray([bound], dtype=jnp.float32), is_private=math.isfinite(bound))


class NoisySum(NamedTuple):
    """What leaves this folder: everything in it carries noise."""

    gradient: PyTree
    within: Float[Array, " groups"] | None
    """For adaptive bounds: the number of drawn units within each bound, less half of those drawn; with noise."""


def check_network(network: PyTree) -> None:
    """Refuses a network in which one row could reach another row's gradient."""
    for layer in jax.tree_util.tree_leaves(network, is_leaf=lambda node: isinstance(node, tuple(FORBIDDEN))):
        for kind, reason in FORBIDDEN.items():
            if isinstance(layer, kind):
                raise ConfigError(f"{kind.__name__} cannot be part of a private critic: {reason}.")


def unit_loss(loss: RowLoss) -> UnitLoss:
    """The loss of one unit: the sum over its rows, each with randomness of its own."""

    def of_unit(network: PyTree, unit: tuple[Array, Array, Array | None, PRNGKeyArray]) -> Float[Array, ""]:
        rows, present, fakes, key = unit
        slots_key, _ = jax.random.split(key)  # a key that is folded is not split as well
        total = jnp.zeros(())
        for slot in range(rows.shape[0]):
            fake = None if fakes is None else fakes[slot]
            value = loss.of_row(network, rows[slot], fake, jax.random.fold_in(slots_key, slot))
            total = total + jnp.where(present[slot], value, 0.0)
        return total

    return UnitLoss(of_unit, differentiates_network=loss.differentiates_network)


def _has_rules(loss: UnitLoss, network: PyTree) -> bool:
    return has_rules(network) and not loss.differentiates_network


# ------------------------------------------------------------------------------------------------------------ the sum


def clipped_sum(
    loss: UnitLoss, network: PyTree, units: PyTree, taken: Bool[Array, " units"], clip: Clip
) -> tuple[PyTree, Fixed]:
    """The sum of the units' gradients, each clipped; and how many of the taken ones lay within each bound, less half.

    Both are integers on a public grid (`sums.py`), except that gradients without privacy are floats. They are exact:
    noise must be added. A unit that is not `taken` adds nothing, nor does one whose gradient is not finite.

    Formal guarantee: filling one empty slot, or filling one and replacing the unit in another, moves the computed sum
    in group j by at most `clip.bounds[j]` in L2 norm, rounding included, and each count by 1/2, provided that `loss`
    sees one unit at a time. For this, gradients are clipped to less than the bound, by `rounding_margin`.
    """
    if not _has_rules(loss, network):
        return _sum_in_pieces(loss, network, units, taken, clip)
    parts = ghost_parts(loss, network, units)
    groups = _group_of_leaves(parameters_of(network), clip)
    squares = _group_squares([part.squares() for part in parts], groups, len(clip.bounds))
    uses = max((part.uses for part in parts), default=1)
    block = block_size(uses, CANCELLING)
    margin = rounding_margin(parameters_of(network), block, uses, num_groups=len(clip.bounds))
    keep, finite, within = _coefficients(squares, taken, clip, margin)
    blocks = num_blocks(len(taken), block) if clip.is_private else 1
    leaves = [
        total_of_blocks(part.block_sums(Weights(keep, finite, group), blocks), _steps_of(clip, group, leaf))
        for part, group, leaf in zip(parts, groups, parameters_of(network), strict=True)
    ]
    return with_parameters(network, leaves), within


def rounding_margin(parameters: Sequence[Array], block: int, uses: int = 1, *, num_groups: int = 1) -> float:
    """How far below its bound a norm is clipped, as a fraction of it, so that no rounding crosses the bound.

    The sum of bounds on three errors: of the block sums that change; of rounding them to the grid; and of a unit's own
    computed norm, a sum of positive numbers over inputs and outputs, and of its products. Among the 32 further
    roundings are those of the noise: its multiplier, and the product with the bound, are float32 too; the noise of a
    group follows from a sum over all groups (`group_stddevs`). Where a layer is used several times for a unit, its norm
    is that of a combination of orthogonalised inputs: they are orthogonal up to gamma(inputs), coefficients are rounded
    relative to the terms, and residuals below MIN_RESIDUAL are left out.
    """
    inputs = max(leaf.size // max(len(leaf), 1) if leaf.ndim else 1 for leaf in parameters)
    outputs = sum(leaf.shape[0] if leaf.ndim else 1 for leaf in parameters)
    own_norm = gamma(inputs + outputs + 31 + num_groups)
    if uses > 1:
        own_norm += uses * gamma(4 * (inputs + 4)) + (MIN_RESIDUAL + gamma(16 * uses)) / CANCELLING
    entries = sum(leaf.size for leaf in parameters)
    margin = SUMS_THAT_CHANGE * (block_error(block, uses, CANCELLING) + grid_error(entries)) + own_norm
    if margin >= MAX_MARGIN:
        raise ConfigError(
            f"The clip bound cannot be proven for a network of {entries:,} parameters that is used {uses} times for "
            "each unit. Use a smaller network, or lower max_rows_per_unit.",
            setting="max_rows_per_unit",
        )
    return margin


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
    added as an integer, so the result is a function of the exact sum plus noise, and further noise fills its low bits
    (`noise_on_grid`). Counts, if requested, are charged in addition (`noise_multiplier_beside_counts`). Not covered:
    the float32 grid of the normals (64 bits per draw, up to 9 standard deviations), timing, memory.
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
    stddevs = jnp.where(stddevs <= MAX_NOISE * clip.bounds, stddevs, jnp.nan)  # NaN rather than too little noise
    sizes = [leaf.high.size for leaf in leaves]
    noise_key, count_key = jax.random.split(key)
    draws = [jnp.split(drawn, np.cumsum(sizes)[:-1]) for drawn in normals_and_words(noise_key, sum(sizes))]
    noisy = [
        _with_noise(
            leaf,
            normal.reshape(leaf.high.shape),
            word.reshape(leaf.high.shape),
            _along_first(stddevs[group], leaf.high),
            _steps_of(clip, group, leaf.high),
        )
        for leaf, normal, word, group in zip(leaves, *draws, groups, strict=True)
    ]
    within = None
    if count_stddev is not None:
        drawn = normals_and_words(count_key, len(clip.bounds))
        stddev = jnp.asarray(_float32_above(count_stddev))
        within = _with_noise(exact_within, *drawn, stddev, jnp.float32(COUNT_STEP))
    return NoisySum(jax.tree_util.tree_unflatten(structure, noisy), within)


def _float32_above(value: float) -> np.float32:
    nearest = np.float32(value)
    return nearest if float(nearest) >= value else np.nextafter(nearest, np.float32(np.inf))


def _with_noise(exact: Fixed, normal: Array, word: Array, stddev: Array, step: Array | None) -> Array:
    assert step is not None
    noisy = to_float(add_totals(exact, noise_on_grid(normal, word, stddev, step)), step)
    return jnp.where(jnp.isnan(normal * stddev), jnp.nan, noisy)


def group_stddevs(
    leaves: Sequence[Array], clip: Clip, noise_multiplier: Float[Array, ""] | float
) -> Float[Array, " groups"]:
    """The noise of each group, so that all groups together cost what one flat clip of this multiplier costs.

    Whatever the allocation, sum_j (bound_j / stddev_j)^2 = 1 / noise_multiplier^2: groups change which weights the
    signal of a unit stands out in, not how much it stands out altogether.
    """
    bounds = clip.bounds
    if len(bounds) == 1:
        return noise_multiplier * bounds
    if clip.allocation == "uniform":
        return noise_multiplier * bounds * math.sqrt(len(bounds))
    if clip.allocation == "equal":
        return jnp.broadcast_to(noise_multiplier * jnp.sqrt(jnp.sum(bounds**2)), bounds.shape)
    roots = jnp.sqrt(jnp.maximum(_group_sizes(leaves, clip), 1.0))
    # Minimises sum_j d_j s_j^2 for a given sum_j (c_j / s_j)^2.
    return noise_multiplier * jnp.sqrt(bounds / roots * jnp.sum(bounds * roots))


def noisy_group_norms(
    noisy: PyTree, clip: Clip, noise_multiplier: Float[Array, ""] | float
) -> tuple[Float[Array, " groups"], Float[Array, " groups"]]:
    """The norm of a noisy sum in each group, less what noise alone would have; and each group's fraction of weights.

    Post-processing of the noisy sum, at no cost.
    """
    leaves = jax.tree_util.tree_leaves(noisy)
    groups, sizes = _group_of_leaves(leaves, clip), _group_sizes(leaves, clip)
    squares = _group_squares(_squares_of_entries([leaf[None] for leaf in leaves]), groups, len(clip.bounds))[0]
    expected = sizes * group_stddevs(leaves, clip, noise_multiplier) ** 2
    return jnp.sqrt(jnp.maximum(squares - expected, 0.0)), sizes / sizes.sum()


def noise_multiplier_beside_counts(total: float, num_groups: int, count_stddev: float) -> float:
    """The noise multiplier left for gradients when noisy counts of every step are charged within the same `total`.

    1 / total^2 = 1 / gradients^2 + groups / (2 count_stddev)^2: a unit moves each count by at most 1/2.
    """
    left = 1 / total**2 - num_groups / (2 * count_stddev) ** 2
    if left <= 0:
        raise ConfigError(
            f"Counts with noise {count_stddev:.3g} for {num_groups} groups cost more than a step of noise multiplier "
            f"{total:.3g} allows. Raise their noise, or use fewer groups.",
            setting="counts",
        )
    return 1 / math.sqrt(left)


# ------------------------------------------------------------------------------------- bounds from rows that are public


def clip_from_public(
    loss: RowLoss,
    network: PyTree,
    units: PublicUnits,
    fakes: Float[Array, "units features"] | None,
    clip: Clip,
    *,
    regroup: bool,
    rebound: bool = True,
    key: PRNGKeyArray,
) -> Clip:
    """New groups if wanted, and their bounds, from public or generated rows. No cost.

    Bounds are mean norms, as in Zhang et al. Without `rebound` they stay: new groups take over those of the old ones.
    """
    of_unit, keys = unit_loss(loss), jax.random.split(key, len(units.rows))
    fakes = None if fakes is None else fakes[:, None]
    groups = clip.groups
    if regroup:
        groups = group_by_size(of_unit, network, units, len(clip.bounds), fakes=fakes, keys=keys)
    changed = dataclasses.replace(clip, groups=groups)
    if rebound:
        norms = public_norms(of_unit, network, units, changed, fakes=fakes, keys=keys)
        bounds = jnp.mean(jnp.where(jnp.isfinite(norms), norms, 0.0), axis=0)
    else:
        squares = _unit_squares(of_unit, network, (units.rows, units.present, fakes, keys))
        bounds = _carry_bounds(squares, parameters_of(network), clip, changed)
    return dataclasses.replace(changed, bounds=jnp.clip(bounds, MIN_CLIP, MAX_CLIP))


def _carry_bounds(squares: Sequence[Array], parameters: Sequence[Array], old: Clip, new: Clip) -> Array:
    """The bounds of the new groups. Each entry of a parameter array takes its part of its group's squared bound along.

    Parts are by mean squares on the public rows, so the squares of all bounds have the same sum before and after, and
    groups that stay the same keep their bounds.
    """
    means = [jnp.mean(jnp.where(jnp.isfinite(square), square, 0.0), axis=0) for square in squares]
    # A group whose gradients all vanish is divided by the numbers of weights.
    sizes = [jnp.full(len(mean), leaf.size / len(mean)) for mean, leaf in zip(means, parameters, strict=True)]
    weights = jnp.concatenate(means) + TINY * jnp.concatenate(sizes)
    was, will = (jnp.concatenate(_group_of_leaves(parameters, clip)) for clip in (old, new))
    totals = jax.ops.segment_sum(weights, was, len(old.bounds))
    parts = old.bounds[was] ** 2 * weights / totals[was]
    return jnp.sqrt(jax.ops.segment_sum(parts, will, len(old.bounds)))


def public_norms(
    loss: UnitLoss, network: PyTree, units: PublicUnits, clip: Clip, *, fakes: Array | None, keys: Key[Array, " units"]
) -> Float[Array, "units groups"]:
    """Gradient norms of each unit in each group, without noise."""
    squares = _unit_squares(loss, network, (units.rows, units.present, fakes, keys))
    return jnp.sqrt(_group_squares(squares, _group_of_leaves(parameters_of(network), clip), len(clip.bounds)))


def group_by_size(
    loss: UnitLoss,
    network: PyTree,
    units: PublicUnits,
    num_groups: int,
    iterations: int = 10,
    *,
    fakes: Array | None,
    keys: Key[Array, " units"],
) -> tuple[Array, ...]:
    """Groups of parameters whose gradients have similar sizes on public or generated rows: k-means on log RMS."""
    squares = _unit_squares(loss, network, (units.rows, units.present, fakes, keys))
    groups = _group_of_leaves(parameters_of(network), Clip.flat(1.0))
    sizes = [leaf.size / len(group) for leaf, group in zip(parameters_of(network), groups, strict=True)]
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


def _unit_squares(loss: UnitLoss, network: PyTree, rows: PyTree) -> list[Array]:
    """Squared gradients of each row, for each entry of every parameter array's first axis."""
    if _has_rules(loss, network):
        num_rows = jax.tree_util.tree_leaves(rows)[0].shape[0]
        squares = [part.squares() for part in ghost_parts(loss, network, rows)]
        return [jnp.broadcast_to(square, (num_rows, square.shape[1])) for square in squares]
    return _squares_of_entries(jax.tree_util.tree_leaves(_per_example_gradients(loss, network, rows)))


# --------------------------------------------------------------------------------------------------- groups and weights


def _group_of_leaves(leaves: Sequence[Array], clip: Clip) -> list[Array]:
    if clip.groups is not None:
        # Within the bounds: a gradient in a group that does not exist would be in no norm, and never be clipped.
        return [jnp.clip(group, 0, len(clip.bounds) - 1) for group in clip.groups]
    return [jnp.zeros(leaf.shape[0] if leaf.ndim else 1, dtype=np.int32) for leaf in leaves]


def _group_sizes(leaves: Sequence[Array], clip: Clip) -> Float[Array, " groups"]:
    """The number of weights in each group."""
    return sum(  # type: ignore[return-value]  # networks have parameters, so no plain 0
        jax.ops.segment_sum(jnp.full(len(group), leaf.size / len(group)), group, len(clip.bounds))
        for leaf, group in zip(leaves, _group_of_leaves(leaves, clip), strict=True)
    )


def _along_first(values: Array, leaf: Array) -> Array:
    return values.reshape(values.shape[:1] + (1,) * (leaf.ndim - 1)) if leaf.ndim else values[0]


def _steps_of(clip: Clip, group: Array, leaf: Array) -> Array | None:
    """The grid step of each entry of a parameter array; None without privacy."""
    return _along_first(grid_step(clip.bounds)[group], leaf) if clip.is_private else None


def _group_squares(squares: Sequence[Array], groups: Sequence[Array], num_groups: int) -> Array:
    """Each row's squared norm in each group."""
    if num_groups == 1:
        # An array for the same reason.
        return sum(square.sum(axis=1) for square in squares)[:, None]  # type: ignore[index]
    return sum(  # type: ignore[return-value]  # networks have parameters, so no plain 0
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


def _per_example_gradients(loss: UnitLoss, network: PyTree, units: PyTree) -> PyTree:
    trained, rest = eqx.partition(network, eqx.is_inexact_array)
    return jax.vmap(lambda unit: jax.grad(lambda inside: loss(eqx.combine(inside, rest), unit))(trained))(units)


def _squares_of_entries(gradients: Sequence[Array]) -> list[Array]:
    """Squared norms of the gradients of each unit, for each entry of every parameter array's first axis."""
    return [
        (leaf**2).reshape(*leaf.shape[:2], -1).sum(axis=2) if leaf.ndim > 1 else leaf[:, None] ** 2
        for leaf in gradients
    ]


def per_example_sum(
    loss: UnitLoss, network: PyTree, units: PyTree, taken: Bool[Array, " units"], clip: Clip
) -> tuple[PyTree, Fixed]:
    """The same as `clipped_sum`, from the gradient of every row, as one block: slow and obvious, for any layer."""
    leaves, structure = jax.tree_util.tree_flatten(_per_example_gradients(loss, network, units))
    groups = _group_of_leaves(parameters_of(network), clip)
    squares = _squares_of_entries(leaves)
    margin = rounding_margin(parameters_of(network), len(taken), num_groups=len(clip.bounds))
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


def _sum_in_pieces(loss: UnitLoss, network: PyTree, units: PyTree, taken: Array, clip: Clip) -> tuple[PyTree, Fixed]:
    """`per_example_sum` over pieces of the rows, so that memory stays small."""
    rows = len(taken)
    pieces = -(-rows // PIECE)
    padding = pieces * PIECE - rows

    def cut(array: Array) -> Array:
        padded = jnp.concatenate([array, jnp.repeat(array[:1], padding, axis=0)])
        return padded.reshape(pieces, PIECE, *array.shape[1:])

    def more(total: PyTree, piece: tuple[PyTree, Array]) -> tuple[PyTree, None]:
        units, taken = piece
        return add_totals(total, per_example_sum(loss, network, units, taken, clip)), None

    cut_taken = jnp.concatenate([taken, jnp.zeros(padding, dtype=bool)]).reshape(pieces, PIECE)
    cut_units = jax.tree_util.tree_map(cut, units)
    first = jax.tree_util.tree_map(lambda array: array[0], (cut_units, cut_taken))
    shapes = jax.eval_shape(lambda units, taken: per_example_sum(loss, network, units, taken, clip), *first)
    zero = jax.tree_util.tree_map(lambda shape: jnp.zeros(shape.shape, shape.dtype), shapes)
    return jax.lax.scan(more, zero, (cut_units, cut_taken))[0]
