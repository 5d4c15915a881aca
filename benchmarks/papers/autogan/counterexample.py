"""Why an encoder without noise is not private: two tables that differ in one row, told apart by a single noisy step.

    python benchmarks/papers/autogan/counterexample.py

DP-auto-GAN (Proposition 3, Corollary 2) clips and noises the gradients of the decoder, which is released, and trains
the encoder by plain gradients, because it is not. Here both are one number: code = phi a, output = theta code, loss
(theta phi a - x)^2 / 2, from theta = 1 and phi = 1/2. Ordinary rows have a = x = 1; the one that may be there or not
has a = A and x = -A. Draws of 64 rows, noise multiplier 2.5, as published for Adult. The story is told in
`docs/autogan_counterexample.md`.
"""

import argparse
import functools
import math
import sys
from pathlib import Path

sys.path[:0] = [str(Path(__file__).parents[3] / "src")]

import equinox as eqx  # noqa: E402
import jax  # noqa: E402
import jax.numpy as jnp  # noqa: E402
import numpy as np  # noqa: E402
from jaxtyping import Array, Float  # noqa: E402

from understudy.privacy.gradients.clipping import Clip, add_noise, clipped_sum  # noqa: E402
from understudy.privacy.gradients.ghost import UnitLoss  # noqa: E402

BATCH, NOISE, BOUND, RATE = 64, 2.5, 1 / 8, 0.1
"""Rows of a draw, noise multiplier, clip bound, learning rate of the encoder."""
OUTLIER = 100.0
ORDINARY = np.ones((BATCH, 2), np.float32)
"""(a, x) of every other row."""


class Part(eqx.Module):
    """One number that multiplies: an encoder, or a decoder."""

    layer: eqx.nn.Linear

    def __init__(self, value: float):
        empty = eqx.nn.Linear(1, 1, use_bias=False, key=_no_key())
        self.layer = eqx.tree_at(lambda it: it.weight, empty, jnp.full((1, 1), value, jnp.float32))

    @property
    def value(self) -> float:
        return float(self.layer.weight[0, 0])


class Both(eqx.Module):
    """Encoder and decoder, clipped as one vector."""

    encoder: Part
    decoder: Part


def _no_key() -> Array:
    return jax.random.key(0)


def _loss(encoder: Part, decoder: Part, row: Float[Array, " 2"]) -> Float[Array, ""]:
    return jnp.sum((decoder.layer(encoder.layer(row[:1])) - row[1:]) ** 2) / 2


def _sums(rows: np.ndarray, encoder: Part, decoder: Part) -> tuple[float, float]:
    """The decoder's sum of clipped gradients, and the encoder's of exact ones."""
    units, taken = jnp.asarray(rows), jnp.ones(len(rows), dtype=bool)
    clip = Clip.flat(BOUND)
    summed = clipped_sum(UnitLoss(lambda part, row: _loss(encoder, part, row)), decoder, units, taken, clip)
    noised = add_noise(*summed, clip, noise_multiplier=0.0, key=jax.random.key(0)).gradient
    plain, _ = clipped_sum(
        UnitLoss(lambda part, row: _loss(part, decoder, row)), encoder, units, taken, Clip.flat(math.inf)
    )
    return float(noised.layer.weight[0, 0]), float(plain.layer.weight[0, 0])


@functools.cache
def as_published() -> dict[str, float]:
    """Two steps of the published rule on both tables. The row is drawn in the first step, and not in the second.

    The decoder that the first step released is the same on both sides: an observer gets no help from it.
    """
    second = {}
    hidden = {}
    for name, rows in (("without", ORDINARY), ("with", np.concatenate([ORDINARY, [[OUTLIER, -OUTLIER]]]))):
        encoder, decoder = Part(0.5), Part(1.0)
        _, exact = _sums(rows.astype(np.float32), encoder, decoder)
        hidden[name] = encoder.value - RATE * exact / BATCH
        second[name], _ = _sums(ORDINARY, Part(hidden[name]), decoder)
    apart = abs(second["with"] - second["without"]) / (NOISE * BOUND)
    return (
        {f"phi {name}": value for name, value in hidden.items()}
        | {f"sum {name}": value for name, value in second.items()}
        | {"separation": apart}
    )


@functools.cache
def joint() -> dict[str, float]:
    """The same two steps where encoder and decoder are one clipped and noised vector.

    Both are released, so the second step begins at one state in both worlds, and the row is all that can differ.
    """
    clip, both = Clip.flat(BOUND), Both(Part(0.5), Part(1.0))

    def total(rows: np.ndarray, at: Both) -> np.ndarray:
        units, taken = jnp.asarray(rows, jnp.float32), jnp.ones(len(rows), dtype=bool)
        exact = clipped_sum(UnitLoss(lambda it, row: _loss(it.encoder, it.decoder, row)), at, units, taken, clip)
        summed = add_noise(*exact, clip, noise_multiplier=0.0, key=jax.random.key(0)).gradient
        return np.array([float(summed.encoder.layer.weight[0, 0]), float(summed.decoder.layer.weight[0, 0])])

    drawn = np.concatenate([ORDINARY, [[OUTLIER, -OUTLIER]]])
    first = np.linalg.norm(total(drawn, both) - total(ORDINARY, both))
    released = Both(Part(0.55), Part(1.0))
    second = np.linalg.norm(total(ORDINARY, released) - total(ORDINARY, released))
    return {"first": float(first) / (NOISE * BOUND), "second": float(second) / (NOISE * BOUND)}


def words() -> str:
    """What the page shows."""
    paper, sound = as_published(), joint()
    error = math.erfc(paper["separation"] / 2 / math.sqrt(2)) / 2
    lines = {
        "encoder after one hidden step": f"{paper['phi without']:.2f} without the row, {paper['phi with']:.2f} with it",
        "decoder's next clipped sum": f"{paper['sum without']:.2f} without the row, {paper['sum with']:+.2f} with it",
        "noise on that sum": f"standard deviation {NOISE * BOUND:.4f}",
        "separation as published": f"{paper['separation']:.1f} standard deviations in one step",
        "an observer errs": f"with probability below 1e{math.ceil(math.log10(error))}",
        "separation, joint clipping": f"{sound['first']:.2f} if the row is in the batch, {sound['second']:.2f} if not",
    }
    return "\n".join(f"{what + ':':<31}{said}" for what, said in lines.items())


if __name__ == "__main__":
    argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter).parse_args()
    print(words())
