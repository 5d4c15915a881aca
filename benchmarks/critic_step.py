"""How much a private critic step costs beside the same step without privacy.

    python benchmarks/critic_step.py --populations 1 16 84 256 --write
    python benchmarks/critic_step.py --populations 1 --skip-per-example --parts --peers ~/.cache/peers --write
    CRITIC_STEP_BATCH=20000 python benchmarks/critic_step.py --populations 1 --skip-per-example --write

Four steps, each scanned: private (a Poisson batch, clipped sum, noise), float32 (the same with one plain float32 sum,
whose sensitivity is not proven: what the proof costs), plain (as many rows by uniform positions, mean loss, one
backward pass), and private by gradients of every row. All take the same generated rows and Adam, so that what differs
is the query of the rows. Populations are mapped over keys and networks. Needs nothing but NumPy, JAX, Equinox and
Optax. Rows are drawn from a seed: no table is read.

Times are those of a clock, and processor seconds of the process, which other processes on a shared machine change less.
`--peers FOLDER` also times Opacus and jax-privacy, each in an environment of its own that is built in that folder.
"""

import argparse
import datetime
import functools
import json
import os
import platform
import shlex
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE.parent), str(HERE.parent / "src")]

import equinox as eqx  # noqa: E402
import jax  # noqa: E402
import jax.numpy as jnp  # noqa: E402
import numpy as np  # noqa: E402
import optax  # noqa: E402

from understudy.encoding.features import Block  # noqa: E402
from understudy.privacy.gradients.clipping import (  # noqa: E402
    Clip,
    _coefficients,
    _group_of_leaves,
    _group_squares,
    add_noise,
    clipped_sum,
    per_example_sum,
    unit_loss,
)
from understudy.privacy.gradients.ghost import Weights, ghost_parts, parameters_of, with_parameters  # noqa: E402
from understudy.privacy.gradients.poisson import Batches, chunk_size, num_slots, poisson_batches, sum_over_batch  # noqa: E402
from understudy.privacy.noise.device import normals, normals_and_words  # noqa: E402
from understudy.privacy.rows.rows import PrivateUnits  # noqa: E402
from understudy.training.critics import LOSSES, row_loss  # noqa: E402
from understudy.training.neural import Critic  # noqa: E402

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


class Seconds(NamedTuple):
    """Of one step: medians over rounds."""

    wall: float
    cpu: float


def interleaved(runs: dict[str, Callable[[], Any]], num_steps: int, repeats: int) -> dict[str, Seconds]:
    """Each runs once in every round, after a warm-up: what disturbs the machine disturbs all of them."""
    found: dict[str, list[Seconds]] = {name: [] for name in runs}
    for run in runs.values():
        jax.block_until_ready(run())
    for _ in range(repeats):
        for name, run in runs.items():
            wall, cpu = time.perf_counter(), time.process_time()
            jax.block_until_ready(run())
            spent = Seconds(time.perf_counter() - wall, time.process_time() - cpu)
            found[name].append(Seconds(*(each / num_steps for each in spent)))
    return {name: Seconds(*map(statistics.median, zip(*rounds, strict=True))) for name, rounds in found.items()}


def timed(members: int, num_steps: int, repeats: int, names: list[str]) -> dict[str, tuple[float, Seconds]]:
    """For each step: seconds of compilation, and of one step."""
    units, fakes = rows_and_fakes()
    critics, moments, keys = start(members)
    step_keys = jax.vmap(lambda key: jax.random.split(key, num_steps))(keys)
    coin_keys = jax.vmap(lambda key: jax.random.split(jax.random.fold_in(key, 1), num_steps))(keys)
    if members == 1:  # as a training alone is run
        given = (critics, moments, step_keys, coin_keys)
        critics, moments, step_keys, coin_keys = jax.tree_util.tree_map(lambda array: array[0], given)

    def drawn() -> Batches:
        return poisson_batches(coin_keys, ROWS, sampling_rate=RATE, chunk=CHUNK, slots=SLOTS)

    draws = jax.block_until_ready(drawn())
    compile_seconds, runs = {}, {}
    for name in names:
        began = time.perf_counter()
        steps = scanned(STEPS[name])
        steps = steps if members == 1 else jax.vmap(steps, in_axes=(0, 0, None, None, 0, 0))
        program = jax.jit(steps).lower(critics, moments, units, fakes, draws, step_keys).compile()
        compile_seconds[name] = time.perf_counter() - began

        def run(program: Callable = program, is_plain: bool = name == "plain") -> Any:
            # The time of the coins is part of a private step's.
            return program(critics, moments, units, fakes, draws if is_plain else drawn(), step_keys)

        runs[name] = run
    found = interleaved(runs, num_steps, repeats)
    return {name: (compile_seconds[name], found[name]) for name in names}


