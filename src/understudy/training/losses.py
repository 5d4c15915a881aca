"""What critic and generator minimise. A real part, one term for each real row, and a fake part without private rows."""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

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
