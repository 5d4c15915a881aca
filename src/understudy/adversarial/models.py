"""A trained generator as a release holds it: arrays, and the public shape they fill."""

import dataclasses
import functools
import math
from collections.abc import Mapping
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PRNGKeyArray

from understudy.encoding.features import Layout
from understudy.errors import ConditionError
from understudy.networks import (
    GENERATORS,
    Block,
    Blocks,
    Decoded,
    Decoder,
    drawn_codes,
    drawn_features,
    num_features,
)

AT_ONCE = 8192
"""Rows generated in one call: one compiled shape for every size of table."""
MOST_DRAWS = 2000
"""A condition may cost so many draws for each row that is asked for."""


@dataclasses.dataclass(frozen=True)
class GeneratorModel:
    """A generator over columns of codes, with the marginals that its conditions are drawn from, if it takes any."""

    generator: Any
    kind: str
    names: tuple[str, ...]
    blocks: Blocks
    latent: int
    widths: tuple[int, ...]
    marginal: np.ndarray | None = None
    """For a conditional generator: the noisy share of each level, column by column; zero for what is no condition."""
    layout: Layout | None = None
    """What the features are; None: the codes of each column, one-hot."""
    decoder: tuple[int, ...] = ()
    """Of a generator of codes: the size of a code, and the widths of the decoder behind it. Empty: there is none."""

    def sample(
        self, num_rows: int, *, key: PRNGKeyArray, allowed: Mapping[str, np.ndarray] | None = None
    ) -> Int[np.ndarray, "rows columns"]:
        """Codes of new rows. With `allowed`, rows that meet it, in the law of the rows that do."""
        return self.draw(num_rows, key=key, allowed=allowed)[0]

    def draw(
        self, num_rows: int, *, key: PRNGKeyArray, allowed: Mapping[str, np.ndarray] | None = None
    ) -> tuple[Int[np.ndarray, "rows columns"], Float[np.ndarray, "rows columns"] | None]:
        """Codes of new rows as `sample` has them, and the places of their numbers where the generator gives any."""
        if not allowed:
            return self._drawn(num_rows, key, None)
        masks = [np.asarray(allowed.get(name, np.ones(size, bool)), bool) for name, size in self._columns]
        if not all(mask.any() for mask in masks):
            raise ConditionError("No row can meet the condition: it leaves some column no value.")
        kept: list[tuple[np.ndarray, np.ndarray | None]] = []
        found = drawn = 0
        while found < num_rows:
            key, now = jax.random.split(key)
            codes, places = self._drawn(AT_ONCE, now, masks)
            met = np.all([mask[codes[:, at]] for at, mask in enumerate(masks)], axis=0)
            kept.append((codes[met], None if places is None else places[met]))
            found, drawn = found + int(met.sum()), drawn + len(codes)
            if drawn >= max(100_000, MOST_DRAWS * num_rows) and found < num_rows:
                raise ConditionError(
                    f"Only {found} of {num_rows} rows met the condition in {drawn:,} draws. "
                    f"{'Ask for fewer rows, or loosen' if found else 'Loosen'} the condition."
                )
        return joined(kept, num_rows)

    @property
    def _columns(self) -> list[tuple[str, int]]:
        """Names, and numbers of codes."""
        sizes = [block.size for block in self.blocks] if self.layout is None else self.layout.sizes
        return list(zip(self.names, sizes, strict=True))

    def _drawn(
        self, num_rows: int, key: PRNGKeyArray, masks: list[np.ndarray] | None
    ) -> tuple[np.ndarray, np.ndarray | None]:
        condition = self._condition_law(masks)
        as_codes = self.layout is None
        parts: list[tuple[np.ndarray, np.ndarray | None]] = []
        for number in range(max(1, math.ceil(num_rows / AT_ONCE))):
            part_key = jax.random.fold_in(key, number)
            drawn = np.asarray(_generated(self.generator, self.blocks, self.latent, as_codes, condition, part_key))
            parts.append((drawn.astype(np.int32), None) if self.layout is None else self.layout.decode(drawn))
        return joined(parts, num_rows)

    def _condition_law(self, masks: list[np.ndarray] | None) -> Array | None:
        """Which (column, level) each row is generated for: columns evenly, levels by their noisy shares.

        Where a condition restricts columns, only those are conditioned on, on their allowed levels.
        """
        if self.marginal is None:
            return None
        law = np.array(self.marginal, dtype=np.float64)
        if masks is not None:
            masks = self._masks_of_blocks(masks)
            restricted = np.concatenate([np.full(len(mask), not mask.all()) for mask in masks])
            law = np.where(np.concatenate(masks) & restricted, law, 0.0) if restricted.any() else law
            law = law if law.sum() > 0 else np.concatenate(masks).astype(float)
        return jnp.asarray(law / law.sum(), dtype=jnp.float32)

    def _masks_of_blocks(self, masks: list[np.ndarray]) -> list[np.ndarray]:
        """The masks of the columns that are conditions, each at its block; other blocks are not restricted."""
        if self.layout is None:
            return masks
        return [
            np.ones(block.size, dtype=bool) if column is None else masks[column]
            for block, column in zip(self.blocks, self.layout.discrete, strict=True)
        ]

    def to_arrays(self) -> tuple[dict[str, object], dict[str, np.ndarray]]:
        leaves = jax.tree_util.tree_leaves(eqx.filter(self.generator, eqx.is_array))
        arrays = {f"generator.{number:03}": np.asarray(leaf) for number, leaf in enumerate(leaves)}
        if self.marginal is not None:
            arrays["marginal"] = np.asarray(self.marginal, dtype=np.float32)
        structure: dict[str, object] = {
            "kind": self.kind,
            "names": list(self.names),
            "blocks": [[block.kind, block.size] for block in self.blocks],
            "latent": self.latent,
            "widths": list(self.widths),
        }
        if self.layout is not None:
            structure["layout"] = self.layout.to_list()
        if self.decoder:
            structure["decoder"] = list(self.decoder)
        return structure, arrays

    @classmethod
    def from_arrays(cls, structure: Mapping, arrays: Mapping[str, np.ndarray]) -> "GeneratorModel":
        blocks = tuple(Block(kind, size) for kind, size in structure["blocks"])
        marginal = arrays.get("marginal")
        features, widths = num_features(blocks), tuple(structure["widths"])
        condition = 0 if marginal is None else features
        make = GENERATORS[structure["kind"]]
        decoder, no_key = tuple(structure.get("decoder", ())), jax.random.key(0)
        empty: Any = make(structure["latent"], condition, widths, decoder[0] if decoder else features, key=no_key)
        if decoder:
            empty = Decoded(empty, Decoder(decoder[0], decoder[1:], features, key=no_key))
        filled = iter(jnp.asarray(arrays[name]) for name in sorted(arrays) if name.startswith("generator."))
        generator = jax.tree_util.tree_map(
            lambda leaf: _same_shape(leaf, next(filled)) if eqx.is_array(leaf) else leaf, empty
        )
        names, latent = tuple(structure["names"]), structure["latent"]
        layout = Layout.from_list(structure["layout"]) if "layout" in structure else None
        if layout is not None and layout.blocks != blocks:
            raise ValueError("the layout of the features is not that of the generator")
        return cls(generator, structure["kind"], names, blocks, latent, widths, marginal, layout, decoder)