def parts(num_steps: int, repeats: int) -> dict[str, float]:
    """Processor seconds of one network's query of the rows, split by what each part adds to the ones before it."""
    units, _ = rows_and_fakes()
    critics, _, _ = start(1)
    critic = jax.tree_util.tree_map(lambda leaf: leaf[0], critics)
    leaves = jax.tree_util.tree_leaves(eqx.filter(critic, eqx.is_inexact_array))
    of_unit, clip, taken = unit_loss(row_loss(LOSS, BLOCKS, None, paired=False)), Clip.flat(CLIP), jnp.ones(CHUNK, bool)
    drawn = (units._rows[:CHUNK], units._present[:CHUNK], None, jax.random.split(jax.random.key(0), CHUNK))

    def plain_sum(critic: Any, num_rows: int) -> Any:
        trained, rest = eqx.partition(critic, eqx.is_inexact_array)
        real = drawn[0][:num_rows, 0]
        return jax.grad(lambda inside: jnp.sum(jax.vmap(lambda row: LOSS.real(eqx.combine(inside, rest)(row)))(real)))(
            trained
        )

    pieces: dict[str, Callable[[Any, jax.Array], Any]] = {
        "plain": lambda critic, key: plain_sum(critic, BATCH),
        "padded": lambda critic, key: plain_sum(critic, CHUNK),
        "weighted": lambda critic, key: float32_sum(of_unit, critic, drawn, taken, clip),
        "proven": lambda critic, key: clipped_sum(of_unit, critic, drawn, taken, clip),
        "noise": lambda critic, key: normals_and_words(key, sum(leaf.size for leaf in leaves)),
    }

    def scan_of(piece: Callable[[Any, jax.Array], Any]) -> Callable[[jax.Array], Any]:
        """Each turn stores all of its result, and the next one depends on it."""
        shapes = jax.eval_shape(piece, critic, jax.random.key(0))

        def turn(found: Any, key: jax.Array) -> tuple[Any, None]:
            shift = 1e-20 * jax.tree_util.tree_leaves(found)[0].reshape(-1)[0].astype(jnp.float32)
            moved = jax.tree_util.tree_map(lambda leaf: leaf + shift if eqx.is_inexact_array(leaf) else leaf, critic)
            return piece(moved, key), None

        zeros = jax.tree_util.tree_map(lambda shape: jnp.zeros(shape.shape, shape.dtype), shapes)
        return jax.jit(lambda keys: jax.lax.scan(turn, zeros, keys)[0])

    keys = jax.random.split(jax.random.key(1), num_steps)
    runs: dict[str, Callable[[], Any]] = {
        name: functools.partial(scan_of(piece), keys) for name, piece in pieces.items()
    }
    runs["batch"] = lambda: poisson_batches(keys, ROWS, sampling_rate=RATE, chunk=CHUNK, slots=SLOTS)
    cpu = {name: seconds.cpu for name, seconds in interleaved(runs, num_steps, repeats).items()}
    return {
        f"plain gradient of {BATCH} rows": cpu["plain"],
        f"padding to {CHUNK} slots": cpu["padded"] - cpu["plain"],
        "norms and weights": cpu["weighted"] - cpu["padded"],
        "sum in blocks, on a grid": cpu["proven"] - cpu["weighted"],
        "normals of the noise": cpu["noise"],
        "sampling and arrangement of the batch": cpu["batch"],
    }


PEERS = {
    "opacus": ("Opacus, ghost clipping", ("opacus==1.6.0", "torch==2.15.0"), "BSD-3-Clause"),
    "jax_privacy": ("jax-privacy", ("jax-privacy==2.0.0", "jax==0.10.2", "optax"), "Apache-2.0"),
}


def peer_lines(root: Path, num_steps: int, repeats: int) -> list[str]:
    """A line for each peer: its private step beside its own plain one. One that cannot be installed says why."""
    from benchmarks.peers.description import Peer
    from benchmarks.peers.environment import build_environment, environment_python, environment_variables
    from understudy.benchmark.peers import PeerError

    features = sum(block.size for block in BLOCKS)
    task = {"rows": ROWS, "features": features, "batch": BATCH, "steps": num_steps, "repeats": repeats}
    lines = []
    for name, (title, packages, licence) in PEERS.items():
        script = HERE / f"critic_step_{name}.py"
        peer = Peer(name, title, packages, ">=3.11", "", licence, (), script)
        try:
            python = environment_python(build_environment(peer, root))
        except PeerError as reason:
            lines += [f"| {title} | not measured: {reason} | | | |"]
            continue
        command = [str(python), str(script), json.dumps(task)]
        # Threads that wait by spinning would count as work, and slow each other down on a shared machine.
        variables = {**environment_variables(), "OMP_WAIT_POLICY": "passive"}
        said = subprocess.run(command, check=True, capture_output=True, text=True, env=variables).stdout
        answer = json.loads(said.splitlines()[-1])
        found = {
            step: Seconds(*map(statistics.median, zip(*rounds, strict=True)))
            for step, rounds in answer["seconds"].items()
        }
        lines += [peer_line(title, answer["versions"], found["private"], found["plain"])]
    return lines


