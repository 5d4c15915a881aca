"""Many DPGANs at once: 7 budgets x 12 seeds on Adult, trained and sampled as one program.

    UNDERSTUDY_DATA=folder python benchmarks/population.py prepare adult.npz     # here: encodes, plans, measures
    python benchmarks/population.py run adult.npz --write                        # there: trains

The first command encodes the table under its declared schema and computes what each budget costs; the second needs only
NumPy, JAX, Equinox and Optax.
Seeded, on public data: repeatable, and not private.
"""

import argparse
import datetime
import sys
import time
from pathlib import Path

import numpy as np

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent / "src"))
EPSILONS = (0.1, 0.3, 0.5, 1.0, 3.0, 6.0, 9.0)
SEEDS = 12
DELTA, RATE, STEPS = 1e-5, 1 / 32, 1000


def prepare(path: str) -> None:
    """Codes, noisy marginals and noise multipliers, one set for each budget."""
    import understudy as us
    from understudy.benchmark.tables import load_table
    from understudy.encoding import fit_codec
    from understudy.privacy.counts import noisy_counts
    from understudy.privacy.discovery import plan_discovery
    from understudy.privacy.noise import SeededNoise
    from understudy.privacy.table import PrivateTable
    from understudy.synthesizers.dpgan import DPGAN
    from understudy.training.prepare import to_shares

    table = load_table("adult")
    schema = table.schema
    multipliers, marginals, codes, sizes = [], [], None, None
    for epsilon in EPSILONS:
        ledger = us.Ledger(us.Guarantee(epsilon, DELTA), noise=SeededNoise(0))
        # One binning for all budgets, so that they are one program: bins by the declared bounds alone.
        binning = us.Binning(bins="uniform")
        codec, rows = fit_codec(
            PrivateTable(table.train), schema, plan_discovery(schema, ledger.remaining, binning), ledger, binning
        )
        plan = DPGAN(sampling_rate=RATE, steps=STEPS).plan(codec.domain, ledger.remaining)
        tables = noisy_counts(rows, codec.domain.one_way, plan["one_way"], ledger)
        marginals.append(np.concatenate([to_shares(table) for table in tables]))
        multipliers.append(plan["critic"].event.noise_multiplier)  # type: ignore[attr-defined]
        codes, sizes = codec.encode(table.train), codec.domain.sizes
    np.savez_compressed(path, codes=codes, sizes=sizes, multipliers=multipliers, marginals=marginals, rows=schema.rows)


def run(path: str, *, write: bool) -> None:
    import jax
    import jax.numpy as jnp

    from understudy.models.networks import sample_codes
    from understudy.privacy.dpsgd import ChargedSteps
    from understudy.privacy.rows import PrivateUnits
    from understudy.privacy.sampling import Batches, round_sampling_rate
    from understudy.training.critics import one_hot_blocks
    from understudy.training.gan import Hyperparameters, advance, batches_of, init_state
    from understudy.training.generation import Context, generate
    from understudy.training.settings import Settings

    loaded = np.load(path)
    began = time.perf_counter()
    codes = jnp.asarray(loaded["codes"], dtype=jnp.int32)
    blocks = one_hot_blocks(tuple(int(size) for size in loaded["sizes"]))
    units = PrivateUnits(codes[:, None], jnp.ones((len(codes), 1), dtype=bool))
    rows = int(loaded["rows"])
    settings = Settings(blocks=blocks, batch_size=round(RATE * rows), marginal_weight=30.0)

    def charged(multiplier: jax.Array) -> ChargedSteps:
        return ChargedSteps(units, multiplier, round_sampling_rate(RATE), STEPS)

    def member(keys: jax.Array, multiplier: jax.Array, marginal: jax.Array, batches: Batches) -> jax.Array:
        start_key, run_key, sample_key, head_key = keys
        hyperparameters = Hyperparameters(jnp.float32(5e-3), jnp.float32(4e-3), jnp.float32(1.0))
        context = Context(marginal=marginal)
        state = init_state(settings, hyperparameters, start_key, context)
        state = advance(settings, state, charged(multiplier), hyperparameters, run_key, batches, context)
        logits, _, _ = generate(settings, state.average, rows, sample_key)
        return sample_codes(logits, blocks, key=head_key).astype(jnp.int16)

    keys = jnp.stack([jax.random.split(jax.random.key(seed), 4) for _ in EPSILONS for seed in range(SEEDS)])
    batches = batches_of(settings, keys[:, 1], charged(jnp.ones(())), 0, STEPS)
    multipliers = jnp.repeat(jnp.asarray(loaded["multipliers"], jnp.float32), SEEDS)
    marginals = jnp.repeat(jnp.asarray(loaded["marginals"], jnp.float32), SEEDS, axis=0)
    compiled = jax.jit(jax.vmap(member)).lower(keys, multipliers, marginals, batches).compile()
    compiling = time.perf_counter() - began
    fakes = np.asarray(compiled(keys, multipliers, marginals, batches))
    whole = time.perf_counter() - began
    device = jax.devices()[0].device_kind
    lines = [
        "# 84 DPGANs on Adult at once",
        "",
        f"`python benchmarks/population.py run adult.npz --write`, {datetime.date.today()}, {device}, JAX "
        f"{jax.__version__}, seeds 0 to {SEEDS - 1}.",
        "",
        f"{len(fakes)} runs (epsilon {', '.join(map(str, EPSILONS))}, {SEEDS} seeds each) of {STEPS} critic steps, "
        f"batch {settings.batch_size}, each sampled to {rows:,} rows of {len(blocks)} columns:",
        "",
        "| | seconds |",
        "|---|---:|",
        f"| loading and compiling | {compiling:.1f} |",
        f"| training and sampling | {whole - compiling:.1f} |",
        f"| together | {whole:.1f} |",
    ]
    print("\n".join(lines))
    if write:
        name = "".join(c if c.isalnum() else "_" for c in device.lower())
        (HERE / "results").mkdir(exist_ok=True)
        (HERE / "results" / f"population_{name}.md").write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["prepare", "run"])
    parser.add_argument("path")
    parser.add_argument("--write", action="store_true")
    arguments = parser.parse_args()
    prepare(arguments.path) if arguments.what == "prepare" else run(arguments.path, write=arguments.write)
