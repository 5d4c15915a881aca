"""What critic and generator minimise: losses by name, the loss of one row, and the conditions that rows are shown with.

A loss has a real part, one term for each real row, and a fake part without private rows.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PRNGKeyArray

from understudy.encoding.features import Block, Blocks, starts
from understudy.privacy.gradients.clipping import RowLoss
from understudy.training.neural import CriticNetwork

Scores = Float[Array, " rows"]


class Loss(NamedTuple):
    """Terms of one loss, given the critic's scores."""

    real: Callable[[Float[Array, ""]], Float[Array, ""]]
    """Of one real row's score."""
    fake: Callable[[Scores], Float[Array, ""]]
    """Of a batch of generated rows, as a mean."""
    generator: Callable[[Scores], Float[Array, ""]]
    """What the generator minimises, as a mean over a batch."""
    penalty: str = ""
    """Of the critic's gradient: "" none, "between" real and fake rows, "around" real rows."""
    couples_fakes: bool = False
    """Whether a fake row's term depends on the other fakes, which forbids pairing it with a private row."""


def _ratio(scores: Scores) -> Scores:
    """exp(t_i) / mean_j exp(t_j), by log-sum-exp; gradients flow through."""
    return jnp.exp(scores - jax.nn.logsumexp(scores) + jnp.log(len(scores)))


_GAN = Loss(
    real=lambda s: jax.nn.softplus(-s),
    fake=lambda t: jax.nn.softplus(t).mean(),
    generator=lambda t: jax.nn.softplus(-t).mean(),
)
_WGAN = Loss(real=lambda s: -s, fake=lambda t: t.mean(), generator=lambda t: -t.mean())

LOSSES = {
    "gan": _GAN,
    "saturating_gan": _GAN._replace(generator=lambda t: -jax.nn.softplus(t).mean()),
    "wgan": _WGAN,
    "wgan_gp": _WGAN._replace(penalty="between"),
    "dragan": _GAN._replace(penalty="around"),
    "kl_wgan": Loss(
        real=lambda s: jax.nn.relu(1 - s),
        fake=lambda t: jax.nn.relu(1 + _ratio(t) * t).mean(),
        generator=lambda t: -(_ratio(t) * t).mean(),
        couples_fakes=True,
    ),
}
"""By the literature's names; "saturating_gan" is the minimax form."""

PENALTY = 10.0
AROUND = 0.1
"""Standard deviation, public and fixed, of DRAGAN's steps around a row."""


class Conditions(eqx.Module):
    """Conditions on one column's level at a time, from noisy marginals."""

    target: Float[Array, " features"]
    """Probability of each level as a condition: columns evenly, levels by log-frequency; sums to one over all."""
    weight: Float[Array, " features"]
    """What a real row's loss is multiplied by, given the level that was taken from it."""
    marginal: Float[Array, " features"]
    """The noisy share of each level in its column."""
    block: Int[Array, " features"]
    """The conditional column of each feature; -1: none."""
    num_blocks: int = eqx.field(static=True)

    @classmethod
    def from_marginal(
        cls,
        blocks: Blocks,
        marginal: np.ndarray,
        num_rows: int,
        max_weight: float,
        wanted: Sequence[bool] | None = None,
    ) -> "Conditions":
        """Columns evenly; within a column levels by log-frequency, so that rare ones are practised.

        `wanted` says which blocks are conditions, at least one; all of them, if it is left out.
        """
        shares = np.maximum(np.asarray(marginal, dtype=np.float64), 1 / num_rows)
        target, weight = np.zeros_like(shares), np.zeros_like(shares)
        block_of = np.full(len(shares), -1, dtype=np.int32)
        number = 0
        for block, start, is_wanted in zip(blocks, starts(blocks), wanted or [True] * len(blocks), strict=True):
            if not is_wanted:
                continue
            here = slice(start, start + block.size)
            logs = np.log1p(num_rows * shares[here])
            target[here] = logs / logs.sum()
            weight[here] = np.minimum(max_weight, target[here] / shares[here])
            block_of[here] = number
            number += 1
        return cls(
            target=jnp.asarray(target / number, dtype=jnp.float32),
            weight=jnp.asarray(weight, dtype=jnp.float32),
            marginal=jnp.asarray(np.where(block_of >= 0, marginal, 0.0), dtype=jnp.float32),
            block=jnp.asarray(block_of),
            num_blocks=number,
        )

    def draw(self, key: PRNGKeyArray, num_rows: int) -> Float[Array, "rows features"]:
        """One level each, from the target law. It depends on noisy marginals only."""
        levels = jax.random.choice(key, len(self.target), (num_rows,), p=self.target)
        return jax.nn.one_hot(levels, len(self.target))

    def of_row(self, features: Float[Array, " features"], key: PRNGKeyArray) -> Float[Array, " features"]:
        """A condition taken from the row itself: a column evenly, and the row's own level in it."""
        column = jax.random.randint(key, (), 0, self.num_blocks)
        return jnp.where(self.block == column, features, 0.0)