def peer_line(title: str, versions: str, private: Seconds, plain: Seconds) -> str:
    figures = f"{1 / private.wall:,.1f} | {1 / private.cpu:,.1f} | {plain.wall / private.wall:.2f}"
    return f"| {title} | {versions} | {figures} | {plain.cpu / private.cpu:.2f} |"


# --------------------------------------------------------------------------------------------------------------- report


def report(arguments: argparse.Namespace) -> str:
    device = jax.devices()[0]
    names = [name for name in STEPS if not (arguments.skip_per_example and name == "per example")]
    stamp = f"{datetime.date.today()}, {device.device_kind}, {platform.machine()}, {_cores()} CPU cores"
    lines = ["# Time of a private critic step", ""]
    lines += [f"`python benchmarks/critic_step.py {shlex.join(_names(sys.argv[1:]))}`, {stamp}, seed {SEED};"]
    lines += [f"Python {platform.python_version()}, JAX {jax.__version__}, Equinox {eqx.__version__}."]
    lines += [f"Critic 106-256-256-1, {ROWS:,} rows, batch {BATCH} (chunk {CHUNK}), scans of {arguments.steps} steps,"]
    load = f"load average {os.getloadavg()[0]:.0f} at the start"
    lines += [f"median of {arguments.repeats} interleaved rounds; {load}."]
    lines += [f"The target for plain / private is {TARGET}.", ""]
    columns = (
        "population | step | compilation, s | one step, ms | processor, ms | steps/s of all members | "
        "relative to plain | relative to plain, processor"
    )
    lines += [f"| {columns} |", "|---:|---|---:|---:|---:|---:|---:|---:|"]
    for members in arguments.populations:
        found = timed(members, arguments.steps, arguments.repeats, names)
        for name, (compilation, seconds) in found.items():
            beside = (f"{at / own:.2f}" for at, own in zip(found["plain"][1], seconds, strict=True))
            figures = f"{compilation:.1f} | {seconds.wall * 1e3:.3f} | {seconds.cpu * 1e3:.3f}"
            lines += [f"| {members} | {name} | {figures} | {members / seconds.wall:,.0f} | {' | '.join(beside)} |"]
    if arguments.parts:
        lines += ["", "One network's query of the rows, by what each part adds (processor time):", ""]
        lines += ["| part | microseconds |", "|---|---:|"]
        found_parts = parts(arguments.steps, arguments.repeats)
        lines += [f"| {name} | {value * 1e6:,.0f} |" for name, value in found_parts.items()]
    if arguments.peers:
        lines += ["", "Other packages: a private step on the real rows alone, relative to their own plain step:", ""]
        columns = (
            "package | versions | steps/s | steps per processor second | relative to plain | "
            "relative to plain, processor"
        )
        lines += [f"| {columns} |", "|---|---|---:|---:|---:|---:|"]
        lines += peer_lines(arguments.peers.expanduser(), max(1, arguments.steps // 4), arguments.repeats)
    return "\n".join(lines) + "\n"


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _names(arguments: list[str]) -> list[str]:
    """The arguments with folders by their name alone."""
    return [Path(each).name if os.sep in each else each for each in arguments]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--populations", type=int, nargs="+", default=[1, 16])
    parser.add_argument("--steps", type=int, default=50, help="steps in one scan")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--skip-per-example", action="store_true", help="leave out the gradients of every row")
    parser.add_argument("--parts", action="store_true", help="also time the parts of a private step")
    parser.add_argument("--peers", type=Path, help="also time Opacus and jax-privacy, in environments in this folder")
    parser.add_argument("--write", action="store_true", help="save under benchmarks/results")
    arguments = parser.parse_args()
    text = report(arguments)
    print(text)
    if arguments.write:
        kind = jax.devices()[0].device_kind.lower().replace(" ", "_") + f"_batch_{BATCH}" * (BATCH != 500)
        (HERE / "results" / f"critic_step_{kind}.md").write_text(text)


if __name__ == "__main__":
    main()