@dataclasses.dataclass(frozen=True)
class PosteriorModel(GeneratorModel):
    """Many generators of one shape, their arrays stacked: every row is made by one of them, drawn evenly."""

    @property
    def members(self) -> int:
        return jax.tree_util.tree_leaves(eqx.filter(self.generator, eqx.is_array))[0].shape[0]

    def _drawn(
        self, num_rows: int, key: PRNGKeyArray, masks: list[np.ndarray] | None
    ) -> tuple[np.ndarray, np.ndarray | None]:
        parts: list[tuple[np.ndarray, np.ndarray | None]] = []
        # What one call makes has equal parts of all members, in random order: any first rows of it are a fair draw.
        each = math.ceil(AT_ONCE / self.members)
        for number in range(max(1, math.ceil(num_rows / AT_ONCE))):
            part_key = jax.random.fold_in(key, number)
            drawn = np.asarray(
                _mixed(self.generator, self.blocks, self.latent, each, self.layout is None, self.members, part_key)
            )[:AT_ONCE]
            parts.append((drawn.astype(np.int32), None) if self.layout is None else self.layout.decode(drawn))
        return joined(parts, num_rows)

    def to_arrays(self) -> tuple[dict[str, object], dict[str, np.ndarray]]:
        structure, arrays = super().to_arrays()
        return {**structure, "members": self.members}, arrays

    @classmethod
    def from_arrays(cls, structure: Mapping, arrays: Mapping[str, np.ndarray]) -> "PosteriorModel":
        names = sorted(name for name in arrays if name.startswith("generator."))
        if any(len(arrays[name]) != structure["members"] for name in names):
            raise ValueError(f"arrays of other than {structure['members']} generators")
        first = GeneratorModel.from_arrays(structure, {name: arrays[name][0] for name in names})
        filled = iter(jnp.asarray(arrays[name]) for name in names)
        stacked = jax.tree_util.tree_map(lambda leaf: next(filled) if eqx.is_array(leaf) else leaf, first.generator)
        return cls(stacked, first.kind, first.names, first.blocks, first.latent, first.widths, None, first.layout)


