"""How much a private critic step costs beside the same step without privacy.

    python benchmarks/critic_step.py --populations 1 16 84 256 --write
    CRITIC_STEP_BATCH=20000 python benchmarks/critic_step.py --populations 1 --skip-per-example --write

Four steps, each scanned: private (a Poisson batch, clipped sum, noise), float32 (the same with one plain float32 sum,
whose sensitivity is not proven: what the proof costs), plain (as many rows by uniform positions, mean loss, one
backward pass), and private by gradients of every row. All take the same generated rows and Adam, so that what differs
is the query of the rows. Populations are mapped over keys and networks. Needs nothing but NumPy, JAX, Equinox and
Optax. Rows are drawn from a seed: no table is read.
"""

import argparse
import datetime
import os
import platform
import shlex
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent / "src"))

import equinox as eqx  # noqa: E402
import jax  # noqa: E402
import jax.numpy as jnp  # noqa: E402
import numpy as np  # noqa: E402
import optax  # noqa: E402

from understudy.encoding.features import Block  # noqa: E402
from understudy.privacy.clipping import (  # noqa: E402
    Clip,
    _coefficients,
    _group_of_leaves,
    _group_squares,
    add_noise,
    clipped_sum,
    per_example_sum,
    unit_loss,
)
from understudy.privacy.device_noise import normals  # noqa: E402
from understudy.privacy.ghost import Weights, ghost_parts, parameters_of, with_parameters  # noqa: E402
from understudy.privacy.rows import PrivateUnits  # noqa: E402
from understudy.privacy.sampling import Batches, chunk_size, num_slots, poisson_batches, sum_over_batch  # noqa: E402
from understudy.training.critics import row_loss  # noqa: E402
from understudy.training.losses import LOSSES  # noqa: E402
from understudy.training.networks import Critic  # noqa: E402

BATCH, SEED = int(os.environ.get("CRITIC_STEP_BATCH", "500")), 0
ROWS = max(32_561, 4 * BATCH)
WIDTHS = (256, 256)
BLOCKS = (*(Block("one_hot", 13) for _ in range(8)), Block("tanh", 2))  # 106 features
RATE, CHUNK, SLOTS = BATCH / ROWS, chunk_size(BATCH), num_slots(BATCH)
LOSS = LOSSES["gan"]
CLIP, NOISE_MULTIPLIER, LEARNING_RATE = 1.0, 1.0, 4e-4
ADAM = optax.scale_by_adam(b1=0.5, b2=0.9)
TARGET = 0.75

Gradient = Callable[[Any, PrivateUnits, Batches, jax.Array], Any]


def rows_and_fakes() -> tuple[PrivateUnits, jax.Array]:
    """One-hot blocks and two numbers as features; fakes of the same width."""
    draw = np.random.default_rng(SEED)
    levels = [np.eye(13, dtype=np.float32)[draw.integers(0, 13, ROWS)] for _ in range(8)]
    rows = np.concatenate([*levels, draw.uniform(-1, 1, (ROWS, 2)).astype(np.float32)], axis=1)
    fakes = draw.random((BATCH, rows.shape[1])).astype(np.float32)
    return PrivateUnits(jnp.asarray(rows[:, None]), jnp.ones((ROWS, 1), bool)), jnp.asarray(fakes)


# ------------------------------------------------------------------------------------------------------------ the steps


def float32_sum(loss: Callable, critic: Any, units: Any, taken: jax.Array, clip: Clip) -> tuple[Any, jax.Array]:
    """A clipped sum as one product in float32: faster, and moved by one unit beyond the bound."""
    parts, groups = ghost_parts(loss, critic, units), _group_of_leaves(parameters_of(critic), clip)
    squares = _group_squares([part.squares() for part in parts], groups, 1)
    keep, finite, _ = _coefficients(squares, taken, clip, 0.0)
    weighted = (part.block_sums(Weights(keep, finite, group), 1)[0] for part, group in zip(parts, groups, strict=True))
    return with_parameters(critic, list(weighted)), jnp.zeros(1)


