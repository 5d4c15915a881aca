"""How fast many teachers train at once. What their votes are worth: `utility.py pate`.

    UNDERSTUDY_DATA=folder python benchmarks/pate.py prepare adult.npz            # here: encodes, plans, measures
    python benchmarks/pate.py run adult.npz --write                               # here or there: trains, with timing

`run` needs only NumPy, JAX, Equinox and Optax. It trains 200 teachers for 1,000 steps on Adult as one population, then
the same teachers one after the other by the same step compiled for one (a few steps, since it is slow), in the same
process. Seeded, on public data: repeatable, and not private.
"""

import argparse
import dataclasses
import datetime
import sys
import time
from pathlib import Path

import numpy as np

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent / "src"))
EPSILON, DELTA, TEACHERS, STEPS = 3.0, 1e-5, 200, 1000


def prepare(path: str) -> None:
    """Codes, noisy marginals, and the noise multiplier of all votes together."""
    import understudy as us
    from understudy.benchmark.tables import load_table
    from understudy.encoding import fit_codec
    from understudy.privacy.mechanisms.counts import noisy_counts
    from understudy.privacy.mechanisms.discovery import plan_discovery
    from understudy.privacy.noise.source import SeededNoise
    from understudy.privacy.rows.table import PrivateTable
    from understudy.synthesizers.pategan import PATEGAN
    from understudy.training.prepare import to_shares

    table = load_table("adult")
    schema = table.schema
    ledger, binning = us.Ledger(us.Guarantee(EPSILON, DELTA), noise=SeededNoise(0)), us.Binning(bins="uniform")
    codec, rows = fit_codec(
        PrivateTable(table.train), schema, plan_discovery(schema, ledger.remaining, binning), ledger, binning
    )
    plan = PATEGAN().plan(codec.domain, ledger.remaining)
    tables = noisy_counts(rows, codec.domain.one_way, plan["one_way"], ledger)
    np.savez_compressed(
        path,
        codes=codec.encode(table.train),
        sizes=codec.domain.sizes,
        rows=codec.num_rows,
        marginal=np.concatenate([to_shares(table) for table in tables]).astype(np.float32),
        multiplier=plan["votes"].event.noise_multiplier,  # type: ignore[attr-defined]
    )


