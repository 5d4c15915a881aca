"""Trains DPGAN and DP-CTGAN under many settings at once, and scores every table.

    UNDERSTUDY_DATA=folder python benchmarks/sweep_dpgan.py prepare prepared/       # here: encodes, measures, plans
    python benchmarks/sweep_dpgan.py run prepared/ benchmarks/sweeps/dpgan.json results.jsonl

`run` needs NumPy, JAX, Equinox, Optax and scikit-learn. A plan names tables and configurations (fields of `Settings`,
and rate, steps, cond, and public: a share of the rows that is taken for public, for a warm start and clip bounds, and
leaves the private rows); learning rates, clips and seeds are hyperparameters, so each configuration is one program.
Scores are of codes: mean total variation of columns (tv1) and pairs (tv2), and AUC of boosted trees (gb) and logistic
regression (lr) on the test rows. Seeded, on public data, epsilon 1, delta 1e-5, a tenth of it for one-way counts:
repeatable, and not private.
"""

import argparse
import dataclasses
import itertools
import json
import os
import sys
from collections.abc import Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent / "src"))
TABLES = ("adult", "bank", "shopping", "pums_ca")
RATES, STEPS = (1 / 64, 1 / 32, 1 / 16, 1 / 8, 1 / 4), (250, 500, 1000, 2000, 4000)


def prepare(folder: Path) -> None:
    """Codes, noisy marginals, and the noise multiplier of every rate and number of steps."""
    import understudy as us
    from understudy.benchmark.tables import load_table
    from understudy.encoding import fit_codec
    from understudy.privacy.mechanisms.counts import noisy_counts
    from understudy.privacy.mechanisms.discovery import plan_discovery
    from understudy.privacy.noise.source import SeededNoise
    from understudy.privacy.rows.table import PrivateTable
    from understudy.synthesizers.dpgan import DPGAN
    from understudy.tables import conform
    from understudy.training.prepare import to_shares

    folder.mkdir(parents=True, exist_ok=True)
    for name in TABLES:
        table = load_table(name)
        schema = table.schema
        ledger = us.Ledger(us.Guarantee(1.0, 1e-5), noise=SeededNoise(0))
        binning = us.Binning()
        codec, rows = fit_codec(
            PrivateTable(table.train), schema, plan_discovery(schema, ledger.remaining, binning), ledger, binning
        )
        singles = DPGAN().plan(codec.domain, ledger.remaining)["one_way"]
        left = ledger.remaining
        marginal = np.concatenate(
            [to_shares(table) for table in noisy_counts(rows, codec.domain.one_way, singles, ledger)]
        )
        multipliers = {}
        for rate, steps in itertools.product(RATES, STEPS):
            event = DPGAN(sampling_rate=rate, steps=steps).plan(codec.domain, left)["critic"].event
            multipliers[f"{rate}:{steps}"] = event.noise_multiplier  # type: ignore[attr-defined]
        np.savez_compressed(
            folder / f"{name}.npz",
            codes=codec.encode(table.train),
            test=codec.encode(conform(table.test, schema)),
            sizes=codec.domain.sizes,
            rows=codec.num_rows,
            target=codec.domain.index(table.target),
            marginal=marginal.astype(np.float32),
        )
        (folder / f"{name}.json").write_text(json.dumps(multipliers))


