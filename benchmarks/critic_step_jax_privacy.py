"""The private critic step of `critic_step.py` by jax-privacy, and the plain one.

    python benchmarks/critic_step_jax_privacy.py '{"rows": 999, "features": 106, "batch": 50, "steps": 5, "repeats": 5}'

Runs in an environment of its own and needs nothing of Understudy. Prints seconds as JSON.
"""

import argparse
import itertools
import json
import sys
import time
from typing import Any

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("task", type=json.loads, help="rows, features, batch, steps and repeats, as JSON")
given = parser.parse_args()  # before the imports, so that --help needs no package

try:
    import jax
    import jax.numpy as jnp
    import jax_privacy
    import numpy as np
    import optax
except ImportError:
    sys.exit("jax-privacy is not installed here. pip install jax-privacy")

CLIP, NOISE_MULTIPLIER = 1.0, 1.0
ADAM = optax.adam(4e-4, b1=0.5, b2=0.9)
MICROBATCH = 64
"""Gradients in memory at once."""


def score(network: list[tuple[Any, Any]], row: Any) -> Any:
    for weight, bias in network[:-1]:
        row = jax.nn.leaky_relu(weight @ row + bias, 0.2)
    weight, bias = network[-1]
    return (weight @ row + bias)[0]


def loss(network: Any, row: Any) -> Any:
    return jax.nn.softplus(-score(network, row))


def critic(features: int) -> list[tuple[Any, Any]]:
    widths, draw = (features, 256, 256, 1), np.random.default_rng(0)
    pairs = itertools.pairwise(widths)
    return [
        (jnp.asarray(draw.normal(0, before**-0.5, (after, before)), jnp.float32), jnp.zeros(after))
        for before, after in pairs
    ]


def main() -> None:
    task = given.task
    batch, slots = task["batch"], -(-int(task["batch"] + 5 * task["batch"] ** 0.5) // MICROBATCH) * MICROBATCH
    draw = np.random.default_rng(0)
    rows = jnp.asarray(draw.random((task["rows"], task["features"])), jnp.float32)
    clipped = jax_privacy.clipped_grad(
        loss, l2_clip_norm=CLIP, keep_batch_dim=False, normalize_by=batch, microbatch_size=MICROBATCH
    )
    noise = jax_privacy.noise_addition.gaussian_privatizer(
        stddev=NOISE_MULTIPLIER * CLIP / batch, prng_key=jax.random.key(1)
    )
    network = critic(task["features"])

    def update(network: Any, gradient: Any, moments: Any) -> tuple[Any, Any]:
        updates, moments = ADAM.update(gradient, moments, network)
        return optax.apply_updates(network, updates), moments

    @jax.jit
    def private(state: Any, at: Any, empty: Any) -> Any:
        network, moments, noise_state = state
        gradient = clipped(network, rows[at], is_padding_example=empty)
        gradient, noise_state = noise.update(gradient, noise_state)
        return *update(network, gradient, moments), noise_state

    @jax.jit
    def plain(state: Any, at: Any) -> Any:
        network, moments, _ = state
        gradient = jax.grad(lambda network: jnp.mean(jax.vmap(lambda row: loss(network, row))(rows[at])))(network)
        return *update(network, gradient, moments), ()

    def drawn(name: str) -> tuple[Any, ...]:
        if name == "plain":
            return (draw.integers(0, task["rows"], batch),)
        at = np.flatnonzero(draw.random(task["rows"]) < batch / task["rows"])[:slots]
        return np.pad(at, (0, slots - len(at))), np.arange(slots) >= len(at)

    steps = {"private": private, "plain": plain}
    states = {name: (network, ADAM.init(network), noise.init(network)) for name in steps}
    seconds: dict[str, list[list[float]]] = {name: [] for name in steps}
    for name, step in steps.items():
        jax.block_until_ready(step(states[name], *drawn(name)))
    for _ in range(task["repeats"]):
        for name, step in steps.items():
            wall, cpu = time.perf_counter(), time.process_time()
            for _ in range(task["steps"]):
                states[name] = step(states[name], *drawn(name))
            jax.block_until_ready(states[name])
            spent = time.perf_counter() - wall, time.process_time() - cpu
            seconds[name].append([each / task["steps"] for each in spent])
    versions = f"jax-privacy {jax_privacy.__version__}, JAX {jax.__version__}"
    print(json.dumps({"versions": versions, "seconds": seconds}))


if __name__ == "__main__":
    main()