def _same_shape(expected: Array, found: Array) -> Array:
    if expected.shape != found.shape:
        raise ValueError(f"an array of shape {found.shape} stands where {expected.shape} belongs")
    return found


def joined(parts: list[tuple[np.ndarray, np.ndarray | None]], num_rows: int) -> tuple[np.ndarray, np.ndarray | None]:
    """The first `num_rows` of several draws."""
    codes, places = zip(*parts, strict=True)
    exact = None if places[0] is None else np.concatenate(places)[:num_rows]
    return np.concatenate(codes)[:num_rows], exact


@functools.partial(jax.jit, static_argnums=(1, 2, 3))
def _generated(
    generator: Any, blocks: Blocks, latent: int, as_codes: bool, condition: Array | None, key: PRNGKeyArray
) -> Array:
    """Codes of each block, or features."""
    latent_key, head_key, condition_key = jax.random.split(key, 3)
    inputs = jax.random.normal(latent_key, (AT_ONCE, latent))
    if condition is not None:
        levels = jax.random.choice(condition_key, len(condition), (AT_ONCE,), p=condition)
        inputs = jnp.concatenate([inputs, jax.nn.one_hot(levels, len(condition))], axis=1)
    return (drawn_codes if as_codes else drawn_features)(jax.vmap(generator)(inputs), blocks, key=head_key)


@functools.partial(jax.jit, static_argnums=(1, 2, 3, 4, 5))
def _mixed(
    generators: Any, blocks: Blocks, latent: int, each: int, as_codes: bool, members: int, key: PRNGKeyArray
) -> Array:
    """So many rows of each member, in random order: codes of each block, or features."""
    member_key, order_key = jax.random.split(key)

    def of_one(generator: Any, own: PRNGKeyArray) -> Array:
        latent_key, head_key = jax.random.split(own)
        logits = jax.vmap(generator)(jax.random.normal(latent_key, (each, latent)))
        return (drawn_codes if as_codes else drawn_features)(logits, blocks, key=head_key)

    made = jax.vmap(of_one)(generators, jax.random.split(member_key, members))
    return jax.random.permutation(order_key, made.reshape(-1, made.shape[-1]))