def run(path: str, *, teachers: int, steps: int, widths: tuple[int, ...], loop_steps: int, write: bool) -> None:
    import jax
    import jax.numpy as jnp

    from understudy.privacy.gradients.pate import (
        ChargedVotes,
        Partitions,
        Teachers,
        partition_by_teacher,
        teacher_step,
        vote_stddev,
    )
    from understudy.privacy.noise.source import SeededNoise
    from understudy.training.critics import one_hot_blocks
    from understudy.training.gan import Hyperparameters
    from understudy.training.generation import Context
    from understudy.training.pate import (
        PateState,
        Voting,
        advance,
        init_learners,
        init_state,
        sample_rows,
        teaching_of,
    )
    from understudy.training.settings import Settings

    loaded = np.load(path)
    codes, blocks = loaded["codes"].astype(np.int32), one_hot_blocks(tuple(int(size) for size in loaded["sizes"]))
    parts = partition_by_teacher(codes, np.random.default_rng(0).integers(0, teachers, len(codes)), teachers)
    settings = Settings(blocks=blocks, batch_size=32, critic_widths=(32,), marginal_weight=30.0)
    voting = Voting(
        teachers=teachers,
        queries=4,
        teacher_widths=widths,
        teacher_batch=32,
        teacher_learning_rate=5e-3,
        student_steps=1,
        memory=2048,
    )
    hyperparameters = Hyperparameters.of(2e-3, 4e-3, np.inf)
    context = Context(marginal=jnp.asarray(loaded["marginal"]))
    queries = steps * voting.queries
    stddev = vote_stddev(float(loaded["multiplier"]), num_queries=queries, num_teachers=teachers)
    noise = SeededNoise(0).discrete_gaussian(stddev, (queries,))
    charged = ChargedVotes(parts, jnp.asarray(noise, jnp.int32), 1)
    teaching = teaching_of(settings, voting, None)
    keys = jax.random.split(jax.random.key(0), 3)
    learned = init_learners(settings, voting, hyperparameters, keys[0], context)
    state = init_state(settings, voting, learned, context, teacher_key=keys[1])

    @jax.jit
    def whole(state: PateState, charged: ChargedVotes) -> PateState:
        """Everything: teachers, votes, student, generator."""
        return advance(settings, voting, state, charged, hyperparameters, keys[2], steps, context)

    @jax.jit
    def together(teachers: Teachers, charged: ChargedVotes, first: jax.Array) -> Teachers:
        """The teachers' steps alone, as one population."""

        def step(teachers: Teachers, number: jax.Array) -> tuple[Teachers, None]:
            key = jax.random.fold_in(keys[2], number)
            fakes = sample_rows(settings, state.learned, voting.teacher_batch, None, key=key)
            return teacher_step(charged, teachers, teaching, fakes, key=key), None

        return jax.lax.scan(step, teachers, first + jnp.arange(LENGTH))[0]

    @jax.jit
    def one(teachers: Teachers, charged: ChargedVotes, fakes: jax.Array, key: jax.Array) -> Teachers:
        return teacher_step(charged, teachers, teaching, fakes, key=key)

    timings = {}
    compiled = whole.lower(state, charged).compile()
    began = time.perf_counter()
    jax.block_until_ready(compiled(state, charged))
    timings["whole"] = time.perf_counter() - began

    jax.block_until_ready(together(state.teachers, charged, jnp.int32(0)))
    began = time.perf_counter()
    jax.block_until_ready(together(state.teachers, charged, jnp.int32(LENGTH)))
    timings["together"] = (time.perf_counter() - began) / LENGTH

    split = [jax.tree_util.tree_map(lambda leaf, i=i: leaf[i : i + 1], state.teachers) for i in range(teachers)]
    own = [
        dataclasses.replace(
            charged, _partitions=Partitions(parts._rows, parts._offsets[i : i + 1], parts._lengths[i : i + 1])
        )
        for i in range(teachers)
    ]
    make = jax.jit(lambda key: sample_rows(settings, state.learned, voting.teacher_batch, None, key=key))
    jax.block_until_ready(one(split[0], own[0], make(keys[0]), keys[0]))
    began = time.perf_counter()
    for number in range(loop_steps):
        fakes = make(jax.random.fold_in(keys[2], number))
        for i in range(teachers):
            split[i] = one(split[i], own[i], fakes, jax.random.fold_in(keys[2], i))
    jax.block_until_ready(split)
    timings["loop"] = (time.perf_counter() - began) / loop_steps

    device = jax.devices()[0].device_kind
    ratio = timings["loop"] / timings["together"]
    lines = [
        f"# {teachers} teachers on Adult",
        "",
        f"`python benchmarks/pate.py run adult.npz --write`, {datetime.date.today()}, {device}, JAX {jax.__version__}, "
        f"load {load()}.",
        "",
        f"{teachers} teachers, {list(widths) or 'no'} hidden units, a batch of 32 own rows and 32 generated ones:",
        "",
        "| | seconds |",
        "|---|---:|",
        f"| {steps:,} whole iterations (teachers, votes, student, generator), compiled | {timings['whole']:.1f} |",
        f"| one step of all teachers as one population | {timings['together']:.4f} |",
        f"| one step of all teachers, one after the other | {timings['loop']:.4f} |",
        f"| {steps:,} steps one after the other, by that | {steps * timings['loop']:.0f} |",
        f"| times faster | {ratio:.1f} |",
    ]
    print("\n".join(lines))
    if write:
        name = "".join(c if c.isalnum() else "_" for c in device.lower())
        (HERE / "results" / f"pate_{name}.md").write_text("\n".join(lines) + "\n")


LENGTH = 20


def load() -> str:
    import os

    return f"{os.getloadavg()[0]:.1f} on {os.cpu_count()} cores"


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["prepare", "run"])
    parser.add_argument("path", nargs="?")
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--teachers", type=int, default=TEACHERS)
    parser.add_argument("--steps", type=int, default=STEPS)
    parser.add_argument("--widths", type=int, nargs="*", default=[16])
    parser.add_argument("--loop-steps", type=int, default=20)
    given = parser.parse_args()
    if given.what == "prepare":
        prepare(given.path)
    else:
        run(
            given.path,
            teachers=given.teachers,
            steps=given.steps,
            widths=tuple(given.widths),
            loop_steps=given.loop_steps,
            write=given.write,
        )