def float32(critic: Any, units: PrivateUnits, draw: Batches, key: jax.Array) -> Any:
    part_key, noise_key = jax.random.split(key)
    of_unit = unit_loss(row_loss(LOSS, BLOCKS, None, paired=False))

    def part(drawn: PrivateUnits, taken: jax.Array, chunk_key: jax.Array) -> Any:
        keys = jax.random.split(chunk_key, CHUNK)
        return float32_sum(of_unit, critic, (drawn._rows, drawn._present, None, keys), taken, Clip.flat(CLIP))

    leaves, structure = jax.tree_util.tree_flatten(sum_over_batch(part, units, draw, part_key)[0])
    noise = jnp.split(normals(noise_key, sum(leaf.size for leaf in leaves)), np.cumsum([leaf.size for leaf in leaves]))
    noisy = [
        (leaf + NOISE_MULTIPLIER * CLIP * each.reshape(leaf.shape)) / BATCH
        for leaf, each in zip(leaves, noise, strict=False)
    ]
    return jax.tree_util.tree_unflatten(structure, noisy)


def private(summed: Callable = clipped_sum) -> Gradient:
    """The query of the training loop, with either way to the clipped sum."""
    of_unit = unit_loss(row_loss(LOSS, BLOCKS, None, paired=False))

    def gradient(critic: Any, units: PrivateUnits, draw: Batches, key: jax.Array) -> Any:
        part_key, noise_key = jax.random.split(key)
        clip = Clip.flat(CLIP)

        def part(drawn: PrivateUnits, taken: jax.Array, chunk_key: jax.Array) -> Any:
            keys = jax.random.split(chunk_key, CHUNK)
            return summed(of_unit, critic, (drawn._rows, drawn._present, None, keys), taken, clip)

        total, within = sum_over_batch(part, units, draw, part_key)
        noisy = add_noise(total, within, clip, noise_multiplier=NOISE_MULTIPLIER, key=noise_key).gradient
        return jax.tree_util.tree_map(lambda leaf: leaf / BATCH, noisy)

    return gradient


def plain(critic: Any, units: PrivateUnits, draw: Batches, key: jax.Array) -> Any:
    at = jax.random.randint(key, (BATCH,), 0, ROWS)
    drawn, (trained, rest) = units._rows[at, 0], eqx.partition(critic, eqx.is_inexact_array)
    return jax.grad(lambda inside: jnp.mean(jax.vmap(lambda row: LOSS.real(eqx.combine(inside, rest)(row)))(drawn)))(
        trained
    )


STEPS: dict[str, Gradient] = {
    "private": private(),
    "float32": float32,
    "plain": plain,
    "per example": private(per_example_sum),
}


def scanned(gradient: Gradient) -> Callable:
    """Critic steps: the query, the fakes' gradient, Adam."""

    def run(
        critic: Any, moments: Any, units: PrivateUnits, fakes: jax.Array, draws: Batches, keys: jax.Array
    ) -> tuple[Any, Any]:
        def step(state: tuple[Any, Any], given: tuple[Batches, jax.Array]) -> tuple[tuple[Any, Any], None]:
            (critic, moments), (draw, step_key) = state, given
            trained, rest = eqx.partition(critic, eqx.is_inexact_array)
            of_fakes = jax.grad(lambda inside: LOSS.fake(jax.vmap(eqx.combine(inside, rest))(fakes)))(trained)
            direction = jax.tree_util.tree_map(jnp.add, gradient(critic, units, draw, step_key), of_fakes)
            updates, moments = ADAM.update(direction, moments, trained)
            updates = jax.tree_util.tree_map(lambda leaf: -LEARNING_RATE * leaf, updates)
            return (eqx.apply_updates(critic, updates), moments), None

        return jax.lax.scan(step, (critic, moments), (draws, keys))[0]

    return run


# --------------------------------------------------------------------------------------------------------------- timing