def encoder(blocks: Blocks) -> Callable[[Array], Float[Array, " features"]]:
    """From one row of codes or features to features: one-hot by comparison where the row is codes."""
    if not all(block.kind == "one_hot" for block in blocks):
        return lambda row: row
    column = np.repeat(np.arange(len(blocks)), [block.size for block in blocks])
    level = np.concatenate([np.arange(block.size) for block in blocks])
    return lambda row: (row[column] == level).astype(jnp.float32) if jnp.issubdtype(row.dtype, jnp.integer) else row


def row_loss(loss: Loss, blocks: Blocks, conditions: Conditions | None, *, paired: bool) -> RowLoss:
    """What a critic minimises on one real row, and on one generated row where they are paired."""
    features_of = encoder(blocks)

    def of_row(critic: CriticNetwork, row: Array, fake: Array | None, key: PRNGKeyArray) -> Float[Array, ""]:
        condition_key, drop_key, penalty_key = jax.random.split(key, 3)
        features, weight = features_of(row), jnp.ones(())
        if conditions is not None:
            condition = conditions.of_row(features, condition_key)
            weight = jnp.sum(conditions.weight * condition)
            features = jnp.concatenate([features, condition])
        value = loss.real(critic(features, key=drop_key))
        if paired:
            assert fake is not None
            value = value + loss.fake(critic(fake, key=drop_key)[None])
        if loss.penalty:
            value = value + PENALTY * gradient_penalty(critic, features, fake, loss.penalty, penalty_key)
        return weight * value

    return RowLoss(of_row, differentiates_network=bool(loss.penalty))


def fake_row_loss(loss: Loss) -> RowLoss:
    """What a critic minimises on one generated row, given beside its condition, if that row is clipped by itself."""

    def of_row(critic: CriticNetwork, row: Array, fake: Array | None, key: PRNGKeyArray) -> Float[Array, ""]:
        return loss.fake(critic(row, key=key)[None])

    return RowLoss(of_row)


def gradient_penalty(
    critic: CriticNetwork, real: Array, fake: Array | None, kind: str, key: PRNGKeyArray
) -> Float[Array, ""]:
    """(|gradient of the score with respect to the row| - 1)^2, at a point that this row and fresh randomness give."""
    if kind == "between":
        assert fake is not None
        mix = jax.random.uniform(key)
        point = mix * real + (1 - mix) * fake
    else:
        # Uniform steps of the same spread: nothing here hides a statistic.
        point = real + AROUND * np.sqrt(3) * jax.random.uniform(key, real.shape, minval=-1.0, maxval=1.0)
    gradient = jax.grad(critic)(point)
    return (jnp.sqrt(jnp.sum(gradient**2) + 1e-12) - 1) ** 2


def one_hot_blocks(sizes: tuple[int, ...]) -> Blocks:
    """The layout of a table of codes."""
    return tuple(Block("one_hot", size) for size in sizes)
