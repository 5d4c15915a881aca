"""Trajectories: generators and critics at the checkpoints of a training, all covered by what its steps cost."""

import dataclasses
import itertools
from collections.abc import Callable, Sequence

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PRNGKeyArray, PyTree

from understudy.encoding.features import Blocks, Layout, num_features
from understudy.models import Model
from understudy.training.critics import encoder
from understudy.training.neural import CriticNetwork


@dataclasses.dataclass(frozen=True)
class Trajectory:
    """The checkpoints of one run, in the order of training. Post-processing of its noisy steps: free to use."""

    models: tuple[Model, ...]
    """What a release could hold, one for each checkpoint."""
    critics: Callable[[np.ndarray], Float[np.ndarray, "rows checkpoints"]] | None
    """How real each checkpoint's critic takes each row to be, from 0 to 1. Of one row at a time: nothing mixes rows.
    Rows come as codes, or as features where there is a layout. None: the training has no critics."""
    layout: Layout | None = None
    """What the critics see of a row; None: its codes."""
    fast_critics: Callable[[np.ndarray], Float[np.ndarray, "rows checkpoints"]] | None = None
    """The same critics on an accelerator, for generated rows only: there the last digits of a value may depend on the
    other rows of a batch. None: use `critics`."""

    def shown(
        self,
        codes: Int[np.ndarray, "rows columns"],
        positions: Float[np.ndarray, "rows columns"] | None,
        key: PRNGKeyArray,
    ) -> Callable[[slice], np.ndarray]:
        """From a stretch of generated rows to what the critics see of it.

        Rows with places are encoded like real ones, so that critics see what would be released and not how it was
        made.
        """
        layout = self.layout
        if layout is None:
            return lambda at: codes[at]
        assert positions is not None
        return lambda at: layout.encode(codes[at], positions[at], jax.random.fold_in(key, at.start))


def score_by_critics(
    critics: Sequence[CriticNetwork],
    blocks: Blocks,
    *,
    conditional: bool = False,
    wanted: Sequence[bool] | None = None,
    device: jax.Device | None = None,
) -> Callable[[np.ndarray], Float[np.ndarray, "rows critics"]]:
    """Critics of one shape as one function of codes or features: the sigmoid of their scores.

    A conditional critic is shown a row with each of its own levels as the condition in turn, of the blocks that are
    `wanted` as conditions (all of them, if it is left out), and the mean counts. By default computed on the CPU, where
    the last digits do not depend on a row's place in the batch: sums over private rows are charged for functions of
    single rows.
    """
    place_at = device or jax.devices("cpu")[0]
    arrays = jax.tree_util.tree_map(
        lambda *leaves: jnp.stack(leaves), *(eqx.filter(critic, eqx.is_array) for critic in critics)
    )
    fixed = eqx.filter(critics[0], eqx.is_array, inverse=True)
    features_of = encoder(blocks)
    ends = np.cumsum([0, *(block.size for block in blocks)])

    def of_one(leaves: PyTree, features: Float[Array, "rows features"]) -> Float[Array, " rows"]:
        critic = eqx.combine(leaves, fixed)
        if not conditional:
            return jax.nn.sigmoid(jax.vmap(critic)(features))

        def for_column(total: Array, mask: Array) -> tuple[Array, None]:
            seen = jnp.concatenate([features, features * mask], axis=1)
            return total + jax.nn.sigmoid(jax.vmap(critic)(seen)), None

        place = np.arange(num_features(blocks))
        stretches = itertools.compress(itertools.pairwise(ends), wanted or [True] * len(blocks))
        masks = np.stack([(place >= a) & (place < b) for a, b in stretches])
        total, _ = jax.lax.scan(for_column, jnp.zeros(len(features)), jnp.asarray(masks, dtype=jnp.float32))
        return total / len(masks)

    @jax.jit
    def probabilities(rows: Array, leaves: PyTree) -> Float[Array, "rows critics"]:
        features = jax.vmap(features_of)(rows)
        # One after the other: all at once would not fit the caches, and takes three times as long.
        return jax.lax.map(lambda one: of_one(one, features), leaves).T

    arrays = jax.device_put(arrays, place_at)
    return lambda rows: np.asarray(probabilities(jax.device_put(rows, place_at), arrays))