def start(members: int) -> tuple[Any, Any, jax.Array]:
    features = sum(block.size for block in BLOCKS)
    keys = jax.random.split(jax.random.key(SEED), members)
    critics = jax.vmap(lambda key: Critic(features, WIDTHS, key=key))(keys)
    moments = jax.vmap(lambda critic: ADAM.init(eqx.filter(critic, eqx.is_inexact_array)))(critics)
    return critics, moments, jax.random.split(jax.random.key(SEED + 1), members)


def timed(members: int, num_steps: int, repeats: int, names: list[str]) -> dict[str, tuple[float, float]]:
    """For each step: seconds of compilation, and the median seconds of one step. Turns are taken in every round."""
    units, fakes = rows_and_fakes()
    critics, moments, keys = start(members)
    compiled: dict[str, Callable] = {}
    compile_seconds = {}
    step_keys = jax.vmap(lambda key: jax.random.split(key, num_steps))(keys)
    coin_keys = jax.vmap(lambda key: jax.random.split(jax.random.fold_in(key, 1), num_steps))(keys)

    def drawn() -> Batches:
        return poisson_batches(coin_keys, ROWS, sampling_rate=RATE, chunk=CHUNK, slots=SLOTS)

    draws = jax.block_until_ready(drawn())
    seconds: dict[str, list[float]] = {name: [] for name in names}
    for name in names:
        began = time.perf_counter()
        mapped = jax.jit(jax.vmap(scanned(STEPS[name]), in_axes=(0, 0, None, None, 0, 0)))
        compiled[name] = mapped.lower(critics, moments, units, fakes, draws, step_keys).compile()
        compile_seconds[name] = time.perf_counter() - began
        jax.block_until_ready(compiled[name](critics, moments, units, fakes, draws, step_keys))
    for _ in range(repeats):
        for name in names:
            began = time.perf_counter()
            now = draws if name == "plain" else drawn()  # the coins' time is part of a private step's
            jax.block_until_ready(compiled[name](critics, moments, units, fakes, now, step_keys))
            seconds[name].append((time.perf_counter() - began) / num_steps)
    return {name: (compile_seconds[name], statistics.median(seconds[name])) for name in names}


def parts(num_steps: int, repeats: int) -> dict[str, float]:
    """Microseconds of one network's private step, piece by piece; each piece is scanned alone."""
    units, _ = rows_and_fakes()
    critics, _, _ = start(1)
    critic = jax.tree_util.tree_map(lambda leaf: leaf[0], critics)
    leaves = jax.tree_util.tree_leaves(eqx.filter(critic, eqx.is_inexact_array))
    of_unit, clip = unit_loss(row_loss(LOSS, BLOCKS, None, paired=False)), Clip.flat(CLIP)
    chunk_units = (units._rows[:CHUNK], units._present[:CHUNK], None, jax.random.split(jax.random.key(0), CHUNK))

    def clipped(carry: jax.Array, _: jax.Array, *, bound: Clip | None) -> jax.Array:
        moved = jax.tree_util.tree_map(lambda leaf: leaf + carry if eqx.is_inexact_array(leaf) else leaf, critic)
        if bound is not None:
            found = clipped_sum(of_unit, moved, chunk_units, jnp.ones(CHUNK, bool), bound)[0]
            found = jax.tree_util.tree_map(lambda leaf: leaf.astype(jnp.float32), found)
        else:
            trained, rest = eqx.partition(moved, eqx.is_inexact_array)
            real = chunk_units[0][:, 0]
            found = jax.grad(
                lambda inside: jnp.sum(jax.vmap(lambda row: LOSS.real(eqx.combine(inside, rest)(row)))(real))
            )(trained)
        return carry + 1e-20 * sum(leaf.sum() for leaf in jax.tree_util.tree_leaves(found))

    def noise(carry: jax.Array, key: jax.Array) -> jax.Array:
        return carry + normals(key, sum(leaf.size for leaf in leaves)).sum()

    pieces = {
        "clipped sum": lambda carry, key: clipped(carry, key, bound=clip),
        "plain gradient of as many rows": lambda carry, key: clipped(carry, key, bound=None),
        "noise": noise,
    }
    found = {}
    for name, piece in pieces.items():
        run = jax.jit(
            lambda keys, piece=piece: jax.lax.scan(lambda c, key: (piece(c, key), None), jnp.zeros(()), keys)[0]
        )
        keys, seconds = jax.random.split(jax.random.key(1), num_steps), []
        jax.block_until_ready(run(keys))
        for _ in range(repeats):
            began = time.perf_counter()
            jax.block_until_ready(run(keys))
            seconds.append((time.perf_counter() - began) / num_steps)
        found[name] = statistics.median(seconds) * 1e6
    keys, seconds = jax.random.split(jax.random.key(2), num_steps), []
    for _ in range(repeats + 1):
        began = time.perf_counter()
        jax.block_until_ready(poisson_batches(keys, ROWS, sampling_rate=RATE, chunk=CHUNK, slots=SLOTS))
        seconds.append((time.perf_counter() - began) / num_steps)
    return {**found, "coins, places and arrangement": statistics.median(seconds[1:]) * 1e6}


