"""A trained generator as a release holds it: arrays, and their public shapes."""

import dataclasses
import functools
import math
from collections.abc import Iterator
from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PRNGKeyArray

from understudy.encoding.features import Block, Blocks, Layout, num_features
from understudy.models.neural import GENERATORS, Decoded, Decoder, GeneratorNetwork, sample_codes, sample_features
from understudy.models.protocol import Allowed, Arrays, Sample, Structure, concatenate, register
from understudy.models.rejection import BATCH_SIZE, check_satisfiable, sample_allowed
from understudy.models.zeros import Masks, block_masks, pack_zeros, unpack_zeros
from understudy.schema import StructuralZeros


@register
@dataclasses.dataclass(frozen=True)
class GeneratorModel:
    """A generator over encoded columns, with the marginals that its conditions are drawn from, if it takes any."""

    kind: ClassVar[str] = "generator"
    generator: GeneratorNetwork
    network: str
    """The architecture, by its name in `GENERATORS`."""
    names: tuple[str, ...]
    blocks: Blocks
    latent: int
    widths: tuple[int, ...]
    marginal: np.ndarray | None = None
    """Of a conditional generator: the noisy probability of each category, block by block; zero in other blocks."""
    layout: Layout | None = None
    """What the features mean; None: the codes of each column, one-hot."""
    decoder: tuple[int, ...] = ()
    """Of a generator of autoencoder codes: the size of a code, and the widths of the decoder. Empty: no decoder."""
    zeros: tuple[StructuralZeros, ...] = ()
    """Combinations of codes that are never drawn, where the codes of all their columns are one-hot."""

    @functools.cached_property
    def masks(self) -> Masks:
        """What the zeros leave of each block, given earlier ones."""
        columns = range(len(self.blocks)) if self.layout is None else self.layout.discrete
        return block_masks(self.zeros, self.names, columns)

    def sample(self, num_rows: int, *, key: PRNGKeyArray, allowed: Allowed | None = None) -> Sample:
        """New rows. With `allowed`, by rejection; a conditional generator gets allowed categories only."""
        check_satisfiable(allowed or {})
        condition = self._condition_probabilities(allowed or {})
        fixed = (self.blocks, self.masks, self.latent, self.layout is None)

        def draw(size: int, key: PRNGKeyArray) -> Sample:
            keys = batch_keys(key, size)
            return concatenate([self.decode(_generate(self.generator, *fixed, condition, k)) for k in keys], size)

        return sample_allowed(draw, self.names, allowed, num_rows, key=key)

    def decode(self, generated: Array) -> Sample:
        """The network's output, codes or features, as encoded rows."""
        if self.layout is None:
            return Sample(np.asarray(generated).astype(np.int32), None)
        return Sample(*self.layout.decode(np.asarray(generated)))

    def _condition_probabilities(self, allowed: Allowed) -> Array | None:
        """The condition (column, category) of each row: columns uniformly, categories by their noisy probabilities.

        Where `allowed` restricts columns, only those are conditioned on, on their allowed categories.
        """
        if self.marginal is None:
            return None
        weights = np.array(self.marginal, dtype=np.float64)
        masks = self._masks_of_blocks(allowed)
        restricted = np.concatenate([np.full(len(mask), not mask.all()) for mask in masks])
        weights = np.where(np.concatenate(masks) & restricted, weights, 0.0) if restricted.any() else weights
        weights = weights if weights.sum() > 0 else np.concatenate(masks).astype(float)
        return jnp.asarray(weights / weights.sum(), dtype=jnp.float32)

    def _masks_of_blocks(self, allowed: Allowed) -> list[np.ndarray]:
        """The masks of the columns that are conditions, each at its block; other blocks are not restricted."""
        columns = range(len(self.blocks)) if self.layout is None else self.layout.discrete
        return [
            np.asarray(allowed[self.names[column]], dtype=bool)
            if column is not None and self.names[column] in allowed
            else np.ones(block.size, dtype=bool)
            for block, column in zip(self.blocks, columns, strict=True)
        ]

    def to_arrays(self) -> tuple[dict[str, object], dict[str, np.ndarray]]:
        leaves = jax.tree_util.tree_leaves(eqx.filter(self.generator, eqx.is_array))
        arrays = {f"generator.{number:03}": np.asarray(leaf) for number, leaf in enumerate(leaves)}
        if self.marginal is not None:
            arrays["marginal"] = np.asarray(self.marginal, dtype=np.float32)
        structure: dict[str, object] = {
            "network": self.network,
            "names": list(self.names),
            "blocks": [[block.kind, block.size] for block in self.blocks],
            "latent": self.latent,
            "widths": list(self.widths),
        }
        if self.layout is not None:
            structure["layout"] = self.layout.to_list()
        if self.decoder:
            structure["decoder"] = list(self.decoder)
        columns, possible = pack_zeros(self.zeros)
        return structure | columns, arrays | possible

    @classmethod
    def from_arrays(cls, structure: Structure, arrays: Arrays) -> "GeneratorModel":
        blocks = tuple(Block(kind, size) for kind, size in structure["blocks"])
        marginal = arrays.get("marginal")
        features, widths = num_features(blocks), tuple(structure["widths"])
        condition = 0 if marginal is None else features
        make = GENERATORS[structure["network"]]
        decoder, no_key = tuple(structure.get("decoder", ())), jax.random.key(0)
        inner = make(structure["latent"], condition, widths, decoder[0] if decoder else features, key=no_key)
        empty = Decoded(inner, Decoder(decoder[0], decoder[1:], features, key=no_key)) if decoder else inner
        filled = iter(jnp.asarray(arrays[name]) for name in sorted(arrays) if name.startswith("generator."))
        generator = jax.tree_util.tree_map(
            lambda leaf: _check_shape(leaf, next(filled)) if eqx.is_array(leaf) else leaf, empty
        )
        names, latent = tuple(structure["names"]), structure["latent"]
        layout = Layout.from_list(structure["layout"]) if "layout" in structure else None
        if layout is not None and layout.blocks != blocks:
            raise ValueError("the layout of the features is not that of the generator")
        zeros = unpack_zeros(structure, arrays)
        return cls(generator, structure["network"], names, blocks, latent, widths, marginal, layout, decoder, zeros)


