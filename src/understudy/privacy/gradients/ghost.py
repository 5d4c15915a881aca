"""Ghost clipping: norms and weighted sums of per-example gradients, without the gradients themselves.

A layer that computes W a + b has, for one row, the gradient d a^T, where d is the gradient of the row's loss with
respect to the layer's output. So its norm is |d| |a|, and the sum of clipped gradients is D^T diag(c) A: one backward
pass for the d of all rows, two small reductions for the norms, and the same matrix products as without privacy. A layer
that a row's loss uses several times (paired real and fake rows, several rows of one unit) has the gradient sum_k d_k
a_k^T, whose squared norm is sum_kl (a_k . a_l)(d_k . d_l).

Needs nothing but NumPy, JAX and Equinox.
"""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray, PyTree

from understudy.privacy.gradients.sums import Fixed

CANCELLING = 0.03
"""Where the terms of one unit cancel, rounding of their sum matters: its norm is at least this fraction of theirs."""
MIN_RESIDUAL = 2.0**-14
"""What is left of an input after projecting out earlier ones is zeroed below this fraction: it may be rounding."""
MIN_INPUT = 2.0**-40
"""Smaller inputs of a layer are taken as zero: their squares vanish, and a huge gradient would pass the clip."""


def has_rules(network: PyTree) -> bool:
    """Whether every trainable array of the network belongs to a layer with a rule."""
    known = {id(leaf) for layer in _layers(network) for leaf in jax.tree_util.tree_leaves(layer)}
    return all(id(leaf) in known for leaf in parameters_of(network))


class Part(NamedTuple):
    """One parameter array of one layer, as its rule computes it."""

    squares: Callable[[], Float[Array, "rows units"]]
    """The squared gradient of each entry of the array's first axis."""
    block_sums: Callable[["Weights", int], Float[Array, "blocks ..."]]
    """Weighted sums over the given number of equal blocks of rows."""
    uses: int = 1
    """How many times a row's loss uses the array in products that are summed without being stored."""


class Weights(NamedTuple):
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


class UnitLoss(eqx.Module):
    """The loss of one unit: a pure function of the network and of the unit's rows and randomness, and of nothing else
    that is private."""

    of_unit: Callable[[PyTree, PyTree], Float[Array, ""]]
    differentiates_network: bool = eqx.field(static=True, default=False)
    """As in `RowLoss`."""

    def __call__(self, network: PyTree, unit: PyTree) -> Float[Array, ""]:
        return self.of_unit(network, unit)


class _SecondOrder(Exception):
    """The loss holds a gradient of the network, in which a layer acts a second time: its rule would be wrong.

    Such a loss must say so (`differentiates_network`). One that does not is stopped here, or by JAX, because the inputs
    of layers inside an inner gradient cannot leave it; it is never summed wrongly.
    """


@jax.custom_jvp
def _not_differentiable(x: Array) -> Array:
    return x


@_not_differentiable.defjvp
def _refuse(primals: tuple[Any, ...], tangents: tuple[Any, ...]) -> tuple[Any, ...]:
    raise _SecondOrder


@jax.custom_vjp
def _first_order(x: Array) -> Array:
    """The identity, whose backward pass cannot be differentiated: a gradient penalty is noticed, not miscounted."""
    return x


_first_order.defvjp(lambda x: (x, None), lambda _, gradient: (_not_differentiable(gradient),))


class _Tapped(eqx.Module):
    """A layer whose output can be disturbed, so that the gradient with respect to it is known."""

    layer: eqx.nn.Linear | eqx.nn.LayerNorm
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
        x = jnp.where(jnp.abs(x) < MIN_INPUT, 0.0, x)  # not NaN: no comparison holds for it
        clean = jnp.where(jnp.isfinite(x), x, 0.0)
        output = self.layer.weight @ clean
        output = output if self.layer.bias is None else output + self.layer.bias
        output = self.recorder.next_tap(self.index, (x, clean), output)
        return output.squeeze() if self.layer.out_features == "scalar" else output


_RULED = (eqx.nn.Linear, eqx.nn.LayerNorm)


def _is_ruled(node: object) -> bool:
    """Exactly these: a subclass may compute something else, and a normalisation of several axes has no rule."""
    return type(node) in _RULED and (not isinstance(node, eqx.nn.LayerNorm) or len(node.shape) == 1)


def _layers(network: PyTree) -> list[eqx.nn.Linear | eqx.nn.LayerNorm]:
    return [node for node in jax.tree_util.tree_leaves(network, is_leaf=_is_ruled) if _is_ruled(node)]