# --------------------------------------------------------------------------------------------------------------- report


def report(arguments: argparse.Namespace) -> str:
    device = jax.devices()[0]
    names = [name for name in STEPS if not (arguments.skip_per_example and name == "per example")]
    stamp = f"{datetime.date.today()}, {device.device_kind}, {platform.machine()}, {_cores()} CPU cores"
    lines = ["# Time of a private critic step", ""]
    lines += [f"`python benchmarks/critic_step.py {shlex.join(sys.argv[1:])}`, {stamp}, seed {SEED};"]
    lines += [f"Python {platform.python_version()}, JAX {jax.__version__}, Equinox {eqx.__version__}."]
    lines += [f"Critic 106-256-256-1, {ROWS:,} rows, batch {BATCH} (chunk {CHUNK}), scans of {arguments.steps} steps,"]
    lines += [f"median of {arguments.repeats} interleaved rounds. The target for plain / private is {TARGET}.", ""]
    columns = (
        "population | step | compilation, s | one step, ms | steps/s of all members | beside plain | beside float32"
    )
    lines += [f"| {columns} |", "|---:|---|---:|---:|---:|---:|---:|"]
    for members in arguments.populations:
        found = timed(members, arguments.steps, arguments.repeats, names)
        for name, (compilation, seconds) in found.items():
            beside = " | ".join(f"{found[other][1] / seconds:.2f}" for other in ("plain", "float32"))
            figures = f"{compilation:.1f} | {seconds * 1e3:.3f} | {members / seconds:,.0f} | {beside}"
            lines += [f"| {members} | {name} | {figures} |"]
    if arguments.parts:
        lines += [
            "",
            "Pieces of one network's private step, each scanned alone:",
            "",
            "| piece | microseconds |",
            "|---|---:|",
        ]
        lines += [f"| {name} | {value:.0f} |" for name, value in parts(arguments.steps, arguments.repeats).items()]
    return "\n".join(lines) + "\n"


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--populations", type=int, nargs="+", default=[1, 16])
    parser.add_argument("--steps", type=int, default=50, help="steps in one scan")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--skip-per-example", action="store_true", help="leave out the gradients of every row")
    parser.add_argument("--parts", action="store_true", help="also time the pieces of a private step")
    parser.add_argument("--write", action="store_true", help="save under benchmarks/results")
    arguments = parser.parse_args()
    text = report(arguments)
    print(text)
    if arguments.write:
        kind = jax.devices()[0].device_kind.lower().replace(" ", "_") + f"_batch_{BATCH}" * (BATCH != 500)
        (HERE / "results" / f"critic_step_{kind}.md").write_text(text)


if __name__ == "__main__":
    main()