@register
@dataclasses.dataclass(frozen=True)
class PosteriorModel:
    """Many generators of one shape: every row comes from one of them, all with the same probability."""

    kind: ClassVar[str] = "posterior"
    stacked: GeneratorModel
    """All of them in one: every array of the network has a first axis with one entry per generator."""

    @property
    def names(self) -> tuple[str, ...]:
        return self.stacked.names

    @property
    def num_generators(self) -> int:
        return len(jax.tree_util.tree_leaves(eqx.filter(self.stacked.generator, eqx.is_array))[0])

    def sample(self, num_rows: int, *, key: PRNGKeyArray, allowed: Allowed | None = None) -> Sample:
        """New rows. With `allowed`, by rejection."""
        return sample_allowed(self._generate, self.names, allowed, num_rows, key=key)

    def _generate(self, num_rows: int, key: PRNGKeyArray) -> Sample:
        # A batch has as many rows of each generator, in random order: any first rows of it are a fair sample.
        stacked, count = self.stacked, self.num_generators
        per_network, as_codes = math.ceil(BATCH_SIZE / count), stacked.layout is None
        fixed = (stacked.blocks, stacked.masks, stacked.latent, per_network, as_codes, count)
        made = (_generate_by_all(stacked.generator, *fixed, k)[:BATCH_SIZE] for k in batch_keys(key, num_rows))
        return concatenate([stacked.decode(batch) for batch in made], num_rows)

    def to_arrays(self) -> tuple[dict[str, object], dict[str, np.ndarray]]:
        structure, arrays = self.stacked.to_arrays()
        return {**structure, "num_generators": self.num_generators}, arrays

    @classmethod
    def from_arrays(cls, structure: Structure, arrays: Arrays) -> "PosteriorModel":
        names = sorted(name for name in arrays if name.startswith("generator."))
        if any(len(arrays[name]) != structure["num_generators"] for name in names):
            raise ValueError(f"arrays of other than {structure['num_generators']} generators")
        others = {name: array for name, array in arrays.items() if name not in names}
        first = GeneratorModel.from_arrays(structure, {name: arrays[name][0] for name in names} | others)
        filled = iter(jnp.asarray(arrays[name]) for name in names)
        generators = jax.tree_util.tree_map(lambda leaf: next(filled) if eqx.is_array(leaf) else leaf, first.generator)
        return cls(dataclasses.replace(first, generator=generators))


def batch_keys(key: PRNGKeyArray, num_rows: int) -> Iterator[PRNGKeyArray]:
    """One key for each batch of this many rows; one at least."""
    return (jax.random.fold_in(key, number) for number in range(max(1, math.ceil(num_rows / BATCH_SIZE))))


def _check_shape(expected: Array, found: Array) -> Array:
    if expected.shape != found.shape:
        raise ValueError(f"expected an array of shape {expected.shape}, found {found.shape}")
    return found


@functools.partial(jax.jit, static_argnums=(1, 2, 3, 4))
def _generate(
    generator: GeneratorNetwork,
    blocks: Blocks,
    masks: Masks,
    latent: int,
    as_codes: bool,
    condition: Array | None,
    key: PRNGKeyArray,
) -> Array:
    """Codes of each block, or features, of one batch."""
    latent_key, head_key, condition_key = jax.random.split(key, 3)
    inputs = jax.random.normal(latent_key, (BATCH_SIZE, latent))
    if condition is not None:
        categories = jax.random.choice(condition_key, len(condition), (BATCH_SIZE,), p=condition)
        inputs = jnp.concatenate([inputs, jax.nn.one_hot(categories, len(condition))], axis=1)
    head = sample_codes if as_codes else sample_features
    return head(jax.vmap(generator)(inputs), blocks, key=head_key, masks=masks)


@functools.partial(jax.jit, static_argnums=(1, 2, 3, 4, 5, 6))
def _generate_by_all(
    generators: GeneratorNetwork,
    blocks: Blocks,
    masks: Masks,
    latent: int,
    each: int,
    as_codes: bool,
    count: int,
    key: PRNGKeyArray,
) -> Array:
    """`each` rows of every generator, in random order: codes of each block, or features."""
    member_key, order_key = jax.random.split(key)

    def by_one(generator: GeneratorNetwork, own_key: PRNGKeyArray) -> Array:
        latent_key, head_key = jax.random.split(own_key)
        logits = jax.vmap(generator)(jax.random.normal(latent_key, (each, latent)))
        return (sample_codes if as_codes else sample_features)(logits, blocks, key=head_key, masks=masks)

    made = jax.vmap(by_one)(generators, jax.random.split(member_key, count))
    return jax.random.permutation(order_key, made.reshape(-1, made.shape[-1]))