def parameters_of(network: PyTree) -> list[Array]:
    return jax.tree_util.tree_leaves(eqx.filter(network, eqx.is_inexact_array))


def with_parameters(network: PyTree, leaves: Sequence[Array | Fixed]) -> PyTree:
    structure = jax.tree_util.tree_structure(eqx.filter(network, eqx.is_inexact_array))
    return jax.tree_util.tree_unflatten(structure, leaves)


def ghost_parts(loss: UnitLoss, network: PyTree, units: PyTree) -> list[Part]:
    """The rules of all parameter arrays, from one forward and one backward pass."""
    layers = _layers(network)

    def traced(unit: PyTree, taps: list[list[Array]] | None) -> tuple[Array, list[list[tuple[Array, Array]]]]:
        recorder = _Recorder(taps, [[] for _ in layers])
        index = iter(range(len(layers)))
        tapped = jax.tree_util.tree_map(
            lambda node: _Tapped(node, next(index), recorder) if _is_ruled(node) else node, network, is_leaf=_is_ruled
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
    parts = []
    for layer, given, back in zip(layers, inputs, outputs, strict=True):
        if isinstance(layer, eqx.nn.LayerNorm):
            parts += _norm_parts(layer, given, back)
        else:
            parts += _linear_parts(layer, given, back)
    return parts


def _width(layer: eqx.nn.Linear | eqx.nn.LayerNorm, given: jax.ShapeDtypeStruct) -> int:
    return given.shape[0] if isinstance(layer, eqx.nn.LayerNorm) else layer.weight.shape[0]


def _linear_parts(layer: eqx.nn.Linear, given: list[tuple[Array, Array]], back: list[Array]) -> list[Part]:
    """W a + b: gradients sum_k d_k a_k^T and sum_k d_k."""

    def weight_squares() -> Array:
        if len(given) == 1:
            # Squared last: the square of a tiny gradient alone would vanish, and a large input with it pass the clip.
            return (jnp.linalg.norm(given[0][0], axis=1, keepdims=True) * jnp.abs(back[0])) ** 2
        return _squares_of_sum([raw for raw, _ in given], back)

    def weight_sums(weights: Weights, blocks: int) -> Array:
        outputs = jnp.concatenate([_in_blocks(weights.apply(d), blocks) for d in back], axis=1)
        inputs = jnp.concatenate([_in_blocks(clean, blocks) for _, clean in given], axis=1)
        # All bits of every factor, whatever a device uses by default: the error bound of a block's sum assumes them.
        exact = jax.lax.Precision.HIGHEST
        if len(given) > 1:
            return jnp.einsum("bro,bri->boi", outputs, inputs, precision=exact)
        # Transposed while they are weighted, behind a barrier: a CPU is slower at products of columns by columns.
        outputs = jax.lax.optimization_barrier(outputs.transpose(0, 2, 1))
        return jnp.einsum("bor,bri->boi", outputs, inputs, precision=exact)

    parts = [Part(weight_squares, weight_sums, len(given))] if given else [_nothing(layer.weight)]
    if layer.bias is not None:
        parts.append(_vector_part(back, layer.bias))
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
        length = jnp.where(length > MIN_RESIDUAL * whole, length, 0.0)
        along_basis[len(basis)] = along_basis[len(basis)] + length * d
        basis.append(jnp.where(length > 0, a, 0.0) / jnp.maximum(length, 1e-30))
    return jnp.maximum(sum(part**2 for part in along_basis), (CANCELLING * terms) ** 2)


def _norm_parts(layer: eqx.nn.LayerNorm, given: list[tuple[Array, Array]], back: list[Array]) -> list[Part]:
    """scale * x + shift: gradients sum_k d_k x_k and sum_k d_k, entry by entry."""
    parts = []
    if layer.weight is not None:
        scales = [d * x for (x, _), d in zip(given, back, strict=True)]
        parts.append(_vector_part(scales, layer.weight))
    if layer.bias is not None:
        parts.append(_vector_part(back, layer.bias))
    return parts


def _vector_part(terms: list[Array], leaf: Array) -> Part:
    """A parameter vector: its per-example gradients, a term for each use, are small enough to be held."""
    if not terms:
        return _nothing(leaf)
    gradients: Array = sum(terms)  # type: ignore[assignment]  # there is a term, so no plain 0
    return Part(lambda: gradients**2, lambda weights, blocks: _in_blocks(weights.apply(gradients), blocks).sum(axis=1))


def _nothing(leaf: Array) -> Part:
    """A layer that the loss does not use."""
    return Part(lambda: jnp.zeros((1, leaf.shape[0])), lambda weights, blocks: jnp.zeros((1, *leaf.shape)))
