"""What a generator makes, and what it minimises. Nothing here sees a private row."""

from collections.abc import Callable, Iterator

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray, PyTree

from understudy.encoding.features import is_one_hot, starts
from understudy.models.neural import GeneratorNetwork, activate, block_log_softmax, log_possible
from understudy.privacy.rows.rows import PublicUnits
from understudy.training.critics import LOSSES, Conditions
from understudy.training.settings import Settings


class Context(eqx.Module):
    """What a training is given besides private rows. Public, or covered by what its noisy marginals cost."""

    conditions: Conditions | None = None
    """None: the generator takes no condition."""
    marginal: Float[Array, " features"] | Float[Array, "rows features"] | None = None
    """Noisy one-way marginals that regularise the generator, above those with each category of the target if any."""
    public: PublicUnits | None = None
    """Rows that clip bounds are taken from; None: generated rows."""


def generate(
    settings: Settings,
    generator: GeneratorNetwork,
    num_rows: int,
    key: PRNGKeyArray,
    conditions: Conditions | None = None,
) -> tuple[Float[Array, "rows features"], Float[Array, "rows features"], Float[Array, "rows features"] | None]:
    """Logits, features, and the conditions they were made for."""
    latent_key, head_key, condition_key = jax.random.split(key, 3)
    inputs = jax.random.normal(latent_key, (num_rows, settings.latent))
    condition = None
    if conditions is not None:
        condition = conditions.draw(condition_key, num_rows)
        inputs = jnp.concatenate([inputs, condition], axis=1)
    logits = jax.vmap(generator)(inputs)
    temperature, masks = settings.gumbel_temperature, settings.masks
    features = activate(logits, settings.blocks, temperature=temperature, key=head_key, masks=masks)
    return logits, features, condition


def critic_input(features: Array, condition: Array | None) -> Array:
    """A row beside its condition, if it has one."""
    return features if condition is None else jnp.concatenate([features, condition], axis=1)


def generator_gradient(
    settings: Settings,
    generator: GeneratorNetwork,
    scores_of: Callable[[Array], Array],
    key: PRNGKeyArray,
    context: Context,
) -> PyTree:
    """The gradient of the generator's loss, given the scores of rows by one critic or by several."""

    @eqx.filter_grad
    def gradient(generator: GeneratorNetwork) -> Array:
        logits, features, condition = generate(settings, generator, settings.generator_batch, key, context.conditions)
        value = LOSSES[settings.loss].generator(scores_of(critic_input(features, condition)))
        if settings.masks:
            logits = logits + log_possible(features, settings.blocks, settings.masks)
        if condition is not None:
            # The condition is a function of noisy marginals, so nothing private is compared with it.
            logs = block_log_softmax(logits, settings.blocks)
            value = value - settings.condition_weight * jnp.mean(jnp.sum(condition * logs, axis=1))
        for penalty in _marginal_penalties(settings, logits, features, condition, context):
            value = value - penalty
        return value

    return gradient(generator)


def _marginal_penalties(
    settings: Settings,
    logits: Float[Array, "rows features"],
    features: Float[Array, "rows features"],
    condition: Array | None,
    context: Context,
) -> Iterator[Float[Array, ""]]:
    """Log-likelihoods of the noisy marginals under those of a batch: one-way ones, and those with the target.

    With masks, the probabilities of a block hold given the categories drawn for earlier ones, which are in `features`.
    """
    marginal, weight, at = context.marginal, settings.marginal_weight, settings.target_block
    if marginal is None or not weight:
        return
    # Features that are no categories have no share, and add nothing.
    logs = jnp.where(is_one_hot(settings.blocks), block_log_softmax(logits, settings.blocks), 0.0)
    levels = jnp.exp(logs)
    shares = _mean(levels, condition, context.conditions)
    yield weight * jnp.sum(one_way(marginal) * jnp.log(shares + 1e-8))
    if at is not None:
        begin, size = starts(settings.blocks)[at], settings.blocks[at].size
        cut = slice(begin, begin + size)
        pairs = levels[:, cut, None] * levels[:, None]
        if settings.masks:
            is_earlier = np.arange(levels.shape[1]) < begin
            given_target = features[:, cut, None] * levels[:, None]
            pairs = jnp.where(is_earlier, levels[:, cut, None] * features[:, None], given_target)
        shares = _mean(pairs.reshape(len(pairs), -1), condition, context.conditions)
        yield weight * jnp.sum(marginal[1:].reshape(-1) * jnp.log(shares + 1e-8))


def one_way(marginal: Array) -> Array:
    """The one-way marginals: all there is, or the line above the marginals with each category of the target."""
    return marginal if marginal.ndim == 1 else marginal[0]


def _mean(rows: Array, condition: Array | None, conditions: Conditions | None) -> Array:
    """The mean over a batch; of conditional rows, weighted as if conditions followed the noisy marginals."""
    if condition is None or conditions is None:
        return rows.mean(axis=0)
    odds = conditions.marginal / conditions.num_blocks / jnp.maximum(conditions.target, 1e-12)
    weights = jnp.sum(condition * odds, axis=1)
    return weights @ rows / jnp.maximum(weights.sum(), 1e-6)