def judge(train: np.ndarray, test: np.ndarray, fake: np.ndarray, sizes: list[int], target: int) -> dict[str, float]:
    """Distances of columns and pairs, and two classifiers trained on the fake rows."""
    from sklearn.ensemble import HistGradientBoostingClassifier
    from sklearn.linear_model import LogisticRegression
    from sklearn.metrics import roc_auc_score

    def distance(columns: tuple[int, ...]) -> float:
        cells = int(np.prod([sizes[column] for column in columns]))
        counts = []
        for table in (train, fake):
            flat = np.zeros(len(table), dtype=np.int64)
            for column in columns:
                flat = flat * sizes[column] + table[:, column]
            counts.append(np.bincount(flat, minlength=cells) / len(table))
        return float(np.abs(counts[0] - counts[1]).sum() / 2)

    def one_hot(codes: np.ndarray) -> np.ndarray:
        return np.concatenate([np.eye(sizes[j], dtype=np.float32)[codes[:, j]] for j in others], axis=1)

    others = [column for column in range(len(sizes)) if column != target]
    rare = int(np.argmin(np.bincount(train[:, target], minlength=2)[:2]))
    labels, truth = fake[:, target] == rare, test[:, target] == rare
    found = {
        "tv1": float(np.mean([distance((j,)) for j in range(len(sizes))])),
        "tv2": float(np.mean([distance(pair) for pair in itertools.combinations(range(len(sizes)), 2)])),
        "gb": 0.5,
        "lr": 0.5,
    }
    if 0 < labels.sum() < len(labels):
        trees = HistGradientBoostingClassifier(max_iter=60, random_state=0).fit(fake[:, others], labels)
        found["gb"] = float(roc_auc_score(truth, trees.predict_proba(test[:, others])[:, 1]))
        linear = LogisticRegression(max_iter=200).fit(one_hot(fake), labels)
        found["lr"] = float(roc_auc_score(truth, linear.decision_function(one_hot(test))))
    return found


def trained(loaded: Any, multipliers: dict[str, float], configuration: dict, hyperparameters: list[dict]) -> np.ndarray:
    """One table for each member of the population, as codes."""
    import jax
    import jax.numpy as jnp

    from understudy.models.neural import sample_codes
    from understudy.privacy.gradients.clipping import noise_multiplier_beside_counts
    from understudy.privacy.gradients.dpsgd import ChargedSteps, PublicSteps
    from understudy.privacy.gradients.poisson import Batches, round_sampling_rate
    from understudy.privacy.rows.rows import PrivateUnits, PublicUnits
    from understudy.training.critics import Conditions, one_hot_blocks
    from understudy.training.gan import Hyperparameters, advance, batches_of, init_from_networks, init_state
    from understudy.training.generation import Context, generate
    from understudy.training.settings import Settings

    rate, steps = configuration.pop("rate", 1 / 32), configuration.pop("steps", 1000)
    share, warm = configuration.pop("public", 0.0), configuration.pop("warm_steps", 500)
    conditioned, most = configuration.pop("cond", False), configuration.pop("max_weight", 10.0)
    sizes, rows = [int(size) for size in loaded["sizes"]], int(loaded["rows"])
    blocks = one_hot_blocks(tuple(sizes))
    marginal = jnp.asarray(loaded["marginal"])
    fields = {key: tuple(value) if isinstance(value, list) else value for key, value in configuration.items()}
    batch = round(rate * rows)
    counts = batch / 20 if configuration.get("adaptive_clip") == "quantile" else 0.0
    settings = Settings(blocks=blocks, batch_size=batch, **fields)
    anchored = marginal if settings.marginal_weight else None
    conditions = Conditions.from_marginal(blocks, np.asarray(marginal), rows, most) if conditioned else None
    law = dataclasses.replace(conditions, target=marginal / len(blocks)) if conditions is not None else None
    codes = jnp.asarray(loaded["codes"], jnp.int32)[:, None]
    present, taken = jnp.ones((len(codes), 1), dtype=bool), np.random.default_rng(0).random(len(codes)) < share
    plain = dataclasses.replace(settings, clip_groups=1, adaptive_clip="none", batch_size=512)
    public = PublicUnits(codes[taken], present[taken]) if share else None
    context = Context(conditions, anchored, public)
    free_rate = round_sampling_rate(min(1.0, 512 / taken.sum())) if share else 1.0
    free_steps = None if public is None else PublicSteps(public, free_rate, warm)

    def charged(multiplier: jax.Array) -> ChargedSteps:
        units = PrivateUnits(codes[~taken], present[~taken])
        return ChargedSteps(units, multiplier, rate, steps, counts or None)

    def member(
        keys: jax.Array, one: Hyperparameters, multiplier: jax.Array, batches: Batches, warm_batches: Batches | None
    ) -> jax.Array:
        state = init_state(settings, one, keys[0], context)
        if free_steps is not None:
            assert warm_batches is not None
            free = dataclasses.replace(one, clip_norm=jnp.float32(np.inf), is_private=False)
            state = init_state(plain, free, keys[0], context)
            state = advance(plain, state, free_steps, free, keys[4], warm_batches, context)
            state = init_from_networks(settings, one, state.average, state.critic)
        state = advance(settings, state, charged(multiplier), one, keys[1], batches, context)
        logits, _, _ = generate(settings, state.average, len(loaded["codes"]), keys[2], law)
        return sample_codes(logits, blocks, key=keys[3]).astype(jnp.int16)

    keys = jnp.stack([jax.random.split(jax.random.key(one["seed"]), 5) for one in hyperparameters])
    batches = batches_of(settings, keys[:, 1], charged(jnp.ones(())), 0, steps // settings.critic_steps)
    warm_batches = None
    if free_steps is not None:
        warm_batches = batches_of(plain, keys[:, 4], free_steps, 0, warm // settings.critic_steps)
    names = ("critic_learning_rate", "generator_learning_rate", "clip_norm")
    columns = [jnp.asarray([one[name] for one in hyperparameters], jnp.float32) for name in names]
    multiplier = multipliers[f"{rate}:{steps}"]
    multiplier = noise_multiplier_beside_counts(multiplier, settings.clip_groups, counts) if counts else multiplier
    noise = jnp.full(len(hyperparameters), multiplier, jnp.float32)
    found = jax.jit(jax.vmap(member))(keys, Hyperparameters(*columns), noise, batches, warm_batches)
    return np.asarray(found, dtype=np.int32)


def cells(plan: dict, folder: Path) -> Iterator[tuple[str, dict, list[dict], Any, dict]]:
    for table, configuration in itertools.product(plan["tables"], plan["configurations"]):
        if table in configuration.get("only", [table]):
            hyperparameters = {
                **plan["hyperparameters"],
                **configuration.get("hyperparameters", {}),
                "seed": range(plan["seeds"]),
            }
            members = [
                dict(zip(hyperparameters, values, strict=True))
                for values in itertools.product(*hyperparameters.values())
            ]
            loaded = np.load(folder / f"{table}.npz")
            yield table, dict(configuration), members, loaded, json.loads((folder / f"{table}.json").read_text())


def run(folder: Path, plan_file: Path, out: Path) -> None:
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    pending: list[tuple[dict, Future]] = []
    with ProcessPoolExecutor(mp_context=get_context("spawn")) as pool, out.open("w") as file:
        for table, configuration, members, loaded, multipliers in cells(json.loads(plan_file.read_text()), folder):
            name = configuration.pop("name")
            for key in ("only", "hyperparameters"):
                configuration.pop(key, None)
            fakes = trained(loaded, multipliers, configuration, members)
            codes, test = (loaded[key].astype(np.int32) for key in ("codes", "test"))
            sizes, target = [int(size) for size in loaded["sizes"]], int(loaded["target"])
            for member, fake in zip(members, fakes, strict=True):
                facts = {"table": table, "name": name, **member}
                pending.append((facts, pool.submit(judge, codes, test, fake, sizes, target)))
            print(table, name, flush=True)
        for facts, found in pending:
            file.write(json.dumps({**facts, **found.result()}) + "\n")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["prepare", "run"])
    parser.add_argument("folder", type=Path)
    parser.add_argument("plan", type=Path, nargs="?")
    parser.add_argument("out", type=Path, nargs="?")
    arguments = parser.parse_args()
    if arguments.what == "prepare":
        prepare(arguments.folder)
    else:
        run(arguments.folder, arguments.plan, arguments.out)
